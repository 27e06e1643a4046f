//! A policy over a table that its caller holds: the same pipeline, the same answers to a fault.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::ops::Range;

use common::{Script, reads};
use pointsman_routing::config::{FaultAction, OnFault};
use pointsman_routing::{
    DecideError, Fact, HostedPolicy, HostedTable, InstanceSpec, PartitionKey, Provider, Router, RouterConfig, Rows,
    Signal, Text,
};
use pointsman_sandbox::Outcome;

/// Workers with so many active requests.
struct Busy(Vec<f64>, Option<Range<u32>>);

impl HostedTable for Busy {
    fn rows(&self) -> u32 {
        self.0.len() as u32
    }

    fn fact(&self, fact: Fact) -> f64 {
        fact.absent()
    }

    fn text(&self, text: Text) -> Option<&str> {
        (text == Text::SessionId).then_some("s")
    }

    fn column(&self, signal: Signal, rows: Rows<'_>, out: &mut [f64]) {
        let busy = |row: u32| if signal.name().starts_with("load.") { self.0[row as usize] } else { signal.absent() };
        rows.write(out, busy);
    }

    fn number(&self, row: u32) -> u32 {
        row + 100
    }

    fn affinity(&self) -> Option<Range<u32>> {
        self.1.clone()
    }
}

fn hosted(script: &Script, on_fault: OnFault) -> HostedPolicy {
    let spec = InstanceSpec::new("script").on_fault(on_fault);
    let router = Router::builder().register("script", Provider::native(script.clone())).serve(spec).build().unwrap();
    router.hosted(&PartitionKey::default(), 32, &RouterConfig::default()).unwrap()
}

fn keep_odd(rows: u32, _: &[f64]) -> Result<Vec<bool>, String> {
    Ok((0..rows).map(|row| row % 2 == 1).collect())
}

#[test]
fn the_stages_read_the_callers_table_and_the_guest_its_block_size() {
    let load = reads(&[], &["session.id"], &["load.active-requests"]);
    let script = Script::default().keeping(load.clone(), keep_odd).scoring(load, |_, busy| Ok(busy.to_vec()));
    let mut policy = hosted(&script, OnFault::default());
    let decision = policy.decide(&Busy(vec![0.0, 5.0, 1.0, 4.0], None)).unwrap();
    assert_eq!((decision.row, decision.cost, decision.outcome), (3, 4.0, Outcome::Ok));
    let seen = script.seen();
    assert_eq!(seen[1].numbers, [5.0, 4.0], "the survivors alone");
    assert_eq!(seen[1].texts, Some(vec![Some("s".to_owned())]));
    assert_eq!(script.built()[0].0.block_size, 32);
    assert_eq!(policy.stages().filter, policy.inputs().is_some_and(|inputs| inputs.filter.is_some()));
}

#[test]
fn a_filter_asked_by_row_is_not_asked_again_by_the_rest() {
    let script = Script::default()
        .keeping(reads(&[], &[], &["load.active-requests"]), |_, busy| Ok(vec![busy[0] > 1.0]))
        .scoring(reads(&[], &[], &["load.active-requests"]), |_, busy| Ok(busy.to_vec()));
    let mut policy = hosted(&script, OnFault::default());
    let table = Busy(vec![1.0, 3.0, 2.0], None);
    let kept = [0, 1, 2].map(|row| policy.filter_row(&table, row).unwrap());
    assert_eq!(kept, [false, true, true]);
    assert_eq!(policy.decide_filtered(&Busy(vec![3.0, 2.0], None)).unwrap().row, 1);
    let stages: Vec<_> = script.seen().iter().map(|seen| seen.stage).collect();
    assert_eq!(stages, ["filter", "filter", "filter", "score"]);
}

#[test]
fn a_fault_ends_as_the_instance_says() {
    let script = Script::default().scoring(reads(&[], &[], &[]), |rows, _| Ok(vec![f64::NAN; rows as usize]));
    let table = Busy(vec![7.0, 0.0, 3.0, 2.0], Some(2..4));
    // The default stays with the affinity target.
    let decision = hosted(&script, OnFault::default()).decide(&table).unwrap();
    assert_eq!((decision.row, decision.outcome), (3, Outcome::BadAnswer));
    let reject = OnFault { filter: FaultAction::Reject, otherwise: FaultAction::Reject };
    let error = hosted(&script, reject).decide(&table).unwrap_err();
    assert!(matches!(error, DecideError::Refused { outcome: Outcome::BadAnswer, .. }), "{error}");
    let fallback = hosted(&script, reject).fall_back(&Busy(vec![7.0, 0.0], None), Outcome::Trap).unwrap();
    assert_eq!((fallback.row, fallback.outcome), (1, Outcome::Trap));
    let none = Script::default().keeping(reads(&[], &[], &[]), |rows, _| Ok(vec![false; rows as usize]));
    assert_eq!(hosted(&none, reject).decide(&table), Err(DecideError::AllEligibleWorkersFiltered));
}
