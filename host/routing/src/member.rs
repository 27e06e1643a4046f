//! One guest of a policy, with everything that stands before a call of it: its tenant's quota and its breaker.

use std::sync::Arc;

use pointsman_sandbox::{Fault, Outcome};

use crate::breaker::{Breaker, BreakerState};
use crate::config::OnFault;
use crate::guest::Guest;
use crate::tenant::TenantState;
use crate::vocabulary::{Plans, Vocabulary};

/// One guest and what the host does when it fails.
pub(crate) struct Member {
    pub(crate) instance: String,
    pub(crate) on_fault: OnFault,
    pub(crate) plans: Plans,
    guest: Guest,
    guard: Guard,
}

/// What is asked before a guest is called, and told after.
#[derive(Clone, Default)]
pub(crate) struct Guard {
    /// None for policies that are compiled in.
    pub(crate) breaker: Option<Arc<Breaker>>,
    /// The tenant whose requests are decided.
    pub(crate) tenant: Option<Arc<TenantState>>,
}

impl Guard {
    /// One call at that time, unless the tenant's quota or the breaker keeps it off. `call` also checks the answer.
    pub(crate) fn call<T>(
        &self,
        guest: &mut Guest,
        now_ms: f64,
        call: impl FnOnce(&mut Guest) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        if let Some(tenant) = self.tenant.as_ref().filter(|_| guest.is_sandboxed()) {
            tenant.admit(now_ms)?;
        }
        let pass = self.breaker.as_ref().map(|breaker| breaker.admit(now_ms)).transpose()?;
        guest.set_now_ms(now_ms);
        let answer = call(guest);
        if let (Some(tenant), Some(fuel)) = (&self.tenant, guest.fuel_used()) {
            tenant.charge(fuel);
        }
        if let (Some(breaker), Some(pass)) = (&self.breaker, pass) {
            breaker.report(pass, answer.as_ref().map_or_else(|fault| fault.outcome, |_| Outcome::Ok), now_ms);
        }
        answer
    }

    pub(crate) fn breaker_state(&self) -> BreakerState {
        self.breaker.as_ref().map_or(BreakerState::Closed, |breaker| breaker.state())
    }

    pub(crate) fn quarantines(&self) -> u64 {
        self.breaker.as_ref().map_or(0, |breaker| breaker.opened())
    }
}

impl Member {
    pub(crate) fn new(
        instance: String,
        guest: Guest,
        on_fault: OnFault,
        guard: Guard,
        vocabulary: &Vocabulary,
    ) -> Result<Self, String> {
        let plans = vocabulary.plans(guest.inputs(), guest.stages())?;
        Ok(Self { instance, on_fault, plans, guest, guard })
    }

    pub(crate) const fn guest(&self) -> &Guest {
        &self.guest
    }

    pub(crate) fn into_guest(self) -> Guest {
        self.guest
    }

    pub(crate) const fn guard(&self) -> &Guard {
        &self.guard
    }

    pub(crate) fn drop_guard(&mut self) {
        self.guard = Guard::default();
    }

    /// One call at that time. `call` gets the guest and the member's name, and checks the answer.
    pub(crate) fn call<T>(
        &mut self,
        now_ms: f64,
        call: impl FnOnce(&mut Guest, &str) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let Self { instance, guest, guard, .. } = self;
        guard.call(guest, now_ms, |guest| call(guest, instance))
    }
}
