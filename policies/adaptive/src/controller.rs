//! The weight of an even load against a warm cache, and how it follows the fleet.

use pointsman_sdk::prelude::*;

use crate::Algorithm;

/// The settings, checked.
pub(crate) struct Settings {
    pub(crate) algorithm: Algorithm,
    pub(crate) update_interval_ms: f64,
    pub(crate) smoothing: f64,
    pub(crate) max_step: f64,
    pub(crate) distribution_min: f64,
    pub(crate) pressure_max: f64,
    pub(crate) distribution_max: f64,
    pub(crate) midpoint: f64,
    pub(crate) slope: f64,
    pub(crate) load_scale: f64,
}

/// What is remembered between decisions: nothing of any worker.
pub(crate) struct Controller {
    pub(crate) settings: Settings,
    /// The share of the cost that the load has, between `distribution_min` and `distribution_max`.
    weight: f64,
    /// Smoothed: 0 where all workers have the same load, 1 where one has all of a great one.
    imbalance: f64,
    /// Smoothed: 0 where some worker is idle, near 1 where the least loaded one has much.
    pressure: f64,
    updated_ms: Option<f64>,
}

impl Controller {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { weight: settings.distribution_min, settings, imbalance: 0.0, pressure: 0.0, updated_ms: None }
    }

    /// The weight for a decision now, over workers with so many active requests each. Intervals without a decision are
    /// not made up for.
    pub(crate) fn weight(&mut self, now_ms: f64, active: &[f64]) -> f64 {
        if self.updated_ms.is_none_or(|updated| now_ms - updated >= self.settings.update_interval_ms) {
            self.updated_ms = Some(now_ms);
            self.update(active);
        }
        self.weight
    }

    fn update(&mut self, active: &[f64]) {
        let Settings { smoothing, max_step, distribution_min, pressure_max, distribution_max, load_scale, .. } =
            self.settings;
        let (least, most) = bounds(active);
        self.imbalance += smoothing * (imbalance(active) * (most / (most + load_scale)) - self.imbalance);
        self.pressure += smoothing * (least / (least + load_scale) - self.pressure);
        // Where every worker is busy, to spread the load gains little and costs what is cached.
        let cap = distribution_max - self.pressure * (distribution_max - pressure_max);
        let target = self.target(cap).clamp(distribution_min, cap);
        self.weight += (target - self.weight).clamp(-max_step, max_step);
    }

    fn target(&self, cap: f64) -> f64 {
        let Settings { algorithm, max_step, distribution_min, midpoint, slope, .. } = self.settings;
        match algorithm {
            Algorithm::Aimd if self.imbalance > midpoint => self.weight + max_step,
            Algorithm::Aimd if self.imbalance < midpoint * 0.5 => {
                distribution_min + 0.9 * (self.weight - distribution_min)
            }
            Algorithm::Aimd => self.weight,
            Algorithm::Sigmoid => {
                // A portable exponential: the same bits in a component and compiled in.
                let logistic = |at: f64| 1.0 / (1.0 + libm::exp(-slope * (at - midpoint)));
                let (start, end) = (logistic(0.0), logistic(1.0));
                distribution_min + (logistic(self.imbalance) - start) / (end - start) * (cap - distribution_min)
            }
        }
    }
}

/// The least and the most of the loads.
pub(crate) fn bounds(active: &[f64]) -> (f64, f64) {
    active.iter().fold((f64::INFINITY, 0.0_f64), |(least, most), load| (least.min(*load), most.max(*load)))
}

/// The coefficient of variation as a share of the most that so many workers can have; 0 for one worker or no load.
fn imbalance(active: &[f64]) -> f64 {
    // Welford's running mean and squares, row by row as Dynamo's example: one pass, and the same bits.
    let (mut count, mut mean, mut squares) = (0.0, 0.0, 0.0);
    for load in active {
        count += 1.0;
        let before = load - mean;
        mean += before / count;
        squares += before * (load - mean);
    }
    if count < 2.0 || mean <= 0.0 {
        return 0.0;
    }
    let deviation = (squares.max(0.0) / count).sqrt();
    (deviation / mean / (count - 1.0).sqrt()).clamp(0.0, 1.0)
}

/// Holds the three bounds of the weight against one another.
pub(crate) fn check(settings: &Settings) -> Result<(), PolicyError> {
    let Settings { distribution_min, pressure_max, distribution_max, .. } = settings;
    if distribution_min <= pressure_max && pressure_max <= distribution_max {
        return Ok(());
    }
    Err(PolicyError::failed(format!(
        "pressure_max must be between distribution_min ({distribution_min}) and distribution_max ({distribution_max}), and is {pressure_max}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn controller(algorithm: Algorithm) -> Controller {
        Controller::new(Settings {
            algorithm,
            update_interval_ms: 100.0,
            smoothing: 1.0,
            max_step: 0.1,
            distribution_min: 0.1,
            pressure_max: 0.5,
            distribution_max: 0.9,
            midpoint: 0.35,
            slope: 8.0,
            load_scale: 8.0,
        })
    }

    /// The weight after so many intervals of these loads.
    fn after(controller: &mut Controller, intervals: u32, active: &[f64]) -> f64 {
        let start = controller.updated_ms.unwrap_or(0.0);
        (1..=intervals).map(|interval| controller.weight(start + f64::from(interval) * 100.0, active)).last().unwrap()
    }

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-12, "{found} is not {expected}");
    }

    #[test]
    fn one_worker_with_all_of_the_load_is_the_most_imbalance() {
        near(imbalance(&[40.0, 0.0, 0.0, 0.0]), 1.0);
        near(imbalance(&[5.0, 5.0, 5.0]), 0.0);
        near(imbalance(&[0.0, 0.0]), 0.0);
        near(imbalance(&[7.0]), 0.0);
        // Mean 2, deviation 1, of two workers at most the mean.
        near(imbalance(&[1.0, 3.0]), 0.5);
    }

    #[test]
    fn the_weight_moves_once_an_interval() {
        let mut aimd = controller(Algorithm::Aimd);
        near(aimd.weight(0.0, &[40.0, 0.0]), 0.2);
        near(aimd.weight(99.0, &[40.0, 0.0]), 0.2);
        near(aimd.weight(100.0, &[40.0, 0.0]), 0.3);
        // A pause is one interval, however long.
        near(aimd.weight(5_000.0, &[40.0, 0.0]), 0.4);
    }

    #[test]
    fn aimd_adds_steps_up_to_the_cap_and_gives_back_by_tenths() {
        let mut aimd = controller(Algorithm::Aimd);
        near(after(&mut aimd, 50, &[40.0, 0.0]), 0.9);
        near(after(&mut aimd, 1, &[0.0, 0.0]), 0.1 + 0.9 * 0.8);
        near(after(&mut aimd, 1_000, &[0.0, 0.0]), 0.1);
    }

    #[test]
    fn between_the_midpoint_and_half_of_it_the_weight_stays() {
        let mut aimd = controller(Algorithm::Aimd);
        let weight = after(&mut aimd, 3, &[40.0, 0.0]);
        // 0.5 of two workers, by a load of 10 against a scale of 8: 0.28.
        near(after(&mut aimd, 5, &[10.0, 10.0 / 3.0]), weight);
    }

    #[test]
    fn where_all_workers_are_busy_the_cap_falls() {
        let mut aimd = controller(Algorithm::Aimd);
        // Pressure is 8 of 16, so that the cap is 0.9 less a half of 0.4.
        near(after(&mut aimd, 50, &[400.0, 8.0]), 0.7);
    }

    #[test]
    fn the_sigmoid_ends_at_its_bounds_and_moves_no_further_than_a_step() {
        let mut sigmoid = controller(Algorithm::Sigmoid);
        near(after(&mut sigmoid, 1, &[1e12, 0.0]), 0.2);
        near(after(&mut sigmoid, 20, &[1e12, 0.0]), 0.9);
        near(after(&mut sigmoid, 20, &[0.0, 0.0]), 0.1);
    }
}
