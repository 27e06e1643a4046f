//! What one tenant uses of the sandbox, over all of its guests, against what it may use.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What a tenant may use of the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// Guests alive at once.
    pub guests: u64,
    /// Bytes of linear memory of all its guests together.
    pub resident_bytes: u64,
    /// Seconds of compilation within an hour: a bucket that is full at first and refills evenly.
    pub compile_seconds_per_hour: u64,
    /// Bytes that its policies may log within a second, all guests together: a bucket of one second's worth.
    pub log_bytes_per_second: u64,
}

impl Quotas {
    /// No bound but the sandbox's own.
    pub const UNLIMITED: Self = Self {
        guests: u64::MAX,
        resident_bytes: u64::MAX,
        compile_seconds_per_hour: u64::MAX,
        log_bytes_per_second: u64::MAX,
    };
}

impl Default for Quotas {
    fn default() -> Self {
        Self::UNLIMITED
    }
}

/// What a tenant uses, or has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Guests alive now.
    pub guests: u64,
    /// Bytes of linear memory now.
    pub resident_bytes: u64,
    /// Time spent compiling so far.
    pub compiled: Duration,
    /// Bytes logged so far.
    pub log_bytes: u64,
}

/// Which quota is used up, with its key in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverQuota {
    /// Guests alive.
    #[error("the tenant has {0} guests, all that its quota `guests` allows")]
    Guests(u64),
    /// Linear memory.
    #[error("the tenant's guests would hold {asked} bytes of memory and its quota `resident_bytes` is {quota}")]
    Resident {
        /// Bytes after the growth.
        asked: u64,
        /// The quota.
        quota: u64,
    },
    /// Time of compilation.
    #[error("the tenant has used up its quota of {0} s of compilation within an hour (`compile_seconds_per_hour`)")]
    Compile(u64),
}

const HOUR: Duration = Duration::from_secs(3_600);

/// The account of one tenant. Shared by its guests and loads.
#[derive(Debug)]
pub struct Account {
    quotas: Mutex<Quotas>,
    guests: AtomicU64,
    resident_bytes: AtomicU64,
    log_bytes: AtomicU64,
    compile: Mutex<Compile>,
    log: Mutex<Bucket>,
    /// Held while one of the tenant's artifacts compiles.
    turn: Mutex<()>,
}

#[derive(Debug, Default)]
struct Compile {
    total: Duration,
    bucket: Bucket,
}

/// What was taken lately; it drains evenly.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    taken: f64,
    at: Option<Instant>,
}

impl Bucket {
    /// Lets drain what the time since the last look allows: all of `capacity` within `period`.
    fn drain(&mut self, now: Instant, capacity: f64, period: Duration) {
        if let Some(before) = self.at.replace(now) {
            let share = now.saturating_duration_since(before).as_secs_f64() / period.as_secs_f64();
            self.taken = (self.taken - capacity * share).max(0.0);
        }
    }

    /// Takes so much, if there is room for all of it.
    pub(crate) fn take(&mut self, now: Instant, amount: f64, capacity: f64, period: Duration) -> bool {
        self.drain(now, capacity, period);
        let fits = self.taken + amount <= capacity;
        if fits {
            self.taken += amount;
        }
        fits
    }
}

/// One guest's place in its tenant's account; given back when dropped.
#[derive(Debug)]
pub(crate) struct TenantPlace(Arc<Account>);

impl Drop for TenantPlace {
    fn drop(&mut self) {
        self.0.guests.fetch_sub(1, Ordering::AcqRel);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds to a counter unless it would then exceed its most; the sum that was refused.
fn add(counter: &AtomicU64, more: u64, most: u64) -> Result<(), u64> {
    let next = |now: u64| now.checked_add(more).filter(|sum| *sum <= most);
    counter.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).map(drop).map_err(|now| now.saturating_add(more))
}

impl Account {
    /// An account that has used nothing.
    #[must_use]
    pub fn new(quotas: Quotas) -> Arc<Self> {
        Arc::new(Self {
            quotas: Mutex::new(quotas),
            guests: AtomicU64::new(0),
            resident_bytes: AtomicU64::new(0),
            log_bytes: AtomicU64::new(0),
            compile: Mutex::default(),
            log: Mutex::default(),
            turn: Mutex::new(()),
        })
    }

    /// What the tenant may use.
    #[must_use]
    pub fn quotas(&self) -> Quotas {
        *locked(&self.quotas)
    }

    /// Changes what the tenant may use; what it holds already stays.
    pub fn set_quotas(&self, quotas: Quotas) {
        *locked(&self.quotas) = quotas;
    }

    /// What the tenant uses.
    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage {
            guests: self.guests.load(Ordering::Acquire),
            resident_bytes: self.resident_bytes.load(Ordering::Acquire),
            compiled: locked(&self.compile).total,
            log_bytes: self.log_bytes.load(Ordering::Acquire),
        }
    }

    /// Takes a guest's place.
    pub(crate) fn take_guest(self: &Arc<Self>) -> Result<TenantPlace, OverQuota> {
        let most = self.quotas().guests;
        add(&self.guests, 1, most).map_err(|_| OverQuota::Guests(most))?;
        Ok(TenantPlace(Arc::clone(self)))
    }

    /// Takes memory for a guest; [`Self::give_memory`] gives it back.
    pub(crate) fn take_memory(&self, bytes: u64) -> Result<(), OverQuota> {
        let quota = self.quotas().resident_bytes;
        add(&self.resident_bytes, bytes, quota).map_err(|asked| OverQuota::Resident { asked, quota })
    }

    pub(crate) fn give_memory(&self, bytes: u64) {
        self.resident_bytes.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// Whether the tenant may log a message of so many bytes now; it then counts as logged.
    pub(crate) fn take_log(&self, bytes: usize, now: Instant) -> bool {
        let most = self.quotas().log_bytes_per_second;
        let granted = locked(&self.log).take(now, bytes as f64, most as f64, Duration::from_secs(1));
        if granted {
            self.log_bytes.fetch_add(bytes as u64, Ordering::AcqRel);
        }
        granted
    }

    /// Compiles in the tenant's turn, one at a time, then in the `turn` that it shares with others, and counts the time
    /// that compiling takes.
    pub(crate) fn compile<S, T>(&self, turn: impl FnOnce() -> S, compile: impl FnOnce() -> T) -> Result<T, OverQuota> {
        let _turn = locked(&self.turn);
        let quota = self.quotas().compile_seconds_per_hour;
        {
            let mut compile = locked(&self.compile);
            compile.bucket.drain(Instant::now(), quota as f64, HOUR);
            if compile.bucket.taken >= quota as f64 {
                return Err(OverQuota::Compile(quota));
            }
        }
        let _shared_turn = turn();
        let started = Instant::now();
        let answer = compile();
        let took = started.elapsed();
        let mut compile = locked(&self.compile);
        compile.total += took;
        compile.bucket.taken += took.as_secs_f64();
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_and_memory_are_taken_up_to_the_quota_and_given_back() {
        let account = Account::new(Quotas { guests: 2, resident_bytes: 100, ..Quotas::UNLIMITED });
        let first = account.take_guest().unwrap();
        let _second = account.take_guest().unwrap();
        assert_eq!(account.take_guest().unwrap_err(), OverQuota::Guests(2));
        drop(first);
        let _third = account.take_guest().unwrap();
        account.take_memory(60).unwrap();
        account.take_memory(40).unwrap();
        assert_eq!(account.take_memory(1), Err(OverQuota::Resident { asked: 101, quota: 100 }));
        account.give_memory(40);
        account.take_memory(40).unwrap();
        let Usage { guests, resident_bytes, .. } = account.usage();
        assert_eq!((guests, resident_bytes), (2, 100));
    }

    #[test]
    fn a_log_gets_one_seconds_worth_at_once() {
        let account = Account::new(Quotas { log_bytes_per_second: 10, ..Quotas::UNLIMITED });
        let now = Instant::now();
        assert!(account.take_log(8, now));
        assert!(!account.take_log(3, now));
        assert!(account.take_log(2, now));
        assert_eq!(account.usage().log_bytes, 10);
        assert!(Account::new(Quotas::UNLIMITED).take_log(usize::MAX, now));
    }

    #[test]
    fn a_bucket_drains_evenly() {
        let start = Instant::now();
        let mut bucket = Bucket { taken: 10.0, at: Some(start) };
        bucket.drain(start + Duration::from_millis(500), 10.0, Duration::from_secs(1));
        assert_eq!(bucket.taken, 5.0);
        bucket.drain(start + Duration::from_secs(60), 10.0, Duration::from_secs(1));
        assert_eq!(bucket.taken, 0.0);
    }

    #[test]
    fn compilation_ends_with_its_quota() {
        let account = Account::new(Quotas { compile_seconds_per_hour: 0, ..Quotas::UNLIMITED });
        assert_eq!(account.compile(|| (), || ()), Err(OverQuota::Compile(0)));
        account.set_quotas(Quotas::UNLIMITED);
        assert_eq!(account.compile(|| (), || 7), Ok(7));
        assert!(account.usage().compiled > Duration::ZERO);
    }
}
