//! Policy types by name, and what it takes to make a guest of one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use pointsman_contract::{Partition, RouterConfig};
use pointsman_sandbox::{
    Account, Artifact, CompiledPolicy, GuestSetup, GuestSlot, Limits, LoadError, LoadStep, Profile, Sandbox,
};
use pointsman_sdk::native::NativePolicy;
use rustc_hash::FxHashMap;

use crate::config::{Component, Instance, InstanceKind, PolicyConfig};
use crate::error::RouterError;
use crate::guest::Guest;
use crate::plan::provider_error;
use crate::sync::locked;

/// The name of the native default.
pub const DEFAULT: &str = "default";

/// Where the guests of a policy type come from.
#[derive(Clone)]
pub struct Provider(Kind);

#[derive(Clone)]
enum Kind {
    Component(Artifact),
    Native(Arc<dyn NativePolicy>),
}

impl Provider {
    /// A sandboxed component.
    #[must_use]
    pub const fn component(artifact: Artifact) -> Self {
        Self(Kind::Component(artifact))
    }

    /// A policy compiled into the host, such as `pointsman_sdk::native::native::<MyPolicy>()`. It is trusted.
    #[must_use]
    pub fn native(policy: impl NativePolicy + 'static) -> Self {
        Self(Kind::Native(Arc::new(policy)))
    }
}

impl std::fmt::Debug for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Kind::Component(artifact) => f.debug_tuple("Component").field(&artifact.origin()).finish(),
            Kind::Native(policy) => f.debug_tuple("Native").field(&policy.manifest().name).finish(),
        }
    }
}

/// The registered types, and the components that were compiled already. Clones share those.
#[derive(Clone, Default)]
pub(crate) struct Registry {
    types: BTreeMap<String, Provider>,
    /// The components that instances name by file, or why they cannot be read: as they were when the configuration was.
    files: BTreeMap<PathBuf, Result<Artifact, Failed>>,
    compiled: Arc<Mutex<Compiled>>,
}

/// How far a load came, and why no further.
type Failed = (LoadStep, String);

/// By digest, profile and whether WASI may be imported.
type Compiled = FxHashMap<(String, Profile, bool), Arc<CompiledPolicy>>;

impl Registry {
    pub(crate) fn register(&mut self, name: &str, provider: Provider) -> Result<(), RouterError> {
        match name.trim() {
            "" => Err(RouterError::EmptyName),
            DEFAULT => Err(RouterError::ReservedDefault),
            name if self.types.contains_key(name) => Err(RouterError::Duplicate { name: name.to_owned() }),
            name => {
                self.types.insert(name.to_owned(), provider);
                Ok(())
            }
        }
    }

    /// Registers the file of an entry in `components[]`, checked against its digest where it has one.
    pub(crate) fn register_component(&mut self, file: &str, component: &Component) -> Result<(), RouterError> {
        let artifact = Artifact::from_file(&component.path).and_then(|artifact| match &component.digest {
            Some(digest) => artifact.pinned(digest),
            None => Ok(artifact),
        });
        let artifact = artifact.map_err(|error| {
            let Component { type_name, line, .. } = component;
            RouterError::Config(format!("{file}:{line}: component `{type_name}`: {error}"))
        })?;
        // A tenant may see what its policy is called, and no folder of the host.
        self.register(&component.type_name, Provider::component(artifact.named(&*component.type_name)))
    }

    /// Reads the components that instances name by file.
    pub(crate) fn read_files(&mut self, config: &PolicyConfig) {
        let selection = config.worker_selection.iter().flat_map(|selection| &selection.instances);
        let classifier = config.request_classifier.iter().map(|classifier| &classifier.policy);
        for instance in selection.chain(classifier) {
            if let InstanceKind::Component(path) = &instance.kind {
                self.files.entry(path.clone()).or_insert_with(|| read(path));
            }
        }
    }

    /// SHA-256 of an instance's component in hexadecimal; `native` for a policy that is compiled in.
    pub(crate) fn digest(&self, instance: &Instance) -> Result<String, RouterError> {
        Ok(match self.provider(instance)?.0 {
            Kind::Component(artifact) => artifact.sha256_hex(),
            Kind::Native(_) => "native".to_owned(),
        })
    }

    /// Whether an instance runs in the sandbox.
    pub(crate) fn is_component(&self, instance: &Instance) -> bool {
        matches!(self.provider(instance), Ok(Provider(Kind::Component(_))))
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.types.keys().cloned().collect()
    }

    /// Builds one guest of `instance` for `partition`.
    pub(crate) fn guest(
        &self,
        sandbox: &Sandbox,
        instance: &Instance,
        partition: Partition,
        router_config: &RouterConfig,
        limits: Limits,
        account: Option<&Arc<Account>>,
    ) -> Result<Guest, RouterError> {
        let parameters = serde_json::Value::Object(instance.parameters.clone()).to_string();
        let fail = |(step, message)| provider_error(instance, step, message);
        match self.provider(instance)?.0 {
            Kind::Native(policy) => {
                let guest = policy.configure(&partition, router_config, &parameters).map(Guest::Native);
                guest.map_err(|message| fail((LoadStep::Configure, message)))
            }
            Kind::Component(artifact) => {
                let artifact = if instance.wasi { artifact.with_wasi() } else { artifact };
                let policy = self.compile(sandbox, &artifact, &limits, account).map_err(fail)?;
                let setup = GuestSetup {
                    policy,
                    instance: instance.name.clone(),
                    partition,
                    router_config: *router_config,
                    parameters,
                    limits,
                    account: account.cloned(),
                };
                let slot = GuestSlot::new(setup).map_err(|error| fail((LoadStep::Configure, error.to_string())))?;
                Ok(Guest::Component(Box::new(slot)))
            }
        }
    }

    fn provider(&self, instance: &Instance) -> Result<Provider, RouterError> {
        let unknown = |name: &str| RouterError::UnknownType {
            instance: instance.name.clone(),
            name: name.to_owned(),
            available: listed(self.types.keys()),
        };
        match &instance.kind {
            InstanceKind::Type(name) => self.types.get(name).cloned().ok_or_else(|| unknown(name)),
            InstanceKind::Component(path) => {
                let read = self.files.get(path).cloned().unwrap_or_else(|| read(path));
                read.map(Provider::component).map_err(|(step, message)| provider_error(instance, step, message))
            }
            InstanceKind::Pipeline { .. } => Err(unknown("pipeline")),
        }
    }

    /// Compiles an artifact once for each profile; the limits of the first instance bound its start.
    fn compile(
        &self,
        sandbox: &Sandbox,
        artifact: &Artifact,
        limits: &Limits,
        account: Option<&Arc<Account>>,
    ) -> Result<Arc<CompiledPolicy>, Failed> {
        let compiled = || locked(&self.compiled);
        let key = (artifact.sha256_hex(), limits.profile, artifact.may_import_wasi());
        if let Some(policy) = compiled().get(&key) {
            return Ok(Arc::clone(policy));
        }
        // Nobody waits for it meanwhile; who needs the same one compiles it too.
        let policy = sandbox.load_for(artifact, limits, account).map_err(failed)?;
        Ok(Arc::clone(compiled().entry(key).or_insert(policy)))
    }

    /// Forgets components that no guest needs any more.
    pub(crate) fn forget_unused(&self) {
        let mut compiled = locked(&self.compiled);
        compiled.retain(|_, policy| Arc::strong_count(policy) > 1);
    }
}

fn failed(error: LoadError) -> Failed {
    (error.step(), error.to_string())
}

/// Reads an instance's component. Messages name its file without the folder: a tenant may see them.
fn read(path: &Path) -> Result<Artifact, Failed> {
    let name = path.file_name().unwrap_or(path.as_os_str());
    Artifact::from_file(path).map(|artifact| artifact.named(name.to_string_lossy())).map_err(failed)
}

/// The name of an instance's type, for messages.
pub(crate) fn type_name(kind: &InstanceKind) -> String {
    match kind {
        InstanceKind::Type(name) => name.clone(),
        InstanceKind::Component(path) => path.display().to_string(),
        InstanceKind::Pipeline { .. } => "pipeline".to_owned(),
    }
}

/// Names in one line, sorted, or `<none>`.
pub(crate) fn listed<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let mut names: Vec<&str> = names.map(String::as_str).collect();
    names.sort_unstable();
    if names.is_empty() { "<none>".to_owned() } else { names.join(", ") }
}
