//! The router: partitions, and the policy instance that serves each.

use std::sync::{Arc, Mutex};

use pointsman_admission::{AffinityMode, Profiles, SessionAffinity, WorkerKey};
use pointsman_contract::{Role, RouterConfig};
use pointsman_sandbox::Sandbox;
use rustc_hash::FxHashMap;
use sha2::{Digest, Sha256};

use crate::admission::{AdmissionController, AdmissionSetup, HostedClassifier, QueuedRequest, Workers};
use crate::breaker::{BreakerSettings, Breakers};
use crate::change::Current;
use crate::config::{Instance, InstanceKind, LimitsPatch, OnFault, Overrides, PolicyConfig};
use crate::error::RouterError;
use crate::hosted::HostedPolicy;
use crate::partition::Partition;
use crate::pipeline::StageMode;
use crate::plan::{Fixed, Plan};
use crate::registry::{DEFAULT, Provider, Registry};
use crate::snapshot_policy::SnapshotPolicy;
use crate::sync::locked;
use crate::tenant::TenantUsage;
use crate::version::Version;
use crate::vocabulary::Vocabulary;

/// Which routing partition: model, routing group and what its workers do.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionKey {
    /// The model.
    pub model: String,
    /// The routing group.
    pub routing_group: String,
    /// What the workers do.
    pub role: Role,
}

impl Default for PartitionKey {
    fn default() -> Self {
        Self::of_role(Role::Aggregated)
    }
}

impl PartitionKey {
    /// The default model's default group in that role.
    #[must_use]
    pub fn of_role(role: Role) -> Self {
        Self { model: DEFAULT.to_owned(), routing_group: DEFAULT.to_owned(), role }
    }
}

/// A policy instance that an embedder selects without a configuration file.
#[derive(Clone, Debug)]
pub struct InstanceSpec(Instance);

impl InstanceSpec {
    /// An instance of a registered type, named as its type.
    #[must_use]
    pub fn new(policy_type: impl Into<String>) -> Self {
        let name = policy_type.into();
        Self(Instance {
            kind: InstanceKind::Type(name.clone()),
            name,
            parameters: serde_json::Map::new(),
            limits: LimitsPatch::default(),
            wasi: false,
            on_fault: OnFault::default(),
            tenant: None,
            line: 0,
            kind_line: 0,
            parameter_lines: std::collections::BTreeMap::new(),
        })
    }

    /// The instance's name, in messages and in its seed.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.0.name = name.into();
        self
    }

    /// The policy's parameters.
    #[must_use]
    pub fn parameters(mut self, parameters: serde_json::Map<String, serde_json::Value>) -> Self {
        self.0.parameters = parameters;
        self
    }

    /// Limits other than the profile's.
    #[must_use]
    pub fn limits(mut self, limits: LimitsPatch) -> Self {
        self.0.limits = limits;
        self
    }

    /// Whether the policy may import WASI, with nothing granted: what runtimes of other languages need to start.
    #[must_use]
    pub const fn wasi(mut self, wasi: bool) -> Self {
        self.0.wasi = wasi;
        self
    }

    /// What the host does when the policy fails.
    #[must_use]
    pub const fn on_fault(mut self, on_fault: OnFault) -> Self {
        self.0.on_fault = on_fault;
        self
    }
}

/// An instance of a policy file, such as its classifier.
impl From<Instance> for InstanceSpec {
    fn from(instance: Instance) -> Self {
        Self(instance)
    }
}

impl InstanceSpec {
    pub(crate) fn into_instance(self) -> Instance {
        self.0
    }
}

/// What stands in front of worker selection.
#[derive(Clone, Debug, Default)]
pub struct AdmissionSettings {
    /// The policy classes of each model.
    pub profiles: Profiles,
    /// What decides whether and when a request is admitted; none where every request is, as it comes.
    pub classifier: Option<ClassifierSettings>,
    /// How strictly a session keeps its worker, and for how many seconds when it is idle; none where it keeps none.
    pub session_affinity: Option<(AffinityMode, u32)>,
}

impl AdmissionSettings {
    /// What a router-policy file says.
    pub(crate) fn of(config: &PolicyConfig) -> Self {
        let classifier = config.request_classifier.as_ref();
        Self {
            profiles: config.profiles.clone(),
            classifier: classifier.map(|classifier| ClassifierSettings {
                instance: InstanceSpec(classifier.policy.clone()),
                on_fault: classifier.on_fault,
                max_deferral_ms: classifier.max_deferral_ms,
            }),
            session_affinity: config.session_affinity.map(|settings| (settings.mode, settings.ttl_secs)),
        }
    }
}

/// A request classifier and its rules.
#[derive(Clone, Debug)]
pub struct ClassifierSettings {
    /// The policy.
    pub instance: InstanceSpec,
    /// What becomes of requests whose classifier failed.
    pub on_fault: pointsman_admission::OnFault,
    /// The longest deferral, in milliseconds.
    pub max_deferral_ms: u32,
}

/// Builds a [`Router`].
#[derive(Default)]
pub struct RouterBuilder {
    registry: Registry,
    errors: Vec<RouterError>,
    config: Option<PolicyConfig>,
    overrides: Overrides,
    serve: Option<Instance>,
    router_config: RouterConfig,
    seed: u64,
    mode: StageMode,
    deadline_us: Option<u64>,
    sandbox: Option<Sandbox>,
    vocabulary: Vocabulary,
    admission: Option<AdmissionSettings>,
    smoke: Option<bool>,
    breaker: Option<BreakerSettings>,
}

impl RouterBuilder {
    /// Registers a policy type. A name that is empty, `default` or taken is an error of [`Self::build`].
    #[must_use]
    pub fn register(mut self, name: &str, provider: Provider) -> Self {
        if let Err(error) = self.registry.register(name, provider) {
            self.errors.push(error);
        }
        self
    }

    /// The router-policy file. Its cache weights replace those of [`Self::router_config`].
    #[must_use]
    pub fn policy_config(mut self, config: PolicyConfig) -> Self {
        self.config = Some(config);
        self
    }

    /// Selections that go before those of the file.
    #[must_use]
    pub fn overrides(mut self, overrides: Overrides) -> Self {
        self.overrides = overrides;
        self
    }

    /// One instance for every partition, before every other selection.
    #[must_use]
    pub fn serve(mut self, instance: InstanceSpec) -> Self {
        self.serve = Some(instance.0);
        self
    }

    /// The settings that policies take as defaults; Dynamo's defaults unless set.
    #[must_use]
    pub const fn router_config(mut self, config: RouterConfig) -> Self {
        self.router_config = config;
        self
    }

    /// The seed that every guest's seed grows from; 0 unless set.
    #[must_use]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Whether a policy that offers it decides in one crossing; fused unless set.
    #[must_use]
    pub const fn stages(mut self, mode: StageMode) -> Self {
        self.mode = mode;
        self
    }

    /// A wall-clock deadline for every call in place of each instance's own, in microseconds.
    #[must_use]
    pub const fn deadline_us(mut self, deadline_us: u64) -> Self {
        self.deadline_us = Some(deadline_us);
        self
    }

    /// The sandbox to run components in; one of its own by the file's `sandbox` section unless set.
    #[must_use]
    pub fn sandbox(mut self, sandbox: Sandbox) -> Self {
        self.sandbox = Some(sandbox);
        self
    }

    /// What stands in front of worker selection, in place of what the file says of it.
    #[must_use]
    pub fn admission(mut self, settings: AdmissionSettings) -> Self {
        self.admission = Some(settings);
        self
    }

    /// Whether a component has to decide over made-up candidates before it serves, in place of what the file says of it.
    #[must_use]
    pub const fn smoke(mut self, smoke: bool) -> Self {
        self.smoke = Some(smoke);
        self
    }

    /// When a component that fails is kept out, in place of what the file says of it.
    #[must_use]
    pub const fn breaker(mut self, settings: BreakerSettings) -> Self {
        self.breaker = Some(settings);
        self
    }

    /// Adds the signal `metric.<name>`, set by [`Partition::set_metric`].
    #[must_use]
    pub fn metric(self, name: &str) -> Self {
        self.extra("metric", name)
    }

    /// Adds the signal `label.<name>`, taken from the labels of [`crate::WorkerConfig`].
    #[must_use]
    pub fn label(self, name: &str) -> Self {
        self.extra("label", name)
    }

    fn extra(mut self, kind: &str, name: &str) -> Self {
        let signal = format!("{kind}.{name}");
        if name.is_empty() || self.vocabulary.extras.contains(&signal) {
            let message = format!("the signal `{signal}` is empty or added twice; add each {kind} once, by its name");
            self.errors.push(RouterError::Config(message));
        } else {
            self.vocabulary.extras.push(signal);
        }
        self
    }

    /// Lets policies read the text `header.<name>`; lower case.
    #[must_use]
    pub fn grant_header(mut self, name: &str) -> Self {
        self.vocabulary.headers.push(name.to_ascii_lowercase());
        self
    }

    /// Builds the router and checks every selection of the configuration.
    ///
    /// # Errors
    /// The first error of a registration; every problem of the file's types at once; an override that names no
    /// instance; a component file that cannot be read or has another digest; a sandbox that cannot start.
    pub fn build(self) -> Result<Router, RouterError> {
        if let Some(error) = self.errors.into_iter().next() {
            return Err(error);
        }
        let sandbox = match self.sandbox {
            Some(sandbox) => sandbox,
            None => Sandbox::new(
                self.config.as_ref().map(|config| config.sandbox.clone()).unwrap_or_default().sandbox_config(),
            )
            .map_err(|error| RouterError::Sandbox(error.to_string()))?,
        };
        let fixed = Arc::new(Fixed {
            registry: self.registry,
            overrides: self.overrides,
            serve: self.serve,
            router_config: self.router_config,
            seed: self.seed,
            mode: self.mode,
            deadline_us: self.deadline_us,
            sandbox,
            vocabulary: Arc::new(self.vocabulary),
            admission: self.admission,
            smoke: self.smoke,
            breaker: self.breaker,
            breakers: Breakers::default(),
            tenants: Mutex::default(),
            smoked: Mutex::default(),
        });
        let plan = Plan::new(Arc::clone(&fixed), self.config)?;
        for role in Role::ALL {
            plan.selected(&PartitionKey::of_role(role))?;
        }
        Ok(Router { fixed, current: Mutex::new(Current::first(plan)), partitions: Mutex::default() })
    }
}

/// Decides requests: one policy instance for each partition, one guest for each (partition, instance).
pub struct Router {
    pub(crate) fixed: Arc<Fixed>,
    /// Taken before `partitions` where both are.
    pub(crate) current: Mutex<Current>,
    pub(crate) partitions: Mutex<FxHashMap<PartitionKey, Arc<Partition>>>,
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Router").field("types", &self.plan().types()).finish_non_exhaustive()
    }
}

impl Router {
    /// A builder without any policy type: every partition is served by the native default.
    #[must_use]
    pub fn builder() -> RouterBuilder {
        RouterBuilder::default()
    }

    /// The configuration that holds now.
    pub(crate) fn plan(&self) -> Arc<Plan> {
        Arc::clone(&locked(&self.current).plan)
    }

    /// The settings that policies take as defaults.
    #[must_use]
    pub fn router_config(&self) -> RouterConfig {
        self.plan().router_config
    }

    /// The partition of that key: built at the first call, with its guests, and the same one ever after.
    ///
    /// # Errors
    /// A policy that cannot start; a block size of 0, or other than the partition has.
    pub fn partition(&self, key: &PartitionKey, block_size: u32) -> Result<Arc<Partition>, RouterError> {
        if block_size == 0 {
            return Err(RouterError::ZeroBlockSize);
        }
        loop {
            if let Some(found) = locked(&self.partitions).get(key) {
                return same_block_size(found, block_size);
            }
            // Built without a lock, since it may compile: the partitions that there are go on.
            let plan = self.plan();
            let partition = self.build_partition(&plan, key, block_size)?;
            let current = locked(&self.current);
            if Arc::ptr_eq(&current.plan, &plan) {
                let partition = Arc::new(partition.since(current.generation, current.activated_ms));
                let mut partitions = locked(&self.partitions);
                return same_block_size(partitions.entry(key.clone()).or_insert(partition), block_size);
            }
        }
    }

    fn build_partition(&self, plan: &Plan, key: &PartitionKey, block_size: u32) -> Result<Partition, RouterError> {
        let span = tracing::debug_span!("partition", model = key.model, group = key.routing_group, role = %key.role);
        let _entered = span.enter();
        let version = plan.version(key, block_size)?;
        tracing::debug!(instance = version.name, "built the partition's policy");
        let vocabulary = Arc::clone(&self.fixed.vocabulary);
        Ok(Partition::new(key.clone(), block_size, vocabulary, version, plan.tenant(key)))
    }

    /// The policy that serves partitions of that key, over snapshots of their decisions. Every call builds new guests,
    /// which no breaker and no quota of fuel keeps out.
    ///
    /// # Errors
    /// As [`Self::partition`].
    pub fn on_snapshots(&self, key: &PartitionKey, block_size: u32) -> Result<SnapshotPolicy, RouterError> {
        let Version { policy, fallback, .. } = self.plan().version(key, block_size)?;
        Ok(SnapshotPolicy::new(policy.unguarded(), fallback, (*self.fixed.vocabulary).clone()))
    }

    /// What each tenant has used, by name.
    #[must_use]
    pub fn tenants(&self) -> Vec<TenantUsage> {
        let tenants: Vec<_> = locked(&self.fixed.tenants).values().cloned().collect();
        tenants.iter().map(|tenant| tenant.usage()).collect()
    }

    /// Builds every configured instance once for `role`, and throws it away: the errors that its partition would meet.
    ///
    /// # Errors
    /// As [`Self::partition`].
    pub fn check_instance(&self, name: &str, role: Role) -> Result<(), RouterError> {
        let plan = self.plan();
        let instance = plan.instance("the check", name)?;
        plan.pipeline(instance, &PartitionKey::of_role(role), 16, &plan.router_config).map(drop)
    }

    /// Admission in front of a partition, as the settings say; none where they say nothing for it: no classifier, no
    /// session affinity and a class in which nothing can wait. Prefill and encode workers have none. Every call builds a
    /// new controller.
    ///
    /// # Errors
    /// As [`Self::classifier`]; a time to live of sessions that is out of range.
    pub fn admission<R: QueuedRequest>(
        &self,
        partition: &Arc<Partition>,
        now_ms: f64,
    ) -> Result<Option<AdmissionController<R, HostedClassifier>>, RouterError> {
        let setup = self.admission_setup(partition)?;
        Ok(setup.map(|setup| AdmissionController::new(Arc::clone(partition), setup, now_ms)))
    }

    /// Starts what the admission of a partition needs, and throws it away.
    ///
    /// # Errors
    /// As [`Self::admission`].
    pub fn check_admission(&self, partition: &Arc<Partition>) -> Result<(), RouterError> {
        self.admission_setup(partition).map(drop)
    }

    fn admission_setup(
        &self,
        partition: &Arc<Partition>,
    ) -> Result<Option<AdmissionSetup<HostedClassifier>>, RouterError> {
        let plan = self.plan();
        let AdmissionSettings { profiles, classifier, session_affinity } = &plan.admission;
        let profile = profiles.of(&partition.key().model);
        let waits = profile.classes().iter().any(|class| class.can_queue() || class.never_queues());
        let serves = matches!(partition.key().role, Role::Aggregated | Role::Decode);
        if !serves || !(waits || classifier.is_some() || session_affinity.is_some()) {
            return Ok(None);
        }
        let affinity = session_affinity.map(|(mode, ttl_secs)| SessionAffinity::new(mode, ttl_secs)).transpose();
        let mut setup = AdmissionSetup {
            classifier: self.configured_classifier(partition)?,
            on_fault: pointsman_admission::OnFault::default(),
            max_deferral_ms: u32::MAX,
            profile: Arc::clone(profile),
            affinity: affinity.map_err(|error| RouterError::Config(error.to_string()))?,
        };
        if let Some(ClassifierSettings { on_fault, max_deferral_ms, .. }) = classifier {
            (setup.on_fault, setup.max_deferral_ms) = (*on_fault, *max_deferral_ms);
        }
        Ok(Some(setup))
    }

    /// The classifier that the configuration has for a partition, which admits everything where it has none. Every call
    /// builds a new guest.
    ///
    /// # Errors
    /// As [`Self::classifier`].
    pub fn configured_classifier(&self, partition: &Arc<Partition>) -> Result<HostedClassifier, RouterError> {
        match &self.plan().admission.classifier {
            Some(settings) => self.classifier(settings.instance.clone(), Arc::clone(partition)),
            None => Ok(HostedClassifier::none()),
        }
    }

    /// A classifier of that instance for a partition. Every call builds a new guest.
    ///
    /// # Errors
    /// As [`Self::partition`]; a policy that is no classifier.
    pub fn classifier(
        &self,
        instance: InstanceSpec,
        partition: Arc<Partition>,
    ) -> Result<HostedClassifier, RouterError> {
        let (key, block_size) = (partition.key().clone(), partition.block_size());
        self.hosted_classifier(instance, &key, block_size, move |row| partition.number_of(row))
    }

    /// A classifier of that instance in front of workers that the caller holds. `number_of` answers the number that stands
    /// for a row in the classifier's events, none where there is no such row. Every call builds a new guest.
    ///
    /// # Errors
    /// As [`Self::classifier`].
    pub fn hosted_classifier(
        &self,
        instance: InstanceSpec,
        key: &PartitionKey,
        block_size: u32,
        number_of: impl Fn(WorkerKey) -> Option<u32> + Send + 'static,
    ) -> Result<HostedClassifier, RouterError> {
        let instance = instance.into_instance();
        let workers = Workers { block_size, number_of: Box::new(number_of) };
        self.plan().classifier(&instance, key, workers)
    }

    /// The policy that serves partitions of that key, over tables that the caller holds; its guests are told `config`.
    /// Every call builds new guests.
    ///
    /// # Errors
    /// As [`Self::partition`].
    pub fn hosted(
        &self,
        key: &PartitionKey,
        block_size: u32,
        config: &RouterConfig,
    ) -> Result<HostedPolicy, RouterError> {
        let plan = self.plan();
        let default = plan.default_pipeline(key, block_size, config)?;
        Ok(match plan.selected(key)? {
            None => HostedPolicy::new(default, None),
            Some(instance) => HostedPolicy::new(plan.pipeline(instance, key, block_size, config)?, Some(default)),
        })
    }
}

fn same_block_size(partition: &Arc<Partition>, asked: u32) -> Result<Arc<Partition>, RouterError> {
    let (key, has) = (partition.key(), partition.block_size());
    if has == asked {
        return Ok(Arc::clone(partition));
    }
    Err(RouterError::Conflict {
        model: key.model.clone(),
        routing_group: key.routing_group.clone(),
        role: key.role,
        has,
        asked,
    })
}

/// What a guest of an instance is told of the partition that it serves.
pub(crate) fn contract_partition(
    host_seed: u64,
    key: &PartitionKey,
    block_size: u32,
    instance: &str,
) -> pointsman_contract::Partition {
    pointsman_contract::Partition {
        model: key.model.clone(),
        routing_group: key.routing_group.clone(),
        role: key.role,
        block_size,
        seed: guest_seed(host_seed, key, instance),
    }
}

/// The seed of one guest: the first four bytes, little-endian, of SHA-256 over the host's seed (u64, little-endian),
/// model, routing group, role and instance name, each text followed by a zero byte.
#[must_use]
pub fn guest_seed(host_seed: u64, key: &PartitionKey, instance: &str) -> u32 {
    let mut hash = Sha256::new();
    hash.update(host_seed.to_le_bytes());
    for text in [&key.model, &key.routing_group, key.role.as_str(), instance] {
        hash.update(text.as_bytes());
        hash.update([0]);
    }
    let digest = hash.finalize();
    let mut seed = [0; 4];
    seed.iter_mut().zip(digest.as_slice()).for_each(|(to, from)| *to = *from);
    u32::from_le_bytes(seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guests_seed_depends_on_everything_that_names_it() {
        let key = PartitionKey::default();
        // printf '\0\0\0\0\0\0\0\0default\0default\0aggregated\0random\0' | sha256sum
        assert_eq!(guest_seed(0, &key, "random"), u32::from_le_bytes([0x5f, 0xbe, 0xa6, 0x21]));
        let others = [
            guest_seed(1, &key, "random"),
            guest_seed(0, &PartitionKey { model: "m".to_owned(), ..key.clone() }, "random"),
            guest_seed(0, &PartitionKey { routing_group: "g".to_owned(), ..key.clone() }, "random"),
            guest_seed(0, &PartitionKey::of_role(Role::Decode), "random"),
            guest_seed(0, &key, "other"),
        ];
        assert!(others.iter().all(|seed| *seed != guest_seed(0, &key, "random")));
    }
}
