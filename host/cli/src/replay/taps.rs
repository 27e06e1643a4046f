//! What listens to a replay's decisions: the record of them, and a candidate in their shadow.

use std::fmt::Write;
use std::path::Path;

use pointsman_contract::Role;
use pointsman_record::{Recorder, Shadow, ShadowOptions, ShadowReport, WhenFull};
use pointsman_replay::BLOCK_SIZE;
use pointsman_routing::{DEFAULT, PartitionKey, Router, Tap};
use serde::Serialize;

use super::arguments::Policy;
use crate::error::CliError;
use crate::observing::{RecordOptions, Recording};
use crate::output;

/// Decisions that may wait for the candidate. A live decision waits for it when they are more.
const WAITING: usize = 256;

/// The options of recording and of the shadow.
#[derive(clap::Args)]
pub(super) struct TapOptions {
    #[command(flatten)]
    pub(super) recording: RecordOptions,
    /// A built-in policy, `default`, a component or a router-policy file (.yaml) that decides a share of the decisions
    /// too, beside each policy of the replay, and is compared with it.
    #[arg(long, value_name = "NAME|FILE")]
    shadow: Option<String>,
    /// The parameters of the policy of --shadow.
    #[arg(long, value_name = "JSON", requires = "shadow")]
    shadow_parameters: Option<String>,
    /// The share of the decisions that it makes.
    #[arg(long, value_name = "SHARE", default_value_t = 0.1, requires = "shadow", allow_negative_numbers = true)]
    shadow_share: f64,
}

impl TapOptions {
    /// The candidate, with its parameters.
    pub(super) fn candidate(&self) -> Option<(Policy, Option<String>)> {
        let name = self.shadow.as_ref()?;
        let is_yaml = Path::new(name).extension().is_some_and(|ext| ext == "yaml" || ext == "yml");
        let policy = match name {
            name if name == DEFAULT || pointsman_policies::get(name).is_some() => Policy::Named(name.clone()),
            name if is_yaml => Policy::Config(name.into()),
            name if Path::new(name).exists() || name.contains(['.', '/']) => Policy::Component(name.into()),
            // Names what there is.
            name => Policy::Named(name.clone()),
        };
        Some((policy, self.shadow_parameters.clone()))
    }

    pub(super) fn refuse_impossible(&self) -> Result<(), CliError> {
        if self.shadow_share > 0.0 && self.shadow_share <= 1.0 {
            return Ok(());
        }
        Err(CliError::ShadowShare(self.shadow_share))
    }
}

/// What listens, over all runs of a replay.
pub(super) struct Taps<'a> {
    options: &'a TapOptions,
    recording: Option<Recording>,
    candidate: Option<Router>,
    seed: u64,
    roles: &'a [Role],
}

/// What the shadow of one partition of one run came to.
#[derive(Serialize)]
pub(super) struct Shadowed {
    policy: String,
    role: &'static str,
    shadow: String,
    #[serde(flatten)]
    report: ShadowReport,
}

impl<'a> Taps<'a> {
    pub(super) fn open(
        options: &'a TapOptions,
        candidate: Option<Router>,
        seed: u64,
        roles: &'a [Role],
    ) -> Result<Self, CliError> {
        let recording = options.recording.open(|file, most_bytes| Ok(Recorder::new(file, most_bytes)))?;
        Ok(Self { options, recording, candidate, seed, roles })
    }

    /// Has them listen to `router` while `run` runs.
    pub(super) fn around<T>(
        &self,
        label: &str,
        router: &Router,
        shadowed: &mut Vec<Shadowed>,
        run: impl FnOnce() -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        let mut shadows = Vec::new();
        for role in self.roles {
            let key = PartitionKey::of_role(*role);
            let mut taps: Vec<Box<dyn Tap>> = Vec::new();
            taps.extend(self.recording.as_ref().map(|recording| recording.recorder.tap(label)));
            if let Some(candidate) = &self.candidate {
                let (stand_in, candidate) =
                    (router.on_snapshots(&key, BLOCK_SIZE)?, candidate.on_snapshots(&key, BLOCK_SIZE)?);
                let options = ShadowOptions {
                    share: self.options.shadow_share,
                    seed: self.seed,
                    waiting: WAITING,
                    when_full: WhenFull::Wait,
                };
                let (shadow, tap) = Shadow::start(stand_in, candidate, options).map_err(CliError::Shadow)?;
                shadows.push((*role, shadow));
                taps.push(tap);
            }
            router.partition(&key, BLOCK_SIZE)?.set_taps(taps);
        }
        let ran = run()?;
        shadowed.extend(shadows.into_iter().map(|(role, shadow)| Shadowed {
            policy: label.to_owned(),
            role: role.as_str(),
            shadow: self.options.shadow.clone().unwrap_or_default(),
            report: shadow.finish(),
        }));
        Ok(ran)
    }

    /// Ends the record.
    pub(super) fn finish(self) -> Result<(), CliError> {
        self.recording.map_or(Ok(()), Recording::finish)
    }
}

/// The shadows for people.
pub(super) fn as_text(shadowed: &[Shadowed]) -> String {
    let headings =
        ["POLICY", "ROLE", "SHADOW", ">COMPARED", ">AGREED", ">RANKS", ">FUEL", ">TIME", ">FAULTS", ">STAND-IN"];
    let mut table = output::table(&headings);
    for Shadowed { policy, role, shadow, report } in shadowed {
        let ratio = |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}x"));
        let share = |share: Option<f64>| share.map_or_else(|| "-".to_owned(), |share| format!("{:.1}%", share * 100.0));
        table.add_row([
            output::printable(policy).into_owned(),
            (*role).to_owned(),
            output::printable(shadow).into_owned(),
            output::grouped(report.compared),
            share(report.agreement),
            report.cost_rank_correlation.map_or_else(|| "-".to_owned(), |ranks| format!("{ranks:.3}")),
            ratio(report.fuel_ratio),
            ratio(report.time_ratio),
            output::grouped(report.faults.values().sum()),
            share(report.stand_in_agreement),
        ]);
    }
    let mut out = output::rendered(&table) + "\n";
    for Shadowed { policy, report, .. } in shadowed {
        for (outcome, count) in &report.faults {
            let _ =
                writeln!(out, "{}: {} x {outcome} in the shadow", output::printable(policy), output::grouped(*count));
        }
    }
    out
}
