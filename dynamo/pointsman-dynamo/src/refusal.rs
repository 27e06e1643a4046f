//! Why a classifier's request ends, for Dynamo.

use std::fmt;

use pointsman_admission::AdmissionError;
use pointsman_contract::{ErrorClass, Rejection};

/// Why a request ends with the classifier: it was rejected, its classifier failed, or it was deferred for too long.
///
/// A `DynamoError` has the same three parts. Dynamo's frontend answers by its class where it finds one in the error that
/// [`crate::register_with`] is given the making of, and anything else with status 500.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What kind of error the client sees.
    pub class: ErrorClass,
    /// A sentence for the client. It says nothing of a classifier's failure.
    pub public_message: String,
    /// A sentence for the operator's log.
    pub diagnostic: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.diagnostic)
    }
}

impl std::error::Error for Refusal {}

impl From<AdmissionError> for Refusal {
    fn from(error: AdmissionError) -> Self {
        let public_message = error.public_message();
        let class = match error {
            AdmissionError::Rejected(Rejection { class, diagnostic, .. }) => {
                return Self { class, public_message, diagnostic };
            }
            AdmissionError::DeferralExpired { .. } => ErrorClass::DeadlineExceeded,
            AdmissionError::DuplicateRequestId(_) => ErrorClass::Conflict,
            AdmissionError::Shutdown => ErrorClass::Unavailable,
            AdmissionError::Cancelled => ErrorClass::Cancelled,
            _ => ErrorClass::Internal,
        };
        Self { class, public_message, diagnostic: error.to_string() }
    }
}
