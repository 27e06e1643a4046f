//! Test cases of a policy: a file of YAML or JSON, and what a component makes of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use pointsman_contract::{Event, Progress, Verdict};
use pointsman_routing::GivenTable;
use pointsman_sandbox::{CompiledPolicy, Outcome, Profile};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::table_file::{self, TableFile};
use super::trial::Trial;

/// Every case of a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cases {
    pub(super) cases: Vec<Case>,
}

/// One guest with its parameters, and what is asked of it: one decision, or the steps of a classifier.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    pub(super) name: String,
    #[serde(default)]
    parameters: Map<String, Value>,
    #[serde(default)]
    partition: table_file::PartitionFields,
    #[serde(default)]
    router_config: table_file::RouterFields,
    #[serde(default)]
    facts: BTreeMap<String, Option<f64>>,
    #[serde(default)]
    texts: BTreeMap<String, String>,
    #[serde(default)]
    workers: Vec<table_file::Worker>,
    #[serde(default)]
    steps: Vec<Step>,
    #[serde(default)]
    expect: Expect,
}

/// What one decision must be; what is left out is not looked at.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Expect {
    /// The chosen worker and its rank.
    worker: Option<u64>,
    rank: Option<u32>,
    /// The cost of each kept row, to the last bit.
    costs: Option<Vec<f64>>,
    /// The workers that the filter keeps.
    kept: Option<Vec<u64>>,
    /// The policy's sentence about its parameters.
    refused: Option<String>,
    /// Words of the decision's error.
    error: Option<String>,
}

/// What happens to a classifier; one of the first six.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Step {
    /// The ticket of a new request.
    classify: Option<u32>,
    sent: Option<u32>,
    responding: Option<u32>,
    completed: Option<u32>,
    aborted: Option<u32>,
    /// The live requests' tickets and tokens.
    tick: Option<Vec<(u32, u32)>>,
    /// The time of an event or a tick, in milliseconds.
    now_ms: f64,
    /// The number of the worker of an event.
    worker: u32,
    facts: BTreeMap<String, Option<f64>>,
    texts: BTreeMap<String, String>,
    /// What becomes of the request: `admit`, `defer` or `reject`.
    expect: Option<String>,
    /// The deferred requests that an event or a tick lets in.
    admits: Option<Vec<u32>>,
    /// Those that it ends.
    rejects: Vec<u32>,
}

impl Cases {
    /// Reads JSON or YAML; the error says where.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.trim_start().starts_with('{') {
            return serde_json::from_str(text).map_err(|error| error.to_string());
        }
        let options = serde_saphyr::options! { with_snippet: false };
        serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string())
    }
}

impl Case {
    /// Runs the case on a guest of its own; an error says what was not as expected.
    pub(super) fn run(self, policy: &Arc<CompiledPolicy>, profile: Profile) -> Result<(), String> {
        let Self { name: _, parameters, partition, router_config, facts, texts, workers, steps, expect } = self;
        let file = table_file::File { partition, router_config, facts, texts, workers };
        let TableFile { partition, router_config, mut table } = file.check()?;
        table.workers.sort_by_key(|(key, _)| *key);
        let parameters = Value::Object(parameters).to_string();
        let mut trial = match (Trial::start(policy, profile, partition, router_config, parameters), &expect.refused) {
            (Ok(trial), None) => trial,
            (Ok(_), Some(_)) => return Err("its parameters were taken".to_owned()),
            (Err(error), None) => return Err(error.to_string()),
            (Err(error), Some(sentence)) => {
                let as_expected = error.outcome == Outcome::PolicyError && error.message == *sentence;
                return if as_expected { Ok(()) } else { Err(error.to_string()) };
            }
        };
        for (place, step) in steps.iter().enumerate() {
            step.run(&mut trial).map_err(|message| format!("step {}: {message}", place + 1))?;
        }
        if table.workers.is_empty() { Ok(()) } else { expect.hold(&table, &mut trial) }
    }
}

impl Expect {
    fn hold(&self, table: &GivenTable, trial: &mut Trial) -> Result<(), String> {
        let decision = match (trial.decide(table), &self.error) {
            (Ok(decision), None) => decision,
            (Ok(_), Some(words)) => return Err(format!("it decided, and should have failed with `{words}`")),
            (Err(message), Some(words)) if message.contains(words.as_str()) => return Ok(()),
            (Err(message), _) => return Err(message),
        };
        let key = |row: u32| table.workers.get(row as usize).map(|(key, _)| *key);
        let chosen = decision.row.and_then(key);
        let wanted = self.worker.is_none_or(|worker| chosen.is_some_and(|key| key.worker == worker))
            && self.rank.is_none_or(|rank| chosen.is_some_and(|key| key.rank == rank));
        if !wanted {
            let chosen = chosen.map_or_else(|| "no worker".to_owned(), |key| format!("worker {}", key.worker));
            return Err(format!("it chose {chosen}, at costs {:?}", decision.costs));
        }
        if self.costs.as_ref().is_some_and(|costs| *costs != decision.costs) {
            return Err(format!("its costs are {:?}", decision.costs));
        }
        let kept: Vec<u64> = decision.kept.iter().filter_map(|row| key(*row)).map(|key| key.worker).collect();
        if self.kept.as_ref().is_some_and(|expected| *expected != kept) {
            return Err(format!("its filter kept the workers {kept:?}"));
        }
        Ok(())
    }
}

impl Step {
    fn run(&self, trial: &mut Trial) -> Result<(), String> {
        let Some(ticket) = self.classify else { return self.resolve(trial) };
        let numbers = |(name, value): (&String, &Option<f64>)| (name.clone(), value.unwrap_or(f64::NAN));
        let texts = |(name, text): (&String, &String)| (name.clone(), text.clone());
        let table = GivenTable {
            facts: self.facts.iter().map(numbers).collect(),
            texts: self.texts.iter().map(texts).collect(),
            workers: Vec::new(),
        };
        let became = match trial.classify(ticket, &table)? {
            None => "defer",
            Some(Verdict::Admit(_)) => "admit",
            Some(Verdict::Reject(_)) => "reject",
        };
        if self.expect.as_deref().is_none_or(|expected| expected == became) {
            Ok(())
        } else {
            Err(format!("ticket {ticket}: the verdict is {became}"))
        }
    }

    fn resolve(&self, trial: &mut Trial) -> Result<(), String> {
        let worker = self.worker;
        let event = match self {
            Self { sent: Some(ticket), .. } => Event::Sent { ticket: *ticket, worker },
            Self { responding: Some(ticket), .. } => Event::Responding { ticket: *ticket, worker },
            Self { completed: Some(ticket), .. } => Event::Completed { ticket: *ticket, worker, context_tokens: None },
            Self { aborted: Some(ticket), .. } => Event::Aborted { ticket: *ticket, worker: None, error: None },
            Self { tick: Some(grown), .. } => {
                let grown: Vec<Progress> =
                    grown.iter().map(|&(ticket, context_tokens)| Progress { ticket, context_tokens }).collect();
                return self.compare(trial.guest.on_tick(self.now_ms, &grown).map_err(|fault| fault.to_string())?);
            }
            _ => return Err("it says nothing that happens; give classify, completed, aborted or another".to_owned()),
        };
        let resolved = trial.guest.on_event(&event, self.now_ms).map_err(|fault| fault.to_string())?;
        self.compare(resolved)
    }

    fn compare(&self, resolved: Vec<pointsman_contract::Resolution>) -> Result<(), String> {
        let (admitted, rejected): (Vec<_>, Vec<_>) =
            resolved.into_iter().partition(|resolution| matches!(resolution.verdict, Verdict::Admit(_)));
        let tickets = |resolutions: Vec<pointsman_contract::Resolution>| -> Vec<u32> {
            resolutions.into_iter().map(|resolution| resolution.ticket).collect()
        };
        let (admitted, rejected) = (tickets(admitted), tickets(rejected));
        if self.admits.as_ref().is_some_and(|expected| *expected != admitted) || self.rejects != rejected {
            return Err(format!("it admitted {admitted:?} and rejected {rejected:?}"));
        }
        Ok(())
    }
}
