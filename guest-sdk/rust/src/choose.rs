//! Choosing among costs.

use crate::lanes::least;

/// How many rows are compared at once; their minimum decides whether any of them is looked at.
const BLOCK: usize = 64;

/// The row of the lowest cost, the first among equals; none without a cost below infinity.
#[must_use]
pub fn lowest(costs: &[f64]) -> Option<usize> {
    lowest_drawing(costs, |_| 1)
}

/// The row of the lowest cost, where rows that share it take turns at random: `draw(n)` answers a number below n.
///
/// This is a running reservoir in row order, as in Dynamo: at each row that equals the minimum so far, one draw among
/// the rows that have equalled it; 0 takes the row. A new minimum starts over without a draw. None without a cost below
/// infinity.
pub fn lowest_drawing(costs: &[f64], mut draw: impl FnMut(u64) -> u64) -> Option<usize> {
    let mut best = f64::INFINITY;
    let mut row = None;
    let mut ties = 0;
    let mut look = |first: usize, costs: &[f64], best: &mut f64| {
        for (place, cost) in (first..).zip(costs) {
            if *cost < *best {
                *best = *cost;
                row = Some(place);
                ties = 1;
            } else if *cost == *best && ties > 0 {
                ties += 1;
                if draw(ties) == 0 {
                    row = Some(place);
                }
            }
        }
    };
    for (block, costs) in costs.chunks(BLOCK).enumerate() {
        // Most blocks hold nothing at or below the minimum so far.
        if least(costs) <= best {
            look(block * BLOCK, costs, &mut best);
        }
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_row_among_equals_wins() {
        assert_eq!(lowest(&[3.0, 1.0, 1.0, 2.0]), Some(1));
        assert_eq!(lowest(&[-1.0, -2.0]), Some(1));
        assert_eq!(lowest(&[]), None);
        assert_eq!(lowest(&[f64::NAN, 4.0]), Some(1));
    }

    #[test]
    fn a_draw_is_made_at_each_row_that_equals_the_minimum_so_far_and_at_no_other() {
        let mut draws = Vec::new();
        let row = lowest_drawing(&[2.0, 2.0, 3.0, 1.0, 1.0, 5.0, 1.0], |ties| {
            draws.push(ties);
            0
        });
        assert_eq!(draws, [2, 2, 3]);
        assert_eq!(row, Some(6));
    }

    #[test]
    fn blocks_skip_no_draw() {
        let costs: Vec<f64> = (0..400).map(|row| f64::from((row * 7) % 5)).collect();
        let mut expected = (f64::INFINITY, 0, 0, 0);
        for (row, cost) in costs.iter().enumerate() {
            if *cost < expected.0 {
                expected = (*cost, row, 1, expected.3);
            } else if *cost == expected.0 {
                expected =
                    (expected.0, if expected.2 % 3 == 0 { row } else { expected.1 }, expected.2 + 1, expected.3 + 1);
            }
        }
        let mut draws = 0;
        let row = lowest_drawing(&costs, |ties| {
            draws += 1;
            (ties - 1) % 3
        });
        assert_eq!(row, Some(expected.1));
        assert_eq!(draws, expected.3);
    }
}
