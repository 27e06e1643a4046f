//! Pointsman's policies inside NVIDIA Dynamo's router.
//!
//! [`register`] links two types into Dynamo's plugin registry, both named `wasm`: one of worker selection, one of request
//! classifiers. Any number of policies then come and go as files, by Dynamo's own router-policy YAML:
//!
//! ```yaml
//! worker_selection:
//!   aggregated: least-busy
//!   instances:
//!     - name: least-busy
//!       type: wasm
//!       parameters:
//!         component: least-busy.wasm
//!         parameters: {min_device_overlap_blocks: 1}
//! request_classifier:
//!   type: wasm
//!   parameters:
//!     component: queue-budget
//!     parameters: {max_wait_ms: 2000}
//! ```
//!
//! Dynamo has the workers, the eligibility, the queue, the load and the bookings. A selection is translated to the
//! contract's names (`table`), decided by Pointsman's pipeline with its limits and its answers to a fault, and translated
//! back (`policy`). A request and what becomes of it are told to the classifier by Pointsman's own lifecycles
//! (`classifier`).

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod classifier;
mod clock;
mod component;
mod groups;
mod instance;
mod numbers;
mod parameters;
mod policy;
mod refusal;
mod table;

use std::sync::Arc;

use component::SharedSandbox;
use dynamo_kv_router::plugins::request_classifier::ClassifierError;
use dynamo_kv_router::plugins::{RouterPluginRegistry, RouterPluginRegistryError};

pub use pointsman_contract::ErrorClass;
pub use pointsman_sandbox::{WorkerCommand, init_compile_worker};
pub use refusal::Refusal;

/// The types that [`register`] adds: one of worker selection, one of request classifiers.
pub const POLICY_TYPE: &str = "wasm";

/// As [`register_with`], with each [`Refusal`] for the error.
///
/// # Errors
/// As [`register_with`].
pub fn register(
    registry: &mut RouterPluginRegistry,
    worker: Option<WorkerCommand>,
) -> Result<(), RouterPluginRegistryError> {
    register_with(registry, worker, |refusal| Box::new(refusal))
}

/// Adds the types `wasm` to Dynamo's registry. Their instances share one sandbox, which starts with the first of them.
/// `error` makes Dynamo's error of a classifier's refusal.
///
/// `worker` is the program that compiles components from files: [`WorkerCommand::this_program`] where `main` begins with
/// [`init_compile_worker`], else none for the program that the variable `POINTSMAN_COMPILE_WORKER` names, such as the
/// `pointsman` command. Without either the built-in policies alone can be used.
///
/// # Errors
/// The registry has a type `wasm` already.
pub fn register_with(
    registry: &mut RouterPluginRegistry,
    worker: Option<WorkerCommand>,
    error: impl Fn(Refusal) -> Box<ClassifierError> + Send + Sync + 'static,
) -> Result<(), RouterPluginRegistryError> {
    let sandbox = Arc::new(SharedSandbox::new(worker));
    let (shared, error) = (Arc::clone(&sandbox), Arc::new(error));
    registry.register_worker_selection(POLICY_TYPE, Arc::new(move |found| instance::provide(found, &shared)))?;
    let provide = move |found: &_| classifier::provide(found, &sandbox, error.clone());
    registry.register_request_classifier(POLICY_TYPE, Arc::new(provide))?;
    Ok(())
}
