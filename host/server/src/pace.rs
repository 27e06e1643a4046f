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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Whether another task of a runtime with one thread gets on while a decision waits for it.
    fn lets_others_run(pace: Pace) -> bool {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (send, receive) = mpsc::channel();
        let decision = runtime.spawn(async move {
            tokio::spawn(async move { send.send(()) });
            pace.run(|| receive.recv_timeout(Duration::from_secs(30))).is_ok()
        });
        runtime.block_on(decision).unwrap()
    }

    #[test]
    fn a_first_decision_and_one_after_a_slow_one_hold_up_no_other_task() {
        assert!(lets_others_run(Pace::default()));
        let pace = Pace::default();
        for _ in 0..PROBATION {
            pace.run(|| ());
        }
        pace.run(|| std::thread::sleep(SLOW * 2));
        assert!(lets_others_run(pace));
    }

    #[test]
    fn a_runtime_of_one_thread_decides_where_it_is_asked() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(runtime.block_on(async { Pace::default().run(|| 7) }), 7);
    }
}
