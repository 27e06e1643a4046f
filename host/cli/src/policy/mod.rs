//! `pointsman policy`: makes, builds, lists, inspects, tests and measures policies.

mod bench;
mod build;
mod cases;
mod check;
mod inspect;
mod list;
mod new;
mod run;
mod table_check;
mod table_file;
mod test;
mod trial;

use pointsman_contract::{Partition, Role, Stages};
use pointsman_routing::DEFAULT;
use pointsman_sandbox::SandboxConfig;

use crate::error::CliError;

/// Makes, builds, lists, inspects, tests and measures policies.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    New(new::New),
    Build(build::Build),
    Test(test::Test),
    Check(check::Check),
    Bench(bench::Bench),
    List(list::List),
    Inspect(inspect::Inspect),
    Run(run::Run),
}

impl Command {
    pub(crate) fn run(self) -> Result<(), CliError> {
        match self {
            Self::New(new) => new.run(),
            Self::Build(build) => build.run(),
            Self::Test(test) => test.run(),
            Self::Check(check) => check.run(),
            Self::Bench(bench) => bench.run(),
            Self::List(list) => list.run(),
            Self::Inspect(inspect) => inspect.run(),
            Self::Run(run) => run.run(),
        }
    }
}

/// What one compilation of an author's own may take, in milliseconds: their machine may be slow, or busy with much else.
const WALL_MS: u64 = 600_000;

/// The settings of a sandbox for a few guests at a time.
fn small() -> SandboxConfig {
    let mut config = SandboxConfig { guests: 4, ..SandboxConfig::default() };
    config.compile.limits.compact.wall_ms = WALL_MS;
    config.compile.limits.engine.wall_ms = WALL_MS;
    config
}

pub(crate) use build::components;

/// The partition that a policy is tried in.
fn partition() -> Partition {
    Partition {
        model: DEFAULT.to_owned(),
        routing_group: DEFAULT.to_owned(),
        role: Role::default(),
        block_size: 16,
        seed: 0,
    }
}

/// The stages by name.
fn stage_names(stages: Stages) -> Vec<&'static str> {
    let named =
        [(stages.filter, "filter"), (stages.score, "score"), (stages.pick, "pick"), (stages.classify, "classify")];
    named.into_iter().filter_map(|(has, name)| has.then_some(name)).collect()
}
