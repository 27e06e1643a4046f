//! An instance's `parameters` in Dynamo's YAML -> what the instance is made of.

use std::path::Path;

use pointsman_admission::OnFault;
use pointsman_routing::config::{Instance, PolicyConfig, Problem};
use pointsman_sandbox::Artifact;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The path to an instance's fields in the document that [`settings`] writes.
const PATH: &str = "worker_selection.instances[0].";
/// The longest deferral unless the instance says otherwise, in milliseconds.
const DEFERRAL_MS: u32 = 60_000;
/// The longest that an instance may say: a day.
const MOST_DEFERRAL_MS: u32 = 86_400_000;

/// Where a policy's filter runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FilterPlace {
    /// In Dynamo's picker, with the rest of the policy in one crossing.
    InPicker,
}

/// The fields of worker selection.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Parameters {
    /// A built-in policy's name, or the path of a component.
    pub(crate) component: String,
    /// The policy's own parameters.
    #[serde(default)]
    parameters: Map<String, Value>,
    limits: Option<Value>,
    on_fault: Option<Value>,
    pub(crate) seed: Option<u64>,
    pub(crate) filter: Option<FilterPlace>,
}

impl Parameters {
    /// Component, parameters, limits and `on_fault`, checked.
    pub(crate) fn settings(&self) -> Result<Instance, String> {
        settings(&self.component, &self.parameters, &[("limits", &self.limits), ("on_fault", &self.on_fault)])
    }
}

/// The fields of a request classifier.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClassifierParameters {
    pub(crate) component: String,
    #[serde(default)]
    parameters: Map<String, Value>,
    limits: Option<Value>,
    #[serde(default, with = "FaultWord")]
    pub(crate) on_fault: OnFault,
    max_deferral_ms: Option<u32>,
    pub(crate) seed: Option<u64>,
}

#[derive(Deserialize)]
#[serde(remote = "OnFault", rename_all = "kebab-case")]
enum FaultWord {
    Reject,
    Admit,
}

impl ClassifierParameters {
    /// Component, parameters and limits, checked.
    pub(crate) fn settings(&self) -> Result<Instance, String> {
        settings(&self.component, &self.parameters, &[("limits", &self.limits)])
    }

    pub(crate) fn max_deferral_ms(&self) -> Result<u32, String> {
        let most = self.max_deferral_ms.unwrap_or(DEFERRAL_MS);
        if (1..=MOST_DEFERRAL_MS).contains(&most) {
            return Ok(most);
        }
        Err(format!("max_deferral_ms: {most} is not between 1 and {MOST_DEFERRAL_MS}"))
    }
}

/// The component, read once: what comes later under its path takes a restart.
pub(crate) fn artifact(component: &str) -> Result<Artifact, String> {
    if let Some(built_in) = pointsman_policies::get(component) {
        return Ok(Artifact::from_bytes(built_in.name, built_in.component));
    }
    Artifact::from_file(Path::new(component)).map_err(|error| {
        let names: Vec<_> = pointsman_policies::all().iter().map(|built_in| built_in.name).collect();
        format!("{error}; `component` is a file, or one of the built-in policies {}", names.join(", "))
    })
}

/// The instance, named as its component, as Pointsman's own configuration reads it: JSON is YAML, so both have one reader
/// and one set of messages.
fn settings(
    component: &str,
    parameters: &Map<String, Value>,
    others: &[(&str, &Option<Value>)],
) -> Result<Instance, String> {
    let mut fields = json!({"name": crate::POLICY_TYPE, "type": crate::POLICY_TYPE, "parameters": parameters});
    for (key, value) in others {
        if let Some(value) = value {
            fields[*key] = value.clone();
        }
    }
    if let Some(path) = null_in(&fields, "") {
        // What stands for a float that is not finite, too.
        return Err(format!("{path} has no value that can be passed on; leave it out or write a finite number"));
    }
    let text = json!({"worker_selection": {"instances": [fields]}}).to_string();
    let config = PolicyConfig::parse("", Path::new(""), &text).map_err(|problems| {
        let sentences: Vec<_> = problems.iter().map(sentence).collect();
        sentences.join("; ")
    })?;
    let instance = config.worker_selection.and_then(|selection| selection.instances.into_iter().next());
    let mut instance = instance.ok_or_else(|| "the parameters are none; write at least `component`".to_owned())?;
    component.clone_into(&mut instance.name);
    Ok(instance)
}

/// The path of the first null.
fn null_in(value: &Value, path: &str) -> Option<String> {
    match value {
        Value::Null => Some(path.trim_start_matches('.').to_owned()),
        Value::Array(items) => {
            (0..).zip(items).find_map(|(place, item): (usize, _)| null_in(item, &format!("{path}[{place}]")))
        }
        Value::Object(fields) => fields.iter().find_map(|(key, value)| null_in(value, &format!("{path}.{key}"))),
        _ => None,
    }
}

/// A problem without the places of the document that nobody wrote.
fn sentence(problem: &Problem) -> String {
    format!("{}: {}", problem.field, problem.message).replace(PATH, "")
}
