//! Small situations written by hand, and scripted policies that record what reaches them, for both sides.

use pointsman_parity::pointsman::World;
use pointsman_parity::{Ask, Busy, Case, Refusal, Verdict, Worker, dynamo};
use pointsman_routing::config::PolicyConfig;
use pointsman_routing::{PartitionKey, Provider, Role, Router, RouterBuilder, StageMode, WorkerKey, WorkerOverlap};
use pointsman_sdk::native::NativePolicy;
use serde_json::{Map, json};

use crate::script::Script;

/// An idle worker of one rank.
pub fn worker(id: u64) -> Worker {
    Worker {
        id,
        start_rank: 0,
        ranks: vec![Some(Busy::default())],
        taints: Vec::new(),
        overloaded: false,
        available: true,
        total_kv_blocks: None,
    }
}

/// A worker with so many active requests.
pub fn busy(id: u64, requests: usize) -> Worker {
    Worker { ranks: vec![Some(Busy { requests, ..Busy::default() })], ..worker(id) }
}

/// An aggregated partition with these workers and blocks of 16 tokens.
pub fn case(workers: impl IntoIterator<Item = Worker>) -> Case {
    Case {
        role: Role::Aggregated,
        block_size: 16,
        parameters: Map::new(),
        workers: workers.into_iter().collect(),
        asks: Vec::new(),
    }
}

/// A request of ten blocks.
pub fn ask() -> Ask {
    Ask { prompt_tokens: 160, tracked: true, ..Ask::default() }
}

/// So many blocks of the prompt on the worker's device.
pub fn device(id: u64, blocks: f64) -> WorkerOverlap {
    WorkerOverlap { key: WorkerKey::new(id, 0), device_blocks: blocks, ..WorkerOverlap::default() }
}

/// A router with the script under the type `script`, where every fault refuses the request.
fn configured(script: &Script, instances: serde_json::Value) -> Router {
    let text = json!({"worker_selection": {"aggregated": "it", "instances": instances}}).to_string();
    let config = PolicyConfig::parse("test", std::path::Path::new("."), &text).unwrap();
    registered(script).policy_config(config).build().unwrap()
}

fn registered(script: &Script) -> RouterBuilder {
    Router::builder().register("script", Provider::native(script.clone())).stages(StageMode::Separate)
}

/// The script as one policy run stage by stage, and as a `pipeline` of one instance for each of its stages.
pub fn routers(script: &Script) -> [(&'static str, Router); 2] {
    let one = json!([{"name": "it", "type": "script", "on_fault": "reject"}]);
    let stages = script.stages();
    let mut instances = Vec::new();
    let mut list = |name: &str, has: bool| {
        if has {
            instances.push(json!({"name": name, "type": "script", "on_fault": "reject"}));
        }
        has.then(|| name.to_owned())
    };
    let (filters, scorers) = (list("f", stages.filter), list("s", stages.score));
    let mut pipeline = json!({"filters": Vec::from_iter(filters), "scorers": Vec::from_iter(scorers)});
    if let Some(picker) = list("p", stages.pick) {
        pipeline["picker"] = json!(picker);
    }
    instances.push(json!({"name": "it", "pipeline": pipeline}));
    [("stage by stage", configured(script, one)), ("pipeline", configured(script, json!(instances)))]
}

/// A fresh partition of the router with the case's workers.
pub fn world(router: &Router, case: &Case) -> World {
    World::new(router, &PartitionKey::of_role(case.role), case).unwrap()
}

/// Both forms of the script answer as Dynamo's selector does.
pub fn assert_alike(script: &Script, selector: &dynamo::Selector, case: &Case, ask: &Ask, expected: &Verdict) {
    assert_eq!(dynamo::World::new(case).decide(selector, ask), *expected, "Dynamo");
    for (form, router) in routers(script) {
        assert_eq!(world(&router, case).decide(ask), *expected, "{form}");
    }
}

/// Every row that may serve the request, on our side: a picker that takes one after the other.
fn our_rows(case: &Case, ask: &Ask, exclusive: bool) -> Result<Vec<WorkerKey>, Refusal> {
    let mut rows = Vec::new();
    loop {
        let place = rows.len() as u32;
        let script = Script::default().picking(crate::script::reads(&[], &[], &[]), move |_, _| Ok(place));
        let script = if exclusive { script.exclusive() } else { script };
        let [(_, router), _] = routers(&script);
        match world(&router, case).decide(ask) {
            Verdict::Chosen(row, _) => rows.push(row),
            Verdict::Refused(Refusal::BadAnswer) => return Ok(rows),
            Verdict::Refused(refusal) => return Err(refusal),
        }
    }
}

/// Exactly these rows may serve the request, on both sides.
pub fn assert_rows(case: &Case, ask: &Ask, expected: &[(u64, u32)]) {
    assert_rows_of(case, ask, false, expected);
}

/// As [`assert_rows`], for a policy that takes an eligible affinity target for the only row.
pub fn assert_exclusive_rows(case: &Case, ask: &Ask, expected: &[(u64, u32)]) {
    assert_rows_of(case, ask, true, expected);
}

fn assert_rows_of(case: &Case, ask: &Ask, exclusive: bool, expected: &[(u64, u32)]) {
    let expected: Vec<_> = expected.iter().map(|(worker, rank)| WorkerKey::new(*worker, *rank)).collect();
    assert_eq!(dynamo::World::new(case).rows(ask, exclusive), expected, "Dynamo");
    assert_eq!(our_rows(case, ask, exclusive), Ok(expected));
}

/// Both refuse the request so, whatever the policy.
pub fn assert_refused(case: &Case, ask: &Ask, expected: &Refusal) {
    let theirs =
        dynamo::World::new(case).decide(&crate::plugin::policy(Vec::new(), Vec::new(), crate::plugin::cheapest()), ask);
    assert_eq!(theirs, Verdict::Refused(expected.clone()), "Dynamo");
    assert_eq!(our_rows(case, ask, false), Err(expected.clone()));
}
