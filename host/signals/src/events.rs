//! KV events of an engine, as vLLM and SGLang publish them over ZMQ, brought into an index.
//!
//! Messages are numbered. What was sent before the first message that came, or in a gap, is asked for again where the engine
//! offers that. After a gap that stays, after a message that cannot be read, and after an engine has started anew, which all
//! show in the numbers, what that engine holds is not known: its part of the index is cleared, and grows again with what it
//! stores from then on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use dynamo_kv_router::protocols::WorkerWithDpRank;
use dynamo_kv_router::zmq_wire::{RawKvEvent, ZmqEventNormalizer, decode_event_batch};
use pointsman_admission::WorkerKey;
use tokio::task::JoinHandle;
use zeromq::{DealerSocket, Endpoint, Socket, SocketRecv, SocketSend, SubSocket, ZmqError, ZmqMessage};

use crate::index::PrefixIndex;

/// The first and the longest pause before another attempt to connect.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// How long an engine may take to send messages again; what it publishes meanwhile waits.
const REPLAY_TIME: Duration = Duration::from_secs(2);
/// The most bytes of a replay; one that sends more is as one that is not whole.
const REPLAY_BYTES: usize = 256 << 20;
/// The number of the message that ends a replay.
const REPLAY_END: u64 = u64::MAX;

/// Where one rank's engine publishes its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvEventSource {
    /// The row that the events are about, unless a batch names another rank of the worker.
    pub key: WorkerKey,
    /// The ZMQ endpoint, such as `tcp://10.0.0.7:5557`.
    pub endpoint: String,
    /// The topic; empty for every one.
    pub topic: String,
    /// Where it sends messages again; none where it does not.
    pub replay: Option<String>,
    /// Tokens of a KV block, as the index counts them.
    pub block_size: u32,
}

/// An endpoint that is none.
#[derive(Debug, thiserror::Error)]
#[error(
    "the KV events of {key} cannot be read from `{endpoint}`: {message}; give an endpoint such as tcp://10.0.0.7:5557"
)]
pub struct EndpointError {
    key: WorkerKey,
    endpoint: String,
    message: String,
}

/// What came from one source so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvEventStats {
    /// Batches that were read.
    pub batches: u64,
    /// Events that were brought into the index.
    pub applied: u64,
    /// Events that were left out: of caches that prefixes do not live in, of another block size, beyond the index's bound,
    /// or that stand on a block which is not known.
    pub ignored: u64,
    /// Messages that were missed and came again.
    pub replayed: u64,
    /// Gaps in the numbers that stayed, each of which cleared the engine's part of the index.
    pub gaps: u64,
    /// Messages that could not be read, with the same consequence.
    pub malformed: u64,
}

impl std::ops::Add for KvEventStats {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            batches: self.batches + other.batches,
            applied: self.applied + other.applied,
            ignored: self.ignored + other.ignored,
            replayed: self.replayed + other.replayed,
            gaps: self.gaps + other.gaps,
            malformed: self.malformed + other.malformed,
        }
    }
}

#[derive(Debug, Default)]
struct Counters {
    batches: AtomicU64,
    applied: AtomicU64,
    ignored: AtomicU64,
    replayed: AtomicU64,
    gaps: AtomicU64,
    malformed: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A subscription to one source. It connects, and connects again, until it is dropped.
#[derive(Debug)]
pub struct KvEventStream {
    task: JoinHandle<()>,
    counters: Arc<Counters>,
}

impl KvEventStream {
    /// Subscribes on the current tokio runtime. From now on nothing is predicted of the worker.
    ///
    /// # Errors
    /// An endpoint that is none.
    pub fn start(index: Arc<PrefixIndex>, source: KvEventSource) -> Result<Self, EndpointError> {
        for endpoint in std::iter::once(&source.endpoint).chain(&source.replay) {
            if let Err(error) = endpoint.parse::<Endpoint>() {
                let (key, endpoint) = (source.key, endpoint.clone());
                return Err(EndpointError { key, endpoint, message: error.to_string() });
            }
        }
        index.publishes(source.key.worker);
        let counters = Arc::new(Counters::default());
        let receiver = Receiver::new(index, source, Arc::clone(&counters));
        Ok(Self { task: tokio::spawn(receiver.run()), counters })
    }

    /// What came so far.
    #[must_use]
    pub fn stats(&self) -> KvEventStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { batches, applied, ignored, replayed, gaps, malformed } = &*self.counters;
        KvEventStats {
            batches: get(batches),
            applied: get(applied),
            ignored: get(ignored),
            replayed: get(replayed),
            gaps: get(gaps),
            malformed: get(malformed),
        }
    }
}

impl Drop for KvEventStream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Receiver {
    index: Arc<PrefixIndex>,
    source: KvEventSource,
    counters: Arc<Counters>,
    normalizer: ZmqEventNormalizer,
    /// The number that the next message has if none is lost.
    expected: Option<u64>,
    /// Ranks that events came of.
    ranks: BTreeSet<u32>,
}

impl Receiver {
    fn new(index: Arc<PrefixIndex>, source: KvEventSource, counters: Arc<Counters>) -> Self {
        let normalizer = ZmqEventNormalizer::new(source.block_size);
        Self { index, source, counters, normalizer, expected: None, ranks: BTreeSet::new() }
    }

    async fn run(mut self) {
        let mut pause = PAUSES.0;
        loop {
            match self.connect().await {
                Ok(mut socket) => {
                    pause = PAUSES.0;
                    // The socket connects again by itself; it ends where it cannot.
                    while let Ok(message) = socket.recv().await {
                        self.take(&message).await;
                    }
                }
                Err(error) => {
                    tracing::debug!(endpoint = self.source.endpoint, %error, "no connection for KV events yet");
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    async fn connect(&self) -> Result<SubSocket, ZmqError> {
        let mut socket = SubSocket::new();
        socket.subscribe(&self.source.topic).await?;
        socket.connect(&self.source.endpoint).await?;
        Ok(socket)
    }

    /// Takes a message of topic, number and batch.
    async fn take(&mut self, message: &ZmqMessage) {
        let Some(number) = message.get(1).and_then(|frame| number(frame)) else { return self.is_malformed() };
        let expected = self.expected.replace(number.wrapping_add(1));
        if expected != Some(number) {
            self.catch_up(expected, number).await;
        }
        match message.get(2) {
            Some(payload) => self.take_batch(number, payload),
            None => self.is_malformed(),
        }
    }

    /// Brings the index to where it would be had every message before `number` come. `expected` is none before the first.
    async fn catch_up(&mut self, expected: Option<u64>, number: u64) {
        // An engine that has started anew counts from 0 again.
        let first = expected.filter(|expected| *expected < number).unwrap_or(0);
        let mut missed = if first < number { self.missed(first).await } else { Vec::new() };
        missed.retain(|(earlier, _)| (first..number).contains(earlier));
        // What comes before a hole is no longer true for sure.
        let follow =
            missed.iter().rev().zip((first..number).rev()).take_while(|((found, _), due)| found == due).count();
        missed.drain(..missed.len() - follow);
        let is_whole = follow as u64 == number - first;
        if let Some(expected) = expected
            && (!is_whole || expected > number)
        {
            count(&self.counters.gaps);
            tracing::info!(worker = %self.source.key, number, "KV events were lost; what the engine holds is forgotten");
            self.forget();
        }
        for (number, payload) in missed {
            count(&self.counters.replayed);
            self.take_batch(number, &payload);
        }
    }

    /// The messages from the number `first` on that the engine sends again; none where it does not, or not in time.
    async fn missed(&self, first: u64) -> Vec<(u64, Bytes)> {
        let Some(endpoint) = &self.source.replay else { return Vec::new() };
        match tokio::time::timeout(REPLAY_TIME, replayed(endpoint, first)).await {
            Ok(Ok(messages)) => messages,
            Ok(Err(error)) => {
                tracing::warn!(worker = %self.source.key, endpoint, %error, "KV events cannot be had again");
                Vec::new()
            }
            Err(_) => {
                tracing::warn!(worker = %self.source.key, endpoint, "KV events did not come again in time");
                Vec::new()
            }
        }
    }

    fn is_malformed(&mut self) {
        count(&self.counters.malformed);
        tracing::warn!(worker = %self.source.key, "a batch of KV events cannot be read; what the engine holds is forgotten");
        self.forget();
    }

    fn take_batch(&mut self, number: u64, payload: &[u8]) {
        let Ok(batch) = decode_event_batch(payload) else { return self.is_malformed() };
        count(&self.counters.batches);
        let rank = batch.data_parallel_rank.and_then(|rank| u32::try_from(rank).ok()).unwrap_or(self.source.key.rank);
        self.ranks.insert(rank);
        let row = WorkerWithDpRank::new(self.source.key.worker, rank);
        for event in batch.events {
            let applied = self.apply(event, number, row);
            count(if applied { &self.counters.applied } else { &self.counters.ignored });
        }
    }

    fn apply(&mut self, event: RawKvEvent, number: u64, row: WorkerWithDpRank) -> bool {
        if event.block_size().is_some_and(|size| size != self.source.block_size as usize) {
            return false;
        }
        let placed = self.normalizer.normalize(event, number, row);
        placed.and_then(|placed| placed.into_router_event()).is_some_and(|event| self.index.apply(event))
    }

    fn forget(&mut self) {
        self.normalizer = ZmqEventNormalizer::new(self.source.block_size);
        for rank in std::mem::take(&mut self.ranks) {
            self.index.clear(WorkerKey::new(self.source.key.worker, rank));
        }
    }
}

/// A number of eight bytes, big-endian.
fn number(frame: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(frame.try_into().ok()?))
}

/// Asks for messages from the number `first` on, as vLLM answers: an empty frame, number and batch each, and -1 at the end.
async fn replayed(endpoint: &str, first: u64) -> Result<Vec<(u64, Bytes)>, ZmqError> {
    let mut socket = DealerSocket::new();
    socket.connect(endpoint).await?;
    let mut asked = ZmqMessage::from(Bytes::new());
    asked.push_back(Bytes::copy_from_slice(&first.to_be_bytes()));
    socket.send(asked).await?;
    let (mut messages, mut bytes) = (Vec::new(), 0);
    loop {
        let message = socket.recv().await?;
        let last = |back: usize| message.get(message.len().checked_sub(back)?);
        let (Some(number), Some(payload)) = (last(2).and_then(|frame| number(frame)), last(1)) else { continue };
        bytes += payload.len();
        if number == REPLAY_END || bytes > REPLAY_BYTES {
            return Ok(messages);
        }
        messages.push((number, payload.clone()));
    }
}
