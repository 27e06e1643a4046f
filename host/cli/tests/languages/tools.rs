//! The languages' tools, installed once from their registries into a folder outside the repository.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use pointsman_languages::{COMPONENTIZE_JS, COMPONENTIZE_PY, COMPONENTIZE_QJS, ESBUILD, GO, Language, Tool, ZIG};

/// The folder: `POINTSMAN_TOOLS`, else one beside the build's own.
pub(crate) fn folder() -> PathBuf {
    let own = || Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("tools");
    env::var_os("POINTSMAN_TOOLS").map_or_else(own, PathBuf::from)
}

/// Whether the tools of a language are there, installed where they were not. Where they cannot be, the language is named
/// as not covered; under `CI=true` that fails.
pub(crate) fn are_there(language: Language) -> bool {
    let installed = match language {
        // What builds this test.
        Language::Rust => true,
        Language::Js => has(&[&COMPONENTIZE_QJS, &ESBUILD], npm),
        Language::Python => has(&[&COMPONENTIZE_PY], pip),
        Language::Go => has(&[&GO], pip),
        Language::C => has(&[&ZIG], pip),
    };
    let ci = env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(installed || !ci, "the tools of {language} cannot be installed, and CI covers every language");
    if !installed {
        eprintln!("not covered, because its tools cannot be installed: {language}");
    }
    installed
}

/// Installs what makes components with SpiderMonkey, where it is not there.
pub(crate) fn spidermonkey() {
    assert!(has(&[&COMPONENTIZE_JS], npm), "componentize-js cannot be installed");
}

/// Whether each of these tools is there, in the version that is pinned; a file of its package's name says so.
fn has(tools: &[&Tool], install: fn(&str) -> bool) -> bool {
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = INSTALLING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    tools.iter().all(|tool| {
        let mark = folder().join("installed").join(tool.package().replace(['/', ' '], "-"));
        let there = mark.exists() || install(tool.package());
        if there {
            std::fs::create_dir_all(mark.parent().unwrap()).unwrap();
            std::fs::write(mark, "").unwrap();
        }
        there
    })
}

fn npm(package: &str) -> bool {
    std::fs::create_dir_all(folder()).unwrap();
    runs(
        Command::new("npm")
            .args(["install", "--no-audit", "--no-fund", "--prefix"])
            .arg(folder())
            .args(package.split(' ')),
    )
}

fn pip(package: &str) -> bool {
    let folder = folder();
    let venv = folder.join("bin/pip").exists() || runs(Command::new("python3").args(["-m", "venv"]).arg(&folder));
    venv && runs(Command::new(folder.join("bin/pip")).args(["install", "--quiet", package]))
}

fn runs(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}
