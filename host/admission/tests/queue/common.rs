//! Profiles and arrivals for the queue's tests.

use std::sync::Arc;

use pointsman_admission::{
    Arrival, Bucket, ClassId, Lane, PolicyClass, Profile, ProfileSpec, RequestTokens, WorkerKey,
};

/// A profile of explicit classes, beside a family that nothing asks for.
pub(crate) fn profile(classes: impl IntoIterator<Item = PolicyClass>) -> Arc<Profile> {
    let family = PolicyClass {
        policy_family: Some("other".to_owned()),
        cache_bucket: Some("all".to_owned()),
        ..class("other_all", 1)
    };
    Arc::new(
        Profile::new(ProfileSpec {
            default_policy_family: "other".to_owned(),
            uncached_isl_buckets: vec![Bucket { min_tokens: 0, bucket: "all".to_owned() }],
            policy_classes: classes.into_iter().chain([family]).collect(),
        })
        .unwrap(),
    )
}

/// A class with that quantum.
pub(crate) fn class(name: &str, quantum: u64) -> PolicyClass {
    PolicyClass { name: name.to_owned(), quantum, ..PolicyClass::default() }
}

/// The class of that name.
pub(crate) fn id(profile: &Profile, name: &str) -> ClassId {
    profile.choose_strictly(name, 0).unwrap()
}

/// The lane of rank 0 of a worker.
pub(crate) fn pinned(worker: u64) -> Lane {
    Lane::Rank(WorkerKey::new(worker, 0))
}

/// A request of 1 token, at the start of time, that any worker may serve.
pub(crate) fn arrival(class: ClassId) -> Arrival {
    Arrival {
        class,
        lane: Lane::Shared,
        tokens: RequestTokens::new(1, 0),
        strict_priority: 0,
        priority_jump: 0.0,
        ingress_ms: 0.0,
        due_ms: None,
    }
}
