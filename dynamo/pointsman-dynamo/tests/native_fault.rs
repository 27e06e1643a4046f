//! What the same fault costs where the policy is native code in the router: what docs/dynamo.md says of it.

use std::sync::Arc;

use dynamo_kv_router::plugins::worker_selection::{
    WorkerInputView, WorkerPicker, WorkerSelectionContext, WorkerSelectionPolicy, WorkerSelectionPolicyError,
};
use dynamo_kv_router::services::selection::{SelectRequest, SelectionServiceBuilder, WorkerRequest};
use dynamo_kv_router::{KvRouterConfig, WorkerType};
use serde_json::json;

/// Takes the first row, but panics at the second request.
struct Panics(u32);

impl WorkerPicker for Panics {
    fn pick(
        &mut self,
        _: &WorkerSelectionContext<'_>,
        _: WorkerInputView<'_>,
    ) -> Result<usize, WorkerSelectionPolicyError> {
        self.0 += 1;
        assert!(self.0 != 2, "as told");
        Ok(0)
    }
}

#[tokio::test]
async fn a_native_plugin_that_panics_ends_its_partition() {
    let config = KvRouterConfig { use_kv_events: false, ..KvRouterConfig::default() };
    let registry = dynamo_custom_policy_builtin::default_registry();
    let service = SelectionServiceBuilder::new(config, WorkerType::Aggregated, registry)
        .worker_selection_policy_factory(Arc::new(|config, role, _| {
            WorkerSelectionPolicy::new(config.clone(), role.as_str(), Vec::new(), Box::new(Panics(0)))
        }))
        .build()
        .await
        .unwrap();
    let worker = WorkerRequest {
        endpoint: Some("http://127.0.0.1:9000".to_owned()),
        block_size: Some(16),
        ..WorkerRequest::default()
    };
    service.upsert_worker(worker).await.unwrap();
    let request = || serde_json::from_value::<SelectRequest>(json!({"token_ids": [1, 2, 3]})).unwrap();
    assert!(service.select(request()).await.is_ok());
    for _ in 0..3 {
        let error = service.select(request()).await.err().unwrap();
        assert_eq!(error.status_code(), 503, "{error}");
    }
}
