//! Replays a trace of requests against simulated workers, in virtual time, once per policy.
//!
//! [`Trace`] is what happened, a [`worker::Worker`] what a worker would do, [`metrics`] what came out.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod cache;
pub mod metrics;
mod trace;
pub mod worker;

pub use trace::{BLOCK_SIZE, GENERATED_REQUESTS, Trace, TraceError, TraceRequest};
