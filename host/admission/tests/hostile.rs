//! A hostile classifier harms the requests that it was asked about, and none for longer than the host allows.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::time::Duration;

use common::{MAX_DEFERRAL_MS, admit, ended, outcomes, rejection, rules, submit};
use pointsman_admission::{
    AdmissionError, Classifier, ClassifierFault, ClassifyRequest, End, LifecycleId, Lifecycles, OnFault, Outcome,
};
use pointsman_contract::{Admission, Event, Progress, Resolution, Ticket, Verdict};

const MAX_MS: f64 = MAX_DEFERRAL_MS as f64;

type Answer<T> = Result<T, ClassifierFault>;

/// Defers every request, and does the same mischief at every event and tick.
struct Defers<F>(F);

impl<F: FnMut() -> Answer<Vec<Resolution>>> Classifier for Defers<F> {
    fn classify(&mut self, _: Ticket, _: &ClassifyRequest, _: f64) -> Answer<Option<Verdict>> {
        Ok(None)
    }

    fn on_event(&mut self, _: &Event, _: f64) -> Answer<Vec<Resolution>> {
        (self.0)()
    }

    fn on_tick(&mut self, _: f64, _: &[Progress]) -> Answer<Vec<Resolution>> {
        (self.0)()
    }

    fn tick_interval(&self) -> Option<Duration> {
        Some(Duration::ZERO)
    }
}

/// Submits three requests to a classifier that defers, and reads what has come of them at the host's maximum.
fn three_of<F>(on_fault: OnFault, mischief: F) -> ([LifecycleId; 3], Vec<Outcome>, Lifecycles<Defers<F>>)
where
    F: FnMut() -> Answer<Vec<Resolution>>,
{
    let mut lives = Lifecycles::new(Defers(mischief), rules(on_fault), 0.0);
    let ids = ["one", "two", "three"].map(|request| submit(&mut lives, request));
    for now_ms in [0.0, 1.0, 2.0, 3.0, MAX_MS] {
        lives.run(now_ms);
    }
    let outcomes = outcomes(&mut lives);
    (ids, outcomes, lives)
}

fn all_ended_once(ids: [LifecycleId; 3], outcomes: &[Outcome]) {
    let mut which: Vec<_> = ended(outcomes).iter().map(|(id, _)| *id).collect();
    which.sort_unstable();
    assert_eq!(which, ids);
}

#[test]
fn one_that_never_resolves_holds_a_request_for_the_maximum_alone() {
    let (ids, outcomes, _) = three_of(OnFault::Reject, || Ok(vec![]));
    all_ended_once(ids, &outcomes);
    let expired = End::Failed(AdmissionError::DeferralExpired { max_ms: MAX_DEFERRAL_MS });
    assert!(ended(&outcomes).iter().all(|(_, end)| **end == expired));
    let (ids, outcomes, _) = three_of(OnFault::Admit, || Ok(vec![]));
    assert_eq!(outcomes, ids.map(|id| Outcome::Admitted(id, Admission::default())));
}

#[test]
fn one_that_resolves_everything_over_and_over_decides_each_request_once() {
    let flood = || {
        let tickets = (0..1000).chain([u32::MAX]);
        let verdicts = [admit(Admission::default()), Verdict::Reject(rejection())];
        let twice = tickets.flat_map(|ticket| verdicts.clone().map(|verdict| Resolution { ticket, verdict }));
        Ok(twice.collect())
    };
    let (ids, outcomes, lives) = three_of(OnFault::Reject, flood);
    assert_eq!(outcomes, ids.map(|id| Outcome::Admitted(id, Admission::default())));
    assert!(lives.counts().ignored_resolutions >= 2 * 1001 - 3);
}

#[test]
fn one_that_knows_no_class_fails_the_requests_that_it_resolves() {
    let unknown_class = || {
        let nonsense = Admission { policy_class: Some("no such class".to_owned()), ..Admission::default() };
        Ok(vec![Resolution { ticket: 2, verdict: admit(nonsense) }])
    };
    let (ids, outcomes, _) = three_of(OnFault::Reject, unknown_class);
    all_ended_once(ids, &outcomes);
    for (id, end) in ended(&outcomes) {
        let invalid = matches!(end, End::Failed(AdmissionError::InvalidClassification(_)));
        assert_eq!(invalid, id.ticket() == 2, "{end:?}");
    }
}

/// Fails in every callback.
struct Faults {
    rebuilt: bool,
}

impl Faults {
    fn fault<T>(&self) -> Answer<T> {
        Err(ClassifierFault { message: "unreachable executed".to_owned(), rebuilt: self.rebuilt })
    }
}

impl Classifier for Faults {
    fn classify(&mut self, _: Ticket, _: &ClassifyRequest, _: f64) -> Answer<Option<Verdict>> {
        self.fault()
    }

    fn on_event(&mut self, _: &Event, _: f64) -> Answer<Vec<Resolution>> {
        self.fault()
    }

    fn on_tick(&mut self, _: f64, _: &[Progress]) -> Answer<Vec<Resolution>> {
        self.fault()
    }

    fn tick_interval(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }
}

#[test]
fn one_that_faults_in_every_callback_fails_each_request_at_once_or_admits_it() {
    for rebuilt in [false, true] {
        for on_fault in [OnFault::Reject, OnFault::Admit] {
            let mut lives = Lifecycles::new(Faults { rebuilt }, rules(on_fault), 0.0);
            let ids = ["one", "two", "three"].map(|request| submit(&mut lives, request));
            lives.run(5.0);
            let seen: Vec<_> = outcomes(&mut lives).into_iter().filter(|o| !matches!(o, Outcome::Faulted(_))).collect();
            let expected = ids.map(|id| match on_fault {
                OnFault::Admit => Outcome::Admitted(id, Admission::default()),
                OnFault::Reject => {
                    let error = AdmissionError::ClassifierFailed("unreachable executed".to_owned());
                    Outcome::Ended(id, End::Failed(error))
                }
            });
            assert_eq!(seen, expected);
        }
    }
}

#[test]
fn one_that_faults_at_events_harms_no_request_that_it_has_admitted() {
    let mut lives = Lifecycles::new(AdmitsThenFaults, rules(OnFault::Reject), 0.0);
    let id = submit(&mut lives, "a");
    lives.run(0.0);
    lives.sent(id, 4);
    lives.responding(id);
    lives.run(1.0);
    lives.complete(id);
    lives.run(2.0);
    let outcomes: Vec<_> = outcomes(&mut lives).into_iter().filter(|o| !matches!(o, Outcome::Faulted(_))).collect();
    assert_eq!(outcomes, [Outcome::Admitted(id, Admission::default()), Outcome::Ended(id, End::Completed)]);
    assert_eq!(lives.counts().faults, 3, "one an event");
}

struct AdmitsThenFaults;

impl Classifier for AdmitsThenFaults {
    fn on_event(&mut self, event: &Event, _: f64) -> Answer<Vec<Resolution>> {
        match event {
            Event::Workers(_) => Ok(vec![]),
            _ => Err(ClassifierFault { message: "unreachable executed".to_owned(), rebuilt: true }),
        }
    }
}
