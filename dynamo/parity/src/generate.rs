//! Cases at random: a [`Shape`] says what a case is like and shrinks well; the values of each worker are drawn from the
//! shape's seed and the worker's place, so that a case with fewer workers keeps the others as they are.

use std::collections::BTreeMap;

use fastrand::Rng;
use pointsman_routing::{Affinity, Role, RouterConfig, Trigger, WorkerKey, WorkerOverlap};
use proptest::prelude::*;
use serde_json::{Map, Value};

use crate::case::{Ask, Busy, Case, Session, Worker};

/// Taints that workers have.
const TAINTS: [&str; 4] = ["gpu", "zone-a", "zone-b", "big"];
/// The most prompt blocks that workers share.
const MOST_SHARED: usize = 4_096;

/// What a case is like.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Where the values come from.
    pub seed: u64,
    /// What the workers do.
    pub role: Role,
    /// Tokens per KV block.
    pub block_size: u32,
    /// How many workers there are.
    pub workers: usize,
    /// The most ranks of one.
    pub most_ranks: u32,
    /// Ids from all of u64, not counted up.
    pub wide_ids: bool,
    /// Few different loads and overlaps, so that costs tie.
    pub coarse: bool,
    /// Loads that are not known.
    pub unknown_loads: bool,
    /// Active requests that hold a part of the prompt.
    pub shared_blocks: bool,
    /// Workers that are overloaded, in tenths.
    pub overloaded: u8,
    /// Workers that are not available.
    pub unavailable: bool,
    /// The request.
    pub request: RequestShape,
    /// Requests like the first, and one more for each of some workers that allows it alone.
    pub asks: usize,
    /// The policy's parameters.
    pub parameters: Map<String, Value>,
}

/// What its requests are like.
#[derive(Clone, Copy, Debug)]
pub struct RequestShape {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Whether they count towards prefill load.
    pub tracked: bool,
    /// Whether overlaps are reported by tier.
    pub tiers: bool,
    /// Whether overlaps are estimated.
    pub estimates: bool,
    /// Whether a shared cache was looked up.
    pub shared_cache: bool,
    /// Taints that workers must have.
    pub required: bool,
    /// Taints that workers had better have, or not.
    pub preferred: bool,
    /// A list of allowed workers.
    pub allowed: bool,
    /// A list of available workers.
    pub available: bool,
    /// Its row is given.
    pub target: Target,
    /// A session.
    pub session: bool,
    /// Its own temperature, which no policy here goes by.
    pub temperature: Option<f64>,
}

/// Which row or worker a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// None.
    None,
    /// A pin.
    Pin,
    /// A worker, as advice.
    SoftWorker,
    /// A row, as advice.
    SoftRow,
    /// A row that it may not leave.
    HardRow,
}

/// The router's settings over their ranges.
pub fn router_config() -> impl Strategy<Value = RouterConfig> {
    let weight = || prop_oneof![Just(0.0), Just(1.0), 0.0..4.0];
    let share = || prop_oneof![Just(0.0), Just(1.0), 0.0..1.0];
    let settings = (weight(), weight(), weight(), weight(), share(), share(), share());
    (settings, any::<bool>(), prop_oneof![3 => Just(0.0), 1 => 0.0..2.0]).prop_map(
        |((credit, decay, scale, requests, host, disk, shared), conditional, temperature)| RouterConfig {
            overlap_score_credit: credit,
            overlap_score_credit_decay: decay,
            prefill_load_scale: scale,
            decode_active_request_weight: requests,
            host_cache_hit_weight: host,
            disk_cache_hit_weight: disk,
            shared_cache_multiplier: shared,
            router_temperature: temperature,
            conditional_disaggregation: conditional,
        },
    )
}

/// A number of at least 0: often 0 or a usual one, sometimes as small or as large as a float can be.
pub fn non_negative() -> impl Strategy<Value = f64> {
    prop_oneof![
        3 => Just(0.0),
        6 => 0.0..4.0,
        3 => (0_u32..64).prop_map(f64::from),
        1 => (-300..308_i32).prop_map(|exponent| 10_f64.powi(exponent)),
        1 => Just(f64::MAX),
    ]
}

/// A parameter, or none.
pub fn parameter(
    name: &'static str,
    value: impl Strategy<Value = Value>,
) -> impl Strategy<Value = (String, Option<Value>)> {
    proptest::option::weighted(0.7, value).prop_map(move |value| (name.to_owned(), value))
}

/// Shapes with parameters of that strategy.
pub fn shapes(parameters: impl Strategy<Value = Map<String, Value>>) -> impl Strategy<Value = Shape> {
    let role = prop::sample::select(Role::ALL.to_vec());
    let block_size = prop_oneof![4 => Just(16), 2 => Just(64), 1 => Just(1), 2 => 2_u32..1_024];
    let workers = prop_oneof![6 => 1..=4_usize, 6 => 1..=24_usize, 2 => 1..=128_usize, 1 => 1..=512_usize];
    let most_ranks = prop_oneof![3 => Just(1_u32), 1 => 1..=4_u32, 1 => 1..=8_u32];
    let size = (any::<u64>().no_shrink(), role, block_size, workers, most_ranks);
    let sometimes = || prop::bool::weighted(0.25);
    let overloaded = prop_oneof![8 => Just(0_u8), 3 => 1..=5_u8, 1 => Just(10_u8)];
    let workers = (any::<bool>(), any::<bool>(), sometimes(), sometimes(), overloaded, sometimes());
    (size, workers, request_shapes(), 1..=3_usize, parameters).prop_map(
        |((seed, role, block_size, workers, most_ranks), facts, request, asks, parameters)| {
            let (wide_ids, coarse, unknown_loads, shared_blocks, overloaded, unavailable) = facts;
            Shape {
                seed,
                role,
                block_size,
                workers,
                most_ranks,
                wide_ids,
                coarse,
                unknown_loads,
                shared_blocks,
                overloaded,
                unavailable,
                request,
                asks,
                parameters,
            }
        },
    )
}

fn request_shapes() -> impl Strategy<Value = RequestShape> {
    let prompt = prop_oneof![1 => Just(0_usize), 4 => 1..4_096_usize, 2 => 1..200_000_usize, 1 => 1..2_000_000_usize];
    let target = prop_oneof![
        6 => Just(Target::None),
        1 => Just(Target::Pin),
        1 => Just(Target::SoftWorker),
        1 => Just(Target::SoftRow),
        1 => Just(Target::HardRow),
    ];
    let sometimes = || prop::bool::weighted(0.25);
    let often = || prop::bool::weighted(0.7);
    let cache = (often(), often(), sometimes());
    let rules = (sometimes(), sometimes(), sometimes(), sometimes());
    (prompt, often(), cache, rules, target, any::<bool>(), proptest::option::weighted(0.2, 0.0..2.0)).prop_map(
        |(prompt_tokens, tracked, cache, rules, target, session, temperature)| RequestShape {
            prompt_tokens,
            tracked,
            tiers: cache.0,
            estimates: cache.1,
            shared_cache: cache.2,
            required: rules.0,
            preferred: rules.1,
            allowed: rules.2,
            available: rules.3,
            target,
            session,
            temperature,
        },
    )
}

impl Shape {
    /// The case.
    #[must_use]
    pub fn case(&self) -> Case {
        let mut workers = BTreeMap::new();
        for place in 0..self.workers {
            let worker = self.worker(place);
            workers.insert(worker.id, worker);
        }
        let workers: Vec<_> = workers.into_values().collect();
        let mut rng = self.rng(u64::MAX);
        let first = self.ask(&workers, &mut rng);
        let mut asks = vec![first.clone()];
        for _ in 1..self.asks {
            // Time passes, and the next request may be of another session.
            let now_ms = asks.last().map_or(0.0, |ask| ask.now_ms) + rng.f64() * 200_000.0;
            asks.push(Ask { session: self.session(&mut rng), now_ms, ..first.clone() });
        }
        let alone = workers.iter().filter(|worker| worker.ranks.len() == 1).take(8);
        asks.extend(alone.map(|worker| Ask {
            pin: None,
            affinity: None,
            allowed: Some(vec![worker.id]),
            ..first.clone()
        }));
        Case { role: self.role, block_size: self.block_size, parameters: self.parameters.clone(), workers, asks }
    }

    fn rng(&self, stream: u64) -> Rng {
        let mut rng = Rng::with_seed(self.seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // The first draws of near seeds are near each other.
        rng.u64(..);
        rng
    }

    fn worker(&self, place: usize) -> Worker {
        let rng = &mut self.rng(place as u64);
        let id = if self.wide_ids { rng.u64(..) } else { place as u64 };
        let ranks = rng.u32(1..=self.most_ranks);
        Worker {
            id,
            start_rank: if rng.u8(..4) == 0 { rng.u32(..5) } else { 0 },
            ranks: (0..ranks).map(|_| self.busy(rng)).collect(),
            taints: TAINTS.into_iter().filter(|_| rng.bool()).collect(),
            overloaded: rng.u8(..10) < self.overloaded,
            available: !(self.unavailable && rng.u8(..5) == 0),
            total_kv_blocks: rng.bool().then(|| rng.u64(1..1 << 20)),
        }
    }

    fn busy(&self, rng: &mut Rng) -> Option<Busy> {
        let (prefill, decode, requests) = if self.coarse { (2, 2, 3) } else { (1 << rng.u8(1..24), 20_000, 200) };
        let blocks = self.request.prompt_tokens.div_ceil(self.block_size as usize);
        let busy = Busy {
            prefill_tokens: rng.usize(..prefill) * if self.coarse { self.block_size as usize } else { 1 },
            decode_blocks: rng.usize(..decode),
            requests: rng.usize(..requests),
            shared_blocks: match self.shared_blocks && blocks <= MOST_SHARED && rng.bool() {
                true => rng.usize(..=if self.coarse { blocks.min(1) } else { blocks }),
                false => 0,
            },
        };
        (!self.unknown_loads || rng.u8(..4) != 0).then_some(busy)
    }

    fn ask(&self, workers: &[Worker], rng: &mut Rng) -> Ask {
        let shape = self.request;
        let rows: Vec<_> = workers.iter().flat_map(|worker| worker.rows().map(|(key, _)| key)).collect();
        // Mostly a row that there is.
        let row = match rng.u8(..5) {
            0 => WorkerKey::new(rng.u64(..6), rng.u32(..9)),
            _ => rng.choice(&rows).copied().unwrap_or_default(),
        };
        let affinity = |rank, hard| Some(Affinity { worker: row.worker, rank, hard });
        let ids = |rng: &mut Rng, tenths: u8| {
            let known = workers.iter().map(|worker| worker.id).filter(|_| rng.u8(..10) < tenths);
            let mut ids: Vec<_> = known.collect();
            ids.extend((rng.u8(..4) == 0).then_some(u64::MAX));
            rng.shuffle(&mut ids);
            ids
        };
        Ask {
            prompt_tokens: shape.prompt_tokens,
            tracked: shape.tracked,
            temperature: shape.temperature,
            pin: (shape.target == Target::Pin).then_some(row),
            affinity: match shape.target {
                Target::None | Target::Pin => None,
                Target::SoftWorker => affinity(None, false),
                Target::SoftRow => affinity(Some(row.rank), false),
                Target::HardRow => affinity(Some(row.rank), true),
            },
            allowed: shape.allowed.then(|| ids(rng, 6)),
            available: shape.available.then(|| ids(rng, 8)),
            required_taints: match shape.required {
                true => {
                    ["gpu", "zone-a", "absent"].into_iter().filter(|taint| rng.u8(..8) < taint_odds(taint)).collect()
                }
                false => Vec::new(),
            },
            preferred_taints: match shape.preferred {
                true => {
                    let weighed = TAINTS.map(|taint| (taint, rng.f32() * 4.0 - 2.0));
                    weighed.into_iter().filter(|_| rng.bool()).collect()
                }
                false => Vec::new(),
            },
            overlaps: self.overlaps(&rows, rng),
            shared: shape.shared_cache.then(|| self.shared(rng)),
            session: self.session(rng),
            now_ms: 0.0,
        }
    }

    fn session(&self, rng: &mut Rng) -> Option<Session> {
        let triggers = [None, Some(Trigger::UserMessage), Some(Trigger::ToolResult), Some(Trigger::Other)];
        self.request.session.then(|| Session {
            id: format!("session-{}", rng.u8(..4)),
            parent: rng.bool().then(|| format!("parent-{}", rng.u8(..3))),
            last: rng.bool().then(|| rng.bool()),
            trigger: rng.choice(triggers).flatten(),
        })
    }

    fn overlaps(&self, rows: &[WorkerKey], rng: &mut Rng) -> Vec<WorkerOverlap> {
        let shape = self.request;
        let blocks = shape.prompt_tokens.div_ceil(self.block_size as usize);
        let most = if self.coarse { 2 } else { blocks + 2 };
        let odds = *rng.choice(&[1, 5, 10]).unwrap_or(&5);
        let mut keys = rows.to_vec();
        // A worker that has left may still be in the index.
        keys.extend((rng.u8(..8) == 0).then(|| WorkerKey::new(rng.u64(..), 0)));
        keys.sort_unstable();
        keys.dedup();
        keys.retain(|_| (shape.tiers || shape.estimates) && rng.u8(..10) < odds);
        let overlap = |key| {
            let mut tier = || if shape.tiers && rng.u8(..3) > 0 { rng.usize(..most) as f64 } else { 0.0 };
            let [device_blocks, host_blocks, disk_blocks] = [tier(), tier(), tier()];
            let (effective_blocks, cached_tokens) = match (shape.estimates, self.coarse) {
                (false, _) => (0.0, 0.0),
                (true, true) => (rng.usize(..2) as f64, rng.usize(..2) as f64 * f64::from(self.block_size)),
                // Estimates are not held to the tiers, nor to the prompt.
                (true, false) => {
                    (rng.f64() * most as f64, rng.usize(..=shape.prompt_tokens + shape.prompt_tokens / 4) as f64)
                }
            };
            WorkerOverlap { key, device_blocks, host_blocks, disk_blocks, effective_blocks, cached_tokens }
        };
        keys.into_iter().map(overlap).collect()
    }

    fn shared(&self, rng: &mut Rng) -> Vec<(u32, u32)> {
        let blocks = self.request.prompt_tokens.div_ceil(self.block_size as usize) as u32;
        let mut cuts: Vec<u32> = (0..rng.usize(..5) * 2).map(|_| rng.u32(..=blocks + 4)).collect();
        cuts.sort_unstable();
        cuts.dedup();
        cuts.chunks_exact(2).map(|cut| (cut[0], cut[1])).collect()
    }
}

fn taint_odds(taint: &str) -> u8 {
    if taint == "absent" { 1 } else { 4 }
}
