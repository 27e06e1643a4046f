//! Whether Pointsman decides as NVIDIA Dynamo 1.6.1 does: one generated [`Case`], translated for both, asked of both.
//!
//! `docs/parity.md` says what is compared, by which command, and what differs.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod case;
pub mod dynamo;
pub mod generate;
pub mod logit;
pub mod pointsman;
pub mod scheduler;
pub mod verdict;

pub use case::{Ask, Busy, Case, Session, Worker};
pub use generate::Shape;
pub use verdict::{Cost, Refusal, Verdict};
