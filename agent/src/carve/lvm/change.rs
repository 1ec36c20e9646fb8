//! The changes: create, expand and delete. One `lvm` command each, then a flush of the drive, then
//! everything is read again.

use std::ffi::OsString;

use uuid::Uuid;

use super::{name, plan, session::Session, tags};
use crate::carve::{
    jobs::{CarveError, Changed},
    partition::{fit, in_use, ready_space},
    plan as carving,
};
use crate::model::{Cause, Extent, Mode, Record, RecordState, VolumeSpec};

impl Session<'_> {
    /// Carves a volume, or finds the one of its name; never one of those that were `deleted`.
    pub(super) fn create(self, spec: &VolumeSpec, deleted: &[Uuid]) -> Result<Changed, CarveError> {
        let contents = &self.view.contents;
        let named = contents.volumes.iter().find(|placed| {
            !matches!(placed.record.state, RecordState::Erasing { .. })
                && !deleted.contains(&placed.record.uuid)
                && placed.record.name == spec.name
        });
        if let Some(placed) = named {
            fit(placed)?;
            return Ok(self.answer(false));
        }
        if contents.volume(spec.uuid).is_some() {
            return Err(CarveError::Ambiguous {
                uuid: spec.uuid,
                reason: "another volume on this drive has its identity".into(),
            });
        }
        let no_space = |needed| CarveError::NoSpace {
            drive: self.id.to_string(),
            needed,
            largest: contents.largest_free(),
        };
        let size = carving::rounded(spec.size_bytes).ok_or_else(|| no_space(spec.size_bytes))?;
        let runs = plan::allocate(&contents.free, size).ok_or_else(|| no_space(size))?;
        for run in &runs {
            ready_space(self.dev, &self.id, self.view.mark.free_space, *run)?;
        }
        let lvs = &self.committed.vg.lvs;
        let lv_name = name::of_lv(self.vg(), &spec.name, spec.uuid, |name| {
            lvs.iter().any(|lv| lv.name == name)
        });
        let mut args: Vec<OsString> = [
            "--yes",
            "--zero=n",
            "--wipesignatures=n",
            "--activate=y",
            "--type=linear",
        ]
        .map(OsString::from)
        .to_vec();
        for tag in tags::of_record(&new_record(spec)) {
            args.extend(["--addtag".into(), tag.into()]);
        }
        args.extend([
            "--extents".into(),
            (size / plan::EXTENT_BYTES).to_string().into(),
            "--name".into(),
            lv_name.into(),
            self.vg().into(),
            self.ranges(&runs).into(),
        ]);
        let done = self.lvm("creating a volume", "lvcreate", args);
        let (id, what) = (self.id.clone(), "creating a volume");
        self.created(spec, size, done).map_err(|error| match error {
            // What a drive answers that nothing was done on, which this one is not any more.
            CarveError::Damaged { .. } | CarveError::Ambiguous { .. } => CarveError::InDoubt {
                drive: id.to_string(),
                what: what.to_owned(),
                source: Cause::new(&error),
            },
            error => error,
        })
    }

    /// What came of `lvcreate`.
    fn created(
        mut self,
        spec: &VolumeSpec,
        size: u64,
        done: Result<(), CarveError>,
    ) -> Result<Changed, CarveError> {
        self.see_again()?;
        match (done, self.volume(spec.uuid)) {
            (Ok(()), Some(placed)) => {
                fit(placed)?;
                if placed.device.is_none() {
                    return Err(self.odd("the kernel does not have the volume that was created"));
                }
                self.keep_copy()?;
                Ok(self.answer(true))
            }
            (Ok(()), None) => Err(self.odd("the volume that was created did not read back")),
            (Err(error), None) => Err(sized(error, size)),
            (Err(error), Some(_)) => {
                // Nobody was told of it, so it may go.
                if let Some(lv) = self.view.lvs.get(&spec.uuid) {
                    let undone = self.lvm(
                        "undoing a creation that failed",
                        "lvremove",
                        vec!["--force".into(), self.path(lv)],
                    );
                    if let Err(left) = undone {
                        tracing::error!(drive = %self.id, volume = %spec.uuid, error = %crate::model::cause::chain(&left), "a failed creation could not be undone");
                        return Err(
                            self.odd("a volume that was not created completely is still there")
                        );
                    }
                }
                Err(sized(error, size))
            }
        }
    }

    /// Grows a volume to at least this size, wherever there is room. One that is as large is left alone.
    pub(super) fn expand(mut self, uuid: Uuid, size_bytes: u64) -> Result<Changed, CarveError> {
        let (placed, lv) = self.living(uuid)?;
        self.unchecked(uuid)?;
        let old = placed.record.extent.len;
        if old >= size_bytes {
            return Ok(self.answer(false));
        }
        let free = &self.view.contents.free;
        let possible = old + self.view.contents.free_bytes();
        let cannot = |needed| CarveError::CannotGrow {
            uuid,
            needed,
            possible,
        };
        let size = carving::rounded(size_bytes).ok_or_else(|| cannot(size_bytes))?;
        let end = self.runs(&lv).last().map_or(0, |run| run.end());
        let runs = plan::grow(free, end, size - old).ok_or_else(|| cannot(size))?;
        for run in &runs {
            ready_space(self.dev, &self.id, self.view.mark.free_space, *run)?;
        }
        let args = vec![
            "--extents".into(),
            (size / plan::EXTENT_BYTES).to_string().into(),
            self.path(&lv),
            self.ranges(&runs).into(),
        ];
        let done = self.lvm("growing a volume", "lvextend", args);
        self.see_again()?;
        if let Err(error) = done {
            // Metadata that went ahead of the kernel is brought to it by the next look.
            return Err(match error {
                CarveError::NoSpace { .. } => cannot(size),
                error => error,
            });
        }
        let (placed, lv) = self.living(uuid)?;
        let kernel = self.device(&lv).map(|device| device.size_bytes);
        if placed.record.extent.len != size || kernel != Some(size) {
            return Err(self.odd("the volume that was grown did not read back with its new size"));
        }
        self.keep_copy()?;
        Ok(self.answer(true))
    }

    /// Takes a volume from the kernel, which refuses while it is in use, and gives what it was another name. One that
    /// is not there, or is being erased, is left alone.
    pub(super) fn delete(mut self, uuid: Uuid) -> Result<Changed, CarveError> {
        let Some(placed) = self.volume(uuid).cloned() else {
            return Ok(self.answer(false));
        };
        fit(&placed)?;
        if matches!(placed.record.state, RecordState::Erasing { .. }) {
            return Ok(self.answer(false));
        }
        let (placed, lv) = self.living(uuid)?;
        self.unchecked(uuid)?;
        if !self.take_from_kernel(&lv)? {
            return Err(in_use(&placed));
        }
        let erase_guid = Uuid::new_v4();
        let args = vec![
            self.vg().into(),
            lv.name.clone().into(),
            name::erasing(erase_guid).into(),
        ];
        let done = self.lvm("marking a volume for erasing", "lvrename", args);
        self.see_again()?;
        let state = self.volume(uuid).map(|placed| placed.record.state.clone());
        match (done, state) {
            // The mark is what counts, also of a command that ended badly after it.
            (done, Some(RecordState::Erasing { .. })) => {
                if let Err(error) = done {
                    tracing::warn!(drive = %self.id, volume = %uuid, error = %crate::model::cause::chain(&error), "the volume is marked for erasing although the command failed");
                }
                self.keep_copy()?;
                Ok(self.answer(true))
            }
            // The next look, which needs the same lock, activates it again.
            (Err(error @ CarveError::LvmLocked { .. }), _) => Err(error),
            (done, _) => {
                // Nobody was told that it is deleted: the kernel gets it back.
                let args = vec!["--activate=y".into(), self.path(&lv)];
                if let Err(error) = self.lvm("activating a volume again", "lvchange", args) {
                    tracing::error!(drive = %self.id, volume = %uuid, error = %crate::model::cause::chain(&error), "a volume that was not deleted is not active; the next look activates it");
                }
                Err(done
                    .err()
                    .unwrap_or_else(|| self.odd("the volume did not read back as deleted")))
            }
        }
    }

    /// This drive as a PV with these runs.
    pub(super) fn ranges(&self, runs: &[Extent]) -> String {
        let vg = &self.committed.vg;
        let node = self.node();
        plan::pe_ranges(
            &node.to_string_lossy(),
            vg.pv.pe_start,
            vg.extent_bytes,
            runs,
        )
    }

    /// A change that did not come out as it should.
    fn odd(&self, reason: &str) -> CarveError {
        super::session::damaged(&self.id, reason.to_owned())
    }
}

/// What the tags of a new volume say: its state is decided here and now, so that the first stage has nothing to
/// plan and a first raw publish nothing to write.
fn new_record(spec: &VolumeSpec) -> Record {
    let state = match (spec.mode, spec.fs_type) {
        (Mode::Mount, Some(fs_type)) => RecordState::Fs {
            fs_type,
            fs_uuid: Uuid::new_v4(),
            mounted: false,
        },
        // Staging plans it.
        (Mode::Mount, None) => RecordState::New,
        (Mode::Block, _) => RecordState::Block,
    };
    // LVM knows where it lies.
    Record::new(spec, Extent { start: 0, len: 0 }, state)
}

/// The size that LVM had no room for.
fn sized(error: CarveError, needed: u64) -> CarveError {
    match error {
        CarveError::NoSpace { drive, largest, .. } => CarveError::NoSpace {
            drive,
            needed,
            largest,
        },
        error => error,
    }
}
