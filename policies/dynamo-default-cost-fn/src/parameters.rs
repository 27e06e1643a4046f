//! The parameters, each in place of a setting of the router.

use pointsman_sdk::RouterConfig;
use pointsman_sdk::prelude::*;

/// The parameters. What is left out is the router's setting.
#[derive(Clone, Debug, Default, Parameters)]
pub struct Parameters {
    /// Credit of one device-resident overlap block, in blocks; 0 leaves the cache out.
    #[parameter(min = 0.0, rule = "finite and non-negative")]
    pub overlap_score_credit: Option<f64>,
    /// How fast the credit decays with a worker's prefill load above the least loaded one's; 0 turns it off.
    #[parameter(min = 0.0, rule = "finite and non-negative")]
    pub overlap_score_credit_decay: Option<f64>,
    /// Weight of the prefill blocks.
    #[parameter(min = 0.0, rule = "finite and non-negative")]
    pub prefill_load_scale: Option<f64>,
    /// Weight of one active request, in blocks.
    #[parameter(min = 0.0, rule = "finite and non-negative")]
    pub decode_active_request_weight: Option<f64>,
    /// Credit of a host-memory overlap block.
    #[parameter(min = 0.0, rule = "finite and non-negative")]
    pub host_cache_hit_weight: Option<f64>,
    /// Credit of a disk overlap block.
    #[parameter(min = 0.0, rule = "finite and non-negative")]
    pub disk_cache_hit_weight: Option<f64>,
    /// Credit of a shared-cache block past the device's prefix.
    #[parameter(min = 0.0, rule = "finite and non-negative")]
    pub shared_cache_multiplier: Option<f64>,
    /// Softmax temperature; 0 takes the lowest cost.
    #[parameter(min = 0.0, rule = "finite and non-negative")]
    pub router_temperature: Option<f64>,
}

/// What the policy goes by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weights {
    pub(crate) overlap_score_credit: f64,
    pub(crate) overlap_score_credit_decay: f64,
    pub(crate) prefill_load_scale: f64,
    pub(crate) decode_active_request_weight: f64,
    pub(crate) host_cache_hit_weight: f64,
    pub(crate) disk_cache_hit_weight: f64,
    pub(crate) shared_cache_multiplier: f64,
    pub(crate) router_temperature: f64,
}

impl Weights {
    /// Whether what weighs anything is what does by the router's own settings.
    pub(crate) fn are_usual(&self) -> bool {
        let weighs = [
            self.overlap_score_credit,
            self.prefill_load_scale,
            self.host_cache_hit_weight,
            self.disk_cache_hit_weight,
        ];
        let further = [self.shared_cache_multiplier, self.decode_active_request_weight];
        let decays = self.overlap_score_credit_decay > 0.0;
        !decays && weighs.iter().all(|weight| *weight != 0.0) && further.iter().all(|weight| *weight == 0.0)
    }
}

impl Parameters {
    pub(crate) fn resolve(&self, config: &RouterConfig) -> Weights {
        Weights {
            overlap_score_credit: self.overlap_score_credit.unwrap_or(config.overlap_score_credit),
            overlap_score_credit_decay: self.overlap_score_credit_decay.unwrap_or(config.overlap_score_credit_decay),
            prefill_load_scale: self.prefill_load_scale.unwrap_or(config.prefill_load_scale),
            decode_active_request_weight: self
                .decode_active_request_weight
                .unwrap_or(config.decode_active_request_weight),
            host_cache_hit_weight: self.host_cache_hit_weight.unwrap_or(config.host_cache_hit_weight),
            disk_cache_hit_weight: self.disk_cache_hit_weight.unwrap_or(config.disk_cache_hit_weight),
            shared_cache_multiplier: self.shared_cache_multiplier.unwrap_or(config.shared_cache_multiplier),
            router_temperature: self.router_temperature.unwrap_or(config.router_temperature),
        }
    }
}

#[cfg(test)]
mod tests {
    use pointsman_sdk::testkit::{Kit, Table};

    use super::*;
    use crate::DynamoDefaultCostFn;

    const NAMES: [&str; 8] = [
        "overlap_score_credit",
        "overlap_score_credit_decay",
        "prefill_load_scale",
        "decode_active_request_weight",
        "host_cache_hit_weight",
        "disk_cache_hit_weight",
        "shared_cache_multiplier",
        "router_temperature",
    ];

    fn refusal(parameters: &str) -> Option<String> {
        Kit::<DynamoDefaultCostFn>::new().parameters(parameters).configure().err()
    }

    #[test]
    fn each_must_be_finite_and_non_negative() {
        for name in NAMES {
            assert_eq!(
                refusal(&format!(r#"{{"{name}":-0.5}}"#)),
                Some(format!("{name} must be finite and non-negative"))
            );
            assert_eq!(refusal(&format!(r#"{{"{name}":0}}"#)), None);
        }
        assert_eq!(
            refusal(r#"{"host_cache_hit_weight":1e999}"#).as_deref(),
            Some("host_cache_hit_weight: the number 1e999 is too large")
        );
    }

    #[test]
    fn another_key_is_refused_with_the_list() {
        let message = refusal(r#"{"overlap_credit":1}"#).unwrap();
        assert!(message.starts_with("unknown parameter `overlap_credit`; use "), "{message}");
        assert!(NAMES.iter().all(|name| message.contains(&format!("`{name}`"))), "{message}");
    }

    #[test]
    fn a_wrong_type_names_the_key() {
        let message = refusal(r#"{"router_temperature":"hot"}"#).unwrap();
        assert!(message.starts_with("router_temperature: "), "{message}");
    }

    #[test]
    fn the_schema_lists_every_parameter() {
        let schema = Kit::<DynamoDefaultCostFn>::new().manifest().parameters_schema;
        assert!(NAMES.iter().all(|name| schema.contains(&format!("\"{name}\""))), "{schema}");
    }

    #[test]
    fn a_parameter_replaces_the_routers_setting() {
        let config = RouterConfig { decode_active_request_weight: 2.0, ..RouterConfig::default() };
        let table = Table::new().row(&[("load.active-requests", 3.0)]);
        let cost = |parameters: &str| {
            let kit = Kit::<DynamoDefaultCostFn>::new().router_config(config).parameters(parameters);
            kit.configure().unwrap().score(&table).unwrap()
        };
        assert_eq!(cost("{}"), [6.0]);
        assert_eq!(cost(r#"{"decode_active_request_weight":1}"#), [3.0]);
    }
}
