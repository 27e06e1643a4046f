//! `pointsman policy run`: one decision over a written table.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails fails its test")]

mod common;

use std::fs;
use std::path::Path;
use std::process::Output;

use common::{bare_policy, error, json, pointsman, sdk_policy, stdout};
use serde_json::json;

fn decide(policy: &str, table: &str, arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table.yaml");
    fs::write(&path, table).unwrap();
    pointsman().args(["policy", "run", policy, "--table"]).arg(path).args(arguments).output().unwrap()
}

/// The keys of the outermost object, as they are printed.
fn keys(text: &str) -> Vec<&str> {
    let outermost = text.lines().filter_map(|line| line.strip_prefix("  \""));
    outermost.filter_map(|line| line.split('"').next()).collect()
}

fn name(path: &Path) -> &str {
    path.to_str().unwrap()
}

const YAML: &str = "
partition: {role: decode, block_size: 64}
router_config: {router_temperature: 0.5}
facts: {request.now-ms: 12.5}
texts: {session.id: one}
workers:
  - {worker: 9, signals: {load.active-requests: 1, load.decode-blocks: 30, worker.total-kv-blocks: 100}}
  - {worker: 4, rank: 1, signals: {load.active-requests: 0, load.decode-blocks: 10, worker.total-kv-blocks: 100}}
  - {worker: 4, signals: {load.active-requests: 8, load.decode-blocks: 0, worker.total-kv-blocks: 100}}
";

#[test]
fn a_decision_over_yaml_is_explained_in_json() {
    let arguments = ["--parameters", r#"{"max_active_requests": 1}"#, "--json"];
    let answer = json(&decide(name(sdk_policy()), YAML, &arguments));
    assert_eq!(answer["row"], 1, "rows are sorted by worker and rank, and the first is over the cap");
    assert_eq!((&answer["worker"], &answer["rank"]), (&json!(4), &json!(1)));
    assert_eq!(answer["cost"], 0.1);
    assert_eq!(answer["outcome"], "ok");
    assert_eq!(answer["kept"], json!([1, 2]));
    assert_eq!(answer["costs"], json!([[0.1, 0.3]]));
    assert_eq!(answer["columns"]["load.active-requests"], json!([8.0, 0.0, 1.0]));
    assert_eq!(answer["columns"]["load.decode-blocks"], json!([0.0, 10.0, 30.0]));
    assert!(answer["fuel"].as_u64().unwrap() > 0);
}

#[test]
fn a_classifier_is_tried_in_replay() {
    let said = error(&decide("session-serial", "workers: [{worker: 1}]", &[]));
    assert!(said.contains("request classifier") && said.contains("`pointsman replay`"), "{said}");
}

#[test]
fn json_is_read_as_well_and_decides_the_same() {
    let table = json!({"workers": [
        {"worker": 0, "signals": {"worker.total-kv-blocks": 100, "load.decode-blocks": 90}},
        {"worker": 1, "signals": {"worker.total-kv-blocks": 100, "load.decode-blocks": 20}},
        {"worker": 2, "signals": {"worker.total-kv-blocks": null, "load.decode-blocks": 0}},
    ]});
    for text in [format!("{table}"), format!("{table:#}").replace("  ", "\t")] {
        let answer = json(&decide(name(bare_policy()), &text, &["--json"]));
        assert_eq!((&answer["row"], &answer["cost"]), (&json!(1), &json!(-80.0)));
        assert_eq!(answer["columns"]["worker.total-kv-blocks"], json!([100.0, 100.0, null]), "missing is null");
    }
}

#[test]
fn the_fields_of_the_json_come_in_the_documented_order() {
    let order = ["row", "worker", "rank", "cost", "outcome", "fuel", "kept", "columns", "costs"];
    assert_eq!(keys(&stdout(&decide("least-loaded", YAML, &["--json"]))), order);
    let broken = "{workers: [{worker: 1, signals: {load.active-requests: 0}}]}";
    let arguments = ["--parameters", r#"{"max_active_requests": 1}"#, "--json"];
    let mut order = order.to_vec();
    order.push("message");
    assert_eq!(keys(&stdout(&decide(name(sdk_policy()), broken, &arguments))), order);
}

#[test]
fn people_get_a_table_and_a_sentence() {
    let text = stdout(&decide("least-loaded", YAML, &[]));
    assert!(text.contains("least-loaded (decode) chose worker 4, rank 1, at cost 0; fuel used: "), "{text}");
    let chosen: Vec<&str> = text.lines().filter(|line| line.starts_with("->")).collect();
    assert_eq!(chosen.len(), 1, "{text}");
}

#[test]
fn a_filter_that_keeps_no_row_is_an_answer() {
    let table = "{workers: [{worker: 1, signals: {load.active-requests: 5}}]}";
    let arguments = ["--parameters", r#"{"max_active_requests": 1}"#];
    let answer = json(&decide(name(sdk_policy()), table, &[&arguments[..], &["--json"]].concat()));
    assert_eq!(answer["outcome"], "all-eligible-workers-filtered");
    assert_eq!((&answer["row"], &answer["worker"], &answer["kept"]), (&json!(null), &json!(null), &json!([])));
    let text = stdout(&decide(name(sdk_policy()), table, &arguments));
    assert!(text.contains("chose no worker: all-eligible-workers-filtered"), "{text}");
}

#[test]
fn a_fault_is_named_with_its_stage() {
    let table = "{workers: [{worker: 1, signals: {load.active-requests: 0}}]}";
    let arguments = ["--parameters", r#"{"max_active_requests": 1}"#, "--json"];
    let answer = json(&decide(name(sdk_policy()), table, &arguments));
    assert_eq!(answer["outcome"], "bad-answer", "the cost is NaN, since the worker has no capacity");
    assert_eq!(answer["cost"], json!(null));
    assert!(answer["message"].as_str().unwrap().contains("stage score"), "{answer}");
}

#[test]
fn what_is_wrong_with_a_table_is_named() {
    let one = |row: &str| format!("workers:\n  - {row}\n");
    for (table, expected) in [
        (one("{worker: 1, signals: {load.active-request: 1}}"), "`load.active-request`"),
        (
            one("{worker: 1, signals: {load.active-requests: .inf}}"),
            "workers[0].signals.load.active-requests is infinite",
        ),
        (one("{worker: 1, sigals: {}}"), "sigals"),
        (one("{worker: -1}"), "line 2"),
        (one("{worker: 1}\n  - {worker: 1}"), "twice"),
        ("workers: []".to_owned(), "no worker"),
        ("workers: [".to_owned(), "line"),
        (String::new(), "no worker"),
        // Records are objects, and each key comes once.
        (r#"{"workers": [[1, 0, {}]]}"#.to_owned(), "line 1, column 14: workers[0] is a list; give an object"),
        (r#"[[], [], [], []]"#.to_owned(), "the table is a list; give an object"),
        (r#"{"partition": ["m"], "workers": [{"worker": 1}]}"#.to_owned(), "partition is a list"),
        (r#"{"facts": {"a": 1, "a": 2}}"#.to_owned(), "facts.a comes twice"),
        (r#"{"workers": [{"worker": 1, "worker": 2}]}"#.to_owned(), "workers[0].worker comes twice"),
        ("facts: {a: 1}\nfacts: {}\n".to_owned(), "line 2, column 8: facts comes twice"),
        // What is meant as JSON is not read as YAML.
        (r#"{"workers": [{"worker": 1,}]}"#.to_owned(), "not valid JSON"),
        (r#"{"workers": [{"worker": 1}]"#.to_owned(), "the JSON ends too early"),
        (r#"{"workers": [{"worker": "1"}]}"#.to_owned(), "workers[0].worker is the text `1`; give a whole number"),
        (r#"{"workers": [{"rank": 1}]}"#.to_owned(), "workers[0] lacks the field `worker`"),
        ("texts: {session.id: 5}".to_owned(), "texts.session.id is 5; give a text in quotes"),
        (one("{worker: 1}\n---\nworkers: []"), "a second document"),
        ("partition: [a]".to_owned(), "line 1, column 12: partition is a list"),
        (format!("workers: {}", "[".repeat(100_000)), "YAML"),
        ("workers:\n\t- worker: 1\n".to_owned(), "line 2"),
        ("{\"workers\": [{\"worker\": 1.5}]}".to_owned(), "line 1"),
        (format!("facts: {{request.tokens: 1}}\n{}", one("{worker: 1}")), "`request.tokens`"),
        (format!("texts: {{session: a}}\n{}", one("{worker: 1}")), "`session`"),
        (format!("partition: {{role: cook}}\n{}", one("{worker: 1}")), "\"cook\""),
        (format!("partition: {{block_size: 0}}\n{}", one("{worker: 1}")), "partition.block_size is 0"),
        (
            format!("router_config: {{host_cache_hit_weight: 1.5}}\n{}", one("{worker: 1}")),
            "host_cache_hit_weight is 1.5",
        ),
        (format!("router_config: {{router_temperature: -1}}\n{}", one("{worker: 1}")), "router_temperature is -1"),
    ] {
        let said = error(&decide("least-loaded", &table, &[]));
        assert!(said.contains(expected), "{table}\n{said}");
        assert!(said.contains("table.yaml: "), "the file is named: {said}");
    }
    let said = error(&common::run(["policy", "run", "least-loaded", "--table", "/dev/zero"]));
    assert!(said.contains("/dev/zero: a table has at most 67108864 bytes"), "{said}");
    let said = error(&common::run(["policy", "run", "least-loaded", "--table", "/nowhere/table.yaml"]));
    assert!(said.starts_with("cannot read /nowhere/table.yaml"), "{said}");
}
