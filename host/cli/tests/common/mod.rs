//! What the tests of the binary share: running it, and building the fixtures' crates once.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails fails its test")]

pub mod process;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;

/// The binary, without the variables that would change what it does.
pub fn pointsman() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pointsman"));
    for name in [
        "RUST_LOG",
        "RUSTFLAGS",
        "CARGO_ENCODED_RUSTFLAGS",
        "DYN_ROUTER_POLICY_CONFIG",
        "DYN_ROUTER_WORKER_SELECTION_POLICY",
        "DYN_ROUTER_PREFILL_POLICY",
        "DYN_ROUTER_DECODE_POLICY",
    ] {
        command.env_remove(name);
    }
    // One folder for the dependencies of all fixtures.
    command.env("CARGO_TARGET_DIR", tmp().join("guests"));
    command
}

/// Runs the binary.
pub fn run<I: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = I>) -> Output {
    pointsman().args(arguments).output().unwrap()
}

/// The standard output of a run that must succeed.
pub fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "exit {:?}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The standard output of a run that must succeed, as JSON.
pub fn json(output: &Output) -> Value {
    serde_json::from_str(&stdout(output)).unwrap()
}

/// The one sentence of a run that must fail with exit code 1.
pub fn error(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    text.trim_end().strip_prefix("error: ").unwrap_or_else(|| panic!("{text}")).to_owned()
}

/// A component written in text.
pub fn component(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, wat::parse_str(text).unwrap()).unwrap();
    path
}

/// The workspace's root.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

/// A folder that outlives the test run, so that the fixtures' dependencies are compiled once.
pub fn tmp() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// The component of the fixture with the SDK: a filter and a scorer.
pub fn sdk_policy() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build("sdk"))
}

/// The component of the fixture without the SDK: a scorer.
pub fn bare_policy() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build("bare"))
}

/// The component of a fixture.
pub fn build(fixture: &str) -> PathBuf {
    let dir = crate_of(fixture);
    let path = tmp().join(format!("{fixture}-{}.wasm", std::process::id()));
    stdout(&run([Path::new("policy"), Path::new("build"), &dir, Path::new("-o"), &path]));
    path
}

/// The fixture as a crate of its own, outside the workspace, with the workspace's lock file.
pub fn crate_of(fixture: &str) -> PathBuf {
    let template = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(fixture);
    let dir = tmp().join("crates").join(fixture);
    let root = root().to_str().unwrap();
    let manifest = fs::read_to_string(template.join("Cargo.toml.in")).unwrap().replace("@ROOT@", root);
    write_if_changed(&dir.join("Cargo.toml"), &manifest);
    write_if_changed(&dir.join("src/lib.rs"), &fs::read_to_string(template.join("src/lib.rs")).unwrap());
    let contract = fs::read_to_string(format!("{root}/wit/policy.wit")).unwrap();
    write_if_changed(&dir.join("wit/policy.wit"), &contract);
    // The copy is pruned by cargo, so what it was made of is kept beside it.
    let lock = fs::read_to_string(format!("{root}/Cargo.lock")).unwrap();
    if write_if_changed(&dir.join("Cargo.lock.origin"), &lock) {
        fs::write(dir.join("Cargo.lock"), lock).unwrap();
    }
    dir
}

/// A file that did not change keeps its time, so that cargo does not compile it again.
fn write_if_changed(path: &Path, text: &str) -> bool {
    if fs::read_to_string(path).is_ok_and(|found| found == text) {
        return false;
    }
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    true
}
