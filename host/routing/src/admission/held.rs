//! One request in the controller's hands, and where it stands.

use pointsman_admission::{
    AdmissionError, AffinityTarget, Arrival, ClassId, ClassifyRequest, ClassifySession, EntryId, Lane, Lease, Profile,
    RequestTokens, WorkerKey,
};
use pointsman_contract::{Admission, TargetChange};

use super::{QueuedRequest, Submission};
use crate::eligibility;
use crate::partition::Partition;
use crate::request::{Affinity, Request};
use crate::reservation::ReservationId;

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Place {
    /// It waits for another request to bind its session.
    Session,
    /// The classifier has it.
    Classifier,
    /// It is about to enter the queue.
    Admitted,
    /// It waits in the queue.
    Queue(EntryId),
    /// It is booked on a worker.
    Worker { worker: WorkerKey, reservation: ReservationId },
}

/// A live request.
pub(super) struct Held<R> {
    pub(super) submission: Submission<R>,
    pub(super) place: Place,
    pub(super) lease: Option<Lease>,
    /// Where its session is bound, and whether it must go there.
    pub(super) bound: Option<(AffinityTarget, bool)>,
    pub(super) admission: Admission,
    pub(super) class: ClassId,
    pub(super) queued_at_ms: f64,
    /// Nothing is booked: what is asked for is the worker alone.
    pub(super) advice: bool,
}

impl<R: QueuedRequest> Held<R> {
    pub(super) fn new(submission: Submission<R>, class: ClassId) -> Self {
        Self {
            submission,
            place: Place::Session,
            lease: None,
            bound: None,
            admission: Admission::default(),
            class,
            queued_at_ms: 0.0,
            advice: false,
        }
    }

    pub(super) fn session(&self) -> Option<String> {
        self.submission.request.view(|request| request.session.map(|session| session.id.to_owned()))
    }

    /// The worker that the request itself asks for.
    pub(super) fn own_pin(&self) -> Option<AffinityTarget> {
        let pin = self.submission.request.view(|request| request.pinned);
        pin.map(|pin| AffinityTarget { worker: pin.worker, rank: Some(pin.rank) })
    }

    /// Lends the request as worker selection sees it: with the target of its session, or the classifier's.
    pub(super) fn view<T>(&self, partition: &Partition, now_ms: f64, with: impl FnOnce(&Request<'_>) -> T) -> T {
        self.submission.request.view(|request| {
            let own = request.affinity;
            let session = self.bound.map(|(AffinityTarget { worker, rank }, hard)| Affinity { worker, rank, hard });
            let bound = session.or(own);
            let affinity = match self.admission.target {
                // A hard target is the host's own rule.
                _ if bound.is_some_and(|affinity| affinity.hard) => bound,
                TargetChange::Keep => bound,
                TargetChange::Clear => None,
                TargetChange::Set(number) => partition.worker_of(number).map(|key| Affinity {
                    worker: key.worker,
                    rank: Some(key.rank),
                    hard: false,
                }),
            };
            with(&Request { now_ms, affinity, ..request })
        })
    }

    /// How it enters the queue, by what is known of the workers now.
    ///
    /// # Errors
    /// The classifier set a class that there is not.
    pub(super) fn arrival(
        &self,
        profile: &Profile,
        partition: &Partition,
        now_ms: f64,
    ) -> Result<Arrival, AdmissionError> {
        let Submission { policy_class, ingress_ms, due_ms, .. } = &self.submission;
        self.view(partition, now_ms, |request| {
            let mut tokens = tokens(request);
            let class = match &self.admission.policy_class {
                Some(name) => profile
                    .choose_strictly(name, tokens.uncached())
                    .map_err(|error| AdmissionError::InvalidClassification(error.to_string()))?,
                None => profile.choose(policy_class.as_deref(), tokens.uncached()),
            };
            if let Some(cost) = self.admission.scheduling_cost_tokens {
                tokens = tokens.with_cost(cost.into());
            }
            Ok(Arrival {
                class,
                lane: lane(request),
                tokens,
                strict_priority: request.strict_priority,
                priority_jump: request.priority_jump,
                ingress_ms: *ingress_ms,
                due_ms: self.admission.due_ms.or(*due_ms),
            })
        })
    }

    /// What a classifier may read of it.
    pub(super) fn classify_request(&self, partition: &Partition) -> ClassifyRequest {
        let Submission { policy_class, ingress_ms, due_ms, .. } = &self.submission;
        self.view(partition, *ingress_ms, |request| ClassifyRequest {
            policy_class: policy_class.clone(),
            input_tokens: saturated(request.prompt_tokens),
            ingress_ms: *ingress_ms,
            due_ms: *due_ms,
            scheduling_cost_tokens: saturated(tokens(request).cost()),
            session: request.session.map(|session| ClassifySession {
                id: session.id.to_owned(),
                parent_id: session.parent_id.map(str::to_owned),
                last: session.last,
                trigger: session.trigger,
            }),
            pin: eligibility::pin(request),
            headers: request.headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            ..ClassifyRequest::default()
        })
    }
}

fn saturated(tokens: u64) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
}

/// The request's tokens as the queue counts them: what the best worker that the caller allows has of the prompt is cached.
fn tokens(request: &Request<'_>) -> RequestTokens {
    let pin = eligibility::pin(request);
    let may_serve = |key: WorkerKey| pin.is_none_or(|pin| pin == key) && eligibility::allows(request, key.worker);
    let cached = request.overlaps.iter().filter(|overlap| may_serve(overlap.key)).map(|overlap| overlap.cached_tokens);
    RequestTokens::new(request.prompt_tokens, cached.fold(0.0, f64::max) as u64)
}

/// Where the request waits: with its pin, with the one worker of a hard target, or with all others.
fn lane(request: &Request<'_>) -> Lane {
    match (eligibility::pin(request), request.affinity.filter(|affinity| affinity.hard)) {
        (Some(pin), _) => Lane::Rank(pin),
        (None, Some(target)) => Lane::Worker(target.worker),
        (None, None) => Lane::Shared,
    }
}
