//! How the command compiles components: each in a process of its own, but for the built-in ones.

use std::path::PathBuf;

use pointsman_sandbox::{SandboxConfig, WorkerCommand};

/// The options of every command that loads a component's file.
#[derive(clap::Args)]
pub(crate) struct Compile {
    /// A folder that keeps compiled components for the next run; in place of the router-policy file's.
    #[arg(long, value_name = "DIR", env = "POINTSMAN_COMPILE_CACHE")]
    compile_cache: Option<PathBuf>,
}

impl Compile {
    /// The settings of a sandbox that loads files.
    pub(crate) fn config(&self, mut config: SandboxConfig) -> SandboxConfig {
        config.compile.worker = Some(WorkerCommand::this_program());
        config.compile.cache = self.compile_cache.clone().or(config.compile.cache);
        config
    }
}
