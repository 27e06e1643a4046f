//! The queue beside one that is slow and obvious: a list that is searched from end to end for every answer.

use std::cmp::Ordering;
use std::sync::Arc;

use pointsman_admission::{
    Arrival, EntryId, Lane, LimitKind, PolicyClass, PolicyQueue, Profile, Pushed, QueueLimits, QueuePolicy,
    QueueRejection, RefusalReason, RequestTokens, RowLoad, WorkerKey,
};
use proptest::prelude::*;

use crate::common::{arrival, class, id, profile};

/// Workers, each of two ranks.
const WORKERS: u64 = 3;

/// What a request's owner keeps with it: the workers that may serve it, as bits.
type Allowed = u8;

/// What the queue is asked to do.
#[derive(Clone, Debug)]
enum Step {
    Push(Push),
    /// Cancels the request of that push, if there was one; it may have left.
    Cancel(usize),
    /// Sends one request. It adds its cost to the load of the first row that may serve it.
    Pop,
    /// A row has so much less to do.
    Free(u64, u32, u64),
    /// The clock goes on, and what is due expires.
    Wait(f64),
    /// A worker comes or leaves.
    Workers(u8),
    /// A worker is available, or no longer, to the requests that wait.
    Availability(u8),
}

#[derive(Clone, Debug)]
struct Push {
    class: usize,
    lane: Lane,
    allowed: Allowed,
    tokens: (u64, u64),
    cost: Option<u64>,
    strict_priority: u32,
    priority_jump: f64,
    ago_ms: f64,
    due_in_ms: Option<f64>,
}

fn step() -> impl Strategy<Value = Step> {
    let row = || (0..WORKERS, 0..2_u32);
    prop_oneof![
        6 => push().prop_map(Step::Push),
        1 => (0..100_usize).prop_map(Step::Cancel),
        5 => Just(Step::Pop),
        3 => (row(), 0..300_u64).prop_map(|((worker, rank), less)| Step::Free(worker, rank, less)),
        1 => (0..40_u8).prop_map(|quarters| Step::Wait(f64::from(quarters) / 4.0)),
        1 => (0..8_u8).prop_map(Step::Workers),
        1 => (0..8_u8).prop_map(Step::Availability),
    ]
}

prop_compose! {
    /// Few values for each field, so that requests often tie in one and differ in the next.
    fn push()(
        class in 0..4_usize,
        lane in prop_oneof![
            3 => Just(Lane::Shared),
            1 => (0..WORKERS).prop_map(Lane::Worker),
            2 => (0..WORKERS, 0..2_u32).prop_map(|(worker, rank)| Lane::Rank(WorkerKey::new(worker, rank))),
        ],
        allowed in prop_oneof![3 => Just(7), 1 => 0..8_u8],
        tokens in (0..200_u64, 0..200_u64),
        cost in prop_oneof![3 => Just(None), 1 => (0..500_u64).prop_map(Some)],
        strict_priority in prop_oneof![3 => Just(0), 1 => 0..3_u32],
        priority_jump in prop_oneof![3 => Just(0.0), 1 => -1.0..2.0],
        ago_ms in prop_oneof![3 => Just(0.0), 1 => 0.0..3_000.0],
        due_in_ms in prop_oneof![
            3 => Just(None),
            2 => (-1..60_i8).prop_map(|quarters| Some(f64::from(quarters) / 4.0)),
        ],
    ) -> Push {
        Push { class, lane, allowed, tokens, cost, strict_priority, priority_jump, ago_ms, due_in_ms }
    }
}

/// Four classes: with either threshold, with none, with limits, and one that never queues.
fn classes() -> impl Strategy<Value = Arc<Profile>> {
    let limit = || prop_oneof![2 => Just(None), 1 => (1..4_u64).prop_map(Some), 1 => (50..400_u64).prop_map(Some)];
    let class = |name: &'static str| {
        let policy = prop_oneof![Just(QueuePolicy::Fcfs), Just(QueuePolicy::Wspt)];
        let absolute = prop_oneof![1 => Just(None), 2 => (0..300_u64).prop_map(Some)];
        let part = prop_oneof![2 => Just(None), 1 => (0.0..2.0).prop_map(Some)];
        (1..300_u64, policy, absolute, part, limit(), limit(), limit()).prop_map(
            move |(quantum, queue_policy, absolute, part, requests, prompt_tokens, cached_tokens)| PolicyClass {
                queue_policy,
                prefill_busy_threshold: absolute,
                prefill_busy_threshold_frac: part,
                limits: QueueLimits { requests, prompt_tokens, cached_tokens },
                ..class(name, quantum)
            },
        )
    };
    (class("a"), class("b"), class("c"), class("d")).prop_map(|(mut a, mut b, c, mut d)| {
        a.limits = QueueLimits::default();
        b.limits.prompt_tokens = None;
        d.limits.cached_tokens = Some(0);
        profile([a, b, c, d])
    })
}

/// The workers and their load.
#[derive(Clone)]
struct Fleet {
    here: Allowed,
    available: Allowed,
    load: [[u64; 2]; WORKERS as usize],
}

impl Fleet {
    /// The rows that may serve a request, in order.
    fn rows(&self, lane: Lane, allowed: Allowed) -> impl Iterator<Item = (u64, u32)> {
        let workers = self.here & self.available & allowed;
        let rows = (0..WORKERS).flat_map(|worker| [(worker, 0), (worker, 1)]);
        rows.filter(move |(worker, rank)| {
            let may = match lane {
                Lane::Shared => true,
                Lane::Worker(only) => only == *worker,
                Lane::Rank(only) => only == WorkerKey::new(*worker, *rank),
            };
            may && workers >> worker & 1 == 1
        })
    }

    fn load(&mut self, (worker, rank): (u64, u32)) -> &mut u64 {
        &mut self.load[worker as usize][rank as usize]
    }

    fn admits(&self, class: &PolicyClass, lane: Lane, allowed: Allowed) -> bool {
        // Worker 2 does not tell its maximum.
        class.admits(self.rows(lane, allowed).map(|(worker, rank)| RowLoad {
            active_prefill_tokens: self.load[worker as usize][rank as usize] as f64,
            max_num_batched_tokens: (worker != 2).then_some(100),
        }))
    }
}

/// A request as the obvious queue keeps it: all of them in a list, in the order of arrival.
#[derive(Clone, Debug, PartialEq)]
struct Waiting {
    number: usize,
    arrival: Arrival,
    allowed: Allowed,
}

struct Obvious {
    profile: Arc<Profile>,
    waiting: Vec<Waiting>,
    deficits: Vec<u64>,
    cursor: usize,
    carry: Option<usize>,
}

impl Obvious {
    fn new(profile: Arc<Profile>) -> Self {
        let deficits = vec![0; profile.classes().len()];
        Self { profile, waiting: Vec::new(), deficits, cursor: 0, carry: None }
    }

    fn class_of(&self, waiting: &Waiting) -> usize {
        let class = self.profile.class(waiting.arrival.class);
        self.profile.classes().iter().position(|known| known == class).unwrap()
    }

    fn of(&self, class: usize) -> impl Iterator<Item = &Waiting> {
        self.waiting.iter().filter(move |waiting| self.class_of(waiting) == class)
    }

    fn refusal(&self, arrival: &Arrival, now: f64, workers: u64) -> Option<RefusalReason> {
        if arrival.due_ms.is_some_and(|due| due <= now) {
            return Some(RefusalReason::DeadlineExceeded);
        }
        let class = self.profile.class(arrival.class);
        let inside = || self.waiting.iter().filter(|waiting| waiting.arrival.class == arrival.class);
        let limits = [
            (LimitKind::Requests, class.limits.requests, inside().count() as u64),
            (LimitKind::PromptTokens, class.limits.prompt_tokens, inside().map(|it| it.arrival.tokens.prompt()).sum()),
            (LimitKind::CachedTokens, class.limits.cached_tokens, inside().map(|it| it.arrival.tokens.cached()).sum()),
        ];
        let reached =
            limits.into_iter().find(|(_, limit, current)| limit.is_some_and(|it| *current >= it * workers))?;
        let (policy_class, kind, current) = (class.name.clone(), reached.0, reached.2);
        Some(QueueRejection { policy_class, kind, current, limit: reached.1? * workers }.into())
    }

    /// Which of two requests of a class goes first.
    fn order(&self, one: &Waiting, other: &Waiting) -> Ordering {
        let score = |waiting: &Waiting| {
            let Arrival { priority_jump, ingress_ms, tokens, class, .. } = &waiting.arrival;
            match self.profile.class(*class).queue_policy {
                QueuePolicy::Fcfs => priority_jump.max(0.0) - ingress_ms.max(0.0) / 1000.0,
                QueuePolicy::Wspt => (1.0 + priority_jump.max(0.0)) / tokens.cost() as f64,
            }
        };
        let due = |waiting: &Waiting| waiting.arrival.due_ms.unwrap_or(f64::INFINITY);
        (other.arrival.strict_priority.cmp(&one.arrival.strict_priority))
            .then(due(one).total_cmp(&due(other)))
            .then(score(other).total_cmp(&score(one)))
            .then(one.number.cmp(&other.number))
    }

    /// The first request of a class that may go: the first of its lane, in a lane whose first one may go.
    fn head(&self, class: usize, fleet: &Fleet) -> Option<Waiting> {
        let first_of_lane = |waiting: &&Waiting| {
            let ahead = |other: &Waiting| self.order(other, waiting) == Ordering::Less;
            !self.of(class).any(|other| other.arrival.lane == waiting.arrival.lane && ahead(other))
        };
        let config = &self.profile.classes()[class];
        self.of(class)
            .filter(first_of_lane)
            .filter(|waiting| fleet.admits(config, waiting.arrival.lane, waiting.allowed))
            .min_by(|one, other| self.order(one, other))
            .cloned()
    }

    fn pop(&mut self, fleet: &Fleet) -> Option<Waiting> {
        let count = self.deficits.len();
        if let Some(class) = self.carry.take()
            && let Some(head) = self.head(class, fleet)
            && head.arrival.tokens.cost() <= self.deficits[class]
        {
            return Some(self.send(class, head));
        }
        let mut first_round = true;
        loop {
            let ring = (0..count).map(|step| (self.cursor + step) % count);
            let heads: Vec<_> = ring.filter_map(|class| Some((class, self.head(class, fleet)?))).collect();
            if heads.is_empty() {
                return None;
            }
            // In the first round each class earns when its turn comes; then all earn before any is served.
            if !first_round {
                heads.iter().for_each(|(class, _)| self.deficits[*class] += self.profile.classes()[*class].quantum);
            }
            for (class, head) in heads {
                let cost = head.arrival.tokens.cost();
                if first_round && cost > self.deficits[class] {
                    self.deficits[class] += self.profile.classes()[class].quantum;
                }
                if cost <= self.deficits[class] {
                    return Some(self.send(class, head));
                }
            }
            first_round = false;
        }
    }

    fn send(&mut self, class: usize, head: Waiting) -> Waiting {
        self.cursor = (class + 1) % self.deficits.len();
        self.deficits[class] -= head.arrival.tokens.cost();
        self.remove(head.number);
        self.carry = (self.deficits[class] > 0).then_some(class);
        head
    }

    fn remove(&mut self, number: usize) -> Option<Waiting> {
        let index = self.waiting.iter().position(|waiting| waiting.number == number)?;
        let waiting = self.waiting.remove(index);
        let class = self.class_of(&waiting);
        if self.of(class).next().is_none() {
            self.deficits[class] = 0;
        }
        Some(waiting)
    }

    fn next_deadline(&self) -> Option<f64> {
        self.waiting.iter().filter_map(|waiting| waiting.arrival.due_ms).min_by(f64::total_cmp)
    }

    fn expire(&mut self, now: f64) -> Vec<usize> {
        let mut due: Vec<_> =
            self.waiting.iter().filter(|it| it.arrival.due_ms.is_some_and(|due| due <= now)).collect();
        due.sort_by(|one, other| one.arrival.due_ms.partial_cmp(&other.arrival.due_ms).unwrap());
        let numbers: Vec<_> = due.into_iter().map(|waiting| waiting.number).collect();
        numbers.iter().for_each(|number| _ = self.remove(*number));
        numbers
    }
}

/// Both queues, told the same.
struct Both {
    profile: Arc<Profile>,
    fast: PolicyQueue<(usize, Lane, Allowed)>,
    obvious: Obvious,
    fleet: Fleet,
    now: f64,
    /// The number that the fast queue gave to each push.
    ids: Vec<Option<EntryId>>,
}

impl Both {
    fn new(profile: Arc<Profile>) -> Self {
        let fleet = Fleet { here: 7, available: 7, load: [[0; 2]; WORKERS as usize] };
        Self {
            fast: PolicyQueue::new(profile.clone()),
            obvious: Obvious::new(profile.clone()),
            profile,
            fleet,
            now: 5_000.0,
            ids: Vec::new(),
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Push(push) => self.push(push),
            Step::Cancel(number) => {
                let fast = self.ids.get(*number).copied().flatten().and_then(|id| self.fast.cancel(id));
                let obvious = self.obvious.remove(*number);
                assert_eq!(fast.map(|entry| entry.payload.0), obvious.map(|waiting| waiting.number), "cancelled");
            }
            Step::Pop => _ = self.pop(),
            Step::Free(worker, rank, less) => {
                let load = self.fleet.load((*worker, *rank));
                *load = load.saturating_sub(*less);
                self.fast.recheck(WorkerKey::new(*worker, *rank));
            }
            Step::Wait(ms) => {
                self.now += ms;
                let fast: Vec<_> = std::iter::from_fn(|| self.fast.expire(self.now)).map(|it| it.payload.0).collect();
                assert_eq!(fast, self.obvious.expire(self.now), "expired at {}", self.now);
            }
            Step::Workers(here) => {
                self.fleet.here = *here;
                self.fast.recheck_all();
            }
            Step::Availability(available) => {
                self.fleet.available = *available;
                self.fast.recheck_all();
            }
        }
        assert_eq!(self.fast.len(), self.obvious.waiting.len());
        assert_eq!(self.fast.next_deadline(), self.obvious.next_deadline());
    }

    fn push(&mut self, push: &Push) {
        let name = ["a", "b", "c", "d"][push.class];
        let (prompt, cached) = push.tokens;
        let tokens = RequestTokens::new(prompt, cached);
        let arrival = Arrival {
            lane: push.lane,
            tokens: push.cost.map_or(tokens, |cost| tokens.with_cost(cost)),
            strict_priority: push.strict_priority,
            priority_jump: push.priority_jump,
            ingress_ms: self.now - push.ago_ms,
            due_ms: push.due_in_ms.map(|due| self.now + due),
            ..arrival(id(&self.profile, name))
        };
        let number = self.ids.len();
        let workers = self.fleet.here.count_ones();
        let due = arrival.due_ms.is_some_and(|due| due <= self.now);
        let direct = name == "d" && self.fleet.admits(self.profile.class(arrival.class), push.lane, push.allowed);
        let refusal = self.obvious.refusal(&arrival, self.now, u64::from(workers));
        let fleet = &self.fleet;
        let pushed =
            self.fast.push(arrival, (number, push.lane, push.allowed), self.now, workers as usize, |class, it| {
                fleet.admits(class, it.1, it.2)
            });
        self.ids.push(None);
        if !due && (workers == 0 || direct) {
            assert!(matches!(pushed, Ok(Pushed::Direct((back, ..))) if back == number), "{number} goes on: {pushed:?}");
            return;
        }
        match (pushed, refusal) {
            (Ok(Pushed::Waits(id)), None) => {
                self.ids[number] = Some(id);
                self.obvious.waiting.push(Waiting { number, arrival, allowed: push.allowed });
            }
            (Err(fast), Some(obvious)) => assert_eq!(fast.reason, obvious),
            (pushed, refusal) => panic!("{number}: {pushed:?}, not {refusal:?}"),
        }
    }

    /// Sends one request of each queue, which must be the same, and books it.
    fn pop(&mut self) -> bool {
        let fleet = &self.fleet;
        let fast = self.fast.pop(|class, (_, lane, allowed)| fleet.admits(class, *lane, *allowed));
        let obvious = self.obvious.pop(fleet);
        assert_eq!(fast.map(|entry| entry.payload.0), obvious.as_ref().map(|waiting| waiting.number), "sent");
        let Some(sent) = obvious else { return false };
        let row = self.fleet.rows(sent.arrival.lane, sent.allowed).next();
        if let Some(row) = row {
            *self.fleet.load(row) += sent.arrival.tokens.cost();
        }
        true
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever comes, leaves and changes, both queues refuse, send, cancel and expire the same requests in the same
    /// order, and in the end everything has left.
    #[test]
    fn the_queue_does_as_the_obvious_one(profile in classes(), steps in prop::collection::vec(step(), 1..150)) {
        let mut both = Both::new(profile);
        steps.iter().for_each(|step| both.step(step));
        both.fleet.load = [[0; 2]; WORKERS as usize];
        both.fast.recheck_all();
        while both.pop() {
            both.fleet.load = [[0; 2]; WORKERS as usize];
            both.fast.recheck_all();
        }
        prop_assert!(both.fast.is_empty());
    }
}
