//! One worker's KV cache: blocks that requests share by id, and blocks that belong to one request.
//!
//! A shared block is *pinned* while a request that is admitted uses it, then *idle*: it stays until room is needed,
//! when the block that has been idle longest goes first. Of one request's blocks the last goes idle first, so a prefix
//! is worn away from its end. A private block goes with its request.

use rustc_hash::FxHashMap;

/// No slot.
const NONE: u32 = u32::MAX;

/// A KV cache of a fixed number of blocks.
#[derive(Debug)]
pub(crate) struct PrefixCache {
    capacity: u64,
    private: u64,
    idle: u64,
    slot_of: FxHashMap<u64, u32>,
    slots: Vec<Slot>,
    vacant: Vec<u32>,
    /// The idle block that goes first, and the one that goes last.
    oldest: u32,
    newest: u32,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    id: u64,
    users: u32,
    /// Neighbours among the idle blocks.
    older: u32,
    newer: u32,
}

impl PrefixCache {
    /// An empty cache of `capacity` blocks.
    #[must_use]
    pub(crate) fn new(capacity: u64) -> Self {
        Self {
            capacity,
            private: 0,
            idle: 0,
            slot_of: FxHashMap::default(),
            slots: Vec::new(),
            vacant: Vec::new(),
            oldest: NONE,
            newest: NONE,
        }
    }

    /// How many blocks it holds: pinned, idle and private.
    #[must_use]
    pub(crate) fn used(&self) -> u64 {
        self.slot_of.len() as u64 + self.private
    }

    /// How many blocks cannot be evicted: pinned and private.
    #[must_use]
    pub(crate) fn in_use(&self) -> u64 {
        self.used() - self.idle
    }

    /// How many of the first blocks it holds, without a gap.
    #[must_use]
    pub(crate) fn leading_run(&self, ids: &[u64]) -> u64 {
        ids.iter().take_while(|id| self.slot_of.contains_key(id)).count() as u64
    }

    /// Takes a request's blocks in, each id once: pins those that are there, evicts idle ones where room is needed, adds the rest.
    /// Answers the leading run as it was before; none, with nothing changed, where the blocks do not fit beside those
    /// in use.
    pub(crate) fn admit(&mut self, ids: &[u64], private: u64) -> Option<u64> {
        let (mut absent, mut idle) = (0, 0);
        for id in ids {
            match self.slot_of.get(id).and_then(|slot| self.slots.get(*slot as usize)) {
                None => absent += 1,
                Some(slot) => idle += u64::from(slot.users == 0),
            }
        }
        if self.in_use() + idle + absent + private > self.capacity {
            return None;
        }
        let hits = self.leading_run(ids);
        for id in ids {
            if let Some(&slot) = self.slot_of.get(id) {
                self.pin(slot);
            }
        }
        while self.used() + absent + private > self.capacity && self.evict() {}
        for id in ids {
            if !self.slot_of.contains_key(id) {
                self.insert(*id);
            }
        }
        self.private += private;
        Some(hits)
    }

    /// Lets a request's blocks go: the private ones at once, the shared ones to the idle. The arguments are those of
    /// its `admit`.
    pub(crate) fn release(&mut self, ids: &[u64], private: u64) {
        self.private = self.private.saturating_sub(private);
        for id in ids.iter().rev() {
            if let Some(&slot) = self.slot_of.get(id) {
                self.unpin(slot);
            }
        }
    }

    fn pin(&mut self, slot: u32) {
        let Some(entry) = self.slots.get_mut(slot as usize) else { return };
        entry.users += 1;
        if entry.users == 1 {
            self.unlink(slot);
        }
    }

    fn unpin(&mut self, slot: u32) {
        let newest = self.newest;
        let Some(entry) = self.slots.get_mut(slot as usize) else { return };
        if entry.users != 1 {
            entry.users = entry.users.saturating_sub(1);
            return;
        }
        entry.users = 0;
        (entry.older, entry.newer) = (newest, NONE);
        match self.slots.get_mut(newest as usize) {
            Some(newest) => newest.newer = slot,
            None => self.oldest = slot,
        }
        self.newest = slot;
        self.idle += 1;
    }

    fn unlink(&mut self, slot: u32) {
        let Some(&Slot { older, newer, .. }) = self.slots.get(slot as usize) else { return };
        match self.slots.get_mut(older as usize) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
        match self.slots.get_mut(newer as usize) {
            Some(newer) => newer.older = older,
            None => self.newest = older,
        }
        self.idle -= 1;
    }

    fn evict(&mut self) -> bool {
        let slot = self.oldest;
        let Some(&Slot { id, .. }) = self.slots.get(slot as usize) else { return false };
        self.unlink(slot);
        self.slot_of.remove(&id);
        self.vacant.push(slot);
        true
    }

    fn insert(&mut self, id: u64) {
        let entry = Slot { id, users: 1, older: NONE, newer: NONE };
        let slot = match self.vacant.pop() {
            Some(slot) => {
                if let Some(place) = self.slots.get_mut(slot as usize) {
                    *place = entry;
                }
                slot
            }
            None => {
                self.slots.push(entry);
                (self.slots.len() - 1) as u32
            }
        };
        self.slot_of.insert(id, slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hit_is_the_leading_run_alone() {
        let mut cache = PrefixCache::new(10);
        assert_eq!(cache.admit(&[1, 2, 3], 0), Some(0));
        assert_eq!(cache.leading_run(&[1, 2, 9, 3]), 2);
        assert_eq!(cache.leading_run(&[9, 1, 2]), 0, "blocks after a miss are no hits");
        assert_eq!(cache.admit(&[1, 2, 9, 3], 0), Some(2));
        assert_eq!(cache.used(), 4, "the block after the miss is shared all the same");
    }

    #[test]
    fn the_longest_idle_block_goes_first_and_a_prefix_from_its_end() {
        let mut cache = PrefixCache::new(4);
        cache.admit(&[1, 2], 0);
        cache.admit(&[3, 4], 0);
        cache.release(&[3, 4], 0);
        cache.release(&[1, 2], 0);
        assert_eq!(cache.admit(&[5], 0), Some(0));
        assert_eq!(
            (cache.leading_run(&[3, 4]), cache.leading_run(&[1, 2])),
            (1, 2),
            "4, the end of the older prefix, went"
        );
        assert_eq!(cache.admit(&[6, 7], 0), Some(0));
        assert_eq!((cache.leading_run(&[3]), cache.leading_run(&[1, 2])), (0, 1));
    }

    #[test]
    fn use_makes_a_block_young_again() {
        let mut cache = PrefixCache::new(2);
        cache.admit(&[1], 0);
        cache.admit(&[2], 0);
        cache.release(&[1], 0);
        cache.release(&[2], 0);
        assert_eq!(cache.admit(&[1], 0), Some(1));
        cache.release(&[1], 0);
        cache.admit(&[3], 0);
        assert_eq!((cache.leading_run(&[1]), cache.leading_run(&[2])), (1, 0));
    }

    #[test]
    fn blocks_in_use_are_never_evicted() {
        let mut cache = PrefixCache::new(4);
        assert_eq!(cache.admit(&[1, 2], 1), Some(0));
        assert_eq!(cache.admit(&[3, 4], 0), None, "one block is left");
        assert_eq!((cache.used(), cache.leading_run(&[1, 2])), (3, 2), "a refusal changes nothing");
        assert_eq!(cache.admit(&[1, 2, 3], 0), Some(2), "shared blocks need no room of their own");
        cache.release(&[1, 2], 1);
        assert_eq!(cache.in_use(), 3, "the second request still pins 1 and 2");
        cache.release(&[1, 2, 3], 0);
        assert_eq!((cache.in_use(), cache.used()), (0, 3));
        assert_eq!(cache.admit(&[], 5), None);
        assert_eq!(cache.admit(&[], 4), Some(0));
        assert_eq!(cache.used(), 4);
    }

    #[test]
    fn an_idle_block_that_is_hit_does_not_count_as_room() {
        let mut cache = PrefixCache::new(3);
        cache.admit(&[1, 2, 3], 0);
        cache.release(&[1, 2, 3], 0);
        assert_eq!(cache.admit(&[1, 2], 2), None, "3 alone may go");
        assert_eq!(cache.admit(&[1, 2], 1), Some(2));
        assert_eq!(cache.leading_run(&[1, 2, 3]), 2);
    }

    /// Against a cache that is a plain list from oldest to newest.
    #[test]
    fn a_long_mix_agrees_with_a_list() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut cache = PrefixCache::new(40);
        let mut list: Vec<(u64, u32)> = Vec::new();
        let mut live: Vec<(Vec<u64>, u64)> = Vec::new();
        let mut private = 0;
        for _ in 0..20_000 {
            if rng.u64(0..2) == 0 && !live.is_empty() {
                let (ids, own) = live.swap_remove(rng.usize(0..live.len()));
                cache.release(&ids, own);
                private -= own;
                for id in ids.iter().rev() {
                    let at = list.iter().position(|(known, _)| known == id).unwrap();
                    let (id, users) = list.remove(at);
                    list.push((id, users - 1));
                }
            } else {
                let start = rng.u64(0..8) * 100;
                let ids: Vec<u64> = (start..start + rng.u64(0..12)).collect();
                let own = rng.u64(0..4);
                let known = |list: &[(u64, u32)], id: u64| list.iter().any(|(known, _)| *known == id);
                let hits = ids.iter().take_while(|id| known(&list, **id)).count() as u64;
                let mut after = list.clone();
                for entry in &mut after {
                    entry.1 += u32::from(ids.contains(&entry.0));
                }
                let absent: Vec<u64> = ids.iter().copied().filter(|id| !known(&list, *id)).collect();
                let mut fits = true;
                while (after.len() + absent.len()) as u64 + private + own > 40 {
                    let Some(at) = after.iter().position(|(_, users)| *users == 0) else {
                        fits = false;
                        break;
                    };
                    after.remove(at);
                }
                let admitted = cache.admit(&ids, own);
                assert_eq!(admitted, fits.then_some(hits));
                if fits {
                    after.extend(absent.iter().map(|id| (*id, 1)));
                    list = after;
                    private += own;
                    live.push((ids, own));
                }
            }
            assert_eq!(cache.used(), list.len() as u64 + private);
            assert_eq!(cache.in_use(), list.iter().filter(|(_, users)| *users > 0).count() as u64 + private);
            assert!(cache.used() <= 40);
        }
    }
}
