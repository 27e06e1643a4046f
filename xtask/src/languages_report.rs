//! Measures the same scorer in each language with `pointsman policy bench`, and writes the table of docs/languages.md.

use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::page::{cargo, machine, replace};

/// Each language, and its scorer: the built-in policy, or the folder in which an SDK's example is built.
const SCORERS: [(&str, &str); 5] = [
    ("Rust", "least-loaded-warm"),
    ("C", "target/languages/c"),
    ("Go", "target/languages/go"),
    ("JavaScript", "target/languages/js"),
    ("Python", "target/languages/python"),
];
/// The numbers of workers that the table shows, of those that are measured.
const ROWS: [u64; 3] = [1, 16, 64];

pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("this crate is not in the repository's root")?;
    let page = root.join("docs/languages.md");
    let text = fs::read_to_string(&page).map_err(|error| format!("{}: {error}", page.display()))?;
    SCORERS.iter().try_for_each(|(_, folder)| copy_example(root, folder))?;
    let mut bench = cargo();
    bench.args(["run", "--quiet", "--", "policy", "bench", "--json"]).args(SCORERS.map(|(_, scorer)| scorer));
    // What was compiled before would show no time.
    bench.current_dir(root).env_remove("POINTSMAN_COMPILE_CACHE").stderr(Stdio::inherit());
    let output = bench.output()?;
    if !output.status.success() {
        return Err("the examples were not measured; the messages are above".into());
    }
    let measured: Vec<Value> = serde_json::from_slice(&output.stdout)?;
    let text = replace(&text, "measured", &table(&measured)?)?;
    fs::write(&page, replace(&text, "machine", &machine()?)?)?;
    eprintln!("wrote {}", page.display());
    Ok(())
}

/// An example is built outside its SDK, as an author's policy is.
fn copy_example(root: &Path, folder: &str) -> Result<(), Box<dyn Error>> {
    let Some(language) = folder.strip_prefix("target/languages/") else { return Ok(()) };
    fs::create_dir_all(root.join(folder))?;
    for entry in fs::read_dir(root.join("guest-sdk").join(language).join("examples/least-loaded-warm"))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), root.join(folder).join(entry.file_name()))?;
        }
    }
    Ok(())
}

fn table(measured: &[Value]) -> Result<String, Box<dyn Error>> {
    let mut table = "| language | component | compile | start | memory | imports |".to_owned();
    ROWS.iter().for_each(|rows| _ = write!(table, " {rows} workers |"));
    table += " fuel of the last |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|";
    for (language, scorer) in SCORERS {
        let found = measured.iter().find(|one| one["policy"] == scorer);
        let found = found.ok_or_else(|| format!("{scorer} was not measured"))?;
        let number = |key: &str| found[key].as_f64().ok_or_else(|| format!("{scorer} has no {key}"));
        let (kb, mib) = (number("bytes")? / 1e3, number("memory_bytes")? / f64::from(1 << 20));
        let (ms, us, imports) = (number("compile_ms")?, number("start_us")?, number("imports")?);
        let _ = write!(table, "\n| {language} | {kb:.0} kB | {ms:.0} ms | {us:.0} µs | {mib:.1} MiB | {imports} |");
        let mut fuel = 0.0;
        for rows in ROWS {
            let mut decisions = found["decisions"].as_array().into_iter().flatten();
            let decision = decisions.find(|one| one["rows"] == rows);
            let of = |key: &str| decision.and_then(|one| one[key].as_f64());
            let us = of("us").ok_or_else(|| format!("{scorer} was not measured over {rows} workers"))?;
            fuel = of("fuel").unwrap_or_default();
            let _ = write!(table, " {us:.1} µs |");
        }
        let _ = write!(table, " {fuel} |");
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_language_that_was_not_measured_is_named() {
        let one = |policy: &str| {
            let decisions: Vec<Value> = ROWS.iter().map(|rows| json!({"rows": rows, "us": 2.04, "fuel": 70})).collect();
            json!({"policy": policy, "bytes": 12_345, "compile_ms": 9, "start_us": 80, "memory_bytes": 1_310_720,
                "imports": 1, "decisions": decisions})
        };
        let mut measured: Vec<Value> = SCORERS.iter().map(|(_, scorer)| one(scorer)).collect();
        let table = table(&measured).unwrap();
        assert!(
            table.contains("\n| Go | 12 kB | 9 ms | 80 µs | 1.2 MiB | 1 | 2.0 µs | 2.0 µs | 2.0 µs | 70 |"),
            "{table}"
        );
        measured.pop();
        let error = super::table(&measured).unwrap_err().to_string();
        assert_eq!(error, "target/languages/python was not measured");
    }

    #[test]
    fn the_page_has_a_place_for_the_table() {
        let page = include_str!("../../docs/languages.md");
        assert!(replace(page, "measured", "").is_ok() && replace(page, "machine", "").is_ok());
    }
}
