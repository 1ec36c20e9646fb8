//! Task that listens to error events of filesystems (fanotify), and maps them to volumes.
//!
//! Only ext4 reports them before Linux 7.0; a mark on another filesystem succeeds and proves nothing (linux.md, "Kernel
//! error signals"). Other errors are found without them, later or less surely.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use procfs::KernelVersion;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use drivebay_evidence::{attribute::Subject, kmsg::Kind, now};
use drivebay_fs::kind::{self, ErrorEvents};
use drivebay_model::{DriveId, FsType, RecordState};
use drivebay_node::volumes::Volumes;
use drivebay_sys::{
    fanotify::{Event, FsErrors, FsId},
    offload::offload,
};

/// Limit of setting marks, each of which takes microseconds and waits for no drive.
const MARK_DEADLINE: Duration = Duration::from_secs(5);

/// Interval of retrying to mark a filesystem that was being unmounted.
const AGAIN: Duration = Duration::from_secs(1);

/// Volume with a mounted filesystem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    pub volume: Uuid,
    pub drive: DriveId,
    /// Device number of the filesystem.
    pub dev: (u32, u32),
    /// State in the volume's record, which has the filesystem's UUID.
    pub record: RecordState,
    /// Filesystem type in the mount table.
    pub fs_type: String,
    /// One of its mount points.
    pub path: PathBuf,
    /// Id of the mount at `path`.
    pub mount: u64,
    /// Number of the call that staged it; 0 if that is not known.
    pub call: u64,
    /// False if its drive does not respond.
    pub answers: bool,
}

fn error_events(fs_type: &str) -> Option<&'static ErrorEvents> {
    kind::of(FsType::parse(fs_type)?)
        .facts()
        .error_events
        .as_ref()
}

/// True if filesystems of this type report their errors with this kernel version. Pure.
fn reports_errors(fs_type: &str, kernel: KernelVersion) -> bool {
    error_events(fs_type).is_some_and(|events| {
        let (major, minor) = events.since;
        kernel >= KernelVersion::new(major, minor, 0)
    })
}

/// Computes the id that statfs reports for a volume's filesystem, without accessing it. Pure.
fn fsid(mounted: &Mounted) -> Option<FsId> {
    let fs_uuid = match mounted.record {
        RecordState::Fs { fs_uuid, .. } => Some(fs_uuid),
        _ => None,
    };
    (error_events(&mounted.fs_type)?.fsid)(fs_uuid, mounted.dev)
}

/// Identity of a superblock as far as the mount table has it: a filesystem that is unmounted and mounted again has lost its mark.
type Superblock = (Uuid, (u32, u32), u64);

fn superblock(mounted: &Mounted) -> Superblock {
    (mounted.volume, mounted.dev, mounted.mount)
}

/// Marked superblocks with the number of the call that staged each, 0 while none is known: mount ids are reused, call
/// numbers are not.
#[derive(Debug, Default)]
struct Marked(BTreeMap<Superblock, u64>);

impl Marked {
    /// Removes superblocks that are no longer mounted, and adds call numbers that were unknown before.
    fn follow(&mut self, now: &[Mounted]) {
        let here: BTreeMap<Superblock, u64> =
            now.iter().map(|one| (superblock(one), one.call)).collect();
        self.0.retain(|superblock, marked| {
            let call = here.get(superblock);
            if *marked == 0 {
                *marked = call.copied().unwrap_or(0);
            }
            call.is_some()
        });
    }

    /// True if the superblock is marked. Without a call number (before the call that staged it ends, and once it is being
    /// unmounted) it counts as the same.
    fn has(&self, mounted: &Mounted) -> bool {
        let marked = self.0.get(&superblock(mounted));
        marked.is_some_and(|call| mounted.call == 0 || *call == mounted.call)
    }
}

/// Listens until `stop`. Logs a warning and returns if the kernel or missing rights do not allow it.
pub async fn run(
    volumes: Volumes,
    mut mounted: watch::Receiver<Vec<Mounted>>,
    stop: CancellationToken,
) {
    // If the version is unknown, marks are set even where they may prove nothing.
    let kernel = KernelVersion::current().unwrap_or(KernelVersion::new(u8::MAX, 0, 0));
    let group = match FsErrors::new() {
        Ok(group) => group,
        Err(error) => {
            tracing::warn!(%error, "cannot monitor filesystem error events (requires Linux 5.16 and CAP_SYS_ADMIN); kernel log and error counters remain in use");
            return;
        }
    };
    let mut owners: BTreeMap<FsId, (Uuid, DriveId)> = BTreeMap::new();
    let mut marked = Marked::default();
    let mut waiting: Vec<Mounted> = Vec::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(AGAIN), if !waiting.is_empty() => {
                waiting = mark(&volumes, &group, &mut marked, waiting).await;
            }
            changed = mounted.changed() => {
                if changed.is_err() {
                    return;
                }
                let now: Vec<Mounted> = mounted
                    .borrow_and_update()
                    .iter()
                    .filter(|mounted| reports_errors(&mounted.fs_type, kernel))
                    .cloned()
                    .collect();
                owners = now
                    .iter()
                    .filter_map(|one| Some((fsid(one)?, (one.volume, one.drive.clone()))))
                    .collect();
                marked.follow(&now);
                waiting = mark(&volumes, &group, &mut marked, now).await;
            }
            result = group.next() => match result {
                Ok(events) => events.into_iter().for_each(|event| handle(&volumes, &owners, event)),
                Err(error) => {
                    tracing::error!(%error, "filesystem error event reader failed; kernel log and error counters remain in use");
                    return;
                }
            },
        }
    }
}

/// Marks new superblocks. A failed mark is retried at the next change of the mount table. Returns the volumes that are being unmounted:
/// setting a mark opens the mount point, and unmounting it at that moment fails as busy.
async fn mark(
    volumes: &Volumes,
    group: &FsErrors,
    marked: &mut Marked,
    now: Vec<Mounted>,
) -> Vec<Mounted> {
    let (mut new, mut turns, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
    for one in now {
        if !one.answers || marked.has(&one) {
            continue;
        }
        match volumes.try_permit(one.volume) {
            Some(turn) => {
                turns.push(turn);
                new.push(one);
            }
            None => waiting.push(one),
        }
    }
    if new.is_empty() {
        return waiting;
    }
    let marker = match group.marker() {
        Ok(marker) => marker,
        Err(error) => {
            tracing::warn!(%error, "cannot monitor a filesystem's error events; will retry");
            return waiting;
        }
    };
    let paths: Vec<PathBuf> = new.iter().map(|one| one.path.clone()).collect();
    let set = offload("marks", MARK_DEADLINE, move || {
        let set = paths.iter().map(|path| marker.mark(path));
        set.collect::<Vec<_>>()
    });
    match set.await {
        Ok(set) => {
            for (one, set) in new.iter().zip(set) {
                match set {
                    Ok(()) => _ = marked.0.insert(superblock(one), one.call),
                    Err(error) => {
                        tracing::warn!(volume = %one.volume, %error, "cannot monitor the volume's filesystem error events");
                    }
                }
            }
        }
        // Not retried: each blocked attempt would leave a thread behind.
        Err(error) => {
            tracing::warn!(%error, volumes = ?new.iter().map(|one| one.volume).collect::<Vec<_>>(), "filesystem error events not monitored until the volumes are mounted again");
            let tried = new.iter().map(|one| (superblock(one), one.call));
            marked.0.extend(tried);
        }
    }
    waiting
}

fn handle(volumes: &Volumes, owners: &BTreeMap<FsId, (Uuid, DriveId)>, event: Event) {
    let (fsid, errno) = match event {
        Event::Error { fsid, errno } => (fsid, errno),
        Event::Overflow => {
            tracing::warn!("filesystem error event queue overflowed");
            return;
        }
    };
    let Some((volume, drive)) = owners.get(&fsid) else {
        tracing::debug!(?fsid, errno, "filesystem error event of no volume");
        return;
    };
    let subject = Subject {
        drive: drive.clone(),
        volume: Some(*volume),
    };
    let inventory = volumes.node().inventory();
    if inventory.health(|registry| registry.is_fresh(&subject, Kind::FilesystemError, now())) {
        return;
    }
    tracing::warn!(%volume, %drive, error = %std::io::Error::from_raw_os_error(errno), "filesystem error event");
    inventory.update(|state| state.health.note(&subject, Kind::FilesystemError, now()));
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn which_filesystems_report_errors_depends_on_the_kernel() {
        for (fs_type, release, expected) in [
            ("ext4", "5.15.0-105-generic", false),
            ("ext4", "5.16.0", true),
            ("ext4", "6.1.0-18-amd64", true),
            ("ext4", "10.0.1", true),
            ("xfs", "6.18.44", false),
            ("xfs", "7.0.0-rc1", true),
            ("btrfs", "7.0.0", false),
        ] {
            let kernel = release.parse().unwrap();
            assert_eq!(
                reports_errors(fs_type, kernel),
                expected,
                "{fs_type} on {release}"
            );
        }
    }

    #[test]
    fn a_filesystem_stays_marked_until_it_is_mounted_anew() {
        let staged = |call| Mounted { call, ..mounted() };
        let mut marked = Marked::default();
        assert!(!marked.has(&staged(0)));
        marked.0.insert(superblock(&staged(0)), 0);
        // The call that staged it ends; then it is being unmounted.
        for call in [0, 7, 7, 0] {
            marked.follow(&[staged(call)]);
            assert!(marked.has(&staged(call)), "call {call}");
        }
        // Staged again, with the same mount id.
        assert!(!marked.has(&staged(8)));
        marked.follow(&[]);
        assert!(!marked.has(&staged(0)));
    }

    fn mounted() -> Mounted {
        let fs_uuid = Uuid::from_u128(0x0001_0203_0405_0607_0810_2030_4050_6070);
        Mounted {
            volume: Uuid::nil(),
            drive: DriveId("d".into()),
            dev: (259, 0x12345),
            record: RecordState::Fs {
                fs_type: FsType::Ext4,
                fs_uuid,
                mounted: true,
            },
            fs_type: "ext4".into(),
            path: "/m".into(),
            mount: 1,
            call: 0,
            answers: true,
        }
    }

    #[test]
    fn a_filesystems_id_is_known_without_a_query() {
        let mut mounted = mounted();
        assert_eq!(fsid(&mounted), Some([0x3322_1108, 0x7766_5544]));
        mounted.fs_type = "xfs".into();
        assert_eq!(fsid(&mounted), Some([0x1231_0345, 0]));
        mounted.fs_type = "btrfs".into();
        assert_eq!(fsid(&mounted), None);
    }
}
