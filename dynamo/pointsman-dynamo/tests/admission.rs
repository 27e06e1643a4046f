//! Request classifiers of type `wasm` through Dynamo's own registry, YAML and local scheduler. Where something takes real
//! time it is a few milliseconds.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may end by a panic")]

mod common;

use std::time::Duration;

use common::component;
use common::frontend::{Asked, Frontend, resolve_classifier};
use dynamo_kv_router::KvSchedulerError;
use dynamo_kv_router::protocols::WorkerWithDpRank;
use pointsman_dynamo::{ErrorClass, Refusal};
use serde_json::{Value, json};
use tokio::time::Instant;

/// The guide's file, with our type.
fn guide() -> String {
    let file = include_str!("../../../host/routing/tests/fixtures/admission.yaml");
    let classifier = "  type: queue-budget\n  parameters:\n    max_wait_ms: 2000\n";
    assert!(file.contains(classifier));
    let ours = "  type: wasm\n  parameters:\n    component: queue-budget\n    parameters:\n      max_wait_ms: 2000\n";
    file.replace(classifier, ours)
}

/// A router-policy file with that classifier. JSON is YAML.
fn file(parameters: &Value) -> String {
    json!({"request_classifier": {"type": "wasm", "parameters": parameters}}).to_string()
}

fn with(component: impl serde::Serialize, more: Value) -> String {
    let mut parameters = json!({ "component": component });
    parameters.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    file(&parameters)
}

fn unruly(more: Value) -> String {
    with(component("unruly"), more)
}

#[tokio::test]
async fn a_budget_is_a_due_time_from_ingress_and_a_spent_one_the_guides_rejection() {
    let router = Frontend::start(&guide(), 1).await;
    let ingress = Instant::now() - Duration::from_millis(500);
    router.ask(Asked { ingress, ..Asked::new("in time") }).await.served().await;
    let due = router.answered("in time").due_at.unwrap();
    let expected = ingress + Duration::from_millis(2_000);
    let off = due.saturating_duration_since(expected) + expected.saturating_duration_since(due);
    assert!(off < Duration::from_micros(1), "{off:?}");

    let ingress = Instant::now() - Duration::from_millis(2_000);
    let refusal = router.ask(Asked { ingress, ..Asked::new("late") }).await.refused().await;
    let expected = Refusal {
        class: ErrorClass::CapacityExhausted,
        public_message: "Admission wait budget exhausted; retry later".to_owned(),
        diagnostic: "admission wait budget exhausted".to_owned(),
    };
    assert_eq!(refusal, expected);
    // The id is free again.
    router.ask(Asked::new("late")).await.served().await;
}

#[tokio::test]
async fn a_session_has_one_request_at_a_time() {
    let router = Frontend::start(&with("session-serial", json!({})), 1).await;
    let first = router.ask(Asked::of_session("a1", "a")).await.served().await;
    let [second, third, fourth] = [
        router.ask(Asked::of_session("a2", "a")).await,
        router.ask(Asked::of_session("a3", "a")).await,
        router.ask(Asked::of_session("a4", "a")).await,
    ];
    router.ask(Asked::of_session("b1", "b")).await.served().await;
    router.ask(Asked::new("none")).await.served().await;
    assert!(second.waits() && third.waits() && fourth.waits());
    router.complete(first).await;
    assert!(!second.waits() && third.waits() && fourth.waits());
    third.cancel().await;
    // Dropping what was served aborts it.
    drop(second.served().await);
    fourth.served().await;
}

#[tokio::test]
async fn a_place_is_free_again_however_its_request_ends() {
    let yaml = with("max-in-flight", json!({"parameters": {"max_requests": 1}}));
    let router = Frontend::start(&yaml, 1).await;
    let first = router.ask(Asked::new("1")).await.served().await;
    let [cancelled, third, fourth] =
        [router.ask(Asked::new("2")).await, router.ask(Asked::new("3")).await, router.ask(Asked::new("4")).await];
    cancelled.cancel().await;
    assert!(third.waits() && fourth.waits(), "a request that waits has no place to give back");
    // Tried again on a worker, it keeps its place.
    let again = router.failed_attempt(first).await;
    let first = router.schedule(Asked::new("1"), again).await.served().await;
    assert!(third.waits() && fourth.waits());
    router.complete(first).await;
    assert!(!third.waits() && fourth.waits());
    let third = third.served().await;
    let again = router.begin("5");
    drop(third);
    let fourth = fourth.served().await;
    // Begun and dropped, it was never asked about.
    drop(again);
    router.complete(fourth).await;
    router.ask(Asked::new("1")).await.served().await;
}

#[tokio::test]
async fn a_request_whose_future_was_dropped_may_be_scheduled_again() {
    let router = Frontend::start(&with("max-in-flight", json!({"parameters": {"max_requests": 1}})), 1).await;
    let first = router.ask(Asked::new("1")).await.served().await;
    let lifecycle = router.begin("2");
    router.schedule_and_drop(Asked::new("2")).await;
    let second = router.schedule(Asked::new("2"), lifecycle).await;
    assert!(second.waits());
    router.complete(first).await;
    let second = second.served().await;
    let third = router.ask(Asked::new("3")).await;
    assert!(third.waits(), "the second has the place");
    router.complete(second).await;
    third.served().await;
}

#[tokio::test]
async fn each_router_has_a_classifier_of_its_own() {
    let yaml = with("max-in-flight", json!({"parameters": {"max_requests": 1}}));
    let factory = resolve_classifier(&yaml).unwrap();
    let [one, other] = [Frontend::with(&factory, &yaml, 1, 16).await, Frontend::with(&factory, &yaml, 1, 32).await];
    let _place = one.ask(Asked::new("1")).await.served().await;
    let _other = other.ask(Asked::new("1")).await.served().await;
    assert!(one.ask(Asked::new("2")).await.waits());
}

#[tokio::test]
async fn a_trap_fails_its_request_and_hands_back_those_deferred() {
    let router = Frontend::start(&unruly(json!({})), 1).await;
    let deferred = router.ask(Asked::new("hold")).await;
    assert!(deferred.waits());
    let refusal = router.ask(Asked::new("trap")).await.refused().await;
    assert_eq!((refusal.class, &*refusal.public_message), (ErrorClass::Internal, "request classifier failed"));
    assert!(refusal.diagnostic.contains("trap"), "{refusal}");
    assert_eq!(deferred.refused().await.class, ErrorClass::Internal, "its guest has forgotten it");
    // The next guest hears of the workers before it is asked: else it traps.
    router.ask(Asked::new("next")).await.served().await;

    let deferred = router.ask(Asked::new("hold")).await;
    let refusal = router.ask(Asked::new("error")).await.refused().await;
    assert!(refusal.diagnostic.contains("out of sorts"), "{refusal}");
    assert!(deferred.waits(), "a guest that answers keeps what it knows");

    let router = Frontend::start(&unruly(json!({"on_fault": "admit"})), 1).await;
    let deferred = router.ask(Asked::new("hold")).await;
    router.ask(Asked::new("trap")).await.served().await;
    deferred.served().await;
    router.ask(Asked::new("error")).await.served().await;
}

#[tokio::test]
async fn an_admission_that_cannot_be_followed_is_an_error() {
    let router = Frontend::start(&unruly(json!({})), 1).await;
    let error = router.ask(Asked::new("class")).await.ended().await.err().unwrap();
    assert!(matches!(&error, KvSchedulerError::InvalidClassificationMetadata(it) if it.contains("nowhere")), "{error}");
    let refusal = router.ask(Asked::new("free")).await.refused().await;
    assert!(refusal.class == ErrorClass::Internal && refusal.diagnostic.contains("0 tokens"), "{refusal}");
}

#[tokio::test]
async fn a_deferral_ends_after_the_hosts_maximum() {
    let router = Frontend::start(&unruly(json!({"max_deferral_ms": 30})), 1).await;
    let since = Instant::now();
    let refusal = router.ask(Asked::new("hold")).await.refused().await;
    assert!(since.elapsed() >= Duration::from_millis(30));
    assert_eq!((refusal.class, &*refusal.public_message), (ErrorClass::DeadlineExceeded, "request deadline exceeded"));
    assert!(refusal.diagnostic.contains("more than 30 ms"), "{refusal}");

    let router = Frontend::start(&unruly(json!({"max_deferral_ms": 30, "on_fault": "admit"})), 1).await;
    router.ask(Asked::new("hold")).await.served().await;
}

#[tokio::test]
async fn resolutions_of_what_is_not_deferred_change_nothing() {
    let router = Frontend::start(&unruly(json!({})), 1).await;
    let [first, second] = [router.ask(Asked::new("wait 1")).await, router.ask(Asked::new("wait 2")).await];
    let held = router.ask(Asked::new("hold")).await;
    assert!(first.waits() && second.waits());
    // As it is sent, it is rejected twice, those that wait are admitted and then rejected, and others that nobody knows.
    let sent = router.ask(Asked::new("plain")).await.served().await;
    let (first, second) = (first.served().await, second.served().await);
    assert!(held.waits());
    for served in [sent, first, second] {
        router.complete(served).await;
    }
    router.ask(Asked::new("plain")).await.served().await;
}

#[tokio::test]
async fn a_tick_tells_of_the_tokens_that_dynamo_counts() {
    let router = Frontend::start(&unruly(json!({"parameters": {"tick_ms": 10, "grown": 150}})), 1).await;
    let mut growing = router.ask(Asked::new("plain")).await.served().await;
    let waiting = router.ask(Asked::new("tick")).await;
    growing.lifecycle.observe_context_tokens(150);
    tokio::time::sleep(Duration::from_millis(25)).await;
    assert!(waiting.waits(), "no request is past 150 tokens");
    growing.lifecycle.observe_output_tokens(1);
    waiting.served().await;
}

#[tokio::test]
async fn workers_that_come_are_told_of_and_may_be_preferred() {
    let router = Frontend::start(&unruly(json!({})), 1).await;
    let waiting = router.ask(Asked::new("workers")).await;
    router.set_workers(2).await;
    assert!(waiting.waits(), "Dynamo does not say that its workers have changed");
    assert_eq!(router.ask(Asked::new("plain")).await.served().await.worker.worker_id, 1);
    assert_eq!(waiting.served().await.worker.worker_id, 2);
    let pinned = Asked { pinned: Some(WorkerWithDpRank::from_worker_id(1)), ..Asked::new("workers again") };
    assert_eq!(router.ask(pinned).await.served().await.worker.worker_id, 1, "a pin is a pin");
}

#[tokio::test]
async fn a_guest_that_does_not_start_fails_each_request_with_its_reason() {
    let yaml = unruly(json!({"parameters": {"refuses_block_size": 32}}));
    let factory = resolve_classifier(&yaml).unwrap();
    let router = Frontend::with(&factory, &yaml, 1, 32).await;
    for id in ["1", "2"] {
        let refusal = router.ask(Asked::new(id)).await.refused().await;
        assert!(refusal.diagnostic.contains("it does not serve blocks of 32"), "{refusal}");
        assert_eq!(refusal.public_message, "request classifier failed");
    }
    Frontend::with(&factory, &yaml, 1, 64).await.ask(Asked::new("1")).await.served().await;
}

#[tokio::test]
async fn thunderagent_is_both_in_one_file() {
    let yaml = json!({
        "worker_selection": {
            "aggregated": "it",
            "instances": [{"name": "it", "type": "wasm", "parameters": {"component": "thunderagent"}}],
        },
        "request_classifier": {"type": "wasm", "parameters": {"component": "thunderagent"}},
    });
    let router = Frontend::start(&yaml.to_string(), 2).await;
    let first = router.ask(Asked::of_session("1", "program")).await.served().await;
    router.complete(first).await;
    router.ask(Asked::of_session("2", "program")).await.served().await;
    common::resolve(&yaml.to_string()).unwrap();
}

#[test]
fn what_is_wrong_stops_the_start_with_its_cause() {
    let budget = |more: Value| with("queue-budget", more);
    let serial = |more: Value| with("session-serial", more);
    let cases: Vec<(String, &[&str])> = vec![
        (file(&json!({})), &["missing field `component`"]),
        (serial(json!({"limit": {}})), &["unknown field `limit`", "`limits`"]),
        (serial(json!({"filter": "in-picker"})), &["unknown field `filter`"]),
        (with("queue-budgte", json!({})), &["queue-budgte cannot be read", "queue-budget, random"]),
        (with("least-loaded", json!({})), &["`least-loaded` cannot start", "exports no request classifier"]),
        (budget(json!({})), &["`queue-budget` cannot start", "max_wait_ms"]),
        (budget(json!({"parameters": {"max_wait_ms": 0}})), &["max_wait_ms must be between 1 and 60000"]),
        (budget(json!({"parameters": {"max_wait_ms": 60_001}})), &["max_wait_ms must be between 1 and 60000"]),
        (serial(json!({"limits": {"clasify_fuel": 1}})), &["limits.clasify_fuel", "did you mean `classify_fuel`?"]),
        (serial(json!({"limits": {"start_fuel": 10}})), &["session-serial", "fuel of 10 (start_fuel)"]),
        (serial(json!({"on_fault": "fallback"})), &["on_fault: ", "reject or admit"]),
        (serial(json!({"max_deferral_ms": 0})), &["max_deferral_ms: ", "from 1 to 86400000"]),
        (serial(json!({"max_deferral_ms": 86_400_001})), &["max_deferral_ms: "]),
        (
            serial(json!({"max_deferral_ms": null, "limits": {"deadline_us": null}})),
            &["limits.deadline_us has no value"],
        ),
        (serial(json!({"seed": -1})), &["invalid value: integer `-1`", "u64"]),
        (unruly(json!({"parameters": {"tick_ms": 9}})), &["tick_ms must be at least 10"]),
        (unruly(json!({"parameters": {"text": "header.x-tier"}})), &["`header.x-tier`"]),
    ];
    for (yaml, words) in cases {
        let Err(error) = resolve_classifier(&yaml) else { panic!("{yaml} is accepted") };
        let start = "invalid parameters for request-classifier type \"wasm\": ";
        assert!(error.starts_with(start), "{yaml}: {error}");
        assert!(!error.contains("worker_selection.") && error.lines().count() == 1, "{yaml}: {error}");
        for word in words {
            assert!(error.contains(word), "{yaml}: {error}");
        }
    }
}
