//! Every built-in policy decides the same as a component in one crossing, as a component stage by stage, with NaN bits
//! made equal, and compiled in: the same worker, the same bits of the cost, the same refusals.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::sync::{Arc, OnceLock};

use pointsman_routing::{
    Affinity, Decision, InstanceSpec, Partition, PartitionKey, Provider, Request, ReservationId, Role, Router,
    RouterConfig, Session, StageMode, Trigger, WorkerConfig, WorkerKey, WorkerOverlap,
};
use pointsman_sandbox::{Artifact, Determinism, Sandbox, SandboxConfig};
use pointsman_sdk::native::{NativePolicy, native};

const BLOCK_SIZE: u32 = 16;
const STEPS: usize = 300;

fn sandbox(determinism: Determinism) -> &'static Sandbox {
    static SANDBOXES: [OnceLock<Sandbox>; 2] = [OnceLock::new(), OnceLock::new()];
    SANDBOXES[usize::from(determinism == Determinism::Portable)]
        .get_or_init(|| Sandbox::new(SandboxConfig { determinism, ..SandboxConfig::default() }).unwrap())
}

/// The same policy in each of its forms.
fn forms(
    name: &str,
    policy: impl NativePolicy + 'static,
    parameters: &str,
    role: Role,
) -> Vec<(String, Arc<Partition>)> {
    let component = || {
        let built_in = pointsman_policies::get(name).unwrap();
        Provider::component(Artifact::from_bytes(name, built_in.component).trusted())
    };
    let build = |what: &str, provider: Provider, mode: StageMode, determinism: Determinism| {
        let parameters = serde_json::from_str(parameters).unwrap();
        let router = Router::builder()
            .register(name, provider)
            .serve(InstanceSpec::new(name).parameters(parameters))
            .sandbox(sandbox(determinism).clone())
            .stages(mode)
            .seed(11)
            .build()
            .unwrap();
        (what.to_owned(), router.partition(&PartitionKey::of_role(role), BLOCK_SIZE).unwrap())
    };
    vec![
        build("fused", component(), StageMode::Fused, Determinism::Fast),
        build("separate", component(), StageMode::Separate, Determinism::Fast),
        build("portable", component(), StageMode::Fused, Determinism::Portable),
        build("native", Provider::native(policy), StageMode::Fused, Determinism::Fast),
    ]
}

/// One random request over workers 0 to 11; its texts and lists live outside.
struct Drawn {
    hashes: Vec<u64>,
    overlaps: Vec<WorkerOverlap>,
    shared: Vec<(u32, u32)>,
    allowed: Vec<u64>,
    session: String,
    parent: String,
}

fn draw(rng: &mut fastrand::Rng) -> Drawn {
    let hashes = (0..rng.u64(1..20)).map(|block| block + 1000 * (block / 4) * rng.u64(0..3)).collect();
    let mut overlaps = Vec::new();
    for worker in 0..12 {
        for rank in 0..2 {
            if rng.u8(0..3) == 0 {
                let mut tier = || f64::from(rng.u8(0..6));
                let key = WorkerKey::new(worker, rank);
                let config = RouterConfig::default();
                overlaps.push(WorkerOverlap::from_tiers(key, tier(), tier(), tier(), &config, BLOCK_SIZE));
            }
        }
    }
    Drawn {
        hashes,
        overlaps,
        shared: vec![(0, rng.u32(1..8)), (9, 12)],
        allowed: (0..12).filter(|_| rng.u8(0..4) > 0).collect(),
        session: format!("s{}", rng.u8(0..9)),
        parent: format!("p{}", rng.u8(0..3)),
    }
}

fn request<'a>(drawn: &'a Drawn, step: usize, rng: &mut fastrand::Rng) -> Request<'a> {
    let trigger = [Trigger::UserMessage, Trigger::ToolResult, Trigger::Other][rng.usize(0..3)];
    let session = Session {
        id: &drawn.session,
        parent_id: rng.bool().then_some(&*drawn.parent),
        last: rng.bool().then_some(false),
        trigger: rng.bool().then_some(trigger),
    };
    let target = Affinity { worker: rng.u64(0..14), rank: rng.bool().then_some(0), hard: false };
    Request {
        now_ms: step as f64 * 1500.0,
        prompt_tokens: drawn.hashes.len() as u64 * u64::from(BLOCK_SIZE) - rng.u64(0..16),
        block_hashes: &drawn.hashes,
        tracks_prefill_tokens: rng.u8(0..4) > 0,
        overlaps: &drawn.overlaps,
        shared: rng.bool().then_some(&*drawn.shared),
        allowed: rng.bool().then_some(&*drawn.allowed),
        pinned: (rng.u8(0..12) == 0).then(|| WorkerKey::new(rng.u64(0..12), 0)),
        affinity: rng.bool().then_some(target),
        session: rng.bool().then_some(session),
        preferred_taints: if rng.bool() { &[("even", 0.4), ("low", -0.2)] } else { &[] },
        ..Request::default()
    }
}

fn worker(id: u64, rng: &mut fastrand::Rng) -> WorkerConfig {
    let taints = [("even", id.is_multiple_of(2)), ("low", id < 4)];
    let taints = taints.into_iter().filter(|(_, has)| *has).map(|(taint, _)| taint.to_owned()).collect();
    WorkerConfig { ranks: rng.u32(1..3), taints, total_kv_blocks: Some(1000), ..WorkerConfig::new(id) }
}

fn check(name: &str, policy: impl NativePolicy + 'static, parameters: &str, role: Role) {
    let forms = forms(name, policy, parameters, role);
    let mut rng = fastrand::Rng::with_seed(42);
    let mut booked: Vec<Vec<ReservationId>> = Vec::new();
    let (mut decided, mut chosen) = (0, std::collections::BTreeSet::new());
    for step in 0..STEPS {
        if step < 8 || rng.u8(0..10) == 0 {
            let config = worker(rng.u64(0..12), &mut rng);
            forms.iter().for_each(|(_, partition)| partition.upsert_worker(config.clone()).unwrap());
        }
        if rng.u8(0..20) == 0 {
            let gone = rng.u64(0..12);
            forms.iter().for_each(|(_, partition)| _ = partition.remove_worker(gone));
        }
        if !booked.is_empty() && rng.bool() {
            let ids = booked.swap_remove(rng.usize(0..booked.len()));
            forms.iter().zip(ids).for_each(|((_, partition), id)| assert!(partition.free(id)));
        }
        let drawn = draw(&mut rng);
        let request = request(&drawn, step, &mut rng);
        let answers: Vec<_> = forms.iter().map(|(_, partition)| partition.decide(&request)).collect();
        let facts = |decision: &Decision| (decision.worker, decision.cost.to_bits(), decision.outcome);
        for ((what, _), answer) in forms.iter().zip(&answers) {
            match (answer, &answers[0]) {
                (Ok(answer), Ok(first)) => assert_eq!(facts(answer), facts(first), "{name} {what} at step {step}"),
                (answer, first) => {
                    assert_eq!(answer.as_ref().err(), first.as_ref().err(), "{name} {what} at step {step}")
                }
            }
        }
        if let Ok(decision) = &answers[0] {
            assert!(!decision.fallback, "{name} at step {step}: {}", decision.outcome);
            decided += 1;
            chosen.insert(decision.worker);
            let reserve = |((_, partition), answer): (&(String, Arc<Partition>), &Result<Decision, _>)| {
                partition.reserve(&request, answer.as_ref().unwrap()).unwrap()
            };
            booked.push(forms.iter().zip(&answers).map(reserve).collect());
        }
    }
    assert!(decided > STEPS / 2, "{name} decided {decided} of {STEPS}");
    assert!(chosen.len() > 3, "{name} chose {chosen:?} alone, which shows nothing");
    assert_eq!(forms[0].1.counts().faults, forms[1].1.counts().faults);
}

/// The parameters of the checked-in file.
fn parameters(name: &str) -> String {
    let file: serde_json::Value = serde_json::from_str(include_str!("../../../policies/parameters.json")).unwrap();
    file.get(name).unwrap_or_else(|| panic!("policies/parameters.json lacks {name}")).to_string()
}

macro_rules! equal {
    ($($test:ident: $policy:ty, $name:literal, $role:ident;)*) => {
        const TESTED: &[&str] = &[$($name,)*];

        $(#[test]
        fn $test() {
            check($name, native::<$policy>(), &parameters($name), Role::$role);
        })*
    };
}

equal! {
    adaptive: adaptive::Adaptive, "adaptive", Aggregated;
    cache_affinity_budget: cache_affinity_budget::CacheAffinityBudget, "cache-affinity-budget", Aggregated;
    disagg_filter_score_pick: disagg_filter_score_pick::DisaggFilterScorePick, "disagg-filter-score-pick", Prefill;
    default_cost_fn: dynamo_default_cost_fn::DynamoDefaultCostFn, "dynamo-default-cost-fn", Aggregated;
    two_tier_cost_fn: dynamo_two_tier_cost_fn::TwoTierCostFn, "dynamo-two-tier-cost-fn", Aggregated;
    least_loaded: least_loaded::LeastLoaded, "least-loaded", Aggregated;
    least_loaded_warm: least_loaded_warm::LeastLoadedWarm, "least-loaded-warm", Aggregated;
    power_of_two_choices: power_of_two_choices::PowerOfTwoChoices, "power-of-two-choices", Aggregated;
    random: random::Random, "random", Aggregated;
    round_robin: round_robin::RoundRobin, "round-robin", Aggregated;
    simple_filter_score_pick: simple_filter_score_pick::SimpleFilterScorePick, "simple-filter-score-pick", Aggregated;
    simple_stacked_score_pick: simple_stacked_score_pick::SimpleStackedScorePick, "simple-stacked-score-pick", Aggregated;
    soft_pin_repin: soft_pin_repin::SoftPinRepin, "soft-pin-repin", Aggregated;
    subagent_group_affinity: subagent_group_affinity::SubagentGroupAffinity, "subagent-group-affinity", Aggregated;
    thunderagent: thunderagent::ThunderAgent, "thunderagent", Aggregated;
}

#[test]
fn every_built_in_policy_is_here() {
    let built_in: Vec<_> = pointsman_policies::all().iter().map(|policy| policy.name).collect();
    // tests/classifiers.rs has those that select no worker.
    let mut tested = [TESTED, &["max-in-flight", "queue-budget", "session-serial"]].concat();
    tested.sort_unstable();
    assert_eq!(built_in, tested);
}

#[test]
fn the_default_cost_function_with_every_term_on() {
    let all = r#"{"overlap_score_credit":1.5,"overlap_score_credit_decay":0.3,"prefill_load_scale":0.7,
        "decode_active_request_weight":2.0,"host_cache_hit_weight":0.6,"disk_cache_hit_weight":0.2,
        "shared_cache_multiplier":0.5,"router_temperature":0.7}"#;
    for role in Role::ALL {
        check("dynamo-default-cost-fn", native::<dynamo_default_cost_fn::DynamoDefaultCostFn>(), all, role);
    }
    let decode = r#"{"overlap_score_credit":0,"router_temperature":0.0}"#;
    check("dynamo-default-cost-fn", native::<dynamo_default_cost_fn::DynamoDefaultCostFn>(), decode, Role::Decode);
}

#[test]
fn the_sigmoid_is_equal_in_all_forms() {
    let sigmoid = r#"{"algorithm":"sigmoid","load_scale":1}"#;
    check("adaptive", native::<adaptive::Adaptive>(), sigmoid, Role::Aggregated);
}

#[test]
fn a_filter_that_drops_rows_is_equal_in_all_forms() {
    let some = r#"{"min_device_overlap_blocks":1}"#;
    check(
        "simple-filter-score-pick",
        native::<simple_filter_score_pick::SimpleFilterScorePick>(),
        some,
        Role::Aggregated,
    );
    check("disagg-filter-score-pick", native::<disagg_filter_score_pick::DisaggFilterScorePick>(), some, Role::Decode);
}
