//! A router as Dynamo's frontend builds one: its local scheduler with the classifier that a router-policy file names.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use dynamo_kv_router::plugins::request_classifier::{
    ClassifyEvent, ClassifyFuture, ClassifyRequest, RequestClassifier, RequestClassifierContext,
    RequestClassifierFactory, RequestClassifierWorker,
};
use dynamo_kv_router::plugins::worker_selection::WorkerInputs;
use dynamo_kv_router::protocols::{WorkerConfigLike, WorkerSelectionResult, WorkerWithDpRank};
use dynamo_kv_router::scheduling::ScheduleRequest;
use dynamo_kv_router::{KvRouterConfig, KvSchedulerError, SessionContext, WorkerSelectionInput, WorkerSelector};
use pointsman_dynamo::Refusal;
use pointsman_parity::scheduler::{self, Scheduler, schedule_request, scheduler, selected};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::{Worker, Workers, registry};

/// Every task that can run has run after so many turns.
const TURNS: usize = 16;
/// Long enough for whatever is about to happen.
const LONG: Duration = Duration::from_secs(60);

/// What Dynamo makes of the section `request_classifier` at start.
pub fn resolve_classifier(yaml: &str) -> Result<RequestClassifierFactory, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), yaml).unwrap();
    let router_policy_config = Some(file.path().display().to_string());
    let config = KvRouterConfig { router_policy_config, ..KvRouterConfig::default() };
    let factory = registry().resolve_request_classifier(&config).map_err(|error| error.to_string())?;
    Ok(factory.unwrap())
}

/// What a classifier answered, as Dynamo gets it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answered {
    pub due_at: Option<Instant>,
    pub policy_class: Option<String>,
    pub scheduling_cost_tokens: usize,
}

type Answers = Arc<Mutex<BTreeMap<String, Answered>>>;

/// Notes what the classifier in it answers.
struct Noted(Box<dyn RequestClassifier>, Answers);

#[async_trait]
impl RequestClassifier for Noted {
    fn classify(&mut self, request: ClassifyRequest) -> ClassifyFuture {
        let (answer, answers) = (self.0.classify(request), Arc::clone(&self.1));
        Box::pin(async move {
            let request = answer.await?;
            let answered = Answered {
                due_at: request.due_at(),
                policy_class: request.policy_class().map(str::to_owned),
                scheduling_cost_tokens: request.scheduling_cost_tokens(),
            };
            answers.lock().unwrap().insert(request.request_id().unwrap().to_owned(), answered);
            Ok(request)
        })
    }

    async fn on_event(&mut self, event: ClassifyEvent) {
        self.0.on_event(event).await;
    }
}

/// Takes the request's target, or the first row that may serve it.
struct FirstRow;

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
        rows.sort_unstable();
        let target = request.affinity_target.map(|target| target.worker_id);
        let found = rows.iter().find(|row| Some(row.worker_id) == target).or(rows.first());
        Ok(selected(*found.ok_or(KvSchedulerError::NoEndpoints)?, 0))
    }
}

type Lifecycle = dynamo_kv_router::scheduling::RequestLifecycle;

/// A request.
#[derive(Clone)]
pub struct Asked {
    pub id: &'static str,
    pub session: Option<&'static str>,
    pub pinned: Option<WorkerWithDpRank>,
    pub ingress: Instant,
}

impl Asked {
    pub fn new(id: &'static str) -> Self {
        Self { id, session: None, pinned: None, ingress: Instant::now() }
    }

    pub fn of_session(id: &'static str, session: &'static str) -> Self {
        Self { session: Some(session), ..Self::new(id) }
    }
}

/// A request that has a worker. Dropped, it is aborted.
pub struct Served {
    pub id: &'static str,
    pub lifecycle: Lifecycle,
    pub worker: WorkerWithDpRank,
}

/// A request on its way.
pub struct Going(JoinHandle<Result<Served, KvSchedulerError>>);

impl Going {
    pub fn waits(&self) -> bool {
        !self.0.is_finished()
    }

    pub async fn served(self) -> Served {
        self.ended().await.unwrap_or_else(|error| panic!("{error}"))
    }

    /// The refusal, as a frontend finds it.
    pub async fn refused(self) -> Refusal {
        match self.ended().await {
            Err(KvSchedulerError::RequestClassifierFailed(error)) => error.downcast_ref::<Refusal>().unwrap().clone(),
            Err(error) => panic!("{error}"),
            Ok(served) => panic!("served on {:?}", served.worker),
        }
    }

    pub async fn ended(self) -> Result<Served, KvSchedulerError> {
        timeout(LONG, self.0).await.expect("the request waits for ever").unwrap()
    }

    /// Its client goes.
    pub async fn cancel(self) {
        self.0.abort();
        settle().await;
    }
}

/// Lets every task run that can.
pub async fn settle() {
    scheduler::settle(TURNS).await;
}

pub struct Frontend {
    scheduler: Arc<Scheduler<Worker, FirstRow>>,
    workers: watch::Sender<Workers>,
    answers: Answers,
    shutdown: CancellationToken,
}

impl Drop for Frontend {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

impl Frontend {
    /// A router with the classifier that the file names, and workers 1, 2...
    pub async fn start(yaml: &str, workers: u64) -> Self {
        Self::with(&resolve_classifier(yaml).unwrap(), yaml, workers, 16).await
    }

    pub async fn with(classifier: &RequestClassifierFactory, yaml: &str, workers: u64, block_size: u32) -> Self {
        let ranges = (1..=2).map(|id| (id, (0, 1))).collect();
        let (sender, receiver) = watch::channel(fleet(workers));
        let (answers, shutdown) = (Answers::default(), CancellationToken::new());
        let scheduler = scheduler(yaml, block_size, ranges, receiver.clone(), FirstRow, &shutdown);
        let context = RequestClassifierContext::new(block_size, move || ranks(&receiver.borrow()));
        let noted = Noted(classifier(context), Arc::clone(&answers));
        assert!(scheduler.install_request_classifier(Box::new(noted), shutdown.clone()));
        settle().await;
        Self { scheduler, workers: sender, answers, shutdown }
    }

    /// A request that comes in now.
    pub async fn ask(&self, asked: Asked) -> Going {
        let lifecycle = self.begin(asked.id);
        self.schedule(asked, lifecycle).await
    }

    pub fn begin(&self, id: &str) -> Lifecycle {
        self.scheduler.begin_request_lifecycle(id).unwrap().unwrap()
    }

    pub async fn schedule(&self, asked: Asked, mut lifecycle: Lifecycle) -> Going {
        let (scheduler, request) = (Arc::clone(&self.scheduler), request(&asked));
        let going = tokio::spawn(async move {
            let worker = scheduler.schedule_request_admitted_with_context(request, asked.ingress).await?;
            let worker = worker.response.best_worker;
            lifecycle.sent(worker);
            Ok(Served { id: asked.id, lifecycle, worker })
        });
        settle().await;
        Going(going)
    }

    /// The same, of a caller that drops the future but keeps the lifecycle.
    pub async fn schedule_and_drop(&self, asked: Asked) {
        let attempt = self.scheduler.schedule_request_admitted_with_context(request(&asked), asked.ingress);
        tokio::select! {
            biased;
            result = attempt => panic!("it does not wait: {:?}", result.map(|it| it.response.best_worker)),
            () = settle() => {}
        }
        settle().await;
    }

    /// The request is served, and its place on the worker is free.
    pub async fn complete(&self, mut served: Served) {
        served.lifecycle.responding();
        served.lifecycle.complete();
        self.free(served.id).await;
    }

    /// The request's worker has failed before it answered: its lifecycle, for another attempt.
    pub async fn failed_attempt(&self, mut served: Served) -> Lifecycle {
        served.lifecycle.prepare_retry();
        self.free(served.id).await;
        served.lifecycle
    }

    async fn free(&self, id: &str) {
        self.scheduler.free(id).await.unwrap();
        settle().await;
    }

    pub async fn set_workers(&self, workers: u64) {
        self.workers.send_replace(fleet(workers));
        settle().await;
    }

    /// What the classifier answered about that request.
    pub fn answered(&self, id: &str) -> Answered {
        self.answers.lock().unwrap()[id].clone()
    }
}

fn fleet(workers: u64) -> Workers {
    (1..=workers).map(|id| (id, Worker { ranks: 1, ..Worker::default() })).collect()
}

fn ranks(workers: &HashMap<u64, Worker>) -> Vec<RequestClassifierWorker> {
    let of = |(id, worker): (&u64, &Worker)| {
        RequestClassifierWorker::new(WorkerWithDpRank::from_worker_id(*id), worker.total_kv_blocks())
    };
    workers.iter().map(of).collect()
}

fn request(asked: &Asked) -> ScheduleRequest {
    ScheduleRequest {
        pinned_worker: asked.pinned,
        session_context: asked.session.map(|id| SessionContext::new(id.to_owned(), None, None, None)),
        ..schedule_request(asked.id, 100)
    }
}
