//! Keeps the devices of published raw volumes open while they are published (`drivebay_fs::publish` has the reason): in
//! the worker that published them, or in another one if that has ended, for example since the agent was restarted.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{task::JoinSet, time::interval};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Caller, MOUNT_DEADLINE, Volumes, guard::VolumeGuard};
use drivebay_fs::jobs::{Device, Hold};
use drivebay_model::{DriveId, DriveRef, DriveState, Mode, Snapshot, Volume, cause::chain};
use drivebay_sys::mountinfo::MountEntry;
use drivebay_worker::{Lane, Slot, WorkerKey};

/// Interval at which ended workers that should hold a device are replaced; a change of the inventory is acted upon at
/// once.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Holder of the device of each volume that this agent published, or found published.
#[derive(Debug, Default)]
pub(super) struct Holders(Mutex<BTreeMap<Uuid, Holder>>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Holder {
    worker: WorkerKey,
    /// Kernel name of the device.
    device: String,
}

impl Holders {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Uuid, Holder>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Volumes {
    /// Returns the worker that holds a volume from now on, and ends the earlier one if it is another.
    pub(super) async fn holder(&self, uuid: Uuid, drive: &DriveId, device: &Device) -> WorkerKey {
        let worker = WorkerKey::from((drive, Slot::Hold)).on(Lane::Volume(uuid));
        let holder = Holder {
            worker: worker.clone(),
            device: device.name.clone(),
        };
        let before = self.inner.holders.all().insert(uuid, holder);
        if let Some(before) = before.filter(|before| before.worker != worker) {
            self.node.pool().dismiss(before.worker).await;
        }
        worker
    }

    /// Ends the worker that holds the volume, unless the volume is still published.
    pub(super) async fn dismiss_holder(&self, held: &VolumeGuard) {
        let uuid = held.uuid();
        let holder = self.inner.holders.all().get(&uuid).cloned();
        let Some(holder) = holder.filter(|holder| !self.is_published(holder)) else {
            return;
        };
        self.node.pool().dismiss(holder.worker).await;
        self.inner.holders.all().remove(&uuid);
    }

    fn is_published(&self, holder: &Holder) -> bool {
        let mounts = self.node.mounts().entries();
        mounts
            .iter()
            .any(|mount| bound(mount) == Some(&holder.device))
    }

    /// Keeps the devices of published raw volumes open, until stopped.
    pub async fn hold_all(&self, stop: CancellationToken) {
        let mut snapshots = self.node.inventory().subscribe();
        let mut ticks = interval(POLL_INTERVAL);
        loop {
            let snapshot = snapshots.borrow_and_update().clone();
            let update = async {
                self.hold_what_is_published(&snapshot).await;
                self.dismiss_unneeded().await;
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = update => {}
            }
            tokio::select! {
                () = stop.cancelled() => return,
                changed = snapshots.changed() => if changed.is_err() { return },
                _ = ticks.tick() => {}
            }
        }
    }

    /// Opens the devices of published volumes that are not open.
    async fn hold_what_is_published(&self, snapshot: &Snapshot) {
        if published(snapshot).next().is_none() {
            return;
        }
        let slots = self.node.pool().status().into_iter();
        let held: BTreeSet<WorkerKey> = slots
            .map(|slot| slot.key)
            .filter(|key| key.slot == Slot::Hold)
            .collect();
        let mut opening = JoinSet::new();
        for (volume, drive) in published(snapshot) {
            let Some(device) = Device::of(&volume.placed) else {
                continue;
            };
            let key = WorkerKey::from((&volume.drive, Slot::Hold)).on(Lane::Volume(volume.uuid));
            if held.contains(&key) {
                continue;
            }
            let worker = self.holder(volume.uuid, &volume.drive, &device).await;
            let job = Hold {
                drive,
                placed: volume.placed.clone(),
            };
            let (node, uuid) = (self.node.clone(), volume.uuid);
            opening.spawn(async move {
                match node.run(worker, job, MOUNT_DEADLINE).await {
                    Ok(()) => tracing::info!(volume = %uuid, device = device.name, "device of a published volume opened"),
                    Err(error) => {
                        tracing::warn!(volume = %uuid, device = device.name, error = %chain(&error), "device of a published volume not opened; will retry");
                    }
                }
            });
        }
        // A task that panicked is in the log.
        while opening.join_next().await.is_some() {}
    }

    /// Ends the workers of volumes that were unmounted without the agent.
    async fn dismiss_unneeded(&self) {
        let holders = self.inner.holders.all().clone();
        if holders.is_empty() {
            return;
        }
        let mounts = self.node.mounts().entries();
        let bound: BTreeSet<&str> = mounts.iter().filter_map(|mount| bound(mount)).collect();
        let unneeded = holders
            .iter()
            .filter(|(_, holder)| !bound.contains(holder.device.as_str()));
        for (&uuid, _) in unneeded {
            // A volume that is being changed is handled the next time.
            if let Ok(held) = self.guard_volume(uuid, "", Caller::Background) {
                self.dismiss_holder(&held).await;
            }
        }
    }
}

/// Returns the published raw volumes, with their drives. Pure.
fn published(snapshot: &Snapshot) -> impl Iterator<Item = (&Volume, DriveRef)> {
    let raw = snapshot
        .volumes
        .values()
        .filter(|volume| volume.in_use && volume.placed.record.mode == Mode::Block);
    raw.filter_map(|volume| {
        let drive = snapshot.drives.get(&volume.drive)?;
        let drive = (drive.state == DriveState::Claimed).then_some(drive)?;
        Some((volume, DriveRef::from(&drive.facts)))
    })
}

/// Returns the kernel name of the device whose node is bound by this mount, also after the kernel has removed the node.
/// Pure.
fn bound(mount: &MountEntry) -> Option<&str> {
    let name = mount.root.to_str()?.strip_prefix('/')?;
    let name = name.strip_suffix("//deleted").unwrap_or(name);
    (mount.fs_type == "devtmpfs" && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_sys::mountinfo;

    #[test]
    fn a_node_that_the_kernel_has_removed_is_still_bound_at_its_target() {
        let rows = b"1 2 0:5 /sda3 /a rw - devtmpfs none rw\n\
            2 2 0:5 /sda3//deleted /b rw - devtmpfs none rw\n\
            3 2 0:5 /sda33 /c rw - devtmpfs none rw\n\
            4 2 8:3 / /d rw - ext4 /dev/sda3 rw\n\
            5 2 0:5 / /dev rw - devtmpfs none rw\n";
        let mounts = mountinfo::parse(rows).unwrap();
        let bound: Vec<_> = mounts.iter().map(bound).collect();
        let sda3 = Some("sda3");
        assert_eq!(bound, [sda3, sda3, Some("sda33"), None, None]);
    }
}
