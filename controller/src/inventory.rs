//! What one agent last said of its node: a full snapshot, then deltas, in order.
//!
//! Pure: updates go in, or are refused as not following from what is known, in which
//! case the caller asks for a full snapshot again. Nothing is guessed over a gap.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use drivebay_proto::{
    VolumeId,
    agent::{Class, InventoryUpdate, Volume},
};

/// The update does not follow from what is known: ask for a full snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Gap {
    /// A delta before any full snapshot.
    #[error("the first inventory update is not a full snapshot")]
    NoSnapshot,
    /// A delta of another agent process.
    #[error("an inventory delta of instance {got:?} came after instance {known:?}")]
    OtherInstance {
        /// What is known.
        known: String,
        /// What came.
        got: String,
    },
    /// A delta that builds on something else than what is known.
    #[error("an inventory delta to revision {to} builds on {since}, but {known} is known")]
    Revision {
        /// The revision that is known.
        known: u64,
        /// The revision the delta builds on; 0 when it does not say.
        since: u64,
        /// The revision the delta leads to.
        to: u64,
    },
}

/// Everything known of one node at one revision.
#[derive(Debug, Clone, Default)]
pub struct Contents {
    /// The agent process; empty before the first snapshot.
    pub instance: String,
    /// Grows with every change of this instance.
    pub revision: u64,
    /// The agent has looked at every drive.
    pub ready: bool,
    /// Classes by name.
    pub classes: BTreeMap<String, Class>,
    volumes: BTreeMap<String, Arc<Volume>>,
    // CSI names of volumes that exist, so that a create finds its volume without a search.
    names: BTreeMap<String, BTreeSet<String>>,
}

/// Whether this volume exists for CSI. One that is being erased, or waits for it, was deleted.
pub fn exists(volume: &Volume) -> bool {
    !matches!(volume.state.as_str(), "erasing" | "quarantined")
}

impl Contents {
    fn put(&mut self, node: &str, volume: Volume) {
        let ours = volume
            .id
            .parse::<VolumeId>()
            .is_ok_and(|id| id.node == node);
        if !ours {
            tracing::error!(
                node,
                volume = volume.id,
                "the agent reports a volume whose id is not one of its own; not listed"
            );
            return;
        }
        self.remove(&volume.id);
        if exists(&volume) {
            self.names
                .entry(volume.name.clone())
                .or_default()
                .insert(volume.id.clone());
        }
        self.volumes.insert(volume.id.clone(), Arc::new(volume));
    }

    fn remove(&mut self, id: &str) {
        let Some(old) = self.volumes.remove(id) else {
            return;
        };
        if let Some(ids) = self.names.get_mut(&old.name) {
            ids.remove(id);
            if ids.is_empty() {
                self.names.remove(&old.name);
            }
        }
    }

    /// The volume of this id, if it exists for CSI.
    pub fn volume(&self, id: &str) -> Option<&Arc<Volume>> {
        self.volumes.get(id).filter(|volume| exists(volume))
    }

    /// The volume of this CSI name, if it exists.
    pub fn named(&self, name: &str) -> Option<&Arc<Volume>> {
        let id = self.names.get(name)?.first()?;
        self.volumes.get(id)
    }

    /// The volumes that exist, by id, after this one (None: from the first).
    pub fn volumes_after(&self, after: Option<&str>) -> impl Iterator<Item = &Arc<Volume>> {
        use std::ops::Bound;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.volumes
            .range::<str, _>((from, Bound::Unbounded))
            .map(|(_, volume)| volume)
            .filter(|volume| exists(volume))
    }
}

/// One node's inventory, and whether its agent is there.
#[derive(Debug, Default)]
pub struct Inventory {
    node: String,
    current: Contents,
    // What was known before the agent restarted, shown until it has looked at every drive again.
    before: Option<Contents>,
    away_since: Option<Instant>,
}

impl Inventory {
    /// Nothing known yet of this node.
    pub fn new(node: impl Into<String>) -> Self {
        Self {
            node: node.into(),
            ..Self::default()
        }
    }

    /// Takes in one update of the stream.
    pub fn apply(&mut self, update: InventoryUpdate) -> Result<(), Gap> {
        if update.full {
            let old = std::mem::take(&mut self.current);
            if old.ready {
                self.before = Some(old);
            }
            self.current.instance = update.instance;
        } else {
            self.check_follows(&update)?;
        }
        let known = &mut self.current;
        known.revision = update.revision;
        known.ready = update.ready;
        for id in &update.removed_volumes {
            known.remove(id);
        }
        for volume in update.volumes {
            known.put(&self.node, volume);
        }
        for class in update.classes {
            known.classes.insert(class.name.clone(), class);
        }
        if known.ready {
            self.before = None;
        }
        self.away_since = None;
        Ok(())
    }

    fn check_follows(&self, update: &InventoryUpdate) -> Result<(), Gap> {
        let known = &self.current;
        if known.instance.is_empty() {
            return Err(Gap::NoSnapshot);
        }
        if known.instance != update.instance {
            return Err(Gap::OtherInstance {
                known: known.instance.clone(),
                got: update.instance.clone(),
            });
        }
        let follows = match update.since_revision {
            0 => update.revision > known.revision,
            since => since == known.revision && update.revision >= since,
        };
        if !follows {
            return Err(Gap::Revision {
                known: known.revision,
                since: update.since_revision,
                to: update.revision,
            });
        }
        Ok(())
    }

    /// The stream has ended; the time is kept from the first such notice.
    pub fn away(&mut self, now: Instant) {
        self.away_since.get_or_insert(now);
    }

    /// Since when the agent is away; None while it is there.
    pub fn away_since(&self) -> Option<Instant> {
        self.away_since
    }

    /// Whether the agent is there and has looked at every drive: then what is not shown does not exist.
    pub fn complete(&self) -> bool {
        self.current.ready && self.away_since.is_none()
    }

    /// What there is to show: the last complete view while a newer one is still being made.
    pub fn shown(&self) -> &Contents {
        match &self.before {
            Some(before) if !self.current.ready => before,
            _ => &self.current,
        }
    }

    /// Whether a complete view has ever been had.
    pub fn known(&self) -> bool {
        self.shown().ready
    }

    /// The node.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// The agent process of the newest update.
    pub fn instance(&self) -> &str {
        &self.current.instance
    }

    /// Whether what is shown includes this revision of this instance. A later instance
    /// that is complete includes all that earlier ones acknowledged.
    pub fn includes(&self, instance: &str, revision: u64) -> bool {
        self.complete() && (self.current.instance != instance || self.current.revision >= revision)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const ID: &str = "00000000-0000-4000-8000-000000000001@n1";

    fn volume(name: &str, state: &str) -> Volume {
        Volume {
            id: ID.into(),
            name: name.into(),
            state: state.into(),
            ..Volume::default()
        }
    }

    fn update(full: bool, instance: &str, since: u64, revision: u64) -> InventoryUpdate {
        InventoryUpdate {
            instance: instance.into(),
            revision,
            full,
            ready: true,
            since_revision: since,
            ..InventoryUpdate::default()
        }
    }

    #[test]
    fn a_delta_that_does_not_follow_is_refused_and_changes_nothing() {
        let mut inventory = Inventory::new("n1");
        assert_eq!(
            inventory.apply(update(false, "a", 0, 1)),
            Err(Gap::NoSnapshot)
        );
        inventory.apply(update(true, "a", 0, 5)).unwrap();
        for bad in [
            update(false, "b", 5, 6),
            update(false, "a", 4, 6),
            update(false, "a", 6, 7),
            update(false, "a", 0, 5),
        ] {
            let mut bad = bad;
            bad.volumes.push(volume("v", "ready"));
            assert!(inventory.apply(bad.clone()).is_err(), "{bad:?}");
            assert_eq!(inventory.shown().revision, 5);
            assert!(inventory.shown().volume(ID).is_none());
        }
        inventory.apply(update(false, "a", 5, 9)).unwrap();
        inventory.apply(update(false, "a", 0, 12)).unwrap();
        assert_eq!(inventory.shown().revision, 12);
    }

    #[test]
    fn a_deleted_volume_does_not_exist_while_it_is_erased_nor_keeps_its_name() {
        let mut inventory = Inventory::new("n1");
        let mut full = update(true, "a", 0, 1);
        full.volumes.push(volume("v", "ready"));
        inventory.apply(full).unwrap();
        assert!(inventory.shown().named("v").is_some());
        for state in ["erasing", "quarantined"] {
            let mut delta = update(false, "a", 0, inventory.shown().revision + 1);
            delta.volumes.push(volume("v", state));
            inventory.apply(delta).unwrap();
            assert!(inventory.shown().volume(ID).is_none());
            assert!(inventory.shown().named("v").is_none());
            assert_eq!(inventory.shown().volumes_after(None).count(), 0);
        }
    }

    #[test]
    fn missing_and_ambiguous_volumes_stay_listed() {
        for state in ["new", "ready", "missing", "ambiguous"] {
            let mut inventory = Inventory::new("n1");
            let mut full = update(true, "a", 0, 1);
            full.volumes.push(volume("v", state));
            inventory.apply(full).unwrap();
            assert_eq!(inventory.shown().volumes_after(None).count(), 1, "{state}");
        }
    }

    #[test]
    fn a_restarted_agent_does_not_empty_the_list_before_it_has_looked() {
        let mut inventory = Inventory::new("n1");
        let mut full = update(true, "a", 0, 7);
        full.volumes.push(volume("v", "ready"));
        inventory.apply(full).unwrap();
        let mut first = update(true, "b", 0, 1);
        first.ready = false;
        inventory.apply(first).unwrap();
        assert!(inventory.shown().volume(ID).is_some());
        assert!(inventory.known() && !inventory.complete());
        assert!(!inventory.includes("a", 7));
        inventory.apply(update(false, "b", 1, 2)).unwrap();
        assert!(inventory.complete());
        assert!(inventory.shown().volume(ID).is_none());
    }

    #[test]
    fn a_foreign_id_is_not_taken_in() {
        let mut inventory = Inventory::new("other");
        let mut full = update(true, "a", 0, 1);
        full.volumes.push(volume("v", "ready"));
        inventory.apply(full).unwrap();
        assert_eq!(inventory.shown().volumes_after(None).count(), 0);
    }

    #[test]
    fn an_acknowledged_change_is_included_from_its_revision_on() {
        let mut inventory = Inventory::new("n1");
        inventory.apply(update(true, "a", 0, 3)).unwrap();
        assert!(inventory.includes("a", 3));
        assert!(!inventory.includes("a", 4));
        assert!(inventory.includes("before", 400));
    }
}
