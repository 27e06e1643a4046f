//! The selection service: worker selection for routers that send their requests themselves.
//!
//! Its HTTP API has the paths, fields and status codes of Dynamo 1.6's `dynamo.select_service`. It decides over the same
//! directory of workers, and books in the same partitions, as the front door.

mod bookings;
mod error;
mod http;
mod pending;
mod prompt;
mod server;
mod service;
mod wire;

use std::sync::{Arc, Weak};
use std::time::Duration;

pub use pending::PendingLimits;
pub use server::{SelectionServer, SelectionSetup};

use crate::fleet::Fleet;
use service::Service;

/// How long a reservation may stay unfreed, in seconds, where the environment does not say.
const EXPIRY_SECS: u64 = 300;
/// The variable that says how long, in seconds.
pub const EXPIRY_VARIABLE: &str = "DYN_ROUTER_ACTIVE_REQUEST_EXPIRY_SECS";

/// How the selection service is set up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SelectionOptions {
    /// What is kept of selections that may still be booked.
    pub pending: PendingLimits,
    /// After how long a reservation that nobody frees is given back.
    pub expiry: Duration,
}

impl Default for SelectionOptions {
    /// 120 s, 4,096 selections and 256 MiB; 300 s.
    fn default() -> Self {
        Self { pending: PendingLimits::default(), expiry: Duration::from_secs(EXPIRY_SECS) }
    }
}

impl SelectionOptions {
    /// Takes the expiry from the text of [`EXPIRY_VARIABLE`]: a whole number of seconds above 0;
    /// anything else is 300, as in Dynamo.
    #[must_use]
    pub fn with_expiry_text(self, text: &str) -> Self {
        let seconds = text.parse().ok().filter(|seconds| *seconds > 0).unwrap_or(EXPIRY_SECS);
        Self { expiry: Duration::from_secs(seconds), ..self }
    }
}

/// The routes of the selection service over a directory of workers. Reservations that nobody frees are given back by a
/// task on the directory's runtime, for as long as the routes live.
pub fn routes(fleet: Arc<Fleet>, options: SelectionOptions) -> axum::Router {
    let runtime = fleet.runtime().clone();
    let service = Arc::new(Service::new(fleet, options));
    runtime.spawn(expire(Arc::downgrade(&service), options.expiry));
    http::routes(service)
}

/// Looks for forgotten reservations as often as Dynamo, or more often where they may live for less.
async fn expire(service: Weak<Service>, expiry: Duration) {
    let mut ticks = tokio::time::interval(expiry.min(Duration::from_secs(30)));
    loop {
        ticks.tick().await;
        let Some(service) = service.upgrade() else { return };
        service.expire();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expiry_is_a_whole_number_of_seconds_above_0() {
        let seconds = |text| SelectionOptions::default().with_expiry_text(text).expiry.as_secs();
        assert_eq!(seconds("3600"), 3_600);
        assert_eq!(["", "abc", "0", "-1", "1.5"].map(seconds), [300; 5]);
    }
}
