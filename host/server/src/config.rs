//! The server file: where the server listens, who may ask, which workers there are, and how long things may take.
//!
//! It is written and refused like the router-policy file: unknown fields are problems, and every problem is told at once
//! with its line and the fix.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pointsman_routing::config::{Document, Field, Fields, Problems, Report};

use crate::fleet::{DEFAULT_NAME, MOST_RANKS, UpstreamSpec, WorkerSpec};

/// The server file, read and checked.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// Where the front door listens.
    pub listen: SocketAddr,
    /// The front door's own certificate; none for plain HTTP.
    pub tls: Option<TlsFiles>,
    /// Where operators are served; none where nobody is.
    pub admin: Option<SocketAddr>,
    /// Where the selection service listens; none where there is none.
    pub selection: Option<SocketAddr>,
    /// Who may ask, by key.
    pub keys: Vec<KeyEntry>,
    /// The proxy that says who asks; none where keys alone do.
    pub trusted_proxy: Option<TrustedProxy>,
    /// The workers, in the file's order.
    pub workers: Vec<WorkerSpec>,
    /// What is known of models, in the file's order.
    pub models: Vec<ModelEntry>,
    /// The workers' metrics that policies may read as `metric.<name>`.
    pub metrics: Vec<String>,
    /// Request headers that policies may read as `header.<name>`, lower case.
    pub headers: Vec<String>,
    /// What a client may send.
    pub limits: DoorLimits,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// How often another worker is tried after one has failed before it answered, 0 to 10.
    pub retries: u32,
}

/// A certificate and its key, in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate and those that vouch for it.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// Who has a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyEntry {
    /// SHA-256 of the key.
    pub sha256: [u8; 32],
    /// Whose it is, in logs and metrics.
    pub tenant: String,
    /// The routing group that its requests go to.
    pub routing_group: String,
    /// The models that it may ask for; none for every one.
    pub models: Option<Vec<String>>,
}

/// A proxy in front, which has found out who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxy {
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// The header with the tenant, lower case.
    pub tenant_header: String,
    /// The header with the routing group, lower case.
    pub routing_group_header: String,
}

/// What is known of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelEntry {
    /// Its name.
    pub name: String,
    /// Its `tokenizer.json`; none for the byte estimate.
    pub tokenizer: Option<PathBuf>,
}

/// What a client may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoorLimits {
    /// Bytes of a request's body.
    pub body_bytes: u64,
    /// Bytes of a request's headers.
    pub header_bytes: u32,
    /// Headers of a request.
    pub headers: u32,
    /// Requests at a time; one more is refused.
    pub concurrent_requests: u32,
    /// Connections at a time; one more waits to be accepted.
    pub connections: u32,
}

impl Default for DoorLimits {
    fn default() -> Self {
        let concurrent_requests = 4_096;
        Self { body_bytes: 32 << 20, header_bytes: 64 << 10, headers: 100, concurrent_requests, connections: 16_384 }
    }
}

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until a client has sent its headers, and how long its connection may idle.
    pub headers: Duration,
    /// Until a client has sent its body.
    pub body: Duration,
    /// Until a worker has accepted a connection.
    pub connect: Duration,
    /// Until a worker has sent the first byte of its answer.
    pub first_byte: Duration,
    /// Between two pieces of a worker's answer.
    pub idle: Duration,
    /// Until what runs has ended after a signal to stop.
    pub drain: Duration,
    /// Between two looks at a worker's health and metrics.
    pub health_interval: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            headers: seconds(60),
            body: seconds(60),
            connect: seconds(5),
            first_byte: seconds(600),
            idle: seconds(300),
            drain: seconds(30),
            health_interval: seconds(2),
        }
    }
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8_000)),
            tls: None,
            admin: None,
            selection: None,
            keys: Vec::new(),
            trusted_proxy: None,
            workers: Vec::new(),
            models: Vec::new(),
            metrics: Vec::new(),
            headers: Vec::new(),
            limits: DoorLimits::default(),
            timeouts: Timeouts::default(),
            retries: 2,
        }
    }
}

const SECTIONS: &[&str] = &[
    "listen",
    "tls",
    "admin",
    "selection",
    "keys",
    "trusted_proxy",
    "workers",
    "models",
    "metrics",
    "headers",
    "limits",
    "timeouts",
    "retries",
];

impl ServerConfig {
    /// Reads a file. Relative paths in it start at its folder.
    ///
    /// # Errors
    /// Everything that is wrong with it, at once.
    pub fn load(path: &Path) -> Result<Self, Problems> {
        let folder = path.parent().unwrap_or(Path::new(""));
        Document::load(path)?.read(|root, report| Reader { folder, report }.server(root))
    }

    /// Reads the text of a file, which is named `file` in problems.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn parse(file: &str, folder: &Path, text: &str) -> Result<Self, Problems> {
        Document::of(file, text).read(|root, report| Reader { folder, report }.server(root))
    }
}

struct Reader<'a> {
    folder: &'a Path,
    report: &'a mut Report,
}

impl Reader<'_> {
    fn server(&mut self, root: &Field<'_>) -> Option<ServerConfig> {
        let fields = root.fields(SECTIONS, self.report)?;
        let default = ServerConfig::default();
        let names = |reader: &mut Self, key| fields.get(key).map(|field| reader.texts(&field)).unwrap_or_default();
        let config = ServerConfig {
            listen: fields.get("listen").and_then(|field| self.address(&field)).unwrap_or(default.listen),
            tls: fields.get("tls").and_then(|field| self.tls(&field)),
            admin: fields.get("admin").and_then(|field| self.admin(&field)),
            selection: fields.get("selection").and_then(|field| self.listener(&field)),
            keys: self.each(fields.get("keys"), Self::key),
            trusted_proxy: fields.get("trusted_proxy").and_then(|field| self.trusted_proxy(&field)),
            workers: self.each(fields.get("workers"), Self::worker),
            models: self.each(fields.get("models"), Self::model),
            metrics: names(self, "metrics"),
            headers: names(self, "headers").iter().map(|name| name.to_ascii_lowercase()).collect(),
            limits: fields.get("limits").map(|field| self.limits(&field)).unwrap_or_default(),
            timeouts: fields.get("timeouts").map(|field| self.timeouts(&field)).unwrap_or_default(),
            retries: self.number(&fields, "retries", 0..=10).unwrap_or(default.retries),
        };
        self.refuse_twice(fields.get("keys"), config.keys.iter().map(|key| key.sha256), "the same key", "sha256");
        let ids = config.workers.iter().map(|worker| worker.worker_id);
        self.refuse_twice(fields.get("workers"), ids, "the same worker", "worker_id");
        Some(config)
    }

    /// Refuses an entry of a list that says the same as an earlier one. Lists with other problems are not looked at.
    fn refuse_twice<T: PartialEq>(
        &mut self,
        list: Option<Field<'_>>,
        values: impl Iterator<Item = T>,
        what: &str,
        key: &str,
    ) {
        let values: Vec<T> = values.collect();
        let Some(entries) = list.and_then(|list| list.list(self.report)) else { return };
        if entries.len() != values.len() {
            return;
        }
        for (place, (entry, value)) in entries.iter().zip(&values).enumerate() {
            if values.iter().take(place).any(|earlier| earlier == value) {
                entry.problem(self.report, format!("{what} stands here twice; give each entry a `{key}` of its own"));
            }
        }
    }

    fn each<T>(&mut self, list: Option<Field<'_>>, read: impl Fn(&mut Self, &Field<'_>) -> Option<T>) -> Vec<T> {
        let entries = list.and_then(|list| list.list(self.report)).unwrap_or_default();
        entries.iter().filter_map(|entry| read(self, entry)).collect()
    }

    fn texts(&mut self, field: &Field<'_>) -> Vec<String> {
        self.each(Some(field.clone()), |reader, entry| entry.text(reader.report).map(str::to_owned))
    }

    fn address(&mut self, field: &Field<'_>) -> Option<SocketAddr> {
        let text = field.text(self.report)?;
        let address = text.parse().ok();
        if address.is_none() {
            let message = format!("`{text}` is no address; write IP:PORT, such as 127.0.0.1:8000");
            field.problem(self.report, message);
        }
        address
    }

    fn listener(&mut self, field: &Field<'_>) -> Option<SocketAddr> {
        let fields = field.fields(&["listen"], self.report)?;
        fields.require("listen", self.report).and_then(|field| self.address(&field))
    }

    fn admin(&mut self, field: &Field<'_>) -> Option<SocketAddr> {
        let fields = field.fields(&["listen", "allow_remote"], self.report)?;
        let listen = fields.require("listen", self.report)?;
        let address = self.address(&listen)?;
        let remote = fields.get("allow_remote").and_then(|field| field.boolean(self.report)).unwrap_or(false);
        if !address.ip().is_loopback() && !remote {
            let message = "the admin API asks for no key and this address is not loopback; listen on 127.0.0.1 or set \
                           `allow_remote: true`";
            listen.problem(self.report, message);
        }
        Some(address)
    }

    fn path(&mut self, field: Option<Field<'_>>) -> Option<PathBuf> {
        field.and_then(|field| field.text(self.report).map(|text| self.folder.join(text)))
    }

    fn tls(&mut self, field: &Field<'_>) -> Option<TlsFiles> {
        let fields = field.fields(&["certificate", "key"], self.report)?;
        let certificate = fields.require("certificate", self.report);
        let key = fields.require("key", self.report);
        Some(TlsFiles { certificate: self.path(certificate)?, key: self.path(key)? })
    }

    fn key(&mut self, field: &Field<'_>) -> Option<KeyEntry> {
        let fields = field.fields(&["sha256", "tenant", "routing_group", "models"], self.report)?;
        let digest = fields.require("sha256", self.report);
        let sha256 = digest.and_then(|field| {
            let digest = field.text(self.report).and_then(bytes_of_hex);
            if digest.is_none() {
                let message = "must be the SHA-256 of the key as 64 hex digits; take `printf %s KEY | sha256sum`";
                field.problem(self.report, message);
            }
            digest
        });
        let tenant = self.text(&fields, "tenant").unwrap_or_default();
        let routing_group = self.text(&fields, "routing_group").unwrap_or_else(|| DEFAULT_NAME.to_owned());
        let models = fields.get("models").map(|field| self.texts(&field));
        Some(KeyEntry { sha256: sha256?, tenant, routing_group, models })
    }

    fn trusted_proxy(&mut self, field: &Field<'_>) -> Option<TrustedProxy> {
        let fields = field.fields(&["addresses", "tenant_header", "routing_group_header"], self.report)?;
        let addresses = fields.require("addresses", self.report);
        let addresses = self.each(addresses, |reader, entry| {
            let address = entry.text(reader.report)?.parse().ok();
            if address.is_none() {
                entry.problem(reader.report, "must be an IP address, such as 10.0.0.7");
            }
            address
        });
        let header = |reader: &mut Self, key, default: &str| {
            reader.text(&fields, key).map_or_else(|| default.to_owned(), |name| name.to_ascii_lowercase())
        };
        Some(TrustedProxy {
            addresses,
            tenant_header: header(self, "tenant_header", "x-pointsman-tenant"),
            routing_group_header: header(self, "routing_group_header", "x-pointsman-routing-group"),
        })
    }

    fn model(&mut self, field: &Field<'_>) -> Option<ModelEntry> {
        let fields = field.fields(&["name", "tokenizer"], self.report)?;
        let name = fields.require("name", self.report)?.text(self.report)?.to_owned();
        Some(ModelEntry { name, tokenizer: self.path(fields.get("tokenizer")) })
    }

    fn worker(&mut self, field: &Field<'_>) -> Option<WorkerSpec> {
        const FIELDS: &[&str] = &[
            "worker_id",
            "model_name",
            "routing_group",
            "role",
            "endpoint",
            "block_size",
            "data_parallel_start_rank",
            "data_parallel_size",
            "max_num_batched_tokens",
            "total_kv_blocks",
            "taints",
            "labels",
            "kv_events_endpoint",
            "kv_events_endpoints",
            "replay_endpoint",
            "forward_authorization",
            "api_key_file",
            "http2",
            "ca_file",
            "health_path",
            "metrics_path",
        ];
        let fields = field.fields(FIELDS, self.report)?;
        self.refuse_role(&fields);
        let worker_id = fields.require("worker_id", self.report).and_then(|id| id.whole(0..=u64::MAX, self.report))?;
        let mut spec = WorkerSpec::new(worker_id);
        if let Some(name) = self.text(&fields, "model_name") {
            spec.model_name = name;
        }
        if let Some(group) = self.text(&fields, "routing_group") {
            spec.routing_group = group;
        }
        let endpoint = fields.require("endpoint", self.report);
        spec.endpoint = endpoint.and_then(|field| self.url(&field));
        let block_size = fields.require("block_size", self.report);
        spec.block_size = block_size.and_then(|field| field.whole_u32(1..=1 << 16, self.report));
        spec.data_parallel_start_rank = self.number(&fields, "data_parallel_start_rank", 0..=u32::MAX);
        spec.data_parallel_size = self.number(&fields, "data_parallel_size", 1..=MOST_RANKS);
        spec.max_num_batched_tokens = self.count(&fields, "max_num_batched_tokens");
        spec.total_kv_blocks = self.count(&fields, "total_kv_blocks");
        spec.taints = fields.get("taints").map(|field| self.texts(&field)).unwrap_or_default();
        spec.kv_events_endpoint = self.text(&fields, "kv_events_endpoint");
        spec.replay_endpoint = self.text(&fields, "replay_endpoint");
        if let Some(labels) = fields.get("labels") {
            let read = |field: &Field<'_>, report: &mut Report| field.number(report);
            spec.labels = labels.mapping(self.report, read).into_iter().collect();
        }
        if let Some(endpoints) = fields.get("kv_events_endpoints") {
            let read = |field: &Field<'_>, report: &mut Report| field.text(report).map(str::to_owned);
            for (rank, endpoint) in endpoints.mapping(self.report, read) {
                match rank.parse() {
                    Ok(rank) => _ = spec.kv_events_endpoints.insert(rank, endpoint),
                    Err(_) => endpoints.problem(self.report, format!("`{rank}` is no rank; write a whole number")),
                }
            }
        }
        spec.upstream = self.upstream(&fields);
        Some(spec)
    }

    /// A pool of prefill and decode workers is no pool of aggregated ones.
    fn refuse_role(&mut self, fields: &Fields<'_>) {
        let Some(field) = fields.get("role") else { return };
        match field.text(self.report) {
            None | Some("aggregated") => {}
            Some("prefill" | "decode" | "encode") => {
                let message =
                    "disaggregated serving is not supported yet; run workers that do both and leave `role` out";
                field.problem(self.report, message);
            }
            Some(other) => field.problem(self.report, format!("unknown role `{other}`; leave it out")),
        }
    }

    fn upstream(&mut self, fields: &Fields<'_>) -> UpstreamSpec {
        let flag =
            |reader: &mut Self, key| fields.get(key).and_then(|field| field.boolean(reader.report)).unwrap_or_default();
        let file = |reader: &mut Self, key| reader.path(fields.get(key)).map(|path| path.display().to_string());
        UpstreamSpec {
            forward_authorization: flag(self, "forward_authorization"),
            api_key_file: file(self, "api_key_file"),
            http2: flag(self, "http2"),
            ca_file: file(self, "ca_file"),
            health_path: self.absolute(fields, "health_path"),
            metrics_path: self.absolute(fields, "metrics_path"),
        }
    }

    /// The path of a URL.
    fn absolute(&mut self, fields: &Fields<'_>, key: &str) -> Option<String> {
        let field = fields.get(key)?;
        let text = field.text(self.report)?;
        if !text.starts_with('/') {
            field.problem(self.report, format!("`{text}` is no path; begin it with `/`, such as /health"));
        }
        Some(text.to_owned())
    }

    fn url(&mut self, field: &Field<'_>) -> Option<String> {
        let text = field.text(self.report)?;
        let sound = text.parse::<http::Uri>().is_ok_and(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https")) && uri.authority().is_some() && uri.query().is_none()
        });
        if !sound {
            let message = format!("`{text}` is no URL of a worker; write one such as http://10.0.0.7:8000");
            field.problem(self.report, message);
        }
        Some(text.trim_end_matches('/').to_owned())
    }

    fn text(&mut self, fields: &Fields<'_>, key: &str) -> Option<String> {
        fields.get(key).and_then(|field| field.text(self.report)).map(str::to_owned)
    }

    fn number(&mut self, fields: &Fields<'_>, key: &str, range: std::ops::RangeInclusive<u32>) -> Option<u32> {
        fields.get(key).and_then(|field| field.whole_u32(range, self.report))
    }

    fn count(&mut self, fields: &Fields<'_>, key: &str) -> Option<u64> {
        fields.get(key).and_then(|field| field.whole(0..=u64::MAX, self.report))
    }

    fn limits(&mut self, field: &Field<'_>) -> DoorLimits {
        const FIELDS: &[&str] = &["body_bytes", "header_bytes", "headers", "concurrent_requests", "connections"];
        let default = DoorLimits::default();
        let Some(fields) = field.fields(FIELDS, self.report) else { return default };
        let body_bytes = fields.get("body_bytes").and_then(|field| field.whole(1..=1 << 32, self.report));
        DoorLimits {
            body_bytes: body_bytes.unwrap_or(default.body_bytes),
            header_bytes: self.number(&fields, "header_bytes", 8_192..=1 << 24).unwrap_or(default.header_bytes),
            headers: self.number(&fields, "headers", 1..=10_000).unwrap_or(default.headers),
            concurrent_requests: self
                .number(&fields, "concurrent_requests", 1..=1_000_000)
                .unwrap_or(default.concurrent_requests),
            connections: self.number(&fields, "connections", 1..=1_000_000).unwrap_or(default.connections),
        }
    }

    fn timeouts(&mut self, field: &Field<'_>) -> Timeouts {
        const FIELDS: &[&str] =
            &["headers_ms", "body_ms", "connect_ms", "first_byte_ms", "idle_ms", "drain_ms", "health_interval_ms"];
        const DAY_MS: u32 = 86_400_000;
        let default = Timeouts::default();
        let Some(fields) = field.fields(FIELDS, self.report) else { return default };
        let mut ms = |key, least, default| {
            self.number(&fields, key, least..=DAY_MS).map_or(default, |ms| Duration::from_millis(ms.into()))
        };
        Timeouts {
            headers: ms("headers_ms", 1, default.headers),
            body: ms("body_ms", 1, default.body),
            connect: ms("connect_ms", 1, default.connect),
            first_byte: ms("first_byte_ms", 1, default.first_byte),
            idle: ms("idle_ms", 1, default.idle),
            drain: ms("drain_ms", 0, default.drain),
            health_interval: ms("health_interval_ms", 10, default.health_interval),
        }
    }
}

/// The bytes of 64 hex digits.
fn bytes_of_hex(text: &str) -> Option<[u8; 32]> {
    let digits: Vec<u8> =
        text.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect::<Option<_>>()?;
    let bytes: Vec<u8> =
        digits.chunks_exact(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect();
    <[u8; 32]>::try_from(bytes).ok().filter(|_| digits.len() == 64)
}
