//! Unit tests of a policy with plain `cargo test`.
//!
//! ```
//! # use pointsman_sdk::prelude::*;
//! # struct LeastLoaded;
//! # impl Policy for LeastLoaded {
//! #     type Parameters = NoParameters;
//! #     const NAME: &'static str = "least-loaded";
//! #     const DESCRIPTION: &'static str = "Takes the worker with the fewest active requests.";
//! #     fn configure(_: &Setup, _: NoParameters) -> Result<Self, PolicyError> {
//! #         Ok(Self)
//! #     }
//! # }
//! # impl RowScorer for LeastLoaded {
//! #     fn reads(&self) -> Reads {
//! #         Reads::LOAD
//! #     }
//! #     fn score(&mut self, _: &Request<'_>, row: Row<'_>) -> Result<f64, PolicyError> {
//! #         Ok(row.load()?.active_requests())
//! #     }
//! # }
//! # pointsman_sdk::export!(LeastLoaded: scorer);
//! use pointsman_sdk::testkit::{Kit, Table};
//!
//! let mut kit = Kit::<LeastLoaded>::new().configure().unwrap();
//! let table = Table::new().row(&[("load.active-requests", 3.0)]).row(&[("load.active-requests", 1.0)]);
//! assert_eq!(kit.score(&table).unwrap(), [3.0, 1.0]);
//! assert_eq!(kit.decide(&table).unwrap().unwrap().row, 1);
//! ```
//!
//! As in production, a stage is sent what it declared and nothing else; what the table leaves out is missing, or 0
//! where the vocabulary says so. Nothing is derived: a table that sets `load.active-requests` alone has
//! `load.available` 0.

mod classify;

use std::fmt;
use std::ops::Range;

use pointsman_contract::{
    COST, Fact, Inputs, Manifest, Partition, Reads, Role, RouterConfig, Selection, Signal, Text, missing,
};

use crate::Exported;
use crate::log::Level;
use crate::native::{Call, HEARD, NativeGuest, NativePolicy, native};

/// One request and the workers that may serve it, by the contract's names.
#[derive(Clone, Debug, Default)]
pub struct Table {
    facts: Vec<(String, f64)>,
    texts: Vec<(String, String)>,
    rows: Vec<Row>,
}

#[derive(Clone, Debug)]
struct Row {
    worker: u32,
    signals: Vec<(String, f64)>,
}

impl Table {
    /// A request of which nothing is known, and no worker.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a fact, such as `request.prompt-tokens`.
    #[must_use]
    pub fn fact(mut self, name: &str, value: f64) -> Self {
        self.facts.retain(|(known, _)| known != name);
        self.facts.push((name.to_owned(), value));
        self
    }

    /// Sets a text, such as `session.id`.
    #[must_use]
    pub fn text(mut self, name: &str, value: &str) -> Self {
        self.texts.retain(|(known, _)| known != name);
        self.texts.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the rows of the soft affinity target; empty for a target without a row here.
    #[must_use]
    pub fn affinity_target(self, rows: Range<usize>) -> Self {
        let first = if rows.is_empty() { missing() } else { rows.start as f64 };
        self.fact(Fact::AffinityFirst.name(), first).fact(Fact::AffinityRows.name(), rows.len() as f64)
    }

    /// Adds a worker with its signals; `cost` is what a picker called alone sees. The worker's number is the row's.
    #[must_use]
    pub fn row(self, signals: &[(&str, f64)]) -> Self {
        let worker = self.rows.len() as u32;
        self.row_of(worker, signals)
    }

    /// Adds a worker of that number, for policies that remember workers.
    #[must_use]
    pub fn row_of(mut self, worker: u32, signals: &[(&str, f64)]) -> Self {
        let signals = signals.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        self.rows.push(Row { worker, signals });
        self
    }

    /// The number of workers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no worker.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Refuses what the contract has no name for, so that a typing error does not read as a missing value.
    fn check(&self) -> Result<(), String> {
        if self.rows.is_empty() {
            return Err("the table has no row; a host calls no stage of worker selection without one".to_owned());
        }
        self.check_names()
    }

    fn check_names(&self) -> Result<(), String> {
        let unknown = |kind: &str, name: &str| Err(format!("the table's {kind} `{name}` is not in the contract"));
        if let Some((name, _)) = self.facts.iter().find(|(name, _)| Fact::from_name(name).is_none()) {
            return unknown("fact", name);
        }
        if let Some((name, _)) = self.texts.iter().find(|(name, _)| !is_text(name)) {
            return unknown("text", name);
        }
        let mut signals = self.rows.iter().flat_map(|row| &row.signals);
        match signals.find(|(name, _)| name != COST && !is_signal(name)) {
            Some((name, _)) => unknown("signal", name),
            None => Ok(()),
        }
    }

    /// The same request with some of the rows, the affinity target counted among them.
    fn narrowed(&self, rows: &[usize]) -> Self {
        let mut table = self.clone();
        table.rows = rows.iter().filter_map(|row| self.rows.get(*row).cloned()).collect();
        let fact = |fact: Fact| self.facts.iter().find(|(name, _)| name == fact.name()).map(|(_, value)| *value);
        if let (Some(first), Some(count)) = (fact(Fact::AffinityFirst), fact(Fact::AffinityRows))
            && !count.is_nan()
        {
            let is_target = |row: &usize| count > 0.0 && (first..first + count).contains(&(*row as f64));
            let start = rows.iter().position(is_target).unwrap_or(0);
            let count = rows.iter().filter(|row| is_target(row)).count();
            table = table.affinity_target(start..start + count);
        }
        table
    }

    fn with_costs(mut self, costs: &[f64]) -> Self {
        for (row, cost) in self.rows.iter_mut().zip(costs) {
            row.signals.retain(|(name, _)| name != COST);
            row.signals.push((COST.to_owned(), *cost));
        }
        self
    }

    /// What a host sends of this table to a stage that reads `reads`.
    fn packed(&self, reads: &Reads) -> Packed<'_> {
        fn find(values: &[(String, f64)], name: &str) -> Option<f64> {
            values.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
        }
        let mut numbers = Vec::new();
        for name in &reads.facts {
            let absent = Fact::from_name(name).map_or(missing(), Fact::absent);
            numbers.push(find(&self.facts, name).unwrap_or(absent));
        }
        let prompt = find(&self.facts, Fact::PromptTokens.name()).unwrap_or(Fact::PromptTokens.absent());
        for name in &reads.signals {
            let absent = if name == COST { 0.0 } else { missing() };
            numbers.extend(self.rows.iter().map(|row| match Signal::from_name(name) {
                Some(signal) => signal.of_given(prompt, |name| find(&row.signals, name)),
                None => find(&row.signals, name).unwrap_or(absent),
            }));
        }
        let text = |name: &String| self.texts.iter().find(|(known, _)| known == name).map(|(_, text)| text.as_str());
        Packed {
            rows: self.rows.len() as u32,
            numbers,
            workers: reads.workers.then(|| self.rows.iter().map(|row| row.worker).collect()),
            texts: (!reads.texts.is_empty()).then(|| reads.texts.iter().map(text).collect()),
        }
    }
}

fn is_signal(name: &str) -> bool {
    Signal::from_name(name).is_some() || name.starts_with("metric.") || name.starts_with("label.")
}

fn is_text(name: &str) -> bool {
    Text::from_name(name).is_some() || name.starts_with("header.")
}

struct Packed<'a> {
    rows: u32,
    numbers: Vec<f64>,
    workers: Option<Vec<u32>>,
    texts: Option<Vec<Option<&'a str>>>,
}

impl Packed<'_> {
    fn call(&self) -> Call<'_> {
        Call { rows: self.rows, numbers: &self.numbers, workers: self.workers.as_deref(), texts: self.texts.as_deref() }
    }
}

/// How a policy is to be configured.
#[derive(Clone, Debug)]
pub struct Kit<P> {
    partition: Partition,
    router_config: RouterConfig,
    parameters: String,
    policy: std::marker::PhantomData<fn() -> P>,
}

impl<P: Exported> Default for Kit<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Exported> Kit<P> {
    /// An aggregated partition `default`/`default` with blocks of 16 tokens and seed 0, Dynamo's router settings, no
    /// parameters.
    #[must_use]
    pub fn new() -> Self {
        Self {
            partition: Partition {
                model: "default".to_owned(),
                routing_group: "default".to_owned(),
                role: Role::Aggregated,
                block_size: 16,
                seed: 0,
            },
            router_config: RouterConfig::default(),
            parameters: "{}".to_owned(),
            policy: std::marker::PhantomData,
        }
    }

    /// The whole partition.
    #[must_use]
    pub fn partition(mut self, partition: Partition) -> Self {
        self.partition = partition;
        self
    }

    /// What the partition's workers do.
    #[must_use]
    pub fn role(mut self, role: Role) -> Self {
        self.partition.role = role;
        self
    }

    /// Tokens per KV block.
    #[must_use]
    pub fn block_size(mut self, block_size: u32) -> Self {
        self.partition.block_size = block_size;
        self
    }

    /// The seed of the policy's randomness.
    #[must_use]
    pub fn seed(mut self, seed: u32) -> Self {
        self.partition.seed = seed;
        self
    }

    /// The router's settings.
    #[must_use]
    pub fn router_config(mut self, config: RouterConfig) -> Self {
        self.router_config = config;
        self
    }

    /// The parameters, a JSON object.
    #[must_use]
    pub fn parameters(mut self, json: &str) -> Self {
        json.clone_into(&mut self.parameters);
        self
    }

    /// What the policy says of itself.
    #[must_use]
    pub fn manifest(&self) -> Manifest {
        native::<P>().manifest()
    }

    /// Configures the policy.
    ///
    /// # Errors
    /// The policy's own sentence, or that it reads a name that no contract has.
    pub fn configure(&self) -> Result<Guest, String> {
        let build = || native::<P>().configure(&self.partition, &self.router_config, &self.parameters);
        let guest = build()?;
        let inputs = guest.inputs();
        for (reads, classifier) in
            [(&inputs.filter, false), (&inputs.score, false), (&inputs.pick, false), (&inputs.classify, true)]
        {
            let Some(reads) = reads else { continue };
            let facts =
                reads.facts.iter().filter_map(|name| Fact::from_name(name)).map(|fact| (fact.name(), fact.reader()));
            let texts =
                reads.texts.iter().filter_map(|name| Text::from_name(name)).map(|text| (text.name(), text.reader()));
            if let Some((name, _)) = facts.chain(texts).find(|(_, reader)| !reader.includes(classifier)) {
                let who = if classifier { "a classifier" } else { "a stage of worker selection" };
                return Err(format!("`{name}` is not for {who} to read"));
            }
            if let Some(name) = reads.signals.iter().find(|name| *name != COST && !is_signal(name)) {
                return Err(format!("unknown signal `{name}`; the contract's, `metric.` and `label.` names are known"));
            }
            if let Some(name) = reads.texts.iter().find(|name| !is_text(name)) {
                return Err(format!("unknown text `{name}`; the contract's and `header.` names are known"));
            }
        }
        Ok(Guest { guest, twin: build()?, messages: Vec::new() })
    }
}

/// A configured policy under test.
///
/// It is two guests of one setup that are called alike, so that a policy whose answers depend on anything but its calls
/// fails its tests. In [`decide`](Self::decide) one runs the stages one by one and the other all in one crossing.
pub struct Guest {
    guest: Box<dyn NativeGuest>,
    twin: Box<dyn NativeGuest>,
    messages: Vec<(Level, String)>,
}

impl Guest {
    /// What each stage reads.
    #[must_use]
    pub fn inputs(&self) -> &Inputs {
        self.guest.inputs()
    }

    /// What the policy has logged, oldest first.
    #[must_use]
    pub fn messages(&self) -> &[(Level, String)] {
        &self.messages
    }

    /// Runs the filter and answers the rows that it keeps.
    ///
    /// # Errors
    /// The policy's own sentence, or that the table names what no contract has.
    ///
    /// # Panics
    /// Where two guests of the same setup answer differently.
    pub fn filter(&mut self, table: &Table) -> Result<Vec<usize>, String> {
        table.check()?;
        let packed = table.packed(&self.inputs().filter.clone().unwrap_or_default());
        self.both(|guest| kept_rows(guest, &packed))
    }

    /// Runs the scorer and answers a cost a row, NaN where it wrote none.
    ///
    /// # Errors
    /// The policy's own sentence, or that the table names what no contract has.
    ///
    /// # Panics
    /// Where two guests of the same setup answer differently.
    pub fn score(&mut self, table: &Table) -> Result<Vec<f64>, String> {
        table.check()?;
        let packed = table.packed(&self.inputs().score.clone().unwrap_or_default());
        let costs = self.both(|guest| {
            let mut costs = Vec::new();
            guest.score(&packed.call(), &mut costs)?;
            Ok(costs.into_iter().map(f64::to_bits).collect::<Vec<_>>())
        });
        costs.map(|costs| costs.into_iter().map(f64::from_bits).collect())
    }

    /// Runs the picker on the signals `cost` of the table, 0 where a row has none.
    ///
    /// # Errors
    /// The policy's own sentence, or that the table names what no contract has.
    ///
    /// # Panics
    /// Where two guests of the same setup answer differently.
    pub fn pick(&mut self, table: &Table) -> Result<usize, String> {
        table.check()?;
        let packed = table.packed(&self.inputs().pick.clone().unwrap_or_default());
        self.both(|guest| guest.pick(&packed.call())).map(|row| row as usize)
    }

    /// Runs the whole policy as a host does: the filter, the scorer on the rows kept, the picker on their costs, or the
    /// lowest cost. None where the filter kept no row. A cost that is not finite ends the decision with that row and
    /// cost, and a picked row that there is not is [`u32::MAX`]: a host refuses both.
    ///
    /// # Errors
    /// The policy's own sentence, or that the table names what no contract has.
    ///
    /// # Panics
    /// Where the stages in one crossing answer otherwise than one by one.
    pub fn decide(&mut self, table: &Table) -> Result<Option<Selection>, String> {
        table.check()?;
        let stepwise = self.listen(|this| step_by_step(&mut *this.guest, table));
        if self.guest.stages().select {
            let names = union(self.twin.inputs());
            let at_once = self.twin.select(&table.packed(&names).call());
            assert_same(&at_once, &stepwise, "all stages in one crossing answer otherwise than one by one");
        } else {
            let twin = step_by_step(&mut *self.twin, table);
            assert_same(&twin, &stepwise, "two guests of the same setup answer differently");
        }
        stepwise
    }

    fn both<T: PartialEq + fmt::Debug>(
        &mut self,
        run: impl Fn(&mut dyn NativeGuest) -> Result<T, String>,
    ) -> Result<T, String> {
        let answer = self.listen(|this| run(&mut *this.guest));
        assert_eq!(answer, run(&mut *self.twin), "two guests of the same setup answer differently");
        answer
    }

    /// Keeps what the policy logs on the way.
    fn listen<T>(&mut self, run: impl FnOnce(&mut Self) -> T) -> T {
        HEARD.set(Some(Vec::new()));
        let answer = run(self);
        self.messages.extend(HEARD.take().into_iter().flatten());
        answer
    }
}

type Decision = Result<Option<Selection>, String>;

/// Compares by bits, since a cost may be NaN.
fn assert_same(left: &Decision, right: &Decision, message: &str) {
    let key = |decision: &Decision| match decision {
        Ok(selection) => Ok(selection.map(|selection| (selection.row, selection.cost.to_bits()))),
        Err(error) => Err(error.clone()),
    };
    assert_eq!(key(left), key(right), "{message}");
}

fn kept_rows(guest: &mut dyn NativeGuest, packed: &Packed<'_>) -> Result<Vec<usize>, String> {
    let mut kept = Vec::new();
    guest.keep(&packed.call(), &mut kept)?;
    Ok(kept.iter().enumerate().filter(|(_, kept)| **kept).map(|(row, _)| row).collect())
}

fn step_by_step(guest: &mut dyn NativeGuest, table: &Table) -> Decision {
    let (stages, inputs) = (guest.stages(), guest.inputs().clone());
    let mut rows: Vec<usize> = (0..table.len()).collect();
    if stages.filter {
        rows = kept_rows(guest, &table.packed(&inputs.filter.unwrap_or_default()))?;
        if rows.is_empty() {
            return Ok(None);
        }
    }
    let original = |row: usize| rows.get(row).map_or(u32::MAX, |row| *row as u32);
    let survivors = table.narrowed(&rows);
    let mut costs = vec![0.0; rows.len()];
    if stages.score {
        guest.score(&survivors.packed(&inputs.score.unwrap_or_default()).call(), &mut costs)?;
        if let Some(row) = costs.iter().position(|cost| !cost.is_finite()) {
            return Ok(Some(Selection { row: original(row), cost: costs[row] }));
        }
    }
    let row = if stages.pick {
        guest.pick(&survivors.with_costs(&costs).packed(&inputs.pick.unwrap_or_default()).call())? as usize
    } else {
        crate::lowest(&costs).unwrap_or(0)
    };
    Ok(Some(Selection { row: original(row), cost: costs.get(row).copied().unwrap_or(0.0) }))
}

/// The names of all stages, each once, at its first mention, without `cost`.
fn union(inputs: &Inputs) -> Reads {
    let mut union = Reads::default();
    for reads in [&inputs.filter, &inputs.score, &inputs.pick].into_iter().flatten() {
        for (all, names) in
            [(&mut union.facts, &reads.facts), (&mut union.texts, &reads.texts), (&mut union.signals, &reads.signals)]
        {
            for name in names {
                if name != COST && !all.contains(name) {
                    all.push(name.clone());
                }
            }
        }
        union.workers |= reads.workers;
    }
    union
}
