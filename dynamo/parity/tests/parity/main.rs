//! Pointsman beside NVIDIA Dynamo 1.6.1: generated cases for each policy, and one test for each rule of the pipeline.
//!
//! `cargo test --release -p pointsman-parity` in the folder `dynamo`; with `POINTSMAN_PARITY_CASES=1000000` so many cases
//! for each policy, and with `POINTSMAN_PARITY_SEED=N` other ones.

mod default_cost_fn;
mod eligibility_rules;
mod examples;
mod harness;
mod kit;
mod pipeline_rules;
mod plugin;
mod queue;
mod registry_rules;
#[path = "../../../../host/routing/tests/common/mod.rs"]
mod script;
mod service_rules;
mod thunderagent;
mod two_tier_cost_fn;
