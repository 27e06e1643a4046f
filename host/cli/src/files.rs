//! Files that a command reads and writes: told apart before one is opened, and left alone until there is something to
//! write.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::CliError;

/// An output file. What it held stays until the first write, and a file made for a command that fails before it goes.
pub(crate) struct OutputFile {
    path: PathBuf,
    file: BufWriter<File>,
    created: bool,
    written: bool,
}

impl OutputFile {
    pub(crate) fn open(path: &Path) -> Result<Self, CliError> {
        let created = fs::symlink_metadata(path).is_err();
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|source| CliError::Write { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), file: BufWriter::new(file), created, written: false })
    }

    /// Where to write; the first time, it empties the file.
    pub(crate) fn writer(&mut self) -> io::Result<&mut BufWriter<File>> {
        if !self.written {
            let file = self.file.get_ref();
            // A device or a pipe has no length.
            if file.metadata()?.is_file() {
                file.set_len(0)?;
            }
            self.written = true;
        }
        Ok(&mut self.file)
    }

    /// Ends the file with what `last` writes.
    pub(crate) fn finish(mut self, last: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<(), CliError> {
        let done = self.writer().and_then(|file| last(file).and_then(|()| file.flush()));
        done.map_err(|source| CliError::Write { path: self.path.clone(), source })
    }
}

/// Writes on, and the first time empties the file.
impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if self.created && !self.written {
            // The command has failed already, and with a sentence of its own.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Refuses an output that is an input or another output too.
pub(crate) fn refuse_shared(
    inputs: &[(&'static str, PathBuf)],
    outputs: &[(&'static str, &Path)],
) -> Result<(), CliError> {
    for (place, (option, path)) in outputs.iter().enumerate() {
        let Some(identity) = Identity::of(path) else { continue };
        let earlier = outputs.iter().take(place).map(|(other, path)| (*other, *path));
        let others = inputs.iter().map(|(other, path)| (*other, path.as_path())).chain(earlier);
        for (other, taken) in others {
            if Identity::of(taken).as_ref() == Some(&identity) {
                return Err(CliError::Shared { other, option, path: (*path).to_owned() });
            }
        }
    }
    Ok(())
}

/// What makes two paths the same file.
#[derive(PartialEq, Eq)]
enum Identity {
    /// Device and inode, which hard links share.
    #[cfg(unix)]
    Inode(u64, u64),
    /// The path without links.
    Path(PathBuf),
}

impl Identity {
    /// None for devices and pipes, which many may share.
    fn of(path: &Path) -> Option<Self> {
        match fs::metadata(path) {
            Ok(found) if !found.is_file() => None,
            #[cfg(unix)]
            Ok(found) => {
                use std::os::unix::fs::MetadataExt;
                Some(Self::Inode(found.dev(), found.ino()))
            }
            #[cfg(not(unix))]
            Ok(_) => fs::canonicalize(path).ok().map(Self::Path),
            Err(_) => Some(Self::Path(future(path))),
        }
    }
}

/// The path without links of a file that is not there yet.
fn future(path: &Path) -> PathBuf {
    const MOST_LINKS: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(target) = fs::read_link(&path) else { break };
        // An absolute target replaces the folder.
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (fs::canonicalize(folder), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path,
    }
}
