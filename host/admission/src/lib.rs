//! Admission: policy-class queues, session affinity and the life of a request before it has a worker.
//!
//! No network, no clock and no sandbox: time comes with each call, and a classifier is a trait.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod affinity;
mod classifier;
mod error;
mod lifecycle;
mod profile;
mod queue;
mod time;
mod worker_key;

pub use affinity::{
    Acquired, AffinityError, AffinityMode, AffinityTarget, BindingVersion, Lease, MAX_SESSION_ID_BYTES,
    MAX_SESSION_TTL_SECS, MAX_SESSIONS, ReplicaOutcome, SessionAffinity,
};
pub use classifier::{Classifier, ClassifierFault, ClassifyRequest, ClassifySession};
pub use error::{AdmissionError, OverloadStatus, Surface};
pub use lifecycle::{
    End, LifecycleCounts, LifecycleId, LifecycleRules, Lifecycles, OnFault, Outcome, Purpose, Submitted,
};
pub use profile::{
    Bucket, ClassId, PolicyClass, Profile, ProfileError, ProfileFault, ProfilePlace, ProfileSpec, Profiles,
    QueueLimits, QueuePolicy, RowLoad, UnknownPolicyClass,
};
pub use queue::{
    Arrival, EntryId, Lane, LimitKind, PolicyQueue, Pushed, QueueRejection, Queued, RefusalReason, Refused,
    RequestTokens, Usage,
};
pub use worker_key::WorkerKey;
