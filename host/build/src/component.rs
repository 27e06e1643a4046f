//! From a core module to a component.

use std::path::Path;

use wasm_encoder::{CustomSection, Section};
use wit_component::{ComponentEncoder, DecodedWasm};

use crate::{BuildError, entry};

const POLICY: &str = "pointsman:policy/policy@";
/// The version field of a component, where a core module has 1 and 0.
const COMPONENT_LAYER: [u8; 4] = [0x0d, 0, 1, 0];

pub(crate) fn encode_file(package: &str, module: &Path) -> Result<Vec<u8>, BuildError> {
    let bytes = std::fs::read(module).map_err(|source| BuildError::Read { path: module.to_owned(), source })?;
    encode(package, &bytes)
}

/// Wraps a core module, which carries the contract's types as wit-bindgen left them, as a component. `package` is its
/// name in errors.
///
/// # Errors
/// Where `module` is no core module, lacks what its contract demands, imports what no contract names, or exports no
/// policy.
pub fn encode(package: &str, module: &[u8]) -> Result<Vec<u8>, BuildError> {
    let package = || package.to_owned();
    if module.get(4..8) == Some(&COMPONENT_LAYER) {
        return Err(BuildError::AlreadyComponent { package: package() });
    }
    let failed = |message| BuildError::Encode { package: package(), message };
    let component = ComponentEncoder::default()
        .validate(true)
        .module(module)
        .and_then(ComponentEncoder::encode)
        .map_err(|error| failed(one_line(&format!("{error:#}"))))?;
    let read = |component: Vec<u8>| match wit_component::decode(&component) {
        Ok(DecodedWasm::Component(resolve, world)) => Some((component, resolve, world)),
        _ => None,
    };
    // The shortened one is invalid where a stage has another type than the contract's.
    let Some((component, resolve, world)) = entry::shorten(&component).and_then(read).or_else(|| read(component))
    else {
        return Err(failed("it cannot be read back".to_owned()));
    };
    let exports_policy = resolve
        .worlds
        .get(world)
        .is_some_and(|world| world.exports.keys().any(|key| resolve.name_world_key(key).starts_with(POLICY)));
    if exports_policy { Ok(component) } else { Err(BuildError::NotAPolicy { package: package() }) }
}

/// Adds a custom section to the end of a component.
pub fn add_section(component: &mut Vec<u8>, name: &str, data: &[u8]) {
    CustomSection { name: name.into(), data: data.into() }.append_to(component);
}

/// The text with every run of white space as one blank.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_is_not_wrapped_again() {
        let component = wat::parse_str("(component)").unwrap();
        let error = encode("mine", &component).unwrap_err().to_string();
        assert!(error.contains("`mine` is a component already"), "{error}");
        assert!(error.contains("wasm32-wasip2"), "{error}");
    }

    #[test]
    fn a_module_without_the_contract_is_no_policy() {
        let module = wat::parse_str("(module (func (export \"keep\")))").unwrap();
        let error = encode("mine", &module).unwrap_err().to_string();
        assert!(error.contains("does not export pointsman:policy/policy"), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }

    #[test]
    fn an_import_that_no_contract_names_is_named() {
        let module = wat::parse_str("(module (import \"env\" \"open\" (func)))").unwrap();
        let error = encode("mine", &module).unwrap_err().to_string();
        assert!(error.contains("env"), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }

    #[test]
    fn bytes_that_are_no_module_are_refused() {
        for bytes in [&b"not wasm"[..], b"", b"\0asm"] {
            let error = encode("mine", bytes).unwrap_err();
            assert!(matches!(error, BuildError::Encode { .. }), "{error}");
        }
    }
}
