//! Policies in other languages than Rust: what their examples decide, what a new policy is, and what is said where an
//! author errs.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails fails its test")]

#[path = "../common/mod.rs"]
#[allow(dead_code, reason = "shared with the other tests")]
mod common;
mod mistakes;
mod tools;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{error, json, root, stdout};
use pointsman_languages::{COMPONENTIZE_PY, COMPONENTIZE_QJS, ESBUILD, GO, Language, ZIG};

const PAGE: &str = include_str!("../../../../docs/languages.md");

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

/// A copy of an SDK's example, to be built.
fn example(folder: &Path, language: Language, name: &str) -> PathBuf {
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
    let report: serde_json::Value = serde_json::from_str(&fs::read_to_string(report).unwrap()).unwrap();
    let [reference, own] = &report["runs"].as_array().unwrap()[..] else { panic!("{report}") };
    assert_eq!(own["decisions_sha256"], reference["decisions_sha256"], "{language}");
    assert_eq!(own["faults"], reference["faults"], "{language}");

    let classifier = built(&example(folder.path(), language, "max-in-flight"));
    for component in [&scorer, &classifier] {
        let said = stdout(&run(["policy", "test", component, "--conformance"]));
        assert!(said.trim_end().ends_with("passed, 0 failed"), "{language}: {said}");
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
    let checked = stdout(&run(["policy", "check", &classifier, "--parameters", r#"{"max_requests":4}"#]));
    assert!(checked.contains("1000 calls"), "{checked}");
}

/// The commands of docs/languages.md work as written, and so does a new classifier.
fn begins_whole(language: Language) {
    if !tools::are_there(language) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_pointsman")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let (_, commands) = PAGE.split_once("```sh language\n").unwrap();
    let (commands, _) = commands.split_once("```").unwrap();
    let mut commands: Vec<String> = commands.lines().map(|line| line.replace("LANGUAGE", language.as_str())).collect();
    commands.push(format!("pointsman policy new my-classifier --lang {language} --stages classify"));
    commands.push("pointsman policy test my-classifier".to_owned());
    let mut passed = 0;
    for line in commands {
        let mut command = Command::new("bash");
        command.args(["-c", &line]).current_dir(folder.path()).env("PATH", &path);
        command.env("POINTSMAN_TOOLS", tools::folder()).env("POINTSMAN_COMPILE_CACHE", common::tmp().join("compiled"));
        let output = command.output().unwrap();
        assert!(
            output.status.success(),
            "{line}: {}",
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat())
        );
        passed += usize::from(String::from_utf8(output.stdout).unwrap().contains("4 passed, 0 failed"));
    }
    assert_eq!(passed, 2, "{language}");
    let again = ["policy", "new", "my-policy", "--lang", language.as_str()];
    let said = error(&pointsman().args(again).current_dir(folder.path()).output().unwrap());
    assert!(said.contains("my-policy is there already"), "{said}");
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
            fn a_new_policy_is_whole() {
                begins_whole(Language::$language);
            }

            #[test]
            fn a_mistake_is_named() {
                mistakes::are_named(Language::$language);
            }
        }
    )+};
}

languages!(javascript: Js, python: Python, go: Go, c: C);

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

#[test]
fn the_page_names_the_tools_that_are_tested() {
    for tool in [&COMPONENTIZE_QJS, &ESBUILD, &COMPONENTIZE_PY, &GO, &ZIG] {
        assert!(PAGE.contains(&format!("`{}`", tool.install())), "{}", tool.install());
    }
}

#[test]
fn a_missing_tool_is_named_with_what_to_run() {
    for language in Language::ALL {
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
        ("language: js\n", "stages"),
        ("language: js\nstages: []\n", "names no stage"),
        ("language: js\nstages: [score]\nmain: x.js\n", "main"),
    ] {
        fs::write(folder.path().join("pointsman.yaml"), text).unwrap();
        let said = error(&run([Path::new("policy"), Path::new("build"), folder.path()]));
        assert!(said.contains("pointsman.yaml: ") && said.contains(words), "{said}");
    }
}
