//! Pointsman's decisions measured: beside Dynamo's, beside native code, by guest and by thread.
//!
//! `cargo run --profile bench -p pointsman-bench -- decision|crossing|guests|throughput [COUNT]`, in the folder `dynamo`; and
//! `profile-dynamo|profile-native|profile-component [COUNT]` for a profiler.
#![forbid(unsafe_code)]

mod crossing;
mod decision;
mod guests;
mod harness;
mod inputs;
mod profile;
mod raw;
mod throughput;

use std::error::Error;

use profile::Form;

const USAGE: &str = "usage: pointsman-bench decision|crossing|guests|throughput|profile-dynamo|profile-native|profile-component \
    [COUNT]; COUNT is rounds, guests or decisions";

/// The policy for measuring, as a component.
const WEIGHTED_SUM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/weighted-sum.wasm"));

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let (bench, count) = match &arguments[..] {
        [bench] => (bench, None),
        [bench, count] => (bench, Some(count.parse().map_err(|_| USAGE)?)),
        _ => return Err(USAGE.into()),
    };
    match bench.as_str() {
        "decision" => decision::run(count.unwrap_or(decision::ROUNDS)),
        "crossing" => crossing::run(count.unwrap_or(crossing::ROUNDS)),
        "guests" => guests::run(count.unwrap_or(guests::GUESTS)),
        "throughput" => throughput::run(count.unwrap_or(throughput::ROUNDS)),
        "profile-dynamo" => profile::run(Form::Dynamo, count.unwrap_or(profile::DECISIONS)),
        "profile-native" => profile::run(Form::Native, count.unwrap_or(profile::DECISIONS)),
        "profile-component" => profile::run(Form::Component, count.unwrap_or(profile::DECISIONS)),
        _ => Err(USAGE.into()),
    }
}
