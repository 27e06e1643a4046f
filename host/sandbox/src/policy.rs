//! From an artifact to a policy that guests can be built of.

use std::sync::{Arc, OnceLock};

use pointsman_contract::{CONTRACT_VERSION, Manifest, Stages};
use wasmtime::component::{Component, ComponentExportIndex, InstancePre, Linker};

use crate::account::Account;
use crate::artifact::Artifact;
use crate::bounds::LOAD_BOUNDS;
use crate::declared::DeclaredLimits;
use crate::engine::EngineKind;
use crate::guest::{self, State};
use crate::imports::{Import, imports};
use crate::limits::Limits;
use crate::load::LoadError;
use crate::log;
use crate::sandbox::Sandbox;
use crate::structure::{self, Outline, Refused};
use crate::text::sentence;

/// A component that is ready to become guests.
pub struct CompiledPolicy {
    sandbox: Sandbox,
    artifact: Artifact,
    /// Whose compilation it is.
    account: Option<Arc<Account>>,
    manifest: Manifest,
    stages: Stages,
    imports: Vec<Import>,
    declared: DeclaredLimits,
    pooled: OnceLock<Prepared>,
    on_demand: OnceLock<Prepared>,
}

/// A component compiled for one engine, linked, with the places of its exports.
pub(crate) struct Prepared {
    pub(crate) pre: InstancePre<State>,
    pub(crate) exports: Exports,
    imports: Vec<Import>,
}

/// Where the functions of the contract are.
pub(crate) struct Exports {
    pub(crate) describe: ComponentExportIndex,
    pub(crate) configure: ComponentExportIndex,
    pub(crate) keep: Option<ComponentExportIndex>,
    pub(crate) score: Option<ComponentExportIndex>,
    pub(crate) pick: Option<ComponentExportIndex>,
    pub(crate) select: Option<ComponentExportIndex>,
    pub(crate) classifier: Option<ClassifierExports>,
}

/// Where the classifier's functions are.
pub(crate) struct ClassifierExports {
    pub(crate) classify: ComponentExportIndex,
    pub(crate) on_event: ComponentExportIndex,
    pub(crate) on_tick: ComponentExportIndex,
}

impl Exports {
    fn stages(&self) -> Stages {
        Stages {
            filter: self.keep.is_some(),
            score: self.score.is_some(),
            pick: self.pick.is_some(),
            select: self.select.is_some(),
            classify: self.classifier.is_some(),
        }
    }
}

impl CompiledPolicy {
    pub(crate) fn load(
        sandbox: &Sandbox,
        artifact: &Artifact,
        limits: &Limits,
        account: Option<&Arc<Account>>,
    ) -> Result<Self, LoadError> {
        let span = tracing::debug_span!("load", origin = artifact.origin(), profile = limits.profile.as_str());
        let _entered = span.entered();
        let outline = outline(sandbox, artifact, limits)?;
        let declared = DeclaredLimits::of(artifact.bytes())
            .map_err(|error| LoadError::Limits { origin: artifact.origin().to_owned(), error })?;
        let limits = &limits.narrowed_by(declared.iter());
        let prepared = Prepared::new(sandbox, artifact, &outline, limits, account)?;
        let manifest = guest::describe(sandbox, artifact.origin(), &prepared, limits)?;
        let stages = prepared.exports.stages();
        tracing::debug!(policy = manifest.name, version = manifest.version, ?stages, "loaded");
        let policy = Self {
            sandbox: sandbox.clone(),
            artifact: artifact.clone(),
            account: account.cloned(),
            manifest,
            stages,
            imports: prepared.imports.clone(),
            declared,
            pooled: OnceLock::new(),
            on_demand: OnceLock::new(),
        };
        let _ = policy.slot(EngineKind::of(limits)).set(prepared);
        Ok(policy)
    }

    /// What the policy says of itself.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The stages that it exports.
    #[must_use]
    pub fn stages(&self) -> Stages {
        self.stages
    }

    /// The version of the contract that it speaks.
    #[must_use]
    pub fn wit_version(&self) -> &str {
        CONTRACT_VERSION
    }

    /// The interfaces with functions that it imports: none, the log, or what its artifact is granted of WASI.
    #[must_use]
    pub fn imports(&self) -> &[Import] {
        &self.imports
    }

    /// Whether it imports any of WASI.
    #[must_use]
    pub fn imports_wasi(&self) -> bool {
        self.imports.iter().any(Import::is_wasi)
    }

    /// The limits that the component declares for itself; its guests get the smaller of these and what they are
    /// granted.
    #[must_use]
    pub fn declared_limits(&self) -> &DeclaredLimits {
        &self.declared
    }

    /// SHA-256 of the component, in lower-case hexadecimal.
    #[must_use]
    pub fn sha256_hex(&self) -> String {
        self.artifact.sha256_hex()
    }

    /// The component's size in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.artifact.len()
    }

    /// Where the component came from.
    #[must_use]
    pub fn origin(&self) -> &str {
        self.artifact.origin()
    }

    pub(crate) fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// The component, compiled for the engine that these limits call for.
    pub(crate) fn prepared(&self, limits: &Limits) -> Result<&Prepared, LoadError> {
        let slot = self.slot(EngineKind::of(limits));
        match slot.get() {
            Some(prepared) => Ok(prepared),
            None => {
                let outline = outline(&self.sandbox, &self.artifact, limits)?;
                let prepared = Prepared::new(&self.sandbox, &self.artifact, &outline, limits, self.account.as_ref())?;
                Ok(slot.get_or_init(|| prepared))
            }
        }
    }

    fn slot(&self, kind: EngineKind) -> &OnceLock<Prepared> {
        match kind {
            EngineKind::Pooled => &self.pooled,
            EngineKind::OnDemand => &self.on_demand,
        }
    }
}

impl std::fmt::Debug for CompiledPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompiledPolicy")
            .field("artifact", &self.artifact)
            .field("manifest", &self.manifest)
            .field("stages", &self.stages)
            .finish_non_exhaustive()
    }
}

impl Prepared {
    /// The steps of a load from the structure to the guest, in order: nothing compiles what an earlier one refuses.
    fn new(
        sandbox: &Sandbox,
        artifact: &Artifact,
        outline: &Outline,
        limits: &Limits,
        account: Option<&Arc<Account>>,
    ) -> Result<Self, LoadError> {
        let contract = Contract::of(&outline.exports, artifact.origin())?;
        let imports = imports(outline, artifact.origin(), artifact.may_import_wasi())?;
        let component = sandbox.compile(artifact, limits, account)?;
        let invalid = |error: wasmtime::Error| LoadError::Invalid {
            origin: artifact.origin().to_owned(),
            profile: limits.profile.as_str(),
            reason: sentence(&format!("{error:#}")),
        };
        let mut linker = Linker::new(component.engine());
        log::link(&mut linker).map_err(invalid)?;
        #[cfg(feature = "wasi")]
        crate::wasi::link(&mut linker, &component).map_err(invalid)?;
        let pre = linker.instantiate_pre(&component).map_err(invalid)?;
        Ok(Self { pre, exports: contract.exports(&component, artifact.origin())?, imports })
    }
}

/// Holds the artifact to the bounds of its profile.
fn outline(sandbox: &Sandbox, artifact: &Artifact, limits: &Limits) -> Result<Outline, LoadError> {
    let bounds = sandbox.config().load.of(limits.profile);
    let origin = || artifact.origin().to_owned();
    let refused = |refused| match refused {
        Refused::Over { key, found, most } => {
            let meaning = LOAD_BOUNDS.iter().find(|row| row.key == key).map_or(key, |row| row.meaning);
            LoadError::Over { origin: origin(), profile: limits.profile.as_str(), key, meaning, found, most }
        }
        Refused::Malformed(reason) => LoadError::Malformed { origin: origin(), reason: sentence(&reason) },
    };
    structure::size(artifact.bytes(), bounds).map_err(refused)?;
    artifact.check_kind()?;
    structure::check(artifact.bytes(), bounds).map_err(refused)
}

/// The interfaces of the contract that a component exports, by their full names.
#[derive(Default)]
struct Contract {
    policy: bool,
    filter: bool,
    scorer: bool,
    picker: bool,
    selector: bool,
    classifier: bool,
}

const POLICY: &str = "policy";
const FILTER: &str = "worker-filter";
const SCORER: &str = "worker-scorer";
const PICKER: &str = "worker-picker";
const SELECTOR: &str = "worker-selector";
const CLASSIFIER: &str = "request-classifier";

fn full_name(interface: &str) -> String {
    format!("pointsman:policy/{interface}@{CONTRACT_VERSION}")
}

impl Contract {
    /// Reads the real names of the exports: wasmtime's own look-up takes 0.1.1 for 0.1.0. Exports that are not the
    /// contract's are left by some toolchains; they are ignored and never called.
    fn of(exports: &[String], origin: &str) -> Result<Self, LoadError> {
        let mut contract = Self::default();
        let mut other_version = None;
        for name in exports {
            let Some(name) = name.strip_prefix("pointsman:policy/") else { continue };
            let (interface, version) = name.split_once('@').unwrap_or((name, ""));
            let exported = match interface {
                POLICY => &mut contract.policy,
                FILTER => &mut contract.filter,
                SCORER => &mut contract.scorer,
                PICKER => &mut contract.picker,
                SELECTOR => &mut contract.selector,
                CLASSIFIER => &mut contract.classifier,
                _ => continue,
            };
            if version == CONTRACT_VERSION {
                *exported = true;
            } else {
                other_version.get_or_insert_with(|| sentence(&format!("pointsman:policy/{name}")));
            }
        }
        let origin = origin.to_owned();
        // A stage of another version is refused beside those of this one: a filter must not be passed over.
        match other_version {
            Some(found) => Err(LoadError::Version { origin, found }),
            None if !contract.policy => Err(LoadError::NoPolicy { origin }),
            None if !contract.has_stage() => Err(LoadError::NoStage { origin }),
            None => Ok(contract),
        }
    }

    fn has_stage(&self) -> bool {
        self.filter || self.scorer || self.picker || self.selector || self.classifier
    }

    fn exports(&self, component: &Component, origin: &str) -> Result<Exports, LoadError> {
        let function = |interface: &str, function: &str| {
            let name = full_name(interface);
            component
                .get_export_index(None, &*name)
                .and_then(|instance| component.get_export_index(Some(&instance), function))
                .ok_or_else(|| LoadError::Function {
                    origin: origin.to_owned(),
                    function: format!("{name} {function}"),
                    reason: "it is missing".to_owned(),
                })
        };
        let stage = |exported: bool, interface: &str, name: &str| {
            if exported { function(interface, name).map(Some) } else { Ok(None) }
        };
        Ok(Exports {
            describe: function(POLICY, "describe")?,
            configure: function(POLICY, "configure")?,
            keep: stage(self.filter, FILTER, "keep")?,
            score: stage(self.scorer, SCORER, "score")?,
            pick: stage(self.picker, PICKER, "pick")?,
            select: stage(self.selector, SELECTOR, "select")?,
            classifier: if self.classifier {
                Some(ClassifierExports {
                    classify: function(CLASSIFIER, "classify")?,
                    on_event: function(CLASSIFIER, "on-event")?,
                    on_tick: function(CLASSIFIER, "on-tick")?,
                })
            } else {
                None
            },
        })
    }
}
