//! A policy that decides over snapshots: one built again from what a record says of it, or a router's own beside the live
//! one.

use pointsman_sandbox::{Artifact, LoadStep, Outcome, Sandbox};
use pointsman_sdk::native;

use crate::error::{DecideError, RouterError};
use crate::member::{Guard, Member};
use crate::pipeline::{Answer, Explanation, Pipeline, StageMode, default_among};
use crate::registry::{DEFAULT, Provider, Registry};
use crate::router::{InstanceSpec, contract_partition};
use crate::snapshot::{Seen, Snapshot};
use crate::table::{Rows, narrowed};
use crate::tap::{Layout, MemberSpec, PolicySpec, PolicyState, SnapshotDecision, Told};
use crate::vocabulary::{Stage, Vocabulary};

/// The type under which the native default is built again; no artifact has such a digest.
const NATIVE_DEFAULT: &str = "the native default";

/// A policy with guests of its own, and the native default for when it fails. Nothing that it decides is booked.
pub struct SnapshotPolicy {
    policy: Pipeline,
    fallback: Option<Pipeline>,
    vocabulary: Vocabulary,
}

impl std::fmt::Debug for SnapshotPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SnapshotPolicy").field("state", &self.state()).finish_non_exhaustive()
    }
}

impl SnapshotPolicy {
    pub(crate) const fn new(policy: Pipeline, fallback: Option<Pipeline>, vocabulary: Vocabulary) -> Self {
        Self { policy, fallback, vocabulary }
    }

    /// Decides among the snapshot's rows, as the partition would with this policy.
    ///
    /// # Errors
    /// [`DecideError::AllEligibleWorkersFiltered`] and [`DecideError::Refused`].
    pub fn decide(&mut self, snapshot: &Snapshot) -> Result<SnapshotDecision, DecideError> {
        self.decided(snapshot, None)
    }

    /// The same stage by stage, with what every stage saw and answered.
    ///
    /// # Errors
    /// As [`Self::decide`].
    pub fn explain(
        &mut self,
        snapshot: &Snapshot,
        explanation: &mut Explanation,
    ) -> Result<SnapshotDecision, DecideError> {
        self.decided(snapshot, Some(explanation))
    }

    /// How far its guests are.
    #[must_use]
    pub fn state(&self) -> PolicyState {
        PolicyState::of(&self.policy, self.fallback.as_ref())
    }

    /// Whether it reads any cache signal.
    #[must_use]
    pub fn reads_cache(&self) -> bool {
        self.policy.reads_cache()
    }

    /// Asks the filter alone, as a router asks the guest that stands in for one that failed. It may fail as well.
    pub fn ask_filter(&mut self, snapshot: &Snapshot) {
        let source = Seen { snapshot, vocabulary: &self.vocabulary };
        // What it answers matters to its own state alone.
        let _ = self.policy.filter_alone(&source, Rows::All(snapshot.rows()));
    }

    fn decided(
        &mut self,
        snapshot: &Snapshot,
        explanation: Option<&mut Explanation>,
    ) -> Result<SnapshotDecision, DecideError> {
        let source = Seen { snapshot, vocabulary: &self.vocabulary };
        let all: Vec<u32>;
        let rows = match &snapshot.affinity {
            Some(target) if self.policy.exclusive_affinity() => {
                all = (0..snapshot.rows()).collect();
                Rows::Some(narrowed(target, &all))
            }
            _ => Rows::All(snapshot.rows()),
        };
        match self.policy.decide(&source, rows, explanation) {
            Ok(Answer { row, cost, fuel }) => {
                Ok(SnapshotDecision { row, cost, outcome: Outcome::Ok, fallback: false, fuel })
            }
            Err(failure) => {
                let outcome = failure.resolve(self.fallback.is_some())?;
                let Answer { row, cost, .. } = default_among(self.fallback.as_mut(), &source, self.policy.kept())?;
                Ok(SnapshotDecision { row, cost, outcome, fallback: true, fuel: None })
            }
        }
    }
}

/// Builds policies again from what a record says of them.
pub struct Rebuild {
    sandbox: Sandbox,
    registry: Registry,
}

impl std::fmt::Debug for Rebuild {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rebuild").field("artifacts", &self.registry.names()).finish_non_exhaustive()
    }
}

impl Rebuild {
    /// Knows the native default and no artifact yet.
    ///
    /// # Errors
    /// None that a caller could meet.
    pub fn new(sandbox: Sandbox) -> Result<Self, RouterError> {
        let mut registry = Registry::default();
        let default = native::native::<dynamo_default_cost_fn::DynamoDefaultCostFn>();
        registry.register(NATIVE_DEFAULT, Provider::native(default))?;
        Ok(Self { sandbox, registry })
    }

    /// Makes an artifact known by its digest; one that is known already changes nothing.
    ///
    /// # Errors
    /// None that a caller could meet.
    pub fn add(&mut self, artifact: Artifact) -> Result<(), RouterError> {
        let digest = artifact.sha256_hex();
        if self.registry.names().contains(&digest) {
            return Ok(());
        }
        self.registry.register(&digest, Provider::component(artifact))
    }

    /// A policy with new guests.
    ///
    /// # Errors
    /// An artifact that is not known; one that cannot start; a native policy other than the default.
    pub fn policy(&self, spec: &PolicySpec) -> Result<SnapshotPolicy, RouterError> {
        let vocabulary = spec.names.vocabulary();
        let members =
            spec.members.iter().map(|member| self.member(member, &spec.told, &vocabulary)).collect::<Result<_, _>>()?;
        let policy = build(members, &spec.layout)?;
        let default = MemberSpec::native_default();
        let behind = spec.members.iter().any(|member| member.digest.is_some());
        let fallback = match behind {
            true => Some(build(vec![self.member(&default, &spec.told, &vocabulary)?], &Layout::default())?),
            false => None,
        };
        Ok(SnapshotPolicy::new(policy, fallback, vocabulary))
    }

    fn member(&self, member: &MemberSpec, told: &Told, vocabulary: &Vocabulary) -> Result<Member, RouterError> {
        let fail = |policy_type: &str, message: String| RouterError::Provider {
            instance: member.instance.clone(),
            policy_type: policy_type.to_owned(),
            step: LoadStep::Configure,
            message,
        };
        let policy_type = match &member.digest {
            Some(digest) => digest.as_str(),
            None if member.instance == DEFAULT => NATIVE_DEFAULT,
            None => {
                let message = "it is compiled into its host, and of those the default alone can be built again";
                return Err(fail("native", message.to_owned()));
            }
        };
        let parameters = serde_json::from_str(&member.parameters)
            .map_err(|error| fail(policy_type, format!("its parameters are no JSON object: {error}")))?;
        let instance = InstanceSpec::new(policy_type).named(&member.instance).parameters(parameters);
        let instance = instance.wasi(member.wasi).on_fault(member.on_fault).into_instance();
        let partition = contract_partition(told.seed, &told.key, told.block_size, &member.instance);
        let guest =
            self.registry.guest(&self.sandbox, &instance, partition, &told.router_config, member.limits, None)?;
        Member::new(instance.name, guest, instance.on_fault, Guard::default(), vocabulary)
            .map_err(|message| fail(policy_type, message))
    }
}

impl MemberSpec {
    fn native_default() -> Self {
        Self {
            instance: DEFAULT.to_owned(),
            digest: None,
            parameters: "{}".to_owned(),
            limits: pointsman_sandbox::Limits::default(),
            wasi: false,
            on_fault: crate::config::OnFault::default(),
        }
    }
}

impl Default for Layout {
    fn default() -> Self {
        Self::Single(StageMode::default())
    }
}

/// The policy of these members, whose stages the layout must name rightly.
fn build(mut members: Vec<Member>, layout: &Layout) -> Result<Pipeline, RouterError> {
    let broken = |what: &str| RouterError::Config(format!("the policy cannot be built again: {what}"));
    match layout {
        Layout::Single(mode) => match (members.pop(), members.is_empty()) {
            (Some(member), true) => Ok(Pipeline::single(member, *mode)),
            _ => Err(broken("it has one instance by its layout, and not one by its list")),
        },
        Layout::Several { filters, scorers, picker } => {
            let listed = [
                (filters.as_slice(), Stage::Filter),
                (scorers.as_slice(), Stage::Score),
                (picker.as_slice(), Stage::Pick),
            ];
            for (places, stage) in listed {
                for place in places {
                    let member =
                        members.get(*place).ok_or_else(|| broken("its layout names an instance that is not there"))?;
                    if !stage.is_in(member.guest().stages()) {
                        return Err(broken(&format!("the instance `{}` has no stage {stage}", member.instance)));
                    }
                }
            }
            Ok(Pipeline::of(members, filters.clone(), scorers.clone(), *picker))
        }
    }
}
