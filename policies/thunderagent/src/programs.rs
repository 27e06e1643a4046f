//! Programs, which are sessions with a share of a rank's memory, and the requests that wait for them.
//!
//! Each event touches one session and one rank, by index; only a reconcile looks at all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pointsman_sdk::Ticket;

use crate::classifier::Settings;
use crate::names::Names;
use crate::ranks::Ranks;
use crate::sessions::{Place, Session, Sessions};

/// A session's share of a rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    /// Since when no request runs, in milliseconds; none while one does. (Dynamo: Acting and Reasoning.)
    pub(crate) acting_since: Option<f64>,
    /// Paused programs hold nothing and their requests wait.
    pub(crate) paused: bool,
    /// The number of the rank that it is assigned to.
    pub(crate) rank: Option<u32>,
    pub(crate) tokens: u64,
    pub(crate) steps: u64,
    /// To be paused as soon as its request completes.
    pub(crate) marked: bool,
    /// Since when its request waits for a resume.
    pub(crate) deferred_since: Option<f64>,
}

impl Program {
    /// Its tokens, weighted where it is acting.
    pub(crate) fn weighted(&self, acting_weight: f64) -> u64 {
        if self.acting_since.is_some() { scaled(self.tokens, acting_weight) } else { self.tokens }
    }
}

/// `tokens` × `factor`, rounded down.
pub(crate) fn scaled(tokens: u64, factor: f64) -> u64 {
    // `as` saturates.
    (tokens as f64 * factor) as u64
}

/// A request of a session.
pub(crate) struct Tracked {
    pub(crate) id: Arc<str>,
    pub(crate) session: Place,
    pub(crate) input_tokens: u64,
    pub(crate) context_tokens: u64,
    /// The session's last.
    pub(crate) last: bool,
    /// The number of the rank that it is pinned to.
    pub(crate) pin: Option<u32>,
    pub(crate) released: bool,
    /// Whether the program has taken its step for it.
    pub(crate) begun: bool,
    /// The program before that step.
    pub(crate) prior: Option<Program>,
}

/// What the caller knows of a request of a session.
pub(crate) struct Arrival<'a> {
    pub(crate) id: &'a str,
    pub(crate) session: &'a str,
    pub(crate) input_tokens: u64,
    pub(crate) context_tokens: u64,
    pub(crate) last: bool,
    pub(crate) pin: Option<u32>,
}

/// A request that may go, and where it is to go.
pub(crate) type Released = (Ticket, Option<u32>);

/// Everything that the classifier remembers.
pub(crate) struct Programs {
    pub(crate) settings: Settings,
    pub(crate) ranks: Ranks,
    pub(crate) sessions: Sessions,
    places: Names<Place>,
    programs: u64,
    pub(crate) paused: BTreeSet<Place>,
    /// Programs without a request, by the time since when they are acting, in bits, which sort as times do.
    idle: BTreeSet<(u64, Place)>,
    /// Boxed: nodes of a tree that grows at its end stay half empty.
    pub(crate) requests: BTreeMap<Ticket, Box<Tracked>>,
    ids: Names<()>,
    pub(crate) waiting: BTreeSet<Ticket>,
    released: Vec<Released>,
}

impl Programs {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            ranks: Ranks::default(),
            sessions: Sessions::default(),
            places: Names::default(),
            programs: 0,
            paused: BTreeSet::new(),
            idle: BTreeSet::new(),
            requests: BTreeMap::new(),
            ids: Names::default(),
            waiting: BTreeSet::new(),
            released: Vec::new(),
        }
    }

    /// The requests released since the last time, in order.
    pub(crate) fn take_released(&mut self) -> Vec<Released> {
        std::mem::take(&mut self.released)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.programs == 0
    }

    /// Takes a request in and tries it.
    ///
    /// # Errors
    /// Why it cannot be tracked.
    pub(crate) fn register(&mut self, ticket: Ticket, arrival: &Arrival<'_>, now_ms: f64) -> Result<(), String> {
        let limit = self.settings.max_tracked_requests;
        if self.ids.get(arrival.id).is_some() {
            return Err(format!("request {:?} is already active", arrival.id));
        }
        if self.requests.len() as u64 >= limit {
            return Err(format!("already tracking the configured limit of {limit} requests"));
        }
        self.expire(now_ms);
        let known = self.places.get(arrival.session);
        let has_program = known.is_some_and(|place| self.sessions[place].program.is_some());
        if !arrival.last && !has_program && self.programs >= limit {
            let Some((_, oldest)) = self.idle.first().copied() else {
                return Err(format!("already tracking the configured limit of {limit} programs"));
            };
            self.remove_program(oldest);
            self.tidy(oldest);
        }
        let place = self.place(arrival.session);
        self.leave_idle(place);
        let id: Arc<str> = arrival.id.into();
        self.ids.insert(Arc::clone(&id), ());
        self.sessions[place].waiting.insert(ticket);
        self.waiting.insert(ticket);
        let &Arrival { input_tokens, context_tokens, last, pin, .. } = arrival;
        let tracked = Tracked {
            id,
            session: place,
            input_tokens,
            context_tokens,
            last,
            pin,
            released: false,
            begun: false,
            prior: None,
        };
        self.requests.insert(ticket, Box::new(tracked));
        self.admit(place, now_ms);
        Ok(())
    }

    /// The place of the session, a new one where it is not known.
    fn place(&mut self, id: &str) -> Place {
        if let Some(place) = self.places.get(id) {
            return place;
        }
        let id: Arc<str> = id.into();
        let place = self.sessions.insert(Session { id: Arc::clone(&id), ..Session::default() });
        self.places.insert(id, place);
        place
    }

    /// Forgets a session of which nothing is left, and notes one whose program has no request.
    fn tidy(&mut self, place: Place) {
        let session = &self.sessions[place];
        if session.has_request() {
            return;
        }
        match session.program {
            Some(Program { acting_since: Some(since), .. }) => _ = self.idle.insert((since.to_bits(), place)),
            Some(_) => {}
            None => {
                self.places.remove(&session.id);
                self.sessions.remove(place);
            }
        }
    }

    fn leave_idle(&mut self, place: Place) {
        if let Some(Program { acting_since: Some(since), .. }) = self.sessions[place].program {
            self.idle.remove(&(since.to_bits(), place));
        }
    }

    /// What an active program with a rank is charged there.
    pub(crate) fn charge(&self, program: &Program) -> Option<(u32, u64)> {
        let rank = program.rank.filter(|_| !program.paused)?;
        Some((rank, program.weighted(self.settings.acting_token_weight).saturating_add(self.settings.buffer)))
    }

    /// Puts another program in a session's place, or none, and keeps the books.
    fn put(&mut self, place: Place, program: Option<Program>) {
        let before = std::mem::replace(&mut self.sessions[place].program, program);
        if let Some((rank, tokens)) = before.and_then(|program| self.charge(&program)) {
            self.ranks.charge(rank, |used| used.saturating_sub(tokens));
        }
        if let Some((rank, tokens)) = program.and_then(|program| self.charge(&program)) {
            self.ranks.charge(rank, |used| used.saturating_add(tokens));
        }
        self.programs = self.programs + u64::from(program.is_some()) - u64::from(before.is_some());
        if program.is_some_and(|program| program.paused) {
            self.paused.insert(place);
        } else {
            self.paused.remove(&place);
        }
    }

    pub(crate) fn update(&mut self, place: Place, change: impl FnOnce(&mut Program)) {
        if let Some(mut program) = self.sessions[place].program {
            change(&mut program);
            self.put(place, Some(program));
        }
    }

    fn remove_program(&mut self, place: Place) {
        self.leave_idle(place);
        self.put(place, None);
    }

    /// Tries the session's front request: it is released, or its program is deferred.
    pub(crate) fn admit(&mut self, place: Place, now_ms: f64) {
        let Some(ticket) = self.sessions[place].front() else { return };
        let Some(request) = self.requests.get(&ticket) else { return };
        if request.last {
            let rank = self.sessions[place].program.and_then(|program| program.rank);
            self.put(place, None);
            if let Some(request) = self.requests.get_mut(&ticket) {
                request.begun = true;
            }
            return self.release(place, rank);
        }
        self.begin(place, ticket);
        let (Some(request), Some(program)) = (self.requests.get(&ticket), self.sessions[place].program) else { return };
        let (pin, input_tokens, is_new) = (request.pin, request.input_tokens, request.prior.is_none());
        if program.paused {
            return self.defer(place, now_ms);
        }
        // Where the pinned rank tells nothing, the router decides: no other rank's capacity can stand for it.
        if let Some(pin) = pin
            && let Some(capacity) = self.ranks.capacity(pin)
        {
            let own = self.charge(&program).filter(|(rank, _)| *rank == pin).map_or(0, |(_, tokens)| tokens);
            let others = self.ranks.used(pin).saturating_sub(own);
            if others.saturating_add(program.tokens.saturating_add(self.settings.buffer)) > capacity {
                return self.defer(place, now_ms);
            }
        }
        let assigned = program.rank.filter(|rank| self.ranks.is_live(*rank));
        if assigned.is_some() || !self.ranks.any_sized() {
            return self.release(place, assigned);
        }
        self.update(place, |program| program.rank = None);
        if is_new && !self.paused.is_empty() {
            return self.defer(place, now_ms);
        }
        match self.ranks.with_room(input_tokens.saturating_add(self.settings.buffer)) {
            Some(rank) => self.release(place, Some(rank)),
            None => self.defer(place, now_ms),
        }
    }

    /// The program takes a step for the request, once.
    fn begin(&mut self, place: Place, ticket: Ticket) {
        let prior = self.sessions[place].program;
        let Some(request) = self.requests.get_mut(&ticket).filter(|request| !request.begun) else { return };
        (request.begun, request.prior) = (true, prior);
        let tokens = request.context_tokens;
        let program = match prior {
            Some(prior) => Program { acting_since: None, tokens, steps: prior.steps.saturating_add(1), ..prior },
            None => Program {
                acting_since: None,
                paused: false,
                rank: None,
                tokens,
                steps: 1,
                marked: false,
                deferred_since: None,
            },
        };
        self.put(place, Some(program));
    }

    fn defer(&mut self, place: Place, now_ms: f64) {
        self.update(place, |program| {
            program.paused = true;
            program.deferred_since.get_or_insert(now_ms);
            program.rank = None;
        });
    }

    /// Lets the session's front request go, which has begun.
    pub(crate) fn release(&mut self, place: Place, rank: Option<u32>) {
        let Some(ticket) = self.sessions[place].front() else { return };
        let program = self.sessions[place].program;
        let Some(request) = self.requests.get_mut(&ticket).filter(|request| request.begun) else { return };
        // The router honours a pin whatever the target: it is charged from now on.
        let rank = request.pin.or(rank).or(program.and_then(|program| program.rank));
        request.released = true;
        if !request.last {
            self.update(place, |program| {
                program.paused = false;
                program.deferred_since = None;
                program.rank = rank;
            });
        }
        let session = &mut self.sessions[place];
        session.waiting.remove(&ticket);
        session.current = Some(ticket);
        self.waiting.remove(&ticket);
        self.released.push((ticket, rank));
    }

    /// Whether the request is the one to be tried next in its session.
    pub(crate) fn is_front(&self, place: Place, ticket: Ticket) -> bool {
        self.sessions[place].front() == Some(ticket)
    }

    /// The pin of the request that the session's program waits for.
    pub(crate) fn waiting_pin(&self, place: Place) -> Option<u32> {
        let front = self.sessions[place].waiting.first()?;
        self.requests.get(front)?.pin
    }

    /// The rank that a released request has really gone to.
    pub(crate) fn sent(&mut self, ticket: Ticket, rank: u32) {
        if let Some(request) = self.requests.get(&ticket).filter(|request| request.released) {
            self.update(request.session, |program| program.rank = Some(rank));
        }
    }

    /// The end of a request: `completed` with its tokens where the host knows them, else undone.
    pub(crate) fn finish(&mut self, ticket: Ticket, completed: Option<Option<u32>>, now_ms: f64) {
        let Some(request) = self.requests.remove(&ticket) else { return };
        let place = request.session;
        self.ids.remove(&request.id);
        self.waiting.remove(&ticket);
        let session = &mut self.sessions[place];
        session.waiting.remove(&ticket);
        if session.current == Some(ticket) {
            session.current = None;
        }
        match completed {
            // Its program stays gone.
            _ if request.begun && request.last => self.put(place, None),
            Some(tokens) if request.released => self.update(place, |program| {
                program.acting_since = Some(now_ms);
                program.tokens = tokens.map_or(request.context_tokens, u64::from);
                program.deferred_since = None;
                if std::mem::take(&mut program.marked) {
                    (program.paused, program.rank) = (true, None);
                }
            }),
            _ if request.begun => self.put(place, request.prior),
            _ => {}
        }
        self.admit(place, now_ms);
        self.tidy(place);
    }

    /// Forgets the programs that no request came for in time.
    pub(crate) fn expire(&mut self, now_ms: f64) {
        while let Some((since, place)) = self.idle.first().copied() {
            if now_ms < f64::from_bits(since) + self.settings.session_retention_ms {
                break;
            }
            self.remove_program(place);
            self.tidy(place);
        }
    }

    /// Takes the assignments to ranks that are gone.
    pub(crate) fn leave_dead_ranks(&mut self) {
        let dead = |program: &Program| program.rank.is_some_and(|rank| !self.ranks.is_live(rank));
        let sessions = self.sessions.iter().filter(|(_, session)| session.program.as_ref().is_some_and(dead));
        for place in sessions.map(|(place, _)| place).collect::<Vec<_>>() {
            self.update(place, |program| program.rank = None);
        }
    }
}
