//! `pointsman policy check`: what a router will find, found before.

use std::sync::Arc;
use std::time::Instant;

use pointsman_contract::{Event, RouterConfig};
use pointsman_sandbox::{CompiledPolicy, Outcome, Profile, Sandbox};
use serde_json::{Map, Value, json};

use super::trial::{Trial, random_table};
use super::{partition, small, stage_names};
use crate::compile::Compile;
use crate::error::CliError;
use crate::{output, parameters, source};

/// Checks a policy: the contract, its imports and limits, its start, its parameters, and that two guests decide alike.
#[derive(clap::Args)]
pub(crate) struct Check {
    /// A built-in policy's name, a component's file, or a policy's folder, which is built first.
    #[arg(value_name = "NAME|FILE.wasm|DIR", default_value = ".")]
    policy: String,
    /// The parameters to configure it with.
    #[arg(long, value_name = "JSON", default_value = "{}")]
    parameters: String,
    /// How often each of two guests is called, to show that they decide alike and what memory they come to hold.
    #[arg(long, value_name = "N", default_value = "1000", value_parser = clap::value_parser!(u32).range(10..))]
    calls: u32,
    #[command(flatten)]
    compile: Compile,
}

impl Check {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let given = parameters::parse("--parameters", &self.parameters)?;
        let artifact = source::artifact_or_folder(&self.policy)?;
        let sandbox = Sandbox::new(self.compile.config(small()))?;
        let started = Instant::now();
        let (policy, profile) = source::load_any(&sandbox, &artifact)?;
        let compiled = started.elapsed();
        let manifest = policy.manifest();
        say(
            "contract",
            &format!("pointsman:policy@{}, {}", policy.wit_version(), stage_names(policy.stages()).join(", ")),
        )?;
        let wasi = if policy.imports_wasi() { ", `wasi: true`" } else { "" };
        say("imports", &format!("{}{wasi}", policy.imports().len()))?;
        say("limits", &format!("profile {}", profile.as_str()))?;
        say("compile", &format!("{} ms", compiled.as_millis()))?;
        let problems: Vec<String> = [
            start(&policy, profile, &given).map(|_| ()),
            takes_no_other(&policy, profile, &given),
            schema(&manifest.parameters_schema),
            alike(&policy, profile, &given, self.calls),
        ]
        .into_iter()
        .filter_map(Result::err)
        .collect();
        for problem in &problems {
            say("PROBLEM", problem)?;
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(CliError::Checks { policy: artifact.origin().to_owned(), problems: problems.len() })
        }
    }
}

fn say(what: &str, words: &str) -> std::io::Result<()> {
    output::text(&format!("{what:<12}{}", output::printable(words)))
}

fn start(policy: &Arc<CompiledPolicy>, profile: Profile, given: &Map<String, Value>) -> Result<Trial, String> {
    let started = Instant::now();
    let parameters = Value::Object(given.clone()).to_string();
    let trial = Trial::start(policy, profile, partition(), RouterConfig::default(), parameters)
        .map_err(|error| format!("it does not start: {error}"))?;
    say("start-up", &format!("{} us", started.elapsed().as_micros())).map_err(|error| error.to_string())?;
    Ok(trial)
}

/// Whether a parameter that there is not is refused by name.
fn takes_no_other(policy: &Arc<CompiledPolicy>, profile: Profile, given: &Map<String, Value>) -> Result<(), String> {
    const OTHER: &str = "no_such_parameter";
    let mut other = given.clone();
    other.insert(OTHER.to_owned(), json!(1));
    let parameters = Value::Object(other).to_string();
    match Trial::start(policy, profile, partition(), RouterConfig::default(), parameters) {
        Err(error) if error.outcome == Outcome::PolicyError && error.message.contains(OTHER) => {
            say("parameters", "an unknown one is refused by name").map_err(|error| error.to_string())
        }
        Err(error) => Err(format!("it refuses the unknown parameter {OTHER} with `{error}`, which does not name it")),
        Ok(_) => Err(format!("it takes the unknown parameter {OTHER}")),
    }
}

fn schema(text: &str) -> Result<(), String> {
    let schema: Value = serde_json::from_str(text).map_err(|error| format!("its parameters' schema: {error}"))?;
    if schema.get("type") == Some(&json!("object")) {
        Ok(())
    } else {
        Err("its parameters' schema is not that of an object".to_owned())
    }
}

/// Two guests decide alike and use the same fuel, call by call.
fn alike(policy: &Arc<CompiledPolicy>, profile: Profile, given: &Map<String, Value>, calls: u32) -> Result<(), String> {
    let guest = || {
        let parameters = Value::Object(given.clone()).to_string();
        Trial::start(policy, profile, partition(), RouterConfig::default(), parameters)
            .map_err(|error| error.to_string())
    };
    let (mut one, mut other) = (guest()?, guest()?);
    let (mut seed, mut fuel, mut early) = (1, 0, 0);
    for call in 1..=calls {
        let table = random_table(&one.guest, call % 64 + 1, &mut seed);
        let said = [&mut one, &mut other].map(|trial| ask(trial, call, &table));
        let [first, second] = said;
        let (first, second) = (first?, second?);
        if first != second {
            return Err(format!("call {call} came out as {} in one guest and as {} in another", first.0, second.0));
        }
        fuel += first.1;
        if call == calls / 2 {
            early = one.memory_bytes();
        }
    }
    let fuel = output::grouped(fuel / u64::from(calls));
    let more = output::grouped(one.memory_bytes() - early);
    let memory = output::grouped(one.memory_bytes());
    say("alike", &format!("{calls} calls, {fuel} fuel each"))
        .and_then(|()| say("memory", &format!("{memory} bytes, {more} more than after {} calls", calls / 2)))
        .map_err(|error| error.to_string())
}

/// What a call came out as, and its fuel.
fn ask(trial: &mut Trial, call: u32, table: &pointsman_routing::GivenTable) -> Result<(String, u64), String> {
    let said = if trial.guest.stages().classify {
        let verdict = trial.classify(call, table)?;
        let ended = Event::Completed { ticket: call, worker: 0, context_tokens: None };
        let resolved = trial.guest.on_event(&ended, call.into()).map_err(|fault| fault.to_string())?;
        format!("{verdict:?} {resolved:?}")
    } else {
        let decision = trial.decide(table)?;
        let costs: Vec<u64> = decision.costs.iter().map(|cost| cost.to_bits()).collect();
        format!("{:?} {costs:?}", decision.row)
    };
    Ok((said, trial.fuel))
}
