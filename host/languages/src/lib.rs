//! A policy in Rust, JavaScript, TypeScript, Python, Go or C becomes a WebAssembly component, with that language's own tools.
//!
//! The folder's `pointsman.yaml` names the language and the stages. The SDK of that language is part of this crate and is
//! laid into the folder, where the language's tools and editors find it.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod c;
mod data;
mod error;
mod go;
mod javascript;
mod module;
mod new;
mod project;
mod python;
mod rust;
mod sdk;
mod tools;
mod world;

pub use error::LanguageError;
pub use new::new;
pub use project::{Language, Project, Stage};
pub use tools::{COMPONENTIZE_JS, COMPONENTIZE_PY, COMPONENTIZE_QJS, ESBUILD, GO, Tool, ZIG};
