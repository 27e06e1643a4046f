//! Artifact -> compiled policy -> guest: runs routing policies as WebAssembly components, within limits.
//!
//! This crate knows wasmtime and knows no routing. An [`Artifact`] is bytes with a digest; [`Sandbox::load`] checks and
//! compiles it, in a process of its own unless it is trusted, to a [`CompiledPolicy`], which knows its stages and its manifest; a [`GuestSlot`] owns one configured
//! guest of it and calls its stages. Whatever a guest does ends in an answer or in a [`Fault`] with an [`Outcome`].

#![deny(missing_docs)]

#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;

mod account;
mod artifact;
mod bounds;
mod cache;
mod classifier;
mod classifier_records;
mod compile;
mod declared;
mod engine;
mod function;
mod guest;
mod imports;
mod limiter;
mod limits;
mod load;
mod log;
mod outcome;
mod policy;
mod records;
mod sandbox;
mod structure;
mod text;
mod ticker;
#[cfg(feature = "wasi")]
mod wasi;
mod worker;

pub use account::{Account, OverQuota, Quotas, Usage};
pub use artifact::Artifact;
pub use bounds::{ByProfile, COMPILE_LIMITS, CompileLimits, LOAD_BOUNDS, LoadBounds};
pub use compile::{CompileConfig, CompileFailure};
pub use declared::{DeclaredLimits, DeclaredLimitsError};
pub use engine::{Determinism, SandboxConfig, SandboxError};
pub use guest::{Args, GuestSetup, GuestSlot, StartError};
pub use imports::Import;
pub use limits::{LIMITS, LimitRow, Limits, Profile};
pub use load::{LoadError, LoadStep};
pub use outcome::{Fault, Outcome};
pub use policy::CompiledPolicy;
pub use sandbox::Sandbox;
pub use worker::{WorkerCommand, init_compile_worker};
