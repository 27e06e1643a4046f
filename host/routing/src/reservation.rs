//! Load accounting: what each reserved request adds to its row until it is freed.

use crate::active_blocks::ActiveBlocks;
use crate::worker::WorkerTable;

/// One reserved request; its owner frees it exactly once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReservationId {
    place: u32,
    turn: u32,
}

#[derive(Debug)]
struct Reservation {
    number: u32,
    /// The prompt's chain of hashes, or none and `unshared_blocks` counts them.
    hashes: Vec<u64>,
    unshared_blocks: u64,
    prefill_tokens: u64,
}

#[derive(Debug, Default)]
struct Place {
    turn: u32,
    held: Option<Reservation>,
}

/// The reservations of one partition.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    places: Vec<Place>,
    free: Vec<u32>,
    pub(crate) active: ActiveBlocks,
}

impl Reservations {
    /// Books one request on a row. `prefill_tokens` is 0 where the request does not count towards prefill.
    pub(crate) fn reserve(
        &mut self,
        table: &mut WorkerTable,
        row: usize,
        hashes: &[u64],
        unshared_blocks: u64,
        prefill_tokens: u64,
    ) -> ReservationId {
        let number = table.numbers[row];
        let added = self.active.acquire(number, hashes) + unshared_blocks;
        table.prefill_tokens[row] += prefill_tokens as f64;
        table.decode_blocks[row] += added as f64;
        table.active_requests[row] += 1.0;
        let held = Reservation { number, hashes: hashes.to_vec(), unshared_blocks, prefill_tokens };
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            (self.places.len() - 1) as u32
        });
        let slot = &mut self.places[place as usize];
        slot.held = Some(held);
        ReservationId { place, turn: slot.turn }
    }

    fn held(&mut self, id: ReservationId) -> Option<&mut Reservation> {
        self.places.get_mut(id.place as usize).filter(|place| place.turn == id.turn)?.held.as_mut()
    }

    /// The prefill is done: its tokens no longer weigh on the row. False where the reservation is gone.
    pub(crate) fn prefill_complete(&mut self, table: &mut WorkerTable, id: ReservationId) -> bool {
        let Some(held) = self.held(id) else { return false };
        let tokens = std::mem::take(&mut held.prefill_tokens);
        if let Some(row) = table.row_of_number(held.number) {
            table.prefill_tokens[row] -= tokens as f64;
        }
        true
    }

    /// The answer fills `blocks` more blocks. False where the reservation is gone.
    pub(crate) fn output_blocks(&mut self, table: &mut WorkerTable, id: ReservationId, blocks: u64) -> bool {
        let Some(held) = self.held(id) else { return false };
        held.unshared_blocks += blocks;
        if let Some(row) = table.row_of_number(held.number) {
            table.decode_blocks[row] += blocks as f64;
        }
        true
    }

    /// The request is over, whatever its end. False where the reservation is gone.
    pub(crate) fn free(&mut self, table: &mut WorkerTable, id: ReservationId) -> bool {
        if self.held(id).is_none() {
            return false;
        }
        let place = &mut self.places[id.place as usize];
        place.turn = place.turn.wrapping_add(1);
        let Some(held) = place.held.take() else { return false };
        self.free.push(id.place);
        let removed = self.active.release(held.number, &held.hashes) + held.unshared_blocks;
        if let Some(row) = table.row_of_number(held.number) {
            table.prefill_tokens[row] -= held.prefill_tokens as f64;
            table.decode_blocks[row] -= removed as f64;
            table.active_requests[row] -= 1.0;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::Vocabulary;
    use crate::worker::{WorkerConfig, WorkerTable};

    fn two_workers() -> WorkerTable {
        let vocabulary = Vocabulary::default();
        let mut table = WorkerTable::new(&vocabulary);
        table.upsert(WorkerConfig::new(1), &vocabulary);
        table.upsert(WorkerConfig::new(2), &vocabulary);
        table.settle();
        table
    }

    fn loads(table: &WorkerTable, row: usize) -> (f64, f64, f64) {
        (table.prefill_tokens[row], table.decode_blocks[row], table.active_requests[row])
    }

    #[test]
    fn a_request_weighs_on_its_row_until_it_is_freed_and_leaves_nothing() {
        let (mut table, mut book) = (two_workers(), Reservations::default());
        let first = book.reserve(&mut table, 1, &[7, 8], 0, 100);
        let second = book.reserve(&mut table, 1, &[7, 9], 0, 60);
        assert_eq!(loads(&table, 1), (160.0, 3.0, 2.0), "the shared block counts once");
        assert!(book.prefill_complete(&mut table, first));
        assert!(book.output_blocks(&mut table, first, 4));
        assert_eq!(loads(&table, 1), (60.0, 7.0, 2.0));
        assert!(book.free(&mut table, first));
        assert_eq!(loads(&table, 1), (60.0, 2.0, 1.0));
        assert!(book.free(&mut table, second));
        assert_eq!(loads(&table, 1), (0.0, 0.0, 0.0));
        assert_eq!(loads(&table, 0), (0.0, 0.0, 0.0));
    }

    #[test]
    fn an_id_is_good_for_one_request_only() {
        let (mut table, mut book) = (two_workers(), Reservations::default());
        let first = book.reserve(&mut table, 0, &[], 5, 0);
        assert!(book.free(&mut table, first));
        let second = book.reserve(&mut table, 0, &[], 5, 0);
        assert!(!book.free(&mut table, first), "freed before, though its place is in use again");
        assert!(!book.prefill_complete(&mut table, first));
        assert_eq!(loads(&table, 0), (0.0, 5.0, 1.0));
        assert!(book.free(&mut table, second));
    }

    #[test]
    fn freeing_after_the_worker_has_gone_touches_no_other_row() {
        let (mut table, mut book) = (two_workers(), Reservations::default());
        let id = book.reserve(&mut table, 0, &[3], 0, 10);
        table.remove(1);
        table.upsert(WorkerConfig::new(1), &Vocabulary::default());
        table.settle();
        assert!(book.free(&mut table, id));
        assert_eq!(loads(&table, 0), (0.0, 0.0, 0.0), "a worker that comes back starts empty");
        assert_eq!(loads(&table, 1), (0.0, 0.0, 0.0));
    }
}
