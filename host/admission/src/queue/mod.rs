//! The queue in front of worker selection: policy classes that share by deficit round robin.

mod entry;
mod lanes;
mod refusal;

use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::FxHashMap;

pub use entry::{Arrival, EntryId, Lane, Queued, RequestTokens};
pub use refusal::{LimitKind, QueueRejection, RefusalReason, Refused, Usage};

use crate::{ClassId, PolicyClass, Profile, WorkerKey};
use entry::{Due, Order};
use lanes::Lanes;

/// The waiting requests of one partition, each with its owner's `T`.
///
/// Inside a class the larger strict priority goes first, then the earlier due time, before requests without one, then
/// the class's [`QueuePolicy`](crate::QueuePolicy), then the order of arrival. Between classes it is deficit round
/// robin: when its turn comes a class earns its quantum, and it pays the scheduling cost of each request that it sends.
/// (Semantics: Dynamo 1.6.1's policy queue.)
///
/// Every operation on one request takes O(log n) in the number of waiting ones, and O(c) in that of classes.
pub struct PolicyQueue<T> {
    profile: Arc<Profile>,
    classes: Vec<Class>,
    entries: FxHashMap<EntryId, (Order, Queued<T>)>,
    due: BTreeSet<(Due, EntryId)>,
    next_id: u64,
    /// The class whose turn comes first.
    cursor: usize,
    /// A class that has credit left from its turn.
    carry: Option<usize>,
    /// The heads of one round, kept for their buffer.
    round: Vec<(usize, Head)>,
}

#[derive(Default)]
struct Class {
    lanes: Lanes,
    usage: Usage,
    /// Credit, in tokens.
    deficit: u64,
}

/// The request that a class would send next.
#[derive(Clone, Copy)]
struct Head {
    id: EntryId,
    cost: u64,
}

/// What became of a request that was not refused.
#[derive(Debug)]
pub enum Pushed<T> {
    /// It waits.
    Waits(EntryId),
    /// It does not queue; it goes to worker selection now.
    Direct(T),
}

impl<T> PolicyQueue<T> {
    /// An empty queue.
    #[must_use]
    pub fn new(profile: Arc<Profile>) -> Self {
        Self {
            classes: profile.classes().iter().map(|_| Class::default()).collect(),
            profile,
            entries: FxHashMap::default(),
            due: BTreeSet::new(),
            next_id: 0,
            cursor: 0,
            carry: None,
            round: Vec::new(),
        }
    }

    /// Takes a request in. Every request passes through here, also one that could go at once: [`Self::pop`], called
    /// next, sends it in its turn.
    ///
    /// `workers` is how many workers the partition has; the limits of a class are so many times theirs. Without a
    /// worker the request goes on, so that selection says what is wrong, and so does one of a class that never queues,
    /// where `admits` holds. `admits` says whether the request could be served now; see [`PolicyClass::admits`].
    ///
    /// # Errors
    /// Where the due time is not after `now_ms`, or where the class is full.
    pub fn push(
        &mut self,
        arrival: Arrival,
        payload: T,
        now_ms: f64,
        workers: usize,
        admits: impl FnOnce(&PolicyClass, &T) -> bool,
    ) -> Result<Pushed<T>, Refused<T>> {
        if arrival.due_ms.is_some_and(|due| due <= now_ms) {
            return Err(Refused { reason: RefusalReason::DeadlineExceeded, payload });
        }
        let class = self.profile.class(arrival.class);
        if workers == 0 || class.never_queues() && admits(class, &payload) {
            return Ok(Pushed::Direct(payload));
        }
        let queue = &mut self.classes[arrival.class.0];
        if let Some(rejection) = queue.usage.reached(class, workers as u64) {
            return Err(Refused { reason: rejection.into(), payload });
        }
        let id = EntryId(self.next_id);
        self.next_id += 1;
        let order = Order::new(&arrival, class.queue_policy, id);
        queue.usage.add(Usage::of(arrival.tokens));
        queue.lanes.insert(arrival.lane, order);
        self.due.extend(arrival.due_ms.map(|due| (Due::at(due), id)));
        self.entries.insert(id, (order, Queued { id, arrival, payload }));
        Ok(Pushed::Waits(id))
    }

    /// Sends the next request, or none where every one must wait.
    ///
    /// `admits` says whether a request may go to selection now; see [`PolicyClass::admits`]. A lane whose first request
    /// may not is not asked again before its first request changes or a row of its own is rechecked. Booking what was
    /// sent before the next call makes `admits` see it. The due time is not looked at: call [`Self::expire`] before.
    ///
    /// The class pays for the request here, whatever becomes of it afterwards.
    pub fn pop(&mut self, mut admits: impl FnMut(&PolicyClass, &T) -> bool) -> Option<Queued<T>> {
        if let Some(class) = self.carry.take()
            && let Some(head) = self.head(class, &mut admits)
            && self.affords(class, head)
        {
            return self.send(class, head);
        }
        self.round.clear();
        for step in 0..self.classes.len() {
            let class = (self.cursor + step) % self.classes.len();
            let Some(head) = self.head(class, &mut admits) else { continue };
            if !self.affords(class, head) {
                self.earn(class, 1);
            }
            if self.affords(class, head) {
                return self.send(class, head);
            }
            self.round.push((class, head));
        }
        self.skip_rounds();
        let (class, head) = self.round.iter().copied().find(|(class, head)| self.affords(*class, *head))?;
        self.send(class, head)
    }

    /// The first request of a class that may go.
    fn head(&mut self, class: usize, admits: &mut impl FnMut(&PolicyClass, &T) -> bool) -> Option<Head> {
        let lanes = &mut self.classes[class].lanes;
        while let Some(head) = lanes.head() {
            let (_, entry) = &self.entries[&head.0.id];
            if admits(self.profile.class(ClassId(class)), &entry.payload) {
                return Some(Head { id: entry.id, cost: entry.arrival.tokens.cost() });
            }
            lanes.park(head);
        }
        None
    }

    fn affords(&self, class: usize, head: Head) -> bool {
        head.cost <= self.classes[class].deficit
    }

    fn earn(&mut self, class: usize, rounds: u64) {
        let quantum = self.profile.class(ClassId(class)).quantum;
        let deficit = &mut self.classes[class].deficit;
        *deficit = deficit.saturating_add(quantum.saturating_mul(rounds));
    }

    /// Gives the classes of a round, none of which can pay, as many rounds as make the first of them able to.
    fn skip_rounds(&mut self) {
        let missing = |(class, head): &(usize, Head)| {
            let missing = head.cost.saturating_sub(self.classes[*class].deficit);
            missing.div_ceil(self.profile.class(ClassId(*class)).quantum)
        };
        let rounds = self.round.iter().map(missing).min().unwrap_or(0);
        for index in 0..self.round.len() {
            self.earn(self.round[index].0, rounds);
        }
    }

    fn send(&mut self, class: usize, head: Head) -> Option<Queued<T>> {
        self.cursor = (class + 1) % self.classes.len();
        let deficit = &mut self.classes[class].deficit;
        *deficit = deficit.saturating_sub(head.cost);
        let entry = self.cancel(head.id);
        self.carry = (self.classes[class].deficit > 0).then_some(class);
        entry
    }

    /// Takes a request out that waits; none where it does not, or no longer.
    pub fn cancel(&mut self, id: EntryId) -> Option<Queued<T>> {
        let (order, entry) = self.entries.remove(&id)?;
        let arrival = &entry.arrival;
        if let Some(due) = arrival.due_ms {
            self.due.remove(&(Due::at(due), id));
        }
        let class = &mut self.classes[arrival.class.0];
        class.usage.subtract(Usage::of(arrival.tokens));
        class.lanes.remove(arrival.lane, order);
        if class.lanes.is_empty() {
            class.deficit = 0;
        }
        Some(entry)
    }

    /// Takes a request out whose due time is not after `now_ms`, the earliest first. Call it until there is none.
    pub fn expire(&mut self, now_ms: f64) -> Option<Queued<T>> {
        let &(due, id) = self.due.first()?;
        if due <= Due::at(now_ms) { self.cancel(id) } else { None }
    }

    /// When [`Self::expire`] has something to take out, in milliseconds; none where no request has a due time.
    #[must_use]
    pub fn next_deadline(&self) -> Option<f64> {
        let (_, id) = self.due.first()?;
        self.entries[id].1.arrival.due_ms
    }

    /// Looks afresh at the requests that a row may serve: it has less to do than before.
    pub fn recheck(&mut self, row: WorkerKey) {
        self.classes.iter_mut().for_each(|class| class.lanes.recheck(row));
    }

    /// Looks afresh at every request: workers came, left or changed, or became available.
    pub fn recheck_all(&mut self) {
        self.classes.iter_mut().for_each(|class| class.lanes.recheck_all());
    }

    /// Takes every request out, in the order of arrival.
    pub fn drain(&mut self) -> Vec<Queued<T>> {
        let mut ids: Vec<_> = self.entries.keys().copied().collect();
        ids.sort_unstable();
        ids.into_iter().filter_map(|id| self.cancel(id)).collect()
    }

    /// The profile.
    #[must_use]
    pub fn profile(&self) -> &Arc<Profile> {
        &self.profile
    }

    /// How many requests wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What waits in a class.
    #[must_use]
    pub fn usage(&self, class: ClassId) -> Usage {
        self.classes[class.0].usage
    }

    /// What waits in all classes.
    #[must_use]
    pub fn waiting(&self) -> Usage {
        let mut all = Usage::default();
        self.classes.iter().for_each(|class| all.add(class.usage));
        all
    }
}
