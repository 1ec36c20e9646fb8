//! Task that follows the mount table: which volumes are in use, and whether the expected mounts exist.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::fsevents::Mounted;
use drivebay_evidence::{
    mounts::{self, Role},
    registry::Source,
};
use drivebay_fs::mounts::is_mount_of;
use drivebay_model::{Mode, Placed, cause::chain};
use drivebay_node::{
    context::NodeContext,
    mounts::{MountTableError, Mounts},
};
use drivebay_sys::{mountinfo::MountEntry, mountwatch::MountWatch};

/// Interval of comparing without a change in the table: a drive may return as another device, or a filesystem become
/// read-only.
const TICK: Duration = Duration::from_secs(10);
/// Number of ticks after which mounts of others are read, too: a directory above them may have been renamed.
const ALL_EVERY: u32 = 6;
/// Delay from the first change until new and removed mounts are read, once for all changes in between: calls update their
/// own changes, and a host with thousands of mounts is not kept busy by each of them.
const REFRESH_AFTER: Duration = Duration::from_millis(100);
/// Delay until changed options of the volumes' mounts are read.
const REREAD_AFTER: Duration = Duration::from_secs(1);

/// True if a mount is of the volume: of its device, or for block a bind of its device's node.
pub fn is_of(mount: &MountEntry, placed: &Placed) -> bool {
    let Some((device, dev)) = placed.used_device() else {
        return false;
    };
    match placed.record.mode {
        Mode::Mount => is_mount_of(mount, dev),
        Mode::Block => mount.fs_type == "devtmpfs" && mount.root == Path::new("/").join(device),
    }
}

/// Follows the mount table until `stop`. `mounted` gets the volumes with a mounted filesystem.
pub async fn run(node: NodeContext, mounted: watch::Sender<Vec<Mounted>>, stop: CancellationToken) {
    let mut table = match MountWatch::new() {
        Ok(watch) => Some(watch),
        Err(error) => {
            tracing::error!(%error, "cannot watch the mount table; polling it instead");
            None
        }
    };
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut snapshots = node.inventory().subscribe();
    let mut ready = false;
    let mut count = 0_u32;
    let mut reread_at: Option<Instant> = None;
    let mut refresh_at: Option<Instant> = None;
    loop {
        let changed = async {
            match &table {
                Some(table) => table.changed().await,
                None => std::future::pending().await,
            }
        };
        let is_refresh_due = refresh_at.is_some();
        let read: Read = tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {
                count = count.wrapping_add(1);
                match count.is_multiple_of(ALL_EVERY) {
                    true => Mounts::reread,
                    false => Mounts::reread_of_volumes,
                }
            }
            () = due(reread_at) => {
                reread_at = None;
                Mounts::reread_of_volumes
            }
            () = due(refresh_at) => Mounts::refresh,
            // The first comparison must not wait for a tick.
            result = snapshots.wait_for(|snapshot| snapshot.ready), if !ready => {
                ready = result.is_ok();
                Mounts::reread
            }
            // Further changes before the refresh cause no wakeup; the kernel's signal is kept.
            () = node.expected().changed(), if !is_refresh_due => {
                refresh_at = Some(Instant::now() + REFRESH_AFTER);
                continue;
            }
            changed = changed, if !is_refresh_due => match changed {
                Ok(()) => {
                    refresh_at = Some(Instant::now() + REFRESH_AFTER);
                    reread_at.get_or_insert_with(|| Instant::now() + REREAD_AFTER);
                    continue;
                }
                Err(error) => {
                    tracing::error!(%error, "mount table watch failed; polling it instead");
                    table = None;
                    Mounts::reread
                }
            },
        };
        // Each of these reads also finds new and removed mounts.
        refresh_at = None;
        check_mounts(&node, &mounted, read);
    }
}

async fn due(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Reads a part of the table or all of it.
type Read = fn(&Mounts) -> Result<u64, MountTableError>;

fn check_mounts(node: &NodeContext, mounted: &watch::Sender<Vec<Mounted>>, read: Read) {
    let expected = node.expected();
    let before = expected.now();
    if let Err(error) = read(node.mounts()) {
        tracing::error!(error = %chain(&error), "cannot read the mount table");
        return;
    }
    let mounts = node.mounts().entries();
    let after = expected.now();
    let snapshot = node.inventory().current();
    if !snapshot.ready {
        return;
    }
    expected.settle(|| node.inventory().current(), is_of);
    let wrong = mounts::judge(&before, &after, &mounts, &snapshot, is_of);
    node.inventory()
        .record_conditions(Source::Mounts, snapshot.volumes.keys().copied(), wrong);

    // Number of the last stage call: after another mount at a path the mount id may be the same.
    let calls: BTreeMap<Uuid, u64> = after
        .values()
        .filter(|place| place.role == Role::Staging)
        .map(|place| (place.volume, place.call))
        .collect();
    let by_dev: HashMap<(u32, u32), &MountEntry> = mounts
        .iter()
        .rev()
        .map(|mount| (mount.dev, &**mount))
        .collect();
    let with_filesystem = snapshot.volumes.values().filter_map(|volume| {
        let (_, dev) = volume.placed.used_device()?;
        let mount = by_dev.get(&dev)?;
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
    mounted.send_if_modified(|current| {
        let changed = *current != all;
        *current = all;
        changed
    });
}
