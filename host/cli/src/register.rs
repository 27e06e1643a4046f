//! `--register TYPE=FILE.wasm`: names a component's file as a policy type, for a router-policy file that must stay as it
//! is.

use std::path::PathBuf;
use std::str::FromStr;

/// One `--register`.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    pub(crate) type_name: String,
    pub(crate) path: PathBuf,
}

impl FromStr for Registration {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('=') {
            Some((type_name, path)) if !type_name.trim().is_empty() && !path.is_empty() => {
                Ok(Self { type_name: type_name.trim().to_owned(), path: path.into() })
            }
            _ => Err("give TYPE=FILE.wasm, such as least-busy=least_busy.wasm"),
        }
    }
}
