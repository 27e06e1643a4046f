//! Who asks: by a key, or by what a trusted proxy says.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, StatusCode};
use sha2::{Digest, Sha256};

use super::error::ApiError;
use crate::config::{KeyEntry, ServerConfig, TrustedProxy};
use crate::fleet::DEFAULT_NAME;

/// Who asks, and what it may ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) tenant: String,
    pub(crate) routing_group: String,
    /// None for every model.
    models: Option<Vec<String>>,
}

impl Caller {
    pub(crate) fn may_use(&self, model: &str) -> bool {
        self.models.as_ref().is_none_or(|models| models.iter().any(|allowed| allowed == model))
    }
}

/// How callers are told apart.
pub(crate) struct Callers {
    keys: HashMap<[u8; 32], Arc<Caller>>,
    /// Whoever asks where nobody is told apart.
    anybody: Arc<Caller>,
    proxy: Option<TrustedProxy>,
}

impl Callers {
    pub(crate) fn new(config: &ServerConfig) -> Self {
        let caller = |key: &KeyEntry| Caller {
            tenant: key.tenant.clone(),
            routing_group: key.routing_group.clone(),
            models: key.models.clone(),
        };
        let keys = config.keys.iter().map(|key| (key.sha256, Arc::new(caller(key)))).collect();
        let anybody = Caller { tenant: String::new(), routing_group: DEFAULT_NAME.to_owned(), models: None };
        Self { keys, anybody: Arc::new(anybody), proxy: config.trusted_proxy.clone() }
    }

    /// Who sent these headers from that address.
    pub(crate) fn of(&self, headers: &HeaderMap, peer: IpAddr) -> Result<Arc<Caller>, ApiError> {
        if self.keys.is_empty() && self.proxy.is_none() {
            return Ok(Arc::clone(&self.anybody));
        }
        if let Some(caller) = self.by_proxy(headers, peer) {
            return Ok(Arc::new(caller));
        }
        let key = bearer(headers).and_then(|token| self.keys.get(&<[u8; 32]>::from(Sha256::digest(token))));
        key.map(Arc::clone).ok_or_else(|| {
            let message = "the API key is missing or not known; send one as `Authorization: Bearer KEY`";
            ApiError::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message)
        })
    }

    fn by_proxy(&self, headers: &HeaderMap, peer: IpAddr) -> Option<Caller> {
        let proxy = self.proxy.as_ref().filter(|proxy| proxy.addresses.contains(&peer.to_canonical()))?;
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let (tenant, group) = (text(&proxy.tenant_header), text(&proxy.routing_group_header));
        if tenant.is_none() && group.is_none() {
            return None;
        }
        let routing_group = group.unwrap_or_else(|| DEFAULT_NAME.to_owned());
        Some(Caller { tenant: tenant.unwrap_or_default(), routing_group, models: None })
    }
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}
