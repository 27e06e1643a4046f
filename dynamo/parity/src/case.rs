//! One generated situation: workers, what is known of them, and the requests that come one after the other.

use pointsman_routing::{Affinity, Role, RouterConfig, Trigger, WorkerKey, WorkerOverlap};
use serde_json::{Map, Value};

/// A partition with its workers, and its requests in order.
#[derive(Clone, Debug)]
pub struct Case {
    /// What the workers do.
    pub role: Role,
    /// Tokens per KV block.
    pub block_size: u32,
    /// The policy's parameters, the same text for both sides.
    pub parameters: Map<String, Value>,
    /// The workers; ids differ.
    pub workers: Vec<Worker>,
    /// The requests; nothing is booked between them.
    pub asks: Vec<Ask>,
}

/// One worker.
#[derive(Clone, Debug)]
pub struct Worker {
    /// Its id.
    pub id: u64,
    /// Its first data-parallel rank.
    pub start_rank: u32,
    /// The load of each rank; none where it is not known.
    pub ranks: Vec<Option<Busy>>,
    /// Its taints.
    pub taints: Vec<&'static str>,
    /// Whether it is overloaded.
    pub overloaded: bool,
    /// Whether it is available to any request.
    pub available: bool,
    /// KV blocks in all.
    pub total_kv_blocks: Option<u64>,
}

impl Worker {
    /// Its rows with their load, in order.
    pub fn rows(&self) -> impl Iterator<Item = (WorkerKey, Option<Busy>)> {
        (self.start_rank..).zip(&self.ranks).map(|(rank, busy)| (WorkerKey::new(self.id, rank), *busy))
    }
}

/// What one row is busy with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Busy {
    /// Tokens in prefill.
    pub prefill_tokens: usize,
    /// KV blocks of active requests.
    pub decode_blocks: usize,
    /// Active requests.
    pub requests: usize,
    /// Leading blocks of the prompt that active requests hold already.
    pub shared_blocks: usize,
}

/// One request.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Whether it counts towards prefill load.
    pub tracked: bool,
    /// Its own router temperature.
    pub temperature: Option<f64>,
    /// The one row that may serve it.
    pub pin: Option<WorkerKey>,
    /// The session's worker so far.
    pub affinity: Option<Affinity>,
    /// The workers that the caller allows.
    pub allowed: Option<Vec<u64>>,
    /// The workers that are available to this request.
    pub available: Option<Vec<u64>>,
    /// Taints that a worker must have.
    pub required_taints: Vec<&'static str>,
    /// Taints that make a worker cheaper or dearer.
    pub preferred_taints: Vec<(&'static str, f32)>,
    /// Prefix overlaps by row, sorted.
    pub overlaps: Vec<WorkerOverlap>,
    /// Blocks in the shared cache, as ranges of positions.
    pub shared: Option<Vec<(u32, u32)>>,
    /// The session.
    pub session: Option<Session>,
    /// Milliseconds since the start.
    pub now_ms: f64,
}

/// The session of a request.
#[derive(Clone, Debug)]
pub struct Session {
    /// Its identifier.
    pub id: String,
    /// The session that started it.
    pub parent: Option<String>,
    /// Whether this is its last request.
    pub last: Option<bool>,
    /// What set the request off.
    pub trigger: Option<Trigger>,
}

impl Ask {
    /// The prompt in blocks, rounded up.
    #[must_use]
    pub const fn blocks(&self, block_size: u32) -> usize {
        self.prompt_tokens.div_ceil(block_size as usize)
    }

    /// The row that the request may not leave: its pin, or a hard affinity target with a rank.
    #[must_use]
    pub fn exact(&self) -> Option<WorkerKey> {
        self.pin.or_else(|| {
            let target = self.affinity.filter(|target| target.hard)?;
            Some(WorkerKey::new(target.worker, target.rank?))
        })
    }
}

impl Case {
    /// Whether any preferred taint can change a cost.
    #[must_use]
    pub fn prefers(&self) -> bool {
        self.asks.iter().any(|ask| !ask.preferred_taints.is_empty())
    }

    /// `config` with the parameters of the default cost model in place of its settings.
    #[must_use]
    pub fn with_parameters(&self, config: RouterConfig) -> RouterConfig {
        let of = |name: &str, setting: f64| self.parameters.get(name).and_then(Value::as_f64).unwrap_or(setting);
        RouterConfig {
            overlap_score_credit: of("overlap_score_credit", config.overlap_score_credit),
            overlap_score_credit_decay: of("overlap_score_credit_decay", config.overlap_score_credit_decay),
            prefill_load_scale: of("prefill_load_scale", config.prefill_load_scale),
            decode_active_request_weight: of("decode_active_request_weight", config.decode_active_request_weight),
            host_cache_hit_weight: of("host_cache_hit_weight", config.host_cache_hit_weight),
            disk_cache_hit_weight: of("disk_cache_hit_weight", config.disk_cache_hit_weight),
            shared_cache_multiplier: of("shared_cache_multiplier", config.shared_cache_multiplier),
            router_temperature: of("router_temperature", config.router_temperature),
            conditional_disaggregation: config.conditional_disaggregation,
        }
    }
}
