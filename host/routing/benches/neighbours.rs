//! What a hostile tenant costs its neighbours: their decision times beside a quiet tenant and beside one that does its
//! worst, in turns within one run. `cargo bench --profile dev --workspace --bench neighbours`

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a bench")]

#[path = "../../sandbox/tests/common/mod.rs"]
mod component;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use component::{Policy, SPIN};
use pointsman_routing::config::PolicyConfig;
use pointsman_routing::{Partition, PartitionKey, Provider, Request, Router, WorkerConfig};
use pointsman_sandbox::*;

const WORKERS: u64 = 128;
const TURNS: usize = 40;
const TURN: Duration = Duration::from_millis(500);

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
    let builder = bad.iter().fold(builder, |builder, (name, policy)| {
        builder.register(name, Provider::component(policy.artifact().trusted()))
    });
    let router = builder.policy_config(config).build().unwrap();
    let neighbour = partition(&router, "good");
    let evil: Vec<_> = bad.iter().map(|(name, _)| partition(&router, name)).collect();
    // Which of them decides now; none where the hostile tenant is quiet.
    let (which, done) = (AtomicUsize::new(usize::MAX), AtomicBool::new(false));
    let mut ratios = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let started = Instant::now();
            while !done.load(Ordering::Relaxed) {
                let request = Request { now_ms: started.elapsed().as_secs_f64() * 1_000.0, ..Request::default() };
                match evil.get(which.load(Ordering::Relaxed)) {
                    Some(partition) => _ = partition.decide(&request),
                    None => std::thread::sleep(Duration::from_millis(1)),
                }
            }
        });
        for (place, (name, _)) in bad.iter().enumerate() {
            let (mut quiet, mut beside) = (Vec::new(), Vec::new());
            for turn in 0..TURNS {
                let times = if turn % 2 == 0 { &mut quiet } else { &mut beside };
                which.store(if turn % 2 == 0 { usize::MAX } else { place }, Ordering::Relaxed);
                let until = Instant::now() + TURN / 10;
                while Instant::now() < until {
                    let started = Instant::now();
                    neighbour.decide(&Request::default()).unwrap();
                    times.push(started.elapsed());
                }
            }
            let (quiet, beside) = (p99(&mut quiet), p99(&mut beside));
            let ratio = beside.as_secs_f64() / quiet.as_secs_f64();
            println!("{name:>8}: p99 {beside:>10.2?} beside it, {quiet:>10.2?} beside a quiet one: {ratio:.2}");
            ratios.push(ratio);
        }
        done.store(true, Ordering::Relaxed);
    });
    println!("worst ratio: {:.2}", ratios.iter().copied().fold(0.0, f64::max));
}
