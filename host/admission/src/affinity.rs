//! Which worker a session stays with, and for how long.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::time::Moment;

/// The most sessions that one table holds.
pub const MAX_SESSIONS: usize = 65_536;
/// The longest id of a session, in bytes.
pub const MAX_SESSION_ID_BYTES: usize = 256;
/// The longest time that an idle session may keep its worker, in seconds: a year.
pub const MAX_SESSION_TTL_SECS: u32 = 31_536_000;

/// How strictly a session keeps its worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AffinityMode {
    /// The worker is a pin: a dispatch elsewhere is an error.
    #[default]
    Hard,
    /// The worker is advice: the session follows its requests to where they run.
    Soft,
}

impl AffinityMode {
    /// The name in configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hard => "hard",
            Self::Soft => "soft",
        }
    }
}

impl FromStr for AffinityMode {
    type Err = AffinityError;

    fn from_str(text: &str) -> Result<Self, AffinityError> {
        [Self::Hard, Self::Soft]
            .into_iter()
            .find(|mode| mode.name() == text)
            .ok_or_else(|| AffinityError::UnknownMode(text.to_owned()))
    }
}

/// Where a session's requests go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AffinityTarget {
    /// The worker's id.
    pub worker: u64,
    /// The data-parallel rank; none for any rank of the worker.
    pub rank: Option<u32>,
}

impl AffinityTarget {
    /// Whether a request that went to `dispatched` kept to this target.
    fn holds(self, dispatched: Self) -> bool {
        self.worker == dispatched.worker && (self.rank.is_none() || self.rank == dispatched.rank)
    }

    /// Whether a pin asks for this target. One without a rank takes no pin with one.
    fn takes_pin(self, pin: Self) -> bool {
        self.worker == pin.worker && (pin.rank.is_none() || pin.rank == self.rank)
    }

    /// This target after a request went to `dispatched`. One without a rank stays so, and one with a rank follows to
    /// another only.
    fn followed_to(self, dispatched: Self) -> Self {
        match (self.rank, dispatched.rank) {
            (None, _) => Self { rank: None, ..dispatched },
            (Some(_), Some(_)) => dispatched,
            (Some(_), None) => self,
        }
    }
}

impl fmt::Display for AffinityTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {}", self.worker)?;
        self.rank.map_or(Ok(()), |rank| write!(f, " rank {rank}"))
    }
}

/// Why a session has no worker, or not the one asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AffinityError {
    /// The time to live is out of range.
    #[error("session affinity's time to live is {0} s; it must be from 1 to {MAX_SESSION_TTL_SECS}")]
    TtlOutOfRange(u32),
    /// There is no such mode.
    #[error("session affinity has no mode `{0}`; it is `hard` or `soft`")]
    UnknownMode(String),
    /// The session's id is too long.
    #[error("the session's id has {bytes} bytes; it may have {MAX_SESSION_ID_BYTES} at most")]
    IdTooLong {
        /// Its length, in bytes.
        bytes: usize,
    },
    /// The table is full of sessions that have not expired. The request may go on without affinity.
    #[error("session affinity holds {MAX_SESSIONS} sessions already; shorten its time to live")]
    TableFull,
    /// In hard mode, a request asks for another worker than its session's, or went to another.
    #[error("session {session:?} is bound to {bound}, not {other}; lift the pin or use soft affinity")]
    Conflict {
        /// The session.
        session: String,
        /// Where it is bound.
        bound: AffinityTarget,
        /// Where the request asks to go, or went.
        other: AffinityTarget,
    },
}

/// What a request gets that belongs to a session.
#[derive(Debug)]
pub enum Acquired {
    /// The session has a worker: here the request should go (soft) or must go (hard).
    Bound(AffinityTarget, Lease),
    /// The session has none yet. The request goes anywhere, and [`SessionAffinity::commit`] binds the session.
    First(Lease),
    /// Another request is about to bind the session: ask again once [`SessionAffinity::next_woken`] tells.
    Wait,
}

/// One request's use of its session. It goes back to [`SessionAffinity::release`] exactly once, however the request
/// ends: a session in use does not expire.
#[derive(Debug)]
#[must_use = "a session whose lease is lost never expires"]
pub struct Lease {
    session: Arc<str>,
    entry: u64,
    /// The binding's version when the lease was taken; none before the session's first binding.
    version: Option<BindingVersion>,
}

/// The age of a binding among replicas of the table: the higher sequence is newer, the writer breaks ties.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BindingVersion {
    /// The writer's count.
    pub sequence: u64,
    /// The replica that bound the session.
    pub writer: u64,
}

/// What became of another replica's binding. (Dynamo: `ReplicaApplyOutcome`.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaOutcome {
    /// The session was not known here.
    Inserted,
    /// It was bound there already; its time starts again.
    Refreshed,
    /// Its binding here had expired.
    ReplacedExpired,
    /// Its binding here was older.
    ReplacedNewer,
    /// A request is about to bind it here.
    IgnoredInitializing,
    /// Its binding here is newer.
    IgnoredConflict,
    /// Its id is too long.
    RejectedSessionId,
    /// The table is full.
    RejectedCapacity,
}

#[derive(Debug)]
enum State {
    /// The first request is on its way.
    Binding { waiters: Vec<u64> },
    /// Without leases the session is idle, and `idle_until` is its place in the order of expiry.
    Bound { target: AffinityTarget, version: BindingVersion, leases: u32, idle_until: Moment },
}

#[derive(Debug)]
struct Session {
    name: Arc<str>,
    /// Tells the entry from an earlier one of the same session.
    entry: u64,
    state: State,
}

/// The sessions of one partition and their workers. Every operation takes O(log n) of the sessions held.
#[derive(Debug)]
pub struct SessionAffinity {
    mode: AffinityMode,
    ttl_ms: f64,
    sessions: FxHashMap<Arc<str>, Session>,
    /// The sessions without leases, by when they expire.
    idle: BTreeMap<(Moment, u64), Arc<str>>,
    woken: VecDeque<u64>,
    last_entry: u64,
    /// Of the newest binding, here or at a replica.
    last_version: BindingVersion,
}

impl SessionAffinity {
    /// An empty table. An idle session keeps its worker for `ttl_secs` seconds.
    ///
    /// # Errors
    /// The time to live is not from 1 to [`MAX_SESSION_TTL_SECS`].
    pub fn new(mode: AffinityMode, ttl_secs: u32) -> Result<Self, AffinityError> {
        if !(1..=MAX_SESSION_TTL_SECS).contains(&ttl_secs) {
            return Err(AffinityError::TtlOutOfRange(ttl_secs));
        }
        Ok(Self {
            mode,
            ttl_ms: f64::from(ttl_secs) * 1000.0,
            sessions: FxHashMap::default(),
            idle: BTreeMap::new(),
            woken: VecDeque::new(),
            last_entry: 0,
            last_version: BindingVersion { sequence: 0, writer: 0 },
        })
    }

    /// Names this table among its replicas. Its versions follow `start`, whose sequence should be above those of its
    /// earlier runs, such as the time of the start.
    #[must_use]
    pub const fn replicated(mut self, start: BindingVersion) -> Self {
        self.last_version = start;
        self
    }

    /// How strictly sessions keep their workers.
    #[must_use]
    pub const fn mode(&self) -> AffinityMode {
        self.mode
    }

    /// Takes a lease of a session for one request.
    ///
    /// `pin` is a worker that the request itself asks for. `lives` says whether a target still has a worker and rank: a
    /// binding to one that has gone is dropped, and this request binds the session anew. `waiter` is a number of the
    /// caller's for this request, given back by [`Self::next_woken`] after [`Acquired::Wait`].
    ///
    /// # Errors
    /// The id is too long, the table is full, or the pin is not where a hard session is bound. No lease is taken.
    pub fn acquire(
        &mut self,
        session: &str,
        pin: Option<AffinityTarget>,
        lives: impl FnOnce(AffinityTarget) -> bool,
        waiter: u64,
        now_ms: f64,
    ) -> Result<Acquired, AffinityError> {
        if session.len() > MAX_SESSION_ID_BYTES {
            return Err(AffinityError::IdTooLong { bytes: session.len() });
        }
        self.expire(now_ms);
        if self.bound(session).is_some_and(|target| !lives(target)) {
            self.forget(session);
        }
        let Some(held) = self.sessions.get_mut(session) else {
            let (session, entry) = self.insert(session, State::Binding { waiters: Vec::new() })?;
            return Ok(Acquired::First(Lease { session, entry, version: None }));
        };
        match &mut held.state {
            State::Binding { waiters } => {
                waiters.push(waiter);
                Ok(Acquired::Wait)
            }
            State::Bound { target, version, leases, idle_until } => {
                if let Some(pin) = pin.filter(|pin| self.mode == AffinityMode::Hard && !target.takes_pin(*pin)) {
                    return Err(AffinityError::Conflict { session: session.to_owned(), bound: *target, other: pin });
                }
                if *leases == 0 {
                    self.idle.remove(&(*idle_until, held.entry));
                }
                *leases += 1;
                let lease = Lease { session: Arc::clone(&held.name), entry: held.entry, version: Some(*version) };
                Ok(Acquired::Bound(*target, lease))
            }
        }
    }

    /// Where a session's requests go at this moment. Takes no lease and keeps nothing alive.
    #[must_use]
    pub fn target(&self, session: &str, now_ms: f64) -> Option<AffinityTarget> {
        match self.sessions.get(session)?.state {
            State::Bound { leases: 0, idle_until, .. } if idle_until <= Moment(now_ms) => None,
            State::Bound { target, .. } => Some(target),
            State::Binding { .. } => None,
        }
    }

    /// Binds the lease's session to where its request went. To be called once the worker has returned a stream: a request
    /// that fails before that leaves the binding as it is.
    ///
    /// A soft session follows its request, unless it has moved since the lease was taken. A session that is bound to a
    /// worker without a rank stays so. Answers the binding, for replicas of the table; none where the session has been
    /// dropped since.
    ///
    /// # Errors
    /// A hard session is bound elsewhere. Its binding is dropped, so that the session's next request binds it anew.
    pub fn commit(
        &mut self,
        lease: &mut Lease,
        dispatched: AffinityTarget,
    ) -> Result<Option<(AffinityTarget, BindingVersion)>, AffinityError> {
        let next = BindingVersion { sequence: self.last_version.sequence + 1, ..self.last_version };
        let Some(held) = self.sessions.get_mut(&lease.session).filter(|held| held.entry == lease.entry) else {
            return Ok(None);
        };
        match &mut held.state {
            State::Binding { waiters } => {
                self.woken.extend(waiters.drain(..));
                held.state = State::Bound { target: dispatched, version: next, leases: 1, idle_until: Moment(0.0) };
                self.last_version = next;
                lease.version = Some(next);
                Ok(Some((dispatched, next)))
            }
            State::Bound { target, .. } if self.mode == AffinityMode::Hard && !target.holds(dispatched) => {
                let (session, bound) = (lease.session.to_string(), *target);
                self.invalidate(lease);
                Err(AffinityError::Conflict { session, bound, other: dispatched })
            }
            State::Bound { target, version, .. } => {
                let moved = target.followed_to(dispatched);
                if moved != *target && lease.version == Some(*version) {
                    (*target, *version) = (moved, next);
                    self.last_version = next;
                    lease.version = Some(next);
                }
                Ok(Some((*target, *version)))
            }
        }
    }

    /// Drops the binding that the lease was taken of: its worker has gone. One that has moved since stays. The lease still
    /// has to be released.
    pub fn invalidate(&mut self, lease: &Lease) {
        let current = self.sessions.get(&lease.session).is_some_and(|held| {
            held.entry == lease.entry
                && matches!(held.state, State::Bound { version, .. } if lease.version == Some(version))
        });
        if current {
            self.forget(&lease.session);
        }
    }

    /// Takes a lease back. With the last one the session begins to be idle. A session that was never bound is forgotten,
    /// and whoever of its waiters asks first binds it.
    pub fn release(&mut self, lease: Lease, now_ms: f64) {
        let Some(held) = self.sessions.get_mut(&lease.session).filter(|held| held.entry == lease.entry) else {
            return;
        };
        match &mut held.state {
            State::Binding { waiters } => {
                self.woken.extend(waiters.drain(..));
                self.sessions.remove(&lease.session);
            }
            State::Bound { leases, idle_until, .. } => {
                *leases = leases.saturating_sub(1);
                if *leases == 0 {
                    *idle_until = Moment(now_ms + self.ttl_ms);
                    self.idle.insert((*idle_until, lease.entry), lease.session);
                }
            }
        }
    }

    /// A waiter whose session is decided, in the order in which they came: it asks again.
    pub fn next_woken(&mut self) -> Option<u64> {
        self.woken.pop_front()
    }

    /// Takes over another replica's binding where it is newer than the one here.
    pub fn apply(
        &mut self,
        session: &str,
        told: AffinityTarget,
        told_version: BindingVersion,
        now_ms: f64,
    ) -> ReplicaOutcome {
        if session.len() > MAX_SESSION_ID_BYTES {
            return ReplicaOutcome::RejectedSessionId;
        }
        self.last_version.sequence = self.last_version.sequence.max(told_version.sequence);
        let expired = self.bound(session).is_some() && self.target(session, now_ms).is_none();
        self.expire(now_ms);
        let until = Moment(now_ms + self.ttl_ms);
        let Some(held) = self.sessions.get_mut(session) else {
            let state = State::Bound { target: told, version: told_version, leases: 0, idle_until: until };
            return match self.insert(session, state) {
                Err(_) => ReplicaOutcome::RejectedCapacity,
                Ok((name, entry)) => {
                    self.idle.insert((until, entry), name);
                    if expired { ReplicaOutcome::ReplacedExpired } else { ReplicaOutcome::Inserted }
                }
            };
        };
        let State::Bound { target, version, leases, idle_until } = &mut held.state else {
            return ReplicaOutcome::IgnoredInitializing;
        };
        let outcome = match told_version.cmp(version) {
            Ordering::Less => return ReplicaOutcome::IgnoredConflict,
            Ordering::Equal if *target != told => return ReplicaOutcome::IgnoredConflict,
            _ if *target == told => ReplicaOutcome::Refreshed,
            _ => ReplicaOutcome::ReplacedNewer,
        };
        if *leases == 0 {
            self.idle.remove(&(*idle_until, held.entry));
            self.idle.insert((until, held.entry), Arc::clone(&held.name));
        }
        (*target, *version, *idle_until) = (told, told_version, until);
        outcome
    }

    fn insert(&mut self, session: &str, state: State) -> Result<(Arc<str>, u64), AffinityError> {
        if self.sessions.len() >= MAX_SESSIONS {
            return Err(AffinityError::TableFull);
        }
        self.last_entry += 1;
        let (name, entry): (Arc<str>, _) = (session.into(), self.last_entry);
        self.sessions.insert(Arc::clone(&name), Session { name: Arc::clone(&name), entry, state });
        Ok((name, entry))
    }

    fn bound(&self, session: &str) -> Option<AffinityTarget> {
        match self.sessions.get(session)?.state {
            State::Bound { target, .. } => Some(target),
            State::Binding { .. } => None,
        }
    }

    fn forget(&mut self, session: &str) {
        if let Some(Session { entry, state: State::Bound { idle_until, .. }, .. }) = self.sessions.remove(session) {
            self.idle.remove(&(idle_until, entry));
        }
    }

    fn expire(&mut self, now_ms: f64) {
        while let Some(first) = self.idle.first_entry().filter(|first| first.key().0 <= Moment(now_ms)) {
            self.sessions.remove(&first.remove());
        }
    }
}
