//! A request classifier: the trait, what it sees of a request, and its place in a guest.

use std::ops::Deref;
use std::sync::Arc;

use pointsman_contract::{Event, Fact, LEAST_TICK_MS, Progress, Resolution, Text, Ticket, Verdict};

use crate::guest::{Exported, Guest};
use crate::layout::{Places, Stage, Table};
use crate::view::Request;
use crate::{PolicyError, Reads};

/// Admission: whether, when and how a request enters the queue. A reactor: no call waits.
///
/// [`AsyncClassifier`](crate::AsyncClassifier) is the same with a future for each request, which may await.
///
/// Each ticket ends with exactly one terminal event ([`Event::ended`]), whatever became of its request; a classifier
/// forgets a ticket there.
pub trait Classifier {
    /// What the classifier reads: facts and texts. Asked once, after `configure`.
    fn reads(&self) -> Reads;

    /// How often [`on_tick`](Self::on_tick) is called, in milliseconds, at least 10; none for never. Asked once, after
    /// `configure`.
    fn tick_ms(&self) -> Option<u32> {
        None
    }

    /// Decides about one request; none defers it.
    ///
    /// # Errors
    /// A sentence for the operator's log; the host treats this request as its setting `on_fault` says.
    fn classify(&mut self, request: &ClassifyRequest<'_>) -> Result<Option<Verdict>, PolicyError>;

    /// Hears of an event and resolves deferred requests.
    ///
    /// # Errors
    /// A sentence for the operator's log; nothing is resolved.
    fn on_event(&mut self, event: &Event, now_ms: f64) -> Result<Vec<Resolution>, PolicyError> {
        let _ = (event, now_ms);
        Ok(Vec::new())
    }

    /// Called every [`tick_ms`](Self::tick_ms), with the live requests whose tokens grew since the last call; resolves
    /// deferred requests.
    ///
    /// # Errors
    /// A sentence for the operator's log; nothing is resolved.
    fn on_tick(&mut self, now_ms: f64, progress: &[Progress]) -> Result<Vec<Resolution>, PolicyError> {
        let _ = (now_ms, progress);
        Ok(Vec::new())
    }
}

/// The request that is classified: Dynamo's `ClassifyRequest`.
///
/// Each accessor answers an error where the classifier did not declare what it reads. What every stage may read is at
/// [`Request`].
#[derive(Clone, Copy, Debug)]
pub struct ClassifyRequest<'a> {
    ticket: Ticket,
    request: Request<'a>,
    stage: &'a Arc<Stage>,
}

impl<'a> Deref for ClassifyRequest<'a> {
    type Target = Request<'a>;

    fn deref(&self) -> &Request<'a> {
        &self.request
    }
}

impl<'a> ClassifyRequest<'a> {
    /// The host's number of this request. Needs no declaration.
    #[must_use]
    pub const fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// The request's identifier. Reads [`Text::RequestId`].
    ///
    /// # Errors
    /// Where the classifier does not read it.
    pub fn request_id(&self) -> Result<Option<&'a str>, PolicyError> {
        self.text(Text::RequestId)
    }

    /// The policy class that the caller asked for. Reads [`Text::RequestPolicyClass`].
    ///
    /// # Errors
    /// Where the classifier does not read it.
    pub fn policy_class(&self) -> Result<Option<&'a str>, PolicyError> {
        self.text(Text::RequestPolicyClass)
    }

    /// When the router got the request, on the clock of [`now_ms`](Request::now_ms). Reads [`Fact::IngressMs`].
    ///
    /// # Errors
    /// Where the classifier does not read it.
    pub fn ingress_ms(&self) -> Result<f64, PolicyError> {
        self.present(Fact::IngressMs)
    }

    /// Prompt and generated tokens so far. Reads [`Fact::ContextTokens`].
    ///
    /// # Errors
    /// Where the classifier does not read it.
    pub fn context_tokens(&self) -> Result<f64, PolicyError> {
        self.present(Fact::ContextTokens)
    }

    /// When the request must have left the queue, on the clock of [`now_ms`](Request::now_ms). Reads [`Fact::DueMs`].
    ///
    /// # Errors
    /// Where the classifier does not read it.
    pub fn due_ms(&self) -> Result<Option<f64>, PolicyError> {
        self.fact(Fact::DueMs)
    }

    /// What the queue charges: prompt tokens that no worker has cached, at least 1. Reads
    /// [`Fact::SchedulingCostTokens`].
    ///
    /// # Errors
    /// Where the classifier does not read it.
    pub fn scheduling_cost_tokens(&self) -> Result<f64, PolicyError> {
        self.present(Fact::SchedulingCostTokens)
    }

    /// The number of the worker that the request is pinned to. Reads [`Fact::PinnedWorker`].
    ///
    /// # Errors
    /// Where the classifier does not read it.
    pub fn pinned_worker(&self) -> Result<Option<u32>, PolicyError> {
        // `as` saturates; the host sends a u32.
        Ok(self.fact(Fact::PinnedWorker)?.map(|number| number as u32))
    }

    fn present(&self, fact: Fact) -> Result<f64, PolicyError> {
        self.fact(fact).map(|value| value.unwrap_or(fact.absent()))
    }

    /// The request for a future to keep.
    pub(crate) fn owned(&self) -> OwnedRequest {
        let (table, block_size) = self.request.parts();
        OwnedRequest {
            ticket: self.ticket,
            numbers: table.numbers.to_vec(),
            texts: table.texts.to_owned(),
            stage: Arc::clone(self.stage),
            block_size,
        }
    }
}

/// A request that is classified over several events: [`read`](Self::read) shows it.
#[derive(Debug)]
pub struct OwnedRequest {
    ticket: Ticket,
    numbers: Vec<f64>,
    texts: Vec<Option<String>>,
    stage: Arc<Stage>,
    block_size: u32,
}

impl OwnedRequest {
    /// The request as it was when it was classified.
    #[must_use]
    pub fn read(&self) -> ClassifyRequest<'_> {
        let table =
            Table { rows: 0, numbers: &self.numbers, workers: &[], texts: crate::layout::Texts::Owned(&self.texts) };
        ClassifyRequest {
            ticket: self.ticket,
            request: Request::new(table, self.stage.alone(), self.block_size),
            stage: &self.stage,
        }
    }
}

/// What runs a policy's classifier; chosen by [`export!`](crate::export!).
#[doc(hidden)]
pub trait Reactor<P>: Default + Send + 'static {
    fn reads(policy: &P) -> Reads;
    fn tick_ms(policy: &P) -> Option<u32>;
    fn classify(&mut self, policy: &mut P, request: &ClassifyRequest<'_>) -> Result<Option<Verdict>, PolicyError>;
    fn on_event(&mut self, policy: &mut P, event: &Event, now_ms: f64) -> Result<Vec<Resolution>, PolicyError>;
    fn on_tick(&mut self, policy: &mut P, now_ms: f64, progress: &[Progress]) -> Result<Vec<Resolution>, PolicyError>;
}

/// The reactor of a policy that is no classifier.
#[doc(hidden)]
#[derive(Default)]
pub struct NoClassifier;

pub(crate) const NO_CLASSIFIER: &str = "the policy has no classifier";

fn none<T>() -> Result<T, PolicyError> {
    Err(PolicyError::failed(NO_CLASSIFIER))
}

impl<P> Reactor<P> for NoClassifier {
    fn reads(_: &P) -> Reads {
        Reads::NONE
    }

    fn tick_ms(_: &P) -> Option<u32> {
        None
    }

    fn classify(&mut self, _: &mut P, _: &ClassifyRequest<'_>) -> Result<Option<Verdict>, PolicyError> {
        none()
    }

    fn on_event(&mut self, _: &mut P, _: &Event, _: f64) -> Result<Vec<Resolution>, PolicyError> {
        none()
    }

    fn on_tick(&mut self, _: &mut P, _: f64, _: &[Progress]) -> Result<Vec<Resolution>, PolicyError> {
        none()
    }
}

/// The reactor of a [`Classifier`]: the policy itself.
#[doc(hidden)]
#[derive(Default)]
pub struct Direct;

impl<P: Classifier> Reactor<P> for Direct {
    fn reads(policy: &P) -> Reads {
        policy.reads()
    }

    fn tick_ms(policy: &P) -> Option<u32> {
        policy.tick_ms()
    }

    fn classify(&mut self, policy: &mut P, request: &ClassifyRequest<'_>) -> Result<Option<Verdict>, PolicyError> {
        policy.classify(request)
    }

    fn on_event(&mut self, policy: &mut P, event: &Event, now_ms: f64) -> Result<Vec<Resolution>, PolicyError> {
        policy.on_event(event, now_ms)
    }

    fn on_tick(&mut self, policy: &mut P, now_ms: f64, progress: &[Progress]) -> Result<Vec<Resolution>, PolicyError> {
        policy.on_tick(now_ms, progress)
    }
}

/// A guest's classifier: what it reads, where it finds it, and what runs it.
pub(crate) struct Classify<R> {
    stage: Arc<Stage>,
    tick_ms: Option<u32>,
    reactor: R,
}

impl<R> Classify<R> {
    /// Asks the classifier what it reads.
    pub(crate) fn configure<P>(policy: &P) -> Result<Self, PolicyError>
    where
        R: Reactor<P>,
    {
        let (reads, tick_ms) = (R::reads(policy), R::tick_ms(policy));
        if reads.has_workers() || reads.has_cost() || reads.signals() != 0 || !reads.named_signals().is_empty() {
            return Err(PolicyError::failed(
                "the classifier reads signals or workers; it may read facts and texts alone",
            ));
        }
        if tick_ms.is_some_and(|tick_ms| tick_ms < LEAST_TICK_MS) {
            return Err(PolicyError::failed(format!("the classifier's tick_ms must be at least {LEAST_TICK_MS}")));
        }
        let alone = Places::of([&reads]);
        Ok(Self { stage: Arc::new(Stage::new(reads, &alone)), tick_ms, reactor: R::default() })
    }

    pub(crate) fn stage(&self) -> &Stage {
        &self.stage
    }

    pub(crate) const fn tick_ms(&self) -> Option<u32> {
        self.tick_ms
    }
}

impl<P: Exported> Guest<P> {
    /// `table` has no rows.
    pub(crate) fn classify(&mut self, ticket: Ticket, table: Table<'_>) -> Result<Option<Verdict>, PolicyError> {
        let (policy, Classify { stage, reactor, .. }, block_size) = self.classifier();
        let [facts, texts, _] = stage.alone.counts.map(usize::from);
        if table.numbers.len() != facts || table.texts.len() != texts {
            return Err(crate::layout::not_as_declared());
        }
        let request = ClassifyRequest { ticket, request: Request::new(table, stage.alone(), block_size), stage };
        reactor.classify(policy, &request)
    }

    pub(crate) fn on_event(&mut self, event: &Event, now_ms: f64) -> Result<Vec<Resolution>, PolicyError> {
        let (policy, Classify { reactor, .. }, _) = self.classifier();
        reactor.on_event(policy, event, now_ms)
    }

    pub(crate) fn on_tick(&mut self, now_ms: f64, progress: &[Progress]) -> Result<Vec<Resolution>, PolicyError> {
        let (policy, Classify { reactor, .. }, _) = self.classifier();
        reactor.on_tick(policy, now_ms, progress)
    }
}
