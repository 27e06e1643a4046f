//! `/v1/embeddings`: a vector of unit length for each input, which its tokens alone decide.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use pointsman_signals::PromptInput;
use serde_json::{Value, json};

use super::answer::Answer;
use super::app::App;
use super::error::ApiError;
use super::inference::{Inference, signed};

const DIMENSIONS: u64 = 8;
const MAX_DIMENSIONS: u64 = 8_192;

/// `POST /v1/embeddings`.
pub(crate) async fn embed(State(app): State<Arc<App>>, request: Inference) -> Result<Response, ApiError> {
    let dimensions = match request.body.get("dimensions") {
        None | Some(Value::Null) => DIMENSIONS,
        Some(given) => given.as_u64().filter(|given| (1..=MAX_DIMENSIONS).contains(given)).ok_or_else(|| {
            ApiError::invalid(format!("`dimensions` is {given}; give a whole number from 1 to {MAX_DIMENSIONS}"))
        })?,
    };
    let base64 = request.body.get("encoding_format").and_then(Value::as_str) == Some("base64");
    let (number, rank) = app.rank(&request.headers)?;
    let mut answers = Vec::new();
    for input in inputs(&request.body)? {
        let prompt = app.reader().token_ids(&input).into_owned();
        if prompt.is_empty() {
            return Err(ApiError::invalid("an input is empty; give each at least one token".to_owned()));
        }
        let vector = vector(&prompt, dimensions);
        let tokens = prompt.len() as u32;
        let outputs = app.submit(rank, prompt, 0)?;
        answers.push((Answer::new(outputs, tokens, request.connection.clone(), request.failures), vector));
    }
    let (mut data, mut tokens) = (Vec::new(), 0);
    for (mut answer, vector) in answers {
        while answer.next().await.is_some() {}
        tokens += answer.prompt_tokens;
        let embedding = if base64 { encode(&vector) } else { json!(vector) };
        data.push(json!({"object": "embedding", "index": data.len(), "embedding": embedding}));
    }
    let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens});
    let reply = json!({"object": "list", "data": data, "model": app.config().model, "usage": usage});
    Ok(signed(Json(reply).into_response(), &app, number))
}

/// One input, or each of a list.
fn inputs(body: &Value) -> Result<Vec<PromptInput>, ApiError> {
    let one = |input: &Value| PromptInput::of_embedding(&json!({"input": input}));
    match body.get("input") {
        Some(input @ Value::String(_)) => Ok(vec![one(input)]),
        Some(Value::Array(items)) if !items.is_empty() => {
            let ids = items.iter().all(Value::is_u64);
            Ok(if ids { vec![one(&json!(items))] } else { items.iter().map(one).collect() })
        }
        _ => Err(ApiError::invalid("the body has no input; set `input` to a string or to a list of them".to_owned())),
    }
}

fn vector(tokens: &[u32], dimensions: u64) -> Vec<f32> {
    let coordinate = |dimension: u64| {
        let mut hasher = DefaultHasher::new();
        (tokens, dimension).hash(&mut hasher);
        (hasher.finish() >> 40) as f32 / (1_u32 << 23) as f32 - 1.0
    };
    let raw: Vec<f32> = (0..dimensions).map(coordinate).collect();
    let length = raw.iter().map(|value| value * value).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
    raw.into_iter().map(|value| value / length).collect()
}

/// Little-endian 32-bit floats in base64.
fn encode(vector: &[f32]) -> Value {
    let bytes: Vec<u8> = vector.iter().flat_map(|value| value.to_le_bytes()).collect();
    Value::String(base64::encode(bytes))
}
