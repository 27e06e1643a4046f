//! Asks workers how they are: one that does not answer leaves its partition, and comes back when it does.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use tokio::task::JoinSet;

use crate::fleet::{Fleet, Worker, WorkerState};
use crate::upstream::Upstreams;

/// Failures in a row after which a worker is taken out. One that cannot even be reached by a request goes at once.
const MOST_FAILURES: u32 = 3;

/// Looks at every worker again and again, until it is dropped.
pub(crate) async fn watch(fleet: Arc<Fleet>, upstreams: Arc<Upstreams>, every: Duration) {
    let mut failures: HashMap<u64, u32> = HashMap::new();
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let workers = fleet.workers();
        let lives = |worker: u64| workers.iter().any(|known| known.spec.worker_id == worker);
        failures.retain(|worker, _| lives(*worker));
        upstreams.retain(lives);
        let mut asked = JoinSet::new();
        for worker in workers.iter().filter(|worker| is_asked(worker)) {
            let (worker, upstreams) = (Arc::clone(worker), Arc::clone(&upstreams));
            asked.spawn(async move {
                let answer = tokio::time::timeout(every.max(Duration::from_secs(1)), ask(&worker, &upstreams)).await;
                (worker, answer.unwrap_or_else(|_| Err("it does not answer in time".to_owned())))
            });
        }
        while let Some(Ok((worker, answer))) = asked.join_next().await {
            let count = failures.entry(worker.spec.worker_id).or_default();
            *count = if answer.is_ok() { 0 } else { *count + 1 };
            let failed = answer.as_ref().err().filter(|_| *count >= MOST_FAILURES);
            let changes = match worker.lifecycle {
                WorkerState::Unschedulable => answer.is_ok(),
                _ => failed.is_some(),
            };
            if changes {
                tell(&fleet, worker.spec.worker_id, failed.cloned()).await;
            }
        }
    }
}

/// Who is asked: those that have a path to be asked at, and those that are out.
fn is_asked(worker: &Worker) -> bool {
    match worker.lifecycle {
        WorkerState::Schedulable => worker.spec.upstream.health_path.is_some(),
        WorkerState::Unschedulable => true,
        WorkerState::Incomplete | WorkerState::Draining => false,
    }
}

/// Any answer but an error of the worker's says that it lives; without a path of its own it is asked for its models.
async fn ask(worker: &Worker, upstreams: &Upstreams) -> Result<(), String> {
    let upstream = upstreams.of(worker).map_err(|error| error.to_string())?;
    let path = worker.spec.upstream.health_path.as_deref().unwrap_or("/v1/models");
    let mut request = Request::new(Full::<Bytes>::default());
    *request.uri_mut() = upstream.uri(path).ok_or("its endpoint is no URL")?;
    let response = upstream.client.request(request).await.map_err(|error| format!("it cannot be reached: {error}"))?;
    match response.status() {
        status if status.is_server_error() => Err(format!("{path} answers {status}")),
        _ => Ok(()),
    }
}

/// The directory may be busy with a partition that is being built.
async fn tell(fleet: &Arc<Fleet>, worker: u64, failure: Option<String>) {
    let fleet = Arc::clone(fleet);
    let _ = tokio::task::spawn_blocking(move || fleet.set_health(worker, failure.as_deref())).await;
}
