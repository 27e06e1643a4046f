//! The file of `pointsman policy run --table`: one decision's facts, texts and workers, in JSON or YAML.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;

use pointsman_contract::{Partition, Role, RouterConfig, missing};
use pointsman_routing::{DEFAULT, GivenTable, WorkerKey};
use serde::Deserialize;

use super::table_check;
use crate::error::CliError;

/// The largest table, in bytes.
const MOST_BYTES: u64 = 64 << 20;

/// A table file, read and checked.
#[derive(Debug)]
pub(super) struct TableFile {
    pub(super) partition: Partition,
    pub(super) router_config: RouterConfig,
    pub(super) table: GivenTable,
}

/// A number; null is the missing value.
type Number = Option<f64>;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct File {
    pub(super) partition: PartitionFields,
    pub(super) router_config: RouterFields,
    pub(super) facts: BTreeMap<String, Number>,
    pub(super) texts: BTreeMap<String, String>,
    pub(super) workers: Vec<Worker>,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PartitionFields {
    model: String,
    routing_group: String,
    role: String,
    block_size: u32,
    seed: u32,
}

impl Default for PartitionFields {
    fn default() -> Self {
        Self {
            model: DEFAULT.to_owned(),
            routing_group: DEFAULT.to_owned(),
            role: Role::default().as_str().to_owned(),
            block_size: 16,
            seed: 0,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RouterFields {
    overlap_score_credit: Number,
    overlap_score_credit_decay: Number,
    prefill_load_scale: Number,
    decode_active_request_weight: Number,
    host_cache_hit_weight: Number,
    disk_cache_hit_weight: Number,
    shared_cache_multiplier: Number,
    router_temperature: Number,
    conditional_disaggregation: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Worker {
    worker: u64,
    #[serde(default)]
    rank: u32,
    #[serde(default)]
    signals: BTreeMap<String, Number>,
}

impl TableFile {
    /// Reads a file of at most 64 MiB, JSON or YAML.
    pub(super) fn read(path: &Path) -> Result<Self, CliError> {
        let failed = |source| CliError::Read { path: path.to_owned(), source };
        let wrong = |message| CliError::Table { file: path.display().to_string(), message };
        let mut bytes = Vec::new();
        fs::File::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes)).map_err(failed)?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(wrong(format!("a table has at most {MOST_BYTES} bytes and this has more; make it smaller")));
        }
        let text =
            String::from_utf8(bytes).map_err(|_| wrong("the table is not UTF-8 text; save it as UTF-8".to_owned()))?;
        Self::parse(text.strip_prefix('\u{feff}').unwrap_or(&text)).map_err(wrong)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let value = table_check::read(text)?;
        // The check leaves nothing to complain of.
        serde_json::from_value::<File>(value).map_err(|error| error.to_string())?.check()
    }
}

impl File {
    pub(super) fn check(self) -> Result<TableFile, String> {
        let PartitionFields { model, routing_group, role, block_size, seed } = self.partition;
        if block_size == 0 {
            return Err("partition.block_size is 0; give the tokens of one KV block, such as 16".to_owned());
        }
        let role = role.parse().map_err(|message| format!("partition.role: {message}"))?;
        let partition = Partition { model, routing_group, role, block_size, seed };
        let router_config = self.router_config.check()?;
        let worker = |Worker { worker, rank, signals }| (WorkerKey { worker, rank }, numbers(signals));
        let workers = self.workers.into_iter().map(worker).collect();
        let table = GivenTable { facts: numbers(self.facts), texts: self.texts.into_iter().collect(), workers };
        Ok(TableFile { partition, router_config, table })
    }
}

fn numbers<C: FromIterator<(String, f64)>>(values: BTreeMap<String, Number>) -> C {
    values.into_iter().map(|(name, value)| (name, value.unwrap_or(missing()))).collect()
}

impl RouterFields {
    /// The contract's rules: all are finite and at least 0, weights and multipliers of cache tiers at most 1.
    fn check(self) -> Result<RouterConfig, String> {
        let default = RouterConfig::default();
        let field = |name: &str, value: Number, default: f64, most: f64| match value {
            None => Ok(default),
            Some(value) if value.is_finite() && (0.0..=most).contains(&value) => Ok(value),
            Some(value) if most.is_finite() => {
                Err(format!("router_config.{name} is {value}; give a number from 0 to {most}"))
            }
            Some(value) => Err(format!("router_config.{name} is {value}; give a finite number of at least 0")),
        };
        let any = f64::INFINITY;
        Ok(RouterConfig {
            overlap_score_credit: field(
                "overlap_score_credit",
                self.overlap_score_credit,
                default.overlap_score_credit,
                any,
            )?,
            overlap_score_credit_decay: field(
                "overlap_score_credit_decay",
                self.overlap_score_credit_decay,
                default.overlap_score_credit_decay,
                any,
            )?,
            prefill_load_scale: field("prefill_load_scale", self.prefill_load_scale, default.prefill_load_scale, any)?,
            decode_active_request_weight: field(
                "decode_active_request_weight",
                self.decode_active_request_weight,
                default.decode_active_request_weight,
                any,
            )?,
            host_cache_hit_weight: field(
                "host_cache_hit_weight",
                self.host_cache_hit_weight,
                default.host_cache_hit_weight,
                1.0,
            )?,
            disk_cache_hit_weight: field(
                "disk_cache_hit_weight",
                self.disk_cache_hit_weight,
                default.disk_cache_hit_weight,
                1.0,
            )?,
            shared_cache_multiplier: field(
                "shared_cache_multiplier",
                self.shared_cache_multiplier,
                default.shared_cache_multiplier,
                1.0,
            )?,
            router_temperature: field("router_temperature", self.router_temperature, default.router_temperature, any)?,
            conditional_disaggregation: self.conditional_disaggregation,
        })
    }
}
