//! One router's request classifier, as Dynamo calls it.
//!
//! A guest never waits, and Dynamo waits in a future for each request. Between them stand Pointsman's [`Lifecycles`], behind
//! one lock: whatever happens is told to them, they ask the guest, and what they decide wakes the futures. A task of its
//! own does what is due though nothing happens.

use std::future::{pending, ready};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use dynamo_kv_router::plugins::request_classifier::{
    ClassifierError, ClassifyEvent, ClassifyFuture, ClassifyRequest, RequestClassifier, RequestClassifierContext,
    RequestClassifierFactory, RequestClassifierParameters, RequestClassifierProviderError, RequestClassifierWorker,
    RequestProgress,
};
use dynamo_kv_router::protocols::WorkerWithDpRank;
use pointsman_admission::{
    self as admission, AdmissionError, ClassifySession, End, LifecycleId, LifecycleRules, Lifecycles, OnFault, Outcome,
    Purpose,
};
use pointsman_contract::{Admission, ClassifierWorker, TargetChange};
use pointsman_routing::{HostedClassifier, InstanceSpec, PartitionKey, Router, WorkerKey, config};
use rustc_hash::FxHashMap;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::sleep_until;

use crate::clock;
use crate::component::{self, SharedSandbox, USUAL_BLOCK_SIZE};
use crate::numbers::Numbers;
use crate::parameters::ClassifierParameters;
use crate::refusal::Refusal;
use crate::table::trigger;

/// Makes Dynamo's error of a refusal.
pub(crate) type MakeError = Arc<dyn Fn(Refusal) -> Box<ClassifierError> + Send + Sync>;

/// A component with its settings.
struct Configured {
    router: Router,
    spec: InstanceSpec,
    component: String,
    on_fault: OnFault,
    max_deferral_ms: u32,
    error: MakeError,
}

/// Dynamo's provider: loads the component and tries it.
pub(crate) fn provide(
    found: &RequestClassifierParameters,
    sandbox: &SharedSandbox,
    error: MakeError,
) -> Result<RequestClassifierFactory, RequestClassifierProviderError> {
    let configured = Configured::load(found, sandbox, error).map_err(RequestClassifierProviderError::new)?;
    Ok(Arc::new(move |context| configured.classifier(context)))
}

impl Configured {
    fn load(found: &RequestClassifierParameters, sandbox: &SharedSandbox, error: MakeError) -> Result<Self, String> {
        let parameters: ClassifierParameters = found.deserialize().map_err(|error| error.to_string())?;
        let config::RequestClassifier { policy, on_fault, max_deferral_ms } = parameters.settings()?;
        let builder = component::builder(&parameters.component, parameters.seed, parameters.smoke, sandbox)?;
        let router = builder.build().map_err(|error| error.to_string())?;
        let (spec, component) = (policy.into(), parameters.component);
        let configured = Self { router, spec, component, on_fault, max_deferral_ms, error };
        let trial = configured.guest(USUAL_BLOCK_SIZE, Arc::default());
        trial.map_err(|message| format!("component `{}` cannot start: {message}", configured.component))?;
        Ok(configured)
    }

    fn guest(&self, block_size: u32, numbers: Arc<Mutex<Numbers>>) -> Result<HostedClassifier, String> {
        let number_of = move |row: WorkerKey| lock(&numbers).known(WorkerWithDpRank::new(row.worker, row.rank));
        let guest = self.router.hosted_classifier(self.spec.clone(), &PartitionKey::default(), block_size, number_of);
        guest.map_err(component::message)
    }

    /// Dynamo's factory: a classifier with a guest of its own for each router. It cannot fail; a guest that does not start
    /// here, though the trial did, fails every request.
    fn classifier(&self, context: RequestClassifierContext) -> Box<dyn RequestClassifier> {
        let (numbers, error) = (Arc::<Mutex<Numbers>>::default(), Arc::clone(&self.error));
        let guest = match self.guest(context.block_size(), Arc::clone(&numbers)) {
            Ok(guest) => guest,
            Err(message) => {
                tracing::error!(component = self.component, message, "a request classifier does not start");
                return Box::new(Broken { message, error });
            }
        };
        let (on_fault, max_deferral_ms) = (self.on_fault, self.max_deferral_ms);
        // Dynamo itself holds the class against its profile.
        let rules = LifecycleRules { on_fault, max_deferral_ms, takes_class: Box::new(|_| true) };
        let desk = Desk {
            lifecycles: Lifecycles::new(guest, rules, clock::now_ms()),
            context,
            workers: Vec::new(),
            numbers,
            requests: FxHashMap::default(),
            component: self.component.clone(),
            wakes_at: None,
        };
        let gate = Gate { desk: Mutex::new(desk), sooner: Notify::new(), error };
        Box::new(Classifier { gate: Arc::new(gate), clock: None })
    }
}

/// A classifier whose guest did not start.
struct Broken {
    message: String,
    error: MakeError,
}

impl RequestClassifier for Broken {
    fn classify(&mut self, _: ClassifyRequest) -> ClassifyFuture {
        let error = AdmissionError::ClassifierFailed(self.message.clone());
        Box::pin(ready(Err((self.error)(error.into()))))
    }
}

/// A classifier with its guest.
struct Classifier {
    gate: Arc<Gate>,
    /// The task that does what is due. It starts with the first call, on the router's runtime.
    clock: Option<JoinHandle<()>>,
}

impl Classifier {
    fn keep_time(&mut self) {
        self.clock.get_or_insert_with(|| tokio::spawn(keep_time(Arc::clone(&self.gate))));
    }
}

#[async_trait]
impl RequestClassifier for Classifier {
    /// Asks the guest before it returns, so that the guest learns of requests and events in Dynamo's order.
    fn classify(&mut self, mut request: ClassifyRequest) -> ClassifyFuture {
        self.keep_time();
        let gate = Arc::clone(&self.gate);
        let submitted = gate.act(|desk| desk.submit(&request));
        let waiting = submitted.map(|(id, told)| Waiting { gate: Arc::clone(&gate), id, told, over: false });
        Box::pin(async move {
            let verdict = match waiting {
                Ok(waiting) => waiting.verdict().await,
                Err(error) => Err(error),
            };
            match verdict {
                Ok(admission) => {
                    lock(&gate.desk).apply(&admission, &mut request);
                    Ok(request)
                }
                Err(error) => Err((gate.error)(error.into())),
            }
        })
    }

    async fn on_event(&mut self, event: ClassifyEvent) {
        self.keep_time();
        self.gate.act(|desk| desk.tell(event));
    }
}

impl Drop for Classifier {
    fn drop(&mut self) {
        if let Some(clock) = &self.clock {
            clock.abort();
        }
        self.gate.act(|desk| desk.lifecycles.shut_down());
    }
}

/// Ends deferrals that are due, and ticks.
async fn keep_time(gate: Arc<Gate>) {
    loop {
        let next = gate.plan();
        let due = async {
            match next.and_then(clock::moment) {
                Some(moment) => sleep_until(moment).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = due => gate.act(|_| ()),
            () = gate.sooner.notified() => {}
        }
    }
}

/// A request in its future.
struct Waiting {
    gate: Arc<Gate>,
    id: LifecycleId,
    told: oneshot::Receiver<Result<Admission, AdmissionError>>,
    over: bool,
}

impl Waiting {
    async fn verdict(mut self) -> Result<Admission, AdmissionError> {
        let verdict = (&mut self.told).await;
        self.over = true;
        verdict.unwrap_or(Err(AdmissionError::Shutdown))
    }
}

impl Drop for Waiting {
    /// Dynamo gives the request up: the guest hears of it now, and not of Dynamo's own event later.
    fn drop(&mut self) {
        if !self.over {
            self.gate.act(|desk| desk.lifecycles.cancel(self.id));
        }
    }
}

/// What the classifier, its futures and its task share.
struct Gate {
    desk: Mutex<Desk>,
    /// Something is due sooner than the task knows.
    sooner: Notify,
    error: MakeError,
}

impl Gate {
    /// Tells the lifecycles what happened, and takes what follows to the futures.
    fn act<T>(&self, what: impl FnOnce(&mut Desk) -> T) -> T {
        let mut desk = lock(&self.desk);
        desk.follow_workers();
        let answer = what(&mut desk);
        desk.run();
        let next = desk.lifecycles.next_deadline();
        if next.is_some_and(|next| desk.wakes_at.is_none_or(|wakes_at| next < wakes_at)) {
            self.sooner.notify_one();
        }
        answer
    }

    /// When something is due next, for the task.
    fn plan(&self) -> Option<f64> {
        let mut desk = lock(&self.desk);
        desk.wakes_at = desk.lifecycles.next_deadline();
        desk.wakes_at
    }
}

/// A live request.
struct Live {
    /// Where its future waits; none once it was told.
    teller: Option<oneshot::Sender<Result<Admission, AdmissionError>>>,
    input_tokens: usize,
    progress: RequestProgress,
}

impl Live {
    fn tell(&mut self, verdict: Result<Admission, AdmissionError>) {
        if let Some(teller) = self.teller.take() {
            // Nobody waits for it any more.
            _ = teller.send(verdict);
        }
    }
}

/// The lifecycles, with what Dynamo knows.
struct Desk {
    lifecycles: Lifecycles<HostedClassifier>,
    context: RequestClassifierContext,
    /// The workers as Dynamo named them last.
    workers: Vec<RequestClassifierWorker>,
    numbers: Arc<Mutex<Numbers>>,
    requests: FxHashMap<LifecycleId, Live>,
    component: String,
    /// When the task calls next, as it knows.
    wakes_at: Option<f64>,
}

impl Desk {
    /// Dynamo does not say when its workers change.
    fn follow_workers(&mut self) {
        let workers = self.context.workers();
        if workers == self.workers {
            return;
        }
        let mut sorted = workers.clone();
        sorted.sort_unstable_by_key(RequestClassifierWorker::worker);
        let mut numbers = lock(&self.numbers);
        let as_told = |worker: &RequestClassifierWorker| ClassifierWorker {
            number: numbers.of(worker.worker()),
            rank: worker.worker().dp_rank,
            total_kv_blocks: worker.total_kv_blocks().map(|blocks| blocks.try_into().unwrap_or(u32::MAX)),
        };
        self.lifecycles.set_workers(sorted.iter().map(as_told).collect());
        self.workers = workers;
    }

    fn submit(
        &mut self,
        request: &ClassifyRequest,
    ) -> Result<(LifecycleId, oneshot::Receiver<Result<Admission, AdmissionError>>), AdmissionError> {
        // Dynamo classifies no request without an id: it would never hear of its end.
        let id = self.lifecycles.begin(request.request_id().unwrap_or_default())?;
        let (teller, told) = oneshot::channel();
        let progress = request.progress().clone();
        self.requests.insert(id, Live { teller: Some(teller), input_tokens: request.input_tokens(), progress });
        self.lifecycles.submit(Purpose::Serve(id), as_classified(request))?;
        Ok((id, told))
    }

    /// What Dynamo tells of a request. One that is not live was cancelled or refused, and the guest knows.
    fn tell(&mut self, event: ClassifyEvent) {
        let (ClassifyEvent::Sent { request_id, .. }
        | ClassifyEvent::Responding { request_id, .. }
        | ClassifyEvent::Completed { request_id, .. }
        | ClassifyEvent::Aborted { request_id, .. }) = &event
        else {
            return;
        };
        let Some(id) = self.lifecycles.live(request_id) else { return };
        let (lifecycles, mut numbers) = (&mut self.lifecycles, lock(&self.numbers));
        match event {
            ClassifyEvent::Sent { worker, .. } => sent(lifecycles, id, numbers.of(worker)),
            ClassifyEvent::Responding { .. } => _ = lifecycles.responding(id),
            ClassifyEvent::Completed { worker, context_tokens, .. } => {
                lifecycles.chosen(id, numbers.of(worker));
                if let Some(tokens) = context_tokens {
                    lifecycles.progress(id, clamped(tokens));
                }
                lifecycles.complete(id);
            }
            ClassifyEvent::Aborted { worker, error, .. } => {
                if let Some(worker) = worker {
                    lifecycles.chosen(id, numbers.of(worker));
                }
                lifecycles.abort(id, error.map(|error| error.to_string()));
            }
            _ => {}
        }
    }

    /// Runs the lifecycles, and tells the futures.
    fn run(&mut self) {
        let now_ms = clock::now_ms();
        if self.lifecycles.next_deadline().is_some_and(|next| next <= now_ms) {
            self.observe_progress();
        }
        self.lifecycles.run(now_ms);
        while let Some(outcome) = self.lifecycles.next_outcome() {
            match outcome {
                Outcome::Admitted(id, admission) => {
                    if let Some(live) = self.requests.get_mut(&id) {
                        live.tell(Ok(admission));
                    }
                }
                Outcome::Ended(id, end) => {
                    if let Some(mut live) = self.requests.remove(&id) {
                        live.tell(Err(if let End::Failed(error) = end { error } else { AdmissionError::Cancelled }));
                    }
                }
                Outcome::Faulted(message) => {
                    tracing::warn!(component = self.component, message, "a request classifier failed");
                }
            }
        }
    }

    /// The tokens that Dynamo has seen since the prompt, before a tick tells of them.
    fn observe_progress(&mut self) {
        for (id, live) in &self.requests {
            let tokens = live.progress.context_tokens();
            if tokens > live.input_tokens {
                self.lifecycles.progress(*id, clamped(tokens));
            }
        }
    }

    /// Follows an admission.
    fn apply(&self, admission: &Admission, request: &mut ClassifyRequest) {
        if let Some(class) = &admission.policy_class {
            request.set_policy_class(class);
        }
        if let Some(due) = admission.due_ms.and_then(clock::moment) {
            request.set_due_at(due);
        }
        if let Some(tokens) = admission.scheduling_cost_tokens {
            request.set_scheduling_cost_tokens(tokens as usize);
        }
        let target = match admission.target {
            TargetChange::Keep => return,
            TargetChange::Clear => None,
            TargetChange::Set(number) => lock(&self.numbers).worker(number),
        };
        match target {
            Some(worker) => request.set_worker_selection_target(worker),
            None => request.clear_worker_selection_target(),
        }
    }
}

/// A request is sent. Sent again, it is a retry, which Dynamo does not ask the classifier about.
fn sent(lifecycles: &mut Lifecycles<HostedClassifier>, id: LifecycleId, number: u32) {
    if !lifecycles.sent(id, number) && lifecycles.submit(Purpose::Serve(id), Default::default()).is_ok() {
        lifecycles.sent(id, number);
    }
}

/// A request as a guest may read it. Dynamo's headers have no name in it: none is granted.
fn as_classified(request: &ClassifyRequest) -> admission::ClassifyRequest {
    let session = request.session_context().map(|session| ClassifySession {
        id: session.session_id().to_owned(),
        parent_id: session.parent_session_id().map(str::to_owned),
        last: session.session_final(),
        trigger: session.input_trigger().map(trigger),
    });
    admission::ClassifyRequest {
        policy_class: request.policy_class().map(str::to_owned),
        input_tokens: clamped(request.input_tokens()),
        ingress_ms: clock::ms(request.ingress_at()),
        due_ms: request.due_at().map(clock::ms),
        scheduling_cost_tokens: clamped(request.scheduling_cost_tokens()),
        session,
        pin: request.pinned_worker().map(|worker| WorkerKey::new(worker.worker_id, worker.dp_rank)),
        ..admission::ClassifyRequest::default()
    }
}

fn clamped(tokens: usize) -> u32 {
    tokens.try_into().unwrap_or(u32::MAX)
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
