//! What the tests share: routers with native policies, traces from text, an observer that remembers.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::cell::Cell;

use pointsman_replay::{Clock, DecisionLine, Observer, Options, ReplayError, Run, RunReport, Trace};
use pointsman_routing::{InstanceSpec, Provider, Router, StageMode};
use pointsman_sdk::native::{NativePolicy, native};

/// The built-in default, native.
pub(crate) fn default_router() -> Router {
    Router::builder().build().unwrap()
}

pub(crate) fn router(name: &str, policy: impl NativePolicy + 'static) -> Router {
    router_with(InstanceSpec::new(name), name, policy)
}

pub(crate) fn router_with(spec: InstanceSpec, name: &str, policy: impl NativePolicy + 'static) -> Router {
    Router::builder().register(name, Provider::native(policy)).serve(spec).build().unwrap()
}

pub(crate) fn round_robin() -> Router {
    router("round-robin", native::<round_robin::RoundRobin>())
}

pub(crate) fn least_loaded() -> Router {
    router("least-loaded", native::<least_loaded::LeastLoaded>())
}

pub(crate) fn default_router_in(mode: StageMode) -> Router {
    Router::builder().stages(mode).build().unwrap()
}

pub(crate) fn trace(lines: &[&str]) -> Trace {
    Trace::read("trace", lines.join("\n").as_bytes(), None).unwrap()
}

/// One microsecond passes at each look.
pub(crate) struct Ticking(Cell<u64>);

impl Ticking {
    pub(crate) fn new() -> Self {
        Self(Cell::new(0))
    }
}

impl Clock for Ticking {
    fn nanoseconds(&self) -> u64 {
        self.0.set(self.0.get() + 1_000);
        self.0.get()
    }
}

/// Remembers every line as index, role, worker and outcome.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) lines: Vec<(u64, &'static str, Option<u64>, &'static str)>,
    pub(crate) arrived: u64,
}

impl Observer for Memory {
    fn decision(&mut self, line: &DecisionLine<'_>) -> std::io::Result<()> {
        assert_eq!(line.rank, line.worker.map(|_| 0));
        assert_eq!(line.cost.is_some(), line.worker.is_some());
        self.lines.push((line.index, line.role, line.worker, line.outcome));
        Ok(())
    }

    fn progress(&mut self, requests: u64) {
        self.arrived = requests;
    }
}

pub(crate) fn replay(trace: &Trace, router: &Router, options: &Options) -> Result<(RunReport, Memory), ReplayError> {
    replay_as("policy", trace, router, options)
}

pub(crate) fn replay_as(
    label: &str,
    trace: &Trace,
    router: &Router,
    options: &Options,
) -> Result<(RunReport, Memory), ReplayError> {
    let mut memory = Memory::default();
    let report = Run { label, trace, router, options }.execute(&Ticking::new(), &mut memory)?;
    assert_eq!(memory.arrived, report.requests);
    assert_eq!(report.requests, report.decided + report.rejected);
    Ok((report, memory))
}
