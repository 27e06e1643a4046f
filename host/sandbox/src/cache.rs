//! Machine code on disk, for the next load or the next process.
//!
//! What the folder holds is run, so an entry counts only with its HMAC over key and code, under a secret that is kept
//! in the folder and readable by its owner alone. An entry that is not whole is as good as none.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::artifact::hex;
use crate::compile::Key;
use crate::engine::SandboxError;

/// Begins each entry; the number is the version of its form.
const MAGIC: &[u8; 8] = b"pmcode\0\x01";
const MAC_BYTES: usize = 32;
/// The file of the secret.
const SECRET: &str = "secret";
/// The ends of the names of entries, and of files that are to become one.
const ENTRY: &str = "code";
const PART: &str = "part";

pub(crate) struct Cache {
    folder: PathBuf,
    secret: [u8; 32],
    most_bytes: u64,
}

impl Cache {
    /// Opens a folder, or makes it.
    pub(crate) fn open(folder: &Path, most_bytes: u64) -> Result<Self, SandboxError> {
        let failed = |reason: String| SandboxError::Cache { folder: folder.display().to_string(), reason };
        let secret = prepare(folder).and_then(|()| secret(folder)).map_err(|error| failed(error.to_string()))?;
        Ok(Self { folder: folder.to_owned(), secret, most_bytes })
    }

    /// The machine code of that key, where it is there and whole.
    pub(crate) fn get(&self, key: &Key) -> Option<Vec<u8>> {
        let path = self.path(key);
        match self.read(&path, key) {
            Ok(code) => Some(code),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!("{} is compiled anew, since it {error}", path.display());
                }
                None
            }
        }
    }

    fn read(&self, path: &Path, key: &Key) -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let mut head = [0; MAGIC.len() + MAC_BYTES];
        let short = |_| io::Error::other("is cut short");
        file.read_exact(&mut head).map_err(short)?;
        let mac = head.strip_prefix(MAGIC).ok_or_else(|| io::Error::other("has another form"))?;
        let mut code = Vec::new();
        (&mut file).take(self.most_bytes).read_to_end(&mut code)?;
        let genuine = self.mac(key, &code)?.verify_slice(mac);
        genuine.map_err(|_| io::Error::other("was not written with this folder's secret, or was changed"))?;
        // What is used is removed last; where the time cannot be set, it is removed sooner.
        let _ = file.set_modified(SystemTime::now());
        Ok(code)
    }

    /// Keeps machine code. What goes wrong costs the next load a compilation.
    pub(crate) fn put(&self, key: &Key, code: &[u8]) {
        if let Err(error) = self.write(key, code).and_then(|()| self.shrink()) {
            tracing::warn!("machine code is not kept in {}: {error}", self.folder.display());
        }
    }

    fn write(&self, key: &Key, code: &[u8]) -> io::Result<()> {
        if (MAGIC.len() + MAC_BYTES + code.len()) as u64 > self.most_bytes {
            return Err(io::Error::other("it is larger than the whole cache may be (sandbox.compile.cache_bytes)"));
        }
        let mac = self.mac(key, code)?.finalize().into_bytes();
        publish(&self.folder, &self.path(key), &[MAGIC, &mac, code], |part, path| fs::rename(part, path))
    }

    fn mac(&self, key: &Key, code: &[u8]) -> io::Result<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.secret).map_err(io::Error::other)?;
        mac.update(MAGIC);
        mac.update(&key.0);
        mac.update(code);
        Ok(mac)
    }

    /// Removes what was used longest ago until the rest fits.
    fn shrink(&self) -> io::Result<()> {
        let mut files = Vec::new();
        let mut bytes = 0_u64;
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let path = entry.path();
            if !path.extension().is_some_and(|end| end == ENTRY || end == PART) {
                continue;
            }
            // Another process may have removed it meanwhile.
            let Ok(found) = entry.metadata() else { continue };
            bytes += found.len();
            files.push((found.modified()?, found.len(), path));
        }
        files.sort_unstable();
        for (_, length, path) in files {
            if bytes <= self.most_bytes {
                break;
            }
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => bytes -= length,
            }
        }
        Ok(())
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.folder.join(hex(&key.0)).with_extension(ENTRY)
    }
}

/// Makes the folder where there is none, and refuses one that others may write to.
fn prepare(folder: &Path) -> io::Result<()> {
    if folder.exists() && !folder.is_dir() {
        return Err(io::Error::other("it is no folder; give it one of its own"));
    }
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let found = fs::metadata(folder)?;
    let user = rustix::process::geteuid().as_raw();
    if found.uid() != user {
        let owner = found.uid();
        return Err(io::Error::other(format!(
            "it belongs to user {owner} and the process runs as user {user}; give it a folder of its own"
        )));
    }
    if found.mode() & 0o022 != 0 {
        let mode = found.mode() & 0o777;
        return Err(io::Error::other(format!("others may write to it (mode {mode:03o}); run `chmod go-w` on it")));
    }
    Ok(())
}

/// The folder's secret, made where there is none.
fn secret(folder: &Path) -> io::Result<[u8; 32]> {
    let path = folder.join(SECRET);
    loop {
        match File::open(&path) {
            Ok(file) => return read_secret(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let mut new = [0; 32];
        File::open("/dev/urandom")?.read_exact(&mut new)?;
        // A link is made only where there is no such name yet: of two processes one is first, and both take its secret.
        match publish(folder, &path, &[&new], |part, path| {
            fs::hard_link(part, path).and_then(|()| fs::remove_file(part))
        }) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
}

fn read_secret(mut file: File) -> io::Result<[u8; 32]> {
    let found = file.metadata()?;
    let user = rustix::process::geteuid().as_raw();
    if !found.is_file() || found.uid() != user || found.mode() & 0o077 != 0 || found.len() != 32 {
        return Err(io::Error::other(format!(
            "its file `{SECRET}` is not 32 bytes of user {user} with mode 600; empty the folder"
        )));
    }
    let mut secret = [0; 32];
    file.read_exact(&mut secret)?;
    Ok(secret)
}

/// Writes a file under a name of its own, then has `place` give it its real one: nobody sees half of it.
fn publish(
    folder: &Path,
    path: &Path,
    contents: &[&[u8]],
    place: impl FnOnce(&Path, &Path) -> io::Result<()>,
) -> io::Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let part = folder.join(format!("{}-{number}.{PART}", std::process::id()));
    // What is left there is of a process of the same number that has ended.
    let _ = fs::remove_file(&part);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
    let written = contents.iter().try_for_each(|bytes| file.write_all(bytes)).and_then(|()| place(&part, path));
    if written.is_err() {
        // What failed says why.
        let _ = fs::remove_file(&part);
    }
    written
}
