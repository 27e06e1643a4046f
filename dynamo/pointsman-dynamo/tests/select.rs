//! Dynamo's own selection service and `pointsman select-service`: the same calls, the same answers, the same picks.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    unreachable_pub,
    reason = "what the tests share stands outside of them"
)]

#[path = "../../../host/server/tests/select/cases.rs"]
mod cases;
mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::policy_file;
use common::service::{BLOCK_SIZE, Service, command, inside};
use serde_json::{Value, json};

/// How many requests both services are asked to place, for each policy.
const REQUESTS: usize = 5_000;
/// How many of them run at a time.
const RUNNING: usize = 60;

/// The command, built as `cargo run` builds it: the tests of the main workspace have compiled all of it already.
fn pointsman() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--quiet"]).current_dir(root);
    if std::env::var_os(common::NAMESPACE).is_none() {
        assert!(build.status().unwrap().success(), "the command cannot be built");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    target.join("debug/pointsman")
}

/// Runs the test of that name again in a network namespace, with the command built before.
fn beside(test: &str) -> Option<PathBuf> {
    let binary = pointsman();
    inside(test, &[]).then_some(binary)
}

fn ours(binary: &Path, folder: &Path, port: u16, yaml: &str) -> Command {
    let file = folder.join(format!("policy-{port}.yaml"));
    std::fs::write(&file, yaml).unwrap();
    let mut command = Command::new(binary);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("DYN_") || name == "RUST_LOG") {
        command.env_remove(name);
    }
    command.args(["select-service", "--port", &port.to_string(), "--router-policy-config"]).arg(file);
    command.current_dir(folder).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

async fn play(case: &Value, service: &Service) {
    cases::play(case, async |call| service.ask(&call.method, &call.path, &call.headers, call.body).await).await;
}

#[tokio::test]
async fn every_case_is_answered_alike() {
    let Some(binary) = beside("every_case_is_answered_alike") else { return };
    let folder = tempfile::tempdir().unwrap();
    for case in cases::all() {
        let default = policy_file("dynamo-default-cost-fn", &json!({}));
        let yaml = case["policy"].as_str().unwrap_or(&default);
        let [mut dynamos, mut ours] = [command(folder.path(), 8_092, yaml), ours(&binary, folder.path(), 8_093, yaml)];
        if let Some(seconds) = case["session_affinity_ttl_secs"].as_u64() {
            dynamos.args(["--router-session-affinity-ttl-secs", &seconds.to_string()]);
            ours.args(["--session-affinity-ttl-secs", &seconds.to_string()]);
        }
        play(&case, &Service::run(dynamos, 8_092).await).await;
        play(&case, &Service::run(ours, 8_093).await).await;
    }
}

/// A row: worker and rank.
type Row = (u64, u64);

/// Which rows a policy holds equally good.
type Best = fn(&[RowState], u64) -> Vec<Row>;

/// What both services tell of a row and a prompt.
#[derive(Debug)]
struct RowState {
    row: Row,
    prefill_tokens: u64,
    decode_blocks: u64,
    active_requests: u64,
    overlap_blocks: u64,
}

fn rows_with(states: &[RowState], so: impl Fn(&RowState) -> bool) -> Vec<Row> {
    states.iter().filter(|state| so(state)).map(|state| state.row).collect()
}

/// The default policy: the lowest prefill and decode load in blocks.
fn least_cost(states: &[RowState], _: u64) -> Vec<Row> {
    let cost = |state: &RowState| state.prefill_tokens + state.decode_blocks * BLOCK_SIZE;
    let least = states.iter().map(cost).min();
    rows_with(states, |state| Some(cost(state)) == least)
}

/// `dynamo-two-tier-cost-fn` with `balance_abs_threshold: 2`: the longest prefix above half of the prompt while loads are
/// in balance, else the fewest requests.
fn two_tiers(states: &[RowState], tokens: u64) -> Vec<Row> {
    let active = |state: &RowState| state.active_requests;
    let longest = states.iter().map(|state| state.overlap_blocks).max().unwrap_or_default();
    let (most, least) = (states.iter().map(active).max().unwrap(), states.iter().map(active).min().unwrap());
    let balanced = most - least <= 2 || most as f64 <= 1.1 * least as f64;
    if longest * 2 > tokens.div_ceil(BLOCK_SIZE) && balanced {
        let fewest = states.iter().filter(|state| state.overlap_blocks == longest).map(active).min();
        return rows_with(states, |state| state.overlap_blocks == longest && Some(active(state)) == fewest);
    }
    rows_with(states, |state| active(state) == least)
}

/// Both services, always asked the same.
struct Pair {
    dynamos: Service,
    ours: Service,
}

impl Pair {
    async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> [(u16, Value); 2] {
        let headers = [("content-type".to_owned(), "application/json".to_owned())];
        let ask = async |service: &Service| {
            let (status, answer) = service.ask(method, path, &headers, body.map(Value::to_string)).await;
            (status, cases::sorted(answer))
        };
        let (dynamos, ours) = tokio::join!(ask(&self.dynamos), ask(&self.ours));
        [dynamos, ours]
    }

    async fn post(&self, path: &str, body: &Value) -> [(u16, Value); 2] {
        self.ask("POST", path, Some(body)).await
    }

    /// The answer that both give, at the latest when what was booked has arrived everywhere in Dynamo's.
    async fn agree(&self, path: &str, body: &Value) -> Value {
        let started = Instant::now();
        loop {
            let [dynamos, ours] = self.post(path, body).await;
            if dynamos == ours {
                assert_eq!(ours.0, 200, "{}", ours.1);
                return ours.1;
            }
            assert!(started.elapsed() < Duration::from_secs(30), "{path}: Dynamo {dynamos:?}, ours {ours:?}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// The same status of both; the words of errors are each one's own.
    async fn same_status(&self, method: &str, path: &str, body: Option<&Value>) -> u16 {
        let [dynamos, ours] = self.ask(method, path, body).await;
        assert_eq!(dynamos.0, ours.0, "{method} {path}: Dynamo {dynamos:?}, ours {ours:?}");
        ours.0
    }

    async fn states(&self, prompt: &Value, allowed: Option<&Value>) -> Vec<RowState> {
        let overlaps = self.agree("/overlap_scores", prompt).await;
        let loads = self.agree("/potential_loads", prompt).await;
        let pairs = loads.as_array().unwrap().iter().zip(overlaps["workers"].as_array().unwrap());
        let number = |row: &Value, field: &str| row[field].as_u64().unwrap();
        let states = pairs.map(|(load, overlap)| RowState {
            row: (number(load, "worker_id"), number(load, "dp_rank")),
            prefill_tokens: number(load, "potential_prefill_tokens"),
            decode_blocks: number(load, "potential_decode_blocks"),
            active_requests: number(load, "active_requests"),
            overlap_blocks: number(overlap, "device_blocks"),
        });
        let allows = |row: Row| allowed.is_none_or(|ids| ids.as_array().unwrap().contains(&json!(row.0)));
        states.filter(|state| allows(state.row)).collect()
    }
}

fn row(answer: &Value) -> Row {
    (answer["worker_id"].as_u64().unwrap(), answer["dp_rank"].as_u64().unwrap())
}

fn with(mut body: Value, more: Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// Six workers, two of them with two ranks.
fn worker(id: u64) -> Value {
    json!({
        "worker_id": id, "model_name": "m", "endpoint": format!("http://127.0.0.1:{}", 9_000 + id), "block_size": BLOCK_SIZE,
        "max_num_batched_tokens": 8_192, "total_kv_blocks": 4_096, "data_parallel_size": 1 + id / 4,
        "data_parallel_start_rank": id % 2,
    })
}

/// A prompt that begins as others do, with one of eight documents, and ends as no other does.
fn prompt(rng: &mut fastrand::Rng, number: usize) -> (Value, u64) {
    let (document, shared) = (rng.u32(0..8), rng.u32(0..40) * 16);
    let own = rng.u32(1..400).max(32_u32.saturating_sub(shared));
    let shared = (0..shared).map(|token| document << 20 | token);
    let tokens: Vec<u32> = shared.chain((0..own).map(|token| 1 << 28 | (number as u32) << 10 | token)).collect();
    let count = tokens.len() as u64;
    (json!({"model_name": "m", "token_ids": tokens}), count)
}

async fn compare(test: &str, policy: &str, parameters: Value, best: Best) {
    let Some(binary) = beside(test) else { return };
    let folder = tempfile::tempdir().unwrap();
    let yaml = policy_file(policy, &parameters);
    let pair = Pair {
        dynamos: Service::run(command(folder.path(), 8_092, &yaml), 8_092).await,
        ours: Service::run(ours(&binary, folder.path(), 8_093, &yaml), 8_093).await,
    };
    for id in 0..6 {
        let [dynamos, ours] = pair.post("/workers", &worker(id)).await;
        assert_eq!(dynamos, ours);
    }
    let mut rng = fastrand::Rng::with_seed(5);
    let mut running: Vec<String> = Vec::new();
    let (mut ties, mut apart) = (0, 0);
    let mut chosen = std::collections::BTreeMap::<Row, u32>::new();
    for number in 0..REQUESTS {
        let id = format!("r{number}");
        let (body, tokens) = prompt(&mut rng, number);
        let allowed = (rng.u32(0..5) == 0).then(|| json!([rng.u64(0..3), rng.u64(3..6)]));
        let states = pair.states(&body, allowed.as_ref()).await;
        let asked = with(body.clone(), json!({"selection_id": id, "allowed_worker_ids": allowed}));
        match &best(&states, tokens)[..] {
            [only] => {
                let [dynamos, ours] = pair.post("/select_and_reserve", &asked).await;
                assert_eq!(dynamos, ours, "request {number}");
                assert_eq!(row(&ours.1), *only, "request {number}: {states:?}");
                *chosen.entry(*only).or_default() += 1;
            }
            // Dynamo takes any of those that are equally good, by chance or by the order of a hash map.
            equal => {
                ties += 1;
                let [dynamos, ours] = pair.post("/select", &asked).await;
                let rows = [&dynamos, &ours].map(|answer| row(&answer.1));
                assert!(rows.iter().all(|row| equal.contains(row)), "request {number}: {rows:?} of {equal:?}");
                apart += usize::from(rows[0] != rows[1]);
                // Both go on from Dynamo's choice.
                let explicit = json!({
                    "selection_id": id, "worker_id": rows[0].0, "dp_rank": rows[0].1,
                    "effective_prefill_tokens": dynamos.1["effective_prefill_tokens"],
                });
                let booking = if rows[0] == rows[1] {
                    json!({"model_name": "m", "selection_id": id})
                } else {
                    with(body, explicit)
                };
                let [dynamos, ours] = pair.post("/reservations", &booking).await;
                assert_eq!((dynamos.0, &dynamos), (201, &ours), "request {number}");
            }
        }
        running.push(id);
        live(&pair, &mut rng, &mut running).await;
        if number % 500 == 499 {
            // A worker leaves with what it held and what was booked there, and comes back with nothing.
            let id = rng.u64(0..6);
            assert_eq!(pair.same_status("DELETE", &format!("/workers/{id}"), None).await, 200);
            assert_eq!(pair.same_status("POST", "/workers", Some(&worker(id))).await, 201);
        }
    }
    println!("{policy}: {REQUESTS} requests, {ties} with ties, of which {apart} went to another row; {chosen:?}");
    assert!(ties < REQUESTS * 2 / 3, "{ties} ties leave too little to compare");
    assert_eq!(chosen.len(), 8, "every row had its share: {chosen:?}");
    for id in running {
        pair.same_status("DELETE", &format!("/reservations/{id}"), None).await;
    }
    let (nothing, _) = prompt(&mut rng, REQUESTS);
    let states = pair.states(&nothing, None).await;
    assert!(states.iter().all(|state| state.active_requests == 0), "{states:?}");
}

/// Requests go on: their prefills end, their answers grow, and they end.
async fn live(pair: &Pair, rng: &mut fastrand::Rng, running: &mut Vec<String>) {
    let path = |id: &str, call: &str| format!("/reservations/{id}{call}");
    for _ in 0..2 {
        let id = &running[rng.usize(0..running.len())];
        match rng.u32(0..3) {
            0 => _ = pair.same_status("POST", &path(id, "/prefill_complete"), None).await,
            1 => _ = pair.same_status("POST", &path(id, "/output_block"), Some(&json!({}))).await,
            _ => {}
        }
    }
    if running.len() > RUNNING {
        let over = running.swap_remove(rng.usize(0..running.len()));
        pair.same_status("DELETE", &path(&over, ""), None).await;
    }
}

#[tokio::test]
async fn the_default_policy_picks_as_dynamos_service_does() {
    let test = "the_default_policy_picks_as_dynamos_service_does";
    compare(test, "dynamo-default-cost-fn", json!({}), least_cost).await;
}

#[tokio::test]
async fn the_two_tier_policy_picks_as_dynamos_service_does() {
    let test = "the_two_tier_policy_picks_as_dynamos_service_does";
    compare(test, "dynamo-two-tier-cost-fn", json!({"balance_abs_threshold": 2}), two_tiers).await;
}
