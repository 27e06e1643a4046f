//! Change without a restart: another configuration is loaded beside the one that holds, with all its guests, and then
//! takes over, each partition between two of its decisions. The one before is kept for going back.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::config::PolicyConfig;
use crate::error::RouterError;
use crate::partition::Partition;
use crate::plan::Plan;
use crate::router::{PartitionKey, Router};
use crate::sync::locked;
use crate::version::{Version, VersionStatus};

/// The configuration that holds, and the one before.
pub(crate) struct Current {
    pub(crate) plan: Arc<Plan>,
    pub(crate) generation: u64,
    pub(crate) activated_ms: f64,
    before: Option<Arc<Plan>>,
}

impl Current {
    pub(crate) fn first(plan: Plan) -> Self {
        Self { plan: Arc::new(plan), generation: 1, activated_ms: 0.0, before: None }
    }
}

/// A configuration that is ready to take over: its artifacts are compiled, its guests are built and have decided once.
pub struct Loaded {
    plan: Arc<Plan>,
    staged: FxHashMap<PartitionKey, Staged>,
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loaded").field("partitions", &self.staged.len()).finish_non_exhaustive()
    }
}

/// What a partition does when the configuration takes over.
struct Staged {
    /// What makes its version what it is.
    fingerprint: String,
    /// None where the partition has that version already, active or as the previous one.
    version: Option<Box<Version>>,
}

/// What a change did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activation {
    /// The generation that holds now: 1 for the router's first configuration, one more with each change.
    pub generation: u64,
    /// The partitions whose policy changed.
    pub changed: Vec<PartitionKey>,
    /// The sections that changed and hold after a restart only.
    pub needs_restart: Vec<&'static str>,
    /// Whether the request classifier changed: the owner of an admission controller builds another one of it.
    pub classifier_changed: bool,
}

impl Loaded {
    /// Whether every partition has what it needs; forgets what another change has overtaken.
    fn is_ready(&mut self, partitions: &FxHashMap<PartitionKey, Arc<Partition>>) -> bool {
        self.staged.retain(|key, staged| {
            staged.version.is_some() || partitions.get(key).is_none_or(|partition| partition.has(&staged.fingerprint))
        });
        partitions.keys().all(|key| self.staged.contains_key(key))
    }
}

impl Router {
    /// Reads and compiles the artifacts of a configuration, builds the guests of every partition that there is and has
    /// each instance decide once. What runs goes on meanwhile and is not touched.
    ///
    /// # Errors
    /// As [`crate::RouterBuilder::build`] and [`Router::partition`]; nothing has changed then.
    pub fn load(&self, config: PolicyConfig) -> Result<Loaded, RouterError> {
        let plan = Arc::new(Plan::new(Arc::clone(&self.fixed), Some(config))?);
        // What no partition is served by yet must be sound too.
        plan.check_selections()?;
        let mut loaded = Loaded { plan, staged: FxHashMap::default() };
        self.stage(&mut loaded)?;
        Ok(loaded)
    }

    /// Lets a loaded configuration take over. No decision is lost and none sees two versions: each partition changes
    /// between two of its decisions. `now_ms` is for [`VersionStatus::activated_ms`].
    ///
    /// # Errors
    /// A partition that came since the configuration was loaded and whose policy cannot start; nothing has changed then.
    pub fn activate(&self, mut loaded: Loaded, now_ms: f64) -> Result<Activation, RouterError> {
        loop {
            self.stage(&mut loaded)?;
            let mut current = locked(&self.current);
            let partitions = locked(&self.partitions);
            if !loaded.is_ready(&partitions) {
                continue;
            }
            let Loaded { plan, staged } = loaded;
            plan.set_quotas();
            let generation = current.generation + 1;
            let before = Arc::clone(&current.plan);
            let mut activation = Activation { generation, ..differences(&before, &plan) };
            for (key, staged) in staged {
                let Some(partition) = partitions.get(&key) else { continue };
                let Staged { fingerprint, version } = staged;
                if partition.activate(version, &fingerprint, generation, now_ms, plan.tenant(&key)) {
                    activation.changed.push(key);
                }
            }
            activation.changed.sort_unstable();
            *current = Current { plan, generation, activated_ms: now_ms, before: Some(before) };
            drop(partitions);
            drop(current);
            self.plan().forget_unused();
            tracing::info!(generation, changed = activation.changed.len(), "another configuration holds");
            return Ok(activation);
        }
    }

    /// Goes back to the configuration before: its guests take over again as they were. Doing so twice goes forward again.
    ///
    /// # Errors
    /// [`RouterError::NoEarlierVersion`]; as [`Router::activate`].
    pub fn roll_back(&self, now_ms: f64) -> Result<Activation, RouterError> {
        let before = locked(&self.current).before.clone().ok_or(RouterError::NoEarlierVersion)?;
        self.activate(Loaded { plan: before, staged: FxHashMap::default() }, now_ms)
    }

    /// The versions of every partition, sorted by partition, the active one first.
    #[must_use]
    pub fn versions(&self) -> Vec<VersionStatus> {
        let mut partitions: Vec<Arc<Partition>> = locked(&self.partitions).values().cloned().collect();
        partitions.sort_by(|a, b| a.key().cmp(b.key()));
        partitions.iter().flat_map(|partition| partition.versions()).collect()
    }

    /// Which configuration holds: 1 for the first, one more with each change.
    #[must_use]
    pub fn generation(&self) -> u64 {
        locked(&self.current).generation
    }

    /// Builds what the partitions that are not staged yet need.
    fn stage(&self, loaded: &mut Loaded) -> Result<(), RouterError> {
        let partitions: Vec<Arc<Partition>> = locked(&self.partitions).values().cloned().collect();
        for partition in partitions {
            if loaded.staged.contains_key(partition.key()) {
                continue;
            }
            let fingerprint = loaded.plan.fingerprint(partition.key())?;
            let version = match partition.has(&fingerprint) {
                true => None,
                false => Some(Box::new(loaded.plan.version(partition.key(), partition.block_size())?)),
            };
            loaded.staged.insert(partition.key().clone(), Staged { fingerprint, version });
        }
        Ok(())
    }
}

/// What the change of a configuration cannot do by itself.
fn differences(before: &Plan, after: &Plan) -> Activation {
    let default = PolicyConfig::default();
    let (old, new) = (before.config.as_ref().unwrap_or(&default), after.config.as_ref().unwrap_or(&default));
    let changes = new.changes_since(old);
    Activation {
        needs_restart: changes.iter().filter(|change| change.needs_restart).map(|change| change.place).collect(),
        classifier_changed: changes.iter().any(|change| change.place == "request_classifier"),
        ..Activation::default()
    }
}
