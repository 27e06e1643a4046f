//! What is fuzzed: one module a target, each with a function `run` that takes any bytes. A panic in it is a finding.
//!
//! `cargo fuzz` runs them for as long as one likes; `host/replay/tests/fuzz.rs` runs them over the seeds and some
//! mutations of them in every build.

pub mod answers;
pub mod config;
pub mod load_gate;
pub mod traces;

#[path = "../../host/sandbox/tests/common/mod.rs"]
mod common;

#[allow(unused_imports, reason = "the policies of the tests find these at the root of their crate")]
use pointsman_sandbox::*;

/// What is told to a person is one line of bounded length.
fn check_sentence(text: &str) {
    assert!(!text.is_empty() && text.len() < 8_192, "{} bytes: {:.200}", text.len(), text);
    let obeyed = |char: char| char.is_control() || matches!(char, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    assert!(!text.contains(obeyed), "{text:?}");
}
