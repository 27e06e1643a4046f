//! Which profiles are refused, with which places, and which class a request belongs to.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pointsman_admission::{
    Bucket, PolicyClass, Profile, ProfileFault, ProfilePlace, ProfileSpec, Profiles, QueueLimits, QueuePolicy, RowLoad,
};

fn bucket(min_tokens: u64, bucket: &str) -> Bucket {
    Bucket { min_tokens, bucket: bucket.to_owned() }
}

fn class(name: &str) -> PolicyClass {
    PolicyClass { name: name.to_owned(), quantum: 1, ..PolicyClass::default() }
}

fn member(family: &str, bucket: &str) -> PolicyClass {
    let (policy_family, cache_bucket) = (Some(family.to_owned()), Some(bucket.to_owned()));
    PolicyClass { policy_family, cache_bucket, ..class(&format!("{family}_{bucket}")) }
}

/// Two families of two buckets, and one explicit class.
fn spec() -> ProfileSpec {
    ProfileSpec {
        default_policy_family: "standard".to_owned(),
        uncached_isl_buckets: vec![bucket(0, "short"), bucket(1_000, "long")],
        policy_classes: vec![
            member("standard", "short"),
            member("standard", "long"),
            member("premium", "long"),
            member("premium", "short"),
            class("batch"),
        ],
    }
}

fn chosen(profile: &Profile, requested: Option<&str>, uncached: u64) -> String {
    profile.class(profile.choose(requested, uncached)).name.clone()
}

fn strictly(profile: &Profile, requested: &str, uncached: u64) -> Result<String, String> {
    let class = profile.choose_strictly(requested, uncached).map_err(|error| error.to_string())?;
    Ok(profile.class(class).name.clone())
}

/// The errors of a changed spec, as the operator reads them.
fn errors(change: impl FnOnce(&mut ProfileSpec)) -> Vec<String> {
    let mut spec = spec();
    change(&mut spec);
    Profile::new(spec).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn families_and_buckets_choose_the_class() {
    let profile = Profile::new(spec()).unwrap();
    assert_eq!(chosen(&profile, Some("premium"), 999), "premium_short");
    assert_eq!(chosen(&profile, Some("premium"), 1_000), "premium_long");
    assert_eq!(chosen(&profile, Some("batch"), 1_000), "batch");
    for default in [None, Some("unheard-of"), Some("premium_long"), Some("")] {
        assert_eq!(chosen(&profile, default, 0), "standard_short");
        assert_eq!(chosen(&profile, default, u64::MAX), "standard_long");
    }
}

#[test]
fn a_classifier_must_name_an_explicit_class_or_a_family() {
    let profile = Profile::new(spec()).unwrap();
    assert_eq!(strictly(&profile, "premium", 5_000).unwrap(), "premium_long");
    assert_eq!(strictly(&profile, "batch", 5_000).unwrap(), "batch");
    assert_eq!(
        strictly(&profile, "premium_long", 5_000).unwrap_err(),
        "unknown policy class `premium_long`; use an explicit class or a family: batch, premium, standard"
    );
}

#[test]
fn the_synthetic_profile_has_the_one_class_default() {
    let profile = Profile::synthetic(Some(2.0), QueuePolicy::Wspt);
    let [only] = profile.classes() else { panic!("one class") };
    assert_eq!((&*only.name, only.quantum, only.queue_policy), ("default", 1, QueuePolicy::Wspt));
    assert_eq!(only.prefill_busy_threshold_frac, Some(2.0));
    assert_eq!(chosen(&profile, Some("premium"), 7), "default");
    assert_eq!(strictly(&profile, "default", 7).unwrap(), "default");
    assert!(strictly(&profile, "premium", 7).is_err());
}

#[test]
fn a_models_profile_replaces_the_root() {
    let of = |name: &str| Profile::new(ProfileSpec { policy_classes: vec![class(name), family()], ..root() }).unwrap();
    fn family() -> PolicyClass {
        member("standard", "all")
    }
    fn root() -> ProfileSpec {
        let uncached_isl_buckets = vec![bucket(0, "all")];
        ProfileSpec { default_policy_family: "standard".to_owned(), uncached_isl_buckets, policy_classes: vec![] }
    }
    let profiles = Profiles::new(of("root"), [("llama".to_owned(), of("own"))]);
    assert_eq!(profiles.of("llama").classes()[0].name, "own");
    assert_eq!(profiles.of("qwen").classes()[0].name, "root");
    assert_eq!(Profiles::default().of("qwen").classes()[0].name, "default");
}

#[test]
fn every_mistake_is_named_with_its_place() {
    assert_eq!(
        errors(|spec| spec.uncached_isl_buckets[0].min_tokens = 5),
        [
            "uncached_isl_buckets[0].min_tokens: the first bucket starts at 5 tokens; start it at 0, so that every request has a bucket"
        ]
    );
    assert_eq!(
        errors(|spec| spec.uncached_isl_buckets[1].min_tokens = 0),
        [
            "uncached_isl_buckets[1].min_tokens: 0 tokens are not more than the 0 of the bucket before; list the buckets in rising order"
        ]
    );
    assert_eq!(
        errors(|spec| spec.uncached_isl_buckets.push(bucket(2_000, "short"))),
        ["uncached_isl_buckets[2].bucket: `short` names an earlier entry too; choose another name"]
    );
    assert_eq!(
        errors(|spec| spec.uncached_isl_buckets[1].bucket = "a b".to_owned())[0],
        "uncached_isl_buckets[1].bucket: \"a b\" is no name; use letters, digits, `_`, `.` and `-`, at least one"
    );
    assert_eq!(
        errors(|spec| spec.policy_classes[4].name = "premium_long".to_owned()),
        ["policy_classes[4].name: `premium_long` names an earlier entry too; choose another name"]
    );
    assert_eq!(
        errors(|spec| spec.policy_classes[4].name = String::new()),
        ["policy_classes[4].name: \"\" is no name; use letters, digits, `_`, `.` and `-`, at least one"]
    );
    assert_eq!(
        errors(|spec| spec.policy_classes[4].quantum = 0),
        ["policy_classes[4].quantum: class `batch` has a quantum of 0; give it at least 1 token"]
    );
    for part in [-0.1, f64::NAN, f64::INFINITY] {
        assert_eq!(
            errors(|spec| spec.policy_classes[1].prefill_busy_threshold_frac = Some(part)),
            [format!(
                "policy_classes[1].prefill_busy_threshold_frac: class `standard_long` has the busy part {part}; use a finite number from 0 on"
            )]
        );
    }
    assert_eq!(
        errors(|spec| spec.policy_classes[4].cache_bucket = Some("long".to_owned())),
        [
            "policy_classes[4].cache_bucket: class `batch` has only one of `policy_family` and `cache_bucket`; give both, or neither for an explicit class"
        ]
    );
    assert_eq!(
        errors(|spec| spec.policy_classes[4].policy_family = Some("premium".to_owned())),
        [
            "policy_classes[4].policy_family: class `batch` has only one of `policy_family` and `cache_bucket`; give both, or neither for an explicit class"
        ]
    );
    assert_eq!(
        errors(|spec| spec.policy_classes[2].cache_bucket = Some("huge".to_owned())),
        [
            "policy_classes[2].cache_bucket: class `premium_long` is in the unknown bucket `huge`; use a bucket of `uncached_isl_buckets`"
        ]
    );
    assert_eq!(
        errors(|spec| spec.policy_classes[3].cache_bucket = Some("long".to_owned())),
        [
            "policy_classes[3].cache_bucket: class `premium_short` takes bucket `long` of family `premium`, as class `premium_long` does; keep one of them"
        ]
    );
    assert_eq!(
        errors(|spec| _ = spec.policy_classes.remove(3)),
        ["policy_classes: family `premium` has no class for bucket `short`; add one"]
    );
    assert_eq!(
        errors(|spec| spec.policy_classes[4].name = "premium".to_owned()),
        ["policy_classes[4].name: explicit class `premium` has the name of a family; choose another name"]
    );
    assert_eq!(
        errors(|spec| spec.default_policy_family = "gold".to_owned()),
        ["default_policy_family: `gold` is no family of the classes; name one that is"]
    );
}

#[test]
fn all_mistakes_of_a_profile_come_at_once() {
    let found = Profile::new(ProfileSpec::default()).unwrap_err();
    let found: Vec<_> = found.into_iter().map(|error| (error.place, error.fault)).collect();
    assert_eq!(
        found,
        [
            (ProfilePlace::Buckets, ProfileFault::Empty),
            (ProfilePlace::Classes, ProfileFault::Empty),
            (ProfilePlace::DefaultPolicyFamily, ProfileFault::UnknownFamily(String::new())),
        ]
    );
}

#[test]
fn a_worker_is_busy_above_either_threshold() {
    let load =
        |active_prefill_tokens, max_num_batched_tokens| RowLoad { active_prefill_tokens, max_num_batched_tokens };
    let absolute = PolicyClass { prefill_busy_threshold: Some(100), ..class("absolute") };
    assert!(absolute.admits([load(100.0, None)]));
    assert!(!absolute.admits([load(101.0, None)]));
    let part = PolicyClass { prefill_busy_threshold_frac: Some(0.5), ..class("part") };
    assert!(part.admits([load(50.0, Some(100))]));
    assert!(!part.admits([load(51.0, Some(100))]));
    assert!(part.admits([load(5_000_000.0, None)]), "an unknown maximum counts as 10,000,000");
    assert!(!part.admits([load(5_000_001.0, None)]));
    let both = PolicyClass { prefill_busy_threshold_frac: Some(0.5), ..absolute.clone() };
    assert!(!both.admits([load(101.0, None)]));
    assert!(absolute.admits([load(101.0, None), load(0.0, None)]), "one of the rows is not busy");
    assert!(absolute.admits([]), "no row at all is for selection to say");
    assert!(class("none").admits([load(1e12, Some(1))]));
}

#[test]
fn a_class_queues_by_its_threshold_and_never_with_a_limit_of_zero() {
    let zero = |limits| PolicyClass { limits, prefill_busy_threshold: Some(1), ..class("zero") };
    let none = QueueLimits::default();
    assert!(zero(none).can_queue());
    assert!(!class("none").can_queue());
    let zeros = [
        QueueLimits { requests: Some(0), ..none },
        QueueLimits { prompt_tokens: Some(0), ..none },
        QueueLimits { cached_tokens: Some(0), ..none },
    ];
    assert!(zeros.iter().all(|limits| zero(*limits).never_queues() && !zero(*limits).can_queue()));
}
