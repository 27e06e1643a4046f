//! A worker's answer on its way to the client, as it comes: what it tells of the request's load is read in passing.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use hyper::body::Incoming;
use serde_json::json;
use tokio::time::{Instant, Sleep, sleep};

use super::Permit;
use crate::pool::Lease;

/// What a stream of OpenAI's ends with.
const LAST_EVENT: &[u8] = b"data: [DONE]";

/// An answer broke off, and its client is told by a connection that ends.
#[derive(Debug, thiserror::Error)]
#[error("the worker's answer broke off: {0}")]
pub(crate) struct Broken(String);

/// The life of one request on its worker, as its answer shows it.
pub(crate) struct Watch {
    pub(crate) lease: Lease,
    pub(crate) prompt_tokens: u64,
    pub(crate) block_size: u64,
    pub(crate) events: Events,
    /// Tokens of prompt and answer as the worker counts them, once it has told.
    total_tokens: Option<u32>,
    reported_blocks: u64,
}

impl Watch {
    pub(crate) fn new(lease: Lease, prompt_tokens: u64) -> Self {
        let block_size = u64::from(lease.partition().block_size().max(1));
        let reported_blocks = prompt_tokens.div_ceil(block_size);
        Self { lease, prompt_tokens, block_size, events: Events::default(), total_tokens: None, reported_blocks }
    }

    /// Takes note of a piece of the answer.
    fn see(&mut self, piece: &[u8], streams: bool) {
        if let Some(tokens) = total_tokens(piece) {
            self.total_tokens = Some(tokens);
        }
        if !streams {
            return;
        }
        self.events.see(piece);
        let context = self.prompt_tokens + self.events.count;
        let blocks = context.div_ceil(self.block_size);
        if blocks > self.reported_blocks {
            self.lease.output(blocks - self.reported_blocks, context.try_into().unwrap_or(u32::MAX));
            self.reported_blocks = blocks;
        }
    }
}

/// Counts the events of a stream, each of which counts as one token.
#[derive(Debug, Default)]
pub(crate) struct Events {
    count: u64,
    /// Whether the last line was empty, or nothing has come yet: another event may begin here.
    between: bool,
    begun: bool,
}

impl Events {
    fn see(&mut self, piece: &[u8]) {
        for byte in piece {
            match byte {
                b'\n' if self.begun && !self.between => self.between = true,
                b'\n' if self.begun => {
                    self.count += 1;
                    self.begun = false;
                }
                b'\r' => {}
                _ => (self.between, self.begun) = (false, true),
            }
        }
    }
}

/// The last number after `"total_tokens":` in a piece of an answer.
fn total_tokens(piece: &[u8]) -> Option<u32> {
    const KEY: &[u8] = b"\"total_tokens\":";
    let place = piece.windows(KEY.len()).rposition(|window| window == KEY)?;
    let digits = piece.get(place + KEY.len()..)?.iter().skip_while(|byte| **byte == b' ');
    let digits: String = digits.take_while(|byte| byte.is_ascii_digit()).map(|byte| char::from(*byte)).collect();
    digits.parse().ok()
}

/// The body of an answer that streams from a worker.
pub(crate) struct Relay {
    worker: Incoming,
    first: Option<Frame<Bytes>>,
    watch: Option<Watch>,
    /// Whether the answer is a stream of events, which can end with one that says what went wrong.
    streams: bool,
    /// Fields to be written into the answer's first object.
    insert: Option<String>,
    /// When the last piece came.
    last: Instant,
    /// Ends when nothing may have come for too long: it is set anew when it has, not with each piece.
    idle: Pin<Box<Sleep>>,
    longest_idle: Duration,
    _permit: Permit,
    done: bool,
}

impl Relay {
    pub(crate) fn new(
        worker: Incoming,
        first: Option<Frame<Bytes>>,
        watch: Option<Watch>,
        streams: bool,
        insert: Option<String>,
        longest_idle: Duration,
        permit: Permit,
    ) -> Self {
        let (last, idle) = (Instant::now(), Box::pin(sleep(longest_idle)));
        let mut relay =
            Self { worker, first, watch, streams, insert, last, idle, longest_idle, _permit: permit, done: false };
        if relay.is_over() {
            // An empty body is never polled.
            relay.end();
        }
        relay
    }

    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if self.done {
            return Poll::Ready(None);
        }
        let next = match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(first))),
            None => Pin::new(&mut self.worker).poll_frame(cx),
        };
        match next {
            Poll::Ready(Some(Ok(frame))) => {
                self.last = Instant::now();
                Poll::Ready(Some(Ok(self.pass(frame))))
            }
            Poll::Ready(Some(Err(error))) => self.break_off("worker_failed", &error.to_string()),
            Poll::Ready(None) => {
                self.end();
                Poll::Ready(None)
            }
            Poll::Pending => match self.poll_idle(cx) {
                Poll::Ready(()) => self.break_off("worker_timeout", "it sent nothing more"),
                Poll::Pending => Poll::Pending,
            },
        }
    }

    /// Ready once nothing has come for too long.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = self.last + self.longest_idle;
        while self.idle.as_mut().poll(cx).is_ready() {
            if Instant::now() >= deadline {
                return Poll::Ready(());
            }
            self.idle.as_mut().reset(deadline);
        }
        Poll::Pending
    }

    fn pass(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        let Some(piece) = frame.data_ref() else { return frame };
        if let Some(watch) = &mut self.watch {
            watch.see(piece, self.streams);
            // The client may ask again as soon as it has read this; a body of a known length is not polled past it.
            if self.worker.is_end_stream() || (self.streams && piece.trim_ascii_end().ends_with(LAST_EVENT)) {
                self.complete();
            }
        }
        let Some(place) = self.insert.as_ref().and_then(|_| piece.iter().position(|byte| *byte == b'{')) else {
            return frame;
        };
        let (head, tail) = piece.split_at(place + 1);
        let fields = self.insert.take().unwrap_or_default();
        Frame::data([head, fields.as_bytes(), b",", tail].concat().into())
    }

    /// Whether nothing more will come.
    pub(crate) fn is_over(&self) -> bool {
        self.done || (self.first.is_none() && self.worker.is_end_stream())
    }

    /// The request is served.
    fn complete(&mut self) {
        if let Some(Watch { lease, total_tokens, prompt_tokens, events, .. }) = self.watch.take() {
            let counted = || u32::try_from(prompt_tokens + events.count).ok().filter(|_| events.count > 0);
            lease.complete(total_tokens.or_else(counted));
        }
    }

    fn end(&mut self) {
        self.done = true;
        self.complete();
    }

    /// The worker failed after the first byte: a stream of events ends with one that says so, anything else is cut off.
    fn break_off(&mut self, code: &'static str, reason: &str) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        self.done = true;
        if self.streams && self.watch.is_none() {
            // Its last event has gone out.
            return Poll::Ready(None);
        }
        let between = self.watch.as_ref().is_none_or(|watch| !watch.events.begun);
        if let Some(watch) = self.watch.take() {
            tracing::warn!(worker = %watch.lease.decision().worker, reason, "the worker's answer broke off");
            watch.lease.abort(format!("the worker's answer broke off: {reason}"));
        }
        if !self.streams {
            return Poll::Ready(Some(Err(Broken(reason.to_owned()))));
        }
        let message = "the worker failed before its answer was complete; send the request again";
        let error = json!({"error": {"message": message, "type": "server_error", "param": null, "code": code}});
        let event = format!("{}data: {error}\n\n", if between { "" } else { "\n\n" });
        Poll::Ready(Some(Ok(Frame::data(event.into()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(pieces: &[&str]) -> u64 {
        let mut events = Events::default();
        for piece in pieces {
            events.see(piece.as_bytes());
        }
        events.count
    }

    #[test]
    fn events_are_counted_wherever_they_are_cut() {
        assert_eq!(count(&["data: a\n\ndata: b\n\n"]), 2);
        assert_eq!(count(&["data: a\n", "\ndata", ": b\n\n\n\n"]), 2);
        assert_eq!(count(&["data: a\r\n\r\n", "data: b\r\n\r", "\n"]), 2);
        assert_eq!(count(&["data: a\nid: 1\n"]), 0, "an event ends with an empty line");
    }

    #[test]
    fn the_last_total_of_tokens_counts() {
        assert_eq!(total_tokens(br#"{"total_tokens":3,"x":{"total_tokens": 41}}"#), Some(41));
        assert_eq!(total_tokens(br#"{"total_tokens":null}"#), None);
        assert_eq!(total_tokens(b"total_tokens"), None);
    }
}
