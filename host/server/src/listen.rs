//! Listening: connections accepted, TLS ended, HTTP/1.1 and HTTP/2 served, and all of it drained on a signal.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::config::{DoorLimits, Timeouts, TlsFiles};

/// Streams of one HTTP/2 connection at a time.
const STREAMS: u32 = 1_024;
/// After an accept that failed, such as for want of descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// Why an address is not listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address is taken, or is not this machine's.
    #[error("cannot listen on {address}: {source}; choose another address")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// The certificate or its key is of no use.
    #[error("the certificate or key {path} cannot be used ({reason}); give PEM files that belong together")]
    Tls {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// A bound address that waits to be served.
pub(crate) struct Listener {
    tcp: TcpListener,
    tls: Option<TlsAcceptor>,
    limits: DoorLimits,
    timeouts: Timeouts,
    pub(crate) address: SocketAddr,
}

impl Listener {
    pub(crate) async fn bind(
        address: SocketAddr,
        tls: Option<&TlsFiles>,
        limits: DoorLimits,
        timeouts: Timeouts,
    ) -> Result<Self, ListenError> {
        let failed = |source| ListenError::Bind { address, source };
        let tls = tls.map(acceptor).transpose()?;
        let tcp = TcpListener::bind(address).await.map_err(failed)?;
        let address = tcp.local_addr().map_err(failed)?;
        Ok(Self { tcp, tls, limits, timeouts, address })
    }

    /// Serves until `stop` is set, then lets what runs end for as long as the drain may take.
    pub(crate) async fn serve<H, F, B>(self, handle: H, mut stop: watch::Receiver<bool>)
    where
        H: Fn(Request<Incoming>, SocketAddr) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes, Error: std::error::Error + Send + Sync> + Send + 'static,
    {
        let Self { tcp, tls, limits, timeouts, .. } = self;
        let builder = Arc::new(builder(&limits, &timeouts));
        let graceful = GracefulShutdown::new();
        let places = Arc::new(Semaphore::new(limits.connections as usize));
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                _ = stop.wait_for(|stop| *stop) => break,
                Some(_) = connections.join_next() => continue,
                accepted = accept(&tcp, &places) => accepted,
            };
            let (stream, peer, place) = accepted;
            let _ = stream.set_nodelay(true);
            let (builder, tls, handle, watcher) =
                (Arc::clone(&builder), tls.clone(), handle.clone(), graceful.watcher());
            connections.spawn(async move {
                let _place = place;
                let Some(stream) = handshake(tls, stream, timeouts.headers).await else { return };
                let begun = Arc::new(Notify::new());
                let begins = Arc::clone(&begun);
                let service = service_fn(move |request| {
                    begins.notify_one();
                    let answered = handle(request, peer);
                    async move { Ok::<_, Infallible>(answered.await) }
                });
                let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
                let mut connection = pin!(watcher.watch(connection));
                // Which version of HTTP the client speaks is waited for without a timer of its own.
                let ended = tokio::select! {
                    ended = &mut connection => ended,
                    () = begun.notified() => connection.await,
                    () = tokio::time::sleep(timeouts.headers) => return,
                };
                if let Err(error) = ended {
                    tracing::debug!(%peer, error, "a connection ended");
                }
            });
        }
        drop(tcp);
        if tokio::time::timeout(timeouts.drain, graceful.shutdown()).await.is_err() {
            tracing::warn!("requests were cut off: the drain took too long");
        }
        connections.shutdown().await;
    }
}

async fn accept(
    tcp: &TcpListener,
    places: &Arc<Semaphore>,
) -> (TcpStream, SocketAddr, Option<tokio::sync::OwnedSemaphorePermit>) {
    // The semaphore is never closed.
    let place = Arc::clone(places).acquire_owned().await.ok();
    loop {
        match tcp.accept().await {
            Ok((stream, peer)) => return (stream, peer, place),
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// What a connection's bytes are read from and written to.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

async fn handshake(tls: Option<TlsAcceptor>, stream: TcpStream, most: Duration) -> Option<Box<dyn Stream>> {
    let Some(tls) = tls else { return Some(Box::new(stream)) };
    match tokio::time::timeout(most, tls.accept(stream)).await {
        Ok(Ok(stream)) => Some(Box::new(stream)),
        Ok(Err(error)) => {
            tracing::debug!(%error, "a TLS handshake failed");
            None
        }
        Err(_) => None,
    }
}

fn builder(limits: &DoorLimits, timeouts: &Timeouts) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(timeouts.headers)
        .max_buf_size(limits.header_bytes as usize)
        .max_headers(limits.headers as usize)
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(limits.header_bytes)
        .max_concurrent_streams(STREAMS)
        .keep_alive_interval(timeouts.headers)
        .keep_alive_timeout(timeouts.headers);
    builder
}

fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, ListenError> {
    let failed = |path: &Path, reason: String| ListenError::Tls { path: path.display().to_string(), reason };
    let certificates = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| failed(&files.certificate, error.to_string()))?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| failed(&files.key, error.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(certificates, key))
        .map_err(|error| failed(&files.certificate, error.to_string()))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
