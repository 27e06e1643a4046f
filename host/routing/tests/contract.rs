//! One test for each name of the contract: what the host sends, its missing value, and its row in docs/contract.md.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use common::{Script, reads, router, workers};
use pointsman_contract::{Fact, Signal, Text};
use pointsman_routing::{
    Affinity, Load, Partition, PartitionKey, Request, RouterConfig, Session, Trigger, WorkerConfig, WorkerKey,
    WorkerOverlap,
};

const MISSING: u64 = 0x7ff8_0000_0000_0000;
const BLOCK_SIZE: u32 = 16;

fn partition(script: &Script, workers: impl Iterator<Item = WorkerConfig>) -> Arc<Partition> {
    let partition = router(script).partition(&PartitionKey::default(), BLOCK_SIZE).unwrap();
    workers.for_each(|worker| partition.upsert_worker(worker).unwrap());
    partition
}

/// Bits of the fact as a picker gets it.
fn fact(fact: Fact, request: &Request<'_>) -> u64 {
    let script = Script::default().picking(reads(&[fact.name()], &[], &[]), |_, _| Ok(0));
    partition(&script, workers([1, 2, 3])).decide(request).unwrap();
    let seen = script.seen();
    assert_eq!(seen[0].numbers.len(), 1);
    seen[0].numbers[0].to_bits()
}

fn text(text: Text, request: &Request<'_>) -> Option<String> {
    let script = Script::default().picking(reads(&[], &[text.name()], &[]), |_, _| Ok(0));
    partition(&script, workers([1])).decide(request).unwrap();
    script.seen()[0].texts.as_ref().unwrap()[0].clone()
}

/// The column of a signal over workers 1, 2 and 3 as a picker gets it, after `prepare`.
fn column(signal: Signal, request: &Request<'_>, prepare: impl FnOnce(&Partition)) -> Vec<f64> {
    let script = Script::default().picking(reads(&[], &[], &[signal.name()]), |_, _| Ok(0));
    let partition = partition(&script, workers([1, 2, 3]));
    prepare(&partition);
    partition.decide(request).unwrap();
    script.seen().pop().unwrap().numbers
}

fn overlap(worker: u64, device: f64, host: f64, disk: f64) -> WorkerOverlap {
    WorkerOverlap::from_tiers(WorkerKey::new(worker, 0), device, host, disk, &RouterConfig::default(), BLOCK_SIZE)
}

fn assert_fact(name: Fact, request: &Request<'_>, value: f64) {
    assert_eq!(f64::from_bits(fact(name, request)), value, "{}", name.name());
}

fn assert_missing(name: Fact) {
    assert_eq!(fact(name, &Request::default()), MISSING, "{}", name.name());
}

fn no_preparation(_: &Partition) {}

#[test]
fn request_now_ms() {
    assert_fact(Fact::NowMs, &Request { now_ms: 1234.5, ..Request::default() }, 1234.5);
}

#[test]
fn request_prompt_tokens() {
    assert_fact(Fact::PromptTokens, &Request { prompt_tokens: 33, ..Request::default() }, 33.0);
    assert_fact(Fact::PromptTokens, &Request::default(), 0.0);
}

#[test]
fn request_blocks() {
    for (tokens, blocks) in [(0, 0.0), (1, 1.0), (16, 1.0), (33, 3.0)] {
        assert_fact(Fact::Blocks, &Request { prompt_tokens: tokens, ..Request::default() }, blocks);
    }
}

#[test]
fn request_tracks_prefill_tokens() {
    assert_fact(Fact::TracksPrefillTokens, &Request::default(), 1.0);
    assert_fact(Fact::TracksPrefillTokens, &Request { tracks_prefill_tokens: false, ..Request::default() }, 0.0);
}

#[test]
fn request_expected_output_tokens() {
    assert_missing(Fact::ExpectedOutputTokens);
    assert_fact(Fact::ExpectedOutputTokens, &Request { expected_output_tokens: Some(7), ..Request::default() }, 7.0);
}

#[test]
fn request_priority_jump() {
    assert_fact(Fact::PriorityJump, &Request::default(), 0.0);
    assert_fact(Fact::PriorityJump, &Request { priority_jump: -2.5, ..Request::default() }, -2.5);
}

#[test]
fn request_strict_priority() {
    assert_fact(Fact::StrictPriority, &Request { strict_priority: 4, ..Request::default() }, 4.0);
}

#[test]
fn request_router_temperature() {
    assert_missing(Fact::RouterTemperature);
    assert_fact(Fact::RouterTemperature, &Request { router_temperature: Some(0.7), ..Request::default() }, 0.7);
}

#[test]
fn request_pinned() {
    assert_fact(Fact::Pinned, &Request::default(), 0.0);
    assert_fact(Fact::Pinned, &Request { pinned: Some(WorkerKey::new(2, 0)), ..Request::default() }, 1.0);
    let hard = Affinity { worker: 2, rank: Some(0), hard: true };
    assert_fact(Fact::Pinned, &Request { affinity: Some(hard), ..Request::default() }, 1.0);
    let soft = Affinity { hard: false, ..hard };
    assert_fact(Fact::Pinned, &Request { affinity: Some(soft), ..Request::default() }, 0.0);
}

#[test]
fn request_affinity_first_and_rows() {
    assert_missing(Fact::AffinityFirst);
    assert_missing(Fact::AffinityRows);
    let target =
        |worker| Request { affinity: Some(Affinity { worker, rank: None, hard: false }), ..Request::default() };
    assert_fact(Fact::AffinityFirst, &target(3), 2.0);
    assert_fact(Fact::AffinityRows, &target(3), 1.0);
    assert_fact(Fact::AffinityRows, &target(9), 0.0);
    assert_eq!(fact(Fact::AffinityFirst, &target(9)), MISSING);
    let narrowed = Request { allowed: Some(&[1, 3]), ..target(3) };
    assert_fact(Fact::AffinityFirst, &narrowed, 1.0);
}

#[test]
fn request_has_tier_matches_counts_workers_that_are_not_eligible() {
    assert_fact(Fact::HasTierMatches, &Request::default(), 0.0);
    let overlaps = [overlap(2, 0.0, 3.0, 0.0)];
    let request = Request { overlaps: &overlaps, allowed: Some(&[1]), ..Request::default() };
    assert_fact(Fact::HasTierMatches, &request, 1.0);
    let estimate = [WorkerOverlap { device_blocks: 0.0, effective_blocks: 4.0, ..overlap(2, 0.0, 0.0, 0.0) }];
    assert_fact(Fact::HasTierMatches, &Request { overlaps: &estimate, ..Request::default() }, 0.0);
}

#[test]
fn session_facts_and_texts() {
    assert_missing(Fact::SessionFinal);
    assert_missing(Fact::SessionTrigger);
    assert_eq!(text(Text::SessionId, &Request::default()), None);
    assert_eq!(text(Text::SessionParentId, &Request::default()), None);
    let session = Session { id: "s", parent_id: Some("p"), last: Some(true), trigger: Some(Trigger::ToolResult) };
    let request = Request { session: Some(session), ..Request::default() };
    assert_fact(Fact::SessionFinal, &request, 1.0);
    assert_fact(Fact::SessionTrigger, &request, 1.0);
    assert_eq!(text(Text::SessionId, &request).as_deref(), Some("s"));
    assert_eq!(text(Text::SessionParentId, &request).as_deref(), Some("p"));
}

#[test]
fn a_header_is_read_only_where_it_is_granted() {
    let script = Script::default().picking(reads(&[], &["header.x-lane"], &[]), |_, _| Ok(0));
    let build = |grant: bool| {
        let builder = pointsman_routing::Router::builder()
            .register("script", pointsman_routing::Provider::native(script.clone()))
            .serve(pointsman_routing::InstanceSpec::new("script"));
        let builder = if grant { builder.grant_header("X-Lane") } else { builder };
        builder.build().unwrap().partition(&PartitionKey::default(), BLOCK_SIZE)
    };
    assert!(build(false).unwrap_err().to_string().contains("`header.x-lane`"));
    let partition = build(true).unwrap();
    partition.upsert_worker(WorkerConfig::new(1)).unwrap();
    partition.decide(&Request { headers: &[("x-other", "a"), ("x-lane", "b")], ..Request::default() }).unwrap();
    partition.decide(&Request::default()).unwrap();
    let texts: Vec<_> = script.seen().into_iter().map(|seen| seen.texts.unwrap()).collect();
    assert_eq!(texts, [vec![Some("b".to_owned())], vec![None]]);
}

#[test]
fn cache_device_host_and_disk_overlap_blocks() {
    let overlaps = [overlap(1, 5.0, 2.0, 1.0), overlap(3, 4.0, 0.0, 0.0)];
    let request = Request { overlaps: &overlaps, ..Request::default() };
    assert_eq!(column(Signal::CacheDeviceOverlapBlocks, &request, no_preparation), [5.0, 0.0, 4.0]);
    assert_eq!(column(Signal::CacheHostOverlapBlocks, &request, no_preparation), [2.0, 0.0, 0.0]);
    assert_eq!(column(Signal::CacheDiskOverlapBlocks, &request, no_preparation), [1.0, 0.0, 0.0]);
}

#[test]
fn each_overlap_stands_in_its_workers_row_whichever_workers_have_one() {
    // Workers 0 and 4 are not there; of 1, 2 and 3 some are not eligible.
    for overlapping in 0..32_u64 {
        let overlaps: Vec<_> = (0..5)
            .filter(|worker| overlapping >> worker & 1 == 1)
            .map(|worker| overlap(worker, worker as f64 + 10.0, 0.0, 0.0))
            .collect();
        for allowed in [&[1, 2, 3][..], &[1, 2], &[3], &[2, 3], &[1, 3]] {
            let request = Request { overlaps: &overlaps, ..Request::default() };
            let expected = |workers: &[u64]| {
                let blocks = |worker: &u64| if overlapping >> worker & 1 == 1 { *worker as f64 + 10.0 } else { 0.0 };
                workers.iter().map(blocks).collect::<Vec<_>>()
            };
            let columns = |request| column(Signal::CacheDeviceOverlapBlocks, request, no_preparation);
            assert_eq!(columns(&request), expected(&[1, 2, 3]), "{overlapping:b}");
            let allowed_alone = Request { allowed: Some(allowed), ..request };
            assert_eq!(columns(&allowed_alone), expected(allowed), "{overlapping:b}, {allowed:?}");
        }
    }
}

#[test]
fn the_device_overlap_is_never_filled_from_the_estimate() {
    let overlaps = [WorkerOverlap { effective_blocks: 9.0, ..overlap(2, 0.0, 0.0, 0.0) }];
    let request = Request { overlaps: &overlaps, ..Request::default() };
    assert_eq!(column(Signal::CacheDeviceOverlapBlocks, &request, no_preparation), [0.0, 0.0, 0.0]);
    assert_eq!(column(Signal::CacheOverlapBlocks, &request, no_preparation), [0.0, 9.0, 0.0], "this one is");
}

#[test]
fn cache_overlap_blocks_is_the_device_where_any_tier_matched_anywhere() {
    let overlaps = [overlap(1, 0.0, 0.0, 6.0), WorkerOverlap { effective_blocks: 9.0, ..overlap(2, 0.0, 0.0, 0.0) }];
    let request = Request { overlaps: &overlaps, ..Request::default() };
    assert_eq!(column(Signal::CacheOverlapBlocks, &request, no_preparation), [0.0, 0.0, 0.0]);
}

#[test]
fn cache_effective_overlap_blocks_and_estimated_cached_tokens() {
    let overlaps = [overlap(2, 4.0, 2.0, 2.0)];
    let request = Request { overlaps: &overlaps, prompt_tokens: 10, ..Request::default() };
    assert_eq!(column(Signal::CacheEffectiveOverlapBlocks, &request, no_preparation), [0.0, 6.0, 0.0]);
    assert_eq!(
        column(Signal::CacheEstimatedCachedTokens, &request, no_preparation),
        [0.0, 96.0, 0.0],
        "not clamped to the prompt"
    );
}

#[test]
fn load_prefill_cost_tokens_count_the_prompt_whole_and_cached_tokens_beyond_it() {
    // 96 tokens are cached on worker 2, 16 on worker 3.
    let overlaps = [overlap(2, 4.0, 2.0, 2.0), overlap(3, 1.0, 0.0, 0.0)];
    let prepare = |partition: &Partition| {
        for (worker, load) in [(1, Some(5.0)), (2, Some(7.0)), (3, None)] {
            let load = load.map(|active_prefill_tokens| Load { active_prefill_tokens, ..Load::default() });
            assert!(partition.set_load(WorkerKey::new(worker, 0), load));
        }
    };
    let signal = Signal::LoadPrefillCostTokens;
    let request = Request { overlaps: &overlaps, prompt_tokens: 100, ..Request::default() };
    assert_eq!(column(signal, &request, prepare), [105.0, 107.0, 100.0], "the load of worker 3 is not known");
    assert_eq!(column(signal, &request, no_preparation), [100.0, 100.0, 100.0]);
    let short = Request { prompt_tokens: 40, ..request };
    assert_eq!(column(signal, &short, prepare), [45.0, 103.0, 40.0]);
    let some = Request { allowed: Some(&[2, 3]), ..short };
    assert_eq!(column(signal, &some, prepare), [103.0, 40.0]);
    let overlaps = [overlap(1, 0.0, 0.0, 0.0), overlaps[0], overlaps[1]];
    let all_overlap = Request { overlaps: &overlaps, ..short };
    assert_eq!(column(signal, &all_overlap, prepare), [45.0, 103.0, 40.0]);
}

#[test]
fn cache_shared_beyond_device_and_beyond_effective_blocks() {
    let overlaps = [overlap(2, 4.0, 4.0, 0.0)];
    let request = Request { overlaps: &overlaps, shared: Some(&[(0, 3), (5, 10)]), ..Request::default() };
    assert_eq!(column(Signal::CacheSharedBeyondDeviceBlocks, &request, no_preparation), [8.0, 5.0, 8.0]);
    assert_eq!(column(Signal::CacheSharedBeyondEffectiveBlocks, &request, no_preparation), [8.0, 3.0, 8.0]);
    let without = Request { shared: None, ..request };
    let bits = |signal| column(signal, &without, no_preparation).iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(Signal::CacheSharedBeyondDeviceBlocks), [MISSING; 3]);
    assert_eq!(bits(Signal::CacheSharedBeyondEffectiveBlocks), [MISSING; 3]);
}

/// Books one request of 40 tokens with the blocks 7, 8, 9 on worker 2.
fn book(partition: &Partition) {
    let request = Request { prompt_tokens: 40, block_hashes: &[7, 8, 9], allowed: Some(&[2]), ..Request::default() };
    let decision = partition.decide(&request).unwrap();
    partition.reserve(&request, &decision).unwrap();
}

#[test]
fn load_signals_follow_the_reservations() {
    let request = Request { prompt_tokens: 64, block_hashes: &[7, 8, 10, 11], ..Request::default() };
    assert_eq!(column(Signal::LoadActivePrefillTokens, &request, book), [0.0, 40.0, 0.0]);
    assert_eq!(column(Signal::LoadActiveRequests, &request, book), [0.0, 1.0, 0.0]);
    assert_eq!(column(Signal::LoadDecodeBlocks, &request, book), [0.0, 3.0, 0.0]);
    assert_eq!(column(Signal::LoadAddedBlocks, &request, book), [4.0, 2.0, 4.0], "two blocks are active on worker 2");
    assert_eq!(column(Signal::LoadDecodeCostBlocks, &request, book), [4.0, 5.0, 4.0]);
    assert_eq!(column(Signal::LoadAvailable, &request, book), [1.0, 1.0, 1.0]);
    let unhashed = Request { prompt_tokens: 33, ..Request::default() };
    assert_eq!(column(Signal::LoadAddedBlocks, &unhashed, book), [3.0, 3.0, 3.0]);
}

#[test]
fn an_unknown_load_is_zero_and_says_so() {
    let request = Request { prompt_tokens: 64, ..Request::default() };
    let prepare = |partition: &Partition| {
        let load = Load { active_prefill_tokens: 5.0, decode_blocks: 6.0, active_requests: 7.0 };
        assert!(partition.set_load(WorkerKey::new(1, 0), Some(load)));
        assert!(partition.set_load(WorkerKey::new(2, 0), Some(load)));
        assert!(partition.set_load(WorkerKey::new(2, 0), None));
    };
    assert_eq!(column(Signal::LoadAvailable, &request, prepare), [1.0, 0.0, 1.0]);
    assert_eq!(column(Signal::LoadActivePrefillTokens, &request, prepare), [5.0, 0.0, 0.0]);
    assert_eq!(column(Signal::LoadDecodeBlocks, &request, prepare), [6.0, 0.0, 0.0]);
    assert_eq!(column(Signal::LoadActiveRequests, &request, prepare), [7.0, 0.0, 0.0]);
    assert_eq!(column(Signal::LoadAddedBlocks, &request, prepare), [4.0, 0.0, 4.0]);
    assert_eq!(column(Signal::LoadDecodeCostBlocks, &request, prepare), [10.0, 0.0, 4.0]);
}

#[test]
fn no_column_is_left_of_the_decision_before() {
    let signals: Vec<&str> = Signal::ALL.iter().map(|signal| signal.name()).collect();
    let (few, all) = (reads(&[], &[], &signals[..9]), reads(&[], &[], &signals));
    let sent = || {
        Script::default()
            .keeping(few.clone(), |rows, _| Ok((0..rows).map(|row| row != 1).collect()))
            .picking(all.clone(), |_, _| Ok(0))
    };
    let (overlaps, taints) = ([overlap(1, 4.0, 2.0, 1.0), overlap(3, 1.0, 0.0, 0.0)], [("fast", 0.5)]);
    let plain = Request { prompt_tokens: 64, ..Request::default() };
    let requests = [
        plain,
        Request { overlaps: &overlaps, ..plain },
        Request { preferred_taints: &taints, ..plain },
        Request { allowed: Some(&[1, 3]), ..plain },
        Request { overlaps: &overlaps[1..], allowed: Some(&[1, 2]), ..plain },
        Request { overlaps: &overlaps, preferred_taints: &taints, shared: Some(&[(0, 9)]), ..plain },
    ];
    let load =
        |known: bool| known.then_some(Load { active_prefill_tokens: 5.0, decode_blocks: 6.0, active_requests: 7.0 });
    let script = sent();
    let lasting = partition(&script, workers([1, 2, 3]));
    for turn in 0..300 {
        // Each request after each other one, and the loads known or not.
        let (request, known) = (&requests[(turn + turn / 6 * (turn / 36 + 1)) % 6], turn % 5 < 2);
        let fresh_script = sent();
        let fresh = partition(&fresh_script, workers([1, 2, 3]));
        for partition in [&lasting, &fresh] {
            assert!(partition.set_load(WorkerKey::new(3, 0), load(known)));
            partition.decide(request).unwrap();
        }
        let bits = |script: &Script| -> Vec<Vec<u64>> {
            script.seen().iter().map(|seen| seen.numbers.iter().map(|number| number.to_bits()).collect()).collect()
        };
        assert_eq!(bits(&script), bits(&fresh_script), "turn {turn}: {request:?}");
    }
}

#[test]
fn taint_preferred_multiplier() {
    let signal = Signal::TaintPreferredMultiplier;
    let taint = |partition: &Partition| {
        let taints = vec!["fast".to_owned(), "near".to_owned()];
        partition.upsert_worker(WorkerConfig { taints, ..WorkerConfig::new(2) }).unwrap();
    };
    let request = Request { preferred_taints: &[("fast", 0.5), ("near", 0.25), ("far", 9.0)], ..Request::default() };
    let multipliers = column(signal, &request, taint);
    assert_eq!(multipliers[0], 1.0);
    assert!((multipliers[1] - (-(0.75f64.tanh())).exp()).abs() < 1e-15, "{multipliers:?}");
    assert!(column(signal, &Request::default(), taint).iter().all(|value| value.to_bits() == MISSING));
    let pinned = Request { pinned: Some(WorkerKey::new(2, 0)), ..request };
    assert_eq!(column(signal, &pinned, taint)[0].to_bits(), MISSING);
}

#[test]
fn worker_total_kv_blocks_and_max_num_batched_tokens() {
    let advertise = |partition: &Partition| {
        let config =
            WorkerConfig { total_kv_blocks: Some(1000), max_num_batched_tokens: Some(8192), ..WorkerConfig::new(3) };
        partition.upsert_worker(config).unwrap();
    };
    for (signal, value) in [(Signal::WorkerTotalKvBlocks, 1000.0), (Signal::WorkerMaxNumBatchedTokens, 8192.0)] {
        let column = column(signal, &Request::default(), advertise);
        assert_eq!((column[0].to_bits(), column[2]), (MISSING, value));
    }
}

#[test]
fn an_operators_metric_and_label_are_signals() {
    let script = Script::default().picking(reads(&[], &[], &["metric.queue", "label.zone"]), |_, _| Ok(0));
    let router = pointsman_routing::Router::builder()
        .register("script", pointsman_routing::Provider::native(script.clone()))
        .serve(pointsman_routing::InstanceSpec::new("script"))
        .metric("queue")
        .label("zone")
        .build()
        .unwrap();
    let partition = router.partition(&PartitionKey::default(), BLOCK_SIZE).unwrap();
    partition.upsert_worker(WorkerConfig::new(1)).unwrap();
    let labels = vec![("zone".to_owned(), 3.0)];
    partition.upsert_worker(WorkerConfig { labels, ..WorkerConfig::new(2) }).unwrap();
    assert!(partition.set_metric(WorkerKey::new(1, 0), "queue", 12.0));
    assert!(!partition.set_metric(WorkerKey::new(1, 0), "other", 12.0));
    partition.decide(&Request::default()).unwrap();
    let numbers = &script.seen()[0].numbers;
    assert_eq!((numbers[0], numbers[3]), (12.0, 3.0));
    assert_eq!((numbers[1].to_bits(), numbers[2].to_bits()), (MISSING, MISSING));
}

#[test]
fn any_nan_arrives_as_the_one_missing_value() {
    let odd = f64::from_bits(0xfff8_0000_0000_0001);
    let request = Request { now_ms: odd, priority_jump: odd, router_temperature: Some(odd), ..Request::default() };
    for name in [Fact::NowMs, Fact::PriorityJump, Fact::RouterTemperature] {
        assert_eq!(fact(name, &request), MISSING, "{}", name.name());
    }
    let overlaps = [WorkerOverlap { device_blocks: odd, ..overlap(1, 0.0, 0.0, 0.0) }];
    let request = Request { overlaps: &overlaps, ..Request::default() };
    assert_eq!(column(Signal::CacheDeviceOverlapBlocks, &request, no_preparation)[0].to_bits(), MISSING);
}

#[test]
fn worker_numbers_stay_while_workers_come_and_go() {
    let mut inputs = reads(&[], &[], &[]);
    inputs.workers = true;
    let script = Script::default().picking(inputs, |_, _| Ok(0));
    let partition = partition(&script, workers([5, 9]));
    partition.decide(&Request::default()).unwrap();
    partition.upsert_worker(WorkerConfig::new(1)).unwrap();
    partition.decide(&Request::default()).unwrap();
    let seen: Vec<_> = script.seen().into_iter().map(|seen| seen.workers.unwrap()).collect();
    assert_eq!(seen[1][1..], seen[0], "rows moved, numbers did not");
    assert!(!seen[0].contains(&seen[1][0]));
}

/// Every name has one row in docs/contract.md, and every row there a name here.
#[test]
fn the_document_lists_exactly_the_vocabulary() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/contract.md");
    let document = std::fs::read_to_string(path).unwrap();
    let rows: BTreeSet<&str> = document
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .filter(|name| name.contains('.') && !name.contains('<'))
        .collect();
    let facts = Fact::ALL.iter().map(|fact| fact.name());
    let texts = Text::ALL.iter().map(|text| text.name());
    let names: BTreeSet<&str> = facts.chain(texts).chain(Signal::ALL.iter().map(|signal| signal.name())).collect();
    assert_eq!(rows, names);
}
