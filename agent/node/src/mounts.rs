//! The agent's copy of the mount table, from which the inventory derives which volumes are in use.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::inventory::Inventory;
use drivebay_fs::{device, kind::has_anonymous_device};
use drivebay_model::Placed;
use drivebay_sys::mountinfo::{self, Change, MountEntry, MountInfoError, Table};

/// The kernel's table could not be read or parsed: the state of the mounts is unknown.
#[derive(Debug, thiserror::Error)]
#[error("cannot read mountinfo")]
pub struct MountTableError {
    #[source]
    source: MountInfoError,
}

/// Reads the current table, for callers that keep nothing of it.
pub(crate) fn read() -> Result<Vec<MountEntry>, MountTableError> {
    mountinfo::read().map_err(|source| MountTableError { source })
}

/// The mounts of this mount namespace, as last read. Reading them accesses no drive.
#[derive(Debug)]
pub struct Mounts {
    inventory: Arc<Inventory>,
    /// Held while the table is read and published, so that an older reading never replaces a newer one.
    table: Mutex<Table>,
}

impl Mounts {
    /// Creates an empty table.
    pub(crate) fn new(inventory: Arc<Inventory>) -> Self {
        Self {
            inventory,
            table: Mutex::default(),
        }
    }

    /// Returns the mounts as last read.
    pub fn entries(&self) -> Vec<Arc<MountEntry>> {
        self.table().entries()
    }

    /// Returns the number of known mounts at a resolved path.
    pub fn count_at(&self, place: &Path) -> usize {
        self.table().count_at(place)
    }

    /// Returns the mount that is visible at a resolved path.
    pub fn last_at(&self, place: &Path) -> Option<Arc<MountEntry>> {
        self.table().last_at(place)
    }

    /// Adds new mounts, removes those that are gone, and publishes which volumes are in use. Changes of other mounts
    /// are not noticed. Returns the revision that shows the result.
    pub fn refresh(&self) -> Result<u64, MountTableError> {
        self.publish(false, Table::refresh)
    }

    /// Like `refresh`, with every mount read again.
    pub fn reread(&self) -> Result<u64, MountTableError> {
        self.publish(true, Table::read_all)
    }

    /// Like `refresh`, with the mounts of volumes read again: their flags may have changed.
    pub fn reread_of_volumes(&self) -> Result<u64, MountTableError> {
        let snapshot = self.inventory.current();
        let placed = || snapshot.volumes.values().map(|volume| &volume.placed);
        let (names, numbers): (HashSet<_>, HashSet<_>) =
            placed().filter_map(Placed::used_device).unzip();
        let is_named = |path: &Path, parent: &str| {
            let name = path.strip_prefix(parent).ok().and_then(Path::to_str);
            name.is_some_and(|name| names.contains(name))
        };
        let is_of_a_volume = |mount: &MountEntry| {
            numbers.contains(&mount.dev)
                || has_anonymous_device(&mount.fs_type)
                || (mount.fs_type == "devtmpfs" && is_named(&mount.root, "/"))
        };
        self.publish(true, |table| table.reread(is_of_a_volume))
    }

    /// Adds one mount that was made just now, at a cost that does not depend on other mounts. None: its id is unknown,
    /// and all are refreshed.
    pub(crate) fn take_in(&self, id: Option<u64>) -> Result<u64, MountTableError> {
        match id {
            Some(id) => self.publish(false, |table| table.take_in_one(id)),
            None => self.refresh(),
        }
    }

    /// Removes known mounts that are gone from a resolved path, at a cost that does not depend on other mounts. Returns
    /// the number of mounts that are still known there.
    pub(crate) fn drop_gone_at(&self, place: &Path) -> Result<usize, MountTableError> {
        self.publish(false, |table| table.drop_gone_at(place))?;
        Ok(self.count_at(place))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates the table, and publishes the change. `again`: known mounts are read again; one that is identified by its
    /// source may be of another device by now, although it did not change.
    fn publish(
        &self,
        again: bool,
        update: impl FnOnce(&mut Table) -> Result<Change, MountInfoError>,
    ) -> Result<u64, MountTableError> {
        let mut table = self.table();
        let mut change = update(&mut table).map_err(|source| MountTableError { source })?;
        if again {
            let mounts = table.entries().into_iter();
            let by_source: Vec<_> = mounts
                .filter(|mount| has_anonymous_device(&mount.fs_type))
                .collect();
            change.gone.extend(by_source.iter().cloned());
            change.new.extend(by_source);
        }
        if change.is_empty() {
            return Ok(self.inventory.current().revision);
        }
        let numbers: HashMap<u64, _> = change
            .new
            .iter()
            .filter(|mount| has_anonymous_device(&mount.fs_type))
            .filter_map(|mount| Some((mount.id, device::source_number(mount)?)))
            .collect();
        let number_of = |mount: &MountEntry| numbers.get(&mount.id).copied();
        Ok(self
            .inventory
            .update(|state| state.mounts.apply(&change, number_of)))
    }
}
