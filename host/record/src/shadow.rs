//! Shadow mode: a candidate decides a share of the live decisions too, on a thread of its own, and is compared.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pointsman_routing::{DecideError, Explanation, Observed, Snapshot, SnapshotDecision, SnapshotPolicy, Tap};
use pointsman_sandbox::Outcome;
use serde::Serialize;

use crate::entry::Ended;
use crate::spearman::spearman;

/// What becomes of a sampled decision that the shadow has no room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// It is dropped and counted: no live decision waits. For a host that serves.
    #[default]
    Drop,
    /// The live decision waits. For a replay, where every sampled decision counts.
    Wait,
}

/// How a shadow samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShadowOptions {
    /// The share of decisions that the candidate makes too, from 0 to 1.
    pub share: f64,
    /// What decides which: the same seed samples the same decisions.
    pub seed: u64,
    /// Decisions that may wait for the candidate; at least 1.
    pub waiting: usize,
    /// What becomes of one more.
    pub when_full: WhenFull,
}

impl Default for ShadowOptions {
    /// A tenth of the decisions, 64 of them waiting, and none that would wait for them.
    fn default() -> Self {
        Self { share: 0.1, seed: 0, waiting: 64, when_full: WhenFull::Drop }
    }
}

/// What came of a shadow so far.
///
/// Rows are compared with what the live policy answered. Costs, fuel and time are compared with a stand-in: the live
/// policy with guests of its own, that decides the sampled decisions stage by stage, as the candidate does. Where the
/// policy keeps state and is not sampled whole, both the stand-in and the candidate know the sampled decisions alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ShadowReport {
    /// Decisions that were sampled.
    pub sampled: u64,
    /// Of those, the ones dropped because the shadow was busy.
    pub dropped: u64,
    /// Decisions that both policies made, fallbacks after a fault of either aside.
    pub compared: u64,
    /// Of those, the ones with the same row, or refused by both filters.
    pub agreed: u64,
    /// The share of compared decisions that agreed.
    pub agreement: Option<f64>,
    /// The share of compared decisions for which the stand-in answered what the live policy did.
    pub stand_in_agreement: Option<f64>,
    /// The mean of the rank correlations of both policies' costs over the rows that both kept, from -1 to 1; none where
    /// no decision had costs that differ.
    pub cost_rank_correlation: Option<f64>,
    /// Decisions that the mean is of.
    pub correlated: u64,
    /// The candidate's fuel as a multiple of the stand-in's.
    pub fuel_ratio: Option<f64>,
    /// The candidate's time as a multiple of the stand-in's.
    pub time_ratio: Option<f64>,
    /// The candidate's faults by outcome.
    pub faults: BTreeMap<&'static str, u64>,
    /// Sampled decisions in which the live policy failed.
    pub live_faults: u64,
}

/// A candidate in the shadow of one partition's policy.
#[derive(Debug)]
pub struct Shadow {
    sender: SyncSender<Message>,
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

enum Message {
    Decide(Box<Sample>),
    Finish,
}

/// One live decision.
struct Sample {
    snapshot: Snapshot,
    ended: Ended,
}

#[derive(Debug, Default)]
struct Shared {
    sampled: AtomicU64,
    dropped: AtomicU64,
    figures: Mutex<Figures>,
}

#[derive(Debug, Default)]
struct Figures {
    compared: u64,
    agreed: u64,
    stand_in_agreed: u64,
    correlation: f64,
    correlated: u64,
    /// Of the candidate, then of the stand-in.
    fuel: [u64; 2],
    time: [Duration; 2],
    faults: BTreeMap<&'static str, u64>,
    live_faults: u64,
}

impl Shadow {
    /// Starts the thread. `stand_in` is the live policy with guests of its own, as of
    /// [`pointsman_routing::Router::on_snapshots`]. The tap goes to [`pointsman_routing::Partition::set_taps`].
    ///
    /// # Errors
    /// Where the thread cannot start.
    pub fn start(
        stand_in: SnapshotPolicy,
        candidate: SnapshotPolicy,
        options: ShadowOptions,
    ) -> io::Result<(Self, Box<dyn Tap>)> {
        let (sender, receiver) = sync_channel(options.waiting.max(1));
        let shared = Arc::<Shared>::default();
        let tap = ShadowTap {
            sender: sender.clone(),
            shared: Arc::clone(&shared),
            options,
            seen: 0,
            reads_cache: candidate.reads_cache(),
        };
        let thread = {
            let shared = Arc::clone(&shared);
            thread::Builder::new()
                .name("pointsman-shadow".to_owned())
                .spawn(move || run(&receiver, &shared, Pair { candidate, stand_in, turn: false }))?
        };
        Ok((Self { sender, shared, thread }, Box::new(tap)))
    }

    /// What came of it so far.
    #[must_use]
    pub fn report(&self) -> ShadowReport {
        report(&self.shared)
    }

    /// Waits until every decision that waits is compared, and ends the thread. Its tap samples nothing more.
    #[must_use]
    pub fn finish(self) -> ShadowReport {
        // A thread that has ended already takes no message, and there is nothing to wait for.
        let _ = self.sender.send(Message::Finish);
        let _ = self.thread.join();
        report(&self.shared)
    }
}

fn report(shared: &Shared) -> ShadowReport {
    let figures = shared.figures.lock().unwrap_or_else(PoisonError::into_inner);
    let share = |part: u64, of: u64| (of > 0).then(|| part as f64 / of as f64);
    let [candidate, stand_in] = figures.time.map(|time| time.as_nanos() as f64);
    ShadowReport {
        sampled: shared.sampled.load(Ordering::Relaxed),
        dropped: shared.dropped.load(Ordering::Relaxed),
        compared: figures.compared,
        agreed: figures.agreed,
        agreement: share(figures.agreed, figures.compared),
        stand_in_agreement: share(figures.stand_in_agreed, figures.compared),
        cost_rank_correlation: (figures.correlated > 0).then(|| figures.correlation / figures.correlated as f64),
        correlated: figures.correlated,
        fuel_ratio: share(figures.fuel[0], figures.fuel[1]),
        time_ratio: (stand_in > 0.0).then(|| candidate / stand_in),
        faults: figures.faults.clone(),
        live_faults: figures.live_faults,
    }
}

struct ShadowTap {
    sender: SyncSender<Message>,
    shared: Arc<Shared>,
    options: ShadowOptions,
    /// Decisions so far.
    seen: u64,
    reads_cache: bool,
}

impl Tap for ShadowTap {
    fn wants(&mut self) -> bool {
        self.seen += 1;
        let draw = mix(self.options.seed ^ mix(self.seen)) >> 11;
        (draw as f64) < self.options.share * (1_u64 << 53) as f64
    }

    fn reads_cache(&self) -> bool {
        self.reads_cache
    }

    fn decided(&mut self, observed: &Observed<'_>) {
        let ended = observed.ended.map_err(|error| error.name().to_owned());
        let sample = Message::Decide(Box::new(Sample { snapshot: observed.snapshot.clone(), ended }));
        self.shared.sampled.fetch_add(1, Ordering::Relaxed);
        let taken = match self.options.when_full {
            WhenFull::Wait => self.sender.send(sample).is_ok(),
            WhenFull::Drop => match self.sender.try_send(sample) {
                Ok(()) => true,
                Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
            },
        };
        if !taken {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Spreads neighbouring numbers over all 64 bits (the finaliser of SplitMix64).
const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

fn run(receiver: &Receiver<Message>, shared: &Shared, mut pair: Pair) {
    while let Ok(Message::Decide(sample)) = receiver.recv() {
        let [candidate, stand_in] = pair.decide(&sample.snapshot);
        let mut figures = shared.figures.lock().unwrap_or_else(PoisonError::into_inner);
        figures.compare(&sample, &candidate, &stand_in);
    }
}

struct Pair {
    candidate: SnapshotPolicy,
    stand_in: SnapshotPolicy,
    /// Who goes first: the second one finds the inputs in the processor's cache.
    turn: bool,
}

/// A decision of one of them.
struct Shown {
    ended: Result<SnapshotDecision, DecideError>,
    explanation: Explanation,
    time: Duration,
}

impl Shown {
    fn of(policy: &mut SnapshotPolicy, snapshot: &Snapshot) -> Self {
        let (begun, mut explanation) = (Instant::now(), Explanation::default());
        let ended = policy.explain(snapshot, &mut explanation);
        Self { ended, explanation, time: begun.elapsed() }
    }

    /// The fault that ended it, or that the default decided after.
    fn fault(&self) -> Option<Outcome> {
        let outcome = match &self.ended {
            Ok(decided) => Some(decided.outcome),
            Err(error) => error.outcome(),
        };
        outcome.filter(|outcome| *outcome != Outcome::Ok)
    }

    /// Fuel of a decision that its policy made.
    fn fuel(&self) -> Option<u64> {
        self.ended.as_ref().ok()?.fuel
    }

    fn agrees_with(&self, live: &Ended) -> bool {
        match (&self.ended, live) {
            (Ok(decided), Ok(live)) => decided.row == live.row,
            (Err(error), Err(live)) => error.name() == live,
            _ => false,
        }
    }
}

impl Pair {
    fn decide(&mut self, snapshot: &Snapshot) -> [Shown; 2] {
        self.turn = !self.turn;
        if self.turn {
            let candidate = Shown::of(&mut self.candidate, snapshot);
            return [candidate, Shown::of(&mut self.stand_in, snapshot)];
        }
        let stand_in = Shown::of(&mut self.stand_in, snapshot);
        [Shown::of(&mut self.candidate, snapshot), stand_in]
    }
}

impl Figures {
    fn compare(&mut self, Sample { ended, .. }: &Sample, candidate: &Shown, stand_in: &Shown) {
        let live_failed = match ended {
            Ok(live) => live.outcome != Outcome::Ok,
            Err(name) => Outcome::ALL.iter().any(|outcome| outcome.as_str() == name),
        };
        self.live_faults += u64::from(live_failed);
        if let Some(outcome) = candidate.fault() {
            *self.faults.entry(outcome.as_str()).or_default() += 1;
        }
        if live_failed || candidate.fault().is_some() {
            return;
        }
        self.compared += 1;
        self.agreed += u64::from(candidate.agrees_with(ended));
        self.stand_in_agreed += u64::from(stand_in.agrees_with(ended));
        if stand_in.fault().is_some() {
            return;
        }
        for (total, shown) in self.time.iter_mut().zip([candidate, stand_in]) {
            *total += shown.time;
        }
        if let (Some(candidate), Some(stand_in)) = (candidate.fuel(), stand_in.fuel()) {
            self.fuel[0] += candidate;
            self.fuel[1] += stand_in;
        }
        let (left, right): (Vec<f64>, Vec<f64>) =
            common(candidate.explanation.sums(), stand_in.explanation.sums()).unzip();
        if let Some(correlation) = spearman(&left, &right) {
            self.correlation += correlation;
            self.correlated += 1;
        }
    }
}

/// The costs of the rows that both lists have; each ascends.
fn common(
    left: impl Iterator<Item = (u32, f64)>,
    right: impl Iterator<Item = (u32, f64)>,
) -> impl Iterator<Item = (f64, f64)> {
    let mut right = right.peekable();
    left.filter_map(move |(row, cost)| {
        while right.next_if(|(other, _)| *other < row).is_some() {}
        right.next_if(|(other, _)| *other == row).map(|(_, other)| (cost, other))
    })
}
