//! What the server asks of prompts: their tokens and KV blocks, and which workers hold a prefix of them.

use std::collections::HashMap;

use pointsman_routing::{Partition, PartitionKey, WorkerKey, WorkerOverlap};
use pointsman_signals::{KvEventStats, PromptReader, TokenizerError};
use tokio::runtime::Handle;

use crate::config::ModelEntry;
use crate::fleet::WorkerSpec;
use crate::predicted::Predicted;

/// A prompt as routing sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    /// Its tokens.
    pub tokens: u64,
    /// Its full KV blocks as a chain of hashes; empty where they are not known.
    pub block_hashes: Vec<u64>,
}

/// Reads prompts, and keeps an index of prefixes for each partition.
pub trait Signals: Send + Sync {
    /// What reads the prompts of a partition.
    fn reader(&self, model: &str, block_size: u32) -> PromptReader;

    /// The prefix index of a partition; none where no overlaps are known.
    fn index(&self, key: &PartitionKey, block_size: u32) -> Option<Box<dyn PrefixIndex>>;
}

/// Which workers of one partition hold which prefixes.
pub trait PrefixIndex: Send + Sync {
    /// Fills `overlaps` with what the partition's rows hold of the prompt, sorted by row, each row once.
    fn overlaps(&self, partition: &Partition, block_hashes: &[u64], now_ms: f64, overlaps: &mut Vec<WorkerOverlap>);

    /// A prompt was routed to that row.
    fn routed(&self, worker: WorkerKey, block_hashes: &[u64], now_ms: f64);

    /// The worker is of the partition now, or tells something else of itself: it may publish what it holds. What listens
    /// to it runs on `runtime`.
    fn joined(&self, worker: &WorkerSpec, runtime: &Handle);

    /// The worker has gone, and with it what it held.
    fn removed(&self, worker: u64);

    /// What came of KV events so far, of each worker that publishes them.
    fn kv_events(&self) -> Vec<(u64, KvEventStats)>;
}

/// Prompts by the tokenizers of their models, and an index for every partition.
#[derive(Clone, Debug)]
pub struct ModelSignals {
    readers: HashMap<String, PromptReader>,
    predicted: Predicted,
}

impl ModelSignals {
    /// The tokenizers of these models; a model without one gets the byte estimate.
    ///
    /// # Errors
    /// A tokenizer that cannot be read.
    pub fn new(models: &[ModelEntry], predicted: Predicted) -> Result<Self, TokenizerError> {
        let mut readers = HashMap::new();
        for ModelEntry { name, tokenizer } in models {
            let Some(path) = tokenizer else { continue };
            readers.insert(name.clone(), PromptReader::new(1).with_tokenizer(path)?);
        }
        Ok(Self { readers, predicted })
    }
}

impl Signals for ModelSignals {
    fn reader(&self, model: &str, block_size: u32) -> PromptReader {
        match self.readers.get(model) {
            Some(reader) => reader.clone().with_block_size(block_size),
            None => self.predicted.reader(model, block_size),
        }
    }

    fn index(&self, key: &PartitionKey, block_size: u32) -> Option<Box<dyn PrefixIndex>> {
        self.predicted.index(key, block_size)
    }
}
