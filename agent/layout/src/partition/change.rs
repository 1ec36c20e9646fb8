//! Changes. Each begins with a settled session (no open intents) and ends when everything is
//! durable.

use uuid::Uuid;

use super::Session;
use crate::{
    claimed::{ClaimedDrive, Erasable},
    device::{Device, Kernel},
    error::{LayoutError, ambiguous, in_use, io_error},
    gpt::{ENTRIES, Entry},
    mapped,
    plan::{self, advance::first_state},
    record::{self, Content, Stored},
    zeroed::Slots,
};
use drivebay_model::{
    Contents, DriveId, ERASING_TYPE, Extent, Label, PlaceState, Placed, Placement, Record,
    RecordState, VOLUME_TYPE,
};

impl<D: Device + Kernel> ClaimedDrive for Session<'_, D> {
    fn id(&self) -> &DriveId {
        &self.id
    }

    fn device(&self) -> &dyn Device {
        self.dev
    }

    fn label(&self) -> &Label {
        &self.label.content.label
    }

    fn space_slots(&self) -> Option<Slots> {
        Some(record::of_free_space())
    }

    fn contents(&self) -> Result<Contents, LayoutError> {
        let mut contents = self.everything()?;
        mapped::find(self.dev, &mut contents)?;
        Ok(contents)
    }

    fn changed(&self) -> Result<Contents, LayoutError> {
        let mut again = self.reopen()?;
        again.notes = self.notes.iter().cloned().chain(again.notes).collect();
        again.contents()
    }

    fn place(&self, contents: &Contents, size: u64, placement: Placement) -> Option<Vec<Extent>> {
        let growable = plan::growable(&contents.volumes);
        plan::place(&contents.free, &growable, size, placement).map(|run| vec![run])
    }

    fn place_more(
        &self,
        placed: &Placed,
        contents: &Contents,
        more: u64,
    ) -> Result<Vec<Extent>, u64> {
        let old = placed.record.extent;
        let possible = plan::growth_limit(&contents.free, old);
        if more > possible - old.len {
            return Err(possible);
        }
        Ok(vec![Extent {
            start: old.end(),
            len: more,
        }])
    }

    fn create_in(&mut self, record: &Record, runs: &[Extent]) -> Result<(), LayoutError> {
        let full = || LayoutError::TableFull {
            drive: self.id.to_string(),
            entries: ENTRIES as u32,
        };
        let number = self.table.free_number().ok_or_else(full)?;
        let result = runs
            .iter()
            .try_for_each(|extent| self.add(record, *extent, number));
        self.settled(result)
    }

    fn grow(&mut self, placed: &Placed, runs: &[Extent]) -> Result<(), LayoutError> {
        let number = number(placed)?;
        let old = placed.record.extent;
        let new = Extent {
            start: old.start,
            len: old.len + runs.iter().map(|run| run.len).sum::<u64>(),
        };
        let result = self.extend(placed.record.uuid, number, new);
        if result.is_err() {
            // Restores the old length in the table. If that fails, the next `ReadDrive` with repair
            // completes it.
            self.shrink(placed.record.uuid, number, old);
        }
        self.settled(result)
    }

    /// A partition has no snapshots.
    fn is_free_to_change(&self, _uuid: Uuid) -> Result<(), LayoutError> {
        Ok(())
    }

    fn mark_erasing(&mut self, placed: &Placed) -> Result<(), LayoutError> {
        let (uuid, number) = (placed.record.uuid, number(placed)?);
        if !self.take_patiently(number)? {
            return Err(in_use(placed, &self.dev.holders(placed)));
        }
        let erase_guid = Uuid::new_v4();
        let intent = self.label.content.with(uuid, |record| {
            record.state = RecordState::Erasing {
                erase_guid,
                done_bytes: 0,
            };
        });
        if let Err(error) = self.commit_label(intent) {
            // The delete was not acknowledged: unless the intent did become durable, the kernel
            // gets the partition back.
            let label = record::read(self.dev, self.table.disk_guid);
            if let Ok(record::RecordRead::Read(label)) = label
                && label
                    .content
                    .record(uuid)
                    .is_some_and(|now| now.state == placed.record.state)
            {
                let _ = self.change(number, |dev| dev.add(number, placed.record.extent));
            }
            return Err(error);
        }
        let entry = self.table.entry(number).unwrap_or(Entry::UNUSED);
        self.commit_table(
            self.table
                .with(number, entry.with_identity(ERASING_TYPE, erase_guid)),
        )
    }

    /// True if the record says that the volume is deleted, and the entry is not marked because it
    /// is in use.
    fn is_half_marked(&self, uuid: Uuid) -> Result<bool, LayoutError> {
        let steps = self.view()?.steps;
        Ok(steps
            .iter()
            .any(|step| matches!(step, plan::Step::MarkErasing { uuid: of, .. } if *of == uuid)))
    }

    fn write_record(
        &mut self,
        placed: &Placed,
        state: &RecordState,
        place: &PlaceState,
    ) -> Result<(), LayoutError> {
        let content = &self.label.content;
        self.commit_label(content.with(placed.record.uuid, |record| {
            record.state = state.clone();
            record.place = place.clone();
            record.parameters.clone_from(&placed.record.parameters);
        }))
    }

    fn take_device(&mut self, placed: &Placed) -> Result<(), LayoutError> {
        match self.take_patiently(number(placed)?)? {
            true => Ok(()),
            false => Err(in_use(placed, &self.dev.holders(placed))),
        }
    }

    fn settle_again(&mut self) -> Result<(), LayoutError> {
        let notes = std::mem::take(&mut self.notes);
        *self = Session::open(self.dev, &self.id, true)?;
        self.notes.extend(notes);
        Ok(())
    }

    fn write_label(&mut self, label: &Label) -> Result<(), LayoutError> {
        let mut content = self.label.content.clone();
        content.label = label.clone();
        self.commit_label(content)
    }

    fn runs(&self, placed: &Placed) -> Result<Vec<Extent>, LayoutError> {
        Ok(vec![placed.record.extent])
    }

    /// Always None: partitions have no snapshots.
    fn deleted_store(&self, _erase_guid: Uuid) -> Result<Option<Erasable>, LayoutError> {
        Ok(None)
    }

    /// The entry must be marked as deleted, and no process may have the partition open.
    fn seize(&self, erasable: &Erasable) -> Result<(), LayoutError> {
        let uuid = erasable.uuid;
        let placed = self.volume(uuid)?.ok_or_else(|| gone(uuid))?;
        let entry = placed
            .number
            .and_then(|number| Some((number, self.table.entry(number)?)));
        match entry {
            Some((number, entry))
                if entry.type_guid() == ERASING_TYPE && self.take_patiently(number)? =>
            {
                Ok(())
            }
            _ => Err(in_use(&placed, &self.dev.holders(&placed))),
        }
    }

    fn note_erased(&mut self, erasable: &Erasable, done: u64) -> Result<(), LayoutError> {
        self.commit_label(erased(&self.label.content, erasable.uuid, done))
    }

    /// Records all bytes as erased in the label, removes the entry from the table, then removes the
    /// record from the label. Each step is durable before the next.
    fn release(&mut self, erasable: &Erasable) -> Result<(), LayoutError> {
        let (uuid, content) = (erasable.uuid, &self.label.content);
        let placed = self.volume(uuid)?;
        let number = placed.as_ref().map_or_else(|| Err(gone(uuid)), number)?;
        self.commit_label(erased(content, uuid, erasable.total()))?;
        self.commit_table(self.table.with(number, Entry::UNUSED))?;
        self.commit_label(self.label.content.without(uuid))
    }
}

impl<D: Device + Kernel> Session<'_, D> {
    fn add(&mut self, record: &Record, extent: Extent, number: u32) -> Result<(), LayoutError> {
        let mut intent = self.label.content.clone();
        intent.records.push(Stored::from(Record {
            extent,
            state: RecordState::Creating,
            ..record.clone()
        }));
        self.commit_label(intent)?;
        let entry = Entry::new(VOLUME_TYPE, record.uuid, extent, self.table.sector);
        self.commit_table(self.table.with(number, entry))?;
        if record.place.has_device() {
            self.change(number, |dev| dev.add(number, extent))
                .map_err(io_error(&self.id, "giving the kernel the new partition"))?;
        }
        let state = first_state(record);
        self.commit_label(
            self.label
                .content
                .with(record.uuid, |record| record.state = state),
        )
    }

    fn extend(&mut self, uuid: Uuid, number: u32, new: Extent) -> Result<(), LayoutError> {
        self.commit_label(
            self.label
                .content
                .with(uuid, |record| record.growing_to = Some(new)),
        )?;
        let entry = self
            .table
            .entry(number)
            .unwrap_or(Entry::UNUSED)
            .with_extent(new, self.table.sector);
        self.commit_table(self.table.with(number, entry))?;
        self.change(number, |dev| dev.resize(number, new))
            .map_err(io_error(&self.id, "telling the kernel of the new size"))?;
        let content = self.label.content.with(uuid, |record| {
            record.extent = new;
            record.growing_to = None;
        });
        self.commit_label(content)
    }

    /// Restores the old length in the table, only while the kernel still has it: a partition in use
    /// must never become shorter.
    fn shrink(&mut self, uuid: Uuid, number: u32, old: Extent) {
        let kernel = self.dev.partition(number);
        let shorter = kernel.is_ok_and(|has| has.is_some_and(|facts| facts.size_bytes == old.len));
        let entry = self
            .table
            .entry(number)
            .filter(|entry| entry.guid() == uuid);
        if let (true, Some(entry)) = (shorter, entry) {
            let _ = self.commit_table(
                self.table
                    .with(number, entry.with_extent(old, self.table.sector)),
            );
        }
    }

    /// After a failed change, repairs the drive as far as possible; returns the first error.
    fn settled(&self, result: Result<(), LayoutError>) -> Result<(), LayoutError> {
        if result.is_err() {
            let _ = Session::open(self.dev, &self.id, true);
        }
        result
    }
}

/// Returns the number of a volume's entry; errs if it has none.
fn number(placed: &Placed) -> Result<u32, LayoutError> {
    placed.number.ok_or_else(|| gone(placed.record.uuid))
}

fn gone(uuid: Uuid) -> LayoutError {
    ambiguous(uuid, "it has no table entry".into())
}

fn erased(content: &Content, uuid: Uuid, done: u64) -> Content {
    content.with(uuid, |record| {
        if let RecordState::Erasing { done_bytes, .. } = &mut record.state {
            *done_bytes = done;
        }
    })
}
