//! One router for each run, built before the first one starts: what is wrong shows at once.

use std::path::{Path, PathBuf};

use pointsman_contract::Role;
use pointsman_replay::BLOCK_SIZE;
use pointsman_routing::config::{InstanceKind, Overrides, PolicyConfig};
use pointsman_routing::{DEFAULT, InstanceSpec, PartitionKey, Provider, Router, RouterBuilder, StageMode};
use pointsman_sandbox::{Artifact, Determinism, Sandbox, SandboxConfig};

use super::arguments::Policy;
use crate::compile::Compile;
use crate::error::CliError;
use crate::register::Registration;
use crate::{parameters, source};

/// A router that has decided nothing yet.
pub(super) struct Prepared {
    /// The policy's name in the report.
    pub(super) label: String,
    pub(super) router: Router,
    /// The components that its router-policy file names.
    pub(super) components: Vec<PathBuf>,
}

/// What all runs share.
pub(super) struct Setup<'a> {
    pub(super) seed: u64,
    pub(super) mode: StageMode,
    /// None leaves it to the router-policy file.
    pub(super) determinism: Option<Determinism>,
    pub(super) roles: &'a [Role],
    pub(super) register: &'a [Registration],
    pub(super) overrides: Overrides,
    pub(super) compile: &'a Compile,
}

impl Setup<'_> {
    pub(super) fn prepare(&self, policies: &[(Policy, Option<String>)]) -> Result<Vec<Prepared>, CliError> {
        let determinism = self.determinism.unwrap_or_default();
        let sandbox = Sandbox::new(self.compile.config(SandboxConfig { determinism, ..SandboxConfig::default() }))?;
        let router = |builder: RouterBuilder| {
            let router = builder.seed(self.seed).stages(self.mode).deadline_us(source::BACKSTOP_US).build()?;
            for role in self.roles {
                let partition = router.partition(&PartitionKey::of_role(*role), BLOCK_SIZE)?;
                router.check_admission(&partition)?;
            }
            Ok::<_, CliError>(router)
        };
        let run = |(policy, given): &(Policy, Option<String>)| {
            let given = given.as_deref().map(|text| parameters::parse("--parameters", text)).transpose()?;
            let mut components = Vec::new();
            let (label, builder) = match policy {
                Policy::Named(name) if name == DEFAULT => match given {
                    Some(given) if !given.is_empty() => return Err(CliError::DefaultParameters),
                    _ => (DEFAULT.to_owned(), Router::builder().sandbox(sandbox.clone())),
                },
                Policy::Named(name) => {
                    let policy = pointsman_policies::get(name)
                        .ok_or_else(|| CliError::UnknownBuiltIn { name: name.clone(), available: source::names() })?;
                    let instance = InstanceSpec::new(name.as_str()).parameters(given.unwrap_or_default());
                    let builder = Router::builder().register(name, Provider::component(source::built_in(policy)));
                    (name.clone(), builder.serve(instance).sandbox(sandbox.clone()))
                }
                Policy::Component(path) => {
                    let artifact = Artifact::from_file(path)?;
                    let (loaded, profile) = source::load_any(&sandbox, &artifact)?;
                    let label = loaded.manifest().name.clone();
                    // Registered by its path, since its own name may be one that is reserved or taken.
                    let type_name = format!("component {}", path.display());
                    let instance = InstanceSpec::new(type_name.as_str()).parameters(given.unwrap_or_default());
                    let instance = source::fitting(instance, &loaded, profile);
                    let instance = if label == DEFAULT { instance } else { instance.named(label.as_str()) };
                    let builder = Router::builder().register(&type_name, Provider::component(artifact));
                    (label, builder.serve(instance).sandbox(sandbox.clone()))
                }
                Policy::Config(path) => (file_name(path), self.configured(path, &sandbox, &mut components)?),
            };
            Ok(Prepared { label, router: router(builder)?, components })
        };
        policies.iter().map(run).collect()
    }

    /// A router by a router-policy file, with the built-in and the registered types.
    fn configured(
        &self,
        path: &Path,
        sandbox: &Sandbox,
        components: &mut Vec<PathBuf>,
    ) -> Result<RouterBuilder, CliError> {
        let config = PolicyConfig::load(path)?;
        components.extend(config.components.iter().map(|component| component.path.clone()));
        let instances = config.worker_selection.iter().flat_map(|selection| &selection.instances);
        let instances = instances.chain(config.request_classifier.iter().map(|classifier| &classifier.policy));
        components.extend(instances.filter_map(|instance| match &instance.kind {
            InstanceKind::Component(path) => Some(path.clone()),
            InstanceKind::Type(_) | InstanceKind::Pipeline { .. } => None,
        }));
        let mut wanted: SandboxConfig = self.compile.config(config.sandbox.sandbox_config());
        wanted.determinism = self.determinism.unwrap_or(wanted.determinism);
        let sandbox = if wanted == *sandbox.config() { sandbox.clone() } else { Sandbox::new(wanted)? };
        let mut builder = Router::builder().sandbox(sandbox);
        for policy in pointsman_policies::all() {
            builder = builder.register(policy.name, Provider::component(source::built_in(policy)));
        }
        for Registration { type_name, path } in self.register {
            builder = builder.register(type_name, Provider::component(Artifact::from_file(path)?));
        }
        Ok(builder.policy_config(config).overrides(self.overrides.clone()))
    }
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().map(PathBuf::from).unwrap_or_else(|| path.to_owned());
    name.display().to_string()
}
