//! What guests cost: to build, to keep, to use once.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use crate::harness::{Variant, at_most, compare, figure, head, median, promises, row};
use crate::inputs::{arguments, parameters};
use pointsman_contract::{Partition, Role, RouterConfig};
use pointsman_sandbox::{
    Args, Artifact, CompiledPolicy, GuestSetup, GuestSlot, Limits, Profile, Sandbox, SandboxConfig,
};

const POLICY: &str = "dynamo-default-cost-fn";
const ROWS: usize = 128;

/// Guests where the command line says nothing.
pub(crate) const GUESTS: usize = 10_000;

pub(crate) fn run(guests: usize) -> Result<(), Box<dyn Error>> {
    let guests = u32::try_from(guests)?;
    let component = pointsman_policies::get(POLICY).ok_or("the built-in policy is missing")?.component;

    println!("Building a guest, in microseconds: instantiate and configure; the first decision of {ROWS} rows.\n");
    head(&["policy", "component, kB", "compile, ms", "build, µs (median)", "first decision, µs (median)"]);
    let mut slowest: f64 = 0.0;
    // Those of worker selection: the others have no parameters in that file.
    for policy in pointsman_policies::all().iter().filter(|policy| parameters(policy.name).is_ok()) {
        let build = build_times(policy.name, policy.component)?;
        slowest = slowest.max(build);
    }

    println!("\nResident memory, {POLICY}.\n");
    head(&["guests", "policies", "KiB a guest, idle", "KiB a guest, after a decision", "build, µs (median)"]);
    let mut resident = 0.0;
    for count in [1_000.min(guests), guests] {
        resident = memory(component, count, 1)?;
    }
    memory(component, 100, 100)?;

    reuse(component)?;
    ceilings();

    promises();
    at_most("instantiate and configure, the slowest built-in policy, µs", slowest, 25.0);
    at_most(&format!("resident KiB a guest, {guests} guests, after a decision"), resident, 48.0);
    Ok(())
}

fn sandbox(guests: u32) -> Result<Sandbox, Box<dyn Error>> {
    Ok(Sandbox::new(SandboxConfig { guests, ..SandboxConfig::default() })?)
}

fn setup(policy: &Arc<CompiledPolicy>, parameters: &str) -> GuestSetup {
    let partition = Partition {
        model: "model".to_owned(),
        routing_group: "group".to_owned(),
        // The policy for disaggregated pools serves no other.
        role: if policy.manifest().name.starts_with("disagg") { Role::Prefill } else { Role::Aggregated },
        block_size: 16,
        seed: 7,
    };
    GuestSetup {
        policy: Arc::clone(policy),
        instance: POLICY.to_owned(),
        partition,
        router_config: RouterConfig::default(),
        parameters: parameters.to_owned(),
        limits: Limits::of(Profile::Compact),
        account: None,
    }
}

/// The stage by which a policy decides.
fn decide(slot: &mut GuestSlot, args: &Args) {
    let stages = slot.stages();
    let done = if stages.select {
        slot.select(args).map(drop)
    } else if stages.score {
        slot.score(args).map(drop)
    } else {
        slot.pick(args).map(drop)
    };
    done.expect("the policy decides");
}

fn build_times(name: &str, component: &'static [u8]) -> Result<f64, Box<dyn Error>> {
    let sandbox = sandbox(300)?;
    let start = Instant::now();
    let policy = sandbox.load(&Artifact::from_bytes(name, component).trusted(), Profile::Compact)?;
    let compile = start.elapsed().as_secs_f64() * 1e3;
    let setup = setup(&policy, &serde_json::Value::Object(parameters(name)?).to_string());
    let (mut builds, mut firsts, mut slots) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..300 {
        let start = Instant::now();
        let mut slot = GuestSlot::new(setup.clone())?;
        builds.push(start.elapsed().as_secs_f64() * 1e6);
        let mut args = arguments(slot.inputs(), ROWS);
        if slot.inputs().filter.iter().chain(&slot.inputs().score).chain(&slot.inputs().pick).any(|reads| reads.workers)
        {
            args.workers = Some((0..ROWS as u32).collect());
        }
        let texts = [&slot.inputs().filter, &slot.inputs().score, &slot.inputs().pick];
        let texts: usize = texts.into_iter().flatten().map(|reads| reads.texts.len()).max().unwrap_or(0);
        if texts > 0 {
            args.texts = Some(vec![None; texts]);
        }
        let start = Instant::now();
        decide(&mut slot, &args);
        firsts.push(start.elapsed().as_secs_f64() * 1e6);
        slots.push(slot);
    }
    let build = median(&mut builds);
    row(&[name, &figure(component.len() as f64 / 1e3), &figure(compile), &figure(build), &figure(median(&mut firsts))]);
    Ok(build)
}

/// Resident KiB for each guest, after a decision.
fn memory(component: &'static [u8], guests: u32, policies: u32) -> Result<f64, Box<dyn Error>> {
    let sandbox = sandbox(guests)?;
    let policies = (0..policies)
        .map(|number| {
            let artifact = Artifact::from_bytes(POLICY, distinct(component, number)).trusted();
            sandbox.load(&artifact, Profile::Compact)
        })
        .collect::<Result<Vec<_>, _>>()?;
    let setups: Vec<_> = policies.iter().map(|policy| setup(policy, "{}")).collect();
    let mut slots = Vec::with_capacity(guests as usize);
    let mut builds = Vec::with_capacity(guests as usize);
    let start_kib = resident_kib()?;
    for setup in setups.iter().cycle().take(guests as usize) {
        let start = Instant::now();
        slots.push(GuestSlot::new(setup.clone())?);
        builds.push(start.elapsed().as_secs_f64() * 1e6);
    }
    let idle = (resident_kib()? - start_kib) / f64::from(guests);
    let args = arguments(slots[0].inputs(), ROWS);
    slots.iter_mut().for_each(|slot| decide(slot, &args));
    let after = (resident_kib()? - start_kib) / f64::from(guests);
    row(&[guests.to_string(), policies.len().to_string(), figure(idle), figure(after), figure(median(&mut builds))]);
    Ok(after)
}

/// The component with a custom section of its own, so that it is another artifact.
fn distinct(component: &[u8], number: u32) -> Vec<u8> {
    let mut bytes = component.to_vec();
    // Section 0: its length, the length of its name, the name, the number.
    bytes.extend([0, 6, 1, b'n']);
    bytes.extend(number.to_le_bytes());
    bytes
}

fn resident_kib() -> Result<f64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("the kernel gives no VmRSS")?;
    Ok(line.split_whitespace().nth(1).ok_or("VmRSS has no value")?.parse()?)
}

/// A slot that is used again, and a guest for each decision, beside a warm guest.
fn reuse(component: &'static [u8]) -> Result<(), Box<dyn Error>> {
    let sandbox = sandbox(64)?;
    let policy = sandbox.load(&Artifact::from_bytes(POLICY, component).trusted(), Profile::Compact)?;
    let setup = setup(&policy, "{}");
    let mut warm = GuestSlot::new(setup.clone())?;
    let args = arguments(warm.inputs(), ROWS);
    let medians = compare(
        vec![
            Variant::new("warm", |_| decide(&mut warm, &args)),
            Variant::new("rebuilt", |_| GuestSlot::new(setup.clone()).map(drop)),
            Variant::new("fresh", |_| GuestSlot::new(setup.clone()).map(|mut slot| decide(&mut slot, &args))),
        ],
        60,
        50,
    );
    println!("\nA warm guest beside a fresh one, {ROWS} rows.\n");
    head(&["what", "µs (median)", "/ warm"]);
    for (what, name) in [
        ("a decision of a warm guest", "warm"),
        ("a guest built and dropped, its slot used again and again", "rebuilt"),
        ("a guest built, asked once and dropped: a store for each decision", "fresh"),
    ] {
        row(&[what, &figure(medians.of(name) / 1e3), &figure(medians.ratio(name, "warm"))]);
    }
    Ok(())
}

/// What the host refuses at start.
fn ceilings() {
    println!("\nThe most guests of one sandbox on this machine:\n");
    let refused = Sandbox::new(SandboxConfig { guests: u32::MAX, ..SandboxConfig::default() });
    println!("> {}", refused.expect_err("no machine has so much address space"));
}
