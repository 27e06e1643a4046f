//! What one operation of the policy-class queue costs, by how many requests wait and in how many lanes:
//! `cargo bench -p pointsman-admission`.
//!
//! Every operation is measured in every round, on batches after which as many wait as before; a cell is the median of
//! the rounds, in nanoseconds an operation.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a bench fails by panicking")]

use std::sync::Arc;
use std::time::Instant;

use fastrand::Rng;
use pointsman_admission::{
    Arrival, Bucket, EntryId, Lane, PolicyClass, PolicyQueue, Profile, ProfileSpec, Pushed, RequestTokens, WorkerKey,
};

const ROUNDS: usize = 201;
const COLUMNS: [&str; 5] = ["push", "pop", "cancel", "expire", "recheck and blocked pop"];

fn main() {
    println!("| waiting | lanes | {} |", COLUMNS.join(" | "));
    println!("|{}", "---|".repeat(COLUMNS.len() + 2));
    for waiting in [100, 1_000, 10_000, 100_000] {
        for lanes in [1, 1_000] {
            let cells = Bench::new(waiting, lanes).run();
            println!("| {waiting} | {lanes} | {} |", cells.map(|nanos| format!("{nanos:.0}")).join(" | "));
        }
    }
}

struct Bench {
    queue: PolicyQueue<()>,
    lanes: u64,
    /// Operations of a batch.
    batch: usize,
    /// Requests that may be cancelled: the latest batch.
    latest: Vec<EntryId>,
    rng: Rng,
}

impl Bench {
    fn new(waiting: usize, lanes: u64) -> Self {
        let batch = (waiting / 2).min(100);
        let queue = PolicyQueue::new(four_classes());
        let mut bench = Self { queue, lanes, batch, latest: Vec::new(), rng: Rng::with_seed(7) };
        for _ in 0..waiting {
            bench.push(None);
        }
        bench
    }

    /// Of any class, lane and place in the order.
    fn push(&mut self, due_ms: Option<f64>) {
        let rng = &mut self.rng;
        let name = *rng.choice(&["a", "b", "c", "d"]).unwrap();
        let arrival = Arrival {
            class: self.queue.profile().choose(Some(name), 0),
            lane: match self.lanes {
                1 => Lane::Shared,
                lanes => Lane::Rank(WorkerKey::new(rng.u64(0..lanes), 0)),
            },
            tokens: RequestTokens::new(rng.u64(1..4_000), 0),
            strict_priority: rng.u32(0..2),
            priority_jump: 0.0,
            ingress_ms: rng.f64() * 1e6,
            due_ms: due_ms.or_else(|| rng.bool().then(|| 1e7 + rng.f64())),
        };
        let Ok(Pushed::Waits(id)) = self.queue.push(arrival, (), 0.0, 1, |_, ()| true) else { panic!("must wait") };
        self.latest.push(id);
    }

    fn push_batch(&mut self, due_ms: Option<f64>) {
        self.latest.clear();
        for _ in 0..self.batch {
            self.push(due_ms);
        }
    }

    fn run(mut self) -> [f64; 5] {
        let mut rounds: [Vec<f64>; 5] = Default::default();
        for _ in 0..ROUNDS {
            let times = self.round();
            rounds.iter_mut().zip(times).for_each(|(all, time)| all.push(time));
        }
        rounds.map(|mut all| {
            all.sort_unstable_by(f64::total_cmp);
            all[ROUNDS / 2]
        })
    }

    fn round(&mut self) -> [f64; 5] {
        let batch = self.batch;
        let push = nanos(batch, || self.push_batch(None));
        let mut ids = self.latest.clone();
        self.rng.shuffle(&mut ids);
        let cancel = nanos(batch, || ids.iter().for_each(|id| _ = self.queue.cancel(*id).unwrap()));
        self.push_batch(Some(1.0));
        let expire = nanos(batch, || (0..batch).for_each(|_| _ = self.queue.expire(2.0).unwrap()));
        let pop = nanos(batch, || (0..batch).for_each(|_| _ = self.queue.pop(|_, ()| true).unwrap()));
        self.push_batch(None);
        assert!(self.queue.pop(|_, ()| false).is_none());
        let rows: Vec<_> = (0..batch as u64).map(|row| WorkerKey::new(row % self.lanes, 0)).collect();
        let blocked = nanos(batch, || {
            for row in &rows {
                self.queue.recheck(*row);
                assert!(self.queue.pop(|_, ()| false).is_none());
            }
        });
        self.queue.recheck_all();
        [push, pop, cancel, expire, blocked]
    }
}

fn nanos(operations: usize, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64 / operations as f64
}

fn four_classes() -> Arc<Profile> {
    let class = |(name, quantum): (&str, u64)| PolicyClass {
        name: format!("{name}_all"),
        policy_family: Some(name.to_owned()),
        cache_bucket: Some("all".to_owned()),
        quantum,
        ..PolicyClass::default()
    };
    let spec = ProfileSpec {
        default_policy_family: "a".to_owned(),
        uncached_isl_buckets: vec![Bucket { min_tokens: 0, bucket: "all".to_owned() }],
        policy_classes: [("a", 512), ("b", 512), ("c", 2_048), ("d", 128)].map(class).to_vec(),
    };
    Arc::new(Profile::new(spec).unwrap())
}
