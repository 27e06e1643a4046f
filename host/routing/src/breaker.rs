//! Keeps a policy that fails again and again out for a while, over all partitions that it serves.
//!
//! Closed: calls pass, and faults are counted. After so many within the window it opens: the policy is not called, each
//! decision ends as `quarantined`. When that time is over, calls pass one at a time as probes: so many good ones in a row
//! close it, a fault opens it again for twice as long.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pointsman_sandbox::{Fault, Outcome};
use rustc_hash::FxHashMap;

use crate::sync::locked;

/// When a policy that fails is kept out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerSettings {
    /// Faults within the window after which the policy is kept out; 0 keeps none out.
    pub faults: u32,
    /// The window, in milliseconds.
    pub window_ms: u32,
    /// How long it is kept out at first, in milliseconds; twice as long each time that a probe fails.
    pub quarantine_ms: u32,
    /// How long at most, in milliseconds.
    pub most_quarantine_ms: u32,
    /// Good probes in a row after which it is back.
    pub probes: u32,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self { faults: 5, window_ms: 10_000, quarantine_ms: 1_000, most_quarantine_ms: 60_000, probes: 3 }
    }
}

/// What keeps a policy out, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// It is called.
    Closed,
    /// It is not called.
    Open,
    /// It is called now and then, to see whether it is well again.
    HalfOpen,
}

impl BreakerState {
    /// The state's name in reports and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half-open",
        }
    }
}

/// The breaker of one artifact.
#[derive(Debug)]
pub(crate) struct Breaker {
    settings: BreakerSettings,
    /// Whether all is well, so that calls need not look further.
    closed: AtomicBool,
    opened: AtomicU64,
    machine: Mutex<Machine>,
}

#[derive(Debug)]
enum Machine {
    /// The times of the latest faults, and how long the next quarantine lasts.
    Closed {
        faults: VecDeque<f64>,
        next_ms: f64,
        since_ms: f64,
    },
    Open {
        until_ms: f64,
        next_ms: f64,
    },
    HalfOpen {
        good: u32,
        probing: bool,
        next_ms: f64,
    },
}

/// Leave for one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    Call,
    Probe,
}

impl Breaker {
    pub(crate) fn new(settings: BreakerSettings) -> Self {
        let next_ms = f64::from(settings.quarantine_ms);
        Self {
            settings,
            closed: AtomicBool::new(true),
            opened: AtomicU64::new(0),
            machine: Mutex::new(Machine::Closed { faults: VecDeque::new(), next_ms, since_ms: f64::NEG_INFINITY }),
        }
    }

    /// Leave to call the policy at that time.
    pub(crate) fn admit(&self, now_ms: f64) -> Result<Pass, Fault> {
        if self.closed.load(Ordering::Acquire) {
            return Ok(Pass::Call);
        }
        let mut machine = locked(&self.machine);
        if let Machine::Open { until_ms, next_ms } = *machine
            && now_ms >= until_ms
        {
            *machine = Machine::HalfOpen { good: 0, probing: false, next_ms };
        }
        match &mut *machine {
            Machine::Closed { .. } => Ok(Pass::Call),
            Machine::Open { until_ms, .. } => Err(quarantined(&format!("for another {:.0} ms", *until_ms - now_ms))),
            Machine::HalfOpen { probing: true, .. } => Err(quarantined("while another call probes it")),
            Machine::HalfOpen { probing, .. } => {
                *probing = true;
                Ok(Pass::Probe)
            }
        }
    }

    /// How that call ended.
    pub(crate) fn report(&self, pass: Pass, outcome: Outcome, now_ms: f64) {
        // Without a bound there is nothing to count, and the list of faults would only grow.
        if self.settings.faults == 0 || pass == Pass::Call && outcome == Outcome::Ok {
            return;
        }
        let mut machine = locked(&self.machine);
        let next = match (&mut *machine, pass, counts(outcome)) {
            (Machine::Closed { faults, next_ms, since_ms }, _, true) => {
                let BreakerSettings { faults: most, window_ms, quarantine_ms, .. } = self.settings;
                faults.retain(|at| now_ms - at < f64::from(window_ms));
                faults.push_back(now_ms);
                // A policy that was well for long starts anew.
                if now_ms - *since_ms > f64::from(self.settings.most_quarantine_ms) {
                    *next_ms = f64::from(quarantine_ms);
                }
                (most > 0 && faults.len() >= most as usize).then_some(*next_ms)
            }
            (Machine::HalfOpen { next_ms, .. }, Pass::Probe, true) => Some(*next_ms),
            (Machine::HalfOpen { good, probing, next_ms }, Pass::Probe, false) => {
                *probing = false;
                // A call that never reached the policy says nothing of it.
                *good += u32::from(outcome == Outcome::Ok);
                if *good >= self.settings.probes.max(1) {
                    let next_ms = *next_ms;
                    *machine = Machine::Closed { faults: VecDeque::new(), next_ms, since_ms: now_ms };
                    self.closed.store(true, Ordering::Release);
                }
                None
            }
            _ => None,
        };
        if let Some(lasts_ms) = next {
            let next_ms = (lasts_ms * 2.0).min(f64::from(self.settings.most_quarantine_ms));
            *machine = Machine::Open { until_ms: now_ms + lasts_ms, next_ms };
            self.closed.store(false, Ordering::Release);
            self.opened.fetch_add(1, Ordering::AcqRel);
        }
    }

    pub(crate) fn state(&self) -> BreakerState {
        match &*locked(&self.machine) {
            Machine::Closed { .. } => BreakerState::Closed,
            Machine::Open { .. } => BreakerState::Open,
            Machine::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// How often it opened.
    pub(crate) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Acquire)
    }
}

/// Whether a fault is the policy's own.
const fn counts(outcome: Outcome) -> bool {
    !matches!(outcome, Outcome::Ok | Outcome::Quarantined | Outcome::OverQuota)
}

fn quarantined(how_long: &str) -> Fault {
    let message = format!("the policy failed too often and is not called {how_long}; see its faults in the log");
    Fault::new(Outcome::Quarantined, message)
}

/// The breakers of a router by what they guard.
#[derive(Debug, Default)]
pub(crate) struct Breakers(Mutex<FxHashMap<String, Arc<Breaker>>>);

impl Breakers {
    /// The breaker of that artifact: the same one for each of its guests, as long as the settings stay.
    pub(crate) fn of(&self, digest: &str, settings: BreakerSettings) -> Arc<Breaker> {
        let mut breakers = locked(&self.0);
        // Those that nobody holds any more guard nothing.
        breakers.retain(|name, breaker| name == digest || Arc::strong_count(breaker) > 1);
        match breakers.get(digest) {
            Some(breaker) if breaker.settings == settings => Arc::clone(breaker),
            _ => {
                let breaker = Arc::new(Breaker::new(settings));
                breakers.insert(digest.to_owned(), Arc::clone(&breaker));
                breaker
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaker() -> Breaker {
        Breaker::new(BreakerSettings {
            faults: 3,
            window_ms: 100,
            quarantine_ms: 50,
            most_quarantine_ms: 150,
            probes: 2,
        })
    }

    /// One call at that time.
    fn call(breaker: &Breaker, now_ms: f64, outcome: Outcome) -> Outcome {
        match breaker.admit(now_ms) {
            Ok(pass) => {
                breaker.report(pass, outcome, now_ms);
                outcome
            }
            Err(fault) => fault.outcome,
        }
    }

    fn open(breaker: &Breaker, now_ms: f64) {
        (0..3).for_each(|_| assert_eq!(call(breaker, now_ms, Outcome::Trap), Outcome::Trap));
        assert_eq!(breaker.state(), BreakerState::Open);
    }

    #[test]
    fn it_opens_at_so_many_faults_within_the_window_and_not_before() {
        let breaker = breaker();
        for now in [0.0, 99.0] {
            call(&breaker, now, Outcome::Trap);
        }
        // The first has left the window.
        call(&breaker, 100.0, Outcome::Trap);
        assert_eq!(breaker.state(), BreakerState::Closed);
        assert_eq!(call(&breaker, 120.0, Outcome::Ok), Outcome::Ok);
        call(&breaker, 150.0, Outcome::BadAnswer);
        assert_eq!(breaker.state(), BreakerState::Open);
        assert_eq!(call(&breaker, 151.0, Outcome::Ok), Outcome::Quarantined);
        assert_eq!(breaker.opened(), 1);
    }

    #[test]
    fn good_probes_in_a_row_close_it() {
        let breaker = breaker();
        open(&breaker, 0.0);
        assert_eq!(call(&breaker, 49.0, Outcome::Ok), Outcome::Quarantined);
        let first = breaker.admit(50.0).unwrap();
        assert_eq!(breaker.admit(50.0).unwrap_err().outcome, Outcome::Quarantined, "one probe at a time");
        breaker.report(first, Outcome::Ok, 50.0);
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
        assert_eq!(call(&breaker, 51.0, Outcome::Ok), Outcome::Ok);
        assert_eq!(breaker.state(), BreakerState::Closed);
    }

    #[test]
    fn each_failed_probe_doubles_the_time_up_to_the_most() {
        let breaker = breaker();
        open(&breaker, 0.0);
        let mut now = 0.0;
        for lasts in [50.0, 100.0, 150.0, 150.0] {
            assert_eq!(call(&breaker, now + lasts - 1.0, Outcome::Ok), Outcome::Quarantined, "{lasts}");
            now += lasts;
            assert_eq!(call(&breaker, now, Outcome::OutOfFuel), Outcome::OutOfFuel, "{lasts}");
        }
    }

    #[test]
    fn what_never_reached_the_policy_is_not_its_fault() {
        let breaker = breaker();
        (0..9).for_each(|_| _ = call(&breaker, 0.0, Outcome::OverQuota));
        assert_eq!(breaker.state(), BreakerState::Closed);
        open(&breaker, 0.0);
        (0..9).for_each(|_| _ = call(&breaker, 50.0, Outcome::OverQuota));
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
    }

    #[test]
    fn an_artifact_has_one_breaker_and_without_faults_to_count_none_opens() {
        let breakers = Breakers::default();
        let settings = BreakerSettings::default();
        let one = breakers.of("a", settings);
        assert!(Arc::ptr_eq(&one, &breakers.of("a", settings)));
        assert!(!Arc::ptr_eq(&one, &breakers.of("b", settings)));
        let never = breakers.of("a", BreakerSettings { faults: 0, ..settings });
        (0..99).for_each(|_| _ = call(&never, 0.0, Outcome::Trap));
        assert_eq!(never.state(), BreakerState::Closed);
    }
}
