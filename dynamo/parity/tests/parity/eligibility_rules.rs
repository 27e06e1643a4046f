//! The host's own rules, which no policy sees: one test for each, on both sides.

use pointsman_parity::{Ask, Busy, Case, Refusal, Worker};
use pointsman_routing::{Affinity, WorkerKey};

use crate::kit::{ask, assert_exclusive_rows, assert_refused, assert_rows, case, worker};

/// Workers 1, of ranks 2 to 4 and taint `gpu`, 2 without taints, and 3 of taints `gpu` and `big`.
fn partition() -> Case {
    let three = Worker { start_rank: 2, ranks: vec![Some(Busy::default()); 3], taints: vec!["gpu"], ..worker(1) };
    case([three, worker(2), Worker { taints: vec!["gpu", "big"], ..worker(3) }])
}

fn overloaded(mut case: Case, ids: &[u64]) -> Case {
    case.workers.iter_mut().filter(|worker| ids.contains(&worker.id)).for_each(|worker| worker.overloaded = true);
    case
}

fn pin(worker: u64, rank: u32) -> Ask {
    Ask { pin: Some(WorkerKey::new(worker, rank)), ..ask() }
}

fn target(worker: u64, rank: Option<u32>) -> Ask {
    Ask { affinity: Some(Affinity { worker, rank, hard: false }), ..ask() }
}

#[test]
fn without_rules_every_rank_of_every_worker_may_serve() {
    assert_rows(&partition(), &ask(), &[(1, 2), (1, 3), (1, 4), (2, 0), (3, 0)]);
}

#[test]
fn an_empty_partition_has_no_endpoints() {
    assert_refused(&case([]), &ask(), &Refusal::NoEndpoints);
}

#[test]
fn an_allow_list_leaves_its_workers_alone() {
    assert_rows(&partition(), &Ask { allowed: Some(vec![3, 2, 99]), ..ask() }, &[(2, 0), (3, 0)]);
    assert_refused(&partition(), &Ask { allowed: Some(vec![99]), ..ask() }, &Refusal::NoEndpoints);
    assert_refused(&partition(), &Ask { allowed: Some(Vec::new()), ..ask() }, &Refusal::NoEndpoints);
}

#[test]
fn overloaded_workers_are_skipped_with_all_their_ranks() {
    assert_rows(&overloaded(partition(), &[1]), &ask(), &[(2, 0), (3, 0)]);
}

#[test]
fn overload_is_named_only_where_it_alone_is_the_reason() {
    assert_refused(&overloaded(partition(), &[1, 2, 3]), &ask(), &Refusal::Overloaded);
    let one = overloaded(partition(), &[1]);
    assert_refused(&one, &Ask { allowed: Some(vec![1]), ..ask() }, &Refusal::Overloaded);
    let tainted = Ask { allowed: Some(vec![1]), required_taints: vec!["big"], ..ask() };
    assert_refused(&one, &tainted, &Refusal::NoEndpoints);
}

#[test]
fn availability_is_a_list_of_those_let_in_and_binding_though_it_be_empty() {
    assert_rows(&partition(), &Ask { available: Some(vec![3]), ..ask() }, &[(3, 0)]);
    assert_refused(&partition(), &Ask { available: Some(Vec::new()), ..ask() }, &Refusal::NoEndpoints);
}

#[test]
fn availability_goes_before_overload_for_affinity_targets_and_pins() {
    let one = overloaded(partition(), &[3]);
    let gone = Ask { available: Some(vec![1, 2]), ..target(3, None) };
    assert_exclusive_rows(&one, &gone, &[(1, 2), (1, 3), (1, 4), (2, 0)]);
    assert_refused(&one, &Ask { available: Some(vec![1, 2]), ..pin(3, 0) }, &Refusal::NoEndpoints);
}

#[test]
fn every_required_taint_must_be_on_the_worker() {
    assert_rows(&partition(), &Ask { required_taints: vec!["gpu"], ..ask() }, &[(1, 2), (1, 3), (1, 4), (3, 0)]);
    assert_rows(&partition(), &Ask { required_taints: vec!["gpu", "big"], ..ask() }, &[(3, 0)]);
    assert_refused(&partition(), &Ask { required_taints: vec!["absent"], ..ask() }, &Refusal::NoEndpoints);
}

#[test]
fn the_rules_narrow_together() {
    let request = Ask { allowed: Some(vec![1, 2]), available: Some(vec![1, 3]), required_taints: vec!["gpu"], ..ask() };
    assert_rows(&partition(), &request, &[(1, 2), (1, 3), (1, 4)]);
    assert_refused(&overloaded(partition(), &[1]), &request, &Refusal::Overloaded);
}

#[test]
fn a_pin_is_exactly_its_row() {
    assert_rows(&partition(), &pin(1, 3), &[(1, 3)]);
}

#[test]
fn a_pin_outside_the_ranks_of_its_worker_has_no_endpoints() {
    for (worker, rank) in [(1, 1), (1, 5), (2, 1), (9, 0)] {
        assert_refused(&partition(), &pin(worker, rank), &Refusal::NoEndpoints);
    }
}

#[test]
fn a_pin_that_the_caller_does_not_allow_is_named_before_anything_else() {
    let pinned = Ask { allowed: Some(vec![1]), required_taints: vec!["absent"], ..pin(2, 7) };
    assert_refused(&overloaded(partition(), &[2]), &pinned, &Refusal::PinNotAllowed(2));
}

#[test]
fn a_pins_overload_is_named_after_availability_and_taints() {
    let one = overloaded(partition(), &[2]);
    assert_refused(&one, &pin(2, 0), &Refusal::PinOverloaded(2));
    assert_refused(&one, &Ask { required_taints: vec!["gpu"], ..pin(2, 0) }, &Refusal::NoEndpoints);
    assert_refused(&one, &Ask { available: Some(vec![1]), ..pin(2, 0) }, &Refusal::NoEndpoints);
}

#[test]
fn an_exclusive_target_leaves_its_rank_or_all_ranks_of_its_worker() {
    assert_exclusive_rows(&partition(), &target(1, None), &[(1, 2), (1, 3), (1, 4)]);
    assert_exclusive_rows(&partition(), &target(1, Some(3)), &[(1, 3)]);
}

#[test]
fn an_exclusive_target_that_may_not_serve_is_ignored() {
    let all = [(1, 2), (1, 3), (1, 4), (2, 0), (3, 0)];
    assert_exclusive_rows(&partition(), &target(1, Some(0)), &all);
    assert_exclusive_rows(&partition(), &target(9, None), &all);
    assert_exclusive_rows(&overloaded(partition(), &[1]), &target(1, None), &[(2, 0), (3, 0)]);
    let elsewhere = Ask { allowed: Some(vec![2]), ..target(1, None) };
    assert_exclusive_rows(&partition(), &elsewhere, &[(2, 0)]);
}

#[test]
fn a_target_is_advice_to_a_policy_that_did_not_ask_for_it_alone() {
    assert_rows(&partition(), &target(2, None), &[(1, 2), (1, 3), (1, 4), (2, 0), (3, 0)]);
}

#[test]
fn a_hard_target_with_a_rank_is_a_pin() {
    let hard = |worker, rank| Ask { affinity: Some(Affinity { worker, rank: Some(rank), hard: true }), ..ask() };
    assert_rows(&partition(), &hard(1, 4), &[(1, 4)]);
    assert_refused(&partition(), &hard(1, 5), &Refusal::NoEndpoints);
    assert_refused(&overloaded(partition(), &[3]), &hard(3, 0), &Refusal::PinOverloaded(3));
}
