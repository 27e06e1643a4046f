//! What the command can fail with; each becomes lines `error: <one sentence>` and exit code 1.

use std::io;
use std::path::PathBuf;

use pointsman_build::BuildError;
use pointsman_replay::{ReplayError, TraceError};
use pointsman_routing::RouterError;
use pointsman_routing::config::{OverrideError, Problem, Problems};
use pointsman_sandbox::{LoadError, SandboxError, StartError};

/// What the command can fail with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error(transparent)]
    Router(#[from] RouterError),
    #[error(transparent)]
    Problems(#[from] Problems),
    #[error("{}", lines(.0))]
    Many(Vec<Problem>),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error(transparent)]
    Override(#[from] OverrideError),
    #[error("{option} says something of a router-policy file, and none is given; add --router-policy-config FILE")]
    NeedsConfig { option: &'static str },
    #[error("a replay of 0 requests shows nothing; give a --limit of at least 1")]
    NoRequests,
    #[error("the policy `default` takes no parameters; give them to dynamo-default-cost-fn, which has its rules")]
    DefaultParameters,
    #[error(
        "there is no built-in policy `{name}`; give one of default, {}, or a file with --component", available.join(", ")
    )]
    UnknownBuiltIn { name: String, available: Vec<&'static str> },
    #[error("{policy} cannot start: {source}")]
    Start { policy: String, source: StartError },
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error(
        "`default` is compiled into the router and is no component; name dynamo-default-cost-fn, which has its rules"
    )]
    NativeDefault,
    #[error("there is no built-in policy and no file `{name}`; the built-in policies are {}", available.join(", "))]
    UnknownPolicy { name: String, available: Vec<&'static str> },
    #[error("{option} is not a JSON object: {message}")]
    Parameters { option: &'static str, message: String },
    #[error("{file}: {message}")]
    Table { file: String, message: String },
}

/// Each problem on a line of its own.
fn lines(problems: &[Problem]) -> String {
    problems.iter().map(|problem| problem.to_string() + "\n").collect()
}
