//! Reads a claimed drive, and repairs it: damaged copies are rewritten from good ones, interrupted
//! changes are completed or undone, and the kernel gets the partitions of the table. Everything
//! that is not understood is left unchanged.

use std::{cell::RefCell, io};

use crate::{
    claimed::ClaimedDrive as _,
    device::{Device, Kernel},
    error::{LayoutError, damaged, host_error, io_error, not_ours},
    gpt::{self, Entry, FirstSector, Table, Which},
    plan::{self, Step, View},
    record::{self, Content, Other},
};
use drivebay_model::{
    Cause, Contents, DriveId, ERASING_TYPE, Placed, Record, drive::PartitionFacts,
};
use drivebay_sys::clock::since_boot;

use super::begun;

/// Limit of repair steps. Each one completes at least one intent, and there is at most one per
/// table entry and one per record.
const ROUNDS: usize = 2 * gpt::ENTRIES;

/// A claimed drive, as it was read.
#[derive(Debug)]
pub struct Session<'a, D> {
    pub dev: &'a D,
    pub id: DriveId,
    pub table: Table,
    pub label: record::Read,
    pub(super) notes: Vec<String>,
    /// The kernel's partitions: reading them takes nine system calls for each. Read when they are
    /// first needed; after a change of one partition by this session, only that one is read again.
    kernel: RefCell<Option<Vec<PartitionFacts>>>,
}

impl<'a, D: Device + Kernel> Session<'a, D> {
    /// Reads table and label; with `repair`, repairs both and completes or undoes interrupted
    /// changes. The caller must hold the drive's lock for a repair.
    pub fn open(dev: &'a D, id: &DriveId, repair: bool) -> Result<Self, LayoutError> {
        Self::open_over(dev, id, repair, None)
    }

    /// Reads table and label again from the medium. The kernel's partitions are taken from this
    /// session.
    pub(super) fn reopen(&self) -> Result<Self, LayoutError> {
        Self::open_over(self.dev, &self.id, false, self.kernel.borrow().clone())
    }

    fn open_over(
        dev: &'a D,
        id: &DriveId,
        repair: bool,
        kernel: Option<Vec<PartitionFacts>>,
    ) -> Result<Self, LayoutError> {
        let io = |what: &str| io_error(id, what);
        let mut notes = Vec::new();
        let copies = gpt::read(dev).map_err(io("reading the partition table"))?;
        let (table, rewrite) = match copies {
            gpt::GptCopies::None => return Err(begun::without_table(dev, id)?),
            gpt::GptCopies::Damaged(why) => {
                return Err(damaged(id, format!("partition table: {why}")));
            }
            gpt::GptCopies::Whole(table) => (table, None),
            gpt::GptCopies::One {
                table,
                damaged,
                why,
            } => {
                notes.push(format!(
                    "the {} partition table is damaged ({why})",
                    damaged.as_str()
                ));
                (table, Some(damaged))
            }
            gpt::GptCopies::Differ { primary, backup } => {
                if !primary.is_ours() && !backup.is_ours() {
                    return Err(not_ours(id));
                }
                let label = read_label(dev, id, &backup)?;
                if !differ_by_intent(&primary, &backup, &label.content) {
                    return Err(damaged(
                        id,
                        "the two copies of the partition table differ, and no interrupted change of Drivebay explains it".into(),
                    ));
                }
                // Drivebay writes the backup first: it is the newer one.
                (backup, Some(Which::Primary))
            }
        };
        if !table.is_ours() {
            return Err(not_ours(id));
        }
        let is_primary_whole = rewrite != Some(Which::Primary);
        let mbr = match gpt::first_sector(dev) {
            Ok(FirstSector::Protective) => true,
            Ok(FirstSector::Blank) => {
                notes.push("the protective MBR is gone".into());
                false
            }
            Ok(FirstSector::Damaged) if is_primary_whole => {
                notes.push("the protective MBR is damaged".into());
                false
            }
            Ok(FirstSector::Damaged | FirstSector::Foreign) => {
                return Err(damaged(
                    id,
                    "the first sector holds something else than a protective MBR".into(),
                ));
            }
            Err(error) => {
                notes.push(format!("the protective MBR does not read: {error}"));
                false
            }
        };
        let label = read_label(dev, id, &table)?;
        if let Some(Other::Damaged(why)) = &label.other {
            notes.push(format!("label slot {} is damaged ({why})", 1 - label.slot));
        }
        let mut session = Self {
            dev,
            id: id.clone(),
            table,
            label,
            notes,
            kernel: RefCell::new(kernel),
        };
        if repair {
            session.rewrite(rewrite, !mbr)?;
            session.settle()?;
        }
        Ok(session)
    }

    /// Rewrites the damaged structures, each from its good copy.
    fn rewrite(&mut self, copy: Option<Which>, mbr: bool) -> Result<(), LayoutError> {
        let io = |what: &str| io_error(&self.id, what);
        if let Some(which) = copy {
            gpt::clear_unreadable(self.dev, &self.table, which)
                .and_then(|()| gpt::write_copy(self.dev, &self.table, which))
                .map_err(io("repairing the partition table"))?;
            let now = gpt::read(self.dev).map_err(io("reading the partition table"))?;
            if now != gpt::GptCopies::Whole(self.table.clone()) {
                let which = which.as_str();
                let reason =
                    format!("the {which} partition table was written again and did not read back");
                return Err(damaged(&self.id, reason));
            }
        }
        if mbr {
            self.dev
                .write_at(0, &gpt::protective_mbr(&self.table))
                .and_then(|()| self.dev.flush())
                .map_err(io("repairing the protective MBR"))?;
        }
        if self.label.other.is_some() {
            record::repair(self.dev, &self.label).map_err(|error| self.label_error(error))?;
            self.label.other = None;
        }
        for note in &mut self.notes {
            note.push_str("; it was written again");
        }
        Ok(())
    }

    /// Completes or undoes intents, then updates the kernel. A step that fails because a partition
    /// is in use is left for a later `ReadDrive` with repair.
    fn settle(&mut self) -> Result<(), LayoutError> {
        let mut left: Vec<Step> = Vec::new();
        for _ in 0..ROUNDS {
            let view = self.view()?;
            let Some(step) = view.steps.into_iter().find(|step| !left.contains(step)) else {
                return Ok(());
            };
            if !self.step(&step)? {
                left.push(step);
            }
        }
        Ok(())
    }

    /// Executes one step; false if the kernel reports that the partition is in use.
    fn step(&mut self, step: &Step) -> Result<bool, LayoutError> {
        match *step {
            Step::Undo { uuid, number } => {
                if let Some(number) = number {
                    if !self.take_from_kernel(number)? {
                        self.notes.push(format!(
                            "volume {uuid} was never finished and its partition is in use"
                        ));
                        return Ok(false);
                    }
                    self.commit_table(self.table.with(number, Entry::UNUSED))?;
                }
                self.commit_label(self.label.content.without(uuid))?;
            }
            Step::MarkErasing {
                uuid,
                number,
                erase_guid,
            } => {
                if !self.take_from_kernel(number)? {
                    self.notes.push(format!(
                        "volume {uuid} is deleted and its partition is in use"
                    ));
                    return Ok(false);
                }
                let Some(entry) = self.table.entry(number) else {
                    return Ok(false);
                };
                self.commit_table(
                    self.table
                        .with(number, entry.with_identity(ERASING_TYPE, erase_guid)),
                )?;
            }
            Step::FinishGrow { uuid } => {
                let content = self.label.content.with(uuid, |record| {
                    record.extent = record.growing_to.take().unwrap_or(record.extent);
                });
                self.commit_label(content)?;
            }
            Step::CancelGrow { uuid } => {
                self.commit_label(
                    self.label
                        .content
                        .with(uuid, |record| record.growing_to = None),
                )?;
            }
            Step::DropErased { uuid } => self.commit_label(self.label.content.without(uuid))?,
            Step::RemovePartition { number } => return self.take_from_kernel(number),
            Step::AddPartition { number, extent } => {
                return self.kernel_took(
                    self.change(number, |dev| dev.add(number, extent)),
                    "giving the kernel a partition",
                );
            }
            Step::ResizePartition { number, extent } => {
                return self.kernel_took(
                    self.change(number, |dev| dev.resize(number, extent)),
                    "telling the kernel of a partition's size",
                );
            }
        }
        Ok(true)
    }

    /// Removes a partition from the kernel, if it has it; false if it is in use.
    fn take_from_kernel(&self, number: u32) -> Result<bool, LayoutError> {
        self.taken(number, D::del)
    }

    /// Removes a partition as requested by a caller: retries for a short time, since udevd may have
    /// it open at that moment.
    pub fn take_patiently(&self, number: u32) -> Result<bool, LayoutError> {
        self.taken(number, D::del_patiently)
    }

    fn taken(
        &self,
        number: u32,
        del: impl FnOnce(&D, u32) -> io::Result<()>,
    ) -> Result<bool, LayoutError> {
        // Read from the kernel now, not from the session.
        let has = self.dev.partition(number).map_err(self.listing())?;
        if has.is_none() {
            return Ok(true);
        }
        self.kernel_took(
            self.change(number, |dev| del(dev, number)),
            "taking a partition from the kernel",
        )
    }

    fn kernel_took(&self, result: io::Result<()>, what: &str) -> Result<bool, LayoutError> {
        match result {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(false),
            Err(error) => Err(io_error(&self.id, what)(error)),
        }
    }

    fn listing(&self) -> impl FnOnce(io::Error) -> LayoutError {
        host_error(&self.id, "reading the kernel's partitions")
    }

    /// Changes one of the kernel's partitions, and reads that one again. If the kernel refuses, its
    /// partitions may differ from those of this session: all are read again when they are needed.
    pub(super) fn change(
        &self,
        number: u32,
        change: impl FnOnce(&D) -> io::Result<()>,
    ) -> io::Result<()> {
        let partitions = self.kernel.take();
        change(self.dev)?;
        if let (Some(mut partitions), Ok(now)) = (partitions, self.dev.partition(number)) {
            partitions.retain(|facts| facts.number != number);
            partitions.extend(now);
            partitions.sort_by_key(|facts| facts.number);
            self.kernel.replace(Some(partitions));
        }
        Ok(())
    }

    /// Writes the table durably; the session then has it.
    pub fn commit_table(&mut self, table: Table) -> Result<(), LayoutError> {
        gpt::write(self.dev, &table).map_err(io_error(&self.id, "writing the partition table"))?;
        self.table = table;
        Ok(())
    }

    /// Writes the label durably; the session then has it.
    pub fn commit_label(&mut self, content: Content) -> Result<(), LayoutError> {
        self.label = record::write(self.dev, Some(&self.label), &content)
            .map_err(|error| self.label_error(error))?;
        Ok(())
    }

    fn label_error(&self, error: record::WriteError) -> LayoutError {
        LayoutError::Io {
            drive: self.id.to_string(),
            what: "writing the label".into(),
            source: Cause::new(&error),
        }
    }

    /// Combines the records, the table and the kernel's partitions.
    pub fn view(&self) -> Result<View, LayoutError> {
        let records: Vec<Record> = self
            .label
            .content
            .records
            .iter()
            .map(|stored| stored.record.clone())
            .collect();
        let partitions = self.kernel.take();
        let kernel = match partitions {
            Some(partitions) => partitions,
            None => self.dev.partitions().map_err(self.listing())?,
        };
        let view = plan::reconcile(&self.table, &records, &kernel);
        self.kernel.replace(Some(kernel));
        Ok(view)
    }

    /// Returns a volume on the drive, in any state.
    pub fn volume(&self, uuid: uuid::Uuid) -> Result<Option<Placed>, LayoutError> {
        Ok(self
            .view()?
            .volumes
            .into_iter()
            .find(|placed| placed.record.uuid == uuid))
    }

    /// Returns everything on the drive.
    pub(super) fn everything(&self) -> Result<Contents, LayoutError> {
        let read_at = since_boot().into();
        let view = self.view()?;
        let mut notes = self.notes.clone();
        notes.extend(view.steps.iter().filter_map(|step| match step {
            Step::RemovePartition { number } => Some(format!(
                "the kernel has partition {number}, which the partition table does not have as a volume"
            )),
            _ => None,
        }));
        Ok(Contents {
            layout: drivebay_model::Layout::Partition,
            label: self.label.content.label.clone(),
            sequence: self.label.sequence,
            read_at,
            volumes: view.volumes,
            free: view.free,
            space: self.space(),
            usable_bytes: view.usable_bytes,
            extent_bytes: plan::EXTENT_BYTES,
            table_full: self.table.free_number().is_none(),
            unmarked_bytes: 0,
            deleted_stores: Vec::new(),
            strangers: view.strangers,
            notes,
        })
    }
}

fn read_label<D: Device>(
    dev: &D,
    id: &DriveId,
    table: &Table,
) -> Result<record::Read, LayoutError> {
    match record::read(dev, table.disk_guid).map_err(io_error(id, "reading the label"))? {
        record::RecordRead::Read(read) => Ok(read),
        record::RecordRead::Blank if table.partitions().count() == 1 => {
            Err(LayoutError::Unlabelled {
                drive: id.to_string(),
            })
        }
        record::RecordRead::Blank => {
            let reason = "the label is empty, and the partition table is not";
            Err(damaged(id, reason.into()))
        }
        record::RecordRead::Damaged(reason) => Err(damaged(id, reason)),
    }
}

/// True if the two copies are the table before and after a change that the label records.
fn differ_by_intent(primary: &Table, backup: &Table, content: &Content) -> bool {
    let records: Vec<Record> = content
        .records
        .iter()
        .map(|stored| stored.record.clone())
        .collect();
    let same_but_entries = Table {
        entries: primary.entries.clone(),
        ..backup.clone()
    } == *primary;
    same_but_entries
        && primary
            .entries
            .iter()
            .zip(&backup.entries)
            .all(|(a, b)| a == b || plan::explains(&records, a, b, backup.sector))
}
