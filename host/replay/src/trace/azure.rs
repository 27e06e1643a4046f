//! Azure's traces: a CSV of three columns. (github.com/Azure/AzurePublicDataset, Splitwise, ISCA'24.)

use std::io::BufRead;

use super::lines::Lines;
use super::{Builder, MAX_TIMESTAMP_MS, MAX_TOKENS, TraceError, TraceRequest};

const COLUMNS: [&str; 3] = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"];

/// Whether the line names any of the columns.
pub(super) fn is_header(line: &str) -> bool {
    line.split(',').any(|name| COLUMNS.contains(&name.trim()))
}

/// Reads from the current line, the header, on.
pub(super) fn read<R: BufRead>(
    lines: &mut Lines<'_, R>,
    builder: &mut Builder,
    limit: usize,
) -> Result<(), TraceError> {
    let header = match header(lines.text()?) {
        Ok(header) => header,
        Err(problem) => return Err(lines.error(problem)),
    };
    let mut first = None;
    for _ in 0..limit {
        if !lines.advance()? {
            break;
        }
        if let Err(problem) = push(lines.text()?, &header, &mut first, builder) {
            let cause = if lines.complete() { "" } else { "; the file seems to be cut off" };
            return Err(lines.error(format!("{problem}{cause}")));
        }
        builder.locate(lines.number());
    }
    Ok(())
}

/// The place of each of [`COLUMNS`] in a row.
fn header(line: &str) -> Result<[usize; 3], String> {
    let names: Vec<&str> = line.split(',').map(str::trim).collect();
    if let Some(name) = names.iter().find(|name| !COLUMNS.contains(name)) {
        return Err(format!("unknown column `{name}`, expected {}", COLUMNS.join(", ")));
    }
    let mut places = [0; 3];
    for (place, column) in places.iter_mut().zip(COLUMNS) {
        let mut found = names.iter().enumerate().filter(|(_, name)| **name == column);
        *place = found.next().ok_or_else(|| format!("the column `{column}` is missing"))?.0;
        if found.next().is_some() {
            return Err(format!("the column `{column}` is there twice"));
        }
    }
    Ok(places)
}

fn push(line: &str, header: &[usize; 3], first: &mut Option<u64>, builder: &mut Builder) -> Result<(), String> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    if fields.len() != COLUMNS.len() {
        return Err(format!("{} fields where the header has {}", fields.len(), COLUMNS.len()));
    }
    let [timestamp, context, generated] = header.map(|place| fields.get(place).copied().unwrap_or_default());
    let [name, context_name, generated_name] = COLUMNS;
    let at = timestamp_us(timestamp).ok_or_else(|| {
        format!("`{name}` is `{timestamp}`; it must be a date and time such as 2023-11-16 18:15:46.6805900")
    })?;
    // Trace time starts with the first request; a later row before it is refused as out of order.
    let start = *first.get_or_insert(at);
    let arrival_us =
        at.checked_sub(start).ok_or("the timestamp is before that of the previous request; sort the trace by time")?;
    if arrival_us > MAX_TIMESTAMP_MS * 1_000 {
        return Err(format!("`{name}` is `{timestamp}`, more than {MAX_TIMESTAMP_MS} milliseconds after the first"));
    }
    builder.push(&TraceRequest {
        arrival_us,
        input_tokens: tokens(context_name, context)?,
        output_tokens: tokens(generated_name, generated)?,
        block_ids: &[],
        session_id: None,
        parent_session_id: None,
        session_final: None,
        input_trigger: None,
        pinned_worker: None,
        priority: 0.0,
        policy_class: None,
    })
}

fn tokens(field: &str, text: &str) -> Result<u32, String> {
    if text.is_empty() {
        return Err(format!("`{field}` is missing"));
    }
    // A sign is refused, also the plus that the standard library takes.
    match text.strip_prefix('+').map_or(text, |_| "").parse::<u64>() {
        Ok(tokens) if tokens <= MAX_TOKENS => Ok(tokens as u32),
        Ok(_) => Err(format!("`{field}` is {text}; at most {MAX_TOKENS} is allowed")),
        Err(_) => Err(format!("`{field}` is `{text}`; it must be a whole number of at least 0")),
    }
}

/// Microseconds since year 0 of `YYYY-MM-DD HH:MM:SS[.fraction][Z|±HH:MM]`; what is finer than a microsecond is cut.
fn timestamp_us(text: &str) -> Option<u64> {
    let (date, time) = text.split_once([' ', 'T'])?;
    let mut date = date.split('-');
    let (year, month, day) = (number(date.next()?, 4)?, number(date.next()?, 2)?, number(date.next()?, 2)?);
    let (time, offset_minutes) = split_offset(time)?;
    let mut clock = time.split(':');
    let (hour, minute, seconds) = (number(clock.next()?, 2)?, number(clock.next()?, 2)?, clock.next()?);
    let (second, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
    let second = number(second, 2)?;
    let whole = year > 0
        && (1..=12).contains(&month)
        && (1..=days_of(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !whole || date.next().is_some() || clock.next().is_some() {
        return None;
    }
    if fraction.is_empty() || fraction.len() > 12 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let mut micros: String = fraction.chars().take(6).collect();
    while micros.len() < 6 {
        micros.push('0');
    }
    let minutes = (days(year, month, day) * 24 + hour) * 60 + minute;
    let minutes = minutes.checked_add_signed(-offset_minutes)?;
    Some((minutes * 60 + second) * 1_000_000 + micros.parse::<u64>().ok()?)
}

/// The time, and how many minutes it is ahead of UTC.
fn split_offset(time: &str) -> Option<(&str, i64)> {
    if let Some(time) = time.strip_suffix('Z') {
        return Some((time, 0));
    }
    let Some(at) = time.find(['+', '-']) else { return Some((time, 0)) };
    let (time, offset) = time.split_at_checked(at)?;
    let (hours, minutes) = offset.get(1..)?.split_once(':')?;
    let (hours, minutes) = (number(hours, 2)?, number(minutes, 2)?);
    if hours > 23 || minutes > 59 {
        return None;
    }
    let ahead = (hours * 60 + minutes).cast_signed();
    Some((time, if offset.starts_with('-') { -ahead } else { ahead }))
}

/// The days of a month in the Gregorian calendar.
const fn days_of(year: u64, month: u64) -> u64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        _ => 31,
    }
}

fn number(text: &str, digits: usize) -> Option<u64> {
    let plain = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

/// Days of the Gregorian calendar up to that date, with years that start in March so that a leap day comes last.
const fn days(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_differ_by_what_lies_between_them() {
        let at = |text| timestamp_us(text).unwrap();
        assert_eq!(at("2023-11-16 18:15:50.9951690") - at("2023-11-16 18:15:46.6805900"), 4_314_579);
        assert_eq!(at("2024-03-01 00:00:00") - at("2024-02-28 23:59:59"), 86_401_000_000, "2024 has a leap day");
        assert_eq!(at("2023-03-01 00:00:00") - at("2023-02-28 23:59:59"), 1_000_000, "2023 has none");
        assert_eq!(at("2024-01-01 00:00:00.5") - at("2023-12-31 23:59:59.25"), 1_250_000);
        assert_eq!(at("2024-05-10 00:00:00.009930+00:00"), at("2024-05-10T00:00:00.00993Z"));
        assert_eq!(at("2024-05-10 02:00:00+02:00"), at("2024-05-10 00:00:00"));
        assert_eq!(at("2024-05-10 02:00:00-01:30"), at("2024-05-10 03:30:00"));
    }

    #[test]
    fn what_is_no_timestamp_is_none() {
        for text in [
            "",
            "now",
            "2023-11-16",
            "2023-13-16 00:00:00",
            "2023-11-16 24:00:00",
            "2023-11-16 10:00:00.x",
            "2023-11-16 10:00",
        ] {
            assert_eq!(timestamp_us(text), None, "{text}");
        }
    }
}
