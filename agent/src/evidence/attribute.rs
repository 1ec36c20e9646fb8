//! Whose a kernel report is: the drive, and the volume if it is one volume's. Pure.

use uuid::Uuid;

use super::{kmsg::Report, reading};
use crate::model::{Drive, DriveId, DriveState, Media, Snapshot};

/// Sectors in the kernel log have this many bytes, whatever the drive's own have.
const SECTOR: u64 = 512;

/// What a report is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    pub drive: DriveId,
    /// The one volume that is concerned; None when it is the drive as a whole.
    pub volume: Option<Uuid>,
}

/// Finds the subject; None when the device is none of the inventory's, such as the system's own.
pub fn subject(snapshot: &Snapshot, report: &Report) -> Option<Subject> {
    // A partition or logical volume is one volume's.
    let named = snapshot
        .volumes
        .values()
        .find(|volume| volume.placed.device.as_deref() == Some(report.device.as_str()));
    if let Some(volume) = named {
        return Some(Subject {
            drive: volume.drive.clone(),
            volume: Some(volume.uuid),
        });
    }
    let here = |drive: &&Drive| drive.state != DriveState::Missing;
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

// Its own name, or its controller's: nvme0 is the controller of nvme0n1.
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
    use crate::{
        evidence::kmsg::Kind,
        model::{
            RecordState,
            samples::{contents, drive, placed, volume},
        },
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
            let found = subject(&snapshot(), &report);
            let expected = expected.map(|(drive, volume)| Subject {
                drive: DriveId(drive.into()),
                volume,
            });
            assert_eq!(found, expected, "{device} {sector:?}");
        }
    }
}
