//! The batch of one rank, without a clock: sequences are admitted between steps, in order of arrival, when all blocks
//! that they will ever need fit; the first that does not fit holds up those behind it. In a step each decoding sequence
//! makes one token, and what is left of the step's token budget goes to prefill, first come, first served, in chunks.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use tokio::sync::mpsc::UnboundedSender;

use crate::cache::{Cache, Holding};
use crate::config::MockConfig;
use crate::events::KvEvent;
use crate::stats::{LiveStats, add, set, subtract};
use crate::text;

/// What a sequence tells whoever asked for it. A sequence whose receiver is gone is dropped from the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// It was admitted, and so many tokens of its prompt were cached.
    Admitted { cached_tokens: u32 },
    /// The next token of its answer.
    Token(u32),
    /// The answer is whole.
    Finished,
}

/// One request as a rank gets it.
#[derive(Debug)]
pub(crate) struct Job {
    /// Token ids of the prompt, at least one.
    pub(crate) prompt: Vec<u32>,
    /// Tokens of the answer; 0 for a prompt that is computed alone.
    pub(crate) max_tokens: u32,
    pub(crate) outputs: UnboundedSender<Output>,
}

#[derive(Debug)]
struct Sequence {
    job: Job,
    /// Prompt, then answer.
    tokens: Vec<u32>,
    /// Hashes of the full blocks of `tokens`.
    hashes: Vec<u64>,
    /// Tokens whose keys and values are there.
    computed: usize,
    /// Full blocks that are in the cache or known to be.
    filled: usize,
    holding: Holding,
}

impl Sequence {
    fn prompt_len(&self) -> usize {
        self.job.prompt.len()
    }

    fn produced(&self) -> u32 {
        (self.tokens.len() - self.prompt_len()) as u32
    }

    fn is_cancelled(&self) -> bool {
        self.job.outputs.is_closed()
    }
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Sequences that decode.
    pub(crate) decoding: usize,
    /// Tokens that are prefilled.
    pub(crate) prefill_tokens: u32,
}

#[derive(Debug)]
pub(crate) struct Scheduler {
    block_size: usize,
    max_sequences: usize,
    budget: u32,
    cache: Cache,
    waiting: VecDeque<Job>,
    running: Vec<Sequence>,
    /// How far the running step takes each running sequence's prefill; nowhere for those that decode.
    targets: Vec<usize>,
    events: Vec<KvEvent>,
    stats: Arc<LiveStats>,
}

impl Scheduler {
    pub(crate) fn new(config: &MockConfig, stats: Arc<LiveStats>) -> Self {
        set(&stats.total_blocks, config.total_kv_blocks);
        Self {
            block_size: config.block_size.max(1) as usize,
            max_sequences: config.max_num_seqs.max(1),
            budget: config.max_num_batched_tokens.max(1),
            cache: Cache::new(config.total_kv_blocks),
            waiting: VecDeque::new(),
            running: Vec::new(),
            targets: Vec::new(),
            events: Vec::new(),
            stats,
        }
    }

    /// Takes a request into the line. The caller has counted it as waiting.
    pub(crate) fn enqueue(&mut self, job: Job) {
        self.waiting.push_back(job);
    }

    /// Forgets all blocks that no running sequence uses.
    pub(crate) fn clear_cache(&mut self) {
        self.cache.clear_idle();
        let hashes = self.cache.take_evicted();
        if self.running.is_empty() {
            self.events.push(KvEvent::AllBlocksCleared);
        } else if !hashes.is_empty() {
            // What runs keeps its blocks.
            self.events.push(KvEvent::BlockRemoved { hashes });
        }
    }

    /// Starts the next step; none where there is nothing to do.
    pub(crate) fn start_step(&mut self) -> Option<Step> {
        self.drop_cancelled();
        let decoding = self.running.iter().filter(|sequence| sequence.computed >= sequence.prompt_len()).count();
        let mut budget = (self.budget as usize).saturating_sub(decoding);
        self.targets.clear();
        for sequence in &self.running {
            let chunk = sequence.prompt_len().saturating_sub(sequence.computed).min(budget);
            budget -= chunk;
            self.targets.push(sequence.computed + chunk);
        }
        while budget > 0 {
            let Some(sequence) = self.admit() else { break };
            let chunk = (sequence.prompt_len() - sequence.computed).min(budget);
            budget -= chunk;
            self.targets.push(sequence.computed + chunk);
            self.running.push(sequence);
        }
        let prefill: usize = self.running.iter().zip(&self.targets).map(|(sequence, to)| to - sequence.computed).sum();
        self.publish_gauges();
        (!self.running.is_empty()).then_some(Step { decoding, prefill_tokens: prefill as u32 })
    }

    /// Ends the step: tokens go out, blocks that became full are stored, sequences that are whole leave.
    pub(crate) fn finish_step(&mut self) {
        let targets = std::mem::take(&mut self.targets);
        for (sequence, target) in self.running.iter_mut().zip(&targets) {
            let decoding = sequence.computed >= sequence.prompt_len();
            sequence.computed = if decoding { sequence.tokens.len() } else { *target };
            store_full_blocks(sequence, &mut self.cache, self.block_size, &mut self.events);
            if sequence.computed < sequence.prompt_len() {
                continue;
            }
            if !decoding {
                add(&self.stats.prompt_tokens, sequence.prompt_len() as u64);
            }
            if sequence.produced() < sequence.job.max_tokens {
                let seed = sequence.hashes.first().copied().unwrap_or_default() ^ sequence.prompt_len() as u64;
                let token = text::token(seed, sequence.produced());
                sequence.tokens.push(token);
                add(&self.stats.generated_tokens, 1);
                // Where nobody listens the sequence is dropped before the next step.
                let _ = sequence.job.outputs.send(Output::Token(token));
            }
        }
        self.targets = targets;
        self.retire();
        self.publish_gauges();
    }

    /// KV events since the last call, in order.
    pub(crate) fn take_events(&mut self) -> Vec<KvEvent> {
        std::mem::take(&mut self.events)
    }

    fn drop_cancelled(&mut self) {
        let (stats, before) = (&self.stats, self.waiting.len());
        self.waiting.retain(|job| !job.outputs.is_closed());
        let gone = (before - self.waiting.len()) as u64;
        subtract(&stats.waiting, gone);
        add(&stats.aborted, gone);
        for sequence in self.running.extract_if(.., |sequence| sequence.is_cancelled()) {
            self.cache.release(sequence.holding);
            add(&stats.aborted, 1);
        }
    }

    fn retire(&mut self) {
        let done = |sequence: &mut Sequence| {
            sequence.computed >= sequence.prompt_len() && sequence.produced() >= sequence.job.max_tokens
        };
        for sequence in self.running.extract_if(.., done) {
            let _ = sequence.job.outputs.send(Output::Finished);
            self.cache.release(sequence.holding);
            add(&self.stats.finished, 1);
        }
    }

    fn admit(&mut self) -> Option<Sequence> {
        if self.running.len() >= self.max_sequences {
            return None;
        }
        let job = self.waiting.front()?;
        let hashes = block_hashes(&job.prompt, self.block_size);
        // The last token is always computed: the first token of the answer grows from it.
        let findable = (job.prompt.len() - 1) / self.block_size;
        let total = (job.prompt.len() + job.max_tokens as usize).div_ceil(self.block_size);
        let (hits, holding) = self.cache.admit(hashes.get(..findable)?, total as u64)?;
        let evicted = self.cache.take_evicted();
        if !evicted.is_empty() {
            self.events.push(KvEvent::BlockRemoved { hashes: evicted });
        }
        let job = self.waiting.pop_front()?;
        let cached = hits * self.block_size;
        subtract(&self.stats.waiting, 1);
        add(&self.stats.prefix_queries, job.prompt.len() as u64);
        add(&self.stats.prefix_hits, cached as u64);
        let _ = job.outputs.send(Output::Admitted { cached_tokens: cached as u32 });
        let tokens = job.prompt.clone();
        Some(Sequence { job, tokens, hashes, computed: cached, filled: hits, holding })
    }

    fn publish_gauges(&self) {
        set(&self.stats.running, self.running.len() as u64);
        set(&self.stats.used_blocks, self.cache.used());
    }
}

/// Stores the blocks that became full, and notes those that were not cached before as one event for each run of them.
fn store_full_blocks(sequence: &mut Sequence, cache: &mut Cache, block_size: usize, events: &mut Vec<KvEvent>) {
    let mut run: Option<KvEvent> = None;
    while (sequence.filled + 1) * block_size <= sequence.computed {
        let at = sequence.filled;
        let parent = at.checked_sub(1).and_then(|parent| sequence.hashes.get(parent)).copied();
        let Some(tokens) = sequence.tokens.get(at * block_size..(at + 1) * block_size) else { break };
        let hash = sequence.hashes.get(at).copied().unwrap_or_else(|| next_hash(parent, tokens));
        if at == sequence.hashes.len() {
            sequence.hashes.push(hash);
        }
        sequence.filled += 1;
        if !cache.fill(&mut sequence.holding, hash) {
            events.extend(run.take());
            continue;
        }
        match &mut run {
            Some(KvEvent::BlockStored { hashes, tokens: stored, .. }) => {
                hashes.push(hash);
                stored.extend_from_slice(tokens);
            }
            _ => run = Some(KvEvent::BlockStored { hashes: vec![hash], parent, tokens: tokens.to_vec() }),
        }
    }
    events.extend(run);
}

fn block_hashes(tokens: &[u32], block_size: usize) -> Vec<u64> {
    let mut parent = None;
    let next = |block: &[u32]| {
        let hash = next_hash(parent, block);
        parent = Some(hash);
        hash
    };
    tokens.chunks_exact(block_size).map(next).collect()
}

/// The engine's own hash of a block and all before it; a router that wants to know a block by another one has its
/// tokens.
fn next_hash(parent: Option<u64>, tokens: &[u32]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (parent, tokens).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    fn scheduler() -> Scheduler {
        let config = MockConfig {
            block_size: 4,
            total_kv_blocks: 8,
            max_num_seqs: 2,
            max_num_batched_tokens: 10,
            ..MockConfig::default()
        };
        Scheduler::new(&config, Arc::default())
    }

    fn submit(scheduler: &mut Scheduler, prompt: &[u32], max_tokens: u32) -> UnboundedReceiver<Output> {
        let (outputs, receiver) = unbounded_channel();
        add(&scheduler.stats.waiting, 1);
        scheduler.enqueue(Job { prompt: prompt.to_vec(), max_tokens, outputs });
        receiver
    }

    /// Steps until nothing is left to do.
    fn run(scheduler: &mut Scheduler) -> Vec<Step> {
        std::iter::from_fn(|| {
            let step = scheduler.start_step();
            scheduler.finish_step();
            step
        })
        .collect()
    }

    fn received(receiver: &mut UnboundedReceiver<Output>) -> Vec<Output> {
        std::iter::from_fn(|| receiver.try_recv().ok()).collect()
    }

    const fn step(decoding: usize, prefill_tokens: u32) -> Step {
        Step { decoding, prefill_tokens }
    }

    #[test]
    fn a_prompt_is_prefilled_in_chunks_and_then_decoded_token_by_token() {
        let mut scheduler = scheduler();
        let mut outputs = submit(&mut scheduler, &[7; 13], 3);
        assert_eq!(run(&mut scheduler), [step(0, 10), step(0, 3), step(1, 0), step(1, 0)]);
        let outputs = received(&mut outputs);
        assert_eq!(outputs.first(), Some(&Output::Admitted { cached_tokens: 0 }));
        assert_eq!(outputs.iter().filter(|output| matches!(output, Output::Token(_))).count(), 3);
        assert_eq!(outputs.last(), Some(&Output::Finished));
        let stats = scheduler.stats.read();
        assert_eq!((stats.running, stats.waiting, stats.used_blocks, stats.finished), (0, 0, 0, 1));
    }

    #[test]
    fn a_cached_prefix_is_not_prefilled_again_and_the_last_token_always_is() {
        let mut scheduler = scheduler();
        let prompt = [1, 2, 3, 4, 5, 6, 7, 8];
        let _first = submit(&mut scheduler, &prompt, 1);
        assert_eq!(run(&mut scheduler), [step(0, 8)]);
        let mut second = submit(&mut scheduler, &prompt, 1);
        assert_eq!(run(&mut scheduler), [step(0, 4)]);
        assert_eq!(received(&mut second).first(), Some(&Output::Admitted { cached_tokens: 4 }));
        let stats = scheduler.stats.read();
        assert_eq!((stats.prefix_queries, stats.prefix_hits), (16, 4));
    }

    #[test]
    fn events_tell_what_is_stored_evicted_and_cleared() {
        let mut scheduler = scheduler();
        let prompt: Vec<u32> = (0..9).collect();
        let _outputs = submit(&mut scheduler, &prompt, 4);
        run(&mut scheduler);
        let hashes = block_hashes(&prompt, 4);
        let events = scheduler.take_events();
        let [KvEvent::BlockStored { hashes: stored, parent, tokens }, KvEvent::BlockStored { parent: output, .. }] =
            &events[..]
        else {
            panic!("{events:?}")
        };
        assert_eq!((stored, *parent, tokens), (&hashes, None, &prompt[..8].to_vec()));
        assert_eq!(*output, hashes.last().copied(), "the answer's block follows the prompt's");
        // Seven of the eight blocks are wanted: of the three that are idle two have to go.
        let _other = submit(&mut scheduler, &[9; 20], 8);
        run(&mut scheduler);
        let removed: Vec<_> =
            scheduler.take_events().into_iter().filter(|event| matches!(event, KvEvent::BlockRemoved { .. })).collect();
        let [KvEvent::BlockRemoved { hashes: removed }] = &removed[..] else { panic!("{removed:?}") };
        assert_eq!(removed.len(), 2);
        assert!(!removed.contains(&hashes[0]), "the start of a prefix goes last");
        scheduler.clear_cache();
        assert_eq!(scheduler.take_events(), [KvEvent::AllBlocksCleared]);
    }

    #[test]
    fn sequences_and_blocks_are_bounded_and_the_line_is_kept() {
        let mut scheduler = scheduler();
        let _first = submit(&mut scheduler, &[1; 4], 16);
        let _second = submit(&mut scheduler, &[2; 16], 1);
        let mut third = submit(&mut scheduler, &[3; 1], 1);
        scheduler.start_step();
        let stats = scheduler.stats.read();
        assert_eq!((stats.running, stats.waiting), (1, 2), "five blocks and then five more do not fit in eight");
        scheduler.finish_step();
        run(&mut scheduler);
        assert_eq!(received(&mut third).last(), Some(&Output::Finished));
    }

    #[test]
    fn a_sequence_without_a_listener_leaves_with_its_blocks() {
        let mut scheduler = scheduler();
        let running = submit(&mut scheduler, &[1; 4], 16);
        let waiting = submit(&mut scheduler, &[2; 16], 16);
        scheduler.start_step();
        scheduler.finish_step();
        drop((running, waiting));
        assert_eq!(scheduler.start_step(), None);
        let stats = scheduler.stats.read();
        assert_eq!((stats.running, stats.waiting, stats.used_blocks, stats.aborted), (0, 0, 0, 2));
    }
}
