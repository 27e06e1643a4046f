//! What a well-behaved policy gets, and what its host gets back.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod common;

use common::{Policy, args, sandbox, setup, slot};
use pointsman_contract::{Inputs, Reads, Role, Selection, Stages};
use pointsman_sandbox::*;

#[test]
fn every_stage_answers() {
    let sandbox = sandbox();
    let policy = sandbox.load(&Policy::whole().artifact(), Profile::Compact).unwrap();
    assert_eq!(policy.stages(), Stages { filter: true, score: true, pick: true, select: true, classify: false });
    assert_eq!((policy.wit_version(), policy.imports(), policy.origin()), ("0.1.0", &[][..], "test.wasm"));
    let manifest = policy.manifest();
    assert_eq!(
        (&*manifest.name, &*manifest.version, &*manifest.description, &*manifest.parameters_schema),
        ("test", "1.2.3", "A test.", "{}")
    );
    let mut slot = slot(&policy, Limits::default());
    let args = args(&[3.0, 1.0, 2.0]);
    assert_eq!(slot.keep(&args).unwrap(), [true; 3]);
    assert_eq!(slot.score(&args).unwrap(), [3.0, 1.0, 2.0]);
    assert_eq!(slot.pick(&args).unwrap(), 0);
    assert_eq!(slot.select(&args).unwrap(), Some(Selection { row: 2, cost: 3.0 }));
    assert!(slot.fuel_used() > 0);
    assert_eq!(slot.replaced(), 0);
}

#[test]
fn a_selection_may_be_none() {
    let none = "(i64.store (i32.const 160) (i64.const 0)) (i64.store (i32.const 168) (i64.const 0)) (i32.const 160)";
    let policy = Policy { select: Some(none.into()), ..Policy::default() };
    assert_eq!(policy.slot(&sandbox(), Limits::default()).select(&args(&[1.0])).unwrap(), None);
}

#[test]
fn arguments_arrive_as_the_contract_lays_them_out() {
    // Costs: the last worker, the length of the first text, its first letter, whether the second text is there.
    let body = "
        (if (i32.eqz (local.get $has_workers)) (then (return (call $list (local.get $numbers) (local.get $has_texts)))))
        (f64.store (i32.const 8192) (f64.convert_i32_u (i32.load (i32.add (local.get $workers)
          (i32.mul (i32.const 4) (i32.sub (local.get $workers_len) (i32.const 1)))))))
        (f64.store (i32.const 8200) (f64.convert_i32_u (i32.load offset=8 (local.get $texts))))
        (f64.store (i32.const 8208) (f64.convert_i32_u (i32.load8_u (i32.load offset=4 (local.get $texts)))))
        (f64.store (i32.const 8216) (f64.convert_i32_u (i32.load8_u offset=12 (local.get $texts))))
        (call $list (i32.const 8192) (i32.const 4))";
    let mut slot = Policy::scorer(body).slot(&sandbox(), Limits::default());
    let args = Args {
        rows: 4,
        numbers: vec![0.0; 4],
        workers: Some(vec![4, 5, 6, 4_000_000_000]),
        texts: Some(vec![Some("session".to_owned()), None]),
    };
    assert_eq!(slot.score(&args).unwrap(), [4e9, 7.0, f64::from(b's'), 0.0]);
    let without = Args { workers: None, texts: None, ..args };
    assert_eq!(slot.score(&without).unwrap_err().message, "score answered 0 costs for 4 rows");
}

#[test]
fn configure_gets_the_partition_the_settings_and_the_parameters() {
    let configure = "
        (if (i32.ne (i32.load8_u offset=16 (local.get $at)) (i32.const 2)) (then unreachable))
        (if (i32.ne (i32.load offset=20 (local.get $at)) (i32.const 16)) (then unreachable))
        (if (i32.ne (i32.load offset=24 (local.get $at)) (i32.const 7)) (then unreachable))
        (if (i32.ne (i32.load8_u (i32.load (local.get $at))) (i32.const 0x6c)) (then unreachable))
        (if (i32.ne (i32.load offset=12 (local.get $at)) (i32.const 4)) (then unreachable))
        (if (f64.ne (f64.load offset=32 (local.get $at)) (f64.const 1)) (then unreachable))
        (if (f64.ne (f64.load offset=64 (local.get $at)) (f64.const 0.75)) (then unreachable))
        (if (f64.ne (f64.load offset=88 (local.get $at)) (f64.const 0)) (then unreachable))
        (if (i32.ne (i32.load8_u offset=96 (local.get $at)) (i32.const 1)) (then unreachable))
        (call $error (i32.load offset=104 (local.get $at)) (i32.load offset=108 (local.get $at)))";
    let policy = Policy { configure: configure.into(), ..Policy::default() };
    let policy = sandbox().load(&policy.artifact(), Profile::Compact).unwrap();
    let mut setup = setup(&policy, Limits::default());
    setup.router_config.conditional_disaggregation = true;
    setup.parameters = r#"{"weight": 2}"#.into();
    assert_eq!(setup.partition.role, Role::Decode);
    let error = GuestSlot::new(setup).unwrap_err();
    assert_eq!((error.outcome, &*error.message), (Outcome::PolicyError, r#"{"weight": 2}"#));
}

#[test]
fn inputs_are_what_configure_answered() {
    let core = r#"(data (i32.const 4132) "\01")
        (data (i32.const 4136) "\00\12\00\00\01\00\00\00" "\00\00\00\00\00\00\00\00" "\08\12\00\00\02\00\00\00" "\01")
        (data (i32.const 4196) "\01")
        (data (i32.const 4200) "\01\00\00\00" "\18\12\00\00\01\00\00\00")
        (data (i32.const 4232) "\01\00\00\00\fa\00\00\00")
        (data (i32.const 4632) "\00\14\00\00\04\00\00\00")
        (data (i32.const 4608) "\00\14\00\00\05\00\00\00" "\05\14\00\00\04\00\00\00" "\09\14\00\00\03\00\00\00")
        (data (i32.const 5120) "factsig1sig")"#;
    let slot = Policy { core: core.into(), ..Policy::default() }.slot(&sandbox(), Limits::default());
    let score = Reads {
        facts: vec!["facts".into()],
        texts: vec![],
        signals: vec!["ig1s".into(), "ig\0".into()],
        workers: true,
    };
    let classify = Some(Reads { facts: vec!["fact".into()], ..Reads::default() });
    let inputs =
        Inputs { score: Some(score), exclusive_affinity: true, classify, tick_ms: Some(250), ..Inputs::default() };
    assert_eq!(slot.inputs(), &inputs);
}

/// Answers how often it was called before; traps on a negative number.
const COUNTER: &str = "
    (if (f64.lt (f64.load (local.get $numbers)) (f64.const 0)) (then unreachable))
    (f64.store (i32.const 8192) (f64.load (i32.const 8200)))
    (f64.store (i32.const 8200) (f64.add (f64.load (i32.const 8200)) (f64.const 1)))
    (call $list (i32.const 8192) (i32.const 1))";

#[test]
fn state_lasts_until_the_guest_is_replaced() {
    let mut slot = Policy::scorer(COUNTER).slot(&sandbox(), Limits::default());
    let mut count = |number| slot.score(&args(&[number])).map(|costs| costs[0]);
    assert_eq!((count(0.0), count(0.0)), (Ok(0.0), Ok(1.0)));
    assert_eq!(count(-1.0).unwrap_err().outcome, Outcome::Trap);
    assert_eq!(count(0.0), Ok(0.0));
    assert_eq!(slot.replaced(), 1);
    slot.rebuild().unwrap();
    assert_eq!(slot.score(&args(&[0.0])).unwrap(), [0.0]);
    assert_eq!(slot.replaced(), 2);
}

#[test]
fn the_same_calls_use_the_same_fuel() {
    let sandbox = sandbox();
    let policy = sandbox.load(&Policy::whole().artifact(), Profile::Compact).unwrap();
    let fuel = |limits| {
        let mut slot = slot(&policy, limits);
        let mut fuel = Vec::new();
        for rows in [1, 2, 64, 2] {
            slot.score(&args(&vec![1.0; rows])).unwrap();
            fuel.push(slot.fuel_used());
            slot.select(&args(&vec![1.0; rows])).unwrap();
            fuel.push(slot.fuel_used());
        }
        fuel
    };
    let first = fuel(Limits::default());
    for _ in 0..100 {
        assert_eq!(fuel(Limits::default()), first);
    }
    assert_eq!(fuel(Limits::of(Profile::Engine)), first, "the engine makes no difference");
}

#[test]
fn both_settings_of_determinism_answer_the_same() {
    for determinism in [Determinism::Fast, Determinism::Portable] {
        let sandbox = Sandbox::new(SandboxConfig { guests: 1, determinism, ..SandboxConfig::default() }).unwrap();
        let mut slot = Policy::default().slot(&sandbox, Limits::default());
        assert_eq!(slot.score(&args(&[0.1, -0.0])).unwrap(), [0.1, -0.0]);
    }
}

/// 0 divided by what is 0, with its sign turned: its bits are the machine's, or canonical.
#[test]
fn a_computed_nan_has_canonical_bits_where_results_are_portable() {
    let body = "(f64.store (i32.const 8192)
          (f64.neg (f64.div (f64.load (local.get $numbers)) (f64.load (local.get $numbers)))))
        (f64.store (i32.const 8192) (f64.add (f64.load (i32.const 8192)) (f64.const 1)))
        (call $list (i32.const 8192) (i32.const 1))";
    let config = SandboxConfig { guests: 1, determinism: Determinism::Portable, ..SandboxConfig::default() };
    let sandbox = Sandbox::new(config).unwrap();
    let mut slot = Policy::scorer(body).slot(&sandbox, Limits::default());
    let costs = slot.score(&args(&[0.0])).unwrap();
    assert_eq!(costs[0].to_bits(), 0x7ff8_0000_0000_0000);
}

#[test]
fn a_stage_that_is_not_exported_cannot_be_called() {
    let mut slot = Policy::default().slot(&sandbox(), Limits::default());
    let fault = slot.pick(&args(&[1.0])).unwrap_err();
    assert_eq!(fault.outcome, Outcome::NotLoaded);
    assert!(fault.message.contains("pick"), "{fault}");
    assert!(slot.score(&args(&[1.0])).is_ok());
}

#[test]
fn a_full_sandbox_says_what_to_raise() {
    let sandbox = Sandbox::new(SandboxConfig { guests: 2, ..SandboxConfig::default() }).unwrap();
    let policy = sandbox.load(&Policy::default().artifact(), Profile::Compact).unwrap();
    let first = slot(&policy, Limits::default());
    let mut second = slot(&policy, Limits::of(Profile::Engine));
    let full = GuestSlot::new(setup(&policy, Limits::default())).unwrap_err();
    assert_eq!(full.outcome, Outcome::NotLoaded);
    assert!(full.message.contains("sandbox.guests") && full.message.contains("all 2 places"), "{full}");
    // A full sandbox still loads, and still replaces its own guests.
    sandbox.load(&Policy::default().artifact(), Profile::Compact).unwrap();
    second.rebuild().unwrap();
    drop(first);
    let mut third = slot(&policy, Limits::default());
    third.rebuild().unwrap();
}

#[test]
fn a_pool_is_used_to_its_last_place() {
    let sandbox = Sandbox::new(SandboxConfig { guests: 3, ..SandboxConfig::default() }).unwrap();
    let policy = sandbox.load(&Policy::default().artifact(), Profile::Compact).unwrap();
    let mut slots: Vec<_> = (0..3).map(|_| slot(&policy, Limits::default())).collect();
    for slot in &mut slots {
        slot.rebuild().unwrap();
        assert_eq!(slot.score(&args(&[5.0])).unwrap(), [5.0]);
    }
    sandbox.load(&Policy::default().artifact(), Profile::Compact).unwrap();
}

/// Number 1: fills all memory. Number 0: counts the bytes that are not 0, but for the arguments' and the data's.
#[test]
fn memory_is_zero_when_a_place_is_used_again() {
    let body = "
        (drop (memory.grow (i32.const 63)))
        (if (f64.eq (f64.load (local.get $numbers)) (f64.const 1)) (then
          (memory.fill (i32.const 2048) (i32.const 0xaa) (i32.const 14336))
          (memory.fill (i32.const 32768) (i32.const 0xaa) (i32.const 4161536))
          unreachable))
        (local.set $i (i32.const 2048))
        (loop $next
          (if (i64.ne (i64.load (local.get $i)) (i64.const 0)) (then
            (local.set $j (i32.add (local.get $j) (i32.const 1)))))
          (local.set $i (i32.add (local.get $i) (i32.const 8)))
          (if (i32.eq (local.get $i) (i32.const 16384)) (then (local.set $i (i32.const 32768))))
          (br_if $next (i32.lt_u (local.get $i) (i32.const 4194304))))
        (f64.store (i32.const 16384) (f64.convert_i32_u (local.get $j)))
        (call $list (i32.const 16384) (i32.const 1))";
    let limits = Limits { fuel_base: 100_000_000, deadline_us: 10_000_000, ..Limits::default() };
    for limits in [limits, Limits { profile: Profile::Engine, ..limits }] {
        let sandbox = Sandbox::new(SandboxConfig { guests: 1, ..SandboxConfig::default() }).unwrap();
        let mut slot = Policy::scorer(body).slot(&sandbox, limits);
        for _ in 0..4 {
            assert_eq!(slot.score(&args(&[1.0])).unwrap_err().outcome, Outcome::Trap);
            assert_eq!(slot.score(&args(&[0.0])).unwrap(), [0.0]);
        }
    }
}

#[test]
fn a_policy_outlives_the_handle_that_loaded_it_and_guests_may_move_between_threads() {
    let policy = sandbox().load(&Policy::default().artifact(), Profile::Compact).unwrap();
    let mut slot = slot(&policy, Limits::default());
    drop(policy);
    let answered = std::thread::spawn(move || slot.score(&args(&[1.0]))).join().unwrap();
    assert_eq!(answered.unwrap(), [1.0]);
}

#[test]
fn one_policy_serves_limits_of_both_engines() {
    let policy = sandbox().load(&Policy::default().artifact(), Profile::Compact).unwrap();
    for limits in [
        Limits::default(),
        Limits { memory_bytes: 20 << 20, ..Limits::default() },
        Limits { table_elements: 2_000, ..Limits::default() },
        Limits::of(Profile::Engine),
    ] {
        assert_eq!(slot(&policy, limits).score(&args(&[1.0])).unwrap(), [1.0]);
    }
}
