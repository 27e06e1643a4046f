//! Engines that answer at once, with what they have at hand: what is measured in front of them is the routers' own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::load::{ANSWER_TOKENS, MODEL};

/// Between two events of a stream.
const PACE: Duration = Duration::from_millis(1);
/// Of a connection's thread, of which there are many.
const STACK: usize = 128 << 10;

/// Starts an engine, which runs as long as this process.
pub fn start() -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let serving = thread::Builder::new().stack_size(STACK);
            // Whoever hung up is served no more.
            serving.spawn(move || _ = serve(connection)).unwrap();
        }
    });
    address
}

fn serve(mut connection: TcpStream) -> std::io::Result<()> {
    connection.set_nodelay(true)?;
    let whole = answer("application/json", &completion());
    let (first, events, last) = stream();
    let mut request = Vec::new();
    while read(&mut connection, &mut request)? {
        if request.starts_with(b"GET ") {
            connection.write_all(&asked(&request))?;
        } else if !contains(&request, b"\"stream\":true") {
            connection.write_all(&whole)?;
        } else {
            let begun = Instant::now();
            connection.write_all(&first)?;
            for (place, event) in (1..).zip(&events) {
                thread::sleep((begun + PACE * place).saturating_duration_since(Instant::now()));
                connection.write_all(event)?;
            }
            connection.write_all(&last)?;
        }
    }
    Ok(())
}

/// Reads a whole request, of either framing; none comes after the last.
fn read(connection: &mut TcpStream, request: &mut Vec<u8>) -> std::io::Result<bool> {
    request.clear();
    let mut piece = [0; 16 << 10];
    loop {
        let count = connection.read(&mut piece)?;
        if count == 0 {
            return Ok(false);
        }
        request.extend_from_slice(&piece[..count]);
        let Some(head) = request.windows(4).position(|window| window == b"\r\n\r\n").map(|place| place + 4) else {
            continue;
        };
        let fields = String::from_utf8_lossy(&request[..head]).to_ascii_lowercase();
        let length = fields.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
        let complete = match length {
            Some(length) => request.len() >= head + length,
            None if fields.contains("transfer-encoding: chunked") => request.ends_with(b"0\r\n\r\n"),
            None => true,
        };
        if complete {
            return Ok(true);
        }
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn answer(content_type: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        .into_bytes()
}

/// What a router asks before it sends requests, answered as vLLM does.
fn asked(request: &[u8]) -> Vec<u8> {
    let models = || {
        let model = format!(r#"{{"id":"{MODEL}","object":"model","created":1,"owned_by":"vllm","root":"{MODEL}"}}"#);
        answer("application/json", &format!(r#"{{"object":"list","data":[{model}]}}"#))
    };
    let metrics = || {
        ["num_requests_running", "num_requests_waiting"].map(|name| format!("vllm:{name}{{engine=\"0\"}} 0\n")).concat()
    };
    match request.split(|byte| *byte == b' ').nth(1).unwrap_or_default() {
        b"/health" => answer("text/plain", ""),
        b"/v1/models" => models(),
        b"/version" => answer("application/json", r#"{"version":"0.20.0"}"#),
        b"/metrics" => answer("text/plain", &metrics()),
        _ => b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec(),
    }
}

fn completion() -> String {
    let text = "word ".repeat(ANSWER_TOKENS);
    format!(
        r#"{{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"{MODEL}","choices":[{{"index":0,"message":{{"role":"assistant","content":"{text}"}},"logprobs":null,"finish_reason":"stop"}}],"usage":{{"prompt_tokens":60,"completion_tokens":{ANSWER_TOKENS},"total_tokens":{}}}}}"#,
        60 + ANSWER_TOKENS
    )
}

/// The head of a stream with its first event, the further events, and the end.
fn stream() -> (Vec<u8>, Vec<Vec<u8>>, Vec<u8>) {
    let event = |delta: &str, reason: &str| {
        let text = format!(
            "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"{MODEL}\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"logprobs\":null,\"finish_reason\":{reason}}}]}}\n\n"
        );
        format!("{:x}\r\n{text}\r\n", text.len())
    };
    let word = || event(r#"{"content":"word "}"#, "null");
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
    let first = format!("{head}{}", event(r#"{"role":"assistant","content":"word "}"#, "null"));
    let events = (1..ANSWER_TOKENS).map(|_| word().into_bytes()).collect();
    let done = "data: [DONE]\n\n";
    let last = format!("{}{:x}\r\n{done}\r\n0\r\n\r\n", event("{}", "\"stop\""), done.len());
    (first.into_bytes(), events, last.into_bytes())
}
