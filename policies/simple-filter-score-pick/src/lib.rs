//! A filter, a scorer and a picker that looks at the request: Dynamo's example `simple-filter-score-pick`.
//!
//! - filter: a worker may serve the request if its device holds at least `min_device_overlap_blocks` of the prompt.
//! - scorer: the cost is the worker's active requests.
//! - picker: the result of a tool continues a context that some worker has just computed, so it goes where most of that
//!   is on the device, the last row among equals; any other request goes to the lowest cost, the first row among equals.
//!
//! | parameter | unit | default | range |
//! |---|---|---|---|
//! | `min_device_overlap_blocks` | KV blocks | required | 0 or more |
//!
//! With more than 0 a prompt that no worker knows has no worker to serve it.
#![forbid(unsafe_code)]

use pointsman_sdk::lowest;
use pointsman_sdk::prelude::*;

/// The parameters.
#[derive(Parameters)]
pub struct Parameters {
    /// The blocks of the prompt that a worker's device must hold to serve it.
    #[parameter(min = 0.0, rule = "a finite non-negative number")]
    min_device_overlap_blocks: f64,
}

/// The policy.
pub struct SimpleFilterScorePick {
    min_device_overlap_blocks: f64,
}

impl Policy for SimpleFilterScorePick {
    type Parameters = Parameters;
    const NAME: &'static str = "simple-filter-score-pick";
    const DESCRIPTION: &'static str =
        "Asks for a cached prefix, then takes the least loaded worker, or for a tool's result the best cached.";

    fn configure(_: &Setup, Parameters { min_device_overlap_blocks }: Parameters) -> Result<Self, PolicyError> {
        Ok(Self { min_device_overlap_blocks })
    }
}

impl Filter for SimpleFilterScorePick {
    fn reads(&self) -> Reads {
        Signal::CacheDeviceOverlapBlocks.into()
    }

    fn keep(&mut self, _: &Request<'_>, workers: &Candidates<'_>, keep: &mut [bool]) -> Result<(), PolicyError> {
        for (keep, overlap) in keep.iter_mut().zip(workers.column(Signal::CacheDeviceOverlapBlocks)?) {
            *keep = *overlap >= self.min_device_overlap_blocks;
        }
        Ok(())
    }
}

impl Scorer for SimpleFilterScorePick {
    fn reads(&self) -> Reads {
        Signal::LoadActiveRequests.into()
    }

    fn score(&mut self, _: &Request<'_>, workers: &Candidates<'_>, costs: &mut [f64]) -> Result<(), PolicyError> {
        costs.copy_from_slice(workers.column(Signal::LoadActiveRequests)?);
        Ok(())
    }
}

impl Picker for SimpleFilterScorePick {
    fn reads(&self) -> Reads {
        Reads::COST | Signal::CacheDeviceOverlapBlocks | Fact::SessionTrigger
    }

    fn pick(&mut self, request: &Request<'_>, workers: &Candidates<'_>) -> Result<usize, PolicyError> {
        let row = if request.input_trigger()? == Some(Trigger::ToolResult) {
            let overlaps = workers.column(Signal::CacheDeviceOverlapBlocks)?.iter().enumerate();
            overlaps.max_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(row, _)| row)
        } else {
            lowest(workers.costs()?)
        };
        row.ok_or_else(|| PolicyError::failed("no eligible worker"))
    }
}

pointsman_sdk::export!(SimpleFilterScorePick: filter, scorer, picker);

#[cfg(test)]
mod tests {
    use pointsman_sdk::testkit::{Guest, Kit, Table};

    use super::*;

    fn guest(parameters: &str) -> Result<Guest, String> {
        Kit::<SimpleFilterScorePick>::new().parameters(parameters).configure()
    }

    /// Workers of (device overlap, active requests).
    fn table(workers: &[(f64, f64)]) -> Table {
        workers.iter().fold(Table::new(), |table, (overlap, active)| {
            table.row(&[("cache.device-overlap-blocks", *overlap), ("load.active-requests", *active)])
        })
    }

    #[test]
    fn a_worker_below_the_minimum_may_not_serve() {
        let mut guest = guest(r#"{"min_device_overlap_blocks":2}"#).unwrap();
        let workers = table(&[(1.9, 0.0), (2.0, 5.0), (3.0, 4.0), (0.0, 0.0)]);
        assert_eq!(guest.filter(&workers).unwrap(), [1, 2]);
        assert_eq!(guest.decide(&workers).unwrap().unwrap().row, 2);
        assert_eq!(guest.decide(&table(&[(1.0, 0.0)])).unwrap(), None);
    }

    #[test]
    fn the_fewest_active_requests_win_and_the_first_row_among_equals() {
        let mut guest = guest(r#"{"min_device_overlap_blocks":0}"#).unwrap();
        let selection = guest.decide(&table(&[(9.0, 3.0), (0.0, 1.0), (5.0, 1.0)])).unwrap().unwrap();
        assert_eq!((selection.row, selection.cost), (1, 1.0));
    }

    #[test]
    fn a_tools_result_goes_to_the_longest_prefix_the_last_row_among_equals() {
        let mut guest = guest(r#"{"min_device_overlap_blocks":0}"#).unwrap();
        let workers = table(&[(4.0, 0.0), (7.0, 2.0), (7.0, 9.0), (1.0, 0.0)]);
        let row = |guest: &mut Guest, trigger: Trigger| {
            guest.decide(&workers.clone().fact("session.trigger", trigger.as_f64())).unwrap().unwrap().row
        };
        assert_eq!(row(&mut guest, Trigger::ToolResult), 2);
        assert_eq!(row(&mut guest, Trigger::UserMessage), 0);
        assert_eq!(row(&mut guest, Trigger::Other), 0);
    }

    #[test]
    fn the_minimum_is_required_finite_and_not_negative() {
        assert_eq!(
            guest(r#"{"min_device_overlap_blocks":-1}"#).err().as_deref(),
            Some("min_device_overlap_blocks must be a finite non-negative number")
        );
        assert!(
            guest(r#"{"min_device_overlap_blocks":"2"}"#).err().unwrap().starts_with("min_device_overlap_blocks: ")
        );
        assert!(guest("{}").err().unwrap().contains("min_device_overlap_blocks"));
        assert!(guest(r#"{"min_device_overlap_blocks":0,"extra":1}"#).err().unwrap().contains("`extra`"));
    }
}
