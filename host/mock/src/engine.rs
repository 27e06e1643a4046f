//! The engine as a whole: its ranks, its server, and the handle that stops them.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use pointsman_signals::{PromptReader, TokenizerError};
use tokio::net::TcpListener;
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::JoinSet;
use zeromq::{PubSocket, RouterSocket, Socket, ZmqError};

use crate::config::{KvEventConfig, MockConfig};
use crate::connection::accept;
use crate::driver::{Rank, drive};
use crate::events::{Kept, Source, publish, replay};
use crate::failures::Failures;
use crate::http::{App, Received, router};
use crate::scheduler::Scheduler;
use crate::stats::{LiveStats, Stats};

/// Why an engine does not start.
#[derive(Debug, thiserror::Error)]
pub enum MockError {
    /// The HTTP address is taken or not this machine's.
    #[error("the simulated engine cannot listen at {address}: {source}; give an address of this machine, or port 0")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The endpoint for KV events is taken or malformed.
    #[error("KV events cannot be published at {endpoint}: {source}; give an endpoint such as tcp://127.0.0.1:5557")]
    Events {
        /// The endpoint.
        endpoint: String,
        /// What ZMQ said.
        source: ZmqError,
    },
    /// The model's tokenizer cannot be read.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A setting is out of range.
    #[error("the simulated engine's {setting} is {value}; give {range}")]
    Setting {
        /// The setting's name.
        setting: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        range: &'static str,
    },
}

/// A running simulated engine; dropped, it stops at once and closes its connections.
#[derive(Debug)]
pub struct MockEngine {
    address: SocketAddr,
    event_endpoints: Vec<String>,
    replay_endpoints: Vec<String>,
    app: Arc<App>,
    tasks: JoinSet<()>,
}

impl MockEngine {
    /// Starts an engine on the current tokio runtime.
    ///
    /// # Errors
    /// An address that cannot be bound, a tokenizer that cannot be read, a setting that is out of range.
    pub async fn start(config: MockConfig) -> Result<Self, MockError> {
        check(&config)?;
        let mut reader = PromptReader::new(config.block_size);
        if let Some(path) = &config.tokenizer {
            reader = reader.with_tokenizer(path)?;
        }
        let listener = TcpListener::bind(config.address).await;
        let bound = listener.and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (address, listener) = bound.map_err(|source| MockError::Listen { address: config.address, source })?;

        let mut tasks = JoinSet::new();
        let (mut ranks, mut event_endpoints, mut replay_endpoints) = (Vec::new(), Vec::new(), Vec::new());
        for rank in 0..config.data_parallel_size {
            let events = match &config.kv_events {
                None => None,
                Some(events) => {
                    let (socket, endpoint) = bind_events::<PubSocket>(&events.endpoint, rank).await?;
                    event_endpoints.push(endpoint);
                    let kept = Kept::default();
                    if let Some(endpoint) = &events.replay {
                        let (socket, endpoint) = bind_events::<RouterSocket>(endpoint, rank).await?;
                        replay_endpoints.push(endpoint);
                        tasks.spawn(replay(socket, Arc::clone(&kept)));
                    }
                    let (sender, batches) = unbounded_channel();
                    tasks.spawn(publish(socket, source(events, rank, config.block_size), kept, batches));
                    Some(sender)
                }
            };
            let stats = Arc::new(LiveStats::default());
            let (commands, receiver) = unbounded_channel();
            tasks.spawn(drive(Scheduler::new(&config, Arc::clone(&stats)), config.timing, receiver, events));
            ranks.push(Rank { commands, stats });
        }
        let app = Arc::new(App::new(config, reader, ranks));
        tasks.spawn(accept(listener, router(&app), app.refuse()));
        Ok(Self { address, event_endpoints, replay_endpoints, app, tasks })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its base address, without a path: `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where each rank publishes its KV events; empty where none does.
    #[must_use]
    pub fn event_endpoints(&self) -> &[String] {
        &self.event_endpoints
    }

    /// Where the messages of each rank can be had again; empty where they cannot.
    #[must_use]
    pub fn replay_endpoints(&self) -> &[String] {
        &self.replay_endpoints
    }

    /// Changes how it fails from now on.
    pub fn set_failures(&self, failures: Failures) {
        self.app.set_failures(failures);
    }

    /// Forgets all cached blocks that no running request uses, on every rank.
    pub fn clear_cache(&self) {
        self.app.clear_cache();
    }

    /// What each rank counts.
    #[must_use]
    pub fn stats(&self) -> Vec<Stats> {
        self.app.ranks().iter().map(|rank| rank.stats.read()).collect()
    }

    /// The latest inference requests, oldest first, as many as `keep_requests` says.
    #[must_use]
    pub fn received(&self) -> Vec<Received> {
        self.app.received()
    }

    /// Stops it, closes its connections, and frees its addresses before it returns.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

fn check(config: &MockConfig) -> Result<(), MockError> {
    let wrong = |setting, value: String, range| Err(MockError::Setting { setting, value, range });
    if config.block_size == 0 {
        return wrong("block_size", "0".to_owned(), "at least 1 token");
    }
    if config.data_parallel_size == 0 {
        return wrong("data_parallel_size", "0".to_owned(), "at least 1 rank");
    }
    let speedup = config.timing.speedup;
    if speedup.is_nan() || speedup <= 0.0 {
        return wrong("speed-up", speedup.to_string(), "a number above 0");
    }
    Ok(())
}

fn source(events: &KvEventConfig, rank: u32, block_size: u32) -> Source {
    Source { topic: Bytes::from(events.topic.clone().into_bytes()), rank, block_size }
}

/// Binds the endpoint, or the one so many ports further as the rank says.
async fn bind_events<S: Socket>(endpoint: &str, rank: u32) -> Result<(S, String), MockError> {
    let endpoint = match endpoint.rsplit_once(':') {
        Some((host, port)) => match port.parse::<u32>() {
            Ok(port) if port > 0 => format!("{host}:{}", port.saturating_add(rank)),
            _ => endpoint.to_owned(),
        },
        None => endpoint.to_owned(),
    };
    let mut socket = S::new();
    match socket.bind(&endpoint).await {
        Ok(bound) => Ok((socket, bound.to_string())),
        Err(source) => Err(MockError::Events { endpoint, source }),
    }
}
