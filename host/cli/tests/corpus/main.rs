//! The hostile corpus: every file in `tests/hostile` ends as it says, soon, in little memory, and the next decision of
//! another tenant in the same sandbox is the right one.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod case;
#[path = "../../../sandbox/tests/common/mod.rs"]
mod common;
mod process;

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use case::{Case, Ending};
use pointsman_admission::{Classifier as _, ClassifierFault, ClassifyRequest};
use pointsman_contract::{ClassifierWorker, Event, Progress};
use pointsman_routing::config::{FaultAction, LimitsPatch, OnFault};
use pointsman_routing::{
    DecideError, Decision, HostedClassifier, InstanceSpec, Load, Partition, PartitionKey, Provider, Request, Router,
    RouterError, Stage, WorkerConfig, WorkerKey,
};
use pointsman_sandbox::*;
use wasmparser::{Validator, WasmFeatures};

/// The longest that a case may take; most take milliseconds.
const MOST_TIME: Duration = Duration::from_secs(20);
/// The most resident memory that a case may add at any moment, in bytes.
const MOST_MEMORY: u64 = 256 << 20;
/// Deadlines that a busy machine does not reach: fuel has to end what a case does not give a deadline.
const PATIENT: [(&str, u64); 2] = [("deadline_us", 10_000_000), ("tick_deadline_us", 10_000_000)];
/// Fewer guests than cases: a place that is not given back is missed soon.
const GUESTS: u32 = 6;
/// Active requests of the workers 1, 2 and 3; the fallback takes the last.
const LOADS: [f64; 3] = [3.0, 2.0, 1.0];
const FALLBACK: u64 = 3;

/// Features of WebAssembly that policies may use. Multi-memory is among them for wasmtime's own adapters alone.
const POLICIES_MAY_USE: WasmFeatures = WasmFeatures::WASM2
    .union(WasmFeatures::EXTENDED_CONST)
    .union(WasmFeatures::MULTI_MEMORY)
    .union(WasmFeatures::COMPONENT_MODEL);

fn corpus() -> (PathBuf, Vec<PathBuf>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/hostile");
    let mut paths = Vec::new();
    for theme in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        paths.extend(std::fs::read_dir(theme).unwrap().map(|entry| entry.unwrap().path()));
    }
    paths.sort();
    (folder, paths)
}

#[test]
fn every_attack_ends_as_its_file_says_and_no_neighbour_notices() {
    let (folder, paths) = corpus();
    let cache = tempfile::tempdir().unwrap();
    let mut config = SandboxConfig { guests: GUESTS, ..SandboxConfig::default() };
    config.compile.worker = Some(WorkerCommand::new(env!("CARGO_BIN_EXE_pointsman")));
    config.compile.cache = Some(cache.path().to_owned());
    let sandbox = Sandbox::new(config).unwrap();
    let mut neighbour = Neighbour::new(&sandbox, &Case::read(&folder, &folder.join("neighbour.wat")).unwrap());
    let only = std::env::var("POINTSMAN_HOSTILE").unwrap_or_default();
    let (mut run, mut problems) = (0, Vec::new());
    for path in paths {
        let case = match Case::read(&folder, &path) {
            Ok(case) if case.name.contains(&only) => case,
            Ok(_) => continue,
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        let (name, expect) = (case.name.clone(), case.expect.clone());
        let (report, memory) = attack(&sandbox, case);
        match report {
            Ok(took) => {
                println!("{name:<44} {expect:<28} {:>7.1} ms {:>5.1} MiB", took.as_secs_f64() * 1e3, mib(memory))
            }
            Err(problem) => problems.push(format!("{name}: {problem}")),
        }
        if memory > MOST_MEMORY {
            problems.push(format!("{name}: took {} MiB", mib(memory)));
        }
        if let Err(problem) = neighbour.decide() {
            problems.push(format!("{name}: the neighbour noticed: {problem}"));
        }
        run += 1;
    }
    assert!(problems.is_empty(), "{} of {run} cases:\n{}", problems.len(), problems.join("\n"));
    assert!(run >= 60 || !only.is_empty(), "only {run} cases");
}

/// A file that is refused for a slip of its author's would prove nothing.
#[test]
fn every_proposal_has_a_case_that_is_refused_for_that_proposal_alone() {
    let (folder, paths) = corpus();
    let (mut refused, mut problems) = (WasmFeatures::empty(), Vec::new());
    let valid = |features, bytes: &[u8]| Validator::new_with_features(features).validate_all(bytes).map(drop);
    for case in paths.iter().filter_map(|path| Case::read(&folder, path).ok()) {
        let Some(proposal) = case.proposal else { continue };
        if let Err(error) = valid(WasmFeatures::all(), &case.bytes) {
            problems.push(format!("{}: is invalid in itself: {error}", case.name));
        }
        if valid(WasmFeatures::all() - proposal, &case.bytes).is_ok() {
            problems.push(format!("{}: is valid without its proposal", case.name));
        }
        refused |= proposal;
    }
    for (name, _) in (WasmFeatures::all() - POLICIES_MAY_USE - refused).iter_names() {
        problems.push(format!("{name}: no case shows that it is refused"));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Runs a case on a thread of its own, so that one that does not end is named. Also says how much memory it took.
fn attack(sandbox: &Sandbox, case: Case) -> (Result<Duration, String>, u64) {
    let before = process::start_peak();
    let started = Instant::now();
    let (send, receive) = mpsc::channel();
    let (sandbox, name) = (sandbox.clone(), case.name.clone());
    let thread = std::thread::spawn(move || send.send(outcome(&sandbox, &case)));
    let report = match receive.recv_timeout(MOST_TIME) {
        Ok(report) => report.map(|()| started.elapsed()),
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{name} has not ended after {MOST_TIME:?}"),
        Err(mpsc::RecvTimeoutError::Disconnected) => Err("the host panicked".to_owned()),
    };
    let _ = thread.join();
    (report, process::peak().saturating_sub(before))
}

/// Loads, starts and calls the policy, first on its own, for the typed reason, then behind routers: one that tries it on
/// made-up candidates first, and two that do not, with either answer to a fault.
fn outcome(sandbox: &Sandbox, case: &Case) -> Result<(), String> {
    let artifact = Artifact::from_bytes(case.name.clone(), &*case.bytes);
    let granted = if case.wasi { artifact.clone().with_wasi() } else { artifact.clone() };
    let mut limits = LimitsPatch { values: PATIENT.to_vec(), ..case.limits.clone() };
    limits.values.extend(&case.limits.values);
    let started = start(sandbox, &granted, limits.resolve());
    for (trial, action) in [(true, FaultAction::Reject), (false, FaultAction::Reject), (false, FaultAction::Fallback)] {
        let spec = InstanceSpec::new("hostile").limits(limits.clone()).wasi(case.wasi);
        let spec = spec.on_fault(OnFault { filter: action, otherwise: action });
        let router = Router::builder()
            .smoke(trial)
            .register("hostile", Provider::component(artifact.clone()))
            .sandbox(sandbox.clone());
        let ending = if case.classifies {
            let router = router.build().map_err(|error| error.to_string())?;
            let classifier =
                router.hosted_classifier(spec, &PartitionKey::default(), 16, |row| u32::try_from(row.worker).ok());
            behind_router(case, trial, &started, classifier)?
                .map_or_else(Ok, |classifier| classify(classifier, case.calls))
        } else {
            let router = router.serve(spec).build().map_err(|error| error.to_string())?;
            let partition = router.partition(&PartitionKey::default(), 16);
            behind_router(case, trial, &started, partition)?
                .map_or_else(Ok, |partition| decide(&partition, case, action))
        }?;
        if ending != case.expect {
            let (expect, action) = (&case.expect, action.as_str());
            return Err(format!("expected {expect}, found {ending}, with on_fault {action}, smoke {trial}"));
        }
    }
    Ok(())
}

/// Loads the policy and builds a guest; the ending where it does not come that far.
fn start(sandbox: &Sandbox, artifact: &Artifact, limits: Limits) -> Result<(), Ending> {
    let policy = sandbox.load_with(artifact, &limits).map_err(|error| refusal(&error))?;
    match GuestSlot::new(common::setup(&policy, limits)) {
        Ok(_) => Ok(()),
        Err(error) => Err(Ending::new("configure", error.outcome)),
    }
}

/// A router starts what the sandbox starts, unless the policy asks it for something that it does not have, or fails its
/// trial.
fn behind_router<T>(
    case: &Case,
    trial: bool,
    started: &Result<(), Ending>,
    built: Result<T, RouterError>,
) -> Result<Result<T, Ending>, String> {
    match (started, built) {
        (Ok(()), Ok(_)) if trial && case.fails_at_once() => Err("its trial let it pass".to_owned()),
        (Ok(()), Ok(built)) => Ok(Ok(built)),
        (Ok(()), Err(RouterError::Provider { message, .. })) => {
            Ok(Err(failed_trial(&message).unwrap_or_else(|| Ending::new("plan", "refused"))))
        }
        (Err(ending), Err(RouterError::Provider { .. })) => Ok(Err(ending.clone())),
        (started, built) => Err(format!("the sandbox: {started:?}, the router: {:?}", built.err())),
    }
}

/// The stage and the outcome that a router names of a failed trial.
fn failed_trial(message: &str) -> Option<Ending> {
    let stages = [Stage::Filter, Stage::Score, Stage::Pick, Stage::Select, Stage::Classify];
    let mut endings = stages.into_iter().flat_map(|stage| Outcome::ALL.map(|outcome| (stage, outcome)));
    let named = |&(stage, outcome): &(Stage, Outcome)| message.contains(&format!("at stage {stage} ({outcome}): "));
    let told = |outcome: &Outcome| message.contains(&format!("at on-event ({outcome}): "));
    let told = Outcome::ALL.into_iter().find(told).map(|outcome| Ending::new("on-event", outcome));
    told.or_else(|| endings.find(named).map(|(stage, outcome)| Ending::new(function(stage), outcome)))
}

fn refusal(error: &LoadError) -> Ending {
    let what = match error {
        LoadError::Over { key, .. } => return Ending::new("load", format!("{} ({key})", error.step())),
        LoadError::Malformed { .. } => "malformed",
        LoadError::NotWasm { .. } => "not-wasm",
        LoadError::Text { .. } => "text",
        LoadError::CoreModule { .. } => "core-module",
        LoadError::Precompiled { .. } => "precompiled",
        LoadError::NoPolicy { .. } => "no-policy",
        LoadError::Version { .. } => "version",
        LoadError::NoStage { .. } => "no-stage",
        LoadError::Imports { .. } => "imports",
        LoadError::Wasi { .. } => "not-granted",
        LoadError::NoWasi { .. } => "no-wasi",
        LoadError::Limits { .. } => "limits",
        LoadError::Invalid { .. } => "invalid",
        LoadError::Compile { failure, .. } => failure.as_str(),
        LoadError::Function { .. } => "function",
        LoadError::Instantiate { fault, .. } => return Ending::new("instantiate", fault.outcome),
        LoadError::Describe { fault, .. } => return Ending::new("describe", fault.outcome),
        other => panic!("{other}"),
    };
    Ending::new("load", what)
}

/// A partition's workers.
fn add_workers(partition: &Partition) {
    for (worker, active_requests) in (1..).zip(LOADS) {
        partition.upsert_worker(WorkerConfig::new(worker)).unwrap();
        let load = Load { active_requests, decode_blocks: 10.0 * active_requests, ..Load::default() };
        partition.set_load(WorkerKey::new(worker, 0), Some(load));
    }
}

/// Decides until something happens, then twice more: the partition lives on whatever its policy does.
fn decide(partition: &Partition, case: &Case, action: FaultAction) -> Result<Ending, String> {
    add_workers(partition);
    let request = Request::default();
    let mut ending = Ending::new("decision", Outcome::Ok);
    for _ in 0..case.calls {
        ending = ended(case, action, partition.decide(&request))?;
        if ending.what != Outcome::Ok.as_str() {
            break;
        }
    }
    for _ in 0..2 {
        ended(case, action, partition.decide(&request))?;
    }
    Ok(ending)
}

/// How a decision ended, if it did as `on_fault` says.
fn ended(case: &Case, action: FaultAction, decided: Result<Decision, DecideError>) -> Result<Ending, String> {
    match (action, decided) {
        (_, Err(DecideError::AllEligibleWorkersFiltered)) => Ok(Ending::new("keep", "filtered")),
        (_, Ok(Decision { outcome: Outcome::Ok, fallback: false, worker, cost, .. })) => {
            if cost.is_finite() && case.worker.is_none_or(|expected| expected == worker.worker) {
                Ok(Ending::new("decision", Outcome::Ok))
            } else {
                Err(format!("chose worker {} at {cost}", worker.worker))
            }
        }
        (FaultAction::Reject, Err(DecideError::Refused { outcome, stage, message, .. })) => {
            one_line(&message)?;
            Ok(Ending::new(function(stage), outcome))
        }
        // What failed is counted by its outcome alone: the place is the other run's to see.
        (FaultAction::Fallback, Ok(Decision { outcome, fallback: true, worker, .. })) if worker.worker == FALLBACK => {
            Ok(Ending::new(&case.expect.place, outcome))
        }
        (action, other) => Err(format!("on_fault {}: {other:?}", action.as_str())),
    }
}

const fn function(stage: Stage) -> &'static str {
    match stage {
        Stage::Filter => "keep",
        Stage::Score => "score",
        Stage::Pick => "pick",
        Stage::Select => "select",
        Stage::Classify => "classify",
    }
}

/// Classifies, tells and ticks until something happens, then once more each.
fn classify(mut classifier: HostedClassifier, calls: u32) -> Result<Ending, String> {
    let mut ending = Ending::new("decision", Outcome::Ok);
    for ticket in 0..calls {
        ending = round(&mut classifier, ticket)?;
        if ending.what != Outcome::Ok.as_str() {
            break;
        }
    }
    round(&mut classifier, calls)?;
    Ok(ending)
}

fn round(classifier: &mut HostedClassifier, ticket: u32) -> Result<Ending, String> {
    let now_ms = f64::from(ticket);
    let worker = ClassifierWorker { number: 1, rank: 0, total_kv_blocks: Some(100) };
    let progress = [Progress { ticket, context_tokens: 17 }];
    let calls = [
        ("on-event", classifier.on_event(&Event::Workers(vec![worker]), now_ms).map(drop)),
        ("classify", classifier.classify(ticket, &ClassifyRequest::default(), now_ms).map(drop)),
        ("on-tick", classifier.on_tick(now_ms, &progress).map(drop)),
    ];
    for (place, answer) in calls {
        if let Err(ClassifierFault { message, .. }) = answer {
            one_line(&message)?;
            let outcome = Outcome::ALL.into_iter().find(|outcome| message.starts_with(&format!("{outcome}: ")));
            return outcome.map(|outcome| Ending::new(place, outcome)).ok_or(message);
        }
    }
    Ok(Ending::new("decision", Outcome::Ok))
}

/// What comes of a guest is one line of bounded length.
fn one_line(message: &str) -> Result<(), String> {
    if message.len() < 900 && !message.contains(char::is_control) {
        return Ok(());
    }
    Err(format!("a message of {} bytes: {message:.100?}", message.len()))
}

/// A well-behaved tenant. Its policy adds the number of its calls to every cost: a guest that lost its state shows.
struct Neighbour {
    partition: Arc<Partition>,
    decisions: u32,
    fuel: Option<u64>,
}

impl Neighbour {
    fn new(sandbox: &Sandbox, case: &Case) -> Self {
        let artifact = Artifact::from_bytes(case.name.clone(), &*case.bytes);
        let limits = LimitsPatch { values: PATIENT.to_vec(), ..LimitsPatch::default() };
        let spec = InstanceSpec::new("neighbour").limits(limits);
        let builder = Router::builder().register("neighbour", Provider::component(artifact)).serve(spec);
        let partition = builder.sandbox(sandbox.clone()).build().unwrap().partition(&PartitionKey::default(), 16);
        let partition = partition.unwrap();
        add_workers(&partition);
        let mut neighbour = Self { partition, decisions: 0, fuel: None };
        neighbour.fuel = neighbour.decide().unwrap();
        neighbour
    }

    /// Decides once, with another best worker each time; the fuel.
    fn decide(&mut self) -> Result<Option<u64>, String> {
        self.decisions += 1;
        let best = u64::from(self.decisions % 3) + 1;
        for worker in 1..=3 {
            let active_requests = if worker == best { 0.5 } else { 2.0 };
            self.partition.set_load(WorkerKey::new(worker, 0), Some(Load { active_requests, ..Load::default() }));
        }
        let decision = self.partition.decide(&Request::default()).map_err(|error| error.to_string())?;
        let Decision { worker, cost, outcome, fuel, .. } = decision;
        let right = worker.worker == best
            && cost == 0.5 + f64::from(self.decisions)
            && outcome == Outcome::Ok
            && (self.fuel.is_none() || fuel == self.fuel)
            && self.partition.counts().guests_replaced == 0;
        if right { Ok(fuel) } else { Err(format!("{decision:?}, not worker {best}")) }
    }
}
