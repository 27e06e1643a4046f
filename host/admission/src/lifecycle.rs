//! The life of a request: from its first sight by the classifier to its one end.
//!
//! Requests and events stand in one line, in the order in which they came, and [`Lifecycles::run`] takes them to the
//! classifier one at a time. So events come in order, and an id that is used again is not classified before the end of its
//! earlier request has been told. Nothing else calls the classifier, and nothing is called back: what happens is read from
//! [`Lifecycles::next_outcome`].

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use pointsman_contract::{Admission, ClassifierWorker, Event, Progress, Resolution, TargetChange, Ticket, Verdict};
use rustc_hash::FxHashMap;

use crate::time::Moment;
use crate::{AdmissionError, Classifier, ClassifierFault, ClassifyRequest};

/// One lifecycle of a request. It is never used again, also where the request's id is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LifecycleId(pub(crate) u64);

impl LifecycleId {
    /// Its number for the classifier.
    #[must_use]
    pub const fn ticket(self) -> Ticket {
        self.0 as Ticket
    }
}

/// What a request is submitted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To be served, by an aggregated or a decode worker: the classifier decides.
    Serve(LifecycleId),
    /// The prefill hop of a request: it is never classified.
    Prefill,
    /// An advisory query: it is never classified.
    Query,
}

/// What follows from a submission.
#[derive(Clone, Debug, PartialEq)]
pub enum Submitted {
    /// An outcome will tell.
    Pending,
    /// The request enters the queue at once: it is not classified, or has been before.
    Admitted(Admission),
}

/// What happened to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The request enters the queue as the admission says.
    Admitted(LifecycleId, Admission),
    /// The lifecycle has ended: its last outcome.
    Ended(LifecycleId, End),
    /// The classifier failed at something; a sentence for the operator's log.
    Faulted(String),
}

/// How a lifecycle ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The request was served.
    Completed,
    /// The request was given up, for the reason given, where it is known.
    Aborted(Option<String>),
    /// The request ended with an error of the host's.
    Failed(AdmissionError),
}

/// What becomes of requests whose classifier failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnFault {
    /// They end with an error.
    #[default]
    Reject,
    /// They enter the queue as they came.
    Admit,
}

/// The rules of one partition's lifecycles.
pub struct LifecycleRules {
    /// What becomes of requests whose classifier failed.
    pub on_fault: OnFault,
    /// The longest deferral, in milliseconds.
    pub max_deferral_ms: u32,
    /// Whether a classifier may set a policy class: an explicit class or a family, and none of the classes in a family.
    pub takes_class: Box<dyn Fn(&str) -> bool + Send>,
}

/// What the lifecycles of one partition have counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LifecycleCounts {
    /// Requests that the classifier was asked about.
    pub classified: u64,
    /// Calls of the classifier that failed, and admissions of it that were invalid.
    pub faults: u64,
    /// Deferrals that the host ended.
    pub expired: u64,
    /// Resolutions of tickets that were not deferred: unknown, never deferred or resolved before.
    pub ignored_resolutions: u64,
}

#[derive(Debug)]
enum Phase {
    /// Nothing has been submitted.
    Begun,
    /// In the line to the classifier.
    Waiting,
    /// Until the classifier resolves it, or this moment.
    Deferred(Moment),
    /// Anywhere from the queue to the worker.
    Admitted(Admission, Stage),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Queued,
    Sent,
    Responding,
}

#[derive(Debug)]
struct Live {
    id: LifecycleId,
    /// None where the classifier never hears of the request.
    request_id: Option<String>,
    phase: Phase,
    pinned: bool,
    /// The last worker's number.
    worker: Option<u32>,
    context_tokens: u32,
    /// Whether a worker has told the context's tokens.
    observed: bool,
}

#[derive(Debug)]
enum Task {
    Classify(LifecycleId, ClassifyRequest),
    Tell(Event),
}

/// The lifecycles of one partition, and its classifier.
pub struct Lifecycles<C> {
    classifier: C,
    rules: LifecycleRules,
    live: FxHashMap<Ticket, Live>,
    by_request: FxHashMap<String, LifecycleId>,
    line: VecDeque<Task>,
    deferred: BTreeSet<(Moment, LifecycleId)>,
    /// Those whose tokens have grown since the classifier last read them.
    grown: BTreeSet<LifecycleId>,
    workers: Vec<ClassifierWorker>,
    /// The classifier has not been told of the workers yet, or was rebuilt since.
    fresh: bool,
    next_tick: Option<Moment>,
    outcomes: VecDeque<Outcome>,
    counts: LifecycleCounts,
    last_id: u64,
    closed: bool,
}

impl<C: Classifier> Lifecycles<C> {
    /// No lifecycle yet, at `now_ms`.
    pub fn new(classifier: C, rules: LifecycleRules, now_ms: f64) -> Self {
        let mut new = Self {
            classifier,
            rules,
            live: FxHashMap::default(),
            by_request: FxHashMap::default(),
            line: VecDeque::new(),
            deferred: BTreeSet::new(),
            grown: BTreeSet::new(),
            workers: Vec::new(),
            fresh: true,
            next_tick: None,
            outcomes: VecDeque::new(),
            counts: LifecycleCounts::default(),
            last_id: 0,
            closed: false,
        };
        new.plan_tick(now_ms);
        new
    }

    /// Begins the lifecycle of a request that is to be served.
    ///
    /// # Errors
    /// A live request has this id, or the lifecycles are shut down.
    pub fn begin(&mut self, request_id: &str) -> Result<LifecycleId, AdmissionError> {
        self.refuse_when_closed()?;
        if self.by_request.contains_key(request_id) {
            return Err(AdmissionError::DuplicateRequestId(request_id.to_owned()));
        }
        let id = self.open(Some(request_id.to_owned()));
        self.by_request.insert(request_id.to_owned(), id);
        Ok(id)
    }

    /// Begins a lifecycle that the classifier never hears of: its submissions are admitted at once, and it has no request
    /// id that could be in use.
    ///
    /// # Errors
    /// The lifecycles are shut down.
    pub fn begin_unclassified(&mut self) -> Result<LifecycleId, AdmissionError> {
        self.refuse_when_closed()?;
        Ok(self.open(None))
    }

    fn open(&mut self, request_id: Option<String>) -> LifecycleId {
        let id = self.free_id();
        let phase = Phase::Begun;
        let live = Live { id, request_id, phase, pinned: false, worker: None, context_tokens: 0, observed: false };
        self.live.insert(id.ticket(), live);
        id
    }

    /// Brings a request to the classifier, or past it. A lifecycle's first submission is classified by a later
    /// [`Self::run`]. Another one after its admission is a retry: it is admitted as the first was.
    ///
    /// # Errors
    /// The lifecycle has ended, waits for its verdict already, or the lifecycles are shut down. The classifier learns
    /// nothing of it.
    pub fn submit(&mut self, purpose: Purpose, request: ClassifyRequest) -> Result<Submitted, AdmissionError> {
        self.refuse_when_closed()?;
        let Purpose::Serve(id) = purpose else { return Ok(Submitted::Admitted(Admission::default())) };
        let live = find(&mut self.live, id).ok_or(AdmissionError::LifecycleEnded(id))?;
        let Some(request_id) = &live.request_id else { return Ok(Submitted::Admitted(Admission::default())) };
        match &mut live.phase {
            Phase::Admitted(admission, stage) => {
                *stage = Stage::Queued;
                Ok(Submitted::Admitted(beside_pin(admission, request.pin.is_some())))
            }
            Phase::Begun => {
                live.phase = Phase::Waiting;
                live.pinned = request.pin.is_some();
                self.line.push_back(Task::Classify(id, request));
                Ok(Submitted::Pending)
            }
            Phase::Waiting | Phase::Deferred(_) => Err(AdmissionError::DuplicateRequestId(request_id.clone())),
        }
    }

    /// The live lifecycle of that request id.
    #[must_use]
    pub fn live(&self, request_id: &str) -> Option<LifecycleId> {
        self.by_request.get(request_id).copied()
    }

    /// A worker was chosen, which the classifier does not hear of: should the request end now, that is its worker.
    pub fn chosen(&mut self, id: LifecycleId, worker: u32) {
        if let Some(live) = find(&mut self.live, id) {
            live.worker = Some(worker);
        }
    }

    /// A worker was chosen and booked. Answers whether the request stood in the queue.
    pub fn sent(&mut self, id: LifecycleId, worker: u32) -> bool {
        let live = find(&mut self.live, id);
        let Some(Live { phase: Phase::Admitted(_, stage @ Stage::Queued), worker: last, .. }) = live else {
            return false;
        };
        *stage = Stage::Sent;
        *last = Some(worker);
        self.line.push_back(Task::Tell(Event::Sent { ticket: id.ticket(), worker }));
        true
    }

    /// The worker answers. Answers whether the request was sent and had no answer yet.
    pub fn responding(&mut self, id: LifecycleId) -> bool {
        let live = find(&mut self.live, id);
        let Some(Live { phase: Phase::Admitted(_, stage @ Stage::Sent), worker: Some(worker), .. }) = live else {
            return false;
        };
        *stage = Stage::Responding;
        self.line.push_back(Task::Tell(Event::Responding { ticket: id.ticket(), worker: *worker }));
        true
    }

    /// The prompt and generated tokens that a worker tells. Less than before changes nothing.
    pub fn progress(&mut self, id: LifecycleId, context_tokens: u32) {
        let Some(live) = find(&mut self.live, id) else { return };
        live.observed = true;
        if live.raise_context(context_tokens) {
            self.grown.insert(id);
        }
    }

    /// The request is served. One that never had a worker is aborted instead. Answers whether it was live.
    pub fn complete(&mut self, id: LifecycleId) -> bool {
        let served = find(&mut self.live, id).is_some_and(|live| live.worker.is_some());
        self.end(id, if served { End::Completed } else { End::Aborted(None) })
    }

    /// The request is given up, for a reason that may be known. Answers whether it was live.
    pub fn abort(&mut self, id: LifecycleId, reason: Option<String>) -> bool {
        self.end(id, End::Aborted(reason))
    }

    /// The host refuses the request after its admission, such as in the queue. Answers whether it was live.
    pub fn fail(&mut self, id: LifecycleId, error: AdmissionError) -> bool {
        self.end(id, End::Failed(error))
    }

    /// The client has gone, wherever the request stands. Answers whether it was live.
    pub fn cancel(&mut self, id: LifecycleId) -> bool {
        self.end(id, End::Failed(AdmissionError::Cancelled))
    }

    /// The registered ranks, sorted by (worker id, rank).
    pub fn set_workers(&mut self, workers: Vec<ClassifierWorker>) {
        if self.closed || self.workers == workers {
            return;
        }
        if !self.fresh {
            self.line.push_back(Task::Tell(Event::Workers(workers.clone())));
        }
        self.workers = workers;
    }

    /// Brings everything in line to the classifier, ends deferrals that are due, and ticks where a tick is due. To be
    /// called after changes, and at [`Self::next_deadline`]: the line grows until then.
    ///
    /// A classifier that was rebuilt, and fails again as it learns of the workers, also loses what it was to be told then.
    pub fn run(&mut self, now_ms: f64) {
        self.deliver(now_ms);
        self.expire(now_ms);
        self.tick(now_ms);
        self.deliver(now_ms);
    }

    /// When [`Self::run`] has something to do though nothing changes: a deferral ends or a tick is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<f64> {
        let deferral = self.deferred.first().map(|(moment, _)| *moment);
        deferral.into_iter().chain(self.next_tick).min().map(|moment| moment.0)
    }

    /// The oldest outcome not read yet.
    pub fn next_outcome(&mut self) -> Option<Outcome> {
        self.outcomes.pop_front()
    }

    /// The classifier, for what its owner has to tell it besides.
    pub const fn classifier_mut(&mut self) -> &mut C {
        &mut self.classifier
    }

    /// Takes another classifier from now on, and hands the one before back. What that one deferred goes as it does when a
    /// classifier fails; requests that were admitted go on.
    pub fn replace_classifier(&mut self, classifier: C, now_ms: f64) -> C {
        let before = std::mem::replace(&mut self.classifier, classifier);
        self.forget_deferred(&AdmissionError::ClassifierFailed(
            "another version of the classifier took over while the request was deferred".to_owned(),
        ));
        self.next_tick = None;
        self.plan_tick(now_ms);
        before
    }

    /// What has been counted since the start.
    #[must_use]
    pub const fn counts(&self) -> LifecycleCounts {
        self.counts
    }

    /// Ends every lifecycle and takes no more. What the classifier has not been told yet it never learns.
    pub fn shut_down(&mut self) {
        let mut ids: Vec<_> = self.live.values().map(|live| live.id).collect();
        ids.sort_unstable();
        for id in ids {
            self.fail(id, AdmissionError::Shutdown);
        }
        self.closed = true;
        self.line.clear();
        self.next_tick = None;
    }

    fn deliver(&mut self, now_ms: f64) {
        while let Some(task) = self.line.pop_front() {
            match task {
                Task::Classify(id, request) => self.classify(id, request, now_ms),
                Task::Tell(event) => self.tell(&event, now_ms),
            }
        }
    }

    fn classify(&mut self, id: LifecycleId, mut request: ClassifyRequest, now_ms: f64) {
        let Some(live) = find(&mut self.live, id) else { return };
        live.raise_context(request.input_tokens);
        self.grown.remove(&id);
        request.request_id = live.request_id.clone().unwrap_or_default();
        request.context_tokens = live.context_tokens;
        self.counts.classified += 1;
        let answer = match self.introduce_workers(now_ms) {
            Ok(()) => self.classifier.classify(id.ticket(), &request, now_ms),
            Err(fault) => Err(fault),
        };
        match answer {
            Ok(Some(verdict)) => self.settle(id, verdict),
            Ok(None) => self.defer(id, now_ms),
            Err(fault) => {
                self.hand_back(id, AdmissionError::ClassifierFailed(fault.message.clone()));
                self.after_fault(fault);
            }
        }
    }

    fn tell(&mut self, event: &Event, now_ms: f64) {
        let answer = match self.introduce_workers(now_ms) {
            Ok(()) => self.classifier.on_event(event, now_ms),
            Err(fault) => Err(fault),
        };
        self.resolve(answer);
    }

    /// A new classifier learns of the workers before anything else. Where that ends it, what it was to do fails too.
    fn introduce_workers(&mut self, now_ms: f64) -> Result<(), ClassifierFault> {
        if !std::mem::take(&mut self.fresh) {
            return Ok(());
        }
        match self.classifier.on_event(&Event::Workers(self.workers.clone()), now_ms) {
            Err(fault) if fault.rebuilt => Err(fault),
            answer => {
                self.resolve(answer);
                Ok(())
            }
        }
    }

    fn expire(&mut self, now_ms: f64) {
        while let Some((_, id)) = self.deferred.first().copied().filter(|(until, _)| *until <= Moment(now_ms)) {
            self.deferred.pop_first();
            self.counts.expired += 1;
            self.hand_back(id, AdmissionError::DeferralExpired { max_ms: self.rules.max_deferral_ms });
        }
    }

    fn tick(&mut self, now_ms: f64) {
        if self.next_tick.is_none_or(|due| due > Moment(now_ms)) {
            return;
        }
        let mut progress = Vec::new();
        for id in std::mem::take(&mut self.grown) {
            if let Some(live) = find(&mut self.live, id).filter(|live| live.is_classified()) {
                progress.push(Progress { ticket: id.ticket(), context_tokens: live.context_tokens });
            }
        }
        let answer = match self.introduce_workers(now_ms) {
            Ok(()) => self.classifier.on_tick(now_ms, &progress),
            Err(fault) => Err(fault),
        };
        self.resolve(answer);
        self.plan_tick(now_ms);
    }

    fn plan_tick(&mut self, now_ms: f64) {
        let interval = self.classifier.tick_interval().map(|interval| interval.max(Duration::from_millis(1)));
        self.next_tick = interval.map(|interval| Moment(now_ms + interval.as_secs_f64() * 1000.0));
    }

    fn resolve(&mut self, answer: Result<Vec<Resolution>, ClassifierFault>) {
        let resolutions = match answer {
            Ok(resolutions) => resolutions,
            Err(fault) => return self.after_fault(fault),
        };
        for Resolution { ticket, verdict } in resolutions {
            match self.live.get(&ticket) {
                Some(&Live { id, phase: Phase::Deferred(_), .. }) => self.settle(id, verdict),
                _ => self.counts.ignored_resolutions += 1,
            }
        }
    }

    fn defer(&mut self, id: LifecycleId, now_ms: f64) {
        let Some(live) = find(&mut self.live, id) else { return };
        let until = Moment(now_ms + f64::from(self.rules.max_deferral_ms));
        live.phase = Phase::Deferred(until);
        self.deferred.insert((until, id));
    }

    fn settle(&mut self, id: LifecycleId, verdict: Verdict) {
        match verdict {
            Verdict::Reject(rejection) => {
                self.end(id, End::Failed(AdmissionError::Rejected(rejection)));
            }
            Verdict::Admit(admission) => match self.problem_of(&admission) {
                None => self.admit(id, admission),
                Some(problem) => {
                    self.count_fault(problem.clone());
                    self.hand_back(id, AdmissionError::InvalidClassification(problem));
                }
            },
        }
    }

    fn problem_of(&self, admission: &Admission) -> Option<String> {
        let Admission { policy_class, due_ms, scheduling_cost_tokens, target: _ } = admission;
        if *scheduling_cost_tokens == Some(0) {
            return Some("its scheduling cost is 0 tokens, not above".to_owned());
        }
        if let Some(due) = due_ms.filter(|due| !due.is_finite()) {
            return Some(format!("its due time is {due}, no number of milliseconds"));
        }
        let class = policy_class.as_deref().filter(|class| !(self.rules.takes_class)(class))?;
        Some(format!("its policy class {class:?} is neither an explicit class nor a family"))
    }

    fn admit(&mut self, id: LifecycleId, admission: Admission) {
        let Some(live) = find(&mut self.live, id) else { return };
        if let Phase::Deferred(until) = live.phase {
            self.deferred.remove(&(until, id));
        }
        self.outcomes.push_back(Outcome::Admitted(id, beside_pin(&admission, live.pinned)));
        live.phase = Phase::Admitted(admission, Stage::Queued);
    }

    /// A request whose classifier did not do its part ends, or goes on as it came.
    fn hand_back(&mut self, id: LifecycleId, error: AdmissionError) {
        match self.rules.on_fault {
            OnFault::Reject => {
                self.fail(id, error);
            }
            OnFault::Admit => self.admit(id, Admission::default()),
        }
    }

    /// A rebuilt classifier knows nothing of the requests that it deferred.
    fn after_fault(&mut self, fault: ClassifierFault) {
        if fault.rebuilt {
            self.forget_deferred(&AdmissionError::ClassifierFailed(fault.message.clone()));
        }
        self.count_fault(fault.message);
    }

    /// The classifier starts anew: it is to learn of the workers, and nobody resolves what was deferred before.
    fn forget_deferred(&mut self, error: &AdmissionError) {
        self.fresh = true;
        for (_, id) in std::mem::take(&mut self.deferred) {
            self.hand_back(id, error.clone());
        }
    }

    fn count_fault(&mut self, message: String) {
        self.counts.faults += 1;
        self.outcomes.push_back(Outcome::Faulted(message));
    }

    /// The one way out of a lifecycle.
    fn end(&mut self, id: LifecycleId, end: End) -> bool {
        if find(&mut self.live, id).is_none() {
            return false;
        }
        let Some(live) = self.live.remove(&id.ticket()) else { return false };
        self.grown.remove(&id);
        if let Phase::Deferred(until) = live.phase {
            self.deferred.remove(&(until, id));
        }
        if let Some(request_id) = &live.request_id {
            self.by_request.remove(request_id);
            self.line.push_back(Task::Tell(live.last_event(&end)));
        }
        self.outcomes.push_back(Outcome::Ended(id, end));
        true
    }

    fn refuse_when_closed(&self) -> Result<(), AdmissionError> {
        if self.closed { Err(AdmissionError::Shutdown) } else { Ok(()) }
    }

    /// The next id whose ticket no live request has: tickets start over after 2^32 requests.
    fn free_id(&mut self) -> LifecycleId {
        loop {
            self.last_id += 1;
            let id = LifecycleId(self.last_id);
            if !self.live.contains_key(&id.ticket()) {
                return id;
            }
        }
    }
}

impl Live {
    /// Raises the context's tokens; they never fall. Answers whether they have grown.
    const fn raise_context(&mut self, context_tokens: u32) -> bool {
        let grows = context_tokens > self.context_tokens;
        if grows {
            self.context_tokens = context_tokens;
        }
        grows
    }

    const fn is_classified(&self) -> bool {
        matches!(self.phase, Phase::Deferred(_) | Phase::Admitted(..))
    }

    fn last_event(&self, end: &End) -> Event {
        let ticket = self.id.ticket();
        let error = match end {
            End::Completed => None,
            End::Aborted(reason) => reason.clone(),
            End::Failed(error) => Some(error.to_string()),
        };
        match (end, self.worker) {
            (End::Completed, Some(worker)) => {
                Event::Completed { ticket, worker, context_tokens: self.observed.then_some(self.context_tokens) }
            }
            (_, worker) => Event::Aborted { ticket, worker, error },
        }
    }
}

/// The lifecycle, unless it has ended.
fn find(live: &mut FxHashMap<Ticket, Live>, id: LifecycleId) -> Option<&mut Live> {
    live.get_mut(&id.ticket()).filter(|live| live.id == id)
}

/// What an admission says to a request: its pin stays, whatever target the classifier sets.
fn beside_pin(admission: &Admission, pinned: bool) -> Admission {
    let target = if pinned { TargetChange::Keep } else { admission.target };
    Admission { target, ..admission.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct PassThrough;

    impl Classifier for PassThrough {}

    #[test]
    fn when_tickets_start_over_none_is_live_twice_and_an_old_lifecycle_stays_ended() {
        let takes_class = Box::new(|_: &str| true);
        let rules = LifecycleRules { on_fault: OnFault::Reject, max_deferral_ms: 1000, takes_class };
        let mut lives = Lifecycles::new(PassThrough, rules, 0.0);
        let [ended, live] = ["ended", "live"].map(|request_id| lives.begin(request_id).unwrap());
        lives.abort(ended, None);
        lives.last_id = u64::from(u32::MAX) + 1;
        let [again, beyond] = ["again", "beyond"].map(|request_id| lives.begin(request_id).unwrap());
        assert_eq!(again.ticket(), ended.ticket());
        assert_eq!(beyond.ticket(), live.ticket() + 1, "the next ticket is live");
        assert!(!lives.cancel(ended));
        let refused = lives.submit(Purpose::Serve(ended), ClassifyRequest::default());
        assert_eq!(refused, Err(AdmissionError::LifecycleEnded(ended)));
        assert!(lives.cancel(again));
    }
}
