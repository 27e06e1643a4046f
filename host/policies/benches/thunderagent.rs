//! What `thunderagent` costs as a classifier with 10,000 tracked requests, inside the sandbox, by the default limits:
//! `cargo bench --profile dev -p pointsman-policies --bench thunderagent`.
//!
//! The code that a guest runs is Cranelift's in every profile, so that the `dev` profile, which the tests have built, does.
#![allow(clippy::unwrap_used, reason = "a bench may end by a panic")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Instant;

use pointsman_contract::{ClassifierWorker, Event, Fact, Progress, Text, Ticket};
use pointsman_sandbox::{Args, GuestSlot};

const REQUESTS: u32 = 10_000;
const RANKS: u32 = 64;
const ROUNDS: u32 = 40;

/// The arguments of a request of that session, with 1,000 tokens.
fn arguments(slot: &GuestSlot, ticket: Ticket, session: u32) -> Args {
    let number = |fact| match fact {
        Fact::PromptTokens | Fact::ContextTokens | Fact::SchedulingCostTokens => 1_000.0,
        Fact::NowMs => 1.0,
        other => other.absent(),
    };
    let text = |text| match text {
        Text::RequestId => Some(format!("request-{ticket:032}")),
        Text::SessionId => Some(format!("session-{session:032}")),
        _ => None,
    };
    support::arguments(slot.inputs().classify.as_ref().unwrap(), number, text)
}

fn timed<T>(times: &mut Vec<f64>, call: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let answer = call();
    times.push(start.elapsed().as_secs_f64() * 1e6);
    answer
}

/// One line of the table: the median and the most, in microseconds.
fn line(what: &str, mut times: Vec<f64>) {
    times.sort_by(f64::total_cmp);
    println!("| {what} | {} | {:.1} | {:.1} |", times.len(), times[times.len() / 2], times[times.len() - 1]);
}

fn main() {
    let mut slot = support::slot("thunderagent", "{}");
    // Room for four requests of five, each 1,000 tokens and 100 of buffer.
    let room = 4 * REQUESTS / 5 / RANKS * 1_100 / 16 + 1;
    let worker = |number| ClassifierWorker { number, rank: 0, total_kv_blocks: Some(room) };
    slot.on_event(&Event::Workers((0..RANKS).map(worker).collect()), 1.0).unwrap();
    let [mut classify, mut event, mut reconcile] = [const { Vec::new() }; 3];
    let mut admitted = Vec::new();
    for ticket in 0..REQUESTS {
        let args = arguments(&slot, ticket, ticket);
        if timed(&mut classify, || slot.classify(ticket, &args)).unwrap().is_some() {
            admitted.push(ticket);
        }
    }
    for ticket in &admitted {
        let sent = Event::Sent { ticket: *ticket, worker: ticket % RANKS };
        timed(&mut event, || slot.on_event(&sent, 1.0)).unwrap();
    }
    let grown: Vec<_> = (0..REQUESTS).map(|ticket| Progress { ticket, context_tokens: 1_050 }).collect();
    for round in 0..ROUNDS {
        timed(&mut reconcile, || slot.on_tick(f64::from(round) * 5_000.0, &grown)).unwrap();
    }
    for ticket in admitted.iter().step_by(2) {
        let done = Event::Completed { ticket: *ticket, worker: ticket % RANKS, context_tokens: Some(900) };
        timed(&mut event, || slot.on_event(&done, 1.0)).unwrap();
    }
    println!("| call, {REQUESTS} tracked requests | calls | median, us | most, us |\n|---|---|---|---|");
    line("classify", classify);
    line("an event", event);
    line("a reconcile", reconcile);
}
