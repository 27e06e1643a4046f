//! C, with zig's clang and its libc.

use std::fs;
use std::path::PathBuf;

use crate::project::Project;
use crate::tools::ZIG;
use crate::{LanguageError, module, sdk};

/// Makes the component of all `.c` files in the policy's folder.
pub(crate) fn build(project: &Project) -> Result<Vec<u8>, LanguageError> {
    lay(project)?;
    let (dir, own) = (&project.dir, project.own());
    let sources = sources(project)?;
    let mut compile = ZIG.command(dir)?;
    let output = own.join("policy.core.wasm");
    compile.args([
        "cc",
        "--target=wasm32-wasi",
        "-mexec-model=reactor",
        "-std=c17",
        "-O2",
        "-Wall",
        "-Wl,--strip-all,-z,stack-size=65536",
    ]);
    compile.arg("-I").arg(own.join("c"));
    compile.args(project.stages.iter().map(|stage| format!("-DPOINTSMAN_HAS_{}", stage.as_str().to_uppercase())));
    compile.args(sources).args(["component.c", "parameters.c"].map(|file| own.join("c").join(file)));
    ZIG.run(compile.arg("-o").arg(&output), dir)?;
    module::component(project, sdk::read(&output)?)
}

/// Lays the SDK into the policy's folder.
pub(crate) fn lay(project: &Project) -> Result<(), LanguageError> {
    sdk::lay(&project.own().join("c"), sdk::C)
}

fn sources(project: &Project) -> Result<Vec<PathBuf>, LanguageError> {
    let dir = &project.dir;
    let unreadable = |source| LanguageError::Read { path: dir.clone(), source };
    let entries = fs::read_dir(dir).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(unreadable)?;
    let mut sources: Vec<PathBuf> = entries.iter().map(|entry| entry.file_name().into()).collect();
    sources.retain(|source| source.extension().is_some_and(|end| end == "c"));
    sources.sort();
    if sources.is_empty() {
        return Err(LanguageError::NoSource { dir: dir.clone(), file: "policy.c" });
    }
    Ok(sources)
}
