//! The mounts of this process's namespace, without reading all of them each time: a table that is brought up to date, and
//! the stack at one path.

use std::{io, path::Path, sync::Arc};

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

/// What was asked of the kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Change {
    /// Mounts that were read.
    pub read: usize,
    /// Mounts that are gone.
    pub gone: usize,
}

/// All mounts, as they were when it was last brought up to date.
#[derive(Debug, Default)]
pub struct Table {
    // In the order of `entries`, ascending; empty where the kernel has no such ids.
    ids: Vec<UniqueId>,
    entries: Arc<Vec<MountEntry>>,
}

impl Table {
    /// The mounts, in the order of mountinfo.
    pub fn entries(&self) -> Arc<Vec<MountEntry>> {
        self.entries.clone()
    }

    /// Takes in which mounts there are, and reads those that are new. A mount that was known and was changed (remounted,
    /// moved, a directory above it renamed) stays as it was until it is read again.
    pub fn refresh(&mut self) -> Result<Change, MountInfoError> {
        if !statmount::is_supported() {
            return self.read_all();
        }
        match self.take_in() {
            Ok(change) => Ok(change),
            Err(_) => self.read_mountinfo(),
        }
    }

    /// Reads every mount.
    pub fn read_all(&mut self) -> Result<Change, MountInfoError> {
        self.ids.clear();
        if !statmount::is_supported() {
            return self.read_mountinfo();
        }
        match self.take_in() {
            Ok(change) => Ok(change),
            Err(_) => self.read_mountinfo(),
        }
    }

    /// As `refresh`, and reads those of the known mounts again that are `wanted`.
    pub fn reread(
        &mut self,
        wanted: impl Fn(&MountEntry) -> bool,
    ) -> Result<Change, MountInfoError> {
        let mut change = self.refresh()?;
        if self.ids.is_empty() {
            return Ok(change);
        }
        let entries = Arc::make_mut(&mut self.entries);
        for (id, entry) in self.ids.iter().zip(entries) {
            if wanted(entry)
                // What is gone by now is taken out by the next one.
                && let Ok(stated) = statmount::stat(*id)
            {
                change.read += 1;
                *entry = stated.entry;
            }
        }
        Ok(change)
    }

    fn read_mountinfo(&mut self) -> Result<Change, MountInfoError> {
        let entries = read()?;
        let change = Change {
            read: entries.len(),
            gone: 0,
        };
        self.ids.clear();
        self.entries = Arc::new(entries);
        Ok(change)
    }

    fn take_in(&mut self) -> io::Result<Change> {
        let now = statmount::list()?;
        if now == self.ids {
            return Ok(Change::default());
        }
        let mut change = Change::default();
        let known = std::mem::take(&mut self.ids);
        // Without ids there is nothing to keep.
        let mut entries = std::mem::take(&mut self.entries);
        let entries = Arc::make_mut(&mut entries);
        let mut known = known.into_iter().zip(entries.drain(..)).peekable();
        let mut ids = Vec::with_capacity(now.len());
        let mut all = Vec::with_capacity(now.len());
        for id in now {
            while known.next_if(|(old, _)| *old < id).is_some() {
                change.gone += 1;
            }
            let entry = match known.next_if(|(old, _)| *old == id) {
                Some((_, entry)) => entry,
                None => match statmount::stat(id) {
                    Ok(stated) => {
                        change.read += 1;
                        stated.entry
                    }
                    // Gone again.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(error),
                },
            };
            ids.push(id);
            all.push(entry);
        }
        change.gone += known.count();
        self.ids = ids;
        self.entries = Arc::new(all);
        Ok(change)
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
