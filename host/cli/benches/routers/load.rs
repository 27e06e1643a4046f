//! The clients: each has one connection, asks, reads the whole answer, and asks again.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The model that every request asks for.
pub const MODEL: &str = "tiny";
/// Tokens of every answer, an event each where it streams.
pub const ANSWER_TOKENS: usize = 16;
/// Before anything counts.
const WARM_UP: Duration = Duration::from_millis(100);
/// An answer that takes longer has failed.
const LONGEST: Duration = Duration::from_secs(10);
/// Different prompts; each shares its beginning with the others, as those of one application do.
const PROMPTS: usize = 64;
/// Of a client's thread.
const STACK: usize = 128 << 10;

/// What the clients do.
#[derive(Clone, Copy)]
pub struct Load {
    pub name: &'static str,
    pub clients: usize,
    pub streams: bool,
}

/// What came of it.
#[derive(Default)]
pub struct Turn {
    /// Each answer's time, sorted.
    pub times: Vec<Duration>,
    /// Answers that were complete within the turn's time.
    pub answers: u64,
    pub seconds: f64,
    /// What `spent` grew by meanwhile.
    pub spent: Duration,
    pub failed: u64,
}

impl Turn {
    pub fn quantile(&self, share: f64) -> Duration {
        let place = (self.times.len() as f64 * share) as usize;
        self.times.get(place.min(self.times.len().saturating_sub(1))).copied().unwrap_or_default()
    }
}

/// Lets the clients ask those addresses for that long; `spent` is read at the beginning and at the end.
pub fn run(targets: &[SocketAddr], load: Load, long: Duration, spent: impl Fn() -> Duration) -> Turn {
    let (counts, stop) = (&AtomicBool::new(false), &AtomicBool::new(false));
    let (answers, failed) = (&AtomicU64::new(0), &AtomicU64::new(0));
    thread::scope(|scope| {
        let client = |number: usize| {
            let target = targets[number % targets.len()];
            let asks = move || {
                let (mut times, mut connection, mut buffer) = (Vec::with_capacity(1 << 14), None, Vec::new());
                for place in number.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let (counted, begun) = (counts.load(Ordering::Relaxed), Instant::now());
                    match ask(&mut connection, target, &request(load.streams, place * 7), &mut buffer) {
                        Ok(()) => {
                            answers.fetch_add(1, Ordering::Relaxed);
                            if counted {
                                times.push(begun.elapsed());
                            }
                        }
                        Err(error) => {
                            if failed.fetch_add(1, Ordering::Relaxed) == 0 {
                                eprintln!("{target}: {error}");
                            }
                            connection = None;
                            thread::sleep(Duration::from_millis(10));
                        }
                    }
                }
                times
            };
            thread::Builder::new().stack_size(STACK).spawn_scoped(scope, asks).unwrap()
        };
        let clients: Vec<_> = (0..load.clients).map(client).collect();
        thread::sleep(WARM_UP);
        let (spent_before, answers_before, begun) = (spent(), answers.load(Ordering::Relaxed), Instant::now());
        counts.store(true, Ordering::Relaxed);
        thread::sleep(long);
        let answers = answers.load(Ordering::Relaxed) - answers_before;
        let (spent, seconds) = (spent().saturating_sub(spent_before), begun.elapsed().as_secs_f64());
        stop.store(true, Ordering::Relaxed);
        let mut times: Vec<Duration> = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
        times.sort_unstable();
        Turn { times, answers, seconds, spent, failed: failed.load(Ordering::Relaxed) }
    })
}

/// One request, answered; what it was answered otherwise.
pub fn try_out(target: SocketAddr) -> io::Result<()> {
    ask(&mut None, target, &request(false, 0), &mut Vec::new())
}

fn request(streams: bool, number: usize) -> Vec<u8> {
    let number = number % PROMPTS;
    let body = format!(
        r#"{{"model":"{MODEL}","messages":[{{"role":"system","content":"You are the assistant of a railway. Answer in one short sentence, and say so where you do not know."}},{{"role":"user","content":"Passenger {number} asks: when does train number {number} leave, from which platform, and is there a seat left in the last coach?"}}],"max_tokens":{ANSWER_TOKENS},"temperature":0.7,"stream":{streams}}}"#
    );
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\naccept: */*\r\nuser-agent: bench\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn ask(connection: &mut Option<TcpStream>, target: SocketAddr, request: &[u8], buffer: &mut Vec<u8>) -> io::Result<()> {
    let stream = match connection {
        Some(stream) => stream,
        None => {
            let stream = TcpStream::connect(target)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(LONGEST))?;
            connection.insert(stream)
        }
    };
    stream.write_all(request)?;
    buffer.clear();
    let (mut piece, mut frame) = ([0; 16 << 10], None);
    loop {
        let count = stream.read(&mut piece)?;
        if count == 0 {
            return Err(io::Error::other("the connection was closed within an answer"));
        }
        buffer.extend_from_slice(&piece[..count]);
        let frame = match frame {
            Some(frame) => frame,
            None => match head(buffer) {
                Some(known) => *frame.insert(known),
                None => continue,
            },
        };
        let over = match frame {
            Frame::Ends(place) => buffer.len() >= place,
            Frame::Chunked => buffer.ends_with(b"\r\n0\r\n\r\n"),
        };
        if over {
            break;
        }
    }
    match buffer.starts_with(b"HTTP/1.1 200") {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(buffer).into_owned())),
    }
}

/// Where an answer ends.
#[derive(Clone, Copy)]
enum Frame {
    Ends(usize),
    Chunked,
}

fn head(buffer: &[u8]) -> Option<Frame> {
    let end = buffer.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let fields = String::from_utf8_lossy(&buffer[..end]).to_ascii_lowercase();
    let length = fields.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    Some(length.map_or(Frame::Chunked, |length| Frame::Ends(end + length)))
}
