//! Publishes a volume: binds the staged mount, or the partition's device node.

use std::{os::fd::AsFd, path::Path};

use super::{
    device::{self, io_error, target_error},
    jobs::{Device, FsError, Publish, Published},
    mounts,
    options::parse_mount_flags,
    stage::{differ, options_differ},
    staging::mount_info_error,
};
use drivebay_model::Cause;
use drivebay_sys::{
    mount::DetachedMount,
    mountinfo::{self, MountEntry},
    path::{self, Kind, TargetError},
};
use drivebay_worker::Context;

/// Runs a publish job; does nothing if the volume is published there already. Errs with `Conflict` if another mount is at
/// the target, or this one with other options.
pub fn publish(job: &Publish, context: &mut Context) -> Result<Published, FsError> {
    context.step("looking at the mounts");
    let target = at(&job.target)?;
    let device = device::of(&job.drive, &job.placed)?;
    match &job.staging_path {
        Some(staging) => publish_mount(job, &device, staging, target.last(), context),
        None => publish_block(job, &device, target.last(), context),
    }
}

fn at(path: &Path) -> Result<Vec<MountEntry>, FsError> {
    mountinfo::at(&mountinfo::resolve(path)).map_err(|error| mount_info_error(path, &error))
}

fn publish_mount(
    job: &Publish,
    device: &Device,
    staging: &Path,
    target: Option<&MountEntry>,
    context: &mut Context,
) -> Result<Published, FsError> {
    let staged = at(staging)?
        .pop()
        .filter(|entry| mounts::is_mount_of(entry, device.dev) && entry.root == Path::new("/"))
        .ok_or_else(|| FsError::NotStaged {
            uuid: job.uuid,
            path: staging.display().to_string(),
        })?;
    let all: Vec<String> = job.options.iter().chain(&job.flags).cloned().collect();
    let flags = parse_mount_flags(&all)?;
    let read_only = job.read_only || flags.read_only;
    // A request without flags accepts the options of the staged mount.
    let named = !job.flags.is_empty();
    if let Some(top) = target {
        if top.dev != staged.dev || top.root != staged.root {
            return Err(conflict(
                job,
                format!("from {} ({})", top.source.display(), top.fs_type),
            ));
        }
        let before = job.published_with.as_ref();
        let how = before
            .and_then(|before| differ(before, &flags.all()))
            .or_else(|| options_differ(top, &flags.of_mount(), &[], None).filter(|_| named));
        return match how {
            Some(how) => Err(conflict(
                job,
                format!("{how}; unpublish it first to change them"),
            )),
            None => same_access(job, top, read_only),
        };
    }
    // A bind has the options of the mount that it is cloned from.
    let (of_mount, of_filesystem) = (flags.of_mount(), flags.of_filesystem());
    let before = job.staged_with.as_deref();
    let how = options_differ(&staged, &of_mount, &of_filesystem, before).filter(|_| named);
    let unwritable =
        (staged.read_only() && !read_only).then(|| "read-only where writing was asked".to_owned());
    if let Some(how) = how.or(unwritable) {
        return Err(FsError::StagedOtherwise {
            uuid: job.uuid,
            path: staging.display().to_string(),
            how,
        });
    }
    let expected = path::facts(staging).map_err(|error| io_error("looking at", staging, error))?;
    attach(
        job,
        device,
        staging,
        read_only,
        path::make_directory,
        context,
        |facts| {
            // btrfs has subvolume numbers here, which mountinfo does not show: the staging path itself is compared.
            facts.dev == expected.dev && facts.kind == Kind::Directory
        },
    )
}

/// Binds the device node.
///
/// A read-only mount does not stop a process from opening a device node on it for writing (tried on Linux 6.18), and making
/// the device itself read-only would do so for every pod of the volume. The container runtime prevents writing: the kubelet
/// requests the device with read permission only. The bind is read-only all the same, because it records the request: this
/// distinguishes a repeated call from one that contradicts it.
///
/// The device stays open from here on. Opening the node, maybe days later, opens the device that has its number then, and
/// all drives share the numbers of most partitions (all of NVMe, those beyond the 15th of others): whenever the kernel reads
/// a table again, which udevd triggers after a writer has closed the drive, it releases the numbers of partitions that are
/// not open, and the next drive may get them.
fn publish_block(
    job: &Publish,
    device: &Device,
    target: Option<&MountEntry>,
    context: &mut Context,
) -> Result<Published, FsError> {
    // Errs if name and number belong to another device by now.
    context.keep(device::hold(&job.drive, &job.placed)?);
    let dev = device.dev;
    if let Some(top) = target {
        // statx of a device node asks devtmpfs, not the drive.
        return match path::facts(&job.target) {
            Ok(facts) if facts.kind == Kind::Block && facts.rdev == dev => {
                same_access(job, top, job.read_only)
            }
            Ok(_) => Err(conflict(
                job,
                format!("from {}{}", top.source.display(), top.root.display()),
            )),
            Err(error) => Err(io_error("looking at", &job.target, error)),
        };
    }
    attach(
        job,
        device,
        &device::node(&device.name),
        job.read_only,
        path::make_file,
        context,
        |facts| facts.kind == Kind::Block && facts.rdev == dev,
    )
}

/// Clones the mount, verifies that the clone is the right one, makes it read-only if requested, creates the target, and
/// attaches the clone there. Removes a created target if attaching fails.
fn attach(
    job: &Publish,
    device: &Device,
    source: &Path,
    read_only: bool,
    make_target: impl Fn(&Path) -> Result<bool, TargetError>,
    context: &mut Context,
    is_right: impl Fn(&path::Facts) -> bool,
) -> Result<Published, FsError> {
    context.step("binding");
    let failed = |error: std::io::Error| {
        let hint = match error.raw_os_error() {
            Some(libc::ENOSYS) => {
                "Linux 5.12 or later is needed (open_tree, mount_setattr, move_mount)".to_owned()
            }
            Some(libc::ENOSPC) => {
                "this mount namespace has as many mounts as fs.mount-max allows".to_owned()
            }
            Some(libc::EPERM | libc::EACCES) => {
                "not permitted; the agent must be root with CAP_SYS_ADMIN".to_owned()
            }
            _ => "see dmesg".to_owned(),
        };
        FsError::Mount {
            device: device.name.as_str().into(),
            path: job.target.display().to_string(),
            has_options: false,
            hint: hint.into(),
            damage: None,
            source: Cause::from(error),
        }
    };
    let tree = DetachedMount::clone_of(source).map_err(&failed)?;
    let facts = path::facts_of(&tree).map_err(|error| io_error("looking at", source, error))?;
    if !is_right(&facts) {
        return Err(FsError::Unexpected {
            uuid: job.uuid,
            device: device.name.clone(),
            found: format!("{facts:?} at {}", source.display()),
            expected: format!("device {}:{}", device.dev.0, device.dev.1),
        });
    }
    if read_only {
        tree.set_read_only().map_err(&failed)?;
    }
    let made = make_target(&job.target)
        .map_err(|error| target_error("publishing at", &job.target, error))?;
    // A mount keeps its id when it is attached.
    let mount = mountinfo::unique_id(tree.as_fd());
    if let Err(error) = tree.attach(&job.target) {
        if made && let Err(error) = path::remove_empty(&job.target) {
            tracing::error!(path = %job.target.display(), %error, "cannot remove the target of a failed publish");
        }
        return Err(failed(error));
    }
    Ok(Published {
        changed: true,
        mount,
    })
}

/// Accepts the present mount if it is read-only exactly if that is requested; errs with `Conflict` otherwise.
fn same_access(job: &Publish, top: &MountEntry, read_only: bool) -> Result<Published, FsError> {
    match (top.read_only(), read_only) {
        (false, true) => Err(conflict(
            job,
            "writable where read-only was asked".to_owned(),
        )),
        (true, false) => Err(conflict(
            job,
            "read-only where writing was asked".to_owned(),
        )),
        _ => Ok(Published {
            changed: false,
            mount: None,
        }),
    }
}

fn conflict(job: &Publish, how: String) -> FsError {
    FsError::Conflict {
        path: job.target.display().to_string(),
        how,
    }
}
