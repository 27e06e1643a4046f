//! One decision of one policy over its candidate table: filters, scorers, picker, in that order, every answer checked.
//!
//! A policy of one component that offers it decides in one crossing; the stages run one by one give the same answer.

use std::sync::atomic::{AtomicU64, Ordering};

use pointsman_contract::{Fact, Stages};
use pointsman_sandbox::{Fault, Outcome};

use crate::candidates::Needs;
use crate::config::{FaultAction, OnFault};
use crate::error::DecideError;
use crate::guest::Guest;
use crate::member::Member;
use crate::table::{Packed, Rows, Source, narrowed};
use crate::tap::Layout;
use crate::vocabulary::{Plan, Stage};

/// Whether a policy that offers it decides in one crossing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StageMode {
    /// In one crossing where the policy offers it.
    #[default]
    Fused,
    /// Stage by stage, always.
    Separate,
}

/// A policy of one partition.
pub(crate) struct Pipeline {
    members: Vec<Member>,
    /// Members by stage, in the order they run.
    filters: Vec<usize>,
    scorers: Vec<usize>,
    picker: Option<usize>,
    fused: bool,
    /// None where the stages are those of several components.
    mode: Option<StageMode>,
    id: u64,
    asked: u64,
    scratch: Scratch,
}

/// Buffers that live from decision to decision.
#[derive(Default)]
struct Scratch {
    packed: Packed,
    rows: Vec<u32>,
    kept: Vec<bool>,
    costs: Vec<f64>,
    contribution: Vec<f64>,
}

/// What a policy decided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Answer {
    /// A row of the source.
    pub(crate) row: u32,
    pub(crate) cost: f64,
    pub(crate) fuel: Option<u64>,
}

/// Why a policy gave no row.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What the host does now.
    pub(crate) then: Then,
    /// What went wrong, in order; empty where the filters kept no row and nothing else happened.
    pub(crate) faults: Vec<StageFault>,
}

impl Failure {
    /// Tells the operator what went wrong, and says what the caller does: let the native default decide after that
    /// outcome, where `default` says that there is one, or answer the error.
    pub(crate) fn resolve(self, default: bool) -> Result<Outcome, DecideError> {
        self.faults.iter().for_each(StageFault::log);
        match (self.then, self.faults.into_iter().next()) {
            (Then::Filtered, _) | (_, None) => Err(DecideError::AllEligibleWorkersFiltered),
            (Then::FallBack | Then::LastGood, Some(first)) if default => Ok(first.fault.outcome),
            (_, Some(first)) => Err(first.into()),
        }
    }
}

/// A fault and where it happened.
#[derive(Clone, Debug)]
pub(crate) struct StageFault {
    pub(crate) stage: Stage,
    pub(crate) instance: String,
    pub(crate) fault: Fault,
}

impl StageFault {
    /// Tells the operator.
    pub(crate) fn log(&self) {
        let Self { stage, instance, fault: Fault { outcome, message } } = self;
        tracing::warn!(instance, %stage, %outcome, message, "a policy failed");
    }
}

impl From<StageFault> for DecideError {
    fn from(StageFault { stage, instance, fault: Fault { outcome, message } }: StageFault) -> Self {
        Self::Refused { outcome, stage, instance, message }
    }
}

/// What follows where a policy gave no row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// The request is refused, with the first fault.
    Refuse,
    /// The native default decides among the rows that [`Pipeline::kept`] holds.
    FallBack,
    /// The instance's previous version decides among those rows; where there is none, as for `FallBack`.
    LastGood,
    /// The filters kept no row: an answer, whatever else went wrong.
    Filtered,
}

/// What every stage saw and answered, for a person who asks why.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Explanation {
    /// The rows that every filter kept.
    pub kept: Vec<u32>,
    /// The scorers' costs, one list for each scorer, one cost for each kept row; also those that are refused.
    pub costs: Vec<Vec<f64>>,
    /// Fuel of the stages so far.
    pub fuel: Option<u64>,
}

impl Explanation {
    /// The scorers' sum for each row that the filters kept, in the order of the rows.
    pub fn sums(&self) -> impl Iterator<Item = (u32, f64)> {
        let sum =
            |place: usize| self.costs.iter().filter_map(|costs| costs.get(place)).fold(0.0, |sum, cost| sum + cost);
        self.kept.iter().enumerate().map(move |(place, row)| (*row, sum(place)))
    }
}

impl Pipeline {
    /// A policy of one component, or of one native policy.
    pub(crate) fn single(member: Member, mode: StageMode) -> Self {
        let Stages { filter, score, pick, select, .. } = member.guest().stages();
        let all = |has: bool| if has { vec![0] } else { Vec::new() };
        Self {
            filters: all(filter),
            scorers: all(score),
            picker: pick.then_some(0),
            fused: select && mode == StageMode::Fused,
            mode: Some(mode),
            ..Self::of(vec![member], Vec::new(), Vec::new(), None)
        }
    }

    /// A policy of several components; the lists hold places in `members`.
    pub(crate) fn of(members: Vec<Member>, filters: Vec<usize>, scorers: Vec<usize>, picker: Option<usize>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (id, scratch) = (NEXT.fetch_add(1, Ordering::Relaxed), Scratch::default());
        Self { members, filters, scorers, picker, fused: false, mode: None, id, asked: 0, scratch }
    }

    /// The same without quotas and breakers, so that what it does is no affair of a policy that serves.
    pub(crate) fn unguarded(mut self) -> Self {
        self.members.iter_mut().for_each(Member::drop_guard);
        self
    }

    /// A number that no other policy of this process has.
    pub(crate) const fn id(&self) -> u64 {
        self.id
    }

    /// How often it was asked to decide.
    pub(crate) const fn asked(&self) -> u64 {
        self.asked
    }

    pub(crate) fn layout(&self) -> Layout {
        let Self { filters, scorers, picker, .. } = self;
        match self.mode {
            Some(mode) => Layout::Single(mode),
            None => Layout::Several { filters: filters.clone(), scorers: scorers.clone(), picker: *picker },
        }
    }

    /// Whether the host narrows the rows to an eligible affinity target first.
    pub(crate) fn exclusive_affinity(&self) -> bool {
        self.members.iter().any(|member| member.guest().inputs().exclusive_affinity)
    }

    /// Whether any stage that runs reads a cache signal.
    pub(crate) fn reads_cache(&self) -> bool {
        self.plans().any(|plan| plan.reads_cache)
    }

    /// What the stages that run need prepared.
    pub(crate) fn needs(&self) -> Needs {
        Needs {
            overlaps: self.plans().any(|plan| plan.reads_cache || plan.facts.contains(&Fact::HasTierMatches)),
            added: self.plans().any(Plan::reads_added_blocks),
        }
    }

    /// The plans of the stages that run.
    fn plans(&self) -> impl Iterator<Item = &Plan> {
        let plans = |place: &usize| self.members.get(*place).map(|member| &member.plans);
        let filters = self.filters.iter().filter_map(plans).map(|plans| &plans.filter);
        let scorers = self.scorers.iter().filter_map(plans).map(|plans| &plans.score);
        let picker = self.picker.iter().filter_map(plans).map(|plans| &plans.pick);
        filters.chain(scorers).chain(picker)
    }

    /// The guest of a policy of one component.
    pub(crate) fn guest(&self) -> Option<&Guest> {
        self.members.first().map(Member::guest)
    }

    /// Guests that were built after the first, over all members.
    pub(crate) fn replaced(&self) -> u64 {
        self.members.iter().map(|member| member.guest().replaced()).sum()
    }

    /// The guests, in the order of the instances.
    pub(crate) fn members(&self) -> &[Member] {
        &self.members
    }

    /// The rows that every filter of the last decision kept, after a fault that ends in [`Then::FallBack`] or
    /// [`Then::LastGood`].
    pub(crate) fn kept(&self) -> &[u32] {
        &self.scratch.rows
    }

    /// Decides among `rows`, of which there is at least one.
    pub(crate) fn decide(
        &mut self,
        source: &impl Source,
        rows: Rows<'_>,
        explain: Option<&mut Explanation>,
    ) -> Result<Answer, Failure> {
        self.asked += 1;
        if self.fused && explain.is_none() {
            self.decide_fused(source, rows)
        } else {
            self.decide_by_stages(source, rows, explain)
        }
    }

    fn decide_fused(&mut self, source: &impl Source, rows: Rows<'_>) -> Result<Answer, Failure> {
        let Self { members, scratch, .. } = self;
        let Some(member) = members.first_mut() else { return Err(Failure::filtered(Vec::new())) };
        let args = scratch.packed.fill(source, &member.plans.select, rows, &[]);
        let selection = member.call(source.fact(Fact::NowMs), |guest, instance| match guest.select(args)? {
            Some(answer) if answer.row as usize >= rows.len() => Err(row_out_of_range(answer.row, rows.len())),
            Some(answer) if !answer.cost.is_finite() => Err(not_finite(instance, answer.row)),
            other => Ok(other),
        });
        match selection {
            Ok(Some(answer)) => {
                let row = rows.get(answer.row).unwrap_or_default();
                Ok(Answer { row, cost: answer.cost, fuel: member.guest().fuel_used() })
            }
            Ok(None) => Err(Failure::filtered(Vec::new())),
            Err(fault) => Err(self.after_fused_fault(source, rows, fault)),
        }
    }

    /// Takes `rows` as those that are left.
    fn start_with(&mut self, rows: Rows<'_>) {
        self.scratch.rows.clear();
        rows.map(&mut self.scratch.rows, |row| row);
    }

    /// One crossing failed, so that the kept rows are not known: the filter is asked once more, on its own.
    fn after_fused_fault(&mut self, source: &impl Source, rows: Rows<'_>, fault: Fault) -> Failure {
        self.start_with(rows);
        let mut faults = vec![self.stage_fault(0, Stage::Select, fault)];
        let then = match self.otherwise(0) {
            Then::FallBack | Then::LastGood if !self.filters.is_empty() => {
                self.ask_filter_again(source, 0, &mut faults)
            }
            then => then,
        };
        match then {
            Then::FallBack | Then::LastGood if self.scratch.rows.is_empty() => Failure::filtered(faults),
            then => Failure { then, faults },
        }
    }

    fn decide_by_stages(
        &mut self,
        source: &impl Source,
        rows: Rows<'_>,
        mut explain: Option<&mut Explanation>,
    ) -> Result<Answer, Failure> {
        self.start_with(rows);
        let mut fuel = None;
        self.filter(source, &mut fuel)?;
        if let Some(explanation) = explain.as_deref_mut() {
            explanation.kept.clone_from(&self.scratch.rows);
        }
        self.decide_among_kept(source, fuel, explain)
    }

    /// Asks the policy's one filter alone about `rows`; [`Self::kept`] then holds those that it keeps.
    pub(crate) fn filter_alone(&mut self, source: &impl Source, rows: Rows<'_>) -> Result<(), StageFault> {
        self.start_with(rows);
        self.keep(source, 0).map_err(|fault| self.stage_fault(0, Stage::Filter, fault))
    }

    /// Decides among `rows`, which the filters kept already.
    pub(crate) fn decide_filtered(&mut self, source: &impl Source, rows: Rows<'_>) -> Result<Answer, Failure> {
        self.start_with(rows);
        self.decide_among_kept(source, None, None)
    }

    fn decide_among_kept(
        &mut self,
        source: &impl Source,
        mut fuel: Option<u64>,
        explain: Option<&mut Explanation>,
    ) -> Result<Answer, Failure> {
        self.score(source, &mut fuel, explain)?;
        let row = self.pick(source, &mut fuel)?;
        let Scratch { rows, costs, .. } = &self.scratch;
        match (rows.get(row as usize), costs.get(row as usize)) {
            (Some(row), Some(cost)) => Ok(Answer { row: *row, cost: *cost, fuel }),
            _ => Err(Failure::filtered(Vec::new())),
        }
    }

    /// Runs the filters over the rows that are left, in order, until none is left.
    fn filter(&mut self, source: &impl Source, fuel: &mut Option<u64>) -> Result<(), Failure> {
        let mut faults = Vec::new();
        let mut then = Then::FallBack;
        for index in 0..self.filters.len() {
            let Some(place) = self.filters.get(index).copied() else { continue };
            match self.keep(source, place) {
                Ok(()) => self.add_fuel(place, fuel),
                Err(fault) => {
                    faults.push(self.stage_fault(place, Stage::Filter, fault));
                    // Every filter decides which rows the default may take, so those that are left still run.
                    then = self.after_filter_fault(source, place, &mut faults);
                    if then == Then::Refuse {
                        return Err(Failure { then, faults });
                    }
                }
            }
            if self.scratch.rows.is_empty() {
                return Err(Failure::filtered(faults));
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(Failure { then, faults }) }
    }

    /// Asks one filter and drops the rows that it rejects.
    fn keep(&mut self, source: &impl Source, place: usize) -> Result<(), Fault> {
        let Self { members, scratch, .. } = self;
        let Some(member) = members.get_mut(place) else { return Ok(()) };
        let args = scratch.packed.fill(source, &member.plans.filter, Rows::Some(&scratch.rows), &[]);
        member.call(source.fact(Fact::NowMs), |guest, _| guest.keep(args, &mut scratch.kept))?;
        let mut kept = scratch.kept.iter();
        scratch.rows.retain(|_| kept.next().copied().unwrap_or(false));
        Ok(())
    }

    /// What follows a fault of the filter itself: with `reject` for everything nobody is asked again.
    fn after_filter_fault(&mut self, source: &impl Source, place: usize, faults: &mut Vec<StageFault>) -> Then {
        let on_fault = self.members.get(place).map(|member| member.on_fault);
        let all = OnFault { filter: FaultAction::Reject, otherwise: FaultAction::Reject };
        if on_fault == Some(all) { Then::Refuse } else { self.ask_filter_again(source, place, faults) }
    }

    /// A filter is a hard rule: before the default may decide, the filter has to say which rows it keeps. One that was
    /// not called at all is not called now.
    fn ask_filter_again(&mut self, source: &impl Source, place: usize, faults: &mut Vec<StageFault>) -> Then {
        if faults.last().is_none_or(|last| was_called(last.fault.outcome)) {
            match self.keep(source, place) {
                Ok(()) if self.otherwise(place) == Then::LastGood => return Then::LastGood,
                Ok(()) => return Then::FallBack,
                Err(again) => faults.push(self.stage_fault(place, Stage::Filter, again)),
            }
        }
        match self.members.get(place).map(|member| member.on_fault.filter) {
            Some(FaultAction::Fallback | FaultAction::LastGood) => Then::FallBack,
            Some(FaultAction::Reject) | None => Then::Refuse,
        }
    }

    /// Sums the scorers' costs of the rows that are left.
    fn score(
        &mut self,
        source: &impl Source,
        fuel: &mut Option<u64>,
        mut explain: Option<&mut Explanation>,
    ) -> Result<(), Failure> {
        self.scratch.costs.clear();
        self.scratch.costs.resize(self.scratch.rows.len(), 0.0);
        for index in 0..self.scorers.len() {
            let Some(place) = self.scorers.get(index).copied() else { continue };
            self.scratch.contribution.clear();
            let added = self.add_costs(source, place);
            self.add_fuel(place, fuel);
            if let Some(explanation) = explain.as_deref_mut() {
                explanation.costs.push(self.scratch.contribution.clone());
                explanation.fuel = *fuel;
            }
            if let Err(fault) = added {
                return Err(self.failure(place, Stage::Score, fault));
            }
        }
        Ok(())
    }

    fn add_costs(&mut self, source: &impl Source, place: usize) -> Result<(), Fault> {
        let Self { members, scratch, .. } = self;
        let Some(member) = members.get_mut(place) else { return Ok(()) };
        let args = scratch.packed.fill(source, &member.plans.score, Rows::Some(&scratch.rows), &[]);
        member.call(source.fact(Fact::NowMs), |guest, instance| {
            guest.score(args, &mut scratch.contribution)?;
            for (row, (total, cost)) in scratch.costs.iter_mut().zip(&scratch.contribution).enumerate() {
                *total += cost;
                if !cost.is_finite() || !total.is_finite() {
                    return Err(not_finite(instance, row as u32));
                }
            }
            Ok(())
        })
    }

    /// A place among the rows that are left.
    fn pick(&mut self, source: &impl Source, fuel: &mut Option<u64>) -> Result<u32, Failure> {
        let Some(place) = self.picker else { return Ok(lowest(&self.scratch.costs)) };
        let Self { members, scratch, .. } = self;
        let Some(member) = members.get_mut(place) else { return Ok(lowest(&scratch.costs)) };
        let args = scratch.packed.fill(source, &member.plans.pick, Rows::Some(&scratch.rows), &scratch.costs);
        let rows = scratch.rows.len();
        let picked = member.call(source.fact(Fact::NowMs), |guest, _| match guest.pick(args)? {
            row if (row as usize) < rows => Ok(row),
            row => Err(row_out_of_range(row, rows)),
        });
        match picked {
            Ok(row) => {
                self.add_fuel(place, fuel);
                Ok(row)
            }
            Err(fault) => Err(self.failure(place, Stage::Pick, fault)),
        }
    }

    fn add_fuel(&self, place: usize, fuel: &mut Option<u64>) {
        let used = self.members.get(place).and_then(|member| member.guest().fuel_used());
        *fuel = fuel.zip(used).map(|(a, b)| a + b).or(*fuel).or(used);
    }

    /// What follows a fault of another stage than the filter.
    fn otherwise(&self, place: usize) -> Then {
        match self.members.get(place).map(|member| member.on_fault.otherwise) {
            Some(FaultAction::Reject) => Then::Refuse,
            Some(FaultAction::LastGood) => Then::LastGood,
            Some(FaultAction::Fallback) | None => Then::FallBack,
        }
    }

    fn failure(&self, place: usize, stage: Stage, fault: Fault) -> Failure {
        Failure { then: self.otherwise(place), faults: vec![self.stage_fault(place, stage, fault)] }
    }

    fn stage_fault(&self, place: usize, stage: Stage, fault: Fault) -> StageFault {
        let instance = self.members.get(place).map_or_else(String::new, |member| member.instance.clone());
        StageFault { stage, instance, fault }
    }
}

impl Failure {
    const fn filtered(faults: Vec<StageFault>) -> Self {
        Self { then: Then::Filtered, faults }
    }
}

/// The native default's choice among `rows`; those of an affinity target come first, as where the default is the policy.
pub(crate) fn default_among(
    fallback: Option<&mut Pipeline>,
    source: &impl Source,
    rows: &[u32],
) -> Result<Answer, DecideError> {
    let rows = narrowed(&source.affinity().unwrap_or_default(), rows);
    let decided = fallback.and_then(|fallback| fallback.decide(source, Rows::Some(rows), None).ok());
    decided.ok_or(DecideError::NoEndpoints)
}

/// Whether a fault comes from a call of the policy; if not, another call would end the same way.
const fn was_called(outcome: Outcome) -> bool {
    !matches!(outcome, Outcome::Quarantined | Outcome::OverQuota | Outcome::NotLoaded)
}

/// The lowest cost, the first row among equals.
fn lowest(costs: &[f64]) -> u32 {
    let mut best = 0;
    for (row, cost) in costs.iter().enumerate() {
        if costs.get(best).is_some_and(|lowest| cost < lowest) {
            best = row;
        }
    }
    best as u32
}

fn row_out_of_range(row: u32, rows: usize) -> Fault {
    let message = format!("the picker answered row {row}, but there are {rows} rows; it must answer one of them");
    Fault::new(Outcome::BadAnswer, message)
}

fn not_finite(instance: &str, row: u32) -> Fault {
    let message = format!(
        "the scorer of `{instance}` answered a cost that is not finite, alone or in the sum, for row {row}; it must answer \
         finite costs"
    );
    Fault::new(Outcome::BadAnswer, message)
}
