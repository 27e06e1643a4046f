//! What a stage reads.

use std::ops::BitOr;

use pointsman_contract::{COST, Fact, Group, Reads as Names, Signal, Text};

const fn fact_bits(facts: &[Fact]) -> u32 {
    let mut bits = 0;
    let mut rest = facts;
    while let [first, tail @ ..] = rest {
        bits |= 1 << first.index();
        rest = tail;
    }
    bits
}

const fn signal_bits(signals: &[Signal]) -> u32 {
    let mut bits = 0;
    let mut rest = signals;
    while let [first, tail @ ..] = rest {
        bits |= 1 << first.index();
        rest = tail;
    }
    bits
}

const AFFINITY: u32 = fact_bits(&[Fact::AffinityFirst, Fact::AffinityRows]);
const _: () = assert!(Fact::COUNT <= 32 && Text::COUNT <= 32 && Signal::COUNT <= 32);

/// What one stage reads: facts and texts of the request, signals of each worker. Put together with `|`:
///
/// ```
/// use pointsman_sdk::prelude::*;
///
/// let reads = Reads::LOAD | Signal::WorkerTotalKvBlocks | Fact::PromptTokens | Text::SessionId;
/// let reads = reads.named_signal("metric.gpu-temperature").named_text("header.x-tier");
/// ```
///
/// A policy declares less where a parameter makes a signal weigh nothing: the host then does not compute it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    facts: u32,
    texts: u32,
    signals: u32,
    cost: bool,
    workers: bool,
    named_texts: Vec<String>,
    named_signals: Vec<String>,
}

impl Reads {
    /// Nothing.
    pub const NONE: Self = Self::of(0, 0, 0, false, false);
    /// The prefix overlap in every tier, for [`Row::cache`](crate::Row::cache).
    pub const CACHE: Self = Self::group(Group::Cache);
    /// The load, for [`Row::load`](crate::Row::load).
    pub const LOAD: Self = Self::group(Group::Load);
    /// The multiplier of preferred taints, for
    /// [`Row::preferred_taint_multiplier`](crate::Row::preferred_taint_multiplier).
    pub const PREFERRED_TAINT: Self = Self::group(Group::PreferredTaint);
    /// The session's identifiers, end and trigger, for
    /// [`Request::session_context`](crate::Request::session_context). A text costs more than a number: where the
    /// trigger is enough, read [`Fact::SessionTrigger`].
    pub const SESSION: Self = Self::of(
        fact_bits(&[Fact::SessionFinal, Fact::SessionTrigger]),
        (1 << Text::SessionId.index()) | (1 << Text::SessionParentId.index()),
        0,
        false,
        false,
    );
    /// The rows of the soft affinity target, for [`Request::affinity_target`](crate::Request::affinity_target).
    pub const AFFINITY: Self = Self::of(AFFINITY, 0, 0, false, false);
    /// The sum of the scorers' costs, for [`Candidates::costs`](crate::Candidates::costs); for pickers alone.
    pub const COST: Self = Self::of(0, 0, 0, true, false);
    /// A number for each worker that stays the same while it lives, for
    /// [`Candidates::workers`](crate::Candidates::workers).
    pub const WORKERS: Self = Self::of(0, 0, 0, false, true);

    const fn of(facts: u32, texts: u32, signals: u32, cost: bool, workers: bool) -> Self {
        Self { facts, texts, signals, cost, workers, named_texts: Vec::new(), named_signals: Vec::new() }
    }

    const fn group(group: Group) -> Self {
        Self::of(fact_bits(group.facts()), 0, signal_bits(group.signals()), false, false)
    }

    /// Adds a signal by its name, such as `metric.queue-depth` or `label.tier`. Which there are is the operator's to
    /// say; the host refuses an unknown one and lists them.
    #[must_use]
    pub fn named_signal(mut self, name: &str) -> Self {
        match Signal::from_name(name) {
            Some(signal) => self | signal,
            None if name == COST => self | Self::COST,
            None => {
                push(&mut self.named_signals, name);
                self
            }
        }
    }

    /// Adds a text by its name, such as `header.x-tier`.
    #[must_use]
    pub fn named_text(mut self, name: &str) -> Self {
        match Text::from_name(name) {
            Some(text) => self | text,
            None => {
                push(&mut self.named_texts, name);
                self
            }
        }
    }

    pub(crate) const fn facts(&self) -> u32 {
        self.facts
    }

    pub(crate) const fn texts(&self) -> u32 {
        self.texts
    }

    pub(crate) const fn signals(&self) -> u32 {
        self.signals
    }

    #[inline]
    pub(crate) fn has_fact(&self, fact: Fact) -> bool {
        self.facts & (1 << fact.index()) != 0
    }

    pub(crate) fn has_text(&self, text: Text) -> bool {
        self.texts & (1 << text.index()) != 0
    }

    #[inline]
    pub(crate) fn has_signal(&self, signal: Signal) -> bool {
        self.signals & (1 << signal.index()) != 0
    }

    #[inline]
    pub(crate) fn has_all(&self, other: &Self) -> bool {
        self.facts & other.facts == other.facts
            && self.texts & other.texts == other.texts
            && self.signals & other.signals == other.signals
    }

    pub(crate) const fn has_cost(&self) -> bool {
        self.cost
    }

    pub(crate) const fn has_workers(&self) -> bool {
        self.workers
    }

    pub(crate) fn named_signals(&self) -> &[String] {
        &self.named_signals
    }

    pub(crate) fn named_texts(&self) -> &[String] {
        &self.named_texts
    }

    /// The same as the contract's names: those of the vocabulary in its order, then the others, then `cost`.
    pub(crate) fn names(&self) -> Names {
        let facts = Fact::ALL.iter().filter(|fact| self.has_fact(**fact)).map(|fact| fact.name().to_owned());
        let texts = Text::ALL.iter().filter(|text| self.has_text(**text)).map(|text| text.name().to_owned());
        let signals = Signal::ALL.iter().filter(|signal| self.has_signal(**signal)).map(|s| s.name().to_owned());
        Names {
            facts: facts.collect(),
            texts: texts.chain(self.named_texts.iter().cloned()).collect(),
            signals: signals
                .chain(self.named_signals.iter().cloned())
                .chain(self.cost.then(|| COST.to_owned()))
                .collect(),
            workers: self.workers,
        }
    }
}

fn push(names: &mut Vec<String>, name: &str) {
    if !names.iter().any(|known| known == name) {
        names.push(name.to_owned());
    }
}

impl<T: Into<Reads>> BitOr<T> for Reads {
    type Output = Self;

    fn bitor(mut self, other: T) -> Self {
        let other = other.into();
        self.facts |= other.facts;
        self.texts |= other.texts;
        self.signals |= other.signals;
        self.cost |= other.cost;
        self.workers |= other.workers;
        for name in &other.named_texts {
            push(&mut self.named_texts, name);
        }
        for name in &other.named_signals {
            push(&mut self.named_signals, name);
        }
        self
    }
}

impl From<Fact> for Reads {
    /// Either fact of the affinity target brings the other: the rows are counted anew with both.
    fn from(fact: Fact) -> Self {
        let bit = 1 << fact.index();
        Self::of(if bit & AFFINITY == 0 { bit } else { AFFINITY }, 0, 0, false, false)
    }
}

impl From<Text> for Reads {
    fn from(text: Text) -> Self {
        Self::of(0, 1 << text.index(), 0, false, false)
    }
}

impl From<Signal> for Reads {
    fn from(signal: Signal) -> Self {
        Self::of(0, 0, 1 << signal.index(), false, false)
    }
}

impl From<Group> for Reads {
    fn from(group: Group) -> Self {
        Self::group(group)
    }
}

impl<T: Into<Self>, const N: usize> From<[T; N]> for Reads {
    fn from(parts: [T; N]) -> Self {
        parts.into_iter().fold(Self::NONE, |reads, part| reads | part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_vocabulary_then_the_operators_names_then_cost() {
        let reads = Reads::COST.named_signal("metric.b").named_signal("metric.a")
            | Signal::LoadActiveRequests
            | Signal::CacheOverlapBlocks
            | Fact::Blocks;
        let names = reads.names();
        assert_eq!(names.facts, ["request.blocks"]);
        assert_eq!(names.signals, ["cache.overlap-blocks", "load.active-requests", "metric.b", "metric.a", "cost"]);
        assert!(!names.workers);
    }

    #[test]
    fn each_name_appears_once_however_often_it_is_declared() {
        let reads = Reads::LOAD.named_signal("metric.a").named_signal("load.active-requests")
            | Reads::LOAD.named_signal("metric.a").named_text("session.id")
            | Text::SessionId;
        let names = reads.names();
        assert_eq!(names.texts, ["session.id"]);
        assert_eq!(names.signals.iter().filter(|name| *name == "metric.a").count(), 1);
        assert_eq!(names.signals.iter().filter(|name| *name == "load.active-requests").count(), 1);
    }

    #[test]
    fn one_affinity_fact_brings_the_other() {
        assert_eq!(Reads::from(Fact::AffinityRows), Reads::AFFINITY);
    }

    #[test]
    fn groups_are_those_of_the_contract() {
        for (group, reads) in
            [(Group::Cache, Reads::CACHE), (Group::Load, Reads::LOAD), (Group::PreferredTaint, Reads::PREFERRED_TAINT)]
        {
            let names: Vec<_> = group.signals().iter().map(|signal| signal.name()).collect();
            assert_eq!(reads.names().signals.len(), names.len());
            assert!(reads.names().signals.iter().all(|name| names.contains(&name.as_str())));
        }
    }
}
