//! A trace through admission: what waits, what is refused, and what each class gets.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use pointsman_admission::{AffinityMode, Bucket, OnFault, PolicyClass, Profile, ProfileSpec, Profiles, QueueLimits};
use pointsman_replay::{AdmissionReport, Fleet, Options, RunReport, Trace};
use pointsman_routing::{AdmissionSettings, ClassifierSettings, InstanceSpec, Provider, Router};
use pointsman_sdk::native::native;

use support::trace;

const ONE: Fleet = Fleet::Aggregated { workers: 1 };

/// A router with these settings, and the built-in classifiers compiled in.
fn router(settings: AdmissionSettings) -> Router {
    Router::builder()
        .register("max-in-flight", Provider::native(native::<max_in_flight::MaxInFlight>()))
        .register("session-serial", Provider::native(native::<session_serial::SessionSerial>()))
        .register("queue-budget", Provider::native(native::<queue_budget::QueueBudget>()))
        .admission(settings)
        .build()
        .unwrap()
}

fn replay(trace: &Trace, router: &Router, options: &Options) -> Result<RunReport, pointsman_replay::ReplayError> {
    support::replay(trace, router, options).map(|(report, _)| report)
}

fn classifier(name: &str, parameters: &str, max_deferral_ms: u32) -> AdmissionSettings {
    let parameters = serde_json::from_str(parameters).unwrap();
    let instance = InstanceSpec::new(name).parameters(parameters);
    let classifier = Some(ClassifierSettings { instance, on_fault: OnFault::Reject, max_deferral_ms });
    AdmissionSettings { classifier, ..AdmissionSettings::default() }
}

/// Two explicit classes in which a request waits while its worker prefills anything, and a family for the others.
fn classes(quanta: [u64; 2], limits: QueueLimits) -> Profiles {
    let class = |name: &str, quantum| PolicyClass {
        name: name.to_owned(),
        quantum,
        prefill_busy_threshold: Some(0),
        limits,
        ..PolicyClass::default()
    };
    let family = PolicyClass {
        policy_family: Some("other".to_owned()),
        cache_bucket: Some("all".to_owned()),
        ..class("other_all", 512)
    };
    let spec = ProfileSpec {
        default_policy_family: "other".to_owned(),
        uncached_isl_buckets: vec![Bucket { min_tokens: 0, bucket: "all".to_owned() }],
        policy_classes: vec![class("premium", quanta[0]), class("regular", quanta[1]), family],
    };
    Profiles::new(Profile::new(spec).unwrap(), [])
}

fn run(trace: &Trace, router: &Router, fleet: Fleet) -> (RunReport, AdmissionReport) {
    let report = replay(trace, router, &Options { fleet, ..Options::default() }).unwrap();
    let admission = report.admission.clone().unwrap();
    (report, admission)
}

/// So many requests of each class at once, of 512 tokens and one block that no other has.
fn burst(of_each: u64) -> Trace {
    let row = |id: u64| {
        let class = if id.is_multiple_of(2) { "premium" } else { "regular" };
        format!(
            r#"{{"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [{id}], "policy_class": "{class}"}}"#
        )
    };
    let rows: Vec<String> = (0..2 * of_each).map(row).collect();
    trace(&rows.iter().map(String::as_str).collect::<Vec<_>>())
}

/// How long a request of a burst takes that has its worker for itself, in milliseconds.
fn one_alone() -> f64 {
    let one = trace(&[r#"{"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [0]}"#]);
    let options = Options { fleet: ONE, ..Options::default() };
    replay(&one, &router(AdmissionSettings::default()), &options).unwrap().latency_ms.p50.unwrap()
}

#[test]
fn without_settings_there_is_no_admission_and_the_decisions_are_the_same_as_with_a_class_in_which_nothing_waits() {
    let trace = Trace::generated(3, 300);
    let bare = replay(&trace, &router(AdmissionSettings::default()), &Options::default()).unwrap();
    assert_eq!(bare.admission, None);
    let generous = classifier("max-in-flight", r#"{"max_requests": 100000}"#, 60_000);
    let report = replay(&trace, &router(generous), &Options::default()).unwrap();
    assert_eq!(report.admission.as_ref().unwrap().classified, 300);
    assert_eq!(report.decisions_sha256, bare.decisions_sha256);
}

#[test]
fn every_request_of_a_burst_waits_its_turn_and_all_are_served() {
    let settings = AdmissionSettings { profiles: classes([512, 512], QueueLimits::default()), ..Default::default() };
    let (report, admission) = run(&burst(320), &router(settings), ONE);
    assert_eq!((report.decided, report.rejected), (640, 0));
    let [premium, regular, other] = &admission.classes[..] else { panic!("{admission:?}") };
    assert_eq!((premium.dispatched, regular.dispatched, other.dispatched), (320, 320, 0));
    assert_eq!(premium.waited + regular.waited, 639, "all but the first");
    assert_eq!((premium.share, regular.share), (Some(0.5), Some(0.5)));
    let [fast, slow] = [premium, regular].map(|class| class.wait_ms.p50.unwrap());
    assert!((fast - slow).abs() / slow < 0.02, "equal quanta, equal waits: {fast} and {slow}");
}

#[test]
fn a_larger_quantum_waits_less() {
    let settings = AdmissionSettings { profiles: classes([512, 128], QueueLimits::default()), ..Default::default() };
    let (_, admission) = run(&burst(320), &router(settings), ONE);
    let [fast, slow] = [0, 1].map(|class| admission.classes[class].wait_ms.p50.unwrap());
    // Premium is served at four fifths of the pace and done when regular has had a quarter.
    assert!(slow / fast > 2.0, "{fast} ms and {slow} ms");
}

#[test]
fn a_full_class_refuses_by_name() {
    let limits = QueueLimits { requests: Some(10), ..QueueLimits::default() };
    let settings = AdmissionSettings { profiles: classes([512, 512], limits), ..Default::default() };
    let (report, _) = run(&burst(20), &router(settings), ONE);
    // One is served at once; ten of each class wait, and its worker takes a request a step.
    assert_eq!(report.rejections.get("queue-rejected"), Some(&19), "{:?}", report.rejections);
    assert_eq!(report.decided, 21);
}

#[test]
fn a_budget_that_is_shorter_than_the_wait_ends_it() {
    let settings = AdmissionSettings {
        profiles: classes([512, 512], QueueLimits::default()),
        ..classifier("queue-budget", r#"{"max_wait_ms": 1000}"#, 60_000)
    };
    let (report, admission) = run(&burst(320), &router(settings), ONE);
    let late = report.rejections.get("deadline-exceeded").copied().unwrap();
    assert_eq!(report.decided + late, 640);
    assert!(late > 0 && report.decided > 1);
    let longest = admission.classes.iter().filter_map(|class| class.wait_ms.p99).fold(0.0, f64::max);
    assert!(longest <= 1_000.0, "{longest}");
}

#[test]
fn a_classifier_that_lets_one_through_at_a_time_keeps_the_others_back() {
    let settings = classifier("max-in-flight", r#"{"max_requests": 1}"#, 86_400_000);
    let trace = burst(10);
    let report = replay(&trace, &router(settings), &Options { fleet: ONE, ..Options::default() }).unwrap();
    assert_eq!(report.decided, 20);
    // Each waits until the one before it is done, so that the last has waited for all.
    let last = report.latency_ms.p99.unwrap();
    assert!(last > 19.9 * one_alone(), "{last} ms, where one takes {}", one_alone());
}

#[test]
fn a_deferral_that_lasts_too_long_is_the_hosts_to_end() {
    let settings = classifier("max-in-flight", r#"{"max_requests": 1}"#, 1);
    let (report, admission) = run(&burst(10), &router(settings), ONE);
    assert_eq!(report.rejections.get("deferral-expired"), Some(&admission.deferrals_expired));
    assert_eq!(report.decided + admission.deferrals_expired, 20);
    assert!(admission.deferrals_expired > 10);
}

#[test]
fn a_session_keeps_its_worker_and_one_that_is_derived_is_as_good() {
    let turns: Vec<String> = (1..=6)
        .map(|turn| {
            let ids: Vec<String> = (1..=turn + 1).map(|id| id.to_string()).collect();
            let (at, length) = (turn * 60_000, (turn + 1) * 512);
            format!(
                r#"{{"timestamp": {at}, "input_length": {length}, "output_length": 2, "hash_ids": [{}]}}"#,
                ids.join(", ")
            )
        })
        .collect();
    let mut derived = trace(&turns.iter().map(String::as_str).collect::<Vec<_>>());
    derived.derive_sessions();
    let names: Vec<_> = derived.requests().map(|request| request.session_id.unwrap().to_owned()).collect();
    assert!(names.iter().all(|name| *name == names[0]), "{names:?}");
    let settings =
        AdmissionSettings { session_affinity: Some((AffinityMode::Hard, 3_600)), ..AdmissionSettings::default() };
    let (report, _) = run(&derived, &router(settings), Fleet::Aggregated { workers: 4 });
    assert_eq!(report.requests_per_worker.iter().filter(|requests| **requests > 0).count(), 1);
    assert_eq!(report.decided, 6);
}

#[test]
fn requests_without_a_common_beginning_are_sessions_of_their_own() {
    let mut trace = burst(3);
    trace.derive_sessions();
    let mut names: Vec<_> = trace.requests().map(|request| request.session_id.unwrap().to_owned()).collect();
    names.dedup();
    assert_eq!(names.len(), 6);
}

#[test]
fn one_request_of_a_session_at_a_time() {
    let rows: Vec<String> = (0..4)
        .map(|id| {
            format!(
                r#"{{"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [{id}], "session_id": "{}"}}"#,
                id % 2
            )
        })
        .collect();
    let trace = trace(&rows.iter().map(String::as_str).collect::<Vec<_>>());
    let serial = router(classifier("session-serial", "{}", 86_400_000));
    let (report, admission) = run(&trace, &serial, Fleet::Aggregated { workers: 4 });
    assert_eq!((report.decided, admission.classified), (4, 4));
    let [first, second] = [report.latency_ms.p50, report.latency_ms.p99].map(Option::unwrap);
    assert!(first < 1.1 * one_alone() && second > 1.9 * one_alone(), "{first} and {second} of {}", one_alone());
}
