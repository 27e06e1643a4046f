//! The decisions of a run in the order of the requests, whatever the order in which they were made.
//!
//! In a disaggregated run a request's decode worker is chosen when its prefill is done, so later requests may be
//! decided in between. The ledger holds a request's decisions back until all requests before it are settled.

use std::collections::VecDeque;

use pointsman_contract::Role;
use pointsman_routing::Decision;
use sha2::{Digest, Sha256};

use crate::report::DecisionLine;

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    digest: Sha256,
    /// The requests that are not yet written, from the one of index `first` on.
    open: VecDeque<Entry>,
    first: u64,
}

#[derive(Debug, Default)]
struct Entry {
    decisions: [Option<(Role, Decision)>; 2],
    /// Why the request was rejected, and in which role.
    rejection: Option<(Role, &'static str)>,
    settled: bool,
}

impl Ledger {
    /// A worker was chosen; `last` where no further decision follows for the request.
    pub(crate) fn decide(&mut self, index: u64, role: Role, decision: Decision, last: bool) {
        let Some(entry) = self.entry(index) else { return };
        if let Some(place) = entry.decisions.iter_mut().find(|place| place.is_none()) {
            *place = Some((role, decision));
        }
        entry.settled = last;
    }

    /// No worker was found.
    pub(crate) fn reject(&mut self, index: u64, role: Role, reason: &'static str) {
        if let Some(entry) = self.entry(index) {
            entry.rejection = Some((role, reason));
            entry.settled = true;
        }
    }

    fn entry(&mut self, index: u64) -> Option<&mut Entry> {
        let place = index.checked_sub(self.first)? as usize;
        if place >= self.open.len() {
            self.open.resize_with(place + 1, Entry::default);
        }
        self.open.get_mut(place)
    }

    /// Writes out every request that is settled and has none open before it.
    pub(crate) fn write_settled<E>(
        &mut self,
        policy: &str,
        mut write: impl FnMut(&DecisionLine<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(entry) = self.open.pop_front_if(|entry| entry.settled) {
            let index = self.first;
            self.first += 1;
            for (role, decision) in entry.decisions.into_iter().flatten() {
                let Decision { worker, cost, outcome, .. } = decision;
                if entry.rejection.is_none() {
                    self.digest.update(index.to_le_bytes());
                    self.digest.update(worker.worker.to_le_bytes());
                    self.digest.update(worker.rank.to_le_bytes());
                }
                write(&DecisionLine {
                    policy,
                    index,
                    role: role.as_str(),
                    worker: Some(worker.worker),
                    rank: Some(worker.rank),
                    cost: Some(cost),
                    outcome: outcome.as_str(),
                })?;
            }
            if let Some((role, reason)) = entry.rejection {
                let role = role.as_str();
                write(&DecisionLine { policy, index, role, worker: None, rank: None, cost: None, outcome: reason })?;
            }
        }
        Ok(())
    }

    /// The digest of the decisions written so far, in hexadecimal.
    pub(crate) fn sha256(self) -> String {
        self.digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use pointsman_routing::WorkerKey;
    use pointsman_sandbox::Outcome;

    use super::*;

    fn to(worker: u64) -> Decision {
        Decision {
            worker: WorkerKey::new(worker, 0),
            row: 0,
            cost: 1.0,
            outcome: Outcome::Ok,
            fallback: false,
            fuel: None,
            cached_tokens: 0,
        }
    }

    fn written(ledger: &mut Ledger) -> Vec<(u64, &'static str, Option<u64>, &'static str)> {
        let mut lines = Vec::new();
        let write = |line: &DecisionLine<'_>| {
            lines.push((line.index, line.role, line.worker, line.outcome));
            Ok::<_, Infallible>(())
        };
        let Ok(()) = ledger.write_settled("p", write);
        lines
    }

    #[test]
    fn requests_come_out_in_order_prefill_before_decode() {
        let mut ledger = Ledger::default();
        ledger.decide(0, Role::Prefill, to(1), false);
        ledger.decide(1, Role::Prefill, to(0), false);
        ledger.decide(1, Role::Decode, to(3), true);
        ledger.reject(2, Role::Prefill, "no-endpoints");
        assert!(written(&mut ledger).is_empty(), "request 0 is open");
        ledger.decide(0, Role::Decode, to(2), true);
        assert_eq!(
            written(&mut ledger),
            [
                (0, "prefill", Some(1), "ok"),
                (0, "decode", Some(2), "ok"),
                (1, "prefill", Some(0), "ok"),
                (1, "decode", Some(3), "ok"),
                (2, "prefill", None, "no-endpoints"),
            ]
        );
        let mut bytes = Vec::new();
        for (index, worker) in [(0_u64, 1_u64), (0, 2), (1, 0), (1, 3)] {
            bytes.extend(index.to_le_bytes());
            bytes.extend(worker.to_le_bytes());
            bytes.extend(0_u32.to_le_bytes());
        }
        let expected: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(ledger.sha256(), expected);
    }

    #[test]
    fn a_request_that_is_rejected_late_adds_nothing_to_the_digest() {
        let mut ledger = Ledger::default();
        ledger.decide(0, Role::Prefill, to(1), false);
        ledger.reject(0, Role::Decode, "all-eligible-workers-filtered");
        assert_eq!(
            written(&mut ledger),
            [(0, "prefill", Some(1), "ok"), (0, "decode", None, "all-eligible-workers-filtered")]
        );
        let nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(ledger.sha256(), nothing);
    }
}
