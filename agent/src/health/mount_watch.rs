//! The task that follows the mount table: which volumes are in use, and whether what should be mounted is.

use std::{collections::BTreeMap, path::Path, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::fsevents::Mounted;
use crate::{
    evidence::{
        mounts::{self, Role},
        registry::Source,
    },
    fs::device,
    model::{Mode, Placed, cause::chain},
    sys::{mountinfo::MountEntry, mountwatch::MountWatch},
    volumes::{Mounts, VolumeError, Volumes},
};

/// Without a change in the table there can be one on the other side: a drive comes back as another device.
const TICK: Duration = Duration::from_secs(10);
/// Which mounts come and go is seen at each change of the table. How those of volumes changed is read this much later, once for
/// all changes in between; how others did, each tick: reading thousands of mounts at each change would keep a busy host busy.
const REREAD_AFTER: Duration = Duration::from_secs(1);

/// Whether a mount is of the volume: of its device, or for block its device's node.
pub fn is_of(mount: &MountEntry, placed: &Placed) -> bool {
    let Some(dev) = placed.dev else {
        return false;
    };
    match placed.record.mode {
        Mode::Mount => device::is_mount_of(mount, dev),
        Mode::Block => placed.device.as_ref().is_some_and(|device| {
            mount.fs_type == "devtmpfs" && mount.root == Path::new("/").join(device)
        }),
    }
}

/// Follows it until `stop`. `mounted` gets the volumes with a mounted filesystem.
pub async fn run(volumes: Volumes, mounted: watch::Sender<Vec<Mounted>>, stop: CancellationToken) {
    let mut table = match MountWatch::new() {
        Ok(watch) => Some(watch),
        Err(error) => {
            tracing::error!(%error, "cannot watch the mount table; polling it instead");
            None
        }
    };
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut snapshots = volumes.inventory().subscribe();
    let mut ready = false;
    let mut reread_at: Option<Instant> = None;
    loop {
        let changed = async {
            match &table {
                Some(table) => table.changed().await,
                None => std::future::pending().await,
            }
        };
        let due = async {
            match reread_at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let mut read: Read = Volumes::reread_mounts;
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
            () = due => {
                reread_at = None;
                read = Volumes::reread_mounts_of_volumes;
            }
            () = volumes.expected().changed() => read = Volumes::refresh_mounts,
            // The first look must not wait for a tick.
            known = snapshots.wait_for(|snapshot| snapshot.ready), if !ready => ready = known.is_ok(),
            changed = changed => match changed {
                Ok(()) => {
                    read = Volumes::refresh_mounts;
                    reread_at.get_or_insert_with(|| Instant::now() + REREAD_AFTER);
                }
                Err(error) => {
                    tracing::error!(%error, "mount table watch failed; polling it instead");
                    table = None;
                }
            },
        }
        check_mounts(&volumes, &mounted, read);
    }
}

/// How much of the table is read.
type Read = fn(&Volumes) -> Result<Mounts, VolumeError>;

fn check_mounts(volumes: &Volumes, mounted: &watch::Sender<Vec<Mounted>>, read: Read) {
    let expected = volumes.expected();
    let before = expected.now();
    let mounts = match read(volumes) {
        Ok(read) => read.mounts,
        Err(error) => {
            tracing::error!(error = %chain(&error), "cannot read the mount table");
            return;
        }
    };
    let after = expected.now();
    let snapshot = volumes.inventory().current();
    if !snapshot.ready {
        return;
    }
    expected.settle(|| volumes.inventory().current(), is_of);
    let wrong = mounts::judge(&before, &after, &mounts, &snapshot, is_of);
    volumes
        .inventory()
        .record_conditions(Source::Mounts, snapshot.volumes.keys().copied(), wrong);

    // The call that staged it last: a path mounted anew may have the same mount id.
    let calls: BTreeMap<Uuid, u64> = after
        .values()
        .filter(|place| place.role == Role::Staging)
        .map(|place| (place.volume, place.call))
        .collect();
    let by_dev: BTreeMap<(u32, u32), &MountEntry> = mounts
        .iter()
        .rev()
        .map(|mount| (mount.dev, mount))
        .collect();
    let with_filesystem = snapshot.volumes.values().filter_map(|volume| {
        let mount = by_dev.get(&volume.placed.dev?)?;
        let drive = snapshot.drives.get(&volume.drive)?;
        Some(Mounted {
            volume: volume.uuid,
            drive: volume.drive.clone(),
            dev: mount.dev,
            record: volume.placed.record.state.clone(),
            fs_type: mount.fs_type.clone(),
            path: mount.mount_point.clone(),
            mount: mount.id,
            call: calls.get(&volume.uuid).copied().unwrap_or(0),
            answers: drive.trouble.is_none(),
        })
    });
    let all: Vec<Mounted> = with_filesystem.collect();
    mounted.send_if_modified(|known| {
        let changed = *known != all;
        *known = all;
        changed
    });
}
