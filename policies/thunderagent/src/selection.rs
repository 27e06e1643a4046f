//! The worker selection: the worker that holds the session, else the one with the least work.
//!
//! cost = active prefill tokens + decode cost blocks × block size, in tokens: work under way together with the blocks
//! that this request would add. The first row of the affinity target is taken where it has one among the rows, whatever
//! its cost; else the lowest cost, the first row among equals.

use pointsman_sdk::lowest;
use pointsman_sdk::prelude::*;

use crate::ThunderAgent;

impl Scorer for ThunderAgent {
    fn reads(&self) -> Reads {
        [Signal::LoadActivePrefillTokens, Signal::LoadDecodeCostBlocks].into()
    }

    fn score(&mut self, request: &Request<'_>, workers: &Candidates<'_>, costs: &mut [f64]) -> Result<(), PolicyError> {
        let block_size = f64::from(request.block_size());
        let prefill_tokens = workers.column(Signal::LoadActivePrefillTokens)?;
        let decode_blocks = workers.column(Signal::LoadDecodeCostBlocks)?;
        for ((cost, tokens), blocks) in costs.iter_mut().zip(prefill_tokens).zip(decode_blocks) {
            *cost = tokens + blocks * block_size;
        }
        Ok(())
    }
}

impl Picker for ThunderAgent {
    fn reads(&self) -> Reads {
        Reads::COST | Reads::AFFINITY
    }

    fn pick(&mut self, request: &Request<'_>, workers: &Candidates<'_>) -> Result<usize, PolicyError> {
        match request.affinity_target()? {
            Some(target) if !target.is_empty() => Ok(target.start),
            _ => lowest(workers.costs()?).ok_or_else(|| PolicyError::failed("no eligible worker")),
        }
    }
}

#[cfg(test)]
mod tests {
    use pointsman_sdk::testkit::{Guest, Kit, Table};

    use super::*;

    fn guest() -> Guest {
        Kit::<ThunderAgent>::new().block_size(16).configure().unwrap()
    }

    /// Workers that cost 161, 100, 84 and 84 tokens.
    fn table() -> Table {
        let row = |tokens, blocks| [("load.active-prefill-tokens", tokens), ("load.decode-cost-blocks", blocks)];
        Table::new().row(&row(1.0, 10.0)).row(&row(100.0, 0.0)).row(&row(20.0, 4.0)).row(&row(84.0, 0.0))
    }

    #[test]
    fn the_cost_is_prefill_tokens_and_decode_blocks_in_tokens() {
        assert_eq!(guest().score(&table()).unwrap(), [161.0, 100.0, 84.0, 84.0]);
    }

    #[test]
    fn without_a_target_the_least_work_wins_and_the_first_row_among_equals() {
        assert_eq!(guest().decide(&table()).unwrap().unwrap().row, 2);
    }

    #[test]
    fn the_first_row_of_the_target_wins_whatever_it_costs() {
        assert_eq!(guest().decide(&table().affinity_target(0..2)).unwrap().unwrap().row, 0);
    }

    #[test]
    fn a_target_without_a_row_leaves_it_to_the_cost() {
        assert_eq!(guest().decide(&table().affinity_target(0..0)).unwrap().unwrap().row, 2);
    }
}
