//! `pointsman policy build`: a Rust crate becomes a component.

use std::path::PathBuf;

use pointsman_sandbox::{Artifact, Profile};

use super::{small_sandbox, stage_names};
use crate::error::CliError;
use crate::output;

/// Builds a Rust policy crate into a component.
///
/// Runs `cargo build --release` for wasm32-unknown-unknown, wraps the module as a component, and has the sandbox load
/// it: what is written is a policy that this host accepts. The crate may use pointsman-sdk, or wit-bindgen on
/// wit/policy.wit alone.
#[derive(clap::Args)]
pub(crate) struct Build {
    /// The crate's folder.
    #[arg(value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// The component to write; the package's name with `.wasm`, in the current folder, unless given.
    #[arg(short, long, value_name = "FILE.wasm")]
    output: Option<PathBuf>,
}

impl Build {
    pub(crate) fn run(self) -> Result<(), CliError> {
        for built in pointsman_build::Build::package(self.dir).run()? {
            let path = self.output.clone().unwrap_or_else(|| format!("{}.wasm", built.package).into());
            let artifact = Artifact::from_bytes(built.package, built.component.as_slice());
            let policy = small_sandbox()?.load(&artifact, Profile::default())?;
            std::fs::write(&path, &built.component).map_err(|source| CliError::Write { path: path.clone(), source })?;
            let manifest = policy.manifest();
            output::text(&format!(
                "{}: policy {} {}, stages {}, {} bytes, sha256:{}",
                output::printable(&path.display().to_string()),
                output::printable(&manifest.name),
                output::printable(&manifest.version),
                stage_names(policy.stages()).join(", "),
                output::grouped(artifact.len() as u64),
                artifact.sha256_hex(),
            ))?;
        }
        Ok(())
    }
}
