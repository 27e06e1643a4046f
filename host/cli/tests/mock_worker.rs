//! `pointsman mock-worker` as a process.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use common::{error, pointsman, run};

/// Stopped however the test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ask(address: &str, request: &str) -> String {
    let mut connection = TcpStream::connect(address).unwrap();
    write!(connection, "{request}\r\nhost: mock\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_mock_worker_says_where_it_is_serves_and_ends_when_it_is_told_to() {
    let mut command = pointsman();
    command.args(["mock-worker", "--model", "tiny", "--data-parallel-size", "2", "--kv-events", "tcp://127.0.0.1:0"]);
    let mut running = Running(command.args(["--control"]).stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(running.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let address = lines.next().unwrap().strip_prefix("listening on http://").unwrap().to_owned();
    for rank in 0..2 {
        let line = lines.next().unwrap();
        assert!(line.starts_with(&format!("KV events of rank {rank} at tcp://127.0.0.1:")), "{line}");
    }
    let models = ask(&address, "GET /v1/models HTTP/1.1");
    assert!(models.starts_with("HTTP/1.1 200") && models.contains("\"id\":\"tiny\""), "{models}");
    assert!(ask(&address, "GET /mock/failures HTTP/1.1").starts_with("HTTP/1.1 200"));

    let told = Command::new("kill").args(["-TERM", &running.0.id().to_string()]).status().unwrap();
    assert!(told.success());
    assert!(running.0.wait().unwrap().success());
}

#[test]
fn what_it_cannot_be_is_said_in_one_sentence() {
    let sentence = error(&run(["mock-worker", "--decode-ms-per-token=-1"]));
    assert_eq!(sentence, "a --decode-ms-per-token of -1 is no time that can pass; give a number from 0 on");
    let sentence = error(&run(["mock-worker", "--kv-events", "here"]));
    assert!(sentence.starts_with("KV events cannot be published at here: "), "{sentence}");
}
