//! What a run tells while it goes on: a progress bar on a terminal, and the file of decisions.

use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pointsman_replay::{DecisionLine, Observer};

use crate::files::OutputFile;
use crate::output;

/// Hears of one run.
pub(super) struct Listener<'a> {
    decisions: Option<&'a mut OutputFile>,
    bar: ProgressBar,
}

impl<'a> Listener<'a> {
    pub(super) fn new(label: &str, requests: usize, decisions: Option<&'a mut OutputFile>) -> Self {
        let target =
            if io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(requests as u64), target);
        if let Ok(style) = ProgressStyle::with_template("{prefix:24} {bar:32} {pos}/{len} {eta}") {
            bar.set_style(style);
        }
        bar.set_prefix(output::printable(label).into_owned());
        Self { decisions, bar }
    }
}

impl Observer for Listener<'_> {
    fn decision(&mut self, line: &DecisionLine<'_>) -> io::Result<()> {
        let Some(file) = &mut self.decisions else { return Ok(()) };
        let file = file.writer()?;
        serde_json::to_writer(&mut *file, line)?;
        file.write_all(b"\n")
    }

    fn progress(&mut self, requests: u64) {
        self.bar.set_position(requests);
    }
}

impl Drop for Listener<'_> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
