//! A policy for measuring: the lowest weighted sum of the first so many load and cache signals.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

use pointsman_sdk::lanes::apply;
use pointsman_sdk::lowest;
use pointsman_sdk::prelude::*;

const SIGNALS: [Signal; 8] = [
    Signal::LoadActiveRequests,
    Signal::LoadActivePrefillTokens,
    Signal::LoadDecodeCostBlocks,
    Signal::CacheOverlapBlocks,
    Signal::CacheHostOverlapBlocks,
    Signal::CacheDiskOverlapBlocks,
    Signal::CacheEstimatedCachedTokens,
    Signal::LoadAvailable,
];
const WEIGHTS: [f64; 8] = [3.0, 0.0625, 1.0, -1.0, -0.75, -0.25, -0.03125, 0.5];

/// The parameters.
#[derive(Clone, Debug, Parameters)]
pub struct Signals {
    /// How many signals are summed.
    #[parameter(min = 1, max = 8)]
    signals: u32,
}

/// The policy.
pub struct WeightedSum {
    signals: usize,
}

impl Policy for WeightedSum {
    type Parameters = Signals;
    const NAME: &'static str = "weighted-sum";
    const DESCRIPTION: &'static str = "Takes the worker of the lowest weighted sum of signals.";

    fn configure(_: &Setup, parameters: Signals) -> Result<Self, PolicyError> {
        Ok(Self { signals: parameters.signals as usize })
    }
}

impl Scorer for WeightedSum {
    fn reads(&self) -> Reads {
        SIGNALS.iter().take(self.signals).fold(Reads::NONE, |reads, signal| reads | *signal)
    }

    fn score(&mut self, _: &Request<'_>, candidates: &Candidates<'_>, costs: &mut [f64]) -> Result<(), PolicyError> {
        costs.fill(0.0);
        let (signals, weights) = (SIGNALS.split_at(self.signals).0, WEIGHTS.split_at(self.signals).0);
        let ((signals, further), (weights, further_weights)) = (signals.as_chunks::<4>(), weights.as_chunks::<4>());
        // A pass over the rows for four signals, as the built-in policies have one for several.
        for ([a, b, c, d], weights) in signals.iter().zip(weights) {
            let column = |signal: &Signal| candidates.column(*signal);
            apply(costs, [column(a)?, column(b)?, column(c)?, column(d)?], |cost, values| {
                cost + weights[0] * values[0] + weights[1] * values[1] + weights[2] * values[2] + weights[3] * values[3]
            });
        }
        for (signal, weight) in further.iter().zip(further_weights) {
            apply(costs, [candidates.column(*signal)?], |cost, [value]| cost + weight * value);
        }
        Ok(())
    }
}

impl Picker for WeightedSum {
    fn pick(&mut self, _: &Request<'_>, candidates: &Candidates<'_>) -> Result<usize, PolicyError> {
        lowest(candidates.costs()?).ok_or_else(|| PolicyError::failed("no cost is below infinity"))
    }
}

pointsman_sdk::export!(WeightedSum: scorer, picker);
