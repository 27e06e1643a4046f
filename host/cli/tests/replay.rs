//! `pointsman replay`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails fails its test")]

mod common;

use std::fs;
use std::path::Path;

use common::{error, json, pointsman, run, sdk_policy, stdout};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The report of a replay of a short generated trace.
fn report(arguments: &[&str]) -> Value {
    let output = run([&["replay", "--limit", "200", "--json", "-"], arguments].concat());
    json(&output)
}

/// The one run of such a report.
fn one(arguments: &[&str]) -> Value {
    let report = report(arguments);
    let runs = report["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 1, "{report}");
    runs[0].clone()
}

fn sdk() -> &'static str {
    sdk_policy().to_str().unwrap()
}

/// The digest that the report promises, from the lines of decisions.
fn digest(lines: &[Value]) -> String {
    let mut hash = Sha256::new();
    for line in lines.iter().filter(|line| !line["worker"].is_null()) {
        hash.update(line["index"].as_u64().unwrap().to_le_bytes());
        hash.update(line["worker"].as_u64().unwrap().to_le_bytes());
        hash.update(u32::try_from(line["rank"].as_u64().unwrap()).unwrap().to_le_bytes());
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn lines(path: &Path) -> Vec<Value> {
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn three_policies_are_compared_unless_others_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.json");
    fs::write(&path, "what was there before ".repeat(1_000)).unwrap();
    let output = pointsman().args(["replay", "--limit", "200", "--json"]).arg(&path).output().unwrap();
    let table = stdout(&output);
    let names = ["round-robin", "least-loaded", "dynamo-default-cost-fn"];
    for name in names {
        assert!(table.lines().any(|line| line.starts_with(name)), "{table}");
    }
    assert!(output.stderr.is_empty(), "no progress bar in a pipe: {}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(report["trace"]["requests"], 200);
    assert_eq!(report["trace"]["block_size"], 512);
    let found: Vec<&str> =
        report["runs"].as_array().unwrap().iter().map(|run| run["policy"].as_str().unwrap()).collect();
    assert_eq!(found, names);
    for run in report["runs"].as_array().unwrap() {
        assert_eq!((&run["workers"], &run["seed"], &run["decided"]), (&json!(16), &json!(0), &json!(200)), "{run}");
        let per_worker: u64 = run["requests_per_worker"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum();
        assert_eq!(per_worker, 200);
        assert!(run["fuel"]["p50"].as_u64().unwrap() > 0);
    }
}

#[test]
fn with_json_on_standard_output_the_table_goes_to_standard_error() {
    let output = run(["replay", "--limit", "20", "--policy", "default", "--json", "-"]);
    let found = json(&output);
    assert_eq!(found["runs"][0]["policy"], "default");
    assert_eq!(found["runs"][0]["fuel"], json!(null), "the default runs natively");
    assert!(String::from_utf8(output.stderr).unwrap().lines().any(|line| line.starts_with("default ")));
}

#[test]
fn the_same_seed_decides_the_same_and_so_do_separate_stages() {
    let policies = ["--policy", "dynamo-default-cost-fn", "--policy", "random"];
    let digests = |arguments: &[&str]| {
        let report = report(&[&policies[..], arguments].concat());
        let runs = report["runs"].as_array().unwrap();
        runs.iter().map(|run| run["decisions_sha256"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let first = digests(&[]);
    assert_eq!(first, digests(&["--stages", "separate", "--determinism", "portable"]));
    assert_ne!(first[1], digests(&["--seed", "7"])[1]);
}

#[test]
fn a_component_runs_under_its_own_name_with_the_parameters_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let decisions = folder.path().join("decisions.jsonl");
    let parameters = |most: u32| format!("{{\"max_active_requests\": {most}}}");
    let report = report(&[
        "--component",
        sdk(),
        "--parameters",
        &parameters(1_000_000),
        "--policy",
        "default",
        "--component",
        sdk(),
        "--parameters",
        &parameters(0),
        "--workers",
        "2",
        "--decisions",
        decisions.to_str().unwrap(),
    ]);
    let runs = report["runs"].as_array().unwrap();
    let names: Vec<&str> = runs.iter().map(|run| run["policy"].as_str().unwrap()).collect();
    assert_eq!(names, ["capped-share", "default", "capped-share"]);
    assert_eq!(runs[0]["rejected"], 0);
    let rejected = runs[2]["rejected"].as_u64().unwrap();
    assert!(rejected > 0, "a cap of 0 leaves busy workers out: {}", runs[2]);
    assert_eq!(runs[2]["decided"].as_u64().unwrap() + rejected, 200);
    assert_eq!(runs[2]["faults"], json!({}), "a filter that keeps no row is no fault");

    let lines = lines(&decisions);
    assert_eq!(lines.len(), 600, "one line a request and run");
    for (run, lines) in runs.iter().zip(lines.chunks(200)) {
        assert!(
            lines.iter().enumerate().all(|(index, line)| line["index"] == index && line["policy"] == run["policy"])
        );
        assert_eq!(run["decisions_sha256"], digest(lines));
    }
    let refused: Vec<&Value> = lines[400..].iter().filter(|line| line["worker"].is_null()).collect();
    assert_eq!(refused.len() as u64, rejected);
    assert_eq!(
        (&refused[0]["rank"], &refused[0]["cost"], &refused[0]["outcome"]),
        (&json!(null), &json!(null), &json!("all-eligible-workers-filtered"))
    );
}

#[test]
fn two_pools_are_decided_by_role() {
    let folder = tempfile::tempdir().unwrap();
    let decisions = folder.path().join("decisions.jsonl");
    let run = one(&["--policy", "default", "--disaggregate", "2:3", "--decisions", decisions.to_str().unwrap()]);
    assert_eq!((&run["workers"], &run["requests"], &run["decided"]), (&json!(5), &json!(200), &json!(200)));
    let lines = lines(&decisions);
    assert_eq!(lines.len(), 400);
    for pair in lines.chunks(2) {
        assert_eq!(pair[0]["index"], pair[1]["index"]);
        assert_eq!((&pair[0]["role"], &pair[1]["role"]), (&json!("prefill"), &json!("decode")));
        assert!(pair[0]["worker"].as_u64().unwrap() < 2 && (2..5).contains(&pair[1]["worker"].as_u64().unwrap()));
    }
    assert_eq!(run["decisions_sha256"], digest(&lines));
}

/// A file whose decode workers are served by the fixture under a registered name, with a cap that rejects.
const CAPPED_DECODE: &str = "
worker_selection:
  decode: capped
  instances:
    - {name: capped, type: capped-share, parameters: {max_active_requests: 0}}
    - {name: open, type: capped-share, parameters: {max_active_requests: 1000000}}
";

#[test]
fn a_router_policy_file_decides_by_role_with_registered_types() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("router.yaml");
    fs::write(&path, CAPPED_DECODE).unwrap();
    let path = path.to_str().unwrap();
    let register = format!("capped-share={}", sdk());
    let file = ["--router-policy-config", path, "--register", &register];
    let aggregated = one(&file);
    assert_eq!(aggregated["policy"], "router.yaml");
    assert_eq!(aggregated["rejected"], 0);
    assert_eq!(
        aggregated["decisions_sha256"],
        one(&["--policy", "default"])["decisions_sha256"],
        "a role left out uses the default"
    );
    let pools = ["--disaggregate", "1:1"];
    assert!(one(&[&file[..], &pools].concat())["rejected"].as_u64().unwrap() > 0);
    let by_flag = one(&[&file[..], &pools, &["--router-decode-policy", "open"]].concat());
    assert_eq!(by_flag["rejected"], 0, "the flag goes before the file");

    let by_variable = |variables: &[(&str, &str)]| {
        let mut command = pointsman();
        command.args(["replay", "--limit", "200", "--json", "-", "--register", &register]).args(pools);
        json(&command.envs(variables.iter().copied()).output().unwrap())["runs"][0].clone()
    };
    let config = ("DYN_ROUTER_POLICY_CONFIG", path);
    let run = by_variable(&[config]);
    assert_eq!(run["policy"], "router.yaml");
    assert!(run["rejected"].as_u64().unwrap() > 0);
    for variable in ["DYN_ROUTER_DECODE_POLICY", "DYN_ROUTER_WORKER_SELECTION_POLICY"] {
        assert_eq!(by_variable(&[config, (variable, " open ")])["rejected"], 0, "{variable}");
    }
}

#[test]
fn what_cannot_be_replayed_is_said_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let empty = file("empty.jsonl", "");
    let good = r#"{"timestamp": 0, "input_length": 600, "output_length": 2, "hash_ids": [1, 2]}"#;
    let cut = file("cut.jsonl", &format!("{good}\n{}", &good[..40]));
    let negative = file("negative.jsonl", &format!("{good}\n{}", good.replace("600", "-600")));
    let unknown = file("unknown.yaml", "worker_selection: {decode: one, instances: [{name: one, type: mine}]}\n");
    let sound = file("sound.yaml", "worker_selection: {decode: one, instances: [{name: one, type: random}]}\n");
    let cases: &[(&[&str], &str)] = &[
        (&["--workers", "0"], "0 aggregated workers"),
        (&["--disaggregate", "0:4"], "0 prefill workers"),
        (&["--speed", "0"], "--speed of 0 is not possible"),
        (&["--speed", "-1"], "--speed of -1 is not possible"),
        (&["--speed", "1e-300"], "--speed of 1e-300 is not possible"),
        (&["--speed", "1e400"], "--speed of 1e400 is not possible"),
        (&["--speed", "nan"], "--speed of nan is not possible"),
        (&["--workers", "100001"], "100001 aggregated workers"),
        (&["--policy", "de\nfault\u{202e}"], "`de\\nfault\\u{202e}`"),
        (&["--limit", "0"], "0 requests"),
        (&["--trace", "/nowhere/trace.jsonl"], "/nowhere/trace.jsonl"),
        (&["--trace", &empty], "no request"),
        (&["--trace", &cut], "line 2"),
        (&["--trace", &negative], "line 2"),
        (&["--policy", "least-loded"], "dynamo-default-cost-fn"),
        (&["--policy", "default", "--parameters", r#"{"a": 1}"#], "dynamo-default-cost-fn"),
        (&["--policy", "least-loaded", "--parameters", r#"{"a": 1}"#], "unknown parameter `a`"),
        (&["--component", "/nowhere/policy.wasm"], "/nowhere/policy.wasm cannot be read"),
        (&["--component", sdk()], "max_active_requests"),
        (&["--router-policy-config", "/nowhere/router.yaml"], "/nowhere/router.yaml"),
        (&["--router-policy-config", &unknown], "`mine`"),
        (&["--router-policy-config", &sound, "--register", "random=/nowhere.wasm"], "/nowhere.wasm"),
        (&["--router-policy-config", &sound, "--router-decode-policy", "two"], "`two`"),
        (&["--register", "mine=mine.wasm"], "--register"),
        (&["--router-prefill-policy", "one"], "--router-prefill-policy"),
        (&["--json", "/nowhere/report.json"], "cannot write /nowhere/report.json"),
        (&["--decisions", "/nowhere/lines.jsonl"], "cannot write /nowhere/lines.jsonl"),
    ];
    for (arguments, expected) in cases {
        // The default needs no compilation; what is given comes before or after it.
        let policy: &[&str] = if arguments[0].starts_with("--r") || arguments[0] == "--component" {
            &[]
        } else {
            &["--policy", "default"]
        };
        let limit: &[&str] = if arguments[0] == "--limit" { &[] } else { &["--limit", "20"] };
        let said = error(&run([&["replay"], *arguments, policy, limit].concat()));
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}

#[test]
fn usage_errors_exit_with_2() {
    for arguments in [
        &["--workers", "4", "--disaggregate", "2:2"][..],
        &["--disaggregate", "4"],
        &["--parameters", "{}"],
        &["--router-policy-config", "a.yaml", "--parameters", "{}"],
        &["--stages", "some"],
        &["--register", "mine"],
        &["--workers", "-1"],
        &["--policy", "a", "--parameters", "{}", "--parameters", "{}"],
        &["--register", "a\nerror: b\u{202e}=c.wasm"],
        &["--stages", "a\nerror: b"],
    ] {
        let output = run([&["replay"], arguments].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.starts_with("error: "), "{said}");
        // A text of the command line begins no line of its own.
        assert_eq!(said.lines().filter(|line| line.starts_with("error: ")).count(), 1, "{said}");
        assert!(!said.contains("\n\n\n") && !said.contains('\u{202e}'), "{said}");
        assert!(arguments[0] != "--workers" || said.contains("'--workers <N>'"), "{said}");
        assert!(arguments[0] != "--parameters" || said.contains("Usage: pointsman replay"), "{said}");
    }
}

#[test]
fn a_refused_replay_leaves_its_files_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (old, new, trace) = (path("old"), path("new"), path("huge.jsonl"));
    fs::write(&old, "kept").unwrap();
    // Larger than a worker's memory, which is found when the run begins.
    fs::write(&trace, r#"{"timestamp": 0, "input_length": 99000000, "output_length": 2}"#).unwrap();
    let refusals: &[&[&str]] = &[
        &["--speed", "-1"],
        &["--workers", "0"],
        &["--disaggregate", "1:0"],
        &["--limit", "0"],
        &["--policy", "none"],
        &["--trace", "/nowhere/trace.jsonl"],
        &["--trace", &trace],
    ];
    for refusal in refusals {
        for (decisions, report) in [(&old, &new), (&new, &old)] {
            let files = ["replay", "--policy", "default", "--decisions", decisions, "--json", report];
            error(&run([&files[..], refusal].concat()));
            assert_eq!(fs::read_to_string(&old).unwrap(), "kept", "{refusal:?}");
            assert!(!Path::new(&new).exists(), "{refusal:?}");
        }
    }
}

#[test]
fn an_output_is_no_other_file_of_the_replay() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let trace = path("trace.jsonl");
    let good = r#"{"timestamp": 0, "input_length": 600, "output_length": 2, "hash_ids": [1, 2]}"#;
    fs::write(&trace, good).unwrap();
    fs::hard_link(&trace, path("linked.jsonl")).unwrap();
    let component = path("policy.wasm");
    fs::write(&component, pointsman_policies::get("random").unwrap().component).unwrap();
    let config = path("router.yaml");
    let text = "worker_selection: {aggregated: a, instances: [{name: a, component: policy.wasm}]}\n";
    fs::write(&config, text).unwrap();
    let (new, dotted) = (path("new.json"), path("./new.json"));
    let cases: &[(&[&str], [&str; 2])] = &[
        (&["--trace", &trace, "--decisions", &trace], ["--trace", "--decisions"]),
        (&["--trace", &trace, "--json", &path("linked.jsonl")], ["--trace", "--json"]),
        (&["--json", &new, "--decisions", &dotted], ["--json", "--decisions"]),
        (&["--component", &component, "--json", &component], ["--component", "--json"]),
        (&["--router-policy-config", &config, "--json", &config], ["--router-policy-config", "--json"]),
        (&["--router-policy-config", &config, "--json", &component], ["component of the router-policy file", "--json"]),
        (
            &["--router-policy-config", &config, "--register", &format!("a={component}"), "--decisions", &component],
            ["--register", "--decisions"],
        ),
    ];
    for (arguments, expected) in cases {
        let said = error(&run([&["replay"], *arguments].concat()));
        assert!(expected.iter().all(|part| said.contains(part)), "{arguments:?}: {said}");
    }
    assert_eq!(fs::read_to_string(&trace).unwrap(), good);
    assert_eq!(fs::read_to_string(&config).unwrap(), text);
    assert_eq!(fs::read(&component).unwrap(), pointsman_policies::get("random").unwrap().component);
    assert!(!Path::new(&new).exists());
    // A device keeps nothing, so there is nothing to lose.
    let devices = ["replay", "--policy", "default", "--limit", "5", "--json", "/dev/null", "--decisions", "/dev/null"];
    stdout(&run(devices));
}

#[test]
fn what_a_trace_says_begins_no_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.jsonl");
    let forged = r#"{"timestamp": 0, "input_length": 6, "output_length": 2, "x\u001b[31m\nerror: \u202e": 1}"#;
    fs::write(&path, forged).unwrap();
    let said = error(&run(["replay", "--policy", "default", "--trace", path.to_str().unwrap()]));
    assert!(!said.contains(['\u{1b}', '\u{202e}']), "{said}");
}

#[test]
fn an_override_by_variable_without_a_file_is_warned_of() {
    let mut command = pointsman();
    command.args(["replay", "--limit", "5", "--policy", "default"]).env("DYN_ROUTER_PREFILL_POLICY", "one");
    let output = command.output().unwrap();
    stdout(&output);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("DYN_ROUTER_PREFILL_POLICY has no effect without a router-policy file"), "{said}");
}
