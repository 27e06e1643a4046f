//! The import of every policy: a bounded log.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Lift, Linker, WasmStr};

use crate::account::{Account, Bucket};
use crate::guest::State;
use crate::limits::Limits;
use crate::text::{Printable, cut};

/// The interface's name, version included.
pub(crate) const LOG: &str = "pointsman:policy/log@0.1.0";

/// Fuel of one message, for the host's work: as long as it takes, a guest would use up about as much.
pub(crate) const FUEL_PER_MESSAGE: u64 = 500;

const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, ComponentType, Lift)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "its values come out of guests' memory alone")]
pub(crate) enum Level {
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

/// What a message did not fit into.
#[derive(Clone, Copy, Debug)]
enum Bound {
    Call,
    Second,
    Tenant,
}

/// Who logs, and how much lately. The guests of one slot share it, so that a replaced one has no second budget.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) instance: Box<str>,
    pub(crate) partition: Box<str>,
    per_call: usize,
    per_second: u64,
    account: Option<Arc<Account>>,
    recent: Mutex<Recent>,
}

#[derive(Debug, Default)]
struct Recent {
    bucket: Bucket,
    /// What was not yet said to be lost.
    lost: Lost,
    said: Option<Instant>,
}

/// Messages that were cut or left out, by what they did not fit into.
#[derive(Debug, Default)]
struct Lost {
    call: u64,
    second: u64,
    tenant: u64,
}

impl Source {
    pub(crate) fn new(instance: &str, partition: &str, limits: &Limits, account: Option<Arc<Account>>) -> Arc<Self> {
        Arc::new(Self {
            instance: instance.into(),
            partition: partition.into(),
            per_call: usize::try_from(limits.log_bytes).unwrap_or(usize::MAX),
            per_second: limits.log_bytes_per_second,
            account,
            recent: Mutex::default(),
        })
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes so many bytes from all budgets that outlive a call.
    fn take(&self, bytes: usize, now: Instant) -> Result<(), Bound> {
        if !self.recent().bucket.take(now, bytes as f64, self.per_second as f64, SECOND) {
            return Err(Bound::Second);
        }
        let granted = self.account.as_ref().is_none_or(|account| account.take_log(bytes, now));
        if granted { Ok(()) } else { Err(Bound::Tenant) }
    }

    /// Counts what one call lost, and says it unless it said so within the last second.
    fn lose(&self, bound: Bound, messages: u64, now: Instant) {
        let mut recent = self.recent();
        let count = match bound {
            Bound::Call => &mut recent.lost.call,
            Bound::Second => &mut recent.lost.second,
            Bound::Tenant => &mut recent.lost.tenant,
        };
        *count = count.saturating_add(messages);
        if recent.said.is_none_or(|said| now.saturating_duration_since(said) >= SECOND) {
            recent.said = Some(now);
            let lost = std::mem::take(&mut recent.lost);
            drop(recent);
            self.say(&lost);
        }
    }

    fn say(&self, lost: &Lost) {
        let Lost { call, second, tenant } = *lost;
        let (instance, partition) = (&*self.instance, &*self.partition);
        if call > 0 {
            tracing::warn!(
                target: "pointsman::policy", instance, partition,
                "{call} messages of the policy exceeded log_bytes = {} in one call and were cut", self.per_call
            );
        }
        if second > 0 {
            tracing::warn!(
                target: "pointsman::policy", instance, partition,
                "{second} messages of the policy exceeded log_bytes_per_second = {} and were dropped", self.per_second
            );
        }
        if tenant > 0 {
            tracing::warn!(
                target: "pointsman::policy", instance, partition,
                "{tenant} messages of the policy exceeded its tenant's quota `log_bytes_per_second` and were dropped"
            );
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let lost = std::mem::take(&mut self.recent().lost);
        self.say(&lost);
    }
}

/// The log of one guest.
#[derive(Debug)]
pub(crate) struct Log {
    source: Arc<Source>,
    /// Bytes that this call may still log.
    left: usize,
    /// What did not fit first. It ends the call's budget, lest a shorter message slip in behind it.
    full: Option<Bound>,
    /// Messages of this call that were cut or left out.
    lost: u64,
}

impl Log {
    pub(crate) fn new(source: &Arc<Source>) -> Self {
        Self { left: source.per_call, source: Arc::clone(source), full: None, lost: 0 }
    }

    /// Starts a call: its whole budget is there again.
    pub(crate) fn refill(&mut self) {
        self.left = self.source.per_call;
        self.full = None;
        self.lost = 0;
    }

    /// Ends a call: counts what was lost.
    pub(crate) fn finish(&self) {
        if let Some(bound) = self.full {
            self.source.lose(bound, self.lost, Instant::now());
        }
    }

    /// What the next message does not fit into, whatever it is.
    fn full(&self) -> Option<Bound> {
        self.full.or((self.left == 0).then_some(Bound::Call))
    }

    /// Writes what the budgets leave of the message: the bytes, and what the rest did not fit into.
    fn write(&self, level: Level, message: &str) -> (usize, Option<Bound>) {
        let kept = cut(message, self.left);
        let over = (kept.len() < message.len()).then_some(Bound::Call);
        if kept.is_empty() && over.is_some() {
            return (0, over);
        }
        // An empty message is a line too.
        let bytes = kept.len().max(1);
        if let Err(bound) = self.source.take(bytes, Instant::now()) {
            return (0, Some(bound));
        }
        let (instance, partition, shown) = (&*self.source.instance, &*self.source.partition, Printable(kept));
        match level {
            Level::Error => tracing::error!(target: "pointsman::policy", instance, partition, "{shown}"),
            Level::Warn => tracing::warn!(target: "pointsman::policy", instance, partition, "{shown}"),
            Level::Info => tracing::info!(target: "pointsman::policy", instance, partition, "{shown}"),
            Level::Debug => tracing::debug!(target: "pointsman::policy", instance, partition, "{shown}"),
            Level::Trace => tracing::trace!(target: "pointsman::policy", instance, partition, "{shown}"),
        }
        (bytes, over)
    }

    /// Logs what the budgets leave of a message.
    #[cfg(feature = "wasi")]
    pub(crate) fn say(&mut self, level: Level, message: &str) {
        let (bytes, over) = match self.full() {
            Some(bound) => (0, Some(bound)),
            None => self.write(level, message),
        };
        self.charge(bytes, over);
    }

    fn charge(&mut self, bytes: usize, over: Option<Bound>) {
        self.left = self.left.saturating_sub(bytes);
        if over.is_some() {
            self.full = over;
            self.lost = self.lost.saturating_add(1);
        }
    }
}

/// Offers the import to components.
pub(crate) fn link(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.instance(LOG)?.func_wrap(
        "log",
        |mut store: StoreContextMut<'_, State>, (level, message): (Level, WasmStr)| {
            let log = &store.data().log;
            // A used-up budget costs no look at the message or the clock: a guest may call as often as its fuel lasts.
            let (bytes, over) = match log.full() {
                Some(bound) => (0, Some(bound)),
                None => match message.to_str(&store) {
                    Ok(text) => log.write(level, &text),
                    Err(_) => log.write(level, "(a message that is not Unicode)"),
                },
            };
            store.data_mut().log.charge(bytes, over);
            charge(&mut store, FUEL_PER_MESSAGE)
        },
    )
}

/// Takes fuel from a guest for the host's work.
pub(crate) fn charge(store: &mut StoreContextMut<'_, State>, fuel: u64) -> wasmtime::Result<()> {
    let left = store.get_fuel()?;
    store.set_fuel(left.saturating_sub(fuel))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_grants_its_bytes_and_what_has_drained_since() {
        let limits = Limits { log_bytes_per_second: 10, ..Limits::default() };
        let source = Source::new("mine", "here", &limits, None);
        let start = Instant::now();
        let take = |bytes, after_ms| source.take(bytes, start + Duration::from_millis(after_ms)).is_ok();
        assert!(take(10, 0));
        assert!(!take(1, 0));
        assert!(!take(6, 500), "half of a second is half of the bytes");
        assert!(take(5, 500));
        assert!(!take(1, 500), "what was dropped did not count");
        assert!(take(10, 5_000));
        assert!(!take(1, 5_000), "no more than a whole second's is saved");
    }
}
