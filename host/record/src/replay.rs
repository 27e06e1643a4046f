//! Decides a record again.

use std::collections::BTreeMap;
use std::sync::Arc;

use pointsman_routing::{
    DecideError, Layout, MemberSpec, PartitionKey, PolicySpec, PolicyState, Rebuild, SnapshotPolicy, WorkerKey,
};
use pointsman_sandbox::{Artifact, Determinism, Outcome, Sandbox, SandboxConfig};
use serde::Serialize;

use crate::entry::{Ended, outcome_of};
use crate::error::RecordError;
use crate::reader::{Record, Recorded};

/// Only fuel bounds a decision that is made again: another machine may be busier.
const BACKSTOP_US: u64 = 10_000_000;
/// Policies of one partition that are kept for when they decide again, as after a rollback.
const KEPT_POLICIES: usize = 4;

/// What a replay is given beside the record.
#[derive(Debug, Default)]
pub struct ReplayOptions {
    /// Components; each record's own is found among them by its digest.
    pub artifacts: Vec<Artifact>,
    /// What decides in place of what was recorded.
    pub replacements: Vec<Replacement>,
    /// Differences that are kept; all are counted.
    pub most_differences: usize,
    /// What runs the components; how far results are the same everywhere is the record's.
    pub sandbox: SandboxConfig,
}

/// A component or parameters in place of what was recorded. One that changes nothing makes no difference.
#[derive(Clone, Debug)]
pub struct Replacement {
    /// The instance; none for the only component of each policy.
    pub instance: Option<String>,
    /// Its new component.
    pub component: Option<Artifact>,
    /// Its new parameters, a JSON object.
    pub parameters: Option<String>,
}

/// What came of the decisions of one partition.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReplayReport {
    /// The name that the recorder was given for it.
    pub label: String,
    /// Its model, routing group and role, as `model/group/role`.
    pub partition: String,
    /// Whether anything else than what was recorded decided.
    pub replaced: bool,
    /// Its decisions in the file.
    pub decisions: u64,
    /// Those that were made again and compared.
    pub compared: u64,
    /// Of those, the ones with the same answer. The answer is the row, its cost and its outcome, or the error; where
    /// something else decides, the row or the error alone.
    pub agreed: u64,
    /// Compared decisions whose fuel is known both times.
    pub fuel_compared: u64,
    /// Of those, the ones with the same fuel.
    pub fuel_equal: u64,
    /// Their recorded fuel in all.
    pub recorded_fuel: u64,
    /// Their fuel in all.
    pub fuel: u64,
    /// Decisions that cannot be made again: calls that their guests got before are not in the file.
    pub beginning_missing: u64,
    /// Decisions that nobody can make again: time, quotas or earlier faults decided how they ended.
    pub not_comparable: u64,
    /// Compared decisions that a fault ended, by outcome, as recorded.
    pub recorded_faults: BTreeMap<String, u64>,
    /// The same, as replayed.
    pub faults: BTreeMap<String, u64>,
    /// Compared decisions that differ: in answer, or, where what was recorded decides again, in fuel or calls.
    pub different: u64,
    /// The first of them.
    pub differences: Vec<Difference>,
}

impl ReplayReport {
    /// The share of compared decisions with the same answer; none where there are none.
    #[must_use]
    pub fn agreement(&self) -> Option<f64> {
        (self.compared > 0).then(|| self.agreed as f64 / self.compared as f64)
    }

    /// Fuel as a multiple of the recorded; none where none is known.
    #[must_use]
    pub fn fuel_ratio(&self) -> Option<f64> {
        (self.recorded_fuel > 0).then(|| self.fuel as f64 / self.recorded_fuel as f64)
    }
}

/// A decision that came out otherwise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Its place in the file, counted from 0.
    pub decision: u64,
    /// How it ended when it was recorded.
    pub recorded: Answer,
    /// How it ended now.
    pub replayed: Answer,
}

/// How a decision ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// The chosen worker's id; none where the request was refused.
    pub worker: Option<u64>,
    /// Its data-parallel rank.
    pub rank: Option<u32>,
    /// Its cost.
    pub cost: Option<f64>,
    /// `ok`, the fault after which another decided, or the error's name.
    pub outcome: String,
    /// Fuel of the policy.
    pub fuel: Option<u64>,
    /// Calls that each guest of the policy has got since it was built.
    pub calls: Vec<u64>,
}

impl Answer {
    fn new(ended: &Ended, keys: &[WorkerKey], state: &PolicyState) -> Self {
        let calls = calls(state);
        match ended {
            Ok(decided) => {
                let key = keys.get(decided.row as usize);
                Self {
                    worker: key.map(|key| key.worker),
                    rank: key.map(|key| key.rank),
                    cost: Some(decided.cost),
                    outcome: decided.outcome.as_str().to_owned(),
                    fuel: decided.fuel,
                    calls,
                }
            }
            Err(name) => Self { worker: None, rank: None, cost: None, outcome: name.clone(), fuel: None, calls },
        }
    }
}

/// Decides a record again; a report for each partition in it, in the order of their recorder's taps.
///
/// # Errors
/// Where the file cannot be read, a component is neither given nor fits, or a policy cannot be built.
pub fn replay(record: &Record<'_>, options: &ReplayOptions) -> Result<Vec<ReplayReport>, RecordError> {
    let mut replay = Replay { options, rebuilds: BTreeMap::new(), policies: Vec::new(), reports: BTreeMap::new() };
    replay.check_replacements(record)?;
    let mut specs: Vec<(Arc<PolicySpec>, Arc<PolicySpec>, bool)> = Vec::new();
    for (place, decision) in (0..).zip(record.decisions()) {
        let decision = decision?;
        let known = specs.iter().find(|(recorded, ..)| Arc::ptr_eq(recorded, &decision.spec));
        let (spec, replaced) = match known {
            Some((_, spec, replaced)) => (Arc::clone(spec), *replaced),
            None => {
                let spec = Arc::new(replay.replaced(&decision.spec));
                let replaced = *spec != *decision.spec;
                specs.push((Arc::clone(&decision.spec), Arc::clone(&spec), replaced));
                (spec, replaced)
            }
        };
        let report = replay.report(&decision);
        report.replaced |= replaced;
        report.decisions += 1;
        replay.decide(place, &decision, &spec, replaced)?;
    }
    Ok(replay.reports.into_values().collect())
}

struct Replay<'a> {
    options: &'a ReplayOptions,
    rebuilds: BTreeMap<bool, Rebuild>,
    policies: Vec<Running>,
    reports: BTreeMap<usize, ReplayReport>,
}

/// A policy of a partition, built again.
struct Running {
    stream: usize,
    /// How far the recorded policy was after the last decision that this one made too.
    recorded: PolicyState,
    policy: SnapshotPolicy,
}

impl Replay<'_> {
    /// A replacement must say which instance it means, and that one must be there.
    fn check_replacements(&self, record: &Record<'_>) -> Result<(), RecordError> {
        let summary = record.summary()?;
        let specs = || summary.policies.iter().map(|policy| &policy.spec);
        let components = |spec: &PolicySpec| spec.members.iter().filter(|member| member.digest.is_some()).count();
        let mut names: Vec<&str> =
            specs().flat_map(|spec| &spec.members).map(|member| member.instance.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        for Replacement { instance, .. } in &self.options.replacements {
            match instance {
                Some(instance) if !names.contains(&instance.as_str()) => {
                    let message = format!("it has no instance `{instance}`; it has {}", names.join(", "));
                    return Err(RecordError::Replacement(message));
                }
                None if specs().any(|spec| components(spec) > 1) => {
                    let message = format!(
                        "a policy in it has several instances; say which is replaced, as INSTANCE=FILE.wasm, of {}",
                        names.join(", ")
                    );
                    return Err(RecordError::Replacement(message));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn report(&mut self, decision: &Recorded) -> &mut ReplayReport {
        self.reports.entry(decision.stream).or_insert_with(|| {
            let PartitionKey { model, routing_group, role } = &decision.spec.told.key;
            let partition = format!("{model}/{routing_group}/{role}");
            ReplayReport { label: decision.label.to_string(), partition, ..ReplayReport::default() }
        })
    }

    fn replaced(&self, spec: &PolicySpec) -> PolicySpec {
        let mut spec = spec.clone();
        for Replacement { instance, component, parameters } in &self.options.replacements {
            let means = |member: &&mut MemberSpec| {
                member.digest.is_some() && instance.as_ref().is_none_or(|instance| *instance == member.instance)
            };
            for member in spec.members.iter_mut().filter(means) {
                member.digest = component.as_ref().map(Artifact::sha256_hex).or(member.digest.take());
                if let Some(parameters) = parameters {
                    member.parameters.clone_from(parameters);
                }
            }
        }
        spec
    }

    /// Makes one decision again, where what it depends on is known.
    fn decide(
        &mut self,
        place_in_file: u64,
        decision: &Recorded,
        spec: &PolicySpec,
        replaced: bool,
    ) -> Result<(), RecordError> {
        let Recorded { stream, before, after, snapshot, ended, .. } = decision;
        let found = self
            .policies
            .iter()
            .position(|running| running.stream == *stream && running.recorded.policy == before.policy);
        let continues =
            found.and_then(|place| self.policies.get(place)).is_some_and(|running| running.recorded == *before);
        if left_to_circumstance(ended) {
            self.report(decision).not_comparable += 1;
            match (found.and_then(|place| self.policies.get_mut(place)), continues) {
                // It was not asked, so it is as far as it was.
                (Some(running), true) if before.guests == after.guests => running.recorded.clone_from(after),
                _ => self.forget(found),
            }
            return Ok(());
        }
        let place = match found {
            Some(place) if continues => place,
            _ if before.is_fresh() => {
                self.forget(found);
                self.begin(*stream, before, spec)?
            }
            _ => {
                // What it was built for went on without it.
                self.forget(found);
                self.report(decision).beginning_missing += 1;
                return self.begin_after(decision, spec);
            }
        };
        let Some(running) = self.policies.get_mut(place) else { return Ok(()) };
        let same_defaults = running.policy.state().defaults == before.defaults;
        let replayed = running.policy.decide(snapshot).map_err(|error: DecideError| error.name().to_owned());
        running.recorded.clone_from(after);
        let state = running.policy.state();
        let late = fault(&replayed) == Some(Outcome::Deadline);
        let failed_alike = !replaced && fault(ended).is_some() && fault(ended) == fault(&replayed);
        // Its breaker or a quota may have kept the policy from being asked again.
        let kept_off = failed_alike && calls(&state) != calls(after);
        // Who decided then has a state too, which the record tells of the default alone, and from its start.
        let other_hand = ended.as_ref().is_ok_and(|decided| !(decided.fallback && same_defaults));
        let other_hand = failed_alike && other_hand && replayed != *ended;
        if late || kept_off || other_hand {
            self.report(decision).not_comparable += 1;
            if late || kept_off {
                self.forget(Some(place));
            }
            return Ok(());
        }
        self.compare(place_in_file, decision, &replayed, &state, replaced);
        Ok(())
    }

    fn compare(
        &mut self,
        place_in_file: u64,
        decision: &Recorded,
        replayed: &Ended,
        state: &PolicyState,
        replaced: bool,
    ) {
        let Recorded { ended, after, snapshot, .. } = decision;
        let most_differences = self.options.most_differences;
        let report = self.report(decision);
        report.compared += 1;
        for (faults, ended) in [(&mut report.recorded_faults, ended), (&mut report.faults, replayed)] {
            if let Some(outcome) = fault(ended) {
                *faults.entry(outcome.as_str().to_owned()).or_default() += 1;
            }
        }
        let agrees = match (ended, replayed) {
            (Ok(was), Ok(is)) if replaced => was.row == is.row,
            (Ok(was), Ok(is)) => (was.row, was.cost.to_bits(), was.outcome) == (is.row, is.cost.to_bits(), is.outcome),
            (Err(was), Err(is)) => was == is,
            _ => false,
        };
        let fuel = |ended: &Ended| ended.as_ref().ok().and_then(|decided| decided.fuel);
        let mut same_fuel = true;
        if let (Some(was), Some(is)) = (fuel(ended), fuel(replayed)) {
            same_fuel = was == is;
            report.fuel_compared += 1;
            report.fuel_equal += u64::from(same_fuel);
            report.recorded_fuel = report.recorded_fuel.saturating_add(was);
            report.fuel = report.fuel.saturating_add(is);
        }
        let same_calls = replaced || calls(state) == calls(after);
        report.agreed += u64::from(agrees);
        let differs = !(agrees && (replaced || same_fuel && same_calls));
        report.different += u64::from(differs);
        if differs && report.differences.len() < most_differences {
            report.differences.push(Difference {
                decision: place_in_file,
                recorded: Answer::new(ended, &snapshot.keys, after),
                replayed: Answer::new(replayed, &snapshot.keys, state),
            });
        }
    }

    /// Where a decision that cannot be made again left a new guest behind, which has filtered its rows once more, what
    /// follows is known.
    fn begin_after(&mut self, decision: &Recorded, spec: &PolicySpec) -> Result<(), RecordError> {
        let Recorded { stream, before, after, snapshot, .. } = decision;
        let ([was], [is]) = (before.guests.as_slice(), after.guests.as_slice()) else { return Ok(()) };
        if matches!(spec.layout, Layout::Single(_)) && was.generation != is.generation && is.calls == 1 {
            let place = self.begin(*stream, after, spec)?;
            if let Some(running) = self.policies.get_mut(place) {
                running.policy.ask_filter(snapshot);
            }
        }
        Ok(())
    }

    fn forget(&mut self, place: Option<usize>) {
        if let Some(place) = place {
            self.policies.remove(place);
        }
    }

    /// Builds the policy that decides from here on; its place.
    fn begin(&mut self, stream: usize, recorded: &PolicyState, spec: &PolicySpec) -> Result<usize, RecordError> {
        let rebuild = self.rebuild(spec)?;
        let mut spec = spec.clone();
        spec.members.iter_mut().for_each(|member| member.limits.deadline_us = BACKSTOP_US);
        let policy = rebuild.policy(&spec)?;
        let of_stream = |running: &Running| running.stream == stream;
        if self.policies.iter().filter(|running| of_stream(running)).count() >= KEPT_POLICIES {
            let oldest = self.policies.iter().position(of_stream);
            self.forget(oldest);
        }
        self.policies.push(Running { stream, recorded: recorded.clone(), policy });
        Ok(self.policies.len() - 1)
    }

    /// What builds the policies of one determinism, and knows every component of this one.
    fn rebuild(&mut self, spec: &PolicySpec) -> Result<&Rebuild, RecordError> {
        let portable = spec.told.determinism == Determinism::Portable;
        let Self { options, rebuilds, .. } = self;
        let rebuild = match rebuilds.entry(portable) {
            std::collections::btree_map::Entry::Occupied(found) => found.into_mut(),
            std::collections::btree_map::Entry::Vacant(place) => {
                let sandbox =
                    Sandbox::new(SandboxConfig { determinism: spec.told.determinism, ..options.sandbox.clone() })?;
                place.insert(Rebuild::new(sandbox)?)
            }
        };
        let replacements = options.replacements.iter().filter_map(|replacement| replacement.component.as_ref());
        let artifacts: Vec<&Artifact> = options.artifacts.iter().chain(replacements).collect();
        for MemberSpec { instance, digest, .. } in &spec.members {
            let Some(digest) = digest else { continue };
            let artifact = artifacts
                .iter()
                .find(|artifact| artifact.sha256_hex() == *digest)
                .ok_or_else(|| RecordError::UnknownComponent { instance: instance.clone(), digest: digest.clone() })?;
            rebuild.add((*artifact).clone())?;
        }
        Ok(rebuild)
    }
}

/// The calls that each guest has got.
fn calls(state: &PolicyState) -> Vec<u64> {
    state.guests.iter().map(|guest| guest.calls).collect()
}

/// The fault that ended the decision, or that another decided after.
fn fault(ended: &Ended) -> Option<Outcome> {
    let outcome = match ended {
        Ok(decided) => Some(decided.outcome),
        Err(name) => outcome_of(name),
    };
    outcome.filter(|outcome| *outcome != Outcome::Ok)
}

/// Whether the clock, a quota or what the policy did earlier decided how it ended, and not the inputs.
fn left_to_circumstance(ended: &Ended) -> bool {
    let circumstances = [Outcome::Deadline, Outcome::NotLoaded, Outcome::Quarantined, Outcome::OverQuota];
    fault(ended).is_some_and(|outcome| circumstances.contains(&outcome))
}
