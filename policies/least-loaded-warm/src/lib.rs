//! The worker with the fewest active requests, of equals the one with most of the prompt cached.
//!
//! | parameter | values | meaning |
//! |---|---|---|
//! | `cache_weight` | 0 to 1, 0.5 unless given | active requests that a wholly cached prompt weighs as much as |
#![forbid(unsafe_code)]

use pointsman_sdk::prelude::*;

/// The policy's parameters.
#[derive(Parameters)]
pub struct LeastLoadedWarmParameters {
    /// Active requests that a wholly cached prompt weighs as much as; below 1 it only breaks ties.
    #[parameter(default = 0.5, min = 0.0, max = 1.0)]
    cache_weight: f64,
}

/// The policy.
pub struct LeastLoadedWarm {
    cache_weight: f64,
}

impl Policy for LeastLoadedWarm {
    type Parameters = LeastLoadedWarmParameters;
    const NAME: &'static str = "least-loaded-warm";
    const DESCRIPTION: &'static str =
        "Takes the worker with the fewest active requests, of equals the one with most of the prompt cached.";

    fn configure(_: &Setup, parameters: LeastLoadedWarmParameters) -> Result<Self, PolicyError> {
        Ok(Self { cache_weight: parameters.cache_weight })
    }
}

impl Scorer for LeastLoadedWarm {
    fn reads(&self) -> Reads {
        Reads::from(Fact::Blocks) | Signal::LoadActiveRequests | Signal::CacheOverlapBlocks
    }

    fn score(&mut self, request: &Request<'_>, workers: &Candidates<'_>, costs: &mut [f64]) -> Result<(), PolicyError> {
        let blocks = request.request_blocks()?.max(1.0);
        let requests = workers.column(Signal::LoadActiveRequests)?;
        let cached = workers.column(Signal::CacheOverlapBlocks)?;
        for ((cost, requests), cached) in costs.iter_mut().zip(requests).zip(cached) {
            *cost = requests - self.cache_weight * cached / blocks;
        }
        Ok(())
    }
}

pointsman_sdk::export!(LeastLoadedWarm: scorer);

#[cfg(test)]
mod tests {
    use pointsman_sdk::testkit::{Kit, Table};

    use super::*;

    fn row(requests: f64, cached: f64) -> [(&'static str, f64); 2] {
        [("load.active-requests", requests), ("cache.overlap-blocks", cached)]
    }

    #[test]
    fn the_cache_breaks_ties_and_no_more() {
        let mut guest = Kit::<LeastLoadedWarm>::new().configure().unwrap();
        let table = Table::new().fact("request.blocks", 4.0);
        let table = table.row(&row(3.0, 4.0)).row(&row(2.0, 0.0)).row(&row(2.0, 1.0));
        assert_eq!(guest.score(&table).unwrap(), [2.5, 2.0, 1.875]);
        assert_eq!(guest.decide(&table).unwrap().unwrap().row, 2);
    }

    #[test]
    fn a_weight_is_a_share_of_a_request() {
        let refused = Kit::<LeastLoadedWarm>::new().parameters(r#"{"cache_weight":1.5}"#).configure().err();
        assert_eq!(refused.as_deref(), Some("cache_weight must be between 0 and 1"));
    }
}
