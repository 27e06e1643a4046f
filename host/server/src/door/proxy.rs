//! One request, from its partition to a worker's answer: chosen, sent, tried elsewhere where a worker fails before the
//! first byte.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use pointsman_routing::Submission;
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::Span;

use super::body::DoorBody;
use super::caller::Caller;
use super::error::ApiError;
use super::headers::{for_worker, for_workers, strip_hop_by_hop};
use super::relay::{Relay, Watch};
use super::routing_fields::RoutingFields;
use super::{Door, Permit, PromptKind};
use crate::ops::trace;
use crate::pool::{Ask, Lease, Pool, decision_id};

/// Names the worker, the policy and the decision, where the client asks for it.
const DECISION: &str = "x-pointsman-decision";

/// A request for inference, read.
pub(super) struct Call<'a> {
    pub(super) kind: PromptKind,
    pub(super) caller: Arc<Caller>,
    pub(super) parts: Parts,
    /// The body as it came.
    pub(super) bytes: Bytes,
    pub(super) body: Value,
    /// The request's id here, unique.
    pub(super) own_id: &'a HeaderValue,
    /// The request's id for its client and for workers.
    pub(super) id: &'a HeaderValue,
}

/// How a worker failed before the first byte of its answer.
enum Failure {
    /// It could not be reached, or broke the connection.
    Broken { reason: String, unreachable: bool },
    /// It sent nothing in time.
    Late,
    /// It answered that it failed.
    Answered(Response<Incoming>),
}

/// The head of a worker's answer, and the first piece of its body.
struct Begun {
    head: http::response::Parts,
    first: Option<Frame<Bytes>>,
    rest: Incoming,
}

pub(super) async fn serve(door: &Door, call: Call<'_>, permit: Permit) -> Result<Response<DoorBody>, ApiError> {
    let Some(model) = call.body.get("model").and_then(Value::as_str).filter(|model| !model.is_empty()) else {
        return Err(ApiError::invalid("missing_model", "you must provide a model parameter").of("model"));
    };
    if !call.caller.may_use(model) {
        let message = format!("this key may not use the model `{model}`; ask for one that GET /v1/models lists");
        return Err(ApiError::new(StatusCode::FORBIDDEN, "model_not_allowed", message).of("model"));
    }
    let pool = door.fleet.pool(model, &call.caller.routing_group).ok_or_else(|| ApiError::unknown_model(model))?;
    let mut fields = RoutingFields::read(&call.parts.headers, &call.body)?;
    let submission = submission(door, &pool, &call, &mut fields).await;
    let prompt_tokens = submission.request.prompt.tokens;
    let mut headers = for_workers(&call.parts.headers, call.id, fields.names_worker);
    trace::pass_on(&Span::current(), &mut headers);

    let mut lease = pool.dispatch(submission).await.map_err(|error| ApiError::admission(&error, door.overload))?;
    let mut attempt = 0;
    loop {
        let failure = match send(door, &call, &headers, &lease).await {
            Ok(begun) => {
                return answer(door, &call, &fields, begun, lease, attempt, prompt_tokens, permit);
            }
            Err(failure) => failure,
        };
        let worker = lease.decision().worker;
        tracing::warn!(id = ?call.id, %worker, reason = failure.reason(), attempt, "a worker failed");
        if let Failure::Broken { unreachable: true, reason } = &failure {
            report_unreachable(door, worker.worker, reason);
        }
        if attempt == door.retries as usize {
            lease.abort(failure.reason());
            return Ok(failure.into_response(door, permit));
        }
        attempt += 1;
        match lease.retry().await {
            Ok(next) => lease = next,
            // There is nobody else: what went wrong first is what the client should know.
            Err(error) => {
                tracing::debug!(id = ?call.id, %error, "no other worker");
                return Ok(failure.into_response(door, permit));
            }
        }
    }
}

async fn submission(door: &Door, pool: &Pool, call: &Call<'_>, fields: &mut RoutingFields) -> Submission<Ask> {
    let prompt = pool.read(call.kind.input(&call.body)).await;
    let mut ask = Ask::new(prompt);
    fields.fill(&mut ask);
    ask.decision_id = decision_id(call.id.to_str().unwrap_or_default(), 0);
    ask.headers = door.granted.iter().filter_map(|name| granted(name, &call.parts.headers)).collect();
    Submission {
        request_id: call.own_id.to_str().unwrap_or_default().to_owned(),
        policy_class: fields.policy_class.take(),
        ingress_ms: door.fleet.clock().now_ms(),
        due_ms: None,
        request: ask,
    }
}

fn granted(name: &str, headers: &HeaderMap) -> Option<(String, String)> {
    Some((name.to_owned(), headers.get(name)?.to_str().ok()?.to_owned()))
}

/// Sends the request to its worker, and waits for the first byte of the answer.
async fn send(door: &Door, call: &Call<'_>, headers: &HeaderMap, lease: &Lease) -> Result<Begun, Failure> {
    let broken = |reason: String, unreachable| Failure::Broken { reason, unreachable };
    let row = lease.decision().worker;
    let worker = door.fleet.worker(row.worker).ok_or_else(|| broken("it has gone".to_owned(), false))?;
    let upstream = door.upstreams.of(&worker).map_err(|error| broken(error.to_string(), true))?;
    let path = call.parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let uri = upstream.uri(path).ok_or_else(|| broken("its endpoint is no URL".to_owned(), false))?;

    let mut request = Request::new(Full::new(call.bytes.clone()));
    *request.method_mut() = call.parts.method.clone();
    *request.uri_mut() = uri;
    *request.headers_mut() = headers.clone();
    let rank = (worker.spec.ranks() > 1).then_some(row.rank);
    for_worker(request.headers_mut(), worker.spec.upstream.forward_authorization, upstream.key.as_ref(), rank);

    let late = Instant::now() + door.timeouts.first_byte;
    let answered = tokio::time::timeout_at(late, upstream.client.request(request)).await.map_err(|_| Failure::Late)?;
    let response = answered.map_err(|error| broken(text(&error), error.is_connect()))?;
    if response.status().is_server_error() && response.status() != StatusCode::NOT_IMPLEMENTED {
        return Err(Failure::Answered(response));
    }
    let (head, mut rest) = response.into_parts();
    let first = tokio::time::timeout_at(late, rest.frame()).await.map_err(|_| Failure::Late)?;
    let first = first.transpose().map_err(|error| broken(text(&error), false))?;
    Ok(Begun { head, first, rest })
}

/// An error with its causes, which hyper's own text leaves out.
fn text(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[allow(clippy::too_many_arguments, reason = "all that is known of a request comes together here, once")]
fn answer(
    door: &Door,
    call: &Call<'_>,
    fields: &RoutingFields,
    begun: Begun,
    lease: Lease,
    attempt: usize,
    prompt_tokens: u64,
    permit: Permit,
) -> Result<Response<DoorBody>, ApiError> {
    let Begun { mut head, first, rest } = begun;
    if head.status.is_success() {
        lease.responding().map_err(|error| ApiError::admission(&error, door.overload))?;
    }
    strip_hop_by_hop(&mut head.headers);
    let worker = lease.decision().worker;
    if fields.explains
        && let Ok(value) = HeaderValue::try_from(explanation(&lease, call.id, attempt))
    {
        head.headers.insert(DECISION, value);
    }
    let content = |prefix: &str| {
        let value = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        value.is_some_and(|value| value.starts_with(prefix))
    };
    let streams = content("text/event-stream");
    let writable = (streams || content("application/json")) && !head.headers.contains_key(CONTENT_ENCODING);
    let insert = (fields.names_worker && writable && head.status.is_success()).then(|| {
        head.headers.remove(CONTENT_LENGTH);
        let id = json!({"decode_worker_id": worker.worker, "decode_dp_rank": worker.rank});
        format!("\"nvext\":{}", json!({ "worker_id": id }))
    });
    let watch = Some(Watch::new(lease, prompt_tokens));
    let relay = Relay::new(rest, first, watch, streams, insert, door.timeouts.idle, permit);
    Ok(relayed(head, relay))
}

fn relayed(mut head: http::response::Parts, relay: Relay) -> Response<DoorBody> {
    head.version = http::Version::HTTP_11;
    head.extensions = http::Extensions::new();
    Response::from_parts(head, DoorBody::Relay(Box::new(relay)))
}

/// Which worker serves the request, what chose it, and the decision's id.
fn explanation(lease: &Lease, id: &HeaderValue, attempt: usize) -> String {
    let versions = lease.partition().versions();
    let active = versions.first();
    let policy = active.map_or("default", |version| version.instance.as_str());
    let digests: Vec<String> = active
        .into_iter()
        .flat_map(|version| &version.artifacts)
        .filter_map(|artifact| artifact.digest.as_ref().map(ToString::to_string))
        .collect();
    let digest = if digests.is_empty() { "native".to_owned() } else { digests.join("+") };
    let worker = lease.decision().worker;
    let id = decision_id(id.to_str().unwrap_or_default(), attempt);
    let (outcome, fallback) = (lease.decision().outcome, lease.decision().fallback);
    format!(
        "worker={}; rank={}; policy={policy}; digest={digest}; outcome={outcome}; fallback={fallback}; id={id}",
        worker.worker, worker.rank
    )
}

/// Takes a worker that cannot be reached out of its partition, until its health is asked for again.
fn report_unreachable(door: &Door, worker: u64, reason: &str) {
    let (fleet, reason) = (Arc::clone(&door.fleet), format!("it cannot be reached: {reason}"));
    // The directory may be busy with a partition that is being built.
    tokio::task::spawn_blocking(move || fleet.set_health(worker, Some(&reason)));
}

impl Failure {
    fn reason(&self) -> String {
        match self {
            Self::Broken { reason, .. } => reason.clone(),
            Self::Late => "it sent no byte in time".to_owned(),
            Self::Answered(response) => format!("it answered {}", response.status()),
        }
    }

    fn into_response(self, door: &Door, permit: Permit) -> Response<DoorBody> {
        match self {
            Self::Broken { .. } => {
                let message = "the worker failed before it answered; send the request again";
                ApiError::new(StatusCode::BAD_GATEWAY, "worker_failed", message).response()
            }
            Self::Late => {
                let message = "the worker did not answer in time; send the request again";
                ApiError::new(StatusCode::GATEWAY_TIMEOUT, "worker_timeout", message).response()
            }
            // In the worker's own words.
            Self::Answered(response) => {
                let (mut head, body) = response.into_parts();
                strip_hop_by_hop(&mut head.headers);
                relayed(head, Relay::new(body, None, None, false, None, door.timeouts.idle, permit))
            }
        }
    }
}
