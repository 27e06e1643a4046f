//! One decision's inputs, owned: what the host knew of the request and of each eligible row, for whoever decides it again.

use std::ops::Range;
use std::sync::Arc;

use pointsman_admission::WorkerKey;
use pointsman_contract::{Fact, Signal, Text, missing};

use crate::candidates::Candidates;
use crate::table::{Placed, Rows, Source};
use crate::vocabulary::{SignalId, TextId, Vocabulary};
use crate::worker::rows_of;

/// One signal of every row.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// The same value in each row.
    Constant(f64),
    /// One value a row.
    Values(Arc<[f64]>),
}

impl Column {
    fn of(values: &[f64]) -> Self {
        let first = values.first().copied().unwrap_or(missing());
        let constant = values.iter().all(|value| value.to_bits() == first.to_bits());
        if constant { Self::Constant(first) } else { Self::Values(values.into()) }
    }

    /// The value of a row; missing where there is no such row.
    #[must_use]
    pub fn get(&self, row: usize) -> f64 {
        match self {
            Self::Constant(value) => *value,
            Self::Values(values) => values.get(row).copied().unwrap_or(missing()),
        }
    }
}

/// The names beside the contract's that a router knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtraNames {
    /// Signals by full name: `metric.<name>` and `label.<name>`.
    pub signals: Vec<String>,
    /// Granted headers, without the prefix `header.`.
    pub headers: Vec<String>,
}

impl ExtraNames {
    pub(crate) fn of(vocabulary: &Vocabulary) -> Self {
        Self { signals: vocabulary.extras.clone(), headers: vocabulary.headers.clone() }
    }

    pub(crate) fn vocabulary(&self) -> Vocabulary {
        Vocabulary { extras: self.signals.clone(), headers: self.headers.clone() }
    }
}

/// The inputs of one decision. Its rows are the eligible ones, sorted by (worker id, data-parallel rank), and count from
/// 0: a policy is never told of others.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// The worker and rank of each row; at least one.
    pub keys: Arc<[WorkerKey]>,
    /// The number that stands for each row while its worker lives.
    pub numbers: Arc<[u32]>,
    /// The facts in the order of [`Fact::ALL`]; those of the affinity target, which count the rows sent, are missing.
    pub facts: Vec<f64>,
    /// The texts in the order of [`Text::ALL`], then the granted headers; none where missing.
    pub texts: Vec<Option<String>>,
    /// The signals in the order of [`Signal::ALL`], then the router's own.
    pub columns: Vec<Column>,
    /// The rows of the soft affinity target; none without a target, empty where it has no row.
    pub affinity: Option<Range<u32>>,
    /// The router's own names.
    pub names: Arc<ExtraNames>,
}

impl Snapshot {
    /// How many rows there are.
    #[must_use]
    pub fn rows(&self) -> u32 {
        self.keys.len() as u32
    }

    /// Takes what `candidates` says of `rows`, whose projection has everything prepared.
    pub(crate) fn take(candidates: &Candidates<'_>, rows: Rows<'_>, names: &Arc<ExtraNames>) -> Self {
        let (mut keys, mut numbers, mut placed) = (Vec::new(), Vec::new(), Vec::new());
        rows.map(&mut keys, |row| candidates.table.keys.get(row as usize).copied().unwrap_or(WorkerKey::new(0, 0)));
        rows.map(&mut numbers, |row| candidates.number(row));
        let placed = candidates.place(rows, &mut placed);
        let mut values = vec![missing(); keys.len()];
        let mut column = |signal| {
            candidates.column(signal, rows, placed, &mut values);
            Column::of(&values)
        };
        let known = Signal::ALL.iter().map(|signal| SignalId::Known(*signal));
        let columns = known.chain((0..names.signals.len()).map(SignalId::Extra)).map(&mut column).collect();
        let texts = Text::ALL.iter().map(|text| TextId::Known(*text));
        let texts = texts.chain((0..names.headers.len()).map(TextId::Header));
        let affinity = candidates.request.affinity.map(|target| rows_of(&keys, target.worker, target.rank));
        Self {
            columns,
            facts: Fact::ALL.iter().map(|fact| candidates.fact(*fact)).collect(),
            texts: texts.map(|text| candidates.text(text).map(str::to_owned)).collect(),
            affinity,
            keys: keys.into(),
            numbers: numbers.into(),
            names: Arc::clone(names),
        }
    }
}

/// A snapshot as a policy sees it that was resolved by `vocabulary`, which may be another router's.
pub(crate) struct Seen<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) vocabulary: &'a Vocabulary,
}

impl Source for Seen<'_> {
    fn fact(&self, fact: Fact) -> f64 {
        self.snapshot.facts.get(fact.index()).copied().unwrap_or_else(|| fact.absent())
    }

    fn text(&self, text: TextId) -> Option<&str> {
        let place = match text {
            TextId::Known(text) => text.index(),
            TextId::Header(header) => {
                let name = self.vocabulary.headers.get(header)?;
                Text::COUNT + self.snapshot.names.headers.iter().position(|known| known == name)?
            }
        };
        self.snapshot.texts.get(place)?.as_deref()
    }

    fn column(&self, signal: SignalId, rows: Rows<'_>, _: &[Placed], out: &mut [f64]) {
        let place = match signal {
            SignalId::Known(signal) => Some(signal.index()),
            SignalId::Extra(extra) => {
                let name = self.vocabulary.extras.get(extra);
                let place = name.and_then(|name| self.snapshot.names.signals.iter().position(|known| known == name));
                place.map(|place| Signal::COUNT + place)
            }
            SignalId::Cost => return,
        };
        match place.and_then(|place| self.snapshot.columns.get(place)) {
            Some(Column::Values(values)) => rows.gather(values, out),
            Some(Column::Constant(value)) => out.fill(*value),
            None => out.fill(missing()),
        }
    }

    fn number(&self, row: u32) -> u32 {
        self.snapshot.numbers.get(row as usize).copied().unwrap_or_default()
    }

    fn affinity(&self) -> Option<Range<u32>> {
        self.snapshot.affinity.clone()
    }
}
