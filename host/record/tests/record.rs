//! Records of components, decided again, and shadows.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use pointsman_record::{
    Record, RecordError, Recorder, Replacement, ReplayOptions, ReplayReport, Shadow, ShadowOptions, WhenFull, replay,
};
use pointsman_routing::{
    InstanceSpec, Observed, Partition, PartitionKey, PolicyState, Provider, Request, Router, SnapshotDecision, Tap,
    WorkerConfig,
};
use pointsman_sandbox::Artifact;
use pointsman_sdk::native::native;
use pointsman_sdk::prelude::{NoParameters, Policy, PolicyError, Reads, Row, RowScorer, Setup};

#[derive(Clone, Default)]
struct Output(Arc<Mutex<Vec<u8>>>);

impl Output {
    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn artifact(name: &str) -> Artifact {
    Artifact::from_bytes(name, pointsman_policies::get(name).unwrap().component).trusted()
}

fn router(name: &str) -> Router {
    Router::builder()
        .register(name, Provider::component(artifact(name)))
        .serve(InstanceSpec::new(name))
        .build()
        .unwrap()
}

fn partition(router: &Router) -> Arc<Partition> {
    let partition = router.partition(&PartitionKey::default(), 16).unwrap();
    (0..8).for_each(|worker| partition.upsert_worker(WorkerConfig::new(worker)).unwrap());
    partition
}

/// Decides and books so many requests, one after the other.
fn decide(partition: &Partition, requests: u32) -> Vec<u64> {
    let one = |turn: u32| {
        let request =
            Request { now_ms: f64::from(turn), prompt_tokens: u64::from(turn % 7) * 100, ..Request::default() };
        let decision = partition.decide(&request).unwrap();
        partition.reserve(&request, &decision).unwrap();
        decision.worker.worker
    };
    (0..requests).map(one).collect()
}

fn replayed(bytes: &[u8], replacements: Vec<Replacement>) -> Result<Vec<ReplayReport>, RecordError> {
    let artifacts = pointsman_policies::all().iter().map(|policy| artifact(policy.name)).collect();
    replay(
        &Record::new(bytes),
        &ReplayOptions { artifacts, replacements, most_differences: 5, ..ReplayOptions::default() },
    )
}

fn only(bytes: &[u8], replacements: Vec<Replacement>) -> ReplayReport {
    let mut reports = replayed(bytes, replacements).unwrap();
    assert_eq!(reports.len(), 1);
    reports.remove(0)
}

/// Records what its change makes of each decision.
struct Changed<F> {
    tap: Box<dyn Tap>,
    place: u32,
    change: F,
}

impl<F: FnMut(u32, &mut SnapshotDecision, &mut PolicyState) + Send> Tap for Changed<F> {
    fn wants(&mut self) -> bool {
        self.tap.wants()
    }

    fn decided(&mut self, observed: &Observed<'_>) {
        let (mut decision, mut after) = (observed.ended.unwrap(), observed.after.clone());
        (self.change)(self.place, &mut decision, &mut after);
        self.place += 1;
        let mut changed = *observed;
        (changed.ended, changed.after) = (Ok(decision), &after);
        self.tap.decided(&changed);
    }
}

/// A record of a policy, of which one thing is untrue.
fn lie(change: impl FnMut(u32, &mut SnapshotDecision, &mut PolicyState) + Send + 'static) -> ReplayReport {
    let (output, router) = (Output::default(), router("random"));
    let (recorder, partition) = (Recorder::new(output.clone(), 1 << 20), partition(&router));
    partition.set_taps(vec![Box::new(Changed { tap: recorder.tap("random"), place: 0, change })]);
    decide(&partition, 40);
    recorder.finish().unwrap();
    only(&output.bytes(), Vec::new())
}

#[test]
fn a_record_that_is_not_true_is_found_out() {
    let true_one = lie(|_, _, _| {});
    assert_eq!((true_one.compared, true_one.different, true_one.fuel_equal), (40, 0, 40));
    let rows = lie(|place, decision, _| decision.row ^= u32::from(place == 11));
    assert_eq!((rows.compared, rows.agreed, rows.different), (40, 39, 1));
    assert_eq!(rows.differences[0].decision, 11);
    let costs = lie(|place, decision, _| {
        if place == 3 {
            decision.cost = -0.0
        }
    });
    assert_eq!((costs.agreed, costs.different), (39, 1), "-0 is not 0");
    let fuel = lie(|place, decision, _| decision.fuel = decision.fuel.map(|fuel| fuel + u64::from(place == 39)));
    assert_eq!((fuel.agreed, fuel.fuel_equal, fuel.different), (40, 39, 1));
    // What follows seems to come after a gap, and cannot be made again.
    let calls = lie(|place, _, after| after.guests[0].calls += u64::from(place == 20));
    assert_eq!((calls.agreed, calls.different, calls.compared), (21, 1, 21));
    assert_eq!(calls.beginning_missing, 19);
}

#[test]
fn a_recording_that_begins_later_than_the_guest_is_not_replayable() {
    let (output, router) = (Output::default(), router("round-robin"));
    let (recorder, partition) = (Recorder::new(output.clone(), 1 << 20), partition(&router));
    decide(&partition, 10);
    partition.set_taps(vec![recorder.tap("late")]);
    decide(&partition, 30);
    partition.set_taps(Vec::new());
    decide(&partition, 5);
    let written = recorder.finish().unwrap();
    assert_eq!(written.decisions, 30);
    let report = only(&output.bytes(), Vec::new());
    assert_eq!((report.decisions, report.compared, report.beginning_missing, report.different), (30, 0, 30, 0));
    // Nor is another policy tried on it.
    let other = Replacement { instance: None, component: Some(artifact("random")), parameters: None };
    let report = only(&output.bytes(), vec![other]);
    assert_eq!((report.compared, report.beginning_missing, report.different), (0, 30, 0));
}

#[test]
fn a_full_file_holds_its_first_decisions_and_is_no_larger_than_it_may_be() {
    for most_bytes in [4_000, 20_000, 60_000] {
        let (output, router) = (Output::default(), router("random"));
        let (recorder, partition) = (Recorder::new(output.clone(), most_bytes), partition(&router));
        partition.set_taps(vec![recorder.tap("random")]);
        assert!(!recorder.is_closed());
        decide(&partition, 4_000);
        assert!(recorder.is_closed());
        let written = recorder.finish().unwrap();
        let bytes = output.bytes();
        assert!(written.full && written.bytes == bytes.len() as u64 && written.bytes <= most_bytes, "{written:?}");
        let summary = Record::new(&bytes).summary().unwrap();
        assert_eq!((summary.ends, summary.decisions), (pointsman_record::End::Full, written.decisions));
        let report = only(&bytes, Vec::new());
        assert_eq!((report.compared, report.different), (written.decisions, 0));
        // The least file has room for one frame, the largest for many.
        assert!(written.decisions > most_bytes / 200, "{written:?}");
    }
}

#[test]
fn what_is_written_in_the_background_is_whole() {
    let written = |background: bool| {
        let (output, router) = (Output::default(), router("random"));
        let recorder = match background {
            true => Recorder::in_background(output.clone(), 1 << 20).unwrap(),
            false => Recorder::new(output.clone(), 1 << 20),
        };
        let partition = partition(&router);
        partition.set_taps(vec![recorder.tap("random")]);
        decide(&partition, 1_000);
        recorder.flush();
        decide(&partition, 7);
        (recorder.finish().unwrap(), output.bytes())
    };
    for (written, bytes) in [written(false), written(true)] {
        assert_eq!((written.decisions, written.dropped, written.full), (1_007, 0, false));
        assert_eq!(written.bytes, bytes.len() as u64);
        let report = only(&bytes, Vec::new());
        assert_eq!((report.compared, report.agreed), (1_007, 1_007));
    }
}

/// An output that takes nothing before it may.
struct Stuck(std::sync::mpsc::Receiver<()>);

impl std::io::Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        // Its other end goes when it may write.
        let _ = self.0.recv();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn no_decision_waits_for_an_output_that_is_stuck() {
    let (go, wait) = std::sync::mpsc::channel();
    let router = router("random");
    let recorder = Recorder::in_background(Stuck(wait), 1 << 30).unwrap();
    let partition = partition(&router);
    partition.set_taps(vec![recorder.tap("random")]);
    for _ in 0..100 {
        decide(&partition, 3);
        recorder.flush();
    }
    drop(go);
    let written = recorder.finish().unwrap();
    assert!(written.dropped >= 3 * 30, "{written:?}");
    assert_eq!(written.decisions + written.dropped, 300);
}

#[test]
fn a_component_or_an_instance_that_is_not_there_is_named() {
    let (output, router) = (Output::default(), router("random"));
    let (recorder, partition) = (Recorder::new(output.clone(), 1 << 20), partition(&router));
    partition.set_taps(vec![recorder.tap("random")]);
    decide(&partition, 3);
    recorder.finish().unwrap();
    let bytes = output.bytes();
    let error = replay(&Record::new(&bytes), &ReplayOptions::default()).unwrap_err().to_string();
    assert!(error.contains(&artifact("random").sha256_hex()) && error.contains("--register"), "{error}");
    let other = Replacement { instance: Some("rnadom".to_owned()), component: None, parameters: None };
    let error = replayed(&bytes, vec![other]).unwrap_err().to_string();
    assert!(error.contains("no instance `rnadom`; it has random"), "{error}");
}

/// Held while the candidate must not go on.
static GATE: Mutex<()> = Mutex::new(());

struct Slow;

impl Policy for Slow {
    type Parameters = NoParameters;
    const NAME: &'static str = "slow";
    const DESCRIPTION: &'static str = "Waits for its test.";

    fn configure(_: &Setup, _: NoParameters) -> Result<Self, PolicyError> {
        Ok(Self)
    }
}

impl RowScorer for Slow {
    fn reads(&self) -> Reads {
        Reads::LOAD
    }

    fn score(&mut self, _: &pointsman_sdk::Request<'_>, row: Row<'_>) -> Result<f64, PolicyError> {
        drop(GATE.lock().unwrap());
        Ok(row.load()?.active_requests())
    }
}

pointsman_sdk::export!(Slow: scorer);

#[test]
fn live_decisions_never_wait_for_a_shadow_that_drops() {
    let live = router("least-loaded");
    let slow = Router::builder().register("slow", Provider::native(native::<Slow>()));
    let slow = slow.serve(InstanceSpec::new("slow")).build().unwrap();
    let key = PartitionKey::default();
    let options = ShadowOptions { share: 1.0, waiting: 4, when_full: WhenFull::Drop, seed: 0 };
    let policies = [&live, &slow].map(|router| router.on_snapshots(&key, 16).unwrap());
    let [stand_in, candidate] = policies;
    let (shadow, tap) = Shadow::start(stand_in, candidate, options).unwrap();
    let partition = partition(&live);
    partition.set_taps(vec![tap]);
    let held = GATE.lock().unwrap();
    // Would never end if one of them waited.
    let with_shadow = decide(&partition, 100);
    let so_far = shadow.report();
    assert_eq!((so_far.sampled, so_far.compared), (100, 0));
    assert!((95..=96).contains(&so_far.dropped), "four wait, and one may be in the works: {so_far:?}");
    drop(held);
    let report = shadow.finish();
    assert_eq!(report.compared + report.dropped, 100, "{report:?}");
    partition.set_taps(Vec::new());
    let alone = router("least-loaded");
    assert_eq!(decide(&self::partition(&alone), 100), with_shadow);
}
