//! What a user relies on of the policy-class queue, on a clock of plain numbers.

use std::cell::Cell;
use std::collections::HashSet;

use crate::common::{arrival, class, id, pinned, profile};
use pointsman_admission::{
    Arrival, EntryId, Lane, LimitKind, PolicyClass, PolicyQueue, Pushed, QueueLimits, QueuePolicy, QueueRejection,
    RefusalReason, RequestTokens, RowLoad, WorkerKey,
};

type Queue = PolicyQueue<&'static str>;

/// A queue of one class with a quantum of 10, and an arrival in it.
fn one_class() -> (Queue, Arrival) {
    let profile = profile([class("agents", 10)]);
    let arrival = arrival(id(&profile, "agents"));
    (PolicyQueue::new(profile), arrival)
}

fn push(queue: &mut Queue, arrival: Arrival, payload: &'static str) -> EntryId {
    match queue.push(arrival, payload, 0.0, 1, |_, _| true).unwrap() {
        Pushed::Waits(id) => id,
        Pushed::Direct(payload) => panic!("{payload} does not wait"),
    }
}

fn pop(queue: &mut Queue) -> Option<&'static str> {
    queue.pop(|_, _| true).map(|entry| entry.payload)
}

fn pop_but(queue: &mut Queue, blocked: &str) -> Option<&'static str> {
    queue.pop(|_, payload| *payload != blocked).map(|entry| entry.payload)
}

fn all(queue: &mut Queue) -> Vec<&'static str> {
    std::iter::from_fn(|| pop(queue)).collect()
}

fn refused(queue: &mut Queue, arrival: Arrival, workers: usize) -> RefusalReason {
    queue.push(arrival, "refused", 0.0, workers, |_, _| false).unwrap_err().reason
}

fn full(class: &str, kind: LimitKind, current: u64, limit: u64) -> RefusalReason {
    QueueRejection { policy_class: class.to_owned(), kind, current, limit }.into()
}

// Limits

#[test]
fn limits_scale_with_workers_and_count_what_waits_before() {
    let limits = QueueLimits { requests: Some(1), prompt_tokens: Some(5), cached_tokens: Some(3) };
    let profile = profile([PolicyClass { limits, ..class("capped", 10) }]);
    let capped = id(&profile, "capped");
    let mut queue = PolicyQueue::new(profile);
    let tokens = |prompt, cached| Arrival { tokens: RequestTokens::new(prompt, cached), ..arrival(capped) };
    queue.push(tokens(8, 4), "first", 0.0, 2, |_, _| false).unwrap();
    queue.push(tokens(100, 100), "goes past every limit", 0.0, 2, |_, _| false).unwrap();
    assert_eq!(refused(&mut queue, tokens(1, 0), 2), full("capped", LimitKind::Requests, 2, 2));
    let usage = queue.usage(capped);
    assert_eq!((usage.requests, usage.prompt_tokens, usage.cached_tokens), (2, 108, 104));
}

#[test]
fn token_limits_follow_the_workers_without_evicting() {
    let limit = |prompt_tokens, cached_tokens| QueueLimits { requests: None, prompt_tokens, cached_tokens };
    let raw = PolicyClass { limits: limit(Some(10), None), ..class("raw", 1) };
    let cached = PolicyClass { limits: limit(None, Some(5)), ..class("cached", 1) };
    let profile = profile([raw, cached]);
    let (raw, cached) = (id(&profile, "raw"), id(&profile, "cached"));
    let mut queue = PolicyQueue::new(profile);
    let tokens = |class, prompt, cached| Arrival { tokens: RequestTokens::new(prompt, cached), ..arrival(class) };
    queue.push(tokens(raw, 11, 0), "waits", 0.0, 2, |_, _| false).unwrap();
    assert_eq!(refused(&mut queue, tokens(raw, 1, 0), 1), full("raw", LimitKind::PromptTokens, 11, 10));
    assert_eq!(queue.len(), 1, "a worker that leaves evicts nobody");
    queue.push(tokens(raw, 10, 0), "after growth", 0.0, 2, |_, _| false).unwrap();
    assert_eq!(refused(&mut queue, tokens(raw, 1, 0), 2), full("raw", LimitKind::PromptTokens, 21, 20));
    queue.push(tokens(cached, 8, 6), "cached", 0.0, 2, |_, _| false).unwrap();
    assert_eq!(refused(&mut queue, tokens(cached, 1, 1), 1), full("cached", LimitKind::CachedTokens, 6, 5));
}

#[test]
fn the_product_of_limit_and_workers_saturates() {
    let limits = QueueLimits { requests: Some(u64::MAX), ..QueueLimits::default() };
    let profile = profile([PolicyClass { limits, ..class("capped", 1) }]);
    let arrival = arrival(id(&profile, "capped"));
    let mut queue: Queue = PolicyQueue::new(profile);
    assert!(queue.push(arrival, "waits", 0.0, 2, |_, _| false).is_ok());
    assert!(queue.push(arrival, "waits too", 0.0, usize::MAX, |_, _| false).is_ok());
}

#[test]
fn a_limit_of_zero_never_queues_and_is_served_by_an_idle_worker() {
    for limits in [
        QueueLimits { requests: Some(0), ..QueueLimits::default() },
        QueueLimits { prompt_tokens: Some(0), ..QueueLimits::default() },
        QueueLimits { cached_tokens: Some(0), ..QueueLimits::default() },
    ] {
        let profile = profile([PolicyClass { limits, ..class("interactive", 1) }]);
        let arrival = arrival(id(&profile, "interactive"));
        let mut queue: Queue = PolicyQueue::new(profile);
        assert!(matches!(queue.push(arrival, "served", 0.0, 4, |_, _| true).unwrap(), Pushed::Direct("served")));
        let refused = queue.push(arrival, "refused", 0.0, 4, |_, _| false).unwrap_err();
        let RefusalReason::QueueRejected(rejection) = refused.reason else { panic!("{}", refused.reason) };
        assert_eq!((refused.payload, rejection.current, rejection.limit), ("refused", 0, 0));
        assert!(queue.is_empty());
    }
}

#[test]
fn without_workers_a_request_goes_on_to_selection_and_is_not_rejected() {
    let limits = QueueLimits { requests: Some(1), ..QueueLimits::default() };
    let profile = profile([PolicyClass { limits, ..class("capped", 1) }]);
    let arrival = arrival(id(&profile, "capped"));
    let mut queue: Queue = PolicyQueue::new(profile);
    assert!(matches!(queue.push(arrival, "to selection", 0.0, 0, |_, _| false).unwrap(), Pushed::Direct(_)));
}

#[test]
fn a_full_class_rejects_its_own_requests_alone_and_says_which_limit() {
    let limits = QueueLimits { requests: Some(1), ..QueueLimits::default() };
    let profile = profile([PolicyClass { limits, ..class("batch", 1) }, class("premium", 1)]);
    let (batch, premium) = (arrival(id(&profile, "batch")), arrival(id(&profile, "premium")));
    let mut queue = PolicyQueue::new(profile);
    push(&mut queue, batch, "batch");
    let reason = refused(&mut queue, batch, 1);
    assert_eq!(
        reason.to_string(),
        "policy class `batch` is full: requests waiting 1, limit 1; try again later or raise the limit"
    );
    push(&mut queue, premium, "premium");
    assert_eq!(queue.len(), 2);
}

// Order inside a class

#[test]
fn the_earlier_due_time_goes_first_and_before_arrival() {
    let (mut queue, arrival) = one_class();
    push(&mut queue, arrival, "no due time");
    push(&mut queue, Arrival { due_ms: Some(20_000.0), ingress_ms: 1.0, ..arrival }, "due later");
    push(&mut queue, Arrival { due_ms: Some(10_000.0), ingress_ms: 2.0, ..arrival }, "due earlier");
    assert_eq!(queue.next_deadline(), Some(10_000.0));
    assert_eq!(all(&mut queue), ["due earlier", "due later", "no due time"]);
    assert_eq!(queue.next_deadline(), None);
}

#[test]
fn strict_priority_goes_before_the_due_time() {
    let (mut queue, arrival) = one_class();
    push(&mut queue, Arrival { due_ms: Some(10_000.0), ..arrival }, "due earlier");
    push(&mut queue, Arrival { due_ms: Some(20_000.0), strict_priority: 10, ..arrival }, "strict");
    assert_eq!(all(&mut queue), ["strict", "due earlier"]);
}

#[test]
fn due_times_below_a_millisecond_apart_keep_their_order_across_lanes() {
    let (mut queue, arrival) = one_class();
    let after = 10_000.000_001;
    push(&mut queue, Arrival { due_ms: Some(after), lane: pinned(1), ..arrival }, "a nanosecond later");
    push(&mut queue, Arrival { due_ms: Some(10_000.0), ingress_ms: 1_000.0, lane: pinned(2), ..arrival }, "earlier");
    assert_eq!(all(&mut queue), ["earlier", "a nanosecond later"]);
}

#[test]
fn first_come_first_served_counts_from_ingress_and_a_jump_is_waiting_time() {
    let (mut queue, arrival) = one_class();
    push(&mut queue, Arrival { ingress_ms: 5_000.0, ..arrival }, "came second, queued first");
    push(&mut queue, Arrival { ingress_ms: 1_000.0, ..arrival }, "came first");
    push(&mut queue, Arrival { ingress_ms: 9_000.0, priority_jump: 6.0, ..arrival }, "jumped 6 s");
    push(&mut queue, Arrival { ingress_ms: 5_000.0, priority_jump: -9.0, ..arrival }, "a jump back counts as none");
    let order = ["came first", "jumped 6 s", "came second, queued first", "a jump back counts as none"];
    assert_eq!(all(&mut queue), order);
}

#[test]
fn fcfs_and_wspt_order_only_inside_their_own_class() {
    let wspt = PolicyClass { queue_policy: QueuePolicy::Wspt, ..class("wspt", 50) };
    let profile = profile([class("fcfs", 50), wspt]);
    let (fcfs, wspt) = (arrival(id(&profile, "fcfs")), arrival(id(&profile, "wspt")));
    let mut queue = PolicyQueue::new(profile);
    let of = |arrival, prompt, ingress_ms| Arrival { tokens: RequestTokens::new(prompt, 0), ingress_ms, ..arrival };
    push(&mut queue, of(fcfs, 50, 0.0), "fcfs long");
    push(&mut queue, of(fcfs, 1, 1.0), "fcfs short");
    push(&mut queue, of(wspt, 50, 0.0), "wspt long");
    push(&mut queue, of(wspt, 1, 1.0), "wspt short");
    push(&mut queue, Arrival { priority_jump: 199.0, ..of(wspt, 100, 2.0) }, "wspt boosted");
    assert_eq!(pop(&mut queue), Some("fcfs long"));
    let rest = all(&mut queue);
    let wspt: Vec<_> = rest.into_iter().filter(|name| name.starts_with("wspt")).collect();
    assert_eq!(wspt, ["wspt boosted", "wspt short", "wspt long"]);
}

// Deadlines

#[test]
fn a_request_past_its_due_time_is_refused_at_the_door() {
    let (mut queue, arrival) = one_class();
    let due = Arrival { due_ms: Some(100.0), ..arrival };
    for (now, waits) in [(99.999_9, true), (100.0, false), (100.1, false)] {
        let pushed = queue.push(due, "due", now, 1, |_, _| true);
        assert_eq!(pushed.is_ok(), waits, "at {now}");
        let late = pushed.err().map(|refused| refused.reason);
        assert_eq!(late, (!waits).then_some(RefusalReason::DeadlineExceeded));
    }
}

#[test]
fn a_parked_lane_expires_too_and_is_not_asked_again() {
    let (mut queue, arrival) = one_class();
    push(&mut queue, Arrival { due_ms: Some(1_000.0), lane: pinned(7), ..arrival }, "blocked");
    assert_eq!(pop_but(&mut queue, "blocked"), None);
    assert_eq!(queue.next_deadline(), Some(1_000.0));
    assert!(queue.expire(999.9).is_none());
    assert_eq!(queue.expire(1_000.0).unwrap().payload, "blocked");
    assert!(queue.expire(1_000.0).is_none());
    assert!(queue.pop(|_, _| panic!("nobody waits")).is_none());
    assert!(queue.is_empty());
}

#[test]
fn a_request_expires_once_and_gives_its_room_back() {
    let limits = QueueLimits { requests: Some(1), ..QueueLimits::default() };
    let profile = profile([PolicyClass { limits, ..class("capped", 1) }]);
    let arrival = Arrival { due_ms: Some(5.0), ..arrival(id(&profile, "capped")) };
    let mut queue = PolicyQueue::new(profile);
    let first = push(&mut queue, arrival, "first");
    assert_eq!(queue.expire(6.0).unwrap().id, first);
    assert!(queue.cancel(first).is_none());
    push(&mut queue, Arrival { due_ms: None, ..arrival }, "second");
    assert!(queue.expire(f64::INFINITY).is_none());
}

// Deficit round robin

#[test]
fn equal_costs_are_served_in_the_exact_ratio_of_the_quanta() {
    let profile = profile([class("one", 1), class("three", 3)]);
    let (one, three) = (arrival(id(&profile, "one")), arrival(id(&profile, "three")));
    let mut queue = PolicyQueue::new(profile);
    (0..20).for_each(|_| _ = push(&mut queue, one, "one"));
    (0..60).for_each(|_| _ = push(&mut queue, three, "three"));
    for round in all(&mut queue).chunks(4) {
        assert_eq!(round, ["one", "three", "three", "three"]);
    }
}

#[test]
fn the_documented_shares_at_half_way() {
    for (quanta, premium, regular) in [([512, 512], 159..=161, 159..=161), ([512, 128], 254..=257, 63..=66)] {
        let profile = profile([class("premium", quanta[0]), class("regular", quanta[1])]);
        let mut queue = PolicyQueue::new(profile.clone());
        let prompt = |name| Arrival { tokens: RequestTokens::new(512, 0), ..arrival(id(&profile, name)) };
        for _ in 0..320 {
            push(&mut queue, prompt("premium"), "premium");
            push(&mut queue, prompt("regular"), "regular");
        }
        let half: Vec<_> = (0..320).map(|_| pop(&mut queue).unwrap()).collect();
        let served = half.iter().filter(|name| **name == "premium").count();
        assert!(premium.contains(&served), "{served} premium of {quanta:?}");
        assert!(regular.contains(&(320 - served)), "{} regular of {quanta:?}", 320 - served);
    }
}

#[test]
fn a_blocked_class_earns_no_credit() {
    let profile = profile([class("slow", 1), class("fast", 3)]);
    let (slow, fast) = (arrival(id(&profile, "slow")), arrival(id(&profile, "fast")));
    let mut queue = PolicyQueue::new(profile);
    for _ in 0..100 {
        push(&mut queue, slow, "slow");
        push(&mut queue, fast, "fast");
    }
    for _ in 0..50 {
        assert_eq!(pop_but(&mut queue, "fast"), Some("slow"));
    }
    queue.recheck_all();
    let after: Vec<_> = (0..8).map(|_| pop(&mut queue).unwrap()).collect();
    assert_eq!(after, ["fast", "fast", "fast", "slow", "fast", "fast", "fast", "slow"], "no more than its usual turns");
}

#[test]
fn credit_that_is_left_goes_to_the_next_lane_that_may_go() {
    let profile = profile([class("agents", 10), class("batch", 1)]);
    let (agents, batch) = (arrival(id(&profile, "agents")), arrival(id(&profile, "batch")));
    let mut queue = PolicyQueue::new(profile);
    let of = |cost, ingress_ms| Arrival { tokens: RequestTokens::new(cost, 0), ingress_ms, ..agents };
    push(&mut queue, of(5, 0.0), "first");
    push(&mut queue, Arrival { lane: pinned(1), ..of(1, 1.0) }, "blocked");
    push(&mut queue, Arrival { lane: pinned(2), ..of(5, 2.0) }, "ready");
    push(&mut queue, batch, "batch");
    assert_eq!(pop_but(&mut queue, "blocked"), Some("first"));
    assert_eq!(pop_but(&mut queue, "blocked"), Some("ready"), "5 of 10 tokens were left");
    assert_eq!(pop_but(&mut queue, "blocked"), Some("batch"));
}

#[test]
fn too_little_credit_is_kept_for_the_next_turn() {
    let profile = profile([class("agents", 10), class("batch", 1)]);
    let (agents, batch) = (arrival(id(&profile, "agents")), arrival(id(&profile, "batch")));
    let mut queue = PolicyQueue::new(profile);
    let of = |cost| Arrival { tokens: RequestTokens::new(cost, 0), ..agents };
    push(&mut queue, of(5), "first");
    push(&mut queue, of(15), "needs what was left and a turn");
    push(&mut queue, batch, "batch 1");
    push(&mut queue, batch, "batch 2");
    assert_eq!(all(&mut queue), ["first", "batch 1", "needs what was left and a turn", "batch 2"]);
}

#[test]
fn a_request_that_met_an_empty_queue_is_charged_as_any_other() {
    let profile = profile([class("agents", 10), class("batch", 1)]);
    let (agents, batch) = (arrival(id(&profile, "agents")), arrival(id(&profile, "batch")));
    let mut queue = PolicyQueue::new(profile);
    push(&mut queue, Arrival { tokens: RequestTokens::new(100, 0).with_cost(7), ..agents }, "idle arrival");
    push(&mut queue, Arrival { tokens: RequestTokens::new(4, 0), ..agents }, "4 tokens, 3 are left");
    push(&mut queue, batch, "batch");
    assert_eq!(all(&mut queue), ["idle arrival", "batch", "4 tokens, 3 are left"]);
}

#[test]
fn a_class_that_empties_loses_its_credit() {
    let profile = profile([class("agents", 10), class("batch", 1)]);
    let (agents, batch) = (arrival(id(&profile, "agents")), arrival(id(&profile, "batch")));
    let mut queue = PolicyQueue::new(profile);
    push(&mut queue, agents, "costs 1 of 10");
    let gone = push(&mut queue, agents, "cancelled");
    assert_eq!(pop(&mut queue), Some("costs 1 of 10"));
    queue.cancel(gone);
    push(&mut queue, Arrival { tokens: RequestTokens::new(9, 0), ..agents }, "9 would have been left");
    push(&mut queue, batch, "batch");
    assert_eq!(pop(&mut queue), Some("batch"), "the turn is the other class's");
}

#[test]
fn a_fully_blocked_ring_ends_and_earns_nothing() {
    let profile = profile([class("first", 7), class("second", 11)]);
    let (first, second) = (arrival(id(&profile, "first")), arrival(id(&profile, "second")));
    let mut queue = PolicyQueue::new(profile);
    let of = |arrival| Arrival { tokens: RequestTokens::new(100, 0), ..arrival };
    for _ in 0..2 {
        push(&mut queue, of(first), "first");
        push(&mut queue, of(second), "second");
    }
    for _ in 0..10_000 {
        queue.recheck_all();
        assert!(queue.pop(|_, _| false).is_none());
    }
    queue.recheck_all();
    // 100 tokens are 10 turns of 11 and 15 of 7.
    assert_eq!(all(&mut queue), ["second", "first", "second", "first"]);
}

#[test]
fn a_request_larger_than_any_quantum_goes_at_once() {
    let profile = profile([class("large", 1), class("blocked", 100)]);
    let (large, blocked) = (arrival(id(&profile, "large")), arrival(id(&profile, "blocked")));
    let mut queue = PolicyQueue::new(profile);
    push(&mut queue, Arrival { tokens: RequestTokens::new(u64::MAX, 0), ..large }, "large");
    push(&mut queue, blocked, "blocked");
    assert_eq!(pop_but(&mut queue, "blocked"), Some("large"));
    assert_eq!(queue.len(), 1);
}

#[test]
fn an_arrival_waits_its_turn_behind_another_class() {
    let profile = profile([class("batch", 1), class("premium", 1)]);
    let (batch, premium) = (arrival(id(&profile, "batch")), arrival(id(&profile, "premium")));
    let mut queue = PolicyQueue::new(profile);
    push(&mut queue, batch, "backlog 1");
    push(&mut queue, batch, "backlog 2");
    push(&mut queue, premium, "arrival");
    assert_eq!(all(&mut queue), ["backlog 1", "arrival", "backlog 2"]);
}

#[test]
fn each_class_has_its_own_threshold() {
    let class = |name, threshold| PolicyClass { prefill_busy_threshold: Some(threshold), ..class(name, 1) };
    let profile = profile([class("low", 10), class("high", 100)]);
    let (low, high) = (arrival(id(&profile, "low")), arrival(id(&profile, "high")));
    let mut queue = PolicyQueue::new(profile);
    push(&mut queue, low, "low");
    push(&mut queue, high, "high");
    let load = Cell::new(50.0);
    let row = || RowLoad { active_prefill_tokens: load.get(), max_num_batched_tokens: None };
    let next = |queue: &mut Queue| queue.pop(|class, _| class.admits([row()])).map(|entry| entry.payload);
    assert_eq!(next(&mut queue), Some("high"));
    assert_eq!(next(&mut queue), None);
    load.set(10.0);
    queue.recheck(WorkerKey::new(1, 0));
    assert_eq!(next(&mut queue), Some("low"));
}

// Lanes

#[test]
fn a_blocked_pinned_lane_blocks_no_other() {
    let (mut queue, arrival) = one_class();
    push(&mut queue, Arrival { lane: pinned(1), ..arrival }, "blocked");
    push(&mut queue, Arrival { lane: pinned(2), ingress_ms: 1.0, ..arrival }, "ready");
    push(&mut queue, Arrival { ingress_ms: 2.0, ..arrival }, "shared");
    assert_eq!(pop_but(&mut queue, "blocked"), Some("ready"));
    assert_eq!(pop_but(&mut queue, "blocked"), Some("shared"));
    assert_eq!(pop_but(&mut queue, "blocked"), None);
    assert_eq!(queue.len(), 1);
}

#[test]
fn a_row_that_changes_rechecks_its_own_lane_only() {
    let (mut queue, arrival) = one_class();
    push(&mut queue, Arrival { lane: pinned(1), ..arrival }, "worker 1");
    push(&mut queue, Arrival { lane: pinned(2), ..arrival }, "worker 2");
    push(&mut queue, Arrival { lane: Lane::Worker(2), ..arrival }, "any rank of worker 2");
    assert!(queue.pop(|_, _| false).is_none());
    queue.recheck(WorkerKey::new(1, 0));
    assert_eq!(all(&mut queue), ["worker 1"]);
    queue.recheck(WorkerKey::new(2, 1));
    assert_eq!(all(&mut queue), ["any rank of worker 2"]);
    queue.recheck(WorkerKey::new(2, 0));
    assert_eq!(all(&mut queue), ["worker 2"]);
}

#[test]
fn a_lane_follows_its_new_first_request() {
    let (mut queue, arrival) = one_class();
    push(&mut queue, Arrival { lane: pinned(1), ..arrival }, "old");
    push(&mut queue, Arrival { lane: pinned(1), priority_jump: 10.0, ..arrival }, "boosted");
    assert_eq!(all(&mut queue), ["boosted", "old"]);
}

#[test]
fn a_request_that_takes_the_place_of_a_blocked_one_is_looked_at() {
    let (mut queue, arrival) = one_class();
    let blocked = push(&mut queue, Arrival { strict_priority: 1, ..arrival }, "blocked");
    push(&mut queue, arrival, "behind it");
    assert_eq!(pop_but(&mut queue, "blocked"), None);
    queue.cancel(blocked);
    assert_eq!(pop(&mut queue), Some("behind it"));
    push(&mut queue, arrival, "blocked");
    assert_eq!(pop_but(&mut queue, "blocked"), None);
    push(&mut queue, Arrival { strict_priority: 1, ..arrival }, "before it");
    assert_eq!(pop_but(&mut queue, "blocked"), Some("before it"));
}

#[test]
fn a_recheck_of_all_keeps_the_order() {
    let (mut queue, arrival) = one_class();
    push(&mut queue, Arrival { lane: pinned(1), ..arrival }, "low");
    push(&mut queue, Arrival { lane: pinned(2), strict_priority: 1, ..arrival }, "high");
    let gone = push(&mut queue, Arrival { lane: pinned(3), strict_priority: 2, ..arrival }, "cancelled");
    assert!(queue.pop(|_, _| false).is_none());
    queue.recheck_all();
    queue.cancel(gone);
    assert_eq!(all(&mut queue), ["high", "low"]);
}

#[test]
fn each_of_ten_thousand_blocked_lanes_is_asked_once() {
    const LANES: u64 = 10_000;
    let profile = profile([class("agents", 10)]);
    let arrival = arrival(id(&profile, "agents"));
    let mut queue = PolicyQueue::new(profile);
    for lane in 0..LANES {
        queue.push(Arrival { lane: pinned(lane), ..arrival }, lane, 0.0, 1, |_, _| true).unwrap();
    }
    let mut asked = 0;
    let mut served = HashSet::new();
    while let Some(entry) = queue.pop(|_, lane| {
        asked += 1;
        lane % 2 == 1
    }) {
        served.insert(entry.payload);
    }
    assert_eq!((served.len() as u64, asked, queue.len() as u64), (LANES / 2, LANES, LANES / 2));
    assert!(queue.pop(|_, _| panic!("no lane changed")).is_none());
}

// Removal

#[test]
fn a_cancelled_request_is_never_sent_and_gives_its_room_back() {
    let profile = profile([class("agents", 10)]);
    let agents = id(&profile, "agents");
    let mut queue = PolicyQueue::new(profile);
    let of = |prompt, cached| Arrival { tokens: RequestTokens::new(prompt, cached), ..arrival(agents) };
    push(&mut queue, of(8, 4), "stays");
    let gone = push(&mut queue, Arrival { due_ms: Some(9.0), ..of(16, 6) }, "cancelled");
    assert_eq!(queue.cancel(gone).unwrap().payload, "cancelled");
    assert!(queue.cancel(gone).is_none());
    let usage = queue.usage(agents);
    assert_eq!((usage.requests, usage.prompt_tokens, usage.cached_tokens), (1, 8, 4));
    assert_eq!(queue.next_deadline(), None);
    assert_eq!(all(&mut queue), ["stays"]);
}

#[test]
fn at_shutdown_every_request_comes_out_once_in_the_order_of_arrival() {
    let (mut queue, arrival) = one_class();
    let first = push(&mut queue, arrival, "first");
    push(&mut queue, Arrival { lane: pinned(1), due_ms: Some(1.0), ..arrival }, "second");
    push(&mut queue, Arrival { strict_priority: 9, ..arrival }, "third");
    assert_eq!(queue.drain().iter().map(|entry| entry.payload).collect::<Vec<_>>(), ["first", "second", "third"]);
    assert!(queue.is_empty() && queue.next_deadline().is_none());
    assert_ne!(push(&mut queue, arrival, "later"), first, "a number is never used again");
}

#[test]
fn tokens_are_counted_as_the_queue_charges_them() {
    let tokens = RequestTokens::new(100, 120);
    assert_eq!((tokens.prompt(), tokens.cached(), tokens.uncached(), tokens.cost()), (100, 100, 0, 1));
    assert_eq!(RequestTokens::new(100, 30).cost(), 70);
    assert_eq!(RequestTokens::new(100, 30).with_cost(7).cost(), 7);
}
