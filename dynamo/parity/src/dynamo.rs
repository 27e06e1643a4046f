//! A case on Dynamo's side.

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::sync::OnceLock;

use dynamo_kv_router::config::RouterConfigOverride;
use dynamo_kv_router::plugins::RouterPluginRegistry;
use dynamo_kv_router::plugins::worker_selection::{SessionContext, WorkerSelectionInputTrigger};
use dynamo_kv_router::protocols::{
    RoutingConstraints, SharedCacheHits, WorkerAffinityTarget, WorkerConfigLike, WorkerId, WorkerWithDpRank,
};
use dynamo_kv_router::scheduling::{OverlapSignals, RouterPolicyConfig, RoutingEligibility, ScheduleMode};
use dynamo_kv_router::{
    KvRouterConfig, RoutingPartitionRef, SchedulingRequest, WorkerLoadProjection, WorkerSelectionInput,
    WorkerSelectionPolicy, WorkerSelector, WorkerType,
};
use pointsman_routing::{Role, RouterConfig, Trigger, WorkerKey, WorkerOverlap};
use serde_json::json;

use crate::case::{Ask, Busy, Case};
use crate::logit;
use crate::verdict::{Refusal, Verdict};

/// What a worker advertises.
#[derive(Clone, Debug)]
pub struct Advertised {
    start_rank: u32,
    ranks: u32,
    taints: HashSet<String>,
    total_kv_blocks: Option<u64>,
}

impl WorkerConfigLike for Advertised {
    fn data_parallel_start_rank(&self) -> u32 {
        self.start_rank
    }

    fn data_parallel_size(&self) -> u32 {
        self.ranks
    }

    fn max_num_batched_tokens(&self) -> Option<u64> {
        None
    }

    fn total_kv_blocks(&self) -> Option<u64> {
        self.total_kv_blocks
    }

    fn taints(&self) -> &HashSet<String> {
        &self.taints
    }
}

/// Any of Dynamo's selectors.
pub type Selector = dyn WorkerSelector<Advertised>;

/// The role in Dynamo's words.
#[must_use]
pub const fn worker_type(role: Role) -> WorkerType {
    match role {
        Role::Aggregated => WorkerType::Aggregated,
        Role::Prefill => WorkerType::Prefill,
        Role::Decode => WorkerType::Decode,
        Role::Encode => WorkerType::Encode,
    }
}

/// The router's settings in Dynamo's words.
#[must_use]
pub fn settings(config: &RouterConfig) -> KvRouterConfig {
    KvRouterConfig {
        overlap_score_credit: config.overlap_score_credit,
        overlap_score_credit_decay: config.overlap_score_credit_decay,
        prefill_load_scale: config.prefill_load_scale,
        decode_active_request_weight: config.decode_active_request_weight,
        host_cache_hit_weight: config.host_cache_hit_weight,
        disk_cache_hit_weight: config.disk_cache_hit_weight,
        shared_cache_multiplier: Some(config.shared_cache_multiplier),
        router_temperature: config.router_temperature,
        conditional_disagg_enabled: config.conditional_disaggregation,
        ..KvRouterConfig::default()
    }
}

/// The settings with a router-policy file of that text.
///
/// # Errors
/// What Dynamo says of the file.
pub fn with_policy_file(mut config: KvRouterConfig, text: &str) -> Result<KvRouterConfig, Box<dyn Error>> {
    config.policy_config_cache = OnceLock::from(RouterPolicyConfig::from_yaml(text)?);
    config.router_policy_config = Some("in memory".to_owned());
    Ok(config)
}

/// The types that Dynamo ships, with its default.
///
/// # Errors
/// Dynamo's own.
pub fn shipped() -> Result<RouterPluginRegistry, Box<dyn Error>> {
    let mut registry = dynamo_custom_policy_builtin::default_registry();
    dynamo_custom_policy_builtin::register(&mut registry)?;
    Ok(registry)
}

/// The policy of type `name` for one case, as a router-policy file would start it.
///
/// # Errors
/// Unknown types and parameters that the type refuses.
pub fn policy(
    registry: &RouterPluginRegistry,
    name: &str,
    config: &RouterConfig,
    case: &Case,
) -> Result<WorkerSelectionPolicy, Box<dyn Error>> {
    let instance = json!({"name": "it", "type": name, "parameters": case.parameters});
    let file = json!({"worker_selection": {case.role.as_str(): "it", "instances": [instance]}});
    let config = with_policy_file(settings(config), &file.to_string())?;
    let factory = registry.resolve(&config)?.ok_or("the registry has no factory")?;
    Ok(factory(&config, worker_type(case.role), RoutingPartitionRef::new("model", "default")))
}

/// One case's workers.
pub struct World<'a> {
    case: &'a Case,
    workers: HashMap<WorkerId, Advertised>,
    overloaded: HashSet<WorkerId>,
    unavailable: bool,
}

impl<'a> World<'a> {
    /// The workers of the case.
    #[must_use]
    pub fn new(case: &'a Case) -> Self {
        let workers = case.workers.iter().map(|worker| {
            let taints = worker.taints.iter().map(|taint| (*taint).to_owned()).collect();
            let (start_rank, ranks) = (worker.start_rank, worker.ranks.len() as u32);
            (worker.id, Advertised { start_rank, ranks, taints, total_kv_blocks: worker.total_kv_blocks })
        });
        Self {
            case,
            workers: workers.collect(),
            overloaded: case.workers.iter().filter(|worker| worker.overloaded).map(|worker| worker.id).collect(),
            unavailable: case.workers.iter().any(|worker| !worker.available),
        }
    }

    /// What Dynamo's selector says to the request.
    #[must_use]
    pub fn decide(&self, selector: &Selector, ask: &Ask) -> Verdict {
        let request = self.request(ask);
        let exclusive = selector.uses_exclusive_affinity_target();
        let (result, cost) = self.eligibility(&request, ask, exclusive, |workers, eligibility| {
            let input = WorkerSelectionInput::configured(workers, &request, eligibility, self.case.block_size);
            logit::of(|| selector.select_worker(input))
        });
        match result {
            Ok(chosen) => Verdict::Chosen(WorkerKey::new(chosen.worker.worker_id, chosen.worker.dp_rank), cost),
            Err(error) => Verdict::Refused(Refusal::from(error)),
        }
    }

    /// The rows that may serve the request, sorted; `exclusive` as a policy may ask for.
    #[must_use]
    pub fn rows(&self, ask: &Ask, exclusive: bool) -> Vec<WorkerKey> {
        let mut rows = Vec::new();
        self.eligibility(&self.request(ask), ask, exclusive, |workers, eligibility| {
            eligibility.for_each_eligible_worker_rank(workers, |worker, _| {
                rows.push(WorkerKey::new(worker.worker_id, worker.dp_rank));
            });
        });
        rows.sort_unstable();
        rows
    }

    fn eligibility<T>(
        &self,
        request: &SchedulingRequest,
        ask: &Ask,
        exclusive: bool,
        then: impl FnOnce(&HashMap<WorkerId, Advertised>, RoutingEligibility<'_>) -> T,
    ) -> T {
        let available = self.available(ask);
        let eligibility =
            request.eligibility_with_overloaded(Some(&self.overloaded)).with_available_workers(available.as_ref());
        let narrowed = exclusive.then(|| self.narrowed(ask, eligibility)).flatten();
        then(narrowed.as_ref().unwrap_or(&self.workers), eligibility)
    }

    /// The workers that an exclusive affinity target leaves: Dynamo's scheduler narrows by a function of its own crate
    /// alone, which comes to the same as a partition that has no other row. None where the target is not eligible.
    fn narrowed(&self, ask: &Ask, eligibility: RoutingEligibility<'_>) -> Option<HashMap<WorkerId, Advertised>> {
        let target = ask.affinity.filter(|_| ask.exact().is_none())?;
        let mut worker = self.workers.get(&target.worker)?.clone();
        if !eligibility.allows_worker(target.worker, &worker) {
            return None;
        }
        if let Some(rank) = target.rank {
            (worker.start_rank..worker.start_rank + worker.ranks).contains(&rank).then_some(())?;
            (worker.start_rank, worker.ranks) = (rank, 1);
        }
        Some(HashMap::from([(target.worker, worker)]))
    }

    fn available(&self, ask: &Ask) -> Option<HashSet<WorkerId>> {
        let listed = |id: &u64| ask.available.as_ref().is_none_or(|list| list.contains(id));
        (self.unavailable || ask.available.is_some()).then(|| {
            let workers = self.case.workers.iter().filter(|worker| worker.available);
            workers.map(|worker| worker.id).filter(listed).collect()
        })
    }

    fn request(&self, ask: &Ask) -> SchedulingRequest {
        let blocks = ask.blocks(self.case.block_size);
        let loads = self.case.workers.iter().flat_map(|worker| worker.rows());
        let loads = loads.filter_map(|(key, busy)| Some((row(key), projection(busy?, blocks))));
        SchedulingRequest {
            affinity_target: ask.affinity.map(|target| WorkerAffinityTarget::new(target.worker, target.rank)),
            pinned_worker: ask.exact().map(row),
            allowed_worker_ids: ask.allowed.as_ref().map(|list| list.iter().copied().collect()),
            routing_constraints: RoutingConstraints {
                required_taints: ask.required_taints.iter().map(|taint| (*taint).to_owned()).collect(),
                preferred_taints: ask.preferred_taints.iter().map(|(name, by)| ((*name).to_owned(), *by)).collect(),
            },
            router_config_override: ask.temperature.map(|temperature| RouterConfigOverride {
                router_temperature: Some(temperature),
                ..RouterConfigOverride::default()
            }),
            track_prefill_tokens: ask.tracked,
            session_context: session(ask),
            overlap: overlap_signals(&ask.overlaps),
            shared_cache_hits: ask
                .shared
                .as_ref()
                .map(|ranges| SharedCacheHits::from_ranges(ranges.iter().map(|(start, end)| *start..*end).collect())),
            worker_loads: loads.collect(),
            ..plain_request(ask.prompt_tokens)
        }
    }
}

/// A request of so many prompt tokens that has no rule, and of which nothing else is known.
#[must_use]
pub fn plain_request(prompt_tokens: usize) -> SchedulingRequest {
    SchedulingRequest {
        mode: ScheduleMode::QueryOnly { request_id: None },
        token_seq: None,
        isl_tokens: prompt_tokens,
        lora_name: None,
        expected_output_tokens: None,
        affinity_target: None,
        pinned_worker: None,
        allowed_worker_ids: None,
        routing_constraints: RoutingConstraints::default(),
        router_config_override: None,
        track_prefill_tokens: true,
        priority_jump: 0.0,
        strict_priority: 0,
        policy_class: None,
        session_context: None,
        overlap: OverlapSignals::default(),
        kv_transfer_candidates: None,
        retain_kv_transfer_chain: false,
        shared_cache_hits: None,
        worker_loads: Default::default(),
        resp_tx: None,
    }
}

const fn row(key: WorkerKey) -> WorkerWithDpRank {
    WorkerWithDpRank { worker_id: key.worker, dp_rank: key.rank }
}

const fn projection(busy: Busy, blocks: usize) -> WorkerLoadProjection {
    WorkerLoadProjection {
        active_prefill_tokens: busy.prefill_tokens,
        active_decode_blocks: busy.decode_blocks,
        active_requests: busy.requests,
        additional_active_blocks: blocks.saturating_sub(busy.shared_blocks),
    }
}

/// The request's overlaps as Dynamo's maps.
#[must_use]
pub fn overlap_signals(overlaps: &[WorkerOverlap]) -> OverlapSignals {
    let mut signals = OverlapSignals::default();
    for overlap in overlaps {
        let worker = row(overlap.key);
        let tiers = &mut signals.tier_overlap_blocks;
        for (map, blocks) in [
            (&mut tiers.device, overlap.device_blocks),
            (&mut tiers.host_pinned, overlap.host_blocks),
            (&mut tiers.disk, overlap.disk_blocks),
        ] {
            // Dynamo's lists hold matches alone, and one that is not empty means that there are some.
            if blocks > 0.0 {
                map.insert(worker, blocks as usize);
            }
        }
        signals.effective_overlap_blocks.insert(worker, overlap.effective_blocks);
        signals.effective_cached_tokens.insert(worker, overlap.cached_tokens as usize);
    }
    signals
}

fn session(ask: &Ask) -> Option<SessionContext> {
    let session = ask.session.as_ref()?;
    let trigger = session.trigger.map(|trigger| match trigger {
        Trigger::UserMessage => WorkerSelectionInputTrigger::UserMessage,
        Trigger::ToolResult => WorkerSelectionInputTrigger::ToolResult,
        Trigger::Other => WorkerSelectionInputTrigger::Other,
    });
    Some(SessionContext::new(session.id.clone(), session.parent.clone(), session.last, trigger))
}
