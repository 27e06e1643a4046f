//! Reads what a recorder wrote, whole or cut.

use std::collections::BTreeMap;
use std::sync::Arc;

use pointsman_routing::{ExtraNames, PolicySpec, PolicyState, Snapshot};

use crate::code::{In, Malformed};
use crate::entry::{self, Ended};
use crate::error::RecordError;
use crate::frame::{Frame, Frames, Kind};

/// A file of decisions.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a>(&'a [u8]);

/// How a file ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// As its recorder ended it.
    Complete,
    /// At its largest size.
    Full,
    /// Somewhere: the recorder did not end, or the end is missing.
    Cut,
}

/// What is in a file.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Summary {
    /// Whether it begins where its recorder began.
    pub begins: bool,
    /// How it ends.
    pub ends: End,
    /// Frames that can be read.
    pub frames: u64,
    /// Bytes that cannot, a cut frame at the end aside.
    pub passed_over_bytes: u64,
    /// Decisions that can be read.
    pub decisions: u64,
    /// What decided them.
    pub policies: Vec<Policy>,
}

/// One policy of one partition in a file.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Policy {
    /// The name that the recorder was given for the partition.
    pub label: String,
    /// What the policy was built from.
    #[serde(skip)]
    pub spec: Arc<PolicySpec>,
    /// Its decisions.
    pub decisions: u64,
    /// Those that another decided in its place, and those refused, by the fault or the error.
    pub otherwise: BTreeMap<String, u64>,
    /// Guests that were built after the first in the decisions of the file.
    pub guests_replaced: u64,
}

/// A decision in a file.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The partition, counted from 0 over the file.
    pub stream: usize,
    /// The name that the recorder was given for the partition.
    pub label: Arc<str>,
    /// What the policy was built from; the same allocation as long as the same policy decides.
    pub spec: Arc<PolicySpec>,
    /// What the decision was made of.
    pub snapshot: Snapshot,
    /// How it ended: a row, or the name of the error.
    pub ended: Ended,
    /// How far the policy was before it.
    pub before: PolicyState,
    /// How far it was afterwards.
    pub after: PolicyState,
}

impl<'a> Record<'a> {
    /// A file's bytes, whatever they are.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The decisions, in the order they were made. After an error there are no more.
    #[must_use]
    pub fn decisions(&self) -> Decisions<'a> {
        Decisions {
            frames: Frames::new(self.0),
            frame: Vec::new(),
            at: 0,
            streams: BTreeMap::new(),
            seen: Seen::default(),
            over: false,
        }
    }

    /// Reads the file once and says what is in it.
    ///
    /// # Errors
    /// Where the file is no record, or says what no recorder writes.
    pub fn summary(&self) -> Result<Summary, RecordError> {
        let mut decisions = self.decisions();
        let mut policies: Vec<Policy> = Vec::new();
        for decision in &mut decisions {
            let Recorded { label, spec, ended, before, after, .. } = decision?;
            let found = policies.iter_mut().position(|policy| Arc::ptr_eq(&policy.spec, &spec));
            let place = found.unwrap_or_else(|| {
                let (label, otherwise) = (label.to_string(), BTreeMap::new());
                policies.push(Policy { label, spec, decisions: 0, otherwise, guests_replaced: 0 });
                policies.len() - 1
            });
            let Some(policy) = policies.get_mut(place) else { continue };
            policy.decisions += 1;
            let replaced = before.guests.iter().zip(&after.guests);
            policy.guests_replaced +=
                replaced.map(|(before, after)| after.generation.saturating_sub(before.generation)).sum::<u64>();
            let name = match ended {
                Ok(decided) => decided.outcome.as_str().to_owned(),
                Err(name) => name,
            };
            if name != "ok" {
                *policy.otherwise.entry(name).or_default() += 1;
            }
        }
        let Decisions { frames, seen, .. } = decisions;
        if seen.frames == 0 {
            return Err(RecordError::NoRecord);
        }
        Ok(Summary {
            begins: seen.first == Some(0) && !seen.starts_late,
            ends: seen.ends.unwrap_or(End::Cut),
            frames: seen.frames,
            passed_over_bytes: frames.passed,
            decisions: policies.iter().map(|policy| policy.decisions).sum(),
            policies,
        })
    }
}

/// What is known of the file so far.
#[derive(Default)]
struct Seen {
    frames: u64,
    first: Option<u32>,
    starts_late: bool,
    ends: Option<End>,
}

/// One partition.
struct Stream {
    label: Arc<str>,
    spec: Arc<PolicySpec>,
    names: Arc<ExtraNames>,
    state: PolicyState,
    last: Option<Snapshot>,
}

/// See [`Record::decisions`].
pub struct Decisions<'a> {
    frames: Frames<'a>,
    frame: Vec<u8>,
    /// How much of the frame is read.
    at: usize,
    streams: BTreeMap<usize, Stream>,
    seen: Seen,
    over: bool,
}

impl std::fmt::Debug for Decisions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decisions").field("frames", &self.seen.frames).finish_non_exhaustive()
    }
}

impl Decisions<'_> {
    /// Goes to the next frame; false where there is none.
    fn next_frame(&mut self) -> Result<bool, RecordError> {
        let Some(frame) = self.frames.next() else { return Ok(false) };
        let Frame { kind, number, body } = frame?;
        if self.seen.frames == 0 {
            self.seen.starts_late = self.frames.passed > 0;
            self.seen.first = Some(number);
        }
        self.seen.frames += 1;
        self.seen.ends = match kind {
            Kind::Decisions => None,
            Kind::Complete => Some(End::Complete),
            Kind::Full => Some(End::Full),
        };
        (self.frame, self.at) = (body, 0);
        // Each frame says anew who decides.
        self.streams.values_mut().for_each(|stream| stream.last = None);
        if kind == Kind::Decisions {
            let mut read = In(&self.frame);
            entry::check_begin(&mut read, self.seen.frames as usize - 1)?;
            self.at = self.frame.len() - read.0.len();
        }
        Ok(true)
    }

    /// Reads one entry of the frame; a decision where it is one.
    fn entry(&mut self) -> Result<Option<Recorded>, Malformed> {
        let mut read = In(self.frame.get(self.at..).unwrap_or_default());
        let (tag, stream) = (read.byte()?, read.small()? as usize);
        let decision = match tag {
            entry::POLICY => {
                let (label, spec, state) = entry::read_policy(&mut read)?;
                self.streams.insert(stream, Stream::new(label, spec, state, self.streams.get(&stream)));
                None
            }
            entry::DECISION => match self.streams.get_mut(&stream) {
                Some(said) => Some(said.decision(stream, &mut read)?),
                None => return Err(Malformed::new("a decision comes before its policy")),
            },
            _ => return Err(Malformed::new("an entry is of an unknown kind")),
        };
        self.at = self.frame.len() - read.0.len();
        Ok(decision)
    }
}

impl Stream {
    /// The partition from here on, which `before` may have said already.
    fn new(label: String, spec: PolicySpec, state: PolicyState, before: Option<&Self>) -> Self {
        let spec = match before {
            Some(before) if *before.spec == spec => Arc::clone(&before.spec),
            _ => Arc::new(spec),
        };
        Self { label: label.into(), names: Arc::new(spec.names.clone()), spec, state, last: None }
    }

    fn decision(&mut self, stream: usize, read: &mut In<'_>) -> Result<Recorded, Malformed> {
        let snapshot = entry::read_snapshot(read, &self.names, self.last.as_ref())?;
        let (ended, after) = entry::read_end(read, snapshot.rows(), &self.state)?;
        let before = std::mem::replace(&mut self.state, after.clone());
        self.last = Some(snapshot.clone());
        let (label, spec) = (Arc::clone(&self.label), Arc::clone(&self.spec));
        Ok(Recorded { stream, label, spec, snapshot, ended, before, after })
    }
}

impl Iterator for Decisions<'_> {
    type Item = Result<Recorded, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.over {
            let decision = if self.at < self.frame.len() {
                let frame = (self.seen.frames as usize).saturating_sub(1);
                self.entry().map_err(|Malformed(what)| RecordError::Malformed { frame, what })
            } else {
                match self.next_frame() {
                    Ok(true) => Ok(None),
                    Ok(false) => break,
                    Err(error) => Err(error),
                }
            };
            match decision {
                Ok(None) => {}
                Ok(Some(decision)) => return Some(Ok(decision)),
                Err(error) => {
                    self.over = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use pointsman_routing::{PartitionKey, Request, Router, WorkerConfig};

    use super::*;
    use crate::recorder::tests::Shared;
    use crate::{Recorder, ReplayOptions, replay};

    /// A record of the native default.
    fn recorded() -> Vec<u8> {
        let (output, recorder) = Shared::recorder(1 << 20);
        let router = Router::builder().metric("queue").grant_header("x-tier").build().unwrap();
        let partition = router.partition(&PartitionKey::default(), 16).unwrap();
        (0..5).for_each(|worker| partition.upsert_worker(WorkerConfig::new(worker)).unwrap());
        partition.set_taps(vec![recorder.tap("native")]);
        for turn in 0..50_u32 {
            let headers = [("x-tier", "gold")];
            let request =
                Request { now_ms: f64::from(turn) * 1.5, prompt_tokens: 100, headers: &headers, ..Request::default() };
            let decision = partition.decide(&request).unwrap();
            partition.reserve(&request, &decision).unwrap();
        }
        Recorder::finish(recorder).unwrap();
        output.bytes()
    }

    /// Reads all there is to read, and decides it again where it is sound.
    fn read(bytes: &[u8]) -> bool {
        let record = Record::new(bytes);
        let summary = record.summary();
        let replayed = replay(&record, &ReplayOptions { most_differences: 3, ..ReplayOptions::default() });
        summary.is_ok() && replayed.is_ok()
    }

    #[test]
    fn whatever_a_frame_says_is_read_or_refused() {
        let bytes = recorded();
        let Frame { kind, number, body } = Frames::new(&bytes).next().unwrap().unwrap();
        assert!(read(&Frame::write(kind, number, &body)));
        let (mut random, mut refused) = (fastrand::Rng::with_seed(2), 0);
        for _ in 0..3_000 {
            let mut body = body.clone();
            for _ in 0..random.usize(1..4) {
                let place = random.usize(..body.len());
                match random.u8(0..4) {
                    0 => body[place] = random.u8(..),
                    1 => body[place] ^= 1 << random.u8(0..8),
                    2 => body.truncate(place + 1),
                    _ => body.insert(place, random.u8(..)),
                }
            }
            refused += usize::from(!read(&Frame::write(kind, number, &body)));
        }
        assert!((1_000..3_000).contains(&refused), "{refused} of 3000 are refused");
    }

    #[test]
    fn a_file_of_any_bytes_is_read_or_refused() {
        let bytes = recorded();
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..2_000 {
            let mut bytes = bytes.clone();
            let place = random.usize(..bytes.len());
            match random.u8(0..4) {
                0 => bytes[place] ^= 1 << random.u8(0..8),
                1 => bytes.truncate(place),
                2 => drop(bytes.drain(..place)),
                _ => bytes.splice(place..place, [0x89, b'P', b'M']).for_each(drop),
            }
            read(&bytes);
        }
        let noise: Vec<u8> = (0..10_000).map(|_| random.u8(..)).collect();
        assert!(matches!(Record::new(&noise).summary(), Err(RecordError::NoRecord)));
        assert!(matches!(Record::new(&[]).summary(), Err(RecordError::NoRecord)));
    }

    #[test]
    fn names_of_the_router_itself_and_texts_are_in_the_record() {
        let bytes = recorded();
        let decision = Record::new(&bytes).decisions().nth(7).unwrap().unwrap();
        assert_eq!(decision.spec.names.signals, ["metric.queue"]);
        assert_eq!(decision.snapshot.texts.last().unwrap().as_deref(), Some("gold"));
        assert_eq!(decision.snapshot.facts[0], 7.0 * 1.5);
        assert_eq!((decision.before.guests[0].calls, decision.after.guests[0].calls), (7, 8));
    }
}
