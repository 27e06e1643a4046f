//! A client for a running engine.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]
#![allow(dead_code, reason = "each test file uses its part of it")]

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{HeaderMap, Request, Response, StatusCode, body::Incoming};
use hyper_util::client::legacy::{Client, Error, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use pointsman_mock::{MockConfig, MockEngine, Stats, Timing};
use serde_json::{Value, json};

/// An engine that takes no time.
pub(crate) fn config() -> MockConfig {
    MockConfig { timing: Timing::instant(), block_size: 4, ..MockConfig::default() }
}

pub(crate) async fn start(config: MockConfig) -> MockEngine {
    MockEngine::start(config).await.unwrap()
}

pub(crate) fn client() -> Client<HttpConnector, Body> {
    Client::builder(TokioExecutor::new()).build_http()
}

pub(crate) fn request(method: &str, url: String, body: impl Into<Body>) -> Request<Body> {
    Request::builder().method(method).uri(url).body(body.into()).unwrap()
}

pub(crate) async fn send(request: Request<Body>) -> Result<Response<Incoming>, Error> {
    client().request(request).await
}

/// A whole answer: status, headers, body.
pub(crate) async fn whole(request: Request<Body>) -> (StatusCode, HeaderMap, Bytes) {
    let (parts, body) = send(request).await.unwrap().into_parts();
    (parts.status, parts.headers, body.collect().await.unwrap().to_bytes())
}

pub(crate) async fn get(engine: &MockEngine, path: &str) -> (StatusCode, String) {
    let (status, _, body) = whole(request("GET", engine.url() + path, Body::empty())).await;
    (status, String::from_utf8(body.to_vec()).unwrap())
}

pub(crate) async fn post(engine: &MockEngine, path: &str, body: &Value) -> (StatusCode, HeaderMap, Value) {
    let (status, headers, body) = whole(request("POST", engine.url() + path, body.to_string())).await;
    (status, headers, serde_json::from_slice(&body).unwrap())
}

/// A completion's body.
pub(crate) fn completion(prompt: impl Into<Value>, max_tokens: u32) -> Value {
    json!({"model": "mock", "prompt": prompt.into(), "max_tokens": max_tokens})
}

pub(crate) fn streaming(mut body: Value) -> Value {
    body["stream"] = json!(true);
    body
}

/// The data of a stream's events.
pub(crate) async fn events(engine: &MockEngine, path: &str, body: &Value) -> Vec<String> {
    let (status, headers, body) = whole(request("POST", engine.url() + path, body.to_string())).await;
    assert_eq!(status, 200);
    assert_eq!(headers["content-type"], "text/event-stream; charset=utf-8");
    let text = String::from_utf8(body.to_vec()).unwrap();
    text.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").unwrap().to_owned()).collect()
}

/// Waits until the engine's first rank is as wanted.
pub(crate) async fn eventually(engine: &MockEngine, wanted: impl Fn(&Stats) -> bool) -> Stats {
    let waiting = async {
        loop {
            let stats = engine.stats()[0];
            if wanted(&stats) {
                return stats;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waiting).await.expect("the engine comes to this state")
}
