use pointsman_sandbox::*;
use pointsman_contract::*;
use std::sync::Arc;
use std::time::Instant;
fn main() {
    let sandbox = Sandbox::new(SandboxConfig::default()).unwrap();
    for b in pointsman_policies::all() {
        let a = Artifact::from_bytes(b.name, b.component);
        let t = Instant::now();
        let p = sandbox.load(&a, Profile::Compact).unwrap();
        let load = t.elapsed();
        let setup = GuestSetup { policy: p.clone(), instance: "x".into(), partition: Partition{model:"m".into(),routing_group:"g".into(),role:Role::Aggregated,block_size:16,seed:1}, router_config: RouterConfig::default(), parameters: "{}".into(), limits: Limits::default()};
        let t = Instant::now();
        let slot = GuestSlot::new(setup.clone());
        let start = t.elapsed();
        match slot {
            Err(e) => println!("{} {} bytes load {load:?} start {start:?}: {e}", p.manifest().name, p.size_bytes()),
            Ok(mut s) => {
                // least start fuel
                let (mut lo, mut hi) = (0u64, 10_000_000u64);
                while hi - lo > 1 { let m=(lo+hi)/2; let mut st=setup.clone(); st.limits.start_fuel=m; if GuestSlot::new(st).is_ok() {hi=m} else {lo=m} }
                let i = s.inputs().clone();
                let (mut facts, mut signals) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
                let mut workers=false; let mut texts=std::collections::BTreeSet::new();
                for r in [&i.filter,&i.score,&i.pick].into_iter().flatten() { facts.extend(r.facts.clone()); signals.extend(r.signals.iter().filter(|n| *n != "cost").cloned()); workers|=r.workers; texts.extend(r.texts.clone()); }
                print!("{} {} bytes load {load:?} start {start:?} start_fuel {hi} {:?}", p.manifest().name, p.size_bytes(), p.imports());
                for rows in [1u32, 64, 1024] {
                    let n = facts.len() + signals.len()*rows as usize;
                    let args = Args { rows, numbers: Arc::new(vec![1.0; n]), workers: workers.then(|| Arc::new((0..rows).collect())), texts: (!texts.is_empty()).then(|| Arc::new(vec![None; texts.len()])) };
                    let mut call = || if s.stages().select { s.select(&args).map(|_| ()) } else if s.stages().pick { s.pick(&args).map(|_| ()) } else { s.score(&args).map(|_| ()) };
                    for _ in 0..1000 { if let Err(e) = call() { print!(" {e}"); break } }
                    let t = Instant::now();
                    for _ in 0..2000 { let _ = call(); }
                    let dt = t.elapsed()/2000;
                    print!(" | {rows}: {dt:?} fuel {}", s.fuel_used());
                }
                let t = Instant::now();
                for _ in 0..1000 { s.rebuild().unwrap(); }
                println!(" | rebuild {:?}", t.elapsed()/1000);
            }
        }
    }
}
