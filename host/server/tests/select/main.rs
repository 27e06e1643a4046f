//! The selection service over real connections.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, unreachable_pub, reason = "a test may end by a panic")]

mod cases;
mod service;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pointsman_routing::WorkerKey;
use pointsman_server::config::ServerConfig;
use pointsman_server::fleet::WorkerSpec;
use pointsman_server::select::{PendingLimits, SelectionOptions};
use pointsman_server::{Server, Setup};
use serde_json::{Value, json};

use service::Service;

/// The calls that Dynamo's own service answers so, in the workspace `dynamo`.
#[tokio::test(flavor = "multi_thread")]
async fn every_case_is_answered_as_dynamos_service_answers_it() {
    for case in cases::all() {
        let mut policy = case["policy"].as_str().unwrap_or_default().to_owned();
        if let Some(seconds) = case["session_affinity_ttl_secs"].as_u64() {
            policy += &format!("session_affinity: {{mode: hard, ttl_secs: {seconds}}}\n");
        }
        let service = Service::start(&policy, SelectionOptions::default()).await;
        cases::play(&case, async |call| service.ask(call).await).await;
    }
}

fn worker(id: u64) -> Value {
    let endpoint = format!("http://127.0.0.1:{}", 9_000 + id);
    json!({"worker_id": id, "model_name": "m", "endpoint": endpoint, "block_size": 16, "max_num_batched_tokens": 8192})
}

fn prompt(tokens: std::ops::Range<u32>) -> Value {
    json!({"model_name": "m", "token_ids": tokens.collect::<Vec<_>>()})
}

fn with(mut body: Value, more: Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_above_8_mib_is_refused_unread() {
    let service = Service::start("", SelectionOptions::default()).await;
    let head = "POST /select HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 8388609\r\n\r\n";
    let answer = service.raw(head).await;
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains(r#"{"error":""#), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_are_refused_with_a_sentence() {
    let service = Service::start("", SelectionOptions::default()).await;
    let endpoint = json!({"endpoint": "tcp://127.0.0.1:1"});
    for (method, path, body) in [
        ("POST", "/replica_sync/register_peer", Some(&endpoint)),
        ("POST", "/replica_sync/deregister_peer", Some(&endpoint)),
        ("GET", "/replica_sync/peers", None),
    ] {
        let (status, answer) = service.call(method, path, body).await;
        assert_eq!(status, 501, "{path}");
        assert!(answer["error"].as_str().unwrap().contains("each replica books by itself"), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_takes_no_secrets_of_the_routers() {
    let service = Service::start("", SelectionOptions::default()).await;
    let asked =
        with(worker(1), json!({"api_key_file": "/etc/passwd", "labels": {"a": 1.0}, "forward_authorization": true}));
    assert_eq!(service.post("/workers", &asked).await.0, 201);
    let added = service.fleet.worker(1).unwrap();
    assert_eq!((&added.spec.upstream, added.spec.labels.len()), (&Default::default(), 0));
    let (status, answer) = service.call("PATCH", "/workers/1", Some(&json!({"api_key_file": "/etc/passwd"}))).await;
    assert_eq!((status, answer.get("api_key_file")), (200, None));
    assert_eq!(service.fleet.worker(1).unwrap().spec.upstream, Default::default());
    // What the operator sends along to a worker does not follow it elsewhere.
    let secrets = json!({"api_key_file": "/key", "forward_authorization": true});
    service.fleet.patch(1, secrets.as_object().unwrap().clone()).unwrap();
    service.call("PATCH", "/workers/1", Some(&json!({"total_kv_blocks": 9}))).await;
    assert!(service.fleet.worker(1).unwrap().spec.upstream.forward_authorization);
    service.call("PATCH", "/workers/1", Some(&json!({"endpoint": "http://10.0.0.9:1"}))).await;
    assert_eq!(service.fleet.worker(1).unwrap().spec.upstream, Default::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_that_nobody_frees_is_given_back() {
    let options = SelectionOptions { expiry: Duration::from_millis(50), ..SelectionOptions::default() };
    let service = Service::start("", options).await;
    service.post("/workers", &worker(1)).await;
    let (status, _) = service.post("/select_and_reserve", &with(prompt(0..64), json!({"selection_id": "a"}))).await;
    assert_eq!(status, 200);
    service.until_idle().await;
    assert_eq!(service.call("DELETE", "/reservations/a", None).await.0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_so_many_selections_stay_pending() {
    let pending = PendingLimits { entries: 2, ..PendingLimits::default() };
    let service = Service::start("", SelectionOptions { pending, ..SelectionOptions::default() }).await;
    service.post("/workers", &worker(1)).await;
    for id in ["a", "b", "c"] {
        let (status, answer) = service.post("/select", &with(prompt(0..64), json!({"selection_id": id}))).await;
        assert_eq!(status, 200, "{answer}");
    }
    for (id, expected) in [("a", 404), ("b", 201), ("c", 201)] {
        let (status, answer) = service.post("/reservations", &json!({"model_name": "m", "selection_id": id})).await;
        assert_eq!(status, expected, "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_waits_for_its_turn_and_leaves_nothing_where_its_client_goes() {
    const ONE_AT_A_TIME: &str = "
default_policy_family: standard
uncached_isl_buckets: [{min_tokens: 0, bucket: all}]
policy_classes:
  - {name: standard_all, policy_family: standard, cache_bucket: all, quantum: 64, prefill_busy_threshold: 10}
";
    let service = Service::start(ONE_AT_A_TIME, SelectionOptions::default()).await;
    service.post("/workers", &worker(1)).await;
    let body = with(prompt(0..64), json!({"selection_id": "first"}));
    assert_eq!(service.post("/select_and_reserve", &body).await.0, 200);

    let gone = with(prompt(100..164), json!({"selection_id": "gone"}));
    let waits = tokio::time::timeout(Duration::from_millis(100), service.post("/select_and_reserve", &gone)).await;
    assert!(waits.is_err(), "the worker is busy");
    service.until(|loads| loads["pending_count"] == 0).await;

    let asks = async {
        let asked = with(prompt(200..264), json!({"selection_id": "asked"}));
        tokio::join!(service.post("/select", &asked), async {
            service.until(|loads| loads["pending_count"] == 1 && loads["pending_isl_tokens"] == 64).await;
            assert_eq!(service.call("POST", "/reservations/first/prefill_complete", None).await.0, 200);
        })
    };
    let ((status, _), ()) = asks.await;
    assert_eq!(status, 200);
    assert_eq!(service.post("/reservations", &json!({"model_name": "m", "selection_id": "asked"})).await.0, 201);
    for id in ["first", "asked"] {
        assert_eq!(service.call("DELETE", &format!("/reservations/{id}"), None).await.0, 200);
    }
    service.until_idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_classifier_judges_what_is_selected_and_booked_at_once_and_nothing_else() {
    const ONE_IN_FLIGHT: &str = "request_classifier: {type: max-in-flight, parameters: {max_requests: 1}}\n";
    let service = Service::start(ONE_IN_FLIGHT, SelectionOptions::default()).await;
    service.post("/workers", &worker(1)).await;
    let first = with(prompt(0..64), json!({"selection_id": "first"}));
    assert_eq!(service.post("/select_and_reserve", &first).await.0, 200);

    let second = with(prompt(0..64), json!({"selection_id": "second"}));
    let second = service.post("/select_and_reserve", &second);
    tokio::pin!(second);
    assert!(tokio::time::timeout(Duration::from_millis(100), &mut second).await.is_err(), "it is deferred");
    let asked = with(prompt(0..64), json!({"selection_id": "asked"}));
    assert_eq!(service.post("/select", &asked).await.0, 200);
    assert_eq!(service.post("/reservations", &json!({"model_name": "m", "selection_id": "asked"})).await.0, 201);
    let explicit = with(prompt(0..64), json!({"selection_id": "explicit", "worker_id": 1}));
    assert_eq!(service.post("/reservations", &explicit).await.0, 201);
    for path in ["/potential_loads", "/overlap_scores"] {
        assert_eq!(service.post(path, &prompt(0..64)).await.0, 200, "{path}");
    }

    assert_eq!(service.call("DELETE", "/reservations/first", None).await.0, 200);
    assert_eq!(second.await.0, 200);
    for id in ["second", "asked", "explicit"] {
        assert_eq!(service.call("DELETE", &format!("/reservations/{id}"), None).await.0, 200);
    }
    service.until_idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_clients_at_once_leave_nothing_behind() {
    let service = Service::start("", SelectionOptions::default()).await;
    for id in 0..4 {
        service.post("/workers", &worker(id)).await;
    }
    let client = async |client: u32| {
        for turn in 0..20 {
            let id = format!("{client}-{turn}");
            let start = client % 3 * 1_000;
            let body = with(prompt(start..start + 64 + turn), json!({"selection_id": id}));
            assert_eq!(service.post("/select_and_reserve", &body).await.0, 200);
            if turn % 2 == 0 {
                assert_eq!(service.call("POST", &format!("/reservations/{id}/prefill_complete"), None).await.0, 200);
                assert_eq!(service.post(&format!("/reservations/{id}/output_block"), &json!({})).await.0, 200);
            }
            assert_eq!(service.call("DELETE", &format!("/reservations/{id}"), None).await.0, 200);
        }
    };
    let started = Instant::now();
    tokio::join!(client(0), client(1), client(2), client(3), client(4), client(5), client(6), client(7));
    service.until_idle().await;
    assert!(started.elapsed() < Duration::from_secs(60));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_beside_the_front_door_has_the_same_workers_and_loads() {
    let listen = "127.0.0.1:0".parse().unwrap();
    let mut spec = WorkerSpec::new(7);
    (spec.model_name, spec.endpoint, spec.block_size) =
        ("m".to_owned(), Some("http://127.0.0.1:9".to_owned()), Some(16));
    let config = ServerConfig { listen, selection: Some(listen), workers: vec![spec], ..ServerConfig::default() };
    let (router, signals) = service::router("");
    let server = Server::start(Setup::new(config, router, signals)).await.unwrap();
    let service = Service::at(server.selection_address().unwrap(), Arc::clone(server.fleet()));
    let booked = with(prompt(0..64), json!({"selection_id": "a", "worker_id": 7, "effective_prefill_tokens": 64}));
    assert_eq!(service.post("/reservations", &booked).await.0, 201);
    let pool = server.fleet().pool("m", "default").unwrap();
    assert_eq!(pool.partition().load(WorkerKey::new(7, 0)).unwrap().active_prefill_tokens, 64.0);
    assert_eq!(service.post("/workers", &worker(8)).await.0, 201);
    assert_eq!(server.fleet().schedulable(), 2);
    drop(service);
    server.drain().await;
}

/// The calls that the page lists: method and path.
fn documented() -> BTreeSet<String> {
    let page = include_str!("../../../../docs/operations.md");
    let section = page.split("\n## ").find(|section| section.starts_with("The selection service\n")).unwrap();
    let calls = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(call, _)| call));
    calls.filter(|call| call.contains(" /")).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_lists_the_calls_that_there_are_and_no_others() {
    let service = Service::start("", SelectionOptions::default()).await;
    let (methods, mut served) = (["GET", "POST", "PATCH", "DELETE"], BTreeSet::new());
    let documented = documented();
    let paths: BTreeSet<&str> = documented.iter().map(|call| call.split_once(' ').unwrap().1).collect();
    assert_eq!(paths.len(), 17, "{paths:?}");
    for path in paths {
        for method in methods {
            let (status, answer) = service.call(method, &path.replace("{id}", "7"), Some(&json!({}))).await;
            let no_such = status == 405 || answer["error"].as_str().is_some_and(|error| error.contains("no such path"));
            if !no_such {
                served.insert(format!("{method} {path}"));
            }
        }
    }
    assert_eq!(served, documented);
}
