//! What can be understood of a file that may be wrong, so that a check can go on.

use std::path::Path;

use super::problem::Report;
use super::schema::{self, Places};
use super::yaml::{self, Node};
use super::{Component, Instance, PolicyConfig, Problem};

/// A policy file as far as it makes sense, and everything that is wrong with it.
///
/// An entry of a list that makes no sense on its own is left out. An instance or component without a usable name is
/// there under a name in brackets, such as `instances[2]`, which nothing can refer to.
#[derive(Debug)]
pub struct Reading {
    /// What could be understood. It is what the file says only where there is no problem.
    pub config: PolicyConfig,
    /// What is wrong, in the order of the lines.
    pub problems: Vec<Problem>,
    root: Option<Node>,
    places: Places,
}

impl Reading {
    /// Reads the text of a file. `file` names it in problems; relative paths in it start at `folder`.
    #[must_use]
    pub fn of(file: &str, folder: &Path, text: &str) -> Self {
        let mut report = Report::new(file);
        let root = yaml::read(text, &mut report);
        let (config, places) = match &root {
            Some(root) => schema::read(file, folder, root, &mut report),
            None => (PolicyConfig { file: file.to_owned(), ..PolicyConfig::default() }, Places::default()),
        };
        Self { config, problems: report.problems(), root, places }
    }

    /// Reads a file. One that cannot be read as UTF-8 text is a problem too.
    #[must_use]
    pub fn load(path: &Path) -> Self {
        let file = path.display().to_string();
        match PolicyConfig::text(path) {
            Ok(text) => Self::of(&file, path.parent().unwrap_or(Path::new("")), &text),
            Err(problem) => Self {
                config: PolicyConfig { file, ..PolicyConfig::default() },
                problems: vec![problem],
                root: None,
                places: Places::default(),
            },
        }
    }

    /// The components, each with its place in the file's list.
    pub fn components(&self) -> impl Iterator<Item = (usize, &Component)> {
        self.places.components.iter().copied().zip(&self.config.components)
    }

    /// The instances, each with its place in the file's list.
    pub fn instances(&self) -> impl Iterator<Item = (usize, &Instance)> {
        let instances = self.config.worker_selection.iter().flat_map(|selection| &selection.instances);
        self.places.instances.iter().copied().zip(instances)
    }

    /// As [`PolicyConfig::check_types`], without what follows from the problems that are known.
    #[must_use]
    pub fn type_problems(&self, registered: &[String]) -> Vec<Problem> {
        self.config.type_problems(registered, &self.places, |field, _| self.line(field))
    }

    /// A problem of the field, on its line.
    #[must_use]
    pub fn problem(&self, field: &str, message: String) -> Problem {
        Problem { file: self.config.file.clone(), line: self.line(field), field: field.to_owned(), message }
    }

    /// Whether the field, or a part of it, has a problem.
    #[must_use]
    pub fn has_problem(&self, field: &str) -> bool {
        let is_part = |rest: &str| rest.is_empty() || rest.starts_with(['.', '[']);
        self.problems.iter().any(|problem| problem.field.strip_prefix(field).is_some_and(is_part))
    }

    /// The path of the field `key` of `parent`.
    #[must_use]
    pub fn field(parent: &str, key: &str) -> String {
        yaml::join(parent, key)
    }

    /// The path of the entry `name` of a list; the list's own where it is no list or has no such entry.
    #[must_use]
    pub fn entry(&self, list: &str, name: &str) -> String {
        let place = self.root.as_ref().and_then(|root| root.place_of(list, name));
        place.map_or_else(|| list.to_owned(), |place| format!("{list}[{place}]"))
    }

    /// The line of the field; where it is left out, that of the value that lacks it.
    fn line(&self, field: &str) -> usize {
        self.root.as_ref().map_or(0, |root| root.line_of(field))
    }
}
