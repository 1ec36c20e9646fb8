//! Changes the parameters in a copy's record before it becomes a volume.

use drivebay_model::{PlaceState, RecordState};
use drivebay_worker::{Context, Job};

use crate::{
    claimed::ClaimedDrive,
    error::LayoutError,
    jobs::{Changed, SetParameters},
    layout,
};

impl Job for SetParameters {
    const NAME: &'static str = "set-parameters";
    type Answer = Changed;
    type Error = LayoutError;
    fn run(self, context: &mut Context) -> Result<Changed, LayoutError> {
        context.step("set-parameters");
        layout::change(&self.drive, |drive| set(drive, &self))
    }
}

/// Executes `SetParameters`. The drive must have been read with repair.
pub(super) fn set<D: ClaimedDrive + ?Sized>(
    drive: &mut D,
    job: &SetParameters,
) -> Result<Changed, LayoutError> {
    let contents = drive.contents()?;
    let placed = drive.placed(&contents, job.uuid)?;
    let record = &placed.record;
    let is_meant = record.place == job.place
        && matches!(record.place, PlaceState::Incoming { .. })
        && record.state != RecordState::Creating
        && !record.is_erasing();
    if !is_meant {
        return Err(drive.not_there(placed));
    }
    drive.set_parameters(placed, &job.parameters)
}
