//! Looks up in a volume's filesystem what pieces of it hold, as a job of the drive's worker. Writes nothing, and is ended by
//! any call that changes the volume.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    affected::{
        fsmap::gaps,
        work::{Work, cannot},
    },
    device::{self, Partition},
    jobs::FsError,
    kind, mounts,
};
use drivebay_layout::{jobs::LayoutError, layout};
use drivebay_model::{
    DriveRef, Extent, FsType, runs,
    unreadable::{Holds, LocatedPiece},
};
use drivebay_sys::{mountinfo, path::Directory};
use drivebay_worker::{Context, Job};

/// Limit of pieces that are reported with known contents.
const MOST_PIECES: usize = 512;

/// Looks up what pieces of a volume hold. It must have a filesystem.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Locate {
    pub drive: DriveRef,
    pub uuid: Uuid,
    pub fs_type: FsType,
    /// Path of a mount of the volume; None if it is not mounted.
    pub mounted_at: Option<PathBuf>,
    /// Relative to the volume's start.
    pub pieces: Vec<Extent>,
    /// Limit of the whole job, milliseconds.
    pub limit_ms: u64,
}

/// Error of [Locate]: nothing was located.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum LocateError {
    /// The volume's device or mount is not the expected one.
    #[error(transparent)]
    Device(#[from] FsError),
    /// The drive could not be read, or does not have the volume.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

impl Job for Locate {
    const NAME: &'static str = "locate";
    const READ_ONLY: bool = true;
    /// Sorted by offset in the volume.
    type Answer = Vec<LocatedPiece>;
    type Error = LocateError;

    fn run(self, context: &mut Context) -> Result<Vec<LocatedPiece>, LocateError> {
        context.step("reading the label");
        let contents = layout::read_contents(&self.drive, false)?;
        let unknown = || LayoutError::NoSuchVolume {
            drive: self.drive.id.to_string(),
            uuid: self.uuid,
        };
        let placed = contents.volume(self.uuid).ok_or_else(unknown)?;
        let partition = device::open_used(&self.drive, placed)?;
        let until = Instant::now() + Duration::from_millis(self.limit_ms);
        let mut work = Work {
            until,
            fs_type: self.fs_type,
            partition: &partition,
            context,
        };
        let mounted = match &self.mounted_at {
            Some(at) => Some(mounted(at, &partition)?),
            None => None,
        };
        let (header, pieces) = behind_header(&self.pieces, placed.record.header_bytes());
        let located = kind::of(self.fs_type).locate(&mut work, &pieces, mounted.as_ref());
        let offset = placed.record.header_bytes();
        let located = located.into_iter().map(|(piece, holds)| {
            let start = piece.start.saturating_add(offset);
            (Extent { start, ..piece }, holds)
        });
        let of_header = "the header of an encrypted volume";
        let header = header.into_iter().map(|piece| (piece, cannot(of_header)));
        Ok(answer(&self.pieces, header.chain(located).collect()))
    }
}

/// Splits pieces of a volume at the end of its header. Returns those of the header, and the others relative to its end. Pure.
fn behind_header(pieces: &[Extent], header_bytes: u64) -> (Vec<Extent>, Vec<Extent>) {
    let header = Extent {
        start: 0,
        len: header_bytes,
    };
    let within = pieces.iter().filter_map(|piece| piece.overlap(header));
    let behind = runs::without(pieces, &[header]);
    let behind = behind.into_iter().map(|piece| Extent {
        start: piece.start - header_bytes,
        ..piece
    });
    (within.collect(), behind.collect())
}

/// Returns all requested pieces, sorted. Contents beyond the limit are unknown: left out, a piece would count as still being
/// looked up.
fn answer(requested: &[Extent], located: Vec<(Extent, Holds)>) -> Vec<LocatedPiece> {
    let mut all = joined(located);
    all.truncate(MOST_PIECES);
    let answered: Vec<Extent> = all.iter().map(|piece| piece.extent).collect();
    let left = requested
        .iter()
        .flat_map(|piece| gaps(*piece, answered.iter().copied()));
    let holds = cannot("too much of the volume does not read to ask for all of it");
    all.extend(left.map(|extent| LocatedPiece {
        extent,
        holds: holds.clone(),
    }));
    all.sort_by_key(|piece| piece.extent);
    all
}

/// Sorts pieces, and joins adjacent ones that hold the same.
fn joined(mut pieces: Vec<(Extent, Holds)>) -> Vec<LocatedPiece> {
    pieces.sort_by_key(|(piece, _)| *piece);
    let mut all: Vec<LocatedPiece> = Vec::new();
    for (extent, holds) in pieces {
        match all.last_mut() {
            Some(last) if last.extent.end() == extent.start && last.holds == holds => {
                last.extent.len += extent.len;
            }
            _ => all.push(LocatedPiece { extent, holds }),
        }
    }
    all
}

/// Opens the root of a mount, and verifies that it is of this device: what it reports is about the volume. Errs with
/// `NotHere` if not.
fn mounted(at: &Path, partition: &Partition) -> Result<Directory, FsError> {
    let failed = |error| device::io_error("opening", at, error);
    let directory = Directory::open(at).map_err(failed)?;
    let facts = directory.facts().map_err(failed)?;
    let stack = mountinfo::at(&mountinfo::resolve(at)).map_err(|error| {
        device::io_error("reading mountinfo for", at, std::io::Error::other(error))
    })?;
    let is_it = facts.mount_root
        && stack.last().is_some_and(|entry| {
            entry.id == facts.mount_id && mounts::is_mount_of(entry, partition.dev)
        });
    if is_it {
        return Ok(directory);
    }
    Err(FsError::NotHere {
        path: at.display().to_string(),
        why: "the volume is not mounted there".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_behind_a_header_is_looked_up_relative_to_its_end() {
        let extent = |start, len| Extent { start, len };
        let pieces = [extent(10, 5), extent(90, 20), extent(200, 7)];
        let (header, behind) = behind_header(&pieces, 100);
        assert_eq!(header, [extent(10, 5), extent(90, 10)]);
        assert_eq!(behind, [extent(0, 10), extent(100, 7)]);
        let plain = behind_header(&pieces, 0);
        assert_eq!(plain, (vec![], pieces.to_vec()));
    }

    #[test]
    fn what_is_beyond_the_bounds_is_answered_as_not_known() {
        let extent = |start, len| Extent { start, len };
        let located: Vec<(Extent, Holds)> = (0..MOST_PIECES as u64 + 10)
            .map(|at| (extent(at * 8192, 4096), Holds::FilesystemFree))
            .collect();
        let requested: Vec<Extent> = located.iter().map(|(piece, _)| *piece).collect();
        let given = answer(&requested, located);
        let extents: Vec<Extent> = given.iter().map(|piece| piece.extent).collect();
        assert_eq!(extents, requested);
        let unknown = |piece: &&LocatedPiece| matches!(piece.holds, Holds::Unknown { .. });
        assert_eq!(given.iter().filter(unknown).count(), 10);
        // Nothing was found at all, or a part of a piece.
        let given = answer(&[extent(0, 4096)], Vec::new());
        assert_eq!(given.len(), 1);
        let part = vec![(extent(512, 512), Holds::FilesystemMetadata)];
        let given = answer(&[extent(0, 4096)], part);
        let extents: Vec<Extent> = given.iter().map(|piece| piece.extent).collect();
        assert_eq!(
            extents,
            [extent(0, 512), extent(512, 512), extent(1024, 3072)]
        );
    }
}
