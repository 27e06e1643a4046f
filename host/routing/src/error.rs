//! Why a request has no worker, and why a router cannot be built.

use pointsman_contract::Role;
use pointsman_sandbox::{LoadStep, Outcome};

use crate::vocabulary::Stage;

/// Why a request is refused. Nothing is booked. (Dynamo: `KvSchedulerError`.)
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecideError {
    /// No worker may serve the request.
    #[error("no worker of the partition may serve the request; add a worker or relax the request's rules")]
    NoEndpoints,
    /// Every worker that may serve the request is overloaded.
    #[error("every worker that may serve the request is overloaded; try again later or add workers")]
    AllEligibleWorkersOverloaded,
    /// The policy's filters kept no row.
    #[error("the policy's filters rejected every worker that may serve the request; relax the filter")]
    AllEligibleWorkersFiltered,
    /// The pinned worker is overloaded.
    #[error("pinned worker {worker} is overloaded; try again later or lift the pin")]
    PinnedWorkerOverloaded {
        /// The worker's id.
        worker: u64,
    },
    /// The caller pins a worker that its own list does not allow.
    #[error("pinned worker {worker} is not in the request's list of allowed workers; add it or lift the pin")]
    PinnedWorkerNotAllowed {
        /// The worker's id.
        worker: u64,
    },
    /// The policy failed, and its instance says that the request is then refused.
    #[error("policy instance `{instance}` failed at stage {stage} ({outcome}): {message}")]
    Refused {
        /// What kind of fault.
        outcome: Outcome,
        /// The stage that failed.
        stage: Stage,
        /// The instance that failed.
        instance: String,
        /// What happened, in one sentence.
        message: String,
    },
}

impl DecideError {
    /// The outcome of the policy's fault; none where no policy failed.
    #[must_use]
    pub const fn outcome(&self) -> Option<Outcome> {
        match self {
            Self::Refused { outcome, .. } => Some(*outcome),
            _ => None,
        }
    }

    /// The error's name in reports and metrics: Dynamo's in kebab case, or the fault's outcome.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NoEndpoints => "no-endpoints",
            Self::AllEligibleWorkersOverloaded => "all-eligible-workers-overloaded",
            Self::AllEligibleWorkersFiltered => "all-eligible-workers-filtered",
            Self::PinnedWorkerOverloaded { .. } => "pinned-worker-overloaded",
            Self::PinnedWorkerNotAllowed { .. } => "pinned-worker-not-allowed",
            Self::Refused { outcome, .. } => outcome.as_str(),
        }
    }
}

/// Why a router or one of its partitions cannot be built or changed. (Dynamo: `WorkerSelectionPolicyRegistryError`.)
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RouterError {
    /// A provider is registered without a name.
    #[error("a policy type needs a name; register it under one such as `least-busy`")]
    EmptyName,
    /// A provider is registered under the name of the native default.
    #[error("the policy type `default` is reserved for the built-in default; register yours under another name")]
    ReservedDefault,
    /// A provider is registered under a name that is taken.
    #[error("the policy type `{name}` is registered already; register yours under another name")]
    Duplicate {
        /// The type's name.
        name: String,
    },
    /// An instance names a type that nobody registered.
    #[error("instance `{instance}` names the unknown policy type `{name}`; available are {available}")]
    UnknownType {
        /// The instance's name.
        instance: String,
        /// The type's name.
        name: String,
        /// The registered types, sorted, or `<none>`.
        available: String,
    },
    /// A selection names an instance that the configuration does not hold.
    #[error("{place} names the unknown policy instance `{name}`; available are {available}")]
    UnknownInstance {
        /// Who names it.
        place: String,
        /// The instance's name.
        name: String,
        /// The configured instances, or `<none>`.
        available: String,
    },
    /// The configuration file has problems.
    #[error("{0}")]
    Config(String),
    /// A policy cannot be loaded, or refuses its parameters.
    #[error("policy instance `{instance}` of type `{policy_type}` cannot start: {message}")]
    Provider {
        /// The instance's name.
        instance: String,
        /// Its type.
        policy_type: String,
        /// How far the load came.
        step: LoadStep,
        /// What happened, in one sentence.
        message: String,
    },
    /// A tenant's instance is selected for a partition of others.
    #[error(
        "the instance `{instance}` belongs to the tenant `{tenant}`, which the routing group `{routing_group}` does not; \
         select another instance there"
    )]
    ForeignInstance {
        /// The instance's name.
        instance: String,
        /// Its tenant.
        tenant: String,
        /// The routing group that it was selected for.
        routing_group: String,
    },
    /// There is no earlier configuration to go back to.
    #[error("the router has had one configuration only; load and activate another before rolling back")]
    NoEarlierVersion,
    /// An entry of a pipeline lacks the stage that it is listed for.
    #[error(
        "{place} lists the instance `{instance}`, which has no stage {stage}; list an instance whose component exports it"
    )]
    MissingStage {
        /// The pipeline's list.
        place: String,
        /// The entry.
        instance: String,
        /// The stage that it lacks.
        stage: Stage,
    },
    /// A partition is asked for with another block size than it has.
    #[error(
        "partition (model `{model}`, group `{routing_group}`, role {role}) has block size {has}, not {asked}; register its \
         workers with one block size"
    )]
    Conflict {
        /// The model.
        model: String,
        /// The routing group.
        routing_group: String,
        /// The role.
        role: Role,
        /// The partition's block size.
        has: u32,
        /// The block size asked for.
        asked: u32,
    },
    /// A block size of 0.
    #[error("a block size of 0 tokens is not possible; use the engine's, such as 16")]
    ZeroBlockSize,
    /// A worker without ranks.
    #[error("worker {worker} has no data-parallel rank; register it with at least 1")]
    NoRanks {
        /// The worker's id.
        worker: u64,
    },
    /// The sandbox cannot start.
    #[error("the sandbox cannot start: {0}")]
    Sandbox(String),
}
