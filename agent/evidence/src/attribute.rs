//! Finds the drive that a kernel report is about, and the volume if it is about one. Pure.

use uuid::Uuid;

use super::{
    kmsg::{Kind, Report},
    reading,
};
use drivebay_model::{Drive, DriveId, Media, Snapshot, Volume};

/// Bytes of a sector in the kernel log, for any logical sector size.
const SECTOR: u64 = 512;

/// Drive or volume that a report is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    pub drive: DriveId,
    /// None if the report is about the drive as a whole.
    pub volume: Option<Uuid>,
}

/// Finds the subject of a report; None if its device is not in the inventory, such as the system's own, or if it is about lost sectors of a
/// volume, which read as errors although their drive is well. Errors of that drive are reported about its own device, too.
pub fn subject(snapshot: &Snapshot, report: &Report) -> Option<Subject> {
    if is_about_lost(snapshot, report) {
        return None;
    }
    // The device of a partition or logical volume belongs to one volume.
    let named = snapshot
        .volumes
        .values()
        .find(|volume| volume.placed.offset_of(&report.device).is_some());
    if let Some(volume) = named {
        return Some(Subject {
            drive: volume.drive.clone(),
            volume: Some(volume.uuid),
        });
    }
    let here = |drive: &&Drive| drive.state.is_present();
    let drive = snapshot
        .drives
        .values()
        .filter(here)
        .find(|drive| is_of(drive, &report.device))?;
    let at = report.sector.map(|sector| sector.saturating_mul(SECTOR));
    let volume = at.and_then(|at| reading::volume_at(drive, at));
    Some(Subject {
        drive: drive.id.clone(),
        volume,
    })
}

/// Returns the drive and the byte offset on it where the failed request began; None if the report has no sector, or is about
/// none of our drives. The unreadable sectors may come after the start of the request.
pub fn place(snapshot: &Snapshot, report: &Report) -> Option<(DriveId, u64)> {
    let at = report.sector?.checked_mul(SECTOR)?;
    if is_about_lost(snapshot, report) {
        return None;
    }
    let offset = |volume: &'_ Volume| volume.placed.offset_of(&report.device);
    let mut volumes = snapshot.volumes.values();
    if let Some((volume, from)) = volumes.find_map(|volume| Some((volume, offset(volume)?))) {
        let at = at.checked_add(from)?;
        let mut offset = 0;
        for piece in volume.placed.lies_at() {
            if at - offset < piece.len {
                return Some((volume.drive.clone(), piece.start.checked_add(at - offset)?));
            }
            offset += piece.len;
        }
        return None;
    }
    let whole =
        |drive: &&Drive| drive.state.is_present() && drive.facts.kernel_name == report.device;
    let drive = snapshot.drives.values().find(whole)?;
    (at < drive.facts.size_bytes).then(|| (drive.id.clone(), at))
}

/// True for an I/O error of the device over a volume with lost sectors.
fn is_about_lost(snapshot: &Snapshot, report: &Report) -> bool {
    let is_over = |volume: &Volume| {
        let mapping = volume.placed.mapping.as_ref();
        volume.placed.record.lost().is_some()
            && mapping.is_some_and(|mapping| mapping.device == report.device)
    };
    matches!(report.kind, Kind::IoError | Kind::MediumError)
        && snapshot.volumes.values().any(is_over)
}

// True if this is the drive's name, or its controller's: nvme0 is the controller of nvme0n1.
fn is_of(drive: &Drive, device: &str) -> bool {
    let name = drive.facts.kernel_name.as_str();
    name == device
        || (drive.facts.media == Media::Nvme
            && name
                .strip_prefix(device)
                .and_then(|rest| rest.strip_prefix('n'))
                .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::{
        DriveState, Mapping, RecordState, lost,
        samples::{contents, drive, placed, volume},
    };

    fn snapshot() -> Snapshot {
        let mut snapshot = Snapshot::default();
        let on_it = contents(1, 1, vec![placed(7, RecordState::New)], 0);
        let disk = drive("sda", DriveState::Claimed, Some(on_it));
        let mut nvme = drive("nvme0n1", DriveState::Available, None);
        nvme.facts.media = Media::Nvme;
        let volume = volume(&disk, placed(7, RecordState::New));
        for drive in [disk, nvme] {
            snapshot.drives.insert(drive.id.clone(), drive);
        }
        snapshot.volumes.insert(volume.uuid, volume);
        snapshot
    }

    #[test]
    fn a_failed_request_begins_on_the_drive_wherever_the_kernel_counts_from() {
        let begin = 8u64 << 20;
        for (device, sector, expected) in [
            ("sda", Some(3), Some(3 * SECTOR)),
            ("sda2", Some(3), Some(begin + 3 * SECTOR)),
            ("sda2", Some((1 << 30) / SECTOR), None),
            ("sda", None, None),
            ("sda", Some(u64::MAX), None),
            ("vda", Some(3), None),
        ] {
            let report = Report {
                kind: Kind::MediumError,
                device: device.into(),
                sector,
            };
            let result = place(&snapshot(), &report);
            let expected = expected.map(|at| (DriveId("wwn-sda".into()), at));
            assert_eq!(result, expected, "{device} {sector:?}");
        }
    }

    #[test]
    fn errors_of_lost_sectors_are_none_of_the_drive_and_those_of_the_filesystem_still_count() {
        let mut snapshot = snapshot();
        for volume in snapshot.volumes.values_mut() {
            lost::keep(Some(&[]), &mut volume.placed.record.parameters);
            volume.placed.mapping = Some(Mapping {
                device: "dm-3".into(),
                dev: (254, 3),
            });
        }
        let of = |kind, device: &str| {
            let report = Report {
                kind,
                device: device.into(),
                sector: Some(3),
            };
            let place = place(&snapshot, &report);
            (subject(&snapshot, &report).is_some(), place.is_some())
        };
        for kind in [Kind::IoError, Kind::MediumError] {
            assert_eq!(of(kind, "dm-3"), (false, false));
            assert_eq!(of(kind, "sda2"), (true, true));
        }
        assert_eq!(of(Kind::FilesystemError, "dm-3"), (true, true));
    }

    #[test]
    fn a_report_goes_to_its_drive_and_to_the_one_volume_it_is_about() {
        let first = (8u64 << 20) / SECTOR;
        let last = ((8u64 << 20) + (1 << 30)) / SECTOR - 1;
        let volume = Some(Uuid::from_u128(7));
        for (device, sector, expected) in [
            ("sda2", None, Some(("wwn-sda", volume))),
            ("sda", None, Some(("wwn-sda", None))),
            ("sda", Some(first), Some(("wwn-sda", volume))),
            ("sda", Some(last), Some(("wwn-sda", volume))),
            ("sda", Some(first - 1), Some(("wwn-sda", None))),
            ("sda", Some(last + 1), Some(("wwn-sda", None))),
            ("sda", Some(u64::MAX), Some(("wwn-sda", None))),
            ("nvme0", None, Some(("wwn-nvme0n1", None))),
            ("nvme0n1", None, Some(("wwn-nvme0n1", None))),
            ("nvme", None, None),
            ("nvme0n", None, None),
            ("sd", None, None),
            ("vda", Some(1), None),
        ] {
            let report = Report {
                kind: Kind::IoError,
                device: device.into(),
                sector,
            };
            let result = subject(&snapshot(), &report);
            let expected = expected.map(|(drive, volume)| Subject {
                drive: DriveId(drive.into()),
                volume,
            });
            assert_eq!(result, expected, "{device} {sector:?}");
        }
    }
}
