//! A policy compiled into a Rust host, driven exactly like a component.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::OnceLock;

use pointsman_contract::{
    Event, Inputs, Manifest, Partition, Progress, Resolution, RouterConfig, Selection, Stages, Ticket, Verdict,
};

use crate::classifier::NO_CLASSIFIER;
use crate::guest::{Exported, Guest, manifest};
use crate::layout::{Table, Texts};
use crate::log::Level;
use crate::{PolicyError, Setup};

/// The arguments of one call, as `wit/policy.wit` lays them out.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The number of candidates, at least 1.
    pub rows: u32,
    /// The facts, then one column of `rows` values for each signal.
    pub numbers: &'a [f64],
    /// A number for each row; none unless the stage reads them.
    pub workers: Option<&'a [u32]>,
    /// The texts; none unless the stage reads any.
    pub texts: Option<&'a [Option<&'a str>]>,
}

/// One configured policy. The errors are what the policy says; the caller checks the answers, as with a component.
pub trait NativeGuest: Send {
    /// What each stage reads.
    fn inputs(&self) -> &Inputs;

    /// The stages that the policy has.
    fn stages(&self) -> Stages;

    /// Runs the filter; `kept` is overwritten with an answer a row.
    ///
    /// # Errors
    /// The policy's own sentence.
    fn keep(&mut self, call: &Call<'_>, kept: &mut Vec<bool>) -> Result<(), String>;

    /// Runs the scorer; `costs` is overwritten with a cost a row, NaN where the policy wrote none.
    ///
    /// # Errors
    /// The policy's own sentence.
    fn score(&mut self, call: &Call<'_>, costs: &mut Vec<f64>) -> Result<(), String>;

    /// Runs the picker.
    ///
    /// # Errors
    /// The policy's own sentence.
    fn pick(&mut self, call: &Call<'_>) -> Result<u32, String>;

    /// Runs all stages; none where the filter kept no row.
    ///
    /// # Errors
    /// The policy's own sentence.
    fn select(&mut self, call: &Call<'_>) -> Result<Option<Selection>, String>;

    /// Asks the classifier about one request; none defers it. The call has no rows.
    ///
    /// # Errors
    /// The policy's own sentence, or that it has no classifier.
    fn classify(&mut self, ticket: Ticket, call: &Call<'_>) -> Result<Option<Verdict>, String> {
        let _ = (ticket, call);
        Err(NO_CLASSIFIER.to_owned())
    }

    /// Tells the classifier of an event: the deferred requests that it resolves.
    ///
    /// # Errors
    /// The policy's own sentence, or that it has no classifier.
    fn on_event(&mut self, event: &Event, now_ms: f64) -> Result<Vec<Resolution>, String> {
        let _ = (event, now_ms);
        Err(NO_CLASSIFIER.to_owned())
    }

    /// Gives the classifier its tick: the deferred requests that it resolves.
    ///
    /// # Errors
    /// The policy's own sentence, or that it has no classifier.
    fn on_tick(&mut self, now_ms: f64, progress: &[Progress]) -> Result<Vec<Resolution>, String> {
        let _ = (now_ms, progress);
        Err(NO_CLASSIFIER.to_owned())
    }
}

/// A policy that a host has compiled in.
pub trait NativePolicy: Send + Sync {
    /// What the policy says of itself.
    fn manifest(&self) -> Manifest;

    /// The stages that it has.
    fn stages(&self) -> Stages;

    /// Builds a guest for a partition. `parameters` is a JSON object.
    ///
    /// # Errors
    /// The policy's own sentence.
    fn configure(
        &self,
        partition: &Partition,
        config: &RouterConfig,
        parameters: &str,
    ) -> Result<Box<dyn NativeGuest>, String>;
}

/// The exported policy `P`, compiled in.
#[must_use]
pub fn native<P: Exported>() -> Native<P> {
    Native(PhantomData)
}

/// See [`native`].
pub struct Native<P>(PhantomData<fn() -> P>);

impl<P: Exported> NativePolicy for Native<P> {
    fn manifest(&self) -> Manifest {
        manifest::<P>()
    }

    fn stages(&self) -> Stages {
        P::STAGES
    }

    fn configure(
        &self,
        partition: &Partition,
        config: &RouterConfig,
        parameters: &str,
    ) -> Result<Box<dyn NativeGuest>, String> {
        let setup = Setup { partition: partition.clone(), router_config: *config };
        let guest = Guest::<P>::configure(&setup, parameters)?;
        Ok(Box::new(Configured { inputs: guest.inputs(), guest }))
    }
}

impl<'a> From<&Call<'a>> for Table<'a> {
    fn from(call: &Call<'a>) -> Self {
        Self {
            rows: call.rows as usize,
            numbers: call.numbers,
            workers: call.workers.unwrap_or_default(),
            texts: Texts::Borrowed(call.texts.unwrap_or_default()),
        }
    }
}

/// A guest, and what it said that it reads.
struct Configured<P: Exported> {
    guest: Guest<P>,
    inputs: Inputs,
}

impl<P: Exported> NativeGuest for Configured<P> {
    fn inputs(&self) -> &Inputs {
        &self.inputs
    }

    fn stages(&self) -> Stages {
        P::STAGES
    }

    fn keep(&mut self, call: &Call<'_>, kept: &mut Vec<bool>) -> Result<(), String> {
        self.guest.keep(call.into(), kept).map_err(PolicyError::into)
    }

    fn score(&mut self, call: &Call<'_>, costs: &mut Vec<f64>) -> Result<(), String> {
        self.guest.score(call.into(), costs).map_err(PolicyError::into)
    }

    fn pick(&mut self, call: &Call<'_>) -> Result<u32, String> {
        self.guest.pick(call.into()).map_err(PolicyError::into)
    }

    fn select(&mut self, call: &Call<'_>) -> Result<Option<Selection>, String> {
        self.guest.select(call.into()).map_err(PolicyError::into)
    }

    fn classify(&mut self, ticket: Ticket, call: &Call<'_>) -> Result<Option<Verdict>, String> {
        self.guest.classify(ticket, call.into()).map_err(PolicyError::into)
    }

    fn on_event(&mut self, event: &Event, now_ms: f64) -> Result<Vec<Resolution>, String> {
        self.guest.on_event(event, now_ms).map_err(PolicyError::into)
    }

    fn on_tick(&mut self, now_ms: f64, progress: &[Progress]) -> Result<Vec<Resolution>, String> {
        self.guest.on_tick(now_ms, progress).map_err(PolicyError::into)
    }
}

/// Where messages go.
type Sink = fn(Level, &str);

static SINK: OnceLock<Sink> = OnceLock::new();

thread_local! {
    /// The messages of this thread, while a test kit listens.
    pub(crate) static HEARD: RefCell<Option<Vec<(Level, String)>>> = const { RefCell::new(None) };
}

/// Sends what native policies log to `sink`. The first call of a process holds; false says that there was one before.
/// Until then messages are dropped.
pub fn log_to(sink: fn(Level, &str)) -> bool {
    SINK.set(sink).is_ok()
}

pub(crate) fn log(level: Level, message: &str) {
    HEARD.with_borrow_mut(|heard| {
        if let Some(heard) = heard {
            heard.push((level, message.to_owned()));
        }
    });
    if let Some(sink) = SINK.get() {
        sink(level, message);
    }
}
