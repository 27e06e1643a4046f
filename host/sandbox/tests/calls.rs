//! What a well-behaved policy gets and what its host gets back.

mod common;

use common::{Policy, args, sandbox, slot};
use pointsman_contract::{Selection, Stages};
use pointsman_sandbox::*;

#[test]
fn every_stage_answers() {
    let sandbox = sandbox();
    let policy = sandbox.load(&Policy::whole().artifact(), Profile::Compact).unwrap();
    assert_eq!(policy.stages(), Stages { filter: true, score: true, pick: true, select: true });
    assert_eq!((policy.wit_version(), policy.imports(), policy.origin()), ("0.1.0", &[][..], "test.wasm"));
    let manifest = policy.manifest();
    assert_eq!(
        (&*manifest.name, &*manifest.version, &*manifest.description, &*manifest.parameters_schema),
        ("test", "1.2.3", "A test.", "{}")
    );
    let mut slot = slot(&policy, Limits::default());
    let args = args(&[3.0, 1.0, 2.0]);
    assert_eq!(slot.keep(&args).unwrap(), [true; 3]);
    assert_eq!(slot.score(&args).unwrap(), [3.0, 1.0, 2.0]);
    assert_eq!(slot.pick(&args).unwrap(), 0);
    assert_eq!(slot.select(&args).unwrap(), Some(Selection { row: 2, cost: 3.0 }));
    assert!(slot.fuel_used() > 0);
    assert_eq!(slot.replaced(), 0);
}
