//! Which workers hold which prefixes: those that publish KV events tell it themselves, of the others it is predicted from
//! what was routed to them.
//!
//! A block that was routed to a row counts as held there until its time to live is over; being routed there again renews
//! it. (Dynamo: `use_kv_events: false` with `router_ttl_secs`.)

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use pointsman_routing::{Partition, PartitionKey, RouterConfig, WorkerKey, WorkerOverlap};
use pointsman_signals::{IndexSettings, KvEventSource, KvEventStats, KvEventStream, PrefixOverlap, PromptReader};
use tokio::runtime::Handle;

use crate::fleet::WorkerSpec;
use crate::signals::{PrefixIndex, Signals};
use crate::sync::locked;

/// The variable that says whether KV events are listened to.
pub const KV_EVENTS_VARIABLE: &str = "DYN_ROUTER_USE_KV_EVENTS";
/// How long what was routed counts, in milliseconds; Dynamo's 120 s.
pub const TTL_MS: f64 = 120_000.0;

/// Prompts by the byte estimate, and an index for every partition.
#[derive(Clone, Copy, Debug)]
pub struct Predicted {
    /// The settings whose weights make an overlap of its tiers.
    pub router_config: RouterConfig,
    /// How long what was routed counts, in milliseconds.
    pub ttl_ms: f64,
    /// Whether workers' KV events are listened to; where not, every worker is predicted.
    pub kv_events: bool,
}

/// A text of `DYN_ROUTER_USE_KV_EVENTS` that says neither yes nor no.
#[derive(Debug, thiserror::Error)]
#[error("DYN_ROUTER_USE_KV_EVENTS is {0:?}; set it to true or false, or unset it")]
pub struct KvEventsError(String);

impl Predicted {
    /// The router's settings and Dynamo's time to live. `use_kv_events` is the text of `DYN_ROUTER_USE_KV_EVENTS`; unset,
    /// events are listened to.
    ///
    /// # Errors
    /// Where the text is neither true nor false.
    pub fn new(router_config: RouterConfig, use_kv_events: Option<&str>) -> Result<Self, KvEventsError> {
        let kv_events = match use_kv_events.map(|text| text.trim().to_ascii_lowercase()).as_deref() {
            None | Some("" | "true" | "1" | "yes" | "on") => true,
            Some("false" | "0" | "no" | "off") => false,
            Some(other) => return Err(KvEventsError(other.to_owned())),
        };
        Ok(Self { router_config, ttl_ms: TTL_MS, kv_events })
    }
}

impl Signals for Predicted {
    fn reader(&self, _: &str, block_size: u32) -> PromptReader {
        PromptReader::new(block_size)
    }

    fn index(&self, _: &PartitionKey, block_size: u32) -> Option<Box<dyn PrefixIndex>> {
        let settings = IndexSettings { prediction_ttl_ms: self.ttl_ms, ..IndexSettings::default() };
        Some(Box::new(Index {
            router_config: self.router_config,
            kv_events: self.kv_events,
            block_size,
            held: Arc::new(pointsman_signals::PrefixIndex::new(settings)),
            streams: Mutex::default(),
        }))
    }
}

/// The index of one partition, and the KV events that it follows.
struct Index {
    router_config: RouterConfig,
    kv_events: bool,
    block_size: u32,
    held: Arc<pointsman_signals::PrefixIndex>,
    streams: Mutex<HashMap<u64, Followed>>,
}

/// What is listened to of one worker.
struct Followed {
    sources: Vec<KvEventSource>,
    /// They listen until they are dropped.
    streams: Vec<KvEventStream>,
}

impl PrefixIndex for Index {
    fn overlaps(&self, _: &Partition, block_hashes: &[u64], now_ms: f64, overlaps: &mut Vec<WorkerOverlap>) {
        let mut held = Vec::new();
        self.held.overlaps(block_hashes, now_ms, &mut held);
        let weighed = |PrefixOverlap { key, device_blocks, host_blocks, disk_blocks }| {
            let [device, host, disk] = [device_blocks, host_blocks, disk_blocks].map(f64::from);
            WorkerOverlap::from_tiers(key, device, host, disk, &self.router_config, self.block_size)
        };
        overlaps.clear();
        overlaps.extend(held.into_iter().map(weighed));
    }

    fn routed(&self, row: WorkerKey, block_hashes: &[u64], now_ms: f64) {
        self.held.routed(row, block_hashes, now_ms);
    }

    fn joined(&self, worker: &WorkerSpec, runtime: &Handle) {
        let wanted = if self.kv_events { sources(worker, self.block_size) } else { Vec::new() };
        let mut streams = locked(&self.streams);
        let followed = streams.get(&worker.worker_id);
        if followed.map_or(&[][..], |followed| &followed.sources) == wanted {
            return;
        }
        // Who is told of otherwise starts anew.
        streams.remove(&worker.worker_id);
        self.held.remove_worker(worker.worker_id);
        let _runtime = runtime.enter();
        let start = |source: &KvEventSource| {
            let started = KvEventStream::start(Arc::clone(&self.held), source.clone());
            started.inspect_err(|error| tracing::error!(worker = worker.worker_id, "{error}")).ok()
        };
        let followed = Followed { streams: wanted.iter().filter_map(start).collect(), sources: wanted };
        streams.insert(worker.worker_id, followed);
    }

    fn kv_events(&self) -> Vec<(u64, KvEventStats)> {
        let streams = locked(&self.streams);
        let of = |(worker, followed): (&u64, &Followed)| {
            let all = followed.streams.iter().map(KvEventStream::stats);
            (*worker, all.fold(KvEventStats::default(), |sum, stats| sum + stats))
        };
        let mut all: Vec<_> = streams.iter().filter(|(_, followed)| !followed.streams.is_empty()).map(of).collect();
        all.sort_unstable_by_key(|(worker, _)| *worker);
        all
    }

    fn removed(&self, worker: u64) {
        locked(&self.streams).remove(&worker);
        self.held.remove_worker(worker);
    }
}

/// Where a worker publishes KV events, rank by rank. An endpoint that is named for its rank goes before the only one.
fn sources(worker: &WorkerSpec, block_size: u32) -> Vec<KvEventSource> {
    let mut endpoints = worker.kv_events_endpoints.clone();
    if let Some(only) = &worker.kv_events_endpoint {
        endpoints.entry(worker.start_rank()).or_insert_with(|| only.clone());
    }
    let first = worker.start_rank();
    let source = |(rank, endpoint): (u32, String)| KvEventSource {
        key: WorkerKey::new(worker.worker_id, rank),
        endpoint,
        replay: worker.replay_endpoint.as_ref().map(|replay| further(replay, rank.saturating_sub(first))),
        topic: String::new(),
        block_size,
    };
    endpoints.into_iter().map(source).collect()
}

/// The endpoint so many ports further: engines count the ports of their ranks up.
fn further(endpoint: &str, ports: u32) -> String {
    let counted = endpoint.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u32>().ok()?)));
    counted.map_or_else(|| endpoint.to_owned(), |(host, port)| format!("{host}:{}", port.saturating_add(ports)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may end by a panic")]

    use std::sync::Arc;

    use pointsman_routing::Router;

    use super::*;

    fn partition() -> Arc<Partition> {
        Router::builder().build().unwrap().partition(&PartitionKey::default(), 16).unwrap()
    }

    fn index(ttl_ms: f64) -> Box<dyn PrefixIndex> {
        let signals = Predicted { router_config: RouterConfig::default(), ttl_ms, kv_events: true };
        signals.index(&PartitionKey::default(), 16).unwrap()
    }

    fn found(index: &dyn PrefixIndex, hashes: &[u64], now_ms: f64) -> Vec<(u64, f64, f64)> {
        let mut overlaps = Vec::new();
        index.overlaps(&partition(), hashes, now_ms, &mut overlaps);
        overlaps.iter().map(|overlap| (overlap.key.worker, overlap.device_blocks, overlap.cached_tokens)).collect()
    }

    #[test]
    fn a_row_holds_the_leading_blocks_of_what_was_routed_there() {
        let index = index(100.0);
        index.routed(WorkerKey::new(2, 0), &[10, 11, 12], 0.0);
        index.routed(WorkerKey::new(1, 0), &[10, 11, 13], 0.0);
        assert_eq!(found(&*index, &[10, 11, 12, 14], 1.0), [(1, 2.0, 32.0), (2, 3.0, 48.0)]);
        assert_eq!(found(&*index, &[10], 1.0), [(1, 1.0, 16.0), (2, 1.0, 16.0)]);
        assert_eq!(found(&*index, &[9, 11], 1.0), []);
        assert_eq!(found(&*index, &[], 1.0), []);
    }

    #[test]
    fn what_was_routed_counts_for_its_time_and_is_renewed() {
        let index = index(100.0);
        index.routed(WorkerKey::new(1, 0), &[10, 11], 0.0);
        index.routed(WorkerKey::new(1, 0), &[10], 60.0);
        assert_eq!(found(&*index, &[10, 11], 99.0), [(1, 2.0, 32.0)]);
        assert_eq!(found(&*index, &[10, 11], 100.0), [(1, 1.0, 16.0)]);
        index.routed(WorkerKey::new(2, 0), &[20], 120.0);
        assert_eq!(
            found(&*index, &[10, 11], 159.0),
            [(1, 1.0, 16.0)],
            "letting go of what is over keeps what was renewed"
        );
        assert_eq!(found(&*index, &[10, 11], 160.0), []);
    }

    #[test]
    fn a_worker_that_leaves_takes_along_what_it_held() {
        let index = index(100.0);
        index.routed(WorkerKey::new(1, 0), &[10], 0.0);
        index.routed(WorkerKey::new(1, 3), &[10], 0.0);
        index.routed(WorkerKey::new(2, 0), &[10], 0.0);
        index.removed(1);
        assert_eq!(found(&*index, &[10], 1.0), [(2, 1.0, 16.0)]);
    }
}
