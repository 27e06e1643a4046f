//! Routing: workers, signals, eligibility, the pipeline of a policy, reservations and their configuration.
//!
//! One decision, start to end: a request comes to its [`Partition`], the host's hard rules leave the eligible rows, the
//! candidate table packs what the policy declared, the policy answers, the host checks the answer; the caller books it
//! with [`Partition::reserve`]. No network and no clock: time comes with each request.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod config;

mod active_blocks;
mod admission;
mod breaker;
mod candidates;
mod change;
mod eligibility;
mod error;
mod given;
mod guest;
mod hosted;
mod member;
mod partition;
mod pipeline;
mod plan;
mod registry;
mod request;
mod reservation;
mod router;
mod smoke;
mod snapshot;
mod snapshot_policy;
mod sync;
mod table;
mod tap;
mod tenant;
mod version;
mod vocabulary;
mod worker;

pub use admission::{
    AdmissionController, AdmissionHost, AdmissionOutcome, AdmissionSetup, HostedClassifier, QueuedRequest, Submission,
};
pub use breaker::{BreakerSettings, BreakerState};
pub use change::{Activation, Loaded};
pub use error::{DecideError, RouterError};
pub use given::{GivenAnswer, GivenPolicy, GivenTable};
pub use hosted::{HostedDecision, HostedPolicy, HostedTable};
pub use partition::{Counts, Decision, Partition};
pub use pipeline::{Explanation, StageMode};
pub use pointsman_admission::WorkerKey;
pub use pointsman_contract::{Fact, Inputs, Role, RouterConfig, Signal, Stages, Text, Trigger, prefill_cost_tokens};
pub use registry::{DEFAULT, Provider};
pub use request::{Affinity, Request, Session, WorkerOverlap};
pub use reservation::ReservationId;
pub use router::{
    AdmissionSettings, ClassifierSettings, InstanceSpec, PartitionKey, Router, RouterBuilder, guest_seed,
};
pub use snapshot::{Column, ExtraNames, Snapshot};
pub use snapshot_policy::{Rebuild, SnapshotPolicy};
pub use table::Rows;
pub use tap::{GuestState, Layout, MemberSpec, Observed, PolicySpec, PolicyState, SnapshotDecision, Tap, Told};
pub use tenant::TenantUsage;
pub use version::{ArtifactStatus, VersionStatus};
pub use vocabulary::Stage;
pub use worker::{Load, WorkerConfig};
