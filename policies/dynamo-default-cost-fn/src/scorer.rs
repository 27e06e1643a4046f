//! The cost of each worker.
//!
//! Written as loops over columns, which the compiler turns into SIMD: one for the router's own settings; for all others
//! one for each term, over blocks that stay in the nearest cache, where `costs` holds the cache credit first and the cost
//! afterwards. A term that weighs nothing is left out and its column
//! not declared: every term is at least 0, so that adding a zero would change no bit.

use pointsman_sdk::lanes::apply;
use pointsman_sdk::prelude::*;

use crate::DynamoDefaultCostFn;

impl DynamoDefaultCostFn {
    fn reads_cache(&self) -> bool {
        !self.plain_decode && self.weights.overlap_score_credit != 0.0
    }

    fn decays(&self) -> bool {
        self.reads_cache() && self.weights.overlap_score_credit_decay > 0.0
    }
}

impl Scorer for DynamoDefaultCostFn {
    fn reads(&self) -> Reads {
        let weights = &self.weights;
        let mut reads = Reads::PREFERRED_TAINT | Signal::LoadDecodeCostBlocks | Fact::TracksPrefillTokens;
        if weights.prefill_load_scale != 0.0 {
            reads = if self.reads_cache() {
                reads | Signal::LoadPrefillCostTokens
            } else {
                reads | Signal::LoadActivePrefillTokens | Fact::PromptTokens
            };
        }
        if weights.decode_active_request_weight != 0.0 {
            reads = reads | Signal::LoadActiveRequests;
        }
        if self.reads_cache() {
            reads = reads | Signal::CacheOverlapBlocks;
            if weights.host_cache_hit_weight != 0.0 {
                reads = reads | Signal::CacheHostOverlapBlocks;
            }
            if weights.disk_cache_hit_weight != 0.0 {
                reads = reads | Signal::CacheDiskOverlapBlocks;
            }
            if weights.shared_cache_multiplier != 0.0 {
                reads = reads
                    | Signal::CacheSharedBeyondDeviceBlocks
                    | Signal::CacheSharedBeyondEffectiveBlocks
                    | Fact::HasTierMatches;
            }
            if self.decays() {
                reads = reads | Signal::LoadActivePrefillTokens | Fact::Blocks;
            }
        }
        reads
    }

    #[inline(always)]
    fn score(
        &mut self,
        request: &Request<'_>,
        candidates: &Candidates<'_>,
        costs: &mut [f64],
    ) -> Result<(), PolicyError> {
        match self.usual {
            Some(inverse) if request.tracks_prefill_tokens()? => {
                self.score_usual(candidates, costs, |tokens| tokens * inverse)
            }
            _ => self.score_term_by_term(request, candidates, costs),
        }
    }
}

/// Rows of a block.
const BLOCK: usize = 256;

/// What one call reads; a column that weighs nothing is absent.
struct Columns<'a> {
    /// For a request that is tracked.
    prefill: Option<Prefill<'a>>,
    credit: Option<Credit<'a>>,
    decode: &'a [f64],
    requests: Option<&'a [f64]>,
    multiplier: &'a [f64],
}

/// Prefill work in tokens: that of each worker, and what this request adds to all.
struct Prefill<'a> {
    tokens: &'a [f64],
    further: f64,
}

/// What a worker's caches save.
struct Credit<'a> {
    device: &'a [f64],
    decay: Option<Decay<'a>>,
    host: Option<&'a [f64]>,
    disk: Option<&'a [f64]>,
    shared: Option<&'a [f64]>,
}

/// How the credit of the device's blocks falls with the worker's prefill load above the least loaded one's.
struct Decay<'a> {
    active: &'a [f64],
    least: f64,
    /// Blocks of the prompt, at least 1: an empty prompt has no overlap to decay, and 1 keeps 0 / 0 out.
    blocks: f64,
}

impl DynamoDefaultCostFn {
    fn columns<'a>(&self, request: &Request<'_>, candidates: &Candidates<'a>) -> Result<Columns<'a>, PolicyError> {
        let weights = &self.weights;
        let tracked = request.tracks_prefill_tokens()?;
        let reads_cache = self.reads_cache();
        let weighs = |weight: f64, signal| (weight != 0.0).then(|| candidates.column(signal)).transpose();
        let prefill = if tracked && weights.prefill_load_scale != 0.0 {
            Some(if reads_cache {
                Prefill { tokens: candidates.column(Signal::LoadPrefillCostTokens)?, further: 0.0 }
            } else {
                // Nothing is taken as cached, and nothing as active where the load is not known.
                Prefill {
                    tokens: candidates.column(Signal::LoadActivePrefillTokens)?,
                    further: request.prompt_tokens()?,
                }
            })
        } else {
            None
        };
        // Without prefill work to save, the credit counts against the blocks that the request would hold.
        let credit = if reads_cache && (prefill.is_some() || self.decode && !tracked) {
            let decay = if tracked && self.decays() { Some(Decay::new(request, candidates)?) } else { None };
            let shared = if weights.shared_cache_multiplier == 0.0 {
                None
            } else if request.has_tier_matches()? {
                Some(candidates.column(Signal::CacheSharedBeyondDeviceBlocks)?)
            } else {
                Some(candidates.column(Signal::CacheSharedBeyondEffectiveBlocks)?)
            };
            Some(Credit {
                device: candidates.column(Signal::CacheOverlapBlocks)?,
                decay,
                host: weighs(weights.host_cache_hit_weight, Signal::CacheHostOverlapBlocks)?,
                disk: weighs(weights.disk_cache_hit_weight, Signal::CacheDiskOverlapBlocks)?,
                shared,
            })
        } else {
            None
        };
        Ok(Columns {
            prefill,
            credit,
            decode: candidates.column(Signal::LoadDecodeCostBlocks)?,
            requests: weighs(weights.decode_active_request_weight, Signal::LoadActiveRequests)?,
            multiplier: candidates.column(Signal::TaintPreferredMultiplier)?,
        })
    }

    /// Writes the costs, whatever weighs.
    #[inline(never)]
    fn score_term_by_term(
        &self,
        request: &Request<'_>,
        candidates: &Candidates<'_>,
        costs: &mut [f64],
    ) -> Result<(), PolicyError> {
        let columns = self.columns(request, candidates)?;
        let block_size = f64::from(request.block_size());
        for (number, costs) in costs.chunks_mut(BLOCK).enumerate() {
            self.write_block(&columns, number * BLOCK, costs, |tokens| tokens / block_size);
        }
        Ok(())
    }

    /// All terms of the router's own settings in one pass, for a request that is tracked; `blocks` turns tokens into
    /// blocks.
    fn score_usual(
        &self,
        candidates: &Candidates<'_>,
        costs: &mut [f64],
        blocks: impl Fn(f64) -> f64,
    ) -> Result<(), PolicyError> {
        let weights = &self.weights;
        let columns = [
            candidates.column(Signal::CacheOverlapBlocks)?,
            candidates.column(Signal::CacheHostOverlapBlocks)?,
            candidates.column(Signal::CacheDiskOverlapBlocks)?,
            candidates.column(Signal::LoadPrefillCostTokens)?,
            candidates.column(Signal::LoadDecodeCostBlocks)?,
            candidates.column(Signal::TaintPreferredMultiplier)?,
        ];
        let cost = self.prefill_cost(blocks);
        apply(costs, columns, |_, [device, host, disk, tokens, decode, multiplier]| {
            let credit = weights.overlap_score_credit * device
                + weights.host_cache_hit_weight * host
                + weights.disk_cache_hit_weight * disk;
            weigh(cost(credit, tokens, decode), multiplier)
        });
        Ok(())
    }

    /// Writes the costs of the rows from `first` on, a term after the other.
    fn write_block(&self, columns: &Columns<'_>, first: usize, costs: &mut [f64], blocks: impl Fn(f64) -> f64) {
        if let Some(credit) = &columns.credit {
            self.write_credit(credit, first, costs, &blocks);
        }
        let decode = part(columns.decode, first);
        match &columns.prefill {
            Some(prefill) => {
                let cost = self.prefill_cost(&blocks);
                apply(costs, [part(prefill.tokens, first), decode], |credit, [tokens, decode]| {
                    let credit = if columns.credit.is_some() { credit } else { 0.0 };
                    cost(credit, tokens + prefill.further, decode)
                });
            }
            None if columns.credit.is_some() => apply(costs, [decode], |credit, [decode]| positive(decode - credit)),
            None => apply(costs, [decode], |_, [decode]| decode),
        }
        if let Some(requests) = columns.requests {
            add_weighted(costs, self.weights.decode_active_request_weight, part(requests, first));
        }
        apply(costs, [part(columns.multiplier, first)], |cost, [multiplier]| weigh(cost, multiplier));
    }

    /// The prefill and decode blocks of a worker, of its cache credit, its tokens and its decode blocks.
    fn prefill_cost(&self, blocks: impl Fn(f64) -> f64) -> impl Fn(f64, f64, f64) -> f64 {
        let scale = self.weights.prefill_load_scale;
        move |credit, tokens, decode| scale * positive(blocks(tokens) - credit) + decode
    }

    /// Writes each worker's cache credit, in blocks.
    fn write_credit(&self, columns: &Credit<'_>, first: usize, credit: &mut [f64], blocks: impl Fn(f64) -> f64) {
        let weights = &self.weights;
        let device = part(columns.device, first);
        let credit0 = weights.overlap_score_credit;
        match &columns.decay {
            Some(decay) => apply(credit, [device, part(decay.active, first)], |_, [device, active]| {
                let excess = blocks(active - decay.least);
                let decay = 1.0 / (1.0 + weights.overlap_score_credit_decay * (excess / decay.blocks));
                credit0 * decay * device
            }),
            None => apply(credit, [device], |_, [device]| credit0 * device),
        }
        for (weight, column) in
            [(weights.host_cache_hit_weight, columns.host), (weights.disk_cache_hit_weight, columns.disk)]
        {
            if let Some(column) = column {
                add_weighted(credit, weight, part(column, first));
            }
        }
        if let Some(shared) = columns.shared {
            apply(credit, [part(shared, first)], |credit, [shared]| {
                credit + weights.shared_cache_multiplier * if shared.is_nan() { 0.0 } else { shared }
            });
        }
    }
}

impl<'a> Decay<'a> {
    fn new(request: &Request<'_>, candidates: &Candidates<'a>) -> Result<Self, PolicyError> {
        let active = candidates.column(Signal::LoadActivePrefillTokens)?;
        let least = active.iter().fold(f64::INFINITY, |least, tokens| if *tokens < least { *tokens } else { least });
        Ok(Self { active, least, blocks: request.request_blocks()?.max(1.0) })
    }
}

/// The rows of a column from `first` on.
fn part(column: &[f64], first: usize) -> &[f64] {
    column.get(first..).unwrap_or_default()
}

fn add_weighted(to: &mut [f64], weight: f64, column: &[f64]) {
    apply(to, [column], |sum, [value]| sum + weight * value);
}

/// A cost, times the multiplier where there is one.
fn weigh(cost: f64, multiplier: f64) -> f64 {
    cost * if multiplier.is_nan() { 1.0 } else { multiplier }
}

/// `value`, at least 0. A comparison, since `f64::max` calls a function on WebAssembly.
fn positive(value: f64) -> f64 {
    if value > 0.0 { value } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use pointsman_sdk::RouterConfig;
    use pointsman_sdk::testkit::{Guest, Kit, Table};

    use super::*;

    fn kit() -> Kit<DynamoDefaultCostFn> {
        Kit::new().block_size(16)
    }

    fn with(parameters: &str) -> Guest {
        kit().parameters(parameters).configure().unwrap()
    }

    /// A tracked request of 160 tokens.
    fn request() -> Table {
        Table::new()
            .fact("request.tracks-prefill-tokens", 1.0)
            .fact("request.prompt-tokens", 160.0)
            .fact("request.blocks", 10.0)
            .fact("request.has-tier-matches", 1.0)
    }

    fn signals(guest: &Guest) -> Vec<&str> {
        let mut names: Vec<_> = guest.inputs().score.as_ref().unwrap().signals.iter().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn prefill_blocks_after_credit_plus_decode_blocks() {
        // (64 + 160) / 16 - 4 + 3
        let table = request().row(&[
            ("load.available", 1.0),
            ("load.active-prefill-tokens", 64.0),
            ("load.decode-cost-blocks", 3.0),
            ("cache.overlap-blocks", 4.0),
            ("cache.estimated-cached-tokens", 64.0),
        ]);
        assert_eq!(with("{}").score(&table).unwrap(), [13.0]);
        // The scale weighs the prefill blocks alone.
        assert_eq!(with(r#"{"prefill_load_scale":2}"#).score(&table).unwrap(), [23.0]);
        assert_eq!(with(r#"{"prefill_load_scale":0}"#).score(&table).unwrap(), [3.0]);
        // Credit beyond the prefill blocks does not go below 0.
        assert_eq!(with(r#"{"overlap_score_credit":5}"#).score(&table).unwrap(), [3.0]);
    }

    #[test]
    fn each_tier_earns_its_own_credit() {
        let table = request().row(&[
            ("load.available", 1.0),
            ("cache.overlap-blocks", 1.0),
            ("cache.host-overlap-blocks", 2.0),
            ("cache.disk-overlap-blocks", 4.0),
            ("cache.shared-beyond-device-blocks", 2.0),
        ]);
        assert_eq!(with("{}").score(&table).unwrap(), [10.0 - 1.0 - 1.5 - 1.0]);
        let weights = r#"{"overlap_score_credit":2,"host_cache_hit_weight":0.5,"disk_cache_hit_weight":0,"shared_cache_multiplier":0.25}"#;
        assert_eq!(with(weights).score(&table).unwrap(), [10.0 - 2.0 - 1.0 - 0.5]);
    }

    #[test]
    fn shared_blocks_are_counted_past_the_overlap_that_earns_the_credit() {
        let row = [
            ("load.available", 1.0),
            ("cache.shared-beyond-device-blocks", 6.0),
            ("cache.shared-beyond-effective-blocks", 2.0),
        ];
        let mut guest = with(r#"{"shared_cache_multiplier":0.5}"#);
        assert_eq!(guest.score(&request().row(&row)).unwrap(), [7.0]);
        let unmatched = request().fact("request.has-tier-matches", 0.0);
        assert_eq!(guest.score(&unmatched.row(&row)).unwrap(), [9.0]);
        // No lookup, no credit.
        assert_eq!(guest.score(&request().row(&[("load.available", 1.0)])).unwrap(), [10.0]);
    }

    #[test]
    fn credit_decays_with_the_prefill_load_above_the_least() {
        let row = |active: f64| {
            [("load.available", 1.0), ("load.active-prefill-tokens", active), ("cache.overlap-blocks", 8.0)]
        };
        let table = request().row(&row(320.0)).row(&row(160.0));
        // 10 blocks above the least, over 10 blocks of the request: 1 / (1 + 1 * 1).
        let costs = with(r#"{"overlap_score_credit_decay":1}"#).score(&table).unwrap();
        assert_eq!(costs, [30.0 - 4.0, 20.0 - 8.0]);
        // A request without prefill does not decay.
        let untracked = table.fact("request.tracks-prefill-tokens", 0.0);
        assert_eq!(with(r#"{"overlap_score_credit_decay":1}"#).score(&untracked).unwrap(), [0.0, 0.0]);
    }

    #[test]
    fn an_empty_prompt_decays_nothing_and_stays_finite() {
        let table = request()
            .fact("request.prompt-tokens", 0.0)
            .fact("request.blocks", 0.0)
            .row(&[("load.available", 1.0), ("load.active-prefill-tokens", 32.0)])
            .row(&[("load.available", 1.0)]);
        assert_eq!(with(r#"{"overlap_score_credit_decay":1}"#).score(&table).unwrap(), [2.0, 0.0]);
    }

    #[test]
    fn without_prefill_the_credit_counts_against_decode_blocks_unless_the_role_is_prefill() {
        let table = request()
            .fact("request.tracks-prefill-tokens", 0.0)
            .row(&[("load.decode-cost-blocks", 12.0), ("cache.overlap-blocks", 5.0)])
            .row(&[("load.decode-cost-blocks", 2.0), ("cache.overlap-blocks", 5.0)]);
        for role in [Role::Aggregated, Role::Encode] {
            assert_eq!(kit().role(role).configure().unwrap().score(&table).unwrap(), [7.0, 0.0]);
        }
        assert_eq!(kit().role(Role::Prefill).configure().unwrap().score(&table).unwrap(), [12.0, 2.0]);
    }

    #[test]
    fn a_plain_decode_pool_goes_by_load_alone() {
        let row = [
            ("load.available", 1.0),
            ("load.active-prefill-tokens", 16.0),
            ("load.decode-cost-blocks", 12.0),
            ("cache.overlap-blocks", 5.0),
        ];
        let tracked = request().row(&row);
        let untracked = tracked.clone().fact("request.tracks-prefill-tokens", 0.0);
        let mut plain = kit().role(Role::Decode).configure().unwrap();
        assert!(!signals(&plain).iter().any(|name| name.starts_with("cache.")));
        assert_eq!(plain.score(&untracked).unwrap(), [12.0]);
        assert_eq!(plain.score(&tracked).unwrap(), [11.0 + 12.0]);
        let config = RouterConfig { conditional_disaggregation: true, ..RouterConfig::default() };
        let mut conditional = kit().role(Role::Decode).router_config(config).configure().unwrap();
        assert_eq!(conditional.score(&untracked).unwrap(), [7.0]);
    }

    #[test]
    fn a_worker_of_unknown_load_counts_the_prompt_alone() {
        let table = request().row(&[("load.active-prefill-tokens", 64.0), ("cache.estimated-cached-tokens", 640.0)]);
        assert_eq!(with("{}").score(&table).unwrap(), [10.0]);
    }

    #[test]
    fn cached_tokens_beyond_the_prompt_count_in_full() {
        let table = request().row(&[("load.available", 1.0), ("cache.estimated-cached-tokens", 320.0)]);
        assert_eq!(with("{}").score(&table).unwrap(), [20.0]);
    }

    #[test]
    fn active_requests_weigh_what_the_parameter_says() {
        let table = request().row(&[("load.available", 1.0), ("load.active-requests", 3.0)]);
        assert_eq!(with(r#"{"decode_active_request_weight":0.5}"#).score(&table).unwrap(), [11.5]);
        assert_eq!(with("{}").score(&table).unwrap(), [10.0]);
    }

    #[test]
    fn a_preferred_taint_multiplies_the_cost() {
        let table = request().row(&[("taint.preferred-multiplier", 0.5)]).row(&[]);
        assert_eq!(with("{}").score(&table).unwrap(), [5.0, 10.0]);
    }

    #[test]
    fn what_weighs_nothing_is_not_read() {
        let least = r#"{"host_cache_hit_weight":0,"disk_cache_hit_weight":0}"#;
        assert_eq!(
            signals(&with(least)),
            [
                "cache.overlap-blocks",
                "load.decode-cost-blocks",
                "load.prefill-cost-tokens",
                "taint.preferred-multiplier",
            ]
        );
        let all = r#"{"shared_cache_multiplier":1,"decode_active_request_weight":1}"#;
        assert_eq!(
            signals(&with(all)),
            [
                "cache.disk-overlap-blocks",
                "cache.host-overlap-blocks",
                "cache.overlap-blocks",
                "cache.shared-beyond-device-blocks",
                "cache.shared-beyond-effective-blocks",
                "load.active-requests",
                "load.decode-cost-blocks",
                "load.prefill-cost-tokens",
                "taint.preferred-multiplier",
            ]
        );
        let uncached = with(r#"{"overlap_score_credit":0}"#);
        assert!(!signals(&uncached).iter().any(|name| name.starts_with("cache.")));
    }

    #[test]
    fn the_affinity_target_is_exclusive() {
        assert!(with("{}").inputs().exclusive_affinity);
    }

    /// The formula as the cost model states it, a worker at a time, with every term.
    fn reference(weights: &[f64; 7], decode: bool, plain: bool, table: &Drawn, row: usize) -> f64 {
        let [credit0, rate, scale, request_weight, host_weight, disk_weight, shared_weight] = *weights;
        let worker = &table.rows[row];
        let cache = !plain && credit0 != 0.0;
        let applied = if plain && !table.tracked { 0.0 } else { credit0 };
        let least = table.rows.iter().map(|worker| worker.prefill).fold(f64::INFINITY, f64::min);
        let decay = if table.tracked && rate > 0.0 {
            1.0 / (1.0 + rate * (((worker.prefill - least) / table.block_size) / table.blocks.max(1.0)))
        } else {
            1.0
        };
        let shared = if table.matched { worker.beyond_device } else { worker.beyond_effective };
        let (cached, credit) = if cache {
            let tiers = applied * decay * worker.overlap + host_weight * worker.host + disk_weight * worker.disk;
            (worker.cached, tiers + if shared_weight == 0.0 { shared_weight } else { shared_weight * shared })
        } else {
            (0.0, 0.0)
        };
        let requests = if request_weight == 0.0 { request_weight } else { request_weight * worker.requests };
        let logit = if decode && !table.tracked && applied > 0.0 && cache {
            (worker.decode - credit).max(0.0) + requests
        } else {
            let raw = match (table.tracked, worker.available) {
                (false, _) => 0.0,
                (true, true) => (worker.prefill + (table.prompt - cached).max(0.0)) + cached,
                (true, false) => table.prompt,
            };
            scale * (raw / table.block_size - credit).max(0.0) + worker.decode + requests
        };
        logit * worker.multiplier.unwrap_or(1.0)
    }

    struct Drawn {
        tracked: bool,
        matched: bool,
        prompt: f64,
        blocks: f64,
        block_size: f64,
        rows: Vec<Worker>,
    }

    struct Worker {
        available: bool,
        prefill: f64,
        decode: f64,
        requests: f64,
        overlap: f64,
        host: f64,
        disk: f64,
        cached: f64,
        beyond_device: f64,
        beyond_effective: f64,
        multiplier: Option<f64>,
    }

    fn drawn(rng: &mut fastrand::Rng, block_size: u32) -> Drawn {
        let mut up_to = |most: u32| f64::from(rng.u32(0..=most));
        let prompt = up_to(20_000);
        let rows = (0..33)
            .map(|_| {
                let available = up_to(3) > 0.0;
                let known = f64::from(u8::from(available));
                Worker {
                    available,
                    prefill: known * up_to(40_000),
                    decode: known * up_to(5_000),
                    requests: known * up_to(60),
                    overlap: up_to(400) / 4.0,
                    host: up_to(60),
                    disk: up_to(60),
                    cached: up_to(24_000),
                    beyond_device: up_to(30),
                    beyond_effective: up_to(30),
                    multiplier: (up_to(1) > 0.0).then(|| 0.5 + up_to(1_000) / 700.0),
                }
            })
            .collect();
        Drawn {
            tracked: up_to(2) > 0.0,
            matched: up_to(1) > 0.0,
            prompt,
            blocks: (prompt / f64::from(block_size)).ceil(),
            block_size: f64::from(block_size),
            rows,
        }
    }

    #[test]
    fn costs_equal_the_formula_bit_for_bit() {
        let mut rng = fastrand::Rng::with_seed(4);
        let flag = |value: bool| f64::from(u8::from(value));
        for round in 0..400 {
            let block_size = [16, 17, 512][round % 3];
            let role = Role::ALL[round / 3 % 4];
            let conditional = round / 12 % 2 == 1;
            // Every fourth round has the terms of the router's own settings, whatever they weigh.
            let usual = round % 4 == 3;
            let mut weight = |most: f64, usually: bool| {
                let weighs = if usual { usually } else { rng.bool() };
                if weighs { (1.0 - rng.f64()) * most } else { 0.0 }
            };
            let [credit, scale, host, disk] =
                [(3.0, true), (4.0, true), (1.0, true), (1.0, true)].map(|(most, usually)| weight(most, usually));
            let [decay, requests, shared] = [2.0, 64.0, 1.0].map(|most| weight(most, false));
            let weights = [credit, decay, scale, requests, host, disk, shared];
            let config = RouterConfig { conditional_disaggregation: conditional, ..RouterConfig::default() };
            let parameters = format!(
                r#"{{"overlap_score_credit":{credit:?},"overlap_score_credit_decay":{decay:?},"prefill_load_scale":{scale:?},
                "decode_active_request_weight":{requests:?},"host_cache_hit_weight":{host:?},"disk_cache_hit_weight":{disk:?},
                "shared_cache_multiplier":{shared:?}}}"#
            );
            let mut guest = kit()
                .role(role)
                .block_size(block_size)
                .router_config(config)
                .parameters(&parameters)
                .configure()
                .unwrap();
            let drawn = drawn(&mut rng, block_size);
            let mut table = Table::new()
                .fact("request.tracks-prefill-tokens", flag(drawn.tracked))
                .fact("request.has-tier-matches", flag(drawn.matched))
                .fact("request.prompt-tokens", drawn.prompt)
                .fact("request.blocks", drawn.blocks);
            for worker in &drawn.rows {
                table = table.row(&[
                    ("load.available", flag(worker.available)),
                    ("load.active-prefill-tokens", worker.prefill),
                    ("load.decode-cost-blocks", worker.decode),
                    ("load.active-requests", worker.requests),
                    ("cache.overlap-blocks", worker.overlap),
                    ("cache.host-overlap-blocks", worker.host),
                    ("cache.disk-overlap-blocks", worker.disk),
                    ("cache.estimated-cached-tokens", worker.cached),
                    ("cache.shared-beyond-device-blocks", worker.beyond_device),
                    ("cache.shared-beyond-effective-blocks", worker.beyond_effective),
                    ("taint.preferred-multiplier", worker.multiplier.unwrap_or(f64::NAN)),
                ]);
            }
            let costs = guest.score(&table).unwrap();
            let (decode, plain) = (role != Role::Prefill, role == Role::Decode && !conditional);
            for (row, cost) in costs.iter().enumerate() {
                let expected = reference(&weights, decode, plain, &drawn, row);
                assert_eq!(cost.to_bits(), expected.to_bits(), "round {round}, row {row}: {cost} for {expected}");
            }
        }
    }
}
