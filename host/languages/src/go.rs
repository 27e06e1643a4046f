//! Go, with its own compiler.

use std::fmt::Write;

use crate::project::{Project, Stage};
use crate::tools::GO;
use crate::{LanguageError, module, sdk};

const GO_MOD: &str = "module NAME\n\ngo 1.24\n\nrequire pointsman v0.0.0\n\nreplace pointsman => ./.pointsman/go\n";

/// Makes the component of the package in the policy's folder.
pub(crate) fn build(project: &Project) -> Result<Vec<u8>, LanguageError> {
    lay(project)?;
    let (dir, own) = (&project.dir, project.own());
    if !dir.join("go.mod").is_file() {
        return Err(LanguageError::NoSource { dir: dir.clone(), file: "go.mod" });
    }
    let mut build = GO.command(dir)?;
    sdk::write(&own.join("entry.go"), &entry(project))?;
    // The compiler sees the file as one of the policy's, which has no such file.
    let (seen, is) = (dir.join("pointsman_entry.go"), own.join("entry.go"));
    let overlay = format!("{{\"Replace\":{{{:?}:{:?}}}}}\n", seen.display().to_string(), is.display().to_string());
    sdk::write(&own.join("overlay.json"), &overlay)?;
    let tags: Vec<String> = project.stages.iter().map(|stage| format!("pointsman_{}", stage.as_str())).collect();
    let output = own.join("policy.wasm");
    build.env("GOOS", "wasip1").env("GOARCH", "wasm").env("GOTOOLCHAIN", "local").env("GOWORK", "off");
    build.args(["build", "-buildmode=c-shared", "-trimpath", "-ldflags=-s -w", "-overlay=.pointsman/overlay.json"]);
    build.arg("-tags").arg(tags.join(",")).arg("-o").arg(&output).arg(".");
    GO.run(&mut build, dir)?;
    module::component(project, sdk::read(&output)?)
}

/// Lays the SDK into the policy's folder.
pub(crate) fn lay(project: &Project) -> Result<(), LanguageError> {
    sdk::lay(&project.own().join("go"), sdk::GO)
}

/// Writes what Go wants of a new policy.
pub(crate) fn begin(project: &Project, name: &str) -> Result<(), LanguageError> {
    sdk::write(&project.dir.join("go.mod"), &GO_MOD.replace("NAME", name))
}

/// Hands the policy to the SDK, and has the compiler check that it has the stages.
fn entry(project: &Project) -> String {
    let mut entry = "package main\n\nimport \"pointsman\"\n\nvar pointsmanPolicy Policy\n\n".to_owned();
    for stage in &project.stages {
        let interface = match stage {
            Stage::Filter => "Filterer",
            Stage::Score => "Scorer",
            Stage::Pick => "Picker",
            Stage::Classify => "Classifier",
        };
        let _ = writeln!(entry, "var _ pointsman.{interface} = &pointsmanPolicy\n");
    }
    entry + "func init() { pointsman.Export(&pointsmanPolicy) }\n"
}
