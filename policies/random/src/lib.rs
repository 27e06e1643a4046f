//! Any worker, each row as likely as another.
//!
//! The numbers grow from the partition's seed, so the same sequence of decisions draws the same rows. A decision with
//! one row, such as a pinned request, draws nothing.
//!
//! No parameters. Reads nothing.
#![forbid(unsafe_code)]

use fastrand::Rng;
use pointsman_sdk::prelude::*;

/// The policy.
pub struct Random {
    rng: Rng,
}

impl Policy for Random {
    type Parameters = NoParameters;
    const NAME: &'static str = "random";
    const DESCRIPTION: &'static str = "Takes a worker at random, each as likely as another.";

    fn configure(setup: &Setup, _: NoParameters) -> Result<Self, PolicyError> {
        Ok(Self { rng: Rng::with_seed(u64::from(setup.partition.seed)) })
    }
}

impl Picker for Random {
    fn reads(&self) -> Reads {
        Reads::NONE
    }

    fn pick(&mut self, _: &Request<'_>, workers: &Candidates<'_>) -> Result<usize, PolicyError> {
        match workers.len() as u64 {
            1 => Ok(0),
            // Not `usize`, whose draws differ between WebAssembly's 32 bits and a host's 64.
            rows => Ok(self.rng.u64(0..rows) as usize),
        }
    }
}

pointsman_sdk::export!(Random: picker);

#[cfg(test)]
mod tests {
    use pointsman_sdk::testkit::{Guest, Kit, Table};

    use super::*;

    fn guest(seed: u32) -> Guest {
        Kit::<Random>::new().seed(seed).configure().unwrap()
    }

    fn picks(guest: &mut Guest, rows: usize, count: usize) -> Vec<u32> {
        let table = (0..rows).fold(Table::new(), |table, _| table.row(&[]));
        (0..count).map(|_| guest.decide(&table).unwrap().unwrap().row).collect()
    }

    #[test]
    fn rows_are_drawn_alike() {
        let mut counts = [0; 5];
        for row in picks(&mut guest(1), 5, 10_000) {
            counts[row as usize] += 1;
        }
        assert!(counts.iter().all(|count| (1_850..=2_150).contains(count)), "{counts:?}");
    }

    #[test]
    fn the_draws_are_those_of_the_partitions_seed() {
        let mut rng = Rng::with_seed(9);
        let expected: Vec<u32> = (0..50).map(|_| rng.u64(0..7) as u32).collect();
        assert_eq!(picks(&mut guest(9), 7, 50), expected);
        assert_ne!(picks(&mut guest(10), 7, 50), expected);
    }

    #[test]
    fn one_row_draws_nothing() {
        let (mut guest, mut other) = (guest(3), guest(3));
        assert_eq!(picks(&mut guest, 1, 10), [0; 10]);
        assert_eq!(picks(&mut guest, 9, 20), picks(&mut other, 9, 20));
    }

    #[test]
    fn there_are_no_parameters() {
        let refusal = Kit::<Random>::new().parameters(r#"{"seed":1}"#).configure().err();
        assert_eq!(refusal.as_deref(), Some("unknown parameter `seed`; this policy takes none"));
    }
}
