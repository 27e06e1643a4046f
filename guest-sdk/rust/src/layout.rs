//! Where each declared name lies in what the host sends, resolved once.

use pointsman_contract::{Fact, Reads as Names, Signal, Text};

use crate::{PolicyError, Reads};

/// The place of a name that is not sent.
const NONE: u16 = u16::MAX;

/// The order of a packed list: the names of one stage, or those of several, each once, at its first mention.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    facts: [u16; Fact::COUNT],
    texts: [u16; Text::COUNT],
    signals: [u16; Signal::COUNT],
    named_texts: Vec<(String, u16)>,
    named_signals: Vec<(String, u16)>,
    /// How many facts, texts and signals are sent.
    pub(crate) counts: [u16; 3],
    pub(crate) workers: bool,
}

/// The next place of a kind.
fn next(count: &mut u16) -> u16 {
    let place = *count;
    *count = count.saturating_add(1);
    place
}

/// Gives a place to each name that is read and has none.
fn place(places: &mut [u16], reads: u32, count: &mut u16) {
    for (bit, slot) in places.iter_mut().enumerate() {
        if reads & (1 << bit) != 0 && *slot == NONE {
            *slot = next(count);
        }
    }
}

fn place_named(places: &mut Vec<(String, u16)>, names: &[String], count: &mut u16) {
    for name in names {
        if find(places, name).is_none() {
            places.push((name.clone(), next(count)));
        }
    }
}

fn find(places: &[(String, u16)], name: &str) -> Option<usize> {
    places.iter().find(|(known, _)| known == name).map(|(_, place)| usize::from(*place))
}

impl Places {
    /// What a call of these stages is sent. `cost` comes last, where a stage that is called alone reads it: between
    /// stages that run together it never crosses.
    pub(crate) fn of<'a>(stages: impl IntoIterator<Item = &'a Reads>) -> Self {
        let mut places = Self {
            facts: [NONE; Fact::COUNT],
            texts: [NONE; Text::COUNT],
            signals: [NONE; Signal::COUNT],
            named_texts: Vec::new(),
            named_signals: Vec::new(),
            counts: [0; 3],
            workers: false,
        };
        let [facts, texts, signals] = &mut places.counts;
        for reads in stages {
            place(&mut places.facts, reads.facts(), facts);
            place(&mut places.texts, reads.texts(), texts);
            place(&mut places.signals, reads.signals(), signals);
            place_named(&mut places.named_texts, reads.named_texts(), texts);
            place_named(&mut places.named_signals, reads.named_signals(), signals);
            places.workers |= reads.has_workers();
        }
        places
    }

    /// The same order with the places of those names alone that one of the stages reads.
    fn only(&self, reads: &Reads) -> Self {
        fn only(places: &mut [u16], reads: u32) {
            for (bit, place) in places.iter_mut().enumerate() {
                if reads & (1 << bit) == 0 {
                    *place = NONE;
                }
            }
        }
        let mut places = self.clone();
        only(&mut places.facts, reads.facts());
        only(&mut places.texts, reads.texts());
        only(&mut places.signals, reads.signals());
        places.named_texts.retain(|(name, _)| reads.named_texts().contains(name));
        places.named_signals.retain(|(name, _)| reads.named_signals().contains(name));
        places
    }

    /// The columns that any of the stages reads.
    pub(crate) fn columns(&self, stages: [&Reads; 2]) -> Vec<usize> {
        let known = Signal::ALL.iter().filter(|signal| stages.iter().any(|reads| reads.has_signal(**signal)));
        let named = self.named_signals.iter();
        let named = named.filter(|(name, _)| stages.iter().any(|reads| reads.named_signals().contains(name)));
        known
            .filter_map(|signal| taken(self.signals[signal.index()]))
            .chain(named.map(|(_, place)| usize::from(*place)))
            .collect()
    }
}

/// What one stage reads, and where it finds that.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) reads: Reads,
    /// Where it is called alone.
    pub(crate) alone: Places,
    /// Where all stages are called in one.
    among: Places,
}

impl Stage {
    /// `union` has the places of all stages.
    pub(crate) fn new(reads: Reads, union: &Places) -> Self {
        Self { alone: Places::of([&reads]), among: union.only(&reads), reads }
    }

    pub(crate) const fn alone(&self) -> Layout<'_> {
        Layout { reads: &self.reads, places: &self.alone }
    }

    pub(crate) const fn among(&self) -> Layout<'_> {
        Layout { reads: &self.reads, places: &self.among }
    }

    /// What it reads, by name; none where it reads nothing.
    pub(crate) fn names(&self) -> Option<Names> {
        (self.reads != Reads::NONE).then(|| self.reads.names())
    }
}

/// What one stage may see of a packed list: what it reads, where it lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout<'a> {
    pub(crate) reads: &'a Reads,
    places: &'a Places,
}

impl Layout<'_> {
    #[inline]
    pub(crate) fn fact(&self, fact: Fact) -> Option<usize> {
        taken(self.places.facts[fact.index()])
    }

    pub(crate) fn text(&self, text: Text) -> Option<usize> {
        taken(self.places.texts[text.index()])
    }

    pub(crate) fn named_text(&self, name: &str) -> Option<usize> {
        find(&self.places.named_texts, name)
    }

    #[inline]
    pub(crate) fn signal(&self, signal: Signal) -> Option<usize> {
        taken(self.places.signals[signal.index()])
    }

    pub(crate) fn named_signal(&self, name: &str) -> Option<usize> {
        find(&self.places.named_signals, name)
    }

    /// Facts before the first column.
    #[inline]
    pub(crate) fn before(&self) -> usize {
        usize::from(self.places.counts[0])
    }
}

#[inline]
fn taken(place: u16) -> Option<usize> {
    (place != NONE).then_some(usize::from(place))
}

/// One call as the host sent it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table<'a> {
    pub(crate) rows: usize,
    pub(crate) numbers: &'a [f64],
    pub(crate) workers: &'a [u32],
    pub(crate) texts: Texts<'a>,
}

/// The texts of a call, as either side of the boundary holds them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Texts<'a> {
    #[cfg_attr(target_family = "wasm", allow(dead_code, reason = "a component owns its texts"))]
    Borrowed(&'a [Option<&'a str>]),
    #[cfg(target_family = "wasm")]
    Sent(&'a [crate::stages::SentText]),
    Owned(&'a [Option<String>]),
}

impl Texts<'_> {
    pub(crate) fn to_owned(self) -> Vec<Option<String>> {
        (0..self.len()).map(|place| self.get(place).map(str::to_owned)).collect()
    }
}

impl<'a> Texts<'a> {
    pub(crate) fn get(self, place: usize) -> Option<&'a str> {
        match self {
            Self::Borrowed(texts) => texts.get(place).copied().flatten(),
            #[cfg(target_family = "wasm")]
            Self::Sent(texts) => texts.get(place).and_then(crate::stages::SentText::get),
            Self::Owned(texts) => texts.get(place).and_then(Option::as_deref),
        }
    }

    pub(crate) const fn len(self) -> usize {
        match self {
            Self::Borrowed(texts) => texts.len(),
            #[cfg(target_family = "wasm")]
            Self::Sent(texts) => texts.len(),
            Self::Owned(texts) => texts.len(),
        }
    }
}

impl Table<'_> {
    /// Refuses a call that does not carry what was declared, with `further` columns: only a faulty host sends one.
    #[inline(always)]
    pub(crate) fn check(&self, sent: &Places, further: usize) -> Result<(), PolicyError> {
        let [facts, texts, signals] = sent.counts.map(usize::from);
        let numbers = self.rows.checked_mul(signals + further).and_then(|cells| cells.checked_add(facts));
        if self.rows == 0
            || numbers != Some(self.numbers.len())
            || (sent.workers && self.workers.len() != self.rows)
            || texts != self.texts.len()
        {
            return Err(not_as_declared());
        }
        Ok(())
    }
}

#[cold]
pub(crate) fn not_as_declared() -> PolicyError {
    PolicyError::failed("the host did not send what the policy declared; report this host")
}
