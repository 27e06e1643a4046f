//! A made-up trace with the prefix sharing of Mooncake's conversation trace.
//!
//! Conversations start as a Poisson process. Each opens with one of a few system prompts, all of which begin with the
//! same block, and a first message; later turns repeat the whole prompt and answer so far and add a message. Lengths
//! are log-normal, pauses between turns exponential. A block that the prompt fills keeps its id in all later turns;
//! the unfilled last block has an id of its own each time, because its content changes.
//!
//! Only integers and the portable libm are used, so the trace does not depend on the machine.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fastrand::Rng;
use pointsman_contract::Trigger;

use super::{BLOCK_SIZE, Builder, Trace, TraceRequest};

/// Mean time between the starts of two conversations, in microseconds.
const CONVERSATION_GAP_US: f64 = 480_000.0;
/// Mean pause between an answer and the next message, in microseconds.
const PAUSE_US: f64 = 45_000_000.0;
/// About the time that one token of an answer takes, in microseconds.
const TOKEN_US: u64 = 50_000;
/// Of 100 turns, how many are followed by another.
const FOLLOWED_BY_ANOTHER: u64 = 40;
/// Of 100 conversations, how many were started by another.
const CHILDREN: u64 = 12;
/// Of 100 later turns, how many are the result of a tool.
const TOOL_RESULTS: u64 = 25;
/// A conversation ends before its prompt exceeds this.
const MAX_PROMPT_TOKENS: u64 = 126_000;
const MAX_OUTPUT_TOKENS: u64 = 2_000;
const SYSTEM_PROMPTS: u64 = 16;

/// A log-normal length in tokens: the median, and the standard deviation of its logarithm.
struct Length(f64, f64);

const FIRST_MESSAGE: Length = Length(6_500.0, 1.0);
const LATER_MESSAGE: Length = Length(500.0, 1.4);
const ANSWER: Length = Length(250.0, 0.8);

struct Conversation {
    number: u64,
    parent: Option<u64>,
    /// Ids of the blocks that the prompt fills.
    filled: Vec<u64>,
    prompt_tokens: u64,
    turns: u64,
}

pub(super) fn trace(seed: u64, requests: usize) -> Trace {
    let mut rng = Rng::with_seed(seed);
    let mut blocks = Blocks { next: 1 };
    let system_prompts: Vec<Vec<u64>> = (0..SYSTEM_PROMPTS)
        .map(|prompt| std::iter::once(0).chain((0..prompt % 8).map(|_| blocks.fresh())).collect())
        .collect();

    let mut builder = Builder::default();
    let mut live: Vec<Conversation> = Vec::new();
    let mut turns = BinaryHeap::new();
    let mut next_start = exponential(&mut rng, CONVERSATION_GAP_US);
    while builder.trace.len() < requests {
        if turns.peek().is_none_or(|Reverse((at, _))| next_start <= *at) {
            let number = live.len() as u64;
            // The lesser of two draws: some system prompts are far more common than others.
            let prompt = rng.u64(0..SYSTEM_PROMPTS).min(rng.u64(0..SYSTEM_PROMPTS));
            let filled = system_prompts.get(prompt as usize).cloned().unwrap_or_default();
            live.push(Conversation {
                number,
                parent: (number > 0 && rng.u64(0..100) < CHILDREN).then(|| rng.u64(number.saturating_sub(50)..number)),
                prompt_tokens: filled.len() as u64 * u64::from(BLOCK_SIZE)
                    + FIRST_MESSAGE.draw(&mut rng, MAX_PROMPT_TOKENS / 2),
                filled,
                turns: 0,
            });
            turns.push(Reverse((next_start, live.len() - 1)));
            next_start += exponential(&mut rng, CONVERSATION_GAP_US);
            continue;
        }
        let Some(Reverse((at, place))) = turns.pop() else { break };
        let Some(conversation) = live.get_mut(place) else { break };
        let output_tokens = ANSWER.draw(&mut rng, MAX_OUTPUT_TOKENS);
        let next_prompt = conversation.prompt_tokens + output_tokens + LATER_MESSAGE.draw(&mut rng, MAX_PROMPT_TOKENS);
        let last = next_prompt > MAX_PROMPT_TOKENS || rng.u64(0..100) >= FOLLOWED_BY_ANOTHER;
        let by_tool = conversation.turns > 0 && rng.u64(0..100) < TOOL_RESULTS;

        let full = (conversation.prompt_tokens / u64::from(BLOCK_SIZE)) as usize;
        conversation.filled.resize_with(full.max(conversation.filled.len()), || blocks.fresh());
        let mut ids = conversation.filled.clone();
        if !conversation.prompt_tokens.is_multiple_of(u64::from(BLOCK_SIZE)) {
            ids.push(blocks.fresh());
        }
        let id = name(conversation.number);
        let parent = conversation.parent.map(name);
        let pushed = builder.push(&TraceRequest {
            arrival_us: at,
            input_tokens: conversation.prompt_tokens as u32,
            output_tokens: output_tokens as u32,
            block_ids: &ids,
            session_id: Some(&id),
            parent_session_id: parent.as_deref(),
            session_final: Some(last),
            input_trigger: Some(if by_tool { Trigger::ToolResult } else { Trigger::UserMessage }),
            pinned_worker: None,
            priority: 0.0,
            policy_class: None,
        });
        debug_assert_eq!(pushed, Ok(()));

        if last {
            conversation.filled = Vec::new();
        } else {
            conversation.turns += 1;
            conversation.prompt_tokens = next_prompt;
            turns.push(Reverse((at + output_tokens * TOKEN_US + exponential(&mut rng, PAUSE_US), place)));
        }
    }
    builder.trace
}

fn name(conversation: u64) -> String {
    format!("conversation-{conversation}")
}

struct Blocks {
    next: u64,
}

impl Blocks {
    const fn fresh(&mut self) -> u64 {
        let id = self.next;
        self.next += 1;
        id
    }
}

/// A number in (0, 1): 52 random bits and a half, so that its logarithm is finite.
fn open_unit(rng: &mut Rng) -> f64 {
    ((rng.u64(..) >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
}

fn exponential(rng: &mut Rng, mean: f64) -> u64 {
    (-libm::log(open_unit(rng)) * mean).round() as u64
}

impl Length {
    /// At least 1, at most `most`. (Box-Muller.)
    fn draw(&self, rng: &mut Rng, most: u64) -> u64 {
        let radius = libm::sqrt(-2.0 * libm::log(open_unit(rng)));
        let normal = radius * libm::cos(std::f64::consts::TAU * open_unit(rng));
        let tokens = self.0 * libm::exp(self.1 * normal);
        (tokens.round() as u64).clamp(1, most)
    }
}
