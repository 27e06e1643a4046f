//! A simulated inference engine: OpenAI's API over HTTP, in front of a model of continuous batching, of a KV cache that
//! keeps prefixes, and of the time that prefill and decoding take. It computes nothing: answers are deterministic
//! nonsense of the right length.
//!
//! For trying a router out and for its tests. Metrics have vLLM's names, KV events vLLM's wire format, and failures can
//! be switched on.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod cache;
mod config;
mod connection;
mod driver;
mod engine;
mod events;
mod failures;
mod http;
mod scheduler;
mod stats;
mod text;

pub use config::{KvEventConfig, MockConfig, Timing};
pub use engine::{MockEngine, MockError};
pub use failures::Failures;
pub use http::Received;
pub use stats::Stats;
