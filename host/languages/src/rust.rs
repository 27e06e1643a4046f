//! Rust, with cargo: the SDK is laid beside the policy as a workspace of its own, so that nothing but its few dependencies
//! comes from elsewhere, and those in the versions that this command was built with.

use pointsman_build::Build;

use crate::project::Project;
use crate::{LanguageError, sdk, world};

const WORKSPACE: &str = include_str!("../../../Cargo.toml");
/// The versions that this command was built with; cargo drops those that a policy does not need.
const LOCK: &str = include_str!("../../../Cargo.lock");
const PACKAGE: &str = "[package]\nname = \"NAME\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
    [lib]\ncrate-type = [\"cdylib\", \"rlib\"]\n\n\
    [dependencies]\npointsman-sdk = { path = \".pointsman/rust/guest-sdk/rust\" }\n\n\
    # A workspace of its own, wherever the folder lies.\n[workspace]\nexclude = [\".pointsman\"]\n";

/// Makes the component of the crate in the policy's folder.
pub(crate) fn build(project: &Project) -> Result<Vec<u8>, LanguageError> {
    lay(project)?;
    let built = Build::package(&project.dir).run()?;
    let none = || LanguageError::NoSource { dir: project.dir.clone(), file: "Cargo.toml" };
    built.into_iter().next().map(|built| built.component).ok_or_else(none)
}

/// Lays the SDK into the policy's folder.
pub(crate) fn lay(project: &Project) -> Result<(), LanguageError> {
    let own = project.own().join("rust");
    for (folder, files) in sdk::RUST {
        sdk::lay(&own.join("guest-sdk").join(folder), files)?;
    }
    sdk::write(&own.join("wit/policy.wit"), world::CONTRACT)?;
    sdk::write(&own.join("Cargo.toml"), &workspace())
}

/// Writes what cargo wants of a new policy.
pub(crate) fn begin(project: &Project, name: &str) -> Result<(), LanguageError> {
    sdk::write(&project.dir.join("Cargo.toml"), &PACKAGE.replace("NAME", name))?;
    sdk::write(&project.dir.join("Cargo.lock"), LOCK)
}

/// The workspace of the SDK's crates, with what they inherit.
fn workspace() -> String {
    let members: Vec<String> = sdk::RUST.iter().map(|(folder, _)| format!("\"guest-sdk/{folder}\"")).collect();
    let inherited = WORKSPACE.find("[workspace.package]").and_then(|start| WORKSPACE.get(start..)).unwrap_or_default();
    format!("[workspace]\nresolver = \"3\"\nmembers = [{}]\n\n{inherited}", members.join(", "))
}
