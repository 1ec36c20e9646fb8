//! Nodes to which controllers send creations, kept by one agent for all controllers: controllers that create one name at the same time and
//! see different free space agree on one node.
//!
//! Advisory and in memory. Controllers choose the agent by the volume's name alone; it loses the placements when it restarts.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use drivebay_proto::agent::{KeepPlacementRequest, KeepPlacementResponse};

/// Longer than a controller waits for the creation, and long enough for every controller to learn of the volume.
const LIFETIME: Duration = Duration::from_secs(120);
/// Largest number of names kept at a time.
const MOST: usize = 4096;
/// Longest name of a volume or a node that is kept, bytes; no controller sends longer ones.
const LONGEST: usize = 128;

/// The placements that one agent keeps.
#[derive(Debug, Default)]
pub struct KeptPlacements(Mutex<HashMap<String, (String, Instant)>>);

impl KeptPlacements {
    /// Returns the node kept for the name for up to two minutes, if it is not among `refused_by`; otherwise keeps and returns the requested
    /// node. When full, or for names that are too long, returns the requested node without keeping it.
    pub fn keep(&self, request: KeepPlacementRequest) -> KeepPlacementResponse {
        self.keep_at(request, Instant::now())
    }

    fn keep_at(&self, request: KeepPlacementRequest, now: Instant) -> KeepPlacementResponse {
        let KeepPlacementRequest {
            name,
            node,
            refused_by,
        } = request;
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_young = |since: Instant| now.saturating_duration_since(since) < LIFETIME;
        if let Some((kept, since)) = all.get(&name)
            && is_young(*since)
            && !refused_by.contains(kept)
        {
            return KeepPlacementResponse { node: kept.clone() };
        }
        if all.len() >= MOST {
            all.retain(|_, (_, since)| is_young(*since));
        }
        if all.len() < MOST && name.len() <= LONGEST && node.len() <= LONGEST {
            all.insert(name, (node.clone(), now));
        }
        KeepPlacementResponse { node }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep_request(name: &str, node: &str, refused_by: &[&str]) -> KeepPlacementRequest {
        KeepPlacementRequest {
            name: name.into(),
            node: node.into(),
            refused_by: refused_by.iter().map(|&one| one.into()).collect(),
        }
    }

    #[test]
    fn the_first_requested_node_is_kept_until_it_refuses_or_is_old() {
        let kept = KeptPlacements::default();
        let now = Instant::now();
        let keep = |request, at| kept.keep_at(request, at).node;
        assert_eq!(keep(keep_request("v", "a", &[]), now), "a");
        assert_eq!(keep(keep_request("v", "b", &[]), now), "a");
        assert_eq!(keep(keep_request("w", "b", &[]), now), "b");
        // If both were refused by the kept node, the first request decides again.
        assert_eq!(keep(keep_request("v", "b", &["a"]), now), "b");
        assert_eq!(keep(keep_request("v", "c", &["a"]), now), "b");
        assert_eq!(keep(keep_request("v", "c", &["a", "b"]), now), "c");
        let later = now + LIFETIME;
        assert_eq!(keep(keep_request("v", "a", &[]), later), "a");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let kept = KeptPlacements::default();
        let now = Instant::now();
        for number in 0..2 * MOST {
            kept.keep_at(keep_request(&number.to_string(), "a", &[]), now);
        }
        let held = || kept.0.lock().map(|all| all.len()).unwrap_or_default();
        assert_eq!(held(), MOST);
        // Expired entries make room; a name that is too long is not kept.
        let later = now + LIFETIME;
        kept.keep_at(keep_request(&"x".repeat(LONGEST + 1), "a", &[]), later);
        kept.keep_at(keep_request("x", &"a".repeat(LONGEST + 1), &[]), later);
        assert_eq!(held(), 0);
        kept.keep_at(keep_request("x", "a", &[]), later);
        assert_eq!(held(), 1);
    }
}
