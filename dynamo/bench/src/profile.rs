//! The decision over two workers again and again, for a profiler that counts instructions: no neighbour disturbs a count.

use std::error::Error;
use std::hint::black_box;

use crate::inputs::{Input, Pool, decide};
use dynamo_kv_router::{DefaultWorkerSelector, KvRouterConfig};
use pointsman_parity::pointsman;
use pointsman_routing::{InstanceSpec, Router};
use pointsman_sandbox::{Sandbox, SandboxConfig};

const POLICY: &str = "dynamo-default-cost-fn";

/// Decisions where the command line says nothing.
pub(crate) const DECISIONS: usize = 10_000;

/// What decides.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    Dynamo,
    Native,
    Component,
}

/// Sets everything up, whichever form decides, so that two runs of different counts differ by decisions alone.
pub(crate) fn run(form: Form, decisions: usize) -> Result<(), Box<dyn Error>> {
    // A profiler's address space holds no larger pool.
    let sandbox = Sandbox::new(SandboxConfig { guests: 4, ..SandboxConfig::default() })?;
    let pool = Pool::new(Input::Sparse, 2);
    let reference = DefaultWorkerSelector::new(Some(KvRouterConfig::default()), "decode");
    let native = pool.partition(0.0, Router::builder().sandbox(sandbox.clone()))?;
    let component = Router::builder().sandbox(sandbox).register(POLICY, pointsman::component(POLICY)?);
    let component = pool.partition(0.0, component.serve(InstanceSpec::new(POLICY)))?;
    for number in 0..decisions {
        let case = black_box(pool.case(number));
        let worker = match form {
            Form::Dynamo => pool.dynamo(&reference, case),
            Form::Native => decide(&native, case),
            Form::Component => decide(&component, case),
        };
        assert!(worker.is_some(), "{form:?} chose no worker");
    }
    Ok(())
}
