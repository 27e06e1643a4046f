//! A running server in front of simulated engines, and a client for it.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use pointsman_admission::OverloadStatus;
use pointsman_mock::{MockConfig, MockEngine, Timing};
use pointsman_routing::config::{Overrides, PolicyConfig};
use pointsman_routing::{Load, WorkerKey};
use pointsman_server::config::ServerConfig;
use pointsman_server::observe::{NoObserver, Observer};
use pointsman_server::predicted::{Predicted, TTL_MS};
use pointsman_server::signals::ModelSignals;
use pointsman_server::{Server, Setup, policies};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// A server and the engines behind it, worker 1 first.
pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) engines: Vec<MockEngine>,
}

/// What a world is made of.
pub(crate) struct Plan {
    pub(crate) engines: Vec<MockConfig>,
    /// Further sections of the server file.
    pub(crate) server_file: String,
    /// Further fields of each worker in it.
    pub(crate) worker_fields: String,
    /// The router-policy file.
    pub(crate) policy_file: Option<&'static str>,
    /// The status for overload.
    pub(crate) overload: OverloadStatus,
    /// Who hears of decisions.
    pub(crate) observer: Arc<dyn Observer>,
}

impl Plan {
    /// So many engines that take no time.
    pub(crate) fn of(engines: usize) -> Self {
        let engine = |_| MockConfig { keep_requests: 64, ..instant() };
        let engines = (0..engines).map(engine).collect();
        let (server_file, worker_fields) = (String::new(), String::new());
        let (overload, observer) = (OverloadStatus::default(), Arc::new(NoObserver));
        Self { engines, server_file, worker_fields, policy_file: None, overload, observer }
    }

    pub(crate) fn server(mut self, sections: &str) -> Self {
        self.server_file = sections.to_owned();
        self
    }

    pub(crate) fn workers(mut self, fields: &str) -> Self {
        self.worker_fields = fields.to_owned();
        self
    }

    pub(crate) fn policies(mut self, file: &'static str) -> Self {
        self.policy_file = Some(file);
        self
    }

    /// Engines that take so many milliseconds for a token.
    pub(crate) fn slow(mut self, ms: u64) -> Self {
        for engine in &mut self.engines {
            engine.timing = Timing { decode_token: Duration::from_millis(ms), speedup: 1.0, ..Timing::default() };
        }
        self
    }

    pub(crate) async fn start(self) -> World {
        let mut engines = Vec::new();
        for config in self.engines {
            engines.push(MockEngine::start(config).await.unwrap());
        }
        let mut text = "listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\n".to_owned();
        if !engines.is_empty() {
            text += "workers:\n";
        }
        for (worker, engine) in (1..).zip(&engines) {
            let (url, fields) = (engine.url(), &self.worker_fields);
            writeln!(
                text,
                "  - {{worker_id: {worker}, model_name: mock, endpoint: '{url}', block_size: 16, \
                 max_num_batched_tokens: 2048, {fields}}}"
            )
            .unwrap();
        }
        let config = ServerConfig::parse("server.yaml", Path::new(""), &(text + &self.server_file)).unwrap();
        let policies = self.policy_file.map(|text| PolicyConfig::parse("policy.yaml", Path::new(""), text).unwrap());
        let router = policies::router(&config, policies, Overrides::default(), |sandbox| sandbox).unwrap();
        let predicted = Predicted { router_config: router.router_config(), ttl_ms: TTL_MS, kv_events: true };
        let signals = ModelSignals::new(&config.models, predicted).unwrap();
        let setup = Setup::new(config, Arc::new(router), Arc::new(signals));
        let setup = Setup { overload: self.overload, observer: self.observer, ..setup };
        let server = Server::start(setup).await.unwrap();
        World { server, engines }
    }
}

/// An engine that takes no time.
pub(crate) fn instant() -> MockConfig {
    MockConfig { timing: Timing::instant(), ..MockConfig::default() }
}

impl World {
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.address())
    }

    pub(crate) fn admin(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.admin_address().unwrap())
    }

    /// Sends a body to a path, with these headers.
    pub(crate) async fn post(&self, path: &str, body: &Value, headers: &[(&str, &str)]) -> Answer {
        whole(self.begin(path, body, headers).await).await
    }

    /// The same, without reading the answer's body.
    pub(crate) async fn begin(&self, path: &str, body: &Value, headers: &[(&str, &str)]) -> Response<Incoming> {
        send("POST", &self.url(path), body.to_string(), headers).await
    }

    pub(crate) async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        whole(send("GET", &self.url(path), "", headers).await).await
    }

    /// A chat that is answered whole, and the worker that answered.
    pub(crate) async fn chat(&self, text: &str, headers: &[(&str, &str)]) -> u64 {
        let mut all = vec![("x-pointsman-explain", "true")];
        all.extend(headers);
        let answer = self.post("/v1/chat/completions", &chat(text, 2), &all).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        worker_of(&answer.headers)
    }

    /// The load that is booked on a worker.
    pub(crate) fn load(&self, worker: u64) -> Load {
        let pool = self.server.fleet().pool("mock", "default").unwrap();
        pool.partition().load(WorkerKey::new(worker, 0)).unwrap_or_default()
    }

    /// Waits until nothing is booked anywhere.
    pub(crate) async fn idle(&self) {
        eventually("the loads are back at zero", || {
            (1..=self.engines.len() as u64).all(|worker| self.load(worker) == Load::default())
        })
        .await;
    }
}

/// The worker that a request's header of explanation names.
pub(crate) fn worker_of(headers: &HeaderMap) -> u64 {
    let text = headers["x-pointsman-decision"].to_str().unwrap();
    text.strip_prefix("worker=").unwrap().split(';').next().unwrap().parse().unwrap()
}

/// Waits until something holds; half a minute is for a machine that has much to do.
pub(crate) async fn eventually(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..3_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {what}");
}

/// Sends bytes as they are, and reads until the server closes the connection; `ends` says that nothing follows them.
pub(crate) async fn raw(address: SocketAddr, bytes: &[u8], ends: bool) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The server may refuse before it has read everything.
    let _ = stream.write_all(bytes).await;
    if ends {
        let _ = stream.shutdown().await;
    }
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text).await;
    String::from_utf8_lossy(&text).into_owned()
}

/// A world whose one worker computes a long prompt, so that the class `batch`, in which nothing may wait, is refused.
pub(crate) async fn busy(overload: OverloadStatus) -> (World, JoinHandle<Response<Incoming>>) {
    let mut plan = Plan { overload, ..Plan::of(1).policies(CLASSES) };
    plan.engines[0].timing.speedup = 1.0;
    plan.engines[0].timing.prefill_token = Duration::from_millis(20);
    let world = plan.start().await;
    let (url, body) = (world.url("/v1/chat/completions"), chat(&"prompt ".repeat(2_000), 1).to_string());
    let long = tokio::spawn(async move { send("POST", &url, body, &[]).await });
    eventually("the prompt is in prefill", || world.load(1).active_prefill_tokens > 0.0).await;
    (world, long)
}

const CLASSES: &str = "default_policy_family: standard
uncached_isl_buckets: [{min_tokens: 0, bucket: all}]
policy_classes:
  - {name: standard_all, policy_family: standard, cache_bucket: all, quantum: 1}
  - {name: batch, quantum: 1, prefill_busy_threshold: 0, request_queue_limit_per_worker: 0}";

/// A whole answer.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{}", self.text()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The status and the error's code and type, of an answer in OpenAI's shape.
    pub(crate) fn error(&self) -> (u16, String, String) {
        let error = &self.json()["error"];
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{error}");
        let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
        (self.status.as_u16(), text("code"), text("type"))
    }
}

pub(crate) fn client() -> Client<HttpConnector, Full<Bytes>> {
    Client::builder(TokioExecutor::new()).build_http()
}

pub(crate) fn request(
    method: &str,
    url: &str,
    body: impl Into<Bytes>,
    headers: &[(&str, &str)],
) -> Request<Full<Bytes>> {
    let mut request = Request::builder().method(method).uri(url).header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::new(body.into())).unwrap()
}

pub(crate) async fn send(
    method: &str,
    url: &str,
    body: impl Into<Bytes>,
    headers: &[(&str, &str)],
) -> Response<Incoming> {
    client().request(request(method, url, body, headers)).await.unwrap()
}

pub(crate) async fn whole(response: Response<Incoming>) -> Answer {
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Answer { status: head.status, headers: head.headers, body }
}

pub(crate) fn chat(text: &str, max_tokens: u32) -> Value {
    json!({"model": "mock", "messages": [{"role": "user", "content": text}], "max_tokens": max_tokens})
}

pub(crate) fn streaming(mut body: Value) -> Value {
    body["stream"] = json!(true);
    body
}

/// The data of a stream's events.
pub(crate) fn events(text: &str) -> Vec<&str> {
    text.split("\n\n").filter_map(|event| event.trim().strip_prefix("data: ")).collect()
}
