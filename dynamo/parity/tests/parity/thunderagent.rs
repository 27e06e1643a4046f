//! The worker selection of `thunderagent` beside Dynamo's own, which leaves no tie open.

use pointsman_parity::pointsman::{Batch, World};
use pointsman_parity::{Case, dynamo};
use proptest::prelude::*;
use serde_json::Map;
use thunderagent::ThunderAgent;

use crate::harness::{CASES, SHIPPED, Setting, Tally, check, same_cost, same_row, subject};

const NAME: &str = "thunderagent";

fn judge(_: &Batch, setting: &Setting, _: usize, ours: &World, case: &Case, tally: &mut Tally) -> Result<(), String> {
    let theirs = dynamo::World::new(case);
    let plugin = dynamo::policy(&SHIPPED, NAME, &setting.config, case).map_err(|error| error.to_string())?;
    for (number, ask) in case.asks.iter().enumerate() {
        let our = ours.decide(ask);
        tally.count(&our);
        let their = theirs.decide(&plugin, ask);
        if !same_row(&our, &their) || !same_cost(&our, &their, 0) {
            return Err(format!("ask {number}: {our:?}, Dynamo {their:?}"));
        }
    }
    Ok(())
}

#[test]
fn thunderagent_takes_dynamos_row_at_dynamos_cost() {
    check(&subject::<ThunderAgent>(NAME), CASES, Just(Map::new()), judge).assert_covers_eligibility();
}
