//! What the server knows of its workers beyond its own bookings: cached prefixes and metrics.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use pointsman_mock::{KvEventConfig, MockConfig};
use pointsman_routing::{Observed, Tap, WorkerKey};
use pointsman_server::pool::Pool;
use pointsman_signals::{PromptInput, PromptReader};
use serde_json::{Map, Value, json};

use crate::world::{Plan, World, chat, eventually, instant, send};

fn pool(world: &World) -> Arc<Pool> {
    world.server.fleet().pool("mock", "default").unwrap()
}

/// Device blocks that a worker's first rank holds of a chat.
fn held(world: &World, body: &Value, worker: u64) -> f64 {
    let prompt = PromptReader::new(16).read_now(&PromptInput::of_chat(body));
    let overlaps = pool(world).overlaps(&prompt.block_hashes);
    overlaps.iter().find(|overlap| overlap.key.worker == worker).map_or(0.0, |overlap| overlap.device_blocks)
}

/// Changes fields of a worker, as an operator does.
async fn patch(world: &World, worker: u64, fields: Value) {
    let answer = send("PATCH", &world.admin(&format!("/workers/{worker}")), fields.to_string(), &[]).await;
    assert_eq!(answer.status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_publishes_events_is_known_by_them_alone() {
    let engine = || MockConfig { kv_events: Some(KvEventConfig::default()), ..instant() };
    let plan = Plan::of(0);
    let world = Plan { engines: vec![engine(), engine()], ..plan }.start().await;
    for (worker, engine) in (1..).zip(&world.engines) {
        patch(&world, worker, json!({"kv_events_endpoint": engine.event_endpoints()[0]})).await;
    }
    // 1,006 bytes with the role: 15 whole blocks of 16 tokens.
    let text = "a long story that all of the requests begin with, ".repeat(20);
    let body = chat(&text, 1);
    // The engine is asked past the router, so that only its events can tell; again, until somebody listens to them.
    let second = &world.engines[1];
    for _ in 0..1_000 {
        if held(&world, &body, 2) > 0.0 {
            break;
        }
        second.clear_cache();
        let answer = send("POST", &(second.url() + "/v1/chat/completions"), body.to_string(), &[]).await;
        assert_eq!(answer.status(), 200);
        drop(answer);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    eventually("the whole prompt is known to be there", || held(&world, &body, 2) == 15.0).await;
    assert_eq!(held(&world, &body, 1), 0.0);
    for _ in 0..3 {
        assert_eq!(world.chat(&text, &[]).await, 2, "where the prefix is");
    }
    second.clear_cache();
    eventually("what the engine forgets is forgotten", || held(&world, &body, 2) == 0.0).await;

    // Without their events they are predicted again.
    for worker in [1, 2] {
        patch(&world, worker, json!({"kv_events_endpoint": null})).await;
    }
    let first = world.chat(&text, &[]).await;
    assert_eq!(held(&world, &body, first), 15.0);
    assert_eq!(world.chat(&text, &[]).await, first);
}

/// The columns of the router's own signals as a policy could read them, by name and row.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Map<String, Value>>>);

impl Tap for Seen {
    fn wants(&mut self) -> bool {
        true
    }

    fn decided(&mut self, observed: &Observed<'_>) {
        let snapshot = observed.snapshot;
        let own = snapshot.columns.len() - snapshot.names.signals.len();
        for (name, column) in snapshot.names.signals.iter().zip(&snapshot.columns[own..]) {
            let rows: Vec<f64> = (0..snapshot.keys.len()).map(|row| column.get(row)).collect();
            self.0.lock().unwrap().insert(name.clone(), json!(rows));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_of_workers_are_signals_until_they_are_too_old() {
    let sections = "metrics: [requests_running, kv_cache_usage, age_ms]\ntimeouts: {health_interval_ms: 50}\n";
    let plan = Plan::of(2).server(sections).workers("metrics_path: /metrics");
    let world = plan.start().await;
    let seen = Seen::default();
    pool(&world).partition().set_taps(vec![Box::new(seen.clone())]);
    let signals = async |world: &World| {
        world.chat("hello", &[]).await;
        seen.0.lock().unwrap().clone()
    };
    let mut known = false;
    for _ in 0..1_000 {
        let now = signals(&world).await;
        known = now["metric.requests_running"] == json!([0.0, 0.0]) && now["metric.age_ms"][1].is_f64();
        if known {
            assert_eq!(now["metric.kv_cache_usage"], json!([0.0, 0.0]));
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(known, "the engines are idle, and have said so");
    assert_eq!(pool(&world).partition().rows(), [WorkerKey::new(1, 0), WorkerKey::new(2, 0)]);

    // One that cannot be read any more takes its numbers along, and harms none of the other's.
    patch(&world, 2, json!({"metrics_path": "/nowhere"})).await;
    let mut lost = false;
    for _ in 0..1_000 {
        let now = signals(&world).await;
        // A missing number is NaN, which JSON has no word for.
        lost = now["metric.requests_running"] == json!([0.0, null]) && now["metric.age_ms"][1].is_null();
        if lost {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(lost, "worker 2's are missing after three looks without an answer");
}
