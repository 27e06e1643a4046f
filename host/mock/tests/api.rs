//! The engine's HTTP API, as a client or a router sees it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

mod common;

use axum::body::Body;
use common::{completion, config, events, get, post, request, start, streaming, whole};
use pointsman_mock::MockConfig;
use serde_json::{Value, json};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

fn chat(max_tokens: Option<u32>) -> Value {
    let messages = json!([{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello there"}]);
    let mut body = json!({"model": "mock", "messages": messages});
    if let Some(max_tokens) = max_tokens {
        body["max_tokens"] = json!(max_tokens);
    }
    body
}

#[tokio::test]
async fn a_completion_has_the_tokens_asked_for_and_counts_them() {
    let engine = start(config()).await;
    let (status, headers, answer) = post(&engine, COMPLETIONS, &completion("0123456789abcdef", 5)).await;
    assert_eq!(status, 200);
    assert_eq!(headers["x-mock-engine"], "mock");
    assert_eq!(answer["object"], "text_completion");
    assert_eq!(answer["choices"][0]["text"].as_str().unwrap().len(), 5 * 4, "a token is four bytes");
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    let usage = &answer["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(4), &json!(5)));
    assert_eq!(usage["total_tokens"], 9);
    let (_, _, again) = post(&engine, COMPLETIONS, &completion("0123456789abcdef", 5)).await;
    assert_eq!(again["choices"], answer["choices"], "the same prompt has the same answer");
    assert_ne!(again["id"], answer["id"]);
}

#[tokio::test]
async fn token_ids_are_the_prompt_that_they_stand_for() {
    let engine = start(config()).await;
    let ids = [u32::from_le_bytes(*b"0123"), u32::from_le_bytes(*b"4567")];
    let (_, _, by_ids) = post(&engine, COMPLETIONS, &completion(json!(ids), 3)).await;
    let (_, _, by_text) = post(&engine, COMPLETIONS, &completion("01234567", 3)).await;
    assert_eq!((&by_ids["choices"], &by_ids["usage"]), (&by_text["choices"], &by_text["usage"]));
}

#[tokio::test]
async fn a_stream_has_the_same_text_and_ends_with_done() {
    let engine = start(config()).await;
    let (_, _, answer) = post(&engine, CHAT, &chat(Some(4))).await;
    assert_eq!(answer["object"], "chat.completion");
    let whole = answer["choices"][0]["message"]["content"].as_str().unwrap();

    let mut events = events(&engine, CHAT, &streaming(chat(Some(4)))).await;
    assert_eq!(events.pop().unwrap(), "[DONE]");
    let chunks: Vec<Value> = events.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    assert!(chunks.iter().all(|chunk| chunk["object"] == "chat.completion.chunk" && chunk["id"] == chunks[0]["id"]));
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let pieces: Vec<&str> =
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!((pieces.concat().as_str(), pieces.len()), (whole, 1 + 4), "a piece a token, after an empty one");
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "length");
    assert!(chunks.iter().all(|chunk| chunk.get("usage").is_none()));
}

#[tokio::test]
async fn usage_comes_with_a_stream_where_it_is_asked_for() {
    let engine = start(config()).await;
    let mut body = streaming(completion("0123456789abcdef", 2));
    body["stream_options"] = json!({"include_usage": true});
    let events = events(&engine, COMPLETIONS, &body).await;
    let last: Value = serde_json::from_str(&events[events.len() - 2]).unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["completion_tokens"], 2);
    let first: Value = serde_json::from_str(&events[0]).unwrap();
    assert_eq!(first["usage"], Value::Null);
}

#[tokio::test]
async fn an_answer_without_a_maximum_stops_by_itself() {
    let engine = start(MockConfig { default_max_tokens: 7, ..config() }).await;
    let (_, _, answer) = post(&engine, CHAT, &chat(None)).await;
    assert_eq!(answer["usage"]["completion_tokens"], 7);
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    let mut body = chat(Some(5));
    body["max_completion_tokens"] = json!(3);
    let (_, _, answer) = post(&engine, CHAT, &body).await;
    assert_eq!(answer["usage"]["completion_tokens"], 3, "the newer name wins");
}

#[tokio::test]
async fn embeddings_have_unit_length_and_depend_on_their_input() {
    let engine = start(config()).await;
    let body = json!({"model": "mock", "input": ["one", "two", "one"], "dimensions": 3});
    let (status, _, answer) = post(&engine, "/v1/embeddings", &body).await;
    assert_eq!(status, 200);
    let vectors: Vec<Vec<f64>> =
        (0..3).map(|at| serde_json::from_value(answer["data"][at]["embedding"].clone()).unwrap()).collect();
    for vector in &vectors {
        assert_eq!(vector.len(), 3);
        assert!((vector.iter().map(|value| value * value).sum::<f64>() - 1.0).abs() < 1e-5);
    }
    assert_eq!(vectors[0], vectors[2]);
    assert_ne!(vectors[0], vectors[1]);
    assert_eq!(answer["usage"]["prompt_tokens"], 3);

    let body = json!({"model": "mock", "input": "one", "dimensions": 3, "encoding_format": "base64"});
    let (_, _, answer) = post(&engine, "/v1/embeddings", &body).await;
    let bytes = base64::decode(answer["data"][0]["embedding"].as_str().unwrap()).unwrap();
    let floats = bytes.chunks(4).map(|chunk| f64::from(f32::from_le_bytes(chunk.try_into().unwrap())));
    assert!(floats.zip(&vectors[0]).all(|(given, wanted)| (given - wanted).abs() < 1e-6));
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_said_in_openai_s_shape() {
    let engine = start(MockConfig { max_model_len: 100, ..config() }).await;
    let mut two = completion("a", 1);
    two["n"] = json!(2);
    let cases = [
        (COMPLETIONS, completion("a".repeat(400), 1), 400, "room for 100"),
        (COMPLETIONS, completion("a", 0), 400, "max_tokens"),
        (COMPLETIONS, completion(json!(["a", "b"]), 1), 400, "one prompt"),
        (COMPLETIONS, two, 400, "`n`"),
        (COMPLETIONS, json!({"model": "other", "prompt": "a"}), 404, "`other`"),
        (COMPLETIONS, json!({"prompt": "a"}), 400, "names no model"),
        (CHAT, json!({"model": "mock", "messages": []}), 400, "messages"),
        ("/v1/embeddings", json!({"model": "mock"}), 400, "input"),
        ("/v1/other", json!({}), 404, "no such path"),
        ("/mock/clear-cache", json!({}), 404, "no such path"),
    ];
    for (path, body, status, says) in cases {
        let (got, _, answer) = post(&engine, path, &body).await;
        assert_eq!(got, status, "{path} {answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(says), "{answer}");
        assert!(answer["error"]["type"].is_string());
    }
    let (status, _, _) = whole(request("POST", engine.url() + CHAT, "{")).await;
    assert_eq!(status, 400);
    assert_eq!(engine.stats()[0].waiting + engine.stats()[0].running, 0);
}

#[tokio::test]
async fn models_health_and_metrics_tell_what_the_engine_is() {
    let engine = start(MockConfig { data_parallel_size: 2, ..config() }).await;
    let (_, models) = get(&engine, "/v1/models").await;
    let models: Value = serde_json::from_str(&models).unwrap();
    assert_eq!(models["data"][0]["id"], "mock");
    assert_eq!(get(&engine, "/health").await.0, 200);

    let body = completion("0123456789abcdef0123", 1);
    for _ in 0..2 {
        let mut named = request("POST", engine.url() + COMPLETIONS, body.to_string());
        named.headers_mut().insert("x-data-parallel-rank", "1".parse().unwrap());
        let (_, headers, _) = whole(named).await;
        assert_eq!(headers["x-mock-rank"], "1");
    }
    let (_, metrics) = get(&engine, "/metrics").await;
    for line in [
        "vllm:num_requests_running{engine=\"1\",model_name=\"mock\"} 0",
        "vllm:num_requests_waiting{engine=\"1\",model_name=\"mock\"} 0",
        "vllm:kv_cache_usage_perc{engine=\"1\",model_name=\"mock\"} 0",
        "vllm:gpu_cache_usage_perc{engine=\"1\",model_name=\"mock\"} 0",
        "vllm:prefix_cache_queries_total{engine=\"1\",model_name=\"mock\"} 10",
        "vllm:prefix_cache_hits_total{engine=\"1\",model_name=\"mock\"} 4",
        "vllm:prefix_cache_hits_total{engine=\"0\",model_name=\"mock\"} 0",
        "vllm:request_success_total{engine=\"1\",model_name=\"mock\"} 2",
        "vllm:cache_config_info{block_size=\"4\",num_gpu_blocks=\"80000\"} 1",
    ] {
        assert!(metrics.lines().any(|given| given == line), "{line} is missing from\n{metrics}");
    }
    let mut unknown = request("POST", engine.url() + COMPLETIONS, body.to_string());
    unknown.headers_mut().insert("x-data-parallel-rank", "2".parse().unwrap());
    assert_eq!(whole(unknown).await.0, 400);
}

#[tokio::test]
async fn what_was_asked_is_kept_where_that_is_wanted() {
    let engine = start(MockConfig { keep_requests: 1, ..config() }).await;
    for prompt in ["first", "second"] {
        let mut asked = request("POST", engine.url() + COMPLETIONS, completion(prompt, 1).to_string());
        asked.headers_mut().insert("authorization", "Bearer secret".parse().unwrap());
        whole(asked).await;
    }
    let received = engine.received();
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].path, COMPLETIONS);
    assert_eq!(received[0].headers["authorization"], "Bearer secret");
    assert_eq!(serde_json::from_slice::<Value>(&received[0].body).unwrap()["prompt"], "second");
    let (_, _, _) = whole(request("GET", engine.url() + "/v1/models", Body::empty())).await;
    assert_eq!(engine.received().len(), 1, "inference requests alone");
}

#[tokio::test]
async fn the_document_names_every_metric_endpoint_and_failure() {
    let document = include_str!("../../../docs/simulated-engine.md");
    let quoted: Vec<&str> = document.split('`').skip(1).step_by(2).collect();
    let engine = start(MockConfig { control: true, ..config() }).await;
    let (_, metrics) = get(&engine, "/metrics").await;
    let served: Vec<&str> =
        metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    for name in &served {
        assert!(quoted.contains(name), "{name} is not in the document");
    }
    for name in quoted.iter().filter(|name| name.starts_with("vllm:")) {
        assert!(served.contains(name), "{name} is in the document alone");
    }
    for place in quoted.iter().filter(|text| text.contains(" /")) {
        let path = place.split(' ').next_back().unwrap();
        let answer = whole(request("OPTIONS", engine.url() + path, Body::empty())).await;
        assert_eq!(answer.0, 405, "{place} exists, and has no OPTIONS");
    }
    let (_, failures) = get(&engine, "/mock/failures").await;
    let failures: Value = serde_json::from_str(&failures).unwrap();
    for name in failures.as_object().unwrap().keys() {
        assert!(quoted.contains(&name.as_str()), "{name} is not in the document");
    }
}
