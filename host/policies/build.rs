//! Compiles every policy in `policies/` to a component, in one call of cargo, and writes the table that embeds them.

use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use pointsman_build::{Build, BuildError};

/// What the components are made of, below the workspace's root.
const SOURCES: &[&str] =
    &["policies", "guest-sdk/contract", "guest-sdk/rust", "guest-sdk/rust-derive", "wit", "Cargo.toml", "Cargo.lock"];

fn main() -> ExitCode {
    let Err(error) = embed() else { return ExitCode::SUCCESS };
    // This line alone fails the build with that sentence; cargo shows what a script wrote to standard error only where
    // the script itself fails.
    println!("cargo::error={error}");
    let compiler_spoke = matches!(error.downcast_ref(), Some(BuildError::Cargo { .. } | BuildError::Metadata { .. }));
    if compiler_spoke { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn embed() -> Result<(), Box<dyn Error>> {
    let manifest_dir = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out_dir = PathBuf::from(env::var("OUT_DIR")?);
    let root = manifest_dir.ancestors().nth(2).ok_or("this crate is not at host/policies of its workspace")?;
    for source in SOURCES {
        println!("cargo::rerun-if-changed={}", root.join(source).display());
    }
    let built = Build::packages_below(root, root.join("policies"))
        .profile("guest")
        .target_dir(guests_dir(&out_dir))
        .nested()
        .run()?;
    let mut table = "&[".to_owned();
    for policy in built {
        let file = format!("{}.wasm", policy.package);
        fs::write(out_dir.join(&file), policy.component)?;
        write!(
            table,
            "BuiltIn {{ name: {:?}, component: include_bytes!(concat!(env!(\"OUT_DIR\"), \"/\", {file:?})) }},",
            policy.package
        )?;
    }
    table.push(']');
    fs::write(out_dir.join("built_in.rs"), table)?;
    Ok(())
}

/// A target folder beside the outer build's profiles: every profile and every hash of this crate shares it, so that the
/// policies are compiled once.
fn guests_dir(out_dir: &Path) -> PathBuf {
    let outside =
        out_dir.ancestors().find(|folder| folder.ends_with("build")).and_then(|folder| folder.ancestors().nth(2));
    outside.unwrap_or(out_dir).join("pointsman-guests")
}
