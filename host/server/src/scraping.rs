//! The metrics that workers publish, as the signals `metric.<name>` of their rows.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use pointsman_routing::WorkerKey;
use pointsman_signals::{MetricName, MetricValue, Scrape, ScrapeSettings, ScrapeTarget, scrape_all};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::fleet::{Fleet, Worker, WorkerState};
use crate::upstream::Upstreams;

/// The metric that tells how old the others are, in milliseconds.
const AGE: &str = "age_ms";
/// Looks without an answer after which a worker's metrics are not known any more.
const LOST_AFTER: u32 = 3;

type Target = ScrapeTarget<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Asks every worker that says where its metrics are, again and again, until it is dropped.
pub(crate) async fn watch(fleet: Arc<Fleet>, upstreams: Arc<Upstreams>, metrics: Vec<String>, every: Duration) {
    let names: Vec<MetricName> = metrics.iter().filter(|name| *name != AGE).map(|name| MetricName::new(name)).collect();
    // One look may take longer than until the next.
    let timeout = every.max(Duration::from_secs(1));
    let settings = ScrapeSettings { interval: every, timeout, metrics: names, ..Default::default() };
    let (targets, receiver) = watch::channel(find(&fleet, &upstreams));
    let (sender, mut scrapes) = mpsc::channel(64);
    let mut scraping = JoinSet::new();
    scraping.spawn(scrape_all(settings, receiver, sender));
    let mut board = Board { fleet, metrics, taken: HashMap::new() };
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            scrape = scrapes.recv() => match scrape {
                Some(scrape) => board.take(scrape),
                None => return,
            },
            _ = ticks.tick() => {
                targets.send_replace(find(&board.fleet, &upstreams));
                board.grow_old(timeout * LOST_AFTER);
            }
        }
    }
}

/// The workers that may be chosen and say where their metrics are.
fn find(fleet: &Fleet, upstreams: &Upstreams) -> Vec<Target> {
    let target = |worker: &Arc<Worker>| {
        let path = worker.spec.upstream.metrics_path.as_deref()?;
        let upstream = upstreams.of(worker).ok()?;
        Some(Target {
            worker: worker.spec.worker_id,
            client: upstream.client.clone(),
            uri: upstream.uri(path)?,
            authorization: upstream.key.clone(),
        })
    };
    let schedulable = |worker: &&Arc<Worker>| worker.lifecycle == WorkerState::Schedulable;
    fleet.workers().iter().filter(schedulable).filter_map(target).collect()
}

/// Where metrics are written down.
struct Board {
    fleet: Arc<Fleet>,
    /// What policies may read.
    metrics: Vec<String>,
    /// When each worker last answered.
    taken: HashMap<u64, Instant>,
}

impl Board {
    fn take(&mut self, scrape: Scrape) {
        let worker = scrape.worker;
        match scrape.values {
            Ok(values) => {
                self.taken.insert(worker, scrape.taken);
                let gone = |name: &&String| *name != AGE && values.iter().all(|value| value.name != **name);
                for name in self.metrics.iter().filter(gone) {
                    self.write(worker, None, name, f64::NAN);
                }
                for MetricValue { name, rank, value } in &values {
                    self.write(worker, *rank, name, *value);
                }
                self.write_age(worker, scrape.taken.elapsed());
            }
            Err(error) => tracing::debug!(worker, %error, "the worker's metrics are not read"),
        }
    }

    /// Tells the age of what was read, and takes back what is older than `most`.
    fn grow_old(&mut self, most: Duration) {
        let all = std::mem::take(&mut self.taken);
        for (worker, taken) in all {
            let age = taken.elapsed();
            if age <= most {
                self.write_age(worker, age);
                self.taken.insert(worker, taken);
            } else {
                tracing::warn!(worker, "the worker's metrics are not known any more");
                for name in &self.metrics {
                    self.write(worker, None, name, f64::NAN);
                }
            }
        }
    }

    fn write_age(&self, worker: u64, age: Duration) {
        self.write(worker, None, AGE, age.as_secs_f64() * 1_000.0);
    }

    /// Sets a metric of one rank, or of all of them; one that no policy may read is left out. Ranks count from the worker's
    /// first, unless the engine counts as the worker does.
    fn write(&self, worker: u64, rank: Option<u32>, name: &str, value: f64) {
        let Some(worker) = self.fleet.worker(worker) else { return };
        let spec = &worker.spec;
        let Some(pool) = self.fleet.pool(&spec.model_name, &spec.routing_group) else { return };
        let first = spec.start_rank();
        let own = first..first.saturating_add(spec.ranks());
        let rows = match rank {
            None => own,
            Some(rank) if own.contains(&rank) => rank..rank + 1,
            Some(rank) if rank < spec.ranks() => first + rank..first + rank + 1,
            Some(_) => return,
        };
        // What is missing has one form.
        let value = if value.is_nan() { f64::NAN } else { value };
        for rank in rows {
            pool.partition().set_metric(WorkerKey::new(spec.worker_id, rank), name, value);
        }
    }
}
