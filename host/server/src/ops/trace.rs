//! Traces for OpenTelemetry: spans go to a collector by OTLP over HTTP, and carry on the client's trace.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::trace::TracerProvider;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tokio::runtime::Handle;
use tracing::{Span, Subscriber};
use tracing_opentelemetry::{OpenTelemetryLayer, OpenTelemetrySpanExt};
use tracing_subscriber::registry::LookupSpan;

/// How long one batch of spans may take to be sent.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer of a collector that is read, in bytes.
const MOST_ANSWER: usize = 1 << 20;

/// Why traces cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The system's certificates cannot be read.
    #[error("the certificates of this system, which vouch for the collector of traces, cannot be read: {0}")]
    Roots(#[source] std::io::Error),
    /// The endpoint is none.
    #[error(
        "the endpoint {endpoint} for traces cannot be used: {reason}; give a URL such as http://127.0.0.1:4318/v1/traces"
    )]
    Endpoint {
        /// What was given.
        endpoint: String,
        /// What is wrong.
        reason: String,
    },
}

/// Spans on their way to a collector.
#[derive(Debug)]
pub struct Traces(SdkTracerProvider);

impl Traces {
    /// Sends spans to the OTLP collector at `endpoint`, a URL with its path, from `runtime`.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn start(endpoint: &str, runtime: Handle) -> Result<Self, TraceError> {
        provider(endpoint, runtime).map(Self)
    }

    /// The layer that makes spans of the program spans of the trace.
    #[must_use]
    pub fn layer<S>(&self) -> OpenTelemetryLayer<S, SdkTracer>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        tracing_opentelemetry::layer().with_tracer(self.0.tracer("pointsman"))
    }

    /// Sends what is left, and sends no more. Blocks until that is done, so it is not for the threads of `runtime`.
    pub fn finish(self) {
        if let Err(error) = self.0.shutdown() {
            tracing::warn!(%error, "the last spans could not be sent");
        }
    }
}

fn provider(endpoint: &str, runtime: Handle) -> Result<SdkTracerProvider, TraceError> {
    let wrong = |reason: String| TraceError::Endpoint { endpoint: endpoint.to_owned(), reason };
    let scheme = endpoint.parse::<http::Uri>().map_err(|error| wrong(error.to_string()))?;
    if !matches!(scheme.scheme_str(), Some("http" | "https")) {
        return Err(wrong("it is no http:// or https:// URL".to_owned()));
    }
    let connector = HttpsConnectorBuilder::new()
        .with_provider_and_native_roots(rustls::crypto::ring::default_provider())
        .map_err(TraceError::Roots)?
        .https_or_http()
        .enable_http1()
        .build();
    let client = Client::builder(TokioExecutor::new()).build(connector);
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(Sender { client, runtime })
        .with_endpoint(endpoint)
        .with_timeout(TIMEOUT)
        .build()
        .map_err(|error| wrong(error.to_string()))?;
    let resource = Resource::builder().with_service_name("pointsman").build();
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build())
}

/// Makes `span` part of the trace that the client's `traceparent` names, where it names one.
pub fn continue_from(span: &Span, headers: &HeaderMap) {
    if span.is_disabled() {
        return;
    }
    // A span that no layer listens to has no trace to be part of.
    let _ = span.set_parent(TraceContextPropagator::new().extract(&Incoming(headers)));
}

/// Names the trace of `span` to a worker.
pub fn pass_on(span: &Span, headers: &mut HeaderMap) {
    if span.is_disabled() {
        return;
    }
    TraceContextPropagator::new().inject_context(&span.context(), &mut Outgoing(headers));
}

struct Incoming<'a>(&'a HeaderMap);

impl Extractor for Incoming<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

struct Outgoing<'a>(&'a mut HeaderMap);

impl Injector for Outgoing<'_> {
    fn set(&mut self, key: &str, value: String) {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(key), HeaderValue::try_from(value)) {
            self.0.insert(name, value);
        }
    }
}

/// The exporter's thread knows no async runtime: what it sends goes out from the server's.
#[derive(Clone, Debug)]
struct Sender {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    runtime: Handle,
}

#[async_trait]
impl HttpClient for Sender {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client.clone();
        let sent = self.runtime.spawn(async move {
            let response = tokio::time::timeout(TIMEOUT, client.request(request.map(Full::new))).await??;
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, MOST_ANSWER).collect().await?.to_bytes();
            Ok::<_, HttpError>(Response::from_parts(parts, body))
        });
        let sent = sent.await?;
        match &sent {
            Ok(response) if response.status().is_success() => {}
            Ok(response) => tracing::warn!(status = %response.status(), "the collector refuses the traces"),
            Err(error) => tracing::warn!(error, "the collector of traces cannot be reached; its spans are lost"),
        }
        sent
    }
}
