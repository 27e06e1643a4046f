//! What an artifact may be, and what compiling it may take: two tables, each with a default for either profile.

use crate::limits::{Profile, by_profile};

/// A value for each profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByProfile<T> {
    /// For [`Profile::Compact`].
    pub compact: T,
    /// For [`Profile::Engine`].
    pub engine: T,
}

impl<T> ByProfile<T> {
    /// The value of a profile.
    pub const fn of(&self, profile: Profile) -> &T {
        match profile {
            Profile::Compact => &self.compact,
            Profile::Engine => &self.engine,
        }
    }

    /// The value of a profile, to change it.
    pub const fn of_mut(&mut self, profile: Profile) -> &mut T {
        match profile {
            Profile::Compact => &mut self.compact,
            Profile::Engine => &mut self.engine,
        }
    }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

by_profile! {
    LOAD_BOUNDS, "Every bound on an artifact, checked before anything is compiled; `sandbox.load` sets them.";
    LoadBounds(profile) {}, "What an artifact may be. Counts are those of the whole component, all that it contains included.";
    component_bytes: 2 * MIB, 32 * MIB, 64 * MIB,
        "bytes of the component" => "size";
    custom_bytes: MIB, 16 * MIB, 64 * MIB,
        "bytes of custom sections, such as names and debug information" => "structure";
    depth: 8, 16, 100,
        "components, or component types, within each other" => "structure";
    components: 16, 64, 1_000,
        "inner components" => "structure";
    modules: 4, 64, 1_000,
        "core modules" => "structure";
    component_instances: 32, 128, 10_000,
        "instances of components" => "structure";
    core_instances: 4, 64, 10_000,
        "instances of core modules" => "structure";
    types: 2_000, 50_000, 1_000_000,
        "types, core and component" => "structure";
    signature: 128, 256, 2_000,
        "parameters and results of one core function type" => "structure";
    imports: 256, 20_000, 1_000_000,
        "imports" => "structure";
    exports: 256, 50_000, 1_000_000,
        "exports" => "structure";
    aliases: 1_000, 50_000, 1_000_000,
        "aliases of components" => "structure";
    canonicals: 256, 4_000, 100_000,
        "functions lifted, lowered or built in" => "structure";
    functions: 5_000, 50_000, 1_000_000,
        "core functions" => "structure";
    body_bytes: 64 * KIB, MIB, 7_654_321,
        "bytes of one function" => "structure";
    locals: 1_024, 4_096, 50_000,
        "parameters and locals of one function" => "structure";
    nesting: 256, 2_048, 1_000_000,
        "blocks within each other in one function" => "structure";
    locals_by_blocks: 250_000, 1_000_000, 1_000_000_000_000,
        "parameters and locals of one function times its blocks" => "structure";
    globals: 256, 50_000, 1_000_000,
        "globals" => "structure";
    tables: 3, 16, 1_000,
        "tables" => "structure";
    table_elements: 1_024, 100_000, 10_000_000,
        "elements that one table starts with" => "structure";
    memories: 1, 4, 1_000,
        "linear memories" => "structure";
    memory_pages: 256, 1_024, 65_536,
        "pages of 64 KiB that the memories start with, together" => "structure";
    data_segments: 256, 10_000, 100_000,
        "data segments" => "structure";
    element_segments: 256, 10_000, 100_000,
        "element segments" => "structure";
}

by_profile! {
    COMPILE_LIMITS, "Every limit of one compilation in a child process; `sandbox.compile` sets them.";
    CompileLimits(profile) {}, "What compiling one artifact may take.";
    memory_bytes: GIB, 2 * GIB, 64 * GIB,
        "bytes of address space of the process that compiles" => "compile-memory";
    cpu_seconds: 10, 60, 3_600,
        "seconds of processor time" => "compile-timeout";
    wall_ms: 10_000, 60_000, 3_600_000,
        "wall-clock milliseconds, from the start of the process to its answer" => "compile-timeout";
    code_bytes: 64 * MIB, 512 * MIB, 4 * GIB,
        "bytes of machine code" => "compile-memory";
}

impl Default for ByProfile<LoadBounds> {
    fn default() -> Self {
        Self { compact: LoadBounds::of(Profile::Compact), engine: LoadBounds::of(Profile::Engine) }
    }
}

impl Default for ByProfile<CompileLimits> {
    fn default() -> Self {
        Self { compact: CompileLimits::of(Profile::Compact), engine: CompileLimits::of(Profile::Engine) }
    }
}
