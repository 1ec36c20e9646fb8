//! Reads the usage of a volume: one statx of the path, then one open, statx, readdir and statfs of the directory there; for
//! block, sysfs. Starts no process, and reads mountinfo only for btrfs and after errors.

use std::{io, path::Path};

use super::{
    device,
    jobs::{FsError, Stats, Usage},
    mounts,
    staging::mount_info_error,
};
use drivebay_sys::{
    mountinfo::{self, MountEntry},
    path::{self, Directory, Facts, Kind, Space},
};

/// Runs a stats job. Errs with `NotHere` if the path is not the volume's. A filesystem that cannot be read is no error: see
/// [Usage::unreadable].
pub fn usage(job: &Stats) -> Result<Usage, FsError> {
    if job.block { block(job) } else { mounted(job) }
}

fn not_here(job: &Stats, why: String) -> FsError {
    FsError::NotHere {
        path: job.path.display().to_string(),
        why,
    }
}

/// Error of a path that the caller gave, which is no evidence about the volume.
fn not_found(job: &Stats, error: &io::Error) -> FsError {
    match error.kind() {
        io::ErrorKind::NotFound => not_here(job, "the path does not exist".to_owned()),
        _ => not_here(job, error.to_string()),
    }
}

/// True if the path exists and does not answer, as on a missing drive: the volume is unhealthy, but still there.
fn is_unreadable(error: &io::Error) -> bool {
    !matches!(
        error.raw_os_error(),
        Some(libc::ENOENT | libc::ENOTDIR | libc::EACCES | libc::ELOOP | libc::ENAMETOOLONG)
    )
}

fn mounted(job: &Stats) -> Result<Usage, FsError> {
    let facts = match path::facts(&job.path) {
        Ok(facts) => facts,
        Err(error) if is_unreadable(&error) => return without_directory(job, None, &error),
        Err(error) => return Err(not_found(job, &error)),
    };
    if !facts.mount_root {
        return Err(not_here(job, "nothing is mounted there".to_owned()));
    }
    if facts.dev != job.device.dev && !is_btrfs_of(job, &job.path, &facts)? {
        return Err(not_here(
            job,
            format!(
                "what is mounted there is device {}:{}",
                facts.dev.0, facts.dev.1
            ),
        ));
    }
    let mut directory = match Directory::open(&job.path) {
        Ok(directory) => directory,
        // The root of a mount exists and is a directory, so that it was unmounted meanwhile.
        Err(error) if is_absent(&error) => return Err(unmounted(job)),
        Err(error) => return without_directory(job, Some(facts.mount_id), &error),
    };
    match directory.facts() {
        Ok(now) if now.mount_root && (now.mount_id, now.dev) == (facts.mount_id, facts.dev) => {}
        // The directory below the mount, or another mount: no evidence about the volume.
        Ok(_) => return Err(unmounted(job)),
        Err(error) => return without_directory(job, Some(facts.mount_id), &error),
    }
    let unread = directory.read_first().err();
    let (space, failed) = split(directory.space());
    Ok(answer(space, unread.or(failed).as_ref().map(code)))
}

/// Returns the usage of a path that cannot be opened or read. The kernel's mount list, which accesses no filesystem, must
/// have the volume there; errs with `NotHere` otherwise.
fn without_directory(job: &Stats, mount: Option<u64>, error: &io::Error) -> Result<Usage, FsError> {
    if !top_at(&job.path)?.is_some_and(|top| mounts::is_mount_of(&top, job.device.dev)) {
        return Err(not_here(
            job,
            "it does not respond, and the volume is not mounted".to_owned(),
        ));
    }
    let (space, _) = split(path::space(&job.path));
    if is_another_now(&job.path, mount) {
        return Err(unmounted(job));
    }
    Ok(answer(space, Some(code(error))))
}

fn unmounted(job: &Stats) -> FsError {
    not_here(job, "it was unmounted meanwhile".to_owned())
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP)
    )
}

fn split(space: io::Result<Space>) -> (Option<Space>, Option<io::Error>) {
    match space {
        Ok(space) => (Some(space), None),
        Err(error) => (None, Some(error)),
    }
}

fn code(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// True if another mount, or none, is at the path now. `mount`: id of the one before; None if it did not answer then.
fn is_another_now(path: &Path, mount: Option<u64>) -> bool {
    match path::facts(path) {
        Ok(now) => !now.mount_root || mount.is_some_and(|mount| mount != now.mount_id),
        Err(error) => !is_unreadable(&error),
    }
}

fn answer(space: Option<Space>, unreadable: Option<i32>) -> Usage {
    let none = Usage {
        total_bytes: 0,
        available_bytes: 0,
        used_bytes: 0,
        inodes: None,
        read_only: false,
        unreadable,
    };
    space.map_or(none.clone(), |space| Usage {
        total_bytes: space.total,
        available_bytes: space.available,
        used_bytes: space.total.saturating_sub(space.free),
        inodes: (space.inodes > 0).then(|| {
            (
                space.inodes,
                space.inodes_free,
                space.inodes.saturating_sub(space.inodes_free),
            )
        }),
        read_only: space.read_only,
        ..none
    })
}

/// True if the mount is of the volume's btrfs, which has a device number of its own: found by id and compared by source.
fn is_btrfs_of(job: &Stats, path: &Path, facts: &Facts) -> Result<bool, FsError> {
    let top = top_at(path)?;
    Ok(
        top.is_some_and(|top| {
            top.id == facts.mount_id && mounts::is_mount_of(&top, job.device.dev)
        }),
    )
}

fn top_at(path: &Path) -> Result<Option<MountEntry>, FsError> {
    let mut stack =
        mountinfo::at(&mountinfo::resolve(path)).map_err(|error| mount_info_error(path, &error))?;
    Ok(stack.pop())
}

fn block(job: &Stats) -> Result<Usage, FsError> {
    match path::facts(&job.path) {
        Ok(Facts {
            kind: Kind::Block,
            rdev,
            ..
        }) if rdev == job.device.dev => {}
        Ok(Facts {
            kind: Kind::Block,
            rdev,
            ..
        }) => {
            return Err(not_here(
                job,
                format!("the node there is device {}:{}", rdev.0, rdev.1),
            ));
        }
        Ok(_) => return Err(not_here(job, "it is not a block device".to_owned())),
        Err(error) => return Err(not_found(job, &error)),
    }
    let total_bytes = device::bytes(&job.device)?;
    Ok(Usage {
        total_bytes,
        ..answer(None, None)
    })
}
