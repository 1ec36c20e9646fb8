//! Consequences of a drive's failure for a creation, and the error when no drive has the volume. Pure.

use std::collections::BTreeSet;

use super::super::{
    VolumeError,
    placement::{self, Need},
};
use drivebay_layout::{error::Fault, jobs::LayoutError};
use drivebay_model::{DriveId, Snapshot};
use drivebay_worker::RunError;

/// Consequence of a drive's failure to create a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Never begun on this drive, or refused with nothing changed: another may take it.
    TryAnother,
    /// Like `TryAnother`; the drive zeroes the volume's space meanwhile, for a repeat.
    ZeroAndTryAnother,
    /// The drive may hold the volume: no other one is tried until a repeat has read it.
    InDoubt,
}

/// Classifies an error. Exhaustive, so that each new error has to be classified here.
pub(super) fn next(error: &RunError<LayoutError>) -> Next {
    match error {
        RunError::Stuck { .. } | RunError::Busy { .. } => Next::TryAnother,
        RunError::Deadline { .. }
        | RunError::Cancelled { .. }
        | RunError::Worker { .. }
        | RunError::Stopping => Next::InDoubt,
        RunError::Job(error) => match error {
            LayoutError::NotZeroed { .. } => Next::ZeroAndTryAnother,
            LayoutError::NoSpace { .. }
            | LayoutError::TableFull { .. }
            | LayoutError::NotClaimable { .. }
            | LayoutError::Busy { .. }
            | LayoutError::NotThisDrive { .. }
            | LayoutError::Locked { .. }
            | LayoutError::Unlabelled { .. }
            | LayoutError::NotErased { .. }
            | LayoutError::Cordoned { .. }
            | LayoutError::StillZeroed { .. }
            | LayoutError::LvmLocked { .. }
            | LayoutError::NoLvm { .. }
            | LayoutError::Host { .. }
            | LayoutError::OtherSector { .. }
            | LayoutError::Damaged { .. } => Next::TryAnother,
            LayoutError::Io { .. }
            | LayoutError::InDoubt { .. }
            | LayoutError::NotTogether { .. }
            | LayoutError::StillSuspended { .. }
            | LayoutError::NoSuchVolume { .. }
            | LayoutError::NotThere { .. }
            | LayoutError::NotWritten { .. }
            | LayoutError::InUse { .. }
            | LayoutError::Used { .. }
            | LayoutError::HasSnapshots { .. }
            | LayoutError::SnapshotInUse { .. }
            | LayoutError::NoSnapshot { .. }
            | LayoutError::Ambiguous { .. }
            | LayoutError::CannotGrow { .. }
            | LayoutError::BadTransition { .. }
            | LayoutError::Lvm { .. } => Next::InDoubt,
        },
    }
}

/// Errors of the drives that were tried.
#[derive(Debug, Default)]
pub(super) struct Failures {
    /// Last error of a drive on which the creation never began or was refused with nothing changed; None if no drive had one.
    pub(super) refused: Option<RunError<LayoutError>>,
    /// The first refusal because space is not zeroed yet.
    pub(super) unzeroed: Option<RunError<LayoutError>>,
    /// The first error of mkfs, for a drive whose sector size is not the class's smallest.
    pub(super) unformattable: Option<VolumeError>,
}

impl Failures {
    /// Returns the error when no drive is left to try.
    pub(super) fn answer(
        self,
        now: &Snapshot,
        need: Need<'_>,
        tried: &BTreeSet<DriveId>,
    ) -> VolumeError {
        match self.unzeroed.or(self.refused) {
            None if let Some(error) = self.unformattable => return error,
            Some(
                error @ (RunError::Stuck { .. }
                | RunError::Busy { .. }
                | RunError::Job(
                    LayoutError::StillZeroed { .. }
                    | LayoutError::NotZeroed { .. }
                    | LayoutError::Locked { .. }
                    | LayoutError::LvmLocked { .. },
                )),
            ) => return VolumeError::Layout(error),
            // There may be room, but the host cannot use it.
            Some(RunError::Job(error)) if error.fault() == Fault::Host => {
                return VolumeError::Layout(RunError::Job(error));
            }
            _ => {}
        }
        let (class, needed) = (need.class.to_owned(), need.bytes);
        let drives = placement::only_its_group(now, need, |id| tried.contains(id));
        if let (Some(group), Some(drives)) = (need.group, drives) {
            return VolumeError::NoDriveApart {
                class,
                needed,
                group: group.name.clone(),
                drives,
            };
        }
        let (largest, mut place) = placement::largest(now, need.class);
        place.push_str(&placement::silent(now, need.class));
        VolumeError::NoRoom {
            class,
            needed,
            largest,
            place,
        }
    }
}

#[cfg(test)]
#[path = "failure_tests.rs"]
mod tests;
