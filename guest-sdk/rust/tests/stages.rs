//! What an author relies on: what a stage sees, what a stage starts from, and how the stages run after one another.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

use pointsman_sdk::native::{Call, NativeGuest, NativePolicy, native};
use pointsman_sdk::prelude::*;
use pointsman_sdk::testkit::{Kit, Table};
use pointsman_sdk::{Partition, RouterConfig, export, log};

/// Writes a policy without parameters that is made of closures over its stages.
macro_rules! policy {
    ($name:ident: $($stage:ident),+; $($item:item)+) => {
        struct $name;

        impl Policy for $name {
            type Parameters = NoParameters;
            const NAME: &'static str = "test";
            const DESCRIPTION: &'static str = "A test.";

            fn configure(_: &Setup, _: NoParameters) -> Result<Self, PolicyError> {
                Ok(Self)
            }
        }

        $($item)+

        export!($name: $($stage),+);
    };
}

policy! { Whole: filter, scorer, picker;
    impl RowFilter for Whole {
        fn reads(&self) -> Reads {
            Reads::AFFINITY | Signal::CacheDeviceOverlapBlocks
        }

        fn keep(&mut self, request: &Request<'_>, row: Row<'_>) -> Result<bool, PolicyError> {
            // The filter sees the rows as they were sent.
            assert_eq!(request.affinity_target()?, Some(1..3));
            Ok(row.signal(Signal::CacheDeviceOverlapBlocks)? >= Some(2.0))
        }
    }

    impl Scorer for Whole {
        fn reads(&self) -> Reads {
            Reads::LOAD | Reads::AFFINITY
        }

        fn score(&mut self, request: &Request<'_>, candidates: &Candidates<'_>, costs: &mut [f64])
            -> Result<(), PolicyError> {
            for (row, cost) in candidates.iter().zip(&mut *costs) {
                *cost = row.load()?.active_requests();
            }
            for row in request.affinity_target()?.unwrap_or_default() {
                costs[row] -= 10.0;
            }
            Ok(())
        }
    }

    impl Picker for Whole {
        fn reads(&self) -> Reads {
            Reads::COST | Reads::WORKERS | Text::SessionId
        }

        fn pick(&mut self, request: &Request<'_>, candidates: &Candidates<'_>) -> Result<usize, PolicyError> {
            if request.session_id()? == Some("last") {
                return Ok(candidates.len() - 1);
            }
            if request.session_id()? == Some("beyond") {
                return Ok(candidates.len());
            }
            let worker = u32::from(request.session_id()? == Some("worker 8")) * 8;
            let workers = candidates.workers()?;
            if let Some(row) = workers.iter().position(|known| worker != 0 && *known == worker) {
                return Ok(row);
            }
            pointsman_sdk::lowest(candidates.costs()?).ok_or_else(|| PolicyError::failed("no eligible worker"))
        }
    }
}

fn whole() -> Table {
    let row =
        |overlap: f64, requests: f64| [("cache.device-overlap-blocks", overlap), ("load.active-requests", requests)];
    Table::new()
        .affinity_target(1..3)
        .row_of(5, &row(0.0, 0.0))
        .row_of(6, &row(1.0, 1.0))
        .row_of(7, &row(2.0, 20.0))
        .row_of(8, &row(9.0, 15.0))
        .row_of(9, &row(4.0, 11.0))
}

#[test]
fn the_scorer_and_the_picker_see_the_survivors_and_the_answer_is_a_row_that_was_sent() {
    let mut guest = Kit::<Whole>::new().configure().unwrap();
    assert_eq!(guest.filter(&whole()).unwrap(), [2, 3, 4]);
    // Rows 2, 3, 4 cost 20 - 10, 15, 11: the one target row left is the first survivor.
    let selection = guest.decide(&whole()).unwrap().unwrap();
    assert_eq!((selection.row, selection.cost), (2, 10.0));
    let last = guest.decide(&whole().text("session.id", "last")).unwrap().unwrap();
    assert_eq!((last.row, last.cost), (4, 11.0));
    let by_worker = guest.decide(&whole().text("session.id", "worker 8")).unwrap().unwrap();
    assert_eq!((by_worker.row, by_worker.cost), (3, 15.0));
}

#[test]
fn no_survivor_is_no_answer_and_a_row_that_there_is_not_stays_one() {
    let mut guest = Kit::<Whole>::new().configure().unwrap();
    let cold = Table::new().affinity_target(1..3).row(&[]).row(&[]).row(&[]);
    assert_eq!(guest.decide(&cold).unwrap(), None);
    let beyond = guest.decide(&whole().text("session.id", "beyond")).unwrap().unwrap();
    assert_eq!(beyond.row, u32::MAX);
}

#[test]
fn each_stage_declares_its_own_and_a_stage_that_reads_nothing_says_so() {
    let guest = Kit::<Whole>::new().configure().unwrap();
    let inputs = guest.inputs();
    let filter = inputs.filter.as_ref().unwrap();
    assert_eq!(filter.facts, ["request.affinity-first", "request.affinity-rows"]);
    assert_eq!(filter.signals, ["cache.device-overlap-blocks"]);
    let pick = inputs.pick.as_ref().unwrap();
    assert_eq!(pick.signals, ["cost"]);
    assert_eq!(pick.texts, ["session.id"]);
    assert!(pick.workers && !filter.workers);
    assert_eq!(Kit::<Lazy>::new().configure().unwrap().inputs().score, None);
}

policy! { Lazy: scorer;
    impl Scorer for Lazy {
        fn reads(&self) -> Reads {
            Reads::NONE
        }

        fn score(&mut self, _: &Request<'_>, _: &Candidates<'_>, costs: &mut [f64]) -> Result<(), PolicyError> {
            costs[0] = 1.0;
            Ok(())
        }
    }
}

#[test]
fn a_cost_left_out_is_nan_also_after_a_decision_that_wrote_it() {
    let mut guest = Kit::<Lazy>::new().configure().unwrap();
    let costs = guest.score(&Table::new().row(&[]).row(&[])).unwrap();
    assert!(costs[0] == 1.0 && costs[1].is_nan());
    assert!(guest.score(&Table::new().row(&[]).row(&[])).unwrap()[1].is_nan());
}

policy! { Greedy: filter, scorer, picker;
    impl RowFilter for Greedy {
        fn reads(&self) -> Reads {
            Reads::CACHE
        }

        fn keep(&mut self, _: &Request<'_>, row: Row<'_>) -> Result<bool, PolicyError> {
            assert_eq!(row.load().unwrap_err().message(), "load input unavailable");
            row.cache().map(|cache| cache.device_overlap_blocks() == 0.0)
        }
    }

    impl RowScorer for Greedy {
        fn reads(&self) -> Reads {
            Reads::LOAD | Fact::Blocks
        }

        fn score(&mut self, request: &Request<'_>, row: Row<'_>) -> Result<f64, PolicyError> {
            assert_eq!(row.cache().unwrap_err().message(), "cache input unavailable");
            assert_eq!(row.cost().unwrap_err().message(), "cost input unavailable");
            assert_eq!(row.worker().unwrap_err().message(), "worker input unavailable");
            assert_eq!(row.preferred_taint_multiplier(), None);
            assert_eq!(
                request.prompt_tokens().unwrap_err().message(),
                "fact `request.prompt-tokens` is not among what this stage reads"
            );
            assert_eq!(
                request.session_id().unwrap_err().message(),
                "text `session.id` is not among what this stage reads"
            );
            request.request_blocks()
        }
    }

    impl Picker for Greedy {
        fn reads(&self) -> Reads {
            Reads::WORKERS | Reads::SESSION
        }

        fn pick(&mut self, request: &Request<'_>, candidates: &Candidates<'_>) -> Result<usize, PolicyError> {
            assert!(candidates.costs().is_err());
            assert!(request.request_blocks().is_err());
            assert_eq!(
                candidates.column(Signal::LoadActiveRequests).unwrap_err().message(),
                "signal `load.active-requests` is not among what this stage reads"
            );
            assert_eq!(request.session_context()?.map(|session| session.session_id().to_owned()), Some("a".to_owned()));
            Ok(0)
        }
    }
}

#[test]
fn no_stage_sees_what_another_declared_not_even_in_one_crossing() {
    let mut guest = Kit::<Greedy>::new().configure().unwrap();
    let table = Table::new()
        .fact("request.blocks", 4.0)
        .fact("request.prompt-tokens", 64.0)
        .text("session.id", "a")
        .row(&[("cache.device-overlap-blocks", 1.0), ("load.active-requests", 1.0)])
        .row(&[("taint.preferred-multiplier", 2.0)]);
    let selection = guest.decide(&table).unwrap().unwrap();
    assert_eq!((selection.row, selection.cost), (1, 4.0));
}

policy! { Reader: scorer;
    impl RowScorer for Reader {
        fn reads(&self) -> Reads {
            (Reads::CACHE | Reads::LOAD | Reads::PREFERRED_TAINT | Reads::SESSION | Reads::AFFINITY)
                .named_signal("metric.queue-depth")
                .named_text("header.x-tier")
                | Signal::WorkerTotalKvBlocks
                | [Fact::ExpectedOutputTokens, Fact::RouterTemperature, Fact::PriorityJump, Fact::Pinned]
                | [Fact::NowMs, Fact::TracksPrefillTokens]
        }

        fn score(&mut self, request: &Request<'_>, row: Row<'_>) -> Result<f64, PolicyError> {
            assert_eq!(request.block_size(), 32);
            if request.now_ms()? == 0.0 {
                // Nothing is known.
                assert_eq!(request.expected_output_tokens()?, None);
                assert_eq!(request.router_temperature_override()?, None);
                assert_eq!(request.priority_jump()?, 0.0);
                assert!(!request.pinned()? && !request.tracks_prefill_tokens()?);
                assert_eq!(request.affinity_target()?, None);
                assert_eq!(request.session_context()?, None);
                assert_eq!(request.named_text("header.x-tier")?, None);
                assert_eq!(row.preferred_taint_multiplier(), None);
                assert_eq!(row.signal(Signal::WorkerTotalKvBlocks)?, None);
                assert_eq!(row.named_signal("metric.queue-depth")?, None);
                assert_eq!(row.cache()?.shared_beyond_device_blocks(), None);
                assert_eq!(row.cache()?.device_overlap_blocks(), 0.0);
                assert_eq!(row.load()?.decode_cost_blocks(), 0.0);
                assert!(!row.load()?.is_available());
                return Ok(0.0);
            }
            let session = request.session_context()?.ok_or_else(|| PolicyError::failed("no session"))?;
            assert_eq!((session.session_id(), session.parent_session_id()), ("child", Some("parent")));
            assert_eq!((session.session_final(), session.input_trigger()), (Some(true), Some(Trigger::ToolResult)));
            assert_eq!(request.affinity_target()?, Some(0..0));
            assert_eq!(request.named_text("header.x-tier")?, Some("gold"));
            assert!(request.pinned()? && request.tracks_prefill_tokens()?);
            let cache = row.cache()?;
            assert_eq!((cache.host_overlap_blocks(), cache.disk_overlap_blocks()), (2.0, 3.0));
            assert_eq!((cache.effective_overlap_blocks(), cache.estimated_cached_tokens()), (4.0, 64.0));
            assert_eq!(cache.shared_beyond_device_blocks(), Some(5.0));
            assert_eq!((row.load()?.active_prefill_tokens(), row.load()?.active_requests()), (6.0, 7.0));
            assert!(row.load()?.is_available());
            assert_eq!(row.preferred_taint_multiplier(), Some(0.5));
            assert_eq!(row.named_signal("metric.queue-depth")?, Some(8.0));
            row.signal(Signal::WorkerTotalKvBlocks)?.ok_or_else(|| PolicyError::failed("no capacity"))
        }
    }
}

#[test]
fn views_show_what_was_sent_and_none_for_what_is_missing() {
    let mut guest = Kit::<Reader>::new().block_size(32).configure().unwrap();
    assert_eq!(guest.score(&Table::new().row(&[])).unwrap(), [0.0]);
    let table = Table::new()
        .fact("request.now-ms", 1.0)
        .fact("request.pinned", 1.0)
        .fact("request.tracks-prefill-tokens", 1.0)
        .fact("session.final", 1.0)
        .fact("session.trigger", 1.0)
        .affinity_target(0..0)
        .text("session.id", "child")
        .text("session.parent-id", "parent")
        .text("header.x-tier", "gold")
        .row(&[
            ("cache.host-overlap-blocks", 2.0),
            ("cache.disk-overlap-blocks", 3.0),
            ("cache.effective-overlap-blocks", 4.0),
            ("cache.estimated-cached-tokens", 64.0),
            ("cache.shared-beyond-device-blocks", 5.0),
            ("load.active-prefill-tokens", 6.0),
            ("load.active-requests", 7.0),
            ("load.available", 1.0),
            ("taint.preferred-multiplier", 0.5),
            ("metric.queue-depth", 8.0),
            ("worker.total-kv-blocks", 1_000.0),
        ]);
    assert_eq!(guest.score(&table).unwrap(), [1_000.0]);
}

policy! { Strict: filter, scorer;
    impl RowFilter for Strict {
        fn reads(&self) -> Reads {
            Fact::StrictPriority.into()
        }

        fn keep(&mut self, request: &Request<'_>, row: Row<'_>) -> Result<bool, PolicyError> {
            match request.strict_priority()? {
                1.0 => Err(PolicyError::failed("the filter is out of order")),
                _ => Ok(row.index() > 0),
            }
        }
    }

    impl RowScorer for Strict {
        fn reads(&self) -> Reads {
            Reads::LOAD
        }

        fn score(&mut self, _: &Request<'_>, row: Row<'_>) -> Result<f64, PolicyError> {
            log::warn("scored");
            let requests = row.signal(Signal::LoadActiveRequests)?.unwrap_or_default();
            if requests < 0.0 { Err(PolicyError::failed("negative")) } else { Ok(requests) }
        }
    }
}

fn loads(requests: &[f64]) -> Table {
    requests.iter().fold(Table::new(), |table, requests| table.row(&[("load.active-requests", *requests)]))
}

#[test]
fn without_a_picker_the_lowest_cost_is_taken_and_the_first_row_among_equals() {
    let mut guest = Kit::<Strict>::new().configure().unwrap();
    let selection = guest.decide(&loads(&[0.0, 4.0, 2.0, 2.0])).unwrap().unwrap();
    assert_eq!((selection.row, selection.cost), (2, 2.0));
}

#[test]
fn an_error_ends_the_decision_and_the_next_one_is_whole() {
    let mut guest = Kit::<Strict>::new().configure().unwrap();
    let table = loads(&[0.0, 4.0]);
    let refused = guest.decide(&table.clone().fact("request.strict-priority", 1.0));
    assert_eq!(refused.unwrap_err(), "the filter is out of order");
    assert!(guest.messages().is_empty(), "the scorer ran after the filter failed");
    assert_eq!(guest.decide(&loads(&[1.0, -1.0])).unwrap_err(), "negative");
    assert_eq!(guest.decide(&table).unwrap().unwrap().row, 1);
    assert_eq!(guest.messages().last(), Some(&(log::Level::Warn, "scored".to_owned())));
}

policy! { Faulty: scorer, picker;
    impl Scorer for Faulty {
        fn reads(&self) -> Reads {
            Signal::LoadActiveRequests.into()
        }

        fn score(&mut self, _: &Request<'_>, candidates: &Candidates<'_>, costs: &mut [f64]) -> Result<(), PolicyError> {
            costs.copy_from_slice(candidates.column(Signal::LoadActiveRequests)?);
            Ok(())
        }
    }

    impl Picker for Faulty {
        fn pick(&mut self, _: &Request<'_>, _: &Candidates<'_>) -> Result<usize, PolicyError> {
            Err(PolicyError::failed("the picker ran"))
        }
    }
}

#[test]
fn a_cost_that_is_not_finite_ends_the_decision_before_the_picker() {
    let mut guest = Kit::<Faulty>::new().configure().unwrap();
    for bad in [f64::NAN, f64::INFINITY] {
        let selection = guest.decide(&loads(&[1.0, 2.0, bad, bad])).unwrap().unwrap();
        assert_eq!(selection.row, 2);
        assert!(!selection.cost.is_finite());
    }
    assert_eq!(guest.decide(&loads(&[1.0])).unwrap_err(), "the picker ran");
}

policy! { Overreaching: scorer;
    impl RowScorer for Overreaching {
        fn reads(&self) -> Reads {
            Reads::COST
        }

        fn score(&mut self, _: &Request<'_>, _: Row<'_>) -> Result<f64, PolicyError> {
            Ok(0.0)
        }
    }
}

policy! { Misspelt: scorer;
    impl RowScorer for Misspelt {
        fn reads(&self) -> Reads {
            Reads::NONE.named_signal("load.active-request")
        }

        fn score(&mut self, _: &Request<'_>, _: Row<'_>) -> Result<f64, PolicyError> {
            Ok(0.0)
        }
    }
}

#[test]
fn a_wrong_declaration_fails_at_configure() {
    assert_eq!(
        Kit::<Overreaching>::new().configure().err().unwrap(),
        "the scorer reads `cost`, which is for a picker alone"
    );
    assert!(Kit::<Misspelt>::new().configure().err().unwrap().starts_with("unknown signal `load.active-request`"));
}

#[test]
fn a_misspelt_name_in_a_table_is_an_error_rather_than_a_missing_value() {
    let mut guest = Kit::<Lazy>::new().configure().unwrap();
    for table in [
        Table::new().row(&[("load.active-request", 1.0)]),
        Table::new().fact("request.block", 1.0).row(&[]),
        Table::new().text("session", "a").row(&[]),
        Table::new(),
    ] {
        assert!(guest.score(&table).is_err());
    }
}

policy! { Unsteady: scorer;
    impl RowScorer for Unsteady {
        fn reads(&self) -> Reads {
            Reads::NONE
        }

        fn score(&mut self, _: &Request<'_>, _: Row<'_>) -> Result<f64, PolicyError> {
            static CALLS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
            Ok(f64::from(CALLS.fetch_add(1, std::sync::atomic::Ordering::Relaxed)))
        }
    }
}

#[test]
#[should_panic(expected = "two guests of the same setup answer differently")]
fn the_kit_catches_answers_that_depend_on_more_than_the_calls() {
    let _ = Kit::<Unsteady>::new().configure().unwrap().score(&Table::new().row(&[]));
}

fn native_guest() -> Box<dyn NativeGuest> {
    let partition = Partition {
        model: "m".to_owned(),
        routing_group: "g".to_owned(),
        role: Role::Aggregated,
        block_size: 16,
        seed: 1,
    };
    native::<Faulty>().configure(&partition, &RouterConfig::default(), "{}").unwrap()
}

#[test]
fn a_native_host_drives_the_policy_as_it_drives_a_component() {
    let policy = native::<Faulty>();
    let stages = policy.stages();
    assert!(!stages.filter && stages.score && stages.pick && stages.select);
    assert!(!native::<Lazy>().stages().select);
    let manifest = policy.manifest();
    assert_eq!((manifest.name.as_str(), manifest.version.as_str()), ("test", env!("CARGO_PKG_VERSION")));

    let mut guest = native_guest();
    let mut costs = Vec::new();
    let call = Call { rows: 2, numbers: &[3.0, 4.0], workers: None, texts: None };
    guest.score(&call, &mut costs).unwrap();
    assert_eq!(costs, [3.0, 4.0]);
    assert_eq!(
        guest.keep(&call, &mut Vec::new()).unwrap_err(),
        "the host did not send what the policy declared; report this host"
    );
}

#[test]
fn a_call_of_the_wrong_shape_is_refused() {
    let mut guest = native_guest();
    for (rows, numbers) in [(0, &[][..]), (2, &[1.0][..]), (u32::MAX, &[1.0][..])] {
        let call = Call { rows, numbers, workers: None, texts: None };
        assert!(guest.score(&call, &mut Vec::new()).is_err());
        assert!(guest.select(&call).is_err());
    }
}
