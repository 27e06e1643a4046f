//! The whole decision, beside Dynamo's: from the worker table, current loads and one request's sparse overlaps to a
//! checked row. All variants run in turn, round by round, so that a noisy machine favours none; figures are medians.
//!
//! `cargo run --release -p pointsman-bench [-- ROUNDS]`, in the folder `dynamo`.

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dynamo_kv_router::protocols::{RoutingConstraints, WorkerConfigLike, WorkerId, WorkerWithDpRank};
use dynamo_kv_router::scheduling::{OverlapSignals, ScheduleMode};
use dynamo_kv_router::{
    DefaultWorkerSelector, KvRouterConfig, SchedulingRequest, WorkerLoadProjection, WorkerSelectionInput,
    WorkerSelectionPolicy, WorkerSelector,
};
use pointsman_routing::{
    InstanceSpec, Load, Partition, PartitionKey, Provider, Request, Router, RouterConfig, WorkerConfig, WorkerKey,
    WorkerOverlap,
};
use pointsman_sandbox::Artifact;

const BLOCK_SIZE: u32 = 16;
const PROMPT_TOKENS: usize = 2_048;
const REQUESTS: usize = 16;

/// One request as both sides hold it.
struct Case {
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Input {
    /// 10 % of the workers overlap on device, half of them on host, 2 % on disk.
    Sparse,
    /// All overlap on three tiers.
    Dense,
    /// Dynamo's own bench fixture: an effective estimate for all, no tiers.
    Fixture,
}

impl Input {
    const fn name(self) -> &'static str {
        match self {
            Self::Sparse => "10 % overlap",
            Self::Dense => "all overlap, three tiers",
            Self::Fixture => "Dynamo's fixture",
        }
    }
}

#[derive(Default)]
struct Config(HashSet<String>);

impl WorkerConfigLike for Config {
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
        Some(131_072)
    }

    fn taints(&self) -> &HashSet<String> {
        &self.0
    }
}

fn busy(input: Input, worker: usize, rng: &mut fastrand::Rng) -> Busy {
    match input {
        Input::Fixture => Busy { prefill_tokens: worker * 16, decode_blocks: worker % 127, requests: worker % 17 },
        // Distinct loads leave no ties, so that both sides have one best worker.
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
        Input::Sparse if rng.usize(0..10) == 0 => {
            let host = if rng.bool() { rng.usize(1..20) } else { 0 };
            let disk = if rng.usize(0..50) == 0 { rng.usize(1..10) } else { 0 };
            Some(tiers(rng.usize(1..90), host, disk))
        }
        Input::Sparse => None,
        Input::Dense => Some(tiers(rng.usize(1..90), rng.usize(1..20), rng.usize(1..10))),
        Input::Fixture => {
            let tokens = (worker % 32) * 64;
            let effective_blocks = tokens as f64 / 16.0;
            Some(WorkerOverlap { key, effective_blocks, cached_tokens: tokens as f64, ..WorkerOverlap::default() })
        }
    }
}

fn case(input: Input, loads: &[Busy], rng: &mut fastrand::Rng) -> Case {
    let overlaps: Vec<_> = (0..loads.len()).filter_map(|worker| overlap(input, worker, rng)).collect();
    let mut signals = OverlapSignals::default();
    for overlap in &overlaps {
        let worker = WorkerWithDpRank::from_worker_id(overlap.key.worker);
        let tiers = &mut signals.tier_overlap_blocks;
        for (map, blocks) in [
            (&mut tiers.device, overlap.device_blocks),
            (&mut tiers.host_pinned, overlap.host_blocks),
            (&mut tiers.disk, overlap.disk_blocks),
        ] {
            if blocks > 0.0 {
                map.insert(worker, blocks as usize);
            }
        }
        signals.effective_overlap_blocks.insert(worker, overlap.effective_blocks);
        signals.effective_cached_tokens.insert(worker, overlap.cached_tokens as usize);
    }
    let added = PROMPT_TOKENS.div_ceil(BLOCK_SIZE as usize);
    let worker_loads = (0..).zip(loads).map(|(worker, load)| {
        let projection = WorkerLoadProjection {
            active_prefill_tokens: load.prefill_tokens,
            active_decode_blocks: load.decode_blocks,
            active_requests: load.requests,
            additional_active_blocks: added,
        };
        (WorkerWithDpRank::from_worker_id(worker), projection)
    });
    let dynamo = SchedulingRequest {
        mode: ScheduleMode::QueryOnly { request_id: None },
        token_seq: None,
        isl_tokens: PROMPT_TOKENS,
        lora_name: None,
        expected_output_tokens: Some(256),
        affinity_target: None,
        pinned_worker: None,
        allowed_worker_ids: None,
        routing_constraints: RoutingConstraints::default(),
        router_config_override: None,
        track_prefill_tokens: true,
        priority_jump: 0.0,
        strict_priority: 0,
        policy_class: None,
        session_context: None,
        overlap: signals,
        kv_transfer_candidates: None,
        retain_kv_transfer_chain: false,
        shared_cache_hits: None,
        worker_loads: worker_loads.collect(),
        resp_tx: None,
    };
    Case { dynamo, overlaps }
}

fn request(case: &Case) -> Request<'_> {
    Request { prompt_tokens: PROMPT_TOKENS as u64, overlaps: &case.overlaps, ..Request::default() }
}

/// A partition served by `provider`, or by the native default, with every worker and its load.
fn partition(
    loads: &[Busy],
    temperature: f64,
    builder: pointsman_routing::RouterBuilder,
) -> Result<Arc<Partition>, Box<dyn Error>> {
    let config = RouterConfig { router_temperature: temperature, ..RouterConfig::default() };
    let router = builder.router_config(config).build()?;
    let partition = router.partition(&PartitionKey::default(), BLOCK_SIZE)?;
    for (worker, load) in (0..).zip(loads) {
        partition.upsert_worker(WorkerConfig { total_kv_blocks: Some(131_072), ..WorkerConfig::new(worker) })?;
        let load = Load {
            active_prefill_tokens: load.prefill_tokens as f64,
            decode_blocks: load.decode_blocks as f64,
            active_requests: load.requests as f64,
        };
        partition.set_load(WorkerKey::new(worker, 0), Some(load));
    }
    Ok(partition)
}

fn built_in(name: &str) -> Result<Provider, Box<dyn Error>> {
    let found = pointsman_policies::get(name).ok_or("the built-in policy is missing")?;
    Ok(Provider::component(Artifact::from_bytes(found.name, found.component)))
}

/// One way to decide a case; answers the worker.
type Variant<'a> = (&'static str, Box<dyn FnMut(&Case) -> u64 + 'a>);

/// Median nanoseconds a decision of each variant, all in turn, `rounds` times.
fn interleave(variants: &mut [Variant<'_>], cases: &[Case], rounds: usize, batch: usize) -> Vec<f64> {
    let mut samples = vec![Vec::with_capacity(rounds); variants.len()];
    for round in 0..rounds + 3 {
        for (samples, (_, decide)) in samples.iter_mut().zip(variants.iter_mut()) {
            let start = Instant::now();
            for number in 0..batch {
                black_box(decide(black_box(&cases[(round + number) % cases.len()])));
            }
            let elapsed: Duration = start.elapsed();
            // The first rounds warm caches and buffers up.
            if round >= 3 {
                samples.push(elapsed.as_nanos() as f64 / batch as f64);
            }
        }
    }
    samples.iter_mut().map(|samples| median(samples)).collect()
}

fn median(samples: &mut [f64]) -> f64 {
    samples.sort_unstable_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let rounds = std::env::args().nth(1).map_or(Ok(60), |rounds| rounds.parse())?;
    println!("| input | T | workers | Dynamo native ns | Dynamo plugin | our native | component | component ns |");
    println!("|---|---|---|---|---|---|---|---|");
    for input in [Input::Sparse, Input::Dense, Input::Fixture] {
        for temperature in [0.0, 0.7] {
            for workers in [2, 8, 32, 128, 1_024, 10_000] {
                compare(input, temperature, workers, rounds)?;
            }
        }
    }
    Ok(())
}

fn compare(input: Input, temperature: f64, workers: usize, rounds: usize) -> Result<(), Box<dyn Error>> {
    let mut rng = fastrand::Rng::with_seed(workers as u64);
    let loads: Vec<_> = (0..workers).map(|worker| busy(input, worker, &mut rng)).collect();
    let cases: Vec<_> = (0..REQUESTS).map(|_| case(input, &loads, &mut rng)).collect();
    let table: HashMap<WorkerId, Config> = (0..workers as u64).map(|worker| (worker, Config::default())).collect();
    let config = KvRouterConfig { router_temperature: temperature, ..KvRouterConfig::default() };
    let reference = DefaultWorkerSelector::new(Some(config.clone()), "decode");
    let plugin: WorkerSelectionPolicy = dynamo_custom_policy_builtin::default_policy(config, "decode");
    let native = partition(&loads, temperature, Router::builder())?;
    let name = "dynamo-default-cost-fn";
    let component = Router::builder().register(name, built_in(name)?).serve(InstanceSpec::new(name));
    let component = partition(&loads, temperature, component)?;
    let dynamo = |selector: &dyn WorkerSelector<Config>, case: &Case| {
        let eligibility = case.dynamo.eligibility();
        let input = WorkerSelectionInput::configured(&table, &case.dynamo, eligibility, BLOCK_SIZE);
        selector.select_worker(input).map_or(u64::MAX, |selected| selected.worker.worker_id)
    };
    let ours = |partition: &Partition, case: &Case| {
        partition.decide(&request(case)).map_or(u64::MAX, |decision| decision.worker.worker)
    };
    let mut variants: Vec<Variant<'_>> = vec![
        ("Dynamo native", Box::new(|case| dynamo(&reference, case))),
        ("Dynamo plugin", Box::new(|case| dynamo(&plugin, case))),
        ("our native", Box::new(|case| ours(&native, case))),
        ("component", Box::new(|case| ours(&component, case))),
    ];
    if temperature == 0.0 && input != Input::Fixture {
        for case in &cases {
            let chosen: Vec<_> = variants.iter_mut().map(|(_, decide)| decide(case)).collect();
            assert!(chosen.iter().all(|worker| *worker == chosen[0]), "chosen workers differ: {chosen:?}");
        }
    }
    let batch = (200_000 / (workers * 40)).clamp(1, 400);
    let medians = interleave(&mut variants, &cases, rounds, batch);
    let [base, plugin, native, component] = medians[..] else { return Err("four variants".into()) };
    println!(
        "| {} | {temperature} | {workers} | {base:.0} | {:.2} | {:.2} | {:.2} | {component:.0} |",
        input.name(),
        plugin / base,
        native / base,
        component / base,
    );
    Ok(())
}
