//! A policy's Rust crate becomes a WebAssembly component: cargo compiles it for `wasm32-unknown-unknown`, then
//! wit-component wraps the module.
//!
//! A crate built with `pointsman-sdk` and one that calls wit-bindgen itself on `wit/policy.wit` are the same to it: the
//! contract's types travel inside the module.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod cargo;
mod component;
mod entry;
mod error;

use std::path::{Path, PathBuf};

pub use component::{add_section, encode};
pub use error::BuildError;

/// The target that policies are compiled for.
pub const TARGET: &str = "wasm32-unknown-unknown";

/// Which packages to build.
#[derive(Clone, Debug)]
enum Selection {
    Package,
    Below(PathBuf),
}

/// One build: which crates, with which profile, into which target folder.
#[derive(Clone, Debug)]
pub struct Build {
    dir: PathBuf,
    selection: Selection,
    profile: String,
    target_dir: Option<PathBuf>,
    nested: bool,
}

/// A built policy.
#[derive(Clone, Debug)]
pub struct Built {
    /// The package's name.
    pub package: String,
    /// The core module that cargo wrote.
    pub module: PathBuf,
    /// The component's bytes, validated.
    pub component: Vec<u8>,
}

impl Build {
    /// The one package whose `Cargo.toml` is in `dir`, built with cargo's profile `release`.
    pub fn package(dir: impl Into<PathBuf>) -> Self {
        Self::new(dir.into(), Selection::Package)
    }

    /// Every package of the workspace at `dir` that lies in the folder `below` and has a cdylib target, in one call of
    /// cargo, built with the profile `release`.
    pub fn packages_below(dir: impl Into<PathBuf>, below: impl Into<PathBuf>) -> Self {
        Self::new(dir.into(), Selection::Below(below.into()))
    }

    fn new(dir: PathBuf, selection: Selection) -> Self {
        Self { dir, selection, profile: "release".to_owned(), target_dir: None, nested: false }
    }

    /// The cargo profile to build with.
    #[must_use]
    pub fn profile(mut self, profile: impl Into<String>) -> Self {
        self.profile = profile.into();
        self
    }

    /// The target folder; cargo's own choice where it is not set.
    #[must_use]
    pub fn target_dir(mut self, target_dir: impl Into<PathBuf>) -> Self {
        self.target_dir = Some(target_dir.into());
        self
    }

    /// Runs inside a build script: what the outer cargo set for its own build (flags, target, clippy's wrapper) is kept
    /// from the inner one. Needs a target folder of its own, since the outer cargo holds the lock of its.
    #[must_use]
    pub fn nested(mut self) -> Self {
        self.nested = true;
        self
    }

    /// Compiles and wraps. Blocks until cargo ends; cargo's messages go to standard error.
    ///
    /// The module may use simd128: `-C target-feature=+simd128` is added to the flags in `RUSTFLAGS`,
    /// `CARGO_ENCODED_RUSTFLAGS` or cargo's `target.wasm32-unknown-unknown.rustflags`; as everywhere in cargo,
    /// `build.rustflags` does not count beside these.
    ///
    /// # Errors
    /// Where cargo or the target is missing, `dir` has no such package, a package has no cdylib target, the crate does
    /// not compile, or its module is not a policy.
    pub fn run(&self) -> Result<Vec<Built>, BuildError> {
        let packages = self.selected()?;
        cargo::check_target(&self.dir, self.nested)?;
        let modules = cargo::build(self, &packages)?;
        let mut built = Vec::with_capacity(packages.len());
        for package in packages {
            let module =
                modules.get(&package.id).ok_or_else(|| BuildError::NoModule { package: package.name.clone() })?;
            let component = component::encode_file(&package.name, module)?;
            built.push(Built { package: package.name, module: module.clone(), component });
        }
        Ok(built)
    }

    /// The packages to build, by name.
    fn selected(&self) -> Result<Vec<cargo::Package>, BuildError> {
        let dir = self.dir.as_path();
        if !dir.join("Cargo.toml").is_file() {
            return Err(BuildError::NoCargoToml { dir: dir.to_owned() });
        }
        let packages = cargo::packages(dir, self.nested)?;
        let mut selected: Vec<_> = match &self.selection {
            Selection::Package => {
                let package = packages.iter().find(|package| same_folder(&package.folder, dir));
                let package = package.ok_or_else(|| BuildError::NoPackage {
                    dir: dir.to_owned(),
                    members: packages.iter().map(|package| package.name.clone()).collect(),
                })?;
                if !package.cdylib {
                    return Err(BuildError::NoCdylib {
                        package: package.name.clone(),
                        manifest: package.folder.join("Cargo.toml"),
                    });
                }
                vec![package.clone()]
            }
            Selection::Below(below) => {
                let below = canonical(below);
                packages
                    .into_iter()
                    .filter(|package| package.cdylib && canonical(&package.folder).starts_with(&below))
                    .collect()
            }
        };
        selected.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(selected)
    }
}

fn same_folder(left: &Path, right: &Path) -> bool {
    canonical(left) == canonical(right)
}

fn canonical(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}
