//! `pointsman policy new`: a folder that builds and passes its own tests as it is.

use std::path::Path;

use pointsman_languages::{Language, Stage};

use crate::error::CliError;
use crate::output;

/// Makes a folder with a policy to begin with, its test cases and the SDK.
#[derive(clap::Args)]
pub(crate) struct New {
    /// The policy's name, which is the folder's too.
    name: String,
    /// The language: rust, js (JavaScript and TypeScript), python, go or c.
    #[arg(long, value_name = "LANGUAGE")]
    lang: Language,
    /// The stages: any of filter, score and pick, or classify alone.
    #[arg(long, value_name = "STAGES", value_delimiter = ',', default_value = "score")]
    stages: Vec<Stage>,
}

impl New {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let dir = pointsman_languages::new(Path::new("."), &self.name, self.lang, &self.stages)?;
        output::text(&format!(
            "made {}: `pointsman policy test {}` builds it and runs its cases",
            output::printable(&dir.display().to_string()),
            self.name
        ))?;
        Ok(())
    }
}
