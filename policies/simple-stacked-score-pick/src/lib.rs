//! Two preferences added up: Dynamo's example `simple-stacked-score-pick`.
//!
//! cost = active requests + blocks of the prompt that the worker's device does not hold. The lowest cost is taken, the
//! first row among equals.
//!
//! Dynamo's example is a stack of two scorers, whose costs the router adds. A component has one scorer, which adds them
//! itself; where the two ought to be configured apart, make them two components and stack them with a `pipeline`.
//!
//! No parameters.
#![forbid(unsafe_code)]

use pointsman_sdk::lowest;
use pointsman_sdk::prelude::*;

/// The policy.
pub struct SimpleStackedScorePick;

impl Policy for SimpleStackedScorePick {
    type Parameters = NoParameters;
    const NAME: &'static str = "simple-stacked-score-pick";
    const DESCRIPTION: &'static str = "Takes the worker with the fewest active requests and uncached blocks together.";

    fn configure(_: &Setup, _: NoParameters) -> Result<Self, PolicyError> {
        Ok(Self)
    }
}

impl Scorer for SimpleStackedScorePick {
    fn reads(&self) -> Reads {
        Reads::from([Signal::CacheDeviceOverlapBlocks, Signal::LoadActiveRequests]) | Fact::Blocks
    }

    fn score(&mut self, request: &Request<'_>, workers: &Candidates<'_>, costs: &mut [f64]) -> Result<(), PolicyError> {
        let blocks = request.request_blocks()?;
        let active_requests = workers.column(Signal::LoadActiveRequests)?;
        let overlap = workers.column(Signal::CacheDeviceOverlapBlocks)?;
        for ((cost, active), overlap) in costs.iter_mut().zip(active_requests).zip(overlap) {
            // The last block may be cached whole while the prompt fills a part of it.
            *cost = active + (blocks - overlap).max(0.0);
        }
        Ok(())
    }
}

impl Picker for SimpleStackedScorePick {
    fn pick(&mut self, _: &Request<'_>, workers: &Candidates<'_>) -> Result<usize, PolicyError> {
        lowest(workers.costs()?).ok_or_else(|| PolicyError::failed("no eligible worker"))
    }
}

pointsman_sdk::export!(SimpleStackedScorePick: scorer, picker);

#[cfg(test)]
mod tests {
    use pointsman_sdk::testkit::{Kit, Table};

    use super::*;

    #[test]
    fn active_requests_and_uncached_blocks_add_up() {
        let row = |overlap, active| [("cache.device-overlap-blocks", overlap), ("load.active-requests", active)];
        let table = Table::new()
            .fact("request.blocks", 10.0)
            .row(&row(0.0, 0.0))
            .row(&row(8.0, 5.0))
            .row(&row(10.0, 7.0))
            .row(&row(11.0, 8.0));
        let mut guest = Kit::<SimpleStackedScorePick>::new().configure().unwrap();
        assert_eq!(guest.score(&table).unwrap(), [10.0, 7.0, 7.0, 8.0]);
        // The lowest, the first row among equals.
        assert_eq!(guest.decide(&table).unwrap().unwrap().row, 1);
    }

    #[test]
    fn there_are_no_parameters() {
        let refusal = Kit::<SimpleStackedScorePick>::new().parameters(r#"{"weight":1}"#).configure().err();
        assert_eq!(refusal.as_deref(), Some("unknown parameter `weight`; this policy takes none"));
    }
}
