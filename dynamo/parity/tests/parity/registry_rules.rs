//! Registration, start-up and the section `worker_selection`: one test for each rule, on both sides.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use dynamo_default_cost_fn::DynamoDefaultCostFn;
use dynamo_kv_router::plugins::worker_selection::{WorkerSelectionPolicyProvider, WorkerSelectionPolicyRegistryError};
use dynamo_kv_router::plugins::{RouterPluginRegistry, WorkerSelectionPolicyProviderError};
use dynamo_kv_router::{KvRouterConfig, RoutingPartitionRef};
use dynamo_two_tier_cost_fn::TwoTierCostFn;
use pointsman_parity::dynamo;
use pointsman_routing::config::{GLOBAL_VARIABLE, Overrides, PolicyConfig};
use pointsman_routing::{PartitionKey, Provider, Role, Router, RouterConfig, RouterError};
use pointsman_sdk::native::native;
use serde_json::{Value, json};
use thunderagent::ThunderAgent;

use crate::harness::SHIPPED;
use crate::kit::{ask, case, worker, world};
use crate::plugin::{cheapest, policy};
use crate::script::{Script, reads};

fn parsed(text: &str) -> Result<PolicyConfig, String> {
    PolicyConfig::parse("test", Path::new("."), text).map_err(|problems| problems.to_string())
}

/// A provider that takes any parameters.
fn lenient() -> WorkerSelectionPolicyProvider {
    Arc::new(|_| Ok(Arc::new(|_, _, _| policy(Vec::new(), Vec::new(), cheapest()))))
}

fn script() -> Provider {
    Provider::native(Script::default().picking(reads(&[], &[], &[]), |_, _| Ok(0)))
}

/// Settings with a policy file of that text.
fn settings(text: &str) -> KvRouterConfig {
    dynamo::with_policy_file(dynamo::settings(&RouterConfig::default()), text).unwrap()
}

/// Whether Dynamo starts with a policy file of that text, as its hosts read it.
fn they_take(text: &str) -> bool {
    let config = dynamo::with_policy_file(dynamo::settings(&RouterConfig::default()), text);
    config.is_ok_and(|mut config| config.apply_policy_config().and_then(|()| config.validate_config()).is_ok())
}

/// Why Dynamo, with its shipped types, does not start.
fn their_error(config: &KvRouterConfig) -> WorkerSelectionPolicyRegistryError {
    SHIPPED.resolve(config).err().unwrap()
}

/// A policy that Dynamo ships too, compiled in: it reads its parameters as the component does.
fn builtin(name: &str) -> Provider {
    match name {
        "dynamo-default-cost-fn" => Provider::native(native::<DynamoDefaultCostFn>()),
        "dynamo-two-tier-cost-fn" => Provider::native(native::<TwoTierCostFn>()),
        _ => Provider::native(native::<ThunderAgent>()),
    }
}

/// Our router with the built-in policies of the names given.
fn our_router(text: &str, names: &[&str]) -> Result<Router, RouterError> {
    let builder = Router::builder().policy_config(parsed(text).unwrap());
    names.iter().fold(builder, |builder, name| builder.register(name, builtin(name))).build()
}

fn instances(role: &str, selected: &str, instances: Value) -> String {
    json!({"worker_selection": {role: selected, "instances": instances}}).to_string()
}

#[test]
fn a_type_needs_a_name_that_is_neither_reserved_nor_taken() {
    let mut registry = RouterPluginRegistry::default();
    let mut register = |name: &str| registry.register_worker_selection(name, lenient()).err();
    assert!(matches!(register(""), Some(WorkerSelectionPolicyRegistryError::EmptyName)));
    assert!(matches!(register("default"), Some(WorkerSelectionPolicyRegistryError::ReservedDefault)));
    assert!(register("a").is_none());
    assert!(matches!(register("a"), Some(WorkerSelectionPolicyRegistryError::Duplicate { name }) if name == "a"));

    let ours = |names: &[&str]| {
        names.iter().fold(Router::builder(), |builder, name| builder.register(name, script())).build().err()
    };
    assert_eq!(ours(&[""]), Some(RouterError::EmptyName));
    assert_eq!(ours(&["default"]), Some(RouterError::ReservedDefault));
    assert_eq!(ours(&["a"]), None);
    assert_eq!(ours(&["a", "a"]), Some(RouterError::Duplicate { name: "a".to_owned() }));
}

#[test]
fn an_unknown_type_stops_the_start_with_a_sorted_list() {
    let text = instances("decode", "it", json!([{"name": "it", "type": "missing"}]));
    let theirs = their_error(&settings(&text)).to_string();
    let ours = our_router(&text, &["thunderagent", "dynamo-two-tier-cost-fn"]).unwrap_err().to_string();
    assert!(
        theirs.contains("missing") && theirs.contains("dynamo-default-cost-fn, dynamo-two-tier-cost-fn"),
        "{theirs}"
    );
    assert!(ours.contains("missing") && ours.contains("dynamo-two-tier-cost-fn, thunderagent"), "{ours}");
    let none = RouterPluginRegistry::default().resolve(&settings(&text)).err().unwrap();
    assert!(matches!(none, WorkerSelectionPolicyRegistryError::UnknownType { available, .. } if available == "<none>"));
}

#[test]
fn an_override_that_names_no_instance_stops_the_start() {
    let text = instances("decode", "default", json!([{"name": "b", "type": "a"}, {"name": "a", "type": "a"}]));
    let config = KvRouterConfig { router_prefill_policy: Some("missing".to_owned()), ..settings(&text) };
    let mut registry = RouterPluginRegistry::default();
    registry.register_worker_selection("a", lenient()).unwrap();
    let theirs = registry.resolve(&config).err().unwrap();
    assert!(
        matches!(&theirs, WorkerSelectionPolicyRegistryError::UnknownInstance { name, available }
            if name == "missing" && available == "a, b"),
        "{theirs}"
    );
    let overrides = Overrides { prefill: Some("missing".to_owned()), ..Overrides::default() };
    let builder = Router::builder().register("a", script()).policy_config(parsed(&text).unwrap()).overrides(overrides);
    let ours = builder.build().unwrap_err().to_string();
    assert!(ours.contains("`missing`") && ours.contains("are a, b"), "{ours}");
}

#[test]
fn an_unknown_parameter_stops_the_start_and_is_named() {
    for policy in ["dynamo-default-cost-fn", "dynamo-two-tier-cost-fn", "thunderagent"] {
        let parameters = json!({"cache_affinity_threshold": 0.8});
        let text = instances("aggregated", "it", json!([{"name": "it", "type": policy, "parameters": parameters}]));
        let theirs = their_error(&settings(&text));
        assert!(
            matches!(&theirs, WorkerSelectionPolicyRegistryError::Provider { policy_type, .. } if policy_type == policy),
            "{theirs}"
        );
        let partition = our_router(&text, &[policy]).unwrap().partition(&PartitionKey::default(), 16);
        let ours = partition.unwrap_err();
        assert!(matches!(&ours, RouterError::Provider { policy_type, .. } if policy_type == policy), "{ours}");
        for message in [theirs.to_string(), ours.to_string()] {
            assert!(message.contains("cache_affinity_threshold"), "{message}");
        }
    }
}

#[test]
fn parameters_out_of_range_are_refused_by_the_same_sentence() {
    let cases = [
        (
            "dynamo-default-cost-fn",
            json!({"overlap_score_credit": -1}),
            "overlap_score_credit must be finite and non-negative",
        ),
        (
            "dynamo-default-cost-fn",
            json!({"router_temperature": -0.5}),
            "router_temperature must be finite and non-negative",
        ),
        (
            "dynamo-two-tier-cost-fn",
            json!({"cache_threshold": 1.5}),
            "cache_threshold must be a finite number between 0.0 and 1.0",
        ),
        (
            "dynamo-two-tier-cost-fn",
            json!({"balance_rel_threshold": 0.9}),
            "balance_rel_threshold must be a finite number greater than or equal to 1.0",
        ),
        ("dynamo-two-tier-cost-fn", json!({"balance_abs_threshold": -1}), "balance_abs_threshold"),
        ("dynamo-two-tier-cost-fn", json!({"cache_threshold": "high"}), "cache_threshold"),
    ];
    for (policy, parameters, sentence) in cases {
        let text = instances("decode", "it", json!([{"name": "it", "type": policy, "parameters": parameters}]));
        let router = our_router(&text, &[policy]).unwrap();
        let ours = router.partition(&PartitionKey::of_role(Role::Decode), 16).unwrap_err().to_string();
        let theirs = their_error(&settings(&text)).to_string();
        assert!(ours.contains(sentence), "{ours}");
        // Where the value has another type, Dynamo's reader does not say which parameter it is.
        assert!(theirs.contains(sentence) || !sentence.contains(' '), "{theirs}");
    }
}

#[test]
fn each_role_has_its_instance_and_one_that_is_left_out_the_default() {
    let list = json!([{"name": "a", "type": "thunderagent"}, {"name": "b", "type": "dynamo-two-tier-cost-fn"}]);
    let text = json!({"worker_selection": {"prefill": "a", "decode": "b", "instances": list}}).to_string();
    let router = our_router(&text, &["thunderagent", "dynamo-two-tier-cost-fn"]).unwrap();
    let config = settings(&text);
    assert!(SHIPPED.resolve(&config).unwrap().is_some());
    for (role, name) in
        [(Role::Aggregated, None), (Role::Prefill, Some("a")), (Role::Decode, Some("b")), (Role::Encode, None)]
    {
        let theirs = config.selected_worker_selection_policy_instance_for(dynamo::worker_type(role)).unwrap();
        assert_eq!(theirs.as_deref(), name, "Dynamo, {role}");
        let ours = router.partition(&PartitionKey::of_role(role), 16).unwrap();
        assert_eq!(ours.policy_name(), name.unwrap_or("default"), "{role}");
    }
}

#[test]
fn without_a_selection_the_default_decides_though_types_are_linked() {
    let config = dynamo::settings(&RouterConfig::default());
    assert_eq!(config.selected_worker_selection_policy_instance().unwrap(), None);
    let factory = SHIPPED.resolve(&config).unwrap().unwrap();
    let plugin = factory(&config, dynamo::worker_type(Role::Aggregated), RoutingPartitionRef::new("model", "default"));
    let router = Router::builder().register("thunderagent", builtin("thunderagent"));
    let router = router.build().unwrap();
    assert_eq!(router.partition(&PartitionKey::default(), 16).unwrap().policy_name(), "default");
    let case = case([worker(0)]);
    let theirs = pointsman_parity::dynamo::World::new(&case).decide(&plugin, &ask());
    assert_eq!(world(&router, &case).decide(&ask()), theirs, "the same cost");
}

/// Dynamo's host must name its default where any role has none; ours always has one.
#[test]
fn a_dynamo_host_without_a_default_must_select_for_every_role() {
    let text = instances("decode", "it", json!([{"name": "it", "type": "a"}]));
    let mut registry = RouterPluginRegistry::default();
    registry.register_worker_selection("a", lenient()).unwrap();
    let theirs = registry.resolve(&settings(&text)).err().unwrap();
    assert!(matches!(theirs, WorkerSelectionPolicyRegistryError::MissingDefault), "{theirs}");
    let router = Router::builder().register("a", script()).policy_config(parsed(&text).unwrap()).build().unwrap();
    assert_eq!(router.partition(&PartitionKey::of_role(Role::Prefill), 16).unwrap().policy_name(), "default");
}

/// Dynamo looks at the instances that are selected; ours at every one, so that a mistake shows before it is selected.
#[test]
fn an_unknown_type_that_nobody_selects_stops_ours_alone() {
    let list = json!([{"name": "it", "type": "a"}, {"name": "spare", "type": "missing"}]);
    let text = instances("decode", "it", list);
    let mut registry = dynamo_custom_policy_builtin::default_registry();
    registry.register_worker_selection("a", lenient()).unwrap();
    assert!(registry.resolve(&settings(&text)).is_ok());
    let ours = Router::builder().register("a", script()).policy_config(parsed(&text).unwrap()).build();
    assert!(ours.unwrap_err().to_string().contains("`missing`"));
}

/// A Dynamo host of one role does not look at the types of the others; ours looks at all.
#[test]
fn a_host_of_one_role_ignores_the_types_of_the_others_in_dynamo_alone() {
    let list = json!([{"name": "it", "type": "a"}, {"name": "other", "type": "missing"}]);
    let text = json!({"worker_selection": {"decode": "it", "prefill": "other", "instances": list}}).to_string();
    let mut registry = dynamo_custom_policy_builtin::default_registry();
    registry.register_worker_selection("a", lenient()).unwrap();
    let config = settings(&text);
    assert!(registry.resolve_for_worker_type(&config, dynamo::worker_type(Role::Decode)).is_ok());
    assert!(registry.resolve_for_worker_type(&config, dynamo::worker_type(Role::Prefill)).is_err());
    let ours = Router::builder().register("a", script()).policy_config(parsed(&text).unwrap()).build();
    assert!(ours.is_err());
}

#[test]
fn an_instance_is_checked_at_the_start_and_built_once_for_each_partition_and_role() {
    let text = json!({"worker_selection": {"prefill": "it", "decode": "it", "instances": [
        {"name": "it", "type": "a", "parameters": {"weight": 2}}]}})
    .to_string();
    let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let mut registry = dynamo_custom_policy_builtin::default_registry();
    let provided = Arc::clone(&count);
    let provider: WorkerSelectionPolicyProvider = Arc::new(move |parameters| {
        provided.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let Value::Object(map) = parameters.deserialize::<Value>()? else {
            return Err(WorkerSelectionPolicyProviderError::new("no mapping"));
        };
        assert_eq!(map["weight"], json!(2));
        Ok(Arc::new(|_, _, _| policy(Vec::new(), Vec::new(), cheapest())))
    });
    registry.register_worker_selection("a", provider).unwrap();
    registry.resolve(&settings(&text)).unwrap();
    assert_eq!(count.load(std::sync::atomic::Ordering::Relaxed), 1, "once for both roles");

    let script = Script::default().picking(reads(&[], &[], &[]), |_, _| Ok(0));
    let provider = Provider::native(script.clone());
    let router = Router::builder().register("a", provider).policy_config(parsed(&text).unwrap()).build().unwrap();
    for role in [Role::Prefill, Role::Decode, Role::Prefill] {
        router.partition(&PartitionKey::of_role(role), 16).unwrap();
    }
    let built = script.built();
    assert_eq!(built.iter().map(|(partition, _)| partition.role).collect::<Vec<_>>(), [Role::Prefill, Role::Decode]);
    assert!(built.iter().all(|(_, parameters)| parameters == r#"{"weight":2}"#));
}

#[test]
fn files_that_dynamo_takes_are_taken() {
    let it = r#""instances": [{"name": "it", "type": "a"}]"#;
    let texts = [
        format!(r#"{{"worker_selection": {{"aggregated": "it", {it}}}}}"#),
        format!(r#"{{"worker_selection": {{"prefill": "it", "decode": "it", "encode": "it", {it}}}}}"#),
        format!(r#"{{"worker_selection": {{"aggregated": "default", "prefill": null, {it}}}}}"#),
        format!(r#"{{"worker_selection": {{{it}}}}}"#),
        r#"{"worker_selection": {"decode": "default"}}"#.to_owned(),
        format!(
            r#"{{"router": {{"host_cache_hit_weight": 0.5, "disk_cache_hit_weight": 0}},
                "worker_selection": {{"decode": "it", {it}}}}}"#
        ),
        r#"{"worker_selection": {"decode": "i.t-1_", "instances": [{"name": "i.t-1_", "type": "a.B-2_"}]}}"#.to_owned(),
    ];
    for text in texts {
        assert!(they_take(&text), "Dynamo refuses {text}");
        assert!(parsed(&text).is_ok(), "{text}: {:?}", parsed(&text));
    }
}

#[test]
fn files_that_dynamo_refuses_are_refused() {
    let instance = |fields: &str| format!(r#"{{"worker_selection": {{"instances": [{{{fields}}}]}}}}"#);
    let texts = [
        String::new(),
        "{}".to_owned(),
        r#"{"worker_selection": {}}"#.to_owned(),
        r#"{"worker_selection": {"aggregated": null}}"#.to_owned(),
        r#"{"worker_selection": {"aggregated": "missing"}}"#.to_owned(),
        r#"{"worker_selection": {"default": "default"}}"#.to_owned(),
        r#"{"worker_selection": {"aggregated": ["default"]}}"#.to_owned(),
        r#"{"worker_selections": {"aggregated": "default"}}"#.to_owned(),
        r#"{"router": {"overlap_score_credit": 1}, "worker_selection": {"aggregated": "default"}}"#.to_owned(),
        r#"{"router": {"host_cache_hit_weight": 1.5}, "worker_selection": {"aggregated": "default"}}"#.to_owned(),
        instance(r#""name": "bad name", "type": "a""#),
        instance(r#""name": "", "type": "a""#),
        instance(r#""name": "it", "type": "bad/type""#),
        instance(r#""name": "default", "type": "a""#),
        instance(r#""name": "it""#),
        instance(r#""type": "a""#),
        instance(r#""name": "it", "type": "a", "parameters": [1]"#),
        instance(r#""name": "it", "type": "a", "parameters": 1"#),
        instance(r#""name": "it", "type": "a", "parameters": null"#),
        instance(r#""name": "it", "type": "a", "weights": {}"#),
        r#"{"worker_selection": {"instances": [{"name": "it", "type": "a"}, {"name": "it", "type": "b"}]}}"#.to_owned(),
        "worker_selection: [".to_owned(),
    ];
    for text in texts {
        assert!(!they_take(&text), "Dynamo takes {text}");
        assert!(parsed(&text).is_err(), "{text}");
    }
}

/// The instance of each role, or that a router does not start.
type Selected = Result<Vec<String>, ()>;

const FILES: [&str; 3] = [
    r#"{"worker_selection": {"prefill": "a", "aggregated": "b", "instances": [
        {"name": "a", "type": "a"}, {"name": "b", "type": "a"}]}}"#,
    r#"{"worker_selection": {"decode": "b", "encode": "a", "prefill": "default", "instances": [
        {"name": "a", "type": "a"}, {"name": "b", "type": "a"}]}}"#,
    r#"{"worker_selection": {"instances": [{"name": "a", "type": "a"}, {"name": "b", "type": "a"}]}}"#,
];

fn their_selection(file: &str, prefill: Option<&str>, decode: Option<&str>) -> Selected {
    let mut registry = dynamo_custom_policy_builtin::default_registry();
    registry.register_worker_selection("a", lenient()).unwrap();
    let config = KvRouterConfig {
        router_prefill_policy: prefill.map(str::to_owned),
        router_decode_policy: decode.map(str::to_owned),
        ..settings(file)
    };
    registry.resolve(&config).map_err(drop)?;
    let of = |role| config.selected_worker_selection_policy_instance_for(dynamo::worker_type(role)).map_err(drop);
    Role::ALL.into_iter().map(|role| Ok(of(role)?.unwrap_or_else(|| "default".to_owned()))).collect()
}

fn our_selection(file: &str, prefill: Option<&str>, decode: Option<&str>) -> Selected {
    let from_env = Overrides::from_env(|variable| std::env::var_os(variable)).map_err(drop)?;
    let overrides = Overrides { prefill: prefill.map(str::to_owned), decode: decode.map(str::to_owned), ..from_env };
    let builder = Router::builder().register("a", script()).policy_config(parsed(file).unwrap()).overrides(overrides);
    let router = builder.build().map_err(drop)?;
    let name = |role| router.partition(&PartitionKey::of_role(role), 16).unwrap().policy_name().to_owned();
    Ok(Role::ALL.into_iter().map(name).collect())
}

/// Compares every pair of role overrides over every file, under the process's own variables.
fn compare_selections() -> Vec<Selected> {
    let names = [None, Some("a"), Some(" b "), Some(""), Some("  "), Some("default"), Some("missing")];
    let mut seen = Vec::new();
    for file in FILES {
        for prefill in names {
            for decode in names {
                let theirs = their_selection(file, prefill, decode);
                assert_eq!(our_selection(file, prefill, decode), theirs, "{file}, {prefill:?}, {decode:?}");
                seen.push(theirs);
            }
        }
    }
    seen
}

#[test]
fn the_override_of_a_role_goes_before_the_global_one_before_the_file_before_the_default() {
    assert!(std::env::var_os(GLOBAL_VARIABLE).is_none(), "unset {GLOBAL_VARIABLE} for this test");
    let seen = compare_selections();
    assert!(seen.contains(&Err(())) && seen.iter().flatten().flatten().any(|name| name == "default"));
    for global in ["a", " b ", "", "default", "missing"] {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "registry_rules::under_the_global_variable", "--ignored", "--test-threads", "1"])
            .env(GLOBAL_VARIABLE, global)
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && output.contains("1 passed"), "{global:?}: {output}");
    }
}

#[test]
#[ignore = "the test above runs it under the variable of a process of its own"]
fn under_the_global_variable() {
    let global = std::env::var(GLOBAL_VARIABLE).unwrap();
    let seen = compare_selections();
    match global.trim() {
        "missing" => assert!(seen.iter().all(Result::is_err)),
        "" => assert!(seen.contains(&our_selection(FILES[0], None, None))),
        name => assert!(seen.contains(&Ok(vec![name.to_owned(); 4]))),
    }
}
