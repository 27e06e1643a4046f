//! The component: the contract's bindings, and their implementation by the one guest of the component. The stages, which
//! are called for every decision, are in [`stages`](crate::stages).
//!
//! Each interface has a world of its own, so that [`export!`](crate::export!) exports any set of them; `wit-component`
//! merges the worlds when it encodes the component.
#![allow(
    unsafe_code,
    unreachable_pub,
    missing_docs,
    clippy::allow_attributes_without_reason,
    reason = "wit-bindgen expands to unsafe and undocumented code"
)]

use std::cell::RefCell;

use pointsman_contract as contract;

use crate::guest::{Exported, Guest, manifest};
use crate::log::Level;
use crate::stages::Answer;
use crate::{PolicyError, Setup};

/// The bindings of one interface. The worlds are ours; the interfaces are those of `wit/`.
macro_rules! bindings {
    ($module:ident, $world:literal) => {
        pub mod $module {
            wit_bindgen::generate!({
                path: "../../wit",
                inline: "
                    package pointsman:sdk;
                    world exports-policy { export pointsman:policy/policy@0.1.0; }
                    world exports-filter { export pointsman:policy/worker-filter@0.1.0; }
                    world exports-scorer { export pointsman:policy/worker-scorer@0.1.0; }
                    world exports-picker { export pointsman:policy/worker-picker@0.1.0; }
                    world exports-selector { export pointsman:policy/worker-selector@0.1.0; }
                    world exports-classifier { export pointsman:policy/request-classifier@0.1.0; }
                    world imports-log { import pointsman:policy/log@0.1.0; }
                ",
                world: $world,
                pub_export_macro: true,
                generate_all,
            });
        }
    };
}

bindings!(policy, "pointsman:sdk/exports-policy");
bindings!(filter, "pointsman:sdk/exports-filter");
bindings!(scorer, "pointsman:sdk/exports-scorer");
bindings!(picker, "pointsman:sdk/exports-picker");
bindings!(selector, "pointsman:sdk/exports-selector");
bindings!(classifier, "pointsman:sdk/exports-classifier");
bindings!(logging, "pointsman:sdk/imports-log");

use self::policy::exports::pointsman::policy::policy as exported;
use self::policy::pointsman::policy::types;

/// Where the guest of a component lives once it is configured, and what its stages answered last.
pub struct Slot<P: Exported> {
    guest: RefCell<Option<Guest<P>>>,
    pub(crate) answer: Answer,
}

impl<P: Exported> Slot<P> {
    pub const fn empty() -> Self {
        Self { guest: RefCell::new(None), answer: Answer::new() }
    }

    fn configure(&self, setup: &Setup, parameters: &str) -> Result<types::Inputs, String> {
        let mut slot = self.guest.borrow_mut();
        if slot.is_some() {
            return Err("the policy is configured already".to_owned());
        }
        Ok(inputs(slot.insert(Guest::configure(setup, parameters)?).inputs()))
    }

    #[inline]
    pub(crate) fn with<R>(&self, run: impl FnOnce(&mut Guest<P>) -> Result<R, PolicyError>) -> Result<R, String> {
        match &mut *self.guest.borrow_mut() {
            Some(guest) => run(guest).map_err(PolicyError::into),
            None => Err("the policy is not configured".to_owned()),
        }
    }
}

/// The component of a policy. The macro implements it, with a slot of the component's own.
pub trait Component {
    type Policy: Exported;
    fn with_slot<R>(run: impl FnOnce(&Slot<Self::Policy>) -> R) -> R;
}

impl<C: Component> exported::Guest for C {
    fn describe() -> types::Manifest {
        let contract::Manifest { name, version, description, parameters_schema } = manifest::<C::Policy>();
        types::Manifest { name, version, description, parameters_schema }
    }

    fn configure(
        partition: types::Partition,
        config: types::RouterConfig,
        parameters: String,
    ) -> Result<types::Inputs, String> {
        let setup = Setup {
            partition: contract::Partition {
                model: partition.model,
                routing_group: partition.routing_group,
                role: match partition.role {
                    types::Role::Aggregated => contract::Role::Aggregated,
                    types::Role::Prefill => contract::Role::Prefill,
                    types::Role::Decode => contract::Role::Decode,
                    types::Role::Encode => contract::Role::Encode,
                },
                block_size: partition.block_size,
                seed: partition.seed,
            },
            router_config: contract::RouterConfig {
                overlap_score_credit: config.overlap_score_credit,
                overlap_score_credit_decay: config.overlap_score_credit_decay,
                prefill_load_scale: config.prefill_load_scale,
                decode_active_request_weight: config.decode_active_request_weight,
                host_cache_hit_weight: config.host_cache_hit_weight,
                disk_cache_hit_weight: config.disk_cache_hit_weight,
                shared_cache_multiplier: config.shared_cache_multiplier,
                router_temperature: config.router_temperature,
                conditional_disaggregation: config.conditional_disaggregation,
            },
        };
        C::with_slot(|slot| slot.configure(&setup, &parameters))
    }
}

fn inputs(inputs: contract::Inputs) -> types::Inputs {
    fn reads(reads: Option<contract::Reads>) -> Option<types::Reads> {
        reads.map(|contract::Reads { facts, texts, signals, workers }| types::Reads { facts, texts, signals, workers })
    }
    types::Inputs {
        filter: reads(inputs.filter),
        score: reads(inputs.score),
        pick: reads(inputs.pick),
        exclusive_affinity: inputs.exclusive_affinity,
        classify: reads(inputs.classify),
        tick_ms: inputs.tick_ms,
    }
}

pub(crate) fn log(level: Level, message: &str) {
    use self::logging::pointsman::policy::log::{Level as Imported, log};
    let level = match level {
        Level::Error => Imported::Error,
        Level::Warn => Imported::Warn,
        Level::Info => Imported::Info,
        Level::Debug => Imported::Debug,
        Level::Trace => Imported::Trace,
    };
    log(level, message);
}
