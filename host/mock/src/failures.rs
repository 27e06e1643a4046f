//! Failures that can be switched on.

use serde::{Deserialize, Serialize};

/// How the engine fails; not at all by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Failures {
    /// Connections, also those that are open, are closed without an answer.
    pub refuse: bool,
    /// `/health` answers 503.
    pub unhealthy: bool,
    /// Inference requests are answered with this status.
    pub status: Option<u16>,
    /// The connection of an inference request is closed after so many tokens of its answer; with 0 before its first byte.
    pub die_after_tokens: Option<u32>,
    /// An answer stops after so many tokens and never ends; with 0 before its first byte.
    pub stall_after_tokens: Option<u32>,
    /// How many inference requests the three above befall before they are switched off; all where not set.
    pub requests: Option<u32>,
}

impl Failures {
    /// What befalls the next inference request.
    pub(crate) fn take(&mut self) -> Self {
        match &mut self.requests {
            None => *self,
            Some(0) => Self { status: None, die_after_tokens: None, stall_after_tokens: None, ..*self },
            Some(left) => {
                *left -= 1;
                *self
            }
        }
    }
}
