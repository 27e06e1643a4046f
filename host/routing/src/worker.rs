//! The workers of one partition: a table of rows sorted by (worker id, data-parallel rank), one column a number.

use std::collections::BTreeMap;

use pointsman_admission::WorkerKey;
use pointsman_contract::missing;
use rustc_hash::FxHashMap;

use crate::vocabulary::Vocabulary;

/// What a worker tells about itself when it registers.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerConfig {
    /// The worker's id, unique in its partition.
    pub worker: u64,
    /// The first data-parallel rank.
    pub start_rank: u32,
    /// The number of ranks, at least 1.
    pub ranks: u32,
    /// The taints that a request may require or prefer.
    pub taints: Vec<String>,
    /// KV blocks of each rank in all.
    pub total_kv_blocks: Option<u64>,
    /// Limit of batched tokens of each rank.
    pub max_num_batched_tokens: Option<u64>,
    /// Numbers for the signals `label.<name>`, by name without the prefix.
    pub labels: Vec<(String, f64)>,
}

impl WorkerConfig {
    /// A worker of one rank, 0, that advertises nothing.
    #[must_use]
    pub const fn new(worker: u64) -> Self {
        Self {
            worker,
            start_rank: 0,
            ranks: 1,
            taints: Vec::new(),
            total_kv_blocks: None,
            max_num_batched_tokens: None,
            labels: Vec::new(),
        }
    }
}

/// What the host knows of one row's load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Tokens in prefill.
    pub active_prefill_tokens: f64,
    /// KV blocks of active requests.
    pub decode_blocks: f64,
    /// Active requests.
    pub active_requests: f64,
}

#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) config: WorkerConfig,
    pub(crate) overloaded: bool,
    pub(crate) available: bool,
}

/// The rows in order. Every `Vec` has one value a row.
#[derive(Debug, Default)]
pub(crate) struct WorkerTable {
    pub(crate) keys: Vec<WorkerKey>,
    /// A number that stands for the row while its worker lives; never used again afterwards.
    pub(crate) numbers: Vec<u32>,
    pub(crate) prefill_tokens: Vec<f64>,
    pub(crate) decode_blocks: Vec<f64>,
    pub(crate) active_requests: Vec<f64>,
    /// 1 where the load is known, else 0.
    pub(crate) load_available: Vec<f64>,
    pub(crate) total_kv_blocks: Vec<f64>,
    pub(crate) max_num_batched_tokens: Vec<f64>,
    /// The rows, in order, that are neither overloaded nor unavailable; up to date once settled.
    pub(crate) open: Vec<u32>,
    /// One column for each extra signal of the vocabulary.
    pub(crate) extras: Vec<Vec<f64>>,
    pub(crate) workers: BTreeMap<u64, Worker>,
    row_of_number: FxHashMap<u32, u32>,
    next_number: u32,
    unknown_loads: usize,
    unsettled: bool,
}

/// The places of a worker's ranks, or of that one alone, among sorted keys.
pub(crate) fn rows_of(keys: &[WorkerKey], worker: u64, rank: Option<u32>) -> std::ops::Range<u32> {
    let (first, last) = rank.map_or((0, u32::MAX), |rank| (rank, rank));
    let start = keys.partition_point(|key| *key < WorkerKey::new(worker, first));
    let end = keys.partition_point(|key| *key <= WorkerKey::new(worker, last));
    start as u32..end as u32
}

impl WorkerTable {
    pub(crate) fn new(vocabulary: &Vocabulary) -> Self {
        Self { extras: vec![Vec::new(); vocabulary.extras.len()], ..Self::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether every row may serve any request that has no rules of its own.
    pub(crate) fn unrestricted(&self) -> bool {
        self.open.len() == self.keys.len()
    }

    /// The row of exactly that key.
    pub(crate) fn row(&self, key: WorkerKey) -> Option<u32> {
        self.keys.binary_search(&key).ok().map(|row| row as u32)
    }

    /// The rows of a worker, or of one of its ranks; they are neighbours.
    pub(crate) fn rows_of(&self, worker: u64, rank: Option<u32>) -> std::ops::Range<u32> {
        rows_of(&self.keys, worker, rank)
    }

    pub(crate) fn row_of_number(&self, number: u32) -> Option<usize> {
        self.row_of_number.get(&number).map(|row| *row as usize)
    }

    /// Adds or replaces a worker. Ranks that stay keep their number and their load.
    pub(crate) fn upsert(&mut self, config: WorkerConfig, vocabulary: &Vocabulary) {
        let worker = config.worker;
        let ranks = config.start_rank..config.start_rank.saturating_add(config.ranks);
        let gone: Vec<u32> =
            self.rows_of(worker, None).filter(|row| !ranks.contains(&self.keys[*row as usize].rank)).collect();
        for row in gone.into_iter().rev() {
            self.remove_row(row as usize);
        }
        for rank in ranks {
            let key = WorkerKey::new(worker, rank);
            let row = match self.keys.binary_search(&key) {
                Ok(row) => row,
                Err(row) => {
                    self.insert_row(row, key);
                    row
                }
            };
            self.total_kv_blocks[row] = config.total_kv_blocks.map_or(missing(), |blocks| blocks as f64);
            self.max_num_batched_tokens[row] = config.max_num_batched_tokens.map_or(missing(), |tokens| tokens as f64);
            for (extra, name) in self.extras.iter_mut().zip(&vocabulary.extras) {
                if let Some(label) = name.strip_prefix("label.") {
                    let value = config.labels.iter().find(|(name, _)| name == label).map(|(_, value)| *value);
                    extra[row] = value.map_or(missing(), one_nan);
                }
            }
        }
        let (overloaded, available) =
            self.workers.get(&worker).map_or((false, true), |known| (known.overloaded, known.available));
        self.workers.insert(worker, Worker { config, overloaded, available });
        self.unsettled = true;
    }

    /// Removes a worker and all its rows; false where there is none.
    pub(crate) fn remove(&mut self, worker: u64) -> bool {
        if self.workers.remove(&worker).is_none() {
            return false;
        }
        for row in self.rows_of(worker, None).rev() {
            self.remove_row(row as usize);
        }
        self.unsettled = true;
        true
    }

    /// Whether every row's load is known.
    pub(crate) const fn loads_known(&self) -> bool {
        self.unknown_loads == 0
    }

    /// Replaces the load of a row; false where there is no such row.
    pub(crate) fn set_load(&mut self, key: WorkerKey, load: Option<Load>) -> bool {
        let Some(row) = self.row(key).map(|row| row as usize) else { return false };
        if let Some(load) = load {
            self.prefill_tokens[row] = load.active_prefill_tokens;
            self.decode_blocks[row] = load.decode_blocks;
            self.active_requests[row] = load.active_requests;
        }
        let before = std::mem::replace(&mut self.load_available[row], f64::from(u8::from(load.is_some())));
        match (before != 0.0, load) {
            (true, None) => self.unknown_loads += 1,
            (false, Some(_)) => self.unknown_loads -= 1,
            _ => {}
        }
        true
    }

    /// The load of a row; none where it is not known.
    pub(crate) fn load(&self, key: WorkerKey) -> Option<Load> {
        let row = self.row(key)? as usize;
        (self.load_available[row] != 0.0).then(|| Load {
            active_prefill_tokens: self.prefill_tokens[row],
            decode_blocks: self.decode_blocks[row],
            active_requests: self.active_requests[row],
        })
    }

    /// Sets an extra signal of a row; false where there is no such row or signal.
    pub(crate) fn set_extra(&mut self, key: WorkerKey, extra: usize, value: f64) -> bool {
        let row = self.row(key).map(|row| row as usize);
        let Some(cell) = row.and_then(|row| self.extras.get_mut(extra)?.get_mut(row)) else { return false };
        *cell = one_nan(value);
        true
    }

    /// Changes whether a worker is overloaded or available; false where there is none.
    pub(crate) fn restrict(&mut self, worker: u64, change: impl FnOnce(&mut Worker)) -> bool {
        let Some(known) = self.workers.get_mut(&worker) else { return false };
        change(known);
        self.unsettled = true;
        true
    }

    /// Every column of one f64 a row, for the changes that concern all of them.
    fn columns(&mut self) -> impl Iterator<Item = (&mut Vec<f64>, f64)> {
        [
            (&mut self.prefill_tokens, 0.0),
            (&mut self.decode_blocks, 0.0),
            (&mut self.active_requests, 0.0),
            (&mut self.load_available, 1.0),
            (&mut self.total_kv_blocks, missing()),
            (&mut self.max_num_batched_tokens, missing()),
        ]
        .into_iter()
        .chain(self.extras.iter_mut().map(|extra| (extra, missing())))
    }

    fn insert_row(&mut self, row: usize, key: WorkerKey) {
        self.keys.insert(row, key);
        self.numbers.insert(row, self.next_number);
        self.next_number = self.next_number.wrapping_add(1);
        for (column, start) in self.columns() {
            column.insert(row, start);
        }
    }

    fn remove_row(&mut self, row: usize) {
        self.keys.remove(row);
        self.numbers.remove(row);
        if self.load_available[row] == 0.0 {
            self.unknown_loads -= 1;
        }
        for (column, _) in self.columns() {
            column.remove(row);
        }
    }

    /// Brings what is derived from the rows up to date. Changes come in bursts, and each would cost a pass over all rows.
    pub(crate) fn settle(&mut self) {
        if !std::mem::take(&mut self.unsettled) {
            return;
        }
        self.row_of_number.clear();
        self.row_of_number.extend(self.numbers.iter().enumerate().map(|(row, number)| (*number, row as u32)));
        self.open.clear();
        let mut first = 0;
        // Rows and workers have the same order.
        for Worker { config, overloaded, available } in self.workers.values() {
            let end = first + (config.start_rank.saturating_add(config.ranks) - config.start_rank);
            if *available && !*overloaded {
                self.open.extend(first..end);
            }
            first = end;
        }
    }
}

/// The value, with the one bit pattern of a missing value for any NaN.
pub(crate) fn one_nan(value: f64) -> f64 {
    if value.is_nan() { missing() } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(workers: &[(u64, u32)]) -> WorkerTable {
        let vocabulary = Vocabulary::default();
        let mut table = WorkerTable::new(&vocabulary);
        for (worker, ranks) in workers {
            table.upsert(WorkerConfig { ranks: *ranks, ..WorkerConfig::new(*worker) }, &vocabulary);
        }
        table.settle();
        table
    }

    #[test]
    fn rows_are_sorted_whatever_the_order_of_registration() {
        let table = table(&[(7, 1), (2, 2), (5, 1)]);
        let keys: Vec<_> = table.keys.iter().map(|key| (key.worker, key.rank)).collect();
        assert_eq!(keys, [(2, 0), (2, 1), (5, 0), (7, 0)]);
        assert_eq!(table.rows_of(2, None), 0..2);
        assert_eq!(table.rows_of(2, Some(1)), 1..2);
        assert!(table.rows_of(3, None).is_empty());
    }

    #[test]
    fn a_number_stays_with_its_row_and_is_never_used_again() {
        let mut table = table(&[(7, 1)]);
        let seven = table.numbers[0];
        table.upsert(WorkerConfig::new(2), &Vocabulary::default());
        table.settle();
        assert_eq!(table.numbers[1], seven, "another worker's registration moves the row, not the number");
        assert_eq!(table.row_of_number(seven), Some(1));
        assert!(table.remove(7));
        table.settle();
        assert_eq!(table.row_of_number(seven), None);
        table.upsert(WorkerConfig::new(7), &Vocabulary::default());
        assert!(!table.numbers.contains(&seven));
    }

    #[test]
    fn a_second_registration_keeps_the_load_of_the_ranks_that_stay() {
        let mut table = table(&[(1, 3)]);
        table.active_requests[2] = 5.0;
        table.active_requests[0] = 9.0;
        let vocabulary = Vocabulary::default();
        table.upsert(WorkerConfig { start_rank: 1, ranks: 2, ..WorkerConfig::new(1) }, &vocabulary);
        assert_eq!(table.keys, [WorkerKey::new(1, 1), WorkerKey::new(1, 2)]);
        assert_eq!(table.active_requests, [0.0, 5.0]);
    }
}
