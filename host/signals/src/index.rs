//! Which rows hold which prefixes: as engines tell by KV events, or else as predicted from where prompts were routed.
//!
//! A block is known by the hash that stands for it and all blocks before it, so a prefix is a run of hashes, and the index
//! a map from a hash to the rows that hold it.

use std::collections::VecDeque;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use dynamo_kv_router::protocols::{
    ExternalSequenceBlockHash, KvCacheEventData, KvCacheStoreData, RouterEvent, StorageTier, compute_next_seq_hash,
};
use pointsman_admission::WorkerKey;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// How long predictions hold, and how much the index holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IndexSettings {
    /// Milliseconds that a prompt is taken to stay where it was routed, counted from the last time.
    pub prediction_ttl_ms: f64,
    /// Blocks at most, each counted once for each row that holds it. The predictions that are looked at first make room
    /// for others; events beyond the bound are dropped.
    pub max_blocks: usize,
}

impl Default for IndexSettings {
    fn default() -> Self {
        Self { prediction_ttl_ms: 120_000.0, max_blocks: 4_000_000 }
    }
}

/// The prefix of one prompt that one row holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixOverlap {
    /// The row.
    pub key: WorkerKey,
    /// Blocks on the device, or predicted.
    pub device_blocks: u32,
    /// Blocks in host memory beyond the device's.
    pub host_blocks: u32,
    /// Blocks on disk, or further away, beyond the host's.
    pub disk_blocks: u32,
}

/// The prefixes that the rows of one partition hold.
#[derive(Debug, Default)]
pub struct PrefixIndex {
    settings: IndexSettings,
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    blocks: FxHashMap<u64, Holders>,
    /// How many holders all blocks have.
    held: usize,
    /// What each row's engine calls the blocks that it told of.
    engines: FxHashMap<WorkerKey, FxHashMap<ExternalSequenceBlockHash, u64>>,
    /// Workers that publish events, for which nothing is predicted.
    publishing: FxHashSet<u64>,
    predictions: VecDeque<Prediction>,
}

/// The rows that hold a block, sorted.
type Holders = SmallVec<[Holder; 1]>;

#[derive(Clone, Copy, Debug)]
struct Holder {
    row: WorkerKey,
    /// Where its engine says that it holds the block.
    tiers: Tiers,
    /// Until when it is predicted to.
    predicted_until: f64,
}

/// A prediction that is looked at when it is due.
#[derive(Clone, Copy, Debug)]
struct Prediction {
    hash: u64,
    row: WorkerKey,
    due: f64,
}

/// A set of tiers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tiers(u8);

impl Tiers {
    const NONE: Self = Self(0);
    const DEVICE: Self = Self(1);
    const HOST: Self = Self(2);
    const DISK: Self = Self(4);

    const fn of(tier: StorageTier) -> Self {
        match tier {
            StorageTier::Device => Self::DEVICE,
            StorageTier::HostPinned => Self::HOST,
            StorageTier::Disk | StorageTier::External => Self::DISK,
        }
    }

    const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl PrefixIndex {
    /// An index of nothing yet.
    #[must_use]
    pub fn new(settings: IndexSettings) -> Self {
        Self { settings, state: RwLock::default() }
    }

    /// Fills `overlaps` with what each row holds of a prompt, sorted by row, each row once; rows that hold nothing are
    /// left out.
    pub fn overlaps(&self, block_hashes: &[u64], now_ms: f64, overlaps: &mut Vec<PrefixOverlap>) {
        overlaps.clear();
        let state = self.read();
        let Some((first, rest)) = block_hashes.split_first() else { return };
        let Some(holders) = state.blocks.get(first) else { return };
        let mut walking: Vec<PrefixOverlap> = holders
            .iter()
            .filter_map(|holder| holder.extend(PrefixOverlap { key: holder.row, ..PrefixOverlap::default() }, now_ms))
            .collect();
        for hash in rest {
            if walking.is_empty() {
                break;
            }
            let mut holders = state.blocks.get(hash).map_or(&[][..], |holders| holders).iter().peekable();
            walking.retain_mut(|overlap| {
                while holders.next_if(|holder| holder.row < overlap.key).is_some() {}
                let further = holders.next_if(|holder| holder.row == overlap.key);
                match further.and_then(|holder| holder.extend(*overlap, now_ms)) {
                    Some(further) => *overlap = further,
                    None => overlaps.push(*overlap),
                }
                further.is_some()
            });
        }
        drop(state);
        overlaps.append(&mut walking);
        overlaps.sort_unstable_by_key(|overlap| overlap.key);
        overlaps.dedup_by_key(|overlap| overlap.key);
    }

    /// A prompt was routed to that row. Nothing is predicted of a worker that publishes events.
    pub fn routed(&self, row: WorkerKey, block_hashes: &[u64], now_ms: f64) {
        let mut state = self.write();
        if state.publishing.contains(&row.worker) {
            return;
        }
        let until = now_ms + self.settings.prediction_ttl_ms;
        // From its end on: the blocks that make room first are those that others stand on the least.
        for &hash in block_hashes.iter().rev() {
            let holder = state.holder(hash, row);
            let new = holder.predicted_until == f64::NEG_INFINITY;
            holder.predicted_until = until;
            if new {
                state.predictions.push_back(Prediction { hash, row, due: until });
            }
        }
        state.sweep(now_ms, self.settings.max_blocks);
    }

    /// A worker has gone, and with it all that it held.
    pub fn remove_worker(&self, worker: u64) {
        let mut state = self.write();
        state.publishing.remove(&worker);
        state.engines.retain(|row, _| row.worker != worker);
        state.forget(worker);
    }

    /// How many blocks it holds, each counted once for each row that holds it.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.read().held
    }

    /// From now on the worker tells by events what it holds.
    pub(crate) fn publishes(&self, worker: u64) {
        let mut state = self.write();
        if state.publishing.insert(worker) {
            state.forget(worker);
        }
    }

    /// Takes over what an engine told; false where it stands on something that is not known here.
    pub(crate) fn apply(&self, event: RouterEvent) -> bool {
        let row = WorkerKey::new(event.worker_id, event.event.dp_rank);
        let tier = Tiers::of(event.storage_tier);
        let mut state = self.write();
        match event.event.data {
            KvCacheEventData::Stored(stored) => state.store(row, &stored, tier, self.settings.max_blocks),
            KvCacheEventData::Removed(removed) => {
                for hash in &removed.block_hashes {
                    state.remove(row, hash, tier);
                }
                true
            }
            KvCacheEventData::Cleared => {
                state.clear(row);
                true
            }
        }
    }

    /// What the row's engine holds is not known any more.
    pub(crate) fn clear(&self, row: WorkerKey) {
        self.write().clear(row);
    }

    /// No change is left half-done by a panic: the lock is as good as new.
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The row among the block's holders; put there where it is not.
    fn holder(&mut self, hash: u64, row: WorkerKey) -> &mut Holder {
        let holders = self.blocks.entry(hash).or_default();
        let at = holders.binary_search_by_key(&row, |holder| holder.row).unwrap_or_else(|at| {
            holders.insert(at, Holder { row, tiers: Tiers::NONE, predicted_until: f64::NEG_INFINITY });
            self.held += 1;
            at
        });
        &mut holders[at]
    }

    /// Changes a holder, and drops it where nothing is left of it.
    fn change(&mut self, hash: u64, row: WorkerKey, change: impl FnOnce(&mut Holder)) {
        let Some(holders) = self.blocks.get_mut(&hash) else { return };
        let Ok(at) = holders.binary_search_by_key(&row, |holder| holder.row) else { return };
        let Some(holder) = holders.get_mut(at) else { return };
        change(holder);
        if holder.tiers == Tiers::NONE && holder.predicted_until == f64::NEG_INFINITY {
            holders.remove(at);
            self.held -= 1;
        }
        if holders.is_empty() {
            self.blocks.remove(&hash);
        }
    }

    fn store(&mut self, row: WorkerKey, stored: &KvCacheStoreData, tier: Tiers, max_blocks: usize) -> bool {
        let names = self.engines.entry(row).or_default();
        let mut parent = match &stored.parent_hash {
            None => None,
            Some(name) => match names.get(name) {
                None => return false,
                known => known.copied(),
            },
        };
        for block in &stored.blocks {
            if self.held >= max_blocks {
                return false;
            }
            let local = block.tokens_hash;
            let hash = parent.map_or(local.0, |parent| compute_next_seq_hash(parent, local));
            self.engines.entry(row).or_default().insert(block.block_hash, hash);
            let holder = self.holder(hash, row);
            holder.tiers = holder.tiers.with(tier);
            parent = Some(hash);
        }
        true
    }

    fn remove(&mut self, row: WorkerKey, name: &ExternalSequenceBlockHash, tier: Tiers) {
        let Some(hash) = self.engines.get(&row).and_then(|names| names.get(name)).copied() else { return };
        let mut left = Tiers::NONE;
        self.change(hash, row, |holder| {
            holder.tiers = holder.tiers.without(tier);
            left = holder.tiers;
        });
        if let Some(names) = self.engines.get_mut(&row).filter(|_| left == Tiers::NONE) {
            names.remove(name);
        }
    }

    fn clear(&mut self, row: WorkerKey) {
        for hash in self.engines.remove(&row).unwrap_or_default().into_values() {
            self.change(hash, row, |holder| holder.tiers = Tiers::NONE);
        }
    }

    fn forget(&mut self, worker: u64) {
        let held = &mut self.held;
        self.blocks.retain(|_, holders| {
            let before = holders.len();
            holders.retain(|holder| holder.row.worker != worker);
            *held -= before - holders.len();
            !holders.is_empty()
        });
        self.predictions.retain(|prediction| prediction.row.worker != worker);
    }

    /// Drops predictions that have expired, and others while there are too many blocks. One that was renewed is looked at
    /// again when it is due anew.
    fn sweep(&mut self, now_ms: f64, max_blocks: usize) {
        while let Some(&Prediction { hash, row, due }) = self.predictions.front() {
            if due > now_ms && self.held <= max_blocks {
                return;
            }
            self.predictions.pop_front();
            let holders = self.blocks.get(&hash).map_or(&[][..], |holders| holders);
            let until = holders.iter().find(|holder| holder.row == row).map(|holder| holder.predicted_until);
            match until {
                Some(until) if until > due => self.predictions.push_back(Prediction { hash, row, due: until }),
                _ => self.change(hash, row, |holder| holder.predicted_until = f64::NEG_INFINITY),
            }
        }
    }
}

impl Holder {
    /// The overlap with this block on top; none where the row does not hold it in a tier that goes on from there.
    fn extend(&self, overlap: PrefixOverlap, now_ms: f64) -> Option<PrefixOverlap> {
        let PrefixOverlap { device_blocks, host_blocks, disk_blocks, .. } = overlap;
        let device = self.tiers.has(Tiers::DEVICE) || self.predicted_until > now_ms;
        if device && host_blocks + disk_blocks == 0 {
            Some(PrefixOverlap { device_blocks: device_blocks + 1, ..overlap })
        } else if self.tiers.has(Tiers::HOST) && disk_blocks == 0 {
            Some(PrefixOverlap { host_blocks: host_blocks + 1, ..overlap })
        } else if self.tiers.has(Tiers::DISK) {
            Some(PrefixOverlap { disk_blocks: disk_blocks + 1, ..overlap })
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dynamo_kv_router::protocols::{KvCacheEvent, KvCacheRemoveData, KvCacheStoredBlockData, LocalBlockHash};

    const A: WorkerKey = WorkerKey::new(1, 0);
    const B: WorkerKey = WorkerKey::new(2, 0);

    fn index(max_blocks: usize) -> PrefixIndex {
        PrefixIndex::new(IndexSettings { prediction_ttl_ms: 100.0, max_blocks })
    }

    fn at(index: &PrefixIndex, hashes: &[u64], now_ms: f64) -> Vec<(WorkerKey, [u32; 3])> {
        let mut overlaps = Vec::new();
        index.overlaps(hashes, now_ms, &mut overlaps);
        overlaps.iter().map(|o| (o.key, [o.device_blocks, o.host_blocks, o.disk_blocks])).collect()
    }

    fn event(row: WorkerKey, tier: StorageTier, data: KvCacheEventData) -> RouterEvent {
        RouterEvent::with_storage_tier(row.worker, KvCacheEvent { event_id: 0, data, dp_rank: row.rank }, tier)
    }

    /// Blocks named 100 + their tokens' hash.
    fn store(row: WorkerKey, tier: StorageTier, parent: Option<u64>, locals: &[u64]) -> RouterEvent {
        let blocks = locals.iter().map(|&local| KvCacheStoredBlockData {
            block_hash: ExternalSequenceBlockHash(100 + local),
            tokens_hash: LocalBlockHash(local),
            mm_extra_info: None,
        });
        let parent_hash = parent.map(|local| ExternalSequenceBlockHash(100 + local));
        let data = KvCacheStoreData { parent_hash, start_position: None, blocks: blocks.collect() };
        event(row, tier, KvCacheEventData::Stored(data))
    }

    fn remove(row: WorkerKey, tier: StorageTier, locals: &[u64]) -> RouterEvent {
        let block_hashes = locals.iter().map(|local| ExternalSequenceBlockHash(100 + local)).collect();
        event(row, tier, KvCacheEventData::Removed(KvCacheRemoveData { block_hashes }))
    }

    fn chain(locals: &[u64]) -> Vec<u64> {
        let locals: Vec<_> = locals.iter().copied().map(LocalBlockHash).collect();
        dynamo_kv_router::protocols::compute_seq_hash_for_block(&locals)
    }

    #[test]
    fn predictions_are_the_longest_common_prefix_of_each_row_and_expire() {
        let index = index(100);
        index.routed(B, &[1, 2, 3], 0.0);
        index.routed(A, &[1, 2, 9], 50.0);
        assert_eq!(at(&index, &[1, 2, 3, 4], 60.0), [(A, [2, 0, 0]), (B, [3, 0, 0])]);
        assert_eq!(at(&index, &[2, 3], 60.0), [(A, [1, 0, 0]), (B, [2, 0, 0])], "a hash stands for all before it");
        assert_eq!(at(&index, &[1, 2, 3], 100.0), [(A, [2, 0, 0])]);
        index.routed(A, &[1], 120.0);
        assert_eq!(index.blocks(), 3, "those that expired are gone");
        assert_eq!(at(&index, &[1, 2], 160.0), [(A, [1, 0, 0])], "block 1 was renewed, block 2 was not");
    }

    #[test]
    fn beyond_the_bound_old_predictions_go_and_prefixes_are_worn_away_from_their_end() {
        let index = index(4);
        index.routed(A, &[1, 2, 3], 0.0);
        index.routed(B, &[7, 8], 1.0);
        assert_eq!(index.blocks(), 4);
        assert_eq!(at(&index, &[1, 2, 3], 1.0), [(A, [2, 0, 0])]);
        index.routed(A, &[1, 2], 2.0);
        index.routed(B, &[4], 3.0);
        assert_eq!(at(&index, &[1, 2], 3.0), [(A, [2, 0, 0])], "what was renewed is spared");
        assert_eq!(at(&index, &[7, 8], 3.0), [(B, [1, 0, 0])]);
    }

    #[test]
    fn events_tell_what_a_row_holds_in_each_tier() {
        let index = index(100);
        assert!(index.apply(store(A, StorageTier::Device, None, &[1, 2])));
        assert!(index.apply(store(A, StorageTier::HostPinned, None, &[1, 2, 3])));
        assert!(index.apply(store(A, StorageTier::Disk, Some(3), &[4])));
        let prompt = chain(&[1, 2, 3, 4, 5]);
        assert_eq!(at(&index, &prompt, 0.0), [(A, [2, 1, 1])]);
        index.apply(remove(A, StorageTier::Device, &[2]));
        assert_eq!(at(&index, &prompt, 0.0), [(A, [1, 2, 1])]);
        index.apply(remove(A, StorageTier::HostPinned, &[1, 2, 3]));
        assert_eq!(at(&index, &prompt, 0.0), [(A, [1, 0, 0])]);
        index.apply(event(A, StorageTier::Device, KvCacheEventData::Cleared));
        assert_eq!((at(&index, &prompt, 0.0), index.blocks()), (Vec::new(), 0));
    }

    #[test]
    fn a_block_whose_parent_is_not_known_is_not_taken() {
        let index = index(100);
        assert!(!index.apply(store(A, StorageTier::Device, Some(1), &[2])));
        index.apply(store(B, StorageTier::Device, None, &[1]));
        assert!(!index.apply(store(A, StorageTier::Device, Some(1), &[2])), "each row's engine has names of its own");
        assert_eq!(index.blocks(), 1);
    }

    #[test]
    fn events_beyond_the_bound_are_dropped() {
        let index = index(2);
        assert!(!index.apply(store(A, StorageTier::Device, None, &[1, 2, 3])));
        assert_eq!(at(&index, &chain(&[1, 2, 3]), 0.0), [(A, [2, 0, 0])]);
    }

    #[test]
    fn a_worker_that_publishes_is_not_predicted_and_one_that_goes_leaves_nothing() {
        let index = index(100);
        index.routed(A, &chain(&[1, 2]), 0.0);
        index.publishes(A.worker);
        index.routed(A, &chain(&[1, 2]), 0.0);
        assert_eq!(index.blocks(), 0);
        index.apply(store(A, StorageTier::Device, None, &[1]));
        index.routed(B, &chain(&[1]), 0.0);
        index.remove_worker(A.worker);
        assert_eq!(at(&index, &chain(&[1]), 0.0), [(B, [1, 0, 0])]);
        index.remove_worker(B.worker);
        assert_eq!(index.blocks(), 0);
        index.routed(A, &chain(&[1]), 0.0);
        assert_eq!(index.blocks(), 1, "a worker that comes back without events is predicted again");
    }
}
