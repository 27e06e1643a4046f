//! What the router counts anyway, read when somebody asks for metrics.

use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use pointsman_routing::{Counts, Request, VersionStatus};
use pointsman_sandbox::Outcome;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::fleet::{Fleet, WorkerState};
use crate::sync::locked;

/// Reads a directory of workers and its router.
#[derive(Clone, Debug, Default)]
pub(super) struct FleetCollector(Arc<Mutex<Weak<Fleet>>>);

impl FleetCollector {
    pub(super) fn watch(&self, fleet: &Arc<Fleet>) {
        *locked(&self.0) = Arc::downgrade(fleet);
    }
}

/// Label names and values of one sample.
type Labels<'a> = &'a [(&'static str, &'a str)];

/// The samples of one metric that are to be written.
struct Samples {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    values: Vec<(Vec<(&'static str, String)>, f64)>,
}

impl Samples {
    const fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: MetricType::Counter, values: Vec::new() }
    }

    const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: MetricType::Gauge, values: Vec::new() }
    }

    fn put(&mut self, labels: Labels<'_>, value: f64) {
        self.values.push((labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(), value));
    }

    fn write(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        if self.values.is_empty() {
            return Ok(());
        }
        let mut metric = encoder.encode_descriptor(self.name, self.help, None, self.kind)?;
        for (labels, value) in &self.values {
            let mut sample = metric.encode_family(labels)?;
            match self.kind {
                MetricType::Counter => sample.encode_counter::<NoLabelSet, f64, f64>(value, None)?,
                _ => sample.encode_gauge(value)?,
            }
        }
        Ok(())
    }
}

impl Collector for FleetCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let fleet = locked(&self.0).upgrade();
        let Some(fleet) = fleet else { return Ok(()) };
        let all =
            [partitions(&fleet), queues(&fleet), versions(&fleet), workers(&fleet), kv_events(&fleet), tenants(&fleet)];
        all.iter().flatten().try_for_each(|samples| samples.write(&mut encoder))
    }
}

/// How the decisions of each partition ended.
fn partitions(fleet: &Fleet) -> Vec<Samples> {
    let mut decisions = Samples::counter("decisions", "Requests that asked a policy, by what came of it");
    let mut faults = Samples::counter("policy_faults", "Calls of policies that failed, by outcome");
    let mut replaced =
        Samples::counter("guests_replaced", "Guests built in place of one that failed, without its state");
    for pool in fleet.pools() {
        let (partition, key) = (pool.partition(), pool.partition().key());
        let policy = partition.policy_name();
        let of: [(&str, &str); 3] = [("model", &key.model), ("routing_group", &key.routing_group), ("policy", &policy)];
        let Counts { decided, refused, fallbacks, last_good, faults: failed, guests_replaced } = partition.counts();
        let by_policy = decided.saturating_sub(fallbacks).saturating_sub(last_good);
        for (result, count) in
            [("decided", by_policy), ("fallback", fallbacks), ("last-good", last_good), ("refused", refused)]
        {
            decisions.put(&[of[0], of[1], of[2], ("result", result)], count as f64);
        }
        for (outcome, count) in Outcome::ALL.iter().zip(failed).filter(|(outcome, _)| **outcome != Outcome::Ok) {
            faults.put(&[of[0], of[1], of[2], ("outcome", outcome.as_str())], count as f64);
        }
        replaced.put(&of, guests_replaced as f64);
    }
    vec![decisions, faults, replaced]
}

/// What waits in each policy class.
fn queues(fleet: &Fleet) -> Vec<Samples> {
    let mut requests = Samples::gauge("queue_requests", "Requests that wait in a policy class");
    let mut tokens = Samples::gauge("queue_prompt_tokens", "Prompt tokens of the requests that wait in a policy class");
    for pool in fleet.pools() {
        let key = pool.partition().key();
        for (class, usage) in pool.waiting_by_class() {
            let of: [(&str, &str); 3] =
                [("model", &key.model), ("routing_group", &key.routing_group), ("policy_class", &class)];
            requests.put(&of, usage.requests as f64);
            tokens.put(&of, usage.prompt_tokens as f64);
        }
    }
    vec![requests, tokens]
}

/// Which version serves each partition, and how its artifacts fare.
fn versions(fleet: &Fleet) -> Vec<Samples> {
    let mut serving = Samples::gauge("policy_version", "1 for each artifact of the version that serves a partition");
    let mut breaker = Samples::gauge("policy_quarantined", "1 while a policy's breaker keeps it from being called");
    let mut quarantines =
        Samples::counter("policy_quarantines", "How often an artifact was kept out, in all partitions");
    for version in fleet.router().versions().into_iter().filter(|version| version.active) {
        let VersionStatus { partition, generation, artifacts, .. } = version;
        let generation = generation.to_string();
        for artifact in artifacts {
            let of: [(&str, &str); 3] = [
                ("model", &partition.model),
                ("routing_group", &partition.routing_group),
                ("instance", &artifact.instance),
            ];
            let digest = artifact.digest.as_deref().unwrap_or("native");
            serving.put(&[of[0], of[1], of[2], ("digest", digest), ("generation", &generation)], 1.0);
            let closed = artifact.breaker == pointsman_routing::BreakerState::Closed;
            breaker.put(&of, if closed { 0.0 } else { 1.0 });
            quarantines.put(&of, artifact.quarantines as f64);
        }
    }
    vec![serving, breaker, quarantines]
}

/// The workers by state, and what each rank has to do.
fn workers(fleet: &Fleet) -> Vec<Samples> {
    let mut states = Samples::gauge("workers", "Workers of the directory, by state");
    let all = fleet.workers();
    for state in WorkerState::ALL {
        let count = all.iter().filter(|worker| worker.lifecycle == state).count();
        states.put(&[("state", state.as_str())], count as f64);
    }
    let mut active = Samples::gauge("worker_active_requests", "Requests booked on a worker's rank");
    let mut prefill = Samples::gauge("worker_active_prefill_tokens", "Prompt tokens yet to be computed there");
    let mut decode = Samples::gauge("worker_decode_blocks", "KV blocks that its active requests hold");
    for pool in fleet.pools() {
        let (partition, key) = (pool.partition(), pool.partition().key());
        for (row, load) in partition.loads_with(&Request::default()) {
            let (worker, rank) = (row.worker.to_string(), row.rank.to_string());
            let of: [(&str, &str); 4] =
                [("model", &key.model), ("routing_group", &key.routing_group), ("worker", &worker), ("rank", &rank)];
            active.put(&of, load.active_requests);
            prefill.put(&of, load.active_prefill_tokens);
            decode.put(&of, load.decode_blocks);
        }
    }
    vec![states, active, prefill, decode]
}

/// What came of the KV events of workers that publish them. Counters begin anew where a worker's endpoint changes.
fn kv_events(fleet: &Fleet) -> Vec<Samples> {
    let mut events = Samples::counter("kv_events", "KV events of a worker, by what became of them");
    let mut losses = Samples::counter("kv_event_losses", "How often a worker's cached prefixes were forgotten, by why");
    let mut replays = Samples::counter("kv_event_replays", "Messages with KV events that were missed and came again");
    for pool in fleet.pools() {
        let key = pool.partition().key();
        for (worker, stats) in pool.kv_events() {
            let worker = worker.to_string();
            let of: [(&str, &str); 3] =
                [("model", &key.model), ("routing_group", &key.routing_group), ("worker", &worker)];
            for (result, count) in [("applied", stats.applied), ("ignored", stats.ignored)] {
                events.put(&[of[0], of[1], of[2], ("result", result)], count as f64);
            }
            replays.put(&of, stats.replayed as f64);
            for (reason, count) in [("gap", stats.gaps), ("malformed", stats.malformed)] {
                losses.put(&[of[0], of[1], of[2], ("reason", reason)], count as f64);
            }
        }
    }
    vec![events, replays, losses]
}

/// What each tenant has used: what a bill is made from.
fn tenants(fleet: &Fleet) -> Vec<Samples> {
    let mut decided = Samples::counter("tenant_decisions", "Requests of a tenant, by what came of them");
    let mut fuel = Samples::counter("tenant_fuel", "Fuel that a tenant's guests used");
    let mut faults = Samples::counter("tenant_faults", "Calls of a tenant's policies that failed, by outcome");
    let mut guests = Samples::gauge("tenant_guests", "A tenant's guests alive");
    let mut resident = Samples::gauge("tenant_resident_bytes", "Linear memory of a tenant's guests");
    let mut compiled = Samples::counter("tenant_compile_seconds", "Time spent compiling a tenant's artifacts");
    let mut logged = Samples::counter("tenant_log_bytes", "What a tenant's policies logged");
    for usage in fleet.router().tenants() {
        let tenant = ("tenant", &*usage.tenant);
        let by_policy = usage.decided.saturating_sub(usage.fallbacks);
        for (result, count) in [("decided", by_policy), ("fallback", usage.fallbacks), ("refused", usage.refused)] {
            decided.put(&[tenant, ("result", result)], count as f64);
        }
        for (outcome, count) in Outcome::ALL.iter().zip(usage.faults).filter(|(outcome, _)| **outcome != Outcome::Ok) {
            faults.put(&[tenant, ("outcome", outcome.as_str())], count as f64);
        }
        fuel.put(&[tenant], usage.fuel as f64);
        guests.put(&[tenant], usage.sandbox.guests as f64);
        resident.put(&[tenant], usage.sandbox.resident_bytes as f64);
        compiled.put(&[tenant], usage.sandbox.compiled.as_secs_f64());
        logged.put(&[tenant], usage.sandbox.log_bytes as f64);
    }
    vec![decided, fuel, faults, guests, resident, compiled, logged]
}
