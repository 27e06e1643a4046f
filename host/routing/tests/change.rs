//! What a policy that fails or changes may do to requests: the breaker, the previous version, change without a restart
//! and tenants, with components in the sandbox.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;
#[path = "../../sandbox/tests/common/mod.rs"]
mod component;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Script, reads, workers};
use component::{Policy, SPIN};
use pointsman_routing::config::{PolicyConfig, Problems};
use pointsman_routing::{
    BreakerState, DecideError, Decision, Partition, PartitionKey, Provider, Request, Role, Router, RouterError,
};
use pointsman_sandbox::*;

/// A policy that picks as `pick` says; `(local.get $rows)` is at hand.
fn picker(pick: &str) -> Policy {
    Policy { score: None, pick: Some(format!("(call $row {pick})")), ..Policy::default() }
}

/// Picks row 0.
fn first() -> Policy {
    picker("(i32.const 0)")
}

/// Picks the last row.
fn last() -> Policy {
    picker("(i32.sub (local.get $rows) (i32.const 1))")
}

/// Picks row 0, and traps over five rows.
fn traps_at_five() -> Policy {
    let pick = "(if (i32.eq (local.get $rows) (i32.const 5)) (then unreachable)) (call $row (i32.const 0))";
    Policy { score: None, pick: Some(pick.into()), ..Policy::default() }
}

/// Keeps every row, and traps over five; picks the last row.
fn filter_traps_at_five() -> Policy {
    let keep = format!("(if (i32.eq (local.get $rows) (i32.const 5)) (then unreachable)) {}", component::KEEP_ALL);
    Policy { keep: Some(keep), ..last() }
}

/// Picks the rows in turn, from row 0 on.
fn in_turn() -> Policy {
    let pick = "(global.set $next (i32.add (global.get $next) (i32.const 1)))
        (call $row (i32.rem_u (i32.sub (global.get $next) (i32.const 1)) (local.get $rows)))";
    Policy {
        score: None,
        pick: Some(pick.into()),
        core: "(global $next (mut i32) (i32.const 0))".into(),
        ..Policy::default()
    }
}

fn config(yaml: &str) -> PolicyConfig {
    parse(yaml).unwrap_or_else(|problems| panic!("{problems}"))
}

fn parse(yaml: &str) -> Result<PolicyConfig, Problems> {
    PolicyConfig::parse("policy.yaml", Path::new("."), yaml)
}

/// A router of that configuration that knows the policies above.
fn router(yaml: &str) -> Router {
    let policies = [
        ("first", first()),
        ("last", last()),
        ("traps", traps_at_five()),
        ("filter-traps", filter_traps_at_five()),
        ("in-turn", in_turn()),
        ("spins", picker(&format!("(block (result i32) {SPIN})"))),
    ];
    let builder = policies.iter().fold(Router::builder(), |builder, (name, policy)| {
        builder.register(name, Provider::component(policy.artifact()))
    });
    builder.policy_config(config(yaml)).build().unwrap()
}

/// A file that selects one instance for every aggregated pool.
fn selecting(policy_type: &str, more: &str) -> String {
    format!("worker_selection:\n  aggregated: it\n  instances:\n    - {{name: it, type: {policy_type}{more}}}\n")
}

fn partition(router: &Router, group: &str, rows: u64) -> Arc<Partition> {
    let key = PartitionKey { routing_group: group.to_owned(), ..PartitionKey::default() };
    let partition = router.partition(&key, 16).unwrap();
    workers(0..rows).for_each(|worker| partition.upsert_worker(worker).unwrap());
    partition
}

fn at(now_ms: f64) -> Request<'static> {
    Request { now_ms, ..Request::default() }
}

fn outcome(decided: &Result<Decision, DecideError>) -> Outcome {
    match decided {
        Ok(decision) => decision.outcome,
        Err(error) => error.outcome().unwrap(),
    }
}

#[test]
fn a_policy_that_fails_again_and_again_is_kept_out_and_comes_back_when_it_is_well() {
    let router = router(&selecting("traps", ""));
    let partition = partition(&router, "default", 5);
    let state = || router.versions()[0].artifacts[0].breaker;
    for _ in 0..5 {
        assert_eq!(partition.decide(&at(0.0)).unwrap().outcome, Outcome::Trap);
    }
    assert_eq!(state(), BreakerState::Open);
    let kept_out = partition.decide(&at(999.0)).unwrap();
    assert_eq!((kept_out.outcome, kept_out.fallback), (Outcome::Quarantined, true));
    assert_eq!(partition.counts().guests_replaced, 4, "what is not called is not rebuilt");
    // A probe that fails keeps it out for twice as long.
    assert_eq!(partition.decide(&at(1_000.0)).unwrap().outcome, Outcome::Trap);
    assert_eq!(partition.decide(&at(2_999.0)).unwrap().outcome, Outcome::Quarantined);
    assert!(partition.remove_worker(4));
    for _ in 0..3 {
        assert_eq!(partition.decide(&at(3_000.0)).unwrap().outcome, Outcome::Ok);
    }
    assert_eq!((state(), router.versions()[0].artifacts[0].quarantines), (BreakerState::Closed, 2));
}

#[test]
fn a_breaker_holds_for_the_artifact_in_every_partition_and_for_no_other_artifact() {
    let yaml = "worker_selection:\n  aggregated: it\n  partitions: [{routing_group: well, aggregated: well}]\n  \
                instances: [{name: it, type: traps}, {name: well, type: last}]\n";
    let router = router(yaml);
    let [one, other, well] = ["one", "other", "well"].map(|group| partition(&router, group, 5));
    (0..5).for_each(|_| drop(one.decide(&at(0.0))));
    assert_eq!(other.decide(&at(1.0)).unwrap().outcome, Outcome::Quarantined);
    let decision = well.decide(&at(1.0)).unwrap();
    assert_eq!((decision.outcome, decision.row), (Outcome::Ok, 4));
}

#[test]
fn a_filter_that_is_kept_out_refuses_unless_its_instance_says_otherwise() {
    for (on_fault, refused) in [("", true), (", on_fault: {filter: fallback}", false)] {
        let partition = partition(&router(&selecting("filter-traps", on_fault)), "default", 5);
        let before: Vec<_> = (0..3).map(|_| partition.decide(&at(0.0))).collect();
        assert!(before.iter().all(|decided| outcome(decided) == Outcome::Trap && decided.is_err() == refused));
        // Each of those asked the filter twice.
        let decided = partition.decide(&at(1.0));
        assert_eq!((outcome(&decided), decided.is_err()), (Outcome::Quarantined, refused), "{decided:?}");
    }
}

#[test]
fn a_breaker_is_set_in_the_file() {
    let yaml = format!("sandbox:\n  breaker: {{faults: 1, quarantine_ms: 7}}\n{}", selecting("traps", ""));
    let partition = partition(&router(&yaml), "default", 5);
    assert_eq!(partition.decide(&at(0.0)).unwrap().outcome, Outcome::Trap);
    assert_eq!(partition.decide(&at(6.0)).unwrap().outcome, Outcome::Quarantined);
    assert_eq!(partition.decide(&at(7.0)).unwrap().outcome, Outcome::Trap);
    let yaml = "sandbox:\n  breaker: {quarantine_ms: 9, most_quarantine_ms: 8, faults: 1001}\n";
    let problems = parse(yaml).unwrap_err().to_string();
    assert!(problems.contains("`quarantine_ms` is more than") && problems.contains("breaker.faults"), "{problems}");
}

#[test]
fn the_previous_version_decides_where_the_instance_says_so() {
    let router = router(&selecting("last", ""));
    let partition = partition(&router, "default", 5);
    let bad = config(&selecting("traps", ", on_fault: last-good"));
    router.activate(router.load(bad).unwrap(), 10.0).unwrap();
    let decision = partition.decide(&at(20.0)).unwrap();
    assert_eq!((decision.outcome, decision.fallback, decision.row), (Outcome::Trap, false, 4));
    assert_eq!((partition.counts().last_good, partition.counts().fallbacks), (1, 0));
}

#[test]
fn without_a_previous_version_the_default_decides() {
    let partition = partition(&router(&selecting("traps", ", on_fault: last-good")), "default", 5);
    let decision = partition.decide(&at(0.0)).unwrap();
    assert_eq!((decision.outcome, decision.fallback), (Outcome::Trap, true));
}

#[test]
fn a_change_takes_over_at_once_and_a_roll_back_brings_the_guests_back_as_they_were() {
    let router = router(&selecting("in-turn", ""));
    let partition = partition(&router, "default", 4);
    let row = || partition.decide(&at(0.0)).unwrap().row;
    assert_eq!([row(), row()], [0, 1]);
    assert_eq!(router.roll_back(1.0).unwrap_err(), RouterError::NoEarlierVersion);
    let loaded = router.load(config(&selecting("last", ""))).unwrap();
    assert_eq!(row(), 2, "nothing changes before it is activated");
    let activation = router.activate(loaded, 5.0).unwrap();
    assert_eq!((activation.generation, &activation.changed[..]), (2, &[PartitionKey::default()][..]));
    assert_eq!([row(), row()], [3, 3]);
    assert_eq!(router.roll_back(9.0).unwrap().generation, 3);
    assert_eq!(row(), 3, "the fourth of the turns");
    let versions = router.versions();
    let listed: Vec<_> = versions.iter().map(|it| (it.generation, it.activated_ms, it.active)).collect();
    assert_eq!(listed, [(3, 9.0, true), (2, 5.0, false)]);
    let digests: Vec<_> = versions.iter().map(|version| version.artifacts[0].digest.clone().unwrap()).collect();
    assert_eq!(digests, [in_turn().artifact().sha256_hex(), last().artifact().sha256_hex()]);
}

#[test]
fn what_a_change_does_not_touch_keeps_its_state() {
    let yaml = |other: &str| {
        format!(
            "worker_selection:\n  aggregated: it\n  partitions: [{{routing_group: other, aggregated: other}}]\n  \
             instances: [{{name: it, type: in-turn}}, {{name: other, type: {other}}}]\n"
        )
    };
    let router = router(&yaml("first"));
    let [it, other] = ["it", "other"].map(|group| partition(&router, group, 3));
    assert_eq!((it.decide(&at(0.0)).unwrap().row, other.decide(&at(0.0)).unwrap().row), (0, 0));
    let activation = router.activate(router.load(config(&yaml("last"))).unwrap(), 1.0).unwrap();
    assert_eq!(activation.changed, [other.key().clone()]);
    assert_eq!((it.decide(&at(1.0)).unwrap().row, other.decide(&at(1.0)).unwrap().row), (1, 2));
    // A partition that comes later has the new configuration.
    assert_eq!(partition(&router, "it-too", 2).decide(&at(1.0)).unwrap().row, 0);
}

#[test]
fn a_broken_version_never_replaces_a_good_one() {
    let router = router(&selecting("last", ""));
    let partition = partition(&router, "default", 3);
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.display().to_string()
    };
    let whole = first().bytes();
    let broken = [
        ("no file", selecting("x", "").replace("type: x", "component: missing.wasm")),
        ("text", selecting("x", "").replace("type: x", &format!("component: {}", file("a.wasm", b"(component)")))),
        (
            "cut",
            selecting("x", "").replace("type: x", &format!("component: {}", file("b.wasm", &whole[..whole.len() / 2]))),
        ),
        ("an unknown type", selecting("nobody", "")),
        ("an endless loop", selecting("spins", "")),
        (
            "a wrong digest",
            format!(
                "components: [{{type: pinned, path: {}, digest: 'sha256:{}'}}]\n{}",
                file("c.wasm", &whole),
                "0".repeat(64),
                selecting("pinned", "")
            ),
        ),
        (
            "one that nothing serves yet",
            format!(
                "{}    - {{name: bad, type: spins}}\n  partitions: [{{model: m, aggregated: bad}}]\n",
                selecting("last", "")
            ),
        ),
    ];
    for (what, yaml) in broken {
        let error = router.load(config(&yaml)).unwrap_err().to_string();
        assert!(!error.contains('\n'), "{what}: {error}");
        let decision = partition.decide(&at(0.0)).unwrap();
        assert_eq!((decision.row, decision.outcome, router.generation()), (2, Outcome::Ok, 1), "{what}");
    }
    let error = router.load(config(&selecting("spins", ""))).unwrap_err();
    assert!(matches!(error, RouterError::Provider { step: LoadStep::Smoke, .. }), "{error:?}");
    let error = error.to_string();
    assert!(error.contains("first decisions") && error.contains("out-of-fuel"), "{error}");
    // An operator may do without the trial.
    let untried = config(&format!("sandbox: {{smoke: false}}\n{}", selecting("spins", "")));
    router.activate(router.load(untried).unwrap(), 1.0).unwrap();
    assert_eq!(partition.decide(&at(2.0)).unwrap().outcome, Outcome::OutOfFuel);
}

#[test]
fn what_holds_after_a_restart_only_is_named() {
    let router = router(&selecting("last", ""));
    let yaml = format!(
        "sandbox: {{guests: 9}}\nsession_affinity: {{mode: soft, ttl_secs: 60}}\nrequest_classifier: {{type: first}}\n{}",
        selecting("last", "")
    );
    let activation = router.activate(router.load(config(&yaml)).unwrap(), 0.0).unwrap();
    assert_eq!(
        (&activation.needs_restart[..], activation.classifier_changed),
        (&["session_affinity", "sandbox"][..], true)
    );
}

/// A filter that keeps the rows of one parity and a picker that takes the last of them: an answer of the other parity
/// would be of two versions at once.
fn of_parity(odd: bool) -> Policy {
    let start = i32::from(odd);
    Policy {
        keep: Some(format!(
            "(memory.fill (i32.const 8192) (i32.const 0) (local.get $rows))
             (local.set $i (i32.const {start}))
             (block $done (loop $next
               (br_if $done (i32.ge_u (local.get $i) (local.get $rows)))
               (i32.store8 (i32.add (i32.const 8192) (local.get $i)) (i32.const 1))
               (local.set $i (i32.add (local.get $i) (i32.const 2)))
               (br $next)))
             (call $list (i32.const 8192) (local.get $rows))"
        )),
        ..last()
    }
}

#[test]
fn a_thousand_swaps_under_load_lose_no_decision_and_mix_no_two_versions() {
    // A thread that waits for a core is not what this is about.
    let patient = ", limits: {deadline_us: 60000000}";
    let builder = Router::builder()
        .register("even", Provider::component(of_parity(false).artifact()))
        .register("odd", Provider::component(of_parity(true).artifact()));
    let router = builder.policy_config(config(&selecting("even", patient))).build().unwrap();
    let partitions = ["a", "b"].map(|group| partition(&router, group, 8));
    let done = AtomicBool::new(false);
    let (decided, rows) = std::thread::scope(|scope| {
        let threads = partitions.each_ref().map(|partition| {
            let done = &done;
            scope.spawn(move || {
                let (mut decided, mut seen) = (0_u64, [0_u64; 2]);
                while !done.load(Ordering::Relaxed) {
                    let decision = partition.decide(&at(0.0)).unwrap();
                    assert_eq!(decision.outcome, Outcome::Ok);
                    // The last even row of eight is 6, the last odd one 7.
                    let which = [6, 7].iter().position(|row| *row == decision.row);
                    seen[which.unwrap_or_else(|| panic!("row {} is of no version", decision.row))] += 1;
                    decided += 1;
                }
                (decided, seen)
            })
        });
        for swap in 0..1_000 {
            let which = if swap % 2 == 0 { "odd" } else { "even" };
            let loaded = router.load(config(&selecting(which, patient))).unwrap();
            let activation = router.activate(loaded, f64::from(swap)).unwrap();
            assert_eq!(activation.changed.len(), 2);
        }
        done.store(true, Ordering::Relaxed);
        let ended = threads.map(|thread| thread.join().unwrap());
        (ended.iter().map(|(decided, _)| decided).sum::<u64>(), ended.map(|(_, seen)| seen))
    });
    assert_eq!(router.generation(), 1_001);
    let counts = partitions.map(|partition| partition.counts());
    assert_eq!(counts.iter().map(|counts| counts.decided).sum::<u64>(), decided);
    assert!(counts.iter().all(|counts| counts.refused == 0 && counts.fallbacks == 0), "{counts:?}");
    assert!(rows.iter().flatten().all(|seen| *seen > 0), "both versions decided in both partitions: {rows:?}");
}

fn tenants(more: &str) -> String {
    format!(
        "tenants:\n  - {{name: acme, routing_groups: [acme-a, acme-b]{more}}}\n  - {{name: other, routing_groups: [other]}}\n\
         worker_selection:\n  aggregated: shared\n  partitions: [{{tenant: acme, aggregated: own}}]\n  instances:\n    \
         - {{name: own, type: in-turn, tenant: acme}}\n    - {{name: shared, type: last}}\n"
    )
}

#[test]
fn a_tenant_over_its_fuel_falls_back_and_others_notice_nothing() {
    let router = router(&tenants(", quotas: {fuel_per_second: 1}"));
    let [a, b, other] = ["acme-a", "acme-b", "other"].map(|group| partition(&router, group, 3));
    assert_eq!(a.decide(&at(0.0)).unwrap().outcome, Outcome::Ok);
    for partition in [&a, &b] {
        let decision = partition.decide(&at(0.0)).unwrap();
        assert_eq!((decision.outcome, decision.fallback), (Outcome::OverQuota, true));
    }
    let decision = other.decide(&at(0.0)).unwrap();
    assert_eq!((decision.outcome, decision.row), (Outcome::Ok, 2));
    let usage = router.tenants();
    let [acme, other] = usage.as_slice() else { panic!("{usage:?}") };
    assert_eq!((acme.decided, acme.fallbacks, acme.faults[Outcome::OverQuota as usize]), (3, 2, 2));
    assert!(acme.fuel > 0 && acme.faults[Outcome::Ok as usize] == 0);
    assert_eq!((other.decided, other.fallbacks, other.faults), (1, 0, [0; Outcome::ALL.len()]));
    // What it overdrew comes back with time.
    let later = acme.fuel as f64 * 1_000.0 + 1.0;
    assert_eq!(b.decide(&at(later)).unwrap().outcome, Outcome::Ok);
}

#[test]
fn a_tenants_instance_serves_its_routing_groups_and_no_others() {
    let yaml = tenants("").replace("aggregated: shared", "aggregated: own");
    let problems = parse(&yaml).unwrap_err().to_string();
    assert!(problems.contains("worker_selection.aggregated") && problems.contains("`tenant: acme`"), "{problems}");
    let yaml = tenants("").replace("{tenant: acme, aggregated: own}", "{routing_group: other, aggregated: own}");
    assert!(parse(&yaml).unwrap_err().to_string().contains("belongs to the tenant acme"));
    let yaml = tenants("").replace("{tenant: acme, aggregated: own}", "{routing_group: acme-b, aggregated: own}");
    parse(&yaml).unwrap();
    let yaml = tenants("").replace("tenant: acme}", "tenant: acne}");
    assert!(parse(&yaml).unwrap_err().to_string().contains("did you mean"));
    // Nor by a pipeline of the operator's.
    let yaml =
        tenants("").replace("aggregated: shared", "aggregated: both") + "    - {name: both, pipeline: {picker: own}}\n";
    assert!(parse(&yaml).unwrap_err().to_string().contains("belongs to the tenant acme"));
    // Nor by an override.
    let overrides = pointsman_routing::config::Overrides { global: Some("own".to_owned()), ..Default::default() };
    let built = Router::builder()
        .register("in-turn", Provider::component(in_turn().artifact()))
        .register("last", Provider::component(last().artifact()))
        .policy_config(config(&tenants("")))
        .overrides(overrides)
        .build();
    assert!(matches!(built.unwrap_err(), RouterError::ForeignInstance { tenant, .. } if tenant == "acme"));
}

#[test]
fn a_tenants_instance_reads_the_operators_signals_that_it_is_granted() {
    let build = |grants: &str| {
        let script = Script::default()
            .scoring(reads(&[], &["header.x-tier"], &["metric.queue", "label.zone"]), |rows, _| {
                Ok(vec![0.0; rows as usize])
            });
        let router = Router::builder()
            .register("in-turn", Provider::native(script))
            .register("last", Provider::component(last().artifact()))
            .metric("queue")
            .label("zone")
            .grant_header("X-Tier")
            .policy_config(config(&tenants(grants)))
            .build()
            .unwrap();
        let key = PartitionKey { routing_group: "acme-a".to_owned(), ..PartitionKey::default() };
        router.partition(&key, 16).map(drop).map_err(|error| error.to_string())
    };
    build(", grants: [metric.queue, label.zone, header.x-tier]").unwrap();
    let error = build(", grants: [metric.queue, header.x-tier]").unwrap_err();
    assert!(
        error.contains("`label.zone`") && error.contains("metric.queue") && !error.contains(", label.zone"),
        "{error}"
    );
    assert!(build("").unwrap_err().contains("`header.x-tier`"));
    let problems = parse(&tenants(", grants: [load.available, metric.]")).unwrap_err().to_string();
    assert_eq!(problems.matches("cannot be granted").count(), 2, "{problems}");
}

#[test]
fn a_tenants_limits_narrow_those_of_its_instances_and_never_widen_them() {
    let decide = |tenant: &str, instance: &str| {
        let yaml = tenants(tenant).replace("type: in-turn,", &format!("type: in-turn, limits: {{{instance}}},"));
        let router = router(&format!("sandbox: {{smoke: false}}\n{yaml}"));
        partition(&router, "acme-a", 3).decide(&at(0.0)).unwrap().outcome
    };
    let limits = ", limits: {fuel_base: 1, fuel_per_row: 1}";
    assert_eq!(decide(limits, ""), Outcome::OutOfFuel);
    assert_eq!(decide(limits, "fuel_base: 1000000"), Outcome::OutOfFuel);
    assert_eq!(decide(", limits: {fuel_base: 1000000}", "fuel_base: 1, fuel_per_row: 1"), Outcome::OutOfFuel);
    assert_eq!(decide(", limits: {fuel_base: 1000000}", ""), Outcome::Ok);
}

#[test]
fn a_role_that_nothing_changes_for_goes_on() {
    let router = router(&selecting("last", ""));
    let decode = router.partition(&PartitionKey::of_role(Role::Decode), 16).unwrap();
    let activation = router.activate(router.load(config(&selecting("first", ""))).unwrap(), 0.0).unwrap();
    assert!(activation.changed.is_empty());
    assert_eq!((decode.policy_name(), router.versions().len()), ("default".to_owned(), 1));
}

#[test]
fn a_change_is_told_entry_by_entry() {
    let before = "components: [{type: a, path: a.wasm}]\ntenants: [{name: t, routing_groups: [g]}]\nworker_selection:\n  \
                  aggregated: one\n  partitions: [{model: m, decode: one}]\n  instances:\n    - {name: one, type: a}\n    \
                  - {name: two, type: a}\n";
    let after = "sandbox: {guests: 7, breaker: {faults: 1}}\ncomponents: [{type: a, path: b.wasm}]\n\
                 tenants: [{name: t, routing_groups: [g], quotas: {guests: 1}}]\nworker_selection:\n  aggregated: default\n  \
                 partitions: [{model: m, decode: default}, {tenant: t, decode: one}]\n  instances:\n    \
                 - {name: one, type: a, parameters: {x: 1}, limits: {fuel_base: 9}}\n    - {name: three, type: a}\n";
    let (before, after) = (config(before), config(after));
    assert_eq!(before.changes_since(&before), []);
    let told: Vec<String> = after.changes_since(&before).iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "components: `a` changed: path",
            "worker_selection.instances: `two` removed",
            "worker_selection.instances: `one` changed: parameters, limits",
            "worker_selection.instances: `three` added",
            "worker_selection: aggregated: `one` becomes `default`",
            "worker_selection.partitions: for model m: decode: `one` becomes `default`",
            "worker_selection.partitions: a rule for tenant t added",
            "tenants: `t` changed: quotas",
            "sandbox: other rules for failing policies",
            "sandbox: changed (holds after a restart)",
        ]
    );
}
