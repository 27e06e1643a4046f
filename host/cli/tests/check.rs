//! `pointsman config check`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails fails its test")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use common::{bare_policy, pointsman, sdk_policy, stdout};
use pointsman_sandbox::Artifact;

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
fn a_component_outside_its_bounds_and_a_cache_for_all_are_problems() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(bare_policy(), folder.path().join("bare.wasm")).unwrap();
    fs::create_dir(folder.path().join("open")).unwrap();
    fs::set_permissions(folder.path().join("open"), fs::Permissions::from_mode(0o777)).unwrap();
    let text = "
components: [{type: most-free, path: bare.wasm}]
sandbox:
  load: {compact: {functions: 1}, engine: {functions: 2}}
  compile: {cache: open}
";
    let found = problems(&check(folder.path(), text, &[]));
    let [cache] = &found[..] else { panic!("{found:?}") };
    assert!(cache.starts_with("router.yaml:5: sandbox.compile.cache") && cache.contains("chmod go-w"), "{found:?}");
    let found = problems(&check(folder.path(), &text.replace("open", "mine"), &[]));
    let [bound] = &found[..] else { panic!("{found:?}") };
    assert!(bound.starts_with("router.yaml:2: components[0].path"), "{found:?}");
    assert!(bound.contains("at most 2; make it smaller, or raise sandbox.load.engine.functions"), "{found:?}");
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
    - {name: scorer, component: bare.wasm}
    - {name: of-negative, pipeline: {scorers: [negative]}}
";
    let found = problems(&check(folder.path(), text, &["--register", &register]));
    let expected = [
        ("router.yaml:3: components[0].path: ", "garbage.wasm is not WebAssembly"),
        ("router.yaml:4: components[1].path: ", "absent.wasm"),
        ("router.yaml:5: components[2].digest: ", "change the pin"),
        ("router.yaml:6: components[3].type: ", "registered already"),
        ("router.yaml:10: worker_selection.instances[0].type: ", "did you mean `least-loaded`"),
        ("router.yaml:15: worker_selection.instances[2].parameters.max_active_requests: ", "at least 0"),
        ("router.yaml:18: worker_selection.instances[3].parameters.colour: ", "unknown parameter `colour`"),
        ("router.yaml:19: worker_selection.instances[4]: ", "max_active_requests"),
        ("router.yaml:20: worker_selection.instances[5].pipeline.picker: ", "no stage pick"),
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for ((place, message), problem) in expected.iter().zip(&found) {
        assert!(problem.starts_with(place) && problem.contains(message), "{place} {message}\n{problem}");
    }
}

/// The problems are these, in this order: where each is, and words of its message.
#[track_caller]
fn are(found: &[String], expected: &[(&str, &str)]) {
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for ((place, message), problem) in expected.iter().zip(found) {
        assert!(problem.starts_with(place) && problem.contains(message), "{place} {message}\n{problem}");
    }
}

#[test]
fn problems_of_every_kind_hide_none_of_the_others() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("garbage.wasm"), [7; 100]).unwrap();
    fs::copy(bare_policy(), folder.path().join("bare.wasm")).unwrap();
    let text = "
router:
  host_cache_hit_weight: 2
components:
  - type: pinned
    path: bare.wasm
    digest: sha256:0000000000000000000000000000000000000000000000000000000000000000
  - type: random
    path: absent.wasm
  - type: broken
    path: garbage.wasm
  - tipe: misspelt
    path: gone.wasm
worker_selection:
  aggregated: nope
  prefill: capped
  colour: red
  instances:
    - name: capped
      type: capped-share
      limits:
        fuel: 1
      parameters:
        max_active_requests: -3
    - name: capped
      type: simple-stacked-score-pick
      parameters:
        nonsense: 1
    - name: unknown
      type: least-loded
    - name: of-misspelt
      type: misspelt
    - name: of-broken
      type: broken
    - type: least-loaded
      parameters:
        odd: .nan
        even: 1
    - name: stages
      pipeline:
        filters: [scorer, of-broken, nobody]
        scorers: [scorer]
        picker: scorer
    - name: scorer
      component: bare.wasm
  partitions:
    - tenant: nobody
      decode: capped
";
    let share = format!("capped-share={}", sdk_policy().display());
    let arguments = ["--register", &share, "--register", "gone=absent.wasm", "--register", "default=garbage.wasm"];
    let found = problems(&check(folder.path(), text, &arguments));
    let instances = "worker_selection.instances";
    let at = |line: usize, field: &str| format!("router.yaml:{line}: {field}: ");
    let expected = [
        ("--register gone=absent.wasm: ".to_owned(), "absent.wasm cannot be read"),
        ("--register default=garbage.wasm: ".to_owned(), "garbage.wasm is not WebAssembly"),
        ("--register default=garbage.wasm: ".to_owned(), "`default` is reserved"),
        (at(3, "router.host_cache_hit_weight"), "from 0 to 1"),
        (at(7, "components[0].digest"), "change the pin"),
        (at(8, "components[1].type"), "registered already"),
        (at(9, "components[1].path"), "absent.wasm cannot be read"),
        (at(11, "components[2].path"), "garbage.wasm is not WebAssembly"),
        (at(12, "components[3].tipe"), "did you mean `type`?"),
        (at(13, "components[3].path"), "gone.wasm cannot be read"),
        (at(15, "worker_selection.aggregated"), "no instance is named `nope`"),
        (at(17, "worker_selection.colour"), "unknown field"),
        (at(22, &format!("{instances}[0].limits.fuel")), "did you mean"),
        (at(24, &format!("{instances}[0].parameters.max_active_requests")), "at least 0"),
        (at(25, &format!("{instances}[1].name")), "already on line 19"),
        (at(28, &format!("{instances}[1].parameters.nonsense")), "nonsense"),
        (at(30, &format!("{instances}[2].type")), "did you mean `least-loaded`?"),
        (at(35, &format!("{instances}[5].name")), "`name` is missing"),
        (at(37, &format!("{instances}[5].parameters.odd")), "finite"),
        (at(38, &format!("{instances}[5].parameters.even")), "even"),
        (at(41, &format!("{instances}[6].pipeline.filters[2]")), "no instance is named `nobody`"),
        (at(41, &format!("{instances}[6].pipeline.filters[0]")), "no stage filter"),
        (at(43, &format!("{instances}[6].pipeline.picker")), "no stage pick"),
        (at(47, "worker_selection.partitions[0].tenant"), "no tenant is named `nobody`"),
    ];
    let mut expected: Vec<(&str, &str)> = expected.iter().map(|(place, words)| (place.as_str(), *words)).collect();
    // Within a line the order does not matter.
    let (mut found, by_place) = (found, |a: &str| a.splitn(3, ": ").take(2).collect::<Vec<_>>().join(": "));
    let lines: Vec<usize> = found.iter().filter_map(|problem| problem.split(':').nth(1)?.parse().ok()).collect();
    assert!(lines.is_sorted(), "{lines:?}");
    found.sort_by_key(|problem| by_place(problem));
    expected.sort_by_key(|(place, _)| by_place(place));
    are(&found, &expected);
}

#[test]
fn broken_syntax_hides_nothing_that_stands_above_it() {
    let folder = tempfile::tempdir().unwrap();
    let text = "
components:
  - {type: absent, path: absent.wasm}
worker_selection:
  aggregated: below
  instances:
    - {name: one, type: least-loded}
    - {name: two, type: absent, colour: red}
    - name: cut
\t  type: broken
    - {name: below, type: least-loaded}
";
    let found = problems(&check(folder.path(), text, &["--register", "mine=gone.wasm"]));
    are(
        &found,
        &[
            ("--register mine=gone.wasm: ", "gone.wasm cannot be read"),
            ("router.yaml:3: components[0].path: ", "absent.wasm cannot be read"),
            ("router.yaml:7: worker_selection.instances[0].type: ", "did you mean `least-loaded`?"),
            ("router.yaml:8: worker_selection.instances[1].colour: ", "unknown field"),
            ("router.yaml:10: ", "not valid YAML"),
        ],
    );
}

/// The `admission.yaml` of NVIDIA Dynamo's guide "Write an Admission Control Plugin", byte for byte but for the type.
const ADMISSION: &str = include_str!("../../routing/tests/fixtures/admission.yaml");

#[test]
fn the_guides_admission_file_passes() {
    let folder = tempfile::tempdir().unwrap();
    let output = check(folder.path(), ADMISSION, &[]);
    let found = "router.yaml: no problems; 0 instances, 0 components, 1 policy classes, a request classifier\n";
    assert_eq!((stdout(&output).as_str(), String::from_utf8_lossy(&output.stderr).as_ref()), (found, ""));
}

#[test]
fn a_classifier_is_started_and_its_problems_are_shown_with_all_others() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(bare_policy(), folder.path().join("bare.wasm")).unwrap();
    for wait in ["0", "60001"] {
        let found = problems(&check(folder.path(), &ADMISSION.replace("2000", wait), &[]));
        are(&found, &[("router.yaml:4: request_classifier.parameters.max_wait_ms: ", "60000")]);
    }
    let text = ADMISSION.replace("queue-budget", "queue-buget").replace("quantum: 1", "quantum: 0");
    are(
        &problems(&check(folder.path(), &text, &[])),
        &[
            ("router.yaml:2: request_classifier.type: ", "(did you mean `queue-budget`?); the types are "),
            ("router.yaml:14: policy_classes[0].quantum: ", "from 1"),
        ],
    );
    let text = ADMISSION.replace("max_wait_ms: 2000", "max_wait_ms: .nan");
    are(
        &problems(&check(folder.path(), &text, &[])),
        &[("router.yaml:4: request_classifier.parameters.max", "finite")],
    );
    // What selects workers is no classifier.
    for policy in ["type: least-loaded", "type: mine", "component: bare.wasm"] {
        let found = problems(&check(
            folder.path(),
            &format!("request_classifier:\n  {policy}\n"),
            &["--register", &format!("mine={}", bare_policy().display())],
        ));
        are(&found, &[("router.yaml:2: request_classifier", "no request classifier")]);
    }
}

#[test]
fn a_classifier_without_a_class_that_queues_is_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let own = ADMISSION.split_once("default_policy_family").unwrap().0;
    let threshold = "    prefill_busy_threshold_frac: 1.0\n";
    let never = format!("{threshold}    cached_token_queue_limit_per_worker: 0\n");
    for text in [own.to_owned(), ADMISSION.replace(threshold, ""), ADMISSION.replace(threshold, &never)] {
        let output = check(folder.path(), &text, &[]);
        assert!(stdout(&output).contains("no problems"), "{text}");
        let warning = String::from_utf8(output.stderr).unwrap();
        assert!(warning.starts_with("warning: router.yaml:1: request_classifier: a due time"), "{warning}");
        for key in ["`prefill_busy_threshold`", "`prefill_busy_threshold_frac`", "`request_queue_limit_per_worker`"] {
            assert!(warning.contains(key), "{warning}");
        }
        assert_eq!(warning.lines().count(), 1);
    }
    let without = &ADMISSION.replace(threshold, "")[own.len()..];
    assert!(check(folder.path(), without, &[]).stderr.is_empty(), "without a classifier nobody sets due times");
    // A class of one model is enough.
    let models = ADMISSION.replacen("default_policy_family", "models:\n  large:\n    default_policy_family", 1);
    let (head, tail) = models.split_once("standard\n").unwrap();
    let tail: String = tail.lines().flat_map(|line| ["    ", line, "\n"]).collect();
    let output = check(folder.path(), &format!("{head}standard\n{tail}"), &[]);
    assert!(stdout(&output).contains("no problems") && output.stderr.is_empty(), "{output:?}");
}

/// The YAML examples of docs/configuration.md, each a whole file.
#[test]
fn every_example_of_the_docs_passes() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(bare_policy(), folder.path().join("least-busy.wasm")).unwrap();
    let digest = Artifact::from_file(bare_policy()).unwrap().sha256_hex();
    let page = fs::read_to_string(common::root().join("docs/configuration.md")).unwrap();
    let mut examples = 0;
    for block in page.split("```yaml\n").skip(1) {
        let (example, _) = block.split_once("```").unwrap();
        let example = example.replace(&"0123456789abcdef".repeat(4), &digest);
        let output = check(folder.path(), &example, &[]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}\n{example}");
        examples += 1;
    }
    assert_eq!(page.matches("```yaml").count(), examples);
    assert!(examples >= 8, "{examples} examples");
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

#[test]
fn what_would_change_against_a_running_file_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    let file = |policy: &str, more: &str| {
        format!("{more}worker_selection:\n  aggregated: it\n  instances: [{{name: it, type: {policy}}}]\n")
    };
    fs::write(folder.path().join("running.yaml"), file("random", "")).unwrap();
    let against = ["--against", "running.yaml"];
    let said = stdout(&check(folder.path(), &file("least-loaded", "sandbox: {guests: 7}\n"), &against));
    let lines: Vec<&str> = said.lines().skip(1).collect();
    assert_eq!(
        lines,
        ["worker_selection.instances: `it` changed: policy", "sandbox: changed (holds after a restart)"],
        "{said}"
    );
    let said = stdout(&check(folder.path(), &file("random", ""), &against));
    assert!(said.ends_with("nothing changes against running.yaml\n"), "{said}");
    let missing = check(folder.path(), &file("random", ""), &["--against", "missing.yaml"]);
    assert!(problems(&missing)[0].starts_with("missing.yaml: "), "{missing:?}");
}
