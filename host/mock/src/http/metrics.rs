//! `/metrics`: what each rank counts, in Prometheus's text format under vLLM's names.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

use super::app::App;
use crate::stats::Stats;

type Read = fn(&Stats) -> f64;

/// Name, type, help, value.
const METRICS: [(&str, &str, &str, Read); 10] = [
    ("vllm:num_requests_running", "gauge", "Requests in the batch.", |stats| stats.running as f64),
    ("vllm:num_requests_waiting", "gauge", "Requests that wait for a place in it.", |stats| stats.waiting as f64),
    ("vllm:kv_cache_usage_perc", "gauge", "Used KV blocks, from 0 to 1.", usage),
    ("vllm:gpu_cache_usage_perc", "gauge", "The same, under its older name.", usage),
    ("vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked up.", |stats| stats.prefix_queries as f64),
    ("vllm:prefix_cache_hits_total", "counter", "Prompt tokens found.", |stats| stats.prefix_hits as f64),
    ("vllm:prompt_tokens_total", "counter", "Prompt tokens prefilled.", |stats| stats.prompt_tokens as f64),
    ("vllm:generation_tokens_total", "counter", "Tokens of answers.", |stats| stats.generated_tokens as f64),
    ("vllm:request_success_total", "counter", "Requests that ended whole.", |stats| stats.finished as f64),
    ("vllm:num_preemptions_total", "counter", "Requests taken out of the batch; none ever is.", |_| 0.0),
];

fn usage(stats: &Stats) -> f64 {
    stats.used_blocks as f64 / stats.total_blocks.max(1) as f64
}

/// `GET /metrics`.
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> impl IntoResponse {
    let config = app.config();
    let model = config.model.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let ranks: Vec<Stats> = app.ranks().iter().map(|rank| rank.stats.read()).collect();
    let mut text = String::new();
    // Writing to a string cannot fail.
    for (name, kind, help, read) in METRICS {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (rank, stats) in ranks.iter().enumerate() {
            let _ = writeln!(text, "{name}{{engine=\"{rank}\",model_name=\"{model}\"}} {}", read(stats));
        }
    }
    let _ = writeln!(
        text,
        "# HELP vllm:cache_config_info The KV cache.\n# TYPE vllm:cache_config_info gauge\n\
         vllm:cache_config_info{{block_size=\"{}\",num_gpu_blocks=\"{}\"}} 1",
        config.block_size, config.total_kv_blocks
    );
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
}
