//! `pointsman config check`: everything that is wrong with a router-policy file, at once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pointsman_contract::Role;
use pointsman_routing::config::{
    Component, Instance, InstanceKind, PolicyConfig, Problem, Reading, RequestClassifier, Roles, Selected,
    WorkerSelection,
};
use pointsman_routing::{DEFAULT, PartitionKey, Provider, Router, RouterError};
use pointsman_sandbox::{Artifact, LoadError, Outcome, Profile, Sandbox, SandboxConfig, SandboxError};

use crate::compile::Compile;
use crate::error::CliError;
use crate::register::Registration;
use crate::{output, source};

/// Checks a router-policy file: its fields, its components and the parameters of its instances.
///
/// Every problem is shown at once, each with file, line, field and what to do. Each instance is started once for each
/// role that selects it, as the router would, and so is the classifier: a policy's own refusal of its parameters shows
/// here too.
#[derive(clap::Args)]
pub(crate) struct Check {
    /// The router-policy file, YAML.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Registers a component as a policy type; may be repeated.
    #[arg(long, value_name = "TYPE=FILE.wasm")]
    register: Vec<Registration>,
    /// Also prints what would change for a router that runs with this file.
    #[arg(long, value_name = "RUNNING")]
    against: Option<PathBuf>,
    #[command(flatten)]
    compile: Compile,
}

impl Check {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let reading = Reading::load(&self.file);
        let mut checker = Checker::new(&reading, &self.compile)?;
        for registration in &self.register {
            checker.register(registration);
        }
        let registered: Vec<String> = checker.types.keys().cloned().collect();
        checker.problems.extend(reading.type_problems(&registered));
        for (place, component) in reading.components() {
            checker.component(place, component);
        }
        checker.instances();
        checker.classifier();
        let mut problems = checker.problems;
        if !problems.is_empty() {
            problems.sort_by_key(|problem| problem.line);
            return Err(CliError::Many(problems));
        }
        if let Some(warning) = warning(&reading) {
            output::warning(&warning.to_string())?;
        }
        let PolicyConfig { profiles, request_classifier, .. } = &reading.config;
        let mut found = vec![
            format!("{} instances", reading.instances().count()),
            format!("{} components", reading.components().count()),
        ];
        if *profiles != Default::default() {
            let classes: usize = profiles.iter().map(|(_, profile)| profile.classes().len()).sum();
            found.push(format!("{classes} policy classes"));
        }
        if request_classifier.is_some() {
            found.push("a request classifier".to_owned());
        }
        output::text(&format!("{}: no problems; {}", self.file.display(), found.join(", ")))?;
        match &self.against {
            Some(running) => Self::compare(&reading.config, running),
            None => Ok(()),
        }
    }

    /// Prints what the configuration changes against that of `running`.
    fn compare(config: &PolicyConfig, running: &Path) -> Result<(), CliError> {
        let before = PolicyConfig::load(running).map_err(|problems| CliError::Many(problems.into_iter().collect()))?;
        let changes = config.changes_since(&before);
        if changes.is_empty() {
            output::text(&format!("nothing changes against {}", running.display()))?;
        }
        changes.iter().try_for_each(|change| output::text(&change.to_string()))?;
        Ok(())
    }
}

/// What a sound file says that cannot do what it seems to.
fn warning(reading: &Reading) -> Option<Problem> {
    let PolicyConfig { profiles, request_classifier, .. } = &reading.config;
    let mut classes = profiles.iter().flat_map(|(_, profile)| profile.classes());
    (request_classifier.is_some() && !classes.any(|class| class.can_queue())).then(|| {
        let message = "a due time that the classifier sets ends no wait, because no request waits in any policy class; \
                       give a class `prefill_busy_threshold` or `prefill_busy_threshold_frac`, and no \
                       `request_queue_limit_per_worker`, `raw_isl_token_queue_limit_per_worker` or \
                       `cached_token_queue_limit_per_worker` of 0";
        reading.problem(RequestClassifier::NAME, message.to_owned())
    })
}

struct Checker<'a> {
    reading: &'a Reading,
    sandbox: Sandbox,
    /// Every type by name, none where its component cannot be loaded.
    types: BTreeMap<String, Option<Artifact>>,
    problems: Vec<Problem>,
}

impl<'a> Checker<'a> {
    fn new(reading: &'a Reading, compile: &Compile) -> Result<Self, CliError> {
        let built_in = pointsman_policies::all().iter();
        let types = built_in.map(|policy| (policy.name.to_owned(), Some(source::built_in(policy)))).collect();
        let mut problems = reading.problems.clone();
        let sandbox = match Sandbox::new(compile.config(reading.config.sandbox.sandbox_config())) {
            Ok(sandbox) => sandbox,
            Err(error) => {
                let field = match error {
                    SandboxError::Cache { .. } => "sandbox.compile.cache",
                    _ => "sandbox.guests",
                };
                problems.push(reading.problem(field, error.to_string()));
                let mut small = compile.config(SandboxConfig { guests: 16, ..SandboxConfig::default() });
                small.compile.cache = None;
                Sandbox::new(small)?
            }
        };
        Ok(Self { reading, sandbox, types, problems })
    }

    fn register(&mut self, Registration { type_name, path }: &Registration) {
        let place = format!("--register {type_name}={}", path.display());
        let loaded = Artifact::from_file(path).and_then(|artifact| self.loadable(artifact));
        let mut report = |message| {
            let problem = Problem { file: place.clone(), line: 0, field: String::new(), message };
            if !self.problems.contains(&problem) {
                self.problems.push(problem);
            }
        };
        let artifact = loaded.map_err(|error| report(error.to_string())).ok();
        if type_name == DEFAULT {
            report(RouterError::ReservedDefault.to_string());
        } else if self.types.contains_key(type_name) {
            report(RouterError::Duplicate { name: type_name.clone() }.to_string());
        } else {
            self.types.insert(type_name.clone(), artifact);
        }
    }

    fn component(&mut self, place: usize, component: &Component) {
        let mut report = |field: &str, message: String| {
            self.problems.push(self.reading.problem(&format!("components[{place}].{field}"), message));
        };
        let artifact = Artifact::from_file(&component.path).map_err(|error| report("path", error.to_string())).ok();
        // What is not the pinned file is looked at no further.
        let artifact = artifact.and_then(|artifact| match &component.digest {
            Some(digest) => artifact.pinned(digest).map_err(|error| report("digest", error.to_string())).ok(),
            None => Some(artifact),
        });
        let loaded = artifact.map(|artifact| self.loadable(artifact));
        let artifact = loaded.and_then(|loaded| {
            let field = format!("components[{place}].path");
            loaded.map_err(|error| self.problems.push(self.reading.problem(&field, error.to_string()))).ok()
        });
        // A type that is taken keeps its first artifact.
        self.types.entry(component.type_name.clone()).or_insert(artifact);
    }

    /// The artifact, where it loads under the limits of any profile; those of its instances are checked with them.
    fn loadable(&self, artifact: Artifact) -> Result<Artifact, LoadError> {
        source::load_any(&self.sandbox, &artifact).map(|_| artifact)
    }

    /// Starts every instance whose type could be loaded.
    fn instances(&mut self) {
        let reading = self.reading;
        let mut single: Vec<(usize, Instance)> = Vec::new();
        let mut pipelines: Vec<(usize, &Instance)> = Vec::new();
        for (place, instance) in reading.instances() {
            match &instance.kind {
                InstanceKind::Pipeline { .. } => pipelines.push((place, instance)),
                InstanceKind::Type(name) if !matches!(self.types.get(name), Some(Some(_))) => {}
                InstanceKind::Type(_) | InstanceKind::Component(_) => {
                    single.push((place, self.sound(&at(place), instance)));
                }
            }
        }
        let alone = pipelines.iter().flat_map(|(place, pipeline)| entries(*place, pipeline)).map(|entry| entry.alone);
        let router = match self.router(single.iter().map(|(_, instance)| instance.clone()).chain(alone).collect()) {
            Ok(router) => router,
            Err(error) => return self.problems.push(reading.problem("", error.to_string())),
        };
        let mut started: Vec<Instance> = Vec::new();
        for (place, instance) in single {
            let mut said: Vec<Problem> = Vec::new();
            let mut sound = true;
            for role in self.roles(&instance.name) {
                let Err(error) = router.check_instance(&instance.name, role) else { continue };
                sound = false;
                said.extend(self.start_problem(&at(place), &instance, error).filter(|problem| !said.contains(problem)));
            }
            self.problems.extend(said);
            if sound {
                started.push(instance);
            }
        }
        for (place, pipeline) in pipelines {
            self.pipeline(place, pipeline, &started, &router);
        }
    }

    /// Starts the classifier, where its type could be loaded.
    fn classifier(&mut self) {
        let Some(classifier) = &self.reading.config.request_classifier else { return };
        if let InstanceKind::Type(name) = &classifier.policy.kind
            && !matches!(self.types.get(name), Some(Some(_)))
        {
            return;
        }
        let field = RequestClassifier::NAME;
        let policy = self.sound(field, &classifier.policy);
        let started = self.router(Vec::new()).and_then(|router| {
            let partition = router.partition(&PartitionKey::default(), 16)?;
            router.classifier(policy.clone().into(), partition).map(drop)
        });
        if let Err(error) = started {
            self.problems.extend(self.start_problem(field, &policy, error));
        }
    }

    /// The instance of that field without what the reading found wrong with it.
    fn sound(&self, field: &str, instance: &Instance) -> Instance {
        let mut instance = instance.clone();
        if self.reading.has_problem(&format!("{field}.limits")) {
            // What a limit should have been is not known, so none but those that are may end the start.
            instance.limits.profile = instance.limits.profile.or(Some(Profile::Engine));
        }
        let parameters = format!("{field}.parameters");
        instance.parameters.retain(|key, _| !self.reading.has_problem(&Reading::field(&parameters, key)));
        instance
    }

    /// A router of these instances. What selects them is checked already.
    fn router(&self, instances: Vec<Instance>) -> Result<Router, RouterError> {
        let mut builder = Router::builder().sandbox(self.sandbox.clone());
        for (name, artifact) in &self.types {
            if let Some(artifact) = artifact {
                builder = builder.register(name, Provider::component(artifact.clone()));
            }
        }
        let selection = WorkerSelection { instances, ..WorkerSelection::default() };
        let router = self.reading.config.router;
        builder
            .policy_config(PolicyConfig { router, worker_selection: Some(selection), ..PolicyConfig::default() })
            .build()
    }

    /// Checks that each entry of a pipeline has the stage that it is listed for. What it lacks otherwise was told with it.
    fn pipeline(&mut self, place: usize, pipeline: &Instance, started: &[Instance], router: &Router) {
        let role = self.roles(&pipeline.name).first().copied().unwrap_or(Role::Aggregated);
        for Entry { list, member, alone } in entries(place, pipeline) {
            if !started.iter().any(|instance| instance.name == member) {
                continue;
            }
            let Err(error) = router.check_instance(&alone.name, role) else { continue };
            let error = match error {
                RouterError::MissingStage { instance, stage, .. } => {
                    let place = format!("pipeline `{}`, {list}", pipeline.name);
                    RouterError::MissingStage { place, instance, stage }
                }
                other => other,
            };
            let list = format!("{}.pipeline.{list}", at(place));
            let field = self.reading.entry(&list, &member);
            self.problems.push(self.reading.problem(&field, error.to_string()));
        }
    }

    /// The roles that an instance serves, by itself or in a pipeline; aggregated where nothing selects it.
    fn roles(&self, name: &str) -> Vec<Role> {
        let Some(selection) = &self.reading.config.worker_selection else { return vec![Role::Aggregated] };
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

    /// What the policy says of its start; none where it follows from a parameter that the reading found wrong.
    fn start_problem(&self, field: &str, instance: &Instance, error: RouterError) -> Option<Problem> {
        let message = match error {
            RouterError::Provider { message, .. } => message,
            other => other.to_string(),
        };
        // A message names the key that it is about before others, such as those that are allowed.
        let named = instance.parameter_lines.keys().filter_map(|key| Some((names_key(&message, key)?, key)));
        let key = named.min_by_key(|(place, key)| (*place, std::cmp::Reverse(key.len()))).map(|(_, key)| key);
        let parameters = format!("{field}.parameters");
        let part = match (key, &instance.kind) {
            (Some(key), _) => Reading::field(&parameters, key),
            (None, InstanceKind::Type(_)) if instance.parameter_lines.is_empty() => field.to_owned(),
            (None, InstanceKind::Type(_)) => parameters.clone(),
            (None, InstanceKind::Component(_)) => format!("{field}.component"),
            (None, InstanceKind::Pipeline { .. }) => format!("{field}.pipeline"),
        };
        let follows = self.reading.has_problem(&parameters) && (key.is_none() || self.reading.has_problem(&part));
        let mut problem = self.reading.problem(&part, message);
        problem.line = key.and_then(|key| instance.parameter_lines.get(key).copied()).unwrap_or(match key {
            None if instance.parameter_lines.is_empty() => instance.kind_line,
            _ => problem.line,
        });
        (!follows).then_some(problem)
    }
}

/// The field of the instance at that place.
fn at(place: usize) -> String {
    format!("worker_selection.instances[{place}]")
}

/// One entry of a pipeline.
struct Entry {
    list: &'static str,
    member: String,
    /// A pipeline of this entry alone, so that one entry's problem hides none of another.
    alone: Instance,
}

fn entries(place: usize, pipeline: &Instance) -> Vec<Entry> {
    let InstanceKind::Pipeline { filters, scorers, picker } = &pipeline.kind else { return Vec::new() };
    let entry = |list: &'static str, index: usize, member: &String, kind| {
        // No instance of the file has brackets in its name.
        let name = format!("instances[{place}].pipeline.{list}[{index}]");
        Entry { list, member: member.clone(), alone: Instance { name, kind, ..pipeline.clone() } }
    };
    let of = |filters: Vec<String>, scorers: Vec<String>, picker| InstanceKind::Pipeline { filters, scorers, picker };
    let none = Vec::new;
    let filters =
        filters.iter().enumerate().map(|(i, name)| entry("filters", i, name, of(vec![name.clone()], none(), None)));
    let scorers =
        scorers.iter().enumerate().map(|(i, name)| entry("scorers", i, name, of(none(), vec![name.clone()], None)));
    let picker = picker.iter().map(|name| entry("picker", 0, name, of(none(), none(), Some(name.clone()))));
    filters.chain(scorers).chain(picker).collect()
}

/// Where the message begins with the key, an outcome's name before it aside, or quotes it.
fn names_key(message: &str, key: &str) -> Option<usize> {
    let is_part = |char: char| char.is_alphanumeric() || char == '_' || char == '-';
    let begin = Outcome::ALL
        .iter()
        .find_map(|outcome| Some(message.len() - message.strip_prefix(outcome.as_str())?.strip_prefix(": ")?.len()))
        .unwrap_or(0);
    let places = message.match_indices(key).map(|(place, _)| place);
    places.filter(|_| !key.is_empty()).find(|place| {
        let before = message.get(..*place).and_then(|text| text.chars().next_back());
        let after = message.get(place + key.len()..).and_then(|text| text.chars().next());
        let quoted = before.is_some_and(|quote| "`'\"".contains(quote)) && before == after;
        quoted || (*place == begin && !after.is_some_and(is_part))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_named_at_the_beginning_or_in_quotes() {
        assert_eq!(names_key("`scale` must be finite", "scale"), Some(1));
        assert_eq!(names_key("scale must be finite", "scale"), Some(0));
        assert_eq!(names_key("policy-error: scale must be finite", "scale"), Some(14));
        assert_eq!(names_key("policy-error: `prefill_load_scale` needs `scale`", "scale"), Some(42));
        assert_eq!(names_key("prefill_load_scale must be finite", "scale"), None);
        assert_eq!(names_key("scales", "scale"), None);
        assert_eq!(names_key("the component has no scale", "the component"), Some(0));
        assert_eq!(names_key("there is no scale", "scale"), None);
    }
}
