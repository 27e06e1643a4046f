//! What the command tells of itself: a log on standard error, and traces where a server is asked for them.

use pointsman_server::ops::trace::Traces;
use tokio::runtime::{Handle, Runtime};
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use crate::error::CliError;

/// How a server logs and traces.
#[derive(Clone, clap::Args)]
pub(crate) struct Logging {
    /// How the log on standard error looks.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    log_format: Format,
    /// The OTLP collector that traces go to, over HTTP, such as http://127.0.0.1:4318/v1/traces.
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")]
    otlp_endpoint: Option<String>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    /// A line for people.
    Text,
    /// A JSON object a line.
    Json,
}

impl Logging {
    /// Runs a server on a runtime of its own, with both.
    pub(crate) fn run(&self, server: impl Future<Output = Result<(), CliError>>) -> Result<(), CliError> {
        let runtime = Runtime::new()?;
        let traces = self.start(runtime.handle().clone())?;
        let ended = runtime.block_on(server);
        if let Some(traces) = traces {
            traces.finish();
        }
        ended
    }

    fn start(&self, runtime: Handle) -> Result<Option<Traces>, CliError> {
        let traces = self.otlp_endpoint.as_deref().map(|url| Traces::start(url, runtime)).transpose()?;
        let registry = tracing_subscriber::registry();
        match &traces {
            // The spans of a trace are those of level info, whatever the log shows.
            Some(traces) => {
                let spans = traces.layer().with_filter(LevelFilter::INFO);
                registry.with(spans).with(log(self.log_format)).init();
            }
            // A layer that is `None` would have the registry keep spans that nobody looks at.
            None => registry.with(log(self.log_format)).init(),
        }
        Ok(traces)
    }
}

/// A log in lines for people.
pub(crate) fn to_stderr() {
    tracing_subscriber::registry().with(log(Format::Text)).init();
}

/// A log of the level that `RUST_LOG` names, as `info` or `pointsman_sandbox=debug,warn`; warnings unless it does.
fn log<S: Subscriber + for<'a> LookupSpan<'a>>(format: Format) -> impl Layer<S> {
    let filter = std::env::var("RUST_LOG").ok().and_then(|filter| filter.parse::<Targets>().ok());
    let filter = filter.unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    match format {
        Format::Text => lines.boxed(),
        Format::Json => lines.json().boxed(),
    }
    .with_filter(filter)
}
