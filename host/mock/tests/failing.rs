//! How the engine fails when it is told to, and that it lets go of what nobody waits for.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

mod common;

use std::time::Duration;

use axum::body::Body;
use common::{client, completion, config, eventually, get, post, request, send, start, streaming, whole};
use http_body_util::BodyExt;
use pointsman_mock::{Failures, MockConfig, MockEngine, MockError, Timing};
use serde_json::{Value, json};

const COMPLETIONS: &str = "/v1/completions";

fn ask(engine: &MockEngine, body: &Value) -> hyper::Request<Body> {
    request("POST", engine.url() + COMPLETIONS, body.to_string())
}

/// An engine whose steps take a second.
fn slow() -> MockConfig {
    let timing = Timing { decode_token: Duration::from_secs(1), ..Timing::default() };
    MockConfig { timing, ..config() }
}

#[tokio::test]
async fn a_status_befalls_as_many_requests_as_asked() {
    let engine = start(config()).await;
    engine.set_failures(Failures { status: Some(503), requests: Some(1), ..Failures::default() });
    let (status, _, answer) = post(&engine, COMPLETIONS, &completion("a", 1)).await;
    assert_eq!((status.as_u16(), &answer["error"]["code"]), (503, &json!(503)));
    assert_eq!(post(&engine, COMPLETIONS, &completion("a", 1)).await.0, 200);
}

#[tokio::test]
async fn a_refusing_engine_closes_connections_until_it_is_told_otherwise() {
    let engine = start(config()).await;
    let client = client();
    let health = || client.request(request("GET", engine.url() + "/health", Body::empty()));
    assert_eq!(health().await.unwrap().status(), 200);
    engine.set_failures(Failures { refuse: true, ..Failures::default() });
    health().await.unwrap_err();
    engine.set_failures(Failures { unhealthy: true, ..Failures::default() });
    assert_eq!(health().await.unwrap().status(), 503);
}

#[tokio::test]
async fn an_engine_dies_before_its_first_byte_or_in_the_middle_of_a_stream() {
    let engine = start(config()).await;
    engine.set_failures(Failures { die_after_tokens: Some(0), requests: Some(1), ..Failures::default() });
    send(ask(&engine, &completion("a", 5))).await.unwrap_err();

    engine.set_failures(Failures { die_after_tokens: Some(3), ..Failures::default() });
    let mut body = send(ask(&engine, &streaming(completion("a", 5)))).await.unwrap().into_body();
    let mut text = String::new();
    let end = loop {
        match body.frame().await {
            Some(Ok(frame)) => text += std::str::from_utf8(frame.data_ref().unwrap()).unwrap(),
            end => break end,
        }
    };
    assert!(end.is_some(), "the connection broke; a stream that ends has no next frame");
    assert_eq!(text.matches("data: ").count(), 3);
    assert!(!text.contains("[DONE]"));
    eventually(&engine, |stats| stats.running == 0).await;
}

#[tokio::test]
async fn a_stalled_stream_goes_on_for_ever_and_frees_its_blocks_when_the_client_leaves() {
    let failures = Failures { stall_after_tokens: Some(2), ..Failures::default() };
    let engine = start(MockConfig { failures, ..slow() }).await;
    let mut body = send(ask(&engine, &streaming(completion("0123456789abcdef", 100)))).await.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    assert_eq!(eventually(&engine, |stats| stats.running == 1).await.used_blocks, 26);
    drop(body);
    let stats = eventually(&engine, |stats| stats.running == 0).await;
    assert_eq!((stats.used_blocks, stats.finished, stats.aborted), (0, 0, 1));
}

#[tokio::test]
async fn a_client_that_leaves_cancels_its_request_streaming_or_not() {
    let engine = start(slow()).await;
    for body in [completion("a", 1_000), streaming(completion("b", 1_000))] {
        let before = engine.stats()[0].aborted;
        let asking = tokio::spawn(send(ask(&engine, &body)));
        eventually(&engine, |stats| stats.running == 1).await;
        asking.abort();
        // The client and so its connection are gone with the task; a response that was there goes too.
        drop(asking.await);
        eventually(&engine, |stats| stats.running == 0 && stats.aborted == before + 1).await;
    }
}

#[tokio::test]
async fn sequences_beyond_the_batch_wait() {
    let engine = start(MockConfig { max_num_seqs: 1, ..slow() }).await;
    let asking: Vec<_> = (0..3).map(|_| tokio::spawn(send(ask(&engine, &completion("a", 1_000))))).collect();
    eventually(&engine, |stats| stats.running == 1 && stats.waiting == 2).await;
    let (_, metrics) = get(&engine, "/metrics").await;
    assert!(metrics.contains("vllm:num_requests_waiting{engine=\"0\",model_name=\"mock\"} 2\n"), "{metrics}");
    for asked in asking {
        asked.abort();
    }
    eventually(&engine, |stats| stats.running + stats.waiting == 0).await;
}

#[tokio::test]
async fn controls_change_failures_and_forget_the_cache() {
    let engine = start(MockConfig { control: true, ..config() }).await;
    let put = |body: Value| request("PUT", engine.url() + "/mock/failures", body.to_string());
    let (status, _, _) = whole(put(json!({"status": 429}))).await;
    assert_eq!((status.as_u16(), whole(ask(&engine, &completion("a", 1))).await.0.as_u16()), (200, 429));
    assert_eq!(whole(put(json!({"sttus": 429}))).await.0, 400, "a name that is not known is refused");
    whole(put(json!({}))).await;
    let (_, failures) = get(&engine, "/mock/failures").await;
    assert_eq!(serde_json::from_str::<Failures>(&failures).unwrap(), Failures::default());

    let cached = async || {
        let (_, _, answer) = post(&engine, COMPLETIONS, &completion("0123456789abcdef0123", 1)).await;
        answer["usage"]["prompt_tokens_details"]["cached_tokens"].clone()
    };
    assert_eq!((cached().await, cached().await), (json!(0), json!(4)));
    assert_eq!(whole(request("POST", engine.url() + "/mock/clear-cache", Body::empty())).await.0, 204);
    assert_eq!(cached().await, 0);
}

#[tokio::test]
async fn a_stopped_engine_frees_its_address_for_the_next() {
    let engine = start(config()).await;
    let again = MockConfig { address: engine.address(), ..config() };
    let Err(MockError::Listen { .. }) = MockEngine::start(again.clone()).await else {
        panic!("an address in use is an error")
    };
    engine.stop().await;
    let engine = start(again).await;
    assert_eq!(get(&engine, "/health").await.0, 200);
}

#[tokio::test]
async fn settings_out_of_range_are_refused_with_a_sentence() {
    let zero = MockConfig { block_size: 0, ..config() };
    let sentence = MockEngine::start(zero).await.unwrap_err().to_string();
    assert_eq!(sentence, "the simulated engine's block_size is 0; give at least 1 token");
    let backwards = MockConfig { timing: Timing { speedup: -1.0, ..Timing::default() }, ..config() };
    assert!(MockEngine::start(backwards).await.unwrap_err().to_string().contains("speed-up is -1"));
    let missing = MockConfig { tokenizer: Some("/nowhere/tokenizer.json".into()), ..config() };
    assert!(MockEngine::start(missing).await.unwrap_err().to_string().contains("/nowhere/tokenizer.json"));
}
