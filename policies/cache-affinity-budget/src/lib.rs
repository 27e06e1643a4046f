//! The longest cached prefix among the workers whose load is near the lowest: Dynamo's example
//! `cache-affinity-budget`.
//!
//! - scorer: load in KV blocks = `prefill_load_scale` × active prefill tokens / block size + decode cost blocks +
//!   `decode_active_request_weight` × active requests. Both weights are the router's settings.
//! - picker: of the rows whose load is at most the lowest plus `max_load_cost_delta_blocks`, the one with the greatest effective
//!   overlap, in which host memory and disk count by the router's weights. Equal overlaps take the lower load, then the
//!   first row.
//!
//! So the cache is worth a bounded amount of load and no more: not another weight in a sum, but a budget.
//!
//! | parameter | unit | default | range |
//! |---|---|---|---|
//! | `max_load_cost_delta_blocks` | KV blocks of load | required | 0 or more |
#![forbid(unsafe_code)]

use std::cmp::Ordering;

use pointsman_sdk::prelude::*;

/// The parameters.
#[derive(Parameters)]
pub struct Parameters {
    /// How far above the lowest load a worker may be, in KV blocks, to be taken for its cache.
    #[parameter(min = 0.0, rule = "a finite non-negative number")]
    max_load_cost_delta_blocks: f64,
}

/// The policy.
pub struct CacheAffinityBudget {
    max_load_cost_delta_blocks: f64,
    prefill_load_scale: f64,
    active_request_weight: f64,
}

impl Policy for CacheAffinityBudget {
    type Parameters = Parameters;
    const NAME: &'static str = "cache-affinity-budget";
    const DESCRIPTION: &'static str =
        "Takes the longest cached prefix among the workers whose load is near the lowest.";

    fn configure(setup: &Setup, Parameters { max_load_cost_delta_blocks }: Parameters) -> Result<Self, PolicyError> {
        Ok(Self {
            max_load_cost_delta_blocks,
            prefill_load_scale: setup.router_config.prefill_load_scale,
            active_request_weight: setup.router_config.decode_active_request_weight,
        })
    }
}

impl Scorer for CacheAffinityBudget {
    fn reads(&self) -> Reads {
        // What weighs nothing is not asked for.
        let mut reads = Reads::from(Signal::LoadDecodeCostBlocks);
        if self.prefill_load_scale != 0.0 {
            reads = reads | Signal::LoadActivePrefillTokens;
        }
        if self.active_request_weight != 0.0 {
            reads = reads | Signal::LoadActiveRequests;
        }
        reads
    }

    fn score(&mut self, request: &Request<'_>, workers: &Candidates<'_>, costs: &mut [f64]) -> Result<(), PolicyError> {
        costs.copy_from_slice(workers.column(Signal::LoadDecodeCostBlocks)?);
        if self.prefill_load_scale != 0.0 {
            let block_size = f64::from(request.block_size());
            for (cost, tokens) in costs.iter_mut().zip(workers.column(Signal::LoadActivePrefillTokens)?) {
                *cost += self.prefill_load_scale * (tokens / block_size);
            }
        }
        if self.active_request_weight != 0.0 {
            for (cost, active) in costs.iter_mut().zip(workers.column(Signal::LoadActiveRequests)?) {
                *cost += self.active_request_weight * active;
            }
        }
        Ok(())
    }
}

impl Picker for CacheAffinityBudget {
    fn reads(&self) -> Reads {
        Reads::COST | Signal::CacheEffectiveOverlapBlocks
    }

    fn pick(&mut self, _: &Request<'_>, workers: &Candidates<'_>) -> Result<usize, PolicyError> {
        let costs = workers.costs()?;
        let overlaps = workers.column(Signal::CacheEffectiveOverlapBlocks)?;
        let lowest = costs.iter().copied().fold(f64::INFINITY, f64::min);

        let most = lowest + self.max_load_cost_delta_blocks;
        let rows = costs.iter().zip(overlaps).enumerate().filter(|(_, (cost, _))| **cost <= most);
        // The first of equal rows: `min_by` keeps it, `max_by` would keep the last.
        rows.min_by(|(_, (cost, overlap)), (_, (other_cost, other_overlap))| match other_overlap.total_cmp(overlap) {
            Ordering::Equal => cost.total_cmp(other_cost),
            longer_first => longer_first,
        })
        .map(|(row, _)| row)
        .ok_or_else(|| PolicyError::failed("no worker within the load budget"))
    }
}

pointsman_sdk::export!(CacheAffinityBudget: scorer, picker);

#[cfg(test)]
mod tests {
    use pointsman_sdk::RouterConfig;
    use pointsman_sdk::testkit::{Guest, Kit, Table};

    use super::*;

    fn guest(budget: f64, router_config: RouterConfig) -> Guest {
        let parameters = format!(r#"{{"max_load_cost_delta_blocks":{budget}}}"#);
        let kit = Kit::<CacheAffinityBudget>::new().block_size(16).router_config(router_config);
        kit.parameters(&parameters).configure().unwrap()
    }

    /// The row picked among workers of (effective overlap, decode cost blocks).
    fn pick(budget: f64, workers: &[(f64, f64)]) -> u32 {
        let table = workers.iter().fold(Table::new(), |table, (overlap, blocks)| {
            table.row(&[("cache.effective-overlap-blocks", *overlap), ("load.decode-cost-blocks", *blocks)])
        });
        guest(budget, RouterConfig::default()).decide(&table).unwrap().unwrap().row
    }

    #[test]
    fn load_adds_prefill_decode_and_requests_by_the_routers_weights() {
        let table = Table::new().row(&[]).row(&[
            ("load.active-prefill-tokens", 64.0),
            ("load.decode-cost-blocks", 5.0),
            ("load.active-requests", 3.0),
        ]);
        let default = RouterConfig::default();
        assert_eq!(guest(0.0, default).score(&table).unwrap(), [0.0, 9.0]);
        let weighted = RouterConfig { prefill_load_scale: 0.5, decode_active_request_weight: 2.0, ..default };
        assert_eq!(guest(0.0, weighted).score(&table).unwrap(), [0.0, 13.0]);
        let unweighted = RouterConfig { prefill_load_scale: 0.0, decode_active_request_weight: 0.0, ..default };
        assert_eq!(guest(0.0, unweighted).score(&table).unwrap(), [0.0, 5.0]);
    }

    #[test]
    fn what_weighs_nothing_is_not_read() {
        let signals = |config| guest(0.0, config).inputs().score.clone().unwrap().signals;
        let default = RouterConfig::default();
        assert_eq!(signals(default), ["load.active-prefill-tokens", "load.decode-cost-blocks"]);
        assert_eq!(
            signals(RouterConfig { prefill_load_scale: 0.0, decode_active_request_weight: 64.0, ..default }),
            ["load.decode-cost-blocks", "load.active-requests"]
        );
    }

    #[test]
    fn the_longest_prefix_within_the_budget_wins() {
        assert_eq!(pick(40.0, &[(80.0, 50.0), (0.0, 10.0), (90.0, 51.0)]), 0);
    }

    #[test]
    fn a_prefix_beyond_the_budget_does_not_count() {
        assert_eq!(pick(39.0, &[(80.0, 50.0), (0.0, 10.0)]), 1);
        assert_eq!(pick(0.0, &[(80.0, 11.0), (0.0, 10.0), (3.0, 10.0)]), 2);
    }

    #[test]
    fn the_budget_is_added_to_the_lowest_load() {
        // In f64, 0.1 + 0.2 is this load, and this load less 0.1 is more than 0.2.
        assert_eq!(pick(0.2, &[(0.0, 0.1), (8.0, 0.30000000000000004)]), 1);
        assert_eq!(pick(0.2, &[(0.0, 0.1), (8.0, 0.3000000000000001)]), 0);
    }

    #[test]
    fn equal_prefixes_take_the_lower_load_then_the_first_row() {
        assert_eq!(pick(40.0, &[(8.0, 30.0), (8.0, 20.0), (8.0, 20.0), (7.0, 0.0)]), 1);
    }

    #[test]
    fn the_budget_is_required_finite_and_not_negative() {
        let refusal = |json: &str| Kit::<CacheAffinityBudget>::new().parameters(json).configure().err().unwrap();
        assert_eq!(
            refusal(r#"{"max_load_cost_delta_blocks":-1}"#),
            "max_load_cost_delta_blocks must be a finite non-negative number"
        );
        assert_eq!(refusal("{}"), "missing parameter `max_load_cost_delta_blocks`");
        assert!(refusal(r#"{"max_load_cost_delta_blocks":1,"scale":1}"#).contains("`scale`"));
    }
}
