//! What a class may hold, and why a request does not wait.

use std::fmt;

use super::entry::RequestTokens;
use crate::PolicyClass;

/// What waits in a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Requests.
    pub requests: u64,
    /// Their prompt tokens.
    pub prompt_tokens: u64,
    /// Their cached prompt tokens.
    pub cached_tokens: u64,
}

impl Usage {
    pub(super) fn of(tokens: RequestTokens) -> Self {
        Self { requests: 1, prompt_tokens: tokens.prompt(), cached_tokens: tokens.cached() }
    }

    pub(super) fn add(&mut self, more: Self) {
        self.requests = self.requests.saturating_add(more.requests);
        self.prompt_tokens = self.prompt_tokens.saturating_add(more.prompt_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(more.cached_tokens);
    }

    pub(super) fn subtract(&mut self, less: Self) {
        self.requests = self.requests.saturating_sub(less.requests);
        self.prompt_tokens = self.prompt_tokens.saturating_sub(less.prompt_tokens);
        self.cached_tokens = self.cached_tokens.saturating_sub(less.cached_tokens);
    }

    /// The first limit of a class that so much reaches. The request that goes past a limit is still taken: what counts
    /// is what waits before it.
    pub(super) fn reached(&self, class: &PolicyClass, workers: u64) -> Option<QueueRejection> {
        let limits = &class.limits;
        let all = [
            (LimitKind::Requests, self.requests, limits.requests),
            (LimitKind::PromptTokens, self.prompt_tokens, limits.prompt_tokens),
            (LimitKind::CachedTokens, self.cached_tokens, limits.cached_tokens),
        ];
        all.into_iter().find_map(|(kind, current, per_worker)| {
            let limit = per_worker?.saturating_mul(workers);
            (current >= limit).then(|| QueueRejection { policy_class: class.name.clone(), kind, current, limit })
        })
    }
}

/// Which limit of a class is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimitKind {
    /// `request_queue_limit_per_worker`.
    Requests,
    /// `raw_isl_token_queue_limit_per_worker`.
    PromptTokens,
    /// `cached_token_queue_limit_per_worker`.
    CachedTokens,
}

impl LimitKind {
    /// Its name in an error's details, Dynamo's: `requests`, `raw_isl_tokens` or `cached_tokens`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::PromptTokens => "raw_isl_tokens",
            Self::CachedTokens => "cached_tokens",
        }
    }
}

impl fmt::Display for LimitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A class is full.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "policy class `{policy_class}` is full: {kind} waiting {current}, limit {limit}; try again later or raise the limit"
)]
pub struct QueueRejection {
    /// The class.
    pub policy_class: String,
    /// Which of its limits.
    pub kind: LimitKind,
    /// What waits.
    pub current: u64,
    /// What may wait, by the number of workers.
    pub limit: u64,
}

/// Why a request does not wait.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefusalReason {
    /// Its class is full.
    #[error(transparent)]
    QueueRejected(#[from] QueueRejection),
    /// It is past its due time.
    #[error("the request's due time has passed; give it a later one")]
    DeadlineExceeded,
}

/// A request that does not wait, given back.
#[derive(Clone, Debug)]
pub struct Refused<T> {
    /// Why.
    pub reason: RefusalReason,
    /// What its owner keeps with it.
    pub payload: T,
}
