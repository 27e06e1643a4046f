//! `pointsman record`: shows recorded decisions and makes them again.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use pointsman_contract::CONTRACT_VERSION;
use pointsman_record::{
    Answer, Difference, End, Record, RecordError, Replacement, ReplayOptions, ReplayReport, Summary,
};
use pointsman_sandbox::{Artifact, SandboxConfig};
use serde::Serialize;

use crate::compile::Compile;
use crate::error::CliError;
use crate::register::Registration;
use crate::{output, parameters, source};

/// Shows recorded decisions and makes them again.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    Replay(Box<Replay>),
    Show(Show),
}

impl Command {
    pub(crate) fn run(self) -> Result<(), CliError> {
        match self {
            Self::Replay(replay) => replay.run(),
            Self::Show(show) => show.run(),
        }
    }
}

/// Makes recorded decisions again.
///
/// The same component must give the same answers and use the same fuel: a decision that comes out otherwise ends the
/// command with exit code 1. With another component or other parameters it shows where the decisions differ.
#[derive(clap::Args)]
pub(crate) struct Replay {
    /// The file that `--record` wrote.
    file: PathBuf,
    /// A built-in policy or a component that decides in place of what was recorded; of one instance, where a policy has
    /// several. May be repeated.
    #[arg(long, value_name = "[INSTANCE=]NAME|FILE")]
    component: Vec<Component>,
    /// The parameters in place of those that were recorded.
    #[arg(long, value_name = "JSON")]
    parameters: Option<String>,
    /// The file of a component that was recorded and is not built in; it is known by its digest. May be repeated.
    #[arg(long, value_name = "TYPE=FILE.wasm")]
    register: Vec<Registration>,
    /// How many differences of each partition are listed.
    #[arg(long, value_name = "N", default_value_t = 10)]
    differences: usize,
    #[command(flatten)]
    compile: Compile,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Shows what a record holds.
#[derive(clap::Args)]
pub(crate) struct Show {
    /// The file that `--record` wrote.
    file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// One `--component`.
#[derive(Clone, Debug)]
struct Component {
    instance: Option<String>,
    name_or_file: String,
}

impl FromStr for Component {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (instance, policy) = match text.split_once('=') {
            Some((instance, policy)) if !Path::new(text).exists() => (Some(instance), policy),
            _ => (None, text),
        };
        if policy.is_empty() || instance.is_some_and(str::is_empty) {
            return Err("give FILE.wasm or INSTANCE=FILE.wasm, such as mine=least_busy.wasm");
        }
        Ok(Self { instance: instance.map(str::to_owned), name_or_file: policy.to_owned() })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    std::fs::read(path).map_err(|source| CliError::Read { path: path.to_owned(), source })
}

impl Replay {
    fn run(self) -> Result<(), CliError> {
        let bytes = read(&self.file)?;
        let record = Record::new(&bytes);
        let failed = |source: RecordError| CliError::Record { path: self.file.clone(), source };
        let summary = record.summary().map_err(failed)?;
        let options = self.options(&summary)?;
        let reports = pointsman_record::replay(&record, &options).map_err(failed)?;
        if self.json {
            output::json(&reports)?;
        } else {
            output::text(&replayed(&reports))?;
        }
        let sum = |count: fn(&ReplayReport) -> u64| reports.iter().map(count).sum::<u64>();
        if sum(|report| report.compared) == 0 && sum(|report| report.beginning_missing) > 0 {
            return Err(CliError::BeginningMissing { path: self.file });
        }
        let must_agree: Vec<&ReplayReport> = reports.iter().filter(|report| !report.replaced).collect();
        match must_agree.iter().map(|report| report.different).sum() {
            0 => Ok(()),
            differ => {
                Err(CliError::Differs { differ, compared: must_agree.iter().map(|report| report.compared).sum() })
            }
        }
    }

    fn options(&self, summary: &Summary) -> Result<ReplayOptions, CliError> {
        let members = summary.policies.iter().flat_map(|policy| &policy.spec.members);
        let recorded: BTreeSet<&str> = members.filter_map(|member| member.digest.as_deref()).collect();
        let mut artifacts: Vec<Artifact> = pointsman_policies::all().iter().map(source::built_in).collect();
        for Registration { path, .. } in &self.register {
            artifacts.push(Artifact::from_file(path)?);
        }
        let mut replacements = Vec::new();
        for Component { instance, name_or_file } in &self.component {
            let artifact = source::artifact(name_or_file)?;
            artifacts.push(artifact.clone());
            // One that was recorded replaces nothing, unless it is said to.
            if instance.is_some() || !recorded.contains(artifact.sha256_hex().as_str()) {
                replacements.push(Replacement {
                    instance: instance.clone(),
                    component: Some(artifact),
                    parameters: None,
                });
            }
        }
        if let Some(text) = &self.parameters {
            let given = parameters::parse("--parameters", text)?;
            let parameters = Some(serde_json::Value::Object(given).to_string());
            match replacements.as_mut_slice() {
                [] => replacements.push(Replacement { instance: None, component: None, parameters }),
                [replacement] => replacement.parameters = parameters,
                _ => return Err(CliError::ParametersOfMany),
            }
        }
        let sandbox = self.compile.config(SandboxConfig::default());
        Ok(ReplayOptions { artifacts, replacements, most_differences: self.differences, sandbox })
    }
}

fn replayed(reports: &[ReplayReport]) -> String {
    let headings = [
        "POLICY",
        "PARTITION",
        ">DECISIONS",
        ">COMPARED",
        ">AGREED",
        ">SAME FUEL",
        ">FUEL",
        ">FAULTS",
        ">NO BEGINNING",
        ">NOT COMPARABLE",
    ];
    let mut table = output::table(&headings);
    for report in reports {
        let count = |faults: &std::collections::BTreeMap<String, u64>| faults.values().sum::<u64>();
        table.add_row([
            output::printable(&report.label).into_owned(),
            output::printable(&report.partition).into_owned(),
            output::grouped(report.decisions),
            output::grouped(report.compared),
            output::grouped(report.agreed),
            output::grouped(report.fuel_equal),
            report.fuel_ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}x")),
            format!(
                "{} -> {}",
                output::grouped(count(&report.recorded_faults)),
                output::grouped(count(&report.faults))
            ),
            output::grouped(report.beginning_missing),
            output::grouped(report.not_comparable),
        ]);
    }
    let mut out = output::rendered(&table) + "\n";
    for report in reports {
        let label = output::printable(&report.label);
        if let Some(agreement) = report.agreement().filter(|_| report.replaced) {
            let _ = writeln!(out, "\n{label}: {:.2}% of the decisions are the same", agreement * 100.0);
        }
        for Difference { decision, recorded, replayed } in &report.differences {
            let (recorded, replayed) = (answer(recorded), answer(replayed));
            let _ = writeln!(out, "{label}, decision {decision}: {recorded} -> {replayed}");
        }
        if report.different > report.differences.len() as u64 {
            let more = report.different - report.differences.len() as u64;
            let _ = writeln!(out, "{label}: {} further differences", output::grouped(more));
        }
    }
    out
}

fn answer(Answer { worker, rank, cost, outcome, fuel, calls }: &Answer) -> String {
    let mut text = match (worker, rank, cost) {
        (Some(worker), Some(rank), Some(cost)) => format!("worker {worker}, rank {rank}, cost {cost}"),
        _ => "no worker".to_owned(),
    };
    if outcome != "ok" {
        let _ = write!(text, ", {}", output::printable(outcome));
    }
    if let Some(fuel) = fuel {
        let _ = write!(text, ", fuel {}", output::grouped(*fuel));
    }
    let calls: Vec<String> = calls.iter().map(|calls| output::grouped(*calls)).collect();
    let _ = write!(text, ", call {}", calls.join(" + "));
    text
}

/// The JSON of `record show`.
#[derive(Serialize)]
struct Shown<'a> {
    contract: &'static str,
    bytes: usize,
    #[serde(flatten)]
    summary: &'a Summary,
}

impl Show {
    fn run(self) -> Result<(), CliError> {
        let bytes = read(&self.file)?;
        let summary = Record::new(&bytes).summary();
        let summary = summary.map_err(|source| CliError::Record { path: self.file.clone(), source })?;
        if self.json {
            output::json(&Shown { contract: CONTRACT_VERSION, bytes: bytes.len(), summary: &summary })?;
        } else {
            output::text(&shown(bytes.len(), &summary))?;
        }
        Ok(())
    }
}

fn shown(bytes: usize, summary: &Summary) -> String {
    let begins = if summary.begins { "from the recorder's start" } else { "its beginning is missing" };
    let ends = match summary.ends {
        End::Complete => "to its end",
        End::Full => "until it was full",
        End::Cut => "its end is missing",
    };
    let mut out = format!(
        "{} decisions in {} bytes and {} frames, {begins}, {ends}; contract {CONTRACT_VERSION}\n",
        output::grouped(summary.decisions),
        output::grouped(bytes as u64),
        output::grouped(summary.frames)
    );
    if summary.passed_over_bytes > 0 {
        let _ = writeln!(out, "{} bytes cannot be read", output::grouped(summary.passed_over_bytes));
    }
    for policy in &summary.policies {
        let key = &policy.spec.told.key;
        let partition = format!("{}/{}/{}", key.model, key.routing_group, key.role);
        let _ = writeln!(
            out,
            "\n{} ({}), seed {}: {} decisions, {} guests replaced",
            output::printable(&policy.label),
            output::printable(&partition),
            policy.spec.told.seed,
            output::grouped(policy.decisions),
            output::grouped(policy.guests_replaced)
        );
        for member in &policy.spec.members {
            let digest =
                member.digest.as_ref().map_or_else(|| "native".to_owned(), |digest| format!("sha256:{digest}"));
            let (instance, parameters) = (output::printable(&member.instance), output::printable(&member.parameters));
            let _ = writeln!(out, "  {instance}: {}, parameters {parameters}", output::printable(&digest));
        }
        for (name, count) in &policy.otherwise {
            let _ = writeln!(out, "  {} x {}", output::grouped(*count), output::printable(name));
        }
    }
    out
}
