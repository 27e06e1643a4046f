//! What the policy does, in one sentence.
#![forbid(unsafe_code)]

use pointsman_sdk::prelude::*;

//[filter
/// The policy's parameters.
#[derive(Parameters)]
pub struct GivenParameters {
    /// The active requests at which a worker gets no further one.
    #[parameter(default = 64, min = 1)]
    max_requests: u32,
}

//]
/// The policy: one for each routing partition, whose state lives from decision to decision.
//[filter
pub struct NewPolicy {
    max_requests: f64,
}
//]
//[no filter
pub struct NewPolicy;
//]

impl Policy for NewPolicy {
    //[filter
    type Parameters = GivenParameters;
    //]
    //[no filter
    type Parameters = NoParameters;
    //]
    const NAME: &'static str = "new-policy";
    const DESCRIPTION: &'static str = "What the policy does, in one sentence.";

    //[filter
    fn configure(_: &Setup, parameters: GivenParameters) -> Result<Self, PolicyError> {
        Ok(Self { max_requests: f64::from(parameters.max_requests) })
    }
    //]
    //[no filter
    fn configure(_: &Setup, _: NoParameters) -> Result<Self, PolicyError> {
        Ok(Self)
    }
    //]
}
//[filter

impl Filter for NewPolicy {
    fn reads(&self) -> Reads {
        Signal::LoadActiveRequests.into()
    }

    fn keep(&mut self, _: &Request<'_>, workers: &Candidates<'_>, keep: &mut [bool]) -> Result<(), PolicyError> {
        for (keep, requests) in keep.iter_mut().zip(workers.column(Signal::LoadActiveRequests)?) {
            *keep = *requests < self.max_requests;
        }
        Ok(())
    }
}
//]
//[score

impl Scorer for NewPolicy {
    fn reads(&self) -> Reads {
        Signal::LoadActiveRequests.into()
    }

    fn score(&mut self, _: &Request<'_>, workers: &Candidates<'_>, costs: &mut [f64]) -> Result<(), PolicyError> {
        costs.copy_from_slice(workers.column(Signal::LoadActiveRequests)?);
        Ok(())
    }
}
//]
//[pick

impl Picker for NewPolicy {
    fn reads(&self) -> Reads {
        Reads::COST | Signal::CacheOverlapBlocks
    }

    /// The lowest cost; of equals the worker with most of the prompt cached, of those the first.
    fn pick(&mut self, _: &Request<'_>, workers: &Candidates<'_>) -> Result<usize, PolicyError> {
        let (costs, cached) = (workers.costs()?, workers.column(Signal::CacheOverlapBlocks)?);
        let rows = costs.iter().zip(cached).enumerate();
        let best = rows.reduce(|best, next| {
            let ((_, (least, most)), (_, (cost, cached))) = (best, next);
            if cost < least || (cost == least && cached > most) { next } else { best }
        });
        best.map(|(row, _)| row).ok_or_else(|| PolicyError::failed("there is no worker"))
    }
}
//]

pointsman_sdk::export!(NewPolicy: STAGES);
