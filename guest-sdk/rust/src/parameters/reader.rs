//! A strict reader of JSON (RFC 8259), straight into the types that derive [`Parameters`](crate::Parameters).

use std::str::FromStr;

use super::decimal::{self, Format};
use super::problem::Problem;
use super::schema::Field;

/// JSON that is being read. It never looks further than a type asks for, so it needs no bound on nesting.
#[derive(Debug)]
pub struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// What has not been read.
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn next(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// The next character that is no white space.
    fn peek(&mut self) -> Option<u8> {
        while matches!(self.next(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        self.next()
    }

    /// Takes the next character that is no white space, if it is this one.
    fn take(&mut self, char: u8) -> bool {
        let found = self.peek() == Some(char);
        self.at += usize::from(found);
        found
    }

    fn word(&mut self, word: &str) -> bool {
        self.peek();
        let found = self.rest().starts_with(word);
        if found {
            self.at += word.len();
        }
        found
    }

    fn not_json(&self, expected: &str) -> Problem {
        Problem::NotJson(format!("expected {expected} at byte {}", self.at))
    }

    /// The sentence about a value of the wrong type.
    pub(super) fn expected(&mut self, expected: &str) -> Problem {
        let found = match self.peek() {
            Some(b'"') => "a string",
            Some(b'{') => "an object",
            Some(b'[') => "a list",
            Some(b'-' | b'0'..=b'9') => "a number",
            _ if self.word("true") || self.word("false") => "a boolean",
            _ if self.word("null") => "null",
            _ => return self.not_json("a value"),
        };
        Problem::wrong(format!("expected {expected}, found {found}"))
    }

    pub(super) fn is_object(&mut self) -> bool {
        self.peek() == Some(b'{')
    }

    pub(super) fn end(&mut self) -> Result<(), Problem> {
        if self.peek().is_none() { Ok(()) } else { Err(self.not_json("the end")) }
    }

    pub(super) fn null(&mut self) -> bool {
        self.word("null")
    }

    pub(super) fn boolean(&mut self) -> Result<bool, Problem> {
        match () {
            () if self.word("true") => Ok(true),
            () if self.word("false") => Ok(false),
            () => Err(self.expected("true or false")),
        }
    }

    /// The digits of a number, as the grammar has them.
    fn number(&mut self) -> Result<&'a str, Problem> {
        if !matches!(self.peek(), Some(b'-' | b'0'..=b'9')) {
            return Err(self.expected("a number"));
        }
        let start = self.at;
        self.step(b"-");
        if !self.step(b"0") {
            self.digits()?;
        }
        if self.step(b".") {
            self.digits()?;
        }
        if self.step(b"eE") {
            self.step(b"+-");
            self.digits()?;
        }
        Ok(self.text.get(start..self.at).unwrap_or_default())
    }

    /// Takes the very next character, if it is one of these.
    fn step(&mut self, chars: &[u8]) -> bool {
        let found = self.next().is_some_and(|char| chars.contains(&char));
        self.at += usize::from(found);
        found
    }

    fn digits(&mut self) -> Result<(), Problem> {
        if !self.step(b"0123456789") {
            return Err(self.not_json("a digit"));
        }
        while self.step(b"0123456789") {}
        Ok(())
    }

    /// The bits of the nearest number of the format.
    pub(super) fn float(&mut self, format: Format) -> Result<u64, Problem> {
        let number = self.number()?;
        let finite = decimal::nearest(number, format);
        finite.ok_or_else(|| Problem::wrong(format!("the number {number} is too large")))
    }

    /// A whole number without fraction or exponent that `T` reads.
    pub(super) fn integer<T: FromStr>(&mut self, range: &str) -> Result<T, Problem> {
        let digits = self.number()?;
        digits.parse().map_err(|_| Problem::wrong(format!("expected a whole number {range}, found {digits}")))
    }

    pub(super) fn string(&mut self) -> Result<String, Problem> {
        if !self.take(b'"') {
            return Err(self.expected("a string"));
        }
        let mut string = String::new();
        loop {
            let rest = self.rest();
            let plain = rest.bytes().position(|byte| matches!(byte, b'"' | b'\\' | ..=0x1f)).unwrap_or(rest.len());
            string.push_str(rest.get(..plain).unwrap_or_default());
            self.at += plain;
            match self.next() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(string);
                }
                Some(b'\\') => {
                    self.at += 1;
                    string.push(self.escaped()?);
                }
                _ => return Err(self.not_json("`\"`, or an escape in place of a control character,")),
            }
        }
    }

    /// The character of an escape, after its backslash.
    fn escaped(&mut self) -> Result<char, Problem> {
        let char = match self.next() {
            Some(char @ (b'"' | b'\\' | b'/')) => char::from(char),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(),
            _ => return Err(self.not_json("an escape that JSON has")),
        };
        self.at += 1;
        Ok(char)
    }

    /// A character by its UTF-16, at the `u`: one unit or a pair of surrogates.
    fn unicode(&mut self) -> Result<char, Problem> {
        let first = self.unit()?;
        let code = match first {
            0xd800..0xdc00 if self.step(b"\\") => match self.unit()? {
                second @ 0xdc00..0xe000 => 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00),
                _ => first,
            },
            _ => first,
        };
        char::from_u32(code).ok_or_else(|| self.not_json("the other half of a surrogate pair"))
    }

    fn unit(&mut self) -> Result<u32, Problem> {
        let hex = self.rest().get(..5).and_then(|unit| unit.strip_prefix('u'));
        // `from_str_radix` would take a sign.
        let unit = hex.filter(|hex| !hex.starts_with('+')).and_then(|hex| u32::from_str_radix(hex, 16).ok());
        let unit = unit.ok_or_else(|| self.not_json("`u` and four hexadecimal digits"))?;
        self.at += 5;
        Ok(unit)
    }

    /// The place of a text among `names`.
    pub fn choice(&mut self, names: &[&str]) -> Result<usize, Problem> {
        let found = self.string()?;
        let place = names.iter().position(|name| *name == found);
        place.ok_or_else(|| Problem::wrong(format!("expected {}, found `{found}`", one_of(names.iter().copied()))))
    }

    /// What lies between two brackets, separated by commas; `item` reads one.
    fn items(
        &mut self,
        close: u8,
        more: &str,
        item: &mut dyn FnMut(&mut Self) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        self.at += 1;
        if self.take(close) {
            return Ok(());
        }
        loop {
            item(self)?;
            if self.take(close) {
                return Ok(());
            }
            if !self.take(b',') {
                return Err(self.not_json(more));
            }
        }
    }

    /// A list; `item` reads each.
    pub(super) fn list(&mut self, item: &mut dyn FnMut(&mut Self) -> Result<(), Problem>) -> Result<(), Problem> {
        if self.peek() != Some(b'[') {
            return Err(self.expected("a list"));
        }
        let mut index = 0;
        self.items(b']', "`,` or `]`", &mut |reader| {
            item(reader).map_err(|problem| problem.within(&format!("[{index}]")))?;
            index += 1;
            Ok(())
        })
    }

    /// An object; `value` reads that of each key.
    pub(super) fn object(
        &mut self,
        value: &mut dyn FnMut(&mut Self, String) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        if !self.is_object() {
            return Err(self.expected("an object"));
        }
        self.items(b'}', "`,` or `}`", &mut |reader| {
            if reader.peek() != Some(b'"') {
                return Err(reader.not_json("a key"));
            }
            let key = reader.string()?;
            if !reader.take(b':') {
                return Err(reader.not_json("`:`"));
            }
            value(reader, key)
        })
    }

    /// An object of these fields; `value` reads that at a place of the list.
    pub fn fields(
        &mut self,
        fields: &[Field],
        value: &mut dyn FnMut(&mut Self, usize) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        let mut seen = vec![false; fields.len()];
        self.object(&mut |reader, key| {
            let mut places = fields.iter().zip(&mut seen).enumerate();
            let Some((place, (field, seen))) = places.find(|(_, (field, _))| field.name == key) else {
                return Err(unknown(&key, fields));
            };
            if std::mem::replace(seen, true) {
                return Err(twice(&key));
            }
            value(reader, place).map_err(|problem| problem.within(field.name))
        })?;
        match fields.iter().zip(seen).find(|(field, seen)| field.required && !seen) {
            Some((field, _)) => Err(missing(field.name)),
            None => Ok(()),
        }
    }
}

fn unknown(key: &str, fields: &[Field]) -> Problem {
    Problem::wrong(match fields {
        [] => format!("unknown parameter `{key}`; this policy takes none"),
        fields => format!("unknown parameter `{key}`; use {}", one_of(fields.iter().map(|field| field.name))),
    })
}

pub(super) fn twice(key: &str) -> Problem {
    Problem::wrong(format!("parameter `{key}` comes twice; keep one of the two"))
}

pub(super) fn missing(key: &str) -> Problem {
    Problem::wrong(format!("missing parameter `{key}`"))
}

/// "`a`, `b` or `c`".
fn one_of<'n>(names: impl ExactSizeIterator<Item = &'n str>) -> String {
    let last = names.len().saturating_sub(1);
    let mut text = String::new();
    for (place, name) in names.enumerate() {
        text.push_str(match place {
            0 => "",
            _ if place == last => " or ",
            _ => ", ",
        });
        text.extend(["`", name, "`"]);
    }
    text
}
