//! HTTP clients of the workers, one for each, with its connections.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Uri};
use http_body_util::Full;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::fleet::{Worker, WorkerSpec};
use crate::sync::{read, written};

/// A connection that idles longer is closed; engines close theirs after five seconds, and a request must not meet that.
const IDLE: Duration = Duration::from_secs(4);

/// Why a worker cannot be spoken to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpstreamError {
    #[error("worker {worker} has the endpoint `{endpoint}`, which is no URL; set one such as http://10.0.0.7:8000")]
    Endpoint { worker: u64, endpoint: String },
    #[error("worker {worker}: {what} {path} cannot be read ({reason}); give a readable file")]
    File { worker: u64, what: &'static str, path: String, reason: String },
    #[error("worker {worker}: the system's certificates cannot be read ({reason}); set `ca_file`")]
    Roots { worker: u64, reason: String },
}

/// How to speak to one worker.
pub(crate) struct Upstream {
    pub(crate) client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// Sent in place of the client's `Authorization`.
    pub(crate) key: Option<HeaderValue>,
    scheme: Scheme,
    authority: Authority,
    prefix: String,
    spec: WorkerSpec,
}

impl Upstream {
    fn new(spec: &WorkerSpec, connect: Duration) -> Result<Self, UpstreamError> {
        let worker = spec.worker_id;
        let endpoint = spec.endpoint.clone().unwrap_or_default();
        let parts = endpoint.parse::<Uri>().map(Uri::into_parts).ok();
        let known = parts.and_then(|parts| Some((parts.scheme?, parts.authority?, parts.path_and_query)));
        let Some((scheme, authority, path)) = known else {
            return Err(UpstreamError::Endpoint { worker, endpoint });
        };
        let prefix = path.map_or_else(String::new, |path| path.path().trim_end_matches('/').to_owned());
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(connect));
        let tls = HttpsConnectorBuilder::new().with_tls_config(tls(spec, &scheme)?).https_or_http();
        let mut client = Client::builder(TokioExecutor::new());
        client.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE).http2_only(spec.upstream.http2);
        let connector = match spec.upstream.http2 {
            true => tls.enable_http2().wrap_connector(http),
            false => tls.enable_all_versions().wrap_connector(http),
        };
        let key = spec.upstream.api_key_file.as_deref().map(|path| key(worker, path)).transpose()?;
        Ok(Self { client: client.build(connector), key, scheme, authority, prefix, spec: spec.clone() })
    }

    /// The URL of a path and query at the worker.
    pub(crate) fn uri(&self, path: &str) -> Option<Uri> {
        let path: PathAndQuery =
            if self.prefix.is_empty() { path.parse().ok()? } else { format!("{}{path}", self.prefix).parse().ok()? };
        let builder = Uri::builder().scheme(self.scheme.clone()).authority(self.authority.clone());
        builder.path_and_query(path).build().ok()
    }
}

fn key(worker: u64, path: &str) -> Result<HeaderValue, UpstreamError> {
    let failed = |reason: String| UpstreamError::File { worker, what: "the key", path: path.to_owned(), reason };
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let mut value =
        HeaderValue::try_from(format!("Bearer {}", text.trim())).map_err(|error| failed(error.to_string()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Whose certificates are believed.
fn tls(spec: &WorkerSpec, scheme: &Scheme) -> Result<ClientConfig, UpstreamError> {
    let worker = spec.worker_id;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots_failed = |reason: String| UpstreamError::Roots { worker, reason };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| roots_failed(error.to_string()))?;
    Ok(match &spec.upstream.ca_file {
        // No certificate will be looked at.
        _ if *scheme == Scheme::HTTP => builder.with_root_certificates(RootCertStore::empty()),
        None => builder.with_native_roots().map_err(|error| roots_failed(error.to_string()))?,
        Some(path) => builder.with_root_certificates(roots(worker, path)?),
    }
    .with_no_client_auth())
}

fn roots(worker: u64, path: &str) -> Result<RootCertStore, UpstreamError> {
    let failed =
        |reason: String| UpstreamError::File { worker, what: "the certificates", path: path.to_owned(), reason };
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(Path::new(path)).map_err(|error| failed(error.to_string()))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| failed(error.to_string()))?;
        roots.add(certificate).map_err(|error| failed(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(failed("there is none in it".to_owned()));
    }
    Ok(roots)
}

/// The clients of all workers.
pub(crate) struct Upstreams {
    connect: Duration,
    known: RwLock<HashMap<u64, Arc<Upstream>>>,
}

impl Upstreams {
    pub(crate) fn new(connect: Duration) -> Self {
        Self { connect, known: RwLock::default() }
    }

    /// The client of a worker: the same one as long as the worker says nothing else of how to reach it.
    pub(crate) fn of(&self, worker: &Worker) -> Result<Arc<Upstream>, UpstreamError> {
        let spec = &worker.spec;
        let same =
            |known: &&Arc<Upstream>| known.spec.endpoint == spec.endpoint && known.spec.upstream == spec.upstream;
        if let Some(known) = read(&self.known).get(&spec.worker_id).filter(same) {
            return Ok(Arc::clone(known));
        }
        let new = Arc::new(Upstream::new(spec, self.connect)?);
        written(&self.known).insert(spec.worker_id, Arc::clone(&new));
        Ok(new)
    }

    /// Forgets the clients of workers that have gone.
    pub(crate) fn retain(&self, lives: impl Fn(u64) -> bool) {
        written(&self.known).retain(|worker, _| lives(*worker));
    }
}
