//! Chores of this repository: `cargo xtask bench-report`, `cargo xtask languages-report` and `cargo xtask limits-doc`.

mod bench_report;
mod languages_report;
mod limits_doc;
mod page;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask bench-report      measures, and writes the tables of docs/performance.md
       cargo xtask languages-report  measures the examples in each language, and writes the table of docs/languages.md
       cargo xtask limits-doc        writes the tables of docs/limits.md";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["bench-report"] => bench_report::run(),
        ["languages-report"] => languages_report::run(),
        ["limits-doc"] => limits_doc::run(),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
