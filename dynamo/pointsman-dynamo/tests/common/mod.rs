//! What the tests share: components of fixtures, Dynamo's registry with the type linked, and requests as Dynamo's
//! scheduler holds them.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::missing_panics_doc, reason = "test support")]

pub mod frontend;
pub mod service;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use dynamo_kv_router::plugins::RouterPluginRegistry;
use dynamo_kv_router::protocols::{
    SharedCacheHits, WorkerAffinityTarget, WorkerConfigLike, WorkerId, WorkerWithDpRank,
};
use dynamo_kv_router::{
    KvRouterConfig, RoutingPartitionRef, SchedulingRequest, WorkerLoadProjection, WorkerSelectionInput,
    WorkerSelectionPolicy, WorkerSelectionPolicyFactory, WorkerSelector, WorkerType,
};
use pointsman_dynamo::WorkerCommand;
use pointsman_parity::dynamo::plain_request;
use serde_json::{Value, json};

/// Set where a test runs again in a network namespace, which reaches no registry.
pub const NAMESPACE: &str = "POINTSMAN_NAMESPACE";

/// The component of a fixture: of this crate, or of the command's tests.
pub fn component(fixture: &str) -> PathBuf {
    static BUILT: Mutex<Option<HashMap<String, PathBuf>>> = Mutex::new(None);
    if std::env::var_os(NAMESPACE).is_some() {
        return tmp().join(fixture).with_extension("wasm");
    }
    let mut built = BUILT.lock().unwrap();
    built.get_or_insert_default().entry(fixture.to_owned()).or_insert_with(|| build(fixture)).clone()
}

fn tmp() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

fn build(fixture: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let places = [root.join("dynamo/pointsman-dynamo/tests/fixtures"), root.join("host/cli/tests/fixtures")];
    let from = places.iter().map(|place| place.join(fixture)).find(|place| place.exists()).unwrap();
    let dir = tmp().join("crates").join(fixture);
    std::fs::create_dir_all(dir.join("src")).unwrap();
    let manifest = std::fs::read_to_string(from.join("Cargo.toml.in")).unwrap();
    std::fs::write(dir.join("Cargo.toml"), manifest.replace("@ROOT@", root.to_str().unwrap())).unwrap();
    std::fs::copy(from.join("src/lib.rs"), dir.join("src/lib.rs")).unwrap();
    std::fs::copy(root.join("Cargo.lock"), dir.join("Cargo.lock")).unwrap();
    let build = pointsman_build::Build::package(&dir).target_dir(tmp().join("guests"));
    let component = build.run().unwrap().remove(0).component;
    // Another test binary may read the file meanwhile.
    let (path, new) =
        (tmp().join(fixture).with_extension("wasm"), tmp().join(format!("{fixture}.{}", std::process::id())));
    std::fs::write(&new, component).unwrap();
    std::fs::rename(new, &path).unwrap();
    path
}

/// A router-policy file whose one instance, of type `policy_type`, serves every role. JSON is YAML.
pub fn policy_file(policy_type: &str, parameters: &Value) -> String {
    let instance = json!({"name": "it", "type": policy_type, "parameters": parameters});
    let roles = json!({"aggregated": "it", "prefill": "it", "decode": "it", "encode": "it", "instances": [instance]});
    json!({ "worker_selection": roles }).to_string()
}

/// The service's own program compiles what a test loads from a file.
pub fn worker() -> Option<WorkerCommand> {
    option_env!("CARGO_BIN_EXE_pointsman-dynamo").map(WorkerCommand::new)
}

/// Everything that the service links.
pub fn registry() -> &'static RouterPluginRegistry {
    static REGISTRY: OnceLock<RouterPluginRegistry> = OnceLock::new();
    REGISTRY.get_or_init(|| {
        let mut registry = dynamo_custom_policy_builtin::default_registry();
        dynamo_custom_policy_builtin::register(&mut registry).unwrap();
        pointsman_dynamo::register(&mut registry, worker()).unwrap();
        registry
    })
}

/// What Dynamo makes of a router-policy file at start.
pub fn resolve(yaml: &str) -> Result<(KvRouterConfig, WorkerSelectionPolicyFactory), String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), yaml).unwrap();
    let router_policy_config = Some(file.path().display().to_string());
    let config = KvRouterConfig { router_policy_config, ..KvRouterConfig::default() };
    let factory = registry().resolve(&config).map_err(|error| error.to_string())?;
    Ok((config, factory.unwrap()))
}

/// The policy of that partition and role.
pub fn policy_of(yaml: &str, model: &str, role: WorkerType) -> WorkerSelectionPolicy {
    let (config, factory) = resolve(yaml).unwrap();
    factory(&config, role, RoutingPartitionRef::new(model, "default"))
}

/// A policy of type `wasm`.
pub fn wasm(parameters: &Value) -> WorkerSelectionPolicy {
    policy_of(&policy_file("wasm", parameters), "default", WorkerType::Aggregated)
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Worker {
    pub ranks: u32,
    pub taints: HashSet<String>,
}

impl WorkerConfigLike for Worker {
    fn data_parallel_start_rank(&self) -> u32 {
        0
    }

    fn data_parallel_size(&self) -> u32 {
        self.ranks
    }

    fn max_num_batched_tokens(&self) -> Option<u64> {
        None
    }

    fn total_kv_blocks(&self) -> Option<u64> {
        Some(131_072)
    }

    fn taints(&self) -> &HashSet<String> {
        &self.taints
    }
}

pub type Workers = HashMap<WorkerId, Worker>;

/// A request without any rule, of 2,048 tokens.
pub fn request() -> SchedulingRequest {
    plain_request(2_048)
}

/// Workers 0, 1, 2... with so many active requests each.
pub fn busy(active_requests: &[usize]) -> (Workers, SchedulingRequest) {
    let mut request = request();
    let mut workers = Workers::new();
    for (id, active_requests) in (0..).zip(active_requests) {
        workers.insert(id, Worker { ranks: 1, ..Worker::default() });
        let load = WorkerLoadProjection { active_requests: *active_requests, ..WorkerLoadProjection::default() };
        request.worker_loads.insert(WorkerWithDpRank::from_worker_id(id), load);
    }
    (workers, request)
}

/// The chosen worker and rank, or Dynamo's error.
pub fn select(
    policy: &WorkerSelectionPolicy,
    workers: &Workers,
    request: &SchedulingRequest,
    block_size: u32,
) -> Result<WorkerWithDpRank, String> {
    let input = WorkerSelectionInput::configured(workers, request, request.eligibility(), block_size);
    policy.select_worker(input).map(|selected| selected.worker).map_err(|error| error.to_string())
}

/// A request over up to `most` workers, with everything that a request may come with. No two ranks have as many active
/// requests.
pub fn generated(rng: &mut fastrand::Rng, most: u64) -> (Workers, SchedulingRequest) {
    let mut request = request();
    let mut workers = Workers::new();
    request.isl_tokens = rng.usize(0..20_000);
    request.track_prefill_tokens = rng.u8(0..8) > 0;
    let tiers = rng.u8(0..4) > 0;
    // An unknown load counts as 0.
    let mut loads: Vec<usize> = (1..=200).collect();
    rng.shuffle(&mut loads);
    for worker in 0..rng.u64(1..=most) {
        let taints = ["a", "b", "c"].into_iter().filter(|_| rng.bool()).map(str::to_owned).collect();
        let ranks = rng.u32(1..=3);
        workers.insert(worker * 7, Worker { ranks, taints });
        for rank in 0..ranks {
            let key = WorkerWithDpRank::new(worker * 7, rank);
            let load = WorkerLoadProjection {
                active_prefill_tokens: rng.usize(0..1 << 20),
                active_decode_blocks: rng.usize(0..1 << 16),
                additional_active_blocks: rng.usize(0..1_000),
                active_requests: loads.pop().unwrap_or_default(),
            };
            // One unknown load at most, since all of them are equal.
            if worker > 0 || rank > 0 || rng.bool() {
                request.worker_loads.insert(key, load);
            }
            overlaps(rng, &mut request, key, tiers);
        }
    }
    if rng.u8(0..4) == 0 {
        let start = rng.u32(0..100);
        let range = start..start + rng.u32(1..200);
        request.shared_cache_hits = Some(SharedCacheHits::from_ranges(std::iter::once(range).collect()));
    }
    rules(rng, &mut request, &workers);
    (workers, request)
}

fn overlaps(rng: &mut fastrand::Rng, request: &mut SchedulingRequest, key: WorkerWithDpRank, tiers: bool) {
    if rng.bool() {
        return;
    }
    let [device, host, disk] = [0, 0, 0].map(|_: usize| rng.usize(0..200));
    if tiers {
        let maps = &mut request.overlap.tier_overlap_blocks;
        maps.device.insert(key, device);
        maps.host_pinned.insert(key, host);
        maps.disk.insert(key, disk);
    }
    let effective = device as f64 + 0.75 * host as f64 + 0.25 * disk as f64;
    request.overlap.effective_overlap_blocks.insert(key, effective);
    request.overlap.effective_cached_tokens.insert(key, (effective * 16.0).round() as usize);
}

fn rules(rng: &mut fastrand::Rng, request: &mut SchedulingRequest, workers: &Workers) {
    let some = |rng: &mut fastrand::Rng| {
        let mut ids: Vec<_> = workers.keys().copied().collect();
        ids.sort_unstable();
        ids.get(rng.usize(0..ids.len())).copied().unwrap()
    };
    match rng.u8(0..10) {
        0 => request.pinned_worker = Some(WorkerWithDpRank::new(some(rng), rng.u32(0..3))),
        1 => request.affinity_target = Some(WorkerAffinityTarget::new(some(rng), rng.bool().then(|| rng.u32(0..3)))),
        2 => request.allowed_worker_ids = Some((0..rng.usize(0..4)).map(|_| some(rng)).collect()),
        3 => request.routing_constraints.required_taints.extend(["a".to_owned()]),
        4 => {
            let taints = [("b".to_owned(), rng.f32()), ("c".to_owned(), -rng.f32())];
            request.routing_constraints.preferred_taints.extend(taints);
        }
        _ => {}
    }
}

/// Runs `run` and answers how often each stage of a guest was called meanwhile, on this thread.
pub fn crossings<R>(run: impl FnOnce() -> R) -> (R, HashMap<String, usize>) {
    static COUNTED: Mutex<()> = Mutex::new(());
    let _turn = COUNTED.lock();
    let calls = std::sync::Arc::<Mutex<HashMap<String, usize>>>::default();
    let answer = tracing::subscriber::with_default(Calls(std::sync::Arc::clone(&calls)), run);
    let calls = std::mem::take(&mut *calls.lock().unwrap());
    (answer, calls)
}

/// Counts the sandbox's spans of calls by stage.
struct Calls(std::sync::Arc<Mutex<HashMap<String, usize>>>);

impl tracing::Subscriber for Calls {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target().starts_with("pointsman_sandbox")
    }

    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        struct Stage(Option<String>);
        impl tracing::field::Visit for Stage {
            fn record_debug(&mut self, _: &tracing::field::Field, _: &dyn std::fmt::Debug) {}
            fn record_str(&mut self, field: &tracing::field::Field, value: &str) {
                if field.name() == "stage" {
                    self.0 = Some(value.to_owned());
                }
            }
        }
        let mut stage = Stage(None);
        span.record(&mut stage);
        if let Some(stage) = stage.0 {
            *self.0.lock().unwrap().entry(stage).or_default() += 1;
        }
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}
