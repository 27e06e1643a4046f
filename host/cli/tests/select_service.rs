//! `pointsman select-service` as a process: what it prints, what it warns of, and how it stops. What it answers is tested
//! with the crate that serves it, and beside Dynamo's own service.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may end by a panic")]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use common::{error, pointsman, run};

/// A running service; it ends with the test.
struct Service {
    child: Child,
    address: String,
}

impl Service {
    fn start(arguments: &[&str]) -> Self {
        let mut command = pointsman();
        command.args(["select-service", "--port", "0"]).args(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("selection service at http://").map(str::to_owned);
        Self { child, address: address.unwrap_or_else(|| panic!("{line:?}")) }
    }

    /// The answer to a call, with its head.
    fn call(&self, line: &str, body: &str) -> String {
        let mut connection = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        write!(
            connection,
            "{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Asks it to end; answers its exit code and what it wrote to its log.
    fn terminate(mut self) -> (Option<i32>, String) {
        assert!(Command::new("kill").arg(self.child.id().to_string()).status().unwrap().success());
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        (self.child.wait().unwrap().code(), log)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn it_prints_its_address_answers_there_and_ends_when_asked() {
    let service = Service::start(&[]);
    assert!(service.address.starts_with("127.0.0.1:"), "{}", service.address);
    assert!(service.call("GET /health", "").ends_with(r#"{"status":"ok"}"#));
    let worker = r#"{"worker_id": 1, "endpoint": "http://127.0.0.1:9001", "block_size": 16}"#;
    assert!(service.call("POST /workers", worker).starts_with("HTTP/1.1 201 "));
    let answer = service.call("POST /select_and_reserve", r#"{"token_ids": [1, 2, 3], "selection_id": "a"}"#);
    assert!(answer.contains(r#""worker_id":1"#), "{answer}");
    let (code, log) = service.terminate();
    assert_eq!((code, log.as_str()), (Some(0), ""));
}

#[test]
fn policies_of_roles_that_it_does_not_serve_are_one_warning() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("policy.yaml");
    let yaml = "
worker_selection:
  aggregated: mine
  prefill: mine
  instances: [{name: mine, type: least-loaded}]
  partitions: [{model: m, encode: mine}]
";
    std::fs::write(&file, yaml).unwrap();
    let (code, log) = Service::start(&["--router-policy-config", file.to_str().unwrap()]).terminate();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(log.contains("policies of the roles prefill, encode decide nothing here"), "{log}");
}

#[test]
fn an_address_in_use_is_an_error() {
    let taken = Service::start(&[]);
    let port = taken.address.rsplit(':').next().unwrap();
    let said = error(&run(["select-service", "--port", port]));
    assert!(said.contains(&taken.address) && said.ends_with("choose another address"), "{said}");
}
