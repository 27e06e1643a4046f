//! A simulated worker: continuous batching with chunked prefill and a KV cache, in virtual microseconds.
//!
//! A worker runs one step after the other. In a step each decoding request makes one token; what is left of the step's
//! token budget goes to prefill, first come, first served, in chunks. Requests are admitted between steps, in order of
//! arrival, when all blocks that they will ever need fit; the first that does not fit holds up those behind it.
//! Steps that differ in nothing but their number are taken at once.
//!
//! docs/replay.md has the sources of the figures.

use std::collections::VecDeque;

use crate::cache::PrefixCache;
use crate::trace::BLOCK_SIZE;

/// The figures of a simulated worker. The default is of the order of what is published for LLaMA-2-70B in 16 bits on
/// one node of eight H100-80GB: see docs/replay.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerModel {
    /// KV blocks that fit in the device's memory.
    pub kv_blocks: u64,
    /// Tokens of one step at most, prefill and decode together.
    pub max_batched_tokens: u32,
    /// Requests that are admitted at once, at most.
    pub max_sequences: u32,
    /// What a step takes at least, in microseconds.
    pub step_us: u64,
    /// What one prefilled token adds, without attention to the tokens before it, in nanoseconds.
    pub prefill_token_ns: u64,
    /// At this distance from the start of the prompt, attention costs as much as the rest of the token.
    pub attention_tokens: u64,
    /// What a step takes more if it decodes at all, in microseconds.
    pub decode_us: u64,
    /// What each decoding request adds to its step, in microseconds.
    pub decode_sequence_us: u64,
    /// What moving a prompt's KV blocks from a prefill to a decode worker takes at least, in microseconds.
    pub transfer_us: u64,
    /// What each moved token adds, in nanoseconds.
    pub transfer_token_ns: u64,
}

impl Default for WorkerModel {
    fn default() -> Self {
        Self {
            kv_blocks: 2_500,
            max_batched_tokens: 2_048,
            max_sequences: 128,
            step_us: 26_000,
            prefill_token_ns: 53_500,
            attention_tokens: 52_600,
            decode_us: 3_600,
            decode_sequence_us: 310,
            transfer_us: 500,
            transfer_token_ns: 3_277,
        }
    }
}

impl WorkerModel {
    /// Prefill of the prompt's tokens `from..to` beyond the step's base, in microseconds.
    #[must_use]
    pub fn prefill_us(&self, from: u64, to: u64) -> u64 {
        let (from, to) = (u128::from(from), u128::from(to));
        let twice = 2 * u128::from(self.attention_tokens.max(1));
        let weighted = twice * (to - from.min(to)) + (to * to).saturating_sub(from * from);
        (u128::from(self.prefill_token_ns) * weighted / (twice * 1_000)) as u64
    }

    /// One step that decodes for `sequences` requests and prefills for `prefill_us`, in microseconds.
    #[must_use]
    pub const fn step_us(&self, sequences: u64, prefill_us: u64) -> u64 {
        let decode = if sequences > 0 { self.decode_us + sequences * self.decode_sequence_us } else { 0 };
        self.step_us + decode + prefill_us
    }

    /// Moving the KV blocks of `tokens` tokens, in microseconds.
    #[must_use]
    pub const fn transfer_us(&self, tokens: u64) -> u64 {
        self.transfer_us + tokens * self.transfer_token_ns / 1_000
    }
}

/// What a worker does for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Prefill, then decode.
    Whole,
    /// Prefill alone; the blocks stay in the cache.
    Prefill,
    /// Fetch the prompt's blocks from a prefill worker, then decode.
    Decode,
}

/// One request as a worker gets it.
#[derive(Clone, Copy, Debug)]
pub struct Job<'t> {
    /// The request's number.
    pub request: usize,
    /// What to do for it.
    pub work: Work,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Tokens of the answer.
    pub output_tokens: u32,
    /// Ids of the prompt's blocks; empty where they are not known.
    pub block_ids: &'t [u64],
}

impl Job<'_> {
    /// The blocks that the worker holds for the request when it ends.
    #[must_use]
    pub fn total_blocks(&self) -> u64 {
        let output = if self.work == Work::Prefill { 0 } else { self.output_tokens };
        blocks(self.prompt_tokens, output).max(self.block_ids.len() as u64)
    }

    fn private_blocks(&self) -> u64 {
        self.total_blocks() - self.block_ids.len() as u64
    }
}

fn blocks(prompt: u32, output: u32) -> u64 {
    (u64::from(prompt) + u64::from(output)).div_ceil(u64::from(BLOCK_SIZE))
}

/// What happened to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// The worker admitted it and found so many of its leading blocks.
    Admitted {
        /// Blocks of the leading run.
        hits: u64,
    },
    /// Its prompt is computed.
    Prefilled,
    /// The first token of its answer is there (or the answer is empty and nothing is left to do before it).
    FirstToken,
    /// Its tokens went over into another block.
    OutputBlock,
    /// The worker is done with it.
    Finished,
}

/// What happened, and to which request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The request's number.
    pub request: usize,
    /// What happened to it.
    pub happening: Happening,
}

#[derive(Debug)]
struct Active<'t> {
    job: Job<'t>,
    /// Tokens of the prompt that are computed or cached.
    prefilled: u32,
    /// Tokens of the answer so far.
    produced: u32,
}

/// Steps of equal length.
#[derive(Clone, Copy, Debug)]
struct Steps {
    start: u64,
    length: u64,
    count: u64,
}

impl Steps {
    const fn end(&self) -> u64 {
        self.start + self.length * self.count
    }
}

/// One simulated worker. Its owner calls [`Worker::advance`] at [`Worker::next_event`], gives it jobs, and calls
/// [`Worker::start`] once all that happens at an instant has happened.
#[derive(Debug)]
pub struct Worker<'t> {
    model: WorkerModel,
    cache: PrefixCache,
    waiting: VecDeque<Job<'t>>,
    /// The request whose prompt is computed in part.
    partial: Option<Active<'t>>,
    /// Requests whose prompt is complete with the current step.
    completing: Vec<Active<'t>>,
    /// Requests whose blocks are on their way, and when they arrive.
    fetching: Vec<(u64, Active<'t>)>,
    /// Requests whose blocks have arrived since the current step began.
    fetched: Vec<Active<'t>>,
    decoding: Vec<Active<'t>>,
    steps: Option<Steps>,
}

impl<'t> Worker<'t> {
    /// An idle worker with an empty cache.
    #[must_use]
    pub fn new(model: WorkerModel) -> Self {
        Self {
            model,
            cache: PrefixCache::new(model.kv_blocks),
            waiting: VecDeque::new(),
            partial: None,
            completing: Vec::new(),
            fetching: Vec::new(),
            fetched: Vec::new(),
            decoding: Vec::new(),
            steps: None,
        }
    }

    /// How many of the prompt's first blocks are in the cache, without a gap.
    #[must_use]
    pub fn overlap(&self, block_ids: &[u64]) -> u64 {
        self.cache.leading_run(block_ids)
    }

    /// KV blocks that are occupied: by requests, and by what may be evicted.
    #[must_use]
    pub fn used_blocks(&self) -> u64 {
        self.cache.used()
    }

    /// Requests that the worker has and has not finished.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.waiting.len() + self.admitted()
    }

    fn admitted(&self) -> usize {
        self.decoding.len()
            + self.completing.len()
            + self.fetching.len()
            + self.fetched.len()
            + usize::from(self.partial.is_some())
    }

    /// When the worker has to be advanced next; none while it is idle.
    #[must_use]
    pub fn next_event(&self) -> Option<u64> {
        let arrival = self.fetching.iter().map(|(at, _)| *at).min();
        self.steps.map(|steps| steps.end()).into_iter().chain(arrival).min()
    }

    /// Hands the worker a request, at the end of its queue.
    pub fn enqueue(&mut self, now: u64, job: Job<'t>) {
        self.waiting.push_back(job);
        self.interrupt(now);
    }

    /// Ends equal steps at the next boundary, so that what came meanwhile can join.
    fn interrupt(&mut self, now: u64) {
        if let Some(steps) = &mut self.steps {
            steps.count = steps.count.min(now.saturating_sub(steps.start).div_ceil(steps.length).max(1));
        }
    }

    /// Lets happen what happens at `now`; the events come in order.
    pub fn advance(&mut self, now: u64, events: &mut Vec<Event>) {
        if let Some(steps) = self.steps.take_if(|steps| steps.end() <= now) {
            self.end(steps.count as u32, events);
        }
        let mut place = 0;
        while let Some((at, _)) = self.fetching.get(place) {
            if *at <= now {
                let (_, active) = self.fetching.remove(place);
                self.fetched.push(active);
                self.interrupt(now);
            } else {
                place += 1;
            }
        }
    }

    /// The steps are over: tokens are there.
    fn end(&mut self, count: u32, events: &mut Vec<Event>) {
        for active in &mut self.decoding {
            produce(active, count, events);
        }
        for mut active in self.completing.drain(..) {
            events.push(Event { request: active.job.request, happening: Happening::Prefilled });
            if active.job.work == Work::Whole {
                produce(&mut active, 1, events);
            }
            self.decoding.push(active);
        }
        self.retire(events);
    }

    /// Lets go of every decoding request that has all its tokens.
    fn retire(&mut self, events: &mut Vec<Event>) {
        let cache = &mut self.cache;
        self.decoding.retain(|Active { job, produced, .. }| {
            let done = job.work == Work::Prefill || *produced >= job.output_tokens;
            if done {
                cache.release(job.block_ids, job.private_blocks());
                events.push(Event { request: job.request, happening: Happening::Finished });
            }
            !done
        });
    }

    /// Starts the next step, if there is anything to do and no step is running.
    pub fn start(&mut self, now: u64, events: &mut Vec<Event>) {
        if self.steps.is_some() {
            return;
        }
        for mut active in std::mem::take(&mut self.fetched) {
            if active.job.output_tokens == 0 {
                produce(&mut active, 0, events);
            }
            self.decoding.push(active);
        }
        self.retire(events);

        let sequences = self.decoding.len() as u64;
        let mut budget = u64::from(self.model.max_batched_tokens).saturating_sub(sequences);
        let mut prefill_us = 0;
        while budget > 0 {
            let Some(mut active) = self.partial.take().or_else(|| self.admit(now, events)) else { break };
            let (from, prompt) = (u64::from(active.prefilled), u64::from(active.job.prompt_tokens.max(1)));
            let to = prompt.min(from + budget);
            budget -= to - from;
            prefill_us += self.model.prefill_us(from, to);
            active.prefilled = to as u32;
            if to == prompt {
                self.completing.push(active);
            } else {
                self.partial = Some(active);
            }
        }
        let length = self.model.step_us(sequences, prefill_us).max(1);
        if self.partial.is_some() || !self.completing.is_empty() {
            self.steps = Some(Steps { start: now, length, count: 1 });
        } else if let Some(count) = self.decoding.iter().map(until_noted).min() {
            self.steps = Some(Steps { start: now, length, count });
        }
    }

    /// Admits waiting requests up to the first that has something to prefill; those that fetch their blocks go on
    /// their way.
    fn admit(&mut self, now: u64, events: &mut Vec<Event>) -> Option<Active<'t>> {
        while self.admitted() < self.model.max_sequences as usize {
            let job = *self.waiting.front()?;
            let hits = self.cache.admit(job.block_ids, job.private_blocks())?;
            self.waiting.pop_front();
            events.push(Event { request: job.request, happening: Happening::Admitted { hits } });
            let cached = (hits * u64::from(BLOCK_SIZE)).min(u64::from(job.prompt_tokens));
            if job.work == Work::Decode {
                let at = now + self.model.transfer_us(u64::from(job.prompt_tokens) - cached);
                self.fetching.push((at, Active { job, prefilled: job.prompt_tokens, produced: 0 }));
            } else {
                // The last token is always computed: the first token of the answer grows from it.
                let prefilled = cached.min(u64::from(job.prompt_tokens.saturating_sub(1))) as u32;
                return Some(Active { job, prefilled, produced: 0 });
            }
        }
        None
    }
}

/// Adds tokens to a request's answer; more than one only where nothing is to be noted before the last.
fn produce(active: &mut Active<'_>, tokens: u32, events: &mut Vec<Event>) {
    let Active { job, produced, .. } = active;
    let before = *produced;
    *produced = job.output_tokens.min(before + tokens);
    let mut note = |happening| events.push(Event { request: job.request, happening });
    if before == 0 {
        note(Happening::FirstToken);
    }
    for _ in blocks(job.prompt_tokens, before)..blocks(job.prompt_tokens, *produced) {
        note(Happening::OutputBlock);
    }
}

/// Steps until a decoding request has its first token, another block or its last token.
fn until_noted(active: &Active<'_>) -> u64 {
    if active.produced == 0 {
        return 1;
    }
    let held = u64::from(active.job.prompt_tokens) + u64::from(active.produced);
    let block = u64::from(BLOCK_SIZE) - held % u64::from(BLOCK_SIZE);
    let left = u64::from(active.job.output_tokens.saturating_sub(active.produced));
    // The token that fills a block does not need another; the one after it does.
    let block = if block == u64::from(BLOCK_SIZE) { 1 } else { block + 1 };
    left.min(block).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Round figures: a step takes 10 us, a prefilled token 1 us, a decoding request 2 us, decoding at all 5 us.
    const ROUND: WorkerModel = WorkerModel {
        kv_blocks: 8,
        max_batched_tokens: 1_024,
        max_sequences: 4,
        step_us: 10,
        prefill_token_ns: 1_000,
        attention_tokens: u64::MAX / 2,
        decode_us: 5,
        decode_sequence_us: 2,
        transfer_us: 100,
        transfer_token_ns: 1_000,
    };

    fn job(request: usize, prompt: u32, output: u32, block_ids: &[u64]) -> Job<'_> {
        Job { request, work: Work::Whole, prompt_tokens: prompt, output_tokens: output, block_ids }
    }

    /// Runs until the worker is idle; every event with its time.
    fn run<'t>(worker: &mut Worker<'t>, jobs: &[(u64, Job<'t>)]) -> Vec<(u64, usize, Happening)> {
        let (mut log, mut events, mut jobs) = (Vec::new(), Vec::new(), jobs.iter().peekable());
        loop {
            let arrival = jobs.peek().map(|(at, _)| *at);
            let Some(now) = worker.next_event().into_iter().chain(arrival).min() else { return log };
            worker.advance(now, &mut events);
            while let Some((_, job)) = jobs.next_if(|(at, _)| *at == now) {
                worker.enqueue(now, *job);
            }
            worker.start(now, &mut events);
            log.extend(events.drain(..).map(|event| (now, event.request, event.happening)));
            assert!(worker.used_blocks() <= ROUND.kv_blocks);
        }
    }

    fn when(log: &[(u64, usize, Happening)], request: usize, happening: Happening) -> Vec<u64> {
        log.iter().filter(|(_, of, what)| (*of, *what) == (request, happening)).map(|(at, ..)| *at).collect()
    }

    #[test]
    fn one_request_takes_its_chunks_and_then_a_step_a_token() {
        let log = run(&mut Worker::new(ROUND), &[(3, job(0, 1_500, 4, &[]))]);
        // Two chunks, 1,024 and 476 tokens, then three more tokens of 10 + 5 + 2 us.
        let prefilled = 3 + (10 + 1_024) + (10 + 476);
        assert_eq!(
            log,
            [
                (3, 0, Happening::Admitted { hits: 0 }),
                (prefilled, 0, Happening::Prefilled),
                (prefilled, 0, Happening::FirstToken),
                (prefilled + 3 * 17, 0, Happening::Finished),
            ]
        );
    }

    #[test]
    fn decoding_goes_on_beside_prefill_and_within_the_budget() {
        let jobs = [(0, job(0, 10, 3, &[])), (5, job(1, 2_000, 1, &[]))];
        let log = run(&mut Worker::new(ROUND), &jobs);
        assert_eq!(when(&log, 0, Happening::FirstToken), [20]);
        // The second request joins at 20; its first chunk has what the one decoding request leaves of the budget.
        let second = 20 + 10 + 5 + 2 + 1_023;
        let third = second + 10 + 5 + 2 + (2_000 - 1_023);
        assert_eq!(when(&log, 0, Happening::Finished), [third], "two more tokens in two mixed steps");
        assert_eq!(when(&log, 1, Happening::Finished), [third]);
    }

    #[test]
    fn equal_steps_taken_at_once_end_at_the_next_boundary_when_a_request_comes() {
        let alone = run(&mut Worker::new(ROUND), &[(0, job(0, 10, 100, &[]))]);
        assert_eq!(when(&alone, 0, Happening::Finished), [20 + 99 * 17]);
        // 20 + 17 * 10 = 190 is a boundary: a request at 190 joins there, one at 191 at 207.
        for (arrival, joins) in [(190, 190), (191, 207), (207, 207)] {
            let jobs = [(0, job(0, 10, 100, &[])), (arrival, job(1, 10, 1, &[]))];
            let log = run(&mut Worker::new(ROUND), &jobs);
            assert_eq!(when(&log, 1, Happening::Admitted { hits: 0 }), [joins]);
            assert_eq!(
                when(&log, 0, Happening::Finished),
                [20 + 99 * 17 + 10],
                "the ten prefilled tokens of the other"
            );
        }
    }

    #[test]
    fn output_blocks_are_noted_when_the_token_after_a_full_block_comes() {
        let log = run(&mut Worker::new(ROUND), &[(0, job(0, 510, 600, &[]))]);
        let first = 10 + 510;
        // Token 3 is the 513th, token 515 the 1,025th.
        assert_eq!(when(&log, 0, Happening::OutputBlock), [first + 2 * 17, first + 514 * 17]);
        assert_eq!(when(&log, 0, Happening::Finished), [first + 599 * 17]);
        let full = run(&mut Worker::new(ROUND), &[(0, job(0, 512, 1, &[]))]);
        assert_eq!(when(&full, 0, Happening::OutputBlock), [522], "the first token needs a block of its own");
    }

    #[test]
    fn a_cached_prefix_is_not_prefilled_again() {
        let ids = [1, 2, 3];
        let jobs =
            [(0, job(0, 1_100, 1, &ids)), (5_000, job(1, 1_100, 1, &ids)), (9_000, job(2, 1_100, 1, &[1, 9, 3]))];
        let log = run(&mut Worker::new(ROUND), &jobs);
        assert_eq!(when(&log, 0, Happening::Finished), [1_024 + 10 + 76 + 10]);
        assert_eq!(when(&log, 1, Happening::Admitted { hits: 3 }), [5_000]);
        assert_eq!(when(&log, 1, Happening::Finished), [5_000 + 10 + 1], "the last token is computed all the same");
        assert_eq!(when(&log, 2, Happening::Admitted { hits: 1 }), [9_000]);
        assert_eq!(when(&log, 2, Happening::Finished), [9_000 + 10 + 588]);
    }

    #[test]
    fn a_request_that_does_not_fit_waits_and_holds_up_those_behind_it() {
        // Eight blocks in all: the first takes five, the second needs four, the third one.
        let jobs = [(0, job(0, 2_000, 560, &[])), (0, job(1, 2_000, 1, &[])), (0, job(2, 10, 1, &[]))];
        let log = run(&mut Worker::new(ROUND), &jobs);
        let end = when(&log, 0, Happening::Finished);
        assert_eq!(when(&log, 1, Happening::Admitted { hits: 0 }), end);
        assert!(when(&log, 2, Happening::Admitted { hits: 0 }) > end, "in order of arrival");
    }

    #[test]
    fn no_more_requests_are_admitted_than_allowed() {
        let jobs: Vec<_> = (0..5).map(|request| (0, job(request, 10, 50, &[]))).collect();
        let log = run(&mut Worker::new(ROUND), &jobs);
        assert_eq!(when(&log, 4, Happening::Admitted { hits: 0 }), when(&log, 0, Happening::Finished));
    }

    #[test]
    fn a_prefill_worker_ends_with_the_prompt_and_a_decode_worker_begins_with_a_transfer() {
        let ids = [1, 2, 3];
        let of = |work| Job { work, ..job(0, 1_100, 3, &ids) };
        let log = run(&mut Worker::new(ROUND), &[(0, of(Work::Prefill))]);
        assert_eq!(when(&log, 0, Happening::Finished), [1_024 + 10 + 76 + 10]);
        assert!(when(&log, 0, Happening::FirstToken).is_empty());

        let mut decode = Worker::new(ROUND);
        let log = run(&mut decode, &[(0, of(Work::Decode)), (5_000, of(Work::Decode))]);
        assert_eq!(
            when(&log, 0, Happening::FirstToken),
            [100 + 1_100 + 17, 5_100 + 17],
            "the second finds all its blocks"
        );
        assert_eq!(when(&log, 0, Happening::Finished), [100 + 1_100 + 3 * 17, 5_100 + 3 * 17]);
        let empty = Job { output_tokens: 0, ..of(Work::Decode) };
        let log = run(&mut decode, &[(9_000, empty)]);
        assert_eq!(when(&log, 0, Happening::Finished), [9_100]);
    }

    #[test]
    fn a_transfer_does_not_hold_up_the_batch() {
        let of = |request, prompt, output| Job { work: Work::Decode, ..job(request, prompt, output, &[]) };
        let log = run(&mut Worker::new(ROUND), &[(0, of(0, 0, 100)), (150, of(1, 1_000, 2))]);
        // Steps of 17 us from 100 on; the second is admitted at 151, its blocks arrive at 1,251, a step begins at 1,256.
        assert_eq!(when(&log, 1, Happening::FirstToken), [1_256 + 19]);
        assert_eq!(when(&log, 0, Happening::Finished), [100 + 100 * 17 + 2 * 2]);
    }

    #[test]
    fn empty_prompts_and_empty_answers_end() {
        let jobs = [(0, job(0, 0, 2, &[])), (100, job(1, 5, 0, &[])), (200, job(2, 0, 0, &[]))];
        let log = run(&mut Worker::new(ROUND), &jobs);
        assert_eq!(when(&log, 0, Happening::Finished), [11 + 17]);
        assert_eq!(when(&log, 1, Happening::Finished), [115]);
        assert_eq!(when(&log, 1, Happening::FirstToken), [115]);
        assert_eq!(when(&log, 2, Happening::Finished), [211]);
    }

    #[test]
    fn attention_makes_later_tokens_dearer() {
        let model = WorkerModel { attention_tokens: 1_000, ..ROUND };
        assert_eq!(model.prefill_us(0, 1_000), 1_500, "on average half a context away");
        assert_eq!(model.prefill_us(1_000, 2_000), 2_500);
        assert_eq!(model.prefill_us(0, 2_000), model.prefill_us(0, 1_000) + model.prefill_us(1_000, 2_000));
    }

    /// Taking equal steps at once changes nothing: the same as one step at a time.
    #[test]
    fn a_random_load_ends_whole_whether_steps_are_taken_at_once_or_one_by_one() {
        let mut rng = fastrand::Rng::with_seed(3);
        let ids: Vec<u64> = (0..64).collect();
        let mut at = 0;
        let jobs: Vec<_> = (0..400)
            .map(|request| {
                at += rng.u64(0..3_000);
                let (start, prompt) = (rng.usize(0..4) * 8, rng.u32(0..2_500));
                let count = (prompt as usize).div_ceil(512);
                let job = job(request, prompt, rng.u32(0..900), &ids[start..start + count]);
                (at, job)
            })
            .collect();
        let log = run(&mut Worker::new(ROUND), &jobs);
        for (_, job) in &jobs {
            let count = |happening| when(&log, job.request, happening).len() as u64;
            assert_eq!(
                (count(Happening::Prefilled), count(Happening::FirstToken), count(Happening::Finished)),
                (1, 1, 1)
            );
            assert_eq!(count(Happening::OutputBlock), job.total_blocks() - blocks(job.prompt_tokens, 0));
        }
        // Interrupted as soon as they start, runs of equal steps have one step each.
        let mut worker = Worker::new(ROUND);
        let (mut events, mut single, mut next) = (Vec::new(), Vec::new(), jobs.iter().peekable());
        while let Some(now) = worker.next_event().into_iter().chain(next.peek().map(|(at, _)| *at)).min() {
            worker.advance(now, &mut events);
            while let Some((_, job)) = next.next_if(|(at, _)| *at == now) {
                worker.enqueue(now, *job);
            }
            worker.start(now, &mut events);
            worker.interrupt(now);
            single.extend(events.drain(..).map(|event| (now, event.request, event.happening)));
        }
        assert_eq!(single, log);
    }
}
