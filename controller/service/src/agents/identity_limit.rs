//! Limit of concurrent connections per identity.

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::Identity;

/// Connection counts by identity, with a common limit. Clones share the counts.
#[derive(Debug, Clone)]
pub struct IdentityLimit {
    most: usize,
    counts: Arc<Mutex<HashMap<Identity, usize>>>,
}

/// One counted connection; dropping it decrements the count.
#[derive(Debug)]
pub struct OfIdentity {
    limit: IdentityLimit,
    identity: Option<Identity>,
}

impl IdentityLimit {
    pub fn new(most: usize) -> Self {
        Self {
            most,
            counts: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Identity, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a connection; None if the identity has reached the limit and the connection must be closed. An
    /// absent identity is not limited.
    pub fn enter(&self, identity: Option<&Identity>) -> Option<OfIdentity> {
        if let Some(identity) = identity {
            let mut counts = self.lock();
            let count = counts.entry(identity.clone()).or_default();
            if *count >= self.most {
                return None;
            }
            *count += 1;
        }
        Some(OfIdentity {
            limit: self.clone(),
            identity: identity.cloned(),
        })
    }
}

impl Drop for OfIdentity {
    fn drop(&mut self) {
        let Some(identity) = mem::take(&mut self.identity) else {
            return;
        };
        let mut counts = self.limit.lock();
        if let Some(count) = counts.get_mut(&identity) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&identity);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use drivebay_common::tls::KeyFingerprint;

    use super::*;

    #[test]
    fn an_identity_has_so_many_connections_and_others_their_own() {
        let limit = IdentityLimit::new(2);
        let identity = |key| Identity::Certificate {
            node: "n".into(),
            key: KeyFingerprint([key; 32]),
        };
        let first = limit.enter(Some(&identity(1))).unwrap();
        let _second = limit.enter(Some(&identity(1))).unwrap();
        assert!(limit.enter(Some(&identity(1))).is_none());
        drop(limit.enter(Some(&identity(2))).unwrap());
        drop(first);
        let _third = limit.enter(Some(&identity(1))).unwrap();
        assert!(limit.enter(Some(&identity(1))).is_none());
        assert_eq!(limit.lock().len(), 1);
    }
}
