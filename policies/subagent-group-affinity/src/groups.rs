//! Which worker and rank each group is bound to, in bounded space and with bounded work for each decision.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// How many groups are bound at most.
const MAX_GROUPS: usize = 65_536;
/// The bytes of a parent session's identifier at most.
const MAX_PARENT_BYTES: usize = 256;
/// How many groups one decision looks at while a sweep is under way: a decision has fuel for a bounded amount of work,
/// and all groups at once are more than that.
const SWEPT_AT_ONCE: usize = 64;

struct Group {
    /// The number that stands for the worker and its rank.
    worker: u32,
    last_used_ms: f64,
}

/// The groups by a hash of their parent, seeded so that clients cannot tell which parents collide.
///
/// Hashes rather than the texts, which at 256 bytes each would not fit into a guest's memory. That any two of all
/// groups share one is less likely than one in a thousand million, and would merely put two groups on one worker. A
/// tree rather than a hash table, which now and then grows with as much work at once as a whole sweep.
pub(crate) struct Groups {
    seed: u32,
    ttl_ms: f64,
    bound: BTreeMap<u64, Group>,
    /// When the last sweep began; before the first, when the first request came.
    swept_ms: Option<f64>,
    /// Where the sweep under way goes on.
    next: Option<u64>,
}

impl Groups {
    pub(crate) const fn new(seed: u32, ttl_ms: f64) -> Self {
        Self { seed, ttl_ms, bound: BTreeMap::new(), swept_ms: None, next: None }
    }

    fn key(&self, parent: &str) -> Option<u64> {
        if parent.len() > MAX_PARENT_BYTES {
            return None;
        }
        let mut hasher = DefaultHasher::new();
        (self.seed, parent).hash(&mut hasher);
        Some(hasher.finish())
    }

    /// Begins a sweep where the last one began a time to live ago or more, and goes on with the one under way.
    pub(crate) fn sweep(&mut self, now_ms: f64) {
        let mut swept_ms = *self.swept_ms.get_or_insert(now_ms);
        if now_ms - swept_ms >= self.ttl_ms {
            swept_ms = now_ms;
            self.swept_ms = Some(now_ms);
            self.next.get_or_insert(0);
        }
        let Some(from) = self.next.take() else { return };
        let mut idle = Vec::new();
        for (place, (key, group)) in self.bound.range(from..).enumerate() {
            if place == SWEPT_AT_ONCE {
                self.next = Some(*key);
                break;
            }
            if swept_ms - group.last_used_ms >= self.ttl_ms {
                idle.push(*key);
            }
        }
        for key in idle {
            self.bound.remove(&key);
        }
    }

    /// The number of the worker and rank that the group is bound to. The group counts as used.
    pub(crate) fn touch(&mut self, parent: &str, now_ms: f64) -> Option<u32> {
        let key = self.key(parent)?;
        let (swept_ms, ttl_ms) = (self.swept_ms.unwrap_or(now_ms), self.ttl_ms);
        // A group that the sweep drops is gone as soon as the sweep begins, though its turn may come later.
        let group = self.bound.get_mut(&key).filter(|group| swept_ms - group.last_used_ms < ttl_ms)?;
        group.last_used_ms = now_ms;
        Some(group.worker)
    }

    /// Binds the group, unless there are too many or its parent's identifier is too long.
    pub(crate) fn bind(&mut self, parent: &str, worker: u32, now_ms: f64) {
        let Some(key) = self.key(parent) else { return };
        if self.bound.len() < MAX_GROUPS || self.bound.contains_key(&key) {
            self.bound.insert(key, Group { worker, last_used_ms: now_ms });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL_MS: f64 = 1000.0;

    fn groups() -> Groups {
        Groups::new(7, TTL_MS)
    }

    #[test]
    fn a_sweep_drops_idle_groups_and_no_others() {
        let mut groups = groups();
        groups.sweep(0.0);
        groups.bind("idle", 1, 0.0);
        groups.bind("used", 2, 0.0);
        assert_eq!(groups.touch("used", 500.0), Some(2));
        groups.sweep(1000.0);
        assert_eq!(groups.touch("idle", 1000.0), None);
        assert_eq!(groups.touch("used", 1000.0), Some(2));
        assert_eq!(groups.bound.len(), 1);
    }

    #[test]
    fn sweeps_begin_a_time_to_live_apart() {
        let mut groups = groups();
        groups.sweep(0.0);
        groups.bind("parent", 1, 200.0);
        groups.sweep(1000.0);
        // Idle for longer than the time to live, but the last sweep began less than that ago.
        groups.sweep(1999.0);
        assert_eq!(groups.bound.len(), 1);
        groups.sweep(2000.0);
        assert_eq!(groups.bound.len(), 0);
    }

    #[test]
    fn a_sweep_takes_turns_and_forgets_all_idle_groups_at_once() {
        let mut groups = groups();
        groups.sweep(0.0);
        let parents: Vec<String> = (0..SWEPT_AT_ONCE + 10).map(|parent| parent.to_string()).collect();
        for parent in &parents {
            groups.bind(parent, 1, 0.0);
        }
        groups.sweep(1000.0);
        assert_eq!(groups.bound.len(), 10);
        assert!(parents.iter().all(|parent| groups.touch(parent, 1000.0).is_none()));
        groups.sweep(1001.0);
        assert_eq!(groups.bound.len(), 0);
    }

    #[test]
    fn no_more_groups_are_bound_than_the_maximum_and_bound_ones_still_move() {
        let mut groups = groups();
        for parent in 0..MAX_GROUPS {
            groups.bind(&parent.to_string(), 1, 0.0);
        }
        groups.bind("one too many", 1, 0.0);
        assert_eq!(groups.touch("one too many", 0.0), None);
        groups.bind("0", 2, 0.0);
        assert_eq!(groups.touch("0", 0.0), Some(2));
    }

    #[test]
    fn a_long_identifier_is_not_bound() {
        let mut groups = groups();
        groups.bind(&"x".repeat(MAX_PARENT_BYTES + 1), 1, 0.0);
        assert_eq!(groups.touch(&"x".repeat(MAX_PARENT_BYTES + 1), 0.0), None);
        groups.bind(&"x".repeat(MAX_PARENT_BYTES), 1, 0.0);
        assert_eq!(groups.touch(&"x".repeat(MAX_PARENT_BYTES), 0.0), Some(1));
    }
}
