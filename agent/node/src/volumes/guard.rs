//! One change at a time per volume and per name: a second caller fails with ABORTED instead of queueing. Only a change that the agent
//! makes in the background, without a request, is waited for, briefly.
//!
//! The guard of a volume is taken together with its caller: an orchestrator gets none for a volume that is mounted
//! manually on this host, so that no operation has to check that separately.

use std::{
    collections::HashMap,
    path::Path,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::timeout};
use uuid::Uuid;

use super::{VolumeError, Volumes};
use crate::state::hand_mounts::HandMount;

/// How long a call waits for a change in the background. Such a change runs few commands; longer than this, the call is repeated.
const BACKGROUND_WAIT: Duration = Duration::from_secs(5);

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
    /// The agent, while it completes a requested move or takes a snapshot: users of the volume are not affected.
    Mover,
    /// The agent, while it ends what a copy or an unmount left, without a request and without an effect on the volume's users: their
    /// calls wait for it.
    Background,
}

impl Caller<'_> {
    /// True if a manual mount of the volume, present or made at each start of the host, excludes the caller.
    fn yields_to(self, mount: &HandMount) -> bool {
        match self {
            Self::Csi | Self::CsiDelete | Self::Agent => true,
            // Mounts that an orchestrator made elsewhere are its own to unmount.
            Self::CsiUnmount(path) => mount.path == path,
            // Nothing is mounted then, and the next start of the host finds the volume at its place.
            Self::Manual | Self::Mover | Self::Background => false,
        }
    }

    /// True if copies of the volume's data are out of date from now on.
    fn touches(self) -> bool {
        match self {
            Self::Csi | Self::CsiDelete | Self::Manual => true,
            Self::CsiUnmount(_) | Self::Agent | Self::Mover | Self::Background => false,
        }
    }

    /// True if the caller must wait until the list of manual mounts can be read. `manual`: the volume was created
    /// manually.
    fn needs_list(self, manual: bool) -> bool {
        match self {
            Self::Csi => manual,
            // Erased data does not return when the list can be read again.
            Self::CsiDelete | Self::Agent => true,
            Self::CsiUnmount(_) | Self::Manual | Self::Mover | Self::Background => false,
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
pub struct Guards(Arc<Held>);

#[derive(Debug, Default)]
struct Held {
    /// True for a change in the background.
    subjects: Mutex<HashMap<Subject, bool>>,
    released: Notify,
}

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
        self.insert(Subject::Other(key), false)
    }

    fn insert(&self, subject: Subject, background: bool) -> Option<Guard> {
        let mut subjects = self.subjects();
        if subjects.contains_key(&subject) {
            return None;
        }
        subjects.insert(subject.clone(), background);
        Some(Guard {
            all: self.clone(),
            subject,
        })
    }

    /// True if the guard is held.
    pub fn is_held(&self, key: &Key) -> bool {
        self.subjects().contains_key(&Subject::Other(key.clone()))
    }

    /// True if the guard of a volume is held.
    pub fn is_volume_held(&self, uuid: Uuid) -> bool {
        self.subjects().contains_key(&Subject::Volume(uuid))
    }

    /// Waits until no change in the background holds the guard of a volume.
    async fn background_ended(&self, uuid: Uuid) {
        loop {
            let mut released = pin!(self.0.released.notified());
            // From here on a release is noticed.
            released.as_mut().enable();
            if self.subjects().get(&Subject::Volume(uuid)) != Some(&true) {
                return;
            }
            released.await;
        }
    }

    fn subjects(&self) -> std::sync::MutexGuard<'_, HashMap<Subject, bool>> {
        self.0
            .subjects
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Volumes {
    /// Like `guard_volume`, but waits for a change in the background, at most [`BACKGROUND_WAIT`].
    pub(super) async fn guard_for_call(
        &self,
        uuid: Uuid,
        what: &str,
        caller: Caller<'_>,
    ) -> Result<VolumeGuard, VolumeError> {
        let ended = self.inner.guards.background_ended(uuid);
        // After the limit it is still held, and the caller gets `Pending`.
        let _ = timeout(BACKGROUND_WAIT, ended).await;
        self.guard_volume(uuid, what, caller)
    }

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
        let background = matches!(caller, Caller::Background);
        let guard = self.inner.guards.insert(Subject::Volume(uuid), background);
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
        self.all.subjects().remove(&self.subject);
        self.all.0.released.notify_waiters();
    }
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
