//! The chosen row's cost, which Dynamo gives away in its log alone.

use std::cell::RefCell;
use std::fmt::Debug;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::verdict::Cost;

thread_local! {
    static LAST: RefCell<Cost> = const { RefCell::new(Cost::Unsaid) };
}

/// What `select` answers, and the cost that Dynamo logged meanwhile on this thread.
pub fn of<T>(select: impl FnOnce() -> T) -> (T, Cost) {
    LAST.replace(Cost::Unsaid);
    let result = tracing::subscriber::with_default(Selections, select);
    (result, LAST.replace(Cost::Unsaid))
}

/// Hears Dynamo's log of selections and nothing else.
struct Selections;

impl Subscriber for Selections {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && *metadata.level() == Level::INFO
            && metadata.target().starts_with("dynamo_kv_router::scheduling::selector")
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Logit);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Logit;

impl Visit for Logit {
    fn record_f64(&mut self, field: &Field, value: f64) {
        if field.name() == "logit" {
            LAST.replace(Cost::Exact(value));
        }
    }

    /// A pinned row's cost stands in the message.
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() != "message" {
            return;
        }
        let message = format!("{value:?}");
        let printed = message.split_once("logit: ").and_then(|(_, rest)| rest.split_once(','));
        if let Some((cost, _)) = printed {
            LAST.replace(Cost::Printed(cost.to_owned()));
        }
    }
}
