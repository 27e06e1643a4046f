//! Which rows hold which prefixes: as engines tell by KV events, or else as predicted from where prompts were routed.
//!
//! A block is known by the hash that stands for it and all blocks before it. A row holds a prefix without a gap: caches
//! wear prefixes away from their end, and predictions are renewed from their start. So a row's part of a prompt is found by a
//! few looks, not by one for each block.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use dynamo_kv_router::protocols::{
    ExternalSequenceBlockHash, KvCacheEventData, KvCacheStoreData, RouterEvent, StorageTier, compute_next_seq_hash,
};
use pointsman_admission::WorkerKey;
use rustc_hash::{FxHashMap, FxHashSet};

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
    rows: BTreeMap<WorkerKey, Row>,
    /// How many blocks all rows hold.
    held: usize,
    /// Workers that publish events, for which nothing is predicted.
    publishing: FxHashSet<u64>,
    predictions: VecDeque<Prediction>,
}

#[derive(Debug, Default)]
struct Row {
    blocks: FxHashMap<u64, Held>,
    /// What the row's engine calls the blocks that it told of.
    names: FxHashMap<ExternalSequenceBlockHash, u64>,
}

/// How a row holds a block.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// Where its engine says that the block is.
    tiers: Tiers,
    /// Until when it is predicted to be there.
    predicted_until: f64,
}

/// A prediction that is looked at when it is due.
#[derive(Clone, Copy, Debug)]
struct Prediction {
    row: WorkerKey,
    hash: u64,
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
        overlaps.extend(state.rows.iter().filter_map(|(key, row)| row.overlap(*key, block_hashes, now_ms)));
    }

    /// A prompt was routed to that row. Nothing is predicted of a worker that publishes events.
    pub fn routed(&self, row: WorkerKey, block_hashes: &[u64], now_ms: f64) {
        let mut state = self.write();
        if state.publishing.contains(&row.worker) {
            return;
        }
        let due = now_ms + self.settings.prediction_ttl_ms;
        // From its end on: the blocks that make room first are those that others stand on the least.
        for &hash in block_hashes.iter().rev() {
            let held = state.block(row, hash);
            let new = held.predicted_until == f64::NEG_INFINITY;
            held.predicted_until = due;
            if new {
                state.predictions.push_back(Prediction { row, hash, due });
            }
        }
        state.sweep(now_ms, self.settings.max_blocks);
    }

    /// A worker has gone, and with it all that it held.
    pub fn remove_worker(&self, worker: u64) {
        let mut state = self.write();
        state.publishing.remove(&worker);
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

    /// Takes over what an engine told; false where it stands on something that is not known here, where there is no room
    /// for it, or where its worker has gone.
    pub(crate) fn apply(&self, event: RouterEvent) -> bool {
        let row = WorkerKey::new(event.worker_id, event.event.dp_rank);
        let tier = Tiers::of(event.storage_tier);
        let mut state = self.write();
        if !state.publishing.contains(&row.worker) {
            return false;
        }
        match event.event.data {
            KvCacheEventData::Stored(stored) => return state.store(row, &stored, tier, self.settings.max_blocks),
            KvCacheEventData::Removed(removed) => {
                for name in &removed.block_hashes {
                    state.remove(row, name, tier);
                }
            }
            KvCacheEventData::Cleared => state.clear(row),
        }
        true
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
    /// A row's block; put there where it is not.
    fn block(&mut self, row: WorkerKey, hash: u64) -> &mut Held {
        let held = &mut self.held;
        self.rows.entry(row).or_default().blocks.entry(hash).or_insert_with(|| {
            *held += 1;
            Held { tiers: Tiers::NONE, predicted_until: f64::NEG_INFINITY }
        })
    }

    /// Changes how a row holds a block, and drops the block where it does not any more. What is left of its tiers.
    fn change(&mut self, row: WorkerKey, hash: u64, change: impl FnOnce(&mut Held)) -> Tiers {
        let Some(blocks) = self.rows.get_mut(&row).map(|row| &mut row.blocks) else { return Tiers::NONE };
        let Some(held) = blocks.get_mut(&hash) else { return Tiers::NONE };
        change(held);
        let Held { tiers, predicted_until } = *held;
        if tiers == Tiers::NONE && predicted_until == f64::NEG_INFINITY {
            blocks.remove(&hash);
            self.held -= 1;
        }
        tiers
    }

    fn store(&mut self, row: WorkerKey, stored: &KvCacheStoreData, tier: Tiers, max_blocks: usize) -> bool {
        let names = &self.rows.entry(row).or_default().names;
        let mut parent = match &stored.parent_hash {
            None => None,
            Some(name) => match names.get(name) {
                None => return false,
                known => known.copied(),
            },
        };
        for block in &stored.blocks {
            if self.held >= max_blocks {
                // Predictions make room for what is known.
                self.sweep(f64::NEG_INFINITY, max_blocks.saturating_sub(1));
                if self.held >= max_blocks {
                    return false;
                }
            }
            let local = block.tokens_hash;
            let hash = parent.map_or(local.0, |parent| compute_next_seq_hash(parent, local));
            let held = self.block(row, hash);
            held.tiers = held.tiers.with(tier);
            self.rows.entry(row).or_default().names.insert(block.block_hash, hash);
            parent = Some(hash);
        }
        true
    }

    fn remove(&mut self, row: WorkerKey, name: &ExternalSequenceBlockHash, tier: Tiers) {
        let Some(hash) = self.rows.get(&row).and_then(|row| row.names.get(name)).copied() else { return };
        let left = self.change(row, hash, |held| held.tiers = held.tiers.without(tier));
        if let Some(row) = self.rows.get_mut(&row).filter(|_| left == Tiers::NONE) {
            row.names.remove(name);
        }
    }

    fn clear(&mut self, row: WorkerKey) {
        let names = self.rows.get_mut(&row).map(|row| std::mem::take(&mut row.names)).unwrap_or_default();
        for hash in names.into_values() {
            self.change(row, hash, |held| held.tiers = Tiers::NONE);
        }
    }

    fn forget(&mut self, worker: u64) {
        let held = &mut self.held;
        self.rows.retain(|key, row| {
            let stays = key.worker != worker;
            *held -= if stays { 0 } else { row.blocks.len() };
            stays
        });
        self.predictions.retain(|prediction| prediction.row.worker != worker);
    }

    /// Drops predictions that have expired, and others while there are too many blocks. One that was renewed is looked at
    /// again when it is due anew.
    fn sweep(&mut self, now_ms: f64, max_blocks: usize) {
        while let Some(&Prediction { row, hash, due }) = self.predictions.front() {
            if due > now_ms && self.held <= max_blocks {
                return;
            }
            self.predictions.pop_front();
            let held = self.rows.get(&row).and_then(|row| row.blocks.get(&hash));
            match held.map(|held| held.predicted_until) {
                Some(until) if until > due => self.predictions.push_back(Prediction { row, hash, due: until }),
                _ => _ = self.change(row, hash, |held| held.predicted_until = f64::NEG_INFINITY),
            }
        }
    }
}

impl Row {
    /// What it holds of a prompt; none where that is nothing.
    fn overlap(&self, key: WorkerKey, hashes: &[u64], now_ms: f64) -> Option<PrefixOverlap> {
        let in_tier = |tier: Tiers| move |held: &Held| held.tiers.has(tier);
        let on_device = |held: &Held| held.tiers.has(Tiers::DEVICE) || held.predicted_until > now_ms;
        let device = self.run(hashes, on_device);
        let hashes = hashes.get(device..)?;
        let host = self.run(hashes, in_tier(Tiers::HOST));
        let hashes = hashes.get(host..)?;
        let disk = self.run(hashes, in_tier(Tiers::DISK));
        let [device_blocks, host_blocks, disk_blocks] = [device, host, disk].map(|blocks| blocks as u32);
        (device + host + disk > 0).then_some(PrefixOverlap { key, device_blocks, host_blocks, disk_blocks })
    }

    /// How many of the leading blocks are held so: twice as many looked at each time, then halves of what is left open.
    fn run(&self, hashes: &[u64], holds: impl Fn(&Held) -> bool) -> usize {
        let holds = |hash: &u64| self.blocks.get(hash).is_some_and(&holds);
        let (mut run, mut step) = (0, 1);
        while hashes.get(run + step - 1).is_some_and(holds) {
            run += step;
            step *= 2;
        }
        let open = hashes.get(run..hashes.len().min(run + step - 1)).unwrap_or_default();
        run + open.partition_point(holds)
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

    /// An index that listens to both workers.
    fn listening(max_blocks: usize) -> PrefixIndex {
        let index = index(max_blocks);
        index.publishes(A.worker);
        index.publishes(B.worker);
        index
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
        assert_eq!(at(&index, &[4, 1], 60.0), [], "a prefix begins with its first block");
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
        let index = listening(100);
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
        let index = listening(100);
        assert!(!index.apply(store(A, StorageTier::Device, Some(1), &[2])));
        index.apply(store(B, StorageTier::Device, None, &[1]));
        assert!(!index.apply(store(A, StorageTier::Device, Some(1), &[2])), "each row's engine has names of its own");
        assert_eq!(index.blocks(), 1);
    }

    #[test]
    fn a_run_is_found_whatever_its_length() {
        let hashes: Vec<u64> = (0..70).collect();
        for held in 0..=70 {
            let index = index(1_000);
            index.routed(A, &hashes[..held], 0.0);
            for asked in [0, 1, held, 70] {
                let wanted = held.min(asked) as u32;
                let wanted = if wanted == 0 { Vec::new() } else { vec![(A, [wanted, 0, 0])] };
                assert_eq!(at(&index, &hashes[..asked], 1.0), wanted);
            }
        }
    }

    #[test]
    fn events_beyond_the_bound_are_dropped() {
        let index = listening(2);
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
        assert!(!index.apply(store(A, StorageTier::Device, None, &[1])), "what comes late is of nobody");
        assert_eq!(at(&index, &chain(&[1]), 0.0), [(B, [1, 0, 0])]);
        index.remove_worker(B.worker);
        assert_eq!(index.blocks(), 0);
        index.routed(A, &chain(&[1]), 0.0);
        assert_eq!(index.blocks(), 1, "a worker that comes back without events is predicted again");
    }
}
