//! Choosing among costs.

/// How many rows are compared with the minimum so far at once, which decides whether any of them is looked at.
const BLOCK: usize = 16;

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
    let mut best = Best { cost: f64::INFINITY, row: 0, ties: 0 };
    let (blocks, rest) = costs.as_chunks::<BLOCK>();
    for (number, block) in blocks.iter().enumerate() {
        // Most blocks hold nothing at or below the minimum so far.
        if block.iter().fold(false, |any, cost| any | (*cost <= best.cost)) {
            best = best.walk(number * BLOCK, block, &mut draw);
        }
    }
    best = best.walk(blocks.len() * BLOCK, rest, &mut draw);
    (best.ties > 0).then_some(best.row)
}

/// The minimum so far.
#[derive(Clone, Copy)]
struct Best {
    cost: f64,
    row: usize,
    /// Rows that have equalled it, itself included; 0 before the first.
    ties: u64,
}

impl Best {
    /// By fours: each turn of a loop costs a guest a look at its fuel and its deadline.
    #[inline(always)]
    fn walk(mut self, first: usize, costs: &[f64], draw: &mut impl FnMut(u64) -> u64) -> Self {
        let (groups, rest) = costs.as_chunks();
        for (number, [first_of, second, third, fourth]) in groups.iter().enumerate() {
            let row = first + number * 4;
            self = self.look(row, *first_of, draw).look(row + 1, *second, draw);
            self = self.look(row + 2, *third, draw).look(row + 3, *fourth, draw);
        }
        let row = first + groups.len() * 4;
        // So often whatever is left, which the compiler makes no loop of.
        for place in 0..3 {
            if let Some(cost) = rest.get(place) {
                self = self.look(row + place, *cost, draw);
            }
        }
        self
    }

    #[inline(always)]
    fn look(self, row: usize, cost: f64, draw: &mut impl FnMut(u64) -> u64) -> Self {
        if cost <= self.cost {
            if cost < self.cost {
                return Self { cost, row, ties: 1 };
            }
            if self.ties > 0 {
                let ties = self.ties + 1;
                return Self { row: if take_turns(ties, draw) { row } else { self.row }, ties, ..self };
            }
        }
        self
    }
}

/// Whether the last of so many rows is taken. Apart from the loops, which it would slow down.
#[inline(never)]
fn take_turns(ties: u64, draw: &mut impl FnMut(u64) -> u64) -> bool {
    draw(ties) == 0
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
