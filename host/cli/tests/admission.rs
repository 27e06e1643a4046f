//! `pointsman replay` of router-policy files with admission.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails fails its test")]

mod common;

use std::fs;
use std::path::PathBuf;

use common::{json, pointsman, stdout};
use serde_json::Value;

/// The file of Dynamo's admission guide, apart from the type's name.
const GUIDE: &str = include_str!("../../routing/tests/fixtures/admission.yaml");

/// The file in a folder of its own.
fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admission.yaml");
    fs::write(&path, text).unwrap();
    (folder, path)
}

/// The one run of a replay that overloads two workers.
fn run(text: &str, arguments: &[&str]) -> Value {
    let (_folder, path) = file(text);
    let output = pointsman()
        .args(["replay", "--limit", "300", "--workers", "2", "--speed", "20", "--json", "-"])
        .args(arguments)
        .arg("--router-policy-config")
        .arg(&path)
        .output()
        .unwrap();
    json(&output)["runs"][0].clone()
}

#[test]
fn the_guides_file_runs_as_it_is_and_ends_waits_after_two_seconds() {
    let run = run(GUIDE, &[]);
    let admission = &run["admission"];
    assert_eq!((&admission["classified"], &admission["classifier_faults"]), (&300.into(), &0.into()), "{run}");
    let class = &admission["classes"][0];
    assert_eq!(class["name"], "standard_all");
    assert!(class["waited"].as_u64().unwrap() > 0, "{run}");
    assert!(class["wait_ms"]["p99"].as_f64().unwrap() <= 2_000.0, "{run}");
    let rejected = run["rejected"].as_u64().unwrap();
    assert!(rejected > 0, "an overload that lasts must end some waits: {run}");
    assert_eq!(run["decided"].as_u64().unwrap() + rejected, 300);
}

#[test]
fn the_table_says_what_each_class_did() {
    let (_folder, path) = file(GUIDE);
    let arguments = ["replay", "--limit", "300", "--workers", "2", "--speed", "20", "--router-policy-config"];
    let output = pointsman().args(arguments).arg(&path).output().unwrap();
    let table = stdout(&output);
    assert!(table.contains("admission.yaml: classified 300, classifier faults 0"), "{table}");
    assert!(table.contains("admission.yaml: class standard_all: "), "{table}");
    assert!(table.contains("deadline-exceeded"), "{table}");
}

#[test]
fn a_budget_of_no_time_or_of_more_than_a_minute_is_refused() {
    for budget in ["0", "60001"] {
        let (_folder, path) = file(&GUIDE.replace("2000", budget));
        for command in [&["replay", "--router-policy-config"][..], &["config", "check"]] {
            let output = pointsman().args(command).arg(&path).output().unwrap();
            let said = [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap()).concat();
            assert!(!output.status.success() && said.contains("max_wait_ms"), "{budget}: {said}");
        }
    }
}

#[test]
fn thunderagent_chooses_and_classifies_in_one_replay() {
    let text = "\
worker_selection:
  aggregated: thunderagent
  instances:
    - {name: thunderagent, type: thunderagent}
request_classifier: {type: thunderagent, parameters: {scheduler_interval_seconds: 1}}
";
    let run = run(text, &["--derive-sessions"]);
    let admission = &run["admission"];
    assert_eq!((&run["fallbacks"], &admission["classifier_faults"]), (&0.into(), &0.into()), "{run}");
    assert_eq!(admission["classified"], 300);
    // The overload lasts longer than the host lets a program be paused.
    let expired = admission["deferrals_expired"].as_u64().unwrap();
    assert!(expired > 0, "{run}");
    assert_eq!(run["decided"].as_u64().unwrap() + expired, 300, "{run}");
}

#[test]
fn a_hard_session_stays_on_its_worker() {
    let run = run("session_affinity: {mode: hard, ttl_secs: 3600}\n", &["--derive-sessions"]);
    assert_eq!(run["decided"], 300, "{run}");
    assert!(run["admission"]["classes"][0]["dispatched"] == 300, "{run}");
}
