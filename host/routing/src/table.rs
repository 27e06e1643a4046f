//! The candidate table: facts, texts and columns of one call, packed as the contract wants them, in buffers that are
//! used again for every decision.

use std::ops::Range;
use std::sync::Arc;

use pointsman_contract::{Fact, missing};
use pointsman_sandbox::Args;

use crate::vocabulary::{Plan, SignalId, TextId};

/// Where the values of one decision come from. Rows are the source's own.
pub(crate) trait Source {
    /// A fact that does not depend on the rows sent.
    fn fact(&self, fact: Fact) -> f64;
    /// A text, none where missing.
    fn text(&self, text: TextId) -> Option<&str>;
    /// Appends the signal of each of `rows` to `out`. Never asked for the cost.
    fn column(&self, signal: SignalId, rows: Rows<'_>, out: &mut Vec<f64>);
    /// The number that stands for a row.
    fn number(&self, row: u32) -> u32;
    /// The rows of the soft affinity target; none without a target, empty where it has no row.
    fn affinity(&self) -> Option<Range<u32>>;
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

    /// The rows, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.len() as u32).filter_map(|row| self.get(row))
    }

    /// Appends one value a row of `column`, which has one value for each of the source's rows.
    pub(crate) fn gather(&self, column: &[f64], out: &mut Vec<f64>) {
        match self {
            Self::All(rows) => out.extend_from_slice(column.get(..*rows as usize).unwrap_or(column)),
            Self::Some(rows) => out.extend(rows.iter().filter_map(|row| column.get(*row as usize))),
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
}

impl Packed {
    /// Fills the arguments that `plan` names. `costs` has one value a row and is read by a picker alone.
    pub(crate) fn fill(&mut self, source: &impl Source, plan: &Plan, rows: Rows<'_>, costs: &[f64]) -> &Args {
        let args = &mut self.args;
        args.rows = rows.len() as u32;
        let numbers = unique(&mut args.numbers);
        numbers.clear();
        for fact in &plan.facts {
            numbers.push(match fact {
                Fact::AffinityFirst => affinity_among(source.affinity(), rows).0,
                Fact::AffinityRows => affinity_among(source.affinity(), rows).1,
                other => source.fact(*other),
            });
        }
        for signal in &plan.signals {
            match signal {
                SignalId::Cost => numbers.extend_from_slice(costs),
                other => source.column(*other, rows, numbers),
            }
        }
        if plan.workers {
            let workers = unique(args.workers.get_or_insert_default());
            workers.clear();
            workers.extend(rows.iter().map(|row| source.number(row)));
        } else {
            args.workers = None;
        }
        if plan.texts.is_empty() {
            args.texts = None;
        } else {
            let texts = unique(args.texts.get_or_insert_default());
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

/// The list behind an `Arc` that no call holds any more.
fn unique<T>(list: &mut Arc<Vec<T>>) -> &mut Vec<T>
where
    T: Clone,
{
    Arc::make_mut(list)
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
