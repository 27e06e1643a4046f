//! What decides whether, when and how a request enters the queue.

use std::time::Duration;

use pointsman_contract::{Admission, Event, Progress, Resolution, Ticket, Trigger, Verdict};

use crate::WorkerKey;

/// A request classifier, as the host calls it: one call at a time, in the order in which things happened. (Dynamo:
/// `RequestClassifier`.)
///
/// The methods left out make a classifier that admits every request as it came.
pub trait Classifier {
    /// Decides about one request. None defers it, until a later call resolves its ticket.
    ///
    /// # Errors
    /// The classifier has no usable answer.
    fn classify(
        &mut self,
        ticket: Ticket,
        request: &ClassifyRequest,
        now_ms: f64,
    ) -> Result<Option<Verdict>, ClassifierFault> {
        let _ = (ticket, request, now_ms);
        Ok(Some(Verdict::Admit(Admission::default())))
    }

    /// Learns of one event, and may end deferrals.
    ///
    /// # Errors
    /// The classifier has no usable answer. The event counts as delivered.
    fn on_event(&mut self, event: &Event, now_ms: f64) -> Result<Vec<Resolution>, ClassifierFault> {
        let _ = (event, now_ms);
        Ok(Vec::new())
    }

    /// Learns which requests have grown since the last tick, and may end deferrals.
    ///
    /// # Errors
    /// The classifier has no usable answer.
    fn on_tick(&mut self, now_ms: f64, progress: &[Progress]) -> Result<Vec<Resolution>, ClassifierFault> {
        let _ = (now_ms, progress);
        Ok(Vec::new())
    }

    /// How often it wants a tick, at most once a millisecond; none for never.
    fn tick_interval(&self) -> Option<Duration> {
        None
    }
}

/// A call of a classifier that brought no usable answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassifierFault {
    /// What happened, for the operator's log.
    pub message: String,
    /// Whether the classifier has been rebuilt and knows nothing of what it was told before.
    pub rebuilt: bool,
}

/// What a classifier may read of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassifyRequest {
    /// The caller's id of the request. The lifecycle fills it in.
    pub request_id: String,
    /// The policy class that the caller asks for.
    pub policy_class: Option<String>,
    /// Tokens of the prompt.
    pub input_tokens: u32,
    /// The most prompt and generated tokens seen so far. The lifecycle fills it in; at least `input_tokens`.
    pub context_tokens: u32,
    /// When the request came to the router, in milliseconds since the host's start.
    pub ingress_ms: f64,
    /// When the request must have left the queue, on the same clock, where the caller says so.
    pub due_ms: Option<f64>,
    /// The cost that the queue would charge, in tokens: max(1, input - cached).
    pub scheduling_cost_tokens: u32,
    /// The session that the request belongs to.
    pub session: Option<ClassifySession>,
    /// The one row that may serve the request.
    pub pin: Option<WorkerKey>,
    /// Its headers, by lower-case name. A classifier reads those that the operator grants.
    pub headers: Vec<(String, String)>,
}

/// The session of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassifySession {
    /// Its id.
    pub id: String,
    /// The session that started it.
    pub parent_id: Option<String>,
    /// Whether this is its last request.
    pub last: Option<bool>,
    /// What set the request off.
    pub trigger: Option<Trigger>,
}
