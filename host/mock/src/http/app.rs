//! What all requests share.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::http::HeaderMap;
use pointsman_signals::PromptReader;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;

use super::error::ApiError;
use super::inference::Received;
use crate::config::MockConfig;
use crate::driver::{Command, Rank};
use crate::failures::Failures;
use crate::scheduler::{Job, Output};

#[derive(Debug)]
pub(crate) struct App {
    config: MockConfig,
    reader: PromptReader,
    ranks: Vec<Rank>,
    failures: Mutex<Failures>,
    refuse: watch::Sender<bool>,
    received: Mutex<VecDeque<Received>>,
    requests: AtomicU64,
}

/// Nothing that holds one of these locks can panic half-way through a change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl App {
    pub(crate) fn new(config: MockConfig, reader: PromptReader, ranks: Vec<Rank>) -> Self {
        let failures = config.failures;
        Self {
            config,
            reader,
            ranks,
            failures: Mutex::new(failures),
            refuse: watch::Sender::new(failures.refuse),
            received: Mutex::default(),
            requests: AtomicU64::new(0),
        }
    }

    pub(crate) fn config(&self) -> &MockConfig {
        &self.config
    }

    pub(crate) fn reader(&self) -> &PromptReader {
        &self.reader
    }

    pub(crate) fn ranks(&self) -> &[Rank] {
        &self.ranks
    }

    pub(crate) fn failures(&self) -> Failures {
        *lock(&self.failures)
    }

    /// What befalls the next inference request.
    pub(crate) fn next_failures(&self) -> Failures {
        lock(&self.failures).take()
    }

    pub(crate) fn set_failures(&self, failures: Failures) {
        *lock(&self.failures) = failures;
        self.refuse.send_replace(failures.refuse);
    }

    /// Whether connections are refused, as it changes.
    pub(crate) fn refuse(&self) -> watch::Receiver<bool> {
        self.refuse.subscribe()
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        lock(&self.received).iter().cloned().collect()
    }

    pub(crate) fn keep(&self, request: Received) {
        let mut received = lock(&self.received);
        received.push_back(request);
        while received.len() > self.config.keep_requests {
            received.pop_front();
        }
    }

    /// Has every rank forget its idle blocks.
    pub(crate) fn clear_cache(&self) {
        for rank in &self.ranks {
            // A rank is there as long as the engine is.
            let _ = rank.commands.send(Command::ClearCache);
        }
    }

    /// A number that no request had before.
    pub(crate) fn request_number(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed)
    }

    /// The rank that the request names, or else the one with the fewest requests, with its number.
    pub(crate) fn rank(&self, headers: &HeaderMap) -> Result<(usize, &Rank), ApiError> {
        let Some(named) = headers.get("x-data-parallel-rank") else {
            let emptiest = self.ranks.iter().enumerate().min_by_key(|(_, rank)| rank.load());
            return emptiest.ok_or_else(ApiError::stopping);
        };
        let named = named.to_str().ok().and_then(|rank| rank.parse::<usize>().ok());
        named.and_then(|named| self.ranks.get(named).map(|rank| (named, rank))).ok_or_else(|| {
            let last = self.ranks.len() - 1;
            ApiError::invalid(format!("the header x-data-parallel-rank names no rank here; give one from 0 to {last}"))
        })
    }

    /// Hands a prompt to a rank, if it can ever be served.
    pub(crate) fn submit(
        &self,
        rank: &Rank,
        prompt: Vec<u32>,
        max_tokens: u32,
    ) -> Result<UnboundedReceiver<Output>, ApiError> {
        let length = prompt.len() as u64 + u64::from(max_tokens);
        let cache = self.config.total_kv_blocks.saturating_mul(u64::from(self.config.block_size));
        let room = cache.min(u64::from(self.config.max_model_len));
        if length > room {
            let prompt = prompt.len();
            return Err(ApiError::invalid(format!(
                "the prompt has {prompt} tokens and the answer may have {max_tokens}, but there is room for {room}; \
                 shorten the prompt or lower max_tokens"
            )));
        }
        let (outputs, receiver) = unbounded_channel();
        if rank.submit(Job { prompt, max_tokens, outputs }) { Ok(receiver) } else { Err(ApiError::stopping()) }
    }
}
