//! The choice: the lowest cost with ties at random, or a sample by temperature.

use pointsman_sdk::lanes::{apply, fold};
use pointsman_sdk::lowest_drawing;
use pointsman_sdk::prelude::*;

use crate::DynamoDefaultCostFn;

/// Draws among costs.
pub(crate) struct Sampler {
    temperature: f64,
    rng: fastrand::Rng,
    weights: Vec<f64>,
    /// The sum of each block of weights.
    shares: Vec<f64>,
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
        Self { temperature, rng: fastrand::Rng::with_seed(u64::from(seed)), weights: Vec::new(), shares: Vec::new() }
    }

    fn choose(&mut self, costs: &[f64]) -> Option<usize> {
        if self.temperature == 0.0 {
            return lowest_drawing(costs, |ties| self.rng.u64(0..ties));
        }
        let sample = self.rng.f64();
        let sum = self.weigh(costs);
        let goal = sample * sum;
        let mut cumulative = 0.0;
        // Whole blocks are passed by their sums; the rows of the block that reaches the goal are walked.
        for (block, share) in self.shares.iter().enumerate() {
            if cumulative + share < goal {
                cumulative += share;
                continue;
            }
            let first = block * BLOCK;
            let weights = self.weights.get(first..).unwrap_or_default();
            if let Some(row) = reach(weights.get(..BLOCK).unwrap_or(weights), goal, &mut cumulative) {
                return Some(first + row);
            }
        }
        // Rounding can leave the sum of the shares below the goal.
        costs.len().checked_sub(1)
    }

    /// Weighs each cost by exp(-(cost - lowest) / ((highest - lowest) * temperature)), and answers the sum.
    fn weigh(&mut self, costs: &[f64]) -> f64 {
        let Self { weights, shares, temperature, .. } = self;
        let (lowest, highest) = range(costs);
        weights.resize(costs.len(), 1.0);
        shares.clear();
        if lowest < highest {
            // Two finite costs may be further apart than a float can say: then both are scaled down first.
            let magnitude = if (highest - lowest).is_finite() { 1.0 } else { lowest.abs().max(highest.abs()) };
            let least = lowest / magnitude;
            let scale = -1.0 / ((highest / magnitude - least) * *temperature);
            let shift = least * scale;
            if magnitude == 1.0 {
                weigh_by(costs, weights, |cost| cost * scale - shift);
            } else {
                weigh_by(costs, weights, |cost| cost / magnitude * scale - shift);
            }
        } else {
            weights.fill(1.0);
        }
        shares.extend(weights.chunks(BLOCK).map(sum));
        shares.iter().sum()
    }
}

/// The row at which the cumulative weight reaches the goal; else all weights are added to it.
fn reach(weights: &[f64], goal: f64, cumulative: &mut f64) -> Option<usize> {
    let (groups, rest) = weights.as_chunks();
    // By fours: each turn of a loop costs a guest a look at its fuel and its deadline.
    for (number, [a, b, c, d]) in groups.iter().enumerate() {
        let first = *cumulative + a;
        let second = first + b;
        let third = second + c;
        *cumulative = third + d;
        if goal <= *cumulative {
            let passed = [first, second, third].map(|sum| usize::from(sum < goal));
            return Some(number * 4 + passed.iter().sum::<usize>());
        }
    }
    for (row, weight) in (groups.len() * 4..).zip(rest) {
        *cumulative += weight;
        if goal <= *cumulative {
            return Some(row);
        }
    }
    None
}

/// Rows whose weights are summed at once.
const BLOCK: usize = 64;
fn sum(weights: &[f64]) -> f64 {
    let add = |a: f64, b: f64| a + b;
    fold(weights, 0.0, add, add)
}

/// The lowest and the highest cost.
fn range(costs: &[f64]) -> (f64, f64) {
    // Comparisons, since `f64::min` calls a function on WebAssembly.
    let lesser = |a: f64, b: f64| if b < a { b } else { a };
    let greater = |a: f64, b: f64| if b > a { b } else { a };
    (fold(costs, f64::INFINITY, lesser, lesser), fold(costs, f64::NEG_INFINITY, greater, greater))
}

fn weigh_by(costs: &[f64], weights: &mut [f64], exponent: impl Fn(f64) -> f64) {
    apply(weights, [costs], |_, [cost]| exp(exponent(cost)));
}

/// The exponential of a number that is not above 0, within 2 units in the last place; of a number below -708 that of
/// -708, which weighs nothing beside the 1 of the lowest cost.
///
/// Without a branch, a table or a call, so that it runs in lanes. x = k ln 2 + r with |r| <= ln 2 / 2; e^r is its Taylor
/// polynomial of degree 13, whose remainder is below 5e-18.
fn exp(x: f64) -> f64 {
    /// ln 2 in two parts; the first has so few bits that its product with k is exact.
    const LN2: [f64; 2] = [0.693_147_180_369_123_8, 1.908_214_929_270_587_7e-10];
    /// Adding it rounds to a whole number, which is then in the lowest bits.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    const INVERSE_FACTORIALS: [f64; 14] = [
        1.0 / 6_227_020_800.0,
        1.0 / 479_001_600.0,
        1.0 / 39_916_800.0,
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5_040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ];
    let x = if x < -708.0 { -708.0 } else { x };
    let shifted = x * std::f64::consts::LOG2_E + ROUND;
    let whole = shifted - ROUND;
    let rest = (x - whole * LN2[0]) - whole * LN2[1];
    let mut power = 0.0;
    for factor in INVERSE_FACTORIALS {
        power = power * rest + factor;
    }
    power * f64::from_bits(shifted.to_bits().wrapping_add(1_023) << 52)
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
    fn the_exponential_is_exact_to_two_units_in_the_last_place() {
        let mut rng = fastrand::Rng::with_seed(1);
        let apart = |x: f64| {
            let (ours, theirs) = (exp(x), libm::exp(x));
            assert!(ours.to_bits().abs_diff(theirs.to_bits()) <= 2, "exp({x}) is {theirs:e}, not {ours:e}");
        };
        apart(0.0);
        apart(-708.0);
        (0..200_000).for_each(|_| apart(-rng.f64() * 708.0));
        (0..200_000).for_each(|_| apart(-rng.f64() * 2.0));
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f64::NEG_INFINITY), exp(-708.0));
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
