//! TLS on both sides of the front door: a server behind another one.

use std::path::Path;
use std::sync::Arc;

use crate::world::{Plan, chat, streaming, whole};
use http::StatusCode;
use http_body_util::Full;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

fn file(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server/certificates").join(name).display().to_string()
}

fn tls() -> String {
    format!("tls: {{certificate: '{}', key: '{}'}}\n", file("certificate.pem"), file("key.pem"))
}

fn trusting() -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(file("ca.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    builder.with_root_certificates(roots).with_no_client_auth()
}

#[tokio::test(flavor = "multi_thread")]
async fn both_sides_of_the_door_speak_tls() {
    let inner = Plan::of(1).server(&tls()).start().await;
    let port = inner.server.address().port();
    let mut plan = Plan::of(0).server(&tls());
    plan.server_file += &format!(
        "workers:\n  - {{worker_id: 9, model_name: mock, endpoint: 'https://127.0.0.1:{port}', block_size: 16, \
         ca_file: '{}'}}\n",
        file("ca.pem")
    );
    let outer = plan.start().await;
    let url = format!("https://{}/v1/chat/completions", outer.server.address());
    for http2 in [false, true] {
        let builder = HttpsConnectorBuilder::new().with_tls_config(trusting()).https_only();
        let connector = if http2 { builder.enable_http2().build() } else { builder.enable_http1().build() };
        let client = Client::builder(TokioExecutor::new()).http2_only(http2).build::<_, Full<bytes::Bytes>>(connector);
        for body in [chat("hello", 3), streaming(chat("hello", 3))] {
            let response = client.request(crate::world::request("POST", &url, body.to_string(), &[])).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            assert!(whole(response).await.text().contains("choices"));
        }
    }
    assert_eq!(inner.engines[0].stats()[0].finished, 4);
    let plain = crate::world::client().request(crate::world::request("GET", &outer.url("/v1/models"), "", &[])).await;
    assert!(plain.is_err(), "plain HTTP is not answered");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workers_certificate_must_be_vouched_for() {
    let inner = Plan::of(1).server(&tls()).start().await;
    let port = inner.server.address().port();
    let mut plan = Plan::of(0);
    plan.server_file = format!(
        "workers:\n  - {{worker_id: 9, model_name: mock, endpoint: 'https://localhost:{port}', block_size: 16, \
         ca_file: '{}'}}\n",
        // Signed by another authority than that of this file.
        file("certificate.pem")
    );
    let outer = plan.start().await;
    let error = outer.post("/v1/chat/completions", &chat("a", 2), &[]).await.error();
    assert_eq!(error, (502, "worker_failed".to_owned(), "server_error".to_owned()));
}
