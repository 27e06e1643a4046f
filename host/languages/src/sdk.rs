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
