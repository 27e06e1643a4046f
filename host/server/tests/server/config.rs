//! The server file: what it may say, and what is said of mistakes.

use std::path::Path;

use pointsman_server::config::ServerConfig;

fn problems(text: &str) -> Vec<String> {
    let problems = ServerConfig::parse("server.yaml", Path::new("/etc/pointsman"), text).unwrap_err();
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn every_problem_is_told_at_once_with_its_line() {
    let text = "listn: 127.0.0.1:1\nadmin: {listen: 0.0.0.0:9}\nkeys:\n  - {sha256: abc}\nworkers:\n  \
                - {worker_id: 1, endpoint: ftp://x, block_size: 0}\n  - {worker_id: 2, endpoint: http://a, \
                block_size: 16, role: prefill}\nretries: 11\n";
    let problems = problems(text);
    let expected = [
        "server.yaml:1: listn: unknown field `listn` (did you mean `listen`?)",
        "server.yaml:2: admin.listen: the admin API asks for no key and this address is not loopback",
        "server.yaml:4: keys[0].sha256: must be the SHA-256 of the key as 64 hex digits",
        "server.yaml:6: workers[0].endpoint: `ftp://x` is no URL of a worker",
        "server.yaml:6: workers[0].block_size: must be a whole number from 1",
        "server.yaml:7: workers[1].role: disaggregated serving is not supported yet",
        "server.yaml:8: retries: must be a whole number from 0 to 10, not `11`",
    ];
    assert_eq!(problems.len(), expected.len(), "{problems:#?}");
    for (problem, expected) in problems.iter().zip(expected) {
        assert!(problem.starts_with(expected), "{problem}\n{expected}");
    }
}

#[test]
fn the_same_worker_or_key_may_not_stand_there_twice() {
    let worker = "  - {worker_id: 1, endpoint: 'http://a', block_size: 16}\n";
    let problems = problems(&format!("workers:\n{worker}{worker}"));
    assert_eq!(problems.len(), 1);
    assert!(problems[0].starts_with("server.yaml:3: workers[1]: the same worker stands here twice"), "{problems:?}");
}

#[test]
fn a_file_says_what_it_says() {
    let text = "listen: 0.0.0.0:80
tls: {certificate: cert.pem, key: /keys/key.pem}
admin: {listen: '[::1]:9000'}
selection: {listen: 127.0.0.1:8092}
metrics: [kv_cache_usage_perc]
headers: [X-Region]
models: [{name: m, tokenizer: m/tokenizer.json}]
timeouts: {drain_ms: 0, first_byte_ms: 1500}
workers:
  - worker_id: 18446744073709551615
    model_name: m
    endpoint: https://w1:8000/base/
    block_size: 16
    data_parallel_size: 2
    taints: [spot]
    labels: {cost: 0.5}
    kv_events_endpoints: {'0': 'tcp://w1:5557', '1': 'tcp://w1:5558'}
    api_key_file: key
";
    let config = ServerConfig::parse("server.yaml", Path::new("/etc/pointsman"), text).unwrap();
    let tls = config.tls.unwrap();
    assert_eq!((tls.certificate, tls.key), ("/etc/pointsman/cert.pem".into(), "/keys/key.pem".into()));
    assert_eq!(config.headers, ["x-region"]);
    assert_eq!(config.models[0].tokenizer.as_deref(), Some(Path::new("/etc/pointsman/m/tokenizer.json")));
    assert_eq!(config.timeouts.first_byte.as_millis(), 1_500);
    assert_eq!(config.timeouts.idle, pointsman_server::config::Timeouts::default().idle);
    let worker = &config.workers[0];
    assert_eq!((worker.worker_id, worker.endpoint.as_deref()), (u64::MAX, Some("https://w1:8000/base")));
    assert_eq!(worker.kv_events_endpoints[&1], "tcp://w1:5558");
    assert_eq!(worker.upstream.api_key_file.as_deref(), Some("/etc/pointsman/key"));
    assert_eq!(ServerConfig::parse("server.yaml", Path::new(""), "{}").unwrap(), ServerConfig::default());
}

#[test]
fn the_document_names_every_key() {
    const DOCUMENT: &str = include_str!("../../../../docs/operations.md");
    for (text, prefix) in [
        ("x: 1", ""),
        ("tls: {x: 1}", ""),
        ("admin: {x: 1}", ""),
        ("selection: {x: 1}", ""),
        ("keys: [{x: 1}]", ""),
        ("trusted_proxy: {x: 1}", ""),
        ("models: [{x: 1}]", ""),
        ("workers: [{x: 1}]", ""),
        ("limits: {x: 1}", "limits."),
        ("timeouts: {x: 1}", "timeouts."),
    ] {
        let problem = problems(text).into_iter().find(|problem| problem.contains("unknown field `x`")).unwrap();
        let (_, keys) = problem.split_once("the fields allowed here are ").unwrap();
        for key in keys.split(", ") {
            // A section with keys of its own is named by them.
            let named = DOCUMENT.contains(&format!("`{prefix}{key}`")) || DOCUMENT.contains(&format!("`{key}."));
            assert!(named, "docs/operations.md says nothing of `{prefix}{key}`");
        }
    }
}
