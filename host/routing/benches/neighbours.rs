//! What a hostile tenant costs its neighbours: their decision times beside a quiet tenant and beside one that does its
//! worst, in turns within one run. `cargo bench --profile dev --workspace --bench neighbours`

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a bench")]

#[path = "../../sandbox/tests/common/mod.rs"]
mod component;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use component::{Policy, SPIN};
use pointsman_routing::config::PolicyConfig;
use pointsman_routing::{Partition, PartitionKey, Provider, Request, Router, WorkerConfig};
use pointsman_sandbox::*;

const WORKERS: u64 = 128;
const TURNS: usize = 40;
const TURN: Duration = Duration::from_millis(50);

/// A component that takes its compiler long, another one for each number.
fn bomb(number: u64) -> Artifact {
    let body = "(local.set $i (i32.mul (local.get $i) (local.get $rows)))".repeat(9_000);
    let core =
        format!("(func (export \"f\") (param $rows i32) (local $i i32) {body}) (data (i32.const 40000) \"{number}\")");
    let policy = Policy { core, ..Policy::default() };
    // Not trusted: it is compiled in a process of its own.
    Artifact::from_bytes("bomb.wasm", policy.bytes())
}

/// Policies that do their worst, each within what its limits grant.
fn hostile() -> Vec<(&'static str, Policy)> {
    let picks = |body: &str| Policy { score: None, pick: Some(body.to_owned()), ..Policy::default() };
    vec![
        ("spins", picks(SPIN)),
        ("traps", picks("(unreachable)")),
        (
            "fills",
            picks(
                "(loop $again (memory.fill (i32.const 8192) (i32.const 1) (i32.const 57000)) (br $again)) (unreachable)",
            ),
        ),
        ("grows", picks("(loop $again (drop (memory.grow (i32.const 1))) (br $again)) (unreachable)")),
        (
            "logs",
            Policy {
                imports_log: true,
                ..picks(
                    "(loop $again (call $log (i32.const 2) (i32.const 1024) (i32.const 1000)) (br $again)) (unreachable)",
                )
            },
        ),
    ]
}

fn partition(router: &Router, group: &str) -> Arc<Partition> {
    let key = PartitionKey { routing_group: group.to_owned(), ..PartitionKey::default() };
    let partition = router.partition(&key, 16).unwrap();
    (0..WORKERS).for_each(|worker| partition.upsert_worker(WorkerConfig::new(worker)).unwrap());
    partition
}

fn p99(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

fn main() {
    init_compile_worker();
    // `cargo test` runs benches too.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let bad = hostile();
    let mut yaml =
        "sandbox: {smoke: false, breaker: {faults: 0}}\ntenants:\n  - {name: evil, routing_groups: [".to_owned();
    yaml += &bad.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    yaml += "], quotas: {fuel_per_second: 1000000000}}\n  - {name: good, routing_groups: [good]}\nworker_selection:\n  \
             partitions:\n    - {routing_group: good, aggregated: good}\n";
    for (name, _) in &bad {
        yaml += &format!("    - {{routing_group: {name}, aggregated: {name}}}\n");
    }
    yaml += "  instances:\n    - {name: good, type: good}\n";
    for (name, _) in &bad {
        yaml += &format!("    - {{name: {name}, type: {name}, tenant: evil}}\n");
    }
    let config = PolicyConfig::parse("bench.yaml", Path::new("."), &yaml).unwrap();
    let good = Policy { pick: Some(component::PICK_FIRST.to_owned()), score: None, ..Policy::default() };
    let builder = Router::builder().register("good", Provider::component(good.artifact().trusted()));
    let mut sandbox = config.sandbox.sandbox_config();
    sandbox.compile.worker = Some(WorkerCommand::this_program());
    let sandbox = Sandbox::new(sandbox).unwrap();
    let builder = builder.sandbox(sandbox.clone());
    let builder = bad.iter().fold(builder, |builder, (name, policy)| {
        builder.register(name, Provider::component(policy.artifact().trusted()))
    });
    let router = builder.policy_config(config).build().unwrap();
    let neighbour = partition(&router, "good");
    let evil: Vec<_> = bad.iter().map(|(name, _)| partition(&router, name)).collect();
    let names: Vec<&str> = bad.iter().map(|(name, _)| *name).chain(["compiles"]).collect();
    // Which of them acts now, none where the hostile tenant is quiet; whether it is still at it; and how often it was.
    let (which, busy, acts) = (AtomicUsize::new(usize::MAX), AtomicBool::new(false), AtomicU64::new(0));
    let done = AtomicBool::new(false);
    let mut ratios = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let started = Instant::now();
            while !done.load(Ordering::Relaxed) {
                let place = which.load(Ordering::Relaxed);
                busy.store(place != usize::MAX, Ordering::Relaxed);
                if place == usize::MAX {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                let now_ms = started.elapsed().as_secs_f64() * 1_000.0;
                match evil.get(place) {
                    Some(partition) => _ = partition.decide(&Request { now_ms, ..Request::default() }),
                    None => _ = sandbox.load(&bomb(acts.load(Ordering::Relaxed)), Profile::Compact).unwrap(),
                }
                acts.fetch_add(1, Ordering::Relaxed);
            }
        });
        for (place, name) in names.iter().enumerate() {
            let (mut quiet, mut beside) = (Vec::new(), Vec::new());
            acts.store(0, Ordering::Relaxed);
            for turn in 0..TURNS {
                let is_quiet = turn % 2 == 0;
                which.store(if is_quiet { usize::MAX } else { place }, Ordering::Relaxed);
                while busy.load(Ordering::Relaxed) == is_quiet {
                    std::thread::sleep(Duration::from_millis(1));
                }
                let times = if is_quiet { &mut quiet } else { &mut beside };
                let until = Instant::now() + TURN;
                while Instant::now() < until {
                    let started = Instant::now();
                    neighbour.decide(&Request::default()).unwrap();
                    times.push(started.elapsed());
                }
            }
            let (quiet, beside) = (p99(&mut quiet), p99(&mut beside));
            let (ratio, acts) = (beside.as_secs_f64() / quiet.as_secs_f64(), acts.load(Ordering::Relaxed));
            println!("{name:>8} {acts:>7} times: p99 {beside:>8.2?} beside it, {quiet:>8.2?} without: {ratio:.2}");
            ratios.push(ratio);
        }
        done.store(true, Ordering::Relaxed);
    });
    println!("worst ratio: {:.2}", ratios.iter().copied().fold(0.0, f64::max));
}
