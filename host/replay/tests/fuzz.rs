//! A short run of every fuzz target: its seeds, and mutations of them that are the same in every run. The long run is
//! `cargo fuzz`; see CONTRIBUTING.md.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "../../../fuzz/src/lib.rs"]
#[allow(unreachable_pub, reason = "a crate of its own elsewhere")]
mod targets;

use std::path::{Path, PathBuf};

#[allow(unused_imports, reason = "the policies of the tests find these at the root of their crate")]
use pointsman_sandbox::*;

fn seeds(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

/// Runs a target over its seeds and so many mutations, times `POINTSMAN_FUZZ` where that is set.
fn smoke(target: &str, run: impl Fn(&[u8]), mutations: usize) {
    let seeds: Vec<Vec<u8>> = seeds(target).into_iter().map(|(_, bytes)| bytes).collect();
    assert!(seeds.len() >= 3, "{target} has {} seeds", seeds.len());
    let times = std::env::var("POINTSMAN_FUZZ").map_or(1, |times| times.parse().unwrap());
    let mut rng = fastrand::Rng::with_seed(7);
    let mutated = |rng: &mut fastrand::Rng| {
        let mut bytes = rng.choice(&seeds).unwrap().clone();
        for _ in 0..rng.usize(1..6) {
            mutate(&mut bytes, &seeds, rng);
        }
        bytes
    };
    for input in seeds.iter().cloned().chain((0..mutations * times).map(|_| mutated(&mut rng))) {
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&input)));
        assert!(ended.is_ok(), "{target}, the input as Rust writes it: b\"{}\"", input.escape_ascii());
    }
}

/// One change of the kind that finds faults in readers.
fn mutate(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], rng: &mut fastrand::Rng) {
    const TELLING: [&[u8]; 8] =
        [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\x80", b"1e999", b"-1", b"\x1b[31m", b"\xe2\x80\xae", b"\n"];
    let at = rng.usize(..=bytes.len());
    let end = (at + rng.usize(..16)).min(bytes.len());
    match rng.u8(..6) {
        0 if at < bytes.len() => bytes[at] ^= 1 << rng.u8(..8),
        1 if at < bytes.len() => bytes[at] = rng.u8(..),
        2 => _ = bytes.drain(at..end),
        3 => _ = bytes.splice(at..end, rng.choice(TELLING).unwrap().iter().copied()),
        4 => {
            let other = rng.choice(seeds).unwrap();
            let from = rng.usize(..=other.len());
            _ = bytes.splice(at..end, other[from..(from + 64).min(other.len())].iter().copied());
        }
        _ => bytes.truncate(at),
    }
}

#[test]
fn load_gate() {
    smoke("load_gate", targets::load_gate::run, 100);
}

#[test]
fn config() {
    smoke("config", targets::config::run, 3_000);
}

#[test]
fn traces() {
    smoke("traces", targets::traces::run, 10_000);
}

#[test]
fn answers() {
    smoke("answers", targets::answers::run, 10_000);
}

/// Seeds that all ended early would lead a fuzzer nowhere: each is named after its end.
#[test]
fn the_seeds_of_answers_end_as_they_are_named() {
    for (path, bytes) in seeds("answers") {
        let ending = targets::answers::ending(&bytes).unwrap();
        assert_eq!(path.extension().unwrap(), ending, "{}", path.display());
    }
}
