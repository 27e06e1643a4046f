//! An instance's `parameters` in Dynamo's YAML -> what the instance is made of.

use std::path::Path;

use pointsman_routing::config::{Instance, PolicyConfig, Problem, RequestClassifier};
use serde::Deserialize;
use serde_json::{Map, Value, json};

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
    /// Whether the component has to decide over made-up candidates before it serves; it has to unless this says no.
    pub(crate) smoke: Option<bool>,
}

impl Parameters {
    /// Component, parameters, limits and `on_fault`, checked.
    pub(crate) fn settings(&self) -> Result<Instance, String> {
        let optional = [("limits", &self.limits), ("on_fault", &self.on_fault)];
        let config = checked("worker_selection.instances[0].", &self.parameters, &optional, |mut fields| {
            fields["name"] = json!(crate::POLICY_TYPE);
            json!({"worker_selection": {"instances": [fields]}})
        })?;
        let instance = config.worker_selection.and_then(|selection| selection.instances.into_iter().next());
        let instance = instance.ok_or_else(|| "the parameters are none; write at least `component`".to_owned())?;
        Ok(Instance { name: self.component.clone(), ..instance })
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
    on_fault: Option<Value>,
    max_deferral_ms: Option<Value>,
    pub(crate) seed: Option<u64>,
    pub(crate) smoke: Option<bool>,
}

impl ClassifierParameters {
    /// Component, parameters, limits and what is a classifier's alone, checked.
    pub(crate) fn settings(&self) -> Result<RequestClassifier, String> {
        let Self { limits, on_fault, max_deferral_ms, .. } = self;
        let optional = [("limits", limits), ("on_fault", on_fault), ("max_deferral_ms", max_deferral_ms)];
        let section = |fields| json!({ "request_classifier": fields });
        let config = checked("request_classifier.", &self.parameters, &optional, section)?;
        let classifier = config.request_classifier;
        let mut classifier =
            classifier.ok_or_else(|| "the parameters are none; write at least `component`".to_owned())?;
        classifier.policy.name.clone_from(&self.component);
        Ok(classifier)
    }
}

/// The fields as Pointsman's own configuration reads them, in the document that `document` makes of them at `path`: JSON is
/// YAML, so both have one reader and one set of messages.
fn checked(
    path: &str,
    parameters: &Map<String, Value>,
    optional: &[(&str, &Option<Value>)],
    document: impl FnOnce(Value) -> Value,
) -> Result<PolicyConfig, String> {
    let mut fields = json!({"type": crate::POLICY_TYPE, "parameters": parameters});
    for (key, value) in optional {
        if let Some(value) = value {
            fields[*key] = value.clone();
        }
    }
    if let Some(path) = null_in(&fields, "") {
        // What stands for a float that is not finite, too.
        return Err(format!("{path} has no value that can be passed on; leave it out or write a finite number"));
    }
    PolicyConfig::parse("", Path::new(""), &document(fields).to_string()).map_err(|problems| {
        // Without the places of a document that nobody wrote.
        let sentence = |problem: &Problem| format!("{}: {}", problem.field, problem.message).replace(path, "");
        problems.iter().map(sentence).collect::<Vec<_>>().join("; ")
    })
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
