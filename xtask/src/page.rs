//! What is written into a page of the documentation: tables between marks, the day and the machine; and who measures it.

use std::error::Error;
use std::fs;
use std::process::Command;

/// A call of the cargo that runs the chore.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// The page with other text between the marks of that name.
pub(crate) fn replace(page: &str, name: &str, text: &str) -> Result<String, Box<dyn Error>> {
    let (open, close) = (format!("<!-- {name} -->"), format!("<!-- end of {name} -->"));
    let marks = page.split_once(&open).and_then(|(before, rest)| Some((before, rest.split_once(&close)?.1)));
    let (before, after) = marks.ok_or_else(|| format!("the page has no marks {open} and {close}"))?;
    Ok(format!("{before}{open}\n{text}\n{close}{after}"))
}

/// The day and the machine, for a reader who compares.
pub(crate) fn machine() -> Result<String, Box<dyn Error>> {
    let date = Command::new("date").arg("+%Y-%m-%d").output()?;
    let date = String::from_utf8(date.stdout)?;
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("an unnamed processor", |(_, model)| model);
    let threads = std::thread::available_parallelism()?;
    Ok(format!("Measured on {} on {model}, {threads} threads, shared with other machines.", date.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_lands_between_its_marks_and_a_missing_mark_is_named() {
        let page = "a\n<!-- x -->\nold\n<!-- end of x -->\nb\n";
        assert_eq!(replace(page, "x", "new").unwrap(), "a\n<!-- x -->\nnew\n<!-- end of x -->\nb\n");
        assert!(replace(page, "y", "new").unwrap_err().to_string().contains("<!-- y -->"));
    }
}
