//! The records of `wit/policy.wit`, interface `classification`, as wasmtime reads and writes them.

use pointsman_contract::{
    Admission, ClassifierWorker, ErrorClass, Event, Progress, Rejection, TargetChange, Ticket, Verdict,
};
use wasmtime::component::{ComponentType, Lift, Lower};

use crate::text::sentence;

#[derive(Clone, Copy, ComponentType, Lift)]
#[component(variant)]
pub(crate) enum TargetChangeRecord {
    #[component(name = "keep")]
    Keep,
    #[component(name = "clear")]
    Clear,
    #[component(name = "set")]
    Set(u32),
}

#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct AdmissionRecord {
    #[component(name = "policy-class")]
    policy_class: Option<String>,
    #[component(name = "due-ms")]
    due_ms: Option<f64>,
    #[component(name = "scheduling-cost-tokens")]
    scheduling_cost_tokens: Option<u32>,
    #[component(name = "target")]
    target: TargetChangeRecord,
}

impl From<AdmissionRecord> for Admission {
    fn from(admission: AdmissionRecord) -> Self {
        let AdmissionRecord { policy_class, due_ms, scheduling_cost_tokens, target } = admission;
        Self {
            policy_class,
            due_ms,
            scheduling_cost_tokens,
            target: match target {
                TargetChangeRecord::Keep => TargetChange::Keep,
                TargetChangeRecord::Clear => TargetChange::Clear,
                TargetChangeRecord::Set(worker) => TargetChange::Set(worker),
            },
        }
    }
}

/// wasmtime's derive takes variants by name, so the contract's classes are named again here.
macro_rules! error_class_record {
    ($($name:literal => $class:ident,)*) => {
        #[derive(Clone, Copy, ComponentType, Lift)]
        #[component(enum)]
        #[repr(u8)]
        #[allow(dead_code, reason = "wasmtime constructs it")]
        pub(crate) enum ErrorClassRecord { $(#[component(name = $name)] $class,)* }

        impl From<ErrorClassRecord> for ErrorClass {
            fn from(class: ErrorClassRecord) -> Self {
                match class { $(ErrorClassRecord::$class => Self::$class,)* }
            }
        }
    };
}

error_class_record! {
    "invalid-request" => InvalidRequest,
    "unauthenticated" => Unauthenticated,
    "permission-denied" => PermissionDenied,
    "not-found" => NotFound,
    "conflict" => Conflict,
    "payload-too-large" => PayloadTooLarge,
    "unsupported-media" => UnsupportedMedia,
    "rate-limited" => RateLimited,
    "capacity-exhausted" => CapacityExhausted,
    "unavailable" => Unavailable,
    "backend-protocol" => BackendProtocol,
    "deadline-exceeded" => DeadlineExceeded,
    "not-implemented" => NotImplemented,
    "internal" => Internal,
    "cancelled" => Cancelled,
}

#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct RejectionRecord {
    #[component(name = "class")]
    class: ErrorClassRecord,
    #[component(name = "public-message")]
    public_message: Option<String>,
    #[component(name = "diagnostic")]
    diagnostic: String,
}

impl From<RejectionRecord> for Rejection {
    /// What is logged or sent as one line must be one.
    fn from(rejection: RejectionRecord) -> Self {
        Self {
            class: rejection.class.into(),
            public_message: rejection.public_message.as_deref().map(sentence),
            diagnostic: sentence(&rejection.diagnostic),
        }
    }
}

#[derive(ComponentType, Lift)]
#[component(variant)]
pub(crate) enum VerdictRecord {
    #[component(name = "admit")]
    Admit(AdmissionRecord),
    #[component(name = "reject")]
    Reject(RejectionRecord),
}

impl From<VerdictRecord> for Verdict {
    fn from(verdict: VerdictRecord) -> Self {
        match verdict {
            VerdictRecord::Admit(admission) => Self::Admit(admission.into()),
            VerdictRecord::Reject(rejection) => Self::Reject(rejection.into()),
        }
    }
}

#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct ResolutionRecord {
    #[component(name = "ticket")]
    ticket: Ticket,
    #[component(name = "verdict")]
    verdict: VerdictRecord,
}

impl ResolutionRecord {
    pub(crate) fn into_parts(self) -> (Ticket, Verdict) {
        (self.ticket, self.verdict.into())
    }
}

#[derive(Clone, Copy, ComponentType, Lower)]
#[component(record)]
pub(crate) struct WorkerRecord {
    #[component(name = "number")]
    number: u32,
    #[component(name = "rank")]
    rank: u32,
    #[component(name = "total-kv-blocks")]
    total_kv_blocks: Option<u32>,
}

impl From<&ClassifierWorker> for WorkerRecord {
    fn from(worker: &ClassifierWorker) -> Self {
        Self { number: worker.number, rank: worker.rank, total_kv_blocks: worker.total_kv_blocks }
    }
}

#[derive(Clone, Copy, ComponentType, Lower)]
#[component(record)]
pub(crate) struct PlacementRecord {
    #[component(name = "ticket")]
    ticket: Ticket,
    #[component(name = "worker")]
    worker: u32,
}

#[derive(Clone, Copy, ComponentType, Lower)]
#[component(record)]
pub(crate) struct CompletionRecord {
    #[component(name = "ticket")]
    ticket: Ticket,
    #[component(name = "worker")]
    worker: u32,
    #[component(name = "context-tokens")]
    context_tokens: Option<u32>,
}

#[derive(Clone, ComponentType, Lower)]
#[component(record)]
pub(crate) struct AbortionRecord {
    #[component(name = "ticket")]
    ticket: Ticket,
    #[component(name = "worker")]
    worker: Option<u32>,
    #[component(name = "error")]
    error: Option<String>,
}

#[derive(Clone, ComponentType, Lower)]
#[component(variant)]
pub(crate) enum EventRecord {
    #[component(name = "sent")]
    Sent(PlacementRecord),
    #[component(name = "responding")]
    Responding(PlacementRecord),
    #[component(name = "completed")]
    Completed(CompletionRecord),
    #[component(name = "aborted")]
    Aborted(AbortionRecord),
    #[component(name = "workers")]
    Workers(Vec<WorkerRecord>),
}

impl From<&Event> for EventRecord {
    fn from(event: &Event) -> Self {
        match event {
            Event::Sent { ticket, worker } => Self::Sent(PlacementRecord { ticket: *ticket, worker: *worker }),
            Event::Responding { ticket, worker } => {
                Self::Responding(PlacementRecord { ticket: *ticket, worker: *worker })
            }
            Event::Completed { ticket, worker, context_tokens } => {
                Self::Completed(CompletionRecord { ticket: *ticket, worker: *worker, context_tokens: *context_tokens })
            }
            Event::Aborted { ticket, worker, error } => {
                Self::Aborted(AbortionRecord { ticket: *ticket, worker: *worker, error: error.clone() })
            }
            Event::Workers(workers) => Self::Workers(workers.iter().map(Into::into).collect()),
        }
    }
}

#[derive(Clone, Copy, ComponentType, Lower)]
#[component(record)]
pub(crate) struct ProgressRecord {
    #[component(name = "ticket")]
    ticket: Ticket,
    #[component(name = "context-tokens")]
    context_tokens: u32,
}

impl From<&Progress> for ProgressRecord {
    fn from(progress: &Progress) -> Self {
        Self { ticket: progress.ticket, context_tokens: progress.context_tokens }
    }
}
