//! The binary over HTTP: Dynamo's selection service with policies of type `wasm`.
//!
//! The service always listens on 0.0.0.0. Each test therefore runs again in a network namespace of its own, with the
//! service and its client in it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "what the tests share stands outside of them")]

mod common;

use common::service::{Service, command, inside, prompt};
use common::{component, policy_file};
use serde_json::{Value, json};

/// How many requests the native plugin and the component are compared over.
const REQUESTS: u64 = 10_000;

/// Selects and books on one service.
async fn reserve(service: &Service, body: &Value) -> u64 {
    let (status, answer) = service.post("/select_and_reserve", body).await;
    assert_eq!(status, 200, "{answer}");
    answer["worker_id"].as_u64().unwrap()
}

#[tokio::test]
async fn a_component_books_as_dynamos_native_plugin_does() {
    if !inside("a_component_books_as_dynamos_native_plugin_does", &[]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let name = "dynamo-default-cost-fn";
    let workers = 8;
    let native = Service::start(folder.path(), 8_092, &policy_file(name, &json!({})), workers).await;
    let ours = policy_file("wasm", &json!({ "component": name }));
    let ours = Service::start(folder.path(), 8_093, &ours, workers).await;
    // Dynamo draws among equals. Each worker's cost keeps its own remainder by twice the number of workers, so that
    // there are none: every prompt is a multiple of that many blocks.
    for worker in 0..workers {
        for service in [&native, &ours] {
            service.book(worker, &format!("base-{worker}"), worker + 1).await;
        }
    }
    let mut rng = fastrand::Rng::with_seed(1);
    let mut running: Vec<String> = Vec::new();
    let mut chosen = vec![0; workers as usize];
    for number in 0..REQUESTS {
        let id = format!("r{number}");
        let mut body = prompt(2 * workers * rng.u64(1..4), number);
        body["selection_id"] = json!(id);
        let (expected, found) = tokio::join!(reserve(&native, &body), reserve(&ours, &body));
        assert_eq!(found, expected, "request {number}");
        chosen[found as usize] += 1;
        running.push(id);
        if running.len() > 40 {
            let over = running.swap_remove(rng.usize(0..running.len()));
            tokio::join!(native.free(&over), ours.free(&over));
        }
    }
    assert!(chosen.iter().all(|requests| *requests > 0), "every worker had its share: {chosen:?}");
}

#[tokio::test]
async fn policies_of_users_route_and_their_faults_cost_a_fallback() {
    if !inside("policies_of_users_route_and_their_faults_cost_a_fallback", &["faulty", "picky"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let picky = json!({"component": component("picky"), "parameters": {"most": 1}});
    let service = Service::start(folder.path(), 8_092, &policy_file("wasm", &picky), 3).await;
    for (worker, id) in [(0, "a"), (0, "b"), (2, "c")] {
        service.book(worker, id, 1).await;
    }
    assert_eq!(service.select().await, Ok(2), "the busiest of those with one request at most");
    service.book(1, "d", 1).await;
    service.book(1, "e", 1).await;
    service.book(2, "f", 1).await;
    let (status, error) = service.select().await.unwrap_err();
    assert_eq!((status, &*error), (503, "all eligible workers were rejected by policy filters"));
    service.free("f").await;
    assert_eq!(service.select().await, Ok(2));

    let plenty = json!({"fuel_base": 1_000_000_000_000_u64, "deadline_us": 20_000});
    for (mode, outcome, limits) in [
        ("trap", "trap", json!({})),
        ("spin", "deadline", plenty),
        ("spin", "out-of-fuel", json!({})),
        ("memory", "memory", json!({})),
    ] {
        let faulty = |on_fault: &str| {
            let mut parameters =
                json!({"component": component("faulty"), "parameters": {"mode": mode}, "smoke": false});
            parameters["limits"] = limits.clone();
            parameters["on_fault"] = json!(on_fault);
            policy_file("wasm", &parameters)
        };
        // The policy takes worker 1, which has one request, and the default worker 0, whose two are small.
        let lenient = Service::start(folder.path(), 8_093, &faulty("fallback"), 2).await;
        let strict = Service::start(folder.path(), 8_094, &faulty("reject"), 2).await;
        for service in [&lenient, &strict] {
            service.book(0, "small", 1).await;
            service.book(0, "as small", 1).await;
            service.book(1, "large", 50).await;
        }
        // Fewer faults than keep it out.
        for _ in 0..4 {
            assert_eq!([lenient.select().await, lenient.select().await], [Ok(1), Ok(0)], "{mode}");
            assert_eq!(strict.select().await, Ok(1), "{mode}");
            let (status, error) = strict.select().await.unwrap_err();
            assert!(status == 500 && error.contains(outcome), "{mode}: {status} {error}");
        }
        assert_eq!(strict.select().await, Ok(1), "{mode}");
        assert!(strict.select().await.unwrap_err().1.contains(outcome), "{mode}");
        let (status, error) = strict.select().await.unwrap_err();
        assert!(status == 500 && error.contains("quarantined"), "{mode}: {status} {error}");
    }
}

#[tokio::test]
async fn another_file_decides_after_a_restart() {
    if !inside("another_file_decides_after_a_restart", &[]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // A relative path starts at the folder that the process runs in.
    let yaml = policy_file("wasm", &json!({"component": "policy.wasm"}));
    // The fewest requests are worker 0's, the fewest tokens worker 1's.
    for (name, worker) in [("least-loaded", 0), ("thunderagent", 1)] {
        std::fs::write(folder.path().join("policy.wasm"), pointsman_policies::get(name).unwrap().component).unwrap();
        let service = Service::start(folder.path(), 8_092, &yaml, 2).await;
        service.book(0, "large", 50).await;
        service.book(1, "small", 1).await;
        service.book(1, "as small", 1).await;
        assert_eq!(service.select().await, Ok(worker), "{name}");
    }
}

#[test]
fn a_wrong_component_ends_the_start() {
    if !inside("a_wrong_component_ends_the_start", &[]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output =
        command(folder.path(), 8_092, &policy_file("wasm", &json!({"component": "no.wasm"}))).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let said = text.lines().next_back().unwrap();
    assert!(!output.status.success() && said.starts_with("error: invalid parameters"), "{text}");
    assert!(said.contains("no.wasm cannot be read"), "{text}");
}
