//! The workers in turn: a counter of picks, modulo the rows of the decision.
//!
//! Rows are sorted by (worker id, data-parallel rank), so a set of workers that stays the same is visited evenly, each
//! rank of a worker being a turn of its own. Where workers come, go, or are not eligible, the counter simply runs on
//! over the rows that there are: nobody is waited for and nothing has to be remembered.
//!
//! A decision with one row, such as a pinned request, is no turn: the counter stands still.
//!
//! No parameters. Reads nothing.
#![forbid(unsafe_code)]

use pointsman_sdk::prelude::*;

/// The policy: how many turns were taken.
pub struct RoundRobin {
    turns: u64,
}

impl Policy for RoundRobin {
    type Parameters = NoParameters;
    const NAME: &'static str = "round-robin";
    const DESCRIPTION: &'static str = "Takes the workers in turn.";

    fn configure(_: &Setup, _: NoParameters) -> Result<Self, PolicyError> {
        Ok(Self { turns: 0 })
    }
}

impl Picker for RoundRobin {
    fn reads(&self) -> Reads {
        Reads::NONE
    }

    fn pick(&mut self, _: &Request<'_>, workers: &Candidates<'_>) -> Result<usize, PolicyError> {
        let rows = workers.len() as u64;
        if rows == 1 {
            return Ok(0);
        }
        let row = self.turns % rows;
        self.turns = self.turns.wrapping_add(1);
        Ok(row as usize)
    }
}

pointsman_sdk::export!(RoundRobin: picker);

#[cfg(test)]
mod tests {
    use pointsman_sdk::testkit::{Guest, Kit, Table};

    use super::*;

    fn guest() -> Guest {
        Kit::<RoundRobin>::new().configure().unwrap()
    }

    fn pick(guest: &mut Guest, rows: usize) -> u32 {
        let table = (0..rows).fold(Table::new(), |table, _| table.row(&[]));
        guest.decide(&table).unwrap().unwrap().row
    }

    #[test]
    fn each_row_has_its_turn() {
        let mut guest = guest();
        let picked: Vec<u32> = (0..7).map(|_| pick(&mut guest, 3)).collect();
        assert_eq!(picked, [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn the_counter_runs_on_where_workers_come_and_go() {
        let mut guest = guest();
        let picked: Vec<u32> = [4, 4, 4, 2, 2, 5, 5].into_iter().map(|rows| pick(&mut guest, rows)).collect();
        assert_eq!(picked, [0, 1, 2, 1, 0, 0, 1]);
    }

    #[test]
    fn one_row_is_no_turn() {
        let mut guest = guest();
        let picked: Vec<u32> = [2, 1, 1, 2].into_iter().map(|rows| pick(&mut guest, rows)).collect();
        assert_eq!(picked, [0, 0, 0, 1]);
    }

    #[test]
    fn nothing_is_read() {
        assert_eq!(guest().inputs(), &Default::default());
    }

    #[test]
    fn there_are_no_parameters() {
        let refusal = Kit::<RoundRobin>::new().parameters(r#"{"start":1}"#).configure().err();
        assert_eq!(refusal.as_deref(), Some("unknown parameter `start`; this policy takes none"));
    }
}
