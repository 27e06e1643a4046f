//! Every limit fires at its value and lets pass what is just within it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod common;

use common::{Policy, args, sandbox, setup};
use pointsman_sandbox::*;

/// The limits that a test below, or one beside the code, shows firing and passing.
const TESTED: &[&str] = &[
    "memory_bytes",
    "table_elements",
    "fuel_base",
    "fuel_per_row",
    "deadline_us", // src/sandbox.rs, where a test can tick
    "start_fuel",
    "start_deadline_us", // src/sandbox.rs
    "parameter_bytes",
    "answer_bytes",
    "error_bytes",
    "classify_fuel",        // tests/classifier.rs
    "event_fuel",           // tests/classifier.rs
    "tick_fuel",            // tests/classifier.rs
    "tick_deadline_us",     // src/sandbox.rs
    "log_bytes",            // tests/log.rs
    "log_bytes_per_second", // tests/log.rs; src/log.rs, where a test sets the clock
    "recycle_calls",
];

#[test]
fn every_limit_is_tested() {
    let keys: Vec<&str> = LIMITS.iter().map(|row| row.key).collect();
    assert_eq!(keys, TESTED);
}

#[test]
fn limits_are_set_and_got_by_key() {
    for row in LIMITS {
        assert_eq!(Limits::of(Profile::Compact).get(row.key), Some(row.compact));
        assert_eq!(Limits::of(Profile::Engine).get(row.key), Some(row.engine));
        assert!(row.compact <= row.most && row.engine <= row.most, "{row:?}");
        let mut limits = Limits::default();
        assert!(limits.set(row.key, row.most));
        assert_eq!(limits.get(row.key), Some(row.most));
    }
    assert!(!Limits::default().set("fuel", 1));
    assert_eq!(Limits::default().get("fuel"), None);
    for profile in [Profile::Compact, Profile::Engine] {
        assert_eq!(Profile::from_name(profile.as_str()), Some(profile));
    }
    assert_eq!(Profile::from_name("large"), None);
}

#[test]
fn the_narrower_of_two_limits_holds_key_by_key() {
    for row in LIMITS {
        let (mut mine, mut other) = (Limits::default(), Limits::of(Profile::Engine));
        assert!(mine.set(row.key, 5) && other.set(row.key, 4));
        let (narrowed, kept) = (mine.narrowed_by([(row.key, 4)]), other.narrowed_by([(row.key, 5)]));
        assert_eq!(narrowed.get(row.key), Some(4), "{}", row.key);
        assert_eq!(kept.get(row.key), Some(4), "{}", row.key);
        assert_eq!(narrowed.profile, Profile::Compact);
        assert_eq!(kept.profile, Profile::Engine);
    }
}

/// The outcome of one call with the number 1.
fn outcome(policy: &Policy, limits: Limits) -> Outcome {
    match policy.slot(&sandbox(), limits).score(&args(&[1.0])) {
        Ok(_) => Outcome::Ok,
        Err(fault) => fault.outcome,
    }
}

const PAGE: u64 = 65_536;

#[test]
fn memory_bytes() {
    let policy = Policy::hostile("(drop (memory.grow (i32.const 1)))");
    for profile in [Profile::Compact, Profile::Engine] {
        let limits = |memory_bytes| Limits { memory_bytes, ..Limits::of(profile) };
        assert_eq!(outcome(&policy, limits(2 * PAGE)), Outcome::Ok);
        assert_eq!(outcome(&policy, limits(2 * PAGE - 1)), Outcome::Memory);
    }
}

#[test]
fn memory_bytes_holds_at_the_start_too() {
    let policy = sandbox().load(&Policy { memory: "2", ..Policy::default() }.artifact(), Profile::Compact).unwrap();
    let start = |memory_bytes| GuestSlot::new(setup(&policy, Limits { memory_bytes, ..Limits::default() }));
    assert!(start(2 * PAGE).is_ok());
    assert_eq!(start(2 * PAGE - 1).unwrap_err().outcome, Outcome::Memory);
}

#[test]
fn memory_bytes_may_exceed_a_slot_of_the_pool() {
    let policy = Policy::hostile("(drop (memory.grow (i32.const 511)))");
    let limits = |memory_bytes| Limits { memory_bytes, ..Limits::default() };
    assert_eq!(outcome(&policy, limits(32 << 20)), Outcome::Ok);
    assert_eq!(outcome(&policy, limits((32 << 20) - 1)), Outcome::Memory);
    // What fills a slot exactly still lives in one.
    let policy = Policy::hostile("(drop (memory.grow (i32.const 255)))");
    assert_eq!(outcome(&policy, limits(16 << 20)), Outcome::Ok);
}

#[test]
fn table_elements() {
    let policy = |elements: u64| Policy {
        core: "(table $t 1 funcref)".into(),
        ..Policy::hostile(&format!("(drop (table.grow $t (ref.null func) (i32.const {})))", elements - 1))
    };
    for (limit, profile) in [(1_024, Profile::Compact), (10, Profile::Compact), (8_192, Profile::Engine)] {
        let limits = Limits { table_elements: limit, ..Limits::of(profile) };
        assert_eq!(outcome(&policy(limit), limits), Outcome::Ok);
        assert_eq!(outcome(&policy(limit + 1), limits), Outcome::Memory);
    }
}

/// The fuel of one call with so many rows.
fn fuel_of(rows: usize) -> u64 {
    let mut slot = Policy::default().slot(&sandbox(), Limits::default());
    slot.score(&args(&vec![1.0; rows])).unwrap();
    slot.fuel_used()
}

#[test]
fn fuel_base() {
    let used = fuel_of(1);
    let ends_in = |fuel_base| {
        let limits = Limits { fuel_base, fuel_per_row: 0, ..Limits::default() };
        outcome(&Policy::default(), limits)
    };
    assert_eq!(ends_in(used), Outcome::Ok);
    // Fuel is looked at where functions and loops begin: the few instructions after the last look are free.
    let least = (used - 16..=used).find(|fuel| ends_in(*fuel) == Outcome::Ok).unwrap();
    assert!(least > used - 16, "{least} of {used}");
    assert_eq!(ends_in(least - 1), Outcome::OutOfFuel);
}

#[test]
fn fuel_per_row() {
    let spin = "(local.set $j (i32.mul (local.get $rows) (i32.const 100)))
        (loop $again (local.set $j (i32.sub (local.get $j) (i32.const 1))) (br_if $again (local.get $j)))";
    let policy = Policy::hostile(spin);
    let mut slot = policy.slot(&sandbox(), Limits::default());
    let rows = args(&[1.0; 50]);
    slot.score(&rows).unwrap();
    let per_row = slot.fuel_used().div_ceil(50);
    let ends_in = |fuel_per_row| {
        let limits = Limits { fuel_base: 1, fuel_per_row, ..Limits::default() };
        policy.slot(&sandbox(), limits).score(&rows).map_err(|fault| fault.outcome)
    };
    assert!(ends_in(per_row).is_ok());
    assert_eq!(ends_in(per_row - 1), Err(Outcome::OutOfFuel));
}

#[test]
fn fuel_never_overflows() {
    let limits = Limits { fuel_base: u64::MAX, fuel_per_row: u64::MAX, deadline_us: u64::MAX, ..Limits::default() };
    assert_eq!(outcome(&Policy::default(), limits), Outcome::Ok);
}

/// The least fuel with which a guest starts.
fn least_start_fuel(policy: &Policy) -> u64 {
    let policy = sandbox().load(&policy.artifact(), Profile::Compact).unwrap();
    let start = |start_fuel| GuestSlot::new(setup(&policy, Limits { start_fuel, ..Limits::default() }));
    let (mut fails, mut starts) = (0, Limits::default().start_fuel);
    while starts - fails > 1 {
        let middle = u64::midpoint(fails, starts);
        match start(middle) {
            Ok(_) => starts = middle,
            Err(error) => {
                assert_eq!(error.outcome, Outcome::OutOfFuel);
                fails = middle;
            }
        }
    }
    starts
}

#[test]
fn start_fuel_covers_instantiation_and_configure_together() {
    let spin = "(local $n i32) (local.set $n (i32.const 10000))
        (loop $again (local.set $n (i32.sub (local.get $n) (i32.const 1))) (br_if $again (local.get $n)))";
    let start = format!("(func $start {spin}) (start $start)");
    let configure = format!("{spin} (i32.const 4096)");
    let plain = least_start_fuel(&Policy::default());
    let slow_start = least_start_fuel(&Policy { core: start.clone(), ..Policy::default() });
    let slow_configure = least_start_fuel(&Policy { configure: configure.clone(), ..Policy::default() });
    let both = least_start_fuel(&Policy { core: start, configure, ..Policy::default() });
    assert!(slow_start > plain + 10_000 && slow_configure > plain + 10_000);
    assert_eq!(both - slow_configure, slow_start - plain);
}

#[test]
fn start_fuel_bounds_a_load() {
    let artifact = Policy::default().artifact();
    let load = |start_fuel| sandbox().load_with(&artifact, &Limits { start_fuel, ..Limits::default() });
    assert!(load(100_000).is_ok());
    match load(10).unwrap_err() {
        LoadError::Instantiate { fault, .. } => assert_eq!(fault.outcome, Outcome::OutOfFuel, "{fault}"),
        other => panic!("{other}"),
    }
}

#[test]
fn answer_bytes() {
    let mut rows = args(&[1.0; 100]);
    let ends_in = |rows: &Args, answer_bytes| {
        let mut slot = Policy::whole().slot(&sandbox(), Limits { answer_bytes, ..Limits::default() });
        (slot.score(rows).map_err(|fault| fault.outcome).err(), slot.keep(rows).map_err(|fault| fault.outcome).err())
    };
    assert_eq!(ends_in(&rows, 800), (None, None));
    assert_eq!(ends_in(&rows, 799), (Some(Outcome::BadAnswer), None));
    rows.rows = 800;
    rows.numbers = vec![0.0; 800];
    assert_eq!(ends_in(&rows, 799), (Some(Outcome::BadAnswer), Some(Outcome::BadAnswer)));
    assert_eq!(ends_in(&rows, 800), (Some(Outcome::BadAnswer), None));
}

#[test]
fn answer_bytes_bounds_errors_and_the_start() {
    let error = |answer_bytes| {
        let policy = Policy::hostile("(return (call $error (i32.const 1024) (i32.const 100)))");
        outcome(&policy, Limits { answer_bytes, ..Limits::default() })
    };
    assert_eq!(error(100), Outcome::PolicyError);
    assert_eq!(error(99), Outcome::BadAnswer);
    let artifact = Policy::default().artifact();
    // test, 1.2.3, A test. and {}
    let load = |answer_bytes| sandbox().load_with(&artifact, &Limits { answer_bytes, ..Limits::default() });
    assert!(load(18).is_ok());
    assert!(matches!(load(17), Err(LoadError::Describe { .. })));
}

#[test]
fn the_stack_is_the_engines() {
    // Recurses as often as the number says.
    let policy = Policy {
        core: "(func $deep (param $n i32) (result i32)
            (if (result i32) (local.get $n)
              (then (i32.add (i32.const 1) (call $deep (i32.sub (local.get $n) (i32.const 1)))))
              (else (i32.const 0))))"
            .into(),
        ..Policy::hostile("(drop (call $deep (i32.trunc_f64_u (f64.load (local.get $numbers)))))")
    };
    let deepest = |limits| {
        let mut slot = policy.slot(&sandbox(), Limits { fuel_base: 100_000_000, ..limits });
        let mut depth = 1;
        while slot.score(&args(&[f64::from(depth)])).is_ok() {
            depth *= 2;
        }
        assert!(slot.score(&args(&[1.0])).is_ok());
        depth
    };
    let compact = deepest(Limits::default());
    assert!(compact > 1_000, "{compact}");
    assert_eq!(deepest(Limits::of(Profile::Engine)), 4 * compact, "1 MiB after 256 KiB");
}

#[test]
fn parameter_bytes() {
    let policy = sandbox().load(&Policy::default().artifact(), Profile::Compact).unwrap();
    let start = |parameter_bytes| {
        let limits = Limits { parameter_bytes, ..Limits::default() };
        GuestSlot::new(GuestSetup { parameters: r#"{"x":1}"#.into(), ..setup(&policy, limits) })
    };
    assert!(start(7).is_ok());
    let refused = start(6).unwrap_err();
    assert_eq!(refused.outcome, Outcome::NotLoaded);
    assert_eq!(refused.message, "the parameters have 7 bytes and parameter_bytes is 6; shorten them");
}

#[test]
fn error_bytes() {
    let error = "(return (call $error (i32.const 1024) (i32.const 12)))";
    let call = |error_bytes| {
        let mut slot = Policy::hostile(error).slot(&sandbox(), Limits { error_bytes, ..Limits::default() });
        let fault = slot.score(&args(&[1.0])).unwrap_err();
        assert_eq!(fault.outcome, Outcome::PolicyError);
        assert!(slot.is_live(), "an error keeps the guest, however long it is");
        fault.message
    };
    assert_eq!(call(12), "no such luck");
    assert_eq!(call(11), "no such luc…");
    let policy = Policy { configure: error.into(), ..Policy::default() }.artifact();
    let policy = sandbox().load(&policy, Profile::Compact).unwrap();
    let start = |error_bytes| {
        let refused = GuestSlot::new(setup(&policy, Limits { error_bytes, ..Limits::default() })).unwrap_err();
        assert_eq!(refused.outcome, Outcome::PolicyError);
        refused.message
    };
    assert_eq!(start(12), "no such luck");
    assert_eq!(start(11), "no such luc…");
}

#[test]
fn recycle_calls() {
    // Answers how often it was called.
    let counter = Policy {
        core: "(global $calls (mut f64) (f64.const 0))".into(),
        ..Policy::scorer(
            "(global.set $calls (f64.add (global.get $calls) (f64.const 1)))
             (f64.store (local.get $numbers) (global.get $calls))
             (call $list (local.get $numbers) (local.get $count))",
        )
    };
    let mut slot = counter.slot(&sandbox(), Limits { recycle_calls: 3, ..Limits::default() });
    let calls: Vec<f64> = (0..7).map(|_| slot.score(&args(&[0.0])).unwrap()[0]).collect();
    assert_eq!(calls, [1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 1.0]);
    assert_eq!((slot.recycled(), slot.replaced()), (2, 0));
}

#[test]
fn a_classifier_is_never_recycled_since_it_alone_knows_what_it_deferred() {
    let policy = Policy::classifier(common::Classifier::default());
    let mut slot = policy.slot(&sandbox(), Limits { recycle_calls: 1, ..Limits::default() });
    for ticket in 0..3 {
        assert_eq!(slot.classify(ticket, &Args::default()).unwrap(), None);
    }
    assert_eq!((slot.recycled(), slot.replaced()), (0, 0));
}
