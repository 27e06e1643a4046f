//! The front door: OpenAI's API, proxied to the workers that policies choose.

mod body;
mod caller;
mod error;
mod headers;
mod proxy;
mod relay;
mod routing_fields;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use pointsman_admission::OverloadStatus;
use pointsman_signals::PromptInput;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::field::Empty;
use tracing::{Instrument, Span};

use body::Counted;
pub(crate) use body::DoorBody;
use caller::{Caller, Callers};
use error::ApiError;
pub(crate) use error::details;
use headers::REQUEST_ID;
use proxy::Call;

use crate::config::{DoorLimits, ServerConfig, Timeouts};
use crate::fleet::Fleet;
use crate::ops::{Metrics, trace};
use crate::upstream::Upstreams;

/// A request's place among those that are served at a time; given back when its answer has ended.
pub(crate) type Permit = Option<OwnedSemaphorePermit>;

/// The front door's state, shared by its connections.
pub(crate) struct Door {
    fleet: Arc<Fleet>,
    upstreams: Arc<Upstreams>,
    callers: Callers,
    limits: DoorLimits,
    timeouts: Timeouts,
    retries: u32,
    overload: OverloadStatus,
    permits: Arc<Semaphore>,
    /// The headers that policies may read.
    granted: Vec<String>,
    ids: RequestIds,
    draining: AtomicBool,
    metrics: Metrics,
}

/// Where a request's body has its prompt.
#[derive(Clone, Copy)]
enum PromptKind {
    Chat,
    Completion,
    Embedding,
}

impl PromptKind {
    fn input(self, body: &Value) -> PromptInput {
        match self {
            Self::Chat => PromptInput::of_chat(body),
            Self::Completion => PromptInput::of_completion(body),
            Self::Embedding => PromptInput::of_embedding(body),
        }
    }
}

/// What a path is.
enum Route {
    Infer(PromptKind),
    Models,
    Model(String),
    Health,
    Ready,
}

impl Route {
    fn of(path: &str) -> Option<Self> {
        Some(match path {
            "/v1/chat/completions" => Self::Infer(PromptKind::Chat),
            "/v1/completions" => Self::Infer(PromptKind::Completion),
            "/v1/embeddings" => Self::Infer(PromptKind::Embedding),
            "/v1/models" => Self::Models,
            "/healthz" => Self::Health,
            "/readyz" => Self::Ready,
            other => Self::Model(other.strip_prefix("/v1/models/")?.to_owned()),
        })
    }

    /// The route in metrics and traces.
    const fn name(&self) -> &'static str {
        match self {
            Self::Infer(PromptKind::Chat) => "/v1/chat/completions",
            Self::Infer(PromptKind::Completion) => "/v1/completions",
            Self::Infer(PromptKind::Embedding) => "/v1/embeddings",
            Self::Models | Self::Model(_) => "/v1/models",
            Self::Health => "/healthz",
            Self::Ready => "/readyz",
        }
    }

    const fn method(&self) -> (Method, &'static str) {
        match self {
            Self::Infer(_) => (Method::POST, "POST"),
            Self::Models | Self::Model(_) | Self::Health | Self::Ready => (Method::GET, "GET"),
        }
    }
}

impl Door {
    pub(crate) fn new(
        config: &ServerConfig,
        fleet: Arc<Fleet>,
        upstreams: Arc<Upstreams>,
        overload: OverloadStatus,
        metrics: Metrics,
    ) -> Self {
        Self {
            fleet,
            upstreams,
            callers: Callers::new(config),
            limits: config.limits,
            timeouts: config.timeouts,
            retries: config.retries,
            overload,
            permits: Arc::new(Semaphore::new(config.limits.concurrent_requests as usize)),
            granted: config.headers.clone(),
            ids: RequestIds::new(),
            draining: AtomicBool::new(false),
            metrics,
        }
    }

    /// From now on the door says that it is not ready.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Whether a request may be served.
    pub(crate) fn is_ready(&self) -> bool {
        !self.draining.load(Ordering::Relaxed) && self.fleet.schedulable() > 0
    }

    /// Answers one request.
    pub(crate) async fn handle(&self, request: Request<Incoming>, peer: SocketAddr) -> Response<Counted> {
        let own = self.ids.next();
        let id = request.headers().get(REQUEST_ID).filter(|id| id.len() <= 128).cloned().unwrap_or_else(|| own.clone());
        let route = Route::of(request.uri().path());
        let name = route.as_ref().map_or("none", Route::name);
        let mut in_flight = self.metrics.request(name);
        let span = tracing::info_span!(
            "request",
            id = id.to_str().unwrap_or_default(),
            route = name,
            tenant = Empty,
            status = Empty
        );
        trace::continue_from(&span, request.headers());
        let answered = self.answer(route, request, peer.ip(), &own, &id).instrument(span.clone()).await;
        let mut response = answered.unwrap_or_else(|error| {
            tracing::debug!(?id, status = error.status.as_u16(), code = error.code, error.message, "refused");
            error.response()
        });
        response.headers_mut().insert(REQUEST_ID, id);
        let status = response.status().as_u16();
        in_flight.answered(status);
        span.record("status", status);
        response.map(|body| Counted { body, _in_flight: in_flight, span })
    }

    async fn answer(
        &self,
        route: Option<Route>,
        request: Request<Incoming>,
        peer: IpAddr,
        own_id: &HeaderValue,
        id: &HeaderValue,
    ) -> Result<Response<DoorBody>, ApiError> {
        let route = route.ok_or_else(|| ApiError::not_found(request.uri().path()))?;
        let (method, name) = route.method();
        if *request.method() != method {
            return Err(ApiError::method(name));
        }
        match route {
            Route::Health => Ok(answer(StatusCode::OK, &json!({"status": "ok"}))),
            Route::Ready => Ok(self.readiness()),
            Route::Models => self.caller(request.headers(), peer).map(|caller| self.models(&caller)),
            Route::Model(model) => {
                let caller = self.caller(request.headers(), peer)?;
                match self.fleet.models(&caller.routing_group).contains(&model) && caller.may_use(&model) {
                    true => Ok(answer(StatusCode::OK, &described(&model))),
                    false => Err(ApiError::unknown_model(&model)),
                }
            }
            Route::Infer(kind) => {
                let caller = self.caller(request.headers(), peer)?;
                let permit = Arc::clone(&self.permits).try_acquire_owned();
                let permit = permit.map_err(|_| ApiError::shed(self.overload))?;
                let (parts, body) = request.into_parts();
                let bytes = self.read(body).await?;
                let body = parse(&bytes)?;
                let call = Call { kind, caller, parts, bytes, body, own_id, id };
                proxy::serve(self, call, Some(permit)).await
            }
        }
    }

    /// Who asks, told to the log and the trace.
    fn caller(&self, headers: &http::HeaderMap, peer: IpAddr) -> Result<Arc<Caller>, ApiError> {
        let caller = self.callers.of(headers, peer)?;
        Span::current().record("tenant", &*caller.tenant);
        Ok(caller)
    }

    fn readiness(&self) -> Response<DoorBody> {
        let ready = self.is_ready();
        let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        answer(status, &json!({"ready": ready, "schedulable_workers": self.fleet.schedulable()}))
    }

    fn models(&self, caller: &Caller) -> Response<DoorBody> {
        let models = self.fleet.models(&caller.routing_group);
        let data: Vec<Value> =
            models.iter().filter(|model| caller.may_use(model)).map(|model| described(model)).collect();
        answer(StatusCode::OK, &json!({"object": "list", "data": data}))
    }

    /// The whole body of a request.
    async fn read(&self, body: Incoming) -> Result<Bytes, ApiError> {
        let most = self.limits.body_bytes;
        let too_large = || {
            let message = format!("the body is longer than {most} bytes; send a shorter one");
            ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message)
        };
        if body.size_hint().lower() > most {
            return Err(too_large());
        }
        let collected = Limited::new(body, usize::try_from(most).unwrap_or(usize::MAX)).collect();
        match tokio::time::timeout(self.timeouts.body, collected).await {
            Ok(Ok(collected)) => Ok(collected.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
            Ok(Err(error)) => Err(ApiError::invalid("incomplete_body", format!("the body cannot be read: {error}"))),
            Err(_) => {
                let message = "the body did not come in time; send it faster or in a shorter request";
                Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", message))
            }
        }
    }
}

fn parse(bytes: &Bytes) -> Result<Value, ApiError> {
    match serde_json::from_slice(bytes) {
        Ok(body @ Value::Object(_)) => Ok(body),
        Ok(_) => Err(ApiError::invalid("invalid_json", "the body is no JSON object; send one with a field `model`")),
        Err(error) => {
            let message = format!("the body is not JSON ({error}); send an object with a field `model`");
            Err(ApiError::invalid("invalid_json", message))
        }
    }
}

fn described(model: &str) -> Value {
    json!({"id": model, "object": "model", "created": 0, "owned_by": "pointsman"})
}

fn answer(status: StatusCode, body: &Value) -> Response<DoorBody> {
    let mut response = Response::new(DoorBody::full(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Numbers requests; no two servers' ids are alike.
struct RequestIds {
    prefix: String,
    next: AtomicU64,
}

impl RequestIds {
    fn new() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { prefix: format!("{:x}-{:x}", since.as_nanos(), std::process::id()), next: AtomicU64::new(1) }
    }

    fn next(&self) -> HeaderValue {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        HeaderValue::try_from(format!("{}-{number}", self.prefix)).unwrap_or_else(|_| number.into())
    }
}
