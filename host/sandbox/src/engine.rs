//! The two engines: every setting of wasmtime, and how many guests fit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig, Strategy,
    WasmBacktraceDetails, WasmFeatures,
};

use crate::bounds::{ByProfile, LoadBounds};
use crate::compile::CompileConfig;
use crate::limits::{Limits, Profile};

/// Whether results are the same bit for bit on every machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Determinism {
    /// The bits of a NaN that a guest computes are the machine's. They decide nothing unless a guest looks at them.
    #[default]
    Fast,
    /// Every NaN that a guest computes has the same bits everywhere; computing takes longer.
    Portable,
}

/// How a [`crate::Sandbox`] is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxConfig {
    /// The most guests alive at once: one for each partition and instance.
    pub guests: u32,
    /// Whether results are the same bit for bit on every machine.
    pub determinism: Determinism,
    /// What an artifact may be.
    pub load: ByProfile<LoadBounds>,
    /// How artifacts that are not trusted are compiled: not at all, unless this names a worker.
    pub compile: CompileConfig,
}

impl Default for SandboxConfig {
    fn default() -> Self {
        Self {
            guests: 1_024,
            determinism: Determinism::Fast,
            load: ByProfile::default(),
            compile: CompileConfig::default(),
        }
    }
}

/// Why a sandbox could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// `sandbox.guests` is 0.
    #[error("sandbox.guests is 0; set it to the most guests alive at once, at least 1")]
    NoGuests,
    /// So many guests do not fit into what the machine grants a process.
    #[error("sandbox.guests is {asked}, but {because}; the largest value allowed here is {most}")]
    TooManyGuests {
        /// What the configuration asks for.
        asked: u32,
        /// The largest value that leaves a reserve of a fifth.
        most: u32,
        /// The bound.
        because: String,
    },
    /// The engine refused to start, for instance because the process may not reserve enough address space.
    #[error("the WebAssembly engine could not be set up for sandbox.guests = {guests}: {reason}")]
    Engine {
        /// What the configuration asks for.
        guests: u32,
        /// The engine's own words.
        reason: String,
    },
    /// The thread that counts deadlines could not be started.
    #[error("the ticker thread of the sandbox could not be started: {0}")]
    Ticker(std::io::Error),
    /// The folder of the compile cache cannot be used.
    #[error("the compile cache {folder} (sandbox.compile.cache) cannot be used: {reason}")]
    Cache {
        /// The folder.
        folder: String,
        /// Why not, and what to do.
        reason: String,
    },
}

/// Which of the two engines runs a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EngineKind {
    /// Guests in slots of a pool: quick to build.
    Pooled,
    /// Guests in memory of their own: any size.
    OnDemand,
}

impl EngineKind {
    /// The engine for a guest of these limits: the pool where its slots hold what the limits grant.
    pub(crate) const fn of(limits: &Limits) -> Self {
        match limits.profile {
            Profile::Compact
                if limits.memory_bytes <= SLOT_MEMORY_BYTES && limits.table_elements <= SLOT_TABLE_ELEMENTS =>
            {
                Self::Pooled
            }
            _ => Self::OnDemand,
        }
    }

    /// The engine as a number, for other processes.
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Pooled => 0,
            Self::OnDemand => 1,
        }
    }

    /// The engine of that number.
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        [Self::Pooled, Self::OnDemand].into_iter().find(|kind| kind.number() == number)
    }
}

/// Memory that a slot of the pool holds.
pub(crate) const SLOT_MEMORY_BYTES: u64 = 16 << 20;
/// Elements that a table in a slot of the pool holds.
pub(crate) const SLOT_TABLE_ELEMENTS: u64 = 1_024;
/// Address space of a memory, so that no access needs a check of its bounds.
const RESERVATION: u64 = 4 << 30;
/// Address space before and after it that faults.
const GUARD: u64 = 32 << 20;
/// Guests that exist only while a policy is loaded, beyond `guests`. Loads take turns.
pub(crate) const LOADING_GUESTS: u32 = 1;

/// Core instances, memories and tables of one guest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    pub(crate) instances: u32,
    pub(crate) memories: u32,
    pub(crate) tables: u32,
}

impl Counts {
    /// Language engines are linked from many modules.
    pub(crate) const fn of(profile: Profile) -> Self {
        match profile {
            Profile::Compact => Self { instances: 4, memories: 1, tables: 3 },
            Profile::Engine => Self { instances: 64, memories: 4, tables: 16 },
        }
    }
}

/// The stack of a guest, in bytes: a setting of the engine, not of a guest. The thread that calls must have more.
pub(crate) const fn stack_bytes(kind: EngineKind) -> usize {
    match kind {
        EngineKind::Pooled => 256 << 10,
        EngineKind::OnDemand => 1 << 20,
    }
}

/// Builds an engine.
pub(crate) fn build(kind: EngineKind, config: &SandboxConfig) -> Result<Engine, SandboxError> {
    let mut settings = settings(kind, config.determinism);
    if kind == EngineKind::Pooled {
        settings.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(config.guests)));
    }
    Engine::new(&settings).map_err(|error| SandboxError::Engine {
        guests: config.guests,
        reason: crate::text::sentence(&format!("{error:#}")),
    })
}

/// Builds an engine that compiles for those of [`build`] and reserves no address space for guests.
pub(crate) fn build_compiler(kind: EngineKind, determinism: Determinism) -> wasmtime::Result<Engine> {
    Engine::new(&settings(kind, determinism))
}

/// Every setting but the pool, which no machine code depends on.
fn settings(kind: EngineKind, determinism: Determinism) -> Config {
    let mut settings = Config::new();
    // Off although they are compiled out as well: wasmtime without its feature `gc` accepts function subtyping and
    // aborts the process on it. Multi-memory stays on: wasmtime's own adapters between components need it and panic
    // without; a guest's second memory is refused by the counts. Extended constants stay on for language engines.
    settings.wasm_features(
        WasmFeatures::GC
            | WasmFeatures::GC_TYPES
            | WasmFeatures::EXCEPTIONS
            | WasmFeatures::LEGACY_EXCEPTIONS
            | WasmFeatures::THREADS
            | WasmFeatures::SHARED_EVERYTHING_THREADS
            | WasmFeatures::MEMORY64
            | WasmFeatures::TAIL_CALL
            | WasmFeatures::RELAXED_SIMD
            | WasmFeatures::FUNCTION_REFERENCES
            | WasmFeatures::STACK_SWITCHING
            | WasmFeatures::CUSTOM_PAGE_SIZES
            | WasmFeatures::WIDE_ARITHMETIC
            | WasmFeatures::CM_ASYNC
            | WasmFeatures::CM_ASYNC_STACKFUL
            | WasmFeatures::CM_MORE_ASYNC_BUILTINS
            | WasmFeatures::CM_THREADING
            | WasmFeatures::CM_ERROR_CONTEXT
            | WasmFeatures::CM_GC
            | WasmFeatures::CM_MAP
            | WasmFeatures::CM64
            | WasmFeatures::CM_FIXED_LENGTH_LISTS
            | WasmFeatures::CM_IMPLEMENTS,
        false,
    );
    settings.wasm_component_model(true);
    settings.concurrency_support(false).shared_memory(false).gc_support(false);
    settings.strategy(Strategy::Cranelift).cranelift_opt_level(OptLevel::Speed);
    settings.cranelift_nan_canonicalization(determinism == Determinism::Portable);
    settings.consume_fuel(true).epoch_interruption(true);
    settings.max_wasm_stack(stack_bytes(kind));
    settings.native_unwind_info(false);
    // No host work that a guest steers, and no variable of the environment that changes the engine.
    settings.wasm_backtrace_max_frames(None).wasm_backtrace_details(WasmBacktraceDetails::Disable);
    settings.memory_reservation(RESERVATION).memory_guard_size(GUARD).guard_before_linear_memory(true);
    settings.memory_may_move(false);
    settings.allocation_strategy(InstanceAllocationStrategy::OnDemand);
    // A small policy's data is copied faster than mapped, and takes 2 maps instead of 4.
    settings.memory_init_cow(kind == EngineKind::OnDemand);
    settings
}

fn pool(guests: u32) -> PoolingAllocationConfig {
    let counts = Counts::of(Profile::Compact);
    let slots = guests.saturating_add(LOADING_GUESTS);
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(slots)
        .total_core_instances(slots.saturating_mul(counts.instances))
        .total_memories(slots.saturating_mul(counts.memories))
        .total_tables(slots.saturating_mul(counts.tables))
        .max_core_instances_per_component(counts.instances)
        .max_memories_per_component(counts.memories)
        .max_tables_per_component(counts.tables)
        .max_memories_per_module(counts.memories)
        .max_tables_per_module(2)
        .max_memory_size(SLOT_MEMORY_BYTES as usize)
        .table_elements(SLOT_TABLE_ELEMENTS as usize)
        .max_core_instance_size(64 << 10)
        .max_component_instance_size(64 << 10)
        .max_unused_warm_slots(16)
        .linear_memory_keep_resident(16 << 10)
        .table_keep_resident(8 << 10)
        .pagemap_scan(Enabled::Auto);
    pool
}

/// What the machine grants a process, less a reserve of a fifth: running into either bound ends the process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    /// Memory maps of a process.
    max_map_count: u64,
}

/// Address space of a process: 47 bits.
const ADDRESS_SPACE: u64 = 1 << 47;
/// What the pool may take of it. The pool is one piece, and the executable leaves none larger than two thirds.
const POOL_SPACE: u64 = 80 << 40;
/// Maps of a guest in the pool.
const POOLED_MAPS: u64 = 2;
/// Maps of a guest in memory of its own, with up to four memories and their images.
const ON_DEMAND_MAPS: u64 = 16;
const POOLED_ADDRESSES: u64 = RESERVATION + GUARD;
const ON_DEMAND_ADDRESSES: u64 = 4 * (RESERVATION + 2 * GUARD);

const fn less_reserve(bound: u64) -> u64 {
    bound / 5 * 4
}

impl Machine {
    /// This machine; Linux' default where it does not say.
    pub(crate) fn this() -> Self {
        let said = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok();
        Self { max_map_count: said.and_then(|text| text.trim().parse().ok()).unwrap_or(65_530) }
    }

    /// Refuses more guests than fit.
    pub(crate) fn check(self, config: &SandboxConfig) -> Result<(), SandboxError> {
        let asked = config.guests;
        if asked == 0 {
            return Err(SandboxError::NoGuests);
        }
        let by_maps = less_reserve(self.max_map_count) / POOLED_MAPS;
        let by_addresses = POOL_SPACE / POOLED_ADDRESSES - u64::from(LOADING_GUESTS);
        let most = by_maps.min(by_addresses);
        if u64::from(asked) <= most {
            return Ok(());
        }
        let because = if by_maps < by_addresses {
            format!("a guest takes {POOLED_MAPS} memory maps and vm.max_map_count is {}", self.max_map_count)
        } else {
            format!(
                "a guest reserves {} MiB of the {} TiB of address space that a process has in one piece",
                POOLED_ADDRESSES >> 20,
                POOL_SPACE >> 40
            )
        };
        Err(SandboxError::TooManyGuests { asked, most: u32::try_from(most).unwrap_or(u32::MAX), because })
    }

    /// How many of the guests may live outside the pool.
    pub(crate) fn on_demand(self, config: &SandboxConfig) -> u32 {
        let pooled = u64::from(config.guests);
        let maps = less_reserve(self.max_map_count).saturating_sub(pooled * POOLED_MAPS) / ON_DEMAND_MAPS;
        let addresses = less_reserve(ADDRESS_SPACE).saturating_sub(pooled * POOLED_ADDRESSES) / ON_DEMAND_ADDRESSES;
        u32::try_from(maps.min(addresses).clamp(1, pooled)).unwrap_or(config.guests)
    }
}

/// Counts the guests alive against the most allowed.
#[derive(Debug)]
pub(crate) struct Places {
    most: u32,
    taken: AtomicU32,
}

/// One guest's place; given back when dropped.
#[derive(Debug)]
pub(crate) struct Place(Arc<Places>);

impl Places {
    pub(crate) fn new(most: u32) -> Arc<Self> {
        Arc::new(Self { most, taken: AtomicU32::new(0) })
    }

    pub(crate) fn most(&self) -> u32 {
        self.most
    }

    /// A place, or none where all are taken.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Place> {
        let next = |taken| (taken < self.most).then(|| taken + 1);
        self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).ok()?;
        Some(Place(Arc::clone(self)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::Key;

    fn check(guests: u32, max_map_count: u64) -> Result<(), SandboxError> {
        Machine { max_map_count }.check(&SandboxConfig { guests, ..SandboxConfig::default() })
    }

    #[test]
    fn as_many_guests_as_fit_and_not_one_more() {
        // 65,530 maps less a fifth hold 26,212 guests of 2 maps: the address space is the bound.
        check(20_320, 65_530).unwrap();
        // 80 TiB, 4 GiB and 32 MiB a guest, one of them for loading.
        let by_addresses = check(30_000, 1 << 20).unwrap_err().to_string();
        assert!(by_addresses.contains("sandbox.guests is 30000"), "{by_addresses}");
        assert!(by_addresses.ends_with("the largest value allowed here is 20320"), "{by_addresses}");
        check(20_320, 1 << 20).unwrap();
        let by_maps = check(401, 1_000).unwrap_err().to_string();
        assert!(by_maps.contains("vm.max_map_count is 1000"), "{by_maps}");
        assert!(by_maps.ends_with("the largest value allowed here is 400"), "{by_maps}");
        check(400, 1_000).unwrap();
        assert!(check(0, 1_000).unwrap_err().to_string().starts_with("sandbox.guests is 0;"));
    }

    #[test]
    fn guests_outside_the_pool_get_what_it_leaves() {
        let on_demand =
            |guests| Machine { max_map_count: 65_530 }.on_demand(&SandboxConfig { guests, ..SandboxConfig::default() });
        assert_eq!(on_demand(8), 8);
        assert_eq!(on_demand(1_024), 1_024);
        assert!((1..1_000).contains(&on_demand(20_000)), "{}", on_demand(20_000));
    }

    #[test]
    fn a_place_is_given_back() {
        let places = Places::new(1);
        let first = places.take().unwrap();
        assert!(places.take().is_none());
        drop(first);
        assert!(places.take().is_some());
    }

    #[test]
    fn a_guest_goes_where_its_limits_fit() {
        let mut limits = Limits::default();
        assert_eq!(EngineKind::of(&limits), EngineKind::Pooled);
        limits.memory_bytes = SLOT_MEMORY_BYTES;
        limits.table_elements = SLOT_TABLE_ELEMENTS;
        assert_eq!(EngineKind::of(&limits), EngineKind::Pooled);
        assert_eq!(EngineKind::of(&Limits { memory_bytes: SLOT_MEMORY_BYTES + 1, ..limits }), EngineKind::OnDemand);
        assert_eq!(EngineKind::of(&Limits { table_elements: SLOT_TABLE_ELEMENTS + 1, ..limits }), EngineKind::OnDemand);
        assert_eq!(EngineKind::of(&Limits::of(Profile::Engine)), EngineKind::OnDemand);
    }

    fn other(determinism: Determinism) -> Determinism {
        match determinism {
            Determinism::Fast => Determinism::Portable,
            Determinism::Portable => Determinism::Fast,
        }
    }

    #[test]
    fn both_engines_start_and_refuse_what_policies_need_not() {
        for determinism in [Determinism::Fast, Determinism::Portable] {
            let config = SandboxConfig { guests: 2, determinism, ..SandboxConfig::default() };
            for kind in [EngineKind::Pooled, EngineKind::OnDemand] {
                let engine = build(kind, &config).unwrap();
                let features = engine.get_wasm_features();
                assert!(features.contains(WasmFeatures::MULTI_MEMORY | WasmFeatures::EXTENDED_CONST));
                assert!(!features.intersects(WasmFeatures::GC | WasmFeatures::THREADS | WasmFeatures::CM_ASYNC));
                assert_eq!(engine.get_cranelift_nan_canonicalization(), Some(determinism == Determinism::Portable));
                assert!(engine.get_consume_fuel() && engine.get_epoch_interruption());
                // What compiles for it agrees with it, and nothing else does.
                let compiler = |determinism| Key::of(&build_compiler(kind, determinism).unwrap(), kind, &[0; 32]);
                let key = Key::of(&engine, kind, &[0; 32]);
                assert_eq!(key, compiler(determinism));
                assert_ne!(key, compiler(other(determinism)));
                assert_ne!(key, Key::of(&engine, kind, &[1; 32]));
            }
        }
    }
}
