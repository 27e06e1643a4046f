//! Workers and clients that fail: tried elsewhere before the first byte, told after it, and nothing stays booked.

use std::collections::BTreeSet;

use crate::world::{Plan, World, chat, events, eventually, send, streaming, whole};
use http::StatusCode;
use http_body_util::BodyExt;
use pointsman_mock::Failures;
use serde_json::Value;

const PATH: &str = "/v1/chat/completions";

fn fail(world: &World, worker: usize, failures: Failures) {
    world.engines[worker - 1].set_failures(failures);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_fails_before_the_first_byte_is_passed_over() {
    for failures in [
        Failures { refuse: true, ..Failures::default() },
        Failures { status: Some(503), ..Failures::default() },
        Failures { status: Some(500), ..Failures::default() },
        Failures { die_after_tokens: Some(0), ..Failures::default() },
    ] {
        let world = Plan::of(2).start().await;
        fail(&world, 1, failures);
        for text in ["a", "b", "c", "d", "e", "f"] {
            for body in [chat(text, 3), streaming(chat(text, 3))] {
                let answer = world.post(PATH, &body, &[("x-pointsman-explain", "1")]).await;
                assert_eq!(answer.status, StatusCode::OK, "{failures:?}: {}", answer.text());
                assert_eq!(crate::world::worker_of(&answer.headers), 2);
            }
        }
        eventually("nothing is booked", || world.load(2) == Default::default() && world.load(1) == Default::default())
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nobody_is_left_the_first_failure_is_told() {
    let world = Plan::of(1).start().await;
    fail(&world, 1, Failures { status: Some(503), requests: Some(1), ..Failures::default() });
    let answer = world.post(PATH, &chat("a", 3), &[]).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "in the worker's own words: {}", answer.text());
    fail(&world, 1, Failures { die_after_tokens: Some(0), requests: Some(1), ..Failures::default() });
    let error = world.post(PATH, &chat("a", 3), &[]).await.error();
    assert_eq!(error, (502, "worker_failed".to_owned(), "server_error".to_owned()));
    world.idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_retry_is_made_where_the_server_file_says_so() {
    let world = Plan::of(2).server("retries: 0").start().await;
    for worker in [1, 2] {
        fail(&world, worker, Failures { status: Some(500), requests: Some(1), ..Failures::default() });
    }
    assert_eq!(world.post(PATH, &chat("a", 3), &[]).await.status, StatusCode::INTERNAL_SERVER_ERROR);
    let received: usize = world.engines.iter().map(|engine| engine.received().len()).sum();
    assert_eq!(received, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_breaks_off_ends_with_an_error_event() {
    let world = Plan::of(2).slow(5).start().await;
    for worker in [1, 2] {
        fail(&world, worker, Failures { die_after_tokens: Some(3), ..Failures::default() });
    }
    let answer = world.post(PATH, &streaming(chat("a", 50)), &[]).await;
    assert_eq!(answer.status, StatusCode::OK);
    let text = answer.text();
    let last: Value = serde_json::from_str(events(&text).last().unwrap()).unwrap();
    assert_eq!((&last["error"]["code"], &last["error"]["type"]), (&"worker_failed".into(), &"server_error".into()));
    let received: usize = world.engines.iter().map(|engine| engine.received().len()).sum();
    assert_eq!(received, 1, "after the first byte nobody else is tried");
    world.idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_stalls_is_given_up() {
    let world = Plan::of(1).slow(5).server("timeouts: {first_byte_ms: 300, idle_ms: 300}").start().await;
    fail(&world, 1, Failures { stall_after_tokens: Some(0), requests: Some(1), ..Failures::default() });
    let error = world.post(PATH, &chat("a", 3), &[]).await.error();
    assert_eq!(error, (504, "worker_timeout".to_owned(), "server_error".to_owned()));
    fail(&world, 1, Failures { stall_after_tokens: Some(2), requests: Some(1), ..Failures::default() });
    let text = world.post(PATH, &streaming(chat("a", 50)), &[]).await.text();
    assert!(events(&text).last().unwrap().contains("worker_timeout"), "{text}");
    world.idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_frees_what_it_held() {
    let world = Plan::of(2).slow(20).start().await;
    // In the middle of a stream.
    let mut response = world.begin(PATH, &streaming(chat("a", 5_000)), &[]).await;
    response.frame().await.unwrap().unwrap();
    assert_eq!(world.load(1).active_requests + world.load(2).active_requests, 1.0);
    drop(response);
    world.idle().await;
    // Before the first byte.
    let pending = tokio::spawn(send_owned(world.url(PATH), chat("b", 5_000)));
    eventually("the request is booked", || world.load(1).active_requests + world.load(2).active_requests == 1.0).await;
    pending.abort();
    world.idle().await;
    eventually("the engines have stopped", || {
        world.engines.iter().flat_map(|engine| engine.stats()).all(|rank| rank.running == 0 && rank.waiting == 0)
    })
    .await;
}

async fn send_owned(url: String, body: Value) {
    whole(send("POST", &url, body.to_string(), &[]).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_not_well_leaves_and_comes_back() {
    let world = Plan::of(2).workers("health_path: /health").server("timeouts: {health_interval_ms: 20}").start().await;
    let state = |worker| world.server.fleet().worker(worker).unwrap().lifecycle.as_str();
    fail(&world, 1, Failures { unhealthy: true, ..Failures::default() });
    eventually("it is out", || state(1) == "unschedulable").await;
    let mut workers = BTreeSet::new();
    for text in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        workers.insert(world.chat(text, &[]).await);
    }
    assert_eq!(workers, [2].into());
    fail(&world, 1, Failures::default());
    eventually("it is back", || state(1) == "schedulable").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_cannot_be_reached_comes_back_without_a_health_path() {
    let mut world = Plan::of(2).server("timeouts: {health_interval_ms: 20}").start().await;
    let address = world.engines[0].address();
    let engine = world.engines.remove(0);
    engine.stop().await;
    let state = |worker: u64| world.server.fleet().worker(worker).unwrap().lifecycle.as_str();
    for text in 0..40 {
        assert_eq!(world.chat(&text.to_string(), &[]).await, 2);
        if state(1) == "unschedulable" {
            break;
        }
    }
    eventually("it is out", || state(1) == "unschedulable").await;
    let again = pointsman_mock::MockConfig { address, ..crate::world::instant() };
    let _engine = pointsman_mock::MockEngine::start(again).await.unwrap();
    eventually("it is back", || state(1) == "schedulable").await;
}
