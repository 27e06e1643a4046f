//! Admission in a replay: what waits in front of the pool that answers, and the figures of its policy classes.

use pointsman_admission::{AdmissionError, ClassId, End, LifecycleId};
use pointsman_routing::{AdmissionController, HostedClassifier, QueuedRequest, Request, Submission, WorkerOverlap};
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::metrics::{Milliseconds, Samples};
use crate::trace::TraceRequest;

/// A request of the trace in front of the pool.
pub(crate) struct Queued<'t> {
    pub(crate) index: usize,
    pub(crate) row: TraceRequest<'t>,
    /// What it asks of the pool, but for its overlaps.
    pub(crate) base: Request<'t>,
    pub(crate) overlaps: Vec<WorkerOverlap>,
}

impl QueuedRequest for Queued<'_> {
    fn view<T>(&self, with: impl FnOnce(Request<'_>) -> T) -> T {
        with(Request { overlaps: &self.overlaps, ..self.base })
    }
}

/// The controller, and which request of the trace is which of its own.
pub(crate) struct Door<'t> {
    pub(crate) controller: AdmissionController<Queued<'t>, HostedClassifier>,
    live: FxHashMap<LifecycleId, usize>,
    ids: FxHashMap<usize, LifecycleId>,
    classes: Vec<ClassFigures>,
}

#[derive(Default)]
struct ClassFigures {
    dispatched: u64,
    prompt_tokens: u64,
    waits_us: Samples,
    waited: u64,
}

impl<'t> Door<'t> {
    pub(crate) fn new(controller: AdmissionController<Queued<'t>, HostedClassifier>) -> Self {
        let classes = controller.profile().classes().iter().map(|_| ClassFigures::default()).collect();
        Self { controller, live: FxHashMap::default(), ids: FxHashMap::default(), classes }
    }

    /// Takes a request of the trace in.
    pub(crate) fn submit(&mut self, queued: Queued<'t>, now_ms: f64) -> Result<(), AdmissionError> {
        let index = queued.index;
        let submission = Submission {
            request_id: index.to_string(),
            policy_class: queued.row.policy_class.map(str::to_owned),
            ingress_ms: now_ms,
            due_ms: None,
            request: queued,
        };
        let id = self.controller.submit(submission, now_ms)?;
        self.live.insert(id, index);
        self.ids.insert(index, id);
        Ok(())
    }

    /// Whether no request is anywhere between its arrival and its end.
    pub(crate) fn is_idle(&self) -> bool {
        self.live.is_empty()
    }

    pub(crate) fn id(&self, index: usize) -> Option<LifecycleId> {
        self.ids.get(&index).copied()
    }

    pub(crate) fn index(&self, id: LifecycleId) -> Option<usize> {
        self.live.get(&id).copied()
    }

    /// A request has left the queue for a worker.
    pub(crate) fn note(&mut self, class: ClassId, queued_ms: f64, prompt_tokens: u32) {
        if let Some(figures) = self.classes.get_mut(class.index()) {
            figures.dispatched += 1;
            figures.prompt_tokens += u64::from(prompt_tokens);
            figures.waited += u64::from(queued_ms > 0.0);
            figures.waits_us.push((queued_ms * 1_000.0).round() as u64);
        }
    }

    /// A request has ended: its index, and why it was not served.
    pub(crate) fn end(&mut self, id: LifecycleId, end: &End) -> Option<(usize, Option<&'static str>)> {
        let index = self.live.remove(&id)?;
        self.ids.remove(&index);
        let reason = match end {
            End::Completed => None,
            End::Aborted(_) => Some("aborted"),
            End::Failed(error) => Some(error.name()),
        };
        Some((index, reason))
    }

    pub(crate) fn report(self) -> AdmissionReport {
        let served: u64 = self.classes.iter().map(|class| class.prompt_tokens).sum();
        let counts = self.controller.counts();
        let classes = self.classes.into_iter().zip(self.controller.profile().classes());
        AdmissionReport {
            classified: counts.classified,
            classifier_faults: counts.faults,
            deferrals_expired: counts.expired,
            classes: classes
                .map(|(mut figures, class)| ClassReport {
                    name: class.name.clone(),
                    dispatched: figures.dispatched,
                    waited: figures.waited,
                    wait_ms: Milliseconds::of_microseconds(&mut figures.waits_us),
                    prompt_tokens: figures.prompt_tokens,
                    share: (served > 0).then(|| figures.prompt_tokens as f64 / served as f64),
                })
                .collect(),
        }
    }
}

/// What admission did in a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AdmissionReport {
    /// Requests that the classifier was asked about.
    pub classified: u64,
    /// Calls of the classifier that failed, and admissions of it that were invalid.
    pub classifier_faults: u64,
    /// Requests that the classifier deferred for longer than the host allows.
    pub deferrals_expired: u64,
    /// The policy classes, in the order of the file.
    pub classes: Vec<ClassReport>,
}

/// One policy class in a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassReport {
    /// Its name.
    pub name: String,
    /// Requests that left it for a worker.
    pub dispatched: u64,
    /// Those of them that waited.
    pub waited: u64,
    /// How long they waited, those included that did not.
    pub wait_ms: Milliseconds,
    /// Their prompt tokens.
    pub prompt_tokens: u64,
    /// The part of all classes' prompt tokens; none where no request left any.
    pub share: Option<f64>,
}
