//! Compiling in a process of its own: what comes of it, what it may not do, and how each bound on it ends it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod common;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Policy, SPIN, args, slot};
use pointsman_sandbox::*;

const WORKER: &str = env!("CARGO_BIN_EXE_pointsman-compile-worker");

fn config() -> SandboxConfig {
    let mut config = SandboxConfig { guests: 8, ..SandboxConfig::default() };
    config.compile.worker = Some(WorkerCommand::new(WORKER));
    config
}

/// A sandbox whose worker is a script of the shell, with the real worker's path as `$0`.
fn scripted(script: &str) -> SandboxConfig {
    let mut config = config();
    let arguments = ["-c", script, WORKER].map(Into::into).to_vec();
    config.compile.worker = Some(WorkerCommand { program: "/bin/sh".into(), arguments });
    config
}

/// The policy as an artifact that nobody trusts.
fn untrusted(policy: &Policy) -> Artifact {
    Artifact::from_bytes("test.wasm", wat::parse_str(policy.text()).unwrap())
}

fn failure(config: SandboxConfig, policy: &Policy) -> CompileFailure {
    match Sandbox::new(config).unwrap().load(&untrusted(policy), Profile::Compact) {
        Err(error @ LoadError::Compile { .. }) => {
            assert_eq!(error.step(), LoadStep::Compile);
            assert!(error.to_string().starts_with("test.wasm cannot be compiled: compile-"), "{error}");
            let LoadError::Compile { failure, .. } = error else { unreachable!() };
            failure
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_worker_compiles_what_this_process_would() {
    let policy = Policy { imports_log: true, ..Policy::whole() };
    let numbers = args(&[3.0, 1.0, 2.0]);
    for determinism in [Determinism::Fast, Determinism::Portable] {
        let sandbox = Sandbox::new(SandboxConfig { determinism, ..config() }).unwrap();
        // In the pool, outside of it, and with the settings of the other profile.
        let large = Limits { memory_bytes: 64 << 20, ..Limits::default() };
        for limits in [Limits::default(), large, Limits::of(Profile::Engine)] {
            let [apart, here] = [untrusted(&policy), policy.artifact()].map(|artifact| {
                let mut guest = slot(&sandbox.load_with(&artifact, &limits).unwrap(), limits);
                let costs = guest.score(&numbers).unwrap();
                let selection = guest.select(&numbers).unwrap();
                (costs, guest.fuel_used(), selection)
            });
            assert_eq!(apart, here);
        }
    }
}

#[test]
fn limits_hold_in_what_a_worker_compiled() {
    let sandbox = Sandbox::new(config()).unwrap();
    let policy = sandbox.load(&untrusted(&Policy::hostile(SPIN)), Profile::Compact).unwrap();
    let mut guest = slot(&policy, Limits { deadline_us: 30_000_000, ..Limits::default() });
    assert_eq!(guest.score(&args(&[1.0])).unwrap_err().outcome, Outcome::OutOfFuel);
    assert_eq!(guest.score(&args(&[0.0])).unwrap(), [0.0]);
}

#[test]
fn without_a_worker_only_what_is_trusted_compiles() {
    let sandbox = common::sandbox();
    let error = sandbox.load(&untrusted(&Policy::default()), Profile::Compact).unwrap_err();
    assert_eq!(
        error.to_string(),
        "test.wasm is not compiled within this process, since it is not declared trusted; configure a compile worker, \
         or declare the artifact trusted"
    );
    assert_eq!(error.step(), LoadStep::Compile);
    sandbox.load(&untrusted(&Policy::default()).trusted(), Profile::Compact).unwrap();
}

#[test]
fn what_the_engine_refuses_is_told_in_its_words() {
    let sandbox = Sandbox::new(config()).unwrap();
    let policy = Policy { core: "(func (result i32))".into(), ..Policy::default() };
    let [apart, here] = [untrusted(&policy), policy.artifact()]
        .map(|artifact| sandbox.load(&artifact, Profile::Compact).unwrap_err().to_string());
    assert_eq!(apart, here);
    assert!(apart.contains("type mismatch"), "{apart}");
}

/// Settings under which everything reaches the compiler.
fn unbounded() -> SandboxConfig {
    let mut config = config();
    for row in LOAD_BOUNDS {
        assert!(config.load.compact.set(row.key, row.most));
    }
    config.compile.limits.compact =
        CompileLimits { memory_bytes: 8 << 30, cpu_seconds: 600, wall_ms: 600_000, code_bytes: 1 << 30 };
    config
}

#[test]
fn the_wall_clock_ends_a_compilation() {
    let mut config = unbounded();
    config.compile.limits.compact.wall_ms = 300;
    let CompileFailure::Timeout { key, most, .. } = failure(config, &common::nested_loops()) else { panic!() };
    assert_eq!((key, &*most), ("wall_ms", "300 ms"));
}

#[test]
fn processor_time_ends_a_compilation() {
    let mut config = unbounded();
    config.compile.limits.compact.cpu_seconds = 1;
    let CompileFailure::Timeout { key, .. } = failure(config, &common::nested_loops()) else { panic!() };
    assert_eq!(key, "cpu_seconds");
}

#[test]
fn memory_ends_a_compilation() {
    let mut config = unbounded();
    config.compile.limits.compact.memory_bytes = 200 << 20;
    // What fits is not touched by it.
    Sandbox::new(config.clone()).unwrap().load(&untrusted(&Policy::whole()), Profile::Compact).unwrap();
    let CompileFailure::Memory { key, most, .. } = failure(config, &common::loops_in_a_row()) else { panic!() };
    assert_eq!((key, most), ("memory_bytes", 200 << 20));
}

#[test]
fn the_size_of_machine_code_is_bounded() {
    let load = |code_bytes| {
        let mut config = config();
        config.compile.limits.compact.code_bytes = code_bytes;
        Sandbox::new(config).unwrap().load(&untrusted(&Policy::default()), Profile::Compact)
    };
    load(1 << 20).unwrap();
    let error = load(1 << 10).unwrap_err();
    assert!(error.to_string().contains("1024 bytes (sandbox.compile.compact.code_bytes)"), "{error}");
}

#[test]
fn however_a_worker_ends_the_load_says_so() {
    for (script, name) in [
        ("kill -ABRT $$", "compile-crash"),
        ("kill -SEGV $$", "compile-crash"),
        ("exit 101", "compile-crash"),
        ("exit 0", "compile-crash"),
        ("echo this is no answer; exec sleep 600", "compile-timeout"),
        ("exec >&- 2>&-; exec sleep 600", "compile-timeout"),
        ("exec sleep 600", "compile-timeout"),
        ("while :; do echo more >&2; done", "compile-timeout"),
        ("kill -XCPU $$", "compile-timeout"),
        ("kill -KILL $$", "compile-memory"),
        ("echo memory allocation of 5 bytes failed >&2; kill -ABRT $$", "compile-memory"),
        ("exec yes", "compile-memory"),
    ] {
        let mut config = scripted(script);
        config.compile.limits.compact.wall_ms = 2_000;
        config.compile.limits.compact.code_bytes = 1 << 16;
        let failure = failure(config, &Policy::default());
        assert_eq!(failure.as_str(), name, "{script}: {failure}");
    }
    let mut config = config();
    config.compile.worker = Some(WorkerCommand::new("/nowhere/worker"));
    let CompileFailure::Start { program, .. } = failure(config, &Policy::default()) else { panic!() };
    assert_eq!(program, "/nowhere/worker");
}

#[test]
fn an_answer_for_another_component_is_not_taken() {
    let folder = tempfile::tempdir().unwrap();
    let answer = folder.path().join("answer").display().to_string();
    // The first load leaves its answer behind, and the second one gets it.
    let keep = scripted(&format!("export PATH=/usr/bin:/bin; \"$0\" compile-worker > {answer}; cat {answer}"));
    Sandbox::new(keep).unwrap().load(&untrusted(&Policy::default()), Profile::Compact).unwrap();
    let replay = || scripted(&format!("export PATH=/usr/bin:/bin; exec cat {answer}"));
    Sandbox::new(replay()).unwrap().load(&untrusted(&Policy::default()), Profile::Compact).unwrap();
    let other = failure(replay(), &Policy::whole());
    assert!(matches!(&other, CompileFailure::Crash(why) if why.contains("another component")), "{other}");
    let portable = SandboxConfig { determinism: Determinism::Portable, ..replay() };
    assert!(matches!(failure(portable, &Policy::default()), CompileFailure::Crash(_)));
}

#[test]
fn a_worker_is_ended_and_reaped() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let mut config = scripted(&format!("echo $$ > {}; exec /bin/sleep 600", file.display()));
    config.compile.limits.compact.wall_ms = 1_000;
    assert_eq!(failure(config, &Policy::default()).as_str(), "compile-timeout");
    let pid = std::fs::read_to_string(file).unwrap();
    assert!(!Path::new("/proc").join(pid.trim()).exists(), "{pid}");
}

#[test]
fn a_worker_knows_nothing_of_the_environment() {
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    let config = scripted("test -z \"$CARGO_MANIFEST_DIR$HOME$USER\" && exec \"$0\" compile-worker");
    Sandbox::new(config).unwrap().load(&untrusted(&Policy::default()), Profile::Compact).unwrap();
}

#[test]
fn a_worker_closes_what_it_inherits() {
    let mut worker = Command::new("/bin/sh")
        .args(["-c", "exec 7</dev/null 9>/dev/null; exec \"$0\" compile-worker", WORKER])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let folder = Path::new("/proc").join(worker.id().to_string());
    let open = || {
        let entries = std::fs::read_dir(folder.join("fd")).unwrap();
        let mut open: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        open.sort();
        open
    };
    let is_worker = || std::fs::read_to_string(folder.join("cmdline")).is_ok_and(|line| line.starts_with(WORKER));
    let start = Instant::now();
    while !(is_worker() && open() == ["0", "1", "2"]) {
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", open());
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(worker.stdin.take());
    assert!(!worker.wait().unwrap().success());
}

#[test]
fn a_person_who_starts_a_worker_is_told_what_it_is() {
    let output = Command::new(WORKER).arg("compile-worker").stdin(Stdio::null()).output().unwrap();
    assert!(!output.status.success() && output.stdout.is_empty());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("it is started by the sandbox alone"), "{said}");
}

/// Fails a compilation that runs beside another.
fn alone(folder: &Path) -> SandboxConfig {
    let lock = folder.join("lock").display().to_string();
    scripted(&format!(
        "export PATH=/usr/bin:/bin; mkdir {lock} || exit 9; sleep 0.1; rmdir {lock}; exec \"$0\" compile-worker"
    ))
}

/// Distinct policies, loaded at the same time.
fn load_together(sandbox: &Sandbox, account: Option<&std::sync::Arc<Account>>) -> Vec<Result<(), LoadError>> {
    let policies: Vec<Artifact> = (0..4)
        .map(|number| untrusted(&Policy { core: format!("(global i32 (i32.const {number}))"), ..Policy::default() }))
        .collect();
    std::thread::scope(|scope| {
        let load = |artifact| move || sandbox.load_for(artifact, &Limits::default(), account).map(drop);
        let loads: Vec<_> = policies.iter().map(|artifact| scope.spawn(load(artifact))).collect();
        loads.into_iter().map(|load| load.join().unwrap()).collect()
    })
}

#[test]
fn compilations_take_turns() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = alone(folder.path());
    config.compile.at_once = 1;
    let sandbox = Sandbox::new(config).unwrap();
    assert!(load_together(&sandbox, None).iter().all(Result::is_ok));
}

#[test]
fn a_tenants_compilations_take_turns_whatever_the_sandbox_allows() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = alone(folder.path());
    config.compile.at_once = 4;
    let sandbox = Sandbox::new(config).unwrap();
    let account = Account::new(Quotas::UNLIMITED);
    assert!(load_together(&sandbox, Some(&account)).iter().all(Result::is_ok));
    assert!(account.usage().compiled >= Duration::from_millis(400));
    // Without an account they would have met.
    assert!(load_together(&sandbox, None).iter().any(Result::is_err));
}

#[test]
fn a_tenant_that_has_used_up_its_compile_time_is_refused() {
    let sandbox = Sandbox::new(config()).unwrap();
    let account = Account::new(Quotas { compile_seconds_per_hour: 0, ..Quotas::UNLIMITED });
    let artifact = untrusted(&Policy::default());
    let error = sandbox.load_for(&artifact, &Limits::default(), Some(&account)).unwrap_err();
    assert!(matches!(error, LoadError::OverQuota { .. }), "{error}");
    // The fault is the tenant's alone.
    sandbox.load(&artifact, Profile::Compact).unwrap();
}

#[test]
fn decisions_do_not_wait_for_a_compilation() {
    let folder = tempfile::tempdir().unwrap();
    let (begun, go) = (folder.path().join("begun"), folder.path().join("go"));
    let config = scripted(&format!(
        "export PATH=/usr/bin:/bin; touch {begun}; until test -e {go}; do sleep 0.01; done; exec \"$0\" compile-worker",
        begun = begun.display(),
        go = go.display(),
    ));
    let sandbox = Sandbox::new(config).unwrap();
    let mut guest = Policy::hostile("unreachable").slot(&sandbox, Limits::default());
    std::thread::scope(|scope| {
        let load = scope.spawn(|| sandbox.load(&untrusted(&Policy::whole()), Profile::Compact).map(drop));
        let start = Instant::now();
        while !begun.exists() {
            assert!(start.elapsed() < Duration::from_secs(30));
            std::thread::sleep(Duration::from_millis(1));
        }
        // The guest decides, is dropped, and is built anew; and another policy is loaded.
        assert_eq!(guest.score(&args(&[1.0])).unwrap_err().outcome, Outcome::Trap);
        assert_eq!(guest.score(&args(&[0.0])).unwrap(), [0.0]);
        guest.rebuild().unwrap();
        Policy::default().slot(&sandbox, Limits::default());
        assert!(!load.is_finished());
        std::fs::write(&go, "").unwrap();
        load.join().unwrap().unwrap();
    });
}
