//! The clock of every deadline: one thread that advances the engines' epochs, and the watch on it.
//!
//! No deadline reads another clock. A deadline counts ticks, so a ticker that stands still disarms every deadline
//! without a sign: hence the watch. Fuel bounds a call all the same.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use wasmtime::Engine;

/// The length of a tick. A busy machine makes ticks longer, never shorter.
pub(crate) const TICK: Duration = Duration::from_millis(1);
/// A ticker that has not ticked for so long is taken for stopped.
const STALE: Duration = Duration::from_secs(2);

/// What the thread and its owner share.
pub(crate) struct Beat {
    started: Instant,
    /// Microseconds from `started` to the latest tick.
    latest_us: AtomicU64,
    running: AtomicBool,
    stop: AtomicBool,
    engines: Vec<Arc<OnceLock<Engine>>>,
}

impl Beat {
    /// Advances each engine by one tick, however long ago the last one was: a machine that was away must not cut calls
    /// that had no chance to run.
    fn tick(&self) {
        for engine in self.engines.iter().filter_map(|engine| engine.get()) {
            engine.increment_epoch();
        }
        self.latest_us.store(self.now_us(), Ordering::Relaxed);
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// The ticker thread; stops when dropped.
pub(crate) struct Ticker {
    beat: Arc<Beat>,
    thread: Option<JoinHandle<()>>,
    reported: AtomicBool,
}

/// Says that the thread has ended, also where it panicked.
struct Running(Arc<Beat>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.store(false, Ordering::Relaxed);
    }
}

impl Ticker {
    /// Starts the thread. Engines may still be missing: they tick once they are there.
    pub(crate) fn start(engines: Vec<Arc<OnceLock<Engine>>>) -> std::io::Result<Self> {
        let beat = Arc::new(Beat {
            started: Instant::now(),
            latest_us: AtomicU64::new(0),
            running: AtomicBool::new(true),
            stop: AtomicBool::new(false),
            engines,
        });
        let running = Running(Arc::clone(&beat));
        let thread = std::thread::Builder::new().name("pointsman-ticker".to_owned()).spawn(move || {
            let Running(beat) = &running;
            while !beat.stop.load(Ordering::Relaxed) {
                std::thread::park_timeout(TICK);
                beat.tick();
            }
        })?;
        Ok(Self { beat, thread: Some(thread), reported: AtomicBool::new(false) })
    }

    /// Whether the ticker ticks.
    pub(crate) fn alive(&self) -> bool {
        if !self.running() {
            return false;
        }
        let age = |beat: &Beat| beat.now_us().saturating_sub(beat.latest_us.load(Ordering::Relaxed));
        let stale = STALE.as_micros().try_into().unwrap_or(u64::MAX);
        if age(&self.beat) < stale {
            return true;
        }
        // A process that was paused as a whole finds its ticker late, not dead: grant it a moment.
        std::thread::sleep(TICK * 50);
        self.running() && age(&self.beat) < stale
    }

    /// The part of [`Ticker::alive`] that each call can afford: whether the thread is there. Reports its loss once.
    pub(crate) fn watch(&self) {
        if !self.running() && !self.reported.swap(true, Ordering::Relaxed) {
            tracing::error!(
                "the sandbox's ticker has stopped: no deadline is enforced any more, only fuel; restart the process"
            );
        }
    }

    fn running(&self) -> bool {
        self.beat.running.load(Ordering::Relaxed)
    }

    /// Makes the thread end, as if it had died, and waits until it has.
    #[cfg(test)]
    pub(crate) fn kill(&self) {
        self.beat.stop.store(true, Ordering::Relaxed);
        while self.running() {
            std::thread::yield_now();
        }
    }

    /// Makes the thread stand still, as if it were stuck, and lets time pass until that shows.
    #[cfg(test)]
    pub(crate) fn freeze(&self) {
        self.kill();
        self.beat.running.store(true, Ordering::Relaxed);
        self.beat.latest_us.store(0, Ordering::Relaxed);
        std::thread::sleep(STALE);
    }

    /// Tells whether the thread runs, also after this ticker is gone.
    #[cfg(test)]
    pub(crate) fn probe(&self) -> impl Fn() -> bool + use<> {
        let beat = Arc::clone(&self.beat);
        move || beat.running.load(Ordering::Relaxed)
    }

    /// Ticks once by hand.
    #[cfg(test)]
    pub(crate) fn tick(&self) {
        self.beat.tick();
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.beat.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
