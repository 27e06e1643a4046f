//! Pointsman beside NVIDIA Dynamo 1.6.1: generated cases for each policy, and one test for each rule of the pipeline.
//!
//! `cargo test --release -p pointsman-parity` in the folder `dynamo`; with `POINTSMAN_PARITY_CASES=1000000` so many cases
//! for each policy, and with `POINTSMAN_PARITY_SEED=N` other ones.

mod default_cost_fn;
mod examples;
mod harness;
mod plugin;
mod thunderagent;
mod two_tier_cost_fn;
