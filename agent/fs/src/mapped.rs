//! The mapped device over a volume's own one: opened for a stage, and closed after the last unmount.

use std::path::Path;

use uuid::Uuid;

use super::{
    backend::StageBackend,
    crypt::{self, Opening},
    device::{self, Partition, io_error},
    jobs::{FsError, Stage},
};
use drivebay_layout::{jobs::SettleLost, lost};
use drivebay_model::{Cause, DriveRef, Extent, Mapping, MappingNames, Placed, lost::SECTOR};
use drivebay_sys::dm;
use drivebay_worker::Context;

/// Opens a volume that has a mapped device, and returns that; None: it has none. Errs if the job has a secret for a volume that is not
/// encrypted, or none for one that is. `may_format`: the header of an encrypted volume may be made if there never was one.
pub(super) fn open(
    backend: &dyn StageBackend,
    job: &Stage,
    placed: &Placed,
    may_format: bool,
    context: &mut Context,
) -> Result<Option<Partition>, FsError> {
    let uuid = job.uuid;
    match (placed.record.encryption(), &job.secrets) {
        (None, Some(_)) => Err(FsError::NotEncrypted { uuid }),
        (Some(_), None) => Err(FsError::NoSecret { uuid }),
        (None, None) => match placed.record.lost() {
            Some(lost) => open_lost(&job.drive, placed, &lost, context).map(Some),
            None => Ok(None),
        },
        (Some(encryption), Some(secrets)) => {
            let own = match placed.record.lost() {
                Some(lost) => open_lost(&job.drive, placed, &lost, context)?,
                None => device::open(&job.drive, placed)?,
            };
            let opening = Opening {
                backend,
                drive: &job.drive,
                placed,
                encryption,
                secrets,
                may_format,
            };
            crypt::open(&opening, own, context).map(Some)
        }
    }
}

/// Maps a device over the volume's own one, which reads lost sectors as errors: what is mounted, or below the device that decrypts. One that is
/// there already gets the ranges that are lost now, and the volume's present size.
fn open_lost(
    drive: &DriveRef,
    placed: &Placed,
    lost: &[Extent],
    context: &mut Context,
) -> Result<Partition, FsError> {
    let uuid = placed.record.uuid;
    let record = placed.record.without_encryption();
    let names = record.mapping().ok_or(FsError::NotOpen { uuid })?;
    let own = device::open(drive, placed)?;
    context.step(&format!("mapping a device over {}", own.device));
    let failed = |error| io_error("mapping a device over", &own.node, error);
    let (ranges, sectors) = (lost::sectors(lost), own.bytes / SECTOR);
    let mapped = dm::mapped_over(Path::new("/sys"), &own.device, &names.dm_uuid);
    let mapping = match mapped.map_err(failed)? {
        Some(mapped) if mapped.is_over(&own.device) => {
            dm::map_over(own.dev, sectors, &ranges, &names.dm_uuid).map_err(failed)?;
            Mapping {
                device: mapped.kernel_name,
                dev: mapped.dev,
            }
        }
        dead => {
            // Of a drive that was unplugged; what uses it still must not write to this one.
            if dead.is_some() {
                close(uuid, &placed.record.mappings())?;
            }
            if let Some(why) = dm::lossy_unavailable() {
                return Err(FsError::NoLostSectors { uuid, why });
            }
            let names = (names.name.as_str(), names.dm_uuid.as_str());
            let made = dm::create_over(own.dev, sectors, &ranges, names).map_err(failed)?;
            Mapping {
                device: made.kernel_name,
                dev: made.dev,
            }
        }
    };
    // The record may have more than is lost: nothing that was written reads as an error from the mount on.
    let settle = SettleLost {
        drive: drive.clone(),
        uuid,
        may_end: false,
    };
    lost::now(&settle)?;
    let placed = Placed {
        record,
        mapping: Some(mapping),
        ..placed.clone()
    };
    device::open_mapped(drive, &placed)
}

/// Closes a volume after a failed stage, if that has opened it: as little is left behind as of a mount. One that was open before may be used
/// elsewhere. `before`: the volume as it was before the stage.
pub(super) fn close_again(before: &Placed) {
    if before.mapping.is_none()
        && let Err(error) = close(before.record.uuid, &before.record.mappings())
    {
        tracing::error!(volume = %before.record.uuid, error = %drivebay_model::cause::chain(&error), "cannot close a volume after a failed stage");
    }
}

/// Removes the mapped devices of a volume from the kernel, from the top; true if there was one.
///
/// # Errors
/// `MappingInUse`: it is open.
pub(super) fn close(uuid: Uuid, mappings: &[MappingNames]) -> Result<bool, FsError> {
    let mut removed = false;
    for names in mappings {
        let failed = |source: std::io::Error| FsError::Io {
            what: "removing".to_owned(),
            path: names.name.clone(),
            source: Cause::from(source),
        };
        removed |= match dm::remove_mapped(&names.dm_uuid) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                return Err(FsError::MappingInUse {
                    uuid,
                    device: names.name.clone(),
                });
            }
            done => done.map_err(failed)?,
        };
    }
    Ok(removed)
}
