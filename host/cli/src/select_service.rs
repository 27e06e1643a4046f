//! `pointsman select-service`: worker selection over HTTP, for routers that send their requests themselves.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;

use pointsman_admission::{AffinityMode, MAX_SESSION_TTL_SECS};
use pointsman_routing::Role;
use pointsman_routing::config::{Overrides, PolicyConfig, Roles, SessionAffinitySettings};
use pointsman_server::config::ServerConfig;
use pointsman_server::policies;
use pointsman_server::predicted::{KV_EVENTS_VARIABLE, Predicted};
use pointsman_server::select::{EXPIRY_VARIABLE, PendingLimits, SelectionOptions, SelectionServer, SelectionSetup};

use crate::compile::Compile;
use crate::error::CliError;
use crate::logging::Logging;
use crate::observing::{Observing, Recording};
use crate::stop::Stop;

/// Selects workers over HTTP, with the API of Dynamo's selection service, for routers that send their requests themselves.
///
/// It asks nobody who they are: keep it inside a trusted network.
#[derive(clap::Args)]
pub(crate) struct SelectService {
    /// The TCP port; 0 takes a free one, which is printed.
    #[arg(long, default_value_t = 8092)]
    port: u16,
    /// The address to listen on.
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    /// The router-policy file, YAML; read again when it or an artifact of it changes.
    #[arg(long, value_name = "FILE", env = "DYN_ROUTER_POLICY_CONFIG")]
    router_policy_config: Option<PathBuf>,
    /// Seconds that an idle session keeps its worker; sessions keep none unless this or the router-policy file says so.
    #[arg(
        long,
        value_name = "SECONDS",
        env = "DYN_ROUTER_SESSION_AFFINITY_TTL_SECS",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SESSION_TTL_SECS))
    )]
    session_affinity_ttl_secs: Option<u32>,
    /// Seconds that a selection may still be booked.
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    selection_cache_ttl_secs: u32,
    /// The most selections that may still be booked.
    #[arg(long, value_name = "N", default_value_t = 4096)]
    selection_cache_max_entries: usize,
    /// The bytes that they may take, roughly.
    #[arg(long, value_name = "BYTES", default_value_t = 256 << 20)]
    selection_cache_max_bytes: usize,
    #[command(flatten)]
    observing: Observing,
    #[command(flatten)]
    logging: Logging,
    #[command(flatten)]
    compile: Compile,
}

impl SelectService {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let logging = self.logging.clone();
        logging.run(async {
            let (setup, recording) = self.setup()?;
            let server = SelectionServer::start(setup).await?;
            let mut stop = Stop::new()?;
            let mut stdout = std::io::stdout();
            writeln!(stdout, "selection service at http://{}", server.address())?;
            stdout.flush()?;
            stop.asked().await;
            server.drain().await;
            recording.map_or(Ok(()), Recording::finish)
        })
    }

    fn setup(self) -> Result<(SelectionSetup, Option<Recording>), CliError> {
        let policies = self.router_policy_config.as_deref().map(PolicyConfig::load).transpose()?;
        let mode = AffinityMode::Hard;
        let session_affinity =
            self.session_affinity_ttl_secs.map(|ttl_secs| SessionAffinitySettings { mode, ttl_secs });
        let overrides = Overrides { session_affinity, ..Overrides::from_env(|name| std::env::var_os(name))? };
        warn_of_other_roles(policies.as_ref(), &overrides);
        let config = ServerConfig::default();
        let router = policies::router(&config, policies, overrides, |sandbox| self.compile.config(sandbox))?;
        let use_kv_events = std::env::var(KV_EVENTS_VARIABLE).ok();
        let predicted = Predicted::new(router.router_config(), use_kv_events.as_deref())?;
        let pending = PendingLimits {
            ttl_ms: f64::from(self.selection_cache_ttl_secs) * 1_000.0,
            entries: self.selection_cache_max_entries,
            bytes: self.selection_cache_max_bytes,
        };
        let options = SelectionOptions { pending, ..SelectionOptions::default() };
        let router = Arc::new(router);
        let (observer, recording) = self.observing.start(&router)?;
        let setup = SelectionSetup {
            address: (self.host, self.port).into(),
            router,
            policy_file: self.router_policy_config,
            signals: Arc::new(predicted),
            observer,
            options: options.with_expiry_text(&std::env::var(EXPIRY_VARIABLE).unwrap_or_default()),
        };
        Ok((setup, recording))
    }
}

/// The service chooses among workers that serve requests whole: what is selected for other roles decides nothing.
fn warn_of_other_roles(policies: Option<&PolicyConfig>, overrides: &Overrides) {
    let selection = policies.and_then(|policies| policies.worker_selection.as_ref());
    let selections: Vec<&Roles> = selection
        .into_iter()
        .flat_map(|selection| {
            std::iter::once(&selection.roles).chain(selection.partitions.iter().map(|rule| &rule.roles))
        })
        .collect();
    let named = |role: Role| match role {
        Role::Prefill if overrides.prefill.is_some() => true,
        Role::Decode if overrides.decode.is_some() => true,
        role => selections.iter().any(|roles| roles.get(role).is_some()),
    };
    let others = Role::ALL.into_iter().filter(|role| *role != Role::Aggregated && named(*role));
    let others: Vec<&str> = others.map(Role::as_str).collect();
    if !others.is_empty() {
        let roles = others.join(", ");
        tracing::warn!("policies of the roles {roles} decide nothing here: every worker of the service is aggregated");
    }
}
