//! `pointsman serve` as a process: what it prints, policies that change and fail while it serves, and how it stops.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails fails its test")]

mod common;

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::process::{Process, chat, engine, explained, server, whole};
use common::{build, root, run, tmp};

fn built_in(name: &str) -> &'static [u8] {
    pointsman_policies::get(name).unwrap().component
}

#[test]
fn without_a_config_the_printed_curl_line_works() {
    let server = Process::start(&["serve"], "curl");
    let line = server.printed.lines().last().unwrap();
    let answered = Command::new("sh").arg("-c").arg(format!("{line} --silent --show-error --fail")).output().unwrap();
    let text = String::from_utf8_lossy(&answered.stdout);
    assert!(answered.status.success(), "{line}: {}", String::from_utf8_lossy(&answered.stderr));
    assert!(text.contains("chat.completion.chunk") && text.trim_end().ends_with("data: [DONE]"), "{text}");
}

#[test]
fn a_users_policy_is_swapped_while_a_stream_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.wasm");
    fs::write(&file, built_in("least-loaded")).unwrap();
    let policies = "components: [{type: mine, path: mine.wasm}]\n\
                    worker_selection: {aggregated: m, instances: [{name: m, type: mine}]}\n";
    let engines = [engine("4"), engine("4")];
    let server = server(folder.path(), &[&engines[0], &engines[1]], policies);

    let mut open = chat(server.address(), "first", 2_000, true);
    let mut begun = [0; 2_048];
    let read = open.read(&mut begun).unwrap();
    let before = explained(&String::from_utf8_lossy(&begun[..read]), "digest");
    // As a deployment does it: at once.
    let next = folder.path().join("next.wasm");
    fs::write(&next, built_in("random")).unwrap();
    fs::rename(&next, &file).unwrap();
    let mut after = before.clone();
    for _ in 0..600 {
        let answer = whole(chat(server.address(), "again", 1, false));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        after = explained(&answer, "digest");
        if after != before {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_ne!(after, before, "the new file decides");
    fs::write(&file, b"no component").unwrap();
    std::thread::sleep(Duration::from_millis(1_500));
    let answer = whole(chat(server.address(), "again", 1, false));
    assert_eq!(explained(&answer, "digest"), after, "what is not sound changes nothing");
    // The stream that began under the first policy goes on: engines are slow, so there is more to come.
    let more = open.read(&mut begun).unwrap();
    assert!(more > 0, "the stream was cut off");
}

#[test]
fn a_trapping_policy_fails_no_request() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(build("misbehaving"), folder.path().join("misbehaving.wasm")).unwrap();
    let policies = "components: [{type: bad, path: misbehaving.wasm}]\nworker_selection:\n  aggregated: b\n  instances:\n    \
                    - {name: b, type: bad, parameters: {mode: trap}, on_fault: {filter: fallback}}\n";
    let engines = [engine("1000"), engine("1000")];
    let server = server(folder.path(), &[&engines[0], &engines[1]], policies);
    let address = server.address();
    let outcomes: Vec<String> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|client| {
                scope.spawn(move || {
                    let ask = |request| whole(chat(address, &format!("{client} {request}"), 2, request % 2 == 0));
                    (0..50).map(ask).collect::<Vec<_>>()
                })
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    for answer in &outcomes {
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("choices"), "{answer}");
    }
    let faults = outcomes.iter().filter(|answer| explained(answer, "fallback") == "true").count();
    assert!((1..outcomes.len()).contains(&faults), "{faults} of {}", outcomes.len());
}

#[test]
fn a_signal_to_stop_lets_what_runs_end() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine("4");
    let mut server = server(folder.path(), &[&engine], "session_affinity: {ttl_secs: 60}\n");
    let mut open = chat(server.address(), "first", 40, true);
    let mut first = [0; 64];
    open.read_exact(&mut first).unwrap();
    server.terminate();
    let rest = whole(open);
    assert!(rest.contains("data: [DONE]"), "{rest}");
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn what_a_server_decided_is_explained_and_can_be_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (record, log, policy) = (path("decisions.pmrec"), path("decisions.jsonl"), path("policy.yaml"));
    fs::write(&policy, "worker_selection: {aggregated: p, instances: [{name: p, type: power-of-two-choices}]}\n")
        .unwrap();
    let arguments = ["serve", "--router-policy-config", &policy, "--record", &record, "--decision-log", &log];
    let mut server = Process::start(&arguments, "curl");
    let address = server.address().to_owned();
    let ids: Vec<String> =
        (0..20).map(|text| explained(&whole(chat(&address, &format!("{text}"), 2, false)), "id")).collect();
    server.terminate();
    assert!(server.child.wait().unwrap().success());
    let replayed = run(["record", "replay", &record, "--json"]);
    let report = &common::json(&replayed)[0];
    assert_eq!((&report["compared"], &report["agreed"]), (&20.into(), &20.into()), "{report}");
    let entries = fs::read_to_string(&log).unwrap();
    let entries = entries.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let told: Vec<String> = entries.map(|entry| entry["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(told, ids);
}

#[test]
fn a_record_that_cannot_be_written_is_told_and_every_request_is_served() {
    let mut command = common::pointsman();
    command.args(["serve", "--record", "/dev/full"]).stderr(Stdio::piped());
    let server = Process::of(command, "curl");
    let answers: Vec<String> = (0..3).map(|text| whole(chat(server.address(), &text.to_string(), 2, false))).collect();
    assert!(answers.iter().all(|answer| answer.starts_with("HTTP/1.1 200 ")), "{answers:?}");
    let (code, log) = server.stop();
    assert_eq!(code, Some(1));
    assert!(log.lines().any(|line| line.starts_with("error: cannot write /dev/full: ")), "{log}");
}

#[test]
fn a_wrong_file_is_told_in_sentences() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("server.yaml");
    fs::write(&config, "listen: nowhere\nretries: 99\n").unwrap();
    let output = run(["serve", "--config", &config.display().to_string()]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), text.lines().count()), (Some(1), 2), "{text}");
    assert!(text.lines().all(|line| line.starts_with("error: ") && line.contains("server.yaml:")), "{text}");
}

/// The real `openai` client; without a registry to install it from, nothing is shown.
#[test]
fn openais_own_client_is_served() {
    let venv = tmp().join("openai-3.51.0");
    let python = venv.join("bin/python");
    let ready = venv.join("ready");
    if !ready.exists() {
        let made = Command::new("python3").args(["-m", "venv"]).arg(&venv).status();
        let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "openai==3.51.0"];
        let installed =
            made.is_ok_and(|made| made.success()) && Command::new(&python).args(install).status().unwrap().success();
        if !installed {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "the client must be installed here");
            eprintln!("skipped: there is no registry to install the client openai 3.51.0 from");
            return;
        }
        fs::write(&ready, "").unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let engines = [engine("20"), engine("20")];
    let policies = "session_affinity: {mode: soft, ttl_secs: 60}\n\
                    worker_selection:\n  aggregated: d\n  instances:\n    - {name: d, type: dynamo-default-cost-fn}\n    \
                    - {name: s, type: soft-pin-repin, parameters: {max_active_requests: 0}}\n";
    let script = root().join("host/cli/tests/openai_client.py");
    let (file, next) = (folder.path().join("mine.wasm"), folder.path().join("next.wasm"));
    let both = |policies: &str, part: &str| {
        let server = server(folder.path(), &[&engines[0], &engines[1]], policies);
        let url = format!("http://{}/v1", server.address());
        let mut command = Command::new(&python);
        command.arg(&script).arg(&url).arg(part);
        if part == "swap" {
            command.args([&file, &next]);
        }
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{part}: {}", String::from_utf8_lossy(&text));
    };
    both(policies, "answers");
    both(policies, "prefix");
    both(&policies.replace("aggregated: d\n", "aggregated: s\n"), "walk");
    both("worker_selection: {aggregated: l, instances: [{name: l, type: least-loaded}]}\n", "load");
    // A user's own file does the same.
    fs::copy(build("least-busy"), &file).unwrap();
    let own = "components: [{type: mine, path: mine.wasm}]\nworker_selection: {aggregated: m, instances: \
               [{name: m, type: mine, parameters: {min_device_overlap_blocks: 0}}]}\n";
    both(own, "load");
    fs::write(&file, built_in("random")).unwrap();
    fs::write(&next, built_in("least-loaded")).unwrap();
    both(&own.replace(", parameters: {min_device_overlap_blocks: 0}", ""), "swap");
    fs::copy(build("misbehaving"), &file).unwrap();
    let traps = "components: [{type: mine, path: mine.wasm}]\nworker_selection: {aggregated: m, instances: \
                 [{name: m, type: mine, parameters: {mode: trap}, on_fault: {filter: fallback}}]}\n";
    both(traps, "trap");
}
