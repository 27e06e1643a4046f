//! A shorter way into a component, for the functions that every decision calls.
//!
//! At each call of a lifted function, wasmtime 48 looks up the machine code of the core function behind it, which takes
//! longer than many a policy. Where the instance that exports the core function has it from an import, the address is at
//! hand. So a module is put between: it imports the stages from the module that has them and exports them again, and
//! what was lifted from that module is lifted from this one. It has no code, no memory and no data.

use wasm_encoder::{
    EntityType, ExportKind, ExportSection, ImportSection, InstanceSection, Module, ModuleArg, ModuleSection,
    TypeSection, ValType,
};
use wasmparser::{
    BinaryReader, ComponentAlias, ComponentAliasSectionReader, ExternalKind, Instance, InstanceSectionReader, Result,
};

/// The stages, by their names as core functions; the contract gives all of them the same type.
const STAGES: [&str; 4] = [
    "pointsman:policy/worker-filter@0.1.0#keep",
    "pointsman:policy/worker-scorer@0.1.0#score",
    "pointsman:policy/worker-picker@0.1.0#pick",
    "pointsman:policy/worker-selector@0.1.0#select",
];
const HEADER: usize = 8;
/// The most modules, and instances of them, that a component has with the one between: what the profile `compact` takes.
const MOST: u32 = 4;

/// Sections of a component by their numbers.
const MODULE: u8 = 1;
const INSTANCES: u8 = 2;
const ALIASES: u8 = 6;

/// One stage that is taken from the exports of a core instance.
struct Stage<'a> {
    name: &'a str,
    /// Where the instance's index stands, one byte long.
    index_at: usize,
    index: u8,
}

/// The component with the module between; none where it is not of the form that `wit-component` writes.
pub(crate) fn shorten(component: &[u8]) -> Option<Vec<u8>> {
    let (stages, before, instances) = stages(component).ok()?;
    let (first, entry) = (stages.first()?, u8::try_from(instances.entries).ok().filter(|index| *index < 0x80)?);
    let full = instances.modules.max(instances.instantiated) >= MOST;
    let one_byte = |stage: &Stage<'_>| component.get(stage.index_at) == Some(&stage.index) && stage.index < 0x80;
    if full || instances.later || !stages.iter().all(|stage| stage.index == first.index && one_byte(stage)) {
        return None;
    }
    let mut shortened = component.get(..before)?.to_vec();
    append(&mut shortened, &stages, instances.modules, first.index.into());
    let added = shortened.len() - before;
    shortened.extend(component.get(before..)?);
    for stage in &stages {
        *shortened.get_mut(stage.index_at + added)? = entry;
    }
    Some(shortened)
}

/// What comes before the first stage is taken, and whether more of it comes after.
#[derive(Default)]
struct Instances {
    modules: u32,
    /// All instances; some are but lists of exports.
    entries: u32,
    instantiated: u32,
    later: bool,
}

/// The stages that a component takes from its core instances, and where the section with the first of them begins.
fn stages(component: &[u8]) -> Result<(Vec<Stage<'_>>, usize, Instances)> {
    let mut reader = BinaryReader::new(component, 0);
    reader.read_bytes(HEADER)?;
    let (mut stages, mut before, mut instances) = (Vec::new(), 0, Instances::default());
    while !reader.eof() {
        let begin = reader.current_position();
        let (id, length) = (reader.read_u8()?, reader.read_var_u32()?);
        let content_at = reader.original_position();
        let content = reader.read_bytes(length as usize)?;
        match id {
            MODULE | INSTANCES if !stages.is_empty() => instances.later = true,
            MODULE => instances.modules += 1,
            INSTANCES => {
                for instance in InstanceSectionReader::new(BinaryReader::new(content, content_at))? {
                    instances.entries += 1;
                    instances.instantiated += u32::from(matches!(instance?, Instance::Instantiate { .. }));
                }
            }
            ALIASES => {
                for alias in
                    ComponentAliasSectionReader::new(BinaryReader::new(content, content_at))?.into_iter_with_offsets()
                {
                    let (at, ComponentAlias::CoreInstanceExport { kind: ExternalKind::Func, instance_index, name }) =
                        alias?
                    else {
                        continue;
                    };
                    if !STAGES.contains(&name) {
                        continue;
                    }
                    if stages.is_empty() {
                        before = begin;
                    }
                    // Two bytes say that it is a core function and one that it is a core instance's.
                    let index_at = at as usize + 3;
                    stages.push(Stage { name, index_at, index: u8::try_from(instance_index).unwrap_or(u8::MAX) });
                }
            }
            _ => {}
        }
    }
    Ok((stages, before, instances))
}

/// Appends the module and its instance, whose import is the core instance `main`.
fn append(component: &mut Vec<u8>, stages: &[Stage<'_>], module: u32, main: u32) {
    const MAIN: &str = "main";
    let (mut types, mut imports, mut exports) = (TypeSection::new(), ImportSection::new(), ExportSection::new());
    // The rows; then addresses and lengths of the numbers, the workers and the texts, the last two of which may be missing.
    types.ty().function([ValType::I32; 9], [ValType::I32]);
    for (function, stage) in (0..).zip(stages) {
        imports.import(MAIN, stage.name, EntityType::Function(0));
        exports.export(stage.name, ExportKind::Func, function);
    }
    let mut between = Module::new();
    between.section(&types).section(&imports).section(&exports);
    let mut instances = InstanceSection::new();
    instances.instantiate(module, [(MAIN, ModuleArg::Instance(main))]);
    let mut added = wasm_encoder::Component::new();
    added.section(&ModuleSection(&between)).section(&instances);
    component.extend(added.finish().get(HEADER..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use wasmparser::{Validator, WasmFeatures};

    use super::*;

    const TYPE: &str = "(param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)";

    fn component(before: &str, after: &str) -> Vec<u8> {
        let text = format!(
            r#"(component
                {before}
                (core module $main
                    (memory (export "memory") 1)
                    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) unreachable)
                    (func (export "pointsman:policy/worker-picker@0.1.0#pick") {TYPE} unreachable)
                    (func (export "pointsman:policy/worker-scorer@0.1.0#score") {TYPE} unreachable))
                (core instance $main (instantiate $main))
                (alias core export $main "memory" (core memory $memory))
                (alias core export $main "cabi_realloc" (core func $realloc))
                (alias core export $main "pointsman:policy/worker-picker@0.1.0#pick" (core func $pick))
                (func (export "pick") (param "rows" u32) (param "numbers" (list f64)) (param "workers" (option (list u32)))
                    (param "texts" (option (list (option string)))) (result (result u32 (error string)))
                    (canon lift (core func $pick) (memory $memory) (realloc $realloc)))
                (alias core export $main "pointsman:policy/worker-scorer@0.1.0#score" (core func $score))
                {after})"#
        );
        wat::parse_str(text).unwrap()
    }

    #[test]
    fn stages_are_taken_from_the_module_between_and_all_else_stays() {
        let component = component("", "");
        let shortened = shorten(&component).unwrap();
        Validator::new_with_features(WasmFeatures::all()).validate_all(&shortened).unwrap();
        let (found, _, instances) = stages(&shortened).unwrap();
        let found: Vec<_> = found.iter().map(|stage| (stage.name, stage.index)).collect();
        let names = ["pointsman:policy/worker-picker@0.1.0#pick", "pointsman:policy/worker-scorer@0.1.0#score"];
        assert_eq!(found, names.map(|name| (name, 1)));
        assert_eq!((instances.modules, instances.entries), (2, 2));
        let rest = shortened.len() - component.len();
        assert!(rest < 300, "the module between has {rest} bytes");
    }

    /// A module and its instance, and an instance that is but a list.
    const SHIM: &str = "(core module $shim) (core instance (instantiate $shim)) (core instance)";

    #[test]
    fn what_comes_before_the_stages_counts() {
        let shortened = shorten(&component(&SHIM.replace("$shim", "$a"), "")).unwrap();
        Validator::new_with_features(WasmFeatures::all()).validate_all(&shortened).unwrap();
        let (found, _, instances) = stages(&shortened).unwrap();
        assert!(found.iter().all(|stage| stage.index == 3));
        assert_eq!((instances.modules, instances.entries, instances.instantiated), (3, 4, 3));
    }

    #[test]
    fn a_component_of_another_form_stays_as_it_is() {
        let full = ["$a", "$b", "$c"].map(|name| SHIM.replace("$shim", name)).concat();
        assert!(shorten(&component(&full, "")).is_none(), "the profile `compact` takes no fifth module");
        assert!(shorten(&component("", "(core module $more) (core instance (instantiate $more))")).is_none());
        for other in ["(component)", "(component (core module))"] {
            assert!(shorten(&wat::parse_str(other).unwrap()).is_none());
        }
        let component = component("", "");
        assert!(
            (0..component.len()).all(|length| shorten(&component[..length]).is_none_or(|short| short.len() > length))
        );
    }
}
