//! Embeds a Pointsman router: one partition served by a sandboxed component, one by a policy compiled in.

use std::error::Error;

use pointsman_routing::{
    InstanceSpec, PartitionKey, Provider, Request, Role, Router, RouterConfig, WorkerConfig, WorkerKey, WorkerOverlap,
};
use pointsman_sandbox::{Artifact, Sandbox, SandboxConfig, WorkerCommand};
use pointsman_sdk::prelude::*;

/// A policy of the embedder's own, compiled in: the worker with the fewest decode blocks.
struct FewestBlocks;

impl Policy for FewestBlocks {
    type Parameters = NoParameters;
    const NAME: &'static str = "fewest-blocks";
    const DESCRIPTION: &'static str = "Takes the worker with the fewest decode blocks.";

    fn configure(_: &Setup, _: NoParameters) -> Result<Self, PolicyError> {
        Ok(Self)
    }
}

impl Scorer for FewestBlocks {
    fn reads(&self) -> Reads {
        Signal::LoadDecodeBlocks.into()
    }

    fn score(
        &mut self,
        _: &pointsman_sdk::Request<'_>,
        workers: &Candidates<'_>,
        costs: &mut [f64],
    ) -> Result<(), PolicyError> {
        costs.copy_from_slice(workers.column(Signal::LoadDecodeBlocks)?);
        Ok(())
    }
}

pointsman_sdk::export!(FewestBlocks: scorer);

const BLOCK_SIZE: u32 = 16;

fn main() -> Result<(), Box<dyn Error>> {
    // First: this program is also the process that compiles what is not trusted.
    pointsman_sandbox::init_compile_worker();
    let mut config = SandboxConfig::default();
    config.compile.worker = Some(WorkerCommand::this_program());
    let sandbox = Sandbox::new(config)?;
    // A component: bytes from a file, a registry, or, as here, one of the built-in policies. Those may be `.trusted()`,
    // and are then compiled here.
    let built_in = pointsman_policies::get("dynamo-default-cost-fn").ok_or("the built-in policy is missing")?;
    let component = Provider::component(Artifact::from_bytes(built_in.name, built_in.component));
    serve(&sandbox, "a sandboxed component", built_in.name, component)?;
    let native = Provider::native(pointsman_sdk::native::native::<FewestBlocks>());
    serve(&sandbox, "a native policy", "fewest-blocks", native)
}

/// Routes three requests with one policy.
fn serve(sandbox: &Sandbox, what: &str, name: &str, provider: Provider) -> Result<(), Box<dyn Error>> {
    let builder = Router::builder().sandbox(sandbox.clone()).register(name, provider);
    let router = builder.serve(InstanceSpec::new(name)).seed(7).build()?;
    let partition = router.partition(&PartitionKey::of_role(Role::Aggregated), BLOCK_SIZE)?;
    for worker in [10, 20, 30] {
        partition.upsert_worker(WorkerConfig { total_kv_blocks: Some(4096), ..WorkerConfig::new(worker) })?;
    }
    // Worker 20 holds the first two blocks of the prompt.
    let cached = WorkerKey::new(20, 0);
    let overlaps = [WorkerOverlap::from_tiers(cached, 2.0, 0.0, 0.0, &RouterConfig::default(), BLOCK_SIZE)];
    let request =
        Request { prompt_tokens: 64, block_hashes: &[11, 12, 13, 14], overlaps: &overlaps, ..Request::default() };
    println!("{what}: {name}");
    let mut reservations = Vec::new();
    for number in 0..3 {
        let decision = partition.decide(&request)?;
        reservations.extend(partition.reserve(&request, &decision));
        println!("  request {number}: {}, cost {}, {}", decision.worker, decision.cost, decision.outcome);
    }
    for id in reservations {
        partition.prefill_complete(id);
        partition.output_blocks(id, 1);
        partition.free(id);
    }
    println!("  load afterwards: {:?}", partition.load(cached));
    Ok(())
}
