//! Why a crate did not become a component.

use std::io;
use std::path::PathBuf;

/// Why a crate did not become a component; one sentence that says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// `dir` is no Rust crate.
    #[error("there is no Cargo.toml in {}: give the folder of a Rust policy crate, or of a policy in another language, with a pointsman.yaml", dir.display())]
    NoCargoToml {
        /// The folder that was given.
        dir: PathBuf,
    },
    /// cargo could not be started.
    #[error("could not run `{program}` ({source}): install Rust with rustup (https://rustup.rs), or put cargo on PATH")]
    NoCargo {
        /// The program that was tried.
        program: String,
        /// Why it did not start.
        source: io::Error,
    },
    /// `cargo metadata` failed; its messages are on standard error.
    #[error("cargo could not read the package in {}: see its own message", dir.display())]
    Metadata {
        /// The folder that was given.
        dir: PathBuf,
    },
    /// The answer of cargo could not be read.
    #[error("could not read the answer of `cargo {command}`: {message}")]
    Answer {
        /// The subcommand.
        command: &'static str,
        /// What was wrong.
        message: String,
    },
    /// The `Cargo.toml` has no package.
    #[error("{}/Cargo.toml is a workspace without a package of its own: give the folder of one member ({})", dir.display(), members.join(", "))]
    NoPackage {
        /// The folder that was given.
        dir: PathBuf,
        /// The packages of the workspace.
        members: Vec<String>,
    },
    /// The package builds no module.
    #[error("package `{package}` builds no WebAssembly module: add the lines `[lib]` and `crate-type = [\"cdylib\", \"rlib\"]` to {}", manifest.display())]
    NoCdylib {
        /// The package.
        package: String,
        /// Its manifest.
        manifest: PathBuf,
    },
    /// The compile target is not installed.
    #[error("the Rust target wasm32-unknown-unknown is not installed (looked in {}): run `rustup target add wasm32-unknown-unknown` in {}", libdir.display(), dir.display())]
    NoTarget {
        /// Where rustc looks for the target's libraries.
        libdir: PathBuf,
        /// The folder whose toolchain it is.
        dir: PathBuf,
    },
    /// The crate does not compile; cargo's messages are on standard error.
    #[error("cargo could not build {}: see its own messages", packages.join(", "))]
    Cargo {
        /// The packages of the build.
        packages: Vec<String>,
    },
    /// cargo succeeded and named no module.
    #[error("cargo wrote no .wasm file for package `{package}`: give it the library target `cdylib`")]
    NoModule {
        /// The package.
        package: String,
    },
    /// The module could not be read.
    #[error("could not read {}: {source}", path.display())]
    Read {
        /// The module.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The module is a component already.
    #[error(
        "the module of `{package}` is a component already: build it for wasm32-unknown-unknown, not for wasm32-wasip2"
    )]
    AlreadyComponent {
        /// The package.
        package: String,
    },
    /// The module does not fit the contract that it carries.
    #[error("the module of `{package}` does not make a component: {message}")]
    Encode {
        /// The package.
        package: String,
        /// wit-component's reason.
        message: String,
    },
    /// The component is no policy.
    #[error(
        "the module of `{package}` does not export pointsman:policy/policy: end the crate with the SDK's export macro, or with wit-bindgen's for a world of wit/policy.wit"
    )]
    NotAPolicy {
        /// The package.
        package: String,
    },
}
