//! Where a policy comes from: the built-in ones by name, others by file.

use std::path::Path;
use std::sync::Arc;

use pointsman_routing::config::LimitsPatch;
use pointsman_routing::{DEFAULT, InstanceSpec};
use pointsman_sandbox::{Artifact, CompiledPolicy, LoadError, Profile, Sandbox};
pub(crate) use pointsman_server::policies::built_in;

use crate::error::CliError;

/// The names of the built-in policies.
pub(crate) fn names() -> Vec<&'static str> {
    pointsman_policies::all().iter().map(|built_in| built_in.name).collect()
}

/// The built-in policy of that name, else the file.
pub(crate) fn artifact(name_or_file: &str) -> Result<Artifact, CliError> {
    if let Some(policy) = pointsman_policies::get(name_or_file) {
        return Ok(built_in(policy));
    }
    let path = Path::new(name_or_file);
    let is_path = path.extension().is_some() || path.components().count() > 1;
    if is_path || path.exists() {
        return Ok(Artifact::from_file(path)?);
    }
    if name_or_file == DEFAULT {
        return Err(CliError::NativeDefault);
    }
    Err(CliError::UnknownPolicy { name: name_or_file.to_owned(), available: names() })
}

/// The built-in policy of that name, else the folder's policy, which is built, else the file.
pub(crate) fn artifact_or_folder(named: &str) -> Result<Artifact, CliError> {
    let dir = Path::new(named);
    if pointsman_policies::get(named).is_some() || !dir.is_dir() {
        return artifact(named);
    }
    let built = crate::policy::components(dir)?;
    let (name, component) = built.into_iter().next().ok_or_else(|| CliError::NoCases { policy: named.to_owned() })?;
    Ok(Artifact::from_bytes(name, component))
}

/// Loads a policy whatever its instances may grant it: in the smallest profile that it fits into, with WASI.
pub(crate) fn load_any(sandbox: &Sandbox, artifact: &Artifact) -> Result<(Arc<CompiledPolicy>, Profile), LoadError> {
    let artifact = artifact.clone().with_wasi();
    let load = |profile| sandbox.load(&artifact, profile).map(|policy| (policy, profile));
    load(Profile::Compact).or_else(|_| load(Profile::Engine))
}

/// Where a policy is tried out, only fuel bounds a call: a machine that is busy with much else ends none. What runs into this
/// fails.
pub(crate) const BACKSTOP_US: u64 = 10_000_000;

/// An instance with what the policy needs to load: WASI, and the smallest profile that it fits into.
pub(crate) fn fitting(instance: InstanceSpec, policy: &CompiledPolicy, profile: Profile) -> InstanceSpec {
    let values = vec![("deadline_us", BACKSTOP_US)];
    instance.wasi(policy.imports_wasi()).limits(LimitsPatch { profile: Some(profile), values })
}
