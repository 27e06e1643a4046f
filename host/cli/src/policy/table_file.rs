//! The file of `pointsman policy run --table`: one decision's facts, texts and workers, in JSON or YAML.

use std::collections::BTreeMap;
use std::path::Path;

use pointsman_contract::{Partition, Role, RouterConfig, missing};
use pointsman_routing::{DEFAULT, GivenTable, WorkerKey};
use serde::Deserialize;

use crate::error::CliError;

/// A table file, read and checked.
#[derive(Debug)]
pub(super) struct TableFile {
    pub(super) partition: Partition,
    pub(super) router_config: RouterConfig,
    pub(super) table: GivenTable,
}

/// A number; null and `.nan` are the missing value.
type Number = Option<f64>;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    partition: PartitionFields,
    router_config: RouterFields,
    facts: BTreeMap<String, Number>,
    texts: BTreeMap<String, String>,
    workers: Vec<Worker>,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PartitionFields {
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
struct RouterFields {
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
struct Worker {
    worker: u64,
    #[serde(default)]
    rank: u32,
    #[serde(default)]
    signals: BTreeMap<String, Number>,
}

impl TableFile {
    /// Reads a file: JSON where it is JSON, else YAML.
    pub(super) fn read(path: &Path) -> Result<Self, CliError> {
        let text = std::fs::read_to_string(path).map_err(|source| CliError::Read { path: path.to_owned(), source })?;
        Self::parse(&text).map_err(|message| CliError::Table { file: path.display().to_string(), message })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let file: File = match serde_json::from_str(text) {
            Ok(file) => file,
            // What is meant as JSON shall hear JSON's own complaint.
            Err(error) if text.trim_start().starts_with('{') && error.is_data() => return Err(error.to_string()),
            Err(_) => serde_saphyr::from_str(text).map_err(|error| one_line(&error.to_string()))?,
        };
        file.check()
    }
}

impl File {
    fn check(self) -> Result<TableFile, String> {
        let PartitionFields { model, routing_group, role, block_size, seed } = self.partition;
        if block_size == 0 {
            return Err("partition.block_size is 0; give the tokens of one KV block, such as 16".to_owned());
        }
        let role = role.parse().map_err(|message| format!("partition.role: {message}"))?;
        let partition = Partition { model, routing_group, role, block_size, seed };
        let router_config = self.router_config.check()?;
        let facts =
            self.facts.into_iter().map(|(name, value)| number("facts", name, value)).collect::<Result<_, _>>()?;
        let worker = |(place, Worker { worker, rank, signals }): (usize, Worker)| {
            let place = format!("workers[{place}].signals");
            let signals = signals.into_iter().map(|(name, value)| number(&place, name, value));
            Ok((WorkerKey { worker, rank }, signals.collect::<Result<_, String>>()?))
        };
        let workers = self.workers.into_iter().enumerate().map(worker).collect::<Result<_, String>>()?;
        let table = GivenTable { facts, texts: self.texts.into_iter().collect(), workers };
        Ok(TableFile { partition, router_config, table })
    }
}

fn number(place: &str, name: String, value: Number) -> Result<(String, f64), String> {
    match value {
        Some(value) if value.is_infinite() => {
            Err(format!("{place}.{name} is infinite; give a finite number, or leave it out where it is missing"))
        }
        Some(value) if !value.is_nan() => Ok((name, value)),
        _ => Ok((name, missing())),
    }
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

/// The first line of a parser's message; the rest draws the place.
fn one_line(message: &str) -> String {
    message.lines().next().unwrap_or(message).trim_start_matches("error: ").to_owned()
}
