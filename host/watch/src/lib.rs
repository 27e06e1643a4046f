//! Reloads a running router's policies when the router-policy file or one of its artifacts changes.
//!
//! A [`Watcher`] looks at the files' metadata every so often; what has changed and then held still for one look is loaded
//! beside what runs, and takes over when all of it is sound. What is not sound is told once and changes nothing.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pointsman_routing::config::PolicyConfig;
use pointsman_routing::{Activation, Router};

/// What the watcher has to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// A changed configuration holds.
    Activated(Activation),
    /// A change is not sound; what ran goes on. One sentence, or one a line for each problem of the file.
    Refused(String),
}

/// Watches one router-policy file for a router. Dropping it ends the watch.
#[derive(Debug)]
pub struct Watcher {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Starts to watch `file`, which the router was built with, and its artifacts, a look every `every`. `tell` is called
    /// on the watcher's thread.
    ///
    /// # Errors
    /// Where the thread cannot be started.
    pub fn start(
        router: Arc<Router>,
        file: PathBuf,
        every: Duration,
        mut tell: impl FnMut(WatchEvent) + Send + 'static,
    ) -> std::io::Result<Self> {
        let started = Instant::now();
        // Before the thread starts, so that no change after this call is missed.
        let mut files = Files::of(file);
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new().name("pointsman-watch".to_owned()).spawn(move || {
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                if !files.have_changed() {
                    continue;
                }
                let now_ms = started.elapsed().as_secs_f64() * 1_000.0;
                let event = match files.reload(&router, now_ms) {
                    Ok(activation) => WatchEvent::Activated(activation),
                    Err(message) => {
                        tracing::error!(message, "a changed configuration is refused; what ran goes on");
                        WatchEvent::Refused(message)
                    }
                };
                tell(event);
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of `tell` was reported by its thread.
            let _ = thread.join();
        }
    }
}

/// What tells one state of a file from another; none where there is no such file.
type Stamp = Option<[i64; 5]>;

fn stamp(path: &Path) -> Stamp {
    let found = std::fs::metadata(path).ok()?;
    Some([found.ino() as i64, found.size() as i64, found.mtime(), found.mtime_nsec(), found.ctime_nsec()])
}

/// The file, its artifacts, and how they looked.
struct Files {
    file: PathBuf,
    artifacts: BTreeSet<PathBuf>,
    /// As they were when they were loaded, or refused.
    known: BTreeMap<PathBuf, Stamp>,
    /// As they were at the last look.
    last: BTreeMap<PathBuf, Stamp>,
}

impl Files {
    fn of(file: PathBuf) -> Self {
        let mut files = Self { file, artifacts: BTreeSet::new(), known: BTreeMap::new(), last: BTreeMap::new() };
        if let Ok(config) = PolicyConfig::load(&files.file) {
            files.artifacts = config.artifact_files();
        }
        files.known = files.look();
        files.last.clone_from(&files.known);
        files
    }

    fn look(&self) -> BTreeMap<PathBuf, Stamp> {
        std::iter::once(&self.file).chain(&self.artifacts).map(|path| (path.clone(), stamp(path))).collect()
    }

    /// Whether anything differs from what was loaded, and is as it was at the last look: who writes a file is not done
    /// at once.
    fn have_changed(&mut self) -> bool {
        let now = self.look();
        let still = now == self.last;
        self.last = now;
        still && self.last != self.known
    }

    fn reload(&mut self, router: &Router, now_ms: f64) -> Result<Activation, String> {
        let before = self.last.clone();
        let config = PolicyConfig::load(&self.file).map_err(|problems| problems.to_string());
        if let Ok(config) = &config {
            // A file that is named newly may be as new as the name.
            self.artifacts = config.artifact_files();
        }
        self.last = self.look();
        // What changed while it was read is looked at again.
        self.known = self.last.iter().map(|(path, now)| (path.clone(), *before.get(path).unwrap_or(now))).collect();
        let loaded = router.load(config?).map_err(|error| error.to_string())?;
        router.activate(loaded, now_ms).map_err(|error| error.to_string())
    }
}
