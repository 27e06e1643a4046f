//! One rank's KV cache. A block is *private* to a sequence until it is full; then it is *shared* by its hash, and stays
//! after its last user as *idle* until its room is needed. The block that has been idle longest goes first, and of one
//! sequence's blocks the last goes idle first, so that a prefix is worn away from its end.

use std::collections::{BTreeMap, HashMap};

#[derive(Debug)]
pub(crate) struct Cache {
    capacity: u64,
    private: u64,
    shared: HashMap<u64, Shared>,
    /// Idle blocks by when they became so.
    idle: BTreeMap<u64, u64>,
    clock: u64,
    evicted: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Shared {
    users: u32,
    idle_since: u64,
}

/// What a sequence holds.
#[derive(Debug, Default)]
pub(crate) struct Holding {
    shared: Vec<u64>,
    private: u64,
}

impl Cache {
    pub(crate) fn new(capacity: u64) -> Self {
        Self { capacity, private: 0, shared: HashMap::new(), idle: BTreeMap::new(), clock: 0, evicted: Vec::new() }
    }

    /// Blocks that running sequences use.
    pub(crate) fn used(&self) -> u64 {
        self.private + (self.shared.len() - self.idle.len()) as u64
    }

    /// Takes a sequence in that will need `total` blocks at most and starts with those of `hashes`: how many of these
    /// are here, without a gap, and what it holds. None where it does not fit beside the running ones.
    pub(crate) fn admit(&mut self, hashes: &[u64], total: u64) -> Option<(usize, Holding)> {
        let hits = hashes.iter().take_while(|hash| self.shared.contains_key(hash)).count();
        let hit = hashes.get(..hits)?;
        let idle_hits = hit.iter().filter(|hash| self.shared.get(hash).is_some_and(|block| block.users == 0)).count();
        let private = total.saturating_sub(hits as u64);
        if self.used() + idle_hits as u64 + private > self.capacity {
            return None;
        }
        for hash in hit {
            self.pin(*hash);
        }
        self.private += private;
        while self.private + self.shared.len() as u64 > self.capacity && self.evict_oldest() {}
        Some((hits, Holding { shared: hit.to_vec(), private }))
    }

    /// One of the sequence's private blocks is full. Whether it is a block that was not here before; if it was, the
    /// sequence keeps its own.
    pub(crate) fn fill(&mut self, holding: &mut Holding, hash: u64) -> bool {
        if holding.private == 0 || self.shared.contains_key(&hash) {
            return false;
        }
        holding.private -= 1;
        self.private -= 1;
        holding.shared.push(hash);
        self.shared.insert(hash, Shared { users: 1, idle_since: 0 });
        true
    }

    pub(crate) fn release(&mut self, holding: Holding) {
        self.private -= holding.private;
        for hash in holding.shared.into_iter().rev() {
            self.clock += 1;
            let Some(block) = self.shared.get_mut(&hash) else { continue };
            block.users = block.users.saturating_sub(1);
            if block.users == 0 {
                block.idle_since = self.clock;
                self.idle.insert(self.clock, hash);
            }
        }
    }

    /// Forgets all idle blocks.
    pub(crate) fn clear_idle(&mut self) {
        while self.evict_oldest() {}
    }

    /// The blocks that were evicted since the last call.
    pub(crate) fn take_evicted(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.evicted)
    }

    fn pin(&mut self, hash: u64) {
        let Some(block) = self.shared.get_mut(&hash) else { return };
        if block.users == 0 {
            self.idle.remove(&block.idle_since);
        }
        block.users += 1;
    }

    fn evict_oldest(&mut self) -> bool {
        let Some((_, hash)) = self.idle.pop_first() else { return false };
        self.shared.remove(&hash);
        self.evicted.push(hash);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a sequence of the blocks `hashes` and one more to its end; its hits.
    fn run(cache: &mut Cache, hashes: &[u64]) -> usize {
        let (hits, mut holding) = cache.admit(hashes, hashes.len() as u64 + 1).unwrap();
        for hash in &hashes[hits..] {
            cache.fill(&mut holding, *hash);
        }
        cache.release(holding);
        assert_eq!(cache.used(), 0);
        hits
    }

    #[test]
    fn a_prefix_is_found_again_and_worn_away_from_its_end() {
        let mut cache = Cache::new(4);
        assert_eq!(run(&mut cache, &[1, 2, 3]), 0);
        assert_eq!(run(&mut cache, &[1, 2, 9]), 2, "block 3 makes room for block 9");
        assert_eq!(cache.take_evicted(), [3]);
        assert_eq!(run(&mut cache, &[7]), 0);
        assert_eq!(cache.take_evicted(), [9], "the last of the longest idle");
        assert_eq!(run(&mut cache, &[1, 2]), 2);
        cache.clear_idle();
        assert_eq!(run(&mut cache, &[1, 2]), 0);
    }

    #[test]
    fn what_runs_is_never_evicted_and_what_does_not_fit_waits() {
        let mut cache = Cache::new(4);
        let (_, mut holding) = cache.admit(&[1, 2], 3).unwrap();
        assert!(cache.fill(&mut holding, 1));
        assert!(cache.admit(&[1, 5], 3).is_none(), "one block is shared, two more do not fit");
        let (hits, second) = cache.admit(&[1], 2).unwrap();
        assert_eq!((hits, cache.used()), (1, 4));
        cache.release(holding);
        assert_eq!(cache.used(), 2, "block 1 has another user");
        cache.release(second);
        assert_eq!(cache.used(), 0);
    }

    #[test]
    fn of_two_equal_blocks_one_is_shared() {
        let mut cache = Cache::new(8);
        let (_, mut first) = cache.admit(&[1], 1).unwrap();
        let (_, mut second) = cache.admit(&[1], 1).unwrap();
        assert!(cache.fill(&mut first, 1));
        assert!(!cache.fill(&mut second, 1));
        cache.release(first);
        cache.release(second);
        assert_eq!((cache.used(), run(&mut cache, &[1])), (0, 1));
    }
}
