//! Why a folder did not become a component.

use std::io;
use std::path::PathBuf;

use crate::tools::Tool;

/// Why a folder did not become a component; one sentence that says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LanguageError {
    /// `pointsman.yaml` is not as it must be.
    #[error("{}: {message}; give it `language: js`, `python`, `go` or `c`, and `stages: [score]`, or `language: rust` alone", path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// The policy's source is missing.
    #[error("there is no {file} in {}: write the policy there", dir.display())]
    NoSource {
        /// The folder.
        dir: PathBuf,
        /// The file that was looked for.
        file: &'static str,
    },
    /// A language's tool is missing.
    #[error("`{}` is not installed, which makes components of {}: run `{}` in {}", tool.name, tool.language, tool.install(), dir.display())]
    NoTool {
        /// The tool.
        tool: &'static Tool,
        /// The policy's folder.
        dir: PathBuf,
    },
    /// A tool did not start.
    #[error("could not run {}: {source}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A tool refused the policy.
    #[error("{tool} could not build {}: see its own messages", dir.display())]
    Tool {
        /// The tool.
        tool: &'static str,
        /// The policy's folder.
        dir: PathBuf,
        /// What the tool said.
        messages: String,
    },
    /// A file of the folder could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file of the folder could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A new policy would overwrite something.
    #[error("{} is there already; give the new policy another name", dir.display())]
    Exists {
        /// The folder.
        dir: PathBuf,
    },
    /// The name of a new policy is none.
    #[error(
        "`{name}` is no name for a policy; give one of small letters, digits and hyphens that begins with a letter"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// cargo or its target is missing, or the crate is no policy.
    #[error(transparent)]
    Rust(#[from] pointsman_build::BuildError),
    /// There is nothing of these stages to begin with.
    #[error(
        "a new policy has any of the stages filter, score and pick, each once, or classify alone; give --stages those"
    )]
    Stages,
    /// The module does not make a component.
    #[error("the module of {} does not make a component: {message}", dir.display())]
    Encode {
        /// The policy's folder.
        dir: PathBuf,
        /// Why not.
        message: String,
    },
}
