//! The worker with the fewest active requests, the first among equals.
#![forbid(unsafe_code)]

use pointsman_sdk::prelude::*;

/// The policy.
pub struct LeastLoaded;

impl Policy for LeastLoaded {
    type Parameters = NoParameters;
    const NAME: &'static str = "least-loaded";
    const DESCRIPTION: &'static str = "Takes the worker with the fewest active requests.";

    fn configure(_: &Setup, _: NoParameters) -> Result<Self, PolicyError> {
        Ok(Self)
    }
}

impl Scorer for LeastLoaded {
    fn reads(&self) -> Reads {
        Signal::LoadActiveRequests.into()
    }

    fn score(&mut self, _: &Request<'_>, workers: &Candidates<'_>, costs: &mut [f64]) -> Result<(), PolicyError> {
        costs.copy_from_slice(workers.column(Signal::LoadActiveRequests)?);
        Ok(())
    }
}

pointsman_sdk::export!(LeastLoaded: scorer);
