//! `/v1/chat/completions` and `/v1/completions`, streaming and not.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use pointsman_signals::PromptInput;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::answer::Answer;
use super::app::App;
use super::error::ApiError;
use super::inference::{Inference, signed};
use crate::text;

/// The fields that are read; the others change nothing.
#[derive(Debug, Deserialize)]
struct Options {
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
    #[serde(default)]
    max_tokens: Option<u32>,
    #[serde(default)]
    max_completion_tokens: Option<u32>,
    #[serde(default)]
    n: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Chat,
    Text,
}

/// The parts of an answer that do not change while it streams.
#[derive(Debug)]
struct Head {
    kind: Kind,
    id: String,
    created: u64,
    model: String,
    fingerprint: String,
    /// Why it will end.
    finish: &'static str,
    include_usage: bool,
}

#[derive(Serialize)]
struct Reply<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    system_fingerprint: &'a str,
    choices: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Value>,
}

/// `POST /v1/chat/completions`.
pub(crate) async fn chat(State(app): State<Arc<App>>, request: Inference) -> Result<Response, ApiError> {
    if request.body.get("messages").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        return Err(ApiError::invalid("the body has no messages; set `messages` to a list of at least one".to_owned()));
    }
    let input = PromptInput::of_chat(&request.body);
    complete(&app, request, Kind::Chat, &input).await
}

/// `POST /v1/completions`.
pub(crate) async fn text(State(app): State<Arc<App>>, request: Inference) -> Result<Response, ApiError> {
    let one = match request.body.get("prompt") {
        Some(Value::String(_)) => true,
        Some(Value::Array(items)) => items.len() == 1 || items.iter().all(Value::is_u64),
        _ => false,
    };
    if !one {
        let message = "the body needs one prompt; set `prompt` to a string or to a list of token ids";
        return Err(ApiError::invalid(message.to_owned()));
    }
    let input = PromptInput::of_completion(&request.body);
    complete(&app, request, Kind::Text, &input).await
}

async fn complete(app: &App, request: Inference, kind: Kind, input: &PromptInput) -> Result<Response, ApiError> {
    let options = Options::deserialize(&request.body)
        .map_err(|error| ApiError::invalid(format!("the body has a field of the wrong type: {error}")))?;
    if options.n.is_some_and(|n| n != 1) {
        return Err(ApiError::invalid(
            "the simulated engine makes one choice; leave `n` out or set it to 1".to_owned(),
        ));
    }
    let limit = options.max_completion_tokens.or(options.max_tokens);
    let max_tokens = limit.unwrap_or(app.config().default_max_tokens);
    if max_tokens == 0 {
        return Err(ApiError::invalid("the answer may have no token; set `max_tokens` to at least 1".to_owned()));
    }
    let prompt = match app.reader().token_ids(input).into_owned() {
        empty if empty.is_empty() => vec![0],
        prompt => prompt,
    };
    let (number, rank) = app.rank(&request.headers)?;
    let prompt_tokens = prompt.len() as u32;
    let outputs = app.submit(rank, prompt, max_tokens)?;
    let answer = Answer::new(outputs, prompt_tokens, request.connection, request.failures);
    let prefix = if kind == Kind::Chat { "chatcmpl" } else { "cmpl" };
    let head = Head {
        kind,
        id: format!("{prefix}-{}-{}", app.config().name, app.request_number()),
        created: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        model: app.config().model.clone(),
        fingerprint: app.config().name.clone(),
        finish: if limit.is_some() { "length" } else { "stop" },
        include_usage: options.stream_options.and_then(|options| options.include_usage).unwrap_or(false),
    };
    let response = if options.stream.unwrap_or(false) { streamed(head, answer) } else { whole(&head, answer).await };
    Ok(signed(response, app, number))
}

async fn whole(head: &Head, mut answer: Answer) -> Response {
    let mut content = String::new();
    while let Some(token) = answer.next().await {
        text::push(&mut content, token);
    }
    let mut choice = match head.kind {
        Kind::Chat => json!({"index": 0, "message": {"role": "assistant", "content": content}}),
        Kind::Text => json!({"index": 0, "text": content}),
    };
    finish(&mut choice, Some(head.finish));
    let object = if head.kind == Kind::Chat { "chat.completion" } else { "text_completion" };
    Json(head.reply(object, vec![choice], Some(usage(&answer)))).into_response()
}

fn finish(choice: &mut Value, reason: Option<&str>) {
    if let Value::Object(choice) = choice {
        choice.insert("logprobs".to_owned(), Value::Null);
        choice.insert("finish_reason".to_owned(), json!(reason));
    }
}

fn usage(answer: &Answer) -> Value {
    json!({
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.tokens,
        "total_tokens": answer.prompt_tokens + answer.tokens,
        "prompt_tokens_details": {"cached_tokens": answer.cached_tokens},
    })
}

impl Head {
    fn reply(&self, object: &'static str, choices: Vec<Value>, usage: Option<Value>) -> Reply<'_> {
        Reply {
            id: &self.id,
            object,
            created: self.created,
            model: &self.model,
            system_fingerprint: &self.fingerprint,
            choices,
            usage,
        }
    }

    /// One server-sent event with a chunk of the answer.
    fn chunk(&self, choices: Vec<Value>, usage: Option<Value>) -> String {
        let object = if self.kind == Kind::Chat { "chat.completion.chunk" } else { "text_completion" };
        // Where usage is asked for, every chunk has the field.
        let usage = usage.or(self.include_usage.then_some(Value::Null));
        let chunk = serde_json::to_string(&self.reply(object, choices, usage)).unwrap_or_default();
        format!("data: {chunk}\n\n")
    }

    fn piece(&self, content: &str, reason: Option<&str>) -> String {
        let mut choice = match self.kind {
            Kind::Chat if reason.is_some() => json!({"index": 0, "delta": {}}),
            Kind::Chat => json!({"index": 0, "delta": {"content": content}}),
            Kind::Text => json!({"index": 0, "text": content}),
        };
        finish(&mut choice, reason);
        self.chunk(vec![choice], None)
    }

    fn beginning(&self) -> String {
        let mut choice = json!({"index": 0, "delta": {"role": "assistant", "content": ""}});
        finish(&mut choice, None);
        self.chunk(vec![choice], None)
    }

    fn end(&self, answer: &Answer) -> String {
        let mut end = self.piece("", Some(self.finish));
        if self.include_usage {
            end += &self.chunk(Vec::new(), Some(usage(answer)));
        }
        end + "data: [DONE]\n\n"
    }
}

/// How far a stream has come.
enum Stage {
    Beginning,
    Tokens,
    Ended,
}

fn streamed(head: Head, answer: Answer) -> Response {
    let stage = if head.kind == Kind::Chat { Stage::Beginning } else { Stage::Tokens };
    let events = stream::unfold((stage, head, answer), async |(stage, head, mut answer)| {
        let (event, stage) = match stage {
            Stage::Beginning => (head.beginning(), Stage::Tokens),
            Stage::Tokens => match answer.next().await {
                Some(token) => {
                    let mut content = String::new();
                    text::push(&mut content, token);
                    (head.piece(&content, None), Stage::Tokens)
                }
                None => (head.end(&answer), Stage::Ended),
            },
            Stage::Ended => return None,
        };
        Some((Ok::<_, Infallible>(Bytes::from(event)), (stage, head, answer)))
    });
    let headers = [(CONTENT_TYPE, "text/event-stream; charset=utf-8"), (CACHE_CONTROL, "no-cache")];
    (headers, Body::from_stream(events)).into_response()
}
