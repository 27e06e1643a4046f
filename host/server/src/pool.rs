//! One routing partition at work: admission in front of it, and the requests that wait for it.
//!
//! A request comes in by [`Pool::dispatch`] and leaves with a [`Lease`] on a worker. Everything a request holds, in the
//! queue or on a worker, is given back when its future or its lease is dropped, exactly once.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use pointsman_admission::{AdmissionError, End, LifecycleId, OnFault, Profiles, Usage};
use pointsman_routing::{
    AdmissionController, AdmissionHost, AdmissionOutcome, AdmissionSetup, DecideError, Decision, HostedClassifier,
    Partition, QueuedRequest, Request, Router, RouterError, Session, Submission, Trigger, WorkerKey, WorkerOverlap,
};
use pointsman_signals::{KvEventStats, PromptInput, PromptReader};
use rustc_hash::FxHashMap;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use crate::clock::Clock;
use crate::fleet::WorkerSpec;
use crate::observe::{DecisionMade, Observer, RequestEnded};
use crate::pace::Pace;
use crate::signals::{PrefixIndex, Prompt, Signals};
use crate::sync::locked;

/// What a request that waits knows of the workers is looked up again after so long, in milliseconds.
const REFRESH_AFTER_MS: f64 = 10_000.0;

/// A request's session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its id.
    pub id: String,
    /// The session that started it.
    pub parent_id: Option<String>,
    /// Whether this is its last request.
    pub last: Option<bool>,
    /// What set the request off.
    pub trigger: Option<Trigger>,
}

/// What a request asks of a partition.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Names the decision in the decision log.
    pub decision_id: String,
    /// The prompt.
    pub prompt: Prompt,
    /// Whether the request counts towards prefill load.
    pub tracks_prefill_tokens: bool,
    /// Expected tokens of the answer.
    pub expected_output_tokens: Option<u32>,
    /// The scheduler's priority boost, in seconds.
    pub priority_jump: f64,
    /// The strict priority: larger goes first.
    pub strict_priority: u32,
    /// The request's own router temperature.
    pub router_temperature: Option<f64>,
    /// The one row that may serve the request.
    pub pinned: Option<WorkerKey>,
    /// A worker that the caller advises or demands.
    pub affinity: Option<pointsman_routing::Affinity>,
    /// The ids of the workers that the caller allows.
    pub allowed: Option<Vec<u64>>,
    /// Taints that the worker must have.
    pub required_taints: Vec<String>,
    /// Taints that make a worker cheaper (weight above 0) or dearer.
    pub preferred_taints: Vec<(String, f64)>,
    /// The session.
    pub session: Option<SessionInfo>,
    /// Headers that the operator grants to policies, lower-case names.
    pub headers: Vec<(String, String)>,
    /// The chain by which the prompt's prefixes are looked up, where it is another one than that of its blocks.
    pub index_hashes: Option<Vec<u64>>,
    overlaps: Vec<WorkerOverlap>,
    refreshed_ms: Option<f64>,
    failed: Vec<u64>,
    available: Option<Vec<u64>>,
}

/// Names the decision of a request's first try, counted from 0, or a later one.
pub(crate) fn decision_id(request: &str, attempt: usize) -> String {
    format!("{request}/{attempt}")
}

impl Ask {
    /// A request with that prompt and no rules.
    #[must_use]
    pub const fn new(prompt: Prompt) -> Self {
        Self {
            decision_id: String::new(),
            prompt,
            tracks_prefill_tokens: true,
            expected_output_tokens: None,
            priority_jump: 0.0,
            strict_priority: 0,
            router_temperature: None,
            pinned: None,
            affinity: None,
            allowed: None,
            required_taints: Vec::new(),
            preferred_taints: Vec::new(),
            session: None,
            headers: Vec::new(),
            index_hashes: None,
            overlaps: Vec::new(),
            refreshed_ms: None,
            failed: Vec::new(),
            available: None,
        }
    }

    /// What the request's workers hold of its prompt, as it was looked up last, sorted by row.
    #[must_use]
    pub fn overlaps(&self) -> &[WorkerOverlap] {
        &self.overlaps
    }

    /// The chain by which the prompt's prefixes are looked up.
    #[must_use]
    pub fn prefix(&self) -> &[u64] {
        self.index_hashes.as_deref().unwrap_or(&self.prompt.block_hashes)
    }

    /// Roughly the memory behind it, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let numbers = [&self.index_hashes, &self.allowed, &self.available];
        let numbers: usize = numbers.into_iter().flatten().map(Vec::len).sum();
        let of = |texts: &[String]| texts.iter().map(String::len).sum::<usize>();
        let session = self.session.as_ref();
        let texts = self.decision_id.len()
            + session.map_or(0, |session| session.id.len() + session.parent_id.as_ref().map_or(0, String::len))
            + of(&self.required_taints)
            + self.preferred_taints.iter().map(|(taint, _)| taint.len()).sum::<usize>()
            + self.headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        (self.prompt.block_hashes.len() + numbers) * size_of::<u64>() + size_of_val(&*self.overlaps) + texts
    }

    /// Keeps the request off a worker that has failed it.
    fn exclude(&mut self, worker: u64, partition: &Partition) {
        self.failed.push(worker);
        if let Some((request, _)) = self.decision_id.rsplit_once('/') {
            self.decision_id = decision_id(request, self.failed.len());
        }
        let mut left: Vec<u64> = partition.rows().iter().map(|row| row.worker).collect();
        left.dedup();
        left.retain(|worker| !self.failed.contains(worker));
        self.available = Some(left);
    }
}

impl QueuedRequest for Ask {
    fn view<T>(&self, with: impl FnOnce(Request<'_>) -> T) -> T {
        let required: Vec<&str> = self.required_taints.iter().map(String::as_str).collect();
        let preferred: Vec<(&str, f64)> =
            self.preferred_taints.iter().map(|(taint, weight)| (taint.as_str(), *weight)).collect();
        let headers: Vec<(&str, &str)> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        with(Request {
            id: &self.decision_id,
            prompt_tokens: self.prompt.tokens,
            block_hashes: &self.prompt.block_hashes,
            tracks_prefill_tokens: self.tracks_prefill_tokens,
            expected_output_tokens: self.expected_output_tokens,
            priority_jump: self.priority_jump,
            strict_priority: self.strict_priority,
            router_temperature: self.router_temperature,
            pinned: self.pinned,
            affinity: self.affinity,
            allowed: self.allowed.as_deref(),
            available: self.available.as_deref(),
            required_taints: &required,
            preferred_taints: &preferred,
            overlaps: &self.overlaps,
            session: self.session.as_ref().map(|session| Session {
                id: &session.id,
                parent_id: session.parent_id.as_deref(),
                last: session.last,
                trigger: session.trigger,
            }),
            headers: &headers,
            ..Request::default()
        })
    }
}

type Controller = AdmissionController<Ask, HostedClassifier>;
type Answer = Result<Dispatched, AdmissionError>;

#[derive(Debug)]
struct Dispatched {
    decision: Decision,
    queued_ms: f64,
}

/// The controller, and who waits for its outcomes.
struct Desk {
    controller: Controller,
    waiting: FxHashMap<LifecycleId, oneshot::Sender<Answer>>,
}

/// One partition with its admission. Shared by everything that asks it for workers.
pub struct Pool {
    partition: Arc<Partition>,
    desk: Mutex<Desk>,
    pace: Pace,
    clock: Clock,
    reader: PromptReader,
    index: Option<Box<dyn PrefixIndex>>,
    observer: Arc<dyn Observer>,
    /// The controller's next deadline has come nearer.
    sooner: Notify,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("key", self.partition.key()).finish_non_exhaustive()
    }
}

impl Pool {
    /// Admission in front of a partition, as the router's policies say. `runtime` runs its timer until the pool goes.
    pub(crate) fn start(
        router: &Router,
        partition: Arc<Partition>,
        signals: &dyn Signals,
        observer: Arc<dyn Observer>,
        clock: Clock,
        runtime: &Handle,
    ) -> Result<Arc<Self>, RouterError> {
        let now_ms = clock.now_ms();
        let controller = match router.admission(&partition, now_ms)? {
            Some(controller) => controller,
            None => AdmissionController::new(Arc::clone(&partition), open(&partition), now_ms),
        };
        let reader = signals.reader(&partition.key().model, partition.block_size());
        let index = signals.index(partition.key(), partition.block_size());
        partition.set_taps(observer.taps(&partition));
        let pool = Arc::new(Self {
            desk: Mutex::new(Desk { controller, waiting: FxHashMap::default() }),
            pace: Pace::default(),
            clock,
            reader,
            index,
            observer,
            sooner: Notify::new(),
            partition,
        });
        runtime.spawn(keep_time(Arc::downgrade(&pool)));
        Ok(pool)
    }

    /// The partition.
    #[must_use]
    pub const fn partition(&self) -> &Arc<Partition> {
        &self.partition
    }

    /// Reads a prompt, with the model's tokenizer where it has one.
    pub async fn read(&self, input: PromptInput) -> Prompt {
        let read = self.reader.read(input).await;
        Prompt { tokens: read.tokens, block_hashes: read.block_hashes }
    }

    /// Whether prompts need their blocks: something looks overlaps up.
    #[must_use]
    pub fn wants_blocks(&self) -> bool {
        self.index.is_some() && self.partition.wants_overlaps()
    }

    /// Whether any policy class lets requests wait, so that a worker has to tell its limit of batched tokens.
    #[must_use]
    pub fn queues(&self) -> bool {
        locked(&self.desk).controller.profile().classes().iter().any(|class| class.can_queue())
    }

    /// What waits in each policy class, by its name.
    #[must_use]
    pub fn waiting_by_class(&self) -> Vec<(String, Usage)> {
        let desk = locked(&self.desk);
        let controller = &desk.controller;
        let profile = controller.profile();
        profile.ids().map(|id| (profile.class(id).name.clone(), controller.usage(id))).collect()
    }

    /// Brings a request through admission to a worker, and books it there. Dropping the future gives it up.
    ///
    /// # Errors
    /// Why the request is not served; nothing is held then.
    pub async fn dispatch(self: &Arc<Self>, submission: Submission<Ask>) -> Result<Lease, AdmissionError> {
        self.enter(|controller, now_ms| controller.submit(submission, now_ms)).await
    }

    /// Which worker serves the request once it is its turn. Books nothing, and asks no classifier. Dropping the future
    /// gives it up.
    ///
    /// # Errors
    /// As [`Self::dispatch`].
    pub async fn advise(self: &Arc<Self>, submission: Submission<Ask>) -> Result<Decision, AdmissionError> {
        let over = self.enter(|controller, now_ms| controller.advise(submission, now_ms)).await?;
        Ok(over.decision)
    }

    /// Books a request on the worker of an earlier decision, at once: no classifier is asked, and it does not queue.
    ///
    /// # Errors
    /// The worker has gone, or the request's session is bound elsewhere; nothing is held then.
    pub fn place(self: &Arc<Self>, submission: Submission<Ask>, decision: Decision) -> Result<Lease, AdmissionError> {
        let id = self.with_desk(|desk, now_ms| desk.controller.place(&mut Host(self), submission, decision, now_ms))?;
        Ok(Lease { ticket: Ticket { pool: Arc::clone(self), id, live: true }, decision, queued_ms: 0.0 })
    }

    async fn enter(
        self: &Arc<Self>,
        enter: impl FnOnce(&mut Controller, f64) -> Result<LifecycleId, AdmissionError>,
    ) -> Result<Lease, AdmissionError> {
        let (sender, receiver) = oneshot::channel();
        let id = self.with_desk(|desk, now_ms| {
            let id = enter(&mut desk.controller, now_ms)?;
            desk.waiting.insert(id, sender);
            Ok::<_, AdmissionError>(id)
        })?;
        Ticket { pool: Arc::clone(self), id, live: true }.wait(receiver).await
    }

    /// What the partition's workers hold of a prompt, sorted by row, also where its policy reads nothing of it.
    #[must_use]
    pub fn overlaps(&self, chain: &[u64]) -> Vec<WorkerOverlap> {
        let mut overlaps = Vec::new();
        if let Some(index) = &self.index
            && !chain.is_empty()
        {
            index.overlaps(&self.partition, chain, self.clock.now_ms(), &mut overlaps);
        }
        overlaps
    }

    /// The same for a request, which need not look it up again if it is served soon.
    #[must_use]
    pub fn look_up(&self, ask: &mut Ask) -> Vec<WorkerOverlap> {
        let overlaps = self.overlaps(ask.prefix());
        if self.wants_blocks() {
            (ask.overlaps, ask.refreshed_ms) = (overlaps.clone(), Some(self.clock.now_ms()));
        }
        overlaps
    }

    /// What came of KV events so far, of each worker that publishes them.
    #[must_use]
    pub fn kv_events(&self) -> Vec<(u64, KvEventStats)> {
        self.index.as_ref().map_or_else(Vec::new, |index| index.kv_events())
    }

    /// What waits, in all policy classes.
    #[must_use]
    pub fn waiting(&self) -> Usage {
        locked(&self.desk).controller.waiting()
    }

    /// Which worker would serve the request now. Books nothing, and asks no classifier.
    ///
    /// # Errors
    /// As [`Partition::decide`].
    pub fn pick(&self, ask: &mut Ask) -> Result<Decision, DecideError> {
        self.pace.run(|| {
            let now_ms = self.clock.now_ms();
            self.refresh(ask, now_ms);
            if let (Some(session), None, None) = (&ask.session, ask.affinity, ask.pinned) {
                ask.affinity = locked(&self.desk).controller.session_target(&session.id, now_ms);
            }
            ask.view(|request| self.partition.decide(&Request { now_ms, ..request }))
        })
    }

    /// The worker is of the partition now, or tells something else of itself.
    pub(crate) fn joined(&self, worker: &WorkerSpec, runtime: &Handle) {
        if let Some(index) = &self.index {
            index.joined(worker, runtime);
        }
    }

    /// The partition's workers changed.
    pub(crate) fn workers_changed(&self, gone: Option<u64>) {
        if let (Some(index), Some(worker)) = (&self.index, gone) {
            index.removed(worker);
        }
        self.with_desk(|desk, _| desk.controller.workers_changed());
    }

    /// Takes another classifier in place of the one that there is.
    pub(crate) fn replace_classifier(&self, classifier: HostedClassifier) {
        let before = self.with_desk(|desk, now_ms| desk.controller.replace_classifier(classifier, now_ms));
        drop(before);
    }

    /// Ends every request and takes no more.
    pub(crate) fn shut_down(&self) {
        self.with_desk(|desk, _| desk.controller.shut_down());
    }

    /// Changes something, then does all that can be done now, and tells who waits for it.
    fn with_desk<T>(&self, change: impl FnOnce(&mut Desk, f64) -> T) -> T {
        self.pace.run(|| {
            let now_ms = self.clock.now_ms();
            let mut desk = locked(&self.desk);
            let before = desk.controller.next_deadline();
            let value = change(&mut desk, now_ms);
            desk.controller.advance(&mut Host(self), now_ms);
            desk.tell(self);
            let after = desk.controller.next_deadline();
            drop(desk);
            if after.is_some_and(|after| before.is_none_or(|before| after < before)) {
                self.sooner.notify_one();
            }
            value
        })
    }

    /// Looks up which workers hold a prefix of the prompt, unless that is fresh.
    fn refresh(&self, ask: &mut Ask, now_ms: f64) {
        let Some(index) = &self.index else { return };
        let fresh = ask.refreshed_ms.is_some_and(|then| now_ms - then < REFRESH_AFTER_MS);
        if fresh || ask.prefix().is_empty() || !self.partition.wants_overlaps() {
            return;
        }
        let mut overlaps = std::mem::take(&mut ask.overlaps);
        index.overlaps(&self.partition, ask.prefix(), now_ms, &mut overlaps);
        (ask.overlaps, ask.refreshed_ms) = (overlaps, Some(now_ms));
    }
}

/// Admission where nothing is configured: every request goes on as it comes.
fn open(partition: &Partition) -> AdmissionSetup<HostedClassifier> {
    AdmissionSetup {
        classifier: HostedClassifier::none(),
        on_fault: OnFault::default(),
        max_deferral_ms: u32::MAX,
        profile: Arc::clone(Profiles::default().of(&partition.key().model)),
        affinity: None,
    }
}

/// Wakes a pool's controller when it has something to do though nothing changes.
async fn keep_time(pool: Weak<Pool>) {
    // A pool that has gone is noticed at the latest after so long.
    const LONGEST: Duration = Duration::from_secs(1);
    loop {
        let Some(held) = pool.upgrade() else { return };
        let wait = locked(&held.desk).controller.next_deadline().map_or(LONGEST, |deadline| {
            let ms = (deadline - held.clock.now_ms()).max(1.0);
            Duration::from_secs_f64(ms / 1_000.0).min(LONGEST)
        });
        // Returns early where the deadline has come nearer meanwhile.
        let sooner = tokio::time::timeout(wait, held.sooner.notified()).await.is_ok();
        if !sooner && wait < LONGEST {
            held.with_desk(|_, _| ());
        }
    }
}

/// What the controller asks of the pool.
struct Host<'a>(&'a Pool);

impl AdmissionHost<Ask> for Host<'_> {
    fn refresh(&mut self, request: &mut Ask) {
        self.0.refresh(request, self.0.clock.now_ms());
    }

    fn decide(&mut self, partition: &Partition, request: &Request<'_>) -> Result<Decision, DecideError> {
        let pool = self.0;
        let started_ms = pool.clock.now_ms();
        let result = partition.decide(request);
        let elapsed_us = (pool.clock.now_ms() - started_ms) * 1_000.0;
        pool.observer.decided(&DecisionMade { partition, request, result: &result, elapsed_us });
        result
    }

    fn booked(&mut self, request: &Ask, decision: &Decision) {
        if let Some(index) = &self.0.index {
            index.routed(decision.worker, request.prefix(), self.0.clock.now_ms());
        }
    }
}

impl Desk {
    /// Hands the outcomes to who waits for them.
    fn tell(&mut self, pool: &Pool) {
        while let Some(outcome) = self.controller.next_outcome() {
            match outcome {
                AdmissionOutcome::Dispatched { id, decision, queued_ms, .. } => {
                    // Nobody waits where the request is about to be cancelled, which frees it.
                    pool.observer.dispatched(&pool.partition, queued_ms);
                    if let Some(sender) = self.waiting.remove(&id) {
                        let _ = sender.send(Ok(Dispatched { decision, queued_ms }));
                    }
                }
                AdmissionOutcome::Ended { id, end } => {
                    pool.observer.ended(&RequestEnded { partition: &pool.partition, end: &end });
                    if let Some(sender) = self.waiting.remove(&id) {
                        let error = if let End::Failed(error) = end { error } else { AdmissionError::Cancelled };
                        let _ = sender.send(Err(error));
                    }
                }
                AdmissionOutcome::Faulted(message) => {
                    tracing::warn!(model = pool.partition.key().model, message, "the request classifier failed");
                }
            }
        }
    }
}

/// A live request; dropping it cancels the request.
struct Ticket {
    pool: Arc<Pool>,
    id: LifecycleId,
    live: bool,
}

impl Ticket {
    /// Waits until a worker is booked.
    async fn wait(mut self, receiver: oneshot::Receiver<Answer>) -> Result<Lease, AdmissionError> {
        match receiver.await {
            Ok(Ok(Dispatched { decision, queued_ms })) => Ok(Lease { ticket: self, decision, queued_ms }),
            Ok(Err(error)) => {
                self.live = false;
                Err(error)
            }
            Err(_) => Err(AdmissionError::Shutdown),
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.live {
            let id = self.id;
            self.pool.with_desk(|desk, _| {
                desk.waiting.remove(&id);
                desk.controller.cancel(id)
            });
        }
    }
}

/// A request's booking on a worker. Dropping it tells that the client has gone.
pub struct Lease {
    ticket: Ticket,
    decision: Decision,
    queued_ms: f64,
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease").field("decision", &self.decision).finish_non_exhaustive()
    }
}

impl Lease {
    /// What was decided.
    #[must_use]
    pub const fn decision(&self) -> &Decision {
        &self.decision
    }

    /// How long the request waited in its queue, in milliseconds.
    #[must_use]
    pub const fn queued_ms(&self) -> f64 {
        self.queued_ms
    }

    /// The request's number, unique in its partition as long as it lives.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.ticket.id.ticket()
    }

    /// The partition.
    #[must_use]
    pub fn partition(&self) -> &Arc<Partition> {
        &self.ticket.pool.partition
    }

    /// The worker has returned a stream: the request's session is bound to it, and its prompt is computed.
    ///
    /// # Errors
    /// A hard session is bound elsewhere: the request should end with this error.
    pub fn responding(&self) -> Result<(), AdmissionError> {
        self.ticket.pool.with_desk(|desk, _| {
            desk.controller.responding(self.ticket.id)?;
            desk.controller.prefill_complete(self.ticket.id);
            Ok(())
        })
    }

    /// Binds the request's session to its worker, for a caller that does not see the worker's stream.
    ///
    /// # Errors
    /// As [`Self::responding`].
    pub fn bind_session(&self) -> Result<(), AdmissionError> {
        self.ticket.pool.with_desk(|desk, _| desk.controller.bind_session(self.ticket.id))
    }

    /// The first token has come.
    pub fn prefill_complete(&self) {
        self.ticket.pool.with_desk(|desk, _| desk.controller.prefill_complete(self.ticket.id));
    }

    /// The answer fills `blocks` further KV blocks, and prompt and answer have so many tokens.
    pub fn output(&self, blocks: u64, context_tokens: u32) {
        self.ticket.pool.with_desk(|desk, _| {
            desk.controller.output_blocks(self.ticket.id, blocks);
            desk.controller.progress(self.ticket.id, context_tokens);
        });
    }

    /// The answer fills `blocks` further KV blocks.
    pub fn output_blocks(&self, blocks: u64) {
        self.ticket.pool.with_desk(|desk, _| desk.controller.output_blocks(self.ticket.id, blocks));
    }

    /// The request is served, with so many tokens of prompt and answer where they are known.
    pub fn complete(mut self, context_tokens: Option<u32>) {
        self.end(|controller, id| {
            if let Some(tokens) = context_tokens {
                controller.progress(id, tokens);
            }
            controller.complete(id);
        });
    }

    /// The request failed on its worker, for that reason.
    pub fn abort(mut self, reason: String) {
        self.end(|controller, id| _ = controller.abort(id, Some(reason)));
    }

    /// The worker failed before it answered: another one is chosen for the request.
    ///
    /// # Errors
    /// As [`Pool::dispatch`].
    pub async fn retry(self) -> Result<Self, AdmissionError> {
        let Self { ticket, decision, .. } = self;
        let (sender, receiver) = oneshot::channel();
        let (pool, id) = (&ticket.pool, ticket.id);
        pool.with_desk(|desk, _| {
            let partition = &pool.partition;
            if !desk.controller.retry(id, |ask| ask.exclude(decision.worker.worker, partition))? {
                return Err(AdmissionError::LifecycleEnded(id));
            }
            pool.observer.retried(partition);
            desk.waiting.insert(id, sender);
            Ok::<_, AdmissionError>(())
        })?;
        ticket.wait(receiver).await
    }

    fn end(&mut self, end: impl FnOnce(&mut Controller, LifecycleId)) {
        self.ticket.live = false;
        self.ticket.pool.with_desk(|desk, _| end(&mut desk.controller, self.ticket.id));
    }
}
