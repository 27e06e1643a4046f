//! What a policy is shown, in which order its stages run, and which answers are refused: one test for each rule, against
//! Dynamo's selector and against ours, stage by stage and as a `pipeline`.

use std::sync::{Arc, Mutex};

use dynamo_kv_router::plugins::worker_selection::{
    WorkerInputs, WorkerSelectionInputTrigger, WorkerSelectionPolicyError,
};
use dynamo_kv_router::{DefaultWorkerSelector, WorkerSelectionPolicy, WorkerSelector, WorkerType};
use pointsman_contract::Reads;
use pointsman_parity::dynamo::{self, Advertised};
use pointsman_parity::{Ask, Case, Cost, Refusal, Session, Verdict, Worker};
use pointsman_routing::{Affinity, PartitionKey, Role, Router, RouterConfig, Trigger, WorkerKey, WorkerOverlap};

use crate::kit::{ask, assert_alike, busy, case, device, routers, worker, world};
use crate::plugin::{cheapest, keep, pick, policy, score};
use crate::script::{Script, reads};

/// What reached a stage of Dynamo's: one line each.
type Seen = Arc<Mutex<Vec<String>>>;

fn nothing() -> Reads {
    Reads::default()
}

fn signals(names: &[&str]) -> Reads {
    reads(&[], &[], names)
}

fn chosen(id: u64, cost: f64) -> Verdict {
    Verdict::Chosen(WorkerKey::new(id, 0), Cost::Exact(cost))
}

fn failed() -> WorkerSelectionPolicyError {
    WorkerSelectionPolicyError::failed("no")
}

fn stages(script: &Script) -> Vec<&'static str> {
    script.seen().into_iter().map(|seen| seen.stage).collect()
}

/// The value of the worker in the column that lists workers 0, 1, 2 and so on.
fn lowest(column: &[f64]) -> u32 {
    let least = column.iter().copied().fold(f64::INFINITY, f64::min);
    column.iter().position(|value| *value == least).unwrap() as u32
}

#[test]
fn the_default_policy_equals_the_reference_selector() {
    for (seed, role) in (0..400).zip([Role::Prefill, Role::Aggregated].into_iter().cycle()) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let workers = (0..rng.u64(1..12)).map(|id| {
            let mut worker = busy(id, rng.usize(..50));
            if let Some(Some(busy)) = worker.ranks.first_mut() {
                (busy.prefill_tokens, busy.decode_blocks) = (rng.usize(..9_000), rng.usize(..900));
            }
            worker
        });
        let case = Case { role, ..case(workers.collect::<Vec<_>>()) };
        let tiers: Vec<_> = case.workers.iter().map(|worker| device(worker.id, rng.usize(1..12) as f64)).collect();
        let ask = Ask { tracked: rng.bool(), overlaps: if rng.bool() { tiers } else { Vec::new() }, ..ask() };

        let (config, label) = (RouterConfig::default(), dynamo::worker_type(role).default_selector_label());
        let theirs = dynamo::World::new(&case);
        let reference = DefaultWorkerSelector::new(Some(dynamo::settings(&config)), label);
        let plugin = dynamo_custom_policy_builtin::default_policy(dynamo::settings(&config), label);
        let ours = world(&Router::builder().build().unwrap(), &case).decide(&ask);
        let cost = |verdict: Verdict| match verdict {
            Verdict::Chosen(_, cost) => cost,
            Verdict::Refused(refusal) => panic!("seed {seed}: {refusal:?}"),
        };
        let (reference, plugin) = (theirs.decide(&reference, &ask), theirs.decide(&plugin, &ask));
        let ours = cost(ours);
        assert_eq!((&cost(plugin), &cost(reference)), (&ours, &ours), "seed {seed}");
    }
}

#[test]
fn the_requests_own_temperature_changes_nothing() {
    let case = case([busy(0, 0), busy(1, 900)]);
    let config = RouterConfig { decode_active_request_weight: 1.0, ..RouterConfig::default() };
    let hot = Ask { temperature: Some(1_000.0), ..ask() };
    let plugin = dynamo_custom_policy_builtin::default_policy(dynamo::settings(&config), "decode");
    let router = Router::builder().router_config(config).build().unwrap();
    let (theirs, ours) = (dynamo::World::new(&case), world(&router, &case));
    for _ in 0..50 {
        assert_eq!(theirs.decide(&plugin, &hot), chosen(0, 20.0));
        assert_eq!(ours.decide(&hot), chosen(0, 20.0));
    }
}

#[test]
fn a_picker_gets_the_columns_it_declared_aligned_with_the_rows() {
    let case = case((0..6).map(|id| busy(id, 10 - id as usize)));
    let overlaps: Vec<_> = (0..6).map(|id| device(id, 1.0 + id as f64)).collect();
    let ask = Ask { overlaps, ..ask() };
    let plugin = policy(
        Vec::new(),
        Vec::new(),
        pick(WorkerInputs::CACHE, |_, input| {
            assert!(input.load().is_none());
            let cache = input.cache().unwrap();
            assert_eq!(cache.len(), 6);
            for (candidate, cache) in input.candidates().iter().zip(cache.iter()) {
                assert_eq!(cache.device_overlap_blocks(), 1.0 + candidate.worker().worker_id as f64);
            }
            Ok(input.candidates().iter().position(|candidate| candidate.worker().worker_id == 4).unwrap())
        }),
    );
    let script = Script::default().picking(signals(&["cache.device-overlap-blocks"]), |_, column| {
        assert_eq!(column, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        Ok(4)
    });
    assert_alike(&script, &plugin, &case, &ask, &chosen(4, 0.0));
}

#[test]
fn columns_and_costs_stay_aligned_after_a_scorer_failed() {
    let case = case((0..4).map(|id| busy(id, 3 + id as usize)));
    let first = Arc::new(Mutex::new(true));
    let plugin = {
        let first = Arc::clone(&first);
        let scorer = score(WorkerInputs::LOAD, move |_, workers, costs| {
            for (worker, cost) in workers.iter().zip(costs.iter_mut()) {
                *cost = worker.load().unwrap().active_requests() as f64;
            }
            if std::mem::take(&mut *first.lock().unwrap()) { Err(failed()) } else { Ok(()) }
        });
        policy(
            Vec::new(),
            vec![scorer],
            pick(WorkerInputs::LOAD, |_, input| {
                let load = input.load().unwrap();
                assert_eq!(load.len(), input.candidates().len());
                for (candidate, load) in input.candidates().iter().zip(load) {
                    assert_eq!(candidate.cost(), load.active_requests() as f64);
                }
                Ok(input.candidates().iter().position(|candidate| candidate.cost() == 4.0).unwrap())
            }),
        )
    };
    let theirs = dynamo::World::new(&case);
    assert_eq!(theirs.decide(&plugin, &ask()), Verdict::Refused(Refusal::PolicyError));
    assert_eq!(theirs.decide(&plugin, &ask()), chosen(1, 4.0));

    let script = {
        let first = Arc::clone(&first);
        Script::default().scoring(signals(&["load.active-requests"]), move |_, column| {
            if std::mem::take(&mut *first.lock().unwrap()) { Err("no".to_owned()) } else { Ok(column.to_vec()) }
        })
    };
    let script = script.picking(signals(&["cost", "load.active-requests"]), |rows, numbers| {
        let (costs, load) = numbers.split_at(rows as usize);
        assert_eq!(costs, load);
        Ok(1)
    });
    for (form, router) in routers(&script) {
        *first.lock().unwrap() = true;
        let ours = world(&router, &case);
        assert_eq!(ours.decide(&ask()), Verdict::Refused(Refusal::PolicyError), "{form}");
        assert_eq!(ours.decide(&ask()), chosen(1, 4.0), "{form}");
    }
}

#[test]
fn each_stage_reads_what_it_declared_and_nothing_of_the_others() {
    let case = case([busy(0, 7), busy(1, 5)]);
    let ask = Ask { overlaps: vec![device(0, 2.0), device(1, 3.0)], ..ask() };
    let plugin = policy(
        vec![keep(WorkerInputs::LOAD, |_, worker| {
            assert!(worker.cache().is_none() && worker.preferred_taint_multiplier().is_none());
            Ok(worker.load().is_some())
        })],
        vec![
            score(WorkerInputs::CACHE, |_, workers, costs| {
                assert!(workers.iter().all(|worker| worker.cache().is_some() && worker.load().is_none()));
                costs.fill(1.0);
                Ok(())
            }),
            score(WorkerInputs::NONE, |_, workers, costs| {
                assert!(workers.iter().all(|worker| worker.cache().is_none() && worker.load().is_none()));
                costs.fill(1.0);
                Ok(())
            }),
        ],
        pick(WorkerInputs::LOAD, |_, input| {
            assert!(input.cache().is_none() && input.load().is_some());
            Ok(input.candidates().iter().position(|candidate| candidate.worker().worker_id == 1).unwrap())
        }),
    );
    assert_eq!(dynamo::World::new(&case).decide(&plugin, &ask), chosen(1, 2.0));

    let script = Script::default()
        .keeping(signals(&["load.active-requests"]), |_, numbers| {
            assert_eq!(numbers, [7.0, 5.0]);
            Ok(vec![true; 2])
        })
        .scoring(signals(&["cache.device-overlap-blocks"]), |_, numbers| {
            assert_eq!(numbers, [2.0, 3.0]);
            Ok(vec![2.0; 2])
        })
        .picking(nothing(), |_, numbers| {
            assert_eq!(numbers, [0.0; 0]);
            Ok(1)
        });
    for (form, router) in routers(&script) {
        assert_eq!(world(&router, &case).decide(&ask), chosen(1, 2.0), "{form}");
    }
}

#[test]
fn what_any_stage_declares_the_host_prepares() {
    let required = |policy: &WorkerSelectionPolicy| WorkerSelector::<Advertised>::required_worker_inputs(policy);
    let union = policy(
        vec![keep(WorkerInputs::CACHE, |_, _| Ok(true))],
        vec![score(WorkerInputs::LOAD, |_, _, _| Ok(()))],
        pick(WorkerInputs::PREFERRED_TAINT, |_, _| Ok(0)),
    );
    assert_eq!(required(&union), WorkerInputs::CACHE | WorkerInputs::LOAD | WorkerInputs::PREFERRED_TAINT);
    assert_eq!(required(&policy(Vec::new(), Vec::new(), cheapest())), WorkerInputs::NONE);

    let picker = |signal| Script::default().picking(signals(&[signal]), |_, _| Ok(0));
    let all = |_, _: &[f64]| Ok(vec![true]);
    let in_filter = picker("load.active-requests").keeping(signals(&["cache.device-overlap-blocks"]), all);
    for (script, reads_cache) in
        [(picker("cache.overlap-blocks"), true), (in_filter, true), (picker("load.active-requests"), false)]
    {
        for (form, router) in routers(&script) {
            let partition = router.partition(&PartitionKey::default(), 16).unwrap();
            assert_eq!(partition.reads_cache(), reads_cache, "{form}");
        }
    }
}

#[test]
fn the_taint_multiplier_is_there_where_it_is_declared_and_nothing_is_pinned() {
    let case = case([Worker { taints: vec!["gpu"], ..worker(0) }]);
    let preferring = Ask { preferred_taints: vec![("gpu", 0.5)], ..ask() };
    let pinned = Ask { pin: Some(WorkerKey::new(0, 0)), ..preferring.clone() };
    let expected = (-0.5_f64.tanh()).exp();
    for (ask, declared, there) in [
        (&preferring, WorkerInputs::PREFERRED_TAINT, Some(expected)),
        (&preferring, WorkerInputs::NONE, None),
        (&pinned, WorkerInputs::PREFERRED_TAINT, None),
        (&self::ask(), WorkerInputs::PREFERRED_TAINT, None),
    ] {
        let plugin = policy(
            Vec::new(),
            vec![score(declared, move |_, workers, costs| {
                assert_eq!(workers.get(0).unwrap().preferred_taint_multiplier(), there);
                costs.fill(0.0);
                Ok(())
            })],
            pick(declared, move |_, input| {
                assert_eq!(input.candidates()[0].preferred_taint_multiplier(), there);
                Ok(0)
            }),
        );
        assert!(matches!(dynamo::World::new(&case).decide(&plugin, ask), Verdict::Chosen(..)));

        if declared == WorkerInputs::NONE {
            continue;
        }
        let column = move |numbers: &[f64]| match there {
            Some(expected) => assert!((numbers[0] - expected).abs() < 1e-15, "{numbers:?}"),
            None => assert!(numbers[0].is_nan(), "{numbers:?}"),
        };
        let taint = || signals(&["taint.preferred-multiplier"]);
        let script = Script::default()
            .scoring(taint(), move |_, numbers| {
                column(numbers);
                Ok(vec![0.0])
            })
            .picking(taint(), move |_, numbers| {
                column(numbers);
                Ok(0)
            });
        for (form, router) in routers(&script) {
            assert!(matches!(world(&router, &case).decide(ask), Verdict::Chosen(..)), "{form}");
        }
    }
}

#[test]
fn the_device_overlap_is_never_filled_from_the_estimate() {
    let case = case([worker(0)]);
    let overlap = WorkerOverlap { effective_blocks: 3.5, cached_tokens: 56.0, ..device(0, 0.0) };
    let ask = Ask { overlaps: vec![overlap], ..ask() };
    let plugin = policy(
        Vec::new(),
        Vec::new(),
        pick(WorkerInputs::CACHE, |_, input| {
            let cache = input.cache().unwrap().get(0).unwrap();
            assert_eq!((cache.device_overlap_blocks(), cache.accounting_cache_estimate()), (0.0, (3.5, 56)));
            assert!(!cache.has_tier_matches());
            Ok(0)
        }),
    );
    let names = ["cache.device-overlap-blocks", "cache.effective-overlap-blocks", "cache.estimated-cached-tokens"];
    let script = Script::default().picking(reads(&["request.has-tier-matches"], &[], &names), |_, numbers| {
        assert_eq!(numbers, [0.0, 0.0, 3.5, 56.0]);
        Ok(0)
    });
    assert_alike(&script, &plugin, &case, &ask, &chosen(0, 0.0));
}

#[test]
fn whether_any_tier_matches_is_known_before_the_rows_are_narrowed() {
    let case = case([worker(0), Worker { overloaded: true, ..worker(1) }]);
    let ask = Ask { overlaps: vec![device(1, 2.0)], ..ask() };
    let plugin = policy(
        Vec::new(),
        Vec::new(),
        pick(WorkerInputs::CACHE, |_, input| {
            assert!(input.candidates().len() == 1 && input.cache().unwrap().get(0).unwrap().has_tier_matches());
            Ok(0)
        }),
    );
    let script = Script::default().picking(reads(&["request.has-tier-matches"], &[], &[]), |rows, numbers| {
        assert_eq!((rows, numbers), (1, &[1.0][..]));
        Ok(0)
    });
    assert_alike(&script, &plugin, &case, &ask, &chosen(0, 0.0));
}

#[test]
fn a_load_that_is_not_known_reads_as_zero_and_says_so() {
    let case = case([Worker { ranks: vec![None], ..worker(0) }]);
    let plugin = policy(
        Vec::new(),
        Vec::new(),
        pick(WorkerInputs::LOAD, |_, input| {
            let load = input.load().unwrap()[0];
            assert!(!load.is_available());
            assert_eq!((load.active_prefill_tokens(), load.decode_cost_blocks(), load.active_requests()), (0, 0.0, 0));
            Ok(0)
        }),
    );
    let names = ["load.available", "load.active-prefill-tokens", "load.decode-cost-blocks", "load.active-requests"];
    let script = Script::default().picking(signals(&names), |_, numbers| {
        assert_eq!(numbers, [0.0; 4]);
        Ok(0)
    });
    assert_alike(&script, &plugin, &case, &ask(), &chosen(0, 0.0));
}

#[test]
fn the_sessions_metadata_reaches_the_picker() {
    let case = case([worker(0)]);
    let session = Session {
        id: "session".to_owned(),
        parent: Some("parent".to_owned()),
        last: Some(true),
        trigger: Some(Trigger::ToolResult),
    };
    let ask = Ask { session: Some(session), ..ask() };
    let plugin = policy(
        Vec::new(),
        Vec::new(),
        pick(WorkerInputs::NONE, |context, _| {
            let session = context.session_context().unwrap();
            assert_eq!((session.session_id(), session.parent_session_id()), ("session", Some("parent")));
            assert_eq!(session.session_final(), Some(true));
            assert_eq!(session.input_trigger(), Some(WorkerSelectionInputTrigger::ToolResult));
            Ok(0)
        }),
    );
    let script = Script::default()
        .picking(reads(&["session.final", "session.trigger"], &["session.id", "session.parent-id"], &[]), |_, _| Ok(0));
    assert_alike(&script, &plugin, &case, &ask, &chosen(0, 0.0));
    for seen in script.seen() {
        assert_eq!(seen.numbers, [1.0, Trigger::ToolResult.as_f64()]);
        assert_eq!(seen.texts.unwrap(), [Some("session".to_owned()), Some("parent".to_owned())]);
    }
}

#[test]
fn an_affinity_target_reaches_the_picker_and_leaves_every_row() {
    let case = case((0..4).map(worker));
    let ask = Ask { affinity: Some(Affinity { worker: 2, rank: None, hard: false }), ..ask() };
    let plugin = policy(
        Vec::new(),
        Vec::new(),
        pick(WorkerInputs::NONE, |context, input| {
            assert_eq!((context.affinity_target().unwrap().worker_id, input.candidates().len()), (2, 4));
            assert!(context.pinned_worker().is_none());
            Ok(input.candidates().iter().position(|candidate| candidate.worker().worker_id == 1).unwrap())
        }),
    );
    let facts = ["request.affinity-first", "request.affinity-rows", "request.pinned"];
    let script = Script::default().picking(reads(&facts, &[], &[]), |rows, numbers| {
        assert_eq!((rows, numbers), (4, &[2.0, 1.0, 0.0][..]));
        Ok(1)
    });
    assert_alike(&script, &plugin, &case, &ask, &chosen(1, 0.0));
}

#[test]
fn rejected_rows_reach_no_later_stage() {
    let case = case((0..6).map(|id| busy(id, id as usize)));
    let odd = |id: u64| id % 2 == 1;
    let plugin = policy(
        vec![
            keep(WorkerInputs::NONE, move |_, worker| Ok(odd(worker.worker().worker_id))),
            keep(WorkerInputs::LOAD, move |_, worker| {
                assert!(odd(worker.worker().worker_id), "the first filter rejected it");
                Ok(worker.load().unwrap().active_requests() > 1)
            }),
        ],
        vec![score(WorkerInputs::LOAD, |_, workers, costs| {
            let mut seen: Vec<_> = workers.iter().map(|worker| worker.load().unwrap().active_requests()).collect();
            seen.sort_unstable();
            assert_eq!(seen, [3, 5]);
            for (worker, cost) in workers.iter().zip(costs) {
                *cost = worker.load().unwrap().active_requests() as f64;
            }
            Ok(())
        })],
        cheapest(),
    );
    assert_eq!(dynamo::World::new(&case).decide(&plugin, &ask()), chosen(3, 3.0));

    let script = Script::default()
        .keeping(signals(&["load.active-requests"]), move |_, load| {
            Ok(load.iter().map(|load| odd(*load as u64) && *load > 1.0).collect())
        })
        .scoring(signals(&["load.active-requests"]), |_, load| {
            assert_eq!(load, [3.0, 5.0]);
            Ok(load.to_vec())
        })
        .picking(signals(&["cost"]), |_, costs| Ok(lowest(costs)));
    for (form, router) in routers(&script) {
        assert_eq!(world(&router, &case).decide(&ask()), chosen(3, 3.0), "{form}");
    }
}

#[test]
fn filters_that_keep_no_row_end_it_before_scorer_and_picker() {
    let case = case((0..3).map(worker));
    let seen = Seen::default();
    let log = |what: &'static str| {
        let seen = Arc::clone(&seen);
        move || seen.lock().unwrap().push(what.to_owned())
    };
    let (scored, picked) = (log("score"), log("pick"));
    let plugin = policy(
        vec![keep(WorkerInputs::NONE, |_, _| Ok(false))],
        vec![score(WorkerInputs::NONE, move |_, _, _| {
            scored();
            Ok(())
        })],
        pick(WorkerInputs::NONE, move |_, _| {
            picked();
            Ok(0)
        }),
    );
    let script = Script::default()
        .keeping(nothing(), |rows, _| Ok(vec![false; rows as usize]))
        .scoring(nothing(), |rows, _| Ok(vec![0.0; rows as usize]))
        .picking(nothing(), |_, _| Ok(0));
    assert_alike(&script, &plugin, &case, &ask(), &Verdict::Refused(Refusal::Filtered));
    assert_eq!(*seen.lock().unwrap(), [""; 0]);
    assert_eq!(stages(&script), ["filter", "filter"], "once in each form");
}

#[test]
fn a_failing_filter_ends_it_at_once() {
    let case = case((0..3).map(worker));
    let calls = Arc::new(Mutex::new(0));
    let count = Arc::clone(&calls);
    let plugin = policy(
        vec![keep(WorkerInputs::NONE, move |_, _| {
            *count.lock().unwrap() += 1;
            Err(failed())
        })],
        Vec::new(),
        pick(WorkerInputs::NONE, |_, _| panic!("nothing may be picked")),
    );
    let script = Script::default()
        .keeping(nothing(), |_, _| Err("no".to_owned()))
        .picking(nothing(), |_, _| panic!("nothing may be picked"));
    assert_alike(&script, &plugin, &case, &ask(), &Verdict::Refused(Refusal::PolicyError));
    assert_eq!(*calls.lock().unwrap(), 1);
    assert_eq!(stages(&script), ["filter", "filter"], "once in each form");
}

#[test]
fn a_failing_scorer_ends_it_before_the_picker() {
    let case = case((0..3).map(worker));
    let plugin = policy(
        Vec::new(),
        vec![
            score(WorkerInputs::NONE, |_, _, _| Err(failed())),
            score(WorkerInputs::NONE, |_, _, _| panic!("no later scorer may run")),
        ],
        pick(WorkerInputs::NONE, |_, _| panic!("nothing may be picked")),
    );
    let script = Script::default()
        .scoring(nothing(), |_, _| Err("no".to_owned()))
        .picking(nothing(), |_, _| panic!("nothing may be picked"));
    assert_alike(&script, &plugin, &case, &ask(), &Verdict::Refused(Refusal::PolicyError));
}

#[test]
fn a_failing_picker_ends_it() {
    let plugin = policy(Vec::new(), Vec::new(), pick(WorkerInputs::NONE, |_, _| Err(failed())));
    let script = Script::default().picking(nothing(), |_, _| Err("no".to_owned()));
    assert_alike(&script, &plugin, &case([worker(0)]), &ask(), &Verdict::Refused(Refusal::PolicyError));
}

#[test]
fn a_cost_that_is_not_finite_never_reaches_the_picker() {
    let case = case((0..3).map(worker));
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let plugin = policy(
            Vec::new(),
            vec![score(WorkerInputs::NONE, move |_, _, costs| {
                costs.fill(1.0);
                costs[1] = bad;
                Ok(())
            })],
            pick(WorkerInputs::NONE, |_, _| panic!("nothing may be picked")),
        );
        let script = Script::default()
            .scoring(nothing(), move |_, _| Ok(vec![1.0, bad, 1.0]))
            .picking(nothing(), |_, _| panic!("nothing may be picked"));
        assert_alike(&script, &plugin, &case, &ask(), &Verdict::Refused(Refusal::BadAnswer));
    }
}

/// `worker_selection` with two instances of one scorer in a pipeline.
fn twice(script: &Script) -> Router {
    let text = r#"{"worker_selection": {"aggregated": "both", "instances": [
        {"name": "a", "type": "script", "on_fault": "reject"}, {"name": "b", "type": "script", "on_fault": "reject"},
        {"name": "both", "pipeline": {"scorers": ["a", "b"]}}]}}"#;
    let config = pointsman_routing::config::PolicyConfig::parse("test", std::path::Path::new("."), text).unwrap();
    let script = pointsman_routing::Provider::native(script.clone());
    Router::builder().register("script", script).policy_config(config).build().unwrap()
}

#[test]
fn costs_of_several_scorers_add_up_and_a_sum_that_overflows_is_refused() {
    let case = case([worker(0), worker(1)]);
    for (each, expected) in [(1.25, chosen(0, 2.5)), (1e308, Verdict::Refused(Refusal::BadAnswer))] {
        let scorer = || {
            score(WorkerInputs::NONE, move |_, _, costs| {
                costs.fill(each);
                Ok(())
            })
        };
        let plugin = policy(Vec::new(), vec![scorer(), scorer()], cheapest());
        assert_eq!(dynamo::World::new(&case).decide(&plugin, &ask()), expected);
        let script = Script::default().scoring(nothing(), move |rows, _| Ok(vec![each; rows as usize]));
        assert_eq!(world(&twice(&script), &case).decide(&ask()), expected);
    }
}

/// Writes every cost but the last.
mod forgetful {
    use pointsman_sdk::prelude::*;

    pub struct Forgetful;

    impl Policy for Forgetful {
        type Parameters = NoParameters;
        const NAME: &'static str = "forgetful";
        const DESCRIPTION: &'static str = "Leaves the last cost out where the request is not tracked.";

        fn configure(_: &Setup, _: NoParameters) -> Result<Self, PolicyError> {
            Ok(Self)
        }
    }

    impl Scorer for Forgetful {
        fn reads(&self) -> Reads {
            Fact::TracksPrefillTokens.into()
        }

        fn score(&mut self, request: &Request<'_>, _: &Candidates<'_>, costs: &mut [f64]) -> Result<(), PolicyError> {
            let left_out = usize::from(!request.tracks_prefill_tokens()?);
            let written = costs.len() - left_out;
            costs[..written].fill(1.0);
            Ok(())
        }
    }

    pointsman_sdk::export!(Forgetful: scorer);
}

#[test]
fn a_cost_left_out_is_refused_whatever_stood_there_before() {
    let case = case([worker(0), worker(1)]);
    let untracked = Ask { tracked: false, ..ask() };
    let plugin = policy(
        Vec::new(),
        vec![score(WorkerInputs::NONE, |context, _, costs| {
            let written = costs.len() - usize::from(!context.tracks_prefill_tokens());
            costs[..written].fill(1.0);
            Ok(())
        })],
        cheapest(),
    );
    let theirs = dynamo::World::new(&case);
    let provider = pointsman_routing::Provider::native(pointsman_sdk::native::native::<forgetful::Forgetful>());
    let text = r#"{"worker_selection": {"aggregated": "it", "instances": [
        {"name": "it", "type": "forgetful", "on_fault": "reject"}]}}"#;
    let config = pointsman_routing::config::PolicyConfig::parse("test", std::path::Path::new("."), text).unwrap();
    for mode in [pointsman_routing::StageMode::Separate, pointsman_routing::StageMode::Fused] {
        let builder = Router::builder().register("forgetful", provider.clone()).policy_config(config.clone());
        let ours = world(&builder.stages(mode).build().unwrap(), &case);
        for (ask, expected) in
            [(&ask(), chosen(0, 1.0)), (&untracked, Verdict::Refused(Refusal::BadAnswer)), (&ask(), chosen(0, 1.0))]
        {
            assert_eq!(theirs.decide(&plugin, ask), expected);
            assert_eq!(ours.decide(ask), expected);
        }
    }
}

#[test]
fn a_row_out_of_range_is_refused() {
    let plugin = policy(Vec::new(), Vec::new(), pick(WorkerInputs::NONE, |_, input| Ok(input.candidates().len())));
    let script = Script::default().picking(nothing(), |rows, _| Ok(rows));
    assert_alike(&script, &plugin, &case((0..3).map(worker)), &ask(), &Verdict::Refused(Refusal::BadAnswer));
}

#[test]
fn without_a_scorer_every_cost_is_zero() {
    let plugin = policy(
        Vec::new(),
        Vec::new(),
        pick(WorkerInputs::NONE, |_, input| {
            assert!(input.candidates().iter().all(|candidate| candidate.cost() == 0.0));
            Ok(0)
        }),
    );
    let script = Script::default().picking(signals(&["cost"]), |_, costs| {
        assert_eq!(costs, [0.0]);
        Ok(0)
    });
    assert_alike(&script, &plugin, &case([worker(0)]), &ask(), &chosen(0, 0.0));
}

#[test]
fn a_pinned_row_still_passes_every_stage() {
    let case = case((0..3).map(worker));
    let pinned = Ask { pin: Some(WorkerKey::new(1, 0)), ..ask() };
    let seen = Seen::default();
    let log = |what: &'static str| {
        let seen = Arc::clone(&seen);
        move |rows: usize| seen.lock().unwrap().push(format!("{what} {rows}"))
    };
    let (filtered, scored, picked) = (log("filter"), log("score"), log("pick"));
    let plugin = policy(
        vec![keep(WorkerInputs::NONE, move |_, _| {
            filtered(1);
            Ok(true)
        })],
        vec![score(WorkerInputs::NONE, move |_, workers, costs| {
            scored(workers.len());
            costs.fill(4.5);
            Ok(())
        })],
        pick(WorkerInputs::NONE, move |context, input| {
            assert_eq!(context.pinned_worker().unwrap().worker_id, 1);
            picked(input.candidates().len());
            Ok(0)
        }),
    );
    let theirs = dynamo::World::new(&case).decide(&plugin, &pinned);
    assert_eq!(theirs, Verdict::Chosen(WorkerKey::new(1, 0), Cost::Printed("4.500".to_owned())));
    assert_eq!(*seen.lock().unwrap(), ["filter 1", "score 1", "pick 1"]);

    let script = Script::default()
        .keeping(nothing(), |_, _| Ok(vec![true]))
        .scoring(nothing(), |_, _| Ok(vec![4.5]))
        .picking(reads(&["request.pinned"], &[], &[]), |_, numbers| {
            assert_eq!(numbers, [1.0]);
            Ok(0)
        });
    for (form, router) in routers(&script) {
        assert_eq!(world(&router, &case).decide(&pinned), chosen(1, 4.5), "{form}");
        assert_eq!(stages(&script), ["filter", "score", "pick"], "{form}");
    }
}

#[test]
fn a_policy_has_its_own_state_in_each_partition_and_role() {
    let mut registry = dynamo_kv_router::plugins::RouterPluginRegistry::default();
    registry
        .register_worker_selection(
            "counting",
            Arc::new(|_| {
                Ok(Arc::new(|_, _, _| {
                    let mut asked = 0;
                    policy(
                        Vec::new(),
                        vec![score(WorkerInputs::NONE, move |_, _, costs| {
                            asked += 1;
                            costs.fill(f64::from(asked));
                            Ok(())
                        })],
                        cheapest(),
                    )
                }))
            }),
        )
        .unwrap();
    let file = r#"{"worker_selection": {"aggregated": "it", "decode": "it", "instances": [
        {"name": "it", "type": "counting"}]}}"#;
    let settings = dynamo::with_policy_file(dynamo::settings(&RouterConfig::default()), file).unwrap();
    let registry = registry.with_default_factory(dynamo_custom_policy_builtin::default_factory());
    let factory = registry.resolve(&settings).unwrap().unwrap();
    let build = |role, model| factory(&settings, role, dynamo_kv_router::RoutingPartitionRef::new(model, "default"));
    let case = case([worker(0)]);
    let theirs = dynamo::World::new(&case);
    let all = [(WorkerType::Aggregated, "a"), (WorkerType::Aggregated, "b"), (WorkerType::Decode, "a")];
    for policy in all.map(|(role, model)| build(role, model)) {
        assert_eq!(theirs.decide(&policy, &ask()), chosen(0, 1.0));
        assert_eq!(theirs.decide(&policy, &ask()), chosen(0, 2.0));
    }

    let provider = pointsman_routing::Provider::native(pointsman_sdk::native::native::<counting::Counting>());
    let config = pointsman_routing::config::PolicyConfig::parse("test", std::path::Path::new("."), file).unwrap();
    let router = Router::builder().register("counting", provider).policy_config(config).build().unwrap();
    for (role, model) in [(Role::Aggregated, "a"), (Role::Aggregated, "b"), (Role::Decode, "a")] {
        let key = PartitionKey { model: model.to_owned(), ..PartitionKey::of_role(role) };
        let ours = pointsman_parity::pointsman::World::new(&router, &key, &case).unwrap();
        assert_eq!(ours.decide(&ask()), chosen(0, 1.0), "{key:?}");
        assert_eq!(ours.decide(&ask()), chosen(0, 2.0), "{key:?}");
    }
}

/// Costs each row by how often it was asked.
mod counting {
    use pointsman_sdk::prelude::*;

    pub struct Counting(f64);

    impl Policy for Counting {
        type Parameters = NoParameters;
        const NAME: &'static str = "counting";
        const DESCRIPTION: &'static str = "Costs each row by how often it was asked.";

        fn configure(_: &Setup, _: NoParameters) -> Result<Self, PolicyError> {
            Ok(Self(0.0))
        }
    }

    impl Scorer for Counting {
        fn reads(&self) -> Reads {
            Reads::NONE
        }

        fn score(&mut self, _: &Request<'_>, _: &Candidates<'_>, costs: &mut [f64]) -> Result<(), PolicyError> {
            self.0 += 1.0;
            costs.fill(self.0);
            Ok(())
        }
    }

    pointsman_sdk::export!(Counting: scorer);
}
