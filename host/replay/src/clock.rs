//! The clock that times decisions. Nothing else in this crate reads one.

use std::time::Instant;

/// Tells how much time has passed since some fixed moment.
pub trait Clock {
    /// Nanoseconds, never fewer than before.
    fn nanoseconds(&self) -> u64;
}

/// The machine's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct WallClock(Instant);

impl WallClock {
    /// A clock that starts now.
    #[must_use]
    pub fn start() -> Self {
        Self(Instant::now())
    }
}

impl Clock for WallClock {
    fn nanoseconds(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
