//! What a simulated engine is like.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::failures::Failures;

/// The settings of a simulated engine.
#[derive(Clone, Debug, PartialEq)]
pub struct MockConfig {
    /// Where it listens; port 0 takes a free one. 127.0.0.1:0 unless set.
    pub address: SocketAddr,
    /// The engine's name: the response header `x-mock-engine`, and `system_fingerprint` in answers.
    pub name: String,
    /// The model that it serves.
    pub model: String,
    /// The model's `tokenizer.json`; without one, four bytes are a token.
    pub tokenizer: Option<PathBuf>,
    /// Tokens of a KV block.
    pub block_size: u32,
    /// KV blocks of each rank.
    pub total_kv_blocks: u64,
    /// Sequences that run at once on each rank, at most.
    pub max_num_seqs: usize,
    /// Tokens of one step, prefill and decode together, at most.
    pub max_num_batched_tokens: u32,
    /// Tokens of a prompt and its answer, at most.
    pub max_model_len: u32,
    /// Tokens of an answer whose request sets no maximum.
    pub default_max_tokens: u32,
    /// How long things take.
    pub timing: Timing,
    /// Data-parallel ranks, each with a cache and a batch of its own. A request is for the rank that its header
    /// `x-data-parallel-rank` names, else for the one with the fewest requests.
    pub data_parallel_size: u32,
    /// Where KV events are published, if at all.
    pub kv_events: Option<KvEventConfig>,
    /// How it fails from the start.
    pub failures: Failures,
    /// Whether the endpoints `/mock/...` exist, which anybody may change failures and the cache with.
    pub control: bool,
    /// How many of the latest requests are kept for [`MockEngine::received`](crate::MockEngine::received).
    pub keep_requests: usize,
}

impl Default for MockConfig {
    fn default() -> Self {
        Self {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            name: "mock".to_owned(),
            model: "mock".to_owned(),
            tokenizer: None,
            block_size: 16,
            total_kv_blocks: 80_000,
            max_num_seqs: 128,
            max_num_batched_tokens: 2_048,
            max_model_len: 131_072,
            default_max_tokens: 64,
            timing: Timing::default(),
            data_parallel_size: 1,
            kv_events: None,
            failures: Failures::default(),
            control: false,
            keep_requests: 0,
        }
    }
}

/// How long a step of the batch takes: `decode_token`, plus `decode_sequence` for each sequence that decodes, plus
/// `prefill_token` for each token that is prefilled; all of it divided by `speedup`.
///
/// The default is of the order of what is published for LLaMA-2-70B on one node of eight H100-80GB; docs/replay.md has
/// the sources.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// What a step takes at least: the time of one token of an answer.
    pub decode_token: Duration,
    /// What each decoding sequence adds to a step.
    pub decode_sequence: Duration,
    /// What each prefilled token adds to a step.
    pub prefill_token: Duration,
    /// How many times faster than that the engine runs, above 0; infinite for no time at all.
    pub speedup: f64,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            decode_token: Duration::from_micros(29_600),
            decode_sequence: Duration::from_micros(310),
            prefill_token: Duration::from_nanos(53_500),
            speedup: 1.0,
        }
    }
}

impl Timing {
    /// An engine that takes no time.
    #[must_use]
    pub fn instant() -> Self {
        Self { speedup: f64::INFINITY, ..Self::default() }
    }

    /// One step that decodes for `sequences` and prefills `tokens`.
    pub(crate) fn step(&self, sequences: usize, tokens: u32) -> Duration {
        let decode = self.decode_token.as_secs_f64() + sequences as f64 * self.decode_sequence.as_secs_f64();
        let seconds = (decode + f64::from(tokens) * self.prefill_token.as_secs_f64()) / self.speedup;
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    }
}

/// Where KV events are published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvEventConfig {
    /// A ZMQ endpoint that rank 0 binds, such as `tcp://127.0.0.1:5557`; rank n binds n ports further. Port 0 takes free
    /// ones.
    pub endpoint: String,
    /// The topic of every message; may be empty.
    pub topic: String,
    /// A ZMQ endpoint, counted up by ranks in the same way, where the latest 10,000 messages of a rank can be had again; none
    /// where they cannot.
    pub replay: Option<String>,
}

impl Default for KvEventConfig {
    fn default() -> Self {
        Self { endpoint: "tcp://127.0.0.1:0".to_owned(), topic: String::new(), replay: None }
    }
}
