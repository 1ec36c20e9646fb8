//! Changes the parameters in a copy's record before it becomes a volume.

use drivebay_model::{PlaceState, Placed, Record, RecordState};
use drivebay_worker::{Context, Job};

use crate::{
    claimed::{ClaimedDrive, unchanged},
    error::{LayoutError, damaged},
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
    let uuid = job.uuid;
    let contents = drive.contents()?;
    let placed = drive.placed(&contents, uuid)?;
    let record = &placed.record;
    let is_meant = record.place == job.place
        && matches!(record.place, PlaceState::Incoming { .. })
        && record.state != RecordState::Creating
        && !record.is_erasing();
    if !is_meant {
        return Err(drive.not_there(placed));
    }
    if record.parameters == job.parameters {
        return unchanged(contents);
    }
    let wanted = Placed {
        record: Record {
            parameters: job.parameters.clone(),
            ..record.clone()
        },
        ..placed.clone()
    };
    drive.write_record(&wanted, &record.state, &record.place)?;
    let answer = drive.answer()?;
    match answer.contents.volume(uuid) {
        Some(now) if now.record.parameters == job.parameters && now.ambiguous.is_none() => {
            Ok(answer)
        }
        _ => Err(damaged(
            drive.id(),
            format!("volume {uuid} did not read back with the parameters that were written"),
        )),
    }
}
