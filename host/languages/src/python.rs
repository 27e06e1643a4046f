//! Python, with CPython.

use crate::project::Project;
use crate::tools::COMPONENTIZE_PY;
use crate::{LanguageError, sdk, world};

/// Makes the component of `policy.py`.
pub(crate) fn build(project: &Project) -> Result<Vec<u8>, LanguageError> {
    lay(project)?;
    let (dir, own) = (&project.dir, project.own());
    if !dir.join("policy.py").is_file() {
        return Err(LanguageError::NoSource { dir: dir.clone(), file: "policy.py" });
    }
    let mut componentize = COMPONENTIZE_PY.command(dir)?;
    let stages: Vec<String> = project.stages.iter().map(|stage| format!("{:?}", stage.as_str())).collect();
    let entry = format!(
        "import policy\nfrom pointsman._component import component\n\nglobals().update(component(policy, [{}]))\n",
        stages.join(", ")
    );
    sdk::write(&own.join("python/pointsman_entry.py"), &entry)?;
    let output = own.join("policy.wasm");
    componentize.arg("--wit-path").arg(world::lay(project)?).args(["--world", world::NAME, "componentize"]);
    componentize.arg("--python-path").arg(own.join("python")).args(["--python-path", "."]);
    COMPONENTIZE_PY.run(componentize.arg("pointsman_entry").arg("--output").arg(&output), dir)?;
    sdk::read(&output)
}

/// Lays the SDK into the policy's folder.
pub(crate) fn lay(project: &Project) -> Result<(), LanguageError> {
    sdk::lay(&project.own().join("python/pointsman"), sdk::PYTHON)
}
