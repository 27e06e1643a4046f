//! What a stage sees of one decision: the request, and the workers as rows and as columns.

use std::ops::Range;

use pointsman_contract::{Fact, Signal, Text, Trigger};

use crate::layout::{Layout, Table};
use crate::{PolicyError, Reads};

#[cold]
#[inline(never)]
fn undeclared_fact(fact: Fact) -> PolicyError {
    undeclared("fact", fact.name())
}

#[cold]
#[inline(never)]
fn undeclared_signal(signal: Signal) -> PolicyError {
    undeclared("signal", signal.name())
}

#[cold]
fn undeclared(kind: &str, name: &str) -> PolicyError {
    PolicyError::failed(format!("{kind} `{name}` is not among what this stage reads"))
}

fn present(value: f64) -> Option<f64> {
    (!value.is_nan()).then_some(value)
}

/// The request: Dynamo's request and session context.
///
/// Each accessor answers an error where the stage did not declare what it reads. Token and block counts are whole
/// numbers, exact as f64.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    table: Table<'a>,
    layout: Layout<'a>,
    block_size: u32,
}

impl<'a> Request<'a> {
    pub(crate) const fn new(table: Table<'a>, layout: Layout<'a>, block_size: u32) -> Self {
        Self { table, layout, block_size }
    }

    /// The same request as another stage sees it.
    pub(crate) const fn show(&mut self, layout: Layout<'a>) {
        self.layout = layout;
    }

    /// The call and the block size.
    pub(crate) const fn parts(&self) -> (Table<'a>, u32) {
        (self.table, self.block_size)
    }

    /// A fact, none where it is missing.
    ///
    /// # Errors
    /// Where the stage does not read it.
    pub fn fact(&self, fact: Fact) -> Result<Option<f64>, PolicyError> {
        self.number(fact).map(present)
    }

    /// A text, none where it is missing.
    ///
    /// # Errors
    /// Where the stage does not read it.
    pub fn text(&self, text: Text) -> Result<Option<&'a str>, PolicyError> {
        match self.layout.text(text) {
            Some(place) => Ok(self.table.texts.get(place)),
            None => Err(undeclared("text", text.name())),
        }
    }

    /// A text by its name, such as `header.x-tier`; none where it is missing.
    ///
    /// # Errors
    /// Where the stage does not read it.
    pub fn named_text(&self, name: &str) -> Result<Option<&'a str>, PolicyError> {
        if let Some(text) = Text::from_name(name) {
            return self.text(text);
        }
        match self.layout.named_text(name) {
            Some(place) => Ok(self.table.texts.get(place)),
            None => Err(undeclared("text", name)),
        }
    }

    #[inline]
    fn number(&self, fact: Fact) -> Result<f64, PolicyError> {
        match self.layout.fact(fact).and_then(|place| self.table.numbers.get(place)) {
            Some(number) => Ok(*number),
            None => Err(undeclared_fact(fact)),
        }
    }

    /// Tokens in one KV block. Needs no declaration.
    #[must_use]
    pub const fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Milliseconds since the host's start, monotonic; trace time in replay. Reads [`Fact::NowMs`].
    ///
    /// # Errors
    /// Where the stage does not read it.
    pub fn now_ms(&self) -> Result<f64, PolicyError> {
        self.number(Fact::NowMs)
    }

    /// Tokens of the prompt; 0 for embeddings. Reads [`Fact::PromptTokens`].
    ///
    /// # Errors
    /// Where the stage does not read it.
    #[inline]
    pub fn prompt_tokens(&self) -> Result<f64, PolicyError> {
        self.number(Fact::PromptTokens)
    }

    /// Blocks of the prompt. Reads [`Fact::Blocks`].
    ///
    /// # Errors
    /// Where the stage does not read it.
    pub fn request_blocks(&self) -> Result<f64, PolicyError> {
        self.number(Fact::Blocks)
    }

    /// Whether the request counts towards prefill load. Reads [`Fact::TracksPrefillTokens`].
    ///
    /// # Errors
    /// Where the stage does not read it.
    #[inline]
    pub fn tracks_prefill_tokens(&self) -> Result<bool, PolicyError> {
        self.number(Fact::TracksPrefillTokens).map(|value| value == 1.0)
    }

    /// Expected tokens of the answer. Reads [`Fact::ExpectedOutputTokens`].
    ///
    /// # Errors
    /// Where the stage does not read it.
    pub fn expected_output_tokens(&self) -> Result<Option<f64>, PolicyError> {
        self.fact(Fact::ExpectedOutputTokens)
    }

    /// The scheduler's priority boost, 0 where the request has none. Reads [`Fact::PriorityJump`].
    ///
    /// # Errors
    /// Where the stage does not read it.
    pub fn priority_jump(&self) -> Result<f64, PolicyError> {
        self.number(Fact::PriorityJump)
    }

    /// The strict integer priority, 0 where the request has none. Reads [`Fact::StrictPriority`].
    ///
    /// # Errors
    /// Where the stage does not read it.
    pub fn strict_priority(&self) -> Result<f64, PolicyError> {
        self.number(Fact::StrictPriority)
    }

    /// The request's own router temperature. Reads [`Fact::RouterTemperature`].
    ///
    /// # Errors
    /// Where the stage does not read it.
    pub fn router_temperature_override(&self) -> Result<Option<f64>, PolicyError> {
        self.fact(Fact::RouterTemperature)
    }

    /// Whether the request is pinned to its one row. Reads [`Fact::Pinned`].
    ///
    /// # Errors
    /// Where the stage does not read it.
    #[inline]
    pub fn pinned(&self) -> Result<bool, PolicyError> {
        self.number(Fact::Pinned).map(|value| value == 1.0)
    }

    /// Whether any worker of the partition, eligible or not, has an overlap on device, host or disk. Reads
    /// [`Fact::HasTierMatches`].
    ///
    /// # Errors
    /// Where the stage does not read it.
    pub fn has_tier_matches(&self) -> Result<bool, PolicyError> {
        self.number(Fact::HasTierMatches).map(|value| value == 1.0)
    }

    /// The rows of the soft affinity target: none without a target, an empty range where the target has no row here.
    /// Reads [`Reads::AFFINITY`](crate::Reads::AFFINITY).
    ///
    /// # Errors
    /// Where the stage does not read it.
    pub fn affinity_target(&self) -> Result<Option<Range<usize>>, PolicyError> {
        let first = self.number(Fact::AffinityFirst)?;
        let Some(rows) = present(self.number(Fact::AffinityRows)?) else {
            return Ok(None);
        };
        Ok(Some(target(first, rows, self.table.rows)))
    }

    /// Whether this is the session's last request. Reads [`Fact::SessionFinal`].
    ///
    /// # Errors
    /// Where the stage does not read it.
    pub fn session_final(&self) -> Result<Option<bool>, PolicyError> {
        self.fact(Fact::SessionFinal).map(|value| value.map(|value| value == 1.0))
    }

    /// What set the request off. Reads [`Fact::SessionTrigger`].
    ///
    /// # Errors
    /// Where the stage does not read it.
    pub fn input_trigger(&self) -> Result<Option<Trigger>, PolicyError> {
        self.number(Fact::SessionTrigger).map(Trigger::from_f64)
    }

    /// The session's identifier. Reads [`Text::SessionId`].
    ///
    /// # Errors
    /// Where the stage does not read it.
    pub fn session_id(&self) -> Result<Option<&'a str>, PolicyError> {
        self.text(Text::SessionId)
    }

    /// The identifier of the session that started this one. Reads [`Text::SessionParentId`].
    ///
    /// # Errors
    /// Where the stage does not read it.
    pub fn parent_session_id(&self) -> Result<Option<&'a str>, PolicyError> {
        self.text(Text::SessionParentId)
    }

    /// The session, none where the request has none. Reads [`Reads::SESSION`](crate::Reads::SESSION).
    ///
    /// # Errors
    /// Where the stage does not read all of it.
    pub fn session_context(&self) -> Result<Option<Session<'a>>, PolicyError> {
        if !self.layout.reads.has_all(&Reads::SESSION) {
            return Err(PolicyError::failed("session input unavailable"));
        }
        let Some(session_id) = self.session_id()? else {
            return Ok(None);
        };
        Ok(Some(Session {
            session_id,
            parent_session_id: self.parent_session_id()?,
            session_final: self.session_final()?,
            input_trigger: self.input_trigger()?,
        }))
    }
}

/// The rows that the two affinity facts name, within `rows`.
pub(crate) fn target(first: f64, count: f64, rows: usize) -> Range<usize> {
    // `as` saturates, and a missing first row becomes 0.
    let first = first as usize;
    let end = first.saturating_add(count as usize).min(rows);
    if count >= 1.0 && first < end { first..end } else { 0..0 }
}

/// A request's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session<'a> {
    session_id: &'a str,
    parent_session_id: Option<&'a str>,
    session_final: Option<bool>,
    input_trigger: Option<Trigger>,
}

impl<'a> Session<'a> {
    /// The identifier of the reasoning or tool session.
    #[must_use]
    pub const fn session_id(&self) -> &'a str {
        self.session_id
    }

    /// The identifier of the session that started this one.
    #[must_use]
    pub const fn parent_session_id(&self) -> Option<&'a str> {
        self.parent_session_id
    }

    /// Whether this is the session's last request.
    #[must_use]
    pub const fn session_final(&self) -> Option<bool> {
        self.session_final
    }

    /// What set the request off.
    #[must_use]
    pub const fn input_trigger(&self) -> Option<Trigger> {
        self.input_trigger
    }
}

/// The workers that may serve the request, sorted by (worker id, data-parallel rank).
///
/// As columns, for a loop that the compiler can vectorise, or as rows. A missing value is NaN in a column and none in
/// a row; the overlaps and loads are never missing but 0.
#[derive(Clone, Copy, Debug)]
pub struct Candidates<'a> {
    request: &'a Request<'a>,
    costs: Option<&'a [f64]>,
}

impl<'a> Candidates<'a> {
    /// `costs` are there for a picker that reads them.
    pub(crate) const fn new(request: &'a Request<'a>, costs: Option<&'a [f64]>) -> Self {
        Self { request, costs }
    }

    #[inline]
    fn at(&self, place: usize) -> Option<&'a [f64]> {
        let Request { table, layout, .. } = self.request;
        let start = layout.before() + place * table.rows;
        table.numbers.get(start..)?.get(..table.rows)
    }

    /// The number of rows, at least 1.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a stage is never called without a row")]
    pub const fn len(&self) -> usize {
        self.request.table.rows
    }

    /// The column of a signal, `len()` values.
    ///
    /// # Errors
    /// Where the stage does not read it.
    #[inline]
    pub fn column(&self, signal: Signal) -> Result<&'a [f64], PolicyError> {
        match self.request.layout.signal(signal).and_then(|place| self.at(place)) {
            Some(column) => Ok(column),
            None => Err(undeclared_signal(signal)),
        }
    }

    /// The column of a signal by its name, such as `metric.queue-depth`.
    ///
    /// # Errors
    /// Where the stage does not read it.
    pub fn named_column(&self, name: &str) -> Result<&'a [f64], PolicyError> {
        if let Some(signal) = Signal::from_name(name) {
            return self.column(signal);
        }
        self.request
            .layout
            .named_signal(name)
            .and_then(|place| self.at(place))
            .ok_or_else(|| undeclared("signal", name))
    }

    /// The sums of the scorers' costs. For pickers that read [`Reads::COST`](crate::Reads::COST).
    ///
    /// # Errors
    /// Where the stage does not read them.
    #[inline]
    pub fn costs(&self) -> Result<&'a [f64], PolicyError> {
        self.costs.ok_or_else(|| PolicyError::failed("cost input unavailable"))
    }

    /// A number for each row that stands for one worker and rank and stays the same while that worker lives. Reads
    /// [`Reads::WORKERS`](crate::Reads::WORKERS).
    ///
    /// # Errors
    /// Where the stage does not read them.
    pub fn workers(&self) -> Result<&'a [u32], PolicyError> {
        if self.request.layout.reads.has_workers() {
            Ok(self.request.table.workers)
        } else {
            Err(PolicyError::failed("worker input unavailable"))
        }
    }

    /// The row of that number, none beyond the last.
    #[must_use]
    pub fn row(&self, index: usize) -> Option<Row<'_>> {
        (index < self.request.table.rows).then_some(Row { candidates: self, index })
    }

    /// The rows in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Row<'_>> {
        (0..self.request.table.rows).map(|index| Row { candidates: self, index })
    }
}

/// One worker.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    candidates: &'a Candidates<'a>,
    index: usize,
}

impl<'a> Row<'a> {
    /// The row's number among the candidates, from 0.
    #[must_use]
    pub const fn index(&self) -> usize {
        self.index
    }

    fn of(&self, column: &[f64]) -> f64 {
        column.get(self.index).copied().unwrap_or(f64::NAN)
    }

    fn value(&self, signal: Signal) -> Option<f64> {
        self.candidates.column(signal).ok().and_then(|column| present(self.of(column)))
    }

    /// A signal, none where it is missing.
    ///
    /// # Errors
    /// Where the stage does not read it.
    pub fn signal(&self, signal: Signal) -> Result<Option<f64>, PolicyError> {
        self.candidates.column(signal).map(|column| present(self.of(column)))
    }

    /// A signal by its name, such as `metric.queue-depth`; none where it is missing.
    ///
    /// # Errors
    /// Where the stage does not read it.
    pub fn named_signal(&self, name: &str) -> Result<Option<f64>, PolicyError> {
        self.candidates.named_column(name).map(|column| present(self.of(column)))
    }

    /// The sum of the scorers' costs, for pickers that read [`Reads::COST`](crate::Reads::COST).
    ///
    /// # Errors
    /// Where the stage does not read it.
    pub fn cost(&self) -> Result<f64, PolicyError> {
        self.candidates.costs().map(|costs| self.of(costs))
    }

    /// The worker's number. Reads [`Reads::WORKERS`](crate::Reads::WORKERS).
    ///
    /// # Errors
    /// Where the stage does not read it.
    pub fn worker(&self) -> Result<u32, PolicyError> {
        let workers = self.candidates.workers()?;
        workers.get(self.index).copied().ok_or_else(|| PolicyError::failed("worker input unavailable"))
    }

    /// The worker's prefix overlap. Reads [`Reads::CACHE`](crate::Reads::CACHE).
    ///
    /// # Errors
    /// "cache input unavailable" where the stage does not read all of it.
    pub fn cache(&self) -> Result<Cache<'a>, PolicyError> {
        if self.candidates.request.layout.reads.has_all(&Reads::CACHE) {
            Ok(Cache(*self))
        } else {
            Err(PolicyError::failed("cache input unavailable"))
        }
    }

    /// The worker's load. Reads [`Reads::LOAD`](crate::Reads::LOAD).
    ///
    /// # Errors
    /// "load input unavailable" where the stage does not read all of it.
    pub fn load(&self) -> Result<Load<'a>, PolicyError> {
        if self.candidates.request.layout.reads.has_all(&Reads::LOAD) {
            Ok(Load(*self))
        } else {
            Err(PolicyError::failed("load input unavailable"))
        }
    }

    /// The multiplier from matching preferred taints; none without preferred taints, with a pin, or where the stage
    /// does not read [`Reads::PREFERRED_TAINT`](crate::Reads::PREFERRED_TAINT).
    #[must_use]
    pub fn preferred_taint_multiplier(&self) -> Option<f64> {
        self.value(Signal::TaintPreferredMultiplier)
    }
}

/// The prefix overlap of one worker, in blocks unless said otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Cache<'a>(Row<'a>);

impl Cache<'_> {
    /// Prefix blocks resident on the device, as reported.
    #[must_use]
    pub fn device_overlap_blocks(&self) -> f64 {
        self.0.value(Signal::CacheDeviceOverlapBlocks).unwrap_or(0.0)
    }

    /// Prefix blocks in host memory beyond the device's, as reported.
    #[must_use]
    pub fn host_overlap_blocks(&self) -> f64 {
        self.0.value(Signal::CacheHostOverlapBlocks).unwrap_or(0.0)
    }

    /// Prefix blocks on disk beyond the host's, as reported.
    #[must_use]
    pub fn disk_overlap_blocks(&self) -> f64 {
        self.0.value(Signal::CacheDiskOverlapBlocks).unwrap_or(0.0)
    }

    /// Shared-cache blocks past the device's prefix; none without a shared-cache lookup.
    #[must_use]
    pub fn shared_beyond_device_blocks(&self) -> Option<f64> {
        self.0.value(Signal::CacheSharedBeyondDeviceBlocks)
    }

    /// The host's weighted estimate of the overlap.
    #[must_use]
    pub fn effective_overlap_blocks(&self) -> f64 {
        self.0.value(Signal::CacheEffectiveOverlapBlocks).unwrap_or(0.0)
    }

    /// The host's estimate of cached prompt tokens, not clamped to the prompt.
    #[must_use]
    pub fn estimated_cached_tokens(&self) -> f64 {
        self.0.value(Signal::CacheEstimatedCachedTokens).unwrap_or(0.0)
    }
}

/// The load of one worker. All of it is 0 where the host does not know it.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a>(Row<'a>);

impl Load<'_> {
    /// Whether the host knows the load.
    #[must_use]
    pub fn is_available(&self) -> bool {
        self.0.value(Signal::LoadAvailable) == Some(1.0)
    }

    /// Tokens in the worker's prefill stage.
    #[must_use]
    pub fn active_prefill_tokens(&self) -> f64 {
        self.0.value(Signal::LoadActivePrefillTokens).unwrap_or(0.0)
    }

    /// Blocks of active requests together with those that this request would add.
    #[must_use]
    pub fn decode_cost_blocks(&self) -> f64 {
        self.0.value(Signal::LoadDecodeCostBlocks).unwrap_or(0.0)
    }

    /// Active requests.
    #[must_use]
    pub fn active_requests(&self) -> f64 {
        self.0.value(Signal::LoadActiveRequests).unwrap_or(0.0)
    }
}
