//! One decision over a table that a person wrote: contract names, nothing derived. For trying a policy out.

use std::ops::Range;

use pointsman_admission::WorkerKey;
use pointsman_contract::{Fact, Text, missing};
use pointsman_sandbox::{LoadStep, Outcome, Sandbox};

use crate::config::Instance;
use crate::error::RouterError;
use crate::member::{Guard, Member};
use crate::pipeline::{Explanation, Failure, Pipeline, StageFault, StageMode, Then};
use crate::plan::provider_error;
use crate::registry::{Provider, Registry};
use crate::router::{InstanceSpec, PartitionKey};
use crate::table::{Placed, Rows, Source};
use crate::vocabulary::{Plan, SignalId, Stage, TextId, Vocabulary};
use pointsman_contract::{Partition, RouterConfig};

/// A table as a person gives it: what is absent is missing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GivenTable {
    /// Facts by name.
    pub facts: Vec<(String, f64)>,
    /// Texts by name.
    pub texts: Vec<(String, String)>,
    /// Rows: a key, and signals by name. Sorted by key, each key once.
    pub workers: Vec<(WorkerKey, Vec<(String, f64)>)>,
}

/// What a policy made of a given table.
#[derive(Clone, Debug, PartialEq)]
pub struct GivenAnswer {
    /// The chosen row; none where the policy failed or its filter kept no row.
    pub row: Option<u32>,
    /// The chosen row's key.
    pub worker: Option<WorkerKey>,
    /// Its cost.
    pub cost: Option<f64>,
    /// `ok`, the fault's outcome, or `all-eligible-workers-filtered`.
    pub outcome: &'static str,
    /// What went wrong and where, in one sentence.
    pub message: Option<String>,
    /// Fuel of all stages.
    pub fuel: Option<u64>,
    /// The rows that the filter kept.
    pub kept: Vec<u32>,
    /// The columns that the policy read, in its order, one value a row.
    pub columns: Vec<(String, Vec<f64>)>,
    /// The scorers' costs, one list for each scorer, one cost for each kept row.
    pub costs: Vec<Vec<f64>>,
}

/// What serves a given table: a policy, its partition and its settings.
#[derive(Clone, Debug)]
pub struct GivenPolicy {
    /// The policy.
    pub provider: Provider,
    /// Its parameters, limits and fault settings.
    pub instance: InstanceSpec,
    /// The partition that it is told.
    pub partition: Partition,
    /// The router's settings that it is told.
    pub router_config: RouterConfig,
}

impl GivenTable {
    /// Decides once, stage by stage.
    ///
    /// # Errors
    /// A policy that cannot start; a name in the table that the contract does not know (`metric.`, `label.` and
    /// `header.` names are taken as they are).
    pub fn decide(mut self, sandbox: &Sandbox, policy: GivenPolicy) -> Result<GivenAnswer, RouterError> {
        self.workers.sort_by_key(|(key, _)| *key);
        let vocabulary = self.vocabulary();
        self.check(&vocabulary)?;
        let instance: Instance = policy.instance.into_instance();
        let mut registry = Registry::default();
        registry.register(&instance.name, policy.provider)?;
        let limits = instance.limits.resolve();
        let guest = registry.guest(sandbox, &instance, policy.partition, &policy.router_config, limits, None)?;
        let member = Member::new(instance.name.clone(), guest, instance.on_fault, Guard::default(), &vocabulary)
            .map_err(|message| provider_error(&instance, LoadStep::Configure, message))?;
        let select = member.plans.select.clone();
        let mut pipeline = Pipeline::single(member, StageMode::Separate);
        let source = GivenSource { table: &self, vocabulary: &vocabulary };
        Ok(source.decide(&mut pipeline, &select))
    }

    /// The contract's names and the operator's own that the table mentions.
    fn vocabulary(&self) -> Vocabulary {
        let mut vocabulary = Vocabulary::default();
        for (name, _) in self.workers.iter().flat_map(|(_, signals)| signals) {
            let own = name.starts_with("metric.") || name.starts_with("label.");
            if own && !vocabulary.extras.contains(name) {
                vocabulary.extras.push(name.clone());
            }
        }
        let headers = self.texts.iter().filter_map(|(name, _)| name.strip_prefix("header."));
        vocabulary.headers.extend(headers.map(str::to_owned));
        vocabulary
    }

    fn check(&self, vocabulary: &Vocabulary) -> Result<(), RouterError> {
        let unknown = |kind: &str, name: &str, available: &[&str]| {
            let available = available.join(", ");
            Err(RouterError::Config(format!("the table names the unknown {kind} `{name}`; available are {available}")))
        };
        let facts = Fact::ALL.iter().filter(|fact| fact.reader().includes(false));
        let facts: Vec<&str> = facts.map(|fact| fact.name()).collect();
        if let Some((name, _)) = self.facts.iter().find(|(name, _)| !facts.contains(&name.as_str())) {
            return unknown("fact", name, &facts);
        }
        let known = |name: &str| match vocabulary.text(name) {
            Some(TextId::Known(text)) => text.reader().includes(false),
            Some(TextId::Header(_)) => true,
            None => false,
        };
        if let Some((name, _)) = self.texts.iter().find(|(name, _)| !known(name)) {
            let texts = Text::ALL.iter().filter(|text| text.reader().includes(false));
            let texts: Vec<&str> = texts.map(|text| text.name()).collect();
            return unknown("text", name, &texts);
        }
        let known = |name: &str| matches!(vocabulary.signal(name), Some(SignalId::Known(_) | SignalId::Extra(_)));
        if let Some((name, _)) = self.workers.iter().flat_map(|(_, signals)| signals).find(|(name, _)| !known(name)) {
            let signals: Vec<&str> = pointsman_contract::Signal::ALL.iter().map(|signal| signal.name()).collect();
            return unknown("signal", name, &signals);
        }
        if let Some((name, value, range)) = self.facts.iter().find_map(|(name, value)| self.out_of_range(name, *value))
        {
            return Err(RouterError::Config(format!("the fact `{name}` is {value}; a host sends {range}")));
        }
        let twice = self.workers.iter().zip(self.workers.iter().skip(1)).find(|((a, _), (b, _))| a == b);
        match twice {
            Some(((key, _), _)) => {
                Err(RouterError::Config(format!("the table lists {key} twice; list each worker and rank once")))
            }
            None if self.workers.is_empty() => {
                Err(RouterError::Config("the table lists no worker; list at least one under `workers`".to_owned()))
            }
            None => Ok(()),
        }
    }
}

impl GivenTable {
    /// A fact that no host sends, with what one would send.
    fn out_of_range<'a>(&self, name: &'a str, value: f64) -> Option<(&'a str, f64, String)> {
        let rows = self.workers.len() as f64;
        let first = self.fact(Fact::AffinityFirst);
        let whole = |most: f64| value.is_nan() || (value >= 0.0 && value <= most && value.fract() == 0.0);
        let (fine, range) = match Fact::from_name(name)? {
            Fact::AffinityFirst => (whole(rows - 1.0), format!("a row from 0 to {}", rows - 1.0)),
            Fact::AffinityRows if value > 0.0 && first.is_nan() => {
                (false, "rows only with `request.affinity-first`".to_owned())
            }
            Fact::AffinityRows => {
                let most = if first.is_nan() { 0.0 } else { rows - first };
                (whole(most), format!("whole rows from the first of the target on, here 0 to {most}"))
            }
            Fact::Pinned | Fact::HasTierMatches | Fact::TracksPrefillTokens | Fact::SessionFinal => {
                (whole(1.0), "0 or 1".to_owned())
            }
            Fact::SessionTrigger => (whole(2.0), "0, 1 or 2".to_owned()),
            Fact::PromptTokens | Fact::Blocks | Fact::ExpectedOutputTokens | Fact::StrictPriority => {
                (whole(f64::MAX), "a whole number of at least 0".to_owned())
            }
            Fact::NowMs
            | Fact::PriorityJump
            | Fact::RouterTemperature
            | Fact::IngressMs
            | Fact::ContextTokens
            | Fact::DueMs
            | Fact::SchedulingCostTokens
            | Fact::PinnedWorker => (true, String::new()),
        };
        (!fine).then_some((name, value, range))
    }

    fn fact(&self, fact: Fact) -> f64 {
        self.facts.iter().find(|(name, _)| name == fact.name()).map_or_else(|| fact.absent(), |(_, value)| *value)
    }
}

struct GivenSource<'a> {
    table: &'a GivenTable,
    vocabulary: &'a Vocabulary,
}

impl GivenSource<'_> {
    fn decide(&self, pipeline: &mut Pipeline, select: &Plan) -> GivenAnswer {
        let rows = Rows::All(self.table.workers.len() as u32);
        let columns = select.signals.iter().map(|signal| {
            let mut column = vec![missing(); rows.len()];
            self.column(*signal, rows, &[], &mut column);
            (self.vocabulary.signal_name(*signal).to_owned(), column)
        });
        let columns = columns.collect();
        let mut explanation = Explanation::default();
        let decided = pipeline.decide(self, rows, Some(&mut explanation));
        let Explanation { kept, costs, fuel } = explanation;
        let mut answer = GivenAnswer {
            row: None,
            worker: None,
            cost: None,
            outcome: Outcome::Ok.as_str(),
            message: None,
            fuel,
            kept,
            columns,
            costs,
        };
        match decided {
            Ok(decided) => {
                answer.row = Some(decided.row);
                answer.worker = self.table.workers.get(decided.row as usize).map(|(key, _)| *key);
                answer.cost = Some(decided.cost);
                answer.fuel = decided.fuel;
            }
            Err(Failure { then, faults }) => match faults.into_iter().next() {
                None => answer.outcome = crate::DecideError::AllEligibleWorkersFiltered.name(),
                Some(StageFault { stage, fault, .. }) => {
                    answer.outcome = fault.outcome.as_str();
                    answer.message = Some(describe_fault(stage, &fault.message, then));
                }
            },
        }
        answer
    }
}

fn describe_fault(stage: Stage, message: &str, then: Then) -> String {
    let then = match then {
        Then::Refuse => "a router would refuse the request",
        Then::FallBack => "a router would let the default decide among the kept rows",
        Then::LastGood => "a router would let the previous version decide among the kept rows, or else the default",
        Then::Filtered => "the filter, asked once more, kept no row",
    };
    format!("stage {stage}: {message}; {then}")
}

impl Source for GivenSource<'_> {
    fn fact(&self, fact: Fact) -> f64 {
        self.table.fact(fact)
    }

    fn text(&self, text: TextId) -> Option<&str> {
        self.table
            .texts
            .iter()
            .find(|(name, _)| self.vocabulary.text(name) == Some(text))
            .map(|(_, text)| text.as_str())
    }

    fn column(&self, signal: SignalId, rows: Rows<'_>, _: &[Placed], out: &mut [f64]) {
        let name = self.vocabulary.signal_name(signal);
        rows.write(out, |row| {
            let signals = self.table.workers.get(row as usize).map_or(&[][..], |(_, signals)| signals);
            let given = |name: &str| signals.iter().find(|(given, _)| given == name).map(|(_, value)| *value);
            match signal {
                SignalId::Known(signal) => signal.of_given(self.fact(Fact::PromptTokens), given),
                SignalId::Extra(_) | SignalId::Cost => given(name).unwrap_or(missing()),
            }
        });
    }

    fn number(&self, row: u32) -> u32 {
        row
    }

    fn affinity(&self) -> Option<Range<u32>> {
        let rows = self.fact(Fact::AffinityRows);
        if rows.is_nan() {
            return None;
        }
        let first = self.fact(Fact::AffinityFirst);
        let first = if first.is_nan() { 0.0 } else { first };
        Some(first as u32..(first + rows) as u32)
    }
}

impl GivenPolicy {
    /// The policy under the default partition: model and group `default`, aggregated, block size 16, seed 0.
    #[must_use]
    pub fn new(provider: Provider, instance: InstanceSpec) -> Self {
        let PartitionKey { model, routing_group, role } = PartitionKey::default();
        let partition = Partition { model, routing_group, role, block_size: 16, seed: 0 };
        Self { provider, instance, partition, router_config: RouterConfig::default() }
    }
}
