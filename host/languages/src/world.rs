//! The world of a policy: what its component exports, and the log.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::project::Project;
use crate::{LanguageError, sdk};

/// The contract.
pub(crate) const CONTRACT: &str = include_str!("../../../wit/policy.wit");
/// The world's name.
pub(crate) const NAME: &str = "built";

/// The world of these stages, in WIT.
pub(crate) fn text(project: &Project) -> String {
    let mut text = format!("package pointsman:built;\n\nworld {NAME} {{\n  import pointsman:policy/log@0.1.0;\n");
    let stages = project.stages.iter().map(|stage| stage.interface());
    for interface in ["policy"].into_iter().chain(stages) {
        let _ = writeln!(text, "  export pointsman:policy/{interface}@0.1.0;");
    }
    text + "}\n"
}

/// Lays the world and the contract into a folder, as tools read them.
pub(crate) fn lay(project: &Project) -> Result<PathBuf, LanguageError> {
    let folder = project.own().join("wit");
    sdk::write(&folder.join("world.wit"), &text(project))?;
    sdk::write(&folder.join(Path::new("deps/pointsman-policy/policy.wit")), CONTRACT)?;
    Ok(folder)
}
