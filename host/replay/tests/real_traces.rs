//! The published traces, where they are there: `POINTSMAN_TRACES` names their folder.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::{Path, PathBuf};

use pointsman_replay::worker::WorkerModel;
use pointsman_replay::{Fleet, Options, Report, Trace, TraceReport};

use support::{default_router, least_loaded, replay, replay_as, round_robin};

/// One of the traces; none, with a word about it, where there is no folder. Under `CI=true` it must be there.
fn path(name: &str) -> Option<PathBuf> {
    match std::env::var_os("POINTSMAN_TRACES") {
        Some(folder) => Some(Path::new(&folder).join(name)),
        None => {
            let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
            assert!(!ci, "POINTSMAN_TRACES is not set: CI needs the folder of real traces");
            eprintln!("skipped, because POINTSMAN_TRACES is not set: a test of {name}");
            None
        }
    }
}

fn conversation() -> Option<Trace> {
    path("mooncake_conversation_trace.jsonl").map(|path| Trace::open(&path, None).unwrap())
}

#[test]
fn the_conversation_trace_is_read_whole() {
    let Some(trace) = conversation() else { return };
    assert_eq!((trace.len(), trace.blocks()), (12_031, 288_500));
    let mut ids: Vec<u64> = trace.requests().flat_map(|request| request.block_ids).copied().collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 182_790);
}

#[test]
fn one_unlimited_cache_hits_as_often_as_the_trace_allows() {
    let Some(trace) = conversation() else { return };
    let model = WorkerModel { kv_blocks: u64::MAX, ..WorkerModel::default() };
    let options = Options { fleet: Fleet::Aggregated { workers: 1 }, model, ..Options::default() };
    let (report, _) = replay(&trace, &default_router(), &options).unwrap();
    assert_eq!(report.prefix_hit_rate, Some(105_710.0 / 288_500.0), "36.6 %");
}

#[test]
fn the_policies_differ_on_the_conversation_trace_as_they_should() {
    let Some(trace) = conversation() else { return };
    let run = |label, router| replay_as(label, &trace, &router, &Options::default()).unwrap().0;
    let turns = run("round-robin", round_robin());
    let load = run("least-loaded", least_loaded());
    let cost = run("default", default_router());
    let (trace, runs) = (TraceReport::of(&trace), vec![turns.clone(), load.clone(), cost.clone()]);
    println!("{}", Report { trace, runs });
    for report in [&turns, &load, &cost] {
        assert_eq!((report.decided, report.rejected, report.faults.len()), (12_031, 0, 0));
        assert_eq!(report.requests_per_worker.iter().sum::<u64>(), 12_031);
    }
    assert!(cost.prefix_hit_rate > turns.prefix_hit_rate && cost.prefix_hit_rate < Some(0.366), "{cost:?} {turns:?}");
    assert!(cost.ttft_ms.mean < turns.ttft_ms.mean, "{cost:?} {turns:?}");
    assert!(load.load_cv < turns.load_cv && load.load_cv < cost.load_cv, "{load:?} {turns:?} {cost:?}");
}

#[test]
fn the_azure_trace_is_read_and_decided_whole() {
    let Some(path) = path("AzureLLMInferenceTrace_conv.csv") else { return };
    let trace = Trace::open(&path, None).unwrap();
    assert_eq!(trace.len(), 19_366);
    let last = trace.get(19_365).unwrap();
    assert_eq!((last.arrival_us, last.input_tokens, last.output_tokens), (3_501_721_937, 197, 183));
    let (report, _) = replay(&trace, &default_router(), &Options::default()).unwrap();
    assert_eq!((report.decided, report.prefix_hit_rate), (19_366, None));
}
