//! A core module becomes a component.
//!
//! What a language's libc or runtime imports of WASI is answered within the component, by `adapter.wat`: it has no clock
//! and no randomness of its own, and nothing of the host's but the policy's log.

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::project::Project;
use crate::{LanguageError, data, world};

const ADAPTER: &str = include_str!("adapter.wat");
const ADAPTER_WORLD: &str = "package pointsman:adapter;\n\nworld built {\n  import pointsman:policy/log@0.1.0;\n}\n";
const WASI: &str = "wasi_snapshot_preview1";

/// Wraps the module of a policy.
pub(crate) fn component(project: &Project, module: Vec<u8>) -> Result<Vec<u8>, LanguageError> {
    encode(module, &world::text(project)).map_err(|message| LanguageError::Encode {
        dir: project.dir.clone(),
        message: message.split_whitespace().collect::<Vec<_>>().join(" "),
    })
}

fn encode(module: Vec<u8>, world: &str) -> Result<Vec<u8>, String> {
    let adapter = wat::parse_str(ADAPTER).map_err(|error| error.to_string())?;
    let adapter = with_world(adapter, ADAPTER_WORLD)?;
    let module = with_world(data::merged(module), world)?;
    ComponentEncoder::default()
        .validate(true)
        .adapter(WASI, &adapter)
        .and_then(|encoder| encoder.module(&module))
        .and_then(ComponentEncoder::encode)
        .map_err(|error| format!("{error:#}"))
}

/// The module with its world, as wit-component wants it.
fn with_world(mut module: Vec<u8>, world: &str) -> Result<Vec<u8>, String> {
    let mut resolve = Resolve::default();
    resolve.push_source("policy.wit", world::CONTRACT).map_err(|error| format!("{error:#}"))?;
    let package = resolve.push_source("world.wit", world).map_err(|error| format!("{error:#}"))?;
    let world = resolve.select_world(&[package], Some(world::NAME)).map_err(|error| format!("{error:#}"))?;
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8, false)
        .map_err(|error| format!("{error:#}"))?;
    Ok(module)
}
