//! Holds a guest to its memory and its tables.

use std::sync::Arc;

use wasmtime::ResourceLimiter;

use crate::account::Account;
use crate::engine::Counts;
use crate::limits::Limits;

/// The guest asked for more than its limits grant. Ends the call, instead of the -1 that `memory.grow` may answer:
/// a guest that goes on from a -1 commonly ends in a trap that says nothing of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OverLimit {
    #[error("the guest asked for {asked} bytes of memory and its limit memory_bytes is {limit}")]
    Memory { asked: u64, limit: u64 },
    #[error("the guest asked for a table of {asked} elements and its limit table_elements is {limit}")]
    Table { asked: u64, limit: u64 },
}

/// Counts what one guest has, on its tenant's account too, and gives that back when dropped with the guest's store.
#[derive(Debug)]
pub(crate) struct Limiter {
    memory_bytes: u64,
    table_elements: u64,
    counts: Counts,
    /// Bytes of all memories together.
    granted: u64,
    /// The part of `granted` that came last, taken back where the growth then fails.
    latest: u64,
    account: Option<Arc<Account>>,
}

impl Limiter {
    pub(crate) fn new(limits: &Limits, account: Option<Arc<Account>>) -> Self {
        Self {
            memory_bytes: limits.memory_bytes,
            table_elements: limits.table_elements,
            counts: Counts::of(limits.profile),
            granted: 0,
            latest: 0,
            account,
        }
    }

    fn give_back(&mut self, bytes: u64) {
        self.granted = self.granted.saturating_sub(bytes);
        if let Some(account) = &self.account {
            account.give_memory(bytes);
        }
    }
}

impl Drop for Limiter {
    fn drop(&mut self) {
        self.give_back(self.granted);
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let more = desired.saturating_sub(current) as u64;
        let asked = self.granted.saturating_add(more);
        if asked > self.memory_bytes {
            return Err(OverLimit::Memory { asked, limit: self.memory_bytes }.into());
        }
        if maximum.is_some_and(|maximum| desired > maximum) {
            self.latest = 0;
            return Ok(false);
        }
        if let Some(account) = &self.account {
            account.take_memory(more)?;
        }
        (self.granted, self.latest) = (asked, more);
        Ok(true)
    }

    fn memory_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        let latest = std::mem::take(&mut self.latest);
        self.give_back(latest);
        Ok(())
    }

    fn table_growing(&mut self, _: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let asked = desired as u64;
        if asked > self.table_elements {
            return Err(OverLimit::Table { asked, limit: self.table_elements }.into());
        }
        Ok(maximum.is_none_or(|maximum| desired <= maximum))
    }

    fn instances(&self) -> usize {
        self.counts.instances as usize
    }

    fn memories(&self) -> usize {
        self.counts.memories as usize
    }

    fn tables(&self) -> usize {
        self.counts.tables as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::{OverQuota, Quotas};

    fn limiter() -> Limiter {
        Limiter::new(&Limits { memory_bytes: 100, table_elements: 10, ..Limits::default() }, None)
    }

    #[test]
    fn a_tenant_pays_for_what_its_guests_hold_and_for_no_more() {
        let account = Account::new(Quotas { resident_bytes: 100, ..Quotas::UNLIMITED });
        let of = |memory_bytes| {
            let limits = Limits { memory_bytes, ..Limits::default() };
            Limiter::new(&limits, Some(Arc::clone(&account)))
        };
        let held = || account.usage().resident_bytes;
        let (mut first, mut second) = (of(60), of(1_000));
        assert!(first.memory_growing(0, 60, None).unwrap());
        assert!(first.memory_growing(60, 61, None).unwrap_err().is::<OverLimit>());
        assert!(second.memory_growing(0, 40, None).unwrap());
        let refused = second.memory_growing(40, 41, None).unwrap_err();
        assert_eq!(refused.downcast_ref(), Some(&OverQuota::Resident { asked: 101, quota: 100 }));
        assert_eq!(held(), 100);
        second.memory_grow_failed(wasmtime::Error::msg("no memory")).unwrap();
        assert_eq!(held(), 60);
        assert!(!second.memory_growing(0, 40, Some(1)).unwrap());
        second.memory_grow_failed(wasmtime::Error::msg("beyond its own maximum")).unwrap();
        assert_eq!(held(), 60);
        drop(first);
        assert_eq!(held(), 0);
        drop(second);
        assert_eq!(held(), 0);
    }

    #[test]
    fn all_memories_count_together() {
        let mut limiter = limiter();
        assert!(limiter.memory_growing(0, 60, None).unwrap());
        assert!(limiter.memory_growing(0, 40, None).unwrap());
        let refused = limiter.memory_growing(40, 41, None).unwrap_err();
        assert_eq!(refused.downcast_ref(), Some(&OverLimit::Memory { asked: 101, limit: 100 }));
    }

    #[test]
    fn a_growth_that_failed_does_not_count() {
        let mut limiter = limiter();
        assert!(limiter.memory_growing(0, 60, None).unwrap());
        limiter.memory_grow_failed(wasmtime::Error::msg("no memory")).unwrap();
        assert!(!limiter.memory_growing(0, 60, Some(50)).unwrap());
        limiter.memory_grow_failed(wasmtime::Error::msg("beyond its own maximum")).unwrap();
        assert!(limiter.memory_growing(0, 100, None).unwrap());
    }

    #[test]
    fn each_table_counts_alone() {
        let mut limiter = limiter();
        assert!(limiter.table_growing(0, 10, None).unwrap());
        assert!(limiter.table_growing(0, 10, None).unwrap());
        assert!(!limiter.table_growing(0, 10, Some(9)).unwrap());
        let refused = limiter.table_growing(10, 11, None).unwrap_err();
        assert_eq!(refused.downcast_ref(), Some(&OverLimit::Table { asked: 11, limit: 10 }));
    }
}
