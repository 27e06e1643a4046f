//! What one router-policy configuration says: which instance serves a partition, and how its guests are built.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use pointsman_contract::{Role, RouterConfig};
use pointsman_sandbox::{Limits, LoadStep, Sandbox};
use pointsman_sdk::native;
use rustc_hash::FxHashSet;

use crate::admission::{HostedClassifier, Workers};
use crate::breaker::{BreakerSettings, Breakers};
use crate::config::{
    Instance, InstanceKind, OnFault, Overrides, PartitionKeyRef, PolicyConfig, Selected, Tenant, WorkerSelection,
};
use crate::error::RouterError;
use crate::guest::Guest;
use crate::member::{Guard, Member};
use crate::pipeline::{Pipeline, StageMode};
use crate::registry::{DEFAULT, Registry, listed, type_name};
use crate::router::{AdmissionSettings, PartitionKey, contract_partition};
use crate::smoke;
use crate::sync::locked;
use crate::tap::Told;
use crate::tenant::TenantState;
use crate::version::Version;
use crate::vocabulary::{Stage, Vocabulary};

/// What stays as it is when the configuration changes.
pub(crate) struct Fixed {
    /// The types that the embedder registered.
    pub(crate) registry: Registry,
    pub(crate) overrides: Overrides,
    pub(crate) serve: Option<Instance>,
    pub(crate) router_config: RouterConfig,
    pub(crate) seed: u64,
    pub(crate) mode: StageMode,
    pub(crate) deadline_us: Option<u64>,
    pub(crate) sandbox: Sandbox,
    pub(crate) vocabulary: Arc<Vocabulary>,
    pub(crate) admission: Option<AdmissionSettings>,
    pub(crate) smoke: Option<bool>,
    pub(crate) breaker: Option<BreakerSettings>,
    pub(crate) breakers: Breakers,
    /// Every tenant that there ever was: what it has used stays.
    pub(crate) tenants: Mutex<BTreeMap<String, Arc<TenantState>>>,
    /// Instances that passed their first decision, by fingerprint.
    pub(crate) smoked: Mutex<FxHashSet<String>>,
}

/// Tokens per block of a partition that nobody asked for yet: as engines commonly have.
const CHECKED_BLOCK_SIZE: u32 = 16;

/// One configuration, with the bytes of its artifacts as they were when it was read.
pub(crate) struct Plan {
    fixed: Arc<Fixed>,
    registry: Registry,
    pub(crate) config: Option<PolicyConfig>,
    pub(crate) router_config: RouterConfig,
    pub(crate) admission: AdmissionSettings,
}

impl Plan {
    pub(crate) fn new(fixed: Arc<Fixed>, config: Option<PolicyConfig>) -> Result<Self, RouterError> {
        let mut registry = fixed.registry.clone();
        let mut router_config = fixed.router_config;
        if let Some(config) = &config {
            config.check_types(&registry.names()).map_err(|problems| RouterError::Config(problems.to_string()))?;
            for component in &config.components {
                registry.register_component(&config.file, component)?;
            }
            registry.read_files(config);
            let RouterConfig { host_cache_hit_weight, disk_cache_hit_weight, .. } = &mut router_config;
            *host_cache_hit_weight = config.router.host_cache_hit_weight.unwrap_or(*host_cache_hit_weight);
            *disk_cache_hit_weight = config.router.disk_cache_hit_weight.unwrap_or(*disk_cache_hit_weight);
        }
        let admission = fixed.admission.clone().or_else(|| config.as_ref().map(AdmissionSettings::of));
        let mut admission = admission.unwrap_or_default();
        if let Some(settings) = fixed.overrides.session_affinity {
            admission.session_affinity = Some((settings.mode, settings.ttl_secs));
        }
        Ok(Self { fixed, registry, config, router_config, admission })
    }

    /// The types that it knows.
    pub(crate) fn types(&self) -> Vec<String> {
        self.registry.names()
    }

    /// Builds the policy of every selection once, and throws it away.
    pub(crate) fn check_selections(&self) -> Result<(), RouterError> {
        for key in self.selections() {
            if let Some(instance) = self.selected(&key)? {
                self.pipeline(instance, &key, CHECKED_BLOCK_SIZE, &self.router_config)?;
            }
        }
        Ok(())
    }

    /// A partition for each selection of the configuration: what a selection leaves open is `default`.
    fn selections(&self) -> Vec<PartitionKey> {
        let mut keys: Vec<PartitionKey> = Role::ALL.map(PartitionKey::of_role).into();
        for rule in self.selection().into_iter().flat_map(|selection| &selection.partitions) {
            let tenant = self
                .config
                .as_ref()
                .and_then(|config| config.tenants.iter().find(|tenant| rule.tenant.as_deref() == Some(&*tenant.name)));
            let group = rule.routing_group.as_ref().or(tenant.and_then(|tenant| tenant.routing_groups.first()));
            let name = |name: Option<&String>| name.map_or(DEFAULT, String::as_str).to_owned();
            let roles = Role::ALL.into_iter().filter(|role| rule.roles.get(*role).is_some());
            keys.extend(roles.map(|role| PartitionKey {
                model: name(rule.model.as_ref()),
                routing_group: name(group),
                role,
            }));
        }
        keys
    }

    /// The tenant of a partition, with its state.
    pub(crate) fn tenant(&self, key: &PartitionKey) -> Option<Arc<TenantState>> {
        self.tenant_of(key).map(|tenant| self.state_of(tenant))
    }

    fn tenant_of(&self, key: &PartitionKey) -> Option<&Tenant> {
        self.config.as_ref()?.tenant_of(&key.routing_group)
    }

    fn state_of(&self, tenant: &Tenant) -> Arc<TenantState> {
        let mut tenants = locked(&self.fixed.tenants);
        Arc::clone(tenants.entry(tenant.name.clone()).or_insert_with(|| TenantState::new(tenant)))
    }

    /// Gives every tenant its quotas of this configuration.
    pub(crate) fn set_quotas(&self) {
        for tenant in self.config.iter().flat_map(|config| &config.tenants) {
            self.state_of(tenant).set_quotas(&tenant.quotas);
        }
    }

    /// The instance that serves a partition; none for the native default.
    pub(crate) fn selected(&self, key: &PartitionKey) -> Result<Option<&Instance>, RouterError> {
        if let Some(instance) = &self.fixed.serve {
            return Ok((instance.name != DEFAULT).then_some(instance));
        }
        let partition = PartitionKeyRef { model: &key.model, routing_group: &key.routing_group, role: key.role };
        let selected = self.fixed.overrides.select(self.config.as_ref(), partition);
        match selected.map_err(|error| RouterError::Config(error.to_string()))? {
            Selected::Default => Ok(None),
            Selected::Instance(name) => {
                let instance = self.instance("the selection", &name)?;
                self.check_owners(&name, key)?;
                Ok(Some(instance))
            }
        }
    }

    fn selection(&self) -> Option<&WorkerSelection> {
        self.config.as_ref()?.worker_selection.as_ref()
    }

    pub(crate) fn instance(&self, place: &str, name: &str) -> Result<&Instance, RouterError> {
        let instances = self.selection().map_or(&[][..], |selection| &selection.instances);
        instances.iter().find(|instance| instance.name == name).ok_or_else(|| RouterError::UnknownInstance {
            place: place.to_owned(),
            name: name.to_owned(),
            available: listed(instances.iter().map(|instance| &instance.name)),
        })
    }

    /// A tenant's instance serves its own routing groups alone, whatever selects it.
    fn check_owners(&self, name: &str, key: &PartitionKey) -> Result<(), RouterError> {
        let tenant = self.tenant_of(key).map(|tenant| &*tenant.name);
        let mut owners = self.selection().into_iter().flat_map(|selection| selection.owners(name));
        match owners.find(|owner| tenant != Some(*owner)) {
            None => Ok(()),
            Some(owner) => Err(RouterError::ForeignInstance {
                instance: name.to_owned(),
                tenant: owner.to_owned(),
                routing_group: key.routing_group.clone(),
            }),
        }
    }

    /// What makes a partition's policy what it is: two versions with one fingerprint decide alike.
    pub(crate) fn fingerprint(&self, key: &PartitionKey) -> Result<String, RouterError> {
        let tenant = self.tenant_of(key).map(|tenant| &tenant.name);
        let (config, breaker) = (&self.router_config, self.breaker_settings());
        let policy = match self.selected(key)? {
            None => DEFAULT.to_owned(),
            Some(instance) => match &instance.kind {
                InstanceKind::Pipeline { filters, scorers, picker } => {
                    let members = filters.iter().chain(scorers).chain(picker);
                    let members = members.map(|name| self.fingerprint_of(self.instance(&instance.name, name)?));
                    let members = members.collect::<Result<Vec<_>, RouterError>>()?.join("\n");
                    format!("{} {:?}\n{members}", instance.name, instance.kind)
                }
                InstanceKind::Type(_) | InstanceKind::Component(_) => self.fingerprint_of(instance)?,
            },
        };
        Ok(format!("{tenant:?} {config:?} {breaker:?}\n{policy}"))
    }

    fn fingerprint_of(&self, instance: &Instance) -> Result<String, RouterError> {
        let Instance { name, kind, parameters, wasi, on_fault, tenant, .. } = instance;
        let parameters = serde_json::Value::Object(parameters.clone());
        let (digest, limits) = (self.registry.digest(instance)?, self.limits(instance));
        let grants = self.owner(instance).map(|tenant| &tenant.grants);
        Ok(format!("{name} {kind:?} {digest} {parameters} {limits:?} {wasi} {on_fault:?} {tenant:?} {grants:?}"))
    }

    fn breaker_settings(&self) -> BreakerSettings {
        let said = || self.config.as_ref().map(|config| config.sandbox.breaker);
        self.fixed.breaker.or_else(said).unwrap_or_default()
    }

    /// The tenant that an instance belongs to.
    fn owner(&self, instance: &Instance) -> Option<&Tenant> {
        let name = instance.tenant.as_deref()?;
        self.config.as_ref()?.tenants.iter().find(|tenant| tenant.name == name)
    }

    fn limits(&self, instance: &Instance) -> Limits {
        let mut limits: Limits = instance.limits.resolve();
        limits.deadline_us = self.fixed.deadline_us.unwrap_or(limits.deadline_us);
        self.owner(instance).map_or(limits, |tenant| limits.narrowed_by(tenant.limits.iter().copied()))
    }

    /// What the instance may read: everything, or what its tenant is granted.
    fn vocabulary(&self, instance: &Instance) -> Arc<Vocabulary> {
        match self.owner(instance) {
            Some(tenant) => Arc::new(self.fixed.vocabulary.granted(&tenant.grants)),
            None => Arc::clone(&self.fixed.vocabulary),
        }
    }

    /// Builds the policy of a partition, with its guests.
    pub(crate) fn version(&self, key: &PartitionKey, block_size: u32) -> Result<Version, RouterError> {
        let config = &self.router_config;
        let default = self.default_pipeline(key, block_size, config)?;
        let fingerprint = self.fingerprint(key)?;
        let told = Told {
            key: key.clone(),
            block_size,
            seed: self.fixed.seed,
            router_config: *config,
            determinism: self.fixed.sandbox.config().determinism,
        };
        Ok(match self.selected(key)? {
            None => Version::new(DEFAULT.to_owned(), default, told, None, fingerprint),
            Some(instance) => {
                let policy = self.pipeline(instance, key, block_size, config)?;
                Version::new(instance.name.clone(), policy, told, Some(default), fingerprint)
            }
        })
    }

    pub(crate) fn pipeline(
        &self,
        instance: &Instance,
        key: &PartitionKey,
        block_size: u32,
        config: &RouterConfig,
    ) -> Result<Pipeline, RouterError> {
        let InstanceKind::Pipeline { filters, scorers, picker } = &instance.kind else {
            return Ok(Pipeline::single(self.member(instance, key, block_size, config)?, self.fixed.mode));
        };
        let mut members: Vec<Member> = Vec::new();
        let mut place = |list: &str, name: &String, stage: Stage| -> Result<usize, RouterError> {
            let place = format!("pipeline `{}`, {list}", instance.name);
            let found = members.iter().position(|member| member.instance == *name);
            let index = match found {
                Some(index) => index,
                None => {
                    members.push(self.member(self.instance(&place, name)?, key, block_size, config)?);
                    members.len() - 1
                }
            };
            let stages = members.get(index).map(|member| member.guest().stages()).unwrap_or_default();
            if stage.is_in(stages) {
                Ok(index)
            } else {
                Err(RouterError::MissingStage { place, instance: name.clone(), stage })
            }
        };
        let filters = filters.iter().map(|name| place("filters", name, Stage::Filter)).collect::<Result<_, _>>()?;
        let scorers = scorers.iter().map(|name| place("scorers", name, Stage::Score)).collect::<Result<_, _>>()?;
        let picker = picker.as_ref().map(|name| place("picker", name, Stage::Pick)).transpose()?;
        Ok(Pipeline::of(members, filters, scorers, picker))
    }

    fn member(
        &self,
        instance: &Instance,
        key: &PartitionKey,
        block_size: u32,
        config: &RouterConfig,
    ) -> Result<Member, RouterError> {
        self.smoke(instance, key, block_size, config)?;
        self.new_member(instance, key, block_size, config)
    }

    fn new_member(
        &self,
        instance: &Instance,
        key: &PartitionKey,
        block_size: u32,
        config: &RouterConfig,
    ) -> Result<Member, RouterError> {
        let (guest, guard) = self.guest(instance, key, block_size, config)?;
        Member::new(instance.name.clone(), guest, instance.on_fault, guard, &self.vocabulary(instance))
            .map_err(|message| provider_error(instance, LoadStep::Configure, message))
    }

    /// Has a guest that is thrown away decide over made-up candidates.
    fn smoke(
        &self,
        instance: &Instance,
        key: &PartitionKey,
        block_size: u32,
        config: &RouterConfig,
    ) -> Result<(), RouterError> {
        self.once(instance, "select", || {
            let guest = self.new_member(instance, key, block_size, config)?.into_guest();
            smoke::select(guest, &instance.name, self.vocabulary(instance), block_size, self.fixed.mode)
                .map_err(|message| provider_error(instance, LoadStep::Smoke, message))
        })
    }

    /// Runs a trial of a component once for each instance as it is configured.
    fn once(
        &self,
        instance: &Instance,
        stage: &str,
        trial: impl FnOnce() -> Result<(), RouterError>,
    ) -> Result<(), RouterError> {
        let name = format!("{stage} {}", self.fingerprint_of(instance)?);
        let smoked = || locked(&self.fixed.smoked);
        let said = || self.config.as_ref().is_none_or(|config| config.sandbox.smoke);
        let wanted = self.fixed.smoke.unwrap_or_else(said);
        if !wanted || !self.registry.is_component(instance) || smoked().contains(&name) {
            return Ok(());
        }
        trial()?;
        smoked().insert(name);
        Ok(())
    }

    /// A classifier in front of a partition.
    pub(crate) fn classifier(
        &self,
        instance: &Instance,
        key: &PartitionKey,
        workers: Workers,
    ) -> Result<HostedClassifier, RouterError> {
        let block_size = workers.block_size;
        let build = |workers| {
            let (guest, guard) = self.guest(instance, key, block_size, &self.router_config)?;
            HostedClassifier::new(guest, guard, workers, self.vocabulary(instance))
                .map_err(|message| provider_error(instance, LoadStep::Configure, message))
        };
        self.once(instance, "classify", || {
            let workers = Workers { block_size, number_of: Box::new(|_| None) };
            build(workers)?.smoke().map_err(|message| provider_error(instance, LoadStep::Smoke, message))
        })?;
        build(workers)
    }

    /// A guest of an instance for a partition, and what guards its calls.
    fn guest(
        &self,
        instance: &Instance,
        key: &PartitionKey,
        block_size: u32,
        config: &RouterConfig,
    ) -> Result<(Guest, Guard), RouterError> {
        let partition = contract_partition(self.fixed.seed, key, block_size, &instance.name);
        let tenant = self.tenant(key);
        let account = tenant.as_ref().map(|tenant| tenant.account());
        let limits = self.limits(instance);
        let guest = self.registry.guest(&self.fixed.sandbox, instance, partition, config, limits, account)?;
        let breaker = guest.digest().map(|digest| self.fixed.breakers.of(&digest, self.breaker_settings()));
        Ok((guest, Guard { breaker, tenant }))
    }

    pub(crate) fn default_pipeline(
        &self,
        key: &PartitionKey,
        block_size: u32,
        config: &RouterConfig,
    ) -> Result<Pipeline, RouterError> {
        let error = |message| {
            let (instance, policy_type) = (DEFAULT.to_owned(), DEFAULT.to_owned());
            RouterError::Provider { instance, policy_type, step: LoadStep::Configure, message }
        };
        let policy = native::native::<dynamo_default_cost_fn::DynamoDefaultCostFn>();
        let partition = contract_partition(self.fixed.seed, key, block_size, DEFAULT);
        let guest = native::NativePolicy::configure(&policy, &partition, config, "{}").map_err(error)?;
        let (guest, on_fault) = (Guest::Native(guest), OnFault::default());
        let member = Member::new(DEFAULT.to_owned(), guest, on_fault, Guard::default(), &self.fixed.vocabulary);
        Ok(Pipeline::single(member.map_err(error)?, self.fixed.mode))
    }

    /// Forgets compiled components that no guest needs any more.
    pub(crate) fn forget_unused(&self) {
        self.registry.forget_unused();
    }
}

/// A policy that cannot start.
pub(crate) fn provider_error(instance: &Instance, step: LoadStep, message: String) -> RouterError {
    RouterError::Provider { instance: instance.name.clone(), policy_type: type_name(&instance.kind), step, message }
}
