//! Decisions per second on one thread and on two, partitions spread over them.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::harness::{at_least, figure, head, median, promises, row};
use crate::inputs::{BLOCK_SIZE, Input, Pool, decide};
use pointsman_parity::pointsman;
use pointsman_routing::{InstanceSpec, Partition, PartitionKey, Router};

const POLICY: &str = "dynamo-default-cost-fn";
const PARTITIONS: usize = 8;
/// Short beside the noise of a shared machine, so that it meets both alike.
const TURN: Duration = Duration::from_millis(20);

/// Rounds where the command line says nothing.
pub(crate) const ROUNDS: usize = 75;

pub(crate) fn run(rounds: usize) -> Result<(), Box<dyn Error>> {
    head(&["workers", "two threads / one", "one thread, decisions/s", "two threads, decisions/s"]);
    let mut worst = f64::INFINITY;
    for workers in [32, 1_024] {
        let pool = Pool::new(Input::Sparse, workers);
        let router = Router::builder()
            .register(POLICY, pointsman::component(POLICY)?)
            .serve(InstanceSpec::new(POLICY))
            .build()?;
        let partitions = (0..PARTITIONS)
            .map(|group| {
                let key = PartitionKey { routing_group: format!("group-{group}"), ..PartitionKey::default() };
                let partition = router.partition(&key, BLOCK_SIZE)?;
                pool.fill(&partition)?;
                Ok(partition)
            })
            .collect::<Result<Vec<_>, Box<dyn Error>>>()?;
        let (mut one, mut two) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            one.push(rate(&pool, &[&partitions]));
            let (left, right) = partitions.split_at(PARTITIONS / 2);
            two.push(rate(&pool, &[left, right]));
        }
        let mut ratios: Vec<_> = one.iter().zip(&two).map(|(one, two)| two / one).collect();
        let ratio = median(&mut ratios);
        worst = worst.min(ratio);
        row(&[workers.to_string(), figure(ratio), figure(median(&mut one)), figure(median(&mut two))]);
    }
    promises();
    at_least("two threads / one thread, decisions per second", worst, 1.8);
    Ok(())
}

/// Decisions per second of a thread for each share of the partitions.
fn rate(pool: &Pool, shares: &[&[Arc<Partition>]]) -> f64 {
    std::thread::scope(|scope| {
        let threads: Vec<_> = shares.iter().map(|share| scope.spawn(|| turn(pool, share))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread of the bench ended early")).sum()
    })
}

fn turn(pool: &Pool, partitions: &[Arc<Partition>]) -> f64 {
    let start = Instant::now();
    let mut decided = 0;
    while start.elapsed() < TURN {
        for partition in partitions {
            for case in &pool.cases {
                assert!(decide(partition, case).is_some());
                decided += 1;
            }
        }
    }
    f64::from(decided) / start.elapsed().as_secs_f64()
}
