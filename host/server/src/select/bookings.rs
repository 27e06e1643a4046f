//! The selections that are booked, by their ids.

use std::sync::{Arc, Mutex};

use rustc_hash::FxHashMap;

use super::error::SelectError;
use crate::pool::Lease;
use crate::sync::locked;

/// What an id stands for.
enum Slot {
    /// A booking that is being made.
    Claimed,
    Booked(Arc<Booking>),
}

/// A booked selection. Dropping the last hold of it gives the booking back.
pub(super) struct Booking {
    pub(super) lease: Lease,
    /// The number of its row: a worker that leaves and comes again has another one.
    number: Option<u32>,
    since_ms: f64,
}

impl Booking {
    /// Whether its worker is still the one that was booked.
    fn lives(&self) -> bool {
        self.number.is_some() && self.lease.partition().number_of(self.lease.decision().worker) == self.number
    }
}

/// Every booking of the service, of all partitions: an id is used once at a time.
#[derive(Default)]
pub(super) struct Bookings(Mutex<FxHashMap<String, Slot>>);

/// An id that nobody else can take, until it is dropped or its booking is there.
pub(super) struct Claim<'a> {
    bookings: &'a Bookings,
    id: String,
}

impl Bookings {
    /// Takes an id for a booking that is about to be made.
    pub(super) fn claim(&self, id: &str) -> Result<Claim<'_>, SelectError> {
        let mut slots = locked(&self.0);
        if slots.contains_key(id) {
            return Err(SelectError::Reserved(id.to_owned()));
        }
        slots.insert(id.to_owned(), Slot::Claimed);
        Ok(Claim { bookings: self, id: id.to_owned() })
    }

    /// The booking of that id, while its worker is there.
    pub(super) fn get(&self, id: &str) -> Result<Arc<Booking>, SelectError> {
        let found = match locked(&self.0).get(id) {
            Some(Slot::Booked(booking)) => Some(Arc::clone(booking)),
            _ => None,
        };
        let booking = found.ok_or_else(|| SelectError::NoReservation(id.to_owned()))?;
        if booking.lives() {
            return Ok(booking);
        }
        drop(self.remove(id));
        Err(SelectError::NoReservation(id.to_owned()))
    }

    /// Takes a booking out.
    pub(super) fn remove(&self, id: &str) -> Option<Arc<Booking>> {
        let mut slots = locked(&self.0);
        match slots.remove(id) {
            Some(Slot::Booked(booking)) => Some(booking),
            Some(claimed @ Slot::Claimed) => {
                slots.insert(id.to_owned(), claimed);
                None
            }
            None => None,
        }
    }

    /// Takes out what was booked before `since_ms`, or on workers that have gone.
    pub(super) fn expire(&self, since_ms: f64) -> Vec<(String, Arc<Booking>)> {
        let over =
            |slot: &Slot| matches!(slot, Slot::Booked(booking) if booking.since_ms < since_ms || !booking.lives());
        let mut slots = locked(&self.0);
        let ids: Vec<_> = slots.iter().filter(|(_, slot)| over(slot)).map(|(id, _)| id.clone()).collect();
        let mut gone = Vec::new();
        for id in ids {
            if let Some(Slot::Booked(booking)) = slots.remove(&id) {
                gone.push((id, booking));
            }
        }
        gone
    }
}

impl Claim<'_> {
    /// Puts the booking in its place.
    pub(super) fn install(self, lease: Lease, now_ms: f64) {
        let number = lease.partition().number_of(lease.decision().worker);
        let booking = Slot::Booked(Arc::new(Booking { lease, number, since_ms: now_ms }));
        locked(&self.bookings.0).insert(self.id.clone(), booking);
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut slots = locked(&self.bookings.0);
        if matches!(slots.get(&self.id), Some(Slot::Claimed)) {
            slots.remove(&self.id);
        }
    }
}
