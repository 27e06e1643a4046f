//! Bodies of answers: whole ones, and those that stream from a worker.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;

use tracing::Span;

use super::relay::{Broken, Relay};
use crate::ops::metrics::InFlight;

/// The body of an answer.
pub(crate) enum DoorBody {
    /// One that is there.
    Full(Full<Bytes>),
    /// One that a worker is still sending.
    Relay(Box<Relay>),
}

impl DoorBody {
    pub(crate) fn full(bytes: impl Into<Bytes>) -> Self {
        Self::Full(Full::new(bytes.into()))
    }
}

/// A body of an answer whose end is counted.
pub(crate) struct Counted {
    pub(crate) body: DoorBody,
    pub(crate) _in_flight: InFlight,
    /// Closes with the answer.
    pub(crate) span: Span,
}

impl Body for Counted {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let Self { body, span, .. } = self.get_mut();
        let _entered = span.enter();
        Pin::new(body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Body for DoorBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match self.get_mut() {
            Self::Full(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
            Self::Relay(relay) => relay.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(body) => body.is_end_stream(),
            Self::Relay(relay) => relay.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(body) => body.size_hint(),
            // The worker's own `content-length` says it, where there is one.
            Self::Relay(_) => SizeHint::default(),
        }
    }
}
