//! Filesystems tell of their own errors: the task that listens (fanotify), and whose an event is.
//!
//! Only ext4 does so before Linux 7.0; a mark on another filesystem succeeds and proves nothing (linux.md, "Kernel
//! error signals"). Everything else is heard as well without it, later or less surely.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    evidence::{attribute::Subject, kmsg::Kind, now},
    model::{DriveId, RecordState},
    sys::{
        fanotify::{Event, FsErrors, FsId},
        offload::offload,
        statefile,
    },
    volumes::Volumes,
};

/// A mark is set in microseconds, and waits for no drive.
const MARK_DEADLINE: Duration = Duration::from_secs(5);

/// A volume with a filesystem that is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    /// The volume.
    pub volume: Uuid,
    /// Its drive.
    pub drive: DriveId,
    /// Device number of its filesystem.
    pub dev: (u32, u32),
    /// Its life, which names the filesystem's UUID.
    pub record: RecordState,
    /// Filesystem type, as the kernel says it.
    pub fs_type: String,
    /// One of its mount points.
    pub path: PathBuf,
    /// Id of that mount.
    pub mount: u64,
    /// Which call staged it; 0 when that is not known.
    pub call: u64,
    /// False: its drive hangs.
    pub answers: bool,
}

/// Whether filesystems of this type tell of their errors, by the kernel's release. Pure.
fn tells(fs_type: &str, release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next().and_then(|text| text.parse::<u32>().ok());
    let version = (number().unwrap_or(0), number().unwrap_or(0));
    match fs_type {
        "ext4" => version >= (5, 16),
        "xfs" => version >= (7, 0),
        _ => false,
    }
}

/// The id that statfs gives of a volume's filesystem, from what is known of it: nothing has to be asked. Pure.
///
/// ext4 folds its UUID (fs/ext4/super.c, `ext4_statfs`), XFS has its device number (fs/xfs/xfs_super.c).
fn fsid(mounted: &Mounted) -> Option<FsId> {
    match (mounted.fs_type.as_str(), &mounted.record) {
        ("ext4", RecordState::Fs { fs_uuid, .. }) => {
            let [a, b] = fs_uuid.as_bytes().as_chunks::<8>().0 else {
                return None;
            };
            let folded = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
            Some([folded as u32, (folded >> 32) as u32])
        }
        ("xfs", _) => {
            let (major, minor) = mounted.dev;
            // new_encode_dev in include/linux/kdev_t.h.
            Some([(minor & 0xff) | (major << 8) | ((minor & !0xff) << 12), 0])
        }
        _ => None,
    }
}

/// A superblock as far as it can be told from another: a filesystem mounted anew has lost its mark.
type Superblock = (Uuid, (u32, u32), u64, u64);

fn superblock(mounted: &Mounted) -> Superblock {
    (mounted.volume, mounted.dev, mounted.mount, mounted.call)
}

/// Listens until `stop`. Without the right, or on a kernel without it, this is said once.
pub async fn run(
    volumes: Volumes,
    mut mounted: watch::Receiver<Vec<Mounted>>,
    stop: CancellationToken,
) {
    let release = statefile::read_text(std::path::Path::new("/proc/sys/kernel/osrelease"), 256);
    let release = release.unwrap_or_default();
    let group = match FsErrors::new() {
        Ok(group) => group,
        Err(error) => {
            tracing::warn!(%error, "cannot monitor filesystem error events (requires Linux 5.16 and CAP_SYS_ADMIN); kernel log and error counters remain in use");
            return;
        }
    };
    let mut owners: BTreeMap<FsId, (Uuid, DriveId)> = BTreeMap::new();
    let mut marked: BTreeSet<Superblock> = BTreeSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            changed = mounted.changed() => {
                if changed.is_err() {
                    return;
                }
                let now: Vec<Mounted> = mounted
                    .borrow_and_update()
                    .iter()
                    .filter(|mounted| tells(&mounted.fs_type, &release))
                    .cloned()
                    .collect();
                owners = now
                    .iter()
                    .filter_map(|one| Some((fsid(one)?, (one.volume, one.drive.clone()))))
                    .collect();
                mark(&group, &mut marked, now).await;
            }
            told = group.next() => match told {
                Ok(events) => events.into_iter().for_each(|event| hear(&volumes, &owners, event)),
                Err(error) => {
                    tracing::error!(%error, "filesystem error event reader failed; kernel log and error counters remain in use");
                    return;
                }
            },
        }
    }
}

/// Marks what is not marked yet. What fails is tried again with the next change.
async fn mark(group: &FsErrors, marked: &mut BTreeSet<Superblock>, now: Vec<Mounted>) {
    let here: BTreeSet<Superblock> = now.iter().map(superblock).collect();
    marked.retain(|known| here.contains(known));
    let new: Vec<(Superblock, PathBuf)> = now
        .into_iter()
        .filter(|one| one.answers)
        .map(|one| (superblock(&one), one.path))
        .filter(|(superblock, _)| !marked.contains(superblock))
        .collect();
    if new.is_empty() {
        return;
    }
    let marker = match group.marker() {
        Ok(marker) => marker,
        Err(error) => {
            tracing::warn!(%error, "cannot monitor a filesystem's error events; will retry");
            return;
        }
    };
    let tried: Vec<Superblock> = new.iter().map(|(superblock, _)| *superblock).collect();
    let set = offload("marks", MARK_DEADLINE, move || {
        let set = |(superblock, path): (Superblock, PathBuf)| (superblock, marker.mark(&path));
        new.into_iter().map(set).collect::<Vec<_>>()
    });
    match set.await {
        Ok(set) => {
            for ((volume, ..), error) in set
                .iter()
                .filter_map(|(superblock, set)| Some((*superblock, set.as_ref().err()?)))
            {
                tracing::warn!(%volume, %error, "cannot monitor the volume's filesystem error events");
            }
            marked.extend(
                set.iter()
                    .filter(|(_, set)| set.is_ok())
                    .map(|(superblock, _)| *superblock),
            );
        }
        // Not again: each try that hangs would leave a thread behind.
        Err(error) => {
            tracing::warn!(%error, volumes = ?tried.iter().map(|one| one.0).collect::<Vec<_>>(), "filesystem error events not monitored until the volumes are mounted again");
            marked.extend(tried);
        }
    }
}

fn hear(volumes: &Volumes, owners: &BTreeMap<FsId, (Uuid, DriveId)>, event: Event) {
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
    let inventory = volumes.inventory();
    if inventory.health(|book| book.is_fresh(&subject, Kind::FilesystemError, now())) {
        return;
    }
    tracing::warn!(%volume, %drive, error = %std::io::Error::from_raw_os_error(errno), "filesystem error event");
    inventory.update(|known| known.health.note(&subject, Kind::FilesystemError, now()));
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::model::FsType;

    #[test]
    fn which_filesystems_tell_depends_on_the_kernel() {
        for (fs_type, release, expected) in [
            ("ext4", "5.15.0-105-generic", false),
            ("ext4", "5.16.0", true),
            ("ext4", "6.1.0-18-amd64", true),
            ("ext4", "10.0", true),
            ("xfs", "6.18.44", false),
            ("xfs", "7.0.0-rc1", true),
            ("xfs", "7-test", true),
            ("btrfs", "7.0.0", false),
            ("ext4", "", false),
            ("ext4", "none", false),
        ] {
            assert_eq!(tells(fs_type, release), expected, "{fs_type} on {release}");
        }
    }

    #[test]
    fn a_filesystems_id_is_known_without_asking() {
        let fs_uuid = Uuid::parse_str("00010203-0405-0607-0810-203040506070").unwrap();
        let mut mounted = Mounted {
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
        };
        assert_eq!(fsid(&mounted), Some([0x3322_1108, 0x7766_5544]));
        mounted.fs_type = "xfs".into();
        assert_eq!(fsid(&mounted), Some([0x1231_0345, 0]));
        mounted.fs_type = "btrfs".into();
        assert_eq!(fsid(&mounted), None);
    }
}
