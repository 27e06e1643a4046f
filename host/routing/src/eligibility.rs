//! The host's hard rules: which rows may serve a request at all. No policy sees or overrides them.
//!
//! The order of the checks decides which error a caller sees, as in Dynamo: a pin outside the allow-list, then anything
//! else that is wrong with the pin, then what is left for everyone.

use pointsman_admission::WorkerKey;

use crate::error::DecideError;
use crate::request::Request;
use crate::worker::{Worker, WorkerTable};

/// The eligible rows of one decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Eligible {
    /// Every row of the table.
    All,
    /// The table's open rows.
    Open,
    /// The rows that were written to the caller's list.
    Listed,
}

/// Says which rows are eligible; where they are listed, writes them to `rows`. There is at least one row.
pub(crate) fn eligible(
    table: &WorkerTable,
    request: &Request<'_>,
    exclusive_affinity: bool,
    rows: &mut Vec<u32>,
) -> Result<Eligible, DecideError> {
    rows.clear();
    if let Some(pin) = pin(request) {
        rows.push(pinned(table, request, pin)?);
        return Ok(Eligible::Listed);
    }
    let hard = request.affinity.filter(|affinity| affinity.hard);
    if let Some(target) = hard {
        return hard_target(table, request, target.worker, rows);
    }
    if exclusive_affinity && let Some(target) = request.affinity {
        let target = table.rows_of(target.worker, target.rank);
        rows.extend(target.filter(|row| row_is_eligible(table, request, *row)));
        if !rows.is_empty() {
            return Ok(Eligible::Listed);
        }
    }
    let no_rules = request.allowed.is_none() && request.available.is_none() && request.required_taints.is_empty();
    if no_rules && !table.open.is_empty() {
        return Ok(if table.unrestricted() { Eligible::All } else { Eligible::Open });
    }
    rows.extend(table.open.iter().filter(|row| row_is_eligible(table, request, **row)));
    if !rows.is_empty() {
        return Ok(Eligible::Listed);
    }
    let overloaded = table.workers.values().any(|worker| eligible_but_for_overload(worker, request));
    Err(if overloaded { DecideError::AllEligibleWorkersOverloaded } else { DecideError::NoEndpoints })
}

/// The one row that the request may use: its pin, or a hard affinity target with a rank.
pub(crate) fn pin(request: &Request<'_>) -> Option<WorkerKey> {
    request.pinned.or_else(|| {
        let target = request.affinity.filter(|affinity| affinity.hard)?;
        Some(WorkerKey::new(target.worker, target.rank?))
    })
}

fn pinned(table: &WorkerTable, request: &Request<'_>, pin: WorkerKey) -> Result<u32, DecideError> {
    // A pin beside a hard affinity target is that target or an error.
    let other = request.affinity.is_some_and(|affinity| {
        affinity.hard && (affinity.worker != pin.worker || affinity.rank.is_some_and(|rank| rank != pin.rank))
    });
    if other || !contains(request.allowed, pin.worker) {
        return Err(DecideError::PinnedWorkerNotAllowed { worker: pin.worker });
    }
    let worker = table.workers.get(&pin.worker).filter(|worker| eligible_but_for_overload(worker, request));
    match (table.row(pin), worker) {
        (Some(_), Some(worker)) if worker.overloaded => Err(DecideError::PinnedWorkerOverloaded { worker: pin.worker }),
        (Some(row), Some(_)) => Ok(row),
        _ => Err(DecideError::NoEndpoints),
    }
}

/// A hard affinity target without a rank: any rank of that worker, and none of another.
fn hard_target(
    table: &WorkerTable,
    request: &Request<'_>,
    target: u64,
    rows: &mut Vec<u32>,
) -> Result<Eligible, DecideError> {
    if !contains(request.allowed, target) {
        return Err(DecideError::PinnedWorkerNotAllowed { worker: target });
    }
    match table.workers.get(&target).filter(|worker| eligible_but_for_overload(worker, request)) {
        None => Err(DecideError::NoEndpoints),
        Some(worker) if worker.overloaded => Err(DecideError::PinnedWorkerOverloaded { worker: target }),
        Some(_) => {
            rows.extend(table.rows_of(target, None));
            Ok(Eligible::Listed)
        }
    }
}

/// The rows whose load says whether a request waits in its queue: those that may serve it, whether overloaded or not and
/// whatever soft target it has, as in Dynamo. None where its pin or hard target may not.
pub(crate) fn considered(table: &WorkerTable, request: &Request<'_>) -> impl Iterator<Item = u32> {
    let hard = request.affinity.filter(|affinity| affinity.hard);
    let rows = match (pin(request), hard) {
        (Some(pin), _) => table.rows_of(pin.worker, Some(pin.rank)),
        (None, Some(target)) => table.rows_of(target.worker, None),
        (None, None) => 0..table.len() as u32,
    };
    rows.filter(|row| worker_of(table, *row).is_some_and(|worker| eligible_but_for_overload(worker, request)))
}

fn worker_of(table: &WorkerTable, row: u32) -> Option<&Worker> {
    table.keys.get(row as usize).and_then(|key| table.workers.get(&key.worker))
}

fn row_is_eligible(table: &WorkerTable, request: &Request<'_>, row: u32) -> bool {
    let worker = worker_of(table, row);
    worker.is_some_and(|worker| !worker.overloaded && eligible_but_for_overload(worker, request))
}

fn eligible_but_for_overload(worker: &Worker, request: &Request<'_>) -> bool {
    let id = worker.config.worker;
    worker.available
        && allows(request, id)
        && request.required_taints.iter().all(|taint| worker.config.taints.iter().any(|has| has == taint))
}

/// Whether the caller's lists let the worker in.
pub(crate) fn allows(request: &Request<'_>, worker: u64) -> bool {
    contains(request.allowed, worker) && contains(request.available, worker)
}

fn contains(list: Option<&[u64]>, worker: u64) -> bool {
    list.is_none_or(|list| list.contains(&worker))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Affinity;
    use crate::vocabulary::Vocabulary;
    use crate::worker::WorkerConfig;

    /// Workers 1 (ranks 0 and 1, taint `gpu`), 2 and 3 (taints `gpu` and `big`).
    fn table() -> WorkerTable {
        let vocabulary = Vocabulary::default();
        let mut table = WorkerTable::new(&vocabulary);
        for (worker, ranks, taints) in [(1, 2, &["gpu"][..]), (2, 1, &[]), (3, 1, &["gpu", "big"])] {
            let taints = taints.iter().map(|taint| (*taint).to_owned()).collect();
            table.upsert(WorkerConfig { ranks, taints, ..WorkerConfig::new(worker) }, &vocabulary);
        }
        table.settle();
        table
    }

    fn rows(table: &WorkerTable, request: &Request<'_>, exclusive: bool) -> Result<Vec<(u64, u32)>, DecideError> {
        let mut rows = Vec::new();
        match eligible(table, request, exclusive, &mut rows)? {
            Eligible::All => rows = (0..table.len() as u32).collect(),
            Eligible::Open => rows.clone_from(&table.open),
            Eligible::Listed => {}
        }
        Ok(rows.iter().map(|row| table.keys[*row as usize]).map(|key| (key.worker, key.rank)).collect())
    }

    fn pin(worker: u64, rank: u32) -> Request<'static> {
        Request { pinned: Some(WorkerKey::new(worker, rank)), ..Request::default() }
    }

    fn affinity(worker: u64, rank: Option<u32>, hard: bool) -> Request<'static> {
        Request { affinity: Some(Affinity { worker, rank, hard }), ..Request::default() }
    }

    fn overload(table: &mut WorkerTable, worker: u64) {
        assert!(table.restrict(worker, |worker| worker.overloaded = true));
        table.settle();
    }

    #[test]
    fn without_rules_every_rank_of_every_worker_is_eligible() {
        assert_eq!(rows(&table(), &Request::default(), false).unwrap(), [(1, 0), (1, 1), (2, 0), (3, 0)]);
    }

    #[test]
    fn allow_list_availability_and_taints_narrow_together() {
        let table = table();
        let allowed = Request { allowed: Some(&[3, 1]), ..Request::default() };
        assert_eq!(rows(&table, &allowed, false).unwrap(), [(1, 0), (1, 1), (3, 0)]);
        let available = Request { available: Some(&[3]), ..allowed };
        assert_eq!(rows(&table, &available, false).unwrap(), [(3, 0)]);
        let tainted = Request { required_taints: &["gpu", "big"], ..Request::default() };
        assert_eq!(rows(&table, &tainted, false).unwrap(), [(3, 0)], "every required taint must be there");
        let none = Request { available: Some(&[]), ..Request::default() };
        assert_eq!(rows(&table, &none, false).unwrap_err(), DecideError::NoEndpoints);
    }

    #[test]
    fn overload_excludes_and_is_named_only_where_it_is_the_reason() {
        let mut table = table();
        overload(&mut table, 1);
        assert_eq!(rows(&table, &Request::default(), false).unwrap(), [(2, 0), (3, 0)]);
        let only_one = Request { allowed: Some(&[1]), ..Request::default() };
        assert_eq!(rows(&table, &only_one, false).unwrap_err(), DecideError::AllEligibleWorkersOverloaded);
        let tainted = Request { required_taints: &["absent"], ..Request::default() };
        assert_eq!(rows(&table, &tainted, false).unwrap_err(), DecideError::NoEndpoints);
        assert!(table.restrict(1, |worker| worker.available = false));
        table.settle();
        assert_eq!(rows(&table, &only_one, false).unwrap_err(), DecideError::NoEndpoints);
    }

    #[test]
    fn an_empty_partition_has_no_endpoints() {
        let empty = WorkerTable::new(&Vocabulary::default());
        assert_eq!(rows(&empty, &Request::default(), true).unwrap_err(), DecideError::NoEndpoints);
    }

    #[test]
    fn a_pin_is_exactly_its_row_and_its_errors_have_an_order() {
        let mut table = table();
        assert_eq!(rows(&table, &pin(1, 1), false).unwrap(), [(1, 1)]);
        assert_eq!(rows(&table, &pin(1, 2), false).unwrap_err(), DecideError::NoEndpoints, "rank out of range");
        assert_eq!(rows(&table, &pin(9, 0), false).unwrap_err(), DecideError::NoEndpoints, "unknown worker");
        let tainted = Request { required_taints: &["gpu"], ..pin(2, 0) };
        assert_eq!(rows(&table, &tainted, false).unwrap_err(), DecideError::NoEndpoints);
        let unavailable = Request { available: Some(&[1]), ..pin(2, 0) };
        assert_eq!(rows(&table, &unavailable, false).unwrap_err(), DecideError::NoEndpoints, "enforced for pins too");
        overload(&mut table, 2);
        assert_eq!(rows(&table, &pin(2, 0), false).unwrap_err(), DecideError::PinnedWorkerOverloaded { worker: 2 });
        assert_eq!(rows(&table, &tainted, false).unwrap_err(), DecideError::NoEndpoints, "taints before overload");
        let outside = Request { allowed: Some(&[1]), ..pin(2, 0) };
        assert_eq!(
            rows(&table, &outside, false).unwrap_err(),
            DecideError::PinnedWorkerNotAllowed { worker: 2 },
            "the allow-list before overload"
        );
    }

    #[test]
    fn a_pin_must_agree_with_a_hard_target() {
        let table = table();
        let both = |worker, rank| Request { pinned: Some(WorkerKey::new(1, 1)), ..affinity(worker, rank, true) };
        assert_eq!(rows(&table, &both(1, None), false).unwrap(), [(1, 1)]);
        let refused = DecideError::PinnedWorkerNotAllowed { worker: 1 };
        assert_eq!(rows(&table, &both(2, None), false).unwrap_err(), refused);
        assert_eq!(rows(&table, &both(1, Some(0)), false).unwrap_err(), refused);
    }

    #[test]
    fn an_exclusive_soft_target_narrows_only_while_it_is_eligible() {
        let mut table = table();
        assert_eq!(rows(&table, &affinity(1, None, false), true).unwrap(), [(1, 0), (1, 1)]);
        assert_eq!(rows(&table, &affinity(1, Some(1), false), true).unwrap(), [(1, 1)]);
        assert_eq!(rows(&table, &affinity(1, Some(1), false), false).unwrap().len(), 4, "advice to other policies");
        assert_eq!(rows(&table, &affinity(1, Some(7), false), true).unwrap().len(), 4, "no such rank");
        overload(&mut table, 1);
        assert_eq!(rows(&table, &affinity(1, None, false), true).unwrap(), [(2, 0), (3, 0)]);
    }

    #[test]
    fn a_hard_target_never_leaves_its_worker() {
        let mut table = table();
        assert_eq!(rows(&table, &affinity(1, None, true), false).unwrap(), [(1, 0), (1, 1)]);
        assert_eq!(rows(&table, &affinity(1, Some(1), true), false).unwrap(), [(1, 1)]);
        assert_eq!(rows(&table, &affinity(8, None, true), false).unwrap_err(), DecideError::NoEndpoints);
        overload(&mut table, 1);
        assert_eq!(
            rows(&table, &affinity(1, None, true), false).unwrap_err(),
            DecideError::PinnedWorkerOverloaded { worker: 1 }
        );
    }
}
