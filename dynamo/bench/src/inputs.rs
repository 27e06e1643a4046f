//! The inputs of one decision, as a router holds them, for Dynamo's crates and for ours.

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::sync::Arc;

use dynamo_kv_router::protocols::{WorkerConfigLike, WorkerId, WorkerWithDpRank};
use dynamo_kv_router::{SchedulingRequest, WorkerLoadProjection, WorkerSelectionInput, WorkerSelector};
use pointsman_contract::Inputs;
use pointsman_parity::dynamo::{overlap_signals, plain_request};
use pointsman_routing::{
    Load, Partition, PartitionKey, Request, RouterBuilder, RouterConfig, WorkerConfig, WorkerKey, WorkerOverlap,
};
use pointsman_sandbox::Args;

/// Tokens of a KV block.
pub(crate) const BLOCK_SIZE: u32 = 16;
const PROMPT_TOKENS: usize = 2_048;
const TOTAL_KV_BLOCKS: u64 = 131_072;
/// Requests that take turns.
const REQUESTS: usize = 16;

/// Where the prefixes of the prompts lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// 10 % of the workers overlap on device, half of them on host, 2 % on disk.
    Sparse,
    /// All workers overlap on three tiers.
    Dense,
    /// The fixture of Dynamo's own bench: an effective estimate for all, no tiers, few different loads.
    Fixture,
    /// As [`Input::Sparse`], and every 20th worker is overloaded.
    Overloaded,
}

impl Input {
    /// All inputs.
    pub(crate) const ALL: [Self; 4] = [Self::Sparse, Self::Dense, Self::Fixture, Self::Overloaded];

    /// The name in reports.
    #[must_use]
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sparse => "10 % overlap",
            Self::Dense => "all overlap, three tiers",
            Self::Fixture => "Dynamo's bench fixture",
            Self::Overloaded => "10 % overlap, 5 % overloaded",
        }
    }
}

/// One request as both sides hold it.
pub(crate) struct Case {
    dynamo: SchedulingRequest,
    overlaps: Vec<WorkerOverlap>,
}

/// One worker's load.
#[derive(Clone, Copy)]
struct Busy {
    prefill_tokens: usize,
    decode_blocks: usize,
    requests: usize,
}

/// What a worker tells Dynamo about itself.
#[derive(Default)]
pub(crate) struct Advertised(HashSet<String>);

impl WorkerConfigLike for Advertised {
    fn data_parallel_start_rank(&self) -> u32 {
        0
    }

    fn data_parallel_size(&self) -> u32 {
        1
    }

    fn max_num_batched_tokens(&self) -> Option<u64> {
        None
    }

    fn total_kv_blocks(&self) -> Option<u64> {
        Some(TOTAL_KV_BLOCKS)
    }

    fn taints(&self) -> &HashSet<String> {
        &self.0
    }
}

/// A pool of workers with their loads, and requests to decide.
pub(crate) struct Pool {
    loads: Vec<Busy>,
    overloaded: HashSet<WorkerId>,
    advertised: HashMap<WorkerId, Advertised>,
    /// The requests.
    pub(crate) cases: Vec<Case>,
}

impl Pool {
    /// A pool of so many workers, the same for the same arguments.
    #[must_use]
    pub(crate) fn new(input: Input, workers: usize) -> Self {
        let mut rng = fastrand::Rng::with_seed(workers as u64);
        let loads: Vec<_> = (0..workers).map(|worker| busy(input, worker, &mut rng)).collect();
        let cases = (0..REQUESTS).map(|_| case(input, &loads, &mut rng)).collect();
        let overloaded = match input {
            Input::Overloaded => (0..workers as u64).step_by(20).collect(),
            _ => HashSet::new(),
        };
        let advertised = (0..workers as u64).map(|worker| (worker, Advertised::default())).collect();
        Self { loads, overloaded, advertised, cases }
    }

    /// The case whose turn it is.
    #[must_use]
    pub(crate) fn case(&self, number: usize) -> &Case {
        &self.cases[number % self.cases.len()]
    }

    /// Dynamo's choice.
    #[must_use]
    pub(crate) fn dynamo(&self, selector: &impl WorkerSelector<Advertised>, case: &Case) -> Option<u64> {
        let overloaded = Some(&self.overloaded).filter(|overloaded| !overloaded.is_empty());
        let eligibility = case.dynamo.eligibility_with_overloaded(overloaded);
        let input = WorkerSelectionInput::configured(&self.advertised, &case.dynamo, eligibility, BLOCK_SIZE);
        selector.select_worker(input).ok().map(|selected| selected.worker.worker_id)
    }

    /// A partition of the router that `builder` builds, with every worker and its load.
    ///
    /// # Errors
    /// Where the router cannot be built.
    pub(crate) fn partition(&self, temperature: f64, builder: RouterBuilder) -> Result<Arc<Partition>, Box<dyn Error>> {
        let config = RouterConfig { router_temperature: temperature, ..RouterConfig::default() };
        let router = builder.router_config(config).build()?;
        let partition = router.partition(&PartitionKey::default(), BLOCK_SIZE)?;
        self.fill(&partition)?;
        Ok(partition)
    }

    /// Registers every worker with its load.
    ///
    /// # Errors
    /// Never: each worker has a rank.
    pub(crate) fn fill(&self, partition: &Partition) -> Result<(), Box<dyn Error>> {
        for (worker, load) in (0..).zip(&self.loads) {
            partition
                .upsert_worker(WorkerConfig { total_kv_blocks: Some(TOTAL_KV_BLOCKS), ..WorkerConfig::new(worker) })?;
            let load = Load {
                active_prefill_tokens: load.prefill_tokens as f64,
                decode_blocks: load.decode_blocks as f64,
                active_requests: load.requests as f64,
            };
            partition.set_load(WorkerKey::new(worker, 0), Some(load));
            partition.set_overloaded(worker, self.overloaded.contains(&worker));
        }
        Ok(())
    }
}

/// Our choice.
#[must_use]
pub(crate) fn decide(partition: &Partition, case: &Case) -> Option<u64> {
    partition.decide(&case.request()).ok().filter(|decision| !decision.fallback).map(|decision| decision.worker.worker)
}

impl Case {
    /// The request as our side takes it.
    #[must_use]
    pub(crate) fn request(&self) -> Request<'_> {
        Request { prompt_tokens: PROMPT_TOKENS as u64, overlaps: &self.overlaps, ..Request::default() }
    }
}

/// Parameters with which that built-in policy starts.
///
/// # Errors
/// Where there are none.
pub(crate) fn parameters(name: &str) -> Result<serde_json::Map<String, serde_json::Value>, Box<dyn Error>> {
    let file: serde_json::Value = serde_json::from_str(include_str!("../../../policies/parameters.json"))?;
    Ok(file[name].as_object().ok_or("the built-in policy has no parameters")?.clone())
}

fn busy(input: Input, worker: usize, rng: &mut fastrand::Rng) -> Busy {
    match input {
        Input::Fixture => Busy { prefill_tokens: worker * 16, decode_blocks: worker % 127, requests: worker % 17 },
        // Odd token counts leave no ties, so that both sides have one best worker.
        _ => Busy {
            prefill_tokens: rng.usize(0..50_000) * 2 + 1,
            decode_blocks: rng.usize(0..4_000),
            requests: rng.usize(0..64),
        },
    }
}

fn overlap(input: Input, worker: usize, rng: &mut fastrand::Rng) -> Option<WorkerOverlap> {
    let key = WorkerKey::new(worker as u64, 0);
    let tiers = |device: usize, host: usize, disk: usize| {
        let [device, host, disk] = [device, host, disk].map(|blocks| blocks as f64);
        WorkerOverlap::from_tiers(key, device, host, disk, &RouterConfig::default(), BLOCK_SIZE)
    };
    match input {
        Input::Sparse | Input::Overloaded => (rng.usize(0..10) == 0).then(|| {
            let host = if rng.bool() { rng.usize(1..20) } else { 0 };
            let disk = if rng.usize(0..50) == 0 { rng.usize(1..10) } else { 0 };
            tiers(rng.usize(1..90), host, disk)
        }),
        Input::Dense => Some(tiers(rng.usize(1..90), rng.usize(1..20), rng.usize(1..10))),
        Input::Fixture => {
            let cached_tokens = ((worker % 32) * 64) as f64;
            let effective_blocks = cached_tokens / f64::from(BLOCK_SIZE);
            Some(WorkerOverlap { key, effective_blocks, cached_tokens, ..WorkerOverlap::default() })
        }
    }
}

fn case(input: Input, loads: &[Busy], rng: &mut fastrand::Rng) -> Case {
    let overlaps: Vec<_> = (0..loads.len()).filter_map(|worker| overlap(input, worker, rng)).collect();
    let worker_loads = (0..).zip(loads).map(|(worker, load)| {
        let projection = WorkerLoadProjection {
            active_prefill_tokens: load.prefill_tokens,
            active_decode_blocks: load.decode_blocks,
            active_requests: load.requests,
            additional_active_blocks: PROMPT_TOKENS.div_ceil(BLOCK_SIZE as usize),
        };
        (WorkerWithDpRank::from_worker_id(worker), projection)
    });
    let dynamo = SchedulingRequest {
        expected_output_tokens: Some(256),
        overlap: overlap_signals(&overlaps),
        worker_loads: worker_loads.collect(),
        ..plain_request(PROMPT_TOKENS)
    };
    Case { dynamo, overlaps }
}

/// Columns for one call of the stages that `inputs` names: `rows` rows of plausible values.
#[must_use]
pub(crate) fn arguments(inputs: &Inputs, rows: usize) -> Args {
    let mut rng = fastrand::Rng::with_seed(rows as u64);
    let stages = [&inputs.filter, &inputs.score, &inputs.pick];
    let mut facts: Vec<&str> = Vec::new();
    let mut signals: Vec<&str> = Vec::new();
    for reads in stages.into_iter().flatten() {
        facts.extend(reads.facts.iter().map(String::as_str));
        signals.extend(reads.signals.iter().map(String::as_str).filter(|name| *name != "cost"));
    }
    let (facts, signals) = (once(facts), once(signals));
    let mut numbers: Vec<_> = facts.iter().map(|name| fact(name)).collect();
    for name in signals {
        numbers.extend((0..rows).map(|_| signal(name, &mut rng)));
    }
    Args { rows: rows as u32, numbers, workers: None, texts: None }
}

fn once(names: Vec<&str>) -> Vec<&str> {
    let mut seen = HashSet::new();
    names.into_iter().filter(|name| seen.insert(*name)).collect()
}

fn fact(name: &str) -> f64 {
    match name {
        "request.prompt-tokens" => PROMPT_TOKENS as f64,
        "request.blocks" => (PROMPT_TOKENS / BLOCK_SIZE as usize) as f64,
        "request.tracks-prefill-tokens" | "request.has-tier-matches" => 1.0,
        _ => 0.0,
    }
}

fn signal(name: &str, rng: &mut fastrand::Rng) -> f64 {
    match name {
        "load.available" => 1.0,
        "taint.preferred-multiplier" => f64::NAN,
        "load.active-prefill-tokens" => (rng.usize(0..50_000) * 2 + 1) as f64,
        _ => rng.usize(0..128) as f64,
    }
}
