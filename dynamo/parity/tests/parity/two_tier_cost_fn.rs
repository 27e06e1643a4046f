//! `dynamo-two-tier-cost-fn` beside Dynamo's own, whose ties go by the order of a hash map.

use std::collections::BTreeMap;

use dynamo_two_tier_cost_fn::TwoTierCostFn;
use pointsman_parity::generate::parameter;
use pointsman_parity::pointsman::{Batch, World};
use pointsman_parity::{Ask, Case, Verdict, dynamo};
use pointsman_routing::WorkerKey;
use proptest::prelude::*;
use serde_json::{Map, Value};

use crate::harness::{CASES, SHIPPED, Setting, Tally, check, map, same_cost, subject};

const NAME: &str = "dynamo-two-tier-cost-fn";

fn parameters() -> impl Strategy<Value = Map<String, Value>> {
    let threshold = prop_oneof![1 => Just(0.0), 1 => Just(1.0), 4 => 0.0..=1.0];
    let ratio = prop_oneof![1 => Just(1.0), 4 => 1.0..3.0, 1 => Just(1e300)];
    let spread = prop_oneof![1 => Just(0_u64), 3 => 0..64_u64, 2 => 0..400_u64, 1 => any::<u64>()];
    map(vec![
        parameter("cache_threshold", threshold.prop_map(Value::from)).boxed(),
        parameter("balance_rel_threshold", ratio.prop_map(Value::from)).boxed(),
        parameter("balance_abs_threshold", spread.prop_map(Value::from)).boxed(),
    ])
}

/// The rows that the rule holds equal: of those that may serve the request the least loaded, where load decides or no
/// cached prefix is long enough, else the least loaded of those with the longest.
fn equals(case: &Case, ask: &Ask, rows: &[WorkerKey]) -> Vec<WorkerKey> {
    let of = |name: &str, default: f64| case.parameters.get(name).and_then(Value::as_f64).unwrap_or(default);
    let loads: BTreeMap<_, _> = case.workers.iter().flat_map(|worker| worker.rows()).collect();
    let load = |row: &WorkerKey| loads[row].map_or(0, |busy| busy.requests);
    let overlap = |row: &WorkerKey| {
        let found = ask.overlaps.iter().find(|overlap| overlap.key == *row);
        found.map_or(0.0, |overlap| overlap.device_blocks)
    };
    let (least, most) =
        rows.iter().map(load).fold((usize::MAX, 0), |(least, most), load| (least.min(load), most.max(load)));
    let longest = rows.iter().map(overlap).fold(0.0, f64::max);
    let blocks = ask.blocks(case.block_size);

    let spread = case.parameters.get("balance_abs_threshold").and_then(Value::as_u64).unwrap_or(32);
    let unbalanced = (most - least) as u64 > spread && most as f64 > of("balance_rel_threshold", 1.1) * least as f64;
    let cached = blocks > 0 && longest / blocks as f64 > of("cache_threshold", 0.5);
    let candidates: Vec<_> = match !unbalanced && cached {
        true => rows.iter().filter(|row| overlap(row) == longest).collect(),
        false => rows.iter().collect(),
    };
    let lightest = candidates.iter().map(|row| load(row)).min();
    candidates.into_iter().filter(|row| Some(load(row)) == lightest).copied().collect()
}

fn judge(_: &Batch, setting: &Setting, _: usize, ours: &World, case: &Case, tally: &mut Tally) -> Result<(), String> {
    let theirs = dynamo::World::new(case);
    let plugin = dynamo::policy(&SHIPPED, NAME, &setting.config, case).map_err(|error| error.to_string())?;
    for (number, ask) in case.asks.iter().enumerate() {
        let our = ours.decide(ask);
        tally.count(&our);
        let their = theirs.decide(&plugin, ask);
        if !same_cost(&our, &their, 0) {
            return Err(format!("ask {number}: {our:?}, Dynamo {their:?}"));
        }
        let (Verdict::Chosen(our, _), Verdict::Chosen(their, _)) = (&our, &their) else { continue };
        let equals = equals(case, ask, &theirs.rows(ask, false));
        if equals.first() != Some(our) || !equals.contains(their) {
            return Err(format!("ask {number}: {our}, Dynamo {their}, equals {equals:?}"));
        }
        tally.ties += usize::from(our != their);
    }
    Ok(())
}

#[test]
fn the_two_tier_rule_takes_the_first_of_dynamos_equals() {
    let tally = check(&subject::<TwoTierCostFn>(NAME), CASES, parameters(), judge);
    tally.assert_covers_eligibility();
    assert!(tally.ties > 0, "no two workers tied: {tally}");
}
