//! Why a record cannot be read or decided again.

use pointsman_routing::RouterError;
use pointsman_sandbox::SandboxError;

/// Why a record cannot be read or decided again. It does not name the file, which the caller knows.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// There is no whole frame in it.
    #[error("it holds no part of a record of decisions; give a file that --record wrote")]
    NoRecord,
    /// Another version wrote it.
    #[error(
        "it is written in format {found} and this version reads format {reads}; replay it with the version that wrote it"
    )]
    Format {
        /// The format of the file.
        found: u16,
        /// The format that this version reads.
        reads: u16,
    },
    /// A policy speaks another version of the contract.
    #[error(
        "its policies speak version {found} of the contract and this host version {reads}; replay it with the version that wrote it"
    )]
    Contract {
        /// The version in the file.
        found: String,
        /// The version of this host.
        reads: &'static str,
    },
    /// A frame is whole and says what cannot be.
    #[error("its frame {frame} says what no recorder writes: {what}; record the decisions again")]
    Malformed {
        /// The frame, counted from 0 in the file as it is.
        frame: usize,
        /// What it says.
        what: String,
    },
    /// A component is missing.
    #[error(
        "the component of the instance `{instance}`, sha256:{digest}, is neither built in nor given; give its file with --register TYPE=FILE.wasm"
    )]
    UnknownComponent {
        /// The instance.
        instance: String,
        /// The component's digest in hex.
        digest: String,
    },
    /// A replacement names an instance that is not there, or leaves open which one is meant.
    #[error("{0}")]
    Replacement(String),
    /// A policy cannot be built again.
    #[error(transparent)]
    Router(#[from] RouterError),
    /// The sandbox cannot start.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
}
