//! The one error of a policy.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

/// One sentence for the operator's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError(
    // A pointer, which is never null: a result of it is one test, also where the compiler does not see who made it.
    Box<Cow<'static, str>>,
);

impl PolicyError {
    /// An error of that sentence.
    pub fn failed(message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(message.into()))
    }

    /// The sentence.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for PolicyError {}

impl From<PolicyError> for String {
    fn from(error: PolicyError) -> Self {
        error.0.into_owned()
    }
}
