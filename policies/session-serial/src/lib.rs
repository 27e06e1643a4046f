//! One active request for each session, in the order of arrival; requests without a session go ahead.
//!
//! Written with a future for each request: it awaits its turn, keeps it until the request ends, and gives it up by being
//! dropped, wherever that happens.
//!
//! No parameters.
#![forbid(unsafe_code)]

use pointsman_sdk::prelude::*;

/// The policy.
#[derive(Clone)]
pub struct SessionSerial {
    turns: Turns<String>,
}

impl Policy for SessionSerial {
    type Parameters = NoParameters;
    const NAME: &'static str = "session-serial";
    const DESCRIPTION: &'static str = "Admits one request of each session at a time, in the order of arrival.";

    fn configure(_: &Setup, _: NoParameters) -> Result<Self, PolicyError> {
        Ok(Self { turns: Turns::new(1) })
    }
}

impl AsyncClassifier for SessionSerial {
    fn reads(&self) -> Reads {
        Text::SessionId.into()
    }

    async fn classify(self, request: OwnedRequest, cx: Context) -> Result<Verdict, PolicyError> {
        if let Some(session) = request.read().session_id()? {
            cx.keep(self.turns.take(session.to_owned()).await);
        }
        Ok(Verdict::admit())
    }
}

pointsman_sdk::export!(SessionSerial: async_classifier);

#[cfg(test)]
mod tests {
    use pointsman_sdk::testkit::{Guest, Kit, Table};

    use super::*;

    fn guest() -> Guest {
        Kit::<SessionSerial>::new().configure().unwrap()
    }

    /// Whether the request is admitted at once.
    fn ask(guest: &mut Guest, ticket: Ticket, session: &str) -> bool {
        let verdict = guest.classify(ticket, &Table::new().text("session.id", session)).unwrap();
        assert!(verdict.as_ref().is_none_or(|verdict| *verdict == Verdict::admit()));
        verdict.is_some()
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
    fn one_request_a_session_in_the_order_of_arrival() {
        let mut guest = guest();
        assert!(ask(&mut guest, 1, "a") && !ask(&mut guest, 2, "a") && !ask(&mut guest, 3, "a"));
        assert!(ask(&mut guest, 4, "b"), "another session");
        assert_eq!(guest.event(&Event::Sent { ticket: 1, worker: 0 }, 0.0).unwrap(), []);
        assert_eq!(guest.event(&completed(1), 0.0).unwrap(), admitted(2));
        assert_eq!(guest.event(&aborted(2), 0.0).unwrap(), admitted(3));
        assert_eq!(guest.event(&completed(3), 0.0).unwrap(), []);
        assert!(ask(&mut guest, 5, "a"), "the session is idle again");
    }

    #[test]
    fn a_request_cancelled_while_it_waits_gives_up_its_place() {
        let mut guest = guest();
        assert!(ask(&mut guest, 1, "a") && !ask(&mut guest, 2, "a") && !ask(&mut guest, 3, "a"));
        assert_eq!(guest.event(&aborted(2), 0.0).unwrap(), []);
        assert_eq!(guest.event(&completed(1), 0.0).unwrap(), admitted(3));
    }

    #[test]
    fn requests_without_a_session_go_ahead() {
        let mut guest = guest();
        for ticket in 1..4 {
            assert_eq!(guest.classify(ticket, &Table::new()).unwrap(), Some(Verdict::admit()));
        }
    }
}
