//! The calls of cargo and rustc.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::{Build, BuildError, TARGET};

const SIMD: &str = "target-feature=+simd128";

/// What an outer cargo sets for its own build and an inner one must not take over.
const OUTER: &[&str] = &[
    "CARGO_BUILD_RUSTC_WORKSPACE_WRAPPER",
    "CARGO_BUILD_TARGET",
    "CARGO_BUILD_TARGET_DIR",
    "CARGO_ENCODED_RUSTDOCFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_TARGET_DIR",
    "CLIPPY_ARGS",
    "RUSTC_LINKER",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTDOCFLAGS",
    "RUSTFLAGS",
    "TARGET",
];

/// One package of the workspace.
#[derive(Clone, Debug)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) cdylib: bool,
}

/// The packages of the workspace that `dir` belongs to.
pub(crate) fn packages(dir: &Path, nested: bool) -> Result<Vec<Package>, BuildError> {
    let (mut command, program) = cargo(dir, nested);
    let output = command
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .stderr(Stdio::inherit())
        .output()
        .map_err(|source| BuildError::NoCargo { program, source })?;
    if !output.status.success() {
        return Err(BuildError::Metadata { dir: dir.to_owned() });
    }
    let unreadable = |message: String| BuildError::Answer { command: "metadata", message };
    let metadata: Value = serde_json::from_slice(&output.stdout).map_err(|error| unreadable(error.to_string()))?;
    let packages = metadata.get("packages").and_then(Value::as_array);
    packages
        .and_then(|packages| packages.iter().map(package).collect())
        .ok_or_else(|| unreadable("it names no packages".to_owned()))
}

fn package(value: &Value) -> Option<Package> {
    let text = |key| value.get(key).and_then(Value::as_str);
    Some(Package {
        id: text("id")?.to_owned(),
        name: text("name")?.to_owned(),
        folder: Path::new(text("manifest_path")?).parent()?.to_owned(),
        cdylib: value.get("targets")?.as_array()?.iter().any(is_cdylib),
    })
}

/// Whether a target, of `cargo metadata` or of a message, is a cdylib.
fn is_cdylib(target: &Value) -> bool {
    let kinds = target.get("kind").and_then(Value::as_array);
    kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind.as_str() == Some("cdylib")))
}

/// Whether the target's libraries are there: better told beforehand than by a page of `can't find crate for core`.
/// Where rustc does not answer, cargo is left to say why.
pub(crate) fn check_target(dir: &Path, nested: bool) -> Result<(), BuildError> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut command = Command::new(rustc);
    if nested {
        OUTER.iter().for_each(|name| _ = command.env_remove(name));
    }
    let output = command
        .current_dir(dir)
        .args(["--print", "target-libdir", "--target", TARGET])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let Ok(output) = output else { return Ok(()) };
    let libdir = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    if !output.status.success() || libdir.as_os_str().is_empty() || libdir.is_dir() {
        return Ok(());
    }
    Err(BuildError::NoTarget { libdir, dir: dir.to_owned() })
}

/// Builds the packages; answers the module of each by package id.
pub(crate) fn build(build: &Build, packages: &[Package]) -> Result<HashMap<String, PathBuf>, BuildError> {
    let mut modules = HashMap::new();
    if packages.is_empty() {
        return Ok(modules);
    }
    let (mut command, program) = cargo(&build.dir, build.nested);
    command.args(["build", "--lib", "--target", TARGET, "--profile", &build.profile]);
    command.args(["--message-format", "json-render-diagnostics"]);
    for package in packages {
        command.args(["--package", &package.name]);
    }
    if let Some(target_dir) = &build.target_dir {
        command.arg("--target-dir").arg(target_dir);
        // A build folder that the user's configuration sets for all would be the outer cargo's too, and locked.
        let folder = Value::from(target_dir.to_string_lossy());
        command.arg("--config").arg(format!("build.build-dir={folder}"));
    }
    add_simd(&mut command, build.nested);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(|source| BuildError::NoCargo { program, source })?;
    let unreadable = |message: String| BuildError::Answer { command: "build", message };
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            let line = line.map_err(|error| unreadable(error.to_string()))?;
            // A build script's own output may be mixed in: what is no message is skipped.
            let Ok(message) = serde_json::from_str(&line) else { continue };
            modules.extend(module(&message));
        }
    }
    let status = child.wait().map_err(|error| unreadable(error.to_string()))?;
    if status.success() {
        Ok(modules)
    } else {
        Err(BuildError::Cargo { packages: packages.iter().map(|package| package.name.clone()).collect() })
    }
}

/// The package id and the module that a message tells of.
fn module(message: &Value) -> Option<(String, PathBuf)> {
    if message.get("reason")?.as_str()? != "compiler-artifact" || !is_cdylib(message.get("target")?) {
        return None;
    }
    let files = message.get("filenames")?.as_array()?.iter().filter_map(Value::as_str);
    let module = files.map(PathBuf::from).find(|file| file.extension().is_some_and(|end| end == "wasm"))?;
    Some((message.get("package_id")?.as_str()?.to_owned(), module))
}

/// Appends the flag where cargo reads flags: the first of the two variables that is set hides every other source.
fn add_simd(command: &mut Command, nested: bool) {
    let variable = |name| if nested { None } else { std::env::var_os(name) };
    if let Some(flags) = variable("CARGO_ENCODED_RUSTFLAGS") {
        command.env("CARGO_ENCODED_RUSTFLAGS", joined(flags, "\u{1f}"));
    } else if let Some(flags) = variable("RUSTFLAGS") {
        command.env("RUSTFLAGS", joined(flags, " "));
    } else {
        command.arg("--config").arg(format!("target.{TARGET}.rustflags=[\"-C\",\"{SIMD}\"]"));
    }
}

fn joined(mut flags: OsString, separator: &str) -> OsString {
    if !flags.is_empty() {
        flags.push(separator);
    }
    flags.push("-C");
    flags.push(separator);
    flags.push(SIMD);
    flags
}

/// cargo in `dir`, and its name for an error.
fn cargo(dir: &Path, nested: bool) -> (Command, String) {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(&program);
    command.current_dir(dir);
    if nested {
        OUTER.iter().for_each(|name| _ = command.env_remove(name));
    }
    (command, program.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_is_appended_to_the_users() {
        assert_eq!(joined("".into(), " "), "-C target-feature=+simd128");
        assert_eq!(joined("-C opt-level=1".into(), " "), "-C opt-level=1 -C target-feature=+simd128");
        assert_eq!(joined("-Copt-level=1".into(), "\u{1f}"), "-Copt-level=1\u{1f}-C\u{1f}target-feature=+simd128");
    }

    #[test]
    fn only_the_cdylibs_module_is_taken() {
        let message = |kind: &str, file: &str| {
            serde_json::json!({"reason": "compiler-artifact", "package_id": "p", "target": {"kind": [kind]},
                "filenames": ["/t/libp.rlib", file]})
        };
        assert_eq!(module(&message("cdylib", "/t/p.wasm")), Some(("p".to_owned(), "/t/p.wasm".into())));
        assert_eq!(module(&message("rlib", "/t/p.wasm")), None);
        assert_eq!(module(&message("cdylib", "/t/libp.so")), None);
    }
}
