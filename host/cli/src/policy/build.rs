//! `pointsman policy build`: a policy's folder becomes a component.

use std::path::{Path, PathBuf};

use pointsman_languages::{LanguageError, Project};
use pointsman_sandbox::{Artifact, DeclaredLimits, Sandbox};

use super::{small, stage_names};
use crate::compile::Compile;
use crate::error::CliError;
use crate::{output, source};

/// Builds a policy into a component.
///
/// A folder with a pointsman.yaml is built with the tools of the language that it names. Any other
/// is a Rust crate, built by `cargo build --release` for wasm32-unknown-unknown; it may use pointsman-sdk, or
/// wit-bindgen on wit/policy.wit alone. The sandbox then loads the component: what is written is a policy that this
/// host accepts.
#[derive(clap::Args)]
pub(crate) struct Build {
    /// The policy's folder.
    #[arg(value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// The component to write; the package's or the folder's name with `.wasm`, in the current folder, unless given.
    #[arg(short, long, value_name = "FILE.wasm")]
    output: Option<PathBuf>,
    /// A limit that the policy declares for itself, a key of docs/limits.md: wherever it runs, its guests get the
    /// smaller of this and what they are granted. May be given repeatedly.
    #[arg(long = "limit", value_name = "KEY=VALUE")]
    limits: Vec<String>,
    #[command(flatten)]
    compile: Compile,
}

impl Build {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let declared = declared(&self.limits)?;
        let sandbox = Sandbox::new(self.compile.config(small()))?;
        for (name, mut component) in components(&self.dir)? {
            if !declared.is_empty() {
                let text = declared.to_string();
                pointsman_build::add_section(&mut component, DeclaredLimits::SECTION, text.as_bytes());
            }
            let path = self.output.clone().unwrap_or_else(|| format!("{name}.wasm").into());
            let artifact = Artifact::from_bytes(name, component.as_slice());
            let (policy, _) = source::load_any(&sandbox, &artifact)?;
            write_whole(&path, &component).map_err(|source| CliError::Write { path: path.clone(), source })?;
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

/// The components that a folder becomes, each with its name.
pub(crate) fn components(dir: &Path) -> Result<Vec<(String, Vec<u8>)>, CliError> {
    if let Some(project) = Project::open(dir)? {
        let component = project.build().inspect_err(|error| {
            if let LanguageError::Tool { messages, .. } = error {
                output::messages(messages);
            }
        })?;
        return Ok(vec![(project.name(), component)]);
    }
    let built = pointsman_build::Build::package(dir).run()?;
    Ok(built.into_iter().map(|built| (built.package, built.component)).collect())
}

fn declared(limits: &[String]) -> Result<DeclaredLimits, CliError> {
    let mut declared = DeclaredLimits::default();
    for given in limits {
        let refused = |reason: String| CliError::Limit { given: given.clone(), reason };
        let (key, value) = given.split_once('=').ok_or_else(|| refused("is not KEY=VALUE".to_owned()))?;
        declared.declare(key, value).map_err(|error| refused(error.to_string()))?;
    }
    Ok(declared)
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
