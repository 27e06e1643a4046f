//! `pointsman config`: checks router-policy files.

mod check;

use crate::error::CliError;

/// Checks router-policy files.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    Check(check::Check),
}

impl Command {
    pub(crate) fn run(self) -> Result<(), CliError> {
        match self {
            Self::Check(check) => check.run(),
        }
    }
}
