//! One configured policy, and the order in which its stages run. The component and the native guest are both this.

use pointsman_contract::{Fact, Inputs, Manifest, Selection, Stages, missing};

use crate::choose::lowest;
use crate::classifier::{Classify, Reactor};
use crate::lanes::{all_finite, blank};
use crate::layout::{Places, Stage, Table};
use crate::parameters;
use crate::view::{Candidates, Request, target};
use crate::{Policy, PolicyError, Reads, Setup};

/// A policy together with the stages that [`export!`](crate::export!) lists. The macro implements it.
pub trait Exported: Policy {
    /// The version of the policy's crate.
    const VERSION: &'static str;
    /// The stages listed.
    const STAGES: Stages;

    #[doc(hidden)]
    type Reactor: Reactor<Self>;

    #[doc(hidden)]
    fn filter_reads(&self) -> Reads {
        Reads::NONE
    }

    #[doc(hidden)]
    fn scorer_reads(&self) -> Reads {
        Reads::NONE
    }

    #[doc(hidden)]
    fn picker_reads(&self) -> Reads {
        Reads::NONE
    }

    #[doc(hidden)]
    fn run_filter(&mut self, _: &Request<'_>, _: &Candidates<'_>, _: &mut [bool]) -> Result<(), PolicyError> {
        Err(PolicyError::failed("the policy has no filter"))
    }

    #[doc(hidden)]
    fn run_scorer(&mut self, _: &Request<'_>, _: &Candidates<'_>, _: &mut [f64]) -> Result<(), PolicyError> {
        Err(PolicyError::failed("the policy has no scorer"))
    }

    #[doc(hidden)]
    fn run_picker(&mut self, _: &Request<'_>, _: &Candidates<'_>) -> Result<usize, PolicyError> {
        Err(PolicyError::failed("the policy has no picker"))
    }
}

/// What the policy says of itself.
pub(crate) fn manifest<P: Exported>() -> Manifest {
    Manifest {
        name: P::NAME.to_owned(),
        version: P::VERSION.to_owned(),
        description: P::DESCRIPTION.to_owned(),
        parameters_schema: parameters::schema::<P::Parameters>(),
    }
}

/// One configured policy, with the buffers of its decisions.
pub(crate) struct Guest<P: Exported> {
    policy: P,
    block_size: u32,
    filter: Stage,
    score: Stage,
    pick: Stage,
    /// What `select` is sent: the names of all stages.
    union: Places,
    /// What the scorer and the picker read of the union.
    later: Later,
    kept: Vec<bool>,
    /// The rows kept, where they are fewer than the rows sent.
    rows: Vec<usize>,
    survivors: Survivors,
    costs: Vec<f64>,
    classify: Classify<P::Reactor>,
}

/// The part of the union that has to be narrowed to the filter's survivors.
struct Later {
    columns: Vec<usize>,
    workers: bool,
    /// The places of the two affinity facts.
    affinity: Option<(usize, usize)>,
}

/// The survivors of the filter, laid out as the union is. Columns that only the filter reads are left unwritten: no
/// later layout has a place for them.
#[derive(Default)]
struct Survivors {
    numbers: Vec<f64>,
    workers: Vec<u32>,
}

impl<P: Exported> Guest<P> {
    /// Reads the parameters, builds the policy and asks what each of its stages reads.
    pub(crate) fn configure(setup: &Setup, parameters: &str) -> Result<Self, PolicyError> {
        let policy = P::configure(setup, parameters::parse(parameters)?)?;
        let (filter, score, pick) = (policy.filter_reads(), policy.scorer_reads(), policy.picker_reads());
        for (stage, reads) in [("filter", &filter), ("scorer", &score)] {
            if reads.has_cost() {
                return Err(PolicyError::failed(format!("the {stage} reads `cost`, which is for a picker alone")));
            }
        }
        let union = Places::of([&filter, &score, &pick]);
        let [filter, score, pick] = [filter, score, pick].map(|reads| Stage::new(reads, &union));
        Ok(Self {
            block_size: setup.partition.block_size,
            classify: Classify::configure(&policy)?,
            later: Later::new(&union, &score, &pick),
            policy,
            filter,
            score,
            pick,
            union,
            kept: Vec::new(),
            rows: Vec::new(),
            survivors: Survivors::default(),
            costs: Vec::new(),
        })
    }

    pub(crate) fn inputs(&self) -> Inputs {
        Inputs {
            filter: self.filter.names(),
            score: self.score.names(),
            pick: self.pick.names(),
            exclusive_affinity: self.policy.exclusive_affinity(),
            classify: self.classify.stage().names(),
            tick_ms: self.classify.tick_ms(),
        }
    }

    /// The policy, its classifier and the block size.
    pub(crate) const fn classifier(&mut self) -> (&mut P, &mut Classify<P::Reactor>, u32) {
        (&mut self.policy, &mut self.classify, self.block_size)
    }

    pub(crate) fn keep(&mut self, table: Table<'_>, kept: &mut Vec<bool>) -> Result<(), PolicyError> {
        table.check(&self.filter.alone, 0)?;
        kept.clear();
        kept.resize(table.rows, false);
        let layout = self.filter.alone();
        let request = Request::new(table, layout, self.block_size);
        self.policy.run_filter(&request, &Candidates::new(&request, None), kept)
    }

    pub(crate) fn score(&mut self, table: Table<'_>, costs: &mut Vec<f64>) -> Result<(), PolicyError> {
        table.check(&self.score.alone, 0)?;
        blank(costs, table.rows);
        let layout = self.score.alone();
        let request = Request::new(table, layout, self.block_size);
        self.policy.run_scorer(&request, &Candidates::new(&request, None), costs)
    }

    pub(crate) fn pick(&mut self, table: Table<'_>) -> Result<u32, PolicyError> {
        let reads_cost = self.pick.reads.has_cost();
        table.check(&self.pick.alone, usize::from(reads_cost))?;
        // The costs are the last column.
        let costs = table.numbers.split_at(table.numbers.len().saturating_sub(table.rows)).1;
        let layout = self.pick.alone();
        let request = Request::new(table, layout, self.block_size);
        let candidates = Candidates::new(&request, reads_cost.then_some(costs));
        let row = self.policy.run_picker(&request, &candidates)?;
        Ok(u32::try_from(row).unwrap_or(u32::MAX))
    }

    /// The whole policy: filter, then scorer on the survivors, then picker on their costs.
    pub(crate) fn select(&mut self, table: Table<'_>) -> Result<Option<Selection>, PolicyError> {
        table.check(&self.union, 0)?;
        let Self { policy, block_size, filter, score, pick, union, later, kept, rows, survivors, costs, .. } = self;

        let mut left = table;
        if P::STAGES.filter {
            kept.clear();
            kept.resize(table.rows, false);
            let layout = filter.among();
            let request = Request::new(table, layout, *block_size);
            policy.run_filter(&request, &Candidates::new(&request, None), kept)?;
            match kept.iter().filter(|kept| **kept).count() {
                0 => return Ok(None),
                all if all == table.rows => {}
                _ => {
                    rows.clear();
                    rows.extend((0..).zip(kept.iter()).filter(|(_, kept)| **kept).map(|(row, _): (usize, _)| row));
                    left = survivors.narrow(table, kept, rows, later, union);
                }
            }
        }
        let original = |row: usize| {
            let row = if left.rows == table.rows { Some(row) } else { rows.get(row).copied() };
            row.filter(|row| *row < table.rows).and_then(|row| u32::try_from(row).ok()).unwrap_or(u32::MAX)
        };

        let mut request = Request::new(left, score.among(), *block_size);
        if P::STAGES.score {
            blank(costs, left.rows);
            policy.run_scorer(&request, &Candidates::new(&request, None), costs)?;
            if !all_finite(costs) {
                let bad = costs.iter().position(|cost| !cost.is_finite()).unwrap_or(0);
                return Ok(Some(Selection { row: original(bad), cost: costs.get(bad).copied().unwrap_or(f64::NAN) }));
            }
        } else if costs.len() != left.rows {
            costs.clear();
            costs.resize(left.rows, 0.0);
        }

        let row = if P::STAGES.pick {
            request.show(pick.among());
            let candidates = Candidates::new(&request, pick.reads.has_cost().then_some(costs.as_slice()));
            policy.run_picker(&request, &candidates)?
        } else {
            lowest(costs).unwrap_or(0)
        };
        Ok(Some(Selection { row: original(row), cost: costs.get(row).copied().unwrap_or(0.0) }))
    }
}

impl Later {
    fn new(union: &Places, score: &Stage, pick: &Stage) -> Self {
        let fact = |fact: Fact| score.among().fact(fact).or(pick.among().fact(fact));
        Self {
            columns: union.columns([&score.reads, &pick.reads]),
            workers: score.reads.has_workers() || pick.reads.has_workers(),
            affinity: fact(Fact::AffinityFirst).zip(fact(Fact::AffinityRows)),
        }
    }
}

impl Survivors {
    /// Gathers `rows`, those kept, and counts the affinity target's rows among them.
    fn narrow<'a>(
        &'a mut self,
        table: Table<'a>,
        kept: &[bool],
        rows: &[usize],
        later: &Later,
        union: &Places,
    ) -> Table<'a> {
        let [before, _, signals] = union.counts.map(usize::from);
        let count = rows.len();
        self.numbers.clear();
        self.numbers.extend(table.numbers.iter().take(before));
        self.numbers.resize(before + signals * count, 0.0);
        for column in &later.columns {
            let (from, to) = (before + column * table.rows, before + column * count);
            let (Some(from), Some(to)) =
                (table.numbers.get(from..from + table.rows), self.numbers.get_mut(to..to + count))
            else {
                continue;
            };
            for (to, row) in to.iter_mut().zip(rows) {
                *to = from.get(*row).copied().unwrap_or(f64::NAN);
            }
        }
        self.workers.clear();
        if later.workers {
            self.workers.extend(rows.iter().filter_map(|row| table.workers.get(*row)));
        }
        if let Some((first, count)) = later.affinity {
            self.recount(first, count, kept);
        }
        Table { rows: count, numbers: &self.numbers, workers: &self.workers, texts: table.texts }
    }

    fn recount(&mut self, first: usize, count: usize, kept: &[bool]) {
        let (Some(old_first), Some(old_count)) = (self.numbers.get(first).copied(), self.numbers.get(count).copied())
        else {
            return;
        };
        if old_count.is_nan() {
            return;
        }
        let old = target(old_first, old_count, kept.len());
        let before = kept.iter().take(old.start).filter(|kept| **kept).count();
        let within = kept.iter().take(old.end).skip(old.start).filter(|kept| **kept).count();
        for (place, value) in [(first, if within == 0 { missing() } else { before as f64 }), (count, within as f64)] {
            if let Some(number) = self.numbers.get_mut(place) {
                *number = value;
            }
        }
    }
}
