//! `pointsman policy test`: a policy's own cases, or those of the conformance kit.

use std::path::{Path, PathBuf};

use pointsman_sandbox::{Artifact, Sandbox};

use super::cases::Cases;
use super::small;
use crate::compile::Compile;
use crate::error::CliError;
use crate::{output, source};

/// The conformance kit: for each policy that has a reference in Rust, what that decides.
const CONFORMANCE: &[(&str, &str)] = &[
    ("least-loaded-warm", include_str!("../../../../guest-sdk/conformance/least-loaded-warm.json")),
    ("max-in-flight", include_str!("../../../../guest-sdk/conformance/max-in-flight.json")),
];

/// Runs a policy's test cases.
///
/// Each case has a guest of its own. A case names parameters, facts, texts and workers as a table of `policy run`, and
/// what must come of it; or steps that happen to a classifier. docs/languages.md has the form.
#[derive(clap::Args)]
pub(crate) struct Test {
    /// A built-in policy's name, a component's file, or a policy's folder, which is built first.
    #[arg(value_name = "NAME|FILE.wasm|DIR", default_value = ".")]
    policy: String,
    /// The cases, YAML or JSON; cases.yaml in the policy's folder unless given.
    #[arg(long, value_name = "FILE")]
    cases: Option<PathBuf>,
    /// Run the conformance kit's cases of the policy of this name.
    #[arg(long, conflicts_with = "cases")]
    conformance: bool,
    #[command(flatten)]
    compile: Compile,
}

impl Test {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let artifact = source::artifact_or_folder(&self.policy)?;
        let sandbox = Sandbox::new(self.compile.config(small()))?;
        let (policy, profile) = source::load_any(&sandbox, &artifact)?;
        let mut failed = 0;
        let cases = self.cases(&artifact, &policy.manifest().name)?;
        let count = cases.cases.len();
        for case in cases.cases {
            let name = case.name.clone();
            let result = case.run(&policy, profile);
            failed += usize::from(result.is_err());
            match result {
                Err(message) => output::text(&format!("FAILED  {}: {}", shown(&name), shown(&message)))?,
                // A kit has hundreds.
                Ok(()) if self.conformance => {}
                Ok(()) => output::text(&format!("ok      {}", shown(&name)))?,
            }
        }
        output::text(&format!("{} passed, {failed} failed", count - failed))?;
        if failed == 0 { Ok(()) } else { Err(CliError::Cases { failed, count }) }
    }

    fn cases(&self, artifact: &Artifact, name: &str) -> Result<Cases, CliError> {
        if self.conformance {
            let known = || CONFORMANCE.iter().map(|(name, _)| *name).collect();
            let kit = CONFORMANCE.iter().find(|(known, _)| *known == name);
            let (_, text) = kit.ok_or_else(|| CliError::NoKit { name: name.to_owned(), known: known() })?;
            return Cases::parse(text).map_err(|message| CliError::Table { file: name.to_owned(), message });
        }
        let beside = || Path::new(&self.policy).join("cases.yaml");
        let path = match &self.cases {
            Some(path) => path.clone(),
            None if beside().is_file() => beside(),
            None => return Err(CliError::NoCases { policy: artifact.origin().to_owned() }),
        };
        let text = std::fs::read_to_string(&path).map_err(|source| CliError::Read { path: path.clone(), source })?;
        Cases::parse(&text).map_err(|message| CliError::Table { file: path.display().to_string(), message })
    }
}

fn shown(text: &str) -> std::borrow::Cow<'_, str> {
    output::printable(text)
}
