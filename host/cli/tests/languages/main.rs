//! Policies in other languages than Rust: what their examples decide, what a new policy is, and what is said where an
//! author errs.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails fails its test")]

#[path = "../common/mod.rs"]
mod common;
mod mistakes;
mod pages;
mod tools;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{error, json, root, stdout};
use pointsman_languages::Language;

/// The one import of a policy that needs no more.
const LOG: &str = "pointsman:policy/log@0.1.0: writes to the policy's bounded log";

/// The binary, with the tools and a folder of compiled components.
pub(crate) fn pointsman() -> Command {
    let mut command = common::pointsman();
    command.env("POINTSMAN_TOOLS", tools::folder());
    command.env("POINTSMAN_COMPILE_CACHE", common::tmp().join("compiled"));
    command
}

pub(crate) fn run<I: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = I>) -> Output {
    pointsman().args(arguments).output().unwrap()
}

/// A new policy of these stages.
fn new(folder: &Path, language: Language, name: &str, stages: &str) -> PathBuf {
    let new = ["policy", "new", name, "--lang", language.as_str(), "--stages", stages];
    stdout(&pointsman().args(new).current_dir(folder).output().unwrap());
    folder.join(name)
}

/// A copy of an SDK's example, to be built; in Rust, what a new policy begins with.
fn example(folder: &Path, language: Language, name: &str) -> PathBuf {
    if language == Language::Rust {
        let stages = if name == "max-in-flight" { "classify" } else { "score" };
        return new(folder, language, name, stages);
    }
    copy(&root().join("guest-sdk").join(language.as_str()).join("examples").join(name), &folder.join(name))
}

/// A copy of a folder's files.
fn copy(from: &Path, to: &Path) -> PathBuf {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
    to.to_owned()
}

/// The component of a folder.
pub(crate) fn built(dir: &Path) -> String {
    let component = dir.join("built.wasm").to_str().unwrap().to_owned();
    stdout(&run([Path::new("policy"), Path::new("build"), dir, Path::new("-o"), Path::new(&component)]));
    component
}

/// The conversation trace; none, with a word about it, where it is not there.
fn conversation() -> Option<PathBuf> {
    let folder = std::env::var_os("POINTSMAN_TRACES");
    if folder.is_none() {
        assert!(std::env::var("CI").is_err(), "POINTSMAN_TRACES is not set: CI needs the folder of real traces");
        eprintln!("a generated trace stands in for the conversation trace, because POINTSMAN_TRACES is not set");
    }
    Some(Path::new(&folder?).join("mooncake_conversation_trace.jsonl"))
}

/// The example decides as the Rust reference does: on a trace, and on the conformance kit.
fn decides_as_in_rust(language: Language) {
    if !tools::are_there(language) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let scorer = built(&example(folder.path(), language, "least-loaded-warm"));
    let report = folder.path().join("report.json");
    let mut replay = pointsman();
    replay.args(["replay", "--policy", "least-loaded-warm", "--component", &scorer, "--json"]).arg(&report);
    if let Some(trace) = conversation() {
        replay.arg("--trace").arg(trace);
    }
    stdout(&replay.output().unwrap());
    same_decisions(&report, language);

    let classifier = built(&example(folder.path(), language, "max-in-flight"));
    // Go's collector runs first when the heap has 4 MB.
    let calls = if language == Language::Go { 400_000 } else { 40_000 };
    decides_on_and_on(&scorer, "{}", calls);
    decides_on_and_on(&classifier, r#"{"max_requests":4}"#, calls);
    for component in [&scorer, &classifier] {
        let said = stdout(&run(["policy", "test", component, "--conformance"]));
        assert!(said.trim_end().ends_with("passed, 0 failed"), "{language}: {said}");
    }
    match language {
        Language::Rust | Language::C => assert_eq!(imports(&scorer), Vec::<String>::new(), "{language}"),
        Language::Go => assert_eq!(imports(&scorer), [LOG]),
        Language::Js | Language::Python => assert!(imports(&scorer).contains(&LOG.to_owned()), "{language}"),
    }
    let described = |name: &str| json(&run(["policy", "inspect", "--json", name]));
    for (component, name) in [(&scorer, "least-loaded-warm"), (&classifier, "max-in-flight")] {
        let (own, reference) = (described(component), described(name));
        for key in ["name", "description", "stages", "inputs_reason"] {
            assert_eq!(own[key], reference[key], "{language}: {key}");
        }
        let (own, reference) = (&own["parameters_schema"], &reference["parameters_schema"]);
        assert_eq!(own["required"], reference["required"], "{language}");
        let properties = reference["properties"].as_object().unwrap();
        assert_eq!(own["properties"].as_object().unwrap().len(), properties.len(), "{language}");
        for (name, property) in properties {
            for key in ["description", "type", "format"] {
                assert_eq!(own["properties"][name][key], property[key], "{language}: {name}, {key}");
            }
            for key in ["minimum", "maximum", "default"] {
                assert_eq!(own["properties"][name][key].as_f64(), property[key].as_f64(), "{language}: {name}, {key}");
            }
        }
    }
}

/// What is imported, each with what it grants.
fn imports(component: &str) -> Vec<String> {
    let described = json(&run(["policy", "inspect", "--json", component]));
    let imports = described["imports"].as_array().unwrap().iter();
    imports
        .map(|import| format!("{}: {}", import["name"].as_str().unwrap(), import["grants"].as_str().unwrap()))
        .collect()
}

/// So many decisions or classifications, by two guests: no fault, the same answers with the same fuel, and no more memory than
/// after half of them.
fn decides_on_and_on(component: &str, parameters: &str, calls: u32) {
    let count = calls.to_string();
    let said = stdout(&run(["policy", "check", component, "--calls", &count, "--parameters", parameters]));
    assert!(said.contains(&format!("alike       {calls} calls, ")), "{said}");
    assert!(said.contains(&format!(" bytes, 0 more than after {} calls", calls / 2)), "{said}");
}

/// A new policy of one stage passes its cases. The page has one of all.
fn may_have_one_stage(language: Language) {
    if !tools::are_there(language) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let dir = new(folder.path(), language, "my-picker", "pick");
    let said = stdout(&run([Path::new("policy"), Path::new("test"), &dir]));
    assert!(said.ends_with("2 passed, 0 failed\n"), "{language}: {said}");
}

/// Both runs of a report have decided alike, without a fault.
fn same_decisions(report: &Path, language: Language) {
    let report: serde_json::Value = serde_json::from_str(&fs::read_to_string(report).unwrap()).unwrap();
    let [reference, own] = &report["runs"].as_array().unwrap()[..] else { panic!("{report}") };
    assert_eq!(own["decisions_sha256"], reference["decisions_sha256"], "{language}");
    assert_eq!(own["faults"], reference["faults"], "{language}");
}

macro_rules! languages {
    ($($module:ident: $language:ident),+) => {$(
        mod $module {
            use super::*;

            #[test]
            fn the_examples_decide_as_in_rust() {
                decides_as_in_rust(Language::$language);
            }

            #[test]
            fn the_page_works_as_written() {
                pages::work(Language::$language);
            }

            #[test]
            fn a_new_policy_may_have_one_stage() {
                may_have_one_stage(Language::$language);
            }

            #[test]
            fn a_mistake_is_named() {
                mistakes::are_named(Language::$language);
            }
        }
    )+};
}

languages!(rust: Rust, javascript: Js, python: Python, go: Go, c: C);

/// The picker with control state, by both of its algorithms.
#[test]
fn the_adaptive_policy_in_python_decides_as_in_rust() {
    if !tools::are_there(Language::Python) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let component = built(&example(folder.path(), Language::Python, "adaptive"));
    let sensitive = r#"{"load_scale":1,"midpoint":0.2,"smoothing":1}"#;
    for parameters in ["{}", sensitive, r#"{"algorithm":"sigmoid","load_scale":1}"#] {
        let report = folder.path().join("report.json");
        let mut replay = pointsman();
        replay.args(["replay", "--policy", "adaptive", "--parameters", parameters]);
        replay.args(["--component", &component, "--parameters", parameters, "--json"]).arg(&report);
        stdout(&replay.output().unwrap());
        same_decisions(&report, Language::Python);
    }
    for refused in [r#"{"pressure_max":0.95}"#, r#"{"slope":0}"#, r#"{"algorithm":"pid"}"#] {
        let said = |policy: &str| error(&run(["policy", "inspect", policy, "--parameters", refused]));
        let sentence = said("adaptive").split_once(": ").unwrap().1.to_owned();
        assert!(said(&component).ends_with(&sentence), "{}", said(&component));
    }
}

#[test]
fn what_cannot_begin_a_policy_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let new = |name: &str, stages: &str| {
        let new = ["policy", "new", name, "--lang", "c", "--stages", stages];
        pointsman().args(new).current_dir(folder.path()).output().unwrap()
    };
    for stages in ["score,classify", "pick,pick"] {
        let said = error(&new("mine", stages));
        assert!(said.ends_with("or classify alone; give --stages those"), "{said}");
    }
    assert!(error(&new("Mine", "score")).starts_with("`Mine` is no name for a policy; "));
    assert!(!folder.path().join("mine").exists());
    stdout(&new("mine", "score"));
    assert!(error(&new("mine", "score")).contains("mine is there already"));
}

#[test]
fn a_policy_in_typescript_decides_as_in_rust() {
    if !tools::are_there(Language::Js) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let dir = example(folder.path(), Language::Js, "least-loaded-warm");
    let source = fs::read_to_string(dir.join("policy.js")).unwrap();
    let typed = source.replace("const costs =", "const costs: number[] =");
    assert_ne!(typed, source);
    fs::remove_file(dir.join("policy.js")).unwrap();
    fs::write(dir.join("policy.ts"), typed).unwrap();
    let said = stdout(&run(["policy", "test", &built(&dir), "--conformance"]));
    assert!(said.ends_with("210 passed, 0 failed\n"), "{said}");
}

/// The other engine of JavaScript. Its tools take 390 MB and its component 12, so that it is asked for.
#[test]
fn a_policy_with_spidermonkey_decides_as_in_rust() {
    if std::env::var_os("POINTSMAN_SPIDERMONKEY").is_none() {
        eprintln!("not covered, because POINTSMAN_SPIDERMONKEY is not set: JavaScript with SpiderMonkey");
        return;
    }
    if !tools::are_there(Language::Js) {
        return;
    }
    tools::spidermonkey();
    let folder = tempfile::tempdir().unwrap();
    for name in ["least-loaded-warm", "max-in-flight"] {
        let dir = example(folder.path(), Language::Js, name);
        let manifest = dir.join("pointsman.yaml");
        let text = fs::read_to_string(&manifest).unwrap();
        fs::write(manifest, text + "engine: spidermonkey\n").unwrap();
        let component = built(&dir);
        let said = stdout(&run(["policy", "test", &component, "--conformance"]));
        assert!(said.ends_with("passed, 0 failed\n"), "{said}");
        assert_eq!(imports(&component), [LOG]);
    }
}

#[test]
fn a_missing_tool_is_named_with_what_to_run() {
    for language in Language::ALL.into_iter().filter(|language| *language != Language::Rust) {
        let folder = tempfile::tempdir().unwrap();
        let dir = example(folder.path(), language, "least-loaded-warm");
        let mut build = pointsman();
        build.env_remove("POINTSMAN_TOOLS").env("PATH", "/nowhere").args(["policy", "build"]).arg(&dir);
        let said = error(&build.output().unwrap());
        let install =
            if language == Language::Js { "run `npm install --save-dev componentize-qjs@" } else { "pip install " };
        assert!(said.contains("is not installed") && said.contains(install), "{said}");
        assert!(said.ends_with(&format!("in {}", dir.canonicalize().unwrap().display())), "{said}");
    }
}

#[test]
fn what_pointsman_yaml_lacks_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for (text, words) in [
        ("language: cobol\nstages: [score]\n", "cobol"),
        ("language: js\n", "names no stage"),
        ("language: rust\nstages: [score]\n", "its `export!` names"),
        ("language: js\nstages: [score]\nmain: x.js\n", "main"),
    ] {
        fs::write(folder.path().join("pointsman.yaml"), text).unwrap();
        let said = error(&run([Path::new("policy"), Path::new("build"), folder.path()]));
        assert!(said.contains("pointsman.yaml: ") && said.contains(words), "{said}");
    }
}
