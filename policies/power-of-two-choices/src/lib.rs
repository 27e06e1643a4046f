//! The better of two workers drawn at random: the one with fewer active requests.
//!
//! Nearly as even as asking every worker for the least loaded, and routers that see the same stale loads do not all
//! run to the same worker (Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing", 2001).
//!
//! Two different rows are drawn, each pair as likely as another: first one of all rows, then one of the others. Equal
//! loads take the first of the two in row order. The numbers grow from the partition's seed. A decision with one row,
//! such as a pinned request, draws nothing.
//!
//! No parameters.
#![forbid(unsafe_code)]

use fastrand::Rng;
use pointsman_sdk::prelude::*;

/// The policy.
pub struct PowerOfTwoChoices {
    rng: Rng,
}

impl Policy for PowerOfTwoChoices {
    type Parameters = NoParameters;
    const NAME: &'static str = "power-of-two-choices";
    const DESCRIPTION: &'static str = "Draws two workers and takes the one with fewer active requests.";

    fn configure(setup: &Setup, _: NoParameters) -> Result<Self, PolicyError> {
        Ok(Self { rng: Rng::with_seed(u64::from(setup.partition.seed)) })
    }
}

impl PowerOfTwoChoices {
    /// Two different rows of at least two, the lower one first.
    fn draw(&mut self, rows: u64) -> (usize, usize) {
        let one = self.rng.u64(0..rows);
        let among_others = self.rng.u64(0..rows - 1);
        let other = if among_others < one { among_others } else { among_others + 1 };
        (one.min(other) as usize, one.max(other) as usize)
    }
}

impl Picker for PowerOfTwoChoices {
    fn reads(&self) -> Reads {
        Signal::LoadActiveRequests.into()
    }

    fn pick(&mut self, _: &Request<'_>, workers: &Candidates<'_>) -> Result<usize, PolicyError> {
        if workers.len() == 1 {
            return Ok(0);
        }
        let load = workers.column(Signal::LoadActiveRequests)?;
        let (first, second) = self.draw(workers.len() as u64);
        Ok(if load.get(second) < load.get(first) { second } else { first })
    }
}

pointsman_sdk::export!(PowerOfTwoChoices: picker);

#[cfg(test)]
mod tests {
    use pointsman_sdk::testkit::{Guest, Kit, Table};

    use super::*;

    fn guest(seed: u32) -> Guest {
        Kit::<PowerOfTwoChoices>::new().seed(seed).configure().unwrap()
    }

    fn picks(guest: &mut Guest, loads: &[f64], count: usize) -> Vec<u32> {
        let table = loads.iter().fold(Table::new(), |table, load| table.row(&[("load.active-requests", *load)]));
        (0..count).map(|_| guest.decide(&table).unwrap().unwrap().row).collect()
    }

    fn counts(rows: &[u32]) -> [usize; 4] {
        [0, 1, 2, 3].map(|row| rows.iter().filter(|picked| **picked == row).count())
    }

    #[test]
    fn the_less_loaded_of_two_different_rows_is_taken_each_pair_alike() {
        // Of the six pairs, the idle row wins its three, the next two, the next one, the busiest none.
        let [busiest, one, two, three] = counts(&picks(&mut guest(1), &[9.0, 6.0, 3.0, 0.0], 6_000));
        assert_eq!(busiest, 0);
        for (count, expected) in [(one, 1_000), (two, 2_000), (three, 3_000)] {
            assert!(count.abs_diff(expected) < 150, "{count} is not near {expected}");
        }
    }

    #[test]
    fn equal_loads_take_the_first_of_the_two() {
        let [first, .., last] = counts(&picks(&mut guest(1), &[2.0; 4], 6_000));
        assert_eq!(last, 0);
        assert!(first.abs_diff(3_000) < 150, "{first} is not near 3000");
    }

    #[test]
    fn the_draws_are_those_of_the_partitions_seed() {
        let loads = [4.0, 3.0, 2.0, 1.0];
        assert_eq!(picks(&mut guest(5), &loads, 50), picks(&mut guest(5), &loads, 50));
        assert_ne!(picks(&mut guest(5), &loads, 50), picks(&mut guest(6), &loads, 50));
    }

    #[test]
    fn two_rows_are_always_both_drawn() {
        assert_eq!(picks(&mut guest(2), &[1.0, 0.0], 20), [1; 20]);
    }

    #[test]
    fn one_row_draws_nothing() {
        let (mut guest, mut other) = (guest(3), guest(3));
        assert_eq!(picks(&mut guest, &[7.0], 10), [0; 10]);
        let loads = [4.0, 3.0, 2.0, 1.0];
        assert_eq!(picks(&mut guest, &loads, 20), picks(&mut other, &loads, 20));
    }

    #[test]
    fn there_are_no_parameters() {
        let refusal = Kit::<PowerOfTwoChoices>::new().parameters(r#"{"choices":3}"#).configure().err();
        assert_eq!(refusal.as_deref(), Some("unknown parameter `choices`; this policy takes none"));
    }
}
