//! `dynamo-default-cost-fn` beside Dynamo's own, as its plugin starts it and with its seeded selector.

use dynamo_custom_policy_builtin::DefaultWorkerSelector;
use dynamo_default_cost_fn::DynamoDefaultCostFn;
use pointsman_parity::generate::{non_negative, parameter};
use pointsman_parity::pointsman::{Batch, World};
use pointsman_parity::{Case, Verdict, dynamo};
use pointsman_routing::{Role, RouterConfig};
use proptest::prelude::*;
use serde_json::{Map, Value};

use crate::harness::{CASES, SHIPPED, Setting, TAINT_ULPS, Tally, check, map, same_cost, same_row, subject};

const NAME: &str = "dynamo-default-cost-fn";

fn parameters() -> impl Strategy<Value = Map<String, Value>> {
    let weights = [
        "overlap_score_credit",
        "overlap_score_credit_decay",
        "prefill_load_scale",
        "decode_active_request_weight",
        "host_cache_hit_weight",
        "disk_cache_hit_weight",
        "shared_cache_multiplier",
    ];
    let mut all: Vec<_> =
        weights.into_iter().map(|name| parameter(name, non_negative().prop_map(Value::from)).boxed()).collect();
    let temperature = prop_oneof![1 => Just(0.0), 1 => non_negative()];
    all.push(parameter("router_temperature", temperature.prop_map(Value::from)).boxed());
    map(all)
}

/// Dynamo's seeded selector for the case. It takes a label in place of a role and so has no plain decode pool: that one
/// reads no cache, as any other does whose overlaps earn no credit.
fn seeded(config: RouterConfig, role: Role, seed: u64) -> DefaultWorkerSelector {
    let plain = role == Role::Decode && !config.conditional_disaggregation;
    let overlap_score_credit = if plain { 0.0 } else { config.overlap_score_credit };
    let settings = dynamo::settings(&RouterConfig { overlap_score_credit, ..config });
    DefaultWorkerSelector::new_seeded(Some(settings), dynamo::worker_type(role).default_selector_label(), seed)
}

fn judge(
    batch: &Batch,
    setting: &Setting,
    index: usize,
    ours: &World,
    case: &Case,
    tally: &mut Tally,
) -> Result<(), String> {
    let theirs = dynamo::World::new(case);
    let config = case.with_parameters(setting.config);
    let plugin = dynamo::policy(&SHIPPED, NAME, &setting.config, case).map_err(|error| error.to_string())?;
    let seeded = seeded(config, case.role, batch.guest_seed(index, case));
    let ulps = if case.prefers() { TAINT_ULPS } else { 0 };
    for (number, ask) in case.asks.iter().enumerate() {
        let our = ours.decide(ask);
        tally.count(&our);
        let free = theirs.decide(&plugin, ask);
        let drawn = theirs.decide(&seeded, ask);
        let differ = |what: &str, their: &Verdict| Err(format!("ask {number}: {what}: {our:?}, Dynamo {their:?}"));

        let one_row = config.router_temperature == 0.0 || same_row(&our, &free);
        if one_row && !same_cost(&our, &free, ulps)
            || matches!(our, Verdict::Refused(_)) != matches!(free, Verdict::Refused(_))
        {
            return differ("the plugin's cost", &free);
        }
        tally.ties += usize::from(one_row && !same_row(&our, &free));

        if same_row(&our, &drawn) {
            if !same_cost(&our, &drawn, ulps) {
                return differ("the seeded selector's cost", &drawn);
            }
            continue;
        }
        // From here on both draw from different places of the stream.
        if case.prefers() && (config.router_temperature > 0.0 || same_cost(&our, &drawn, ulps)) {
            tally.turned += 1;
        } else if config.router_temperature > 0.0
            && matches!((&our, &drawn), (Verdict::Chosen(..), Verdict::Chosen(..)))
        {
            tally.boundaries += 1;
        } else {
            return differ("the seeded selector's row", &drawn);
        }
        break;
    }
    Ok(())
}

#[test]
fn the_default_cost_model_decides_draws_and_costs_as_dynamos() {
    let tally = check(&subject::<DynamoDefaultCostFn>(NAME), CASES, parameters(), judge);
    tally.assert_covers_eligibility();
    assert!(tally.refused("BadAnswer") > 0, "no cost overflowed: {tally}");
    assert!(tally.ties > 0, "no two workers tied: {tally}");
    assert!(tally.boundaries <= tally.decisions / 1_000_000, "{tally}");
    assert!(tally.turned <= tally.decisions / 1_000, "{tally}");
}
