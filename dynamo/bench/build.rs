//! Compiles the policy for measuring to a component.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

use pointsman_build::Build;

fn main() -> Result<(), Box<dyn Error>> {
    let (folder, out) = (PathBuf::from(env::var("CARGO_MANIFEST_DIR")?), PathBuf::from(env::var("OUT_DIR")?));
    for source in ["policy", "../../guest-sdk", "../../wit", "../Cargo.toml"] {
        println!("cargo::rerun-if-changed={}", folder.join(source).display());
    }
    let built = Build::package(folder.join("policy")).profile("guest").target_dir(out.join("guest")).nested().run()?;
    let built = built.first().ok_or("nothing was built")?;
    fs::write(out.join("weighted-sum.wasm"), &built.component)?;
    Ok(())
}
