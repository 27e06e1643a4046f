//! What listens to a server's decisions: the record of them, and the log that explains them.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pointsman_record::Recorder;
use pointsman_routing::{Partition, Router, Tap};
use pointsman_server::observe::{Observer, Observers};
use pointsman_server::ops::DecisionLog;
use pointsman_server::ops::decisions::Explained;

use crate::error::CliError;
use crate::files::OutputFile;
use crate::output;

/// A crash loses what was decided since.
const FLUSH: Duration = Duration::from_secs(5);

/// The options of recording.
#[derive(clap::Args)]
pub(crate) struct RecordOptions {
    /// Records each decision with its inputs, for `pointsman record`.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// The largest size of that file, in bytes; recording stops there.
    #[arg(long, value_name = "N", default_value_t = 256 << 20, requires = "record",
          value_parser = clap::value_parser!(u64).range(65_536..))]
    record_bytes: u64,
}

/// The options of recording and of the decision log.
#[derive(clap::Args)]
pub(crate) struct Observing {
    #[command(flatten)]
    recording: RecordOptions,
    /// A file that explained decisions are appended to, a JSON object a line: who was eligible, at what cost, and why the
    /// others lost.
    #[arg(long, value_name = "FILE")]
    decision_log: Option<PathBuf>,
    /// The share of decisions that the decision log explains, from 0 to 1.
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, requires = "decision_log", value_parser = share)]
    decision_log_share: f64,
}

fn share(text: &str) -> Result<f64, &'static str> {
    text.parse().ok().filter(|share| (0.0..=1.0).contains(share)).ok_or("a share is a number from 0 to 1")
}

/// A record that is being written.
pub(crate) struct Recording {
    path: PathBuf,
    pub(crate) recorder: Recorder,
}

impl RecordOptions {
    /// Opens the record, where one is wanted. `start` makes its recorder, of the file and the most bytes.
    pub(crate) fn open(
        &self,
        start: impl FnOnce(OutputFile, u64) -> io::Result<Recorder>,
    ) -> Result<Option<Recording>, CliError> {
        let Some(path) = &self.record else { return Ok(None) };
        let recorder = start(OutputFile::open(path)?, self.record_bytes);
        let recorder = recorder.map_err(|source| CliError::Write { path: path.clone(), source })?;
        Ok(Some(Recording { path: path.clone(), recorder }))
    }
}

impl Observing {
    /// Starts what listens to the router's partitions, on the current tokio runtime.
    pub(crate) fn start(&self, router: &Arc<Router>) -> Result<(Arc<dyn Observer>, Option<Recording>), CliError> {
        let mut observers: Vec<Arc<dyn Observer>> = Vec::new();
        if let Some(path) = &self.decision_log {
            observers.push(Arc::new(decision_log(router, path, self.decision_log_share)?));
        }
        let recording = self.recording.open(Recorder::in_background)?;
        if let Some(Recording { recorder, .. }) = &recording {
            let flushed = recorder.clone();
            tokio::spawn(async move {
                let mut due = tokio::time::interval(FLUSH);
                while !flushed.is_closed() {
                    due.tick().await;
                    flushed.flush();
                }
                tracing::warn!(
                    "nothing more is recorded: the file is full or cannot be written; the command's end says which"
                );
            });
            observers.push(Arc::new(Records(recorder.clone())));
        }
        Ok((Arc::new(Observers::from_iter(observers)), recording))
    }
}

impl Recording {
    /// Ends the record, and warns where it is not whole.
    pub(crate) fn finish(self) -> Result<(), CliError> {
        let Self { path, recorder } = self;
        let written = recorder.finish().map_err(|source| CliError::Write { path: path.clone(), source })?;
        let (path, decisions) = (path.display(), output::grouped(written.decisions));
        if written.full {
            output::warning(&format!(
                "{path} is full: it holds the first {decisions} decisions; give a larger --record-bytes for more"
            ))?;
        }
        if written.dropped > 0 {
            let dropped = output::grouped(written.dropped);
            output::warning(&format!(
                "{path} lacks {dropped} decisions: it could not be written as fast as they came; give a path on a faster disk"
            ))?;
        }
        Ok(())
    }
}

/// Records every partition.
struct Records(Recorder);

impl Observer for Records {
    fn taps(&self, partition: &Partition) -> Vec<Box<dyn Tap>> {
        vec![self.0.tap(&partition.policy_name())]
    }
}

/// Appends explained decisions to the file.
fn decision_log(router: &Arc<Router>, path: &Path, share: f64) -> Result<DecisionLog, CliError> {
    let failed = |source| CliError::DecisionLog { path: path.display().to_string(), source };
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
    let mut lost = false;
    let write = move |explained: &Explained| {
        let mut line = serde_json::to_string(explained).unwrap_or_default();
        line.push('\n');
        let written = file.write_all(line.as_bytes());
        // Said once, until it can be written again.
        if let Err(error) = &written
            && !lost
        {
            tracing::warn!(%error, "the decision log cannot be written");
        }
        lost = written.is_err();
    };
    DecisionLog::start(router, share, Box::new(write)).map_err(failed)
}
