//! The policy-class queue beside Dynamo's, driven through its local scheduler: generated profiles, arrivals, capacity
//! changes, cancellations and deadlines.
//!
//! Dynamo's crate is built without tokio's paused clock, so its deadlines are real: hours away, past, or a moment away
//! for a request that is sure to wait until then.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dynamo_kv_router::plugins::request_classifier::{ClassifyFuture, ClassifyRequest, RequestClassifier};
use dynamo_kv_router::plugins::worker_selection::WorkerInputs;
use dynamo_kv_router::protocols::{WorkerConfigLike, WorkerId, WorkerSelectionResult, WorkerWithDpRank};
use dynamo_kv_router::scheduling::{OverlapSignals, ScheduleRequest};
use dynamo_kv_router::{KvSchedulerError, WorkerSelectionInput, WorkerSelector};
use fastrand::Rng;
use pointsman_admission::{
    Arrival, Bucket, EntryId, Lane, PolicyClass, PolicyQueue, Profile, ProfileSpec, Pushed, QueueLimits, QueuePolicy,
    RefusalReason, RequestTokens, RowLoad, WorkerKey,
};
use pointsman_parity::scheduler::{Scheduler, schedule_request, scheduler, selected, settle};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::harness::number;

/// Sequences in an ordinary run.
const CASES: usize = 10_000;
/// Steps of a sequence, at most.
const STEPS: usize = 40;
/// Every task of one step has run after so many turns.
const TURNS: usize = 8;

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// It was sent, to that row.
    Sent(WorkerKey),
    /// It was sent, and no row may serve it.
    NoEndpoints,
    Rejected {
        class: String,
        kind: String,
        current: u64,
        limit: u64,
    },
    DeadlineExceeded,
    UnknownClass,
}

/// What happened in one step: the requests that went to selection, in order, and the others by number.
#[derive(Debug, Default, PartialEq, Eq)]
struct Happened {
    sent: Vec<(usize, Outcome)>,
    refused: BTreeMap<usize, Outcome>,
}

/// A worker's ranks and its `max_num_batched_tokens`.
#[derive(Clone, Debug, PartialEq)]
struct Worker {
    ranks: u32,
    most: Option<u64>,
}

impl WorkerConfigLike for Worker {
    fn data_parallel_start_rank(&self) -> u32 {
        0
    }

    fn data_parallel_size(&self) -> u32 {
        self.ranks
    }

    fn max_num_batched_tokens(&self) -> Option<u64> {
        self.most
    }

    fn total_kv_blocks(&self) -> Option<u64> {
        None
    }
}

type Workers = BTreeMap<u64, Worker>;

#[derive(Clone, Copy, Debug)]
enum Due {
    /// Seconds after the start, far from now.
    Far(u32),
    Past,
    /// A moment away. The request waits until then.
    Soon,
}

/// A request, and what a classifier says of it.
#[derive(Clone, Debug)]
struct Asked {
    requested: Option<&'static str>,
    classified: Option<&'static str>,
    pin: Option<WorkerKey>,
    allowed: Option<HashSet<u64>>,
    prompt: usize,
    /// Cached tokens of rows.
    cached: Vec<(WorkerKey, usize)>,
    cost: Option<usize>,
    strict_priority: u32,
    priority_jump: f64,
    /// Seconds after the start.
    ingress: u32,
    due: Option<Due>,
}

impl Asked {
    fn cached_on(&self, row: WorkerKey) -> u64 {
        self.cached.iter().find(|(known, _)| *known == row).map_or(0, |(_, tokens)| *tokens as u64)
    }

    fn rows<'a>(&'a self, workers: &'a Workers) -> impl Iterator<Item = WorkerKey> + 'a {
        let rows = workers.iter().flat_map(|(id, worker)| (0..worker.ranks).map(|rank| WorkerKey::new(*id, rank)));
        rows.filter(|row| match (self.pin, &self.allowed) {
            (Some(pin), _) => pin == *row,
            (None, Some(allowed)) => allowed.contains(&row.worker),
            (None, None) => true,
        })
    }
}

// Generated profiles, for both

fn class(rng: &mut Rng, name: &str, family: Option<(&str, &str)>) -> PolicyClass {
    let some = |rng: &mut Rng, below| (rng.u8(0..4) == 0).then(|| rng.u64(0..below));
    PolicyClass {
        name: name.to_owned(),
        policy_family: family.map(|(family, _)| family.to_owned()),
        cache_bucket: family.map(|(_, bucket)| bucket.to_owned()),
        queue_policy: if rng.bool() { QueuePolicy::Fcfs } else { QueuePolicy::Wspt },
        quantum: if rng.bool() { rng.u64(1..20) } else { rng.u64(100..600) },
        prefill_busy_threshold: (rng.u8(0..4) > 0).then(|| rng.u64(0..200)),
        prefill_busy_threshold_frac: (rng.u8(0..4) == 0).then(|| f64::from(rng.u8(0..5)) / 4.0),
        limits: QueueLimits { requests: some(rng, 4), prompt_tokens: some(rng, 600), cached_tokens: some(rng, 300) },
    }
}

/// Two families of two buckets, and an explicit class.
fn profile(rng: &mut Rng) -> ProfileSpec {
    let bucket = |min_tokens, name: &str| Bucket { min_tokens, bucket: name.to_owned() };
    ProfileSpec {
        default_policy_family: "standard".to_owned(),
        uncached_isl_buckets: vec![bucket(0, "short"), bucket(150, "long")],
        policy_classes: vec![
            class(rng, "standard_short", Some(("standard", "short"))),
            class(rng, "standard_long", Some(("standard", "long"))),
            class(rng, "batch", None),
            class(rng, "premium_long", Some(("premium", "long"))),
            class(rng, "premium_short", Some(("premium", "short"))),
        ],
    }
}

/// The profile as a policy file for Dynamo, which takes JSON as YAML.
fn policy_file(spec: &ProfileSpec) -> String {
    let class = |class: &PolicyClass| {
        json!({
            "name": class.name,
            "policy_family": class.policy_family,
            "cache_bucket": class.cache_bucket,
            "queue_policy": match class.queue_policy { QueuePolicy::Fcfs => "fcfs", QueuePolicy::Wspt => "wspt" },
            "quantum": class.quantum,
            "prefill_busy_threshold": class.prefill_busy_threshold,
            "prefill_busy_threshold_frac": class.prefill_busy_threshold_frac,
            "request_queue_limit_per_worker": class.limits.requests,
            "raw_isl_token_queue_limit_per_worker": class.limits.prompt_tokens,
            "cached_token_queue_limit_per_worker": class.limits.cached_tokens,
        })
    };
    let buckets = spec.uncached_isl_buckets.iter();
    let buckets: Vec<Value> = buckets.map(|it| json!({"min_tokens": it.min_tokens, "bucket": it.bucket})).collect();
    let classes: Vec<Value> = spec.policy_classes.iter().map(class).collect();
    json!({
        "default_policy_family": spec.default_policy_family,
        "uncached_isl_buckets": buckets,
        "policy_classes": classes,
    })
    .to_string()
}

fn workers(rng: &mut Rng) -> Workers {
    let mut workers = Workers::new();
    for id in 0..3 {
        if rng.u8(0..8) > 0 {
            workers.insert(id, Worker { ranks: 1 + id as u32 % 2, most: (id != 2).then_some(200) });
        }
    }
    workers
}

fn row(rng: &mut Rng) -> WorkerKey {
    let worker = rng.u64(0..3);
    WorkerKey::new(worker, if worker == 1 { rng.u32(0..2) } else { 0 })
}

fn asked(rng: &mut Rng) -> Asked {
    let prompt = rng.usize(0..400);
    let pin = (rng.u8(0..3) == 0).then(|| row(rng));
    let rare = |rng: &mut Rng| rng.u8(0..4) == 0;
    Asked {
        requested: *rng.choice(&[None, Some("standard"), Some("premium"), Some("batch"), Some("other")]).unwrap(),
        classified: match rng.u8(0..32) {
            0 => Some("premium_long"),
            1..8 => Some("premium"),
            8..12 => Some("batch"),
            _ => None,
        },
        pin,
        allowed: (pin.is_none() && rare(rng)).then(|| (0..3).filter(|_| rng.bool()).collect()),
        prompt,
        cached: (0..rng.usize(0..3))
            .map(|_| (row(rng), rng.usize(0..500)))
            .collect::<BTreeMap<_, _>>()
            .into_iter()
            .collect(),
        cost: rare(rng).then(|| rng.usize(1..1_000)),
        strict_priority: if rare(rng) { rng.u32(0..3) } else { 0 },
        // Apart from every difference of two ingress times, so that no two scores differ by rounding alone.
        priority_jump: if rare(rng) { f64::from(rng.i8(-3..9)) + 0.3 } else { 0.0 },
        ingress: rng.u32(0..8),
        due: rare(rng).then(|| match rng.u8(0..16) {
            0 => Due::Past,
            1 => Due::Soon,
            _ => Due::Far(10_000 + rng.u32(0..4)),
        }),
    }
}

// Ours

struct Ours {
    queue: PolicyQueue<usize>,
    asked: Vec<Asked>,
    waiting: BTreeMap<usize, EntryId>,
    workers: Workers,
    loads: HashMap<WorkerKey, u64>,
    /// Requests in prefill: the row, and the tokens that it counts there.
    prefilling: BTreeMap<usize, (WorkerKey, u64)>,
    happened: Happened,
}

impl Ours {
    fn new(profile: ProfileSpec, workers: Workers) -> Self {
        Self {
            queue: PolicyQueue::new(Arc::new(Profile::new(profile).unwrap())),
            asked: Vec::new(),
            waiting: BTreeMap::new(),
            workers,
            loads: HashMap::new(),
            prefilling: BTreeMap::new(),
            happened: Happened::default(),
        }
    }

    /// The request's tokens and its class, or none where a classifier names no class.
    fn arrival(&self, asked: &Asked) -> Option<Arrival> {
        let cached = asked.rows(&self.workers).map(|row| asked.cached_on(row)).max().unwrap_or(0);
        let tokens = RequestTokens::new(asked.prompt as u64, cached);
        let profile = self.queue.profile();
        let class = match asked.classified {
            Some(name) => profile.choose_strictly(name, tokens.uncached()).ok()?,
            None => profile.choose(asked.requested, tokens.uncached()),
        };
        Some(Arrival {
            class,
            lane: asked.pin.map_or(Lane::Shared, Lane::Rank),
            tokens: asked.cost.map_or(tokens, |cost| tokens.with_cost(cost as u64)),
            strict_priority: asked.strict_priority,
            priority_jump: asked.priority_jump,
            ingress_ms: f64::from(asked.ingress) * 1_000.0,
            due_ms: asked.due.map(|due| match due {
                Due::Far(seconds) => f64::from(seconds) * 1_000.0,
                Due::Past => -1.0,
                Due::Soon => 1.0,
            }),
        })
    }

    fn admits(&self, class: &PolicyClass, asked: &Asked) -> bool {
        admits(&self.workers, &self.loads, class, asked)
    }

    /// Whether the request would wait whatever else waits.
    fn must_wait(&self, asked: &Asked) -> bool {
        let class = self.arrival(asked).map(|arrival| self.queue.profile().class(arrival.class));
        class.is_some_and(|class| class.can_queue() && !self.admits(class, asked)) && !self.workers.is_empty()
    }

    fn arrive(&mut self, asked: Asked) {
        let number = self.asked.len();
        let arrival = self.arrival(&asked);
        self.asked.push(asked);
        let Some(arrival) = arrival else {
            self.happened.refused.insert(number, Outcome::UnknownClass);
            return;
        };
        let Self { queue, asked, workers, loads, .. } = self;
        let pushed = queue
            .push(arrival, number, 0.0, workers.len(), |class, number| admits(workers, loads, class, &asked[*number]));
        match pushed {
            Ok(Pushed::Waits(id)) => _ = self.waiting.insert(number, id),
            Ok(Pushed::Direct(number)) => self.send(number),
            Err(refused) => {
                let outcome = match refused.reason {
                    RefusalReason::DeadlineExceeded => Outcome::DeadlineExceeded,
                    RefusalReason::QueueRejected(it) => Outcome::Rejected {
                        class: it.policy_class,
                        kind: it.kind.to_string(),
                        current: it.current,
                        limit: it.limit,
                    },
                };
                self.happened.refused.insert(number, outcome);
            }
        }
        self.drain();
    }

    fn drain(&mut self) {
        loop {
            let Self { queue, asked, workers, loads, .. } = self;
            let Some(entry) = queue.pop(|class, number| admits(workers, loads, class, &asked[*number])) else { break };
            self.waiting.remove(&entry.payload);
            self.send(entry.payload);
        }
    }

    /// The first row that may serve the request takes it.
    fn send(&mut self, number: usize) {
        let asked = &self.asked[number];
        let row = asked.rows(&self.workers).next();
        if let Some(row) = row {
            let tokens = (asked.prompt as u64).saturating_sub(asked.cached_on(row));
            *self.loads.entry(row).or_default() += tokens;
            self.prefilling.insert(number, (row, tokens));
        }
        self.happened.sent.push((number, row.map_or(Outcome::NoEndpoints, Outcome::Sent)));
    }

    fn end_prefill(&mut self, number: usize) {
        let (row, tokens) = self.prefilling.remove(&number).unwrap();
        *self.loads.entry(row).or_default() -= tokens;
        self.queue.recheck(row);
        self.drain();
    }

    fn cancel(&mut self, number: usize) {
        self.queue.cancel(self.waiting.remove(&number).unwrap());
        self.drain();
    }

    fn expire_soon(&mut self) {
        while let Some(entry) = self.queue.expire(2.0) {
            self.waiting.remove(&entry.payload);
            self.happened.refused.insert(entry.payload, Outcome::DeadlineExceeded);
        }
        self.drain();
    }

    fn set_workers(&mut self, workers: Workers) {
        self.loads.retain(|row, _| workers.contains_key(&row.worker));
        self.prefilling.retain(|_, (row, _)| workers.contains_key(&row.worker));
        self.workers = workers;
        self.queue.recheck_all();
        self.drain();
    }
}

fn admits(workers: &Workers, loads: &HashMap<WorkerKey, u64>, class: &PolicyClass, asked: &Asked) -> bool {
    class.admits(asked.rows(workers).map(|row| RowLoad {
        active_prefill_tokens: loads.get(&row).copied().unwrap_or(0) as f64,
        max_num_batched_tokens: workers[&row.worker].most,
    }))
}

// Dynamo's

/// Takes the first row that may serve the request, and notes the order.
struct FirstRow(Arc<Mutex<Happened>>);

impl WorkerSelector<Worker> for FirstRow {
    fn required_worker_inputs(&self) -> WorkerInputs {
        WorkerInputs::NONE
    }

    fn select_worker(
        &self,
        input: WorkerSelectionInput<'_, Worker>,
    ) -> Result<WorkerSelectionResult, KvSchedulerError> {
        let (workers, request, eligibility, _) = input.into_configured()?;
        let mut rows = Vec::new();
        eligibility.for_each_eligible_worker_rank(workers, |row, _| rows.push(row));
        let first = rows.into_iter().min_by_key(|row| (row.worker_id, row.dp_rank));
        let number = request.mode.request_id().unwrap().parse().unwrap();
        let outcome =
            first.map_or(Outcome::NoEndpoints, |row| Outcome::Sent(WorkerKey::new(row.worker_id, row.dp_rank)));
        self.0.lock().unwrap().sent.push((number, outcome));
        let worker = first.ok_or(KvSchedulerError::NoEndpoints)?;
        let cached = request.overlap.effective_cached_tokens.get(&worker).copied().unwrap_or(0);
        Ok(selected(worker, cached))
    }
}

/// What the classifier says of each request.
#[derive(Default)]
struct Overrides {
    class: Option<&'static str>,
    cost: Option<usize>,
    due: Option<Instant>,
}

struct Classifier(Arc<Mutex<HashMap<String, Overrides>>>);

impl RequestClassifier for Classifier {
    fn classify(&mut self, mut request: ClassifyRequest) -> ClassifyFuture {
        let overrides = self.0.lock().unwrap().remove(request.request_id().unwrap()).unwrap();
        if let Some(class) = overrides.class {
            request.set_policy_class(class);
        }
        if let Some(cost) = overrides.cost {
            request.set_scheduling_cost_tokens(cost);
        }
        if let Some(due) = overrides.due {
            request.set_due_at(due);
        }
        Box::pin(async move { Ok(request) })
    }
}

struct Theirs {
    scheduler: Arc<Scheduler<Worker, FirstRow>>,
    workers: watch::Sender<HashMap<WorkerId, Worker>>,
    overrides: Arc<Mutex<HashMap<String, Overrides>>>,
    happened: Arc<Mutex<Happened>>,
    tasks: Vec<JoinHandle<()>>,
    start: Instant,
    shutdown: CancellationToken,
}

impl Drop for Theirs {
    fn drop(&mut self) {
        self.shutdown.cancel();
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Theirs {
    async fn new(policy_file: &str, workers: &Workers) -> Self {
        let ranges = workers.iter().map(|(id, worker)| (*id, (0, worker.ranks))).collect();
        let (sender, receiver) = watch::channel(workers.clone().into_iter().collect());
        let (happened, shutdown) = (Arc::new(Mutex::new(Happened::default())), CancellationToken::new());
        let scheduler = scheduler(policy_file, 16, ranges, receiver, FirstRow(happened.clone()), &shutdown);
        let overrides = Arc::<Mutex<_>>::default();
        assert!(scheduler.install_request_classifier(Box::new(Classifier(overrides.clone())), shutdown.clone()));
        let start = Instant::now();
        let tasks = Vec::new();
        let theirs = Self { scheduler, workers: sender, overrides, happened, tasks, start, shutdown };
        theirs.settle().await;
        theirs
    }

    async fn settle(&self) {
        settle(TURNS).await;
    }

    async fn arrive(&mut self, asked: &Asked) {
        let number = self.tasks.len();
        let due = asked.due.map(|due| match due {
            Due::Far(seconds) => self.start + Duration::from_secs(seconds.into()),
            Due::Past => Instant::now(),
            Due::Soon => Instant::now() + Duration::from_micros(200),
        });
        let overrides = Overrides { class: asked.classified, cost: asked.cost, due };
        self.overrides.lock().unwrap().insert(number.to_string(), overrides);
        let lifecycle = self.scheduler.begin_request_lifecycle(&number.to_string()).unwrap();
        let key = |row: WorkerKey| WorkerWithDpRank::new(row.worker, row.rank);
        let request = ScheduleRequest {
            pinned_worker: asked.pin.map(key),
            allowed_worker_ids: asked.allowed.clone(),
            priority_jump: asked.priority_jump,
            strict_priority: asked.strict_priority,
            policy_class: asked.requested.map(str::to_owned),
            overlap: OverlapSignals {
                effective_cached_tokens: asked.cached.iter().map(|(row, tokens)| (key(*row), *tokens)).collect(),
                ..OverlapSignals::default()
            },
            ..schedule_request(&number.to_string(), asked.prompt)
        };
        let ingress = self.start + Duration::from_secs(asked.ingress.into());
        let (scheduler, happened) = (self.scheduler.clone(), self.happened.clone());
        self.tasks.push(tokio::spawn(async move {
            let _lifecycle = lifecycle;
            let result = scheduler.schedule_request_admitted_with_context(request, ingress).await;
            let outcome = match result {
                Ok(_) | Err(KvSchedulerError::NoEndpoints) => return,
                Err(KvSchedulerError::DeadlineExceeded) => Outcome::DeadlineExceeded,
                Err(KvSchedulerError::InvalidClassificationMetadata(_)) => Outcome::UnknownClass,
                Err(KvSchedulerError::QueueRejected(it)) => Outcome::Rejected {
                    class: it.policy_class,
                    kind: it.limit_kind.to_string(),
                    current: it.current as u64,
                    limit: it.limit as u64,
                },
                Err(error) => panic!("request {number}: {error}"),
            };
            happened.lock().unwrap().refused.insert(number, outcome);
        }));
        self.settle().await;
    }

    async fn end_prefill(&self, number: usize) {
        self.scheduler.mark_prefill_completed(&number.to_string()).await.unwrap();
        self.settle().await;
    }

    async fn cancel(&self, number: usize) {
        self.tasks[number].abort();
        self.settle().await;
    }

    async fn until_refused(&self, number: usize) {
        while !self.happened.lock().unwrap().refused.contains_key(&number) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.settle().await;
    }

    async fn set_workers(&self, workers: &Workers) {
        self.workers.send_replace(workers.clone().into_iter().collect());
        self.settle().await;
    }
}

// Both

/// What was met, so that no rule goes untried.
#[derive(Debug, Default)]
struct Tally {
    sent: usize,
    /// Requests that were sent after they had waited.
    waited: usize,
    no_endpoints: usize,
    rejected: usize,
    late: usize,
    expired: usize,
    cancelled: usize,
    unknown: usize,
}

impl Tally {
    fn count(&mut self, happened: &Happened) {
        for (_, outcome) in &happened.sent {
            *(if *outcome == Outcome::NoEndpoints { &mut self.no_endpoints } else { &mut self.sent }) += 1;
        }
        for outcome in happened.refused.values() {
            *match outcome {
                Outcome::Rejected { .. } => &mut self.rejected,
                Outcome::DeadlineExceeded => &mut self.late,
                _ => &mut self.unknown,
            } += 1;
        }
    }
}

async fn case(seed: u64, tally: &mut Tally) {
    let rng = &mut Rng::with_seed(seed);
    let (spec, fleet) = (profile(rng), workers(rng));
    let mut theirs = Theirs::new(&policy_file(&spec), &fleet).await;
    let mut ours = Ours::new(spec.clone(), fleet);
    let mut steps = Vec::new();
    for _ in 0..rng.usize(1..=STEPS) {
        let before = ours.waiting.len();
        let step = match rng.u8(0..20) {
            0..12 => {
                let mut asked = asked(rng);
                if matches!(asked.due, Some(Due::Soon)) && !ours.must_wait(&asked) {
                    asked.due = None;
                }
                let number = ours.asked.len();
                ours.arrive(asked.clone());
                theirs.arrive(&asked).await;
                // A full class may have refused it before.
                if matches!(asked.due, Some(Due::Soon)) {
                    tally.expired += usize::from(ours.waiting.contains_key(&number));
                    ours.expire_soon();
                    theirs.until_refused(number).await;
                }
                format!("request {number}: {asked:?}")
            }
            12..18 => {
                let Some(number) = choose(rng, ours.prefilling.keys()) else { continue };
                ours.end_prefill(number);
                theirs.end_prefill(number).await;
                tally.waited += before - ours.waiting.len();
                format!("request {number} ends its prefill")
            }
            18 => {
                let Some(number) = choose(rng, ours.waiting.keys()) else { continue };
                ours.cancel(number);
                theirs.cancel(number).await;
                tally.cancelled += 1;
                format!("request {number} is cancelled")
            }
            _ => {
                let fleet = workers(rng);
                ours.set_workers(fleet.clone());
                theirs.set_workers(&fleet).await;
                format!("workers: {fleet:?}")
            }
        };
        steps.push(step);
        let ours_happened = std::mem::take(&mut ours.happened);
        let theirs_happened = std::mem::take(&mut *theirs.happened.lock().unwrap());
        tally.count(&ours_happened);
        let waiting = theirs.scheduler.pending_count();
        assert!(
            ours_happened == theirs_happened && ours.waiting.len() == waiting,
            "seed {seed}: {spec:#?}\n{}\nours: {ours_happened:?}, {} wait\nDynamo: {theirs_happened:?}, {waiting} wait",
            steps.join("\n"),
            ours.waiting.len(),
        );
    }
}

fn choose<'a>(rng: &mut Rng, numbers: impl ExactSizeIterator<Item = &'a usize>) -> Option<usize> {
    rng.choice(numbers.collect::<Vec<_>>()).copied()
}

#[test]
fn requests_are_refused_and_sent_in_the_same_order() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (cases, seed) = (number("POINTSMAN_PARITY_CASES", CASES), number("POINTSMAN_PARITY_SEED", 0) as u64);
    let mut tally = Tally::default();
    for index in 0..cases as u64 {
        runtime.block_on(case(seed << 32 | index, &mut tally));
    }
    println!("{cases} sequences: {tally:?}");
    let Tally { sent, waited, no_endpoints, rejected, late, expired, cancelled, unknown } = tally;
    for (met, what) in [
        (sent, "sent"),
        (waited, "waited and sent"),
        (no_endpoints, "without a row"),
        (rejected, "rejected"),
        (late, "late"),
        (expired, "expired"),
        (cancelled, "cancelled"),
        (unknown, "of an unknown class"),
    ] {
        assert!(met > 0, "no request is {what}");
    }
}
