//! JavaScript and TypeScript, with QuickJS.

use std::fmt::Write;

use crate::project::{Project, Stage};
use crate::tools::{COMPONENTIZE_QJS, ESBUILD};
use crate::{LanguageError, sdk, world};

const PACKAGE_JSON: &str = "{\n  \"name\": \"NAME\",\n  \"private\": true,\n  \"type\": \"module\"\n}\n";

/// Makes the component of `policy.ts` or `policy.js`.
pub(crate) fn build(project: &Project) -> Result<Vec<u8>, LanguageError> {
    lay(project)?;
    let (dir, own) = (&project.dir, project.own());
    let is_typescript = dir.join("policy.ts").is_file();
    if !is_typescript && !dir.join("policy.js").is_file() {
        return Err(LanguageError::NoSource { dir: dir.clone(), file: "policy.js or policy.ts" });
    }
    // What is missing is told before anything is done.
    let mut componentize = COMPONENTIZE_QJS.command(dir)?;
    if is_typescript {
        let mut bundle = ESBUILD.command(dir)?;
        bundle.args(["policy.ts", "--bundle", "--format=esm", "--platform=neutral", "--external:pointsman"]);
        bundle.args(["--log-level=warning", "--outfile=.pointsman/policy.js"]);
        ESBUILD.run(&mut bundle, dir)?;
    }
    let source = if is_typescript { "./policy.js" } else { "../policy.js" };
    sdk::write(&own.join("entry.js"), &entry(project, source))?;
    let output = own.join("policy.wasm");
    // Without `--sync` it needs the component model's async functions, which no guest may use.
    componentize.args(["--sync", "--world", world::NAME, "--module-root", "."]);
    componentize.arg("--wit").arg(world::lay(project)?).arg("--js").arg(own.join("entry.js"));
    COMPONENTIZE_QJS.run(componentize.arg("--output").arg(&output), dir)?;
    sdk::read(&output)
}

/// Lays the SDK where packages are.
pub(crate) fn lay(project: &Project) -> Result<(), LanguageError> {
    sdk::lay(&project.dir.join("node_modules/pointsman"), sdk::JAVASCRIPT)
}

/// Writes what packages have of a new policy.
pub(crate) fn begin(project: &Project, name: &str) -> Result<(), LanguageError> {
    sdk::write(&project.dir.join("package.json"), &PACKAGE_JSON.replace("NAME", name))
}

fn entry(project: &Project, source: &str) -> String {
    let stages: Vec<String> = project.stages.iter().map(|stage| format!("{:?}", stage.as_str())).collect();
    let mut entry = format!(
        "import * as module from \"{source}\";\nimport {{ component }} from \"pointsman/component.js\";\n\n\
         const exported = component(module.default, [{}]);\nexport const policy = exported.policy;\n",
        stages.join(", ")
    );
    for stage in &project.stages {
        let name = match stage {
            Stage::Filter => "workerFilter",
            Stage::Score => "workerScorer",
            Stage::Pick => "workerPicker",
            Stage::Classify => "requestClassifier",
        };
        let _ = writeln!(entry, "export const {name} = exported.{name};");
    }
    entry
}
