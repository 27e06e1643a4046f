//! The worker with the fewest active requests, the first among equals.
#![forbid(unsafe_code)]

use pointsman_sdk::prelude::*;

/// The policy.
pub struct LeastLoaded;

impl Policy for LeastLoaded {
    type Parameters = NoParameters;
    const NAME: &'static str = "least-loaded";
    const DESCRIPTION: &'static str = "Takes the worker with the fewest active requests.";

    fn configure(_: &Setup, _: NoParameters) -> Result<Self, PolicyError> {
        Ok(Self)
    }
}

impl Scorer for LeastLoaded {
    fn reads(&self) -> Reads {
        Signal::LoadActiveRequests.into()
    }

    fn score(&mut self, _: &Request<'_>, workers: &Candidates<'_>, costs: &mut [f64]) -> Result<(), PolicyError> {
        costs.copy_from_slice(workers.column(Signal::LoadActiveRequests)?);
        Ok(())
    }
}

pointsman_sdk::export!(LeastLoaded: scorer);

#[cfg(test)]
mod tests {
    use pointsman_sdk::testkit::{Kit, Table};

    use super::*;

    #[test]
    fn the_fewest_active_requests_win_and_the_first_row_among_equals() {
        let row = |requests: f64| [("load.active-requests", requests)];
        let mut guest = Kit::<LeastLoaded>::new().configure().unwrap();
        let table = Table::new().row(&row(3.0)).row(&row(1.0)).row(&row(1.0)).row(&row(2.0));
        assert_eq!(guest.score(&table).unwrap(), [3.0, 1.0, 1.0, 2.0]);
        assert_eq!(guest.decide(&table).unwrap().unwrap().row, 1);
        // An idle worker, whose load is absent, is the least loaded.
        assert_eq!(guest.decide(&table.row(&[])).unwrap().unwrap().row, 4);
    }

    #[test]
    fn a_minimal_policy_takes_at_most_thirty_lines() {
        let policy = include_str!("lib.rs").split("#[cfg(test)]").next().unwrap();
        assert!(policy.trim_end().lines().count() <= 30, "{policy}");
    }

    #[test]
    fn there_are_no_parameters() {
        let refusal = Kit::<LeastLoaded>::new().parameters(r#"{"threshold":1}"#).configure().err();
        assert_eq!(refusal.as_deref(), Some("unknown parameter `threshold`; this policy takes none"));
    }
}
