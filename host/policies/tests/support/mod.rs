//! A built-in classifier as a guest, and what it is sent of a request.

use pointsman_contract::{Fact, Partition, Reads, Role, RouterConfig, Text};
use pointsman_sandbox::{Args, Artifact, GuestSetup, GuestSlot, Limits, Profile, Sandbox, SandboxConfig};

/// The partition of every guest here.
pub(crate) fn partition() -> Partition {
    Partition {
        model: "default".to_owned(),
        routing_group: "default".to_owned(),
        role: Role::Aggregated,
        block_size: 16,
        seed: 7,
    }
}

/// A guest of that built-in policy, by the default limits.
pub(crate) fn slot(name: &str, parameters: &str) -> GuestSlot {
    let sandbox = Sandbox::new(SandboxConfig { guests: 2, ..SandboxConfig::default() }).unwrap();
    let built_in = pointsman_policies::get(name).unwrap();
    GuestSlot::new(GuestSetup {
        policy: sandbox.load(&Artifact::from_bytes(name, built_in.component).trusted(), Profile::Compact).unwrap(),
        instance: name.to_owned(),
        partition: partition(),
        router_config: RouterConfig::default(),
        parameters: parameters.to_owned(),
        limits: Limits::default(),
        account: None,
    })
    .unwrap()
}

/// The facts and texts that a classifier reads, in its order.
pub(crate) fn arguments(reads: &Reads, number: impl Fn(Fact) -> f64, text: impl Fn(Text) -> Option<String>) -> Args {
    let numbers = reads.facts.iter().map(|name| number(Fact::from_name(name).unwrap())).collect();
    let texts: Vec<_> = reads.texts.iter().map(|name| text(Text::from_name(name).unwrap())).collect();
    let texts = Some(texts).filter(|texts| !texts.is_empty());
    Args { numbers, texts, ..Args::default() }
}
