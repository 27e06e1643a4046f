//! The traits that an author implements.

use pointsman_contract::{Partition, RouterConfig};

use crate::{Candidates, PolicyError, Reads, Request, Row};

/// What a guest is configured for, once.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// The routing partition that the guest serves.
    pub partition: Partition,
    /// The router's settings, for parameters that the operator left out.
    pub router_config: RouterConfig,
}

/// A routing policy: one value serves one routing partition and keeps its state between decisions.
pub trait Policy: Sized + Send + 'static {
    /// The parameters: a struct that derives [`Parameters`](derive@crate::Parameters), or
    /// [`NoParameters`](crate::NoParameters).
    type Parameters: crate::Parameters;

    /// The policy's name, such as `least-loaded`.
    const NAME: &'static str;
    /// One sentence that says what the policy does.
    const DESCRIPTION: &'static str;

    /// Checks the parameters and builds the policy.
    ///
    /// # Errors
    /// A sentence that names the parameter, such as that of [`finite_and_non_negative`](crate::finite_and_non_negative).
    fn configure(setup: &Setup, parameters: Self::Parameters) -> Result<Self, PolicyError>;

    /// Whether the host narrows the rows to the request's affinity target, where that is itself eligible, before the
    /// filter runs.
    fn exclusive_affinity(&self) -> bool {
        false
    }
}

/// A hard rule: which workers may serve the request.
///
/// [`RowFilter`] is the same, a row at a time.
pub trait Filter {
    /// What the filter reads. Asked once, after `configure`.
    fn reads(&self) -> Reads;

    /// Sets `keep` to true at each row that may serve the request. All are false at first; its length is
    /// `candidates.len()`.
    ///
    /// # Errors
    /// A sentence for the operator's log; the decision is then a fault.
    fn keep(
        &mut self,
        request: &Request<'_>,
        candidates: &Candidates<'_>,
        keep: &mut [bool],
    ) -> Result<(), PolicyError>;
}

/// A preference: what each worker would cost.
///
/// [`RowScorer`] is the same, a row at a time.
pub trait Scorer {
    /// What the scorer reads. Asked once, after `configure`.
    fn reads(&self) -> Reads;

    /// Writes a finite cost at each row; lower is better. All are NaN at first, so that the host refuses a row left
    /// out; the length is `candidates.len()`.
    ///
    /// # Errors
    /// A sentence for the operator's log; the decision is then a fault.
    fn score(
        &mut self,
        request: &Request<'_>,
        candidates: &Candidates<'_>,
        costs: &mut [f64],
    ) -> Result<(), PolicyError>;
}

/// The choice. Without a picker the lowest cost is taken, the first row among equals.
pub trait Picker {
    /// What the picker reads; the costs alone unless said otherwise. Asked once, after `configure`.
    fn reads(&self) -> Reads {
        Reads::COST
    }

    /// Answers the chosen row, below `candidates.len()`, which is at least 1.
    ///
    /// # Errors
    /// A sentence for the operator's log; the decision is then a fault.
    fn pick(&mut self, request: &Request<'_>, candidates: &Candidates<'_>) -> Result<usize, PolicyError>;
}

/// A [`Filter`] that answers for one worker.
pub trait RowFilter {
    /// What the filter reads. Asked once, after `configure`.
    fn reads(&self) -> Reads;

    /// Whether the worker may serve the request.
    ///
    /// # Errors
    /// A sentence for the operator's log; the decision is then a fault, and no further row is asked.
    fn keep(&mut self, request: &Request<'_>, row: Row<'_>) -> Result<bool, PolicyError>;
}

impl<T: RowFilter> Filter for T {
    fn reads(&self) -> Reads {
        RowFilter::reads(self)
    }

    fn keep(
        &mut self,
        request: &Request<'_>,
        candidates: &Candidates<'_>,
        keep: &mut [bool],
    ) -> Result<(), PolicyError> {
        for (row, keep) in candidates.iter().zip(keep) {
            *keep = RowFilter::keep(self, request, row)?;
        }
        Ok(())
    }
}

/// A [`Scorer`] that answers for one worker.
pub trait RowScorer {
    /// What the scorer reads. Asked once, after `configure`.
    fn reads(&self) -> Reads;

    /// The finite cost of the worker; lower is better.
    ///
    /// # Errors
    /// A sentence for the operator's log; the decision is then a fault, and no further row is asked.
    fn score(&mut self, request: &Request<'_>, row: Row<'_>) -> Result<f64, PolicyError>;
}

impl<T: RowScorer> Scorer for T {
    fn reads(&self) -> Reads {
        RowScorer::reads(self)
    }

    fn score(
        &mut self,
        request: &Request<'_>,
        candidates: &Candidates<'_>,
        costs: &mut [f64],
    ) -> Result<(), PolicyError> {
        for (row, cost) in candidates.iter().zip(costs) {
            *cost = RowScorer::score(self, request, row)?;
        }
        Ok(())
    }
}
