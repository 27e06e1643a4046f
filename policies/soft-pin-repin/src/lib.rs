//! A session stays on its worker until that is overloaded: Dynamo's example `soft-pin-repin`.
//!
//! - The affinity target has rows here: its least loaded rank keeps the request while it has at most
//!   `max_active_requests`; above that the least loaded other worker takes over. A target without another worker beside
//!   it is kept.
//! - No target, or none of its rows here: the least loaded worker.
//!
//! Load is active requests; ties take the first row. Wants soft session affinity: the session then follows the worker
//! that was taken, so that it moves once and stays. With hard affinity it is pinned, and there is nothing to choose.
//!
//! | parameter | unit | default | range |
//! |---|---|---|---|
//! | `max_active_requests` | active requests | required | 0 or more |
#![forbid(unsafe_code)]

use pointsman_sdk::prelude::*;

/// The parameters.
#[derive(Parameters)]
pub struct Parameters {
    /// The most active requests at which the affinity target keeps the session.
    max_active_requests: u64,
}

/// The policy.
pub struct SoftPinRepin {
    max_active_requests: f64,
}

impl Policy for SoftPinRepin {
    type Parameters = Parameters;
    const NAME: &'static str = "soft-pin-repin";
    const DESCRIPTION: &'static str = "Keeps a session on its worker until that has too many active requests.";

    fn configure(_: &Setup, Parameters { max_active_requests }: Parameters) -> Result<Self, PolicyError> {
        Ok(Self { max_active_requests: max_active_requests as f64 })
    }
}

/// The least loaded of the rows that `allow` lets through, with its load; the first among equals.
fn least_loaded(load: &[f64], allow: impl Fn(usize) -> bool) -> Option<(usize, f64)> {
    let rows = load.iter().copied().enumerate().filter(|(row, _)| allow(*row));
    rows.min_by(|(_, one), (_, other)| one.total_cmp(other))
}

impl Picker for SoftPinRepin {
    fn reads(&self) -> Reads {
        Reads::AFFINITY | Signal::LoadActiveRequests
    }

    fn pick(&mut self, request: &Request<'_>, workers: &Candidates<'_>) -> Result<usize, PolicyError> {
        let load = workers.column(Signal::LoadActiveRequests)?;
        let target = request.affinity_target()?.unwrap_or(0..0);
        let kept = least_loaded(load, |row| target.contains(&row));
        let taken = match kept {
            Some((_, active)) if active <= self.max_active_requests => kept,
            _ => least_loaded(load, |row| !target.contains(&row)).or(kept),
        };
        taken.map(|(row, _)| row).ok_or_else(|| PolicyError::failed("no eligible worker"))
    }
}

pointsman_sdk::export!(SoftPinRepin: picker);

#[cfg(test)]
mod tests {
    use pointsman_sdk::testkit::{Kit, Table};

    use super::*;

    fn table(loads: &[f64]) -> Table {
        loads.iter().fold(Table::new(), |table, load| table.row(&[("load.active-requests", *load)]))
    }

    fn pick(max_active_requests: u32, table: &Table) -> u32 {
        let parameters = format!(r#"{{"max_active_requests":{max_active_requests}}}"#);
        let mut guest = Kit::<SoftPinRepin>::new().parameters(&parameters).configure().unwrap();
        guest.decide(table).unwrap().unwrap().row
    }

    #[test]
    fn without_a_target_the_least_loaded_wins_and_the_first_row_among_equals() {
        assert_eq!(pick(0, &table(&[2.0, 1.0, 1.0])), 1);
        assert_eq!(pick(0, &table(&[2.0, 1.0, 1.0]).affinity_target(0..0)), 1);
    }

    #[test]
    fn the_target_keeps_the_session_up_to_the_maximum() {
        assert_eq!(pick(4, &table(&[0.0, 4.0, 0.0]).affinity_target(1..2)), 1);
    }

    #[test]
    fn above_the_maximum_the_least_loaded_other_worker_takes_over_even_where_it_has_more() {
        assert_eq!(pick(4, &table(&[7.0, 5.0, 6.0, 6.0]).affinity_target(1..2)), 2);
    }

    #[test]
    fn a_target_alone_is_kept() {
        assert_eq!(pick(0, &table(&[5.0]).affinity_target(0..1)), 0);
        assert_eq!(pick(0, &table(&[5.0, 3.0]).affinity_target(0..2)), 1);
    }

    #[test]
    fn the_targets_least_loaded_rank_counts() {
        assert_eq!(pick(2, &table(&[0.0, 9.0, 2.0, 2.0, 0.0]).affinity_target(1..4)), 2);
        assert_eq!(pick(1, &table(&[1.0, 9.0, 2.0, 2.0, 0.0]).affinity_target(1..4)), 4);
    }

    #[test]
    fn a_session_moves_once_and_stays() {
        // Worker 0 is busy with the session's first request; worker 1 takes over, and keeps it once 0 is idle again.
        assert_eq!(pick(0, &table(&[1.0, 0.0]).affinity_target(0..1)), 1);
        assert_eq!(pick(0, &table(&[0.0, 0.0]).affinity_target(1..2)), 1);
    }

    #[test]
    fn the_maximum_is_required_whole_and_not_negative() {
        let refusal = |json: &str| Kit::<SoftPinRepin>::new().parameters(json).configure().err().unwrap();
        assert_eq!(refusal("{}"), "missing parameter `max_active_requests`");
        for json in [r#"{"max_active_requests":-1}"#, r#"{"max_active_requests":1.5}"#] {
            assert!(refusal(json).starts_with("max_active_requests: "));
        }
        assert!(refusal(r#"{"max_active_requests":1,"move_margin":2}"#).contains("`move_margin`"));
    }
}
