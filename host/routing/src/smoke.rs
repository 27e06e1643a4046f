//! The first decision of a policy, over made-up candidates and under the limits that it will have: one that traps, loops
//! or answers nonsense at once never serves a request.

use std::sync::Arc;

use pointsman_admission::WorkerKey;
use pointsman_sandbox::Outcome;

use crate::config::{FaultAction, OnFault};
use crate::error::DecideError;
use crate::guest::Guest;
use crate::member::{Guard, Member};
use crate::partition::Partition;
use crate::pipeline::{Pipeline, StageMode};
use crate::request::{Request, Session, WorkerOverlap};
use crate::router::PartitionKey;
use crate::tap::Told;
use crate::version::Version;
use crate::vocabulary::Vocabulary;
use crate::worker::WorkerConfig;

/// Three workers: one with the prompt's prefix, one under load, one idle.
const WORKERS: u64 = 3;

/// Has a policy decide twice, so that what the first call leaves behind is met too. What it answers, an error of its own
/// and a filter that keeps no row included, is its own affair.
pub(crate) fn select(
    guest: Guest,
    instance: &str,
    vocabulary: Arc<Vocabulary>,
    block_size: u32,
    mode: StageMode,
) -> Result<(), String> {
    let reject = OnFault { filter: FaultAction::Reject, otherwise: FaultAction::Reject };
    let member = Member::new(instance.to_owned(), guest, reject, Guard::default(), &vocabulary)?;
    let version =
        Version::new(instance.to_owned(), Pipeline::single(member, mode), Told::default(), None, String::new());
    let partition = Partition::new(PartitionKey::default(), block_size, vocabulary, version, None);
    for worker in 0..WORKERS {
        let added = partition.upsert_worker(WorkerConfig {
            total_kv_blocks: Some(4_096),
            max_num_batched_tokens: Some(8_192),
            ..WorkerConfig::new(worker)
        });
        added.map_err(|error| error.to_string())?;
    }
    let overlap = |device, host| {
        WorkerOverlap::from_tiers(WorkerKey::new(0, 0), device, host, 0.0, &Default::default(), block_size)
    };
    let mut request = Request {
        prompt_tokens: 64 * u64::from(block_size),
        expected_output_tokens: Some(128),
        session: Some(Session { id: "smoke", parent_id: None, last: Some(false), trigger: None }),
        overlaps: &[overlap(8.0, 4.0)],
        ..Request::default()
    };
    for now_ms in [0.0, 1.0] {
        request.now_ms = now_ms;
        // What the trial meets is told once, by its error.
        let silent = tracing::subscriber::NoSubscriber::default();
        match tracing::subscriber::with_default(silent, || partition.decide(&request)) {
            Ok(decision) => _ = partition.reserve(&request, &decision),
            Err(DecideError::Refused { outcome, stage, message, .. }) if outcome != Outcome::PolicyError => {
                return Err(format!(
                    "it fails its first decisions, over {WORKERS} made-up workers, at stage {stage} ({outcome}): {message}"
                ));
            }
            Err(_) => {}
        }
    }
    Ok(())
}
