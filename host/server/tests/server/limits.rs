//! What a client may send, how many may ask at a time, and how a server stops.

use std::time::Duration;

use crate::world::{Plan, chat, client, events, eventually, raw, request, send, streaming, whole};
use http::StatusCode;
use http_body_util::BodyExt;

const PATH: &str = "/v1/chat/completions";

#[tokio::test(flavor = "multi_thread")]
async fn one_request_too_many_is_shed() {
    let world = Plan::of(1).slow(20).server("limits: {concurrent_requests: 2}").start().await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut response = world.begin(PATH, &streaming(chat("a", 5_000)), &[]).await;
        response.frame().await.unwrap().unwrap();
        open.push(response);
    }
    let shed = world.post(PATH, &chat("a", 1), &[]).await;
    assert_eq!(shed.error(), (529, "too_many_requests".to_owned(), "overloaded_error".to_owned()));
    assert_eq!(shed.headers["retry-after"], "1");
    assert_eq!(world.get("/readyz", &[]).await.status, StatusCode::OK, "health is answered all the same");
    drop(open);
    world.idle().await;
    let mut status = StatusCode::OK;
    for _ in 0..100 {
        status = world.post(PATH, &chat("a", 1), &[]).await.status;
        if status == StatusCode::OK {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(status, StatusCode::OK, "the places are given back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_says_nothing_is_let_go() {
    let world = Plan::of(1).server("timeouts: {headers_ms: 200}").start().await;
    for beginning in [&b""[..], b"PRI * HT"] {
        let ended = tokio::time::timeout(Duration::from_secs(30), raw(world.server.address(), beginning, false)).await;
        assert_eq!(ended.as_deref(), Ok(""), "{beginning:?}");
    }
    world.chat("hello", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_and_bodies_are_bounded_in_size_and_time() {
    let sections = "limits: {header_bytes: 8192, headers: 20, body_bytes: 1000}\n\
                    timeouts: {headers_ms: 200, body_ms: 200}";
    let world = Plan::of(1).server(sections).start().await;
    let address = world.server.address();
    let long = format!("GET /v1/models HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(20_000));
    assert!(raw(address, long.as_bytes(), false).await.starts_with("HTTP/1.1 431 "));
    let many = format!("GET /v1/models HTTP/1.1\r\nhost: a\r\n{}\r\n", "x: y\r\n".repeat(30));
    assert!(raw(address, many.as_bytes(), false).await.starts_with("HTTP/1.1 431 "));
    let half = "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n";
    let text = raw(address, half.as_bytes(), false).await;
    assert!(text.is_empty() || text.starts_with("HTTP/1.1 408 "), "headers that do not end are not waited for: {text}");
    let slow = "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{";
    let text = raw(address, slow.as_bytes(), false).await;
    assert!(text.starts_with("HTTP/1.1 408 ") && text.contains("request_timeout"), "{text}");
    let chunked = "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    let text = raw(address, format!("{chunked}800\r\n{}\r\n0\r\n\r\n", "x".repeat(0x800)).as_bytes(), false).await;
    assert!(text.starts_with("HTTP/1.1 413 ") && text.contains("request_too_large"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_lets_what_runs_end_and_takes_nothing_more() {
    let world = Plan::of(1).slow(10).start().await;
    let url = world.url(PATH);
    let mut response = world.begin(PATH, &streaming(chat("a", 40)), &[]).await;
    response.frame().await.unwrap().unwrap();
    let drained = tokio::spawn(world.server.drain());
    let mut refused = false;
    for _ in 0..100 {
        refused = client().request(request("POST", &url, chat("b", 1).to_string(), &[])).await.is_err();
        if refused {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(refused, "no connection is accepted any more");
    let text = whole(response).await.text();
    assert_eq!(events(&text).last(), Some(&"[DONE]"), "{text}");
    drained.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_does_not_wait_for_ever() {
    let world = Plan::of(1).slow(20).server("timeouts: {drain_ms: 100}").start().await;
    let mut response = world.begin(PATH, &streaming(chat("a", 100_000)), &[]).await;
    response.frame().await.unwrap().unwrap();
    tokio::time::timeout(Duration::from_secs(30), world.server.drain()).await.unwrap();
    assert!(response.collect().await.is_err(), "the stream was cut off");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_holds_up_nobody_else() {
    let world = Plan::of(1).start().await;
    let mut slow = world.begin(PATH, &streaming(chat("a", 20_000)), &[]).await;
    slow.frame().await.unwrap().unwrap();
    for _ in 0..20 {
        assert_eq!(world.post(PATH, &chat("b", 2), &[]).await.status, StatusCode::OK);
    }
    drop(slow);
    world.idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_follows_the_workers() {
    let world = Plan::of(1).start().await;
    assert_eq!(world.get("/healthz", &[]).await.status, StatusCode::OK);
    assert_eq!(world.get("/readyz", &[]).await.json()["ready"], true);
    let gone = send("DELETE", &world.admin("/workers/1"), "", &[]).await;
    assert_eq!(gone.status(), StatusCode::OK);
    let answer = world.get("/readyz", &[]).await;
    assert_eq!((answer.status, answer.json()["ready"].as_bool()), (StatusCode::SERVICE_UNAVAILABLE, Some(false)));
    assert_eq!(world.get("/healthz", &[]).await.status, StatusCode::OK);
    eventually("the front door names no model", || world.server.fleet().models("default").is_empty()).await;
}
