//! What the benches share: variants that run in turn, medians, and tables.
//!
//! A shared machine is noisy for seconds on end, which criterion's one-after-another runs turn into differences between
//! variants. Here every variant runs in every round, so that noise meets all of them, and ratios hold.

use std::hint::black_box;
use std::time::Instant;

/// Rounds that warm caches, buffers and branch predictors up before any is counted.
const WARM_UP: usize = 5;

/// One way to do the work that is compared; does it `times` times.
pub(crate) struct Variant<'a> {
    name: &'static str,
    run: Box<dyn FnMut(usize) + 'a>,
}

impl<'a> Variant<'a> {
    /// A variant whose `run(number)` does the work once; `number` counts up, so that inputs can take turns.
    pub(crate) fn new<T>(name: &'static str, mut run: impl FnMut(usize) -> T + 'a) -> Self {
        let mut number = 0;
        let run = move |times| {
            for _ in 0..times {
                black_box(run(black_box(number)));
                number += 1;
            }
        };
        Self { name, run: Box::new(run) }
    }
}

/// Medians of one comparison, in nanoseconds.
pub(crate) struct Medians(Vec<(&'static str, f64)>);

impl Medians {
    /// The median of that variant.
    ///
    /// # Panics
    /// Where there was no such variant.
    #[must_use]
    pub(crate) fn of(&self, name: &str) -> f64 {
        let found = self.0.iter().find(|(known, _)| *known == name);
        found.unwrap_or_else(|| panic!("no variant {name}")).1
    }

    /// The first median over the second.
    #[must_use]
    pub(crate) fn ratio(&self, name: &str, base: &str) -> f64 {
        self.of(name) / self.of(base)
    }
}

/// Runs all variants in turn, `rounds` times, each `batch` times a turn. Answers the medians of one time.
#[must_use]
pub(crate) fn compare(mut variants: Vec<Variant<'_>>, rounds: usize, batch: usize) -> Medians {
    let mut samples = vec![Vec::with_capacity(rounds); variants.len()];
    for round in 0..rounds + WARM_UP {
        for (samples, variant) in samples.iter_mut().zip(&mut variants) {
            let start = Instant::now();
            (variant.run)(batch);
            let nanos = start.elapsed().as_nanos() as f64 / batch as f64;
            if round >= WARM_UP {
                samples.push(nanos);
            }
        }
    }
    let names = variants.iter().map(|variant| variant.name);
    Medians(names.zip(samples.iter_mut().map(|samples| median(samples))).collect())
}

/// The middle value.
pub(crate) fn median(samples: &mut [f64]) -> f64 {
    samples.sort_unstable_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// Prints the head of a table in Markdown.
pub(crate) fn head(columns: &[&str]) {
    row(columns);
    println!("|{}", "---|".repeat(columns.len()));
}

/// Prints a row of a table in Markdown.
pub(crate) fn row<T: AsRef<str>>(cells: &[T]) {
    let cells: Vec<_> = cells.iter().map(AsRef::as_ref).collect();
    println!("| {} |", cells.join(" | "));
}

/// A row of the table of promises: what may not be more than `most`.
pub(crate) fn at_most(what: &str, measured: f64, most: f64) {
    promise(what, measured, measured <= most, &format!("≤ {most}"));
}

/// A row of the table of promises: what may not be less than `least`.
pub(crate) fn at_least(what: &str, measured: f64, least: f64) {
    promise(what, measured, measured >= least, &format!("≥ {least}"));
}

fn promise(what: &str, measured: f64, kept: bool, bound: &str) {
    row(&[what, &figure(measured), bound, if kept { "reached" } else { "**not reached**" }]);
}

/// The head of the table of promises.
pub(crate) fn promises() {
    println!();
    head(&["what", "measured", "bound", ""]);
}

/// A number with three significant digits or none after the point.
#[must_use]
pub(crate) fn figure(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
