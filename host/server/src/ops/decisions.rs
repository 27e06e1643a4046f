//! The decision log: for a share of the decisions, which candidates there were, what each cost, and why the others lost.
//!
//! A decision is explained on a thread of its own, by a guest of the same policy that only explains. Where a policy draws
//! or keeps state, that guest may see it otherwise than the one that decided: the entry has what was decided, and says
//! whether its own guest agrees.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;

use pointsman_routing::{
    Explanation, Observed, Partition, PartitionKey, Router, Snapshot, SnapshotDecision, SnapshotPolicy, Tap,
};
use serde::Serialize;

use crate::observe::Observer;

/// The most candidates of an entry; the cheapest are told.
const MOST_CANDIDATES: usize = 32;
/// Decisions that may wait to be explained. One more is left out: no decision waits for the log.
const WAITING: usize = 64;

/// One decision, explained.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explained {
    /// The decision's id: the request's, and the number of its try at the front door; the selection's at the selection
    /// service.
    pub id: String,
    /// The model of the partition.
    pub model: String,
    /// Its routing group.
    pub routing_group: String,
    /// When it was decided, in milliseconds of the server's clock.
    pub now_ms: f64,
    /// The chosen worker and rank; none where the request was refused.
    pub chosen: Option<Candidate>,
    /// `ok`, the fault after which another decided, or the name of the refusal.
    pub outcome: String,
    /// Whether the native default decided in the policy's place.
    pub fallback: bool,
    /// Whether the guest that explains chose the same.
    pub agrees: bool,
    /// Eligible rows.
    pub candidates: usize,
    /// The rows that did not serve the request and why, the cheapest first, at most 32.
    pub others: Vec<Loser>,
}

/// A row and its cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// The worker's id.
    pub worker: u64,
    /// Its rank.
    pub rank: u32,
    /// The scorers' sum; none where a filter dropped the row.
    pub cost: Option<f64>,
}

/// A row that did not serve the request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Loser {
    /// The row.
    #[serde(flatten)]
    pub candidate: Candidate,
    /// Why it lost.
    pub because: Because,
}

/// Why a row lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Because {
    /// A filter of the policy dropped it.
    Filtered,
    /// It costs more than the chosen one.
    CostsMore,
    /// It costs as much, and another row was taken.
    SameCost,
    /// It costs less, and the policy's picker took another one all the same.
    NotPicked,
    /// The policy failed, so its costs do not count.
    PolicyFailed,
}

/// Who writes entries.
pub type Sink = Box<dyn FnMut(&Explained) + Send>;

/// Explains decisions of any number of partitions. Dropping it lets what waits be explained, then ends the thread.
#[derive(Debug)]
pub struct DecisionLog {
    sender: Sender<Sample>,
    share: f64,
    waiting: Arc<AtomicUsize>,
}

struct Sample {
    id: String,
    key: PartitionKey,
    block_size: u32,
    snapshot: Snapshot,
    decided: Result<SnapshotDecision, String>,
    /// The number of the policy that decided: another one needs another guest.
    policy: u64,
}

impl DecisionLog {
    /// Starts the thread that explains a `share` of the decisions, from 0 to 1, and gives each to `sink`.
    ///
    /// # Errors
    /// Where the thread cannot start.
    pub fn start(router: &Arc<Router>, share: f64, sink: Sink) -> io::Result<Self> {
        let (sender, receiver) = channel();
        let waiting = Arc::<AtomicUsize>::default();
        let explainer =
            Explainer { router: Arc::downgrade(router), policies: HashMap::new(), waiting: Arc::clone(&waiting), sink };
        thread::Builder::new().name("pointsman-explains".to_owned()).spawn(move || explainer.run(&receiver))?;
        Ok(Self { sender, share, waiting })
    }
}

impl Observer for DecisionLog {
    fn taps(&self, partition: &Partition) -> Vec<Box<dyn Tap>> {
        let (key, block_size) = (partition.key().clone(), partition.block_size());
        let (sender, waiting) = (self.sender.clone(), Arc::clone(&self.waiting));
        vec![Box::new(LogTap { key, block_size, sender, waiting, share: self.share, due: 0.0 })]
    }
}

struct LogTap {
    key: PartitionKey,
    block_size: u32,
    sender: Sender<Sample>,
    waiting: Arc<AtomicUsize>,
    share: f64,
    /// The share of a sample that is due: every `1 / share`th decision is taken.
    due: f64,
}

impl Tap for LogTap {
    fn wants(&mut self) -> bool {
        self.due += self.share;
        if self.due < 1.0 {
            return false;
        }
        self.due -= 1.0;
        // A snapshot that there is no room for is not made.
        self.waiting.load(Ordering::Relaxed) < WAITING
    }

    fn decided(&mut self, observed: &Observed<'_>) {
        let sample = Sample {
            id: observed.id.to_owned(),
            key: self.key.clone(),
            block_size: self.block_size,
            snapshot: observed.snapshot.clone(),
            decided: observed.ended.map_err(|error| error.name().to_owned()),
            policy: observed.before.policy,
        };
        // Counted before it may be taken. Where the log has ended nobody takes it, and soon no more are made.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _ = self.sender.send(sample);
    }
}

struct Explainer {
    router: Weak<Router>,
    policies: HashMap<PartitionKey, (u64, SnapshotPolicy)>,
    waiting: Arc<AtomicUsize>,
    sink: Sink,
}

impl Explainer {
    fn run(mut self, receiver: &Receiver<Sample>) {
        while let Ok(sample) = receiver.recv() {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            if let Some(entry) = self.explain(&sample) {
                (self.sink)(&entry);
            }
        }
    }

    fn explain(&mut self, sample: &Sample) -> Option<Explained> {
        let known = self.policies.get(&sample.key).is_some_and(|(policy, _)| *policy == sample.policy);
        if !known {
            let built = self.router.upgrade()?.on_snapshots(&sample.key, sample.block_size);
            let policy = built.inspect_err(|error| tracing::warn!(%error, "decisions cannot be explained")).ok()?;
            self.policies.insert(sample.key.clone(), (sample.policy, policy));
        }
        let (_, policy) = self.policies.get_mut(&sample.key)?;
        let mut explanation = Explanation::default();
        let again = policy.explain(&sample.snapshot, &mut explanation);
        let agrees = match (&again, &sample.decided) {
            (Ok(again), Ok(decided)) => again.row == decided.row,
            (Err(again), Err(decided)) => again.name() == decided,
            _ => false,
        };
        Some(entry(sample, &explanation, agrees))
    }
}

fn entry(sample: &Sample, explanation: &Explanation, agrees: bool) -> Explained {
    let Sample { id, key, snapshot, decided, .. } = sample;
    let costs = costs(explanation, snapshot.rows());
    let chosen = decided.as_ref().ok();
    let failed = chosen.is_some_and(|decision| decision.fallback);
    let candidate = |row: u32| {
        let key = snapshot.keys.get(row as usize)?;
        Some(Candidate { worker: key.worker, rank: key.rank, cost: costs.get(row as usize).copied().flatten() })
    };
    let paid = chosen.and_then(|decision| costs.get(decision.row as usize).copied().flatten());
    let because = |cost: Option<f64>| match (cost, paid) {
        _ if failed => Because::PolicyFailed,
        (None, _) => Because::Filtered,
        (Some(cost), Some(paid)) if cost > paid => Because::CostsMore,
        (Some(cost), Some(paid)) if cost < paid => Because::NotPicked,
        _ => Because::SameCost,
    };
    let losers = (0..snapshot.rows()).filter(|row| chosen.is_none_or(|decision| decision.row != *row));
    let mut others: Vec<Loser> =
        losers.filter_map(candidate).map(|candidate| Loser { because: because(candidate.cost), candidate }).collect();
    let cost = |loser: &Loser| loser.candidate.cost.unwrap_or(f64::INFINITY);
    others.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
    others.truncate(MOST_CANDIDATES);
    Explained {
        id: id.clone(),
        model: key.model.clone(),
        routing_group: key.routing_group.clone(),
        now_ms: snapshot.facts.get(pointsman_contract::Fact::NowMs.index()).copied().unwrap_or_default(),
        chosen: chosen.and_then(|decision| candidate(decision.row)),
        outcome: decided.as_ref().map_or_else(Clone::clone, |decision| decision.outcome.as_str().to_owned()),
        fallback: failed,
        agrees,
        candidates: snapshot.keys.len(),
        others,
    }
}

/// The scorers' sum of each row; none where a filter dropped it.
fn costs(explanation: &Explanation, rows: u32) -> Vec<Option<f64>> {
    let mut costs = vec![None; rows as usize];
    for (row, cost) in explanation.sums() {
        if let Some(known) = costs.get_mut(row as usize) {
            *known = Some(cost);
        }
    }
    costs
}
