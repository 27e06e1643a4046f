//! `pointsman policy run`: one decision over a table that a person wrote, explained.

use std::fmt::Write;
use std::path::PathBuf;

use pointsman_contract::Role;
use pointsman_routing::{GivenAnswer, GivenPolicy, GivenTable, InstanceSpec, Provider, RouterError, WorkerKey};
use pointsman_sandbox::Sandbox;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::small;
use super::table_file::TableFile;
use crate::compile::Compile;
use crate::error::CliError;
use crate::{output, parameters, source};

/// Decides once over a table of workers, and explains the decision.
///
/// The table is JSON or YAML: {partition?: {model, routing_group, role, block_size, seed}, router_config?: {...},
/// facts?: {FACT: number}, texts?: {TEXT: string}, workers: [{worker, rank?, signals: {SIGNAL: number}}]}. Names are the
/// contract's; what is absent is missing, but `load.prefill-cost-tokens` follows from its parts.
#[derive(clap::Args)]
pub(crate) struct Run {
    /// A built-in policy's name, or a component's file.
    #[arg(value_name = "NAME|FILE.wasm")]
    policy: String,
    /// The table, JSON or YAML.
    #[arg(long, value_name = "FILE")]
    table: PathBuf,
    /// The policy's parameters.
    #[arg(long, value_name = "JSON")]
    parameters: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    compile: Compile,
}

impl Run {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let given = self.parameters.as_deref().map(|text| parameters::parse("--parameters", text)).transpose()?;
        let artifact = source::artifact(&self.policy)?;
        let TableFile { partition, router_config, table } = TableFile::read(&self.table)?;
        let role = partition.role;
        let sandbox = Sandbox::new(self.compile.config(small()))?;
        let (loaded, profile) = source::load_any(&sandbox, &artifact)?;
        let instance = InstanceSpec::new(self.policy.as_str()).parameters(given.unwrap_or_default());
        let policy = GivenPolicy {
            provider: Provider::component(artifact),
            instance: source::fitting(instance, &loaded, profile),
            partition,
            router_config,
        };
        let workers = sorted_workers(&table);
        let answer = table.decide(&sandbox, policy).map_err(|error| match error {
            // What is wrong with the table itself.
            RouterError::Config(message) => CliError::Table { file: self.table.display().to_string(), message },
            other => other.into(),
        })?;
        if self.json {
            output::json(&Decided::new(&answer))?;
        } else {
            output::text(&as_text(&self.policy, role, &workers, &answer))?;
        }
        Ok(())
    }
}

/// The rows' keys, in the order of the rows.
fn sorted_workers(table: &GivenTable) -> Vec<WorkerKey> {
    let mut workers: Vec<WorkerKey> = table.workers.iter().map(|(key, _)| *key).collect();
    workers.sort_unstable();
    workers
}

/// The JSON, in this order.
#[derive(Serialize)]
struct Decided<'a> {
    row: Option<u32>,
    worker: Option<u64>,
    rank: Option<u32>,
    cost: Option<f64>,
    outcome: &'a str,
    fuel: Option<u64>,
    kept: &'a [u32],
    columns: Map<String, Value>,
    costs: &'a [Vec<f64>],
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

impl<'a> Decided<'a> {
    fn new(answer: &'a GivenAnswer) -> Self {
        Self {
            row: answer.row,
            worker: answer.worker.map(|key| key.worker),
            rank: answer.worker.map(|key| key.rank),
            cost: answer.cost,
            outcome: answer.outcome,
            fuel: answer.fuel,
            kept: &answer.kept,
            columns: answer.columns.iter().map(|(name, values)| (name.clone(), json!(values))).collect(),
            costs: &answer.costs,
            message: answer.message.as_deref(),
        }
    }
}

fn as_text(policy: &str, role: Role, workers: &[WorkerKey], answer: &GivenAnswer) -> String {
    let mut names: Vec<String> = ["", ">ROW", ">WORKER", ">RANK"].map(str::to_owned).to_vec();
    names.extend(answer.columns.iter().map(|(name, _)| format!(">{name}")));
    names.push("KEPT".to_owned());
    names.extend((1..=answer.costs.len()).map(|scorer| format!(">COST {scorer}")));
    let headings: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut table = output::table(&headings);
    for (row, key) in workers.iter().enumerate() {
        let kept = answer.kept.iter().position(|kept| *kept as usize == row);
        let chosen = answer.row.is_some_and(|chosen| chosen as usize == row);
        let mut cells = vec![if chosen { "->" } else { "" }.to_owned()];
        cells.extend([row.to_string(), key.worker.to_string(), key.rank.to_string()]);
        cells.extend(answer.columns.iter().map(|(_, column)| shown(column.get(row))));
        cells.push(if kept.is_some() { "yes" } else { "no" }.to_owned());
        cells.extend(answer.costs.iter().map(|costs| shown(kept.and_then(|place| costs.get(place)))));
        table.add_row(cells);
    }
    let mut out = output::rendered(&table) + "\n";
    let policy = output::printable(policy);
    let fuel = answer.fuel.map_or_else(|| "not counted".to_owned(), output::grouped);
    let _ = match (answer.worker, answer.cost) {
        (Some(key), Some(cost)) => writeln!(
            out,
            "\n{policy} ({role}) chose worker {}, rank {}, at cost {cost}; fuel used: {fuel}",
            key.worker, key.rank
        ),
        _ => writeln!(out, "\n{policy} ({role}) chose no worker: {}", answer.outcome),
    };
    if let Some(message) = &answer.message {
        let _ = writeln!(out, "{}", output::printable(message));
    }
    out
}

/// A number of the table; a dash where it is missing.
fn shown(value: Option<&f64>) -> String {
    value.filter(|value| !value.is_nan()).map_or_else(|| "-".to_owned(), f64::to_string)
}
