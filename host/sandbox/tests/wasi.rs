//! What runtimes of other languages import, with nothing granted.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod common;

use common::{Policy, args, sandbox, setup};
use pointsman_sandbox::*;

/// A scorer that imports WASI; `body` leaves a number, the cost of the one row.
#[cfg(feature = "wasi")]
fn answers(body: &str) -> Policy {
    let score = format!("(f64.store (i32.const 8192) {body}) (call $list (i32.const 8192) (i32.const 1))");
    Policy { imports_wasi: true, ..Policy::scorer(score) }
}

#[test]
fn wasi_is_imported_only_where_it_is_granted() {
    let policy = Policy { imports_wasi: true, ..Policy::default() };
    let not_granted = Artifact::from_bytes("mine.wasm", policy.bytes()).trusted();
    let error = sandbox().load(&not_granted, Profile::Compact).unwrap_err();
    assert_eq!(error.step(), LoadStep::Imports);
    let said = error.to_string();
    assert!(said.starts_with("mine.wasm imports wasi:io/error@0.2.6 and 10 more of WASI, which"), "{said}");
    assert!(said.contains("say `wasi: true` where it is configured"), "{said}");
    let granted = sandbox().load(&not_granted.with_wasi(), Profile::Compact);
    if cfg!(feature = "wasi") {
        let imports = granted.unwrap().imports().to_vec();
        let stdout = imports.iter().find(|import| import.name == "wasi:cli/stdout@0.2.6").unwrap();
        assert_eq!(stdout.grants, "writes to the policy's bounded log");
    } else {
        let said = granted.unwrap_err().to_string();
        assert!(said.ends_with("was built without; build it with the cargo feature `wasi`"), "{said}");
    }
}

#[test]
fn the_grant_is_of_wasi_and_of_nothing_else() {
    let http = r#"(import "wasi:http/outgoing-handler@0.2.6" (instance (export "handle" (func))))"#;
    let next = r#"(import "wasi:cli/exit@0.3.0" (instance (export "exit" (func))))"#;
    for before in [http, next] {
        let policy = Policy { before: before.into(), ..Policy::default() };
        let error = sandbox().load(&policy.artifact().with_wasi(), Profile::Compact).unwrap_err();
        assert!(matches!(error, LoadError::Imports { .. }), "{error}");
    }
}

#[cfg(feature = "wasi")]
#[test]
fn the_clocks_show_the_request_s_time() {
    let wall = "(call $wall (i32.const 9000)) (f64.store (i32.const 8192) (f64.add
        (f64.mul (f64.convert_i64_u (i64.load (i32.const 9000))) (f64.const 1e9))
        (f64.convert_i32_u (i32.load (i32.const 9008))))) (call $list (i32.const 8192) (i32.const 1))";
    let wall = Policy { imports_wasi: true, ..Policy::scorer(wall) };
    for policy in [answers("(f64.convert_i64_u (call $now))"), wall] {
        let mut slot = policy.slot(&sandbox(), Limits::default());
        assert_eq!(slot.score(&args(&[0.0])).unwrap(), [0.0]);
        slot.set_now_ms(61_234.5);
        assert_eq!(slot.score(&args(&[0.0])).unwrap(), [61_234.5e6]);
        slot.set_now_ms(f64::NAN);
        assert_eq!(slot.score(&args(&[0.0])).unwrap(), [0.0]);
    }
}

#[cfg(feature = "wasi")]
#[test]
fn nothing_waits() {
    let wait = "(local.set $i (call $later (i64.const 3600000000000))) (call $block (local.get $i))
        (i32.store (i32.const 8200) (local.get $i)) (call $poll (i32.const 8200) (i32.const 1) (i32.const 9000))
        (call $drop (local.get $i))
        (f64.store (i32.const 8192) (f64.convert_i32_u (i32.load (i32.const 9004))))
        (call $list (i32.const 8192) (i32.const 1))";
    let mut slot = Policy { imports_wasi: true, ..Policy::scorer(wait) }.slot(&sandbox(), Limits::default());
    assert_eq!(slot.score(&args(&[0.0])).unwrap(), [1.0], "one of one is ready, at once");
}

#[cfg(feature = "wasi")]
#[test]
fn randomness_grows_from_the_partition_s_seed() {
    let policy = answers("(f64.convert_i64_u (i64.shr_u (call $random) (i64.const 12)))");
    let policy = sandbox().load(&policy.artifact(), Profile::Compact).unwrap();
    let draws = |seed| {
        let mut setup = setup(&policy, Limits::default());
        setup.partition.seed = seed;
        let mut slot = GuestSlot::new(setup).unwrap();
        [(); 4].map(|()| slot.score(&args(&[0.0])).unwrap()[0])
    };
    let first = draws(1);
    assert_eq!(first, draws(1));
    assert_ne!(first, draws(2));
    assert_ne!(first[0], first[1]);
}

#[cfg(feature = "wasi")]
#[test]
fn random_bytes_are_as_many_as_asked_for() {
    let bytes = "(block (result f64) (call $bytes (i64.const 24) (i32.const 9000))
        (f64.convert_i32_u (i32.load (i32.const 9004))))";
    let mut slot = answers(bytes).slot(&sandbox(), Limits::default());
    assert_eq!(slot.score(&args(&[0.0])).unwrap(), [24.0]);
    let mut slot = answers(&bytes.replace("24", "65537")).slot(&sandbox(), Limits::default());
    let fault = slot.score(&args(&[0.0])).unwrap_err();
    assert_eq!(fault.outcome, Outcome::Trap);
    assert!(fault.message.contains("asked for 65537 random bytes at once, and 65536 is the most"), "{fault}");
}

#[cfg(feature = "wasi")]
#[test]
fn there_is_no_environment() {
    let count = "(block (result f64) (i32.store (i32.const 9004) (i32.const 7)) (call $environment (i32.const 9000))
        (f64.convert_i32_u (i32.load (i32.const 9004))))";
    let mut slot = answers(count).slot(&sandbox(), Limits::default());
    assert_eq!(slot.score(&args(&[0.0])).unwrap(), [0.0]);
}

#[cfg(feature = "wasi")]
#[test]
fn what_is_not_granted_ends_the_call_by_its_name() {
    let network = "wasi:sockets/instance-network instance-network, and nothing of it is granted";
    for (call, said) in
        [("(drop (call $network))", network), ("(call $exit (i32.const 0))", "the policy ended itself by exit")]
    {
        let policy = Policy { imports_wasi: true, ..Policy::hostile(call) };
        let mut slot = policy.slot(&sandbox(), Limits::default());
        let fault = slot.score(&args(&[1.0])).unwrap_err();
        assert_eq!(fault.outcome, Outcome::Trap, "{fault}");
        assert!(fault.message.contains(said), "{fault}");
        assert_eq!(slot.score(&args(&[0.0])).unwrap(), [0.0], "the next guest is well");
    }
}

#[cfg(feature = "wasi")]
#[test]
fn a_print_costs_the_same_whether_the_log_has_room_or_none() {
    // Twenty lines, of which the second slot may log none after its first call.
    let print = "(local.set $j (call $stdout)) (local.set $i (i32.const 20)) (loop $again
        (call $write (local.get $j) (i32.const 1024) (i32.const 16) (i32.const 9000))
        (local.set $i (i32.sub (local.get $i) (i32.const 1))) (br_if $again (local.get $i)))
        (call $list (local.get $numbers) (local.get $count))";
    let policy = Policy {
        imports_wasi: true,
        core: r#"(data (i32.const 1024) "a line of prose\n")"#.into(),
        ..Policy::scorer(print)
    };
    let fuel = |log_bytes_per_second| {
        let mut slot = policy.slot(&sandbox(), Limits { log_bytes_per_second, ..Limits::default() });
        [(); 3].map(|()| {
            slot.score(&args(&[0.0])).unwrap();
            slot.fuel_used()
        })
    };
    assert_eq!(fuel(1_000_000), fuel(1));
}
