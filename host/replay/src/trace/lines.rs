//! Reads a text line by line, none longer than it may be, and knows where it is.

use std::io::{BufRead, Read};

use super::TraceError;

/// The longest line of a trace, in bytes: room for a prompt of tens of millions of tokens.
const MAX_LINE_BYTES: usize = 1 << 20;

pub(super) struct Lines<'a, R> {
    origin: &'a str,
    reader: R,
    bytes: Vec<u8>,
    number: u64,
    complete: bool,
}

impl<'a, R: BufRead> Lines<'a, R> {
    pub(super) fn new(origin: &'a str, reader: R) -> Self {
        Self { origin, reader, bytes: Vec::new(), number: 0, complete: true }
    }

    /// Goes to the next line that is not blank; false at the end.
    pub(super) fn advance(&mut self) -> Result<bool, TraceError> {
        loop {
            self.bytes.clear();
            let read = (&mut self.reader).take(MAX_LINE_BYTES as u64 + 2).read_until(b'\n', &mut self.bytes);
            let read = read.map_err(|source| TraceError::Read { origin: self.origin.to_owned(), source })?;
            if read == 0 {
                return Ok(false);
            }
            self.number += 1;
            self.complete = self.bytes.last() == Some(&b'\n');
            if self.number == 1 && self.bytes.starts_with(b"\xef\xbb\xbf") {
                self.bytes.drain(..3);
            }
            let end = self.bytes.iter().rposition(|byte| !byte.is_ascii_whitespace()).map_or(0, |last| last + 1);
            self.bytes.truncate(end);
            if end > MAX_LINE_BYTES {
                return Err(self.error(format!("the line is longer than {MAX_LINE_BYTES} bytes")));
            }
            if end > 0 {
                return Ok(true);
            }
        }
    }

    /// The line, without the white space around it.
    pub(super) fn text(&self) -> Result<&str, TraceError> {
        match std::str::from_utf8(&self.bytes) {
            Ok(text) => Ok(text.trim_start()),
            Err(_) => Err(self.error("the line is not UTF-8 text".to_owned())),
        }
    }

    /// The line's number, counted from 1.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// Whether the line ended with a line break: the last line of a file that was cut off does not.
    pub(super) const fn complete(&self) -> bool {
        self.complete
    }

    /// What is wrong with this line.
    pub(super) fn error(&self, problem: String) -> TraceError {
        TraceError::Line { origin: self.origin.to_owned(), line: self.number, problem: shown(&problem) }
    }
}

/// The longest sentence about a line, in bytes.
const MAX_PROBLEM_BYTES: usize = 1 << 10;

/// A sentence that quotes the trace, on one line that a terminal only draws; cut in its middle where the quote is long.
fn shown(problem: &str) -> String {
    let obeyed = |char: char| char.is_control() || matches!(char, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let shown = problem.chars().fold(String::with_capacity(problem.len()), |mut shown, char| {
        if obeyed(char) {
            shown.extend(char.escape_default())
        } else {
            shown.push(char)
        }
        shown
    });
    if shown.len() <= MAX_PROBLEM_BYTES {
        return shown;
    }
    let start = shown.floor_char_boundary(MAX_PROBLEM_BYTES / 2);
    let end = shown.ceil_char_boundary(shown.len() - MAX_PROBLEM_BYTES / 2);
    format!("{}...{}", shown.get(..start).unwrap_or_default(), shown.get(end..).unwrap_or_default())
}
