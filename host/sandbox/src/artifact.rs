//! What an operator hands in: bytes, where they came from, and their digest.

use std::fmt::Write;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::load::LoadError;

/// The largest component that is read from a file, in bytes.
const MOST_BYTES: u64 = 64 << 20;

/// The bytes of a policy's component. Cheap to clone.
#[derive(Clone)]
pub struct Artifact {
    origin: Arc<str>,
    bytes: Arc<[u8]>,
    sha256: [u8; 32],
    trusted: bool,
    wasi: bool,
}

impl Artifact {
    /// An artifact of these bytes; `origin` names them in messages, such as a file's path.
    pub fn from_bytes(origin: impl Into<String>, bytes: impl Into<Arc<[u8]>>) -> Self {
        let bytes = bytes.into();
        Self {
            origin: Arc::from(origin.into()),
            sha256: Sha256::digest(&bytes).into(),
            bytes,
            trusted: false,
            wasi: false,
        }
    }

    /// Reads an artifact from a regular file of at most 64 MiB.
    ///
    /// # Errors
    ///
    /// [`LoadError::Read`] where the file cannot be read, is a device or a pipe, or is larger.
    pub fn from_file(path: &Path) -> Result<Self, LoadError> {
        let origin = path.display().to_string();
        match read(path) {
            Ok(bytes) => Ok(Self::from_bytes(origin, bytes)),
            Err(source) => Err(LoadError::Read { origin, source }),
        }
    }

    /// The same artifact under another name in messages, such as a type's in place of a path.
    #[must_use]
    pub fn named(mut self, origin: impl Into<String>) -> Self {
        self.origin = Arc::from(origin.into());
        self
    }

    /// The same artifact, which may be compiled within this process. Compiling is not bounded there: declare it only of
    /// what you would also link in.
    #[must_use]
    pub fn trusted(mut self) -> Self {
        self.trusted = true;
        self
    }

    /// The same artifact, which may import WASI: what runtimes of other languages need to start, with nothing granted.
    #[must_use]
    pub fn with_wasi(mut self) -> Self {
        self.wasi = true;
        self
    }

    /// Checks that the artifact is the one that was pinned: `sha256` in lower-case hexadecimal.
    ///
    /// # Errors
    ///
    /// [`LoadError::Digest`] where it is another.
    pub fn pinned(self, sha256: &str) -> Result<Self, LoadError> {
        let found = self.sha256_hex();
        if found == sha256 {
            return Ok(self);
        }
        Err(LoadError::Digest { origin: self.origin().to_owned(), found, pinned: sha256.to_owned() })
    }

    /// SHA-256 of the bytes, in lower-case hexadecimal.
    #[must_use]
    pub fn sha256_hex(&self) -> String {
        hex(&self.sha256)
    }

    /// The number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are no bytes at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Where the bytes came from.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn sha256(&self) -> &[u8; 32] {
        &self.sha256
    }

    /// Whether it may import WASI.
    #[must_use]
    pub fn may_import_wasi(&self) -> bool {
        self.wasi
    }

    pub(crate) fn is_trusted(&self) -> bool {
        self.trusted
    }

    /// Refuses by the first bytes what can be no component, each kind with its own sentence.
    pub(crate) fn check_kind(&self) -> Result<(), LoadError> {
        let origin = self.origin().to_owned();
        if wasmtime::Engine::detect_precompiled(&self.bytes).is_some() {
            return Err(LoadError::Precompiled { origin });
        }
        match self.bytes.split_first_chunk::<8>() {
            // The preamble: the magic number, a version and a layer, 0 for core modules and 1 for components.
            Some(([0, b'a', b's', b'm', _, _, 1, 0], _)) => Ok(()),
            Some(([0, b'a', b's', b'm', _, _, 0, 0], _)) => Err(LoadError::CoreModule { origin }),
            _ if looks_like_text(&self.bytes) => Err(LoadError::Text { origin }),
            _ => Err(LoadError::NotWasm { origin }),
        }
    }
}

impl std::fmt::Debug for Artifact {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Artifact").field("origin", &self.origin).field("len", &self.len()).finish_non_exhaustive()
    }
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// Reads a regular file of a sane size; opening a pipe would wait for its writer, and a device may have no end.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let found = std::fs::metadata(path)?;
    if !found.is_file() {
        return Err(io::Error::other("it is no regular file; give a component's file"));
    }
    let too_large = |bytes: u64| {
        let message = format!("it has {bytes} bytes and a component at most {MOST_BYTES}; build it smaller");
        io::Error::new(io::ErrorKind::FileTooLarge, message)
    };
    if found.len() > MOST_BYTES {
        return Err(too_large(found.len()));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    // Some files have no length until they are read, and others grow meanwhile.
    if bytes.len() as u64 > MOST_BYTES { Err(too_large(bytes.len() as u64)) } else { Ok(bytes) }
}

/// Whether the bytes start like WebAssembly text: `(component`, `(module` or a comment.
fn looks_like_text(bytes: &[u8]) -> bool {
    let start = bytes.trim_ascii_start();
    [b"(component".as_slice(), b"(module", b";;", b"(;"].iter().any(|text| start.starts_with(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_regular_file_of_a_sane_size_is_read() {
        let folder = std::env::temp_dir();
        let path = folder.join(format!("pointsman-artifact-{}.wasm", std::process::id()));
        File::create(&path).unwrap().set_len(MOST_BYTES + 1).unwrap();
        let large = Artifact::from_file(&path).unwrap_err().to_string();
        std::fs::remove_file(&path).unwrap();
        assert!(large.contains(&path.display().to_string()) && large.contains("67108865 bytes"), "{large}");
        let said = Artifact::from_file(&folder).unwrap_err().to_string();
        assert!(said.contains("no regular file"), "{said}");
    }

    #[test]
    fn the_digest_is_that_of_the_bytes() {
        let artifact = Artifact::from_bytes("abc", b"abc".as_slice());
        assert_eq!(artifact.sha256_hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!((artifact.len(), artifact.is_empty(), artifact.origin()), (3, false, "abc"));
    }
}
