//! The call of a guest alone, beside the same function compiled natively, over the same columns.

use std::error::Error;

use crate::harness::{Medians, Variant, at_most, compare, figure, head, promises, row};
use crate::inputs::arguments;
use crate::raw::{Raw, Settings};
use pointsman_contract::{Partition, Role, RouterConfig};
use pointsman_sandbox::{Artifact, GuestSetup, GuestSlot, Limits, Profile, Sandbox, SandboxConfig};
use pointsman_sdk::native::{Call, NativePolicy, native};
use weighted_sum::WeightedSum;

const CROSSING: &str = "crossing";
const NATIVE: &str = "native";

/// Rounds where the command line says nothing.
pub(crate) const ROUNDS: usize = 60;

pub(crate) fn run(rounds: usize) -> Result<(), Box<dyn Error>> {
    println!("The weighted sum of the signals, the lowest taken; all limits on.\n");
    head(&[
        "signals",
        "rows",
        "crossing / native",
        "crossing, ns",
        "native, ns",
        "crossing, ns a row beyond the first",
        "fuel",
    ]);
    let mut promised = f64::NAN;
    for signals in [1, 4, 8] {
        let mut fixed = f64::NAN;
        for rows in [1, 32, 1_024, 10_000] {
            let (medians, fuel) = crossing(signals, rows, rounds)?;
            if rows == 1 {
                fixed = medians.of(CROSSING);
            }
            if (signals, rows) == (4, 1_024) {
                promised = medians.ratio(CROSSING, NATIVE);
            }
            let each =
                if rows == 1 { "".to_owned() } else { figure((medians.of(CROSSING) - fixed) / (rows - 1) as f64) };
            row(&[
                signals.to_string(),
                rows.to_string(),
                figure(medians.ratio(CROSSING, NATIVE)),
                figure(medians.of(CROSSING)),
                figure(medians.of(NATIVE)),
                each,
                fuel.to_string(),
            ]);
        }
    }
    println!("\nWhat each setting costs: the call under a wasmtime of its own, 4 signals, nanoseconds.\n");
    head(&["settings", "1 row", "32 rows", "1,024 rows", "10,000 rows"]);
    settings(rounds)?;
    promises();
    at_most("crossing / native function on the same columns, 1,024 rows, 4 signals", promised, 2.5);
    Ok(())
}

fn partition() -> Partition {
    let (model, routing_group) = ("model".to_owned(), "group".to_owned());
    Partition { model, routing_group, role: Role::Aggregated, block_size: 16, seed: 7 }
}

fn parameters(signals: usize) -> String {
    format!(r#"{{"signals":{signals}}}"#)
}

fn crossing(signals: usize, rows: usize, rounds: usize) -> Result<(Medians, u64), Box<dyn Error>> {
    let sandbox = Sandbox::new(SandboxConfig::default())?;
    let artifact = Artifact::from_bytes("weighted-sum", crate::WEIGHTED_SUM).trusted();
    let mut slot = GuestSlot::new(GuestSetup {
        policy: sandbox.load(&artifact, Profile::Compact)?,
        instance: "weighted-sum".to_owned(),
        partition: partition(),
        router_config: RouterConfig::default(),
        parameters: parameters(signals),
        limits: Limits::of(Profile::Compact),
        account: None,
    })?;
    let mut guest = native::<WeightedSum>().configure(&partition(), &RouterConfig::default(), &parameters(signals))?;
    let args = arguments(slot.inputs(), rows);
    let call = Call { rows: args.rows, numbers: &args.numbers, workers: None, texts: None };
    assert_eq!(slot.select(&args)?, guest.select(&call)?, "both forms decide alike");
    let fuel = slot.fuel_used();
    let variants = vec![Variant::new(CROSSING, |_| slot.select(&args)), Variant::new(NATIVE, |_| guest.select(&call))];
    Ok((compare(variants, rounds, (200_000 / (rows * 10)).clamp(10, 1_000)), fuel))
}

fn settings(rounds: usize) -> Result<(), Box<dyn Error>> {
    const ALL: Settings = Settings { fuel: true, epochs: true, portable: false };
    let variants = [
        ("fuel and epochs, as in production", ALL),
        ("no fuel", Settings { fuel: false, ..ALL }),
        ("no epochs", Settings { epochs: false, ..ALL }),
        ("neither", Settings { fuel: false, epochs: false, ..ALL }),
        ("`determinism: portable`", Settings { portable: true, ..ALL }),
    ];
    let mut cells: Vec<Vec<String>> = variants.iter().map(|(name, _)| vec![(*name).to_owned()]).collect();
    for rows in [1, 32, 1_024, 10_000] {
        let inputs = native::<WeightedSum>().configure(&partition(), &RouterConfig::default(), &parameters(4))?;
        let args = arguments(inputs.inputs(), rows);
        let mut guests = Vec::new();
        for (name, settings) in &variants {
            guests.push((*name, Raw::new(crate::WEIGHTED_SUM, *settings, &parameters(4))?));
        }
        let calls = guests.iter_mut().map(|(name, guest)| Variant::new(name, |_| guest.select(&args))).collect();
        let medians = compare(calls, rounds, (200_000 / (rows * 10)).clamp(10, 1_000));
        for (cells, (name, _)) in cells.iter_mut().zip(&variants) {
            cells.push(figure(medians.of(name)));
        }
    }
    cells.iter().for_each(|cells| row(cells));
    Ok(())
}
