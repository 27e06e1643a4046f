//! What a replay answers: the JSON report, the lines of decisions and the table for a terminal.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use serde::Serialize;

use crate::admission::{AdmissionReport, ClassReport};
use crate::metrics::{Milliseconds, PerDecision};
use crate::trace::{BLOCK_SIZE, Trace};

/// The whole report: the trace, and one run for each policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The trace.
    pub trace: TraceReport,
    /// The runs, in the order in which the policies were given.
    pub runs: Vec<RunReport>,
}

/// What the trace holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TraceReport {
    /// Requests.
    pub requests: u64,
    /// Prompts in blocks, summed over the requests.
    pub blocks: u64,
    /// Tokens a block.
    pub block_size: u32,
}

impl TraceReport {
    /// Of that trace.
    #[must_use]
    pub fn of(trace: &Trace) -> Self {
        Self { requests: trace.len() as u64, blocks: trace.blocks(), block_size: BLOCK_SIZE }
    }
}

/// The figures of one policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunReport {
    /// The policy's name.
    pub policy: String,
    /// Simulated workers, of both pools together.
    pub workers: u64,
    /// The router's seed.
    pub seed: u64,
    /// Requests of the trace: decided and rejected.
    pub requests: u64,
    /// Requests that got a worker (in each pool), by the policy or by the fallback.
    pub decided: u64,
    /// Requests that got none.
    pub rejected: u64,
    /// Decisions that the native default made because the policy failed.
    pub fallbacks: u64,
    /// Failures of the policy's calls by outcome. One decision may have several: a filter that fails is asked again.
    pub faults: BTreeMap<&'static str, u64>,
    /// Hit blocks over request blocks; a hit is a block of the leading run that the worker held at admission to
    /// prefill. None where the trace has no block ids.
    pub prefix_hit_rate: Option<f64>,
    /// Coefficient of variation of active requests across a pool's workers, averaged over the time in which there are
    /// any.
    pub load_cv: Option<f64>,
    /// From a request's arrival to the first token of its answer.
    pub ttft_ms: Milliseconds,
    /// From a request's arrival to the last token of its answer.
    pub latency_ms: Milliseconds,
    /// Decisions for each worker, by worker id.
    pub requests_per_worker: Vec<u64>,
    /// Wall-clock time of a decision, in microseconds.
    pub decision_us: PerDecision<f64>,
    /// Fuel of a decision; none for a policy that runs natively.
    pub fuel: Option<PerDecision<u64>>,
    /// SHA-256 over (index u64, worker id u64, dp rank u32), little-endian, of each decision of each decided request,
    /// by index, prefill before decode.
    pub decisions_sha256: String,
    /// What admission did; none where the router-policy file has nothing to admit by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission: Option<AdmissionReport>,
    /// Rejected requests by the name of the reason.
    #[serde(skip)]
    pub rejections: BTreeMap<&'static str, u64>,
}

/// One line of the file of decisions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DecisionLine<'a> {
    /// The policy's name.
    pub policy: &'a str,
    /// The request, counted from 0.
    pub index: u64,
    /// The role that was decided for.
    pub role: &'static str,
    /// The chosen worker; none for a rejected request.
    pub worker: Option<u64>,
    /// The chosen rank.
    pub rank: Option<u32>,
    /// The chosen row's cost.
    pub cost: Option<f64>,
    /// `ok`, the fault that a fallback made good, or why the request was rejected.
    pub outcome: &'static str,
}

const HEADERS: [[&str; 2]; 13] = [
    ["", "policy"],
    ["", "decided"],
    ["", "rejected"],
    ["", "fallbacks"],
    ["prefix", "hits %"],
    ["load", "CV"],
    ["TTFT ms", "mean"],
    ["", "p50"],
    ["", "p99"],
    ["latency ms", "mean"],
    ["", "p99"],
    ["decision us", "p50"],
    ["", "p99"],
];

impl fmt::Display for Report {
    /// A table of the runs, one a line, for a terminal. Below it, what was rejected and what failed, by name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TraceReport { requests, blocks, block_size } = self.trace;
        writeln!(f, "{requests} requests, {blocks} blocks of {block_size} tokens")?;
        let rows: Vec<_> = self.runs.iter().map(cells).collect();
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column).map(|cell| cell.chars().count()));
            let headers = HEADERS.get(column).into_iter().flatten().map(|header| header.len());
            cells.chain(headers).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..HEADERS.len()).map(width).collect();
        for line in 0..2 {
            let headers = HEADERS.iter().map(|header| header.get(line).copied().unwrap_or_default());
            write_row(f, headers, &widths)?;
        }
        for row in &rows {
            write_row(f, row.iter().map(String::as_str), &widths)?;
        }
        for run in &self.runs {
            for (what, counts) in [("rejected", &run.rejections), ("faults", &run.faults)] {
                if !counts.is_empty() {
                    let counts: Vec<String> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
                    writeln!(f, "{}: {what}: {}", run.policy, counts.join(", "))?;
                }
            }
            let Some(AdmissionReport { classified, classifier_faults, deferrals_expired, classes }) = &run.admission
            else {
                continue;
            };
            writeln!(
                f,
                "{}: classified {classified}, classifier faults {classifier_faults}, deferred too long {deferrals_expired}",
                run.policy
            )?;
            for ClassReport { name, dispatched, waited, wait_ms, share, .. } in classes {
                let ms = |value: Option<f64>| value.map_or("-".to_owned(), |ms| format!("{ms:.0}"));
                let share = share.map_or("-".to_owned(), |share| format!("{:.1}", share * 100.0));
                writeln!(
                    f,
                    "{}: class {name}: {dispatched} dispatched, {waited} waited, wait ms p50 {} p99 {}, {share} % of the prompt \
                     tokens",
                    run.policy,
                    ms(wait_ms.p50),
                    ms(wait_ms.p99)
                )?;
            }
        }
        Ok(())
    }
}

fn cells(run: &RunReport) -> [String; HEADERS.len()] {
    let decimal = |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
    let RunReport { ttft_ms, latency_ms, decision_us, .. } = run;
    [
        run.policy.clone(),
        run.decided.to_string(),
        run.rejected.to_string(),
        run.fallbacks.to_string(),
        decimal(run.prefix_hit_rate.map(|rate| rate * 100.0), 1),
        decimal(run.load_cv, 3),
        decimal(ttft_ms.mean, 0),
        decimal(ttft_ms.p50, 0),
        decimal(ttft_ms.p99, 0),
        decimal(latency_ms.mean, 0),
        decimal(latency_ms.p99, 0),
        decimal(decision_us.p50, 1),
        decimal(decision_us.p99, 1),
    ]
}

/// The first cell to the left, the others to the right.
fn write_row<'a>(f: &mut fmt::Formatter<'_>, cells: impl Iterator<Item = &'a str>, widths: &[usize]) -> fmt::Result {
    let mut line = String::new();
    for (place, (cell, width)) in cells.zip(widths).enumerate() {
        if place == 0 {
            write!(line, "{cell:<width$}")?;
        } else {
            write!(line, "  {cell:>width$}")?;
        }
    }
    writeln!(f, "{}", line.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(policy: &str) -> RunReport {
        RunReport {
            policy: policy.to_owned(),
            workers: 2,
            seed: 0,
            requests: 3,
            decided: 2,
            rejected: 1,
            fallbacks: 1,
            faults: BTreeMap::from([("trap", 1)]),
            prefix_hit_rate: Some(0.25),
            load_cv: Some(0.5),
            ttft_ms: Milliseconds { mean: Some(1.5), p50: Some(1.0), p90: Some(2.0), p99: Some(12_345.0) },
            latency_ms: Milliseconds::default(),
            requests_per_worker: vec![2, 0],
            decision_us: PerDecision { p50: Some(1.25), p99: None },
            fuel: None,
            decisions_sha256: "ab".to_owned(),
            admission: None,
            rejections: BTreeMap::from([("no-endpoints", 1)]),
        }
    }

    #[test]
    fn the_json_has_these_fields_in_this_order() {
        let trace = TraceReport { requests: 3, blocks: 4, block_size: 512 };
        let json = serde_json::to_string(&Report { trace, runs: vec![run("p")] }).unwrap();
        assert_eq!(
            json,
            r#"{"trace":{"requests":3,"blocks":4,"block_size":512},"runs":[{"policy":"p","workers":2,"seed":0,"requests":3,"decided":2,"rejected":1,"fallbacks":1,"faults":{"trap":1},"prefix_hit_rate":0.25,"load_cv":0.5,"ttft_ms":{"mean":1.5,"p50":1.0,"p90":2.0,"p99":12345.0},"latency_ms":{"mean":null,"p50":null,"p90":null,"p99":null},"requests_per_worker":[2,0],"decision_us":{"p50":1.25,"p99":null},"fuel":null,"decisions_sha256":"ab"}]}"#
        );
    }

    #[test]
    fn a_line_of_decisions_has_these_fields() {
        let line = DecisionLine {
            policy: "p",
            index: 7,
            role: "decode",
            worker: None,
            rank: None,
            cost: None,
            outcome: "no-endpoints",
        };
        assert_eq!(
            serde_json::to_string(&line).unwrap(),
            r#"{"policy":"p","index":7,"role":"decode","worker":null,"rank":null,"cost":null,"outcome":"no-endpoints"}"#
        );
    }

    #[test]
    fn the_table_is_aligned_and_names_what_went_wrong() {
        let trace = TraceReport { requests: 3, blocks: 4, block_size: 512 };
        let mut calm = run("a-longer-name");
        calm.rejections.clear();
        calm.faults.clear();
        let table = Report { trace, runs: vec![run("p"), calm] }.to_string();
        let expected = "\
3 requests, 4 blocks of 512 tokens
                                             prefix   load  TTFT ms              latency ms       decision us
policy         decided  rejected  fallbacks  hits %     CV     mean  p50    p99        mean  p99          p50  p99
p                    2         1          1    25.0  0.500        2    1  12345           -    -          1.2    -
a-longer-name        2         1          1    25.0  0.500        2    1  12345           -    -          1.2    -
p: rejected: 1 no-endpoints
p: faults: 1 trap
";
        assert_eq!(table, expected);
    }
}
