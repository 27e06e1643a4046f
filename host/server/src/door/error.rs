//! Answers that say why a request is not served, in OpenAI's shape.

use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use pointsman_admission::{AdmissionError, OverloadStatus, Surface};
use serde_json::{Value, json};

use super::body::DoorBody;

/// Why a request is not served.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    param: Option<&'static str>,
    details: Option<Value>,
    allow: Option<&'static str>,
    /// Whether it is the operator's own status for overload.
    overload: bool,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { status, code, message, param: None, details: None, allow: None, overload: false }
    }

    pub(crate) fn invalid(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    /// Names the field that is wrong.
    pub(crate) fn of(mut self, param: &'static str) -> Self {
        self.param = Some(param);
        self
    }

    pub(crate) fn not_found(path: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "unknown_url", format!("there is no {path} here; see GET /v1/models"))
    }

    pub(crate) fn method(allow: &'static str) -> Self {
        let message = format!("this URL takes {allow} alone");
        Self { allow: Some(allow), ..Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message) }
    }

    pub(crate) fn unknown_model(model: &str) -> Self {
        let message = format!("The model `{model}` does not exist; see GET /v1/models");
        Self::new(StatusCode::NOT_FOUND, "model_not_found", message).of("model")
    }

    /// The server does as much as it may.
    pub(crate) fn shed(overload: OverloadStatus) -> Self {
        let message = "the router serves as many requests as it may; try again later";
        Self { overload: true, ..Self::new(overload_status(overload), "too_many_requests", message) }
    }

    pub(crate) fn admission(error: &AdmissionError, overload: OverloadStatus) -> Self {
        let status = status_code(error.status(Surface::Frontend(overload)));
        let details = details(error);
        Self { details, overload: error.is_overload(), ..Self::new(status, error.name(), error.public_message()) }
    }

    /// The body.
    pub(crate) fn json(&self) -> Value {
        let mut error = json!({"message": self.message, "type": self.kind(), "param": self.param, "code": self.code});
        if let Some(details) = &self.details {
            error["details"] = details.clone();
        }
        json!({ "error": error })
    }

    const fn kind(&self) -> &'static str {
        match self.status.as_u16() {
            _ if self.overload => "overloaded_error",
            401 => "authentication_error",
            403 => "permission_error",
            429 => "rate_limit_error",
            400..=499 => "invalid_request_error",
            _ => "server_error",
        }
    }

    /// Whether the same request may be served a little later.
    fn passes(&self) -> bool {
        self.overload || matches!(self.status.as_u16(), 429 | 503)
    }

    pub(crate) fn response(&self) -> Response<DoorBody> {
        let mut response = Response::new(DoorBody::full(self.json().to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if self.passes() {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if let Some(allow) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        response
    }
}

fn overload_status(overload: OverloadStatus) -> StatusCode {
    status_code(AdmissionError::AllEligibleWorkersOverloaded.status(Surface::Frontend(overload)))
}

/// Which limit of which policy class refused a request; none where none did.
pub(crate) fn details(error: &AdmissionError) -> Option<Value> {
    let rejection = error.details()?;
    Some(json!({
        "policy_class": rejection.policy_class,
        "limit_kind": rejection.kind.name(),
        "current": rejection.current,
        "limit": rejection.limit,
    }))
}

fn status_code(status: u16) -> StatusCode {
    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}
