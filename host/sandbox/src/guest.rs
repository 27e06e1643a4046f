//! Guests: one configured sandbox each, and the slot that replaces a broken one.
//!
//! A guest is called once at a time and keeps its state between calls. One that ends a call by anything but an answer
//! is never entered again: wasmtime promises nothing for a store after a trap. Its slot drops it there and then, and
//! builds the next one when it is next called.

use std::sync::Arc;

use pointsman_contract::{Inputs, Manifest, Partition, RouterConfig, Selection, Stages};
use tracing::level_filters::LevelFilter;
use wasmtime::component::{ComponentExportIndex, ComponentNamedList, Instance, Lift, TypedFunc};
use wasmtime::{Store, Trap};

use crate::account::{Account, OverQuota, TenantPlace};
use crate::classifier::ClassifierFuncs;
use crate::engine::{EngineKind, Place};
use crate::function::{Function, Mismatch, Params, StageParams, typed};
use crate::limiter::{Limiter, OverLimit};
use crate::limits::Limits;
use crate::load::LoadError;
use crate::log::{Log, Source};
use crate::outcome::{Fault, Outcome};
use crate::policy::{CompiledPolicy, Prepared};
use crate::records::{InputsRecord, ManifestRecord, PartitionRecord, RouterConfigRecord, SelectionRecord};
use crate::sandbox::Sandbox;
use crate::text::{sentence, sentence_within};
#[cfg(feature = "wasi")]
use crate::wasi::{NotGranted, Wasi};

/// Handles to resources that a guest may hold. The contract has none; language engines use some among themselves.
const MOST_HANDLES: usize = 1_024;

/// Everything that a guest is built from.
#[derive(Clone, Debug)]
pub struct GuestSetup {
    /// The policy.
    pub policy: Arc<CompiledPolicy>,
    /// The instance's name, for logs.
    pub instance: String,
    /// The partition that the guest serves.
    pub partition: Partition,
    /// The router's settings.
    pub router_config: RouterConfig,
    /// The parameters, a JSON object.
    pub parameters: String,
    /// What the guest may use; less where the policy itself declares narrower limits.
    pub limits: Limits,
    /// The account of the tenant that the guest belongs to, if any.
    pub account: Option<Arc<Account>>,
}

/// Why a guest could not be built. A policy's own refusal of its parameters is [`Outcome::PolicyError`], with the
/// policy's sentence as the message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{outcome}: {message}")]
pub struct StartError {
    /// What kind of failure; never [`Outcome::Ok`].
    pub outcome: Outcome,
    /// One sentence for the operator.
    pub message: String,
}

impl StartError {
    fn new(outcome: Outcome, message: impl Into<String>) -> Self {
        Self { outcome, message: message.into() }
    }
}

impl From<OverQuota> for StartError {
    fn from(over: OverQuota) -> Self {
        Self::new(Outcome::OverQuota, over.to_string())
    }
}

impl From<StartError> for Fault {
    fn from(error: StartError) -> Self {
        Self { outcome: error.outcome, message: error.message }
    }
}

/// The arguments of a stage, laid out as the contract says.
#[derive(Clone, Debug, Default)]
pub struct Args {
    /// The number of candidates, at least 1.
    pub rows: u32,
    /// The facts, then a column for each signal.
    pub numbers: Vec<f64>,
    /// A number for each row that stands for its worker.
    pub workers: Option<Vec<u32>>,
    /// The texts, none for a missing one.
    pub texts: Option<Vec<Option<String>>>,
}

type Stage<R> = Function<StageParams, R>;

/// What the host keeps in a guest's store.
#[derive(Debug)]
pub(crate) struct State {
    limiter: Limiter,
    pub(crate) log: Log,
    #[cfg(feature = "wasi")]
    pub(crate) wasi: Wasi,
}

impl State {
    fn new(limits: &Limits, account: Option<Arc<Account>>, source: &Arc<Source>, seed: u32) -> Self {
        #[cfg(not(feature = "wasi"))]
        let _ = seed;
        Self {
            limiter: Limiter::new(limits, account),
            log: Log::new(source),
            #[cfg(feature = "wasi")]
            wasi: Wasi::new(seed, limits.log_bytes),
        }
    }

    /// Starts a call.
    fn begin(&mut self, now_ms: f64) {
        self.log.refill();
        #[cfg(feature = "wasi")]
        self.wasi.begin(now_ms);
        #[cfg(not(feature = "wasi"))]
        let _ = now_ms;
    }

    /// Ends a call.
    fn finish(&mut self) {
        #[cfg(feature = "wasi")]
        crate::wasi::finish(self);
        self.log.finish();
    }
}

/// The stages of one guest, resolved.
pub(crate) struct StageFuncs {
    keep: Option<Stage<Vec<bool>>>,
    score: Option<Stage<Vec<f64>>>,
    pick: Option<Stage<u32>>,
    select: Option<Stage<Option<SelectionRecord>>>,
    pub(crate) classifier: ClassifierFuncs,
}

/// What one call may use, with the names of the limits for messages.
#[derive(Clone, Copy)]
pub(crate) struct Budget {
    pub(crate) fuel: u64,
    pub(crate) fuel_name: &'static str,
    pub(crate) deadline_us: u64,
    pub(crate) deadline_name: &'static str,
}

impl Budget {
    /// What a start may use.
    const fn start(limits: &Limits) -> Self {
        Self {
            fuel: limits.start_fuel,
            fuel_name: "start_fuel",
            deadline_us: limits.start_deadline_us,
            deadline_name: "start_deadline_us",
        }
    }
}

/// A live guest.
struct Guest {
    store: Store<State>,
    stages: StageFuncs,
    /// Calls since it was configured.
    calls: u64,
}

/// Builds a guest and has it describe its policy.
pub(crate) fn describe(
    sandbox: &Sandbox,
    origin: &str,
    prepared: &Prepared,
    limits: &Limits,
) -> Result<Manifest, LoadError> {
    let _turn = sandbox.loading();
    let state = State::new(limits, None, &Source::new(origin, "-", limits, None), 0);
    let (mut store, instance) = instantiate(prepared, limits, state)
        .map_err(|error| LoadError::Instantiate { origin: origin.to_owned(), fault: error.into() })?;
    let mismatch = |(function, reason)| LoadError::Function { origin: origin.to_owned(), function, reason };
    // Every function's type is checked here, so that a policy that loads also starts.
    let describe: TypedFunc<(), (ManifestRecord,)> =
        typed(&mut store, &instance, &prepared.exports.describe, "describe").map_err(mismatch)?;
    configure_func(&mut store, &instance, prepared).map_err(mismatch)?;
    stage_funcs(&mut store, &instance, prepared).map_err(mismatch)?;
    let answer = describe.call(&mut store, ());
    store.data_mut().finish();
    match answer {
        Ok((manifest,)) => Ok(manifest.into()),
        Err(error) => {
            let fault = start_error("describe", &error, limits, Outcome::BadAnswer).into();
            Err(LoadError::Describe { origin: origin.to_owned(), fault })
        }
    }
}

/// A fresh store and instance, with the fuel and the time of a start.
fn instantiate(prepared: &Prepared, limits: &Limits, state: State) -> Result<(Store<State>, Instance), StartError> {
    let mut store = Store::new(prepared.pre.engine(), state);
    store.limiter(|state| &mut state.limiter);
    store.set_hostcall_fuel(usize::try_from(limits.answer_bytes).unwrap_or(usize::MAX));
    store.set_max_component_handles(MOST_HANDLES);
    arm(&mut store, Budget::start(limits));
    let instance = prepared
        .pre
        .instantiate(&mut store)
        .map_err(|error| start_error("instantiation", &error, limits, Outcome::NotLoaded))?;
    Ok((store, instance))
}

/// Gives a call its fuel and its time.
fn arm(store: &mut Store<State>, budget: Budget) {
    // Fails only where fuel is off, and then every call would end as out of fuel.
    let _ = store.set_fuel(budget.fuel);
    store.set_epoch_deadline(ticks(budget.deadline_us));
}

/// So many ticks last at least that long: the first one may be about to end.
const fn ticks(deadline_us: u64) -> u64 {
    deadline_us.div_ceil(1_000).saturating_add(1)
}

type Configure<'a> = TypedFunc<(PartitionRecord<'a>, RouterConfigRecord, &'a str), (Result<InputsRecord, String>,)>;

fn configure_func<'a>(
    store: &mut Store<State>,
    instance: &Instance,
    prepared: &Prepared,
) -> Result<Configure<'a>, Mismatch> {
    typed(store, instance, &prepared.exports.configure, "configure")
}

fn stage_funcs(store: &mut Store<State>, instance: &Instance, prepared: &Prepared) -> Result<StageFuncs, Mismatch> {
    fn stage<R>(
        store: &mut Store<State>,
        instance: &Instance,
        export: Option<&ComponentExportIndex>,
        name: &str,
    ) -> Result<Option<Stage<R>>, Mismatch>
    where
        (Result<R, String>,): ComponentNamedList + Lift,
    {
        export.map(|export| Function::find(store, instance, export, name)).transpose()
    }
    let exports = &prepared.exports;
    Ok(StageFuncs {
        keep: stage(store, instance, exports.keep.as_ref(), "keep")?,
        score: stage(store, instance, exports.score.as_ref(), "score")?,
        pick: stage(store, instance, exports.pick.as_ref(), "pick")?,
        select: stage(store, instance, exports.select.as_ref(), "select")?,
        classifier: ClassifierFuncs::new(store, instance, exports.classifier.as_ref())?,
    })
}

/// What an error of wasmtime means; `otherwise` where it is neither a trap nor a limit of ours. The type decides, never
/// the text.
fn outcome(error: &wasmtime::Error, otherwise: Outcome) -> Outcome {
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => Outcome::OutOfFuel,
        Some(Trap::Interrupt) => Outcome::Deadline,
        Some(_) => Outcome::Trap,
        None if error.is::<OverLimit>() => Outcome::Memory,
        None if error.is::<OverQuota>() => Outcome::OverQuota,
        #[cfg(feature = "wasi")]
        None if error.is::<NotGranted>() => Outcome::Trap,
        None => otherwise,
    }
}

fn explain(what: &str, outcome: Outcome, error: &wasmtime::Error, budget: Budget) -> String {
    let Budget { fuel, fuel_name, deadline_us, deadline_name } = budget;
    if let Some(over) = error.downcast_ref::<OverQuota>() {
        return over.to_string();
    }
    match outcome {
        Outcome::OutOfFuel => format!("{what} used up its fuel of {fuel} ({fuel_name})"),
        Outcome::Deadline => format!("{what} ran past its deadline of {deadline_us} us ({deadline_name})"),
        Outcome::BadAnswer => format!("{what} gave what the host cannot read: {}", sentence(&format!("{error:#}"))),
        _ => format!("{what} failed: {}", sentence(&format!("{error:#}"))),
    }
}

/// A policy's own sentence; one of ours where it says nothing.
fn refusal(function: &str, message: &str, limits: &Limits) -> String {
    let said = sentence_within(message, limits.error_bytes);
    if said.trim().is_empty() { format!("{function} answered an error without a sentence") } else { said }
}

fn start_error(what: &str, error: &wasmtime::Error, limits: &Limits, otherwise: Outcome) -> StartError {
    let outcome = outcome(error, otherwise);
    StartError::new(outcome, explain(what, outcome, error, Budget::start(limits)))
}

impl Guest {
    /// Instantiates and configures.
    fn start(setup: &GuestSetup, source: &Arc<Source>) -> Result<(Self, Inputs), StartError> {
        let span = tracing::debug_span!("configure", instance = &*source.instance, partition = &*source.partition);
        let _entered = span.entered();
        let limits = &setup.limits;
        let not_loaded = |message: String| StartError::new(Outcome::NotLoaded, message);
        let (length, most) = (setup.parameters.len() as u64, limits.parameter_bytes);
        if length > most {
            let message = format!("the parameters have {length} bytes and parameter_bytes is {most}; shorten them");
            return Err(not_loaded(message));
        }
        let prepared = setup.policy.prepared(limits).map_err(|error| not_loaded(error.to_string()))?;
        let state = State::new(limits, setup.account.clone(), source, setup.partition.seed);
        let (mut store, instance) = instantiate(prepared, limits, state)?;
        let mismatch = |(function, reason): Mismatch| not_loaded(format!("{function} is not the contract's: {reason}"));
        let stages = stage_funcs(&mut store, &instance, prepared).map_err(mismatch)?;
        let configure = configure_func(&mut store, &instance, prepared).map_err(mismatch)?;
        let arguments = ((&setup.partition).into(), setup.router_config.into(), &*setup.parameters);
        let answer = configure.call(&mut store, arguments);
        store.data_mut().finish();
        match answer {
            Ok((Ok(inputs),)) => Ok((Self { store, stages, calls: 0 }, inputs.into())),
            Ok((Err(message),)) => Err(StartError::new(Outcome::PolicyError, refusal("configure", &message, limits))),
            Err(error) => Err(start_error("configure", &error, limits, Outcome::BadAnswer)),
        }
    }
}

/// One place for a guest: owns what it is built from, and the guest while it is sound.
pub struct GuestSlot {
    setup: GuestSetup,
    source: Arc<Source>,
    inputs: Inputs,
    guest: Option<Guest>,
    now_ms: f64,
    fuel_used: u64,
    replaced: u64,
    recycled: u64,
    /// Calls of one guest.
    most_calls: u64,
    _places: [Option<Place>; 2],
    _tenants_place: Option<TenantPlace>,
}

impl GuestSlot {
    /// Builds the first guest: instantiates and configures it.
    ///
    /// # Errors
    ///
    /// A [`StartError`]: the policy refused its parameters, broke a limit or trapped, the tenant is over its quota, or
    /// the sandbox is full.
    pub fn new(mut setup: GuestSetup) -> Result<Self, StartError> {
        setup.limits = setup.limits.narrowed_by(setup.policy.declared_limits().iter());
        let tenants_place = setup.account.as_ref().map(Account::take_guest).transpose()?;
        let kind = EngineKind::of(&setup.limits);
        let places = setup.policy.sandbox().place(kind).map_err(|full| StartError::new(Outcome::NotLoaded, full))?;
        let Partition { model, routing_group, role, .. } = &setup.partition;
        let partition = format!("{model}/{routing_group}/{role}");
        let source = Source::new(&setup.instance, &partition, &setup.limits, setup.account.clone());
        let (guest, inputs) = Guest::start(&setup, &source)?;
        // A classifier that forgot the requests it deferred would leave them waiting.
        let most_calls = if setup.policy.stages().classify { u64::MAX } else { setup.limits.recycle_calls };
        Ok(Self {
            setup,
            source,
            inputs,
            guest: Some(guest),
            now_ms: 0.0,
            fuel_used: 0,
            replaced: 0,
            recycled: 0,
            most_calls,
            _places: places,
            _tenants_place: tenants_place,
        })
    }

    /// What the policy reads, as its `configure` answered.
    #[must_use]
    pub fn inputs(&self) -> &Inputs {
        &self.inputs
    }

    /// The stages that may be called.
    #[must_use]
    pub fn stages(&self) -> Stages {
        self.setup.policy.stages()
    }

    /// What the guest is built from, with the limits that hold.
    #[must_use]
    pub fn setup(&self) -> &GuestSetup {
        &self.setup
    }

    /// Fuel that the last call used; 0 where it found no guest.
    #[must_use]
    pub fn fuel_used(&self) -> u64 {
        self.fuel_used
    }

    /// How many guests were built in place of one that was dropped after a fault.
    #[must_use]
    pub fn replaced(&self) -> u64 {
        self.replaced
    }

    /// How many guests were built in place of a sound one that had answered `recycle_calls` calls.
    #[must_use]
    pub fn recycled(&self) -> u64 {
        self.recycled
    }

    /// How many guests came before the one that the next call finds or builds.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.replaced + self.recycled + u64::from(self.serving().is_none())
    }

    /// How often the guest was called that the next call finds; 0 where it builds one.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.serving().map_or(0, |guest| guest.calls)
    }

    /// The guest, unless the next call recycles it.
    fn serving(&self) -> Option<&Guest> {
        self.guest.as_ref().filter(|guest| guest.calls < self.most_calls)
    }

    /// Asks the filter: an answer for each row.
    ///
    /// # Errors
    ///
    /// A [`Fault`]; also where there are not `rows` answers.
    pub fn keep(&mut self, args: &Args) -> Result<Vec<bool>, Fault> {
        let kept = self.call("keep", args, |stages| stages.keep.as_ref())?;
        one_for_each("keep", "answers", kept, args.rows)
    }

    /// Asks the scorer: a cost for each row. Whether they are finite is the caller's to check.
    ///
    /// # Errors
    ///
    /// A [`Fault`]; also where there are not `rows` costs.
    pub fn score(&mut self, args: &Args) -> Result<Vec<f64>, Fault> {
        let costs = self.call("score", args, |stages| stages.score.as_ref())?;
        one_for_each("score", "costs", costs, args.rows)
    }

    /// Asks the picker: a row. Whether it is below `rows` is the caller's to check.
    ///
    /// # Errors
    ///
    /// A [`Fault`].
    pub fn pick(&mut self, args: &Args) -> Result<u32, Fault> {
        self.call("pick", args, |stages| stages.pick.as_ref())
    }

    /// Asks the whole policy: a row and its cost, none where the filter kept no row. Whether the row is below `rows`
    /// and the cost finite is the caller's to check.
    ///
    /// # Errors
    ///
    /// A [`Fault`].
    pub fn select(&mut self, args: &Args) -> Result<Option<Selection>, Fault> {
        Ok(self.call("select", args, |stages| stages.select.as_ref())?.map(Into::into))
    }

    /// Sets what the guest's clocks show during the calls to come, in milliseconds; 0 until then, and during each start.
    /// A guest that imports no clock never learns of it.
    pub fn set_now_ms(&mut self, now_ms: f64) {
        self.now_ms = now_ms;
    }

    /// Drops the guest and its state and builds a new one now.
    ///
    /// # Errors
    ///
    /// A [`StartError`]; the slot is then empty and tries again when it is next called.
    pub fn rebuild(&mut self) -> Result<(), StartError> {
        self.build()?;
        self.replaced += 1;
        Ok(())
    }

    /// Builds the next guest. The old one goes first, also where it is sound: its memory, its slot of the pool and its
    /// share of the tenant's quota are what the next one lives in. And one that stayed where the next does not start
    /// would outlive its `recycle_calls` by refusing to start.
    fn build(&mut self) -> Result<(), StartError> {
        self.guest = None;
        let (guest, inputs) = Guest::start(&self.setup, &self.source)?;
        if inputs != self.inputs {
            let message = "configure answered other inputs than when the first guest was built";
            return Err(StartError::new(Outcome::BadAnswer, message));
        }
        self.guest = Some(guest);
        Ok(())
    }

    /// Sees to it that there is a guest which may be called.
    fn ready(&mut self) -> Result<(), StartError> {
        match &self.guest {
            None => self.rebuild(),
            Some(guest) if guest.calls >= self.most_calls => {
                self.build()?;
                self.recycled += 1;
                Ok(())
            }
            Some(_) => Ok(()),
        }
    }

    /// Whether there is a guest with its state: after a fault this says whether the guest has survived it. A slot
    /// without one builds it when it is next called.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.guest.is_some()
    }

    /// Drops the guest and its state; the next call builds another one.
    pub fn drop_guest(&mut self) {
        self.guest = None;
    }

    /// One call of one stage of worker selection.
    fn call<R>(
        &mut self,
        stage: &'static str,
        args: &Args,
        func: fn(&StageFuncs) -> Option<&Stage<R>>,
    ) -> Result<R, Fault>
    where
        (Result<R, String>,): ComponentNamedList + Lift,
    {
        // Asked first: even a span that nobody wants costs some twenty instructions.
        let _span = (LevelFilter::current() >= LevelFilter::TRACE).then(|| {
            tracing::trace_span!("call", stage, instance = &*self.source.instance, rows = args.rows).entered()
        });
        let limits = &self.setup.limits;
        let budget = Budget {
            fuel: limits.fuel(args.rows),
            fuel_name: "fuel_base + fuel_per_row x rows",
            deadline_us: limits.deadline_us,
            deadline_name: "deadline_us",
        };
        self.enter(
            stage,
            budget,
            func,
            (args.rows, args.numbers.as_slice(), args.workers.as_deref(), args.texts.as_deref()),
        )
    }

    /// One call, from the fuel it gets to what becomes of the guest.
    pub(crate) fn enter<P, R>(
        &mut self,
        function: &'static str,
        budget: Budget,
        func: fn(&StageFuncs) -> Option<&Function<P, R>>,
        params: P::Of<'_>,
    ) -> Result<R, Fault>
    where
        P: Params,
        (Result<R, String>,): ComponentNamedList + Lift,
    {
        self.fuel_used = 0;
        self.setup.policy.sandbox().ticker().watch();
        self.ready()?;
        let missing = || Fault::new(Outcome::NotLoaded, format!("the policy does not export the function {function}"));
        let guest = self.guest.as_mut().ok_or_else(missing)?;
        let func = func(&guest.stages).ok_or_else(missing)?;
        guest.calls += 1;
        arm(&mut guest.store, budget);
        guest.store.data_mut().begin(self.now_ms);
        let answer = func.call(&mut guest.store, params);
        self.fuel_used = budget.fuel.saturating_sub(guest.store.get_fuel().unwrap_or(0));
        guest.store.data_mut().finish();
        match answer {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(message)) => Err(Fault::new(Outcome::PolicyError, refusal(function, &message, &self.setup.limits))),
            Err(error) => {
                self.guest = None;
                let outcome = outcome(&error, Outcome::BadAnswer);
                let message = explain(function, outcome, &error, budget);
                tracing::debug!(outcome = outcome.as_str(), message, "guest dropped");
                Err(Fault { outcome, message })
            }
        }
    }
}

impl std::fmt::Debug for GuestSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GuestSlot")
            .field("instance", &self.source.instance)
            .field("partition", &self.source.partition)
            .field("live", &self.guest.is_some())
            .field("replaced", &self.replaced)
            .field("recycled", &self.recycled)
            .finish_non_exhaustive()
    }
}

/// The answers, if there is one for each row.
fn one_for_each<T>(stage: &str, what: &str, answers: Vec<T>, rows: u32) -> Result<Vec<T>, Fault> {
    if answers.len() == rows as usize {
        return Ok(answers);
    }
    Err(Fault::new(Outcome::BadAnswer, format!("{stage} answered {} {what} for {rows} rows", answers.len())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::{Policy, args, sandbox, slot};
    use crate::limits::Profile;

    /// A policy that refuses all parameters but those of two bytes, and whose inputs tell two such from each other.
    fn choosy() -> Policy {
        Policy {
            configure: "
                (if (i32.ne (i32.load offset=108 (local.get $at)) (i32.const 2)) (then
                  (return (call $error (i32.const 1024) (i32.const 12)))))
                (i32.store8 (i32.const 4196) (i32.ne (i32.const 0x7b)
                  (i32.load8_u (i32.load offset=104 (local.get $at)))))
                (i32.const 4096)"
                .into(),
            ..Policy::hostile("unreachable")
        }
    }

    #[test]
    fn a_slot_whose_guest_cannot_be_rebuilt_stays_empty_and_tries_again() {
        let policy = sandbox().load(&choosy().artifact(), Profile::Compact).unwrap();
        let mut slot = slot(&policy, Limits::default());
        slot.setup.parameters = "{ }".into();
        assert_eq!(slot.score(&args(&[1.0])).unwrap_err().outcome, Outcome::Trap);
        for _ in 0..2 {
            let fault = slot.score(&args(&[0.0])).unwrap_err();
            assert_eq!((fault.outcome, &*fault.message), (Outcome::PolicyError, "no such luck"));
            assert_eq!(slot.fuel_used(), 0);
        }
        slot.setup.parameters = "{}".into();
        assert_eq!(slot.score(&args(&[0.0])).unwrap(), [0.0]);
        assert_eq!(slot.replaced(), 1);
    }

    #[test]
    fn a_guest_that_cannot_be_recycled_goes_all_the_same() {
        let policy = sandbox().load(&choosy().artifact(), Profile::Compact).unwrap();
        let mut slot = slot(&policy, Limits { recycle_calls: 1, ..Limits::default() });
        assert_eq!(slot.score(&args(&[0.0])).unwrap(), [0.0]);
        slot.setup.parameters = "{ }".into();
        assert_eq!(slot.score(&args(&[0.0])).unwrap_err().outcome, Outcome::PolicyError);
        assert!(!slot.is_live());
        slot.setup.parameters = "{}".into();
        assert_eq!(slot.score(&args(&[0.0])).unwrap(), [0.0]);
        assert_eq!((slot.replaced(), slot.recycled()), (1, 0), "what was lost to a fault is no recycling");
        assert_eq!(slot.score(&args(&[0.0])).unwrap(), [0.0]);
        assert_eq!((slot.replaced(), slot.recycled()), (1, 1));
    }

    #[test]
    fn a_guest_that_would_read_other_inputs_is_refused() {
        let policy = sandbox().load(&choosy().artifact(), Profile::Compact).unwrap();
        let mut slot = slot(&policy, Limits::default());
        slot.setup.parameters = "[]".into();
        assert_eq!(slot.rebuild().unwrap_err().outcome, Outcome::BadAnswer);
        assert_eq!(slot.score(&args(&[0.0])).unwrap_err().outcome, Outcome::BadAnswer);
        assert!(!slot.inputs().exclusive_affinity);
    }
}
