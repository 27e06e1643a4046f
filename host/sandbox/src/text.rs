//! Texts that come from a guest or from the engine, made fit for one line of a log.

use std::fmt::{self, Write};

/// The longest sentence of the engine that is kept, in bytes.
const MOST_SENTENCE: usize = 512;

/// The text cut to `most` bytes at a character's edge.
pub(crate) fn cut(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or_default()
}

/// Shows a text without its control characters, so that it can forge no further line, and without those that change
/// the direction of the text around them.
pub(crate) struct Printable<'a>(pub(crate) &'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in self.0.split_inclusive(is_obeyed) {
            let shown = part.trim_end_matches(is_obeyed);
            f.write_str(shown)?;
            if shown.len() < part.len() {
                f.write_char(' ')?;
            }
        }
        Ok(())
    }
}

/// Whether a terminal or an editor does something else than to draw it.
fn is_obeyed(char: char) -> bool {
    char.is_control() || matches!(char, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text as one sentence of a sane length.
pub(crate) fn sentence(text: &str) -> String {
    sentence_within(text, MOST_SENTENCE as u64)
}

/// The text as one sentence of at most so many bytes and an ellipsis.
pub(crate) fn sentence_within(text: &str, most: u64) -> String {
    let kept = cut(text, usize::try_from(most).unwrap_or(usize::MAX));
    let mut sentence = Printable(kept).to_string();
    if kept.len() < text.len() {
        sentence.push('…');
    }
    sentence
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_never_splits_a_character() {
        assert_eq!(cut("äöü", 3), "ä");
        assert_eq!(cut("äöü", 99), "äöü");
        assert_eq!(cut("äöü", 0), "");
    }

    #[test]
    fn a_sentence_is_one_line_of_bounded_length() {
        assert_eq!(sentence("a\nb\r\n\u{1b}[31mc"), "a b   [31mc");
        assert_eq!(sentence("a\u{202e}b\u{2066}c\u{2028}d"), "a b c d");
        let long = sentence(&"x".repeat(10_000));
        assert!(long.len() <= MOST_SENTENCE + '…'.len_utf8() && long.ends_with('…'), "{long}");
    }
}
