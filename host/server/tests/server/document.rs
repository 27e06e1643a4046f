//! docs/operations.md beside the running server: its paths, headers and errors.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use http::StatusCode;
use pointsman_admission::OverloadStatus;
use pointsman_mock::Failures;
use pointsman_routing::Trigger;
use pointsman_server::observe::{DecisionMade, Observer};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::world::{Answer, Plan, busy, chat, raw, send, streaming, whole};

const PAGE: &str = include_str!("../../../../docs/operations.md");
const PATH: &str = "/v1/chat/completions";

/// The rows of the first table under a heading, by columns.
fn table(heading: &str) -> Vec<Vec<&'static str>> {
    let (_, section) = PAGE.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no {heading}"));
    let rows = section.lines().skip_while(|line| !line.starts_with("| ")).take_while(|line| line.starts_with('|'));
    let cells = |line: &'static str| line.trim_matches('|').split('|').map(str::trim).collect();
    rows.skip(2).map(cells).collect()
}

/// The words of a cell that stand as code.
fn code(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_path_of_the_document_is_served() {
    let world = Plan::of(1).start().await;
    let mut calls = Vec::new();
    for (heading, is_admin) in [("## The front door", false), ("## The operators' API", true)] {
        for row in table(heading) {
            let paths = code(row[0]).flat_map(|path| row[1].split(", ").map(move |method| (path, method)));
            calls.extend(paths.map(|(path, method)| (is_admin, path, method)));
        }
    }
    assert!(calls.len() > 15, "{calls:?}");
    // The worker goes last.
    calls.sort_by_key(|(_, _, method)| *method == "DELETE");
    for (is_admin, path, method) in calls {
        let path = path.replace("{model}", "mock").replace("{id}", "1");
        let url = if is_admin { world.admin(&path) } else { world.url(&path) };
        let answer = whole(send(method, &url, "{}", &[]).await).await;
        let said = answer.text();
        assert!(!matches!(answer.status.as_u16(), 404 | 405), "{method} {path}: {} {said}", answer.status);
        let other = send("OPTIONS", &url, "", &[]).await;
        assert_eq!(other.status(), StatusCode::METHOD_NOT_ALLOWED, "{path}");
    }
}

/// What a policy could have read of a request.
#[derive(Clone, Debug, Default, PartialEq)]
struct Heard {
    session: Option<String>,
    parent: Option<String>,
    last: Option<bool>,
    trigger: Option<Trigger>,
    priority_jump: f64,
    strict_priority: u32,
    expected_output_tokens: Option<u32>,
    router_temperature: Option<f64>,
}

#[derive(Default)]
struct Listener(Mutex<Vec<Heard>>);

impl Observer for Listener {
    fn decided(&self, made: &DecisionMade<'_>) {
        let request = made.request;
        let session = request.session;
        self.0.lock().unwrap().push(Heard {
            session: session.map(|session| session.id.to_owned()),
            parent: session.and_then(|session| session.parent_id.map(str::to_owned)),
            last: session.and_then(|session| session.last),
            trigger: session.and_then(|session| session.trigger),
            priority_jump: request.priority_jump,
            strict_priority: request.strict_priority,
            expected_output_tokens: request.expected_output_tokens,
            router_temperature: request.router_temperature,
        });
    }
}

const SESSIONS: [&str; 4] = ["x-dynamo-session-id", "x-claude-code-agent-id", "thread-id", "x-session-id"];
const PARENTS: [&str; 4] =
    ["x-dynamo-parent-session-id", "x-claude-code-parent-agent-id", "x-codex-parent-thread-id", "x-parent-session-id"];

#[tokio::test(flavor = "multi_thread")]
async fn every_header_and_field_of_the_document_is_followed() {
    let listener = Arc::new(Listener::default());
    let observer = Arc::clone(&listener) as Arc<dyn Observer>;
    let world = Plan { observer, ..Plan::of(1) }.start().await;
    let ask = async |headers: &[(&str, &str)], fields: Value| {
        let mut body = chat("hello", 2);
        body["nvext"] = fields;
        let answer = world.post(PATH, &body, headers).await;
        assert_eq!(answer.status, StatusCode::OK, "{headers:?}: {}", answer.text());
        (listener.0.lock().unwrap().pop().unwrap(), answer)
    };
    let number = |set: fn(&mut Heard)| {
        let mut heard = Heard::default();
        set(&mut heard);
        heard
    };
    let session =
        |id: &str| Heard { session: Some(id.to_owned()), trigger: Some(Trigger::UserMessage), ..Heard::default() };
    let numbers: [(&str, &str, Heard); 4] = [
        ("x-dynamo-request-priority", "nvext.agent_hints.priority", number(|heard| heard.priority_jump = 3.0)),
        (
            "x-dynamo-request-strict-priority",
            "nvext.agent_hints.strict_priority",
            number(|heard| heard.strict_priority = 3),
        ),
        (
            "x-pointsman-expected-output-tokens",
            "nvext.agent_hints.osl",
            number(|heard| heard.expected_output_tokens = Some(3)),
        ),
        (
            "x-pointsman-router-temperature",
            "nvext.router_temperature",
            number(|heard| heard.router_temperature = Some(3.0)),
        ),
    ];
    let mut followed: BTreeSet<String> = BTreeSet::new();
    for (header, parent) in SESSIONS.iter().zip(PARENTS) {
        assert_eq!(ask(&[(header, "s")], json!({})).await.0, session("s"));
        let with_parent = Heard { parent: Some("p".to_owned()), ..session("s") };
        assert_eq!(ask(&[(header, "s"), (parent, "p")], json!({})).await.0, with_parent);
        followed.extend([(*header).to_owned(), parent.to_owned()]);
    }
    let last = ask(&[(SESSIONS[0], "s"), ("x-dynamo-session-final", "true")], json!({})).await.0;
    assert_eq!(last, Heard { last: Some(true), ..session("s") });
    for (header, field, heard) in numbers {
        assert_eq!(ask(&[(header, "3")], json!({})).await.0, heard, "{header}");
        let path: Vec<&str> = field.split('.').skip(1).collect();
        let fields = path.iter().rev().fold(json!(3), |value, name| json!({ *name: value }));
        assert_eq!(ask(&[], fields).await.0, heard, "{field}");
        followed.extend([header.to_owned(), field.to_owned()]);
    }
    let (_, explained) = ask(&[("x-pointsman-explain", "1")], json!({})).await;
    assert!(explained.headers.contains_key("x-pointsman-decision"));
    let (_, named) = ask(&[], json!({"extra_fields": ["worker_id"]})).await;
    assert_eq!(named.json()["nvext"]["worker_id"]["decode_worker_id"], 1);
    a_class_is_followed().await;
    let others = ["x-dynamo-session-final", "x-pointsman-explain", "x-dynamo-meta-policy-class"];
    followed.extend(others.map(str::to_owned));
    followed.insert(r#"nvext.extra_fields: ["worker_id"]"#.to_owned());
    let documented = table("### What a request may say");
    let documented: BTreeSet<String> =
        documented.iter().flat_map(|row| code(row[0]).chain(code(row[1]))).map(str::to_owned).collect();
    assert_eq!(documented, followed);
}

/// A class in which nothing may wait refuses what is of it while the worker computes a prompt.
async fn a_class_is_followed() {
    let (world, long) = busy(OverloadStatus::default()).await;
    let refused = world.post(PATH, &chat("a", 1), &[("x-dynamo-meta-policy-class", "batch")]).await;
    assert_eq!(refused.error().1, "queue-rejected");
    long.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_error_of_the_document_happens_and_no_other() {
    let hex: String = Sha256::digest("sk-one").iter().map(|byte| format!("{byte:02x}")).collect();
    let sections = format!(
        "keys: [{{sha256: {hex}, models: [mock, nobody]}}]\nretries: 0\nlimits: {{body_bytes: 2000, header_bytes: 8192, \
         concurrent_requests: 1}}\ntimeouts: {{body_ms: 300, first_byte_ms: 300}}\n"
    );
    let world = Plan::of(1).slow(20).server(&sections).start().await;
    let key = ("authorization", "Bearer sk-one");
    let post = async |body: Value| world.post(PATH, &body, &[key]).await;
    let of = |answer: &Answer| (answer.status.as_u16(), answer.error().1);
    let mut happened: BTreeSet<(u16, String)> = BTreeSet::new();

    happened.insert(of(&post(json!([])).await));
    happened.insert(of(&post(json!({})).await));
    happened.insert(of(&post(json!({"model": "mock", "nvext": {"router_temperature": -1}})).await));
    happened.insert(of(&world.post(PATH, &json!({}), &[]).await));
    happened.insert(of(&post(json!({"model": "other"})).await));
    happened.insert(of(&post(json!({"model": "nobody"})).await));
    happened.insert(of(&post(chat(&"x".repeat(4_000), 1)).await));
    happened.insert(of(&world.get("/nowhere", &[key]).await));
    happened.insert(of(&world.get(PATH, &[key]).await));
    for failure in [
        Failures { die_after_tokens: Some(0), ..Failures::default() },
        Failures { stall_after_tokens: Some(0), ..Failures::default() },
    ] {
        world.engines[0].set_failures(Failures { requests: Some(1), ..failure });
        happened.insert(of(&post(chat("a", 1)).await));
    }
    let mut open = world.begin(PATH, &streaming(chat("a", 5_000)), &[key]).await;
    http_body_util::BodyExt::frame(&mut open).await.unwrap().unwrap();
    happened.insert(of(&post(chat("a", 1)).await));
    drop(open);
    world.idle().await;

    let head = format!("POST {PATH} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer sk-one\r\n");
    // The first waits for the rest of its body, the second is told that it has none.
    for (ends, code) in [(false, "request_timeout"), (true, "incomplete_body")] {
        let text = raw(world.server.address(), format!("{head}content-length: 100\r\n\r\n{{").as_bytes(), ends).await;
        // A client that is not there any more need not be told.
        let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
        assert!(text.contains(code) || (ends && text.is_empty()), "{text}");
        happened.insert((status.unwrap_or(400), code.to_owned()));
    }
    let long = raw(world.server.address(), format!("{head}x: {}\r\n\r\n", "y".repeat(20_000)).as_bytes(), false).await;
    assert!(long.starts_with("HTTP/1.1 431 ") && !long.contains('{'), "{long}");
    happened.insert((431, "no body".to_owned()));

    let mut documented = BTreeSet::new();
    for row in table("### Errors") {
        let statuses: Vec<u16> = row[0].split(", ").map(|status| status.parse().unwrap()).collect();
        let codes: Vec<&str> = if row[1].contains('`') { code(row[1]).collect() } else { vec![row[1]] };
        // One status for all of the codes, or one for each.
        let paired = codes.iter().enumerate().map(|(place, code)| (statuses[place.min(statuses.len() - 1)], *code));
        documented.extend(paired.map(|(status, code)| (status, code.to_owned())));
    }
    assert_eq!(documented, happened);
}
