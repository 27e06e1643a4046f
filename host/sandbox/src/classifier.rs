//! A guest as a classifier: its three functions, what each may use, and what the host checks of its answers.
//!
//! A classifier remembers which requests it deferred. So a verdict that the host refuses is a fault of its own request
//! where `classify` gave it, but ends the guest where it resolved a deferral: the guest believes that request gone.

use pointsman_contract::{Event, Progress, Resolution, Ticket, Verdict};
use wasmtime::Store;
use wasmtime::component::Instance;

use crate::classifier_records::{ProgressRecord, ResolutionRecord, VerdictRecord};
use crate::function::{ClassifyParams, EventParams, Function, Mismatch, TickParams};
use crate::guest::{Args, Budget, GuestSlot, State};
use crate::limits::Limits;
use crate::outcome::{Fault, Outcome};
use crate::policy::ClassifierExports;

type Classify = Function<ClassifyParams, Option<VerdictRecord>>;
type OnEvent = Function<EventParams, Vec<ResolutionRecord>>;
type OnTick = Function<TickParams, Vec<ResolutionRecord>>;

/// The classifier's functions of one guest, resolved; none where the policy is no classifier.
pub(crate) struct ClassifierFuncs {
    classify: Option<Classify>,
    on_event: Option<OnEvent>,
    on_tick: Option<OnTick>,
}

impl ClassifierFuncs {
    pub(crate) fn new(
        store: &mut Store<State>,
        instance: &Instance,
        exports: Option<&ClassifierExports>,
    ) -> Result<Self, Mismatch> {
        let Some(exports) = exports else { return Ok(Self { classify: None, on_event: None, on_tick: None }) };
        Ok(Self {
            classify: Some(Function::find(store, instance, &exports.classify, "classify")?),
            on_event: Some(Function::find(store, instance, &exports.on_event, "on-event")?),
            on_tick: Some(Function::find(store, instance, &exports.on_tick, "on-tick")?),
        })
    }
}

/// What a call other than a tick may use.
const fn budget(limits: &Limits, fuel: u64, fuel_name: &'static str) -> Budget {
    Budget { fuel, fuel_name, deadline_us: limits.deadline_us, deadline_name: "deadline_us" }
}

impl GuestSlot {
    /// Asks the classifier about one request: its verdict, none where it defers the request. Of `args` the numbers and
    /// the texts are sent.
    ///
    /// # Errors
    ///
    /// A [`Fault`]; also where a due time is not finite. Whether the class is known and the cost above 0 is the
    /// caller's to check.
    pub fn classify(&mut self, ticket: Ticket, args: &Args) -> Result<Option<Verdict>, Fault> {
        let span = tracing::trace_span!("classify", instance = &*self.setup().instance, ticket);
        let _entered = span.entered();
        let limits = &self.setup().limits;
        let budget = budget(limits, limits.classify_fuel, "classify_fuel");
        let params = (ticket, args.numbers.as_slice(), args.texts.as_deref());
        let answer = self.enter("classify", budget, |funcs| funcs.classifier.classify.as_ref(), params)?;
        answer.map(|verdict| checked("classify", ticket, verdict.into())).transpose()
    }

    /// Tells the classifier what happened: the deferred requests that it resolves. Whether they are deferred is the
    /// caller's to check.
    ///
    /// # Errors
    ///
    /// A [`Fault`]; also where a due time is not finite, and then the guest is dropped.
    pub fn on_event(&mut self, event: &Event, now_ms: f64) -> Result<Vec<Resolution>, Fault> {
        let span = tracing::trace_span!("on-event", instance = &*self.setup().instance);
        let _entered = span.entered();
        let limits = &self.setup().limits;
        let budget = budget(limits, limits.event_fuel, "event_fuel");
        let answer =
            self.enter("on-event", budget, |funcs| funcs.classifier.on_event.as_ref(), (event.into(), now_ms))?;
        self.resolutions("on-event", answer)
    }

    /// Gives the classifier its tick, with the live requests whose tokens grew since the last one: the deferred requests
    /// that it resolves.
    ///
    /// # Errors
    ///
    /// As [`Self::on_event`].
    pub fn on_tick(&mut self, now_ms: f64, progress: &[Progress]) -> Result<Vec<Resolution>, Fault> {
        let span = tracing::trace_span!("on-tick", instance = &*self.setup().instance);
        let _entered = span.entered();
        let limits = &self.setup().limits;
        let budget = Budget {
            deadline_us: limits.tick_deadline_us,
            deadline_name: "tick_deadline_us",
            ..budget(limits, limits.tick_fuel, "tick_fuel")
        };
        let progress: Vec<ProgressRecord> = progress.iter().map(Into::into).collect();
        let answer =
            self.enter("on-tick", budget, |funcs| funcs.classifier.on_tick.as_ref(), (now_ms, progress.as_slice()))?;
        self.resolutions("on-tick", answer)
    }

    fn resolutions(&mut self, function: &str, answer: Vec<ResolutionRecord>) -> Result<Vec<Resolution>, Fault> {
        let resolutions = answer.into_iter().map(|record| {
            let (ticket, verdict) = record.into_parts();
            checked(function, ticket, verdict).map(|verdict| Resolution { ticket, verdict })
        });
        resolutions.collect::<Result<_, _>>().inspect_err(|_| self.drop_guest())
    }
}

/// The verdict, if the host can read it.
fn checked(function: &str, ticket: Ticket, verdict: Verdict) -> Result<Verdict, Fault> {
    match &verdict {
        Verdict::Admit(admission) if admission.due_ms.is_some_and(|due| !due.is_finite()) => {
            let message = format!("{function} gave ticket {ticket} a due time that is not finite");
            Err(Fault::new(Outcome::BadAnswer, message))
        }
        _ => Ok(verdict),
    }
}
