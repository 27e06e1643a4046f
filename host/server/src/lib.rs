//! The HTTP front door, the selection service and the operator's view of a running router.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod config;
pub mod fleet;
pub mod observe;
pub mod ops;
pub mod policies;
pub mod pool;
pub mod predicted;
pub mod select;
pub mod signals;

mod admin;
mod clock;
mod door;
mod health;
mod listen;
mod pace;
mod scraping;
mod server;
mod sync;
mod upstream;

pub use clock::Clock;
pub use listen::ListenError;
pub use server::{ServeError, Server, Setup};
