//! The inventory that one agent reported: a full snapshot, then deltas in order.
//!
//! Pure, except for the catalog, which holds the volumes. An update that does not follow from the last one is refused, and
//! the caller asks for a full snapshot. Nothing is assumed across a gap.

mod contents;
mod drives;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use drivebay_proto::{
    VolumeId,
    agent::{Drive, Finding, InventoryUpdate, Volume},
};
use uuid::Uuid;

pub use self::contents::Classes;
use self::{
    contents::{InventoryBuilder, PackedVolume, Shown, change_classes, replace},
    drives::{PackedDrive, change_drives},
};
use crate::{
    bounds::{self, Bound, Held},
    catalog::{Catalog, Key, Node},
    expected::ExpectedVolume,
    peer_log::printable,
};

/// The update does not follow from the last one; a full snapshot is needed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Gap {
    /// A delta before the first full snapshot.
    #[error("the first inventory update is not a full snapshot")]
    NoSnapshot,
    /// A delta from another agent process.
    #[error("an inventory delta of instance {got:?} came after instance {current:?}")]
    OtherInstance {
        /// Instance of the agent process that sent the last update.
        current: String,
        got: String,
    },
    /// A delta that builds on another revision than the last one.
    #[error("an inventory delta to revision {to} builds on {since}, but {current} is known")]
    Revision {
        current: u64,
        /// The revision on which the delta builds; 0 if it names none.
        since: u64,
        /// The revision to which the delta leads.
        to: u64,
    },
    /// A full snapshot with a lower revision than the last update of the same agent process.
    #[error(
        "an inventory snapshot of revision {got} came after revision {current}: it is an old one"
    )]
    Old {
        /// Revision of the last update.
        current: u64,
        got: u64,
    },
}

/// The update was refused and changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError {
    #[error(transparent)]
    Gap(#[from] Gap),
    #[error(transparent)]
    Bound(#[from] Bound),
}

/// Volumes of an update that were ignored because their ids are malformed or name another node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Foreign {
    pub count: u64,
    /// First of the ids, printable and truncated.
    pub example: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Existing volumes, without those being erased or quarantined; includes expected ones.
    pub volumes: u64,
    /// Existing volumes with a condition that counts as trouble.
    pub troubled: u64,
}

/// Inventory of one node, and the connection state of its agent.
#[derive(Debug)]
pub struct Inventory {
    node: Node,
    instance: String,
    revision: u64,
    // Updates of an agent that has not scanned every drive yet. Not shown.
    making: Option<InventoryBuilder>,
    // The last complete inventory. Its volumes are in the catalog.
    shown: Option<Shown>,
    // Volumes that should exist on a node whose agent has not reported to this process; in the catalog, too.
    expected: BTreeSet<Uuid>,
    // An agent has sent this process a complete inventory: a volume not in it does not exist.
    confirmed: bool,
    away_since: Option<Instant>,
}

impl Inventory {
    /// Returns an empty inventory without a time of disconnection.
    pub fn new(node: Node) -> Self {
        Self {
            node,
            instance: String::new(),
            revision: 0,
            making: None,
            shown: None,
            expected: BTreeSet::new(),
            confirmed: false,
            away_since: None,
        }
    }

    /// Lists these volumes, which the orchestrator's PersistentVolumes name, until an agent has sent a complete inventory.
    /// Volumes that an agent reported before stay as reported. Returns true if that changed the catalog.
    pub fn expect(&mut self, volumes: &BTreeMap<Uuid, ExpectedVolume>, catalog: &Catalog) -> bool {
        if self.confirmed {
            return false;
        }
        let shown = self.shown.as_ref();
        let is_shown = |uuid: &Uuid| shown.is_some_and(|shown| shown.volumes.contains_key(uuid));
        let now: BTreeSet<Uuid> = volumes
            .keys()
            .filter(|uuid| !is_shown(uuid))
            .copied()
            .collect();
        let before = std::mem::replace(&mut self.expected, now);
        let gone: Vec<Uuid> = before.difference(&self.expected).copied().collect();
        let put = self.expected.difference(&before).filter_map(|uuid| {
            let volume = volumes.get(uuid)?;
            Some((*uuid, volume.as_reported(*uuid, &self.node)))
        });
        let put: Vec<_> = put.collect();
        let changed = !put.is_empty() || !gone.is_empty();
        catalog.change(&self.node, put, &gone);
        changed
    }

    /// Applies a persisted update from before this process began. The node counts as disconnected.
    pub fn recall(
        &mut self,
        update: InventoryUpdate,
        catalog: &Catalog,
        now: Instant,
    ) -> Result<(), UpdateError> {
        let applied = self.take_in(update, catalog);
        if applied.is_ok() {
            self.away_since = None;
        }
        self.confirmed = false;
        self.away(now);
        applied.map(drop)
    }

    /// Applies one update of an agent's stream, and marks the node as connected. Ignores volumes of other nodes and returns their number.
    ///
    /// # Errors
    /// The update does not follow from the last one, or exceeds a bound. Nothing was changed.
    pub fn apply(
        &mut self,
        update: InventoryUpdate,
        catalog: &Catalog,
    ) -> Result<Foreign, UpdateError> {
        let foreign = self.take_in(update, catalog)?;
        self.away_since = None;
        self.node.set_connected(true);
        Ok(foreign)
    }

    fn take_in(
        &mut self,
        mut update: InventoryUpdate,
        catalog: &Catalog,
    ) -> Result<Foreign, UpdateError> {
        bounds::check_parts(&update)?;
        if update.full {
            if self.instance == update.instance && update.revision < self.revision {
                return Err(UpdateError::Gap(Gap::Old {
                    current: self.revision,
                    got: update.revision,
                }));
            }
        } else {
            self.check_follows(&update)?;
        }
        let (put, foreign) = self.ours(std::mem::take(&mut update.volumes));
        let removed: Vec<Uuid> = update
            .removed_volumes
            .iter()
            .filter_map(|id| id.parse::<VolumeId>().ok())
            .map(|id| id.uuid)
            .collect();
        self.held_after(&update, &put, &removed).check()?;
        if update.full {
            self.making = Some(InventoryBuilder::default());
            self.instance.clone_from(&update.instance);
        }
        self.revision = update.revision;
        let ready = update.ready;
        // A partial update has no findings and is not `ready`.
        let findings = ready.then(|| std::mem::take(&mut update.findings));
        match &mut self.making {
            Some(making) => making.take_in(update, put, &removed),
            None => {
                let shown = self.shown.get_or_insert_default();
                shown.instance.clone_from(&self.instance);
                shown.revision = self.revision;
                for uuid in &removed {
                    let before = shown.volumes.remove(uuid);
                    replace(&mut shown.bytes, before.map(PackedVolume::bytes), 0);
                }
                for (uuid, volume) in &put {
                    let packed = PackedVolume::of(volume);
                    let before = shown.volumes.insert(*uuid, packed);
                    replace(
                        &mut shown.bytes,
                        before.map(PackedVolume::bytes),
                        packed.bytes(),
                    );
                }
                catalog.change(&self.node, put, &removed);
                let bytes = &mut shown.bytes;
                change_drives(
                    &mut shown.drives,
                    bytes,
                    update.removed_drives,
                    update.drives,
                );
                if !update.classes.is_empty() {
                    let classes = Arc::make_mut(&mut shown.classes);
                    change_classes(classes, bytes, update.classes);
                }
            }
        }
        if ready && let Some(made) = self.making.take() {
            self.show(made, catalog);
        }
        if let Some(findings) = findings
            && let Some(shown) = &mut self.shown
        {
            shown.findings = findings;
        }
        Ok(foreign)
    }

    // Upper bound of what is held after this update.
    fn held_after(
        &self,
        update: &InventoryUpdate,
        put: &[(Uuid, Volume)],
        removed: &[Uuid],
    ) -> Held {
        let empty = InventoryBuilder::default();
        let making = if update.full {
            Some(&empty)
        } else {
            self.making.as_ref()
        };
        let shown = self.shown.as_ref();
        let volume = |uuid: &Uuid| match making {
            Some(making) => making.volumes.get(uuid).map(bounds::volume_bytes),
            None => shown?.volumes.get(uuid).map(|packed| packed.bytes()),
        };
        let drive = |id: &String| {
            let drives = match making {
                Some(making) => &making.drives,
                None => &shown?.drives,
            };
            drives.get(id).map(PackedDrive::bytes)
        };
        let class = |name: &String| match making {
            Some(making) => making.classes.get(name).map(bounds::class_bytes),
            None => shown?.classes.get(name).map(bounds::class_bytes),
        };
        let mut held = match making {
            Some(making) => making.held(),
            None => shown.map(Shown::held).unwrap_or_default(),
        };
        let gone: BTreeSet<&Uuid> = removed.iter().collect();
        for bytes in gone.iter().filter_map(|uuid| volume(uuid)) {
            held.volumes = held.volumes.saturating_sub(1);
            held.bytes = held.bytes.saturating_sub(bytes);
        }
        for (uuid, new) in put {
            let before = volume(uuid).filter(|_| !gone.contains(uuid));
            held.volumes += usize::from(before.is_none());
            replace(&mut held.bytes, before, bounds::volume_bytes(new));
        }
        let gone: BTreeSet<&String> = update.removed_drives.iter().collect();
        for bytes in gone.iter().filter_map(|id| drive(id)) {
            held.drives = held.drives.saturating_sub(1);
            held.bytes = held.bytes.saturating_sub(bytes);
        }
        for new in &update.drives {
            let before = drive(&new.id).filter(|_| !gone.contains(&new.id));
            held.drives += usize::from(before.is_none());
            replace(&mut held.bytes, before, bounds::drive_bytes(new));
        }
        for new in &update.classes {
            let before = class(&new.name);
            held.classes += usize::from(before.is_none());
            replace(&mut held.bytes, before, bounds::class_bytes(new));
        }
        held
    }

    // Splits off the volumes whose id is malformed or names another node.
    fn ours(&self, volumes: Vec<Volume>) -> (Vec<(Uuid, Volume)>, Foreign) {
        let node = &*self.node;
        let mut foreign = Foreign::default();
        let ours = volumes
            .into_iter()
            .filter_map(|volume| match volume.id.parse::<VolumeId>() {
                Ok(id) if id.node == node => Some((id.uuid, volume)),
                _ => {
                    if foreign.count == 0 {
                        foreign.example = printable(&volume.id);
                    }
                    foreign.count += 1;
                    None
                }
            })
            .collect();
        (ours, foreign)
    }

    fn show(&mut self, made: InventoryBuilder, catalog: &Catalog) {
        let before = self.shown.take().unwrap_or_default();
        let expected = std::mem::take(&mut self.expected);
        let gone: Vec<Uuid> = before
            .volumes
            .keys()
            .chain(&expected)
            .filter(|uuid| !made.volumes.contains_key(*uuid))
            .copied()
            .collect();
        self.confirmed = true;
        let volumes = made
            .volumes
            .iter()
            .map(|(uuid, volume)| (*uuid, PackedVolume::of(volume)))
            .collect();
        catalog.change(&self.node, made.volumes.into_iter().collect(), &gone);
        self.shown = Some(Shown {
            instance: self.instance.clone(),
            revision: self.revision,
            classes: Arc::new(made.classes),
            drives: made.drives,
            volumes,
            findings: Vec::new(),
            bytes: made.bytes,
        });
    }

    fn check_follows(&self, update: &InventoryUpdate) -> Result<(), Gap> {
        if self.making.is_none() && self.shown.is_none() {
            return Err(Gap::NoSnapshot);
        }
        if self.instance != update.instance {
            return Err(Gap::OtherInstance {
                current: self.instance.clone(),
                got: update.instance.clone(),
            });
        }
        let follows = match update.since_revision {
            0 => update.revision > self.revision,
            since => since == self.revision && update.revision >= since,
        };
        if !follows {
            return Err(Gap::Revision {
                current: self.revision,
                since: update.since_revision,
                to: update.revision,
            });
        }
        Ok(())
    }

    /// Removes all contents, as if no agent had ever reported. Keeps the time of disconnection.
    pub fn clear(&mut self, catalog: &Catalog) {
        let gone: Vec<Uuid> = self.volumes().into_iter().collect();
        catalog.change(&self.node, Vec::new(), &gone);
        let away_since = self.away_since;
        *self = Self::new(self.node.clone());
        self.away_since = away_since;
    }

    /// Marks the node as disconnected since `now`, unless it was already. Drops an incomplete snapshot.
    pub fn away(&mut self, now: Instant) {
        self.making = None;
        self.node.set_connected(false);
        self.away_since.get_or_insert(now);
    }

    /// Returns the time since which the agent is disconnected; None while it is connected.
    pub fn away_since(&self) -> Option<Instant> {
        self.away_since
    }

    /// True if the agent is connected and has scanned every drive: then a volume that is not listed does not exist.
    pub fn complete(&self) -> bool {
        self.making.is_none() && self.has_inventory() && self.away_since.is_none()
    }

    /// True if a complete inventory was ever received or recalled.
    pub fn has_inventory(&self) -> bool {
        self.shown.is_some()
    }

    /// True if anything is listed for the node: an agent's inventory, or expected volumes.
    pub fn listed(&self) -> bool {
        self.has_inventory() || !self.expected.is_empty()
    }

    /// Returns the classes of the last complete inventory, by name.
    pub fn classes(&self) -> Classes {
        self.shown
            .as_ref()
            .map(|shown| shown.classes.clone())
            .unwrap_or_default()
    }

    /// Returns the findings about the host in the last complete inventory.
    pub fn findings(&self) -> &[Finding] {
        let shown = self.shown.as_ref();
        shown.map_or(&[], |shown| &shown.findings)
    }

    /// Returns the drives of the last complete inventory, in order of their identities.
    pub fn drives(&self) -> impl Iterator<Item = Drive> {
        let shown = self.shown.iter();
        shown.flat_map(|shown| shown.drives.values().map(PackedDrive::decode))
    }

    /// Returns the drive of this identity in the last complete inventory.
    pub fn drive(&self, id: &str) -> Option<Drive> {
        let shown = self.shown.as_ref()?;
        shown.drives.get(id).map(PackedDrive::decode)
    }

    /// Returns the uuids of all volumes in the last complete inventory, including deleted ones, and of expected ones.
    pub fn volumes(&self) -> BTreeSet<Uuid> {
        let shown = self.shown.iter().flat_map(|shown| shown.volumes.keys());
        shown.chain(&self.expected).copied().collect()
    }

    /// Counts the existing volumes. Takes time linear in their number.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts {
            volumes: self.expected.len() as u64,
            troubled: 0,
        };
        for volume in self.shown.iter().flat_map(|shown| shown.volumes.values()) {
            counts.volumes += u64::from(volume.exists());
            counts.troubled += u64::from(volume.exists() && volume.troubled());
        }
        counts
    }

    /// True if the last complete inventory has volumes that are being erased or quarantined.
    pub fn has_deleted(&self) -> bool {
        let shown = self.shown.iter();
        shown
            .flat_map(|shown| shown.volumes.values())
            .any(|volume| !volume.exists())
    }

    /// Returns the uuids of volumes that move, or have moved and still have an old place.
    pub fn with_moves(&self) -> BTreeSet<Uuid> {
        let shown = self.shown.iter().flat_map(|shown| &shown.volumes);
        let moving = shown.filter(|(_, volume)| volume.has_move());
        moving.map(|(uuid, _)| *uuid).collect()
    }

    /// Returns the last complete inventory as one full update; None if there never was one.
    pub fn dump(&self, catalog: &Catalog) -> Option<InventoryUpdate> {
        let mut update = self.dump_without_volumes()?;
        let volumes = self.keys().filter_map(|key| catalog.get(&key));
        update.volumes = volumes.collect();
        Some(update)
    }

    /// Returns the same without volumes.
    pub fn dump_without_volumes(&self) -> Option<InventoryUpdate> {
        let shown = self.shown.as_ref()?;
        Some(InventoryUpdate {
            instance: shown.instance.clone(),
            revision: shown.revision,
            full: true,
            ready: true,
            node_id: self.node.to_string(),
            drives: self.drives().collect(),
            classes: shown.classes.values().cloned().collect(),
            findings: shown.findings.clone(),
            ..InventoryUpdate::default()
        })
    }

    /// Returns the catalog keys of all volumes of the last complete inventory.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        let shown = self.shown.iter();
        shown.flat_map(|shown| {
            shown.volumes.keys().map(|uuid| Key {
                uuid: *uuid,
                node: self.node.clone(),
            })
        })
    }

    pub fn node(&self) -> &str {
        &self.node
    }

    /// Returns the instance of the agent process that sent the newest update.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Returns the revision of the newest update.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the instance and the revision of the last complete inventory; an empty one and 0 if there never was one.
    pub fn shown(&self) -> (&str, u64) {
        let shown = self.shown.as_ref();
        shown.map_or(("", 0), |shown| (&shown.instance, shown.revision))
    }

    /// True if the last complete inventory includes this revision of this instance. A complete inventory of a later
    /// instance includes all revisions that earlier ones acknowledged.
    pub fn includes(&self, instance: &str, revision: u64) -> bool {
        self.complete() && (self.instance != instance || self.revision >= revision)
    }
}

#[cfg(test)]
#[path = "inventory_tests.rs"]
mod tests;
