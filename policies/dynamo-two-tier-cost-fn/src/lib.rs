//! Load first where it is out of balance, else the cache, else load: Dynamo's `dynamo-two-tier-cost-fn`.
//!
//! 1. Where the most and the least active requests are more than `balance_abs_threshold` apart and the most is more
//!    than `balance_rel_threshold` times the least, the least loaded worker is taken.
//! 2. Else, where the longest prefix on any device is more than `cache_threshold` of the request's blocks, the least
//!    loaded of the workers that hold exactly that much is taken.
//! 3. Else the least loaded worker is taken.
//!
//! Load is active requests. Prefixes are as reported by the device, never the router's estimate. Ties take the first
//! row. All three comparisons are strict.
//!
//! | parameter | unit | default | range |
//! |---|---|---|---|
//! | `cache_threshold` | share of the request's blocks | 0.5 | 0 to 1 |
//! | `balance_abs_threshold` | active requests | 32 | 0 or more |
//! | `balance_rel_threshold` | ratio | 1.1 | 1 or more |
#![forbid(unsafe_code)]

use pointsman_sdk::lowest;
use pointsman_sdk::prelude::*;

/// The parameters.
#[derive(Parameters)]
pub struct Parameters {
    /// The share of the request's blocks that a device must hold more than, for the cache to decide.
    #[parameter(default = 0.5, min = 0.0, max = 1.0, rule = "a finite number between 0.0 and 1.0")]
    cache_threshold: f64,
    /// The spread of active requests that must be exceeded for the load to decide first.
    #[parameter(default = 32)]
    balance_abs_threshold: u64,
    /// The ratio of the most to the least active requests that must be exceeded for the load to decide first.
    #[parameter(default = 1.1, min = 1.0, rule = "a finite number greater than or equal to 1.0")]
    balance_rel_threshold: f64,
}

/// The policy.
pub struct TwoTierCostFn {
    parameters: Parameters,
}

impl Policy for TwoTierCostFn {
    type Parameters = Parameters;
    const NAME: &'static str = "dynamo-two-tier-cost-fn";
    const DESCRIPTION: &'static str =
        "Takes the least loaded worker where load is out of balance, else the one with the longest cached prefix.";

    fn configure(_: &Setup, parameters: Parameters) -> Result<Self, PolicyError> {
        Ok(Self { parameters })
    }
}

impl TwoTierCostFn {
    fn out_of_balance(&self, load: &[f64]) -> bool {
        let least = load.iter().copied().fold(f64::INFINITY, f64::min);
        let most = load.iter().copied().fold(0.0, f64::max);
        most - least > self.parameters.balance_abs_threshold as f64
            && most > self.parameters.balance_rel_threshold * least
    }
}

impl Picker for TwoTierCostFn {
    fn reads(&self) -> Reads {
        Reads::from([Signal::CacheDeviceOverlapBlocks, Signal::LoadActiveRequests]) | Fact::Blocks
    }

    fn pick(&mut self, request: &Request<'_>, workers: &Candidates<'_>) -> Result<usize, PolicyError> {
        let load = workers.column(Signal::LoadActiveRequests)?;
        let overlap = workers.column(Signal::CacheDeviceOverlapBlocks)?;
        let blocks = request.request_blocks()?;

        let longest = overlap.iter().copied().fold(0.0, f64::max);
        let cached = blocks > 0.0 && longest / blocks > self.parameters.cache_threshold;
        let row = if cached && !self.out_of_balance(load) {
            let holders = load.iter().zip(overlap).enumerate().filter(|(_, (_, overlap))| **overlap == longest);
            holders.min_by(|(_, (one, _)), (_, (other, _))| one.total_cmp(other)).map(|(row, _)| row)
        } else {
            lowest(load)
        };
        row.ok_or_else(|| PolicyError::failed("no eligible worker"))
    }
}

pointsman_sdk::export!(TwoTierCostFn: picker);

#[cfg(test)]
mod tests {
    use pointsman_sdk::testkit::{Kit, Table};

    use super::*;

    /// The row picked for a request of ten blocks among workers of (device overlap, active requests).
    fn pick(parameters: &str, workers: &[(f64, f64)]) -> u32 {
        let table = workers.iter().fold(Table::new().fact("request.blocks", 10.0), |table, (overlap, active)| {
            table.row(&[("cache.device-overlap-blocks", *overlap), ("load.active-requests", *active)])
        });
        let mut guest = Kit::<TwoTierCostFn>::new().parameters(parameters).configure().unwrap();
        guest.decide(&table).unwrap().unwrap().row
    }

    fn refusal(parameters: &str) -> Option<String> {
        Kit::<TwoTierCostFn>::new().parameters(parameters).configure().err()
    }

    #[test]
    fn the_longest_prefix_beats_a_lighter_worker() {
        assert_eq!(pick("{}", &[(0.0, 0.0), (6.0, 4.0)]), 1);
    }

    #[test]
    fn of_the_longest_prefixes_the_least_loaded_wins_and_the_first_row_among_equals() {
        assert_eq!(pick("{}", &[(6.0, 5.0), (7.0, 4.0), (7.0, 2.0), (7.0, 2.0), (6.9, 0.0)]), 2);
    }

    #[test]
    fn a_share_at_the_threshold_leaves_it_to_the_load() {
        assert_eq!(pick("{}", &[(5.0, 4.0), (0.0, 1.0), (0.0, 1.0)]), 1);
        assert_eq!(pick(r#"{"cache_threshold":0.2}"#, &[(3.0, 4.0), (0.0, 1.0)]), 0);
    }

    #[test]
    fn an_empty_prompt_goes_by_load() {
        let table = Table::new().row(&[("cache.device-overlap-blocks", 3.0), ("load.active-requests", 1.0)]).row(&[]);
        let mut guest = Kit::<TwoTierCostFn>::new().configure().unwrap();
        assert_eq!(guest.decide(&table).unwrap().unwrap().row, 1);
    }

    #[test]
    fn load_decides_first_where_both_gates_are_passed() {
        // 33 apart passes the first gate, 32 does not.
        assert_eq!(pick("{}", &[(10.0, 33.0), (0.0, 0.0)]), 1);
        assert_eq!(pick("{}", &[(10.0, 32.0), (0.0, 0.0)]), 0);
        // 64 apart, but 704 is exactly 1.1 times 640.
        assert_eq!(pick("{}", &[(10.0, 704.0), (0.0, 640.0)]), 0);
        assert_eq!(pick("{}", &[(10.0, 705.0), (0.0, 640.0)]), 1);
    }

    #[test]
    fn the_gates_are_parameters() {
        assert_eq!(pick(r#"{"balance_abs_threshold":2}"#, &[(10.0, 3.0), (0.0, 0.0)]), 1);
        assert_eq!(pick(r#"{"balance_rel_threshold":2}"#, &[(10.0, 200.0), (0.0, 100.0)]), 0);
    }

    #[test]
    fn a_parameter_out_of_range_is_refused_by_name() {
        for json in [r#"{"cache_threshold":-0.1}"#, r#"{"cache_threshold":1.1}"#] {
            assert_eq!(refusal(json).as_deref(), Some("cache_threshold must be a finite number between 0.0 and 1.0"));
        }
        assert_eq!(
            refusal(r#"{"balance_rel_threshold":0.9}"#).as_deref(),
            Some("balance_rel_threshold must be a finite number greater than or equal to 1.0")
        );
        assert!(refusal(r#"{"balance_abs_threshold":-1}"#).unwrap().starts_with("balance_abs_threshold: "));
        assert_eq!(refusal(r#"{"cache_threshold":0,"balance_rel_threshold":1}"#), None);
    }

    #[test]
    fn an_unknown_parameter_is_refused_by_name() {
        assert!(refusal(r#"{"cache_affinity":1}"#).unwrap().starts_with("unknown parameter `cache_affinity`"));
    }
}
