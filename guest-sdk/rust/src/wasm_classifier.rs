//! The component as a classifier: the contract's records both ways.

use pointsman_contract as contract;

use crate::layout::{Table, Texts};
use crate::wasm::Component;
use crate::wasm::classifier::exports::pointsman::policy::request_classifier as exported;
use crate::wasm::classifier::pointsman::policy::classification as records;

impl<C: Component> exported::Guest for C {
    fn classify(
        ticket: records::Ticket,
        numbers: Vec<f64>,
        texts: Option<Vec<Option<String>>>,
    ) -> Result<Option<records::Verdict>, String> {
        let texts = Texts::Owned(texts.as_deref().unwrap_or_default());
        let table = Table { rows: 0, numbers: &numbers, workers: &[], texts };
        let answer = C::with_slot(|slot| slot.with(|guest| guest.classify(ticket, table)))?;
        Ok(answer.map(verdict))
    }

    fn on_event(happened: records::Event, now_ms: f64) -> Result<Vec<records::Resolution>, String> {
        let happened = event(happened);
        C::with_slot(|slot| slot.with(|guest| guest.on_event(&happened, now_ms))).map(resolutions)
    }

    fn on_tick(now_ms: f64, progress: Vec<records::Progress>) -> Result<Vec<records::Resolution>, String> {
        let progress: Vec<_> = progress
            .into_iter()
            .map(|records::Progress { ticket, context_tokens }| contract::Progress { ticket, context_tokens })
            .collect();
        C::with_slot(|slot| slot.with(|guest| guest.on_tick(now_ms, &progress))).map(resolutions)
    }
}

fn resolutions(resolutions: Vec<contract::Resolution>) -> Vec<records::Resolution> {
    let record =
        |contract::Resolution { ticket, verdict: answer }| records::Resolution { ticket, verdict: verdict(answer) };
    resolutions.into_iter().map(record).collect()
}

fn verdict(verdict: contract::Verdict) -> records::Verdict {
    match verdict {
        contract::Verdict::Admit(admission) => records::Verdict::Admit(records::Admission {
            policy_class: admission.policy_class,
            due_ms: admission.due_ms,
            scheduling_cost_tokens: admission.scheduling_cost_tokens,
            target: match admission.target {
                contract::TargetChange::Keep => records::TargetChange::Keep,
                contract::TargetChange::Clear => records::TargetChange::Clear,
                contract::TargetChange::Set(worker) => records::TargetChange::Set(worker),
            },
        }),
        contract::Verdict::Reject(rejection) => records::Verdict::Reject(records::Rejection {
            class: class(rejection.class),
            public_message: rejection.public_message,
            diagnostic: rejection.diagnostic,
        }),
    }
}

fn class(class: contract::ErrorClass) -> records::ErrorClass {
    use contract::ErrorClass;
    match class {
        ErrorClass::InvalidRequest => records::ErrorClass::InvalidRequest,
        ErrorClass::Unauthenticated => records::ErrorClass::Unauthenticated,
        ErrorClass::PermissionDenied => records::ErrorClass::PermissionDenied,
        ErrorClass::NotFound => records::ErrorClass::NotFound,
        ErrorClass::Conflict => records::ErrorClass::Conflict,
        ErrorClass::PayloadTooLarge => records::ErrorClass::PayloadTooLarge,
        ErrorClass::UnsupportedMedia => records::ErrorClass::UnsupportedMedia,
        ErrorClass::RateLimited => records::ErrorClass::RateLimited,
        ErrorClass::CapacityExhausted => records::ErrorClass::CapacityExhausted,
        ErrorClass::Unavailable => records::ErrorClass::Unavailable,
        ErrorClass::BackendProtocol => records::ErrorClass::BackendProtocol,
        ErrorClass::DeadlineExceeded => records::ErrorClass::DeadlineExceeded,
        ErrorClass::NotImplemented => records::ErrorClass::NotImplemented,
        ErrorClass::Internal => records::ErrorClass::Internal,
        ErrorClass::Cancelled => records::ErrorClass::Cancelled,
    }
}

fn event(event: records::Event) -> contract::Event {
    match event {
        records::Event::Sent(records::Placement { ticket, worker }) => contract::Event::Sent { ticket, worker },
        records::Event::Responding(records::Placement { ticket, worker }) => {
            contract::Event::Responding { ticket, worker }
        }
        records::Event::Completed(records::Completion { ticket, worker, context_tokens }) => {
            contract::Event::Completed { ticket, worker, context_tokens }
        }
        records::Event::Aborted(records::Abortion { ticket, worker, error }) => {
            contract::Event::Aborted { ticket, worker, error }
        }
        records::Event::Workers(workers) => contract::Event::Workers(
            workers
                .into_iter()
                .map(|records::ClassifierWorker { number, rank, total_kv_blocks }| contract::ClassifierWorker {
                    number,
                    rank,
                    total_kv_blocks,
                })
                .collect(),
        ),
    }
}
