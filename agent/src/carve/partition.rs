//! TEMPORARY: replaced by the carving branch.
use uuid::Uuid;

use super::jobs::{CarveError, Changed};
use crate::model::{Contents, DriveRef, RecordState};

fn none(drive: &DriveRef, uuid: Uuid) -> CarveError {
    CarveError::NoSuchVolume {
        drive: drive.id.to_string(),
        uuid,
    }
}

/// Temporary.
pub fn look(drive: &DriveRef, _repair: bool) -> Result<Contents, CarveError> {
    Err(none(drive, Uuid::nil()))
}

/// Temporary.
pub fn advance(drive: &DriveRef, uuid: Uuid, _to: RecordState) -> Result<Changed, CarveError> {
    Err(none(drive, uuid))
}
