//! Requests on their way through admission: affinity, classifier, queue, worker, and back. Time is a number.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may end by a panic")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use pointsman_admission::{
    AdmissionError, AffinityMode, Bucket, Classifier, ClassifierFault, ClassifyRequest, End, LifecycleId, OnFault,
    PolicyClass, Profile, ProfileSpec, QueueLimits, SessionAffinity,
};
use pointsman_contract::{Admission, Event, Progress, Resolution, TargetChange, Ticket, Verdict};
use pointsman_routing::config::{Overrides, PolicyConfig, SessionAffinitySettings};
use pointsman_routing::{
    AdmissionController, AdmissionHost, AdmissionOutcome, AdmissionSetup, Decision, Partition, PartitionKey,
    QueuedRequest, Request, Router, Session, Submission, WorkerConfig, WorkerKey,
};
use pointsman_sandbox::Outcome;
use proptest::prelude::*;

/// A request as these tests keep it.
#[derive(Clone, Debug, Default)]
struct Asked {
    tokens: u64,
    session: Option<&'static str>,
    pinned: Option<u64>,
    allowed: Option<Vec<u64>>,
}

impl QueuedRequest for Asked {
    fn view<T>(&self, with: impl FnOnce(Request<'_>) -> T) -> T {
        with(Request {
            prompt_tokens: self.tokens,
            session: self.session.map(|id| Session { id, parent_id: None, last: None, trigger: None }),
            pinned: self.pinned.map(|worker| WorkerKey::new(worker, 0)),
            allowed: self.allowed.as_deref(),
            ..Request::default()
        })
    }
}

struct Plain;

impl AdmissionHost<Asked> for Plain {}

/// What each call of the classifier answers, by ticket; a missing answer admits.
#[derive(Default)]
struct Scripted {
    verdicts: BTreeMap<Ticket, Option<Verdict>>,
    faults: Vec<Ticket>,
    /// What the next event resolves.
    next: Vec<Resolution>,
    classified: Vec<Ticket>,
    events: Vec<Event>,
}

impl Classifier for Scripted {
    fn classify(&mut self, ticket: Ticket, _: &ClassifyRequest, _: f64) -> Result<Option<Verdict>, ClassifierFault> {
        self.classified.push(ticket);
        if self.faults.contains(&ticket) {
            return Err(ClassifierFault { message: "trap".to_owned(), rebuilt: true });
        }
        Ok(self.verdicts.get(&ticket).cloned().unwrap_or(Some(Verdict::Admit(Admission::default()))))
    }

    fn on_event(&mut self, event: &Event, _: f64) -> Result<Vec<Resolution>, ClassifierFault> {
        self.events.push(event.clone());
        Ok(std::mem::take(&mut self.next))
    }

    fn on_tick(&mut self, _: f64, _: &[Progress]) -> Result<Vec<Resolution>, ClassifierFault> {
        Ok(Vec::new())
    }
}

type Controller = AdmissionController<Asked, Scripted>;

fn partition(workers: u64) -> Arc<Partition> {
    let partition = Router::builder().build().unwrap().partition(&PartitionKey::default(), 16).unwrap();
    for worker in 1..=workers {
        let config = WorkerConfig { max_num_batched_tokens: Some(1_000), ..WorkerConfig::new(worker) };
        partition.upsert_worker(config).unwrap();
    }
    partition
}

/// One family of one class, in which a request waits while every worker has more than `busy` tokens in prefill.
fn profile(busy: u64, limits: QueueLimits) -> Arc<Profile> {
    let class = |name: &str, family: Option<&str>| PolicyClass {
        name: name.to_owned(),
        policy_family: family.map(str::to_owned),
        cache_bucket: family.map(|_| "all".to_owned()),
        quantum: 100,
        prefill_busy_threshold: Some(busy),
        limits,
        ..PolicyClass::default()
    };
    let spec = ProfileSpec {
        default_policy_family: "standard".to_owned(),
        uncached_isl_buckets: vec![Bucket { min_tokens: 0, bucket: "all".to_owned() }],
        policy_classes: vec![class("standard_all", Some("standard")), class("batch", None)],
    };
    Arc::new(Profile::new(spec).unwrap())
}

fn controller(partition: &Arc<Partition>, profile: Arc<Profile>, affinity: Option<AffinityMode>) -> Controller {
    controller_of(partition, profile, affinity, Scripted::default())
}

fn controller_of(
    partition: &Arc<Partition>,
    profile: Arc<Profile>,
    affinity: Option<AffinityMode>,
    classifier: Scripted,
) -> Controller {
    let setup = AdmissionSetup {
        classifier,
        on_fault: OnFault::Reject,
        max_deferral_ms: 1_000,
        profile,
        affinity: affinity.map(|mode| SessionAffinity::new(mode, 60).unwrap()),
    };
    AdmissionController::new(Arc::clone(partition), setup, 0.0)
}

fn ask(controller: &mut Controller, id: &str, request: Asked, now_ms: f64) -> LifecycleId {
    try_ask(controller, id, request, now_ms).unwrap()
}

fn try_ask(controller: &mut Controller, id: &str, request: Asked, now_ms: f64) -> Result<LifecycleId, AdmissionError> {
    let asked = controller.submit(submission(id, request, now_ms), now_ms);
    controller.advance(&mut Plain, now_ms);
    asked
}

fn submission(id: &str, request: Asked, ingress_ms: f64) -> Submission<Asked> {
    Submission { request_id: id.to_owned(), policy_class: None, ingress_ms, due_ms: None, request }
}

fn tokens(tokens: u64) -> Asked {
    Asked { tokens, ..Asked::default() }
}

/// The workers that requests were sent to since the last look, in order; ends must be looked at elsewhere.
fn sent(controller: &mut Controller) -> Vec<(LifecycleId, u64)> {
    outcomes(controller)
        .into_iter()
        .map(|outcome| match outcome {
            AdmissionOutcome::Dispatched { id, decision, .. } => (id, decision.worker.worker),
            other => panic!("{other:?}"),
        })
        .collect()
}

fn outcomes(controller: &mut Controller) -> Vec<AdmissionOutcome> {
    std::iter::from_fn(|| controller.next_outcome()).collect()
}

#[test]
fn a_request_goes_to_a_worker_books_it_and_gives_everything_back_when_it_ends() {
    let partition = partition(1);
    let mut door = controller(&partition, profile(1_000, QueueLimits::default()), None);
    let id = ask(&mut door, "a", tokens(64), 0.0);
    assert_eq!(sent(&mut door), [(id, 1)]);
    let key = WorkerKey::new(1, 0);
    let load = partition.load(key).unwrap();
    assert_eq!((load.active_prefill_tokens, load.active_requests), (64.0, 1.0));
    door.prefill_complete(id);
    assert_eq!(partition.load(key).unwrap().active_prefill_tokens, 0.0);
    door.responding(id).unwrap();
    assert!(door.complete(id));
    door.advance(&mut Plain, 5.0);
    assert_eq!(outcomes(&mut door), [AdmissionOutcome::Ended { id, end: End::Completed }]);
    assert_eq!(partition.load(key).unwrap(), Default::default());
    assert!(!door.complete(id), "it has ended");
}

#[test]
fn requests_wait_while_every_worker_is_busy_and_leave_in_order_as_prefills_end() {
    let partition = partition(2);
    let mut door = controller(&partition, profile(50, QueueLimits::default()), None);
    let first = [ask(&mut door, "a", tokens(64), 0.0), ask(&mut door, "b", tokens(64), 1.0)];
    assert_eq!(sent(&mut door).len(), 2, "one worker each");
    let later = [ask(&mut door, "c", tokens(64), 2.0), ask(&mut door, "d", tokens(64), 3.0)];
    assert_eq!(sent(&mut door), []);
    assert_eq!(door.usage(door.profile().choose(None, 64)).requests, 2);
    door.prefill_complete(first[1]);
    door.advance(&mut Plain, 10.0);
    let [AdmissionOutcome::Dispatched { id, queued_ms, .. }] = outcomes(&mut door)[..] else { panic!() };
    assert_eq!((id, queued_ms), (later[0], 8.0));
    assert!(door.complete(first[0]));
    door.advance(&mut Plain, 11.0);
    let outcomes = outcomes(&mut door);
    assert!(
        matches!(outcomes[..], [AdmissionOutcome::Ended { .. }, AdmissionOutcome::Dispatched { id, .. }] if id == later[1])
    );
}

#[test]
fn a_full_class_refuses_and_says_which_limit() {
    let partition = partition(1);
    let limits = QueueLimits { requests: Some(1), ..QueueLimits::default() };
    let mut door = controller(&partition, profile(50, limits), None);
    ask(&mut door, "a", tokens(64), 0.0);
    ask(&mut door, "b", tokens(64), 0.0);
    let refused = ask(&mut door, "c", tokens(64), 0.0);
    let outcomes = outcomes(&mut door);
    let Some(AdmissionOutcome::Ended { id, end: End::Failed(AdmissionError::QueueRejected(why)) }) = outcomes.last()
    else {
        panic!("{outcomes:?}")
    };
    assert_eq!((*id, &*why.policy_class, why.current, why.limit), (refused, "standard_all", 1, 1));
}

#[test]
fn a_due_time_ends_the_wait_in_the_queue_and_no_other_call_is_needed_before_it() {
    let partition = partition(1);
    let mut door = controller(&partition, profile(50, QueueLimits::default()), None);
    ask(&mut door, "a", tokens(64), 0.0);
    let submission = pointsman_routing::Submission {
        request_id: "b".to_owned(),
        policy_class: Some("batch".to_owned()),
        ingress_ms: 0.0,
        due_ms: Some(30.5),
        request: tokens(64),
    };
    let late = door.submit(submission, 0.0).unwrap();
    door.advance(&mut Plain, 0.0);
    assert_eq!(sent(&mut door).len(), 1);
    assert_eq!(door.next_deadline(), Some(30.5));
    door.advance(&mut Plain, 30.5);
    let end = End::Failed(AdmissionError::DeadlineExceeded);
    assert_eq!(outcomes(&mut door), [AdmissionOutcome::Ended { id: late, end }]);
    assert_eq!(door.next_deadline(), None);
}

#[test]
fn a_verdict_sets_class_and_target_and_a_pin_stays_a_pin() {
    let partition = partition(3);
    let number = |worker| partition.number_of(WorkerKey::new(worker, 0)).unwrap();
    let admit = |target, class: Option<&str>| {
        Some(Verdict::Admit(Admission { policy_class: class.map(str::to_owned), target, ..Admission::default() }))
    };
    let verdicts = BTreeMap::from([
        (1, admit(TargetChange::Set(number(3)), Some("batch"))),
        (2, admit(TargetChange::Set(number(3)), None)),
        (3, admit(TargetChange::Keep, Some("standard_all"))),
    ]);
    let classifier = Scripted { verdicts, ..Scripted::default() };
    let mut door = controller_of(&partition, profile(1_000, QueueLimits::default()), None, classifier);
    let targeted = ask(&mut door, "a", tokens(64), 0.0);
    let [AdmissionOutcome::Dispatched { id, decision, class, .. }] = outcomes(&mut door)[..] else { panic!() };
    assert_eq!((id, decision.worker.worker, &*door.profile().class(class).name), (targeted, 3, "batch"));
    let pinned = ask(&mut door, "b", Asked { pinned: Some(2), ..tokens(64) }, 0.0);
    assert_eq!(sent(&mut door), [(pinned, 2)]);
    // The name of a class inside a family is none that a classifier may give.
    ask(&mut door, "c", tokens(64), 0.0);
    let end = outcomes(&mut door).pop();
    assert!(
        matches!(
            &end,
            Some(AdmissionOutcome::Ended { end: End::Failed(AdmissionError::InvalidClassification(_)), .. })
        ),
        "{end:?}"
    );
}

#[test]
fn a_retry_leaves_the_failed_worker_without_asking_the_classifier_again() {
    let partition = partition(2);
    let mut door = controller(&partition, profile(1_000, QueueLimits::default()), None);
    let id = ask(&mut door, "a", tokens(64), 0.0);
    let [(_, first)] = sent(&mut door)[..] else { panic!() };
    let other = 3 - first;
    assert!(door.retry(id, |request| request.allowed = Some(vec![other])).unwrap());
    door.advance(&mut Plain, 1.0);
    assert_eq!(sent(&mut door), [(id, other)]);
    assert_eq!(partition.load(WorkerKey::new(first, 0)).unwrap(), Default::default());
    assert_eq!(door.counts().classified, 1);
}

#[test]
fn a_soft_session_follows_its_requests_and_a_hard_one_stays() {
    for (mode, second_worker) in [(AffinityMode::Soft, 2), (AffinityMode::Hard, 1)] {
        let partition = partition(2);
        let mut door = controller(&partition, profile(1_000, QueueLimits::default()), Some(mode));
        let of_session = |allowed: Option<u64>| Asked {
            session: Some("s"),
            allowed: allowed.map(|worker| vec![worker]),
            ..tokens(64)
        };
        let first = ask(&mut door, "a", of_session(Some(1)), 0.0);
        assert_eq!(sent(&mut door), [(first, 1)]);
        // The session has no worker before the first stream: its next request waits for that.
        let second = ask(&mut door, "b", of_session(None), 1.0);
        assert_eq!(sent(&mut door), []);
        door.responding(first).unwrap();
        door.advance(&mut Plain, 2.0);
        assert_eq!(sent(&mut door), [(second, 1)], "with its session, though the worker has more to do");
        door.responding(second).unwrap();
        // Elsewhere only where the caller says so.
        let moved = ask(&mut door, "c", of_session(Some(2)), 3.0);
        match mode {
            AffinityMode::Soft => {
                assert_eq!(sent(&mut door), [(moved, 2)]);
                door.responding(moved).unwrap();
            }
            AffinityMode::Hard => {
                let end = End::Failed(AdmissionError::PinnedWorkerNotAllowed { worker: 1 });
                assert_eq!(outcomes(&mut door), [AdmissionOutcome::Ended { id: moved, end }]);
            }
        }
        let last = ask(&mut door, "d", of_session(None), 4.0);
        assert_eq!(sent(&mut door), [(last, second_worker)]);
    }
}

#[test]
fn a_busy_soft_target_holds_nobody_up_and_an_idle_worker_counts_though_it_is_overloaded() {
    let partition = partition(2);
    let mut door = controller(&partition, profile(50, QueueLimits::default()), Some(AffinityMode::Soft));
    let of_session = || Asked { session: Some("s"), ..tokens(64) };
    let first = ask(&mut door, "a", of_session(), 0.0);
    let [(_, busy)] = sent(&mut door)[..] else { panic!() };
    door.responding(first).unwrap();
    // The other worker is idle, so that the request goes on to selection, which stays with the target.
    let second = ask(&mut door, "b", of_session(), 1.0);
    assert_eq!(sent(&mut door), [(second, busy)]);
    partition.set_overloaded(3 - busy, true);
    let third = ask(&mut door, "c", tokens(64), 2.0);
    assert_eq!(sent(&mut door), [(third, busy)]);
}

#[test]
fn a_session_id_that_is_too_long_is_refused_at_once_and_its_id_is_free_again() {
    const LONG: &str = "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789\
        0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789\
        012345678901234567890123456789012345678901234567890123456789";
    let partition = partition(1);
    let mut door = controller(&partition, profile(1_000, QueueLimits::default()), Some(AffinityMode::Soft));
    let refused = try_ask(&mut door, "a", Asked { session: Some(LONG), ..tokens(64) }, 0.0).unwrap_err();
    assert!(matches!(refused, AdmissionError::Affinity(_)), "{refused}");
    assert_eq!(outcomes(&mut door), []);
    let id = ask(&mut door, "a", tokens(64), 0.0);
    assert_eq!(sent(&mut door), [(id, 1)]);
}

#[test]
fn a_worker_that_comes_lets_waiting_requests_go() {
    let partition = partition(1);
    let mut door = controller(&partition, profile(50, QueueLimits::default()), None);
    ask(&mut door, "a", tokens(64), 0.0);
    let waiting = ask(&mut door, "b", tokens(64), 0.0);
    assert_eq!(sent(&mut door).len(), 1);
    partition.upsert_worker(WorkerConfig::new(7)).unwrap();
    door.workers_changed();
    door.advance(&mut Plain, 1.0);
    assert_eq!(sent(&mut door), [(waiting, 7)]);
}

#[test]
fn advice_waits_its_turn_books_nothing_and_is_never_classified() {
    let partition = partition(1);
    let mut door = controller(&partition, profile(50, QueueLimits::default()), None);
    let first = ask(&mut door, "a", tokens(64), 0.0);
    assert_eq!(sent(&mut door), [(first, 1)]);
    let booked = partition.load(WorkerKey::new(1, 0));
    let (classified, told) = (door.classifier_mut().classified.len(), door.classifier_mut().events.len());
    let advised = door.advise(submission("a", tokens(64), 1.0), 1.0).unwrap();
    door.advance(&mut Plain, 1.0);
    assert_eq!(outcomes(&mut door), [], "the worker is busy, and another request may have its id");
    door.prefill_complete(first);
    door.advance(&mut Plain, 2.0);
    let [AdmissionOutcome::Dispatched { id, decision, queued_ms, .. }, AdmissionOutcome::Ended { id: ended, end }] =
        &outcomes(&mut door)[..]
    else {
        panic!("a worker, and the end")
    };
    assert_eq!((*id, *ended, end), (advised, advised, &End::Completed));
    assert_eq!((decision.worker.worker, *queued_ms), (1, 1.0));
    assert_eq!(partition.load(WorkerKey::new(1, 0)).unwrap().active_requests, booked.unwrap().active_requests);
    assert_eq!((door.classifier_mut().classified.len(), door.classifier_mut().events.len()), (classified, told));
}

#[test]
fn a_decision_is_booked_later_past_queue_and_classifier_and_takes_its_session_along() {
    let partition = partition(2);
    let mut door = controller(&partition, profile(50, QueueLimits::default()), Some(AffinityMode::Hard));
    let session = Asked { session: Some("s"), ..tokens(64) };
    let decision = session.view(|request| partition.decide(&request)).unwrap();
    let placed = door.place(&mut Plain, submission("x", session.clone(), 0.0), decision, 0.0).unwrap();
    door.advance(&mut Plain, 0.0);
    assert_eq!(outcomes(&mut door), []);
    assert!(door.classifier_mut().classified.is_empty());
    assert_eq!(partition.load(decision.worker).unwrap().active_prefill_tokens, 64.0);
    let other = WorkerKey::new(3 - decision.worker.worker, 0);
    let elsewhere = Decision { worker: other, ..decision };
    let refused = door.place(&mut Plain, submission("y", session.clone(), 1.0), elsewhere, 1.0).unwrap_err();
    assert!(matches!(refused, AdmissionError::Affinity(_)), "{refused}");
    assert_eq!(partition.load(other).unwrap(), Default::default(), "nothing is kept of it");
    let gone = Decision { worker: WorkerKey::new(9, 0), ..decision };
    let refused = door.place(&mut Plain, submission("y", tokens(64), 1.0), gone, 1.0).unwrap_err();
    assert!(matches!(refused, AdmissionError::BookingFailed(_)), "{refused}");
    assert!(door.complete(placed));
    door.advance(&mut Plain, 2.0);
    assert_eq!(outcomes(&mut door), [AdmissionOutcome::Ended { id: placed, end: End::Completed }]);
    assert_eq!(partition.load(decision.worker).unwrap(), Default::default());
}

#[test]
fn advice_follows_the_session_that_a_booking_has_bound() {
    let partition = partition(2);
    let mut door = controller(&partition, profile(1_000, QueueLimits::default()), Some(AffinityMode::Hard));
    let session = Asked { session: Some("s"), ..tokens(640) };
    let first = ask(&mut door, "a", session.clone(), 0.0);
    let [(_, worker)] = sent(&mut door)[..] else { panic!("one worker") };
    door.bind_session(first).unwrap();
    door.advise(submission("", session, 1.0), 1.0).unwrap();
    door.advance(&mut Plain, 1.0);
    let [AdmissionOutcome::Dispatched { decision, .. }, _] = outcomes(&mut door)[..] else { panic!("one worker") };
    assert_eq!(decision.worker.worker, worker, "though the other one has nothing to do");
}

#[derive(Clone, Debug)]
enum Step {
    Advise { tokens: u64, session: Option<&'static str> },
    Place { tokens: u64, session: Option<&'static str>, worker: u64 },
    Ask { tokens: u64, session: Option<&'static str>, verdict: u8 },
    Resolve(usize),
    Prefilled(usize),
    Responding(usize),
    Complete(usize),
    Cancel(usize),
    Retry(usize),
    Worker { id: u64, there: bool },
    Wait(f64),
}

fn step() -> impl Strategy<Value = Step> {
    let session = proptest::option::of(proptest::sample::select(vec!["s", "t"]));
    let pick = 0_usize..12;
    prop_oneof![
        4 => (1_u64..200, session.clone(), 0_u8..8).prop_map(|(tokens, session, verdict)| Step::Ask { tokens, session, verdict }),
        1 => (1_u64..200, session.clone()).prop_map(|(tokens, session)| Step::Advise { tokens, session }),
        1 => (1_u64..200, session, 1_u64..4).prop_map(|(tokens, session, worker)| Step::Place { tokens, session, worker }),
        1 => pick.clone().prop_map(Step::Resolve),
        2 => pick.clone().prop_map(Step::Prefilled),
        2 => pick.clone().prop_map(Step::Responding),
        2 => pick.clone().prop_map(Step::Complete),
        1 => pick.clone().prop_map(Step::Cancel),
        1 => pick.prop_map(Step::Retry),
        1 => (1_u64..4, any::<bool>()).prop_map(|(id, there)| Step::Worker { id, there }),
        1 => (0.0_f64..700.0).prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever comes in between, every request ends exactly once, its classifier hears of it once, and nothing stays
    /// booked.
    #[test]
    fn every_request_ends_exactly_once(steps in proptest::collection::vec(step(), 1..60), hard in any::<bool>()) {
        let partition = partition(2);
        let mode = if hard { AffinityMode::Hard } else { AffinityMode::Soft };
        let mut classifier = Scripted::default();
        let verdicts: Vec<u8> = steps.iter().filter_map(|step| match step {
            Step::Ask { verdict, .. } => Some(*verdict),
            _ => None,
        }).collect();
        for (ticket, verdict) in (1..).zip(&verdicts) {
            match verdict {
                0 => classifier.faults.push(ticket),
                1 | 2 => _ = classifier.verdicts.insert(ticket, None),
                3 => _ = classifier.verdicts.insert(ticket, Some(Verdict::Admit(Admission {
                    policy_class: Some("batch".to_owned()), ..Admission::default()
                }))),
                _ => {}
            }
        }
        let mut door = controller_of(&partition, profile(150, QueueLimits { requests: Some(3), ..QueueLimits::default() }), Some(mode), classifier);
        let (mut now, mut asked) = (0.0, Vec::new());
        let mut ends: BTreeMap<LifecycleId, u32> = BTreeMap::new();
        let mut note = |door: &mut Controller| {
            for outcome in outcomes(door) {
                if let AdmissionOutcome::Ended { id, .. } = outcome {
                    *ends.entry(id).or_default() += 1;
                }
            }
        };
        for step in steps {
            let nth = |place: usize| asked.iter().rev().nth(place).copied();
            match step {
                Step::Ask { tokens, session, .. } => {
                    let id = ask(&mut door, &format!("r{}", asked.len()), Asked { tokens, session, ..Asked::default() }, now);
                    asked.push(id);
                }
                Step::Advise { tokens, session } => {
                    let request = Asked { tokens, session, ..Asked::default() };
                    asked.push(door.advise(submission("", request, now), now).unwrap());
                }
                Step::Place { tokens, session, worker } => {
                    let decision = Decision { worker: WorkerKey::new(worker, 0), row: 0, cost: 0.0, outcome: Outcome::Ok, fallback: false, fuel: None, cached_tokens: 0 };
                    let request = Asked { tokens, session, ..Asked::default() };
                    asked.extend(door.place(&mut Plain, submission("", request, now), decision, now));
                }
                Step::Resolve(place) => if let Some(id) = nth(place) {
                    // By way of an event that brings it.
                    door.classifier_mut().next.push(Resolution { ticket: id.ticket(), verdict: Verdict::Admit(Admission::default()) });
                },
                Step::Prefilled(place) => if let Some(id) = nth(place) { door.prefill_complete(id) },
                Step::Responding(place) => if let Some(id) = nth(place) && door.responding(id).is_err() { door.abort(id, None); },
                Step::Complete(place) => if let Some(id) = nth(place) { door.complete(id); },
                Step::Cancel(place) => if let Some(id) = nth(place) { door.cancel(id); },
                Step::Retry(place) => if let Some(id) = nth(place) { door.retry(id, |_| {}).unwrap(); },
                Step::Worker { id, there: true } => { partition.upsert_worker(WorkerConfig::new(id)).unwrap(); door.workers_changed(); }
                Step::Worker { id, there: false } => { partition.remove_worker(id); door.workers_changed(); }
                Step::Wait(ms) => now += ms,
            }
            door.advance(&mut Plain, now);
            note(&mut door);
        }
        door.shut_down();
        note(&mut door);
        prop_assert_eq!(ends.len(), asked.len());
        prop_assert!(ends.values().all(|times| *times == 1), "{:?}", ends);
        for key in partition.rows() {
            prop_assert_eq!(partition.load(key).unwrap(), Default::default(), "{} stays booked", key);
        }
        let told = |id: LifecycleId| door.classifier_mut().events.iter().filter(|event| matches!(event,
            Event::Completed { ticket, .. } | Event::Aborted { ticket, .. } if *ticket == id.ticket())).count();
        prop_assert!(asked.iter().copied().map(told).all(|times| times <= 1));
        prop_assert_eq!(door.classifier_mut().classified.len() as u64, door.counts().classified);
    }
}

#[test]
fn session_affinity_from_outside_the_file_holds_after_a_reload() {
    let settings = SessionAffinitySettings { mode: AffinityMode::Hard, ttl_secs: 60 };
    let file = PolicyConfig::parse("policy.yaml", Path::new("."), "router: {}\n").unwrap();
    for session_affinity in [None, Some(settings)] {
        let overrides = Overrides { session_affinity, ..Overrides::default() };
        let router = Router::builder().overrides(overrides).build().unwrap();
        let partition = router.partition(&PartitionKey::default(), 16).unwrap();
        let keeps_sessions = || router.admission::<Asked>(&partition, 0.0).unwrap().is_some();
        assert_eq!(keeps_sessions(), session_affinity.is_some());
        router.activate(router.load(file.clone()).unwrap(), 0.0).unwrap();
        assert_eq!(keeps_sessions(), session_affinity.is_some(), "the new file says nothing of it");
    }
}
