//! Snapshots of volumes, each an LV `drivebay-snap-<uuid>` that stores what its volume had before it was written to since.
//!
//! One is made from free space as an LV of its own, then attached to its volume, during which LVM makes the volume stand still and the
//! kernel freezes its filesystem; then its tags say that it is complete. Until they do it was answered to nobody, and the next look
//! with repair takes it away (`check`). So does a deletion, which gives it the name of what a check leaves.

use std::ffi::OsString;

use uuid::Uuid;

use super::{change::extents_of, metadata::Lv, name, plan, session::Session, tags};
use crate::{
    claimed::{ClaimedDrive, in_doubt_of},
    error::{CarveError, damaged, fit},
    jobs::{Changed, TakeSnapshot},
    plan as carving, space,
};
use drivebay_model::{MIB, PlacedSnapshot, SnapshotRecord};
use drivebay_sys::blockdev::BlockDev;
use drivebay_worker::Context;

/// Of the table of the dozen sizes that were measured: smaller ones make large writes to the volume slow, larger ones copy much for
/// small writes.
const CHUNK: &str = "64k";
/// The same, bytes.
const CHUNK_BYTES: u64 = 64 << 10;
/// What the kernel notes of each chunk that it stores, bytes.
const NOTE_BYTES: u64 = 16;
/// A store smaller than this would be full at once.
const LEAST: u64 = 8 * MIB;

/// What an LV is made as that stores a snapshot.
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

/// Bytes of a store that holds all of a volume of this size. One that is larger is never full. Pure.
pub fn whole(volume_bytes: u64) -> u64 {
    let chunks = volume_bytes.div_ceil(CHUNK_BYTES);
    let notes = chunks
        .saturating_mul(NOTE_BYTES)
        .next_multiple_of(CHUNK_BYTES);
    // A header, and one area of notes more than is needed.
    let all = chunks.saturating_mul(CHUNK_BYTES).saturating_add(notes);
    all.saturating_add(4 * CHUNK_BYTES)
        .next_multiple_of(plan::EXTENT_BYTES)
}

/// The room that a snapshot gets when this much was asked for. Pure.
pub fn reserve(volume_bytes: u64, asked: u64) -> u64 {
    asked
        .max(LEAST)
        .min(whole(volume_bytes))
        .next_multiple_of(plan::EXTENT_BYTES)
}

/// Takes a snapshot, or finds the one of this name.
pub(crate) fn take(
    dev: &BlockDev,
    job: &TakeSnapshot,
    context: &mut Context,
) -> Result<Changed, CarveError> {
    let mut session = Session::open(dev, true)?;
    let record = &job.record;
    let placed = session
        .living(&session.view.contents, record.volume)?
        .clone();
    fit(&placed)?;
    if let Some(existing) = placed
        .snapshots
        .iter()
        .find(|one| one.record.name == record.name)
    {
        fit_snapshot(existing)?;
        return unchanged(&session);
    }
    session.unchecked(record.volume)?;
    let lv = session.lv(record.volume)?;
    session.takes_snapshots(&lv)?;
    let incomplete = SnapshotRecord {
        size_bytes: placed.record.extent.len,
        is_complete: false,
        ..record.clone()
    };
    let name = name::snapshot(record.uuid);
    let store = Store {
        name: name.clone(),
        tags: tags::of_snapshot(&incomplete),
        bytes: reserve(placed.record.extent.len, job.reserve_bytes),
        need: space::Need::Ends,
        chunk: Some(CHUNK),
    };
    let attached = session.attach(&lv, &store, context);
    let completed = attached.and_then(|()| {
        session.see_again()?;
        let complete = SnapshotRecord {
            is_complete: true,
            ..incomplete.clone()
        };
        let options = tags::options(&store.tags, &tags::of_snapshot(&complete));
        let path = OsString::from(format!("{}/{name}", session.vg()));
        let args = options.into_iter().chain([path]).collect();
        session.lvm("completing a snapshot", "lvchange", args)?;
        session.see_again()?;
        session.keep_copy()
    });
    if let Err(error) = completed {
        // It may have been ended while the volume stood still: this sets it going again, and takes the snapshot from it.
        drop(session);
        let session = Session::open(dev, true)
            .map_err(|again| in_doubt_of("taking a snapshot", &job.drive.id, &again))?;
        let is_complete = session.view.snapshots.contains_key(&record.uuid);
        return match is_complete {
            true => changed(&session),
            false => Err(error),
        };
    }
    let taken = session.snapshot(record.volume, record.uuid);
    match taken {
        Some(taken)
            if taken.ambiguous.is_none() && taken.device.is_some() && !taken.is_overflowed =>
        {
            changed(&session)
        }
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

/// Takes a snapshot from its volume. What it stored is erased by `check::clear`. One that is not there is left alone.
pub(crate) fn drop_one(dev: &BlockDev, uuid: Uuid) -> Result<Changed, CarveError> {
    let mut session = Session::open(dev, true)?;
    let Some(lv) = session.view.snapshots.get(&uuid).cloned() else {
        return unchanged(&session);
    };
    if session.is_open(&lv)? {
        return Err(CarveError::SnapshotInUse {
            drive: session.id.to_string(),
            uuid,
        });
    }
    let args = vec![
        session.vg().into(),
        lv.name.clone().into(),
        name::check(uuid).into(),
    ];
    let done = session.lvm("marking a snapshot for erasing", "lvrename", args);
    session.see_again()?;
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
    changed(&session)
}

fn fit_snapshot(snapshot: &PlacedSnapshot) -> Result<(), CarveError> {
    match &snapshot.ambiguous {
        None => Ok(()),
        Some(reason) => Err(CarveError::Ambiguous {
            uuid: snapshot.record.uuid,
            reason: reason.clone(),
        }),
    }
}

fn unchanged(session: &Session<'_>) -> Result<Changed, CarveError> {
    Ok(Changed {
        contents: session.contents()?,
        changed: false,
    })
}

fn changed(session: &Session<'_>) -> Result<Changed, CarveError> {
    Ok(Changed {
        contents: session.contents()?,
        changed: true,
    })
}

impl Session<'_> {
    /// Makes an LV from free space and has it store from then on what another LV had before it is written to. What came of it the
    /// caller sees again, also after a failure.
    pub(super) fn attach(
        &mut self,
        lv: &Lv,
        store: &Store,
        context: &mut Context,
    ) -> Result<(), CarveError> {
        let contents = self.contents()?;
        let no_space = |needed| CarveError::NoSpace {
            drive: self.id.to_string(),
            needed,
            largest: contents.largest_free(),
        };
        let size = carving::rounded(store.bytes).ok_or_else(|| no_space(store.bytes))?;
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
    pub(super) fn takes_snapshots(&self, lv: &Lv) -> Result<(), CarveError> {
        if name::takes_snapshots(self.vg(), &lv.name) {
            return Ok(());
        }
        Err(CarveError::Busy {
            drive: self.id.to_string(),
            reason: format!(
                "the name of LV {} is too long for one that has a snapshot",
                lv.name
            ),
        })
    }

    /// A snapshot of a volume.
    fn snapshot(&self, volume: Uuid, uuid: Uuid) -> Option<&PlacedSnapshot> {
        let all = &self.volume(volume)?.snapshots;
        all.iter().find(|one| one.record.uuid == uuid)
    }

    /// Fails while a volume has snapshots: they would be lost, or LVM refuses.
    pub(super) fn without_snapshots(&self, uuid: Uuid) -> Result<(), CarveError> {
        let snapshots = self.volume(uuid).map(|placed| placed.snapshots.as_slice());
        match snapshots {
            Some(snapshots) if !snapshots.is_empty() => Err(CarveError::HasSnapshots {
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
    use drivebay_model::GIB;

    #[test]
    fn a_store_is_never_larger_than_what_can_be_stored_and_never_smaller_than_8_mib() {
        assert_eq!(reserve(GIB, 1), 8 * MIB);
        assert_eq!(reserve(GIB, 200 * MIB + 1), 201 * MIB);
        // 16384 chunks with 16 bytes of notes each, and a header.
        assert_eq!(whole(GIB), GIB + MIB);
        assert_eq!(reserve(GIB, 10 * GIB), GIB + MIB);
        assert_eq!(reserve(16 * MIB, 10 * GIB), 17 * MIB);
    }
}
