//! The records of `wit/policy.wit` as wasmtime reads and writes them, and the way to the contract's own types.

use pointsman_contract::{Inputs, Manifest, Partition, Reads, Role, RouterConfig, Selection};
use wasmtime::component::{ComponentType, Lift, Lower};

use crate::text::sentence;

#[derive(Clone, Copy, ComponentType, Lower)]
#[component(enum)]
#[repr(u8)]
pub(crate) enum RoleName {
    #[component(name = "aggregated")]
    Aggregated,
    #[component(name = "prefill")]
    Prefill,
    #[component(name = "decode")]
    Decode,
    #[component(name = "encode")]
    Encode,
}

impl From<Role> for RoleName {
    fn from(role: Role) -> Self {
        match role {
            Role::Aggregated => Self::Aggregated,
            Role::Prefill => Self::Prefill,
            Role::Decode => Self::Decode,
            Role::Encode => Self::Encode,
        }
    }
}

#[derive(ComponentType, Lower)]
#[component(record)]
pub(crate) struct PartitionRecord<'a> {
    #[component(name = "model")]
    model: &'a str,
    #[component(name = "routing-group")]
    routing_group: &'a str,
    #[component(name = "role")]
    role: RoleName,
    #[component(name = "block-size")]
    block_size: u32,
    #[component(name = "seed")]
    seed: u32,
}

impl<'a> From<&'a Partition> for PartitionRecord<'a> {
    fn from(partition: &'a Partition) -> Self {
        Self {
            model: &partition.model,
            routing_group: &partition.routing_group,
            role: partition.role.into(),
            block_size: partition.block_size,
            seed: partition.seed,
        }
    }
}

#[derive(Clone, Copy, ComponentType, Lower)]
#[component(record)]
pub(crate) struct RouterConfigRecord {
    #[component(name = "overlap-score-credit")]
    overlap_score_credit: f64,
    #[component(name = "overlap-score-credit-decay")]
    overlap_score_credit_decay: f64,
    #[component(name = "prefill-load-scale")]
    prefill_load_scale: f64,
    #[component(name = "decode-active-request-weight")]
    decode_active_request_weight: f64,
    #[component(name = "host-cache-hit-weight")]
    host_cache_hit_weight: f64,
    #[component(name = "disk-cache-hit-weight")]
    disk_cache_hit_weight: f64,
    #[component(name = "shared-cache-multiplier")]
    shared_cache_multiplier: f64,
    #[component(name = "router-temperature")]
    router_temperature: f64,
    #[component(name = "conditional-disaggregation")]
    conditional_disaggregation: bool,
}

impl From<RouterConfig> for RouterConfigRecord {
    fn from(config: RouterConfig) -> Self {
        Self {
            overlap_score_credit: config.overlap_score_credit,
            overlap_score_credit_decay: config.overlap_score_credit_decay,
            prefill_load_scale: config.prefill_load_scale,
            decode_active_request_weight: config.decode_active_request_weight,
            host_cache_hit_weight: config.host_cache_hit_weight,
            disk_cache_hit_weight: config.disk_cache_hit_weight,
            shared_cache_multiplier: config.shared_cache_multiplier,
            router_temperature: config.router_temperature,
            conditional_disaggregation: config.conditional_disaggregation,
        }
    }
}

#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct ReadsRecord {
    #[component(name = "facts")]
    facts: Vec<String>,
    #[component(name = "texts")]
    texts: Vec<String>,
    #[component(name = "signals")]
    signals: Vec<String>,
    #[component(name = "workers")]
    workers: bool,
}

impl From<ReadsRecord> for Reads {
    fn from(reads: ReadsRecord) -> Self {
        Self { facts: reads.facts, texts: reads.texts, signals: reads.signals, workers: reads.workers }
    }
}

#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct InputsRecord {
    #[component(name = "filter")]
    filter: Option<ReadsRecord>,
    #[component(name = "score")]
    score: Option<ReadsRecord>,
    #[component(name = "pick")]
    pick: Option<ReadsRecord>,
    #[component(name = "exclusive-affinity")]
    exclusive_affinity: bool,
    #[component(name = "classify")]
    classify: Option<ReadsRecord>,
    #[component(name = "tick-ms")]
    tick_ms: Option<u32>,
}

impl From<InputsRecord> for Inputs {
    fn from(inputs: InputsRecord) -> Self {
        Self {
            filter: inputs.filter.map(Into::into),
            score: inputs.score.map(Into::into),
            pick: inputs.pick.map(Into::into),
            exclusive_affinity: inputs.exclusive_affinity,
            classify: inputs.classify.map(Into::into),
            tick_ms: inputs.tick_ms,
        }
    }
}

#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct ManifestRecord {
    #[component(name = "name")]
    name: String,
    #[component(name = "version")]
    version: String,
    #[component(name = "description")]
    description: String,
    #[component(name = "parameters-schema")]
    parameters_schema: String,
}

impl From<ManifestRecord> for Manifest {
    /// What is printed on a line must be one.
    fn from(manifest: ManifestRecord) -> Self {
        Self {
            name: sentence(&manifest.name),
            version: sentence(&manifest.version),
            description: sentence(&manifest.description),
            parameters_schema: manifest.parameters_schema,
        }
    }
}

#[derive(Clone, Copy, ComponentType, Lift)]
#[component(record)]
pub(crate) struct SelectionRecord {
    #[component(name = "row")]
    row: u32,
    #[component(name = "cost")]
    cost: f64,
}

impl From<SelectionRecord> for Selection {
    fn from(selection: SelectionRecord) -> Self {
        Self { row: selection.row, cost: selection.cost }
    }
}
