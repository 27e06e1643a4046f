//! Policies of type `wasm` through Dynamo's own registry, YAML and selector, in one process.

mod common;

use std::collections::HashSet;

use common::{Worker, busy, component, crossings, generated, policy_file, policy_of, request, resolve, select, wasm};
use dynamo_kv_router::plugins::RouterPluginRegistry;
use dynamo_kv_router::plugins::worker_selection::WorkerInputs;
use dynamo_kv_router::protocols::{WorkerAffinityTarget, WorkerWithDpRank};
use dynamo_kv_router::{WorkerSelectionPolicy, WorkerSelector, WorkerType};
use serde_json::{Value, json};

/// How many requests the native plugins and their components are compared over.
const REQUESTS: usize = 10_000;

fn inputs(policy: &WorkerSelectionPolicy) -> WorkerInputs {
    WorkerSelector::<Worker>::required_worker_inputs(policy)
}

fn chosen(policy: &WorkerSelectionPolicy, active_requests: &[usize]) -> Result<u64, String> {
    let (workers, request) = busy(active_requests);
    select(policy, &workers, &request, 16).map(|worker| worker.worker_id)
}

#[test]
fn a_file_of_dynamos_form_selects_components_by_role() {
    let path = component("least-busy");
    let yaml = format!(
        "worker_selection:
  aggregated: fewest
  decode: enough-overlap
  instances:
    - name: fewest
      type: wasm
      parameters: {{component: least-loaded}}
    - name: enough-overlap
      type: wasm
      parameters:
        component: {}
        parameters: {{min_device_overlap_blocks: 4}}
        limits: {{fuel_base: 2000000}}
        on_fault: reject
        seed: 18446744073709551615
",
        path.display()
    );
    let (workers, mut request) = busy(&[3, 1, 2]);
    for (id, blocks) in [(0, 4), (1, 3), (2, 9)] {
        request.overlap.tier_overlap_blocks.device.insert(WorkerWithDpRank::from_worker_id(id), blocks);
    }
    let selected = |role| select(&policy_of(&yaml, "m", role), &workers, &request, 16).unwrap().worker_id;
    assert_eq!(selected(WorkerType::Aggregated), 1);
    assert_eq!(selected(WorkerType::Decode), 2, "the fewest requests among those with 4 blocks");
}

#[test]
fn the_type_is_registered_once() {
    let mut registry = RouterPluginRegistry::default();
    pointsman_dynamo::register(&mut registry, None).unwrap();
    let twice = pointsman_dynamo::register(&mut registry, None).unwrap_err();
    assert!(twice.to_string().contains("\"wasm\" is already registered"), "{twice}");
}

#[test]
fn what_is_wrong_stops_the_start_with_its_cause() {
    let text = component("faulty").with_extension("txt");
    std::fs::write(&text, "no component").unwrap();
    let faulty = component("faulty");
    let loaded = |more: Value| {
        let mut parameters = json!({"component": "least-loaded"});
        parameters.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        parameters
    };
    let own = |parameters: Value| json!({"component": faulty, "parameters": parameters});
    let cases: Vec<(Value, &[&str])> = vec![
        (json!({}), &["missing field `component`"]),
        (loaded(json!({"limit": {}})), &["unknown field `limit`", "`limits`"]),
        (
            json!({"component": "least-loadde"}),
            &["least-loadde cannot be read", "least-loaded, least-loaded-warm, max-in-flight"],
        ),
        (json!({"component": text}), &["is not WebAssembly"]),
        (loaded(json!({"parameters": {"x": 1}})), &["`least-loaded` cannot start in role aggregated", "`x`"]),
        (loaded(json!({"parameters": 1})), &["invalid type: integer `1`", "map"]),
        (
            loaded(json!({"limits": {"fuel_bsae": 1}})),
            &["limits.fuel_bsae: unknown field", "did you mean `fuel_base`?"],
        ),
        (loaded(json!({"limits": {"deadline_us": 0}})), &["limits.deadline_us"]),
        (loaded(json!({"limits": {"start_fuel": 10}})), &["least-loaded", "fuel of 10 (start_fuel)"]),
        (loaded(json!({"on_fault": "retry"})), &["on_fault: ", "reject, fallback"]),
        (loaded(json!({"on_fault": {"filter": null}})), &["on_fault.filter has no value"]),
        (loaded(json!({"seed": -1})), &["invalid value: integer `-1`", "u64"]),
        (loaded(json!({"filter": "in-scorer"})), &["unknown variant `in-scorer`", "`in-picker`"]),
        (own(json!({"evry": 1})), &["cannot start", "`evry`"]),
        (own(json!({"signal": "worker.total-kv-blocks"})), &["`worker.total-kv-blocks`, which Dynamo 1.6.1 does not"]),
        (own(json!({"signal": "worker.max-num-batched-tokens"})), &["`worker.max-num-batched-tokens`, which"]),
        (own(json!({"signal": "load.decode-blocks"})), &["`load.decode-blocks`, which Dynamo 1.6.1 does not show"]),
        (own(json!({"signal": "load.added-blocks"})), &["`load.added-blocks`, which Dynamo 1.6.1 does not show"]),
        (own(json!({"signal": "metric.queue-depth"})), &["stage pick", "`metric.queue-depth`"]),
        (own(json!({"signal": "label.tier"})), &["stage pick", "`label.tier`"]),
    ];
    for (parameters, words) in cases {
        let Err(error) = resolve(&policy_file("wasm", &parameters)) else { panic!("{parameters} is accepted") };
        let start = "invalid parameters for worker-selection policy type \"wasm\": ";
        assert!(error.starts_with(start), "{parameters}: {error}");
        assert!(!error.contains("worker_selection.") && error.lines().count() == 1, "{parameters}: {error}");
        for word in words {
            assert!(error.contains(word), "{parameters}: {error}");
        }
    }
    let not_finite = "worker_selection: {aggregated: x, instances: [{name: x, type: wasm, parameters: \
                      {component: dynamo-default-cost-fn, parameters: {router_temperature: .nan}}}]}";
    let error = resolve(not_finite).err().unwrap();
    assert!(error.contains("parameters.router_temperature has no value"), "{error}");
}

#[test]
fn a_model_that_only_its_partition_refuses_is_answered_with_the_policys_words() {
    let parameters = json!({"component": component("faulty"), "parameters": {"refuses_model": "m"}});
    let yaml = policy_file("wasm", &parameters);
    let refused = policy_of(&yaml, "m", WorkerType::Aggregated);
    for _ in 0..2 {
        let error = chosen(&refused, &[1, 0]).unwrap_err();
        assert!(error.contains("it does not serve the model m"), "{error}");
    }
    assert_eq!(chosen(&policy_of(&yaml, "n", WorkerType::Aggregated), &[1, 0]), Ok(1));
}

#[test]
fn dynamo_is_asked_for_what_the_policy_declares_and_load_for_the_fallback() {
    let of = |component: &Value, more: Value| {
        let mut parameters = json!({ "component": component });
        parameters.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        inputs(&wasm(&parameters))
    };
    let reject = json!({"on_fault": {"filter": "reject", "otherwise": "reject"}});
    assert_eq!(of(&json!("random"), reject.clone()), WorkerInputs::NONE);
    assert_eq!(of(&json!("random"), json!({})), WorkerInputs::LOAD);
    assert_eq!(of(&json!("random"), json!({"on_fault": "last-good"})), WorkerInputs::LOAD);
    assert_eq!(of(&json!("least-loaded"), reject.clone()), WorkerInputs::LOAD);
    let two_tier = of(&json!("dynamo-two-tier-cost-fn"), reject.clone());
    assert_eq!(two_tier, WorkerInputs::CACHE | WorkerInputs::LOAD);
    let all = WorkerInputs::CACHE | WorkerInputs::LOAD | WorkerInputs::PREFERRED_TAINT;
    assert_eq!(of(&json!("dynamo-default-cost-fn"), reject.clone()), all);
    let blind = json!({"parameters": {"overlap_score_credit": 0}, "on_fault": "reject"});
    assert_eq!(of(&json!("dynamo-default-cost-fn"), blind), WorkerInputs::LOAD | WorkerInputs::PREFERRED_TAINT);
    let own = component("least-busy");
    let least_busy = json!({"parameters": {"min_device_overlap_blocks": 0}, "on_fault": "reject"});
    assert_eq!(of(&json!(own), least_busy), WorkerInputs::CACHE | WorkerInputs::LOAD);

    let exclusive =
        |name: &str| WorkerSelector::<Worker>::uses_exclusive_affinity_target(&wasm(&json!({ "component": name })));
    assert!(exclusive("dynamo-default-cost-fn") && !exclusive("least-loaded"));
}

#[test]
fn a_decision_crosses_once_without_a_filter_and_once_a_row_with_one() {
    let count = |parameters: &Value, active_requests: &[usize]| {
        let policy = wasm(parameters);
        let (chosen, calls) = crossings(|| chosen(&policy, active_requests));
        let mut calls: Vec<_> = calls.into_iter().collect();
        calls.sort();
        (chosen, calls.iter().map(|(stage, calls)| format!("{calls} {stage}")).collect::<Vec<_>>().join(", "))
    };
    let default = json!({"component": "dynamo-default-cost-fn"});
    assert_eq!(count(&default, &[1, 2, 3]).1, "1 select");
    assert_eq!(count(&json!({"component": component("faulty")}), &[5, 2, 3]), (Ok(1), "1 pick".to_owned()));
    let picky = json!({"component": component("picky"), "parameters": {"most": 4}});
    assert_eq!(count(&picky, &[9, 3, 4, 8, 1]), (Ok(2), "5 keep, 1 score".to_owned()));
    let mut in_picker = picky.clone();
    in_picker["filter"] = json!("in-picker");
    assert_eq!(count(&in_picker, &[9, 3, 4, 8, 1]), (Ok(2), "1 select".to_owned()));
}

#[test]
fn workers_that_are_all_filtered_are_dynamos_error_but_in_the_picker_the_policys() {
    let mut picky = json!({"component": component("picky"), "parameters": {"most": 1}});
    let by_row = wasm(&picky);
    let error = chosen(&by_row, &[2, 3]).unwrap_err();
    assert_eq!(error, "all eligible workers were rejected by policy filters", "{error}");
    assert_eq!(chosen(&by_row, &[2, 1]), Ok(1), "the next one is not affected");
    picky["filter"] = json!("in-picker");
    let in_picker = wasm(&picky);
    let error = chosen(&in_picker, &[2, 3]).unwrap_err();
    assert!(error.starts_with("worker selection policy failed: the policy's filters rejected every worker"), "{error}");
    assert_eq!(chosen(&in_picker, &[2, 1]), Ok(1));
}

#[test]
fn a_fault_costs_a_fallback_or_an_error_and_the_next_decision_is_right() {
    let plenty = json!({"fuel_base": 1_000_000_000_000_u64, "deadline_us": 5_000});
    let cases = [
        ("trap", "trap", json!({})),
        ("spin", "out-of-fuel", json!({})),
        ("spin", "deadline", plenty),
        ("memory", "memory", json!({})),
        ("error", "policy-error", json!({})),
        ("row", "bad-answer", json!({})),
    ];
    // The policy takes worker 2, the native default worker 0, which has the least work.
    let (workers, mut request) = busy(&[2, 2, 1]);
    for (id, blocks) in [(0, 10), (1, 20), (2, 30)] {
        request.worker_loads.get_mut(&WorkerWithDpRank::from_worker_id(id)).unwrap().active_decode_blocks = blocks;
    }
    for (mode, outcome, limits) in cases {
        let mut parameters =
            json!({"component": component("faulty"), "parameters": {"mode": mode}, "limits": limits, "smoke": false});
        let policy = wasm(&parameters);
        let decide = || select(&policy, &workers, &request, 16).unwrap().worker_id;
        assert_eq!([decide(), decide(), decide()], [2, 0, 2], "{mode}");
        parameters["on_fault"] = json!("reject");
        let policy = wasm(&parameters);
        let decide = || select(&policy, &workers, &request, 16);
        assert_eq!(decide().unwrap().worker_id, 2, "{mode}");
        let error = decide().unwrap_err();
        assert!(error.starts_with("worker selection policy failed: ") && error.contains(outcome), "{mode}: {error}");
        assert!(error.contains("faulty"), "the component is named: {error}");
        assert_eq!(decide().unwrap().worker_id, 2, "{mode}");
    }
}

#[test]
fn a_filter_that_fails_is_asked_once_more_and_stays_a_hard_rule() {
    let of = |traps_every: u32, on_fault: Value| {
        let parameters = json!({"most": 4, "traps_every": traps_every});
        wasm(&json!({"component": component("picky"), "parameters": parameters, "on_fault": on_fault, "smoke": false}))
    };
    let loads = [9, 3, 4, 8, 1];
    // The fourth row asked about traps; a fresh guest answers for it and the rows after it. The default then decides
    // among those that were kept: workers 1, 2 and 4 cost it the same.
    let (answer, calls) = crossings(|| chosen(&of(4, json!("fallback")), &loads));
    assert!([Ok(1), Ok(2), Ok(4)].contains(&answer), "{answer:?}");
    assert_eq!((calls["keep"], calls.get("score")), (6, None), "one row was asked about twice");
    let error = chosen(&of(1, json!("fallback")), &loads).unwrap_err();
    assert!(error.contains("stage filter (trap)"), "{error}");
    let both = json!({"filter": "reject", "otherwise": "reject"});
    let (answer, calls) = crossings(|| chosen(&of(4, both), &loads));
    assert!(answer.unwrap_err().contains("stage filter (trap)"));
    assert_eq!(calls["keep"], 4, "nobody is asked again");
    // A filter that never answers costs two calls, whatever the number of rows.
    let (answer, calls) = crossings(|| chosen(&of(1, json!({"filter": "fallback"})), &loads));
    assert!(answer.is_ok(), "{answer:?}");
    assert_eq!(calls["keep"], 2);
    // A fault of one selection does not reach the next.
    let policy = of(9, json!("fallback"));
    assert_eq!(chosen(&policy, &loads), Ok(2));
    let (answer, calls) = crossings(|| chosen(&policy, &loads));
    assert!([Ok(1), Ok(2), Ok(4)].contains(&answer) && calls["keep"] == 6, "{answer:?} {calls:?}");
    let (answer, calls) = crossings(|| chosen(&policy, &loads));
    assert_eq!((answer, calls["keep"], calls["score"]), (Ok(2), 5, 1));
}

#[test]
fn rows_are_sorted_and_ranks_and_numbers_find_their_way_back() {
    let (mut workers, mut request) = busy(&[]);
    for id in [40, 3, 700, 12] {
        workers.insert(id, Worker { ranks: 2, ..Worker::default() });
    }
    let turns = wasm(&json!({"component": "round-robin"}));
    let decide = |request: &_| select(&turns, &workers, request, 16).unwrap();
    let first: Vec<_> = (0..8).map(|_| decide(&request)).collect();
    assert_eq!(first.iter().collect::<HashSet<_>>().len(), 8, "each rank once: {first:?}");
    assert!(first.is_sorted(), "in the order of (worker id, rank): {first:?}");
    request.affinity_target = Some(WorkerAffinityTarget::new(12, None));
    let soft = wasm(&json!({"component": "soft-pin-repin", "parameters": {"max_active_requests": 1}}));
    assert_eq!(select(&soft, &workers, &request, 16).unwrap().worker_id, 12);
    request.affinity_target = Some(WorkerAffinityTarget::new(700, Some(1)));
    assert_eq!(select(&soft, &workers, &request, 16), Ok(WorkerWithDpRank::new(700, 1)));
    request.affinity_target = Some(WorkerAffinityTarget::new(701, None));
    assert_eq!(select(&soft, &workers, &request, 16), Ok(WorkerWithDpRank::new(3, 0)), "no row of the target");
}

#[test]
fn a_seed_makes_a_drawing_policy_repeatable() {
    let draw = |seed: Value| {
        let mut parameters = json!({"component": "random"});
        if !seed.is_null() {
            parameters["seed"] = seed;
        }
        let policy = wasm(&parameters);
        (0..64).map(|_| chosen(&policy, &[0; 50]).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(draw(json!(7)), draw(json!(7)));
    assert_ne!(draw(json!(7)), draw(json!(8)));
    assert_ne!(draw(json!(null)), draw(json!(null)), "else it is drawn at start");
}

#[test]
fn components_decide_as_dynamos_native_plugins() {
    // What the plugin is registered as is the component's name, too.
    let cases = [
        ("dynamo-default-cost-fn", json!({})),
        ("dynamo-default-cost-fn", json!({"overlap_score_credit_decay": 0.5, "shared_cache_multiplier": 0.7})),
        ("dynamo-two-tier-cost-fn", json!({"balance_abs_threshold": 50})),
        ("thunderagent", json!({})),
    ];
    for (number, (name, parameters)) in (0..).zip(cases) {
        let native = policy_file(name, &parameters);
        let ours = policy_file("wasm", &json!({"component": name, "parameters": parameters}));
        for (role, block_size) in [(WorkerType::Aggregated, 16), (WorkerType::Prefill, 64), (WorkerType::Decode, 1)] {
            let [native, ours] = [&native, &ours].map(|yaml| policy_of(yaml, "m", role));
            let mut rng = fastrand::Rng::with_seed(number);
            for turn in 0..REQUESTS / 3 + 1 {
                let (workers, request) = generated(&mut rng, 40);
                let of = |policy| select(policy, &workers, &request, block_size);
                let found = of(&ours);
                // Dynamo's default draws among equals, which are rare here: what it ever draws is one of them.
                let drawn = (0..64).map(|_| of(&native)).any(|expected| expected == found);
                assert!(drawn, "{name} {parameters}, {role}, request {turn}: {found:?}, not {:?}", of(&native));
            }
        }
    }
}

#[test]
fn an_empty_request_table_is_dynamos_to_answer() {
    let policy = wasm(&json!({"component": "least-loaded"}));
    let error = select(&policy, &common::Workers::new(), &request(), 16).unwrap_err();
    assert!(error.contains("no endpoints"), "{error}");
}
