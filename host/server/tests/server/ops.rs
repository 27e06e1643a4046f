//! What operators see: metrics and explained decisions.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use pointsman_routing::config::PolicyConfig;
use pointsman_routing::{Load, PartitionKey, Provider, Request, Router, WorkerConfig, WorkerKey};
use pointsman_sandbox::Artifact;
use pointsman_server::observe::Observer;
use pointsman_server::ops::DecisionLog;
use pointsman_server::ops::decisions::{Because, Explained};
use serde_json::json;

use crate::world::{Plan, World, chat, send, streaming, whole};

async fn metrics(world: &World) -> String {
    let answer = whole(send("GET", &world.admin("/metrics"), "", &[]).await).await;
    assert_eq!(answer.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    answer.text()
}

/// The value of a sample, by its name and labels as they stand.
fn value(text: &str, sample: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {sample} in\n{text}")).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_gets_wrong_is_told_in_json_and_changes_nothing() {
    let world = Plan::of(1).start().await;
    for (method, path, body) in [
        ("POST", "/workers", json!({"worker_id": 1e30})),
        ("POST", "/workers", json!({"worker_id": 7, "health_pth": "/"})),
        ("PATCH", "/workers/1", json!({"health_pth": "/"})),
        ("PATCH", "/workers/1", json!({"block_size": "x"})),
        ("POST", "/workers/x/drain", json!({})),
        ("POST", "/workers", json!([])),
    ] {
        let answer = whole(send(method, &world.admin(path), body.to_string(), &[]).await).await;
        assert_eq!(answer.status, 400, "{method} {path}: {}", answer.text());
        assert!(answer.json()["error"]["message"].as_str().is_some_and(|message| !message.is_empty()));
    }
    // A worker that cannot be spoken to is told so, and no request goes to it.
    for fields in [json!({"endpoint": "nohost"}), json!({"endpoint": "http://127.0.0.1:1", "api_key_file": "/none"})] {
        let mut worker = json!({"worker_id": 9, "model_name": "mock", "block_size": 16});
        worker.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let answer = whole(send("POST", &world.admin("/workers"), worker.to_string(), &[]).await).await;
        assert_eq!((answer.status.as_u16(), &answer.json()["lifecycle"]), (201, &json!("unschedulable")));
        assert!(answer.json()["not_schedulable_reasons"][0].as_str().unwrap().starts_with("worker 9"));
        for _ in 0..4 {
            assert_eq!(world.chat("hello", &[]).await, 1);
        }
    }
}

/// A classifier that holds back whatever comes while one request runs.
const ONE_AT_A_TIME: &str = "request_classifier: {type: max-in-flight, parameters: {max_requests: 1}}\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_back_takes_back_the_classifier_too() {
    let world = Plan::of(1).slow(20).policies("router: {}").start().await;
    let (fleet, clock) = (world.server.fleet(), world.server.fleet().clock());
    let changed = PolicyConfig::parse("policy.yaml", Path::new(""), ONE_AT_A_TIME).unwrap();
    let activation = fleet.router().activate(fleet.router().load(changed).unwrap(), clock.now_ms()).unwrap();
    fleet.activated(&activation).unwrap();
    let open = async || {
        let mut response = world.begin("/v1/chat/completions", &streaming(chat("a", 2_000)), &[]).await;
        http_body_util::BodyExt::frame(&mut response).await.unwrap().unwrap();
        response
    };
    let first = open().await;
    let second = tokio::time::timeout(Duration::from_millis(500), open()).await;
    assert!(second.is_err(), "the classifier of the new configuration holds it back");
    let rolled = whole(send("POST", &world.admin("/versions/roll_back"), "", &[]).await).await;
    assert_eq!((rolled.status.as_u16(), &rolled.json()["generation"]), (200, &json!(3)));
    let second = tokio::time::timeout(Duration::from_secs(30), open()).await;
    assert!(second.is_ok(), "there was none before");
    drop((first, second));
}

const TENANT: &str = "
tenants:
  - {name: acme, routing_groups: [default]}
worker_selection:
  aggregated: own
  instances: [{name: own, type: least-loaded}]
policy_classes:
  - {name: only, quantum: 1, policy_family: only, cache_bucket: all, prefill_busy_threshold: 1000000}
uncached_isl_buckets: [{min_tokens: 0, bucket: all}]
default_policy_family: only
";

#[tokio::test(flavor = "multi_thread")]
async fn metrics_tell_what_was_decided_answered_and_used() {
    let world = Plan::of(2).policies(TENANT).start().await;
    for _ in 0..3 {
        world.chat("hello", &[]).await;
    }
    whole(world.begin("/v1/chat/completions", &streaming(chat("hello", 3)), &[]).await).await;
    let wrong = world.post("/v1/chat/completions", &json!({"model": "other"}), &[]).await;
    assert_eq!(wrong.status, 404);
    world.get("/nowhere", &[]).await;
    world.idle().await;
    let text = metrics(&world).await;
    let of = r#"{model="mock",routing_group="default""#;
    assert_eq!(value(&text, &format!(r#"pointsman_decisions_total{of},policy="own",result="decided"}}"#)), 4.0);
    assert_eq!(value(&text, &format!("pointsman_decision_seconds_count{of}}}")), 4.0);
    assert!(value(&text, &format!("pointsman_decision_fuel_total{of}}}")) > 0.0);
    assert_eq!(value(&text, &format!("pointsman_queue_wait_seconds_count{of}}}")), 4.0);
    assert_eq!(value(&text, &format!(r#"pointsman_requests_ended_total{of},end="completed"}}"#)), 4.0);
    assert_eq!(value(&text, &format!(r#"pointsman_queue_requests{of},policy_class="only"}}"#)), 0.0);
    let answered =
        |status| format!(r#"pointsman_http_requests_total{{route="/v1/chat/completions",status="{status}"}}"#);
    assert_eq!((value(&text, &answered(200)), value(&text, &answered(404))), (4.0, 1.0));
    assert_eq!(value(&text, r#"pointsman_http_requests_total{route="none",status="404"}"#), 1.0);
    assert_eq!(value(&text, "pointsman_http_requests_in_flight"), 0.0);
    assert_eq!(value(&text, r#"pointsman_workers{state="schedulable"}"#), 2.0);
    assert_eq!(value(&text, &format!(r#"pointsman_worker_active_requests{of},worker="1",rank="0"}}"#)), 0.0);
    assert_eq!(value(&text, r#"pointsman_tenant_decisions_total{tenant="acme",result="decided"}"#), 4.0);
    assert!(value(&text, r#"pointsman_tenant_fuel_total{tenant="acme"}"#) > 0.0);
    assert!(text.contains(r#"instance="own",digest=""#), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_is_in_the_document_and_no_other() {
    let listened_to = "kv_events_endpoint: 'tcp://127.0.0.1:1'";
    let world = Plan::of(2).policies(TENANT).workers(listened_to).start().await;
    world.engines[0].set_failures(pointsman_mock::Failures { status: Some(503), ..Default::default() });
    for _ in 0..4 {
        world.chat("hello", &[]).await;
    }
    let text = metrics(&world).await;
    let told: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let page = include_str!("../../../../docs/operations.md");
    let documented: BTreeSet<&str> =
        page.lines().filter_map(|line| line.strip_prefix("| `pointsman_")?.split('`').next()).collect();
    let documented: BTreeSet<String> = documented.iter().map(|name| format!("pointsman_{name}")).collect();
    let told: BTreeSet<String> = told.into_iter().map(str::to_owned).collect();
    // Reloads are told once there was one.
    let quiet = BTreeSet::from(["pointsman_config_reloads_total".to_owned()]);
    assert_eq!(told.union(&quiet).cloned().collect::<BTreeSet<_>>(), documented);
}

#[test]
fn a_decision_is_explained_by_costs_and_filters() {
    let built_in = pointsman_policies::get("simple-filter-score-pick").unwrap();
    let artifact = Artifact::from_bytes(built_in.name, built_in.component).trusted();
    let file = "worker_selection: {aggregated: a, instances: [{name: a, type: t, parameters: {min_device_overlap_blocks: 2}}]}";
    let config = PolicyConfig::parse("policy.yaml", Path::new(""), file).unwrap();
    let builder = Router::builder().register("t", Provider::component(artifact)).policy_config(config);
    let router = std::sync::Arc::new(builder.build().unwrap());
    let partition = router.partition(&PartitionKey::default(), 16).unwrap();
    let (sender, receiver) = mpsc::channel();
    let sink = Box::new(move |explained: &Explained| sender.send(explained.clone()).unwrap());
    let log = DecisionLog::start(&router, 0.5, sink).unwrap();
    partition.set_taps(log.taps(&partition));
    for worker in 1..=3 {
        partition.upsert_worker(WorkerConfig::new(worker)).unwrap();
        let load = Load { active_requests: worker as f64, decode_blocks: 10.0 * worker as f64, ..Load::default() };
        partition.set_load(WorkerKey::new(worker, 0), Some(load));
    }
    let overlap = |worker, device_blocks| pointsman_routing::WorkerOverlap {
        key: WorkerKey::new(worker, 0),
        device_blocks,
        ..Default::default()
    };
    let overlaps = [overlap(1, 1.0), overlap(2, 4.0), overlap(3, 4.0)];
    let request =
        Request { id: "chat-7/0", now_ms: 7.5, prompt_tokens: 128, overlaps: &overlaps, ..Request::default() };
    let decided: Vec<u64> = (0..4).map(|_| partition.decide(&request).unwrap().worker.worker).collect();
    let told: Vec<Explained> = (0..2).map(|_| receiver.recv_timeout(Duration::from_secs(60)).unwrap()).collect();
    assert!(receiver.try_recv().is_err(), "every other decision is explained");
    for explained in told {
        assert_eq!((explained.now_ms, explained.candidates, &*explained.outcome), (7.5, 3, "ok"));
        assert_eq!(explained.id, "chat-7/0");
        let chosen = explained.chosen.clone().unwrap();
        assert_eq!(chosen.worker, decided[0]);
        assert!(explained.agrees && !explained.fallback);
        let because = |worker: u64| {
            explained.others.iter().find(|loser| loser.candidate.worker == worker).map(|loser| loser.because)
        };
        assert_eq!(because(1), Some(Because::Filtered), "{explained:?}");
        assert_eq!(because(if chosen.worker == 2 { 3 } else { 2 }), Some(Because::CostsMore), "{explained:?}");
    }
}
