//! A budget for the wait: the classifier of Dynamo's admission-control guide.
//!
//! Each request may wait in the queue until `max_wait_ms` after the router got it. The classifier sets that time as the
//! request's due time; the queue ends what is still waiting then. A request whose budget is spent already is rejected.
//!
//! | parameter | values | meaning |
//! |---|---|---|
//! | `max_wait_ms` | 1 to 60000, required | the budget, in milliseconds since ingress |
#![forbid(unsafe_code)]

use pointsman_sdk::prelude::*;

/// The policy's parameters.
#[derive(Parameters)]
pub struct QueueBudgetParameters {
    /// How long a request may wait, in milliseconds since the router got it.
    #[parameter(min = 1, max = 60000)]
    max_wait_ms: u32,
}

/// The policy.
pub struct QueueBudget {
    budget_ms: f64,
}

impl Policy for QueueBudget {
    type Parameters = QueueBudgetParameters;
    const NAME: &'static str = "queue-budget";
    const DESCRIPTION: &'static str = "Gives each request a time by which it must have left the queue.";

    fn configure(_: &Setup, parameters: QueueBudgetParameters) -> Result<Self, PolicyError> {
        Ok(Self { budget_ms: f64::from(parameters.max_wait_ms) })
    }
}

impl Classifier for QueueBudget {
    fn reads(&self) -> Reads {
        [Fact::NowMs, Fact::IngressMs].into()
    }

    fn classify(&mut self, request: &ClassifyRequest<'_>) -> Result<Option<Verdict>, PolicyError> {
        let due_ms = request.ingress_ms()? + self.budget_ms;
        if request.now_ms()? >= due_ms {
            return Ok(Some(
                Rejection {
                    class: ErrorClass::CapacityExhausted,
                    public_message: Some("Admission wait budget exhausted; retry later".to_owned()),
                    diagnostic: "admission wait budget exhausted".to_owned(),
                }
                .into(),
            ));
        }
        Ok(Some(Admission { due_ms: Some(due_ms), ..Admission::default() }.into()))
    }
}

pointsman_sdk::export!(QueueBudget: classifier);

#[cfg(test)]
mod tests {
    use pointsman_sdk::testkit::{Kit, Table};

    use super::*;

    fn kit(parameters: &str) -> Kit<QueueBudget> {
        Kit::new().parameters(parameters)
    }

    /// The verdict at `now_ms` on a request of `ingress_ms`.
    fn verdict(now_ms: f64, ingress_ms: f64) -> Verdict {
        let mut guest = kit(r#"{"max_wait_ms":2000}"#).configure().unwrap();
        let request = Table::new().fact("request.now-ms", now_ms).fact("request.ingress-ms", ingress_ms);
        guest.classify(1, &request).unwrap().unwrap()
    }

    #[test]
    fn the_due_time_counts_from_ingress() {
        let due_ms = Some(2500.25);
        for now_ms in [500.25, 1000.0, 2500.0] {
            assert_eq!(verdict(now_ms, 500.25), Admission { due_ms, ..Admission::default() }.into());
        }
    }

    #[test]
    fn a_spent_budget_is_a_rejection_in_the_guides_words() {
        for now_ms in [2500.25, 9000.0] {
            let Verdict::Reject(rejection) = verdict(now_ms, 500.25) else { panic!("admitted at {now_ms}") };
            assert_eq!(rejection.class, ErrorClass::CapacityExhausted);
            assert_eq!(rejection.public_message.as_deref(), Some("Admission wait budget exhausted; retry later"));
            assert_eq!(rejection.diagnostic, "admission wait budget exhausted");
        }
    }

    #[test]
    fn the_budget_is_1_to_60000_ms() {
        for allowed in [1, 2000, 60000] {
            assert!(kit(&format!(r#"{{"max_wait_ms":{allowed}}}"#)).configure().is_ok());
        }
        for refused in ["0", "60001"] {
            let error = kit(&format!(r#"{{"max_wait_ms":{refused}}}"#)).configure().err().unwrap();
            assert_eq!(error, "max_wait_ms must be between 1 and 60000");
        }
        let error = kit("{}").configure().err().unwrap();
        assert!(error.contains("max_wait_ms"), "{error}");
    }
}
