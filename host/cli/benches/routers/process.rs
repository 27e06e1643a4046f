//! A router as a process: started, looked at, ended with all that it started itself.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Ticks of a second in `/proc`.
const TICKS: u32 = 100;

pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a command that writes to a log.
    pub fn start(command: &mut Command, log: PathBuf) -> Result<Self, String> {
        let file = File::create(&log).map_err(|error| error.to_string())?;
        let errors = file.try_clone().map_err(|error| error.to_string())?;
        command.stdin(Stdio::null()).stdout(file).stderr(errors);
        let child = command.spawn().map_err(|error| format!("{:?}: {error}", command.get_program()))?;
        Ok(Self { child, log })
    }

    /// How it ended, where it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// The end of its log.
    pub fn last_words(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(3)..].join(" / ")
    }

    /// The time that it and its children have computed.
    pub fn spent(&self) -> Duration {
        let spent = |pid| -> Option<u32> {
            let fields = stat(pid)?;
            // User and system time, the 14th and 15th of all fields.
            Some(fields.get(11)?.parse::<u32>().ok()? + fields.get(12)?.parse::<u32>().ok()?)
        };
        Duration::from_secs(1) * self.all().into_iter().filter_map(spent).sum() / TICKS
    }

    /// What it and its children have in memory, in bytes.
    pub fn resident(&self) -> u64 {
        let resident = |pid| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
            line.trim().trim_end_matches(" kB").parse::<u64>().ok()
        };
        self.all().into_iter().filter_map(resident).sum::<u64>() * 1024
    }

    /// It and its children.
    fn all(&self) -> Vec<u32> {
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
            let parent = |pid| stat(pid)?.get(1)?.parse::<u32>().ok();
            if let Some((pid, parent)) = pid.and_then(|pid| Some((pid, parent(pid)?))) {
                children.entry(parent).or_default().push(pid);
            }
        }
        let mut all = vec![self.child.id()];
        let mut place = 0;
        while let Some(pid) = all.get(place) {
            all.extend(children.get(pid).into_iter().flatten());
            place += 1;
        }
        all
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended().is_some() {
            return;
        }
        for pid in self.all() {
            if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        let _ = self.child.wait();
    }
}

/// The fields of a process from its state on, the third of all.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}
