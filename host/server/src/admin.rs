//! The operator's view, on an address of its own: workers, the versions of policies, health.

use std::sync::Arc;

use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use pointsman_routing::{Activation, RouterError, VersionStatus};
use serde_json::{Map, Value, json};

use crate::door::Door;
use crate::fleet::{Fleet, FleetError, Worker, WorkerSpec, WorkerState};
use crate::ops::metrics::{self, Metrics};
use crate::upstream::Upstreams;

/// What the operator's view looks at.
#[derive(Clone)]
struct View {
    fleet: Arc<Fleet>,
    door: Arc<Door>,
    upstreams: Arc<Upstreams>,
}

pub(crate) fn routes(fleet: Arc<Fleet>, door: Arc<Door>, upstreams: Arc<Upstreams>, metrics: Metrics) -> Router {
    Router::new()
        .route("/healthz", get(async || Json(json!({"status": "ok"}))))
        .route("/readyz", get(ready))
        .route("/workers", get(workers).post(add))
        .route("/workers/{worker}", get(worker).patch(patch).delete(remove))
        .route("/workers/{worker}/drain", post(drain))
        .route("/metrics", get(async move || ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics.text())))
        .route("/versions", get(versions))
        .route("/versions/roll_back", post(roll_back))
        .with_state(View { fleet, door, upstreams })
}

/// Why the operator's wish is not done.
struct Refused(StatusCode, String);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.0, Json(json!({"error": {"message": self.1}}))).into_response()
    }
}

impl From<FleetError> for Refused {
    fn from(error: FleetError) -> Self {
        let status = match error {
            FleetError::NotFound(_) => StatusCode::NOT_FOUND,
            FleetError::Invalid { .. } => StatusCode::BAD_REQUEST,
        };
        Self(status, error.to_string())
    }
}

/// Takes over what the framework says of a request that it cannot read.
macro_rules! from_rejection {
    ($($rejection:ty),*) => {$(
        impl From<$rejection> for Refused {
            fn from(rejection: $rejection) -> Self {
                Self(StatusCode::BAD_REQUEST, rejection.body_text())
            }
        }
    )*};
}

from_rejection!(JsonRejection, PathRejection);

type Body<T> = Result<Json<T>, JsonRejection>;
type Named<T> = Result<Path<T>, PathRejection>;

/// Refuses fields that a worker does not have.
fn check_fields(spec: &WorkerSpec) -> Result<(), Refused> {
    let Some(name) = spec.other.keys().next() else { return Ok(()) };
    Err(Refused(StatusCode::BAD_REQUEST, format!("unknown field `{name}` of a worker; remove it")))
}

async fn ready(State(view): State<View>) -> Response {
    let ready = view.door.is_ready();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(json!({"ready": ready, "schedulable_workers": view.fleet.schedulable()}))).into_response()
}

async fn workers(State(view): State<View>) -> Json<Value> {
    Json(json!({ "workers": view.fleet.workers() }))
}

async fn worker(State(view): State<View>, worker: Named<u64>) -> Result<Json<Worker>, Refused> {
    let Path(worker) = worker?;
    let found = view.fleet.worker(worker).ok_or(FleetError::NotFound(worker))?;
    Ok(Json((*found).clone()))
}

async fn add(State(view): State<View>, spec: Body<WorkerSpec>) -> Result<(StatusCode, Json<Worker>), Refused> {
    let Json(spec) = spec?;
    check_fields(&spec)?;
    change(view, move |fleet| fleet.upsert(spec)).await.map(|worker| (StatusCode::CREATED, worker))
}

async fn patch(
    State(view): State<View>,
    worker: Named<u64>,
    fields: Body<Map<String, Value>>,
) -> Result<Json<Worker>, Refused> {
    let (Path(worker), Json(fields)) = (worker?, fields?);
    // What is taken back is of no type.
    let mut told: Map<String, Value> = fields.clone().into_iter().filter(|(_, value)| !value.is_null()).collect();
    told.entry("worker_id").or_insert_with(|| worker.into());
    let told = serde_json::from_value(Value::Object(told));
    check_fields(&told.map_err(|error| Refused(StatusCode::BAD_REQUEST, format!("{error}; correct the field")))?)?;
    change(view, move |fleet| fleet.patch(worker, fields)).await
}

async fn drain(State(view): State<View>, worker: Named<u64>) -> Result<Json<Worker>, Refused> {
    let Path(worker) = worker?;
    change(view, move |fleet| fleet.drain(worker)).await
}

async fn remove(State(view): State<View>, worker: Named<u64>) -> Result<Json<Worker>, Refused> {
    let Path(worker) = worker?;
    change(view, move |fleet| fleet.remove(worker)).await
}

/// Changes the directory where it may take its time. A worker that cannot be spoken to gets no requests, and says why.
async fn change(
    view: View,
    change: impl FnOnce(&Fleet) -> Result<Arc<Worker>, FleetError> + Send + 'static,
) -> Result<Json<Worker>, Refused> {
    let changed = tokio::task::spawn_blocking(move || {
        let worker = change(&view.fleet)?;
        if worker.lifecycle == WorkerState::Schedulable
            && let Err(error) = view.upstreams.of(&worker)
        {
            view.fleet.set_health(worker.spec.worker_id, Some(&error.to_string()));
            return Ok(view.fleet.worker(worker.spec.worker_id).unwrap_or(worker));
        }
        Ok::<_, FleetError>(worker)
    });
    Ok(Json((*changed.await.map_err(internal)??).clone()))
}

async fn versions(State(view): State<View>) -> Json<Value> {
    let router = view.fleet.router();
    let versions: Vec<Value> = router.versions().iter().map(version).collect();
    Json(json!({"generation": router.generation(), "versions": versions}))
}

async fn roll_back(State(view): State<View>) -> Result<Json<Value>, Refused> {
    let fleet = view.fleet;
    let rolled = tokio::task::spawn_blocking(move || {
        let activation = fleet.router().roll_back(fleet.clock().now_ms())?;
        fleet.activated(&activation)?;
        Ok::<_, RouterError>(activation)
    });
    let rolled = rolled.await.map_err(internal)?;
    let activation = rolled.map_err(|error| Refused(StatusCode::CONFLICT, error.to_string()))?;
    let Activation { generation, changed, needs_restart, .. } = activation;
    let changed: Vec<Value> = changed.iter().map(partition).collect();
    Ok(Json(json!({"generation": generation, "changed": changed, "needs_restart": needs_restart})))
}

fn internal(error: tokio::task::JoinError) -> Refused {
    Refused(StatusCode::INTERNAL_SERVER_ERROR, format!("the change did not end: {error}"))
}

fn partition(key: &pointsman_routing::PartitionKey) -> Value {
    json!({"model_name": key.model, "routing_group": key.routing_group, "role": key.role.to_string()})
}

fn version(version: &VersionStatus) -> Value {
    let artifacts: Vec<Value> = version
        .artifacts
        .iter()
        .map(|artifact| {
            json!({
                "instance": artifact.instance,
                "digest": artifact.digest,
                "breaker": artifact.breaker.as_str(),
                "quarantines": artifact.quarantines,
                "guests_replaced": artifact.guests_replaced,
            })
        })
        .collect();
    json!({
        "partition": partition(&version.partition),
        "instance": version.instance,
        "artifacts": artifacts,
        "generation": version.generation,
        "activated_ms": version.activated_ms,
        "active": version.active,
    })
}
