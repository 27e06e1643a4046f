//! A new policy: a folder that builds as it is, from the SDK's example of the same stage.

use std::path::{Path, PathBuf};

use crate::project::{Language, MANIFEST, Project, Stage};
use crate::{LanguageError, c, go, javascript, python, sdk};

/// The examples' own names, which the new policy's replaces.
const SCORER: &str = "least-loaded-warm";
const CLASSIFIER: &str = "max-in-flight";

macro_rules! example {
    ($language:literal, $file:literal) => {
        [
            (
                include_str!(concat!("../../../guest-sdk/", $language, "/examples/least-loaded-warm/", $file)),
                include_str!("../../../guest-sdk/cases/least-loaded-warm.yaml"),
            ),
            (
                include_str!(concat!("../../../guest-sdk/", $language, "/examples/max-in-flight/", $file)),
                include_str!("../../../guest-sdk/cases/max-in-flight.yaml"),
            ),
        ]
    };
}

/// Makes the folder `parent/name` with a policy of this stage, its test cases and the SDK; answers the folder.
///
/// # Errors
/// Where the folder is there already, or cannot be written; a name or stages that cannot be.
pub fn new(parent: &Path, name: &str, language: Language, stages: &[Stage]) -> Result<PathBuf, LanguageError> {
    let plain = |char: char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '-';
    if !name.starts_with(|first: char| first.is_ascii_lowercase()) || !name.chars().all(plain) {
        return Err(LanguageError::Name { name: name.to_owned() });
    }
    let (place, example, stage) = match stages {
        [Stage::Score] => (0, SCORER, "score"),
        [Stage::Classify] => (1, CLASSIFIER, "classify"),
        _ => return Err(LanguageError::Stages),
    };
    let dir = parent.join(name);
    if dir.exists() {
        return Err(LanguageError::Exists { dir });
    }
    let (file, examples) = match language {
        Language::Js => ("policy.js", example!("js", "policy.js")),
        Language::Python => ("policy.py", example!("python", "policy.py")),
        Language::Go => ("policy.go", example!("go", "policy.go")),
        Language::C => ("policy.c", example!("c", "policy.c")),
    };
    let Some((source, cases)) = examples.get(place) else { return Err(LanguageError::Stages) };
    sdk::write(&dir.join(file), &source.replace(example, name))?;
    sdk::write(&dir.join("cases.yaml"), &cases.replace(example, name))?;
    sdk::write(&dir.join(MANIFEST), &format!("language: {language}\nstages: [{stage}]\n"))?;
    sdk::write(&dir.join(".gitignore"), ".pointsman/\n.venv/\nnode_modules/\n*.wasm\n")?;
    match language {
        Language::Go => sdk::write(&dir.join("go.mod"), &GO_MOD.replace("NAME", name))?,
        Language::Js => sdk::write(&dir.join("package.json"), &PACKAGE_JSON.replace("NAME", name))?,
        Language::Python | Language::C => {}
    }
    let project = Project { dir: dir.clone(), language, stages: stages.to_vec() };
    match language {
        Language::Js => javascript::lay(&project)?,
        Language::Python => python::lay(&project)?,
        Language::Go => go::lay(&project)?,
        Language::C => c::lay(&project)?,
    }
    Ok(dir)
}

const GO_MOD: &str = "module NAME\n\ngo 1.24\n\nrequire pointsman v0.0.0\n\nreplace pointsman => ./.pointsman/go\n";
const PACKAGE_JSON: &str = "{\n  \"name\": \"NAME\",\n  \"private\": true,\n  \"type\": \"module\"\n}\n";
