//! `pointsman policy inspect`: what a policy is and what it reads.

use std::fmt::Write;

use pointsman_contract::{Inputs, Partition, Reads, Role, RouterConfig};
use pointsman_routing::DEFAULT;
use pointsman_sandbox::{CompiledPolicy, GuestSetup, GuestSlot, Import, Limits, Outcome, Profile, Sandbox};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{small, stage_names};
use crate::compile::Compile;
use crate::error::CliError;
use crate::{output, parameters, source};

/// Shows what a policy is: its stages, what each reads, its parameters and its imports.
#[derive(clap::Args)]
pub(crate) struct Inspect {
    /// A built-in policy's name, or a component's file.
    #[arg(value_name = "NAME|FILE.wasm")]
    policy: String,
    /// The parameters to configure it with, since what a policy reads may depend on them.
    #[arg(long, value_name = "JSON")]
    parameters: Option<String>,
    /// The worker role to configure it for: aggregated, prefill, decode or encode.
    #[arg(long, value_name = "R", default_value = "aggregated")]
    role: Role,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    compile: Compile,
}

impl Inspect {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let given = self.parameters.as_deref().map(|text| parameters::parse("--parameters", text)).transpose()?;
        let artifact = source::artifact(&self.policy)?;
        let (policy, profile) = source::load_any(&Sandbox::new(self.compile.config(small()))?, &artifact)?;
        let setup = GuestSetup {
            policy: policy.clone(),
            instance: policy.manifest().name.clone(),
            partition: Partition {
                model: DEFAULT.to_owned(),
                routing_group: DEFAULT.to_owned(),
                role: self.role,
                block_size: 16,
                seed: 0,
            },
            router_config: RouterConfig::default(),
            parameters: Value::Object(given.clone().unwrap_or_default()).to_string(),
            limits: Limits::of(profile),
            account: None,
        };
        let inputs = match GuestSlot::new(setup) {
            Ok(guest) => Ok(guest.inputs().clone()),
            // A policy that asks for parameters is no error as long as none were given.
            Err(error) if given.is_none() && error.outcome == Outcome::PolicyError => Err(error.message),
            Err(source) => return Err(CliError::Start { policy: self.policy, source }),
        };
        if self.json {
            output::json(&Found::new(&policy, profile, &inputs))
        } else {
            output::text(&as_text(&policy, profile, &inputs))
        }?;
        Ok(())
    }
}

/// The JSON, in this order.
#[derive(Serialize)]
struct Found<'a> {
    name: &'a str,
    version: &'a str,
    description: &'a str,
    wit_version: &'a str,
    stages: Vec<&'static str>,
    inputs: Option<FoundInputs<'a>>,
    parameters_schema: Value,
    imports: Vec<FoundImport<'a>>,
    /// The smallest profile of limits that takes it.
    profile: &'static str,
    /// What the policy declares for itself.
    limits: Map<String, Value>,
    size_bytes: usize,
    sha256: String,
    /// Whether the stages also run in one crossing.
    selector: bool,
    /// Why there are no inputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    inputs_reason: Option<&'a str>,
}

#[derive(Serialize)]
struct FoundImport<'a> {
    name: &'a str,
    /// What it lets the policy do.
    grants: &'static str,
}

#[derive(Serialize)]
struct FoundInputs<'a> {
    filter: Option<FoundReads<'a>>,
    score: Option<FoundReads<'a>>,
    pick: Option<FoundReads<'a>>,
    exclusive_affinity: bool,
    classify: Option<FoundReads<'a>>,
    tick_ms: Option<u32>,
}

#[derive(Serialize)]
struct FoundReads<'a> {
    facts: &'a [String],
    texts: &'a [String],
    signals: &'a [String],
    workers: bool,
}

impl<'a> FoundReads<'a> {
    fn of(reads: &'a Option<Reads>) -> Option<Self> {
        let Reads { facts, texts, signals, workers } = reads.as_ref()?;
        Some(Self { facts, texts, signals, workers: *workers })
    }
}

impl<'a> Found<'a> {
    fn new(policy: &'a CompiledPolicy, profile: Profile, inputs: &'a Result<Inputs, String>) -> Self {
        let manifest = policy.manifest();
        let schema = &manifest.parameters_schema;
        Self {
            name: &manifest.name,
            version: &manifest.version,
            description: &manifest.description,
            wit_version: policy.wit_version(),
            stages: stage_names(policy.stages()),
            inputs: inputs.as_ref().ok().map(|inputs| FoundInputs {
                filter: FoundReads::of(&inputs.filter),
                score: FoundReads::of(&inputs.score),
                pick: FoundReads::of(&inputs.pick),
                exclusive_affinity: inputs.exclusive_affinity,
                classify: FoundReads::of(&inputs.classify),
                tick_ms: inputs.tick_ms,
            }),
            parameters_schema: serde_json::from_str(schema).unwrap_or_else(|_| Value::from(schema.as_str())),
            imports: policy.imports().iter().map(|Import { name, grants }| FoundImport { name, grants }).collect(),
            profile: profile.as_str(),
            limits: policy.declared_limits().iter().map(|(key, value)| (key.to_owned(), value.into())).collect(),
            size_bytes: policy.size_bytes(),
            sha256: policy.sha256_hex(),
            selector: policy.stages().select,
            inputs_reason: inputs.as_ref().err().map(String::as_str),
        }
    }
}

fn as_text(policy: &CompiledPolicy, profile: Profile, inputs: &Result<Inputs, String>) -> String {
    let manifest = policy.manifest();
    let mut out = String::new();
    let mut line = |name: &str, value: &str| _ = writeln!(out, "{name:<12}{}", output::printable(value));
    line("Policy", &format!("{} {}", manifest.name, manifest.version));
    line("", &manifest.description);
    line("Contract", &format!("pointsman:policy@{}", policy.wit_version()));
    let fused = if policy.stages().select { ", also in one crossing" } else { "" };
    line("Stages", &format!("{}{fused}", stage_names(policy.stages()).join(", ")));
    match inputs {
        Ok(inputs) => {
            let Inputs { filter, score, pick, classify, exclusive_affinity, tick_ms } = inputs;
            for (stage, reads) in [("filter", filter), ("score", score), ("pick", pick), ("classify", classify)] {
                if let Some(reads) = reads {
                    line(&format!("  {stage}"), &format!("reads {}", reads_text(reads)));
                }
            }
            if *exclusive_affinity {
                line("  affinity", "an eligible affinity target is the only candidate");
            }
            if let Some(tick_ms) = tick_ms {
                line("  ticks", &format!("every {tick_ms} ms"));
            }
        }
        Err(reason) => line("Inputs", &format!("not known without --parameters: {reason}")),
    }
    parameter_lines(&manifest.parameters_schema, &mut line);
    match policy.imports() {
        [] => line("Imports", "nothing"),
        imports => {
            line("Imports", "");
            imports.iter().for_each(|Import { name, grants }| line("", &format!("{name}: {grants}")));
        }
    }
    let wasi = if policy.imports_wasi() { ", `wasi: true`" } else { "" };
    line("Needs", &format!("`limits: {{profile: {}}}`{wasi}", profile.as_str()));
    let limits: Vec<_> =
        policy.declared_limits().iter().map(|(key, value)| format!("{key} {}", output::grouped(value))).collect();
    line("Limits", &if limits.is_empty() { "none of its own".to_owned() } else { limits.join(", ") });
    line("Size", &format!("{} bytes", output::grouped(policy.size_bytes() as u64)));
    line("SHA-256", &policy.sha256_hex());
    out
}

fn reads_text(reads: &Reads) -> String {
    let workers = reads.workers.then(|| "the workers' numbers".to_owned());
    let names: Vec<String> =
        reads.facts.iter().chain(&reads.texts).chain(&reads.signals).cloned().chain(workers).collect();
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

/// One line for each parameter of the schema: name, type, default, description.
fn parameter_lines(schema: &str, line: &mut impl FnMut(&str, &str)) {
    let schema: Value = serde_json::from_str(schema).unwrap_or_default();
    let Some(properties) = schema.get("properties").and_then(Value::as_object).filter(|all| !all.is_empty()) else {
        return line("Parameters", "none");
    };
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    line("Parameters", "");
    for (name, property) in properties {
        let mut parts = vec![type_of(property)];
        match property.get("default") {
            _ if required.contains(&name.as_str()) => parts.push("required".to_owned()),
            Some(default) if !default.is_null() => parts.push(format!("default {default}")),
            _ => parts.push("optional".to_owned()),
        }
        let description = property.get("description").and_then(Value::as_str).unwrap_or_default();
        let description = description.split_whitespace().collect::<Vec<_>>().join(" ");
        line("", &format!("{name} ({}) {description}", parts.join(", ")));
    }
}

/// `number`, or `number or null`'s first, or nothing known.
fn type_of(property: &Value) -> String {
    let types = match property.get("type") {
        Some(Value::String(name)) => vec![name.as_str()],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).filter(|name| *name != "null").collect(),
        _ => vec![],
    };
    if types.is_empty() { "any".to_owned() } else { types.join(" or ") }
}
