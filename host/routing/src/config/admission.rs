//! The sections of admission: policy classes, the request classifier and session affinity.

use pointsman_admission::{
    Bucket, MAX_SESSION_TTL_SECS, OnFault, PolicyClass, Profile, ProfileError, ProfileFault, ProfilePlace, ProfileSpec,
    Profiles, QueueLimits, QueuePolicy,
};

use super::SessionAffinitySettings;
use super::problem::Report;
use super::reader::{Field, Fields};
use super::yaml::join;

/// What a profile is made of: its sections in the file, or its fields below a model.
const PROFILE_FIELDS: [&str; 3] = ["default_policy_family", "uncached_isl_buckets", "policy_classes"];
const BUCKET_FIELDS: &[&str] = &["min_tokens", "bucket"];
const CLASS_FIELDS: &[&str] = &[
    "name",
    "policy_family",
    "cache_bucket",
    "queue_policy",
    "quantum",
    "prefill_busy_threshold",
    "prefill_busy_threshold_frac",
    "request_queue_limit_per_worker",
    "raw_isl_token_queue_limit_per_worker",
    "cached_token_queue_limit_per_worker",
];

const DEFERRAL_MS: u32 = 60_000;
/// The longest deferral that a file may allow: a day.
const MOST_DEFERRAL_MS: u32 = 86_400_000;

/// The profile of the file and those of its models.
pub(super) fn profiles(root: &Field<'_>, fields: &Fields<'_>, report: &mut Report) -> Profiles {
    let own = if fields.has_any(&PROFILE_FIELDS) { profile(root, fields, report) } else { None };
    let mut models = Vec::new();
    if let Some(list) = fields.get("models") {
        for entry in list.entries(report).unwrap_or_default() {
            let field = Field { node: &entry.node, path: join(&list.path, &entry.key) };
            if entry.key.is_empty() {
                report.add(entry.line, &field.path, "a model's name must not be empty; write the name that it has");
            }
            let profile = field.fields(&PROFILE_FIELDS, report).and_then(|fields| profile(&field, &fields, report));
            models.extend(profile.map(|profile| (entry.key.clone(), profile)));
        }
    }
    Profiles::new(own.unwrap_or_else(|| Profile::synthetic(None, QueuePolicy::default())), models)
}

/// The profile whose fields are `fields`, those of `field`.
fn profile(field: &Field<'_>, fields: &Fields<'_>, report: &mut Report) -> Option<Profile> {
    let [family, buckets, classes] = PROFILE_FIELDS.map(|key| fields.require(key, report));
    let family = family.and_then(|family| family.name("policy family", report));
    let buckets = List::read(buckets, bucket, report);
    let classes = List::read(classes, class, report);
    // Whether the reason was reported already.
    let follows = |error: &ProfileError| match (error.place, &error.fault) {
        (ProfilePlace::DefaultPolicyFamily, _) => family.is_none() || !classes.is_known(),
        (ProfilePlace::Buckets, _) => !buckets.whole,
        (ProfilePlace::Bucket(..), _) => !buckets.is_known(),
        (ProfilePlace::Classes, ProfileFault::Empty) => !classes.whole,
        (ProfilePlace::Classes, _) => !(buckets.is_known() && classes.is_known()),
        (ProfilePlace::Class(place, _), ProfileFault::UnknownBucket { .. }) => {
            !(buckets.is_known() && classes.is_sound(place))
        }
        (ProfilePlace::Class(place, _), _) => !classes.is_sound(place),
    };
    let spec = ProfileSpec {
        default_policy_family: family.unwrap_or_default().to_owned(),
        uncached_isl_buckets: buckets.entries.clone(),
        policy_classes: classes.entries.clone(),
    };
    let errors = match Profile::new(spec) {
        Ok(profile) => return Some(profile),
        Err(errors) => errors,
    };
    for error in errors.iter().filter(|error| !follows(error)) {
        let place = error.place.to_string();
        report.add(field.node.line_of(&place), &below(&field.path, &place), error.fault.to_string());
    }
    None
}

/// The path of a place in the profile of that path.
fn below(path: &str, place: &str) -> String {
    if path.is_empty() { place.to_owned() } else { format!("{path}.{place}") }
}

/// A list of a profile. What could not be read of an entry is filled in, so that the others keep their places.
struct List<T> {
    entries: Vec<T>,
    /// Of each entry, whether all of it was read.
    sound: Vec<bool>,
    /// Whether it is a list that is there to its end.
    whole: bool,
}

impl<T> List<T> {
    fn read(field: Option<Field<'_>>, entry: impl Fn(&Field<'_>, &mut Report) -> T, report: &mut Report) -> Self {
        let items = field.as_ref().and_then(|field| field.list(report));
        let whole = items.is_some() && field.is_some_and(|field| !field.node.cut);
        let mut list = Self { entries: Vec::new(), sound: Vec::new(), whole };
        for item in items.unwrap_or_default() {
            let before = report.len();
            list.entries.push(entry(&item, report));
            list.sound.push(report.len() == before && !item.node.cut);
        }
        list
    }

    fn is_sound(&self, place: usize) -> bool {
        self.sound.get(place).is_some_and(|sound| *sound)
    }

    /// Whether a name that no entry has is missing: all entries were read, and there are some. An empty list is a
    /// problem of its own.
    fn is_known(&self) -> bool {
        self.whole && !self.sound.is_empty() && self.sound.iter().all(|sound| *sound)
    }
}

fn bucket(item: &Field<'_>, report: &mut Report) -> Bucket {
    let fields = item.fields(BUCKET_FIELDS, report);
    let mut require = |key| fields.as_ref().and_then(|fields| fields.require(key, report));
    let (min_tokens, name) = (require("min_tokens"), require("bucket"));
    let min_tokens = min_tokens.and_then(|field| field.whole(0..=u64::MAX, report)).unwrap_or_default();
    let name = name.and_then(|field| field.name("bucket name", report));
    Bucket { min_tokens, bucket: name.unwrap_or(&item.path).to_owned() }
}

fn class(item: &Field<'_>, report: &mut Report) -> PolicyClass {
    // No name has brackets, as the path does.
    let unread = PolicyClass { name: item.path.clone(), quantum: 1, ..PolicyClass::default() };
    let Some(fields) = item.fields(CLASS_FIELDS, report) else { return unread };
    let name = fields.require("name", report).and_then(|field| field.name("class name", report));
    let quantum = fields.require("quantum", report).and_then(|field| field.whole(1..=u64::MAX, report));
    let policy_family = fields.get("policy_family").and_then(|field| field.name("policy family", report));
    let cache_bucket = fields.get("cache_bucket").and_then(|field| field.name("bucket name", report));
    let queue_policy = fields.get("queue_policy").and_then(|field| queue_policy(&field, report));
    let part = fields.get("prefill_busy_threshold_frac").and_then(|field| field.number(report));
    let mut whole = |key| fields.get(key).and_then(|field| field.whole(0..=u64::MAX, report));
    PolicyClass {
        name: name.map_or(unread.name, str::to_owned),
        policy_family: policy_family.map(str::to_owned),
        cache_bucket: cache_bucket.map(str::to_owned),
        queue_policy: queue_policy.unwrap_or_default(),
        quantum: quantum.unwrap_or(unread.quantum),
        prefill_busy_threshold: whole("prefill_busy_threshold"),
        prefill_busy_threshold_frac: part,
        limits: QueueLimits {
            requests: whole("request_queue_limit_per_worker"),
            prompt_tokens: whole("raw_isl_token_queue_limit_per_worker"),
            cached_tokens: whole("cached_token_queue_limit_per_worker"),
        },
    }
}

fn queue_policy(field: &Field<'_>, report: &mut Report) -> Option<QueuePolicy> {
    if field.peek_text() == Some("lcfs") {
        field.problem(report, "no class serves the last to come first (`lcfs`), in Dynamo neither; use fcfs or wspt");
        return None;
    }
    field.word(QueuePolicy::NAMES, QueuePolicy::named, report)
}

/// What a classifier has that no other policy does: what becomes of the requests that it fails, and how long it may
/// defer one, in milliseconds.
pub(super) fn classifier_rules(fields: &Fields<'_>, report: &mut Report) -> (OnFault, u32) {
    let named = |word: &str| match word {
        "reject" => Some(OnFault::Reject),
        "admit" => Some(OnFault::Admit),
        _ => None,
    };
    let on_fault = fields.get("on_fault").and_then(|field| field.word(&["reject", "admit"], named, report));
    let most = fields.get("max_deferral_ms").and_then(|field| field.whole_u32(1..=MOST_DEFERRAL_MS, report));
    (on_fault.unwrap_or_default(), most.unwrap_or(DEFERRAL_MS))
}

pub(super) fn session_affinity(field: &Field<'_>, report: &mut Report) -> Option<SessionAffinitySettings> {
    let fields = field.fields(&["mode", "ttl_secs"], report)?;
    let mode = fields.get("mode").and_then(|field| field.word(&["hard", "soft"], |word| word.parse().ok(), report));
    let ttl_secs = fields.require("ttl_secs", report)?.whole_u32(1..=MAX_SESSION_TTL_SECS, report)?;
    Some(SessionAffinitySettings { mode: mode.unwrap_or_default(), ttl_secs })
}
