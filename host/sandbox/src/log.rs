//! The one import: a bounded log.

use std::sync::Arc;

use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Lift, Linker, WasmStr};

use crate::guest::State;
use crate::text::{Printable, cut};

/// The interface's name, version included.
pub(crate) const LOG: &str = "pointsman:policy/log@0.1.0";

/// Fuel of one message, for the host's work: as long as it takes, a guest would use up about as much.
const FUEL_PER_MESSAGE: u64 = 500;

#[derive(Clone, Copy, ComponentType, Lift)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "its values come out of guests' memory alone")]
enum Level {
    #[component(name = "error")]
    Error,
    #[component(name = "warn")]
    Warn,
    #[component(name = "info")]
    Info,
    #[component(name = "debug")]
    Debug,
    #[component(name = "trace")]
    Trace,
}

/// Who logs, and how much of it may.
#[derive(Debug)]
pub(crate) struct Log {
    instance: Arc<str>,
    partition: Arc<str>,
    most: usize,
    left: usize,
    /// Messages of this call that were cut or left out.
    cut: u64,
}

impl Log {
    pub(crate) fn new(instance: Arc<str>, partition: Arc<str>, most: u64) -> Self {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        Self { instance, partition, most, left: most, cut: 0 }
    }

    /// Starts a call: the whole budget is there again.
    pub(crate) fn refill(&mut self) {
        self.left = self.most;
        self.cut = 0;
    }

    /// Ends a call: says what was cut.
    pub(crate) fn finish(&self) {
        if self.cut > 0 {
            tracing::warn!(
                target: "pointsman::policy", instance = &*self.instance, partition = &*self.partition,
                "{} messages of the policy exceeded log_bytes = {} in one call and were cut", self.cut, self.most
            );
        }
    }

    /// Writes what the budget leaves of the message.
    fn write(&self, level: Level, message: &str) -> Written {
        let kept = cut(message, self.left);
        let written = Written { bytes: kept.len(), whole: kept.len() == message.len() };
        if kept.is_empty() && !written.whole {
            return written;
        }
        let (instance, partition, kept) = (&*self.instance, &*self.partition, Printable(kept));
        match level {
            Level::Error => tracing::error!(target: "pointsman::policy", instance, partition, "{kept}"),
            Level::Warn => tracing::warn!(target: "pointsman::policy", instance, partition, "{kept}"),
            Level::Info => tracing::info!(target: "pointsman::policy", instance, partition, "{kept}"),
            Level::Debug => tracing::debug!(target: "pointsman::policy", instance, partition, "{kept}"),
            Level::Trace => tracing::trace!(target: "pointsman::policy", instance, partition, "{kept}"),
        }
        written
    }

    fn charge(&mut self, written: Written) {
        if written.whole {
            self.left = self.left.saturating_sub(written.bytes);
        } else {
            // What does not fit ends the budget, lest a shorter message slip in behind it.
            self.left = 0;
            self.cut = self.cut.saturating_add(1);
        }
    }
}

#[derive(Clone, Copy)]
struct Written {
    bytes: usize,
    whole: bool,
}

/// Offers the import to components.
pub(crate) fn link(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.instance(LOG)?.func_wrap(
        "log",
        |mut store: StoreContextMut<'_, State>, (level, message): (Level, WasmStr)| {
            let log = &store.data().log;
            // An exhausted budget costs no look at the message: a guest may call as often as its fuel lasts.
            let written = if log.left == 0 {
                Written { bytes: 0, whole: false }
            } else {
                match message.to_str(&store) {
                    Ok(text) => log.write(level, &text),
                    Err(_) => log.write(level, "(a message that is not Unicode)"),
                }
            };
            store.data_mut().log.charge(written);
            let fuel = store.get_fuel()?;
            store.set_fuel(fuel.saturating_sub(FUEL_PER_MESSAGE))?;
            Ok(())
        },
    )
}
