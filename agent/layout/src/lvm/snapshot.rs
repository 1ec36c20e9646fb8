//! Snapshots of volumes, each an LV `drivebay-snap-<uuid>` that stores what its volume had before it was written to since.
//!
//! One is made from free space as an LV of its own, then attached to its volume, during which LVM makes the volume stand still and the
//! kernel freezes its filesystem; then its tags say that it is complete. That of an encrypted volume is on a mapped device above, of which
//! LVM knows nothing: its snapshot is restarted with that device suspended (`together`). Until they do, no CreateSnapshot has returned its id, and the
//! next `ReadDrive` with repair removes it (`check`). So does a deletion, which gives it the name of what a check leaves.
//!
//! A member of a group stays incomplete until all members are of one point in time (`together`); if that fails, the agent deletes it.
//!
//! A snapshot that the kernel has invalidated is recorded as lost by the next `ReadDrive` with repair: a store that cannot be written does not
//! record that itself, so that after a restart of the host the kernel takes the snapshot for valid, with what it stored until then.

use std::{ffi::OsString, io, sync::Arc};

use uuid::Uuid;

use super::{change::extents_of, metadata::Lv, name, plan, session::Session, tags, together, view};
use crate::{
    claimed::{ClaimedDrive, in_doubt_of, unchanged},
    error::{LOST, LayoutError, damaged, fit},
    jobs::{Changed, Member, TakeSnapshot},
    plan as volumes_plan, space,
};
use drivebay_model::{Contents, MIB, Placed, PlacedSnapshot, SnapshotRecord, cause::chain};
use drivebay_sys::{blockdev::BlockDev, dm::SnapshotStatus};
use drivebay_worker::Context;

/// Smaller ones make large writes to the volume slow, larger ones copy much for small writes. Chosen by a trial of a few sizes; not
/// measured on drives.
const CHUNK: &str = "64k";
/// Size of `CHUNK`, bytes.
const CHUNK_BYTES: u64 = 64 << 10;
/// Size of the kernel's metadata for each chunk that it stores, bytes.
const NOTE_BYTES: u64 = 16;
/// A store smaller than this would be full at once.
const LEAST: u64 = 8 * MIB;

/// Parameters of the LV that stores a snapshot.
pub(super) struct Store {
    pub(super) name: String,
    pub(super) tags: Vec<String>,
    /// Rounded up to whole extents.
    pub(super) bytes: u64,
    /// The kernel takes zeros for a store that is empty.
    pub(super) need: space::Need,
    /// The unit in which it stores; None: LVM's default.
    pub(super) chunk: Option<&'static str>,
}

/// Returns the bytes of a store with room for this much of a volume's contents and for the kernel's metadata of them, in whole extents.
/// With the volume's size, the store never becomes full. Pure.
pub fn whole(contents_bytes: u64) -> u64 {
    let chunks = contents_bytes.div_ceil(CHUNK_BYTES);
    let notes = chunks
        .saturating_mul(NOTE_BYTES)
        .next_multiple_of(CHUNK_BYTES);
    // A header, and one area of notes more than is needed.
    let all = chunks.saturating_mul(CHUNK_BYTES).saturating_add(notes);
    all.saturating_add(4 * CHUNK_BYTES)
        .checked_next_multiple_of(plan::EXTENT_BYTES)
        .unwrap_or(u64::MAX)
}

/// The room that a snapshot gets when this much was asked for. Pure.
pub fn reserve(volume_bytes: u64, requested: u64) -> u64 {
    requested
        .max(LEAST)
        .min(whole(volume_bytes))
        .next_multiple_of(plan::EXTENT_BYTES)
}

/// Takes a snapshot, or finds the one of this name.
pub(crate) fn take(
    dev: &Arc<BlockDev>,
    job: &TakeSnapshot,
    context: &mut Context,
) -> Result<Changed, LayoutError> {
    let mut session = Session::open(dev, true)?;
    let contents = session.contents()?;
    let placed = session.living(&contents, job.record.volume)?.clone();
    fit(&placed)?;
    if let Some(existing) = placed
        .snapshots
        .iter()
        .find(|one| is_namesake(&one.record, &job.record))
    {
        fit_snapshot(existing)?;
        if is_answer(&existing.record, &job.record) {
            // An attempt that failed may not have made its record durable.
            session.flush()?;
            return unchanged(session.contents()?);
        }
        return Err(LayoutError::Busy {
            drive: session.id.to_string(),
            reason: format!(
                "an incomplete snapshot {} of the same name is still to be deleted",
                existing.record.uuid
            ),
        });
    }
    session.unchecked(job.record.volume)?;
    let lv = session.lv(job.record.volume)?;
    session.takes_snapshots(&lv)?;
    let record = SnapshotRecord {
        size_bytes: placed.record.size_bytes(),
        // A member of a group is completed later.
        is_complete: job.record.group.is_none(),
        ..job.record.clone()
    };
    let incomplete = SnapshotRecord {
        is_complete: false,
        ..record.clone()
    };
    let store = Store {
        name: name::snapshot(record.uuid),
        tags: tags::of_snapshot(&incomplete),
        bytes: reserve(placed.record.extent.len, job.reserve_bytes),
        need: space::Need::Ends,
        chunk: Some(CHUNK),
    };
    let attached = session.attach(&lv, &store, context);
    let completed = attached.and_then(|()| {
        session.see_again()?;
        if record.is_complete {
            if placed.mapping.is_some() {
                let lv = session.view.checks.get(&record.uuid);
                session.restart(dev, &placed, record.uuid, lv, context)?;
            }
            session.write_complete(&incomplete)?;
            session.see_again()?;
        }
        session.keep_copy()
    });
    if let Err(error) = completed {
        if matches!(error, LayoutError::StillSuspended { .. }) {
            // LVM would wait for the volume; the snapshot is deleted as an incomplete one.
            return Err(error);
        }
        let in_doubt = |again| in_doubt_of("taking a snapshot", &job.drive.id, &again);
        // It may have been ended while the volume stood still: this sets it going again, and takes the snapshot from it.
        drop(session);
        let mut session = Session::open(dev, true).map_err(in_doubt)?;
        let taken = session.snapshot(record.uuid);
        // A member of a group that may be incomplete is deleted with its group.
        if !taken.is_some_and(|taken| taken.record.is_complete && is_held(taken)) {
            return Err(error);
        }
        // The step that failed may be the one that makes this record durable.
        session.flush().map_err(in_doubt)?;
        session.keep_copy().map_err(in_doubt)?;
        return session.answer();
    }
    match session.snapshot(record.uuid) {
        Some(taken) if is_held(taken) => session.answer(),
        Some(_) => Err(damaged(
            &session.id,
            "the kernel does not have the snapshot that was taken".into(),
        )),
        None => Err(damaged(
            &session.id,
            "the snapshot that was taken did not read back".into(),
        )),
    }
}

/// True if the kernel has the snapshot's device, and the snapshot is neither lost nor ambiguous. Pure.
fn is_held(snapshot: &PlacedSnapshot) -> bool {
    snapshot.ambiguous.is_none() && snapshot.device.is_some() && !snapshot.is_overflowed
}

/// True if both have the same name, unless they are members of groups with different names. Pure.
fn is_namesake(existing: &SnapshotRecord, requested: &SnapshotRecord) -> bool {
    let of_one_name = match (&existing.group, &requested.group) {
        (Some(group), Some(other)) => group.name == other.name,
        _ => true,
    };
    existing.name == requested.name && of_one_name
}

/// True if an existing snapshot of the requested name satisfies the request: it is complete, or has the same uuid. Pure.
fn is_answer(existing: &SnapshotRecord, requested: &SnapshotRecord) -> bool {
    existing.is_complete || existing.uuid == requested.uuid
}

/// Records that snapshots of a group are complete. See `CompleteSnapshots`.
pub(crate) fn complete(dev: &BlockDev, uuids: &[Uuid]) -> Result<Changed, LayoutError> {
    let mut session = Session::open(dev, true)?;
    let records = session.usable(uuids)?;
    let incomplete = || records.iter().filter(|record| !record.is_complete);
    if incomplete().next().is_none() {
        // An attempt that failed may not have made their records durable.
        session.flush()?;
        return unchanged(session.contents()?);
    }
    incomplete().try_for_each(|record| session.write_complete(record))?;
    session.see_again()?;
    session.keep_copy()?;
    let is_complete = |record: &SnapshotRecord| record.is_complete;
    match session.usable(uuids)?.iter().all(is_complete) {
        true => session.answer(),
        false => Err(damaged(
            &session.id,
            "a snapshot did not read back as complete".into(),
        )),
    }
}

/// Takes a snapshot from its volume. What it stored is marked for erasing (`check`). One that is not there is left alone.
pub(crate) fn drop_one(dev: &BlockDev, uuid: Uuid) -> Result<Changed, LayoutError> {
    let mut session = Session::open(dev, true)?;
    let Some(lv) = session.view.snapshots.get(&uuid).cloned() else {
        return unchanged(session.contents()?);
    };
    if session.is_open(&lv)? {
        return Err(LayoutError::SnapshotInUse {
            drive: session.id.to_string(),
            uuid,
        });
    }
    let args = vec![
        session.vg().into(),
        lv.name.clone().into(),
        name::check(uuid).into(),
    ];
    // Suspends the volume.
    let done = session.lvm_patiently("marking a snapshot for erasing", "lvrename", args);
    match &done {
        Ok(()) => session.see_again()?,
        // A command that was ended may leave the volume suspended: this resumes it.
        Err(_) => {
            drop(session);
            session = Session::open(dev, true)?;
        }
    }
    if session.view.snapshots.contains_key(&uuid) {
        return Err(done.err().unwrap_or_else(|| {
            damaged(
                &session.id,
                "the snapshot did not read back as deleted".into(),
            )
        }));
    }
    session.keep_copy()?;
    session.part_checks()?;
    session.answer()
}

fn fit_snapshot(snapshot: &PlacedSnapshot) -> Result<(), LayoutError> {
    match &snapshot.ambiguous {
        None => Ok(()),
        Some(reason) => Err(LayoutError::Ambiguous {
            uuid: snapshot.record.uuid,
            reason: reason.clone(),
        }),
    }
}

/// Applies the kernel's status of an active snapshot. If the status cannot be read, an incomplete snapshot counts as lost, a complete one
/// as ambiguous. Pure.
pub(super) fn apply_status(
    snapshot: &mut PlacedSnapshot,
    status: io::Result<Option<SnapshotStatus>>,
) {
    match status {
        Ok(status) => snapshot.is_overflowed |= status == Some(SnapshotStatus::Lost),
        // E.g. its table fails all I/O. It was never acknowledged, so that it is deleted.
        Err(_) if !snapshot.record.is_complete => snapshot.is_overflowed = true,
        // The drive and its other snapshots are not affected.
        Err(error) => {
            let why = format!("the kernel does not say whether it is valid: {error}");
            snapshot.ambiguous.get_or_insert(why);
        }
    }
}

/// Returns the record of a snapshot that is complete or can be completed; Err: the reason why it cannot. Pure.
fn usable(snapshot: Option<&PlacedSnapshot>) -> Result<SnapshotRecord, String> {
    let Some(snapshot) = snapshot else {
        return Err("it is not there".into());
    };
    let why = match &snapshot.ambiguous {
        Some(why) => why.clone(),
        None if snapshot.record.is_complete => return Ok(snapshot.record.clone()),
        None if snapshot.is_overflowed => LOST.to_owned(),
        None if snapshot.device.is_none() => "the kernel does not have it".to_owned(),
        None => return Ok(snapshot.record.clone()),
    };
    Err(why)
}

/// Returns the records of complete snapshots that the kernel has invalidated and that are not recorded as lost. Incomplete ones are deleted
/// or restarted instead. Pure.
fn unrecorded_losses(contents: &Contents) -> Vec<SnapshotRecord> {
    let all = contents.snapshots();
    let lost = all.filter(|one| one.is_overflowed && one.ambiguous.is_none());
    let lost = lost.map(|one| one.record.clone());
    lost.filter(|record| record.is_complete && !record.is_lost)
        .collect()
}

impl Session<'_> {
    /// Makes an LV from free space and has it store from then on what another LV had before it is written to. What came of it the
    /// caller sees again, also after a failure.
    pub(super) fn attach(
        &mut self,
        lv: &Lv,
        store: &Store,
        context: &mut Context,
    ) -> Result<(), LayoutError> {
        let contents = self.contents()?;
        let no_space = |needed| LayoutError::NoSpace {
            drive: self.id.to_string(),
            needed,
            largest: contents.largest_free(),
        };
        let size = volumes_plan::rounded(store.bytes).ok_or_else(|| no_space(store.bytes))?;
        let runs = space::room(self, &contents, store.need, |_, contents| {
            plan::allocate(&contents.free, size).ok_or_else(|| no_space(size))
        })?;
        let mut args: Vec<OsString> = [
            "--yes",
            "--zero=n",
            "--wipesignatures=n",
            "--activate=n",
            "--type=linear",
        ]
        .map(OsString::from)
        .to_vec();
        for tag in &store.tags {
            args.extend(["--addtag".into(), tag.into()]);
        }
        args.extend([
            "--extents".into(),
            extents_of(&runs).into(),
            "--name".into(),
            store.name.clone().into(),
            self.vg().into(),
            self.ranges(&runs).into(),
        ]);
        context.step("making room for a snapshot");
        self.lvm("making room for a snapshot", "lvcreate", args)?;
        let mut args: Vec<OsString> = ["--yes", "--type=snapshot", "--zero=n"]
            .map(OsString::from)
            .to_vec();
        if let Some(chunk) = store.chunk {
            args.extend(["--chunksize".into(), chunk.into()]);
        }
        args.extend([
            self.path(lv),
            format!("{}/{}", self.vg(), store.name).into(),
        ]);
        context.step("making a snapshot");
        self.lvm_patiently("making a snapshot", "lvconvert", args)
    }

    /// Fails where LVM cannot make a snapshot of the LV.
    pub(super) fn takes_snapshots(&self, lv: &Lv) -> Result<(), LayoutError> {
        if name::takes_snapshots(self.vg(), &lv.name) {
            return Ok(());
        }
        Err(LayoutError::Busy {
            drive: self.id.to_string(),
            reason: format!(
                "the name of LV {} is too long for one that has a snapshot",
                lv.name
            ),
        })
    }

    /// Restarts a snapshot that was attached to an encrypted volume, with the volume's filesystem frozen (`together::restart`). `lv`: the
    /// snapshot, which is attached to the volume.
    pub(super) fn restart(
        &self,
        dev: &Arc<BlockDev>,
        placed: &Placed,
        uuid: Uuid,
        lv: Option<&Lv>,
        context: &mut Context,
    ) -> Result<(), LayoutError> {
        let missing = || {
            damaged(
                &self.id,
                "the snapshot that was made did not read back".into(),
            )
        };
        let member = Member {
            uuid,
            origin: placed.dm_uuid.clone().ok_or_else(missing)?,
            snapshot: view::dm_uuid(&self.committed.vg, lv.ok_or_else(missing)?),
            mapping: placed.mapping_uuid(),
        };
        together::restart(dev, placed.record.uuid, member, context)
    }

    fn snapshot(&self, uuid: Uuid) -> Option<&PlacedSnapshot> {
        self.view.contents.snapshot(uuid)
    }

    /// Returns the records of these snapshots. Errs with `NotTogether` if one is neither complete nor can be completed.
    fn usable(&self, uuids: &[Uuid]) -> Result<Vec<SnapshotRecord>, LayoutError> {
        let record = |uuid: &Uuid| {
            usable(self.snapshot(*uuid)).map_err(|why| LayoutError::NotTogether {
                why: format!("snapshot {uuid} on drive {}: {why}", self.id),
            })
        };
        uuids.iter().map(record).collect()
    }

    /// Marks an incomplete snapshot as complete in its tags.
    fn write_complete(&self, record: &SnapshotRecord) -> Result<(), LayoutError> {
        let complete = SnapshotRecord {
            is_complete: true,
            ..record.clone()
        };
        self.write_snapshot("completing a snapshot", record, &complete)
    }

    fn write_snapshot(
        &self,
        what: &str,
        record: &SnapshotRecord,
        wanted: &SnapshotRecord,
    ) -> Result<(), LayoutError> {
        let options = tags::options(&tags::of_snapshot(record), &tags::of_snapshot(wanted));
        let path = format!("{}/{}", self.vg(), name::snapshot(record.uuid));
        let args = options.into_iter().chain([path.into()]).collect();
        self.lvm(what, "lvchange", args)
    }

    /// Marks snapshots that the kernel has invalidated as lost in their tags. A write that fails is noted in the contents, and repeated by
    /// the next `ReadDrive` with repair.
    pub(super) fn record_losses(&mut self) -> Result<(), LayoutError> {
        let lost = unrecorded_losses(&self.view.contents);
        if lost.is_empty() {
            return Ok(());
        }
        let mut unwritten = Vec::new();
        for record in &lost {
            let wanted = SnapshotRecord {
                is_lost: true,
                ..record.clone()
            };
            match self.write_snapshot("recording that a snapshot is lost", record, &wanted) {
                Ok(()) => {
                    tracing::warn!(drive = %self.id, snapshot = %record.uuid, "snapshot recorded as lost");
                }
                Err(error) => {
                    let why = chain(&error);
                    tracing::error!(drive = %self.id, snapshot = %record.uuid, error = why, "cannot record that a snapshot is lost; after the host's next start it would look valid");
                    unwritten.push(format!(
                        "snapshot {} is lost, which could not be recorded: {why}",
                        record.uuid
                    ));
                }
            }
        }
        self.see_again()?;
        self.notes.extend(unwritten);
        self.keep_copy()
    }

    /// Fails while a volume has snapshots: they would be lost, or LVM refuses.
    pub(super) fn without_snapshots(&self, uuid: Uuid) -> Result<(), LayoutError> {
        let snapshots = self.volume(uuid).map(|placed| placed.snapshots.as_slice());
        match snapshots {
            Some(snapshots) if !snapshots.is_empty() => Err(LayoutError::HasSnapshots {
                uuid,
                snapshots: snapshots
                    .iter()
                    .map(|one| one.record.name.clone())
                    .collect(),
            }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::{GIB, RecordState, samples, volume_snapshot::SnapshotGroup};

    #[test]
    fn a_snapshot_of_the_name_is_the_answer_unless_it_is_what_an_earlier_group_left() {
        let requested = samples::snapshot(1, 2).record;
        let with = |uuid, is_complete| SnapshotRecord {
            uuid: Uuid::from_u128(uuid),
            is_complete,
            ..requested.clone()
        };
        assert!(is_answer(&with(3, true), &requested));
        assert!(is_answer(&with(1, false), &requested), "the same one");
        assert!(!is_answer(&with(3, false), &requested));
    }

    #[test]
    fn members_of_groups_of_different_names_may_be_called_the_same_and_nothing_else() {
        let alone = samples::snapshot(1, 2).record;
        let member = |group: &str| SnapshotRecord {
            group: Some(SnapshotGroup {
                uuid: Uuid::from_u128(90),
                name: group.into(),
                members: 2,
            }),
            ..alone.clone()
        };
        for (existing, requested, expected) in [
            (alone.clone(), alone.clone(), true),
            (member("a"), alone.clone(), true),
            (alone.clone(), member("a"), true),
            (member("a"), member("a"), true),
            (member("a"), member("b"), false),
        ] {
            let other = SnapshotRecord {
                name: "other".into(),
                ..existing.clone()
            };
            assert_eq!(is_namesake(&existing, &requested), expected, "{existing:?}");
            assert!(!is_namesake(&other, &requested));
        }
    }

    #[test]
    fn only_a_loss_that_the_kernel_reports_of_a_complete_snapshot_is_recorded_and_once() {
        let recorded = |change: fn(&mut PlacedSnapshot)| {
            let mut one = samples::snapshot(1, 2);
            change(&mut one);
            let mut placed = samples::placed(2, RecordState::Block);
            placed.snapshots.push(one);
            unrecorded_losses(&samples::contents(1, 1, vec![placed], 0)).len()
        };
        assert_eq!(recorded(|one| one.is_overflowed = true), 1);
        for change in [
            (|_| {}) as fn(&mut PlacedSnapshot),
            |one| {
                one.is_overflowed = true;
                one.record.is_lost = true;
            },
            |one| {
                one.is_overflowed = true;
                one.record.is_complete = false;
            },
            // E.g. its status could not be read.
            |one| {
                one.is_overflowed = true;
                one.ambiguous = Some("the kernel does not say whether it is valid".into());
            },
        ] {
            assert_eq!(recorded(change), 0);
        }
    }

    #[test]
    fn a_snapshot_is_held_only_with_a_device_if_it_is_neither_lost_nor_ambiguous() {
        let with = |change: fn(&mut PlacedSnapshot)| {
            let mut one = samples::snapshot(1, 2);
            change(&mut one);
            is_held(&one)
        };
        assert!(with(|_| {}));
        assert!(!with(|one| one.device = None));
        assert!(!with(|one| one.is_overflowed = true));
        assert!(!with(|one| one.ambiguous = Some("its tags are gone".into())));
    }

    #[test]
    fn an_incomplete_snapshot_whose_status_does_not_read_is_lost_and_a_complete_one_ambiguous() {
        let with = |is_complete, status| {
            let mut one = samples::snapshot(1, 2);
            one.record.is_complete = is_complete;
            apply_status(&mut one, status);
            (one.is_overflowed, one.ambiguous.is_some())
        };
        // The status of a table that fails all I/O.
        let unreadable = || Err(io::ErrorKind::InvalidData.into());
        assert_eq!(with(true, unreadable()), (false, true));
        assert_eq!(with(false, unreadable()), (true, false));
        let valid = SnapshotStatus::Valid {
            used_bytes: 0,
            total_bytes: MIB,
        };
        for is_complete in [true, false] {
            let lost = with(is_complete, Ok(Some(SnapshotStatus::Lost)));
            assert_eq!(lost, (true, false));
            assert_eq!(with(is_complete, Ok(Some(valid))), (false, false));
        }
        let mut odd = samples::snapshot(1, 2);
        odd.record.is_complete = false;
        odd.ambiguous = Some("its tags are gone".into());
        apply_status(&mut odd, unreadable());
        assert_eq!(odd.ambiguous.as_deref(), Some("its tags are gone"));
    }

    #[test]
    fn only_a_snapshot_that_the_kernel_holds_is_completed_and_a_complete_one_is_left() {
        let why = |change: fn(&mut PlacedSnapshot)| {
            let mut one = samples::snapshot(1, 2);
            one.record.is_complete = false;
            change(&mut one);
            usable(Some(&one)).err()
        };
        assert_eq!(why(|_| {}), None);
        for (change, expected) in [
            (
                (|one: &mut PlacedSnapshot| one.device = None) as fn(&mut PlacedSnapshot),
                "kernel",
            ),
            (|one| one.is_overflowed = true, LOST),
            (
                |one| one.ambiguous = Some("its tags are gone".into()),
                "tags",
            ),
        ] {
            let why = why(change).unwrap();
            assert!(why.contains(expected), "{why}");
        }
        let complete_and_full = |one: &mut PlacedSnapshot| {
            one.record.is_complete = true;
            one.is_overflowed = true;
        };
        assert_eq!(why(complete_and_full), None);
        assert!(usable(None).is_err());
    }

    #[test]
    fn a_store_is_never_larger_than_what_can_be_stored_and_never_smaller_than_8_mib() {
        assert_eq!(reserve(GIB, 1), 8 * MIB);
        assert_eq!(reserve(GIB, 200 * MIB + 1), 201 * MIB);
        assert_eq!(reserve(64 * MIB, whole(64 * MIB)), 65 * MIB);
        // 16384 chunks with 16 bytes of notes each, and a header.
        assert_eq!(whole(GIB), GIB + MIB);
        assert_eq!(reserve(GIB, 10 * GIB), GIB + MIB);
        assert_eq!(reserve(16 * MIB, 10 * GIB), 17 * MIB);
    }
}
