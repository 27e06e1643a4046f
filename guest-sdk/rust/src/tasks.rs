//! The asynchronous form of a classifier: a future for each request, over the reactor.
//!
//! The executor is as small as a guest needs. A future is polled when its request is classified, and afterwards
//! whenever something woke it: an event, a timer or another future. Nothing runs between the host's calls.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Wake, Waker};

use pointsman_contract::{ErrorClass, Event, Fact, Progress, Resolution, Ticket, Verdict};

use crate::classifier::{ClassifyRequest, OwnedRequest, Reactor};
use crate::{Policy, PolicyError, Reads};

/// A [`Classifier`](crate::Classifier) written as one future for each request, which may await capacity, a time or an
/// event. Exported as `async_classifier`.
///
/// The policy is cloned for each request, so what requests share lives behind an [`Arc`]:
///
/// ```
/// use pointsman_sdk::prelude::*;
///
/// /// Lets so many requests in at a time, and none wait for longer than a second.
/// #[derive(Clone)]
/// struct Patient {
///     turns: Turns<()>,
/// }
///
/// impl Policy for Patient {
///     type Parameters = NoParameters;
///     const NAME: &'static str = "patient";
///     const DESCRIPTION: &'static str = "Lets eight requests in at a time.";
///
///     fn configure(_: &Setup, _: NoParameters) -> Result<Self, PolicyError> {
///         Ok(Self { turns: Turns::new(8) })
///     }
/// }
///
/// impl AsyncClassifier for Patient {
///     fn reads(&self) -> Reads {
///         Fact::IngressMs.into()
///     }
///
///     fn tick_ms(&self) -> Option<u32> {
///         Some(100)
///     }
///
///     async fn classify(self, request: OwnedRequest, cx: Context) -> Result<Verdict, PolicyError> {
///         let latest = request.read().ingress_ms()? + 1000.0;
///         match cx.by(latest, self.turns.take(())).await {
///             Some(turn) => {
///                 cx.keep(turn);
///                 Ok(Verdict::admit())
///             }
///             None => Ok(Verdict::reject(ErrorClass::CapacityExhausted, "no turn within a second")),
///         }
///     }
/// }
///
/// pointsman_sdk::export!(Patient: async_classifier);
/// # fn main() {}
/// ```
///
/// A request that ends while its future waits drops the future, and with it whatever the future holds: guards do their
/// work there. What [`Context::keep`] was given is dropped when the request ends.
pub trait AsyncClassifier: Policy + Clone {
    /// What the classifier reads: facts and texts. Asked once, after `configure`.
    fn reads(&self) -> Reads;

    /// How often the guest is called for its timers, in milliseconds, at least 10. Without it a time that is awaited is
    /// noticed at the next event only. Asked once, after `configure`.
    fn tick_ms(&self) -> Option<u32> {
        None
    }

    /// Decides about one request. The future is polled at once; while it is pending the request is deferred.
    ///
    /// # Errors
    /// A sentence for the operator's log. Where the future was never pending the host treats the request as its setting
    /// `on_fault` says; later the request ends with an internal error.
    fn classify(
        self,
        request: OwnedRequest,
        cx: Context,
    ) -> impl Future<Output = Result<Verdict, PolicyError>> + Send + 'static;

    /// Hears of each event before any future does.
    ///
    /// # Errors
    /// A sentence for the operator's log; no future runs.
    fn on_event(&mut self, event: &Event, now_ms: f64) -> Result<(), PolicyError> {
        let _ = (event, now_ms);
        Ok(())
    }

    /// Hears, at each tick, of the live requests whose tokens grew since the last one, before any future runs.
    ///
    /// # Errors
    /// A sentence for the operator's log; no future runs.
    fn on_tick(&mut self, now_ms: f64, progress: &[Progress]) -> Result<(), PolicyError> {
        let _ = (now_ms, progress);
        Ok(())
    }
}

type Work = Pin<Box<dyn Future<Output = Result<Verdict, PolicyError>> + Send>>;

/// A deferred request.
struct Parked {
    work: Work,
    task: Arc<Task>,
}

/// The reactor of an [`AsyncClassifier`].
#[doc(hidden)]
#[derive(Default)]
pub struct Tasks {
    parked: BTreeMap<Ticket, Parked>,
    ready: Arc<Mutex<VecDeque<Ticket>>>,
    bench: Arc<Mutex<Bench>>,
}

/// What futures wait for.
#[derive(Default)]
struct Bench {
    now_ms: f64,
    /// How many events there were, and how many of them may have freed capacity.
    events: u64,
    capacity_changes: u64,
    last_event: Option<Event>,
    for_event: BTreeMap<Ticket, Waker>,
    for_capacity: BTreeMap<Ticket, Waker>,
    /// By time in bits, which sort as the times do since none is negative, then by number.
    timers: BTreeMap<(u64, u64), Waker>,
    timer_number: u64,
    kept: BTreeMap<Ticket, Vec<Box<dyn Any + Send>>>,
}

/// A panic in one future must not reach the next by a poisoned lock; in a component it ends the guest anyway.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes one future: puts its ticket on the list of those to poll, once.
struct Task {
    ticket: Ticket,
    ready: Arc<Mutex<VecDeque<Ticket>>>,
    listed: AtomicBool,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.listed.swap(true, Ordering::AcqRel) {
            lock(&self.ready).push_back(self.ticket);
        }
    }
}

impl Parked {
    fn poll(&mut self) -> Poll<Result<Verdict, PolicyError>> {
        self.task.listed.store(false, Ordering::Release);
        let waker = Waker::from(Arc::clone(&self.task));
        self.work.as_mut().poll(&mut std::task::Context::from_waker(&waker))
    }
}

impl Tasks {
    /// Sets the clock and wakes whoever waited for a time up to it.
    fn advance(&self, now_ms: f64) {
        let mut bench = lock(&self.bench);
        bench.now_ms = now_ms;
        let later = bench.timers.split_off(&(now_ms.max(0.0).to_bits() + 1, 0));
        let due = std::mem::replace(&mut bench.timers, later);
        drop(bench);
        due.into_values().for_each(Waker::wake);
    }

    /// Tells the futures of an event, and lets go of the request that it ends.
    fn hear(&mut self, event: &Event) {
        // Dropped before anyone is woken: their guards give back what others wait for.
        let ended = event.ended().map(|ticket| (self.parked.remove(&ticket), lock(&self.bench).forget(ticket)));
        drop(ended);
        let woken = lock(&self.bench).note(event);
        woken.into_iter().flat_map(BTreeMap::into_values).for_each(Waker::wake);
    }

    /// Polls whoever was woken, until nobody is left.
    fn run(&mut self) -> Vec<Resolution> {
        let mut resolutions = Vec::new();
        while let Some(ticket) = { lock(&self.ready).pop_front() } {
            let Some(parked) = self.parked.get_mut(&ticket) else { continue };
            if let Poll::Ready(answer) = parked.poll() {
                self.parked.remove(&ticket);
                let failed = |error: PolicyError| Verdict::reject(ErrorClass::Internal, error);
                resolutions.push(Resolution { ticket, verdict: answer.unwrap_or_else(failed) });
            }
        }
        resolutions
    }
}

impl Bench {
    fn forget(&mut self, ticket: Ticket) -> Option<Vec<Box<dyn Any + Send>>> {
        self.for_event.remove(&ticket);
        self.for_capacity.remove(&ticket);
        self.kept.remove(&ticket)
    }

    /// Remembers the event; answers whom to wake.
    fn note(&mut self, event: &Event) -> [BTreeMap<Ticket, Waker>; 2] {
        self.events += 1;
        self.last_event = Some(event.clone());
        let capacity = event.ended().is_some() || matches!(event, Event::Workers(_));
        if capacity {
            self.capacity_changes += 1;
        }
        let for_capacity = if capacity { std::mem::take(&mut self.for_capacity) } else { BTreeMap::new() };
        [for_capacity, std::mem::take(&mut self.for_event)]
    }
}

impl<P: AsyncClassifier> Reactor<P> for Tasks {
    fn reads(policy: &P) -> Reads {
        policy.reads() | Fact::NowMs
    }

    fn tick_ms(policy: &P) -> Option<u32> {
        policy.tick_ms()
    }

    fn classify(&mut self, policy: &mut P, request: &ClassifyRequest<'_>) -> Result<Option<Verdict>, PolicyError> {
        let ticket = request.ticket();
        self.advance(request.now_ms()?);
        let cx = Context { ticket, bench: Arc::clone(&self.bench) };
        let work = Box::pin(policy.clone().classify(request.owned(), cx));
        let task = Arc::new(Task { ticket, ready: Arc::clone(&self.ready), listed: AtomicBool::new(false) });
        let mut parked = Parked { work, task };
        match parked.poll() {
            Poll::Ready(answer) => answer.map(Some),
            Poll::Pending => {
                self.parked.insert(ticket, parked);
                Ok(None)
            }
        }
    }

    fn on_event(&mut self, policy: &mut P, event: &Event, now_ms: f64) -> Result<Vec<Resolution>, PolicyError> {
        self.advance(now_ms);
        let heard = policy.on_event(event, now_ms);
        self.hear(event);
        heard.map(|()| self.run())
    }

    fn on_tick(&mut self, policy: &mut P, now_ms: f64, progress: &[Progress]) -> Result<Vec<Resolution>, PolicyError> {
        self.advance(now_ms);
        policy.on_tick(now_ms, progress)?;
        Ok(self.run())
    }
}

/// What a future may await, for one request.
#[derive(Clone)]
pub struct Context {
    ticket: Ticket,
    bench: Arc<Mutex<Bench>>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

impl Context {
    /// The host's number of this request.
    #[must_use]
    pub const fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// The time of the host's call that runs the future, in milliseconds on the clock of `request.now-ms`.
    #[must_use]
    pub fn now_ms(&self) -> f64 {
        lock(&self.bench).now_ms
    }

    /// Waits for the next event that may have freed capacity: a request ended, or the workers changed.
    ///
    /// All who wait are woken. Where only so many may go on, [`Turns`] wakes just those.
    pub async fn capacity_changed(&self) {
        let seen = lock(&self.bench).capacity_changes;
        poll_fn(|context| {
            let mut bench = lock(&self.bench);
            if bench.capacity_changes != seen {
                return Poll::Ready(());
            }
            bench.for_capacity.insert(self.ticket, context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Waits for the next event and answers it.
    pub async fn event(&self) -> Event {
        let seen = lock(&self.bench).events;
        poll_fn(|context| {
            let mut bench = lock(&self.bench);
            match &bench.last_event {
                Some(event) if bench.events != seen => Poll::Ready(event.clone()),
                _ => {
                    bench.for_event.insert(self.ticket, context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Waits until that time, in milliseconds on the clock of `request.now-ms`; noticed at the first tick or event from
    /// then on.
    pub async fn until(&self, at_ms: f64) {
        let mut timer = Timer { bench: &self.bench, key: None };
        poll_fn(|context| timer.poll(at_ms, context.waker())).await;
    }

    /// Waits so long, in milliseconds.
    pub async fn sleep(&self, ms: f64) {
        self.until(self.now_ms() + ms).await;
    }

    /// Waits for `work`, but no longer than until that time; none where it was not done by then.
    pub async fn by<T>(&self, at_ms: f64, work: impl Future<Output = T>) -> Option<T> {
        let (mut work, mut timer) = (pin!(work), pin!(self.until(at_ms)));
        poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending => timer.as_mut().poll(context).map(|()| None),
        })
        .await
    }

    /// Keeps `guard` until the request ends, completed or aborted, and drops it then.
    pub fn keep(&self, guard: impl Send + 'static) {
        lock(&self.bench).kept.entry(self.ticket).or_default().push(Box::new(guard));
    }
}

/// A place among the timers, given back when dropped.
struct Timer<'a> {
    bench: &'a Mutex<Bench>,
    key: Option<(u64, u64)>,
}

impl Timer<'_> {
    fn poll(&mut self, at_ms: f64, waker: &Waker) -> Poll<()> {
        let mut bench = lock(self.bench);
        if bench.now_ms >= at_ms {
            return Poll::Ready(());
        }
        let number = bench.timer_number;
        let key = *self.key.get_or_insert((at_ms.max(0.0).to_bits(), number));
        bench.timer_number = number + 1;
        bench.timers.insert(key, waker.clone());
        Poll::Pending
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            lock(self.bench).timers.remove(&key);
        }
    }
}

/// Turns for those who wait for the same key: so many at a time for each key, in the order in which they came. Clones
/// share the turns.
#[derive(Debug)]
pub struct Turns<K: Ord>(Arc<Mutex<Lanes<K>>>);

#[derive(Debug)]
struct Lanes<K> {
    most: usize,
    lanes: BTreeMap<K, Lane>,
    next: u64,
}

/// Those who have the turn, and those who wait, by number. Whoever was given the turn and has not run yet has it.
#[derive(Debug, Default)]
struct Lane {
    taken: usize,
    waiting: BTreeMap<u64, Waker>,
}

impl<K: Ord> Clone for Turns<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Ord + Clone> Turns<K> {
    /// So many turns at a time for each key; 0 counts as 1.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Mutex::new(Lanes { most: most.max(1), lanes: BTreeMap::new(), next: 0 })))
    }

    /// Waits for a turn of that key. Dropped while it waits, it gives up its place.
    pub async fn take(&self, key: K) -> Turn<K> {
        let mut place = Place { turns: self, key: &key, number: None };
        poll_fn(|context| place.poll(context.waker())).await;
        place.number = None;
        drop(place);
        Turn { turns: self.clone(), key }
    }

    /// How many have the turn of that key, and how many wait for one.
    #[must_use]
    pub fn count(&self, key: &K) -> (usize, usize) {
        lock(&self.0).lanes.get(key).map_or((0, 0), |lane| (lane.taken, lane.waiting.len()))
    }

    /// One turn of that key ends: it passes to the first who waits.
    fn pass(&self, key: &K) {
        let mut lanes = lock(&self.0);
        let Some(lane) = lanes.lanes.get_mut(key) else { return };
        let next = lane.waiting.pop_first();
        if next.is_none() {
            lane.taken -= 1;
            if lane.taken == 0 {
                lanes.lanes.remove(key);
            }
        }
        drop(lanes);
        if let Some((_, waker)) = next {
            waker.wake();
        }
    }
}

/// One who waits for a turn.
struct Place<'a, K: Ord + Clone> {
    turns: &'a Turns<K>,
    key: &'a K,
    /// Whoever has a number and is not in the lane was given the turn.
    number: Option<u64>,
}

impl<K: Ord + Clone> Place<'_, K> {
    fn poll(&mut self, waker: &Waker) -> Poll<()> {
        let mut lanes = lock(&self.turns.0);
        let (most, next) = (lanes.most, lanes.next);
        let lane = match lanes.lanes.get_mut(self.key) {
            Some(lane) => lane,
            None => lanes.lanes.entry(self.key.clone()).or_default(),
        };
        match self.number {
            Some(number) => match lane.waiting.get_mut(&number) {
                Some(waiting) => waiting.clone_from(waker),
                None => return Poll::Ready(()),
            },
            // Nobody waits while there is a turn to take.
            None if lane.taken < most => {
                lane.taken += 1;
                return Poll::Ready(());
            }
            None => {
                lane.waiting.insert(next, waker.clone());
                self.number = Some(next);
                lanes.next += 1;
            }
        }
        Poll::Pending
    }
}

impl<K: Ord + Clone> Drop for Place<'_, K> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let waited =
            lock(&self.turns.0).lanes.get_mut(self.key).is_some_and(|lane| lane.waiting.remove(&number).is_some());
        if !waited {
            self.turns.pass(self.key);
        }
    }
}

/// A turn; dropped, it passes to the next.
#[derive(Debug)]
pub struct Turn<K: Ord + Clone> {
    turns: Turns<K>,
    key: K,
}

impl<K: Ord + Clone> Drop for Turn<K> {
    fn drop(&mut self) {
        self.turns.pass(&self.key);
    }
}
