//! What is wrong with a policy file: every problem at once, each with its line, its field and the fix.

use std::fmt;

/// One thing that is wrong with a policy file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, as the caller named it.
    pub file: String,
    /// The line, counted from 1; 0 where the file as a whole is meant.
    pub line: usize,
    /// The path of the field, such as `worker_selection.instances[1].name`; empty where no field is meant.
    pub field: String,
    /// One sentence that says what is wrong and how to put it right.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if !self.field.is_empty() {
            write!(f, ": {}", self.field)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Everything that is wrong with a policy file, in the order of its lines; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// `value` where there is no problem.
    pub(super) fn none_or<T>(value: T, problems: Vec<Problem>) -> Result<T, Self> {
        if problems.is_empty() { Ok(value) } else { Err(Self(problems)) }
    }

    /// The problems, in the order of their lines.
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.0.iter()
    }

    /// How many there are; at least one.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "there is always at least one")]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

impl IntoIterator for Problems {
    type Item = Problem;
    type IntoIter = std::vec::IntoIter<Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Problems {
    type Item = &'a Problem;
    type IntoIter = std::slice::Iter<'a, Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, problem) in self.0.iter().enumerate() {
            if place > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// Collects the problems of one file.
#[derive(Debug)]
pub struct Report {
    file: String,
    problems: Vec<Problem>,
}

impl Report {
    pub(super) fn new(file: &str) -> Self {
        Self { file: file.to_owned(), problems: Vec::new() }
    }

    pub(super) fn add(&mut self, line: usize, field: &str, message: impl Into<String>) {
        self.problems.push(Problem { file: self.file.clone(), line, field: field.to_owned(), message: message.into() });
    }

    /// How many problems there are so far.
    pub(super) fn len(&self) -> usize {
        self.problems.len()
    }

    /// Every problem in the order of the lines.
    pub(super) fn problems(mut self) -> Vec<Problem> {
        self.problems.sort_by_key(|problem| problem.line);
        self.problems
    }
}

/// A text of the file as messages show it: in backticks, on one line, cut where it is long.
pub(super) fn shown(text: &str) -> String {
    const MOST: usize = 64;
    let mut shown: String = text.chars().take(MOST).flat_map(char::escape_debug).collect();
    if text.chars().nth(MOST).is_some() {
        shown.push_str("...");
    }
    format!("`{shown}`")
}

/// Names as messages list them; `<none>` where there are none.
pub(super) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    const MOST: usize = 64;
    let mut names: Vec<String> = names.into_iter().map(|name| name.escape_debug().to_string()).collect();
    let more = names.len().saturating_sub(MOST);
    names.truncate(MOST);
    match (names.is_empty(), more) {
        (true, _) => "<none>".to_owned(),
        (_, 0) => names.join(", "),
        (_, more) => format!("{} and {more} more", names.join(", ")),
    }
}

/// ` (did you mean ...?)` where one of the candidates is a near miss, else nothing.
pub(super) fn did_you_mean<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    // Bounds the work on a file of thousands of mistakes.
    const MOST: usize = 256;
    // A longer name may miss by more; of a shortened one, three letters tell enough.
    let most = (name.chars().count() / 3).min(3);
    let near = |candidate: &str| {
        let shortened = name.len() >= 3 && candidate.starts_with(name);
        let distance = strsim::damerau_levenshtein(name, candidate);
        (shortened || distance <= most).then_some(distance)
    };
    candidates
        .into_iter()
        .take(MOST)
        .filter_map(|candidate| Some((near(candidate)?, candidate)))
        .min()
        .map_or_else(String::new, |(_, candidate)| format!(" (did you mean `{}`?)", candidate.escape_debug()))
}
