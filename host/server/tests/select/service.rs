//! A selection service on loopback, and a client of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use pointsman_routing::Router;
use pointsman_routing::config::{Overrides, PolicyConfig};
use pointsman_server::config::ServerConfig;
use pointsman_server::fleet::Fleet;
use pointsman_server::observe::NoObserver;
use pointsman_server::predicted::{Predicted, TTL_MS};
use pointsman_server::select::{SelectionOptions, routes};
use pointsman_server::{Clock, policies};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;

use crate::cases::Call;

/// A router by a router-policy file's text, or without one, and what tells it of prefixes.
pub fn router(policy: &str) -> (Arc<Router>, Arc<Predicted>) {
    let parse = |text| PolicyConfig::parse("policy.yaml", ".".as_ref(), text).unwrap();
    let policies = (!policy.is_empty()).then(|| parse(policy));
    let router = policies::router(&ServerConfig::default(), policies, Overrides::default(), |sandbox| sandbox).unwrap();
    let signals = Predicted { router_config: router.router_config(), ttl_ms: TTL_MS, kv_events: true };
    (Arc::new(router), Arc::new(signals))
}

pub struct Service {
    address: std::net::SocketAddr,
    client: Client<HttpConnector, Full<Bytes>>,
    pub fleet: Arc<Fleet>,
}

impl Service {
    /// Starts a service with a router-policy file's text, which may name the built-in policies; or with none.
    pub async fn start(policy: &str, options: SelectionOptions) -> Self {
        let (router, signals) = router(policy);
        let fleet = Arc::new(Fleet::new(router, signals, Arc::new(NoObserver), Clock::start(), Handle::current()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = routes(Arc::clone(&fleet), options);
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self::at(address, fleet)
    }

    /// A client of a service that runs already.
    pub fn at(address: std::net::SocketAddr, fleet: Arc<Fleet>) -> Self {
        Self { address, client: Client::builder(TokioExecutor::new()).build_http(), fleet }
    }

    pub async fn ask(&self, call: Call) -> (u16, Value) {
        let Call { method, path, headers, body } = call;
        let mut request = http::Request::builder().method(&*method).uri(format!("http://{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let answer = self.client.request(request.body(body.unwrap_or_default().into()).unwrap()).await.unwrap();
        let status = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap())
    }

    pub async fn call(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let json = ("content-type".to_owned(), "application/json".to_owned());
        let headers = body.is_some().then_some(json).into_iter().collect();
        let (method, path) = (method.to_owned(), path.to_owned());
        self.ask(Call { method, path, headers, body: body.map(Value::to_string) }).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.call("POST", path, Some(body)).await
    }

    /// Writes these bytes, and reads until the service closes or has answered.
    pub async fn raw(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = vec![0; 4_096];
        let read = stream.read(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer[..read]).into_owned()
    }

    /// Waits until the loads of the one partition are so.
    pub async fn until(&self, so: impl Fn(&Value) -> bool) {
        let started = Instant::now();
        loop {
            let (_, loads) = self.call("GET", "/loads", None).await;
            if so(&loads[0]) {
                return;
            }
            assert!(started.elapsed() < Duration::from_secs(30), "{loads}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until no worker has anything to do.
    pub async fn until_idle(&self) {
        let idle = |row: &Value| {
            ["potential_prefill_tokens", "potential_decode_blocks", "active_requests"].iter().all(|load| row[load] == 0)
        };
        self.until(|loads| loads["pending_count"] == json!(0) && loads["loads"].as_array().unwrap().iter().all(idle))
            .await;
    }
}
