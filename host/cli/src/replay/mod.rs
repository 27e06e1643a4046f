//! `pointsman replay`: a trace against simulated workers, once for each policy.

mod arguments;
mod listener;
mod runs;

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use pointsman_contract::Role;
use pointsman_replay::{Fleet, GENERATED_REQUESTS, Options, Report, Run, Trace, TraceReport, WallClock};
use pointsman_routing::StageMode;
use pointsman_routing::config::Overrides;
use pointsman_sandbox::Determinism;

use self::arguments::{Policies, Policy, Pools};
use self::listener::Listener;
use self::runs::Setup;
use crate::error::CliError;
use crate::output;
use crate::register::Registration;

/// The policies of a replay that names none.
const COMPARED: [&str; 3] = ["round-robin", "least-loaded", "dynamo-default-cost-fn"];

/// The variable that names the router-policy file.
const CONFIG_VARIABLE: &str = "DYN_ROUTER_POLICY_CONFIG";

/// Replays a trace against simulated workers, once for each policy, and compares them.
///
/// Time is virtual: the same trace, policies and seed give the same decisions on every machine. Without a policy,
/// round-robin, least-loaded and dynamo-default-cost-fn are compared.
#[derive(clap::Args)]
pub(crate) struct Replay {
    /// The trace, Mooncake's JSON lines or Azure's CSV; a generated one unless given.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    policies: Policies,
    /// Registers a component as a policy type for the router-policy files; may be repeated.
    #[arg(long, value_name = "TYPE=FILE.wasm")]
    register: Vec<Registration>,
    /// Simulated workers.
    #[arg(long, value_name = "N", default_value_t = 16, conflicts_with = "disaggregate")]
    workers: u32,
    /// A pool of workers that prefill and one of workers that decode, such as 4:12.
    #[arg(long, value_name = "PREFILL:DECODE")]
    disaggregate: Option<Pools>,
    /// The seed of the policies' randomness, and of the generated trace.
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// How many times faster than in the trace the requests come.
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    speed: f64,
    /// Stops after so many requests of the trace.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Whether a policy that offers it decides in one crossing, or stage by stage.
    #[arg(long, value_enum, default_value_t = Stages::Fused)]
    stages: Stages,
    /// Whether NaNs that a policy computes have the same bits on every machine; the router-policy file's choice, or
    /// fast, unless given.
    #[arg(long, value_enum)]
    determinism: Option<Bits>,
    /// The instance that selects prefill workers, in place of the router-policy file's
    /// [env: DYN_ROUTER_PREFILL_POLICY].
    #[arg(long, value_name = "NAME")]
    router_prefill_policy: Option<String>,
    /// The instance that selects decode workers, in place of the router-policy file's
    /// [env: DYN_ROUTER_DECODE_POLICY].
    #[arg(long, value_name = "NAME")]
    router_decode_policy: Option<String>,
    /// Writes each decision as a line of JSON.
    #[arg(long, value_name = "FILE")]
    decisions: Option<PathBuf>,
    /// Writes the report as JSON; `-` for standard output, where the table then goes to standard error.
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
}

/// How the stages of one component are run.
#[derive(Clone, Copy, ValueEnum)]
enum Stages {
    Fused,
    Separate,
}

/// How far decisions are the same on every machine.
#[derive(Clone, Copy, ValueEnum)]
enum Bits {
    Fast,
    Portable,
}

impl Replay {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let policies = self.policies();
        self.refuse_without_config(&policies)?;
        let trace = match &self.trace {
            _ if self.limit == Some(0) => return Err(CliError::NoRequests),
            Some(path) => Trace::open(path, self.limit)?,
            None => Trace::generated(self.seed, self.limit.unwrap_or(GENERATED_REQUESTS).min(GENERATED_REQUESTS)),
        };
        let fleet = self.disaggregate.map_or(Fleet::Aggregated { workers: self.workers }, |Pools(fleet)| fleet);
        let runs = self.setup(fleet)?.prepare(&policies)?;
        let mut decisions = self.decisions.as_deref().map(create).transpose()?.map(BufWriter::new);
        let json = self.json.as_deref().filter(|path| *path != Path::new("-")).map(touch).transpose()?;

        let options = Options { fleet, seed: self.seed, speed: self.speed, ..Options::default() };
        let mut report = Report { trace: TraceReport::of(&trace), runs: Vec::new() };
        for runs::Prepared { label, router } in runs {
            let mut listener = Listener::new(&label, trace.len(), decisions.as_mut());
            let run = Run { label: &label, trace: &trace, router: &router, options: &options };
            report.runs.push(run.execute(&WallClock::start(), &mut listener)?);
        }
        if let (Some(mut file), Some(path)) = (decisions, &self.decisions) {
            file.flush().map_err(|source| CliError::Write { path: path.clone(), source })?;
        }
        match (json, &self.json) {
            (Some(file), Some(path)) => {
                write_json(file, &report).map_err(|source| CliError::Write { path: path.clone(), source })?;
                output::text(&report.to_string())?;
            }
            (None, Some(_)) => {
                // The table is for people; where they cannot be told, scripts still can.
                let _ = io::stderr().write_all(report.to_string().as_bytes());
                output::json(&report)?;
            }
            (_, None) => output::text(&report.to_string())?,
        }
        Ok(())
    }

    /// The policies of the command line, else the file that the variable names, else the three that are compared.
    fn policies(&self) -> Vec<(Policy, Option<String>)> {
        if !self.policies.0.is_empty() {
            return self.policies.0.clone();
        }
        match std::env::var_os(CONFIG_VARIABLE).filter(|file| !file.is_empty()) {
            Some(file) => vec![(Policy::Config(file.into()), None)],
            None => COMPARED.map(|name| (Policy::Named(name.to_owned()), None)).to_vec(),
        }
    }

    /// What means something beside a router-policy file alone is refused without one, not ignored.
    fn refuse_without_config(&self, policies: &[(Policy, Option<String>)]) -> Result<(), CliError> {
        if policies.iter().any(|(policy, _)| matches!(policy, Policy::Config(_))) {
            return Ok(());
        }
        let given = [
            (!self.register.is_empty(), "--register"),
            (self.router_prefill_policy.is_some(), "--router-prefill-policy"),
            (self.router_decode_policy.is_some(), "--router-decode-policy"),
        ];
        match given.into_iter().find(|(given, _)| *given) {
            Some((_, option)) => Err(CliError::NeedsConfig { option }),
            None => Ok(()),
        }
    }

    fn setup(&self, fleet: Fleet) -> Result<Setup<'_>, CliError> {
        let mut overrides = Overrides::from_env(|name| std::env::var_os(name))?;
        overrides.prefill = self.router_prefill_policy.clone().or(overrides.prefill);
        overrides.decode = self.router_decode_policy.clone().or(overrides.decode);
        Ok(Setup {
            seed: self.seed,
            mode: match self.stages {
                Stages::Fused => StageMode::Fused,
                Stages::Separate => StageMode::Separate,
            },
            determinism: self.determinism.map(|bits| match bits {
                Bits::Fast => Determinism::Fast,
                Bits::Portable => Determinism::Portable,
            }),
            roles: match fleet {
                Fleet::Aggregated { .. } => &[Role::Aggregated],
                Fleet::Disaggregated { .. } => &[Role::Prefill, Role::Decode],
            },
            register: &self.register,
            overrides,
        })
    }
}

fn create(path: &Path) -> Result<File, CliError> {
    File::create(path).map_err(|source| CliError::Write { path: path.to_owned(), source })
}

/// Opens a file for writing, and leaves what it holds until there is something to put in its place.
fn touch(path: &Path) -> Result<File, CliError> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    file.map_err(|source| CliError::Write { path: path.to_owned(), source })
}

fn write_json(file: File, report: &Report) -> io::Result<()> {
    // A device or a pipe has no length.
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    let mut file = BufWriter::new(file);
    serde_json::to_writer_pretty(&mut file, report)?;
    file.write_all(b"\n")?;
    file.flush()
}
