//! What one configuration changes against another, for a person and for a router that takes it over.

use super::{Instance, PartitionRule, PolicyConfig, Roles, SandboxSettings, Selected, WorkerSelection};
use pointsman_contract::Role;

/// One difference between two configurations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChange {
    /// Where, such as `worker_selection.instances`.
    pub place: &'static str,
    /// What, in a few words.
    pub what: String,
    /// Whether a running router takes it over only when it starts again.
    pub needs_restart: bool,
}

impl std::fmt::Display for ConfigChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let restart = if self.needs_restart { " (holds after a restart)" } else { "" };
        write!(f, "{}: {}{restart}", self.place, self.what)
    }
}

impl PolicyConfig {
    /// What changes where this configuration follows `before`: nothing where they say the same. Whether a file under the
    /// same path has changed is not looked at.
    #[must_use]
    pub fn changes_since(&self, before: &Self) -> Vec<ConfigChange> {
        let mut changes = Vec::new();
        let mut add = |place, what: String, needs_restart| changes.push(ConfigChange { place, what, needs_restart });
        if self.router != before.router {
            add("router", "other weights; every guest is built anew".to_owned(), false);
        }
        let none = WorkerSelection::default();
        let (old, new) =
            (before.worker_selection.as_ref().unwrap_or(&none), self.worker_selection.as_ref().unwrap_or(&none));
        named(
            &before.components,
            &self.components,
            |it| &it.type_name,
            |a, b| {
                let parts = [("path", a.path != b.path), ("digest", a.digest != b.digest)];
                differing(&parts)
            },
        )
        .for_each(|what| add("components", what, false));
        named(&old.instances, &new.instances, |it| &it.name, instance).for_each(|what| {
            add("worker_selection.instances", what, false);
        });
        for role in Role::ALL {
            if let Some(what) = selected(&old.roles, &new.roles, role) {
                add("worker_selection", what, false);
            }
        }
        rules(&old.partitions, &new.partitions).for_each(|what| add("worker_selection.partitions", what, false));
        named(
            &before.tenants,
            &self.tenants,
            |it| &it.name,
            |a, b| {
                differing(&[
                    ("routing_groups", a.routing_groups != b.routing_groups),
                    ("limits", a.limits != b.limits),
                    ("quotas", a.quotas != b.quotas),
                    ("grants", a.grants != b.grants),
                ])
            },
        )
        .for_each(|what| add("tenants", what, false));
        let what = match (&before.request_classifier, &self.request_classifier) {
            (None, None) => None,
            (None, Some(_)) => Some("added"),
            (Some(_), None) => Some("removed"),
            (Some(a), Some(b)) => {
                let rules = (a.on_fault, a.max_deferral_ms) != (b.on_fault, b.max_deferral_ms);
                let changed = rules || instance(&a.policy, &b.policy).is_some();
                changed.then_some("changed; requests that it deferred go as on_fault says")
            }
        };
        if let Some(what) = what {
            add("request_classifier", what.to_owned(), false);
        }
        if self.session_affinity != before.session_affinity {
            add("session_affinity", "changed".to_owned(), true);
        }
        if self.profiles != before.profiles {
            add("policy_classes", "the classes or their budgets changed".to_owned(), true);
        }
        let SandboxSettings { smoke, breaker, .. } = self.sandbox;
        if (smoke, breaker) != (before.sandbox.smoke, before.sandbox.breaker) {
            add("sandbox", "other rules for failing policies".to_owned(), false);
        }
        if self.sandbox != (SandboxSettings { smoke, breaker, ..before.sandbox.clone() }) {
            add("sandbox", "changed".to_owned(), true);
        }
        changes
    }
}

/// The names of the parts that differ; none where all are the same.
fn differing(parts: &[(&str, bool)]) -> Option<String> {
    let parts: Vec<&str> = parts.iter().filter(|(_, differs)| *differs).map(|(part, _)| *part).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn instance(a: &Instance, b: &Instance) -> Option<String> {
    differing(&[
        ("policy", a.kind != b.kind),
        ("parameters", a.parameters != b.parameters),
        ("limits", a.limits != b.limits),
        ("wasi", a.wasi != b.wasi),
        ("on_fault", a.on_fault != b.on_fault),
        ("tenant", a.tenant != b.tenant),
    ])
}

/// What happens to entries that have names.
fn named<'a, T>(
    before: &'a [T],
    after: &'a [T],
    name: impl Fn(&T) -> &String,
    differs: impl Fn(&T, &T) -> Option<String>,
) -> impl Iterator<Item = String> {
    let find = |list: &'a [T], wanted: &T| list.iter().find(|it| name(it) == name(wanted));
    let removed = before.iter().filter(|it| find(after, it).is_none()).map(|it| format!("`{}` removed", name(it)));
    let now = after.iter().filter_map(|it| match find(before, it) {
        None => Some(format!("`{}` added", name(it))),
        Some(old) => differs(old, it).map(|parts| format!("`{}` changed: {parts}", name(it))),
    });
    removed.chain(now).collect::<Vec<_>>().into_iter()
}

fn selected(before: &Roles, after: &Roles, role: Role) -> Option<String> {
    let shown = |selected: Option<&Selected>| match selected {
        None | Some(Selected::Default) => "default".to_owned(),
        Some(Selected::Instance(name)) => name.clone(),
    };
    let (before, after) = (shown(before.get(role)), shown(after.get(role)));
    (before != after).then(|| format!("{role}: `{before}` becomes `{after}`"))
}

fn rules(before: &[PartitionRule], after: &[PartitionRule]) -> impl Iterator<Item = String> {
    type Key<'a> = [(&'static str, Option<&'a String>); 3];
    fn key(rule: &PartitionRule) -> Key<'_> {
        [
            ("model", rule.model.as_ref()),
            ("routing_group", rule.routing_group.as_ref()),
            ("tenant", rule.tenant.as_ref()),
        ]
    }
    let shown = |rule: &PartitionRule| {
        let parts = key(rule).into_iter().filter_map(|(name, value)| Some(format!("{name} {}", value?)));
        parts.collect::<Vec<_>>().join(", ")
    };
    let find =
        |list: &'_ [PartitionRule], wanted: &PartitionRule| list.iter().find(|rule| key(rule) == key(wanted)).cloned();
    let mut found = Vec::new();
    for rule in before.iter().filter(|rule| find(after, rule).is_none()) {
        found.push(format!("the rule for {} removed", shown(rule)));
    }
    for rule in after {
        match find(before, rule) {
            None => found.push(format!("a rule for {} added", shown(rule))),
            Some(old) => found.extend(
                Role::ALL
                    .into_iter()
                    .filter_map(|role| selected(&old.roles, &rule.roles, role))
                    .map(|what| format!("for {}: {what}", shown(rule))),
            ),
        }
    }
    found.into_iter()
}
