//! One routing partition: its workers, its policy, its reservations. One decision runs here from start to end.

use std::sync::{Arc, Mutex, MutexGuard};

use pointsman_admission::{PolicyClass, RowLoad, WorkerKey};
use pointsman_contract::ClassifierWorker;
use pointsman_sandbox::Outcome;
use tracing::level_filters::LevelFilter;

use crate::candidates::{Candidates, Needs, Projection};
use crate::eligibility::{self, Eligible};
use crate::error::{DecideError, RouterError};
use crate::pipeline::{Answer, StageFault, Then, default_among};
use crate::request::Request;
use crate::reservation::{ReservationId, Reservations};
use crate::router::PartitionKey;
use crate::snapshot::{ExtraNames, Snapshot};
use crate::sync::locked;
use crate::table::Rows;
use crate::tap::{Listening, Observed, PolicyState, SnapshotDecision, Tap};
use crate::tenant::TenantState;
use crate::version::{Version, VersionStatus};
use crate::vocabulary::Vocabulary;
use crate::worker::{Load, WorkerConfig, WorkerTable};

/// What was decided for one request. Nothing is booked yet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// The chosen row.
    pub worker: WorkerKey,
    /// Its place among the partition's rows at the time.
    pub row: u32,
    /// Its cost: the scorers' sum, 0 without a scorer.
    pub cost: f64,
    /// `ok`, or the fault after which the native default or the policy's previous version decided.
    pub outcome: Outcome,
    /// Whether the native default decided in the policy's place.
    pub fallback: bool,
    /// Fuel that the policy's guests used; none for a native policy, or after a fault.
    pub fuel: Option<u64>,
    /// The estimate of prompt tokens that the row has cached; 0 where the policy reads no cache signal.
    pub cached_tokens: u64,
}

/// How the partition's decisions ended so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that got a worker, fallbacks included.
    pub decided: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Decisions of the native default in the policy's place.
    pub fallbacks: u64,
    /// Decisions of a policy's previous version in its place.
    pub last_good: u64,
    /// Faults by outcome, in the order of [`Outcome::ALL`].
    pub faults: [u64; Outcome::ALL.len()],
    /// Guests that were built to replace one that failed; each has lost its state.
    pub guests_replaced: u64,
}

/// One routing partition. Calls from several threads wait for each other.
// Each decision writes its lock and its counters. Its neighbours on the heap may be another partition's, which another
// thread serves: in cache lines of its own, it does not take theirs away.
#[repr(align(128))]
pub struct Partition {
    key: PartitionKey,
    block_size: u32,
    vocabulary: Arc<Vocabulary>,
    names: Arc<ExtraNames>,
    state: Mutex<State>,
}

struct State {
    table: WorkerTable,
    reservations: Reservations,
    active: Version,
    /// What decided before, kept warm.
    previous: Option<Version>,
    /// The tenant that the routing group belongs to.
    tenant: Option<Arc<TenantState>>,
    projection: Projection,
    rows: Vec<u32>,
    counts: Counts,
    taps: Vec<Box<dyn Tap>>,
}

/// What decided.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Policy,
    LastGood,
    Default,
}

impl std::fmt::Debug for Partition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Partition").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Partition {
    pub(crate) fn new(
        key: PartitionKey,
        block_size: u32,
        vocabulary: Arc<Vocabulary>,
        active: Version,
        tenant: Option<Arc<TenantState>>,
    ) -> Self {
        let state = State {
            table: WorkerTable::new(&vocabulary),
            reservations: Reservations::default(),
            active,
            previous: None,
            tenant,
            projection: Projection::default(),
            rows: Vec::new(),
            counts: Counts::default(),
            taps: Vec::new(),
        };
        let names = Arc::new(ExtraNames::of(&vocabulary));
        Self { key, block_size, vocabulary, names, state: Mutex::new(state) }
    }

    /// The same, as one of that configuration.
    pub(crate) fn since(self, generation: u64, activated_ms: f64) -> Self {
        let mut state = self.lock();
        (state.active.generation, state.active.activated_ms) = (generation, activated_ms);
        drop(state);
        self
    }

    /// Whether it has the version of that fingerprint, active or as the previous one.
    pub(crate) fn has(&self, fingerprint: &str) -> bool {
        let state = self.lock();
        let mut versions = std::iter::once(&state.active).chain(&state.previous);
        versions.any(|version| version.fingerprint == fingerprint)
    }

    /// Lets the version of that fingerprint decide from the next decision on: the active one, the previous one, or
    /// else `version`. The one before is kept as the previous one. Answers whether another version decides now.
    pub(crate) fn activate(
        &self,
        version: Option<Box<Version>>,
        fingerprint: &str,
        generation: u64,
        now_ms: f64,
        tenant: Option<Arc<TenantState>>,
    ) -> bool {
        let mut guard = self.lock();
        let state = &mut *guard;
        state.tenant = tenant;
        let (mut changed, mut gone) = (state.active.fingerprint != fingerprint, None);
        match (&mut state.previous, version) {
            _ if !changed => {}
            (Some(previous), _) if previous.fingerprint == fingerprint => std::mem::swap(&mut state.active, previous),
            (previous, Some(version)) => gone = previous.replace(std::mem::replace(&mut state.active, *version)),
            (_, None) => changed = false,
        }
        state.active.generation = generation;
        if changed {
            state.active.activated_ms = now_ms;
        }
        state.counts.guests_replaced += gone.as_ref().map_or(0, |gone| gone.policy.replaced());
        // Guests are torn down while decisions go on.
        drop(guard);
        drop(gone);
        changed
    }

    /// The version that decides, and the one before.
    pub fn versions(&self) -> Vec<VersionStatus> {
        let state = self.lock();
        let previous = state.previous.as_ref().map(|version| version.status(&self.key, false));
        std::iter::once(state.active.status(&self.key, true)).chain(previous).collect()
    }

    /// Which partition this is.
    pub const fn key(&self) -> &PartitionKey {
        &self.key
    }

    /// Tokens per KV block.
    pub const fn block_size(&self) -> u32 {
        self.block_size
    }

    /// The name of the instance that serves the partition, or `default`.
    pub fn policy_name(&self) -> String {
        self.lock().active.name.clone()
    }

    /// Whether the policy reads any cache signal: if not, the host need not look overlaps up.
    pub fn reads_cache(&self) -> bool {
        self.lock().active.reads_cache
    }

    /// Whether overlaps are of use to the policy, or to a tap and harmless to the policy.
    pub fn wants_overlaps(&self) -> bool {
        let State { active, taps, .. } = &*self.lock();
        // A policy may still read whether any tier matches, and it must read the same with a tap and without.
        active.reads_cache || (!active.needs.overlaps && taps.iter().any(|tap| tap.reads_cache()))
    }

    /// Has these listen to the decisions from now on, in place of those that did so far.
    pub fn set_taps(&self, taps: Vec<Box<dyn Tap>>) {
        self.lock().taps = taps;
    }

    /// How the decisions ended so far.
    pub fn counts(&self) -> Counts {
        let state = self.lock();
        let versions = std::iter::once(&state.active).chain(&state.previous);
        let replaced: u64 = versions.map(|version| version.policy.replaced()).sum();
        Counts { guests_replaced: state.counts.guests_replaced + replaced, ..state.counts }
    }

    /// Adds a worker, or replaces what it told about itself; ranks that stay keep their load.
    ///
    /// # Errors
    /// A worker without ranks.
    pub fn upsert_worker(&self, config: WorkerConfig) -> Result<(), RouterError> {
        if config.ranks == 0 {
            return Err(RouterError::NoRanks { worker: config.worker });
        }
        self.lock().table.upsert(config, &self.vocabulary);
        Ok(())
    }

    /// Removes a worker; false where there is none. Its reservations may still be freed.
    pub fn remove_worker(&self, worker: u64) -> bool {
        self.lock().table.remove(worker)
    }

    /// Marks a worker as overloaded, or no longer; false where there is none.
    pub fn set_overloaded(&self, worker: u64, overloaded: bool) -> bool {
        self.lock().table.restrict(worker, |worker| worker.overloaded = overloaded)
    }

    /// Marks a worker as available, or not; false where there is none.
    pub fn set_available(&self, worker: u64, available: bool) -> bool {
        self.lock().table.restrict(worker, |worker| worker.available = available)
    }

    /// Sets the signal `metric.<name>` of one row; false where the row or the metric is not known.
    pub fn set_metric(&self, key: WorkerKey, name: &str, value: f64) -> bool {
        let extras = &self.vocabulary.extras;
        let Some(place) = extras.iter().position(|extra| extra.strip_prefix("metric.") == Some(name)) else {
            return false;
        };
        self.lock().table.set_extra(key, place, value)
    }

    /// Replaces what the host knows of one row's load, for a host that accounts elsewhere; `None` makes it unknown.
    /// False where there is no such row.
    pub fn set_load(&self, key: WorkerKey, load: Option<Load>) -> bool {
        self.lock().table.set_load(key, load)
    }

    /// The load of one row; none where it is not known.
    pub fn load(&self, key: WorkerKey) -> Option<Load> {
        self.lock().table.load(key)
    }

    /// The rows and their loads, in order, as they would be with the KV blocks of a request; 0 where a load is not known.
    pub fn loads_with(&self, request: &Request<'_>) -> Vec<(WorkerKey, Load)> {
        let mut state = self.settled();
        state.project(self, request, Needs { overlaps: false, added: true });
        let State { table, projection, .. } = &*state;
        let loads = table.keys.iter().enumerate().map(|(row, key)| {
            let load = table.load(*key).unwrap_or_default();
            (*key, Load { decode_blocks: load.decode_blocks + projection.added_blocks(row), ..load })
        });
        loads.collect()
    }

    /// The rows, in order.
    pub fn rows(&self) -> Vec<WorkerKey> {
        self.lock().table.keys.clone()
    }

    /// How many workers there are, each with all its ranks.
    pub fn worker_count(&self) -> usize {
        self.lock().table.workers.len()
    }

    /// The rows as a request classifier sees them, in order.
    pub fn classifier_workers(&self) -> Vec<ClassifierWorker> {
        let table = &self.lock().table;
        let rows = table.keys.iter().zip(&table.numbers).zip(&table.total_kv_blocks);
        rows.map(|((key, number), blocks)| ClassifierWorker {
            number: *number,
            rank: key.rank,
            total_kv_blocks: (!blocks.is_nan()).then_some(*blocks as u32),
        })
        .collect()
    }

    /// The number that stands for a row while its worker lives.
    pub fn number_of(&self, key: WorkerKey) -> Option<u32> {
        let table = &self.lock().table;
        table.numbers.get(table.row(key)? as usize).copied()
    }

    /// The row that a number stands for, while its worker lives.
    pub fn worker_of(&self, number: u32) -> Option<WorkerKey> {
        let table = &self.lock().table;
        table.keys.get(table.row_of_number(number)?).copied()
    }

    /// Whether the worker is there, with that rank where one is named.
    pub fn has_target(&self, worker: u64, rank: Option<u32>) -> bool {
        !self.lock().table.rows_of(worker, rank).is_empty()
    }

    /// Whether a request of that policy class may go to worker selection now, by the busy thresholds of the class and the
    /// loads of the rows that may serve the request.
    pub fn admits(&self, request: &Request<'_>, class: &PolicyClass) -> bool {
        let table = &self.settled().table;
        let load = |row: u32| {
            let value = |column: &[f64]| column.get(row as usize).copied().unwrap_or_default();
            let most = value(&table.max_num_batched_tokens);
            RowLoad {
                active_prefill_tokens: value(&table.prefill_tokens),
                max_num_batched_tokens: (!most.is_nan()).then_some(most as u64),
            }
        };
        class.admits(eligibility::considered(table, request).map(load))
    }

    /// Decides which row serves the request. Books nothing.
    ///
    /// # Errors
    /// See [`DecideError`]; the next decision is not affected.
    pub fn decide(&self, request: &Request<'_>) -> Result<Decision, DecideError> {
        let mut state = self.settled();
        let result = state.decide(self, request);
        match &result {
            Ok(_) => state.counts.decided += 1,
            Err(_) => state.counts.refused += 1,
        }
        if let Some(tenant) = &state.tenant {
            tenant.count_decision(result.is_ok(), result.as_ref().is_ok_and(|decision| decision.fallback));
        }
        result
    }

    /// Books a decided request on its row. None where the row has gone since: decide again.
    pub fn reserve(&self, request: &Request<'_>, decision: &Decision) -> Option<ReservationId> {
        let state = &mut *self.settled();
        let row = state.table.row(decision.worker)? as usize;
        let unshared = if request.block_hashes.is_empty() { request.blocks(self.block_size) } else { 0 };
        let prefill = match request.tracks_prefill_tokens {
            true => request.prompt_tokens.saturating_sub(decision.cached_tokens),
            false => 0,
        };
        Some(state.reservations.reserve(&mut state.table, row, request.block_hashes, unshared, prefill))
    }

    /// The prefill of a reserved request is done. False where the reservation is gone.
    pub fn prefill_complete(&self, id: ReservationId) -> bool {
        let State { table, reservations, .. } = &mut *self.settled();
        reservations.prefill_complete(table, id)
    }

    /// The answer of a reserved request fills `blocks` further KV blocks. False where the reservation is gone.
    pub fn output_blocks(&self, id: ReservationId, blocks: u64) -> bool {
        let State { table, reservations, .. } = &mut *self.settled();
        reservations.output_blocks(table, id, blocks)
    }

    /// A reserved request is over. False where the reservation is gone.
    pub fn free(&self, id: ReservationId) -> bool {
        let State { table, reservations, .. } = &mut *self.settled();
        reservations.free(table, id)
    }

    /// The state with everything derived from the rows up to date.
    fn settled(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        state.table.settle();
        state
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }
}

impl State {
    fn decide(&mut self, partition: &Partition, request: &Request<'_>) -> Result<Decision, DecideError> {
        // Asked first: even a span that nobody wants costs some twenty instructions.
        let _span = (LevelFilter::current() >= LevelFilter::TRACE)
            .then(|| tracing::trace_span!("decide", instance = self.active.name, rows = self.table.len()).entered());
        let eligible = eligibility::eligible(&self.table, request, self.active.exclusive_affinity, &mut self.rows)?;
        let Some(listening) = Listening::begin(&mut self.taps, &self.active) else {
            return self.decide_among(partition, request, eligible);
        };
        let decided = self.decide_among(partition, request, eligible);
        self.tell(partition, request, eligible, &listening, &decided);
        decided
    }

    fn decide_among(
        &mut self,
        partition: &Partition,
        request: &Request<'_>,
        eligible: Eligible,
    ) -> Result<Decision, DecideError> {
        self.project(partition, request, self.active.needs);
        let Self { table, projection, active, rows, .. } = self;
        let candidates = candidates(table, projection, request, partition);
        let rows = rows_of(eligible, table, rows);
        match active.policy.decide(&candidates, rows, None) {
            Ok(answer) => self.decision(request, answer, Outcome::Ok, By::Policy),
            Err(failure) => {
                self.count_faults(&failure.faults);
                let last_good = failure.then == Then::LastGood;
                let outcome = failure.resolve(self.active.fallback.is_some())?;
                let answer = if last_good { self.ask_previous(partition, request) } else { None };
                match answer {
                    Some(answer) => self.decision(request, answer, outcome, By::LastGood),
                    None => self.fall_back(partition, request, outcome),
                }
            }
        }
    }

    /// Tells the taps of a decision.
    fn tell(
        &mut self,
        partition: &Partition,
        request: &Request<'_>,
        eligible: Eligible,
        listening: &Listening,
        decided: &Result<Decision, DecideError>,
    ) {
        self.project(partition, request, Needs { overlaps: true, added: true });
        let Self { table, projection, active, rows, taps, .. } = self;
        let rows = rows_of(eligible, table, rows);
        let candidates = candidates(table, projection, request, partition);
        let snapshot = Snapshot::take(&candidates, rows, &partition.names);
        let ended = decided.as_ref().map(|decision| SnapshotDecision {
            row: snapshot.keys.binary_search(&decision.worker).unwrap_or_default() as u32,
            cost: decision.cost,
            outcome: decision.outcome,
            fallback: decision.fallback,
            fuel: decision.fuel,
        });
        let (before, after) = (&listening.before, &PolicyState::of(&active.policy, active.fallback.as_ref()));
        let (policy, told) = (&active.policy, &active.told);
        let id = request.id;
        listening.tell(taps, &Observed { id, snapshot: &snapshot, ended, before, after, policy, told });
    }

    fn count_faults(&mut self, faults: &[StageFault]) {
        for StageFault { fault, .. } in faults {
            if let Some(count) = self.counts.faults.get_mut(fault.outcome as usize) {
                *count += 1;
            }
            if let Some(tenant) = &self.tenant {
                tenant.count_fault(fault.outcome);
            }
        }
    }

    /// The previous version decides among the rows that the policy's filters kept; none where there is none, or it gives
    /// no row either.
    fn ask_previous(&mut self, partition: &Partition, request: &Request<'_>) -> Option<Answer> {
        self.project(partition, request, self.previous.as_ref()?.needs);
        let Self { table, projection, active, previous, .. } = self;
        let candidates = candidates(table, projection, request, partition);
        let decided = previous.as_mut()?.policy.decide(&candidates, Rows::Some(active.policy.kept()), None);
        decided.map_err(|failure| self.count_faults(&failure.faults)).ok()
    }

    /// The native default decides among the rows that the policy's filters kept; an affinity target among them comes
    /// first, as where the default is the policy.
    fn fall_back(
        &mut self,
        partition: &Partition,
        request: &Request<'_>,
        outcome: Outcome,
    ) -> Result<Decision, DecideError> {
        self.counts.fallbacks += 1;
        self.project(partition, request, Needs { overlaps: true, added: true });
        let Self { table, projection, active: Version { policy, fallback, .. }, .. } = self;
        let candidates = candidates(table, projection, request, partition);
        let answer = default_among(fallback.as_mut(), &candidates, policy.kept())?;
        self.decision(request, Answer { fuel: None, ..answer }, outcome, By::Default)
    }

    fn project(&mut self, partition: &Partition, request: &Request<'_>, needs: Needs) {
        self.projection.prepare(&self.table, &self.reservations, request, partition.block_size, needs);
    }

    fn decision(
        &mut self,
        request: &Request<'_>,
        answer: Answer,
        outcome: Outcome,
        by: By,
    ) -> Result<Decision, DecideError> {
        let worker = *self.table.keys.get(answer.row as usize).ok_or(DecideError::NoEndpoints)?;
        let cached_tokens = if self.active.reads_cache {
            let found = request.overlaps.binary_search_by_key(&worker, |overlap| overlap.key).ok();
            found.and_then(|place| request.overlaps.get(place)).map_or(0, |overlap| overlap.cached_tokens as u64)
        } else {
            0
        };
        self.counts.last_good += u64::from(by == By::LastGood);
        let Answer { row, cost, fuel } = answer;
        Ok(Decision { worker, row, cost, outcome, fallback: by == By::Default, fuel, cached_tokens })
    }
}

fn rows_of<'a>(eligible: Eligible, table: &'a WorkerTable, listed: &'a [u32]) -> Rows<'a> {
    match eligible {
        Eligible::All => Rows::All(table.len() as u32),
        Eligible::Open => Rows::Some(&table.open),
        Eligible::Listed => Rows::Some(listed),
    }
}

fn candidates<'a>(
    table: &'a WorkerTable,
    projection: &'a Projection,
    request: &'a Request<'a>,
    partition: &'a Partition,
) -> Candidates<'a> {
    let (vocabulary, block_size) = (&*partition.vocabulary, partition.block_size);
    Candidates { table, projection, request, vocabulary, block_size }
}
