use std::fmt;

/// One row of a partition: a worker and one of its data-parallel ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerKey {
    /// The worker's id.
    pub worker: u64,
    /// The data-parallel rank.
    pub rank: u32,
}

impl WorkerKey {
    /// Rank `rank` of worker `worker`.
    #[must_use]
    pub const fn new(worker: u64, rank: u32) -> Self {
        Self { worker, rank }
    }
}

impl fmt::Display for WorkerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {} rank {}", self.worker, self.rank)
    }
}
