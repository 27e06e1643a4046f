//! `pointsman replay`: a trace against simulated workers, once for each policy.

mod arguments;
mod listener;
mod runs;
mod taps;

use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use pointsman_contract::Role;
use pointsman_replay::{Fleet, GENERATED_REQUESTS, Options, ReplayError, Report, Run, Trace, TraceReport, WallClock};
use pointsman_routing::StageMode;
use pointsman_routing::config::{DECODE_VARIABLE, GLOBAL_VARIABLE, Overrides, PREFILL_VARIABLE};
use pointsman_sandbox::Determinism;
use serde::Serialize;

use self::arguments::{Policies, Policy, Pools, Speed, workers};
use self::listener::Listener;
use self::runs::Setup;
use self::taps::{Shadowed, TapOptions, Taps};
use crate::compile::Compile;
use crate::error::CliError;
use crate::files::{OutputFile, refuse_shared};
use crate::output;
use crate::register::Registration;

/// The policies of a replay that names none.
const COMPARED: [&str; 3] = ["round-robin", "least-loaded", "dynamo-default-cost-fn"];

/// The variable that names the router-policy file.
const CONFIG_VARIABLE: &str = "DYN_ROUTER_POLICY_CONFIG";

/// The workers of a pool that can be simulated.
const WORKERS: RangeInclusive<u32> = 1..=100_000;

/// The speeds that can be simulated.
const SPEEDS: RangeInclusive<f64> = 0.001..=1_000_000.0;

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
    #[arg(long, value_name = "N", default_value_t = 16, conflicts_with = "disaggregate", value_parser = workers,
          allow_negative_numbers = true)]
    workers: u32,
    /// A pool of workers that prefill and one of workers that decode, such as 4:12.
    #[arg(long, value_name = "PREFILL:DECODE")]
    disaggregate: Option<Pools>,
    /// The seed of the policies' randomness, and of the generated trace.
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// How many times faster than in the trace the requests come.
    #[arg(long, value_name = "X", default_value = "1", allow_negative_numbers = true)]
    speed: Speed,
    /// Stops after so many requests of the trace.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Gives each request without a session one, by the prompts alone: a request continues the session whose latest prompt
    /// its own begins with.
    #[arg(long)]
    derive_sessions: bool,
    /// Whether a policy that offers it decides in one crossing, or stage by stage.
    #[arg(long, value_enum, default_value_t = Stages::Fused)]
    stages: Stages,
    /// Whether NaNs that a policy computes have the same bits on every machine; the router-policy file's choice, or
    /// fast, unless given.
    #[arg(long, value_enum)]
    determinism: Option<Bits>,
    /// The instance that selects prefill workers, in place of the router-policy file's; refused without such a file,
    /// where the variable has no effect [env: DYN_ROUTER_PREFILL_POLICY].
    #[arg(long, value_name = "NAME")]
    router_prefill_policy: Option<String>,
    /// The instance that selects decode workers, in place of the router-policy file's; refused without such a file,
    /// where the variable has no effect [env: DYN_ROUTER_DECODE_POLICY].
    #[arg(long, value_name = "NAME")]
    router_decode_policy: Option<String>,
    /// Writes each decision as a line of JSON.
    #[arg(long, value_name = "FILE")]
    decisions: Option<PathBuf>,
    /// Writes the report as JSON; `-` for standard output, where the table then goes to standard error.
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
    #[command(flatten)]
    compile: Compile,
    #[command(flatten)]
    taps: TapOptions,
}

/// The report, with what is told beside it.
#[derive(Serialize)]
struct Reported<'a> {
    #[serde(flatten)]
    report: &'a Report,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    shadows: &'a [Shadowed],
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
        let fleet = self.disaggregate.map_or(Fleet::Aggregated { workers: self.workers }, |Pools(fleet)| fleet);
        self.refuse_impossible(fleet)?;
        let outputs: Vec<(&'static str, &Path)> = [
            ("--decisions", self.decisions.as_deref()),
            ("--json", self.json_file()),
            ("--record", self.taps.recording.record.as_deref()),
        ]
        .into_iter()
        .filter_map(|(option, path)| Some((option, path?)))
        .collect();
        refuse_shared(&self.inputs(&policies), &outputs)?;
        let mut trace = match &self.trace {
            Some(path) => Trace::open(path, self.limit)?,
            None => Trace::generated(self.seed, self.limit.unwrap_or(GENERATED_REQUESTS).min(GENERATED_REQUESTS)),
        };
        if self.derive_sessions {
            trace.derive_sessions();
        }
        let setup = self.setup(fleet)?;
        let runs = setup.prepare(&policies)?;
        let candidate = setup.prepare(self.taps.candidate().as_slice())?;
        let named = runs
            .iter()
            .chain(&candidate)
            .flat_map(|run| &run.components)
            .map(|path| ("a component of the router-policy file", path.clone()));
        refuse_shared(&named.collect::<Vec<_>>(), &outputs)?;
        let mut decisions = self.decisions.as_deref().map(OutputFile::open).transpose()?;
        let json = self.json_file().map(OutputFile::open).transpose()?;
        let candidate = candidate.into_iter().next().map(|candidate| candidate.router);
        let taps = Taps::open(&self.taps, candidate, self.seed, setup.roles)?;

        let options = Options { fleet, seed: self.seed, speed: self.speed.value, ..Options::default() };
        let mut shadows = Vec::new();
        let mut report = Report { trace: TraceReport::of(&trace), runs: Vec::new() };
        for runs::Prepared { label, router, .. } in runs {
            let mut listener = Listener::new(&label, trace.len(), decisions.as_mut());
            let run = Run { label: &label, trace: &trace, router: &router, options: &options };
            let run = || Ok(run.execute(&WallClock::start(), &mut listener)?);
            report.runs.push(taps.around(&label, &router, &mut shadows, run)?);
        }
        taps.finish()?;
        if let Some(file) = decisions {
            file.finish(|_| Ok(()))?;
        }
        let reported = Reported { report: &report, shadows: &shadows };
        let mut text = report.to_string();
        if !shadows.is_empty() {
            text.push_str(&format!("\n{}", taps::as_text(&shadows)));
        }
        match (json, &self.json) {
            (Some(file), _) => {
                file.finish(|file| {
                    serde_json::to_writer_pretty(&mut *file, &reported)?;
                    file.write_all(b"\n")
                })?;
                output::text(&text)?;
            }
            (None, Some(_)) => {
                // The table is for people; where they cannot be told, scripts still can.
                let _ = io::stderr().write_all(text.as_bytes());
                output::json(&reported)?;
            }
            (None, None) => output::text(&text)?,
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

    /// The file of the report; none for standard output.
    fn json_file(&self) -> Option<&Path> {
        self.json.as_deref().filter(|path| *path != Path::new("-"))
    }

    /// Every file that the command line names to be read, with its option.
    fn inputs(&self, policies: &[(Policy, Option<String>)]) -> Vec<(&'static str, PathBuf)> {
        let trace = self.trace.iter().map(|path| ("--trace", path.clone()));
        let policies = policies.iter().filter_map(|(policy, _)| match policy {
            Policy::Named(_) => None,
            Policy::Component(path) => Some(("--component", path.clone())),
            Policy::Config(path) => Some(("--router-policy-config", path.clone())),
        });
        let register = self.register.iter().map(|registration| ("--register", registration.path.clone()));
        let shadow = self.taps.candidate().and_then(|(policy, _)| match policy {
            Policy::Named(_) => None,
            Policy::Component(path) | Policy::Config(path) => Some(("--shadow", path)),
        });
        trace.chain(policies).chain(register).chain(shadow).collect()
    }

    /// What no run could do, said before anything is read or written.
    fn refuse_impossible(&self, fleet: Fleet) -> Result<(), CliError> {
        if self.limit == Some(0) {
            return Err(CliError::NoRequests);
        }
        self.taps.refuse_impossible()?;
        let pools: &[(Role, u32)] = match fleet {
            Fleet::Aggregated { workers } => &[(Role::Aggregated, workers)],
            Fleet::Disaggregated { prefill, decode } => &[(Role::Prefill, prefill), (Role::Decode, decode)],
        };
        if let Some(&(role, workers)) = pools.iter().find(|(_, workers)| !WORKERS.contains(workers)) {
            return Err(ReplayError::Workers { role, workers }.into());
        }
        if !SPEEDS.contains(&self.speed.value) {
            return Err(CliError::Speed { speed: self.speed.given.clone(), range: SPEEDS });
        }
        Ok(())
    }

    /// What means something beside a router-policy file alone is refused without one, not ignored.
    fn refuse_without_config(&self, policies: &[(Policy, Option<String>)]) -> Result<(), CliError> {
        let candidate = self.taps.candidate();
        if policies.iter().chain(&candidate).any(|(policy, _)| matches!(policy, Policy::Config(_))) {
            return Ok(());
        }
        let given = [
            (!self.register.is_empty(), "--register"),
            (self.router_prefill_policy.is_some(), "--router-prefill-policy"),
            (self.router_decode_policy.is_some(), "--router-decode-policy"),
        ];
        if let Some((_, option)) = given.into_iter().find(|(given, _)| *given) {
            return Err(CliError::NeedsConfig { option });
        }
        // They may be set for other programs, so they are no mistake here.
        for variable in [GLOBAL_VARIABLE, PREFILL_VARIABLE, DECODE_VARIABLE] {
            if std::env::var_os(variable).is_some_and(|name| !name.is_empty()) {
                tracing::warn!(
                    "{variable} has no effect without a router-policy file; add --router-policy-config FILE"
                );
            }
        }
        Ok(())
    }

    fn setup(&self, fleet: Fleet) -> Result<Setup<'_>, CliError> {
        let mut overrides = Overrides::from_env(|name| std::env::var_os(name))?;
        overrides.prefill = self.router_prefill_policy.clone().or(overrides.prefill);
        overrides.decode = self.router_decode_policy.clone().or(overrides.decode);
        Ok(Setup {
            compile: &self.compile,
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
