//! `pointsman policy build`: crates with and without the SDK, and what is said where something is missing.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails fails its test")]

mod common;

use std::fs;
use std::path::Path;

use common::{bare_policy, component, crate_of, error, json, pointsman, run, sdk_policy, stdout};
use serde_json::json;

fn inspect(path: &Path, arguments: &[&str]) -> serde_json::Value {
    json(&pointsman().args(["policy", "inspect", "--json"]).arg(path).args(arguments).output().unwrap())
}

#[test]
fn a_crate_with_the_sdk_becomes_a_policy() {
    let found = inspect(sdk_policy(), &["--parameters", r#"{"max_active_requests": 3}"#]);
    assert_eq!(found["name"], "capped-share");
    assert_eq!(found["version"], "1.2.3");
    assert_eq!(found["wit_version"], "0.1.0");
    assert_eq!(found["stages"], json!(["filter", "score"]));
    assert_eq!(found["selector"], true);
    assert_eq!(found["inputs"]["filter"]["signals"], json!(["load.active-requests"]));
    assert_eq!(found["inputs"]["score"]["signals"], json!(["load.decode-blocks", "worker.total-kv-blocks"]));
    assert_eq!(found["inputs"]["pick"], json!(null));
    assert_eq!(found["parameters_schema"]["required"], json!(["max_active_requests"]));
    let bytes = fs::read(sdk_policy()).unwrap();
    assert_eq!(found["size_bytes"], bytes.len());
    assert_eq!(found["sha256"].as_str().unwrap().len(), 64);
}

#[test]
fn a_crate_without_the_sdk_becomes_a_policy() {
    let found = inspect(bare_policy(), &[]);
    assert_eq!(found["name"], "most-free-blocks");
    assert_eq!(found["version"], "0.3.0");
    assert_eq!(found["stages"], json!(["score"]));
    assert_eq!(found["selector"], false);
    assert_eq!(found["inputs"]["score"]["signals"], json!(["worker.total-kv-blocks", "load.decode-blocks"]));
    assert_eq!(found["imports"], json!([]));
}

#[test]
fn the_component_is_named_after_the_package_in_the_current_folder() {
    let here = tempfile::tempdir().unwrap();
    let built = pointsman().args(["policy", "build"]).arg(crate_of("bare")).current_dir(here.path()).output().unwrap();
    let said = stdout(&built);
    assert!(said.starts_with("most-free-blocks.wasm: policy most-free-blocks 0.3.0, stages score, "), "{said}");
    let bytes = fs::read(here.path().join("most-free-blocks.wasm")).unwrap();
    assert_eq!(bytes, fs::read(bare_policy()).unwrap(), "the same crate gives the same bytes");
}

#[test]
fn whoever_reads_the_file_while_it_is_built_anew_has_the_old_one_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.wasm");
    fs::write(&path, "the old one").unwrap();
    let reader = fs::File::open(&path).unwrap();
    stdout(&run([Path::new("policy"), Path::new("build"), &crate_of("bare"), Path::new("-o"), &path]));
    assert_eq!(std::io::read_to_string(reader).unwrap(), "the old one");
    assert_eq!(inspect(&path, &[])["name"], "most-free-blocks");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
}

#[test]
fn a_policy_carries_the_limits_that_it_is_built_with() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.wasm");
    let build = |limits: &[&str]| {
        let limits = limits.iter().flat_map(|limit| ["--limit", limit]);
        pointsman().args(["policy", "build"]).arg(crate_of("bare")).args(limits).arg("-o").arg(&path).output().unwrap()
    };
    stdout(&build(&["fuel_base=500000", "memory_bytes=4194304"]));
    assert_eq!(inspect(&path, &[])["limits"], json!({"fuel_base": 500_000, "memory_bytes": 4_194_304}));
    let text = stdout(&run([Path::new("policy"), Path::new("inspect"), &path]));
    assert!(text.contains("Limits      fuel_base 500,000, memory_bytes 4,194,304\n"), "{text}");
    assert_eq!(inspect(bare_policy(), &[])["limits"], json!({}));
    for (limits, words) in [
        (&["fuel=1"][..], "--limit fuel=1 names `fuel`, which is no limit; the limits are memory_bytes, "),
        (&["fuel_base"], "--limit fuel_base is not KEY=VALUE"),
        (&["fuel_base=1M"], "--limit fuel_base=1M gives fuel_base the value `1M`; give it a whole number from 1 on"),
        (&["fuel_base=1", "fuel_base=2"], "--limit fuel_base=2 gives fuel_base twice"),
        (&["memory_bytes=1"], "its limit memory_bytes is 1"),
    ] {
        let output = build(limits);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(words), "{said}");
    }
    assert_eq!(inspect(&path, &[])["limits"]["fuel_base"], 500_000, "what is refused is not written");
}

#[test]
fn simd_is_added_to_the_users_own_flags() {
    let here = tempfile::tempdir().unwrap();
    fs::create_dir(here.path().join("src")).unwrap();
    let manifest = "[package]\nname = \"flags\"\nedition = \"2024\"\n[lib]\ncrate-type = [\"cdylib\"]\n[workspace]\n";
    fs::write(here.path().join("Cargo.toml"), manifest).unwrap();
    let source = "#[cfg(not(target_feature = \"simd128\"))] compile_error!(\"no simd128\");\n\
         #[cfg(not(mine))] compile_error!(\"no flag of mine\");\n";
    fs::write(here.path().join("src/lib.rs"), source).unwrap();
    let build = |variable: &str, flags: &str| {
        pointsman().args(["policy", "build"]).arg(here.path()).env(variable, flags).output().unwrap()
    };
    for output in [build("RUSTFLAGS", "--cfg mine"), build("CARGO_ENCODED_RUSTFLAGS", "--cfg\u{1f}mine")] {
        let said = String::from_utf8(output.stderr).unwrap();
        // It compiles; only then is it seen to be no policy.
        assert!(said.contains("`flags` does not export pointsman:policy/policy"), "{said}");
    }
}

#[test]
fn what_is_no_policy_crate_is_told_so() {
    let here = tempfile::tempdir().unwrap();
    let build = || run([Path::new("policy"), Path::new("build"), here.path()]);
    let said = error(&build());
    assert!(said.starts_with("there is no Cargo.toml in "), "{said}");

    let manifest = here.path().join("Cargo.toml");
    fs::create_dir(here.path().join("src")).unwrap();
    fs::write(here.path().join("src/lib.rs"), "").unwrap();
    fs::write(&manifest, "[package]\nname = \"plain\"\nedition = \"2024\"\n[workspace]\n").unwrap();
    let said = error(&build());
    assert!(said.contains("`plain` builds no WebAssembly module: add the lines `[lib]`"), "{said}");
    assert!(said.contains("crate-type = [\"cdylib\", \"rlib\"]"), "{said}");

    fs::write(&manifest, "[workspace]\nresolver = \"3\"\nmembers = [\"one\"]\n").unwrap();
    fs::create_dir_all(here.path().join("one/src")).unwrap();
    fs::write(here.path().join("one/src/lib.rs"), "").unwrap();
    fs::write(here.path().join("one/Cargo.toml"), "[package]\nname = \"one\"\nedition = \"2024\"\n").unwrap();
    let said = error(&build());
    assert!(said.contains("give the folder of one member (one)"), "{said}");
}

#[test]
fn cargos_own_messages_come_first() {
    let here = tempfile::tempdir().unwrap();
    fs::create_dir(here.path().join("src")).unwrap();
    fs::write(here.path().join("src/lib.rs"), "this is no Rust").unwrap();
    let manifest = "[package]\nname = \"broken\"\nedition = \"2024\"\n[lib]\ncrate-type = [\"cdylib\"]\n[workspace]\n";
    fs::write(here.path().join("Cargo.toml"), manifest).unwrap();
    let output = run([Path::new("policy"), Path::new("build"), here.path()]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("src/lib.rs:1"), "{said}");
    assert!(said.ends_with("error: cargo could not build broken: see its own messages\n"), "{said}");
}

#[test]
fn a_missing_cargo_is_named() {
    let build = pointsman().args(["policy", "build"]).arg(crate_of("bare")).env("CARGO", "/nowhere/cargo").output();
    let said = error(&build.unwrap());
    assert!(said.starts_with("could not run `/nowhere/cargo`"), "{said}");
    assert!(said.contains("rustup"), "{said}");
}

#[cfg(unix)]
#[test]
fn a_missing_target_says_what_to_run() {
    use std::os::unix::fs::PermissionsExt;

    let here = tempfile::tempdir().unwrap();
    let rustc = here.path().join("rustc");
    fs::write(&rustc, "#!/bin/sh\necho /nowhere/lib/rustlib/wasm32-unknown-unknown/lib\n").unwrap();
    fs::set_permissions(&rustc, fs::Permissions::from_mode(0o755)).unwrap();
    let build = pointsman().args(["policy", "build"]).arg(crate_of("bare")).env("RUSTC", rustc).output().unwrap();
    let said = error(&build);
    assert!(said.starts_with("the Rust target wasm32-unknown-unknown is not installed"), "{said}");
    assert!(said.contains("run `rustup target add wasm32-unknown-unknown`"), "{said}");
}

#[test]
fn a_place_that_cannot_be_written_is_named() {
    let here = tempfile::tempdir().unwrap();
    let output = here.path().join("missing/policy.wasm");
    let build = pointsman().args(["policy", "build"]).arg(crate_of("bare")).arg("-o").arg(&output).output().unwrap();
    let said = String::from_utf8(build.stderr).unwrap();
    assert_eq!(build.status.code(), Some(1));
    assert!(said.contains(&format!("error: cannot write {}", output.display())), "{said}");
}

#[test]
fn a_file_that_is_no_policy_is_refused_in_one_sentence() {
    let here = tempfile::tempdir().unwrap();
    let folder = here.path();
    let garbage = folder.join("garbage.wasm");
    fs::write(&garbage, [7; 100]).unwrap();
    let interface = |name: &str| format!("(component (instance $i) (export \"{name}\" (instance $i)))");
    let import = "(component (import \"wasi:http/outgoing-handler@0.2.0\" (instance (export \"get\" (func)))) \
         (import \"wasi:keyvalue/store@0.2.0\" (instance (export \"now\" (func)))) \
         (instance $i) (export \"pointsman:policy/policy@0.1.0\" (instance $i)) \
         (export \"pointsman:policy/worker-scorer@0.1.0\" (instance $i)))";
    let cases = [
        (garbage, vec!["is not WebAssembly"]),
        (component(folder, "core.wasm", "(module)"), vec!["is a core module", "pointsman policy build"]),
        (component(folder, "empty.wasm", "(component)"), vec!["does not export pointsman:policy/policy@0.1.0"]),
        (component(folder, "newer.wasm", &interface("pointsman:policy/policy@9.0.0")), vec!["9.0.0", "0.1.0"]),
        (component(folder, "wasi.wasm", import), vec!["wasi:http/outgoing-handler@0.2.0", "wasi:keyvalue/store@0.2.0"]),
        (folder.join("missing.wasm"), vec!["cannot be read"]),
    ];
    for (path, expected) in cases {
        let said = error(&run([Path::new("policy"), Path::new("inspect"), &path]));
        assert!(said.starts_with(path.to_str().unwrap()), "{said}");
        for part in expected {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}
