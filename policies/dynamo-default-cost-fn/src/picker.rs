//! The choice: the lowest cost with ties at random, or a sample by temperature.

use pointsman_sdk::lowest_drawing;
use pointsman_sdk::prelude::*;

use crate::DynamoDefaultCostFn;

/// Draws among costs.
pub(crate) struct Sampler {
    temperature: f64,
    rng: fastrand::Rng,
    weights: Vec<f64>,
}

impl Picker for DynamoDefaultCostFn {
    fn reads(&self) -> Reads {
        Reads::COST | Fact::Pinned
    }

    fn pick(&mut self, request: &Request<'_>, candidates: &Candidates<'_>) -> Result<usize, PolicyError> {
        // A pin draws nothing, so that it does not shift the choices after it.
        if request.pinned()? {
            return Ok(0);
        }
        self.sampler.choose(candidates.costs()?).ok_or_else(|| PolicyError::failed("no eligible worker"))
    }
}

impl Sampler {
    pub(crate) fn new(temperature: f64, seed: u32) -> Self {
        Self { temperature, rng: fastrand::Rng::with_seed(u64::from(seed)), weights: Vec::new() }
    }

    fn choose(&mut self, costs: &[f64]) -> Option<usize> {
        if self.temperature == 0.0 {
            return lowest_drawing(costs, |ties| self.rng.u64(0..ties));
        }
        let sample = self.rng.f64();
        self.weigh(costs);
        let sum: f64 = self.weights.iter().sum();
        let mut cumulative = 0.0;
        let row = self.weights.iter().position(|weight| {
            cumulative += weight / sum;
            sample <= cumulative
        });
        // Rounding can leave the sum of the shares below the sample.
        row.or(costs.len().checked_sub(1))
    }

    /// Weighs each cost by exp(-(cost - lowest) / ((highest - lowest) * temperature)).
    fn weigh(&mut self, costs: &[f64]) {
        let (mut lowest, mut highest) = (f64::INFINITY, f64::NEG_INFINITY);
        for cost in costs {
            if *cost < lowest {
                lowest = *cost;
            }
            if *cost > highest {
                highest = *cost;
            }
        }
        self.weights.clear();
        if lowest == highest {
            self.weights.resize(costs.len(), 1.0 / costs.len() as f64);
            return;
        }
        // Two finite costs may be further apart than a float can say: then both are scaled down first.
        let magnitude = if (highest - lowest).is_finite() { 1.0 } else { lowest.abs().max(highest.abs()) };
        let least = lowest / magnitude;
        let scale = -1.0 / ((highest / magnitude - least) * self.temperature);
        let shift = least * scale;
        self.weights.extend(costs.iter().map(|cost| libm::exp(cost / magnitude * scale - shift)));
    }
}

#[cfg(test)]
mod tests {
    use pointsman_sdk::testkit::{Guest, Kit, Table};

    use super::*;

    fn at(temperature: f64, seed: u32) -> Guest {
        let parameters = format!(r#"{{"router_temperature":{temperature:?}}}"#);
        Kit::<DynamoDefaultCostFn>::new().seed(seed).parameters(&parameters).configure().unwrap()
    }

    fn table(costs: &[f64]) -> Table {
        costs.iter().fold(Table::new(), |table, cost| table.row(&[("cost", *cost)]))
    }

    /// How often each row is picked in `n` picks.
    fn counts(guest: &mut Guest, table: &Table, n: usize) -> Vec<usize> {
        let mut counts = vec![0; table.len()];
        for _ in 0..n {
            counts[guest.pick(table).unwrap()] += 1;
        }
        counts
    }

    #[test]
    fn the_lowest_cost_is_picked() {
        assert_eq!(at(0.0, 1).pick(&table(&[3.0, 1.0, 2.0])).unwrap(), 1);
    }

    #[test]
    fn ties_are_drawn_evenly_among_the_lowest_alone() {
        let counts = counts(&mut at(0.0, 1), &table(&[2.0, 1.0, 1.0, 5.0, 1.0]), 3_000);
        assert_eq!((counts[0], counts[3]), (0, 0));
        for row in [1, 2, 4] {
            assert!((850..1_150).contains(&counts[row]), "{counts:?}");
        }
    }

    #[test]
    fn ties_are_drawn_by_the_seeds_generator_one_draw_at_each_equal_row() {
        let mut guest = at(0.0, 42);
        let mut rng = fastrand::Rng::with_seed(42);
        for _ in 0..50 {
            // 4, 4 and 4 tie before the 3 starts over.
            let _ = (rng.u64(0..2), rng.u64(0..3));
            let row = if rng.u64(0..2) == 0 { 4 } else { 3 };
            assert_eq!(guest.pick(&table(&[4.0, 4.0, 4.0, 3.0, 3.0])).unwrap(), row);
        }
    }

    #[test]
    fn a_pin_takes_its_row_and_draws_nothing() {
        for temperature in [0.0, 0.5] {
            let (mut pinned, mut free) = (at(temperature, 7), at(temperature, 7));
            let tie = table(&[1.0; 8]);
            for _ in 0..20 {
                assert_eq!(pinned.pick(&table(&[9.0]).fact("request.pinned", 1.0)).unwrap(), 0);
                assert_eq!(pinned.pick(&tie).unwrap(), free.pick(&tie).unwrap());
            }
        }
    }

    #[test]
    fn a_temperature_samples_by_the_softmax_of_the_costs_within_their_range() {
        // Weights exp(0), exp(-0.5 / 0.5), exp(-1 / 0.5).
        let weights = [1.0, libm::exp(-1.0), libm::exp(-2.0)];
        let sum: f64 = weights.iter().sum();
        let counts = counts(&mut at(0.5, 3), &table(&[10.0, 15.0, 20.0]), 10_000);
        for (count, weight) in counts.iter().zip(weights) {
            let expected = 10_000.0 * weight / sum;
            assert!((*count as f64 - expected).abs() < 200.0, "{counts:?}");
        }
    }

    #[test]
    fn a_sample_is_the_first_row_whose_cumulative_share_reaches_it() {
        let (mut guest, mut rng) = (at(0.5, 11), fastrand::Rng::with_seed(11));
        let first = 1.0 / (1.0 + libm::exp(-2.0));
        for _ in 0..100 {
            assert_eq!(guest.pick(&table(&[0.0, 8.0])).unwrap(), usize::from(rng.f64() > first));
        }
    }

    #[test]
    fn equal_costs_are_sampled_evenly() {
        let counts = counts(&mut at(0.5, 3), &table(&[2.0; 4]), 4_000);
        assert!(counts.iter().all(|count| (850..1_150).contains(count)), "{counts:?}");
    }

    #[test]
    fn costs_further_apart_than_a_float_are_scaled_first() {
        let counts = counts(&mut at(0.01, 3), &table(&[-1e308, 1e308, -1e308]), 2_000);
        assert_eq!(counts[1], 0);
        assert!((800..1_200).contains(&counts[0]), "{counts:?}");
    }

    #[test]
    fn the_same_seed_makes_the_same_choices_and_another_seed_others() {
        let choices =
            |seed| (0..64).scan(at(0.0, seed), |guest, _| guest.pick(&table(&[0.0; 10])).ok()).collect::<Vec<_>>();
        assert_eq!(choices(5), choices(5));
        assert_ne!(choices(5), choices(6));
    }

    #[test]
    fn the_whole_policy_takes_the_warmest_of_equally_loaded_workers() {
        let row = |overlap: f64| [("load.available", 1.0), ("cache.overlap-blocks", overlap)];
        let table = Table::new()
            .fact("request.tracks-prefill-tokens", 1.0)
            .fact("request.prompt-tokens", 160.0)
            .row(&row(1.0))
            .row(&row(6.0))
            .row(&row(3.0));
        let selection = at(0.0, 0).decide(&table).unwrap().unwrap();
        assert_eq!((selection.row, selection.cost), (1, 4.0));
    }
}
