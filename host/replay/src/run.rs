//! One policy over one trace: the loop of virtual time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use pointsman_contract::{Role, RouterConfig};
use pointsman_routing::{
    AdmissionHost, AdmissionOutcome, Affinity, DecideError, Decision, Partition, PartitionKey, Request, ReservationId,
    Router, RouterError, Session, WorkerConfig, WorkerKey, WorkerOverlap,
};
use pointsman_sandbox::Outcome;
use rustc_hash::FxHashMap;

use crate::admission::{Door, Queued};
use crate::clock::Clock;
use crate::ledger::Ledger;
use crate::metrics::{Balance, Milliseconds, PerDecision, Samples};
use crate::report::{DecisionLine, RunReport};
use crate::trace::{BLOCK_SIZE, Trace, TraceRequest};
use crate::worker::{Event, Happening, Job, Work, Worker, WorkerModel};

/// The most workers of a run.
const MAX_WORKERS: u32 = 100_000;

/// The range of the speed: with the latest arrival of a trace, virtual time stays exact.
const SPEEDS: std::ops::RangeInclusive<f64> = 0.001..=1_000_000.0;

/// The simulated workers. Ids count from 0, each worker has one data-parallel rank, 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fleet {
    /// Workers that prefill and decode.
    Aggregated {
        /// How many.
        workers: u32,
    },
    /// A pool that prefills, with the lower ids, and a pool that decodes.
    Disaggregated {
        /// Workers that prefill.
        prefill: u32,
        /// Workers that decode.
        decode: u32,
    },
}

impl Fleet {
    fn pools(self) -> impl Iterator<Item = (Role, Work, u32)> {
        let (first, second) = match self {
            Self::Aggregated { workers } => ((Role::Aggregated, Work::Whole, workers), None),
            Self::Disaggregated { prefill, decode } => {
                ((Role::Prefill, Work::Prefill, prefill), Some((Role::Decode, Work::Decode, decode)))
            }
        };
        std::iter::once(first).chain(second)
    }
}

/// How a run goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The simulated workers.
    pub fleet: Fleet,
    /// The seed that the router was built with; it is reported.
    pub seed: u64,
    /// How many times faster than in the trace the requests come: 0.001 to 1,000,000.
    pub speed: f64,
    /// The figures of a simulated worker.
    pub model: WorkerModel,
}

impl Default for Options {
    /// 16 aggregated workers, seed 0, the trace's own pace.
    fn default() -> Self {
        Self { fleet: Fleet::Aggregated { workers: 16 }, seed: 0, speed: 1.0, model: WorkerModel::default() }
    }
}

/// Hears of a run while it goes on.
pub trait Observer {
    /// A decision, or a rejection: one or two for each request, in the order of the requests.
    ///
    /// # Errors
    /// Where the line cannot be written; the run ends with this error.
    fn decision(&mut self, line: &DecisionLine<'_>) -> std::io::Result<()> {
        let _ = line;
        Ok(())
    }

    /// So many requests of the trace have arrived.
    fn progress(&mut self, requests: u64) {
        let _ = requests;
    }
}

/// Hears nothing.
impl Observer for () {}

/// Why a run cannot begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A pool is empty or too large.
    #[error("{workers} {role} workers cannot be simulated; ask for 1 to {MAX_WORKERS}")]
    Workers {
        /// The pool's role.
        role: Role,
        /// How many workers were asked for.
        workers: u32,
    },
    /// The speed is out of range.
    #[error("a speed of {0} is not possible; give a number from {start} to {end}", start = SPEEDS.start(), end = SPEEDS.end())]
    Speed(f64),
    /// The worker's figures allow no work.
    #[error("a simulated worker needs room for at least one token and one sequence a step; raise `{0}` above 0")]
    Model(&'static str),
    /// The router has workers already.
    #[error("the router's {role} partition has workers already; give each run a router of its own")]
    UsedRouter {
        /// The partition's role.
        role: Role,
    },
    /// A request is larger than a worker.
    #[error(
        "{place}: the prompt and its answer need {needed} KV blocks of {BLOCK_SIZE} tokens and a simulated worker has \
         {capacity}; remove the request{}",
        or_stop_before(*.index)
    )]
    RequestTooLarge {
        /// The request, counted from 0.
        index: usize,
        /// Its file and line, or its place in a generated trace.
        place: String,
        /// Blocks of its prompt and answer.
        needed: u64,
        /// Blocks of a worker.
        capacity: u64,
    },
    /// The router refused the partition or a worker.
    #[error(transparent)]
    Router(#[from] RouterError),
    /// A decision ran into the wall-clock backstop. Only fuel may bound a decision in a replay, or it would not repeat.
    #[error(
        "the {role} decision of request {index} ran past the wall-clock backstop, so this replay would not repeat; lower \
         the policy's fuel limits or run on a machine that is less busy"
    )]
    Deadline {
        /// The request, counted from 0.
        index: usize,
        /// The pool that it was decided for.
        role: Role,
    },
    /// The router chose a worker that it then did not know.
    #[error("{worker}, chosen for request {index}, cannot be booked: it is not in the partition")]
    NotBooked {
        /// The request, counted from 0.
        index: usize,
        /// The chosen worker.
        worker: WorkerKey,
    },
    /// A line of decisions cannot be written.
    #[error("cannot write the decisions: {0}")]
    Decisions(#[source] std::io::Error),
}

/// The other way out, where there are requests to replay before that one.
fn or_stop_before(index: usize) -> String {
    if index == 0 { String::new() } else { format!(", or replay those before it with a limit of {index}") }
}

/// One policy over one trace.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The policy's name in the report.
    pub label: &'a str,
    /// The trace.
    pub trace: &'a Trace,
    /// A router that has decided nothing yet. Its partition is the default model and group, in the fleet's roles.
    pub router: &'a Router,
    /// How the run goes.
    pub options: &'a Options,
}

impl Run<'_> {
    /// Replays the trace.
    ///
    /// # Errors
    /// Where the options are impossible, the router cannot build its partition, a request does not fit on a worker, a
    /// decision meets its wall-clock deadline, or the observer cannot write.
    pub fn execute(&self, clock: &dyn Clock, observer: &mut dyn Observer) -> Result<RunReport, ReplayError> {
        let Options { fleet, model, speed, .. } = self.options;
        if let Some((role, _, workers)) = fleet.pools().find(|(.., workers)| !(1..=MAX_WORKERS).contains(workers)) {
            return Err(ReplayError::Workers { role, workers });
        }
        if !SPEEDS.contains(speed) {
            return Err(ReplayError::Speed(*speed));
        }
        for (name, figure) in [("max_batched_tokens", model.max_batched_tokens), ("max_sequences", model.max_sequences)]
        {
            if figure == 0 {
                return Err(ReplayError::Model(name));
            }
        }
        for (index, request) in self.trace.requests().enumerate() {
            let needed = job(index, Work::Whole, &request).total_blocks();
            if needed > model.kv_blocks {
                let place = self.trace.place(index);
                return Err(ReplayError::RequestTooLarge { index, place, needed, capacity: model.kv_blocks });
            }
        }
        let mut simulation = Simulation::new(self, clock)?;
        simulation.run(observer)?;
        Ok(simulation.report())
    }
}

/// A request's arrival in virtual microseconds.
fn arrival_us(request: &TraceRequest<'_>, speed: f64) -> u64 {
    (request.arrival_us as f64 / speed).round() as u64
}

fn job<'t>(index: usize, work: Work, request: &TraceRequest<'t>) -> Job<'t> {
    Job {
        request: index,
        work,
        prompt_tokens: request.input_tokens,
        output_tokens: request.output_tokens,
        block_ids: request.block_ids,
    }
}

/// What admission asks of the simulation: what each worker holds of a prompt, and decisions on the clock.
struct Host<'a, 't> {
    pool: &'a Pool<'t>,
    fleet: u64,
    clock: &'a dyn Clock,
    decision_ns: &'a mut Samples,
    /// The request that was looked at last.
    index: usize,
}

impl<'t> AdmissionHost<Queued<'t>> for Host<'_, 't> {
    fn refresh(&mut self, queued: &mut Queued<'t>) {
        self.index = queued.index;
        queued.base = request(self.pool, &queued.row, self.fleet);
        find_overlaps(self.pool, queued.row.block_ids, &mut queued.overlaps);
    }

    fn decide(&mut self, partition: &Partition, request: &Request<'_>) -> Result<Decision, DecideError> {
        timed(self.clock, self.decision_ns, || partition.decide(request))
    }
}

/// Adds what the decision takes on the clock.
fn timed<T>(clock: &dyn Clock, decision_ns: &mut Samples, decide: impl FnOnce() -> T) -> T {
    let before = clock.nanoseconds();
    let decided = decide();
    decision_ns.push(clock.nanoseconds().saturating_sub(before));
    decided
}

/// What a request asks of a pool, but for its time and its overlaps. Where the router keeps sessions itself, it sets
/// another target.
fn request<'t>(pool: &Pool<'_>, row: &TraceRequest<'t>, fleet: u64) -> Request<'t> {
    let bound = row.session_id.and_then(|session| pool.sessions.get(session));
    Request {
        affinity: bound.map(|key| Affinity { worker: key.worker, rank: Some(key.rank), hard: false }),
        prompt_tokens: u64::from(row.input_tokens),
        block_hashes: row.block_ids,
        tracks_prefill_tokens: pool.work != Work::Decode,
        priority_jump: row.priority,
        pinned: row.pinned_worker.filter(|id| heeds(pool, *id, fleet)).map(|id| WorkerKey::new(id, 0)),
        session: row.session_id.map(|id| Session {
            id,
            parent_id: row.parent_session_id,
            last: row.session_final,
            trigger: row.input_trigger,
        }),
        ..Request::default()
    }
}

type Faults = [u64; Outcome::ALL.len()];

/// The workers of one role, and the router's partition that decides among them.
struct Pool<'t> {
    role: Role,
    work: Work,
    partition: Arc<Partition>,
    workers: Vec<Worker<'t>>,
    /// The id of the pool's first worker.
    first_id: u64,
    /// The partition's faults by outcome before the run and after the last decision.
    faults: [Faults; 2],
    balance: Balance,
    decisions: Vec<u64>,
    /// The worker of each session's last request.
    sessions: FxHashMap<&'t str, WorkerKey>,
}

impl Pool<'_> {
    /// The router tells the fault that a decision ended in; others, as of a filter that was asked again, it counts.
    fn hear_faults(&mut self, index: usize) -> Result<(), ReplayError> {
        let [_, heard] = &mut self.faults;
        let met = count_of(heard, Outcome::Deadline);
        *heard = self.partition.counts().faults;
        if count_of(heard, Outcome::Deadline) == met {
            return Ok(());
        }
        Err(ReplayError::Deadline { index, role: self.role })
    }
}

/// A worker: the pool's place, then the worker's place in it.
type Place = (usize, usize);

struct Simulation<'t> {
    label: &'t str,
    trace: &'t Trace,
    options: &'t Options,
    clock: &'t dyn Clock,
    pools: Vec<Pool<'t>>,
    /// Workers of all pools.
    fleet: u64,
    /// When which worker has to be advanced. An entry whose time is not the worker's any more is void.
    agenda: BinaryHeap<Reverse<(u64, Place)>>,
    /// Workers that may start a step at the end of this instant.
    touched: Vec<Place>,
    /// Requests whose prefill has ended at this instant and that go on to the decode pool.
    handed_over: Vec<usize>,
    /// Admission in front of the pool that answers.
    door: Option<Door<'t>>,
    /// The reservation of each request that is on a worker; admission keeps its own.
    booked: Vec<Option<ReservationId>>,
    events: Vec<Event>,
    overlaps: Vec<WorkerOverlap>,
    ledger: Ledger,
    figures: Figures,
}

#[derive(Default)]
struct Figures {
    decided: u64,
    fallbacks: u64,
    rejections: BTreeMap<&'static str, u64>,
    hit_blocks: u64,
    prompt_blocks: u64,
    ttft_us: Samples,
    latency_us: Samples,
    decision_ns: Samples,
    fuel: Samples,
}

impl<'t> Simulation<'t> {
    fn new(run: &Run<'t>, clock: &'t dyn Clock) -> Result<Self, ReplayError> {
        let model = run.options.model;
        let (mut pools, mut first_id) = (Vec::new(), 0);
        for (role, work, workers) in run.options.fleet.pools() {
            let partition = run.router.partition(&PartitionKey::of_role(role), BLOCK_SIZE)?;
            if !partition.rows().is_empty() {
                return Err(ReplayError::UsedRouter { role });
            }
            for worker in 0..u64::from(workers) {
                partition.upsert_worker(WorkerConfig {
                    total_kv_blocks: Some(model.kv_blocks),
                    max_num_batched_tokens: Some(u64::from(model.max_batched_tokens)),
                    ..WorkerConfig::new(first_id + worker)
                })?;
            }
            pools.push(Pool {
                role,
                work,
                faults: [partition.counts().faults; 2],
                partition,
                workers: (0..workers).map(|_| Worker::new(model)).collect(),
                first_id,
                balance: Balance::new(workers as usize),
                decisions: vec![0; workers as usize],
                sessions: FxHashMap::default(),
            });
            first_id += u64::from(workers);
        }
        let door = match pools.last() {
            Some(pool) => run.router.admission(&pool.partition, 0.0)?.map(Door::new),
            None => None,
        };
        Ok(Self {
            label: run.label,
            trace: run.trace,
            options: run.options,
            clock,
            pools,
            fleet: first_id,
            agenda: BinaryHeap::new(),
            touched: Vec::new(),
            handed_over: Vec::new(),
            booked: vec![None; run.trace.len()],
            events: Vec::new(),
            overlaps: Vec::new(),
            ledger: Ledger::default(),
            figures: Figures::default(),
            door,
        })
    }

    /// Goes from instant to instant. At each: steps end, requests are handed over, requests arrive, steps start.
    fn run(&mut self, observer: &mut dyn Observer) -> Result<(), ReplayError> {
        let mut arrivals = 0;
        loop {
            let arrival = self.trace.get(arrivals).map(|request| arrival_us(&request, self.options.speed));
            let due = self.agenda.peek().map(|Reverse((at, _))| *at);
            let Some(now) = due.into_iter().chain(arrival).chain(self.door_opens_us()).min() else { break };
            self.end_steps(now);
            self.handed_over.sort_unstable();
            for index in std::mem::take(&mut self.handed_over) {
                self.decide(now, index, 1)?;
            }
            while self.trace.get(arrivals).is_some_and(|next| arrival_us(&next, self.options.speed) <= now) {
                self.decide(now, arrivals, 0)?;
                // An arrival goes as far as it can before the next one.
                self.open_door(now)?;
                arrivals += 1;
                observer.progress(arrivals as u64);
            }
            self.open_door(now)?;
            self.start_steps(now);
            self.ledger.write_settled(self.label, |line| observer.decision(line)).map_err(ReplayError::Decisions)?;
        }
        if let Some(door) = &mut self.door {
            door.controller.shut_down();
            self.take_outcomes(0, self.pools.len() - 1)?;
        }
        self.ledger.write_settled(self.label, |line| observer.decision(line)).map_err(ReplayError::Decisions)
    }

    /// When admission has something to do though nothing else happens; none while it holds no request.
    fn door_opens_us(&self) -> Option<u64> {
        let door = self.door.as_ref().filter(|door| !door.is_idle())?;
        let ms = door.controller.next_deadline()?;
        let us = (ms * 1_000.0).ceil() as u64;
        // Rounding may bring the instant back before the deadline, which would then never come.
        Some(if (us as f64 / 1_000.0) < ms { us + 1 } else { us })
    }

    fn end_steps(&mut self, now: u64) {
        while let Some(&Reverse((at, place))) = self.agenda.peek() {
            if at > now {
                break;
            }
            self.agenda.pop();
            let Some(worker) = self.pools.get_mut(place.0).and_then(|pool| pool.workers.get_mut(place.1)) else {
                continue;
            };
            if worker.next_event() == Some(at) {
                worker.advance(now, &mut self.events);
                self.touched.push(place);
                self.hear(now, place);
            }
        }
    }

    fn start_steps(&mut self, now: u64) {
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        for place in touched.drain(..) {
            let Some(worker) = self.pools.get_mut(place.0).and_then(|pool| pool.workers.get_mut(place.1)) else {
                continue;
            };
            worker.start(now, &mut self.events);
            if let Some(at) = worker.next_event() {
                self.agenda.push(Reverse((at, place)));
            }
            self.hear(now, place);
        }
        self.touched = touched;
    }

    /// Takes note of what happened on a worker, and tells the router.
    fn hear(&mut self, now: u64, (pool_place, worker): Place) {
        let Some(pool) = self.pools.get_mut(pool_place) else { return };
        for Event { request: index, happening } in self.events.drain(..) {
            let Some(request) = self.trace.get(index) else { continue };
            let Some(booked) = self.booked.get_mut(index) else { continue };
            let since_arrival = now - arrival_us(&request, self.options.speed);
            match self.door.as_mut().filter(|_| pool.work != Work::Prefill) {
                Some(door) => Self::tell_door(door, index, &request, happening),
                None => tell_partition(&pool.partition, booked, happening),
            }
            match happening {
                Happening::Admitted { hits } => {
                    if pool.work != Work::Decode {
                        self.figures.hit_blocks += hits;
                        self.figures.prompt_blocks += request.blocks();
                    }
                }
                Happening::Prefilled | Happening::OutputBlock => {}
                Happening::FirstToken => self.figures.ttft_us.push(since_arrival),
                Happening::Finished => {
                    pool.balance.remove(now, worker);
                    if pool.work == Work::Prefill {
                        self.handed_over.push(index);
                    } else {
                        self.figures.latency_us.push(since_arrival);
                    }
                }
            }
        }
    }

    /// Asks the router for a worker and gives it the request.
    fn decide(&mut self, now: u64, index: usize, pool_place: usize) -> Result<(), ReplayError> {
        if self.door.is_some() && pool_place + 1 == self.pools.len() {
            self.knock(now, index, pool_place);
            return Ok(());
        }
        let (Some(row), Some(pool)) = (self.trace.get(index), self.pools.get_mut(pool_place)) else { return Ok(()) };
        find_overlaps(pool, row.block_ids, &mut self.overlaps);
        let request =
            Request { now_ms: now as f64 / 1_000.0, overlaps: &self.overlaps, ..request(pool, &row, self.fleet) };
        let decided = timed(self.clock, &mut self.figures.decision_ns, || pool.partition.decide(&request));
        pool.hear_faults(index)?;
        let decision = match decided {
            Ok(decision) => decision,
            Err(error) => {
                self.refuse(index, pool_place, error.name());
                return Ok(());
            }
        };
        let reservation = pool.partition.reserve(&request, &decision);
        let Some(reservation) = reservation else {
            return Err(ReplayError::NotBooked { index, worker: decision.worker });
        };
        if let Some(booked) = self.booked.get_mut(index) {
            *booked = Some(reservation);
        }
        self.place(now, index, pool_place, decision)
    }

    /// A request gets no worker.
    fn refuse(&mut self, index: usize, pool_place: usize, reason: &'static str) {
        let Some(pool) = self.pools.get(pool_place) else { return };
        *self.figures.rejections.entry(reason).or_default() += 1;
        self.ledger.reject(index as u64, pool.role, reason);
    }

    /// Gives a decided and booked request to its worker.
    fn place(&mut self, now: u64, index: usize, pool_place: usize, decision: Decision) -> Result<(), ReplayError> {
        let last = pool_place + 1 == self.pools.len();
        let (Some(row), Some(pool)) = (self.trace.get(index), self.pools.get_mut(pool_place)) else { return Ok(()) };
        self.ledger.decide(index as u64, pool.role, decision, last);
        let Decision { worker: key, fallback, fuel, .. } = decision;
        self.figures.fallbacks += u64::from(fallback);
        self.figures.decided += u64::from(last);
        if let Some(fuel) = fuel {
            self.figures.fuel.push(fuel);
        }
        let worker = key.worker.wrapping_sub(pool.first_id) as usize;
        let Some(simulated) = pool.workers.get_mut(worker) else {
            return Err(ReplayError::NotBooked { index, worker: key });
        };
        simulated.enqueue(now, job(index, pool.work, &row));
        self.touched.push((pool_place, worker));
        pool.balance.add(now, worker);
        if let Some(decisions) = pool.decisions.get_mut(worker) {
            *decisions += 1;
        }
        if let Some(session) = row.session_id {
            if row.session_final == Some(true) {
                pool.sessions.remove(session);
            } else {
                pool.sessions.insert(session, key);
            }
        }
        Ok(())
    }

    /// Takes a request to admission, which has a worker chosen sooner or later.
    fn knock(&mut self, now: u64, index: usize, pool_place: usize) {
        let (Some(row), Some(pool), Some(door)) = (self.trace.get(index), self.pools.get(pool_place), &mut self.door)
        else {
            return;
        };
        let queued = Queued { index, row, base: request(pool, &row, self.fleet), overlaps: Vec::new() };
        if let Err(error) = door.submit(queued, now as f64 / 1_000.0) {
            self.refuse(index, pool_place, error.name());
        }
    }

    /// Lets through what admission lets through now.
    fn open_door(&mut self, now: u64) -> Result<(), ReplayError> {
        let last = self.pools.len() - 1;
        let Self { door: Some(door), pools, fleet, clock, figures, .. } = self else { return Ok(()) };
        let Some(pool) = pools.get(last) else { return Ok(()) };
        let mut host = Host { pool, fleet: *fleet, clock: *clock, decision_ns: &mut figures.decision_ns, index: 0 };
        door.controller.advance(&mut host, now as f64 / 1_000.0);
        let index = host.index;
        if let Some(pool) = self.pools.get_mut(last) {
            pool.hear_faults(index)?;
        }
        self.take_outcomes(now, last)
    }

    fn take_outcomes(&mut self, now: u64, pool_place: usize) -> Result<(), ReplayError> {
        while let Some(door) = &mut self.door
            && let Some(outcome) = door.controller.next_outcome()
        {
            match outcome {
                AdmissionOutcome::Dispatched { id, decision, class, queued_ms } => {
                    let Some((index, row)) = door.index(id).and_then(|index| Some((index, self.trace.get(index)?)))
                    else {
                        continue;
                    };
                    door.note(class, queued_ms, row.input_tokens);
                    self.place(now, index, pool_place, decision)?;
                }
                AdmissionOutcome::Ended { id, end } => {
                    if let Some((index, Some(reason))) = door.end(id, &end) {
                        self.refuse(index, pool_place, reason);
                    }
                }
                AdmissionOutcome::Faulted(message) => tracing::warn!(policy = self.label, "{message}"),
            }
        }
        Ok(())
    }

    /// Tells admission what happened to a request on its worker.
    fn tell_door(door: &mut Door<'_>, index: usize, request: &TraceRequest<'_>, happening: Happening) {
        let Some(id) = door.id(index) else { return };
        let controller = &mut door.controller;
        match happening {
            Happening::Admitted { .. } => {}
            Happening::Prefilled => controller.prefill_complete(id),
            Happening::OutputBlock => controller.output_blocks(id, 1),
            // The worker is the one that was chosen, so that no session can refuse it.
            Happening::FirstToken => _ = controller.responding(id),
            Happening::Finished => {
                controller.progress(id, request.input_tokens.saturating_add(request.output_tokens));
                controller.complete(id);
            }
        }
    }

    fn report(self) -> RunReport {
        let Figures { mut ttft_us, mut latency_us, mut decision_ns, mut fuel, .. } = self.figures;
        let [fuel_p50, fuel_p99] = fuel.percentiles([50, 99]);
        let [decision_p50, decision_p99] = decision_ns.percentiles([50, 99]).map(|ns| ns.map(|ns| ns as f64 / 1_000.0));
        let prefix_hit_rate = if self.trace.has_block_ids() && self.figures.prompt_blocks > 0 {
            Some(self.figures.hit_blocks as f64 / self.figures.prompt_blocks as f64)
        } else {
            None
        };
        RunReport {
            policy: self.label.to_owned(),
            workers: self.fleet,
            seed: self.options.seed,
            requests: self.trace.len() as u64,
            decided: self.figures.decided,
            rejected: self.figures.rejections.values().sum(),
            fallbacks: self.figures.fallbacks,
            faults: faults(&self.pools),
            prefix_hit_rate,
            load_cv: Balance::mean_coefficient(self.pools.iter().map(|pool| &pool.balance)),
            ttft_ms: Milliseconds::of_microseconds(&mut ttft_us),
            latency_ms: Milliseconds::of_microseconds(&mut latency_us),
            requests_per_worker: self.pools.into_iter().flat_map(|pool| pool.decisions).collect(),
            decision_us: PerDecision { p50: decision_p50, p99: decision_p99 },
            fuel: (!fuel.is_empty()).then_some(PerDecision { p50: fuel_p50, p99: fuel_p99 }),
            decisions_sha256: self.ledger.sha256(),
            admission: self.door.map(Door::report),
            rejections: self.figures.rejections,
        }
    }
}

/// Tells the router what happened to a request on its worker.
fn tell_partition(partition: &Partition, booked: &mut Option<ReservationId>, happening: Happening) {
    let Some(id) = *booked else { return };
    match happening {
        Happening::Admitted { .. } | Happening::FirstToken => {}
        Happening::Prefilled => _ = partition.prefill_complete(id),
        Happening::OutputBlock => _ = partition.output_blocks(id, 1),
        Happening::Finished => {
            partition.free(id);
            *booked = None;
        }
    }
}

fn count_of(faults: &Faults, outcome: Outcome) -> u64 {
    faults.get(outcome as usize).copied().unwrap_or(0)
}

/// The faults of the run, those of all pools, by outcome.
fn faults(pools: &[Pool<'_>]) -> BTreeMap<&'static str, u64> {
    let of_run = |outcome| {
        pools
            .iter()
            .map(|Pool { faults: [before, after], .. }| count_of(after, outcome) - count_of(before, outcome))
            .sum()
    };
    Outcome::ALL
        .into_iter()
        .map(|outcome| (outcome.as_str(), of_run(outcome)))
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// What each worker of the pool holds of the prompt right now: the replay stands for KV events that never lag. Where
/// nobody reads a cache there are none, as with a router without a KV indexer.
fn find_overlaps(pool: &Pool<'_>, block_ids: &[u64], overlaps: &mut Vec<WorkerOverlap>) {
    overlaps.clear();
    if !pool.partition.wants_overlaps() {
        return;
    }
    // Every block is on the device, so the weights of the other tiers have nothing to weigh.
    let config = RouterConfig::default();
    for (id, worker) in (pool.first_id..).zip(&pool.workers) {
        let blocks = worker.overlap(block_ids);
        if blocks > 0 {
            let key = WorkerKey::new(id, 0);
            overlaps.push(WorkerOverlap::from_tiers(key, blocks as f64, 0.0, 0.0, &config, BLOCK_SIZE));
        }
    }
}

/// Whether a pin to that worker holds in this pool: each pool heeds the pins to its own workers, and the first one
/// also those to no worker of the fleet, which the router then refuses.
fn heeds(pool: &Pool<'_>, id: u64, fleet: u64) -> bool {
    let own = (pool.first_id..pool.first_id + pool.workers.len() as u64).contains(&id);
    own || (pool.first_id == 0 && id >= fleet)
}
