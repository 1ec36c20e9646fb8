//! What one agent last said of its node: a full snapshot, then deltas, in order.
//!
//! Pure but for the catalog that it keeps: updates go in, or are refused as not following from
//! what is known, in which case the caller asks for a full snapshot again. Nothing is guessed over a gap.

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
    contents::{InventoryBuilder, Known, Shown, change_classes, replace},
    drives::{PackedDrive, change_drives},
};
use crate::{
    bounds::{self, Bound, Held},
    catalog::{Catalog, Key, Node},
    expected::ExpectedVolume,
    peer_log::printable,
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
    /// A full snapshot that is older than what the same agent process said before.
    #[error(
        "an inventory snapshot of revision {got} came after revision {known}: it is an old one"
    )]
    Old {
        /// The revision that is known.
        known: u64,
        /// The revision that came.
        got: u64,
    },
}

/// An update is not taken in, and has changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError {
    #[error(transparent)]
    Gap(#[from] Gap),
    #[error(transparent)]
    Bound(#[from] Bound),
}

/// Volumes of an update that are not listed, since their ids are not of this node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Foreign {
    pub count: u64,
    /// The first of the ids, cut.
    pub example: String,
}

/// How many volumes there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// That exist.
    pub volumes: u64,
    /// Of those, with trouble that the agent tells of.
    pub troubled: u64,
}

/// One node's inventory, and whether its agent is there.
#[derive(Debug)]
pub struct Inventory {
    node: Node,
    instance: String,
    revision: u64,
    // From an agent that has not scanned every drive yet; not shown.
    making: Option<InventoryBuilder>,
    // The last complete view. Its volumes are in the catalog.
    shown: Option<Shown>,
    // Volumes that should exist on a node whose agent has not told this process what it has; in the catalog, too.
    expected: BTreeSet<Uuid>,
    // An agent has told this process: what it did not tell of does not exist.
    confirmed: bool,
    away_since: Option<Instant>,
}

impl Inventory {
    /// Nothing known yet of this node.
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

    /// Lists these volumes, of which an orchestrator says that they exist, until an agent has told what the node has. Those
    /// that are known already stay as the agent last reported them. Answers whether that changed anything.
    pub fn expect(&mut self, volumes: &BTreeMap<Uuid, ExpectedVolume>, catalog: &Catalog) -> bool {
        if self.confirmed {
            return false;
        }
        let shown = self.shown.as_ref();
        let known = |uuid: &Uuid| shown.is_some_and(|shown| shown.volumes.contains_key(uuid));
        let now: BTreeSet<Uuid> = volumes
            .keys()
            .filter(|uuid| !known(uuid))
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

    /// Takes in what was known before this process began; the node counts as disconnected.
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

    /// Takes in one update of the stream. Volumes of other nodes are left out.
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
                    known: self.revision,
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
        // A part of a larger update has none, and says that it is not ready.
        let findings = ready.then(|| std::mem::take(&mut update.findings));
        match &mut self.making {
            Some(making) => making.take_in(update, put, &removed),
            None => {
                let shown = self.shown.get_or_insert_default();
                shown.instance.clone_from(&self.instance);
                shown.revision = self.revision;
                for uuid in &removed {
                    let before = shown.volumes.remove(uuid);
                    replace(&mut shown.bytes, before.map(Known::bytes), 0);
                }
                for (uuid, volume) in &put {
                    let known = Known::of(volume);
                    let before = shown.volumes.insert(*uuid, known);
                    replace(&mut shown.bytes, before.map(Known::bytes), known.bytes());
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

    // What is held when this update has been taken in: never less than that.
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
            None => shown?.volumes.get(uuid).map(|known| known.bytes()),
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

    // The volumes whose id is one of this node's.
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
            .map(|(uuid, volume)| (*uuid, Known::of(volume)))
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
                known: self.instance.clone(),
                got: update.instance.clone(),
            });
        }
        let follows = match update.since_revision {
            0 => update.revision > self.revision,
            since => since == self.revision && update.revision >= since,
        };
        if !follows {
            return Err(Gap::Revision {
                known: self.revision,
                since: update.since_revision,
                to: update.revision,
            });
        }
        Ok(())
    }

    /// Forgets everything, as if the node had never been.
    pub fn clear(&mut self, catalog: &Catalog) {
        let gone: Vec<Uuid> = self.volumes().into_iter().collect();
        catalog.change(&self.node, Vec::new(), &gone);
        let away_since = self.away_since;
        *self = Self::new(self.node.clone());
        self.away_since = away_since;
    }

    /// The stream has ended; the time is kept from the first such notice.
    pub fn away(&mut self, now: Instant) {
        self.making = None;
        self.node.set_connected(false);
        self.away_since.get_or_insert(now);
    }

    /// Since when the agent is away; None while it is there.
    pub fn away_since(&self) -> Option<Instant> {
        self.away_since
    }

    /// Whether the agent is there and has looked at every drive: then what is not shown does not exist.
    pub fn complete(&self) -> bool {
        self.making.is_none() && self.known() && self.away_since.is_none()
    }

    /// Whether an agent's complete view has ever been had.
    pub fn known(&self) -> bool {
        self.shown.is_some()
    }

    /// Whether anything is listed for it: what an agent reported, or what is expected.
    pub fn listed(&self) -> bool {
        self.known() || !self.expected.is_empty()
    }

    /// Its classes, of the last complete view.
    pub fn classes(&self) -> Classes {
        self.shown
            .as_ref()
            .map(|shown| shown.classes.clone())
            .unwrap_or_default()
    }

    /// What its agent found of the host, of the last complete view.
    pub fn findings(&self) -> &[Finding] {
        let shown = self.shown.as_ref();
        shown.map_or(&[], |shown| &shown.findings)
    }

    /// Its drives by identity, of the last complete view.
    pub fn drives(&self) -> impl Iterator<Item = Drive> {
        let shown = self.shown.iter();
        shown.flat_map(|shown| shown.drives.values().map(PackedDrive::decode))
    }

    /// Its drive of this identity, of the last complete view.
    pub fn drive(&self, id: &str) -> Option<Drive> {
        let shown = self.shown.as_ref()?;
        shown.drives.get(id).map(PackedDrive::decode)
    }

    /// The uuids of its volumes, deleted and expected ones too, of the last complete view.
    pub fn volumes(&self) -> BTreeSet<Uuid> {
        let shown = self.shown.iter().flat_map(|shown| shown.volumes.keys());
        shown.chain(&self.expected).copied().collect()
    }

    /// How many volumes it has.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts {
            volumes: self.expected.len() as u64,
            troubled: 0,
        };
        for known in self.shown.iter().flat_map(|shown| shown.volumes.values()) {
            counts.volumes += u64::from(known.exists());
            counts.troubled += u64::from(known.exists() && known.troubled());
        }
        counts
    }

    /// Whether it has volumes that were deleted: being erased, or quarantined.
    pub fn has_deleted(&self) -> bool {
        let shown = self.shown.iter();
        shown
            .flat_map(|shown| shown.volumes.values())
            .any(|known| !known.exists())
    }

    /// The uuids of its volumes that move, or have moved and still have an old place.
    pub fn with_moves(&self) -> BTreeSet<Uuid> {
        let shown = self.shown.iter().flat_map(|shown| &shown.volumes);
        let moving = shown.filter(|(_, known)| known.has_move());
        moving.map(|(uuid, _)| *uuid).collect()
    }

    /// All that is shown, as one full update; None when nothing ever was.
    pub fn dump(&self, catalog: &Catalog) -> Option<InventoryUpdate> {
        let mut update = self.dump_without_volumes()?;
        let volumes = self.keys().filter_map(|key| catalog.get(&key));
        update.volumes = volumes.collect();
        Some(update)
    }

    /// The same, but for the volumes.
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

    /// The places of all volumes that are shown.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        let shown = self.shown.iter();
        shown.flat_map(|shown| {
            shown.volumes.keys().map(|uuid| Key {
                uuid: *uuid,
                node: self.node.clone(),
            })
        })
    }

    /// The node.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// The agent process of the newest update.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// The revision of the newest update.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The agent process and the revision of what is shown; of nothing when nothing ever was.
    pub fn shown(&self) -> (&str, u64) {
        let shown = self.shown.as_ref();
        shown.map_or(("", 0), |shown| (&shown.instance, shown.revision))
    }

    /// Whether what is shown includes this revision of this instance. A later instance
    /// that is complete includes all that earlier ones acknowledged.
    pub fn includes(&self, instance: &str, revision: u64) -> bool {
        self.complete() && (self.instance != instance || self.revision >= revision)
    }
}

#[cfg(test)]
#[path = "inventory_tests.rs"]
mod tests;
