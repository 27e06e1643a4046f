//! Whatever happens in whatever order, every request ends exactly once, and no request is stuck.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use common::{MAX_DEFERRAL_MS, admit, fault, outcomes, rejection, rules, worker};
use pointsman_admission::{
    AdmissionError, Classifier, ClassifierFault, ClassifyRequest, LifecycleId, Lifecycles, OnFault, Outcome, Purpose,
};
use pointsman_contract::{Admission, Event, Progress, Resolution, Ticket, Verdict};
use proptest::prelude::*;

type Answer<T> = Result<T, ClassifierFault>;

/// Behaves as its bytes say, over and over, and keeps the order of what it saw of each request.
struct Erratic {
    bytes: std::iter::Cycle<std::vec::IntoIter<u8>>,
    seen: Vec<Seen>,
    deferred_at: HashMap<Ticket, f64>,
    last_ticket: Ticket,
    /// How often it was rebuilt because it failed at the workers: what it was to be told then is lost.
    failed_starts: usize,
}

#[derive(Clone, Debug, PartialEq)]
enum Seen {
    Classify(Ticket, String),
    Event(Ticket),
    Terminal(Ticket),
    Progress(Ticket, u32),
    /// It forgot all of the above.
    Rebuilt,
}

impl Erratic {
    fn byte(&mut self) -> u8 {
        self.bytes.next().unwrap()
    }

    fn rebuilt<T>(&mut self) -> Answer<T> {
        self.seen.push(Seen::Rebuilt);
        Err(fault(true))
    }

    fn verdict(&mut self) -> Verdict {
        match self.byte() % 4 {
            0 => Verdict::Reject(rejection()),
            1 => admit(Admission { scheduling_cost_tokens: Some(0), ..Admission::default() }),
            _ => admit(Admission::default()),
        }
    }

    fn resolutions(&mut self) -> Answer<Vec<Resolution>> {
        match self.byte() % 16 {
            0 => return self.rebuilt(),
            1 => return Err(fault(false)),
            _ => {}
        }
        let count = self.byte() % 4;
        let ticket = |erratic: &mut Self| u32::from(erratic.byte()) % (erratic.last_ticket + 2);
        Ok((0..count).map(|_| Resolution { ticket: ticket(self), verdict: self.verdict() }).collect())
    }
}

impl Classifier for Erratic {
    fn classify(&mut self, ticket: Ticket, request: &ClassifyRequest, now_ms: f64) -> Answer<Option<Verdict>> {
        self.seen.push(Seen::Classify(ticket, request.request_id.clone()));
        self.last_ticket = self.last_ticket.max(ticket);
        match self.byte() % 8 {
            0 => self.rebuilt(),
            1 => Err(fault(false)),
            2..=5 => {
                self.deferred_at.insert(ticket, now_ms);
                Ok(None)
            }
            _ => Ok(Some(self.verdict())),
        }
    }

    fn on_event(&mut self, event: &Event, _: f64) -> Answer<Vec<Resolution>> {
        match event {
            Event::Workers(_) => {}
            Event::Sent { ticket, .. } | Event::Responding { ticket, .. } => self.seen.push(Seen::Event(*ticket)),
            Event::Completed { ticket, .. } | Event::Aborted { ticket, .. } => self.seen.push(Seen::Terminal(*ticket)),
        }
        let answer = self.resolutions();
        let rebuilt = matches!(&answer, Err(fault) if fault.rebuilt);
        self.failed_starts += usize::from(rebuilt && matches!(event, Event::Workers(_)));
        answer
    }

    fn on_tick(&mut self, _: f64, progress: &[Progress]) -> Answer<Vec<Resolution>> {
        self.seen.extend(progress.iter().map(|told| Seen::Progress(told.ticket, told.context_tokens)));
        self.resolutions()
    }

    fn tick_interval(&self) -> Option<Duration> {
        Some(Duration::from_millis(300))
    }
}

/// One thing that happens.
#[derive(Clone, Debug)]
enum Step {
    Submit {
        request: u8,
    },
    /// To one of the lifecycles begun so far.
    Act {
        place: usize,
        act: Act,
    },
    Workers {
        number: u32,
    },
    Run {
        after_ms: f64,
    },
}

#[derive(Clone, Copy, Debug)]
enum Act {
    SubmitAgain,
    Sent,
    Responding,
    Progress(u32),
    Complete,
    Abort,
    Fail,
    Cancel,
}

fn step() -> impl Strategy<Value = Step> {
    let act = prop_oneof![
        1 => Just(Act::SubmitAgain),
        3 => Just(Act::Sent),
        2 => Just(Act::Responding),
        2 => (0..500_u32).prop_map(Act::Progress),
        2 => Just(Act::Complete),
        1 => Just(Act::Abort),
        1 => Just(Act::Fail),
        2 => Just(Act::Cancel),
    ];
    prop_oneof![
        4 => (0..5_u8).prop_map(|request| Step::Submit { request }),
        8 => (0..24_usize, act).prop_map(|(place, act)| Step::Act { place, act }),
        1 => (0..3_u32).prop_map(|number| Step::Workers { number }),
        4 => (0.0..700.0_f64).prop_map(|after_ms| Step::Run { after_ms }),
    ]
}

/// The lifecycles, and what a host remembers of them.
struct Host {
    lives: Lifecycles<Erratic>,
    now_ms: f64,
    begun: Vec<LifecycleId>,
    admitted: HashSet<LifecycleId>,
    ended: HashSet<LifecycleId>,
}

impl Host {
    fn new(on_fault: OnFault, bytes: Vec<u8>) -> Self {
        let bytes = bytes.into_iter().cycle();
        let classifier =
            Erratic { bytes, seen: Vec::new(), deferred_at: HashMap::new(), last_ticket: 0, failed_starts: 0 };
        let lives = Lifecycles::new(classifier, rules(on_fault), 0.0);
        Self { lives, now_ms: 0.0, begun: Vec::new(), admitted: HashSet::new(), ended: HashSet::new() }
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Submit { request } => {
                if let Ok(id) = self.lives.begin(&format!("request {request}")) {
                    self.lives.submit(Purpose::Serve(id), ClassifyRequest::default()).unwrap();
                    self.begun.push(id);
                }
            }
            Step::Act { place, act } => {
                if let Some(id) = self.begun.get(place % self.begun.len().max(1)) {
                    self.act(*id, act);
                }
            }
            Step::Workers { number } => self.lives.set_workers(vec![worker(number)]),
            Step::Run { after_ms } => self.run(after_ms),
        }
        self.read_outcomes();
    }

    fn act(&mut self, id: LifecycleId, act: Act) {
        let lives = &mut self.lives;
        let live = !self.ended.contains(&id);
        match act {
            Act::SubmitAgain => {
                let again = lives.submit(Purpose::Serve(id), ClassifyRequest::default());
                assert_eq!(again.is_ok(), live && self.admitted.contains(&id));
            }
            Act::Sent => assert!(!lives.sent(id, 4) || live),
            Act::Responding => assert!(!lives.responding(id) || live),
            Act::Progress(tokens) => lives.progress(id, tokens),
            Act::Complete => assert_eq!(lives.complete(id), live),
            Act::Abort => assert_eq!(lives.abort(id, None), live),
            Act::Fail => assert_eq!(lives.fail(id, AdmissionError::DeadlineExceeded), live),
            Act::Cancel => assert_eq!(lives.cancel(id), live),
        }
    }

    fn run(&mut self, after_ms: f64) {
        self.now_ms += after_ms;
        self.lives.run(self.now_ms);
        self.read_outcomes();
        let latest = self.now_ms - f64::from(MAX_DEFERRAL_MS);
        let deferred = &self.lives.classifier_mut().deferred_at;
        for id in &self.begun {
            let late = deferred.get(&id.ticket()).is_some_and(|since| *since <= latest);
            assert!(!late || self.admitted.contains(id) || self.ended.contains(id), "{id:?} is stuck");
        }
    }

    fn read_outcomes(&mut self) {
        for outcome in outcomes(&mut self.lives) {
            match outcome {
                Outcome::Admitted(id, _) => {
                    assert!(!self.ended.contains(&id), "{id:?} is admitted after its end");
                    assert!(self.admitted.insert(id), "{id:?} is admitted twice");
                }
                Outcome::Ended(id, _) => assert!(self.ended.insert(id), "{id:?} ends twice"),
                Outcome::Faulted(_) => {}
            }
        }
    }

    /// The host ends what it has admitted, and time the rest.
    fn finish(mut self) {
        self.run(f64::from(MAX_DEFERRAL_MS));
        self.run(f64::from(MAX_DEFERRAL_MS));
        for id in self.begun.clone() {
            assert!(self.admitted.contains(&id) || self.ended.contains(&id), "{id:?} never left the classifier");
            self.lives.complete(id);
        }
        self.run(0.0);
        let begun = self.begun.iter().copied().collect();
        assert_eq!(self.ended, begun);
        let Erratic { seen, failed_starts, .. } = self.lives.classifier_mut();
        let told = seen.iter().filter(|seen| matches!(seen, Seen::Terminal(_))).count();
        assert!(told + *failed_starts >= self.begun.len(), "the end of each was told");
        in_order(seen);
    }

    fn shut_down(mut self) {
        self.lives.shut_down();
        self.read_outcomes();
        let begun = self.begun.iter().copied().collect();
        assert_eq!(self.ended, begun);
        self.run(f64::from(MAX_DEFERRAL_MS));
        in_order(&self.lives.classifier_mut().seen);
    }
}

/// Each ticket is classified at most once, ends at most once, and nothing follows its end; a classifier that knows an
/// id's earlier ticket learns of its end before it is asked about the next; progress grows.
fn in_order(seen: &[Seen]) {
    let mut classified = HashSet::new();
    let mut over = HashSet::new();
    let mut holder: HashMap<&str, Ticket> = HashMap::new();
    let mut tokens: HashMap<Ticket, u32> = HashMap::new();
    for one in seen {
        match one {
            Seen::Classify(ticket, request) => {
                assert!(classified.insert(*ticket), "classified twice: {ticket}");
                assert!(!over.contains(ticket), "{one:?} after its end");
                if let Some(earlier) = holder.insert(request, *ticket) {
                    assert!(over.contains(&earlier), "{request} is classified before its earlier end was told");
                }
            }
            Seen::Event(ticket) => assert!(!over.contains(ticket), "{one:?} after its end"),
            Seen::Terminal(ticket) => assert!(over.insert(*ticket), "{ticket} ends twice"),
            Seen::Progress(ticket, now) => {
                assert!(!over.contains(ticket), "{one:?} after its end");
                assert!(tokens.insert(*ticket, *now).is_none_or(|before| before < *now), "{one:?} has not grown");
            }
            Seen::Rebuilt => holder.clear(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_request_ends_exactly_once(
        steps in prop::collection::vec(step(), 1..80),
        bytes in prop::collection::vec(any::<u8>(), 1..200),
        admits in any::<bool>(),
        shutdown in prop::bool::weighted(0.3),
    ) {
        let mut host = Host::new(if admits { OnFault::Admit } else { OnFault::Reject }, bytes);
        for step in &steps {
            host.take(step);
        }
        if shutdown { host.shut_down() } else { host.finish() }
    }
}
