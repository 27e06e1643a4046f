//! One running policy of one partition: a sandboxed component, or an SDK policy compiled into the host. Both take the
//! same arguments and give the same answers.

use pointsman_contract::{Event, Inputs, Progress, Resolution, Selection, Stages, Ticket, Verdict};
use pointsman_sandbox::{Args, Fault, GuestSlot, Outcome};
use pointsman_sdk::native::{Call, NativeGuest};
use smallvec::SmallVec;

pub(crate) enum Guest {
    Component(Box<GuestSlot>),
    Native(Box<dyn NativeGuest>),
}

impl Guest {
    pub(crate) fn inputs(&self) -> &Inputs {
        match self {
            Self::Component(slot) => slot.inputs(),
            Self::Native(guest) => guest.inputs(),
        }
    }

    pub(crate) fn stages(&self) -> Stages {
        match self {
            Self::Component(slot) => slot.stages(),
            Self::Native(guest) => guest.stages(),
        }
    }

    /// Fuel of the last call; none for a native policy.
    pub(crate) fn fuel_used(&self) -> Option<u64> {
        match self {
            Self::Component(slot) => Some(slot.fuel_used()),
            Self::Native(_) => None,
        }
    }

    pub(crate) const fn is_sandboxed(&self) -> bool {
        matches!(self, Self::Component(_))
    }

    /// Sets what the clocks of a policy show that imports any.
    pub(crate) fn set_now_ms(&mut self, now_ms: f64) {
        if let Self::Component(slot) = self {
            slot.set_now_ms(now_ms);
        }
    }

    /// Drops the guest's state, where it runs in the sandbox: the next call builds another guest.
    pub(crate) fn forget(&mut self) {
        if let Self::Component(slot) = self {
            slot.drop_guest();
        }
    }

    /// SHA-256 of the component in hexadecimal; none for a native policy.
    pub(crate) fn digest(&self) -> Option<String> {
        match self {
            Self::Component(slot) => Some(slot.setup().policy.sha256_hex()),
            Self::Native(_) => None,
        }
    }

    /// Guests that were built after the first.
    pub(crate) fn replaced(&self) -> u64 {
        match self {
            Self::Component(slot) => slot.replaced(),
            Self::Native(_) => 0,
        }
    }

    /// Whether the guest has its state still: after a fault, whether it survived.
    pub(crate) fn is_live(&self) -> bool {
        match self {
            Self::Component(slot) => slot.is_live(),
            Self::Native(_) => true,
        }
    }

    pub(crate) fn keep(&mut self, args: &Args, kept: &mut Vec<bool>) -> Result<(), Fault> {
        match self {
            Self::Component(slot) => {
                *kept = slot.keep(args)?;
                Ok(())
            }
            Self::Native(guest) => {
                kept.clear();
                native(args, |call| guest.keep(call, kept))?;
                answers("keep", kept.len(), args.rows)
            }
        }
    }

    pub(crate) fn score(&mut self, args: &Args, costs: &mut Vec<f64>) -> Result<(), Fault> {
        match self {
            Self::Component(slot) => {
                *costs = slot.score(args)?;
                Ok(())
            }
            Self::Native(guest) => {
                costs.clear();
                native(args, |call| guest.score(call, costs))?;
                answers("score", costs.len(), args.rows)
            }
        }
    }

    pub(crate) fn pick(&mut self, args: &Args) -> Result<u32, Fault> {
        match self {
            Self::Component(slot) => slot.pick(args),
            Self::Native(guest) => native(args, |call| guest.pick(call)),
        }
    }

    pub(crate) fn select(&mut self, args: &Args) -> Result<Option<Selection>, Fault> {
        match self {
            Self::Component(slot) => slot.select(args),
            Self::Native(guest) => native(args, |call| guest.select(call)),
        }
    }

    pub(crate) fn classify(&mut self, ticket: Ticket, args: &Args) -> Result<Option<Verdict>, Fault> {
        match self {
            Self::Component(slot) => slot.classify(ticket, args),
            Self::Native(guest) => native(args, |call| guest.classify(ticket, call)),
        }
    }

    pub(crate) fn on_event(&mut self, event: &Event, now_ms: f64) -> Result<Vec<Resolution>, Fault> {
        match self {
            Self::Component(slot) => slot.on_event(event, now_ms),
            Self::Native(guest) => guest.on_event(event, now_ms).map_err(policy_error),
        }
    }

    pub(crate) fn on_tick(&mut self, now_ms: f64, progress: &[Progress]) -> Result<Vec<Resolution>, Fault> {
        match self {
            Self::Component(slot) => slot.on_tick(now_ms, progress),
            Self::Native(guest) => guest.on_tick(now_ms, progress).map_err(policy_error),
        }
    }
}

fn policy_error(message: String) -> Fault {
    Fault::new(Outcome::PolicyError, message)
}

fn native<T>(args: &Args, call: impl FnOnce(&Call<'_>) -> Result<T, String>) -> Result<T, Fault> {
    let texts: Option<SmallVec<[Option<&str>; 4]>> =
        args.texts.as_ref().map(|texts| texts.iter().map(Option::as_deref).collect());
    let arguments =
        Call { rows: args.rows, numbers: &args.numbers, workers: args.workers.as_deref(), texts: texts.as_deref() };
    call(&arguments).map_err(policy_error)
}

fn answers(function: &str, answered: usize, rows: u32) -> Result<(), Fault> {
    if answered == rows as usize {
        return Ok(());
    }
    let message = format!("`{function}` answered {answered} values for {rows} rows; it must answer one a row");
    Err(Fault::new(Outcome::BadAnswer, message))
}
