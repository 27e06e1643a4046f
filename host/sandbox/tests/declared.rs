//! What a policy declares for itself narrows its limits and never widens them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod common;

use common::{Policy, args, sandbox, setup, slot};
use pointsman_sandbox::*;

const PAGE: u64 = 65_536;

fn section(text: &str) -> String {
    format!("(@custom \"pointsman:limits\" {text:?})")
}

/// Grows by one page where the number is 1.
fn declaring(text: &str) -> Policy {
    Policy { after: section(text), ..Policy::hostile("(drop (memory.grow (i32.const 1)))") }
}

/// How a guest that is granted so much memory, and declares as much as the text says, comes by its second page.
fn grows(granted: u64, text: &str) -> Outcome {
    let mut slot = declaring(text).slot(&sandbox(), Limits { memory_bytes: granted, ..Limits::default() });
    slot.score(&args(&[1.0])).map_or_else(|fault| fault.outcome, |_| Outcome::Ok)
}

#[test]
fn the_narrower_limit_holds() {
    assert_eq!(grows(2 * PAGE, ""), Outcome::Ok);
    assert_eq!(grows(2 * PAGE, "memory_bytes: 131072"), Outcome::Ok);
    assert_eq!(grows(2 * PAGE, "memory_bytes: 131071"), Outcome::Memory);
    // More than is granted, and more than could be.
    assert_eq!(grows(2 * PAGE - 1, "memory_bytes: 131072"), Outcome::Memory);
    assert_eq!(grows(2 * PAGE - 1, "memory_bytes: 18446744073709551615"), Outcome::Memory);
}

#[test]
fn what_is_declared_is_told_and_what_holds_too() {
    let policy = declaring("memory_bytes: 65536\nfuel_base: 5000000000\n");
    let policy = sandbox().load(&policy.artifact(), Profile::Compact).unwrap();
    let declared: Vec<_> = policy.declared_limits().iter().collect();
    assert_eq!(declared, [("memory_bytes", 65_536), ("fuel_base", 5_000_000_000)]);
    let expected = Limits { memory_bytes: PAGE, ..Limits::default() };
    assert_eq!(slot(&policy, Limits::default()).setup().limits, expected);
    let plain = sandbox().load(&Policy::default().artifact(), Profile::Compact).unwrap();
    assert!(plain.declared_limits().is_empty());
}

#[test]
fn a_load_is_held_to_what_is_declared() {
    let refused = sandbox().load(&declaring("start_fuel: 1").artifact(), Profile::Compact).unwrap_err();
    match refused {
        LoadError::Instantiate { fault, .. } => assert_eq!(fault.outcome, Outcome::OutOfFuel),
        other => panic!("{other}"),
    }
}

#[test]
fn a_declaration_that_cannot_be_read_refuses_the_load() {
    let refused = |policy: Policy| match sandbox().load(&policy.artifact(), Profile::Compact).unwrap_err() {
        error @ LoadError::Limits { .. } => error.to_string(),
        other => panic!("{other}"),
    };
    let said = refused(declaring("memory: 1"));
    let start = "test.wasm cannot be loaded: its section pointsman:limits names `memory`, which is no limit; ";
    assert!(said.starts_with(start) && said.contains("memory_bytes, table_elements"), "{said}");
    assert!(refused(declaring("memory_bytes: much")).contains("gives memory_bytes the value `much`"));
    let twice = Policy { before: section("log_bytes: 1"), ..declaring("log_bytes: 1") };
    assert!(refused(twice).ends_with("its section pointsman:limits is there twice; write one"));
    assert!(refused(declaring(&"log_bytes: 1\n".repeat(400))).contains("has 5200 bytes and may have 4096"));
}

#[test]
fn an_inner_module_declares_nothing() {
    let policy = Policy { core: section("nonsense"), ..Policy::default() };
    let policy = sandbox().load(&policy.artifact(), Profile::Compact).unwrap();
    assert!(policy.declared_limits().is_empty());
    assert!(GuestSlot::new(setup(&policy, Limits::default())).is_ok());
}
