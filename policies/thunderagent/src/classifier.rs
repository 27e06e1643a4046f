//! The classifier: requests of a session whose program has no room wait.

use pointsman_sdk::prelude::*;

use crate::ThunderAgent;
use crate::programs::{Arrival, Programs};

/// The classifier's parameters. They mean nothing to the worker selection.
#[derive(Parameters)]
pub struct ThunderAgentParameters {
    /// Share of a rank's capacity above which programs are paused.
    #[parameter(default = 0.95, min = 0.0, max = 1.0)]
    pause_threshold: f64,
    /// Share of a rank's capacity down to which they are paused.
    #[parameter(default = 0.8, min = 0.0, max = 1.0)]
    pause_target: f64,
    /// How far below the pause threshold a rank must be for programs to be resumed on it.
    #[parameter(default = 0.1, min = 0.0, max = 1.0)]
    resume_hysteresis: f64,
    /// How long a request may wait before its program is resumed anyway.
    #[parameter(default = 1800.0, above = 0.0)]
    resume_timeout_seconds: f64,
    /// How long a program without a request is remembered.
    #[parameter(default = 1800.0, above = 0.0)]
    session_retention_seconds: f64,
    /// How often programs are paused and resumed.
    #[parameter(default = 5.0, above = 0.0)]
    scheduler_interval_seconds: f64,
    /// What a token of a program that waits for its next request weighs.
    #[parameter(default = 1.0, above = 0.0)]
    acting_token_weight: f64,
    /// In how long the tokens of such a program count half, where one is resumed anyway.
    #[parameter(default = 1.0, above = 0.0)]
    acting_decay_tau_seconds: f64,
    /// Tokens that each program is charged besides its own.
    #[parameter(default = 100)]
    buffer_per_program: u64,
    /// The most requests, and the most programs, that are tracked.
    #[parameter(default = 10000, min = 1)]
    max_tracked_requests: u64,
}

/// The parameters, checked, with times in milliseconds.
pub(crate) struct Settings {
    pub(crate) pause_threshold: f64,
    pub(crate) pause_target: f64,
    pub(crate) resume_hysteresis: f64,
    pub(crate) resume_timeout_ms: f64,
    pub(crate) session_retention_ms: f64,
    pub(crate) tick_ms: u32,
    pub(crate) acting_token_weight: f64,
    pub(crate) acting_decay_tau_ms: f64,
    pub(crate) buffer: u64,
    pub(crate) max_tracked_requests: u64,
}

impl TryFrom<ThunderAgentParameters> for Settings {
    type Error = PolicyError;

    fn try_from(parameters: ThunderAgentParameters) -> Result<Self, PolicyError> {
        let ThunderAgentParameters { pause_threshold, pause_target, resume_hysteresis, .. } = parameters;
        let within =
            |value: f64, name: &str| pointsman_sdk::require(value <= pause_threshold, name, "at most pause_threshold");
        within(pause_target, "pause_target")?;
        within(resume_hysteresis, "resume_hysteresis")?;
        // The contract's shortest interval, where the configured one is shorter; `as` saturates.
        let tick_ms = (parameters.scheduler_interval_seconds * 1000.0).round().max(10.0) as u32;
        Ok(Self {
            pause_threshold,
            pause_target,
            resume_hysteresis,
            resume_timeout_ms: parameters.resume_timeout_seconds * 1000.0,
            session_retention_ms: parameters.session_retention_seconds * 1000.0,
            tick_ms,
            acting_token_weight: parameters.acting_token_weight,
            acting_decay_tau_ms: parameters.acting_decay_tau_seconds * 1000.0,
            buffer: parameters.buffer_per_program,
            max_tracked_requests: parameters.max_tracked_requests,
        })
    }
}

/// Admits a request, to the rank of its program where there is one.
fn admit(rank: Option<u32>) -> Verdict {
    Admission { target: rank.map_or(TargetChange::Keep, TargetChange::Set), ..Admission::default() }.into()
}

fn released(programs: &mut Programs) -> Vec<Resolution> {
    let released = programs.take_released().into_iter();
    released.map(|(ticket, rank)| Resolution { ticket, verdict: admit(rank) }).collect()
}

impl Classifier for ThunderAgent {
    fn reads(&self) -> Reads {
        let facts = [Fact::NowMs, Fact::PromptTokens, Fact::ContextTokens, Fact::PinnedWorker, Fact::SessionFinal];
        Reads::from(facts) | [Text::SessionId, Text::RequestId]
    }

    fn tick_ms(&self) -> Option<u32> {
        Some(self.programs.settings.tick_ms)
    }

    fn classify(&mut self, request: &ClassifyRequest<'_>) -> Result<Option<Verdict>, PolicyError> {
        let Some(session) = request.session_id()? else { return Ok(Some(Verdict::admit())) };
        let reject = |diagnostic| Ok(Some(Verdict::reject(ErrorClass::Internal, diagnostic)));
        let Some(id) = request.request_id()? else {
            return reject("a request of a session needs a request id".to_owned());
        };
        // Whole numbers; `as` saturates.
        let input_tokens = request.prompt_tokens()? as u64;
        let arrival = Arrival {
            id,
            session,
            input_tokens,
            context_tokens: input_tokens.max(request.context_tokens()? as u64),
            last: request.session_final()? == Some(true),
            pin: request.pinned_worker()?,
        };
        if let Err(diagnostic) = self.programs.register(request.ticket(), &arrival, request.now_ms()?) {
            return reject(diagnostic);
        }
        Ok(released(&mut self.programs).pop().map(|resolution| resolution.verdict))
    }

    fn on_event(&mut self, event: &Event, now_ms: f64) -> Result<Vec<Resolution>, PolicyError> {
        let programs = &mut self.programs;
        match event {
            Event::Sent { ticket, worker } => programs.sent(*ticket, *worker),
            Event::Completed { ticket, context_tokens, .. } => {
                programs.finish(*ticket, Some(*context_tokens), now_ms);
            }
            Event::Aborted { ticket, .. } => programs.finish(*ticket, None, now_ms),
            Event::Responding { .. } => {}
            Event::Workers(workers) => {
                programs.ranks.set(workers, self.block_size);
                programs.leave_dead_ranks();
            }
        }
        Ok(released(programs))
    }

    fn on_tick(&mut self, now_ms: f64, progress: &[Progress]) -> Result<Vec<Resolution>, PolicyError> {
        self.programs.tick(now_ms, progress);
        Ok(released(&mut self.programs))
    }
}
