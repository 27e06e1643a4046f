//! Who listens to a partition's decisions: what it is told, and what a policy's guests had behind them by then.

use pointsman_contract::RouterConfig;
use pointsman_sandbox::{Determinism, GuestSetup, Limits, Outcome};
use smallvec::SmallVec;

use crate::config::OnFault;
use crate::error::DecideError;
use crate::guest::Guest;
use crate::member::Member;
use crate::pipeline::{Pipeline, StageMode};
use crate::router::PartitionKey;
use crate::snapshot::{ExtraNames, Snapshot};
use crate::version::Version;

/// Listens to the decisions of one partition. It is called under the partition's lock, so what it does delays the next
/// decision.
pub trait Tap: Send {
    /// Whether it wants the decision that comes next, asked once before each.
    fn wants(&mut self) -> bool;

    /// Whether it wants the caches looked up though the policy reads none; see [`crate::Partition::wants_overlaps`].
    fn reads_cache(&self) -> bool {
        false
    }

    /// A decision that it wanted. One that the host refused before it asked the policy is not told.
    fn decided(&mut self, observed: &Observed<'_>);
}

/// How far one guest is. The state that it keeps follows from the calls that it got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuestState {
    /// Guests that stood in its place before it.
    pub generation: u64,
    /// Calls that it got; 0 where the next call builds it. For a native policy, the decisions of its pipeline.
    pub calls: u64,
}

/// How far a policy of one partition is, and the native default behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyState {
    /// A number of its own for each policy that this process built.
    pub policy: u64,
    /// Its guests, one for each instance.
    pub guests: SmallVec<[GuestState; 4]>,
    /// Decisions of the default in the policy's place.
    pub defaults: u64,
}

impl PolicyState {
    /// Whether every guest is new, so that nothing before counts.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        self.guests.iter().all(|guest| guest.calls == 0)
    }

    pub(crate) fn of(policy: &Pipeline, default: Option<&Pipeline>) -> Self {
        let state = |member: &Member| match member.guest() {
            Guest::Component(slot) => GuestState { generation: slot.generation(), calls: slot.calls() },
            Guest::Native(_) => GuestState { generation: 0, calls: policy.asked() },
        };
        Self {
            policy: policy.id(),
            guests: policy.members().iter().map(state).collect(),
            defaults: default.map_or(0, Pipeline::asked),
        }
    }
}

/// How a decision over a snapshot ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SnapshotDecision {
    /// The chosen row of the snapshot.
    pub row: u32,
    /// Its cost: the scorers' sum, 0 without a scorer.
    pub cost: f64,
    /// `ok`, or the fault after which another decided in the policy's place.
    pub outcome: Outcome,
    /// Whether the native default decided in the policy's place; if not, after a fault, the policy's previous version did.
    pub fallback: bool,
    /// Fuel that the policy's guests used; none for a native policy, or after a fault.
    pub fuel: Option<u64>,
}

/// One decision, as a tap is told.
#[derive(Clone, Copy)]
pub struct Observed<'a> {
    /// The request's name of it.
    pub id: &'a str,
    /// What it was made of.
    pub snapshot: &'a Snapshot,
    /// How it ended.
    pub ended: Result<SnapshotDecision, &'a DecideError>,
    /// How far the policy was before it.
    pub before: &'a PolicyState,
    /// How far the policy is now.
    pub after: &'a PolicyState,
    pub(crate) policy: &'a Pipeline,
    pub(crate) told: &'a Told,
}

impl std::fmt::Debug for Observed<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observed").field("ended", &self.ended).field("before", self.before).finish_non_exhaustive()
    }
}

impl Observed<'_> {
    /// What the policy was built from.
    #[must_use]
    pub fn policy(&self) -> PolicySpec {
        let member = |member: &Member| {
            let (digest, parameters, limits, wasi) = match member.guest() {
                Guest::Component(slot) => {
                    let GuestSetup { policy, parameters, limits, .. } = slot.setup();
                    (Some(policy.sha256_hex()), parameters.clone(), *limits, policy.imports_wasi())
                }
                Guest::Native(_) => (None, "{}".to_owned(), Limits::default(), false),
            };
            let (instance, on_fault) = (member.instance.clone(), member.on_fault);
            MemberSpec { instance, digest, parameters, limits, wasi, on_fault }
        };
        PolicySpec {
            told: self.told.clone(),
            names: (*self.snapshot.names).clone(),
            members: self.policy.members().iter().map(member).collect(),
            layout: self.policy.layout(),
        }
    }
}

/// What the guests of a partition are told of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    /// The partition.
    pub key: PartitionKey,
    /// Tokens per KV block.
    pub block_size: u32,
    /// The host's seed, that every guest's seed grows from.
    pub seed: u64,
    /// The settings that policies take as defaults.
    pub router_config: RouterConfig,
    /// How far results are the same on every machine.
    pub determinism: Determinism,
}

/// Everything but the inputs that a policy's decisions depend on. The artifacts are named by their digests.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicySpec {
    /// What its guests are told.
    pub told: Told,
    /// The router's own names.
    pub names: ExtraNames,
    /// Its instances.
    pub members: Vec<MemberSpec>,
    /// Which of them run at which stage.
    pub layout: Layout,
}

/// One instance of a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberSpec {
    /// The instance's name, which its seed grows from.
    pub instance: String,
    /// SHA-256 of the artifact in hex; none for a native policy.
    pub digest: Option<String>,
    /// The parameters, a JSON object.
    pub parameters: String,
    /// What the guest may use.
    pub limits: Limits,
    /// Whether it imports WASI.
    pub wasi: bool,
    /// What the host does when it fails.
    pub on_fault: OnFault,
}

/// How the instances of a policy decide together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One instance, with all stages that it has.
    Single(StageMode),
    /// The stages of several, as places in the list of instances, in the order they run.
    Several {
        /// Those that filter.
        filters: Vec<usize>,
        /// Those that score.
        scorers: Vec<usize>,
        /// The one that picks.
        picker: Option<usize>,
    },
}

/// The taps that want the decision that begins, and how far its policy is. None, at the cost of one branch, where nobody
/// listens.
pub(crate) struct Listening {
    wanted: SmallVec<[bool; 2]>,
    pub(crate) before: PolicyState,
}

impl Listening {
    pub(crate) fn begin(taps: &mut [Box<dyn Tap>], version: &Version) -> Option<Self> {
        if taps.is_empty() {
            return None;
        }
        let wanted: SmallVec<_> = taps.iter_mut().map(|tap| tap.wants()).collect();
        let Version { policy, fallback, .. } = version;
        wanted.contains(&true).then(|| Self { wanted, before: PolicyState::of(policy, fallback.as_ref()) })
    }

    pub(crate) fn tell(&self, taps: &mut [Box<dyn Tap>], observed: &Observed<'_>) {
        for (tap, wanted) in taps.iter_mut().zip(&self.wanted) {
            if *wanted {
                tap.decided(observed);
            }
        }
    }
}
