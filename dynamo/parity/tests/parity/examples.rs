//! The examples of Dynamo's repository that no crate ships: each written once more against Dynamo's own traits, run by
//! Dynamo's selector, beside the built-in policy. Where a rule leaves a tie open, these take what ours documents.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use cache_affinity_budget::CacheAffinityBudget;
use disagg_filter_score_pick::DisaggFilterScorePick;
use dynamo_kv_router::plugins::worker_selection::{
    WorkerFilter, WorkerInputView, WorkerInputs, WorkerPicker, WorkerScorer, WorkerSelectionInputTrigger,
    WorkerSelectionPolicy, WorkerSelectionPolicyError,
};
use dynamo_kv_router::protocols::WorkerWithDpRank;

use pointsman_parity::pointsman::{Batch, World};
use pointsman_parity::{Case, dynamo};
use pointsman_routing::Role;
use proptest::prelude::*;
use serde_json::{Map, Value};
use simple_filter_score_pick::SimpleFilterScorePick;
use simple_stacked_score_pick::SimpleStackedScorePick;
use soft_pin_repin::SoftPinRepin;
use subagent_group_affinity::SubagentGroupAffinity;

use crate::harness::{Setting, Tally, check, map, same_cost, same_row, subject};
use crate::plugin::{Context, cheapest, keep, pick, policy, score, sorted};

/// Cases in an ordinary run, for each example.
const CASES: usize = 4_000;

/// Milliseconds since the start, as the request says them: Dynamo's context has no time.
type Clock = Arc<Mutex<f64>>;

/// Judges by a policy written here.
fn by(
    oracle: impl Fn(&Setting, &Case, &Clock) -> WorkerSelectionPolicy,
) -> impl Fn(&Batch, &Setting, usize, &World, &Case, &mut Tally) -> Result<(), String> {
    move |_, setting, _, ours, case, tally| {
        let theirs = dynamo::World::new(case);
        let clock = Clock::default();
        let oracle = oracle(setting, case, &clock);
        for (number, ask) in case.asks.iter().enumerate() {
            *clock.lock().unwrap() = ask.now_ms;
            let our = ours.decide(ask);
            tally.count(&our);
            let their = theirs.decide(&oracle, ask);
            if !same_row(&our, &their) || !same_cost(&our, &their, 0) {
                return Err(format!("ask {number}: {our:?}, Dynamo {their:?}"));
            }
        }
        Ok(())
    }
}

fn nobody() -> WorkerSelectionPolicyError {
    WorkerSelectionPolicyError::failed("no eligible worker")
}

fn number(case: &Case, name: &str) -> f64 {
    case.parameters[name].as_f64().unwrap()
}

/// One required parameter.
fn required(
    name: &'static str,
    value: impl Strategy<Value = Value> + 'static,
) -> BoxedStrategy<(String, Option<Value>)> {
    value.prop_map(move |value| (name.to_owned(), Some(value))).boxed()
}

fn blocks() -> impl Strategy<Value = Value> {
    prop_oneof![2 => Just(0.0), 2 => 0.0..3.0, 1 => 0.0..200.0].prop_map(Value::from)
}

fn requests() -> impl Strategy<Value = Value> {
    prop_oneof![2 => 0..4_u64, 1 => 0..200_u64].prop_map(Value::from)
}

fn enough_on_device(least: f64) -> Box<dyn WorkerFilter> {
    keep(WorkerInputs::CACHE, move |_, worker| Ok(worker.cache().unwrap().device_overlap_blocks() >= least))
}

fn active_requests() -> Box<dyn WorkerScorer> {
    score(WorkerInputs::LOAD, |_, workers, costs| {
        for (worker, cost) in workers.iter().zip(costs) {
            *cost = worker.load().unwrap().active_requests() as f64;
        }
        Ok(())
    })
}

fn uncached_blocks() -> Box<dyn WorkerScorer> {
    score(WorkerInputs::CACHE, |context, workers, costs| {
        for (worker, cost) in workers.iter().zip(costs) {
            let device = worker.cache().unwrap().device_overlap_blocks();
            *cost = (context.request_blocks() as f64 - device).max(0.0);
        }
        Ok(())
    })
}

#[test]
fn simple_filter_score_pick_asks_for_a_prefix_and_sends_a_tools_result_to_the_longest() {
    let tools_result = |context: &Context<'_>| {
        let trigger = context.session_context().and_then(|session| session.input_trigger());
        trigger == Some(WorkerSelectionInputTrigger::ToolResult)
    };
    let oracle = move |_: &Setting, case: &Case, _: &Clock| {
        let picker = pick(WorkerInputs::CACHE, move |context, input| {
            let (candidates, cache) = (input.candidates(), input.cache().unwrap());
            let device = |place: &usize| cache.get(*place).unwrap().device_overlap_blocks();
            let places = sorted(candidates).into_iter();
            let row = match tools_result(context) {
                true => places.max_by(|one, other| device(one).total_cmp(&device(other))),
                false => places.min_by(|one, other| candidates[*one].cost().total_cmp(&candidates[*other].cost())),
            };
            row.ok_or_else(nobody)
        });
        let filter = enough_on_device(number(case, "min_device_overlap_blocks"));
        policy(vec![filter], vec![active_requests()], picker)
    };
    let subject = subject::<SimpleFilterScorePick>("simple-filter-score-pick");
    let tally = check(&subject, CASES, map(vec![required("min_device_overlap_blocks", blocks())]), by(oracle));
    tally.assert_covers_eligibility();
    assert!(tally.refused("Filtered") > 0, "{tally}");
}

#[test]
fn simple_stacked_score_pick_adds_active_requests_and_uncached_blocks() {
    let oracle =
        |_: &Setting, _: &Case, _: &Clock| policy(Vec::new(), vec![active_requests(), uncached_blocks()], cheapest());
    let subject = subject::<SimpleStackedScorePick>("simple-stacked-score-pick");
    check(&subject, CASES, Just(Map::new()), by(oracle)).assert_covers_eligibility();
}

#[test]
fn disagg_filter_score_pick_costs_by_role_and_refuses_the_others() {
    let prefill = || {
        score(WorkerInputs::CACHE | WorkerInputs::LOAD, |context, workers, costs| {
            for (worker, cost) in workers.iter().zip(costs) {
                let active = worker.load().unwrap().active_prefill_tokens() as f64 / f64::from(context.block_size());
                let device = worker.cache().unwrap().device_overlap_blocks();
                *cost = active + (context.request_blocks() as f64 - device).max(0.0);
            }
            Ok(())
        })
    };
    let decode = || {
        score(WorkerInputs::LOAD, |_, workers, costs| {
            for (worker, cost) in workers.iter().zip(costs) {
                *cost = worker.load().unwrap().decode_cost_blocks();
            }
            Ok(())
        })
    };
    let oracle = move |_: &Setting, case: &Case, _: &Clock| {
        let filter = enough_on_device(number(case, "min_device_overlap_blocks"));
        let (scorers, picker) = match case.role {
            Role::Prefill => (vec![prefill()], cheapest()),
            Role::Decode => (vec![decode()], cheapest()),
            role => (
                Vec::new(),
                pick(WorkerInputs::NONE, move |_, _| {
                    Err(WorkerSelectionPolicyError::failed(format!("no rule for {role}")))
                }),
            ),
        };
        policy(vec![filter], scorers, picker)
    };
    let subject = subject::<DisaggFilterScorePick>("disagg-filter-score-pick");
    let tally = check(&subject, CASES, map(vec![required("min_device_overlap_blocks", blocks())]), by(oracle));
    assert!(tally.refused("Filtered") > 0 && tally.refused("PolicyError") > 0, "{tally}");
}

/// The least loaded of the rows that `allow` lets through, the first row among equals.
fn least_loaded(input: &WorkerInputView<'_>, allow: impl Fn(WorkerWithDpRank) -> bool) -> Option<(usize, usize)> {
    let (candidates, load) = (input.candidates(), input.load()?);
    let places = sorted(candidates).into_iter().filter(|place| allow(candidates[*place].worker()));
    places.map(|place| (place, load[place].active_requests())).min_by_key(|(_, active)| *active)
}

#[test]
fn soft_pin_repin_leaves_a_target_with_too_many_requests() {
    let oracle = |_: &Setting, case: &Case, _: &Clock| {
        let most = case.parameters["max_active_requests"].as_u64().unwrap() as usize;
        let picker = pick(WorkerInputs::LOAD, move |context, input| {
            let target = context.affinity_target();
            let is_target = |worker: WorkerWithDpRank| {
                target.is_some_and(|target| {
                    target.worker_id == worker.worker_id && target.dp_rank.is_none_or(|rank| rank == worker.dp_rank)
                })
            };
            let kept = least_loaded(&input, is_target);
            let taken = match kept {
                Some((_, active)) if active <= most => kept,
                _ => least_loaded(&input, |worker| !is_target(worker)).or(kept),
            };
            taken.map(|(place, _)| place).ok_or_else(nobody)
        });
        policy(Vec::new(), Vec::new(), picker)
    };
    let subject = subject::<SoftPinRepin>("soft-pin-repin");
    let parameters = map(vec![required("max_active_requests", requests())]);
    check(&subject, CASES, parameters, by(oracle)).assert_covers_eligibility();
}

/// Which row each parent's group is bound to, and when it was used last.
#[derive(Default)]
struct Groups {
    bound: HashMap<String, (WorkerWithDpRank, f64)>,
    swept_ms: Option<f64>,
}

impl Groups {
    /// Drops the groups that are idle for `idle_ms`, once in that time at most.
    fn sweep(&mut self, now_ms: f64, idle_ms: f64) {
        if now_ms - *self.swept_ms.get_or_insert(now_ms) >= idle_ms {
            self.swept_ms = Some(now_ms);
            self.bound.retain(|_, (_, used_ms)| now_ms - *used_ms < idle_ms);
        }
    }
}

fn groups(most: usize, idle_ms: f64, clock: Clock) -> Box<dyn WorkerPicker> {
    let mut groups = Groups::default();
    pick(WorkerInputs::LOAD, move |context, input| {
        let now_ms = *clock.lock().unwrap();
        let parent = context.session_context().and_then(|session| session.parent_session_id());
        let target = context.affinity_target();
        let mut bound = None;
        if let Some(parent) = parent {
            groups.sweep(now_ms, idle_ms);
            if let Some((worker, used_ms)) = groups.bound.get_mut(parent) {
                *used_ms = now_ms;
                bound = Some(*worker);
            }
        }
        let preferred = |worker: WorkerWithDpRank| match (bound, target) {
            (Some(bound), _) => bound == worker,
            (None, Some(target)) => {
                target.worker_id == worker.worker_id && target.dp_rank.is_none_or(|rank| rank == worker.dp_rank)
            }
            (None, None) => false,
        };
        let other = || least_loaded(&input, |worker| !preferred(worker));
        let kept = least_loaded(&input, preferred);
        let taken = match kept {
            None => other(),
            Some((_, active)) if active <= most => kept,
            Some((_, active)) => other().filter(|(_, fewer)| *fewer < active).or(kept),
        };
        let (place, _) = taken.ok_or_else(nobody)?;
        if let Some(parent) = parent.filter(|_| input.candidates().len() > 1) {
            groups.bound.insert(parent.to_owned(), (input.candidates()[place].worker(), now_ms));
        }
        Ok(place)
    })
}

#[test]
fn subagent_group_affinity_keeps_a_parents_group_together() {
    let oracle = |_: &Setting, case: &Case, clock: &Clock| {
        let most = case.parameters["max_active_requests"].as_u64().unwrap() as usize;
        let picker = groups(most, number(case, "group_idle_ttl_secs") * 1_000.0, Arc::clone(clock));
        policy(Vec::new(), Vec::new(), picker)
    };
    let parameters = map(vec![
        required("max_active_requests", requests()),
        required("group_idle_ttl_secs", (1..400_u64).prop_map(Value::from)),
    ]);
    let subject = subject::<SubagentGroupAffinity>("subagent-group-affinity");
    check(&subject, CASES, parameters, by(oracle)).assert_covers_eligibility();
}

#[test]
fn cache_affinity_budget_takes_the_longest_prefix_near_the_lowest_load() {
    let load = |scale: f64, weight: f64| {
        score(WorkerInputs::LOAD, move |context, workers, costs| {
            for (worker, cost) in workers.iter().zip(costs) {
                let load = worker.load().unwrap();
                let prefill = load.active_prefill_tokens() as f64 / f64::from(context.block_size());
                *cost = load.decode_cost_blocks() + scale * prefill + weight * load.active_requests() as f64;
            }
            Ok(())
        })
    };
    let oracle = move |setting: &Setting, case: &Case, _: &Clock| {
        let most = number(case, "max_load_cost_delta_blocks");
        let picker = pick(WorkerInputs::CACHE, move |_, input| {
            let (candidates, cache) = (input.candidates(), input.cache().unwrap());
            let cost = |place: &usize| candidates[*place].cost();
            let cached = |place: &usize| cache.get(*place).unwrap().accounting_cache_estimate().0;
            let lowest = (0..candidates.len()).map(|place| cost(&place)).fold(f64::INFINITY, f64::min);
            let near = sorted(candidates).into_iter().filter(|place| cost(place) <= lowest + most);
            let best = near.min_by(|one, other| {
                cached(other).total_cmp(&cached(one)).then_with(|| cost(one).total_cmp(&cost(other)))
            });
            best.ok_or_else(nobody)
        });
        let config = setting.config;
        let scorer = load(config.prefill_load_scale, config.decode_active_request_weight);
        policy(Vec::new(), vec![scorer], picker)
    };
    let subject = subject::<CacheAffinityBudget>("cache-affinity-budget");
    let parameters = map(vec![required("max_load_cost_delta_blocks", blocks())]);
    check(&subject, CASES, parameters, by(oracle)).assert_covers_eligibility();
}
