//! Every bound on what an artifact is made of: counted right, and refused from there on, before anything compiles.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod common;

use common::{Policy, component};
use pointsman_sandbox::*;

/// Loads under bounds of one's own for the profile compact.
fn load(artifact: &Artifact, bounds: LoadBounds) -> Result<(), LoadError> {
    let mut config = SandboxConfig { guests: 8, ..SandboxConfig::default() };
    config.load.compact = bounds;
    Sandbox::new(config).unwrap().load(artifact, Profile::Compact).map(drop)
}

/// The least value of a bound that lets the artifact pass, all others being wide.
fn least(artifact: &Artifact, key: &str) -> u64 {
    let mut least = 0;
    loop {
        let mut bounds = LoadBounds::of(Profile::Engine);
        assert!(bounds.set(key, least));
        match load(artifact, bounds) {
            Err(LoadError::Over { key: over, found, most, .. }) => {
                assert_eq!((over, most), (key, least));
                assert!(found > least, "{key}: {found}");
                least = found;
            }
            _ => return least,
        }
    }
}

/// What a policy has of something.
enum Has {
    /// So much more than the plain one.
    More(u64),
    /// So much.
    Exactly(u64),
}

use Has::{Exactly, More};

fn core(core: impl Into<String>) -> Policy {
    Policy { core: core.into(), ..Policy::default() }
}

fn before(before: &str) -> Policy {
    Policy { before: before.into(), ..Policy::default() }
}

fn after(after: &str) -> Policy {
    Policy { after: after.into(), ..Policy::default() }
}

#[test]
fn every_bound_counts_and_refuses() {
    let nested = format!("(func {} {})", "block ".repeat(12), "end ".repeat(12));
    let many = format!("(func (param i64 i64) (local {}) {})", "i32 ".repeat(48), "block end ".repeat(20));
    let rows = [
        ("custom_bytes", core(r#"(@custom "notes" "0123456789")"#), More(10)),
        ("depth", before("(component (component (core module)))"), More(2)),
        ("depth", before("(type (component (type (instance (type (instance))))))"), More(2)),
        ("components", before("(component (component))"), More(2)),
        ("modules", before("(component (core module) (core module))"), More(2)),
        (
            "component_instances",
            before("(component $c) (instance (instantiate $c)) (instance (instantiate $c))"),
            More(2),
        ),
        ("core_instances", before("(core module $m) (core instance (instantiate $m)) (core instance)"), More(1)),
        ("types", before("(type (list u32)) (type (instance (type (list u32))))"), More(3)),
        ("types", core("(type (func (param i64 i64)))"), More(1)),
        ("signature", core(format!("(type (func (param {}) (result i32 i32)))", "i32 ".repeat(40))), Exactly(42)),
        ("imports", before(r#"(import "x" (instance)) (core module (import "a" "b" (func)))"#), More(2)),
        ("exports", after(r#"(export "init" (func $describe)) (core module (func (export "a")))"#), More(2)),
        ("aliases", after(r#"(alias export $types "partition" (type))"#), More(1)),
        ("canonicals", before("(type $r (resource (rep i32))) (core func (canon resource.drop $r))"), More(1)),
        ("functions", core("(func) (func)"), More(2)),
        ("body_bytes", core(format!("(func {})", "nop ".repeat(3_000))), Exactly(3_002)),
        ("locals", core(format!("(func (param i32 i64) (local {}))", "i32 f64 ".repeat(15))), Exactly(32)),
        ("nesting", core(nested), Exactly(12)),
        ("locals_by_blocks", core(many), Exactly(1_000)),
        ("globals", core("(global i32 (i32.const 0)) (global i32 (i32.const 0))"), More(2)),
        ("tables", core("(table 1 funcref) (table 1 funcref)"), More(2)),
        ("table_elements", core("(table 1 funcref) (table 77 funcref)"), Exactly(77)),
        ("memories", core("(memory 1)"), More(1)),
        ("memory_pages", core("(memory 3)"), More(3)),
        ("data_segments", core(r#"(data "a") (data "b")"#), More(2)),
        ("element_segments", core("(func $f) (elem declare func $f)"), More(1)),
    ];
    let plain = Policy::default().artifact();
    assert_eq!(least(&plain, "component_bytes"), plain.len() as u64);
    for (key, policy, has) in &rows {
        let expected = match has {
            More(more) => least(&plain, key) + more,
            Exactly(exactly) => *exactly,
        };
        assert_eq!(least(&policy.artifact(), key), expected, "{key}");
    }
    let mut tested: Vec<&str> = rows.iter().map(|(key, ..)| *key).collect();
    tested.push("component_bytes");
    for row in LOAD_BOUNDS {
        assert!(tested.contains(&row.key), "{} is not tested", row.key);
    }
}

#[test]
fn bounds_are_set_and_got_by_key() {
    for row in LOAD_BOUNDS {
        assert_eq!(LoadBounds::of(Profile::Compact).get(row.key), Some(row.compact));
        assert_eq!(LoadBounds::of(Profile::Engine).get(row.key), Some(row.engine));
        assert!(row.compact <= row.engine && row.engine <= row.most, "{row:?}");
    }
    for row in COMPILE_LIMITS {
        assert_eq!(CompileLimits::of(Profile::Compact).get(row.key), Some(row.compact));
        assert_eq!(CompileLimits::of(Profile::Engine).get(row.key), Some(row.engine));
        assert!(row.compact <= row.engine && row.engine <= row.most, "{row:?}");
    }
    assert!(!LoadBounds::of(Profile::Compact).set("function", 1));
    assert_eq!(CompileLimits::of(Profile::Engine).get("memory"), None);
}

/// The bound that the defaults refuse an artifact by, in either profile.
fn refused_by(artifact: &Artifact) -> [&'static str; 2] {
    [Profile::Compact, Profile::Engine].map(|profile| match common::sandbox().load(artifact, profile) {
        Err(error @ LoadError::Over { key, .. }) => {
            assert_eq!(error.step(), LoadStep::Structure);
            key
        }
        other => panic!("{profile:?}: {other:?}"),
    })
}

#[test]
fn compile_bombs_are_refused_by_their_structure_alone() {
    assert_eq!(refused_by(&common::nested_loops().artifact()), ["nesting", "nesting"]);
    assert_eq!(refused_by(&common::loops_in_a_row().artifact()), ["body_bytes", "locals_by_blocks"]);
    let mut config = SandboxConfig { guests: 8, ..SandboxConfig::default() };
    config.load.compact.body_bytes = 1 << 20;
    let error = Sandbox::new(config).unwrap().load(&common::loops_in_a_row().artifact(), Profile::Compact).unwrap_err();
    assert!(matches!(error, LoadError::Over { key: "locals_by_blocks", .. }), "{error}");
    let functions = core("(func) ".repeat(60_000));
    assert_eq!(refused_by(&functions.artifact()), ["functions", "functions"]);
    let tiny = core("(func) ".repeat(40_000)).artifact();
    let error = common::sandbox().load(&tiny, Profile::Compact).unwrap_err();
    let LoadError::Over { found, .. } = error else { panic!("{error}") };
    assert!((40_000..40_100).contains(&found));
    assert_eq!(
        error.to_string(),
        format!(
            "test.wasm has {found} core functions, and profile compact takes at most 5000; make it smaller, or raise \
             sandbox.load.compact.functions"
        )
    );
}

#[test]
fn an_artifact_that_is_too_large_is_not_looked_at() {
    let artifact = Artifact::from_bytes("test.wasm", vec![0; (2 << 20) + 1]);
    let error = common::sandbox().load(&artifact, Profile::Compact).unwrap_err();
    assert_eq!(error.step(), LoadStep::Size, "{error}");
    // In the profile engine it is small enough to be looked at.
    let error = common::sandbox().load(&artifact, Profile::Engine).unwrap_err();
    assert!(matches!(error, LoadError::NotWasm { .. }), "{error}");
}

/// A component of one section.
fn section(id: u8, body: &[u8]) -> Artifact {
    let mut bytes = b"\0asm\x0d\0\x01\0".to_vec();
    bytes.push(id);
    let mut length = body.len();
    loop {
        let low = (length & 0x7f) as u8;
        length >>= 7;
        bytes.push(if length == 0 { low } else { low | 0x80 });
        if length == 0 {
            break;
        }
    }
    bytes.extend(body);
    Artifact::from_bytes("test.wasm", bytes).trusted()
}

#[test]
fn types_within_types_cost_no_stack() {
    // Each instance type holds one declaration, of an instance type. A reader that calls itself ends the process.
    let mut body = vec![1];
    body.extend([0x42, 1, 1].repeat(600_000));
    let error = common::sandbox().load(&section(7, &body), Profile::Compact).unwrap_err();
    assert!(matches!(error, LoadError::Over { key: "depth", .. }), "{error}");
    let components = format!("{}{}", "(component ".repeat(50), ")".repeat(50));
    assert_eq!(refused_by(&component(&components)), ["depth", "depth"]);
}

#[test]
fn counts_that_lie_are_refused() {
    // Types, imports, instances: 2^32 - 1 of them, and none there.
    for id in [1, 2, 3, 5, 6, 7, 8, 10, 11] {
        let error =
            common::sandbox().load(&section(id, &[0xff, 0xff, 0xff, 0xff, 0x0f]), Profile::Compact).unwrap_err();
        assert_eq!(error.step(), LoadStep::Structure, "section {id}: {error}");
    }
}

#[test]
fn what_is_damaged_is_refused_before_it_compiles() {
    for artifact in [section(99, b""), section(7, &[1, 0x42, 1, 9]), section(2, &[1])] {
        let error = common::sandbox().load(&artifact, Profile::Compact).unwrap_err();
        assert!(matches!(error, LoadError::Malformed { .. }), "{error}");
        assert!(error.to_string().starts_with("test.wasm is a damaged component: "), "{error}");
    }
}

#[test]
fn steps_come_in_their_order() {
    let names: Vec<&str> = LoadStep::ALL.into_iter().map(LoadStep::as_str).collect();
    assert_eq!(names.join(" "), "size digest structure imports compile instantiate describe configure smoke");
    assert!(LoadStep::ALL.is_sorted());
    let step = |artifact: &Artifact| common::sandbox().load(artifact, Profile::Compact).unwrap_err().step();
    // Each artifact fails at two steps, or more, and the first one tells.
    let bomb = "block ".repeat(300) + &"end ".repeat(300);
    let broken = "(func $broken (result i32))";
    let wrong = |core: String| Policy { before: r#"(import "clock" (func))"#.into(), core, ..Policy::default() };
    let bomb = wrong(format!("(func {bomb}) {broken}")).artifact();
    assert!(matches!(bomb.clone().pinned(&"0".repeat(64)), Err(error) if error.step() == LoadStep::Digest));
    assert_eq!(step(&bomb), LoadStep::Structure);
    assert_eq!(step(&wrong(broken.into()).artifact()), LoadStep::Imports);
    let start = "(func $start unreachable) (start $start)";
    assert_eq!(step(&core(format!("{broken} {start}")).artifact()), LoadStep::Compile);
    let mute = |core: &str| Policy { describe: "unreachable".into(), core: core.into(), ..Policy::default() };
    assert_eq!(step(&mute(start).artifact()), LoadStep::Instantiate);
    assert_eq!(step(&mute("").artifact()), LoadStep::Describe);
    let missing = Artifact::from_file(std::path::Path::new("/nowhere/policy.wasm")).unwrap_err();
    assert_eq!(missing.step(), LoadStep::Size);
}

#[test]
fn a_name_takes_the_place_of_a_path() {
    let artifact = Artifact::from_bytes("/srv/tenants/a.wasm", b"nothing".as_slice()).named("policy a");
    let pinned = artifact.clone().pinned(&"0".repeat(64)).unwrap_err().to_string();
    assert!(pinned.starts_with("policy a has digest sha256:"), "{pinned}");
    let error = common::sandbox().load(&artifact, Profile::Compact).unwrap_err().to_string();
    assert!(error.starts_with("policy a is not WebAssembly"), "{error}");
}
