//! What a rank counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts and gauges of one data-parallel rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Sequences in the batch.
    pub running: u64,
    /// Sequences that wait for a place in it.
    pub waiting: u64,
    /// KV blocks in use by running sequences.
    pub used_blocks: u64,
    /// KV blocks in all.
    pub total_blocks: u64,
    /// Prompt tokens that were looked up in the prefix cache.
    pub prefix_queries: u64,
    /// Prompt tokens that were found there.
    pub prefix_hits: u64,
    /// Prompt tokens of the sequences whose prefill is done.
    pub prompt_tokens: u64,
    /// Tokens of answers.
    pub generated_tokens: u64,
    /// Sequences that ended with their answer whole.
    pub finished: u64,
    /// Sequences that ended because nobody listened any more.
    pub aborted: u64,
}

/// One counter a field, written by the rank's driver.
#[derive(Debug, Default)]
pub(crate) struct LiveStats {
    pub(crate) running: AtomicU64,
    pub(crate) waiting: AtomicU64,
    pub(crate) used_blocks: AtomicU64,
    pub(crate) total_blocks: AtomicU64,
    pub(crate) prefix_queries: AtomicU64,
    pub(crate) prefix_hits: AtomicU64,
    pub(crate) prompt_tokens: AtomicU64,
    pub(crate) generated_tokens: AtomicU64,
    pub(crate) finished: AtomicU64,
    pub(crate) aborted: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

pub(crate) fn subtract(gauge: &AtomicU64, amount: u64) {
    gauge.fetch_sub(amount, Ordering::Relaxed);
}

pub(crate) fn set(gauge: &AtomicU64, value: u64) {
    gauge.store(value, Ordering::Relaxed);
}

impl LiveStats {
    pub(crate) fn read(&self) -> Stats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            running: get(&self.running),
            waiting: get(&self.waiting),
            used_blocks: get(&self.used_blocks),
            total_blocks: get(&self.total_blocks),
            prefix_queries: get(&self.prefix_queries),
            prefix_hits: get(&self.prefix_hits),
            prompt_tokens: get(&self.prompt_tokens),
            generated_tokens: get(&self.generated_tokens),
            finished: get(&self.finished),
            aborted: get(&self.aborted),
        }
    }
}
