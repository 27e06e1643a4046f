//! What decides for a partition, and what did before.

use crate::breaker::BreakerState;
use crate::candidates::Needs;
use crate::member::Member;
use crate::pipeline::Pipeline;
use crate::router::PartitionKey;
use crate::tap::Told;

/// One policy of one partition, with the native default beside it.
pub(crate) struct Version {
    /// The instance's name, or `default`.
    pub(crate) name: String,
    pub(crate) policy: Pipeline,
    /// What its guests are told.
    pub(crate) told: Told,
    pub(crate) needs: Needs,
    pub(crate) reads_cache: bool,
    pub(crate) exclusive_affinity: bool,
    /// The native default, for when the policy fails; none where it is the policy.
    pub(crate) fallback: Option<Pipeline>,
    /// What makes two versions the same: artifacts, parameters, limits, settings.
    pub(crate) fingerprint: String,
    /// The configuration that it came with.
    pub(crate) generation: u64,
    pub(crate) activated_ms: f64,
}

impl Version {
    pub(crate) fn new(
        name: String,
        policy: Pipeline,
        told: Told,
        fallback: Option<Pipeline>,
        fingerprint: String,
    ) -> Self {
        Self {
            needs: policy.needs(),
            reads_cache: policy.reads_cache(),
            exclusive_affinity: policy.exclusive_affinity(),
            name,
            policy,
            told,
            fallback,
            fingerprint,
            generation: 0,
            activated_ms: 0.0,
        }
    }

    pub(crate) fn status(&self, partition: &PartitionKey, active: bool) -> VersionStatus {
        let artifact = |member: &Member| ArtifactStatus {
            instance: member.instance.clone(),
            digest: member.guest().digest(),
            breaker: member.guard().breaker_state(),
            quarantines: member.guard().quarantines(),
            guests_replaced: member.guest().replaced(),
        };
        VersionStatus {
            partition: partition.clone(),
            instance: self.name.clone(),
            artifacts: self.policy.members().iter().map(artifact).collect(),
            generation: self.generation,
            activated_ms: self.activated_ms,
            active,
        }
    }
}

/// One version of a partition's policy.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionStatus {
    /// The partition.
    pub partition: PartitionKey,
    /// The instance's name, or `default`.
    pub instance: String,
    /// What it is made of.
    pub artifacts: Vec<ArtifactStatus>,
    /// The configuration that it came with: 1 for the router's first.
    pub generation: u64,
    /// When it began to decide, in the milliseconds that its owner gave.
    pub activated_ms: f64,
    /// Whether it decides now; if not, it is kept for a roll-back and for `on_fault: last-good`.
    pub active: bool,
}

/// One instance of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactStatus {
    /// The instance's name.
    pub instance: String,
    /// SHA-256 of its component in lower-case hexadecimal; none for a policy that is compiled in.
    pub digest: Option<String>,
    /// Whether it is kept out.
    pub breaker: BreakerState,
    /// How often it was kept out, in all partitions.
    pub quarantines: u64,
    /// Guests that were built to replace one that failed; each has lost its state.
    pub guests_replaced: u64,
}
