//! Runs generated cases on both sides and reduces the first that differs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use dynamo_kv_router::plugins::RouterPluginRegistry;
use pointsman_parity::generate::{router_config, shapes};
use pointsman_parity::pointsman::{Batch, Form, Subject, World};
use pointsman_parity::{Case, Refusal, Shape, Verdict, dynamo};
use pointsman_routing::{Provider, RouterConfig};
use pointsman_sandbox::{Sandbox, SandboxConfig};
use pointsman_sdk::native::{NativePolicy, native};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Map, Value};

/// Cases that share a router, and with it one compilation of the component; a guest each.
const BATCH: usize = 1_000;
/// Cases in an ordinary run, for each policy.
pub const CASES: usize = 20_000;
/// The most units in the last place that a portable `tanh` and `exp` may move a cost.
pub const TAINT_ULPS: u64 = 4;

/// The types that Dynamo ships.
pub static SHIPPED: LazyLock<RouterPluginRegistry> = LazyLock::new(|| dynamo::shipped().unwrap());

/// The built-in policy of that name, with its form compiled in.
pub fn subject<P: pointsman_sdk::Exported>(name: &'static str) -> Subject
where
    pointsman_sdk::native::Native<P>: NativePolicy + 'static,
{
    Subject { name, native: Provider::native(native::<P>()) }
}

/// What a batch of cases shares.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub config: RouterConfig,
    pub form: Form,
    pub host_seed: u64,
}

/// What was compared so far.
#[derive(Default)]
pub struct Tally {
    pub cases: usize,
    pub decisions: usize,
    /// Equal costs, another row: a tie whose winner Dynamo leaves open.
    pub ties: usize,
    /// Choices that differ since a preferred taint moved a cost by units in the last place.
    pub turned: usize,
    /// Draws that fell on the other side of a boundary.
    pub boundaries: usize,
    refused: BTreeMap<String, usize>,
}

impl Tally {
    pub fn count(&mut self, verdict: &Verdict) {
        self.decisions += 1;
        if let Verdict::Refused(refusal) = verdict {
            let kind = format!("{refusal:?}");
            let kind = kind.split_once('(').map_or(kind.as_str(), |(kind, _)| kind);
            *self.refused.entry(kind.to_owned()).or_default() += 1;
        }
    }

    pub fn refused(&self, kind: &str) -> usize {
        self.refused.get(kind).copied().unwrap_or_default()
    }

    /// Every rule of eligibility was met.
    pub fn assert_covers_eligibility(&self) {
        for kind in ["NoEndpoints", "Overloaded", "PinOverloaded", "PinNotAllowed"] {
            assert!(self.refused(kind) > 0, "no case ends in {kind}: {self}");
        }
        assert_eq!(self.refused("Other"), 0, "{self}");
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cases, decisions, ties, turned, boundaries, refused } = self;
        write!(
            f,
            "{cases} cases, {decisions} decisions, {ties} open ties, {turned} turned by taints, {boundaries} draws at a \
             boundary, refused: {refused:?}"
        )
    }
}

pub fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

fn forms() -> impl Strategy<Value = Form> {
    prop_oneof![4 => Just(Form::Fused), 1 => Just(Form::Separate), 1 => Just(Form::Native)]
}

/// Asks `judge` about each case, so many unless the environment says otherwise; what it refuses is reduced and shown.
pub fn check(
    subject: &Subject,
    cases: usize,
    parameters: impl Strategy<Value = Map<String, Value>>,
    judge: impl Fn(&Batch, &Setting, usize, &World, &Case, &mut Tally) -> Result<(), String>,
) -> Tally {
    let sandbox = Sandbox::new(SandboxConfig::default()).unwrap();
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&number("POINTSMAN_PARITY_SEED", 0).to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(Config { failure_persistence: None, ..Config::default() }, rng);
    let settings = (router_config(), forms(), any::<u64>()).prop_map(|(config, form, host_seed)| Setting {
        config,
        form,
        host_seed,
    });
    let shapes = shapes(parameters);
    let wanted = number("POINTSMAN_PARITY_CASES", cases);
    let mut tally = Tally::default();
    let run = |setting: &Setting, cases: &[Case], tally: &mut Tally| {
        let fail = |error: Box<dyn std::error::Error>| (0, error.to_string());
        let batch =
            Batch::new(&sandbox, subject, setting.form, setting.config, setting.host_seed, cases).map_err(fail)?;
        for (index, case) in cases.iter().enumerate() {
            let world = batch.world(index, case).map_err(|error| (index, error.to_string()))?;
            judge(&batch, setting, index, &world, case, tally).map_err(|why| (index, why))?;
            tally.cases += 1;
        }
        Ok(())
    };
    while tally.cases < wanted {
        let setting = settings.new_tree(&mut runner).unwrap().current();
        let mut trees: Vec<_> =
            (0..BATCH.min(wanted - tally.cases)).map(|_| shapes.new_tree(&mut runner).unwrap()).collect();
        let cases: Vec<_> = trees.iter().map(|tree| tree.current().case()).collect();
        if let Err((index, why)) = run(&setting, &cases, &mut tally) {
            let again = |shape: &Shape| {
                let failed = run(&setting, &[shape.case()], &mut Tally::default());
                failed.err().map(|(_, why): (usize, String)| why)
            };
            let (shape, least) = reduced(trees.swap_remove(index), again);
            let case = shape.case();
            panic!("{why}\nreduced: {least:?}\n{setting:#?}\n{shape:#?}\n{case:#?}");
        }
    }
    println!("{}: {tally}", subject.name);
    tally
}

/// The smallest shape found that still fails, with what it fails by; none where it fails only in its batch.
fn reduced(
    mut tree: impl ValueTree<Value = Shape>,
    fails: impl Fn(&Shape) -> Option<String>,
) -> (Shape, Option<String>) {
    let (mut shape, mut least) = (tree.current(), None);
    for _ in 0..300 {
        let current = tree.current();
        let moved = match fails(&current) {
            Some(why) => {
                (shape, least) = (current, Some(why));
                tree.simplify()
            }
            None => tree.complicate(),
        };
        if !moved {
            break;
        }
    }
    (shape, least)
}

/// Both refuse alike, or both choose a row at costs at most `ulps` apart.
pub fn same_cost(ours: &Verdict, theirs: &Verdict, ulps: u64) -> bool {
    match (ours, theirs) {
        (Verdict::Chosen(_, ours), Verdict::Chosen(_, theirs)) => ours.ulps(theirs).is_some_and(|apart| apart <= ulps),
        (ours, theirs) => ours == theirs && !matches!(ours, Verdict::Refused(Refusal::Other(_))),
    }
}

/// Both name the same row, or refuse.
pub fn same_row(ours: &Verdict, theirs: &Verdict) -> bool {
    match (ours, theirs) {
        (Verdict::Chosen(ours, _), Verdict::Chosen(theirs, _)) => ours == theirs,
        (Verdict::Refused(_), Verdict::Refused(_)) => true,
        _ => false,
    }
}

/// Parameters of these strategies; those that are none are left out.
pub fn map(parameters: Vec<BoxedStrategy<(String, Option<Value>)>>) -> impl Strategy<Value = Map<String, Value>> {
    parameters.prop_map(|all| all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect())
}
