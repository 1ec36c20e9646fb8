//! Making deleted space zeros again, a bounded piece at a time, and freeing it when all of it is.
//!
//! The LV is not active: what is zeroed are its runs on the drive itself. How far that is is noted, without any
//! process, in the last 4 KiB of the LV, at least every GiB; the note is part of what is erased, and the last of it.
//!
//! # The note
//! Bytes 0..8 `DRVBAYER`, 8..24 the erase guid (RFC 9562 order), 24..32 bytes done (little-endian), 32..4092 zeros, then
//! CRC-32 of all that. Its guid was made when the volume was deleted and stands in the LV's name, so nothing
//! that a tenant wrote is taken for a note.

use std::io;

use uuid::Uuid;

use super::{
    plan,
    session::Session,
    tags::{self, VgMark},
};
use crate::carve::{
    device::{self, Device, Medium},
    erase::{Pace, begin},
    jobs::{CarveError, EraseProgress},
    partition::{self, fit, in_use, io_error, named, zero_ends},
    record::FreeSpace,
};
use crate::model::{DriveRef, ErasePolicy, Extent, GIB, MIB, RecordState};
use crate::worker::Context;

/// Progress is noted this often, in bytes.
const NOTED_EVERY: u64 = GIB;
/// Bytes of a note: whole sectors of any size.
const NOTE: u64 = 4096;
const MAGIC: &[u8; 8] = b"DRVBAYER";

/// What is to be erased.
struct Target {
    runs: Vec<Extent>,
    total: u64,
    policy: ErasePolicy,
    done: u64,
    guid: Uuid,
}

/// Erases for about `budget_ms`.
pub(in crate::carve) fn step(
    drive: &DriveRef,
    uuid: Uuid,
    from_bytes: Option<u64>,
    budget_ms: u64,
    context: &mut Context,
) -> Result<EraseProgress, CarveError> {
    let io = |what: &str| io_error(&drive.id, what);
    let mut dev = partition::open(drive)?;
    partition::lock(&mut dev)?;
    let session = Session::open(&dev, true)?;
    let Some(target) = target(&session, uuid)? else {
        return Ok(EraseProgress {
            done_bytes: 0,
            total_bytes: 0,
            finished: Some(session.contents()),
        });
    };
    drop(session);
    let Target {
        runs, total, guid, ..
    } = &target;
    let mut done = begin(target.done, from_bytes, *total);
    if target.policy == ErasePolicy::Zero {
        dev.unlock();
        let mut pace = Pace::new(budget_ms);
        let mut noted = target.done;
        while let Some(left) = plan::at(runs, done) {
            context.step("erase");
            done += pace.zero(&dev, left).map_err(io("erasing"))?;
            if done - noted.min(done) >= NOTED_EVERY && done < *total {
                partition::lock(&mut dev)?;
                // Somebody may have come between.
                if target_of(&Session::open(&dev, false)?, uuid)?
                    .is_none_or(|now| now.guid != *guid || now.runs != *runs)
                {
                    break;
                }
                write_note(&dev, runs, *guid, done).map_err(io("noting how far erasing is"))?;
                noted = done;
                dev.unlock();
            }
            if pace.is_over() {
                break;
            }
        }
        partition::lock(&mut dev)?;
        if done < *total {
            return Ok(EraseProgress {
                done_bytes: done,
                total_bytes: *total,
                finished: None,
            });
        }
    }
    context.step("free erased space");
    let session = free(Session::open(&dev, true)?, uuid, *guid)?;
    Ok(EraseProgress {
        done_bytes: *total,
        total_bytes: *total,
        finished: Some(session.contents()),
    })
}

/// The deleted volume, not active; None when it is not on the drive (any more).
fn target(session: &Session<'_>, uuid: Uuid) -> Result<Option<Target>, CarveError> {
    let found = target_of(session, uuid)?;
    if let (Some(_), Some(lv), Some(placed)) =
        (&found, session.view.lvs.get(&uuid), session.volume(uuid))
    {
        // Nobody may read or write it any more; somebody may have activated it by hand.
        if session.device(lv).is_some() && !session.take_from_kernel(lv)? {
            return Err(in_use(placed));
        }
    }
    Ok(found)
}

fn target_of(session: &Session<'_>, uuid: Uuid) -> Result<Option<Target>, CarveError> {
    let Some(placed) = session.volume(uuid) else {
        return Ok(None);
    };
    fit(placed)?;
    let RecordState::Erasing {
        erase_guid,
        done_bytes,
    } = placed.record.state
    else {
        return Err(CarveError::BadTransition {
            uuid,
            from: named(&placed.record.state),
            to: "erased".into(),
        });
    };
    let Some(lv) = session.view.lvs.get(&uuid) else {
        return Err(CarveError::Ambiguous {
            uuid,
            reason: "it has no LV".into(),
        });
    };
    let runs = session.runs(lv);
    Ok(Some(Target {
        total: runs.iter().map(|run| run.len).sum(),
        runs,
        policy: placed.record.erase,
        done: done_bytes,
        guid: erase_guid,
    }))
}

/// Ends it: checks, and gives the space back.
fn free(mut session: Session<'_>, uuid: Uuid, guid: Uuid) -> Result<Session<'_>, CarveError> {
    let Some(target) = target(&session, uuid)?.filter(|target| target.guid == guid) else {
        return Ok(session);
    };
    let io = |what: &str| io_error(&session.id, what);
    let dev = session.dev;
    match target.policy {
        ErasePolicy::Zero => {
            dev.flush().map_err(io("flushing"))?;
            for run in &target.runs {
                let found = device::sample_nonzero(dev, *run, MIB.min(run.len))
                    .map_err(io("checking that it is erased"))?;
                if let Some(offset) = found {
                    return Err(CarveError::NotErased {
                        drive: session.id.to_string(),
                        offset,
                    });
                }
            }
        }
        ErasePolicy::Signatures => {
            for run in &target.runs {
                zero_ends(dev, *run, MIB.min(run.len)).map_err(io("erasing signatures"))?;
            }
            // From now on nobody may believe that free space on this drive is zeros.
            distrust_free_space(&mut session)?;
        }
    }
    let Some(lv) = session.view.lvs.get(&uuid) else {
        return Ok(session);
    };
    let args = vec!["--force".into(), "--yes".into(), session.path(lv)];
    let done = session.lvm("freeing erased space", "lvremove", args);
    session.see_again()?;
    match (done, session.volume(uuid)) {
        (_, None) => {
            session.keep_copy()?;
            Ok(session)
        }
        (Err(error), Some(_)) => Err(error),
        (Ok(()), Some(_)) => Err(super::session::damaged(
            &session.id,
            format!("the erased volume {uuid} is still there after it was removed"),
        )),
    }
}

fn distrust_free_space(session: &mut Session<'_>) -> Result<(), CarveError> {
    if session.view.mark.free_space == FreeSpace::Unknown {
        return Ok(());
    }
    let wanted = tags::of_vg(&VgMark {
        free_space: FreeSpace::Unknown,
        ..session.view.mark.clone()
    });
    let mut args = tags::options(&session.committed.vg.tags, &wanted);
    args.push(session.vg().into());
    session.lvm("noting that free space is not zeros", "vgchange", args)?;
    session.see_again()?;
    session.keep_copy()?;
    if session.view.mark.free_space == FreeSpace::Unknown {
        return Ok(());
    }
    Err(super::session::damaged(
        &session.id,
        "that free space is not zeros did not read back".into(),
    ))
}

fn note_place(runs: &[Extent]) -> Option<u64> {
    runs.last()
        .filter(|run| run.len >= NOTE)
        .map(|run| run.end() - NOTE)
}

/// How far erasing got, when there is a note of this guid.
pub(super) fn read_note<D: Medium + ?Sized>(
    dev: &D,
    runs: &[Extent],
    guid: Uuid,
) -> io::Result<Option<u64>> {
    let Some(at) = note_place(runs) else {
        return Ok(None);
    };
    let mut raw = vec![0; NOTE as usize];
    dev.read_at(at, &mut raw)?;
    let mut done = [0; 8];
    done.copy_from_slice(&raw[24..32]);
    let done = u64::from_le_bytes(done);
    let total: u64 = runs.iter().map(|run| run.len).sum();
    Ok((done < total && raw == note(guid, done)).then_some(done))
}

fn write_note<D: Device + ?Sized>(
    dev: &D,
    runs: &[Extent],
    guid: Uuid,
    done: u64,
) -> io::Result<()> {
    if let Some(at) = note_place(runs) {
        dev.write_at(at, &note(guid, done))?;
        dev.flush()?;
    }
    Ok(())
}

fn note(guid: Uuid, done: u64) -> Vec<u8> {
    let mut raw = vec![0; NOTE as usize];
    raw[..8].copy_from_slice(MAGIC);
    raw[8..24].copy_from_slice(guid.as_bytes());
    raw[24..32].copy_from_slice(&done.to_le_bytes());
    let end = raw.len() - 4;
    let crc = crc32fast::hash(&raw[..end]);
    raw[end..].copy_from_slice(&crc.to_le_bytes());
    raw
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carve::fake::FakeDrive;

    fn run(start: u64, len: u64) -> Extent {
        Extent {
            start: start * MIB,
            len: len * MIB,
        }
    }

    #[test]
    fn a_note_is_believed_only_of_its_own_erasing() {
        let drive = FakeDrive::new(64 * MIB, 512);
        let (runs, guid) = ([run(20, 4), run(9, 2)], Uuid::new_v4());
        assert_eq!(read_note(&drive, &runs, guid).unwrap(), None);
        write_note(&drive, &runs, guid, 3 * MIB).unwrap();
        assert_eq!(read_note(&drive, &runs, guid).unwrap(), Some(3 * MIB));
        // Another deletion's, another place, and one that claims more than there is.
        assert_eq!(read_note(&drive, &runs, Uuid::new_v4()).unwrap(), None);
        assert_eq!(read_note(&drive, &runs[..1], guid).unwrap(), None);
        write_note(&drive, &runs, guid, 6 * MIB).unwrap();
        assert_eq!(read_note(&drive, &runs, guid).unwrap(), None);
        // One bit off.
        write_note(&drive, &runs, guid, MIB).unwrap();
        drive.rot(11 * MIB - NOTE + 100, 1);
        assert_eq!(read_note(&drive, &runs, guid).unwrap(), None);
    }

    /// Of the first release (commit 4d75420). A note has no version: one that is not exactly as it is written here says
    /// nothing, and erasing begins at the start.
    #[test]
    fn the_first_releases_note_is_read_and_written_the_same_and_no_other_is_believed() {
        let golden = include_str!("../../../tests/golden/4d75420/lvm/note.hex");
        let (at, digits) = golden.trim().split_once(' ').unwrap();
        let digits = digits.as_bytes().chunks(2);
        let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
        let raw: Vec<u8> = digits.map(byte).collect();
        let guid: Uuid = "c1928e47-9013-4f04-984f-f8e5237b822b".parse().unwrap();
        let runs = [run(8, 3072)];
        assert_eq!(note_place(&runs), Some(at.parse().unwrap()));
        let done = 2_298_478_592;
        assert_eq!(note(guid, done), raw);
        let drive = FakeDrive::new(8 * GIB, 512);
        let place = note_place(&runs).unwrap();
        drive.write_at(place, &raw).unwrap();
        assert_eq!(read_note(&drive, &runs, guid).unwrap(), Some(done));
        // Another magic, or something in what is zeros today; with a right checksum.
        for (offset, value) in [(7, b'2'), (32, 1), (4091, 1)] {
            let mut other = raw.clone();
            other[offset] = value;
            let end = other.len() - 4;
            let crc = crc32fast::hash(&other[..end]);
            other[end..].copy_from_slice(&crc.to_le_bytes());
            drive.write_at(place, &other).unwrap();
            assert_eq!(read_note(&drive, &runs, guid).unwrap(), None, "{offset}");
        }
    }
}
