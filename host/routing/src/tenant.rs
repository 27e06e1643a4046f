//! Tenants at run time: what each may use, and what it has used.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pointsman_sandbox::{Account, Fault, Outcome, Usage};

use crate::config::{Tenant, TenantQuotas};
use crate::sync::locked;

/// What a tenant has used since the router was built; what a bill is made from. Requests of its routing groups count,
/// whichever policy decided them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantUsage {
    /// The tenant's name.
    pub tenant: String,
    /// Requests that got a worker, fallbacks included.
    pub decided: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Decisions of the native default in a policy's place.
    pub fallbacks: u64,
    /// Fuel that guests used in calls, those that faulted included.
    pub fuel: u64,
    /// Faults by outcome, in the order of [`Outcome::ALL`].
    pub faults: [u64; Outcome::ALL.len()],
    /// What its guests and its artifacts use of the sandbox.
    pub sandbox: Usage,
}

/// One tenant.
#[derive(Debug)]
pub(crate) struct TenantState {
    name: String,
    account: Arc<Account>,
    bucket: Mutex<Bucket>,
    decided: AtomicU64,
    refused: AtomicU64,
    fallbacks: AtomicU64,
    fuel: AtomicU64,
    faults: [AtomicU64; Outcome::ALL.len()],
}

/// Fuel that is left. It holds one second's worth and may be overdrawn by one call.
#[derive(Debug)]
struct Bucket {
    per_second: u64,
    left: f64,
    at_ms: f64,
}

impl Bucket {
    const fn full(per_second: u64) -> Self {
        Self { per_second, left: per_second as f64, at_ms: f64::NEG_INFINITY }
    }

    fn refill(&mut self, now_ms: f64) {
        let per_second = self.per_second as f64;
        // Partitions bring their times in any order.
        if now_ms > self.at_ms {
            let elapsed = if self.at_ms.is_finite() { now_ms - self.at_ms } else { 0.0 };
            self.left = (self.left + per_second * elapsed / 1_000.0).min(per_second);
            self.at_ms = now_ms;
        }
    }
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl TenantState {
    pub(crate) fn new(tenant: &Tenant) -> Arc<Self> {
        let TenantQuotas { fuel_per_second, sandbox } = tenant.quotas;
        Arc::new(Self {
            name: tenant.name.clone(),
            account: Account::new(sandbox),
            bucket: Mutex::new(Bucket::full(fuel_per_second)),
            decided: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            fallbacks: AtomicU64::new(0),
            fuel: AtomicU64::new(0),
            faults: Default::default(),
        })
    }

    pub(crate) const fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Other quotas from now on; what it has used stays.
    pub(crate) fn set_quotas(&self, quotas: &TenantQuotas) {
        self.account.set_quotas(quotas.sandbox);
        let mut bucket = self.bucket();
        if bucket.per_second != quotas.fuel_per_second {
            *bucket = Bucket { at_ms: bucket.at_ms, ..Bucket::full(quotas.fuel_per_second) };
        }
    }

    /// Leave for one call of a guest at that time.
    pub(crate) fn admit(&self, now_ms: f64) -> Result<(), Fault> {
        let mut bucket = self.bucket();
        if bucket.per_second == u64::MAX {
            return Ok(());
        }
        bucket.refill(now_ms);
        if bucket.left > 0.0 {
            return Ok(());
        }
        let message = format!(
            "the tenant has used up its quota of {} fuel a second (fuel_per_second); raise it, or call the policy less",
            bucket.per_second
        );
        Err(Fault::new(Outcome::OverQuota, message))
    }

    /// What that call used.
    pub(crate) fn charge(&self, fuel: u64) {
        add(&self.fuel, fuel);
        self.bucket().left -= fuel as f64;
    }

    pub(crate) fn count_fault(&self, outcome: Outcome) {
        if let Some(count) = self.faults.get(outcome as usize) {
            add(count, 1);
        }
    }

    pub(crate) fn count_decision(&self, decided: bool, fallback: bool) {
        add(if decided { &self.decided } else { &self.refused }, 1);
        add(&self.fallbacks, u64::from(fallback));
    }

    pub(crate) fn usage(&self) -> TenantUsage {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut faults = [0; Outcome::ALL.len()];
        faults.iter_mut().zip(&self.faults).for_each(|(to, from)| *to = read(from));
        TenantUsage {
            tenant: self.name.clone(),
            decided: read(&self.decided),
            refused: read(&self.refused),
            fallbacks: read(&self.fallbacks),
            fuel: read(&self.fuel),
            faults,
            sandbox: self.account.usage(),
        }
    }

    fn bucket(&self) -> std::sync::MutexGuard<'_, Bucket> {
        locked(&self.bucket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(fuel_per_second: u64) -> Arc<TenantState> {
        let quotas = TenantQuotas { fuel_per_second, ..TenantQuotas::default() };
        TenantState::new(&Tenant { name: "acme".to_owned(), quotas, ..Tenant::default() })
    }

    #[test]
    fn a_tenant_has_a_seconds_worth_of_fuel_and_gets_it_back_evenly() {
        let tenant = tenant(1_000);
        tenant.admit(0.0).unwrap();
        tenant.charge(999);
        tenant.admit(0.0).unwrap();
        // One call may overdraw.
        tenant.charge(501);
        assert_eq!(tenant.admit(0.0).unwrap_err().outcome, Outcome::OverQuota);
        assert!(tenant.admit(500.0).is_err());
        tenant.admit(501.0).unwrap();
        // Never more than a second's worth, and an earlier time brings nothing.
        tenant.admit(100_000.0).unwrap();
        tenant.charge(1_000);
        assert!(tenant.admit(50_000.0).is_err());
        assert_eq!(tenant.usage().fuel, 2_500);
    }

    #[test]
    fn without_a_quota_nothing_is_refused_and_other_quotas_hold_at_once() {
        let tenant = tenant(u64::MAX);
        tenant.charge(u64::MAX / 2);
        tenant.admit(0.0).unwrap();
        tenant.set_quotas(&TenantQuotas { fuel_per_second: 10, ..TenantQuotas::default() });
        tenant.admit(0.0).unwrap();
        tenant.charge(10);
        assert!(tenant.admit(0.0).is_err());
    }
}
