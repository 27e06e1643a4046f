//! Accepts connections, and closes them in the middle where a failure asks for it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tower::ServiceExt;

/// The connection that a request came by.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connection(Arc<Notify>);

impl Connection {
    /// Closes it, with all requests on it, once what was written before is out. Never returns.
    pub(crate) async fn close<T>(&self) -> T {
        tokio::time::sleep(Duration::from_millis(20)).await;
        self.0.notify_one();
        std::future::pending().await
    }

    fn closed(&self) -> impl Future<Output = ()> {
        self.0.notified()
    }
}

/// Accepts until it is dropped, with all its connections.
pub(crate) async fn accept(listener: TcpListener, router: Router, refuse: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(_) if *refuse.borrow() => {}
                Ok((stream, _)) => drop(connections.spawn(serve(stream, router.clone(), refuse.clone()))),
                Err(error) => {
                    tracing::warn!(%error, "a connection is not accepted");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: TcpStream, router: Router, mut refuse: watch::Receiver<bool>) {
    // Without it tokens only come later.
    let _ = stream.set_nodelay(true);
    let connection = Connection::default();
    let closer = connection.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(closer.clone());
        router.clone().oneshot(request.map(Body::new))
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    tokio::select! {
        biased;
        served = builder.serve_connection(TokioIo::new(stream), service) => {
            if let Err(error) = served {
                tracing::debug!(error, "a connection ended early");
            }
        }
        () = connection.closed() => {}
        _ = refuse.wait_for(|refuse| *refuse) => {}
    }
}
