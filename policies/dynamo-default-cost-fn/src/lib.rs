//! Dynamo's default cost model: prefill work less cache credit, plus decode blocks.
//!
//! The costs equal those of `dynamo-custom-policy-builtin` 1.6.1 bit for bit: the same operations in the same order.
//! The choices equal those of its seeded selector at temperature 0; above, the exponential is libm's, which may differ
//! from the C library's in the last bit.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod parameters;
mod picker;
mod scorer;

use pointsman_sdk::prelude::*;

pub use parameters::Parameters;
use parameters::Weights;
use picker::Sampler;

/// The policy.
pub struct DynamoDefaultCostFn {
    weights: Weights,
    /// Every role but prefill counts as decode.
    decode: bool,
    /// A decode pool that never prefills: only load counts there.
    plain_decode: bool,
    /// 1 / block size, where the scorer's terms, for a tracked request, are those of the router's own settings. A block
    /// size that is a power of two: there, multiplying by the inverse is dividing, to the last bit and faster.
    usual: Option<f64>,
    sampler: Sampler,
}

impl Policy for DynamoDefaultCostFn {
    type Parameters = Parameters;
    const NAME: &'static str = "dynamo-default-cost-fn";
    const DESCRIPTION: &'static str =
        "Dynamo's default: the least prefill work after cache credit plus decode blocks, ties at random.";

    fn configure(setup: &Setup, parameters: Parameters) -> Result<Self, PolicyError> {
        let weights = parameters.resolve(&setup.router_config);
        let (role, block_size) = (setup.partition.role, setup.partition.block_size);
        let plain_decode = role == Role::Decode && !setup.router_config.conditional_disaggregation;
        Ok(Self {
            decode: role != Role::Prefill,
            plain_decode,
            usual: (!plain_decode && weights.are_usual() && block_size.is_power_of_two())
                .then(|| 1.0 / f64::from(block_size)),
            sampler: Sampler::new(weights.router_temperature, setup.partition.seed),
            weights,
        })
    }

    fn exclusive_affinity(&self) -> bool {
        true
    }
}

pointsman_sdk::export!(DynamoDefaultCostFn: scorer, picker);
