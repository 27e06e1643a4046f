//! A classifier's three functions: what it is sent, what it may answer, and its limits.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod common;

use common::{Classifier, Policy, SPIN, args, sandbox, slot};
use pointsman_contract::{
    Admission, ClassifierWorker, ErrorClass, Event, Progress, Rejection, Resolution, Stages, TargetChange, Verdict,
};
use pointsman_sandbox::*;

fn guest(classifier: Classifier) -> GuestSlot {
    limited(classifier, Limits::default())
}

fn limited(classifier: Classifier, limits: Limits) -> GuestSlot {
    Policy::classifier(classifier).slot(&sandbox(), limits)
}

fn classifying(body: &str) -> Classifier {
    Classifier { classify: body.into(), ..Classifier::default() }
}

fn on_event(body: &str) -> Classifier {
    Classifier { on_event: body.into(), ..Classifier::default() }
}

fn on_tick(body: &str) -> Classifier {
    Classifier { on_tick: body.into(), ..Classifier::default() }
}

fn admission(due_ms: f64, cost: u32, target: u32) -> Admission {
    Admission {
        policy_class: None,
        due_ms: Some(due_ms),
        scheduling_cost_tokens: Some(cost),
        target: TargetChange::Set(target),
    }
}

fn resolved(ticket: u32, admission: Admission) -> Vec<Resolution> {
    vec![Resolution { ticket, verdict: Verdict::Admit(admission) }]
}

const EVENT: Event = Event::Sent { ticket: 1, worker: 2 };

#[test]
fn a_component_may_be_a_classifier_alone_or_beside_its_stages() {
    let stages = |policy: Policy| sandbox().load(&policy.artifact(), Profile::Compact).unwrap().stages();
    let alone = stages(Policy::classifier(Classifier::default()));
    assert_eq!(alone, Stages { classify: true, ..Stages::default() });
    assert!(!alone.selects_workers());
    let both = stages(Policy { classifier: Some(Classifier::default()), ..Policy::default() });
    assert_eq!(both, Stages { classify: true, score: true, ..Stages::default() });
    let mut slot = Policy::default().slot(&sandbox(), Limits::default());
    let fault = slot.classify(1, &args(&[])).unwrap_err();
    assert_eq!(fault.outcome, Outcome::NotLoaded);
    assert!(fault.message.contains("classify"), "{fault}");
}

#[test]
fn a_classifier_without_all_three_functions_names_the_one_that_is_missing() {
    let before = r#"
        (component $other
          (core module $m (func (export "f") (result i32) i32.const 0))
          (core instance $i (instantiate $m))
          (func (export "classify") (result u32) (canon lift (core func $i "f"))))
        (instance $other (instantiate $other))"#;
    let after = r#"(export "pointsman:policy/request-classifier@0.1.0" (instance $other))"#;
    let policy = Policy { before: before.into(), after: after.into(), ..Policy::default() };
    let error = sandbox().load(&policy.artifact(), Profile::Compact).unwrap_err().to_string();
    assert!(error.contains("request-classifier@0.1.0 on-event is not the contract's: it is missing"), "{error}");
}

#[test]
fn classify_is_sent_ticket_numbers_and_texts_and_admits() {
    // The due time is the second number, the cost the ticket, the class the second text.
    let mut slot = guest(classifying(
        "(call $admit (i32.const 0) (f64.load offset=8 (local.get $numbers)) (local.get $ticket) (local.get $count)
           (i32.load offset=16 (local.get $texts)) (i32.load offset=20 (local.get $texts)))",
    ));
    let texts = Some(vec![None, Some("premium".to_owned())]);
    let verdict = slot.classify(77, &Args { texts, ..args(&[0.5, 1234.75]) }).unwrap();
    let admitted = Admission { policy_class: Some("premium".to_owned()), ..admission(1234.75, 77, 2) };
    assert_eq!(verdict, Some(Verdict::Admit(admitted)));
    assert!(slot.fuel_used() > 0);
}

#[test]
fn classify_defers() {
    assert_eq!(guest(Classifier::default()).classify(1, &args(&[])).unwrap(), None);
}

#[test]
fn every_class_of_error_is_the_contracts() {
    let mut slot = guest(classifying("(call $reject (i32.trunc_f64_u (f64.load (local.get $numbers))))"));
    for (number, class) in ErrorClass::ALL.iter().enumerate() {
        let rejection = Rejection { class: *class, public_message: None, diagnostic: "no such luck".to_owned() };
        assert_eq!(slot.classify(1, &args(&[number as f64])).unwrap(), Some(Verdict::Reject(rejection)), "{number}");
    }
    let beyond = slot.classify(1, &args(&[ErrorClass::ALL.len() as f64])).unwrap_err();
    assert_eq!(beyond.outcome, Outcome::BadAnswer);
    assert!(!slot.is_live(), "what cannot be read ends the guest");
}

#[test]
fn an_error_is_the_policys_and_keeps_the_guest() {
    let mut slot = guest(Classifier {
        classify: "(call $failed)".into(),
        on_event: "(call $error (i32.const 1024) (i32.const 12))".into(),
        on_tick: "(call $error (i32.const 1024) (i32.const 12))".into(),
    });
    let luck = |fault: Fault| assert_eq!(fault, Fault::new(Outcome::PolicyError, "no such luck"));
    luck(slot.classify(1, &args(&[])).unwrap_err());
    luck(slot.on_event(&EVENT, 0.0).unwrap_err());
    luck(slot.on_tick(0.0, &[]).unwrap_err());
    assert!(slot.is_live());
    assert_eq!(slot.replaced(), 0);
}

#[test]
fn every_event_arrives_whole() {
    // What the event carries comes back as a resolution: ticket, cost, target, class; the due time tells the rest.
    let mut slot = guest(on_event(
        "(if (i32.eq (local.get $kind) (i32.const 4)) (then
           (local.set $i (i32.add (local.get $p0) (i32.mul (i32.const 16) (i32.sub (local.get $p1) (i32.const 1)))))
           (return (call $resolve (i32.load (local.get $i))
             (f64.convert_i32_u (i32.load8_u offset=8 (local.get $i)))
             (i32.load offset=4 (local.get $i)) (i32.load offset=12 (local.get $i)) (i32.const 0) (i32.const 0)))))
         (call $resolve (local.get $p0)
           (f64.add (local.get $now) (f64.convert_i32_u
             (i32.add (i32.mul (local.get $kind) (i32.const 1000)) (i32.mul (local.get $p3) (i32.const 10)))))
           (local.get $p1) (local.get $p2)
           (local.get $p4) (select (local.get $p5) (i32.const 0) (i32.eq (local.get $kind) (i32.const 3))))",
    ));
    let mut after = |event| slot.on_event(&event, 0.5).unwrap();
    assert_eq!(after(Event::Sent { ticket: 7, worker: 3 }), resolved(7, admission(0.5, 3, 0)));
    assert_eq!(after(Event::Responding { ticket: 7, worker: 3 }), resolved(7, admission(1000.5, 3, 0)));
    let completed = Event::Completed { ticket: 8, worker: 4, context_tokens: Some(55) };
    assert_eq!(after(completed), resolved(8, admission(2550.5, 4, 1)));
    let completed = Event::Completed { ticket: 8, worker: 4, context_tokens: None };
    assert_eq!(after(completed), resolved(8, admission(2000.5, 4, 0)));
    let aborted = Event::Aborted { ticket: 9, worker: Some(6), error: Some("gone".to_owned()) };
    let expected = Admission { policy_class: Some("gone".to_owned()), ..admission(3010.5, 1, 6) };
    assert_eq!(after(aborted), resolved(9, expected));
    let aborted = Event::Aborted { ticket: 9, worker: None, error: None };
    assert_eq!(after(aborted), resolved(9, admission(3000.5, 0, 0)));
    let worker = |number, rank, total_kv_blocks| ClassifierWorker { number, rank, total_kv_blocks };
    let workers = vec![worker(10, 0, Some(100)), worker(11, 1, Some(200))];
    assert_eq!(after(Event::Workers(workers)), resolved(11, admission(1.0, 1, 200)));
}

#[test]
fn a_tick_carries_the_progress() {
    let mut slot = guest(on_tick(
        "(local.set $i (i32.add (local.get $progress) (i32.mul (i32.const 8)
           (i32.sub (local.get $progress_len) (i32.const 1)))))
         (call $resolve (i32.load (local.get $i)) (local.get $now) (i32.load offset=4 (local.get $i))
           (local.get $progress_len) (i32.const 0) (i32.const 0))",
    ));
    let progress = [Progress { ticket: 1, context_tokens: 10 }, Progress { ticket: 5, context_tokens: 99 }];
    assert_eq!(slot.on_tick(60_000.25, &progress).unwrap(), resolved(5, admission(60_000.25, 99, 2)));
}

/// An infinite due time.
const FOREVER: &str = "(i32.const 1) (f64.const inf) (i32.const 1) (i32.const 1) (i32.const 0) (i32.const 0)";

#[test]
fn a_due_time_that_is_not_finite_is_refused() {
    let resolve = format!("(call $resolve {FOREVER})");
    let mut slot =
        guest(Classifier { classify: format!("(call $admit {FOREVER})"), on_event: resolve.clone(), on_tick: resolve });
    let refused = |fault: Fault| {
        assert_eq!(fault.outcome, Outcome::BadAnswer);
        assert!(fault.message.contains("ticket 1 a due time that is not finite"), "{fault}");
    };
    refused(slot.classify(1, &args(&[])).unwrap_err());
    assert!(slot.is_live(), "nothing is lost but that request");
    refused(slot.on_event(&EVENT, 0.0).unwrap_err());
    assert!(!slot.is_live(), "the guest believes the request resolved");
    refused(slot.on_tick(0.0, &[]).unwrap_err());
    assert!(!slot.is_live());
}

#[test]
fn a_trap_in_any_function_ends_that_guest_alone() {
    // Counts its calls in the cost of a resolution, and traps at a negative time or number.
    let count = "(i32.store (i32.const 12000) (i32.add (i32.load (i32.const 12000)) (i32.const 1)))";
    let answer = "(i32.const 1) (f64.const 0) (i32.load (i32.const 12000)) (i32.const 0) (i32.const 0) (i32.const 0)";
    let callback =
        format!("(if (f64.lt (local.get $now) (f64.const 0)) (then unreachable)) {count} (call $resolve {answer})");
    let classify = format!(
        "(if (f64.lt (f64.load (local.get $numbers)) (f64.const 0)) (then unreachable)) {count} (call $admit {answer})"
    );
    let policy = Policy::classifier(Classifier { classify, on_event: callback.clone(), on_tick: callback });
    let policy = sandbox().load(&policy.artifact(), Profile::Compact).unwrap();
    type Call = fn(&mut GuestSlot, f64) -> Result<u32, Outcome>;
    let calls: [Call; 3] = [
        |slot, now| match slot.classify(1, &args(&[now])).map_err(|fault| fault.outcome)? {
            Some(Verdict::Admit(admission)) => Ok(admission.scheduling_cost_tokens.unwrap()),
            other => panic!("{other:?}"),
        },
        |slot, now| slot.on_event(&EVENT, now).map(cost).map_err(|fault| fault.outcome),
        |slot, now| slot.on_tick(now, &[]).map(cost).map_err(|fault| fault.outcome),
    ];
    for call in calls {
        let (mut struck, mut other) = (slot(&policy, Limits::default()), slot(&policy, Limits::default()));
        assert_eq!((call(&mut struck, 0.0), call(&mut struck, 0.0), call(&mut other, 0.0)), (Ok(1), Ok(2), Ok(1)));
        assert_eq!(call(&mut struck, -1.0), Err(Outcome::Trap));
        assert!(!struck.is_live() && other.is_live());
        assert_eq!(call(&mut struck, 0.0), Ok(1), "a new guest, without the state");
        assert_eq!(call(&mut other, 0.0), Ok(2), "the other guest keeps its own");
        assert_eq!((struck.replaced(), other.replaced()), (1, 0));
    }
}

fn cost(resolutions: Vec<Resolution>) -> u32 {
    match &resolutions[0].verdict {
        Verdict::Admit(admission) => admission.scheduling_cost_tokens.unwrap(),
        Verdict::Reject(rejection) => panic!("{rejection:?}"),
    }
}

/// One call of each function, by name.
fn call(slot: &mut GuestSlot, function: &str) -> Result<(), Fault> {
    match function {
        "classify" => slot.classify(1, &args(&[])).map(drop),
        "on-event" => slot.on_event(&EVENT, 0.0).map(drop),
        "on-tick" => slot.on_tick(0.0, &[]).map(drop),
        other => panic!("{other}"),
    }
}

#[test]
fn each_function_has_fuel_of_its_own() {
    let spin = |turns: u32, answer: &str| {
        format!(
            "(local.set $i (i32.const {turns}))
             (loop $again (local.set $i (i32.sub (local.get $i) (i32.const 1))) (br_if $again (local.get $i))) {answer}"
        )
    };
    let classifier = Classifier {
        classify: spin(1_000, "(call $defer)"),
        on_event: spin(2_000, "(call $nothing)"),
        on_tick: spin(3_000, "(call $nothing)"),
    };
    let mut used = Vec::new();
    for (function, key) in [("classify", "classify_fuel"), ("on-event", "event_fuel"), ("on-tick", "tick_fuel")] {
        let mut slot = guest(classifier.clone());
        call(&mut slot, function).unwrap();
        let fuel = slot.fuel_used();
        used.push(fuel);
        let ends_in = |fuel| {
            // The fuel of a stage is none of the classifier's.
            let mut limits = Limits { fuel_base: 1, fuel_per_row: 0, ..Limits::default() };
            assert!(limits.set(key, fuel));
            call(&mut limited(classifier.clone(), limits), function)
        };
        assert_eq!(ends_in(fuel), Ok(()), "{function}");
        // Fuel is looked at where functions and loops begin: the few instructions after the last look are free.
        let fault = ends_in(fuel - 40).unwrap_err();
        assert_eq!(fault.message, format!("{function} used up its fuel of {} ({key})", fuel - 40));
        assert_eq!(fault.outcome, Outcome::OutOfFuel);
    }
    assert!(used.is_sorted() && used[0] > 1_000, "{used:?}");
}

#[test]
fn an_endless_callback_ends_in_its_fuel() {
    let spinning = Classifier { classify: SPIN.into(), on_event: SPIN.into(), on_tick: SPIN.into() };
    let mut slot = limited(spinning, Limits { tick_fuel: 1_000_000, event_fuel: 1_000_000, ..Limits::default() });
    for function in ["classify", "on-event", "on-tick"] {
        assert_eq!(call(&mut slot, function).unwrap_err().outcome, Outcome::OutOfFuel, "{function}");
    }
}

#[test]
fn answer_bytes_bounds_the_resolutions_of_a_call() {
    // So many resolutions as the time says, all zeros: an admission that changes nothing.
    let flood = "(drop (call $bump (i32.const 8) (i32.mul (i32.const 64) (i32.trunc_f64_u (local.get $now)))))
        (call $list (i32.const 32768) (i32.trunc_f64_u (local.get $now)))";
    let classifier = Classifier { on_event: flood.into(), on_tick: flood.into(), ..Classifier::default() };
    let each = 72;
    let mut slot = limited(classifier, Limits { answer_bytes: 1_000 * each, ..Limits::default() });
    let mut event = |count| slot.on_event(&EVENT, count).map(|all| all.len()).map_err(|fault| fault.outcome);
    assert_eq!((event(1_000.0), event(1_001.0)), (Ok(1_000), Err(Outcome::BadAnswer)));
    let mut tick = |count| slot.on_tick(count, &[]).map(|all| all.len()).map_err(|fault| fault.outcome);
    assert_eq!((tick(1_000.0), tick(1_001.0)), (Ok(1_000), Err(Outcome::BadAnswer)));
}

#[test]
fn what_a_classifier_says_to_people_is_one_line() {
    let core = r#"(data (i32.const 1024) "no\nluck\1b[m..")"#;
    let policy = Policy { core: core.into(), ..Policy::classifier(classifying("(call $reject (i32.const 0))")) };
    let verdict = policy.slot(&sandbox(), Limits::default()).classify(1, &args(&[])).unwrap().unwrap();
    let Verdict::Reject(rejection) = verdict else { panic!("{verdict:?}") };
    assert_eq!(rejection.diagnostic, "no luck [m..");
}
