//! Keeps slow policies off the threads of the async runtime.
//!
//! A decision takes microseconds; handing a thread of the runtime over costs about as much, and a thread of its own where
//! that happens often. So decisions run where they are asked for while they are quick, and leave the runtime where more
//! than a few of them were not. A single slow one tells little: the system may have had something else to do meanwhile.
//! The first decisions count as slow.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, RuntimeFlavor};

/// A decision that takes longer is slow.
const SLOW: Duration = Duration::from_millis(1);
/// How many quick decisions make up for a slow one.
const WEIGHT: u32 = 16;
/// What is trusted: a slow decision, and another one before the first is made up for.
const TRUSTED: u32 = 2 * WEIGHT;
/// The most distrust: 64 quick decisions away from trust.
const MOST: u32 = TRUSTED + 64;

/// How the decisions of one partition run: the distrust in them.
#[derive(Debug)]
pub(crate) struct Pace(AtomicU32);

impl Default for Pace {
    fn default() -> Self {
        Self(AtomicU32::new(MOST))
    }
}

impl Pace {
    /// Does `work`, which may ask a policy.
    pub(crate) fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        let distrust = self.0.load(Ordering::Relaxed);
        // Handing the thread over is no part of the decision's time.
        let timed = || {
            let started = Instant::now();
            let value = work();
            (value, started.elapsed() > SLOW)
        };
        let (value, slow) =
            if distrust > TRUSTED && may_leave() { tokio::task::block_in_place(timed) } else { timed() };
        let next = if slow { MOST.min(distrust + WEIGHT) } else { distrust.saturating_sub(1) };
        if next != distrust {
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
    fn a_first_decision_and_one_after_slow_ones_hold_up_no_other_task() {
        assert!(lets_others_run(Pace::default()));
        let pace = Pace::default();
        for _ in 0..MOST {
            pace.run(|| ());
        }
        for _ in 0..3 {
            pace.run(|| std::thread::sleep(SLOW * 2));
        }
        assert!(lets_others_run(pace));
    }

    #[test]
    fn slow_ones_now_and_then_are_no_reason_to_leave() {
        let pace = Pace::default();
        for turn in 0..6 * MOST {
            match turn % 40 {
                0 => pace.run(|| std::thread::sleep(SLOW * 2)),
                _ => pace.run(|| ()),
            }
        }
        assert!(pace.0.load(Ordering::Relaxed) <= TRUSTED);
    }

    #[test]
    fn a_runtime_of_one_thread_decides_where_it_is_asked() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(runtime.block_on(async { Pace::default().run(|| 7) }), 7);
    }
}
