//! The router policy config: what it means, and what is said about a wrong one.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of the tests fail as the tests do")]

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use pointsman_admission::{
    AffinityMode, OnFault as ClassifierOnFault, PolicyClass, Profiles, QueueLimits, QueuePolicy,
};
use pointsman_contract::Role;
use pointsman_routing::config::{
    Component, DECODE_VARIABLE, FaultAction, GLOBAL_VARIABLE, Instance, InstanceKind, LimitsPatch, OnFault,
    OverrideError, Overrides, PREFILL_VARIABLE, PartitionKeyRef, PolicyConfig, Problem, Reading, RequestClassifier,
    Selected, SessionAffinitySettings,
};
use pointsman_sandbox::{COMPILE_LIMITS, Determinism, LIMITS, LOAD_BOUNDS, Limits, Profile, SandboxConfig};
use proptest::prelude::*;
use serde_json::json;

/// The YAML of the guide "Write Custom Routing Strategies" of NVIDIA Dynamo, byte for byte.
const GUIDE: &str = "\
worker_selection:
  aggregated: least-busy
  prefill: prefill-least-busy
  decode: least-busy
  encode: least-busy
  instances:
    - name: least-busy
      type: least-busy
      parameters:
        min_device_overlap_blocks: 0
    - name: prefill-least-busy
      type: least-busy
      parameters:
        min_device_overlap_blocks: 1
";

/// The `admission.yaml` of NVIDIA Dynamo's guide "Write an Admission Control Plugin", byte for byte but for the type.
const ADMISSION: &str = include_str!("fixtures/admission.yaml");

/// A profile of two buckets, one family and an explicit class.
const PROFILE: &str = "\
default_policy_family: standard
uncached_isl_buckets:
  - {min_tokens: 0, bucket: short}
  - {min_tokens: 4096, bucket: long}
policy_classes:
  - {name: standard_short, policy_family: standard, cache_bucket: short, quantum: 512}
  - {name: standard_long, policy_family: standard, cache_bucket: long, quantum: 128}
  - name: batch
    queue_policy: wspt
    quantum: 64
    prefill_busy_threshold: 2048
    prefill_busy_threshold_frac: 0.5
    request_queue_limit_per_worker: 0
    raw_isl_token_queue_limit_per_worker: 18446744073709551615
    cached_token_queue_limit_per_worker: 3
";

/// Everything that a file may say.
const FULL: &str = "\
router: {host_cache_hit_weight: 0.5, disk_cache_hit_weight: 0}
sandbox:
  guests: 64
  determinism: portable
  require_digest: true
components:
  - type: mine
    path: policies/mine.wasm
    digest: sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789ABCDEF
tenants:
  - name: acme
    routing_groups: [gold, silver]
worker_selection:
  aggregated: default
  decode: whole
  instances:
    - &first
      name: first
      type: mine
      parameters: {a: [1, -2, 0.5, yes, 'no', ~, {b: true}], big: 18446744073709551615}
      limits: {profile: engine, memory_bytes: 1048576}
      on_fault: last-good
    - name: second
      type: simple-filter-score-pick
      on_fault: {filter: fallback, otherwise: reject}
    - name: whole
      pipeline: {filters: [first], scorers: [first, second], picker: second}
  partitions:
    - {model: llama, routing_group: gold, prefill: first}
    - {tenant: acme, decode: second, encode: default}
default_policy_family: standard
uncached_isl_buckets: [{min_tokens: 0, bucket: all}]
policy_classes:
  - {name: all, policy_family: standard, cache_bucket: all, quantum: 1}
  - {name: batch, queue_policy: wspt, quantum: 2, prefill_busy_threshold_frac: 1e1, request_queue_limit_per_worker: 5}
models:
  meta/llama:
    default_policy_family: own
    uncached_isl_buckets: [{min_tokens: 0, bucket: all}]
    policy_classes: [{name: own_all, policy_family: own, cache_bucket: all, quantum: 3, prefill_busy_threshold: 7}]
request_classifier:
  type: mine
  parameters: {max_wait_ms: 5}
  limits: {fuel_base: 9}
  on_fault: admit
  max_deferral_ms: 250
session_affinity: {mode: soft, ttl_secs: 300}
";

fn parse(text: &str) -> PolicyConfig {
    PolicyConfig::parse("policy.yaml", Path::new("conf"), text).unwrap_or_else(|problems| panic!("{problems}\n{text}"))
}

fn problems(text: &str) -> Vec<Problem> {
    match PolicyConfig::parse("policy.yaml", Path::new("conf"), text) {
        Ok(_) => panic!("nothing is wrong with\n{text}"),
        Err(problems) => {
            assert_eq!(problems.len(), problems.iter().count());
            problems.into_iter().collect()
        }
    }
}

/// The text has this one problem, and its message has these words.
#[track_caller]
fn wrong(text: &str, line: usize, field: &str, words: &[&str]) {
    let all = problems(text);
    let [problem] = all.as_slice() else { panic!("not one problem but {all:#?}") };
    assert_eq!((problem.line, problem.field.as_str()), (line, field), "{problem}");
    for word in words {
        assert!(problem.message.contains(word), "{word:?} is missing in: {problem}");
    }
}

/// The same for the text of one instance, which starts on line 3.
#[track_caller]
fn wrong_instance(lines: &str, line: usize, field: &str, words: &[&str]) {
    let field = if field.is_empty() { String::new() } else { format!(".{field}") };
    wrong(&with_instance(lines), line, &format!("worker_selection.instances[0]{field}"), words);
}

fn with_instance(lines: &str) -> String {
    let mut text = "worker_selection:\n  instances:\n".to_owned();
    for (place, line) in lines.lines().enumerate() {
        writeln!(text, "    {} {line}", if place == 0 { '-' } else { ' ' }).unwrap();
    }
    text
}

fn instance(lines: &str) -> Instance {
    parse(&with_instance(lines)).worker_selection.unwrap().instances.remove(0)
}

fn key<'a>(model: &'a str, routing_group: &'a str, role: Role) -> PartitionKeyRef<'a> {
    PartitionKeyRef { model, routing_group, role }
}

fn named(name: &str) -> Selected {
    Selected::Instance(name.to_owned())
}

// What a file means

#[test]
fn the_guides_file_is_read_byte_for_byte() {
    let config = parse(GUIDE);
    let selection = config.worker_selection.as_ref().unwrap();
    for (role, name) in [
        (Role::Aggregated, "least-busy"),
        (Role::Prefill, "prefill-least-busy"),
        (Role::Decode, "least-busy"),
        (Role::Encode, "least-busy"),
    ] {
        assert_eq!(selection.roles.get(role), Some(&named(name)));
        assert_eq!(config.selected(key("default", "default", role)), named(name));
    }
    let instances: Vec<_> =
        selection.instances.iter().map(|each| (each.name.as_str(), &each.kind, each.line)).collect();
    let kind = InstanceKind::Type("least-busy".to_owned());
    assert_eq!(instances, [("least-busy", &kind, 7), ("prefill-least-busy", &kind, 11)]);
    let parameters: Vec<_> = selection.instances.iter().map(|each| each.parameters.clone()).collect();
    assert_eq!(json!(parameters), json!([{"min_device_overlap_blocks": 0}, {"min_device_overlap_blocks": 1}]));
    config.check_types(&["least-busy".to_owned()]).unwrap();
}

#[test]
fn every_section_is_read() {
    let config = parse(FULL);
    assert_eq!(config.router.host_cache_hit_weight, Some(0.5));
    assert_eq!(config.router.disk_cache_hit_weight, Some(0.0));
    let sandbox = SandboxConfig { guests: 64, determinism: Determinism::Portable, ..SandboxConfig::default() };
    assert_eq!((config.sandbox.sandbox_config(), config.sandbox.require_digest), (sandbox, true));
    let digest = "0123456789abcdef".repeat(4);
    let path = PathBuf::from("conf/policies/mine.wasm");
    assert_eq!(config.components, [Component { type_name: "mine".into(), path, digest: Some(digest), line: 7 }]);
    assert_eq!(config.tenants[0].name, "acme");
    assert_eq!(config.tenants[0].routing_groups, ["gold", "silver"]);

    let selection = config.worker_selection.as_ref().unwrap();
    assert_eq!(selection.roles.get(Role::Aggregated), Some(&Selected::Default));
    assert_eq!(selection.roles.get(Role::Prefill), None);
    assert_eq!(selection.roles.get(Role::Decode), Some(&named("whole")));
    let first = selection.instance("first").unwrap();
    let parameters = json!({"a": [1, -2, 0.5, "yes", "no", null, {"b": true}], "big": u64::MAX});
    assert_eq!(json!(first.parameters), parameters);
    assert_eq!(first.parameter_lines["big"], 20);
    assert_eq!(first.on_fault, OnFault { filter: FaultAction::Reject, otherwise: FaultAction::LastGood });
    assert_eq!(first.limits.resolve(), Limits { memory_bytes: 1 << 20, ..Limits::of(Profile::Engine) });
    let second = selection.instance("second").unwrap();
    assert_eq!(second.on_fault, OnFault { filter: FaultAction::Fallback, otherwise: FaultAction::Reject });
    assert_eq!((second.line, second.kind_line), (23, 24));
    assert!(second.parameters.is_empty());
    let pipeline = InstanceKind::Pipeline {
        filters: vec!["first".into()],
        scorers: vec!["first".into(), "second".into()],
        picker: Some("second".into()),
    };
    assert_eq!(selection.instance("whole").unwrap().kind, pipeline);
    assert_eq!(selection.partitions.len(), 2);

    let profiles: Vec<_> =
        config.profiles.iter().map(|(model, profile)| (model, profile.classes()[0].name.as_str())).collect();
    assert_eq!(profiles, [(None, "all"), (Some("meta/llama"), "own_all")]);
    let settings = SessionAffinitySettings { mode: AffinityMode::Soft, ttl_secs: 300 };
    assert_eq!(config.session_affinity, Some(settings));
}

#[test]
fn what_is_left_out_has_its_default() {
    let config = parse("worker_selection: {prefill: default}\nrouter:\n");
    assert_eq!(config.router.host_cache_hit_weight, None);
    assert_eq!((config.sandbox.sandbox_config(), config.sandbox.require_digest), (SandboxConfig::default(), false));
    let instance = instance("name: a\ntype: b");
    assert_eq!(instance.limits, LimitsPatch::default());
    assert_eq!(instance.limits.resolve(), Limits::of(Profile::Compact));
    assert_eq!(instance.on_fault, OnFault { filter: FaultAction::Reject, otherwise: FaultAction::Fallback });
}

#[test]
fn relative_paths_start_at_the_files_folder() {
    let component = instance("name: a\ncomponent: ../a.wasm");
    assert_eq!(component.kind, InstanceKind::Component("conf/../a.wasm".into()));
    assert_eq!(instance("name: a\ncomponent: /b/a.wasm").kind, InstanceKind::Component("/b/a.wasm".into()));

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("policy.yaml");
    std::fs::write(&file, "components: [{type: a, path: a.wasm}]").unwrap();
    assert_eq!(PolicyConfig::load(&file).unwrap().components[0].path, folder.path().join("a.wasm"));
}

#[test]
fn a_field_without_a_value_counts_as_left_out() {
    let config = parse("worker_selection:\n  prefill:\n  decode: ~\n  instances: [{name: a, type: b, limits: null}]\n");
    assert_eq!(config.selected(key("m", "g", Role::Prefill)), Selected::Default);
}

#[test]
fn scalars_stand_for_what_dynamos_parser_makes_of_them() {
    let parameters = instance(
        "name: 007\ntype: 1.5\nparameters: {hex: 0x1F, octal: 0o17, binary: 0b101, minus: -0x10, plus: +5, zero: -0, \
         leading: 007, exp: 1e3, dot: .5, least: -9223372036854775808, tag: !!str 5, word: inf, on: off, quoted: '1', \
         date: 2024-01-01, under: 1_000, empty: '', colon: 10:30, neg: '-', plusplus: +-1, folded: \"a\\nb\"}",
    );
    assert_eq!((parameters.name.as_str(), &parameters.kind), ("007", &InstanceKind::Type("1.5".to_owned())));
    let expected = json!({"hex": 31, "octal": 15, "binary": 5, "minus": -16, "plus": 5, "zero": 0, "leading": "007",
        "exp": 1000.0, "dot": 0.5, "least": i64::MIN, "tag": "5", "word": "inf", "on": "off", "quoted": "1",
        "date": "2024-01-01", "under": "1_000", "empty": "", "colon": "10:30", "neg": "-", "plusplus": "+-1",
        "folded": "a\nb"});
    assert_eq!(json!(parameters.parameters), expected);
}

#[test]
fn aliases_repeat_their_anchors() {
    let config = parse(
        "worker_selection:\n  instances:\n  - {name: a, type: t, parameters: &p {x: [1]}}\n  - {name: b, type: t, parameters: *p}\n",
    );
    let selection = config.worker_selection.unwrap();
    assert_eq!(selection.instances[0].parameters, selection.instances[1].parameters);
    assert_eq!(json!(selection.instances[1].parameters), json!({"x": [1]}));
}

#[test]
fn line_ends_and_a_byte_order_mark_do_not_matter() {
    assert_eq!(parse(&GUIDE.replace('\n', "\r\n")), parse(GUIDE));
    assert_eq!(parse(&format!("\u{feff}{GUIDE}")), parse(GUIDE));
    assert_eq!(parse(&format!("---\n{GUIDE}...\n")).worker_selection.unwrap().instances.len(), 2);
}

#[test]
fn the_most_specific_rule_decides_each_role_on_its_own() {
    let config = parse(
        "tenants: [{name: acme, routing_groups: [gold, silver]}]
worker_selection:
  prefill: p0
  decode: p0
  instances: [{name: p0, type: t}, {name: p1, type: t}, {name: p2, type: t}, {name: p3, type: t}, {name: p4, type: t}, {name: p5, type: t}]
  partitions:
    - {model: llama, prefill: p1, decode: p1, encode: p1}
    - {tenant: acme, prefill: p2, decode: p2}
    - {tenant: acme, model: llama, prefill: p3}
    - {routing_group: gold, prefill: p4, aggregated: default}
    - {model: llama, routing_group: gold, prefill: p5}
",
    );
    for (model, group, prefill, decode) in [
        ("other", "free", "p0", "p0"),
        ("llama", "free", "p1", "p1"),
        ("other", "silver", "p2", "p2"),
        ("llama", "silver", "p3", "p2"),
        ("other", "gold", "p4", "p2"),
        ("llama", "gold", "p5", "p2"),
    ] {
        assert_eq!(config.selected(key(model, group, Role::Prefill)), named(prefill), "{model} {group}");
        assert_eq!(config.selected(key(model, group, Role::Decode)), named(decode), "{model} {group}");
    }
    // A rule further down has the role: the selection falls through to it, and to no other role's.
    assert_eq!(config.selected(key("llama", "gold", Role::Encode)), named("p1"));
    assert_eq!(config.selected(key("llama", "gold", Role::Aggregated)), Selected::Default);
    assert_eq!(config.selected(key("other", "free", Role::Aggregated)), Selected::Default);
    assert_eq!(config.selected(key("other", "gold", Role::Encode)), Selected::Default);
}

#[test]
fn a_file_without_a_selection_leaves_all_to_the_built_in_policy() {
    let config = parse("sandbox: {guests: 1}");
    assert_eq!(config.selected(key("m", "g", Role::Decode)), Selected::Default);
}

// What is wrong with a file as a whole

#[test]
fn every_problem_is_reported_at_once_in_the_files_order() {
    let text = "\
router: {use_kv_events: true, nope: 1}
worker_selection:
  prefill: gone
  instances:
    - name: 'a b'
      type: t
      parameters: {x: .nan}
    - name: b
      limits: {fuel: 1}
      type: default
extra: 1
";
    let all = problems(text);
    let places: Vec<_> = all.iter().map(|problem| (problem.line, problem.field.as_str())).collect();
    assert_eq!(
        places,
        [
            (1, "router.use_kv_events"),
            (1, "router.nope"),
            (3, "worker_selection.prefill"),
            (5, "worker_selection.instances[0].name"),
            (7, "worker_selection.instances[0].parameters.x"),
            (9, "worker_selection.instances[1].limits.fuel"),
            (10, "worker_selection.instances[1].type"),
            (11, "extra"),
        ]
    );
    let shown = PolicyConfig::parse("policy.yaml", Path::new(""), text).unwrap_err().to_string();
    assert_eq!(shown.lines().count(), 8);
    assert!(shown.lines().all(|line| line.starts_with("policy.yaml:")), "{shown}");
    assert!(shown.contains("\npolicy.yaml:3: worker_selection.prefill: no instance is named `gone`"), "{shown}");
}

#[test]
fn an_empty_file_is_refused() {
    wrong("", 1, "", &["empty", "worker_selection"]);
    wrong("# only a comment\n", 1, "", &["empty"]);
    wrong("---\n", 1, "", &["empty"]);
    wrong("{}", 1, "", &["says nothing", "router, worker_selection, components, sandbox, tenants"]);
    wrong("worker_selection:\n", 1, "", &["says nothing"]);
}

#[test]
fn a_file_that_is_no_mapping_is_refused() {
    wrong("- a", 1, "", &["must be a mapping, not a list"]);
    wrong("hello", 1, "", &["must be a mapping, not the text `hello`"]);
}

#[test]
fn a_file_that_cannot_be_read_is_a_problem() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("none.yaml");
    let all = PolicyConfig::load(&file).unwrap_err();
    let problem = all.iter().next().unwrap();
    assert_eq!((problem.line, problem.field.as_str()), (0, ""));
    assert!(problem.to_string().starts_with(&format!("{}: the file cannot be read (", file.display())), "{problem}");
    assert!(PolicyConfig::load(folder.path()).unwrap_err().to_string().contains("cannot be read"));

    std::fs::write(&file, b"router:\n  # \xff\n").unwrap();
    assert!(PolicyConfig::load(&file).unwrap_err().to_string().contains(":2: the file is not UTF-8"));
    std::fs::write(&file, " ".repeat((1 << 20) + 1)).unwrap();
    assert!(PolicyConfig::load(&file).unwrap_err().to_string().contains("longer than 1048576 bytes"));
}

#[test]
fn a_file_that_is_too_large_is_refused() {
    wrong(&format!("{GUIDE}{}", "#".repeat(1 << 20)), 0, "", &["longer than 1048576 bytes"]);
    parse(&format!("{GUIDE}{}", "#".repeat((1 << 20) - GUIDE.len())));
}

#[test]
fn a_second_document_is_refused() {
    wrong(&format!("{GUIDE}---\n{GUIDE}"), 15, "", &["second document", "one document"]);
    wrong("---\n---\nrouter: {}\n", 2, "", &["second document"]);
}

#[test]
fn broken_syntax_is_one_sentence_with_its_line() {
    wrong("worker_selection:\n\tprefill: default\n", 2, "", &["not valid YAML", "tab", "indent with spaces"]);
    wrong("router: {\nsandbox", 2, "", &["not valid YAML"]);
    wrong("a: b: c", 1, "", &["not valid YAML at column 5"]);
    // Found by fuzzing: both were said to be on the line after the last.
    wrong("sandbox:\n  guests: 8\n  require_dig", 3, "", &["not valid YAML at column 14"]);
    wrong("router: {}\n? ", 2, "", &["is not text"]);
    wrong("router: *none\n", 1, "", &["unknown anchor", "define the anchor"]);
    wrong("router: &a [*a]\n", 1, "", &["alias", "write the value out"]);
}

#[test]
fn nesting_is_bounded() {
    let nested = |depth: usize| {
        with_instance(&format!("name: a\ntype: t\nparameters: {{x: {}{}}}", "[".repeat(depth), "]".repeat(depth)))
    };
    // Five levels lead to `x`.
    parse(&nested(59));
    wrong(&nested(60), 5, "", &["nest more than 64 deep"]);
    wrong(&"- ".repeat(400_000), 1, "", &["nest more than 64 deep"]);
    let mut aliases = "a0: &a0 [1]\n".to_owned();
    for level in 1..100 {
        writeln!(aliases, "a{level}: &a{level} [*a{}]", level - 1).unwrap();
    }
    wrong(&aliases, 64, "", &["nest more than 64 deep"]);
}

#[test]
fn the_number_of_values_is_bounded_with_what_aliases_repeat() {
    let mut bomb = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n".to_owned();
    for level in 1..10 {
        writeln!(bomb, "a{level}: &a{level} [{}]", vec![format!("*a{}", level - 1); 10].join(", ")).unwrap();
    }
    wrong(&bomb, 5, "", &["more than 100000 values"]);
    wrong(&format!("a: [{}]", "1,".repeat(200_000)), 1, "", &["more than 100000 values"]);
}

#[test]
fn keys_come_once_and_are_text() {
    wrong("router: {}\nrouter: {}\n", 2, "router", &["already on line 1", "remove one"]);
    wrong_instance("name: a\ntype: t\nparameters:\n  x: 1\n  y: {z: 1, \"z\": 2}", 7, "parameters.y.z", &["line 7"]);
    wrong_instance("name: a\nname: b\ntype: t", 4, "name", &["already on line 3"]);
    wrong_instance("name: a\ntype: t\nparameters: {1: 2}", 5, "parameters", &["`1`", "quotes"]);
    wrong_instance("name: a\ntype: t\nparameters: {~: 2}", 5, "parameters", &["`~`", "quotes"]);
    wrong_instance("name: a\ntype: t\nparameters: {? [a] : 2}", 5, "parameters", &["cannot be a key"]);
    let quoted = instance("name: a\ntype: t\nparameters: {'1': 2, 'true': 3}");
    assert_eq!(json!(quoted.parameters), json!({"1": 2, "true": 3}));
}

#[test]
fn tags_have_no_meaning() {
    wrong_instance("name: a\ntype: t\nparameters: {x: !secret 1}", 5, "parameters.x", &["tag", "secret", "remove"]);
    wrong_instance("name: a\ntype: t\nparameters: {x: !!int one}", 5, "parameters.x", &["does not fit `one`"]);
    wrong_instance("name: a\ntype: t\nparameters: !mine {x: 1}", 5, "parameters", &["tag", "mine"]);
    assert_eq!(
        json!(instance("name: a\ntype: t\nparameters: !!map {x: !!seq [!!int 1]}").parameters),
        json!({"x": [1]})
    );
}

#[test]
fn unknown_fields_are_refused_at_every_level() {
    wrong("worker_selektion: {}\nsandbox: {}", 1, "worker_selektion", &["did you mean `worker_selection`?", "tenants"]);
    wrong(
        "worker_selection:\n  decode: default\n  dekode: a\n",
        3,
        "worker_selection.dekode",
        &["did you mean `decode`?"],
    );
    wrong("worker_selection: {default: a}", 1, "worker_selection.default", &["unknown field `default`", "aggregated"]);
    wrong_instance("name: a\ntype: t\nparams: {}", 5, "params", &["unknown field `params`", "parameters, limits"]);
    wrong_instance("name: a\nlimits:\n  fuel_bass: 1\ntype: t", 5, "limits.fuel_bass", &["did you mean `fuel_base`?"]);
    wrong_instance(
        "name: a\non_fault: {fitler: reject, otherwise: reject}\ntype: t",
        4,
        "on_fault.fitler",
        &["did you mean `filter`?"],
    );
    wrong_instance("name: a\npipeline: {pick: b}", 4, "pipeline.pick", &["did you mean `picker`?", "filters, scorers"]);
    wrong_instance("name: a\ntypo: b", 4, "typo", &["did you mean `type`?"]);
    wrong("sandbox: {guest: 1}", 1, "sandbox.guest", &["did you mean `guests`?"]);
    wrong("components: [{type: a, path: b, sha: c}]", 1, "components[0].sha", &["type, path, digest"]);
    wrong("tenants: [{name: a, routing_groups: [b], x: 1}]", 1, "tenants[0].x", &["name, routing_groups"]);
    wrong(
        "worker_selection:\n  partitions: [{model: a, prefill: default, rule: 1}]",
        2,
        "worker_selection.partitions[0].rule",
        &["model"],
    );
    // Names are shown on one line, however odd.
    wrong("sandbox: {\"a\\nb\": 1}", 1, "sandbox[`a\\nb`]", &["unknown field `a\\nb`"]);
}

#[test]
fn what_a_tenant_may_have_is_read_and_checked() {
    let tenants = |more: &str| format!("tenants: [{{name: a, routing_groups: [b], {more}}}]");
    let config =
        parse(&tenants("limits: {fuel_base: 5}, quotas: {guests: 2, fuel_per_second: 0}, grants: [label.zone]"));
    let tenant = &config.tenants[0];
    assert_eq!(tenant.limits, [("fuel_base", 5)]);
    assert_eq!((tenant.quotas.fuel_per_second, tenant.quotas.sandbox.guests), (0, 2));
    assert_eq!(tenant.quotas.sandbox.resident_bytes, u64::MAX, "what is left out has no bound");
    assert_eq!(tenant.grants, ["label.zone"]);
    wrong(&tenants("quotas: {fuel: 1}"), 1, "tenants[0].quotas.fuel", &["unknown field `fuel`"]);
    wrong(&tenants("limits: {profile: engine}"), 1, "tenants[0].limits.profile", &["unknown field `profile`"]);
}

#[test]
fn an_instance_and_a_classifier_say_whether_they_may_import_wasi() {
    let file = |instance: &str, classifier: &str| {
        format!(
            "worker_selection:\n  aggregated: a\n  instances:\n    - {{name: a, type: x{instance}}}\n\
             request_classifier: {{type: y{classifier}}}\n"
        )
    };
    let granted = |text: &str| {
        let config = parse(text);
        let instance = config.worker_selection.as_ref().unwrap().instance("a").unwrap().wasi;
        (instance, config.request_classifier.as_ref().unwrap().policy.wasi)
    };
    assert_eq!(granted(&file("", "")), (false, false));
    assert_eq!(granted(&file(", wasi: true", ", wasi: false")), (true, false));
    assert_eq!(granted(&file(", wasi: false", ", wasi: true")), (false, true));
    wrong(&file(", wasi: files", ""), 4, "worker_selection.instances[0].wasi", &["true or false"]);
    let pipeline = "worker_selection:\n  instances:\n    - {name: a, type: x}\n    \
                    - {name: p, wasi: true, pipeline: {scorers: [a]}}\n";
    wrong(pipeline, 4, "worker_selection.instances[1].wasi", &["a pipeline has no wasi of its own"]);
}

#[test]
fn a_tenants_instance_selected_for_others_is_told_where_it_is_selected() {
    let file = |aggregated: &str, rules: &str| {
        format!(
            "tenants:\n  - {{name: a, routing_groups: [g]}}\nworker_selection:\n  aggregated: {aggregated}\n  \
             partitions: {rules}\n  instances:\n    - {{name: own, type: x, tenant: a}}\n"
        )
    };
    let rules = "[{tenant: a, decode: own}, {model: m, decode: own}]";
    wrong(&file("own", "[{tenant: a, decode: own}]"), 4, "worker_selection.aggregated", &["`tenant: a`"]);
    wrong(&file("default", rules), 5, "worker_selection.partitions[1].decode", &["`tenant: a`"]);
    parse(&file("default", "[{tenant: a, decode: own}, {routing_group: g, decode: own}]"));
}

// Router, sandbox, components, tenants

#[test]
fn router_settings_are_checked() {
    wrong(
        "router: {host_cache_hit_wieght: 1}",
        1,
        "router.host_cache_hit_wieght",
        &["unknown router setting", "did you mean `host_cache_hit_weight`?"],
    );
    wrong(
        "router: {router_temperature: 1}",
        1,
        "router.router_temperature",
        &["unknown router setting `router_temperature`", "parameters"],
    );
    for value in ["1.5", "-0.1", "-1", "2", ".nan", ".inf", "'0.5'", "", "[]", "1e999"] {
        wrong(
            &format!("router:\n  host_cache_hit_weight: {value}\n"),
            2,
            "router.host_cache_hit_weight",
            &["a number from 0 to 1"],
        );
    }
    wrong("router: 1", 1, "router", &["must be a mapping, not `1`"]);
}

/// Those of NVIDIA Dynamo 1.6.1, but for the two that are read.
#[test]
fn router_settings_without_a_meaning_say_why_and_what_to_do() {
    for (settings, words) in [
        (
            &[
                "use_kv_events",
                "router_ttl_secs",
                "router_approximate_cache_policy",
                "router_predicted_ttl_secs",
                "router_event_threads",
                "use_remote_indexer",
                "serve_indexer",
                "enable_session_prefix_index",
            ][..],
            ["no index of KV blocks", "overlaps"],
        ),
        (&["shared_cache_type"], ["no shared cache", "shared blocks"]),
        (
            &["router_tracking_hash", "router_tracking_key_file", "router_tracking_key_id"],
            ["hashes no prompts", "block hashes"],
        ),
        (&["router_assume_kv_reuse"], ["reused block", "without hashes"]),
        (&["router_track_active_blocks"], ["always counted", "policy"]),
        (&["router_track_output_blocks"], ["blocks of an answer", "report"]),
        (&["router_track_prefill_tokens"], ["each request says", "prefill load"]),
        (&["router_prefill_load_model"], ["prefill load", "reports"]),
        (&["router_replica_sync"], ["share no load", "one router"]),
    ] {
        for setting in settings {
            let text = format!("router:\n  host_cache_hit_weight: 1\n  {setting}: null\n");
            wrong(&text, 3, &format!("router.{setting}"), &[words[0], words[1], "remove this"]);
        }
    }
}

#[test]
fn sandbox_settings_are_checked() {
    for value in ["0", "-1", "65537", "1.0", "many", "99999999999999999999"] {
        wrong(&format!("sandbox: {{guests: {value}}}"), 1, "sandbox.guests", &["a whole number from 1 to 65536"]);
    }
    assert_eq!(parse("sandbox: {guests: 65536}").sandbox.guests, 65_536);
    wrong("sandbox: {determinism: fats}", 1, "sandbox.determinism", &["did you mean `fast`?", "fast or portable"]);
    wrong("sandbox: {require_digest: yes}", 1, "sandbox.require_digest", &["true or false, not the text `yes`"]);
}

#[test]
fn bounds_on_loading_and_compiling_are_settings() {
    let config = parse(
        "sandbox:
  load: {compact: {functions: 9}, engine: {nesting: 7}}
  compile: {compact: {wall_ms: 5}, engine: {memory_bytes: 6}, at_once: 3, cache: code, cache_bytes: 1000}",
    );
    let mut expected = SandboxConfig::default();
    expected.load.compact.functions = 9;
    expected.load.engine.nesting = 7;
    expected.compile.limits.compact.wall_ms = 5;
    expected.compile.limits.engine.memory_bytes = 6;
    expected.compile.at_once = 3;
    // Relative to the file's folder.
    expected.compile.cache = Some("conf/code".into());
    expected.compile.cache_bytes = 1_000;
    assert_eq!(config.sandbox.sandbox_config(), expected);
    for (section, table) in [("load", LOAD_BOUNDS), ("compile", COMPILE_LIMITS)] {
        for row in table {
            let text = |value| format!("sandbox: {{{section}: {{engine: {{{}: {value}}}}}}}", row.key);
            let SandboxConfig { load, compile, .. } = parse(&text(row.most)).sandbox.sandbox_config();
            let found = if section == "load" { load.engine.get(row.key) } else { compile.limits.engine.get(row.key) };
            assert_eq!(found, Some(row.most), "{section} {}", row.key);
            let field = format!("sandbox.{section}.engine.{}", row.key);
            for value in [0, row.most + 1] {
                wrong(&text(value), 1, &field, &[&format!("a whole number from 1 to {}, not `{value}`", row.most)]);
            }
        }
    }
    wrong("sandbox: {load: {compakt: {}}}", 1, "sandbox.load.compakt", &["did you mean `compact`?"]);
    wrong("sandbox: {load: {compact: {function: 1}}}", 1, "sandbox.load.compact.function", &["`functions`?"]);
    wrong("sandbox: {compile: {at_once: 0}}", 1, "sandbox.compile.at_once", &["from 1 to 1024"]);
    wrong("sandbox: {compile: {worker: sh}}", 1, "sandbox.compile.worker", &["unknown field", "cache_bytes"]);
}

#[test]
fn components_are_checked() {
    wrong("components: {}", 1, "components", &["must be a list, not a mapping"]);
    wrong("components:\n  - path: a\n", 2, "components[0].type", &["`type` is missing"]);
    wrong("components:\n  - type: a\n", 2, "components[0].path", &["`path` is missing"]);
    wrong("components: [{type: a, path: ''}]", 1, "components[0].path", &["must not be empty"]);
    wrong("components: [{type: default, path: a}]", 1, "components[0].type", &["`default` is reserved"]);
    wrong("components: [{type: a/b, path: a}]", 1, "components[0].type", &["`a/b`", "letters, digits"]);
    wrong(
        "components:\n- {type: a, path: a}\n- {type: a, path: b}",
        3,
        "components[1].type",
        &["`a` is already on line 2"],
    );
    let digit = "a".repeat(64);
    for digest in ["abc".to_owned(), digit.clone(), format!("sha256:{digit}a"), format!("sha256:g{}", &digit[1..])] {
        wrong(
            &format!("components: [{{type: a, path: a, digest: '{digest}'}}]"),
            1,
            "components[0].digest",
            &["`sha256:` and 64 hex digits"],
        );
    }
}

#[test]
fn a_required_digest_must_be_there() {
    let text = "sandbox: {require_digest: true}\ncomponents:\n  - type: a\n    path: a\n";
    wrong(text, 3, "components[0].digest", &["require_digest", "sha256:"]);
    let text = format!("sandbox: {{require_digest: true}}\n{}", with_instance("name: a\ncomponent: a.wasm"));
    wrong(&text, 5, "worker_selection.instances[0].component", &["require_digest", "`components`"]);
}

#[test]
fn tenants_are_checked() {
    wrong("tenants: [{routing_groups: [a]}]", 1, "tenants[0].name", &["missing"]);
    wrong("tenants: [{name: a}]", 1, "tenants[0].routing_groups", &["missing"]);
    wrong("tenants: [{name: a, routing_groups: []}]", 1, "tenants[0].routing_groups", &["at least one"]);
    wrong(
        "tenants:\n- {name: a, routing_groups: [b]}\n- {name: a, routing_groups: [c]}",
        3,
        "tenants[1].name",
        &["tenant `a` is already on line 2"],
    );
    wrong(
        "tenants:\n- {name: a, routing_groups: [b]}\n- {name: c, routing_groups:\n  [d, b]}",
        4,
        "tenants[1].routing_groups[1]",
        &["routing group `b` is already on line 2"],
    );
    wrong("tenants: [{name: a, routing_groups: [{}]}]", 1, "tenants[0].routing_groups[0]", &["must be a text"]);
}

// Worker selection

#[test]
fn an_empty_selection_is_refused() {
    for text in ["worker_selection: {}", "worker_selection: {prefill: ~, instances: []}"] {
        wrong(text, 1, "worker_selection", &["says nothing", "instance"]);
    }
    wrong("worker_selection: [a]", 1, "worker_selection", &["must be a mapping"]);
}

#[test]
fn names_and_types_are_checked() {
    wrong_instance("type: t", 3, "name", &["`name` is missing"]);
    wrong_instance("name: a b\ntype: t", 3, "name", &["`a b`", "letters, digits, `_`, `.` and `-`"]);
    wrong_instance("name: ''\ntype: t", 3, "name", &["must not be empty"]);
    wrong_instance("name: [a]\ntype: t", 3, "name", &["must be a text, not a list"]);
    wrong_instance("name: default\ntype: t", 3, "name", &["`default` is reserved"]);
    wrong_instance("name: a\ntype: ü", 4, "type", &["`ü`", "letters"]);
    wrong_instance("name: a\ntype: default", 4, "type", &["`default` is reserved"]);
    assert_eq!(instance("name: a_B.3-c\ntype: t").name, "a_B.3-c");
    let twice = "worker_selection:\n  instances:\n  - {name: a, type: t}\n  - {name: a, type: u}\n";
    wrong(twice, 4, "worker_selection.instances[1].name", &["instance `a` is already on line 3"]);
}

#[test]
fn a_role_names_an_instance_or_default() {
    let text =
        "worker_selection:\n  encode: least-bsy\n  instances: [{name: z, type: t}, {name: least-busy, type: t}]\n";
    wrong(
        text,
        2,
        "worker_selection.encode",
        &["`least-bsy` (did you mean `least-busy`?)", "the instances are least-busy, z"],
    );
    wrong("worker_selection: {prefill: gone}", 1, "worker_selection.prefill", &["`gone`", "the instances are <none>"]);
    wrong("worker_selection: {prefill: [a]}", 1, "worker_selection.prefill", &["must be a text"]);
}

#[test]
fn parameters_are_a_mapping_of_json_values() {
    for value in ["[1]", "1", "text", "", "~"] {
        wrong_instance(&format!("name: a\ntype: t\nparameters: {value}"), 5, "parameters", &["must be a mapping"]);
    }
    for value in [".nan", ".NaN", ".inf", "-.inf", "+.INF"] {
        let lines = format!("name: a\ntype: t\nparameters:\n  deep:\n    - ok: 1\n      weight: {value}");
        wrong_instance(&lines, 8, "parameters.deep[0].weight", &[&format!("`{value}` is not allowed"), "finite"]);
    }
    for value in ["18446744073709551616", "-9223372036854775809", "0x10000000000000000", "1e999"] {
        let lines = format!("name: a\ntype: t\nparameters: {{x: {value}}}");
        wrong_instance(&lines, 5, "parameters.x", &[&format!("`{value}` is out of the range of numbers")]);
    }
    wrong_instance("name: a\ntype: t\nparameters: {a.b: .nan}", 5, "parameters[`a.b`]", &["`.nan`"]);
}

#[test]
fn an_instance_is_one_thing() {
    wrong_instance("name: a", 3, "", &["add one of type, component and pipeline"]);
    wrong_instance("name: a\ntype: t\ncomponent: c", 3, "", &["type and component side by side", "keep one"]);
    wrong_instance("name: a\ncomponent: [c]", 4, "component", &["must be a text"]);
}

#[test]
fn a_pipeline_names_other_instances() {
    let text = |pipeline: &str| {
        format!(
            "worker_selection:\n  instances:\n  - {{name: a, type: t}}\n  - {{name: b, pipeline: {{picker: a}}}}\n  - name: c\n    pipeline: {pipeline}\n"
        )
    };
    let field = |rest: &str| format!("worker_selection.instances[2].pipeline{rest}");
    for empty in ["{}", "{filters: [], scorers: ~}"] {
        wrong(&text(empty), 6, &field(""), &["the pipeline is empty"]);
    }
    wrong(&text("[a]"), 6, &field(""), &["must be a mapping"]);
    wrong(&text("{filters: a}"), 6, &field(".filters"), &["must be a list"]);
    wrong(&text("{filters: [a, x]}"), 6, &field(".filters[1]"), &["no instance is named `x`", "a, b, c"]);
    wrong(&text("{scorers: [b]}"), 6, &field(".scorers[0]"), &["`b` is a pipeline itself"]);
    wrong(&text("{picker: c}"), 6, &field(".picker"), &["the pipeline names itself"]);
    wrong(&text("{scorers: [a, a]}"), 6, &field(".scorers[1]"), &["`a` is already on line 6"]);
    wrong(&text("{picker: default}"), 6, &field(".picker"), &["no instance is named `default`"]);
    parse(&text("{filters: [a], scorers: [a], picker: a}"));
}

#[test]
fn what_belongs_to_a_pipelines_instances_is_refused_beside_it() {
    for (key, value) in [("parameters", "{}"), ("limits", "{}"), ("on_fault", "reject")] {
        let text = format!(
            "worker_selection:\n  instances:\n  - {{name: a, type: t}}\n  - name: b\n    pipeline: {{picker: a}}\n    {key}: {value}\n"
        );
        wrong(&text, 6, &format!("worker_selection.instances[1].{key}"), &["a pipeline has no", key, "its instances"]);
    }
}

#[test]
fn limits_are_checked() {
    for row in LIMITS {
        let limited = |value: u64| format!("name: a\ntype: t\nlimits: {{{}: {value}}}", row.key);
        for value in [0, row.most + 1] {
            let range = format!("a whole number from 1 to {}", row.most);
            wrong_instance(&limited(value), 5, &format!("limits.{}", row.key), &[&range]);
        }
        for value in [1, row.most] {
            assert_eq!(instance(&limited(value)).limits.resolve().get(row.key), Some(value));
        }
    }
    wrong_instance("name: a\ntype: t\nlimits: {fuel_base: 1e6}", 5, "limits.fuel_base", &["whole number", "not `1e6`"]);
    wrong_instance("name: a\ntype: t\nlimits: {profile: engin}", 5, "limits.profile", &["did you mean `engine`?"]);
    wrong_instance("name: a\ntype: t\nlimits: 5", 5, "limits", &["must be a mapping"]);
}

#[test]
fn one_word_on_fault_leaves_the_filter_a_hard_rule() {
    for (word, otherwise) in
        [("reject", FaultAction::Reject), ("fallback", FaultAction::Fallback), ("last-good", FaultAction::LastGood)]
    {
        let on_fault = instance(&format!("name: a\ntype: t\non_fault: {word}")).on_fault;
        assert_eq!(on_fault, OnFault { filter: FaultAction::Reject, otherwise });
    }
    let map = |text: &str| instance(&format!("name: a\ntype: t\non_fault: {{{text}}}")).on_fault;
    assert_eq!(map("filter: fallback"), OnFault { filter: FaultAction::Fallback, otherwise: FaultAction::Fallback });
    assert_eq!(map("otherwise: reject"), OnFault { filter: FaultAction::Reject, otherwise: FaultAction::Reject });
    wrong_instance("name: a\ntype: t\non_fault: ignore", 5, "on_fault", &["`ignore`", "reject, fallback or last-good"]);
    wrong_instance("name: a\ntype: t\non_fault: {filter: last-good}", 5, "on_fault.filter", &["reject or fallback"]);
    wrong_instance("name: a\ntype: t\non_fault: {}", 5, "on_fault", &["says nothing"]);
    wrong_instance("name: a\ntype: t\non_fault: [reject]", 5, "on_fault", &["must be a text, not a list"]);
}

#[test]
fn partition_rules_are_checked() {
    let wrong_rules = |rules: &str, line: usize, field: &str, words: &[&str]| {
        let text = format!(
            "tenants: [{{name: acme, routing_groups: [gold]}}]\nworker_selection:\n  instances: [{{name: a, type: t}}]\n  partitions:\n{rules}"
        );
        wrong(&text, line, &format!("worker_selection.partitions[{field}"), words);
    };
    wrong_rules("  - prefill: a\n", 5, "0]", &["add model, routing_group or tenant"]);
    wrong_rules("  - model: m\n", 5, "0]", &["selects nothing", "aggregated, prefill, decode or encode"]);
    wrong_rules("  - {model: m, prefill: b}\n", 5, "0].prefill", &["no instance is named `b`", "the instances are a"]);
    wrong_rules(
        "  - tenant: acne\n    prefill: a\n",
        5,
        "0].tenant",
        &["did you mean `acme`?", "the tenants are acme"],
    );
    wrong_rules(
        "  - routing_group: gold\n    tenant: acme\n    prefill: a\n",
        6,
        "0].tenant",
        &["not both", "remove one"],
    );
    wrong_rules(
        "  - {model: m, prefill: a}\n  - {model: m, decode: a}\n",
        6,
        "1]",
        &["the rule on line 5", "join them"],
    );
    wrong_rules("  - {model: '', prefill: a}\n", 5, "0].model", &["must not be empty"]);
    wrong(
        "worker_selection:\n  partitions: [{tenant: t, prefill: default}]",
        2,
        "worker_selection.partitions[0].tenant",
        &["the tenants are <none>"],
    );
}

// Policy classes

/// The profile with one text in place of another has this one problem.
#[track_caller]
fn wrong_profile(from: &str, to: &str, line: usize, field: &str, words: &[&str]) {
    assert_eq!(PROFILE.matches(from).count(), 1, "{from}");
    let text = PROFILE.replace(from, to);
    wrong(&text, line, field, words);
    // A model's own is read by the same rules.
    let indented: String = text.lines().flat_map(|line| ["    ", line, "\n"]).collect();
    let field = if field.is_empty() { String::new() } else { format!(".{field}") };
    wrong(&format!("models:\n  meta/llama-3:\n{indented}"), line + 2, &format!("models[`meta/llama-3`]{field}"), words);
}

#[test]
fn the_guides_admission_file_is_read_byte_for_byte() {
    let config = parse(ADMISSION);
    let RequestClassifier { policy, on_fault, max_deferral_ms } = config.request_classifier.as_ref().unwrap();
    assert_eq!(policy.kind, InstanceKind::Type("queue-budget".to_owned()));
    assert_eq!((policy.line, policy.kind_line, policy.parameter_lines["max_wait_ms"]), (1, 2, 4));
    assert_eq!(json!(policy.parameters), json!({"max_wait_ms": 2000}));
    assert_eq!((policy.limits.resolve(), *on_fault), (Limits::default(), ClassifierOnFault::Reject));
    assert_eq!(*max_deferral_ms, 60_000);
    config.check_types(&["queue-budget".to_owned()]).unwrap();

    let profile = config.profiles.of("any");
    let class = PolicyClass {
        name: "standard_all".to_owned(),
        policy_family: Some("standard".to_owned()),
        cache_bucket: Some("all".to_owned()),
        quantum: 1,
        prefill_busy_threshold_frac: Some(1.0),
        ..PolicyClass::default()
    };
    assert_eq!(profile.classes(), [class]);
    assert!(profile.class(profile.choose(None, 7)).can_queue());
}

#[test]
fn every_key_of_a_class_is_read() {
    let config = parse(PROFILE);
    let profile = config.profiles.of("any");
    let batch = PolicyClass {
        name: "batch".to_owned(),
        queue_policy: QueuePolicy::Wspt,
        quantum: 64,
        prefill_busy_threshold: Some(2048),
        prefill_busy_threshold_frac: Some(0.5),
        limits: QueueLimits { requests: Some(0), prompt_tokens: Some(u64::MAX), cached_tokens: Some(3) },
        ..PolicyClass::default()
    };
    assert_eq!(profile.classes()[2], batch);
    for (requested, uncached, name) in
        [(None, 4095, "standard_short"), (Some("standard"), 4096, "standard_long"), (Some("batch"), 9000, "batch")]
    {
        assert_eq!(profile.class(profile.choose(requested, uncached)).name, name);
    }
}

#[test]
fn a_models_profile_replaces_the_files_own_whole() {
    let model = "\
models:
  large:
    default_policy_family: latency
    uncached_isl_buckets: [{min_tokens: 0, bucket: all}]
    policy_classes: [{name: latency_all, policy_family: latency, cache_bucket: all, quantum: 2}]
";
    let names = |config: &PolicyConfig, model| -> Vec<String> {
        config.profiles.of(model).classes().iter().map(|class| class.name.clone()).collect()
    };
    let both = parse(&format!("{PROFILE}{model}"));
    assert_eq!(names(&both, "large"), ["latency_all"]);
    assert_eq!(names(&both, "other"), ["standard_short", "standard_long", "batch"]);
    let alone = parse(model);
    assert_eq!(names(&alone, "large"), ["latency_all"]);
    assert_eq!(alone.profiles.of("other"), Profiles::default().of("other"), "one class, in which nothing waits");
    assert_eq!(parse("worker_selection: {decode: default}").profiles, Profiles::default());
    wrong("models: [a]", 1, "models", &["must be a mapping"]);
    wrong(&model.replace("large", "''"), 2, "models[``]", &["a model's name must not be empty"]);
    wrong("models:\n  large: 1\n", 2, "models.large", &["must be a mapping, not `1`"]);
}

#[test]
fn a_profile_has_all_its_keys_or_none() {
    let text = PROFILE.replace("default_policy_family: standard\n", "");
    wrong(&text, 1, "default_policy_family", &["`default_policy_family` is missing; add it"]);
    let both = problems("sandbox: {}\npolicy_classes:\n  - {name: a, quantum: 1}\n");
    let fields: Vec<&str> = both.iter().map(|problem| problem.field.as_str()).collect();
    assert_eq!(fields, ["default_policy_family", "uncached_isl_buckets"], "{both:#?}");
    let none = problems("models:\n  large: {}\n");
    assert!(
        none.iter().all(|problem| problem.line == 2 && problem.message.contains("is missing; add it")),
        "{none:#?}"
    );
    let fields: Vec<&str> = none.iter().map(|problem| problem.field.as_str()).collect();
    let key = |key: &str| format!("models.large.{key}");
    assert_eq!(fields, ["default_policy_family", "uncached_isl_buckets", "policy_classes"].map(key));
    parse("default_policy_family: ~\nuncached_isl_buckets:\npolicy_classes: null\nrouter: {}\n");
}

#[test]
fn unknown_fields_of_profiles_are_refused() {
    wrong_profile(
        "bucket: short}\n",
        "bucket: short, most: 1}\n",
        3,
        "uncached_isl_buckets[0].most",
        &["min_tokens, bucket"],
    );
    wrong_profile(
        "quantum: 512",
        "quantum: 512, quantumm: 1",
        6,
        "policy_classes[0].quantumm",
        &["did you mean `quantum`?"],
    );
    // What follows from a misspelt key is not said.
    wrong_profile(
        "cache_bucket: short",
        "cache_buket: short",
        6,
        "policy_classes[0].cache_buket",
        &["`cache_bucket`?"],
    );
    wrong_profile("quantum: 64", "quanta: 64", 10, "policy_classes[2].quanta", &["did you mean `quantum`?"]);
    let text =
        PROFILE.lines().fold("models:\n  large:\n    extra: 1\n".to_owned(), |text, line| text + "    " + line + "\n");
    wrong(&text, 3, "models.large.extra", &["default_policy_family, uncached_isl_buckets, policy_classes"]);
}

#[test]
fn buckets_are_checked() {
    let bucket = |key: &str| format!("uncached_isl_buckets[{key}");
    wrong_profile(
        "min_tokens: 0",
        "min_tokens: 5",
        3,
        &bucket("0].min_tokens"),
        &["starts at 5 tokens", "start it at 0"],
    );
    wrong_profile(
        "min_tokens: 4096",
        "min_tokens: 0",
        4,
        &bucket("1].min_tokens"),
        &["not more than the 0", "rising order"],
    );
    wrong_profile(
        "bucket: long}\n",
        "bucket: long}\n  - {min_tokens: 9000, bucket: short}\n",
        5,
        &bucket("2].bucket"),
        &["`short` names an earlier entry"],
    );
    wrong_profile(
        "bucket: short}\n",
        "bucket: a/b}\n",
        3,
        &bucket("0].bucket"),
        &["`a/b` is no bucket name", "letters"],
    );
    wrong_profile(
        "min_tokens: 4096",
        "min_tokens: -1",
        4,
        &bucket("1].min_tokens"),
        &["a whole number from 0", "not `-1`"],
    );
    wrong_profile("min_tokens: 4096, ", "", 4, &bucket("1].min_tokens"), &["`min_tokens` is missing"]);
    wrong_profile(", bucket: long}\n", "}\n", 4, &bucket("1].bucket"), &["`bucket` is missing"]);
    wrong_profile("{min_tokens: 4096, bucket: long}", "4096", 4, &bucket("1]"), &["must be a mapping, not `4096`"]);
    wrong_profile(
        "uncached_isl_buckets:\n  - {min_tokens: 0, bucket: short}\n  - {min_tokens: 4096, bucket: long}\n",
        "uncached_isl_buckets: []\n",
        2,
        "uncached_isl_buckets",
        &["must not be empty"],
    );
}

#[test]
fn classes_are_checked() {
    let class = |key: &str| format!("policy_classes[{key}");
    wrong_profile("name: batch", "name: a b", 8, &class("2].name"), &["`a b` is no class name", "letters, digits"]);
    wrong_profile("name: batch", "name: ''", 8, &class("2].name"), &["must not be empty"]);
    wrong_profile("name: standard_long, ", "", 7, &class("1].name"), &["`name` is missing"]);
    wrong_profile(
        "name: batch",
        "name: standard_long",
        8,
        &class("2].name"),
        &["`standard_long` names an earlier entry"],
    );
    wrong_profile("name: batch", "name: standard", 8, &class("2].name"), &["`standard` has the name of a family"]);
    wrong_profile("    quantum: 64\n", "", 8, &class("2].quantum"), &["`quantum` is missing"]);
    for value in ["0", "-1", "1.5", "many"] {
        let to = format!("quantum: {value}");
        wrong_profile("quantum: 64", &to, 10, &class("2].quantum"), &["a whole number from 1"]);
    }
    wrong_profile("wspt", "lcfs", 9, &class("2].queue_policy"), &["`lcfs`", "use fcfs or wspt"]);
    wrong_profile("wspt", "wsppt", 9, &class("2].queue_policy"), &["did you mean `wspt`?", "use fcfs or wspt"]);
    wrong_profile("threshold: 2048", "threshold: 0.5", 11, &class("2].prefill_busy_threshold"), &["a whole number"]);
    for value in ["-0.5", "-1", ".nan", ".inf"] {
        let to = format!("frac: {value}");
        wrong_profile("frac: 0.5", &to, 12, &class("2].prefill_busy_threshold_frac"), &["class `batch`", "finite"]);
    }
    wrong_profile("frac: 0.5", "frac: most", 12, &class("2].prefill_busy_threshold_frac"), &["must be a number"]);
    for (from, to, line, key) in [
        ("request_queue_limit_per_worker: 0", "-1", 13, "request_queue_limit_per_worker"),
        (
            "raw_isl_token_queue_limit_per_worker: 18446744073709551615",
            "1.0",
            14,
            "raw_isl_token_queue_limit_per_worker",
        ),
        ("cached_token_queue_limit_per_worker: 3", "[]", 15, "cached_token_queue_limit_per_worker"),
    ] {
        wrong_profile(from, &format!("{key}: {to}"), line, &class(&format!("2].{key}")), &["a whole number from 0"]);
    }
    wrong_profile("cache_bucket: short, ", "", 6, &class("0].policy_family"), &["only one of", "give both"]);
    wrong_profile(
        "policy_family: standard, cache_bucket: long",
        "cache_bucket: long",
        7,
        &class("1].cache_bucket"),
        &["only one of"],
    );
    wrong_profile("cache_bucket: long", "cache_bucket: lang", 7, &class("1].cache_bucket"), &["unknown bucket `lang`"]);
    wrong_profile("cache_bucket: long", "cache_bucket: a/b", 7, &class("1].cache_bucket"), &["no bucket name"]);
    wrong_profile(
        "cache_bucket: long",
        "cache_bucket: short",
        7,
        &class("1].cache_bucket"),
        &["as class `standard_short` does"],
    );
    wrong_profile(
        "policy_family: standard, cache_bucket: long",
        "policy_family: a b, cache_bucket: long",
        7,
        &class("1].policy_family"),
        &["no policy family"],
    );
    wrong_profile("family: standard\n", "family: batch\n", 1, "default_policy_family", &["`batch` is no family"]);
    wrong_profile("family: standard\n", "family: a/b\n", 1, "default_policy_family", &["`a/b` is no policy family"]);
    let gap = "  - {name: standard_long, policy_family: standard, cache_bucket: long, quantum: 128}\n";
    wrong_profile(gap, "", 5, "policy_classes", &["family `standard` has no class for bucket `long`; add one"]);
    wrong(
        "default_policy_family: a\nuncached_isl_buckets: [{min_tokens: 0, bucket: b}]\npolicy_classes: []\n",
        3,
        "policy_classes",
        &["must not be empty"],
    );
    wrong(
        "default_policy_family: a\nuncached_isl_buckets: [{min_tokens: 0, bucket: b}]\npolicy_classes: {a: 1}\n",
        3,
        "policy_classes",
        &["must be a list"],
    );
}

#[test]
fn every_problem_of_a_profile_is_reported_at_once() {
    let all = problems(
        "\
default_policy_family: standard
uncached_isl_buckets:
  - {min_tokens: 1, bucket: short}
  - {min_tokens: 1, bucket: long}
policy_classes:
  - {name: one, policy_family: standard, cache_bucket: short, quantum: 0}
  - {name: one, policy_family: standard, cache_bucket: lang, quantum: 1}
  - {name: part, policy_family: standard, quantum: 1, prefill_busy_threshold_frac: -1}
models:
  large: {policy_classes: []}
",
    );
    let places: Vec<_> = all.iter().map(|problem| (problem.line, problem.field.as_str())).collect();
    assert_eq!(
        places,
        [
            (3, "uncached_isl_buckets[0].min_tokens"),
            (4, "uncached_isl_buckets[1].min_tokens"),
            (6, "policy_classes[0].quantum"),
            (7, "policy_classes[1].name"),
            (7, "policy_classes[1].cache_bucket"),
            (8, "policy_classes[2].prefill_busy_threshold_frac"),
            (8, "policy_classes[2].policy_family"),
            (10, "models.large.default_policy_family"),
            (10, "models.large.uncached_isl_buckets"),
            (10, "models.large.policy_classes"),
        ]
    );
    // Where the file ends early, nothing is said of what may be in the rest.
    for lines in 2..15 {
        let start: String = PROFILE.lines().take(lines).flat_map(|line| [line, "\n"]).collect();
        let all = problems(&format!("{start}\tx: 1\n"));
        assert_eq!(all.len(), 1, "{all:#?}");
        assert!(all[0].message.contains("not valid YAML"), "{all:#?}");
    }
}

// The classifier and session affinity

/// The text of a classifier that starts on line 1 has this one problem.
#[track_caller]
fn wrong_classifier(fields: &str, field: &str, words: &[&str]) {
    let dot = if field.is_empty() { "" } else { "." };
    wrong(&format!("request_classifier: {{{fields}}}"), 1, &format!("request_classifier{dot}{field}"), words);
}

#[test]
fn a_classifier_is_read_as_an_instance_is() {
    let classifier = |fields: &str| parse(&format!("request_classifier: {{{fields}}}")).request_classifier.unwrap();
    let read = classifier("component: a.wasm, limits: {profile: engine}, on_fault: admit, max_deferral_ms: 1");
    assert_eq!(read.policy.kind, InstanceKind::Component("conf/a.wasm".into()));
    assert_eq!(read.policy.limits.resolve(), Limits::of(Profile::Engine));
    assert_eq!((read.on_fault, read.max_deferral_ms), (ClassifierOnFault::Admit, 1));
    assert!(read.policy.parameters.is_empty());
    assert_eq!(classifier("type: t, on_fault: reject, max_deferral_ms: 86400000").max_deferral_ms, 86_400_000);
    for row in LIMITS {
        let read = classifier(&format!("type: t, limits: {{{}: {}}}", row.key, row.most));
        assert_eq!(read.policy.limits.resolve().get(row.key), Some(row.most));
    }
    for key in ["classify_fuel", "event_fuel", "tick_fuel", "tick_deadline_us"] {
        assert_eq!(classifier(&format!("type: t, limits: {{{key}: 7}}")).policy.limits.resolve().get(key), Some(7));
    }
}

#[test]
fn a_classifier_is_checked() {
    wrong_classifier("", "", &["add one of type and component"]);
    wrong_classifier("type: a, component: b", "", &["type and component side by side"]);
    wrong_classifier("type: default", "type", &["`default` is reserved"]);
    wrong_classifier("type: a/b", "type", &["`a/b`", "letters, digits"]);
    wrong_classifier("type: ''", "type", &["must not be empty"]);
    wrong_classifier("type: a, pipeline: {picker: b}", "pipeline", &["unknown field `pipeline`"]);
    wrong_classifier("type: a, name: b", "name", &["unknown field `name`", "type, component, parameters"]);
    wrong_classifier("tipe: a", "tipe", &["did you mean `type`?"]);
    for value in ["1", "[]", "~", ""] {
        wrong_classifier(&format!("type: a, parameters: {value}"), "parameters", &["must be a mapping"]);
    }
    wrong_classifier("type: a, parameters: {x: .nan}", "parameters.x", &["finite"]);
    wrong_classifier("type: a, limits: {classify_fule: 1}", "limits.classify_fule", &["did you mean `classify_fuel`?"]);
    wrong_classifier("type: a, on_fault: fallback", "on_fault", &["`fallback`", "use reject or admit"]);
    wrong_classifier("type: a, on_fault: {otherwise: admit}", "on_fault", &["must be a text"]);
    for value in ["0", "86400001", "-1", "1.5", "soon"] {
        let fields = format!("type: a, max_deferral_ms: {value}");
        wrong_classifier(&fields, "max_deferral_ms", &["a whole number from 1 to 86400000"]);
    }
    wrong("request_classifier: queue-budget", 1, "request_classifier", &["must be a mapping"]);
    let text = "sandbox: {require_digest: true}\nrequest_classifier:\n  component: a.wasm\n";
    wrong(text, 3, "request_classifier.component", &["require_digest", "`components`"]);
}

#[test]
fn session_affinity_is_checked() {
    let read = |text: &str| parse(&format!("session_affinity: {{{text}}}")).session_affinity.unwrap();
    let settings = |mode, ttl_secs| SessionAffinitySettings { mode, ttl_secs };
    assert_eq!(read("ttl_secs: 1"), settings(AffinityMode::Hard, 1));
    assert_eq!(read("mode: soft, ttl_secs: 31536000"), settings(AffinityMode::Soft, 31_536_000));
    assert_eq!(read("mode: hard, ttl_secs: 2").mode, AffinityMode::Hard);
    assert_eq!(parse("router: {}").session_affinity, None);
    wrong("session_affinity: {mode: soft}", 1, "session_affinity.ttl_secs", &["`ttl_secs` is missing"]);
    for value in ["0", "31536001", "1.0", "never"] {
        let text = format!("session_affinity:\n  ttl_secs: {value}\n");
        wrong(&text, 2, "session_affinity.ttl_secs", &["a whole number from 1 to 31536000"]);
    }
    wrong(
        "session_affinity: {mode: herd, ttl_secs: 1}",
        1,
        "session_affinity.mode",
        &["did you mean `hard`?", "hard or soft"],
    );
    wrong("session_affinity: {ttl_secs: 1, ttl: 2}", 1, "session_affinity.ttl", &["mode, ttl_secs"]);
    wrong("session_affinity: 60", 1, "session_affinity", &["must be a mapping"]);
}

/// Files of the kinds that NVIDIA Dynamo 1.6.1's own tests take.
#[test]
fn files_that_dynamo_takes_are_taken() {
    for text in [
        GUIDE,
        ADMISSION,
        "request_classifier:\n  type: thunderagent\n  parameters:\n    pause_threshold: 0.9\n",
        "request_classifier: {type: a.B-2_}",
        "worker_selection: {decode: default}\nmodels: {}\n",
        "\
default_policy_family: latency
uncached_isl_buckets: [{min_tokens: 0, bucket: cached}, {min_tokens: 32, bucket: uncached}]
policy_classes:
  - {name: default, policy_family: latency, cache_bucket: cached, quantum: 2, request_queue_limit_per_worker: 0}
  - name: latency_uncached
    policy_family: latency
    cache_bucket: uncached
    queue_policy: ~
    quantum: 4
    prefill_busy_threshold: null
    prefill_busy_threshold_frac: 0
  - {name: urgent, policy_family: ~, cache_bucket: ~, quantum: 1, prefill_busy_threshold_frac: 16.0}
",
    ] {
        parse(text);
    }
}

// What is understood of a wrong file

#[test]
fn a_reading_keeps_what_is_sound() {
    let reading = Reading::of(
        "policy.yaml",
        Path::new("conf"),
        "\
components:
- {path: a.wasm}
- {type: mine}
- {type: mine, path: b.wasm}
worker_selection:
  aggregated: gone
  decode: right
  instances:
  - {name: no-kind}
  - name: right
    type: mine
    limits: {fuel: 1, fuel_base: 7}
    parameters:
      a: [1]
      'b c': 2
  - {name: right, type: typo}
",
    );
    let lines: Vec<usize> = reading.problems.iter().map(|problem| problem.line).collect();
    assert_eq!(lines, [2, 3, 4, 6, 9, 12, 16], "{:#?}", reading.problems);
    let components: Vec<_> = reading.components().map(|(place, each)| (place, each.type_name.as_str())).collect();
    assert_eq!(components, [(0, "components[0]"), (2, "components[2]")]);
    let instances: Vec<_> = reading.instances().map(|(place, each)| (place, each.name.as_str())).collect();
    assert_eq!(instances, [(1, "right"), (2, "instances[2]")]);
    let selection = reading.config.worker_selection.as_ref().unwrap();
    assert_eq!(
        (selection.roles.get(Role::Aggregated), selection.roles.get(Role::Decode)),
        (None, Some(&named("right")))
    );
    assert_eq!(selection.instances[0].limits.values, [("fuel_base", 7)]);

    // `mine` is a type, whatever else is wrong with its entries.
    let types = reading.type_problems(&[]);
    let places: Vec<_> = types.iter().map(|problem| (problem.line, problem.field.as_str())).collect();
    assert_eq!(places, [(16, "worker_selection.instances[2].type")], "{types:#?}");

    let right = "worker_selection.instances[1]";
    let of_parameters = format!("{right}.parameters");
    for (field, line) in [
        (format!("{right}.kind"), 10),
        (format!("{right}.limits.fuel_base"), 12),
        (Reading::field(&of_parameters, "a"), 14),
        (Reading::field(&of_parameters, "b c"), 15),
        (format!("{of_parameters}.absent"), 13),
        ("worker_selection.decode".to_owned(), 7),
        ("absent".to_owned(), 1),
    ] {
        assert_eq!(reading.problem(&field, String::new()).line, line, "{field}");
    }
    assert!(reading.has_problem(&format!("{right}.limits")));
    assert!(!reading.has_problem(&of_parameters));
}

// Types

#[test]
fn types_are_checked_all_at_once() {
    let config = parse(
        "components:\n- {type: mine, path: a}\n- {type: random, path: b}\nworker_selection:\n  instances:\n  - {name: a, type: mine}\n  - name: b\n    type: rendom\n  - {name: c, type: random}\n  - {name: d, type: nothing}\n",
    );
    let problems = config.check_types(&["round-robin".to_owned(), "random".to_owned()]).unwrap_err();
    let shown: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let types = "the types are mine, random, round-robin";
    assert_eq!(
        shown,
        [
            "policy.yaml:3: components[1].type: the type `random` is registered already; choose another name"
                .to_owned(),
            format!(
                "policy.yaml:8: worker_selection.instances[1].type: unknown policy type `rendom` (did you mean `random`?); {types}"
            ),
            format!("policy.yaml:10: worker_selection.instances[3].type: unknown policy type `nothing`; {types}"),
        ]
    );
    let text = "components: [{type: mine, path: a}]\nrequest_classifier:\n  type: minee\n";
    let problems = parse(text).check_types(&["queue-budget".to_owned()]).unwrap_err().to_string();
    let expected = "policy.yaml:3: request_classifier.type: unknown policy type `minee` (did you mean `mine`?); the \
                    types are mine, queue-budget";
    assert_eq!(problems, expected);
    let problems = parse(GUIDE).check_types(&[]).unwrap_err();
    assert_eq!(problems.len(), 2);
    assert!(problems.to_string().contains("unknown policy type `least-busy`; the types are <none>"), "{problems}");
    parse("worker_selection: {instances: [{name: a, component: a.wasm}]}").check_types(&[]).unwrap();
}

// Overrides

fn overrides(prefill: &str, decode: &str, global: &str) -> Overrides {
    let some = |name: &str| (!name.is_empty()).then(|| name.to_owned());
    Overrides { prefill: some(prefill), decode: some(decode), global: some(global), ..Overrides::default() }
}

#[test]
fn overrides_go_before_the_file_in_dynamos_order() {
    let config = parse(
        "worker_selection:\n  aggregated: file\n  prefill: file\n  decode: file\n  instances: [{name: file, type: t}, {name: role, type: t}, {name: all, type: t}]\n  partitions: [{model: m, prefill: default}]\n",
    );
    let select = |overrides: &Overrides| {
        Role::ALL.map(|role| match overrides.select(Some(&config), key("x", "x", role)).unwrap() {
            Selected::Default => "default".to_owned(),
            Selected::Instance(name) => name,
        })
    };
    // In the order aggregated, prefill, decode, encode.
    assert_eq!(select(&overrides("", "", "")), ["file", "file", "file", "default"]);
    assert_eq!(select(&overrides("", "", "all")), ["all", "all", "all", "all"]);
    assert_eq!(select(&overrides("role", "", "all")), ["all", "role", "all", "all"]);
    assert_eq!(select(&overrides("", "role", "")), ["file", "file", "role", "default"]);
    assert_eq!(select(&overrides(" role\t", "default", " ")), ["file", "role", "default", "default"]);
    assert_eq!(select(&overrides("", "", "default")), ["default"; 4]);
    assert_eq!(overrides("", "", "").select(None, key("x", "x", Role::Prefill)), Ok(Selected::Default));
    // An override holds for the process, whatever a rule says of the partition.
    assert_eq!(overrides("role", "", "").select(Some(&config), key("m", "x", Role::Prefill)), Ok(named("role")));
    assert_eq!(overrides("", "role", "").select(Some(&config), key("m", "x", Role::Prefill)), Ok(Selected::Default));
}

#[test]
fn an_override_names_an_instance() {
    let config = parse(GUIDE);
    let error = overrides("least-buzy", "", "").select(Some(&config), key("m", "g", Role::Prefill)).unwrap_err();
    let message = error.to_string();
    for words in ["prefill", "`least-buzy`", "did you mean `least-busy`?", "least-busy, prefill-least-busy"] {
        assert!(message.contains(words), "{message}");
    }
    let error = overrides("", "", "gone").select(None, key("m", "g", Role::Decode)).unwrap_err();
    assert!(error.to_string().ends_with("the instances are <none>"), "{error}");
    // What holds for another role is not looked at.
    assert!(overrides("gone", "", "").select(Some(&config), key("m", "g", Role::Decode)).is_ok());
}

#[test]
fn overrides_come_from_dynamos_variables() {
    let environment = |variable: &str| match variable {
        PREFILL_VARIABLE => Some(OsString::from(" a ")),
        DECODE_VARIABLE => Some(OsString::from("  ")),
        _ => None,
    };
    assert_eq!(Overrides::from_env(environment), Ok(overrides("a", "", "")));
    let names = [PREFILL_VARIABLE, DECODE_VARIABLE, GLOBAL_VARIABLE];
    assert_eq!(names, ["DYN_ROUTER_PREFILL_POLICY", "DYN_ROUTER_DECODE_POLICY", "DYN_ROUTER_WORKER_SELECTION_POLICY"]);
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_not_unicode_is_named() {
    use std::os::unix::ffi::OsStringExt as _;
    let environment = |variable: &str| (variable == GLOBAL_VARIABLE).then(|| OsString::from_vec(vec![b'a', 0xff]));
    let error = Overrides::from_env(environment).unwrap_err();
    assert_eq!(error, OverrideError::NotUnicode { variable: GLOBAL_VARIABLE });
    assert!(error.to_string().contains("DYN_ROUTER_WORKER_SELECTION_POLICY"), "{error}");
}

// Hostile text

/// Parses, and checks what must hold of every answer.
fn survives(text: &str) -> Result<(), TestCaseError> {
    if let Err(problems) = PolicyConfig::parse("policy.yaml", Path::new(""), text) {
        let lines = text.split(['\n', '\r']).count();
        prop_assert!(problems.len() > 0);
        prop_assert!(problems.iter().is_sorted_by_key(|problem| problem.line));
        for problem in &problems {
            prop_assert!(problem.line <= lines + 1, "{problem}");
            prop_assert!(!problem.to_string().chars().any(char::is_control), "{problem:?}");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn mutated_files_never_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0usize..12, "[-\\[\\]{}:,&*!|>'\"%@`#?~. \t\n0a\r\u{feff}é]{1,4}"), 1..8)
    ) {
        let mut text: Vec<char> = FULL.chars().collect();
        for (place, removed, inserted) in edits {
            let start = place.index(text.len() + 1);
            let end = (start + removed).min(text.len());
            text.splice(start..end, inserted.chars());
        }
        survives(&text.into_iter().collect::<String>())?;
    }

    #[test]
    fn shuffled_lines_never_panic(order in prop::collection::vec(0usize..64, 0..80)) {
        let lines: Vec<&str> = FULL.lines().collect();
        let text: String = order.iter().filter_map(|line| lines.get(*line)).flat_map(|line| [*line, "\n"]).collect();
        survives(&text)?;
    }

    #[test]
    fn any_text_never_panics(text in "\\PC*|[-\\[\\]{}:,&*!|>'\"%@`#?~a \t\n\r\0]{0,64}") {
        survives(&text)?;
    }
}
