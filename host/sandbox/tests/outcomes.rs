//! Hostile and broken guests: each ends in its outcome, and the next call of the same slot is a normal one.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod common;

use common::{Policy, SPIN, args, sandbox, setup};
use pointsman_sandbox::*;

/// The scorer runs its code when the number is 1.
fn ends_in(outcome: Outcome, policy: &Policy, limits: Limits) -> Fault {
    let mut slot = policy.slot(&sandbox(), limits);
    assert_eq!(slot.score(&args(&[0.0])).unwrap(), [0.0], "a normal call first");
    let fault = slot.score(&args(&[1.0])).unwrap_err();
    assert_eq!(fault.outcome, outcome, "{fault}");
    assert!(!fault.message.contains('\n'), "one sentence: {fault}");
    assert_eq!(slot.replaced(), 0, "the next guest is built when it is needed");
    assert_eq!(slot.score(&args(&[0.0])).unwrap(), [0.0], "a normal call afterwards");
    assert_eq!(slot.replaced(), 1);
    fault
}

fn hostile(outcome: Outcome, body: &str) -> Fault {
    ends_in(outcome, &Policy::hostile(body), Limits::default())
}

/// With further core definitions.
fn hostile_with(outcome: Outcome, core: &str, body: &str) -> Fault {
    ends_in(outcome, &Policy { core: core.into(), ..Policy::hostile(body) }, Limits::default())
}

#[test]
fn an_endless_loop_runs_out_of_fuel() {
    let fault = hostile(Outcome::OutOfFuel, SPIN);
    assert_eq!(fault.message, "score used up its fuel of 1001000 (fuel_base + fuel_per_row x rows)");
}

#[test]
fn nested_loops_run_out_of_fuel() {
    let body =
        "(loop $a (loop $b (loop $c (br_if $c (i32.const 1))) (br_if $b (i32.const 1))) (br_if $a (i32.const 1)))";
    hostile(Outcome::OutOfFuel, body);
}

#[test]
fn bulk_operations_are_paid_by_the_byte() {
    let fill = "(loop $again (memory.fill (i32.const 32768) (i32.const 1) (i32.const 32768)) (br $again))";
    hostile(Outcome::OutOfFuel, fill);
    let whole = "(memory.fill (i32.const 0) (i32.const 1) (i32.const 8388608))";
    ends_in(Outcome::OutOfFuel, &Policy { memory: "128", ..Policy::hostile(whole) }, Limits::default());
}

#[test]
fn a_loop_with_fuel_to_spare_meets_its_deadline() {
    let limits = Limits { fuel_base: 1_000_000_000_000, deadline_us: 2_000, ..Limits::default() };
    let fault = ends_in(Outcome::Deadline, &Policy::hostile(SPIN), limits);
    assert_eq!(fault.message, "score ran past its deadline of 2000 us (deadline_us)");
}

#[test]
fn memory_beyond_the_limit_ends_the_call() {
    let fault = hostile(Outcome::Memory, "(drop (memory.grow (i32.const 128)))");
    assert!(fault.message.contains("8454144 bytes") && fault.message.contains("memory_bytes is 8388608"), "{fault}");
    hostile(Outcome::Memory, "(loop $more (drop (memory.grow (i32.const 1))) (br $more))");
    hostile(Outcome::Memory, "(drop (memory.grow (i32.const 65535)))");
    hostile(Outcome::Memory, "(drop (memory.grow (i32.const -1)))");
}

#[test]
fn a_table_beyond_the_limit_ends_the_call() {
    let table = "(table $t 1 funcref)";
    let fault = hostile_with(Outcome::Memory, table, "(drop (table.grow $t (ref.null func) (i32.const 1024)))");
    assert!(fault.message.contains("1025 elements") && fault.message.contains("table_elements is 1024"), "{fault}");
    hostile_with(
        Outcome::Memory,
        table,
        "(loop $more (drop (table.grow $t (ref.null func) (i32.const 1))) (br $more))",
    );
    // What exceeds the fuel is not even tried: growing a table is paid by the element.
    hostile_with(Outcome::OutOfFuel, table, "(drop (table.grow $t (ref.null func) (i32.const -1)))");
}

#[test]
fn a_growth_beyond_the_guests_own_maximum_is_an_answer_and_no_fault() {
    let policy = Policy {
        memory: "1 2",
        ..Policy::scorer(
            "
        (f64.store (i32.const 8192) (f64.convert_i32_s (memory.grow (i32.const 2))))
        (f64.store (i32.const 8200) (f64.convert_i32_s (memory.grow (i32.const 1))))
        (call $list (i32.const 8192) (i32.const 2))",
        )
    };
    let mut slot = policy.slot(&sandbox(), Limits::default());
    assert_eq!(slot.score(&args(&[1.0, 1.0])).unwrap(), [-1.0, 1.0]);
}

#[test]
fn traps_are_traps() {
    let fault = hostile(Outcome::Trap, "unreachable");
    assert_eq!(fault.message, "score failed: wasm trap: wasm `unreachable` instruction executed");
    hostile(Outcome::Trap, "(drop (i32.div_u (i32.const 1) (i32.const 0)))");
    hostile(Outcome::Trap, "(drop (i32.load (i32.const -4)))");
    hostile(Outcome::Trap, "(drop (i32.trunc_f64_s (f64.const nan)))");
    hostile_with(Outcome::Trap, "(table $t 1 funcref) (type $f (func))", "(call_indirect (type $f) (i32.const 0))");
}

#[test]
fn deep_recursion_is_a_trap() {
    hostile_with(Outcome::Trap, "(func $deep (call $deep))", "(call $deep)");
}

#[test]
fn answers_that_cannot_be_read_are_bad_answers() {
    for body in [
        // A list beyond the end of memory, by its address, its length and both.
        "(return (call $list (i32.const 65536) (i32.const 1)))",
        "(return (call $list (i32.const 0) (i32.const 8193)))",
        "(return (call $list (i32.const -8) (i32.const -1)))",
        // A list of numbers that is not aligned.
        "(return (call $list (i32.const 4) (i32.const 1)))",
        // An answer beyond memory, and one that is not aligned.
        "(return (i32.const 65535))",
        "(return (i32.const 130))",
        // Neither an answer nor an error.
        "(return (call $answer (i32.const 2) (i32.const 0) (i32.const 0)))",
        // An error that is not Unicode, and one beyond memory.
        "(i32.store (i32.const 8192) (i32.const 0xffff)) (return (call $error (i32.const 8192) (i32.const 2)))",
        "(return (call $error (i32.const 0) (i32.const -1)))",
    ] {
        hostile(Outcome::BadAnswer, body);
    }
}

#[test]
fn a_selection_that_is_neither_some_nor_none_is_a_bad_answer() {
    let select = "(drop (call $chosen (i32.const 0) (f64.const 1)))
        (i32.store (i32.const 168) (i32.const 2)) (i32.const 160)";
    let mut slot = Policy { select: Some(select.into()), ..Policy::default() }.slot(&sandbox(), Limits::default());
    assert_eq!(slot.select(&args(&[0.0])).unwrap_err().outcome, Outcome::BadAnswer);
    assert!(slot.score(&args(&[0.0])).is_ok());
}

#[test]
fn a_huge_answer_is_a_bad_answer() {
    let policy = Policy { memory: "64", ..Policy::hostile("(return (call $list (i32.const 0) (i32.const 200000)))") };
    ends_in(Outcome::BadAnswer, &policy, Limits::default());
}

#[test]
fn a_broken_allocator_harms_its_own_call_alone() {
    let realloc = |body: &str| Policy {
        // The number 1 comes as a list of one number; the arguments of 13 rows come first.
        realloc: format!(
            "(if (i32.eq (local.get $size) (i32.const 104)) (then {body}))
             (call $bump (local.get $align) (local.get $size))"
        ),
        ..Policy::default()
    };
    for (outcome, body) in [
        (Outcome::Trap, "unreachable"),
        (Outcome::OutOfFuel, SPIN),
        (Outcome::BadAnswer, "(return (i32.const 65536))"),
        (Outcome::BadAnswer, "(return (i32.const -1))"),
        (Outcome::BadAnswer, "(return (i32.const 3))"),
        (Outcome::Memory, "(drop (memory.grow (i32.const 1000)))"),
    ] {
        let mut slot = realloc(body).slot(&sandbox(), Limits::default());
        assert_eq!(slot.score(&args(&[0.0; 13])).unwrap_err().outcome, outcome, "{body}");
        assert_eq!(slot.score(&args(&[0.0; 12])).unwrap(), [0.0; 12]);
    }
}

#[test]
fn a_trap_after_the_answer_counts_too() {
    let flag = "(global $broken (mut i32) (i32.const 0))";
    for (outcome, body) in [(Outcome::Trap, "unreachable".to_owned()), (Outcome::OutOfFuel, SPIN.to_owned())] {
        let policy = Policy {
            core: flag.into(),
            post_return: format!("(if (global.get $broken) (then {body})) (global.set $top (i32.const 16384))"),
            ..Policy::hostile("(global.set $broken (i32.const 1))")
        };
        ends_in(outcome, &policy, Limits::default());
    }
}

#[test]
fn a_wrong_number_of_answers_is_a_bad_answer_of_a_sound_guest() {
    let policy = Policy {
        keep: Some("(call $list (i32.const 8192) (i32.const 1))".into()),
        ..Policy::hostile("(return (call $list (local.get $numbers) (i32.sub (local.get $count) (i32.const 1))))")
    };
    let mut slot = policy.slot(&sandbox(), Limits::default());
    let fault = slot.score(&args(&[1.0, 2.0, 3.0, 4.0])).unwrap_err();
    assert_eq!((fault.outcome, &*fault.message), (Outcome::BadAnswer, "score answered 3 costs for 4 rows"));
    let fault = slot.keep(&args(&[1.0, 2.0])).unwrap_err();
    assert_eq!((fault.outcome, &*fault.message), (Outcome::BadAnswer, "keep answered 1 answers for 2 rows"));
    assert_eq!(slot.keep(&args(&[1.0])).unwrap(), [false]);
    assert_eq!(slot.score(&args(&[0.0, 2.0])).unwrap(), [0.0, 2.0]);
    assert_eq!(slot.replaced(), 0);
}

#[test]
fn what_routing_checks_passes_through() {
    let policy = Policy {
        keep: Some(
            "(i32.store (i32.const 8192) (i32.const 0xff0100)) (call $list (i32.const 8192) (i32.const 3))".into(),
        ),
        pick: Some("(call $row (i32.const -1))".into()),
        select: Some("(call $chosen (i32.const 9) (f64.const nan))".into()),
        ..Policy::default()
    };
    let mut slot = policy.slot(&sandbox(), Limits::default());
    let args = args(&[f64::NAN, f64::INFINITY, -0.0]);
    let costs = slot.score(&args).unwrap();
    assert!(costs[0].is_nan() && costs[1] == f64::INFINITY && costs[2].is_sign_negative());
    assert_eq!(slot.pick(&args).unwrap(), u32::MAX);
    let chosen = slot.select(&args).unwrap().unwrap();
    assert!(chosen.row == 9 && chosen.cost.is_nan());
    assert_eq!(slot.keep(&args).unwrap(), [false, true, true], "any byte but 0 is true");
}

#[test]
fn an_error_of_the_policy_keeps_its_guest() {
    let mut slot =
        Policy::hostile("(return (call $error (i32.const 1024) (i32.const 12)))").slot(&sandbox(), Limits::default());
    let fault = slot.score(&args(&[1.0])).unwrap_err();
    assert_eq!((fault.outcome, &*fault.message), (Outcome::PolicyError, "no such luck"));
    assert!(slot.score(&args(&[0.0])).is_ok());
    assert_eq!(slot.replaced(), 0);
}

/// Found by fuzzing: the operator was told nothing at all.
#[test]
fn an_error_without_a_sentence_is_given_one() {
    for blank in ["(call $error (i32.const 0) (i32.const 0))", "(call $error (i32.const 32) (i32.const 4))"] {
        let core = r#"(data (i32.const 32) " \0a\09 ")"#;
        let policy = Policy { core: core.into(), ..Policy::scorer(blank) };
        let fault = policy.slot(&sandbox(), Limits::default()).score(&args(&[1.0])).unwrap_err();
        assert_eq!(fault.to_string(), "policy-error: score answered an error without a sentence");
    }
    let refused =
        start_error(&Policy { configure: "(call $error (i32.const 0) (i32.const 0))".into(), ..Policy::default() });
    assert_eq!(refused.message, "configure answered an error without a sentence");
}

#[test]
fn an_error_of_the_policy_is_one_line_of_bounded_length() {
    let body = "(memory.fill (i32.const 20000) (i32.const 10) (i32.const 20000))
        (return (call $error (i32.const 20000) (i32.const 20000)))";
    let mut slot = Policy::hostile(body).slot(&sandbox(), Limits::default());
    let fault = slot.score(&args(&[1.0])).unwrap_err();
    assert_eq!(fault.outcome, Outcome::PolicyError);
    assert!(fault.message.len() < 600 && !fault.message.contains('\n'), "{fault}");
}

fn start_error(policy: &Policy) -> StartError {
    let policy = sandbox().load(&policy.artifact(), Profile::Compact).unwrap();
    GuestSlot::new(setup(&policy, Limits::default())).unwrap_err()
}

#[test]
fn a_start_that_fails_says_how() {
    let configure = |body: &str| Policy { configure: body.into(), ..Policy::default() };
    for (outcome, body) in [
        (Outcome::Trap, "unreachable"),
        (Outcome::OutOfFuel, SPIN),
        (Outcome::Memory, "(drop (memory.grow (i32.const 1000))) (i32.const 4096)"),
        (Outcome::BadAnswer, "(i32.const 65535)"),
        (Outcome::BadAnswer, "(call $answer (i32.const 9) (i32.const 0) (i32.const 0))"),
        (Outcome::PolicyError, "(call $error (i32.const 1024) (i32.const 12))"),
    ] {
        assert_eq!(start_error(&configure(body)).outcome, outcome, "{body}");
    }
    assert_eq!(start_error(&configure("(call $error (i32.const 1024) (i32.const 12))")).message, "no such luck");
    let fuel = start_error(&configure(SPIN)).message;
    assert_eq!(fuel, "configure used up its fuel of 10000000 (start_fuel)");
}

#[test]
fn one_guests_end_does_not_touch_another() {
    let sandbox = sandbox();
    let policy = sandbox.load(&Policy::hostile(SPIN).artifact(), Profile::Compact).unwrap();
    let [mut first, mut second] = [(); 2].map(|()| GuestSlot::new(setup(&policy, Limits::default())).unwrap());
    second.score(&args(&[0.0])).unwrap();
    let fuel = second.fuel_used();
    for _ in 0..3 {
        assert_eq!(first.score(&args(&[1.0])).unwrap_err().outcome, Outcome::OutOfFuel);
        second.score(&args(&[0.0])).unwrap();
        assert_eq!((second.fuel_used(), second.replaced()), (fuel, 0));
    }
}
