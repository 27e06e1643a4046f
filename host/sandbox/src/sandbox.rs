//! The handle that everything starts from: two engines, one ticker, the guests' places.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use wasmtime::Engine;

use crate::artifact::Artifact;
use crate::engine::{self, EngineKind, Machine, Place, Places, SandboxConfig, SandboxError};
use crate::limits::{Limits, Profile};
use crate::policy::{CompiledPolicy, LoadError};
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
    places: Arc<Places>,
    places_on_demand: Arc<Places>,
    loading: Mutex<()>,
}

impl Sandbox {
    /// Sets up the pooled engine and starts the ticker.
    ///
    /// # Errors
    ///
    /// A [`SandboxError`] where so many guests do not fit this machine, or the engine or its ticker does not start.
    pub fn new(config: SandboxConfig) -> Result<Self, SandboxError> {
        let machine = Machine::this();
        machine.check(&config)?;
        let pooled = Arc::new(OnceLock::from(engine::build(EngineKind::Pooled, &config)?));
        let on_demand = Arc::new(OnceLock::new());
        let ticker = Ticker::start(vec![Arc::clone(&pooled), Arc::clone(&on_demand)]).map_err(SandboxError::Ticker)?;
        Ok(Self(Arc::new(Shared {
            config,
            pooled,
            on_demand,
            ticker,
            places: Places::new(config.guests),
            places_on_demand: Places::new(machine.on_demand(&config)),
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

    /// Loads an artifact: checks what it is, compiles it for the engine that these limits call for, checks its contract
    /// version, imports and exports, and has a guest with these limits describe itself. Guests with other limits may
    /// be built of it all the same.
    ///
    /// # Errors
    ///
    /// A [`LoadError`], one sentence, that names the artifact's origin.
    pub fn load_with(&self, artifact: &Artifact, limits: &Limits) -> Result<Arc<CompiledPolicy>, LoadError> {
        if !self.ticker_alive() {
            return Err(LoadError::NoTicker { origin: artifact.origin().to_owned() });
        }
        CompiledPolicy::load(self, artifact, limits).map(Arc::new)
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

    pub(crate) fn engine(&self, kind: EngineKind) -> Result<Engine, SandboxError> {
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
