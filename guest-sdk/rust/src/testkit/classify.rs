//! The guest under test as a classifier.

use pointsman_contract::{Event, Progress, Resolution, Ticket, Verdict};

use super::{Guest, Table};

impl Guest {
    /// Asks the classifier about the request of a table, whose rows it does not see; none where it defers it.
    ///
    /// # Errors
    /// The policy's own sentence, or that the table names what no contract has.
    ///
    /// # Panics
    /// Where two guests of the same setup answer differently.
    pub fn classify(&mut self, ticket: Ticket, request: &Table) -> Result<Option<Verdict>, String> {
        request.check_names()?;
        let packed = request.packed(&self.inputs().classify.clone().unwrap_or_default());
        self.both(|guest| guest.classify(ticket, &packed.call()))
    }

    /// Tells the classifier of an event: what it resolves.
    ///
    /// # Errors
    /// The policy's own sentence.
    ///
    /// # Panics
    /// Where two guests of the same setup answer differently.
    pub fn event(&mut self, event: &Event, now_ms: f64) -> Result<Vec<Resolution>, String> {
        self.both(|guest| guest.on_event(event, now_ms))
    }

    /// Gives the classifier its tick: what it resolves.
    ///
    /// # Errors
    /// The policy's own sentence.
    ///
    /// # Panics
    /// Where two guests of the same setup answer differently.
    pub fn tick(&mut self, now_ms: f64, progress: &[Progress]) -> Result<Vec<Resolution>, String> {
        self.both(|guest| guest.on_tick(now_ms, progress))
    }
}
