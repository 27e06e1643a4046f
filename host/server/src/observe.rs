//! Where the server tells what happens: each decision once, and each request's end once.

use std::sync::Arc;

use pointsman_admission::End;
use pointsman_routing::{DecideError, Decision, Partition, Request, Tap};

/// A decision as it came out.
#[derive(Clone, Copy, Debug)]
pub struct DecisionMade<'a> {
    /// Who decided.
    pub partition: &'a Partition,
    /// For whom.
    pub request: &'a Request<'a>,
    /// What.
    pub result: &'a Result<Decision, DecideError>,
    /// How long it took, in microseconds.
    pub elapsed_us: f64,
}

/// The end of a request, served or not.
#[derive(Clone, Copy, Debug)]
pub struct RequestEnded<'a> {
    /// Where it was admitted.
    pub partition: &'a Partition,
    /// How it ended.
    pub end: &'a End,
}

/// Hears of decisions and ends. It is called under a partition's lock: it must be quick and must not ask the pool.
pub trait Observer: Send + Sync {
    /// What is to listen to a new partition's decisions.
    fn taps(&self, partition: &Partition) -> Vec<Box<dyn Tap>> {
        let _ = partition;
        Vec::new()
    }

    /// A request got its worker after so many milliseconds.
    fn dispatched(&self, partition: &Partition, waited_ms: f64) {
        let _ = (partition, waited_ms);
    }

    /// A request goes to another worker.
    fn retried(&self, partition: &Partition) {
        let _ = partition;
    }

    /// A policy was asked.
    fn decided(&self, made: &DecisionMade<'_>) {
        let _ = made;
    }

    /// A request is over.
    fn ended(&self, ended: &RequestEnded<'_>) {
        let _ = ended;
    }
}

/// Hears nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {}

/// Several observers, each of which hears everything.
#[derive(Clone, Default)]
pub struct Observers(Vec<Arc<dyn Observer>>);

impl FromIterator<Arc<dyn Observer>> for Observers {
    fn from_iter<I: IntoIterator<Item = Arc<dyn Observer>>>(observers: I) -> Self {
        Self(observers.into_iter().collect())
    }
}

impl Observer for Observers {
    fn taps(&self, partition: &Partition) -> Vec<Box<dyn Tap>> {
        self.0.iter().flat_map(|observer| observer.taps(partition)).collect()
    }

    fn dispatched(&self, partition: &Partition, waited_ms: f64) {
        self.0.iter().for_each(|observer| observer.dispatched(partition, waited_ms));
    }

    fn retried(&self, partition: &Partition) {
        self.0.iter().for_each(|observer| observer.retried(partition));
    }

    fn decided(&self, made: &DecisionMade<'_>) {
        self.0.iter().for_each(|observer| observer.decided(made));
    }

    fn ended(&self, ended: &RequestEnded<'_>) {
        self.0.iter().for_each(|observer| observer.ended(ended));
    }
}
