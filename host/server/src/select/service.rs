//! The operations of the selection service.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex};

use pointsman_admission::AdmissionError;
use pointsman_routing::{Decision, Load, PartitionKey, Request, Submission, WorkerKey, WorkerOverlap};
use pointsman_sandbox::Outcome;
use serde_json::{Value, json};

use super::SelectionOptions;
use super::bookings::Bookings;
use super::error::SelectError;
use super::pending::{Bytes, Pending};
use super::prompt::{Hashed, Hashing};
use super::wire::{
    Filter, LoadAnswer, OverlapAnswer, OverlapScoreAnswer, OverlapScoresAnswer, Override, PartitionLoadsAnswer,
    QueryBody, ReservationAnswer, ReservationBody, SelectAnswer, SelectBody, SharedCacheAnswer, WorkerLoadAnswer,
};
use crate::fleet::{Fleet, Worker};
use crate::pool::{Ask, Pool};
use crate::signals::Prompt;
use crate::sync::locked;

/// Batched tokens of a worker that does not tell its limit.
const DEFAULT_BATCHED_TOKENS: u64 = 10_000_000;

/// The selection service over a directory of workers. It knows no HTTP.
pub(super) struct Service {
    pub(super) fleet: Arc<Fleet>,
    pub(super) options: SelectionOptions,
    pending: Mutex<Pending<Selection>>,
    bookings: Bookings,
}

/// How far a selection goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// The worker that would serve the request now.
    Advisory,
    /// The worker that serves it once it is its turn.
    Query,
    /// The same, and booked there.
    Book,
}

/// A selection that may be booked later.
struct Selection {
    ask: Ask,
    decision: Decision,
    policy_class: Option<String>,
}

impl Bytes for Selection {
    fn bytes(&self) -> usize {
        self.ask.bytes() + self.policy_class.as_ref().map_or(0, String::len)
    }
}

/// A partition that has a worker to choose.
struct Place {
    key: PartitionKey,
    pool: Arc<Pool>,
    is_eagle: bool,
}

impl Place {
    fn hashing(&self, settings: Override) -> Hashing {
        Hashing {
            block_size: self.pool.partition().block_size(),
            is_eagle: self.is_eagle,
            assume_reuse: settings.assume_kv_reuse.unwrap_or(true),
        }
    }

    /// How many KV blocks of a prompt its partition does not count: the last one, where it is not full. Of a prompt without
    /// a full block it counts all that there are.
    fn untracked(&self, hashed: &Hashed) -> u64 {
        let blocks = hashed.tokens.div_ceil(self.pool.partition().block_size().into());
        if hashed.tracked.is_empty() { 0 } else { blocks.saturating_sub(hashed.tracked.len() as u64) }
    }
}

impl Service {
    pub(super) fn new(fleet: Arc<Fleet>, options: SelectionOptions) -> Self {
        let pending = Mutex::new(Pending::new(options.pending));
        Self { fleet, options, pending, bookings: Bookings::default() }
    }

    /// Chooses a worker.
    pub(super) async fn select(
        &self,
        mut body: SelectBody,
        policy_class: Option<String>,
        mode: Mode,
    ) -> Result<SelectAnswer, SelectError> {
        let place = self.place(body.partition.clone().into_key())?;
        let settings = body.router_config_override.unwrap_or_default();
        let id = match (body.selection_id.take(), mode) {
            (None, Mode::Book) => Some(fresh_id()),
            (id, _) => id,
        };
        let claim = match (&id, mode) {
            (Some(id), Mode::Book) => Some(self.bookings.claim(id)?),
            _ => None,
        };
        let hashed = body.prompt.for_selection(place.hashing(settings))?;
        let mut ask = ask(&mut body, settings, &hashed);
        ask.decision_id = id.clone().unwrap_or_default();
        let overlaps = place.pool.look_up(&mut ask);
        let submission = |ask: &Ask| self.submission(id.as_deref(), policy_class.clone(), ask.clone());

        let (decision, lease, answered_load) = match mode {
            Mode::Advisory => {
                let decision = place.pool.pick(&mut ask).map_err(AdmissionError::from)?;
                (decision, None, Some(self.worker_load(&place, decision.worker)))
            }
            Mode::Query => (place.pool.advise(submission(&ask)).await?, None, None),
            Mode::Book => {
                let lease = place.pool.dispatch(submission(&ask)).await?;
                lease.bind_session()?;
                (*lease.decision(), Some(lease), None)
            }
        };
        let worker = self.serving(decision.worker, &place.key).ok_or(SelectError::Departed(decision.worker.worker))?;
        let mut load = match &lease {
            Some(_) => place.pool.partition().load(decision.worker).unwrap_or_default(),
            None => load_with(&place, &hashed, decision.worker),
        };
        load.decode_blocks += place.untracked(&hashed) as f64;

        let (booked, tracks) = (lease.is_some(), ask.tracks_prefill_tokens);
        if let (Some(lease), Some(claim)) = (lease, claim) {
            claim.install(lease, self.fleet.clock().now_ms());
        } else if let Some(id) = &id {
            let selection = Selection { ask, decision, policy_class };
            locked(&self.pending).insert(place.key.clone(), id.clone(), selection, self.fleet.clock().now_ms());
        }
        Ok(SelectAnswer {
            selection_id: id,
            sequence_hashes: booked.then(|| hashed.tracked.iter().map(|hash| hash.cast_signed()).collect()),
            isl_tokens: booked.then_some(hashed.tokens),
            track_prefill_tokens: booked.then_some(tracks),
            worker_id: decision.worker.worker,
            dp_rank: decision.worker.rank,
            endpoint: worker.spec.endpoint.clone().unwrap_or_default(),
            block_size: place.pool.partition().block_size(),
            overlap: overlap(&worker, &overlaps, place.pool.partition().block_size()),
            effective_prefill_tokens: hashed.tokens.saturating_sub(decision.cached_tokens),
            potential_decode_blocks: load.decode_blocks as u64,
            worker_load: answered_load,
            model_name: place.key.model,
            routing_group: place.key.routing_group,
        })
    }

    /// Books an earlier selection, or a worker of the caller's choice.
    pub(super) fn reserve(&self, body: ReservationBody) -> Result<ReservationAnswer, SelectError> {
        let key = body.partition.clone().into_key();
        match body.worker_id {
            Some(worker) => {
                locked(&self.pending).discard(&key, &body.selection_id);
                self.reserve_on(self.place(key)?, worker, body)
            }
            None => self.reserve_selected(key, body.selection_id),
        }
    }

    /// Books a selection as it was made. One that cannot be booked stays, to be tried again.
    fn reserve_selected(&self, key: PartitionKey, id: String) -> Result<ReservationAnswer, SelectError> {
        let pending = locked(&self.pending).peek(&key, &id, self.fleet.clock().now_ms());
        let (selection, number) = pending.ok_or_else(|| SelectError::NotPending(id.clone()))?;
        let place = self.place(key)?;
        let class = selection.policy_class.clone();
        let answer = self.book(&place, id, class, selection.ask.clone(), selection.decision)?;
        locked(&self.pending).remove(&place.key, &answer.selection_id, number);
        Ok(answer)
    }

    fn reserve_on(&self, place: Place, worker: u64, body: ReservationBody) -> Result<ReservationAnswer, SelectError> {
        let settings = body.router_config_override.unwrap_or_default();
        let hashed = body.prompt.for_reservation(place.hashing(settings))?;
        let effective = body.effective_prefill_tokens;
        if let Some(tokens) = effective.filter(|tokens| *tokens > hashed.tokens) {
            return Err(SelectError::BadRequest(format!(
                "effective_prefill_tokens ({tokens}) must not exceed isl_tokens ({}); lower it",
                hashed.tokens
            )));
        }
        let tracks = body.track_prefill_tokens.unwrap_or(effective.is_some());
        let mut ask = prompted(&hashed);
        ask.expected_output_tokens = body.expected_output_tokens;
        // A booking that does not tell what is left to compute adds nothing to the prefill load.
        ask.tracks_prefill_tokens = tracks && effective.is_some();
        let decision = Decision {
            worker: WorkerKey::new(worker, body.dp_rank.unwrap_or(0)),
            cached_tokens: hashed.tokens - effective.unwrap_or(hashed.tokens),
            row: 0,
            cost: 0.0,
            outcome: Outcome::Ok,
            fallback: false,
            fuel: None,
        };
        self.book(&place, body.selection_id, None, ask, decision)
    }

    fn book(
        &self,
        place: &Place,
        id: String,
        policy_class: Option<String>,
        ask: Ask,
        decision: Decision,
    ) -> Result<ReservationAnswer, SelectError> {
        let WorkerKey { worker, rank } = decision.worker;
        let (model, group) = (place.key.model.clone(), place.key.routing_group.clone());
        let found = self.serving(decision.worker, &place.key);
        let found =
            found.ok_or(SelectError::NoSuchRank { worker, rank, model: model.clone(), group: group.clone() })?;
        let claim = self.bookings.claim(&id)?;
        let lease = place.pool.place(self.submission(Some(&id), policy_class, ask), decision)?;
        claim.install(lease, self.fleet.clock().now_ms());
        Ok(ReservationAnswer {
            selection_id: id,
            model_name: model,
            routing_group: group,
            worker_id: worker,
            dp_rank: rank,
            endpoint: found.spec.endpoint.clone().unwrap_or_default(),
        })
    }

    /// The prefill of a booked request is done.
    pub(super) fn prefill_complete(&self, id: &str) -> Result<(), SelectError> {
        self.bookings.get(id)?.lease.prefill_complete();
        Ok(())
    }

    /// The answer of a booked request fills one more block.
    pub(super) fn output_block(&self, id: &str, decay_fraction: Option<f64>) -> Result<(), SelectError> {
        if decay_fraction.is_some_and(|fraction| !(0.0..=1.0).contains(&fraction)) {
            return Err(SelectError::BadRequest("decay_fraction must be from 0 to 1; correct it".to_owned()));
        }
        self.bookings.get(id)?.lease.output_blocks(1);
        Ok(())
    }

    /// A booked request is over.
    pub(super) fn free(&self, id: &str) -> Result<(), SelectError> {
        drop(self.bookings.get(id)?);
        let booking = self.bookings.remove(id).ok_or_else(|| SelectError::NoReservation(id.to_owned()))?;
        // Another call may hold the booking at this moment; then its last hold gives it back.
        if let Some(booking) = Arc::into_inner(booking) {
            booking.lease.complete(None);
        }
        Ok(())
    }

    /// Gives back the bookings that nobody freed in time, and those whose workers have gone.
    pub(super) fn expire(&self) {
        let since_ms = self.fleet.clock().now_ms() - self.options.expiry.as_secs_f64() * 1_000.0;
        for (id, booking) in self.bookings.expire(since_ms) {
            tracing::warn!(selection_id = id, "a reservation was not freed in time: it is given back");
            drop(booking);
        }
    }

    /// What each worker has to do, and what waits, by partition.
    pub(super) fn loads(&self, filter: &Filter) -> Vec<PartitionLoadsAnswer> {
        let mut pools: Vec<_> = self.fleet.pools();
        pools.retain(|pool| filter.takes(pool.partition().key()));
        pools.sort_by(|a, b| a.partition().key().cmp(b.partition().key()));
        let answer = |pool: Arc<Pool>| {
            let (partition, waiting) = (pool.partition(), pool.waiting());
            let loads = partition.loads_with(&Request::default());
            PartitionLoadsAnswer {
                model_name: partition.key().model.clone(),
                routing_group: partition.key().routing_group.clone(),
                loads: loads.into_iter().map(|(key, load)| load_answer(key, load, 0)).collect(),
                pending_count: waiting.requests,
                pending_isl_tokens: waiting.prompt_tokens,
            }
        };
        pools.into_iter().map(answer).collect()
    }

    /// What each worker would have to do with this prompt.
    pub(super) fn potential_loads(&self, body: QueryBody) -> Result<Vec<LoadAnswer>, SelectError> {
        let (place, settings) = (self.place(body.partition.into_key())?, body.router_config_override);
        let settings = settings.unwrap_or_default();
        let hashed = body.prompt.for_selection(place.hashing(settings))?;
        let overlaps = place.pool.overlaps(hashed.chain.as_deref().unwrap_or_default());
        let loads = loads_with(&place, &hashed);
        let answer = |(key, load)| {
            let cached = overlap_of(&overlaps, key).map_or(0, |overlap| overlap.cached_tokens as u64);
            let tracks = settings.track_prefill_tokens.unwrap_or(true);
            load_answer(key, load, if tracks { hashed.tokens.saturating_sub(cached) } else { 0 })
        };
        Ok(loads.into_iter().map(answer).collect())
    }

    /// What each worker holds of this prompt.
    pub(super) fn overlap_scores(&self, body: QueryBody) -> Result<OverlapScoresAnswer, SelectError> {
        let place = self.place(body.partition.into_key())?;
        let hashed = body.prompt.for_selection(place.hashing(Override::default()))?;
        let chain = hashed.chain.unwrap_or_default();
        let overlaps = place.pool.overlaps(&chain);
        let answer = |key: WorkerKey| {
            let WorkerOverlap { device_blocks, host_blocks, disk_blocks, .. } =
                overlap_of(&overlaps, key).copied().unwrap_or_default();
            let (device, host, disk) = (device_blocks as u64, host_blocks as u64, disk_blocks as u64);
            OverlapScoreAnswer {
                worker_id: key.worker,
                dp_rank: key.rank,
                device_blocks: device,
                host_pinned_blocks: device + host,
                disk_blocks: device + host + disk,
                host_pinned_extension_blocks: host,
                disk_extension_blocks: disk,
                shared_beyond_device_blocks: None,
            }
        };
        Ok(OverlapScoresAnswer {
            block_size: place.pool.partition().block_size(),
            num_blocks: chain.len(),
            workers: place.pool.partition().rows().into_iter().map(answer).collect(),
            shared_cache: SharedCacheAnswer::default(),
        })
    }

    /// What other replicas would take over of the prefix indexes: nothing, since what was routed here is not known there.
    pub(super) fn dump(&self) -> Value {
        let pools = self.fleet.pools();
        let dump = pools.iter().map(|pool| {
            let (key, block_size) = (pool.partition().key(), pool.partition().block_size());
            (format!("{}:{}", key.model, key.routing_group), json!({"block_size": block_size, "events": []}))
        });
        Value::Object(dump.collect())
    }

    /// The partition of that name, where it has a worker to choose.
    fn place(&self, key: PartitionKey) -> Result<Place, SelectError> {
        let pool = self.fleet.pool(&key.model, &key.routing_group).ok_or_else(|| SelectError::not_ready(&key))?;
        let worker = self.fleet.serving(&key).ok_or_else(|| SelectError::not_ready(&key))?;
        let is_eagle = worker.spec.other.get("is_eagle").and_then(Value::as_bool).unwrap_or(false);
        Ok(Place { key, pool, is_eagle })
    }

    /// The worker of a row, where it serves that partition and may be chosen.
    fn serving(&self, row: WorkerKey, key: &PartitionKey) -> Option<Arc<Worker>> {
        let worker = self.fleet.worker(row.worker).filter(|worker| worker.serves(key))?;
        let ranks = worker.spec.start_rank()..worker.spec.start_rank().saturating_add(worker.spec.ranks());
        ranks.contains(&row.rank).then_some(worker)
    }

    fn worker_load(&self, place: &Place, row: WorkerKey) -> WorkerLoadAnswer {
        let load = place.pool.partition().load(row).unwrap_or_default();
        let worker = self.fleet.worker(row.worker);
        let told = |field: fn(&Worker) -> Option<u64>| worker.as_deref().and_then(field);
        WorkerLoadAnswer {
            active_prefill_tokens: load.active_prefill_tokens as u64,
            prefill_token_capacity: told(|worker| worker.spec.max_num_batched_tokens).unwrap_or(DEFAULT_BATCHED_TOKENS),
            total_kv_blocks: told(|worker| worker.spec.total_kv_blocks),
        }
    }

    fn submission(&self, id: Option<&str>, policy_class: Option<String>, request: Ask) -> Submission<Ask> {
        Submission {
            request_id: id.unwrap_or_default().to_owned(),
            policy_class,
            ingress_ms: self.fleet.clock().now_ms(),
            due_ms: None,
            request,
        }
    }
}

/// What a body asks of its partition.
fn ask(body: &mut SelectBody, settings: Override, hashed: &Hashed) -> Ask {
    let mut ask = prompted(hashed);
    ask.tracks_prefill_tokens = settings.track_prefill_tokens.unwrap_or(true);
    ask.router_temperature = settings.router_temperature;
    ask.expected_output_tokens = body.expected_output_tokens;
    ask.priority_jump = body.priority_jump.unwrap_or_default();
    ask.strict_priority = body.strict_priority.unwrap_or_default();
    (ask.pinned, ask.affinity) = (body.pinned(), body.affinity());
    (ask.session, ask.headers) = body.take_session();
    ask.allowed = body.allowed_worker_ids.take();
    let constraints = std::mem::take(&mut body.routing_constraints);
    ask.required_taints = constraints.required_taints;
    let preferred = constraints.preferred_taints.into_iter();
    ask.preferred_taints = preferred.map(|(taint, weight)| (taint, weight.into())).collect();
    ask
}

fn prompted(hashed: &Hashed) -> Ask {
    let mut ask = Ask::new(Prompt { tokens: hashed.tokens, block_hashes: hashed.tracked.clone() });
    let chain = hashed.chain.as_deref().unwrap_or_default();
    ask.index_hashes = (chain != hashed.tracked).then(|| chain.to_vec());
    ask
}

/// The loads of a partition's rows, with the blocks of a prompt.
fn loads_with(place: &Place, hashed: &Hashed) -> Vec<(WorkerKey, Load)> {
    let request = Request { prompt_tokens: hashed.tokens, block_hashes: &hashed.tracked, ..Request::default() };
    place.pool.partition().loads_with(&request)
}

fn load_with(place: &Place, hashed: &Hashed, row: WorkerKey) -> Load {
    let loads = loads_with(place, hashed);
    let found = loads.binary_search_by_key(&row, |(key, _)| *key).ok();
    found.and_then(|found| loads.get(found)).map(|(_, load)| *load).unwrap_or_default()
}

fn load_answer(key: WorkerKey, load: Load, more_prefill: u64) -> LoadAnswer {
    LoadAnswer {
        worker_id: key.worker,
        dp_rank: key.rank,
        potential_prefill_tokens: load.active_prefill_tokens as u64 + more_prefill,
        potential_decode_blocks: load.decode_blocks as u64,
        active_requests: load.active_requests as u64,
    }
}

fn overlap_of(overlaps: &[WorkerOverlap], row: WorkerKey) -> Option<&WorkerOverlap> {
    overlaps.get(overlaps.binary_search_by_key(&row, |overlap| overlap.key).ok()?)
}

/// What the ranks of a worker hold of a prompt.
fn overlap(worker: &Worker, overlaps: &[WorkerOverlap], block_size: u32) -> OverlapAnswer {
    let mut answer = OverlapAnswer::default();
    let start = worker.spec.start_rank();
    for rank in start..start.saturating_add(worker.spec.ranks()) {
        let held = overlap_of(overlaps, WorkerKey::new(worker.spec.worker_id, rank)).copied().unwrap_or_default();
        let tokens = |blocks: f64| blocks as u64 * u64::from(block_size);
        let device = tokens(held.device_blocks);
        let host = device + tokens(held.host_blocks);
        answer.dp.insert(rank.to_string(), device);
        answer.gpu = answer.gpu.max(device);
        answer.cpu = answer.cpu.max(host);
        answer.disk = answer.disk.max(host + tokens(held.disk_blocks));
    }
    answer.longest_matched = answer.gpu.max(answer.cpu).max(answer.disk);
    answer
}

/// An id for a booking whose caller gave none: a random UUID.
fn fresh_id() -> String {
    let [high, low] = [(), ()].map(|()| RandomState::new().build_hasher().finish());
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xfff,
        low >> 48 & 0x3fff | 0x8000,
        low & 0xffff_ffff_ffff
    )
}
