//! How a load ends: its steps, in their order, and what each of them refuses.

use pointsman_contract::CONTRACT_VERSION;

use crate::account::OverQuota;
use crate::compile::CompileFailure;
use crate::declared::{DeclaredLimits, DeclaredLimitsError};
use crate::engine::SandboxError;
use crate::log;
use crate::outcome::Fault;

/// A step of loading an artifact. They come in this order, and the first that fails ends the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LoadStep {
    /// It can be read and is not too large.
    Size,
    /// It is the artifact that was pinned.
    Digest,
    /// It is a component within the bounds on what one may be made of.
    Structure,
    /// What it imports is allowed, and what it exports is the contract's.
    Imports,
    /// It compiles, within the limits of a compilation.
    Compile,
    /// A guest of it can be built.
    Instantiate,
    /// The guest says what it is.
    Describe,
    /// A guest takes its parameters.
    Configure,
    /// A guest decides over a table made up for the purpose.
    Smoke,
}

impl LoadStep {
    /// Every step, in order.
    pub const ALL: [Self; 9] = [
        Self::Size,
        Self::Digest,
        Self::Structure,
        Self::Imports,
        Self::Compile,
        Self::Instantiate,
        Self::Describe,
        Self::Configure,
        Self::Smoke,
    ];

    /// The step's name in logs, metrics and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Size => "size",
            Self::Digest => "digest",
            Self::Structure => "structure",
            Self::Imports => "imports",
            Self::Compile => "compile",
            Self::Instantiate => "instantiate",
            Self::Describe => "describe",
            Self::Configure => "configure",
            Self::Smoke => "smoke",
        }
    }
}

impl std::fmt::Display for LoadStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// The first of the names, and how many more there are.
fn first_of(names: &[String]) -> String {
    let first = names.first().map_or("WASI", String::as_str);
    match names.len().saturating_sub(1) {
        0 => first.to_owned(),
        more => format!("{first} and {more} more of WASI"),
    }
}

/// Why an artifact could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("{origin} cannot be read: {source}")]
    Read {
        /// The file.
        origin: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The artifact is not the one that was pinned.
    #[error("{origin} has digest sha256:{found}, not sha256:{pinned}; deploy the pinned file or change the pin")]
    Digest {
        /// Where the bytes came from.
        origin: String,
        /// SHA-256 of the bytes, in hexadecimal.
        found: String,
        /// The SHA-256 that was asked for.
        pinned: String,
    },
    /// It has more of something than an artifact may have.
    #[error(
        "{origin} has {found} {meaning}, and profile {profile} takes at most {most}; make it smaller, or raise \
         sandbox.load.{profile}.{key}"
    )]
    Over {
        /// Where the bytes came from.
        origin: String,
        /// The profile of the instance.
        profile: &'static str,
        /// The bound's key in [`crate::LOAD_BOUNDS`].
        key: &'static str,
        /// The bound's unit and meaning.
        meaning: &'static str,
        /// What the artifact has.
        found: u64,
        /// What it may have.
        most: u64,
    },
    /// The bytes start as a component and do not go on as one.
    #[error("{origin} is a damaged component: {reason}; build it again, or copy it again")]
    Malformed {
        /// Where the bytes came from.
        origin: String,
        /// The parser's own words.
        reason: String,
    },
    /// The bytes are no WebAssembly.
    #[error("{origin} is not WebAssembly; expected a component, as `pointsman policy build` writes it")]
    NotWasm {
        /// Where the bytes came from.
        origin: String,
    },
    /// The bytes are WebAssembly's text format.
    #[error("{origin} is WebAssembly text; convert it to binary first, with `wasm-tools parse`")]
    Text {
        /// Where the bytes came from.
        origin: String,
    },
    /// A core module, not a component.
    #[error(
        "{origin} is a core module, not a component; build it with `pointsman policy build` or wrap it with \
         `wasm-tools component new`"
    )]
    CoreModule {
        /// Where the bytes came from.
        origin: String,
    },
    /// Machine code of an earlier compilation, which is never accepted.
    #[error("{origin} is precompiled machine code, which is never accepted; give the component it was compiled from")]
    Precompiled {
        /// Where the bytes came from.
        origin: String,
    },
    /// The component is invalid, uses what policies may not use, or does not fit its profile.
    #[error("{origin} cannot be compiled as a policy of profile {profile}: {reason}")]
    Invalid {
        /// Where the bytes came from.
        origin: String,
        /// The profile of the instance.
        profile: &'static str,
        /// The engine's own words.
        reason: String,
    },
    /// The component exports no interface `policy`.
    #[error(
        "{origin} does not export pointsman:policy/policy@{CONTRACT_VERSION}; a policy must, and at least one of \
         worker-filter, worker-scorer, worker-picker, worker-selector and request-classifier"
    )]
    NoPolicy {
        /// Where the bytes came from.
        origin: String,
    },
    /// The component speaks another version of the contract.
    #[error("{origin} exports {found}, but this host supports version {CONTRACT_VERSION}; rebuild the policy for it")]
    Version {
        /// Where the bytes came from.
        origin: String,
        /// The export's full name.
        found: String,
    },
    /// The component exports no stage.
    #[error(
        "{origin} exports no stage; export at least one of worker-filter, worker-scorer, worker-picker, \
         worker-selector and request-classifier of pointsman:policy@{CONTRACT_VERSION}"
    )]
    NoStage {
        /// Where the bytes came from.
        origin: String,
    },
    /// The component imports what policies may not import.
    #[error("{origin} imports {}; a policy may import {} alone", .names.join(", "), log::LOG)]
    Imports {
        /// Where the bytes came from.
        origin: String,
        /// Every import that is not allowed.
        names: Vec<String>,
    },
    /// The component imports what its artifact is not granted.
    #[error(
        "{origin} imports {}, which it is not granted; say `wasi: true` where it is configured: no files, network or \
         environment come with it",
        first_of(names)
    )]
    Wasi {
        /// Where the bytes came from.
        origin: String,
        /// Every import that is not granted.
        names: Vec<String>,
    },
    /// The component imports what this program cannot offer.
    #[error("{origin} imports WASI, which this program was built without; build it with the cargo feature `wasi`")]
    NoWasi {
        /// Where the bytes came from.
        origin: String,
    },
    /// The limits that the component declares for itself cannot be read.
    #[error("{origin} cannot be loaded: its section {} {error}", DeclaredLimits::SECTION)]
    Limits {
        /// Where the bytes came from.
        origin: String,
        /// What is wrong.
        error: DeclaredLimitsError,
    },
    /// The artifact is not trusted, and there is no process to compile it in.
    #[error(
        "{origin} is not compiled within this process, since it is not declared trusted; configure a compile worker, or \
         declare the artifact trusted"
    )]
    Untrusted {
        /// Where the bytes came from.
        origin: String,
    },
    /// Compiling it did not end well.
    #[error("{origin} cannot be compiled: {failure}")]
    Compile {
        /// Where the bytes came from.
        origin: String,
        /// How the compilation ended.
        failure: CompileFailure,
    },
    /// The tenant may not compile now.
    #[error("{origin} is not compiled: {over}")]
    OverQuota {
        /// Where the bytes came from.
        origin: String,
        /// The quota that is used up.
        over: OverQuota,
    },
    /// A function of the contract is missing or has another type.
    #[error("{origin}: {function} is not the contract's: {reason}; rebuild the policy against wit/policy.wit")]
    Function {
        /// Where the bytes came from.
        origin: String,
        /// The function.
        function: String,
        /// What differs.
        reason: String,
    },
    /// No guest of it could be built.
    #[error("{origin} cannot be started: {fault}")]
    Instantiate {
        /// Where the bytes came from.
        origin: String,
        /// How the start ended.
        fault: Fault,
    },
    /// `describe` did not answer.
    #[error("{origin} cannot describe itself: {fault}")]
    Describe {
        /// Where the bytes came from.
        origin: String,
        /// How the call ended.
        fault: Fault,
    },
    /// The ticker of the sandbox has stopped.
    #[error(
        "{origin} is not loaded, since the sandbox's ticker has stopped and no deadline would hold; restart the process"
    )]
    NoTicker {
        /// Where the bytes came from.
        origin: String,
    },
    /// The engine that the limits call for could not be set up.
    #[error("{origin} cannot be loaded: {error}")]
    Engine {
        /// Where the bytes came from.
        origin: String,
        /// Why not.
        error: SandboxError,
    },
}

impl LoadError {
    /// The step that failed.
    #[must_use]
    pub fn step(&self) -> LoadStep {
        match self {
            Self::Read { .. } | Self::Over { key: "component_bytes", .. } => LoadStep::Size,
            Self::Digest { .. } => LoadStep::Digest,
            Self::Over { .. }
            | Self::Malformed { .. }
            | Self::Limits { .. }
            | Self::NotWasm { .. }
            | Self::Text { .. }
            | Self::CoreModule { .. }
            | Self::Precompiled { .. } => LoadStep::Structure,
            Self::NoPolicy { .. }
            | Self::Version { .. }
            | Self::NoStage { .. }
            | Self::Imports { .. }
            | Self::Wasi { .. }
            | Self::NoWasi { .. } => LoadStep::Imports,
            Self::Invalid { .. }
            | Self::Untrusted { .. }
            | Self::Compile { .. }
            | Self::OverQuota { .. }
            | Self::Engine { .. } => LoadStep::Compile,
            Self::Function { .. } | Self::Instantiate { .. } | Self::NoTicker { .. } => LoadStep::Instantiate,
            Self::Describe { .. } => LoadStep::Describe,
        }
    }
}
