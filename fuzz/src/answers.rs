//! The host's checks of a guest's answers: a guest whose memory, and where in it the answer lies, the input dictates.

use std::fmt::Write;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use pointsman_admission::{Classifier as _, ClassifierFault, ClassifyRequest, WorkerKey};
use pointsman_contract::{ClassifierWorker, Event, Resolution, Verdict};
use pointsman_routing::config::{BreakerSettings, FaultAction, LimitsPatch, OnFault, PolicyConfig, SandboxSettings};
use pointsman_routing::{
    DecideError, HostedClassifier, InstanceSpec, Partition, PartitionKey, Provider, Request, Router, WorkerConfig,
};
use pointsman_sandbox::{Outcome, Sandbox, SandboxConfig};

use super::check_sentence;
use super::common::{Classifier, Policy};

const WORKERS: u64 = 16;
const METRICS: usize = 16;
/// How a call may end that is no answer.
const FAULTS: [Outcome; 5] =
    [Outcome::Trap, Outcome::OutOfFuel, Outcome::Memory, Outcome::BadAnswer, Outcome::PolicyError];

/// Any memory of a guest is an answer that holds, or a typed fault; a chosen worker is one that may serve the request.
///
/// The bytes: what answers (0 filter, 1 scorer, 2 picker, 3 selector, then the classifier's `classify`, `on-event` and
/// `on-tick`), the workers that may serve (16 bits) with `on_fault` in the lowest bit of the byte after, where the answer
/// lies (16 bits, signed, from the start of the memory that follows), and that memory.
pub fn run(data: &[u8]) {
    ending(data);
}

/// How that ended: an outcome's name, or `filtered`; none where there are too few bytes.
pub fn ending(data: &[u8]) -> Option<&'static str> {
    let (&[what, low, high, flags, near, far], memory) = data.split_first_chunk()?;
    let (allowed, at) = (u16::from_le_bytes([low, high]), i16::from_le_bytes([near, far]));
    static HOST: OnceLock<Host> = OnceLock::new();
    let host = HOST.get_or_init(Host::new);
    Some(match usize::from(what % 7) {
        stage @ 0..4 => host.decide(stage, flags & 1 == 0, allowed, at, memory),
        function => host.classify(function as u32 - 4, at, memory).as_str(),
    })
}

/// Partitions whose policies answer what they are sent, by stage and by what follows a fault; a classifier of that kind.
struct Host {
    partitions: Vec<[Arc<Partition>; 2]>,
    classifier: Mutex<HostedClassifier>,
}

impl Host {
    fn new() -> Self {
        let sandbox = Sandbox::new(SandboxConfig { guests: 16, ..SandboxConfig::default() }).unwrap();
        let partitions = (0..4).map(|stage| {
            [FaultAction::Reject, FaultAction::Fallback].map(|action| {
                let on_fault = OnFault { filter: action, otherwise: action };
                let router =
                    (0..METRICS).fold(Router::builder(), |router, metric| router.metric(&format!("m{metric}")));
                let router = router
                    .register("dictated", Provider::component(parrot(stage).artifact()))
                    .serve(spec().on_fault(on_fault))
                    .sandbox(sandbox.clone())
                    .policy_config(untamed())
                    .build();
                let partition = router.unwrap().partition(&PartitionKey::default(), 16).unwrap();
                (0..WORKERS).for_each(|worker| partition.upsert_worker(WorkerConfig::new(worker)).unwrap());
                partition
            })
        });
        let partitions = partitions.collect();
        let router = Router::builder()
            .policy_config(untamed())
            .register("dictated", Provider::component(parrot_classifier().artifact()))
            .sandbox(sandbox)
            .build();
        let classifier = router.unwrap().hosted_classifier(spec(), &PartitionKey::default(), 16, |_| None);
        Self { partitions, classifier: Mutex::new(classifier.unwrap()) }
    }

    fn decide(&self, stage: usize, reject: bool, allowed: u16, at: i16, memory: &[u8]) -> &'static str {
        let allowed: Vec<u64> = (0..WORKERS).filter(|worker| allowed & 1 << worker != 0).collect();
        let partition = &self.partitions[stage][usize::from(!reject)];
        let mut words = dictated(DICTATED, at, memory);
        for metric in 0..METRICS {
            for worker in &allowed {
                let value = f64::from_bits(words.next().unwrap_or_default());
                assert!(partition.set_metric(WorkerKey::new(*worker, 0), &format!("m{metric}"), value));
            }
        }
        match partition.decide(&Request { allowed: Some(&allowed), ..Request::default() }) {
            Ok(decision) => {
                assert!(allowed.contains(&decision.worker.worker) && decision.cost.is_finite(), "{decision:?}");
                assert_eq!(decision.fallback, decision.outcome != Outcome::Ok, "{decision:?}");
                assert!(!decision.fallback || !reject && FAULTS.contains(&decision.outcome), "{decision:?}");
                decision.outcome.as_str()
            }
            Err(DecideError::Refused { outcome, message, .. }) => {
                assert!(reject && FAULTS.contains(&outcome), "{outcome}: {message}");
                check_sentence(&message);
                outcome.as_str()
            }
            Err(DecideError::AllEligibleWorkersFiltered) if matches!(stage, 0 | 3) => "filtered",
            Err(DecideError::NoEndpoints) if allowed.is_empty() => "filtered",
            Err(other) => panic!("{other}"),
        }
    }

    fn classify(&self, function: u32, at: i16, memory: &[u8]) -> Outcome {
        let mut classifier = self.classifier.lock().unwrap_or_else(PoisonError::into_inner);
        let mut words = dictated(DICTATED_TO_CLASSIFIER, at, memory).map(|word| (word as u32, (word >> 32) as u32));
        let mut workers: Vec<_> = words
            .by_ref()
            .take(257)
            .map(|(number, rank)| ClassifierWorker { number, rank, total_kv_blocks: None })
            .collect();
        workers[0].rank = function;
        let verdicts = |resolved: Vec<Resolution>| resolved.into_iter().map(|resolution| resolution.verdict).collect();
        let outcomes = [
            check(classifier.on_event(&Event::Workers(workers), 1.0).map(verdicts)),
            check(classifier.classify(7, &ClassifyRequest::default(), 2.0).map(Vec::from_iter)),
            check(classifier.on_tick(3.0, &[]).map(verdicts)),
        ];
        outcomes.into_iter().find(|outcome| *outcome != Outcome::Ok).unwrap_or(Outcome::Ok)
    }
}

/// The address of the answer, then the memory, in words.
fn dictated(base: i32, at: i16, memory: &[u8]) -> impl Iterator<Item = u64> {
    let address = base.wrapping_add(at.into()).cast_unsigned();
    let words = memory.chunks(8).map(|bytes| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    });
    std::iter::once(address.into()).chain(words)
}

/// A verdict that the host passes on has a due time that is one; a fault has its outcome.
fn check(answer: Result<Vec<Verdict>, ClassifierFault>) -> Outcome {
    match answer {
        Ok(verdicts) => {
            let due = verdicts.iter().filter_map(|verdict| match verdict {
                Verdict::Admit(admission) => admission.due_ms,
                Verdict::Reject(_) => None,
            });
            assert!(due.into_iter().all(f64::is_finite), "{verdicts:?}");
            Outcome::Ok
        }
        Err(ClassifierFault { message, .. }) => {
            check_sentence(&message);
            let outcome = FAULTS.into_iter().find(|outcome| message.starts_with(&format!("{outcome}: ")));
            outcome.unwrap_or_else(|| panic!("{message}"))
        }
    }
}

/// No breaker, which would keep the policy out after a few of its faults, and no smoke decision, which would be the first.
fn untamed() -> PolicyConfig {
    let breaker = BreakerSettings { faults: 0, ..BreakerSettings::default() };
    PolicyConfig {
        sandbox: SandboxSettings { smoke: false, breaker, ..SandboxSettings::default() },
        ..PolicyConfig::default()
    }
}

fn spec() -> InstanceSpec {
    let patient =
        LimitsPatch { values: vec![("deadline_us", 10_000_000), ("tick_deadline_us", 10_000_000)], profile: None };
    InstanceSpec::new("dictated").limits(patient)
}

/// Where a stage's memory is dictated from.
const DICTATED: i32 = 128;
/// Where a classifier's memory is.
const DICTATED_TO_CLASSIFIER: i32 = 5_120;

/// A policy of one stage that takes its numbers for the address of its answer and the memory from 128 on.
fn parrot(stage: usize) -> Policy {
    let body = "
        (memory.copy (i32.const 128) (i32.add (local.get $numbers) (i32.const 8))
          (i32.sub (i32.shl (local.get $count) (i32.const 3)) (i32.const 8)))
        (i32.load (local.get $numbers))";
    let mut policy = Policy { score: None, core: reads_metrics(stage), ..Policy::default() };
    match stage {
        0 => policy.keep = Some(body.into()),
        1 => policy.score = Some(body.into()),
        2 => policy.pick = Some(body.into()),
        // What the selector reads is what its stages do.
        _ => {
            policy.score = Some(body.into());
            policy.select = Some(body.into());
        }
    }
    policy
}

/// Data that makes the answer of the default `configure`, a record `inputs` at 4100, read every metric at one stage.
fn reads_metrics(stage: usize) -> String {
    let at = 4_100 + 32 * [0, 1, 2, 1][stage];
    let bytes = |numbers: &[u32]| {
        numbers.iter().flat_map(|number| number.to_le_bytes()).fold(String::new(), |mut text, byte| {
            let _ = write!(text, "\\{byte:02x}");
            text
        })
    };
    let names: Vec<String> = (0..METRICS).map(|metric| format!("metric.m{metric}")).collect();
    let mut start = 6_000;
    let list: Vec<u32> = names
        .iter()
        .flat_map(|name| {
            let place = [start, name.len() as u32];
            start += name.len() as u32;
            place
        })
        .collect();
    format!(
        r#"(data (i32.const {at}) "{}") (data (i32.const 5000) "{}") (data (i32.const 6000) "{}")"#,
        bytes(&[1, 0, 0, 0, 0, 5_000, METRICS as u32]),
        bytes(&list),
        names.concat()
    )
}

/// A classifier that takes the workers it is told for its memory from 5120 on; the first of them for the address of its
/// answer and the function that gives it.
fn parrot_classifier() -> Policy {
    let answer = |function: u32, otherwise: &str| {
        format!(
            "(if (i32.eq (global.get $function) (i32.const {function})) (then (return (global.get $address))))
             (call ${otherwise})"
        )
    };
    let remember = "
        (global.set $address (i32.load (local.get $p0)))
        (global.set $function (i32.load offset=4 (local.get $p0)))
        (local.set $j (i32.const 5120))
        (block $done (loop $next
          (local.set $i (i32.add (local.get $i) (i32.const 1)))
          (br_if $done (i32.ge_u (local.get $i) (local.get $p1)))
          (i64.store (local.get $j) (i64.load (i32.add (local.get $p0) (i32.shl (local.get $i) (i32.const 4)))))
          (local.set $j (i32.add (local.get $j) (i32.const 8)))
          (br $next)))";
    Policy {
        core: "(global $address (mut i32) (i32.const 0)) (global $function (mut i32) (i32.const -1))".into(),
        ..Policy::classifier(Classifier {
            classify: answer(0, "defer"),
            on_event: format!("{remember} {}", answer(1, "nothing")),
            on_tick: answer(2, "nothing"),
        })
    }
}
