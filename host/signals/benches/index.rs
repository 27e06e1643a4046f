//! A lookup of overlaps, beside the same lookup in Dynamo's radix tree, over the same blocks.
//!
//! `cargo bench --profile dev -p pointsman-signals --bench index` prints the median of each in nanoseconds, taken in turn.
#![allow(clippy::unwrap_used, reason = "a bench may end by a panic")]

use std::hint::black_box;
use std::time::Instant;

use dynamo_kv_router::RadixTree;
use dynamo_kv_router::protocols::{
    ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheStoreData, KvCacheStoredBlockData,
    LocalBlockHash, RouterEvent, compute_seq_hash_for_block,
};
use pointsman_admission::WorkerKey;
use pointsman_signals::{IndexSettings, PrefixIndex};

const ROUNDS: usize = 201;

fn main() {
    println!("| rows | blocks of the prompt | rows that hold it | index | Dynamo's tree |");
    println!("|---|---|---|---|---|");
    for (rows, blocks, holding) in [(2, 64, 2), (16, 64, 4), (16, 1_024, 4), (64, 1_024, 64), (256, 8_192, 16)] {
        let locals: Vec<LocalBlockHash> = (0..blocks).map(|_| LocalBlockHash(fastrand::u64(..))).collect();
        let hashes = compute_seq_hash_for_block(&locals);
        let (index, mut tree) = (PrefixIndex::new(IndexSettings::default()), RadixTree::new());
        for row in 0..rows {
            // Those that hold the prompt hold less of it each, the others a prompt of their own.
            let own: Vec<LocalBlockHash> = match row < holding {
                true => locals[..locals.len() - locals.len() / 2 * row / holding].to_vec(),
                false => (0..blocks).map(|_| LocalBlockHash(fastrand::u64(..))).collect(),
            };
            let chain = compute_seq_hash_for_block(&own);
            index.routed(WorkerKey::new(row as u64, 0), &chain, 0.0);
            let stored = own.iter().zip(&chain).map(|(local, hash)| KvCacheStoredBlockData {
                block_hash: ExternalSequenceBlockHash(*hash),
                tokens_hash: *local,
                mm_extra_info: None,
            });
            let data = KvCacheStoreData { parent_hash: None, start_position: None, blocks: stored.collect() };
            let event = KvCacheEvent { event_id: 0, data: KvCacheEventData::Stored(data), dp_rank: 0 };
            tree.apply_event(RouterEvent::new(row as u64, event)).unwrap();
        }
        let mut overlaps = Vec::new();
        index.overlaps(&hashes, 0.0, &mut overlaps);
        let found = tree.find_matches(locals.clone(), false);
        for overlap in &overlaps {
            let of_tree = found.scores.iter().find(|(worker, _)| worker.worker_id == overlap.key.worker);
            assert_eq!(of_tree.map(|(_, blocks)| *blocks), Some(overlap.device_blocks));
        }
        assert_eq!(overlaps.len(), found.scores.len());
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let start = Instant::now();
            index.overlaps(black_box(&hashes), 0.0, &mut overlaps);
            ours.push(start.elapsed().as_nanos());
            let query = locals.clone();
            let start = Instant::now();
            black_box(tree.find_matches(black_box(query), false));
            theirs.push(start.elapsed().as_nanos());
        }
        ours.sort_unstable();
        theirs.sort_unstable();
        println!("| {rows} | {blocks} | {holding} | {} | {} |", ours[ROUNDS / 2], theirs[ROUNDS / 2]);
    }
}
