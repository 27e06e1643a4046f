//! The subagents of one session share a worker, and with it the prefix that they share: Dynamo's example
//! `subagent-group-affinity`.
//!
//! A group is all requests with the same parent session. What the group prefers is the row that its last request took,
//! one rank of one worker; for a new group it is the request's own affinity target, which may be all ranks of a worker.
//! Without a parent it is the affinity target alone.
//!
//! - The preferred row, of several the least loaded, keeps the request while it has at most `max_active_requests`. Above
//!   that the request moves to the least loaded row that is not preferred, if that has strictly fewer: moving to an equal
//!   one would send the group back and forth.
//! - No preferred row among the candidates: the least loaded.
//! - The group is then bound to the row taken, worker and rank, because each rank has a KV cache of its own. So another
//!   rank of the same worker is to a bound group what any other worker is. A decision with one row was the host's, so
//!   it does not bind.
//!
//! Load is active requests; ties take the first row. Wants soft session affinity: with hard affinity a bound session is
//! pinned and never joins its group.
//!
//! Groups idle for `group_idle_ttl_secs` are dropped by a sweep, once per that time at most. At most 65,536 groups are
//! bound, with parents of at most 256 bytes: whatever is beyond is placed as if it were new each time.
//!
//! | parameter | unit | default | range |
//! |---|---|---|---|
//! | `max_active_requests` | active requests | required | 0 or more |
//! | `group_idle_ttl_secs` | seconds | required | above 0 |
#![forbid(unsafe_code)]

mod groups;

use std::ops::Range;

use groups::Groups;
use pointsman_sdk::prelude::*;

/// The parameters.
#[derive(Parameters)]
pub struct Parameters {
    /// The most active requests at which a worker's rank keeps its group.
    max_active_requests: u64,
    /// The seconds without a request after which a group is forgotten.
    #[parameter(min = 1, rule = "greater than zero")]
    group_idle_ttl_secs: u64,
}

/// The policy.
pub struct SubagentGroupAffinity {
    max_active_requests: f64,
    groups: Groups,
}

impl Policy for SubagentGroupAffinity {
    type Parameters = Parameters;
    const NAME: &'static str = "subagent-group-affinity";
    const DESCRIPTION: &'static str = "Keeps the subagents of one session together until their worker is overloaded.";

    fn configure(setup: &Setup, parameters: Parameters) -> Result<Self, PolicyError> {
        let Parameters { max_active_requests, group_idle_ttl_secs } = parameters;
        Ok(Self {
            max_active_requests: max_active_requests as f64,
            groups: Groups::new(setup.partition.seed, group_idle_ttl_secs as f64 * 1000.0),
        })
    }
}

/// The least loaded of the rows that `allow` lets through, with its load; the first among equals.
fn least_loaded(load: &[f64], allow: impl Fn(usize) -> bool) -> Option<(usize, f64)> {
    let rows = load.iter().copied().enumerate().filter(|(row, _)| allow(*row));
    rows.min_by(|(_, one), (_, other)| one.total_cmp(other))
}

impl SubagentGroupAffinity {
    /// The row for a request that prefers the rows `preferred`, which may be empty.
    fn place(&self, load: &[f64], preferred: &Range<usize>) -> Option<usize> {
        let other = || least_loaded(load, |row| !preferred.contains(&row));
        let taken = match least_loaded(load, |row| preferred.contains(&row)) {
            None => other(),
            kept @ Some((_, active)) if active <= self.max_active_requests => kept,
            kept @ Some((_, active)) => other().filter(|(_, fewer)| *fewer < active).or(kept),
        };
        taken.map(|(row, _)| row)
    }
}

impl Picker for SubagentGroupAffinity {
    fn reads(&self) -> Reads {
        Reads::AFFINITY | Reads::WORKERS | Signal::LoadActiveRequests | Fact::NowMs | Text::SessionParentId
    }

    fn pick(&mut self, request: &Request<'_>, workers: &Candidates<'_>) -> Result<usize, PolicyError> {
        let load = workers.column(Signal::LoadActiveRequests)?;
        let target = request.affinity_target()?.unwrap_or(0..0);
        let nobody = || PolicyError::failed("no eligible worker");

        let Some(parent) = request.parent_session_id()? else {
            return self.place(load, &target).ok_or_else(nobody);
        };
        let (numbers, now_ms) = (workers.workers()?, request.now_ms()?);
        self.groups.sweep(now_ms);
        let preferred = match self.groups.touch(parent, now_ms) {
            // A worker that is not among the rows leaves nothing to prefer.
            Some(bound) => numbers.iter().position(|number| *number == bound).map_or(0..0, |row| row..row + 1),
            None => target,
        };
        let row = self.place(load, &preferred).ok_or_else(nobody)?;
        if let Some(number) = numbers.get(row)
            && numbers.len() > 1
        {
            self.groups.bind(parent, *number, now_ms);
        }
        Ok(row)
    }
}

pointsman_sdk::export!(SubagentGroupAffinity: picker);

#[cfg(test)]
mod tests {
    use pointsman_sdk::testkit::{Guest, Kit, Table};

    use super::*;

    fn guest(max_active_requests: u32) -> Guest {
        let parameters = format!(r#"{{"max_active_requests":{max_active_requests},"group_idle_ttl_secs":300}}"#);
        Kit::<SubagentGroupAffinity>::new().parameters(&parameters).configure().unwrap()
    }

    /// Workers of (number, active requests).
    fn table(workers: &[(u32, f64)]) -> Table {
        workers
            .iter()
            .fold(Table::new(), |table, (number, active)| table.row_of(*number, &[("load.active-requests", *active)]))
    }

    /// The number of the worker taken.
    fn take(guest: &mut Guest, parent: &str, workers: &[(u32, f64)]) -> u32 {
        let row = guest.decide(&table(workers).text("session.parent-id", parent)).unwrap().unwrap().row;
        workers[row as usize].0
    }

    #[test]
    fn a_new_group_goes_to_the_least_loaded_worker_the_first_among_equals() {
        assert_eq!(take(&mut guest(0), "parent", &[(29, 2.0), (41, 0.0), (57, 0.0)]), 41);
    }

    #[test]
    fn a_sibling_joins_its_group_and_another_parent_does_not() {
        let mut guest = guest(1);
        assert_eq!(take(&mut guest, "parent", &[(29, 1.0), (41, 0.0)]), 41);
        assert_eq!(take(&mut guest, "parent", &[(29, 0.0), (41, 1.0)]), 41);
        assert_eq!(take(&mut guest, "other", &[(29, 0.0), (41, 1.0)]), 29);
    }

    #[test]
    fn a_group_outranks_the_requests_own_target_and_without_one_the_target_counts() {
        let mut guest = guest(1);
        let to_29 = |loads: [f64; 2], parent: &str| {
            table(&[(29, loads[0]), (41, loads[1])]).affinity_target(0..1).text("session.parent-id", parent)
        };
        assert_eq!(guest.decide(&to_29([1.0, 0.0], "new")).unwrap().unwrap().row, 0);
        assert_eq!(take(&mut guest, "bound", &[(29, 1.0), (41, 0.0)]), 41);
        assert_eq!(guest.decide(&to_29([0.0, 0.0], "bound")).unwrap().unwrap().row, 1);
    }

    #[test]
    fn above_the_maximum_a_group_moves_to_a_less_loaded_worker_and_stays_there() {
        let mut guest = guest(4);
        assert_eq!(take(&mut guest, "parent", &[(29, 1.0), (41, 0.0)]), 41);
        assert_eq!(take(&mut guest, "parent", &[(29, 0.0), (41, 4.0)]), 41);
        assert_eq!(take(&mut guest, "parent", &[(29, 4.0), (41, 5.0)]), 29);
        assert_eq!(take(&mut guest, "parent", &[(29, 1.0), (41, 0.0)]), 29);
    }

    #[test]
    fn a_group_does_not_move_to_an_equally_loaded_worker() {
        let mut guest = guest(0);
        assert_eq!(take(&mut guest, "parent", &[(29, 1.0), (41, 0.0)]), 41);
        assert_eq!(take(&mut guest, "parent", &[(29, 1.0), (41, 1.0)]), 41);
    }

    #[test]
    fn a_group_whose_worker_is_gone_is_bound_anew() {
        let mut guest = guest(0);
        assert_eq!(take(&mut guest, "parent", &[(29, 2.0), (41, 0.0)]), 41);
        assert_eq!(take(&mut guest, "parent", &[(29, 3.0), (57, 0.0)]), 57);
        assert_eq!(take(&mut guest, "parent", &[(29, 0.0), (41, 0.0), (57, 0.0)]), 57);
    }

    #[test]
    fn the_only_row_is_taken_and_binds_nothing() {
        let mut guest = guest(0);
        assert_eq!(take(&mut guest, "parent", &[(29, 2.0), (41, 0.0)]), 41);
        assert_eq!(take(&mut guest, "parent", &[(29, 0.0)]), 29);
        assert_eq!(take(&mut guest, "parent", &[(29, 0.0), (41, 0.0)]), 41);
        assert_eq!(take(&mut guest, "new", &[(41, 0.0)]), 41);
        assert_eq!(take(&mut guest, "new", &[(29, 0.0), (41, 0.0)]), 29);
    }

    #[test]
    fn without_a_parent_the_affinity_target_is_kept_by_the_same_rule() {
        let mut guest = guest(2);
        let mut row =
            |loads: &[(u32, f64)], target| guest.decide(&table(loads).affinity_target(target)).unwrap().unwrap().row;
        assert_eq!(row(&[(29, 0.0), (41, 2.0)], 1..2), 1);
        assert_eq!(row(&[(29, 3.0), (41, 3.0)], 1..2), 1);
        assert_eq!(row(&[(29, 2.0), (41, 3.0)], 1..2), 0);
        assert_eq!(row(&[(29, 2.0), (41, 1.0), (57, 3.0)], 0..0), 1);
    }

    #[test]
    fn a_group_is_bound_to_one_rank_and_another_rank_is_as_another_worker() {
        let mut guest = guest(1);
        // Ranks 0 and 1 of one worker are numbers 29 and 41; 57 is another worker.
        let mut row = |loads: [f64; 3], target: Range<usize>| {
            let table = table(&[(29, loads[0]), (41, loads[1]), (57, loads[2])]).affinity_target(target);
            guest.decide(&table.text("session.parent-id", "parent")).unwrap().unwrap().row
        };
        assert_eq!(row([2.0, 1.0, 0.0], 0..2), 1, "a new group takes its target's least loaded rank");
        assert_eq!(row([0.0, 1.0, 0.0], 0..2), 1, "and keeps that rank, not the target's least loaded one");
        assert_eq!(row([2.0, 2.0, 2.0], 0..2), 1, "another rank of the worker has to have strictly fewer");
        assert_eq!(row([1.0, 2.0, 1.0], 0..2), 0, "and then takes the group before a later worker with as many");
        assert_eq!(row([1.0, 0.0, 0.0], 0..2), 0);
    }

    #[test]
    fn an_idle_group_is_forgotten_and_a_used_one_is_not() {
        let mut guest = guest(0);
        let mut at = |seconds: f64, parent: &str, loads: [f64; 2]| {
            let table = table(&[(29, loads[0]), (41, loads[1])]).fact("request.now-ms", seconds * 1000.0);
            guest.decide(&table.text("session.parent-id", parent)).unwrap().unwrap().row
        };
        assert_eq!(at(0.0, "idle", [1.0, 0.0]), 1);
        assert_eq!(at(0.0, "used", [1.0, 0.0]), 1);
        assert_eq!(at(200.0, "used", [0.0, 0.0]), 1);
        assert_eq!(at(300.0, "idle", [0.0, 0.0]), 0);
        assert_eq!(at(300.0, "used", [0.0, 0.0]), 1);
    }

    #[test]
    fn both_parameters_are_required_and_in_range() {
        let refusal = |json: &str| Kit::<SubagentGroupAffinity>::new().parameters(json).configure().err().unwrap();
        assert_eq!(
            refusal(r#"{"max_active_requests":4,"group_idle_ttl_secs":0}"#),
            "group_idle_ttl_secs must be greater than zero"
        );
        assert_eq!(refusal(r#"{"max_active_requests":4}"#), "missing parameter `group_idle_ttl_secs`");
        assert_eq!(refusal(r#"{"group_idle_ttl_secs":4}"#), "missing parameter `max_active_requests`");
        assert!(refusal(r#"{"max_active_requests":-1,"group_idle_ttl_secs":4}"#).starts_with("max_active_requests: "));
        assert!(refusal(r#"{"max_active_requests":1,"group_idle_ttl_secs":4,"ttl":1}"#).contains("`ttl`"));
    }
}
