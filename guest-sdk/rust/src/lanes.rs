//! Passes over whole columns that the compiler turns into SIMD.
//!
//! Rows are taken in chunks of fixed length, which become straight code of several vector instructions: a guest pays for
//! its fuel and its deadline once a chunk, not once a row. Sums and minima run side by side in lanes of their own, since
//! the compiler may not reorder a single one.

use pointsman_contract::missing;

/// Rows of a chunk.
const LANES: usize = 16;
/// Rows of a chunk of what is left: a pool of a few workers is all rest.
const FEW: usize = 4;

/// Changes each cost: `change` has it and the values of the same row, one of each column. Rows beyond the shortest list
/// stay as they are.
#[inline]
pub fn apply<const N: usize>(costs: &mut [f64], columns: [&[f64]; N], mut change: impl FnMut(f64, [f64; N]) -> f64) {
    let rows = columns.iter().fold(costs.len(), |rows, column| rows.min(column.len()));
    let (costs, columns) = (costs.split_at_mut(rows).0, columns.map(|column| column.split_at(rows).0));
    let mut row = 0;
    while chunk::<LANES, N>(costs, &columns, row, &mut change) {
        row += LANES;
    }
    while chunk::<FEW, N>(costs, &columns, row, &mut change) {
        row += FEW;
    }
    // At most three rows are left: no loop.
    if chunk::<2, N>(costs, &columns, row, &mut change) {
        row += 2;
    }
    chunk::<1, N>(costs, &columns, row, &mut change);
}

/// Changes the `L` rows from `row` on; false where there are not so many. All lists are equally long.
#[inline(always)]
fn chunk<const L: usize, const N: usize>(
    costs: &mut [f64],
    columns: &[&[f64]; N],
    row: usize,
    change: &mut impl FnMut(f64, [f64; N]) -> f64,
) -> bool {
    let Some(chunk) = costs.get_mut(row..).and_then(|rest| rest.first_chunk_mut::<L>()) else { return false };
    let heads = columns.map(|column| column.get(row..).and_then(|rest| rest.first_chunk::<L>()).unwrap_or(&[0.0; L]));
    for (lane, cost) in chunk.iter_mut().enumerate() {
        *cost = change(*cost, heads.map(|head| head[lane]));
    }
    true
}

/// Makes the list `rows` long, every value missing.
#[inline(always)]
pub(crate) fn blank(costs: &mut Vec<f64>, rows: usize) {
    if costs.len() != rows {
        costs.clear();
        costs.resize(rows, missing());
        return;
    }
    let (chunks, rest) = costs.as_chunks_mut::<LANES>();
    chunks.fill([missing(); LANES]);
    let (groups, rest) = rest.as_chunks_mut::<FEW>();
    groups.fill([missing(); FEW]);
    for place in 0..FEW - 1 {
        if let Some(cost) = rest.get_mut(place) {
            *cost = missing();
        }
    }
}

/// Whether every value is finite.
#[inline(always)]
pub(crate) fn all_finite(values: &[f64]) -> bool {
    // The product is 0 for a finite value, else NaN, and a NaN stays in a sum.
    let add = |sum: f64, value: f64| sum + value * 0.0;
    fold(values, 0.0, add, |a, b| a + b) == 0.0
}

/// Folds the values in lanes of their own, then the lanes by halves, then what is left of a chunk.
#[inline]
pub fn fold(values: &[f64], start: f64, with: impl Fn(f64, f64) -> f64, join: impl Fn(f64, f64) -> f64) -> f64 {
    let (chunks, rest) = values.as_chunks::<LANES>();
    let mut folded = start;
    if !chunks.is_empty() {
        let mut lanes = [start; LANES];
        for chunk in chunks {
            for (lane, value) in lanes.iter_mut().zip(chunk) {
                *lane = with(*lane, *value);
            }
        }
        let mut width = LANES / 2;
        while width > 0 {
            for lane in 0..width {
                lanes[lane] = join(lanes[lane], lanes[lane + width]);
            }
            width /= 2;
        }
        folded = lanes[0];
    }
    let (groups, rest) = rest.as_chunks::<FEW>();
    for [a, b, c, d] in groups {
        folded = with(with(with(with(folded, *a), *b), *c), *d);
    }
    // So often whatever is left, which the compiler makes no loop of.
    for place in 0..FEW - 1 {
        if let Some(value) = rest.get(place) {
            folded = with(folded, *value);
        }
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_changes_by_its_own_values_and_no_row_beyond_the_shortest_list_does() {
        let column = |factor: f64| (0..37).map(|row| f64::from(row) * factor).collect::<Vec<_>>();
        let [a, b, c, d] = [1.0, 100.0, 10_000.0, 1_000_000.0].map(column);
        let mut costs = vec![0.5; 40];
        apply(&mut costs, [&a, &b, &c, &d], |cost, [a, b, c, d]| cost + a + b + c + d);
        for (row, cost) in costs.iter().enumerate() {
            let expected = if row < 37 { row as f64 * 1_010_101.0 } else { 0.0 };
            assert_eq!(*cost, 0.5 + expected);
        }
        apply(&mut costs[..3], [&a], |_, [a]| a);
        assert_eq!(costs[..4], [0.0, 1.0, 2.0, 3.0 * 1_010_101.0 + 0.5]);
    }

    #[test]
    fn a_blank_list_is_all_missing_however_long_it_was() {
        let mut costs = vec![1.0; 35];
        for rows in [35, 35, 3, 70] {
            blank(&mut costs, rows);
            assert_eq!(costs.len(), rows);
            assert!(costs.iter().all(|cost| cost.to_bits() == missing().to_bits()));
            costs.fill(1.0);
        }
    }

    #[test]
    fn a_value_that_is_not_finite_is_seen_wherever_it_stands() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            for place in 0..43 {
                let mut values = [f64::MAX; 43];
                assert!(all_finite(&values));
                values[place] = bad;
                assert!(!all_finite(&values), "{bad} at {place}");
            }
        }
        assert!(all_finite(&[]));
    }
}
