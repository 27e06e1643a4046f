//! The built-in policies as components, compiled from `policies/` when this crate is built and embedded here.
//!
//! Everything else in the workspace builds without the WebAssembly target; a host that needs no component links the
//! policies' crates natively instead.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

/// One built-in policy.
#[derive(Clone, Copy)]
pub struct BuiltIn {
    /// The policy's name: that of its crate, and of its manifest.
    pub name: &'static str,
    /// The component's bytes.
    pub component: &'static [u8],
}

impl std::fmt::Debug for BuiltIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BuiltIn").field("name", &self.name).field("bytes", &self.component.len()).finish()
    }
}

static BUILT_IN: &[BuiltIn] = include!(concat!(env!("OUT_DIR"), "/built_in.rs"));

/// Every built-in policy, by name.
#[must_use]
pub fn all() -> &'static [BuiltIn] {
    BUILT_IN
}

/// The built-in policy of that name.
#[must_use]
pub fn get(name: &str) -> Option<&'static BuiltIn> {
    BUILT_IN.iter().find(|built_in| built_in.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_a_component_that_exports_the_contract() {
        assert!(!all().is_empty());
        for built_in in all() {
            let decoded = wit_component::decode(built_in.component).unwrap();
            let wit_component::DecodedWasm::Component(resolve, world) = decoded else {
                panic!("{} is no component", built_in.name)
            };
            let exports: Vec<_> = resolve.worlds[world].exports.keys().map(|key| resolve.name_world_key(key)).collect();
            assert!(
                exports.iter().any(|name| name == "pointsman:policy/policy@0.1.0"),
                "{}: {exports:?}",
                built_in.name
            );
            let stage = |name: &str| {
                name.starts_with("pointsman:policy/worker-") || name == "pointsman:policy/request-classifier@0.1.0"
            };
            let stages = exports.iter().filter(|name| stage(name));
            assert!(stages.count() > 0, "{}: {exports:?}", built_in.name);
        }
    }

    #[test]
    fn names_are_unique_and_found() {
        assert!(all().is_sorted_by(|left, right| left.name < right.name));
        for built_in in all() {
            assert_eq!(get(built_in.name).unwrap().component, built_in.component);
        }
        assert!(get("default").is_none(), "`default` is the host's own policy");
    }
}
