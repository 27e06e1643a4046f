//! The program runs to its end, and both policies spread three requests as they should.
#![allow(clippy::unwrap_used, reason = "a test may end by a panic")]

use std::process::Command;

#[test]
fn both_policies_decide_and_every_reservation_is_given_back() {
    let output = Command::new(env!("CARGO_BIN_EXE_embed")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    // The cost model takes the worker with the cached prefix first; then each has its own load.
    let workers: Vec<&str> =
        text.lines().filter_map(|line| line.split_once(": worker ")?.1.split(' ').next()).collect();
    assert_eq!(workers[0], "20", "{text}");
    assert_eq!(workers[3..], ["10", "20", "30"], "{text}");
    assert_eq!(text.matches("decode_blocks: 0.0").count(), 2, "{text}");
    assert_eq!(text.matches(", ok").count(), 6, "{text}");
}
