//! The page of each language, followed to the letter.

use std::fs;
use std::path::Path;
use std::process::Command;

use pointsman_languages::{COMPONENTIZE_JS, COMPONENTIZE_PY, COMPONENTIZE_QJS, ESBUILD, GO, Language, ZIG};

use crate::{common, conversation, tools};

/// A fenced block: what stands behind its fence, and the text.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    // Text and blocks take turns.
    page.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n')).collect()
}

/// The page, and the commands by which it installs the tools.
fn page(language: Language) -> (&'static str, Vec<String>) {
    match language {
        Language::Rust => {
            let target = format!("rustup target add {}", pointsman_build::TARGET);
            (include_str!("../../../../docs/languages/rust.md"), vec![target])
        }
        Language::Js => {
            let tools = [&COMPONENTIZE_QJS, &ESBUILD, &COMPONENTIZE_JS].map(|tool| tool.install());
            (include_str!("../../../../docs/languages/javascript.md"), tools.to_vec())
        }
        Language::Python => (include_str!("../../../../docs/languages/python.md"), vec![COMPONENTIZE_PY.install()]),
        Language::Go => (include_str!("../../../../docs/languages/go.md"), vec![GO.install()]),
        Language::C => (include_str!("../../../../docs/languages/c.md"), vec![ZIG.install()]),
    }
}

/// Each step works as written, in a folder that is empty but for the trace; the tools are those that `tools` installs.
pub(crate) fn work(language: Language) {
    let (page, installs) = page(language);
    if !tools::are_there(language) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = conversation();
    if let Some(trace) = &trace {
        std::os::unix::fs::symlink(trace, folder.path().join(trace.file_name().unwrap())).unwrap();
    }
    let (mut installed, mut steps, mut passed) = (Vec::new(), 0, Vec::new());
    for (info, text) in blocks(page) {
        match info.split_once(' ') {
            Some(("sh", "install")) => installed.push(text.trim_end().to_owned()),
            Some(("sh", "step trace")) if trace.is_none() => {}
            Some(("sh", "step" | "step trace")) => {
                steps += 1;
                let said = follow(folder.path(), text);
                passed.extend(said.lines().filter(|line| line.contains(" passed, ")).map(str::to_owned));
            }
            Some((_, place)) => match place.split_once('=') {
                Some(("file", name)) => fs::write(folder.path().join(name), text).unwrap(),
                Some(("shows", name)) => {
                    assert_eq!(fs::read_to_string(folder.path().join(name)).unwrap(), text, "{language}: {name}");
                }
                _ => panic!("{language}: a block of the page is `{info}`"),
            },
            None => panic!("{language}: a block of the page is `{info}`"),
        }
    }
    assert_eq!(installed, installs, "{language}");
    assert_eq!(passed, ["4 passed, 0 failed", "2 passed, 0 failed", "4 passed, 0 failed"], "{language}");
    assert_eq!(steps, 5 + usize::from(trace.is_some()), "{language}");
}

/// Runs commands of a page.
fn follow(folder: &Path, commands: &str) -> String {
    let binary = Path::new(env!("CARGO_BIN_EXE_pointsman")).parent().unwrap();
    let mut bash = Command::new("bash");
    bash.args(["-euo", "pipefail", "-c", commands]).current_dir(folder).env_remove("RUSTFLAGS");
    bash.env("PATH", format!("{}:{}", binary.display(), std::env::var("PATH").unwrap()));
    bash.env("POINTSMAN_TOOLS", tools::folder()).env("POINTSMAN_COMPILE_CACHE", common::tmp().join("compiled"));
    bash.env("CARGO_TARGET_DIR", common::tmp().join("guests"));
    let output = bash.output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{commands}\n{said}");
    said
}
