//! A claimed drive, read under its lock: what is decided about its volumes, once for both layouts. How it is written is
//! the layout's.
//!
//! A change begins with a drive that was read with repair (nothing is half done) and ends with everything durable and read
//! again. One that is so already changes nothing and says so.

use uuid::Uuid;

use super::{
    device::{self, Device},
    error::{CarveError, ambiguous, damaged, fit, in_use, io_error, refused},
    jobs::Changed,
    plan::{self, advance},
    space::{self, Need},
    zeroed::{self, Slots},
};
use drivebay_model::{
    Cause, Contents, Cordon, DriveId, ErasePolicy, Extent, Label, MIB, PlaceState, Placed,
    Placement, RawSpace, Record, RecordState, Space, Zeroing, cause, runs,
};

/// A deleted volume whose space is to be erased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Erasable {
    pub(super) uuid: Uuid,
    /// Which deletion it is.
    pub(super) guid: Uuid,
    /// Where its bytes are, in the volume's order.
    pub(super) runs: Vec<Extent>,
    /// What is to be done to them.
    pub(super) policy: ErasePolicy,
    /// Bytes known to be erased durably.
    pub(super) done: u64,
}

impl Erasable {
    /// Bytes in all.
    pub(super) fn total(&self) -> u64 {
        self.runs.iter().map(|run| run.len).sum()
    }

    /// Whether both are the same deletion at the same place, however far it is.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (self.guid, &self.runs) == (other.guid, &other.runs)
    }
}

/// A drive of ours that was read. Whoever calls what changes it holds its lock, and had it read with repair.
pub trait ClaimedDrive {
    /// Its identity.
    fn id(&self) -> &DriveId;
    /// Its bytes.
    fn device(&self) -> &dyn Device;
    /// Whose it is.
    fn label(&self) -> &Label;
    /// Where it keeps what is known of free space; None: nowhere, and nothing is known.
    fn space_slots(&self) -> Option<Slots>;
    /// Everything on it, as it was read.
    fn contents(&self) -> Result<Contents, CarveError>;
    /// Everything on it after a change, as it was read from the medium since.
    fn changed(&self) -> Result<Contents, CarveError>;
    /// Free space for a new volume; None: there is no place for it.
    fn place(&self, contents: &Contents, size: u64, placement: Placement) -> Option<Vec<Extent>>;
    /// Free space for as many bytes more of a volume; Err: to how many bytes it can grow.
    fn place_more(
        &self,
        placed: &Placed,
        contents: &Contents,
        more: u64,
    ) -> Result<Vec<Extent>, u64>;
    /// Makes a volume in these runs.
    fn carve(&mut self, record: &Record, runs: &[Extent]) -> Result<(), CarveError>;
    /// Appends these runs to a volume.
    fn grow(&mut self, placed: &Placed, runs: &[Extent]) -> Result<(), CarveError>;
    /// Fails while something else than the volume itself uses its space.
    fn is_free_to_change(&self, uuid: Uuid) -> Result<(), CarveError>;
    /// Takes a volume from the kernel (`InUse`) and gives what it was another identity.
    fn mark_erasing(&mut self, placed: &Placed) -> Result<(), CarveError>;
    /// Whether a volume whose record says that it is deleted still has the identity that it had.
    fn is_half_marked(&self, uuid: Uuid) -> Result<bool, CarveError>;
    /// Writes what state a volume is in, and its part in a move, both at once.
    fn write_record(
        &mut self,
        placed: &Placed,
        state: &RecordState,
        place: &PlaceState,
    ) -> Result<(), CarveError>;
    /// Takes a volume from the kernel; `InUse` while somebody has it open.
    fn take_device(&mut self, placed: &Placed) -> Result<(), CarveError>;
    /// Reads everything again, and gives the kernel what it should have.
    fn settle_again(&mut self) -> Result<(), CarveError>;
    /// Writes whose the drive is.
    fn write_label(&mut self, label: &Label) -> Result<(), CarveError>;
    /// Where the bytes of a deleted volume are.
    fn runs(&self, placed: &Placed) -> Result<Vec<Extent>, CarveError>;
    /// Makes sure that nobody can read or write a deleted volume any more (`InUse`).
    fn seize(&self, placed: &Placed) -> Result<(), CarveError>;
    /// Notes durably how far erasing got. The bytes are durable already.
    fn note_erased(&mut self, erasable: &Erasable, done: u64) -> Result<(), CarveError>;
    /// Gives erased space back.
    fn release(&mut self, erasable: &Erasable) -> Result<(), CarveError>;

    /// Carves a volume. One of the same name that lives and is none of `deleted` is the answer, unchanged.
    fn create(
        &mut self,
        record: &Record,
        raw_space: RawSpace,
        placement: Placement,
        deleted: &[Uuid],
    ) -> Result<Changed, CarveError> {
        let contents = self.contents()?;
        let named = contents.volumes.iter().find(|placed| {
            if !record.place.is_live() {
                return placed.record.uuid == record.uuid && placed.record.place == record.place;
            }
            !matches!(placed.record.state, RecordState::Erasing { .. })
                // What is left of a move is no volume that a creation could have made.
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
                // An earlier attempt that could not be undone because somebody has its partition open.
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
            return Err(CarveError::Cordoned {
                drive,
                by: cordon.by.clone(),
                reason: cordon.reason.clone(),
            });
        }
        let no_space = |needed| CarveError::NoSpace {
            drive: drive.clone(),
            needed,
            largest: contents.largest_free(),
        };
        // A copy is as large as its original, and every byte of it is written before anybody sees one.
        let (requested, need) = match record.place.is_live() {
            true => (record.requested_bytes, Need::of(record.mode, raw_space)),
            false => (record.extent.len, Need::Ends),
        };
        let size = plan::rounded(requested).ok_or_else(|| no_space(requested))?;
        let runs = space::room(self, &contents, need, |drive, contents| {
            let runs = drive.place(contents, size, placement);
            runs.ok_or_else(|| no_space(size))
        })?;
        self.carve(record, &runs).map_err(|error| match error {
            CarveError::NoSpace { .. } => no_space(size),
            error => error,
        })?;
        self.answer().map_err(|error| in_doubt(self.id(), &error))
    }

    /// Grows a volume to at least this size. One that is as large is left alone.
    fn expand(
        &mut self,
        uuid: Uuid,
        size_bytes: u64,
        raw_space: RawSpace,
    ) -> Result<Changed, CarveError> {
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
            runs.map_err(|possible| CarveError::CannotGrow {
                uuid,
                needed: size.unwrap_or(size_bytes),
                possible,
            })
        })?;
        self.grow(placed, &runs)
            .map_err(|error| not_grown(error, uuid, old, more))?;
        self.answer()
    }

    /// Takes a volume from the kernel, which refuses while it is in use, and gives what it was another identity. One that
    /// is not there, or is being erased, is left alone.
    fn delete(&mut self, uuid: Uuid) -> Result<Changed, CarveError> {
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
            RecordState::Erasing { .. } => return unchanged(contents),
            _ => {}
        }
        self.is_free_to_change(uuid)?;
        self.mark_erasing(placed)?;
        self.answer()
    }

    /// The same of a volume that was never used: never mounted by its record, and zeros in its first and last MiB and in 64 samples
    /// of each of its runs. Of a raw volume no record says whether it was written.
    fn delete_unused(&mut self, uuid: Uuid) -> Result<Changed, CarveError> {
        let contents = self.contents()?;
        if let Some(placed) = contents.volume(uuid)
            && !matches!(placed.record.state, RecordState::Erasing { .. })
        {
            fit(placed)?;
            let used = |why| Err(CarveError::Used { uuid, why });
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

    /// Moves a volume's record on, durably and read back. Only forward: nothing makes a formatted volume new again.
    fn advance(&mut self, uuid: Uuid, to: &RecordState) -> Result<Changed, CarveError> {
        let contents = self.contents()?;
        let placed = self.living(&contents, uuid)?;
        let record = &placed.record;
        if record.state == *to {
            return unchanged(contents);
        }
        if !advance::may(record, to) {
            return Err(CarveError::BadTransition {
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

    /// Changes a volume's part in a move, durably and read back. From then on the kernel has its device only where it is live.
    fn set_place(
        &mut self,
        uuid: Uuid,
        from: &PlaceState,
        to: &PlaceState,
        state: Option<&RecordState>,
    ) -> Result<Changed, CarveError> {
        let contents = self.contents()?;
        let Some(placed) = contents.volume(uuid) else {
            return Err(CarveError::NoSuchVolume {
                drive: self.id().to_string(),
                uuid,
            });
        };
        fit(placed)?;
        let record = &placed.record;
        if record.place == *to {
            return unchanged(contents);
        }
        if record.place != *from || record.state == RecordState::Creating || record.is_erasing() {
            return Err(self.not_there(placed));
        }
        if !from.may_become(to) {
            return Err(CarveError::BadTransition {
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
            if from.has_device() && matches!(error, CarveError::Io { .. }) {
                return Err(CarveError::NotWritten {
                    drive: self.id().to_string(),
                    uuid,
                    source: Cause::new(&error),
                });
            }
            // Whatever the drive says now, the kernel is to have it. What fails here is done by the next look.
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

    /// Has what a move does not need any more erased. One that is not there, or is being erased, is left alone.
    fn drop_place(&mut self, uuid: Uuid, place: &PlaceState) -> Result<Changed, CarveError> {
        let contents = self.contents()?;
        let Some(placed) = contents.volume(uuid) else {
            return unchanged(contents);
        };
        if placed.record.place.is_live() || placed.record.place != *place {
            return Err(self.not_there(placed));
        }
        self.delete(uuid)
    }

    /// The volume is here and has another part in a move than was expected.
    fn not_there(&self, placed: &Placed) -> CarveError {
        let state = match placed.record.state {
            RecordState::Erasing { .. } => "being erased; ",
            _ => "",
        };
        CarveError::NotThere {
            drive: self.id().to_string(),
            uuid: placed.record.uuid,
            place: format!("{state}{}", placed.record.place.describe()),
        }
    }

    /// Records that it takes no new volumes, or again does. The first cordon stays until it is taken away.
    fn set_cordon(&mut self, cordon: Option<&Cordon>) -> Result<Changed, CarveError> {
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

    /// Makes it another node's, on an operator's word, if its label is still the one that was seen, or this one already.
    fn adopt(&mut self, from: &Label, to: &Label) -> Result<Changed, CarveError> {
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

    /// Whether the drive still has the label that was seen, or has been adopted already.
    fn is_adoptable(&self, from: &Label, to: &Label) -> Result<(), CarveError> {
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

    /// A deleted volume; None when it is not on the drive (any more).
    fn erasable(&self, uuid: Uuid) -> Result<Option<Erasable>, CarveError> {
        let contents = self.contents()?;
        let Some(placed) = contents.volume(uuid) else {
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

    /// The same, once nobody can read or write it any more.
    fn seized(&self, uuid: Uuid) -> Result<Option<Erasable>, CarveError> {
        let erasable = self.erasable(uuid)?;
        if erasable.is_some()
            && let Some(placed) = self.contents()?.volume(uuid)
        {
            self.seize(placed)?;
        }
        Ok(erasable)
    }

    /// What is known of its free space.
    fn space(&self) -> Space {
        let slots = self.space_slots();
        let read = |slots| zeroed::read(self.device(), slots, self.label().drive_uuid);
        slots.map(read).unwrap_or_default()
    }

    /// Keeps it, durably.
    fn keep_space(&self, space: &Space) -> Result<(), CarveError> {
        let Some(slots) = self.space_slots() else {
            return Ok(());
        };
        zeroed::write(self.device(), slots, self.label().drive_uuid, space)
            .map_err(io_error(self.id(), "noting what is known of free space"))
    }

    /// These free runs were zeroed, flushed and read back.
    fn note_zeroed(&self, zeroed: &[Extent]) -> Result<(), CarveError> {
        let mut space = self.space();
        space.zeroed = runs::joined([space.zeroed.as_slice(), zeroed].concat());
        self.keep_space(&space)
    }

    /// Somebody gets these free runs now: nothing is known of them any more.
    fn take(&self, taken: &[Extent]) -> Result<(), CarveError> {
        let space = self.space();
        let zeroed = runs::without(&space.zeroed, taken);
        if zeroed == space.zeroed {
            return Ok(());
        }
        self.keep_space(&Space { zeroed, ..space })
    }

    /// Zeros that were made as the drive says (`Space::zeroing`) did not read back: the next ones are made another way.
    fn note_unzeroed(&self) -> Result<Zeroing, CarveError> {
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

    /// A volume that lives and about which everything agrees.
    fn living<'c>(&self, contents: &'c Contents, uuid: Uuid) -> Result<&'c Placed, CarveError> {
        let unknown = || CarveError::NoSuchVolume {
            drive: self.id().to_string(),
            uuid,
        };
        let placed = contents.volume(uuid).ok_or_else(unknown)?;
        fit(placed)?;
        match placed.record.state {
            RecordState::Erasing { .. } | RecordState::Creating => Err(unknown()),
            _ if !placed.record.place.is_live() => Err(self.not_there(placed)),
            _ => Ok(placed),
        }
    }

    /// The answer after a change.
    fn answer(&self) -> Result<Changed, CarveError> {
        Ok(Changed {
            contents: self.changed()?,
            changed: true,
        })
    }
}

/// A creation of which it is not known what came: what is read says what a drive answers that nothing was done on, which this
/// one is not any more.
pub(super) fn in_doubt(id: &DriveId, error: &CarveError) -> CarveError {
    in_doubt_of("creating a volume", id, error)
}

/// The same of another change.
pub(super) fn in_doubt_of(what: &str, id: &DriveId, error: &CarveError) -> CarveError {
    CarveError::InDoubt {
        drive: id.to_string(),
        what: what.into(),
        source: Cause::new(error),
    }
}

/// Why a volume of `old` bytes did not get `more`. What there is too little of is said for the whole volume.
fn not_grown(error: CarveError, uuid: Uuid, old: u64, more: u64) -> CarveError {
    match error {
        CarveError::NoSpace { largest, .. } => CarveError::CannotGrow {
            uuid,
            needed: old + more,
            possible: old + largest,
        },
        error => error,
    }
}

fn unchanged(contents: Contents) -> Result<Changed, CarveError> {
    Ok(Changed {
        contents,
        changed: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_for_growth_is_said_for_the_whole_volume() {
        let error = CarveError::NoSpace {
            drive: "d".into(),
            needed: 10,
            largest: 7,
        };
        match not_grown(error, Uuid::nil(), 100, 10) {
            CarveError::CannotGrow {
                needed, possible, ..
            } => assert_eq!((needed, possible), (110, 107)),
            other => panic!("{other:?}"),
        }
    }
}
