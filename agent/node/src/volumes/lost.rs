//! Lost sectors of volumes (`drivebay_model::lost`): what was written since is not lost any more. Their marks are read before a stage, after
//! the last unmount, and, while a volume is in use, after something was written to it.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{LAYOUT_DEADLINE, VolumeError, Volumes};
use crate::{inventory::can_be_copied, tasks::Tasks};
use drivebay_layout::jobs::SettleLost;
use drivebay_model::{DriveRef, Snapshot, Volume, VolumeState, cause::chain};
use drivebay_sys::{offload::offload, quiet};
use drivebay_worker::Slot;

/// Interval of counting the writes to volumes in use: a lost sector that was written reads as an error for at most this long.
const EVERY: Duration = Duration::from_secs(5);
/// Reading sysfs waits for no drive.
const COUNT_DEADLINE: Duration = Duration::from_secs(5);

impl Volumes {
    /// Records which sectors of a volume are lost still, if it has any, and has its mapped device answer only those with errors. Returns the
    /// volume in its current state. `may_end`: see `SettleLost`.
    pub(super) async fn settle_lost(
        &self,
        drive: &DriveRef,
        volume: &Volume,
        may_end: bool,
    ) -> Result<Volume, VolumeError> {
        let Some(before) = volume.placed.record.lost() else {
            return Ok(volume.clone());
        };
        let job = SettleLost {
            drive: drive.clone(),
            uuid: volume.uuid,
            may_end,
        };
        let worker = (&volume.drive, Slot::Foreground);
        let settled = self.node.run(worker, job, LAYOUT_DEADLINE).await?;
        let inventory = self.node.inventory();
        inventory.put_contents(&volume.drive, settled.contents);
        let current = inventory.current();
        let now = current.volumes.get(&volume.uuid);
        let now = now.cloned().ok_or_else(|| VolumeError::NotFound {
            id: volume.uuid.to_string(),
        })?;
        let left = now.placed.record.lost().unwrap_or_default();
        if left != before {
            tracing::info!(volume = %volume.uuid, ranges_before = before.len(), ranges_left = left.len(), "lost sectors of a volume were written, and read again");
        }
        Ok(now)
    }

    /// Settles volumes in use that have lost sectors whenever something was written to them, until stopped. Each has a task of its own: a
    /// drive that hangs delays no other one.
    pub async fn watch_lost(&self, stop: CancellationToken) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut tasks: Tasks<Uuid, Option<u64>> = Tasks::default();
        // Number of writes when the marks were read last.
        let mut settled: BTreeMap<Uuid, u64> = BTreeMap::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some((uuid, writes)) = tasks.next() => {
                    match writes.flatten() {
                        Some(writes) => settled.insert(uuid, writes),
                        None => settled.remove(&uuid),
                    };
                }
                _ = ticks.tick() => {
                    let open = open_with_lost(&self.node.inventory().current());
                    settled.retain(|uuid, _| open.iter().any(|(_, volume, _)| volume.uuid == *uuid));
                    for (drive, volume, device) in open {
                        let uuid = volume.uuid;
                        if !tasks.has(&uuid) {
                            let (this, before) = (self.clone(), settled.get(&uuid).copied());
                            tasks.spawn(uuid, async move {
                                this.settle_written(&drive, &volume, device, before).await
                            });
                        }
                    }
                }
            }
        }
    }

    /// Settles a volume unless its mapped device still has this number of writes. Returns the number, counted before the marks were read, so
    /// that what is written later changes it; None: they were not read.
    async fn settle_written(
        &self,
        drive: &DriveRef,
        volume: &Volume,
        device: String,
        before: Option<u64>,
    ) -> Option<u64> {
        let counted = offload("writes", COUNT_DEADLINE, move || quiet::writes(&device));
        let writes = counted.await.ok()?.ok()??;
        if before == Some(writes) {
            return before;
        }
        match self.settle_lost(drive, volume, false).await {
            Ok(_) => Some(writes),
            Err(error) => {
                tracing::warn!(volume = %volume.uuid, error = %chain(&error), "cannot read the marks of lost sectors");
                None
            }
        }
    }
}

/// Returns the volumes with lost sectors that are open, with their drives and the kernel names of their mapped devices. Pure.
fn open_with_lost(snapshot: &Snapshot) -> Vec<(DriveRef, Volume, String)> {
    let open = snapshot.volumes.values().filter_map(|volume| {
        let mapping = volume.placed.mapping.as_ref()?;
        let lost = volume.placed.record.lost()?;
        let drive = snapshot.drives.get(&volume.drive)?;
        let is_served = volume.state == VolumeState::Ready && can_be_copied(drive);
        (is_served && !lost.is_empty()).then(|| {
            let device = mapping.device.clone();
            (DriveRef::from(&drive.facts), volume.clone(), device)
        })
    });
    open.collect()
}
