//! The front door in front of engines: what goes through it, how it chooses, and what it refuses.

use crate::world::{Plan, chat, events, request, send, streaming, whole, worker_of};
use http::StatusCode;
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn a_body_goes_through_as_it_is_in_both_directions() {
    let world = Plan::of(1).start().await;
    let direct = |path: &str| world.engines[0].url() + path;
    for (path, body) in [
        ("/v1/chat/completions", chat("hello", 5)),
        ("/v1/completions", json!({"model": "mock", "prompt": "hello", "max_tokens": 3, "unknown": {"kept": 1}})),
        ("/v1/embeddings", json!({"model": "mock", "input": ["a", "b"]})),
    ] {
        // What two answers cannot have in common.
        let comparable = |mut answer: Value| {
            for field in ["id", "created"] {
                answer.as_object_mut().unwrap().remove(field);
            }
            answer
        };
        let there = whole(send("POST", &direct(path), body.to_string(), &[]).await).await;
        let here = world.post(path, &body, &[]).await;
        assert_eq!(here.status, StatusCode::OK, "{}", here.text());
        assert_eq!(comparable(here.json()), comparable(there.json()), "{path}");
        assert_eq!(here.headers["x-mock-engine"], "mock", "the worker's own headers go through");
        let received = world.engines[0].received();
        assert_eq!(received[received.len() - 1].body, received[received.len() - 2].body, "{path}");
    }
    world.idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_comes_piece_by_piece() {
    let world = Plan::of(1).slow(20).start().await;
    let mut response = world.begin("/v1/chat/completions", &streaming(chat("hello", 8)), &[]).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8", "as the worker says");
    let first = response.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(!String::from_utf8_lossy(&first).contains("[DONE]"), "the first piece is not the whole answer");
    let load = world.load(1);
    assert_eq!((load.active_requests, load.active_prefill_tokens), (1.0, 0.0), "the prefill is done, the request not");
    let rest = response.collect().await.unwrap().to_bytes();
    let text = String::from_utf8([first, rest].concat()).unwrap();
    assert_eq!(events(&text).last(), Some(&"[DONE]"));
    world.idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn output_blocks_are_booked_as_the_stream_grows() {
    let world = Plan::of(1).slow(10).start().await;
    let mut response = world.begin("/v1/chat/completions", &streaming(chat("hello", 200)), &[]).await;
    response.frame().await.unwrap().unwrap();
    let before = world.load(1).decode_blocks;
    crate::world::eventually("the answer fills further blocks", || world.load(1).decode_blocks >= before + 2.0).await;
    drop(response);
    world.idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn http_2_is_spoken_on_both_sides() {
    let world = Plan::of(1).workers("http2: true").start().await;
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let url = world.url("/v1/chat/completions");
    for body in [chat("hello", 3), streaming(chat("hello", 3))] {
        let response = client.request(request("POST", &url, body.to_string(), &[])).await.unwrap();
        assert_eq!((response.status(), response.version()), (StatusCode::OK, http::Version::HTTP_2));
        assert!(!whole(response).await.body.is_empty());
    }
    world.idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prefix_goes_where_it_was_before() {
    let world = Plan::of(2).start().await;
    let texts: Vec<String> = (0..6).map(|text| format!("{text}").repeat(600)).collect();
    let mut first = Vec::new();
    for text in &texts {
        first.push(world.chat(text, &[]).await);
    }
    assert!(first.contains(&1) && first.contains(&2), "ties are drawn: {first:?}");
    for (text, worker) in texts.iter().zip(&first) {
        assert_eq!(world.chat(&format!("{text} and more"), &[]).await, *worker);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn load_is_spread_by_a_component() {
    let policies = "worker_selection: {aggregated: l, instances: [{name: l, type: least-loaded}]}";
    let world = Plan::of(2).slow(20).policies(policies).start().await;
    let mut workers = Vec::new();
    let mut open = Vec::new();
    for text in ["a", "b", "c", "d"] {
        let body = streaming(chat(text, 500));
        let response = world.begin("/v1/chat/completions", &body, &[("x-pointsman-explain", "1")]).await;
        workers.push(worker_of(response.headers()));
        open.push(response);
    }
    workers.sort_unstable();
    assert_eq!(workers, [1, 1, 2, 2]);
    drop(open);
    world.idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_routing_is_told_to_who_asks_for_it() {
    let policies = "worker_selection: {aggregated: l, instances: [{name: l, type: least-loaded}]}";
    let world = Plan::of(1).policies(policies).start().await;
    let mut body = chat("hello", 2);
    let plain = world.post("/v1/chat/completions", &body, &[("x-request-id", "mine")]).await;
    assert!(!plain.headers.contains_key("x-pointsman-decision"));
    assert_eq!(plain.headers["x-request-id"], "mine");
    assert_eq!(plain.json().get("nvext"), None);

    let told = world.post("/v1/chat/completions", &body, &[("x-pointsman-explain", "true")]).await;
    let text = told.headers["x-pointsman-decision"].to_str().unwrap().to_owned();
    let digest = text.split("digest=").nth(1).unwrap().split(';').next().unwrap();
    assert!(text.starts_with("worker=1; rank=0; policy=l; digest="), "{text}");
    assert!(digest.len() == 64 && text.contains("outcome=ok; fallback=false"), "{text}");

    body["nvext"] = json!({"extra_fields": ["worker_id"]});
    let named = world.post("/v1/chat/completions", &body, &[]).await;
    assert_eq!(named.json()["nvext"]["worker_id"]["decode_worker_id"], 1);
    assert_eq!(named.json()["choices"].as_array().unwrap().len(), 1, "the rest is the worker's");
    let stream = world.post("/v1/chat/completions", &streaming(body), &[]).await.text();
    let told = |event: &&str| event.contains(r#""nvext":{"worker_id":{"decode_dp_rank":0,"decode_worker_id":1}}"#);
    assert_eq!(events(&stream).iter().filter(|event| told(event)).count(), 1, "{stream}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_models_are_listed() {
    let world = Plan::of(2).start().await;
    let models = world.get("/v1/models", &[]).await.json();
    assert_eq!(models["object"], "list");
    assert_eq!(models["data"][0]["id"], "mock");
    assert_eq!(models["data"].as_array().unwrap().len(), 1);
    assert_eq!(world.get("/v1/models/mock", &[]).await.json()["object"], "model");
    assert_eq!(world.get("/v1/models/other", &[]).await.error().0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_served_is_refused_in_openais_shape() {
    let world = Plan::of(1).server("limits: {body_bytes: 10000}").start().await;
    let path = "/v1/chat/completions";
    let error = |status: u16, code: &str, kind: &str| (status, code.to_owned(), kind.to_owned());
    let invalid = |code: &str| error(400, code, "invalid_request_error");
    for (body, expected) in [
        ("{", invalid("invalid_json")),
        ("[]", invalid("invalid_json")),
        ("{}", invalid("missing_model")),
        (r#"{"model": "x"}"#, error(404, "model_not_found", "invalid_request_error")),
        (r#"{"model": "mock", "nvext": {"agent_hints": {"osl": "x"}}}"#, invalid("invalid_routing_field")),
    ] {
        assert_eq!(whole(send("POST", &world.url(path), body, &[]).await).await.error(), expected, "{body}");
    }
    let large = world.post(path, &chat(&"x".repeat(20_000), 1), &[]).await;
    assert_eq!(large.error(), error(413, "request_too_large", "invalid_request_error"));
    let wrong = world.get(path, &[]).await;
    assert_eq!(wrong.error(), error(405, "method_not_allowed", "invalid_request_error"));
    assert_eq!(wrong.headers["allow"], "POST");
    assert_eq!(world.get("/nowhere", &[]).await.error(), error(404, "unknown_url", "invalid_request_error"));
    let own = world.post(path, &json!({"model": "mock", "messages": []}), &[]).await;
    assert_eq!(own.status, StatusCode::BAD_REQUEST, "what the worker refuses comes in the worker's words");
    assert!(own.text().contains("messages"));
    world.idle().await;
}
