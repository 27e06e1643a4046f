//! What happens every interval: programs are resumed while there is room, and paused while there is none.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use pointsman_sdk::Progress;

use crate::programs::{Program, Programs, scaled};
use crate::sessions::Place;

/// What a rank bears, with acting programs at their weight, and with acting programs decayed.
#[derive(Clone, Copy, Default)]
struct Usage {
    used: u64,
    decayed: u64,
}

type Usages = BTreeMap<u32, Usage>;

impl Programs {
    /// Notes how far the requests have come, then reconciles.
    pub(crate) fn tick(&mut self, now_ms: f64, progress: &[Progress]) {
        for Progress { ticket, context_tokens } in progress {
            let Some(request) = self.requests.get_mut(ticket) else { continue };
            request.context_tokens = request.context_tokens.max(u64::from(*context_tokens));
            let (tokens, begun) = (request.context_tokens, request.begun);
            // The charges are counted anew below, for all at once.
            if begun && let Some(program) = &mut self.sessions[request.session].program {
                program.tokens = tokens;
            }
        }
        if self.is_empty() {
            return;
        }
        let charges: Vec<_> = self.sessions.programs().filter_map(|program| self.charge(&program)).collect();
        self.ranks.recount(charges.into_iter());
        self.expire(now_ms);
        self.retry(now_ms);
        let mut usages = self.usages(now_ms);
        self.resume_what_fits(&mut usages, now_ms);
        self.resume_the_late(&mut usages, now_ms);
        self.pause_until_safe(&mut usages, now_ms);
    }

    /// Tries every front request, in the order of arrival.
    fn retry(&mut self, now_ms: f64) {
        let waiting: Vec<_> = self.waiting.iter().copied().collect();
        for ticket in waiting {
            let Some(request) = self.requests.get(&ticket) else { continue };
            let (place, begun) = (request.session, request.begun);
            // A paused program stays paused until it is resumed below.
            let paused = self.sessions[place].program.is_some_and(|program| program.paused);
            if !(begun && paused) && self.is_front(place, ticket) {
                self.admit(place, now_ms);
            }
        }
    }

    fn usages(&self, now_ms: f64) -> Usages {
        let mut usages = Usages::new();
        for program in self.sessions.programs() {
            if let Some((rank, tokens)) = self.charge(&program) {
                let usage = usages.entry(rank).or_default();
                usage.used = usage.used.saturating_add(tokens);
                usage.decayed = usage.decayed.saturating_add(self.decayed(&program, now_ms));
            }
        }
        usages
    }

    /// The program's tokens and buffer, its tokens halved for every `tau` that it has been acting.
    fn decayed(&self, program: &Program, now_ms: f64) -> u64 {
        let tokens = match program.acting_since {
            Some(since) => {
                let idle = (now_ms - since).max(0.0);
                scaled(program.tokens, (-idle / self.settings.acting_decay_tau_ms).exp2())
            }
            None => program.tokens,
        };
        tokens.saturating_add(self.settings.buffer)
    }

    /// Tokens and buffer of the session's program, unweighted.
    fn required(&self, place: Place) -> u64 {
        self.tokens(place).saturating_add(self.settings.buffer)
    }

    fn tokens(&self, place: Place) -> u64 {
        self.sessions[place].program.map_or(0, |program| program.tokens)
    }

    /// Chooses paused programs, the most urgent and smallest first, while all of them fit the room in sum; then places
    /// the chosen, the largest first, each on the rank with the most room.
    fn resume_what_fits(&mut self, usages: &mut Usages, now_ms: f64) {
        let ceiling = (self.settings.pause_threshold - self.settings.resume_hysteresis).max(0.0);
        let mut room = Room::default();
        for (rank, order, capacity) in self.ranks.sized() {
            let used = usages.get(&rank).map_or(0, |usage| usage.used);
            room.set(rank, order, scaled(capacity, ceiling).saturating_sub(used), self.settings.buffer);
        }
        if room.is_empty() || self.paused.is_empty() {
            return;
        }
        let mut paused: Vec<Place> = self.paused.iter().copied().collect();
        paused.sort_unstable_by(|left, right| self.urgency(*left).cmp(&self.urgency(*right)));
        let (total, mut sum) = (room.total(), 0_u64);
        let mut chosen = Vec::new();
        for place in paused {
            let required = self.required(place);
            let pin_fits = self.waiting_pin(place).is_none_or(|pin| room.holds(pin, required));
            if pin_fits && sum.saturating_add(required) <= total {
                sum = sum.saturating_add(required);
                chosen.push(place);
            }
        }
        chosen.sort_unstable_by(|left, right| {
            let key = |place: Place| (Reverse(self.tokens(place)), &self.sessions[place].id);
            key(*left).cmp(&key(*right))
        });
        for place in chosen {
            let required = self.required(place);
            let Some(rank) = room.take(self.waiting_pin(place), required, self.settings.buffer) else { continue };
            let decayed = self.sessions[place].program.map_or(0, |program| self.decayed(&program, now_ms));
            self.resume(place, Some(rank));
            let usage = usages.entry(rank).or_default();
            usage.used = usage.used.saturating_add(required);
            usage.decayed = usage.decayed.saturating_add(decayed);
        }
    }

    /// Programs in the middle of their work first, then new ones, then those whose request has not come yet; within
    /// each the smallest first.
    fn urgency(&self, place: Place) -> (u8, u64, &str) {
        let session = &self.sessions[place];
        let group = match session.program {
            Some(program) if program.steps <= 1 => 1,
            Some(Program { acting_since: None, .. }) | None => 0,
            Some(_) => 2,
        };
        (group, self.tokens(place), &session.id)
    }

    /// Resumes whatever waits for longer than the timeout, the longest wait first, wherever there is most room.
    fn resume_the_late(&mut self, usages: &mut Usages, now_ms: f64) {
        if self.ranks.none_live() {
            return;
        }
        let late = |place: &Place| {
            let since = self.sessions[*place].program?.deferred_since?;
            (now_ms - since >= self.settings.resume_timeout_ms).then_some((since.to_bits(), *place))
        };
        let mut late: Vec<_> = self.paused.iter().filter_map(late).collect();
        if late.is_empty() {
            return;
        }
        late.sort_unstable_by(|(left, a), (right, b)| {
            left.cmp(right).then_with(|| self.sessions[*a].id.cmp(&self.sessions[*b].id))
        });
        let headroom = |capacity: u64, usages: &Usages, rank: u32| {
            i128::from(capacity) - i128::from(usages.get(&rank).map_or(0, |usage| usage.decayed))
        };
        let mut most: BTreeSet<_> = self
            .ranks
            .sized()
            .map(|(rank, order, capacity)| (headroom(capacity, usages, rank), Reverse(order), rank))
            .collect();
        let orders: BTreeMap<_, _> =
            self.ranks.sized().map(|(rank, order, capacity)| (rank, (order, capacity))).collect();
        for (_, place) in late {
            let rank = self.waiting_pin(place).or_else(|| most.last().map(|(.., rank)| *rank));
            self.resume(place, rank);
            let (Some(rank), Some(program)) = (rank, self.sessions[place].program) else { continue };
            let before =
                orders.get(&rank).map(|(order, capacity)| (headroom(*capacity, usages, rank), Reverse(*order), rank));
            let weighted = program.weighted(self.settings.acting_token_weight).saturating_add(self.settings.buffer);
            let decayed = self.decayed(&program, now_ms);
            let usage = usages.entry(rank).or_default();
            usage.used = usage.used.saturating_add(weighted);
            usage.decayed = usage.decayed.saturating_add(decayed);
            if let (Some(before), Some((order, capacity))) = (before, orders.get(&rank)) {
                most.remove(&before);
                most.insert((headroom(*capacity, usages, rank), Reverse(*order), rank));
            }
        }
    }

    fn resume(&mut self, place: Place, rank: Option<u32>) {
        self.update(place, |program| {
            program.paused = false;
            program.deferred_since = None;
            program.rank = rank;
        });
        self.release(place, rank);
    }

    /// On each rank above the threshold, pauses acting programs, the smallest first, down to the target; where that is
    /// not enough, marks those that reason, to be paused as they complete.
    fn pause_until_safe(&mut self, usages: &mut Usages, now_ms: f64) {
        let used = |usages: &Usages, rank: u32| usages.get(&rank).map_or(0, |usage| usage.used);
        let mut crowded: BTreeMap<u32, (u64, Vec<Place>, Vec<Place>)> = self
            .ranks
            .sized()
            .filter(|(rank, _, capacity)| used(usages, *rank) > scaled(*capacity, self.settings.pause_threshold))
            .map(|(rank, _, capacity)| (rank, (scaled(capacity, self.settings.pause_target), Vec::new(), Vec::new())))
            .collect();
        if crowded.is_empty() {
            return;
        }
        for (place, session) in self.sessions.iter() {
            let Some(program) = session.program.filter(|program| !program.paused && !program.marked) else { continue };
            let Some((_, acting, reasoning)) = program.rank.and_then(|rank| crowded.get_mut(&rank)) else { continue };
            if program.acting_since.is_some() { acting.push(place) } else { reasoning.push(place) }
        }
        for (rank, (target, mut acting, reasoning)) in crowded {
            acting.sort_unstable_by(|left, right| {
                let key = |place: Place| (self.tokens(place), &self.sessions[place].id);
                key(*left).cmp(&key(*right))
            });
            for place in acting {
                if used(usages, rank) <= target {
                    break;
                }
                let Some(program) = self.sessions[place].program else { continue };
                let weighted = program.weighted(self.settings.acting_token_weight).saturating_add(self.settings.buffer);
                let decayed = self.decayed(&program, now_ms);
                self.update(place, |program| (program.paused, program.rank) = (true, None));
                let usage = usages.entry(rank).or_default();
                usage.used = usage.used.saturating_sub(weighted);
                usage.decayed = usage.decayed.saturating_sub(decayed);
            }
            if used(usages, rank) > target {
                reasoning.into_iter().for_each(|place| self.update(place, |program| program.marked = true));
            }
        }
    }
}

/// What is left on each rank that has more left than a buffer, the most first.
#[derive(Default)]
struct Room {
    most: BTreeSet<(Reverse<u64>, usize, u32)>,
    left: BTreeMap<u32, (u64, usize)>,
}

impl Room {
    fn set(&mut self, rank: u32, order: usize, left: u64, buffer: u64) {
        if let Some((before, order)) = self.left.remove(&rank) {
            self.most.remove(&(Reverse(before), order, rank));
        }
        if left > buffer {
            self.left.insert(rank, (left, order));
            self.most.insert((Reverse(left), order, rank));
        }
    }

    fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    fn total(&self) -> u64 {
        self.left.values().fold(0, |total, (left, _)| total.saturating_add(*left))
    }

    fn holds(&self, rank: u32, tokens: u64) -> bool {
        self.left.get(&rank).is_some_and(|(left, _)| *left >= tokens)
    }

    /// Takes so many tokens of the rank, or of the one with most room.
    fn take(&mut self, pin: Option<u32>, tokens: u64, buffer: u64) -> Option<u32> {
        let rank =
            pin.or_else(|| self.most.first().map(|(.., rank)| *rank)).filter(|rank| self.holds(*rank, tokens))?;
        let (left, order) = *self.left.get(&rank)?;
        self.set(rank, order, left - tokens, buffer);
        Some(rank)
    }
}
