//! A classifier that answers from a script and notes how it was called.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "test support")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pointsman_admission::{
    Classifier, ClassifierFault, ClassifyRequest, End, LifecycleId, LifecycleRules, Lifecycles, OnFault, Outcome,
    Purpose, Submitted,
};
use pointsman_contract::{
    Admission, ClassifierWorker, ErrorClass, Event, Progress, Rejection, Resolution, Ticket, Verdict,
};

pub const MAX_DEFERRAL_MS: u32 = 1000;

#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    Classify(Ticket, ClassifyRequest),
    Event(Event),
    Tick(Vec<Progress>),
}

type Answer<T> = Result<T, ClassifierFault>;

/// Once a script is at its end: admits as it came, resolves nothing.
#[derive(Default)]
pub struct Scripted {
    pub calls: Vec<Call>,
    pub verdicts: VecDeque<Answer<Option<Verdict>>>,
    /// Answers to `Event::Workers`.
    pub on_workers: VecDeque<Answer<Vec<Resolution>>>,
    /// Answers to every other event.
    pub on_event: VecDeque<Answer<Vec<Resolution>>>,
    pub on_tick: VecDeque<Answer<Vec<Resolution>>>,
    pub tick: Option<Duration>,
}

impl Classifier for Scripted {
    fn classify(&mut self, ticket: Ticket, request: &ClassifyRequest, _: f64) -> Answer<Option<Verdict>> {
        self.calls.push(Call::Classify(ticket, request.clone()));
        self.verdicts.pop_front().unwrap_or_else(|| Ok(Some(Verdict::Admit(Admission::default()))))
    }

    fn on_event(&mut self, event: &Event, _: f64) -> Answer<Vec<Resolution>> {
        self.calls.push(Call::Event(event.clone()));
        let script = if matches!(event, Event::Workers(_)) { &mut self.on_workers } else { &mut self.on_event };
        script.pop_front().unwrap_or_else(|| Ok(Vec::new()))
    }

    fn on_tick(&mut self, _: f64, progress: &[Progress]) -> Answer<Vec<Resolution>> {
        self.calls.push(Call::Tick(progress.to_vec()));
        self.on_tick.pop_front().unwrap_or_else(|| Ok(Vec::new()))
    }

    fn tick_interval(&self) -> Option<Duration> {
        self.tick
    }
}

pub fn rules(on_fault: OnFault) -> LifecycleRules {
    let takes_class = Box::new(|name: &str| ["premium", "standard"].contains(&name));
    LifecycleRules { on_fault, max_deferral_ms: MAX_DEFERRAL_MS, takes_class }
}

pub fn scripted(on_fault: OnFault) -> Lifecycles<Scripted> {
    Lifecycles::new(Scripted::default(), rules(on_fault), 0.0)
}

/// Begins a lifecycle and submits its request.
pub fn submit<C: Classifier>(lives: &mut Lifecycles<C>, request_id: &str) -> LifecycleId {
    let id = lives.begin(request_id).unwrap();
    let submitted = lives.submit(Purpose::Serve(id), ClassifyRequest { input_tokens: 100, ..Default::default() });
    assert_eq!(submitted, Ok(Submitted::Pending));
    id
}

/// A request that the classifier defers at `now_ms`.
pub fn deferred(lives: &mut Lifecycles<Scripted>, request_id: &str, now_ms: f64) -> LifecycleId {
    let id = submit(lives, request_id);
    lives.classifier_mut().verdicts.push_back(Ok(None));
    lives.run(now_ms);
    id
}

/// A request that the classifier admitted at `now_ms`, its outcome read.
pub fn admitted(lives: &mut Lifecycles<Scripted>, request_id: &str, now_ms: f64) -> LifecycleId {
    let id = submit(lives, request_id);
    lives.run(now_ms);
    assert_eq!(outcomes(lives), [Outcome::Admitted(id, Admission::default())]);
    id
}

pub fn outcomes<C: Classifier>(lives: &mut Lifecycles<C>) -> Vec<Outcome> {
    std::iter::from_fn(|| lives.next_outcome()).collect()
}

/// The calls since the last look, without the workers.
pub fn calls(lives: &mut Lifecycles<Scripted>) -> Vec<Call> {
    let calls = std::mem::take(&mut lives.classifier_mut().calls);
    calls.into_iter().filter(|call| !matches!(call, Call::Event(Event::Workers(_)))).collect()
}

pub fn events(lives: &mut Lifecycles<Scripted>) -> Vec<Event> {
    let events = calls(lives).into_iter().filter_map(|call| match call {
        Call::Event(event) => Some(event),
        _ => None,
    });
    events.collect()
}

pub fn admit(admission: Admission) -> Verdict {
    Verdict::Admit(admission)
}

pub fn rejection() -> Rejection {
    Rejection {
        class: ErrorClass::RateLimited,
        public_message: Some("slow down".to_owned()),
        diagnostic: "tenant 7 is over its limit".to_owned(),
    }
}

pub fn resolution(id: LifecycleId, verdict: Verdict) -> Resolution {
    Resolution { ticket: id.ticket(), verdict }
}

/// Has the classifier end deferrals, as it learns of a change of workers.
pub fn resolve(lives: &mut Lifecycles<Scripted>, resolutions: Vec<Resolution>, now_ms: f64) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    lives.run(now_ms);
    lives.classifier_mut().on_workers.push_back(Ok(resolutions));
    lives.set_workers(vec![worker(NEXT.fetch_add(1, Ordering::Relaxed))]);
    lives.run(now_ms);
}

pub fn worker(number: u32) -> ClassifierWorker {
    ClassifierWorker { number, rank: 0, total_kv_blocks: Some(1000) }
}

pub fn fault(rebuilt: bool) -> ClassifierFault {
    ClassifierFault { message: "out of fuel".to_owned(), rebuilt }
}

pub fn ended(outcomes: &[Outcome]) -> Vec<(LifecycleId, &End)> {
    let ended = outcomes.iter().filter_map(|outcome| match outcome {
        Outcome::Ended(id, end) => Some((*id, end)),
        _ => None,
    });
    ended.collect()
}
