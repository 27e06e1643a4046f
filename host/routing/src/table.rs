//! The candidate table: facts, texts and columns of one call, packed as the contract wants them, in buffers that are
//! used again for every decision.

use std::ops::Range;

use pointsman_contract::{Fact, Signal, missing};
use pointsman_sandbox::Args;

use crate::vocabulary::{Plan, SignalId, TextId};

/// Where the values of one decision come from. Rows are the source's own.
pub(crate) trait Source {
    /// A fact that does not depend on the rows sent.
    fn fact(&self, fact: Fact) -> f64;
    /// A text, none where missing.
    fn text(&self, text: TextId) -> Option<&str>;
    /// The prefix overlaps among `rows`, for the columns of one call; `buffer` may hold them.
    fn place<'a>(&'a self, _rows: Rows<'_>, _buffer: &'a mut Vec<Placed>) -> &'a [Placed] {
        &[]
    }

    /// The one value that the signal has in every row, where the source knows so without looking at the rows.
    fn constant(&self, _signal: Signal, _placed: &[Placed]) -> Option<f64> {
        None
    }

    /// Writes the signal of each of `rows` to `out`, which has one place a row. Never asked for the cost.
    fn column(&self, signal: SignalId, rows: Rows<'_>, placed: &[Placed], out: &mut [f64]);
    /// The number that stands for a row.
    fn number(&self, row: u32) -> u32;
    /// The rows of the soft affinity target; none without a target, empty where it has no row.
    fn affinity(&self) -> Option<Range<u32>>;
}

/// A row that has a prefix overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    /// The row's place among the rows of the call.
    pub(crate) row: u32,
    /// The overlap's place in the request.
    pub(crate) overlap: u32,
}

/// The rows of a call, as rows of the table, ascending.
#[derive(Clone, Copy, Debug)]
pub enum Rows<'a> {
    /// The first so many.
    All(u32),
    /// These.
    Some(&'a [u32]),
}

impl Rows<'_> {
    /// How many there are.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "no call is made without a row")]
    pub fn len(&self) -> usize {
        match self {
            Self::All(rows) => *rows as usize,
            Self::Some(rows) => rows.len(),
        }
    }

    /// The source's row at place `row` of the call.
    pub(crate) fn get(&self, row: u32) -> Option<u32> {
        match self {
            Self::All(rows) => (row < *rows).then_some(row),
            Self::Some(rows) => rows.get(row as usize).copied(),
        }
    }

    /// Appends `value(row)` for each row, in order. One loop for each form, so that both know their length.
    pub fn map<T>(&self, out: &mut Vec<T>, value: impl Fn(u32) -> T) {
        match self {
            Self::All(rows) => out.extend((0..*rows).map(value)),
            Self::Some(rows) => out.extend(rows.iter().map(|row| value(*row))),
        }
    }

    /// Writes `value(row)` for each row, in order, to `out`, which has one place a row.
    pub fn write<T>(&self, out: &mut [T], value: impl Fn(u32) -> T) {
        match self {
            Self::All(rows) => out.iter_mut().zip(0..*rows).for_each(|(out, row)| *out = value(row)),
            Self::Some(rows) => out.iter_mut().zip(*rows).for_each(|(out, row)| *out = value(*row)),
        }
    }

    /// Writes one value a row of `column`, which has one value for each of the source's rows.
    pub(crate) fn gather(&self, column: &[f64], out: &mut [f64]) {
        self.gather_map(column, out, |value| value);
    }

    /// Writes `change(value)` of each row of `column`, which has one value for each of the source's rows.
    pub(crate) fn gather_map(&self, column: &[f64], out: &mut [f64], change: impl Fn(f64) -> f64) {
        match self {
            Self::All(_) => out.iter_mut().zip(column).for_each(|(out, value)| *out = change(*value)),
            Self::Some(_) => {
                self.write(out, |row| column.get(row as usize).map_or(missing(), |value| change(*value)));
            }
        }
    }
}

/// The affinity facts for these rows: the first row of the target among them, and how many follow.
pub(crate) fn affinity_among(target: Option<Range<u32>>, rows: Rows<'_>) -> (f64, f64) {
    let Some(target) = target else { return (missing(), missing()) };
    let (first, count) = match rows {
        Rows::All(_) => (target.start, target.len()),
        Rows::Some(rows) => {
            let first = rows.partition_point(|row| *row < target.start);
            (first as u32, rows.partition_point(|row| *row < target.end) - first)
        }
    };
    if count == 0 { (missing(), 0.0) } else { (f64::from(first), count as f64) }
}

/// Those of `rows`, which ascend, that lie in the target; all of them where none does.
pub(crate) fn narrowed<'a>(target: &Range<u32>, rows: &'a [u32]) -> &'a [u32] {
    let first = rows.partition_point(|row| *row < target.start);
    let end = rows.partition_point(|row| *row < target.end);
    rows.get(first..end).filter(|rows| !rows.is_empty()).unwrap_or(rows)
}

/// The arguments of one call, kept from decision to decision.
#[derive(Debug, Default)]
pub(crate) struct Packed {
    args: Args,
    placed: Vec<Placed>,
    /// Facts before the first column.
    before: usize,
    /// Rows.
    rows: usize,
    /// The bits of the one value that fills a column of that shape: it need not be filled with it again. Of most
    /// requests no worker has a prefix, and few prefer a taint.
    filled: Vec<Option<u64>>,
}

impl Packed {
    /// Fills the arguments that `plan` names. `costs` has one value a row and is read by a picker alone.
    pub(crate) fn fill(&mut self, source: &impl Source, plan: &Plan, rows: Rows<'_>, costs: &[f64]) -> &Args {
        let Self { args, placed, before, rows: rows_before, filled } = self;
        let (facts, count) = (plan.facts.len(), rows.len());
        if *before != facts || *rows_before != count {
            filled.clear();
            (*before, *rows_before) = (facts, count);
        }
        args.rows = count as u32;
        filled.resize(plan.signals.len(), None);
        let numbers = &mut args.numbers;
        // Every number is written below or known, so that what a decision before left there does not matter.
        numbers.resize(facts + plan.signals.len() * count, missing());
        let (facts, mut columns) = numbers.split_at_mut(facts);
        for (number, fact) in facts.iter_mut().zip(&plan.facts) {
            *number = match fact {
                Fact::AffinityFirst => affinity_among(source.affinity(), rows).0,
                Fact::AffinityRows => affinity_among(source.affinity(), rows).1,
                other => source.fact(*other),
            };
        }
        let placed = if plan.reads_cache { source.place(rows, placed) } else { &[] };
        for (signal, filled) in plan.signals.iter().zip(filled) {
            let Some((column, rest)) = columns.split_at_mut_checked(count) else { break };
            columns = rest;
            let constant = match signal {
                SignalId::Known(known) => source.constant(*known, placed),
                SignalId::Extra(_) | SignalId::Cost => None,
            };
            if let Some(value) = constant {
                if *filled != Some(value.to_bits()) {
                    *filled = Some(value.to_bits());
                    column.fill(value);
                }
                continue;
            }
            *filled = None;
            match signal {
                SignalId::Cost => column.iter_mut().zip(costs).for_each(|(cell, cost)| *cell = *cost),
                other => source.column(*other, rows, placed, column),
            }
        }
        if plan.workers {
            let workers = args.workers.get_or_insert_default();
            workers.clear();
            rows.map(workers, |row| source.number(row));
        } else {
            args.workers = None;
        }
        if plan.texts.is_empty() {
            args.texts = None;
        } else {
            let texts = args.texts.get_or_insert_default();
            texts.resize_with(plan.texts.len(), || None);
            for (text, id) in texts.iter_mut().zip(&plan.texts) {
                refill(text, source.text(*id));
            }
        }
        args
    }
}

/// Overwrites a text in the buffer that it has.
fn refill(text: &mut Option<String>, value: Option<&str>) {
    match (value, &mut *text) {
        (Some(value), Some(buffer)) => {
            buffer.clear();
            buffer.push_str(value);
        }
        (Some(value), None) => *text = Some(value.to_owned()),
        (None, _) => *text = None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn affinity_counts_the_rows_sent() {
        let target = Some(2..5);
        assert_eq!(affinity_among(target.clone(), Rows::All(9)), (2.0, 3.0));
        assert_eq!(affinity_among(target.clone(), Rows::Some(&[0, 3, 4, 8])), (1.0, 2.0));
        let (first, rows) = affinity_among(target, Rows::Some(&[0, 1, 8]));
        assert!(first.is_nan() && rows == 0.0, "a target without a row here");
        let (first, rows) = affinity_among(None, Rows::All(3));
        assert_eq!((first.to_bits(), rows.to_bits()), (0x7ff8_0000_0000_0000, 0x7ff8_0000_0000_0000));
    }
}
