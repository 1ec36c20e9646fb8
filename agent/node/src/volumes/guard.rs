//! One change at a time per volume and per name: a second caller is answered with ABORTED instead of queueing.
//!
//! The guard of a volume is taken together with who asks: an orchestrator gets none for a volume that a person uses on this
//! host, so that no operation has to remember to ask.

use std::{
    collections::HashSet,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use uuid::Uuid;

use super::{VolumeError, Volumes};
use crate::state::hand_mounts::HandMount;

/// What is guarded, besides volumes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Key {
    /// A CSI name, while it is being created.
    Name(String),
    /// The CSI name of a snapshot, while it is being taken.
    Snapshot(String),
    /// A path, for unmounting volumes that nobody knows any more.
    Path(std::path::PathBuf),
    /// A drive, while it is wiped.
    Drive(drivebay_model::DriveId),
}

/// Who asks for a change of a volume.
#[derive(Debug, Clone, Copy)]
pub enum Caller<'a> {
    /// An orchestrator, through CSI, that uses the volume or changes it.
    Csi,
    /// An orchestrator that gives the volume up, with its data.
    CsiDelete,
    /// An orchestrator that unmounts this path, which is resolved.
    CsiUnmount(&'a Path),
    /// A person on this host.
    Manual,
    /// The agent itself, for which nobody waits.
    Agent,
    /// The agent, which completes a move that was asked for, ends what held a device open, or takes a snapshot: whoever uses the volume
    /// goes on using it.
    Mover,
}

impl Caller<'_> {
    /// Whether a manual mount of the volume, one that is there or is made at each start of the host, keeps it from the caller.
    fn yields_to(self, mount: &HandMount) -> bool {
        match self {
            Self::Csi | Self::CsiDelete | Self::Agent => true,
            // What an orchestrator mounted elsewhere is its own to take away.
            Self::CsiUnmount(path) => mount.path == path,
            // Nothing is mounted then, and what is to be mounted at the next start is found where it lives.
            Self::Manual | Self::Mover => false,
        }
    }

    /// Whether what is copied of the volume is out of date from now on.
    fn touches(self) -> bool {
        match self {
            Self::Csi | Self::CsiDelete | Self::Manual => true,
            Self::CsiUnmount(_) | Self::Agent | Self::Mover => false,
        }
    }

    /// Whether the caller has to wait until the list of manual mounts can be read. `made_by_hand`: the volume was.
    fn needs_list(self, made_by_hand: bool) -> bool {
        match self {
            Self::Csi => made_by_hand,
            // What is erased does not come back when the list can be read again.
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

/// All guards of a node.
#[derive(Debug, Default, Clone)]
pub struct Guards(Arc<Mutex<HashSet<Subject>>>);

/// Held by the task that does the change; freed when it ends, whatever way.
#[derive(Debug)]
pub struct Guard {
    all: Guards,
    subject: Subject,
}

/// The guard of a volume. There is none but for a [`Caller`] who may change the volume (`Volumes::guard_volume`).
#[derive(Debug)]
pub struct VolumeGuard {
    uuid: Uuid,
    _guard: Guard,
}

impl VolumeGuard {
    /// The volume.
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }
}

impl Guards {
    /// The guard, or None while somebody else holds it.
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

    /// Whether somebody holds it.
    pub fn is_held(&self, key: &Key) -> bool {
        self.contains(&Subject::Other(key.clone()))
    }

    /// Whether somebody holds that of a volume.
    pub fn is_volume_held(&self, uuid: Uuid) -> bool {
        self.contains(&Subject::Volume(uuid))
    }

    fn contains(&self, subject: &Subject) -> bool {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.contains(subject)
    }
}

impl Volumes {
    /// Takes the guard of a volume for this caller. `what` names the volume in the answer to a second caller.
    ///
    /// # Errors
    /// `Pending` while somebody else holds it; `MountedByHand` or `HandMountsUnread` when a person uses the volume, or may.
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
        // Under the guard: whoever mounts a volume by hand writes that down while holding it.
        if let Some(why) = self.inner.hand_mounts.unread()
            && caller.needs_list(self.is_made_by_hand(uuid))
        {
            return Err(VolumeError::HandMountsUnread { uuid, why });
        }
        if let Some(mount) = self.manual_mount(uuid)?
            && caller.yields_to(&mount)
        {
            return Err(VolumeError::MountedByHand {
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
