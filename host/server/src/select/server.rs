//! A selection service by itself, without a front door.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use pointsman_routing::Router;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{SelectionOptions, routes};
use crate::clock::Clock;
use crate::config::{DoorLimits, Timeouts};
use crate::fleet::Fleet;
use crate::listen::Listener;
use crate::observe::Observer;
use crate::server::{ServeError, served, watch_policies};
use crate::signals::Signals;

/// What a selection service is made of.
pub struct SelectionSetup {
    /// Where it listens.
    pub address: SocketAddr,
    /// The router, such as [`crate::policies::router`] builds.
    pub router: Arc<Router>,
    /// The router-policy file that it was built with, to be watched; none where it had none.
    pub policy_file: Option<PathBuf>,
    /// What knows which workers hold which prefixes, such as [`crate::predicted::Predicted`].
    pub signals: Arc<dyn Signals>,
    /// Who hears of decisions and ends.
    pub observer: Arc<dyn Observer>,
    /// Its rules.
    pub options: SelectionOptions,
}

/// A running selection service, whose workers come by its API. Dropping it stops it at once.
pub struct SelectionServer {
    address: SocketAddr,
    fleet: Arc<Fleet>,
    stop: watch::Sender<bool>,
    task: JoinSet<()>,
    _watcher: Option<pointsman_watch::Watcher>,
}

impl std::fmt::Debug for SelectionServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SelectionServer").field("address", &self.address).finish_non_exhaustive()
    }
}

impl SelectionServer {
    /// Starts a service on the current tokio runtime.
    ///
    /// # Errors
    /// The address cannot be listened on, or the router-policy file not be watched.
    pub async fn start(setup: SelectionSetup) -> Result<Self, ServeError> {
        let SelectionSetup { address, router, policy_file, signals, observer, options } = setup;
        let listener = Listener::bind(address, None, DoorLimits::default(), Timeouts::default()).await?;
        let address = listener.address;
        let fleet = Arc::new(Fleet::new(router, signals, observer, Clock::start(), Handle::current()));
        let watcher = policy_file.map(|file| watch_policies(&fleet, file, |_| ())).transpose()?;
        let (stop, stopped) = watch::channel(false);
        let mut task = JoinSet::new();
        task.spawn(listener.serve(served(routes(Arc::clone(&fleet), options)), stopped));
        Ok(Self { address, fleet, stop, task, _watcher: watcher })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The workers.
    #[must_use]
    pub const fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }

    /// Refuses what waits and takes no more calls, lets those that there are end, and stops.
    pub async fn drain(mut self) {
        self.fleet.shut_down();
        // Nobody listens where the listener has failed.
        let _ = self.stop.send(true);
        while self.task.join_next().await.is_some() {}
    }
}
