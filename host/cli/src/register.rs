//! `--register TYPE=FILE.wasm`: names a component's file as a policy type, for a router-policy file that must stay as it
//! is.

use std::path::PathBuf;
use std::str::FromStr;

const FORM: &str = "give TYPE=FILE.wasm, such as least-busy=least_busy.wasm";

/// One `--register`.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    pub(crate) type_name: String,
    pub(crate) path: PathBuf,
}

impl FromStr for Registration {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some((type_name, path)) = text.split_once('=').map(|(name, path)| (name.trim(), path)) else {
            return Err(FORM);
        };
        if type_name.is_empty() || path.is_empty() {
            return Err(FORM);
        }
        // As in a router-policy file.
        if !type_name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte)) {
            return Err("a type's name has only letters, digits, `_`, `.` and `-`, such as least-busy");
        }
        Ok(Self { type_name: type_name.to_owned(), path: path.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_that_a_router_policy_file_can_say() {
        let taken: Registration = " least.busy_2-b =a b=c.wasm".parse().unwrap();
        assert_eq!((taken.type_name.as_str(), taken.path), ("least.busy_2-b", "a b=c.wasm".into()));
        for text in ["", "a", "=a.wasm", "a=", "a b=c.wasm", "a\nb=c.wasm", "ä=c.wasm", "a/b=c.wasm"] {
            assert!(text.parse::<Registration>().is_err(), "{text}");
        }
    }
}
