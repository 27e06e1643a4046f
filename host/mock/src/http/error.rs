//! Errors in OpenAI's shape.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    kind: &'static str,
    message: String,
}

impl ApiError {
    pub(crate) fn invalid(message: String) -> Self {
        Self { status: StatusCode::BAD_REQUEST, kind: "invalid_request_error", message }
    }

    pub(crate) fn not_found(message: String) -> Self {
        Self { status: StatusCode::NOT_FOUND, kind: "not_found_error", message }
    }

    pub(crate) fn stopping() -> Self {
        let message = "the engine is stopping; ask another one".to_owned();
        Self { status: StatusCode::SERVICE_UNAVAILABLE, kind: "server_error", message }
    }

    /// The failure that was switched on.
    pub(crate) fn switched_on(status: u16) -> Self {
        let message = format!("the simulated engine was told to fail with {status}");
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self { status, kind: "server_error", message }
    }

    pub(crate) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let code = self.status.as_u16();
        let error = json!({"message": self.message, "type": self.kind, "param": null, "code": code});
        (self.status, Json(json!({"error": error}))).into_response()
    }
}
