//! A policy over tables that another host holds, such as Dynamo's router: that host has the workers, decides who is
//! eligible and books the load; the policy runs here, with the same checks and the same answers to a fault.

use std::ops::Range;

use pointsman_contract::{Fact, Inputs, Signal, Stages, Text, missing};
use pointsman_sandbox::Outcome;

use crate::error::DecideError;
use crate::guest::Guest;
use crate::pipeline::{Answer, Failure, Pipeline, default_among};
use crate::table::{Placed, Rows, Source};
use crate::vocabulary::{SignalId, TextId};

/// The candidates of one decision as their host holds them, sorted by (worker id, data-parallel rank). It answers each
/// name as the contract says; what its host does not have is [`Fact::absent`] and [`Signal::absent`].
pub trait HostedTable {
    /// How many candidates there are.
    fn rows(&self) -> u32;
    /// A fact. Never asked for the two of the affinity target.
    fn fact(&self, fact: Fact) -> f64;
    /// A text, none where missing.
    fn text(&self, text: Text) -> Option<&str>;
    /// Writes the signal of each of `rows` to `out`, which has one place a row.
    fn column(&self, signal: Signal, rows: Rows<'_>, out: &mut [f64]);
    /// A number that stands for the row's worker and rank as long as that worker lives.
    fn number(&self, row: u32) -> u32;
    /// The rows of the soft affinity target; none without a target, empty where it has no row.
    fn affinity(&self) -> Option<Range<u32>>;
}

/// What a policy decided over a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostedDecision {
    /// The chosen row of the table.
    pub row: u32,
    /// Its cost: the scorers' sum, 0 without a scorer.
    pub cost: f64,
    /// `ok`, or the fault after which the native default decided.
    pub outcome: Outcome,
}

/// A policy with its guests, and the native default for when it fails. See [`crate::Router::hosted`].
pub struct HostedPolicy {
    policy: Pipeline,
    fallback: Option<Pipeline>,
}

impl std::fmt::Debug for HostedPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostedPolicy").field("stages", &self.stages()).finish_non_exhaustive()
    }
}

impl HostedPolicy {
    pub(crate) const fn new(policy: Pipeline, fallback: Option<Pipeline>) -> Self {
        Self { policy, fallback }
    }

    /// What a policy of one component reads; none of a pipeline's first one's.
    #[must_use]
    pub fn inputs(&self) -> Option<&Inputs> {
        self.policy.guest().map(Guest::inputs)
    }

    /// The stages of a policy of one component.
    #[must_use]
    pub fn stages(&self) -> Stages {
        self.policy.guest().map(Guest::stages).unwrap_or_default()
    }

    /// Decides, filter included, in one crossing where the policy offers it.
    ///
    /// # Errors
    /// [`DecideError::AllEligibleWorkersFiltered`] and [`DecideError::Refused`].
    pub fn decide(&mut self, table: &impl HostedTable) -> Result<HostedDecision, DecideError> {
        let decided = self.policy.decide(&Hosted(table), Rows::All(table.rows()), None);
        self.conclude(table, decided)
    }

    /// Asks the filter alone about one row.
    ///
    /// # Errors
    /// [`DecideError::Refused`], whatever the instance says about faults: what follows is the caller's to decide.
    pub fn filter_row(&mut self, table: &impl HostedTable, row: u32) -> Result<bool, DecideError> {
        match self.policy.filter_alone(&Hosted(table), Rows::Some(&[row])) {
            Ok(()) => Ok(!self.policy.kept().is_empty()),
            Err(fault) => {
                fault.log();
                Err(fault.into())
            }
        }
    }

    /// Decides without the filter, which kept every row of the table before.
    ///
    /// # Errors
    /// [`DecideError::Refused`].
    pub fn decide_filtered(&mut self, table: &impl HostedTable) -> Result<HostedDecision, DecideError> {
        let decided = self.policy.decide_filtered(&Hosted(table), Rows::All(table.rows()));
        self.conclude(table, decided)
    }

    /// Lets the native default decide among all rows of the table, after `outcome`.
    ///
    /// # Errors
    /// [`DecideError::NoEndpoints`] where there is no default beside the policy, which then is the default.
    pub fn fall_back(&mut self, table: &impl HostedTable, outcome: Outcome) -> Result<HostedDecision, DecideError> {
        let rows: Vec<u32> = (0..table.rows()).collect();
        let Answer { row, cost, .. } = default_among(self.fallback.as_mut(), &Hosted(table), &rows)?;
        Ok(HostedDecision { row, cost, outcome })
    }

    fn conclude(
        &mut self,
        table: &impl HostedTable,
        decided: Result<Answer, Failure>,
    ) -> Result<HostedDecision, DecideError> {
        match decided {
            Ok(Answer { row, cost, .. }) => Ok(HostedDecision { row, cost, outcome: Outcome::Ok }),
            Err(failure) => {
                let outcome = failure.resolve(self.fallback.is_some())?;
                let Answer { row, cost, .. } =
                    default_among(self.fallback.as_mut(), &Hosted(table), self.policy.kept())?;
                Ok(HostedDecision { row, cost, outcome })
            }
        }
    }
}

/// A hosted table as the pipeline sees it.
struct Hosted<'a, T>(&'a T);

impl<T: HostedTable> Source for Hosted<'_, T> {
    fn fact(&self, fact: Fact) -> f64 {
        self.0.fact(fact)
    }

    fn text(&self, text: TextId) -> Option<&str> {
        match text {
            TextId::Known(text) => self.0.text(text),
            TextId::Header(_) => None,
        }
    }

    fn column(&self, signal: SignalId, rows: Rows<'_>, _: &[Placed], out: &mut [f64]) {
        match signal {
            SignalId::Known(signal) => self.0.column(signal, rows, out),
            SignalId::Extra(_) | SignalId::Cost => out.fill(missing()),
        }
    }

    fn number(&self, row: u32) -> u32 {
        self.0.number(row)
    }

    fn affinity(&self) -> Option<Range<u32>> {
        self.0.affinity()
    }
}
