//! Names and what belongs to them, found by a hash: names of one kind often begin alike, and to compare them from the
//! start would be most of an event's fuel.

use std::collections::BTreeMap;
use std::sync::Arc;

/// A map from names; a tree, which never grows all at once.
pub(crate) struct Names<V>(BTreeMap<(u64, Arc<str>), V>);

impl<V> Default for Names<V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

/// FNV-1a. Names whose hashes collide are told apart by themselves.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

impl<V: Copy> Names<V> {
    pub(crate) fn get(&self, name: &str) -> Option<V> {
        let hash = hash(name);
        let same_hash = self.0.range((hash, Arc::default())..).take_while(|((other, _), _)| *other == hash);
        same_hash.into_iter().find(|((_, known), _)| **known == *name).map(|(_, value)| *value)
    }

    pub(crate) fn insert(&mut self, name: Arc<str>, value: V) {
        self.0.insert((hash(&name), name), value);
    }

    pub(crate) fn remove(&mut self, name: &Arc<str>) {
        self.0.remove(&(hash(name), Arc::clone(name)));
    }
}
