//! Which workers should hold which prefixes, by what was routed to them: for engines that publish no KV events.
//!
//! A block that was routed to a row counts as held there until its time to live is over; being routed there again renews
//! it. (Dynamo: `use_kv_events: false` with `router_ttl_secs`.)

use std::collections::VecDeque;
use std::sync::Mutex;

use pointsman_routing::{Partition, PartitionKey, RouterConfig, WorkerKey, WorkerOverlap};
use pointsman_signals::PromptReader;
use rustc_hash::FxHashMap;

use crate::signals::{PrefixIndex, Signals};
use crate::sync::locked;

/// How long what was routed counts, in milliseconds; Dynamo's 120 s.
pub const TTL_MS: f64 = 120_000.0;
/// The most blocks that one partition's index holds, each counted once a row: beyond it the oldest go.
const MOST_BLOCKS: usize = 2 << 20;

/// Prompts by the byte estimate, and a predicted index for every partition.
#[derive(Clone, Copy, Debug)]
pub struct Predicted {
    /// The settings whose weights make an overlap of its tiers.
    pub router_config: RouterConfig,
    /// How long what was routed counts, in milliseconds.
    pub ttl_ms: f64,
}

impl Signals for Predicted {
    fn reader(&self, _: &str, block_size: u32) -> PromptReader {
        PromptReader::new(block_size)
    }

    fn index(&self, _: &PartitionKey, _: u32) -> Option<Box<dyn PrefixIndex>> {
        Some(Box::new(PredictedIndex { settings: *self, held: Mutex::default() }))
    }
}

/// The index of one partition.
#[derive(Debug)]
struct PredictedIndex {
    settings: Predicted,
    held: Mutex<Held>,
}

/// A row that holds a block, until then.
#[derive(Clone, Copy, Debug)]
struct Holder {
    row: WorkerKey,
    until_ms: f64,
}

#[derive(Debug, Default)]
struct Held {
    /// By the block's hash, which stands for its block and all blocks before it; sorted by row.
    blocks: FxHashMap<u64, Vec<Holder>>,
    /// Every time that a block was routed, oldest first.
    routed: VecDeque<(u64, Holder)>,
}

impl Held {
    /// Lets go of what is over, and of the oldest where there is too much.
    fn trim(&mut self, now_ms: f64) {
        while let Some((hash, routed)) = self.routed.front().copied() {
            if routed.until_ms > now_ms && self.routed.len() <= MOST_BLOCKS {
                return;
            }
            self.routed.pop_front();
            let Some(holders) = self.blocks.get_mut(&hash) else { continue };
            // One that was renewed since has a later entry.
            holders.retain(|holder| holder.row != routed.row || holder.until_ms > routed.until_ms);
            if holders.is_empty() {
                self.blocks.remove(&hash);
            }
        }
    }
}

impl PrefixIndex for PredictedIndex {
    fn overlaps(&self, partition: &Partition, block_hashes: &[u64], now_ms: f64, overlaps: &mut Vec<WorkerOverlap>) {
        overlaps.clear();
        let held = locked(&self.held);
        let holding = |hash: &u64| {
            let holders = held.blocks.get(hash).map_or(&[][..], Vec::as_slice);
            holders.iter().filter(|holder| holder.until_ms > now_ms).map(|holder| holder.row).peekable()
        };
        let Some((first, rest)) = block_hashes.split_first() else { return };
        // The rows that hold all blocks so far, and the length of the run of those that have dropped out.
        let mut running: Vec<WorkerKey> = holding(first).collect();
        let mut runs: Vec<(WorkerKey, usize)> = Vec::new();
        let mut length = 1;
        for hash in rest {
            if running.is_empty() {
                break;
            }
            let mut holders = holding(hash);
            running.retain(|row| {
                while holders.next_if(|holder| holder < row).is_some() {}
                let goes_on = holders.peek() == Some(row);
                if !goes_on {
                    runs.push((*row, length));
                }
                goes_on
            });
            length += 1;
        }
        runs.extend(running.into_iter().map(|row| (row, length)));
        runs.sort_unstable();
        let (config, block_size) = (&self.settings.router_config, partition.block_size());
        let overlap = |(row, blocks): (WorkerKey, usize)| {
            WorkerOverlap::from_tiers(row, blocks as f64, 0.0, 0.0, config, block_size)
        };
        overlaps.extend(runs.into_iter().map(overlap));
    }

    fn routed(&self, row: WorkerKey, block_hashes: &[u64], now_ms: f64) {
        let holder = Holder { row, until_ms: now_ms + self.settings.ttl_ms };
        let mut held = locked(&self.held);
        for hash in block_hashes {
            let holders = held.blocks.entry(*hash).or_default();
            match holders.binary_search_by_key(&row, |other| other.row) {
                Ok(place) => holders[place] = holder,
                Err(place) => holders.insert(place, holder),
            }
            held.routed.push_back((*hash, holder));
        }
        held.trim(now_ms);
    }

    fn removed(&self, worker: u64) {
        let mut held = locked(&self.held);
        held.blocks.retain(|_, holders| {
            holders.retain(|holder| holder.row.worker != worker);
            !holders.is_empty()
        });
        held.routed.retain(|(_, holder)| holder.row.worker != worker);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may end by a panic")]

    use std::sync::Arc;

    use pointsman_routing::Router;

    use super::*;

    fn partition() -> Arc<Partition> {
        Router::builder().build().unwrap().partition(&PartitionKey::default(), 16).unwrap()
    }

    fn index(ttl_ms: f64) -> Box<dyn PrefixIndex> {
        let signals = Predicted { router_config: RouterConfig::default(), ttl_ms };
        signals.index(&PartitionKey::default(), 16).unwrap()
    }

    fn found(index: &dyn PrefixIndex, hashes: &[u64], now_ms: f64) -> Vec<(u64, f64, f64)> {
        let mut overlaps = Vec::new();
        index.overlaps(&partition(), hashes, now_ms, &mut overlaps);
        overlaps.iter().map(|overlap| (overlap.key.worker, overlap.device_blocks, overlap.cached_tokens)).collect()
    }

    #[test]
    fn a_row_holds_the_leading_blocks_of_what_was_routed_there() {
        let index = index(100.0);
        index.routed(WorkerKey::new(2, 0), &[10, 11, 12], 0.0);
        index.routed(WorkerKey::new(1, 0), &[10, 11, 13], 0.0);
        assert_eq!(found(&*index, &[10, 11, 12, 14], 1.0), [(1, 2.0, 32.0), (2, 3.0, 48.0)]);
        assert_eq!(found(&*index, &[10], 1.0), [(1, 1.0, 16.0), (2, 1.0, 16.0)]);
        assert_eq!(found(&*index, &[9, 11], 1.0), []);
        assert_eq!(found(&*index, &[], 1.0), []);
    }

    #[test]
    fn what_was_routed_counts_for_its_time_and_is_renewed() {
        let index = index(100.0);
        index.routed(WorkerKey::new(1, 0), &[10, 11], 0.0);
        index.routed(WorkerKey::new(1, 0), &[10], 60.0);
        assert_eq!(found(&*index, &[10, 11], 99.0), [(1, 2.0, 32.0)]);
        assert_eq!(found(&*index, &[10, 11], 100.0), [(1, 1.0, 16.0)]);
        index.routed(WorkerKey::new(2, 0), &[20], 120.0);
        assert_eq!(
            found(&*index, &[10, 11], 159.0),
            [(1, 1.0, 16.0)],
            "letting go of what is over keeps what was renewed"
        );
        assert_eq!(found(&*index, &[10, 11], 160.0), []);
    }

    #[test]
    fn a_worker_that_leaves_takes_along_what_it_held() {
        let index = index(100.0);
        index.routed(WorkerKey::new(1, 0), &[10], 0.0);
        index.routed(WorkerKey::new(1, 3), &[10], 0.0);
        index.routed(WorkerKey::new(2, 0), &[10], 0.0);
        index.removed(1);
        assert_eq!(found(&*index, &[10], 1.0), [(2, 1.0, 16.0)]);
    }
}
