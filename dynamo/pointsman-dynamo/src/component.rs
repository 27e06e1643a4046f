//! What worker selection and request classifiers share: a component in the one sandbox.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use pointsman_routing::{Provider, Router, RouterBuilder, RouterError};
use pointsman_sandbox::{Artifact, Sandbox, SandboxConfig, WorkerCommand};

/// The block size of guests that have not seen a request: Dynamo tells it with the first one.
pub(crate) const USUAL_BLOCK_SIZE: u32 = 16;

/// Names the program that compiles, where the host program is none.
const WORKER_VARIABLE: &str = "POINTSMAN_COMPILE_WORKER";

/// The place of the one sandbox.
pub(crate) struct SharedSandbox {
    worker: Option<WorkerCommand>,
    place: Mutex<Option<Sandbox>>,
}

impl SharedSandbox {
    pub(crate) fn new(worker: Option<WorkerCommand>) -> Self {
        let worker = worker.or_else(|| std::env::var_os(WORKER_VARIABLE).map(WorkerCommand::new));
        Self { worker, place: Mutex::default() }
    }

    fn get(&self) -> Result<Sandbox, String> {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sandbox) = &*place {
            return Ok(sandbox.clone());
        }
        let mut config = SandboxConfig::default();
        config.compile.worker = self.worker.clone();
        let sandbox = Sandbox::new(config).map_err(|error| error.to_string())?;
        Ok(place.insert(sandbox).clone())
    }
}

/// A builder whose one type is the component.
pub(crate) fn builder(
    component: &str,
    seed: Option<u64>,
    smoke: Option<bool>,
    shared: &SharedSandbox,
) -> Result<RouterBuilder, String> {
    Ok(Router::builder()
        .register(crate::POLICY_TYPE, Provider::component(artifact(component)?))
        .seed(seed.unwrap_or_else(|| fastrand::u64(..)))
        .smoke(smoke.unwrap_or(true))
        .sandbox(shared.get()?))
}

/// What is wrong, without the name of a type that nobody wrote.
pub(crate) fn message(error: RouterError) -> String {
    match error {
        RouterError::Provider { message, .. } => message,
        other => other.to_string(),
    }
}

/// The component, read once: what comes later under its path takes a restart.
fn artifact(component: &str) -> Result<Artifact, String> {
    if let Some(built_in) = pointsman_policies::get(component) {
        return Ok(Artifact::from_bytes(built_in.name, built_in.component).trusted());
    }
    Artifact::from_file(Path::new(component)).map_err(|error| {
        let names: Vec<_> = pointsman_policies::all().iter().map(|built_in| built_in.name).collect();
        format!("{error}; `component` is a file, or one of the built-in policies {}", names.join(", "))
    })
}
