//! The classifier of one partition: a guest, told what it declared.

use std::sync::Arc;
use std::time::Duration;

use pointsman_admission::{Classifier, ClassifierFault, ClassifyRequest, WorkerKey};
use pointsman_contract::{ClassifierWorker, Event, Fact, Progress, Resolution, Text, Ticket, Verdict, missing};
use pointsman_sandbox::{Args, Fault, Outcome};

use crate::guest::Guest;
use crate::member::Guard;
use crate::vocabulary::{Plan, TextId, Vocabulary};

/// The request classifier of one partition: a sandboxed guest, a policy compiled in, or none, which admits every request
/// as it came.
pub struct HostedClassifier(Option<Hosted>);

struct Hosted {
    guest: Guest,
    guard: Guard,
    plan: Plan,
    tick: Option<Duration>,
    workers: Workers,
    vocabulary: Arc<Vocabulary>,
    args: Args,
}

/// What a classifier may know of the workers beside its events.
pub(crate) struct Workers {
    pub(crate) block_size: u32,
    /// The number that stands for a row.
    pub(crate) number_of: Box<dyn Fn(WorkerKey) -> Option<u32> + Send>,
}

impl HostedClassifier {
    /// No classifier: every request is admitted as it came.
    #[must_use]
    pub const fn none() -> Self {
        Self(None)
    }

    pub(crate) fn new(
        guest: Guest,
        guard: Guard,
        workers: Workers,
        vocabulary: Arc<Vocabulary>,
    ) -> Result<Self, String> {
        let (inputs, stages) = (guest.inputs(), guest.stages());
        if !stages.classify {
            return Err("the policy exports no request classifier; name it under `worker_selection`".to_owned());
        }
        let plan = vocabulary.classifier_plan(inputs, stages)?;
        let tick = inputs.tick_ms.map(|tick| Duration::from_millis(tick.into()));
        Ok(Self(Some(Hosted { guest, guard, plan, tick, workers, vocabulary, args: Args::default() })))
    }

    /// Has it classify a made-up request. What it answers, an error of its own included, is its own affair.
    pub(crate) fn smoke(mut self) -> Result<(), String> {
        let Some(hosted) = &mut self.0 else { return Ok(()) };
        let request = ClassifyRequest { request_id: "smoke".to_owned(), input_tokens: 1_024, ..Default::default() };
        hosted.fill(&request, 0.0);
        let workers = (0..2).map(|number| ClassifierWorker { number, rank: 0, total_kv_blocks: Some(4_096) });
        // As a host does: the workers come first.
        let told = hosted.guest.on_event(&Event::Workers(workers.collect()), 0.0);
        let (place, answer) = match told {
            Ok(_) => ("at stage classify", hosted.guest.classify(0, &hosted.args).map(drop)),
            Err(fault) => ("at on-event", Err(fault)),
        };
        match answer {
            Err(Fault { outcome, message }) if outcome != Outcome::PolicyError => Err(format!(
                "it fails its first calls, with made-up workers and a made-up request, {place} ({outcome}): {message}"
            )),
            _ => Ok(()),
        }
    }
}

impl Hosted {
    fn fill(&mut self, request: &ClassifyRequest, now_ms: f64) {
        let Self { plan, workers, vocabulary, args, .. } = self;
        args.numbers.clear();
        args.numbers.extend(plan.facts.iter().map(|fact| value(*fact, request, workers, now_ms)));
        args.texts = (!plan.texts.is_empty())
            .then(|| plan.texts.iter().map(|text| self::text(*text, request, vocabulary).map(str::to_owned)).collect());
    }

    /// A guest that has gone took with it what it was told. One that was not called missed something, and starts anew.
    fn fault(&mut self, fault: Fault) -> ClassifierFault {
        let Fault { outcome, message } = fault;
        if matches!(outcome, Outcome::Quarantined | Outcome::OverQuota) {
            self.guest.forget();
        }
        ClassifierFault { message: format!("{outcome}: {message}"), rebuilt: !self.guest.is_live() }
    }
}

fn value(fact: Fact, request: &ClassifyRequest, workers: &Workers, now_ms: f64) -> f64 {
    let flag = |set: bool| f64::from(u8::from(set));
    let session = request.session.as_ref();
    match fact {
        Fact::NowMs => now_ms,
        Fact::PromptTokens => f64::from(request.input_tokens),
        Fact::Blocks => f64::from(request.input_tokens.div_ceil(workers.block_size)),
        Fact::Pinned => flag(request.pin.is_some()),
        Fact::SessionFinal => session.and_then(|session| session.last).map_or(missing(), flag),
        Fact::SessionTrigger => session.and_then(|session| session.trigger).map_or(missing(), |it| it.as_f64()),
        Fact::IngressMs => request.ingress_ms,
        Fact::ContextTokens => f64::from(request.context_tokens),
        Fact::DueMs => request.due_ms.unwrap_or(missing()),
        Fact::SchedulingCostTokens => f64::from(request.scheduling_cost_tokens),
        Fact::PinnedWorker => request.pin.and_then(&workers.number_of).map_or(missing(), f64::from),
        // For worker selection: no plan of a classifier has them.
        Fact::TracksPrefillTokens
        | Fact::ExpectedOutputTokens
        | Fact::PriorityJump
        | Fact::StrictPriority
        | Fact::RouterTemperature
        | Fact::AffinityFirst
        | Fact::AffinityRows
        | Fact::HasTierMatches => fact.absent(),
    }
}

fn text<'a>(text: TextId, request: &'a ClassifyRequest, vocabulary: &Vocabulary) -> Option<&'a str> {
    match text {
        TextId::Known(Text::RequestId) => Some(&request.request_id),
        TextId::Known(Text::RequestPolicyClass) => request.policy_class.as_deref(),
        TextId::Known(Text::SessionId) => request.session.as_ref().map(|session| &*session.id),
        TextId::Known(Text::SessionParentId) => request.session.as_ref()?.parent_id.as_deref(),
        TextId::Header(index) => {
            let name = vocabulary.headers.get(index)?;
            request.headers.iter().find(|(header, _)| header == name).map(|(_, value)| &**value)
        }
    }
}

impl Classifier for HostedClassifier {
    fn classify(
        &mut self,
        ticket: Ticket,
        request: &ClassifyRequest,
        now_ms: f64,
    ) -> Result<Option<Verdict>, ClassifierFault> {
        let Some(hosted) = &mut self.0 else { return Ok(Some(Verdict::Admit(Default::default()))) };
        hosted.fill(request, now_ms);
        let Hosted { guest, guard, args, .. } = hosted;
        guard.call(guest, now_ms, |guest| guest.classify(ticket, args)).map_err(|fault| hosted.fault(fault))
    }

    fn on_event(&mut self, event: &Event, now_ms: f64) -> Result<Vec<Resolution>, ClassifierFault> {
        let Some(hosted) = &mut self.0 else { return Ok(Vec::new()) };
        let Hosted { guest, guard, .. } = hosted;
        guard.call(guest, now_ms, |guest| guest.on_event(event, now_ms)).map_err(|fault| hosted.fault(fault))
    }

    fn on_tick(&mut self, now_ms: f64, progress: &[Progress]) -> Result<Vec<Resolution>, ClassifierFault> {
        let Some(hosted) = &mut self.0 else { return Ok(Vec::new()) };
        let Hosted { guest, guard, .. } = hosted;
        guard.call(guest, now_ms, |guest| guest.on_tick(now_ms, progress)).map_err(|fault| hosted.fault(fault))
    }

    fn tick_interval(&self) -> Option<Duration> {
        self.0.as_ref()?.tick
    }
}
