//! Bodies of requests and answers, with Dynamo's fields. Unknown fields are ignored, as Dynamo ignores them.

use std::collections::BTreeMap;

use dynamo_kv_router::protocols::BlockExtraInfo;
use pointsman_routing::{Affinity, DEFAULT, PartitionKey, Role, Trigger, WorkerKey};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::error::SelectError;
use crate::fleet::{Worker, WorkerSpec};
use crate::pool::SessionInfo;

fn default_name() -> String {
    DEFAULT.to_owned()
}

/// The partition that a body names.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct PartitionName {
    #[serde(default = "default_name")]
    model_name: String,
    #[serde(default = "default_name")]
    routing_group: String,
}

impl PartitionName {
    pub(super) fn into_key(self) -> PartitionKey {
        PartitionKey { model: self.model_name, routing_group: self.routing_group, role: Role::Aggregated }
    }
}

/// Which partitions a query wants to see.
#[derive(Debug, Deserialize)]
pub(super) struct Filter {
    model_name: Option<String>,
    routing_group: Option<String>,
}

impl Filter {
    pub(super) fn takes(&self, key: &PartitionKey) -> bool {
        let takes = |asked: &Option<String>, has: &str| asked.as_deref().is_none_or(|asked| asked == has);
        takes(&self.model_name, &key.model) && takes(&self.routing_group, &key.routing_group)
    }
}

/// A prompt: token ids, or hashes of its blocks.
#[derive(Debug, Default, Deserialize)]
pub(super) struct PromptBody {
    pub(super) token_ids: Option<Vec<u32>>,
    pub(super) mm_routing_info: Option<MultimodalBody>,
    pub(super) block_mm_infos: Option<Vec<Option<BlockExtraInfo>>>,
    pub(super) block_hashes: Option<Vec<i64>>,
    pub(super) sequence_hashes: Option<Vec<i64>>,
    pub(super) isl_tokens: Option<u64>,
    pub(super) lora_name: Option<String>,
    pub(super) cache_salt: Option<String>,
    pub(super) is_eagle: Option<bool>,
}

/// Token ids as routing sees them, where images and the like stand for other tokens.
#[derive(Debug, Deserialize)]
pub(super) struct MultimodalBody {
    pub(super) routing_token_ids: Vec<u32>,
    #[serde(default)]
    pub(super) block_mm_infos: Vec<Option<BlockExtraInfo>>,
}

/// Settings of one request. Those of the score are read and checked; no policy that Dynamo 1.6 ships follows them.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(try_from = "Settings")]
pub(super) struct Override {
    pub(super) router_temperature: Option<f64>,
    pub(super) assume_kv_reuse: Option<bool>,
    pub(super) track_prefill_tokens: Option<bool>,
}

#[derive(Deserialize)]
struct Settings {
    overlap_score_credit: Option<f64>,
    overlap_score_weight: Option<f64>,
    prefill_load_scale: Option<f64>,
    router_temperature: Option<f64>,
    assume_kv_reuse: Option<bool>,
    track_prefill_tokens: Option<bool>,
    shared_cache_multiplier: Option<f64>,
}

impl TryFrom<Settings> for Override {
    type Error = String;

    fn try_from(settings: Settings) -> Result<Self, String> {
        let bounded = [
            ("overlap_score_credit", settings.overlap_score_credit, f64::MAX),
            ("overlap_score_weight", settings.overlap_score_weight, f64::MAX),
            ("prefill_load_scale", settings.prefill_load_scale, f64::MAX),
            ("router_temperature", settings.router_temperature, f64::MAX),
            ("shared_cache_multiplier", settings.shared_cache_multiplier, 1.0),
        ];
        for (name, value, most) in bounded {
            if value.is_some_and(|value| !(0.0..=most).contains(&value)) {
                let range = if most == 1.0 { "from 0 to 1" } else { "0 or more" };
                return Err(format!("{name} must be a finite number, {range}"));
            }
        }
        let Settings { router_temperature, assume_kv_reuse, track_prefill_tokens, .. } = settings;
        Ok(Self { router_temperature, assume_kv_reuse, track_prefill_tokens })
    }
}

/// The body of `/select` and `/select_and_reserve`.
#[derive(Debug, Deserialize)]
pub(super) struct SelectBody {
    #[serde(flatten)]
    pub(super) partition: PartitionName,
    pub(super) selection_id: Option<String>,
    #[serde(flatten)]
    pub(super) prompt: PromptBody,
    pub(super) router_config_override: Option<Override>,
    pub(super) expected_output_tokens: Option<u32>,
    pub(super) priority_jump: Option<f64>,
    pub(super) strict_priority: Option<u32>,
    session_id: Option<String>,
    session_context: Option<SessionBody>,
    affinity_target: Option<TargetBody>,
    pinned_worker: Option<RankBody>,
    pub(super) allowed_worker_ids: Option<Vec<u64>>,
    #[serde(default)]
    pub(super) routing_constraints: Constraints,
    /// Of `/select` alone: past the queue, with the chosen worker's load.
    #[serde(default)]
    pub(super) advisory: bool,
}

impl SelectBody {
    pub(super) fn pinned(&self) -> Option<WorkerKey> {
        self.pinned_worker.map(|pin| WorkerKey::new(pin.worker_id, pin.dp_rank))
    }

    pub(super) fn affinity(&self) -> Option<Affinity> {
        self.affinity_target.map(|target| Affinity { worker: target.worker_id, rank: target.dp_rank, hard: false })
    }

    /// The session, and the headers that came with it. The structured form goes before the plain id.
    pub(super) fn take_session(&mut self) -> (Option<SessionInfo>, Vec<(String, String)>) {
        let plain = self.session_id.take().map(|id| SessionInfo { id, ..SessionInfo::default() });
        let Some(context) = self.session_context.take() else { return (plain, Vec::new()) };
        let session = SessionInfo {
            id: context.session_id,
            parent_id: context.parent_session_id,
            last: context.session_final,
            trigger: context.input_trigger.map(Trigger::from),
        };
        let headers = context.agent_headers.into_iter();
        (Some(session), headers.map(|(name, values)| (name.to_ascii_lowercase(), values.join(", "))).collect())
    }
}

#[derive(Debug, Deserialize)]
struct SessionBody {
    session_id: String,
    parent_session_id: Option<String>,
    session_final: Option<bool>,
    input_trigger: Option<TriggerBody>,
    #[serde(default)]
    agent_headers: BTreeMap<String, Vec<String>>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TriggerBody {
    UserMessage,
    ToolResult,
    Other,
}

impl From<TriggerBody> for Trigger {
    fn from(trigger: TriggerBody) -> Self {
        match trigger {
            TriggerBody::UserMessage => Self::UserMessage,
            TriggerBody::ToolResult => Self::ToolResult,
            TriggerBody::Other => Self::Other,
        }
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct TargetBody {
    worker_id: u64,
    dp_rank: Option<u32>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct RankBody {
    worker_id: u64,
    dp_rank: u32,
}

/// Taints that a worker must have, and weights of those that it had better have.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Constraints {
    #[serde(default)]
    pub(super) required_taints: Vec<String>,
    #[serde(default)]
    pub(super) preferred_taints: BTreeMap<String, f32>,
}

/// The body of `/reservations`: the id of an earlier selection, or a worker and a prompt.
#[derive(Debug, Deserialize)]
pub(super) struct ReservationBody {
    #[serde(flatten)]
    pub(super) partition: PartitionName,
    pub(super) selection_id: String,
    pub(super) worker_id: Option<u64>,
    pub(super) dp_rank: Option<u32>,
    #[serde(flatten)]
    pub(super) prompt: PromptBody,
    pub(super) router_config_override: Option<Override>,
    pub(super) expected_output_tokens: Option<u32>,
    pub(super) effective_prefill_tokens: Option<u64>,
    pub(super) track_prefill_tokens: Option<bool>,
}

/// The body of `/reservations/{id}/output_block`.
#[derive(Debug, Deserialize)]
pub(super) struct OutputBlockBody {
    pub(super) decay_fraction: Option<f64>,
}

/// The body of `/potential_loads` and `/overlap_scores`.
#[derive(Debug, Deserialize)]
pub(super) struct QueryBody {
    #[serde(flatten)]
    pub(super) partition: PartitionName,
    #[serde(flatten)]
    pub(super) prompt: PromptBody,
    pub(super) router_config_override: Option<Override>,
}

/// The answer of `/select` and `/select_and_reserve`. The hashes, the prompt's tokens and how they count come with a
/// booking alone.
#[derive(Debug, Serialize)]
pub(super) struct SelectAnswer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) selection_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sequence_hashes: Option<Vec<i64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) isl_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) track_prefill_tokens: Option<bool>,
    pub(super) model_name: String,
    pub(super) routing_group: String,
    pub(super) worker_id: u64,
    pub(super) dp_rank: u32,
    pub(super) endpoint: String,
    pub(super) block_size: u32,
    pub(super) overlap: OverlapAnswer,
    pub(super) effective_prefill_tokens: u64,
    pub(super) potential_decode_blocks: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) worker_load: Option<WorkerLoadAnswer>,
}

/// What a worker holds of the prompt, in tokens; of each tier together with those before it.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct OverlapAnswer {
    pub(super) longest_matched: u64,
    pub(super) gpu: u64,
    pub(super) dp: BTreeMap<String, u64>,
    pub(super) cpu: u64,
    pub(super) disk: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct WorkerLoadAnswer {
    pub(super) active_prefill_tokens: u64,
    pub(super) prefill_token_capacity: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) total_kv_blocks: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(super) struct ReservationAnswer {
    pub(super) selection_id: String,
    pub(super) model_name: String,
    pub(super) routing_group: String,
    pub(super) worker_id: u64,
    pub(super) dp_rank: u32,
    pub(super) endpoint: String,
}

#[derive(Debug, Serialize)]
pub(super) struct LoadAnswer {
    pub(super) worker_id: u64,
    pub(super) dp_rank: u32,
    pub(super) potential_prefill_tokens: u64,
    pub(super) potential_decode_blocks: u64,
    pub(super) active_requests: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct PartitionLoadsAnswer {
    pub(super) model_name: String,
    pub(super) routing_group: String,
    pub(super) loads: Vec<LoadAnswer>,
    pub(super) pending_count: u64,
    pub(super) pending_isl_tokens: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct OverlapScoresAnswer {
    pub(super) block_size: u32,
    pub(super) num_blocks: usize,
    pub(super) workers: Vec<OverlapScoreAnswer>,
    pub(super) shared_cache: SharedCacheAnswer,
}

#[derive(Debug, Serialize)]
pub(super) struct OverlapScoreAnswer {
    pub(super) worker_id: u64,
    pub(super) dp_rank: u32,
    pub(super) device_blocks: u64,
    pub(super) host_pinned_blocks: u64,
    pub(super) disk_blocks: u64,
    pub(super) host_pinned_extension_blocks: u64,
    pub(super) disk_extension_blocks: u64,
    pub(super) shared_beyond_device_blocks: Option<u32>,
}

/// There is no shared cache to ask.
#[derive(Debug, Default, Serialize)]
pub(super) struct SharedCacheAnswer {
    enabled: bool,
    total_hit_blocks: u32,
    ranges: Vec<(u32, u32)>,
    error: Option<String>,
}

/// The fields of a worker that its owner may change.
const FIELDS: [&str; 10] = [
    "endpoint",
    "kv_events_endpoint",
    "kv_events_endpoints",
    "replay_endpoint",
    "block_size",
    "data_parallel_start_rank",
    "data_parallel_size",
    "max_num_batched_tokens",
    "total_kv_blocks",
    "taints",
];

/// Those that are kept and shown, and mean nothing here but for `is_eagle`.
const KEPT: [&str; 9] = [
    "stable_routing_id",
    "is_eagle",
    "topology_domains",
    "kv_transfer_domain",
    "kv_transfer_enforcement",
    "kv_transfer_preferred_weight",
    "router_hint_worker_type",
    "router_hint_source_control_endpoints",
    "kv_event_source_mode",
];

/// Of those that are kept, how many are shown also where nobody told them.
const SHOWN: usize = 6;

/// Whether a worker has a field of that name, which may be changed.
pub(super) fn is_field(name: &str) -> bool {
    FIELDS.contains(&name) || KEPT.contains(&name)
}

/// Whether these fields have the types that they should have.
pub(super) fn check_fields(fields: &Map<String, Value>) -> Result<(), SelectError> {
    let mut spec = fields.clone();
    spec.insert("worker_id".to_owned(), json!(0));
    match serde_json::from_value::<WorkerSpec>(Value::Object(spec)) {
        Ok(_) => Ok(()),
        Err(error) => Err(SelectError::Unreadable {
            status: axum::http::StatusCode::UNPROCESSABLE_ENTITY,
            message: format!("the worker's fields cannot be read: {error}"),
        }),
    }
}

/// A worker as the service shows it: without what concerns its operator alone.
pub(super) fn worker_answer(worker: &Worker) -> Value {
    const OWN: [&str; 5] = ["worker_id", "model_name", "routing_group", "lifecycle", "not_schedulable_reasons"];
    let mut answer = serde_json::to_value(worker).unwrap_or_default();
    if let Value::Object(fields) = &mut answer {
        fields.retain(|name, _| OWN.contains(&name.as_str()) || is_field(name));
        for name in KEPT.iter().take(SHOWN) {
            let absent = if *name == "topology_domains" { json!({}) } else { Value::Null };
            fields.entry(*name).or_insert(absent);
        }
    }
    answer
}
