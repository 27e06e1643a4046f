//! The guests of one tenant share its account: places, memory and log.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod common;

use std::sync::Arc;

use common::{Policy, args, sandbox, setup};
use pointsman_sandbox::*;

const PAGE: u64 = 65_536;

/// A scorer that grows by one page at the number 1 and traps at 2.
fn policy() -> Arc<CompiledPolicy> {
    let body = "(if (f64.eq (f64.load (local.get $numbers)) (f64.const 2)) (then unreachable))
        (drop (memory.grow (i32.const 1)))";
    sandbox().load(&Policy::hostile(body).artifact(), Profile::Compact).unwrap()
}

fn start_with(policy: &Arc<CompiledPolicy>, account: &Arc<Account>, limits: Limits) -> Result<GuestSlot, StartError> {
    GuestSlot::new(GuestSetup { account: Some(Arc::clone(account)), ..setup(policy, limits) })
}

fn start(policy: &Arc<CompiledPolicy>, account: &Arc<Account>) -> Result<GuestSlot, StartError> {
    start_with(policy, account, Limits::default())
}

/// Guests, and their memory in pages.
fn held(account: &Account) -> (u64, u64) {
    let Usage { guests, resident_bytes, .. } = account.usage();
    assert_eq!(resident_bytes % PAGE, 0);
    (guests, resident_bytes / PAGE)
}

#[test]
fn guests_are_counted_and_bounded() {
    let (policy, account) = (policy(), Account::new(Quotas { guests: 2, ..Quotas::UNLIMITED }));
    let first = start(&policy, &account).unwrap();
    let _second = start(&policy, &account).unwrap();
    assert_eq!(held(&account), (2, 2));
    let refused = start(&policy, &account).unwrap_err();
    assert_eq!(refused.outcome, Outcome::OverQuota);
    assert_eq!(refused.message, OverQuota::Guests(2).to_string());
    assert!(GuestSlot::new(setup(&policy, Limits::default())).is_ok(), "others notice nothing");
    drop(first);
    assert_eq!(held(&account), (1, 1));
    assert!(start(&policy, &account).is_ok());
}

#[test]
fn memory_is_shared_and_what_ends_gives_it_back() {
    let (policy, account) = (policy(), Account::new(Quotas { resident_bytes: 3 * PAGE, ..Quotas::UNLIMITED }));
    let mut first = start(&policy, &account).unwrap();
    let mut second = start(&policy, &account).unwrap();
    assert!(first.score(&args(&[1.0])).is_ok());
    assert_eq!(held(&account), (2, 3));

    let fault = second.score(&args(&[1.0])).unwrap_err();
    let over = OverQuota::Resident { asked: 4 * PAGE, quota: 3 * PAGE };
    assert_eq!((fault.outcome, fault.message), (Outcome::OverQuota, over.to_string()));
    assert_eq!(held(&account), (2, 2), "the guest that asked for too much is gone, its place is kept");
    assert!(first.score(&args(&[0.0])).is_ok());
    assert!(second.score(&args(&[0.0])).is_ok());
    assert_eq!(held(&account), (2, 3));

    assert_eq!(first.score(&args(&[2.0])).unwrap_err().outcome, Outcome::Trap);
    assert_eq!(held(&account), (2, 1));
    drop(first);
    drop(second);
    assert_eq!(held(&account), (0, 0));
}

#[test]
fn a_recycled_guest_gives_back_what_it_held() {
    let (policy, account) = (policy(), Account::new(Quotas::UNLIMITED));
    let mut slot = start_with(&policy, &account, Limits { recycle_calls: 2, ..Limits::default() }).unwrap();
    let mut pages = || {
        slot.score(&args(&[1.0])).unwrap();
        held(&account).1
    };
    assert_eq!([pages(), pages(), pages(), pages(), pages()], [2, 3, 2, 3, 2]);
}

#[test]
fn a_start_that_fails_leaves_nothing_behind() {
    let configure = |body: &str| {
        let policy = Policy { configure: body.into(), ..Policy::default() };
        sandbox().load(&policy.artifact(), Profile::Compact).unwrap()
    };
    let account = Account::new(Quotas { resident_bytes: 10 * PAGE, ..Quotas::UNLIMITED });
    for (outcome, body) in [
        (Outcome::Trap, "(drop (memory.grow (i32.const 3))) unreachable"),
        (Outcome::PolicyError, "(call $error (i32.const 1024) (i32.const 12))"),
        (Outcome::OverQuota, "(drop (memory.grow (i32.const 10))) (i32.const 4096)"),
        // The guest's own limit comes first.
        (Outcome::Memory, "(drop (memory.grow (i32.const 1000))) (i32.const 4096)"),
    ] {
        assert_eq!(start(&configure(body), &account).unwrap_err().outcome, outcome, "{body}");
        assert_eq!(held(&account), (0, 0), "{body}");
    }
    account.set_quotas(Quotas { resident_bytes: PAGE - 1, ..Quotas::UNLIMITED });
    assert_eq!(start(&policy(), &account).unwrap_err().outcome, Outcome::OverQuota);
    assert_eq!(held(&account), (0, 0));
}

#[test]
fn a_growth_that_fails_costs_nothing() {
    let policy = Policy { memory: "1 2", ..Policy::hostile("(drop (memory.grow (i32.const 2)))") };
    let policy = sandbox().load(&policy.artifact(), Profile::Compact).unwrap();
    let account = Account::new(Quotas::UNLIMITED);
    let mut slot = start(&policy, &account).unwrap();
    assert!(slot.score(&args(&[1.0])).is_ok());
    assert_eq!(held(&account), (1, 1));
}

#[test]
fn the_log_is_shared() {
    let body = "(call $log (i32.const 2) (i32.const 1024) (i32.const 12))";
    let policy = Policy { imports_log: true, ..Policy::hostile(body) };
    let policy = sandbox().load(&policy.artifact(), Profile::Compact).unwrap();
    let account = Account::new(Quotas { log_bytes_per_second: 24, ..Quotas::UNLIMITED });
    let mut guests = [(); 2].map(|()| start(&policy, &account).unwrap());
    let mut call = || guests.iter_mut().for_each(|guest| assert!(guest.score(&args(&[1.0])).is_ok()));
    call();
    assert_eq!(account.usage().log_bytes, 24);
    (0..100).for_each(|_| call());
    let logged = account.usage().log_bytes;
    assert!(logged.is_multiple_of(12) && logged < 1_200, "messages are dropped whole: {logged}");
    account.set_quotas(Quotas::UNLIMITED);
    call();
    assert_eq!(account.usage().log_bytes, logged + 24);
}
