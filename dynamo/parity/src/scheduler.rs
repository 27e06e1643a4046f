//! Dynamo's local scheduler, which queues and classifies, with the least around it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use dynamo_kv_router::protocols::{
    RoutingConstraints, WorkerConfigLike, WorkerId, WorkerSelectionResult, WorkerWithDpRank,
};
use dynamo_kv_router::scheduling::{
    NoopOverlapScoresRefresh, OverlapSignals, RouterPolicyConfig, ScheduleMode, ScheduleRequest,
};
use dynamo_kv_router::{
    ActiveSequencesMultiWorker, LocalScheduler, NoopSequencePublisher, RouterQueuePolicy, WorkerSelector,
};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio_util::sync::CancellationToken;

/// Dynamo's local scheduler of workers `W`, which choose by `S`. It publishes nothing and refreshes no overlaps.
pub type Scheduler<W, S> = LocalScheduler<NoopSequencePublisher, W, S, NoopOverlapScoresRefresh>;

/// A scheduler with the queue profile of a router-policy file. `ranges` has each worker's first rank and their number. It
/// stops with `shutdown`.
///
/// # Panics
/// Where Dynamo refuses the file.
#[must_use]
#[expect(clippy::expect_used, reason = "a test's own file")]
pub fn scheduler<W, S>(
    policy_file: &str,
    block_size: u32,
    ranges: HashMap<WorkerId, (u32, u32)>,
    workers: watch::Receiver<HashMap<WorkerId, W>>,
    selector: S,
    shutdown: &CancellationToken,
) -> Arc<Scheduler<W, S>>
where
    W: WorkerConfigLike + Clone + PartialEq + Send + Sync + 'static,
    S: WorkerSelector<W> + Send + Sync + 'static,
{
    let profile = RouterPolicyConfig::from_yaml(policy_file).expect("Dynamo takes the file");
    let profile = profile.resolve_profile(None, None, RouterQueuePolicy::Fcfs);
    let publisher = NoopSequencePublisher;
    let slots =
        ActiveSequencesMultiWorker::new_without_expiry(publisher, block_size as usize, ranges, false, 0, "test");
    Arc::new(Scheduler::new(
        Arc::new(slots),
        workers,
        profile,
        block_size,
        selector,
        None,
        None,
        None,
        None,
        Duration::from_secs(60),
        true,
        shutdown.clone(),
        "test",
        true,
    ))
}

/// A request with a lifecycle, of so many prompt tokens, that has no rule, and of which nothing else is known.
#[must_use]
pub fn schedule_request(request_id: &str, prompt_tokens: usize) -> ScheduleRequest {
    ScheduleRequest {
        mode: ScheduleMode::TrackedWithLifecycle { request_id: request_id.to_owned() },
        token_seq: None,
        block_hashes: None,
        isl_tokens: prompt_tokens,
        lora_name: None,
        expected_output_tokens: None,
        affinity_target: None,
        pinned_worker: None,
        allowed_worker_ids: None,
        routing_constraints: RoutingConstraints::default(),
        router_config_override: None,
        priority_jump: 0.0,
        strict_priority: 0,
        policy_class: None,
        session_context: None,
        overlap: OverlapSignals::default(),
        kv_transfer_candidates: None,
        retain_kv_transfer_chain: false,
        shared_cache_hits: None,
    }
}

/// What a selector answers that chose that row, which has so many of the prompt's tokens cached.
#[must_use]
pub const fn selected(worker: WorkerWithDpRank, cached_tokens: usize) -> WorkerSelectionResult {
    WorkerSelectionResult {
        worker,
        required_blocks: 0,
        effective_overlap_blocks: 0.0,
        cached_tokens,
        max_raw_cached_tokens: None,
        selected_raw_cached_tokens: None,
        potential_decode_blocks: 0,
    }
}

/// Lets every task run that can: it has run after so many turns.
pub async fn settle(turns: usize) {
    for _ in 0..turns {
        yield_now().await;
    }
}
