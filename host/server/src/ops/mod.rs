//! What an operator sees of a running router: metrics, traces and decisions explained.

mod collect;
pub mod metrics;

pub use metrics::Metrics;
