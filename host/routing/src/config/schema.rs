//! The fields of the file: the tree -> [`PolicyConfig`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use pointsman_contract::Role;
use pointsman_sandbox::{COMPILE_LIMITS, CompileConfig, LIMITS, LOAD_BOUNDS, LimitRow, Profile};
use rustc_hash::FxHashMap;
use serde_json::Map;

use super::admission;
use super::problem::{Report, did_you_mean, listed, shown};
use super::reader::{Field, Fields, json_map};
use super::yaml::{Node, join};
use super::{
    BreakerSettings, Component, Determinism, FaultAction, Instance, InstanceKind, LimitsPatch, MOST_GUESTS, OnFault,
    PartitionRule, PolicyConfig, RequestClassifier, Roles, RouterSettings, SandboxSettings, Selected, Tenant,
    TenantQuotas, WorkerSelection,
};

const SECTIONS: &[&str] = &[
    "router",
    "worker_selection",
    "components",
    "sandbox",
    "tenants",
    "default_policy_family",
    "uncached_isl_buckets",
    "policy_classes",
    "models",
    "request_classifier",
    "session_affinity",
];
const ROUTER_SETTINGS: &[&str] = &["host_cache_hit_weight", "disk_cache_hit_weight"];
/// Dynamo's other settings of `router`: why they have no meaning here, and what to do instead of setting them.
const REFUSED_ROUTER_SETTINGS: &[(&[&str], &str)] = &[
    (
        &[
            "use_kv_events",
            "router_ttl_secs",
            "router_approximate_cache_policy",
            "router_predicted_ttl_secs",
            "router_event_threads",
            "use_remote_indexer",
            "serve_indexer",
            "enable_session_prefix_index",
        ],
        "the router keeps no index of KV blocks; set up the one that tells it each request's overlaps, and remove this",
    ),
    (
        &["shared_cache_type"],
        "the router asks no shared cache; have the embedder tell each request's shared blocks, and remove this",
    ),
    (
        &["router_tracking_hash", "router_tracking_key_file", "router_tracking_key_id"],
        "the router hashes no prompts; choose the hash where each request's block hashes are made, and remove this",
    ),
    (
        &["router_assume_kv_reuse"],
        "equal block hashes of two requests are a reused block; give requests without hashes where none is, and remove \
         this",
    ),
    (
        &["router_track_active_blocks"],
        "the blocks of reserved requests are always counted; choose a policy that does not read them, and remove this",
    ),
    (
        &["router_track_output_blocks"],
        "blocks of an answer are counted as the embedder reports them; report them or not, and remove this",
    ),
    (
        &["router_track_prefill_tokens"],
        "each request says by itself whether it counts towards prefill load; have the embedder say so, and remove this",
    ),
    (
        &["router_prefill_load_model"],
        "a prompt counts as prefill load until the embedder reports that its prefill is done; remove this",
    ),
    (
        &["router_replica_sync"],
        "routers share no load with each other; send each partition's requests through one router, and remove this",
    ),
];
const SANDBOX_FIELDS: &[&str] = &["guests", "determinism", "require_digest", "smoke", "breaker", "load", "compile"];
const COMPILE_FIELDS: &[&str] = &["at_once", "cache", "cache_bytes"];
const PROFILES: &[&str] = &["compact", "engine"];
const SELECTION_FIELDS: &[&str] = &["aggregated", "prefill", "decode", "encode", "instances", "partitions"];
const INSTANCE_FIELDS: &[&str] =
    &["name", "type", "component", "pipeline", "parameters", "limits", "wasi", "on_fault", "tenant"];
/// What an instance may be made of.
const KINDS: &[&str] = &["type", "component", "pipeline"];
const CLASSIFIER_FIELDS: &[&str] =
    &["type", "component", "parameters", "limits", "wasi", "on_fault", "max_deferral_ms"];
/// What a classifier may be made of.
const CLASSIFIER_KINDS: &[&str] = &["type", "component"];
const PARTITION_FIELDS: &[&str] = &["model", "routing_group", "tenant", "aggregated", "prefill", "decode", "encode"];

/// The fields of an entry in `components`.
const COMPONENT_FIELDS: &[&str] = &["type", "path", "digest"];
/// The fields of an entry in `tenants`.
const TENANT_FIELDS: &[&str] = &["name", "routing_groups", "limits", "quotas", "grants"];
/// The quotas of a tenant.
const QUOTAS: &[&str] =
    &["fuel_per_second", "guests", "resident_bytes", "compile_seconds_per_hour", "log_bytes_per_second"];
/// The kinds of names that an operator adds and may grant to a tenant.
const GRANTED: [&str; 3] = ["metric.", "label.", "header."];
const BREAKER_FIELDS: &[&str] = &["faults", "window_ms", "quarantine_ms", "most_quarantine_ms", "probes"];
/// The longest time of a breaker: a day, in milliseconds.
const MOST_BREAKER_MS: u64 = 86_400_000;
/// The largest quota: what a double holds exactly, as the numbers of YAML elsewhere.
const MOST_QUOTA: u64 = 1 << 53;

/// Where the entries of lists stand in the file, since those that make no sense are left out.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// Of [`PolicyConfig::components`].
    pub(super) components: Vec<usize>,
    /// Of [`WorkerSelection::instances`].
    pub(super) instances: Vec<usize>,
    /// What the types of the entries that are left out may be; none where the file ends before all are told.
    pub(super) types: Option<BTreeSet<String>>,
}

/// A name for an entry that has none of its own. No identifier has brackets.
fn unnamed(list: &str, place: usize) -> String {
    format!("{list}[{place}]")
}

/// Reads the whole file. Where the report does not stay empty, what it returns is what makes sense on its own.
pub(super) fn read(file: &str, folder: &Path, root: &Node, report: &mut Report) -> (PolicyConfig, Places) {
    let mut config = PolicyConfig { file: file.to_owned(), ..PolicyConfig::default() };
    let mut places = Places { types: Some(BTreeSet::new()), ..Places::default() };
    sections(folder, &Field::root(root), &mut config, &mut places, report);
    (config, places)
}

fn sections(folder: &Path, root: &Field<'_>, config: &mut PolicyConfig, places: &mut Places, report: &mut Report) {
    if root.is_null() {
        report.add(1, "", format!("the file is empty; write at least one of {}", listed_fields(SECTIONS)));
        return;
    }
    let Some(fields) = root.fields(SECTIONS, report) else { return };
    if !fields.has_any(SECTIONS) {
        fields.lacks(report, format!("the file says nothing; write at least one of {}", listed_fields(SECTIONS)));
    }
    if let Some(field) = fields.get("router") {
        config.router = router(&field, report);
    }
    if let Some(field) = fields.get("sandbox") {
        config.sandbox = sandbox(&field, folder, report);
    }
    // Where the file ends early, a section that has not begun may be in the rest.
    let complete = |key: &str| fields.get(key).map_or(!root.node.cut, |field| !field.node.cut);
    if let Some(field) = fields.get("components") {
        config.components = components(&field, folder, config.sandbox.require_digest, places, report);
        let items = field.items().filter(|_| complete("components"));
        let types = items.map(|items| Names::of(&items, "type", COMPONENT_FIELDS));
        places.types = types.map(|types| types.may_be().map(str::to_owned).collect());
    } else if !complete("components") {
        places.types = None;
    }
    let list = fields.get("tenants");
    if let Some(field) = &list {
        config.tenants = tenants(field, report);
    }
    let items = list.as_ref().map_or(Some(Vec::new()), Field::items).filter(|_| complete("tenants"));
    let tenants = items.map(|items| Names::of(&items, "name", TENANT_FIELDS));
    let context = Context { folder, require_digest: config.sandbox.require_digest, tenants };
    if let Some(field) = fields.get("worker_selection") {
        config.worker_selection = worker_selection(&field, &context, places, report);
        foreign_instances(&field, config, report);
    }
    config.profiles = admission::profiles(root, &fields, report);
    if let Some(field) = fields.get("request_classifier") {
        config.request_classifier = request_classifier(&field, &context, report);
    }
    if let Some(field) = fields.get("session_affinity") {
        config.session_affinity = admission::session_affinity(&field, report);
    }
}

fn listed_fields(fields: &[&str]) -> String {
    listed(fields.iter().copied())
}

fn router(field: &Field<'_>, report: &mut Report) -> RouterSettings {
    let mut settings = RouterSettings::default();
    for entry in field.entries(report).unwrap_or_default() {
        let value = Field { node: &entry.node, path: join(&field.path, &entry.key) };
        match entry.key.as_str() {
            "host_cache_hit_weight" => settings.host_cache_hit_weight = value.fraction(report),
            "disk_cache_hit_weight" => settings.disk_cache_hit_weight = value.fraction(report),
            other => {
                let refused = REFUSED_ROUTER_SETTINGS.iter().find(|(settings, _)| settings.contains(&other));
                if let Some((_, reason)) = refused {
                    report.add(entry.line, &value.path, *reason);
                    continue;
                }
                let near = did_you_mean(other, ROUTER_SETTINGS.iter().copied());
                let known = ROUTER_SETTINGS.join(" and ");
                let message = format!(
                    "unknown router setting {}{near}; the settings are {known}, and a policy's own belong in its \
                     parameters",
                    shown(other)
                );
                report.add(entry.line, &value.path, message);
            }
        }
    }
    settings
}

fn sandbox(field: &Field<'_>, folder: &Path, report: &mut Report) -> SandboxSettings {
    let mut settings = SandboxSettings::default();
    let Some(fields) = field.fields(SANDBOX_FIELDS, report) else { return settings };
    if let Some(guests) = fields.get("guests").and_then(|field| field.whole(1..=u64::from(MOST_GUESTS), report)) {
        settings.guests = u32::try_from(guests).unwrap_or(MOST_GUESTS);
    }
    let determinism = |word: &str| match word {
        "fast" => Some(Determinism::Fast),
        "portable" => Some(Determinism::Portable),
        _ => None,
    };
    if let Some(field) = fields.get("determinism") {
        settings.determinism = field.word(&["fast", "portable"], determinism, report).unwrap_or_default();
    }
    if let Some(field) = fields.get("require_digest") {
        settings.require_digest = field.boolean(report).unwrap_or_default();
    }
    if let Some(field) = fields.get("smoke") {
        settings.smoke = field.boolean(report).unwrap_or(true);
    }
    if let Some(field) = fields.get("breaker") {
        settings.breaker = breaker(&field, report);
    }
    if let Some(fields) = fields.get("load").and_then(|field| field.fields(PROFILES, report)) {
        let bounds = &mut settings.load;
        by_profile(&fields, LOAD_BOUNDS, |profile, key, value| bounds.of_mut(profile).set(key, value), report);
    }
    if let Some(field) = fields.get("compile") {
        compile(&field, folder, &mut settings.compile, report);
    }
    settings
}

fn compile(field: &Field<'_>, folder: &Path, settings: &mut CompileConfig, report: &mut Report) {
    let allowed = [PROFILES, COMPILE_FIELDS].concat();
    let Some(fields) = field.fields(&allowed, report) else { return };
    let limits = &mut settings.limits;
    by_profile(&fields, COMPILE_LIMITS, |profile, key, value| limits.of_mut(profile).set(key, value), report);
    if let Some(at_once) = fields.get("at_once").and_then(|field| field.whole_u32(1..=1_024, report)) {
        settings.at_once = at_once;
    }
    if let Some(path) = fields.get("cache").and_then(|field| field.text(report)) {
        settings.cache = Some(folder.join(path));
    }
    if let Some(bytes) = fields.get("cache_bytes").and_then(|field| field.whole(1..=1 << 40, report)) {
        settings.cache_bytes = bytes;
    }
}

/// The values that a table knows, of either profile.
fn by_profile(
    fields: &Fields<'_>,
    table: &[LimitRow],
    mut set: impl FnMut(Profile, &str, u64) -> bool,
    report: &mut Report,
) {
    for profile in [Profile::Compact, Profile::Engine] {
        let Some(field) = fields.get(profile.as_str()) else { continue };
        for (key, value) in table_values(&field, table, &[], report) {
            let known = set(profile, key, value);
            debug_assert!(known, "{key} is a key of its table");
        }
    }
}

fn components(
    field: &Field<'_>,
    folder: &Path,
    require_digest: bool,
    places: &mut Places,
    report: &mut Report,
) -> Vec<Component> {
    let mut components = Vec::new();
    let mut seen = Seen::default();
    for (place, item) in field.list(report).unwrap_or_default().into_iter().enumerate() {
        let Some(fields) = item.fields(COMPONENT_FIELDS, report) else { continue };
        let type_name = fields.require("type", report);
        let type_name = type_name.and_then(|field| {
            let name = field.identifier("type name", report)?;
            seen.accept(&field, name, "type", report).then_some(name)
        });
        let path = fields.require("path", report).and_then(|field| field.text(report));
        let digest = fields.get("digest");
        if digest.is_none() && require_digest && !item.node.cut {
            let message = "`sandbox.require_digest` asks for a digest; add `digest: sha256:` and the 64 hex digits of \
                           the file's SHA-256";
            report.add(item.line(), &join(&item.path, "digest"), message);
        }
        let digest = digest.and_then(|field| sha256(&field, report));
        if let Some(path) = path.filter(|_| !item.node.cut) {
            let type_name = type_name.map_or_else(|| unnamed("components", place), str::to_owned);
            let (path, line) = (folder.join(path), item.line());
            places.components.push(place);
            components.push(Component { type_name, path, digest, line });
        }
    }
    components
}

fn sha256(field: &Field<'_>, report: &mut Report) -> Option<String> {
    let text = field.text(report)?;
    let digits = text.strip_prefix("sha256:").filter(|digits| digits.len() == 64);
    let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if digits.is_none() {
        field.problem(report, format!("{} is no digest; write `sha256:` and 64 hex digits", shown(text)));
    }
    digits.map(str::to_ascii_lowercase)
}

fn tenants(field: &Field<'_>, report: &mut Report) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    let (mut names, mut groups) = (Seen::default(), Seen::default());
    for item in field.list(report).unwrap_or_default() {
        let Some(fields) = item.fields(TENANT_FIELDS, report) else { continue };
        let name = fields.require("name", report);
        let name = name.and_then(|field| {
            let name = field.identifier("tenant name", report)?;
            names.accept(&field, name, "tenant", report).then_some(name)
        });
        let mut routing_groups = Vec::new();
        let list = fields.require("routing_groups", report);
        let list = list.and_then(|list| list.list(report).map(|items| (list, items)));
        if let Some((list, items)) = list {
            if items.is_empty() && !list.node.cut {
                list.problem(report, "the tenant has no routing group; name at least one");
            }
            for group in items {
                if let Some(name) = group.text(report) {
                    groups.accept(&group, name, "routing group", report);
                    routing_groups.push(name.to_owned());
                }
            }
        }
        let limits = fields.get("limits").map(|field| table_values(&field, LIMITS, &[], report)).unwrap_or_default();
        let quotas = fields.get("quotas").map(|field| quotas(&field, report)).unwrap_or_default();
        let grants = fields.get("grants").map(|field| grants(&field, report)).unwrap_or_default();
        if let Some(name) = name {
            tenants.push(Tenant { name: name.to_owned(), routing_groups, limits, quotas, grants });
        }
    }
    tenants
}

fn quotas(field: &Field<'_>, report: &mut Report) -> TenantQuotas {
    let mut quotas = TenantQuotas::default();
    let Some(fields) = field.fields(QUOTAS, report) else { return quotas };
    let mut set = |key, quota: &mut u64| {
        if let Some(value) = fields.get(key).and_then(|field| field.whole(0..=MOST_QUOTA, report)) {
            *quota = value;
        }
    };
    set("fuel_per_second", &mut quotas.fuel_per_second);
    set("guests", &mut quotas.sandbox.guests);
    set("resident_bytes", &mut quotas.sandbox.resident_bytes);
    set("compile_seconds_per_hour", &mut quotas.sandbox.compile_seconds_per_hour);
    set("log_bytes_per_second", &mut quotas.sandbox.log_bytes_per_second);
    quotas
}

fn grants(field: &Field<'_>, report: &mut Report) -> Vec<String> {
    let mut granted = Vec::new();
    let mut seen = Seen::default();
    for item in field.list(report).unwrap_or_default() {
        let Some(name) = item.text(report) else { continue };
        if !GRANTED.iter().any(|kind| name.strip_prefix(kind).is_some_and(|rest| !rest.is_empty())) {
            let message = format!(
                "{} cannot be granted; name a `metric.*`, `label.*` or `header.*`, since every policy may read the rest",
                shown(name)
            );
            item.problem(report, message);
        } else if seen.accept(&item, name, "name", report) {
            granted.push(name.to_owned());
        }
    }
    granted
}

fn breaker(field: &Field<'_>, report: &mut Report) -> BreakerSettings {
    let mut settings = BreakerSettings::default();
    let Some(fields) = field.fields(BREAKER_FIELDS, report) else { return settings };
    let mut set = |key, least, most, value: &mut u32| {
        if let Some(found) = fields.get(key).and_then(|field| field.whole(least..=most, report)) {
            *value = u32::try_from(found).unwrap_or(u32::MAX);
        }
    };
    set("faults", 0, 1_000, &mut settings.faults);
    set("window_ms", 1, MOST_BREAKER_MS, &mut settings.window_ms);
    set("quarantine_ms", 1, MOST_BREAKER_MS, &mut settings.quarantine_ms);
    set("most_quarantine_ms", 1, MOST_BREAKER_MS, &mut settings.most_quarantine_ms);
    set("probes", 1, 1_000, &mut settings.probes);
    if settings.quarantine_ms > settings.most_quarantine_ms {
        field.problem(report, "`quarantine_ms` is more than `most_quarantine_ms`; lower it or raise the other");
    }
    settings
}

/// Names that may come once.
#[derive(Default)]
struct Seen<'n>(FxHashMap<&'n str, usize>);

impl<'n> Seen<'n> {
    /// Whether the name is new; where it is not, the report says where it was first.
    fn accept(&mut self, field: &Field<'n>, name: &'n str, what: &str, report: &mut Report) -> bool {
        if let Some(first) = self.0.get(name) {
            field.problem(report, format!("the {what} {} is already on line {first}; name it once", shown(name)));
            return false;
        }
        self.0.insert(name, field.line());
        true
    }
}

/// What the section `worker_selection` takes from the others.
struct Context<'n> {
    folder: &'n Path,
    require_digest: bool,
    /// The names of the tenants; none where some could not be read.
    tenants: Option<Names<'n>>,
}

/// The entries of a list by name, for those that refer to them.
struct Names<'n> {
    all: BTreeSet<&'n str>,
    pipelines: BTreeSet<&'n str>,
    /// What may be the name of an entry whose key is misspelt, so that one mistake is reported once.
    misplaced: BTreeSet<&'n str>,
}

impl<'n> Names<'n> {
    fn of(items: &[Field<'n>], key: &str, known: &[&str]) -> Self {
        let mut names = Self { all: BTreeSet::new(), pipelines: BTreeSet::new(), misplaced: BTreeSet::new() };
        for item in items {
            let Some(name) = item.peek(key).and_then(|field| field.peek_text()) else {
                names.misplaced.extend(item.misplaced(known));
                continue;
            };
            // The reserved name is refused where it is given.
            if name != "default" {
                names.all.insert(name);
            }
            if item.peek("pipeline").is_some() {
                names.pipelines.insert(name);
            }
        }
        names
    }

    fn has(&self, name: &str) -> bool {
        self.all.contains(name) || self.misplaced.contains(name)
    }

    fn may_be(&self) -> impl Iterator<Item = &'n str> {
        self.all.iter().chain(&self.misplaced).copied()
    }

    fn unknown(&self, what: &str, name: &str) -> String {
        let near = did_you_mean(name, self.all.iter().copied());
        format!("no {what} is named {}{near}; the {what}s are {}", shown(name), listed(self.all.iter().copied()))
    }
}

fn worker_selection(
    field: &Field<'_>,
    context: &Context<'_>,
    places: &mut Places,
    report: &mut Report,
) -> Option<WorkerSelection> {
    let fields = field.fields(SELECTION_FIELDS, report)?;
    let list = fields.get("instances");
    let complete = list.as_ref().map_or(!field.node.cut, |list| !list.node.cut);
    let items = list.map_or(Some(Vec::new()), |list| list.list(report));
    let names = items.as_deref().filter(|_| complete).map(|items| Names::of(items, "name", INSTANCE_FIELDS));
    let items = items.unwrap_or_default();
    let roles = roles(&fields, names.as_ref(), report);

    let empty = |key: &&str| fields.get(key).is_none_or(|field| field.items().is_some_and(|items| items.is_empty()));
    if SELECTION_FIELDS.iter().all(empty) {
        fields.lacks(report, "the section says nothing; name an instance, or select one for a role");
    }

    let mut instances = Vec::new();
    let mut seen = Seen::default();
    for (place, item) in items.iter().enumerate() {
        if let Some(instance) = instance(item, place, &mut seen, names.as_ref(), context, report) {
            instances.push(instance);
            places.instances.push(place);
        }
    }
    let partitions = fields.get("partitions").map(|list| partitions(&list, names.as_ref(), context, report));
    Some(WorkerSelection { roles, instances, partitions: partitions.unwrap_or_default() })
}

/// Reports selections of a tenant's instances for partitions that are not its own.
fn foreign_instances(field: &Field<'_>, config: &PolicyConfig, report: &mut Report) {
    let Some(selection) = &config.worker_selection else { return };
    let mut check = |place: &Field<'_>, roles: &Roles, tenant: Option<&str>| {
        for role in Role::ALL {
            let Some(Selected::Instance(name)) = roles.get(role) else { continue };
            let owner = selection.owners(name).find(|owner| tenant != Some(*owner));
            if let (Some(owner), Some(field)) = (owner, place.peek(role.as_str())) {
                let message = format!(
                    "the instance {} belongs to the tenant {owner} and serves its routing groups alone; select it in a \
                     rule of `partitions` with `tenant: {owner}`",
                    shown(name)
                );
                field.problem(report, message);
            }
        }
    };
    check(field, &selection.roles, None);
    let items = field.peek("partitions").and_then(|list| list.items()).unwrap_or_default();
    // What is no mapping became no rule.
    for (item, rule) in items.iter().filter(|item| item.is_map()).zip(&selection.partitions) {
        let group = rule.routing_group.as_deref().and_then(|group| config.tenant_of(group));
        check(item, &rule.roles, rule.tenant.as_deref().or(group.map(|tenant| &*tenant.name)));
    }
}

fn roles(fields: &Fields<'_>, names: Option<&Names<'_>>, report: &mut Report) -> Roles {
    let mut roles = Roles::default();
    for role in Role::ALL {
        let Some(field) = fields.get(role.as_str()) else { continue };
        match (field.text(report), names) {
            (None, _) => {}
            (Some("default"), _) => roles.set(role, Selected::Default),
            (Some(name), Some(names)) if !names.has(name) => field.problem(report, names.unknown("instance", name)),
            (Some(name), _) => roles.set(role, Selected::Instance(name.to_owned())),
        }
    }
    roles
}

fn instance<'n>(
    item: &Field<'n>,
    place: usize,
    seen: &mut Seen<'n>,
    names: Option<&Names<'_>>,
    context: &Context<'_>,
    report: &mut Report,
) -> Option<Instance> {
    let fields = item.fields(INSTANCE_FIELDS, report)?;
    let name = fields.require("name", report);
    let name = name.and_then(|field| {
        let Some(name) = field.identifier("instance name", report) else {
            // What refers to it by that name is right about it.
            return field.peek_text().filter(|name| *name != "default" && seen.0.insert(name, field.line()).is_none());
        };
        seen.accept(&field, name, "instance", report).then_some(name)
    });
    let pipeline = |field: &Field<'_>, report: &mut Report| {
        for key in ["parameters", "limits", "wasi", "on_fault"] {
            if fields.entries.iter().any(|entry| entry.key == key) {
                let message = format!("a pipeline has no {key} of its own; move them to its instances");
                report.add(fields.line_of(key), &join(&item.path, key), message);
            }
        }
        pipeline(field, name, names, report)
    };
    let kind = kind(item, &fields, "instance", KINDS, pipeline, context, report);
    let (parameters, parameter_lines) = parameters(item, &fields, report);
    let limits = fields.get("limits").map(|field| limits(&field, report)).unwrap_or_default();
    let wasi = fields.get("wasi").and_then(|field| field.boolean(report)).unwrap_or(false);
    let on_fault = fields.get("on_fault").map(|field| on_fault(&field, report)).unwrap_or_default();
    let tenant = fields.get("tenant").and_then(|field| {
        let name = field.text(report)?;
        if let Some(tenants) = context.tenants.as_ref().filter(|tenants| !tenants.has(name)) {
            field.problem(report, tenants.unknown("tenant", name));
        }
        Some(name.to_owned())
    });
    // With half of its fields it would be another instance.
    let (kind, kind_line) = kind.filter(|_| !item.node.cut)?;
    let name = name.filter(|name| !name.is_empty()).map_or_else(|| unnamed("instances", place), str::to_owned);
    let line = item.line();
    Some(Instance { name, kind, parameters, limits, wasi, on_fault, tenant, line, kind_line, parameter_lines })
}

/// The parameters, and the line of each.
fn parameters(
    item: &Field<'_>,
    fields: &Fields<'_>,
    report: &mut Report,
) -> (Map<String, serde_json::Value>, BTreeMap<String, usize>) {
    // Unlike other fields, parameters must not be left without a value: Dynamo refuses that.
    let entry = fields.entries.iter().find(|entry| entry.key == "parameters");
    let field = entry.map(|entry| Field { node: &entry.node, path: join(&item.path, "parameters") });
    let Some((field, entries)) = field.and_then(|field| field.entries(report).map(|entries| (field, entries))) else {
        return Default::default();
    };
    let lines = entries.iter().map(|entry| (entry.key.clone(), entry.line)).collect();
    (json_map(entries, &field.path, report), lines)
}

/// What a policy is made of, one of `kinds`, and the line that says so. `what` it is, for messages; `pipeline` reads
/// one.
fn kind(
    item: &Field<'_>,
    fields: &Fields<'_>,
    what: &str,
    kinds: &[&str],
    pipeline: impl FnOnce(&Field<'_>, &mut Report) -> Option<InstanceKind>,
    context: &Context<'_>,
    report: &mut Report,
) -> Option<(InstanceKind, usize)> {
    let given: Vec<(&str, Field<'_>)> = kinds.iter().filter_map(|key| Some((*key, fields.get(key)?))).collect();
    let (key, field) = match given.as_slice() {
        [one] => one,
        [] => {
            let (last, others) = kinds.split_last()?;
            let others = others.join(", ");
            fields.lacks(report, format!("the {what} has no policy; add one of {others} and {last}"));
            return None;
        }
        more => {
            let more: Vec<&str> = more.iter().map(|(key, _)| *key).collect();
            item.problem(report, format!("the {what} has {} side by side; keep one", more.join(" and ")));
            return None;
        }
    };
    let kind = match *key {
        "type" => InstanceKind::Type(field.identifier("type name", report)?.to_owned()),
        "component" => {
            let path = field.text(report)?;
            if context.require_digest {
                let message = "`sandbox.require_digest` asks for a digest; list the file in `components` with its \
                               digest and name its type here";
                field.problem(report, message);
            }
            InstanceKind::Component(context.folder.join(path))
        }
        _ => pipeline(field, report)?,
    };
    Some((kind, fields.line_of(key)))
}

fn pipeline(
    field: &Field<'_>,
    owner: Option<&str>,
    names: Option<&Names<'_>>,
    report: &mut Report,
) -> Option<InstanceKind> {
    let fields = field.fields(&["filters", "scorers", "picker"], report)?;
    let filters = fields.get("filters");
    let scorers = fields.get("scorers");
    let picker = fields.get("picker");
    let empty = |stage: &Option<Field<'_>>| {
        stage.as_ref().is_none_or(|stage| stage.items().is_some_and(|items| items.is_empty()))
    };
    if empty(&filters) && empty(&scorers) && picker.is_none() {
        fields.lacks(report, "the pipeline is empty; name instances under filters, scorers or picker");
    }
    let entry = |field: &Field<'_>, report: &mut Report| -> Option<String> {
        let name = field.text(report)?;
        let message = if owner == Some(name) {
            "the pipeline names itself; name another instance".to_owned()
        } else if names.is_some_and(|names| names.pipelines.contains(name)) {
            format!("{} is a pipeline itself; name its instances here", shown(name))
        } else if let Some(names) = names.filter(|names| !names.has(name)) {
            names.unknown("instance", name)
        } else {
            return Some(name.to_owned());
        };
        field.problem(report, message);
        None
    };
    let stage = |list: Option<Field<'_>>, report: &mut Report| -> Vec<String> {
        let mut seen = Seen::default();
        let mut entries = Vec::new();
        for item in list.and_then(|list| list.list(report)).unwrap_or_default() {
            if item.peek_text().is_none_or(|name| seen.accept(&item, name, "instance", report)) {
                entries.extend(entry(&item, report));
            }
        }
        entries
    };
    let filters = stage(filters, report);
    let scorers = stage(scorers, report);
    let picker = picker.and_then(|field| entry(&field, report));
    Some(InstanceKind::Pipeline { filters, scorers, picker })
}

fn request_classifier(field: &Field<'_>, context: &Context<'_>, report: &mut Report) -> Option<RequestClassifier> {
    let fields = field.fields(CLASSIFIER_FIELDS, report)?;
    let kind = kind(field, &fields, "classifier", CLASSIFIER_KINDS, |_, _| None, context, report);
    let (parameters, parameter_lines) = parameters(field, &fields, report);
    let limits = fields.get("limits").map(|field| limits(&field, report)).unwrap_or_default();
    let wasi = fields.get("wasi").and_then(|field| field.boolean(report)).unwrap_or(false);
    let (on_fault, max_deferral_ms) = admission::classifier_rules(&fields, report);
    let (kind, kind_line) = kind.filter(|_| !field.node.cut)?;
    let policy = Instance {
        name: RequestClassifier::NAME.to_owned(),
        kind,
        parameters,
        limits,
        wasi,
        on_fault: OnFault::default(),
        tenant: None,
        line: field.line(),
        kind_line,
        parameter_lines,
    };
    Some(RequestClassifier { policy, on_fault, max_deferral_ms })
}

fn limits(field: &Field<'_>, report: &mut Report) -> LimitsPatch {
    let values = table_values(field, LIMITS, &["profile"], report);
    let profile = field.peek("profile").and_then(|field| field.word(PROFILES, Profile::from_name, report));
    LimitsPatch { profile, values }
}

/// The values that a table's keys are set to; `more` are the other fields that may stand beside them.
fn table_values(
    field: &Field<'_>,
    table: &[LimitRow],
    more: &[&'static str],
    report: &mut Report,
) -> Vec<(&'static str, u64)> {
    let keys: Vec<&str> = more.iter().copied().chain(table.iter().map(|row| row.key)).collect();
    let Some(fields) = field.fields(&keys, report) else { return Vec::new() };
    let value = |row: &LimitRow| Some((row.key, fields.get(row.key)?.whole(1..=row.most, report)?));
    table.iter().filter_map(value).collect()
}

fn on_fault(field: &Field<'_>, report: &mut Report) -> OnFault {
    let mut on_fault = OnFault::default();
    if !field.is_map() {
        let words = ["reject", "fallback", "last-good"];
        if let Some(action) = field.word(&words, FaultAction::from_name, report) {
            on_fault.otherwise = action;
        }
        return on_fault;
    }
    let Some(fields) = field.fields(&["filter", "otherwise"], report) else { return on_fault };
    let (filter, otherwise) = (fields.get("filter"), fields.get("otherwise"));
    if filter.is_none() && otherwise.is_none() {
        fields.lacks(report, "`on_fault` says nothing; write a word, or `filter` or `otherwise` in it");
    }
    if let Some(field) = filter {
        let known = |word: &str| FaultAction::from_name(word).filter(|action| *action != FaultAction::LastGood);
        on_fault.filter = field.word(&["reject", "fallback"], known, report).unwrap_or(FaultAction::Reject);
    }
    if let Some(field) = otherwise {
        let words = ["reject", "fallback", "last-good"];
        on_fault.otherwise = field.word(&words, FaultAction::from_name, report).unwrap_or(FaultAction::Fallback);
    }
    on_fault
}

fn partitions(
    field: &Field<'_>,
    names: Option<&Names<'_>>,
    context: &Context<'_>,
    report: &mut Report,
) -> Vec<PartitionRule> {
    let mut rules = Vec::new();
    let mut lines: FxHashMap<[Option<&str>; 3], usize> = FxHashMap::default();
    for item in field.list(report).unwrap_or_default() {
        let Some(fields) = item.fields(PARTITION_FIELDS, report) else { continue };
        let mut selector = |key| fields.get(key).map(|field| field.text(report));
        let selectors = [selector("model"), selector("routing_group"), selector("tenant")];
        let [model, routing_group, tenant] = selectors.map(Option::flatten);
        if selectors.iter().all(Option::is_none) {
            fields.lacks(report, "the rule holds for no partition; add model, routing_group or tenant");
        }
        if let (Some(name), Some(tenants)) = (tenant, &context.tenants)
            && !tenants.has(name)
            && let Some(field) = fields.get("tenant")
        {
            field.problem(report, tenants.unknown("tenant", name));
        }
        if routing_group.is_some() && tenant.is_some() {
            let message = "a rule names a routing group or a tenant, which is a set of them, not both; remove one";
            report.add(fields.line_of("tenant"), &join(&item.path, "tenant"), message);
        }
        if selectors.iter().flatten().all(Option::is_some) && selectors.iter().any(Option::is_some) {
            let line = item.line();
            if let Some(first) = lines.get(&[model, routing_group, tenant]) {
                let message =
                    format!("the rule on line {first} has the same model, routing_group and tenant; join them");
                item.problem(report, message);
            } else {
                lines.insert([model, routing_group, tenant], line);
            }
        }
        if !fields.has_any(&Role::ALL.map(Role::as_str)) {
            fields.lacks(report, "the rule selects nothing; add aggregated, prefill, decode or encode");
        }
        let owned = |text: Option<&str>| text.map(str::to_owned);
        rules.push(PartitionRule {
            model: owned(model),
            routing_group: owned(routing_group),
            tenant: owned(tenant),
            roles: roles(&fields, names, report),
            line: item.line(),
        });
    }
    rules
}
