//! Resolves the names that a policy reads, once, to places where the host finds the values.

use pointsman_contract::{COST, Fact, Inputs, Reads, Signal, Stages, Text};

/// The names that this router knows: the contract's, and those that its operator adds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Vocabulary {
    /// Extra signals by full name: `metric.<name>` and `label.<name>`.
    pub(crate) extras: Vec<String>,
    /// Granted headers, by name without the prefix `header.`.
    pub(crate) headers: Vec<String>,
}

/// Where a column comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalId {
    Known(Signal),
    Extra(usize),
    Cost,
}

/// Where a text comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextId {
    Known(Text),
    Header(usize),
}

/// What one call sends, in the contract's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) facts: Vec<Fact>,
    pub(crate) texts: Vec<TextId>,
    pub(crate) signals: Vec<SignalId>,
    pub(crate) workers: bool,
    /// Whether any of the signals comes from the request's prefix overlaps.
    pub(crate) reads_cache: bool,
}

fn is_cache(signal: &SignalId) -> bool {
    matches!(signal, SignalId::Known(signal) if signal.name().starts_with("cache."))
}

impl Plan {
    /// Whether it reads what the request would add to a row.
    pub(crate) fn reads_added_blocks(&self) -> bool {
        let added = [Signal::LoadAddedBlocks, Signal::LoadDecodeCostBlocks].map(SignalId::Known);
        self.signals.iter().any(|signal| added.contains(signal))
    }
}

/// The plans of one policy's stages and of all of them in one crossing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plans {
    pub(crate) filter: Plan,
    pub(crate) score: Plan,
    pub(crate) pick: Plan,
    pub(crate) select: Plan,
}

/// A stage of a policy, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Keeps or drops each row.
    Filter,
    /// Costs each row.
    Score,
    /// Takes one row.
    Pick,
    /// All of them in one crossing.
    Select,
}

impl Stage {
    /// The stage's name in messages and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Score => "score",
            Self::Pick => "pick",
            Self::Select => "select",
        }
    }
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

impl Vocabulary {
    /// Resolves everything that a policy reads, or says in one sentence which name is wrong and what there is.
    pub(crate) fn plans(&self, inputs: &Inputs, stages: Stages) -> Result<Plans, String> {
        let stage = |stage: Stage, exported: bool, reads: &Option<Reads>| match reads {
            Some(_) if !exported => Err(format!(
                "the policy declares what its stage {stage} reads but does not export that stage; export it or declare none"
            )),
            Some(reads) => self.plan(stage, reads),
            None => Ok(Plan::default()),
        };
        let filter = stage(Stage::Filter, stages.filter, &inputs.filter)?;
        let score = stage(Stage::Score, stages.score, &inputs.score)?;
        let pick = stage(Stage::Pick, stages.pick, &inputs.pick)?;
        let mut select = Plan::default();
        for plan in [&filter, &score, &pick] {
            add_new(&mut select.facts, &plan.facts);
            add_new(&mut select.texts, &plan.texts);
            add_new(&mut select.signals, &plan.signals);
            select.workers |= plan.workers;
        }
        select.signals.retain(|signal| *signal != SignalId::Cost);
        select.reads_cache = select.signals.iter().any(is_cache);
        Ok(Plans { filter, score, pick, select })
    }

    fn plan(&self, stage: Stage, reads: &Reads) -> Result<Plan, String> {
        let mut plan = Plan { workers: reads.workers, ..Plan::default() };
        for name in &reads.facts {
            let fact = Fact::from_name(name).ok_or_else(|| unknown(stage, "fact", name, self.fact_names()))?;
            push_once(&mut plan.facts, fact, stage, "fact", name)?;
        }
        for name in &reads.texts {
            let text = self.text(name).ok_or_else(|| unknown(stage, "text", name, self.text_names()))?;
            push_once(&mut plan.texts, text, stage, "text", name)?;
        }
        for name in &reads.signals {
            let signal = match self.signal(name) {
                Some(SignalId::Cost) if stage != Stage::Pick => {
                    return Err(format!(
                        "stage {stage} reads the signal `cost`, which the picker alone may read; remove it"
                    ));
                }
                Some(signal) => signal,
                None => return Err(unknown(stage, "signal", name, self.signal_names(stage))),
            };
            push_once(&mut plan.signals, signal, stage, "signal", name)?;
        }
        plan.reads_cache = plan.signals.iter().any(is_cache);
        Ok(plan)
    }

    pub(crate) fn signal(&self, name: &str) -> Option<SignalId> {
        if name == COST {
            return Some(SignalId::Cost);
        }
        Signal::from_name(name)
            .map(SignalId::Known)
            .or_else(|| self.extras.iter().position(|extra| extra == name).map(SignalId::Extra))
    }

    pub(crate) fn text(&self, name: &str) -> Option<TextId> {
        Text::from_name(name).map(TextId::Known).or_else(|| {
            let header = name.strip_prefix("header.")?;
            self.headers.iter().position(|granted| granted == header).map(TextId::Header)
        })
    }

    pub(crate) fn signal_name(&self, signal: SignalId) -> &str {
        match signal {
            SignalId::Known(signal) => signal.name(),
            SignalId::Extra(index) => self.extras.get(index).map_or("", String::as_str),
            SignalId::Cost => COST,
        }
    }

    fn fact_names(&self) -> Vec<String> {
        Fact::ALL.iter().map(|fact| fact.name().to_owned()).collect()
    }

    fn text_names(&self) -> Vec<String> {
        let known = Text::ALL.iter().map(|text| text.name().to_owned());
        known.chain(self.headers.iter().map(|header| format!("header.{header}"))).collect()
    }

    fn signal_names(&self, stage: Stage) -> Vec<String> {
        let known = Signal::ALL.iter().map(|signal| signal.name().to_owned());
        let cost = (stage == Stage::Pick).then(|| COST.to_owned());
        known.chain(self.extras.iter().cloned()).chain(cost).collect()
    }
}

fn unknown(stage: Stage, kind: &str, name: &str, available: Vec<String>) -> String {
    format!("stage {stage} reads the unknown {kind} `{name}`; available are {}", available.join(", "))
}

fn push_once<T: PartialEq>(list: &mut Vec<T>, item: T, stage: Stage, kind: &str, name: &str) -> Result<(), String> {
    if list.contains(&item) {
        return Err(format!("stage {stage} reads the {kind} `{name}` twice; name it once"));
    }
    list.push(item);
    Ok(())
}

fn add_new<T: Copy + PartialEq>(list: &mut Vec<T>, more: &[T]) {
    for item in more {
        if !list.contains(item) {
            list.push(*item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Stages = Stages { filter: true, score: true, pick: true, select: true };

    fn signals(names: &[&str]) -> Option<Reads> {
        Some(Reads { signals: names.iter().map(|name| (*name).to_owned()).collect(), ..Reads::default() })
    }

    #[test]
    fn one_crossing_carries_each_name_once_at_its_first_mention_and_no_cost() {
        let inputs = Inputs {
            filter: signals(&["load.active-requests"]),
            score: signals(&["cache.overlap-blocks", "load.active-requests"]),
            pick: signals(&["cost", "load.available", "cache.overlap-blocks"]),
            exclusive_affinity: false,
        };
        let plans = Vocabulary::default().plans(&inputs, ALL).unwrap();
        let names: Vec<_> =
            plans.select.signals.iter().map(|s| Vocabulary::default().signal_name(*s).to_owned()).collect();
        assert_eq!(names, ["load.active-requests", "cache.overlap-blocks", "load.available"]);
    }

    #[test]
    fn an_unknown_name_lists_those_available_with_the_operators_own() {
        let vocabulary = Vocabulary { extras: vec!["metric.queue".to_owned()], headers: Vec::new() };
        let inputs = Inputs { score: signals(&["load.activ-requests"]), ..Inputs::default() };
        let error = vocabulary.plans(&inputs, ALL).unwrap_err();
        assert!(error.contains("`load.activ-requests`") && error.contains("load.active-requests, "), "{error}");
        assert!(error.contains("metric.queue"), "{error}");
    }

    #[test]
    fn repeated_names_cost_outside_the_picker_and_reads_of_a_missing_stage_are_refused() {
        let vocabulary = Vocabulary::default();
        let twice = Inputs { score: signals(&["load.available", "load.available"]), ..Inputs::default() };
        assert!(vocabulary.plans(&twice, ALL).unwrap_err().contains("twice"));
        let cost = Inputs { score: signals(&["cost"]), ..Inputs::default() };
        assert!(vocabulary.plans(&cost, ALL).unwrap_err().contains("picker alone"));
        let missing = Inputs { pick: signals(&["cost"]), ..Inputs::default() };
        let stages = Stages { score: true, ..Stages::default() };
        assert!(vocabulary.plans(&missing, stages).unwrap_err().contains("does not export"));
    }
}
