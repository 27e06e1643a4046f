//! The process-wide selections that go before those of the policy file.

use std::ffi::OsString;

use pointsman_contract::Role;

use super::problem::{did_you_mean, listed, shown};
use super::{PartitionKeyRef, PolicyConfig, Selected, SessionAffinitySettings};

/// The variable that selects the instance of the prefill workers.
pub const PREFILL_VARIABLE: &str = "DYN_ROUTER_PREFILL_POLICY";
/// The variable that selects the instance of the decode workers.
pub const DECODE_VARIABLE: &str = "DYN_ROUTER_DECODE_POLICY";
/// The variable that selects the instance of every role.
pub const GLOBAL_VARIABLE: &str = "DYN_ROUTER_WORKER_SELECTION_POLICY";

/// Selections by flag, variable or builder, which go before those of the policy file.
///
/// Each is the name of an instance of the file, or `default` for the built-in policy; blanks around a name, and a name
/// of blanks alone, are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// For prefill workers, before `global`.
    pub prefill: Option<String>,
    /// For decode workers, before `global`.
    pub decode: Option<String>,
    /// For workers of every role.
    pub global: Option<String>,
    /// How sessions keep their workers, in place of the policy file's `session_affinity`.
    pub session_affinity: Option<SessionAffinitySettings>,
}

/// An override that cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverrideError {
    /// A variable is not Unicode.
    #[error("the variable {variable} is not valid Unicode; set it to the name of an instance, or unset it")]
    NotUnicode {
        /// The variable's name.
        variable: &'static str,
    },
    /// An override names no instance.
    #[error(
        "the override of the {scope} policy, {}, names no instance of the router policy config{}; the instances are {}",
        shown(.name),
        did_you_mean(.name, .available.iter().map(String::as_str)),
        listed(.available.iter().map(String::as_str))
    )]
    UnknownInstance {
        /// `prefill`, `decode` or `worker selection`.
        scope: &'static str,
        /// The name.
        name: String,
        /// The names of the instances, sorted.
        available: Vec<String>,
    },
}

impl Overrides {
    /// The overrides of the variables that `get` reads.
    ///
    /// # Errors
    /// Where a variable is not Unicode.
    pub fn from_env(get: impl Fn(&str) -> Option<OsString>) -> Result<Self, OverrideError> {
        let read = |variable: &'static str| match get(variable).map(OsString::into_string) {
            None => Ok(None),
            Some(Ok(text)) => Ok(name(Some(&text)).map(str::to_owned)),
            Some(Err(_)) => Err(OverrideError::NotUnicode { variable }),
        };
        Ok(Self {
            prefill: read(PREFILL_VARIABLE)?,
            decode: read(DECODE_VARIABLE)?,
            global: read(GLOBAL_VARIABLE)?,
            session_affinity: None,
        })
    }

    /// What decides for a partition: the role's override, the global one, the policy file, the built-in policy.
    ///
    /// # Errors
    /// Where the override that holds for the role names no instance of `config`.
    pub fn select(&self, config: Option<&PolicyConfig>, key: PartitionKeyRef<'_>) -> Result<Selected, OverrideError> {
        let of_role = match key.role {
            Role::Prefill => name(self.prefill.as_deref()).map(|name| ("prefill", name)),
            Role::Decode => name(self.decode.as_deref()).map(|name| ("decode", name)),
            Role::Aggregated | Role::Encode => None,
        };
        let global = || name(self.global.as_deref()).map(|name| ("worker selection", name));
        let Some((scope, name)) = of_role.or_else(global) else {
            return Ok(config.map_or(Selected::Default, |config| config.selected(key)));
        };
        if name == "default" {
            return Ok(Selected::Default);
        }
        let mut available: Vec<String> = config
            .and_then(|config| config.worker_selection.as_ref())
            .map(|selection| selection.instances.iter().map(|instance| instance.name.clone()).collect())
            .unwrap_or_default();
        if available.iter().any(|instance| instance == name) {
            return Ok(Selected::Instance(name.to_owned()));
        }
        available.sort_unstable();
        Err(OverrideError::UnknownInstance { scope, name: name.to_owned(), available })
    }
}

/// A name without the blanks around it, none where nothing is left.
fn name(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}
