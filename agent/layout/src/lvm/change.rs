//! Changes of LVM metadata: one `lvm` command each, then a flush of the drive, then everything is
//! read again.

use std::ffi::OsString;

use uuid::Uuid;

use super::{
    backup,
    metadata::Lv,
    name, note, plan,
    session::Session,
    tags::{self, VgMark},
};
use crate::{
    claimed::{ClaimedDrive, Erasable, in_doubt},
    device::Device,
    error::{LayoutError, ambiguous, damaged, fit, in_use, io_error},
    mapped,
    plan::advance::first_state,
    zeroed::Slots,
};
use drivebay_model::{
    Contents, DriveId, ErasePolicy, Extent, Label, PlaceState, Placed, Placement, Record,
    RecordState, cause::chain,
};

impl ClaimedDrive for Session<'_> {
    fn id(&self) -> &DriveId {
        &self.id
    }

    fn device(&self) -> &dyn Device {
        self.dev
    }

    fn label(&self) -> &Label {
        &self.view.mark.label
    }

    fn space_slots(&self) -> Option<Slots> {
        self.committed
            .header
            .bootloader
            .and_then(backup::of_free_space)
    }

    fn contents(&self) -> Result<Contents, LayoutError> {
        let mut contents = self.view.contents.clone();
        contents.space = self.space();
        contents.notes.extend(self.notes.iter().cloned());
        mapped::find(self.dev, &mut contents)?;
        Ok(contents)
    }

    /// Every change has read everything again at its end.
    fn changed(&self) -> Result<Contents, LayoutError> {
        self.contents()
    }

    /// Uses any free extents: a logical volume need not be contiguous.
    fn place(&self, contents: &Contents, size: u64, _: Placement) -> Option<Vec<Extent>> {
        plan::allocate(&contents.free, size)
    }

    /// Uses any free extents.
    fn place_more(
        &self,
        placed: &Placed,
        contents: &Contents,
        more: u64,
    ) -> Result<Vec<Extent>, u64> {
        let possible = placed.record.extent.len + contents.free_bytes();
        let lv = self.view.lvs.get(&placed.record.uuid);
        let end = lv.and_then(|lv| Some(self.extents(lv).last()?.end()));
        plan::grow(&contents.free, end.unwrap_or(0), more).ok_or(possible)
    }

    fn create_in(&mut self, record: &Record, runs: &[Extent]) -> Result<(), LayoutError> {
        let lvs = &self.committed.vg.lvs;
        let lv_name = name::of_lv(self.vg(), &record.name, record.uuid, |name| {
            lvs.iter().any(|lv| lv.name == name)
        });
        let mut args: Vec<OsString> = ["--yes", "--zero=n", "--wipesignatures=n", "--type=linear"]
            .map(OsString::from)
            .to_vec();
        let activate = match record.place.has_device() {
            true => "--activate=y",
            false => "--activate=n",
        };
        args.push(activate.into());
        for tag in tags::of_record(&new_record(record)) {
            args.extend(["--addtag".into(), tag.into()]);
        }
        args.extend([
            "--extents".into(),
            extents_of(runs).into(),
            "--name".into(),
            lv_name.into(),
            self.vg().into(),
            self.ranges(runs).into(),
        ]);
        let done = self.lvm("creating a volume", "lvcreate", args);
        self.created(record.uuid, done)
            .map_err(|error| match error {
                LayoutError::Damaged { .. } | LayoutError::Ambiguous { .. } => {
                    in_doubt(&self.id, &error)
                }
                error => error,
            })
    }

    fn grow(&mut self, placed: &Placed, runs: &[Extent]) -> Result<(), LayoutError> {
        let uuid = placed.record.uuid;
        let lv = self.lv(uuid)?;
        let size = placed.record.extent.len + runs.iter().map(|run| run.len).sum::<u64>();
        let args = vec![
            "--extents".into(),
            (size / plan::EXTENT_BYTES).to_string().into(),
            self.path(&lv),
            self.ranges(runs).into(),
        ];
        let done = self.lvm("growing a volume", "lvextend", args);
        self.see_again()?;
        // If the metadata changed and the kernel's table did not, the next `ReadDrive` with repair
        // updates the kernel.
        done?;
        let placed = self.volume(uuid);
        let kernel = self.device(&lv).map(|device| device.size_bytes);
        if placed.map(|placed| placed.record.extent.len) != Some(size) || kernel != Some(size) {
            return Err(self.odd("the volume that was grown did not read back with its new size"));
        }
        self.keep_copy()
    }

    fn is_free_to_change(&self, uuid: Uuid) -> Result<(), LayoutError> {
        self.without_snapshots(uuid)?;
        self.unchecked(uuid)
    }

    fn mark_erasing(&mut self, placed: &Placed) -> Result<(), LayoutError> {
        let uuid = placed.record.uuid;
        let lv = self.lv(uuid)?;
        if !self.take_from_kernel(&lv)? {
            return Err(in_use(placed, &self.dev.holders(placed)));
        }
        let args = vec![
            self.vg().into(),
            lv.name.clone().into(),
            name::erasing(Uuid::new_v4()).into(),
        ];
        let done = self.lvm("marking a volume for erasing", "lvrename", args);
        self.see_again()?;
        let state = self.volume(uuid).map(|placed| placed.record.state.clone());
        match (done, state) {
            // The mark decides, also if the command failed after writing it.
            (done, Some(RecordState::Erasing { .. })) => {
                if let Err(error) = done {
                    tracing::warn!(drive = %self.id, volume = %uuid, error = %chain(&error), "LVM command failed, but the volume is marked for erasing");
                }
                self.keep_copy()
            }
            // The next `ReadDrive` with repair, which needs the same lock, activates it again.
            (Err(error @ LayoutError::LvmLocked { .. }), _) => Err(error),
            (done, _) => {
                // The delete was not acknowledged: the kernel gets its device back.
                let args = vec!["--activate=y".into(), self.path(&lv)];
                if let Err(error) = self.lvm("activating a volume again", "lvchange", args) {
                    tracing::error!(drive = %self.id, volume = %uuid, error = %chain(&error), "cannot reactivate a volume whose deletion failed; the next scan activates it");
                }
                Err(done
                    .err()
                    .unwrap_or_else(|| self.odd("the volume did not read back as deleted")))
            }
        }
    }

    /// Always false: a single name is the whole mark.
    fn is_half_marked(&self, _uuid: Uuid) -> Result<bool, LayoutError> {
        Ok(false)
    }

    fn write_record(
        &mut self,
        placed: &Placed,
        state: &RecordState,
        place: &PlaceState,
    ) -> Result<(), LayoutError> {
        let lv = self.lv(placed.record.uuid)?;
        let wanted = tags::of_record(&Record {
            state: state.clone(),
            place: place.clone(),
            ..placed.record.clone()
        });
        let mut args = tags::options(&lv.tags, &wanted);
        args.push(self.path(&lv));
        self.lvm("writing the record", "lvchange", args)?;
        self.see_again()?;
        self.keep_copy()
    }

    fn take_device(&mut self, placed: &Placed) -> Result<(), LayoutError> {
        let lv = self.lv(placed.record.uuid)?;
        if !self.take_from_kernel(&lv)? {
            return Err(in_use(placed, &self.dev.holders(placed)));
        }
        Ok(())
    }

    fn settle_again(&mut self) -> Result<(), LayoutError> {
        let notes = std::mem::take(&mut self.notes);
        *self = Self::open(self.dev, true)?;
        self.notes.extend(notes);
        Ok(())
    }

    fn write_label(&mut self, label: &Label) -> Result<(), LayoutError> {
        self.write_mark(
            &VgMark {
                label: label.clone(),
            },
            "writing the drive's mark",
        )
    }

    fn runs(&self, placed: &Placed) -> Result<Vec<Extent>, LayoutError> {
        Ok(self.extents(&self.lv(placed.record.uuid)?))
    }

    fn deleted_store(&self, erase_guid: Uuid) -> Result<Option<Erasable>, LayoutError> {
        let Some(lv) = self.view.deleted_stores.get(&erase_guid) else {
            return Ok(None);
        };
        let attached = lv.snapshot_of.as_ref();
        let attached = attached.map(|volume| format!("its LV is a snapshot of {volume}"));
        if let Some(reason) = lv.strange.clone().or(attached) {
            return Err(ambiguous(erase_guid, reason));
        }
        let stores = &self.view.contents.deleted_stores;
        let store = stores.iter().find(|one| one.erase_guid == erase_guid);
        Ok(Some(Erasable {
            uuid: erase_guid,
            guid: erase_guid,
            runs: self.extents(lv),
            policy: ErasePolicy::Zero,
            done: store.map_or(0, |store| store.done_bytes),
        }))
    }

    /// An administrator may have activated the deleted LV.
    fn seize(&self, erasable: &Erasable) -> Result<(), LayoutError> {
        let lv = self.deleted_lv(erasable)?;
        if self.device(&lv).is_none() || self.take_from_kernel(&lv)? {
            return Ok(());
        }
        Err(match self.volume(erasable.uuid) {
            Some(placed) => in_use(placed, &self.dev.holders(placed)),
            None => self.lv_in_use(&lv),
        })
    }

    fn note_erased(&mut self, erasable: &Erasable, done: u64) -> Result<(), LayoutError> {
        note::write(self.dev, &erasable.runs, erasable.guid, done)
            .map_err(io_error(&self.id, "noting how far erasing is"))
    }

    fn release(&mut self, erasable: &Erasable) -> Result<(), LayoutError> {
        let lv = self.deleted_lv(erasable)?;
        let args = vec!["--force".into(), "--yes".into(), self.path(&lv)];
        let done = self.lvm("freeing erased space", "lvremove", args);
        self.see_again()?;
        let is_left = self.committed.vg.lvs.iter().any(|now| now.uuid == lv.uuid);
        match (done, is_left) {
            (_, false) => self.keep_copy(),
            (Err(error), true) => Err(error),
            (Ok(()), true) => Err(self.odd("the erased LV is still there after it was removed")),
        }
    }
}

impl Session<'_> {
    /// Returns the LV of a deleted volume or store.
    fn deleted_lv(&self, erasable: &Erasable) -> Result<Lv, LayoutError> {
        let store = self.view.deleted_stores.get(&erasable.uuid).cloned();
        store.map_or_else(|| self.lv(erasable.uuid), Ok)
    }

    /// Checks the result of `lvcreate`, and removes a volume that was created although the command
    /// failed.
    fn created(&mut self, uuid: Uuid, done: Result<(), LayoutError>) -> Result<(), LayoutError> {
        let seen_again = self.see_again();
        seen_again.map_err(|error| in_doubt(&self.id, &error))?;
        match (done, self.volume(uuid)) {
            (Ok(()), Some(placed)) => {
                fit(placed)?;
                if placed.device.is_none() && placed.record.place.has_device() {
                    return Err(self.odd("the kernel does not have the volume that was created"));
                }
                self.keep_copy()
            }
            (Ok(()), None) => Err(self.odd("the volume that was created did not read back")),
            (Err(error), None) => Err(error),
            (Err(error), Some(_)) => {
                // It was never acknowledged, so it may be removed.
                if let Some(lv) = self.view.lvs.get(&uuid) {
                    let undone = self.lvm(
                        "undoing a creation that failed",
                        "lvremove",
                        vec!["--force".into(), self.path(lv)],
                    );
                    if let Err(left) = undone {
                        tracing::error!(drive = %self.id, volume = %uuid, error = %chain(&left), "cannot undo a failed volume creation");
                        return Err(
                            self.odd("a volume that was not created completely is still there")
                        );
                    }
                }
                Err(error)
            }
        }
    }

    /// Replaces the VG's mark in its tags, and reads everything again.
    fn write_mark(&mut self, mark: &VgMark, what: &str) -> Result<(), LayoutError> {
        let mut args = tags::options(&self.committed.vg.tags, &tags::of_vg(mark));
        args.push(self.vg().into());
        self.lvm(what, "vgchange", args)?;
        self.see_again()?;
        self.keep_copy()
    }

    /// Returns this drive's PV with these runs, as LVM's commands take them.
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

    /// Returns the error of a change whose result is not the expected one.
    fn odd(&self, reason: &str) -> LayoutError {
        damaged(&self.id, reason.to_owned())
    }
}

/// Returns the number of extents in these runs, as LVM's commands take it.
pub(super) fn extents_of(runs: &[Extent]) -> String {
    let bytes: u64 = runs.iter().map(|run| run.len).sum();
    (bytes / plan::EXTENT_BYTES).to_string()
}

/// Returns the record for the tags of a new volume, without its extent, which LVM's own metadata
/// has.
fn new_record(record: &Record) -> Record {
    Record {
        extent: Extent { start: 0, len: 0 },
        state: first_state(record),
        ..record.clone()
    }
}
