//! Who may ask for what, and what of it a worker sees.

use crate::world::{Plan, chat, send, whole};
use http::StatusCode;
use serde_json::json;
use sha2::{Digest, Sha256};

const PATH: &str = "/v1/chat/completions";

/// Three keys: for everything, for another model, for another routing group.
fn keys() -> String {
    let hex = |key: &str| Sha256::digest(key).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!(
        "keys:\n  - {{sha256: {}, tenant: one}}\n  - {{sha256: {}, tenant: two, models: [other]}}\n  \
         - {{sha256: {}, tenant: three, routing_group: elsewhere}}\n",
        hex("sk-one"),
        hex("sk-two"),
        hex("sk-three")
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_gives_a_routing_group_and_models() {
    let world = Plan::of(1).server(&keys()).start().await;
    let ask = async |key: &str| world.post(PATH, &chat("a", 2), &[("authorization", key)]).await;
    assert_eq!(ask("Bearer sk-one").await.status, StatusCode::OK);
    assert_eq!(ask("bearer sk-one").await.status, StatusCode::OK, "a scheme has no case");
    let unknown = (401, "invalid_api_key".to_owned(), "authentication_error".to_owned());
    for key in ["Bearer sk-none", "sk-one", "Basic sk-one", ""] {
        assert_eq!(ask(key).await.error(), unknown, "{key:?}");
    }
    assert_eq!(world.post(PATH, &chat("a", 2), &[]).await.error(), unknown);
    assert_eq!(world.get("/v1/models", &[]).await.error(), unknown);
    let denied = (403, "model_not_allowed".to_owned(), "permission_error".to_owned());
    assert_eq!(ask("Bearer sk-two").await.error(), denied);
    assert_eq!(ask("Bearer sk-three").await.error().0, 404, "its routing group has no such model");
    for (key, models) in [("sk-one", 1), ("sk-two", 0), ("sk-three", 0)] {
        let listed = world.get("/v1/models", &[("authorization", &format!("Bearer {key}"))]).await.json();
        assert_eq!(listed["data"].as_array().unwrap().len(), models, "{key}");
    }
    let mine = world.get("/v1/models/mock", &[("authorization", "Bearer sk-two")]).await;
    assert_eq!(mine.error().0, 404, "what a key may not use it is not told of");
    assert_eq!(world.get("/healthz", &[]).await.status, StatusCode::OK, "health asks for no key");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clients_key_goes_to_a_worker_that_asks_for_it_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    std::fs::write(&file, "sk-worker\n").unwrap();
    let own = format!("api_key_file: '{}'", file.display());
    for (fields, expected) in [
        (String::new(), None),
        ("forward_authorization: true".to_owned(), Some("Bearer sk-one")),
        (own, Some("Bearer sk-worker")),
    ] {
        let world = Plan::of(1).server(&keys()).workers(&fields).start().await;
        let answer = world.post(PATH, &chat("a", 2), &[("authorization", "Bearer sk-one")]).await;
        assert_eq!(answer.status, StatusCode::OK);
        let received = world.engines[0].received();
        let sent = received[0].headers.get("authorization").map(|value| value.to_str().unwrap());
        assert_eq!(sent, expected, "{fields}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trusted_proxy_says_who_asks() {
    let proxy = "trusted_proxy: {addresses: [127.0.0.1], routing_group_header: X-Group}\n";
    let world = Plan::of(1).server(proxy).start().await;
    let ask = async |group: &str| world.post(PATH, &chat("a", 2), &[("x-group", group)]).await.status;
    assert_eq!(ask("default").await, StatusCode::OK);
    assert_eq!(ask("elsewhere").await, StatusCode::NOT_FOUND);
    assert_eq!(world.post(PATH, &chat("a", 2), &[]).await.status, StatusCode::UNAUTHORIZED);

    let elsewhere = "trusted_proxy: {addresses: [10.1.2.3], routing_group_header: X-Group}\n";
    let world = Plan::of(1).server(elsewhere).start().await;
    let answer = world.post(PATH, &chat("a", 2), &[("x-group", "default")]).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "anybody else may say what it likes");
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_add_change_drain_and_remove_workers() {
    let world = Plan::of(2).start().await;
    let call =
        async |method: &str, path: &str, body: String| whole(send(method, &world.admin(path), body, &[]).await).await;
    let listed = call("GET", "/workers", String::new()).await.json();
    assert_eq!(listed["workers"].as_array().unwrap().len(), 2);
    assert_eq!(listed["workers"][0]["lifecycle"], "schedulable");

    let drained = call("POST", "/workers/1/drain", String::new()).await.json();
    assert_eq!(drained["lifecycle"], "draining");
    for text in ["a", "b", "c", "d"] {
        assert_eq!(world.chat(text, &[]).await, 2);
    }
    let body = json!({"worker_id": 7, "model_name": "fresh"}).to_string();
    let added = call("POST", "/workers", body).await;
    assert_eq!((added.status, added.json()["lifecycle"].as_str()), (StatusCode::CREATED, Some("incomplete")));
    assert_eq!(
        added.json()["not_schedulable_reasons"],
        json!(["endpoint is required", "block_size must be greater than 0"])
    );
    let patch = json!({"endpoint": world.engines[0].url(), "block_size": 16}).to_string();
    let patched = call("PATCH", "/workers/7", patch).await;
    assert_eq!((patched.status, patched.json()["lifecycle"].as_str()), (StatusCode::OK, Some("schedulable")));
    let models = world.get("/v1/models", &[]).await.json();
    assert_eq!(models["data"].as_array().unwrap().len(), 2);
    assert_eq!(call("DELETE", "/workers/7", String::new()).await.json()["lifecycle"], "unschedulable");
    assert_eq!(call("DELETE", "/workers/7", String::new()).await.status, StatusCode::NOT_FOUND);
    assert_eq!(call("GET", "/workers/1", String::new()).await.json()["worker_id"], 1);

    let wrong = json!({"worker_id": 8, "blok_size": 16}).to_string();
    let refused = call("POST", "/workers", wrong).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert!(refused.text().contains("blok_size"), "{}", refused.text());
    let other = call("PATCH", "/workers/1", json!({"worker_id": 9}).to_string()).await;
    assert_eq!(other.status, StatusCode::BAD_REQUEST);

    let versions = call("GET", "/versions", String::new()).await.json();
    assert_eq!((&versions["generation"], &versions["versions"][0]["instance"]), (&json!(1), &json!("default")));
    assert_eq!(call("POST", "/versions/roll_back", String::new()).await.status, StatusCode::CONFLICT);
}
