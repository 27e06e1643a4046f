//! The clock of `request.now-ms`: milliseconds since the process first asked for them.

use std::sync::LazyLock;
use std::time::Duration;

use tokio::time::Instant;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

pub(crate) fn now_ms() -> f64 {
    ms(Instant::now())
}

/// A moment on the clock; below 0 before its start.
pub(crate) fn ms(moment: Instant) -> f64 {
    let start = *START;
    let (after, before) = (moment.saturating_duration_since(start), start.saturating_duration_since(moment));
    (after.as_secs_f64() - before.as_secs_f64()) * 1_000.0
}

/// The moment of a time on the clock; none where it is too far away for the machine's clock.
pub(crate) fn moment(ms: f64) -> Option<Instant> {
    let distance = Duration::try_from_secs_f64(ms.abs() / 1_000.0).ok()?;
    if ms < 0.0 { START.checked_sub(distance) } else { START.checked_add(distance) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_on_both_sides_of_the_start_find_their_way_back() {
        let now = Instant::now();
        for offset in [0, 1, 250, 999_999_937, 1_000_000_000_000_000].map(Duration::from_nanos) {
            for there in [now + offset, now.checked_sub(offset).unwrap_or(now)] {
                let back = moment(ms(there)).unwrap();
                let off = back.saturating_duration_since(there) + there.saturating_duration_since(back);
                assert!(off < Duration::from_micros(1), "{offset:?}: {off:?}");
            }
        }
        assert!(ms(now + Duration::from_micros(250)) > ms(now) + 0.2);
        assert_eq!([f64::MAX, f64::MIN, f64::NAN, f64::INFINITY].map(moment), [None; 4]);
    }
}
