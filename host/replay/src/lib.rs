//! Replays a trace of requests against simulated workers, in virtual time, once per policy.
//!
//! A [`Trace`] is what happened, a [`worker::Worker`] what a worker would do. A [`Run`] puts a router between them: it
//! asks the router for a worker whenever a request arrives, keeps the router's loads and overlaps true, and answers a
//! [`RunReport`]. Virtual time is whole microseconds, so a run is the same on every machine; only the time that
//! decisions take is read from a [`Clock`].

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod admission;
mod cache;
mod clock;
mod ledger;
pub mod metrics;
mod report;
mod run;
mod trace;
pub mod worker;

pub use admission::{AdmissionReport, ClassReport};
pub use clock::{Clock, WallClock};
pub use report::{DecisionLine, Report, RunReport, TraceReport};
pub use run::{Fleet, Observer, Options, ReplayError, Run};
pub use trace::{BLOCK_SIZE, GENERATED_REQUESTS, Trace, TraceError, TraceRequest};
