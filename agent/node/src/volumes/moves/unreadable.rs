//! Unreadable sectors of a moving volume: those that are free space of its filesystem do not stop the move.

use super::copy::{Ends, MoveError};
use crate::volumes::{Volumes, guard::VolumeGuard, locate::LocateResult};
use drivebay_model::{
    Extent, RecordState,
    cause::chain,
    runs,
    unreadable::{Holds, LocatedPiece},
};

impl Volumes {
    /// Returns these ranges of the volume if all of them are free space of its filesystem, else errs with `Unreadable`.
    /// The volume must not be in use.
    pub(super) async fn all_hold_nothing(
        &self,
        ends: &Ends,
        unreadable: Vec<Extent>,
        held: Option<&VolumeGuard>,
    ) -> Result<Vec<Extent>, MoveError> {
        let volume = &ends.volume;
        let pieces = match volume.placed.record.state {
            RecordState::Fs {
                fs_type,
                mounted: true,
                ..
            } => {
                let located = self
                    .locate_for(held, volume, &ends.source, fs_type, unreadable.clone())
                    .await;
                match located {
                    LocateResult::Answered(pieces) => pieces,
                    LocateResult::NotNow => {
                        return Err(MoveError::NotNow(
                            "something else uses the volume or its drive".into(),
                        ));
                    }
                    LocateResult::Failed(error) => {
                        tracing::warn!(volume = %volume.uuid, error = %chain(&error), "cannot ask the filesystem of a moving volume about unreadable sectors");
                        Vec::new()
                    }
                }
            }
            _ => Vec::new(),
        };
        let left = with_data(&unreadable, &pieces);
        let Some(first) = left.first() else {
            let bytes = runs::bytes(&unreadable);
            tracing::warn!(volume = %volume.uuid, drive = %volume.drive, bytes, "unreadable sectors of a moving volume are free space; copying goes on around them");
            return Ok(unreadable);
        };
        Err(MoveError::Unreadable {
            drive: volume.drive.clone(),
            bytes: runs::bytes(&left),
            ranges: left.len(),
            first: first.start,
        })
    }
}

/// Returns the parts of these ranges that may hold data. Pure.
fn with_data(unreadable: &[Extent], pieces: &[LocatedPiece]) -> Vec<Extent> {
    let free: Vec<Extent> = pieces
        .iter()
        .filter(|piece| piece.holds == Holds::FilesystemFree)
        .map(|piece| piece.extent)
        .collect();
    runs::without(unreadable, &free)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_filesystem_reports_as_free_holds_nothing() {
        let extent = |start, len| Extent { start, len };
        let piece = |start, len, holds| LocatedPiece {
            extent: extent(start, len),
            holds,
        };
        let files = Holds::Files {
            files: vec!["/db".into()],
            more: 0,
        };
        let unknown = Holds::Unknown { why: "?".into() };
        let unreadable = [extent(0, 8192), extent(16384, 4096), extent(32768, 4096)];
        let pieces = [
            piece(0, 4096, Holds::FilesystemFree),
            piece(4096, 4096, files),
            piece(16384, 4096, Holds::FilesystemFree),
            piece(32768, 4096, unknown),
        ];
        assert_eq!(
            with_data(&unreadable, &pieces),
            [extent(4096, 4096), extent(32768, 4096)]
        );
        assert_eq!(with_data(&unreadable, &[]), unreadable);
        assert_eq!(with_data(&unreadable[1..2], &pieces), []);
    }
}
