//! The Rust references decide what the conformance kit says, which other SDKs and components are held against.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use pointsman_contract::{Event, Ticket, Verdict};
use pointsman_sdk::testkit::{Guest, Kit, Table};
use serde_json::{Value, json};

fn cases(name: &str) -> Vec<Value> {
    let path = format!("{}/../../guest-sdk/conformance/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    file["cases"].as_array().unwrap().clone()
}

/// Runs each case on a guest of its own, and counts those that were refused as they must be.
fn check(name: &str, configure: impl Fn(&str) -> Result<Guest, String>, run: impl Fn(&Value, Guest)) {
    let (mut refused, all) = (0, cases(name));
    for case in &all {
        let parameters = case.get("parameters").cloned().unwrap_or_else(|| json!({}));
        match (configure(&parameters.to_string()), case["expect"]["refused"].as_str()) {
            (Err(sentence), Some(expected)) => {
                assert_eq!(sentence, expected, "{}", case["name"]);
                refused += 1;
            }
            (guest, expected) => {
                assert_eq!(expected, None, "{}", case["name"]);
                run(case, guest.unwrap());
            }
        }
    }
    assert!(refused >= 10 && all.len() >= 40, "{name} has {} cases, {refused} of parameters", all.len());
}

#[test]
fn least_loaded_warm() {
    let configure =
        |parameters: &str| Kit::<least_loaded_warm::LeastLoadedWarm>::new().parameters(parameters).configure();
    check("least-loaded-warm", configure, |case, mut guest| {
        let mut table = Table::new().fact("request.blocks", case["facts"]["request.blocks"].as_f64().unwrap());
        let workers = case["workers"].as_array().unwrap();
        for worker in workers {
            let signals = worker["signals"].as_object().unwrap();
            let signals: Vec<_> = signals.iter().map(|(name, value)| (&**name, value.as_f64().unwrap())).collect();
            table = table.row(&signals);
        }
        let costs: Vec<f64> = serde_json::from_value(case["expect"]["costs"].clone()).unwrap();
        assert_eq!(guest.score(&table).unwrap(), costs, "{}", case["name"]);
        let chosen = &workers[guest.decide(&table).unwrap().unwrap().row as usize];
        assert_eq!((&chosen["worker"], &chosen["rank"]), (&case["expect"]["worker"], &case["expect"]["rank"]));
    });
}

#[test]
fn max_in_flight() {
    let configure = |parameters: &str| Kit::<max_in_flight::MaxInFlight>::new().parameters(parameters).configure();
    check("max-in-flight", configure, |case, mut guest| {
        for (place, step) in case["steps"].as_array().unwrap().iter().enumerate() {
            let ticket = |event: &str| step.get(event).map(|ticket| ticket.as_u64().unwrap() as Ticket);
            let event = if let Some(ticket) = ticket("classify") {
                let became = match guest.classify(ticket, &Table::new()).unwrap() {
                    None => "defer",
                    Some(Verdict::Admit(_)) => "admit",
                    Some(Verdict::Reject(_)) => "reject",
                };
                assert_eq!(step["expect"], became, "{}, step {}", case["name"], place + 1);
                continue;
            } else if let Some(ticket) = ticket("sent") {
                Event::Sent { ticket, worker: 0 }
            } else if let Some(ticket) = ticket("responding") {
                Event::Responding { ticket, worker: 0 }
            } else if let Some(ticket) = ticket("completed") {
                Event::Completed { ticket, worker: 0, context_tokens: None }
            } else {
                Event::Aborted { ticket: ticket("aborted").unwrap(), worker: None, error: None }
            };
            let resolved = guest.event(&event, step["now_ms"].as_f64().unwrap_or_default()).unwrap();
            let admitted: Vec<Ticket> = resolved.iter().map(|resolution| resolution.ticket).collect();
            assert_eq!(json!(admitted), step["admits"], "{}, step {}", case["name"], place + 1);
        }
    });
}
