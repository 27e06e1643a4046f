//! One policy for both pools of disaggregated serving: Dynamo's example `disagg-filter-score-pick`.
//!
//! - filter: a worker may serve the request if its device holds at least `min_device_overlap_blocks` of the prompt.
//! - scorer of a prefill pool: active prefill tokens / block size + blocks of the prompt that the device does not hold.
//! - scorer of a decode pool: decode cost blocks, those of active requests and those that this request would add.
//! - picker: the lowest cost, the first row among equals. In a pool of another role it answers an error for each
//!   request.
//!
//! | parameter | unit | default | range |
//! |---|---|---|---|
//! | `min_device_overlap_blocks` | KV blocks | required | 0 or more |
#![forbid(unsafe_code)]

use pointsman_sdk::lowest;
use pointsman_sdk::prelude::*;

/// The parameters.
#[derive(Parameters)]
pub struct Parameters {
    /// The blocks of the prompt that a worker's device must hold to serve it.
    #[parameter(min = 0.0, rule = "a finite non-negative number")]
    min_device_overlap_blocks: f64,
}

/// The policy.
pub struct DisaggFilterScorePick {
    role: Role,
    min_device_overlap_blocks: f64,
}

impl Policy for DisaggFilterScorePick {
    type Parameters = Parameters;
    const NAME: &'static str = "disagg-filter-score-pick";
    const DESCRIPTION: &'static str =
        "Takes the prefill worker with the least prefill work, and the decode worker with the fewest decode blocks.";

    fn configure(setup: &Setup, Parameters { min_device_overlap_blocks }: Parameters) -> Result<Self, PolicyError> {
        Ok(Self { role: setup.partition.role, min_device_overlap_blocks })
    }
}

impl Filter for DisaggFilterScorePick {
    fn reads(&self) -> Reads {
        // A minimum of 0 keeps every row: then a decode pool needs no cache signal at all.
        if self.min_device_overlap_blocks > 0.0 { Signal::CacheDeviceOverlapBlocks.into() } else { Reads::NONE }
    }

    fn keep(&mut self, _: &Request<'_>, workers: &Candidates<'_>, keep: &mut [bool]) -> Result<(), PolicyError> {
        if self.min_device_overlap_blocks > 0.0 {
            for (keep, overlap) in keep.iter_mut().zip(workers.column(Signal::CacheDeviceOverlapBlocks)?) {
                *keep = *overlap >= self.min_device_overlap_blocks;
            }
        } else {
            keep.fill(true);
        }
        Ok(())
    }
}

impl Scorer for DisaggFilterScorePick {
    fn reads(&self) -> Reads {
        match self.role {
            Role::Prefill => {
                Reads::from([Signal::LoadActivePrefillTokens, Signal::CacheDeviceOverlapBlocks]) | Fact::Blocks
            }
            Role::Decode => Signal::LoadDecodeCostBlocks.into(),
            Role::Aggregated | Role::Encode => Reads::NONE,
        }
    }

    fn score(&mut self, request: &Request<'_>, workers: &Candidates<'_>, costs: &mut [f64]) -> Result<(), PolicyError> {
        match self.role {
            Role::Prefill => {
                let (block_size, blocks) = (f64::from(request.block_size()), request.request_blocks()?);
                let active_tokens = workers.column(Signal::LoadActivePrefillTokens)?;
                let overlap = workers.column(Signal::CacheDeviceOverlapBlocks)?;
                for ((cost, active), overlap) in costs.iter_mut().zip(active_tokens).zip(overlap) {
                    *cost = active / block_size + (blocks - overlap).max(0.0);
                }
            }
            Role::Decode => costs.copy_from_slice(workers.column(Signal::LoadDecodeCostBlocks)?),
            Role::Aggregated | Role::Encode => costs.fill(0.0),
        }
        Ok(())
    }
}

impl Picker for DisaggFilterScorePick {
    fn pick(&mut self, _: &Request<'_>, workers: &Candidates<'_>) -> Result<usize, PolicyError> {
        match self.role {
            Role::Prefill | Role::Decode => {
                lowest(workers.costs()?).ok_or_else(|| PolicyError::failed("no eligible worker"))
            }
            Role::Aggregated | Role::Encode => Err(PolicyError::failed(format!(
                "disagg-filter-score-pick serves prefill and decode workers, not the role {}",
                self.role.as_str()
            ))),
        }
    }
}

pointsman_sdk::export!(DisaggFilterScorePick: filter, scorer, picker);

#[cfg(test)]
mod tests {
    use pointsman_sdk::testkit::{Guest, Kit, Table};

    use super::*;

    fn guest(role: Role, minimum: u32) -> Guest {
        let parameters = format!(r#"{{"min_device_overlap_blocks":{minimum}}}"#);
        Kit::<DisaggFilterScorePick>::new().role(role).block_size(16).parameters(&parameters).configure().unwrap()
    }

    fn table() -> Table {
        let row = |overlap, tokens, blocks| {
            [
                ("cache.device-overlap-blocks", overlap),
                ("load.active-prefill-tokens", tokens),
                ("load.decode-cost-blocks", blocks),
            ]
        };
        Table::new()
            .fact("request.blocks", 10.0)
            .row(&row(0.0, 0.0, 30.0))
            .row(&row(8.0, 96.0, 20.0))
            .row(&row(11.0, 128.0, 20.0))
    }

    #[test]
    fn a_prefill_worker_costs_its_work_and_the_uncached_blocks() {
        let mut guest = guest(Role::Prefill, 0);
        assert_eq!(guest.score(&table()).unwrap(), [10.0, 8.0, 8.0]);
        assert_eq!(guest.decide(&table()).unwrap().unwrap().row, 1);
    }

    #[test]
    fn a_decode_worker_costs_its_decode_blocks() {
        let mut guest = guest(Role::Decode, 0);
        assert_eq!(guest.score(&table()).unwrap(), [30.0, 20.0, 20.0]);
        assert_eq!(guest.decide(&table()).unwrap().unwrap().row, 1);
    }

    #[test]
    fn a_worker_below_the_minimum_may_not_serve() {
        for role in [Role::Prefill, Role::Decode] {
            assert_eq!(guest(role, 9).filter(&table()).unwrap(), [2]);
            assert_eq!(guest(role, 9).decide(&table()).unwrap().unwrap().row, 2);
            assert_eq!(guest(role, 12).decide(&table()).unwrap(), None);
            assert_eq!(guest(role, 0).filter(&table()).unwrap(), [0, 1, 2]);
        }
    }

    #[test]
    fn a_decode_pool_without_a_minimum_reads_nothing_of_the_cache() {
        let guest = guest(Role::Decode, 0);
        assert_eq!(guest.inputs().filter, None);
        assert_eq!(guest.inputs().score.as_ref().unwrap().signals, ["load.decode-cost-blocks"]);
    }

    #[test]
    fn another_role_is_an_error_of_each_request_that_names_it() {
        for role in [Role::Aggregated, Role::Encode] {
            assert_eq!(
                guest(role, 0).decide(&table()).unwrap_err(),
                format!("disagg-filter-score-pick serves prefill and decode workers, not the role {role}")
            );
        }
    }

    #[test]
    fn the_minimum_is_required_finite_and_not_negative() {
        let refusal = |json: &str| Kit::<DisaggFilterScorePick>::new().parameters(json).configure().err();
        assert_eq!(
            refusal(r#"{"min_device_overlap_blocks":-0.5}"#).as_deref(),
            Some("min_device_overlap_blocks must be a finite non-negative number")
        );
        assert!(refusal("{}").unwrap().contains("min_device_overlap_blocks"));
        assert!(refusal(r#"{"min_device_overlap_blocks":0,"role":1}"#).unwrap().contains("`role`"));
    }
}
