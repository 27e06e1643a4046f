//! The classifier of `thunderagent`, rule by rule. A block is one token here, and the buffer nothing unless said.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use pointsman_sdk::ClassifierWorker;
use pointsman_sdk::prelude::*;
use pointsman_sdk::testkit::{Guest, Kit, Table};
use thunderagent::ThunderAgent;

fn kit(parameters: &str) -> Kit<ThunderAgent> {
    Kit::new().block_size(1).parameters(parameters)
}

/// A guest and its clock.
struct Host {
    guest: Guest,
    now_ms: f64,
}

/// What a request has come to: it waits, or goes to the rank named, or wherever the host likes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    Waits,
    To(u32),
    Anywhere,
}
use Stand::{Anywhere, To, Waits};

fn stand(verdict: &Verdict) -> Stand {
    match verdict {
        Verdict::Admit(Admission { policy_class: None, due_ms: None, scheduling_cost_tokens: None, target }) => {
            match target {
                TargetChange::Set(rank) => To(*rank),
                TargetChange::Keep => Anywhere,
                TargetChange::Clear => panic!("the target is never cleared"),
            }
        }
        other => panic!("{other:?}"),
    }
}

impl Host {
    /// Ranks 10, 11, ... of these capacities, in this order.
    fn new(parameters: &str, capacities: &[u32]) -> Self {
        let mut host = Self { guest: kit(parameters).configure().unwrap(), now_ms: 0.0 };
        host.ranks(&(10..).zip(capacities.iter().copied().map(Some)).collect::<Vec<_>>());
        host
    }

    fn plain(capacities: &[u32]) -> Self {
        Self::new(r#"{"buffer_per_program":0}"#, capacities)
    }

    fn ranks(&mut self, ranks: &[(u32, Option<u32>)]) {
        let worker = |(number, total_kv_blocks): &(u32, Option<u32>)| ClassifierWorker {
            number: *number,
            rank: 0,
            total_kv_blocks: *total_kv_blocks,
        };
        assert_eq!(self.event(&Event::Workers(ranks.iter().map(worker).collect())), []);
    }

    fn event(&mut self, event: &Event) -> Vec<(Ticket, Stand)> {
        let resolutions = self.guest.event(event, self.now_ms).unwrap();
        resolutions.iter().map(|resolution| (resolution.ticket, stand(&resolution.verdict))).collect()
    }

    fn request(&self, ticket: Ticket, session: &str, tokens: u32) -> Table {
        Table::new()
            .fact("request.now-ms", self.now_ms)
            .fact("request.prompt-tokens", tokens.into())
            .fact("request.context-tokens", tokens.into())
            .text("request.id", &format!("r{ticket}"))
            .text("session.id", session)
    }

    fn send(&mut self, ticket: Ticket, request: &Table) -> Stand {
        self.guest.classify(ticket, request).unwrap().map_or(Waits, |verdict| stand(&verdict))
    }

    fn ask(&mut self, ticket: Ticket, session: &str, tokens: u32) -> Stand {
        self.send(ticket, &self.request(ticket, session, tokens))
    }

    fn ask_pinned(&mut self, ticket: Ticket, session: &str, tokens: u32, pin: u32) -> Stand {
        self.send(ticket, &self.request(ticket, session, tokens).fact("request.pinned-worker", pin.into()))
    }

    fn ask_last(&mut self, ticket: Ticket, session: &str, tokens: u32) -> Stand {
        self.send(ticket, &self.request(ticket, session, tokens).fact("session.final", 1.0))
    }

    fn refusal(&mut self, ticket: Ticket, request: &Table) -> String {
        match self.guest.classify(ticket, request).unwrap() {
            Some(Verdict::Reject(Rejection { class: ErrorClass::Internal, diagnostic, .. })) => diagnostic,
            other => panic!("{other:?}"),
        }
    }

    fn sent(&mut self, ticket: Ticket, worker: u32) {
        assert_eq!(self.event(&Event::Sent { ticket, worker }), []);
    }

    fn complete(&mut self, ticket: Ticket, context_tokens: u32) -> Vec<(Ticket, Stand)> {
        self.event(&Event::Completed { ticket, worker: 0, context_tokens: Some(context_tokens) })
    }

    fn abort(&mut self, ticket: Ticket) -> Vec<(Ticket, Stand)> {
        self.event(&Event::Aborted { ticket, worker: None, error: None })
    }

    fn grow(&mut self, progress: &[(Ticket, u32)]) -> Vec<(Ticket, Stand)> {
        let progress: Vec<_> =
            progress.iter().map(|(ticket, tokens)| Progress { ticket: *ticket, context_tokens: *tokens }).collect();
        let resolutions = self.guest.tick(self.now_ms, &progress).unwrap();
        resolutions.iter().map(|resolution| (resolution.ticket, stand(&resolution.verdict))).collect()
    }

    fn tick(&mut self) -> Vec<(Ticket, Stand)> {
        self.grow(&[])
    }
}

#[test]
fn what_belongs_to_no_session_goes_ahead() {
    let mut host = Host::plain(&[1]);
    let request = Table::new().fact("request.prompt-tokens", 1000.0);
    assert_eq!(host.send(1, &request), Anywhere);
    assert_eq!(host.abort(1), []);
}

#[test]
fn a_session_needs_request_ids_and_each_once() {
    let mut host = Host::plain(&[100]);
    let refusal = host.refusal(1, &Table::new().text("session.id", "a"));
    assert_eq!(refusal, "a request of a session needs a request id");
    assert_eq!(host.ask(2, "a", 1), To(10));
    let again = host.request(3, "b", 1).text("request.id", "r2");
    assert_eq!(host.refusal(3, &again), "request \"r2\" is already active");
    assert_eq!(host.abort(3), []);
    host.complete(2, 1);
    assert_eq!(host.send(4, &again), To(10), "the id is free again");
}

#[test]
fn requests_and_programs_are_limited() {
    let parameters = r#"{"buffer_per_program":0,"max_tracked_requests":2}"#;
    let mut host = Host::new(parameters, &[100]);
    assert_eq!((host.ask(1, "a", 1), host.ask(2, "b", 1)), (To(10), To(10)));
    let third = host.request(3, "c", 1);
    assert_eq!(host.refusal(3, &third), "already tracking the configured limit of 2 requests");
    assert_eq!(host.abort(3), []);
    host.now_ms = 1.0;
    host.complete(2, 1);
    // Both programs have to stay: `b` is idle, but `a` again has a request, and a third program has no place.
    host.now_ms = 2.0;
    host.complete(1, 1);
    assert_eq!(host.ask(4, "c", 1), To(10), "`b`, idle for longest, makes place");
    let fourth = host.request(5, "a", 1).text("session.id", "d");
    assert_eq!(host.send(5, &fourth), To(10), "so does `a`");
    host.complete(5, 1);
    assert_eq!(host.ask(6, "d", 1), To(10));
    assert_eq!(host.abort(4), []);
    assert_eq!(host.ask(7, "e", 1), To(10));
    host.complete(7, 1);
    assert_eq!(host.ask_last(8, "f", 1), Anywhere, "the last request of a session needs no program");
}

#[test]
fn programs_are_limited_where_none_is_idle() {
    let mut host = Host::new(r#"{"buffer_per_program":0,"max_tracked_requests":2}"#, &[5]);
    assert_eq!((host.ask(1, "a", 4), host.ask(2, "b", 4)), (To(10), Waits));
    assert_eq!(host.complete(1, 4), []);
    assert_eq!(host.ask(3, "a", 4), To(10));
    let third = host.request(4, "c", 1);
    assert_eq!(host.refusal(4, &third), "already tracking the configured limit of 2 requests");
}

#[test]
fn a_new_program_goes_where_least_is_used_the_first_rank_among_equals() {
    let mut host = Host::plain(&[100, 100, 1000]);
    assert_eq!(host.ask(1, "a", 30), To(10));
    assert_eq!(host.ask(2, "b", 20), To(11));
    assert_eq!(host.ask(3, "c", 5), To(12));
    assert_eq!(host.ask(4, "d", 96), To(12), "the least used with room");
    assert_eq!(host.ask(5, "e", 1), To(11));
}

#[test]
fn the_buffer_is_charged_with_each_program() {
    let mut host = Host::new(r#"{"buffer_per_program":10}"#, &[50]);
    assert_eq!((host.ask(1, "a", 15), host.ask(2, "b", 15)), (To(10), To(10)));
    assert_eq!(host.ask(3, "c", 1), Waits, "25 + 25 + 11 of 50");
}

#[test]
fn one_request_of_a_session_runs_at_a_time_and_the_program_keeps_its_rank() {
    let mut host = Host::plain(&[100, 100]);
    assert_eq!((host.ask(1, "a", 90), host.ask(2, "a", 95), host.ask(3, "a", 10)), (To(10), Waits, Waits));
    assert_eq!(host.ask(4, "b", 60), To(11));
    // The rank is not asked for room again.
    assert_eq!(host.complete(1, 100), [(2, To(10))]);
    assert_eq!(host.abort(2), [(3, To(10))]);
    assert_eq!(host.complete(3, 10), []);
}

#[test]
fn a_request_that_is_cancelled_while_it_waits_leaves_its_place() {
    let mut host = Host::plain(&[100]);
    assert_eq!((host.ask(1, "a", 1), host.ask(2, "a", 1), host.ask(3, "a", 1)), (To(10), Waits, Waits));
    assert_eq!(host.abort(2), []);
    assert_eq!(host.complete(1, 1), [(3, To(10))]);
}

#[test]
fn the_rank_that_a_request_really_went_to_is_the_programs() {
    let mut host = Host::plain(&[100, 100]);
    assert_eq!(host.ask(1, "a", 80), To(10));
    host.sent(1, 11);
    assert_eq!(host.ask(2, "b", 50), To(10), "the charge has moved");
    host.complete(1, 80);
    assert_eq!(host.ask(3, "a", 80), To(11));
}

#[test]
fn without_any_capacity_everything_goes_ahead() {
    let mut host = Host::plain(&[]);
    assert_eq!(host.ask(1, "a", 1_000_000), Anywhere);
    host.ranks(&[(10, None), (11, None)]);
    assert_eq!(host.ask(2, "b", 1_000_000), Anywhere);
    host.sent(2, 11);
    host.complete(2, 1_000_000);
    assert_eq!(host.ask(3, "b", 1), To(11), "a program keeps its rank");
    host.ranks(&[(10, None), (12, Some(50))]);
    assert_eq!(host.ask(4, "c", 50), To(12), "a rank that tells nothing is not chosen");
}

#[test]
fn a_rank_that_is_gone_loses_its_programs() {
    let mut host = Host::plain(&[100, 100]);
    assert_eq!(host.ask(1, "a", 40), To(10));
    host.complete(1, 40);
    host.ranks(&[(11, Some(100))]);
    assert_eq!(host.ask(2, "a", 40), To(11));
    host.ranks(&[(10, Some(100)), (11, Some(100))]);
    assert_eq!(host.ask(3, "b", 40), To(10), "nothing is charged there any more");
}

#[test]
fn who_finds_no_room_waits_and_no_new_program_passes() {
    let mut host = Host::plain(&[100]);
    assert_eq!(host.ask(1, "a", 80), To(10));
    assert_eq!(host.ask(2, "b", 30), Waits);
    assert_eq!(host.ask(3, "c", 1), Waits, "there is room, but `b` waits");
    host.complete(1, 10);
    assert_eq!(host.ask(4, "a", 10), To(10), "a known program does not wait for new ones");
    assert_eq!(host.tick(), [(2, To(10)), (3, To(10))]);
}

#[test]
fn a_pin_is_charged_at_once_and_waits_for_room_on_its_own_rank() {
    let mut host = Host::plain(&[100, 100]);
    assert_eq!(host.ask_pinned(1, "a", 70, 11), To(11));
    assert_eq!(host.ask_pinned(2, "b", 40, 11), Waits, "there is room on the other rank only");
    assert_eq!(host.tick(), []);
    assert_eq!(host.complete(1, 20), []);
    assert_eq!(host.tick(), [(2, To(11))]);
    // A program's own charge on the pinned rank does not stand in its way.
    host.complete(2, 70);
    assert_eq!(host.ask_pinned(3, "b", 80, 11), To(11));
}

#[test]
fn a_pin_to_a_rank_without_capacity_is_the_routers_to_judge() {
    let mut host = Host::plain(&[10]);
    host.ranks(&[(10, Some(10)), (11, None)]);
    assert_eq!(host.ask_pinned(1, "a", 5, 11), To(11));
    assert_eq!(host.ask_pinned(2, "b", 5, 99), To(99));
}

#[test]
fn an_abort_restores_the_program_before_the_request() {
    let mut host = Host::plain(&[100, 100]);
    assert_eq!(host.ask(1, "a", 20), To(10));
    host.complete(1, 30);
    assert_eq!(host.ask(2, "a", 90), To(10));
    host.sent(2, 11);
    assert_eq!(host.abort(2), []);
    // 30 tokens on the first rank, as before.
    assert_eq!(host.ask(3, "b", 71), To(11));
    assert_eq!(host.ask(4, "c", 70), To(10));
    // A program that the request created goes with it.
    assert_eq!(host.abort(4), []);
    assert_eq!(host.ask(5, "d", 70), To(10));
}

#[test]
fn the_last_request_frees_the_program_at_admission() {
    let mut host = Host::plain(&[100, 100]);
    assert_eq!(host.ask(1, "a", 90), To(10));
    host.complete(1, 100);
    assert_eq!(host.ask_last(2, "a", 100), To(10), "to where the program was");
    assert_eq!(host.ask(3, "b", 100), To(10), "nothing is charged any more");
    assert_eq!(host.abort(2), []);
    assert_eq!(host.ask(4, "a", 50), To(11), "an abort does not bring it back");
}

#[test]
fn a_completed_request_leaves_its_tokens_or_its_progress() {
    let mut host = Host::plain(&[100]);
    assert_eq!(host.ask(1, "a", 10), To(10));
    host.complete(1, 60);
    assert_eq!(host.ask(2, "b", 41), Waits);
    host.abort(2);
    assert_eq!(host.ask(3, "a", 10), To(10));
    assert_eq!(host.grow(&[(3, 35)]), []);
    assert_eq!(host.event(&Event::Completed { ticket: 3, worker: 0, context_tokens: None }), []);
    assert_eq!((host.ask(4, "c", 65), host.ask(5, "d", 1)), (To(10), Waits));
}

#[test]
fn progress_counts_while_a_request_runs() {
    let mut host = Host::plain(&[100]);
    assert_eq!(host.ask(1, "a", 10), To(10));
    assert_eq!(host.grow(&[(1, 70), (99, 5)]), []);
    assert_eq!(host.ask(2, "b", 31), Waits);
    host.abort(2);
    assert_eq!(host.grow(&[(1, 50)]), [], "progress never goes back");
    assert_eq!((host.ask(3, "c", 31), host.abort(3)), (Waits, vec![]));
    assert_eq!(host.ask(4, "d", 30), To(10));
}

#[test]
fn acting_programs_weigh_what_the_parameter_says() {
    let mut host = Host::new(r#"{"buffer_per_program":0,"acting_token_weight":0.5}"#, &[100]);
    assert_eq!(host.ask(1, "a", 80), To(10));
    host.complete(1, 80);
    assert_eq!(host.ask(2, "b", 60), To(10));
}

#[test]
fn programs_without_a_request_are_forgotten_in_time() {
    let mut host = Host::new(r#"{"buffer_per_program":0,"session_retention_seconds":10}"#, &[100, 50]);
    assert_eq!(host.ask(1, "a", 80), To(10));
    host.complete(1, 80);
    host.now_ms = 9_999.0;
    assert_eq!(host.tick(), []);
    assert_eq!(host.ask(2, "b", 50), To(11));
    host.now_ms = 10_000.0;
    assert_eq!(host.ask(3, "c", 100), To(10), "an arrival looks for expired ones too");
    assert_eq!(host.ask(4, "a", 1), Waits, "a new program now: 100 of 100 and 50 of 50 are used");
}

#[test]
fn programs_are_resumed_by_urgency_while_they_fit_in_sum() {
    // The ceiling is 85 of 100.
    let mut host = Host::plain(&[100]);
    assert_eq!(host.ask(9, "acting", 10), To(10), "its first step: after one alone it would count as new");
    host.complete(9, 10);
    for (ticket, session, tokens) in [(1, "old", 20), (2, "acting", 10), (3, "full", 70)] {
        assert_eq!(host.ask(ticket, session, tokens), To(10));
    }
    host.complete(1, 20);
    host.complete(2, 10);
    assert_eq!(host.tick(), [], "both are paused: the rank is full, and they are acting");
    assert_eq!(host.ask(4, "old", 30), Waits);
    assert_eq!(host.ask(5, "new", 25), Waits);
    host.complete(3, 25);
    // 60 are free: 30 for who is in the middle of its work, 25 for the new one; the acting one is last.
    assert_eq!(host.tick(), [(4, To(10)), (5, To(10))]);
    assert_eq!(host.ask(6, "acting", 10), Waits);
    host.complete(4, 0);
    host.now_ms = 1.0;
    assert_eq!(host.tick(), [(6, To(10))]);
}

#[test]
fn programs_that_do_not_fit_in_sum_stay_paused() {
    let mut host = Host::plain(&[100]);
    assert_eq!(host.ask(1, "full", 100), To(10));
    assert_eq!((host.ask(2, "b", 60), host.ask(3, "c", 50), host.ask(4, "d", 20)), (Waits, Waits, Waits));
    assert_eq!(host.complete(1, 5), []);
    // 80 are free: the smallest first, 20 and 50; 60 no longer fits.
    assert_eq!(host.tick(), [(3, To(10)), (4, To(10))]);
}

#[test]
fn the_largest_is_placed_first_where_most_room_is() {
    let mut host = Host::plain(&[100, 200]);
    assert_eq!((host.ask(1, "x", 100), host.ask(2, "y", 200)), (To(10), To(11)));
    for (ticket, tokens) in [(3, 60), (4, 80), (5, 90)] {
        assert_eq!(host.ask(ticket, &format!("s{ticket}"), tokens), Waits);
    }
    assert_eq!((host.complete(1, 0), host.complete(2, 0)), (vec![], vec![]));
    // 85 and 170 are free. 90 and then 80 go to the larger rank; 60 to the smaller, which has more left then.
    assert_eq!(host.tick(), [(5, To(11)), (4, To(10)), (3, To(11))]);
}

#[test]
fn who_waits_for_too_long_is_resumed_anyway() {
    let parameters = r#"{"buffer_per_program":0,"resume_timeout_seconds":60,"acting_decay_tau_seconds":1}"#;
    let mut host = Host::new(parameters, &[100, 100]);
    assert_eq!((host.ask(1, "a", 90), host.ask(2, "b", 90)), (To(10), To(11)));
    assert_eq!((host.ask(3, "c", 95), host.ask(4, "d", 99)), (Waits, Waits));
    host.now_ms = 59_999.0;
    host.complete(2, 90);
    assert_eq!(host.tick(), []);
    host.now_ms = 60_000.0;
    // An acting program counts 90 x 2^-0.001 here, one second later half: the other rank is the better one.
    assert_eq!(host.tick(), [(3, To(11)), (4, To(10))]);
}

#[test]
fn a_pin_that_waits_for_too_long_is_resumed_on_its_rank() {
    let mut host = Host::new(r#"{"buffer_per_program":0,"resume_timeout_seconds":60}"#, &[100, 1000]);
    assert_eq!(host.ask(1, "a", 100), To(10));
    assert_eq!(host.ask_pinned(2, "b", 50, 10), Waits);
    host.now_ms = 60_000.0;
    assert_eq!(host.tick(), [(2, To(10))]);
}

#[test]
fn nobody_is_resumed_while_there_is_no_rank() {
    let mut host = Host::new(r#"{"buffer_per_program":0,"resume_timeout_seconds":60}"#, &[100]);
    assert_eq!((host.ask(1, "a", 100), host.ask(2, "b", 50)), (To(10), Waits));
    host.ranks(&[]);
    host.now_ms = 60_000.0;
    assert_eq!(host.tick(), []);
    host.ranks(&[(12, None)]);
    assert_eq!(host.tick(), [(2, Anywhere)]);
}

#[test]
fn acting_programs_are_paused_the_smallest_first_until_the_target() {
    let mut host = Host::plain(&[100]);
    for (ticket, session, tokens) in [(1, "a", 10), (2, "b", 20), (3, "c", 30), (4, "d", 38)] {
        assert_eq!(host.ask(ticket, session, tokens), To(10));
    }
    for (ticket, tokens) in [(1, 10), (2, 20), (3, 30)] {
        host.complete(ticket, tokens);
    }
    // 98 is above 95: `a` and then `b` go, since 88 is above 80.
    assert_eq!(host.tick(), []);
    assert_eq!((host.ask(5, "a", 10), host.ask(6, "b", 20)), (Waits, Waits));
    assert_eq!(host.ask(7, "c", 30), To(10));
}

#[test]
fn at_the_threshold_nobody_is_paused() {
    let mut host = Host::plain(&[100]);
    assert_eq!((host.ask(1, "a", 10), host.ask(2, "b", 85)), (To(10), To(10)));
    host.complete(1, 10);
    assert_eq!(host.tick(), []);
    assert_eq!(host.ask(3, "a", 10), To(10));
}

#[test]
fn reasoning_programs_are_marked_and_paused_as_they_complete() {
    let mut host = Host::plain(&[100, 100]);
    assert_eq!((host.ask(1, "a", 60), host.ask(2, "other", 70), host.ask(3, "b", 40)), (To(10), To(11), To(10)));
    assert_eq!(host.tick(), [], "100 of 100, and all reason");
    host.complete(1, 60);
    assert_eq!(host.ask(4, "a", 60), Waits, "paused as it completed");
    host.complete(2, 70);
    assert_eq!(host.ask(5, "other", 70), To(11), "the other rank was not crowded");
}

#[test]
fn parameters_have_dynamos_defaults_and_bounds() {
    assert_eq!(kit("{}").configure().unwrap().inputs().tick_ms, Some(5_000));
    let fast = kit(r#"{"scheduler_interval_seconds":0.001}"#).configure().unwrap();
    assert_eq!(fast.inputs().tick_ms, Some(10), "the contract's shortest");
    for (parameters, named) in [
        (r#"{"pause_threshold":1.1}"#, "pause_threshold"),
        (r#"{"pause_target":0.96}"#, "pause_target must be at most pause_threshold"),
        (r#"{"pause_threshold":0.5,"pause_target":0.5,"resume_hysteresis":0.6}"#, "resume_hysteresis must be at most"),
        (r#"{"resume_timeout_seconds":0}"#, "resume_timeout_seconds"),
        (r#"{"session_retention_seconds":0}"#, "session_retention_seconds"),
        (r#"{"scheduler_interval_seconds":0}"#, "scheduler_interval_seconds"),
        (r#"{"acting_token_weight":0}"#, "acting_token_weight"),
        (r#"{"acting_decay_tau_seconds":-1}"#, "acting_decay_tau_seconds"),
        (r#"{"buffer_per_program":-1}"#, "buffer_per_program"),
        (r#"{"max_tracked_requests":0}"#, "max_tracked_requests"),
        (r#"{"pause":1}"#, "unknown parameter `pause`"),
    ] {
        let error = kit(parameters).configure().err().unwrap();
        assert!(error.contains(named), "{parameters}: {error}");
    }
}
