//! `pointsman config check`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails fails its test")]

mod common;

use std::fs;
use std::path::Path;
use std::process::Output;

use common::{bare_policy, pointsman, sdk_policy, stdout};

fn check(folder: &Path, text: &str, arguments: &[&str]) -> Output {
    let path = folder.join("router.yaml");
    fs::write(&path, text).unwrap();
    pointsman().args(["config", "check", "router.yaml"]).args(arguments).current_dir(folder).output().unwrap()
}

/// The problems of a check that must fail, a line each.
fn problems(output: &Output) -> Vec<String> {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    text.lines().map(|line| line.strip_prefix("error: ").unwrap_or_else(|| panic!("{text}")).to_owned()).collect()
}

#[test]
fn a_sound_file_passes() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(bare_policy(), folder.path().join("bare.wasm")).unwrap();
    let register = format!("capped-share={}", sdk_policy().display());
    let text = "
components:
  - {type: most-free, path: bare.wasm}
worker_selection:
  aggregated: both
  decode: capped
  instances:
    - {name: free, type: most-free}
    - {name: capped, type: capped-share, parameters: {max_active_requests: 4}}
    - {name: least, component: bare.wasm}
    - {name: both, pipeline: {filters: [capped], scorers: [free, capped]}}
";
    let said = stdout(&check(folder.path(), text, &["--register", &register]));
    assert_eq!(said, "router.yaml: no problems; 4 instances, 1 components\n");
}

#[test]
fn every_problem_of_the_files_own_is_shown_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let text = "
worker_selection:
  prefill: nobody
  instances:
    - {name: one, type: least-loaded, colour: red}
    - {name: one, type: least-loaded}
";
    let found = problems(&check(folder.path(), text, &[]));
    assert!(found.len() >= 3, "{found:?}");
    for expected in ["router.yaml:3: worker_selection.prefill", "router.yaml:5: ", "router.yaml:6: "] {
        assert!(found.iter().any(|problem| problem.starts_with(expected)), "{expected}: {found:?}");
    }
}

#[test]
fn every_problem_of_components_and_parameters_is_shown_at_once() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("garbage.wasm"), [7; 100]).unwrap();
    fs::copy(bare_policy(), folder.path().join("bare.wasm")).unwrap();
    let register = format!("capped-share={}", sdk_policy().display());
    let text = "
components:
  - {type: broken, path: garbage.wasm}
  - {type: absent, path: absent.wasm}
  - {type: pinned, path: bare.wasm, digest: 'sha256:0000000000000000000000000000000000000000000000000000000000000000'}
  - {type: least-loaded, path: bare.wasm}
worker_selection:
  decode: negative
  instances:
    - {name: unknown, type: least-loded}
    - {name: of-broken, type: broken}
    - name: negative
      type: capped-share
      parameters:
        max_active_requests: -3
    - name: surplus
      type: capped-share
      parameters: {max_active_requests: 1, colour: red}
    - {name: wanting, type: capped-share}
    - {name: no-picker, pipeline: {scorers: [scorer], picker: scorer}}
    - {name: scorer, type: pinned}
    - {name: of-negative, pipeline: {scorers: [negative]}}
";
    let found = problems(&check(folder.path(), text, &["--register", &register]));
    let expected = [
        ("router.yaml:3: components[0].path: ", "garbage.wasm is not WebAssembly"),
        ("router.yaml:4: components[1].path: ", "absent.wasm"),
        ("router.yaml:5: components[2].digest: ", "change the digest"),
        ("router.yaml:6: components[3].type: ", "registered already"),
        ("router.yaml:10: worker_selection.instances[0].type: ", "did you mean `least-loaded`"),
        ("router.yaml:15: worker_selection.instances[2].parameters.max_active_requests: ", "at least 0"),
        ("router.yaml:18: worker_selection.instances[3].parameters.colour: ", "unknown parameter `colour`"),
        ("router.yaml:19: worker_selection.instances[4]: ", "max_active_requests"),
        ("router.yaml:20: worker_selection.instances[5].pipeline: ", "no stage pick"),
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for ((place, message), problem) in expected.iter().zip(&found) {
        assert!(problem.starts_with(place) && problem.contains(message), "{place} {message}\n{problem}");
    }
}

#[test]
fn a_registration_that_cannot_be_kept_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let text = "worker_selection: {aggregated: one, instances: [{name: one, type: mine}]}\n";
    let bare = bare_policy().display().to_string();
    for (register, expected) in [
        (format!("least-loaded={bare}"), "`least-loaded` is registered already"),
        (format!("default={bare}"), "`default` is reserved"),
        ("mine=absent.wasm".to_owned(), "absent.wasm cannot be read"),
    ] {
        let found = problems(&check(folder.path(), text, &["--register", &register]));
        assert!(found[0].starts_with("--register "), "{found:?}");
        assert!(found[0].contains(expected), "{found:?}");
    }
    let output = check(folder.path(), text, &["--register", "mine"]);
    assert_eq!(output.status.code(), Some(2), "a registration without a file is a usage error");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let output = pointsman().args(["config", "check", "absent.yaml"]).current_dir(folder.path()).output().unwrap();
    let found = problems(&output);
    assert!(found[0].starts_with("absent.yaml: "), "{found:?}");
}
