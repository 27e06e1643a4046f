//! What a request says of its routing, in headers and in its body's `nvext`.

use http::HeaderMap;
use pointsman_routing::Trigger;
use serde_json::Value;

use super::error::ApiError;
use crate::pool::{Ask, SessionInfo};

/// The policy class that a request asks for.
const POLICY_CLASS: &str = "x-dynamo-meta-policy-class";
/// Asks for the header that explains the routing.
pub(crate) const EXPLAIN: &str = "x-pointsman-explain";
/// Headers of a session's id and of its parent's, by who sends them; the first that is there counts.
const SESSIONS: [(&str, &str); 4] = [
    ("x-dynamo-session-id", "x-dynamo-parent-session-id"),
    ("x-claude-code-agent-id", "x-claude-code-parent-agent-id"),
    ("thread-id", "x-codex-parent-thread-id"),
    ("x-session-id", "x-parent-session-id"),
];
const SESSION_FINAL: &str = "x-dynamo-session-final";

/// What a request says beside its prompt.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct RoutingFields {
    pub(crate) policy_class: Option<String>,
    session: Option<SessionInfo>,
    priority_jump: f64,
    strict_priority: u32,
    expected_output_tokens: Option<u32>,
    router_temperature: Option<f64>,
    /// Whether the answer's body names the worker.
    pub(crate) names_worker: bool,
    /// Whether a header of the answer explains the routing.
    pub(crate) explains: bool,
}

/// A number that a header says, or else a field of the body.
struct Number {
    header: &'static str,
    field: &'static str,
    range: std::ops::RangeInclusive<f64>,
}

const PRIORITY: Number =
    Number { header: "x-dynamo-request-priority", field: "/nvext/agent_hints/priority", range: -1e9..=1e9 };
const STRICT_PRIORITY: Number = Number {
    header: "x-dynamo-request-strict-priority",
    field: "/nvext/agent_hints/strict_priority",
    range: 0.0..=4_294_967_295.0,
};
const OUTPUT_TOKENS: Number = Number {
    header: "x-pointsman-expected-output-tokens",
    field: "/nvext/agent_hints/osl",
    range: 0.0..=4_294_967_295.0,
};
const TEMPERATURE: Number =
    Number { header: "x-pointsman-router-temperature", field: "/nvext/router_temperature", range: 0.0..=1e9 };

impl Number {
    fn read(&self, headers: &HeaderMap, body: &Value) -> Result<Option<f64>, ApiError> {
        let header =
            headers.get(self.header).map(|value| value.to_str().ok().and_then(|text| text.trim().parse().ok()));
        let field = body.pointer(self.field).filter(|value| !value.is_null()).map(Value::as_f64);
        let (given, name) = if header.is_some() { (header, self.header) } else { (field, self.field) };
        match given {
            None => Ok(None),
            Some(Some(value)) if self.range.contains(&value) => Ok(Some(value)),
            Some(_) => {
                let name = name.trim_start_matches('/').replace('/', ".");
                let (least, most) = (self.range.start(), self.range.end());
                let message = format!("`{name}` must be a number from {least} to {most}");
                Err(ApiError::invalid("invalid_routing_field", message))
            }
        }
    }
}

impl RoutingFields {
    pub(crate) fn read(headers: &HeaderMap, body: &Value) -> Result<Self, ApiError> {
        let text = |name: &str| {
            let value = headers.get(name)?.to_str().ok()?.trim();
            (!value.is_empty()).then(|| value.to_owned())
        };
        let is_true = |name: &str| text(name).map(|value| matches!(&*value, "true" | "1"));
        let session = SESSIONS.iter().find_map(|(id, parent)| text(id).map(|id| (id, text(parent))));
        let extra = body.pointer("/nvext/extra_fields").and_then(Value::as_array);
        Ok(Self {
            policy_class: text(POLICY_CLASS),
            session: session.map(|(id, parent_id)| SessionInfo {
                id,
                parent_id,
                last: is_true(SESSION_FINAL),
                trigger: trigger(body),
            }),
            priority_jump: PRIORITY.read(headers, body)?.unwrap_or_default(),
            strict_priority: STRICT_PRIORITY.read(headers, body)?.unwrap_or_default() as u32,
            expected_output_tokens: OUTPUT_TOKENS.read(headers, body)?.map(|tokens| tokens as u32),
            router_temperature: TEMPERATURE.read(headers, body)?,
            names_worker: extra.is_some_and(|fields| fields.iter().any(|field| field == "worker_id")),
            explains: is_true(EXPLAIN).unwrap_or_default(),
        })
    }

    /// Writes what a policy may read into the request.
    pub(crate) fn fill(&mut self, ask: &mut Ask) {
        ask.session = self.session.take();
        ask.priority_jump = self.priority_jump;
        ask.strict_priority = self.strict_priority;
        ask.expected_output_tokens = self.expected_output_tokens;
        ask.router_temperature = self.router_temperature;
    }
}

/// What set the request off: the role of its last message.
fn trigger(body: &Value) -> Option<Trigger> {
    let last = body.get("messages")?.as_array()?.last()?;
    Some(match last.get("role").and_then(Value::as_str) {
        Some("tool") => Trigger::ToolResult,
        Some("user") => Trigger::UserMessage,
        _ => Trigger::Other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_sessions_first_header_counts_with_its_own_parent() {
        let given = headers(&[("x-session-id", "c"), ("x-parent-session-id", "p"), ("x-claude-code-agent-id", "a")]);
        let session = RoutingFields::read(&given, &json!({})).unwrap().session.unwrap();
        assert_eq!((session.id.as_str(), session.parent_id), ("a", None));
        let given = headers(&[("x-dynamo-session-id", "d"), ("x-dynamo-parent-session-id", "p"), ("thread-id", "t")]);
        let session = RoutingFields::read(&given, &json!({})).unwrap().session.unwrap();
        assert_eq!((session.id.as_str(), session.parent_id.as_deref()), ("d", Some("p")));
    }

    #[test]
    fn a_header_goes_before_the_bodys_field() {
        let body = json!({"nvext": {"agent_hints": {"priority": 5, "strict_priority": 2, "osl": 64}}});
        let fields = RoutingFields::read(&headers(&[("x-dynamo-request-priority", "7")]), &body).unwrap();
        assert_eq!((fields.priority_jump, fields.strict_priority, fields.expected_output_tokens), (7.0, 2, Some(64)));
        let error = RoutingFields::read(&headers(&[]), &json!({"nvext": {"agent_hints": {"osl": -1}}})).unwrap_err();
        assert!(error.message.contains("nvext.agent_hints.osl"), "{error:?}");
    }
}
