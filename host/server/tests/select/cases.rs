//! Reads and plays `cases.json`: calls of a selection service, and what they answer. It knows no HTTP client, so that
//! Dynamo's own service can be asked the same.
//!
//! In a body `"@3..5"` stands for the numbers 3 and 4, and `"%9"` for nine letters. In an answer `"*"` stands for anything,
//! `"#"` for a number and `"$"` for a text; an object has these fields and no others.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// What is asked of a service.
pub struct Call {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Option<String>,
}

/// Every case.
pub fn all() -> Vec<Value> {
    serde_json::from_str(include_str!("cases.json")).unwrap()
}

/// Plays a case; `ask` answers a call with status and JSON.
pub async fn play(case: &Value, ask: impl AsyncFn(Call) -> (u16, Value)) {
    let name = &case["name"];
    for worker in case["workers"].as_array().into_iter().flatten() {
        let (status, answer) = ask(call("POST /workers", &json!({"body": worker}))).await;
        assert_eq!(status, 201, "{name}: {answer}");
        ready(worker, &ask).await;
    }
    for step in case["steps"].as_array().unwrap() {
        let started = Instant::now();
        loop {
            let (status, answer) = ask(call(step["call"].as_str().unwrap(), step)).await;
            if status == step["status"] && matches(&step["answer"], &sorted(answer.clone())) {
                break;
            }
            let waits = step["soon"] == true && started.elapsed() < Duration::from_secs(30);
            assert!(waits, "{name}: {} {} answers {status} {answer}", step["call"], step["body"]);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Waits until every rank of a worker may be chosen: Dynamo's partitions hear of it a moment later.
async fn ready(worker: &Value, ask: &impl AsyncFn(Call) -> (u16, Value)) {
    let started = Instant::now();
    loop {
        let (_, loads) = ask(call("GET /loads", &json!({}))).await;
        let mut rows = loads.as_array().unwrap().iter().flat_map(|partition| partition["loads"].as_array().unwrap());
        if rows.any(|row| row["worker_id"] == worker["worker_id"]) {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(30), "{worker} is never known");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn call(line: &str, step: &Value) -> Call {
    let (method, path) = line.split_once(' ').unwrap();
    let mut headers: Vec<(String, String)> = step["headers"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
        .collect();
    let body = match (step.get("body"), step.get("text")) {
        (Some(body), _) => Some(expanded(body).to_string()),
        (None, Some(text)) => text.as_str().map(str::to_owned),
        (None, None) => None,
    };
    if body.is_some() && !headers.iter().any(|(name, _)| name == "content-type") {
        headers.push(("content-type".to_owned(), "application/json".to_owned()));
    }
    Call { method: method.to_owned(), path: path.to_owned(), headers, body }
}

fn expanded(value: &Value) -> Value {
    match value {
        Value::String(text) => {
            let range = text.strip_prefix('@').and_then(|range| range.split_once(".."));
            if let Some((from, to)) = range {
                return (from.parse::<u64>().unwrap()..to.parse().unwrap()).collect();
            }
            match text.strip_prefix('%') {
                Some(letters) => json!("x".repeat(letters.parse().unwrap())),
                None => value.clone(),
            }
        }
        Value::Array(items) => items.iter().map(expanded).collect(),
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), expanded(value))).collect(),
        other => other.clone(),
    }
}

fn matches(expected: &Value, found: &Value) -> bool {
    match (expected, found) {
        (Value::String(any), _) if any == "*" => true,
        (Value::String(number), _) if number == "#" => found.is_number(),
        (Value::String(text), _) if text == "$" => found.is_string(),
        (Value::Array(expected), Value::Array(found)) => {
            expected.len() == found.len()
                && expected.iter().zip(found).all(|(expected, found)| matches(expected, found))
        }
        (Value::Object(expected), Value::Object(found)) => {
            expected.len() == found.len()
                && expected.iter().all(|(name, value)| found.get(name).is_some_and(|found| matches(value, found)))
        }
        _ => expected == found,
    }
}

/// Rows of workers in order; Dynamo has them in that of a hash map.
pub fn sorted(value: Value) -> Value {
    match value {
        Value::Array(items) => {
            let mut items: Vec<_> = items.into_iter().map(sorted).collect();
            items.sort_by_key(|item| (item["worker_id"].as_u64(), item["dp_rank"].as_u64()));
            Value::Array(items)
        }
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, sorted(value))).collect(),
        other => other,
    }
}
