//! Metrics read from simulated engines and from servers that misbehave.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use std::collections::BTreeMap;
use std::time::Duration;

use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use pointsman_mock::{MockConfig, MockEngine, Timing};
use pointsman_signals::{MetricName, Scrape, ScrapeError, ScrapeSettings, ScrapeTarget, scrape_all};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

/// A server that answers every request with these bytes, and with nothing where there are none.
async fn server(answer: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((mut connection, _)) = listener.accept().await {
            if answer.is_empty() {
                held.push(connection);
            } else {
                let _ = connection.read(&mut [0; 4096]).await;
                let _ = connection.write_all(&answer).await;
            }
        }
    });
    format!("http://{address}")
}

fn target(worker: u64, url: &str) -> ScrapeTarget<HttpConnector, String> {
    let client = Client::builder(TokioExecutor::new()).build_http();
    ScrapeTarget { worker, client, uri: format!("{url}/metrics").parse().unwrap(), authorization: None }
}

#[tokio::test]
async fn one_worker_s_failure_harms_no_other_and_targets_may_change() {
    let engine =
        MockEngine::start(MockConfig { data_parallel_size: 2, timing: Timing::instant(), ..MockConfig::default() })
            .await
            .unwrap();
    let long = format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{}", "x".repeat(1 << 20));
    let first = vec![
        target(1, &engine.url()),
        target(2, "http://127.0.0.1:1"),
        target(3, &server(Vec::new()).await),
        target(4, &server(long.into_bytes()).await),
        target(5, &(engine.url() + "/v1")),
    ];
    let settings = ScrapeSettings {
        interval: Duration::from_millis(20),
        timeout: Duration::from_millis(500),
        max_bytes: 64 << 10,
        metrics: vec![MetricName::new("requests_running"), MetricName::new("kv_cache_usage")],
    };
    let (targets, receiver) = watch::channel(first);
    let (sender, mut scrapes) = mpsc::channel(16);
    let scraping = tokio::spawn(scrape_all(settings, receiver, sender));

    let mut outcomes: BTreeMap<u64, Scrape> = BTreeMap::new();
    while outcomes.len() < 5 {
        let scrape = tokio::time::timeout(Duration::from_secs(30), scrapes.recv()).await.unwrap().unwrap();
        outcomes.insert(scrape.worker, scrape);
    }
    let values = outcomes[&1].values.as_ref().unwrap();
    let values: Vec<_> = values.iter().map(|value| (value.name.as_str(), value.rank, value.value)).collect();
    assert_eq!(
        values,
        [
            ("requests_running", Some(0), 0.0),
            ("requests_running", Some(1), 0.0),
            ("kv_cache_usage", Some(0), 0.0),
            ("kv_cache_usage", Some(1), 0.0),
        ]
    );
    let error = |worker: u64| outcomes[&worker].values.as_ref().unwrap_err();
    assert!(matches!(error(2), ScrapeError::Failed(_)), "{}", error(2));
    assert!(matches!(error(3), ScrapeError::Timeout(_)), "{}", error(3));
    assert!(matches!(error(4), ScrapeError::Failed(_)), "{}", error(4));
    assert!(matches!(error(5), ScrapeError::Status(status) if *status == 404), "{}", error(5));

    targets.send(vec![target(6, &engine.url())]).unwrap();
    let changed = async { while scrapes.recv().await.unwrap().worker != 6 {} };
    tokio::time::timeout(Duration::from_secs(30), changed).await.unwrap();
    drop(targets);
    tokio::time::timeout(Duration::from_secs(30), scraping).await.expect("it ends with its owner").unwrap();
}
