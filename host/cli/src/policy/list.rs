//! `pointsman policy list`: the built-in policies.

use std::sync::Arc;
use std::thread;

use pointsman_policies::BuiltIn;
use pointsman_sandbox::{CompiledPolicy, LoadError, Profile, Sandbox};
use serde_json::json;

use super::{small, stage_names};
use crate::error::CliError;
use crate::{output, source};

/// Lists the built-in policies.
#[derive(clap::Args)]
pub(crate) struct List {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl List {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let sandbox = Sandbox::new(small())?;
        let mut table = output::table(&["NAME", "VERSION", "STAGES", "DESCRIPTION"]);
        let mut values = Vec::new();
        for policy in load_all(&sandbox, pointsman_policies::all()) {
            let policy = policy?;
            let manifest = policy.manifest();
            let stages = stage_names(policy.stages());
            values.push(json!({
                "name": manifest.name,
                "version": manifest.version,
                "stages": stages,
                "description": manifest.description,
            }));
            table.add_row([&manifest.name, &manifest.version, &stages.join(", "), &manifest.description]);
        }
        if self.json {
            output::json(&values)?;
        } else {
            output::text(&output::rendered(&table))?;
        }
        Ok(())
    }
}

type Loaded = Result<Arc<CompiledPolicy>, LoadError>;

/// Loads policies, in order. Each is compiled, so every processor takes its share.
fn load_all(sandbox: &Sandbox, policies: &[BuiltIn]) -> Vec<Loaded> {
    let shares = thread::available_parallelism().map_or(1, usize::from);
    let load = |built_in: &BuiltIn| sandbox.load(&source::built_in(built_in), Profile::default());
    thread::scope(|scope| {
        let shares: Vec<_> = policies
            .chunks(policies.len().div_ceil(shares).max(1))
            .map(|share| scope.spawn(move || share.iter().map(load).collect::<Vec<Loaded>>()))
            .collect();
        // A thread that panics takes the whole command with it, as on one thread.
        shares
            .into_iter()
            .flat_map(|share| share.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}
