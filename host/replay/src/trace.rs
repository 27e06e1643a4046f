//! Traces: requests with their arrival time, lengths and block ids, read from a file or generated.

mod azure;
mod generated;
mod lines;
mod mooncake;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use pointsman_contract::Trigger;
use rustc_hash::{FxHashMap, FxHashSet};

use lines::Lines;

/// Tokens of one KV block, in both formats.
pub const BLOCK_SIZE: u32 = 512;

/// Requests of the trace that is generated where none is given.
pub const GENERATED_REQUESTS: usize = 2_000;

/// The longest prompt or answer that a trace may hold, in tokens.
const MAX_TOKENS: u64 = 100_000_000;

/// The latest arrival that a trace may hold, in milliseconds: some thirty years.
const MAX_TIMESTAMP_MS: u64 = 1_000_000_000_000;

/// The longest session id, in bytes. (Dynamo's limit.)
const MAX_SESSION_ID_BYTES: usize = 256;

/// Why a trace cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be opened or read.
    #[error("cannot read the trace {origin}: {source}")]
    Read {
        /// The file.
        origin: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The first line belongs to no known format.
    #[error(
        "{origin} line {line}: this is neither a Mooncake trace (one JSON object a line) nor an Azure trace (a CSV with \
         the header TIMESTAMP,ContextTokens,GeneratedTokens)"
    )]
    UnknownFormat {
        /// The file.
        origin: String,
        /// The line, counted from 1.
        line: u64,
    },
    /// A line is not as its format wants it.
    #[error("{origin} line {line}: {problem}")]
    Line {
        /// The file.
        origin: String,
        /// The line, counted from 1.
        line: u64,
        /// What is wrong with it, and what would be right.
        problem: String,
    },
    /// The trace has no request.
    #[error("{origin} holds no request; a trace needs at least one")]
    Empty {
        /// The file.
        origin: String,
    },
}

/// One request of a trace, with borrowed views of its texts and blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TraceRequest<'a> {
    /// Arrival in microseconds of trace time.
    pub arrival_us: u64,
    /// Tokens of the prompt.
    pub input_tokens: u32,
    /// Tokens of the answer.
    pub output_tokens: u32,
    /// Ids of the prompt's blocks: equal ids stand for the same prefix. Empty where the trace has none.
    pub block_ids: &'a [u64],
    /// The session.
    pub session_id: Option<&'a str>,
    /// The session that started this one.
    pub parent_session_id: Option<&'a str>,
    /// Whether this is the session's last request.
    pub session_final: Option<bool>,
    /// What set the request off.
    pub input_trigger: Option<Trigger>,
    /// The worker that must serve the request.
    pub pinned_worker: Option<u64>,
    /// Dynamo's priority jump.
    pub priority: f64,
    /// The policy class that the caller asks for.
    pub policy_class: Option<&'a str>,
}

impl TraceRequest<'_> {
    /// The prompt in blocks, rounded up.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        u64::from(self.input_tokens).div_ceil(u64::from(BLOCK_SIZE))
    }
}

/// A whole trace in memory: rows of fixed size, all block ids in one list, every session's name once.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// What it was read from; empty where it was generated.
    origin: String,
    rows: Vec<Row>,
    block_ids: Vec<u64>,
    /// The names of sessions and policy classes, each once.
    sessions: Vec<Box<str>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Row {
    /// The line in the file, counted from 1.
    line: u64,
    arrival_us: u64,
    first_block: usize,
    pinned_worker: Option<u64>,
    priority: f64,
    input_tokens: u32,
    output_tokens: u32,
    blocks: u32,
    session: Option<u32>,
    parent_session: Option<u32>,
    session_final: Option<bool>,
    input_trigger: Option<Trigger>,
    policy_class: Option<u32>,
}

impl Trace {
    /// Reads a trace file. Its first line that is not blank tells the format: Mooncake's JSON lines or Azure's CSV.
    /// With a limit, reading stops after that many requests.
    ///
    /// # Errors
    /// Where the file cannot be read, holds no request, or has a line that is malformed, cut off, negative, out of
    /// order or of unknown fields; the error names the line.
    pub fn open(path: &Path, limit: Option<usize>) -> Result<Self, TraceError> {
        let origin = path.display().to_string();
        match File::open(path) {
            Ok(file) => Self::read(&origin, BufReader::with_capacity(1 << 16, file), limit),
            Err(source) => Err(TraceError::Read { origin, source }),
        }
    }

    /// Reads a trace from anything; `origin` names it in errors.
    ///
    /// # Errors
    /// As [`Trace::open`].
    pub fn read(origin: &str, reader: impl BufRead, limit: Option<usize>) -> Result<Self, TraceError> {
        let mut builder = Builder::default();
        let mut lines = Lines::new(origin, reader);
        let limit = limit.unwrap_or(usize::MAX);
        if limit > 0 && lines.advance()? {
            if lines.text()?.starts_with('{') {
                mooncake::read(&mut lines, &mut builder, limit)?;
            } else if azure::is_header(lines.text()?) {
                azure::read(&mut lines, &mut builder, limit)?;
            } else {
                return Err(TraceError::UnknownFormat { origin: origin.to_owned(), line: lines.number() });
            }
        }
        if builder.trace.rows.is_empty() {
            return Err(TraceError::Empty { origin: origin.to_owned() });
        }
        Ok(Self { origin: origin.to_owned(), ..builder.trace })
    }

    /// A trace that is made up: multi-turn conversations whose prompts extend the previous prompt and answer, behind
    /// system prompts that conversations share. The same seed and count give the same trace on every machine.
    #[must_use]
    pub fn generated(seed: u64, requests: usize) -> Self {
        generated::trace(seed, requests)
    }

    /// How many requests there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The prompts in blocks, summed over the requests.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.requests().map(|request| request.blocks()).sum()
    }

    /// Whether the trace tells which blocks are equal.
    #[must_use]
    pub fn has_block_ids(&self) -> bool {
        !self.block_ids.is_empty()
    }

    /// The request of that index.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<TraceRequest<'_>> {
        self.rows.get(index).map(|row| self.view(row))
    }

    /// Where the request of that index comes from, for messages: the file and its line, or its place among those that
    /// were generated.
    #[must_use]
    pub fn place(&self, index: usize) -> String {
        match self.rows.get(index) {
            Some(row) if !self.origin.is_empty() => format!("{} line {}", self.origin, row.line),
            _ => format!("request {index} of the generated trace (counted from 0)"),
        }
    }

    /// The requests by arrival.
    pub fn requests(&self) -> impl ExactSizeIterator<Item = TraceRequest<'_>> {
        self.rows.iter().map(|row| self.view(row))
    }

    fn view(&self, row: &Row) -> TraceRequest<'_> {
        let name =
            |session: Option<u32>| session.and_then(|session| self.sessions.get(session as usize)).map(|name| &**name);
        TraceRequest {
            arrival_us: row.arrival_us,
            input_tokens: row.input_tokens,
            output_tokens: row.output_tokens,
            block_ids: self.block_ids.get(row.first_block..row.first_block + row.blocks as usize).unwrap_or_default(),
            session_id: name(row.session),
            parent_session_id: name(row.parent_session),
            session_final: row.session_final,
            input_trigger: row.input_trigger,
            pinned_worker: row.pinned_worker,
            priority: row.priority,
            policy_class: name(row.policy_class),
        }
    }

    /// Gives each request without a session one, by the prompts alone: a request continues the session whose latest
    /// prompt, but for its last block, is the longest beginning of its own, and begins a session where there is none. The
    /// last block is left out since it is rarely full, and then another one as soon as the session goes on.
    pub fn derive_sessions(&mut self) {
        // The session whose latest prompt ends with that block; an id stands for all blocks before it too.
        let mut ends: FxHashMap<u64, u32> = FxHashMap::default();
        for index in 0..self.rows.len() {
            let Some(row) = self.rows.get_mut(index) else { continue };
            let blocks = self.block_ids.get(row.first_block..row.first_block + row.blocks as usize).unwrap_or_default();
            let known = blocks.iter().rev().find_map(|id| ends.remove(id));
            let session = match (row.session, known) {
                (Some(session), _) | (None, Some(session)) => session,
                (None, None) => {
                    self.sessions.push(format!("derived-{index}").into());
                    (self.sessions.len() - 1) as u32
                }
            };
            row.session = Some(session);
            let full = blocks.split_last().map(|(_, full)| full).filter(|full| !full.is_empty()).unwrap_or(blocks);
            if let Some(end) = full.last() {
                ends.insert(*end, session);
            }
        }
    }
}

/// Takes requests in and keeps their texts once. A problem is a sentence; the reader adds file and line.
#[derive(Default)]
struct Builder {
    trace: Trace,
    numbers: FxHashMap<Box<str>, u32>,
    seen: FxHashSet<u64>,
    /// Whether there was a prompt without block ids.
    without_ids: bool,
}

/// What is wrong with so many ids for a prompt of so many blocks.
fn ids_do_not_fit(ids: usize, tokens: u32) -> String {
    let blocks = tokens.div_ceil(BLOCK_SIZE);
    let plural = if ids == 1 { "" } else { "s" };
    format!(
        "`hash_ids` has {ids} id{plural} where a prompt of {tokens} tokens needs {blocks}; give one for each block of {BLOCK_SIZE} \
         tokens"
    )
}

impl Builder {
    fn push(&mut self, request: &TraceRequest<'_>) -> Result<(), String> {
        if self.trace.rows.last().is_some_and(|previous| request.arrival_us < previous.arrival_us) {
            return Err("the timestamp is before that of the previous request; sort the trace by time".to_owned());
        }
        if self.without_ids && !request.block_ids.is_empty() {
            return Err(
                "this request has `hash_ids` and the ones before it have none; give them to all or to none".to_owned()
            );
        }
        if self.trace.has_block_ids() && request.block_ids.is_empty() && request.input_tokens > 0 {
            return Err("`hash_ids` is missing; give it to all requests or to none".to_owned());
        }
        if !request.block_ids.is_empty() && request.block_ids.len() as u64 != request.blocks() {
            return Err(ids_do_not_fit(request.block_ids.len(), request.input_tokens));
        }
        self.seen.clear();
        if let Some(id) = request.block_ids.iter().find(|id| !self.seen.insert(**id)) {
            return Err(format!("`hash_ids` repeats {id}; an id stands for a block and all blocks before it"));
        }
        if request.session_id.is_none() {
            let orphan = [
                ("parent_session_id", request.parent_session_id.is_some()),
                ("session_final", request.session_final.is_some()),
                ("input_trigger", request.input_trigger.is_some()),
            ];
            if let Some((field, _)) = orphan.into_iter().find(|(_, present)| *present) {
                return Err(format!("`{field}` needs a `session_id` in the same request"));
            }
        }
        let row = Row {
            line: 0,
            arrival_us: request.arrival_us,
            first_block: self.trace.block_ids.len(),
            pinned_worker: request.pinned_worker,
            priority: request.priority,
            input_tokens: request.input_tokens,
            output_tokens: request.output_tokens,
            blocks: request.block_ids.len() as u32,
            session: self.session("session_id", request.session_id)?,
            parent_session: self.session("parent_session_id", request.parent_session_id)?,
            session_final: request.session_final,
            input_trigger: request.input_trigger,
            policy_class: self.session("policy_class", request.policy_class)?,
        };
        self.without_ids |= request.input_tokens > 0 && request.block_ids.is_empty();
        self.trace.block_ids.extend_from_slice(request.block_ids);
        self.trace.rows.push(row);
        Ok(())
    }

    /// Tells the line of the last request.
    fn locate(&mut self, line: u64) {
        if let Some(row) = self.trace.rows.last_mut() {
            row.line = line;
        }
    }

    fn session(&mut self, field: &str, name: Option<&str>) -> Result<Option<u32>, String> {
        let Some(name) = name else { return Ok(None) };
        if name.is_empty() || name.len() > MAX_SESSION_ID_BYTES {
            return Err(format!("`{field}` has {} bytes; an id has 1 to {MAX_SESSION_ID_BYTES}", name.len()));
        }
        if let Some(number) = self.numbers.get(name) {
            return Ok(Some(*number));
        }
        let number = self.trace.sessions.len() as u32;
        self.trace.sessions.push(name.into());
        self.numbers.insert(name.into(), number);
        Ok(Some(number))
    }
}

#[cfg(test)]
mod tests;
