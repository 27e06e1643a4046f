//! `pointsman policy bench`: microseconds and fuel of a decision, by the number of workers.

use std::time::Instant;

use pointsman_contract::RouterConfig;
use pointsman_sandbox::Sandbox;
use serde_json::{Value, json};

use super::trial::{Trial, random_table};
use super::{partition, small};
use crate::compile::Compile;
use crate::error::CliError;
use crate::{output, parameters, source};

const ROWS: [u32; 4] = [1, 4, 16, 64];
/// Decisions of one figure, of which the median counts.
const DECISIONS: usize = 201;
/// Starts, of which the median counts.
const STARTS: usize = 9;
/// What is measured beside it.
const BESIDE: [&str; 2] = ["least-loaded", "dynamo-default-cost-fn"];

/// Measures a policy's decisions beside those of built-in policies.
///
/// Microseconds are the median of 201 decisions over tables of random numbers, and of 9 starts. Times are of this
/// machine; fuel is the same on every one. COMPILE is short where --compile-cache has the policy.
#[derive(clap::Args)]
pub(crate) struct Bench {
    /// Built-in policies' names, components' files, or policies' folders, which are built first.
    #[arg(value_name = "NAME|FILE.wasm|DIR", default_value = ".")]
    policies: Vec<String>,
    /// The parameters to configure them with.
    #[arg(long, value_name = "JSON", default_value = "{}")]
    parameters: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    compile: Compile,
}

impl Bench {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let given = Value::Object(parameters::parse("--parameters", &self.parameters)?).to_string();
        let sandbox = Sandbox::new(self.compile.config(small()))?;
        let mut headings: Vec<String> =
            ["POLICY", ">BYTES", ">COMPILE ms", ">START us", ">MEMORY", ">IMPORTS"].map(str::to_owned).to_vec();
        headings.extend(ROWS.iter().flat_map(|rows| [format!(">us, {rows}"), format!(">fuel, {rows}")]));
        let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
        let (mut table, mut values) = (output::table(&headings), Vec::new());
        let beside = BESIDE.into_iter().map(|name| (name, "{}"));
        for (policy, parameters) in self.policies.iter().map(|policy| (policy.as_str(), given.as_str())).chain(beside) {
            let measured = measure(&sandbox, policy, parameters)?;
            let Measured { bytes, compile_ms, start_us, memory_bytes, imports, .. } = measured;
            let mut cells = vec![output::printable(policy).into_owned()];
            cells.extend([bytes, compile_ms, start_us, memory_bytes, imports].map(output::grouped));
            for (us, fuel) in &measured.by_rows {
                cells.extend([format!("{us:.1}"), output::grouped(*fuel)]);
            }
            table.add_row(cells);
            let by_rows: Vec<Value> = ROWS
                .iter()
                .zip(&measured.by_rows)
                .map(|(rows, (us, fuel))| json!({"rows": rows, "us": us, "fuel": fuel}))
                .collect();
            values.push(json!({
                "policy": policy, "bytes": bytes, "compile_ms": compile_ms, "start_us": start_us,
                "memory_bytes": memory_bytes, "imports": imports, "decisions": by_rows,
            }));
        }
        if self.json { output::json(&values) } else { output::text(&output::rendered(&table)) }?;
        Ok(())
    }
}

struct Measured {
    bytes: u64,
    compile_ms: u64,
    /// To instantiate and configure.
    start_us: u64,
    /// Of the guest's memories, after all decisions.
    memory_bytes: u64,
    imports: u64,
    by_rows: Vec<(f64, u64)>,
}

fn measure(sandbox: &Sandbox, name: &str, parameters: &str) -> Result<Measured, CliError> {
    let artifact = source::artifact_or_folder(name)?;
    let started = Instant::now();
    let (policy, profile) = source::load_any(sandbox, &artifact)?;
    let compile_ms = started.elapsed().as_millis() as u64;
    let failed = |message: String| CliError::Bench { policy: name.to_owned(), message };
    let start = || {
        let started = Instant::now();
        let trial = Trial::start(&policy, profile, partition(), RouterConfig::default(), parameters.to_owned());
        let trial = trial.map_err(|error| failed(error.to_string()))?;
        Ok::<_, CliError>((trial, started.elapsed().as_micros() as u64))
    };
    let (mut trial, first) = start()?;
    let mut starts = vec![first];
    for _ in 1..STARTS {
        starts.push(start()?.1);
    }
    starts.sort_unstable();
    let start_us = starts.get(STARTS / 2).copied().unwrap_or(first);
    if !trial.guest.stages().selects_workers() {
        return Err(failed("it is a classifier, and chooses no worker".to_owned()));
    }
    let (mut by_rows, mut seed) = (Vec::new(), 1);
    for rows in ROWS {
        let mut taken = Vec::with_capacity(DECISIONS);
        for _ in 0..DECISIONS {
            let table = random_table(&trial.guest, rows, &mut seed);
            let started = Instant::now();
            trial.decide(&table).map_err(failed)?;
            taken.push((started.elapsed().as_secs_f64() * 1e6, trial.fuel));
        }
        taken.sort_by(|one, other| one.0.total_cmp(&other.0));
        by_rows.extend(taken.get(DECISIONS / 2).copied());
    }
    let (bytes, imports) = (policy.size_bytes() as u64, policy.imports().len() as u64);
    Ok(Measured { bytes, compile_ms, start_us, memory_bytes: trial.memory_bytes(), imports, by_rows })
}
