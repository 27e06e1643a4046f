//! The one clock of the server.

use std::time::Instant;

/// Milliseconds since the server's start. Copies tell the same time.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Starts now.
    #[must_use]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Milliseconds since the start; never goes back.
    #[must_use]
    pub fn now_ms(&self) -> f64 {
        self.0.elapsed().as_secs_f64() * 1_000.0
    }
}
