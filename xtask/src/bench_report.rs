//! Runs every bench and writes what it printed into docs/performance.md, between the marks that name it.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use crate::page::{cargo, machine, replace};

/// One bench.
struct Bench {
    /// Its marks on the page.
    name: &'static str,
    /// What cargo is told, in the folder `dynamo`.
    arguments: &'static [&'static str],
    /// Whether it closes with promises.
    promises: bool,
}

/// A bench of the package pointsman-bench.
macro_rules! bench {
    ($name:literal) => {
        Bench {
            name: $name,
            arguments: &["run", "--quiet", "--profile", "bench", "--package", "pointsman-bench", $name],
            promises: true,
        }
    };
}

/// The benches, in the order of the page.
const BENCHES: [Bench; 5] = [
    bench!("decision"),
    Bench {
        name: "plugin",
        arguments: &["bench", "--quiet", "--package", "pointsman-dynamo", "--bench", "selection"],
        promises: false,
    },
    bench!("crossing"),
    bench!("guests"),
    bench!("throughput"),
];

/// What opens the table of promises at the end of a bench's output.
const PROMISES: &str = "| what | measured | bound |  |";

pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("this crate is not in the repository's root")?;
    let page = root.join("docs/performance.md");
    let mut text = fs::read_to_string(&page).map_err(|error| format!("{}: {error}", page.display()))?;
    let mut promises = format!("{PROMISES}\n|---|---|---|---|\n");
    for Bench { name, arguments, promises: promising } in BENCHES {
        eprintln!("{name} ...");
        let output = measure(root, name, arguments)?;
        let (tables, kept) = match output.split_once(PROMISES) {
            Some(parts) => parts,
            None if promising => return Err(format!("{name} printed no promises").into()),
            None => (&*output, ""),
        };
        promises.extend(kept.lines().filter(|line| line.starts_with("| ")).map(|line| format!("{line}\n")));
        text = replace(&text, name, tables.trim())?;
    }
    text = replace(&text, "promises", promises.trim_end())?;
    text = replace(&text, "machine", &machine()?)?;
    fs::write(&page, text)?;
    eprintln!("wrote {}", page.display());
    Ok(())
}

/// What a bench prints.
fn measure(root: &Path, bench: &str, arguments: &[&str]) -> Result<String, Box<dyn Error>> {
    let output = cargo().args(arguments).current_dir(root.join("dynamo")).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("the bench {bench} failed; its message is above").into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_place_for_every_bench() {
        let page = include_str!("../../docs/performance.md");
        for name in BENCHES.map(|bench| bench.name).into_iter().chain(["promises", "machine"]) {
            assert!(replace(page, name, "").is_ok(), "{name}");
        }
    }
}
