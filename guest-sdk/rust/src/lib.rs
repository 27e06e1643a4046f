//! Routing policies for Pointsman, in Rust.
//!
//! A policy is a type that implements [`Policy`] and any of [`Filter`], [`Scorer`] and [`Picker`], or [`Classifier`] for
//! admission, or both; [`export!`] makes a WebAssembly component of it. The same crate builds natively, so that [`testkit`] can test it with `cargo test` and a
//! Rust host can compile it in.
//!
//! ```
//! use pointsman_sdk::prelude::*;
//!
//! struct LeastLoaded;
//!
//! impl Policy for LeastLoaded {
//!     type Parameters = NoParameters;
//!     const NAME: &'static str = "least-loaded";
//!     const DESCRIPTION: &'static str = "Takes the worker with the fewest active requests.";
//!
//!     fn configure(_: &Setup, _: NoParameters) -> Result<Self, PolicyError> {
//!         Ok(Self)
//!     }
//! }
//!
//! impl RowScorer for LeastLoaded {
//!     fn reads(&self) -> Reads {
//!         Reads::LOAD
//!     }
//!
//!     fn score(&mut self, _: &Request<'_>, row: Row<'_>) -> Result<f64, PolicyError> {
//!         Ok(row.load()?.active_requests())
//!     }
//! }
//!
//! pointsman_sdk::export!(LeastLoaded: scorer);
//! # fn main() {}
//! ```
//!
//! A stage sees what its `reads` declares and nothing else, also where several stages run in one crossing. Whatever a
//! stage did not declare answers an error that names it, so that a forgotten declaration is not read as a 0.
//!
//! Every [`PolicyError`] goes to the operator's log and is one sentence. A panic is a trap: the host drops the guest,
//! its state with it, and builds another.
//!
//! Built for WebAssembly, the crate has the component's allocator, its stages by the canonical ABI and the bindings that
//! `wit_bindgen::generate!` expands, all of which need unsafe code; every other build of it holds none.

#![cfg_attr(not(any(target_family = "wasm", test)), forbid(unsafe_code))]
#![deny(missing_docs)]

// The derive names this crate as its users do.
extern crate self as pointsman_sdk;

mod choose;
mod classifier;
mod error;
mod guest;
#[cfg(any(target_family = "wasm", test))]
mod heap;
pub mod lanes;
mod layout;
pub mod log;
mod macros;
#[cfg(not(target_family = "wasm"))]
pub mod native;
mod parameters;
mod policy;
mod reads;
#[cfg(target_family = "wasm")]
#[doc(hidden)]
pub mod stages;
mod tasks;
#[cfg(not(target_family = "wasm"))]
pub mod testkit;
mod view;
#[cfg(target_family = "wasm")]
#[doc(hidden)]
pub mod wasm;
#[cfg(target_family = "wasm")]
mod wasm_classifier;

pub use choose::{lowest, lowest_drawing};
pub use classifier::{Classifier, ClassifyRequest, OwnedRequest};
pub use error::PolicyError;
pub use guest::Exported;
pub use parameters::{NoParameters, Parameter, Parameters, finite_and_non_negative, require};
pub use pointsman_contract as contract;
pub use pointsman_contract::{
    Admission, ClassifierWorker, ErrorClass, Event, Fact, Group, Partition, Progress, Rejection, Resolution, Role,
    RouterConfig, Signal, Stages, TargetChange, Text, Ticket, Trigger, Verdict,
};
pub use policy::{Filter, Picker, Policy, RowFilter, RowScorer, Scorer, Setup};
pub use reads::Reads;
pub use tasks::{AsyncClassifier, Context, Turn, Turns};
pub use view::{Cache, Candidates, Load, Request, Row, Session};

/// What the export macro names.
#[doc(hidden)]
pub mod __reactors {
    pub use crate::classifier::{Direct, NoClassifier, Reactor};
    pub use crate::tasks::Tasks;
}

/// What derived code names.
#[doc(hidden)]
pub mod __parameters {
    pub use crate::parameters::{Field, Object, Parameter, Parameters, Problem, Reader, Schema, given, read_within};
}

/// What a policy needs in most cases.
pub mod prelude {
    pub use crate::{
        Admission, AsyncClassifier, Candidates, Classifier, ClassifyRequest, Context, ErrorClass, Event, Fact, Filter,
        NoParameters, OwnedRequest, Parameters, Picker, Policy, PolicyError, Progress, Reads, Rejection, Request,
        Resolution, Role, Row, RowFilter, RowScorer, Scorer, Setup, Signal, TargetChange, Text, Ticket, Trigger, Turns,
        Verdict,
    };
}
