//! Unmounts, from mountinfo alone: the target is never accessed first, since its filesystem may answer EIO, ENOTCONN, or
//! never.
//!
//! This job calls plain umount2 and waits for it, however long writing back takes; the agent's pool has the deadline. When
//! it passes and there is evidence that the drive is missing or unresponsive, the agent repeats the job with `may_detach`.
//! Then plain umount2 is tried on a thread for `deadline_ms`, and a mount that remains is detached.

use std::{fs, io, path::Path, sync::mpsc, thread, time::Duration};

use super::{
    device::{self, target_error},
    hints,
    jobs::{Device, FsError, Unmount, Unmounted},
    kind,
    staging::mount_info_error,
};
use drivebay_model::{Cause, FsType};
use drivebay_sys::{
    holders, mount,
    mountinfo::{self, MountEntry, MountInfoError},
    path as paths,
};
use drivebay_worker::Context;

/// Limit of mounts at one path that are unmounted.
const MOST: u32 = 1024;

/// Runs an unmount job. Errs with `NotAVolume` at the first mount that is not a volume's; mounts on top of it are unmounted
/// by then.
pub fn unmount(job: &Unmount, context: &mut Context) -> Result<Unmounted, FsError> {
    let path = mountinfo::resolve(&job.path);
    let mut done = Unmounted {
        count: 0,
        detached: false,
    };
    loop {
        let stack = mountinfo::at(&path).map_err(|error| mount_info_error(&job.path, &error))?;
        let Some(top) = stack.last() else {
            break;
        };
        let foreign = |volume: &Device| is_foreign(top, volume);
        if !job.expected.is_empty() && job.expected.iter().all(foreign) {
            return Err(FsError::NotAVolume {
                path: job.path.display().to_string(),
                what: format!("{} ({})", top.source.display(), top.fs_type),
            });
        }
        let could_be_ours = could_be_a_volume(top);
        if !could_be_ours.map_err(|error| mount_info_error(&job.path, &error))? {
            return Err(FsError::NotAVolume {
                path: job.path.display().to_string(),
                what: format!("{} ({})", top.source.display(), top.fs_type),
            });
        }
        if done.count >= MOST {
            return Err(failed(
                job,
                &path,
                io::Error::from_raw_os_error(libc::EBUSY),
            ));
        }
        context.step(&format!("unmounting {}", path.display()));
        match take_away(job, &path, top.id) {
            Ok(detached) => {
                done.count += 1;
                done.detached |= detached;
                if !job.may_detach {
                    flush(top, context);
                }
            }
            // Another process unmounted it meanwhile; check again.
            Err(error)
                if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOENT))
                    && !is_mounted(&path, top.id) => {}
            Err(error) => return Err(failed(job, &path, error)),
        }
    }
    if job.remove {
        paths::remove_empty(&path).map_err(|error| target_error("removing", &job.path, error))?;
    }
    Ok(done)
}

/// Unmounts the top mount; true if it had to be detached, or if its superblock is still being released.
fn take_away(job: &Unmount, path: &Path, id: u64) -> io::Result<bool> {
    if !job.may_detach {
        return mount::unmount(path, false).map(|()| false);
    }
    let (done, wait) = mpsc::channel();
    let target = path.to_owned();
    thread::Builder::new()
        .name("umount".to_owned())
        .spawn(move || {
            let _ = done.send(mount::unmount(&target, false));
        })?;
    match wait.recv_timeout(Duration::from_millis(job.deadline_ms)) {
        Ok(Ok(())) => Ok(false),
        // The kernel removes a mount from the tree before it writes back and waits; then there is nothing left to detach,
        // and the superblock still exists.
        Err(_) if !is_mounted(path, id) => Ok(true),
        Ok(Err(_)) | Err(_) => mount::unmount(path, true).map(|()| true),
    }
}

/// Flushes the drive's cache after the last mount of a filesystem was removed: ext4 and btrfs write last that they are
/// clean, and do not flush that. The unmount itself flushed all data, and unmounting needs nothing from the drive: a failure
/// is only logged.
fn flush(gone: &MountEntry, context: &mut Context) {
    let still_used = || device::kernel_name(gone).is_some_and(|name| superblock_lives(&name));
    if FsType::parse(&gone.fs_type).is_none() || still_used() {
        return;
    }
    context.step("flushing the drive after unmounting");
    if let Err(error) = device::flush_source(gone) {
        tracing::warn!(source = %gone.source.display(), %error, "drive cache flush failed after unmount");
    }
}

fn is_mounted(path: &Path, id: u64) -> bool {
    mountinfo::at(path).map_or(true, |stack| stack.iter().any(|entry| entry.id == id))
}

/// True if a mount is provably of another device. A bind of a device node has the number of devtmpfs, btrfs one of its own:
/// those are identified by name. If sysfs no longer has the device, the drive is missing, and nothing is proven: removing a
/// mount at the given path destroys nothing, and keeping it would block a pod forever. An LV may have returned with another
/// number: its device-mapper uuid decides.
fn is_foreign(entry: &MountEntry, volume: &Device) -> bool {
    let dev = volume.dev;
    if entry.dev == dev {
        return false;
    }
    let is_it = |number: (u32, u32)| {
        let Some(uuid) = &volume.dm_uuid else {
            return false;
        };
        let file = format!("/sys/dev/block/{}:{}/dm/uuid", number.0, number.1);
        fs::read_to_string(file).is_ok_and(|text| text.trim() == uuid)
    };
    let is_gone = |number: (u32, u32)| {
        let device = format!("/sys/dev/block/{}:{}", number.0, number.1);
        !Path::new(&device).exists()
    };
    let named = match entry.fs_type.as_str() {
        fs_type if kind::has_anonymous_device(fs_type) => device::source_number(entry),
        "devtmpfs" | "tmpfs" if entry.root != Path::new("/") => entry
            .root
            .strip_prefix("/")
            .ok()
            .and_then(Path::to_str)
            .and_then(device::number),
        // Numbers with the major 0 are of no device.
        _ => (entry.dev.0 == 0 || !is_gone(entry.dev)).then_some(entry.dev),
    };
    named.is_some_and(|number| number != dev && !is_it(number))
}

/// Paths of the system: a mount there, or of the same device, is never removed at an orchestrator's request.
const SYSTEM: [&str; 9] = [
    "/",
    "/boot",
    "/boot/efi",
    "/etc",
    "/home",
    "/root",
    "/usr",
    "/var",
    "/var/lib",
];

/// True if the path belongs to the system, so that no volume may be mounted there: it would not be unmounted again.
pub fn is_system_place(path: &Path) -> bool {
    SYSTEM.iter().any(|place| path == Path::new(place))
}

/// True if a mount may be of a volume: one of Drivebay's filesystems on a device that has no system path, or a device node
/// bound onto a file. Distinguishes /proc and the root filesystem from volumes even if nothing else is known about the
/// volume.
fn could_be_a_volume(entry: &MountEntry) -> Result<bool, MountInfoError> {
    if FsType::parse(&entry.fs_type).is_none() {
        let is_node = matches!(entry.fs_type.as_str(), "devtmpfs" | "tmpfs");
        return Ok(is_node && entry.root != Path::new("/"));
    }
    for place in SYSTEM {
        let system = mountinfo::at(Path::new(place))?;
        if system.iter().any(|system| system.dev == entry.dev) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn failed(job: &Unmount, path: &Path, error: io::Error) -> FsError {
    let holders = if error.raw_os_error() == Some(libc::EBUSY) {
        holders::of_path(path)
    } else {
        Vec::new()
    };
    FsError::Unmount {
        path: job.path.display().to_string(),
        hint: hints::unmount(error.raw_os_error(), &holders),
        source: Cause::from(error),
    }
}

/// True if the kernel still has a superblock for this device, mounted visibly or not: after a detach, the volume is neither
/// deleted nor staged again while it does. Reads sysfs only.
pub fn superblock_lives(device: &str) -> bool {
    let name = device.replace('/', "!");
    kind::all().any(|kind| kind.has_superblock(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_provably_foreign_mount_is_foreign() {
        let entry = |row: &str| mountinfo::parse(row.as_bytes()).unwrap().remove(0);
        for (row, foreign) in [
            ("1 2 8:1 / /s rw - xfs /dev/sda1 rw", false),
            // The drive is missing: it may be the former device of the volume.
            ("1 2 8:1048575 / /s rw - xfs /dev/sda1 rw", false),
            ("1 2 0:50 / /s rw - nfs server:/x rw", true),
            ("1 2 0:50 / /s rw - tmpfs tmpfs rw", true),
            ("1 2 0:50 / /s rw - btrfs /dev/no-such-device rw", false),
            ("1 2 0:5 /no-such-device /s rw - devtmpfs udev rw", false),
        ] {
            let volume = Device {
                name: "sda1".into(),
                dev: (8, 1),
                dm_uuid: None,
            };
            assert_eq!(is_foreign(&entry(row), &volume), foreign, "{row}");
        }
    }
}
