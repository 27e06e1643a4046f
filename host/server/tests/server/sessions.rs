//! Session affinity and policy classes through the front door.

use crate::world::{Plan, busy, chat, streaming, worker_of};
use http::StatusCode;
use http_body_util::BodyExt;
use pointsman_admission::OverloadStatus;
use serde_json::json;

const PATH: &str = "/v1/chat/completions";
const HARD: &str = "session_affinity: {mode: hard, ttl_secs: 60}
worker_selection: {aggregated: r, instances: [{name: r, type: round-robin}]}";

#[tokio::test(flavor = "multi_thread")]
async fn a_session_keeps_its_worker_whoever_names_it() {
    let world = Plan::of(3).policies(HARD).start().await;
    for (place, header) in
        ["x-dynamo-session-id", "x-claude-code-agent-id", "thread-id", "x-session-id"].into_iter().enumerate()
    {
        let id = format!("session-{place}");
        let first = world.chat("a", &[(header, &id)]).await;
        for text in ["b", "c", "d", "e"] {
            assert_eq!(world.chat(text, &[(header, &id)]).await, first, "{header}");
        }
    }
    let mut others = Vec::new();
    for text in ["a", "b", "c", "d"] {
        others.push(world.chat(text, &[]).await);
    }
    others.dedup();
    assert_eq!(others.len(), 4, "requests without a session go round");
    let long = "x".repeat(300);
    let error = world.post(PATH, &chat("a", 1), &[("x-dynamo-session-id", &long)]).await.error();
    assert_eq!((error.0, error.1.as_str()), (400, "affinity-invalid"));
    world.idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_workers_session_moves_and_stays() {
    const SOFT: &str = "session_affinity: {mode: soft, ttl_secs: 60}
worker_selection:
  aggregated: s
  instances: [{name: s, type: soft-pin-repin, parameters: {max_active_requests: 0}}]";
    let world = Plan::of(2).slow(20).policies(SOFT).start().await;
    let headers = [("x-dynamo-session-id", "S"), ("x-pointsman-explain", "1")];
    let mut first = world.begin(PATH, &streaming(chat("one", 5_000)), &headers).await;
    first.frame().await.unwrap().unwrap();
    let a = worker_of(first.headers());
    let second = world.post(PATH, &streaming(chat("two", 4)), &headers).await;
    let b = worker_of(&second.headers);
    assert_ne!(a, b, "its worker is busy");
    drop(first);
    world.idle().await;
    let third = world.post(PATH, &chat("three", 4), &headers).await;
    assert_eq!(worker_of(&third.headers), b, "the session has moved");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_class_is_refused_with_its_details() {
    let (world, long) = busy(OverloadStatus::parse("430")).await;
    let refused = world.post(PATH, &chat("a", 1), &[("x-dynamo-meta-policy-class", "batch")]).await;
    assert_eq!(refused.error(), (430, "queue-rejected".to_owned(), "overloaded_error".to_owned()));
    assert_eq!(refused.headers["retry-after"], "1");
    let details = &refused.json()["error"]["details"];
    assert_eq!(details, &json!({"policy_class": "batch", "limit_kind": "requests", "current": 0, "limit": 0}));
    long.abort();
    world.idle().await;
    let served = world.post(PATH, &chat("a", 1), &[("x-dynamo-meta-policy-class", "batch")]).await;
    assert_eq!(served.status, StatusCode::OK, "{}", served.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_is_served_when_a_worker_has_less_to_do() {
    const CLASSES: &str = "default_policy_family: standard
uncached_isl_buckets: [{min_tokens: 0, bucket: all}]
policy_classes:
  - {name: standard_all, policy_family: standard, cache_bucket: all, quantum: 1, prefill_busy_threshold: 0}";
    let mut plan = Plan::of(1).policies(CLASSES);
    plan.engines[0].timing.speedup = 1.0;
    plan.engines[0].timing.decode_token = std::time::Duration::from_millis(5);
    let world = plan.start().await;
    let answers = (0..8).map(|text| {
        let url = world.url(PATH);
        let body = streaming(chat(&format!("{text} ").repeat(200), 3)).to_string();
        tokio::spawn(async move { crate::world::whole(crate::world::send("POST", &url, body, &[]).await).await.status })
    });
    for answer in answers.collect::<Vec<_>>() {
        assert_eq!(answer.await.unwrap(), StatusCode::OK);
    }
    world.idle().await;
}
