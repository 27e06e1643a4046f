//! The routes, and how calls and answers become HTTP.

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, FromRequest, FromRequestParts, Path, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, patch, post};
use axum::{Json, Router};
use http_body::Body as _;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::error::SelectError;
use super::service::{Mode, Service};
use super::wire::{
    Filter, LoadAnswer, OutputBlockBody, OverlapScoresAnswer, QueryBody, ReservationBody, SelectAnswer, SelectBody,
    check_fields, is_field, worker_answer,
};
use crate::fleet::{Worker, WorkerSpec};

/// The largest body.
const BODY_BYTES: usize = 8 << 20;
/// The header with the policy class that a caller asks for.
const POLICY_CLASS: &str = "x-dynamo-meta-policy-class";

type Shared = State<Arc<Service>>;
type Answer<T> = Result<T, SelectError>;

pub(super) fn routes(service: Arc<Service>) -> Router {
    Router::new()
        .route("/select", post(select))
        .route("/select_and_reserve", post(select_and_reserve))
        .route("/reservations", post(reserve))
        .route("/reservations/{selection_id}", delete(free))
        .route("/reservations/{selection_id}/prefill_complete", post(prefill_complete))
        .route("/reservations/{selection_id}/output_block", post(output_block))
        .route("/workers", get(workers).post(add_worker))
        .route("/workers/{worker_id}", patch(patch_worker).delete(remove_worker))
        .route("/potential_loads", post(potential_loads))
        .route("/overlap_scores", post(overlap_scores))
        .route("/loads", get(loads))
        .route("/dump", get(dump))
        .route("/health", get(health))
        .route("/ready", get(ready))
        .route("/replica_sync/register_peer", post(|| no_replicas("register_peer")))
        .route("/replica_sync/deregister_peer", post(|| no_replicas("deregister_peer")))
        .route("/replica_sync/peers", get(|| no_replicas("peers")))
        .fallback(async || SelectError::NoRoute)
        .method_not_allowed_fallback(async || SelectError::NoMethod)
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .with_state(service)
}

/// A JSON body; one that is none is told in JSON too.
struct Body<T>(T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = SelectError;

    async fn from_request(request: Request, state: &S) -> Answer<Self> {
        // One that says how long it is need not be read.
        if request.body().size_hint().lower() > BODY_BYTES as u64 {
            return Err(SelectError::TooLarge);
        }
        Ok(Self(Json::from_request(request, state).await?.0))
    }
}

/// A part of the path.
struct Named<T>(T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Named<T> {
    type Rejection = SelectError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<Self> {
        Ok(Self(Path::from_request_parts(parts, state).await?.0))
    }
}

/// The query.
struct Asked<T>(T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = SelectError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<Self> {
        Ok(Self(Query::from_request_parts(parts, state).await?.0))
    }
}

fn ok() -> Json<Value> {
    Json(json!({"status": "ok"}))
}

fn policy_class(headers: &HeaderMap) -> Option<String> {
    let class = headers.get(POLICY_CLASS)?.to_str().ok()?.trim();
    (!class.is_empty()).then(|| class.to_owned())
}

async fn select(
    State(service): Shared,
    headers: HeaderMap,
    Body(body): Body<SelectBody>,
) -> Answer<Json<SelectAnswer>> {
    let mode = if body.advisory { Mode::Advisory } else { Mode::Query };
    service.select(body, policy_class(&headers), mode).await.map(Json)
}

async fn select_and_reserve(
    State(service): Shared,
    headers: HeaderMap,
    Body(body): Body<SelectBody>,
) -> Answer<Json<SelectAnswer>> {
    service.select(body, policy_class(&headers), Mode::Book).await.map(Json)
}

async fn reserve(State(service): Shared, Body(body): Body<ReservationBody>) -> Answer<Response> {
    service.reserve(body).map(|answer| (StatusCode::CREATED, Json(answer)).into_response())
}

async fn free(State(service): Shared, Named(id): Named<String>) -> Answer<Json<Value>> {
    service.free(&id).map(|()| ok())
}

async fn prefill_complete(State(service): Shared, Named(id): Named<String>) -> Answer<Json<Value>> {
    service.prefill_complete(&id).map(|()| ok())
}

async fn output_block(
    State(service): Shared,
    Named(id): Named<String>,
    Body(body): Body<OutputBlockBody>,
) -> Answer<Json<Value>> {
    service.output_block(&id, body.decay_fraction).map(|()| ok())
}

async fn workers(State(service): Shared, Asked(filter): Asked<Filter>) -> Json<Vec<Value>> {
    let workers = service.fleet.workers();
    Json(workers.iter().filter(|worker| filter.takes(&worker.spec.key())).map(|worker| worker_answer(worker)).collect())
}

async fn add_worker(State(service): Shared, Body(mut spec): Body<WorkerSpec>) -> Answer<Response> {
    // How requests reach a worker, and with which secrets, is the operator's to say.
    (spec.upstream, spec.labels) = Default::default();
    spec.other.retain(|name, _| is_field(name));
    let worker = change(&service, move |service| Ok(service.fleet.upsert(spec)?)).await?;
    Ok((StatusCode::CREATED, Json(worker_answer(&worker))).into_response())
}

async fn patch_worker(
    State(service): Shared,
    Named(worker): Named<u64>,
    Body(mut fields): Body<Map<String, Value>>,
) -> Answer<Json<Value>> {
    fields.retain(|name, value| !value.is_null() && is_field(name));
    check_fields(&fields)?;
    if fields.contains_key("endpoint") {
        // The operator's secrets were for the endpoint before.
        let secrets = ["api_key_file", "forward_authorization"];
        fields.extend(secrets.map(|name| (name.to_owned(), Value::Null)));
    }
    let worker = change(&service, move |service| Ok(service.fleet.patch(worker, fields)?)).await?;
    Ok(Json(worker_answer(&worker)))
}

async fn remove_worker(State(service): Shared, Named(worker): Named<u64>) -> Answer<Json<Value>> {
    let worker = change(&service, move |service| Ok(service.fleet.remove(worker)?)).await?;
    Ok(Json(worker_answer(&worker)))
}

/// Changes the directory, away from the threads of the runtime: a policy may have to be compiled.
async fn change(
    service: &Arc<Service>,
    change: impl FnOnce(&Service) -> Answer<Arc<Worker>> + Send + 'static,
) -> Answer<Arc<Worker>> {
    let service = Arc::clone(service);
    tokio::task::spawn_blocking(move || change(&service)).await.unwrap_or(Err(SelectError::Shutdown))
}

async fn potential_loads(State(service): Shared, Body(body): Body<QueryBody>) -> Answer<Json<Vec<LoadAnswer>>> {
    service.potential_loads(body).map(Json)
}

async fn overlap_scores(State(service): Shared, Body(body): Body<QueryBody>) -> Answer<Json<OverlapScoresAnswer>> {
    service.overlap_scores(body).map(Json)
}

async fn loads(State(service): Shared, Asked(filter): Asked<Filter>) -> Response {
    Json(service.loads(&filter)).into_response()
}

async fn dump(State(service): Shared) -> Json<Value> {
    Json(service.dump())
}

async fn health() -> Json<Value> {
    ok()
}

async fn ready(State(service): Shared) -> Response {
    let (workers, schedulable) = (service.fleet.workers(), service.fleet.schedulable());
    let status = if schedulable > 0 { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let workers: Vec<_> = workers.iter().map(|worker| worker_answer(worker)).collect();
    let body = json!({"ready": schedulable > 0, "schedulable_workers": schedulable, "workers": workers});
    (status, Json(body)).into_response()
}

async fn no_replicas(call: &'static str) -> SelectError {
    SelectError::NoReplicas(call)
}
