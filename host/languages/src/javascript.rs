//! JavaScript and TypeScript, with QuickJS or SpiderMonkey.

use std::fmt::Write;
use std::path::Path;

use crate::project::{Engine, Project, Stage};
use crate::tools::{COMPONENTIZE_JS, COMPONENTIZE_QJS, ESBUILD};
use crate::{LanguageError, sdk, world};

const PACKAGE_JSON: &str = "{\n  \"name\": \"NAME\",\n  \"private\": true,\n  \"type\": \"module\"\n}\n";

/// Makes the component of `policy.ts` or `policy.js`.
pub(crate) fn build(project: &Project) -> Result<Vec<u8>, LanguageError> {
    lay(project)?;
    let is = |file: &&str| project.dir.join(file).is_file();
    let none = || LanguageError::NoSource { dir: project.dir.clone(), file: "policy.js or policy.ts" };
    let source = ["policy.ts", "policy.js"].into_iter().find(is).ok_or_else(none)?;
    let output = project.own().join("policy.wasm");
    match project.engine {
        Engine::QuickJs => quickjs(project, source, &output)?,
        Engine::SpiderMonkey => spidermonkey(project, source, &output)?,
    }
    sdk::read(&output)
}

fn quickjs(project: &Project, source: &str, output: &Path) -> Result<(), LanguageError> {
    let (dir, own) = (&project.dir, project.own());
    // What is missing is told before anything is done.
    let mut componentize = COMPONENTIZE_QJS.command(dir)?;
    let source = if source == "policy.ts" {
        bundle(dir, &["policy.ts", "--external:pointsman", "--outfile=.pointsman/policy.js"])?;
        "./policy.js"
    } else {
        "../policy.js"
    };
    sdk::write(&own.join("entry.js"), &entry(project, source))?;
    // Without `--sync` it needs the component model's async functions, which no guest may use.
    componentize.args(["--sync", "--world", world::NAME, "--module-root", "."]);
    componentize.arg("--wit").arg(world::lay(project)?).arg("--js").arg(own.join("entry.js"));
    COMPONENTIZE_QJS.run(componentize.arg("--output").arg(output), dir)
}

fn spidermonkey(project: &Project, source: &str, output: &Path) -> Result<(), LanguageError> {
    let dir = &project.dir;
    let mut componentize = COMPONENTIZE_JS.command(dir)?;
    sdk::write(&project.own().join("entry.js"), &entry(project, &format!("../{source}")))?;
    // It takes one file.
    bundle(dir, &[".pointsman/entry.js", "--external:pointsman:policy/*", "--outfile=.pointsman/policy.js"])?;
    componentize.args([".pointsman/policy.js", "--world-name", world::NAME, "--wit"]).arg(world::lay(project)?);
    // Nothing of these is granted, and without them it imports no more than the log.
    componentize.args(["--disable", "stdio", "random", "clocks", "http", "fetch-event", "--out"]).arg(output);
    COMPONENTIZE_JS.run(&mut componentize, dir)
}

fn bundle(dir: &Path, arguments: &[&str]) -> Result<(), LanguageError> {
    let mut bundle = ESBUILD.command(dir)?;
    bundle.args(["--bundle", "--format=esm", "--platform=neutral", "--log-level=warning"]).args(arguments);
    ESBUILD.run(&mut bundle, dir)
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
