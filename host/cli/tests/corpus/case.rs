//! One file of the corpus: its header, and the bytes that it stands for. `tests/hostile/README.md` describes the format.

use std::collections::BTreeMap;
use std::path::Path;

use pointsman_routing::config::LimitsPatch;
use pointsman_sandbox::{LIMITS, Outcome, Profile};
use wasmparser::WasmFeatures;

use crate::common::{Classifier, Policy};

/// What a file of the corpus says.
pub(crate) struct Case {
    /// Its place in the corpus, such as `loops/in-score`.
    pub(crate) name: String,
    /// Where it has to end, and how.
    pub(crate) expect: Ending,
    pub(crate) limits: LimitsPatch,
    /// The most calls until that end.
    pub(crate) calls: u32,
    /// The worker that a good decision chooses.
    pub(crate) worker: Option<u64>,
    pub(crate) classifies: bool,
    /// Whether it imports WASI and is granted it.
    pub(crate) wasi: bool,
    /// The feature of WebAssembly that it must not use.
    pub(crate) proposal: Option<WasmFeatures>,
    pub(crate) bytes: Vec<u8>,
}

/// A place and what happened there, such as `score` and `out-of-fuel`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) place: String,
    pub(crate) what: String,
}

impl Ending {
    pub(crate) fn new(place: impl ToString, what: impl ToString) -> Self {
        Self { place: place.to_string(), what: what.to_string() }
    }
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&format!("{} -> {}", self.place, self.what))
    }
}

/// A file taken apart: `;; key: value` lines, then the sections that `;; in PLACE:` lines begin.
struct Parts {
    header: BTreeMap<String, String>,
    sections: BTreeMap<String, String>,
}

impl Parts {
    fn of(text: &str) -> Result<Self, String> {
        let (mut header, mut sections) = (BTreeMap::new(), BTreeMap::new());
        let mut section: Option<&mut String> = None;
        for line in text.lines() {
            if let Some(place) = line.strip_prefix(";; in ").and_then(|rest| rest.strip_suffix(':')) {
                section = Some(sections.entry(place.to_owned()).or_default());
            } else if let Some(section) = &mut section {
                expand(line, section)?;
            } else if let Some((key, value)) = line.strip_prefix(";; ").and_then(|rest| rest.split_once(": ")) {
                header.insert(key.to_owned(), value.to_owned());
            } else if !line.is_empty() {
                return Err(format!("`{line}` is no line of a header"));
            }
        }
        Ok(Self { header, sections })
    }

    fn header(&mut self, key: &str) -> Option<String> {
        self.header.remove(key)
    }

    fn section(&mut self, place: &str) -> Option<String> {
        self.sections.remove(place)
    }

    /// Fails for what nobody has read.
    fn finish(self) -> Result<(), String> {
        match self.header.into_keys().chain(self.sections.into_keys()).next() {
            Some(left) => Err(format!("`{left}` is neither a key nor a place")),
            None => Ok(()),
        }
    }
}

/// Adds a line; `;; repeat N: LINE` adds it N times, with `#` as its number from 1 on and `#-1` as the number before.
fn expand(line: &str, to: &mut String) -> Result<(), String> {
    let Some(rest) = line.trim_start().strip_prefix(";; repeat ") else {
        to.push_str(line);
        to.push('\n');
        return Ok(());
    };
    let (times, line) = rest.split_once(": ").ok_or_else(|| format!("`{rest}` lacks a colon"))?;
    let times: usize = times.parse().map_err(|_| format!("`{times}` is no number"))?;
    for number in 1..=times {
        to.push_str(&line.replace("#-1", &(number - 1).to_string()).replace('#', &number.to_string()));
        to.push('\n');
    }
    Ok(())
}

impl Case {
    /// Whether a decision over made-up candidates, and a classification of a made-up request, must end in its fault too.
    pub(crate) fn fails_at_once(&self) -> bool {
        let Ending { place, what } = &self.expect;
        let called = ["keep", "score", "pick", "select", "classify"].contains(&&**place);
        called && self.calls == 1 && !["filtered", Outcome::PolicyError.as_str()].contains(&&**what)
    }

    /// Reads a file of the corpus.
    pub(crate) fn read(folder: &Path, path: &Path) -> Result<Self, String> {
        let name = path.strip_prefix(folder).unwrap().with_extension("").display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
        Self::of(name.clone(), &text).map_err(|problem| format!("{name}: {problem}"))
    }

    fn of(name: String, text: &str) -> Result<Self, String> {
        let mut parts = Parts::of(text)?;
        parts.header("attack").ok_or("a line `;; attack: ...` has to say what the attack is")?;
        let expect = parts.header("expect").ok_or("a line `;; expect: PLACE -> OUTCOME` has to say how it ends")?;
        let (place, what) = expect.split_once(" -> ").ok_or("the expectation lacks its arrow")?;
        let number = |text: String| text.parse::<u32>().map_err(|_| format!("`{text}` is no number"));
        let calls = parts.header("calls").map_or(Ok(1), number)?;
        let worker = parts.header("worker").map(number).transpose()?.map(u64::from);
        let limits = parts.header("limits").map_or(Ok(LimitsPatch::default()), |text| limits(&text))?;
        let proposal = |name: String| WasmFeatures::from_name(&name).ok_or(format!("`{name}` is no proposal"));
        let proposal = parts.header("proposal").map(proposal).transpose()?;
        let damage = parts.header("bytes");
        let mut wasi = false;
        let (text, classifies) = match parts.section("file") {
            Some(text) => (text, false),
            None => {
                let policy = policy(&mut parts);
                wasi = policy.imports_wasi;
                (policy.text(), policy.classifier.is_some())
            }
        };
        parts.finish()?;
        let bytes = damaged(text, damage.as_deref())?;
        let expect = match cfg!(feature = "wasi") {
            false if wasi => Ending::new("load", "no-wasi"),
            _ => Ending::new(place, what),
        };
        Ok(Self { name, expect, limits, calls, worker, classifies, wasi, proposal, bytes })
    }
}

/// `key=value` pairs, `profile=engine` among them.
fn limits(text: &str) -> Result<LimitsPatch, String> {
    let mut limits = LimitsPatch::default();
    for pair in text.split(' ') {
        let (key, value) = pair.split_once('=').ok_or_else(|| format!("`{pair}` is no key=value"))?;
        if key == "profile" {
            limits.profile = Some(Profile::from_name(value).ok_or_else(|| format!("no profile {value}"))?);
            continue;
        }
        let row = LIMITS.iter().find(|row| row.key == key).ok_or_else(|| format!("no limit {key}"))?;
        limits.values.push((row.key, value.parse().map_err(|_| format!("`{value}` is no number"))?));
    }
    Ok(limits)
}

/// A policy that scores by active requests, or a classifier that defers, with the parts that the file replaces.
fn policy(parts: &mut Parts) -> Policy {
    let mut policy = Policy::default();
    if let Some(version) = parts.header("version") {
        policy.version = version.leak();
    }
    if let Some(memory) = parts.header("memory") {
        policy.memory = memory.leak();
    }
    let imports = parts.header("imports");
    policy.imports_log = imports.as_deref() == Some("log");
    policy.imports_wasi = imports.as_deref() == Some("wasi");
    for (place, part) in [
        ("core", &mut policy.core),
        ("component", &mut policy.before),
        ("exports", &mut policy.after),
        ("describe", &mut policy.describe),
        ("configure", &mut policy.configure),
        ("realloc", &mut policy.realloc),
        ("post-return", &mut policy.post_return),
    ] {
        if let Some(text) = parts.section(place) {
            *part = text;
        }
    }
    let mut classifier = Classifier::default();
    let mut classifies = false;
    for (place, part) in [
        ("classify", &mut classifier.classify),
        ("on-event", &mut classifier.on_event),
        ("on-tick", &mut classifier.on_tick),
    ] {
        if let Some(text) = parts.section(place) {
            *part = text;
            classifies = true;
        }
    }
    if classifies {
        return Policy { score: None, classifier: Some(classifier), ..policy };
    }
    for (place, part) in [
        ("keep", &mut policy.keep),
        ("score", &mut policy.score),
        ("pick", &mut policy.pick),
        ("select", &mut policy.select),
    ] {
        if let Some(text) = parts.section(place) {
            *part = Some(text);
        }
    }
    let stages = [policy.keep.is_some(), policy.score.is_some(), policy.pick.is_some()];
    policy.core.push_str(&reads_active_requests(stages));
    policy
}

/// Data that makes the answer of the default `configure`, a record `inputs` at 4100, read one signal at each stage.
fn reads_active_requests(stages: [bool; 3]) -> String {
    let mut data = String::from(
        r#"(data (i32.const 4400) "\40\11\00\00\14\00\00\00") (data (i32.const 4416) "load.active-requests")"#,
    );
    for (at, _) in [4100, 4132, 4164].into_iter().zip(stages).filter(|(_, there)| *there) {
        let (some, none, one) = (r"\01\00\00\00", r"\00".repeat(16), r"\30\11\00\00\01\00\00\00");
        data.push_str(&format!(r#"(data (i32.const {at}) "{some}{none}{one}")"#));
    }
    data
}

/// The file's bytes, after what its line `;; bytes:` says.
fn damaged(text: String, damage: Option<&str>) -> Result<Vec<u8>, String> {
    if damage == Some("text") {
        return Ok(text.into_bytes());
    }
    let mut bytes = wat::parse_str(&text).map_err(|error| error.to_string())?;
    let Some(damage) = damage else { return Ok(bytes) };
    let number = |text: &str| text.parse::<usize>().map_err(|_| format!("`{text}` is no number"));
    match damage.split_once(' ').unwrap_or((damage, "")) {
        ("cut", percent) => bytes.truncate(bytes.len() * number(percent)? / 100),
        ("flip", place) => bytes[number(place)?] ^= 1,
        ("twice", "") => bytes.extend_from_within(..),
        ("precompiled", "") => {
            let engine = wasmtime::Engine::default();
            bytes = engine.precompile_component(&bytes).map_err(|error| error.to_string())?;
        }
        ("append", text) => bytes.extend_from_slice(text.as_bytes()),
        _ => return Err(format!("`{damage}` is nothing that can be done to bytes")),
    }
    Ok(bytes)
}
