//! What an artifact is made of, counted before any compiler sees it.
//!
//! One pass over the bytes, linear in their number. Nothing here calls itself, whatever the input nests, and nothing is
//! kept but counts, the widths of core types, and the names at the outermost component's edge. Whether the component is
//! valid is the engine's to say: this check bounds what validating and compiling it can cost.

use wasmparser::{
    BinaryReader, ComponentAlias, ComponentExternName, ComponentExternalKind, ComponentImport, ComponentInstance,
    ComponentOuterAliasKind, ComponentType, ComponentTypeRef, CompositeInnerType, CoreType, Encoding, FunctionBody,
    Instance, Operator, Parser, Payload, RecGroup, TypeBounds, TypeRef, WasmFeatures,
};

use crate::bounds::LoadBounds;

/// Why an artifact is not compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It has more of something than it may.
    Over {
        /// The bound's key.
        key: &'static str,
        found: u64,
        most: u64,
    },
    /// It is no WebAssembly from some byte on.
    Malformed(String),
}

impl From<wasmparser::Error> for Refused {
    fn from(error: wasmparser::Error) -> Self {
        Self::Malformed(error.to_string())
    }
}

type Checked<T = ()> = Result<T, Refused>;

/// The edge of the outermost component.
#[derive(Debug, Default)]
pub(crate) struct Outline {
    pub(crate) imports: Vec<Import>,
    pub(crate) exports: Vec<String>,
}

/// One import.
#[derive(Debug)]
pub(crate) struct Import {
    pub(crate) name: String,
    pub(crate) kind: ImportKind,
}

/// What is imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImportKind {
    /// An instance without functions: it grants nothing.
    Types,
    /// Another instance.
    Instance,
    /// Anything else.
    Other,
}

/// Refuses an artifact that is too large to be looked at.
pub(crate) fn size(bytes: &[u8], bounds: &LoadBounds) -> Checked {
    within("component_bytes", bytes.len() as u64, bounds.component_bytes)
}

/// Holds a component to its bounds.
pub(crate) fn check(bytes: &[u8], bounds: &LoadBounds) -> Checked<Outline> {
    let mut scan = Scan { bytes, bounds, found: Counts::default(), open: Vec::new(), outline: Outline::default() };
    for payload in Parser::new(0).parse_all(bytes) {
        scan.payload(payload?)?;
    }
    Ok(scan.outline)
}

fn within(key: &'static str, found: u64, most: u64) -> Checked {
    if found <= most { Ok(()) } else { Err(Refused::Over { key, found, most }) }
}

/// Adds to a count, and holds it to the bound of that name.
macro_rules! count {
    ($scan:ident.$key:ident, $more:expr) => {{
        $scan.found.$key = $scan.found.$key.saturating_add(u64::from($more));
        within(stringify!($key), $scan.found.$key, $scan.bounds.$key)
    }};
}

/// Holds one value to the bound of that name.
macro_rules! at_most {
    ($scan:ident.$key:ident, $found:expr) => {
        within(stringify!($key), $found, $scan.bounds.$key)
    };
}

/// What was found so far, in the whole component.
#[derive(Default)]
struct Counts {
    custom_bytes: u64,
    components: u64,
    modules: u64,
    component_instances: u64,
    core_instances: u64,
    types: u64,
    imports: u64,
    exports: u64,
    aliases: u64,
    canonicals: u64,
    functions: u64,
    globals: u64,
    tables: u64,
    memories: u64,
    memory_pages: u64,
    data_segments: u64,
    element_segments: u64,
}

/// A component or module that has begun and not ended.
enum Open {
    /// What each component type so far is, as an import.
    Component(Vec<ImportKind>),
    Module(Module),
}

/// What a module's later sections refer to.
#[derive(Default)]
struct Module {
    /// Parameters of each type, 0 where it is no function.
    parameters: Vec<u32>,
    /// The types of the functions whose bodies are still to come, the next one last.
    bodies: Vec<u32>,
}

struct Scan<'a> {
    bytes: &'a [u8],
    bounds: &'a LoadBounds,
    found: Counts,
    open: Vec<Open>,
    outline: Outline,
}

impl<'a> Scan<'a> {
    fn payload(&mut self, payload: Payload<'a>) -> Checked {
        match payload {
            Payload::Version { encoding, .. } => self.begin(encoding),
            Payload::End(_) => {
                self.open.pop();
                Ok(())
            }
            Payload::CustomSection(section) => count!(self.custom_bytes, section.data().len() as u64),
            Payload::ModuleSection { .. } => count!(self.modules, 1_u32),
            Payload::ComponentSection { .. } => count!(self.components, 1_u32),
            Payload::TypeSection(section) => section.into_iter().try_for_each(|group| self.core_types(&group?)),
            Payload::ImportSection(section) => {
                section.into_imports().try_for_each(|import| self.core_import(import?.ty))
            }
            Payload::FunctionSection(section) => {
                count!(self.functions, section.count())?;
                let mut bodies = section.into_iter().collect::<Result<Vec<u32>, _>>()?;
                bodies.reverse();
                if let Some(Open::Module(module)) = self.open.last_mut() {
                    module.bodies = bodies;
                }
                Ok(())
            }
            Payload::TableSection(section) => {
                count!(self.tables, section.count())?;
                section.into_iter().try_for_each(|table| at_most!(self.table_elements, table?.ty.initial))
            }
            Payload::MemorySection(section) => {
                count!(self.memories, section.count())?;
                section.into_iter().try_for_each(|memory| count!(self.memory_pages, memory?.initial))
            }
            Payload::GlobalSection(section) => count!(self.globals, section.count()),
            Payload::ExportSection(section) => count!(self.exports, section.count()),
            Payload::ElementSection(section) => count!(self.element_segments, section.count()),
            Payload::DataCountSection { count, .. } => at_most!(self.data_segments, u64::from(count)),
            Payload::DataSection(section) => count!(self.data_segments, section.count()),
            Payload::CodeSectionStart { count, .. } => at_most!(self.functions, u64::from(count)),
            Payload::CodeSectionEntry(body) => self.body(&body),
            Payload::InstanceSection(section) => section.into_iter().try_for_each(|instance| match instance? {
                Instance::Instantiate { .. } => count!(self.core_instances, 1_u32),
                // A bag of exports, which the engine makes nothing of.
                Instance::FromExports(_) => Ok(()),
            }),
            Payload::ComponentInstanceSection(section) => {
                section.into_iter().try_for_each(|instance| match instance? {
                    ComponentInstance::Instantiate { .. } => count!(self.component_instances, 1_u32),
                    ComponentInstance::FromExports(_) => Ok(()),
                })
            }
            Payload::CoreTypeSection(section) => section.into_iter().try_for_each(|ty| self.core_type(&ty?)),
            Payload::ComponentTypeSection(section) => self.component_types(section.range()),
            Payload::ComponentAliasSection(section) => section.into_iter().try_for_each(|alias| self.alias(&alias?)),
            Payload::ComponentCanonicalSection(section) => count!(self.canonicals, section.count()),
            Payload::ComponentImportSection(section) => {
                section.into_iter().try_for_each(|import| self.component_import(import?))
            }
            Payload::ComponentExportSection(section) => section.into_iter().try_for_each(|export| {
                let export = export?;
                count!(self.exports, 1_u32)?;
                if export.kind == ComponentExternalKind::Type {
                    self.new_type(ImportKind::Other);
                }
                if self.open.len() == 1 {
                    self.outline.exports.push(export.name.name.to_owned());
                }
                Ok(())
            }),
            Payload::UnknownSection { id, range, .. } => {
                Err(Refused::Malformed(format!("unknown section {id} (at offset {:#x})", range.start)))
            }
            // The engine takes at most one start function, and no tags.
            _ => Ok(()),
        }
    }

    fn begin(&mut self, encoding: Encoding) -> Checked {
        self.open.push(match encoding {
            Encoding::Component => Open::Component(Vec::new()),
            Encoding::Module => Open::Module(Module::default()),
        });
        at_most!(self.depth, self.open.len() as u64)
    }

    /// A type of the innermost open component.
    fn new_type(&mut self, kind: ImportKind) {
        if let Some(Open::Component(types)) = self.open.last_mut() {
            types.push(kind);
        }
    }

    fn core_types(&mut self, group: &RecGroup) -> Checked {
        for ty in group.types() {
            count!(self.types, 1_u32)?;
            let parameters = match &ty.composite_type.inner {
                CompositeInnerType::Func(function) => {
                    at_most!(self.signature, (function.params().len() + function.results().len()) as u64)?;
                    function.params().len()
                }
                _ => 0,
            };
            if let Some(Open::Module(module)) = self.open.last_mut() {
                module.parameters.push(u32::try_from(parameters).unwrap_or(u32::MAX));
            }
        }
        Ok(())
    }

    fn core_import(&mut self, ty: TypeRef) -> Checked {
        count!(self.imports, 1_u32)?;
        match ty {
            TypeRef::Table(table) => at_most!(self.table_elements, table.initial),
            _ => Ok(()),
        }
    }

    fn core_type(&mut self, ty: &CoreType<'_>) -> Checked {
        match ty {
            CoreType::Rec(group) => self.core_types(group),
            CoreType::Module(declarations) => count!(self.types, 1 + declarations.len() as u64),
        }
    }

    /// Walks component types with a list of what is open: wasmparser's own reader calls itself for a type within a type.
    fn component_types(&mut self, range: std::ops::Range<usize>) -> Checked {
        let section = self.bytes.get(range.clone()).unwrap_or_default();
        let mut reader = BinaryReader::new_features(section, range.start, WasmFeatures::all());
        // Declarations still to come, outermost first: the section's own types, then those of what is open in it.
        let mut left = vec![reader.read_var_u32()?];
        while let Some(declarations) = left.last_mut() {
            let Some(fewer) = declarations.checked_sub(1) else {
                left.pop();
                continue;
            };
            *declarations = fewer;
            let inner = left.len() - 1;
            let what = if inner == 0 { TYPE } else { reader.read_u8()? };
            match what {
                CORE_TYPE => {
                    let ty = reader.read::<CoreType<'_>>()?;
                    self.core_type(&ty)?;
                }
                TYPE => {
                    count!(self.types, 1_u32)?;
                    let kind = match reader.clone().read_u8()? {
                        byte @ (COMPONENT_TYPE | INSTANCE_TYPE) => {
                            reader.read_u8()?;
                            left.push(reader.read_var_u32()?);
                            at_most!(self.depth, (self.open.len() + left.len() - 1) as u64)?;
                            if byte == INSTANCE_TYPE { ImportKind::Types } else { ImportKind::Other }
                        }
                        _ => {
                            reader.read::<ComponentType<'_>>()?;
                            ImportKind::Other
                        }
                    };
                    if inner == 0 {
                        self.new_type(kind);
                    }
                }
                ALIAS => {
                    reader.read::<ComponentAlias<'_>>()?;
                    count!(self.aliases, 1_u32)?;
                }
                IMPORT => {
                    reader.read::<ComponentImport<'_>>()?;
                    count!(self.imports, 1_u32)?;
                }
                EXPORT => {
                    reader.read::<ComponentExternName<'_>>()?;
                    let ty = reader.read::<ComponentTypeRef>()?;
                    count!(self.exports, 1_u32)?;
                    let grants = !matches!(ty, ComponentTypeRef::Type(TypeBounds::Eq(_)));
                    if inner == 1
                        && grants
                        && let Some(Open::Component(types)) = self.open.last_mut()
                        && let Some(kind @ ImportKind::Types) = types.last_mut()
                    {
                        *kind = ImportKind::Instance;
                    }
                }
                other => return Err(Refused::Malformed(format!("unknown declaration {other} in a component type"))),
            }
        }
        Ok(())
    }

    fn alias(&mut self, alias: &ComponentAlias<'_>) -> Checked {
        if let ComponentAlias::InstanceExport { kind: ComponentExternalKind::Type, .. }
        | ComponentAlias::Outer { kind: ComponentOuterAliasKind::Type, .. } = alias
        {
            self.new_type(ImportKind::Other);
        }
        count!(self.aliases, 1_u32)
    }

    fn component_import(&mut self, import: ComponentImport<'_>) -> Checked {
        count!(self.imports, 1_u32)?;
        let kind = match (import.ty, self.open.last()) {
            (ComponentTypeRef::Instance(index), Some(Open::Component(types))) => match types.get(index as usize) {
                Some(ImportKind::Types) => ImportKind::Types,
                _ => ImportKind::Instance,
            },
            _ => ImportKind::Other,
        };
        if self.open.len() == 1 {
            self.outline.imports.push(Import { name: import.name.name.to_owned(), kind });
        }
        if import.ty.kind() == ComponentExternalKind::Type {
            self.new_type(ImportKind::Other);
        }
        Ok(())
    }

    fn body(&mut self, body: &FunctionBody<'_>) -> Checked {
        let range = body.range();
        at_most!(self.body_bytes, range.end.saturating_sub(range.start) as u64)?;
        let mut locals = self.parameters_of_next();
        for group in body.get_locals_reader()? {
            locals = locals.saturating_add(u64::from(group?.0));
            at_most!(self.locals, locals)?;
        }
        let (mut blocks, mut nesting) = (0_u64, 0_u64);
        for operator in body.get_operators_reader()? {
            match operator? {
                Operator::Block { .. }
                | Operator::Loop { .. }
                | Operator::If { .. }
                | Operator::Try { .. }
                | Operator::TryTable { .. } => {
                    (blocks, nesting) = (blocks + 1, nesting + 1);
                    at_most!(self.nesting, nesting)?;
                    at_most!(self.locals_by_blocks, blocks.saturating_mul(locals))?;
                }
                Operator::End => nesting = nesting.saturating_sub(1),
                _ => {}
            }
        }
        Ok(())
    }

    /// The parameters of the function whose body comes now.
    fn parameters_of_next(&mut self) -> u64 {
        let Some(Open::Module(Module { parameters, bodies })) = self.open.last_mut() else { return 0 };
        let ty = bodies.pop().and_then(|ty| parameters.get(ty as usize));
        ty.map_or(0, |parameters| u64::from(*parameters))
    }
}

/// The declarations within a component type, by their first byte.
const CORE_TYPE: u8 = 0;
const TYPE: u8 = 1;
const ALIAS: u8 = 2;
const IMPORT: u8 = 3;
const EXPORT: u8 = 4;
/// The first bytes of the types that hold declarations.
const COMPONENT_TYPE: u8 = 0x41;
const INSTANCE_TYPE: u8 = 0x42;
