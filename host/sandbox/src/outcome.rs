//! How a call of a policy ended: error, metric label and log field in one enum.

use std::fmt;

/// How a call of a policy, or a whole decision, ended. Everything but `Ok` is a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// The policy answered and the host accepted the answer.
    Ok,
    /// The guest trapped.
    Trap,
    /// The guest used up its fuel.
    OutOfFuel,
    /// The guest ran past its wall-clock deadline.
    Deadline,
    /// The guest asked for more memory or table elements than its limits grant.
    Memory,
    /// The host refused the answer: wrong length, row out of range, cost not finite, or larger than the limit.
    BadAnswer,
    /// The policy returned an error.
    PolicyError,
    /// There is no policy to ask: its guest could not be built.
    NotLoaded,
    /// The policy is kept out after repeated faults.
    Quarantined,
    /// The tenant has used up what it may use.
    OverQuota,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 10] = [
        Self::Ok,
        Self::Trap,
        Self::OutOfFuel,
        Self::Deadline,
        Self::Memory,
        Self::BadAnswer,
        Self::PolicyError,
        Self::NotLoaded,
        Self::Quarantined,
        Self::OverQuota,
    ];

    /// The outcome's name in logs, metrics and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Trap => "trap",
            Self::OutOfFuel => "out-of-fuel",
            Self::Deadline => "deadline",
            Self::Memory => "memory",
            Self::BadAnswer => "bad-answer",
            Self::PolicyError => "policy-error",
            Self::NotLoaded => "not-loaded",
            Self::Quarantined => "quarantined",
            Self::OverQuota => "over-quota",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A call that did not end well.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{outcome}: {message}")]
pub struct Fault {
    /// What kind of fault; never [`Outcome::Ok`].
    pub outcome: Outcome,
    /// One sentence for the operator.
    pub message: String,
}

impl Fault {
    /// A fault of that kind.
    pub fn new(outcome: Outcome, message: impl Into<String>) -> Self {
        Self { outcome, message: message.into() }
    }
}
