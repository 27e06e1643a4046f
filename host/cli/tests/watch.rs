//! A router that runs follows its files: a sound change takes over, an unsound one is told and changes nothing.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use pointsman_routing::config::PolicyConfig;
use pointsman_routing::{Partition, PartitionKey, Request, Router, WorkerConfig};
use pointsman_sandbox::{Outcome, Sandbox, SandboxConfig, WorkerCommand};
use pointsman_watch::{WatchEvent, Watcher};

struct Running {
    folder: tempfile::TempDir,
    router: Arc<Router>,
    partition: Arc<Partition>,
    events: Receiver<WatchEvent>,
    _watcher: Watcher,
}

fn yaml(component: &str) -> String {
    format!("worker_selection:\n  aggregated: it\n  instances: [{{name: it, component: {component}}}]\n")
}

/// Replaces a file as deployment tools do: written beside it, then renamed.
fn put(folder: &Path, name: &str, bytes: &[u8]) {
    let beside = folder.join(format!("{name}.new"));
    std::fs::write(&beside, bytes).unwrap();
    std::fs::rename(beside, folder.join(name)).unwrap();
}

fn built_in(name: &str) -> &'static [u8] {
    pointsman_policies::get(name).unwrap().component
}

impl Running {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), "a.wasm", built_in("round-robin"));
        put(folder.path(), "policy.yaml", yaml("a.wasm").as_bytes());
        let file = folder.path().join("policy.yaml");
        let mut config = SandboxConfig { guests: 16, ..SandboxConfig::default() };
        config.compile.worker = Some(WorkerCommand::new(env!("CARGO_BIN_EXE_pointsman")));
        let builder = Router::builder().sandbox(Sandbox::new(config).unwrap());
        let router = builder.policy_config(PolicyConfig::load(&file).unwrap()).build().unwrap();
        let router = Arc::new(router);
        let partition = router.partition(&PartitionKey::default(), 16).unwrap();
        (0..3).for_each(|worker| partition.upsert_worker(WorkerConfig::new(worker)).unwrap());
        let (tell, events) = channel();
        let watcher = Watcher::start(Arc::clone(&router), file, Duration::from_millis(20), move |event| {
            let _ = tell.send(event);
        });
        Self { folder, router, partition, events, _watcher: watcher.unwrap() }
    }

    /// The next event, while decisions go on.
    fn next(&self) -> WatchEvent {
        for _ in 0..60_000 {
            assert_eq!(self.partition.decide(&Request::default()).unwrap().outcome, Outcome::Ok);
            if let Ok(event) = self.events.recv_timeout(Duration::from_millis(1)) {
                return event;
            }
        }
        panic!("nothing was told within a minute")
    }

    fn digest(&self) -> String {
        self.router.versions()[0].artifacts[0].digest.clone().unwrap()
    }

    fn rows(&self) -> [u32; 3] {
        [(); 3].map(|()| self.partition.decide(&Request::default()).unwrap().row)
    }
}

#[test]
fn a_new_artifact_under_the_same_name_takes_over() {
    let running = Running::start();
    let before = running.digest();
    assert_eq!(
        {
            let mut rows = running.rows();
            rows.sort_unstable();
            rows
        },
        [0, 1, 2]
    );
    put(running.folder.path(), "a.wasm", built_in("least-loaded"));
    let WatchEvent::Activated(activation) = running.next() else { panic!("the change is sound") };
    assert_eq!((activation.generation, activation.changed.len()), (2, 1));
    assert_ne!(running.digest(), before);
    assert_eq!(running.rows(), [0, 0, 0], "nothing is booked, so that the first is always the least loaded");
}

#[test]
fn what_is_not_sound_is_told_once_and_changes_nothing() {
    let running = Running::start();
    let before = running.digest();
    put(running.folder.path(), "a.wasm", b"no component");
    let WatchEvent::Refused(message) = running.next() else { panic!("the change is not sound") };
    assert!(message.contains("`it`") && message.contains("is not WebAssembly"), "{message}");
    put(running.folder.path(), "policy.yaml", b"worker_selection: {agregated: it}");
    let WatchEvent::Refused(message) = running.next() else { panic!("the change is not sound") };
    assert!(message.contains("agregated"), "{message}");
    assert_eq!((running.digest(), running.router.generation()), (before, 1));
    // Told once: the next event is that of the next change.
    put(running.folder.path(), "b.wasm", built_in("random"));
    put(running.folder.path(), "policy.yaml", yaml("b.wasm").as_bytes());
    assert!(matches!(running.next(), WatchEvent::Activated(activation) if activation.generation == 2));
    put(running.folder.path(), "b.wasm", built_in("least-loaded"));
    assert!(matches!(running.next(), WatchEvent::Activated(activation) if activation.generation == 3));
}
