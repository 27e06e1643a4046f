//! Components that run into the wall clock: the run ends, whatever the router made of the decision.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../sandbox/tests/common/mod.rs"]
mod component;
mod support;

use component::{PICK_FIRST, Policy, SPIN};
use pointsman_replay::{Fleet, Options, ReplayError};
use pointsman_routing::config::{FaultAction, LimitsPatch, OnFault};
use pointsman_routing::{InstanceSpec, Provider, Role, Router, StageMode};
// The components' generator takes its names from here.
use pointsman_sandbox::*;

use support::{replay, trace};

/// How a run of three requests ends under a deadline that no honest call meets, even on a busy machine, and that comes
/// long before the fuel is used up.
fn run(policy: &Policy, on_fault: OnFault, mode: StageMode, fleet: Fleet) -> Result<(), ReplayError> {
    let fuel = LimitsPatch { values: vec![("fuel_base", 1_000_000_000_000)], ..LimitsPatch::default() };
    let router = Router::builder()
        .register("component", Provider::component(policy.artifact()))
        .serve(InstanceSpec::new("component").limits(fuel).on_fault(on_fault))
        .sandbox(component::sandbox())
        .stages(mode)
        .smoke(false)
        .deadline_us(100_000)
        .build()
        .unwrap();
    let row = r#"{"timestamp": 0, "input_length": 9, "output_length": 1}"#;
    replay(&trace(&[row, row, row]), &router, &Options { fleet, ..Options::default() }).map(drop)
}

const WORKERS: Fleet = Fleet::Aggregated { workers: 2 };

/// Runs `then` at one call and `otherwise` at all others.
fn at_call(call: u32, then: &str, otherwise: &str) -> String {
    format!(
        "(global.set $calls (i32.add (global.get $calls) (i32.const 1)))
         (if (i32.eq (global.get $calls) (i32.const {call})) (then {then})) {otherwise}"
    )
}

const CALLS: &str = "(global $calls (mut i32) (i32.const 0))";

#[test]
fn a_decision_that_meets_the_wall_clock_ends_the_run_whether_it_was_made_good_or_refused() {
    let third = at_call(3, SPIN, PICK_FIRST);
    let policy = Policy { core: CALLS.into(), score: None, pick: Some(third), ..Policy::default() };
    for otherwise in [FaultAction::Fallback, FaultAction::Reject] {
        let on_fault = OnFault { otherwise, ..OnFault::default() };
        let error = run(&policy, on_fault, StageMode::Fused, WORKERS).unwrap_err();
        assert!(matches!(error, ReplayError::Deadline { index: 2, role: Role::Aggregated }), "{error}");
        assert_eq!(
            error.to_string(),
            "the aggregated decision of request 2 ran past the wall-clock backstop, so this replay would not repeat; lower \
             the policy's fuel limits or run on a machine that is less busy"
        );
    }
}

#[test]
fn each_pool_has_its_own_backstop() {
    let policy = Policy { score: None, pick: Some(SPIN.into()), ..Policy::default() };
    let fleet = Fleet::Disaggregated { prefill: 1, decode: 1 };
    let error = run(&policy, OnFault::default(), StageMode::Fused, fleet).unwrap_err();
    assert!(matches!(error, ReplayError::Deadline { index: 0, role: Role::Prefill }), "{error}");
}

#[test]
fn a_filter_that_meets_the_wall_clock_when_it_is_asked_again_ends_the_run() {
    // The first call ends in an error, which is the decision's outcome; the second, the same filter's, never ends.
    let keep = at_call(2, SPIN, "(call $error (i32.const 1024) (i32.const 12))");
    let policy = Policy { core: CALLS.into(), keep: Some(keep), ..Policy::default() };
    for filter in [FaultAction::Fallback, FaultAction::Reject] {
        let on_fault = OnFault { filter, ..OnFault::default() };
        let error = run(&policy, on_fault, StageMode::Separate, WORKERS).unwrap_err();
        assert!(matches!(error, ReplayError::Deadline { index: 0, role: Role::Aggregated }), "{error}");
    }
}

#[test]
fn a_component_that_keeps_within_its_time_is_replayed() {
    let policy = Policy { score: None, pick: Some(PICK_FIRST.into()), ..Policy::default() };
    run(&policy, OnFault::default(), StageMode::Fused, WORKERS).unwrap();
}
