//! Admission: policy-class queues, session affinity and the life of a request before it has a worker.
//!
//! No network, no clock and no sandbox: time comes with each call, and a classifier is a trait.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod worker_key;

pub use worker_key::WorkerKey;
