//! The directory of workers: what each tells about itself, whether it may be chosen, and the partition that it serves.
//!
//! The fields and states are those of Dynamo's selection service. A partition's rows follow the directory; nothing else
//! adds or removes them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, RwLock};

use pointsman_routing::{Activation, PartitionKey, Role, Router, RouterError, WorkerConfig};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::runtime::Handle;

use crate::clock::Clock;
use crate::observe::Observer;
use crate::pool::Pool;
use crate::signals::Signals;
use crate::sync::{locked, read, written};

/// The model and the routing group of workers that name none.
pub const DEFAULT_NAME: &str = "default";
/// The most data-parallel ranks of one worker.
pub const MOST_RANKS: u32 = 4_096;

/// What a worker tells about itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerSpec {
    /// Its id, unique in the directory.
    pub worker_id: u64,
    /// The model that it serves.
    #[serde(default = "default_name")]
    pub model_name: String,
    /// The routing group that it serves.
    #[serde(default = "default_name")]
    pub routing_group: String,
    /// Where it listens, as an `http://` or `https://` URL.
    pub endpoint: Option<String>,
    /// Where it publishes KV events, for its only rank.
    pub kv_events_endpoint: Option<String>,
    /// Where its ranks publish KV events, by rank.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kv_events_endpoints: BTreeMap<u32, String>,
    /// Where it publishes KV events once more.
    pub replay_endpoint: Option<String>,
    /// Tokens per KV block.
    pub block_size: Option<u32>,
    /// The first data-parallel rank; 0 unless told.
    pub data_parallel_start_rank: Option<u32>,
    /// The number of data-parallel ranks; 1 unless told.
    pub data_parallel_size: Option<u32>,
    /// The limit of batched tokens of each rank.
    pub max_num_batched_tokens: Option<u64>,
    /// KV blocks of each rank in all.
    pub total_kv_blocks: Option<u64>,
    /// The taints that a request may require or prefer.
    #[serde(default)]
    pub taints: Vec<String>,
    /// Numbers for the signals `label.<name>`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, f64>,
    /// How requests go to it.
    #[serde(flatten)]
    pub upstream: UpstreamSpec,
    /// Fields of Dynamo's that have no meaning here, kept as they came.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// How requests go to a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamSpec {
    /// Whether the client's own `Authorization` goes to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forward_authorization: bool,
    /// The file of a key that it is sent as a bearer token, in place of the client's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_file: Option<String>,
    /// Whether it is spoken to in HTTP/2; over `http://` without negotiation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub http2: bool,
    /// The file of the certificates, in PEM, that vouch for its own; those of the system unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<String>,
    /// Where its health is asked for, a path such as `/health`; none where it is not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_path: Option<String>,
    /// Where its Prometheus metrics are, a path such as `/metrics`; none where they are not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics_path: Option<String>,
}

fn default_name() -> String {
    DEFAULT_NAME.to_owned()
}

impl WorkerSpec {
    /// A worker that tells no more than its id.
    #[must_use]
    pub fn new(worker_id: u64) -> Self {
        Self {
            worker_id,
            model_name: default_name(),
            routing_group: default_name(),
            endpoint: None,
            kv_events_endpoint: None,
            kv_events_endpoints: BTreeMap::new(),
            replay_endpoint: None,
            block_size: None,
            data_parallel_start_rank: None,
            data_parallel_size: None,
            max_num_batched_tokens: None,
            total_kv_blocks: None,
            taints: Vec::new(),
            labels: BTreeMap::new(),
            upstream: UpstreamSpec::default(),
            other: Map::new(),
        }
    }

    /// Its first rank.
    #[must_use]
    pub fn start_rank(&self) -> u32 {
        self.data_parallel_start_rank.unwrap_or(0)
    }

    /// The number of its ranks.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.data_parallel_size.unwrap_or(1)
    }

    /// The partition that it serves.
    #[must_use]
    pub fn key(&self) -> PartitionKey {
        PartitionKey {
            model: self.model_name.clone(),
            routing_group: self.routing_group.clone(),
            role: Role::Aggregated,
        }
    }

    fn config(&self) -> WorkerConfig {
        WorkerConfig {
            start_rank: self.start_rank(),
            ranks: self.ranks(),
            taints: self.taints.clone(),
            total_kv_blocks: self.total_kv_blocks,
            max_num_batched_tokens: self.max_num_batched_tokens,
            labels: self.labels.iter().map(|(name, value)| (name.clone(), *value)).collect(),
            ..WorkerConfig::new(self.worker_id)
        }
    }

    /// What it has to tell before it may be chosen.
    fn lacks(&self) -> Vec<String> {
        let reasons = [
            (self.endpoint.as_deref().is_none_or(str::is_empty), "endpoint is required"),
            (self.block_size.is_none_or(|size| size == 0), "block_size must be greater than 0"),
            (self.ranks() == 0, "data_parallel_size must be greater than 0"),
        ];
        reasons.iter().filter(|(lacks, _)| *lacks).map(|(_, reason)| (*reason).to_owned()).collect()
    }
}

/// Whether a worker may be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    /// It has to tell more.
    Incomplete,
    /// It may.
    Schedulable,
    /// It serves what it has, and gets nothing more.
    Draining,
    /// It has gone, or does not answer.
    Unschedulable,
}

impl WorkerState {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Incomplete, Self::Schedulable, Self::Draining, Self::Unschedulable];

    /// The state's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Incomplete => "incomplete",
            Self::Schedulable => "schedulable",
            Self::Draining => "draining",
            Self::Unschedulable => "unschedulable",
        }
    }
}

/// A worker of the directory. It never changes: another state or another field is another `Worker`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Worker {
    /// What it told.
    #[serde(flatten)]
    pub spec: WorkerSpec,
    /// Whether it may be chosen.
    pub lifecycle: WorkerState,
    /// Why it may not, a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_schedulable_reasons: Vec<String>,
}

impl Worker {
    /// Whether it serves that partition, and may be chosen.
    #[must_use]
    pub fn serves(&self, key: &PartitionKey) -> bool {
        let Self { spec, lifecycle, .. } = self;
        *lifecycle == WorkerState::Schedulable
            && spec.model_name == key.model
            && spec.routing_group == key.routing_group
    }
}

/// Why the directory is not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FleetError {
    /// There is no such worker.
    #[error("worker {0} not found")]
    NotFound(u64),
    /// The worker's fields do not go together.
    #[error("worker {worker}: {message}")]
    Invalid {
        /// The worker's id.
        worker: u64,
        /// What is wrong and how to put it right.
        message: String,
    },
}

/// The pools by model, then by routing group.
type Pools = HashMap<String, HashMap<String, Arc<Pool>>>;

#[derive(Default)]
struct Directory {
    workers: BTreeMap<u64, Arc<Worker>>,
    pools: Pools,
}

/// The workers, and the pools that they make up.
pub struct Fleet {
    router: Arc<Router>,
    signals: Arc<dyn Signals>,
    observer: Arc<dyn Observer>,
    clock: Clock,
    runtime: Handle,
    directory: RwLock<Directory>,
    /// Held while something changes: partitions are built outside the directory's lock.
    changing: Mutex<()>,
}

impl std::fmt::Debug for Fleet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fleet").field("workers", &read(&self.directory).workers.len()).finish_non_exhaustive()
    }
}

impl Fleet {
    /// No workers yet. The pools' timers run on `runtime`.
    #[must_use]
    pub fn new(
        router: Arc<Router>,
        signals: Arc<dyn Signals>,
        observer: Arc<dyn Observer>,
        clock: Clock,
        runtime: Handle,
    ) -> Self {
        let (directory, changing) = (RwLock::default(), Mutex::default());
        Self { router, signals, observer, clock, runtime, directory, changing }
    }

    /// The router whose partitions the workers make up.
    #[must_use]
    pub const fn router(&self) -> &Arc<Router> {
        &self.router
    }

    /// The clock of its requests.
    #[must_use]
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    /// Where its timers run.
    #[must_use]
    pub const fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// What reads prompts.
    #[must_use]
    pub const fn signals(&self) -> &Arc<dyn Signals> {
        &self.signals
    }

    /// Adds a worker, or replaces what it told; ranks that stay keep their load. The first worker of a partition may
    /// compile its policy, so this is not for the threads of the async runtime.
    ///
    /// # Errors
    /// More than [`MOST_RANKS`] ranks. What the worker has still to tell is no error: it is then incomplete.
    pub fn upsert(&self, spec: WorkerSpec) -> Result<Arc<Worker>, FleetError> {
        let _changing = locked(&self.changing);
        self.settle(spec, None)
    }

    /// Changes some fields of a worker, by their names; null takes a field back. As [`Self::upsert`].
    ///
    /// # Errors
    /// No such worker; a field of another type than its own; another id.
    pub fn patch(&self, worker: u64, fields: Map<String, Value>) -> Result<Arc<Worker>, FleetError> {
        let _changing = locked(&self.changing);
        let invalid = |message: String| FleetError::Invalid { worker, message };
        let found = self.worker(worker).ok_or(FleetError::NotFound(worker))?;
        let Ok(Value::Object(mut told)) = serde_json::to_value(&found.spec) else {
            return Err(invalid("its fields cannot be read; add it anew".to_owned()));
        };
        for (name, value) in fields {
            if value.is_null() { _ = told.remove(&name) } else { _ = told.insert(name, value) }
        }
        let spec: WorkerSpec = serde_json::from_value(Value::Object(told))
            .map_err(|error| invalid(format!("{error}; correct the field")))?;
        if spec.worker_id != worker {
            return Err(invalid("the id of a worker cannot change; remove it and add another".to_owned()));
        }
        let drains = (found.lifecycle == WorkerState::Draining).then_some(WorkerState::Draining);
        self.settle(spec, drains)
    }

    /// Lets a worker serve what it has and gives it nothing more, until it is added again.
    ///
    /// # Errors
    /// No such worker.
    pub fn drain(&self, worker: u64) -> Result<Arc<Worker>, FleetError> {
        let _changing = locked(&self.changing);
        let found = self.worker(worker).ok_or(FleetError::NotFound(worker))?;
        self.settle(found.spec.clone(), Some(WorkerState::Draining))
    }

    /// Removes a worker, and answers how it was last. What runs there goes on; its load counts no more.
    ///
    /// # Errors
    /// No such worker.
    pub fn remove(&self, worker: u64) -> Result<Arc<Worker>, FleetError> {
        let _changing = locked(&self.changing);
        let gone = written(&self.directory).workers.remove(&worker).ok_or(FleetError::NotFound(worker))?;
        self.withdraw(&gone.spec);
        tracing::info!(worker, "the worker is removed");
        Ok(Arc::new(Worker {
            spec: gone.spec.clone(),
            lifecycle: WorkerState::Unschedulable,
            not_schedulable_reasons: Vec::new(),
        }))
    }

    /// A worker does not answer, for that reason, or answers again (none). Nothing changes for one that is draining or
    /// has to tell more.
    pub fn set_health(&self, worker: u64, failure: Option<&str>) {
        let _changing = locked(&self.changing);
        let Some(found) = self.worker(worker) else { return };
        match (found.lifecycle, failure) {
            (WorkerState::Schedulable, Some(reason)) => {
                tracing::warn!(worker, reason, "the worker does not answer");
                self.withdraw(&found.spec);
                let reasons = vec![reason.to_owned()];
                self.commit(found.spec.clone(), WorkerState::Unschedulable, reasons);
            }
            (WorkerState::Unschedulable, None) => {
                tracing::info!(worker, "the worker answers again");
                let _ = self.settle(found.spec.clone(), None);
            }
            _ => {}
        }
    }

    /// The worker of that id.
    #[must_use]
    pub fn worker(&self, worker: u64) -> Option<Arc<Worker>> {
        read(&self.directory).workers.get(&worker).cloned()
    }

    /// A worker of that partition that may be chosen: the one with the lowest id.
    #[must_use]
    pub fn serving(&self, key: &PartitionKey) -> Option<Arc<Worker>> {
        read(&self.directory).workers.values().find(|worker| worker.serves(key)).cloned()
    }

    /// Every worker, by model, routing group and id.
    #[must_use]
    pub fn workers(&self) -> Vec<Arc<Worker>> {
        let mut workers: Vec<_> = read(&self.directory).workers.values().cloned().collect();
        // They come by id, and stay so where the rest is alike.
        workers.sort_by(|a, b| {
            (&a.spec.model_name, &a.spec.routing_group).cmp(&(&b.spec.model_name, &b.spec.routing_group))
        });
        workers
    }

    /// How many workers may be chosen.
    #[must_use]
    pub fn schedulable(&self) -> usize {
        let directory = read(&self.directory);
        directory.workers.values().filter(|worker| worker.lifecycle == WorkerState::Schedulable).count()
    }

    /// The pool of a model and a routing group; none where no worker ever served it.
    #[must_use]
    pub fn pool(&self, model: &str, routing_group: &str) -> Option<Arc<Pool>> {
        read(&self.directory).pools.get(model)?.get(routing_group).cloned()
    }

    /// Every pool, in no order.
    #[must_use]
    pub fn pools(&self) -> Vec<Arc<Pool>> {
        read(&self.directory).pools.values().flat_map(HashMap::values).cloned().collect()
    }

    /// The models that a routing group's workers serve, sorted.
    #[must_use]
    pub fn models(&self, routing_group: &str) -> Vec<String> {
        let directory = read(&self.directory);
        let serves = |worker: &&Arc<Worker>| {
            worker.spec.routing_group == routing_group && worker.lifecycle != WorkerState::Incomplete
        };
        let mut models: Vec<_> =
            directory.workers.values().filter(serves).map(|worker| worker.spec.model_name.clone()).collect();
        models.sort_unstable();
        models.dedup();
        models
    }

    /// Does what another configuration of the router leaves to its owner: every pool gets its request classifier. May
    /// compile, as [`Self::upsert`].
    ///
    /// # Errors
    /// A classifier that cannot start; every pool keeps the one that it has then.
    pub fn activated(&self, activation: &Activation) -> Result<(), RouterError> {
        for section in &activation.needs_restart {
            tracing::warn!(section, "the section changed and holds after a restart only");
        }
        if !activation.classifier_changed {
            return Ok(());
        }
        let next = |pool: Arc<Pool>| Ok((self.router.configured_classifier(pool.partition())?, pool));
        let next: Vec<_> = self.pools().into_iter().map(next).collect::<Result<_, RouterError>>()?;
        for (classifier, pool) in next {
            pool.replace_classifier(classifier);
        }
        Ok(())
    }

    /// Ends every request that waits, and takes no more.
    pub fn shut_down(&self) {
        for pool in self.pools() {
            pool.shut_down();
        }
    }

    /// Brings a worker's row and its entry in line with what it tells. `state` is one that somebody asks for.
    fn settle(&self, spec: WorkerSpec, state: Option<WorkerState>) -> Result<Arc<Worker>, FleetError> {
        let (worker, ranks) = (spec.worker_id, spec.ranks());
        if ranks > MOST_RANKS {
            let message = format!("data_parallel_size {ranks} exceeds the maximum {MOST_RANKS}; lower it");
            return Err(FleetError::Invalid { worker, message });
        }
        let before = self.worker(worker);
        let mut reasons = spec.lacks();
        let pool = if reasons.is_empty() { self.build_pool(&spec, &mut reasons) } else { None };
        if let Some(before) = before.filter(|before| pool.is_none() || before.spec.key() != spec.key()) {
            self.withdraw(&before.spec);
        }
        if let Some(pool) = &pool
            && reasons.is_empty()
        {
            match pool.partition().upsert_worker(spec.config()) {
                Ok(()) => _ = pool.partition().set_available(worker, state != Some(WorkerState::Draining)),
                Err(error) => reasons.push(error.to_string()),
            }
        }
        let state =
            if reasons.is_empty() { state.unwrap_or(WorkerState::Schedulable) } else { WorkerState::Incomplete };
        tracing::info!(worker, state = state.as_str(), ?reasons, "the worker is known");
        let worker = self.commit(spec, state, reasons);
        if let Some(pool) = pool {
            if worker.lifecycle != WorkerState::Incomplete {
                pool.joined(&worker.spec, &self.runtime);
            }
            pool.workers_changed(None);
        }
        Ok(worker)
    }

    /// The pool that a worker is to serve; none, with the reason, where it cannot.
    fn build_pool(&self, spec: &WorkerSpec, reasons: &mut Vec<String>) -> Option<Arc<Pool>> {
        let block_size = spec.block_size?;
        let mut failed = |error: RouterError| reasons.push(format!("reconciliation failed: {error}"));
        let partition = self.router.partition(&spec.key(), block_size).map_err(&mut failed).ok()?;
        let pool = match self.pool(&spec.model_name, &spec.routing_group) {
            Some(pool) => pool,
            None => {
                let observer = Arc::clone(&self.observer);
                let started = Pool::start(&self.router, partition, &*self.signals, observer, self.clock, &self.runtime);
                let pool = started.map_err(&mut failed).ok()?;
                let mut directory = written(&self.directory);
                let groups = directory.pools.entry(spec.model_name.clone()).or_default();
                groups.insert(spec.routing_group.clone(), Arc::clone(&pool));
                pool
            }
        };
        if pool.queues() && spec.max_num_batched_tokens.is_none() {
            reasons.push("max_num_batched_tokens is required while queueing is enabled".to_owned());
            return None;
        }
        Some(pool)
    }

    fn commit(&self, spec: WorkerSpec, lifecycle: WorkerState, not_schedulable_reasons: Vec<String>) -> Arc<Worker> {
        let worker = Arc::new(Worker { spec, lifecycle, not_schedulable_reasons });
        written(&self.directory).workers.insert(worker.spec.worker_id, Arc::clone(&worker));
        worker
    }

    /// Takes a worker's rows out of its partition.
    fn withdraw(&self, spec: &WorkerSpec) {
        if let Some(pool) = self.pool(&spec.model_name, &spec.routing_group)
            && pool.partition().remove_worker(spec.worker_id)
        {
            pool.workers_changed(Some(spec.worker_id));
        }
    }
}
