//! One change at a time per volume and per name: a second caller fails with ABORTED instead of queueing.
//!
//! The guard of a volume is taken together with its caller: an orchestrator gets none for a volume that is mounted
//! manually on this host, so that no operation has to check that separately.

use std::{
    collections::HashSet,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use uuid::Uuid;

use super::{VolumeError, Volumes};
use crate::state::hand_mounts::HandMount;

/// Subjects of guards, besides volumes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Key {
    /// A CSI name, while it is being created.
    Name(String),
    /// The CSI name of a snapshot, while it is being taken.
    Snapshot(String),
    /// The CSI name of a group snapshot, while it is being taken.
    SnapshotGroup(String),
    /// A path, for unmounting volumes that are not known any more.
    Path(std::path::PathBuf),
    /// A drive, while it is wiped.
    Drive(drivebay_model::DriveId),
}

/// Origin of a change of a volume.
#[derive(Debug, Clone, Copy)]
pub enum Caller<'a> {
    /// An orchestrator, through CSI, that uses or changes the volume.
    Csi,
    /// An orchestrator that deletes the volume with its data.
    CsiDelete,
    /// An orchestrator that unmounts this path, which is resolved.
    CsiUnmount(&'a Path),
    /// An operator on this host.
    Manual,
    /// The agent itself, without a request.
    Agent,
    /// The agent, while it completes a requested move, ends the holder of a device, or takes a snapshot: users of the
    /// volume are not affected.
    Mover,
}

impl Caller<'_> {
    /// True if a manual mount of the volume, present or made at each start of the host, excludes the caller.
    fn yields_to(self, mount: &HandMount) -> bool {
        match self {
            Self::Csi | Self::CsiDelete | Self::Agent => true,
            // Mounts that an orchestrator made elsewhere are its own to unmount.
            Self::CsiUnmount(path) => mount.path == path,
            // Nothing is mounted then, and the next start of the host finds the volume at its place.
            Self::Manual | Self::Mover => false,
        }
    }

    /// True if copies of the volume's data are out of date from now on.
    fn touches(self) -> bool {
        match self {
            Self::Csi | Self::CsiDelete | Self::Manual => true,
            Self::CsiUnmount(_) | Self::Agent | Self::Mover => false,
        }
    }

    /// True if the caller must wait until the list of manual mounts can be read. `manual`: the volume was created
    /// manually.
    fn needs_list(self, manual: bool) -> bool {
        match self {
            Self::Csi => manual,
            // Erased data does not return when the list can be read again.
            Self::CsiDelete | Self::Agent => true,
            Self::CsiUnmount(_) | Self::Manual | Self::Mover => false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Subject {
    Volume(Uuid),
    Other(Key),
}

/// All guards of a node that are held.
#[derive(Debug, Default, Clone)]
pub struct Guards(Arc<Mutex<HashSet<Subject>>>);

/// Held by the task that makes the change; released on drop.
#[derive(Debug)]
pub struct Guard {
    all: Guards,
    subject: Subject,
}

/// The guard of a volume. Only created for a [`Caller`] that may change the volume (`Volumes::guard_volume`).
#[derive(Debug)]
pub struct VolumeGuard {
    uuid: Uuid,
    _guard: Guard,
}

impl VolumeGuard {
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }
}

impl Guards {
    /// Takes the guard; None while it is held.
    pub fn take(&self, key: Key) -> Option<Guard> {
        self.insert(Subject::Other(key))
    }

    fn insert(&self, subject: Subject) -> Option<Guard> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.insert(subject.clone()).then(|| Guard {
            all: self.clone(),
            subject,
        })
    }

    /// True if the guard is held.
    pub fn is_held(&self, key: &Key) -> bool {
        self.contains(&Subject::Other(key.clone()))
    }

    /// True if the guard of a volume is held.
    pub fn is_volume_held(&self, uuid: Uuid) -> bool {
        self.contains(&Subject::Volume(uuid))
    }

    fn contains(&self, subject: &Subject) -> bool {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.contains(subject)
    }
}

impl Volumes {
    /// Takes the guard of a volume for this caller. `what` names the volume in the error for a second caller.
    ///
    /// # Errors
    /// `Pending` while the guard is held; `MountedManually` or `HandMountsUnread` when the volume is, or may be, mounted
    /// manually.
    pub(super) fn guard_volume(
        &self,
        uuid: Uuid,
        what: &str,
        caller: Caller<'_>,
    ) -> Result<VolumeGuard, VolumeError> {
        let guard = self.inner.guards.insert(Subject::Volume(uuid));
        let guard = guard.ok_or_else(|| VolumeError::Pending {
            what: what.to_owned(),
        })?;
        if caller.touches() {
            self.inner.moves.touch(uuid);
        }
        // Under the guard: a manual mount is recorded while holding it.
        if let Some(why) = self.inner.hand_mounts.unread()
            && caller.needs_list(self.is_manual(uuid))
        {
            return Err(VolumeError::HandMountsUnread { uuid, why });
        }
        if let Some(mount) = self.manual_mount(uuid)?
            && caller.yields_to(&mount)
        {
            return Err(VolumeError::MountedManually {
                uuid,
                at: mount.path.display().to_string(),
            });
        }
        Ok(VolumeGuard {
            uuid,
            _guard: guard,
        })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.all
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.subject);
    }
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
