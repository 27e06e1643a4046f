//! Admission: policy-class queues, session affinity and the life of a request before it has a worker.
//!
//! No network, no clock and no sandbox: time comes with each call, and a classifier is a trait.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod profile;
mod queue;
mod worker_key;

pub use profile::{
    Bucket, ClassId, PolicyClass, Profile, ProfileError, ProfileFault, ProfilePlace, ProfileSpec, Profiles,
    QueueLimits, QueuePolicy, RowLoad, UnknownPolicyClass,
};
pub use queue::{
    Arrival, EntryId, Lane, LimitKind, PolicyQueue, Pushed, QueueRejection, Queued, RefusalReason, Refused,
    RequestTokens, Usage,
};
pub use worker_key::WorkerKey;
