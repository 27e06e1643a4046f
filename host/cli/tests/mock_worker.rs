//! `pointsman mock-worker` as a process.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;

use common::process::Process;
use common::{error, run};

fn ask(address: &str, request: &str) -> String {
    let mut connection = TcpStream::connect(address).unwrap();
    write!(connection, "{request}\r\nhost: mock\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_mock_worker_says_where_it_is_serves_and_ends_when_it_is_told_to() {
    let engine = ["mock-worker", "--model", "tiny", "--data-parallel-size", "2", "--kv-events", "tcp://127.0.0.1:0"];
    let running = Process::start(&[&engine[..], &["--control"]].concat(), "KV events of rank 1 at");
    let mut lines = running.printed.lines();
    let address = lines.next().unwrap().strip_prefix("listening on http://").unwrap();
    for rank in 0..2 {
        let line = lines.next().unwrap();
        assert!(line.starts_with(&format!("KV events of rank {rank} at tcp://127.0.0.1:")), "{line}");
    }
    let models = ask(address, "GET /v1/models HTTP/1.1");
    assert!(models.starts_with("HTTP/1.1 200") && models.contains("\"id\":\"tiny\""), "{models}");
    assert!(ask(address, "GET /mock/failures HTTP/1.1").starts_with("HTTP/1.1 200"));

    assert_eq!(running.stop().0, Some(0));
}

#[test]
fn what_it_cannot_be_is_said_in_one_sentence() {
    let sentence = error(&run(["mock-worker", "--decode-ms-per-token=-1"]));
    assert_eq!(sentence, "a --decode-ms-per-token of -1 is no time that can pass; give a number from 0 on");
    let sentence = error(&run(["mock-worker", "--kv-events", "here"]));
    assert!(sentence.starts_with("KV events cannot be published at here: "), "{sentence}");
}
