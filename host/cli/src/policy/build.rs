//! `pointsman policy build`: a Rust crate becomes a component.

use std::path::{Path, PathBuf};

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
            write_whole(&path, &built.component).map_err(|source| CliError::Write { path: path.clone(), source })?;
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

/// Writes beside the path and renames, so that whoever reads the path meanwhile finds the old file or the new one whole.
fn write_whole(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if path.exists() && !path.is_file() {
        // A device or a pipe, which a file must not replace.
        return std::fs::write(path, bytes);
    }
    let mut part = path.as_os_str().to_owned();
    part.push(format!(".{}.part", std::process::id()));
    let written = std::fs::write(&part, bytes).and_then(|()| std::fs::rename(&part, path));
    if written.is_err() {
        // What failed says why; a part that was never made cannot be removed.
        let _ = std::fs::remove_file(&part);
    }
    written
}
