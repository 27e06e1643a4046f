//! Classifiers as the macro exports them, driven natively: the reactor and the futures over it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use pointsman_sdk::contract::ClassifierWorker;
use pointsman_sdk::prelude::*;
use pointsman_sdk::testkit::{Guest, Kit, Table};
use pointsman_sdk::{Stages, native::NativePolicy, native::native};

fn guest<P: pointsman_sdk::Exported>() -> Guest {
    Kit::<P>::new().configure().unwrap()
}

fn admitted(ticket: Ticket) -> Resolution {
    Resolution { ticket, verdict: Verdict::admit() }
}

fn completed(ticket: Ticket) -> Event {
    Event::Completed { ticket, worker: 0, context_tokens: None }
}

fn aborted(ticket: Ticket) -> Event {
    Event::Aborted { ticket, worker: None, error: None }
}

fn at(now_ms: f64) -> Table {
    Table::new().fact("request.now-ms", now_ms)
}

macro_rules! policy {
    ($policy:ident) => {
        impl Policy for $policy {
            type Parameters = NoParameters;
            const NAME: &'static str = "test";
            const DESCRIPTION: &'static str = "A test.";

            fn configure(_: &Setup, _: NoParameters) -> Result<Self, PolicyError> {
                Ok(Self::default())
            }
        }
    };
}

/// Answers what it reads, as an admission; prefers the worker that it gave a request last.
#[derive(Default)]
struct Echo {
    last: Option<u32>,
}

policy!(Echo);

impl RowScorer for Echo {
    fn reads(&self) -> Reads {
        Reads::WORKERS
    }

    fn score(&mut self, _: &Request<'_>, row: Row<'_>) -> Result<f64, PolicyError> {
        Ok(if self.last == Some(row.worker()?) { 0.0 } else { 1.0 })
    }
}

impl Picker for Echo {
    fn pick(&mut self, _: &Request<'_>, candidates: &Candidates<'_>) -> Result<usize, PolicyError> {
        Ok(pointsman_sdk::lowest(candidates.costs()?).unwrap())
    }
}

impl Classifier for Echo {
    fn reads(&self) -> Reads {
        [Fact::IngressMs, Fact::DueMs, Fact::SchedulingCostTokens, Fact::PinnedWorker, Fact::ContextTokens]
            .map(Reads::from)
            .into_iter()
            .fold(Reads::SESSION | Text::RequestId | Text::RequestPolicyClass, |all, one| all | one)
    }

    fn tick_ms(&self) -> Option<u32> {
        Some(250)
    }

    fn classify(&mut self, request: &ClassifyRequest<'_>) -> Result<Option<Verdict>, PolicyError> {
        let Some(id) = request.request_id()? else { return Ok(None) };
        self.last = request.pinned_worker()?;
        let session = request.session_context()?.map_or("none", |session| session.session_id());
        let class = request.policy_class()?.unwrap_or("none");
        Ok(Some(
            Admission {
                policy_class: Some(format!("{id} {session} {class} {}", request.ticket())),
                due_ms: Some(request.ingress_ms()? + request.due_ms()?.unwrap_or(0.5)),
                scheduling_cost_tokens: Some((request.scheduling_cost_tokens()? + request.context_tokens()?) as u32),
                target: self.last.map_or(TargetChange::Clear, TargetChange::Set),
            }
            .into(),
        ))
    }

    fn on_tick(&mut self, now_ms: f64, progress: &[Progress]) -> Result<Vec<Resolution>, PolicyError> {
        let verdict = |tokens| Verdict::reject(ErrorClass::RateLimited, format!("{tokens} at {now_ms}"));
        Ok(progress.iter().map(|one| Resolution { ticket: one.ticket, verdict: verdict(one.context_tokens) }).collect())
    }
}

mod echo {
    // An `export!` a module: each defines a component.
    pointsman_sdk::export!(super::Echo: scorer, picker, classifier);
}

#[test]
fn one_policy_is_both_classifier_and_worker_selection() {
    let stages = native::<Echo>().stages();
    assert_eq!(stages, Stages { filter: false, score: true, pick: true, select: true, classify: true });
    let mut guest = guest::<Echo>();
    let request = Table::new()
        .text("request.id", "r")
        .text("session.id", "s")
        .fact("request.ingress-ms", 2.0)
        .fact("request.due-ms", 7.25)
        .fact("request.context-tokens", 30.0)
        .fact("request.scheduling-cost-tokens", 12.0)
        .fact("request.pinned-worker", 5.0);
    let admission = Admission {
        policy_class: Some("r s none 9".to_owned()),
        due_ms: Some(9.25),
        scheduling_cost_tokens: Some(42),
        target: TargetChange::Set(5),
    };
    assert_eq!(guest.classify(9, &request).unwrap(), Some(Verdict::Admit(admission)));
    let table = Table::new().row_of(4, &[]).row_of(5, &[]);
    assert_eq!(guest.decide(&table).unwrap().unwrap().row, 1, "the scorer sees what the classifier left");
    assert_eq!(guest.inputs().tick_ms, Some(250));
    assert_eq!(guest.inputs().classify.as_ref().unwrap().signals, Vec::<String>::new());
}

#[test]
fn the_defaults_defer_nothing_and_resolve_nothing() {
    let mut guest = guest::<Echo>();
    assert_eq!(guest.classify(1, &Table::new()).unwrap(), None);
    assert_eq!(guest.event(&completed(1), 0.0).unwrap(), []);
    let rejected = guest.tick(5.0, &[Progress { ticket: 3, context_tokens: 77 }]).unwrap();
    let verdict = Verdict::reject(ErrorClass::RateLimited, "77 at 5");
    assert_eq!(rejected, [Resolution { ticket: 3, verdict }]);
}

#[test]
fn what_a_classifier_may_not_read_is_refused() {
    #[derive(Default)]
    struct Greedy;
    policy!(Greedy);
    impl Classifier for Greedy {
        fn reads(&self) -> Reads {
            Signal::LoadActiveRequests.into()
        }

        fn classify(&mut self, _: &ClassifyRequest<'_>) -> Result<Option<Verdict>, PolicyError> {
            Ok(None)
        }
    }
    pointsman_sdk::export!(Greedy: classifier);
    let refused = Kit::<Greedy>::new().configure().err().unwrap();
    assert_eq!(refused, "the classifier reads signals or workers; it may read facts and texts alone");

    #[derive(Default)]
    struct Hasty;
    policy!(Hasty);
    impl Classifier for Hasty {
        fn reads(&self) -> Reads {
            Reads::AFFINITY
        }

        fn tick_ms(&self) -> Option<u32> {
            Some(9)
        }

        fn classify(&mut self, _: &ClassifyRequest<'_>) -> Result<Option<Verdict>, PolicyError> {
            Ok(None)
        }
    }
    pointsman_sdk::export!(Hasty: classifier);
    let refused = Kit::<Hasty>::new().configure().err().unwrap();
    assert_eq!(refused, "the classifier's tick_ms must be at least 10");
}

#[test]
fn a_policy_without_a_classifier_says_so() {
    #[derive(Default)]
    struct Plain;
    policy!(Plain);
    impl RowScorer for Plain {
        fn reads(&self) -> Reads {
            Fact::DueMs.into()
        }

        fn score(&mut self, _: &Request<'_>, _: Row<'_>) -> Result<f64, PolicyError> {
            Ok(0.0)
        }
    }
    pointsman_sdk::export!(Plain: scorer);
    assert!(!native::<Plain>().stages().classify);
    let refused = Kit::<Plain>::new().configure().err().unwrap();
    assert_eq!(refused, "`request.due-ms` is not for a stage of worker selection to read");
}

/// Drops counted, for those that a test sees.
static DROPS: AtomicU32 = AtomicU32::new(0);

struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        DROPS.fetch_add(1, Ordering::Relaxed);
    }
}

/// Does what the request's class says.
#[derive(Clone)]
struct Waiter {
    turns: Turns<String>,
    heard: Arc<Mutex<u32>>,
}

impl Default for Waiter {
    fn default() -> Self {
        Self { turns: Turns::new(1), heard: Arc::default() }
    }
}

policy!(Waiter);

impl AsyncClassifier for Waiter {
    fn reads(&self) -> Reads {
        Reads::SESSION | Text::RequestPolicyClass
    }

    fn tick_ms(&self) -> Option<u32> {
        Some(100)
    }

    async fn classify(self, request: OwnedRequest, cx: Context) -> Result<Verdict, PolicyError> {
        let session = request.read().session_id()?.unwrap_or_default().to_owned();
        match request.read().policy_class()?.unwrap_or_default() {
            "capacity" => cx.capacity_changed().await,
            "until" => cx.until(1000.0).await,
            "sleep" => cx.sleep(300.0).await,
            "event" => {
                let event = cx.event().await;
                return Ok(Verdict::reject(ErrorClass::NotFound, format!("{event:?}")));
            }
            "guard" => {
                let _guard = Guard;
                cx.until(f64::INFINITY).await;
            }
            "keep" => cx.keep(Guard),
            "turn" => {
                let turn = self.turns.take(session).await;
                cx.keep(turn);
            }
            "patient" => {
                let by = cx.now_ms() + 500.0;
                let Some(turn) = cx.by(by, self.turns.take(session)).await else {
                    return Ok(Verdict::reject(ErrorClass::CapacityExhausted, "too long"));
                };
                cx.keep(turn);
            }
            "fails" => {
                cx.capacity_changed().await;
                return Err(PolicyError::failed("no luck"));
            }
            "fails-at-once" => return Err(PolicyError::failed("no luck")),
            "count" => {
                let count = format!("{}", self.heard.lock().unwrap());
                return Ok(Verdict::reject(ErrorClass::Internal, count));
            }
            _ => {}
        }
        Ok(Verdict::admit())
    }

    fn on_event(&mut self, _: &Event, _: f64) -> Result<(), PolicyError> {
        *self.heard.lock().unwrap() += 1;
        Ok(())
    }
}

mod waiter {
    pointsman_sdk::export!(super::Waiter: async_classifier);
}

fn asking(class: &str) -> Table {
    at(0.0).text("request.policy-class", class)
}

fn of_session(class: &str, session: &str) -> Table {
    asking(class).text("session.id", session)
}

#[test]
fn a_future_that_is_ready_answers_at_once() {
    let mut guest = guest::<Waiter>();
    assert_eq!(guest.classify(1, &asking("")).unwrap(), Some(Verdict::admit()));
    assert_eq!(guest.classify(2, &asking("fails-at-once")).unwrap_err(), "no luck");
    // The executor reads the clock, whether the policy does or not.
    assert!(guest.inputs().classify.as_ref().unwrap().facts.contains(&"request.now-ms".to_owned()));
}

#[test]
fn capacity_is_awaited_until_a_request_ends_or_the_workers_change() {
    let mut guest = guest::<Waiter>();
    let workers = Event::Workers(vec![ClassifierWorker { number: 1, rank: 0, total_kv_blocks: None }]);
    for event in [completed(99), aborted(99), workers] {
        for ticket in [1, 2] {
            assert_eq!(guest.classify(ticket, &asking("capacity")).unwrap(), None);
        }
        assert_eq!(guest.event(&Event::Sent { ticket: 1, worker: 0 }, 1.0).unwrap(), []);
        assert_eq!(guest.event(&Event::Responding { ticket: 1, worker: 0 }, 1.0).unwrap(), []);
        assert_eq!(guest.event(&event, 1.0).unwrap(), [admitted(1), admitted(2)], "in the order of arrival");
        assert_eq!(guest.event(&event, 1.0).unwrap(), [], "once");
    }
}

#[test]
fn a_time_is_awaited_by_ticks_and_events() {
    let mut guest = guest::<Waiter>();
    assert_eq!(guest.classify(1, &asking("until")).unwrap(), None);
    assert_eq!(guest.classify(2, &asking("sleep")).unwrap(), None);
    assert_eq!(guest.tick(299.0, &[]).unwrap(), []);
    assert_eq!(guest.tick(300.0, &[]).unwrap(), [admitted(2)]);
    assert_eq!(guest.event(&completed(99), 999.9).unwrap(), []);
    assert_eq!(guest.event(&completed(99), 1000.0).unwrap(), [admitted(1)]);
    assert_eq!(guest.classify(3, &asking("until").fact("request.now-ms", 1000.0)).unwrap(), Some(Verdict::admit()));
}

#[test]
fn an_event_is_awaited_and_answered() {
    let mut guest = guest::<Waiter>();
    assert_eq!(guest.classify(1, &asking("event")).unwrap(), None);
    let resolved = guest.event(&Event::Sent { ticket: 7, worker: 3 }, 0.0).unwrap();
    let verdict = Verdict::reject(ErrorClass::NotFound, "Sent { ticket: 7, worker: 3 }");
    assert_eq!(resolved, [Resolution { ticket: 1, verdict }]);
}

#[test]
fn the_policy_hears_of_events_before_its_futures_do() {
    let mut guest = guest::<Waiter>();
    guest.event(&completed(1), 0.0).unwrap();
    guest.event(&completed(2), 0.0).unwrap();
    let counted = guest.classify(1, &asking("count")).unwrap();
    assert_eq!(counted, Some(Verdict::reject(ErrorClass::Internal, "2")));
}

#[test]
fn an_error_after_a_wait_ends_the_request() {
    let mut guest = guest::<Waiter>();
    assert_eq!(guest.classify(1, &asking("fails")).unwrap(), None);
    let verdict = Verdict::reject(ErrorClass::Internal, "no luck");
    assert_eq!(guest.event(&completed(99), 0.0).unwrap(), [Resolution { ticket: 1, verdict }]);
}

#[test]
fn guards_run_when_the_request_ends() {
    let mut guest = guest::<Waiter>();
    // Two guests of one setup run, so each guard drops twice.
    assert_eq!(guest.classify(1, &asking("guard")).unwrap(), None);
    assert_eq!(guest.classify(2, &asking("keep")).unwrap(), Some(Verdict::admit()));
    guest.event(&aborted(3), 0.0).unwrap();
    assert_eq!(DROPS.load(Ordering::Relaxed), 0);
    assert_eq!(guest.event(&aborted(1), 0.0).unwrap(), []);
    assert_eq!(DROPS.load(Ordering::Relaxed), 2);
    assert_eq!(guest.event(&completed(2), 0.0).unwrap(), []);
    assert_eq!(DROPS.load(Ordering::Relaxed), 4);
}

#[test]
fn turns_pass_in_the_order_of_arrival_one_key_apart_from_another() {
    let mut guest = guest::<Waiter>();
    let mut ask = |ticket, session| guest.classify(ticket, &of_session("turn", session)).unwrap();
    assert_eq!(ask(1, "a"), Some(Verdict::admit()));
    assert_eq!((ask(2, "a"), ask(3, "a"), ask(4, "a")), (None, None, None));
    assert_eq!(ask(5, "b"), Some(Verdict::admit()));
    assert_eq!(guest.event(&aborted(3), 0.0).unwrap(), [], "it gives up its place");
    assert_eq!(guest.event(&completed(1), 0.0).unwrap(), [admitted(2)]);
    assert_eq!(guest.event(&completed(5), 0.0).unwrap(), []);
    assert_eq!(guest.event(&aborted(2), 0.0).unwrap(), [admitted(4)]);
    assert_eq!(guest.event(&completed(4), 0.0).unwrap(), []);
    assert_eq!(guest.classify(6, &of_session("turn", "a")).unwrap(), Some(Verdict::admit()));
}

#[test]
fn a_wait_for_a_turn_may_have_an_end() {
    let mut guest = guest::<Waiter>();
    assert_eq!(guest.classify(1, &of_session("turn", "a")).unwrap(), Some(Verdict::admit()));
    assert_eq!(guest.classify(2, &of_session("patient", "a")).unwrap(), None);
    assert_eq!(guest.classify(3, &of_session("turn", "a")).unwrap(), None);
    let verdict = Verdict::reject(ErrorClass::CapacityExhausted, "too long");
    assert_eq!(guest.tick(500.0, &[]).unwrap(), [Resolution { ticket: 2, verdict }]);
    assert_eq!(guest.event(&aborted(2), 501.0).unwrap(), []);
    assert_eq!(guest.event(&completed(1), 600.0).unwrap(), [admitted(3)], "who gave up is passed over");
}

#[test]
fn a_turn_given_to_a_request_that_ends_before_it_runs_passes_on() {
    use std::future::Future;
    use std::task::{Context, Waker};
    let turns = Turns::new(1);
    let mut context = Context::from_waker(Waker::noop());
    let mut first = Box::pin(turns.take('a'));
    let std::task::Poll::Ready(turn) = first.as_mut().poll(&mut context) else { panic!("nobody has the turn") };
    let (mut second, mut third) = (Box::pin(turns.take('a')), Box::pin(turns.take('a')));
    assert!(second.as_mut().poll(&mut context).is_pending() && third.as_mut().poll(&mut context).is_pending());
    assert_eq!(turns.count(&'a'), (1, 2));
    drop(turn);
    assert_eq!(turns.count(&'a'), (1, 1), "the second has it");
    drop(second);
    assert_eq!(turns.count(&'a'), (1, 0), "the third has it");
    assert!(third.as_mut().poll(&mut context).is_ready());
    assert_eq!(turns.count(&'a'), (0, 0));
}
