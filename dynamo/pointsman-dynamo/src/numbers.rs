//! Workers by the contract's numbers.

use dynamo_kv_router::protocols::WorkerWithDpRank;
use rustc_hash::FxHashMap;

/// Numbers that stand for a worker and rank. None is ever given twice: Dynamo does not say when a worker is gone.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    numbers: FxHashMap<WorkerWithDpRank, u32>,
    /// By number.
    workers: Vec<WorkerWithDpRank>,
}

impl Numbers {
    pub(crate) fn of(&mut self, worker: WorkerWithDpRank) -> u32 {
        *self.numbers.entry(worker).or_insert_with(|| {
            self.workers.push(worker);
            self.workers.len() as u32 - 1
        })
    }

    /// The number, where the worker has one already.
    pub(crate) fn known(&self, worker: WorkerWithDpRank) -> Option<u32> {
        self.numbers.get(&worker).copied()
    }

    pub(crate) fn worker(&self, number: u32) -> Option<WorkerWithDpRank> {
        self.workers.get(number as usize).copied()
    }
}
