//! A guest without a router around it: asked by the contract's names, as tests, checks and measurements ask it.

use std::sync::Arc;

use pointsman_contract::{Fact, Partition, Reads, RouterConfig, Signal, Text, Verdict, missing};
use pointsman_routing::{GivenTable, WorkerKey};
use pointsman_sandbox::{Account, Args, CompiledPolicy, GuestSetup, GuestSlot, Limits, Profile, Quotas, StartError};

use crate::source::BACKSTOP_US;

/// One guest.
pub(super) struct Trial {
    pub(super) guest: GuestSlot,
    /// Fuel of the last decision or classification, all its stages together.
    pub(super) fuel: u64,
    /// Counts what the guest holds, and bounds nothing.
    account: Arc<Account>,
}

/// What a policy made of a table. Rows are counted among all rows of the table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Decision {
    /// The rows that the filter kept.
    pub(super) kept: Vec<u32>,
    /// The cost of each kept row; empty without a scorer.
    pub(super) costs: Vec<f64>,
    /// The chosen row; none where no row was kept.
    pub(super) row: Option<u32>,
}

impl Trial {
    pub(super) fn start(
        policy: &Arc<CompiledPolicy>,
        profile: Profile,
        partition: Partition,
        router_config: RouterConfig,
        parameters: String,
    ) -> Result<Self, StartError> {
        let instance = policy.manifest().name.clone();
        let (deadline_us, tick_deadline_us) = (BACKSTOP_US, BACKSTOP_US);
        let limits = Limits { deadline_us, tick_deadline_us, ..Limits::of(profile) };
        let policy = Arc::clone(policy);
        let account = Account::new(Quotas::UNLIMITED);
        let counted = Some(Arc::clone(&account));
        let setup = GuestSetup { policy, instance, partition, router_config, parameters, limits, account: counted };
        Ok(Self { guest: GuestSlot::new(setup)?, fuel: 0, account })
    }

    /// Bytes of the guest's memories.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.account.usage().resident_bytes
    }

    /// Decides once, stage by stage; an error is one sentence that names the stage. The rows are in their order.
    pub(super) fn decide(&mut self, table: &GivenTable) -> Result<Decision, String> {
        let (inputs, stages) = (self.guest.inputs().clone(), self.guest.stages());
        self.fuel = 0;
        let mut kept: Vec<u32> = (0..).take(table.workers.len()).collect();
        if stages.filter {
            let args = arguments("filter", inputs.filter.as_ref(), table, &kept, &[])?;
            let keep = self.guest.keep(&args).map_err(|fault| format!("filter: {fault}"))?;
            self.fuel += self.guest.fuel_used();
            let mut keep = keep.into_iter();
            kept.retain(|_| keep.next() == Some(true));
        }
        let mut costs = Vec::new();
        if kept.is_empty() {
            return Ok(Decision { kept, costs, row: None });
        }
        if stages.score {
            let args = arguments("score", inputs.score.as_ref(), table, &kept, &[])?;
            costs = self.guest.score(&args).map_err(|fault| format!("score: {fault}"))?;
            self.fuel += self.guest.fuel_used();
            if let Some((cost, row)) = costs.iter().zip(&kept).find(|(cost, _)| !cost.is_finite()) {
                return Err(format!("score: bad-answer: the cost of row {row} is {cost}, which is not finite"));
            }
        }
        let place = if stages.pick {
            let args = arguments("pick", inputs.pick.as_ref(), table, &kept, &costs)?;
            let place = self.guest.pick(&args).map_err(|fault| format!("pick: {fault}"))?;
            self.fuel += self.guest.fuel_used();
            place
        } else {
            lowest(&costs)
        };
        let row = kept.get(place as usize).copied();
        let row = row.ok_or_else(|| format!("pick: bad-answer: it picked row {place} of {}", kept.len()))?;
        Ok(Decision { kept, costs, row: Some(row) })
    }

    /// Asks the classifier about a request with these facts and texts.
    pub(super) fn classify(&mut self, ticket: u32, table: &GivenTable) -> Result<Option<Verdict>, String> {
        let reads = self.guest.inputs().classify.clone();
        let args = arguments("classify", reads.as_ref(), table, &[], &[])?;
        let verdict = self.guest.classify(ticket, &args).map_err(|fault| format!("classify: {fault}"));
        self.fuel = self.guest.fuel_used();
        verdict
    }
}

/// The first of the lowest.
fn lowest(costs: &[f64]) -> u32 {
    let mut best = (0, f64::INFINITY);
    for (place, cost) in (0..).zip(costs) {
        if *cost < best.1 {
            best = (place, *cost);
        }
    }
    best.0
}

/// What a stage is sent of these rows.
fn arguments(
    stage: &str,
    reads: Option<&Reads>,
    table: &GivenTable,
    rows: &[u32],
    costs: &[f64],
) -> Result<Args, String> {
    let count = u32::try_from(rows.len()).unwrap_or(u32::MAX);
    let Some(reads) = reads else { return Ok(Args { rows: count, ..Args::default() }) };
    let unknown = |kind: &str, name: &str, all: Vec<&str>| {
        Err(format!("{stage} reads the unknown {kind} `{name}`; available are {}", all.join(", ")))
    };
    let given =
        |names: &[(String, f64)], name: &str| names.iter().find(|(given, _)| given == name).map(|given| given.1);
    let mut numbers = Vec::new();
    for name in &reads.facts {
        let Some(fact) = Fact::from_name(name) else {
            return unknown("fact", name, Fact::ALL.iter().map(|fact| fact.name()).collect());
        };
        numbers.push(given(&table.facts, name).unwrap_or(fact.absent()));
    }
    let prompt = given(&table.facts, Fact::PromptTokens.name()).unwrap_or(Fact::PromptTokens.absent());
    for name in &reads.signals {
        if name == "cost" {
            numbers.extend(if costs.is_empty() { vec![0.0; rows.len()] } else { costs.to_vec() });
            continue;
        }
        let signal = Signal::from_name(name);
        if signal.is_none() && !name.starts_with("metric.") && !name.starts_with("label.") {
            return unknown("signal", name, Signal::ALL.iter().map(|signal| signal.name()).collect());
        }
        for row in rows {
            let signals = table.workers.get(*row as usize).map_or(&[][..], |(_, signals)| signals);
            let value = |name: &str| given(signals, name);
            numbers.push(match signal {
                Some(signal) => signal.of_given(prompt, value),
                None => value(name).unwrap_or(missing()),
            });
        }
    }
    let mut texts = Vec::new();
    for name in &reads.texts {
        if Text::from_name(name).is_none() && !name.starts_with("header.") {
            return unknown("text", name, Text::ALL.iter().map(|text| text.name()).collect());
        }
        texts.push(table.texts.iter().find(|(given, _)| given == name).map(|(_, text)| text.clone()));
    }
    Ok(Args {
        rows: count,
        numbers,
        workers: reads.workers.then(|| rows.to_vec()),
        texts: Some(texts).filter(|texts| !texts.is_empty()),
    })
}

/// A table of random numbers, the same for the same seed: each signal and fact that a guest reads.
pub(super) fn random_table(guest: &GuestSlot, rows: u32, seed: &mut u64) -> GivenTable {
    let inputs = guest.inputs();
    let stages = [&inputs.filter, &inputs.score, &inputs.pick, &inputs.classify];
    let names = |of: fn(&Reads) -> &Vec<String>| {
        let mut names: Vec<&String> = stages.into_iter().flatten().flat_map(of).collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter().filter(|name| *name != "cost").cloned().collect::<Vec<String>>()
    };
    let mut draw = |name: &str| {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let drawn = *seed >> 33;
        match name {
            // What is a flag, what never is 0, and what must be finite and in a range.
            "request.tracks-prefill-tokens" | "request.pinned" | "request.has-tier-matches" | "load.available" => {
                (drawn % 2) as f64
            }
            "request.blocks" => 64.0,
            "request.affinity-first" | "request.affinity-rows" | "request.router-temperature" => missing(),
            "taint.preferred-multiplier" => 1.0,
            _ => (drawn % 64) as f64,
        }
    };
    let facts = names(|reads| &reads.facts).into_iter().map(|name| (draw(&name), name)).map(|(v, n)| (n, v)).collect();
    let signals = names(|reads| &reads.signals);
    let texts = names(|reads| &reads.texts).into_iter().map(|name| (name, "text".to_owned())).collect();
    let workers = (0..rows)
        .map(|row| {
            let key = WorkerKey { worker: row.into(), rank: 0 };
            (key, signals.iter().map(|name| (name.clone(), draw(name))).collect())
        })
        .collect();
    GivenTable { facts, texts, workers }
}
