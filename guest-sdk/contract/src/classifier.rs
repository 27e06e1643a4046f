//! The records of `wit/policy.wit`, interface `classification`, as plain Rust types with the same names.

/// The host's number of one classified request: no two live requests of a partition share one. Numbers count up, and
/// start over after the largest.
pub type Ticket = u32;

/// What a classifier decides about a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The request goes to the queue.
    Admit(Admission),
    /// The request ends with an error.
    Reject(Rejection),
}

impl Verdict {
    /// The request goes to the queue as it is.
    #[must_use]
    pub fn admit() -> Self {
        Self::Admit(Admission::default())
    }

    /// The request ends with an error of that class; `diagnostic` is for the operator's log.
    #[must_use]
    pub fn reject(class: ErrorClass, diagnostic: impl Into<String>) -> Self {
        Self::Reject(Rejection { class, public_message: None, diagnostic: diagnostic.into() })
    }
}

impl From<Admission> for Verdict {
    fn from(admission: Admission) -> Self {
        Self::Admit(admission)
    }
}

impl From<Rejection> for Verdict {
    fn from(rejection: Rejection) -> Self {
        Self::Reject(rejection)
    }
}

/// How a request enters the queue. A missing field leaves the host's own value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Admission {
    /// The policy class: an explicit class or a family.
    pub policy_class: Option<String>,
    /// When the request must have left the queue, on the clock of `request.now-ms`, in milliseconds.
    pub due_ms: Option<f64>,
    /// The cost that the queue charges, in tokens, above 0.
    pub scheduling_cost_tokens: Option<u32>,
    /// What becomes of the soft affinity target. A request with a hard pin keeps its pin, whatever stands here.
    pub target: TargetChange,
}

/// What becomes of a request's soft affinity target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetChange {
    /// It stays as it is.
    #[default]
    Keep,
    /// The request has none.
    Clear,
    /// It is this worker, by its number.
    Set(u32),
}

/// Why a request ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// What kind of error the client sees.
    pub class: ErrorClass,
    /// A sentence for the client; where missing, the class's own.
    pub public_message: Option<String>,
    /// A sentence for the operator's log.
    pub diagnostic: String,
}

macro_rules! error_classes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// The kinds of errors that a classifier may answer. (Dynamo: `ErrorClass`.)
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorClass { $($(#[$doc])* $variant,)* }

        impl ErrorClass {
            /// Every class, in the contract's order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name in the contract.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

error_classes! {
    /// The request is malformed.
    InvalidRequest = "invalid-request",
    /// The caller is unknown.
    Unauthenticated = "unauthenticated",
    /// The caller may not do this.
    PermissionDenied = "permission-denied",
    /// What the request names does not exist.
    NotFound = "not-found",
    /// The request conflicts with another.
    Conflict = "conflict",
    /// The request is too large.
    PayloadTooLarge = "payload-too-large",
    /// The request's media type is not supported.
    UnsupportedMedia = "unsupported-media",
    /// The caller's own limit is reached.
    RateLimited = "rate-limited",
    /// The system's capacity is exhausted.
    CapacityExhausted = "capacity-exhausted",
    /// The service is not available.
    Unavailable = "unavailable",
    /// A worker answered what it should not.
    BackendProtocol = "backend-protocol",
    /// The request's time is up.
    DeadlineExceeded = "deadline-exceeded",
    /// The request asks for what does not exist yet.
    NotImplemented = "not-implemented",
    /// Anything else.
    Internal = "internal",
    /// The client has gone; nothing is delivered.
    Cancelled = "cancelled",
}

/// One registered data-parallel rank, as a classifier sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassifierWorker {
    /// The number that stands for (worker id, data-parallel rank) while that worker lives.
    pub number: u32,
    /// The data-parallel rank.
    pub rank: u32,
    /// KV blocks in all; none where the worker does not tell.
    pub total_kv_blocks: Option<u32>,
}

/// What happened to a classified request, or to the workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A worker was chosen and booked.
    Sent {
        /// The request.
        ticket: Ticket,
        /// The worker's number.
        worker: u32,
    },
    /// The worker answers.
    Responding {
        /// The request.
        ticket: Ticket,
        /// The worker's number.
        worker: u32,
    },
    /// The request is served. A terminal event: the ticket's last.
    Completed {
        /// The request.
        ticket: Ticket,
        /// The worker's number.
        worker: u32,
        /// Prompt and generated tokens, where the host knows them.
        context_tokens: Option<u32>,
    },
    /// The request failed, was rejected or was cancelled. A terminal event: the ticket's last.
    Aborted {
        /// The request.
        ticket: Ticket,
        /// The last worker's number, where there was one.
        worker: Option<u32>,
        /// Why, where the host knows.
        error: Option<String>,
    },
    /// The registered ranks or their capacity changed. These are all of them, sorted by (worker id, rank). It comes
    /// first of all events.
    Workers(Vec<ClassifierWorker>),
}

impl Event {
    /// The ticket that this event ends, where it is a terminal one.
    #[must_use]
    pub const fn ended(&self) -> Option<Ticket> {
        match self {
            Self::Completed { ticket, .. } | Self::Aborted { ticket, .. } => Some(*ticket),
            Self::Sent { .. } | Self::Responding { .. } | Self::Workers(_) => None,
        }
    }
}

/// The prompt and generated tokens of a live request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The request.
    pub ticket: Ticket,
    /// Its tokens: never less than before.
    pub context_tokens: u32,
}

/// The end of a deferral.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolution {
    /// A request that `classify` deferred and nothing has resolved since.
    pub ticket: Ticket,
    /// What becomes of it.
    pub verdict: Verdict,
}
