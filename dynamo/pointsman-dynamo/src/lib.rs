//! Pointsman's policies inside NVIDIA Dynamo's router.
//!
//! [`register`] links one worker-selection type, `wasm`, into Dynamo's plugin registry. Any number of policies then
//! come and go as files, by Dynamo's own router-policy YAML:
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
//! ```
//!
//! Dynamo has the workers, the eligibility, the load and the bookings. A selection is translated to the contract's
//! names (`table`), decided by Pointsman's pipeline with its limits and its answers to a fault, and translated back.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod groups;
mod instance;
mod parameters;
mod policy;
mod table;

use std::sync::{Arc, Mutex};

use dynamo_kv_router::plugins::{RouterPluginRegistry, WorkerSelectionPolicyRegistryError};

/// The worker-selection type that [`register`] adds.
pub const POLICY_TYPE: &str = "wasm";

/// Adds the worker-selection type `wasm` to Dynamo's registry. Its instances share one sandbox, which starts with the
/// first of them.
///
/// # Errors
/// The registry has a type `wasm` already.
pub fn register(registry: &mut RouterPluginRegistry) -> Result<(), WorkerSelectionPolicyRegistryError> {
    let sandbox = Mutex::default();
    registry.register_worker_selection(POLICY_TYPE, Arc::new(move |found| instance::provide(found, &sandbox)))
}
