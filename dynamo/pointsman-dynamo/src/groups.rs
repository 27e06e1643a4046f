//! What a policy reads, by name -> the groups of inputs that Dynamo is asked for.

use dynamo_kv_router::plugins::worker_selection::WorkerInputs;
use pointsman_routing::{Fact, Inputs, Signal};

/// Signals that Dynamo 1.6.1 shows no policy.
const WITHHELD: [Signal; 4] =
    [Signal::WorkerTotalKvBlocks, Signal::WorkerMaxNumBatchedTokens, Signal::LoadDecodeBlocks, Signal::LoadAddedBlocks];

/// The groups of each of Dynamo's stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Groups {
    pub(crate) filter: WorkerInputs,
    /// Scorer and picker together.
    pub(crate) rest: WorkerInputs,
}

impl Groups {
    pub(crate) fn of(inputs: &Inputs) -> Self {
        let [filter, score, pick] = [&inputs.filter, &inputs.score, &inputs.pick].map(|reads| {
            let Some(reads) = reads else { return WorkerInputs::NONE };
            let tiers = reads.facts.iter().any(|fact| fact == Fact::HasTierMatches.name());
            let start = if tiers { WorkerInputs::CACHE } else { WorkerInputs::NONE };
            reads.signals.iter().fold(start, |groups, signal| groups | group(signal))
        });
        Self { filter, rest: score | pick }
    }
}

fn group(signal: &str) -> WorkerInputs {
    let of_cache = Signal::from_name(signal).is_some_and(Signal::is_of_cache);
    let start = if of_cache { WorkerInputs::CACHE } else { WorkerInputs::NONE };
    start
        | match signal.split_once('.') {
            Some(("load", _)) => WorkerInputs::LOAD,
            Some(("taint", _)) => WorkerInputs::PREFERRED_TAINT,
            _ => WorkerInputs::NONE,
        }
}

/// Refuses a policy that reads what Dynamo does not have. The router refuses `metric.` and `label.` names already.
pub(crate) fn check(inputs: &Inputs) -> Result<(), String> {
    let stages = [("filter", &inputs.filter), ("score", &inputs.score), ("pick", &inputs.pick)];
    for (stage, reads) in stages {
        let mut signals = reads.iter().flat_map(|reads| &reads.signals);
        if let Some(name) = signals.find(|name| WITHHELD.iter().any(|withheld| withheld.name() == **name)) {
            return Err(format!(
                "stage {stage} reads the signal `{name}`, which Dynamo 1.6.1 does not show to policies; configure or \
                 write the policy to do without it"
            ));
        }
    }
    Ok(())
}
