//! The lanes of one class.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::entry::{Lane, Order};
use crate::WorkerKey;

/// The waiting requests of one class. No lane is empty, and `heads` holds the first request of each lane that is not
/// parked.
#[derive(Default)]
pub(super) struct Lanes {
    lanes: FxHashMap<Lane, Waiting>,
    heads: BTreeSet<(Order, Lane)>,
}

#[derive(Default)]
struct Waiting {
    orders: BTreeSet<Order>,
    /// Its first request was found to have only busy workers, and none of them has changed since.
    parked: bool,
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
        self.change(lane, |orders| orders.insert(order));
    }

    pub(super) fn remove(&mut self, lane: Lane, order: Order) {
        self.change(lane, |orders| orders.remove(&order));
    }

    /// Changes a lane. A new first request is looked at afresh.
    fn change(&mut self, lane: Lane, change: impl FnOnce(&mut BTreeSet<Order>) -> bool) {
        let waiting = self.lanes.entry(lane).or_default();
        let before = waiting.orders.first().copied();
        change(&mut waiting.orders);
        let after = waiting.orders.first().copied();
        if before == after {
            return;
        }
        waiting.parked = false;
        if let Some(before) = before {
            self.heads.remove(&(before, lane));
        }
        match after {
            Some(after) => _ = self.heads.insert((after, lane)),
            None => _ = self.lanes.remove(&lane),
        }
    }

    /// Sets the lane of that head aside until it is rechecked.
    pub(super) fn park(&mut self, head: (Order, Lane)) {
        self.heads.remove(&head);
        if let Some(waiting) = self.lanes.get_mut(&head.1) {
            waiting.parked = true;
        }
    }

    /// Looks afresh at the lanes that a row may serve.
    pub(super) fn recheck(&mut self, row: WorkerKey) {
        for lane in [Lane::Shared, Lane::Worker(row.worker), Lane::Rank(row)] {
            if let Some(waiting) = self.lanes.get_mut(&lane) {
                unpark(lane, waiting, &mut self.heads);
            }
        }
    }

    /// Looks afresh at every lane.
    pub(super) fn recheck_all(&mut self) {
        for (lane, waiting) in &mut self.lanes {
            unpark(*lane, waiting, &mut self.heads);
        }
    }
}

fn unpark(lane: Lane, waiting: &mut Waiting, heads: &mut BTreeSet<(Order, Lane)>) {
    if std::mem::take(&mut waiting.parked)
        && let Some(first) = waiting.orders.first()
    {
        heads.insert((*first, lane));
    }
}
