//! A server under everything at once, for as long as `POINTSMAN_LOAD_SECONDS` says: engines that die and return, policies
//! that fail and change, clients that are slow, leave, send nonsense, or say nothing at all.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails fails its test")]
#![cfg(target_os = "linux")]

mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::build;
use common::process::{Process, chat, whole};

const CLIENTS: usize = 12;
const IDLE: usize = 2_000;

/// What the router-policy file is, in turn: sound, failing in three ways, and no configuration at all.
const POLICIES: [&str; 6] = [
    "worker_selection: {aggregated: a, instances: [{name: a, type: least-loaded}]}\n",
    "trap",
    "worker_selection: {aggregated: a, instances: [{name: a, type: dynamo-default-cost-fn}]}\n\
     session_affinity: {mode: soft, ttl_secs: 5}\n",
    "spin",
    "worker_selection: [",
    "nan",
];

fn policies(entry: &str) -> String {
    if entry.contains(':') {
        return entry.to_owned();
    }
    format!(
        "components: [{{type: bad, path: misbehaving.wasm}}]\nworker_selection: {{aggregated: b, instances: \
         [{{name: b, type: bad, parameters: {{mode: {entry}}}, on_fault: {{filter: fallback}}}}]}}\n"
    )
}

/// How a request ended, for the tally.
type Ended = &'static str;

/// Sends bytes as they are; answers the status, where there is an answer.
fn raw(address: &str, bytes: &[u8]) -> Option<u16> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // The server may refuse before it has read everything.
    let _ = stream.write_all(bytes);
    let mut head = [0; 64];
    let read = stream.read(&mut head).unwrap_or_default();
    String::from_utf8_lossy(&head[..read]).split(' ').nth(1)?.parse().ok()
}

/// Holds an answer to what a client may rely on: it is whole, or says in words that it is not.
fn judge(answer: &str, streams: bool) -> Ended {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    match head.split(' ').nth(1).unwrap() {
        "200" if streams && body.contains("data: [DONE]") => "served",
        "200" if streams && body.contains("\"error\"") => "broken off, and told so",
        // Without a stream of events, what is cut off after its first byte has no other sign than its length.
        "200" if !streams && body.contains("choices") => "served",
        "500" | "502" | "503" | "504" | "529" if body.contains("\"error\"") => "refused, and told so",
        _ => panic!("{answer}"),
    }
}

/// One request of a client; what it is like goes by its number.
fn ask(address: &str, number: usize) -> Ended {
    let text = format!("request {number} of many");
    match number % 12 {
        0 => {
            assert_eq!(raw(address, &post("{\"model\": \"mock\", ")), Some(400));
            "malformed, and told so"
        }
        1 => {
            assert_eq!(raw(address, &post(&"x".repeat(60_000))), Some(413));
            "too large, and told so"
        }
        2 => {
            let status = raw(address, b"NONSENSE\x00\xff\r\n\r\n");
            assert!(status.is_none_or(|status| status == 400), "{status:?}");
            "no HTTP, and told so"
        }
        3 => {
            // A client that goes away in the middle of its body.
            let mut stream = TcpStream::connect(address).unwrap();
            let _ = stream.write_all(&post(&" ".repeat(1_000))[..300]);
            "left"
        }
        4 => {
            let mut stream = chat(address, &text, 200, true);
            let _ = stream.read(&mut [0; 256]);
            "left"
        }
        5 => {
            let mut stream = chat(address, &text, 60, true);
            let mut answer = Vec::new();
            let mut piece = [0; 2_048];
            while let Ok(read @ 1..) = stream.read(&mut piece) {
                answer.extend_from_slice(&piece[..read]);
                sleep(Duration::from_millis(20));
            }
            judge(&String::from_utf8_lossy(&answer), true)
        }
        other => judge(&whole(chat(address, &text, 8, other % 2 == 0)), other % 2 == 0),
    }
}

fn post(body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// The sum of the samples of a metric.
fn metric(admin: &str, name: &str) -> f64 {
    let mut stream = TcpStream::connect(admin).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    let text = whole(stream);
    let samples = text.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
    samples.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

/// Resident memory of a process, in MiB.
fn resident(process: &Process) -> f64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1_024.0
}

fn engine(port: &str) -> Process {
    Process::start(&["mock-worker", "--speedup-ratio", "20", "--port", port], "listening on")
}

fn start(folder: &Path, ports: &[String]) -> Process {
    let mut text = "listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\nlimits: {body_bytes: 50000}\n\
                    timeouts: {connect_ms: 1000, first_byte_ms: 20000, idle_ms: 5000, health_interval_ms: 200}\nworkers:\n"
        .to_owned();
    for (worker, port) in (1..).zip(ports) {
        let line =
            format!("worker_id: {worker}, model_name: mock, endpoint: 'http://127.0.0.1:{port}', block_size: 16");
        writeln!(text, "  - {{{line}, health_path: /health}}").unwrap();
    }
    let (config, policy) = (folder.join("server.yaml"), folder.join("policy.yaml"));
    fs::write(&config, text).unwrap();
    fs::write(&policy, policies(POLICIES[0])).unwrap();
    let arguments = ["serve", "--config", config.to_str().unwrap(), "--router-policy-config", policy.to_str().unwrap()];
    let mut command = common::pointsman();
    // What it warns of is its business here.
    command.args(arguments).env("RUST_LOG", "off");
    Process::of(command, "operators at")
}

#[test]
fn a_server_withstands_everything_at_once() {
    let seconds = std::env::var("POINTSMAN_LOAD_SECONDS").map_or(10, |text| text.parse().unwrap());
    let limit = format!("--nofile={}", 2 * IDLE);
    let own = std::process::id().to_string();
    assert!(Command::new("prlimit").args(["--pid", &own, &limit]).status().unwrap().success());
    let folder = tempfile::tempdir().unwrap();
    fs::copy(build("misbehaving"), folder.path().join("misbehaving.wasm")).unwrap();
    let mut engines: Vec<Process> = (0..3).map(|_| engine("0")).collect();
    let ports: Vec<String> =
        engines.iter().map(|engine| engine.address().rsplit(':').next().unwrap().to_owned()).collect();
    let server = start(folder.path(), &ports);
    let address = server.address();
    let admin = server.printed.lines().find_map(|line| line.strip_prefix("operators at http://")).unwrap();

    let idle: Vec<TcpStream> = (0..IDLE).map(|_| TcpStream::connect(address).unwrap()).collect();
    let (begun, over) = (Instant::now(), AtomicBool::new(false));
    let tally: Mutex<BTreeMap<Ended, u64>> = Mutex::default();
    let mut memory = Vec::new();
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (over, tally) = (&over, &tally);
            scope.spawn(move || {
                for number in (0..).map(|round| round * CLIENTS + client + round) {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    let ended = ask(address, number);
                    *tally.lock().unwrap().entry(ended).or_default() += 1;
                }
            });
        }
        let ends = Ends(&over);
        for round in 1.. {
            if begun.elapsed() >= Duration::from_secs(seconds) {
                break;
            }
            fs::write(folder.path().join("policy.yaml"), policies(POLICIES[round % POLICIES.len()])).unwrap();
            // One engine at a time is gone for a while, in the middle of what it serves.
            let victim = round % engines.len();
            let _ = engines[victim].child.kill();
            let _ = engines[victim].child.wait();
            sleep(Duration::from_millis(700));
            engines[victim] = engine(&ports[victim]);
            sleep(Duration::from_millis(800));
            memory.push(resident(&server));
        }
        drop(ends);
    });
    fs::write(folder.path().join("policy.yaml"), policies(POLICIES[0])).unwrap();
    let requests = tally.into_inner().unwrap();
    println!("{seconds} s: {requests:?}, resident MiB {memory:.0?}");
    for ended in ["served", "malformed, and told so", "too large, and told so", "no HTTP, and told so", "left"] {
        assert!(requests.contains_key(ended), "none was {ended}: {requests:?}");
    }
    drop(idle);
    let names = ["requests", "prefill_tokens"].map(|what| format!("pointsman_worker_active_{what}"));
    let names = [&names[0], &names[1], "pointsman_worker_decode_blocks", "pointsman_http_requests_in_flight"];
    let left = || names.map(|name| metric(admin, name));
    for _ in 0..600 {
        if left() == [0.0; 4] {
            break;
        }
        sleep(Duration::from_millis(100));
    }
    assert_eq!(left(), [0.0; 4], "{names:?} are back at zero");
    assert!(metric(admin, "pointsman_config_reloads_total") > 0.0);
    assert!(metric(admin, "pointsman_policy_faults_total") > 0.0);
    // From the first quarter on, when every policy has run, memory stays what it was.
    let early = memory.iter().skip(memory.len() / 4).copied().next().unwrap();
    let late = memory.last().unwrap();
    assert!(*late < early * 1.25 + 48.0, "{memory:.0?}");
    // Within moments all engines are well again, and the policy is a sound one.
    let last = || judge(&whole(chat(address, "at last", 2, true)), true);
    let served = (0..100).any(|_| {
        sleep(Duration::from_millis(100));
        last() == "served"
    });
    assert!(served && (0..10).all(|_| last() == "served"));
}

/// Ends the clients, also where the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
