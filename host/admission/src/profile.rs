//! Policy-class profiles: which classes there are, and which of them a request belongs to.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

/// Tokens that a worker takes in one batch where it does not tell. (Dynamo: `DEFAULT_MAX_BATCHED_TOKENS`.)
const UNKNOWN_MAX_NUM_BATCHED_TOKENS: u64 = 10_000_000;

/// The name of the one class where no profile is configured.
const SYNTHETIC: &str = "default";

/// How a class orders requests of equal strict priority that have no due time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueuePolicy {
    /// First come, first served, by the time of ingress; a priority jump counts as so many seconds of waiting.
    #[default]
    Fcfs,
    /// Weighted shortest processing time: the largest (1 + priority jump) / scheduling cost first.
    Wspt,
}

impl QueuePolicy {
    /// The names in a policy file.
    pub const NAMES: &'static [&'static str] = &["fcfs", "wspt"];

    /// The policy of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "fcfs" => Some(Self::Fcfs),
            "wspt" => Some(Self::Wspt),
            _ => None,
        }
    }
}

/// What may wait in a class for each worker; none means any number. A limit of 0 means that the class never queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueLimits {
    /// Requests: `request_queue_limit_per_worker`.
    pub requests: Option<u64>,
    /// Prompt tokens: `raw_isl_token_queue_limit_per_worker`.
    pub prompt_tokens: Option<u64>,
    /// Cached prompt tokens: `cached_token_queue_limit_per_worker`.
    pub cached_tokens: Option<u64>,
}

/// One policy class: the fields of an entry of `policy_classes`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicyClass {
    /// Its name, unique in the profile.
    pub name: String,
    /// The family whose requests it takes; none for an explicit class, which is asked for by its own name.
    pub policy_family: Option<String>,
    /// The bucket of uncached tokens that it takes of its family.
    pub cache_bucket: Option<String>,
    /// The order inside the class.
    pub queue_policy: QueuePolicy,
    /// Tokens that the class may spend each time its turn comes, above 0.
    pub quantum: u64,
    /// A worker is busy with more active prefill tokens than this.
    pub prefill_busy_threshold: Option<u64>,
    /// A worker is busy with more active prefill tokens than this part of its `max_num_batched_tokens`.
    pub prefill_busy_threshold_frac: Option<f64>,
    /// What may wait.
    pub limits: QueueLimits,
}

/// The load of one row, as a busy threshold sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowLoad {
    /// Prompt tokens whose prefill is not done.
    pub active_prefill_tokens: f64,
    /// Tokens that the worker takes in one batch; none where it does not tell, which counts as 10,000,000.
    pub max_num_batched_tokens: Option<u64>,
}

impl PolicyClass {
    /// Whether a request can wait in the class: it has a busy threshold, and no limit of 0.
    #[must_use]
    pub fn can_queue(&self) -> bool {
        self.has_threshold() && !self.never_queues()
    }

    /// Whether a limit is 0, so that a request is served at once or refused.
    #[must_use]
    pub fn never_queues(&self) -> bool {
        let QueueLimits { requests, prompt_tokens, cached_tokens } = self.limits;
        [requests, prompt_tokens, cached_tokens].contains(&Some(0))
    }

    /// Whether a request goes on to worker selection now. `rows` are the rows that may serve it.
    ///
    /// It waits only while all of them are busy. Without a threshold nothing is busy, and without a row selection says
    /// what is wrong.
    pub fn admits(&self, rows: impl IntoIterator<Item = RowLoad>) -> bool {
        if !self.has_threshold() {
            return true;
        }
        let mut rows = rows.into_iter().peekable();
        rows.peek().is_none() || rows.any(|row| !self.is_busy(row))
    }

    fn has_threshold(&self) -> bool {
        self.prefill_busy_threshold.is_some() || self.prefill_busy_threshold_frac.is_some()
    }

    fn is_busy(&self, row: RowLoad) -> bool {
        let most = row.max_num_batched_tokens.unwrap_or(UNKNOWN_MAX_NUM_BATCHED_TOKENS) as f64;
        let above = |threshold: f64| row.active_prefill_tokens > threshold;
        self.prefill_busy_threshold.is_some_and(|threshold| above(threshold as f64))
            || self.prefill_busy_threshold_frac.is_some_and(|part| above(part * most))
    }
}

/// One entry of `uncached_isl_buckets`: requests with at least so many uncached tokens, up to the next bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Uncached tokens from which on the bucket holds.
    pub min_tokens: u64,
    /// Its name.
    pub bucket: String,
}

/// A profile as it is written, before it is checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfileSpec {
    /// The family of requests that ask for none, or for one that there is not.
    pub default_policy_family: String,
    /// The buckets of uncached tokens.
    pub uncached_isl_buckets: Vec<Bucket>,
    /// The classes.
    pub policy_classes: Vec<PolicyClass>,
}

/// The number of a class in its profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassId(pub(crate) usize);

impl ClassId {
    /// Its place in [`Profile::classes`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0
    }
}

/// A checked set of policy classes.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    classes: Vec<PolicyClass>,
    /// `min_tokens` of each bucket: 0 first, rising.
    floors: Vec<u64>,
    explicit: FxHashMap<String, ClassId>,
    /// Of each family the class of each bucket.
    families: FxHashMap<String, Vec<ClassId>>,
    default_family: Vec<ClassId>,
}

impl Profile {
    /// Checks a profile.
    ///
    /// # Errors
    /// Everything that is wrong with it, each with its place.
    pub fn new(spec: ProfileSpec) -> Result<Self, Vec<ProfileError>> {
        let mut report = Report::default();
        report.buckets(&spec.uncached_isl_buckets);
        report.classes(&spec.policy_classes);
        let families = report.families(&spec);
        if !report.0.is_empty() {
            return Err(report.0);
        }
        let families: FxHashMap<String, Vec<ClassId>> = families
            .into_iter()
            .map(|(family, cells)| (family.to_owned(), cells.into_iter().flatten().collect()))
            .collect();
        let default_family = families.get(&spec.default_policy_family).cloned().unwrap_or_default();
        let explicit = explicit(&spec.policy_classes).map(|(index, class)| (class.name.clone(), ClassId(index)));
        Ok(Self {
            explicit: explicit.collect(),
            floors: spec.uncached_isl_buckets.iter().map(|bucket| bucket.min_tokens).collect(),
            families,
            default_family,
            classes: spec.policy_classes,
        })
    }

    /// The profile where none is configured: one class `default` with a quantum of 1, for every request.
    ///
    /// Without `prefill_busy_threshold_frac` nothing ever waits in it.
    #[must_use]
    pub fn synthetic(prefill_busy_threshold_frac: Option<f64>, queue_policy: QueuePolicy) -> Self {
        let class = ClassId(0);
        Self {
            classes: vec![PolicyClass {
                name: SYNTHETIC.to_owned(),
                queue_policy,
                quantum: 1,
                prefill_busy_threshold_frac,
                ..PolicyClass::default()
            }],
            floors: vec![0],
            explicit: FxHashMap::from_iter([(SYNTHETIC.to_owned(), class)]),
            families: FxHashMap::default(),
            default_family: vec![class],
        }
    }

    /// The numbers of the classes, in the order of the file.
    pub fn ids(&self) -> impl Iterator<Item = ClassId> + use<> {
        (0..self.classes.len()).map(ClassId)
    }

    /// The classes, in the order of the file.
    #[must_use]
    pub fn classes(&self) -> &[PolicyClass] {
        &self.classes
    }

    /// The class of that number.
    #[must_use]
    pub fn class(&self, id: ClassId) -> &PolicyClass {
        &self.classes[id.0]
    }

    /// The class of a request with so many uncached tokens that asks for the class or family `requested`.
    ///
    /// A name that is neither an explicit class nor a family counts as none: the default family.
    #[must_use]
    pub fn choose(&self, requested: Option<&str>, uncached_tokens: u64) -> ClassId {
        let known = requested.and_then(|name| self.find(name, uncached_tokens));
        known.unwrap_or_else(|| self.in_bucket(&self.default_family, uncached_tokens))
    }

    /// As [`Self::choose`], for a name that must be known: a classifier's.
    ///
    /// # Errors
    /// Where `requested` is neither an explicit class nor a family. A class inside a family is chosen by its family.
    pub fn choose_strictly(&self, requested: &str, uncached_tokens: u64) -> Result<ClassId, UnknownPolicyClass> {
        self.find(requested, uncached_tokens).ok_or_else(|| {
            let mut known: Vec<_> = self.explicit.keys().chain(self.families.keys()).cloned().collect();
            known.sort_unstable();
            UnknownPolicyClass { name: requested.to_owned(), known }
        })
    }

    fn find(&self, name: &str, uncached_tokens: u64) -> Option<ClassId> {
        let family = || Some(self.in_bucket(self.families.get(name)?, uncached_tokens));
        self.explicit.get(name).copied().or_else(family)
    }

    fn in_bucket(&self, family: &[ClassId], uncached_tokens: u64) -> ClassId {
        family[self.floors.partition_point(|floor| *floor <= uncached_tokens) - 1]
    }
}

/// A classifier chose a policy class that there is not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown policy class `{name}`; use an explicit class or a family: {}", .known.join(", "))]
pub struct UnknownPolicyClass {
    /// The name that it chose.
    pub name: String,
    /// The explicit classes and the families, sorted.
    pub known: Vec<String>,
}

/// The profiles of a policy file.
#[derive(Clone, Debug, PartialEq)]
pub struct Profiles {
    fallback: Arc<Profile>,
    models: BTreeMap<String, Arc<Profile>>,
}

impl Profiles {
    /// `fallback` is the root profile, or where there is none a synthetic one; an entry of `models` replaces it whole.
    #[must_use]
    pub fn new(fallback: Profile, models: impl IntoIterator<Item = (String, Profile)>) -> Self {
        let models = models.into_iter().map(|(model, profile)| (model, Arc::new(profile))).collect();
        Self { fallback: Arc::new(fallback), models }
    }

    /// The profile of a model.
    #[must_use]
    pub fn of(&self, model: &str) -> &Arc<Profile> {
        self.models.get(model).unwrap_or(&self.fallback)
    }

    /// Every profile: that of models without one of their own, then those of models by name.
    pub fn iter(&self) -> impl Iterator<Item = (Option<&str>, &Profile)> {
        let models = self.models.iter().map(|(model, profile)| (Some(model.as_str()), profile.as_ref()));
        std::iter::once((None, self.fallback.as_ref())).chain(models)
    }
}

impl Default for Profiles {
    /// The synthetic profile without a threshold, for every model.
    fn default() -> Self {
        Self::new(Profile::synthetic(None, QueuePolicy::default()), [])
    }
}

/// One thing that is wrong with a profile.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{place}: {fault}")]
pub struct ProfileError {
    /// Where.
    pub place: ProfilePlace,
    /// What, and how to put it right.
    pub fault: ProfileFault,
}

/// A place in a profile. Its text is the path of the key, such as `policy_classes[2].quantum`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfilePlace {
    /// `default_policy_family`.
    DefaultPolicyFamily,
    /// `uncached_isl_buckets` as a whole.
    Buckets,
    /// A key of an entry of `uncached_isl_buckets`.
    Bucket(usize, &'static str),
    /// `policy_classes` as a whole.
    Classes,
    /// A key of an entry of `policy_classes`.
    Class(usize, &'static str),
}

impl fmt::Display for ProfilePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DefaultPolicyFamily => f.write_str("default_policy_family"),
            Self::Buckets => f.write_str("uncached_isl_buckets"),
            Self::Bucket(index, key) => write!(f, "uncached_isl_buckets[{index}].{key}"),
            Self::Classes => f.write_str("policy_classes"),
            Self::Class(index, key) => write!(f, "policy_classes[{index}].{key}"),
        }
    }
}

/// What is wrong at a place of a profile.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileFault {
    /// A list has no entry.
    #[error("must not be empty; write at least one entry")]
    Empty,
    /// A name has other letters than it may.
    #[error("{0:?} is no name; use letters, digits, `_`, `.` and `-`, at least one")]
    NoName(String),
    /// An earlier entry has the same name.
    #[error("`{0}` names an earlier entry too; choose another name")]
    Duplicate(String),
    /// The first bucket leaves out requests.
    #[error("the first bucket starts at {0} tokens; start it at 0, so that every request has a bucket")]
    FirstBucket(u64),
    /// A bucket does not start after the one before it.
    #[error("{floor} tokens are not more than the {before} of the bucket before; list the buckets in rising order")]
    NotRising {
        /// Its first number of tokens.
        floor: u64,
        /// That of the bucket before it.
        before: u64,
    },
    /// The class could never spend anything.
    #[error("class `{0}` has a quantum of 0; give it at least 1 token")]
    NoQuantum(String),
    /// The part is no number from 0 on.
    #[error("class `{name}` has the busy part {part}; use a finite number from 0 on")]
    BusyPart {
        /// The class.
        name: String,
        /// The part.
        part: f64,
    },
    /// One of `policy_family` and `cache_bucket` is missing.
    #[error(
        "class `{0}` has only one of `policy_family` and `cache_bucket`; give both, or neither for an explicit class"
    )]
    HalfOfFamily(String),
    /// There is no bucket of that name.
    #[error("class `{name}` is in the unknown bucket `{bucket}`; use a bucket of `uncached_isl_buckets`")]
    UnknownBucket {
        /// The class.
        name: String,
        /// The bucket.
        bucket: String,
    },
    /// An earlier class has the same family and bucket.
    #[error("class `{name}` takes bucket `{bucket}` of family `{family}`, as class `{other}` does; keep one of them")]
    Taken {
        /// The class.
        name: String,
        /// Its family.
        family: String,
        /// Its bucket.
        bucket: String,
        /// The earlier class.
        other: String,
    },
    /// A family has no class for a bucket.
    #[error("family `{family}` has no class for bucket `{bucket}`; add one")]
    Missing {
        /// The family.
        family: String,
        /// The bucket.
        bucket: String,
    },
    /// An explicit class has the name of a family.
    #[error("explicit class `{0}` has the name of a family; choose another name")]
    NamedAsFamily(String),
    /// There is no family of that name.
    #[error("`{0}` is no family of the classes; name one that is")]
    UnknownFamily(String),
}

/// Collects everything that is wrong.
#[derive(Default)]
struct Report(Vec<ProfileError>);

/// Of each family, in the order of their names, the class of each bucket.
type Families<'a> = BTreeMap<&'a str, Vec<Option<ClassId>>>;

impl Report {
    fn add(&mut self, place: ProfilePlace, fault: ProfileFault) {
        self.0.push(ProfileError { place, fault });
    }

    fn name(&mut self, place: ProfilePlace, name: &str) {
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte)) {
            self.add(place, ProfileFault::NoName(name.to_owned()));
        }
    }

    /// The names of a list's entries: each a name, and each once.
    fn names<'a>(&mut self, names: impl Iterator<Item = (ProfilePlace, &'a str)>) {
        let mut seen = FxHashSet::default();
        for (place, name) in names {
            self.name(place, name);
            if !seen.insert(name) {
                self.add(place, ProfileFault::Duplicate(name.to_owned()));
            }
        }
    }

    fn buckets(&mut self, buckets: &[Bucket]) {
        let names = buckets.iter().map(|bucket| &*bucket.bucket).enumerate();
        self.names(names.map(|(index, name)| (ProfilePlace::Bucket(index, "bucket"), name)));
        let floor = |index| ProfilePlace::Bucket(index, "min_tokens");
        match buckets.first().map(|first| first.min_tokens) {
            None => self.add(ProfilePlace::Buckets, ProfileFault::Empty),
            Some(0) => {}
            Some(tokens) => self.add(floor(0), ProfileFault::FirstBucket(tokens)),
        }
        for (index, pair) in buckets.windows(2).enumerate() {
            let [before, next] = [pair[0].min_tokens, pair[1].min_tokens];
            if next <= before {
                self.add(floor(index + 1), ProfileFault::NotRising { floor: next, before });
            }
        }
    }

    fn classes(&mut self, classes: &[PolicyClass]) {
        if classes.is_empty() {
            self.add(ProfilePlace::Classes, ProfileFault::Empty);
        }
        let names = classes.iter().map(|class| &*class.name).enumerate();
        self.names(names.map(|(index, name)| (ProfilePlace::Class(index, "name"), name)));
        for (index, class) in classes.iter().enumerate() {
            let place = |key| ProfilePlace::Class(index, key);
            let name = || class.name.clone();
            if class.quantum == 0 {
                self.add(place("quantum"), ProfileFault::NoQuantum(name()));
            }
            if let Some(part) = class.prefill_busy_threshold_frac
                && !(part.is_finite() && part >= 0.0)
            {
                self.add(place("prefill_busy_threshold_frac"), ProfileFault::BusyPart { name: name(), part });
            }
            match (&class.policy_family, &class.cache_bucket) {
                (Some(_), None) => self.add(place("policy_family"), ProfileFault::HalfOfFamily(name())),
                (None, Some(_)) => self.add(place("cache_bucket"), ProfileFault::HalfOfFamily(name())),
                (Some(family), Some(_)) => self.name(place("policy_family"), family),
                (None, None) => {}
            }
        }
    }

    /// Of each family the class of each bucket; every bucket has one unless something is reported.
    fn families<'a>(&mut self, spec: &'a ProfileSpec) -> Families<'a> {
        let buckets = &spec.uncached_isl_buckets;
        let mut families = Families::new();
        for (index, class) in spec.policy_classes.iter().enumerate() {
            let (Some(family), Some(bucket)) = (&class.policy_family, &class.cache_bucket) else { continue };
            let cells = families.entry(&**family).or_insert_with(|| vec![None; buckets.len()]);
            let place = ProfilePlace::Class(index, "cache_bucket");
            let (name, bucket) = (class.name.clone(), bucket.clone());
            let Some(position) = buckets.iter().position(|known| known.bucket == bucket) else {
                self.add(place, ProfileFault::UnknownBucket { name, bucket });
                continue;
            };
            match cells[position].replace(ClassId(index)) {
                None => {}
                Some(ClassId(other)) => {
                    let (family, other) = (family.clone(), spec.policy_classes[other].name.clone());
                    self.add(place, ProfileFault::Taken { name, family, bucket, other });
                }
            }
        }
        for (index, class) in explicit(&spec.policy_classes) {
            if families.contains_key(&*class.name) {
                self.add(ProfilePlace::Class(index, "name"), ProfileFault::NamedAsFamily(class.name.clone()));
            }
        }
        let default = &spec.default_policy_family;
        if !families.contains_key(&**default) {
            self.add(ProfilePlace::DefaultPolicyFamily, ProfileFault::UnknownFamily(default.clone()));
        }
        // Any other mistake leaves gaps of its own.
        if self.0.is_empty() {
            self.gaps(&families, buckets);
        }
        families
    }

    fn gaps(&mut self, families: &Families<'_>, buckets: &[Bucket]) {
        for (family, cells) in families {
            for (_, bucket) in cells.iter().zip(buckets).filter(|(cell, _)| cell.is_none()) {
                let (family, bucket) = ((*family).to_owned(), bucket.bucket.clone());
                self.add(ProfilePlace::Classes, ProfileFault::Missing { family, bucket });
            }
        }
    }
}

/// The classes that are asked for by their own names.
fn explicit(classes: &[PolicyClass]) -> impl Iterator<Item = (usize, &PolicyClass)> {
    classes.iter().enumerate().filter(|(_, class)| class.policy_family.is_none())
}
