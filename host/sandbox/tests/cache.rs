//! The compile cache: what it keeps is used, and nothing else is.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::Policy;
use pointsman_sandbox::*;

/// A sandbox with that cache.
fn config(folder: &Path, worker: &str) -> SandboxConfig {
    let mut config = SandboxConfig { guests: 8, ..SandboxConfig::default() };
    config.compile.worker = Some(WorkerCommand::new(worker));
    config.compile.cache = Some(folder.to_owned());
    config
}

/// One that can compile.
fn compiling(folder: &Path) -> Sandbox {
    Sandbox::new(config(folder, env!("CARGO_BIN_EXE_pointsman-compile-worker"))).unwrap()
}

/// One that cannot: what it loads comes from the cache.
fn looking_up(folder: &Path) -> Sandbox {
    Sandbox::new(config(folder, "/bin/false")).unwrap()
}

fn artifact(number: u32) -> Artifact {
    let policy = Policy { core: format!("(global i32 (i32.const {number}))"), ..Policy::default() };
    Artifact::from_bytes("test.wasm", wat::parse_str(policy.text()).unwrap())
}

fn load(sandbox: &Sandbox, number: u32) -> Result<(), LoadError> {
    let policy = sandbox.load(&artifact(number), Profile::Compact)?;
    let mut guest = common::slot(&policy, Limits::default());
    assert_eq!(guest.score(&common::args(&[1.0, 2.0])).unwrap(), [1.0, 2.0]);
    Ok(())
}

/// The files of machine code in a folder.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|end| end == "code")).collect()
}

#[test]
fn what_was_compiled_once_is_looked_up() {
    let folder = tempfile::tempdir().unwrap();
    // A folder that is not there yet is made.
    let folder = folder.path().join("a/b");
    assert!(load(&looking_up(&folder), 1).is_err());
    load(&compiling(&folder), 1).unwrap();
    load(&looking_up(&folder), 1).unwrap();
    assert!(load(&looking_up(&folder), 2).is_err());
    // Machine code for other settings, or for the other engine, is another entry.
    let portable = SandboxConfig { determinism: Determinism::Portable, ..config(&folder, "/bin/false") };
    assert!(load(&Sandbox::new(portable).unwrap(), 1).is_err());
    assert!(looking_up(&folder).load(&artifact(1), Profile::Engine).is_err());
    compiling(&folder).load(&artifact(1), Profile::Engine).unwrap();
    looking_up(&folder).load(&artifact(1), Profile::Engine).unwrap();
    for file in fs::read_dir(&folder).unwrap() {
        assert_eq!(file.unwrap().metadata().unwrap().mode() & 0o777, 0o600);
    }
}

#[test]
fn what_is_trusted_is_kept_too() {
    let folder = tempfile::tempdir().unwrap();
    looking_up(folder.path()).load(&artifact(1).trusted(), Profile::Compact).unwrap();
    load(&looking_up(folder.path()), 1).unwrap();
}

#[test]
fn an_entry_that_is_not_whole_is_compiled_anew() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    load(&compiling(folder), 1).unwrap();
    let [entry] = &entries(folder)[..] else { panic!() };
    let whole = fs::read(entry).unwrap();
    let flipped = |place: usize| {
        let mut bytes = whole.clone();
        bytes[place] ^= 1;
        bytes
    };
    let last = whole.len() - 1;
    let longer = [&whole[..], b"more"].concat();
    let damaged = [0, 7, 8, 39, 40, last / 2, last].into_iter().map(flipped).chain([
        Vec::new(),
        whole[..20].to_vec(),
        whole[..40].to_vec(),
        whole[..last].to_vec(),
        longer,
    ]);
    for bytes in damaged {
        fs::write(entry, &bytes).unwrap();
        assert!(load(&looking_up(folder), 1).is_err(), "{} bytes were run", bytes.len());
        load(&compiling(folder), 1).unwrap();
        load(&looking_up(folder), 1).unwrap();
    }
}

#[test]
fn an_entry_under_another_name_or_secret_is_not_run() {
    let [mine, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    load(&compiling(mine.path()), 1).unwrap();
    load(&compiling(other.path()), 1).unwrap();
    let [entry] = &entries(mine.path())[..] else { panic!() };
    let own = fs::read(entry).unwrap();
    // The same component's entry of another folder.
    fs::copy(other.path().join(entry.file_name().unwrap()), entry).unwrap();
    assert!(load(&looking_up(mine.path()), 1).is_err());
    // Another component's entry of the same folder.
    fs::remove_file(entry).unwrap();
    load(&compiling(mine.path()), 2).unwrap();
    let [second] = &entries(mine.path())[..] else { panic!() };
    fs::write(second, own).unwrap();
    assert!(load(&looking_up(mine.path()), 2).is_err());
}

#[test]
fn a_file_is_no_folder() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let said = Sandbox::new(config(file.path(), "/bin/false")).unwrap_err().to_string();
    assert!(said.ends_with("cannot be used: it is no folder; give it one of its own"), "{said}");
}

#[test]
fn a_folder_that_others_may_write_to_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let refused = || Sandbox::new(config(folder, "/bin/false")).unwrap_err().to_string();
    for mode in [0o777, 0o720, 0o702] {
        fs::set_permissions(folder, Permissions::from_mode(mode)).unwrap();
        let said = refused();
        assert!(
            said.starts_with(&format!("the compile cache {} (sandbox.compile.cache) ", folder.display())),
            "{said}"
        );
        assert!(said.ends_with(&format!("(mode {mode:o}); run `chmod go-w` on it")), "{said}");
    }
    fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
    looking_up(folder);
    let secret = folder.join("secret");
    fs::set_permissions(&secret, Permissions::from_mode(0o640)).unwrap();
    assert!(refused().contains("`secret` is not 32 bytes of user"));
    fs::remove_file(&secret).unwrap();
    fs::write(&secret, "short").unwrap();
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    assert!(refused().contains("empty the folder"));
    let file = folder.join("file");
    fs::write(&file, "").unwrap();
    assert!(Sandbox::new(config(&file, "/bin/false")).is_err());
}

#[test]
fn what_was_used_longest_ago_goes_first() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    load(&compiling(folder), 1).unwrap();
    let bytes = entries(folder)[0].metadata().unwrap().len();
    // Room for two.
    let mut config = config(folder, env!("CARGO_BIN_EXE_pointsman-compile-worker"));
    config.compile.cache_bytes = 5 * bytes / 2;
    let sandbox = Sandbox::new(config).unwrap();
    load(&sandbox, 2).unwrap();
    load(&sandbox, 1).unwrap();
    load(&sandbox, 3).unwrap();
    assert_eq!(entries(folder).len(), 2);
    for (number, kept) in [(1, true), (2, false), (3, true)] {
        assert_eq!(load(&looking_up(folder), number).is_ok(), kept, "{number}");
    }
}

#[test]
fn processes_share_a_folder() {
    const FOLDER: &str = "POINTSMAN_TEST_CACHE";
    if let Some(folder) = std::env::var_os(FOLDER) {
        // Several sandboxes at once, each with a cache of its own in the one folder.
        return std::thread::scope(|scope| {
            for number in [1, 2, 1, 2] {
                let folder = Path::new(&folder);
                scope.spawn(move || load(&compiling(folder), number).unwrap());
            }
        });
    }
    let folder = tempfile::tempdir().unwrap();
    let process = || {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "processes_share_a_folder"])
            .env(FOLDER, folder.path())
            .spawn()
            .unwrap()
    };
    for mut process in [process(), process()] {
        assert!(process.wait().unwrap().success());
    }
    assert_eq!(entries(folder.path()).len(), 2);
    load(&looking_up(folder.path()), 1).unwrap();
    load(&looking_up(folder.path()), 2).unwrap();
    // No half of a file is left, and one secret.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
}
