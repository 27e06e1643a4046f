//! The facts, texts and signals by name, and the groups that Dynamo's guide gives them.

/// The picker's signal that carries the sum of the scorers' costs.
pub const COST: &str = "cost";

/// The one bit pattern of a missing value: the quiet NaN 0x7ff8000000000000.
#[must_use]
pub const fn missing() -> f64 {
    f64::from_bits(0x7ff8_0000_0000_0000)
}

/// Whether `value` is missing. Any NaN counts.
#[must_use]
pub const fn is_missing(value: f64) -> bool {
    value.is_nan()
}

/// What set a request off: the values of the fact `session.trigger`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// 0: a message of the user.
    UserMessage,
    /// 1: the result of a tool.
    ToolResult,
    /// 2: anything else.
    Other,
}

impl Trigger {
    /// The trigger's number in the contract.
    #[must_use]
    pub const fn as_f64(self) -> f64 {
        match self {
            Self::UserMessage => 0.0,
            Self::ToolResult => 1.0,
            Self::Other => 2.0,
        }
    }

    /// The trigger of a number, none where it is missing.
    #[must_use]
    pub fn from_f64(value: f64) -> Option<Self> {
        if value.is_nan() {
            None
        } else if value == 0.0 {
            Some(Self::UserMessage)
        } else if value == 1.0 {
            Some(Self::ToolResult)
        } else {
            Some(Self::Other)
        }
    }
}

macro_rules! vocabulary {
    ($(#[$meta:meta])* $kind:ident { $($(#[$doc:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $kind { $($(#[$doc])* $variant,)* }

        impl $kind {
            /// Every one, in the order of docs/contract.md.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The name in the contract.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The one of that name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)* _ => None }
            }

            /// The place in [`Self::ALL`].
            #[must_use]
            pub const fn index(self) -> usize {
                self as usize
            }
        }
    };
}

vocabulary! {
    /// A number of the request. Missing is NaN unless said otherwise.
    Fact {
        /// Milliseconds, monotonic, since the host's start; trace time in replay. Never missing.
        NowMs = "request.now-ms",
        /// Tokens of the prompt; 0 for embeddings. Never missing.
        PromptTokens = "request.prompt-tokens",
        /// Blocks of the prompt: tokens / block size, rounded up. Never missing.
        Blocks = "request.blocks",
        /// 1 where the request counts towards prefill load, else 0. Never missing.
        TracksPrefillTokens = "request.tracks-prefill-tokens",
        /// Expected tokens of the answer.
        ExpectedOutputTokens = "request.expected-output-tokens",
        /// The scheduler's priority boost. 0 where the request has none.
        PriorityJump = "request.priority-jump",
        /// The strict integer priority. 0 where the request has none.
        StrictPriority = "request.strict-priority",
        /// The request's own router temperature.
        RouterTemperature = "request.router-temperature",
        /// 1 where the request is pinned to its one row, else 0. Never missing.
        Pinned = "request.pinned",
        /// The first row of the soft affinity target, among the rows sent. Missing without a target or without a row of it.
        AffinityFirst = "request.affinity-first",
        /// The rows of the soft affinity target, consecutive from the first; 0 where it has none here. Missing without a target.
        AffinityRows = "request.affinity-rows",
        /// 1 where any worker of the partition, eligible or not, has an overlap on device, host or disk, else 0. Never missing.
        HasTierMatches = "request.has-tier-matches",
        /// 1 for the session's last request, 0 for another.
        SessionFinal = "session.final",
        /// 0 user message, 1 tool result, 2 other.
        SessionTrigger = "session.trigger",
        /// When the router got the request, on the clock of `request.now-ms`. For a classifier. Never missing.
        IngressMs = "request.ingress-ms",
        /// Prompt and generated tokens so far. For a classifier. Never missing.
        ContextTokens = "request.context-tokens",
        /// When the request must have left the queue, on the clock of `request.now-ms`. For a classifier.
        DueMs = "request.due-ms",
        /// What the queue charges: prompt tokens that no worker has cached, at least 1. For a classifier. Never missing.
        SchedulingCostTokens = "request.scheduling-cost-tokens",
        /// The number of the worker that the request is pinned to. For a classifier.
        PinnedWorker = "request.pinned-worker",
    }
}

vocabulary! {
    /// A text of the request. Missing is `none`.
    Text {
        /// The reasoning or tool session's identifier.
        SessionId = "session.id",
        /// The identifier of the session that started this one.
        SessionParentId = "session.parent-id",
        /// The request's identifier. For a classifier.
        RequestId = "request.id",
        /// The policy class that the caller asked for. For a classifier.
        RequestPolicyClass = "request.policy-class",
    }
}

vocabulary! {
    /// A number of each worker. Missing is NaN unless said otherwise.
    Signal {
        /// Prefix blocks resident on the device, as reported. Absent is 0.
        CacheDeviceOverlapBlocks = "cache.device-overlap-blocks",
        /// Prefix blocks in host memory beyond the device's, as reported. Absent is 0.
        CacheHostOverlapBlocks = "cache.host-overlap-blocks",
        /// Prefix blocks on disk beyond the host's, as reported. Absent is 0.
        CacheDiskOverlapBlocks = "cache.disk-overlap-blocks",
        /// Shared-cache blocks past the device's prefix. Missing where the request has no shared-cache lookup.
        CacheSharedBeyondDeviceBlocks = "cache.shared-beyond-device-blocks",
        /// The host's weighted estimate of the overlap, in blocks. Absent is 0.
        CacheEffectiveOverlapBlocks = "cache.effective-overlap-blocks",
        /// Device overlap where any tier matched for the request, else the effective estimate.
        CacheOverlapBlocks = "cache.overlap-blocks",
        /// The host's estimate of cached prompt tokens, not clamped to the prompt. Absent is 0.
        CacheEstimatedCachedTokens = "cache.estimated-cached-tokens",
        /// Shared-cache blocks past the effective overlap. Missing where the request has no shared-cache lookup.
        CacheSharedBeyondEffectiveBlocks = "cache.shared-beyond-effective-blocks",
        /// Tokens in the worker's prefill stage. 0 where the load is not known.
        LoadActivePrefillTokens = "load.active-prefill-tokens",
        /// `load.active-prefill-tokens` and this request's prompt, taken whole: plus what `cache.estimated-cached-tokens`
        /// leaves of it, at least 0, plus the cached tokens themselves. The prompt alone where the load is not known.
        LoadPrefillCostTokens = "load.prefill-cost-tokens",
        /// `load.decode-blocks` + `load.added-blocks`. 0 where the load is not known.
        LoadDecodeCostBlocks = "load.decode-cost-blocks",
        /// KV blocks of the worker's active requests. 0 where the load is not known.
        LoadDecodeBlocks = "load.decode-blocks",
        /// Blocks that this request would add: those past the prefix it shares with active requests. 0 where the load is not known.
        LoadAddedBlocks = "load.added-blocks",
        /// Active requests. 0 where the load is not known.
        LoadActiveRequests = "load.active-requests",
        /// 1 where the host knows the worker's load, else 0.
        LoadAvailable = "load.available",
        /// exp(-tanh(sum of the weights of matching preferred taints)). Missing without preferred taints, and with a pin.
        TaintPreferredMultiplier = "taint.preferred-multiplier",
        /// The worker's KV blocks in all. Missing where it advertises none.
        WorkerTotalKvBlocks = "worker.total-kv-blocks",
        /// The worker's limit of batched tokens. Missing where it advertises none.
        WorkerMaxNumBatchedTokens = "worker.max-num-batched-tokens",
    }
}

/// The groups of signals that Dynamo's guide names, for a stage that wants all of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// Prefix overlap in every tier.
    Cache,
    /// Load of the worker.
    Load,
    /// Multiplier of the preferred taints.
    PreferredTaint,
}

impl Group {
    /// The signals of the group.
    #[must_use]
    pub const fn signals(self) -> &'static [Signal] {
        match self {
            Self::Cache => &[
                Signal::CacheDeviceOverlapBlocks,
                Signal::CacheHostOverlapBlocks,
                Signal::CacheDiskOverlapBlocks,
                Signal::CacheSharedBeyondDeviceBlocks,
                Signal::CacheEffectiveOverlapBlocks,
                Signal::CacheEstimatedCachedTokens,
            ],
            Self::Load => &[
                Signal::LoadActivePrefillTokens,
                Signal::LoadDecodeCostBlocks,
                Signal::LoadActiveRequests,
                Signal::LoadAvailable,
            ],
            Self::PreferredTaint => &[Signal::TaintPreferredMultiplier],
        }
    }

    /// The facts of the group.
    #[must_use]
    pub const fn facts(self) -> &'static [Fact] {
        match self {
            Self::Cache => &[Fact::HasTierMatches],
            Self::Load | Self::PreferredTaint => &[],
        }
    }
}

/// Who may read a fact or a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reader {
    /// The stages of worker selection alone.
    Selection,
    /// A classifier alone.
    Classifier,
    /// Both.
    Both,
}

impl Reader {
    /// Whether a classifier may read it, or a stage of worker selection.
    #[must_use]
    pub const fn includes(self, classifier: bool) -> bool {
        matches!((self, classifier), (Self::Both, _) | (Self::Classifier, true) | (Self::Selection, false))
    }
}

impl Text {
    /// Who may read it.
    #[must_use]
    pub const fn reader(self) -> Reader {
        match self {
            Self::SessionId | Self::SessionParentId => Reader::Both,
            Self::RequestId | Self::RequestPolicyClass => Reader::Classifier,
        }
    }
}

impl Fact {
    /// Who may read it. A classifier reads what Dynamo's `ClassifyRequest` tells; there are no candidates yet.
    #[must_use]
    pub const fn reader(self) -> Reader {
        match self {
            Self::NowMs
            | Self::PromptTokens
            | Self::Blocks
            | Self::Pinned
            | Self::SessionFinal
            | Self::SessionTrigger => Reader::Both,
            Self::TracksPrefillTokens
            | Self::ExpectedOutputTokens
            | Self::PriorityJump
            | Self::StrictPriority
            | Self::RouterTemperature
            | Self::AffinityFirst
            | Self::AffinityRows
            | Self::HasTierMatches => Reader::Selection,
            Self::IngressMs | Self::ContextTokens | Self::DueMs | Self::SchedulingCostTokens | Self::PinnedWorker => {
                Reader::Classifier
            }
        }
    }

    /// The value that stands for an absent one: 0 where the vocabulary says 0 or never missing, else the missing NaN.
    #[must_use]
    pub const fn absent(self) -> f64 {
        match self {
            Self::NowMs
            | Self::PromptTokens
            | Self::Blocks
            | Self::TracksPrefillTokens
            | Self::PriorityJump
            | Self::StrictPriority
            | Self::Pinned
            | Self::HasTierMatches
            | Self::IngressMs
            | Self::ContextTokens
            | Self::SchedulingCostTokens => 0.0,
            Self::ExpectedOutputTokens
            | Self::RouterTemperature
            | Self::AffinityFirst
            | Self::AffinityRows
            | Self::SessionFinal
            | Self::SessionTrigger
            | Self::DueMs
            | Self::PinnedWorker => missing(),
        }
    }
}

impl Signal {
    /// Its value in a row of a table written by hand, which gives some signals by name: what is given, else what
    /// follows from the others, else [`absent`](Self::absent).
    pub fn of_given(self, prompt_tokens: f64, given: impl Fn(&str) -> Option<f64>) -> f64 {
        let value = |signal: Self| given(signal.name()).unwrap_or(signal.absent());
        match self {
            Self::LoadPrefillCostTokens => given(self.name()).unwrap_or_else(|| {
                let known = value(Self::LoadAvailable) == 1.0;
                let [active, cached] = [Self::LoadActivePrefillTokens, Self::CacheEstimatedCachedTokens].map(value);
                if known { prefill_cost_tokens(active, prompt_tokens, cached) } else { prompt_tokens }
            }),
            other => value(other),
        }
    }

    /// Whether the host finds it by the request's prefix overlaps.
    #[must_use]
    pub fn is_of_cache(self) -> bool {
        self == Self::LoadPrefillCostTokens || self.name().starts_with("cache.")
    }

    /// The value that stands for an absent one: 0 where the vocabulary says 0, else the missing NaN.
    #[must_use]
    pub const fn absent(self) -> f64 {
        match self {
            Self::CacheDeviceOverlapBlocks
            | Self::CacheHostOverlapBlocks
            | Self::CacheDiskOverlapBlocks
            | Self::CacheEffectiveOverlapBlocks
            | Self::CacheOverlapBlocks
            | Self::CacheEstimatedCachedTokens
            | Self::LoadActivePrefillTokens
            | Self::LoadPrefillCostTokens
            | Self::LoadDecodeCostBlocks
            | Self::LoadDecodeBlocks
            | Self::LoadAddedBlocks
            | Self::LoadActiveRequests
            | Self::LoadAvailable => 0.0,
            Self::CacheSharedBeyondDeviceBlocks
            | Self::CacheSharedBeyondEffectiveBlocks
            | Self::TaintPreferredMultiplier
            | Self::WorkerTotalKvBlocks
            | Self::WorkerMaxNumBatchedTokens => missing(),
        }
    }
}

/// The value of [`Signal::LoadPrefillCostTokens`] where the load is known.
#[must_use]
#[inline]
pub fn prefill_cost_tokens(active: f64, prompt: f64, cached: f64) -> f64 {
    // A comparison, since `f64::max` would call a function in a guest.
    let uncached = prompt - cached;
    active + if uncached > 0.0 { uncached } else { 0.0 } + cached
}
