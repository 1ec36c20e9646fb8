//! Executes the decisions of `stage`, in an order in which the next call repairs a crash at any point.
//!
//! Record first (durably), then mkfs, then mount, then "mounted" in the record, then the result. A crash before that last
//! record leaves a filesystem that was never acknowledged: if the device is Empty at the next call, it may be formatted
//! again. After it, never. The record is not changed before mount(2): what an interrupted mkfs left would otherwise be a
//! lost filesystem forever.

use std::path::Path;

use uuid::Uuid;

use super::{
    backend::StageBackend,
    copied,
    device::{self, Partition, path_error},
    grow, hints,
    jobs::{Device, FsError, Growth, Stage, StageMount, Staged},
    kernel_options::{self, OptionsCheck},
    kind::{self, MkfsPlan, UuidChange},
    mapped, mkfs,
    mkfs_options::check_mkfs_options,
    mounts,
    options::{MountFlags, parse_mount_flags},
    refused_mount,
    stage::{Format, MountPlan, Plan, Refusal, Wanted, format_guard, plan_mount},
    tools,
};
use drivebay_layout::jobs::LayoutError;
use drivebay_model::{Cause, Contents, FsType, Mapping, Mode, Placed, RecordState, copied::Copied};
use drivebay_sys::{
    clock::since_boot,
    kmsg, mount,
    mountinfo::{self, MountEntry},
    path::{self, Kind},
};
use drivebay_worker::Context;

/// Runs a stage job. Can be repeated after a crash or an error at any point.
pub fn stage(
    backend: &dyn StageBackend,
    job: &Stage,
    context: &mut Context,
) -> Result<Staged, FsError> {
    let Some(wanted) = &job.mount else {
        context.step("reading the label");
        let contents = backend.read_contents(&job.drive, false)?;
        return match find(&contents, job)?.device {
            Some(_) => block(backend, job, contents, context),
            None => {
                context.step("bringing its device back");
                let contents = backend.read_contents(&job.drive, true)?;
                block(backend, job, contents, context)
            }
        };
    };
    context.step("looking at the mounts");
    let here = mountinfo::at(&mountinfo::resolve(&wanted.path))
        .map_err(|error| mount_info_error(&wanted.path, &error))?;
    context.step("reading the label");
    let mut result = backend.read_contents(&job.drive, false);
    // A volume must be whole before it is mounted; for one that is mounted nothing is repaired. A repair needs the drive
    // exclusively, which takes as long as udevd reads what creating the volume has changed.
    if here.is_empty()
        && !result
            .as_ref()
            .is_ok_and(|contents| is_whole(contents, job))
    {
        context.step("repairing the label");
        result = backend.read_contents(&job.drive, true);
    }
    let contents = result?;
    let placed = find(&contents, job)?;
    Staging::new(backend, job, wanted, &contents, placed)?.run(&here, placed, context)
}

/// True if nothing on the drive must be repaired before the volume is mounted.
fn is_whole(contents: &Contents, job: &Stage) -> bool {
    !contents.needs_repair() && find(contents, job).is_ok()
}

/// Returns the volume's entry. Errs if the volume is being created or erased, is ambiguous, or is not at a live place.
fn find<'a>(contents: &'a Contents, job: &Stage) -> Result<&'a Placed, FsError> {
    let unknown = || LayoutError::NoSuchVolume {
        drive: job.drive.id.to_string(),
        uuid: job.uuid,
    };
    let placed = contents.volume(job.uuid).ok_or_else(unknown)?;
    if matches!(
        placed.record.state,
        RecordState::Creating | RecordState::Erasing { .. }
    ) {
        return Err(unknown().into());
    }
    if !placed.record.place.is_live() {
        return Err(LayoutError::NotThere {
            drive: job.drive.id.to_string(),
            uuid: job.uuid,
            place: placed.record.place.describe(),
        }
        .into());
    }
    match &placed.ambiguous {
        Some(reason) => Err(LayoutError::Ambiguous {
            uuid: job.uuid,
            reason: reason.clone(),
        }
        .into()),
        None => Ok(placed),
    }
}

fn block(
    backend: &dyn StageBackend,
    job: &Stage,
    contents: Contents,
    context: &mut Context,
) -> Result<Staged, FsError> {
    let mut contents = contents;
    let placed = find(&contents, job)?;
    let incompatible = |is: String| FsError::Incompatible {
        uuid: job.uuid,
        is,
        requested: "a block volume".to_owned(),
    };
    if placed.record.mode != Mode::Block {
        return Err(incompatible("a mount volume".to_owned()));
    }
    let placed = placed.clone();
    if matches!(placed.record.state, RecordState::Block | RecordState::New) {
        let opened = mapped::open(backend, job, &placed, true, context);
        if let Some(partition) = opened.inspect_err(|_| mapped::close_again(&placed))? {
            keep_mapping(&mut contents, job.uuid, &partition);
        }
    }
    match &placed.record.state {
        // Publishing uses the current device from there.
        RecordState::Block => Ok(Staged {
            contents,
            formatted: false,
            growth: Growth::NotTried,
            already: true,
        }),
        RecordState::New => {
            context.step("recording that the volume is raw");
            let changed = backend.advance(&job.drive, job.uuid, RecordState::Block);
            let changed = changed.inspect_err(|_| mapped::close_again(&placed))?;
            Ok(Staged {
                contents: changed.contents,
                formatted: false,
                growth: Growth::NotTried,
                already: false,
            })
        }
        other => Err(incompatible(format!("recorded as {other:?}"))),
    }
}

/// Adds the mapped device to the contents, which were read before it was there.
fn keep_mapping(contents: &mut Contents, uuid: Uuid, partition: &Partition) {
    // Later than any reading without it.
    contents.read_at = since_boot().into();
    let mut volumes = contents.volumes.iter_mut();
    if let Some(placed) = volumes.find(|placed| placed.record.uuid == uuid) {
        placed.mapping = Some(Mapping {
            device: partition.device.clone(),
            dev: partition.dev,
        });
    }
}

/// Stages one mount volume.
struct Staging<'a> {
    backend: &'a dyn StageBackend,
    job: &'a Stage,
    mount: &'a StageMount,
    fs_type: FsType,
    flags: MountFlags,
    wanted: Wanted,
    /// Contents of the drive, as they were read, or as the last change of the record left them.
    contents: Contents,
    formatted: bool,
}

impl<'a> Staging<'a> {
    fn new(
        backend: &'a dyn StageBackend,
        job: &'a Stage,
        mount: &'a StageMount,
        contents: &Contents,
        placed: &Placed,
    ) -> Result<Self, FsError> {
        let record = &placed.record;
        let incompatible = |is: &str, requested: &str| FsError::Incompatible {
            uuid: job.uuid,
            is: is.to_owned(),
            requested: requested.to_owned(),
        };
        if record.mode != Mode::Mount {
            return Err(incompatible("a block volume", "a mount volume"));
        }
        let fs_type = record
            .fs_type
            .ok_or_else(|| incompatible("without a filesystem type", "a mount volume"))?;
        if let Some(requested) = mount.fs_type.filter(|requested| *requested != fs_type) {
            return Err(incompatible(fs_type.as_str(), requested.as_str()));
        }
        check_mkfs_options(fs_type, &record.mkfs_options)?;
        let all: Vec<String> = record
            .mount_options
            .iter()
            .chain(&mount.flags)
            .cloned()
            .collect();
        let flags = parse_mount_flags(&all)?;
        let wanted = Wanted::new(fs_type, &flags, mount.read_only, mount.mounted_with.clone());
        Ok(Self {
            backend,
            job,
            mount,
            fs_type,
            flags,
            wanted,
            contents: contents.clone(),
            formatted: false,
        })
    }

    /// `here`: the mounts at the path. If there are none, the drive needs no repair, or was read with it.
    fn run(
        self,
        here: &[MountEntry],
        placed: &Placed,
        context: &mut Context,
    ) -> Result<Staged, FsError> {
        let here: Vec<_> = here.iter().collect();
        let plan = plan_mount(&here, &self.wanted, |entry| {
            placed
                .used_device()
                .is_some_and(|(_, dev)| mounts::is_mount_of(entry, dev))
        });
        match plan {
            MountPlan::Conflict(how) => Err(FsError::Conflict {
                path: self.path(),
                how,
            }),
            MountPlan::Nothing => self.already(placed, context),
            MountPlan::Remount => {
                let device = placed.used_device().map_or("", |(name, _)| name);
                self.mount_syscall(device, libc::MS_REMOUNT, context)?;
                self.already(placed, context)
            }
            MountPlan::Mount => {
                let staged = self.stage_device(placed, context);
                staged.inspect_err(|_| mapped::close_again(placed))
            }
        }
    }

    /// Completes the staging of a mounted volume: its record lags behind if the call that mounted it never returned.
    fn already(mut self, placed: &Placed, context: &mut Context) -> Result<Staged, FsError> {
        let mut growth = Growth::NotTried;
        match (&placed.record.state, Device::of(placed)) {
            (
                RecordState::Fs {
                    mounted: true,
                    fs_type,
                    ..
                },
                _,
            ) if *fs_type == self.fs_type => {}
            (
                RecordState::Fs {
                    mounted: false,
                    fs_type,
                    fs_uuid,
                },
                Some(device),
            ) if *fs_type == self.fs_type => {
                let bytes = device::bytes(&device)?;
                growth = self.grow(&device.name, bytes, context);
                self.advance(*fs_uuid, true, context)?;
            }
            (state, _) => {
                return Err(FsError::Unexpected {
                    uuid: self.job.uuid,
                    device: placed.used_device().map_or("", |(name, _)| name).to_owned(),
                    found: format!("a mounted {}", self.fs_type),
                    expected: format!("{state:?}"),
                });
            }
        }
        if let Some((device, _)) = placed.used_device() {
            self.configure(device);
        }
        Ok(Staged {
            contents: self.contents,
            formatted: false,
            growth,
            already: true,
        })
    }

    fn stage_device(mut self, placed: &Placed, context: &mut Context) -> Result<Staged, FsError> {
        let at = |source| path_error("mounting at", &self.mount.path, source);
        let target = path::facts(&self.mount.path).map_err(|error| at(Cause::from(error)))?;
        if target.kind != Kind::Directory {
            let why = "it is no directory (a symbolic link in the last place is not followed)";
            return Err(at(Cause::text(why)));
        }
        self.check_options(context)?;
        let may_format = !self.wanted.read_only;
        let partition = match mapped::open(self.backend, self.job, placed, may_format, context)? {
            Some(partition) => {
                keep_mapping(&mut self.contents, self.job.uuid, &partition);
                partition
            }
            None => device::open(&self.job.drive, placed)?,
        };
        context.step(&format!("probing {}", partition.device));
        let probed = self.backend.probe(&partition.node);
        let state = &placed.record.state;
        let guard = format_guard(
            state,
            probed.as_ref().ok(),
            self.fs_type,
            self.wanted.read_only,
            Copied::Fs.of(&placed.record.parameters).as_slice(),
        );
        let refused = |refusal: Refusal, cause| {
            refusal.into_error(self.job, self.fs_type, &partition.device, cause)
        };
        let (fs_uuid, may_restart) = match (guard, state) {
            (Format::Refuse(refusal), _) => return Err(refused(refusal, probed.err())),
            (Format::Make { plan }, _) => {
                let fs_uuid = match plan {
                    Plan::Recorded(fs_uuid) => fs_uuid,
                    Plan::Fresh => {
                        let fs_uuid = Uuid::new_v4();
                        self.advance(fs_uuid, false, context)?;
                        fs_uuid
                    }
                };
                self.make(&partition, placed, fs_uuid, false, context)?;
                (fs_uuid, false)
            }
            (Format::Mount { may_restart }, RecordState::Fs { fs_uuid, .. }) => {
                (*fs_uuid, may_restart.is_some())
            }
            // The guard returns Mount for a recorded filesystem only.
            (Format::Mount { .. }, _) => return Err(refused(Refusal::ProbeFailed, None)),
            (Format::ChangeUuid { from, to }, _) => {
                let change = UuidChange {
                    backend: self.backend,
                    partition: &partition,
                    fs_type: self.fs_type,
                    volume: self.job.uuid,
                    from,
                    to,
                    options: &self.flags.data,
                    may_repair: self.job.may_repair,
                };
                copied::give_uuid(&change, context)?;
                (to, false)
            }
        };
        self.repair(&partition, context)?;
        if let Err(error) = self.mount_syscall(&partition.device, 0, context) {
            if !(may_restart && self.is_unfinished(&error, &partition)) {
                return Err(error);
            }
            self.make(&partition, placed, fs_uuid, true, context)?;
            self.mount_syscall(&partition.device, 0, context)?;
        }
        let was_mounted = matches!(state, RecordState::Fs { mounted: true, .. });
        let growth = self.finish(&partition, fs_uuid, was_mounted, context).inspect_err(|_| {
            // A final error must leave nothing behind; this mount is not recorded anywhere yet.
            if let Err(error) = mount::unmount(&self.mount.path, false) {
                tracing::error!(path = %self.path(), %error, "cannot unmount the filesystem after a failed stage");
            }
        })?;
        Ok(Staged {
            contents: self.contents,
            formatted: self.formatted,
            growth,
            already: false,
        })
    }

    /// Checks the mount options before anything is written: a filesystem that cannot be mounted is not made. Passes if they
    /// cannot be checked.
    fn check_options(&self, context: &mut Context) -> Result<(), FsError> {
        context.step("asking the kernel for the mount options");
        match kernel_options::check(self.fs_type, &self.flags) {
            OptionsCheck::Accepted => Ok(()),
            OptionsCheck::Refused { options, why } => Err(FsError::Option {
                option: options,
                why,
            }),
            OptionsCheck::NotChecked { why } => {
                tracing::debug!(reason = why, "mount options not checked before the mount");
                Ok(())
            }
        }
    }

    /// Verifies the mount after mount(2), configures and grows the filesystem, and records it as mounted.
    fn finish(
        &mut self,
        partition: &Partition,
        fs_uuid: Uuid,
        was_mounted: bool,
        context: &mut Context,
    ) -> Result<Growth, FsError> {
        let resolved = mountinfo::resolve(&self.mount.path);
        let here = mountinfo::at(&resolved).map_err(|error| self.mount_info(&error))?;
        let top = here.last();
        if !top.is_some_and(|entry| mounts::is_mount_of(entry, partition.dev)) {
            return Err(FsError::Conflict {
                path: self.path(),
                how: format!("and not from {}", partition.device),
            });
        }
        self.configure(&partition.device);
        let growth = self.grow(&partition.device, partition.bytes, context);
        if !was_mounted {
            self.advance(fs_uuid, true, context)?;
        }
        Ok(growth)
    }

    fn make(
        &mut self,
        partition: &Partition,
        placed: &Placed,
        fs_uuid: Uuid,
        over_own: bool,
        context: &mut Context,
    ) -> Result<(), FsError> {
        let plan = MkfsPlan {
            volume: self.job.uuid,
            fs_type: self.fs_type,
            fs_uuid,
            options: &placed.record.mkfs_options,
            over_own,
        };
        mkfs::make(self.backend, partition, &plan, context)?;
        self.formatted = true;
        Ok(())
    }

    fn advance(
        &mut self,
        fs_uuid: Uuid,
        mounted: bool,
        context: &mut Context,
    ) -> Result<(), FsError> {
        context.step("writing the record");
        let to = RecordState::Fs {
            fs_type: self.fs_type,
            fs_uuid,
            mounted,
        };
        let changed = self
            .backend
            .advance(&self.job.drive, self.job.uuid, to.clone())?;
        // The record that was read back decides, not the one that was written.
        match changed
            .contents
            .volume(self.job.uuid)
            .map(|placed| &placed.record.state)
        {
            Some(state) if *state == to => {
                self.contents = changed.contents;
                Ok(())
            }
            other => Err(LayoutError::BadTransition {
                uuid: self.job.uuid,
                from: format!("{other:?}"),
                to: format!("{to:?}"),
            }
            .into()),
        }
    }

    /// Repairs a filesystem that must not be mounted for writing before that. A failed repair does not fail the stage: the
    /// mount decides.
    fn repair(&self, partition: &Partition, context: &mut Context) -> Result<(), FsError> {
        if self.wanted.read_only {
            return Ok(());
        }
        let (volume, may_repair) = (self.job.uuid, self.job.may_repair);
        match kind::of(self.fs_type).facts().repair {
            Some(repair) => repair(self.backend, partition, volume, may_repair, context),
            None => Ok(()),
        }
    }

    /// Grows the filesystem. A failure does not fail the stage, since the volume still has its data; NodeExpandVolume errs.
    fn grow(&self, device: &str, bytes: u64, context: &mut Context) -> Growth {
        if self.wanted.read_only {
            return Growth::NotTried;
        }
        let grown = grow::grow(
            self.backend,
            self.fs_type,
            &self.mount.path,
            (device, bytes),
            context,
        );
        match grown {
            Ok(true) => Growth::Grown,
            Ok(false) => Growth::Fits,
            Err(error) => {
                let why = drivebay_model::cause::chain(&error);
                tracing::error!(
                    device,
                    error = why,
                    "cannot grow the filesystem to its device"
                );
                Growth::Failed { why }
            }
        }
    }

    fn mount_syscall(
        &self,
        device: &str,
        extra: u64,
        context: &mut Context,
    ) -> Result<(), FsError> {
        let read_only = if self.wanted.read_only {
            libc::MS_RDONLY
        } else {
            0
        };
        let data = self.flags.data_for(self.fs_type);
        let bits = self.flags.bits | read_only | extra;
        let (path, fs_type) = (&self.mount.path, self.fs_type.as_str());
        let mark = kmsg::Mark::now();
        // Replaying a long log has no limit of time.
        let mounted = tools::watched(device, &format!("mounting {device}"), context, || {
            mount::mount_fs(&device::node(device), path, fs_type, bits, &data)
        });
        let mounted = mounted.unwrap_or_else(|_| Err(std::io::Error::other("its thread died")));
        mounted.map_err(|error| FsError::Mount {
            device: device.into(),
            path: self.path(),
            has_options: !self.flags.data.is_empty(),
            hint: hints::mount(error.raw_os_error(), self.fs_type, device).into(),
            damage: mark.ok().and_then(|mark| {
                let logged = mark.texts();
                refused_mount::damage(self.fs_type, device, &logged).map(Box::from)
            }),
            source: Cause::from(error),
        })
    }

    /// True if a mount failed because of a superblock that proves an unfinished, never mounted filesystem.
    fn is_unfinished(&self, error: &FsError, partition: &Partition) -> bool {
        let FsError::Mount { source, .. } = error else {
            return false;
        };
        matches!(
            source.errno(),
            Some(libc::EUCLEAN | libc::EBADMSG | libc::EINVAL)
        ) && partition
            .head()
            .is_ok_and(|head| kind::of(self.fs_type).is_unfinished(&head))
    }

    fn configure(&self, device: &str) {
        if let Some(configure) = kind::of(self.fs_type).facts().configure {
            configure(device, self.mount);
        }
    }

    fn path(&self) -> String {
        self.mount.path.display().to_string()
    }

    fn mount_info(&self, error: &mountinfo::MountInfoError) -> FsError {
        mount_info_error(&self.mount.path, error)
    }
}

/// Returns the error for a mountinfo that could not be read or parsed.
pub fn mount_info_error(path: &Path, error: &mountinfo::MountInfoError) -> FsError {
    FsError::Io {
        what: "finding the mounts at".to_owned(),
        path: path.display().to_string(),
        source: Cause::new(error),
    }
}

#[cfg(test)]
#[path = "staging_tests.rs"]
mod tests;
