//! Controls for tests that run the engine as a process: `/mock/failures` and `/mock/clear-cache`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;

use super::app::App;
use super::error::ApiError;
use crate::failures::Failures;

pub(crate) fn router() -> Router<Arc<App>> {
    Router::new().route("/mock/failures", get(failures).put(set_failures)).route("/mock/clear-cache", post(clear_cache))
}

async fn failures(State(app): State<Arc<App>>) -> Json<Failures> {
    Json(app.failures())
}

async fn set_failures(State(app): State<Arc<App>>, body: Bytes) -> Result<Json<Failures>, ApiError> {
    let failures: Failures = serde_json::from_slice(&body)
        .map_err(|error| ApiError::invalid(format!("the body is no set of failures: {error}")))?;
    app.set_failures(failures);
    Ok(Json(failures))
}

async fn clear_cache(State(app): State<Arc<App>>) -> StatusCode {
    app.clear_cache();
    StatusCode::NO_CONTENT
}
