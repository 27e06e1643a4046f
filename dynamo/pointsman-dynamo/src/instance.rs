//! One configured instance of worker selection: what Dynamo's provider builds, and its factory makes policies of.

use std::sync::{Arc, Mutex, PoisonError};

use dynamo_kv_router::plugins::worker_selection::{WorkerSelectionPolicy, WorkerSelectionPolicyFactory};
use dynamo_kv_router::plugins::{WorkerSelectionPolicyParameters, WorkerSelectionPolicyProviderError};
use dynamo_kv_router::scheduling::config::SharedCacheType;
use dynamo_kv_router::{KvRouterConfig, RoutingPartitionRef, WorkerType};
use pointsman_routing::config::{self, FaultAction, OnFault};
use pointsman_routing::{
    HostedPolicy, InstanceSpec, PartitionKey, Provider, Role, Router, RouterBuilder, RouterConfig, RouterError,
};
use pointsman_sandbox::{Sandbox, SandboxConfig};

use crate::groups;
use crate::parameters::{self, FilterPlace, Parameters};
use crate::policy::{self, Seat};

/// The block size of guests that have not seen a request: Dynamo tells it with the first one.
pub(crate) const USUAL_BLOCK_SIZE: u32 = 16;

/// A component with its settings.
pub(crate) struct Instance {
    router: Router,
    pub(crate) on_fault: OnFault,
    pub(crate) filter_in_picker: bool,
}

/// The place of the one sandbox.
pub(crate) type SharedSandbox = Mutex<Option<Sandbox>>;

/// Dynamo's provider: loads the component and tries it in every role.
pub(crate) fn provide(
    found: &WorkerSelectionPolicyParameters,
    sandbox: &SharedSandbox,
) -> Result<WorkerSelectionPolicyFactory, WorkerSelectionPolicyProviderError> {
    let instance = Instance::load(found, sandbox).map_err(WorkerSelectionPolicyProviderError::new)?;
    let instance = Arc::new(instance);
    Ok(Arc::new(move |config, role, partition| instance.policy(config, role, partition)))
}

fn sandbox(shared: &SharedSandbox) -> Result<Sandbox, String> {
    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(sandbox) = &*shared {
        return Ok(sandbox.clone());
    }
    let sandbox = Sandbox::new(SandboxConfig::default()).map_err(|error| error.to_string())?;
    Ok(shared.insert(sandbox).clone())
}

/// A builder whose one type is the component.
pub(crate) fn builder(component: &str, seed: Option<u64>, shared: &SharedSandbox) -> Result<RouterBuilder, String> {
    Ok(Router::builder()
        .register(crate::POLICY_TYPE, Provider::component(parameters::artifact(component)?))
        .seed(seed.unwrap_or_else(|| fastrand::u64(..)))
        .sandbox(sandbox(shared)?))
}

/// The instance of that component with its settings.
pub(crate) fn spec(settings: config::Instance) -> InstanceSpec {
    InstanceSpec::new(crate::POLICY_TYPE)
        .named(settings.name)
        .parameters(settings.parameters)
        .limits(settings.limits)
        .on_fault(settings.on_fault)
}

/// What is wrong, without the name of a type that nobody wrote.
pub(crate) fn message(error: RouterError) -> String {
    match error {
        RouterError::Provider { message, .. } => message,
        other => other.to_string(),
    }
}

impl Instance {
    fn load(found: &WorkerSelectionPolicyParameters, shared: &SharedSandbox) -> Result<Self, String> {
        let parameters: Parameters = found.deserialize().map_err(|error| error.to_string())?;
        let settings = parameters.settings()?;
        let on_fault = settings.on_fault;
        let builder = builder(&parameters.component, parameters.seed, shared)?.serve(spec(settings));
        let router = builder.build().map_err(|error| error.to_string())?;
        let instance = Self { router, on_fault, filter_in_picker: parameters.filter == Some(FilterPlace::InPicker) };
        for role in Role::ALL {
            let trial = instance.guest(&PartitionKey::of_role(role), USUAL_BLOCK_SIZE, &RouterConfig::default());
            let checked = trial.and_then(|trial| trial.inputs().map_or(Ok(()), groups::check));
            checked.map_err(|message| {
                format!("component `{}` cannot start in role {role}: {message}", parameters.component)
            })?;
        }
        Ok(instance)
    }

    /// The policy with a guest of its own, or why there is none.
    pub(crate) fn guest(
        &self,
        key: &PartitionKey,
        block_size: u32,
        config: &RouterConfig,
    ) -> Result<HostedPolicy, String> {
        self.router.hosted(key, block_size, config).map_err(message)
    }

    /// Whether the native default may have to decide.
    pub(crate) fn falls_back(&self) -> bool {
        let OnFault { filter, otherwise } = self.on_fault;
        (filter, otherwise) != (FaultAction::Reject, FaultAction::Reject)
    }

    /// Dynamo's factory: a policy with one guest for each partition and role.
    fn policy(
        self: &Arc<Self>,
        config: &KvRouterConfig,
        worker_type: WorkerType,
        partition: RoutingPartitionRef<'_>,
    ) -> WorkerSelectionPolicy {
        let key = PartitionKey {
            model: partition.model_name.to_owned(),
            routing_group: partition.routing_group.to_owned(),
            role: role(worker_type),
        };
        let seat = Seat::new(Arc::clone(self), key, router_config(config));
        policy::of(seat, config, worker_type)
    }
}

const fn role(worker_type: WorkerType) -> Role {
    match worker_type {
        WorkerType::Aggregated => Role::Aggregated,
        WorkerType::Prefill => Role::Prefill,
        WorkerType::Decode => Role::Decode,
        WorkerType::Encode => Role::Encode,
    }
}

/// Dynamo's settings as a policy may take them for defaults.
fn router_config(config: &KvRouterConfig) -> RouterConfig {
    let shared_cache_multiplier = config.shared_cache_multiplier.unwrap_or(match config.shared_cache_type {
        SharedCacheType::None => 0.0,
        SharedCacheType::Hicache => 0.5,
    });
    RouterConfig {
        overlap_score_credit: config.overlap_score_credit,
        overlap_score_credit_decay: config.overlap_score_credit_decay,
        prefill_load_scale: config.prefill_load_scale,
        decode_active_request_weight: config.decode_active_request_weight,
        host_cache_hit_weight: config.host_cache_hit_weight,
        disk_cache_hit_weight: config.disk_cache_hit_weight,
        shared_cache_multiplier,
        router_temperature: config.router_temperature,
        conditional_disaggregation: config.conditional_disagg_enabled,
    }
}
