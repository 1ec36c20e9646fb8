//! Conditions on space before it is allocated, and on space that was zeroed.
//!
//! Samples prove that there is data, never that there is none. So a raw volume, which shows all its
//! bytes to its user, gets only runs that Drivebay itself zeroed and read back (`Space::zeroed`). A
//! filesystem shows only what was written through it; for it both ends, where signatures are, are
//! zeroed, so that old data is not mistaken for a filesystem of the new volume.

use std::time::{Duration, Instant};

use super::{
    claimed::ClaimedDrive,
    device::{self, Device},
    error::{LayoutError, io_error},
    open,
};
use drivebay_model::{Contents, DriveId, Extent, GIB, MIB, Mode, RawSpace, Space, Zeroing, runs};

/// Limit for zeroing on command within a call; the rest is zeroed in the background.
const ON_COMMAND: Duration = Duration::from_secs(5);

/// Condition on the bytes that a volume or snapshot gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// Zeros at both ends: a filesystem or a copy is written there.
    Ends,
    /// Zeros everywhere: all bytes are shown.
    Zeros,
    /// Zeros everywhere if the drive zeroes on command; else only at both ends.
    ZerosOnCommand,
}

impl Need {
    /// Returns the condition on the bytes of a volume.
    pub(super) fn of(mode: Mode, raw_space: RawSpace) -> Self {
        match (mode, raw_space) {
            (Mode::Mount, _) => Self::Ends,
            (Mode::Block, RawSpace::Zeroed) => Self::Zeros,
            (Mode::Block, RawSpace::Sampled) => Self::ZerosOnCommand,
        }
    }
}

/// Returns free space that meets `need`, and removes it from the record of zeroed space: it belongs
/// to the caller from now on. `place` chooses among the free runs of the contents that it gets.
/// Errs with `NotZeroed` if zeroing must continue in the background.
pub(super) fn room<D: ClaimedDrive + ?Sized>(
    drive: &D,
    contents: &Contents,
    need: Need,
    place: impl Fn(&D, &Contents) -> Result<Vec<Extent>, LayoutError>,
) -> Result<Vec<Extent>, LayoutError> {
    let anywhere = place(drive, contents)?;
    let space = drive.space();
    let zeroed = Contents {
        free: runs::within(&contents.free, &space.zeroed),
        ..contents.clone()
    };
    let chosen = match need {
        Need::Ends => anywhere,
        Need::Zeros | Need::ZerosOnCommand => place(drive, &zeroed).unwrap_or(anywhere),
    };
    open::nobody_zeroes(drive.device(), drive.id(), &chosen)?;
    let missing = runs::without(&chosen, &space.zeroed);
    if missing.is_empty() {
        still_zeros(drive, &chosen)?;
    } else if need == Need::Ends {
        zero_ends(drive, &chosen, space.zeroing)?;
    } else if zero_now(drive, &missing, &space)? {
        // All of it is zeros now.
    } else if need == Need::ZerosOnCommand {
        zero_ends(drive, &chosen, drive.space().zeroing)?;
    } else {
        let zeroed = runs::within(&chosen, &drive.space().zeroed);
        return Err(LayoutError::NotZeroed {
            drive: drive.id().to_string(),
            zeroed: runs::bytes(&zeroed),
            needed: runs::bytes(&chosen),
            runs: missing,
        });
    }
    drive.take(&chosen)?;
    Ok(chosen)
}

/// Checks zeroed runs again. A byte that is not zero means that another program wrote there: they
/// are removed from the record of zeroed space, and the check fails.
fn still_zeros<D: ClaimedDrive + ?Sized>(drive: &D, chosen: &[Extent]) -> Result<(), LayoutError> {
    let what = "checking that free space is zeros";
    let done = is_zeros(drive.device(), drive.id(), chosen, what);
    if let Err(LayoutError::NotErased { .. }) = done {
        drive.take(chosen)?;
    }
    done
}

/// Zeroes these runs on command for up to `ON_COMMAND`. True if all of them are zeros, flushed and
/// read back. Otherwise the part that was zeroed is recorded.
fn zero_now<D: ClaimedDrive + ?Sized>(
    drive: &D,
    missing: &[Extent],
    space: &Space,
) -> Result<bool, LayoutError> {
    if space.zeroing != Zeroing::Command {
        return Ok(false);
    }
    let (dev, id) = (drive.device(), drive.id());
    let until = Instant::now() + ON_COMMAND;
    let mut done = Vec::new();
    for piece in pieces(missing) {
        if Instant::now() >= until {
            break;
        }
        if !dev
            .zero_on_command(piece)
            .map_err(io_error(id, "zeroing free space"))?
        {
            break;
        }
        done.push(piece);
    }
    if done.is_empty() {
        return Ok(false);
    }
    let done = runs::joined(done);
    dev.flush().map_err(io_error(id, "flushing"))?;
    match is_zeros(dev, id, &done, "checking that free space is zeros") {
        Err(LayoutError::NotErased { .. }) => {
            drive.note_unzeroed()?;
            return Ok(false);
        }
        done => done?,
    }
    if runs::bytes(&done) == runs::bytes(missing) {
        return Ok(true);
    }
    drive.note_zeroed(&done)?;
    Ok(false)
}

/// Splits runs into pieces of at most 1 GiB, which a drive zeroes quickly.
fn pieces(all: &[Extent]) -> impl Iterator<Item = Extent> {
    all.iter().flat_map(|run| {
        let starts = (run.start..run.end()).step_by(GIB as usize);
        starts.map(|start| Extent {
            start,
            len: GIB.min(run.end() - start),
        })
    })
}

/// Fails with `NotErased` if a byte that is not zero is found in the first and last MiB or in 64
/// samples of each run.
pub(super) fn is_zeros<D: Device + ?Sized>(
    dev: &D,
    id: &DriveId,
    runs: &[Extent],
    what: &str,
) -> Result<(), LayoutError> {
    for run in runs {
        let nonzero =
            device::sample_nonzero(dev, *run, MIB.min(run.len)).map_err(io_error(id, what))?;
        if let Some(offset) = nonzero {
            return Err(LayoutError::NotErased {
                drive: id.to_string(),
                offset,
            });
        }
    }
    Ok(())
}

/// Zeroes a small run, durably and verified by reading back: on command if `how` allows it, else or
/// if that does not read back, by writing.
pub(super) fn make_zeros<D: Device + ?Sized>(
    dev: &D,
    id: &DriveId,
    run: Extent,
    how: Zeroing,
    what: &str,
) -> Result<(), LayoutError> {
    let by_itself = |run| dev.zero(run).and_then(|()| dev.flush());
    if how == Zeroing::Command {
        by_itself(run).map_err(io_error(id, what))?;
        match is_zeros(dev, id, &[run], what) {
            Err(LayoutError::NotErased { .. }) => {}
            done => return done,
        }
    }
    dev.write_zeros(run)
        .and_then(|()| dev.flush())
        .map_err(io_error(id, what))?;
    is_zeros(dev, id, &[run], what)
}

/// Zeroes the first and last MiB of each run, durably and verified by reading back.
pub(super) fn zero_ends<D: ClaimedDrive + ?Sized>(
    drive: &D,
    runs: &[Extent],
    how: Zeroing,
) -> Result<(), LayoutError> {
    let what = "zeroing both ends of free space";
    for run in runs {
        let edge = MIB.min(run.len);
        for start in [run.start, run.end() - edge] {
            let run = Extent { start, len: edge };
            make_zeros(drive.device(), drive.id(), run, how, what)?;
        }
    }
    Ok(())
}
