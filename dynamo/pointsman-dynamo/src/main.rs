//! Dynamo's own selection service with the worker-selection type `wasm` linked.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use dynamo_kv_router::WorkerType;
use dynamo_kv_router::config::try_kv_router_config_from_dynamo_env;
use dynamo_kv_router::services::selection::{
    SelectionServiceBuilder, run_server, warn_for_unserved_worker_selection_policies,
};
use pointsman_dynamo::WorkerCommand;
use tracing_subscriber::filter::LevelFilter;

/// NVIDIA Dynamo's selection service, with policies as WebAssembly components: the worker-selection type `wasm`.
///
/// It listens on every address of the machine and asks nobody who they are: keep it inside a trusted network. Dynamo's
/// own DYN_ROUTER_ variables hold for it.
#[derive(Parser)]
#[command(name = "pointsman-dynamo", version)]
struct Service {
    /// The TCP port, on 0.0.0.0.
    #[arg(long, default_value_t = 8092)]
    port: u16,
    /// The router-policy file.
    #[arg(long, env = "DYN_ROUTER_POLICY_CONFIG")]
    router_policy_config: Option<String>,
    /// What the workers do: aggregated, prefill, decode or encode.
    #[arg(long, default_value = "aggregated")]
    worker_type: WorkerType,
    /// Threads of the KV indexer.
    #[arg(long, default_value_t = 4)]
    indexer_threads: usize,
    /// Seconds that a session keeps its worker for; no affinity without.
    #[arg(long, env = "DYN_ROUTER_SESSION_AFFINITY_TTL_SECS")]
    router_session_affinity_ttl_secs: Option<u64>,
    /// What is logged: off, error, warn, info, debug or trace.
    #[arg(long, env = "RUST_LOG", default_value = "info")]
    log: LevelFilter,
}

fn main() -> ExitCode {
    // Before the runtime starts its threads.
    pointsman_dynamo::init_compile_worker();
    match serve(Service::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn serve(options: Service) -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(options.log).init();
    let mut config = try_kv_router_config_from_dynamo_env()?;
    config.router_policy_config = options.router_policy_config;
    let mut registry = dynamo_custom_policy_builtin::default_registry();
    dynamo_custom_policy_builtin::register(&mut registry)?;
    pointsman_dynamo::register(&mut registry, Some(WorkerCommand::this_program()))?;
    warn_for_unserved_worker_selection_policies(&config, &[options.worker_type])?;
    let mut builder =
        SelectionServiceBuilder::new(config, options.worker_type, registry).indexer_threads(options.indexer_threads);
    if let Some(seconds) = options.router_session_affinity_ttl_secs {
        builder = builder.session_affinity(Duration::from_secs(seconds));
    }
    let ended = run_server(options.port, builder.build().await?).await;
    ended.map_err(|error| format!("the service on port {} ended: {error}", options.port).into())
}
