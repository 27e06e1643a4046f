//! Mooncake's traces: one JSON object a line. (github.com/kvcache-ai/Mooncake, FAST25-release.)

use std::borrow::Cow;
use std::io::BufRead;

use pointsman_contract::Trigger;
use serde::Deserialize;
use serde_json::Number;

use super::lines::Lines;
use super::{Builder, MAX_TIMESTAMP_MS, MAX_TOKENS, TraceError, TraceRequest, ids_do_not_fit};

/// One line. Numbers stay as they were written, so that an error can name the field and the value.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Record<'a> {
    timestamp: Option<Number>,
    input_length: Option<Number>,
    output_length: Option<Number>,
    hash_ids: Option<Vec<Number>>,
    #[serde(borrow)]
    session_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    parent_session_id: Option<Cow<'a, str>>,
    session_final: Option<bool>,
    input_trigger: Option<InputTrigger>,
    pinned_worker: Option<Number>,
    priority: Option<Number>,
    #[serde(borrow)]
    policy_class: Option<Cow<'a, str>>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum InputTrigger {
    UserMessage,
    ToolResult,
    Other,
}

/// Reads from the current line on.
pub(super) fn read<R: BufRead>(
    lines: &mut Lines<'_, R>,
    builder: &mut Builder,
    limit: usize,
) -> Result<(), TraceError> {
    let mut block_ids = Vec::new();
    for _ in 0..limit {
        let text = lines.text()?;
        // serde would take a list as a record, value by value.
        if !text.trim_start().starts_with('{') {
            return Err(lines.error("a request must be a JSON object, such as {\"timestamp\": 0, ...}".to_owned()));
        }
        let record: Record<'_> = match serde_json::from_str(text) {
            Ok(record) => record,
            Err(error) => return Err(lines.error(explain(&error, lines.complete()))),
        };
        if let Err(problem) = push(&record, &mut block_ids, builder) {
            return Err(lines.error(problem));
        }
        builder.locate(lines.number());
        if !lines.advance()? {
            break;
        }
    }
    Ok(())
}

fn push(record: &Record<'_>, block_ids: &mut Vec<u64>, builder: &mut Builder) -> Result<(), String> {
    block_ids.clear();
    for id in record.hash_ids.iter().flatten() {
        block_ids.push(whole("hash_ids", id, u64::MAX)?);
    }
    let arrival_us = timestamp_us(record.timestamp.as_ref())?;
    let input_tokens = tokens("input_length", record.input_length.as_ref())?;
    // To the builder, no ids are ids that were not given.
    if record.hash_ids.is_some() && block_ids.is_empty() && input_tokens > 0 {
        return Err(ids_do_not_fit(0, input_tokens));
    }
    builder.push(&TraceRequest {
        arrival_us,
        input_tokens,
        output_tokens: tokens("output_length", record.output_length.as_ref())?,
        block_ids,
        session_id: record.session_id.as_deref(),
        parent_session_id: record.parent_session_id.as_deref(),
        session_final: record.session_final,
        input_trigger: record.input_trigger.map(|trigger| match trigger {
            InputTrigger::UserMessage => Trigger::UserMessage,
            InputTrigger::ToolResult => Trigger::ToolResult,
            InputTrigger::Other => Trigger::Other,
        }),
        pinned_worker: record.pinned_worker.as_ref().map(|id| whole("pinned_worker", id, u64::MAX)).transpose()?,
        priority: match &record.priority {
            Some(number) => at_least_zero("priority", number)?,
            None => 0.0,
        },
        policy_class: record.policy_class.as_deref(),
    })
}

fn timestamp_us(number: Option<&Number>) -> Result<u64, String> {
    let number = number.ok_or("`timestamp` is missing")?;
    if let Some(ms) = number.as_u64().filter(|ms| *ms <= MAX_TIMESTAMP_MS) {
        return Ok(ms * 1_000);
    }
    let ms = at_least_zero("timestamp", number)?;
    if ms > MAX_TIMESTAMP_MS as f64 {
        return Err(format!("`timestamp` is {number}; at most {MAX_TIMESTAMP_MS} milliseconds are allowed"));
    }
    Ok((ms * 1_000.0).round() as u64)
}

fn tokens(field: &str, number: Option<&Number>) -> Result<u32, String> {
    let number = number.ok_or_else(|| format!("`{field}` is missing"))?;
    whole(field, number, MAX_TOKENS).map(|tokens| tokens as u32)
}

fn whole(field: &str, number: &Number, most: u64) -> Result<u64, String> {
    match number.as_u64() {
        Some(value) if value <= most => Ok(value),
        Some(_) => Err(format!("`{field}` is {number}; at most {most} is allowed")),
        None => Err(format!("`{field}` is {number}; it must be a whole number of at least 0")),
    }
}

fn at_least_zero(field: &str, number: &Number) -> Result<f64, String> {
    match number.as_f64() {
        Some(value) if value.is_finite() && value >= 0.0 => Ok(value),
        _ => Err(format!("`{field}` is {number}; it must be a number of at least 0")),
    }
}

/// The parser's message without the place in it: each line is parsed alone, so the parser's line is always 1.
fn explain(error: &serde_json::Error, complete: bool) -> String {
    let text = error.to_string();
    let message = text.rsplit_once(" at line ").map_or(text.as_str(), |(message, _)| message);
    if error.is_eof() {
        let cause = if complete { "" } else { "; the file seems to be cut off" };
        return format!("the JSON ends in the middle of a request (column {}){cause}", error.column());
    }
    format!("{message} (column {})", error.column())
}
