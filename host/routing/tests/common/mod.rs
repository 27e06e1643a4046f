//! A scripted native policy that records what it is sent.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "test support")]

use std::sync::{Arc, Mutex};

use pointsman_contract::{Inputs, Manifest, Partition, Reads, RouterConfig, Selection, Stages};
use pointsman_routing::{InstanceSpec, Provider, Router, WorkerConfig};
use pointsman_sdk::native::{Call, NativeGuest, NativePolicy};

/// One call as it arrived: the stage and the arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub stage: &'static str,
    pub rows: u32,
    pub numbers: Vec<f64>,
    pub workers: Option<Vec<u32>>,
    pub texts: Option<Vec<Option<String>>>,
}

type Keep = dyn Fn(u32, &[f64]) -> Result<Vec<bool>, String> + Send + Sync;
type Score = dyn Fn(u32, &[f64]) -> Result<Vec<f64>, String> + Send + Sync;
type Pick = dyn Fn(u32, &[f64]) -> Result<u32, String> + Send + Sync;

/// A policy made of closures over (rows, numbers).
#[derive(Clone, Default)]
pub struct Script {
    pub inputs: Inputs,
    keep: Option<Arc<Keep>>,
    score: Option<Arc<Score>>,
    pick: Option<Arc<Pick>>,
    seen: Arc<Mutex<Vec<Seen>>>,
    built: Arc<Mutex<Vec<(Partition, String)>>>,
}

pub fn reads(facts: &[&str], texts: &[&str], signals: &[&str]) -> Reads {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Reads { facts: owned(facts), texts: owned(texts), signals: owned(signals), workers: false }
}

impl Script {
    pub fn keeping(
        mut self,
        reads: Reads,
        keep: impl Fn(u32, &[f64]) -> Result<Vec<bool>, String> + Send + Sync + 'static,
    ) -> Self {
        self.inputs.filter = Some(reads);
        self.keep = Some(Arc::new(keep));
        self
    }

    pub fn scoring(
        mut self,
        reads: Reads,
        score: impl Fn(u32, &[f64]) -> Result<Vec<f64>, String> + Send + Sync + 'static,
    ) -> Self {
        self.inputs.score = Some(reads);
        self.score = Some(Arc::new(score));
        self
    }

    pub fn picking(
        mut self,
        reads: Reads,
        pick: impl Fn(u32, &[f64]) -> Result<u32, String> + Send + Sync + 'static,
    ) -> Self {
        self.inputs.pick = Some(reads);
        self.pick = Some(Arc::new(pick));
        self
    }

    pub fn exclusive(mut self) -> Self {
        self.inputs.exclusive_affinity = true;
        self
    }

    /// The calls since the last time, oldest first.
    pub fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }

    /// The partitions and parameters that it was configured with.
    pub fn built(&self) -> Vec<(Partition, String)> {
        self.built.lock().unwrap().clone()
    }

    fn see(&self, stage: &'static str, call: &Call<'_>) {
        let texts = call.texts.map(|texts| texts.iter().map(|text| text.map(str::to_owned)).collect());
        let (rows, numbers, workers) = (call.rows, call.numbers.to_vec(), call.workers.map(<[u32]>::to_vec));
        self.seen.lock().unwrap().push(Seen { stage, rows, numbers, workers, texts });
    }
}

impl NativePolicy for Script {
    fn manifest(&self) -> Manifest {
        Manifest { name: "script".to_owned(), ..Manifest::default() }
    }

    fn stages(&self) -> Stages {
        let (filter, score, pick) = (self.keep.is_some(), self.score.is_some(), self.pick.is_some());
        Stages { filter, score, pick, ..Stages::default() }
    }

    fn configure(
        &self,
        partition: &Partition,
        _: &RouterConfig,
        parameters: &str,
    ) -> Result<Box<dyn NativeGuest>, String> {
        self.built.lock().unwrap().push((partition.clone(), parameters.to_owned()));
        Ok(Box::new(self.clone()))
    }
}

impl NativeGuest for Script {
    fn inputs(&self) -> &Inputs {
        &self.inputs
    }

    fn stages(&self) -> Stages {
        NativePolicy::stages(self)
    }

    fn keep(&mut self, call: &Call<'_>, kept: &mut Vec<bool>) -> Result<(), String> {
        self.see("filter", call);
        *kept = self.keep.as_ref().unwrap()(call.rows, call.numbers)?;
        Ok(())
    }

    fn score(&mut self, call: &Call<'_>, costs: &mut Vec<f64>) -> Result<(), String> {
        self.see("score", call);
        *costs = self.score.as_ref().unwrap()(call.rows, call.numbers)?;
        Ok(())
    }

    fn pick(&mut self, call: &Call<'_>) -> Result<u32, String> {
        self.see("pick", call);
        self.pick.as_ref().unwrap()(call.rows, call.numbers)
    }

    fn select(&mut self, _: &Call<'_>) -> Result<Option<Selection>, String> {
        Err("a script has no selector".to_owned())
    }
}

/// A router that serves every partition with the script.
pub fn router(script: &Script) -> Router {
    Router::builder()
        .register("script", Provider::native(script.clone()))
        .serve(InstanceSpec::new("script"))
        .build()
        .unwrap()
}

/// Workers of one rank each.
pub fn workers(ids: impl IntoIterator<Item = u64>) -> impl Iterator<Item = WorkerConfig> {
    ids.into_iter().map(WorkerConfig::new)
}
