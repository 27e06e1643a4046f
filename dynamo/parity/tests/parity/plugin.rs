//! Dynamo's traits over closures.

use dynamo_kv_router::KvRouterConfig;
use dynamo_kv_router::plugins::worker_selection::{
    ScoredWorkerCandidate, WorkerCandidate, WorkerCandidates, WorkerFilter, WorkerInputView, WorkerInputs,
    WorkerPicker, WorkerScorer, WorkerSelectionContext, WorkerSelectionPolicy, WorkerSelectionPolicyError,
};

pub type Answer<T> = Result<T, WorkerSelectionPolicyError>;
pub type Context<'a> = WorkerSelectionContext<'a>;

struct Stage<F> {
    inputs: WorkerInputs,
    call: F,
}

/// A filter that reads `inputs`.
pub fn keep<F>(inputs: WorkerInputs, call: F) -> Box<dyn WorkerFilter>
where
    F: FnMut(&Context<'_>, WorkerCandidate<'_>) -> Answer<bool> + Send + 'static,
{
    Box::new(Stage { inputs, call })
}

/// A scorer that reads `inputs`.
pub fn score<F>(inputs: WorkerInputs, call: F) -> Box<dyn WorkerScorer>
where
    F: FnMut(&Context<'_>, WorkerCandidates<'_>, &mut [f64]) -> Answer<()> + Send + 'static,
{
    Box::new(Stage { inputs, call })
}

/// A picker that reads `inputs`.
pub fn pick<F>(inputs: WorkerInputs, call: F) -> Box<dyn WorkerPicker>
where
    F: FnMut(&Context<'_>, WorkerInputView<'_>) -> Answer<usize> + Send + 'static,
{
    Box::new(Stage { inputs, call })
}

/// A policy of these stages.
pub fn policy(
    filters: Vec<Box<dyn WorkerFilter>>,
    scorers: Vec<Box<dyn WorkerScorer>>,
    picker: Box<dyn WorkerPicker>,
) -> WorkerSelectionPolicy {
    WorkerSelectionPolicy::new_with_filters(KvRouterConfig::default(), "aggregated", filters, scorers, picker)
}

/// Places among the candidates in the order of their rows: Dynamo leaves theirs to a hash map.
pub fn sorted(candidates: &[ScoredWorkerCandidate]) -> Vec<usize> {
    let mut places: Vec<_> = (0..candidates.len()).collect();
    places.sort_by_key(|place| candidates[*place].worker());
    places
}

/// Takes the lowest cost, the first row among equals.
pub fn cheapest() -> Box<dyn WorkerPicker> {
    pick(WorkerInputs::NONE, |_, input| {
        let candidates = input.candidates();
        let places = sorted(candidates).into_iter();
        let cheapest = places.min_by(|one, other| candidates[*one].cost().total_cmp(&candidates[*other].cost()));
        cheapest.ok_or_else(|| WorkerSelectionPolicyError::failed("no eligible worker"))
    })
}

impl<F> WorkerFilter for Stage<F>
where
    F: FnMut(&Context<'_>, WorkerCandidate<'_>) -> Answer<bool> + Send,
{
    fn required_worker_inputs(&self) -> WorkerInputs {
        self.inputs
    }

    fn keep(&mut self, context: &Context<'_>, candidate: WorkerCandidate<'_>) -> Answer<bool> {
        (self.call)(context, candidate)
    }
}

impl<F> WorkerScorer for Stage<F>
where
    F: FnMut(&Context<'_>, WorkerCandidates<'_>, &mut [f64]) -> Answer<()> + Send,
{
    fn required_worker_inputs(&self) -> WorkerInputs {
        self.inputs
    }

    fn score(&mut self, context: &Context<'_>, candidates: WorkerCandidates<'_>, costs: &mut [f64]) -> Answer<()> {
        (self.call)(context, candidates, costs)
    }
}

impl<F> WorkerPicker for Stage<F>
where
    F: FnMut(&Context<'_>, WorkerInputView<'_>) -> Answer<usize> + Send,
{
    fn required_worker_inputs(&self) -> WorkerInputs {
        self.inputs
    }

    fn pick(&mut self, context: &Context<'_>, input: WorkerInputView<'_>) -> Answer<usize> {
        (self.call)(context, input)
    }
}
