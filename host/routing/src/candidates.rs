//! The values of one decision, taken from the partition's workers and the request.

use std::ops::Range;

use pointsman_admission::WorkerKey;
use pointsman_contract::{Fact, Signal, Text, missing, prefill_cost_tokens};

use crate::eligibility;
use crate::request::{Request, WorkerOverlap};
use crate::reservation::Reservations;
use crate::table::{Placed, Rows, Source};
use crate::vocabulary::{SignalId, TextId, Vocabulary};
use crate::worker::{WorkerTable, one_nan};

/// What this request means for each row of the table; buffers that live from decision to decision.
#[derive(Debug, Default)]
pub(crate) struct Projection {
    /// The rows of the table that have a prefix overlap, ascending.
    overlaps: Vec<Placed>,
    /// Blocks that the request would add to each row; empty where that is `occupied` for all.
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
            let occupied = request.occupied_blocks(block_size) as f64;
            self.occupied = occupied;
            self.added_blocks.clear();
            reservations.active.leading_runs(request.block_hashes, |number, blocks| {
                let Some(row) = table.row_of_number(number) else { return };
                if self.added_blocks.is_empty() {
                    self.added_blocks.resize(table.len(), occupied);
                }
                if let Some(added) = self.added_blocks.get_mut(row) {
                    *added = occupied - blocks as f64;
                }
            });
        }
    }

    /// Blocks that the request would add to a row.
    pub(crate) fn added_blocks(&self, row: usize) -> f64 {
        self.added_blocks.get(row).copied().unwrap_or(self.occupied)
    }

    /// Finds each overlap's row: a merge of two sorted lists.
    fn place_overlaps(&mut self, table: &WorkerTable, overlaps: &[WorkerOverlap]) {
        let (mut next, mut tier_matches) = (0, false);
        self.overlaps.reserve(overlaps.len());
        for (place, overlap) in (0..).zip(overlaps) {
            tier_matches |= overlap.matches_a_tier();
            let WorkerKey { worker, rank } = overlap.key;
            // Written out, since the derived comparison takes thrice as long.
            let before = |key: &WorkerKey| key.worker < worker || (key.worker == worker && key.rank < rank);
            if let Some(row) = seek(&table.keys, &mut next, &overlap.key, before) {
                self.overlaps.push(Placed { row: row as u32, overlap: place });
            }
        }
        self.tier_matches = tier_matches;
    }
}

/// Where the key is among keys that ascend, from `next` on, which moves past it: so for keys that ascend too.
#[inline]
fn seek<K: PartialEq>(keys: &[K], next: &mut usize, key: &K, before: impl Fn(&K) -> bool) -> Option<usize> {
    // Most often it is the next one, where all have one.
    if keys.get(*next) != Some(key) {
        *next += gallop(keys.get(*next..).unwrap_or_default(), before);
        if keys.get(*next) != Some(key) {
            return None;
        }
    }
    *next += 1;
    Some(*next - 1)
}

/// How many keys come first of which `before` is true. The end is most often near, so the first keys are looked at one by
/// one, and those beyond them in steps that double.
#[inline]
fn gallop<K>(keys: &[K], before: impl Fn(&K) -> bool) -> usize {
    const NEAR: usize = 16;
    if let Some(passed) = keys.iter().take(NEAR).position(|key| !before(key)) {
        return passed;
    }
    let mut bound = NEAR;
    while keys.get(bound - 1).is_some_and(&before) {
        bound *= 2;
    }
    let passed = (bound / 2).min(keys.len());
    let near = keys.get(passed..bound.min(keys.len())).unwrap_or_default();
    passed + near.partition_point(before)
}

/// Whether each row has an overlap, in the order of the overlaps: no row is placed twice.
fn one_for_each(placed: &[Placed], overlaps: &[WorkerOverlap], out: &[f64]) -> bool {
    placed.len() == out.len() && overlaps.len() == out.len()
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
    /// Writes `value(overlap)` for each row, `absent` for a row without one.
    fn overlap_column(&self, placed: &[Placed], out: &mut [f64], absent: f64, value: impl Fn(&WorkerOverlap) -> f64) {
        let overlaps = self.request.overlaps;
        if one_for_each(placed, overlaps, out) {
            out.iter_mut().zip(overlaps).for_each(|(out, overlap)| *out = one_nan(value(overlap)));
            return;
        }
        out.fill(absent);
        for Placed { row, overlap } in placed {
            if let (Some(out), Some(overlap)) = (out.get_mut(*row as usize), overlaps.get(*overlap as usize)) {
                *out = one_nan(value(overlap));
            }
        }
    }

    /// Shared-cache blocks past the prefix that `from` measures, missing where no lookup was made.
    fn shared_column(&self, placed: &[Placed], out: &mut [f64], from: impl Fn(&WorkerOverlap) -> f64) {
        let beyond = |blocks: f64| self.request.shared_beyond(blocks).unwrap_or(missing());
        self.overlap_column(placed, out, beyond(0.0), |overlap| beyond(from(overlap)));
    }

    /// Writes a load column, 0 where the load is not known.
    fn load_column(&self, rows: Rows<'_>, out: &mut [f64], column: &[f64]) {
        rows.gather(column, out);
        self.blank_unknown(rows, out);
    }

    /// Writes the blocks of active requests, if `held`, together with those that this request would add.
    fn added_column(&self, rows: Rows<'_>, out: &mut [f64], held: Option<&[f64]>) {
        let Projection { occupied, added_blocks, .. } = self.projection;
        match held {
            Some(held) if added_blocks.is_empty() => rows.gather_map(held, out, |held| held + occupied),
            Some(held) => {
                let held = |row: u32| held.get(row as usize).copied().unwrap_or_default();
                rows.write(out, |row| held(row) + added_blocks.get(row as usize).unwrap_or(occupied));
            }
            None => rows.write(out, |row| *added_blocks.get(row as usize).unwrap_or(occupied)),
        }
        self.blank_unknown(rows, out);
    }

    /// Writes [`Signal::LoadPrefillCostTokens`].
    fn prefill_cost_column(&self, rows: Rows<'_>, placed: &[Placed], out: &mut [f64]) {
        let (active, overlaps) = (&self.table.prefill_tokens, self.request.overlaps);
        let prompt = self.request.prompt_tokens as f64;
        let cost =
            |active, overlap: &WorkerOverlap| one_nan(prefill_cost_tokens(active, prompt, overlap.cached_tokens));
        if one_for_each(placed, overlaps, out) {
            rows.gather(active, out);
            out.iter_mut().zip(overlaps).for_each(|(out, overlap)| *out = cost(*out, overlap));
        } else {
            rows.gather_map(active, out, |active| prefill_cost_tokens(active, prompt, 0.0));
            for Placed { row, overlap } in placed {
                let active = rows.get(*row).and_then(|row| active.get(row as usize));
                let found = active.zip(overlaps.get(*overlap as usize));
                if let (Some(out), Some((active, overlap))) = (out.get_mut(*row as usize), found) {
                    *out = cost(*active, overlap);
                }
            }
        }
        self.fill_unknown(rows, out, prompt);
    }

    /// Makes the values 0 where the load is not known.
    fn blank_unknown(&self, rows: Rows<'_>, out: &mut [f64]) {
        self.fill_unknown(rows, out, 0.0);
    }

    fn fill_unknown(&self, rows: Rows<'_>, out: &mut [f64], with: f64) {
        if self.table.loads_known() {
            return;
        }
        for (place, value) in (0..).zip(out) {
            let known = rows.get(place).and_then(|row| self.table.load_available.get(row as usize));
            if known.is_none_or(|known| *known == 0.0) {
                *value = with;
            }
        }
    }

    fn preferred_multiplier(&self, row: u32) -> f64 {
        let worker = self.table.keys.get(row as usize).and_then(|key| self.table.workers.get(&key.worker));
        let taints = worker.map_or(&[][..], |worker| &worker.config.taints);
        let matching = self.request.preferred_taints.iter().filter(|(taint, _)| taints.iter().any(|has| has == taint));
        libm::exp(-libm::tanh(matching.map(|(_, weight)| weight).sum::<f64>()))
    }

    /// Whether any preferred taint counts.
    fn prefers_taints(&self) -> bool {
        !self.request.preferred_taints.is_empty() && eligibility::pin(self.request).is_none()
    }

    #[inline]
    fn known_column(&self, signal: Signal, rows: Rows<'_>, placed: &[Placed], out: &mut [f64]) {
        let table = self.table;
        match signal {
            Signal::CacheDeviceOverlapBlocks => self.overlap_column(placed, out, 0.0, |overlap| overlap.device_blocks),
            Signal::CacheHostOverlapBlocks => self.overlap_column(placed, out, 0.0, |overlap| overlap.host_blocks),
            Signal::CacheDiskOverlapBlocks => self.overlap_column(placed, out, 0.0, |overlap| overlap.disk_blocks),
            Signal::CacheOverlapBlocks if self.projection.tier_matches => {
                self.overlap_column(placed, out, 0.0, |overlap| overlap.device_blocks);
            }
            Signal::CacheOverlapBlocks | Signal::CacheEffectiveOverlapBlocks => {
                self.overlap_column(placed, out, 0.0, |overlap| overlap.effective_blocks);
            }
            Signal::CacheEstimatedCachedTokens => {
                self.overlap_column(placed, out, 0.0, |overlap| overlap.cached_tokens)
            }
            Signal::CacheSharedBeyondDeviceBlocks => self.shared_column(placed, out, |overlap| overlap.device_blocks),
            Signal::CacheSharedBeyondEffectiveBlocks => {
                self.shared_column(placed, out, |overlap| overlap.effective_blocks);
            }
            Signal::LoadActivePrefillTokens => self.load_column(rows, out, &table.prefill_tokens),
            Signal::LoadPrefillCostTokens => self.prefill_cost_column(rows, placed, out),
            Signal::LoadDecodeBlocks => self.load_column(rows, out, &table.decode_blocks),
            Signal::LoadActiveRequests => self.load_column(rows, out, &table.active_requests),
            Signal::LoadAvailable => rows.gather(&table.load_available, out),
            Signal::LoadAddedBlocks => self.added_column(rows, out, None),
            Signal::LoadDecodeCostBlocks => self.added_column(rows, out, Some(&table.decode_blocks)),
            Signal::TaintPreferredMultiplier => {
                if self.prefers_taints() {
                    rows.write(out, |row| self.preferred_multiplier(row));
                } else {
                    out.fill(missing());
                }
            }
            Signal::WorkerTotalKvBlocks => rows.gather(&table.total_kv_blocks, out),
            Signal::WorkerMaxNumBatchedTokens => rows.gather(&table.max_num_batched_tokens, out),
        }
    }
}

impl Source for Candidates<'_> {
    #[inline]
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
            // For a classifier: no plan of worker selection has them.
            Fact::IngressMs | Fact::ContextTokens | Fact::DueMs | Fact::SchedulingCostTokens | Fact::PinnedWorker => {
                fact.absent()
            }
        }
    }

    fn text(&self, text: TextId) -> Option<&str> {
        match text {
            TextId::Known(Text::SessionId) => self.request.session.map(|session| session.id),
            TextId::Known(Text::SessionParentId) => self.request.session.and_then(|session| session.parent_id),
            // For a classifier: no plan of worker selection has them.
            TextId::Known(Text::RequestId | Text::RequestPolicyClass) => None,
            TextId::Header(index) => {
                let name = self.vocabulary.headers.get(index)?;
                self.request.headers.iter().find(|(header, _)| header == name).map(|(_, value)| *value)
            }
        }
    }

    fn place<'a>(&'a self, rows: Rows<'_>, buffer: &'a mut Vec<Placed>) -> &'a [Placed] {
        let Rows::Some(rows) = rows else { return &self.projection.overlaps };
        buffer.clear();
        let mut next = 0;
        for Placed { row, overlap } in &self.projection.overlaps {
            if let Some(place) = seek(rows, &mut next, row, |before| before < row) {
                buffer.push(Placed { row: place as u32, overlap: *overlap });
            }
        }
        buffer
    }

    #[inline]
    fn constant(&self, signal: Signal, placed: &[Placed]) -> Option<f64> {
        match signal {
            Signal::CacheDeviceOverlapBlocks
            | Signal::CacheHostOverlapBlocks
            | Signal::CacheDiskOverlapBlocks
            | Signal::CacheOverlapBlocks
            | Signal::CacheEffectiveOverlapBlocks
            | Signal::CacheEstimatedCachedTokens => placed.is_empty().then_some(0.0),
            Signal::TaintPreferredMultiplier if !self.prefers_taints() => Some(missing()),
            Signal::LoadAvailable if self.table.loads_known() => Some(1.0),
            _ => None,
        }
    }

    // Apart from the loop over the columns, most of which are constant: inlined it would spill the loop's registers.
    #[inline(never)]
    fn column(&self, signal: SignalId, rows: Rows<'_>, placed: &[Placed], out: &mut [f64]) {
        match signal {
            SignalId::Known(signal) => self.known_column(signal, rows, placed, out),
            SignalId::Extra(index) => match self.table.extras.get(index) {
                Some(column) => rows.gather(column, out),
                None => out.fill(missing()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gallop_counts_the_first_keys_however_many_there_are() {
        let keys: Vec<usize> = (0..150).collect();
        for length in 0..150 {
            for cut in 0..=length {
                assert_eq!(gallop(&keys[..length], |key| *key < cut), cut, "{cut} of {length}");
            }
        }
    }
}
