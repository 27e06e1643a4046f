//! The handle that everything starts from: two engines, one ticker, the guests' places.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use wasmtime::Engine;
use wasmtime::component::Component;

use crate::account::Account;
use crate::artifact::Artifact;
use crate::compile::Compiler;
use crate::engine::{self, EngineKind, Machine, Place, Places, SandboxConfig, SandboxError};
use crate::limits::{Limits, Profile};
use crate::load::LoadError;
use crate::policy::CompiledPolicy;
use crate::ticker::Ticker;

/// Loads policies. Cheap to clone; every policy and guest keeps it alive, and the last one to go stops the ticker.
#[derive(Clone)]
pub struct Sandbox(Arc<Shared>);

struct Shared {
    config: SandboxConfig,
    pooled: Arc<OnceLock<Engine>>,
    /// Built when first needed: a host without such guests does without.
    on_demand: Arc<OnceLock<Engine>>,
    ticker: Ticker,
    compiler: Compiler,
    places: Arc<Places>,
    places_on_demand: Arc<Places>,
    loading: Mutex<()>,
}

impl Sandbox {
    /// Sets up the pooled engine and starts the ticker.
    ///
    /// # Errors
    ///
    /// A [`SandboxError`] where so many guests do not fit this machine, the engine or its ticker does not start, or the
    /// compile cache cannot be used.
    pub fn new(config: SandboxConfig) -> Result<Self, SandboxError> {
        let machine = Machine::this();
        machine.check(&config)?;
        let compiler = Compiler::new(&config.compile)?;
        let pooled = Arc::new(OnceLock::from(engine::build(EngineKind::Pooled, &config)?));
        let on_demand = Arc::new(OnceLock::new());
        let ticker = Ticker::start(vec![Arc::clone(&pooled), Arc::clone(&on_demand)]).map_err(SandboxError::Ticker)?;
        Ok(Self(Arc::new(Shared {
            places: Places::new(config.guests),
            places_on_demand: Places::new(machine.on_demand(&config)),
            config,
            pooled,
            on_demand,
            ticker,
            compiler,
            loading: Mutex::new(()),
        })))
    }

    /// Loads an artifact for instances with the default limits of that profile.
    ///
    /// # Errors
    ///
    /// See [`Sandbox::load_with`].
    pub fn load(&self, artifact: &Artifact, profile: Profile) -> Result<Arc<CompiledPolicy>, LoadError> {
        self.load_with(artifact, &Limits::of(profile))
    }

    /// Loads an artifact for guests that belong to no tenant.
    ///
    /// # Errors
    ///
    /// See [`Sandbox::load_for`].
    pub fn load_with(&self, artifact: &Artifact, limits: &Limits) -> Result<Arc<CompiledPolicy>, LoadError> {
        self.load_for(artifact, limits, None)
    }

    /// Loads an artifact, in the order of [`crate::LoadStep`]: holds it to the bounds of its profile, checks its imports,
    /// its exports and their version, compiles it for the engine that these limits call for, and has a guest describe
    /// itself, with these limits or the artifact's own where they are narrower. Guests with other limits may be built of
    /// it all the same. `account` is the tenant's that the compilation belongs to.
    ///
    /// Takes as long as a compilation and holds nothing meanwhile that a call or the rebuild of a guest waits for.
    ///
    /// # Errors
    ///
    /// A [`LoadError`], one sentence, that names the artifact's origin.
    pub fn load_for(
        &self,
        artifact: &Artifact,
        limits: &Limits,
        account: Option<&Arc<Account>>,
    ) -> Result<Arc<CompiledPolicy>, LoadError> {
        if !self.ticker_alive() {
            return Err(LoadError::NoTicker { origin: artifact.origin().to_owned() });
        }
        CompiledPolicy::load(self, artifact, limits, account).map(Arc::new)
    }

    /// Whether deadlines are enforced: false once the ticker has stopped.
    #[must_use]
    pub fn ticker_alive(&self) -> bool {
        self.0.ticker.alive()
    }

    /// How the sandbox was set up.
    #[must_use]
    pub fn config(&self) -> &SandboxConfig {
        &self.0.config
    }

    pub(crate) fn ticker(&self) -> &Ticker {
        &self.0.ticker
    }

    /// The artifact, compiled for the engine that these limits call for.
    pub(crate) fn compile(
        &self,
        artifact: &Artifact,
        limits: &Limits,
        account: Option<&Arc<Account>>,
    ) -> Result<Component, LoadError> {
        let engine = self
            .engine(EngineKind::of(limits))
            .map_err(|error| LoadError::Engine { origin: artifact.origin().to_owned(), error })?;
        self.0.compiler.compile(&self.0.config, &engine, artifact, limits, account)
    }

    fn engine(&self, kind: EngineKind) -> Result<Engine, SandboxError> {
        let slot = match kind {
            EngineKind::Pooled => &self.0.pooled,
            EngineKind::OnDemand => &self.0.on_demand,
        };
        if let Some(engine) = slot.get() {
            return Ok(engine.clone());
        }
        let _turn = self.loading();
        if let Some(engine) = slot.get() {
            return Ok(engine.clone());
        }
        let engine = engine::build(kind, &self.0.config)?;
        Ok(slot.get_or_init(|| engine).clone())
    }

    /// Held by whoever builds an engine or a guest that has no place.
    pub(crate) fn loading(&self) -> MutexGuard<'_, ()> {
        self.0.loading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The places of one guest, or the sentence that says what to raise.
    pub(crate) fn place(&self, kind: EngineKind) -> Result<[Option<Place>; 2], String> {
        let full = |places: &Places, which: &str| {
            format!(
                "all {} places for guests{which} are taken; raise sandbox.guests, or run fewer instances or partitions",
                places.most()
            )
        };
        let place = self.0.places.take().ok_or_else(|| full(&self.0.places, ""))?;
        let outside = match kind {
            EngineKind::Pooled => None,
            EngineKind::OnDemand => {
                let place = self.0.places_on_demand.take();
                Some(place.ok_or_else(|| {
                    format!(
                        "all {} places for guests outside the pool are taken; lower sandbox.guests, which reserves the \
                         rest of the process's memory maps and address space",
                        self.0.places_on_demand.most()
                    )
                })?)
            }
        };
        Ok([Some(place), outside])
    }
}

impl std::fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sandbox").field("config", &self.0.config).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::{Classifier, Policy, SPIN, args, sandbox, slot};
    use crate::outcome::Outcome;

    /// Does something whenever a policy logs, and collects errors of the sandbox.
    struct OnLog<F> {
        on_log: F,
        errors: Arc<Mutex<Vec<String>>>,
    }

    impl<F: Fn() + Send + Sync + 'static> tracing::Subscriber for OnLog<F> {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }

        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

        fn event(&self, event: &tracing::Event<'_>) {
            if event.metadata().target() == "pointsman::policy" {
                (self.on_log)();
            } else if *event.metadata().level() == tracing::Level::ERROR {
                struct Message(String);
                impl tracing::field::Visit for Message {
                    fn record_debug(&mut self, _: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                        self.0 = format!("{value:?}");
                    }
                }
                let mut message = Message(String::new());
                event.record(&mut message);
                self.errors.lock().unwrap().push(message.0);
            }
        }

        fn enter(&self, _: &tracing::span::Id) {}

        fn exit(&self, _: &tracing::span::Id) {}
    }

    fn with<R>(on_log: impl Fn() + Send + Sync + 'static, run: impl FnOnce() -> R) -> (R, Vec<String>) {
        let errors = Arc::default();
        let answer = tracing::subscriber::with_default(OnLog { on_log, errors: Arc::clone(&errors) }, run);
        let errors = std::mem::take(&mut *errors.lock().unwrap());
        (answer, errors)
    }

    /// Logs as often as the first number says, then answers the numbers.
    fn chatty() -> Policy {
        Policy {
            imports_log: true,
            ..Policy::scorer(
                "(local.set $i (i32.trunc_f64_u (f64.load (local.get $numbers))))
                 (block $done (loop $next
                   (br_if $done (i32.eqz (local.get $i)))
                   (call $log (i32.const 2) (i32.const 1024) (i32.const 2))
                   (local.set $i (i32.sub (local.get $i) (i32.const 1)))
                   (br $next)))
                 (call $list (local.get $numbers) (local.get $count))",
            )
        }
    }

    #[test]
    fn a_deadline_lasts_so_many_ticks_and_no_more() {
        let sandbox = sandbox();
        // Ticks come from the policy's log from here on.
        sandbox.ticker().kill();
        let clock = sandbox.clone();
        let policy =
            CompiledPolicy::load(&sandbox, &chatty().artifact(), &Limits::default(), None).map(Arc::new).unwrap();
        with(
            move || clock.ticker().tick(),
            || {
                for deadline_us in [1_000, 4_001, 5_000, 50_000] {
                    let mut slot = slot(&policy, Limits { deadline_us, ..Limits::default() });
                    // One more than the milliseconds, since the first tick may come at once.
                    let ticks = deadline_us.div_ceil(1_000) + 1;
                    for _ in 0..3 {
                        assert!(slot.score(&args(&[(ticks - 1) as f64])).is_ok(), "{deadline_us}");
                    }
                    let fault = slot.score(&args(&[ticks as f64])).unwrap_err();
                    assert_eq!(fault.outcome, Outcome::Deadline, "{deadline_us}: {fault}");
                    assert!(slot.score(&args(&[0.0])).is_ok());
                }
            },
        );
    }

    /// Logs as often as the time says, in milliseconds, then resolves nothing.
    fn chatty_classifier() -> Policy {
        let body = "
            (local.set $i (i32.trunc_f64_u (local.get $now)))
            (block $done (loop $next
              (br_if $done (i32.eqz (local.get $i)))
              (call $log (i32.const 2) (i32.const 1024) (i32.const 2))
              (local.set $i (i32.sub (local.get $i) (i32.const 1)))
              (br $next)))
            (call $nothing)";
        let classifier = Classifier { on_event: body.into(), on_tick: body.into(), ..Classifier::default() };
        Policy { imports_log: true, ..Policy::classifier(classifier) }
    }

    #[test]
    fn a_tick_has_a_deadline_of_its_own() {
        let sandbox = sandbox();
        sandbox.ticker().kill();
        let clock = sandbox.clone();
        let policy = CompiledPolicy::load(&sandbox, &chatty_classifier().artifact(), &Limits::default(), None)
            .map(Arc::new)
            .unwrap();
        with(
            move || clock.ticker().tick(),
            || {
                let mut slot =
                    slot(&policy, Limits { deadline_us: 3_000, tick_deadline_us: 7_000, ..Limits::default() });
                let event = pointsman_contract::Event::Workers(Vec::new());
                for _ in 0..2 {
                    assert!(slot.on_event(&event, 3.0).is_ok());
                    let fault = slot.on_event(&event, 4.0).unwrap_err();
                    assert!(fault.message.ends_with("deadline of 3000 us (deadline_us)"), "{fault}");
                    assert!(slot.on_tick(7.0, &[]).is_ok());
                    let fault = slot.on_tick(8.0, &[]).unwrap_err();
                    assert_eq!(fault.outcome, Outcome::Deadline);
                    assert!(fault.message.ends_with("deadline of 7000 us (tick_deadline_us)"), "{fault}");
                }
            },
        );
    }

    #[test]
    fn a_start_has_a_deadline_too() {
        let sandbox = sandbox();
        sandbox.ticker().kill();
        let clock = sandbox.clone();
        let logs = "(call $log (i32.const 0) (i32.const 1024) (i32.const 2)) (loop) (i32.const 4096)";
        let policy = Policy { configure: logs.into(), ..chatty() };
        let policy =
            CompiledPolicy::load(&sandbox, &policy.artifact(), &Limits::default(), None).map(Arc::new).unwrap();
        let limits = Limits { start_deadline_us: 5_000, deadline_us: 1_000, ..Limits::default() };
        let start = |ticks: u32| {
            let clock = clock.clone();
            let tick = move || (0..ticks).for_each(|_| clock.ticker().tick());
            with(tick, || crate::GuestSlot::new(crate::common::setup(&policy, limits))).0
        };
        assert!(start(5).is_ok());
        let error = start(6).unwrap_err();
        assert_eq!(error.outcome, Outcome::Deadline, "{error}");
        assert_eq!(error.message, "configure ran past its deadline of 5000 us (start_deadline_us)");
    }

    #[test]
    fn a_stopped_ticker_is_noticed() {
        let sandbox = sandbox();
        assert!(sandbox.ticker_alive());
        let mut slot = Policy::hostile(SPIN).slot(&sandbox, Limits::default());
        sandbox.ticker().kill();
        assert!(!sandbox.ticker_alive());
        let refused = sandbox.load(&Policy::default().artifact(), Profile::Compact).unwrap_err();
        assert!(matches!(refused, LoadError::NoTicker { .. }), "{refused}");
        // Guests that run already go on, bounded by their fuel; the loss is reported, once.
        let (outcomes, errors) =
            with(|| (), || [1.0, 0.0, 0.0].map(|number| slot.score(&args(&[number])).map_err(|fault| fault.outcome)));
        assert_eq!(outcomes, [Err(Outcome::OutOfFuel), Ok(vec![0.0]), Ok(vec![0.0])]);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains("ticker"), "{errors:?}");
    }

    #[test]
    fn a_ticker_that_stands_still_is_noticed() {
        let sandbox = sandbox();
        sandbox.ticker().freeze();
        assert!(!sandbox.ticker_alive());
    }

    #[test]
    fn the_ticker_lives_as_long_as_anything_that_needs_it() {
        let sandbox = sandbox();
        let running = sandbox.ticker().probe();
        let slot = Policy::default().slot(&sandbox, Limits::default());
        drop(sandbox);
        assert!(running());
        drop(slot);
        assert!(!running());
    }
}
