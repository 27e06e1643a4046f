//! Typed reading of the tree: each method returns the value, or none with the problem in the report.

use std::ops::RangeInclusive;
use std::path::Path;

use serde_json::{Map, Number};

use super::PolicyConfig;
use super::problem::{Problem, Problems, Report, did_you_mean, listed, shown};
use super::yaml::{self, Entry, Node, Scalar, Value, join};

/// Another YAML file in the manner of the router-policy file: unknown and repeated fields are refused, and every problem is
/// told at once, with its line, its field and the fix.
#[derive(Debug)]
pub struct Document {
    file: String,
    root: Option<Node>,
    report: Report,
}

impl Document {
    /// Takes the text of a file, named `file` in problems.
    #[must_use]
    pub fn of(file: &str, text: &str) -> Self {
        let mut report = Report::new(file);
        let root = yaml::read(text, &mut report);
        Self { file: file.to_owned(), root, report }
    }

    /// Takes a file.
    ///
    /// # Errors
    /// Where it cannot be read as UTF-8 text of up to 1 MiB.
    pub fn load(path: &Path) -> Result<Self, Problem> {
        Ok(Self::of(&path.display().to_string(), &PolicyConfig::text(path)?))
    }

    /// The file's name in problems.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Has `with` read the document's root.
    ///
    /// # Errors
    /// Every problem of the syntax and those that `with` found.
    pub fn read<T: Default>(mut self, with: impl FnOnce(&Field<'_>, &mut Report) -> Option<T>) -> Result<T, Problems> {
        let value = self.root.as_ref().and_then(|root| with(&Field::root(root), &mut self.report));
        Problems::none_or(value.unwrap_or_default(), self.report.problems())
    }
}

/// A value of a file and the path that leads to it. Its methods answer the value as what is asked for, or none with the
/// problem in the report.
#[derive(Clone, Debug)]
pub struct Field<'n> {
    pub(super) node: &'n Node,
    pub(super) path: String,
}

impl<'n> Field<'n> {
    pub(super) fn root(node: &'n Node) -> Self {
        Self { node, path: String::new() }
    }

    /// The line, counted from 1.
    #[must_use]
    pub fn line(&self) -> usize {
        self.node.line
    }

    /// Tells a problem of this value: one sentence that says what is wrong and how to put it right.
    pub fn problem(&self, report: &mut Report, message: impl Into<String>) {
        report.add(self.node.line, &self.path, message);
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self.node.value, Value::Scalar(_, Scalar::Null))
    }

    /// What stands here instead of what should.
    fn found(&self) -> String {
        match &self.node.value {
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a mapping".to_owned(),
            Value::Scalar(_, Scalar::Null) => "nothing".to_owned(),
            Value::Scalar(text, Scalar::Text) => format!("the text {}", shown(text)),
            Value::Scalar(text, _) => shown(text),
        }
    }

    /// A text; a number, true or false count as they are written.
    pub fn text(&self, report: &mut Report) -> Option<&'n str> {
        match &self.node.value {
            Value::Scalar(text, scalar) if *scalar != Scalar::Null && !text.is_empty() => return Some(text),
            Value::Scalar(_, Scalar::Text) => self.problem(report, "must not be empty; write a text"),
            _ => self.problem(report, format!("must be a text, not {}", self.found())),
        }
        None
    }

    /// A text of letters, digits, `_`, `.` and `-`. `what` says what it names.
    pub fn name(&self, what: &str, report: &mut Report) -> Option<&'n str> {
        let text = self.text(report)?;
        if !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte)) {
            self.problem(report, format!("{} is no {what}; use only letters, digits, `_`, `.` and `-`", shown(text)));
            return None;
        }
        Some(text)
    }

    /// A name other than `default`.
    pub(super) fn identifier(&self, what: &str, report: &mut Report) -> Option<&'n str> {
        let text = self.name(what, report)?;
        if text == "default" {
            self.problem(report, format!("`default` is reserved for the built-in policy; use another {what}"));
            return None;
        }
        Some(text)
    }

    /// One of the words that `from` knows; `words` lists them for the message.
    pub fn word<T>(&self, words: &[&str], from: impl Fn(&str) -> Option<T>, report: &mut Report) -> Option<T> {
        let text = self.text(report)?;
        let value = from(text);
        if value.is_none() {
            let near = did_you_mean(text, words.iter().copied());
            let (last, others) = words.split_last().map_or(("", [].as_slice()), |(last, others)| (*last, others));
            let others = others.join(", ");
            self.problem(report, format!("unknown word {}{near}; use {others} or {last}", shown(text)));
        }
        value
    }

    /// A whole number in the range.
    pub fn whole(&self, range: RangeInclusive<u64>, report: &mut Report) -> Option<u64> {
        if let Value::Scalar(_, Scalar::Unsigned(value)) = self.node.value
            && range.contains(&value)
        {
            return Some(value);
        }
        let message = format!("must be a whole number from {} to {}, not {}", range.start(), range.end(), self.found());
        self.problem(report, message);
        None
    }

    /// A whole number in the range.
    pub fn whole_u32(&self, range: RangeInclusive<u32>, report: &mut Report) -> Option<u32> {
        let range = u64::from(*range.start())..=u64::from(*range.end());
        self.whole(range, report).and_then(|value| u32::try_from(value).ok())
    }

    /// A number, which may be infinite or none.
    pub fn number(&self, report: &mut Report) -> Option<f64> {
        match self.node.value {
            Value::Scalar(_, Scalar::Float(value)) => Some(value),
            Value::Scalar(_, Scalar::Unsigned(value)) => Some(value as f64),
            Value::Scalar(_, Scalar::Negative(value)) => Some(value as f64),
            _ => {
                self.problem(report, format!("must be a number, not {}", self.found()));
                None
            }
        }
    }

    /// A number from 0 to 1.
    pub(super) fn fraction(&self, report: &mut Report) -> Option<f64> {
        let value = match self.node.value {
            Value::Scalar(_, Scalar::Float(value)) => value,
            Value::Scalar(_, Scalar::Unsigned(0)) => 0.0,
            Value::Scalar(_, Scalar::Unsigned(1)) => 1.0,
            _ => f64::NAN,
        };
        if (0.0..=1.0).contains(&value) {
            return Some(value);
        }
        self.problem(report, format!("must be a number from 0 to 1, not {}", self.found()));
        None
    }

    /// True or false.
    pub fn boolean(&self, report: &mut Report) -> Option<bool> {
        if let Value::Scalar(_, Scalar::Bool(value)) = self.node.value {
            return Some(value);
        }
        self.problem(report, format!("must be true or false, not {}", self.found()));
        None
    }

    /// The entries of a list.
    pub fn list(&self, report: &mut Report) -> Option<Vec<Field<'n>>> {
        let items = self.items();
        if items.is_none() {
            self.problem(report, format!("must be a list, not {}; write `- ` before each entry", self.found()));
        }
        items
    }

    /// The entries of a list, without a word where it is none.
    pub(super) fn items(&self) -> Option<Vec<Field<'n>>> {
        let Value::List(items) = &self.node.value else { return None };
        let path = &self.path;
        Some(items.iter().enumerate().map(|(i, node)| Field { node, path: format!("{path}[{i}]") }).collect())
    }

    pub(super) fn is_map(&self) -> bool {
        matches!(self.node.value, Value::Map(_))
    }

    /// The value of `key`, without a word where there is none.
    pub(super) fn peek(&self, key: &str) -> Option<Field<'n>> {
        let Value::Map(entries) = &self.node.value else { return None };
        let entry = entries.iter().find(|entry| entry.key == key)?;
        Some(Field { node: &entry.node, path: join(&self.path, key) }).filter(|field| !field.is_null())
    }

    /// The text of a scalar, without a word where it is none.
    pub(super) fn peek_text(&self) -> Option<&'n str> {
        match &self.node.value {
            Value::Scalar(text, _) => Some(text),
            _ => None,
        }
    }

    /// The texts of a mapping's fields other than `known`: one of them may be a name under a misspelt key.
    pub(super) fn misplaced(&self, known: &[&str]) -> impl Iterator<Item = &'n str> {
        let entries = match &self.node.value {
            Value::Map(entries) => entries.as_slice(),
            _ => &[],
        };
        let unknown = entries.iter().filter(move |entry| !known.contains(&entry.key.as_str()));
        unknown.filter_map(|entry| match &entry.node.value {
            Value::Scalar(text, _) => Some(text.as_str()),
            _ => None,
        })
    }

    /// The fields of a mapping, whatever their names.
    pub(super) fn entries(&self, report: &mut Report) -> Option<&'n [Entry]> {
        if let Value::Map(entries) = &self.node.value {
            return Some(entries);
        }
        self.problem(report, format!("must be a mapping, not {}; write `field: value` lines below it", self.found()));
        None
    }

    /// A mapping of any names, each with what `read` makes of its value.
    pub fn mapping<T>(
        &self,
        report: &mut Report,
        read: impl Fn(&Field<'_>, &mut Report) -> Option<T>,
    ) -> Vec<(String, T)> {
        let entries = self.entries(report).unwrap_or_default();
        let field = |entry: &'n Entry| Field { node: &entry.node, path: join(&self.path, &entry.key) };
        entries.iter().filter_map(|entry| Some((entry.key.clone(), read(&field(entry), report)?))).collect()
    }

    /// A mapping with these fields alone.
    pub fn fields(&self, allowed: &[&str], report: &mut Report) -> Option<Fields<'n>> {
        let entries = self.entries(report)?;
        let mut all_known = true;
        for entry in entries.iter().filter(|entry| !allowed.contains(&entry.key.as_str())) {
            all_known = false;
            let path = join(&self.path, &entry.key);
            let near = did_you_mean(&entry.key, allowed.iter().copied());
            let allowed = listed(allowed.iter().copied());
            let message = format!("unknown field {}{near}; the fields allowed here are {allowed}", shown(&entry.key));
            report.add(entry.line, &path, message);
        }
        Some(Fields { field: self.clone(), entries, all_known })
    }

    /// The value as JSON, which knows neither NaN nor infinity.
    pub(super) fn json(&self, report: &mut Report) -> serde_json::Value {
        match &self.node.value {
            Value::List(_) => {
                self.items().into_iter().flatten().map(|item| item.json(report)).collect::<Vec<_>>().into()
            }
            Value::Map(entries) => json_map(entries, &self.path, report).into(),
            Value::Scalar(text, scalar) => match *scalar {
                Scalar::Null => serde_json::Value::Null,
                Scalar::Bool(value) => value.into(),
                Scalar::Unsigned(value) => value.into(),
                Scalar::Negative(value) => value.into(),
                Scalar::Text => text.as_str().into(),
                Scalar::Float(value) => Number::from_f64(value).map_or_else(
                    || {
                        self.problem(report, format!("{} is not allowed; write a finite number", shown(text)));
                        serde_json::Value::Null
                    },
                    Into::into,
                ),
                Scalar::TooLarge => {
                    let message = format!("{} is out of the range of numbers; write a smaller one", shown(text));
                    self.problem(report, message);
                    serde_json::Value::Null
                }
            },
        }
    }
}

/// A mapping as a JSON object. `path` leads to it.
pub(super) fn json_map(entries: &[Entry], path: &str, report: &mut Report) -> Map<String, serde_json::Value> {
    let value =
        |entry: &Entry, report: &mut Report| Field { node: &entry.node, path: join(path, &entry.key) }.json(report);
    entries.iter().map(|entry| (entry.key.clone(), value(entry, report))).collect()
}

/// The fields of a mapping by name. A field without a value counts as left out, as it does for Dynamo.
pub struct Fields<'n> {
    field: Field<'n>,
    pub(super) entries: &'n [Entry],
    all_known: bool,
}

impl<'n> Fields<'n> {
    /// The field of that name; none where it is left out.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Field<'n>> {
        self.field.peek(key)
    }

    /// The field of that name, which must be there.
    pub fn require(&self, key: &str, report: &mut Report) -> Option<Field<'n>> {
        let field = self.get(key);
        // A field that is there under a misspelt name was told already.
        let misspelt =
            || self.entries.iter().any(|entry| !did_you_mean(&entry.key, [key]).is_empty() && entry.key != key);
        if field.is_none() && !self.field.node.cut && !misspelt() {
            report.add(self.line_of(key), &join(&self.field.path, key), format!("`{key}` is missing; add it"));
        }
        field
    }

    /// The field's line, or the mapping's where it is left out.
    pub(super) fn line_of(&self, key: &str) -> usize {
        self.entries.iter().find(|entry| entry.key == key).map_or(self.field.node.line, |entry| entry.line)
    }

    pub(super) fn has_any(&self, keys: &[&str]) -> bool {
        keys.iter().any(|key| self.get(key).is_some())
    }

    /// Something is missing in the mapping. Where a field is unknown, or the file ends early, that is the likely reason and
    /// was said already.
    pub(super) fn lacks(&self, report: &mut Report, message: impl Into<String>) {
        if self.all_known && !self.field.node.cut {
            self.field.problem(report, message);
        }
    }
}
