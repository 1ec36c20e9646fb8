//! What one agent last said of its node: a full snapshot, then deltas, in order.
//!
//! Pure but for the catalog that it keeps: updates go in, or are refused as not following from
//! what is known, in which case the caller asks for a full snapshot again. Nothing is guessed over a gap.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use drivebay_proto::{
    VolumeId,
    agent::{Class, Drive, InventoryUpdate, Volume},
};
use uuid::Uuid;

use crate::catalog::{Catalog, Key, marks};

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

/// Classes of drives by name.
pub type Classes = Arc<BTreeMap<String, Class>>;

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
    node: Arc<str>,
    instance: String,
    revision: u64,
    // From an agent that has not scanned every drive yet; not shown.
    making: Option<InventoryBuilder>,
    // The last complete view. Its volumes are in the catalog.
    shown: Option<Shown>,
    away_since: Option<Instant>,
}

#[derive(Debug, Default)]
struct InventoryBuilder {
    classes: BTreeMap<String, Class>,
    drives: BTreeMap<String, Drive>,
    volumes: BTreeMap<Uuid, Volume>,
}

#[derive(Debug, Default)]
struct Shown {
    // Which agent process said so, and when; behind what is known while a snapshot is being told.
    instance: String,
    revision: u64,
    classes: Classes,
    drives: BTreeMap<String, Drive>,
    // (exists, troubled) of each.
    volumes: BTreeMap<Uuid, (bool, bool)>,
}

impl Inventory {
    /// Nothing known yet of this node.
    pub fn new(node: Arc<str>) -> Self {
        Self {
            node,
            instance: String::new(),
            revision: 0,
            making: None,
            shown: None,
            away_since: None,
        }
    }

    /// Takes in one update of the stream.
    pub fn apply(&mut self, update: InventoryUpdate, catalog: &Catalog) -> Result<(), Gap> {
        if update.full {
            if self.instance == update.instance && update.revision < self.revision {
                return Err(Gap::Old {
                    known: self.revision,
                    got: update.revision,
                });
            }
            self.making = Some(InventoryBuilder::default());
            self.instance = update.instance;
        } else {
            self.check_follows(&update)?;
        }
        self.revision = update.revision;
        self.away_since = None;
        let put = self.ours(update.volumes);
        let removed: Vec<Uuid> = update
            .removed_volumes
            .iter()
            .filter_map(|id| id.parse::<VolumeId>().ok())
            .map(|id| id.uuid)
            .collect();
        match &mut self.making {
            Some(making) => {
                for uuid in removed {
                    making.volumes.remove(&uuid);
                }
                making.volumes.extend(put);
                for id in &update.removed_drives {
                    making.drives.remove(id);
                }
                let drives = update.drives.into_iter();
                making
                    .drives
                    .extend(drives.map(|drive| (drive.id.clone(), drive)));
                let classes = update.classes.into_iter();
                making
                    .classes
                    .extend(classes.map(|class| (class.name.clone(), class)));
            }
            None => {
                let shown = self.shown.get_or_insert_default();
                shown.instance.clone_from(&self.instance);
                shown.revision = self.revision;
                for uuid in &removed {
                    shown.volumes.remove(uuid);
                }
                for (uuid, volume) in &put {
                    let marks = marks(volume);
                    shown.volumes.insert(*uuid, (marks.exists, marks.troubled));
                }
                catalog.change(&self.node, put, &removed);
                for id in &update.removed_drives {
                    shown.drives.remove(id);
                }
                for drive in update.drives {
                    shown.drives.insert(drive.id.clone(), drive);
                }
                if !update.classes.is_empty() {
                    let classes = Arc::make_mut(&mut shown.classes);
                    for class in update.classes {
                        classes.insert(class.name.clone(), class);
                    }
                }
            }
        }
        if update.ready
            && let Some(made) = self.making.take()
        {
            self.show(made, catalog);
        }
        Ok(())
    }

    // The volumes whose id is one of this node's.
    fn ours(&self, volumes: Vec<Volume>) -> Vec<(Uuid, Volume)> {
        let node = &*self.node;
        let ours = volumes
            .into_iter()
            .filter_map(|volume| match volume.id.parse::<VolumeId>() {
                Ok(id) if id.node == node => Some((id.uuid, volume)),
                _ => {
                    tracing::error!(
                        node,
                        volume = volume.id,
                        "agent reported a volume id of another node; volume not listed"
                    );
                    None
                }
            });
        ours.collect()
    }

    fn show(&mut self, made: InventoryBuilder, catalog: &Catalog) {
        let before = self.shown.take().unwrap_or_default();
        let gone: Vec<Uuid> = before
            .volumes
            .keys()
            .filter(|uuid| !made.volumes.contains_key(*uuid))
            .copied()
            .collect();
        let volumes = made
            .volumes
            .iter()
            .map(|(uuid, volume)| {
                let marks = marks(volume);
                (*uuid, (marks.exists, marks.troubled))
            })
            .collect();
        catalog.change(&self.node, made.volumes.into_iter().collect(), &gone);
        self.shown = Some(Shown {
            instance: self.instance.clone(),
            revision: self.revision,
            classes: Arc::new(made.classes),
            drives: made.drives,
            volumes,
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
        if let Some(shown) = self.shown.take() {
            let gone: Vec<Uuid> = shown.volumes.into_keys().collect();
            catalog.change(&self.node, Vec::new(), &gone);
        }
        let away_since = self.away_since;
        *self = Self::new(self.node.clone());
        self.away_since = away_since;
    }

    /// The stream has ended; the time is kept from the first such notice.
    pub fn away(&mut self, now: Instant) {
        self.making = None;
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

    /// Whether a complete view has ever been had.
    pub fn known(&self) -> bool {
        self.shown.is_some()
    }

    /// Its classes, of the last complete view.
    pub fn classes(&self) -> Classes {
        self.shown
            .as_ref()
            .map(|shown| shown.classes.clone())
            .unwrap_or_default()
    }

    /// Its drives by identity, of the last complete view.
    pub fn drives(&self) -> impl Iterator<Item = &Drive> {
        self.shown.iter().flat_map(|shown| shown.drives.values())
    }

    /// The uuids of its volumes, deleted ones too, of the last complete view.
    pub fn volumes(&self) -> BTreeSet<Uuid> {
        self.shown
            .iter()
            .flat_map(|shown| shown.volumes.keys().copied())
            .collect()
    }

    /// How many volumes it has.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for (exists, troubled) in self.shown.iter().flat_map(|shown| shown.volumes.values()) {
            counts.volumes += u64::from(*exists);
            counts.troubled += u64::from(*exists && *troubled);
        }
        counts
    }

    /// All that is shown, as one full update; None when nothing ever was.
    pub fn dump(&self, catalog: &Catalog) -> Option<InventoryUpdate> {
        let shown = self.shown.as_ref()?;
        let volume = |uuid: &Uuid| {
            catalog.get(&Key {
                uuid: *uuid,
                node: self.node.clone(),
            })
        };
        Some(InventoryUpdate {
            instance: shown.instance.clone(),
            revision: shown.revision,
            full: true,
            ready: true,
            node_id: self.node.to_string(),
            drives: shown.drives.values().cloned().collect(),
            volumes: shown.volumes.keys().filter_map(volume).collect(),
            classes: shown.classes.values().cloned().collect(),
            ..InventoryUpdate::default()
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
