//! The mounts of this process's namespace without reading all of them each time: a table that is updated, and the stack at one path.

use std::{
    borrow::Borrow,
    collections::{BTreeMap, HashMap},
    ffi::OsStr,
    hash::{Hash, Hasher},
    io,
    os::fd::BorrowedFd,
    path::Path,
    sync::Arc,
};

use super::{
    MountEntry, MountInfoError, mounts_at, read,
    statmount::{self, UniqueId},
};

/// Returns the mounts at one resolved path, the visible one last, as `mounts_at` does from the whole table, at a cost that does not depend
/// on other mounts. A mount that is hidden by another one at a parent directory is not at the path: operations on the path do not affect
/// it. (Reading the whole table, on older kernels, includes it.)
pub fn at(resolved: &Path) -> Result<Vec<MountEntry>, MountInfoError> {
    if statmount::is_supported()
        && let Some(stack) = stack(resolved)
    {
        return Ok(stack);
    }
    let entries = read()?;
    Ok(mounts_at(&entries, resolved).into_iter().cloned().collect())
}

/// Returns the stack at a path; None if the table must be read instead.
fn stack(resolved: &Path) -> Option<Vec<MountEntry>> {
    let top = match statmount::mount_of(resolved) {
        Ok(id) => id,
        // Nothing can be mounted at a path that does not exist.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => {
            return Some(Vec::new());
        }
        Err(_) => return None,
    };
    let mut stack = Vec::new();
    // Unmounted meanwhile: read the table for what is visible now.
    let mut stated = statmount::stat(top).ok()?;
    while stated.entry.mount_point.as_os_str() == resolved.as_os_str() {
        stack.push(stated.entry);
        // The root's parent is not visible to this process.
        let Ok(below) = statmount::stat(stated.parent) else {
            break;
        };
        stated = below;
    }
    stack.reverse();
    Some(stack)
}

/// Returns the never reused id of a mount, by a descriptor on it; None if the kernel has no such ids.
pub fn unique_id(mount: BorrowedFd<'_>) -> Option<u64> {
    statmount::is_supported()
        .then(|| statmount::mount_of_file(mount).ok())
        .flatten()
}

/// Difference of two states. A mount that was read again and differs is in both lists.
#[derive(Debug, Default)]
pub struct Change {
    pub gone: Vec<Arc<MountEntry>>,
    pub new: Vec<Arc<MountEntry>>,
    /// Number of mounts that were read.
    pub read: usize,
}

impl Change {
    /// True if no mount was added, removed or changed.
    pub fn is_empty(&self) -> bool {
        self.gone.is_empty() && self.new.is_empty()
    }
}

/// A mount, hashed and compared by its mount point.
#[derive(Debug)]
struct Point(Arc<MountEntry>);

impl Borrow<OsStr> for Point {
    fn borrow(&self) -> &OsStr {
        self.0.mount_point.as_os_str()
    }
}

impl PartialEq for Point {
    fn eq(&self, other: &Self) -> bool {
        Borrow::<OsStr>::borrow(self) == Borrow::<OsStr>::borrow(other)
    }
}

impl Eq for Point {}

impl Hash for Point {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Borrow::<OsStr>::borrow(self).hash(state);
    }
}

/// Mounts that were read, with their ids.
type Read = Vec<(UniqueId, MountEntry)>;

/// All mounts as of the last update.
#[derive(Debug, Default)]
pub struct Table {
    // Keys are mountinfo's ids if the kernel has no unique ones. Those are smaller than all unique ids.
    mounts: BTreeMap<UniqueId, Arc<MountEntry>>,
    at: HashMap<Point, Vec<UniqueId>>,
}

impl Table {
    /// Returns the mounts, sorted by id.
    pub fn entries(&self) -> Vec<Arc<MountEntry>> {
        self.mounts.values().cloned().collect()
    }

    /// Returns the number of mounts in the table at exactly this resolved path, hidden ones included.
    pub fn count_at(&self, resolved: &Path) -> usize {
        self.at.get(resolved.as_os_str()).map_or(0, Vec::len)
    }

    /// Returns the newest mount in the table at exactly this resolved path.
    pub fn last_at(&self, resolved: &Path) -> Option<Arc<MountEntry>> {
        let last = self.at.get(resolved.as_os_str())?.last()?;
        self.mounts.get(last).cloned()
    }

    /// Updates the list of mounts, and reads new ones. A known mount that was changed (remounted, moved, a parent directory renamed) keeps
    /// its old entry until it is read again.
    pub fn refresh(&mut self) -> Result<Change, MountInfoError> {
        self.reread(|_| false)
    }

    /// Updates the table and reads every mount.
    pub fn read_all(&mut self) -> Result<Change, MountInfoError> {
        self.reread(|_| true)
    }

    /// Updates the table as `refresh` does, and reads those known mounts again for which the predicate `wanted` is true.
    pub fn reread(
        &mut self,
        wanted: impl Fn(&MountEntry) -> bool,
    ) -> Result<Change, MountInfoError> {
        if statmount::is_supported()
            && let Ok((now, read)) = self.query(wanted)
        {
            return Ok(self.take_in(&now, read));
        }
        let read: BTreeMap<UniqueId, MountEntry> =
            read()?.into_iter().map(|entry| (entry.id, entry)).collect();
        let now: Vec<UniqueId> = read.keys().copied().collect();
        Ok(self.take_in(&now, read.into_iter().collect()))
    }

    /// Adds or updates the mount of this id, at a cost that does not depend on other mounts.
    pub fn take_in_one(&mut self, id: UniqueId) -> Result<Change, MountInfoError> {
        match statmount::stat(id) {
            Ok(stated) => {
                let mut change = Change::default();
                self.put(id, stated.entry, &mut change);
                Ok(change)
            }
            // Unmounted meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Change::default()),
            Err(_) => self.refresh(),
        }
    }

    /// Removes unmounted mounts at this resolved path, at a cost that does not depend on other mounts.
    pub fn drop_gone_at(&mut self, resolved: &Path) -> Result<Change, MountInfoError> {
        if !statmount::is_supported() {
            return self.refresh();
        }
        let ids = self.at.get(resolved.as_os_str()).cloned();
        let mut change = Change::default();
        for id in ids.unwrap_or_default() {
            match statmount::stat(id) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.remove(id, &mut change);
                }
                Err(_) => return self.refresh(),
            }
        }
        Ok(change)
    }

    /// Returns the ids of all mounts, and the entries of those that are new or `wanted`.
    fn query(&self, wanted: impl Fn(&MountEntry) -> bool) -> io::Result<(Vec<UniqueId>, Read)> {
        let mut now = statmount::list()?;
        let mut read = Vec::new();
        let mut previous = self.mounts.iter().peekable();
        let mut gone = Vec::new();
        for &id in &now {
            while previous.next_if(|(old, _)| **old < id).is_some() {}
            let old = previous.next_if(|(old, _)| **old == id);
            if old.is_some_and(|(_, entry)| !wanted(entry)) {
                continue;
            }
            match statmount::stat(id) {
                Ok(stated) => read.push((id, stated.entry)),
                // Unmounted meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => gone.push(id),
                Err(error) => return Err(error),
            }
        }
        now.retain(|id| gone.binary_search(id).is_err());
        Ok((now, read))
    }

    /// Applies an update. `now`: the ids of all mounts, ascending.
    fn take_in(&mut self, now: &[UniqueId], read: Read) -> Change {
        let mut change = Change {
            read: read.len(),
            ..Change::default()
        };
        let mut now = now.iter().peekable();
        let ids = self.mounts.keys();
        let gone = ids.filter(|id| {
            while now.next_if(|other| other < id).is_some() {}
            now.peek() != Some(id)
        });
        let gone: Vec<UniqueId> = gone.copied().collect();
        for id in gone {
            self.remove(id, &mut change);
        }
        for (id, entry) in read {
            self.put(id, entry, &mut change);
        }
        change
    }

    fn remove(&mut self, id: UniqueId, change: &mut Change) {
        let Some(entry) = self.mounts.remove(&id) else {
            return;
        };
        let point = entry.mount_point.as_os_str();
        if let Some(here) = self.at.get_mut(point) {
            here.retain(|other| *other != id);
            if here.is_empty() {
                self.at.remove(point);
            }
        }
        change.gone.push(entry);
    }

    fn put(&mut self, id: UniqueId, entry: MountEntry, change: &mut Change) {
        if self.mounts.get(&id).is_some_and(|old| **old == entry) {
            return;
        }
        self.remove(id, change);
        let entry = Arc::new(entry);
        self.at.entry(Point(entry.clone())).or_default().push(id);
        self.mounts.insert(id, entry.clone());
        change.new.push(entry);
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
