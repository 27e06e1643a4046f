//! What a router costs its requests, beside other routers: the same clients and the same engines, directly and through
//! each router in turn, round by round within one run. `cargo bench --workspace --bench routers`
//!
//! The other routers are Python packages; those that are missing are installed in the target folder, or in the folder that
//! `POINTSMAN_PEERS` names, each in an environment of its own. One that cannot be installed or does not serve is left out,
//! and the reason is said. Names after `--` leave the other routers out: `-- pointsman smg`.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, unreachable_pub, reason = "a bench")]

mod engine;
mod load;
mod peers;
mod process;

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use load::{Load, Turn};
use process::Process;
use tempfile::TempDir;

const ENGINES: usize = 4;
const LOADS: [Load; 4] = [
    Load { name: "1 client", clients: 1, streams: false },
    Load { name: "8 clients", clients: 8, streams: false },
    Load { name: "32 clients", clients: 32, streams: false },
    Load { name: "8 clients, streams", clients: 8, streams: true },
];
/// How long the clients ask one router before it is the next one's turn.
const TURN: Duration = Duration::from_millis(400);
const ROUNDS: usize = 10;
/// No round begins later than this after the first one.
const LONGEST: Duration = Duration::from_secs(240);
/// Until a router answers its first request.
const START: Duration = Duration::from_secs(90);

/// A router that serves.
pub struct Router {
    name: String,
    address: SocketAddr,
    /// The first is the router.
    processes: Vec<Process>,
    /// Whether its engines are others than those of the others.
    own_engines: bool,
    /// What it reads, as long as it runs.
    _folder: Option<TempDir>,
}

impl Router {
    /// Starts its processes and waits until it has answered a request.
    pub fn start(name: String, commands: Vec<Command>, address: SocketAddr) -> Result<Self, String> {
        let processes = peers::start_all(&name, commands)?;
        let mut router = Self { name, address, processes, own_engines: false, _folder: None };
        let started = Instant::now();
        loop {
            let answer = load::try_out(address);
            if answer.is_ok() {
                return Ok(router);
            }
            let last = router.processes.iter().map(Process::last_words).collect::<Vec<_>>().join(" / ");
            if let Some(status) = router.processes.iter_mut().find_map(Process::ended) {
                return Err(format!("it ended with {status}: {last}"));
            }
            if started.elapsed() > START {
                return Err(format!("it does not serve after {START:?} ({answer:?}): {last}"));
            }
            thread::sleep(Duration::from_millis(200));
        }
    }
}

/// The folder of what the bench writes.
pub fn tmp() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("routers");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Addresses that nobody listens on now.
pub fn free<const N: usize>() -> [SocketAddr; N] {
    let listeners = [(); N].map(|()| TcpListener::bind(("127.0.0.1", 0)).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap())
}

fn main() {
    // `cargo test` runs benches too.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    // Names of routers on the command line leave the others out.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let engines: Vec<SocketAddr> = (0..ENGINES).map(|_| engine::start()).collect();
    let routers: Vec<Router> = routers(&engines)
        .into_iter()
        .filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name))
        .filter_map(|(name, start)| {
            let left_out = |reason: &String| println!("{name} is left out: {}\n", reason.replace('\n', " "));
            start().inspect_err(left_out).ok()
        })
        .collect();

    // By load and router; the first of each load is none.
    let mut turns: Vec<Vec<Vec<Turn>>> =
        LOADS.iter().map(|_| (0..=routers.len()).map(|_| Vec::new()).collect()).collect();
    let started = Instant::now();
    for round in 0..ROUNDS {
        if started.elapsed() > LONGEST {
            break;
        }
        eprintln!("round {} of {ROUNDS}", round + 1);
        for (load, turns) in LOADS.iter().zip(&mut turns) {
            turns[0].push(load::run(&engines, *load, TURN, || Duration::ZERO));
            for (router, turns) in routers.iter().zip(&mut turns[1..]) {
                let spent = || router.processes[0].spent();
                turns.push(load::run(&[router.address], *load, TURN, spent));
            }
        }
    }
    print(&routers, &turns);
}

type Start<'a> = Box<dyn FnOnce() -> Result<Router, String> + 'a>;

/// Each router's name and how it starts: those that look at load alone, then those that know of prefixes.
fn routers(engines: &[SocketAddr]) -> [(&'static str, Start<'_>); 7] {
    [
        ("vllm-router", Box::new(|| peers::vllm_router("power_of_two", engines))),
        ("smg", Box::new(|| peers::smg("power_of_two", engines))),
        ("pointsman", Box::new(|| peers::pointsman("power-of-two-choices", engines))),
        ("vllm-router", Box::new(|| peers::vllm_router("cache_aware", engines))),
        ("smg", Box::new(|| peers::smg("cache_aware", engines))),
        ("dynamo.frontend", Box::new(|| peers::dynamo(ENGINES))),
        ("pointsman", Box::new(|| peers::pointsman("dynamo-default-cost-fn", engines))),
    ]
}

fn print(routers: &[Router], turns: &[Vec<Vec<Turn>>]) {
    println!("| load | router | p50 added, µs | p99 added, µs | requests/s | CPU ms / 1,000 requests | resident MB |");
    println!("|---|---|---|---|---|---|---|");
    for (load, turns) in LOADS.iter().zip(turns) {
        let direct = &turns[0];
        let whole = |turns: &[Turn], share| median(turns.iter().map(|turn| micros(turn, share)));
        let (p50, p99, rates) = (whole(direct, 0.5), whole(direct, 0.99), median(direct.iter().map(rate)));
        println!("| {} | none, whole times | {p50:.0} | {p99:.0} | {rates:.0} | | |", load.name);
        for (router, turns) in routers.iter().zip(&turns[1..]) {
            let added = |share| match router.own_engines {
                true => format!("{:.0} in all", whole(turns, share)),
                false => {
                    let pairs = turns.iter().zip(direct);
                    format!("{:.0}", median(pairs.map(|(turn, direct)| micros(turn, share) - micros(direct, share))))
                }
            };
            let (p50, p99) = (added(0.5), added(0.99));
            let requests: u64 = turns.iter().map(|turn| turn.answers).sum();
            let spent: Duration = turns.iter().map(|turn| turn.spent).sum();
            let cpu = spent.as_secs_f64() * 1e6 / requests.max(1) as f64;
            let resident = router.processes[0].resident() as f64 / 1e6;
            let failed: u64 = turns.iter().map(|turn| turn.failed).sum();
            let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
            let (name, load, rate) = (&router.name, load.name, median(turns.iter().map(rate)));
            println!("| {load} | {name}{failed} | {p50} | {p99} | {rate:.0} | {cpu:.0} | {resident:.0} |");
        }
    }
}

fn micros(turn: &Turn, share: f64) -> f64 {
    turn.quantile(share).as_secs_f64() * 1e6
}

fn rate(turn: &Turn) -> f64 {
    turn.answers as f64 / turn.seconds
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
