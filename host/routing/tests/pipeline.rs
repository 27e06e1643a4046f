//! The pipeline in Dynamo's order with its validations, the fault settings, and load accounting, with scripted policies.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::sync::Arc;

use common::{Script, reads, router, workers};
use pointsman_contract::Reads;
use pointsman_routing::config::{FaultAction, OnFault, PolicyConfig};
use pointsman_routing::{
    Affinity, DecideError, Decision, InstanceSpec, Load, Partition, PartitionKey, Provider, Request, Role, Router,
    RouterError, Stage, WorkerConfig, WorkerKey,
};
use pointsman_sandbox::Outcome;

fn nothing() -> Reads {
    Reads::default()
}

fn partition_of(router: &Router, ids: impl IntoIterator<Item = u64>) -> Arc<Partition> {
    let partition = router.partition(&PartitionKey::default(), 16).unwrap();
    workers(ids).for_each(|worker| partition.upsert_worker(worker).unwrap());
    partition
}

fn decide(script: &Script, rows: u64) -> Result<Decision, DecideError> {
    partition_of(&router(script), 0..rows).decide(&Request::default())
}

/// A router whose YAML is `yaml`, with the scripts registered by name.
fn configured(yaml: &str, scripts: &[(&str, &Script)]) -> Result<Router, RouterError> {
    let config = PolicyConfig::parse("policy.yaml", std::path::Path::new("."), yaml).unwrap();
    let builder = scripts
        .iter()
        .fold(Router::builder(), |builder, (name, script)| builder.register(name, Provider::native((*script).clone())));
    builder.policy_config(config).build()
}

fn stages(script: &Script) -> Vec<&'static str> {
    script.seen().into_iter().map(|seen| seen.stage).collect()
}

#[test]
fn filter_scorer_and_picker_run_in_order_each_over_its_own_columns_and_the_survivors() {
    let script = Script::default()
        .keeping(reads(&["request.blocks"], &[], &["load.active-requests"]), |rows, _| {
            Ok((0..rows).map(|row| row != 1).collect())
        })
        .scoring(reads(&[], &[], &["cache.device-overlap-blocks"]), |rows, _| Ok(vec![2.5; rows as usize]))
        .picking(reads(&[], &[], &["cost"]), |_, _| Ok(1));
    let decision = decide(&script, 3).unwrap();
    assert_eq!((decision.worker, decision.row, decision.cost), (WorkerKey::new(2, 0), 2, 2.5));
    let seen = script.seen();
    assert_eq!(
        seen.iter().map(|seen| (seen.stage, seen.rows)).collect::<Vec<_>>(),
        [("filter", 3), ("score", 2), ("pick", 2)]
    );
    assert_eq!(seen[0].numbers.len(), 1 + 3);
    assert_eq!(seen[1].numbers.len(), 2, "the scorer sees nothing of what the filter declared");
    assert_eq!(seen[2].numbers, [2.5, 2.5]);
}

#[test]
fn without_a_scorer_costs_are_zero_and_without_a_picker_the_first_lowest_cost_wins() {
    let picker = Script::default().picking(reads(&[], &[], &["cost"]), |_, _| Ok(2));
    assert_eq!(decide(&picker, 3).unwrap().cost, 0.0);
    assert_eq!(picker.seen()[0].numbers, [0.0, 0.0, 0.0]);
    let scorer = Script::default().scoring(nothing(), |_, _| Ok(vec![3.0, 1.0, 1.0]));
    assert_eq!(decide(&scorer, 3).unwrap().row, 1);
    let filter = Script::default().keeping(nothing(), |_, _| Ok(vec![false, true, true]));
    assert_eq!(decide(&filter, 3).unwrap().row, 1);
}

#[test]
fn filters_that_reject_every_row_are_an_answer_not_a_fault_and_nothing_else_runs() {
    let script = Script::default()
        .keeping(nothing(), |rows, _| Ok(vec![false; rows as usize]))
        .scoring(nothing(), |_, _| Err("must not be called".to_owned()));
    let partition = partition_of(&router(&script), 0..3);
    assert_eq!(partition.decide(&Request::default()).unwrap_err(), DecideError::AllEligibleWorkersFiltered);
    assert_eq!(stages(&script), ["filter"]);
    assert_eq!(partition.counts().faults.iter().sum::<u64>(), 0);
    assert_eq!(partition.counts().refused, 1);
}

/// Whatever is wrong with an answer: the default decides, the fault is counted, the next decision is normal.
#[test]
fn a_bad_answer_falls_back_is_counted_and_does_not_poison_the_next_decision() {
    let costs: [(&str, Vec<f64>); 5] = [
        ("NaN", vec![0.0, f64::NAN, 0.0]),
        ("infinity", vec![0.0, f64::INFINITY, 0.0]),
        ("too few", vec![0.0; 2]),
        ("too many", vec![0.0; 4]),
        ("none", Vec::new()),
    ];
    for (what, costs) in costs {
        let bad = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let flag = Arc::clone(&bad);
        let script = Script::default().scoring(nothing(), move |_, _| {
            Ok(if flag.swap(false, std::sync::atomic::Ordering::Relaxed) { costs.clone() } else { vec![2.0, 1.0, 0.0] })
        });
        let partition = partition_of(&router(&script), 0..3);
        let decision = partition.decide(&Request::default()).unwrap();
        assert_eq!((decision.outcome, decision.fallback), (Outcome::BadAnswer, true), "{what}");
        let next = partition.decide(&Request::default()).unwrap();
        assert_eq!((next.outcome, next.fallback, next.row), (Outcome::Ok, false, 2), "{what}");
        let counts = partition.counts();
        assert_eq!((counts.decided, counts.fallbacks, counts.faults[Outcome::BadAnswer as usize]), (2, 1, 1), "{what}");
    }
}

#[test]
fn a_row_out_of_range_and_an_error_of_the_policy_fall_back_under_their_names() {
    let picker = Script::default().picking(nothing(), |rows, _| Ok(rows));
    assert_eq!(decide(&picker, 3).unwrap().outcome, Outcome::BadAnswer);
    let failing = Script::default().scoring(nothing(), |_, _| Err("load input unavailable".to_owned()));
    assert_eq!(decide(&failing, 3).unwrap().outcome, Outcome::PolicyError);
}

#[test]
fn a_sum_that_overflows_is_refused_though_each_cost_is_finite() {
    let big = Script::default().scoring(nothing(), |rows, _| Ok(vec![1e308; rows as usize]));
    let yaml = "worker_selection:\n  aggregated: both\n  instances:\n    - {name: a, type: big, on_fault: reject}\n    \
                - {name: b, type: big, on_fault: reject}\n    - name: both\n      pipeline: {scorers: [a, b]}\n";
    let partition = partition_of(&configured(yaml, &[("big", &big)]).unwrap(), 0..2);
    let DecideError::Refused { outcome, stage, instance, .. } = partition.decide(&Request::default()).unwrap_err()
    else {
        panic!("an overflow must be refused")
    };
    assert_eq!((outcome, stage, instance.as_str()), (Outcome::BadAnswer, Stage::Score, "b"));
}

#[test]
fn on_fault_reject_refuses_with_the_outcomes_name_and_books_nothing() {
    let script = Script::default().scoring(nothing(), |_, _| Err("no".to_owned()));
    let on_fault = OnFault { filter: FaultAction::Reject, otherwise: FaultAction::Reject };
    let router = Router::builder()
        .register("script", Provider::native(script.clone()))
        .serve(InstanceSpec::new("script").on_fault(on_fault))
        .build()
        .unwrap();
    let partition = partition_of(&router, 0..2);
    let error = partition.decide(&Request::default()).unwrap_err();
    assert_eq!(error.name(), "policy-error");
    assert!(error.to_string().contains("`script`") && error.to_string().contains("no"), "{error}");
    assert_eq!(partition.load(WorkerKey::new(0, 0)), Some(Load::default()));
}

#[test]
fn after_a_scorers_fault_the_default_decides_among_the_kept_rows_only() {
    let script = Script::default()
        .keeping(nothing(), |rows, _| Ok((0..rows).map(|row| row == 2).collect()))
        .scoring(nothing(), |_, _| Err("no".to_owned()));
    for _ in 0..20 {
        let decision = decide(&script, 4).unwrap();
        assert_eq!((decision.row, decision.fallback), (2, true));
    }
}

/// The default would take row 0 here; the filter would refuse it.
#[test]
fn a_filter_that_fails_never_lets_through_a_row_that_it_would_have_refused() {
    let attempts = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let build = |fails: u32, on_fault: OnFault| {
        let attempts = Arc::clone(&attempts);
        attempts.store(0, std::sync::atomic::Ordering::Relaxed);
        let script = Script::default().keeping(nothing(), move |rows, _| {
            let attempt = attempts.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if attempt < fails { Err("no".to_owned()) } else { Ok((0..rows).map(|row| row == 1).collect()) }
        });
        let router = Router::builder()
            .register("script", Provider::native(script))
            .serve(InstanceSpec::new("script").on_fault(on_fault))
            .build()
            .unwrap();
        partition_of(&router, 0..2).decide(&Request::default())
    };
    let once_more = build(1, OnFault::default()).unwrap();
    assert_eq!((once_more.row, once_more.fallback), (1, true), "asked once more, it says which rows it keeps");
    assert_eq!(build(2, OnFault::default()).unwrap_err().name(), "policy-error");
    let open = OnFault { filter: FaultAction::Fallback, otherwise: FaultAction::Fallback };
    assert_eq!(build(2, open).unwrap().row, 0, "unless the instance says so");
    let strict = OnFault { filter: FaultAction::Reject, otherwise: FaultAction::Reject };
    assert_eq!(build(1, strict).unwrap_err().name(), "policy-error");
}

#[test]
fn a_map_that_lets_a_failing_filter_fall_back_does_so_whatever_it_says_of_the_rest() {
    let script = Script::default().keeping(nothing(), |_, _| Err("no".to_owned()));
    let on_fault = OnFault { filter: FaultAction::Fallback, otherwise: FaultAction::Reject };
    let router = Router::builder()
        .register("script", Provider::native(script))
        .serve(InstanceSpec::new("script").on_fault(on_fault))
        .build()
        .unwrap();
    assert!(partition_of(&router, 0..2).decide(&Request::default()).unwrap().fallback);
}

#[test]
fn every_fault_is_counted_also_where_the_filter_then_keeps_no_row() {
    let calls = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let script = Script::default().keeping(nothing(), move |rows, _| {
        let first = calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
        if first { Err("no".to_owned()) } else { Ok(vec![false; rows as usize]) }
    });
    let partition = partition_of(&router(&script), 0..2);
    assert_eq!(partition.decide(&Request::default()).unwrap_err(), DecideError::AllEligibleWorkersFiltered);
    assert_eq!(partition.counts().faults[Outcome::PolicyError as usize], 1);
    let always = Script::default().keeping(nothing(), |_, _| Err("no".to_owned()));
    let partition = partition_of(&router(&always), 0..2);
    assert!(partition.decide(&Request::default()).is_err());
    assert_eq!(partition.counts().faults[Outcome::PolicyError as usize], 2, "asked once more, it failed again");
}

#[test]
fn a_fallback_stays_with_the_affinity_target_while_it_is_among_the_kept_rows() {
    let script = Script::default().scoring(nothing(), |_, _| Err("no".to_owned()));
    let target = Affinity { worker: 3, rank: None, hard: false };
    let request = Request { affinity: Some(target), ..Request::default() };
    for _ in 0..10 {
        assert_eq!(partition_of(&router(&script), 0..6).decide(&request).unwrap().row, 3);
    }
}

#[test]
fn filters_of_a_pipeline_run_in_order_and_scorers_add_up() {
    let even = Script::default().keeping(nothing(), |rows, _| Ok((0..rows).map(|row| row % 2 == 0).collect()));
    let tail = Script::default().keeping(nothing(), |rows, _| Ok((0..rows).map(|row| row > 0).collect()));
    let one = Script::default().scoring(nothing(), |rows, _| Ok((0..rows).map(f64::from).collect()));
    let two = Script::default().scoring(nothing(), |rows, _| Ok((0..rows).map(|row| f64::from(row) * -3.0).collect()));
    let yaml = "
worker_selection:
  aggregated: all
  instances:
    - {name: even, type: even}
    - {name: tail, type: tail}
    - {name: one, type: one}
    - {name: two, type: two}
    - name: all
      pipeline: {filters: [even, tail], scorers: [one, two]}
";
    let scripts = [("even", &even), ("tail", &tail), ("one", &one), ("two", &two)];
    let partition = partition_of(&configured(yaml, &scripts).unwrap(), 0..7);
    let decision = partition.decide(&Request::default()).unwrap();
    assert_eq!(tail.seen()[0].rows, 4, "the second filter sees the survivors of the first");
    assert_eq!((decision.row, decision.cost), (6, -4.0), "rows 2, 4, 6 are left; the costs of the last are 2 and -6");
}

#[test]
fn a_pipeline_entry_without_the_stage_is_refused_when_the_partition_is_built() {
    let scorer = Script::default().scoring(nothing(), |rows, _| Ok(vec![0.0; rows as usize]));
    let yaml = "worker_selection:\n  aggregated: p\n  instances:\n    - {name: s, type: s}\n    - name: p\n      pipeline: \
                {filters: [s]}\n";
    let error = configured(yaml, &[("s", &scorer)]).unwrap().partition(&PartitionKey::default(), 16).unwrap_err();
    assert!(matches!(error, RouterError::MissingStage { stage: Stage::Filter, .. }), "{error}");
}

#[test]
fn each_partition_has_its_own_guest_built_once_and_its_own_policy() {
    let (a, b) =
        (Script::default().picking(nothing(), |_, _| Ok(0)), Script::default().picking(nothing(), |_, _| Ok(1)));
    let yaml = "
worker_selection:
  instances:
    - {name: a, type: a}
    - {name: b, type: b, parameters: {weight: 2}}
  partitions:
    - {model: small, routing_group: gold, aggregated: a}
    - {model: large, aggregated: b}
    - {routing_group: gold, prefill: b}
";
    let router = configured(yaml, &[("a", &a), ("b", &b)]).unwrap();
    let policy = |model: &str, group: &str, role: Role| {
        let key = PartitionKey { model: model.to_owned(), routing_group: group.to_owned(), role };
        router.partition(&key, 16).unwrap().policy_name().to_owned()
    };
    assert_eq!(policy("small", "gold", Role::Aggregated), "a");
    assert_eq!(policy("large", "iron", Role::Aggregated), "b");
    assert_eq!(policy("large", "gold", Role::Aggregated), "b");
    assert_eq!(policy("small", "iron", Role::Aggregated), "default");
    assert_eq!(policy("small", "gold", Role::Prefill), "b");
    assert_eq!(policy("small", "gold", Role::Decode), "default", "a role that is left out is never another's");
    let before = b.built().len();
    assert_eq!(policy("large", "iron", Role::Aggregated), "b");
    assert_eq!(b.built().len(), before, "asking again builds nothing");
    let built = b.built();
    assert!(built.iter().all(|(_, parameters)| parameters == r#"{"weight":2}"#));
    let seeds: std::collections::BTreeSet<u32> = built.iter().map(|(partition, _)| partition.seed).collect();
    assert_eq!(seeds.len(), built.len(), "every guest has a seed of its own");
}

#[test]
fn exclusive_affinity_narrows_and_advice_does_not() {
    let target = Affinity { worker: 2, rank: None, hard: false };
    let request = Request { affinity: Some(target), ..Request::default() };
    let picker = || Script::default().picking(reads(&["request.affinity-first"], &[], &[]), |_, _| Ok(0));
    let advised = picker();
    assert_eq!(partition_of(&router(&advised), 0..4).decide(&request).unwrap().row, 0);
    assert_eq!((advised.seen()[0].rows, advised.seen().len()), (4, 0));
    let exclusive = picker().exclusive();
    assert_eq!(partition_of(&router(&exclusive), 0..4).decide(&request).unwrap().row, 2);
    let seen = exclusive.seen();
    assert_eq!((seen[0].rows, seen[0].numbers[0]), (1, 0.0), "the target's row among the rows sent");
}

#[test]
fn a_pin_sends_one_row_and_its_errors_never_reach_the_policy() {
    let script = Script::default().picking(nothing(), |_, _| Ok(0));
    let partition = partition_of(&router(&script), 0..3);
    let pinned = |worker| Request { pinned: Some(WorkerKey::new(worker, 0)), ..Request::default() };
    assert_eq!(partition.decide(&pinned(1)).unwrap().row, 1);
    assert_eq!(script.seen()[0].rows, 1);
    assert!(partition.set_overloaded(1, true));
    assert_eq!(partition.decide(&pinned(1)).unwrap_err().name(), "pinned-worker-overloaded");
    assert!(script.seen().is_empty());
}

#[test]
fn a_booking_credits_the_cache_only_where_the_policy_reads_it() {
    let overlap = pointsman_routing::WorkerOverlap { cached_tokens: 48.0, ..Default::default() };
    let overlaps = [overlap];
    let request = Request { prompt_tokens: 64, overlaps: &overlaps, ..Request::default() };
    for (signal, tokens, reads_cache) in [("cache.overlap-blocks", 16.0, true), ("load.available", 64.0, false)] {
        let script = Script::default().picking(reads(&[], &[], &[signal]), |_, _| Ok(0));
        let partition = partition_of(&router(&script), [0]);
        assert_eq!(partition.reads_cache(), reads_cache);
        let decision = partition.decide(&request).unwrap();
        let id = partition.reserve(&request, &decision).unwrap();
        assert_eq!(partition.load(WorkerKey::new(0, 0)).unwrap().active_prefill_tokens, tokens, "{signal}");
        assert!(partition.free(id) && !partition.free(id));
        assert_eq!(partition.load(WorkerKey::new(0, 0)), Some(Load::default()));
    }
}

#[test]
fn a_router_refuses_bad_registrations_and_partitions_in_a_sentence() {
    let script = Script::default().picking(nothing(), |_, _| Ok(0));
    let native = || Provider::native(script.clone());
    let error = |builder: pointsman_routing::RouterBuilder| builder.build().unwrap_err();
    assert_eq!(error(Router::builder().register("", native())), RouterError::EmptyName);
    assert_eq!(error(Router::builder().register("default", native())), RouterError::ReservedDefault);
    let twice = error(Router::builder().register("a", native()).register("a", native()));
    assert_eq!(twice, RouterError::Duplicate { name: "a".to_owned() });
    let router = Router::builder().register("a", native()).serve(InstanceSpec::new("b")).build().unwrap();
    let unknown = router.partition(&PartitionKey::default(), 16).unwrap_err().to_string();
    assert!(unknown.contains("`b`") && unknown.contains("available are a"), "{unknown}");
    let router = Router::builder().build().unwrap();
    let partition = router.partition(&PartitionKey::default(), 16).unwrap();
    assert!(matches!(router.partition(&PartitionKey::default(), 32), Err(RouterError::Conflict { has: 16, .. })));
    assert!(matches!(router.partition(&PartitionKey::default(), 0), Err(RouterError::ZeroBlockSize)));
    let twice = error(Router::builder().metric("queue").metric("queue")).to_string();
    assert!(twice.contains("`metric.queue`"), "{twice}");
    let none = WorkerConfig { ranks: 0, ..WorkerConfig::new(4) };
    assert!(matches!(partition.upsert_worker(none), Err(RouterError::NoRanks { worker: 4 })));
    assert_eq!(partition.policy_name(), "default");
    assert_eq!(partition.decide(&Request::default()).unwrap_err(), DecideError::NoEndpoints);
}
