//! Dynamo's selection with its native policies beside the same policies as type `wasm`. All variants run in turn, round
//! by round, so that a noisy machine favours none; figures are medians.
//!
//! `cargo bench -p pointsman-dynamo [-- ROUNDS]`, in the folder `dynamo`.

#[path = "../tests/common/mod.rs"]
mod common;
#[allow(dead_code, clippy::panic, reason = "it serves the other benches too, and a wrong name there is a bug")]
#[path = "../../bench/src/harness.rs"]
mod harness;

use common::{Worker, Workers, policy_file, policy_of, request, select};
use dynamo_kv_router::plugins::worker_selection::{
    WorkerCandidate, WorkerCandidates, WorkerFilter, WorkerInputView, WorkerInputs, WorkerPicker, WorkerScorer,
    WorkerSelectionContext, WorkerSelectionPolicy, WorkerSelectionPolicyError,
};
use dynamo_kv_router::protocols::WorkerWithDpRank;
use dynamo_kv_router::{KvRouterConfig, SchedulingRequest, WorkerLoadProjection, WorkerType};
use harness::{Variant, figure, head, row};
use serde_json::json;

const BLOCK_SIZE: u32 = 16;
const REQUESTS: usize = 16;
const NATIVE: &str = "native";
const WASM: &str = "wasm";
const IN_PICKER: &str = "in-picker";

type Refused = WorkerSelectionPolicyError;

/// `simple-filter-score-pick`, written as a native plugin: enough overlap, the fewest requests.
struct Native;

impl WorkerFilter for Native {
    fn required_worker_inputs(&self) -> WorkerInputs {
        WorkerInputs::CACHE
    }

    fn keep(&mut self, _: &WorkerSelectionContext<'_>, candidate: WorkerCandidate<'_>) -> Result<bool, Refused> {
        let cache = candidate.cache().ok_or_else(|| Refused::failed("no cache"))?;
        Ok(cache.device_overlap_blocks() >= 0.0)
    }
}

impl WorkerScorer for Native {
    fn required_worker_inputs(&self) -> WorkerInputs {
        WorkerInputs::LOAD
    }

    fn score(
        &mut self,
        _: &WorkerSelectionContext<'_>,
        candidates: WorkerCandidates<'_>,
        costs: &mut [f64],
    ) -> Result<(), Refused> {
        for (candidate, cost) in candidates.iter().zip(costs) {
            *cost = candidate.load().ok_or_else(|| Refused::failed("no load"))?.active_requests() as f64;
        }
        Ok(())
    }
}

impl WorkerPicker for Native {
    fn pick(&mut self, _: &WorkerSelectionContext<'_>, view: WorkerInputView<'_>) -> Result<usize, Refused> {
        let rows = view.candidates().iter().enumerate();
        let lowest = rows.min_by(|(_, left), (_, right)| left.cost().total_cmp(&right.cost()));
        lowest.map(|(row, _)| row).ok_or_else(|| Refused::failed("no eligible worker"))
    }
}

fn native_with_filter() -> WorkerSelectionPolicy {
    let config = KvRouterConfig::default();
    WorkerSelectionPolicy::new_with_filters(
        config,
        "bench",
        vec![Box::new(Native)],
        vec![Box::new(Native)],
        Box::new(Native),
    )
}

/// A request over `workers` workers, a tenth of which hold some of its prefix; no two loads are the same.
fn case(workers: usize, rng: &mut fastrand::Rng) -> SchedulingRequest {
    let mut request = request();
    let mut active_requests: Vec<_> = (0..workers).collect();
    rng.shuffle(&mut active_requests);
    for (id, active_requests) in (0..).zip(active_requests) {
        let key = WorkerWithDpRank::from_worker_id(id);
        let load = WorkerLoadProjection {
            active_prefill_tokens: rng.usize(0..50_000) * 2 + 1,
            active_decode_blocks: rng.usize(0..4_000),
            active_requests,
            additional_active_blocks: 128,
        };
        request.worker_loads.insert(key, load);
        if rng.usize(0..10) == 0 {
            let blocks = rng.usize(1..90);
            request.overlap.tier_overlap_blocks.device.insert(key, blocks);
            request.overlap.effective_overlap_blocks.insert(key, blocks as f64);
            request.overlap.effective_cached_tokens.insert(key, blocks * BLOCK_SIZE as usize);
        }
    }
    request
}

/// Prints one row: each policy's ratio to the first, then the nanoseconds of all.
fn compare(name: &str, count: usize, rounds: usize, policies: &[(&'static str, WorkerSelectionPolicy)]) {
    let mut rng = fastrand::Rng::with_seed(count as u64);
    let workers: Workers = (0..count as u64).map(|id| (id, Worker { ranks: 1, ..Worker::default() })).collect();
    let cases: Vec<_> = (0..REQUESTS).map(|_| case(count, &mut rng)).collect();
    for case in &cases {
        let chosen: Vec<_> = policies.iter().map(|(_, policy)| select(policy, &workers, case, BLOCK_SIZE)).collect();
        assert!(chosen.iter().all(|worker| worker.is_ok() && *worker == chosen[0]), "{name}: {chosen:?}");
    }
    let (workers, cases) = (&workers, &cases);
    let variants = policies.iter().map(|(name, policy)| {
        Variant::new(name, move |number| select(policy, workers, &cases[number % cases.len()], BLOCK_SIZE))
    });
    let batch = (200_000 / (count * 40)).clamp(1, 400);
    let medians = harness::compare(variants.collect(), rounds, batch);
    let ratio = |place: usize| policies.get(place).map_or("".to_owned(), |(it, _)| figure(medians.ratio(it, NATIVE)));
    let nanos = |place: usize| policies.get(place).map_or("".to_owned(), |(it, _)| figure(medians.of(it)));
    row(&[name.to_owned(), count.to_string(), ratio(1), ratio(2), nanos(0), nanos(1), nanos(2)]);
}

fn main() {
    let rounds = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(60);
    let wasm = |parameters| policy_of(&policy_file("wasm", &parameters), "default", WorkerType::Aggregated);
    head(&["policy", "workers", "`wasm` / native", "in-picker / native", "native, ns", "`wasm`, ns", "in-picker, ns"]);
    for count in [2, 32, 1_024, 10_000] {
        let native = WorkerSelectionPolicy::reference(KvRouterConfig::default(), "decode");
        let component = wasm(json!({"component": "dynamo-default-cost-fn"}));
        compare("Dynamo's default", count, rounds, &[(NATIVE, native), (WASM, component)]);
    }
    for count in [2, 32, 1_024, 10_000] {
        let by_row = json!({"component": "simple-filter-score-pick", "parameters": {"min_device_overlap_blocks": 0}});
        let mut in_picker = by_row.clone();
        in_picker["filter"] = json!("in-picker");
        compare(
            "a filter, a scorer and a picker",
            count,
            rounds,
            &[(NATIVE, native_with_filter()), (WASM, wasm(by_row)), (IN_PICKER, wasm(in_picker))],
        );
    }
}
