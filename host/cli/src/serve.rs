//! `pointsman serve`: the front door, in front of the workers of a server file or of two simulated engines.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use pointsman_admission::{AffinityMode, MAX_SESSION_TTL_SECS, OverloadStatus};
use pointsman_mock::{MockConfig, MockEngine};
use pointsman_routing::config::{Overrides, PolicyConfig, SessionAffinitySettings};
use pointsman_server::config::ServerConfig;
use pointsman_server::fleet::WorkerSpec;
use pointsman_server::predicted::{KV_EVENTS_VARIABLE, Predicted};
use pointsman_server::select::{EXPIRY_VARIABLE, SelectionOptions};
use pointsman_server::signals::ModelSignals;
use pointsman_server::{Server, Setup, policies};

use crate::compile::Compile;
use crate::error::CliError;
use crate::logging::Logging;
use crate::observing::{Observing, Recording};
use crate::stop::Stop;

const OVERLOAD_VARIABLE: &str = "DYN_HTTP_OVERLOAD_STATUS_CODE";

/// Routes OpenAI requests to inference engines by policies; with no --config, to two simulated engines of its own.
#[derive(clap::Args)]
pub(crate) struct Serve {
    /// The server file, YAML: listeners, keys, workers, limits.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The router-policy file, YAML; read again when it or an artifact of it changes.
    #[arg(long, value_name = "FILE", env = "DYN_ROUTER_POLICY_CONFIG")]
    router_policy_config: Option<PathBuf>,
    /// Where the front door listens, in place of the server file's `listen`.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// How strictly a session keeps its worker, in place of the router-policy file's.
    #[arg(long, value_name = "MODE", env = "DYN_ROUTER_SESSION_AFFINITY_MODE", requires = "ttl", value_parser = mode)]
    router_session_affinity_mode: Option<AffinityMode>,
    /// Seconds that an idle session keeps its worker; sessions keep none unless this or the router-policy file says so.
    #[arg(
        id = "ttl",
        long = "router-session-affinity-ttl-secs",
        value_name = "SECONDS",
        env = "DYN_ROUTER_SESSION_AFFINITY_TTL_SECS",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SESSION_TTL_SECS))
    )]
    router_session_affinity_ttl_secs: Option<u32>,
    #[command(flatten)]
    observing: Observing,
    #[command(flatten)]
    logging: Logging,
    #[command(flatten)]
    compile: Compile,
}

fn mode(text: &str) -> Result<AffinityMode, &'static str> {
    match text {
        "hard" => Ok(AffinityMode::Hard),
        "soft" => Ok(AffinityMode::Soft),
        _ => Err("a mode is hard or soft"),
    }
}

impl Serve {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let logging = self.logging.clone();
        logging.run(async {
            let mut config = match &self.config {
                Some(path) => ServerConfig::load(path)?,
                None => ServerConfig { listen: (Ipv4Addr::LOCALHOST, 0).into(), ..ServerConfig::default() },
            };
            // They live as long as the server.
            let engines = if self.config.is_none() { simulated(&mut config).await? } else { Vec::new() };
            config.listen = self.listen.unwrap_or(config.listen);
            let (setup, recording) = self.setup(config)?;
            let server = Server::start(setup).await?;
            let mut stop = Stop::new()?;
            announce(&server, !engines.is_empty())?;
            stop.asked().await;
            tokio::select! {
                () = server.drain() => {}
                // Whoever asks twice does not want to wait.
                () = stop.asked() => {}
            }
            recording.map_or(Ok(()), Recording::finish)
        })
    }

    fn setup(self, config: ServerConfig) -> Result<(Setup, Option<Recording>), CliError> {
        let policies = self.router_policy_config.as_deref().map(PolicyConfig::load).transpose()?;
        let mode = self.router_session_affinity_mode.unwrap_or(AffinityMode::Hard);
        let session_affinity =
            self.router_session_affinity_ttl_secs.map(|ttl_secs| SessionAffinitySettings { mode, ttl_secs });
        let overrides = Overrides { session_affinity, ..Overrides::from_env(|name| std::env::var_os(name))? };
        let router = policies::router(&config, policies, overrides, |sandbox| self.compile.config(sandbox))?;
        let router = Arc::new(router);
        let use_kv_events = std::env::var(KV_EVENTS_VARIABLE).ok();
        let predicted = Predicted::new(router.router_config(), use_kv_events.as_deref())?;
        let signals = ModelSignals::new(&config.models, predicted)?;
        let (observer, recording) = self.observing.start(&router)?;
        let variable = |name| std::env::var(name).unwrap_or_default();
        let setup = Setup {
            policy_file: self.router_policy_config,
            overload: OverloadStatus::parse(&variable(OVERLOAD_VARIABLE)),
            selection: SelectionOptions::default().with_expiry_text(&variable(EXPIRY_VARIABLE)),
            observer,
            ..Setup::new(config, router, Arc::new(signals))
        };
        Ok((setup, recording))
    }
}

/// Two simulated engines, as workers of the server.
async fn simulated(config: &mut ServerConfig) -> Result<Vec<MockEngine>, CliError> {
    let mut engines = Vec::new();
    for worker in 1..=2 {
        let mock = MockConfig { name: format!("mock-{worker}"), ..MockConfig::default() };
        let mut spec = WorkerSpec::new(worker);
        spec.model_name = mock.model.clone();
        spec.block_size = Some(mock.block_size);
        spec.total_kv_blocks = Some(mock.total_kv_blocks);
        spec.max_num_batched_tokens = Some(mock.max_num_batched_tokens.into());
        spec.upstream.health_path = Some("/health".to_owned());
        let engine = MockEngine::start(mock).await?;
        spec.endpoint = Some(engine.url());
        config.workers.push(spec);
        engines.push(engine);
    }
    Ok(engines)
}

fn announce(server: &Server, simulated: bool) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    let url = format!("http://{}", server.address());
    writeln!(stdout, "listening on {url}")?;
    if let Some(address) = server.admin_address() {
        writeln!(stdout, "operators at http://{address}")?;
    }
    if let Some(address) = server.selection_address() {
        writeln!(stdout, "selection service at http://{address}")?;
    }
    if simulated {
        let model = MockConfig::default().model;
        let body = format!(
            "{{\"model\": \"{model}\", \"stream\": true, \"messages\": [{{\"role\": \"user\", \"content\": \"hello\"}}]}}"
        );
        writeln!(stdout, "two simulated engines serve the model `{model}`; try\n")?;
        writeln!(stdout, "curl -N {url}/v1/chat/completions -H 'content-type: application/json' -d '{body}'")?;
    }
    stdout.flush()?;
    Ok(())
}
