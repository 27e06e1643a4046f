//! `pointsman select-service` as a process: what it prints, what it warns of, and how it stops. What it answers is tested
//! with the crate that serves it, and beside Dynamo's own service.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may end by a panic")]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use common::process::Process;
use common::{error, pointsman, run};

/// A running service, whose log is kept; it ends with the test.
struct Service(Process);

impl Service {
    fn start(arguments: &[&str]) -> Self {
        let mut command = pointsman();
        command.args(["select-service", "--port", "0"]).args(arguments).stderr(Stdio::piped());
        Self(Process::of(command, "selection service at"))
    }

    /// The answer to a call, with its head.
    fn call(&self, line: &str, body: &str) -> String {
        let mut connection = TcpStream::connect(self.0.address()).unwrap();
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
}

#[test]
fn it_prints_its_address_answers_there_and_ends_when_asked() {
    let service = Service::start(&[]);
    assert!(service.0.address().starts_with("127.0.0.1:"), "{}", service.0.printed);
    assert!(service.call("GET /health", "").ends_with(r#"{"status":"ok"}"#));
    let worker = r#"{"worker_id": 1, "endpoint": "http://127.0.0.1:9001", "block_size": 16}"#;
    assert!(service.call("POST /workers", worker).starts_with("HTTP/1.1 201 "));
    let answer = service.call("POST /select_and_reserve", r#"{"token_ids": [1, 2, 3], "selection_id": "a"}"#);
    assert!(answer.contains(r#""worker_id":1"#), "{answer}");
    let (code, log) = service.0.stop();
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
    let (code, log) = Service::start(&["--router-policy-config", file.to_str().unwrap()]).0.stop();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(log.contains("policies of the roles prefill, encode decide nothing here"), "{log}");
}

#[test]
fn an_address_in_use_is_an_error() {
    let taken = Service::start(&[]);
    let port = taken.0.address().rsplit(':').next().unwrap();
    let said = error(&run(["select-service", "--port", port]));
    assert!(said.contains(taken.0.address()) && said.ends_with("choose another address"), "{said}");
}
