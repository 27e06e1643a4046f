//! A running server: its listeners, its directory of workers, and the files that it watches.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use pointsman_admission::OverloadStatus;
use pointsman_routing::Router;
use pointsman_watch::{WatchEvent, Watcher};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower::ServiceExt;

use crate::clock::Clock;
use crate::config::ServerConfig;
use crate::door::Door;
use crate::fleet::{Fleet, FleetError, WorkerSpec};
use crate::listen::{ListenError, Listener};
use crate::observe::{NoObserver, Observer, Observers};
use crate::ops::Metrics;
use crate::select::{self, SelectionOptions};
use crate::signals::Signals;
use crate::upstream::{UpstreamError, Upstreams};
use crate::{admin, health, scraping};

/// How often the router-policy file and its artifacts are looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// An address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A worker of the server file cannot be added.
    #[error(transparent)]
    Worker(#[from] FleetError),
    /// A worker cannot be spoken to.
    #[error("{0}")]
    Upstream(String),
    /// The router-policy file cannot be watched.
    #[error("the router-policy file cannot be watched: {0}")]
    Watch(#[source] std::io::Error),
}

impl From<UpstreamError> for ServeError {
    fn from(error: UpstreamError) -> Self {
        Self::Upstream(error.to_string())
    }
}

/// What a server is made of.
pub struct Setup {
    /// The server file.
    pub config: ServerConfig,
    /// The router, such as [`crate::policies::router`] builds.
    pub router: Arc<Router>,
    /// The router-policy file that it was built with, to be watched; none where it had none.
    pub policy_file: Option<PathBuf>,
    /// What reads prompts.
    pub signals: Arc<dyn Signals>,
    /// Who hears of decisions and ends, besides the metrics.
    pub observer: Arc<dyn Observer>,
    /// What the operators' API shows under `/metrics`.
    pub metrics: Metrics,
    /// The front door's status for overload.
    pub overload: OverloadStatus,
    /// The selection service's rules.
    pub selection: SelectionOptions,
}

impl Setup {
    /// A server of that file and router, which tells nobody what happens.
    #[must_use]
    pub fn new(config: ServerConfig, router: Arc<Router>, signals: Arc<dyn Signals>) -> Self {
        Self {
            config,
            router,
            policy_file: None,
            signals,
            observer: Arc::new(NoObserver),
            metrics: Metrics::new(),
            overload: OverloadStatus::default(),
            selection: SelectionOptions::default(),
        }
    }
}

/// A running server. Dropping it stops it at once; [`Self::drain`] lets what runs end first.
pub struct Server {
    address: SocketAddr,
    admin: Option<SocketAddr>,
    selection: Option<SocketAddr>,
    fleet: Arc<Fleet>,
    door: Arc<Door>,
    stop_doors: watch::Sender<bool>,
    stop_admin: watch::Sender<bool>,
    doors: JoinSet<()>,
    others: JoinSet<()>,
    _watcher: Option<Watcher>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Server {
    /// Starts a server on the current tokio runtime: binds every address, adds the workers, then serves.
    ///
    /// # Errors
    /// What is wrong with an address, a certificate or a worker. Nothing runs then.
    pub async fn start(setup: Setup) -> Result<Self, ServeError> {
        let Setup { config, router, policy_file, signals, observer, metrics, overload, selection } = setup;
        let observers: [Arc<dyn Observer>; 2] = [Arc::new(metrics.clone()), observer];
        let observer = Arc::new(Observers::from_iter(observers));
        let (limits, timeouts) = (config.limits, config.timeouts);
        let front = Listener::bind(config.listen, config.tls.as_ref(), limits, timeouts).await?;
        let admin = match config.admin {
            Some(address) => Some(Listener::bind(address, None, limits, timeouts).await?),
            None => None,
        };
        let chooser = match config.selection {
            Some(address) => Some(Listener::bind(address, None, limits, timeouts).await?),
            None => None,
        };
        let fleet = Arc::new(Fleet::new(router, signals, observer, Clock::start(), Handle::current()));
        metrics.watch(&fleet);
        let upstreams = Arc::new(Upstreams::new(timeouts.connect));
        add_workers(&fleet, &upstreams, config.workers.clone()).await?;
        let watcher = policy_file
            .map(|file| {
                let metrics = metrics.clone();
                watch_policies(&fleet, file, move |activated| metrics.reloaded(activated))
            })
            .transpose()?;
        let door = Arc::new(Door::new(&config, Arc::clone(&fleet), Arc::clone(&upstreams), overload, metrics.clone()));
        warn_of_open_door(&config, front.address);

        let (stop_doors, stopped) = watch::channel(false);
        let (stop_admin, admin_stopped) = watch::channel(false);
        let (mut doors, mut others) = (JoinSet::new(), JoinSet::new());
        let address = front.address;
        let answering = Arc::clone(&door);
        doors.spawn(front.serve(
            move |request, peer| {
                let door = Arc::clone(&answering);
                async move { door.handle(request, peer).await }
            },
            stopped.clone(),
        ));
        let selection = chooser.map(|listener| {
            let address = listener.address;
            doors.spawn(listener.serve(served(select::routes(Arc::clone(&fleet), selection)), stopped));
            address
        });
        let admin = admin.map(|listener| {
            let address = listener.address;
            let routes = admin::routes(Arc::clone(&fleet), Arc::clone(&door), Arc::clone(&upstreams), metrics);
            others.spawn(listener.serve(served(routes), admin_stopped));
            address
        });
        others.spawn(health::watch(Arc::clone(&fleet), Arc::clone(&upstreams), timeouts.health_interval));
        if !config.metrics.is_empty() {
            let (fleet, every) = (Arc::clone(&fleet), timeouts.health_interval);
            others.spawn(scraping::watch(fleet, upstreams, config.metrics, every));
        }
        Ok(Self { address, admin, selection, fleet, door, stop_doors, stop_admin, doors, others, _watcher: watcher })
    }

    /// Where the front door listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where operators are served.
    #[must_use]
    pub const fn admin_address(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// Where the selection service listens.
    #[must_use]
    pub const fn selection_address(&self) -> Option<SocketAddr> {
        self.selection
    }

    /// The workers.
    #[must_use]
    pub const fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }

    /// Takes no more requests, lets those that there are end for as long as the drain may take, and stops.
    pub async fn drain(mut self) {
        self.door.drain();
        // Nobody listens where a listener has failed.
        let _ = self.stop_doors.send(true);
        while self.doors.join_next().await.is_some() {}
        self.fleet.shut_down();
        let _ = self.stop_admin.send(true);
        self.others.shutdown().await;
    }
}

/// What answers the requests of a listener with routes of axum's.
pub(crate) fn served(
    routes: axum::Router,
) -> impl Fn(Request<Incoming>, SocketAddr) -> BoxFuture + Clone + Send + Sync + 'static {
    move |request, _| {
        let routes = routes.clone();
        Box::pin(async move {
            match routes.oneshot(request.map(axum::body::Body::new)).await {
                Ok(response) => response,
                Err(never) => match never {},
            }
        })
    }
}

pub(crate) type BoxFuture = Pin<Box<dyn Future<Output = axum::response::Response> + Send>>;

async fn add_workers(
    fleet: &Arc<Fleet>,
    upstreams: &Arc<Upstreams>,
    workers: Vec<WorkerSpec>,
) -> Result<(), ServeError> {
    let (fleet, upstreams) = (Arc::clone(fleet), Arc::clone(upstreams));
    // Policies may be compiled.
    let added = tokio::task::spawn_blocking(move || {
        for spec in workers {
            let worker = fleet.upsert(spec)?;
            upstreams.of(&worker)?;
            if !worker.not_schedulable_reasons.is_empty() {
                let reasons = worker.not_schedulable_reasons.join("; ");
                tracing::warn!(worker = worker.spec.worker_id, reasons, "the worker gets no requests");
            }
        }
        Ok(())
    });
    let failed = |error| ServeError::Upstream(format!("the workers cannot be added: {error}; see the log"));
    added.await.unwrap_or_else(|error| Err(failed(error)))
}

/// Another configuration takes over when its file or an artifact of it changes. `seen` hears of each change, and whether
/// it took over.
pub(crate) fn watch_policies(
    fleet: &Arc<Fleet>,
    file: PathBuf,
    seen: impl Fn(bool) + Send + 'static,
) -> Result<Watcher, ServeError> {
    let (router, fleet) = (Arc::clone(fleet.router()), Arc::clone(fleet));
    let tell = move |event| {
        let WatchEvent::Activated(activation) = event else { return seen(false) };
        seen(true);
        if let Err(error) = fleet.activated(&activation) {
            tracing::error!(%error, "the changed request classifier cannot start; the one before goes on");
        }
    };
    Watcher::start(router, file, LOOK, tell).map_err(ServeError::Watch)
}

fn warn_of_open_door(config: &ServerConfig, address: SocketAddr) {
    if config.keys.is_empty() && config.trusted_proxy.is_none() && !address.ip().is_loopback() {
        tracing::warn!(%address, "anybody who reaches this address may use the workers; set `keys`");
    }
}
