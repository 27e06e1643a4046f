//! The SDKs' files, as they lie in `guest-sdk/`, and how they come into a policy's folder.

use std::fs;
use std::path::Path;

use crate::LanguageError;

/// A file's name and its text.
pub(crate) type File = (&'static str, &'static str);

macro_rules! files {
    ($folder:literal: $($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../../../guest-sdk/", $folder, "/", $name)))),+]
    };
}

/// The crates of the Rust SDK, by their folders.
pub(crate) const RUST: &[(&str, &[File])] = &[
    (
        "contract",
        files!("contract": "Cargo.toml", "src/classifier.rs", "src/lib.rs", "src/types.rs", "src/vocabulary.rs"),
    ),
    (
        "rust",
        files!(
            "rust": "Cargo.toml", "src/choose.rs", "src/classifier.rs", "src/error.rs", "src/guest.rs", "src/heap.rs",
            "src/lanes.rs", "src/layout.rs", "src/lib.rs", "src/log.rs", "src/macros.rs", "src/native.rs",
            "src/parameters.rs", "src/parameters/decimal.rs", "src/parameters/problem.rs", "src/parameters/reader.rs",
            "src/parameters/schema.rs", "src/parameters/tests.rs", "src/parameters/types.rs", "src/policy.rs",
            "src/reads.rs", "src/stages.rs", "src/tasks.rs", "src/testkit.rs", "src/testkit/classify.rs", "src/view.rs", "src/wasm.rs",
            "src/wasm_classifier.rs",
        ),
    ),
    (
        "rust-derive",
        files!(
            "rust-derive": "Cargo.toml", "src/attributes.rs", "src/choice.rs", "src/lib.rs", "src/record.rs",
        ),
    ),
];
pub(crate) const JAVASCRIPT: &[File] =
    files!("js": "package.json", "index.js", "index.d.ts", "parameters.js", "component.js");
pub(crate) const PYTHON: &[File] =
    files!("python/pointsman": "__init__.py", "_classifier.py", "_component.py", "_parameters.py", "py.typed");
pub(crate) const GO: &[File] = files!(
    "go": "go.mod", "pointsman.go", "classifier.go", "parameters.go", "abi.go", "abi_filter.go", "abi_score.go",
    "abi_pick.go", "abi_classify.go",
);
pub(crate) const C: &[File] = files!("c": "pointsman.h", "internal.h", "component.c", "parameters.c");

/// Lays files into a folder.
pub(crate) fn lay(folder: &Path, files: &[File]) -> Result<(), LanguageError> {
    files.iter().try_for_each(|(name, text)| write(&folder.join(name), text))
}

/// Writes a file, unless it is as it should be.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), LanguageError> {
    if fs::read_to_string(path).is_ok_and(|found| found == text) {
        return Ok(());
    }
    let parent = path.parent().unwrap_or(path);
    let written = fs::create_dir_all(parent).and_then(|()| fs::write(path, text));
    written.map_err(|source| LanguageError::Write { path: path.to_owned(), source })
}

/// A file that a tool wrote.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, LanguageError> {
    fs::read(path).map_err(|source| LanguageError::Read { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// The files of a folder and of those in it, but for tests, examples and templates.
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let beside = ["tests", "examples", "template"].iter().any(|name| path.ends_with(name));
            match path.is_dir() {
                true if !beside => walk(&path, found),
                false => found.push(path),
                true => {}
            }
        }
    }

    #[test]
    fn every_file_of_an_sdk_is_laid() {
        let rust = RUST.iter().map(|(folder, files)| (*folder, *files));
        let others = [("js", JAVASCRIPT), ("python/pointsman", PYTHON), ("go", GO), ("c", C)];
        for (folder, files) in rust.chain(others) {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest-sdk").join(folder);
            let mut found = Vec::new();
            walk(&folder, &mut found);
            let mut laid: Vec<PathBuf> = files.iter().map(|(name, _)| folder.join(name)).collect();
            found.sort();
            laid.sort();
            assert_eq!(laid, found);
        }
    }
}
