//! Policies for the tests, written as WebAssembly text: core code for each export goes in, a component comes out.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::fmt::Write;
use std::sync::Arc;

use pointsman_contract::{Partition, Role, RouterConfig};

use crate::{Args, Artifact, CompiledPolicy, GuestSetup, GuestSlot, Limits, Sandbox, SandboxConfig};

/// A policy in the making. Bodies are core code that leaves the address of the answer; a stage's body may use
/// `$rows $numbers $count $has_workers $workers $workers_len $has_texts $texts $texts_len`, the locals `$i` and `$j`, and
/// the functions `$list (at, len)`, `$row (row)`, `$chosen (row, cost)`, `$error (at, len)`, which write an answer and
/// return its address.
#[derive(Clone)]
pub struct Policy {
    /// The contract's version in every name.
    pub version: &'static str,
    /// The first and the most pages of memory.
    pub memory: &'static str,
    /// Further core definitions: data, functions, tables, a start function.
    pub core: String,
    /// Further component definitions, before the policy's own.
    pub before: String,
    /// Further exports.
    pub after: String,
    pub imports_log: bool,
    /// Imports what [`WASI`] has of WASI, and is granted it.
    pub imports_wasi: bool,
    pub describe: String,
    pub configure: String,
    pub keep: Option<String>,
    pub score: Option<String>,
    pub pick: Option<String>,
    pub select: Option<String>,
    pub classifier: Option<Classifier>,
    pub realloc: String,
    pub post_return: String,
}

/// The bodies of a classifier: core code that leaves the address of the answer, as a policy's do. `classify` may use
/// `$ticket $numbers $count $has_texts $texts $texts_len`, `on_event` `$kind $p0` to `$p5` and `$now`, `on_tick` `$now
/// $progress $progress_len`; all of them the locals `$i` and `$j`, the functions `$admit (ticket, due, cost, target,
/// class at, class len)` and `$resolve` of the same, which answer such an admission, `$reject (class)`, `$defer` and
/// `$nothing`, and `$error (at, len)` in on_event and on_tick, `$failed` in classify.
#[derive(Clone)]
pub struct Classifier {
    pub classify: String,
    pub on_event: String,
    pub on_tick: String,
}

impl Default for Classifier {
    /// Defers everything and resolves nothing.
    fn default() -> Self {
        let nothing = || "(call $nothing)".to_owned();
        Self { classify: "(call $defer)".to_owned(), on_event: nothing(), on_tick: nothing() }
    }
}

/// Answers one `true` for each row.
pub const KEEP_ALL: &str = "(memory.fill (i32.const 8192) (i32.const 1) (local.get $rows))
    (call $list (i32.const 8192) (local.get $rows))";
/// Answers the numbers themselves as costs.
pub const SCORE_NUMBERS: &str = "(call $list (local.get $numbers) (local.get $count))";
/// Answers row 0.
pub const PICK_FIRST: &str = "(call $row (i32.const 0))";
/// Answers the last row and the first number.
pub const SELECT_LAST: &str =
    "(call $chosen (i32.sub (local.get $rows) (i32.const 1)) (f64.load (local.get $numbers)))";
/// An endless loop.
pub const SPIN: &str = "(loop $again (br $again)) (unreachable)";

impl Default for Policy {
    /// A scorer whose costs are its numbers.
    fn default() -> Self {
        Self {
            version: "0.1.0",
            memory: "1",
            core: String::new(),
            before: String::new(),
            after: String::new(),
            imports_log: false,
            imports_wasi: false,
            describe: "(i32.const 64)".into(),
            configure: "(i32.const 4096)".into(),
            keep: None,
            score: Some(SCORE_NUMBERS.into()),
            pick: None,
            select: None,
            classifier: None,
            realloc: "(call $bump (local.get $align) (local.get $size))".into(),
            post_return: "(global.set $top (i32.const 16384))".into(),
        }
    }
}

const STAGE: &str = "(param $rows i32) (param $numbers i32) (param $count i32)
    (param $has_workers i32) (param $workers i32) (param $workers_len i32)
    (param $has_texts i32) (param $texts i32) (param $texts_len i32) (result i32) (local $i i32) (local $j i32)";

const HELPERS: &str = r#"
  (global $top (mut i32) (i32.const 16384))
  (func $bump (param $align i32) (param $size i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and
      (i32.add (global.get $top) (i32.sub (local.get $align) (i32.const 1)))
      (i32.sub (i32.const 0) (local.get $align))))
    (global.set $top (i32.add (local.get $at) (local.get $size)))
    (block $fits (loop $more
      (br_if $fits (i32.le_u (global.get $top) (i32.mul (memory.size) (i32.const 65536))))
      (drop (memory.grow (i32.const 1)))
      (br $more)))
    (local.get $at))
  (func $answer (param $bad i32) (param $first i32) (param $second i32) (result i32)
    (i32.store (i32.const 128) (local.get $bad))
    (i32.store (i32.const 132) (local.get $first))
    (i32.store (i32.const 136) (local.get $second))
    (i32.const 128))
  (func $list (param i32 i32) (result i32) (call $answer (i32.const 0) (local.get 0) (local.get 1)))
  (func $row (param i32) (result i32) (call $answer (i32.const 0) (local.get 0) (i32.const 0)))
  (func $error (param i32 i32) (result i32) (call $answer (i32.const 1) (local.get 0) (local.get 1)))
  (func $chosen (param $row i32) (param $cost f64) (result i32)
    (i32.store (i32.const 160) (i32.const 0))
    (i32.store (i32.const 168) (i32.const 1))
    (i32.store (i32.const 176) (local.get $row))
    (f64.store (i32.const 184) (local.get $cost))
    (i32.const 160))
  ;; the manifest: name, version, description, parameters-schema
  (data (i32.const 64) "\00\01\00\00\04\00\00\00" "\04\01\00\00\05\00\00\00" "\09\01\00\00\07\00\00\00" "\10\01\00\00\02\00\00\00")
  (data (i32.const 256) "test1.2.3A test.\7b\7d")
  ;; for errors
  (data (i32.const 1024) "no such luck")
"#;

const TYPES: &str = r#"
    (type $role' (enum "aggregated" "prefill" "decode" "encode"))
    (export "role" (type $role (eq $role')))
    (type $partition' (record (field "model" string) (field "routing-group" string) (field "role" $role)
      (field "block-size" u32) (field "seed" u32)))
    (export "partition" (type $partition (eq $partition')))
    (type $router-config' (record (field "overlap-score-credit" f64) (field "overlap-score-credit-decay" f64)
      (field "prefill-load-scale" f64) (field "decode-active-request-weight" f64) (field "host-cache-hit-weight" f64)
      (field "disk-cache-hit-weight" f64) (field "shared-cache-multiplier" f64) (field "router-temperature" f64)
      (field "conditional-disaggregation" bool)))
    (export "router-config" (type $router-config (eq $router-config')))
    (type $reads' (record (field "facts" (list string)) (field "texts" (list string)) (field "signals" (list string))
      (field "workers" bool)))
    (export "reads" (type $reads (eq $reads')))
    (type $inputs' (record (field "filter" (option $reads)) (field "score" (option $reads)) (field "pick" (option $reads))
      (field "exclusive-affinity" bool) (field "classify" (option $reads)) (field "tick-ms" (option u32))))
    (export "inputs" (type $inputs (eq $inputs')))
    (type $manifest' (record (field "name" string) (field "version" string) (field "description" string)
      (field "parameters-schema" string)))
    (export "manifest" (type $manifest (eq $manifest')))
    (type $selection' (record (field "row" u32) (field "cost" f64)))
    (export "selection" (type $selection (eq $selection')))
"#;

const CLASSIFIER_HELPERS: &str = r#"
  ;; an admission at 2080: class, due, cost, target, each there
  (func $admission (param $due f64) (param $cost i32) (param $target i32) (param $class i32) (param $class_len i32)
    (i32.store (i32.const 2080) (i32.ne (local.get $class_len) (i32.const 0)))
    (i32.store (i32.const 2084) (local.get $class))
    (i32.store (i32.const 2088) (local.get $class_len))
    (i32.store (i32.const 2096) (i32.const 1))
    (f64.store (i32.const 2104) (local.get $due))
    (i32.store (i32.const 2112) (i32.const 1))
    (i32.store (i32.const 2116) (local.get $cost))
    (i32.store (i32.const 2120) (i32.const 2))
    (i32.store (i32.const 2124) (local.get $target)))
  ;; result at 2056, option at 2064, verdict at 2072
  (func $classified (param $bad i32) (param $some i32) (param $reject i32) (result i32)
    (i32.store (i32.const 2056) (local.get $bad))
    (i32.store (i32.const 2064) (local.get $some))
    (i32.store (i32.const 2072) (local.get $reject))
    (i32.const 2056))
  (func $admit (param $ticket i32) (param $due f64) (param $cost i32) (param $target i32) (param $class i32)
    (param $class_len i32) (result i32)
    (call $admission (local.get $due) (local.get $cost) (local.get $target) (local.get $class) (local.get $class_len))
    (call $classified (i32.const 0) (i32.const 1) (i32.const 0)))
  (func $reject (param $class i32) (result i32)
    (i64.store (i32.const 2080) (i64.const 0))
    (i32.store (i32.const 2080) (local.get $class))
    (i32.store (i32.const 2084) (i32.const 0))
    (i32.store (i32.const 2096) (i32.const 1024))
    (i32.store (i32.const 2100) (i32.const 12))
    (call $classified (i32.const 0) (i32.const 1) (i32.const 1)))
  (func $defer (result i32) (call $classified (i32.const 0) (i32.const 0) (i32.const 0)))
  (func $failed (result i32)
    (drop (call $classified (i32.const 1) (i32.const 1024) (i32.const 0)))
    (i32.store (i32.const 2068) (i32.const 12))
    (i32.const 2056))
  ;; a list of one resolution at 2064: the ticket, the verdict at 2072
  (func $resolve (param $ticket i32) (param $due f64) (param $cost i32) (param $target i32) (param $class i32)
    (param $class_len i32) (result i32)
    (call $admission (local.get $due) (local.get $cost) (local.get $target) (local.get $class) (local.get $class_len))
    (i32.store (i32.const 2064) (local.get $ticket))
    (i32.store (i32.const 2072) (i32.const 0))
    (call $list (i32.const 2064) (i32.const 1)))
  (func $nothing (result i32) (call $list (i32.const 0) (i32.const 0)))
"#;

const CLASSIFIER_TYPES: &str = r#"
    (type $ticket' u32)
    (export "ticket" (type $ticket (eq $ticket')))
    (type $target' (variant (case "keep") (case "clear") (case "set" u32)))
    (export "target-change" (type $target (eq $target')))
    (type $admission' (record (field "policy-class" (option string)) (field "due-ms" (option f64))
      (field "scheduling-cost-tokens" (option u32)) (field "target" $target)))
    (export "admission" (type $admission (eq $admission')))
    (type $error-class' (enum "invalid-request" "unauthenticated" "permission-denied" "not-found" "conflict"
      "payload-too-large" "unsupported-media" "rate-limited" "capacity-exhausted" "unavailable" "backend-protocol"
      "deadline-exceeded" "not-implemented" "internal" "cancelled"))
    (export "error-class" (type $error-class (eq $error-class')))
    (type $rejection' (record (field "class" $error-class) (field "public-message" (option string))
      (field "diagnostic" string)))
    (export "rejection" (type $rejection (eq $rejection')))
    (type $verdict' (variant (case "admit" $admission) (case "reject" $rejection)))
    (export "verdict" (type $verdict (eq $verdict')))
    (type $worker' (record (field "number" u32) (field "rank" u32) (field "total-kv-blocks" (option u32))))
    (export "classifier-worker" (type $worker (eq $worker')))
    (type $placement' (record (field "ticket" $ticket) (field "worker" u32)))
    (export "placement" (type $placement (eq $placement')))
    (type $completion' (record (field "ticket" $ticket) (field "worker" u32) (field "context-tokens" (option u32))))
    (export "completion" (type $completion (eq $completion')))
    (type $abortion' (record (field "ticket" $ticket) (field "worker" (option u32)) (field "error" (option string))))
    (export "abortion" (type $abortion (eq $abortion')))
    (type $event' (variant (case "sent" $placement) (case "responding" $placement) (case "completed" $completion)
      (case "aborted" $abortion) (case "workers" (list $worker))))
    (export "event" (type $event (eq $event')))
    (type $progress' (record (field "ticket" $ticket) (field "context-tokens" u32)))
    (export "progress" (type $progress (eq $progress')))
    (type $resolution' (record (field "ticket" $ticket) (field "verdict" $verdict)))
    (export "resolution" (type $resolution (eq $resolution')))
"#;

/// Some of WASI. A list that the host answers lies at 49152.
pub const WASI: &str = r#"
  (import "wasi:io/error@0.2.6" (instance $wasi-error (export "error" (type (sub resource)))))
  (alias export $wasi-error "error" (type $io-error))
  (import "wasi:io/poll@0.2.6" (instance $wasi-poll
    (export "pollable" (type $p (sub resource)))
    (export "[method]pollable.block" (func (param "self" (borrow $p))))
    (export "poll" (func (param "in" (list (borrow $p))) (result (list u32))))))
  (alias export $wasi-poll "pollable" (type $pollable))
  (import "wasi:io/streams@0.2.6" (instance $wasi-streams
    (export "output-stream" (type $o (sub resource)))
    (export "error" (type $e (eq $io-error)))
    (type $stream-error' (variant (case "last-operation-failed" (own $e)) (case "closed")))
    (export "stream-error" (type $stream-error (eq $stream-error')))
    (export "[method]output-stream.write" (func (param "self" (borrow $o)) (param "contents" (list u8))
      (result (result (error $stream-error)))))
    (export "[method]output-stream.splice" (func (param "self" (borrow $o)) (result (result (error $stream-error)))))))
  (alias export $wasi-streams "output-stream" (type $output-stream))
  (import "wasi:cli/stdout@0.2.6" (instance $wasi-stdout
    (export "output-stream" (type $o (eq $output-stream)))
    (export "get-stdout" (func (result (own $o))))))
  (import "wasi:cli/environment@0.2.6" (instance $wasi-environment
    (export "get-environment" (func (result (list (tuple string string)))))))
  (import "wasi:cli/exit@0.2.6" (instance $wasi-exit (export "exit" (func (param "status" (result))))))
  (import "wasi:clocks/monotonic-clock@0.2.6" (instance $wasi-monotonic
    (export "pollable" (type $p (eq $pollable)))
    (export "now" (func (result u64)))
    (export "subscribe-duration" (func (param "when" u64) (result (own $p))))))
  (import "wasi:clocks/wall-clock@0.2.6" (instance $wasi-wall
    (type $datetime' (record (field "seconds" u64) (field "nanoseconds" u32)))
    (export "datetime" (type $datetime (eq $datetime')))
    (export "now" (func (result $datetime)))))
  (import "wasi:random/random@0.2.6" (instance $wasi-random
    (export "get-random-bytes" (func (param "len" u64) (result (list u8))))
    (export "get-random-u64" (func (result u64)))))
  (import "wasi:sockets/network@0.2.6" (instance $wasi-network (export "network" (type (sub resource)))))
  (alias export $wasi-network "network" (type $network))
  (import "wasi:sockets/instance-network@0.2.6" (instance $wasi-instance-network
    (export "network" (type $n (eq $network)))
    (export "instance-network" (func (result (own $n))))))
  (core module $answers
    (import "env" "memory" (memory 0))
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 49152)))
  (core instance $answer (instantiate $answers (with "env" (instance $mem))))
"#;

/// The core functions of [`WASI`]: name, component function, core type.
const WASI_FUNCTIONS: [(&str, &str, &str); 12] = [
    ("now", "$wasi-monotonic \"now\"", "(result i64)"),
    ("later", "$wasi-monotonic \"subscribe-duration\"", "(param i64) (result i32)"),
    ("wall", "$wasi-wall \"now\"", "(param i32)"),
    ("random", "$wasi-random \"get-random-u64\"", "(result i64)"),
    ("bytes", "$wasi-random \"get-random-bytes\"", "(param i64 i32)"),
    ("environment", "$wasi-environment \"get-environment\"", "(param i32)"),
    ("exit", "$wasi-exit \"exit\"", "(param i32)"),
    ("stdout", "$wasi-stdout \"get-stdout\"", "(result i32)"),
    ("write", "$wasi-streams \"[method]output-stream.write\"", "(param i32 i32 i32 i32)"),
    ("block", "$wasi-poll \"[method]pollable.block\"", "(param i32)"),
    ("poll", "$wasi-poll \"poll\"", "(param i32 i32 i32)"),
    ("network", "$wasi-instance-network \"instance-network\"", "(result i32)"),
];

/// The functions of a classifier: name, core parameters, component-level parameters and result.
const CLASSIFIER: [(&str, &str, &str, &str); 3] = [
    (
        "classify",
        "(param $ticket i32) (param $numbers i32) (param $count i32)
         (param $has_texts i32) (param $texts i32) (param $texts_len i32)",
        "(param \"ticket\" $ticket) (param \"numbers\" (list f64)) (param \"texts\" (option (list (option string))))",
        "(option $verdict)",
    ),
    (
        "on-event",
        "(param $kind i32) (param $p0 i32) (param $p1 i32) (param $p2 i32) (param $p3 i32) (param $p4 i32)
         (param $p5 i32) (param $now f64)",
        "(param \"event\" $event) (param \"now-ms\" f64)",
        "(list $resolution)",
    ),
    (
        "on-tick",
        "(param $now f64) (param $progress i32) (param $progress_len i32)",
        "(param \"now-ms\" f64) (param \"progress\" (list $progress))",
        "(list $resolution)",
    ),
];

/// The core parameters and the component-level result of a stage.
const STAGES: [(&str, &str, &str); 4] = [
    ("worker-filter", "keep", "(list bool)"),
    ("worker-scorer", "score", "(list f64)"),
    ("worker-picker", "pick", "u32"),
    ("worker-selector", "select", "(option $selection)"),
];

impl Policy {
    /// The policy with every stage, each with its plain answer.
    pub fn whole() -> Self {
        Self {
            keep: Some(KEEP_ALL.into()),
            pick: Some(PICK_FIRST.into()),
            select: Some(SELECT_LAST.into()),
            ..Self::default()
        }
    }

    /// A scorer with that body.
    pub fn scorer(body: impl Into<String>) -> Self {
        Self { score: Some(body.into()), ..Self::default() }
    }

    /// A classifier and nothing else.
    pub fn classifier(classifier: Classifier) -> Self {
        Self { score: None, classifier: Some(classifier), ..Self::default() }
    }

    /// A scorer that runs `body` while the first number is not 0, and otherwise answers its numbers.
    pub fn hostile(body: &str) -> Self {
        Self::scorer(format!(
            "(if (f64.ne (f64.load (local.get $numbers)) (f64.const 0)) (then {body})) {SCORE_NUMBERS}"
        ))
    }

    /// The component as text.
    pub fn text(&self) -> String {
        let version = self.version;
        let mut text = String::from("(component\n");
        let put = |text: &mut String, part: &str| writeln!(text, "  {part}").unwrap();
        put(&mut text, &self.before);
        put(&mut text, &format!("(import \"pointsman:policy/types@{version}\" (instance $types {TYPES}))"));
        for name in ["partition", "router-config", "inputs", "manifest", "selection"] {
            put(&mut text, &format!("(alias export $types \"{name}\" (type ${name}))"));
        }
        if self.classifier.is_some() {
            put(
                &mut text,
                &format!(
                    "(import \"pointsman:policy/classification@{version}\" (instance $classes {CLASSIFIER_TYPES}))"
                ),
            );
            for name in ["ticket", "verdict", "event", "progress", "resolution"] {
                put(&mut text, &format!("(alias export $classes \"{name}\" (type ${name}))"));
            }
        }
        put(&mut text, &format!("(core module $memory (memory (export \"memory\") {}))", self.memory));
        put(&mut text, "(core instance $mem (instantiate $memory))");
        let mut imported = "(import \"env\" \"memory\" (memory 0))".to_owned();
        let mut with = "(with \"env\" (instance $mem))".to_owned();
        if self.imports_log {
            put(
                &mut text,
                &format!(
                    "(import \"pointsman:policy/log@{version}\" (instance $log
                       (type $level' (enum \"error\" \"warn\" \"info\" \"debug\" \"trace\"))
                       (export \"level\" (type $level (eq $level')))
                       (export \"log\" (func (param \"level\" $level) (param \"message\" string)))))
                     (core func $log_core (canon lower (func $log \"log\") (memory (core memory $mem \"memory\"))))"
                ),
            );
            imported.push_str("(import \"host\" \"log\" (func $log (param i32 i32 i32)))");
            with.push_str("(with \"host\" (instance (export \"log\" (func $log_core))))");
        }
        if self.imports_wasi {
            put(&mut text, WASI);
            with.push_str("(with \"wasi\" (instance");
            for (name, function, core_type) in WASI_FUNCTIONS {
                let canon = "(memory (core memory $mem \"memory\")) (realloc (core func $answer \"realloc\"))";
                put(&mut text, &format!("(core func $wasi_{name} (canon lower (func {function}) {canon}))"));
                write!(imported, "(import \"wasi\" \"{name}\" (func ${name} {core_type}))").unwrap();
                write!(with, "(export \"{name}\" (func $wasi_{name}))").unwrap();
            }
            put(&mut text, "(core func $wasi_drop (canon resource.drop $pollable))");
            imported.push_str("(import \"wasi\" \"drop\" (func $drop (param i32)))");
            with.push_str("(export \"drop\" (func $wasi_drop))))");
        }
        let bodies = [&self.keep, &self.score, &self.pick, &self.select];
        let mut stages = String::new();
        for ((_, name, _), body) in STAGES.iter().zip(bodies) {
            if let Some(body) = body {
                writeln!(stages, "  (func (export \"{name}\") {STAGE}\n {body})").unwrap();
            }
        }
        if let Some(Classifier { classify, on_event, on_tick }) = &self.classifier {
            stages.push_str(CLASSIFIER_HELPERS);
            for ((name, parameters, ..), body) in CLASSIFIER.iter().zip([classify, on_event, on_tick]) {
                let locals = "(result i32) (local $i i32) (local $j i32)";
                writeln!(stages, "  (func (export \"{name}\") {parameters} {locals}\n {body})").unwrap();
            }
        }
        let Self { core, describe, configure, realloc, post_return, .. } = self;
        put(
            &mut text,
            &format!(
                "(core module $policy
                   {imported}
                   {HELPERS}
                   {core}
                   (func (export \"realloc\") (param $old i32) (param $old_size i32) (param $align i32)
                     (param $size i32) (result i32) {realloc})
                   (func (export \"post\") (param $at i32) {post_return})
                   (func (export \"describe\") (result i32) {describe})
                   (func (export \"configure\") (param $at i32) (result i32) {configure})
                   {stages})
                 (core instance $core (instantiate $policy {with}))"
            ),
        );
        let lift = |name: &str| {
            format!(
                "(canon lift (core func $core \"{name}\") (memory (core memory $mem \"memory\"))
                   (realloc (core func $core \"realloc\")) (post-return (core func $core \"post\")))"
            )
        };
        put(
            &mut text,
            &format!(
                "(func $describe (result $manifest) {})
                 (func $configure (param \"partition\" $partition) (param \"router-config\" $router-config)
                   (param \"parameters\" string) (result (result $inputs (error string))) {})
                 (instance $exported (export \"describe\" (func $describe)) (export \"configure\" (func $configure)))
                 (export \"pointsman:policy/policy@{version}\" (instance $exported))",
                lift("describe"),
                lift("configure")
            ),
        );
        for ((interface, name, answer), _) in STAGES.iter().zip(bodies).filter(|(_, body)| body.is_some()) {
            put(
                &mut text,
                &format!(
                    "(func ${name} (param \"rows\" u32) (param \"numbers\" (list f64))
                       (param \"workers\" (option (list u32))) (param \"texts\" (option (list (option string))))
                       (result (result {answer} (error string))) {})
                     (instance ${name}_exported (export \"{name}\" (func ${name})))
                     (export \"pointsman:policy/{interface}@{version}\" (instance ${name}_exported))",
                    lift(name)
                ),
            );
        }
        if self.classifier.is_some() {
            for (name, _, parameters, answer) in CLASSIFIER {
                let result = format!("(result (result {answer} (error string)))");
                put(&mut text, &format!("(func ${name} {parameters} {result} {})", lift(name)));
            }
            let exports = CLASSIFIER.map(|(name, ..)| format!("(export \"{name}\" (func ${name}))")).join(" ");
            put(
                &mut text,
                &format!(
                    "(instance $classifier {exports})
                     (export \"pointsman:policy/request-classifier@{version}\" (instance $classifier))"
                ),
            );
        }
        put(&mut text, &self.after);
        text.push(')');
        text
    }

    /// The component as an artifact.
    pub fn artifact(&self) -> Artifact {
        let artifact = component(&self.text());
        if self.imports_wasi { artifact.with_wasi() } else { artifact }
    }

    /// The component itself.
    pub fn bytes(&self) -> Vec<u8> {
        wat::parse_str(self.text()).unwrap()
    }

    /// Loads the policy and builds a guest of it.
    pub fn slot(&self, sandbox: &Sandbox, limits: Limits) -> GuestSlot {
        slot(&sandbox.load_with(&self.artifact(), &limits).unwrap(), limits)
    }
}

/// A component's text as an artifact, trusted so that a test need not start a worker.
pub fn component(text: &str) -> Artifact {
    let bytes = wat::parse_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    Artifact::from_bytes("test.wasm", bytes).trusted()
}

/// A sandbox for few guests.
pub fn sandbox() -> Sandbox {
    Sandbox::new(SandboxConfig { guests: 8, ..SandboxConfig::default() }).unwrap()
}

/// What a guest of that policy is built from.
pub fn setup(policy: &Arc<CompiledPolicy>, limits: Limits) -> GuestSetup {
    GuestSetup {
        policy: Arc::clone(policy),
        instance: "mine".into(),
        partition: Partition {
            model: "llama".into(),
            routing_group: "blue".into(),
            role: Role::Decode,
            block_size: 16,
            seed: 7,
        },
        router_config: RouterConfig::default(),
        parameters: "{}".into(),
        limits,
        account: None,
    }
}

/// A guest of that policy.
pub fn slot(policy: &Arc<CompiledPolicy>, limits: Limits) -> GuestSlot {
    GuestSlot::new(setup(policy, limits)).unwrap()
}

/// Rows with one number each.
pub fn args(numbers: &[f64]) -> Args {
    Args { rows: numbers.len() as u32, numbers: numbers.to_vec(), ..Args::default() }
}

/// One function that takes a compiler minutes: 3,000 loops within each other over 300 locals.
pub fn nested_loops() -> Policy {
    let mut body = String::new();
    for number in 0..3_000 {
        write!(body, "loop local.get {} i32.const 1 i32.add local.set {} ", number % 300, (number + 7) % 300).unwrap();
    }
    for number in 0..3_000 {
        write!(body, "local.get {} br_if 0 end ", number % 300).unwrap();
    }
    Policy { core: format!("(func (local {}) {body})", "i32 ".repeat(300)), ..Policy::default() }
}

/// One function that takes a compiler most of a gigabyte: 10,000 loops in a row over 1,000 locals.
pub fn loops_in_a_row() -> Policy {
    let mut body = String::new();
    for number in 0..10_000 {
        let (from, to) = (number % 1_000, (number + 7) % 1_000);
        write!(body, "loop local.get {from} i32.const 1 i32.add local.set {to} local.get {to} br_if 0 end ").unwrap();
    }
    Policy { core: format!("(func (local {}) {body})", "i32 ".repeat(1_000)), ..Policy::default() }
}
