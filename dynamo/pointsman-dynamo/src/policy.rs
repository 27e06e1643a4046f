//! One policy of one partition and role, as Dynamo calls it: its filter a row at a time, its picker once a selection.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dynamo_kv_router::plugins::worker_selection::{
    WorkerCandidate, WorkerFilter, WorkerInputView, WorkerInputs, WorkerPicker, WorkerSelectionContext,
    WorkerSelectionPolicy, WorkerSelectionPolicyError,
};
use dynamo_kv_router::protocols::WorkerWithDpRank;
use dynamo_kv_router::{KvRouterConfig, WorkerType};
use pointsman_routing::config::FaultAction;
use pointsman_routing::{DecideError, HostedPolicy, PartitionKey, RouterConfig};
use pointsman_sandbox::Outcome;

use crate::component::USUAL_BLOCK_SIZE;
use crate::groups::Groups;
use crate::instance::Instance;
use crate::numbers::Numbers;
use crate::table::{Filtered, Order, Picked, Table};

/// The one guest of a partition and role, and all that Dynamo's filter and picker share.
pub(crate) struct Seat {
    instance: Arc<Instance>,
    key: PartitionKey,
    config: RouterConfig,
    block_size: u32,
    guest: Result<HostedPolicy, String>,
    numbers: Numbers,
    fault: Option<FilterFault>,
}

/// A fault of the filter in the selection that is under way.
struct FilterFault {
    /// The row that it was asked about.
    row: WorkerWithDpRank,
    outcome: Outcome,
    /// Whether every row is let through from here on.
    open: bool,
}

/// The Dynamo policy of a seat.
pub(crate) fn of(seat: Seat, config: &KvRouterConfig, worker_type: WorkerType) -> WorkerSelectionPolicy {
    let declared = seat.guest.as_ref().ok().and_then(|guest| Some((guest.inputs()?, guest.stages())));
    let exclusive = declared.is_some_and(|(inputs, _)| inputs.exclusive_affinity);
    let groups = declared
        .map_or(Groups { filter: WorkerInputs::NONE, rest: WorkerInputs::NONE }, |(inputs, _)| Groups::of(inputs));
    let by_row = declared.is_some_and(|(_, stages)| stages.filter) && !seat.instance.filter_in_picker;
    let mut inputs = if by_row { groups.rest } else { groups.filter | groups.rest };
    if seat.instance.falls_back() {
        inputs = inputs | WorkerInputs::LOAD;
    }
    let seat = Arc::new(Mutex::new(seat));
    let mut filters: Vec<Box<dyn WorkerFilter>> = Vec::new();
    if by_row {
        filters.push(Box::new(Filter { inputs: groups.filter, seat: Arc::clone(&seat) }));
    }
    let picker = Box::new(Picker { inputs, seat, by_row, order: Order::default() });
    WorkerSelectionPolicy::new_with_filters(config.clone(), worker_type.as_str(), filters, Vec::new(), picker)
        .with_exclusive_affinity(exclusive)
}

impl Seat {
    pub(crate) fn new(instance: Arc<Instance>, key: PartitionKey, config: RouterConfig) -> Self {
        let guest = instance.guest(&key, USUAL_BLOCK_SIZE, &config);
        if let Err(message) = &guest {
            tracing::error!(partition = ?key, message, "a policy does not start in this partition");
        }
        let block_size = USUAL_BLOCK_SIZE;
        Self { instance, key, config, block_size, guest, numbers: Numbers::default(), fault: None }
    }

    /// The guest, told the partition's block size, which Dynamo's factory does not know.
    fn guest(&mut self, block_size: u32) -> Result<&mut HostedPolicy, WorkerSelectionPolicyError> {
        if self.block_size != block_size {
            self.block_size = block_size;
            if let Ok(guest) = &self.guest {
                self.guest = self.rebuilt(guest);
            }
        }
        self.guest.as_mut().map_err(|message| WorkerSelectionPolicyError::failed(message.as_str()))
    }

    /// A guest for another block size. Dynamo was told before what the policy reads.
    fn rebuilt(&self, guest: &HostedPolicy) -> Result<HostedPolicy, String> {
        let block_size = self.block_size;
        let new = self.instance.guest(&self.key, block_size, &self.config)?;
        if new.inputs() == guest.inputs() {
            return Ok(new);
        }
        Err(format!("the policy reads other inputs at block size {block_size}; let it read the same at every one"))
    }

    /// Whether the filter keeps one row. After a fault it is asked once more in a selection; if it fails again, the
    /// instance says what follows.
    fn keep(
        &mut self,
        context: &WorkerSelectionContext<'_>,
        candidate: WorkerCandidate<'_>,
    ) -> Result<bool, WorkerSelectionPolicyError> {
        let row = candidate.worker();
        // Dynamo does not say where a selection begins, but asks about a row once in each.
        self.fault = self.fault.take().filter(|fault| fault.row != row);
        if self.fault.as_ref().is_some_and(|fault| fault.open) {
            return Ok(true);
        }
        let number = self.numbers.of(row);
        let table = Table { context, candidates: Filtered { candidate, number } };
        let fault = match self.guest(context.block_size())?.filter_row(&table, 0) {
            Ok(kept) => return Ok(kept),
            Err(fault) => fault,
        };
        if !self.instance.falls_back() {
            return Err(failed(&fault));
        }
        if self.fault.is_none() {
            let outcome = fault.outcome().unwrap_or(Outcome::NotLoaded);
            self.fault = Some(FilterFault { row, outcome, open: false });
            if let Ok(kept) = self.guest(context.block_size())?.filter_row(&table, 0) {
                return Ok(kept);
            }
        }
        if self.instance.on_fault.filter == FaultAction::Reject {
            self.fault = None;
            return Err(failed(&fault));
        }
        if let Some(fault) = &mut self.fault {
            fault.open = true;
        }
        Ok(true)
    }

    /// Decides over the picker's rows, which the filter kept already where it runs by row.
    fn decide(
        &mut self,
        context: &WorkerSelectionContext<'_>,
        candidates: Picked<'_>,
        by_row: bool,
    ) -> Result<u32, WorkerSelectionPolicyError> {
        let fault = self.fault.take();
        let table = Table { context, candidates };
        let guest = self.guest(context.block_size())?;
        let decision = match fault {
            Some(fault) => guest.fall_back(&table, fault.outcome),
            None if by_row => guest.decide_filtered(&table),
            None => guest.decide(&table),
        };
        decision.map(|decision| decision.row).map_err(|error| failed(&error))
    }
}

fn failed(error: &DecideError) -> WorkerSelectionPolicyError {
    WorkerSelectionPolicyError::failed(error.to_string())
}

fn lock(seat: &Mutex<Seat>) -> MutexGuard<'_, Seat> {
    seat.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The policy's filter, where Dynamo calls it.
struct Filter {
    inputs: WorkerInputs,
    seat: Arc<Mutex<Seat>>,
}

impl WorkerFilter for Filter {
    fn required_worker_inputs(&self) -> WorkerInputs {
        self.inputs
    }

    fn keep(
        &mut self,
        context: &WorkerSelectionContext<'_>,
        candidate: WorkerCandidate<'_>,
    ) -> Result<bool, WorkerSelectionPolicyError> {
        lock(&self.seat).keep(context, candidate)
    }
}

/// The rest of the policy.
struct Picker {
    inputs: WorkerInputs,
    seat: Arc<Mutex<Seat>>,
    by_row: bool,
    order: Order,
}

impl WorkerPicker for Picker {
    fn required_worker_inputs(&self) -> WorkerInputs {
        self.inputs
    }

    fn pick(
        &mut self,
        context: &WorkerSelectionContext<'_>,
        view: WorkerInputView<'_>,
    ) -> Result<usize, WorkerSelectionPolicyError> {
        let mut seat = lock(&self.seat);
        self.order.follow(view.candidates(), &mut seat.numbers);
        let row = seat.decide(context, Picked { view, order: &self.order }, self.by_row)?;
        self.order.place(row).ok_or_else(|| WorkerSelectionPolicyError::failed("the chosen row does not exist"))
    }
}
