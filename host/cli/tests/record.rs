//! `pointsman record`, and the options of `pointsman replay` that record and shadow.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails fails its test")]

mod common;
#[cfg(feature = "wasi")]
#[path = "../../sandbox/tests/common/mod.rs"]
mod wasi_policy;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::OnceLock;

use common::{build, error, json, pointsman, stdout, tmp};
#[cfg(feature = "wasi")]
use pointsman_sandbox::{Args, Artifact, CompiledPolicy, GuestSetup, GuestSlot, Limits, Sandbox, SandboxConfig};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Runs the binary, which compiles a component once for all of these tests.
fn run<I: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = I>) -> Output {
    pointsman().env("POINTSMAN_COMPILE_CACHE", tmp().join("compiled")).args(arguments).output().unwrap()
}

/// Records a replay into a file of its own; the report.
fn record(path: &Path, arguments: &[&str]) -> Value {
    let record = ["replay", "--json", "-", "--record", path.to_str().unwrap()];
    json(&run([&record[..], arguments].concat()))
}

fn digests(report: &Value) -> Vec<String> {
    report["runs"].as_array().unwrap().iter().map(|run| run["decisions_sha256"].as_str().unwrap().to_owned()).collect()
}

/// The reports of a replay of that record, which must end well.
fn replayed(path: &Path, arguments: &[&str]) -> Vec<Value> {
    let replay = ["record", "replay", path.to_str().unwrap(), "--json"];
    json(&run([&replay[..], arguments].concat())).as_array().unwrap().clone()
}

fn number(report: &Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or_else(|| panic!("{name}: {report}"))
}

/// Every decision came out as it was recorded, to the bit and with the same fuel.
fn assert_same(report: &Value, decisions: u64) {
    for name in ["decisions", "compared", "agreed"] {
        assert_eq!(number(report, name), decisions, "{name}: {report}");
    }
    assert_eq!(number(report, "fuel_equal"), number(report, "fuel_compared"), "{report}");
    for name in ["different", "beginning_missing", "not_comparable"] {
        assert_eq!(number(report, name), 0, "{name}: {report}");
    }
    assert_eq!((&report["replaced"], &report["faults"]), (&json!(false), &report["recorded_faults"]));
}

fn show(path: &Path) -> Value {
    json(&run(["record", "show", path.to_str().unwrap(), "--json"]))
}

fn misbehaving() -> &'static str {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build("misbehaving")).to_str().unwrap()
}

/// The published conversation trace where it is there, else the generated one: so many requests.
fn trace(requests: &str) -> Vec<String> {
    let folder = std::env::var_os("POINTSMAN_TRACES");
    let trace = folder.map(|folder| Path::new(&folder).join("mooncake_conversation_trace.jsonl"));
    let trace = trace.into_iter().flat_map(|path| ["--trace".to_owned(), path.to_str().unwrap().to_owned()]);
    trace.chain(["--limit".to_owned(), requests.to_owned()]).collect()
}

const PIPELINE: &str = r#"
worker_selection:
  aggregated: whole
  instances:
    - {name: holds, type: simple-filter-score-pick, parameters: {min_device_overlap_blocks: 0}}
    - {name: cost, type: dynamo-default-cost-fn}
    - {name: load, type: least-loaded}
    - {name: draw, type: dynamo-default-cost-fn, parameters: {router_temperature: 0.5}}
    - {name: whole, pipeline: {filters: [holds], scorers: [cost, load], picker: draw}}
"#;

#[test]
fn policies_with_state_decide_the_same_again_to_the_bit_and_with_the_same_fuel() {
    let folder = tempfile::tempdir().unwrap();
    let (path, config) = (folder.path().join("run.rec"), folder.path().join("pipeline.yaml"));
    fs::write(&config, PIPELINE).unwrap();
    let mut arguments = trace("2000");
    for name in ["round-robin", "random", "power-of-two-choices", "thunderagent", "default"] {
        arguments.extend(["--policy".to_owned(), name.to_owned()]);
    }
    arguments.extend(["--router-policy-config", config.to_str().unwrap()].map(str::to_owned));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let recorded = record(&path, &arguments);
    let plain = json(&run([&["replay", "--json", "-"], &arguments[..]].concat()));
    assert_eq!(digests(&recorded), digests(&plain), "recording changes no decision");
    let reports = replayed(&path, &[]);
    assert_eq!(reports.len(), 6);
    for (report, run) in reports.iter().zip(recorded["runs"].as_array().unwrap()) {
        assert_eq!(report["label"], run["policy"]);
        assert_same(report, 2_000);
        let with_fuel = if report["label"] == "default" { 0 } else { number(run, "decided") };
        assert_eq!(number(report, "fuel_compared"), with_fuel, "{report}");
    }
    // A file of one decision in some hundred bytes.
    let bytes = number(&show(&path), "bytes");
    assert!(bytes < 12_000 * 250, "{bytes}");
    let text = stdout(&run(["record", "show", path.to_str().unwrap()]));
    assert!(text.starts_with("12,000 decisions in ") && text.contains("contract 0.1.0"), "{text}");
    assert!(text.contains("draw: sha256:") && text.contains(r#"parameters {"router_temperature":0.5}"#), "{text}");
}

#[test]
fn both_pools_and_separate_stages_are_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.rec");
    let pools = ["--disaggregate", "2:3", "--limit", "300", "--policy", "dynamo-default-cost-fn", "--seed", "9"];
    record(&path, &[&pools[..], &["--stages", "separate", "--determinism", "portable"]].concat());
    let reports = replayed(&path, &[]);
    let partitions: Vec<&str> = reports.iter().map(|report| report["partition"].as_str().unwrap()).collect();
    assert_eq!(partitions, ["default/default/prefill", "default/default/decode"]);
    reports.iter().for_each(|report| assert_same(report, 300));
}

#[test]
fn a_policy_that_fails_now_and_then_fails_again() {
    let folder = tempfile::tempdir().unwrap();
    for (mode, outcome, replaces) in [
        ("trap", "trap", true),
        ("filter-trap", "trap", true),
        ("spin", "out-of-fuel", true),
        ("error", "policy-error", false),
        ("nan", "bad-answer", false),
    ] {
        let path = folder.path().join(mode);
        let parameters = json!({ "mode": mode }).to_string();
        // Slowly, so that no breaker keeps it out.
        let arguments = ["--limit", "200", "--speed", "0.1", "--component", misbehaving(), "--parameters", &parameters];
        let recorded = record(&path, &arguments);
        let faults = number(&recorded["runs"][0]["faults"], outcome);
        assert!(faults >= 15, "{recorded}");
        let said = error(&run(["record", "replay", path.to_str().unwrap()]));
        assert!(said.contains("is neither built in nor given"), "{said}");
        let reports = replayed(&path, &["--register", &format!("any={}", misbehaving())]);
        assert_same(&reports[0], 200);
        assert!(number(&reports[0]["faults"], outcome) >= 15, "{reports:?}");
        let replaced = number(&show(&path)["policies"][0], "guests_replaced");
        assert_eq!(replaced > 0, replaces, "{mode}: {replaced}");
    }
}

#[test]
fn another_component_gives_a_difference_and_the_same_one_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.rec");
    record(&path, &["--limit", "400", "--policy", "least-loaded"]);
    let file = |name: &str| {
        let path = folder.path().join(format!("{name}.wasm"));
        fs::write(&path, pointsman_policies::get(name).unwrap().component).unwrap();
        path.to_str().unwrap().to_owned()
    };
    assert_same(&replayed(&path, &["--component", &file("least-loaded")])[0], 400);
    let random = file("random");
    let report = &replayed(&path, &["--component", &random, "--differences", "3"])[0];
    assert_eq!((&report["replaced"], number(report, "compared")), (&json!(true), 400));
    let agreed = number(report, "agreed");
    assert!((1..200).contains(&agreed), "{report}");
    assert_eq!((number(report, "different"), report["differences"].as_array().unwrap().len()), (400 - agreed, 3));
    let ratio = number(report, "fuel") as f64 / number(report, "recorded_fuel") as f64;
    assert!(ratio > 0.0 && ratio < 1.0, "random reads no column: {ratio}");
    for difference in report["differences"].as_array().unwrap() {
        assert_ne!(difference["recorded"]["worker"], difference["replayed"]["worker"]);
    }
    let text =
        stdout(&run(["record", "replay", path.to_str().unwrap(), "--component", &format!("least-loaded={random}")]));
    assert!(text.contains("% of the decisions are the same") && text.contains("further differences"), "{text}");
    // A component that fails in the place of the recorded one.
    let parameters = r#"{"mode": "trap"}"#;
    let report = &replayed(&path, &["--component", misbehaving(), "--parameters", parameters])[0];
    assert!(number(&report["faults"], "trap") >= 30 && report["recorded_faults"] == json!({}), "{report}");
    assert_eq!(number(report, "compared"), 400);
    // Other parameters of the same component.
    record(&path, &["--limit", "200", "--policy", "dynamo-default-cost-fn"]);
    let report = &replayed(&path, &["--parameters", r#"{"router_temperature": 5}"#])[0];
    assert_eq!((&report["replaced"], number(report, "compared")), (&json!(true), 200));
    assert!(number(report, "different") > 0, "{report}");
}

/// The file with each frame's body changed, as docs/record.md describes it.
fn rewritten(bytes: &[u8], change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    const HEAD: usize = 31;
    let (mut out, mut rest) = (Vec::new(), bytes);
    while !rest.is_empty() {
        let packed_bytes = u32::from_le_bytes(rest[19..23].try_into().unwrap()) as usize;
        let mut body = miniz_oxide::inflate::decompress_to_vec(&rest[HEAD..HEAD + packed_bytes]).unwrap();
        change(&mut body);
        let packed = miniz_oxide::deflate::compress_to_vec(&body, 1);
        let mut head = rest[..15].to_vec();
        head.extend_from_slice(&(body.len() as u32).to_le_bytes());
        head.extend_from_slice(&(packed.len() as u32).to_le_bytes());
        let digest = Sha256::new().chain_update(&head).chain_update(&packed).finalize();
        out.extend_from_slice(&head);
        out.extend_from_slice(&digest[..8]);
        out.extend_from_slice(&packed);
        rest = &rest[HEAD + packed_bytes..];
    }
    out
}

#[test]
fn decisions_that_come_out_otherwise_are_listed_and_fail_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.rec");
    record(&path, &["--policy", "random", "--seed", "7", "--limit", "300"]);
    // Another seed, as if a host had decided by what is not in the record: role, block size, seed.
    let (seven, eight) = (b"\x0aaggregated\x80\x04\x07", b"\x0aaggregated\x80\x04\x08");
    let otherwise = rewritten(&fs::read(&path).unwrap(), |body| {
        for at in 0..body.len().saturating_sub(seven.len()) {
            if body[at..].starts_with(seven) {
                body[at..at + seven.len()].copy_from_slice(eight);
            }
        }
    });
    fs::write(&path, otherwise).unwrap();
    let output = run(["record", "replay", path.to_str().unwrap(), "--differences", "3"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("of 300 decisions came out otherwise than recorded"), "{said}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().filter(|line| line.starts_with("random, decision ")).count(), 3, "{text}");
}

#[test]
fn what_is_left_of_a_file_is_replayed_and_never_taken_for_a_difference() {
    let folder = tempfile::tempdir().unwrap();
    let (path, cut) = (folder.path().join("run.rec"), folder.path().join("cut.rec"));
    // A small file has small frames.
    let small = ["--limit", "3000", "--record-bytes", "400000"];
    record(&path, &[&small[..], &["--policy", "random"]].concat());
    let bytes = fs::read(&path).unwrap();
    // The end is missing, as after a crash.
    let mut last = 0;
    for tenths in 3..10 {
        fs::write(&cut, &bytes[..bytes.len() * tenths / 10]).unwrap();
        let found = show(&cut);
        assert_eq!((&found["begins"], &found["ends"]), (&json!(true), &json!("cut")), "{found}");
        let decisions = number(&found, "decisions");
        assert!(decisions >= last && decisions < 3_000, "{found}");
        last = decisions;
    }
    assert!(last > 500, "{last}");
    assert_same(&replayed(&cut, &[])[0], last);
    // The beginning is missing: the state of the guest is not known.
    fs::write(&cut, &bytes[bytes.len() / 3..]).unwrap();
    let found = show(&cut);
    let left = number(&found, "decisions");
    assert_eq!((&found["begins"], &found["ends"]), (&json!(false), &json!("complete")), "{found}");
    let output = run(["record", "replay", cut.to_str().unwrap(), "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("is not replayable: its beginning is missing"), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((number(&report[0], "beginning_missing"), number(&report[0], "different")), (left, 0), "{report}");
    // Where guests start anew, what follows is known again.
    let parameters = r#"{"mode": "trap"}"#;
    record(
        &path,
        &[&small[..], &["--speed", "0.1", "--component", misbehaving(), "--parameters", parameters]].concat(),
    );
    let bytes = fs::read(&path).unwrap();
    fs::write(&cut, &bytes[bytes.len() / 3..]).unwrap();
    let report = &replayed(&cut, &["--register", &format!("a={}", misbehaving())])[0];
    let (missing, compared) = (number(report, "beginning_missing"), number(report, "compared"));
    // The native default decides after a fault, and how far it was is not known: some of its rows are not comparable.
    let fallbacks = number(report, "not_comparable");
    assert!(missing < 10 && compared > 500 && fallbacks < compared / 5, "{report}");
    assert_eq!(missing + compared + fallbacks, number(report, "decisions"), "{report}");
    assert_eq!(number(report, "different"), 0, "{report}");
}

#[test]
fn a_record_ends_at_its_size_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.rec");
    let output = run([
        "replay",
        "--policy",
        "random",
        "--limit",
        "5000",
        "--record",
        path.to_str().unwrap(),
        "--record-bytes",
        "65536",
    ]);
    stdout(&output);
    let said = String::from_utf8(output.stderr).unwrap();
    let found = show(&path);
    assert!(said.contains("is full: it holds the first ") && said.contains("--record-bytes"), "{said}");
    assert!(fs::metadata(&path).unwrap().len() <= 65_536);
    assert_eq!(found["ends"], "full");
    let decisions = number(&found, "decisions");
    assert!(decisions > 300 && decisions < 5_000, "{found}");
    assert_same(&replayed(&path, &[])[0], decisions);
}

fn shadow(arguments: &[&str]) -> (Value, Vec<Value>) {
    let report = json(&run([&["replay", "--json", "-"], arguments].concat()));
    let shadows = report["shadows"].as_array().unwrap().clone();
    (report, shadows)
}

#[test]
fn the_same_policy_in_the_shadow_agrees() {
    let limit = ["--limit", "300", "--shadow-share", "1"];
    for name in ["dynamo-default-cost-fn", "random", "round-robin", "default"] {
        let (_, shadows) = shadow(&[&limit[..], &["--policy", name, "--shadow", name]].concat());
        let found = &shadows[0];
        assert_eq!((number(found, "sampled"), number(found, "compared"), number(found, "dropped")), (300, 300, 0));
        assert_eq!((&found["agreement"], &found["stand_in_agreement"]), (&json!(1.0), &json!(1.0)), "{found}");
        let scores = matches!(name, "dynamo-default-cost-fn" | "default");
        let correlation = if scores { json!(1.0) } else { Value::Null };
        assert_eq!(found["cost_rank_correlation"], correlation, "{found}");
        let fuel = if name == "default" { Value::Null } else { json!(1.0) };
        assert_eq!(found["fuel_ratio"], fuel, "{found}");
        assert!(found["time_ratio"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn another_policy_in_the_shadow_is_compared_and_changes_nothing() {
    let live = ["--limit", "1000", "--policy", "dynamo-default-cost-fn", "--policy", "round-robin"];
    let sampled = [&live[..], &["--shadow", "least-loaded", "--shadow-share", "0.3"]].concat();
    let (report, shadows) = shadow(&sampled);
    let plain = json(&run([&["replay", "--json", "-"], &live[..]].concat()));
    assert_eq!(digests(&report), digests(&plain));
    assert_eq!(shadows.len(), 2);
    let found = &shadows[0];
    assert!((240..360).contains(&number(found, "sampled")), "{found}");
    assert_eq!(number(found, "compared"), number(found, "sampled"), "a replay drops none");
    let between = |name: &str, low: f64, high: f64| {
        let value = found[name].as_f64().unwrap();
        assert!(low < value && value < high, "{name}: {found}");
    };
    between("agreement", 0.02, 0.98);
    between("cost_rank_correlation", -0.9, 0.9);
    between("fuel_ratio", 0.01, 0.9);
    // The same decisions are sampled again, and compared alike.
    let timeless = |mut found: Value| {
        found.as_object_mut().unwrap().remove("time_ratio");
        found
    };
    let again = shadow(&sampled).1;
    assert_eq!(
        again.into_iter().map(timeless).collect::<Vec<_>>(),
        shadows.into_iter().map(timeless).collect::<Vec<_>>()
    );
    // Beside a policy that reads no cache, a candidate that does finds the caches all the same.
    let caches = ["--limit", "1000", "--policy", "round-robin", "--shadow-share", "1", "--shadow"];
    let (report, shadows) = shadow(&[&caches[..], &["dynamo-default-cost-fn"]].concat());
    assert_eq!(digests(&report)[0], digests(&plain)[1]);
    assert!(number(&shadows[0], "compared") == 1_000 && shadows[0]["agreement"].as_f64().unwrap() < 0.5);
}

#[test]
fn a_candidate_that_fails_hurts_nobody_and_is_counted() {
    let live = ["--limit", "200", "--policy", "least-loaded", "--disaggregate", "2:2"];
    let failing = ["--shadow", misbehaving(), "--shadow-parameters", r#"{"mode": "trap"}"#, "--shadow-share", "1"];
    let (report, shadows) = shadow(&[&live[..], &failing].concat());
    let plain = json(&run([&["replay", "--json", "-"], &live[..]].concat()));
    assert_eq!(digests(&report), digests(&plain));
    let roles: Vec<&Value> = shadows.iter().map(|found| &found["role"]).collect();
    assert_eq!(roles, ["prefill", "decode"]);
    for found in &shadows {
        let traps = number(&found["faults"], "trap");
        assert_eq!((traps, number(found, "compared")), (20, 180), "{found}");
    }
    let text = stdout(&run([&["replay"], &live[..], &failing].concat()));
    assert!(text.contains("STAND-IN") && text.contains("20 x trap in the shadow"), "{text}");
}

#[test]
fn what_cannot_be_recorded_shadowed_or_read_is_said_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (noise, good, several) = (path("noise"), path("good.rec"), path("several.rec"));
    fs::write(&noise, [7; 5_000]).unwrap();
    record(Path::new(&good), &["--limit", "20", "--policy", "random"]);
    fs::write(path("pipeline.yaml"), PIPELINE).unwrap();
    record(Path::new(&several), &["--limit", "20", "--router-policy-config", &path("pipeline.yaml")]);
    let random = path("random.wasm");
    fs::write(&random, pointsman_policies::get("random").unwrap().component).unwrap();
    let component = path("least-loaded.wasm");
    fs::write(&component, pointsman_policies::get("least-loaded").unwrap().component).unwrap();
    let replay = ["replay", "--limit", "20", "--policy", "default"];
    let with =
        |arguments: &[&str]| [&replay[..], arguments].concat().into_iter().map(str::to_owned).collect::<Vec<_>>();
    let own = |arguments: &[&str]| arguments.iter().map(|argument| (*argument).to_owned()).collect::<Vec<_>>();
    let cases = [
        (with(&["--record", "/nowhere/run.rec"]), "cannot write /nowhere/run.rec"),
        (with(&["--record", &good, "--json", &good]), "--json and --record both name"),
        (with(&["--shadow", "least-loded"]), "dynamo-default-cost-fn"),
        (with(&["--shadow", "/nowhere/a.wasm"]), "/nowhere/a.wasm"),
        (with(&["--shadow", &component, "--record", &component]), "--shadow and --record both name"),
        (with(&["--shadow", "random", "--shadow-share", "0"]), "--shadow-share of 0"),
        (with(&["--shadow", "random", "--shadow-share", "nan"]), "--shadow-share of NaN"),
        (with(&["--shadow", "random", "--shadow-parameters", r#"{"a": 1}"#]), "unknown parameter `a`"),
        (own(&["record", "show", &noise]), "no part of a record"),
        (own(&["record", "replay", &noise]), "no part of a record"),
        (own(&["record", "replay", "/nowhere/run.rec"]), "cannot read /nowhere/run.rec"),
        (own(&["record", "replay", &good, "--component", "/nowhere/a.wasm"]), "/nowhere/a.wasm"),
        (own(&["record", "replay", &good, "--component", &format!("a={component}")]), "no instance `a`; it has random"),
        (own(&["record", "replay", &good, "--parameters", "7"]), "--parameters"),
        (own(&["record", "replay", &good, "--parameters", r#"{"a": 1}"#]), "unknown parameter `a`"),
        (own(&["record", "replay", &several, "--component", &random]), "INSTANCE=FILE.wasm"),
        (own(&["record", "replay", &several, "--component", &format!("load={random}")]), "has no stage score"),
    ];
    for (arguments, expected) in &cases {
        let said = error(&run(arguments));
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
    assert!(number(&show(Path::new(&good)), "decisions") == 20, "a refused replay leaves its file alone");
    let one = format!("cost={component}");
    let report = &replayed(Path::new(&several), &["--component", &one])[0];
    assert_eq!((number(report, "compared"), &report["replaced"]), (20, &json!(true)));
    for arguments in [
        &["replay", "--record-bytes", "100000"][..],
        &["replay", "--record", "a", "--record-bytes", "100"],
        &["replay", "--shadow-share", "0.5"],
        &["replay", "--shadow-parameters", "{}"],
        &["record"],
        &["record", "replay", "a", "--component", "=b.wasm"],
    ] {
        let output = pointsman().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// A policy that draws and looks at the clock, as runtimes of other languages do.
#[cfg(feature = "wasi")]
#[test]
fn what_wasi_answers_is_the_same_again() {
    let folder = tempfile::tempdir().unwrap();
    let (path, config) = (folder.path().join("run.rec"), folder.path().join("policy.yaml"));
    let pick = "(call $row (i32.rem_u (i32.wrap_i64 (i64.xor (call $random) (call $now))) (local.get $rows)))";
    let policy = wasi_policy::Policy { score: None, pick: Some(pick.into()), imports_wasi: true, ..Default::default() };
    let component = folder.path().join("draws.wasm");
    fs::write(&component, policy.bytes()).unwrap();
    fs::write(
        &config,
        "worker_selection: {aggregated: draws, instances: [{name: draws, component: draws.wasm, wasi: true}]}",
    )
    .unwrap();
    let arguments = ["--limit", "500", "--router-policy-config", config.to_str().unwrap()];
    let recorded = record(&path, &arguments);
    let chosen = &recorded["runs"][0];
    assert_eq!((number(chosen, "decided"), number(chosen, "fallbacks")), (500, 0), "{chosen}");
    let register = format!("draws={}", component.display());
    assert_same(&replayed(&path, &["--register", &register])[0], 500);
}
