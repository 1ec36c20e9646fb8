//! Keeps the mounts that should exist, and compares them with the mount table.
//!
//! A missing mount is in no table: it is recorded by our own stage and publish calls until our own unstage or unpublish
//! calls have unmounted it. Once such a call has begun, a missing mount is no fault. The state is disposable and ends with
//! the boot. Pure, but for the lock.

use std::{
    borrow::Borrow,
    collections::{BTreeMap, HashMap, HashSet},
    ffi::OsStr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use uuid::Uuid;

use drivebay_model::{
    DriveState, Mode, Placed, Snapshot,
    condition::{Condition, Reason},
};
use drivebay_sys::mountinfo::{self, MountEntry};

/// Limit of recorded paths: a node has a few hundred pods at most.
const MOST: usize = 16_384;
/// Limit of paths in a message.
const NAMED: usize = 3;

/// Use of a path by a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Path at which the volume is staged: the staging path of NodeStageVolume, or the path of a manual mount.
    Staging,
    /// Target path, where the volume is published.
    Target,
}

/// Mount that should exist at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub volume: Uuid,
    pub role: Role,
    /// True if the mount was requested read-only.
    pub read_only: bool,
    /// Pod that the volume was published to, NAMESPACE/NAME, if the call named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Requested options in a fixed order: those of the filesystem for a staging path, all for a target path. None: not
    /// known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Vec<String>>,
    /// True if the volume was published for one target only. None: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclusive: Option<bool>,
    /// True since our own unmount began: the mount may be missing. It still counts as a use of the volume, since the unmount
    /// may have failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unmounting: bool,
    /// Number of the call that requested the mount: the same path requested again is another place.
    #[serde(skip)]
    pub call: u64,
}

/// Request for a mount, as far as no mount table shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestedMount {
    /// Pod that the volume is published to, NAMESPACE/NAME; None if the call named none.
    pub pod: Option<String>,
    /// See [Place::options].
    pub options: Option<Vec<String>>,
    /// See [Place::exclusive].
    pub exclusive: Option<bool>,
}

/// Mounts that should exist, by resolved path.
pub type Places = BTreeMap<PathBuf, Place>;

#[derive(Debug, Default)]
struct Inner {
    places: Places,
    calls: u64,
    // Mounts that existed when the agent started, by path, with true if our own unmount began. They may be ours until they
    // are unmounted.
    initial: BTreeMap<PathBuf, (MountEntry, Role, bool)>,
}

/// Mounts that should exist now, shared by the calls that change them and the task that checks them.
#[derive(Debug, Default)]
pub struct Expected {
    inner: Mutex<Inner>,
    changed: Notify,
}

impl Expected {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the volume should be mounted at this resolved path. Beyond the limit of paths, logs a warning and
    /// records nothing.
    pub fn expect(
        &self,
        path: PathBuf,
        volume: Uuid,
        role: Role,
        read_only: bool,
        request: RequestedMount,
    ) {
        let mut inner = self.lock();
        inner.calls += 1;
        let call = inner.calls;
        if inner.places.len() >= MOST && !inner.places.contains_key(&path) {
            tracing::warn!(path = %path.display(), "mount limit reached; loss of this mount will not be detected");
            return;
        }
        let place = Place {
            volume,
            role,
            read_only,
            pod: request.pod,
            options: request.options,
            exclusive: request.exclusive,
            unmounting: false,
            call,
        };
        inner.places.insert(path, place);
        drop(inner);
        self.changed.notify_one();
    }

    /// Records that our own unmount of a resolved path begins. Unless [forget](Self::forget) follows, a mount there still
    /// counts as a use of its volume.
    pub fn begin_unmount(&self, path: &Path) {
        let mut inner = self.lock();
        if let Some((_, _, unmounting)) = inner.initial.get_mut(path) {
            *unmounting = true;
        }
        let place = inner.places.get_mut(path);
        let changed = place.is_some_and(|place| !std::mem::replace(&mut place.unmounting, true));
        drop(inner);
        if changed {
            self.changed.notify_one();
        }
    }

    /// Removes a resolved path from the mounts that should exist: it is unmounted.
    pub fn forget(&self, path: &Path) {
        let mut inner = self.lock();
        inner.initial.remove(path);
        let removed = inner.places.remove(path).is_some();
        drop(inner);
        if removed {
            self.changed.notify_one();
        }
    }

    /// Returns a copy of the mounts that should exist.
    pub fn now(&self) -> Places {
        self.lock().places.clone()
    }

    /// Returns the role of this path for the volume; None if the volume should not be mounted there, or its unmount began.
    pub fn role(&self, volume: Uuid, path: &Path) -> Option<Role> {
        let inner = self.lock();
        let place = inner.places.get(path)?;
        (place.volume == volume && !place.unmounting).then_some(place.role)
    }

    /// Returns the request for the mount of this volume at the path; empty if none is recorded.
    pub fn request_of(&self, volume: Uuid, path: &Path) -> RequestedMount {
        let inner = self.lock();
        let place = inner
            .places
            .get(path)
            .filter(|place| place.volume == volume);
        place.map_or_else(RequestedMount::default, |place| RequestedMount {
            pod: place.pod.clone(),
            options: place.options.clone(),
            exclusive: place.exclusive,
        })
    }

    /// Returns the recorded target paths of the volume that conflict with another target: all if that one is `exclusive`,
    /// otherwise those that are exclusive themselves.
    pub fn targets(&self, volume: Uuid, exclusive: bool) -> Vec<PathBuf> {
        let inner = self.lock();
        let of = |place: &Place| {
            place.volume == volume
                && place.role == Role::Target
                && (exclusive || place.exclusive == Some(true))
        };
        let targets = inner.places.iter().filter(|(_, place)| of(place));
        targets.map(|(path, _)| path.clone()).collect()
    }

    /// Returns the recorded staging and target paths of the volume.
    pub fn paths(&self, volume: Uuid) -> Vec<PathBuf> {
        let inner = self.lock();
        let of = inner
            .places
            .iter()
            .filter(|(_, place)| place.volume == volume);
        of.map(|(path, _)| path.clone()).collect()
    }

    /// Returns the pods that each volume is published to, as far as calls named them.
    pub fn pods(&self) -> HashMap<Uuid, Vec<String>> {
        let mut pods: HashMap<Uuid, Vec<String>> = HashMap::new();
        for place in self.lock().places.values() {
            if let Some(pod) = &place.pod {
                pods.entry(place.volume).or_default().push(pod.clone());
            }
        }
        pods
    }

    /// Returns a path where the volume should be mounted, and is not being unmounted; the staging path if there is one.
    pub fn path_of(&self, volume: Uuid) -> Option<PathBuf> {
        let inner = self.lock();
        let of = inner
            .places
            .iter()
            .filter(|(_, place)| place.volume == volume && !place.unmounting);
        of.min_by_key(|(_, place)| place.role)
            .map(|(path, _)| path.clone())
    }

    /// Restores the mounts that an earlier agent of this boot recorded, and keeps the mounts at the kubelet's paths that may
    /// be of volumes for [settle](Self::settle). Must be called before any call is served.
    pub fn begin(&self, places: Places, mounts: &[impl Borrow<MountEntry>], kubelet_dir: &Path) {
        let mut inner = self.lock();
        inner.places = places;
        for mount in mounts.iter().map(Borrow::borrow) {
            if let Some(role) = role_in(kubelet_dir, &mount.mount_point) {
                let entry = (mount.clone(), role, false);
                inner.initial.insert(mount.mount_point.clone(), entry);
            }
        }
    }

    /// Records the mounts from the start of the agent that are of known volumes, and drops those recorded for unknown
    /// volumes. While a drive is not scanned, a mount of no known volume may be of a volume on that drive, and is kept for
    /// the next call.
    ///
    /// `current` is called under the lock, so that its snapshot has the volume of every mount recorded by then.
    pub fn settle(
        &self,
        current: impl FnOnce() -> Arc<Snapshot>,
        is_of: impl Fn(&MountEntry, &Placed) -> bool,
    ) {
        let mut inner = self.lock();
        let snapshot = current();
        let mut drives = snapshot.drives.values();
        let is_open = drives.any(|drive| drive.state == DriveState::NotScanned);
        for (path, (mount, role, unmounting)) in std::mem::take(&mut inner.initial) {
            let mut volumes = snapshot.volumes.values();
            let volume = volumes.find(|volume| is_of(&mount, &volume.placed));
            if volume.is_none() && is_open {
                inner.initial.insert(path, (mount, role, unmounting));
            } else if let Some(volume) = volume
                && inner.places.len() < MOST
            {
                let read_only = mount.read_only() || mount.super_read_only();
                inner.places.entry(path).or_insert(Place {
                    volume: volume.uuid,
                    role,
                    read_only,
                    pod: None,
                    options: None,
                    exclusive: None,
                    unmounting,
                    call: 0,
                });
            }
        }
        let exists = |place: &Place| snapshot.volumes.contains_key(&place.volume);
        inner.places.retain(|_, place| exists(place));
    }

    /// Waits for a change. Several changes may be reported as one.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// Returns the role of a path by the kubelet's layout. None for all other paths: a mount there may not be needed any more.
fn role_in(kubelet_dir: &Path, path: &Path) -> Option<Role> {
    let below = path.strip_prefix(kubelet_dir).ok()?;
    let parts: Vec<&str> = below
        .iter()
        .map(|part| part.to_str())
        .collect::<Option<_>>()?;
    match parts.as_slice() {
        ["plugins", "kubernetes.io", "csi", .., "globalmount"] => Some(Role::Staging),
        ["pods", _, "volumes", "kubernetes.io~csi", _, "mount"] => Some(Role::Target),
        [
            "plugins",
            "kubernetes.io",
            "csi",
            "volumeDevices",
            "publish",
            _,
            _,
        ] => Some(Role::Target),
        _ => None,
    }
}

/// Returns the conditions of the mounts of each volume; volumes without conditions are left out. Pure.
///
/// `before` and `after` are the expected mounts before and after the table was read: a place counts only if the same call
/// recorded it in both and no unmount of it began, so that concurrent calls of our own cause no condition.
pub fn judge(
    before: &Places,
    after: &Places,
    mounts: &[impl Borrow<MountEntry>],
    snapshot: &Snapshot,
    is_of: impl Fn(&MountEntry, &Placed) -> bool,
) -> BTreeMap<Uuid, Vec<Condition>> {
    let expected = after.keys().map(|path| (path.as_os_str(), Vec::new()));
    // Keyed by bytes: comparing paths part by part is slow with thousands of mounts.
    let mut at: HashMap<&OsStr, Vec<&MountEntry>> = expected.collect();
    for mount in mounts.iter().map(Borrow::borrow) {
        if let Some(here) = at.get_mut(mount.mount_point.as_os_str()) {
            here.push(mount);
        }
    }
    // A filesystem that was staged read-only is read-only at all its mounts.
    let reading: HashSet<Uuid> = after
        .values()
        .filter(|place| place.role == Role::Staging && place.read_only)
        .map(|place| place.volume)
        .collect();
    let mut wrong: BTreeMap<Uuid, BTreeMap<MountFault, Vec<&Path>>> = BTreeMap::new();
    for (path, place) in after
        .iter()
        .filter(|(path, place)| !place.unmounting && before.get(*path) == Some(*place))
    {
        let Some(volume) = snapshot.volumes.get(&place.volume) else {
            continue;
        };
        let stack = at.get(path.as_os_str()).map(Vec::as_slice);
        let top = stack.and_then(|stack| mountinfo::mounts_at(stack, path).last().copied());
        let read_only = place.read_only || reading.contains(&place.volume);
        if let Some(what) = wrong_at(place.role, read_only, top, &volume.placed, &is_of) {
            let places = wrong.entry(place.volume).or_default();
            places.entry(what).or_default().push(path);
        }
    }
    wrong
        .into_iter()
        .map(|(volume, wrong)| {
            let conditions = wrong
                .into_iter()
                .map(|(what, paths)| condition(what, &paths));
            (volume, conditions.collect())
        })
        .collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum MountFault {
    StagingMissing,
    TargetMissing,
    NodeGone,
    Device,
    ReadOnly,
}

/// True if the file that is bound here was removed; the kernel marks its root so.
fn is_deleted(mount: &MountEntry) -> bool {
    mount
        .root
        .as_os_str()
        .as_encoded_bytes()
        .ends_with(b"//deleted")
}

fn wrong_at(
    role: Role,
    requested_read_only: bool,
    top: Option<&MountEntry>,
    placed: &Placed,
    is_of: impl Fn(&MountEntry, &Placed) -> bool,
) -> Option<MountFault> {
    let Some(top) = top else {
        return Some(match role {
            Role::Staging => MountFault::StagingMissing,
            Role::Target => MountFault::TargetMissing,
        });
    };
    // The kernel has removed the device that is bound here: its drive is missing, or returned as another device.
    if top.fs_type == "devtmpfs" && is_deleted(top) {
        return placed.dev.is_some().then_some(MountFault::NodeGone);
    }
    // Without a device there is nothing to compare with; a missing drive is reported elsewhere.
    if placed.dev.is_some() && !is_of(top, placed) {
        return Some(MountFault::Device);
    }
    // A device node can be written to even if the mount that it is on is read-only.
    let block = placed.record.mode == Mode::Block;
    let read_only = top.read_only()
        || top.super_read_only()
        || mountinfo::has_option(&top.super_options, "emergency_ro");
    (!block && !requested_read_only && read_only).then_some(MountFault::ReadOnly)
}

/// Returns the condition of a path where a mount is missing.
pub fn missing(role: Role, path: &Path) -> Condition {
    let what = match role {
        Role::Staging => MountFault::StagingMissing,
        Role::Target => MountFault::TargetMissing,
    };
    condition(what, &[path])
}

fn condition(what: MountFault, paths: &[&Path]) -> Condition {
    let mut named: Vec<String> = paths
        .iter()
        .take(NAMED)
        .map(|path| path.display().to_string())
        .collect();
    if paths.len() > NAMED {
        named.push("others".to_owned());
    }
    let at = named.join(", ");
    let (reason, message) = match what {
        MountFault::StagingMissing => (
            Reason::StagingMountMissing,
            format!(
                "it is not mounted any more at its staging path {at}, and Drivebay did not unmount it; delete the pods that use it, so that it is mounted again; if it was mounted by hand: `drivebay-agent volume mount`"
            ),
        ),
        MountFault::TargetMissing => (
            Reason::TargetMountMissing,
            format!(
                "it is not mounted any more at {at}, and Drivebay did not unmount it: the pod's writes may go to the system drive; delete the pod, so that it is mounted again"
            ),
        ),
        MountFault::NodeGone => (
            Reason::DeviceGone,
            format!(
                "the device that the pod has at {at} is stale, since its drive was disconnected; delete the pod, so that it gets the current device"
            ),
        ),
        MountFault::Device => (
            Reason::WrongDevice,
            format!(
                "what is mounted at {at} is not this volume; delete the pod, and unmount what was mounted there by hand"
            ),
        ),
        MountFault::ReadOnly => (
            Reason::ReadOnly,
            format!(
                "its mount at {at} turned read-only; see the kernel log, save the data, and have the filesystem checked; if it was remounted by hand, remount it writable"
            ),
        ),
    };
    Condition::new(reason, message)
}

#[cfg(test)]
#[path = "mounts_tests.rs"]
mod tests;
