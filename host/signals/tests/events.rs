//! KV events over real sockets: of the simulated engine, and of a publisher that loses and garbles them.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use std::sync::Arc;
use std::time::Duration;

use pointsman_admission::WorkerKey;
use pointsman_mock::{KvEventConfig, MockConfig, MockEngine, Timing};
use pointsman_signals::{
    IndexSettings, KvEventSource, KvEventStats, KvEventStream, PrefixIndex, PrefixOverlap, PromptInput, PromptReader,
};
use zeromq::{PubSocket, RouterSocket, Socket, SocketRecv, SocketSend, ZmqMessage};

const BLOCK_SIZE: u32 = 4;
const ROW: WorkerKey = WorkerKey::new(7, 0);

fn index() -> Arc<PrefixIndex> {
    Arc::new(PrefixIndex::new(IndexSettings::default()))
}

fn stream(index: &Arc<PrefixIndex>, key: WorkerKey, endpoint: &str) -> KvEventStream {
    stream_with(index, key, endpoint, None)
}

fn stream_with(index: &Arc<PrefixIndex>, key: WorkerKey, endpoint: &str, replay: Option<&str>) -> KvEventStream {
    let (endpoint, topic, replay) = (endpoint.to_owned(), "kv".to_owned(), replay.map(str::to_owned));
    let source = KvEventSource { key, endpoint, topic, replay, block_size: BLOCK_SIZE };
    KvEventStream::start(Arc::clone(index), source).unwrap()
}

fn hashes(text: &str) -> Vec<u64> {
    PromptReader::new(BLOCK_SIZE).read_now(&PromptInput::text(text)).block_hashes
}

/// Device blocks by row.
fn overlaps(index: &PrefixIndex, hashes: &[u64]) -> Vec<(WorkerKey, u32)> {
    let mut overlaps: Vec<PrefixOverlap> = Vec::new();
    index.overlaps(hashes, 0.0, &mut overlaps);
    overlaps.iter().map(|overlap| (overlap.key, overlap.device_blocks)).collect()
}

/// Tries, and has something done between two tries, until it is so.
async fn until(so: impl Fn() -> bool, mut meanwhile: impl AsyncFnMut()) {
    let trying = async {
        while !so() {
            meanwhile().await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), trying).await.expect("it comes to be so");
}

fn engine_config() -> MockConfig {
    MockConfig {
        block_size: BLOCK_SIZE,
        timing: Timing::instant(),
        kv_events: Some(KvEventConfig { topic: "kv".to_owned(), ..KvEventConfig::default() }),
        ..MockConfig::default()
    }
}

/// Has an engine complete a prompt of text on one of its ranks.
async fn complete(engine: &MockEngine, rank: u32, prompt: &str) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let body = format!("{{\"model\":\"mock\",\"max_tokens\":1,\"prompt\":\"{prompt}\"}}");
    let mut connection = tokio::net::TcpStream::connect(engine.address()).await.unwrap();
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: mock\r\nconnection: close\r\nx-data-parallel-rank: {rank}\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    connection.write_all((head + &body).as_bytes()).await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn what_an_engine_caches_shows_by_row_and_goes_when_it_forgets() {
    let engine = MockEngine::start(MockConfig { data_parallel_size: 2, ..engine_config() }).await.unwrap();
    let index = index();
    let _streams: Vec<_> = (0..)
        .zip(engine.event_endpoints())
        .map(|(rank, endpoint)| stream(&index, WorkerKey::new(7, rank), endpoint))
        .collect();
    let prompt = "0123456789abcdef0123456789ABCDEF....";
    let row = WorkerKey::new(7, 1);
    // A subscriber hears nothing of what was before it: until it is there, the engine is made to store it again.
    until(
        || overlaps(&index, &hashes(prompt)) == [(row, 2)],
        async || {
            engine.clear_cache();
            complete(&engine, 1, prompt).await;
        },
    )
    .await;
    assert_eq!(overlaps(&index, &hashes("0123456789abcdef-another ending")), [(row, 1)]);
    index.routed(row, &hashes("something else altogether"), 0.0);
    assert_eq!(overlaps(&index, &hashes("something else altogether")), [], "nothing is predicted beside events");
    engine.clear_cache();
    until(|| index.blocks() == 0, async || {}).await;
}

#[tokio::test]
async fn blocks_that_an_engine_evicts_are_gone() {
    let engine = MockEngine::start(MockConfig { total_kv_blocks: 4, ..engine_config() }).await.unwrap();
    let index = index();
    let _stream = stream(&index, ROW, &engine.event_endpoints()[0]);
    let first = "0123456789abcdef0123456789ABCDEF....";
    until(
        || overlaps(&index, &hashes(first)) == [(ROW, 2)],
        async || {
            engine.clear_cache();
            complete(&engine, 0, first).await;
        },
    )
    .await;
    complete(&engine, 0, "another prompt, which needs every last block here").await;
    until(|| overlaps(&index, &hashes(first)).is_empty(), async || {}).await;
}

#[tokio::test]
async fn an_engine_that_starts_anew_holds_nothing_of_what_it_held() {
    let engine = MockEngine::start(engine_config()).await.unwrap();
    let index = index();
    let endpoint = engine.event_endpoints()[0].clone();
    let stream = stream(&index, ROW, &endpoint);
    let first = "the first engine's prompt, of many blocks";
    until(
        || !overlaps(&index, &hashes(first)).is_empty(),
        async || {
            engine.clear_cache();
            complete(&engine, 0, first).await;
        },
    )
    .await;
    engine.stop().await;
    let again = Some(KvEventConfig { endpoint, topic: "kv".to_owned(), replay: None });
    let engine = MockEngine::start(MockConfig { kv_events: again, ..engine_config() }).await.unwrap();
    let second = "what is asked of the second engine is something else";
    until(
        || !overlaps(&index, &hashes(second)).is_empty(),
        async || {
            engine.clear_cache();
            complete(&engine, 0, second).await;
        },
    )
    .await;
    assert_eq!(overlaps(&index, &hashes(first)), []);
    assert!(stream.stats().gaps > 0);
}

#[tokio::test]
async fn what_was_before_the_first_message_and_in_a_gap_is_asked_for_again() {
    let replay = Some("tcp://127.0.0.1:0".to_owned());
    let kv_events = Some(KvEventConfig { topic: "kv".to_owned(), replay, ..KvEventConfig::default() });
    let engine = MockEngine::start(MockConfig { kv_events, ..engine_config() }).await.unwrap();
    let before = "what the engine was asked before anybody listened";
    complete(&engine, 0, before).await;
    let index = index();
    let stream = stream_with(&index, ROW, &engine.event_endpoints()[0], Some(&engine.replay_endpoints()[0]));
    let mut prompts = (0..).map(|number| format!("prompt number {number} of those that follow"));
    until(|| stream.stats().replayed > 0, async || complete(&engine, 0, &prompts.next().unwrap()).await).await;
    until(|| overlaps(&index, &hashes(before)) == [(ROW, hashes(before).len() as u32)], async || {}).await;
    assert_eq!((stream.stats().gaps, stream.stats().malformed), (0, 0));
}

/// A publisher that sends what it is told to, once somebody listens.
struct Publisher {
    socket: PubSocket,
    endpoint: String,
}

impl Publisher {
    async fn new() -> Self {
        let mut socket = PubSocket::new();
        let endpoint = socket.bind("tcp://127.0.0.1:0").await.unwrap().to_string();
        Self { socket, endpoint }
    }

    async fn send(&mut self, number: u64, batch: &[u8]) {
        let mut message = ZmqMessage::from("kv");
        message.push_back(number.to_be_bytes().to_vec().into());
        message.push_back(batch.to_vec().into());
        self.socket.send(message).await.unwrap();
    }
}

/// What msgspec 0.23 encodes for vLLM's `KVEventBatch`: a device block of the tokens 1, 2, 3, 4 with the hash 11, then the
/// block after it, of 5, 6, 7, 8 with the hash 12, in host memory; of no rank.
const STORED: &str = "93cb3ff80000000000009297ab426c6f636b53746f726564910bc0940102030404c0a347505597ab426c6f636b53746f726564910c0b940506070804c0a3435055c0";
/// And for `BlockRemoved` of the block 11.
const REMOVED: &str = "93cb3ff80000000000009193ac426c6f636b52656d6f766564910ba3475055c0";

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// An index that has heard of the blocks of [`STORED`], last in message 1000, and of nothing since.
async fn told(publisher: &mut Publisher) -> (Arc<PrefixIndex>, KvEventStream) {
    let index = index();
    let stream = stream(&index, ROW, &publisher.endpoint.clone());
    let mut numbers = 0..;
    let send = async || publisher.send(numbers.next().unwrap(), &bytes(STORED)).await;
    until(|| stream.stats().batches > 0, send).await;
    // What is still on its way comes before this one, whose number makes the only gap.
    publisher.send(1_000, &bytes(STORED)).await;
    until(|| stream.stats().gaps == 1, async || {}).await;
    until(|| index.blocks() == 2, async || {}).await;
    (index, stream)
}

fn tokens() -> Vec<u64> {
    PromptReader::new(BLOCK_SIZE).read_now(&PromptInput::tokens((1..=8).collect())).block_hashes
}

#[tokio::test]
async fn vllm_s_own_bytes_are_understood_and_gaps_and_rubbish_clear_the_row() {
    let mut publisher = Publisher::new().await;
    let (index, stream) = told(&mut publisher).await;
    let mut found = Vec::new();
    index.overlaps(&tokens(), 0.0, &mut found);
    assert_eq!(found, [PrefixOverlap { key: ROW, device_blocks: 1, host_blocks: 1, disk_blocks: 0 }]);

    // From here on, each message is read before the next one is sent.
    let events = |stats: KvEventStats| stats.applied + stats.ignored + stats.malformed;
    let mut next = async |number: u64, batch: &[u8]| {
        // A batch has one event or two, and is done with its last; rubbish is as one.
        let wanted = events(stream.stats()) + if batch == bytes(STORED) { 2 } else { 1 };
        publisher.send(number, batch).await;
        until(|| events(stream.stats()) == wanted, async || {}).await;
    };
    next(1_001, &bytes(REMOVED)).await;
    assert_eq!(overlaps(&index, &tokens()), [], "the host's block stands on a block that is gone");
    next(1_002, &bytes(STORED)).await;
    assert_eq!(overlaps(&index, &tokens()), [(ROW, 1)]);
    next(1_004, &bytes(REMOVED)).await;
    assert_eq!((stream.stats().gaps, index.blocks()), (2, 0));
    next(1_005, &bytes(STORED)).await;
    next(1_006, b"rubbish").await;
    assert_eq!((stream.stats().malformed, index.blocks()), (1, 0));
    next(1_007, &bytes(STORED)).await;
    assert_eq!(stream.stats().gaps, 2, "the number of a message that cannot be read still counts");
    assert_eq!(overlaps(&index, &tokens()), [(ROW, 1)]);
}

/// Sends these messages again, whatever is asked for.
async fn replaying(numbers: &'static [u64]) -> String {
    let mut socket = RouterSocket::new();
    let endpoint = socket.bind("tcp://127.0.0.1:0").await.unwrap().to_string();
    tokio::spawn(async move {
        while let Ok(asked) = socket.recv().await {
            for (number, batch) in numbers.iter().map(|number| (*number, bytes(STORED))).chain([(u64::MAX, Vec::new())])
            {
                let mut message = ZmqMessage::from(asked.get(0).unwrap().clone());
                for frame in [Vec::new(), number.to_be_bytes().to_vec(), batch] {
                    message.push_back(frame.into());
                }
                socket.send(message).await.unwrap();
            }
        }
    });
    endpoint
}

#[tokio::test]
async fn what_comes_again_with_a_hole_is_not_taken_for_the_whole() {
    let mut publisher = Publisher::new().await;
    let replay = replaying(&[1_001, 1_003, 1_004]).await;
    let index = index();
    let stream = stream_with(&index, ROW, &publisher.endpoint.clone(), Some(&replay));
    // Nothing that is sent again leads up to this one.
    let mut numbers = 0..;
    until(|| stream.stats().batches > 0, async || publisher.send(numbers.next().unwrap(), &bytes(STORED)).await).await;
    publisher.send(1_000, &bytes(STORED)).await;
    until(|| stream.stats().gaps == 1, async || {}).await;
    assert_eq!(stream.stats().replayed, 0);
    // 1,002 is not to be had: what was before it is forgotten, what follows it counts.
    publisher.send(1_005, &bytes(REMOVED)).await;
    until(|| stream.stats().gaps == 2, async || {}).await;
    until(|| stream.stats().replayed == 2, async || {}).await;
}

#[tokio::test]
async fn an_endpoint_that_is_none_is_refused_with_a_sentence() {
    let (endpoint, topic) = ("localhost".to_owned(), String::new());
    let source = KvEventSource { key: ROW, endpoint, topic, replay: None, block_size: 4 };
    let sentence = KvEventStream::start(index(), source).unwrap_err().to_string();
    assert!(sentence.starts_with("the KV events of worker 7 rank 0 cannot be read from `localhost`: "), "{sentence}");
    assert!(sentence.ends_with("; give an endpoint such as tcp://10.0.0.7:5557"), "{sentence}");
}
