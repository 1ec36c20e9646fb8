//! Reads a Drivebay drive, and repairs it: a torn metadata text is restored from its copy, live LVs
//! that the kernel does not have are activated, and LVs whose table in the kernel is outdated are
//! refreshed. Everything that is not understood is left unchanged.

use std::{collections::BTreeMap, ffi::OsString, path::Path, time::Duration};

use uuid::Uuid;

use super::{
    backup, label,
    metadata::{self, Committed, Lv, PvContents, Torn, Vg},
    name, pv, snapshot, unreadable,
    view::{self, View},
};
use crate::{
    device::{Device, Medium},
    error::{LayoutError, ambiguous, damaged, host_error, io_error, not_ours},
};
use drivebay_model::{Cause, DriveId, DriveRef, Extent, Placed, RecordState};
use drivebay_sys::{
    blockdev::BlockDev,
    clock::since_boot,
    dm::{self, DmDevice},
    lvm::{self, LvmError},
    statefile,
};

/// Time limit of a command that suspends a volume.
const STANDSTILL: Duration = Duration::from_secs(180);

/// A Drivebay drive, as it was read. The caller must hold its lock.
pub(crate) struct Session<'a> {
    pub(super) dev: &'a BlockDev,
    pub(super) id: DriveId,
    pub(super) committed: Committed,
    pub(super) dm: Vec<DmDevice>,
    pub(super) view: View,
    pub(super) notes: Vec<String>,
}

impl<'a> Session<'a> {
    /// Reads the metadata, the kernel's devices and the progress of erasing; with `repair`, also
    /// repairs the drive. Without it a torn text is replaced by its copy in memory only, with a
    /// note.
    pub(crate) fn open(dev: &'a BlockDev, repair: bool) -> Result<Self, LayoutError> {
        let id = &dev.drive().id;
        let mut session = match committed(dev, id)? {
            Ok(committed) if repair => Self::of(dev, labelled(dev, id, committed)?)?,
            Ok(committed) => Self::of(dev, committed)?,
            Err(torn) if repair => restore(dev, &torn)?,
            // The last acknowledged version, so that the drive counts as Drivebay's and is read
            // again with repair.
            Err(torn) => {
                let mut session = Self::of(dev, copy_of(dev, id, &torn)?)?;
                session.notes.push(format!(
                    "LVM's metadata is torn ({}); what is shown is the last acknowledged version",
                    torn.why
                ));
                session
            }
        };
        if repair {
            // Without it there is one copy less to restore from; nothing else depends on it.
            if let Err(error) = session.keep_strange_copy() {
                let why = drivebay_model::cause::chain(&error);
                session
                    .notes
                    .push(format!("there is no new copy of LVM's metadata: {why}"));
            }
            session.part_checks()?;
            session.clear_orphans()?;
            session.settle()?;
            session.record_losses()?;
        }
        Ok(session)
    }

    /// Reads the drive without repairs. The inner error: its metadata is torn.
    fn read(dev: &'a BlockDev) -> Result<Result<Self, Torn>, LayoutError> {
        match committed(dev, &dev.drive().id)? {
            Ok(committed) => Self::of(dev, committed).map(Ok),
            Err(torn) => Ok(Err(torn)),
        }
    }

    /// Combines this metadata with the kernel's devices.
    fn of(dev: &'a BlockDev, committed: Committed) -> Result<Self, LayoutError> {
        let id = dev.drive().id.clone();
        let newer = committed.header.bootloader;
        if let Some(format) = newer.and_then(|area| backup::newer(dev, area)) {
            return Err(damaged(&id, backup::why_newer(format)));
        }
        let read_at = since_boot().into();
        let dm = devices(dev, &committed.vg)?;
        let erased = erase_notes(dev, &committed);
        let mut view = view::view(
            &committed.vg,
            &dm,
            &dev.drive().kernel_name,
            &erased,
            dev.size(),
        )
        .map_err(|why| damaged(&id, why))?;
        view.contents.read_at = read_at;
        let volumes = view.contents.volumes.iter_mut();
        let snapshots = volumes.flat_map(|placed| &mut placed.snapshots);
        for one in snapshots.filter(|one| one.device.is_some()) {
            let status = dm::snapshot_status(&one.dm_uuid);
            snapshot::apply_status(one, status);
        }
        // The note causes a `ReadDrive` with repair.
        let notes = committed.label_damage.iter();
        Ok(Self {
            notes: notes
                .map(|why| format!("its LVM label is damaged ({why})"))
                .collect(),
            dev,
            id,
            committed,
            dm,
            view,
        })
    }

    /// Returns a volume on the drive, in any state.
    pub(super) fn volume(&self, uuid: Uuid) -> Option<&Placed> {
        self.view.contents.volume(uuid)
    }

    /// Returns the LV of a volume.
    pub(super) fn lv(&self, uuid: Uuid) -> Result<Lv, LayoutError> {
        let lv = self.view.lvs.get(&uuid).cloned();
        lv.ok_or_else(|| ambiguous(uuid, "it has no LV".into()))
    }

    /// Returns the extents of an LV on the drive, in its order.
    pub(super) fn extents(&self, lv: &Lv) -> Vec<Extent> {
        view::runs(&self.committed.vg, lv)
    }

    pub(super) fn vg(&self) -> &str {
        &self.committed.vg.name
    }

    /// Returns the LV as LVM's commands take it.
    pub(super) fn path(&self, lv: &Lv) -> OsString {
        format!("{}/{}", self.vg(), lv.name).into()
    }

    pub(super) fn node(&self) -> std::path::PathBuf {
        self.dev.drive().node()
    }

    /// Runs one command, and flushes the drive regardless of its result.
    pub(super) fn lvm(
        &self,
        what: &str,
        command: &str,
        args: Vec<OsString>,
    ) -> Result<(), LayoutError> {
        let run = || lvm::run(command, &self.node(), self.vg(), &args);
        self.flushed(what, self.again_if_mended(run))
    }

    /// Runs a command that suspends a mounted volume: the volume's writes are flushed first, which
    /// may take long, and a killed command would leave it suspended. The limit is `STANDSTILL`.
    pub(super) fn lvm_patiently(
        &self,
        what: &str,
        command: &str,
        args: Vec<OsString>,
    ) -> Result<(), LayoutError> {
        let run = || lvm::run_within(command, &self.node(), self.vg(), &args, STANDSTILL);
        self.flushed(what, self.again_if_mended(run))
    }

    /// Runs a command, and once more if it failed and an unreadable sector that LVM needs could be
    /// rewritten. Commands can be repeated: their result is read from the drive, also if one had
    /// done its work before it failed.
    fn again_if_mended<T>(&self, run: impl Fn() -> Result<T, LvmError>) -> Result<T, LvmError> {
        match run() {
            Err(error) if error.is_unexplained() && self.mend_unreadable() => {
                tracing::info!(drive = %self.id, error = %error, "retrying an LVM command that failed");
                run()
            }
            done => done,
        }
    }

    /// Rewrites unreadable sectors of the metadata area that hold no data; true if there were some.
    /// Reads the metadata again first: the command may have changed it.
    fn mend_unreadable(&self) -> bool {
        let Ok(Ok(committed)) = committed(self.dev, &self.id) else {
            return false;
        };
        match unreadable::mend(self.dev, &committed) {
            Ok(0) => false,
            Ok(blocks) => {
                tracing::warn!(drive = %self.id, blocks, "rewrote unreadable blocks of LVM's metadata area that held nothing");
                true
            }
            Err(error) => {
                tracing::warn!(drive = %self.id, %error, "cannot rewrite unreadable blocks of LVM's metadata area");
                false
            }
        }
    }

    fn flushed<T>(&self, what: &str, done: Result<T, LvmError>) -> Result<(), LayoutError> {
        let flushed = self.flush();
        done.map_err(|error| self.lvm_error(what, error))?;
        flushed
    }

    /// Makes the metadata that was read durable.
    pub(super) fn flush(&self) -> Result<(), LayoutError> {
        let flushed = self.dev.flush();
        flushed.map_err(io_error(&self.id, "flushing LVM's metadata"))
    }

    fn lvm_error(&self, what: &str, error: LvmError) -> LayoutError {
        match error {
            error if error.is_no_space() => LayoutError::NoSpace {
                drive: self.id.to_string(),
                needed: 0,
                largest: self.view.contents.largest_free(),
            },
            error if error.is_metadata_full() => LayoutError::TableFull {
                drive: self.id.to_string(),
                entries: u32::try_from(self.committed.vg.lvs.len()).unwrap_or(u32::MAX),
            },
            error => lvm_error(&self.id, what, &error),
        }
    }

    /// Writes a copy of the present metadata, which must have been flushed after its change.
    pub(super) fn keep_copy(&mut self) -> Result<(), LayoutError> {
        let Some(area) = self.committed.header.bootloader else {
            self.notes
                .push("there is no room for a copy of LVM's metadata on this drive".into());
            return Ok(());
        };
        backup::keep(
            self.dev,
            area,
            &self.committed.text,
            self.committed.vg.seqno,
        )
        .map_err(io_error(&self.id, "keeping a copy of LVM's metadata"))
    }

    /// Writes a copy of metadata that may be an administrator's change, after flushing it, since no
    /// command of Drivebay did.
    fn keep_strange_copy(&mut self) -> Result<(), LayoutError> {
        // A copy that cannot be read is written again.
        let area_of_copies = self.committed.header.bootloader;
        let newest = area_of_copies.and_then(|area| backup::newest(self.dev, area).ok().flatten());
        let vg = &self.committed.vg;
        if newest.is_some_and(|copy| copy.seqno == vg.seqno && copy.text == self.committed.text) {
            return Ok(());
        }
        self.flush()?;
        self.keep_copy()
    }

    /// Removes devices that are left from before the drive was unplugged. A device that is mounted
    /// stays, and so does its volume, until it is unmounted.
    fn clear_orphans(&mut self) -> Result<(), LayoutError> {
        let mut removed = false;
        for uuid in &self.view.orphaned {
            if let Some(lv) = self.view.lvs.get(uuid) {
                // An encrypted volume has a mapped device on it, which stays while it is mounted, and so does this one.
                if let Some(placed) = self.volume(*uuid)
                    && let Err(error) = self.dev.unmap(placed)
                {
                    tracing::debug!(volume = %uuid, %error, "cannot remove the mapped device of a volume on a drive that was unplugged");
                }
                removed |= self.take_from_kernel(lv)?;
            }
        }
        if removed { self.see_again() } else { Ok(()) }
    }

    /// Activates live volumes that are not active, and refreshes devices whose table is outdated.
    fn settle(&mut self) -> Result<(), LayoutError> {
        let lvs = &self.view.lvs;
        let absent: Vec<OsString> = self
            .view
            .contents
            .volumes
            .iter()
            .filter(|placed| placed.device.is_none() && placed.ambiguous.is_none())
            .filter(|placed| placed.record.place.has_device())
            .filter(|placed| !matches!(placed.record.state, RecordState::Erasing { .. }))
            .filter_map(|placed| lvs.get(&placed.record.uuid))
            .map(|lv| self.path(lv))
            .collect();
        let outdated: Vec<OsString> = self
            .view
            .stale
            .iter()
            .filter_map(|uuid| lvs.get(uuid))
            .filter(|lv| name::erase_guid(&lv.name).is_none())
            .map(|lv| self.path(lv))
            .collect();
        if absent.is_empty() && outdated.is_empty() {
            return Ok(());
        }
        let mut failed = None;
        for (what, how, lvs) in [
            ("activating volumes", "-ay", absent),
            ("giving volumes their new size", "--refresh", outdated),
        ] {
            if lvs.is_empty() {
                continue;
            }
            let args = std::iter::once(how.into()).chain(lvs).collect();
            failed = self.lvm(what, "lvchange", args).err().or(failed);
        }
        if let Some(error) = failed {
            // The active volumes can be used; the rest is retried by the next `ReadDrive` with repair.
            let why = drivebay_model::cause::chain(&error);
            tracing::error!(drive = %self.id, error = why, "cannot activate every volume of the drive");
            self.notes
                .push(format!("not every volume could be activated: {why}"));
        }
        self.see_again()
    }

    /// Reads everything again after a change, from the medium and the kernel.
    pub(super) fn see_again(&mut self) -> Result<(), LayoutError> {
        match Self::read(self.dev)? {
            Ok(again) => {
                let notes = std::mem::take(&mut self.notes);
                *self = again;
                self.notes = notes;
                Ok(())
            }
            Err(torn) => Err(damaged(&self.id, torn.why)),
        }
    }

    /// Returns the kernel's device of an LV.
    pub(super) fn device(&self, lv: &Lv) -> Option<&DmDevice> {
        let uuid = view::dm_uuid(&self.committed.vg, lv);
        dm::on_drive(&self.dm, &self.dev.drive().kernel_name, &uuid)
    }

    /// Removes an LV's device from the kernel, if there is one; false while it is in use.
    pub(super) fn take_from_kernel(&self, lv: &Lv) -> Result<bool, LayoutError> {
        match self.remove_device(&view::dm_uuid(&self.committed.vg, lv)) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(false),
            Err(error) => Err(io_error(&self.id, "taking an LV from the kernel")(error)),
        }
    }

    /// Removes a device of this drive from the kernel, if there is one.
    pub(super) fn remove_device(&self, uuid: &str) -> std::io::Result<()> {
        let drive = &self.dev.drive().kernel_name;
        dm::remove_from(Path::new("/sys"), drive, uuid).map(drop)
    }

    pub(super) fn deactivate_all(&self) -> Result<(), LayoutError> {
        for lv in &self.committed.vg.lvs {
            if self.device(lv).is_some() && !self.take_from_kernel(lv)? {
                return Err(self.lv_in_use(lv));
            }
        }
        Ok(())
    }

    pub(super) fn lv_in_use(&self, lv: &Lv) -> LayoutError {
        LayoutError::Busy {
            drive: self.id.to_string(),
            reason: format!("LV {}/{} is in use", self.vg(), lv.name),
        }
    }

    /// Fails unless LVM itself reports the same VG and LVs as were read, which is checked before a
    /// new VG is used.
    pub(super) fn cross_check(&self) -> Result<(), LayoutError> {
        let report = lvm::report(&self.node(), self.vg())
            .map_err(|error| lvm_error(&self.id, "asking LVM what it sees", &error))?;
        let vg = &self.committed.vg;
        let mut ours: Vec<_> = vg
            .lvs
            .iter()
            .filter(|lv| lv.strange.is_none())
            .map(|lv| {
                let pes: u64 = lv.segments.iter().map(|segment| segment.count).sum();
                (lv.name.clone(), lv.uuid.clone(), pes * vg.extent_bytes)
            })
            .collect();
        ours.sort();
        let theirs: Vec<_> = report
            .lvs
            .iter()
            .map(|lv| (lv.name.clone(), lv.uuid.clone(), lv.bytes))
            .collect();
        let same = (&vg.name, &vg.uuid, vg.seqno, vg.pv.pe_count)
            == (&report.name, &report.uuid, report.seqno, report.extents)
            && ours == theirs;
        if same {
            return Ok(());
        }
        Err(damaged(
            &self.id,
            format!(
                "LVM reports version {} of VG {} with {} LVs, and version {} with {} LVs was read",
                report.seqno,
                report.name,
                theirs.len(),
                vg.seqno,
                ours.len()
            ),
        ))
    }
}

/// Reads the metadata in LVM's own place on a Drivebay drive. The inner error: it is torn.
fn committed<D: Medium + ?Sized>(
    dev: &D,
    id: &DriveId,
) -> Result<Result<Committed, Torn>, LayoutError> {
    match metadata::read(dev).map_err(io_error(id, "reading LVM's metadata"))? {
        PvContents::Torn(torn) => Ok(Err(torn)),
        PvContents::Vg(committed) => Ok(Ok(*committed)),
        PvContents::Orphan(header) if pv::drive_uuid_of(&header.uuid).is_some() => {
            pv::never_complete(dev, id, &header)?;
            Err(LayoutError::Unlabelled {
                drive: id.to_string(),
            })
        }
        PvContents::Damaged { why, .. } => Err(damaged(id, why)),
        PvContents::NoPv | PvContents::Orphan(_) => Err(not_ours(id)),
    }
}

/// Returns a drive's metadata without reading the kernel's devices; the last acknowledged version
/// if it is torn.
pub fn shown<D: Medium + ?Sized>(dev: &D, id: &DriveId) -> Result<Committed, LayoutError> {
    match committed(dev, id)? {
        Ok(committed) => Ok(committed),
        Err(torn) => copy_of(dev, id, &torn),
    }
}

/// Returns the copy of a torn text. Errs if there is none of this PV, with `Unlabelled` if the claim
/// was never complete.
pub(super) fn copy_of<D: Medium + ?Sized>(
    dev: &D,
    id: &DriveId,
    torn: &Torn,
) -> Result<Committed, LayoutError> {
    let fail = |why: &str| Err(torn_and(id, torn, why));
    let copy = match torn.header.bootloader {
        Some(area) => {
            backup::newest(dev, area).map_err(io_error(id, "reading the copy of LVM's metadata"))?
        }
        None => None,
    };
    let Some(copy) = copy else {
        // A range that cannot be read proves nothing.
        return match pv::is_unfinished(dev, torn) {
            Ok(true) => Err(LayoutError::Unlabelled {
                drive: id.to_string(),
            }),
            _ => fail("there is no copy of it"),
        };
    };
    match metadata::parse(&copy.text, &torn.header.uuid) {
        Ok(vg) if vg.strange.is_empty() => Ok(Committed {
            header: torn.header.clone(),
            vg,
            text: copy.text,
            location: None,
            label_damage: None,
        }),
        Ok(_) => fail("its copy is of another PV"),
        Err(why) => fail(&format!("its copy cannot be read: {why}")),
    }
}

fn torn_and(id: &DriveId, torn: &Torn, why: &str) -> LayoutError {
    damaged(
        id,
        format!("its LVM metadata is torn ({}), and {why}", torn.why),
    )
}

/// Rewrites the label sector of a drive if it was damaged.
fn labelled(
    dev: &BlockDev,
    id: &DriveId,
    mut current: Committed,
) -> Result<Committed, LayoutError> {
    let Some(why) = current.label_damage.take() else {
        return Ok(current);
    };
    label::write(dev, &current.header).map_err(io_error(id, "writing the LVM label"))?;
    match committed(dev, id)? {
        Ok(again) if again.label_damage.is_none() => {
            tracing::warn!(drive = %id, reason = why, "damaged LVM label restored from the metadata area");
            Ok(again)
        }
        _ => Err(damaged(
            id,
            format!("its LVM label was damaged ({why}), was written again, and did not read back"),
        )),
    }
}

/// Restores header or text of a metadata area if the copy is certainly the committed version: then
/// the kernel has no newer table of a volume in use. False: it is not certain, and nothing was
/// written.
fn restore_in_place(dev: &BlockDev, torn: &Torn, copy: &Committed) -> Result<bool, LayoutError> {
    let id = &dev.drive().id;
    let [area] = torn.header.metadata.as_slice() else {
        return Ok(false);
    };
    let mut text = copy.text.clone();
    text.push(0);
    match torn.location {
        Some(location) => {
            let size = text.len() as u64;
            if (size, metadata::checksum(&text)) != (location.size, location.checksum) {
                return Ok(false);
            }
            label::write_text(dev, *area, location, &text)
                .map_err(io_error(id, "writing LVM's metadata"))?;
        }
        None => {
            let seqno_of = |text: &[u8]| {
                let vg = metadata::parse(text, &torn.header.uuid).ok()?;
                (vg.uuid == copy.vg.uuid).then_some(vg.seqno)
            };
            // A text that cannot be read may be newer.
            let Ok(Some(location)) = label::find(dev, *area, &copy.text, seqno_of) else {
                return Ok(false);
            };
            label::write_area(dev, *area, location)
                .map_err(io_error(id, "writing the header of LVM's metadata area"))?;
        }
    }
    Ok(true)
}

/// Restores a torn text from its copy, by LVM's own command if it may not be the committed version.
///
/// LVM's command requires that nothing of the drive is active: a table in the kernel may be newer
/// than the copy. The copy is the last acknowledged version; a change that is lost was never
/// acknowledged.
fn restore<'a>(dev: &'a BlockDev, torn: &Torn) -> Result<Session<'a>, LayoutError> {
    let id = &dev.drive().id;
    let copy = copy_of(dev, id, torn)?;
    if !restore_in_place(dev, torn, &copy)? {
        restore_by_lvm(dev, torn, &copy)?;
    }
    match Session::read(dev)? {
        Ok(mut session) => {
            tracing::warn!(drive = %id, seqno = copy.vg.seqno, "torn LVM metadata restored from its copy");
            session
                .notes
                .push("LVM's metadata was torn; the last acknowledged version was put back".into());
            Ok(session)
        }
        Err(torn) => Err(damaged(
            id,
            format!(
                "its LVM metadata was restored and did not read back ({})",
                torn.why
            ),
        )),
    }
}

fn restore_by_lvm(dev: &BlockDev, torn: &Torn, copy: &Committed) -> Result<(), LayoutError> {
    let id = &dev.drive().id;
    let Committed { vg, text, .. } = copy;
    let fail = |why: &str| Err(torn_and(id, torn, why));
    let kernel_name = &dev.drive().kernel_name;
    if devices(dev, vg)?
        .iter()
        .any(|device| device.slaves.contains(kernel_name))
    {
        return fail("something on the drive is active; deactivate it, then it is restored");
    }
    let directory = lvm::directory()
        .ok_or_else(|| lvm_error(id, "restoring LVM's metadata", &LvmError::NotPrepared))?;
    let file = directory.join(format!("restore-{}", vg.name));
    statefile::write_atomic(&file, text)
        .map_err(io_error(id, "writing the copy of LVM's metadata to a file"))?;
    let done = lvm::repair_metadata(&dev.drive().node(), &file);
    remove(&file);
    dev.flush()
        .map_err(io_error(id, "flushing LVM's metadata"))?;
    done.map_err(|error| lvm_error(id, "restoring LVM's metadata", &error))
}

/// A remaining file is overwritten by the next one.
fn remove(file: &Path) {
    if let Err(error) = std::fs::remove_file(file) {
        tracing::warn!(path = %file.display(), %error, "cannot remove a temporary file");
    }
}

/// Returns the erased bytes of each deletion, by erase guid. An unreadable record is ignored:
/// erasing starts again and overwrites it.
fn erase_notes<D: Medium + ?Sized>(dev: &D, committed: &Committed) -> BTreeMap<Uuid, u64> {
    let lvs = committed.vg.lvs.iter();
    lvs.filter_map(|lv| {
        let guid = name::erase_guid(&lv.name).or_else(|| name::store_guid(&lv.name))?;
        let runs = view::runs(&committed.vg, lv);
        let done = super::note::read(dev, &runs, guid).ok()??;
        Some((guid, done))
    })
    .collect()
}

/// Returns the kernel's devices of a VG's LVs, and all others on its drive.
fn devices(dev: &BlockDev, vg: &Vg) -> Result<Vec<DmDevice>, LayoutError> {
    let DriveRef {
        id, kernel_name, ..
    } = dev.drive();
    let uuids: Vec<String> = vg.lvs.iter().map(|lv| view::dm_uuid(vg, lv)).collect();
    let uuids = uuids.iter().map(String::as_str);
    dm::of_drive(Path::new("/sys"), kernel_name, uuids).map_err(host_error(
        id,
        "asking the kernel for its device-mapper devices",
    ))
}

/// Converts the error of an `lvm` command.
pub(super) fn lvm_error(id: &DriveId, what: &str, error: &LvmError) -> LayoutError {
    let (drive, source) = (id.to_string(), Cause::new(error));
    match error {
        LvmError::LockHeld { .. } => LayoutError::LvmLocked { drive, source },
        error if error.is_of_host() => LayoutError::NoLvm { drive, source },
        _ => LayoutError::Lvm {
            drive,
            what: what.to_owned(),
            source,
        },
    }
}
