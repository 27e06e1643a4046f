//! One guest under a wasmtime of its own, whose settings the sandbox does not let anyone turn off.

use std::error::Error;

use pointsman_sandbox::Args;
use wasmtime::component::{Component, ComponentType, Lift, Linker, TypedFunc, Val};
use wasmtime::{Config, Engine, Store};

/// What is on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Fuel is counted.
    pub(crate) fuel: bool,
    /// Epochs interrupt.
    pub(crate) epochs: bool,
    /// NaNs are canonical.
    pub(crate) portable: bool,
}

#[derive(Clone, Copy, ComponentType, Lift)]
#[component(record)]
struct Selection {
    #[expect(dead_code, reason = "lifted, as in production, and not looked at")]
    row: u32,
    #[expect(dead_code, reason = "lifted, as in production, and not looked at")]
    cost: f64,
}

type Arguments<'a> = (u32, &'a [f64], Option<&'a [u32]>, Option<&'a [Option<String>]>);
type Select<'a> = TypedFunc<Arguments<'a>, (Result<Option<Selection>, String>,)>;

/// A configured guest.
pub(crate) struct Raw<'a> {
    store: Store<()>,
    select: Select<'a>,
    settings: Settings,
}

impl<'a> Raw<'a> {
    /// Compiles, instantiates and configures.
    ///
    /// # Errors
    /// Where the component is none of this contract, or refuses its parameters.
    pub(crate) fn new(component: &[u8], settings: Settings, parameters: &str) -> Result<Self, Box<dyn Error>> {
        let mut config = Config::new();
        config.concurrency_support(false).consume_fuel(settings.fuel).epoch_interruption(settings.epochs);
        config.cranelift_nan_canonicalization(settings.portable);
        let engine = Engine::new(&config)?;
        let component = Component::new(&engine, component)?;
        let mut store = Store::new(&engine, ());
        let mut linker = Linker::new(&engine);
        linker.define_unknown_imports_as_traps(&component)?;
        let instance = linker.instantiate(&mut store, &component)?;
        let find = |interface: &str, name: &str| {
            let interface = component.get_export_index(None, format!("pointsman:policy/{interface}@0.1.0"));
            interface.and_then(|interface| component.get_export_index(Some(&interface), name))
        };
        let configure = find("policy", "configure").ok_or("the component has no configure")?;
        let select = find("worker-selector", "select").ok_or("the component has no select")?;
        let configure = instance.get_func(&mut store, configure).ok_or("configure is no function")?;
        let mut guest = Self { select: instance.get_typed_func(&mut store, select)?, store, settings };
        guest.refill();
        let mut answer = [Val::Bool(false)];
        configure.call(&mut guest.store, &configuration(parameters), &mut answer)?;
        match &answer {
            [Val::Result(Ok(_))] => Ok(guest),
            other => Err(format!("the policy refused: {other:?}").into()),
        }
    }

    fn refill(&mut self) {
        if self.settings.fuel {
            // Fails only where fuel is off.
            let _ = self.store.set_fuel(100_000_000);
        }
        if self.settings.epochs {
            self.store.set_epoch_deadline(1_000);
        }
    }

    /// One call.
    ///
    /// # Panics
    /// Where the policy does not decide.
    pub(crate) fn select(&mut self, args: &'a Args) {
        self.refill();
        let arguments = (args.rows, args.numbers.as_slice(), args.workers.as_deref(), args.texts.as_deref());
        let (answer,) = self.select.call(&mut self.store, arguments).expect("no trap");
        assert!(matches!(answer, Ok(Some(_))), "the policy decides");
        if self.settings.fuel {
            std::hint::black_box(self.store.get_fuel().ok());
        }
    }
}

fn configuration(parameters: &str) -> [Val; 3] {
    let named = |fields: Vec<(&str, Val)>| {
        Val::Record(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    };
    let partition = named(vec![
        ("model", Val::String("model".into())),
        ("routing-group", Val::String("group".into())),
        ("role", Val::Enum("aggregated".into())),
        ("block-size", Val::U32(16)),
        ("seed", Val::U32(7)),
    ]);
    let weights = [
        "overlap-score-credit",
        "overlap-score-credit-decay",
        "prefill-load-scale",
        "decode-active-request-weight",
        "host-cache-hit-weight",
        "disk-cache-hit-weight",
        "shared-cache-multiplier",
        "router-temperature",
    ];
    let mut config: Vec<_> = weights.into_iter().map(|name| (name, Val::Float64(0.0))).collect();
    config.push(("conditional-disaggregation", Val::Bool(false)));
    [partition, named(config), Val::String(parameters.into())]
}
