//! What an operator sees of a running router: metrics, traces and decisions explained.

mod collect;
pub mod decisions;
pub mod metrics;
pub mod trace;

pub use decisions::DecisionLog;
pub use metrics::Metrics;
