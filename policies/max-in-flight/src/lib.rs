//! So many requests at a time, in the order of arrival.
//!
//! A request is in flight from its admission until it completes or aborts. While `max_requests` are, further ones are
//! deferred; each that ends lets the first of them in.
//!
//! | parameter | values | meaning |
//! |---|---|---|
//! | `max_requests` | at least 1, required | requests in flight at a time |
#![forbid(unsafe_code)]

use std::collections::BTreeSet;

use pointsman_sdk::prelude::*;

/// The policy's parameters.
#[derive(Parameters)]
pub struct MaxInFlightParameters {
    /// The most requests in flight at a time.
    #[parameter(min = 1)]
    max_requests: u32,
}

/// The policy. Tickets count up, so a set of them is a queue.
pub struct MaxInFlight {
    most: usize,
    in_flight: BTreeSet<Ticket>,
    waiting: BTreeSet<Ticket>,
}

impl Policy for MaxInFlight {
    type Parameters = MaxInFlightParameters;
    const NAME: &'static str = "max-in-flight";
    const DESCRIPTION: &'static str = "Admits so many requests at a time, in the order of arrival.";

    fn configure(_: &Setup, parameters: MaxInFlightParameters) -> Result<Self, PolicyError> {
        let most = usize::try_from(parameters.max_requests).unwrap_or(usize::MAX);
        Ok(Self { most, in_flight: BTreeSet::new(), waiting: BTreeSet::new() })
    }
}

impl Classifier for MaxInFlight {
    fn reads(&self) -> Reads {
        Reads::NONE
    }

    fn classify(&mut self, request: &ClassifyRequest<'_>) -> Result<Option<Verdict>, PolicyError> {
        if self.in_flight.len() < self.most {
            self.in_flight.insert(request.ticket());
            return Ok(Some(Verdict::admit()));
        }
        self.waiting.insert(request.ticket());
        Ok(None)
    }

    fn on_event(&mut self, event: &Event, _: f64) -> Result<Vec<Resolution>, PolicyError> {
        let Some(ended) = event.ended() else { return Ok(Vec::new()) };
        self.waiting.remove(&ended);
        if !self.in_flight.remove(&ended) {
            return Ok(Vec::new());
        }
        let next = self.waiting.pop_first();
        self.in_flight.extend(next);
        Ok(next.map(|ticket| Resolution { ticket, verdict: Verdict::admit() }).into_iter().collect())
    }
}

pointsman_sdk::export!(MaxInFlight: classifier);

#[cfg(test)]
mod tests {
    use pointsman_sdk::testkit::{Guest, Kit, Table};

    use super::*;

    /// A guest of two requests at a time, with so many asked for.
    fn asked(requests: Ticket) -> Guest {
        let mut guest = Kit::<MaxInFlight>::new().parameters(r#"{"max_requests":2}"#).configure().unwrap();
        for ticket in 1..=requests {
            let expected = (ticket <= 2).then(Verdict::admit);
            assert_eq!(guest.classify(ticket, &Table::new()).unwrap(), expected, "ticket {ticket}");
        }
        guest
    }

    fn completed(ticket: Ticket) -> Event {
        Event::Completed { ticket, worker: 0, context_tokens: None }
    }

    fn aborted(ticket: Ticket) -> Event {
        Event::Aborted { ticket, worker: None, error: None }
    }

    fn admitted(ticket: Ticket) -> Vec<Resolution> {
        vec![Resolution { ticket, verdict: Verdict::admit() }]
    }

    #[test]
    fn each_request_that_ends_lets_the_first_that_waits_in() {
        let mut guest = asked(5);
        assert_eq!(guest.event(&Event::Sent { ticket: 1, worker: 0 }, 0.0).unwrap(), []);
        assert_eq!(guest.event(&completed(2), 0.0).unwrap(), admitted(3));
        assert_eq!(guest.event(&aborted(1), 0.0).unwrap(), admitted(4));
        assert_eq!(guest.event(&completed(4), 0.0).unwrap(), admitted(5));
        assert_eq!(guest.event(&completed(3), 0.0).unwrap(), []);
        assert_eq!(guest.event(&completed(5), 0.0).unwrap(), []);
        assert_eq!(guest.classify(6, &Table::new()).unwrap(), Some(Verdict::admit()));
    }

    #[test]
    fn a_request_cancelled_while_it_waits_frees_nothing_and_is_passed_over() {
        let mut guest = asked(4);
        assert_eq!(guest.event(&aborted(3), 0.0).unwrap(), []);
        assert_eq!(guest.event(&completed(1), 0.0).unwrap(), admitted(4));
    }

    #[test]
    fn there_is_a_place_at_least() {
        let refused = Kit::<MaxInFlight>::new().parameters(r#"{"max_requests":0}"#).configure().err();
        assert_eq!(refused.as_deref(), Some("max_requests must be at least 1"));
    }
}
