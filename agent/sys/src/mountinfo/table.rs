//! The mounts of this process's namespace, without reading all of them each time: a table that is brought up to date, and
//! the stack at one path.

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

/// The mounts at one resolved path, the visible one last, as `mounts_at` finds them in the whole table; what other mounts
/// there are costs nothing. One that another mount hides, at a directory above, is not at the path: what is done to the
/// path is not done to it. (An older kernel's table does not tell it from the others.)
pub fn at(resolved: &Path) -> Result<Vec<MountEntry>, MountInfoError> {
    if statmount::is_supported()
        && let Some(stack) = stack(resolved)
    {
        return Ok(stack);
    }
    let entries = read()?;
    Ok(mounts_at(&entries, resolved).into_iter().cloned().collect())
}

/// None: the table must be read.
fn stack(resolved: &Path) -> Option<Vec<MountEntry>> {
    let top = match statmount::mount_of(resolved) {
        Ok(id) => id,
        // Nothing can be mounted at what does not exist.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => {
            return Some(Vec::new());
        }
        Err(_) => return None,
    };
    let mut stack = Vec::new();
    // Unmounted meanwhile: what is below it now is to be seen.
    let mut stated = statmount::stat(top).ok()?;
    while stated.entry.mount_point.as_os_str() == resolved.as_os_str() {
        stack.push(stated.entry);
        // The root's parent is outside of what this process sees.
        let Ok(below) = statmount::stat(stated.parent) else {
            break;
        };
        stated = below;
    }
    stack.reverse();
    Some(stack)
}

/// The id of a mount that no later one has, by a descriptor of its root; None where the kernel has no such ids.
pub fn unique_id(mount: BorrowedFd<'_>) -> Option<u64> {
    statmount::is_supported()
        .then(|| statmount::mount_of_file(mount).ok())
        .flatten()
}

/// What is different. A mount that was read again and is not the same is in both lists.
#[derive(Debug, Default)]
pub struct Change {
    pub gone: Vec<Arc<MountEntry>>,
    pub new: Vec<Arc<MountEntry>>,
    /// Mounts that were read.
    pub read: usize,
}

impl Change {
    /// Whether nothing is different.
    pub fn is_empty(&self) -> bool {
        self.gone.is_empty() && self.new.is_empty()
    }
}

/// Where a mount is, as the key of what is mounted there.
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

/// Mounts that were read, by their ids.
type Read = Vec<(UniqueId, MountEntry)>;

/// All mounts, as they were when it was last brought up to date.
#[derive(Debug, Default)]
pub struct Table {
    // Where the kernel has no ids that are never used again, by mountinfo's. Those are below all of the others.
    mounts: BTreeMap<UniqueId, Arc<MountEntry>>,
    at: HashMap<Point, Vec<UniqueId>>,
}

impl Table {
    /// The mounts, in the order of their ids.
    pub fn entries(&self) -> Vec<Arc<MountEntry>> {
        self.mounts.values().cloned().collect()
    }

    /// How many mounts are known at exactly this resolved path, hidden ones too.
    pub fn count_at(&self, resolved: &Path) -> usize {
        self.at.get(resolved.as_os_str()).map_or(0, Vec::len)
    }

    /// The mount known at exactly this resolved path that was made last.
    pub fn last_at(&self, resolved: &Path) -> Option<Arc<MountEntry>> {
        let last = self.at.get(resolved.as_os_str())?.last()?;
        self.mounts.get(last).cloned()
    }

    /// Takes in which mounts there are, and reads those that are new. A mount that was known and was changed (remounted,
    /// moved, a directory above it renamed) stays as it was until it is read again.
    pub fn refresh(&mut self) -> Result<Change, MountInfoError> {
        self.reread(|_| false)
    }

    /// Reads every mount.
    pub fn read_all(&mut self) -> Result<Change, MountInfoError> {
        self.reread(|_| true)
    }

    /// As `refresh`, and reads those of the known mounts again that are `wanted`.
    pub fn reread(
        &mut self,
        wanted: impl Fn(&MountEntry) -> bool,
    ) -> Result<Change, MountInfoError> {
        if statmount::is_supported()
            && let Ok((now, read)) = self.ask(wanted)
        {
            return Ok(self.take_in(&now, read));
        }
        let read: BTreeMap<UniqueId, MountEntry> =
            read()?.into_iter().map(|entry| (entry.id, entry)).collect();
        let now: Vec<UniqueId> = read.keys().copied().collect();
        Ok(self.take_in(&now, read.into_iter().collect()))
    }

    /// Takes in one mount, of this id, whatever other mounts there are.
    pub fn take_in_one(&mut self, id: UniqueId) -> Result<Change, MountInfoError> {
        match statmount::stat(id) {
            Ok(stated) => {
                let mut change = Change::default();
                self.put(id, stated.entry, &mut change);
                Ok(change)
            }
            // Gone again.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Change::default()),
            Err(_) => self.refresh(),
        }
    }

    /// Lets those go that were known at this resolved path and are gone, whatever other mounts there are.
    pub fn drop_gone_at(&mut self, resolved: &Path) -> Result<Change, MountInfoError> {
        if !statmount::is_supported() {
            return self.refresh();
        }
        let known = self.at.get(resolved.as_os_str()).cloned();
        let mut change = Change::default();
        for id in known.unwrap_or_default() {
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

    /// The ids of all mounts, and those that are new or `wanted`, read.
    fn ask(&self, wanted: impl Fn(&MountEntry) -> bool) -> io::Result<(Vec<UniqueId>, Read)> {
        let mut now = statmount::list()?;
        let mut read = Vec::new();
        let mut known = self.mounts.iter().peekable();
        let mut gone = Vec::new();
        for &id in &now {
            while known.next_if(|(old, _)| **old < id).is_some() {}
            let old = known.next_if(|(old, _)| **old == id);
            if old.is_some_and(|(_, entry)| !wanted(entry)) {
                continue;
            }
            match statmount::stat(id) {
                Ok(stated) => read.push((id, stated.entry)),
                // Gone again.
                Err(error) if error.kind() == io::ErrorKind::NotFound => gone.push(id),
                Err(error) => return Err(error),
            }
        }
        now.retain(|id| gone.binary_search(id).is_err());
        Ok((now, read))
    }

    /// `now`: the ids of all that there are, ascending.
    fn take_in(&mut self, now: &[UniqueId], read: Read) -> Change {
        let mut change = Change {
            read: read.len(),
            ..Change::default()
        };
        let mut now = now.iter().peekable();
        let known = self.mounts.keys();
        let gone = known.filter(|id| {
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
        if self.mounts.get(&id).is_some_and(|known| **known == entry) {
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
