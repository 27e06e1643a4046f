//! Where each declared name lies in what the host sends, resolved once.

use pointsman_contract::{COST, Fact, Reads as Names, Signal, Text};

use crate::{PolicyError, Reads};

/// The place of a name that the stage did not declare.
const NONE: u16 = u16::MAX;

/// What one stage may see of a packed list: a place for each name that it declared.
#[derive(Debug)]
pub(crate) struct Layout {
    facts: [u16; Fact::COUNT],
    texts: [u16; Text::COUNT],
    signals: [u16; Signal::COUNT],
    named_texts: Vec<(String, u16)>,
    named_signals: Vec<(String, u16)>,
    cost: u16,
    /// Facts before the first column.
    before: usize,
    /// Whether the stage reads `cost`, also where it is no column.
    pub(crate) reads_cost: bool,
    pub(crate) workers: bool,
    pub(crate) cache: bool,
    pub(crate) load: bool,
    pub(crate) session: bool,
}

fn place(names: &[String], name: &str) -> u16 {
    names.iter().position(|known| known == name).and_then(|place| u16::try_from(place).ok()).unwrap_or(NONE)
}

impl Layout {
    /// The places of `reads` where the host sends `sent`.
    pub(crate) fn new(reads: &Reads, sent: &Names) -> Self {
        let mut layout = Self {
            facts: [NONE; Fact::COUNT],
            texts: [NONE; Text::COUNT],
            signals: [NONE; Signal::COUNT],
            named_texts: reads.named_texts().iter().map(|name| (name.clone(), place(&sent.texts, name))).collect(),
            named_signals: reads
                .named_signals()
                .iter()
                .map(|name| (name.clone(), place(&sent.signals, name)))
                .collect(),
            cost: if reads.has_cost() { place(&sent.signals, COST) } else { NONE },
            before: sent.facts.len(),
            reads_cost: reads.has_cost(),
            workers: reads.has_workers(),
            cache: reads.has_all(&Reads::CACHE),
            load: reads.has_all(&Reads::LOAD),
            session: reads.has_all(&Reads::SESSION),
        };
        for (slot, fact) in layout.facts.iter_mut().zip(Fact::ALL) {
            if reads.has_fact(*fact) {
                *slot = place(&sent.facts, fact.name());
            }
        }
        for (slot, text) in layout.texts.iter_mut().zip(Text::ALL) {
            if reads.has_text(*text) {
                *slot = place(&sent.texts, text.name());
            }
        }
        for (slot, signal) in layout.signals.iter_mut().zip(Signal::ALL) {
            if reads.has_signal(*signal) {
                *slot = place(&sent.signals, signal.name());
            }
        }
        layout
    }

    pub(crate) fn fact(&self, fact: Fact) -> Option<usize> {
        taken(self.facts[fact.index()])
    }

    pub(crate) fn text(&self, text: Text) -> Option<usize> {
        taken(self.texts[text.index()])
    }

    pub(crate) fn named_text(&self, name: &str) -> Option<usize> {
        self.named_texts.iter().find(|(known, _)| known == name).and_then(|(_, place)| taken(*place))
    }

    pub(crate) fn signal(&self, signal: Signal) -> Option<usize> {
        taken(self.signals[signal.index()])
    }

    pub(crate) fn named_signal(&self, name: &str) -> Option<usize> {
        self.named_signals.iter().find(|(known, _)| known == name).and_then(|(_, place)| taken(*place))
    }

    pub(crate) fn cost(&self) -> Option<usize> {
        taken(self.cost)
    }

    /// Facts before the first column.
    pub(crate) const fn before(&self) -> usize {
        self.before
    }
}

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
            Self::Owned(texts) => texts.get(place).and_then(Option::as_deref),
        }
    }

    pub(crate) const fn len(self) -> usize {
        match self {
            Self::Borrowed(texts) => texts.len(),
            Self::Owned(texts) => texts.len(),
        }
    }
}

impl Table<'_> {
    /// Refuses a call that does not carry what was declared: only a faulty host sends one.
    pub(crate) fn check(&self, sent: &Names) -> Result<(), PolicyError> {
        let numbers = self.rows.checked_mul(sent.signals.len()).and_then(|cells| cells.checked_add(sent.facts.len()));
        if self.rows == 0
            || numbers != Some(self.numbers.len())
            || (sent.workers && self.workers.len() != self.rows)
            || sent.texts.len() != self.texts.len()
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
