//! Why parameters are refused.

use crate::PolicyError;

/// One problem, and the path of the parameter that has it, such as `tiers[2].weight`.
#[derive(Debug)]
pub enum Problem {
    /// The text is not JSON: where, and what was expected there.
    NotJson(String),
    /// What is wrong with the parameter of this path, which is empty for all of them.
    Wrong(String, String),
    /// What the parameter of this path must be.
    Rule(String, &'static str),
}

impl Problem {
    pub(super) fn wrong(text: String) -> Self {
        Self::Wrong(String::new(), text)
    }

    pub(super) const fn rule(rule: &'static str) -> Self {
        Self::Rule(String::new(), rule)
    }

    /// The problem as seen from around `part`: a key, or an index in brackets.
    pub(super) fn within(mut self, part: &str) -> Self {
        if let Self::Wrong(path, _) | Self::Rule(path, _) = &mut self {
            if !path.is_empty() && !path.starts_with('[') {
                path.insert(0, '.');
            }
            path.insert_str(0, part);
        }
        self
    }
}

impl From<Problem> for PolicyError {
    fn from(problem: Problem) -> Self {
        Self::failed(match problem {
            Problem::NotJson(place) => format!("parameters are not JSON: {place}"),
            Problem::Wrong(path, text) if path.is_empty() => text,
            Problem::Wrong(path, text) => format!("{path}: {text}"),
            Problem::Rule(path, rule) => format!("{path} must be {rule}"),
        })
    }
}
