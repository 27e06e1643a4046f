//! Admission in front of one partition: session affinity, then the classifier, then the policy-class queue, then worker
//! selection and its booking, in that order; and back, what became of the request.
//!
//! [`AdmissionController`] is a state machine: its owner tells it what happens and calls
//! [`advance`](AdmissionController::advance), which does what can be done now, and reads the outcomes. Time comes with
//! each call.

mod classifier;
mod held;

use std::collections::VecDeque;
use std::sync::Arc;

use pointsman_admission::{
    Acquired, AdmissionError, AffinityError, AffinityMode, AffinityTarget, ClassId, Classifier, End, LifecycleCounts,
    LifecycleId, LifecycleRules, Lifecycles, OnFault, Outcome, PolicyClass, PolicyQueue, Profile, Purpose, Pushed,
    SessionAffinity, Submitted, Usage,
};
use pointsman_contract::Admission;
use rustc_hash::FxHashMap;

use crate::error::DecideError;
use crate::partition::{Decision, Partition};
use crate::request::{Affinity, Request};
use crate::reservation::ReservationId;
pub use classifier::HostedClassifier;
pub(crate) use classifier::Workers;
use held::{Held, Place};

/// What the owner of an [`AdmissionController`] keeps of a request while it waits.
pub trait QueuedRequest {
    /// Lends the request to `with`. Its affinity and its time are the controller's to set.
    fn view<T>(&self, with: impl FnOnce(Request<'_>) -> T) -> T;
}

/// What the controller asks of its owner.
pub trait AdmissionHost<R> {
    /// Brings what the request knows of the workers up to date, such as its overlaps: it enters the queue, or leaves it.
    fn refresh(&mut self, request: &mut R) {
        let _ = request;
    }

    /// Decides which row serves the request.
    ///
    /// # Errors
    /// As [`Partition::decide`].
    fn decide(&mut self, partition: &Partition, request: &Request<'_>) -> Result<Decision, DecideError> {
        partition.decide(request)
    }

    /// Hears that a request was booked on the row of a decision.
    fn booked(&mut self, request: &R, decision: &Decision) {
        let _ = (request, decision);
    }
}

/// A request that asks to be served.
#[derive(Clone, Debug)]
pub struct Submission<R> {
    /// The caller's id of it; no two live requests share one.
    pub request_id: String,
    /// The policy class that the caller asks for.
    pub policy_class: Option<String>,
    /// When it came to the router, in milliseconds since the host's start.
    pub ingress_ms: f64,
    /// When it must have left the queue, where the caller says so.
    pub due_ms: Option<f64>,
    /// The request.
    pub request: R,
}

/// What the controller has to tell.
#[derive(Clone, Debug, PartialEq)]
pub enum AdmissionOutcome {
    /// A worker was chosen and booked: send the request there.
    Dispatched {
        /// The request.
        id: LifecycleId,
        /// What was decided.
        decision: Decision,
        /// The class that it waited in.
        class: ClassId,
        /// How long it waited in the queue, in milliseconds.
        queued_ms: f64,
    },
    /// The request is over; its last outcome. What it had booked is free again.
    Ended {
        /// The request.
        id: LifecycleId,
        /// How.
        end: End,
    },
    /// The classifier failed at something; a sentence for the operator's log.
    Faulted(String),
}

/// How a controller is set up.
pub struct AdmissionSetup<C> {
    /// The classifier.
    pub classifier: C,
    /// What becomes of requests whose classifier failed.
    pub on_fault: OnFault,
    /// The longest deferral, in milliseconds.
    pub max_deferral_ms: u32,
    /// The policy classes.
    pub profile: Arc<Profile>,
    /// The sessions and their workers; none where requests of a session need not stay together.
    pub affinity: Option<SessionAffinity>,
}

/// The admission of one partition. `R` is what its owner keeps of a request, `C` the classifier.
pub struct AdmissionController<R, C> {
    partition: Arc<Partition>,
    lifecycles: Lifecycles<C>,
    queue: PolicyQueue<LifecycleId>,
    affinity: Option<SessionAffinity>,
    requests: FxHashMap<LifecycleId, Held<R>>,
    /// Requests that wait for another one to bind their session, by the waiter's number.
    waiting: FxHashMap<u64, LifecycleId>,
    /// Requests that are about to enter the queue, in the order in which they were admitted.
    admitted: VecDeque<LifecycleId>,
    /// The time of the latest call that brought one.
    now_ms: f64,
    outcomes: VecDeque<AdmissionOutcome>,
}

impl<R: QueuedRequest, C: Classifier> AdmissionController<R, C> {
    /// No request yet, at `now_ms`.
    pub fn new(partition: Arc<Partition>, setup: AdmissionSetup<C>, now_ms: f64) -> Self {
        let AdmissionSetup { classifier, on_fault, max_deferral_ms, profile, affinity } = setup;
        let classes = Arc::clone(&profile);
        let takes_class = Box::new(move |name: &str| classes.choose_strictly(name, 0).is_ok());
        let mut lifecycles =
            Lifecycles::new(classifier, LifecycleRules { on_fault, max_deferral_ms, takes_class }, now_ms);
        lifecycles.set_workers(partition.classifier_workers());
        Self {
            partition,
            lifecycles,
            queue: PolicyQueue::new(profile),
            affinity,
            requests: FxHashMap::default(),
            waiting: FxHashMap::default(),
            admitted: VecDeque::new(),
            now_ms,
            outcomes: VecDeque::new(),
        }
    }

    /// Takes a request in. [`advance`](Self::advance) brings it on its way.
    ///
    /// # Errors
    /// Another live request has the id, its session is bound elsewhere or its id too long, or the controller is shut
    /// down. Nothing is kept of it.
    pub fn submit(&mut self, submission: Submission<R>, now_ms: f64) -> Result<LifecycleId, AdmissionError> {
        self.now_ms = now_ms;
        let id = self.lifecycles.begin(&submission.request_id)?;
        let class = self.queue.profile().choose(None, 0);
        self.requests.insert(id, Held::new(submission, class));
        if let Err(error) = self.enter(id) {
            // Nobody has heard of it: its end is this answer, and no outcome.
            self.forget(id);
            self.lifecycles.fail(id, error.clone());
            return Err(error);
        }
        Ok(id)
    }

    /// Takes the session's lease, then goes to the classifier; or waits until another request has bound the session.
    fn enter(&mut self, id: LifecycleId) -> Result<(), AdmissionError> {
        let Some(held) = self.requests.get_mut(&id) else { return Ok(()) };
        if let Some(affinity) = &mut self.affinity
            && let Some(session) = held.session()
        {
            let partition = &self.partition;
            let lives = |target: AffinityTarget| partition.has_target(target.worker, target.rank);
            match affinity.acquire(&session, held.own_pin(), lives, id.ticket().into(), self.now_ms) {
                Ok(Acquired::Bound(target, lease)) => {
                    held.lease = Some(lease);
                    held.bound = Some((target, affinity.mode() == AffinityMode::Hard));
                }
                Ok(Acquired::First(lease)) => held.lease = Some(lease),
                Ok(Acquired::Wait) => {
                    held.place = Place::Session;
                    self.waiting.insert(id.ticket().into(), id);
                    return Ok(());
                }
                // As in Dynamo's selection core: the request goes on without a session.
                Err(AffinityError::TableFull) => {}
                Err(error) => return Err(error.into()),
            }
        }
        held.place = Place::Classifier;
        let request = held.classify_request(&self.partition);
        match self.lifecycles.submit(Purpose::Serve(id), request)? {
            Submitted::Pending => {}
            Submitted::Admitted(admission) => self.enqueue_later(id, admission),
        }
        Ok(())
    }

    /// Asks where a request would go, and books nothing. It is queued as others are, the classifier never hears of it, and
    /// its session's worker is followed, not kept. Once a worker is found, its outcomes are [`AdmissionOutcome::Dispatched`]
    /// and the end [`End::Completed`].
    ///
    /// # Errors
    /// The controller is shut down.
    pub fn advise(&mut self, submission: Submission<R>, now_ms: f64) -> Result<LifecycleId, AdmissionError> {
        self.now_ms = now_ms;
        let id = self.lifecycles.begin_unclassified()?;
        let mut held = Held::new(submission, self.queue.profile().choose(None, 0));
        held.advice = true;
        if let Some(session) = held.session().filter(|_| held.own_pin().is_none()) {
            let target = self.session_target(&session, now_ms);
            held.bound = target.map(|Affinity { worker, rank, hard }| (AffinityTarget { worker, rank }, hard));
        }
        self.requests.insert(id, held);
        self.enqueue_later(id, Admission::default());
        Ok(id)
    }

    /// Where a session's requests go now; none where they go anywhere.
    #[must_use]
    pub fn session_target(&self, session: &str, now_ms: f64) -> Option<Affinity> {
        let affinity = self.affinity.as_ref()?;
        let AffinityTarget { worker, rank } = affinity.target(session, now_ms)?;
        let hard = affinity.mode() == AffinityMode::Hard;
        self.partition.has_target(worker, rank).then_some(Affinity { worker, rank, hard })
    }

    /// Books a request on the worker of an earlier decision, at once: past classifier and queue, of which it has no
    /// outcome before its end. Its session is bound to that worker, unless another request is about to bind it.
    ///
    /// # Errors
    /// The worker has gone, the request's session is bound elsewhere or its id too long, or the controller is shut down.
    /// Nothing is kept of it.
    pub fn place(
        &mut self,
        host: &mut impl AdmissionHost<R>,
        submission: Submission<R>,
        decision: Decision,
        now_ms: f64,
    ) -> Result<LifecycleId, AdmissionError> {
        self.now_ms = now_ms;
        let id = self.lifecycles.begin_unclassified()?;
        let class = self.queue.profile().choose(None, 0);
        self.requests.insert(id, Held::new(submission, class));
        if let Err(error) = self.settle(host, id, decision) {
            self.forget(id);
            self.lifecycles.fail(id, error.clone());
            return Err(error);
        }
        Ok(id)
    }

    fn settle(
        &mut self,
        host: &mut impl AdmissionHost<R>,
        id: LifecycleId,
        decision: Decision,
    ) -> Result<(), AdmissionError> {
        let Some(held) = self.requests.get_mut(&id) else { return Ok(()) };
        if let Some(affinity) = &mut self.affinity
            && let Some(session) = held.session()
        {
            let lives = |target: AffinityTarget| self.partition.has_target(target.worker, target.rank);
            match affinity.acquire(&session, held.own_pin(), lives, id.ticket().into(), self.now_ms) {
                Ok(Acquired::Bound(_, lease) | Acquired::First(lease)) => held.lease = Some(lease),
                Ok(Acquired::Wait) | Err(AffinityError::TableFull) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let (reservation, number) = book(held, &self.partition, &decision, self.now_ms)?;
        self.stand(id, Place::Worker { worker: decision.worker, reservation });
        self.lifecycles.chosen(id, number);
        self.bind_session(id)?;
        if let Some(held) = self.requests.get(&id) {
            host.booked(&held.submission.request, &decision);
        }
        Ok(())
    }

    /// The workers of the partition, their capacity or their availability changed.
    pub fn workers_changed(&mut self) {
        self.lifecycles.set_workers(self.partition.classifier_workers());
        self.queue.recheck_all();
    }

    /// The worker has returned a stream: the session is bound to it.
    ///
    /// # Errors
    /// The request's session is bound to another worker by a hard affinity: the request should end with this error.
    pub fn responding(&mut self, id: LifecycleId) -> Result<(), AdmissionError> {
        if self.lifecycles.responding(id) { self.bind_session(id) } else { Ok(()) }
    }

    /// Binds a request's session to its worker now, for a caller that does not see the worker's stream.
    ///
    /// # Errors
    /// As [`Self::responding`].
    pub fn bind_session(&mut self, id: LifecycleId) -> Result<(), AdmissionError> {
        let (Some(affinity), Some(held)) = (&mut self.affinity, self.requests.get_mut(&id)) else { return Ok(()) };
        if let (Place::Worker { worker, .. }, Some(lease)) = (&held.place, &mut held.lease) {
            affinity.commit(lease, AffinityTarget { worker: worker.worker, rank: Some(worker.rank) })?;
        }
        Ok(())
    }

    /// The prefill of a request is done.
    pub fn prefill_complete(&mut self, id: LifecycleId) {
        if let Some(&Held { place: Place::Worker { worker, reservation }, .. }) = self.requests.get(&id) {
            self.partition.prefill_complete(reservation);
            self.queue.recheck(worker);
        }
    }

    /// The answer of a request fills `blocks` further KV blocks.
    pub fn output_blocks(&mut self, id: LifecycleId, blocks: u64) {
        if let Some(&Held { place: Place::Worker { reservation, .. }, .. }) = self.requests.get(&id) {
            self.partition.output_blocks(reservation, blocks);
        }
    }

    /// The prompt and generated tokens of a request, as its worker tells. Less than before changes nothing.
    pub fn progress(&mut self, id: LifecycleId, context_tokens: u32) {
        self.lifecycles.progress(id, context_tokens);
    }

    /// The request is served. Answers whether it was live; its end is an outcome.
    pub fn complete(&mut self, id: LifecycleId) -> bool {
        self.lifecycles.complete(id)
    }

    /// The request is given up, for a reason that may be known. Answers whether it was live.
    pub fn abort(&mut self, id: LifecycleId, reason: Option<String>) -> bool {
        self.lifecycles.abort(id, reason)
    }

    /// The client has gone, wherever the request stands. Answers whether it was live.
    pub fn cancel(&mut self, id: LifecycleId) -> bool {
        self.lifecycles.cancel(id)
    }

    /// The worker failed before it answered: the request enters the queue again, as it was admitted at first, without
    /// asking the classifier. `change` may exclude the worker. Answers whether it was on a worker.
    ///
    /// # Errors
    /// The controller is shut down.
    pub fn retry(&mut self, id: LifecycleId, change: impl FnOnce(&mut R)) -> Result<bool, AdmissionError> {
        let Some(held) = self.requests.get_mut(&id) else { return Ok(false) };
        let Place::Worker { worker, reservation } = held.place else { return Ok(false) };
        self.partition.free(reservation);
        self.queue.recheck(worker);
        change(&mut held.submission.request);
        let request = held.classify_request(&self.partition);
        if let Submitted::Admitted(admission) = self.lifecycles.submit(Purpose::Serve(id), request)? {
            self.enqueue_later(id, admission);
        }
        Ok(true)
    }

    /// Does all that can be done now. To be called after changes, and at [`next_deadline`](Self::next_deadline).
    pub fn advance(&mut self, host: &mut impl AdmissionHost<R>, now_ms: f64) {
        self.now_ms = now_ms;
        loop {
            self.lifecycles.run(now_ms);
            let mut busy = self.take_outcomes();
            busy |= self.wake();
            while let Some(late) = self.queue.expire(now_ms) {
                self.lifecycles.fail(late.payload, AdmissionError::DeadlineExceeded);
                busy = true;
            }
            busy |= self.enqueue(host);
            busy |= self.dispatch(host);
            if !busy {
                return;
            }
        }
    }

    /// When [`advance`](Self::advance) has something to do though nothing changes.
    #[must_use]
    pub fn next_deadline(&self) -> Option<f64> {
        let earlier = |a: f64, b: f64| if b < a { b } else { a };
        self.lifecycles.next_deadline().into_iter().chain(self.queue.next_deadline()).reduce(earlier)
    }

    /// The oldest outcome not read yet.
    pub fn next_outcome(&mut self) -> Option<AdmissionOutcome> {
        self.outcomes.pop_front()
    }

    /// Ends every request and takes no more; the ends are outcomes.
    pub fn shut_down(&mut self) {
        self.lifecycles.shut_down();
        self.take_outcomes();
    }

    /// The policy classes.
    #[must_use]
    pub fn profile(&self) -> &Arc<Profile> {
        self.queue.profile()
    }

    /// What waits in a class.
    #[must_use]
    pub fn usage(&self, class: ClassId) -> Usage {
        self.queue.usage(class)
    }

    /// What waits in all classes.
    #[must_use]
    pub fn waiting(&self) -> Usage {
        self.queue.waiting()
    }

    /// The classifier, for what its owner has to tell it or ask it besides.
    pub const fn classifier_mut(&mut self) -> &mut C {
        self.lifecycles.classifier_mut()
    }

    /// Takes another classifier, such as that of another configuration, and hands the one before back. What that one
    /// deferred goes as its instance says of faults; everything else goes on.
    pub fn replace_classifier(&mut self, classifier: C, now_ms: f64) -> C {
        self.lifecycles.replace_classifier(classifier, now_ms)
    }

    /// What the lifecycles have counted.
    #[must_use]
    pub const fn counts(&self) -> LifecycleCounts {
        self.lifecycles.counts()
    }

    fn enqueue_later(&mut self, id: LifecycleId, admission: Admission) {
        if let Some(held) = self.requests.get_mut(&id) {
            held.admission = admission;
            held.place = Place::Admitted;
            self.admitted.push_back(id);
        }
    }

    /// Takes over what the lifecycles have to tell. Answers whether there was anything.
    fn take_outcomes(&mut self) -> bool {
        let mut any = false;
        while let Some(outcome) = self.lifecycles.next_outcome() {
            any = true;
            match outcome {
                Outcome::Admitted(id, admission) => self.enqueue_later(id, admission),
                Outcome::Ended(id, end) => self.leave(id, end),
                Outcome::Faulted(message) => self.outcomes.push_back(AdmissionOutcome::Faulted(message)),
            }
        }
        any
    }

    /// Brings the requests on their way whose session has been bound by another, or not. Answers whether there was any.
    fn wake(&mut self) -> bool {
        let mut any = false;
        while let Some(waiter) = self.affinity.as_mut().and_then(SessionAffinity::next_woken) {
            let Some(id) = self.waiting.remove(&waiter) else { continue };
            any = true;
            if let Err(error) = self.enter(id) {
                self.lifecycles.fail(id, error);
            }
        }
        any
    }

    /// Puts the admitted requests into the queue. Answers whether there was any.
    fn enqueue(&mut self, host: &mut impl AdmissionHost<R>) -> bool {
        let mut any = false;
        while let Some(id) = self.admitted.pop_front() {
            let (now_ms, partition) = (self.now_ms, &self.partition);
            let Some(held) = self.requests.get_mut(&id).filter(|held| held.place == Place::Admitted) else { continue };
            any = true;
            host.refresh(&mut held.submission.request);
            match held.arrival(self.queue.profile(), partition, now_ms) {
                Err(error) => _ = self.lifecycles.fail(id, error),
                Ok(arrival) => {
                    (held.class, held.queued_at_ms) = (arrival.class, now_ms);
                    let requests = &self.requests;
                    let admits =
                        |class: &PolicyClass, id: &LifecycleId| admits(requests, partition, class, *id, now_ms);
                    match self.queue.push(arrival, id, now_ms, partition.worker_count(), admits) {
                        Ok(Pushed::Waits(entry)) => self.stand(id, Place::Queue(entry)),
                        Ok(Pushed::Direct(id)) => self.send(host, id),
                        Err(refused) => _ = self.lifecycles.fail(id, refused.reason.into()),
                    }
                }
            }
        }
        any
    }

    /// Sends what the queue lets go. Answers whether there was anything.
    fn dispatch(&mut self, host: &mut impl AdmissionHost<R>) -> bool {
        let mut any = false;
        loop {
            let (requests, partition, now_ms) = (&self.requests, &self.partition, self.now_ms);
            let Some(queued) = self.queue.pop(|class, id| admits(requests, partition, class, *id, now_ms)) else {
                return any;
            };
            any = true;
            if let Some(held) = self.requests.get_mut(&queued.payload) {
                host.refresh(&mut held.submission.request);
            }
            self.send(host, queued.payload);
        }
    }

    /// Has a worker chosen, and books it.
    fn send(&mut self, host: &mut impl AdmissionHost<R>, id: LifecycleId) {
        let Some(held) = self.requests.get(&id) else { return };
        let (partition, advice) = (&self.partition, held.advice);
        let decided = held.view(partition, self.now_ms, |request| host.decide(partition, request));
        let booked = decided.map_err(AdmissionError::from).and_then(|decision| {
            let booking = if advice { None } else { Some(book(held, partition, &decision, self.now_ms)?) };
            Ok((decision, booking))
        });
        match booked {
            Ok((decision, booking)) => {
                let (class, queued_ms) = (held.class, self.now_ms - held.queued_at_ms);
                self.outcomes.push_back(AdmissionOutcome::Dispatched { id, decision, class, queued_ms });
                if let Some((reservation, number)) = booking {
                    host.booked(&held.submission.request, &decision);
                    self.stand(id, Place::Worker { worker: decision.worker, reservation });
                    self.lifecycles.sent(id, number);
                } else {
                    self.lifecycles.chosen(id, decision.row);
                    self.lifecycles.complete(id);
                }
            }
            Err(error) => _ = self.lifecycles.fail(id, error),
        }
    }

    fn stand(&mut self, id: LifecycleId, place: Place) {
        if let Some(held) = self.requests.get_mut(&id) {
            held.place = place;
        }
    }

    /// A request has ended.
    fn leave(&mut self, id: LifecycleId, end: End) {
        if self.forget(id) {
            self.outcomes.push_back(AdmissionOutcome::Ended { id, end });
        }
    }

    /// Gives back all that a request holds. Answers whether it was here.
    fn forget(&mut self, id: LifecycleId) -> bool {
        let Some(held) = self.requests.remove(&id) else { return false };
        match held.place {
            Place::Session => _ = self.waiting.remove(&id.ticket().into()),
            Place::Queue(entry) => _ = self.queue.cancel(entry),
            Place::Worker { worker, reservation } => {
                self.partition.free(reservation);
                self.queue.recheck(worker);
            }
            Place::Classifier | Place::Admitted => {}
        }
        if let (Some(affinity), Some(lease)) = (&mut self.affinity, held.lease) {
            affinity.release(lease, self.now_ms);
        }
        true
    }
}

/// Books a request; answers its reservation and its worker's number.
fn book<R: QueuedRequest>(
    held: &Held<R>,
    partition: &Partition,
    decision: &Decision,
    now_ms: f64,
) -> Result<(ReservationId, u32), AdmissionError> {
    let reservation = held.view(partition, now_ms, |request| partition.reserve(request, decision));
    let number = partition.number_of(decision.worker);
    reservation
        .zip(number)
        .ok_or_else(|| AdmissionError::BookingFailed(format!("{} has left the partition", decision.worker)))
}

/// Whether a request may go to worker selection now.
fn admits<R: QueuedRequest>(
    requests: &FxHashMap<LifecycleId, Held<R>>,
    partition: &Partition,
    class: &PolicyClass,
    id: LifecycleId,
    now_ms: f64,
) -> bool {
    let held = requests.get(&id);
    held.is_none_or(|held| held.view(partition, now_ms, |request| partition.admits(request, class)))
}

impl From<DecideError> for AdmissionError {
    fn from(error: DecideError) -> Self {
        match error {
            DecideError::NoEndpoints => Self::NoEndpoints,
            DecideError::AllEligibleWorkersOverloaded => Self::AllEligibleWorkersOverloaded,
            DecideError::AllEligibleWorkersFiltered => Self::AllEligibleWorkersFiltered,
            DecideError::PinnedWorkerOverloaded { worker } => Self::PinnedWorkerOverloaded { worker },
            DecideError::PinnedWorkerNotAllowed { worker } => Self::PinnedWorkerNotAllowed { worker },
            DecideError::Refused { .. } => Self::PolicyFailed(error.to_string()),
        }
    }
}
