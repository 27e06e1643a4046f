//! What the host knows of one request when it decides.

use pointsman_admission::WorkerKey;
use pointsman_contract::{RouterConfig, Trigger};

/// One request, as borrowed views of what its owner holds.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Names the decision to what listens to it; no policy sees it. Empty where nobody asks.
    pub id: &'a str,
    /// Milliseconds, monotonic, since the host's start.
    pub now_ms: f64,
    /// Tokens of the prompt; 0 for embeddings.
    pub prompt_tokens: u64,
    /// The prompt's KV blocks as a chain of hashes, each of which stands for its block and all blocks before it.
    /// Empty where they are not known.
    pub block_hashes: &'a [u64],
    /// Whether the request counts towards prefill load.
    pub tracks_prefill_tokens: bool,
    /// Expected tokens of the answer.
    pub expected_output_tokens: Option<u32>,
    /// The scheduler's priority boost.
    pub priority_jump: f64,
    /// The strict priority: larger goes first.
    pub strict_priority: u32,
    /// The request's own router temperature.
    pub router_temperature: Option<f64>,
    /// The one row that may serve the request.
    pub pinned: Option<WorkerKey>,
    /// The session's worker so far.
    pub affinity: Option<Affinity>,
    /// The ids of the workers that the caller allows; any order.
    pub allowed: Option<&'a [u64]>,
    /// The ids of the workers that are available to this request, such as those that hold its adapter; any order.
    /// An empty list refuses every worker.
    pub available: Option<&'a [u64]>,
    /// Taints that the worker must have.
    pub required_taints: &'a [&'a str],
    /// Taints that make a worker cheaper (weight above 0) or dearer (below 0).
    pub preferred_taints: &'a [(&'a str, f64)],
    /// Prefix overlap by row, sorted by key, each key once; a row that is absent has none.
    pub overlaps: &'a [WorkerOverlap],
    /// Blocks in the shared cache, as ranges [start, end) of block positions, sorted and apart; none where no lookup was made.
    pub shared: Option<&'a [(u32, u32)]>,
    /// The session that the request belongs to.
    pub session: Option<Session<'a>>,
    /// Headers, lower-case names; a policy reads those alone that the operator grants.
    pub headers: &'a [(&'a str, &'a str)],
}

impl Default for Request<'_> {
    fn default() -> Self {
        Self {
            id: "",
            now_ms: 0.0,
            prompt_tokens: 0,
            block_hashes: &[],
            tracks_prefill_tokens: true,
            expected_output_tokens: None,
            priority_jump: 0.0,
            strict_priority: 0,
            router_temperature: None,
            pinned: None,
            affinity: None,
            allowed: None,
            available: None,
            required_taints: &[],
            preferred_taints: &[],
            overlaps: &[],
            shared: None,
            session: None,
            headers: &[],
        }
    }
}

impl Request<'_> {
    /// The prompt in blocks, rounded up.
    #[must_use]
    pub fn blocks(&self, block_size: u32) -> u64 {
        self.prompt_tokens.div_ceil(u64::from(block_size.max(1)))
    }

    /// The blocks that the request occupies where it shares none.
    pub(crate) fn occupied_blocks(&self, block_size: u32) -> u64 {
        if self.block_hashes.is_empty() { self.blocks(block_size) } else { self.block_hashes.len() as u64 }
    }

    /// Shared-cache blocks at or after block position `from`.
    pub(crate) fn shared_beyond(&self, from: f64) -> Option<f64> {
        let from = from.round().max(0.0) as u32;
        self.shared
            .map(|ranges| ranges.iter().map(|(start, end)| f64::from(end.saturating_sub((*start).max(from)))).sum())
    }
}

/// A session's worker so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Affinity {
    /// The worker's id.
    pub worker: u64,
    /// One of its ranks; none means any.
    pub rank: Option<u32>,
    /// Hard: no other worker may serve the request. Soft: advice to the policy.
    pub hard: bool,
}

/// A request's session, as far as a policy may know it.
#[derive(Clone, Copy, Debug)]
pub struct Session<'a> {
    /// The reasoning or tool session's identifier.
    pub id: &'a str,
    /// The session that started this one.
    pub parent_id: Option<&'a str>,
    /// Whether this is the session's last request.
    pub last: Option<bool>,
    /// What set the request off.
    pub trigger: Option<Trigger>,
}

/// The prefix of one request that one row holds already.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkerOverlap {
    /// The row.
    pub key: WorkerKey,
    /// Blocks on the device.
    pub device_blocks: f64,
    /// Blocks in host memory beyond the device's.
    pub host_blocks: f64,
    /// Blocks on disk beyond the host's.
    pub disk_blocks: f64,
    /// The weighted estimate of all tiers, in blocks.
    pub effective_blocks: f64,
    /// The estimate of cached prompt tokens.
    pub cached_tokens: f64,
}

impl WorkerOverlap {
    /// The overlap of the tiers' counts: effective = device + weight × host + weight × disk, tokens = effective × block
    /// size, rounded. (Dynamo: `cache_hit_estimates_from_tiered_matches`.)
    #[must_use]
    pub fn from_tiers(
        key: WorkerKey,
        device_blocks: f64,
        host_blocks: f64,
        disk_blocks: f64,
        config: &RouterConfig,
        block_size: u32,
    ) -> Self {
        let effective_blocks =
            device_blocks + host_blocks * config.host_cache_hit_weight + disk_blocks * config.disk_cache_hit_weight;
        let cached_tokens = (effective_blocks * f64::from(block_size)).round().max(0.0);
        Self { key, device_blocks, host_blocks, disk_blocks, effective_blocks, cached_tokens }
    }

    pub(crate) fn matches_a_tier(&self) -> bool {
        self.device_blocks > 0.0 || self.host_blocks > 0.0 || self.disk_blocks > 0.0
    }
}
