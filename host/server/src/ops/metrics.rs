//! Prometheus metrics.
//!
//! What the hot path tells is a histogram or a counter of its own; everything that the router counts anyway is read when
//! somebody asks. Labels are names from the configuration and words of this program: nothing that a client sends becomes
//! one.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Instant, SystemTime};

use pointsman_admission::End;
use pointsman_routing::PartitionKey;
use prometheus_client::encoding::{EncodeLabelSet, prometheus_text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::collect::FleetCollector;
use crate::fleet::Fleet;
use crate::observe::{DecisionMade, Observer, RequestEnded};

/// The content type of [`Metrics::text`].
pub const CONTENT_TYPE: &str = prometheus_text::CONTENT_TYPE;

/// Upper bounds of a decision's time, in seconds: half a microsecond to a quarter of a second.
const DECISION_SECONDS: [f64; 14] =
    [0.5e-6, 1e-6, 2e-6, 4e-6, 8e-6, 16e-6, 32e-6, 64e-6, 128e-6, 512e-6, 2e-3, 8e-3, 64e-3, 256e-3];
/// Upper bounds of a request's time and of its wait, in seconds.
const REQUEST_SECONDS: [f64; 14] =
    [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 300.0];

/// A routing partition, by its names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Partition {
    model: String,
    routing_group: String,
}

impl Partition {
    fn of(key: &PartitionKey) -> Self {
        Self { model: key.model.clone(), routing_group: key.routing_group.clone() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    model: String,
    routing_group: String,
    end: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    route: &'static str,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reloaded {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    route: &'static str,
}

/// One histogram for each set of labels.
type Seconds<L> = Family<L, Histogram, fn() -> Histogram>;

/// What the hot path tells.
#[derive(Clone, Debug)]
struct Told {
    decision_seconds: Seconds<Partition>,
    fuel: Family<Partition, Counter>,
    queue_seconds: Seconds<Partition>,
    ended: Family<Ended, Counter>,
    retries: Family<Partition, Counter>,
    answered: Family<Answered, Counter>,
    answer_seconds: Seconds<Route>,
    in_flight: Gauge,
    reloads: Family<Reloaded, Counter>,
    started: Gauge<f64, AtomicU64>,
}

impl Told {
    fn new() -> Self {
        Self {
            decision_seconds: Family::new_with_constructor(|| Histogram::new(DECISION_SECONDS)),
            fuel: Family::default(),
            queue_seconds: Family::new_with_constructor(|| Histogram::new(REQUEST_SECONDS)),
            ended: Family::default(),
            retries: Family::default(),
            answered: Family::default(),
            answer_seconds: Family::new_with_constructor(|| Histogram::new(REQUEST_SECONDS)),
            in_flight: Gauge::default(),
            reloads: Family::default(),
            started: Gauge::default(),
        }
    }

    fn register(&self, registry: &mut Registry) {
        let told = self.clone();
        registry.register("decision_seconds", "Time of one decision, the policy included", told.decision_seconds);
        registry.register("decision_fuel", "Fuel that guests used in decisions that they made", told.fuel);
        registry.register("queue_wait_seconds", "Time from admission to a worker", told.queue_seconds);
        registry.register("requests_ended", "Requests that are over, by how they ended", told.ended);
        let help = "Requests that went to another worker, since the first failed before its first byte";
        registry.register("upstream_retries", help, told.retries);
        registry.register("http_requests", "Requests of clients, by route and status", told.answered);
        registry.register("http_request_seconds", "Time until an answer's last byte", told.answer_seconds);
        registry.register("http_requests_in_flight", "Requests of clients being answered", told.in_flight);
        registry.register("config_reloads", "Changes of the policy file that were seen, by result", told.reloads);
        registry.register("start_time_seconds", "When the server started, in seconds since 1970", told.started);
    }
}

/// The metrics of one server. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Registry>,
    fleet: FleetCollector,
    told: Arc<Told>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Metrics of nothing yet; the server starts now.
    #[must_use]
    pub fn new() -> Self {
        let (told, fleet) = (Told::new(), FleetCollector::default());
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        told.started.set(now.as_secs_f64());
        let mut registry = Registry::with_prefix("pointsman");
        told.register(&mut registry);
        registry.register_collector(Box::new(fleet.clone()));
        Self { registry: Arc::new(registry), fleet, told: Arc::new(told) }
    }

    /// Reads a directory and its router from now on, as long as it lives.
    pub fn watch(&self, fleet: &Arc<Fleet>) {
        self.fleet.watch(fleet);
    }

    /// All of them as Prometheus reads them, of the type [`CONTENT_TYPE`].
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = prometheus_text::encode(&mut text, &self.registry);
        text
    }

    /// A client's request has come; the guard is to be dropped when its answer is over.
    #[must_use]
    pub fn request(&self, route: &'static str) -> InFlight {
        self.told.in_flight.inc();
        InFlight { told: Arc::clone(&self.told), route, status: STATUS_CLIENT_GONE, started: Instant::now() }
    }

    /// A change of the policy file was seen.
    pub fn reloaded(&self, activated: bool) {
        let result = if activated { "activated" } else { "refused" };
        self.told.reloads.get_or_create(&Reloaded { result }).inc();
    }
}

/// The status of a client that has gone before it was answered.
const STATUS_CLIENT_GONE: u16 = 499;

/// A client's request while it is answered.
#[derive(Debug)]
pub struct InFlight {
    told: Arc<Told>,
    route: &'static str,
    status: u16,
    started: Instant,
}

impl InFlight {
    /// The answer's status is known. Without one the client has gone: 499.
    pub const fn answered(&mut self, status: u16) {
        self.status = status;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let Self { told, route, status, started } = self;
        told.in_flight.dec();
        told.answered.get_or_create(&Answered { route, status: *status }).inc();
        told.answer_seconds.get_or_create(&Route { route }).observe(started.elapsed().as_secs_f64());
    }
}

impl Observer for Metrics {
    fn dispatched(&self, partition: &pointsman_routing::Partition, waited_ms: f64) {
        self.told.queue_seconds.get_or_create(&Partition::of(partition.key())).observe(waited_ms / 1_000.0);
    }

    fn retried(&self, partition: &pointsman_routing::Partition) {
        self.told.retries.get_or_create(&Partition::of(partition.key())).inc();
    }

    fn decided(&self, made: &DecisionMade<'_>) {
        let partition = Partition::of(made.partition.key());
        self.told.decision_seconds.get_or_create(&partition).observe(made.elapsed_us / 1e6);
        if let Some(fuel) = made.result.as_ref().ok().and_then(|decision| decision.fuel) {
            self.told.fuel.get_or_create(&partition).inc_by(fuel);
        }
    }

    fn ended(&self, ended: &RequestEnded<'_>) {
        let end = match ended.end {
            End::Completed => "completed",
            End::Aborted(_) => "aborted",
            End::Failed(_) => "failed",
        };
        let Partition { model, routing_group } = Partition::of(ended.partition.key());
        self.told.ended.get_or_create(&Ended { model, routing_group, end }).inc();
    }
}
