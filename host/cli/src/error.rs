//! What the command can fail with; each becomes lines `error: <one sentence>` and exit code 1.

use std::io;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use pointsman_build::BuildError;
use pointsman_languages::LanguageError;
use pointsman_mock::MockError;
use pointsman_record::RecordError;
use pointsman_replay::{ReplayError, TraceError};
use pointsman_routing::RouterError;
use pointsman_routing::config::{OverrideError, Problem, Problems};
use pointsman_sandbox::{LoadError, SandboxError, StartError};
use pointsman_server::ServeError;
use pointsman_server::predicted::KvEventsError;
use pointsman_signals::TokenizerError;

use crate::output::printable;

/// What the command can fail with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error(transparent)]
    Language(#[from] LanguageError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error(transparent)]
    Router(#[from] RouterError),
    #[error(transparent)]
    Problems(#[from] Problems),
    #[error("{} problems", .0.len())]
    Many(Vec<Problem>),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error(transparent)]
    Override(#[from] OverrideError),
    #[error("{option} says something of a router-policy file, and none is given; add --router-policy-config FILE")]
    NeedsConfig { option: &'static str },
    #[error("{} cannot be replayed: {source}", path.display())]
    Record { path: PathBuf, source: RecordError },
    #[error("{differ} of {compared} decisions came out otherwise than recorded; the first are listed above")]
    Differs { differ: u64, compared: u64 },
    #[error(
        "{} is not replayable: its beginning is missing, so that the state of its guests is not known; record from the \
         start of the run", path.display()
    )]
    BeginningMissing { path: PathBuf },
    #[error("--parameters is one policy's, and several are replaced; give one --component")]
    ParametersOfMany,
    #[error("the thread of the shadow cannot start: {0}")]
    Shadow(#[source] io::Error),
    #[error("a --shadow-share of {0} is not possible; give a number above 0 and up to 1, such as 0.1")]
    ShadowShare(f64),
    #[error("a replay of 0 requests shows nothing; give a --limit of at least 1")]
    NoRequests,
    #[error("a --speed of {speed} is not possible; give a number from {} to {}", range.start(), range.end())]
    Speed { speed: String, range: RangeInclusive<f64> },
    #[error("{other} and {option} both name {}; give {option} a file of its own", path.display())]
    Shared { other: &'static str, option: &'static str, path: PathBuf },
    #[error("the policy `default` takes no parameters; give them to dynamo-default-cost-fn, which has its rules")]
    DefaultParameters,
    #[error(
        "there is no built-in policy `{name}`; give one of default, {}, or a file with --component", available.join(", ")
    )]
    UnknownBuiltIn { name: String, available: Vec<&'static str> },
    #[error("{policy} cannot start: {source}")]
    Start { policy: String, source: StartError },
    #[error(transparent)]
    Mock(#[from] MockError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    Traces(#[from] pointsman_server::ops::trace::TraceError),
    #[error("the decision log {path} cannot be written: {source}; give a path in a folder that you may write to")]
    DecisionLog { path: String, source: std::io::Error },
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    #[error(transparent)]
    KvEvents(#[from] KvEventsError),
    #[error("a {option} of {value} is no time that can pass; give a number from 0 on")]
    Duration { option: &'static str, value: f64 },
    #[error("{failed} of {count} cases failed; they are listed above")]
    Cases { failed: usize, count: usize },
    #[error("{policy} has no cases of its own beside it; name a file of them with --cases, or its folder")]
    NoCases { policy: String },
    #[error("the conformance kit has no cases of `{name}`; it has those of {}", known.join(", "))]
    NoKit { name: String, known: Vec<&'static str> },
    #[error("{policy} has {problems} problems; they are listed above")]
    Checks { policy: String, problems: usize },
    #[error("{policy} cannot be measured: {message}")]
    Bench { policy: String, message: String },
    #[error("--limit {given} {reason}")]
    Limit { given: String, reason: String },
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
    #[error("{option}: the key `{key}` comes twice in one object; keep one of the two")]
    KeyTwice { option: &'static str, key: String },
    #[error("{file}: {message}")]
    Table { file: String, message: String },
}

impl CliError {
    /// The sentences, one a line: several for the problems of a router-policy file, else one.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let said: Vec<String> = match self {
            Self::Problems(problems) => problems.iter().map(Problem::to_string).collect(),
            Self::Many(problems) => problems.iter().map(Problem::to_string).collect(),
            other => vec![other.to_string()],
        };
        // Names, paths and a policy's words stand within; none of them begins a line.
        said.iter().map(|sentence| printable(sentence.trim_end()).into_owned()).collect()
    }
}
