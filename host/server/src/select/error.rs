//! Why a call of the selection service fails, and what its client sees of it.

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use pointsman_admission::{AdmissionError, Surface};
use pointsman_routing::PartitionKey;
use serde_json::json;

use crate::door::details;
use crate::fleet::FleetError;

/// Why a call fails. The statuses are those of Dynamo's service.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SelectError {
    #[error("{0}")]
    BadRequest(String),
    /// The partition has no worker that may be chosen.
    #[error(
        "no schedulable worker serves model `{model}` in routing group `{group}`; \
         add one by POST /workers, or see GET /workers for what those that there are have to tell"
    )]
    NotReady { model: String, group: String },
    #[error(
        "worker {worker} (dp_rank {rank}) is no schedulable worker of model `{model}` in routing group `{group}`; \
         see GET /workers"
    )]
    NoSuchRank { worker: u64, rank: u32, model: String, group: String },
    #[error("selection `{0}` is not pending: it has expired, is booked, or was never made; call /select again")]
    NotPending(String),
    #[error("reservation `{0}` not found: it was freed, has expired, or its worker has gone")]
    NoReservation(String),
    #[error("selection `{0}` is reserved already or about to be; free it or take another selection_id")]
    Reserved(String),
    #[error("worker {0} is not schedulable any more; call again")]
    Departed(u64),
    #[error(transparent)]
    Fleet(#[from] FleetError),
    #[error("{}", .0.public_message())]
    Admission(#[from] AdmissionError),
    /// The body, the path or the query is not what it should be.
    #[error("{message}")]
    Unreadable { status: StatusCode, message: String },
    #[error("the body is above 8 MiB; send hashes of its blocks in place of tokens")]
    TooLarge,
    #[error(
        "{0} is not served here: each replica books by itself; ask a single one, or share sessions by a load balancer"
    )]
    NoReplicas(&'static str),
    #[error("there is no such path; see the operations page for those that there are")]
    NoRoute,
    #[error("the path does not take this method; see the header `allow`")]
    NoMethod,
    #[error("the service is shutting down; ask another one")]
    Shutdown,
}

impl SelectError {
    /// A field that a prompt without tokens needs.
    pub(super) fn missing(field: &str) -> Self {
        Self::BadRequest(format!("{field} is required without token_ids; give either"))
    }

    pub(super) fn not_ready(key: &PartitionKey) -> Self {
        Self::NotReady { model: key.model.clone(), group: key.routing_group.clone() }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::NotReady { .. } | Self::Shutdown => StatusCode::SERVICE_UNAVAILABLE,
            Self::NoSuchRank { .. } | Self::NotPending(_) | Self::NoReservation(_) | Self::NoRoute => {
                StatusCode::NOT_FOUND
            }
            Self::Reserved(_) => StatusCode::CONFLICT,
            Self::Departed(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Fleet(FleetError::NotFound(_)) => StatusCode::NOT_FOUND,
            Self::Fleet(_) => StatusCode::BAD_REQUEST,
            Self::Admission(error) => {
                StatusCode::from_u16(error.status(Surface::Selection)).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
            }
            Self::Unreadable { status, .. } => *status,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::NoReplicas(_) => StatusCode::NOT_IMPLEMENTED,
            Self::NoMethod => StatusCode::METHOD_NOT_ALLOWED,
        }
    }
}

/// Takes over what the framework says of a request that it cannot read.
macro_rules! from_rejection {
    ($($rejection:ty),*) => {$(
        impl From<$rejection> for SelectError {
            fn from(rejection: $rejection) -> Self {
                Self::Unreadable { status: rejection.status(), message: rejection.body_text() }
            }
        }
    )*};
}

from_rejection!(JsonRejection, PathRejection, QueryRejection);

impl IntoResponse for SelectError {
    fn into_response(self) -> Response {
        if let Self::Admission(error) = &self {
            tracing::debug!(error = %error, name = error.name(), "a selection is refused");
        }
        let mut body = json!({"error": self.to_string()});
        if let Self::Admission(error) = &self
            && let Some(details) = details(error)
        {
            body["details"] = details;
        }
        (self.status(), Json(body)).into_response()
    }
}
