//! What Dynamo's scheduler does around its selector, by its own selection service in this process.

use dynamo_kv_router::services::selection::{
    SelectRequest, SelectionError, SelectionService, SelectionServiceBuilder, WorkerRequest,
};
use dynamo_kv_router::{KvRouterConfig, KvSchedulerError, WorkerType};
use pointsman_parity::{Ask, Case, Refusal, Verdict, Worker};
use pointsman_routing::{Affinity, Router, WorkerKey};
use serde_json::{Value, json};

use crate::harness::SHIPPED;
use crate::kit::{ask, case, worker, world};

/// Workers 1 of two ranks, 2 and 3, all idle.
fn partition() -> Case {
    let two = Worker { ranks: vec![Some(Default::default()); 2], ..worker(1) };
    case([two, worker(2), worker(3)])
}

async fn service(case: &Case) -> SelectionService {
    let config = KvRouterConfig { use_kv_events: false, ..KvRouterConfig::default() };
    let service = SelectionServiceBuilder::new(config, WorkerType::Aggregated, SHIPPED.clone()).build().await.unwrap();
    for worker in &case.workers {
        let request: WorkerRequest = serde_json::from_value(json!({
            "worker_id": worker.id,
            "endpoint": format!("http://127.0.0.1:{}", 8_000 + worker.id),
            "block_size": case.block_size,
            "data_parallel_size": worker.ranks.len(),
            "max_num_batched_tokens": 8_192,
        }))
        .unwrap();
        service.upsert_worker(request).await.unwrap();
    }
    service
}

async fn select(service: &SelectionService, more: Value) -> Result<WorkerKey, Refusal> {
    let mut request = json!({"token_ids": (0..160).collect::<Vec<u32>>()});
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let request: SelectRequest = serde_json::from_value(request).unwrap();
    match service.select(request).await {
        Ok(chosen) => Ok(WorkerKey::new(chosen.worker_id, chosen.dp_rank)),
        Err(SelectionError::Scheduler(error)) => Err(Refusal::from(error)),
        Err(other) => panic!("{other}"),
    }
}

fn ours(ask: &Ask) -> Result<WorkerKey, Refusal> {
    match world(&Router::builder().build().unwrap(), &partition()).decide(ask) {
        Verdict::Chosen(row, _) => Ok(row),
        Verdict::Refused(refusal) => Err(refusal),
    }
}

fn soft(worker: u64, rank: Option<u32>) -> Ask {
    Ask { affinity: Some(Affinity { worker, rank, hard: false }), ..ask() }
}

#[tokio::test]
async fn the_default_stays_with_an_eligible_affinity_target() {
    let service = service(&partition()).await;
    for _ in 0..30 {
        let row = select(&service, json!({"affinity_target": {"worker_id": 2}})).await.unwrap();
        assert_eq!((row, ours(&soft(2, None)).unwrap()), (WorkerKey::new(2, 0), WorkerKey::new(2, 0)));
        let row = select(&service, json!({"affinity_target": {"worker_id": 1, "dp_rank": 1}})).await.unwrap();
        assert_eq!((row, ours(&soft(1, Some(1))).unwrap()), (WorkerKey::new(1, 1), WorkerKey::new(1, 1)));
        let row = select(&service, json!({"affinity_target": {"worker_id": 1}})).await.unwrap();
        assert_eq!((row.worker, ours(&soft(1, None)).unwrap().worker), (1, 1));
    }
    service.shutdown().await;
}

#[tokio::test]
async fn the_default_leaves_a_target_that_may_not_serve() {
    let service = service(&partition()).await;
    let request = json!({"affinity_target": {"worker_id": 2}, "allowed_worker_ids": [3]});
    assert_eq!(select(&service, request).await, Ok(WorkerKey::new(3, 0)));
    assert_eq!(ours(&Ask { allowed: Some(vec![3]), ..soft(2, None) }), Ok(WorkerKey::new(3, 0)));
    service.shutdown().await;
}

/// Where a caller gives both, Dynamo's default refuses a pin that is not the advised row; ours follows the pin.
#[tokio::test]
async fn a_pin_beside_another_soft_target_is_refused_by_dynamos_default_alone() {
    let service = service(&partition()).await;
    let both = |rank| json!({"pinned_worker": {"worker_id": 1, "dp_rank": 0}, "affinity_target": rank});
    let elsewhere = select(&service, both(json!({"worker_id": 2}))).await;
    assert_eq!(elsewhere, Err(Refusal::from(KvSchedulerError::PinnedWorkerNotAllowed { worker_id: 1 })));
    assert_eq!(select(&service, both(json!({"worker_id": 1, "dp_rank": 1}))).await, Err(Refusal::NoEndpoints));
    assert_eq!(select(&service, both(json!({"worker_id": 1}))).await, Ok(WorkerKey::new(1, 0)));
    for target in [soft(2, None), soft(1, Some(1)), soft(1, None)] {
        let pinned = Ask { pin: Some(WorkerKey::new(1, 0)), ..target };
        assert_eq!(ours(&pinned), Ok(WorkerKey::new(1, 0)));
    }
    service.shutdown().await;
}
