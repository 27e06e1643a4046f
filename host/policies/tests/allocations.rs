//! A decision allocates nothing on the host after warm-up, but for the list that a separately called filter or scorer
//! returns.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use pointsman_routing::{
    InstanceSpec, Partition, PartitionKey, Provider, Request, Role, Router, RouterConfig, Session, StageMode, Trigger,
    WorkerConfig, WorkerKey, WorkerOverlap,
};
use pointsman_sandbox::Artifact;

fn partition(name: &str, component: &'static [u8], mode: StageMode) -> Arc<Partition> {
    let file: serde_json::Value = serde_json::from_str(include_str!("../../../policies/parameters.json")).unwrap();
    let role = if name.starts_with("disagg") { Role::Prefill } else { Role::Aggregated };
    let router = Router::builder()
        .register(name, Provider::component(Artifact::from_bytes(name, component).trusted()))
        .serve(InstanceSpec::new(name).parameters(file[name].as_object().unwrap().clone()))
        .stages(mode)
        .build()
        .unwrap();
    let partition = router.partition(&PartitionKey::of_role(role), 16).unwrap();
    (0..64).for_each(|worker| partition.upsert_worker(WorkerConfig::new(worker)).unwrap());
    partition
}

/// The most host allocations of one decision, after warm-up.
fn most(partition: &Partition) -> u64 {
    let overlap = |worker| {
        let key = WorkerKey::new(worker, 0);
        WorkerOverlap::from_tiers(key, 2.0, 1.0, 0.0, &RouterConfig::default(), 16)
    };
    let overlaps: Vec<_> = (0..64).step_by(3).map(overlap).collect();
    let session = Session { id: "s", parent_id: Some("p"), last: None, trigger: Some(Trigger::ToolResult) };
    let request = Request {
        prompt_tokens: 64,
        block_hashes: &[1, 2, 3, 4],
        overlaps: &overlaps,
        session: Some(session),
        ..Request::default()
    };
    let decide = || {
        let info = allocation_counter::measure(|| assert!(!partition.decide(&request).unwrap().fallback));
        info.count_total
    };
    (0..20).for_each(|_| _ = decide());
    (0..50).map(|_| decide()).max().unwrap()
}

#[test]
fn one_crossing_allocates_nothing_and_a_separate_stage_its_list() {
    let file: serde_json::Value = serde_json::from_str(include_str!("../../../policies/parameters.json")).unwrap();
    // Those of worker selection.
    for policy in pointsman_policies::all().iter().filter(|policy| file.get(policy.name).is_some()) {
        let fused = partition(policy.name, policy.component, StageMode::Fused);
        let separate = partition(policy.name, policy.component, StageMode::Separate);
        let (fused, separate) = (most(&fused), most(&separate));
        // A policy of one scorer has no crossing of its own: its list is the one allocation.
        let alone = matches!(policy.name, "least-loaded" | "least-loaded-warm");
        assert!(fused <= u64::from(alone), "{}: {fused} allocations in one crossing", policy.name);
        assert!(separate <= 2, "{}: {separate} allocations stage by stage", policy.name);
    }
}
