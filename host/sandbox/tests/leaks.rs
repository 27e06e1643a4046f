//! Nothing of a guest reaches the next one, and nothing of it stays behind.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod common;

use std::sync::{Arc, Mutex, PoisonError};

use common::{Policy, args, setup, slot};
use pointsman_sandbox::*;

/// Resident memory is the process's: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn sandbox(guests: u32) -> Sandbox {
    Sandbox::new(SandboxConfig { guests, ..SandboxConfig::default() }).unwrap()
}

/// Fuel for a walk over the whole memory.
fn limits(profile: Profile) -> Limits {
    Limits {
        memory_bytes: 128 << 16,
        fuel_base: 1_000_000_000,
        start_fuel: 1_000_000_000,
        deadline_us: 30_000_000,
        ..Limits::of(profile)
    }
}

/// Looks for what others left in its memory, its table and its globals, then leaves something everywhere.
///
/// `describe` traps on a find. `score` answers, for four rows, the words that it finds in the memory that it starts
/// with and in the memory that it grows by, the entries of its table and the globals that are set. Numbers from 16,384
/// on are the call's arguments; from 32,768 on nothing is the policy's own.
fn snoop(number: usize) -> Policy {
    // What one finds in memory that it starts with, the next finds in memory that it grows by.
    let (pages, elements) = [(1, 8), (127, 1_000)][number % 2];
    let core = format!(
        "(global $number i32 (i32.const {number}))
         (global $set (mut i64) (i64.const 0))
         (global $also_set (mut f64) (f64.const 0))
         (table $table {elements} 1024 funcref)
         (elem declare func $leave)
         (func $words (param $at i32) (param $end i32) (result i32) (local $found i32)
           (block $done (loop $next
             (br_if $done (i32.ge_u (local.get $at) (local.get $end)))
             (local.set $found (i32.add (local.get $found) (i64.ne (i64.load (local.get $at)) (i64.const 0))))
             (local.set $at (i32.add (local.get $at) (i32.const 8)))
             (br $next)))
           (local.get $found))
         (func $entries (result i32) (local $at i32) (local $found i32)
           (block $done (loop $next
             (br_if $done (i32.ge_u (local.get $at) (table.size $table)))
             (local.set $found (i32.add (local.get $found)
               (i32.eqz (ref.is_null (table.get $table (local.get $at))))))
             (local.set $at (i32.add (local.get $at) (i32.const 1)))
             (br $next)))
           (local.get $found))
         (func $globals (result i32)
           (i32.add (i64.ne (global.get $set) (i64.const 0)) (f64.ne (global.get $also_set) (f64.const 0))))
         (func $end (result i32) (i32.shl (memory.size) (i32.const 16)))
         (func $start (result i32) (call $words (i32.const 32768) (i32.const {start})))
         (func $grown (result i32)
           (drop (memory.grow (i32.sub (i32.const 128) (memory.size))))
           (call $words (i32.const {start}) (call $end)))
         (func $leave
           (memory.fill (i32.const 32768) (i32.const 0xa5) (i32.sub (call $end) (i32.const 32768)))
           (drop (table.grow $table (ref.null func) (i32.sub (i32.const 1024) (table.size $table))))
           (table.fill $table (i32.const 0) (ref.func $leave) (i32.const 1024))
           (global.set $set (i64.const -1))
           (global.set $also_set (f64.const 5)))",
        start = pages << 16,
    );
    let score = ["start", "grown", "entries", "globals"].iter().zip([0, 8, 16, 24]).map(|(what, offset)| {
        format!("(f64.store offset={offset} (local.get $numbers) (f64.convert_i32_u (call ${what})))")
    });
    Policy {
        memory: ["1 128", "127 128"][number % 2],
        core,
        describe: "
            (if (i32.or (i32.or (call $start) (call $grown)) (i32.or (call $entries) (call $globals)))
              (then (unreachable)))
            (call $leave)
            (i32.const 64)"
            .into(),
        ..Policy::scorer(format!(
            "{} (call $leave) (call $list (local.get $numbers) (local.get $count))",
            score.collect::<String>()
        ))
    }
}

/// One guest at a time and one more while a policy loads: two slots of the pool, both dirty soon.
fn nothing_is_found(profile: Profile) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (sandbox, limits) = (sandbox(1), limits(profile));
    for number in 0..6 {
        let policy = sandbox.load_with(&snoop(number).artifact(), &limits).unwrap_or_else(|error| panic!("{error}"));
        let mut guest = slot(&policy, limits);
        let found = |guest: &mut GuestSlot| guest.score(&args(&[0.0; 4])).unwrap();
        assert_eq!(found(&mut guest), [0.0; 4], "guest {number} found what another left");
        // Its own it finds: so it would have found another's.
        let pages = [1.0, 127.0][number % 2];
        assert_eq!(found(&mut guest), [pages * 8192.0 - 4096.0, (128.0 - pages) * 8192.0, 1024.0, 2.0]);
    }
}

#[test]
fn a_guest_in_a_used_slot_of_the_pool_finds_nothing() {
    nothing_is_found(Profile::Compact);
}

#[test]
fn a_guest_in_memory_of_its_own_finds_nothing() {
    nothing_is_found(Profile::Engine);
}

/// Ends as the first number says; starts as the size of its parameters says.
fn faulty() -> Policy {
    Policy {
        memory: "2",
        configure: "
            (if (i32.ne (i32.load offset=108 (local.get $at)) (i32.const 2)) (then (unreachable)))
            (i32.const 4096)"
            .into(),
        core: "(func $deep (param i64) (call $deep (i64.add (local.get 0) (i64.const 1))))".into(),
        ..Policy::scorer(
            "(memory.fill (i32.const 65536) (i32.const 1) (i32.const 65536))
             (local.set $i (i32.trunc_f64_u (f64.load (local.get $numbers))))
             (block $list (block $memory (block $recursion (block $trap
               (br_table $trap $recursion $memory $list (local.get $i)))
               (unreachable))
               (call $deep (i64.const 0)))
               (drop (memory.grow (i32.const 10000))))
             (call $list (i32.const 8) (i32.const -1))",
        )
    }
}

/// Builds a guest and has it fail, each time in another way.
fn cycle(policy: &Arc<CompiledPolicy>, limits: Limits, number: usize) {
    const FAULTS: [Outcome; 4] = [Outcome::Trap, Outcome::Trap, Outcome::Memory, Outcome::BadAnswer];
    if let Some(expected) = FAULTS.get(number % 6) {
        let mut guest = slot(policy, limits);
        let fault = guest.score(&args(&[(number % 6) as f64])).unwrap_err();
        assert_eq!(fault.outcome, *expected, "{fault}");
    } else if number % 6 == 4 {
        let mut guest = slot(policy, Limits { fuel_base: 100, fuel_per_row: 1, ..limits });
        assert_eq!(guest.score(&args(&[0.0])).unwrap_err().outcome, Outcome::OutOfFuel);
    } else {
        let refused = GuestSlot::new(GuestSetup { parameters: "[0]".into(), ..setup(policy, limits) });
        assert_eq!(refused.unwrap_err().outcome, Outcome::Trap);
    }
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// `POINTSMAN_CYCLES` sets how many; CONTRIBUTING.md has the long run.
fn nothing_stays_behind(profile: Profile) {
    const GUESTS: u32 = 2;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let cycles = std::env::var("POINTSMAN_CYCLES").map_or(20_000, |text| text.parse().unwrap());
    let sandbox = sandbox(GUESTS);
    // A machine that is busy must end none of them in another way.
    let limits = Limits { deadline_us: 60_000_000, ..Limits::of(profile) };
    let policy = sandbox.load_with(&faulty().artifact(), &limits).unwrap();
    (0..cycles / 10).for_each(|number| cycle(&policy, limits, number));
    let before = resident_bytes();
    (0..cycles).for_each(|number| cycle(&policy, limits, number));
    let grown = resident_bytes().saturating_sub(before);
    // Had each of 20,000 cycles left 64 bytes, it would be more.
    assert!(grown < 1 << 20, "{grown} bytes more after {cycles} cycles");
    let guests: Vec<GuestSlot> = (0..GUESTS).map(|_| slot(&policy, limits)).collect();
    let refused = GuestSlot::new(setup(&policy, limits)).unwrap_err();
    assert_eq!(refused.outcome, Outcome::NotLoaded, "{refused}");
    drop(guests);
}

#[test]
fn cycles_of_create_fault_and_drop_leave_nothing_in_the_pool() {
    nothing_stays_behind(Profile::Compact);
}

#[test]
fn cycles_of_create_fault_and_drop_leave_nothing_outside_the_pool() {
    nothing_stays_behind(Profile::Engine);
}
