//! Resolves the names that a policy reads, once, to places where the host finds the values.

use pointsman_contract::{COST, Fact, Inputs, LEAST_TICK_MS, Reader, Reads, Signal, Stages, Text};

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
    matches!(signal, SignalId::Known(signal) if signal.is_of_cache())
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
    /// Admits, defers or rejects a request before worker selection.
    Classify,
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
            Self::Classify => "classify",
        }
    }

    /// Whether a policy of these stages has this one.
    pub(crate) const fn is_in(self, stages: Stages) -> bool {
        match self {
            Self::Filter => stages.filter,
            Self::Score => stages.score,
            Self::Pick => stages.pick,
            Self::Select => stages.select,
            Self::Classify => stages.classify,
        }
    }
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

impl Vocabulary {
    /// The same names in the same places, but of the operator's own those alone that are granted, such as `metric.load`
    /// and `header.x-user`.
    pub(crate) fn granted(&self, grants: &[String]) -> Self {
        let keep = |name: &String, full: String| if grants.contains(&full) { name.clone() } else { String::new() };
        Self {
            extras: self.extras.iter().map(|extra| keep(extra, extra.clone())).collect(),
            headers: self.headers.iter().map(|header| keep(header, format!("header.{header}"))).collect(),
        }
    }

    /// Resolves everything that the stages of worker selection read, or says in one sentence which name is wrong and what there is.
    pub(crate) fn plans(&self, inputs: &Inputs, stages: Stages) -> Result<Plans, String> {
        if !stages.selects_workers() {
            return Err("the policy is a request classifier and exports no stage of worker selection; name it under \
                        `request_classifier` of a router-policy file, and try it with `pointsman replay`"
                .to_owned());
        }
        let stage = |stage, exported, reads: &Option<Reads>| self.stage(stage, exported, reads.as_ref());
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
        // A component that is a classifier too must be a sound one.
        self.classifier_plan(inputs, stages)?;
        Ok(Plans { filter, score, pick, select })
    }

    /// Resolves everything that the classifier reads, or says in one sentence what is wrong.
    pub(crate) fn classifier_plan(&self, inputs: &Inputs, stages: Stages) -> Result<Plan, String> {
        match inputs.tick_ms {
            Some(_) if !stages.classify => {
                return Err("the policy asks for ticks but exports no request classifier; export one or ask for none"
                    .to_owned());
            }
            Some(tick) if tick < LEAST_TICK_MS => {
                return Err(format!(
                    "the policy asks for a tick every {tick} ms; the shortest interval is {LEAST_TICK_MS} ms"
                ));
            }
            _ => {}
        }
        self.stage(Stage::Classify, stages.classify, inputs.classify.as_ref())
    }

    fn stage(&self, stage: Stage, exported: bool, reads: Option<&Reads>) -> Result<Plan, String> {
        match reads {
            Some(_) if !exported => Err(format!(
                "the policy declares what its stage {stage} reads but does not export that stage; export it or declare none"
            )),
            Some(reads) => self.plan(stage, reads),
            None => Ok(Plan::default()),
        }
    }

    fn plan(&self, stage: Stage, reads: &Reads) -> Result<Plan, String> {
        if stage == Stage::Classify && (reads.workers || !reads.signals.is_empty()) {
            let what =
                reads.signals.first().map_or("the workers' numbers".to_owned(), |name| format!("the signal `{name}`"));
            return Err(format!(
                "stage {stage} reads {what}, but a request has no candidates yet; read facts and texts there alone"
            ));
        }
        let mut plan = Plan { workers: reads.workers, ..Plan::default() };
        for name in &reads.facts {
            let fact = Fact::from_name(name).ok_or_else(|| unknown(stage, "fact", name, fact_names(stage)))?;
            may_read(fact.reader(), stage, "fact", name)?;
            push_once(&mut plan.facts, fact, stage, "fact", name)?;
        }
        for name in &reads.texts {
            let text = self.text(name).ok_or_else(|| unknown(stage, "text", name, self.text_names(stage)))?;
            if let TextId::Known(text) = text {
                may_read(text.reader(), stage, "text", name)?;
            }
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
        Signal::from_name(name).map(SignalId::Known).or_else(|| own(&self.extras, name).map(SignalId::Extra))
    }

    pub(crate) fn text(&self, name: &str) -> Option<TextId> {
        Text::from_name(name).map(TextId::Known).or_else(|| {
            let header = name.strip_prefix("header.")?;
            own(&self.headers, header).map(TextId::Header)
        })
    }

    pub(crate) fn signal_name(&self, signal: SignalId) -> &str {
        match signal {
            SignalId::Known(signal) => signal.name(),
            SignalId::Extra(index) => self.extras.get(index).map_or("", String::as_str),
            SignalId::Cost => COST,
        }
    }

    fn text_names(&self, stage: Stage) -> Vec<String> {
        let known = Text::ALL.iter().filter(|text| reads(stage, text.reader())).map(|text| text.name().to_owned());
        let headers = self.headers.iter().filter(|header| !header.is_empty());
        known.chain(headers.map(|header| format!("header.{header}"))).collect()
    }

    fn signal_names(&self, stage: Stage) -> Vec<String> {
        let known = Signal::ALL.iter().map(|signal| signal.name().to_owned());
        let cost = (stage == Stage::Pick).then(|| COST.to_owned());
        let extras = self.extras.iter().filter(|extra| !extra.is_empty());
        known.chain(extras.cloned()).chain(cost).collect()
    }
}

/// The place of a name among the operator's own; the empty one stands for a name that is not granted.
fn own(names: &[String], name: &str) -> Option<usize> {
    names.iter().position(|own| own == name && !own.is_empty())
}

fn reads(stage: Stage, reader: Reader) -> bool {
    reader.includes(stage == Stage::Classify)
}

fn fact_names(stage: Stage) -> Vec<String> {
    Fact::ALL.iter().filter(|fact| reads(stage, fact.reader())).map(|fact| fact.name().to_owned()).collect()
}

fn may_read(reader: Reader, stage: Stage, kind: &str, name: &str) -> Result<(), String> {
    if reads(stage, reader) {
        return Ok(());
    }
    let who = if stage == Stage::Classify { "the stages of worker selection" } else { "a request classifier" };
    Err(format!("stage {stage} reads the {kind} `{name}`, which {who} alone may read; remove it"))
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

    const ALL: Stages = Stages { filter: true, score: true, pick: true, select: true, classify: true };

    fn signals(names: &[&str]) -> Option<Reads> {
        Some(Reads { signals: names.iter().map(|name| (*name).to_owned()).collect(), ..Reads::default() })
    }

    #[test]
    fn one_crossing_carries_each_name_once_at_its_first_mention_and_no_cost() {
        let inputs = Inputs {
            filter: signals(&["load.active-requests"]),
            score: signals(&["cache.overlap-blocks", "load.active-requests"]),
            pick: signals(&["cost", "load.available", "cache.overlap-blocks"]),
            ..Inputs::default()
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

    fn classifying(facts: &[&str], texts: &[&str]) -> Inputs {
        let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let classify = Some(Reads { facts: own(facts), texts: own(texts), ..Reads::default() });
        Inputs { classify, ..Inputs::default() }
    }

    #[test]
    fn a_classifier_reads_facts_and_texts_of_its_own_and_those_of_both() {
        let vocabulary = Vocabulary { extras: Vec::new(), headers: vec!["x-tier".to_owned()] };
        let inputs =
            classifying(&["request.ingress-ms", "request.now-ms"], &["request.id", "session.id", "header.x-tier"]);
        let plan = vocabulary.classifier_plan(&inputs, ALL).unwrap();
        assert_eq!(plan.facts, [Fact::IngressMs, Fact::NowMs]);
        assert_eq!(plan.texts, [TextId::Known(Text::RequestId), TextId::Known(Text::SessionId), TextId::Header(0)]);
        assert_eq!(vocabulary.classifier_plan(&Inputs::default(), ALL).unwrap(), Plan::default());
    }

    #[test]
    fn what_the_other_kind_of_stage_alone_may_read_is_refused_by_name() {
        let vocabulary = Vocabulary::default();
        for fact in Fact::ALL {
            let classified = vocabulary.classifier_plan(&classifying(&[fact.name()], &[]), ALL);
            let selected = Inputs { pick: classifying(&[fact.name()], &[]).classify, ..Inputs::default() };
            let selected = vocabulary.plans(&selected, ALL);
            for (answer, refused) in [
                (classified.map(drop), fact.reader() == Reader::Selection),
                (selected.map(drop), fact.reader() == Reader::Classifier),
            ] {
                assert_eq!(answer.is_err(), refused, "{}", fact.name());
                assert!(
                    answer.err().is_none_or(|error| error.contains(fact.name()) && error.contains("alone may read"))
                );
            }
        }
        for text in [Text::RequestId, Text::RequestPolicyClass] {
            let inputs = Inputs { filter: classifying(&[], &[text.name()]).classify, ..Inputs::default() };
            assert!(vocabulary.plans(&inputs, ALL).unwrap_err().contains("a request classifier alone may read"));
        }
        let unknown = vocabulary.classifier_plan(&classifying(&["request.due"], &[]), ALL).unwrap_err();
        assert!(unknown.contains("request.due-ms") && !unknown.contains("request.affinity-rows"), "{unknown}");
    }

    #[test]
    fn a_classifier_with_signals_workers_or_ticks_that_cannot_be_is_refused() {
        let vocabulary = Vocabulary::default();
        let refused = |inputs: &Inputs, stages| vocabulary.classifier_plan(inputs, stages).unwrap_err();
        let inputs = Inputs { classify: signals(&["load.available"]), ..Inputs::default() };
        assert!(refused(&inputs, ALL).contains("the signal `load.available`"));
        let inputs = Inputs { classify: Some(Reads { workers: true, ..Reads::default() }), ..Inputs::default() };
        assert!(refused(&inputs, ALL).contains("the workers' numbers"));
        let inputs = Inputs { tick_ms: Some(9), ..Inputs::default() };
        assert!(refused(&inputs, ALL).contains("every 9 ms; the shortest interval is 10 ms"));
        let without = Stages { classify: false, ..ALL };
        assert!(refused(&Inputs { tick_ms: Some(10), ..Inputs::default() }, without).contains("no request classifier"));
        assert!(vocabulary.classifier_plan(&Inputs { tick_ms: Some(10), ..Inputs::default() }, ALL).is_ok());
        assert!(refused(&classifying(&[], &[]), without).contains("does not export"));
        // Also where the component serves as the worker selection.
        assert!(vocabulary.plans(&inputs, ALL).unwrap_err().contains("shortest interval"));
        let alone = Stages { classify: true, ..Stages::default() };
        let error = vocabulary.plans(&Inputs::default(), alone).unwrap_err();
        assert!(error.contains("`request_classifier`"), "{error}");
    }
}
