//! `drive wipe`: blanks a used drive, on an operator's explicit request.

use drivebay_proto::agent::WipeDriveProgress;
use tokio::sync::mpsc;
use tonic::Status;

use super::{
    Caller, VolumeError, Volumes,
    guard::{Guard, Key, VolumeGuard},
};
use crate::{
    inventory::assemble::is_live,
    state::{
        LastKnown, Tombstones,
        merge::{live_generations, only_on},
    },
};
use drivebay_layout::jobs::{LayoutError, WipeStep};
use drivebay_model::{Drive, DriveRef, DriveState, Record, RejectCode, Snapshot, VolumeState};
use drivebay_worker::{RunError, Slot};

/// Longest duration of one step.
const DEADLINE: std::time::Duration = std::time::Duration::from_secs(60);
/// Time for which a step works, approximately, in milliseconds, so that progress is visible.
const BUDGET_MS: u64 = 1000;

/// A wipe that may begin. Until it is dropped, the quarantined volumes on the drive are neither restored nor erased otherwise: keep it
/// until a scan after the wipe has ended.
#[derive(Debug)]
pub struct Wipe {
    drive: DriveRef,
    going: Vec<uuid::Uuid>,
    _guard: Guard,
    _volumes: Vec<VolumeGuard>,
}

/// Returns why this drive may not be wiped, and what to do first. Pure; the worker checks with the kernel again
/// (O_EXCL) before it writes.
fn refusal(snapshot: &Snapshot, drive: &Drive) -> Option<String> {
    if matches!(
        drive.state,
        DriveState::Missing | DriveState::NotScanned | DriveState::Unprobed
    ) {
        return Some(
            "it cannot be reached now; check that it is plugged in and answers".to_owned(),
        );
    }
    if let Some(why) = live_volumes(snapshot, drive) {
        return Some(why);
    }
    let in_use = drive.rejects.iter().filter_map(|reject| {
        let first = first_do(reject.code)?;
        Some(format!("{}: {}; {first}", reject.code, reject.detail))
    });
    let in_use: Vec<String> = in_use.collect();
    (!in_use.is_empty()).then(|| in_use.join("; "))
}

/// Returns what to do before a drive with this reject code is wiped; None: it does not prevent wiping.
fn first_do(code: RejectCode) -> Option<&'static str> {
    Some(match code {
        RejectCode::Mounted => "unmount it, and take it out of /etc/fstab",
        RejectCode::SwapInUse => "turn the swap off (swapoff), and take it out of /etc/fstab",
        RejectCode::Holders => {
            "stop what stands on it (mdadm --stop, vgchange -an, dmsetup remove, cryptsetup close)"
        }
        RejectCode::Busy => "end what has it open (fuser -v shows it)",
        RejectCode::DuplicateIdentity => {
            "detach the other drive of this identity, so that it is certain which one is meant"
        }
        RejectCode::ReadOnly => "make it writable (blockdev --setrw)",
        RejectCode::HiddenPath | RejectCode::MultipathMember => {
            "name the multipath device, or take the drive out of multipath"
        }
        RejectCode::Partition => "name the whole drive",
        RejectCode::SystemDrive => "the host runs from it, and it is never wiped here",
        RejectCode::HostUnknown => {
            "give the agent the host's PID namespace, so that it sees what the host uses"
        }
        RejectCode::NotRunning | RejectCode::Unreadable => {
            "see the kernel log; a drive that does not work is replaced, not wiped"
        }
        RejectCode::NotADisk | RejectCode::Remote | RejectCode::ZeroSize => {
            "it is none that Drivebay could use"
        }
        _ => return None,
    })
}

/// Describes the volumes on a drive, and what to do about them; None: there are none but deleted ones. Pure.
pub(super) fn live_volumes(snapshot: &Snapshot, drive: &Drive) -> Option<String> {
    let on_it = snapshot.volumes.values();
    let live = on_it.filter(|volume| volume.is_on(&drive.id) && is_live(volume.state));
    held_volumes(live.map(|volume| &volume.placed.record))
}

/// Describes the volumes that the drive had when it was read last, and whose data no other drive has; None: there are none but deleted ones.
/// Its label may be damaged, and a volume be listed from an older place on another drive. Pure.
fn remembered_volumes(
    snapshot: &Snapshot,
    drive: &Drive,
    last_known: &LastKnown,
    deleted: &Tombstones,
) -> Option<String> {
    let before = last_known.drives.get(&drive.id)?;
    let others = snapshot.drives.values().filter(|one| one.id != drive.id);
    let live = live_generations(others.filter_map(|one| one.contents.as_ref()));
    held_volumes(only_on(before, &live, deleted).into_iter())
}

fn held_volumes<'a>(records: impl Iterator<Item = &'a Record>) -> Option<String> {
    let names: Vec<String> = records
        .map(|record| format!("{} ({})", record.name, record.uuid))
        .collect();
    (!names.is_empty()).then(|| {
        format!(
            "it holds Drivebay volumes: {}; save their data and delete them first: their PersistentVolumeClaims, or by hand with `drivebay-agent volume delete`",
            names.join(", ")
        )
    })
}

/// Returns the volumes that may be wiped with the drive: deleted ones, and those of another node's drive, which are
/// listed there. Pure.
fn going(snapshot: &Snapshot, drive: &Drive) -> Vec<uuid::Uuid> {
    let elsewhere = |reject: &drivebay_model::Reject| reject.code == RejectCode::OursElsewhere;
    let is_elsewhere = drive.rejects.iter().any(elsewhere);
    let placed = drive.contents.iter().flat_map(|contents| &contents.volumes);
    let goes = placed.map(|placed| placed.record.uuid).filter(|uuid| {
        let volume = snapshot.volumes.get(uuid);
        is_elsewhere || volume.is_some_and(|volume| !is_live(volume.state))
    });
    goes.collect()
}

/// Returns the quarantined volumes with a place on a drive. Pure.
fn quarantined(snapshot: &Snapshot, drive: &Drive) -> Vec<uuid::Uuid> {
    let volumes = snapshot.volumes.values();
    let on_it = volumes
        .filter(|volume| volume.state == VolumeState::Quarantined && volume.is_on(&drive.id));
    on_it.map(|volume| volume.uuid).collect()
}

/// Returns the drive of this identity or kernel name.
pub fn named<'a>(snapshot: &'a Snapshot, name: &str) -> Result<&'a Drive, VolumeError> {
    let name = name.strip_prefix("/dev/").unwrap_or(name);
    snapshot
        .drives
        .values()
        .find(|drive| drive.id.0 == name || drive.facts.kernel_name == name)
        .ok_or_else(|| VolumeError::Invalid {
            field: "drive",
            why: format!(
                "no drive {name:?} on this node; `drivebay-agent drives --all` lists them"
            ),
        })
}

impl Volumes {
    /// Checks that a wipe may begin, and guards the drive: `confirm` must be its identity, and nothing may use it.
    pub fn begin_wipe(&self, name: &str, confirm: &str) -> Result<Wipe, VolumeError> {
        let before = self.node.inventory().current();
        let drive = named(&before, name)?;
        let volumes = quarantined(&before, drive).into_iter().map(|uuid| {
            let what = format!("volume {uuid}");
            self.guard_volume(uuid, &what, Caller::Manual)
        });
        let volumes = volumes.collect::<Result<Vec<_>, _>>()?;
        // One that was restored before it was guarded is live.
        let snapshot = self.node.inventory().current();
        let going = going(&before, drive);
        let drive = named(&snapshot, &drive.id.0)?;
        // Refused before `confirm` is checked: no operator types an identity in vain.
        let (last_known, deleted) = self.node.inventory().remembered();
        let remembered = || remembered_volumes(&snapshot, drive, &last_known, &deleted);
        if let Some(why) = refusal(&snapshot, drive).or_else(remembered) {
            return Err(VolumeError::NotWiped {
                drive: drive.id.clone(),
                why,
            });
        }
        if confirm != drive.id.0 {
            return Err(VolumeError::Invalid {
                field: "confirm",
                why: format!(
                    "wiping {name} destroys everything on it; spell out its identity to go on: {}",
                    drive.id
                ),
            });
        }
        let guard = self.held(Key::Drive(drive.id.clone()), &format!("drive {}", drive.id))?;
        Ok(Wipe {
            drive: DriveRef::from(&drive.facts),
            going,
            _guard: guard,
            _volumes: volumes,
        })
    }

    /// Wipes the drive, one step at a time. Continues without a listener: a partial wipe is of no use.
    pub async fn wipe(
        &self,
        wipe: &Wipe,
        progress: &mpsc::Sender<Result<WipeDriveProgress, Status>>,
    ) -> Result<WipeDriveProgress, VolumeError> {
        let mut done = 0;
        let mut written = false;
        tracing::warn!(drive = %wipe.drive.id, "drive wipe requested by operator");
        // An erase that runs there is cancelled: the wipe covers it. One that cannot be cancelled prevents the wipe.
        let pool = self.node.pool();
        pool.cancel((&wipe.drive.id, Slot::Background)).await;
        loop {
            let step = WipeStep {
                drive: wipe.drive.clone(),
                from_bytes: done,
                going: wipe.going.clone(),
                written,
                budget_ms: BUDGET_MS,
            };
            let answer = self
                .node
                .run((&wipe.drive.id, Slot::Foreground), step, DEADLINE)
                .await;
            if !written && matches!(answer, Err(RunError::Job(LayoutError::NotErased { .. }))) {
                tracing::warn!(drive = %wipe.drive.id, "drive does not zero when commanded; the wipe starts again and writes zeros");
                (done, written) = (0, true);
                continue;
            }
            let answer = answer.map_err(|error| match error {
                RunError::Job(LayoutError::Busy { reason, .. }) => VolumeError::NotWiped {
                    drive: wipe.drive.id.clone(),
                    why: reason,
                },
                RunError::Job(error @ LayoutError::StillZeroed { .. }) => VolumeError::NotWiped {
                    drive: wipe.drive.id.clone(),
                    why: error.to_string(),
                },
                error => error.into(),
            })?;
            done = answer.done_bytes;
            let finished = done >= answer.total_bytes;
            let now = WipeDriveProgress {
                done_bytes: done,
                total_bytes: answer.total_bytes,
                finished,
            };
            if finished {
                tracing::warn!(drive = %wipe.drive.id, "drive wiped");
                return Ok(now);
            }
            // A listener that is slow or gone misses a progress line, nothing else.
            let _ = progress.try_send(Ok(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::KnownDrive;
    use drivebay_model::{PlaceState, RecordState, samples, snapshot::Place};

    fn rejected(code: RejectCode) -> Drive {
        let volumes = vec![samples::placed(7, RecordState::New)];
        let contents = samples::contents(1, 1, volumes, 0);
        let mut drive = samples::drive("sdb", DriveState::Rejected, Some(contents));
        drive.rejects.push(drivebay_model::Reject {
            code,
            detail: String::new(),
        });
        drive
    }

    fn snapshot(state: VolumeState) -> Snapshot {
        let (first, copy) = (
            samples::drive("sda", DriveState::Rejected, None),
            rejected(RejectCode::DuplicateIdentity),
        );
        let placed = samples::placed(7, RecordState::New);
        let mut volume = samples::volume(&first, placed.clone());
        volume.state = state;
        volume.copies.push(Place {
            drive: copy.id.clone(),
            placed,
        });
        Snapshot {
            volumes: [(volume.uuid, volume)].into(),
            ..Snapshot::default()
        }
    }

    #[test]
    fn a_drive_with_one_place_of_a_live_volume_is_not_wiped() {
        let drive = rejected(RejectCode::NotBlank);
        let live = snapshot(VolumeState::Ambiguous);
        assert!(refusal(&live, &drive).unwrap().contains("pvc-7"));
        assert_eq!(going(&live, &drive), Vec::<uuid::Uuid>::new());
        // A volume that is not listed is not known to be deleted either.
        assert_eq!(going(&Snapshot::default(), &drive).len(), 0);
    }

    #[test]
    fn deleted_volumes_and_those_of_another_nodes_drive_go_with_it() {
        let drive = rejected(RejectCode::NotBlank);
        let deleted = snapshot(VolumeState::Quarantined);
        assert_eq!(refusal(&deleted, &drive), None);
        assert_eq!(going(&deleted, &drive).len(), 1);
        let elsewhere = rejected(RejectCode::OursElsewhere);
        assert_eq!(going(&Snapshot::default(), &elsewhere).len(), 1);
    }

    #[test]
    fn a_drive_that_last_had_the_newest_place_of_a_volume_is_not_wiped_for_an_older_one_elsewhere()
    {
        let drive = rejected(RejectCode::OursDamaged);
        let place = |generation| PlaceState::Live {
            generation,
            from: None,
        };
        let with = |generation| {
            let mut placed = samples::placed(7, RecordState::New);
            placed.record.place = place(generation);
            placed
        };
        let (mut last_known, mut deleted) = (LastKnown::default(), Tombstones::default());
        let known = KnownDrive {
            facts: drive.facts.clone(),
            class: String::new(),
            usable_bytes: 0,
            layout: drivebay_model::Layout::Partition,
            drive_uuid: uuid::Uuid::nil(),
            volumes: vec![with(2).record],
            vanished: Vec::new(),
            retired: false,
            last_seen: 0,
        };
        last_known.drives.insert(drive.id.clone(), known);
        let beside = |generation| {
            let contents = samples::contents(2, 1, vec![with(generation)], 0);
            let other = samples::drive("sdc", DriveState::Claimed, Some(contents));
            Snapshot {
                drives: [(other.id.clone(), other)].into(),
                ..Snapshot::default()
            }
        };
        let why = remembered_volumes(&beside(1), &drive, &last_known, &deleted);
        assert!(why.is_some_and(|why| why.contains("pvc-7")));
        assert_eq!(
            remembered_volumes(&beside(2), &drive, &last_known, &deleted),
            None
        );
        let tombstone = crate::state::Tombstone {
            drives: Default::default(),
            name: String::new(),
            deleted_at: 0,
            quarantined_seconds: 0,
            released: false,
        };
        deleted.volumes.insert(with(2).record.uuid, tombstone);
        assert_eq!(
            remembered_volumes(&beside(1), &drive, &last_known, &deleted),
            None
        );
    }

    #[test]
    fn a_drive_that_was_not_scanned_is_not_wiped() {
        let drive = samples::drive("sda", DriveState::NotScanned, None);
        assert!(refusal(&Snapshot::default(), &drive).is_some());
    }
}
