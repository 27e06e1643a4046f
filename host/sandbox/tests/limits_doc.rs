//! The tables of docs/limits.md are those of the code. `cargo xtask limits-doc` writes them anew: it runs this test with
//! `POINTSMAN_WRITE_DOCS` set.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use pointsman_sandbox::*;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/limits.md");

/// The tables by the names of their marks on the page.
fn tables() -> [(&'static str, String); 3] {
    [("limits", LIMITS), ("bounds", LOAD_BOUNDS), ("compilation", COMPILE_LIMITS)].map(|(name, rows)| {
        let rows = rows.iter().map(|row| {
            let numbers = [row.compact, row.engine, row.most].map(grouped);
            [vec![code(row.key)], numbers.into(), vec![row.meaning.into(), ends_in(row.ends_in)]].concat()
        });
        (name, table(&["key", "compact", "engine", "most", "what it bounds", "ends in"], rows))
    })
}

fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let head: Vec<String> = head.iter().map(|&name| name.to_owned()).collect();
    let rows = rows.into_iter().map(|row| line(&row));
    line(&head) + &format!("|{}\n", "---|".repeat(head.len())) + &rows.collect::<String>()
}

fn code(name: &str) -> String {
    format!("`{name}`")
}

/// The number in groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().map(|group| str::from_utf8(group).unwrap()).collect();
    groups.join(",")
}

/// The name of an outcome, of a step of loading or of a failure to compile, or words.
fn ends_in(end: &str) -> String {
    let mut names = Outcome::ALL.iter().map(|outcome| outcome.as_str()).chain(LoadStep::ALL.map(LoadStep::as_str));
    let name = names.any(|name| name == end) || ["compile-memory", "compile-timeout"].contains(&end);
    if name { code(end) } else { end.to_owned() }
}

/// The page with that table between its marks.
fn with_table(page: &str, name: &str, table: &str) -> String {
    let (open, close) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let marks = page.split_once(&open).and_then(|(before, rest)| Some((before, rest.split_once(&close)?.1)));
    let (before, after) = marks.unwrap_or_else(|| panic!("docs/limits.md has no marks {open}and {close}"));
    format!("{before}{open}{table}{close}{after}")
}

#[test]
fn docs_limits_has_the_tables_of_the_code() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let written = tables().iter().fold(page.clone(), |page, (name, table)| with_table(&page, name, table));
    if std::env::var_os("POINTSMAN_WRITE_DOCS").is_some() {
        std::fs::write(PAGE, written).unwrap();
    } else {
        assert_eq!(page, written, "docs/limits.md is out of date; run `cargo xtask limits-doc`");
    }
}

#[test]
fn what_a_limit_ends_in_is_an_outcome_or_one_of_few_words() {
    for row in LIMITS.iter().chain(LOAD_BOUNDS).chain(COMPILE_LIMITS) {
        let known = ends_in(row.ends_in).starts_with('`') || ["cut", "dropped", "a new guest"].contains(&row.ends_in);
        assert!(known, "{row:?}");
    }
}
