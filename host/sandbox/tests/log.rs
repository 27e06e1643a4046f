//! The log import, and what the sandbox itself tells a subscriber.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod common;

use std::sync::{Arc, Mutex, Once};

use common::{Policy, args, sandbox};
use pointsman_sandbox::*;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// One event or span: level, name or target, and its fields.
type Seen = (Level, String, Vec<(String, String)>);

#[derive(Clone, Default)]
struct Collect {
    events: Arc<Mutex<Vec<Seen>>>,
    spans: Arc<Mutex<Vec<Seen>>>,
}

impl Collect {
    /// A new one, beside one for the whole process. Without that, an event that a test without any comes upon first is
    /// taken for one that nobody wants, in the tests beside it too.
    fn new() -> Self {
        static WHOLE: Once = Once::new();
        WHOLE.call_once(|| tracing::subscriber::set_global_default(Self::default()).unwrap());
        Self::default()
    }
}

struct Fields(Vec<(String, String)>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push((field.name().to_owned(), format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push((field.name().to_owned(), value.to_owned()));
    }
}

impl Subscriber for Collect {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields(Vec::new());
        span.record(&mut fields);
        self.spans.lock().unwrap().push((*span.metadata().level(), span.metadata().name().to_owned(), fields.0));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(Vec::new());
        event.record(&mut fields);
        let metadata = event.metadata();
        self.events.lock().unwrap().push((*metadata.level(), metadata.target().to_owned(), fields.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Levels and texts.
type Messages = Vec<(Level, String)>;

/// The policies' events of one call with these numbers: level and message.
fn logged(slot: &mut GuestSlot, numbers: &[f64]) -> (Result<Vec<f64>, Fault>, Messages) {
    let collect = Collect::new();
    let answer = tracing::subscriber::with_default(collect.clone(), || slot.score(&args(numbers)));
    (answer, policys(&collect))
}

/// The policies' events: level and message.
fn policys(collect: &Collect) -> Messages {
    let events = collect.events.lock().unwrap();
    let policys = events.iter().filter(|(_, target, _)| target == "pointsman::policy");
    policys
        .map(|(level, _, fields)| {
            let field = |name: &str| fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.clone());
            assert_eq!(field("instance").as_deref(), Some("mine"));
            assert_eq!(field("partition").as_deref(), Some("llama/blue/decode"));
            (*level, field("message").unwrap())
        })
        .collect()
}

/// Logs what the numbers say: level, address and length, three at a time.
fn logger() -> Policy {
    Policy {
        imports_log: true,
        core: r#"(data (i32.const 1100) "line\nnext\1b[0m") (data (i32.const 1200) "\ff\fe")
            (data (i32.const 1300) "\c3\a4\c3\b6")"#
            .into(),
        ..Policy::scorer(
            "(local.set $i (local.get $numbers))
             (local.set $j (i32.add (local.get $numbers) (i32.mul (i32.const 8) (local.get $count))))
             (block $done (loop $next
               (br_if $done (i32.ge_u (local.get $i) (local.get $j)))
               (call $log (i32.trunc_f64_u (f64.load (local.get $i)))
                 (i32.trunc_f64_u (f64.load offset=8 (local.get $i)))
                 (i32.trunc_f64_u (f64.load offset=16 (local.get $i))))
               (local.set $i (i32.add (local.get $i) (i32.const 24)))
               (br $next)))
             (call $list (local.get $numbers) (local.get $count))",
        )
    }
}

fn slot(log_bytes: u64) -> GuestSlot {
    logger().slot(&sandbox(), Limits { log_bytes, ..Limits::default() })
}

/// Writes what the numbers say to standard output: address and length, two at a time.
#[cfg(feature = "wasi")]
fn writer() -> Policy {
    Policy {
        imports_wasi: true,
        core: r#"(data (i32.const 1100) "one\ntwo\nthr") (data (i32.const 1200) "ee\n")"#.into(),
        ..Policy::scorer(
            "(local.set $i (local.get $numbers))
             (local.set $j (i32.add (local.get $numbers) (i32.mul (i32.const 8) (local.get $count))))
             (block $done (loop $next
               (br_if $done (i32.ge_u (local.get $i) (local.get $j)))
               (call $write (call $stdout)
                 (i32.trunc_f64_u (f64.load (local.get $i)))
                 (i32.trunc_f64_u (f64.load offset=8 (local.get $i)))
                 (i32.const 9000))
               (local.set $i (i32.add (local.get $i) (i32.const 16)))
               (br $next)))
             (call $list (local.get $numbers) (local.get $count))",
        )
    }
}

#[cfg(feature = "wasi")]
#[test]
fn output_is_logged_by_the_line() {
    let said = |messages: Messages| messages.into_iter().map(|(_, text)| text).collect::<Vec<_>>();
    let mut slot = writer().slot(&sandbox(), Limits::default());
    let (answer, messages) = logged(&mut slot, &[1100.0, 11.0, 1200.0, 3.0]);
    answer.unwrap();
    assert_eq!(messages.iter().map(|(level, _)| *level).collect::<Vec<_>>(), [Level::INFO; 3]);
    assert_eq!(said(messages), ["one", "two", "three"]);
    // A call's last line need not end.
    assert_eq!(said(logged(&mut slot, &[1100.0, 3.0]).1), ["one"]);
    assert_eq!(said(logged(&mut slot, &[1200.0, 2.0]).1), ["ee"]);
    // What a call may log is a bound of the output too.
    let mut slot = writer().slot(&sandbox(), Limits { log_bytes: 5, ..Limits::default() });
    let messages = logged(&mut slot, &[1100.0, 11.0, 1100.0, 11.0]).1;
    assert_eq!(said(messages)[..2], ["one", "tw"]);
}

#[test]
fn a_policy_that_logs_says_so() {
    let policy = sandbox().load(&logger().artifact(), Profile::Compact).unwrap();
    let imports: Vec<_> = policy.imports().iter().map(|import| &*import.name).collect();
    assert_eq!(imports, ["pointsman:policy/log@0.1.0"]);
}

#[test]
fn messages_arrive_with_their_level_and_their_origin() {
    let numbers: Vec<f64> = (0..5).flat_map(|level| [f64::from(level), 1024.0, 7.0]).collect();
    let (answer, messages) = logged(&mut slot(4096), &numbers);
    assert!(answer.is_ok());
    let levels = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];
    assert_eq!(messages, levels.map(|level| (level, "no such".to_owned())));
}

#[test]
fn a_message_can_forge_no_line() {
    let (_, messages) = logged(&mut slot(4096), &[2.0, 1100.0, 13.0]);
    assert_eq!(messages, [(Level::INFO, "line next [0m".to_owned())]);
}

#[test]
fn log_bytes() {
    let cut = |bytes: u64| {
        (Level::WARN, format!("1 messages of the policy exceeded log_bytes = {bytes} in one call and were cut"))
    };
    // "no such luck" has 12 bytes.
    let mut exact = slot(12);
    for _ in 0..2 {
        let (_, messages) = logged(&mut exact, &[2.0, 1024.0, 12.0]);
        assert_eq!(messages, [(Level::INFO, "no such luck".to_owned())], "each call has the whole budget");
    }
    let (_, messages) = logged(&mut slot(11), &[2.0, 1024.0, 12.0]);
    assert_eq!(messages, [(Level::INFO, "no such luc".to_owned()), cut(11)]);
    // The budget is that of a call, not of a message, and a cut ends it.
    let (_, messages) = logged(&mut slot(12), &[2.0, 1024.0, 7.0, 2.0, 1024.0, 7.0, 2.0, 1024.0, 1.0]);
    let two = cut(12).1.replacen('1', "2", 1);
    assert_eq!(messages, [(Level::INFO, "no such".to_owned()), (Level::INFO, "no su".to_owned()), (Level::WARN, two)]);
    // Never within a character.
    let (_, messages) = logged(&mut slot(3), &[2.0, 1300.0, 4.0]);
    assert_eq!(messages, [(Level::INFO, "ä".to_owned()), cut(3)]);
    let (answer, messages) = logged(&mut slot(0), &[2.0, 1024.0, 12.0]);
    assert!(answer.is_ok());
    assert_eq!(messages, [cut(0)]);
}

#[test]
fn log_bytes_per_second() {
    let dropped = |messages: &Messages| {
        messages
            .iter()
            .filter(|(level, _)| *level == Level::WARN)
            .map(|(_, message)| {
                let (count, rest) = message.split_once(' ').unwrap();
                assert_eq!(rest, "messages of the policy exceeded log_bytes_per_second = 120 and were dropped");
                count.parse::<usize>().unwrap()
            })
            .collect::<Vec<_>>()
    };
    let say = [2.0, 1024.0, 12.0];
    let run = |calls: usize| {
        let collect = Collect::new();
        tracing::subscriber::with_default(collect.clone(), || {
            let mut slot = logger().slot(&sandbox(), Limits { log_bytes_per_second: 120, ..Limits::default() });
            (0..calls).for_each(|_| assert!(slot.score(&args(&say)).is_ok()));
        });
        policys(&collect)
    };
    assert_eq!(run(10), vec![(Level::INFO, "no such luck".to_owned()); 10]);
    // A hundred seconds' worth.
    let messages = run(1_000);
    let (dropped, written) = (dropped(&messages), messages.iter().filter(|(level, _)| *level == Level::INFO).count());
    assert!(dropped.len() >= 2, "at once, and what was left at the end: {dropped:?}");
    assert_eq!(dropped[0], 1);
    assert_eq!(written + dropped.iter().sum::<usize>(), 1_000, "each is written or counted");
}

#[test]
fn a_replaced_guest_has_no_second_budget() {
    let body = "(call $log (i32.const 2) (i32.const 1024) (i32.const 12)) unreachable";
    let policy = Policy { imports_log: true, ..Policy::hostile(body) };
    let mut slot = policy.slot(&sandbox(), Limits { log_bytes_per_second: 12, ..Limits::default() });
    let written: usize = (0..100)
        .map(|_| {
            let (answer, messages) = logged(&mut slot, &[1.0]);
            assert_eq!(answer.unwrap_err().outcome, Outcome::Trap);
            messages.iter().filter(|(level, _)| *level == Level::INFO).count()
        })
        .sum();
    assert!((1..50).contains(&written), "{written}");
}

#[test]
fn an_empty_message_counts_too() {
    let body = "(loop $again (call $log (i32.const 2) (i32.const 0) (i32.const 0)) (br $again))";
    let policy = Policy { imports_log: true, ..Policy::hostile(body) };
    let mut slot = policy.slot(&sandbox(), Limits { log_bytes: 3, ..Limits::default() });
    let (_, messages) = logged(&mut slot, &[1.0]);
    assert_eq!(messages.iter().filter(|(_, message)| message.is_empty()).count(), 3);
    assert_eq!(messages.len(), 4, "and what was lost");
}

#[test]
fn what_is_no_text_is_said_to_be_none() {
    let (answer, messages) = logged(&mut slot(4096), &[2.0, 1200.0, 2.0]);
    assert!(answer.is_ok());
    assert_eq!(messages, [(Level::INFO, "(a message that is not Unicode)".to_owned())]);
}

#[test]
fn a_message_that_cannot_be_read_ends_the_call() {
    let mut slot = Policy { memory: "64", ..logger() }.slot(&sandbox(), Limits::default());
    for numbers in [
        // No such level; beyond memory; more than one answer may make the host read.
        [5.0, 1024.0, 1.0],
        [2.0, 4_194_304.0, 1.0],
        [2.0, 0.0, 4_294_967_295.0],
        [2.0, 0.0, 1_048_577.0],
    ] {
        let (answer, _) = logged(&mut slot, &numbers);
        assert_eq!(answer.unwrap_err().outcome, Outcome::BadAnswer, "{numbers:?}");
        assert!(logged(&mut slot, &[2.0, 1024.0, 1.0]).0.is_ok());
    }
}

#[test]
fn an_endless_logger_ends_and_says_little() {
    let body = "(loop $again (call $log (i32.const 0) (i32.const 0) (i32.const 16000)) (br $again))";
    let policy = Policy { imports_log: true, ..Policy::hostile(body) };
    let mut slot = policy.slot(&sandbox(), Limits::default());
    let (answer, messages) = logged(&mut slot, &[1.0]);
    assert_eq!(answer.unwrap_err().outcome, Outcome::OutOfFuel);
    assert_eq!(messages.len(), 2);
    assert!(messages[0].1.len() <= 4096);
    assert!(slot.score(&args(&[0.0])).is_ok());
}

#[test]
fn a_message_costs_fuel_for_the_hosts_work() {
    let mut slot = slot(4096);
    let mut fuel = |messages: usize| {
        slot.score(&args(&[2.0, 1024.0, 1.0].repeat(messages))).unwrap();
        slot.fuel_used()
    };
    let (none, one, ten) = (fuel(0), fuel(1), fuel(10));
    assert!(one > none + 500);
    assert_eq!(ten - none, 10 * (one - none));
}

#[test]
fn nothing_is_lost_without_a_subscriber() {
    assert!(slot(4096).score(&args(&[2.0, 1024.0, 12.0])).is_ok());
}

#[test]
fn load_configure_and_call_have_spans() {
    let collect = Collect::new();
    tracing::subscriber::with_default(collect.clone(), || {
        Policy::default().slot(&sandbox(), Limits::default()).score(&args(&[1.0])).unwrap();
    });
    let spans = collect.spans.lock().unwrap();
    let names: Vec<_> = spans.iter().map(|(level, name, _)| (*level, &**name)).collect();
    assert_eq!(names, [(Level::DEBUG, "load"), (Level::DEBUG, "configure"), (Level::TRACE, "call")]);
    let field = |span: usize, name: &str, value: &str| {
        assert!(spans[span].2.contains(&(name.to_owned(), value.to_owned())), "{:?}", spans[span]);
    };
    field(0, "origin", "test.wasm");
    field(0, "profile", "compact");
    field(1, "instance", "mine");
    field(1, "partition", "llama/blue/decode");
    field(2, "stage", "score");
    field(2, "rows", "1");
}
