//! Dynamo's view of one selection as the contract's names.

use std::ops::Range;

use dynamo_kv_router::plugins::worker_selection::{
    ScoredWorkerCandidate, WorkerCacheInput, WorkerCandidate, WorkerInputView, WorkerLoadInput, WorkerSelectionContext,
    WorkerSelectionInputTrigger,
};
use dynamo_kv_router::protocols::WorkerWithDpRank;
use pointsman_routing::{Fact, HostedTable, Rows, Signal, Text, Trigger, prefill_cost_tokens};

use crate::clock;
use crate::numbers::Numbers;

/// The candidates of one selection in the contract's order, with what Dynamo shows of each.
pub(crate) trait Candidates {
    fn rows(&self) -> u32;
    fn worker(&self, row: u32) -> Option<WorkerWithDpRank>;
    fn cache(&self, row: u32) -> Option<WorkerCacheInput<'_>>;
    fn load(&self, row: u32) -> Option<&WorkerLoadInput>;
    fn taint(&self, row: u32) -> Option<f64>;
    fn number(&self, row: u32) -> u32;

    /// The place of the first row that is not `before` the one looked for; rows are sorted.
    fn partition_point(&self, before: impl Fn(WorkerWithDpRank) -> bool) -> u32 {
        let (mut from, mut to) = (0, self.rows());
        while from < to {
            let middle = from + (to - from) / 2;
            if self.worker(middle).is_some_and(&before) { from = middle + 1 } else { to = middle }
        }
        from
    }
}

/// Where the rows of the contract's order lie among Dynamo's candidates. Dynamo's order comes from a hash map, and
/// stays the same while its workers do: then nothing is sorted again.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// The workers in Dynamo's order.
    seen: Vec<WorkerWithDpRank>,
    /// Dynamo's place of each row.
    places: Vec<u32>,
    numbers: Vec<u32>,
}

impl Order {
    pub(crate) fn follow(&mut self, candidates: &[ScoredWorkerCandidate], numbers: &mut Numbers) {
        let workers = candidates.iter().map(ScoredWorkerCandidate::worker);
        if self.seen.len() == candidates.len() && workers.clone().zip(&self.seen).all(|(now, seen)| now == *seen) {
            return;
        }
        self.seen.clear();
        self.seen.extend(workers);
        let Self { seen, places, numbers: row_numbers } = self;
        places.clear();
        places.extend(0..seen.len() as u32);
        places.sort_unstable_by_key(|place| seen.get(*place as usize));
        row_numbers.clear();
        row_numbers
            .extend(places.iter().filter_map(|place| seen.get(*place as usize)).map(|worker| numbers.of(*worker)));
    }

    /// Dynamo's place of a row.
    pub(crate) fn place(&self, row: u32) -> Option<usize> {
        self.places.get(row as usize).map(|place| *place as usize)
    }
}

/// What Dynamo's picker sees.
pub(crate) struct Picked<'a> {
    pub(crate) view: WorkerInputView<'a>,
    pub(crate) order: &'a Order,
}

impl Picked<'_> {
    fn candidate(&self, row: u32) -> Option<&ScoredWorkerCandidate> {
        self.view.candidates().get(self.order.place(row)?)
    }
}

impl Candidates for Picked<'_> {
    fn rows(&self) -> u32 {
        self.order.places.len() as u32
    }

    fn worker(&self, row: u32) -> Option<WorkerWithDpRank> {
        self.candidate(row).map(ScoredWorkerCandidate::worker)
    }

    fn cache(&self, row: u32) -> Option<WorkerCacheInput<'_>> {
        self.view.cache()?.get(self.order.place(row)?)
    }

    fn load(&self, row: u32) -> Option<&WorkerLoadInput> {
        self.view.load()?.get(self.order.place(row)?)
    }

    fn taint(&self, row: u32) -> Option<f64> {
        self.candidate(row)?.preferred_taint_multiplier()
    }

    fn number(&self, row: u32) -> u32 {
        self.order.numbers.get(row as usize).copied().unwrap_or_default()
    }
}

/// What Dynamo's filter sees: one row.
pub(crate) struct Filtered<'a> {
    pub(crate) candidate: WorkerCandidate<'a>,
    pub(crate) number: u32,
}

impl Candidates for Filtered<'_> {
    fn rows(&self) -> u32 {
        1
    }

    fn worker(&self, _: u32) -> Option<WorkerWithDpRank> {
        Some(self.candidate.worker())
    }

    fn cache(&self, _: u32) -> Option<WorkerCacheInput<'_>> {
        self.candidate.cache()
    }

    fn load(&self, _: u32) -> Option<&WorkerLoadInput> {
        self.candidate.load()
    }

    fn taint(&self, _: u32) -> Option<f64> {
        self.candidate.preferred_taint_multiplier()
    }

    fn number(&self, _: u32) -> u32 {
        self.number
    }
}

/// One selection.
pub(crate) struct Table<'a, C> {
    pub(crate) context: &'a WorkerSelectionContext<'a>,
    pub(crate) candidates: C,
}

impl<C: Candidates> Table<'_, C> {
    fn cache(&self, rows: Rows<'_>, absent: f64, out: &mut [f64], value: impl Fn(WorkerCacheInput<'_>) -> f64) {
        rows.write(out, |row| self.candidates.cache(row).map_or(absent, &value));
    }

    fn load(&self, rows: Rows<'_>, out: &mut [f64], value: impl Fn(&WorkerLoadInput) -> f64) {
        rows.write(out, |row| self.candidates.load(row).map_or(0.0, &value));
    }

    fn has_tier_matches(&self) -> bool {
        self.candidates.cache(0).is_some_and(WorkerCacheInput::has_tier_matches)
    }
}

impl<C: Candidates> HostedTable for Table<'_, C> {
    fn rows(&self) -> u32 {
        self.candidates.rows()
    }

    fn fact(&self, fact: Fact) -> f64 {
        let context = self.context;
        let flag = |set: bool| f64::from(u8::from(set));
        let session = context.session_context();
        let value = match fact {
            Fact::NowMs => Some(clock::now_ms()),
            Fact::PromptTokens => Some(context.prompt_tokens() as f64),
            Fact::Blocks => Some(context.request_blocks() as f64),
            Fact::TracksPrefillTokens => Some(flag(context.tracks_prefill_tokens())),
            Fact::ExpectedOutputTokens => context.expected_output_tokens().map(f64::from),
            Fact::PriorityJump => Some(context.priority_jump()),
            Fact::StrictPriority => Some(f64::from(context.strict_priority())),
            Fact::RouterTemperature => context.router_temperature_override(),
            Fact::Pinned => Some(flag(context.pinned_worker().is_some())),
            Fact::HasTierMatches => Some(flag(self.has_tier_matches())),
            Fact::SessionFinal => session.and_then(|session| session.session_final()).map(flag),
            Fact::SessionTrigger => {
                session.and_then(|session| session.input_trigger()).map(|found| trigger(found).as_f64())
            }
            Fact::AffinityFirst | Fact::AffinityRows => None,
            // For a classifier: no policy of worker selection reads them.
            Fact::IngressMs | Fact::ContextTokens | Fact::DueMs | Fact::SchedulingCostTokens | Fact::PinnedWorker => {
                None
            }
        };
        value.filter(|value| !value.is_nan()).unwrap_or(fact.absent())
    }

    fn text(&self, text: Text) -> Option<&str> {
        let session = self.context.session_context()?;
        match text {
            Text::SessionId => Some(session.session_id()),
            Text::SessionParentId => session.parent_session_id(),
            Text::RequestId | Text::RequestPolicyClass => None,
        }
    }

    fn column(&self, signal: Signal, rows: Rows<'_>, out: &mut [f64]) {
        let absent = signal.absent();
        match signal {
            Signal::CacheDeviceOverlapBlocks => self.cache(rows, absent, out, |cache| cache.device_overlap_blocks()),
            Signal::CacheHostOverlapBlocks => self.cache(rows, absent, out, |cache| cache.host_overlap_blocks()),
            Signal::CacheDiskOverlapBlocks => self.cache(rows, absent, out, |cache| cache.disk_overlap_blocks()),
            Signal::CacheOverlapBlocks if self.has_tier_matches() => {
                self.cache(rows, absent, out, |cache| cache.device_overlap_blocks());
            }
            Signal::CacheEffectiveOverlapBlocks | Signal::CacheOverlapBlocks => {
                self.cache(rows, absent, out, |cache| cache.accounting_cache_estimate().0);
            }
            Signal::CacheEstimatedCachedTokens => {
                self.cache(rows, absent, out, |cache| cache.accounting_cache_estimate().1 as f64);
            }
            Signal::CacheSharedBeyondDeviceBlocks => {
                self.cache(rows, absent, out, |cache| shared_beyond(cache, cache.device_overlap_blocks(), absent));
            }
            Signal::CacheSharedBeyondEffectiveBlocks => {
                self.cache(rows, absent, out, |cache| {
                    shared_beyond(cache, cache.accounting_cache_estimate().0, absent)
                });
            }
            Signal::LoadActivePrefillTokens => self.load(rows, out, |load| load.active_prefill_tokens() as f64),
            Signal::LoadPrefillCostTokens => {
                let prompt = self.context.prompt_tokens() as f64;
                rows.write(out, |row| {
                    let cached = self.candidates.cache(row).map_or(0, |cache| cache.accounting_cache_estimate().1);
                    let active = self.candidates.load(row).filter(|load| load.is_available());
                    let tokens = active.map(WorkerLoadInput::active_prefill_tokens);
                    tokens.map_or(prompt, |active| prefill_cost_tokens(active as f64, prompt, cached as f64))
                });
            }
            Signal::LoadDecodeCostBlocks => self.load(rows, out, WorkerLoadInput::decode_cost_blocks),
            Signal::LoadActiveRequests => self.load(rows, out, |load| load.active_requests() as f64),
            Signal::LoadAvailable => self.load(rows, out, |load| f64::from(u8::from(load.is_available()))),
            Signal::TaintPreferredMultiplier => {
                rows.write(out, |row| self.candidates.taint(row).unwrap_or(absent));
            }
            // Refused at start.
            Signal::LoadDecodeBlocks
            | Signal::LoadAddedBlocks
            | Signal::WorkerTotalKvBlocks
            | Signal::WorkerMaxNumBatchedTokens => rows.write(out, |_| absent),
        }
    }

    fn number(&self, row: u32) -> u32 {
        self.candidates.number(row)
    }

    fn affinity(&self) -> Option<Range<u32>> {
        let target = self.context.affinity_target()?;
        let ranks = target.dp_rank.map_or((0, u32::MAX), |rank| (rank, rank));
        let from = WorkerWithDpRank::new(target.worker_id, ranks.0);
        let to = WorkerWithDpRank::new(target.worker_id, ranks.1);
        Some(
            self.candidates.partition_point(|worker| worker < from)
                ..self.candidates.partition_point(|worker| worker <= to),
        )
    }
}

/// Dynamo's word for what set a request off, in the contract's.
pub(crate) const fn trigger(found: WorkerSelectionInputTrigger) -> Trigger {
    match found {
        WorkerSelectionInputTrigger::UserMessage => Trigger::UserMessage,
        WorkerSelectionInputTrigger::ToolResult => Trigger::ToolResult,
        WorkerSelectionInputTrigger::Other => Trigger::Other,
    }
}

/// Shared-cache blocks past a prefix of `blocks`, missing where no lookup was made.
fn shared_beyond(cache: WorkerCacheInput<'_>, blocks: f64, absent: f64) -> f64 {
    let from = blocks.round().max(0.0) as u32;
    cache.shared_hits().map_or(absent, |hits| f64::from(hits.hits_beyond(from)))
}
