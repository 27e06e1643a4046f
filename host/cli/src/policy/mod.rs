//! `pointsman policy`: builds, lists, inspects and tries out policies.

mod build;
mod inspect;
mod list;
mod run;
mod table_check;
mod table_file;

use pointsman_contract::Stages;
use pointsman_sandbox::SandboxConfig;

use crate::error::CliError;

/// Builds, lists, inspects and tries out policies.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    Build(build::Build),
    List(list::List),
    Inspect(inspect::Inspect),
    Run(run::Run),
}

impl Command {
    pub(crate) fn run(self) -> Result<(), CliError> {
        match self {
            Self::Build(build) => build.run(),
            Self::List(list) => list.run(),
            Self::Inspect(inspect) => inspect.run(),
            Self::Run(run) => run.run(),
        }
    }
}

/// The settings of a sandbox for a few guests at a time.
fn small() -> SandboxConfig {
    SandboxConfig { guests: 4, ..SandboxConfig::default() }
}

/// The stages by name.
fn stage_names(stages: Stages) -> Vec<&'static str> {
    let named =
        [(stages.filter, "filter"), (stages.score, "score"), (stages.pick, "pick"), (stages.classify, "classify")];
    named.into_iter().filter_map(|(has, name)| has.then_some(name)).collect()
}
