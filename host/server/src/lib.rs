//! The HTTP front door, the selection service and the operator's view of a running router.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod config;
pub mod fleet;
pub mod observe;
pub mod ops;
pub mod pool;
pub mod signals;

mod clock;
mod pace;
mod sync;

pub use clock::Clock;
