//! Why a request ends without being served, and what its client sees of it.

use pointsman_contract::{ErrorClass, Rejection};

use crate::{AffinityError, LifecycleId, QueueRejection, RefusalReason};

/// Why a request ends without being served. (Dynamo: `KvSchedulerError`.)
///
/// Its text is for the operator; [`AdmissionError::public_message`] is for the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdmissionError {
    /// The classifier rejects the request.
    #[error("the request classifier rejected the request as {}: {}", .0.class.name(), .0.diagnostic)]
    Rejected(Rejection),
    /// The classifier failed.
    #[error("the request classifier failed: {0}; look at the classifier's log or set `on_fault: admit`")]
    ClassifierFailed(String),
    /// The classifier admits the request in a way that cannot be followed.
    #[error("the request classifier's admission is invalid: {0}; correct the classifier")]
    InvalidClassification(String),
    /// The classifier deferred the request for longer than the host allows.
    #[error("the request classifier deferred the request for more than {max_ms} ms; raise `max_deferral_ms`")]
    DeferralExpired {
        /// The longest deferral, in milliseconds.
        max_ms: u32,
    },
    /// Another live request has the same id.
    #[error("request id {0:?} is in use by a live request; take an id of its own")]
    DuplicateRequestId(String),
    /// The request's lifecycle has ended, or never began.
    #[error("lifecycle {} has ended; begin another before submitting the request", .0.0)]
    LifecycleEnded(LifecycleId),
    /// A limit of the request's policy class is reached.
    #[error("{0}")]
    QueueRejected(QueueRejection),
    /// The request's due time came while it waited in the queue.
    #[error("the request was still queued at its due time; give it more time or add workers")]
    DeadlineExceeded,
    /// No worker may serve the request.
    #[error("no worker of the partition may serve the request; add a worker or relax the request's rules")]
    NoEndpoints,
    /// Every worker that may serve the request is overloaded.
    #[error("every worker that may serve the request is overloaded; try again later or add workers")]
    AllEligibleWorkersOverloaded,
    /// The policy's filters kept no worker.
    #[error("the policy's filters rejected every worker that may serve the request; relax the filter")]
    AllEligibleWorkersFiltered,
    /// The pinned worker is overloaded.
    #[error("pinned worker {worker} is overloaded; try again later or lift the pin")]
    PinnedWorkerOverloaded {
        /// The worker's id.
        worker: u64,
    },
    /// The caller pins a worker that its own list does not allow.
    #[error("pinned worker {worker} is not in the request's list of allowed workers; add it or lift the pin")]
    PinnedWorkerNotAllowed {
        /// The worker's id.
        worker: u64,
    },
    /// The chosen worker could not be booked.
    #[error("the chosen worker could not be booked: {0}; send the request again")]
    BookingFailed(String),
    /// The worker-selection policy failed.
    #[error("the worker-selection policy failed: {0}; look at the policy's log or change `on_fault`")]
    PolicyFailed(String),
    /// The request's session cannot be kept with its worker.
    #[error(transparent)]
    Affinity(#[from] AffinityError),
    /// The router is shutting down.
    #[error("the router is shutting down; send the request to another")]
    Shutdown,
    /// The client has gone.
    #[error("the client cancelled the request; there is nobody to answer")]
    Cancelled,
}

impl From<RefusalReason> for AdmissionError {
    fn from(reason: RefusalReason) -> Self {
        match reason {
            RefusalReason::QueueRejected(rejection) => Self::QueueRejected(rejection),
            RefusalReason::DeadlineExceeded => Self::DeadlineExceeded,
        }
    }
}

/// Where an error is answered. Dynamo's two front doors differ in some statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// The inference frontend, with its status for overload.
    Frontend(OverloadStatus),
    /// The selection service, which says 429 for overload.
    Selection,
}

/// The HTTP status of the frontend for overload: 529 unless the operator sets another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverloadStatus(u16);

impl OverloadStatus {
    /// The status in the text of `DYN_HTTP_OVERLOAD_STATUS_CODE`: 200 to 999; anything else is 529.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        text.parse().ok().filter(|status| (200..=999).contains(status)).map_or_else(Self::default, Self)
    }
}

impl Default for OverloadStatus {
    fn default() -> Self {
        Self(529)
    }
}

/// One row of the table of errors.
struct Row {
    name: &'static str,
    frontend: Status,
    selection: Status,
}

#[derive(Clone, Copy)]
enum Status {
    Is(u16),
    Overload,
}

const fn row(name: &'static str, frontend: Status, selection: Status) -> Row {
    Row { name, frontend, selection }
}

impl AdmissionError {
    /// The table: the error's name, its status at the frontend and its status at the selection service.
    const fn row(&self) -> Row {
        use Status::{Is, Overload};
        match self {
            Self::Rejected(rejection) => {
                let status = class_row(rejection.class).0;
                row("classifier-rejected", status, status)
            }
            Self::ClassifierFailed(_) => row("classifier-failed", Is(500), Is(500)),
            Self::InvalidClassification(_) => row("invalid-classification", Is(500), Is(500)),
            Self::DeferralExpired { .. } => row("deferral-expired", Is(429), Is(429)),
            Self::DuplicateRequestId(_) => row("duplicate-request-id", Is(409), Is(409)),
            Self::LifecycleEnded(_) => row("lifecycle-ended", Is(409), Is(409)),
            Self::QueueRejected(_) => row("queue-rejected", Overload, Overload),
            Self::DeadlineExceeded => row("deadline-exceeded", Is(429), Is(429)),
            Self::NoEndpoints => row("no-endpoints", Is(500), Is(503)),
            Self::AllEligibleWorkersOverloaded => row("all-eligible-workers-overloaded", Overload, Overload),
            Self::AllEligibleWorkersFiltered => row("all-eligible-workers-filtered", Is(503), Is(503)),
            Self::PinnedWorkerOverloaded { .. } => row("pinned-worker-overloaded", Overload, Overload),
            Self::PinnedWorkerNotAllowed { .. } => row("pinned-worker-not-allowed", Is(500), Is(400)),
            Self::BookingFailed(_) => row("booking-failed", Is(500), Is(409)),
            Self::PolicyFailed(_) => row("policy-failed", Is(500), Is(500)),
            Self::Affinity(AffinityError::TableFull) => row("affinity-table-full", Overload, Overload),
            Self::Affinity(_) => row("affinity-invalid", Is(400), Is(400)),
            Self::Shutdown => row("shutdown", Is(500), Is(503)),
            Self::Cancelled => row("cancelled", Is(499), Is(499)),
        }
    }

    /// The error's name in reports and metrics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.row().name
    }

    /// The HTTP status. 499 stands in logs and metrics alone: its client has gone.
    #[must_use]
    pub const fn status(&self, surface: Surface) -> u16 {
        let row = self.row();
        match (surface, row.frontend, row.selection) {
            (Surface::Frontend(_), Status::Is(status), _) | (Surface::Selection, _, Status::Is(status)) => status,
            (Surface::Frontend(OverloadStatus(status)), Status::Overload, _) => status,
            (Surface::Selection, _, Status::Overload) => 429,
        }
    }

    /// Whether workers or queues have as much as they may, so that a frontend answers with its [`OverloadStatus`].
    #[must_use]
    pub const fn is_overload(&self) -> bool {
        matches!(self.row().frontend, Status::Overload)
    }

    /// What the client reads: nothing that a policy or a classifier said, but for a rejection's public message.
    #[must_use]
    pub fn public_message(&self) -> String {
        match self {
            Self::Rejected(Rejection { public_message: Some(message), .. }) => message.clone(),
            Self::Rejected(rejection) => class_row(rejection.class).1.to_owned(),
            Self::ClassifierFailed(_) | Self::InvalidClassification(_) => "request classifier failed".to_owned(),
            Self::PolicyFailed(_) => "worker-selection policy failed".to_owned(),
            Self::DeadlineExceeded | Self::DeferralExpired { .. } => "request deadline exceeded".to_owned(),
            other => other.to_string(),
        }
    }

    /// Whether the host may try the request again on another worker. What a classifier rejected is never tried again.
    #[must_use]
    pub const fn retryable(&self) -> bool {
        matches!(self, Self::PinnedWorkerOverloaded { .. })
    }

    /// What the error's body says besides its message.
    #[must_use]
    pub const fn details(&self) -> Option<&QueueRejection> {
        match self {
            Self::QueueRejected(rejection) => Some(rejection),
            _ => None,
        }
    }
}

/// The status of a classifier's rejection, and its message where the classifier gives none.
const fn class_row(class: ErrorClass) -> (Status, &'static str) {
    use Status::{Is, Overload};
    match class {
        ErrorClass::InvalidRequest => (Is(400), "the request is invalid"),
        ErrorClass::Unauthenticated => (Is(401), "the caller is not known"),
        ErrorClass::PermissionDenied => (Is(403), "the caller may not do this"),
        ErrorClass::NotFound => (Is(404), "what the request names does not exist"),
        ErrorClass::Conflict => (Is(409), "the request conflicts with another"),
        ErrorClass::PayloadTooLarge => (Is(413), "the request is too large"),
        ErrorClass::UnsupportedMedia => (Is(415), "the media type is not supported"),
        ErrorClass::RateLimited => (Is(429), "the caller's limit is reached; try again later"),
        ErrorClass::CapacityExhausted => (Overload, "the capacity is exhausted; try again later"),
        ErrorClass::Unavailable => (Is(503), "the service is not available; try again later"),
        ErrorClass::BackendProtocol => (Is(502), "a worker answered what it should not"),
        ErrorClass::DeadlineExceeded => (Is(504), "the request's time is up"),
        ErrorClass::NotImplemented => (Is(501), "this is not implemented"),
        ErrorClass::Internal => (Is(500), "internal error"),
        ErrorClass::Cancelled => (Is(499), "the request was cancelled"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LimitKind;

    const FRONTEND: Surface = Surface::Frontend(OverloadStatus(529));

    fn rejected(class: ErrorClass, public_message: Option<&str>) -> AdmissionError {
        let public_message = public_message.map(str::to_owned);
        AdmissionError::Rejected(Rejection { class, public_message, diagnostic: "the tenant of key 7".to_owned() })
    }

    fn queue_rejection() -> QueueRejection {
        QueueRejection { policy_class: "batch".to_owned(), kind: LimitKind::PromptTokens, current: 9, limit: 8 }
    }

    #[test]
    fn a_rejection_has_the_status_of_its_class() {
        let statuses = ErrorClass::ALL.iter().map(|class| (class.name(), rejected(*class, None).status(FRONTEND)));
        let expected = [
            ("invalid-request", 400),
            ("unauthenticated", 401),
            ("permission-denied", 403),
            ("not-found", 404),
            ("conflict", 409),
            ("payload-too-large", 413),
            ("unsupported-media", 415),
            ("rate-limited", 429),
            ("capacity-exhausted", 529),
            ("unavailable", 503),
            ("backend-protocol", 502),
            ("deadline-exceeded", 504),
            ("not-implemented", 501),
            ("internal", 500),
            ("cancelled", 499),
        ];
        assert_eq!(statuses.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_front_doors_differ_as_dynamos_do() {
        let worker = 4;
        let text = String::new;
        for (error, frontend, selection) in [
            (AdmissionError::QueueRejected(queue_rejection()), 529, 429),
            (AdmissionError::AllEligibleWorkersOverloaded, 529, 429),
            (AdmissionError::PinnedWorkerOverloaded { worker }, 529, 429),
            (rejected(ErrorClass::CapacityExhausted, None), 529, 429),
            (AdmissionError::DeadlineExceeded, 429, 429),
            (AdmissionError::DeferralExpired { max_ms: 1 }, 429, 429),
            (AdmissionError::AllEligibleWorkersFiltered, 503, 503),
            (AdmissionError::NoEndpoints, 500, 503),
            (AdmissionError::Shutdown, 500, 503),
            (AdmissionError::PinnedWorkerNotAllowed { worker }, 500, 400),
            (AdmissionError::BookingFailed(text()), 500, 409),
            (AdmissionError::PolicyFailed(text()), 500, 500),
            (AdmissionError::ClassifierFailed(text()), 500, 500),
            (AdmissionError::InvalidClassification(text()), 500, 500),
            (AdmissionError::DuplicateRequestId(text()), 409, 409),
            (AdmissionError::LifecycleEnded(LifecycleId(3)), 409, 409),
            (AdmissionError::Affinity(AffinityError::IdTooLong { bytes: 300 }), 400, 400),
            (AdmissionError::Affinity(AffinityError::TableFull), 529, 429),
            (AdmissionError::Cancelled, 499, 499),
        ] {
            assert_eq!((error.status(FRONTEND), error.status(Surface::Selection)), (frontend, selection), "{error}");
        }
    }

    #[test]
    fn any_status_that_is_not_informational_may_stand_for_overload() {
        for (text, status) in [
            ("429", 429),
            ("200", 200),
            ("999", 999),
            ("199", 529),
            ("100", 529),
            ("1000", 529),
            ("busy", 529),
            ("", 529),
        ] {
            let surface = Surface::Frontend(OverloadStatus::parse(text));
            assert_eq!(AdmissionError::AllEligibleWorkersOverloaded.status(surface), status, "{text:?}");
        }
    }

    #[test]
    fn a_client_reads_nothing_of_a_classifiers_failure() {
        for error in [
            AdmissionError::ClassifierFailed("secret".to_owned()),
            AdmissionError::InvalidClassification("unknown policy class \"secret\"".to_owned()),
        ] {
            assert_eq!(error.public_message(), "request classifier failed");
            assert!(error.to_string().contains("secret"), "the operator reads it");
        }
        assert!(!AdmissionError::PolicyFailed("secret".to_owned()).public_message().contains("secret"));
        assert!(!rejected(ErrorClass::Internal, None).public_message().contains("tenant"));
        assert_eq!(rejected(ErrorClass::RateLimited, Some("slow down")).public_message(), "slow down");
    }

    #[test]
    fn a_queues_rejection_carries_its_details_and_is_no_overload_of_workers() {
        let error = AdmissionError::QueueRejected(queue_rejection());
        assert_eq!(error.details(), Some(&queue_rejection()));
        assert_eq!(error.name(), "queue-rejected");
        assert!(error.public_message().contains("batch") && error.public_message().contains("raw_isl_tokens"));
        assert_eq!(AdmissionError::DeadlineExceeded.details(), None);
        assert_eq!(AdmissionError::DeadlineExceeded.public_message(), "request deadline exceeded");
    }

    #[test]
    fn only_an_overloaded_pin_may_be_tried_elsewhere() {
        assert!(AdmissionError::PinnedWorkerOverloaded { worker: 1 }.retryable());
        assert!(!AdmissionError::AllEligibleWorkersOverloaded.retryable());
        for class in ErrorClass::ALL {
            assert!(!rejected(*class, None).retryable());
        }
    }
}
