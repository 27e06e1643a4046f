//! What either side says to one request.

use dynamo_kv_router::{KvSchedulerError, WorkerSelectionPolicyError};
use pointsman_routing::{DecideError, WorkerKey};
use pointsman_sandbox::Outcome;

/// A row, or why there is none.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The chosen row and its cost.
    Chosen(WorkerKey, Cost),
    /// The request is refused.
    Refused(Refusal),
}

/// The cost of the chosen row.
#[derive(Clone, Debug, PartialEq)]
pub enum Cost {
    /// As computed.
    Exact(f64),
    /// As Dynamo prints that of a pinned row: three decimals.
    Printed(String),
    /// Dynamo said nothing.
    Unsaid,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// No worker may serve it.
    NoEndpoints,
    /// Every worker that may is overloaded.
    Overloaded,
    /// The filters kept no row.
    Filtered,
    /// The pinned worker is overloaded.
    PinOverloaded(u64),
    /// The pinned worker is not allowed.
    PinNotAllowed(u64),
    /// The policy said so itself.
    PolicyError,
    /// The policy's answer is refused: a cost that is not finite, or a row out of range.
    BadAnswer,
    /// Anything else, which no case should meet.
    Other(String),
}

impl From<KvSchedulerError> for Refusal {
    fn from(error: KvSchedulerError) -> Self {
        match error {
            KvSchedulerError::NoEndpoints => Self::NoEndpoints,
            KvSchedulerError::AllEligibleWorkersOverloaded => Self::Overloaded,
            KvSchedulerError::AllEligibleWorkersFiltered => Self::Filtered,
            KvSchedulerError::PinnedWorkerOverloaded { worker_id } => Self::PinOverloaded(worker_id),
            KvSchedulerError::PinnedWorkerNotAllowed { worker_id } => Self::PinNotAllowed(worker_id),
            KvSchedulerError::WorkerSelectionPolicy(WorkerSelectionPolicyError::Failed(_)) => Self::PolicyError,
            KvSchedulerError::WorkerSelectionPolicy(_) => Self::BadAnswer,
            other => Self::Other(other.to_string()),
        }
    }
}

impl From<DecideError> for Refusal {
    fn from(error: DecideError) -> Self {
        match error {
            DecideError::NoEndpoints => Self::NoEndpoints,
            DecideError::AllEligibleWorkersOverloaded => Self::Overloaded,
            DecideError::AllEligibleWorkersFiltered => Self::Filtered,
            DecideError::PinnedWorkerOverloaded { worker } => Self::PinOverloaded(worker),
            DecideError::PinnedWorkerNotAllowed { worker } => Self::PinNotAllowed(worker),
            DecideError::Refused { outcome: Outcome::PolicyError, .. } => Self::PolicyError,
            DecideError::Refused { outcome: Outcome::BadAnswer, .. } => Self::BadAnswer,
            other => Self::Other(other.to_string()),
        }
    }
}

impl Cost {
    /// How far apart two costs are, in units in the last place: 0 where they are equal bit for bit, or printed alike.
    /// None where they cannot be compared.
    #[must_use]
    pub fn ulps(&self, other: &Self) -> Option<u64> {
        match (self, other) {
            (Self::Exact(one), Self::Exact(other)) => Some(ordered(*one).abs_diff(ordered(*other))),
            (Self::Printed(text), Self::Exact(cost)) | (Self::Exact(cost), Self::Printed(text)) => {
                Some(if *text == format!("{cost:.3}") { 0 } else { u64::MAX })
            }
            (Self::Printed(one), Self::Printed(other)) => Some(if one == other { 0 } else { u64::MAX }),
            (Self::Unsaid, _) | (_, Self::Unsaid) => None,
        }
    }
}

/// An integer that grows with the float, one for each value.
const fn ordered(value: f64) -> i64 {
    let bits = value.to_bits().cast_signed();
    if bits < 0 { i64::MIN - bits } else { bits }
}
