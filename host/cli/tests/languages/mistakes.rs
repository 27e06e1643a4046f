//! What an author does wrong, in each language, and the words that tell it.

use std::fs;
use std::path::{Path, PathBuf};

use common::root;
use pointsman_languages::Language;
use serde_json::json;

use crate::{built, common, copy, example, run, tools};

/// A fault of the policy in `faulty/`, by its parameter, and words of what is said.
type Fault = (&'static str, &'static [&'static str]);
/// What is replaced in the example, by what, and words of why it is not built.
type Slip = (&'static str, &'static str, &'static str);

/// A decision over two workers.
const TABLE: &str = "workers:\n  - {worker: 1}\n  - {worker: 2}\n";

pub(crate) fn are_named(language: Language) {
    if !tools::are_there(language) {
        return;
    }
    let (file, faults, slips): (_, &[Fault], &[Slip]) = match language {
        Language::Rust => ("src/lib.rs", RUST, RUST_SLIPS),
        Language::Js => ("policy.js", JAVASCRIPT, JAVASCRIPT_SLIPS),
        Language::Python => ("policy.py", PYTHON, PYTHON_SLIPS),
        Language::Go => ("policy.go", GO, GO_SLIPS),
        Language::C => ("policy.c", C, C_SLIPS),
    };
    at_a_decision(language, faults);
    for (from, to, words) in slips {
        let folder = tempfile::tempdir().unwrap();
        let dir = changed(folder.path(), language, file, from, to);
        let output = run([Path::new("policy"), Path::new("build"), &dir, Path::new("-o"), Path::new("/dev/null")]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{language}, `{to}`: {said}");
        assert!(said.contains(words), "{language}, `{to}`: no `{words}` in\n{said}");
        let last = said.lines().last().unwrap_or_default();
        assert!(last.starts_with("error: "), "the sentence comes last: {said}");
    }
    if language != Language::Rust {
        // In Rust a signal is a variant of an enum, and there is no other.
        let folder = tempfile::tempdir().unwrap();
        let dir = changed(folder.path(), language, file, "load.active-requests", "load.requests");
        let output = run(["policy", "check", &built(&dir)]);
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{language}: {said}");
        let words = "score reads the unknown signal `load.requests`; available are cache.device-overlap-blocks, ";
        assert!(said.contains(words), "{language}: {said}");
    }
}

/// What the policy in `faulty/` does at a decision.
fn at_a_decision(language: Language, faults: &[Fault]) {
    let folder = tempfile::tempdir().unwrap();
    let faulty = copy(&sources(language), &folder.path().join("faulty"));
    if language == Language::Rust {
        // As a new policy has it: no version is looked up.
        fs::copy(root().join("Cargo.lock"), faulty.join("Cargo.lock")).unwrap();
    }
    let (component, table) = (built(&faulty), folder.path().join("table.yaml"));
    fs::write(&table, TABLE).unwrap();
    for (fault, words) in faults {
        let parameters = json!({"fault": fault}).to_string();
        let mut decide = crate::pointsman();
        decide.args(["policy", "run", &component, "--parameters", &parameters, "--table"]).arg(&table);
        let output = decide.env("RUST_LOG", "info").output().unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        words.iter().for_each(|word| assert!(said.contains(word), "{language}, {fault}: no `{word}` in\n{said}"));
    }
}

/// The scorer that a new policy begins with, with an author's slip in it.
fn changed(folder: &Path, language: Language, file: &str, from: &str, to: &str) -> PathBuf {
    let dir = example(folder, language, "least-loaded-warm");
    let source = fs::read_to_string(dir.join(file)).unwrap();
    assert!(source.contains(from), "{language}: the example has no `{from}`");
    fs::write(dir.join(file), source.replace(from, to)).unwrap();
    dir
}

fn sources(language: Language) -> PathBuf {
    root().join("host/cli/tests/languages/faulty").join(language.as_str())
}

const RUST: &[Fault] = &[
    ("exception", &["trap"]),
    ("error", &["there is no way"]),
    ("short", &["bad-answer", "not finite"]),
    ("unknown", &["load.requests"]),
    ("unread", &["signal `load.decode-blocks` is not among what this stage reads"]),
    ("loop", &["out-of-fuel"]),
    ("memory", &["its limit memory_bytes is"]),
    ("print", &["seen 2", "chose worker 1"]),
    (
        "other",
        &[
            "fault: expected `exception`, `error`, `short`, `unknown`, `unread`, `loop`, `memory` or `print`, found `other`",
        ],
    ),
];
const RUST_SLIPS: &[Slip] = &[
    ("impl Scorer for", "impl Picker for", "not all trait items implemented"),
    (
        "pointsman_sdk::export!",
        "// ",
        "does not export pointsman:policy/policy: end the crate with the SDK's export macro",
    ),
    ("*cost = requests", "*cost = \"two\"; let _ = requests", "mismatched types"),
    ("Signal::LoadActiveRequests", "Signal::LoadRequests", "no variant"),
];

const JAVASCRIPT: &[Fault] = &[
    ("exception", &["policy-error", "score: TypeError: ", "policy.js:4"]),
    ("short", &["bad-answer"]),
    ("type", &["score answered two for row 1; answer a number for each row"]),
    ("scalar", &["score answered 1; answer an array of numbers, one a row"]),
    ("unread", &["score does not read `load.decode-blocks`; name it under its signals"]),
    ("loop", &["out-of-fuel"]),
    ("memory", &["memory"]),
    ("print", &["seen [2]", "chose worker 1"]),
    ("other", &["fault: expected `exception`, `short`, `type`, `scalar`, `unread`, `loop`, `memory` or `print`"]),
];
const JAVASCRIPT_SLIPS: &[Slip] = &[
    ("  score: {", "  pick: {", "pointsman.yaml names the stage `score`, and the policy has none"),
    ("  version:", "  versoin:", "definePolicy: unknown key `versoin`"),
    ("export default", "const policy =", "no default export"),
    ("return costs;", "return costs +;", "componentize-qjs could not build"),
];

const PYTHON: &[Fault] = &[
    ("exception", &["policy-error", "score: AttributeError: ", "policy.py:15"]),
    ("short", &["bad-answer"]),
    ("type", &["score answered 'two' for row 1; answer a number for each row"]),
    ("scalar", &["score answered 1; answer a list of one value a row"]),
    ("unread", &["score does not read `load.decode-blocks`; name it under its signals"]),
    ("loop", &["out-of-fuel"]),
    ("memory", &["memory"]),
    ("print", &["seen 2", "chose worker 1"]),
    ("other", &["fault: expected `exception`, `short`, `type`, `scalar`, `unread`, `loop`, `memory` or `print`"]),
];
const PYTHON_SLIPS: &[Slip] = &[
    ("def score", "def scores", "pointsman.yaml names the stage `score`, and LeastLoadedWarm has no method `score`"),
    ("(Policy)", "", "policy.py must define one subclass of pointsman.Policy; it defines none"),
    ("        return [", "        return [[", "componentize-py could not build"),
];

const GO: &[Fault] = &[
    ("exception", &["policy-error", "Score panicked: runtime error: index out of range [2] with length 2"]),
    ("error", &["there is no way"]),
    ("unknown", &["load.requests"]),
    ("unread", &["Score does not read `load.decode-blocks`; name it under its Signals"]),
    ("loop", &["out-of-fuel"]),
    ("memory", &["memory"]),
    ("print", &["seen 2", "chose worker 1"]),
    ("other", &["fault: expected `exception`, `error`, `unknown`, `unread`, `loop`, `memory` or `print`"]),
];
const GO_SLIPS: &[Slip] = &[
    (") Score(", ") Scores(", "missing method Score"),
    ("return nil", "return", "not enough return values"),
    ("requests[row] - p.cacheWeight*cached[row]/blocks", "\"two\"", "as float64 value in assignment"),
];

const C: &[Fault] = &[
    ("exception", &["trap"]),
    ("error", &["there is no way"]),
    ("loop", &["out-of-fuel"]),
    ("memory", &["memory"]),
    ("print", &["seen 2", "chose worker 1"]),
    ("other", &["fault: expected `exception`, `error`, `loop`, `memory` or `print`, found `other`"]),
];
const C_SLIPS: &[Slip] = &[
    ("*pointsman_score(", "*pointsman_scores(", "undefined symbol: pointsman_score"),
    ("return NULL;", "return NULL", "expected ';'"),
    ("requests[row] - cache_weight * cached[row] / blocks", "\"two\"", "incompatible type"),
];
