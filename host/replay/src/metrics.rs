//! The figures of a run. docs/replay.md says what each one means.

use serde::Serialize;

/// Values of one kind, in any order.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<u64>);

impl Samples {
    /// Adds one value.
    pub fn push(&mut self, value: u64) {
        self.0.push(value);
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The mean; none without values.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let sum: u128 = self.0.iter().map(|value| u128::from(*value)).sum();
        if self.0.is_empty() { None } else { Some(sum as f64 / self.0.len() as f64) }
    }

    /// The percentiles by nearest rank: the least value that at least so many hundredths of the values do not exceed.
    pub fn percentiles<const N: usize>(&mut self, hundredths: [usize; N]) -> [Option<u64>; N] {
        self.0.sort_unstable();
        hundredths.map(|percent| self.0.get((self.0.len() * percent).div_ceil(100).max(1) - 1).copied())
    }
}

/// Mean and percentiles of a time in milliseconds; null where no request was decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Milliseconds {
    /// The mean.
    pub mean: Option<f64>,
    /// The median.
    pub p50: Option<f64>,
    /// 90 of 100 requests were no slower.
    pub p90: Option<f64>,
    /// 99 of 100 requests were no slower.
    pub p99: Option<f64>,
}

impl Milliseconds {
    /// From microseconds.
    #[must_use]
    pub fn of_microseconds(samples: &mut Samples) -> Self {
        let [p50, p90, p99] = samples.percentiles([50, 90, 99]).map(|us| us.map(|us| us as f64 / 1_000.0));
        Self { mean: samples.mean().map(|us| us / 1_000.0), p50, p90, p99 }
    }
}

/// Percentiles of what one decision took; null where there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PerDecision<T> {
    /// The median.
    pub p50: Option<T>,
    /// 99 of 100 decisions took no more.
    pub p99: Option<T>,
}

/// Active requests of the workers of one pool, and how unequal they were over time.
///
/// The coefficient of variation is the standard deviation of the workers' active requests over their mean; it is
/// averaged over the time in which the pool has an active request.
#[derive(Clone, Debug)]
pub struct Balance {
    active: Vec<u64>,
    sum: u64,
    squares: u64,
    since_us: u64,
    weighted: f64,
    busy_us: u64,
}

impl Balance {
    /// Of a pool of `workers`, at time 0 and idle.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self { active: vec![0; workers], sum: 0, squares: 0, since_us: 0, weighted: 0.0, busy_us: 0 }
    }

    /// A worker has one active request more from now on. Times never go back.
    pub fn add(&mut self, now_us: u64, worker: usize) {
        self.pass(now_us);
        if let Some(active) = self.active.get_mut(worker) {
            self.squares += 2 * *active + 1;
            self.sum += 1;
            *active += 1;
        }
    }

    /// A worker has one active request less from now on.
    pub fn remove(&mut self, now_us: u64, worker: usize) {
        self.pass(now_us);
        if let Some(active) = self.active.get_mut(worker).filter(|active| **active > 0) {
            *active -= 1;
            self.sum -= 1;
            self.squares -= 2 * *active + 1;
        }
    }

    fn pass(&mut self, now_us: u64) {
        let passed = now_us.saturating_sub(self.since_us);
        self.since_us = self.since_us.max(now_us);
        if self.sum > 0 && passed > 0 {
            self.weighted += self.coefficient() * passed as f64;
            self.busy_us += passed;
        }
    }

    /// sqrt(n × sum of squares - sum²) / sum: the same as deviation over mean, with one rounding less.
    fn coefficient(&self) -> f64 {
        let spread = u128::from(self.squares) * self.active.len() as u128 - u128::from(self.sum).pow(2);
        (spread as f64).sqrt() / self.sum as f64
    }

    /// The time-averaged coefficient of variation of one or more pools, each weighted by the time in which it had an
    /// active request and by its workers; none if no pool ever had one.
    #[must_use]
    pub fn mean_coefficient<'a>(pools: impl IntoIterator<Item = &'a Self>) -> Option<f64> {
        let (mut weighted, mut weight) = (0.0, 0.0);
        for pool in pools {
            weighted += pool.weighted * pool.active.len() as f64;
            weight += pool.busy_us as f64 * pool.active.len() as f64;
        }
        if weight > 0.0 { Some(weighted / weight) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: impl IntoIterator<Item = u64>) -> Samples {
        Samples(values.into_iter().collect())
    }

    #[test]
    fn percentiles_are_values_by_nearest_rank() {
        assert_eq!(samples([30, 10, 20, 40]).percentiles([50, 90, 99]), [Some(20), Some(40), Some(40)]);
        assert_eq!(samples((1..=200).rev()).percentiles([50, 90, 99]), [Some(100), Some(180), Some(198)]);
        assert_eq!(samples([7]).percentiles([50, 99]), [Some(7), Some(7)]);
        assert_eq!(samples([]).percentiles([50]), [None]);
    }

    #[test]
    fn times_are_given_in_milliseconds() {
        let times = Milliseconds::of_microseconds(&mut samples([1_500, 500, 4_000]));
        assert_eq!(times, Milliseconds { mean: Some(2.0), p50: Some(1.5), p90: Some(4.0), p99: Some(4.0) });
        assert_eq!(Milliseconds::of_microseconds(&mut samples([])), Milliseconds::default());
    }

    #[test]
    fn balance_is_averaged_over_the_busy_time() {
        let mut balance = Balance::new(2);
        // 10 us with (1, 0): 1; 30 us with (1, 1): 0; 20 us with (3, 1): 1/2; then idle.
        balance.add(100, 0);
        balance.add(110, 1);
        balance.add(140, 0);
        balance.add(140, 0);
        for worker in [0, 0, 0, 1] {
            balance.remove(160, worker);
        }
        assert_eq!(Balance::mean_coefficient([&balance]), Some((10.0 * 1.0 + 20.0 * 0.5) / 60.0));
        balance.add(1_000, 0);
        balance.remove(1_000, 0);
        assert_eq!(Balance::mean_coefficient([&balance]), Some(20.0 / 60.0), "idle time counts for nothing");
    }

    #[test]
    fn pools_count_by_their_workers_and_busy_time() {
        let mut one = Balance::new(1);
        one.add(0, 0);
        one.remove(100, 0);
        let mut three = Balance::new(3);
        three.add(0, 2);
        three.remove(50, 2);
        let three_alone = Balance::mean_coefficient([&three]).unwrap();
        assert!((three_alone - 2_f64.sqrt()).abs() < 1e-12, "(0, 0, 1): mean 1/3, deviation sqrt(2)/3");
        let both = Balance::mean_coefficient([&one, &three]).unwrap();
        assert!((both - 2_f64.sqrt() * 150.0 / 250.0).abs() < 1e-12);
        assert_eq!(Balance::mean_coefficient([&Balance::new(4)]), None);
    }
}
