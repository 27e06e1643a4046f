//! Sessions and their places.

use std::collections::BTreeSet;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

use pointsman_sdk::Ticket;

use crate::programs::Program;

/// The place of a session among all.
pub(crate) type Place = usize;

/// A session and its requests.
#[derive(Default)]
pub(crate) struct Session {
    pub(crate) id: Arc<str>,
    pub(crate) program: Option<Program>,
    /// The request that runs.
    pub(crate) current: Option<Ticket>,
    /// Those that wait for it, in the order of arrival: tickets count up.
    pub(crate) waiting: BTreeSet<Ticket>,
}

impl Session {
    /// The request to be tried next.
    pub(crate) fn front(&self) -> Option<Ticket> {
        if self.current.is_some() { None } else { self.waiting.first().copied() }
    }

    pub(crate) fn has_request(&self) -> bool {
        self.current.is_some() || !self.waiting.is_empty()
    }
}

/// Sessions in a chunk: a list in one piece would be copied as it grows, and that is fuel of the one call in which it does.
const CHUNK: usize = 128;

/// All sessions, by place.
#[derive(Default)]
pub(crate) struct Sessions {
    chunks: Vec<Vec<Session>>,
    free: Vec<Place>,
}

impl Sessions {
    /// Puts a session into a free place.
    pub(crate) fn insert(&mut self, session: Session) -> Place {
        if let Some(place) = self.free.pop() {
            self[place] = session;
            return place;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let before = (self.chunks.len() - 1) * CHUNK;
        let last = &mut self.chunks[before / CHUNK];
        last.push(session);
        before + last.len() - 1
    }

    /// Empties a place.
    pub(crate) fn remove(&mut self, place: Place) {
        self[place] = Session::default();
        self.free.push(place);
    }

    /// All of them by place, the empty ones too.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Place, &Session)> {
        self.chunks.iter().flatten().enumerate()
    }

    /// The programs.
    pub(crate) fn programs(&self) -> impl Iterator<Item = Program> {
        self.iter().filter_map(|(_, session)| session.program)
    }
}

impl Index<Place> for Sessions {
    type Output = Session;

    fn index(&self, place: Place) -> &Session {
        &self.chunks[place / CHUNK][place % CHUNK]
    }
}

impl IndexMut<Place> for Sessions {
    fn index_mut(&mut self, place: Place) -> &mut Session {
        &mut self.chunks[place / CHUNK][place % CHUNK]
    }
}
