//! Servers and engines as processes of their own, and a plain client for them.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::pointsman;

/// A running command that listens; it ends with the test.
pub struct Process {
    pub child: Child,
    /// What it printed, up to the line that was waited for.
    pub printed: String,
}

impl Process {
    /// Starts a command and reads what it prints until a line contains `last`.
    pub fn start(arguments: &[&str], last: &str) -> Self {
        let mut command = pointsman();
        command.args(arguments);
        Self::of(command, last)
    }

    /// The same of a command as it is.
    pub fn of(mut command: Command, last: &str) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut printed = String::new();
        while !printed.lines().last().is_some_and(|line| line.contains(last)) {
            let line = lines.next().unwrap_or_else(|| panic!("it ended after {printed:?}")).unwrap();
            writeln!(printed, "{line}").unwrap();
        }
        Self { child, printed }
    }

    /// Where it listens, as HOST:PORT.
    pub fn address(&self) -> &str {
        let address = self.printed.lines().find_map(|line| Some(line.split_once(" http://")?.1));
        address.unwrap_or_else(|| panic!("{}", self.printed))
    }

    pub fn terminate(&self) {
        assert!(Command::new("kill").arg(self.child.id().to_string()).status().unwrap().success());
    }

    /// Asks it to end; answers its exit code, and what it wrote to its log where that is piped.
    pub fn stop(mut self) -> (Option<i32>, String) {
        self.terminate();
        let mut log = String::new();
        if let Some(mut errors) = self.child.stderr.take() {
            errors.read_to_string(&mut log).unwrap();
        }
        (self.child.wait().unwrap().code(), log)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An engine as a process of its own.
pub fn engine(speedup: &str) -> Process {
    Process::start(&["mock-worker", "--speedup-ratio", speedup], "listening on")
}

/// A server in front of engines, with a router-policy file in `folder`.
pub fn server(folder: &Path, engines: &[&Process], policies: &str) -> Process {
    let mut text = "listen: 127.0.0.1:0\nworkers:\n".to_owned();
    for (worker, engine) in (1..).zip(engines) {
        let url = engine.address();
        writeln!(text, "  - {{worker_id: {worker}, model_name: mock, endpoint: 'http://{url}', block_size: 16}}")
            .unwrap();
    }
    let (config, policy) = (folder.join("server.yaml"), folder.join("policy.yaml"));
    fs::write(&config, text).unwrap();
    fs::write(&policy, policies).unwrap();
    let (config, policy) = (config.display().to_string(), policy.display().to_string());
    Process::start(&["serve", "--config", &config, "--router-policy-config", &policy], "listening on")
}

/// A chat's answer as it comes, header included.
pub fn chat(address: &str, text: &str, max_tokens: u32, stream: bool) -> TcpStream {
    let body = format!(
        r#"{{"model": "mock", "max_tokens": {max_tokens}, "stream": {stream}, "messages": [{{"role": "user", "content": "{text}"}}]}}"#
    );
    let mut connection = TcpStream::connect(address).unwrap();
    connection.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(
        connection,
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\nconnection: close\r\n\
         x-pointsman-explain: true\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    connection
}

pub fn whole(mut connection: TcpStream) -> String {
    let mut text = String::new();
    connection.read_to_string(&mut text).unwrap();
    text
}

/// A field of the header that explains the routing.
pub fn explained(answer: &str, field: &str) -> String {
    let line = answer.lines().find_map(|line| line.strip_prefix("x-pointsman-decision: "));
    let line = line.unwrap_or_else(|| panic!("{answer}"));
    let fields = line.split("; ").filter_map(|part| part.split_once('='));
    fields.filter(|(name, _)| *name == field).map(|(_, value)| value.to_owned()).next().unwrap()
}
