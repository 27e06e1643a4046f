//! Sessions keep their workers, in virtual time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use pointsman_admission::{
    Acquired, AffinityError, AffinityMode, AffinityTarget, BindingVersion, Lease, MAX_SESSION_ID_BYTES,
    MAX_SESSION_TTL_SECS, MAX_SESSIONS, ReplicaOutcome, SessionAffinity,
};

const A: AffinityTarget = ranked(1, 0);
const B: AffinityTarget = ranked(2, 0);
const TTL_MS: f64 = 60_000.0;

const fn ranked(worker: u64, rank: u32) -> AffinityTarget {
    AffinityTarget { worker, rank: Some(rank) }
}

const fn unranked(worker: u64) -> AffinityTarget {
    AffinityTarget { worker, rank: None }
}

fn table(mode: AffinityMode) -> SessionAffinity {
    SessionAffinity::new(mode, 60).unwrap()
}

fn acquire(table: &mut SessionAffinity, session: &str, now_ms: f64) -> Acquired {
    table.acquire(session, None, |_| true, 0, now_ms).unwrap()
}

fn first(table: &mut SessionAffinity, session: &str, now_ms: f64) -> Lease {
    match acquire(table, session, now_ms) {
        Acquired::First(lease) => lease,
        other => panic!("{other:?}"),
    }
}

fn bound(table: &mut SessionAffinity, session: &str, now_ms: f64) -> (AffinityTarget, Lease) {
    match acquire(table, session, now_ms) {
        Acquired::Bound(target, lease) => (target, lease),
        other => panic!("{other:?}"),
    }
}

/// Binds a session by a request that is over at once.
fn bind(table: &mut SessionAffinity, session: &str, target: AffinityTarget, now_ms: f64) {
    let mut lease = first(table, session, now_ms);
    table.commit(&mut lease, target).unwrap();
    table.release(lease, now_ms);
}

/// Two workers and a policy that keeps a session's worker while it is idle, and else takes the least loaded other one.
struct Fleet {
    table: SessionAffinity,
    active: [u32; 2],
}

impl Fleet {
    fn new() -> Self {
        Self { table: table(AffinityMode::Soft), active: [0, 0] }
    }

    fn choose(&mut self, now_ms: f64) -> (AffinityTarget, Lease) {
        let (target, lease) = match acquire(&mut self.table, "S", now_ms) {
            Acquired::First(lease) => (None, lease),
            Acquired::Bound(target, lease) => (Some(target), lease),
            Acquired::Wait => panic!("no other request binds the session"),
        };
        let kept = target.filter(|target| self.active[Self::place(*target)] == 0);
        let others = [A, B].into_iter().filter(|other| Some(*other) != target);
        let least = others.min_by_key(|other| self.active[Self::place(*other)]).unwrap();
        (kept.unwrap_or(least), lease)
    }

    fn dispatch(&mut self, now_ms: f64) -> (AffinityTarget, Lease) {
        let (target, mut lease) = self.choose(now_ms);
        self.active[Self::place(target)] += 1;
        self.table.commit(&mut lease, target).unwrap();
        (target, lease)
    }

    fn end(&mut self, (target, lease): (AffinityTarget, Lease), now_ms: f64) {
        self.active[Self::place(target)] -= 1;
        self.table.release(lease, now_ms);
    }

    fn place(target: AffinityTarget) -> usize {
        target.worker as usize - 1
    }
}

#[test]
fn a_soft_session_moves_to_where_its_request_ran_and_stays_there() {
    let mut fleet = Fleet::new();
    let one = fleet.dispatch(0.0);
    let two = fleet.dispatch(100.0);
    let went = [one.0, two.0];
    fleet.end(two, 900.0);
    fleet.end(one, 1000.0);
    let three = fleet.dispatch(1100.0);
    assert_eq!([went[0], went[1], three.0], [A, B, B]);
}

#[test]
fn a_soft_session_moves_back_when_its_new_worker_is_busy() {
    let mut fleet = Fleet::new();
    let one = fleet.dispatch(0.0);
    let two = fleet.dispatch(100.0);
    let went = [one.0, two.0];
    fleet.end(one, 500.0);
    let three = fleet.dispatch(600.0);
    assert_eq!([went[0], went[1], three.0], [A, B, A]);
    assert_eq!(fleet.table.target("S", 600.0), Some(A));
}

#[test]
fn a_request_that_fails_before_its_stream_leaves_the_session_where_it_was() {
    let mut fleet = Fleet::new();
    let one = fleet.dispatch(0.0);
    let (chosen, lease) = fleet.choose(100.0);
    assert_eq!(chosen, B);
    fleet.table.release(lease, 200.0);
    fleet.end(one, 1000.0);
    assert_eq!(fleet.dispatch(1100.0).0, A);
}

#[test]
fn a_stream_that_breaks_after_it_began_does_not_move_the_session_back() {
    let mut fleet = Fleet::new();
    let one = fleet.dispatch(0.0);
    let two = fleet.dispatch(100.0);
    fleet.end(two, 101.0);
    fleet.end(one, 102.0);
    assert_eq!(fleet.table.target("S", 103.0), Some(B));
}

#[test]
fn of_two_requests_that_would_move_a_session_the_first_stream_wins() {
    let mut table = table(AffinityMode::Soft);
    bind(&mut table, "S", A, 0.0);
    let (_, mut late) = bound(&mut table, "S", 1.0);
    let (_, mut early) = bound(&mut table, "S", 2.0);
    table.commit(&mut early, B).unwrap();
    table.commit(&mut late, ranked(3, 0)).unwrap();
    assert_eq!(table.target("S", 3.0), Some(B));
    table.invalidate(&late);
    assert_eq!(table.target("S", 3.0), Some(B), "it has moved since that lease was taken");
    table.commit(&mut early, A).unwrap();
    assert_eq!(table.target("S", 3.0), Some(A), "the lease that moved it may move it again");
    table.release(late, 4.0);
    table.release(early, 4.0);
}

#[test]
fn a_hard_session_takes_no_dispatch_elsewhere_and_is_bound_anew() {
    let mut table = table(AffinityMode::Hard);
    bind(&mut table, "S", A, 0.0);
    let (target, mut lease) = bound(&mut table, "S", 1.0);
    assert_eq!(target, A);
    assert!(table.commit(&mut lease, A).is_ok());
    for elsewhere in [ranked(1, 1), unranked(1), B] {
        let error = table.commit(&mut lease, elsewhere).unwrap_err();
        assert_eq!(error, AffinityError::Conflict { session: "S".to_owned(), bound: A, other: elsewhere });
        table.release(lease, 2.0);
        bind(&mut table, "S", A, 3.0);
        lease = bound(&mut table, "S", 4.0).1;
    }
    table.release(lease, 5.0);
}

#[test]
fn a_pin_must_agree_with_a_hard_session_and_overrules_a_soft_one() {
    for (binding, pin, agrees) in [
        (A, A, true),
        (A, unranked(1), true),
        (A, B, false),
        (A, ranked(1, 1), false),
        (unranked(1), unranked(1), true),
        (unranked(1), ranked(1, 0), false),
    ] {
        for mode in [AffinityMode::Hard, AffinityMode::Soft] {
            let mut table = table(mode);
            bind(&mut table, "S", binding, 0.0);
            let acquired = table.acquire("S", Some(pin), |_| true, 0, 1.0);
            assert_eq!(acquired.is_ok(), agrees || mode == AffinityMode::Soft, "{mode:?} {binding} {pin}");
            if let Ok(Acquired::Bound(_, lease)) = acquired {
                table.release(lease, 2.0);
            }
            let _ = bound(&mut table, "S", 1.0);
        }
    }
}

#[test]
fn requests_wait_for_the_first_of_their_session_and_join_it() {
    let mut table = table(AffinityMode::Hard);
    let mut lease = first(&mut table, "S", 0.0);
    for waiter in [7, 8] {
        assert!(matches!(table.acquire("S", None, |_| true, waiter, 1.0), Ok(Acquired::Wait)));
    }
    assert_eq!(table.next_woken(), None);
    assert_eq!(table.target("S", 1.0), None);
    table.commit(&mut lease, B).unwrap();
    assert_eq!([table.next_woken(), table.next_woken(), table.next_woken()], [Some(7), Some(8), None]);
    assert_eq!(bound(&mut table, "S", 2.0).0, B);
    table.release(lease, 3.0);
}

#[test]
fn when_the_first_request_fails_another_binds_the_session() {
    let mut table = table(AffinityMode::Hard);
    let lease = first(&mut table, "S", 0.0);
    assert!(matches!(table.acquire("S", None, |_| true, 7, 1.0), Ok(Acquired::Wait)));
    table.release(lease, 2.0);
    assert_eq!(table.next_woken(), Some(7));
    let mut lease = first(&mut table, "S", 2.0);
    table.commit(&mut lease, B).unwrap();
    table.release(lease, 3.0);
    assert_eq!(bound(&mut table, "S", 4.0).0, B);
}

#[test]
fn an_idle_session_expires_after_its_time_and_one_in_use_never() {
    let mut table = table(AffinityMode::Hard);
    let mut long = first(&mut table, "S", 0.0);
    table.commit(&mut long, A).unwrap();
    let (_, short) = bound(&mut table, "S", 1.0);
    table.release(short, 2.0);
    assert_eq!(bound(&mut table, "S", 10.0 * TTL_MS).0, A, "two requests use it now");
    table.release(long, 20.0 * TTL_MS);
    assert_eq!(table.target("S", 90.0 * TTL_MS), Some(A), "one still does");

    bind(&mut table, "T", B, 0.0);
    assert_eq!(table.target("T", TTL_MS - 0.5), Some(B));
    assert_eq!(table.target("T", TTL_MS), None);
    let _ = first(&mut table, "T", TTL_MS);
}

#[test]
fn each_use_starts_the_time_again_and_a_look_does_not() {
    let mut table = table(AffinityMode::Soft);
    bind(&mut table, "S", A, 0.0);
    let (_, lease) = bound(&mut table, "S", TTL_MS - 1.0);
    table.release(lease, TTL_MS - 1.0);
    assert_eq!(table.target("S", 2.0 * TTL_MS - 2.0), Some(A));
    assert_eq!(table.target("S", 2.0 * TTL_MS - 1.0), None);
}

#[test]
fn what_renews_a_session_puts_its_expiry_off() {
    type Renew = fn(&mut SessionAffinity);
    let renewals: [(&str, Renew); 4] = [
        ("a request that is over", |table| {
            let (_, lease) = bound(table, "S", 1.0);
            table.release(lease, 1.0);
        }),
        ("a request that runs", |table| std::mem::forget(bound(table, "S", 1.0))),
        ("a replica", |table| {
            table.apply("S", B, BindingVersion { sequence: 900, writer: 2 }, 1.0);
        }),
        ("a new binding", |table| {
            let Ok(Acquired::First(mut lease)) = table.acquire("S", None, |_| false, 0, 1.0) else { panic!("bound") };
            table.commit(&mut lease, B).unwrap();
            table.release(lease, 1.0);
        }),
    ];
    for (what, renew) in renewals {
        let mut table = table(AffinityMode::Soft);
        bind(&mut table, "S", A, 0.0);
        renew(&mut table);
        bind(&mut table, "other", A, TTL_MS);
        assert!(table.target("S", TTL_MS).is_some(), "{what}: it is there after others have expired");
    }
}

#[test]
fn a_session_whose_worker_has_gone_is_bound_anew() {
    let mut table = table(AffinityMode::Hard);
    let mut old = first(&mut table, "S", 0.0);
    table.commit(&mut old, A).unwrap();
    let Acquired::First(mut lease) = table.acquire("S", None, |_| false, 0, 1.0).unwrap() else { panic!("bound") };
    table.commit(&mut lease, B).unwrap();
    table.release(lease, 2.0);
    assert_eq!(table.commit(&mut old, A), Ok(None), "the stream of the old worker decides nothing any more");
    table.release(old, 2.0 * TTL_MS);
    assert_eq!(table.target("S", 1.0 + TTL_MS), Some(B));
    assert_eq!(table.target("S", 2.0 + TTL_MS), None, "nor does its end keep the new binding");
}

#[test]
fn fewer_ranks_move_only_the_sessions_of_those_that_have_gone() {
    let mut table = table(AffinityMode::Soft);
    for (session, target) in [("zero", ranked(1, 0)), ("one", ranked(1, 1)), ("any", unranked(1))] {
        bind(&mut table, session, target, 0.0);
    }
    let lives = |target: AffinityTarget| target.rank.is_none_or(|rank| rank < 1);
    let kept = |session: &str, table: &mut SessionAffinity| {
        matches!(table.acquire(session, None, lives, 0, 1.0), Ok(Acquired::Bound(..)))
    };
    assert!(kept("zero", &mut table));
    assert!(!kept("one", &mut table));
    assert!(kept("any", &mut table));
}

#[test]
fn a_session_bound_without_a_rank_stays_so() {
    let mut table = table(AffinityMode::Soft);
    bind(&mut table, "S", unranked(1), 0.0);
    let (_, mut lease) = bound(&mut table, "S", 1.0);
    table.commit(&mut lease, ranked(2, 3)).unwrap();
    assert_eq!(table.target("S", 2.0), Some(unranked(2)));

    bind(&mut table, "T", A, 0.0);
    let (_, mut other) = bound(&mut table, "T", 1.0);
    table.commit(&mut other, unranked(2)).unwrap();
    assert_eq!(table.target("T", 2.0), Some(A), "a dispatch without a rank tells a ranked session nothing");
    table.release(lease, 3.0);
    table.release(other, 3.0);
}

#[test]
fn a_full_table_takes_no_session_until_one_expires() {
    let mut table = table(AffinityMode::Hard);
    for session in 0..MAX_SESSIONS {
        bind(&mut table, &session.to_string(), A, if session == 0 { 0.0 } else { 1.0 });
    }
    let late = table.acquire("late", None, |_| true, 0, 2.0);
    assert!(matches!(late, Err(AffinityError::TableFull)));
    assert_eq!(bound(&mut table, "7", 2.0).0, A, "those that it holds go on");
    let _ = first(&mut table, "late", TTL_MS);
}

#[test]
fn the_limits_of_ids_and_of_the_time_to_live_hold() {
    let mut table = table(AffinityMode::Hard);
    let _ = first(&mut table, &"x".repeat(MAX_SESSION_ID_BYTES), 0.0);
    let long = table.acquire(&"x".repeat(MAX_SESSION_ID_BYTES + 1), None, |_| true, 0, 0.0);
    assert_eq!(long.unwrap_err(), AffinityError::IdTooLong { bytes: 257 });
    for (ttl_secs, valid) in [(0, false), (1, true), (MAX_SESSION_TTL_SECS, true), (MAX_SESSION_TTL_SECS + 1, false)] {
        assert_eq!(SessionAffinity::new(AffinityMode::Hard, ttl_secs).is_ok(), valid, "{ttl_secs}");
    }
    assert_eq!("soft".parse(), Ok(AffinityMode::Soft));
    assert_eq!("Hard".parse::<AffinityMode>(), Err(AffinityError::UnknownMode("Hard".to_owned())));
    assert_eq!(AffinityMode::default(), AffinityMode::Hard);
}

#[test]
fn the_newer_binding_of_two_replicas_wins() {
    let version = |sequence, writer| BindingVersion { sequence, writer };
    let mut table = table(AffinityMode::Soft).replicated(version(100, 1));
    let apply = |table: &mut SessionAffinity, target, told, now_ms| table.apply("S", target, told, now_ms);
    assert_eq!(apply(&mut table, A, version(200, 2), 0.0), ReplicaOutcome::Inserted);
    assert_eq!(apply(&mut table, A, version(200, 2), 1.0), ReplicaOutcome::Refreshed);
    assert_eq!(table.target("S", TTL_MS + 0.5), Some(A), "its time started again");
    assert_eq!(apply(&mut table, B, version(199, 9), 2.0), ReplicaOutcome::IgnoredConflict);
    assert_eq!(apply(&mut table, B, version(200, 2), 2.0), ReplicaOutcome::IgnoredConflict);
    assert_eq!(apply(&mut table, B, version(200, 3), 2.0), ReplicaOutcome::ReplacedNewer);
    assert_eq!(apply(&mut table, A, version(1, 1), 2.0 + TTL_MS), ReplicaOutcome::ReplacedExpired);

    let (_, mut lease) = bound(&mut table, "S", 3.0 + TTL_MS);
    let told = table.commit(&mut lease, B).unwrap();
    assert_eq!(told, Some((B, version(201, 1))), "above every version seen");
    table.release(lease, 4.0 + TTL_MS);

    let _first = first(&mut table, "T", 0.0);
    assert_eq!(table.apply("T", A, version(900, 2), 0.0), ReplicaOutcome::IgnoredInitializing);
    assert_eq!(table.apply(&"x".repeat(257), A, version(900, 2), 0.0), ReplicaOutcome::RejectedSessionId);
    for session in 0..MAX_SESSIONS {
        table.apply(&session.to_string(), A, version(900, 2), 0.0);
    }
    assert_eq!(table.apply("late", A, version(900, 2), 0.0), ReplicaOutcome::RejectedCapacity);
}
