//! What the replay must show: on the recorded conversation trace, with every built-in policy, with the guide's file, and
//! with policies that go wrong.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{build, json, root, run};
use pointsman_sandbox::Outcome;
use serde_json::Value;

/// The recorded conversation trace, or none where it is not here; under `CI=true` it has to be.
fn conversation() -> Option<PathBuf> {
    let folder = std::env::var_os("POINTSMAN_TRACES").filter(|folder| !folder.is_empty());
    let found = folder.map(|folder| Path::new(&folder).join("mooncake_conversation_trace.jsonl"));
    let found = found.filter(|file| file.is_file());
    let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(found.is_some() || !ci, "POINTSMAN_TRACES must name the folder of the recorded traces");
    if found.is_none() {
        eprintln!("skipped: POINTSMAN_TRACES names no folder with mooncake_conversation_trace.jsonl");
    }
    found
}

fn replay(arguments: &[&str]) -> Vec<Value> {
    let arguments = ["replay", "--json", "-"].iter().chain(arguments);
    json(&run(arguments))["runs"].as_array().unwrap().clone()
}

fn number(run: &Value, pointer: &str) -> f64 {
    run.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer} of {run}"))
}

#[test]
fn the_conversation_trace_shows_what_each_policy_is_for() {
    let Some(trace) = conversation() else { return };
    let runs = replay(&["--trace", trace.to_str().unwrap()]);
    let [turns, least, default] = &runs[..] else { panic!("{} runs", runs.len()) };
    for run in &runs {
        assert_eq!((&run["requests"], &run["decided"], &run["rejected"]), (&12_031.into(), &12_031.into(), &0.into()));
        assert_eq!((&run["fallbacks"], &run["faults"]), (&0.into(), &serde_json::json!({})));
    }
    let hits = |run| number(run, "/prefix_hit_rate");
    assert!(hits(default) > hits(turns), "{} {}", hits(default), hits(turns));
    // With one cache of unlimited size 36.6 % of the blocks are hits: no fleet can show more.
    assert!(hits(default) < 0.366, "{}", hits(default));
    assert!(number(default, "/ttft_ms/mean") < number(turns, "/ttft_ms/mean"));
    let spread = |run| number(run, "/load_cv");
    assert!(spread(least) < spread(turns) && spread(least) < spread(default));
}

#[test]
fn every_built_in_policy_decides_the_same_again_and_stage_by_stage() {
    let file = fs::read_to_string(root().join("policies/parameters.json")).unwrap();
    let parameters: serde_json::Map<String, Value> = serde_json::from_str(&file).unwrap();
    let trace = conversation();
    for (name, parameters) in &parameters {
        let parameters = parameters.to_string();
        let mut arguments = vec!["--policy", name, "--parameters", &parameters];
        if name == "disagg-filter-score-pick" {
            arguments.extend(["--disaggregate", "4:12"]);
        }
        if let Some(trace) = &trace {
            arguments.extend(["--trace", trace.to_str().unwrap()]);
        }
        let first = replay(&arguments).remove(0);
        assert_eq!((&first["rejected"], &first["fallbacks"]), (&0.into(), &0.into()), "{name}");
        assert!(first["fuel"]["p50"].as_u64().is_some(), "{name} ran in the sandbox");
        let digest = first["decisions_sha256"].as_str().unwrap();
        assert_eq!(replay(&arguments)[0]["decisions_sha256"], digest, "{name} again");
        arguments.extend(["--stages", "separate"]);
        assert_eq!(replay(&arguments)[0]["decisions_sha256"], digest, "{name} stage by stage");
    }
}

/// The block of Dynamo's guide, byte for byte.
const GUIDE: &str = "worker_selection:
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

#[test]
fn the_guides_file_decides_with_a_users_component() {
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("worker-selection.yaml");
    fs::write(&policy, GUIDE).unwrap();
    let component = build("least-busy");
    let register = format!("least-busy={}", component.display());
    let arguments = ["--router-policy-config", policy.to_str().unwrap(), "--register", &register];
    let trace = conversation();
    let mut arguments = arguments.to_vec();
    if let Some(trace) = &trace {
        arguments.extend(["--trace", trace.to_str().unwrap()]);
    }
    let run = replay(&arguments).remove(0);
    assert_eq!(
        (&run["policy"], &run["rejected"], &run["fallbacks"]),
        (&"worker-selection.yaml".into(), &0.into(), &0.into())
    );
    // The same rule as the built-in policy of that kind, so the same decisions.
    arguments.splice(..4, ["--policy", "least-loaded"]);
    assert_eq!(replay(&arguments)[0]["decisions_sha256"], run["decisions_sha256"]);
}

#[test]
fn a_role_left_out_uses_the_default_and_never_anothers() {
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("policy.yaml");
    fs::write(&policy, GUIDE.replace("  aggregated: least-busy\n", "")).unwrap();
    let register = format!("least-busy={}", build("least-busy").display());
    let arguments =
        ["--router-policy-config", policy.to_str().unwrap(), "--register", &register, "--policy", "default"];
    let runs = replay(&arguments);
    assert_eq!(runs[0]["decisions_sha256"], runs[1]["decisions_sha256"]);
    assert_eq!(runs[0]["fuel"], Value::Null, "the native default, not the component");
}

#[test]
fn a_scorer_alone_without_the_sdk_and_a_filter_alone_decide() {
    for (fixture, name) in [("bare", "most-free-blocks"), ("filter-only", "filter-only")] {
        let component = build(fixture);
        let run = replay(&["--component", component.to_str().unwrap(), "--limit", "300"]).remove(0);
        assert_eq!((&run["policy"], &run["decided"], &run["fallbacks"]), (&name.into(), &300.into(), &0.into()));
        assert!(run["fuel"]["p50"].as_u64() > Some(0), "{name} ran in the sandbox");
    }
}

/// Runs the misbehaving policy in that mode over 200 requests and answers the run with its decision lines.
fn misbehave(mode: &str, on_fault: &str) -> (Value, Vec<Value>) {
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("policy.yaml");
    let component = build("misbehaving");
    let yaml = format!(
        "sandbox: {{smoke: false, breaker: {{faults: 0}}}}\nworker_selection:\n  aggregated: bad\n  instances:\n    - name: \
         bad\n      component: {}\n      parameters: {{mode: {mode}}}\n      on_fault: {on_fault}\n",
        component.display()
    );
    fs::write(&policy, yaml).unwrap();
    let lines = folder.path().join("decisions.jsonl");
    let arguments = ["--router-policy-config", policy.to_str().unwrap(), "--limit", "200", "--decisions"];
    let run = replay(&[&arguments[..], &[lines.to_str().unwrap()]].concat()).remove(0);
    let lines = fs::read_to_string(lines).unwrap();
    (run, lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

#[test]
fn a_policy_that_goes_wrong_costs_a_counted_fallback_and_the_next_decision_is_normal() {
    let modes = [
        ("nan", Outcome::BadAnswer),
        ("infinity", Outcome::BadAnswer),
        ("row", Outcome::BadAnswer),
        ("error", Outcome::PolicyError),
        ("trap", Outcome::Trap),
        ("spin", Outcome::OutOfFuel),
        ("filter-trap", Outcome::Trap),
    ];
    for (mode, outcome) in modes {
        let (run, lines) = misbehave(mode, "fallback");
        assert_eq!((&run["decided"], &run["rejected"]), (&200.into(), &0.into()), "{mode}");
        let faults = number(&run, &format!("/faults/{outcome}"));
        assert!(faults >= 10.0 && number(&run, "/fallbacks") == faults, "{mode}: {run}");
        assert!(
            lines.iter().all(|line| line["worker"].as_u64().unwrap() % 2 == 1),
            "{mode} let through what its filter drops"
        );
        let bad = lines.iter().position(|line| line["outcome"] != "ok").unwrap();
        assert_eq!(
            (&lines[bad]["outcome"], &lines[bad + 1]["outcome"]),
            (&outcome.as_str().into(), &"ok".into()),
            "{mode}"
        );
    }
}

#[test]
fn a_filter_that_always_traps_refuses_unless_it_is_told_otherwise() {
    let (run, lines) = misbehave("filter-always-traps", "fallback");
    // Each time it is asked once more, which is a fault of its own.
    assert_eq!((&run["decided"], &run["rejected"], &run["faults"]["trap"]), (&0.into(), &200.into(), &400.into()));
    assert!(lines.iter().all(|line| line["outcome"] == "trap" && line["worker"].is_null() && line["cost"].is_null()));
    let (run, _) = misbehave("filter-always-traps", "{filter: fallback, otherwise: fallback}");
    assert_eq!((&run["decided"], &run["fallbacks"]), (&200.into(), &200.into()));
    let (run, _) = misbehave("nan", "reject");
    assert!(number(&run, "/rejected") >= 10.0 && run["fallbacks"] == 0, "{run}");
    assert_eq!(run["rejected"], run["faults"]["bad-answer"]);
}
