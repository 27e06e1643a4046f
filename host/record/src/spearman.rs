//! Spearman's rank correlation.

/// The rank correlation of two lists of the same length, from -1 to 1; none where one of them is all the same, or both
/// are shorter than two.
pub(crate) fn spearman(left: &[f64], right: &[f64]) -> Option<f64> {
    let (left, right) = (ranks(left), ranks(right));
    let mean = |ranks: &[f64]| ranks.iter().sum::<f64>() / ranks.len() as f64;
    let (left_mean, right_mean) = (mean(&left), mean(&right));
    let (mut both, mut left_alone, mut right_alone) = (0.0, 0.0, 0.0);
    for (left, right) in left.iter().zip(&right) {
        let (left, right) = (left - left_mean, right - right_mean);
        both += left * right;
        left_alone += left * left;
        right_alone += right * right;
    }
    // Equal lists make it exactly 1: the root of a square is exact.
    (left_alone > 0.0 && right_alone > 0.0).then(|| both / (left_alone * right_alone).sqrt())
}

/// Each value's place among all; equal ones share the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<(f64, usize)> = values.iter().copied().zip(0..).collect();
    order.sort_by(|(left, _), (right, _)| left.total_cmp(right));
    let mut ranks = vec![0.0; values.len()];
    let mut before = 0;
    for equal in order.chunk_by(|(left, _), (right, _)| left == right) {
        let rank = before as f64 + (equal.len() as f64 - 1.0) / 2.0;
        for (_, place) in equal {
            if let Some(to) = ranks.get_mut(*place) {
                *to = rank;
            }
        }
        before += equal.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_counts_and_size_does_not() {
        let values = [3.0, 1.0, 2.0, 9.0];
        assert_eq!(spearman(&values, &values), Some(1.0));
        assert_eq!(spearman(&values, &[30.0, 1.0, 29.0, 31.0]), Some(1.0));
        assert_eq!(spearman(&values, &values.map(|value| -value)), Some(-1.0));
        // 1 - 6 * (1 + 1) / (4 * 15)
        assert!((spearman(&[1.0, 2.0, 3.0, 4.0], &[2.0, 1.0, 3.0, 4.0]).unwrap_or(0.0) - 0.8).abs() < 1e-12);
        // Ties share a rank: (0, 1.5, 1.5, 3) beside (0, 1, 2, 3) is 4.5 / sqrt(4.5 * 5).
        let tied = spearman(&[1.0, 2.0, 2.0, 3.0], &[1.0, 2.0, 3.0, 4.0]).unwrap_or(0.0);
        assert!((tied - 4.5 / 22.5_f64.sqrt()).abs() < 1e-12, "{tied}");
    }

    #[test]
    fn without_an_order_there_is_no_correlation() {
        assert_eq!(spearman(&[1.0, 1.0], &[1.0, 2.0]), None);
        assert_eq!(spearman(&[1.0], &[1.0]), None);
        assert_eq!(spearman(&[], &[]), None);
    }
}
