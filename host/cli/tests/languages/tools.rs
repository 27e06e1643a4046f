//! The languages' tools, installed once from their registries into a folder outside the repository.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use pointsman_languages::{COMPONENTIZE_JS, COMPONENTIZE_PY, COMPONENTIZE_QJS, ESBUILD, GO, Language, ZIG};

/// The folder: `POINTSMAN_TOOLS`, else one beside the build's own.
pub(crate) fn folder() -> PathBuf {
    let own = || Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("tools");
    env::var_os("POINTSMAN_TOOLS").map_or_else(own, PathBuf::from)
}

/// Whether the tools of a language are there, installed where they were not. Where they cannot be, the language is named
/// as not covered; under `CI=true` that fails.
pub(crate) fn are_there(language: Language) -> bool {
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = INSTALLING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let installed = match language {
        // What builds this test.
        Language::Rust => true,
        Language::Js => {
            ["node_modules/.bin/componentize-qjs", "node_modules/.bin/esbuild"]
                .iter()
                .all(|program| folder().join(program).exists())
                || npm(&[COMPONENTIZE_QJS.package(), ESBUILD.package()])
        }
        Language::Python => folder().join("bin/componentize-py").exists() || pip(COMPONENTIZE_PY.package()),
        Language::Go => folder().join("bin/go").exists() || pip(GO.package()),
        Language::C => folder().join("bin/python-zig").exists() || pip(ZIG.package()),
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
    let there = folder().join("node_modules/.bin/componentize-js").exists();
    assert!(there || npm(&[COMPONENTIZE_JS.package()]), "componentize-js cannot be installed");
}

fn npm(packages: &[&str]) -> bool {
    std::fs::create_dir_all(folder()).unwrap();
    runs(Command::new("npm").args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(folder()).args(packages))
}

fn pip(package: &str) -> bool {
    let folder = folder();
    let venv = folder.join("bin/pip").exists() || runs(Command::new("python3").args(["-m", "venv"]).arg(&folder));
    venv && runs(Command::new(folder.join("bin/pip")).args(["install", "--quiet", package]))
}

fn runs(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}
