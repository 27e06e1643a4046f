//! Artifact -> compiled policy -> guest: runs routing policies as WebAssembly components, within limits.
//!
//! This crate knows wasmtime and knows no routing.

mod limits;
mod outcome;

pub use limits::{LIMITS, LimitRow, Limits, Profile};
pub use outcome::{Fault, Outcome};
