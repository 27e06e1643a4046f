//! Dynamo's `thunderagent`: programs, which are sessions of an agent, share the workers' memory. One component is both the
//! classifier that holds back the requests of programs without room, and the worker selection that keeps a program where
//! its cache is.
//!
//! A program is *reasoning* while a request of it runs and *acting* between two of them. An active program is charged its
//! tokens on the rank that it is assigned to; a paused one is charged nothing, and its request waits. Every interval the
//! programs that fit are resumed, those that wait for too long are resumed anyway, and ranks above the pause threshold
//! are relieved. The requests of a program run one at a time, in the order of arrival. What the classifier decides
//! reaches the worker selection as the affinity target; the selection works just as well with that of soft session
//! affinity.
//!
//! | parameter | default | values | meaning |
//! |---|---|---|---|
//! | `pause_threshold` | 0.95 | 0 to 1 | share of a rank's capacity above which programs are paused |
//! | `pause_target` | 0.8 | 0 to `pause_threshold` | share of a rank's capacity down to which they are paused |
//! | `resume_hysteresis` | 0.1 | 0 to `pause_threshold` | how far below the threshold a rank must be to resume programs |
//! | `resume_timeout_seconds` | 1800 | above 0 | how long a request may wait before its program is resumed anyway |
//! | `session_retention_seconds` | 1800 | above 0 | how long a program without a request is remembered |
//! | `scheduler_interval_seconds` | 5 | above 0 | how often all of that happens; 10 ms at least |
//! | `acting_token_weight` | 1 | above 0 | what a token of an acting program weighs |
//! | `acting_decay_tau_seconds` | 1 | above 0 | in how long such a token counts half, where one is resumed anyway |
//! | `buffer_per_program` | 100 | tokens | charged to each program besides its own |
//! | `max_tracked_requests` | 10000 | at least 1 | the most requests, and the most programs, that are tracked |
//!
//! All of them are the classifier's. The capacity of a rank is its KV blocks × block size; where no rank tells its blocks,
//! every request goes ahead.
#![forbid(unsafe_code)]

mod classifier;
mod names;
mod programs;
mod ranks;
mod reconcile;
mod selection;
mod sessions;

pub use classifier::ThunderAgentParameters;
use pointsman_sdk::prelude::*;

use crate::programs::Programs;

/// The policy.
pub struct ThunderAgent {
    programs: Programs,
    block_size: u32,
}

impl Policy for ThunderAgent {
    type Parameters = ThunderAgentParameters;
    const NAME: &'static str = "thunderagent";
    const DESCRIPTION: &'static str =
        "Keeps a session on its worker, and holds its requests back while no worker has room for it.";

    fn configure(setup: &Setup, parameters: ThunderAgentParameters) -> Result<Self, PolicyError> {
        let programs = Programs::new(parameters.try_into()?);
        Ok(Self { programs, block_size: setup.partition.block_size })
    }
}

pointsman_sdk::export!(ThunderAgent: scorer, picker, classifier);
