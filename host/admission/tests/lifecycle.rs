//! The life of a request, rule by rule. Time is a number.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::time::Duration;

use common::{
    Call, MAX_DEFERRAL_MS, admit, admitted, calls, deferred, ended, events, fault, outcomes, rejection, resolution,
    resolve, rules, scripted, submit, worker,
};
use pointsman_admission::{
    AdmissionError, Classifier, ClassifyRequest, ClassifySession, End, Lifecycles, OnFault, Outcome, Purpose,
    Submitted, WorkerKey,
};
use pointsman_contract::{Admission, ClassifierWorker, Event, Progress, TargetChange, Verdict};

fn premium() -> Admission {
    Admission {
        policy_class: Some("premium".to_owned()),
        due_ms: Some(250.5),
        scheduling_cost_tokens: Some(7),
        target: TargetChange::Set(3),
    }
}

#[test]
fn a_classifier_of_defaults_admits_every_request_as_it_came() {
    struct PassThrough;
    impl Classifier for PassThrough {}
    let mut lives = Lifecycles::new(PassThrough, rules(OnFault::Reject), 0.0);
    let id = submit(&mut lives, "a");
    lives.run(1.0);
    assert_eq!(outcomes(&mut lives), [Outcome::Admitted(id, Admission::default())]);
    assert_eq!(lives.next_deadline(), None);
}

#[test]
fn a_classifier_reads_what_the_request_says_and_its_admission_is_followed() {
    let mut lives = scripted(OnFault::Reject);
    let request = ClassifyRequest {
        policy_class: Some("standard".to_owned()),
        input_tokens: 300,
        ingress_ms: 4.5,
        due_ms: Some(90.25),
        scheduling_cost_tokens: 120,
        session: Some(ClassifySession { id: "S".to_owned(), last: Some(true), ..Default::default() }),
        ..Default::default()
    };
    let id = lives.begin("a").unwrap();
    lives.submit(Purpose::Serve(id), request.clone()).unwrap();
    lives.classifier_mut().verdicts.push_back(Ok(Some(admit(premium()))));
    lives.run(5.0);
    let read = ClassifyRequest { request_id: "a".to_owned(), context_tokens: 300, ..request };
    assert_eq!(calls(&mut lives), [Call::Classify(id.ticket(), read)]);
    assert_eq!(outcomes(&mut lives), [Outcome::Admitted(id, premium())]);
}

#[test]
fn a_rejection_reaches_the_client_as_the_classifier_said_it() {
    let mut lives = scripted(OnFault::Admit);
    let id = submit(&mut lives, "a");
    lives.classifier_mut().verdicts.push_back(Ok(Some(Verdict::Reject(rejection()))));
    lives.run(1.0);
    let error = AdmissionError::Rejected(rejection());
    assert_eq!(outcomes(&mut lives), [Outcome::Ended(id, End::Failed(error.clone()))]);
    assert_eq!(
        events(&mut lives),
        [Event::Aborted { ticket: id.ticket(), worker: None, error: Some(error.to_string()) }]
    );
}

#[test]
fn overrides_are_checked_before_the_queue() {
    for (admission, says) in [
        (Admission { scheduling_cost_tokens: Some(0), ..Admission::default() }, "scheduling cost is 0"),
        (Admission { policy_class: Some("premium_large".to_owned()), ..Admission::default() }, "premium_large"),
        (Admission { policy_class: Some(String::new()), ..Admission::default() }, "policy class \"\""),
        (Admission { due_ms: Some(f64::NAN), ..Admission::default() }, "due time is NaN"),
        (Admission { due_ms: Some(f64::INFINITY), ..Admission::default() }, "due time is inf"),
    ] {
        let mut lives = scripted(OnFault::Reject);
        let at_once = submit(&mut lives, "at once");
        lives.classifier_mut().verdicts.push_back(Ok(Some(admit(admission.clone()))));
        let later = deferred(&mut lives, "later", 1.0);
        resolve(&mut lives, vec![resolution(later, admit(admission))], 2.0);
        let outcomes = outcomes(&mut lives);
        let ended = ended(&outcomes);
        assert_eq!(ended.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [at_once, later], "{says}");
        for (_, end) in ended {
            let End::Failed(AdmissionError::InvalidClassification(problem)) = end else { panic!("{end:?}") };
            assert!(problem.contains(says), "{problem}");
        }
        assert_eq!(lives.counts().faults, 2);
    }
}

#[test]
fn a_due_time_in_the_past_is_the_queues_business() {
    let mut lives = scripted(OnFault::Reject);
    let id = submit(&mut lives, "a");
    let late = Admission { due_ms: Some(-1.0), ..Admission::default() };
    lives.classifier_mut().verdicts.push_back(Ok(Some(admit(late.clone()))));
    lives.run(500.0);
    assert_eq!(outcomes(&mut lives), [Outcome::Admitted(id, late)]);
}

#[test]
fn a_pin_stays_whatever_target_the_classifier_sets() {
    for target in [TargetChange::Set(3), TargetChange::Clear] {
        let mut lives = scripted(OnFault::Reject);
        let id = lives.begin("a").unwrap();
        let request = ClassifyRequest { pin: Some(WorkerKey::new(9, 1)), ..Default::default() };
        lives.submit(Purpose::Serve(id), request).unwrap();
        lives.classifier_mut().verdicts.push_back(Ok(Some(admit(Admission { target, ..premium() }))));
        lives.run(1.0);
        let kept = Admission { target: TargetChange::Keep, ..premium() };
        assert_eq!(outcomes(&mut lives), [Outcome::Admitted(id, kept)], "all but the target is followed");
        let unpinned = lives.submit(Purpose::Serve(id), ClassifyRequest::default());
        assert_eq!(unpinned, Ok(Submitted::Admitted(Admission { target, ..premium() })));
    }
}

#[test]
fn prefill_hops_and_queries_are_never_classified() {
    let mut lives = scripted(OnFault::Reject);
    for purpose in [Purpose::Prefill, Purpose::Query] {
        let submitted = lives.submit(purpose, ClassifyRequest::default());
        assert_eq!(submitted, Ok(Submitted::Admitted(Admission::default())));
    }
    lives.run(1.0);
    assert_eq!(calls(&mut lives), []);
    assert_eq!(outcomes(&mut lives), []);
    assert_eq!(lives.counts().classified, 0);
}

#[test]
fn a_deferred_request_blocks_no_event_and_an_event_may_release_it() {
    let mut lives = scripted(OnFault::Reject);
    let running = admitted(&mut lives, "running", 0.0);
    let waiting = deferred(&mut lives, "waiting", 1.0);
    assert_eq!(outcomes(&mut lives), []);
    lives.sent(running, 4);
    lives.complete(running);
    lives.classifier_mut().on_event.extend([Ok(vec![]), Ok(vec![resolution(waiting, admit(premium()))])]);
    lives.run(2.0);
    assert_eq!(outcomes(&mut lives), [Outcome::Ended(running, End::Completed), Outcome::Admitted(waiting, premium())]);
}

#[test]
fn a_deferred_request_may_be_rejected() {
    let mut lives = scripted(OnFault::Reject);
    let id = deferred(&mut lives, "a", 0.0);
    resolve(&mut lives, vec![resolution(id, Verdict::Reject(rejection()))], 1.0);
    let error = AdmissionError::Rejected(rejection());
    assert_eq!(outcomes(&mut lives), [Outcome::Ended(id, End::Failed(error))]);
}

#[test]
fn only_a_deferred_ticket_is_resolved_and_only_once() {
    let mut lives = scripted(OnFault::Reject);
    let queued = admitted(&mut lives, "queued", 0.0);
    let id = deferred(&mut lives, "deferred", 0.0);
    let gone = deferred(&mut lives, "gone", 0.0);
    lives.cancel(gone);
    outcomes(&mut lives);
    let unknown = pointsman_contract::Resolution { ticket: 999, verdict: Verdict::Reject(rejection()) };
    let reject = |id| resolution(id, Verdict::Reject(rejection()));
    let resolutions = vec![unknown, reject(queued), reject(gone), resolution(id, admit(premium())), reject(id)];
    resolve(&mut lives, resolutions, 1.0);
    assert_eq!(outcomes(&mut lives), [Outcome::Admitted(id, premium())]);
    assert_eq!(lives.counts().ignored_resolutions, 4);
}

#[test]
fn events_come_in_order_one_terminal_each() {
    let mut lives = scripted(OnFault::Reject);
    let id = admitted(&mut lives, "a", 0.0);
    calls(&mut lives);
    let ticket = id.ticket();
    assert!(!lives.responding(id), "not sent yet");
    assert!(lives.sent(id, 4));
    assert!(!lives.sent(id, 5), "sent already");
    assert!(lives.responding(id));
    assert!(!lives.responding(id));
    lives.progress(id, 140);
    lives.progress(id, 130);
    assert!(lives.complete(id));
    assert!(!lives.complete(id) && !lives.abort(id, None) && !lives.cancel(id) && !lives.sent(id, 6));
    lives.run(1.0);
    assert_eq!(
        events(&mut lives),
        [
            Event::Sent { ticket, worker: 4 },
            Event::Responding { ticket, worker: 4 },
            Event::Completed { ticket, worker: 4, context_tokens: Some(140) },
        ]
    );
    assert_eq!(outcomes(&mut lives), [Outcome::Ended(id, End::Completed)]);
}

#[test]
fn a_request_completes_without_tokens_that_nobody_told() {
    let mut lives = scripted(OnFault::Reject);
    let id = admitted(&mut lives, "a", 0.0);
    lives.sent(id, 4);
    lives.complete(id);
    lives.run(1.0);
    let last = events(&mut lives).pop();
    assert_eq!(last, Some(Event::Completed { ticket: id.ticket(), worker: 4, context_tokens: None }));
}

#[test]
fn a_request_without_a_worker_is_aborted_never_completed() {
    let mut lives = scripted(OnFault::Reject);
    let id = admitted(&mut lives, "a", 0.0);
    calls(&mut lives);
    lives.complete(id);
    lives.run(1.0);
    assert_eq!(events(&mut lives), [Event::Aborted { ticket: id.ticket(), worker: None, error: None }]);
    assert_eq!(outcomes(&mut lives), [Outcome::Ended(id, End::Aborted(None))]);
}

#[test]
fn a_request_that_a_worker_was_chosen_for_ends_with_it_though_it_was_never_sent() {
    let mut lives = scripted(OnFault::Reject);
    let [completed, aborted] = ["a", "b"].map(|request_id| admitted(&mut lives, request_id, 0.0));
    calls(&mut lives);
    assert_eq!([lives.live("a"), lives.live("b"), lives.live("c")], [Some(completed), Some(aborted), None]);
    lives.chosen(completed, 4);
    lives.chosen(aborted, 5);
    lives.complete(completed);
    lives.abort(aborted, None);
    lives.run(1.0);
    let expected = [
        Event::Completed { ticket: completed.ticket(), worker: 4, context_tokens: None },
        Event::Aborted { ticket: aborted.ticket(), worker: Some(5), error: None },
    ];
    assert_eq!(events(&mut lives), expected);
    assert_eq!(lives.live("a"), None);
}

#[test]
fn a_cancelled_request_is_aborted_wherever_it_stands() {
    let mut lives = scripted(OnFault::Reject);
    let begun = lives.begin("begun").unwrap();
    let deferred = deferred(&mut lives, "deferred", 0.0);
    let queued = admitted(&mut lives, "queued", 0.0);
    let running = admitted(&mut lives, "running", 0.0);
    lives.sent(running, 4);
    let waiting = submit(&mut lives, "waiting");
    calls(&mut lives);
    for id in [begun, waiting, deferred, queued, running] {
        assert!(lives.cancel(id));
    }
    lives.run(1.0);
    let calls = calls(&mut lives);
    assert!(!calls.iter().any(|call| matches!(call, Call::Classify(..))), "one that waited is not classified");
    let aborted: Vec<_> = calls
        .iter()
        .filter_map(|call| match call {
            Call::Event(Event::Aborted { ticket, worker, .. }) => Some((*ticket, *worker)),
            _ => None,
        })
        .collect();
    let expected = [(begun, None), (waiting, None), (deferred, None), (queued, None), (running, Some(4))];
    assert_eq!(aborted, expected.map(|(id, worker)| (id.ticket(), worker)));
    assert_eq!(outcomes(&mut lives).len(), 5);
    assert_eq!(lives.next_deadline(), None, "the deferral has gone");
}

#[test]
fn what_the_host_refuses_later_is_aborted_with_its_reason() {
    let mut lives = scripted(OnFault::Reject);
    let id = admitted(&mut lives, "a", 0.0);
    calls(&mut lives);
    lives.fail(id, AdmissionError::DeadlineExceeded);
    lives.run(1.0);
    let error = Some(AdmissionError::DeadlineExceeded.to_string());
    assert_eq!(events(&mut lives), [Event::Aborted { ticket: id.ticket(), worker: None, error }]);
    assert_eq!(outcomes(&mut lives), [Outcome::Ended(id, End::Failed(AdmissionError::DeadlineExceeded))]);
}

#[test]
fn a_retry_is_admitted_as_before_and_not_classified_again() {
    let mut lives = scripted(OnFault::Reject);
    let id = submit(&mut lives, "a");
    lives.classifier_mut().verdicts.push_back(Ok(Some(admit(premium()))));
    lives.run(0.0);
    lives.sent(id, 4);
    lives.responding(id);
    let retried = lives.submit(Purpose::Serve(id), ClassifyRequest::default());
    assert_eq!(retried, Ok(Submitted::Admitted(premium())));
    assert!(lives.sent(id, 5), "it stands in the queue again");
    lives.run(1.0);
    let calls = calls(&mut lives);
    assert_eq!(calls.iter().filter(|call| matches!(call, Call::Classify(..))).count(), 1);
    assert_eq!(calls.last(), Some(&Call::Event(Event::Sent { ticket: id.ticket(), worker: 5 })));
    lives.submit(Purpose::Serve(id), ClassifyRequest::default()).unwrap();
    lives.abort(id, Some("no other worker".to_owned()));
    lives.run(2.0);
    assert_eq!(
        events(&mut lives),
        [Event::Aborted { ticket: id.ticket(), worker: Some(5), error: Some("no other worker".to_owned()) }],
        "with its last worker"
    );
}

#[test]
fn a_live_id_is_refused_until_its_lifecycle_ends() {
    let mut lives = scripted(OnFault::Reject);
    let id = submit(&mut lives, "a");
    let duplicate = AdmissionError::DuplicateRequestId("a".to_owned());
    assert_eq!(lives.begin("a"), Err(duplicate.clone()));
    let again = lives.submit(Purpose::Serve(id), ClassifyRequest::default());
    assert_eq!(again, Err(duplicate.clone()), "it waits for its verdict already");
    lives.classifier_mut().verdicts.push_back(Ok(None));
    lives.run(0.0);
    assert_eq!(lives.submit(Purpose::Serve(id), ClassifyRequest::default()), Err(duplicate));
    lives.cancel(id);
    assert!(lives.begin("a").is_ok());
    assert_eq!(lives.counts().classified, 1);
}

#[test]
fn an_ended_lifecycle_is_refused_without_asking_the_classifier() {
    let mut lives = scripted(OnFault::Reject);
    let ended = admitted(&mut lives, "a", 0.0);
    lives.abort(ended, None);
    lives.begin("a").unwrap();
    let refused = lives.submit(Purpose::Serve(ended), ClassifyRequest::default());
    assert_eq!(refused, Err(AdmissionError::LifecycleEnded(ended)), "also while its id lives again");
    lives.run(1.0);
    assert_eq!(lives.counts().classified, 1);
}

#[test]
fn a_reused_id_is_classified_after_the_end_of_its_earlier_request_was_told() {
    let mut lives = scripted(OnFault::Reject);
    let first = admitted(&mut lives, "a", 0.0);
    calls(&mut lives);
    lives.sent(first, 4);
    lives.complete(first);
    let second = submit(&mut lives, "a");
    lives.run(1.0);
    lives.sent(second, 5);
    lives.run(2.0);
    let order: Vec<_> = calls(&mut lives)
        .into_iter()
        .map(|call| match call {
            Call::Classify(ticket, _) => ("classify", ticket),
            Call::Event(Event::Sent { ticket, .. }) => ("sent", ticket),
            Call::Event(Event::Completed { ticket, .. }) => ("completed", ticket),
            other => panic!("{other:?}"),
        })
        .collect();
    let (first, second) = (first.ticket(), second.ticket());
    assert_eq!(order, [("sent", first), ("completed", first), ("classify", second), ("sent", second)]);
}

#[test]
fn a_late_verdict_does_not_reach_the_next_request_of_the_same_id() {
    let mut lives = scripted(OnFault::Reject);
    let first = deferred(&mut lives, "a", 0.0);
    lives.cancel(first);
    let second = deferred(&mut lives, "a", 1.0);
    outcomes(&mut lives);
    resolve(&mut lives, vec![resolution(first, admit(premium()))], 2.0);
    assert_eq!(outcomes(&mut lives), []);
    resolve(&mut lives, vec![resolution(second, admit(Admission::default()))], 3.0);
    assert_eq!(outcomes(&mut lives), [Outcome::Admitted(second, Admission::default())]);
}

#[test]
fn a_deferral_ends_at_the_hosts_maximum_as_on_fault_says() {
    for on_fault in [OnFault::Reject, OnFault::Admit] {
        let mut lives = scripted(on_fault);
        let id = deferred(&mut lives, "a", 10.25);
        let due = 10.25 + f64::from(MAX_DEFERRAL_MS);
        assert_eq!(lives.next_deadline(), Some(due));
        lives.run(due - 0.25);
        assert_eq!(outcomes(&mut lives), []);
        lives.run(due);
        let expected = match on_fault {
            OnFault::Reject => {
                Outcome::Ended(id, End::Failed(AdmissionError::DeferralExpired { max_ms: MAX_DEFERRAL_MS }))
            }
            OnFault::Admit => Outcome::Admitted(id, Admission::default()),
        };
        assert_eq!(outcomes(&mut lives), [expected]);
        assert_eq!(lives.next_deadline(), None);
        assert_eq!(lives.counts().expired, 1);
    }
}

#[test]
fn a_resolution_that_comes_in_time_ends_the_wait() {
    let mut lives = scripted(OnFault::Reject);
    let id = deferred(&mut lives, "a", 0.0);
    resolve(&mut lives, vec![resolution(id, admit(premium()))], 999.0);
    lives.run(5000.0);
    assert_eq!(outcomes(&mut lives), [Outcome::Admitted(id, premium())]);
    assert_eq!(lives.counts().expired, 0);
}

#[test]
fn a_fault_fails_its_request_alone_and_a_kept_classifier_keeps_its_deferred_ones() {
    let mut lives = scripted(OnFault::Reject);
    let waiting = deferred(&mut lives, "waiting", 0.0);
    let failing = submit(&mut lives, "failing");
    lives.classifier_mut().verdicts.push_back(Err(fault(false)));
    let next = submit(&mut lives, "next");
    lives.run(1.0);
    let error = AdmissionError::ClassifierFailed("out of fuel".to_owned());
    assert_eq!(
        outcomes(&mut lives),
        [
            Outcome::Ended(failing, End::Failed(error)),
            Outcome::Faulted("out of fuel".to_owned()),
            Outcome::Admitted(next, Admission::default()),
        ]
    );
    resolve(&mut lives, vec![resolution(waiting, admit(premium()))], 2.0);
    assert_eq!(outcomes(&mut lives), [Outcome::Admitted(waiting, premium())]);
}

#[test]
fn a_rebuilt_classifier_hands_its_deferred_requests_back_and_reads_the_workers_first() {
    for on_fault in [OnFault::Reject, OnFault::Admit] {
        let mut lives = scripted(on_fault);
        lives.set_workers(vec![worker(4)]);
        let one = deferred(&mut lives, "one", 0.0);
        let two = deferred(&mut lives, "two", 1.0);
        lives.classifier_mut().calls.clear();
        let failing = submit(&mut lives, "failing");
        lives.classifier_mut().verdicts.push_back(Err(fault(true)));
        let next = submit(&mut lives, "next");
        lives.run(2.0);
        let after: Vec<_> = outcomes(&mut lives).into_iter().filter(|o| !matches!(o, Outcome::Faulted(_))).collect();
        let back = |id| match on_fault {
            OnFault::Reject => {
                Outcome::Ended(id, End::Failed(AdmissionError::ClassifierFailed("out of fuel".to_owned())))
            }
            OnFault::Admit => Outcome::Admitted(id, Admission::default()),
        };
        assert_eq!(
            after,
            [back(failing), back(one), back(two), Outcome::Admitted(next, Admission::default())],
            "{on_fault:?}"
        );
        let calls = &lives.classifier_mut().calls;
        assert!(matches!(calls[0], Call::Classify(..)));
        assert_eq!(calls[1], Call::Event(Event::Workers(vec![worker(4)])), "before anything else");
        assert!(matches!(&calls[2], Call::Classify(ticket, _) if *ticket == next.ticket()));
    }
}

#[test]
fn another_classifier_takes_over_what_comes_and_hands_back_what_was_deferred() {
    for on_fault in [OnFault::Reject, OnFault::Admit] {
        let mut lives = scripted(on_fault);
        lives.set_workers(vec![worker(4)]);
        let waiting = deferred(&mut lives, "waiting", 0.0);
        let sent = admitted(&mut lives, "sent", 1.0);
        drop(outcomes(&mut lives));
        let before = lives.replace_classifier(Default::default(), 2.0);
        assert!(!before.calls.is_empty());
        match &outcomes(&mut lives)[..] {
            [Outcome::Ended(id, End::Failed(AdmissionError::ClassifierFailed(message)))]
                if on_fault == OnFault::Reject =>
            {
                assert_eq!(*id, waiting);
                assert!(message.contains("another version"), "{message}");
            }
            [Outcome::Admitted(id, _)] if on_fault == OnFault::Admit => assert_eq!(*id, waiting),
            other => panic!("{on_fault:?}: {other:?}"),
        }
        assert!(lives.sent(sent, 4));
        lives.run(3.0);
        let calls = &lives.classifier_mut().calls;
        assert_eq!(calls[0], Call::Event(Event::Workers(vec![worker(4)])), "before anything else");
    }
}

#[test]
fn events_after_a_fault_go_to_the_rebuilt_classifier() {
    let mut lives = scripted(OnFault::Reject);
    let id = admitted(&mut lives, "a", 0.0);
    calls(&mut lives);
    lives.sent(id, 4);
    lives.classifier_mut().on_event.push_back(Err(fault(true)));
    lives.complete(id);
    lives.run(1.0);
    let ticket = id.ticket();
    assert_eq!(
        lives.classifier_mut().calls,
        [
            Call::Event(Event::Sent { ticket, worker: 4 }),
            Call::Event(Event::Workers(vec![])),
            Call::Event(Event::Completed { ticket, worker: 4, context_tokens: None }),
        ]
    );
    assert_eq!(lives.counts().faults, 1);
}

#[test]
fn a_classifier_that_cannot_even_start_fails_what_it_was_to_do() {
    let mut lives = scripted(OnFault::Reject);
    lives.classifier_mut().on_workers.extend([Err(fault(true)), Err(fault(true))]);
    let one = submit(&mut lives, "one");
    let two = submit(&mut lives, "two");
    let three = submit(&mut lives, "three");
    lives.run(0.0);
    let outcomes = outcomes(&mut lives);
    assert_eq!(ended(&outcomes).iter().map(|(id, _)| *id).collect::<Vec<_>>(), [one, two]);
    assert!(outcomes.contains(&Outcome::Admitted(three, Admission::default())), "it is asked again each time");
    assert_eq!(lives.counts().faults, 2);
}

#[test]
fn workers_come_first_and_again_when_they_change() {
    let mut lives = scripted(OnFault::Reject);
    lives.set_workers(vec![worker(1)]);
    submit(&mut lives, "a");
    lives.run(0.0);
    lives.set_workers(vec![worker(1)]);
    lives.run(1.0);
    lives.set_workers(vec![worker(1), worker(2)]);
    lives.run(2.0);
    let calls = std::mem::take(&mut lives.classifier_mut().calls);
    let workers = |workers: &[ClassifierWorker]| Call::Event(Event::Workers(workers.to_vec()));
    assert_eq!(calls[0], workers(&[worker(1)]));
    assert!(matches!(calls[1], Call::Classify(..)));
    assert_eq!(calls[2..], [workers(&[worker(1), worker(2)])], "the same workers are no change");
}

#[test]
fn a_tick_comes_each_interval_with_the_requests_that_have_grown() {
    let classifier = common::Scripted { tick: Some(Duration::from_millis(50)), ..Default::default() };
    let mut lives = Lifecycles::new(classifier, rules(OnFault::Reject), 0.0);
    let one = admitted(&mut lives, "one", 0.0);
    let two = admitted(&mut lives, "two", 0.0);
    let begun = lives.begin("begun").unwrap();
    let ticks = |lives: &mut Lifecycles<common::Scripted>, now_ms: f64| {
        lives.run(now_ms);
        let ticks = calls(lives).into_iter().filter_map(|call| match call {
            Call::Tick(progress) => Some(progress),
            _ => None,
        });
        ticks.collect::<Vec<_>>()
    };
    let progress = |ticket, context_tokens| Progress { ticket, context_tokens };
    assert_eq!(lives.next_deadline(), Some(50.0));
    lives.progress(two, 101);
    lives.progress(two, 105);
    lives.progress(one, 100);
    lives.progress(begun, 900);
    assert_eq!(ticks(&mut lives, 49.5), [[]; 0]);
    assert_eq!(ticks(&mut lives, 50.0), [[progress(two.ticket(), 105)]], "100 tokens are the prompt's alone");
    lives.progress(two, 90);
    assert_eq!(ticks(&mut lives, 100.0), [vec![]], "they never fall");
    lives.progress(one, 101);
    lives.progress(two, 106);
    lives.abort(two, None);
    assert_eq!(ticks(&mut lives, 470.0), [[progress(one.ticket(), 101)]], "one tick, however late");
    assert_eq!(lives.next_deadline(), Some(520.0));
}

#[test]
fn a_tick_may_release_a_request() {
    let classifier = common::Scripted { tick: Some(Duration::from_millis(50)), ..Default::default() };
    let mut lives = Lifecycles::new(classifier, rules(OnFault::Reject), 0.0);
    let id = deferred(&mut lives, "a", 0.0);
    lives.classifier_mut().on_tick.push_back(Ok(vec![resolution(id, admit(premium()))]));
    lives.run(50.0);
    assert_eq!(outcomes(&mut lives), [Outcome::Admitted(id, premium())]);
}

#[test]
fn a_shutdown_ends_every_request_once_and_takes_no_more() {
    let mut lives = scripted(OnFault::Admit);
    let begun = lives.begin("begun").unwrap();
    let deferred = deferred(&mut lives, "deferred", 0.0);
    let running = admitted(&mut lives, "running", 0.0);
    lives.sent(running, 4);
    let waiting = submit(&mut lives, "waiting");
    calls(&mut lives);
    lives.shut_down();
    lives.shut_down();
    let shutdown = |id| Outcome::Ended(id, End::Failed(AdmissionError::Shutdown));
    assert_eq!(outcomes(&mut lives), [begun, deferred, running, waiting].map(shutdown));
    lives.set_workers(vec![worker(1)]);
    lives.run(10_000.0);
    assert_eq!(lives.classifier_mut().calls, [], "what is not told yet is dropped");
    assert_eq!(outcomes(&mut lives), []);
    assert_eq!(lives.next_deadline(), None);
    assert_eq!(lives.begin("late"), Err(AdmissionError::Shutdown));
    for purpose in [Purpose::Serve(waiting), Purpose::Query] {
        assert_eq!(lives.submit(purpose, ClassifyRequest::default()), Err(AdmissionError::Shutdown));
    }
}
