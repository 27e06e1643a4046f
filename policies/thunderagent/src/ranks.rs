//! What the live data-parallel ranks can hold, and what is charged to each.

use std::collections::{BTreeMap, BTreeSet};

use pointsman_sdk::ClassifierWorker;

/// A live rank.
#[derive(Clone, Copy)]
pub(crate) struct Rank {
    /// Its place in the order of (worker id, rank).
    pub(crate) order: usize,
    /// Tokens that it holds; none where it does not tell.
    pub(crate) capacity: Option<u64>,
}

/// The live ranks by number, and the charges by number, also of ranks that are gone.
#[derive(Default)]
pub(crate) struct Ranks {
    live: BTreeMap<u32, Rank>,
    charged: BTreeMap<u32, u64>,
    /// The live ranks of known capacity: charge, place, number.
    least: BTreeSet<(u64, usize, u32)>,
    /// The largest of their capacities.
    largest: u64,
}

impl Ranks {
    /// These are all ranks now.
    pub(crate) fn set(&mut self, workers: &[ClassifierWorker], block_size: u32) {
        let rank = |(order, worker): (usize, &ClassifierWorker)| {
            let capacity = worker.total_kv_blocks.map(|blocks| u64::from(blocks) * u64::from(block_size));
            (worker.number, Rank { order, capacity })
        };
        self.live = workers.iter().enumerate().map(rank).collect();
        self.sort();
    }

    /// Counts all charges anew.
    pub(crate) fn recount(&mut self, charges: impl Iterator<Item = (u32, u64)>) {
        self.charged.clear();
        for (number, tokens) in charges {
            *self.charged.entry(number).or_default() += tokens;
        }
        self.sort();
    }

    fn sort(&mut self) {
        self.largest = self.sized().map(|(.., capacity)| capacity).max().unwrap_or(0);
        let charged = &self.charged;
        let least = self.live.iter().filter(|(_, rank)| rank.capacity.is_some());
        self.least =
            least.map(|(number, rank)| (charged.get(number).copied().unwrap_or(0), rank.order, *number)).collect();
    }

    /// Charges the rank, or gives a charge back.
    pub(crate) fn charge(&mut self, number: u32, change: impl FnOnce(u64) -> u64) {
        let before = self.used(number);
        let after = change(before);
        if after == 0 {
            self.charged.remove(&number);
        } else {
            self.charged.insert(number, after);
        }
        if let Some(Rank { order, capacity: Some(_) }) = self.live.get(&number) {
            self.least.remove(&(before, *order, number));
            self.least.insert((after, *order, number));
        }
    }

    /// Tokens charged to the rank.
    pub(crate) fn used(&self, number: u32) -> u64 {
        self.charged.get(&number).copied().unwrap_or(0)
    }

    pub(crate) fn is_live(&self, number: u32) -> bool {
        self.live.contains_key(&number)
    }

    pub(crate) fn none_live(&self) -> bool {
        self.live.is_empty()
    }

    /// What the live rank holds, where it tells.
    pub(crate) fn capacity(&self, number: u32) -> Option<u64> {
        self.live.get(&number)?.capacity
    }

    /// Whether any live rank tells what it holds.
    pub(crate) fn any_sized(&self) -> bool {
        !self.least.is_empty()
    }

    /// The live ranks that tell what they hold: number, place, capacity; in no order that matters.
    pub(crate) fn sized(&self) -> impl Iterator<Item = (u32, usize, u64)> {
        self.live.iter().filter_map(|(number, rank)| Some((*number, rank.order, rank.capacity?)))
    }

    /// The rank with the least charge, then the first, that still holds so many tokens.
    pub(crate) fn with_room(&self, tokens: u64) -> Option<u32> {
        let fits = |(used, _, number): &&(u64, usize, u32)| {
            self.capacity(*number)
                .is_some_and(|capacity| capacity.checked_sub(*used).is_some_and(|room| room >= tokens))
        };
        let possible = self.least.iter().take_while(|(used, ..)| used.saturating_add(tokens) <= self.largest);
        possible.into_iter().find(fits).map(|(.., number)| *number)
    }
}
