//! Keeps slow policies off the threads of the async runtime.
//!
//! A decision takes microseconds; handing a thread of the runtime over costs about as much. So decisions run where they
//! are asked for while they are quick, and leave the runtime after one that was not. The first decisions count as slow.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, RuntimeFlavor};

/// A decision that takes longer is slow.
const SLOW: Duration = Duration::from_millis(1);
/// How many quick decisions in a row it takes to be trusted again.
const PROBATION: u32 = 64;

/// How the decisions of one partition run.
#[derive(Debug)]
pub(crate) struct Pace(AtomicU32);

impl Default for Pace {
    fn default() -> Self {
        Self(AtomicU32::new(PROBATION))
    }
}

impl Pace {
    /// Does `work`, which may ask a policy.
    pub(crate) fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let probation = self.0.load(Ordering::Relaxed);
        let value = if probation > 0 && may_leave() { tokio::task::block_in_place(work) } else { work() };
        let next = if started.elapsed() > SLOW { PROBATION } else { probation.saturating_sub(1) };
        if next != probation {
            self.0.store(next, Ordering::Relaxed);
        }
        value
    }
}

/// Whether this thread may be handed over: a runtime of one thread has no other.
fn may_leave() -> bool {
    Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread)
}
