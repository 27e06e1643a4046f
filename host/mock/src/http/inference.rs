//! What the inference endpoints have in common: the request is noted, fails where that is switched on, and has a JSON
//! body that names the model.

use std::sync::Arc;

use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;
use bytes::Bytes;
use serde_json::Value;

use super::app::App;
use super::error::ApiError;
use crate::connection::Connection;
use crate::failures::Failures;

/// An inference request as it came in.
#[derive(Clone, Debug)]
pub struct Received {
    /// Its path, such as `/v1/completions`.
    pub path: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

#[derive(Debug)]
pub(crate) struct Inference {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
    pub(crate) connection: Connection,
    pub(crate) failures: Failures,
}

impl FromRequest<Arc<App>> for Inference {
    type Rejection = ApiError;

    async fn from_request(mut request: Request, app: &Arc<App>) -> Result<Self, ApiError> {
        let connection = request.extensions_mut().remove::<Connection>().unwrap_or_default();
        let (path, headers) = (request.uri().path().to_owned(), request.headers().clone());
        let body = Bytes::from_request(request, app).await.map_err(|rejection| {
            ApiError::invalid(format!("the body cannot be read: {}", rejection.body_text()))
                .with_status(rejection.status())
        })?;
        if app.config().keep_requests > 0 {
            app.keep(Received { path, headers: headers.clone(), body: body.clone() });
        }
        let failures = app.next_failures();
        if failures.die_after_tokens == Some(0) {
            return connection.close().await;
        }
        if failures.stall_after_tokens == Some(0) {
            return std::future::pending().await;
        }
        if let Some(status) = failures.status {
            return Err(ApiError::switched_on(status));
        }
        let body: Value = serde_json::from_slice(&body)
            .map_err(|error| ApiError::invalid(format!("the body is not JSON: {error}; send a JSON object")))?;
        check_model(&body, &app.config().model)?;
        Ok(Self { headers, body, connection, failures })
    }
}

fn check_model(body: &Value, served: &str) -> Result<(), ApiError> {
    match body.get("model").and_then(Value::as_str) {
        Some(model) if model == served => Ok(()),
        Some(model) => Err(ApiError::not_found(format!("the model `{model}` is not served here; ask for `{served}`"))),
        None => Err(ApiError::invalid(format!("the body names no model; set `model` to \"{served}\""))),
    }
}

/// Says which engine and rank answered.
pub(crate) fn signed(mut response: Response, app: &App, rank: usize) -> Response {
    let headers = response.headers_mut();
    if let Ok(name) = HeaderValue::from_str(&app.config().name) {
        headers.insert(HeaderName::from_static("x-mock-engine"), name);
    }
    headers.insert(HeaderName::from_static("x-mock-rank"), HeaderValue::from(rank as u64));
    response
}
