//! Headers that stand for one connection alone, and those that go on.

use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderName, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderValue};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
/// Says which request this is, here and in the worker's log.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Which data-parallel rank of a worker is to serve the request.
const RANK: HeaderName = HeaderName::from_static("x-data-parallel-rank");

/// Takes away what stands for one connection alone.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let always = [
        CONNECTION,
        KEEP_ALIVE,
        PROXY_CONNECTION,
        PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION,
        TE,
        TRAILER,
        TRANSFER_ENCODING,
        UPGRADE,
    ];
    for name in named.iter().chain(&always) {
        headers.remove(name);
    }
}

/// The headers that go to every worker that is tried.
pub(crate) fn for_workers(client: &HeaderMap, request_id: &HeaderValue, plain: bool) -> HeaderMap {
    let mut headers = client.clone();
    strip_hop_by_hop(&mut headers);
    for name in [HOST, CONTENT_LENGTH, EXPECT, RANK] {
        headers.remove(name);
    }
    if plain {
        // What is written into must not be compressed.
        headers.remove(ACCEPT_ENCODING);
    }
    headers.insert(REQUEST_ID, request_id.clone());
    headers
}

/// What one worker gets besides: its own key in place of the client's, and the rank that was chosen.
pub(crate) fn for_worker(
    headers: &mut HeaderMap,
    forward_authorization: bool,
    key: Option<&HeaderValue>,
    rank: Option<u32>,
) {
    match key {
        Some(key) => _ = headers.insert(AUTHORIZATION, key.clone()),
        None if !forward_authorization => _ = headers.remove(AUTHORIZATION),
        None => {}
    }
    if let Some(rank) = rank {
        headers.insert(RANK, rank.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn what_connection_names_goes_no_further() {
        let client = map(&[
            ("connection", "close, x-secret"),
            ("x-secret", "1"),
            ("te", "trailers"),
            ("host", "a"),
            ("content-length", "3"),
            ("x-data-parallel-rank", "5"),
            ("x-kept", "2"),
        ]);
        let sent = for_workers(&client, &HeaderValue::from_static("r1"), false);
        assert_eq!(sent, map(&[("x-kept", "2"), ("x-request-id", "r1")]));
    }

    #[test]
    fn the_clients_key_goes_on_only_where_the_worker_says_so() {
        let client = map(&[("authorization", "Bearer client")]);
        let own = HeaderValue::from_static("Bearer own");
        for (forward, key, expected) in [
            (false, None, None),
            (true, None, Some("Bearer client")),
            (false, Some(&own), Some("Bearer own")),
            (true, Some(&own), Some("Bearer own")),
        ] {
            let mut headers = client.clone();
            for_worker(&mut headers, forward, key, None);
            assert_eq!(headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap()), expected);
        }
    }
}
