//! The HTTP API: OpenAI's endpoints, `/health`, `/metrics` and, where they are wanted, the controls.

mod answer;
mod app;
mod completions;
mod control;
mod embeddings;
mod error;
mod inference;
mod metrics;

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

pub(crate) use self::app::App;
use self::error::ApiError;
pub use self::inference::Received;

const MAX_BODY_BYTES: usize = 64 << 20;

pub(crate) fn router(app: &Arc<App>) -> Router {
    let mut router = Router::new()
        .route("/v1/chat/completions", post(completions::chat))
        .route("/v1/completions", post(completions::text))
        .route("/v1/embeddings", post(embeddings::embed))
        .route("/v1/models", get(models))
        .route("/health", get(health))
        .route("/metrics", get(metrics::metrics));
    if app.config().control {
        router = router.merge(control::router());
    }
    let unknown = async || ApiError::not_found("there is no such path here; the API is OpenAI's, under /v1".to_owned());
    router.fallback(unknown).layer(DefaultBodyLimit::max(MAX_BODY_BYTES)).with_state(Arc::clone(app))
}

async fn models(State(app): State<Arc<App>>) -> Json<Value> {
    let config = app.config();
    let model = json!({
        "id": config.model, "object": "model", "created": 0, "owned_by": "pointsman", "max_model_len": config.max_model_len
    });
    Json(json!({"object": "list", "data": [model]}))
}

async fn health(State(app): State<Arc<App>>) -> StatusCode {
    if app.failures().unhealthy { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }
}
