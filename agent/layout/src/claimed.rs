//! A claimed drive, read under its lock: decisions about its volumes, the same for both layouts.
//! Each layout writes them in its own format.
//!
//! A change begins with a drive that was read with repair (no change is half done), and ends when
//! everything is durable and has been read again. If the requested state is there already, nothing
//! is changed, and the result says so (`Changed::changed`).

use std::collections::BTreeMap;

use uuid::Uuid;

use super::{
    device::{self, Device},
    encrypted,
    error::{LayoutError, ambiguous, damaged, fit, in_use, io_error, refused},
    jobs::Changed,
    mapped,
    plan::{self, advance},
    space::{self, Need},
    zeroed::{self, Slots},
};
use drivebay_model::{
    Cause, Contents, Cordon, DriveId, ErasePolicy, Extent, Label, MIB, PlaceState, Placed,
    Placement, RawSpace, Record, RecordState, Space, Zeroing, cause, runs,
};

/// A deleted volume, or the store of a deleted snapshot, whose space is to be erased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Erasable {
    /// Uuid in the volume's record; of a store, its `guid`.
    pub(super) uuid: Uuid,
    /// Identity of this deletion, new for each one (`RecordState::Erasing::erase_guid`,
    /// `DeletedStore::erase_guid`).
    pub(super) guid: Uuid,
    /// Ranges of its bytes on the drive, in its own order.
    pub(super) runs: Vec<Extent>,
    pub(super) policy: ErasePolicy,
    /// Bytes that are recorded as erased durably, from the first run on.
    pub(super) done: u64,
}

impl Erasable {
    /// Returns the bytes of all runs.
    pub(super) fn total(&self) -> u64 {
        self.runs.iter().map(|run| run.len).sum()
    }

    /// True if both are the same deletion at the same place, regardless of their progress.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (self.guid, &self.runs) == (other.guid, &other.runs)
    }
}

/// A claimed drive as it was read. To call a method that changes it, the caller must hold the
/// drive's lock and must have read the drive with repair.
pub trait ClaimedDrive {
    fn id(&self) -> &DriveId;
    /// Returns the drive's device, for reading and writing its bytes.
    fn device(&self) -> &dyn Device;
    /// Returns the label: the cluster and the node that own the drive.
    fn label(&self) -> &Label;
    /// Returns where the drive's record of free space is kept; None: it has no place for one, and
    /// no free space counts as zeroed.
    fn space_slots(&self) -> Option<Slots>;
    /// Returns everything on the drive, as it was read.
    fn contents(&self) -> Result<Contents, LayoutError>;
    /// Returns everything on the drive after a change, read from the medium since.
    fn changed(&self) -> Result<Contents, LayoutError>;
    /// Chooses free space for a new volume of `size` bytes; None if it does not fit.
    fn place(&self, contents: &Contents, size: u64, placement: Placement) -> Option<Vec<Extent>>;
    /// Chooses free space for `more` further bytes of a volume; Err: the size in bytes to which it
    /// can grow.
    fn place_more(
        &self,
        placed: &Placed,
        contents: &Contents,
        more: u64,
    ) -> Result<Vec<Extent>, u64>;
    /// Creates a volume in these runs.
    fn create_in(&mut self, record: &Record, runs: &[Extent]) -> Result<(), LayoutError>;
    /// Appends these runs to a volume.
    fn grow(&mut self, placed: &Placed, runs: &[Extent]) -> Result<(), LayoutError>;
    /// Fails while a user other than the volume itself, such as a snapshot, needs its space.
    fn is_free_to_change(&self, uuid: Uuid) -> Result<(), LayoutError>;
    /// Removes a volume's device from the kernel (`InUse` if that fails because it is open), and
    /// marks the volume as deleted with a new identity.
    fn mark_erasing(&mut self, placed: &Placed) -> Result<(), LayoutError>;
    /// True if a volume's record says that it is deleted, but the volume still has its earlier
    /// identity.
    fn is_half_marked(&self, uuid: Uuid) -> Result<bool, LayoutError>;
    /// Writes a volume's state, its role in a move, and the parameters of `placed`, in one step.
    fn write_record(
        &mut self,
        placed: &Placed,
        state: &RecordState,
        place: &PlaceState,
    ) -> Result<(), LayoutError>;
    /// Removes a volume's device from the kernel; errs with `InUse` while it is open.
    fn take_device(&mut self, placed: &Placed) -> Result<(), LayoutError>;
    /// Reads the drive again, and makes the kernel's devices match it.
    fn settle_again(&mut self) -> Result<(), LayoutError>;
    /// Writes the drive's label.
    fn write_label(&mut self, label: &Label) -> Result<(), LayoutError>;
    /// Returns the ranges of a deleted volume's bytes on the drive, in the volume's order.
    fn runs(&self, placed: &Placed) -> Result<Vec<Extent>, LayoutError>;
    /// Returns the store of a deleted snapshot; None if there is none with this erase guid.
    fn deleted_store(&self, erase_guid: Uuid) -> Result<Option<Erasable>, LayoutError>;
    /// Makes sure that no process can read or write the space any more; errs with `InUse`, or
    /// `Busy` for a store, if one has it open.
    fn seize(&self, erasable: &Erasable) -> Result<(), LayoutError>;
    /// Records durably that `done` bytes are erased. The caller must have made them durable.
    fn note_erased(&mut self, erasable: &Erasable, done: u64) -> Result<(), LayoutError>;
    /// Removes a deleted volume or store from the drive, durably, and thereby frees its space. The
    /// caller must have erased the space as its policy requires.
    fn release(&mut self, erasable: &Erasable) -> Result<(), LayoutError>;

    /// Creates a volume. If a volume of this name exists that is not deleted and not one of
    /// `deleted`, returns the contents unchanged.
    fn create(
        &mut self,
        record: &Record,
        raw_space: RawSpace,
        placement: Placement,
        deleted: &[Uuid],
    ) -> Result<Changed, LayoutError> {
        let contents = self.contents()?;
        let named = contents.volumes.iter().find(|placed| {
            if !record.place.is_live() {
                return placed.record.uuid == record.uuid && placed.record.place == record.place;
            }
            !matches!(placed.record.state, RecordState::Erasing { .. })
                // The remains of a move are not a volume that an earlier call created.
                && !matches!(
                    placed.record.place,
                    PlaceState::Incoming { .. } | PlaceState::Moved { .. }
                )
                && !deleted.contains(&placed.record.uuid)
                && placed.record.name == record.name
        });
        if let Some(placed) = named {
            fit(placed)?;
            if placed.record.state == RecordState::Creating {
                // An earlier attempt, which could not be undone because its partition is open.
                return Err(in_use(placed, &self.device().holders(placed)));
            }
            return unchanged(contents);
        }
        if let Some(placed) = contents.volume(record.uuid) {
            if !record.place.is_live() {
                return Err(self.not_there(placed));
            }
            let reason = "another volume on this drive has its identity";
            return Err(ambiguous(record.uuid, reason.into()));
        }
        let drive = self.id().to_string();
        if let Some(cordon) = &self.label().cordon {
            return Err(LayoutError::Cordoned {
                drive,
                by: cordon.by.clone(),
                reason: cordon.reason.clone(),
            });
        }
        let no_space = |needed| LayoutError::NoSpace {
            drive: drive.clone(),
            needed,
            largest: contents.largest_free(),
        };
        // A copy is as large as its original, and all its bytes are written before it is used: only
        // its ends must be zeroed.
        let (requested, need) = match record.place.is_live() {
            true => (record.room_bytes(), Need::of(record.mode, raw_space)),
            false => (record.extent.len, Need::Ends),
        };
        let size = plan::rounded(requested).ok_or_else(|| no_space(requested))?;
        let runs = space::room(self, &contents, need, |drive, contents| {
            let runs = drive.place(contents, size, placement);
            runs.ok_or_else(|| no_space(size))
        })?;
        self.create_in(record, &runs).map_err(|error| match error {
            LayoutError::NoSpace { .. } => no_space(size),
            error => error,
        })?;
        self.answer().map_err(|error| in_doubt(self.id(), &error))
    }

    /// Grows a volume to at least this many bytes. A volume that is large enough is not changed.
    fn expand(
        &mut self,
        uuid: Uuid,
        size_bytes: u64,
        raw_space: RawSpace,
    ) -> Result<Changed, LayoutError> {
        let contents = self.contents()?;
        let placed = self.living(&contents, uuid)?;
        self.is_free_to_change(uuid)?;
        let old = placed.record.extent.len;
        if old >= size_bytes {
            return unchanged(contents);
        }
        let size = plan::rounded(size_bytes);
        let more = size.map_or(u64::MAX, |size| size - old);
        let need = Need::of(placed.record.mode, raw_space);
        let runs = space::room(self, &contents, need, |drive, contents| {
            let runs = drive.place_more(placed, contents, more);
            runs.map_err(|possible| LayoutError::CannotGrow {
                uuid,
                needed: size.unwrap_or(size_bytes),
                possible,
            })
        })?;
        self.grow(placed, &runs)
            .map_err(|error| not_grown(error, uuid, old, more))?;
        self.answer()
    }

    /// Removes a volume's device from the kernel, and marks the volume as deleted. A volume that is
    /// missing or being erased already is not changed. Errs with `InUse` while it is open. Of an
    /// encrypted volume the header is destroyed before this returns Ok.
    fn delete(&mut self, uuid: Uuid) -> Result<Changed, LayoutError> {
        let contents = self.contents()?;
        let Some(placed) = contents.volume(uuid) else {
            return unchanged(contents);
        };
        fit(placed)?;
        match placed.record.state {
            RecordState::Creating => return Err(in_use(placed, &self.device().holders(placed))),
            RecordState::Erasing { .. } if self.is_half_marked(uuid)? => {
                return Err(in_use(placed, &self.device().holders(placed)));
            }
            // An earlier call may have ended before the header was destroyed.
            RecordState::Erasing { done_bytes, .. } => {
                if done_bytes < placed.record.header_bytes() {
                    let header = encrypted::header(&self.runs(placed)?, placed);
                    encrypted::destroy(self.device(), self.id(), &header)?;
                }
                return unchanged(contents);
            }
            _ => {}
        }
        self.is_free_to_change(uuid)?;
        mapped::unmap(self.device(), self.id(), placed)?;
        let header = encrypted::header(&self.runs(placed)?, placed);
        self.mark_erasing(placed)?;
        // The mark is durable: nothing opens the volume from here on, and without its header nothing can.
        encrypted::destroy(self.device(), self.id(), &header)?;
        self.answer()
    }

    /// Deletes a volume as `delete` does, but only if it was never used: errs with `Used` if its
    /// record says that it was mounted, or if a byte that is not zero is found in the first and
    /// last MiB or in 64 samples of each of its runs. The record of a raw volume does not say
    /// whether it was written.
    fn delete_unused(&mut self, uuid: Uuid) -> Result<Changed, LayoutError> {
        let contents = self.contents()?;
        if let Some(placed) = contents.volume(uuid)
            && !matches!(placed.record.state, RecordState::Erasing { .. })
        {
            fit(placed)?;
            let used = |why| Err(LayoutError::Used { uuid, why });
            if !advance::was_never_mounted(&placed.record) {
                return used(format!(
                    "its record says {}",
                    advance::named(&placed.record.state)
                ));
            }
            for run in self.runs(placed)? {
                let data = device::sample_nonzero(self.device(), run, MIB.min(run.len));
                let what = "looking for data in a volume that was never mounted";
                if let Some(at) = data.map_err(io_error(self.id(), what))? {
                    return used(format!("its drive holds data of it at byte {at}"));
                }
            }
        }
        self.delete(uuid)
    }

    /// Changes the state in a volume's record, durably and verified by reading back. Only forward
    /// transitions are allowed (`BadTransition`): a formatted volume never becomes new again.
    fn advance(&mut self, uuid: Uuid, to: &RecordState) -> Result<Changed, LayoutError> {
        let contents = self.contents()?;
        let placed = self.living(&contents, uuid)?;
        let record = &placed.record;
        if record.state == *to {
            return unchanged(contents);
        }
        if !advance::may(record, to) {
            return Err(LayoutError::BadTransition {
                uuid,
                from: advance::named(&record.state),
                to: advance::named(to),
            });
        }
        self.write_record(placed, to, &placed.record.place)?;
        let answer = self.answer()?;
        match answer.contents.volume(uuid) {
            Some(now) if now.record.state == *to && now.ambiguous.is_none() => Ok(answer),
            _ => Err(damaged(
                self.id(),
                format!("volume {uuid} did not read back as {}", advance::named(to)),
            )),
        }
    }

    /// Replaces the parameters in a volume's record, durably and verified by reading back. Changes
    /// nothing if they are the same.
    fn set_parameters(
        &mut self,
        placed: &Placed,
        parameters: &BTreeMap<String, String>,
    ) -> Result<Changed, LayoutError> {
        let record = &placed.record;
        if record.parameters == *parameters {
            return unchanged(self.contents()?);
        }
        let wanted = Placed {
            record: Record {
                parameters: parameters.clone(),
                ..record.clone()
            },
            ..placed.clone()
        };
        self.write_record(&wanted, &record.state, &record.place)?;
        let (answer, uuid) = (self.answer()?, record.uuid);
        match answer.contents.volume(uuid) {
            Some(now) if now.record.parameters == *parameters && now.ambiguous.is_none() => {
                Ok(answer)
            }
            _ => Err(damaged(
                self.id(),
                format!("volume {uuid} did not read back with the parameters that were written"),
            )),
        }
    }

    /// Changes a volume's role in a move from `from` to `to`, durably and verified by reading back.
    /// Afterwards the kernel has its device only if the role has one. Errs with `NotThere` if it
    /// has another role.
    fn set_place(
        &mut self,
        uuid: Uuid,
        from: &PlaceState,
        to: &PlaceState,
        state: Option<&RecordState>,
    ) -> Result<Changed, LayoutError> {
        let contents = self.contents()?;
        let placed = self.placed(&contents, uuid)?;
        let record = &placed.record;
        if record.place == *to {
            return unchanged(contents);
        }
        if record.place != *from || record.state == RecordState::Creating || record.is_erasing() {
            return Err(self.not_there(placed));
        }
        if !from.may_become(to) {
            return Err(LayoutError::BadTransition {
                uuid,
                from: from.describe(),
                to: to.describe(),
            });
        }
        self.is_free_to_change(uuid)?;
        if from.has_device() && !to.has_device() {
            self.take_device(placed)?;
        }
        let state = state.unwrap_or(&record.state);
        if let Err(error) = self.write_record(placed, state, to) {
            if from.has_device() && matches!(error, LayoutError::Io { .. }) {
                return Err(LayoutError::NotWritten {
                    drive: self.id().to_string(),
                    uuid,
                    source: Cause::new(&error),
                });
            }
            // The write may have reached the drive: make the kernel's devices match what is there.
            // If that fails, the next `ReadDrive` with repair does it.
            if let Err(again) = self.settle_again() {
                tracing::debug!(drive = %self.id(), error = %cause::chain(&again), "cannot settle a drive after a failed change");
            }
            return Err(error);
        }
        if to.has_device() && !from.has_device() {
            self.settle_again()?;
        }
        let answer = self.answer()?;
        match answer.contents.volume(uuid) {
            Some(now) if now.record.place == *to && now.record.state == *state => Ok(answer),
            _ => Err(damaged(
                self.id(),
                format!("volume {uuid} did not read back as {}", to.describe()),
            )),
        }
    }

    /// Deletes a copy that a move does not need any more. One that is missing or being erased is
    /// not changed. Errs with `NotThere` if its role is not `place`, or if it is the live volume.
    fn drop_place(&mut self, uuid: Uuid, place: &PlaceState) -> Result<Changed, LayoutError> {
        let contents = self.contents()?;
        let Some(placed) = contents.volume(uuid) else {
            return unchanged(contents);
        };
        if placed.record.place.is_live() || placed.record.place != *place {
            return Err(self.not_there(placed));
        }
        self.delete(uuid)
    }

    /// Returns the error for a volume that is on the drive with another role in a move than
    /// expected.
    fn not_there(&self, placed: &Placed) -> LayoutError {
        let state = match placed.record.state {
            RecordState::Erasing { .. } => "being erased; ",
            _ => "",
        };
        LayoutError::NotThere {
            drive: self.id().to_string(),
            uuid: placed.record.uuid,
            place: format!("{state}{}", placed.record.place.describe()),
        }
    }

    /// Sets or removes the cordon, durably and verified by reading back. An existing cordon is not
    /// replaced: it must be removed first.
    fn set_cordon(&mut self, cordon: Option<&Cordon>) -> Result<Changed, LayoutError> {
        if self.label().cordon.is_some() == cordon.is_some() {
            return unchanged(self.contents()?);
        }
        let label = Label {
            cordon: cordon.cloned(),
            ..self.label().clone()
        };
        self.write_label(&label)?;
        let answer = self.answer()?;
        if answer.contents.label != label {
            let reason = "its label did not read back as it was written";
            return Err(damaged(self.id(), reason.into()));
        }
        Ok(answer)
    }

    /// Changes the owner in the label at an operator's command, if the label is `from`, or `to`
    /// already. Verified by reading back.
    fn adopt(&mut self, from: &Label, to: &Label) -> Result<Changed, LayoutError> {
        self.is_adoptable(from, to)?;
        if self.label() == to {
            return unchanged(self.contents()?);
        }
        self.write_label(to)?;
        let answer = self.answer()?;
        if answer.contents.label != *to {
            let reason = "the mark of its new node did not read back";
            return Err(damaged(self.id(), reason.into()));
        }
        Ok(answer)
    }

    /// Fails unless the label is `from`, or `to` after an earlier adoption.
    fn is_adoptable(&self, from: &Label, to: &Label) -> Result<(), LayoutError> {
        let label = self.label();
        if label == from || label == to {
            return Ok(());
        }
        let reason = format!(
            "its label names cluster {:?}, node {:?} now, not the one that was scanned; scan again",
            label.cluster, label.node
        );
        Err(refused(self.id(), reason))
    }

    /// Returns a deleted volume, or the deleted store of this erase guid; None if it is not on the
    /// drive. Errs with `BadTransition` if the volume is not deleted.
    fn erasable(&self, uuid: Uuid) -> Result<Option<Erasable>, LayoutError> {
        let contents = self.contents()?;
        let Some(placed) = contents.volume(uuid) else {
            return self.deleted_store(uuid);
        };
        fit(placed)?;
        let RecordState::Erasing {
            erase_guid,
            done_bytes,
        } = placed.record.state
        else {
            return Err(LayoutError::BadTransition {
                uuid,
                from: advance::named(&placed.record.state),
                to: "erased".into(),
            });
        };
        Ok(Some(Erasable {
            uuid,
            guid: erase_guid,
            runs: self.runs(placed)?,
            policy: placed.record.erase,
            done: done_bytes,
        }))
    }

    /// Returns the same as `erasable`, after making sure that no process can read or write it; see
    /// `seize`.
    fn seized(&self, uuid: Uuid) -> Result<Option<Erasable>, LayoutError> {
        let erasable = self.erasable(uuid)?;
        if let Some(erasable) = &erasable {
            self.seize(erasable)?;
        }
        Ok(erasable)
    }

    /// Returns the record of the drive's free space; the default, with nothing zeroed, if there is
    /// none.
    fn space(&self) -> Space {
        let slots = self.space_slots();
        let read = |slots| zeroed::read(self.device(), slots, self.label().drive_uuid);
        slots.map(read).unwrap_or_default()
    }

    /// Writes the record of free space durably; does nothing if the drive has no place for one.
    fn keep_space(&self, space: &Space) -> Result<(), LayoutError> {
        let Some(slots) = self.space_slots() else {
            return Ok(());
        };
        zeroed::write(self.device(), slots, self.label().drive_uuid, space)
            .map_err(io_error(self.id(), "noting what is known of free space"))
    }

    /// Records that these free runs are zeros. The caller must have zeroed, flushed and read them
    /// back.
    fn note_zeroed(&self, zeroed: &[Extent]) -> Result<(), LayoutError> {
        let mut space = self.space();
        space.zeroed = runs::joined([space.zeroed.as_slice(), zeroed].concat());
        self.keep_space(&space)
    }

    /// Removes runs that a volume or snapshot gets now from the record of zeroed space, durably.
    fn take(&self, taken: &[Extent]) -> Result<(), LayoutError> {
        let space = self.space();
        let zeroed = runs::without(&space.zeroed, taken);
        if zeroed == space.zeroed {
            return Ok(());
        }
        self.keep_space(&Space { zeroed, ..space })
    }

    /// Records that zeros made with the current method (`Space::zeroing`) did not read back.
    /// Returns the method to use from now on.
    fn note_unzeroed(&self) -> Result<Zeroing, LayoutError> {
        let mut space = self.space();
        space.zeroing = space.zeroing.after_failure();
        let id = self.id();
        match space.zeroing {
            Zeroing::Fails => {
                tracing::error!(drive = %id, "drive does not keep zeros that are written to it");
            }
            _ => {
                tracing::warn!(drive = %id, "drive does not zero when commanded; zeros are written from now on");
            }
        }
        self.keep_space(&space)?;
        Ok(space.zeroing)
    }

    fn no_such_volume(&self, uuid: Uuid) -> LayoutError {
        LayoutError::NoSuchVolume {
            drive: self.id().to_string(),
            uuid,
        }
    }

    /// Returns a volume in any state; errs if it is missing or ambiguous.
    fn placed<'c>(&self, contents: &'c Contents, uuid: Uuid) -> Result<&'c Placed, LayoutError> {
        let placed = contents.volume(uuid);
        let placed = placed.ok_or_else(|| self.no_such_volume(uuid))?;
        fit(placed)?;
        Ok(placed)
    }

    /// Returns a volume that is neither being created nor deleted and is live; errs otherwise, or
    /// if it is ambiguous.
    fn living<'c>(&self, contents: &'c Contents, uuid: Uuid) -> Result<&'c Placed, LayoutError> {
        let placed = self.placed(contents, uuid)?;
        match placed.record.state {
            RecordState::Erasing { .. } | RecordState::Creating => Err(self.no_such_volume(uuid)),
            _ if !placed.record.place.is_live() => Err(self.not_there(placed)),
            _ => Ok(placed),
        }
    }

    /// Returns the result of a change, with the drive's contents read again.
    fn answer(&self) -> Result<Changed, LayoutError> {
        Ok(Changed {
            contents: self.changed()?,
            changed: true,
        })
    }
}

/// Returns the error of a creation whose outcome is unknown. `error` itself would mean that nothing
/// was done on the drive, which is not certain any more.
pub(super) fn in_doubt(id: &DriveId, error: &LayoutError) -> LayoutError {
    in_doubt_of("creating a volume", id, error)
}

/// Returns the error of the change `what` whose outcome is unknown; see [`in_doubt`].
pub(super) fn in_doubt_of(what: &str, id: &DriveId, error: &LayoutError) -> LayoutError {
    LayoutError::InDoubt {
        drive: id.to_string(),
        what: what.into(),
        source: Cause::new(error),
    }
}

/// Converts the error of growing a volume of `old` bytes by `more`: `NoSpace` becomes `CannotGrow`,
/// with sizes of the whole volume.
fn not_grown(error: LayoutError, uuid: Uuid, old: u64, more: u64) -> LayoutError {
    match error {
        LayoutError::NoSpace { largest, .. } => LayoutError::CannotGrow {
            uuid,
            needed: old + more,
            possible: old + largest,
        },
        error => error,
    }
}

/// Returns the result of a request that needed no change.
pub(super) fn unchanged(contents: Contents) -> Result<Changed, LayoutError> {
    Ok(Changed {
        contents,
        changed: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_space_for_growth_is_reported_for_the_whole_volume() {
        let error = LayoutError::NoSpace {
            drive: "d".into(),
            needed: 10,
            largest: 7,
        };
        match not_grown(error, Uuid::nil(), 100, 10) {
            LayoutError::CannotGrow {
                needed, possible, ..
            } => assert_eq!((needed, possible), (110, 107)),
            other => panic!("{other:?}"),
        }
    }
}
