//! The words of the contract between a Pointsman router and a routing policy, shared by both sides.
//!
//! `wit/policy.wit` is the contract itself; this crate holds its records as plain Rust types and its vocabulary: the
//! facts and texts of a request and the signals of a worker, each with its unit and the meaning of a missing value.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod classifier;
mod types;
mod vocabulary;

pub use classifier::{
    Admission, ClassifierWorker, ErrorClass, Event, Progress, Rejection, Resolution, TargetChange, Ticket, Verdict,
};
pub use types::{Inputs, LEAST_TICK_MS, Manifest, Partition, Reads, Role, RouterConfig, Selection, Stages};
pub use vocabulary::{COST, Fact, Group, Reader, Signal, Text, Trigger, is_missing, missing, prefill_cost_tokens};

/// The package and version of the contract that this crate speaks.
pub const CONTRACT: &str = "pointsman:policy@0.1.0";
/// The version alone.
pub const CONTRACT_VERSION: &str = "0.1.0";
