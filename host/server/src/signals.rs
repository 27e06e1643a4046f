//! What the server asks of prompts: their tokens and KV blocks, and which workers hold a prefix of them.

use pointsman_routing::{Partition, PartitionKey, WorkerKey, WorkerOverlap};
use serde_json::Value;

/// A prompt as routing sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    /// Its tokens.
    pub tokens: u64,
    /// Its full KV blocks as a chain of hashes; empty where they are not known.
    pub block_hashes: Vec<u64>,
}

/// Where a request's body has its prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptKind {
    /// `messages`.
    Chat,
    /// `prompt`.
    Completion,
    /// `input`.
    Embedding,
}

/// Reads prompts, and keeps an index of prefixes for each partition.
pub trait Signals: Send + Sync {
    /// The prompt of a request for that model. `blocks` says whether anything reads its blocks.
    fn prompt(&self, model: &str, block_size: u32, kind: PromptKind, body: &Value, blocks: bool) -> Prompt;

    /// The prefix index of a partition; none where no overlaps are known.
    fn index(&self, key: &PartitionKey, block_size: u32) -> Option<Box<dyn PrefixIndex>>;
}

/// Which workers of one partition hold which prefixes.
pub trait PrefixIndex: Send + Sync {
    /// Fills `overlaps` with what the partition's rows hold of the prompt, sorted by row, each row once.
    fn overlaps(&self, partition: &Partition, block_hashes: &[u64], now_ms: f64, overlaps: &mut Vec<WorkerOverlap>);

    /// A prompt was routed to that row.
    fn routed(&self, worker: WorkerKey, block_hashes: &[u64], now_ms: f64);

    /// The worker has gone, and with it what it held.
    fn removed(&self, worker: u64);
}

/// Four bytes of text a token, no blocks, no overlaps.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByteEstimate;

/// Bytes of text that count as one token.
const BYTES_A_TOKEN: usize = 4;

impl Signals for ByteEstimate {
    fn prompt(&self, _: &str, _: u32, kind: PromptKind, body: &Value, _: bool) -> Prompt {
        let field = match kind {
            PromptKind::Chat => "messages",
            PromptKind::Completion => "prompt",
            PromptKind::Embedding => "input",
        };
        let (bytes, ids) = body.get(field).map_or((0, 0), size);
        Prompt { tokens: (bytes.div_ceil(BYTES_A_TOKEN) + ids) as u64, block_hashes: Vec::new() }
    }

    fn index(&self, _: &PartitionKey, _: u32) -> Option<Box<dyn PrefixIndex>> {
        None
    }
}

/// Bytes of texts and number of token ids.
fn size(value: &Value) -> (usize, usize) {
    let sum = |(bytes, ids), (more_bytes, more_ids)| (bytes + more_bytes, ids + more_ids);
    match value {
        Value::String(text) => (text.len(), 0),
        Value::Number(_) => (0, 1),
        Value::Array(items) => items.iter().map(size).fold((0, 0), sum),
        Value::Object(fields) => fields.values().map(size).fold((0, 0), sum),
        Value::Null | Value::Bool(_) => (0, 0),
    }
}
