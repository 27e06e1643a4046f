//! The router policy config: one YAML file that says which policy decides for which workers.
//!
//! [`PolicyConfig::parse`] finds everything that the file alone can show to be wrong, [`PolicyConfig::check_types`] what
//! takes the registered types, both all problems at once; a [`Reading`] keeps what is sound beside them. `yaml` turns the text into a tree that keeps lines, `reader`
//! reads values of a type from it, `schema` knows the fields.

mod admission;
mod diff;
mod overrides;
mod problem;
mod reader;
mod reading;
mod schema;
mod yaml;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use pointsman_admission::{AffinityMode, Profiles};
use pointsman_contract::Role;
use pointsman_sandbox::{ByProfile, CompileConfig, Limits, LoadBounds, Profile, Quotas, SandboxConfig};
use serde_json::Map;

pub use pointsman_sandbox::Determinism;

pub use diff::ConfigChange;
pub use overrides::{DECODE_VARIABLE, GLOBAL_VARIABLE, OverrideError, Overrides, PREFILL_VARIABLE};
pub use problem::{Problem, Problems, Report};
pub use reader::{Document, Field, Fields};
pub use reading::Reading;

pub use crate::breaker::BreakerSettings;

use problem::{did_you_mean, listed, shown};
use schema::Places;

/// The most guests that `sandbox.guests` may ask for.
pub const MOST_GUESTS: u32 = 65_536;

/// A router policy config, read and checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicyConfig {
    /// The file, as the caller named it.
    pub file: String,
    /// Settings of the router itself.
    pub router: RouterSettings,
    /// Which policy decides for which workers; none where the built-in policy decides for all.
    pub worker_selection: Option<WorkerSelection>,
    /// Artifacts that the file registers as policy types, in its order.
    pub components: Vec<Component>,
    /// Settings of the sandbox, read once at start.
    pub sandbox: SandboxSettings,
    /// Tenants, in the file's order.
    pub tenants: Vec<Tenant>,
    /// The policy classes of each model: the file's own profile or, where there is none, the synthetic one without a
    /// threshold, and the profiles of `models`.
    pub profiles: Profiles,
    /// The section `request_classifier`; none where every request is admitted as it comes.
    pub request_classifier: Option<RequestClassifier>,
    /// The section `session_affinity`; none where sessions keep no worker.
    pub session_affinity: Option<SessionAffinitySettings>,
}

/// Settings of the router; none where the file leaves one out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RouterSettings {
    /// Weight of a host-memory overlap block, 0 to 1.
    pub host_cache_hit_weight: Option<f64>,
    /// Weight of a disk overlap block, 0 to 1.
    pub disk_cache_hit_weight: Option<f64>,
}

/// The section `worker_selection`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkerSelection {
    /// The selection of each role where no rule of `partitions` has one.
    pub roles: Roles,
    /// The configured instances, in the file's order; their names are unique.
    pub instances: Vec<Instance>,
    /// Selections for some partitions, in the file's order.
    pub partitions: Vec<PartitionRule>,
}

impl WorkerSelection {
    /// The instance of that name.
    #[must_use]
    pub fn instance(&self, name: &str) -> Option<&Instance> {
        self.instances.iter().find(|instance| instance.name == name)
    }

    /// The tenants that an instance belongs to, by itself or by the instances of its pipeline.
    pub(crate) fn owners(&self, name: &str) -> impl Iterator<Item = &str> {
        let instance = self.instance(name);
        let members = instance.into_iter().flat_map(|instance| match &instance.kind {
            InstanceKind::Pipeline { filters, scorers, picker } => {
                filters.iter().chain(scorers).chain(picker).collect()
            }
            InstanceKind::Type(_) | InstanceKind::Component(_) => Vec::new(),
        });
        let members = members.filter_map(|name| self.instance(name));
        instance.into_iter().chain(members).filter_map(|instance| instance.tenant.as_deref())
    }
}

/// A selection for each role, none where the file has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roles([Option<Selected>; Role::ALL.len()]);

impl Roles {
    /// The selection of a role.
    #[must_use]
    pub fn get(&self, role: Role) -> Option<&Selected> {
        Role::ALL.iter().zip(&self.0).find_map(|(each, selected)| (*each == role).then_some(selected.as_ref())?)
    }

    /// Sets the selection of a role.
    pub fn set(&mut self, role: Role, selected: Selected) {
        for (each, slot) in Role::ALL.into_iter().zip(&mut self.0) {
            if each == role {
                *slot = Some(selected);
                return;
            }
        }
    }

    /// Whether no role has a selection.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }
}

/// What decides for a pool of workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Selected {
    /// The built-in policy.
    #[default]
    Default,
    /// The configured instance of that name.
    Instance(String),
}

/// One configured instance of a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    /// Its name, unique in the file.
    pub name: String,
    /// What it is an instance of.
    pub kind: InstanceKind,
    /// The policy's parameters; empty where the file has none.
    pub parameters: Map<String, serde_json::Value>,
    /// The limits that the file sets.
    pub limits: LimitsPatch,
    /// Whether the policy may import WASI, with nothing granted: what runtimes of other languages need to start.
    pub wasi: bool,
    /// What happens when the policy faults.
    pub on_fault: OnFault,
    /// The tenant whose routing groups it may serve, and no others; none for an instance of the operator.
    pub tenant: Option<String>,
    /// The line that the instance starts on.
    pub line: usize,
    /// The line of its `type`, `component` or `pipeline`.
    pub kind_line: usize,
    /// The line of each parameter.
    pub parameter_lines: BTreeMap<String, usize>,
}

/// What an instance is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstanceKind {
    /// A registered type.
    Type(String),
    /// An artifact without a type name. The path is relative to the file's folder no more.
    Component(PathBuf),
    /// Other instances, each for its stage; at least one in all.
    Pipeline {
        /// Names of the instances that filter, in order.
        filters: Vec<String>,
        /// Names of the instances whose costs are added, in order.
        scorers: Vec<String>,
        /// Name of the instance that picks; none for the lowest cost.
        picker: Option<String>,
    },
}

/// The limits that an instance sets, over the defaults of its profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitsPatch {
    /// The profile; none for the default one.
    pub profile: Option<Profile>,
    /// Keys of [`pointsman_sandbox::LIMITS`] and their values.
    pub values: Vec<(&'static str, u64)>,
}

impl LimitsPatch {
    /// The defaults of the profile with these limits set.
    #[must_use]
    pub fn resolve(&self) -> Limits {
        let mut limits = Limits::of(self.profile.unwrap_or_default());
        for &(key, value) in &self.values {
            let known = limits.set(key, value);
            debug_assert!(known, "{key} is a key of the table of limits");
        }
        limits
    }
}

/// What happens to a request when an instance faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnFault {
    /// Where it is not known which rows the filter keeps: `Reject` or `Fallback`, which lets them all through.
    ///
    /// A filter is a hard rule, so this is `Fallback` only where the file says `on_fault: {filter: fallback}`.
    pub filter: FaultAction,
    /// For every other fault.
    pub otherwise: FaultAction,
}

impl Default for OnFault {
    fn default() -> Self {
        Self { filter: FaultAction::Reject, otherwise: FaultAction::Fallback }
    }
}

/// What to do about a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultAction {
    /// Refuse the request with the outcome's name.
    Reject,
    /// Let the built-in policy decide, among the rows that the filters kept.
    Fallback,
    /// Let the instance's previous version decide; where there is none, as `Fallback`.
    LastGood,
}

impl FaultAction {
    /// The action's word in the file.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reject => "reject",
            Self::Fallback => "fallback",
            Self::LastGood => "last-good",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Reject, Self::Fallback, Self::LastGood].into_iter().find(|action| action.as_str() == name)
    }
}

/// The section `request_classifier`: what decides whether and when a request is admitted.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestClassifier {
    /// The policy, a type or a component, under the name [`Self::NAME`]. Its own `on_fault` is without a meaning.
    pub policy: Instance,
    /// What happens to the requests that the classifier fails, those included that it held when it was rebuilt.
    pub on_fault: pointsman_admission::OnFault,
    /// How long it may defer a request, in milliseconds, 1 to 86,400,000.
    pub max_deferral_ms: u32,
}

impl RequestClassifier {
    /// The name of the instance, in messages and in its seed.
    pub const NAME: &str = "request_classifier";
}

/// The section `session_affinity`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionAffinitySettings {
    /// How strictly a session keeps its worker.
    pub mode: AffinityMode,
    /// How long an idle session keeps it, in seconds, 1 to 31,536,000.
    pub ttl_secs: u32,
}

/// An artifact that the file registers as a policy type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// The type's name, unique among the file's components.
    pub type_name: String,
    /// The artifact. The path is relative to the file's folder no more.
    pub path: PathBuf,
    /// The SHA-256 that the artifact must have, as 64 lower-case hex digits.
    pub digest: Option<String>,
    /// The line that the entry starts on.
    pub line: usize,
}

/// The section `sandbox`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxSettings {
    /// The most guests at a time, 1 to [`MOST_GUESTS`].
    pub guests: u32,
    /// Whether decisions are the same bit for bit on every machine.
    pub determinism: Determinism,
    /// Whether every artifact must come with its digest.
    pub require_digest: bool,
    /// Whether a policy has to decide over made-up candidates before it serves.
    pub smoke: bool,
    /// When a policy that fails is kept out.
    pub breaker: BreakerSettings,
    /// What an artifact may be.
    pub load: ByProfile<LoadBounds>,
    /// How artifacts are compiled. No file names the worker: a host sets it.
    pub compile: CompileConfig,
}

impl Default for SandboxSettings {
    fn default() -> Self {
        let SandboxConfig { guests, determinism, load, compile } = SandboxConfig::default();
        let breaker = BreakerSettings::default();
        Self { guests, determinism, require_digest: false, smoke: true, breaker, load, compile }
    }
}

impl SandboxSettings {
    /// What [`pointsman_sandbox::Sandbox::new`] takes.
    #[must_use]
    pub fn sandbox_config(&self) -> SandboxConfig {
        let Self { guests, determinism, load, compile, .. } = self.clone();
        SandboxConfig { guests, determinism, load, compile }
    }
}

/// A tenant: a set of routing groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tenant {
    /// Its name, unique in the file.
    pub name: String,
    /// Its routing groups; none belongs to a second tenant.
    pub routing_groups: Vec<String>,
    /// Keys of [`pointsman_sandbox::LIMITS`] and the most that its own instances may have of each.
    pub limits: Vec<(&'static str, u64)>,
    /// What its requests may use, over all of its partitions.
    pub quotas: TenantQuotas,
    /// The names `metric.*`, `label.*` and `header.*` that its own instances may read.
    pub grants: Vec<String>,
}

/// What a tenant's requests may use, over all of its partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantQuotas {
    /// Fuel within a second; the largest number for no bound.
    pub fuel_per_second: u64,
    /// What it may use of the sandbox.
    pub sandbox: Quotas,
}

impl Default for TenantQuotas {
    fn default() -> Self {
        Self { fuel_per_second: u64::MAX, sandbox: Quotas::UNLIMITED }
    }
}

/// A selection for the partitions of a model, a routing group or a tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionRule {
    /// The model; none for every one.
    pub model: Option<String>,
    /// The routing group; none for every one.
    pub routing_group: Option<String>,
    /// The tenant whose routing groups are meant; never beside `routing_group`.
    pub tenant: Option<String>,
    /// The selections; at least one.
    pub roles: Roles,
    /// The line that the rule starts on.
    pub line: usize,
}

/// A routing partition, as the selection looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionKeyRef<'a> {
    /// The model's name.
    pub model: &'a str,
    /// The routing group.
    pub routing_group: &'a str,
    /// What the partition's workers do.
    pub role: Role,
}

impl PolicyConfig {
    /// Reads the text of a file. `file` names it in problems; relative paths in it start at `folder`.
    ///
    /// Whether artifacts exist is not looked at.
    ///
    /// # Errors
    /// Everything that is wrong with the text, at once.
    pub fn parse(file: &str, folder: &Path, text: &str) -> Result<Self, Problems> {
        let Reading { config, problems, .. } = Reading::of(file, folder, text);
        Problems::none_or(config, problems)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// As [`PolicyConfig::parse`], and where the file cannot be read as UTF-8 text.
    pub fn load(path: &Path) -> Result<Self, Problems> {
        let Reading { config, problems, .. } = Reading::load(path);
        Problems::none_or(config, problems)
    }

    /// The text of a file.
    fn text(path: &Path) -> Result<String, Problem> {
        let file = path.display().to_string();
        let mut bytes = Vec::new();
        // One byte more than allowed shows that there are too many.
        let most = yaml::MOST_BYTES as u64 + 1;
        if let Err(error) = std::fs::File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes)) {
            let message = format!("the file cannot be read ({error}); give the path of a readable YAML file");
            return Err(Problem { file, line: 0, field: String::new(), message });
        }
        if bytes.len() > yaml::MOST_BYTES {
            return Err(Problem { file, line: 0, field: String::new(), message: yaml::too_long() });
        }
        String::from_utf8(bytes).map_err(|error| {
            let valid = error.utf8_error().valid_up_to();
            let line = 1 + error.as_bytes().iter().take(valid).filter(|byte| **byte == b'\n').count();
            let message = "the file is not UTF-8 text; save it as UTF-8".to_owned();
            Problem { file, line, field: String::new(), message }
        })
    }

    /// Checks the types against those that are registered outside the file, built-in ones included.
    ///
    /// # Errors
    /// Every instance of an unknown type, the classifier included, and every component whose type is registered
    /// already, at once.
    pub fn check_types(&self, registered: &[String]) -> Result<(), Problems> {
        let instances = self.worker_selection.as_ref().map_or(0, |selection| selection.instances.len());
        let (components, instances) = ((0..self.components.len()).collect(), (0..instances).collect());
        let places = Places { components, instances, types: Some(BTreeSet::new()) };
        Problems::none_or((), self.type_problems(registered, &places, |_, line| line))
    }

    /// `line` takes a field and the line to fall back on.
    fn type_problems(
        &self,
        registered: &[String],
        places: &Places,
        line: impl Fn(&str, usize) -> usize,
    ) -> Vec<Problem> {
        let mut report = Report::new(&self.file);
        for (place, component) in places.components.iter().zip(&self.components) {
            if registered.contains(&component.type_name) {
                let name = shown(&component.type_name);
                let message = format!("the type {name} is registered already; choose another name");
                let field = format!("components[{place}].type");
                report.add(line(&field, component.line), &field, message);
            }
        }
        let mut available: Vec<&str> = registered.iter().map(String::as_str).collect();
        let own = self.components.iter().map(|component| component.type_name.as_str());
        // An entry without a type of its own is named by its place.
        available.extend(own.filter(|name| !name.ends_with(']')));
        available.sort_unstable();
        available.dedup();
        let instances = self.worker_selection.iter().flat_map(|selection| &selection.instances);
        let fields = places.instances.iter().map(|place| format!("worker_selection.instances[{place}]"));
        let classifier = self.request_classifier.iter();
        let classifier = classifier.map(|classifier| (RequestClassifier::NAME.to_owned(), &classifier.policy));
        for (field, instance) in fields.zip(instances).chain(classifier) {
            if let InstanceKind::Type(name) = &instance.kind
                && !available.contains(&name.as_str())
                && places.types.as_ref().is_some_and(|types| !types.contains(name))
            {
                let near = did_you_mean(name, available.iter().copied());
                let available = listed(available.iter().copied());
                let message = format!("unknown policy type {}{near}; the types are {available}", shown(name));
                report.add(instance.kind_line, &format!("{field}.type"), message);
            }
        }
        report.problems()
    }

    /// What decides for a partition, as the file says it: the most specific rule that has the role, then the role's own
    /// selection, then the built-in policy. Model and routing group go before routing group, then model and tenant,
    /// tenant, model.
    #[must_use]
    pub fn selected(&self, key: PartitionKeyRef<'_>) -> Selected {
        let Some(selection) = &self.worker_selection else { return Selected::Default };
        let fits = |wanted: &Option<String>, value: &str| wanted.as_deref().is_none_or(|wanted| wanted == value);
        let rule = selection
            .partitions
            .iter()
            .filter(|rule| fits(&rule.model, key.model) && fits(&rule.routing_group, key.routing_group))
            .filter(|rule| rule.tenant.as_deref().is_none_or(|tenant| self.in_tenant(key.routing_group, tenant)))
            .filter_map(|rule| Some((rule.specificity(), rule.roles.get(key.role)?)))
            .max_by_key(|(specificity, _)| *specificity)
            .map(|(_, selected)| selected);
        rule.or(selection.roles.get(key.role)).cloned().unwrap_or_default()
    }

    /// The files of the components that it names.
    #[must_use]
    pub fn artifact_files(&self) -> BTreeSet<PathBuf> {
        let components = self.components.iter().map(|component| component.path.clone());
        let selection = self.worker_selection.iter().flat_map(|selection| &selection.instances);
        let instances = selection.chain(self.request_classifier.iter().map(|classifier| &classifier.policy));
        let instances = instances.filter_map(|instance| match &instance.kind {
            InstanceKind::Component(path) => Some(path.clone()),
            InstanceKind::Type(_) | InstanceKind::Pipeline { .. } => None,
        });
        components.chain(instances).collect()
    }

    /// The tenant that a routing group belongs to.
    #[must_use]
    pub fn tenant_of(&self, routing_group: &str) -> Option<&Tenant> {
        self.tenants.iter().find(|tenant| tenant.routing_groups.iter().any(|group| group == routing_group))
    }

    fn in_tenant(&self, routing_group: &str, tenant: &str) -> bool {
        self.tenant_of(routing_group).is_some_and(|found| found.name == tenant)
    }
}

impl PartitionRule {
    fn specificity(&self) -> (bool, bool, bool) {
        (self.routing_group.is_some(), self.tenant.is_some(), self.model.is_some())
    }
}
