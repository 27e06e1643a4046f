//! What waits, and in which order.

use std::cmp::Reverse;

use crate::{ClassId, QueuePolicy, WorkerKey};

/// The number of a waiting request. It is never used again in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryId(pub(super) u64);

/// Where a request waits inside its class: a lane whose first request must wait holds up no other lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lane {
    /// With all requests that more than one worker may serve.
    #[default]
    Shared,
    /// With the requests that only this worker may serve, on any of its ranks.
    Worker(u64),
    /// With the requests that only this row may serve.
    Rank(WorkerKey),
}

/// A request's tokens as its queue counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestTokens {
    prompt: u64,
    cached: u64,
    cost: u64,
}

impl RequestTokens {
    /// A prompt of which the best worker that may serve it has `cached` tokens; more than the prompt count as all of it.
    ///
    /// Its scheduling cost is the rest, at least 1.
    #[must_use]
    pub fn new(prompt: u64, cached: u64) -> Self {
        let cached = cached.min(prompt);
        Self { prompt, cached, cost: (prompt - cached).max(1) }
    }

    /// With another scheduling cost, at least 1.
    #[must_use]
    pub fn with_cost(self, cost: u64) -> Self {
        Self { cost: cost.max(1), ..self }
    }

    /// Tokens of the prompt.
    #[must_use]
    pub fn prompt(self) -> u64 {
        self.prompt
    }

    /// Those that are cached.
    #[must_use]
    pub fn cached(self) -> u64 {
        self.cached
    }

    /// Those that are not.
    #[must_use]
    pub fn uncached(self) -> u64 {
        self.prompt - self.cached
    }

    /// What the class pays for the request, in tokens.
    #[must_use]
    pub fn cost(self) -> u64 {
        self.cost
    }
}

/// How a request enters the queue. Times are milliseconds on one clock, and no number is NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    /// Its class in the queue's profile.
    pub class: ClassId,
    /// Its lane.
    pub lane: Lane,
    /// Its tokens.
    pub tokens: RequestTokens,
    /// The larger goes first, whatever else holds.
    pub strict_priority: u32,
    /// The priority boost in seconds; below 0 counts as 0.
    pub priority_jump: f64,
    /// When it came to the router, which may be long before it came to the queue.
    pub ingress_ms: f64,
    /// When it must have left the queue.
    pub due_ms: Option<f64>,
}

/// A request that waits or has waited.
#[derive(Clone, Debug)]
pub struct Queued<T> {
    /// Its number.
    pub id: EntryId,
    /// How it entered.
    pub arrival: Arrival,
    /// What its owner keeps with it.
    pub payload: T,
}

/// The place of a request in its lane; the least is served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Order {
    strict_priority: Reverse<u32>,
    due: Due,
    score: Reverse<u64>,
    pub(super) id: EntryId,
}

impl Order {
    pub(super) fn new(arrival: &Arrival, policy: QueuePolicy, id: EntryId) -> Self {
        Self {
            strict_priority: Reverse(arrival.strict_priority),
            due: arrival.due_ms.map_or(Due::NEVER, Due::at),
            score: Reverse(ascending(score(arrival, policy))),
            id,
        }
    }
}

/// A due time as a number that sorts as the time does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Due(u64);

impl Due {
    /// After every due time.
    const NEVER: Self = Self(u64::MAX);

    pub(super) fn at(ms: f64) -> Self {
        Self(ascending(ms))
    }
}

/// Larger is served first. (Formulas: Dynamo 1.6.1's policy queue.)
fn score(arrival: &Arrival, policy: QueuePolicy) -> f64 {
    let jump = arrival.priority_jump.max(0.0);
    match policy {
        QueuePolicy::Fcfs => jump - (arrival.ingress_ms / 1000.0).max(0.0),
        QueuePolicy::Wspt => (1.0 + jump) / arrival.tokens.cost as f64,
    }
}

/// A number whose order among its like is that of the floats; the two zeros are one.
fn ascending(value: f64) -> u64 {
    const SIGN: u64 = 1 << 63;
    let bits = (value + 0.0).to_bits();
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}
