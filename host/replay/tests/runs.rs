//! Whole runs over small traces whose figures can be worked out by hand.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;

use pointsman_replay::metrics::{Milliseconds, PerDecision};
use pointsman_replay::worker::WorkerModel;
use pointsman_replay::{Fleet, Options, ReplayError, Run, Trace};
use pointsman_routing::config::{FaultAction, OnFault};
use pointsman_routing::{InstanceSpec, Load, PartitionKey, Role, StageMode, WorkerKey};
use pointsman_sdk::native::native;
use pointsman_sdk::prelude::*;
use sha2::{Digest, Sha256};

use support::{Ticking, default_router, default_router_in, replay, round_robin, router_with, trace};

/// A step takes 10 us, a prefilled token 1 us, decoding 5 us and 2 us a request, a transfer 100 us and 1 us a token.
const ROUND: WorkerModel = WorkerModel {
    kv_blocks: 64,
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

fn workers(workers: u32) -> Options {
    Options { fleet: Fleet::Aggregated { workers }, model: ROUND, ..Options::default() }
}

fn pools(prefill: u32, decode: u32) -> Options {
    Options { fleet: Fleet::Disaggregated { prefill, decode }, model: ROUND, ..Options::default() }
}

fn digest(decisions: &[(u64, u64)]) -> String {
    let mut hash = Sha256::new();
    for (index, worker) in decisions {
        hash.update(index.to_le_bytes());
        hash.update(worker.to_le_bytes());
        hash.update(0_u32.to_le_bytes());
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn close(left: Option<f64>, right: f64) -> bool {
    left.is_some_and(|left| (left - right).abs() < 1e-12)
}

#[test]
fn three_requests_in_turn_on_two_workers() {
    let trace = trace(&[
        r#"{"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [1]}"#,
        r#"{"timestamp": 0, "input_length": 512, "output_length": 2, "hash_ids": [1]}"#,
        r#"{"timestamp": 10, "input_length": 1000, "output_length": 1, "hash_ids": [1, 2]}"#,
    ]);
    let (report, memory) = replay(&trace, &round_robin(), &Options { seed: 9, ..workers(2) }).unwrap();
    assert_eq!(
        memory.lines,
        [(0, "aggregated", Some(0), "ok"), (1, "aggregated", Some(1), "ok"), (2, "aggregated", Some(0), "ok")]
    );
    assert_eq!((report.policy.as_str(), report.workers, report.seed), ("policy", 2, 9));
    assert_eq!((report.decided, report.rejected, report.fallbacks), (3, 0, 0));
    assert_eq!(report.requests_per_worker, [2, 1]);
    assert_eq!(report.decisions_sha256, digest(&[(0, 0), (1, 1), (2, 0)]));
    assert_eq!(report.prefix_hit_rate, Some(0.25), "the third finds one of the four blocks");
    // Prefill takes 10 + 512, 10 + 512 and 10 + 488 us; the second has one more token, 10 + 5 + 2 us.
    assert_eq!(
        report.ttft_ms,
        Milliseconds { mean: Some(0.514), p50: Some(0.522), p90: Some(0.522), p99: Some(0.522) }
    );
    assert!(close(report.latency_ms.mean, (0.522 + 0.539 + 0.498) / 3.0));
    assert_eq!((report.latency_ms.p50, report.latency_ms.p99), (Some(0.522), Some(0.539)));
    // (1, 1) for 522 us, (0, 1) for 17 us, (1, 0) for 498 us.
    assert!(close(report.load_cv, (17.0 + 498.0) / (522.0 + 17.0 + 498.0)));
    assert_eq!(report.decision_us, PerDecision { p50: Some(1.0), p99: Some(1.0) });
    assert_eq!(report.fuel, None);
}

#[test]
fn speed_brings_requests_closer_and_leaves_workers_alone() {
    let rows = [0, 10, 20].map(|at| format!(r#"{{"timestamp": {at}, "input_length": 1000, "output_length": 1}}"#));
    let trace = trace(&rows.each_ref().map(String::as_str));
    let ttft = |speed| replay(&trace, &round_robin(), &Options { speed, ..workers(1) }).unwrap().0.ttft_ms;
    assert_eq!(ttft(1.0).p99, Some(1.010));
    assert_eq!(ttft(10.0).p99, Some(1.030), "1 ms apart, 1.01 ms each: the third waits for 20 us");
    assert_eq!(ttft(1_000.0).p99, Some(3.010), "the third arrives at 20 us and ends last, at 3,030");
}

#[test]
fn without_block_ids_there_is_no_hit_rate() {
    let trace = trace(&["TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 18:15:46.6805900,374,44"]);
    let (report, _) = replay(&trace, &default_router(), &workers(2)).unwrap();
    assert_eq!((report.prefix_hit_rate, report.decided), (None, 1));
}

#[test]
fn prefill_comes_before_decode_in_pools_of_their_own() {
    let row = r#"{"timestamp": 0, "input_length": 1000, "output_length": 3, "hash_ids": [1, 2]}"#;
    let (report, memory) = replay(&trace(&[row]), &default_router(), &pools(1, 1)).unwrap();
    assert_eq!(memory.lines, [(0, "prefill", Some(0), "ok"), (0, "decode", Some(1), "ok")]);
    assert_eq!(report.decisions_sha256, digest(&[(0, 0), (0, 1)]));
    assert_eq!((report.workers, report.decided), (2, 1));
    assert_eq!(report.requests_per_worker, [1, 1]);
    // Prefill ends at 1,010 us, the transfer at 2,110, then three tokens of 17 us each.
    assert_eq!((report.ttft_ms.mean, report.latency_ms.mean), (Some(2.127), Some(2.161)));
    assert_eq!(report.load_cv, Some(0.0));
}

#[test]
fn ids_of_the_decode_pool_follow_those_of_the_prefill_pool() {
    let rows: Vec<String> =
        (0..40).map(|at| format!(r#"{{"timestamp": {at}, "input_length": 900, "output_length": 50}}"#)).collect();
    let trace = trace(&rows.iter().map(String::as_str).collect::<Vec<_>>());
    let (report, memory) = replay(&trace, &round_robin(), &pools(4, 12)).unwrap();
    assert_eq!(report.requests_per_worker.len(), 16);
    assert_eq!(report.requests_per_worker[..4], [10; 4]);
    assert_eq!(report.requests_per_worker[4..].iter().sum::<u64>(), 40);
    assert_eq!(report.decided, 40, "requests, not decisions");
    for (place, (index, role, worker, _)) in memory.lines.into_iter().enumerate() {
        assert_eq!(index, place as u64 / 2, "in the order of the requests");
        let (expected, ids) = if place % 2 == 0 { ("prefill", 0..4) } else { ("decode", 4..16) };
        assert!(role == expected && ids.contains(&worker.unwrap()));
    }
}

#[test]
fn a_pin_holds_in_its_own_pool_and_a_pin_to_nobody_rejects() {
    let row =
        |pin: u64| format!(r#"{{"timestamp": 0, "input_length": 9, "output_length": 1, "pinned_worker": {pin}}}"#);
    let trace = trace(&[&row(1), &row(1), &row(7), &row(0)]);
    let (report, memory) = replay(&trace, &round_robin(), &workers(2)).unwrap();
    let of = |lines: &[(u64, &str, Option<u64>, &'static str)]| {
        lines.iter().map(|(index, _, worker, outcome)| (*index, *worker, *outcome)).collect::<Vec<_>>()
    };
    assert_eq!(
        of(&memory.lines),
        [(0, Some(1), "ok"), (1, Some(1), "ok"), (2, None, "no-endpoints"), (3, Some(0), "ok")]
    );
    assert_eq!((report.decided, report.rejected), (3, 1));
    assert_eq!(report.rejections, BTreeMap::from([("no-endpoints", 1)]));
    assert!(report.faults.is_empty(), "an answer of the router, not a fault");
    assert_eq!(report.decisions_sha256, digest(&[(0, 1), (1, 1), (3, 0)]), "a rejected request adds nothing");

    // Prefill workers 0 and 1, decode workers 2 to 7.
    let (_, memory) = replay(&trace, &round_robin(), &pools(2, 6)).unwrap();
    let workers: Vec<_> = memory.lines.iter().map(|(_, role, worker, _)| (*role, worker.unwrap())).collect();
    assert_eq!(workers[0], ("prefill", 1));
    assert_eq!(workers[2], ("prefill", 1));
    assert_eq!(workers[5], ("decode", 7));
    let (report, _) = replay(&trace, &round_robin(), &pools(2, 3)).unwrap();
    assert_eq!(report.rejected, 1, "7 is in neither pool");
}

#[test]
fn a_session_s_last_worker_is_its_soft_target_until_the_session_ends() {
    let row = |at: u64, end: bool| {
        format!(
            r#"{{"timestamp": {at}, "input_length": 9, "output_length": 1, "session_id": "s", "session_final": {end}}}"#
        )
    };
    let other = |at: u64| format!(r#"{{"timestamp": {at}, "input_length": 9, "output_length": 1}}"#);
    // Others take the workers in turn; the session stays on worker 1, where it began, until it ends.
    let rows = [other(0), row(1, false), other(2), row(3, false), other(4), row(5, true), other(6), row(7, false)];
    let trace = trace(&rows.each_ref().map(String::as_str));
    let router = support::router("sticky", native::<sticky::Sticky>());
    let (_, memory) = replay(&trace, &router, &workers(3)).unwrap();
    let workers: Vec<_> = memory.lines.iter().map(|(_, _, worker, _)| worker.unwrap()).collect();
    assert_eq!(workers, [0, 1, 2, 1, 0, 1, 1, 2]);
}

#[test]
fn faults_count_by_outcome_and_the_fallback_decides() {
    let rows: Vec<String> =
        (0..6).map(|at| format!(r#"{{"timestamp": {at}, "input_length": 9, "output_length": 1}}"#)).collect();
    let trace = trace(&rows.iter().map(String::as_str).collect::<Vec<_>>());
    let spec = || InstanceSpec::new("moody");
    let policy = native::<moody::Moody>;
    let (report, memory) = replay(&trace, &router_with(spec(), "moody", policy()), &workers(2)).unwrap();
    assert_eq!((report.decided, report.rejected, report.fallbacks), (6, 0, 2));
    assert_eq!(report.faults, BTreeMap::from([("policy-error", 2)]));
    let outcomes: Vec<_> = memory.lines.iter().map(|(_, _, _, outcome)| *outcome).collect();
    assert_eq!(outcomes, ["ok", "ok", "policy-error", "ok", "ok", "policy-error"]);

    let strict = spec().on_fault(OnFault { otherwise: FaultAction::Reject, ..OnFault::default() });
    let (report, memory) = replay(&trace, &router_with(strict, "moody", policy()), &workers(2)).unwrap();
    assert_eq!((report.decided, report.rejected, report.fallbacks), (4, 2, 0));
    assert_eq!(report.faults, BTreeMap::from([("policy-error", 2)]));
    assert_eq!(report.rejections, BTreeMap::from([("policy-error", 2)]));
    assert_eq!(memory.lines[2], (2, "aggregated", None, "policy-error"));
}

#[test]
fn a_request_that_finds_no_decode_worker_is_rejected_once() {
    let rows: Vec<String> =
        (0..3).map(|at| format!(r#"{{"timestamp": {at}, "input_length": 9, "output_length": 1}}"#)).collect();
    let trace = trace(&rows.iter().map(String::as_str).collect::<Vec<_>>());
    let strict = InstanceSpec::new("moody").on_fault(OnFault { otherwise: FaultAction::Reject, ..OnFault::default() });
    let (report, memory) =
        replay(&trace, &router_with(strict, "moody", native::<moody::Moody>()), &pools(1, 1)).unwrap();
    // Each pool has a guest of its own, which fails at its third call; the prefill pool's did first.
    assert_eq!((report.requests, report.decided, report.rejected), (3, 2, 1));
    assert_eq!(memory.lines.last(), Some(&(2, "prefill", None, "policy-error")));
    assert_eq!(report.decisions_sha256, digest(&[(0, 0), (0, 1), (1, 0), (1, 1)]));
}

#[test]
fn a_run_repeats_and_does_not_depend_on_how_stages_are_called() {
    let trace = Trace::generated(4, 400);
    for options in
        [Options::default(), Options { fleet: Fleet::Disaggregated { prefill: 8, decode: 8 }, ..Options::default() }]
    {
        let run = |mode| replay(&trace, &default_router_in(mode), &options).unwrap();
        let (first, lines) = run(StageMode::Fused);
        let (again, lines_again) = run(StageMode::Fused);
        assert_eq!((&first, &lines.lines), (&again, &lines_again.lines));
        let (separate, _) = run(StageMode::Separate);
        assert_eq!(separate.decisions_sha256, first.decisions_sha256);
        assert_eq!(first.decided, 400);
    }
}

#[test]
fn when_all_is_done_the_router_s_loads_are_back_at_zero() {
    let trace = Trace::generated(1, 300);
    let fleets = [
        (Fleet::Aggregated { workers: 3 }, vec![(Role::Aggregated, 0..3)]),
        (Fleet::Disaggregated { prefill: 3, decode: 2 }, vec![(Role::Prefill, 0..3), (Role::Decode, 3..5)]),
    ];
    for (fleet, pools) in fleets {
        let router = default_router();
        replay(&trace, &router, &Options { fleet, ..Options::default() }).unwrap();
        for (role, ids) in pools {
            let partition = router.partition(&PartitionKey::of_role(role), 512).unwrap();
            for id in ids {
                assert_eq!(partition.load(WorkerKey::new(id, 0)), Some(Load::default()), "{role} worker {id}");
            }
        }
    }
}

#[test]
fn impossible_options_end_in_one_sentence() {
    let one = trace(&[r#"{"timestamp": 0, "input_length": 40000, "output_length": 1}"#]);
    let refusal = |options: Options| replay(&one, &default_router(), &options).err().unwrap().to_string();
    assert_eq!(refusal(workers(0)), "0 aggregated workers cannot be simulated; ask for 1 to 100000");
    assert_eq!(
        refusal(Options { model: WorkerModel { kv_blocks: 100, ..ROUND }, ..pools(2, 0) }),
        "0 decode workers cannot be simulated; ask for 1 to 100000"
    );
    for speed in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let text = refusal(Options { speed, ..workers(1) });
        assert_eq!(text, format!("a speed of {speed} is not possible; give a number from 0.001 to 1000000"));
    }
    assert_eq!(
        refusal(workers(1)),
        "trace line 1: the prompt and its answer need 79 KV blocks of 512 tokens and a simulated worker has 64; remove the \
         request"
    );
    let third = trace(&[
        "TIMESTAMP,ContextTokens,GeneratedTokens",
        "2023-11-16 18:15:46,374,44",
        "",
        "2023-11-16 18:15:47,374,44",
        "2023-11-16 18:15:48,374,40000",
    ]);
    assert_eq!(
        replay(&third, &default_router(), &workers(1)).err().unwrap().to_string(),
        "trace line 5: the prompt and its answer need 79 KV blocks of 512 tokens and a simulated worker has 64; remove the \
         request, or replay those before it with a limit of 2"
    );
    let still = WorkerModel { max_sequences: 0, ..ROUND };
    assert!(refusal(Options { model: still, ..workers(1) }).ends_with("raise `max_sequences` above 0"));
}

#[test]
fn a_router_serves_one_run() {
    let one = trace(&[r#"{"timestamp": 0, "input_length": 4, "output_length": 1}"#]);
    let router = default_router();
    replay(&one, &router, &workers(2)).unwrap();
    let again = replay(&one, &router, &workers(2)).err();
    assert!(matches!(again, Some(ReplayError::UsedRouter { role: Role::Aggregated })));
}

#[test]
fn a_line_that_cannot_be_written_ends_the_run() {
    struct Full;
    impl pointsman_replay::Observer for Full {
        fn decision(&mut self, _: &pointsman_replay::DecisionLine<'_>) -> std::io::Result<()> {
            Err(std::io::Error::other("disk full"))
        }
    }
    let one = trace(&[r#"{"timestamp": 0, "input_length": 4, "output_length": 1}"#]);
    let run = Run { label: "p", trace: &one, router: &default_router(), options: &workers(1) };
    let error = run.execute(&Ticking::new(), &mut Full).unwrap_err();
    assert_eq!(error.to_string(), "cannot write the decisions: disk full");
}

/// Keeps a session on its target; everything else goes round in turn.
mod sticky {
    use super::*;

    pub(super) struct Sticky(usize);

    impl Policy for Sticky {
        type Parameters = NoParameters;
        const NAME: &'static str = "sticky";
        const DESCRIPTION: &'static str = "For tests.";

        fn configure(_: &Setup, _: NoParameters) -> Result<Self, PolicyError> {
            Ok(Self(0))
        }
    }

    impl Picker for Sticky {
        fn reads(&self) -> Reads {
            Reads::AFFINITY
        }

        fn pick(&mut self, request: &Request<'_>, workers: &Candidates<'_>) -> Result<usize, PolicyError> {
            match request.affinity_target()? {
                Some(target) if !target.is_empty() => Ok(target.start),
                _ => {
                    self.0 += 1;
                    Ok((self.0 - 1) % workers.len())
                }
            }
        }
    }

    pointsman_sdk::export!(Sticky: picker);
}

/// Fails at every third decision.
mod moody {
    use super::*;

    pub(super) struct Moody(usize);

    impl Policy for Moody {
        type Parameters = NoParameters;
        const NAME: &'static str = "moody";
        const DESCRIPTION: &'static str = "For tests.";

        fn configure(_: &Setup, _: NoParameters) -> Result<Self, PolicyError> {
            Ok(Self(0))
        }
    }

    impl Picker for Moody {
        fn reads(&self) -> Reads {
            Reads::NONE
        }

        fn pick(&mut self, _: &Request<'_>, _: &Candidates<'_>) -> Result<usize, PolicyError> {
            self.0 += 1;
            if self.0.is_multiple_of(3) { Err(PolicyError::failed("not now")) } else { Ok(0) }
        }
    }

    pointsman_sdk::export!(Moody: picker);
}
