//! A running selection service, and a client of it, in a network namespace of their own.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::{NAMESPACE, component};

/// Tokens of a KV block.
pub const BLOCK_SIZE: u64 = 16;

/// Runs the test of that name again in a network namespace; true where it is in one.
pub fn inside(test: &str, fixtures: &[&str]) -> bool {
    if std::env::var_os(NAMESPACE).is_some() {
        return true;
    }
    fixtures.iter().for_each(|fixture| drop(component(fixture)));
    let again = std::env::current_exe().unwrap();
    let namespace = |command: &str| {
        let mut unshare = Command::new("unshare");
        unshare
            .args(["-rn", "sh", "-c", command])
            .arg(&again)
            .args(["--exact", test, "--nocapture"])
            .env(NAMESPACE, "1");
        unshare.output()
    };
    let refused = |reason: &str| -> ! {
        panic!(
            "the service listens on 0.0.0.0, so that its tests run in a network namespace, and this machine grants \
             none: `unshare -rn` and `ip link set lo up` must work ({reason}); install util-linux and iproute2, and allow \
             unprivileged user namespaces"
        )
    };
    match namespace("ip link set lo up") {
        Err(error) => refused(&error.to_string()),
        Ok(tried) if !tried.status.success() => refused(String::from_utf8_lossy(&tried.stderr).trim()),
        Ok(_) => {}
    }
    let output = namespace(r#"ip link set lo up && exec "$0" "$@""#).unwrap();
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    println!("{text}");
    false
}

/// The running binary and a client of it.
pub struct Service {
    process: Child,
    port: u16,
    client: reqwest::Client,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// The binary with a router-policy file, without the variables that would change what it does.
pub fn command(folder: &Path, port: u16, yaml: &str) -> Command {
    let file = folder.join(format!("policy-{port}.yaml"));
    std::fs::write(&file, yaml).unwrap();
    let mut command = Command::new(option_env!("CARGO_BIN_EXE_pointsman-dynamo").unwrap_or("pointsman-dynamo"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("DYN_") || name == "RUST_LOG") {
        command.env_remove(name);
    }
    command.args(["--log", "warn", "--port", &port.to_string(), "--router-policy-config"]).arg(file);
    command.env("DYN_ROUTER_USE_KV_EVENTS", "false").current_dir(folder).stderr(Stdio::piped());
    command
}

impl Service {
    /// Starts the service with `workers` workers, 0, 1, 2...
    pub async fn start(folder: &Path, port: u16, yaml: &str, workers: u64) -> Self {
        let service = Self::run(command(folder, port, yaml), port).await;
        for worker in 0..workers {
            let endpoint = format!("http://127.0.0.1:{}", 9_000 + worker);
            let body = json!({"worker_id": worker, "model_name": "m", "endpoint": endpoint, "block_size": BLOCK_SIZE});
            assert_eq!(service.post("/workers", &body).await.0, 201);
        }
        service
    }

    /// Runs a command that starts a selection service on that port.
    pub async fn run(mut command: Command, port: u16) -> Self {
        let process = command.spawn().unwrap();
        let mut service = Self { process, port, client: reqwest::Client::new() };
        while service.client.get(service.url("/health")).send().await.is_err() {
            if service.process.try_wait().unwrap().is_some() {
                let mut text = String::new();
                service.process.stderr.take().unwrap().read_to_string(&mut text).unwrap();
                panic!("the service ended: {text}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        service
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let headers = [("content-type".to_owned(), "application/json".to_owned())];
        self.ask("POST", path, &headers, Some(body.to_string())).await
    }

    pub async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(String, String)],
        body: Option<String>,
    ) -> (u16, Value) {
        let mut request = self.client.request(method.parse().unwrap(), self.url(path));
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let answer = request.body(body.unwrap_or_default()).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }

    pub async fn free(&self, id: &str) {
        let answer = self.client.delete(self.url(&format!("/reservations/{id}"))).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 200);
    }

    /// Books `blocks` blocks on a worker.
    pub async fn book(&self, worker: u64, id: &str, blocks: u64) {
        let mut body = prompt(blocks, worker << 32);
        let more = json!({"selection_id": id, "worker_id": worker, "dp_rank": 0});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        loop {
            let (status, answer) = self.post("/reservations", &body).await;
            match status {
                201 => return,
                // A worker that was registered just now may not have arrived everywhere.
                404 => tokio::time::sleep(Duration::from_millis(10)).await,
                _ => panic!("{status}: {answer}"),
            }
        }
    }

    /// The chosen worker, or the status and Dynamo's words.
    pub async fn select(&self) -> Result<u64, (u16, String)> {
        match self.post("/select", &prompt(4, 1 << 40)).await {
            (200, answer) => Ok(answer["worker_id"].as_u64().unwrap()),
            (status, answer) => Err((status, answer["error"].as_str().unwrap().to_owned())),
        }
    }
}

/// A prompt of so many blocks that shares none with a prompt of another `start`.
pub fn prompt(blocks: u64, start: u64) -> Value {
    let tokens: Vec<_> =
        (0..blocks * BLOCK_SIZE).map(|token| (start.wrapping_mul(2_654_435_761) + token) as u32).collect();
    json!({"model_name": "m", "token_ids": tokens})
}
