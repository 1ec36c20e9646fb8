//! The changes: create, expand and delete. Each begins with a settled
//! session (no open intents) and ends with everything durable and read again.

use std::io;

use uuid::Uuid;

use super::{Session, io_error};
use crate::carve::{
    device::{self, Device, Kernel},
    gpt::{ENTRIES, Entry},
    jobs::{CarveError, Changed},
    plan,
    record::{self, FreeSpace, Stored},
};
use crate::model::{
    DriveId, ERASING_TYPE, Extent, MIB, Placed, Record, RecordState, VOLUME_TYPE, VolumeSpec,
};

impl<D: Device + Kernel> Session<'_, D> {
    /// Carves a volume. One of the same name that lives is the answer, unchanged.
    #[cfg(test)]
    pub(in crate::carve) fn create(self, spec: &VolumeSpec) -> Result<Changed, CarveError> {
        self.create_beside(spec, &[])
    }

    /// Carves a volume, or finds the one of its name; never one of those that were `deleted`.
    pub(in crate::carve) fn create_beside(
        mut self,
        spec: &VolumeSpec,
        deleted: &[Uuid],
    ) -> Result<Changed, CarveError> {
        let view = self.view()?;
        let live = |placed: &&Placed| {
            !matches!(placed.record.state, RecordState::Erasing { .. })
                && !deleted.contains(&placed.record.uuid)
        };
        if let Some(placed) = view
            .volumes
            .iter()
            .filter(live)
            .find(|placed| placed.record.name == spec.name)
        {
            fit(placed)?;
            if placed.record.state == RecordState::Creating {
                // An earlier attempt that could not be undone because somebody has its partition open.
                return Err(in_use(placed));
            }
            return Ok(Changed {
                contents: self.reread()?,
                changed: false,
            });
        }
        if view
            .volumes
            .iter()
            .any(|placed| placed.record.uuid == spec.uuid)
        {
            let reason = "another volume on this drive has its identity".into();
            return Err(CarveError::Ambiguous {
                uuid: spec.uuid,
                reason,
            });
        }
        let no_space = |needed| CarveError::NoSpace {
            drive: self.id.to_string(),
            needed,
            largest: view.free.iter().map(|run| run.len).max().unwrap_or(0),
        };
        let size = plan::rounded(spec.size_bytes).ok_or_else(|| no_space(spec.size_bytes))?;
        let extent = plan::first_fit(&view.free, size).ok_or_else(|| no_space(size))?;
        let number = self
            .table
            .free_number()
            .ok_or_else(|| CarveError::TableFull {
                drive: self.id.to_string(),
                entries: ENTRIES as u32,
            })?;
        self.ready_space(extent)?;

        let result = self.carve(spec, extent, number);
        self.or_undo(result)
    }

    fn carve(&mut self, spec: &VolumeSpec, extent: Extent, number: u32) -> Result<(), CarveError> {
        let mut intent = self.label.content.clone();
        let record = Record::new(spec, extent, RecordState::Creating);
        intent.records.push(Stored::from(record));
        self.commit_label(intent)?;
        let entry = Entry::new(VOLUME_TYPE, spec.uuid, extent, self.table.sector);
        self.commit_table(self.table.with(number, entry))?;
        self.dev
            .add(number, extent)
            .map_err(io_error(&self.id, "giving the kernel the new partition"))?;
        self.commit_label(
            self.label
                .content
                .with(spec.uuid, |record| record.state = RecordState::New),
        )
    }

    /// Grows a volume to at least this size. One that is as large is left alone.
    pub(in crate::carve) fn expand(
        mut self,
        uuid: Uuid,
        size_bytes: u64,
    ) -> Result<Changed, CarveError> {
        let (placed, number) = self.living(uuid)?;
        let old = placed.record.extent;
        if old.len >= size_bytes {
            return Ok(Changed {
                contents: self.reread()?,
                changed: false,
            });
        }
        let possible = plan::growth_limit(&self.view()?.free, old);
        let cannot = |needed| CarveError::CannotGrow {
            uuid,
            needed,
            possible,
        };
        let len = plan::rounded(size_bytes).ok_or_else(|| cannot(size_bytes))?;
        if len > possible {
            return Err(cannot(len));
        }
        let new = Extent {
            start: old.start,
            len,
        };
        self.ready_space(Extent {
            start: old.end(),
            len: len - old.len,
        })?;

        let result = self.grow(uuid, number, new);
        if result.is_err() {
            // Back to the old length everywhere. What fails here is completed by the next look.
            self.ungrow(uuid, number, old);
        }
        self.or_undo(result)
    }

    fn grow(&mut self, uuid: Uuid, number: u32, new: Extent) -> Result<(), CarveError> {
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
        self.dev
            .resize(number, new)
            .map_err(io_error(&self.id, "telling the kernel of the new size"))?;
        let content = self.label.content.with(uuid, |record| {
            record.extent = new;
            record.growing_to = None;
        });
        self.commit_label(content)
    }

    /// Only while the kernel still has the old length: a partition in use is never made shorter.
    fn ungrow(&mut self, uuid: Uuid, number: u32, old: Extent) {
        let shorter = self.dev.partitions().is_ok_and(|all| {
            all.iter()
                .any(|facts| facts.number == number && facts.size_bytes == old.len)
        });
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

    /// Takes a volume from the kernel, which refuses while it is in use, and gives what it was
    /// another identity. One that is not there, or is being erased, is left alone.
    pub(in crate::carve) fn delete(mut self, uuid: Uuid) -> Result<Changed, CarveError> {
        let Some(placed) = self.volume(uuid)? else {
            return Ok(Changed {
                contents: self.reread()?,
                changed: false,
            });
        };
        fit(&placed)?;
        if placed.record.state == RecordState::Creating {
            return Err(in_use(&placed));
        }
        if matches!(placed.record.state, RecordState::Erasing { .. }) {
            // The record says deleted; an entry that is in use still says otherwise.
            if self
                .view()?
                .steps
                .iter()
                .any(|step| matches!(step, plan::Step::MarkErasing { uuid: of, .. } if *of == uuid))
            {
                return Err(in_use(&placed));
            }
            return Ok(Changed {
                contents: self.reread()?,
                changed: false,
            });
        }
        let (placed, number) = self.living(uuid)?;
        if !self.take_from_kernel(number)? {
            return Err(in_use(&placed));
        }
        let erase_guid = Uuid::new_v4();
        let intent = self.label.content.with(uuid, |record| {
            record.state = RecordState::Erasing {
                erase_guid,
                done_bytes: 0,
            };
        });
        if let Err(error) = self.commit_label(intent) {
            // Nobody was told that it is deleted: unless the intent did become durable, the kernel
            // gets the partition back.
            let label = record::read(self.dev, self.table.disk_guid);
            if let Ok(record::Found::Read(label)) = label
                && label
                    .content
                    .record(uuid)
                    .is_some_and(|now| now.state == placed.record.state)
            {
                let _ = self.dev.add(number, placed.record.extent);
            }
            return Err(error);
        }
        let entry = self.table.entry(number).unwrap_or(Entry::UNUSED);
        self.commit_table(
            self.table
                .with(number, entry.with_identity(ERASING_TYPE, erase_guid)),
        )?;
        Ok(Changed {
            contents: self.reread()?,
            changed: true,
        })
    }

    /// Makes sure that space about to be given out holds nothing of a former tenant.
    ///
    /// A drive that was claimed blank and has erased everything it freed is all zeros, and that is
    /// checked: the first and last MiB and 64 samples. A byte that is not zero means that an
    /// assumption of ours is wrong, so the space is not given out. Otherwise (`FreeSpace::Unknown`)
    /// what may be there is the operator's choice, by `claim = "signature-free"` or
    /// `erase = "signatures"`; then both ends are zeroed, where signatures live, so that nothing
    /// old is mistaken for a filesystem of the new volume.
    fn ready_space(&self, extent: Extent) -> Result<(), CarveError> {
        ready_space(self.dev, &self.id, self.label.content.free_space, extent)
    }

    /// A volume that lives and about which everything agrees, with its partition number.
    pub(super) fn living(&self, uuid: Uuid) -> Result<(Placed, u32), CarveError> {
        let unknown = || CarveError::NoSuchVolume {
            drive: self.id.to_string(),
            uuid,
        };
        let placed = self.volume(uuid)?.ok_or_else(unknown)?;
        fit(&placed)?;
        match (&placed.record.state, placed.number) {
            (RecordState::Erasing { .. } | RecordState::Creating, _) => Err(unknown()),
            (_, Some(number)) => Ok((placed, number)),
            (_, None) => Err(CarveError::Ambiguous {
                uuid,
                reason: "it has no table entry".into(),
            }),
        }
    }

    /// The answer after a change; after a failed one, the drive is settled as far as it can be and
    /// the first error is the answer.
    fn or_undo(self, result: Result<(), CarveError>) -> Result<Changed, CarveError> {
        match result {
            Ok(()) => Ok(Changed {
                contents: self.reread()?,
                changed: true,
            }),
            Err(error) => {
                let _ = Session::open(self.dev, &self.id, true);
                Err(error)
            }
        }
    }
}

/// See `Session::ready_space`.
pub(in crate::carve) fn ready_space<D: Device>(
    dev: &D,
    id: &DriveId,
    free_space: FreeSpace,
    extent: Extent,
) -> Result<(), CarveError> {
    let edge = MIB.min(extent.len);
    match free_space {
        FreeSpace::Zeros => {
            let found = device::sample_nonzero(dev, extent, edge)
                .map_err(io_error(id, "checking that free space is zeros"))?;
            match found {
                None => Ok(()),
                Some(offset) => Err(CarveError::NotErased {
                    drive: id.to_string(),
                    offset,
                }),
            }
        }
        FreeSpace::Unknown => {
            zero_ends(dev, extent, edge).map_err(io_error(id, "zeroing both ends of free space"))
        }
    }
}

/// Makes the first and last `edge` bytes of a run zeros, durably.
pub(in crate::carve) fn zero_ends<D: Device>(dev: &D, extent: Extent, edge: u64) -> io::Result<()> {
    dev.zero(Extent {
        start: extent.start,
        len: edge,
    })?;
    dev.zero(Extent {
        start: extent.end() - edge,
        len: edge,
    })?;
    dev.flush()
}

/// Refuses what records, table and kernel disagree about.
pub(in crate::carve) fn fit(placed: &Placed) -> Result<(), CarveError> {
    match &placed.ambiguous {
        Some(reason) => Err(CarveError::Ambiguous {
            uuid: placed.record.uuid,
            reason: reason.clone(),
        }),
        None => Ok(()),
    }
}

pub(in crate::carve) fn in_use(placed: &Placed) -> CarveError {
    let device = placed
        .device
        .clone()
        .unwrap_or_else(|| "its partition".into());
    CarveError::InUse {
        uuid: placed.record.uuid,
        device,
    }
}
