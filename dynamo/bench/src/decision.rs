//! The whole decision beside Dynamo's, from the same inputs: worker table, current loads, one request's sparse overlaps.

use std::error::Error;
use std::path::Path;

use crate::harness::{Medians, Variant, at_most, compare, figure, head, promises, row};
use crate::inputs::{Input, Pool, decide};
use dynamo_kv_router::{DefaultWorkerSelector, KvRouterConfig};
use pointsman_parity::pointsman;
use pointsman_routing::config::PolicyConfig;
use pointsman_routing::{InstanceSpec, Request, Router, RouterBuilder, Session};

const POLICY: &str = "dynamo-default-cost-fn";
const FILTER: &str = "simple-filter-score-pick";
/// A filter that keeps every row, the default's scorer and its picker, each a component with a guest of its own.
const PIPELINE: &str = "
worker_selection:
  aggregated: whole
  instances:
    - {name: keep, type: simple-filter-score-pick, parameters: {min_device_overlap_blocks: 0}}
    - {name: cost, type: dynamo-default-cost-fn}
    - {name: take, type: dynamo-default-cost-fn}
    - {name: whole, pipeline: {filters: [keep], scorers: [cost], picker: take}}
";
const SESSIONS: &str = "subagent-group-affinity";
const WORKERS: [usize; 6] = [2, 8, 32, 128, 1_024, 10_000];

const DYNAMO: &str = "Dynamo native";
const PLUGIN: &str = "Dynamo plugin";
const NATIVE: &str = "ours, native";
const COMPONENT: &str = "component";
const THREE: &str = "three components";
const BOOKED: &str = "component and reservation";

/// Rounds where the command line says nothing.
pub(crate) const ROUNDS: usize = 60;

pub(crate) fn run(rounds: usize) -> Result<(), Box<dyn Error>> {
    head(&[
        "input",
        "T",
        "workers",
        "component / Dynamo native",
        "Dynamo plugin /",
        "ours, native /",
        "three components / one",
        "Dynamo native, ns",
        "component, ns",
        "with reservation, ns",
    ]);
    let mut measured = Vec::new();
    for input in Input::ALL {
        for temperature in [0.0, 0.7] {
            for workers in WORKERS {
                let medians = decision(input, temperature, workers, rounds)?;
                row(&[
                    input.name().to_owned(),
                    temperature.to_string(),
                    workers.to_string(),
                    figure(medians.ratio(COMPONENT, DYNAMO)),
                    figure(medians.ratio(PLUGIN, DYNAMO)),
                    figure(medians.ratio(NATIVE, DYNAMO)),
                    figure(medians.ratio(THREE, COMPONENT)),
                    figure(medians.of(DYNAMO)),
                    figure(medians.of(COMPONENT)),
                    figure(medians.of(BOOKED)),
                ]);
                measured.push((input, temperature, workers, medians));
            }
        }
    }
    bounds(&measured);
    let with_session = session(rounds)?;
    let what = format!("the same of {SESSIONS}: a session id and worker numbers besides, ns");
    at_most(&what, with_session.of(COMPONENT) - with_session.of(DYNAMO), 350.0);
    Ok(())
}

/// A policy that reads the session's texts and the workers' numbers, at 2 workers.
fn session(rounds: usize) -> Result<Medians, Box<dyn Error>> {
    let pool = Pool::new(Input::Sparse, 2);
    let reference = DefaultWorkerSelector::new(Some(KvRouterConfig::default()), "decode");
    let instance = InstanceSpec::new(SESSIONS).parameters(crate::inputs::parameters(SESSIONS)?);
    let builder = Router::builder().register(SESSIONS, pointsman::component(SESSIONS)?).serve(instance);
    let partition = pool.partition(0.0, builder)?;
    let session = Session { id: "session-17", parent_id: Some("session-3"), last: None, trigger: None };
    let variants = vec![
        Variant::new(DYNAMO, |number| pool.dynamo(&reference, pool.case(number))),
        Variant::new(COMPONENT, |number| {
            let request = Request { session: Some(session), ..pool.case(number).request() };
            assert!(partition.decide(&request).is_ok_and(|decision| !decision.fallback));
        }),
    ];
    Ok(compare(variants, rounds, 400))
}

fn bounds(measured: &[(Input, f64, usize, Medians)]) {
    let of = |input: Input, temperature: f64, workers: usize| {
        let found = measured.iter().find(|(i, t, w, _)| (*i, *t, *w) == (input, temperature, workers));
        &found.expect("every input was measured").3
    };
    promises();
    for (workers, most) in [(32, 0.75), (1_024, 0.25), (10_000, 0.15)] {
        let what = format!("component / Dynamo native, {workers} workers, T = 0");
        at_most(&what, of(Input::Sparse, 0.0, workers).ratio(COMPONENT, DYNAMO), most);
    }
    for (workers, most) in [(32, 0.8), (1_024, 0.4), (10_000, 0.3)] {
        let what = format!("component / Dynamo native, {workers} workers, T = 0.7");
        at_most(&what, of(Input::Sparse, 0.7, workers).ratio(COMPONENT, DYNAMO), most);
    }
    for (workers, most) in [(32, 0.9), (1_024, 0.35), (10_000, 0.25)] {
        let ratios = Input::ALL.map(|input| of(input, 0.0, workers).ratio(COMPONENT, DYNAMO));
        at_most(&format!("the worst input, {workers} workers, T = 0"), ratios.into_iter().fold(0.0, f64::max), most);
    }
    let two = of(Input::Sparse, 0.0, 2);
    at_most("component - Dynamo native, 2 workers, T = 0, ns", two.of(COMPONENT) - two.of(DYNAMO), 250.0);
    at_most("three components / one, 1,024 workers, T = 0", of(Input::Sparse, 0.0, 1_024).ratio(THREE, COMPONENT), 2.5);
}

fn decision(input: Input, temperature: f64, workers: usize, rounds: usize) -> Result<Medians, Box<dyn Error>> {
    let pool = Pool::new(input, workers);
    let config = KvRouterConfig { router_temperature: temperature, ..KvRouterConfig::default() };
    let reference = DefaultWorkerSelector::new(Some(config.clone()), "decode");
    let plugin = dynamo_custom_policy_builtin::default_policy(config, "decode");
    let native = pool.partition(temperature, Router::builder())?;
    let one = |builder: RouterBuilder| Ok::<_, Box<dyn Error>>(builder.register(POLICY, pointsman::component(POLICY)?));
    let component = pool.partition(temperature, one(Router::builder())?.serve(InstanceSpec::new(POLICY)))?;
    let booked = pool.partition(temperature, one(Router::builder())?.serve(InstanceSpec::new(POLICY)))?;
    let pipeline = PolicyConfig::parse("pipeline.yaml", Path::new("."), PIPELINE)?;
    let three = one(Router::builder())?.register(FILTER, pointsman::component(FILTER)?).policy_config(pipeline);
    let three = pool.partition(temperature, three)?;

    // The fixture has ties, and above 0 each side draws by a generator of its own.
    if temperature == 0.0 && input != Input::Fixture {
        for case in &pool.cases {
            let expected = pool.dynamo(&reference, case);
            assert!(expected.is_some(), "Dynamo chose no worker");
            assert_eq!(pool.dynamo(&plugin, case), expected);
            for partition in [&native, &component, &three] {
                assert_eq!(decide(partition, case), expected, "{} at {workers} workers", input.name());
            }
        }
    }
    for partition in [&native, &component, &three] {
        assert!(pool.cases.iter().all(|case| decide(partition, case).is_some()), "every decision is the policy's");
    }

    let variants = vec![
        Variant::new(DYNAMO, |number| pool.dynamo(&reference, pool.case(number))),
        Variant::new(PLUGIN, |number| pool.dynamo(&plugin, pool.case(number))),
        Variant::new(NATIVE, |number| decide(&native, pool.case(number))),
        Variant::new(COMPONENT, |number| decide(&component, pool.case(number))),
        Variant::new(THREE, |number| decide(&three, pool.case(number))),
        Variant::new(BOOKED, |number| {
            let request = pool.case(number).request();
            let decision = booked.decide(&request).ok()?;
            booked.reserve(&request, &decision).map(|id| booked.free(id))
        }),
    ];
    let batch = (200_000 / (workers * 40)).clamp(1, 400);
    Ok(compare(variants, rounds, batch))
}
