//! The metrics that workers publish, read every so often. One worker that is slow, gone or talks nonsense delays no other.

use std::collections::HashSet;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Body;
use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper::{Request, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::Connect;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::exposition::{Sample, samples};

/// Workers that are asked at the same time, at most.
const MAX_SCRAPES: usize = 64;

/// A metric that policies read, and what engines call it, the preferred name first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricName {
    /// The name that policies read it by, without `metric.`.
    pub name: String,
    /// Names in the text of a worker.
    pub sources: Vec<String>,
}

impl MetricName {
    /// A metric of that name: one of [`well_known`](Self::well_known), or else the one that engines call so.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let known = Self::well_known().into_iter().find(|known| known.name == name);
        known.unwrap_or_else(|| Self { name: name.to_owned(), sources: vec![name.to_owned()] })
    }

    /// The metrics that vLLM and SGLang both have, under one name each.
    #[must_use]
    pub fn well_known() -> Vec<Self> {
        let names: [(&str, &[&str]); 4] = [
            ("requests_running", &["vllm:num_requests_running", "sglang:num_running_reqs"]),
            ("requests_waiting", &["vllm:num_requests_waiting", "sglang:num_queue_reqs"]),
            ("kv_cache_usage", &["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage"]),
            ("generation_throughput", &["vllm:avg_generation_throughput_toks_per_s", "sglang:gen_throughput"]),
        ];
        let name = |(name, sources): (&str, &[&str])| Self {
            name: name.to_owned(),
            sources: sources.iter().map(|&source| source.to_owned()).collect(),
        };
        names.into_iter().map(name).collect()
    }
}

/// How workers are asked.
#[derive(Clone, Debug, PartialEq)]
pub struct ScrapeSettings {
    /// Between two times that a worker is asked.
    pub interval: Duration,
    /// Until a worker has answered whole.
    pub timeout: Duration,
    /// Bytes of an answer at most.
    pub max_bytes: usize,
    /// What is looked for.
    pub metrics: Vec<MetricName>,
}

impl Default for ScrapeSettings {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(2),
            timeout: Duration::from_secs(1),
            max_bytes: 4 << 20,
            metrics: MetricName::well_known(),
        }
    }
}

/// One worker's metrics endpoint. `C` is how its client connects, `B` the client's kind of body, of which an empty one is
/// sent.
#[derive(Debug)]
pub struct ScrapeTarget<C, B> {
    /// The worker.
    pub worker: u64,
    /// What it is asked with.
    pub client: Client<C, B>,
    /// Its endpoint, such as `http://10.0.0.7:8000/metrics`.
    pub uri: Uri,
    /// The header `authorization`, where it wants one.
    pub authorization: Option<HeaderValue>,
}

impl<C: Clone, B> Clone for ScrapeTarget<C, B> {
    fn clone(&self) -> Self {
        Self {
            worker: self.worker,
            client: self.client.clone(),
            uri: self.uri.clone(),
            authorization: self.authorization.clone(),
        }
    }
}

/// One value of one worker.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricValue {
    /// The name that policies read it by, without `metric.`.
    pub name: String,
    /// The data-parallel rank, by vLLM's label `engine` or SGLang's `dp_rank`; none where it holds for all of them.
    pub rank: Option<u32>,
    /// The value; may be NaN or infinite.
    pub value: f64,
}

/// What asking one worker came to.
#[derive(Debug)]
pub struct Scrape {
    /// The worker.
    pub worker: u64,
    /// When its answer was there, so that the values' age can be told.
    pub taken: Instant,
    /// The values, or why there are none.
    pub values: Result<Vec<MetricValue>, ScrapeError>,
}

/// Why a worker's metrics are not known.
#[derive(Debug, thiserror::Error)]
pub enum ScrapeError {
    /// It did not answer in time.
    #[error("no whole answer within {0:?}")]
    Timeout(Duration),
    /// It answered with another status than 200.
    #[error("the answer has status {0}")]
    Status(StatusCode),
    /// It cannot be reached, or its answer broke off or was too long.
    #[error("{0}")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
    /// Its answer is no text.
    #[error("the answer is not UTF-8")]
    NotText,
}

/// Asks the workers of `targets` every interval and sends what comes of it, until nobody listens or nobody can change the
/// targets any more. A worker that has not answered yet is not asked again.
pub async fn scrape_all<C, B>(
    settings: ScrapeSettings,
    mut targets: watch::Receiver<Vec<ScrapeTarget<C, B>>>,
    scrapes: mpsc::Sender<Scrape>,
) where
    C: Connect + Clone + Send + Sync + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Default + Send + Unpin + 'static,
{
    let (settings, permits) = (Arc::new(settings), Arc::new(Semaphore::new(MAX_SCRAPES)));
    let mut ticks = tokio::time::interval(settings.interval.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut asking, mut asked) = (JoinSet::new(), HashSet::new());
    loop {
        tokio::select! {
            () = scrapes.closed() => return,
            changed = targets.changed() => if changed.is_err() { return },
            Some(worker) = asking.join_next() => drop(worker.map(|worker| asked.remove(&worker))),
            _ = ticks.tick() => {
                for target in targets.borrow().iter().filter(|target| asked.insert(target.worker)) {
                    let (settings, permits) = (Arc::clone(&settings), Arc::clone(&permits));
                    let (target, scrapes) = (target.clone(), scrapes.clone());
                    asking.spawn(async move {
                        // The semaphore is never closed, and a scrape that nobody wants is no loss.
                        let _permit = permits.acquire().await;
                        let values = scrape(&settings, &target).await;
                        let _ = scrapes.send(Scrape { worker: target.worker, taken: Instant::now(), values }).await;
                        target.worker
                    });
                }
            }
        }
    }
}

/// Asks one worker once.
///
/// # Errors
/// No whole answer in time, or none that is the text of metrics.
pub async fn scrape<C, B>(
    settings: &ScrapeSettings,
    target: &ScrapeTarget<C, B>,
) -> Result<Vec<MetricValue>, ScrapeError>
where
    C: Connect + Clone + Send + Sync + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Default + Send + Unpin + 'static,
{
    let answer = tokio::time::timeout(settings.timeout, fetch(settings.max_bytes, target)).await;
    let body = answer.map_err(|_| ScrapeError::Timeout(settings.timeout))??;
    let text = std::str::from_utf8(&body).map_err(|_| ScrapeError::NotText)?;
    Ok(values(text, &settings.metrics))
}

async fn fetch<C, B>(max_bytes: usize, target: &ScrapeTarget<C, B>) -> Result<Bytes, ScrapeError>
where
    C: Connect + Clone + Send + Sync + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Default + Send + Unpin + 'static,
{
    let mut request = Request::new(B::default());
    *request.uri_mut() = target.uri.clone();
    if let Some(authorization) = &target.authorization {
        request.headers_mut().insert(AUTHORIZATION, authorization.clone());
    }
    let response = target.client.request(request).await.map_err(|error| ScrapeError::Failed(error.into()))?;
    if response.status() != StatusCode::OK {
        return Err(ScrapeError::Status(response.status()));
    }
    let body = Limited::new(response.into_body(), max_bytes).collect().await.map_err(ScrapeError::Failed)?;
    Ok(body.to_bytes())
}

/// The values of a text. Of a metric's names the first that is there counts; of several samples for one rank, as of
/// several models, the first.
fn values(text: &str, metrics: &[MetricName]) -> Vec<MetricValue> {
    let all: Vec<Sample<'_>> = samples(text).collect();
    let mut values: Vec<MetricValue> = Vec::new();
    for metric in metrics {
        let is_there = |source: &&String| all.iter().any(|sample| sample.name == source.as_str());
        let Some(source) = metric.sources.iter().find(is_there) else { continue };
        let mut ranks = HashSet::new();
        for sample in all.iter().filter(|sample| sample.name == source) {
            let rank = sample.label("engine").or_else(|| sample.label("dp_rank")).and_then(|rank| rank.parse().ok());
            if ranks.insert(rank) {
                values.push(MetricValue { name: metric.name.clone(), rank, value: sample.value });
            }
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, names: &[&str]) -> Vec<(String, Option<u32>, f64)> {
        let metrics: Vec<_> = names.iter().map(|name| MetricName::new(name)).collect();
        values(text, &metrics).into_iter().map(|value| (value.name, value.rank, value.value)).collect()
    }

    #[test]
    fn one_name_finds_what_each_engine_calls_it() {
        let vllm = "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 3\n\
                    vllm:num_requests_running{engine=\"1\",model_name=\"m\"} 4\n\
                    vllm:gpu_cache_usage_perc{model_name=\"m\"} 0.5\n";
        let running = || "requests_running".to_owned();
        assert_eq!(
            read(vllm, &["requests_running", "kv_cache_usage", "requests_waiting"]),
            [(running(), Some(0), 3.0), (running(), Some(1), 4.0), ("kv_cache_usage".to_owned(), None, 0.5)]
        );
        let sglang = "sglang:num_running_reqs{dp_rank=\"2\"} 7\n";
        assert_eq!(read(sglang, &["requests_running"]), [(running(), Some(2), 7.0)]);
    }

    #[test]
    fn a_name_of_an_engine_s_own_is_found_as_it_is() {
        let text = "my:metric{model_name=\"a\"} 1\nmy:metric{model_name=\"b\"} 2\n";
        assert_eq!(read(text, &["my:metric"]), [("my:metric".to_owned(), None, 1.0)]);
    }
}
