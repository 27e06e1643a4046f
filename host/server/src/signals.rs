//! What the server asks of prompts: their tokens and KV blocks, and which workers hold a prefix of them.

use pointsman_routing::{Partition, PartitionKey, WorkerKey, WorkerOverlap};

/// A prompt as routing sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    /// Its tokens.
    pub tokens: u64,
    /// Its full KV blocks as a chain of hashes; empty where they are not known.
    pub block_hashes: Vec<u64>,
}

/// The words of a request that make its prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromptInput<'a> {
    /// Roles and contents of a chat, in order.
    Chat(Vec<(&'a str, &'a str)>),
    /// A plain text.
    Text(&'a str),
    /// Token ids.
    Tokens(Vec<u32>),
}

/// Reads prompts, and keeps an index of prefixes for each partition.
pub trait Signals: Send + Sync {
    /// The prompt of a request for that model. `blocks` says whether anything reads its blocks.
    fn prompt(&self, model: &str, block_size: u32, input: &PromptInput<'_>, blocks: bool) -> Prompt;

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
    fn prompt(&self, _: &str, _: u32, input: &PromptInput<'_>, _: bool) -> Prompt {
        let estimate = |bytes: usize| bytes.div_ceil(BYTES_A_TOKEN);
        let tokens = match input {
            PromptInput::Chat(messages) => estimate(messages.iter().map(|(role, text)| role.len() + text.len()).sum()),
            PromptInput::Text(text) => estimate(text.len()),
            PromptInput::Tokens(tokens) => tokens.len(),
        };
        Prompt { tokens: tokens as u64, block_hashes: Vec::new() }
    }

    fn index(&self, _: &PartitionKey, _: u32) -> Option<Box<dyn PrefixIndex>> {
        None
    }
}
