//! A policy's folder and what its `pointsman.yaml` says.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Deserialize;

use crate::{LanguageError, c, go, javascript, python, rust};

/// The file that makes a folder a policy in one of these languages.
pub(crate) const MANIFEST: &str = "pointsman.yaml";

/// A language that policies are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// Rust.
    Rust,
    /// JavaScript and TypeScript.
    Js,
    /// Python.
    Python,
    /// Go.
    Go,
    /// C.
    C,
}

impl Language {
    /// Each of them.
    pub const ALL: [Self; 5] = [Self::Rust, Self::Js, Self::Python, Self::Go, Self::C];

    /// Its name in `pointsman.yaml`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::Js => "js",
            Self::Python => "python",
            Self::Go => "go",
            Self::C => "c",
        }
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Language {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|language| language.as_str() == name);
        known.ok_or_else(|| format!("there is no language `{name}`; give rust, js, python, go or c"))
    }
}

/// A stage that a policy has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Keeps rows.
    Filter,
    /// Gives each row a cost.
    Score,
    /// Chooses a row.
    Pick,
    /// Decides whether, when and how a request enters the queue.
    Classify,
}

impl Stage {
    /// Its name in `pointsman.yaml`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Score => "score",
            Self::Pick => "pick",
            Self::Classify => "classify",
        }
    }

    /// Its name in the Rust SDK's `export!`.
    pub(crate) const fn in_rust(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Score => "scorer",
            Self::Pick => "picker",
            Self::Classify => "classifier",
        }
    }

    /// The interface of the contract that is exported for it.
    pub(crate) const fn interface(self) -> &'static str {
        match self {
            Self::Filter => "worker-filter",
            Self::Score => "worker-scorer",
            Self::Pick => "worker-picker",
            Self::Classify => "request-classifier",
        }
    }
}

impl FromStr for Stage {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = [Self::Filter, Self::Score, Self::Pick, Self::Classify];
        let known = all.into_iter().find(|stage| stage.as_str() == name);
        known.ok_or_else(|| format!("there is no stage `{name}`; give filter, score, pick or classify"))
    }
}

/// What runs a policy in JavaScript within its component.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Engine {
    /// Small, and quick to load.
    #[default]
    QuickJs,
    /// Ten times as large, and lists are typed arrays.
    SpiderMonkey,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    language: Language,
    engine: Option<Engine>,
    #[serde(default)]
    stages: Vec<Stage>,
}

/// A policy's folder.
#[derive(Clone, Debug)]
pub struct Project {
    pub(crate) dir: PathBuf,
    pub(crate) language: Language,
    pub(crate) stages: Vec<Stage>,
    pub(crate) engine: Engine,
}

impl Project {
    /// Reads the folder's `pointsman.yaml`; none where there is no such file.
    ///
    /// # Errors
    /// Where the file cannot be read, or does not say what it must.
    pub fn open(dir: &Path) -> Result<Option<Self>, LanguageError> {
        let path = dir.join(MANIFEST);
        if !path.is_file() {
            return Ok(None);
        }
        let text =
            std::fs::read_to_string(&path).map_err(|source| LanguageError::Read { path: path.clone(), source })?;
        let wrong = |message: String| LanguageError::Manifest { path: path.clone(), message };
        let manifest: Manifest =
            serde_saphyr::from_str(&text).map_err(|error| wrong(first_line(&error.to_string())))?;
        match (manifest.language, manifest.stages.is_empty()) {
            (Language::Rust, false) => {
                return Err(wrong("stages of Rust are those that its `export!` names".to_owned()));
            }
            (Language::Rust, true) | (_, false) => {}
            (_, true) => return Err(wrong("it names no stage".to_owned())),
        }
        if manifest.language != Language::Js && manifest.engine.is_some() {
            return Err(wrong("an engine is chosen for JavaScript alone".to_owned()));
        }
        let dir = dir.canonicalize().map_err(|source| LanguageError::Read { path: dir.to_owned(), source })?;
        let engine = manifest.engine.unwrap_or_default();
        Ok(Some(Self { dir, language: manifest.language, stages: manifest.stages, engine }))
    }

    /// The language that the policy is written in.
    #[must_use]
    pub fn language(&self) -> Language {
        self.language
    }

    /// The folder's name.
    #[must_use]
    pub fn name(&self) -> String {
        self.dir.file_name().map_or_else(|| "policy".to_owned(), |name| name.to_string_lossy().into_owned())
    }

    /// Makes the component. Blocks until the language's tools end.
    ///
    /// # Errors
    /// Where a tool is missing or refuses the policy, or files cannot be written.
    pub fn build(&self) -> Result<Vec<u8>, LanguageError> {
        match self.language {
            Language::Rust => rust::build(self),
            Language::Js => javascript::build(self),
            Language::Python => python::build(self),
            Language::Go => go::build(self),
            Language::C => c::build(self),
        }
    }

    /// Lays the SDK into the folder.
    pub(crate) fn lay(&self) -> Result<(), LanguageError> {
        match self.language {
            Language::Rust => rust::lay(self),
            Language::Js => javascript::lay(self),
            Language::Python => python::lay(self),
            Language::Go => go::lay(self),
            Language::C => c::lay(self),
        }
    }

    /// What its `pointsman.yaml` says.
    pub(crate) fn manifest(&self) -> String {
        let stages: Vec<&str> = self.stages.iter().map(|stage| stage.as_str()).collect();
        match self.language {
            Language::Rust => "language: rust\n".to_owned(),
            language => format!("language: {language}\nstages: [{}]\n", stages.join(", ")),
        }
    }

    /// The folder of what this crate lays beside the policy.
    pub(crate) fn own(&self) -> PathBuf {
        self.dir.join(".pointsman")
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
