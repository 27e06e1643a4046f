//! The policy-class queue, on a clock of plain numbers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
mod model;
mod rules;
