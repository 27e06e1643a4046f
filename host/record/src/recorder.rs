//! Writes what partitions decide.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pointsman_routing::{DecideError, Observed, PolicyState, Snapshot, Tap};

use crate::code::Out;
use crate::entry;
use crate::frame::{Frame, HEAD_BYTES, Kind, MOST_RAW_BYTES};

/// What the last frame takes: its head and an empty body.
const END_BYTES: u64 = HEAD_BYTES as u64 + 16;
/// The body of a frame before compression, roughly.
const FRAME_BYTES: std::ops::RangeInclusive<u64> = 4 << 10..=64 << 10;

/// Writes the decisions of any number of partitions to one file, up to a size. Frames are compressed and written where a
/// decision waits, one in some hundreds.
#[derive(Clone, Debug)]
pub struct Recorder(Arc<Mutex<Shared>>);

/// What a recorder wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Decisions in the file.
    pub decisions: u64,
    /// The file's size.
    pub bytes: u64,
    /// Whether it stopped because the file was full.
    pub full: bool,
}

struct Shared {
    output: Box<dyn Write + Send>,
    most_bytes: u64,
    streams: Vec<Stream>,
    frame: Out,
    frame_decisions: u64,
    frames: u32,
    written: Written,
    /// Nothing more is written: the file is full or finished, or has met this error.
    closed: Option<Option<io::Error>>,
}

/// The decisions of one partition.
#[derive(Default)]
struct Stream {
    label: String,
    /// How far its policy was after the last decision of this frame, and what that decision was made of.
    last: Option<(PolicyState, Snapshot)>,
}

impl Recorder {
    /// A recorder that writes at most so many bytes; of them, what a last frame needs is kept free.
    #[must_use]
    pub fn new(output: impl Write + Send + 'static, most_bytes: u64) -> Self {
        Self(Arc::new(Mutex::new(Shared {
            output: Box::new(output),
            most_bytes,
            streams: Vec::new(),
            frame: Out::default(),
            frame_decisions: 0,
            frames: 0,
            written: Written { decisions: 0, bytes: 0, full: false },
            closed: None,
        })))
    }

    /// A tap that records one partition under a name.
    #[must_use]
    pub fn tap(&self, label: &str) -> Box<dyn Tap> {
        let mut shared = lock(&self.0);
        shared.streams.push(Stream { label: label.to_owned(), last: None });
        Box::new(RecordTap { shared: Arc::clone(&self.0), stream: shared.streams.len() - 1 })
    }

    /// Writes what is left and ends the file; its taps record nothing more.
    ///
    /// # Errors
    /// The first error of the output, also where it came while decisions were recorded.
    pub fn finish(self) -> io::Result<Written> {
        let mut shared = lock(&self.0);
        shared.end_frame();
        if shared.closed.is_none() {
            shared.close(Kind::Complete);
        }
        match shared.closed.as_mut().and_then(Option::take) {
            Some(error) => Err(error),
            None => Ok(shared.written),
        }
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn record(&mut self, place: usize, observed: &Observed<'_>) {
        if self.closed.is_some() {
            return;
        }
        let Some(Stream { label, last }) = self.streams.get_mut(place) else { return };
        let out = &mut self.frame;
        if out.0.is_empty() {
            entry::begin(out);
        }
        // A gap, another policy, and the first decision of a frame say anew what decides, and how far it is.
        if last.as_ref().is_none_or(|(state, _)| state != observed.before) {
            *last = None;
            out.byte(entry::POLICY);
            out.size(place);
            entry::write_policy(out, label, &observed.policy(), observed.before);
        }
        out.byte(entry::DECISION);
        out.size(place);
        entry::write_snapshot(out, observed.snapshot, last.as_ref().map(|(_, snapshot)| snapshot));
        let ended = observed.ended.map_err(DecideError::name);
        entry::write_end(out, ended, observed.before, observed.after);
        *last = Some((observed.after.clone(), observed.snapshot.clone()));
        self.frame_decisions += 1;
        // A small file has small frames, since the one that does not fit is lost.
        let enough = (self.most_bytes / 16).clamp(*FRAME_BYTES.start(), *FRAME_BYTES.end());
        if self.frame.0.len() as u64 >= enough {
            self.end_frame();
        }
    }

    /// Writes the frame that is being filled; where it does not fit, the file ends before it.
    fn end_frame(&mut self) {
        let body = std::mem::take(&mut self.frame.0);
        let decisions = std::mem::take(&mut self.frame_decisions);
        self.streams.iter_mut().for_each(|stream| stream.last = None);
        if body.is_empty() || self.closed.is_some() {
            return;
        }
        let bytes = Frame::write(Kind::Decisions, self.frames, &body);
        let fits = self.written.bytes + bytes.len() as u64 + END_BYTES <= self.most_bytes;
        if !fits || body.len() > MOST_RAW_BYTES {
            self.written.full = true;
            self.close(Kind::Full);
        } else if self.write(&bytes) {
            self.written.decisions += decisions;
        }
        // Its buffer serves the next one.
        self.frame.0 = body;
        self.frame.0.clear();
    }

    fn close(&mut self, kind: Kind) {
        let bytes = Frame::write(kind, self.frames, &[]);
        if self.write(&bytes) {
            self.closed = Some(None);
        }
    }

    fn write(&mut self, bytes: &[u8]) -> bool {
        match self.output.write_all(bytes).and_then(|()| self.output.flush()) {
            Ok(()) => {
                self.frames += 1;
                self.written.bytes += bytes.len() as u64;
                true
            }
            Err(error) => {
                self.closed = Some(Some(error));
                false
            }
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("written", &self.written).finish_non_exhaustive()
    }
}

/// Records one partition.
struct RecordTap {
    shared: Arc<Mutex<Shared>>,
    stream: usize,
}

impl Tap for RecordTap {
    fn wants(&mut self) -> bool {
        lock(&self.shared).closed.is_none()
    }

    /// So that another policy may be tried on the record.
    fn reads_cache(&self) -> bool {
        true
    }

    fn decided(&mut self, observed: &Observed<'_>) {
        lock(&self.shared).record(self.stream, observed);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// An output that its test can look at.
    #[derive(Clone, Default)]
    pub(crate) struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Shared {
        pub(crate) fn recorder(most_bytes: u64) -> (Self, Recorder) {
            let output = Self::default();
            (output.clone(), Recorder::new(output, most_bytes))
        }

        pub(crate) fn bytes(&self) -> Vec<u8> {
            self.0.lock().unwrap().clone()
        }
    }

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_record_of_nothing_is_a_record() {
        let (output, recorder) = Shared::recorder(1 << 16);
        let written = recorder.finish().unwrap();
        assert_eq!((written.decisions, written.bytes, written.full), (0, output.bytes().len() as u64, false));
        let bytes = output.bytes();
        let summary = crate::Record::new(&bytes).summary().unwrap();
        assert_eq!((summary.begins, summary.ends, summary.decisions), (true, crate::End::Complete, 0));
    }

    #[test]
    fn an_error_of_the_output_ends_the_recording_and_is_told() {
        struct Broken;
        impl Write for Broken {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::Error::other("no space"))
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let error = Recorder::new(Broken, 1 << 16).finish().unwrap_err();
        assert_eq!(error.to_string(), "no space");
    }
}
