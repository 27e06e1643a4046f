//! From a component to machine code: looked up, made by a child process, or made here where the embedder trusts it.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use sha2::{Digest, Sha256};
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::account::Account;
use crate::artifact::Artifact;
use crate::bounds::{ByProfile, CompileLimits};
use crate::cache::Cache;
use crate::engine::{EngineKind, SandboxConfig, SandboxError};
use crate::limits::Limits;
use crate::load::LoadError;
use crate::text::sentence;
use crate::worker::{self, Job, WorkerCommand};

/// How artifacts that are not trusted are compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileConfig {
    /// The program that compiles, started once for each artifact; none to refuse what is not trusted.
    pub worker: Option<WorkerCommand>,
    /// What one compilation may take.
    pub limits: ByProfile<CompileLimits>,
    /// How many artifacts compile at a time, at least 1. A tenant's compile one after the other in any case.
    pub at_once: u32,
    /// A folder that keeps machine code for the next load; none to compile each time. It must belong to the user of the
    /// process, and no other may write to it: what it holds is run.
    pub cache: Option<PathBuf>,
    /// Bytes that the folder may hold; what was used longest ago is removed first.
    pub cache_bytes: u64,
}

impl Default for CompileConfig {
    /// No worker, no cache, half of the processors, 1 GiB.
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            worker: None,
            limits: ByProfile::default(),
            at_once: u32::try_from(processors / 2).unwrap_or(u32::MAX).max(1),
            cache: None,
            cache_bytes: 1 << 30,
        }
    }
}

/// How a compilation in a child process failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileFailure {
    /// It took longer than it may.
    #[error("compile-timeout: it took more than {most} (sandbox.compile.{profile}.{key}); make its functions smaller")]
    Timeout {
        /// The profile whose limit it is.
        profile: &'static str,
        /// The limit's key in [`crate::COMPILE_LIMITS`].
        key: &'static str,
        /// The limit with its unit.
        most: String,
    },
    /// It took more memory, or made more machine code, than it may.
    #[error("compile-memory: it took more than {most} bytes (sandbox.compile.{profile}.{key}); make it smaller")]
    Memory {
        /// The profile whose limit it is.
        profile: &'static str,
        /// The limit's key in [`crate::COMPILE_LIMITS`].
        key: &'static str,
        /// The limit.
        most: u64,
    },
    /// The compiler panicked, crashed or answered what is no answer.
    #[error("compile-crash: the compile worker {0}; change the policy, and report it with the component")]
    Crash(String),
    /// The process that compiles could not be started.
    #[error("compile-crash: the compile worker {program} cannot be started: {reason}; check that the program is there")]
    Start {
        /// The program.
        program: String,
        /// Why not.
        reason: String,
    },
}

impl CompileFailure {
    /// The failure's name in logs, metrics and reports.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Timeout { .. } => "compile-timeout",
            Self::Memory { .. } => "compile-memory",
            Self::Crash(_) | Self::Start { .. } => "compile-crash",
        }
    }
}

/// What machine code belongs to: the component's bytes and everything of the engine that decides whether it fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(pub(crate) [u8; 32]);

impl Key {
    pub(crate) fn of(engine: &Engine, kind: EngineKind, sha256: &[u8; 32]) -> Self {
        /// Hands a hash's input to SHA-256, whose value is the same in every process.
        struct Into(Sha256);
        impl std::hash::Hasher for Into {
            fn write(&mut self, bytes: &[u8]) {
                self.0.update(bytes);
            }
            fn finish(&self) -> u64 {
                0
            }
        }
        let mut hasher = Into(Sha256::new_with_prefix(sha256));
        hasher.0.update([kind.number()]);
        std::hash::Hash::hash(&engine.precompile_compatibility_hash(), &mut hasher);
        Self(hasher.0.finalize().into())
    }
}

/// Compiles for one sandbox.
pub(crate) struct Compiler {
    turns: Turns,
    cache: Option<Cache>,
}

impl Compiler {
    pub(crate) fn new(config: &CompileConfig) -> Result<Self, SandboxError> {
        let cache = config.cache.as_ref().map(|folder| Cache::open(folder, config.cache_bytes)).transpose()?;
        Ok(Self { turns: Turns::new(config.at_once), cache })
    }

    /// The artifact, compiled for this engine: as it was kept, or anew.
    pub(crate) fn compile(
        &self,
        config: &SandboxConfig,
        engine: &Engine,
        artifact: &Artifact,
        limits: &Limits,
        account: Option<&Arc<Account>>,
    ) -> Result<Component, LoadError> {
        let key = Key::of(engine, EngineKind::of(limits), artifact.sha256());
        let task = Task { engine, artifact, limits, account, key };
        let Some(cache) = &self.cache else { return self.anew(config, &task) };
        if let Some(component) = kept(cache, &task) {
            return Ok(component);
        }
        let component = self.anew(config, &task)?;
        match component.serialize() {
            Ok(code) => cache.put(&task.key, &code),
            Err(error) => tracing::warn!("machine code is not kept: {error:#}"),
        }
        Ok(component)
    }

    fn anew(&self, config: &SandboxConfig, task: &Task<'_>) -> Result<Component, LoadError> {
        let Task { engine, artifact, limits, .. } = *task;
        if artifact.is_trusted() {
            // Never `Component::new`, which takes text where that feature is on.
            let compile = || Component::from_binary(engine, artifact.bytes());
            return task.in_turn(|| (), compile)?.map_err(|error| task.invalid(&format!("{error:#}")));
        }
        let Some(command) = &config.compile.worker else {
            return Err(LoadError::Untrusted { origin: artifact.origin().to_owned() });
        };
        let job = Job {
            kind: EngineKind::of(limits),
            determinism: config.determinism,
            profile: limits.profile,
            limits: config.compile.limits.of(limits.profile),
            artifact,
            key: &task.key,
        };
        let code = task.in_turn(|| self.turns.take(), || worker::run(command, &job))?;
        let code = code.map_err(|failure| match failure {
            worker::Failure::Invalid(reason) => task.invalid(&reason),
            worker::Failure::Compile(failure) => LoadError::Compile { origin: artifact.origin().to_owned(), failure },
        })?;
        deserialize(engine, &code).map_err(|error| task.invalid(&format!("{error:#}")))
    }
}

/// What the cache has of a task.
fn kept(cache: &Cache, task: &Task<'_>) -> Option<Component> {
    let code = cache.get(&task.key)?;
    let component = deserialize(task.engine, &code);
    component.inspect_err(|error| tracing::warn!("machine code in the compile cache does not fit: {error:#}")).ok()
}

/// One artifact to compile for one engine.
struct Task<'a> {
    engine: &'a Engine,
    artifact: &'a Artifact,
    limits: &'a Limits,
    account: Option<&'a Arc<Account>>,
    key: Key,
}

impl Task<'_> {
    /// Compiles in the tenant's turn, then in the sandbox's: a tenant that waits for itself keeps no other waiting.
    fn in_turn<S, T>(&self, turn: impl FnOnce() -> S, compile: impl FnOnce() -> T) -> Result<T, LoadError> {
        let Some(account) = self.account else {
            let _turn = turn();
            return Ok(compile());
        };
        let compiled = account.compile(turn, compile);
        compiled.map_err(|over| LoadError::OverQuota { origin: self.artifact.origin().to_owned(), over })
    }

    fn invalid(&self, reason: &str) -> LoadError {
        LoadError::Invalid {
            origin: self.artifact.origin().to_owned(),
            profile: self.limits.profile.as_str(),
            reason: sentence(reason),
        }
    }
}

#[expect(unsafe_code, reason = "machine code is taken as it is")]
fn deserialize(engine: &Engine, code: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: the code must be an unmodified output of this version of wasmtime. It is this very program's compile
    // worker's answer, read from a pipe that no other process holds, and for these bytes and this engine, as its key
    // says; or it is such an answer, or an own serialisation, from the cache, where an HMAC that covers code and key
    // shows that only a holder of the cache's secret can have written it. That wasmtime compiled it for an engine with
    // these settings is checked once more by `deserialize` itself.
    unsafe { Component::deserialize(engine, code) }
}

/// The turns of a sandbox's compilations.
struct Turns {
    free: Mutex<u32>,
    given_back: Condvar,
}

/// One turn; given back when dropped.
struct Turn<'a>(&'a Turns);

impl Turns {
    fn new(at_once: u32) -> Self {
        Self { free: Mutex::new(at_once.max(1)), given_back: Condvar::new() }
    }

    /// Waits for a turn. Each holder's time is bounded, and so is the wait.
    fn take(&self) -> Turn<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.given_back.wait_while(free, |free| *free == 0);
        *free.unwrap_or_else(PoisonError::into_inner) -= 1;
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.given_back.notify_one();
    }
}
