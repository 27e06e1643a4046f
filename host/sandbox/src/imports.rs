//! What a component imports, and whether it may.

use crate::load::LoadError;
use crate::log;
use crate::structure::{ImportKind, Outline};
use crate::text::sentence;

/// An interface with functions that a component imports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// Its name, version included.
    pub name: String,
    /// What it lets a policy do.
    pub grants: &'static str,
}

impl Import {
    /// Whether it belongs to WASI.
    pub(crate) fn is_wasi(&self) -> bool {
        self.name != log::LOG
    }
}

/// The imports with functions; an error where one is not allowed. Instances of types alone grant nothing.
pub(crate) fn imports(outline: &Outline, origin: &str, wasi: bool) -> Result<Vec<Import>, LoadError> {
    let (mut allowed, mut not_granted, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for import in &outline.imports {
        let grants = match import.kind {
            ImportKind::Types => continue,
            ImportKind::Instance if import.name == log::LOG => Some("writes to the policy's bounded log"),
            ImportKind::Instance => wasi_interface(&import.name).map(|(_, grants)| grants),
            ImportKind::Other => None,
        };
        match grants {
            None => refused.push(sentence(&import.name)),
            Some(_) if import.name != log::LOG && !wasi => not_granted.push(import.name.clone()),
            Some(grants) => allowed.push(Import { name: import.name.clone(), grants }),
        }
    }
    let origin = origin.to_owned();
    if !refused.is_empty() {
        Err(LoadError::Imports { origin, names: refused })
    } else if !not_granted.is_empty() {
        Err(LoadError::Wasi { origin, names: not_granted })
    } else if !cfg!(feature = "wasi") && allowed.iter().any(Import::is_wasi) {
        Err(LoadError::NoWasi { origin })
    } else {
        Ok(allowed)
    }
}

/// The interfaces of WASI 0.2 that a policy may import, and what each lets it do.
const WASI: &[(&str, &str)] = &[
    ("wasi:cli/environment", "reads no variables and no arguments: there are none"),
    ("wasi:cli/exit", "ends the call, as a trap"),
    ("wasi:cli/stderr", "writes to the policy's bounded log, as warnings"),
    ("wasi:cli/stdin", "reads nothing: the input is at its end"),
    ("wasi:cli/stdout", "writes to the policy's bounded log"),
    ("wasi:cli/terminal-input", NO_TERMINAL),
    ("wasi:cli/terminal-output", NO_TERMINAL),
    ("wasi:cli/terminal-stderr", NO_TERMINAL),
    ("wasi:cli/terminal-stdin", NO_TERMINAL),
    ("wasi:cli/terminal-stdout", NO_TERMINAL),
    ("wasi:clocks/monotonic-clock", CLOCK),
    ("wasi:clocks/wall-clock", CLOCK),
    ("wasi:filesystem/preopens", NO_FILES),
    ("wasi:filesystem/types", NO_FILES),
    ("wasi:io/error", "nothing"),
    ("wasi:io/poll", "never waits: everything is ready at once"),
    ("wasi:io/streams", "writes to the policy's bounded log; reads nothing"),
    ("wasi:random/insecure", RANDOM),
    ("wasi:random/insecure-seed", RANDOM),
    ("wasi:random/random", RANDOM),
    ("wasi:sockets/instance-network", NO_NETWORK),
    ("wasi:sockets/ip-name-lookup", NO_NETWORK),
    ("wasi:sockets/network", NO_NETWORK),
    ("wasi:sockets/tcp", NO_NETWORK),
    ("wasi:sockets/tcp-create-socket", NO_NETWORK),
    ("wasi:sockets/udp", NO_NETWORK),
    ("wasi:sockets/udp-create-socket", NO_NETWORK),
];
const NO_TERMINAL: &str = "nothing: there is no terminal";
const CLOCK: &str = "reads the request's time, the same during a whole call";
const NO_FILES: &str = "nothing: there are no files";
const RANDOM: &str = "draws numbers that grow from the partition's seed";
const NO_NETWORK: &str = "nothing: there is no network";

/// The interface of an import's name, without its version, and what it lets a policy do.
pub(crate) fn wasi_interface(import: &str) -> Option<(&'static str, &'static str)> {
    let (name, version) = import.split_once('@')?;
    let granted = WASI.iter().find(|(interface, _)| *interface == name)?;
    version.starts_with("0.2.").then_some(*granted)
}
