//! What the command prints: text and JSON on standard output.

use std::borrow::Cow;
use std::io::{self, Write};

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

/// Prints lines.
pub(crate) fn text(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{}", text.trim_end())?;
    stdout.flush()
}

/// Prints a sentence that asks for attention, on standard error.
pub(crate) fn warning(sentence: &str) -> io::Result<()> {
    writeln!(io::stderr().lock(), "warning: {}", printable(sentence))
}

/// Prints what another program said, on standard error.
pub(crate) fn messages(text: &str) {
    let mut stderr = io::stderr().lock();
    for line in text.lines() {
        // Nothing is left to tell where even this fails.
        let _ = writeln!(stderr, "{}", printable(line));
    }
}

/// Prints a JSON value on lines of its own.
pub(crate) fn json(value: &impl Serialize) -> io::Result<()> {
    text(&serde_json::to_string_pretty(value)?)
}

/// A table of these columns, without rows yet; a column whose heading starts with `>` is flush right.
pub(crate) fn table(headings: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(headings.iter().map(|heading| heading.trim_start_matches('>')));
    for (column, heading) in table.column_iter_mut().zip(headings) {
        column.set_padding((0, 2));
        if heading.starts_with('>') {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// The table's text, without blanks at the ends of its lines.
pub(crate) fn rendered(table: &Table) -> String {
    table.trim_fmt()
}

/// A text of a policy or a file, safe for a terminal and on one line: control characters are shown, not obeyed.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if text.chars().any(is_obeyed) {
        text.chars()
            .map(|char| if is_obeyed(char) { char.escape_default().collect() } else { char.to_string() })
            .collect()
    } else {
        Cow::Borrowed(text)
    }
}

/// Whether a terminal or an editor does something else than to draw it: control characters, line and paragraph
/// separators, and what changes the direction of the text around it.
fn is_obeyed(char: char) -> bool {
    char.is_control() || matches!(char, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A whole number with its thousands apart: 12,345.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_stand_apart() {
        let shown = [0, 999, 1_000, 12_345, 1_234_567].map(grouped);
        assert_eq!(shown, ["0", "999", "1,000", "12,345", "1,234,567"]);
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(printable("plain"), "plain");
        assert_eq!(printable("a\u{1b}[31mb\n"), "a\\u{1b}[31mb\\n");
        assert_eq!(printable("a\u{202e}b\u{2066}c\u{2029}"), "a\\u{202e}b\\u{2066}c\\u{2029}");
        assert_eq!(printable("ключ é"), "ключ é");
    }
}
