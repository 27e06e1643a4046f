//! `pointsman config check`: everything that is wrong with a router-policy file, at once.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pointsman_contract::Role;
use pointsman_routing::config::{Component, Instance, InstanceKind, PolicyConfig, Problem, Roles, Selected};
use pointsman_routing::{Provider, Router, RouterError};
use pointsman_sandbox::{Artifact, Profile, Sandbox, SandboxConfig};

use crate::error::CliError;
use crate::register::Registration;
use crate::{output, source};

/// Checks a router-policy file: its fields, its components and the parameters of its instances.
///
/// Every problem is shown at once, each with file, line, field and what to do. Each instance is started once for each
/// role that selects it, as the router would, so a policy's own refusal of its parameters shows here too.
#[derive(clap::Args)]
pub(crate) struct Check {
    /// The router-policy file, YAML.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Registers a component as a policy type; may be repeated.
    #[arg(long, value_name = "TYPE=FILE.wasm")]
    register: Vec<Registration>,
}

impl Check {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let config = PolicyConfig::load(&self.file)?;
        let mut checker = Checker::new(&config)?;
        for registration in &self.register {
            checker.register(registration);
        }
        let registered: Vec<String> = checker.types.keys().cloned().collect();
        if let Err(problems) = config.check_types(&registered) {
            checker.problems.extend(problems);
        }
        for (place, component) in config.components.iter().enumerate() {
            if !registered.contains(&component.type_name) {
                checker.component(place, component);
            }
        }
        checker.instances()?;
        let Checker { mut problems, .. } = checker;
        if !problems.is_empty() {
            problems.sort_by_key(|problem| problem.line);
            return Err(CliError::Many(problems));
        }
        let instances = config.worker_selection.as_ref().map_or(0, |selection| selection.instances.len());
        output::text(&format!(
            "{}: no problems; {instances} instances, {} components",
            self.file.display(),
            config.components.len()
        ))?;
        Ok(())
    }
}

struct Checker<'a> {
    config: &'a PolicyConfig,
    sandbox: Sandbox,
    /// Every type by name, none where its component cannot be loaded.
    types: BTreeMap<String, Option<Artifact>>,
    problems: Vec<Problem>,
}

impl<'a> Checker<'a> {
    fn new(config: &'a PolicyConfig) -> Result<Self, CliError> {
        let built_in = pointsman_policies::all().iter();
        let types = built_in.map(|policy| (policy.name.to_owned(), Some(source::built_in(policy)))).collect();
        let mut problems = Vec::new();
        let sandbox = match Sandbox::new(config.sandbox.sandbox_config()) {
            Ok(sandbox) => sandbox,
            Err(error) => {
                problems.push(problem(config, 0, "sandbox.guests", error.to_string()));
                Sandbox::new(SandboxConfig { guests: 16, ..SandboxConfig::default() })?
            }
        };
        Ok(Self { config, sandbox, types, problems })
    }

    fn register(&mut self, Registration { type_name, path }: &Registration) {
        let place = format!("--register {type_name}={}", path.display());
        let mut report = |message| {
            self.problems.push(Problem { file: place.clone(), line: 0, field: String::new(), message });
        };
        if type_name == pointsman_routing::DEFAULT {
            return report(RouterError::ReservedDefault.to_string());
        }
        if self.types.contains_key(type_name) {
            return report(RouterError::Duplicate { name: type_name.clone() }.to_string());
        }
        let loaded = Artifact::from_file(path)
            .and_then(|artifact| self.sandbox.load(&artifact, Profile::default()).map(|_| artifact));
        let artifact = loaded.map_err(|error| report(error.to_string())).ok();
        self.types.insert(type_name.clone(), artifact);
    }

    fn component(&mut self, place: usize, component: &Component) {
        let mut report = |field: &str, message: String| {
            let field = format!("components[{place}].{field}");
            self.problems.push(problem(self.config, component.line, &field, message));
        };
        let artifact = Artifact::from_file(&component.path).map_err(|error| report("path", error.to_string())).ok();
        if let (Some(artifact), Some(digest)) = (&artifact, &component.digest) {
            let found = artifact.sha256_hex();
            let pinned = digest.trim_start_matches("sha256:");
            if !pinned.eq_ignore_ascii_case(&found) {
                let path = component.path.display();
                report("digest", format!("{path} has {found}; deploy the pinned file or change the digest"));
            }
        }
        let artifact = artifact.filter(|artifact| match self.sandbox.load(artifact, Profile::default()) {
            Ok(_) => true,
            Err(error) => {
                report("path", error.to_string());
                false
            }
        });
        self.types.insert(component.type_name.clone(), artifact);
    }

    /// Starts every instance whose type could be loaded.
    fn instances(&mut self) -> Result<(), CliError> {
        let Some(selection) = &self.config.worker_selection else { return Ok(()) };
        let mut startable = self.config.clone();
        // What the file registers is registered below, where it can be loaded; who selects what is checked already.
        startable.components = Vec::new();
        if let Some(selection) = &mut startable.worker_selection {
            selection.roles = Roles::default();
            selection.partitions = Vec::new();
            selection.instances.retain(|instance| match &instance.kind {
                InstanceKind::Type(name) => matches!(self.types.get(name), Some(Some(_))),
                InstanceKind::Component(_) | InstanceKind::Pipeline { .. } => true,
            });
        }
        let mut builder = Router::builder().sandbox(self.sandbox.clone());
        for (name, artifact) in &self.types {
            if let Some(artifact) = artifact {
                builder = builder.register(name, Provider::component(artifact.clone()));
            }
        }
        let names: Vec<String> =
            startable.worker_selection.iter().flat_map(|all| &all.instances).map(|i| i.name.clone()).collect();
        let router = builder.policy_config(startable).build()?;
        let mut failed: Vec<&str> = Vec::new();
        // Pipelines last: what one of their entries lacks was told there.
        let (pipelines, single): (Vec<_>, Vec<_>) = selection
            .instances
            .iter()
            .enumerate()
            .partition(|(_, instance)| matches!(instance.kind, InstanceKind::Pipeline { .. }));
        for (place, instance) in single.into_iter().chain(pipelines) {
            let name = instance.name.as_str();
            if !names.iter().any(|startable| startable == name) || members(instance).any(|name| failed.contains(&name))
            {
                failed.push(name);
                continue;
            }
            let mut said: Option<Problem> = None;
            for role in self.roles(name) {
                let Err(error) = router.check_instance(name, role) else { continue };
                let problem = self.start_problem(place, instance, error);
                if said.as_ref() != Some(&problem) {
                    self.problems.push(problem.clone());
                    said = Some(problem);
                }
            }
            if said.is_some() {
                failed.push(name);
            }
        }
        Ok(())
    }

    /// The roles that an instance serves, by itself or in a pipeline; aggregated where nothing selects it.
    fn roles(&self, name: &str) -> Vec<Role> {
        let Some(selection) = &self.config.worker_selection else { return vec![Role::Aggregated] };
        let in_pipelines = selection.instances.iter().filter(|instance| members(instance).any(|member| member == name));
        let names: Vec<&str> = in_pipelines.map(|instance| instance.name.as_str()).chain([name]).collect();
        let selects = |roles: &Roles, role| match roles.get(role) {
            Some(Selected::Instance(selected)) => names.contains(&selected.as_str()),
            Some(Selected::Default) | None => false,
        };
        let everywhere =
            || std::iter::once(&selection.roles).chain(selection.partitions.iter().map(|rule| &rule.roles));
        let roles: Vec<Role> =
            Role::ALL.into_iter().filter(|role| everywhere().any(|roles| selects(roles, *role))).collect();
        if roles.is_empty() { vec![Role::Aggregated] } else { roles }
    }

    fn start_problem(&self, place: usize, instance: &Instance, error: RouterError) -> Problem {
        let field = format!("worker_selection.instances[{place}]");
        let message = match error {
            RouterError::Provider { message, .. } => message,
            other => other.to_string(),
        };
        // A message names the key that it is about before others, such as those that are allowed.
        let named = |key: &&String| Some((names_key(&message, key)?, key.len()));
        let key = instance.parameter_lines.keys().filter_map(|key| Some((named(&key)?, key)));
        let key = key.min_by_key(|((place, length), _)| (*place, std::cmp::Reverse(*length)));
        let key = key.and_then(|(_, key)| instance.parameter_lines.get_key_value(key));
        match key {
            Some((key, line)) => problem(self.config, *line, &format!("{field}.parameters.{key}"), message),
            None => {
                let part = match &instance.kind {
                    InstanceKind::Type(_) if instance.parameter_lines.is_empty() => "",
                    InstanceKind::Type(_) => ".parameters",
                    InstanceKind::Component(_) => ".component",
                    InstanceKind::Pipeline { .. } => ".pipeline",
                };
                problem(self.config, instance.kind_line, &format!("{field}{part}"), message)
            }
        }
    }
}

/// Where the message has the key as a word of its own.
fn names_key(message: &str, key: &str) -> Option<usize> {
    let is_part = |char: char| char.is_alphanumeric() || char == '_' || char == '-';
    let places = message.match_indices(key).map(|(place, _)| place);
    places.filter(|_| !key.is_empty()).find(|place| {
        let before = message.get(..*place).and_then(|text| text.chars().next_back());
        let after = message.get(place + key.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

/// The instances that a pipeline lists.
fn members(instance: &Instance) -> impl Iterator<Item = &str> {
    let (filters, scorers, picker) = match &instance.kind {
        InstanceKind::Pipeline { filters, scorers, picker } => (&filters[..], &scorers[..], picker.as_ref()),
        InstanceKind::Type(_) | InstanceKind::Component(_) => (&[][..], &[][..], None),
    };
    filters.iter().chain(scorers).chain(picker).map(String::as_str)
}

fn problem(config: &PolicyConfig, line: usize, field: &str, message: String) -> Problem {
    Problem { file: config.file.clone(), line, field: field.to_owned(), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_named_as_a_word_alone() {
        assert_eq!(names_key("`scale` must be finite", "scale"), Some(1));
        assert_eq!(names_key("prefill_load_scale: use scale", "scale"), Some(24));
        assert_eq!(names_key("prefill_load_scale must be finite", "scale"), None);
        assert_eq!(names_key("scales", "scale"), None);
    }
}
