//! Which prompt blocks the active requests of each row hold: blocks that requests share count once.
//!
//! A block hash stands for its block and all blocks before it, so a row that holds block `i` of a prompt holds every
//! block before it.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// A row, by number, and how many of its active requests hold the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holder {
    number: u32,
    requests: u32,
}

#[derive(Debug, Default)]
pub(crate) struct ActiveBlocks {
    holders: FxHashMap<u64, SmallVec<[Holder; 2]>>,
}

impl ActiveBlocks {
    /// Adds one request of a row; answers how many blocks the row did not hold before.
    pub(crate) fn acquire(&mut self, number: u32, hashes: &[u64]) -> u64 {
        let mut added = 0;
        for hash in hashes {
            let holders = self.holders.entry(*hash).or_default();
            match holders.iter_mut().find(|holder| holder.number == number) {
                Some(holder) => holder.requests += 1,
                None => {
                    holders.push(Holder { number, requests: 1 });
                    added += 1;
                }
            }
        }
        added
    }

    /// Takes one request of a row back; answers how many blocks the row holds no more.
    pub(crate) fn release(&mut self, number: u32, hashes: &[u64]) -> u64 {
        let mut removed = 0;
        for hash in hashes {
            let Some(holders) = self.holders.get_mut(hash) else { continue };
            let Some(place) = holders.iter().position(|holder| holder.number == number) else { continue };
            let Some(holder) = holders.get_mut(place) else { continue };
            holder.requests -= 1;
            if holder.requests == 0 {
                holders.swap_remove(place);
                removed += 1;
            }
            if holders.is_empty() {
                self.holders.remove(hash);
            }
        }
        removed
    }

    /// Calls `shared(number, blocks)` for each row that holds a leading run of `hashes`, with the run's length.
    pub(crate) fn leading_runs(&self, hashes: &[u64], mut shared: impl FnMut(u32, u64)) {
        let mut previous: Option<&SmallVec<[Holder; 2]>> = None;
        for (depth, hash) in hashes.iter().enumerate() {
            let here = self.holders.get(hash);
            if let Some(before) = previous {
                // Holders only drop out as the run grows; equally many are the same ones.
                if here.is_none_or(|here| here.len() != before.len()) {
                    for holder in before {
                        if here.is_none_or(|here| here.iter().all(|other| other.number != holder.number)) {
                            shared(holder.number, depth as u64);
                        }
                    }
                }
            }
            previous = here;
            if here.is_none() {
                return;
            }
        }
        let Some(last) = previous else { return };
        for holder in last {
            shared(holder.number, hashes.len() as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(blocks: &ActiveBlocks, hashes: &[u64]) -> Vec<(u32, u64)> {
        let mut found = Vec::new();
        blocks.leading_runs(hashes, |number, length| found.push((number, length)));
        found.sort_unstable();
        found
    }

    #[test]
    fn shared_blocks_count_once_a_row_and_go_with_their_last_request() {
        let mut blocks = ActiveBlocks::default();
        assert_eq!(blocks.acquire(1, &[10, 11, 12]), 3);
        assert_eq!(blocks.acquire(1, &[10, 11, 13]), 1);
        assert_eq!(blocks.acquire(2, &[10]), 1);
        assert_eq!(blocks.release(1, &[10, 11, 12]), 1);
        assert_eq!(blocks.release(1, &[10, 11, 13]), 3);
        assert_eq!(blocks.release(2, &[10]), 1);
        assert!(blocks.holders.is_empty(), "nothing is kept for a prompt that nobody holds");
    }

    #[test]
    fn a_run_ends_where_its_row_drops_out() {
        let mut blocks = ActiveBlocks::default();
        blocks.acquire(1, &[10, 11, 12]);
        blocks.acquire(2, &[10, 11, 13, 14]);
        blocks.acquire(3, &[10]);
        assert_eq!(runs(&blocks, &[10, 11, 13, 14]), [(1, 2), (2, 4), (3, 1)]);
        assert_eq!(runs(&blocks, &[10, 11, 12, 15]), [(1, 3), (2, 2), (3, 1)]);
        assert_eq!(runs(&blocks, &[99, 11]), []);
        assert_eq!(runs(&blocks, &[]), []);
    }
}
