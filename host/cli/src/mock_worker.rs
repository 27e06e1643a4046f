//! `pointsman mock-worker`: a simulated engine as a process of its own.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use pointsman_mock::{KvEventConfig, MockConfig, MockEngine, Timing};

use crate::error::CliError;
use crate::stop::Stop;

/// Runs a simulated inference engine that speaks OpenAI's API, until it is interrupted.
#[derive(clap::Args)]
pub(crate) struct MockWorker {
    /// The address that it listens at.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    /// The port; 0 takes a free one.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// The engine's name, which its answers carry.
    #[arg(long, default_value = "mock")]
    name: String,
    /// The model that it serves.
    #[arg(long, default_value = "mock")]
    model: String,
    /// The model's tokenizer.json; without one, four bytes are a token.
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// Tokens of a KV block.
    #[arg(long, default_value_t = 16)]
    block_size: u32,
    /// KV blocks of each rank.
    #[arg(long, default_value_t = 80_000)]
    total_kv_blocks: u64,
    /// Sequences that run at once on each rank, at most.
    #[arg(long, default_value_t = 128)]
    max_num_seqs: usize,
    /// Tokens of one step, at most.
    #[arg(long, default_value_t = 2_048)]
    max_num_batched_tokens: u32,
    /// Data-parallel ranks.
    #[arg(long, default_value_t = 1)]
    data_parallel_size: u32,
    /// Microseconds that one token of a prompt takes.
    #[arg(long, default_value_t = 53.5)]
    prefill_us_per_token: f64,
    /// Milliseconds that one token of an answer takes in an empty batch.
    #[arg(long, default_value_t = 29.6)]
    decode_ms_per_token: f64,
    /// How many times faster than that it runs.
    #[arg(long, default_value_t = 1.0)]
    speedup_ratio: f64,
    /// Publishes KV events at this ZMQ endpoint, as tcp://127.0.0.1:5557; rank n n ports further.
    #[arg(long, value_name = "ENDPOINT")]
    kv_events: Option<String>,
    /// The topic of the KV events.
    #[arg(long, default_value = "")]
    kv_events_topic: String,
    /// Sends the latest KV events again to who asks at this ZMQ endpoint; rank n n ports further.
    #[arg(long, value_name = "ENDPOINT", requires = "kv_events")]
    kv_events_replay: Option<String>,
    /// Serves /mock/failures and /mock/clear-cache, to whoever can reach it.
    #[arg(long)]
    control: bool,
}

impl MockWorker {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(async {
            let engine = MockEngine::start(self.config()?).await?;
            let mut stop = Stop::new()?;
            announce(&engine)?;
            stop.asked().await;
            engine.stop().await;
            Ok(())
        })
    }

    fn config(self) -> Result<MockConfig, CliError> {
        let timing = Timing {
            decode_token: seconds("--decode-ms-per-token", self.decode_ms_per_token, 1e-3)?,
            prefill_token: seconds("--prefill-us-per-token", self.prefill_us_per_token, 1e-6)?,
            speedup: self.speedup_ratio,
            ..Timing::default()
        };
        Ok(MockConfig {
            address: SocketAddr::new(self.host, self.port),
            name: self.name,
            model: self.model,
            tokenizer: self.tokenizer,
            block_size: self.block_size,
            total_kv_blocks: self.total_kv_blocks,
            max_num_seqs: self.max_num_seqs,
            max_num_batched_tokens: self.max_num_batched_tokens,
            timing,
            data_parallel_size: self.data_parallel_size,
            kv_events: self.kv_events.map(|endpoint| KvEventConfig {
                endpoint,
                topic: self.kv_events_topic,
                replay: self.kv_events_replay,
            }),
            control: self.control,
            ..MockConfig::default()
        })
    }
}

fn seconds(option: &'static str, value: f64, unit: f64) -> Result<Duration, CliError> {
    Duration::try_from_secs_f64(value * unit).map_err(|_| CliError::Duration { option, value })
}

fn announce(engine: &MockEngine) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "listening on {}", engine.url())?;
    for (rank, endpoint) in engine.event_endpoints().iter().enumerate() {
        writeln!(stdout, "KV events of rank {rank} at {endpoint}")?;
    }
    for (rank, endpoint) in engine.replay_endpoints().iter().enumerate() {
        writeln!(stdout, "KV events of rank {rank} again at {endpoint}")?;
    }
    stdout.flush()?;
    Ok(())
}
