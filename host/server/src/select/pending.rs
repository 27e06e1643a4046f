//! What `/select` decided, kept for a while so that `/reservations` can book it by its id alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use pointsman_routing::PartitionKey;
use rustc_hash::FxHashMap;

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PendingLimits {
    /// How long a selection may be booked, in milliseconds.
    pub ttl_ms: f64,
    /// The most selections.
    pub entries: usize,
    /// The most bytes, roughly: hashes, ids and names.
    pub bytes: usize,
}

impl Default for PendingLimits {
    /// 120 s, 4,096 selections, 256 MiB.
    fn default() -> Self {
        Self { ttl_ms: 120_000.0, entries: 4_096, bytes: 256 << 20 }
    }
}

/// Something that takes memory.
pub(super) trait Bytes {
    fn bytes(&self) -> usize;
}

type Key = (PartitionKey, String);

#[derive(Debug)]
struct Entry<T> {
    selection: Arc<T>,
    number: u64,
    since_ms: f64,
    bytes: usize,
}

/// The selections that may still be booked, by partition and selection id. The oldest goes first where there are too many.
#[derive(Debug)]
pub(super) struct Pending<T> {
    limits: PendingLimits,
    entries: FxHashMap<Key, Entry<T>>,
    /// In the order in which they came.
    order: BTreeMap<u64, Key>,
    next: u64,
    bytes: usize,
}

impl<T: Bytes> Pending<T> {
    pub(super) fn new(limits: PendingLimits) -> Self {
        Self { limits, entries: FxHashMap::default(), order: BTreeMap::new(), next: 0, bytes: 0 }
    }

    /// Keeps a selection, in place of an earlier one with that id.
    pub(super) fn insert(&mut self, key: PartitionKey, id: String, selection: T, now_ms: f64) {
        let key = (key, id);
        self.remove_entry(&key);
        let bytes = selection.bytes() + key.0.model.len() + key.0.routing_group.len() + key.1.len();
        let number = self.next;
        self.next += 1;
        self.bytes += bytes;
        self.order.insert(number, key.clone());
        self.entries.insert(key, Entry { selection: Arc::new(selection), number, since_ms: now_ms, bytes });
        while let Some((_, oldest)) = self.order.first_key_value() {
            let old = self.entries.get(oldest).is_none_or(|entry| self.is_over(entry, now_ms));
            if !old && self.entries.len() <= self.limits.entries && self.bytes <= self.limits.bytes {
                break;
            }
            let oldest = oldest.clone();
            self.remove_entry(&oldest);
        }
    }

    /// The selection of that id, and its number for [`Self::remove`]; it stays until it is booked.
    pub(super) fn peek(&self, key: &PartitionKey, id: &str, now_ms: f64) -> Option<(Arc<T>, u64)> {
        let entry = self.entries.get(&(key.clone(), id.to_owned()))?;
        (!self.is_over(entry, now_ms)).then(|| (Arc::clone(&entry.selection), entry.number))
    }

    /// Forgets a selection that was booked, unless another one has its id meanwhile.
    pub(super) fn remove(&mut self, key: &PartitionKey, id: &str, number: u64) {
        let key = (key.clone(), id.to_owned());
        if self.entries.get(&key).is_some_and(|entry| entry.number == number) {
            self.remove_entry(&key);
        }
    }

    /// Forgets the selection of that id.
    pub(super) fn discard(&mut self, key: &PartitionKey, id: &str) {
        self.remove_entry(&(key.clone(), id.to_owned()));
    }

    fn is_over(&self, entry: &Entry<T>, now_ms: f64) -> bool {
        now_ms - entry.since_ms > self.limits.ttl_ms
    }

    fn remove_entry(&mut self, key: &Key) {
        if let Some(entry) = self.entries.remove(key) {
            self.order.remove(&entry.number);
            self.bytes -= entry.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may end by a panic")]

    use super::*;

    struct Sized(usize);

    impl Bytes for Sized {
        fn bytes(&self) -> usize {
            self.0
        }
    }

    fn pending(entries: usize, bytes: usize) -> Pending<Sized> {
        Pending::new(PendingLimits { ttl_ms: 10.0, entries, bytes })
    }

    fn key() -> PartitionKey {
        PartitionKey { model: "m".to_owned(), routing_group: "g".to_owned(), ..PartitionKey::default() }
    }

    fn kept(pending: &Pending<Sized>, now_ms: f64) -> Vec<&'static str> {
        ["a", "b", "c"].into_iter().filter(|id| pending.peek(&key(), id, now_ms).is_some()).collect()
    }

    fn insert(pending: &mut Pending<Sized>, id: &str, bytes: usize, now_ms: f64) {
        pending.insert(key(), id.to_owned(), Sized(bytes), now_ms);
    }

    #[test]
    fn the_oldest_goes_where_there_are_too_many() {
        let mut pending = pending(2, 1_000);
        for (id, now_ms) in [("a", 0.0), ("b", 0.0), ("a", 1.0), ("c", 2.0)] {
            insert(&mut pending, id, 1, now_ms);
        }
        assert_eq!(kept(&pending, 2.0), ["a", "c"], "the second `a` is younger than `b`");
    }

    #[test]
    fn the_oldest_go_where_they_take_too_much_memory() {
        // Each has three bytes of names.
        let mut pending = pending(9, 26);
        for id in ["a", "b", "c"] {
            insert(&mut pending, id, 10, 0.0);
        }
        assert_eq!(kept(&pending, 0.0), ["b", "c"]);
        insert(&mut pending, "a", 24, 0.0);
        assert!(kept(&pending, 0.0).is_empty(), "one that is too large by itself is not kept");
        assert_eq!((pending.bytes, pending.order.len()), (0, 0));
    }

    #[test]
    fn what_is_too_old_is_not_booked_and_goes_with_the_next_insertion() {
        let mut pending = pending(9, 1_000);
        insert(&mut pending, "a", 1, 0.0);
        assert_eq!(kept(&pending, 10.0), ["a"]);
        assert!(kept(&pending, 10.1).is_empty());
        insert(&mut pending, "b", 1, 10.1);
        assert_eq!((pending.entries.len(), pending.order.len()), (1, 1));
    }

    #[test]
    fn a_booking_takes_away_what_it_booked_and_nothing_newer() {
        let mut pending = pending(9, 1_000);
        insert(&mut pending, "a", 1, 0.0);
        let (_, number) = pending.peek(&key(), "a", 0.0).unwrap();
        insert(&mut pending, "a", 2, 1.0);
        pending.remove(&key(), "a", number);
        let (selection, number) = pending.peek(&key(), "a", 1.0).unwrap();
        assert_eq!(selection.0, 2);
        pending.remove(&key(), "a", number);
        assert!(pending.peek(&key(), "a", 1.0).is_none());
        assert_eq!(pending.bytes, 0);
    }

    #[test]
    fn partitions_do_not_share_ids() {
        let mut pending = pending(9, 1_000);
        insert(&mut pending, "a", 1, 0.0);
        assert!(pending.peek(&PartitionKey::default(), "a", 0.0).is_none());
        pending.discard(&PartitionKey::default(), "a");
        assert_eq!(kept(&pending, 0.0), ["a"]);
        pending.discard(&key(), "a");
        assert!(kept(&pending, 0.0).is_empty());
    }
}
