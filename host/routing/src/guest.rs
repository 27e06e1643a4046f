//! One running policy of one partition: a sandboxed component, or an SDK policy compiled into the host. Both take the
//! same arguments and give the same answers.

use pointsman_contract::{Inputs, Selection, Stages};
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

    /// Guests that were built after the first.
    pub(crate) fn replaced(&self) -> u64 {
        match self {
            Self::Component(slot) => slot.replaced(),
            Self::Native(_) => 0,
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
}

fn native<T>(args: &Args, call: impl FnOnce(&Call<'_>) -> Result<T, String>) -> Result<T, Fault> {
    let texts: Option<SmallVec<[Option<&str>; 4]>> =
        args.texts.as_ref().map(|texts| texts.iter().map(Option::as_deref).collect());
    let arguments = Call {
        rows: args.rows,
        numbers: &args.numbers,
        workers: args.workers.as_ref().map(|workers| workers.as_slice()),
        texts: texts.as_deref(),
    };
    call(&arguments).map_err(|message| Fault::new(Outcome::PolicyError, message))
}

fn answers(function: &str, answered: usize, rows: u32) -> Result<(), Fault> {
    if answered == rows as usize {
        return Ok(());
    }
    let message = format!("`{function}` answered {answered} values for {rows} rows; it must answer one a row");
    Err(Fault::new(Outcome::BadAnswer, message))
}
