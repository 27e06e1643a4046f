//! Where the server tells what happens: each decision once, and each request's end once.

use pointsman_admission::End;
use pointsman_routing::{DecideError, Decision, Partition, Request};

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
