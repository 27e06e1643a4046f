//! One configured instance of worker selection: what Dynamo's provider builds, and its factory makes policies of.

use std::sync::Arc;

use dynamo_kv_router::plugins::worker_selection::{WorkerSelectionPolicy, WorkerSelectionPolicyFactory};
use dynamo_kv_router::plugins::{WorkerSelectionPolicyParameters, WorkerSelectionPolicyProviderError};
use dynamo_kv_router::scheduling::config::SharedCacheType;
use dynamo_kv_router::{KvRouterConfig, RoutingPartitionRef, WorkerType};
use pointsman_routing::config::{FaultAction, OnFault};
use pointsman_routing::{HostedPolicy, PartitionKey, Role, Router, RouterConfig};

use crate::component::{self, SharedSandbox, USUAL_BLOCK_SIZE};
use crate::groups;
use crate::parameters::{FilterPlace, Parameters};
use crate::policy::{self, Seat};

/// A component with its settings.
pub(crate) struct Instance {
    router: Router,
    pub(crate) on_fault: OnFault,
    pub(crate) filter_in_picker: bool,
}

/// Dynamo's provider: loads the component and tries it in every role.
pub(crate) fn provide(
    found: &WorkerSelectionPolicyParameters,
    sandbox: &SharedSandbox,
) -> Result<WorkerSelectionPolicyFactory, WorkerSelectionPolicyProviderError> {
    let instance = Instance::load(found, sandbox).map_err(WorkerSelectionPolicyProviderError::new)?;
    let instance = Arc::new(instance);
    Ok(Arc::new(move |config, role, partition| instance.policy(config, role, partition)))
}

impl Instance {
    fn load(found: &WorkerSelectionPolicyParameters, shared: &SharedSandbox) -> Result<Self, String> {
        let parameters: Parameters = found.deserialize().map_err(|error| error.to_string())?;
        let settings = parameters.settings()?;
        let on_fault = settings.on_fault;
        let builder = component::builder(&parameters.component, parameters.seed, parameters.smoke, shared)?;
        let router = builder.serve(settings.into()).build().map_err(|error| error.to_string())?;
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
        self.router.hosted(key, block_size, config).map_err(component::message)
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
