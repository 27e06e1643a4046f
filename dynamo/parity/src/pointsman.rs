//! A case on Pointsman's side.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use pointsman_routing::config::PolicyConfig;
use pointsman_routing::{
    BreakerSettings, Decision, Load, Partition, PartitionKey, Provider, Request, Router, RouterConfig, Session,
    StageMode, WorkerConfig, WorkerKey, guest_seed,
};
use pointsman_sandbox::{Artifact, Outcome, Sandbox};
use serde_json::json;

use crate::case::{Ask, Case};
use crate::verdict::{Cost, Refusal, Verdict};

/// How a policy runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The component, in one crossing where it offers that.
    Fused,
    /// The component, stage by stage.
    Separate,
    /// Compiled in.
    Native,
}

/// What many cases share: a router, whose partitions have a guest each.
pub struct Batch {
    router: Router,
    host_seed: u64,
}

/// Where the policy of a batch comes from.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The built-in policy's name.
    pub name: &'static str,
    /// The policy compiled in.
    pub native: Provider,
}

impl Batch {
    /// A router that serves each of `cases` by an instance of its own.
    ///
    /// # Errors
    /// A policy or parameters that do not start.
    pub fn new(
        sandbox: &Sandbox,
        subject: &Subject,
        form: Form,
        config: RouterConfig,
        host_seed: u64,
        cases: &[Case],
    ) -> Result<Self, Box<dyn Error>> {
        let provider = match form {
            Form::Native => subject.native.clone(),
            Form::Fused | Form::Separate => component(subject.name)?,
        };
        let mode = if form == Form::Separate { StageMode::Separate } else { StageMode::Fused };
        let router = Router::builder()
            .sandbox(sandbox.clone())
            .register(subject.name, provider)
            .router_config(config)
            .seed(host_seed)
            .stages(mode)
            // Dynamo tries no policy before it serves, and keeps none out.
            .smoke(false)
            .breaker(BreakerSettings { faults: 0, ..BreakerSettings::default() })
            // The machine may be busy; no policy here is measured by its time.
            .deadline_us(60_000_000)
            .policy_config(selection(subject.name, cases)?)
            .build()?;
        Ok(Self { router, host_seed })
    }

    /// The partition of case number `index`, with its workers and their loads.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn world(&self, index: usize, case: &Case) -> Result<World, Box<dyn Error>> {
        World::new(&self.router, &key(index, case), case)
    }

    /// The seed of that case's guest.
    #[must_use]
    pub fn guest_seed(&self, index: usize, case: &Case) -> u64 {
        u64::from(guest_seed(self.host_seed, &key(index, case), &instance(index)))
    }
}

fn instance(index: usize) -> String {
    format!("case-{index}")
}

fn key(index: usize, case: &Case) -> PartitionKey {
    PartitionKey { model: instance(index), ..PartitionKey::of_role(case.role) }
}

/// The built-in policy of that name, as a component.
///
/// # Errors
/// There is none.
pub fn component(name: &str) -> Result<Provider, Box<dyn Error>> {
    let found = pointsman_policies::get(name).ok_or_else(|| format!("there is no built-in policy `{name}`"))?;
    Ok(Provider::component(Artifact::from_bytes(found.name, found.component).trusted()))
}

fn selection(policy: &str, cases: &[Case]) -> Result<PolicyConfig, Box<dyn Error>> {
    let instances = cases.iter().enumerate().map(|(index, case)| {
        json!({"name": instance(index), "type": policy, "parameters": case.parameters, "on_fault": "reject"})
    });
    let instances: Vec<_> = instances.collect();
    let rules: Vec<_> = (cases.iter().enumerate())
        .map(|(index, case)| json!({"model": instance(index), case.role.as_str(): instance(index)}))
        .collect();
    let text = json!({"worker_selection": {"instances": instances, "partitions": rules}}).to_string();
    Ok(PolicyConfig::parse("generated", Path::new("."), &text)?)
}

/// Registers the workers with their loads; answers the prompt's blocks where any row shares some of them.
fn fill(partition: &Partition, case: &Case) -> Result<Vec<u64>, Box<dyn Error>> {
    let blocks = case.asks.first().map_or(0, |ask| ask.blocks(case.block_size)) as u64;
    let shares = case.workers.iter().flat_map(|worker| &worker.ranks).flatten().any(|busy| busy.shared_blocks > 0);
    let hashes: Vec<u64> = if shares { (1..=blocks).collect() } else { Vec::new() };
    for worker in &case.workers {
        partition.upsert_worker(WorkerConfig {
            start_rank: worker.start_rank,
            ranks: worker.ranks.len() as u32,
            taints: worker.taints.iter().map(|taint| (*taint).to_owned()).collect(),
            total_kv_blocks: worker.total_kv_blocks,
            ..WorkerConfig::new(worker.id)
        })?;
        partition.set_overloaded(worker.id, worker.overloaded);
        partition.set_available(worker.id, worker.available);
        for (key, busy) in worker.rows() {
            if let Some(held) = busy.and_then(|busy| hashes.get(..busy.shared_blocks)).filter(|held| !held.is_empty()) {
                hold(partition, key, held);
            }
            let load = busy.map(|busy| Load {
                active_prefill_tokens: busy.prefill_tokens as f64,
                decode_blocks: busy.decode_blocks as f64,
                active_requests: busy.requests as f64,
            });
            partition.set_load(key, load);
        }
    }
    Ok(hashes)
}

/// An active request of that row that holds these blocks.
fn hold(partition: &Partition, worker: WorkerKey, block_hashes: &[u64]) {
    let decision =
        Decision { worker, row: 0, cost: 0.0, outcome: Outcome::Ok, fallback: false, fuel: None, cached_tokens: 0 };
    partition.reserve(&Request { block_hashes, ..Request::default() }, &decision);
}

/// One case's partition.
pub struct World {
    /// The partition itself.
    pub partition: Arc<Partition>,
    hashes: Vec<u64>,
}

impl World {
    /// The partition of that key, with the case's workers and their loads.
    ///
    /// # Errors
    /// A policy that does not start.
    pub fn new(router: &Router, key: &PartitionKey, case: &Case) -> Result<Self, Box<dyn Error>> {
        let partition = router.partition(key, case.block_size)?;
        let hashes = fill(&partition, case)?;
        Ok(Self { partition, hashes })
    }

    /// What Pointsman says to the request.
    #[must_use]
    pub fn decide(&self, ask: &Ask) -> Verdict {
        let preferred: Vec<_> = ask.preferred_taints.iter().map(|(name, weight)| (*name, f64::from(*weight))).collect();
        let request = Request {
            now_ms: ask.now_ms,
            prompt_tokens: ask.prompt_tokens as u64,
            block_hashes: &self.hashes,
            tracks_prefill_tokens: ask.tracked,
            router_temperature: ask.temperature,
            pinned: ask.pin,
            affinity: ask.affinity,
            allowed: ask.allowed.as_deref(),
            available: ask.available.as_deref(),
            required_taints: &ask.required_taints,
            preferred_taints: &preferred,
            overlaps: &ask.overlaps,
            shared: ask.shared.as_deref(),
            session: ask.session.as_ref().map(|session| Session {
                id: &session.id,
                parent_id: session.parent.as_deref(),
                last: session.last,
                trigger: session.trigger,
            }),
            ..Request::default()
        };
        match self.partition.decide(&request) {
            Ok(decision) => Verdict::Chosen(decision.worker, Cost::Exact(decision.cost)),
            Err(error) => Verdict::Refused(Refusal::from(error)),
        }
    }
}
