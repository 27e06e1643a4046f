//! A warm cache against an even load, with a weight that follows the fleet: Dynamo's example `adaptive`.
//!
//! The cost of a worker is `(1 - w) × (1 - affinity) + w × (active - min) / (load_scale + max - min)`: `affinity` is the
//! cached share of the prompt, 0 where the request does not count towards prefill; `active`, `min` and `max` are active
//! requests, of the worker and over all. The lowest cost wins, equals by lot.
//!
//! The weight `w` begins at `distribution_min` and is looked at again at the first decision of each interval. Two numbers
//! are smoothed: the imbalance, which is the coefficient of variation of the active requests as a share of the greatest
//! that so many workers can have, times `max / (max + load_scale)`; and the pressure, `min / (min + load_scale)`. The
//! weight's cap is `distribution_max` less `pressure × (distribution_max - pressure_max)`. Its target is
//!
//! - `aimd`: `max_step` more where the imbalance is above `midpoint`; a tenth nearer to `distribution_min` where it is below
//!   half of it; else as it is;
//! - `sigmoid`: from `distribution_min` to the cap by a logistic of the imbalance, whose ends are 0 and 1.
//!
//! The weight moves towards it by `max_step` at most.
//!
//! | parameter | values | meaning |
//! |---|---|---|
//! | `algorithm` | `aimd` (default) or `sigmoid` | the target |
//! | `update_interval_ms` | at least 1, 100 unless given | how often the weight is looked at |
//! | `smoothing` | above 0 to 1, 0.2 unless given | what a new measurement weighs against those before |
//! | `max_step` | above 0 to 1, 0.1 unless given | how far the weight moves at a time |
//! | `distribution_min`, `pressure_max`, `distribution_max` | above 0 and below 1, in this order; 0.1, 0.5, 0.9 unless given | the least weight, its cap where all workers are busy, and where they are not |
//! | `midpoint` | above 0 and below 1, 0.35 unless given | the imbalance in the middle |
//! | `slope` | 0.1 to 100, 8 unless given | how steep the logistic is |
//! | `load_scale` | at least 1, 8 unless given | active requests that are much |
//! | `seed` | a whole number | of the lots; the partition's seed unless given |
#![forbid(unsafe_code)]

mod controller;

use fastrand::Rng;
use pointsman_sdk::lowest_drawing;
use pointsman_sdk::prelude::*;

use controller::{Controller, Settings, bounds, check};

/// The policy's parameters.
#[derive(Parameters)]
pub struct AdaptiveParameters {
    /// How the weight of the load follows the fleet.
    #[parameter(default)]
    algorithm: Algorithm,
    /// Milliseconds between two looks at the weight.
    #[parameter(default = 100, min = 1)]
    update_interval_ms: u64,
    /// What a new measurement weighs against those before.
    #[parameter(default = 0.2, above = 0.0, max = 1.0)]
    smoothing: f64,
    /// How far the weight moves at a time.
    #[parameter(default = 0.1, above = 0.0, max = 1.0)]
    max_step: f64,
    /// The least weight of the load.
    #[parameter(default = 0.1, above = 0.0, below = 1.0)]
    distribution_min: f64,
    /// The greatest weight where all workers are busy.
    #[parameter(default = 0.5, above = 0.0, below = 1.0)]
    pressure_max: f64,
    /// The greatest weight.
    #[parameter(default = 0.9, above = 0.0, below = 1.0)]
    distribution_max: f64,
    /// The imbalance in the middle.
    #[parameter(default = 0.35, above = 0.0, below = 1.0)]
    midpoint: f64,
    /// How steep the logistic is.
    #[parameter(default = 8.0, min = 0.1, max = 100.0)]
    slope: f64,
    /// Active requests that are much.
    #[parameter(default = 8.0, min = 1.0)]
    load_scale: f64,
    /// The seed of the lots; the partition's unless given.
    seed: Option<u64>,
}

/// How the weight of the load follows the fleet.
#[derive(Clone, Copy, Debug, Default, Parameters)]
pub enum Algorithm {
    /// Steps up while the load is uneven, and back by shares once it is even.
    #[default]
    Aimd,
    /// By a logistic of how uneven the load is.
    Sigmoid,
}

/// The policy.
pub struct Adaptive {
    controller: Controller,
    rng: Rng,
    costs: Vec<f64>,
}

impl Policy for Adaptive {
    type Parameters = AdaptiveParameters;
    const NAME: &'static str = "adaptive";
    const DESCRIPTION: &'static str =
        "Weighs a warm cache against an even load, more towards the load while it is uneven.";

    fn configure(setup: &Setup, given: AdaptiveParameters) -> Result<Self, PolicyError> {
        let settings = Settings {
            algorithm: given.algorithm,
            update_interval_ms: given.update_interval_ms as f64,
            smoothing: given.smoothing,
            max_step: given.max_step,
            distribution_min: given.distribution_min,
            pressure_max: given.pressure_max,
            distribution_max: given.distribution_max,
            midpoint: given.midpoint,
            slope: given.slope,
            load_scale: given.load_scale,
        };
        check(&settings)?;
        let seed = given.seed.unwrap_or(u64::from(setup.partition.seed));
        Ok(Self { controller: Controller::new(settings), rng: Rng::with_seed(seed), costs: Vec::new() })
    }
}

impl Picker for Adaptive {
    fn reads(&self) -> Reads {
        Reads::from(Fact::NowMs)
            | Fact::Blocks
            | Fact::TracksPrefillTokens
            | Signal::CacheDeviceOverlapBlocks
            | Signal::LoadActiveRequests
    }

    fn pick(&mut self, request: &Request<'_>, workers: &Candidates<'_>) -> Result<usize, PolicyError> {
        let active = workers.column(Signal::LoadActiveRequests)?;
        let cached = workers.column(Signal::CacheDeviceOverlapBlocks)?;
        let weight = self.controller.weight(request.now_ms()?, active);
        let (least, most) = bounds(active);
        let scale = self.controller.settings.load_scale + (most - least);
        // Where there is no prefill, there is none to save.
        let blocks = if request.tracks_prefill_tokens()? { request.request_blocks()? } else { 0.0 };
        let affinity = |cached: f64| {
            let share = if blocks > 0.0 { cached / blocks } else { 0.0 };
            if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
        };
        self.costs.clear();
        self.costs.extend(
            active.iter().zip(cached).map(|(active, cached)| {
                (1.0 - weight) * (1.0 - affinity(*cached)) + weight * ((active - least) / scale)
            }),
        );
        let row = lowest_drawing(&self.costs, |ties| self.rng.u64(0..ties));
        row.ok_or_else(|| PolicyError::failed("no eligible worker"))
    }
}

pointsman_sdk::export!(Adaptive: picker);

#[cfg(test)]
mod tests {
    use pointsman_sdk::testkit::{Kit, Table};

    use super::*;

    /// A decision at that time, over workers with so many active requests and cached blocks of 4.
    fn table(now_ms: f64, tracks: f64, rows: &[(f64, f64)]) -> Table {
        let facts = [("request.now-ms", now_ms), ("request.blocks", 4.0), ("request.tracks-prefill-tokens", tracks)];
        let table = facts.into_iter().fold(Table::new(), |table, (name, value)| table.fact(name, value));
        rows.iter().fold(table, |table, (active, cached)| {
            table.row(&[("load.active-requests", *active), ("cache.device-overlap-blocks", *cached)])
        })
    }

    #[test]
    fn a_warm_worker_wins_until_it_is_the_only_one_that_works() {
        let mut guest = Kit::<Adaptive>::new().configure().unwrap();
        let hot = [(40.0, 4.0), (0.0, 0.0)];
        let rows: Vec<u32> = (0..40)
            .map(|interval| guest.decide(&table(f64::from(interval) * 100.0, 1.0, &hot)).unwrap().unwrap().row)
            .collect();
        assert_eq!(rows.first(), Some(&0));
        assert_eq!(rows.last(), Some(&1));
        assert_eq!(rows.windows(2).filter(|pair| pair[0] != pair[1]).count(), 1, "{rows:?}");
    }

    #[test]
    fn what_is_cached_counts_for_nothing_without_a_prefill() {
        let mut guest = Kit::<Adaptive>::new().configure().unwrap();
        assert_eq!(guest.decide(&table(0.0, 0.0, &[(1.0, 4.0), (0.0, 0.0)])).unwrap().unwrap().row, 1);
    }

    #[test]
    fn equals_are_drawn_from_the_seed() {
        let picks = |parameters: &str| -> Vec<u32> {
            let mut guest = Kit::<Adaptive>::new().parameters(parameters).configure().unwrap();
            let alike = table(0.0, 1.0, &[(1.0, 2.0); 4]);
            (0..32).map(|_| guest.decide(&alike).unwrap().unwrap().row).collect()
        };
        assert_eq!(picks(r#"{"seed":7}"#), picks(r#"{"seed":7}"#));
        assert_ne!(picks(r#"{"seed":7}"#), picks(r#"{"seed":8}"#));
        assert!((0..4).all(|row| picks(r#"{"seed":7}"#).contains(&row)));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (given, sentence) in [
            (
                r#"{"pressure_max":0.95}"#,
                "pressure_max must be between distribution_min (0.1) and distribution_max (0.9), and is 0.95",
            ),
            (r#"{"smoothing":0}"#, "smoothing must be above 0 and at most 1"),
            (r#"{"distribution_max":1}"#, "distribution_max must be above 0 and below 1"),
            (r#"{"slope":200}"#, "slope must be between 0.1 and 100"),
            (r#"{"update_interval_ms":0}"#, "update_interval_ms must be at least 1"),
            (r#"{"algorithm":"pid"}"#, "algorithm: expected `aimd` or `sigmoid`, found `pid`"),
        ] {
            let refused = Kit::<Adaptive>::new().parameters(given).configure().err();
            assert_eq!(refused.as_deref(), Some(sentence));
        }
    }
}
