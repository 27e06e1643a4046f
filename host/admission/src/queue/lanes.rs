//! The lanes of one class.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::entry::{Lane, Order};
use crate::WorkerKey;

/// The waiting requests of one class, in order. No lane is empty, and `heads` holds the first request of each lane but
/// for the parked ones: those whose first request may not go, and for which nothing has changed since.
#[derive(Default)]
pub(super) struct Lanes {
    lanes: FxHashMap<Lane, BTreeSet<Order>>,
    heads: BTreeSet<(Order, Lane)>,
}

impl Lanes {
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// The first request of all lanes that are not parked.
    pub(super) fn head(&self) -> Option<(Order, Lane)> {
        self.heads.first().copied()
    }

    pub(super) fn insert(&mut self, lane: Lane, order: Order) {
        self.change(lane, |waiting| waiting.insert(order));
    }

    pub(super) fn remove(&mut self, lane: Lane, order: Order) {
        self.change(lane, |waiting| waiting.remove(&order));
    }

    /// Changes a lane. A new first request ends its parking.
    fn change(&mut self, lane: Lane, change: impl FnOnce(&mut BTreeSet<Order>) -> bool) {
        let waiting = self.lanes.entry(lane).or_default();
        let before = waiting.first().copied();
        change(waiting);
        let after = waiting.first().copied();
        if before == after {
            return;
        }
        if let Some(before) = before {
            self.heads.remove(&(before, lane));
        }
        match after {
            Some(after) => _ = self.heads.insert((after, lane)),
            None => _ = self.lanes.remove(&lane),
        }
    }

    /// Sets the lane of that head aside.
    pub(super) fn park(&mut self, head: (Order, Lane)) {
        self.heads.remove(&head);
    }

    /// Ends the parking of the lanes that a row may serve.
    pub(super) fn recheck(&mut self, row: WorkerKey) {
        for lane in [Lane::Shared, Lane::Worker(row.worker), Lane::Rank(row)] {
            let first = self.lanes.get(&lane).and_then(BTreeSet::first);
            self.heads.extend(first.map(|first| (*first, lane)));
        }
    }

    /// Ends the parking of every lane.
    pub(super) fn recheck_all(&mut self) {
        let firsts = self.lanes.iter().filter_map(|(lane, waiting)| Some((*waiting.first()?, *lane)));
        self.heads.extend(firsts);
    }
}
