//! Executes NodeExpandVolume: grows the filesystem to its partition, which has its new size already.

use super::{
    backend::StageBackend,
    crypt, device, grow,
    jobs::{FsError, GrowFs, Grown},
    kind, mounts,
    staging::mount_info_error,
};
use drivebay_model::FsType;
use drivebay_sys::mountinfo::{self, MountEntry};
use drivebay_worker::Context;

/// Runs a grow job. Errs with `NotHere` if the volume is not mounted at the path, and with `ReadOnly` if the filesystem
/// would have to grow and has no writable mount.
pub(super) fn grow(
    backend: &dyn StageBackend,
    job: &GrowFs,
    context: &mut Context,
) -> Result<Grown, FsError> {
    if let Some(encryption) = job.encryption {
        crypt::grow(backend, encryption, &job.device.name, context)?;
    }
    let device_bytes = device::bytes(&job.device)?;
    if job.block {
        return Ok(Grown {
            device_bytes,
            changed: false,
        });
    }
    context.step("looking at the mounts");
    let failed = |error| mount_info_error(&job.path, &error);
    let stack = mountinfo::at(&mountinfo::resolve(&job.path)).map_err(failed)?;
    let not_here = |why: &str| FsError::NotHere {
        path: job.path.display().to_string(),
        why: why.to_owned(),
    };
    let here = stack
        .last()
        .ok_or_else(|| not_here("nothing is mounted there"))?;
    if !mounts::is_mount_of(here, job.device.dev) {
        return Err(not_here("another device is mounted there"));
    }
    let fs_type = FsType::parse(&here.fs_type)
        .ok_or_else(|| not_here("an unknown filesystem is mounted there"))?;
    let is_writable = |entry: &MountEntry| !entry.read_only() && !entry.super_read_only();
    // The tools of XFS and btrfs refuse a read-only mount; any writable one of the volume will do.
    let is_writable_twin = |entry: &&MountEntry| {
        entry.root == here.root && entry.dev == here.dev && is_writable(entry)
    };
    let others = match is_writable(here) {
        true => Vec::new(),
        false => mountinfo::read().map_err(failed)?,
    };
    let twin = others.iter().find(is_writable_twin);
    let path = twin.map_or(&here.mount_point, |entry| &entry.mount_point);
    if !is_writable(here) && twin.is_none() {
        let node = device::node(&job.device.name);
        return match kind::of(fs_type).is_smaller(path, &node, device_bytes)? {
            true => Err(FsError::ReadOnly {
                path: job.path.display().to_string(),
            }),
            false => Ok(Grown {
                device_bytes,
                changed: false,
            }),
        };
    }
    let changed = grow::grow(
        backend,
        fs_type,
        path,
        (&job.device.name, device_bytes),
        context,
    )?;
    Ok(Grown {
        device_bytes,
        changed,
    })
}
