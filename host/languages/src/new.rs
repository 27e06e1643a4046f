//! A new policy: a folder that builds as it is and passes its own test cases.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::project::{Engine, Language, MANIFEST, Project, Stage};
use crate::{LanguageError, go, javascript, rust, sdk};

/// What a policy in one language begins from, and the names in it that the policy's own replaces.
struct Sources {
    scorer: &'static str,
    classifier: &'static str,
    /// Any of filter, score and pick: lines between `//[stage` and `//]` stay where the policy has that stage, those after
    /// `//[no filter` where it has no filter.
    template: &'static str,
}

const SCORER: &str = "least-loaded-warm";
const CLASSIFIER: &str = "max-in-flight";
const TEMPLATE: &str = "new-policy";
const SCORER_CASES: &str = include_str!("../../../guest-sdk/cases/least-loaded-warm.yaml");
const CLASSIFIER_CASES: &str = include_str!("../../../guest-sdk/cases/max-in-flight.yaml");

macro_rules! sources {
    ($language:literal, $file:literal) => {
        Sources {
            scorer: include_str!(concat!("../../../guest-sdk/", $language, "/examples/least-loaded-warm/", $file)),
            classifier: include_str!(concat!("../../../guest-sdk/", $language, "/examples/max-in-flight/", $file)),
            template: include_str!(concat!("../../../guest-sdk/", $language, "/template/", $file)),
        }
    };
}

const RUST: Sources = Sources {
    scorer: include_str!("../../../policies/least-loaded-warm/src/lib.rs"),
    classifier: include_str!("../../../policies/max-in-flight/src/lib.rs"),
    template: include_str!("../../../guest-sdk/rust/template/policy.rs"),
};

/// Makes the folder `parent/name` with a policy of these stages, its test cases and the SDK; answers the folder.
///
/// # Errors
/// Where the folder is there already, or cannot be written; a name or stages that cannot be.
pub fn new(parent: &Path, name: &str, language: Language, stages: &[Stage]) -> Result<PathBuf, LanguageError> {
    let plain = |char: char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '-';
    if !name.starts_with(|first: char| first.is_ascii_lowercase()) || !name.chars().all(plain) {
        return Err(LanguageError::Name { name: name.to_owned() });
    }
    let dir = parent.join(name);
    if dir.exists() {
        return Err(LanguageError::Exists { dir });
    }
    let mut stages = stages.to_vec();
    stages.sort_unstable();
    let (file, sources) = match language {
        Language::Rust => ("src/lib.rs", RUST),
        Language::Js => ("policy.js", sources!("js", "policy.js")),
        Language::Python => ("policy.py", sources!("python", "policy.py")),
        Language::Go => ("policy.go", sources!("go", "policy.go")),
        Language::C => ("policy.c", sources!("c", "policy.c")),
    };
    let (source, cases) = begun(&sources, name, &stages)?;
    let project = Project { dir: dir.clone(), language, stages, engine: Engine::default() };
    sdk::write(&dir.join(file), &source)?;
    sdk::write(&dir.join("cases.yaml"), &cases)?;
    sdk::write(&dir.join(MANIFEST), &project.manifest())?;
    sdk::write(&dir.join(".gitignore"), ".pointsman/\n.venv/\nnode_modules/\ntarget/\n*.wasm\n")?;
    match language {
        Language::Rust => rust::begin(&project, name)?,
        Language::Js => javascript::begin(&project, name)?,
        Language::Go => go::begin(&project, name)?,
        Language::Python | Language::C => {}
    }
    project.lay()?;
    Ok(dir)
}

/// The source and the cases of a policy of this name.
fn begun(sources: &Sources, name: &str, stages: &[Stage]) -> Result<(String, String), LanguageError> {
    let repeated = stages.windows(2).any(|pair| matches!(pair, [one, other] if one == other));
    match stages {
        [Stage::Score] => Ok((sources.scorer.replace(SCORER, name), SCORER_CASES.replace(SCORER, name))),
        [Stage::Classify] => {
            Ok((sources.classifier.replace(CLASSIFIER, name), CLASSIFIER_CASES.replace(CLASSIFIER, name)))
        }
        [] => Err(LanguageError::Stages),
        _ if repeated || stages.contains(&Stage::Classify) => Err(LanguageError::Stages),
        _ => Ok((cut(sources.template, stages).replace(TEMPLATE, name), cases(name, stages))),
    }
}

/// The lines of a template that these stages keep.
fn cut(template: &str, stages: &[Stage]) -> String {
    let has = |name: &str| stages.iter().any(|stage| stage.as_str() == name);
    let (mut kept, mut keeps) = (String::new(), true);
    for line in template.lines() {
        let mark = line.trim_start().trim_start_matches(['/', '#']);
        match (mark.strip_prefix("[no "), mark.strip_prefix('[')) {
            (Some(name), _) => keeps = !has(name),
            // An attribute of Rust begins so too, and ends on its line.
            (None, Some(name)) if !name.contains(']') => keeps = has(name),
            _ if mark == "]" && mark.len() < line.trim_start().len() => keeps = true,
            _ if keeps => {
                let _ = writeln!(kept, "{line}");
            }
            _ => {}
        }
    }
    let names: Vec<&str> = stages.iter().map(|stage| stage.in_rust()).collect();
    kept.replace("STAGES", &names.join(", "))
}

/// The cases of a policy from the template.
fn cases(name: &str, stages: &[Stage]) -> String {
    /// Workers 1 to 4: their active requests and cached blocks.
    const WORKERS: [(u32, i32); 4] = [(9, 1), (3, 0), (3, 2), (5, 4)];
    const MOST: u32 = 8;
    let has = |stage| stages.contains(&stage);
    let workers = || (1..).zip(WORKERS).filter(|(_, (requests, _))| !has(Stage::Filter) || *requests < MOST);
    let cost = |requests| if has(Stage::Score) { requests } else { 0 };
    let tie = |cached: i32| if has(Stage::Pick) { -cached } else { 0 };
    let chosen = workers().min_by_key(|(_, (requests, cached))| (cost(*requests), tie(*cached)));
    let mut text = format!("# What {name} must choose: `pointsman policy test` runs these.\ncases:\n");
    text += "  - name: one of four workers is taken\n";
    if has(Stage::Filter) {
        let _ = writeln!(text, "    parameters: {{max_requests: {MOST}}}");
    }
    text += "    workers:\n";
    for (worker, (requests, cached)) in (1..).zip(WORKERS) {
        let signals = format!("{{load.active-requests: {requests}, cache.overlap-blocks: {cached}}}");
        let _ = writeln!(text, "      - {{worker: {worker}, signals: {signals}}}");
    }
    let kept: Vec<i32> = workers().map(|(worker, _)| worker).collect();
    let costs: Vec<u32> = workers().map(|(_, (requests, _))| requests).collect();
    let costs = if has(Stage::Score) { format!(", costs: {costs:?}") } else { String::new() };
    let worker = chosen.map_or(0, |(worker, _)| worker);
    let _ = writeln!(text, "    expect: {{kept: {kept:?}{costs}, worker: {worker}}}");
    text += if has(Stage::Filter) {
        "  - name: a worker gets one request at least\n    parameters: {max_requests: 0}\n    \
         expect: {refused: max_requests must be at least 1}\n"
    } else {
        "  - name: there are no parameters\n    parameters: {weight: 1}\n    \
         expect: {refused: unknown parameter `weight`; this policy takes none}\n"
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_other_stages_are_cut() {
        let template =
            "#[derive(A)]\n//[filter\na\n//]\n  #[no filter\n  b\n  #]\n//[score\nc\n//]\nx[1]\n]\nexport(STAGES)\n";
        assert_eq!(cut(template, &[Stage::Filter]), "#[derive(A)]\na\nx[1]\n]\nexport(filter)\n");
        let both = cut(template, &[Stage::Score, Stage::Pick]);
        assert_eq!(both, "#[derive(A)]\n  b\nc\nx[1]\n]\nexport(scorer, picker)\n");
    }
}
