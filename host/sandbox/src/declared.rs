//! Limits that an artifact declares for itself: they narrow what the operator grants, and never widen it.

use std::fmt;

use wasmparser::{Chunk, Parser, Payload};

use crate::limits::LIMITS;
use crate::text::{cut, sentence};

/// The largest section that is read, in bytes.
const MOST_BYTES: usize = 4_096;
/// The most of a section's own words that a message repeats, in bytes.
const MOST_QUOTED: usize = 64;

/// The limits that a policy declares for itself, in the custom section [`DeclaredLimits::SECTION`] of its component.
/// Shown, they are the section's text: a line `key: value` for each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredLimits(Vec<(&'static str, u64)>);

/// What is wrong with limits that an artifact declares; follows the name of the place where they stand.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeclaredLimitsError {
    /// There is no such limit.
    #[error(
        "names `{0}`, which is no limit; the limits are {known}",
        known = LIMITS.iter().map(|row| row.key).collect::<Vec<_>>().join(", ")
    )]
    Key(String),
    /// The value is no whole number, or 0.
    #[error("gives {key} the value `{value}`; give it a whole number from 1 on")]
    Value {
        /// The limit.
        key: &'static str,
        /// What it is given.
        value: String,
    },
    /// One limit has two values.
    #[error("gives {0} twice; give it once")]
    Twice(&'static str),
    /// A line is not `key: value`.
    #[error("has the line `{0}`; write `key: value`")]
    Line(String),
    /// The section is no ASCII text.
    #[error("is not ASCII text; write a line `key: value` for each limit")]
    NotText,
    /// The section is too long.
    #[error("has {0} bytes and may have {MOST_BYTES}; write nothing but a line `key: value` for each limit")]
    TooLong(usize),
    /// The component has two such sections.
    #[error("is there twice; write one")]
    TwoSections,
}

impl DeclaredLimits {
    /// The name of the custom section.
    pub const SECTION: &'static str = "pointsman:limits";

    /// Adds one limit.
    ///
    /// # Errors
    ///
    /// There is no such limit, it is declared already, or the value is not a whole number from 1 on.
    pub fn declare(&mut self, key: &str, value: &str) -> Result<(), DeclaredLimitsError> {
        let row = LIMITS.iter().find(|row| row.key == key).ok_or_else(|| DeclaredLimitsError::Key(quoted(key)))?;
        let key = row.key;
        if self.0.iter().any(|(declared, _)| *declared == key) {
            return Err(DeclaredLimitsError::Twice(key));
        }
        let digits = Some(value).filter(|value| value.bytes().all(|byte| byte.is_ascii_digit()));
        let number = digits.and_then(|digits| digits.parse().ok()).filter(|number| *number > 0);
        let number = number.ok_or_else(|| DeclaredLimitsError::Value { key, value: quoted(value) })?;
        self.0.push((key, number));
        Ok(())
    }

    /// Keys and values, in the order of their declaration.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().copied()
    }

    /// Whether nothing is declared.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Finds the section of a component. Bytes that are no component have none: the load refuses them for itself.
    pub(crate) fn of(component: &[u8]) -> Result<Self, DeclaredLimitsError> {
        let mut parser = Parser::new(0);
        let (mut rest, mut section) = (component, None);
        while let Ok(Chunk::Parsed { consumed, payload }) = parser.parse(rest, true) {
            // Inner modules and components are passed over: what they carry is not the policy's word.
            let (inner, end) = match &payload {
                Payload::ModuleSection { unchecked_range, .. } | Payload::ComponentSection { unchecked_range, .. } => {
                    (unchecked_range.len(), false)
                }
                Payload::End(_) => (0, true),
                _ => (0, false),
            };
            if let Payload::CustomSection(found) = payload
                && found.name() == Self::SECTION
                && section.replace(found.data()).is_some()
            {
                return Err(DeclaredLimitsError::TwoSections);
            }
            rest = rest.get(consumed.saturating_add(inner)..).unwrap_or_default();
            if end {
                break;
            }
        }
        section.map_or_else(|| Ok(Self::default()), Self::parse)
    }

    fn parse(section: &[u8]) -> Result<Self, DeclaredLimitsError> {
        if section.len() > MOST_BYTES {
            return Err(DeclaredLimitsError::TooLong(section.len()));
        }
        let text = std::str::from_utf8(section).ok().filter(|text| text.is_ascii());
        let mut declared = Self::default();
        for line in text.ok_or(DeclaredLimitsError::NotText)?.lines().filter(|line| !line.trim().is_empty()) {
            let (key, value) = line.split_once(':').ok_or_else(|| DeclaredLimitsError::Line(quoted(line)))?;
            declared.declare(key.trim(), value.trim())?;
        }
        Ok(declared)
    }
}

impl fmt::Display for DeclaredLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|(key, value)| writeln!(f, "{key}: {value}"))
    }
}

fn quoted(text: &str) -> String {
    sentence(cut(text, MOST_QUOTED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_read_as_it_is_shown() {
        let mut declared = DeclaredLimits::default();
        declared.declare("fuel_base", "500000").unwrap();
        declared.declare("memory_bytes", "65536").unwrap();
        assert_eq!(declared.to_string(), "fuel_base: 500000\nmemory_bytes: 65536\n");
        assert_eq!(DeclaredLimits::parse(declared.to_string().as_bytes()).unwrap(), declared);
        assert_eq!(DeclaredLimits::parse(b"\r\n  memory_bytes:1\r\n\n").unwrap().to_string(), "memory_bytes: 1\n");
        assert!(DeclaredLimits::parse(b"").unwrap().is_empty());
    }

    #[test]
    fn anything_else_is_refused_with_a_sentence() {
        for (text, words) in [
            ("fuel: 1", "names `fuel`, which is no limit; the limits are memory_bytes, "),
            ("profile: engine", "names `profile`"),
            ("Memory_bytes: 1", "names `Memory_bytes`"),
            ("memory_bytes: 8M", "gives memory_bytes the value `8M`; give it a whole number"),
            ("memory_bytes: +8", "`+8`"),
            ("memory_bytes: -8", "`-8`"),
            ("memory_bytes: 0", "`0`"),
            ("memory_bytes:", "``"),
            ("memory_bytes: 18446744073709551616", "`18446744073709551616`"),
            ("memory_bytes 8", "has the line `memory_bytes 8`; write `key: value`"),
            ("log_bytes: 1\nlog_bytes: 1", "gives log_bytes twice"),
            ("log_bytes: 1\u{e9}", "not ASCII"),
        ] {
            let said = DeclaredLimits::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(said.contains(words), "{text}: {said}");
        }
        let mut section = b"log_bytes: 1\n".to_vec();
        section.resize(MOST_BYTES, b'\n');
        assert!(DeclaredLimits::parse(&section).is_ok());
        section.push(b'\n');
        assert_eq!(DeclaredLimits::parse(&section), Err(DeclaredLimitsError::TooLong(4_097)));
        let long = DeclaredLimits::parse("x".repeat(4_000).as_bytes()).unwrap_err().to_string();
        assert!(long.len() < 200, "{long}");
    }
}
