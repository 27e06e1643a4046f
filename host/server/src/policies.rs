//! The router that a server runs: the built-in policies, and what its files say.

use pointsman_policies::BuiltIn;
use pointsman_routing::config::{Overrides, PolicyConfig};
use pointsman_routing::{Provider, Router, RouterError};
use pointsman_sandbox::{Artifact, Sandbox, SandboxConfig};

use crate::config::ServerConfig;

/// A router with the built-in policies, those of `policies`, and the names that `config` lets policies read. `sandbox`
/// changes the sandbox's settings, such as how components are compiled.
///
/// # Errors
/// As [`pointsman_routing::RouterBuilder::build`].
pub fn router(
    config: &ServerConfig,
    policies: Option<PolicyConfig>,
    overrides: Overrides,
    sandbox: impl FnOnce(SandboxConfig) -> SandboxConfig,
) -> Result<Router, RouterError> {
    let settings = policies.as_ref().map(|policies| policies.sandbox.clone()).unwrap_or_default();
    let sandbox =
        Sandbox::new(sandbox(settings.sandbox_config())).map_err(|error| RouterError::Sandbox(error.to_string()))?;
    let mut builder = Router::builder().sandbox(sandbox).overrides(overrides);
    for policy in pointsman_policies::all() {
        builder = builder.register(policy.name, Provider::component(built_in(policy)));
    }
    for metric in &config.metrics {
        builder = builder.metric(metric);
    }
    let mut labels: Vec<&String> = config.workers.iter().flat_map(|worker| worker.labels.keys()).collect();
    labels.sort_unstable();
    labels.dedup();
    for label in labels {
        builder = builder.label(label);
    }
    for header in &config.headers {
        builder = builder.grant_header(header);
    }
    match policies {
        Some(policies) => builder.policy_config(policies).build(),
        None => builder.build(),
    }
}

/// A built-in policy as an artifact. It is part of this program, and as trusted.
#[must_use]
pub fn built_in(policy: &BuiltIn) -> Artifact {
    Artifact::from_bytes(policy.name, policy.component).trusted()
}
