//! The values of one decision, taken from the partition's workers and the request.

use std::ops::Range;

use pointsman_contract::{Fact, Signal, Text, missing};

use crate::eligibility;
use crate::request::{Request, WorkerOverlap};
use crate::reservation::Reservations;
use crate::table::{Rows, Source};
use crate::vocabulary::{SignalId, TextId, Vocabulary};
use crate::worker::{WorkerTable, one_nan};

/// What this request means for each row of the table; buffers that live from decision to decision.
#[derive(Debug, Default)]
pub(crate) struct Projection {
    /// Rows with a prefix overlap, ascending, and the overlap's place in the request.
    overlaps: Vec<(u32, u32)>,
    /// Blocks that the request would add to each row.
    added_blocks: Vec<f64>,
    tier_matches: bool,
    occupied: f64,
}

impl Projection {
    /// Prepares what every column needs; `added` where any stage reads what the request would add.
    pub(crate) fn prepare(
        &mut self,
        table: &WorkerTable,
        reservations: &Reservations,
        request: &Request<'_>,
        block_size: u32,
        reads: Needs,
    ) {
        self.overlaps.clear();
        self.tier_matches = false;
        if reads.overlaps {
            self.place_overlaps(table, request.overlaps);
        }
        if reads.added {
            self.occupied = request.occupied_blocks(block_size) as f64;
            self.added_blocks.clear();
            self.added_blocks.resize(table.len(), self.occupied);
            reservations.active.leading_runs(request.block_hashes, |number, blocks| {
                if let Some(added) = table.row_of_number(number).and_then(|row| self.added_blocks.get_mut(row)) {
                    *added = self.occupied - blocks as f64;
                }
            });
        }
    }

    /// Finds each overlap's row: a merge of two sorted lists, the shorter of which leads.
    fn place_overlaps(&mut self, table: &WorkerTable, overlaps: &[WorkerOverlap]) {
        let mut from = 0;
        for (place, overlap) in overlaps.iter().enumerate() {
            self.tier_matches |= overlap.matches_a_tier();
            let rest = table.keys.get(from..).unwrap_or_default();
            // Dense overlaps lie side by side; only where they do not, search.
            let skip = match rest.first() {
                Some(key) if *key >= overlap.key => 0,
                _ => rest.partition_point(|key| *key < overlap.key),
            };
            if rest.get(skip) == Some(&overlap.key) {
                self.overlaps.push(((from + skip) as u32, place as u32));
                from += skip + 1;
            } else {
                from += skip;
            }
        }
    }
}

/// Which projections a policy's columns need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    pub(crate) overlaps: bool,
    pub(crate) added: bool,
}

/// One decision's values.
pub(crate) struct Candidates<'a> {
    pub(crate) table: &'a WorkerTable,
    pub(crate) projection: &'a Projection,
    pub(crate) request: &'a Request<'a>,
    pub(crate) vocabulary: &'a Vocabulary,
    pub(crate) block_size: u32,
}

impl Candidates<'_> {
    /// Appends `value(overlap)` for each row, 0 for a row without one.
    fn overlap_column(&self, rows: Rows<'_>, out: &mut Vec<f64>, absent: f64, value: impl Fn(&WorkerOverlap) -> f64) {
        let start = out.len();
        out.resize(start + rows.len(), absent);
        let Some(column) = out.get_mut(start..) else { return };
        let value_at =
            |place: u32| self.request.overlaps.get(place as usize).map_or(absent, |overlap| one_nan(value(overlap)));
        match rows {
            Rows::All(_) => {
                for (row, place) in &self.projection.overlaps {
                    if let Some(out) = column.get_mut(*row as usize) {
                        *out = value_at(*place);
                    }
                }
            }
            Rows::Some(rows) => {
                let mut overlaps = self.projection.overlaps.iter().peekable();
                for (out, row) in column.iter_mut().zip(rows) {
                    while overlaps.next_if(|(at, _)| at < row).is_some() {}
                    if let Some((_, place)) = overlaps.next_if(|(at, _)| at == row) {
                        *out = value_at(*place);
                    }
                }
            }
        }
    }

    /// Shared-cache blocks past the prefix that `from` measures, missing where no lookup was made.
    fn shared_column(&self, rows: Rows<'_>, out: &mut Vec<f64>, from: impl Fn(&WorkerOverlap) -> f64) {
        let beyond = |blocks: f64| self.request.shared_beyond(blocks).unwrap_or(missing());
        self.overlap_column(rows, out, beyond(0.0), |overlap| beyond(from(overlap)));
    }

    /// Appends a load column, 0 where the load is not known.
    fn load_column(&self, rows: Rows<'_>, out: &mut Vec<f64>, value: impl Fn(usize) -> f64) {
        if self.table.loads_known() {
            out.extend(rows.iter().map(|row| value(row as usize)));
            return;
        }
        let known = |row: usize| self.table.load_available.get(row).is_some_and(|known| *known != 0.0);
        out.extend(rows.iter().map(|row| if known(row as usize) { value(row as usize) } else { 0.0 }));
    }

    fn stored_load(&self, rows: Rows<'_>, out: &mut Vec<f64>, column: &[f64]) {
        if self.table.loads_known() {
            rows.gather(column, out);
        } else {
            self.load_column(rows, out, |row| column.get(row).copied().unwrap_or_default());
        }
    }

    fn preferred_multiplier(&self, row: u32) -> f64 {
        let worker = self.table.keys.get(row as usize).and_then(|key| self.table.workers.get(&key.worker));
        let taints = worker.map_or(&[][..], |worker| &worker.config.taints);
        let matching = self.request.preferred_taints.iter().filter(|(taint, _)| taints.iter().any(|has| has == taint));
        libm::exp(-libm::tanh(matching.map(|(_, weight)| weight).sum::<f64>()))
    }

    fn known_column(&self, signal: Signal, rows: Rows<'_>, out: &mut Vec<f64>) {
        let table = self.table;
        let added = |row: usize| self.projection.added_blocks.get(row).copied().unwrap_or_default();
        let decode = |row: usize| table.decode_blocks.get(row).copied().unwrap_or_default();
        match signal {
            Signal::CacheDeviceOverlapBlocks => self.overlap_column(rows, out, 0.0, |overlap| overlap.device_blocks),
            Signal::CacheHostOverlapBlocks => self.overlap_column(rows, out, 0.0, |overlap| overlap.host_blocks),
            Signal::CacheDiskOverlapBlocks => self.overlap_column(rows, out, 0.0, |overlap| overlap.disk_blocks),
            Signal::CacheEffectiveOverlapBlocks => {
                self.overlap_column(rows, out, 0.0, |overlap| overlap.effective_blocks);
            }
            Signal::CacheOverlapBlocks if self.projection.tier_matches => {
                self.overlap_column(rows, out, 0.0, |overlap| overlap.device_blocks);
            }
            Signal::CacheOverlapBlocks => self.overlap_column(rows, out, 0.0, |overlap| overlap.effective_blocks),
            Signal::CacheEstimatedCachedTokens => self.overlap_column(rows, out, 0.0, |overlap| overlap.cached_tokens),
            Signal::CacheSharedBeyondDeviceBlocks => self.shared_column(rows, out, |overlap| overlap.device_blocks),
            Signal::CacheSharedBeyondEffectiveBlocks => {
                self.shared_column(rows, out, |overlap| overlap.effective_blocks);
            }
            Signal::LoadActivePrefillTokens => self.stored_load(rows, out, &table.prefill_tokens),
            Signal::LoadDecodeBlocks => self.stored_load(rows, out, &table.decode_blocks),
            Signal::LoadActiveRequests => self.stored_load(rows, out, &table.active_requests),
            Signal::LoadAvailable => rows.gather(&table.load_available, out),
            Signal::LoadAddedBlocks => self.load_column(rows, out, added),
            Signal::LoadDecodeCostBlocks => self.load_column(rows, out, |row| decode(row) + added(row)),
            Signal::TaintPreferredMultiplier => {
                if self.request.preferred_taints.is_empty() || eligibility::pin(self.request).is_some() {
                    out.extend(std::iter::repeat_n(missing(), rows.len()));
                } else {
                    out.extend(rows.iter().map(|row| self.preferred_multiplier(row)));
                }
            }
            Signal::WorkerTotalKvBlocks => rows.gather(&table.total_kv_blocks, out),
            Signal::WorkerMaxNumBatchedTokens => rows.gather(&table.max_num_batched_tokens, out),
        }
    }
}

impl Source for Candidates<'_> {
    fn fact(&self, fact: Fact) -> f64 {
        let request = self.request;
        let flag = |set: bool| f64::from(u8::from(set));
        match fact {
            Fact::NowMs => one_nan(request.now_ms),
            Fact::PromptTokens => request.prompt_tokens as f64,
            Fact::Blocks => request.blocks(self.block_size) as f64,
            Fact::TracksPrefillTokens => flag(request.tracks_prefill_tokens),
            Fact::ExpectedOutputTokens => request.expected_output_tokens.map_or(missing(), f64::from),
            Fact::PriorityJump => one_nan(request.priority_jump),
            Fact::StrictPriority => f64::from(request.strict_priority),
            Fact::RouterTemperature => request.router_temperature.map_or(missing(), one_nan),
            Fact::Pinned => flag(eligibility::pin(request).is_some()),
            Fact::HasTierMatches => flag(self.projection.tier_matches),
            Fact::SessionFinal => request.session.and_then(|session| session.last).map_or(missing(), flag),
            Fact::SessionTrigger => {
                request.session.and_then(|session| session.trigger).map_or(missing(), |trigger| trigger.as_f64())
            }
            // These count the rows sent: the table asks for the target itself.
            Fact::AffinityFirst | Fact::AffinityRows => missing(),
        }
    }

    fn text(&self, text: TextId) -> Option<&str> {
        match text {
            TextId::Known(Text::SessionId) => self.request.session.map(|session| session.id),
            TextId::Known(Text::SessionParentId) => self.request.session.and_then(|session| session.parent_id),
            TextId::Header(index) => {
                let name = self.vocabulary.headers.get(index)?;
                self.request.headers.iter().find(|(header, _)| header == name).map(|(_, value)| *value)
            }
        }
    }

    fn column(&self, signal: SignalId, rows: Rows<'_>, out: &mut Vec<f64>) {
        match signal {
            SignalId::Known(signal) => self.known_column(signal, rows, out),
            SignalId::Extra(index) => match self.table.extras.get(index) {
                Some(column) => rows.gather(column, out),
                None => out.extend(std::iter::repeat_n(missing(), rows.len())),
            },
            SignalId::Cost => {}
        }
    }

    fn number(&self, row: u32) -> u32 {
        self.table.numbers.get(row as usize).copied().unwrap_or_default()
    }

    fn affinity(&self) -> Option<Range<u32>> {
        self.request.affinity.map(|target| self.table.rows_of(target.worker, target.rank))
    }
}
