//! What is loaded, and the sentence that each refusal ends in.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod common;

use common::{Policy, args, component, sandbox, slot};
use pointsman_sandbox::*;

fn refused(artifact: &Artifact) -> LoadError {
    let error = sandbox().load(artifact, Profile::Compact).unwrap_err();
    let sentence = error.to_string();
    assert!(sentence.starts_with("test.wasm ") || sentence.starts_with("test.wasm: "), "{sentence}");
    assert!(!sentence.contains('\n') && sentence.len() < 900, "{sentence}");
    error
}

fn bytes(bytes: &[u8]) -> Artifact {
    Artifact::from_bytes("test.wasm", bytes).trusted()
}

#[test]
fn what_is_no_component_is_refused_by_its_kind() {
    for garbage in
        [&b""[..], b"\0as", b"\0asm", b"\0asm\x01\0\0", b"hello, world", b"\x7fELF\x02\x01\x01\0nope", &[0; 64]]
    {
        assert!(matches!(refused(&bytes(garbage)), LoadError::NotWasm { .. }), "{garbage:?}");
    }
    assert!(matches!(refused(&bytes(&wat::parse_str("(module)").unwrap())), LoadError::CoreModule { .. }));
    assert!(matches!(refused(&bytes(Policy::default().text().as_bytes())), LoadError::Text { .. }));
    assert!(matches!(refused(&bytes(b"\n (module)")), LoadError::Text { .. }));
}

#[test]
fn precompiled_code_is_refused() {
    let engine = wasmtime::Engine::default();
    let code = engine.precompile_component(&wat::parse_str("(component)").unwrap()).unwrap();
    assert!(matches!(refused(&bytes(&code)), LoadError::Precompiled { .. }));
    let code = engine.precompile_module(&wat::parse_str("(module)").unwrap()).unwrap();
    assert!(matches!(refused(&bytes(&code)), LoadError::Precompiled { .. }));
}

#[test]
fn a_missing_file_is_named() {
    let error = Artifact::from_file(std::path::Path::new("/nowhere/policy.wasm")).unwrap_err().to_string();
    assert!(error.starts_with("/nowhere/policy.wasm cannot be read: "), "{error}");
}

#[test]
fn a_file_is_loaded() {
    let path = std::env::temp_dir().join(format!("pointsman-sandbox-{}.wasm", std::process::id()));
    std::fs::write(&path, wat::parse_str(Policy::default().text()).unwrap()).unwrap();
    let artifact = Artifact::from_file(&path).unwrap().trusted();
    std::fs::remove_file(&path).unwrap();
    let policy = sandbox().load(&artifact, Profile::Compact).unwrap();
    assert_eq!(policy.origin(), path.display().to_string());
    assert_eq!((policy.sha256_hex(), policy.size_bytes()), (artifact.sha256_hex(), artifact.len()));
}

#[test]
fn a_damaged_component_is_an_error_and_no_panic() {
    let sandbox = sandbox();
    let whole = wat::parse_str(Policy::whole().text()).unwrap();
    let load = |bytes: &[u8]| sandbox.load(&Artifact::from_bytes("test.wasm", bytes).trusted(), Profile::Compact);
    for length in (0..whole.len()).step_by(7) {
        // A cut at the end of a late section leaves a smaller component, which may be a valid policy.
        assert!(load(&whole[..length]).is_err() || length > whole.len() / 2, "{length} bytes of {}", whole.len());
    }
    for place in (8..whole.len()).step_by(5) {
        let mut damaged = whole.clone();
        damaged[place] ^= 1 << (place % 8);
        // Whatever it has become: an error, or a policy that may be called.
        if let Ok(policy) = load(&damaged)
            && let Ok(mut slot) = GuestSlot::new(common::setup(&policy, Limits::default()))
        {
            let _ = slot.score(&args(&[1.0]));
            let _ = slot.select(&args(&[1.0]));
        }
    }
}

#[test]
fn a_component_without_policy_or_stage_is_refused() {
    let error = refused(&component("(component)"));
    assert!(matches!(error, LoadError::NoPolicy { .. }), "{error}");
    let policy = Policy { score: None, ..Policy::default() };
    let error = refused(&policy.artifact());
    assert!(matches!(error, LoadError::NoStage { .. }), "{error}");
}

#[test]
fn another_version_is_refused_by_its_real_name() {
    for version in ["0.1.1", "0.2.0", "1.0.0"] {
        let error = refused(&Policy { version, ..Policy::whole() }.artifact()).to_string();
        assert_eq!(
            error,
            format!(
                "test.wasm exports pointsman:policy/policy@{version}, but this host supports version 0.1.0; rebuild \
                 the policy for it"
            )
        );
    }
}

#[test]
fn a_stage_of_another_version_is_not_passed_over() {
    let filter = "(export \"pointsman:policy/worker-filter@0.1.1\" (instance $score_exported))";
    let error = refused(&Policy { after: filter.into(), ..Policy::default() }.artifact()).to_string();
    assert!(error.contains("exports pointsman:policy/worker-filter@0.1.1"), "{error}");
}

#[test]
fn every_import_that_is_not_allowed_is_named() {
    let before = r#"
        (import "wasi:http/types@0.2.0" (instance (export "get" (func))))
        (import "pointsman:policy/log@0.1.1" (instance (export "log" (func))))
        (import "clock" (func))
        (import "empty" (instance))
        (import "resources" (instance (export "handle" (type (sub resource)))))"#;
    let error = refused(&Policy { before: before.into(), imports_log: true, ..Policy::default() }.artifact());
    assert_eq!(
        error.to_string(),
        "test.wasm imports wasi:http/types@0.2.0, pointsman:policy/log@0.1.1, clock, resources; a policy may \
         import pointsman:policy/log@0.1.0 alone"
    );
}

#[test]
fn a_log_of_another_type_is_refused() {
    let before = r#"(import "pointsman:policy/log@0.1.0" (instance (export "log" (func (param "message" string)))))"#;
    let error = refused(&Policy { before: before.into(), ..Policy::default() }.artifact()).to_string();
    assert!(error.contains("log"), "{error}");
}

#[test]
fn a_function_that_is_missing_or_of_another_type_is_named() {
    let before = r#"
        (component $other
          (core module $m (func (export "f") (result i32) i32.const 0))
          (core instance $i (instantiate $m))
          (func (export "pick") (result u32) (canon lift (core func $i "f")))
          (func (export "score") (result u32) (canon lift (core func $i "f"))))
        (instance $other (instantiate $other))"#;
    let with =
        |after: &str| refused(&Policy { before: before.into(), after: after.into(), ..Policy::default() }.artifact());
    let error = with(r#"(export "pointsman:policy/worker-picker@0.1.0" (instance $other))"#).to_string();
    assert!(error.starts_with("test.wasm: pick is not the contract's: "), "{error}");
    let error = with(r#"(export "pointsman:policy/worker-filter@0.1.0" (instance $other))"#).to_string();
    assert!(
        error.contains("pointsman:policy/worker-filter@0.1.0 keep is not the contract's: it is missing"),
        "{error}"
    );
}

#[test]
fn other_exports_are_ignored() {
    let after = r#"(export "init" (func $describe)) (export "exports" (instance $score_exported))
        (export "pointsman:policy/something-new@0.1.0" (instance $score_exported))"#;
    let policy =
        sandbox().load(&Policy { after: after.into(), ..Policy::default() }.artifact(), Profile::Compact).unwrap();
    assert_eq!(slot(&policy, Limits::default()).score(&args(&[1.0])).unwrap(), [1.0]);
}

#[test]
fn a_policy_that_cannot_describe_itself_is_refused() {
    let describe = |body: &str| Policy { describe: body.into(), ..Policy::default() };
    let start = |body: &str| Policy { core: format!("(func $start {body}) (start $start)"), ..Policy::default() };
    for (outcome, policy) in [
        (Outcome::Trap, describe("unreachable")),
        (Outcome::OutOfFuel, describe(common::SPIN)),
        (Outcome::BadAnswer, describe("(i32.const 65535)")),
        (Outcome::Memory, describe("(drop (memory.grow (i32.const 1000))) (i32.const 64)")),
        (Outcome::Trap, start("unreachable")),
        (Outcome::OutOfFuel, start(common::SPIN)),
        (Outcome::Memory, Policy { memory: "200", ..Policy::default() }),
    ] {
        match refused(&policy.artifact()) {
            LoadError::Describe { fault, .. } | LoadError::Instantiate { fault, .. } => {
                assert_eq!(fault.outcome, outcome, "{fault}");
            }
            other => panic!("{outcome}: {other}"),
        }
    }
}

#[test]
fn a_manifest_can_forge_no_line() {
    let core = r#"(data (i32.const 256) "a\nb\07")"#;
    let policy =
        sandbox().load(&Policy { core: core.into(), ..Policy::default() }.artifact(), Profile::Compact).unwrap();
    assert_eq!(policy.manifest().name, "a b ");
}

#[test]
fn more_guests_than_fit_are_refused_at_once() {
    for (guests, sentence) in [(0, "sandbox.guests is 0; "), (1_000_000, "sandbox.guests is 1000000, but ")] {
        let error = Sandbox::new(SandboxConfig { guests, ..SandboxConfig::default() }).unwrap_err().to_string();
        assert!(error.starts_with(sentence), "{error}");
    }
}

/// Core code that needs one proposal each.
const DISABLED: &[(&str, &str)] = &[
    ("threads", "(memory 1 1 shared)"),
    ("atomics", "(func (drop (i32.atomic.load (i32.const 0))))"),
    ("memory64", "(memory i64 1)"),
    ("table64", "(table i64 1 funcref)"),
    ("tail-call", "(func $f (return_call $f))"),
    ("relaxed-simd", "(func (param v128) (result v128) (i32x4.relaxed_trunc_f32x4_s (local.get 0)))"),
    ("gc structs", "(type (struct (field i32)))"),
    ("gc arrays", "(type (array i8))"),
    ("gc i31", "(func (result i31ref) (ref.i31 (i32.const 1)))"),
    ("gc recursion groups", "(rec (type (func)) (type (func)))"),
    // Accepted by an engine without its gc feature and with its default settings, this ends the process.
    (
        "function subtyping",
        "(type $a (sub (func))) (type $b (sub $a (func)))
        (func $f (type $b)) (elem declare func $f) (func (result i32) (ref.test (ref $b) (ref.func $f)))",
    ),
    ("exceptions", "(tag (param i32))"),
    ("exceptions, thrown", "(tag $t) (func (throw $t))"),
    ("function-references", "(type $f (func)) (func (param (ref $f)) (call_ref $f (local.get 0)))"),
    ("stack-switching", "(type $f (func)) (type (cont $f))"),
    ("custom-page-sizes", "(memory 1 (pagesize 1))"),
    ("wide-arithmetic", "(func (param i64 i64) (result i64 i64) (i64.mul_wide_u (local.get 0) (local.get 1)))"),
    ("externref", "(func (param externref))"),
];

#[test]
fn every_disabled_proposal_is_refused() {
    // A second memory is refused before the engine sees of what kind it is.
    let mut config = SandboxConfig { guests: 8, ..SandboxConfig::default() };
    config.load.compact.memories = 2;
    let sandbox = Sandbox::new(config).unwrap();
    for (proposal, core) in DISABLED {
        for profile in [Profile::Compact, Profile::Engine] {
            let artifact = Policy { core: (*core).into(), ..Policy::default() }.artifact();
            match sandbox.load(&artifact, profile) {
                Err(LoadError::Invalid { .. }) => {}
                other => panic!("{proposal}: {other:?}"),
            }
        }
    }
}

#[test]
fn disabled_parts_of_the_component_model_are_refused() {
    for (proposal, before) in [
        ("async functions", "(type (func async (result u32)))"),
        ("futures", "(type (future u32))"),
        ("streams", "(type (stream u32))"),
        ("error contexts", "(type (list error-context))"),
        ("fixed-length lists", "(type (list u32 4))"),
        ("maps", "(type (map string u32))"),
    ] {
        let Ok(bytes) = wat::parse_str(Policy { before: before.into(), ..Policy::default() }.text()) else {
            panic!("{proposal}: the text does not parse");
        };
        let error = refused(&Artifact::from_bytes("test.wasm", bytes).trusted());
        assert!(matches!(error, LoadError::Invalid { .. }), "{proposal}: {error}");
    }
}

#[test]
fn what_policies_may_use_is_accepted() {
    for core in [
        "(func (param v128) (result v128) (i32x4.add (local.get 0) (local.get 0)))",
        "(global i32 (i32.add (i32.const 1) (i32.const 2)))",
        "(func (result i32 i32) (i32.const 1) (i32.const 2))",
        "(table 1 funcref) (table 1 funcref)",
    ] {
        let policy = Policy { core: core.into(), ..Policy::default() };
        assert!(policy.slot(&sandbox(), Limits::default()).score(&args(&[1.0])).is_ok(), "{core}");
    }
}

/// Two inner components, one of which passes a list to the other: wasmtime makes an adapter with two memories for it,
/// and ends in a panic where multi-memory is off.
const INNER_LIST: &str = r#"
    (component $inner_callee
      (core module $m (memory (export "memory") 1)
        (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
        (func (export "take") (param i32 i32)))
      (core instance $i (instantiate $m))
      (func (export "take") (param "list" (list u8))
        (canon lift (core func $i "take") (memory (core memory $i "memory")) (realloc (core func $i "realloc")))))
    (component $inner_caller
      (import "take" (func $take (param "list" (list u8))))
      (core module $mem (memory (export "memory") 1))
      (core instance $mem (instantiate $mem))
      (core func $take (canon lower (func $take) (memory (core memory $mem "memory"))))
      (core module $m (import "" "take" (func (param i32 i32)))
        (func (export "run") (call 0 (i32.const 0) (i32.const 8))))
      (core instance $i (instantiate $m (with "" (instance (export "take" (func $take))))))
      (func (export "run") (canon lift (core func $i "run"))))
    (instance $inner_callee (instantiate $inner_callee))
    (instance $inner_caller (instantiate $inner_caller (with "take" (func $inner_callee "take"))))"#;

#[test]
fn inner_components_that_pass_a_list_do_not_panic() {
    let policy = Policy { before: INNER_LIST.into(), ..Policy::default() };
    let error = refused(&policy.artifact());
    assert!(matches!(error, LoadError::Over { key: "core_instances" | "memories" | "modules", .. }), "{error}");
    let limits = Limits::of(Profile::Engine);
    assert_eq!(policy.slot(&sandbox(), limits).score(&args(&[1.0])).unwrap(), [1.0]);
}

#[test]
fn more_memories_tables_and_instances_than_the_profile_has_are_refused() {
    let memories = |more| Policy { core: "(memory 1)".repeat(more), ..Policy::default() };
    let tables = |count| Policy { core: "(table 1 funcref)".repeat(count), ..Policy::default() };
    let instances = |more: usize| Policy {
        before: format!("(core module $empty) {}", "(core instance (instantiate $empty))".repeat(more)),
        ..Policy::default()
    };
    let loads = |policy: &Policy, profile| sandbox().load(&policy.artifact(), profile).map(|_| ());
    for (fits, exceeds, profile) in [
        (memories(0), memories(1), Profile::Compact),
        (memories(3), memories(4), Profile::Engine),
        (tables(2), tables(4), Profile::Compact),
        (tables(16), tables(17), Profile::Engine),
        (instances(2), instances(3), Profile::Compact),
        (instances(62), instances(63), Profile::Engine),
    ] {
        loads(&fits, profile).unwrap();
        let error = loads(&exceeds, profile).unwrap_err();
        assert!(matches!(&error, LoadError::Over { key: "memories" | "tables" | "core_instances", .. }), "{error}");
        let sentence = error.to_string();
        assert!(!sentence.contains('\n'), "{sentence}");
    }
}

#[test]
fn the_environment_changes_nothing() {
    // A variable that makes other hosts of wasmtime read debug information of their guests.
    const VARIABLE: &str = "WASMTIME_BACKTRACE_DETAILS";
    let mut slot = Policy::hostile("unreachable").slot(&sandbox(), Limits::default());
    let fault = slot.score(&args(&[1.0])).unwrap_err();
    assert_eq!(fault.message, "score failed: wasm trap: wasm `unreachable` instruction executed");
    if std::env::var_os(VARIABLE).is_none() {
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_environment_changes_nothing"])
            .env(VARIABLE, "1")
            .output()
            .unwrap();
        assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stdout));
    }
}
