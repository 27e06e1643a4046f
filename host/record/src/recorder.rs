//! Writes what partitions decide.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use pointsman_routing::{DecideError, Observed, PolicyState, Snapshot, Tap};

use crate::code::Out;
use crate::entry;
use crate::frame::{Frame, HEAD_BYTES, Kind, MOST_RAW_BYTES};

/// What the last frame takes: its head and an empty body.
const END_BYTES: u64 = HEAD_BYTES as u64 + 16;
/// The body of a frame before compression, roughly.
const FRAME_BYTES: std::ops::RangeInclusive<u64> = 4 << 10..=64 << 10;
/// Frames that may wait for the thread that writes them: some megabytes.
const WAITING: usize = 64;

/// Writes the decisions of any number of partitions to one file, up to a size.
#[derive(Clone, Debug)]
pub struct Recorder {
    shared: Arc<Mutex<Shared>>,
    closed: Arc<AtomicBool>,
}

/// What a recorder wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Decisions in the file.
    pub decisions: u64,
    /// The file's size.
    pub bytes: u64,
    /// Whether it stopped because the file was full.
    pub full: bool,
    /// Decisions that are missing because the output was too slow; none where the recorder waits for it.
    pub dropped: u64,
}

struct Shared {
    streams: Vec<Stream>,
    frame: Out,
    frame_decisions: u64,
    /// A frame of so many bytes is written.
    enough: usize,
    sink: Sink,
    closed: Arc<AtomicBool>,
}

/// The decisions of one partition.
#[derive(Default)]
struct Stream {
    label: String,
    /// How far its policy was after the last decision of this frame, and what that decision was made of.
    last: Option<(PolicyState, Snapshot)>,
}

/// Where frames go.
enum Sink {
    /// To the file, where a decision waits.
    Here(File),
    /// To a thread that has the file; a frame that finds no room is dropped.
    Thread { frames: SyncSender<Body>, thread: JoinHandle<File>, dropped: u64 },
    /// Nowhere: the recorder is finished.
    Nowhere,
}

/// A frame before compression.
struct Body {
    bytes: Vec<u8>,
    decisions: u64,
}

/// The output, and how far it is.
struct File {
    output: Box<dyn Write + Send>,
    most_bytes: u64,
    frames: u32,
    written: Written,
    error: Option<io::Error>,
    /// Nothing more is written: the file is full or finished, or has met an error.
    closed: Arc<AtomicBool>,
}

impl Recorder {
    /// A recorder that writes at most so many bytes; of them, what a last frame needs is kept free. It compresses and
    /// writes where a decision waits, one in some hundreds, and loses none.
    #[must_use]
    pub fn new(output: impl Write + Send + 'static, most_bytes: u64) -> Self {
        let file = File::new(output, most_bytes);
        let closed = Arc::clone(&file.closed);
        Self::with(Sink::Here(file), most_bytes, closed)
    }

    /// A recorder that compresses and writes on a thread of its own: no decision waits for it. Where the output is too slow,
    /// decisions are dropped and counted.
    ///
    /// # Errors
    /// Where the thread cannot start.
    pub fn in_background(output: impl Write + Send + 'static, most_bytes: u64) -> io::Result<Self> {
        let mut file = File::new(output, most_bytes);
        let closed = Arc::clone(&file.closed);
        let (frames, receiver): (_, Receiver<Body>) = sync_channel(WAITING);
        let write = move || {
            for Body { bytes, decisions } in receiver {
                file.push(&bytes, decisions);
            }
            file
        };
        let thread = thread::Builder::new().name("pointsman-records".to_owned()).spawn(write)?;
        Ok(Self::with(Sink::Thread { frames, thread, dropped: 0 }, most_bytes, closed))
    }

    fn with(sink: Sink, most_bytes: u64, closed: Arc<AtomicBool>) -> Self {
        // A small file has small frames, since the one that does not fit is lost.
        let enough = (most_bytes / 16).clamp(*FRAME_BYTES.start(), *FRAME_BYTES.end()) as usize;
        let (streams, frame, frame_decisions) = (Vec::new(), Out::default(), 0);
        let shared = Shared { streams, frame, frame_decisions, enough, sink, closed: Arc::clone(&closed) };
        Self { shared: Arc::new(Mutex::new(shared)), closed }
    }

    /// A tap that records one partition under a name.
    #[must_use]
    pub fn tap(&self, label: &str) -> Box<dyn Tap> {
        let mut shared = lock(&self.shared);
        shared.streams.push(Stream { label: label.to_owned(), last: None });
        Box::new(RecordTap { recorder: self.clone(), stream: shared.streams.len() - 1 })
    }

    /// Ends the frame that is being filled, so that a crash loses nothing before it.
    pub fn flush(&self) {
        lock(&self.shared).end_frame();
    }

    /// Whether nothing more is recorded: the file is full or finished, or cannot be written. [`Self::finish`] tells which.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Writes what is left and ends the file; its taps record nothing more.
    ///
    /// # Errors
    /// The first error of the output, also where it came while decisions were recorded.
    pub fn finish(self) -> io::Result<Written> {
        let (file, dropped) = {
            let mut shared = lock(&self.shared);
            shared.end_frame();
            match std::mem::replace(&mut shared.sink, Sink::Nowhere) {
                Sink::Here(file) => (Some(file), 0),
                Sink::Thread { frames, thread, dropped } => {
                    drop(frames);
                    (thread.join().ok(), dropped)
                }
                Sink::Nowhere => (None, 0),
            }
        };
        let file = file.ok_or_else(|| io::Error::other("the thread that writes the record has ended"))?;
        Ok(Written { dropped, ..file.finish()? })
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn record(&mut self, place: usize, observed: &Observed<'_>) {
        if self.closed.load(Ordering::Relaxed) {
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
        if self.frame.0.len() >= self.enough {
            self.end_frame();
        }
    }

    /// Hands on the frame that is being filled.
    fn end_frame(&mut self) {
        let bytes = std::mem::take(&mut self.frame.0);
        let decisions = std::mem::take(&mut self.frame_decisions);
        self.streams.iter_mut().for_each(|stream| stream.last = None);
        if bytes.is_empty() {
            return;
        }
        match &mut self.sink {
            Sink::Here(file) => {
                file.push(&bytes, decisions);
                // Its buffer serves the next one.
                self.frame.0 = bytes;
                self.frame.0.clear();
            }
            Sink::Thread { frames, dropped, .. } => match frames.try_send(Body { bytes, decisions }) {
                Ok(()) => {}
                Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => *dropped += decisions,
            },
            Sink::Nowhere => {}
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("streams", &self.streams.len()).finish_non_exhaustive()
    }
}

impl File {
    fn new(output: impl Write + Send + 'static, most_bytes: u64) -> Self {
        let (output, closed) = (Box::new(output), Arc::default());
        Self { output, most_bytes, frames: 0, written: Written::default(), error: None, closed }
    }

    /// Writes a frame; where it does not fit, the file ends before it.
    fn push(&mut self, body: &[u8], decisions: u64) {
        if self.closed.load(Ordering::Relaxed) {
            return;
        }
        let bytes = Frame::write(Kind::Decisions, self.frames, body);
        let fits = self.written.bytes + bytes.len() as u64 + END_BYTES <= self.most_bytes;
        if !fits || body.len() > MOST_RAW_BYTES {
            self.written.full = true;
            self.close(Kind::Full);
        } else if self.write(&bytes) {
            self.written.decisions += decisions;
        }
    }

    fn finish(mut self) -> io::Result<Written> {
        if !self.closed.load(Ordering::Relaxed) {
            self.close(Kind::Complete);
        }
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.written),
        }
    }

    fn close(&mut self, kind: Kind) {
        let bytes = Frame::write(kind, self.frames, &[]);
        self.write(&bytes);
        self.closed.store(true, Ordering::Relaxed);
    }

    fn write(&mut self, bytes: &[u8]) -> bool {
        match self.output.write_all(bytes).and_then(|()| self.output.flush()) {
            Ok(()) => {
                self.frames += 1;
                self.written.bytes += bytes.len() as u64;
                true
            }
            Err(error) => {
                self.error = Some(error);
                self.closed.store(true, Ordering::Relaxed);
                false
            }
        }
    }
}

/// Records one partition.
struct RecordTap {
    recorder: Recorder,
    stream: usize,
}

impl Tap for RecordTap {
    fn wants(&mut self) -> bool {
        !self.recorder.is_closed()
    }

    /// So that another policy may be tried on the record.
    fn reads_cache(&self) -> bool {
        true
    }

    fn decided(&mut self, observed: &Observed<'_>) {
        lock(&self.recorder.shared).record(self.stream, observed);
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
