//! The records of `wit/policy.wit`, interface `types`, as plain Rust types with the same names.

use std::fmt;
use std::str::FromStr;

/// What the workers of a partition do. (Dynamo: `WorkerType`.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Prefill and decode on the same worker.
    #[default]
    Aggregated,
    /// Prefill only.
    Prefill,
    /// Decode only.
    Decode,
    /// Multimodal encoding only.
    Encode,
}

impl Role {
    /// Every role, in the contract's order.
    pub const ALL: [Self; 4] = [Self::Aggregated, Self::Prefill, Self::Decode, Self::Encode];

    /// The role's name in the YAML, the command line and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Aggregated => "aggregated",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Encode => "encode",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|role| role.as_str() == text)
            .ok_or_else(|| format!("unknown worker role {text:?}; use aggregated, prefill, decode or encode"))
    }
}

/// The routing partition that a guest serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The model's name; `default` where the host names none.
    pub model: String,
    /// The routing group; `default` where the host names none.
    pub routing_group: String,
    /// What the partition's workers do.
    pub role: Role,
    /// Tokens per KV block, above 0.
    pub block_size: u32,
    /// The seed of the guest's randomness.
    pub seed: u32,
}

/// The router's settings that a policy may take as defaults, named as in Dynamo's `KvRouterConfig`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouterConfig {
    /// Credit of one device-resident overlap block, in blocks; finite, at least 0.
    pub overlap_score_credit: f64,
    /// How fast the credit decays with a worker's excess of prefill load; finite, at least 0; 0 turns it off.
    pub overlap_score_credit_decay: f64,
    /// Weight of the prefill blocks; finite, at least 0.
    pub prefill_load_scale: f64,
    /// Weight of one active request, in blocks; finite, at least 0.
    pub decode_active_request_weight: f64,
    /// Weight of a host-memory overlap block, 0 to 1.
    pub host_cache_hit_weight: f64,
    /// Weight of a disk overlap block, 0 to 1.
    pub disk_cache_hit_weight: f64,
    /// Weight of a shared-cache block beyond the device's prefix, 0 to 1.
    pub shared_cache_multiplier: f64,
    /// Softmax temperature of the default picker; 0 takes the lowest cost.
    pub router_temperature: f64,
    /// Whether a decode worker may take the prefill over.
    pub conditional_disaggregation: bool,
}

impl Default for RouterConfig {
    /// Dynamo 1.6's defaults.
    fn default() -> Self {
        Self {
            overlap_score_credit: 1.0,
            overlap_score_credit_decay: 0.0,
            prefill_load_scale: 1.0,
            decode_active_request_weight: 0.0,
            host_cache_hit_weight: 0.75,
            disk_cache_hit_weight: 0.25,
            shared_cache_multiplier: 0.0,
            router_temperature: 0.0,
            conditional_disaggregation: false,
        }
    }
}

/// What one stage reads, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// Numbers of the request.
    pub facts: Vec<String>,
    /// Texts of the request.
    pub texts: Vec<String>,
    /// Numbers of each worker.
    pub signals: Vec<String>,
    /// Whether the stage reads the workers' numbers.
    pub workers: bool,
}

/// What a policy reads, answered once by `configure`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    /// What the filter reads; none where it reads nothing or there is no filter.
    pub filter: Option<Reads>,
    /// What the scorer reads.
    pub score: Option<Reads>,
    /// What the picker reads.
    pub pick: Option<Reads>,
    /// Whether the host narrows the rows to an eligible affinity target.
    pub exclusive_affinity: bool,
    /// What the classifier reads: facts and texts only.
    pub classify: Option<Reads>,
    /// How often the classifier's `on-tick` is called, in milliseconds, at least [`LEAST_TICK_MS`]; none for never.
    pub tick_ms: Option<u32>,
}

/// The shortest interval of a classifier's ticks, in milliseconds: a guest is called for its ticks a hundred times a
/// second at most, and its deadlines are counted in milliseconds.
pub const LEAST_TICK_MS: u32 = 10;

/// What a policy says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// The policy's name.
    pub name: String,
    /// The policy's version.
    pub version: String,
    /// One sentence.
    pub description: String,
    /// A JSON Schema of the parameters.
    pub parameters_schema: String,
}

/// The answer of a whole policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Selection {
    /// The chosen row among the rows sent.
    pub row: u32,
    /// The scorers' cost of that row, 0 without a scorer.
    pub cost: f64,
}

/// Which stages a policy has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    /// It exports `worker-filter`.
    pub filter: bool,
    /// It exports `worker-scorer`.
    pub score: bool,
    /// It exports `worker-picker`.
    pub pick: bool,
    /// It exports `worker-selector`: all of its stages in one crossing.
    pub select: bool,
    /// It exports `request-classifier`.
    pub classify: bool,
}

impl Stages {
    /// Whether it has any stage of worker selection.
    #[must_use]
    pub const fn selects_workers(self) -> bool {
        self.filter || self.score || self.pick || self.select
    }
}
