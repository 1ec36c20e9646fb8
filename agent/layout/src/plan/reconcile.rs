//! Combines records, table and kernel. If they disagree in a way that no intent of Drivebay
//! explains, the volume is ambiguous: it is shown, its space counts as used, and it is not changed.
//! If an intent explains it, a step completes or undoes the intent.

use uuid::Uuid;

use super::{EXTENT_BYTES, free_runs, overlap, usable};
use crate::gpt::{Entry, Table};
use drivebay_model::{
    ERASING_TYPE, Extent, Placed, Record, RecordState, VOLUME_TYPE, drive::PartitionFacts,
    units::exact_size,
};

/// One step of a repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A creation was never acknowledged: its entry, if there is one, and its record are removed.
    Undo { uuid: Uuid, number: Option<u32> },
    /// The table has the new length, which the record then gets.
    FinishGrow { uuid: Uuid },
    /// The table has the old length: the intent is removed.
    CancelGrow { uuid: Uuid },
    /// The record says that the volume is deleted, and the table's entry is not marked yet.
    MarkErasing {
        uuid: Uuid,
        number: u32,
        /// GUID that the entry gets.
        erase_guid: Uuid,
    },
    /// The volume is erased, and its entry is gone: the record is removed.
    DropErased { uuid: Uuid },
    /// The kernel has a partition that the table does not have, or has at another place, or one
    /// that is being erased or is live on another drive.
    RemovePartition { number: u32 },
    /// The kernel does not have a volume's partition.
    AddPartition { number: u32, extent: Extent },
    /// The kernel has a volume's partition with its length from before it grew.
    ResizePartition { number: u32, extent: Extent },
}

/// Everything on a drive, and the steps of a repair.
#[derive(Debug, Clone)]
pub struct View {
    /// Volumes, ordered by their start.
    pub volumes: Vec<Placed>,
    /// Names and extents of entries without a record.
    pub strangers: Vec<(String, Extent)>,
    pub free: Vec<Extent>,
    /// Bytes that all volumes could have together.
    pub usable_bytes: u64,
    /// Steps of a repair, in order. After each one that changes record or table, the steps must be
    /// determined again.
    pub steps: Vec<Step>,
}

/// Result of comparing a record with the table.
struct Fit {
    number: Option<u32>,
    /// Extent of the table's entry; None if there is none.
    extent: Option<Extent>,
    step: Option<Step>,
}

/// Combines the table, the records and the kernel's partitions. Pure.
pub fn reconcile(table: &Table, records: &[Record], kernel: &[PartitionFacts]) -> View {
    let room = usable(table);
    let fits: Vec<Result<Fit, String>> = records
        .iter()
        .map(|record| {
            if records
                .iter()
                .filter(|other| other.uuid == record.uuid)
                .count()
                > 1
            {
                return Err("two records have its identity".to_owned());
            }
            lies_well(record, room)?;
            fit(table, record)
        })
        .collect();
    let numbers: Vec<u32> = fits.iter().flatten().filter_map(|fit| fit.number).collect();
    let foreign: Vec<(u32, &Entry)> = table
        .partitions()
        .filter(|(number, _)| *number != 1 && !numbers.contains(number))
        .collect();

    let mut steps = Vec::new();
    let mut volumes = Vec::new();
    for (i, (record, fit)) in records.iter().zip(fits).enumerate() {
        let fit = fit.and_then(|fit| match overlaps(table, records, &foreign, i) {
            Some(other) => Err(format!("its space overlaps {other}")),
            None => Ok(fit),
        });
        volumes.push(match fit {
            Ok(fit) => place(record, fit, kernel, &mut steps),
            Err(why) => Placed {
                record: record.clone(),
                number: None,
                device: None,
                dev: None,
                dm_uuid: None,
                pieces: Vec::new(),
                mapping: None,
                snapshots: Vec::new(),
                ambiguous: Some(why),
            },
        });
    }
    volumes.sort_by_key(|placed| placed.record.extent);

    let mut occupied: Vec<Extent> = table
        .entries
        .iter()
        .filter(|entry| entry.is_used())
        .map(|entry| entry.extent(table.sector))
        .collect();
    occupied.extend(
        records
            .iter()
            .flat_map(|record| [Some(record.extent), record.growing_to])
            .flatten(),
    );
    for facts in kernel {
        let entry = table.entry(facts.number).filter(Entry::is_used);
        // Partitions of volumes are checked with their volumes; those of foreign entries are not
        // checked.
        if entry.is_none() && facts.number != 1 {
            steps.insert(
                0,
                Step::RemovePartition {
                    number: facts.number,
                },
            );
        }
        if entry.is_none_or(|entry| entry.extent(table.sector) != extent_of(facts)) {
            occupied.push(extent_of(facts));
        }
    }
    View {
        volumes,
        strangers: foreign
            .iter()
            .map(|(_, entry)| (entry.name(), entry.extent(table.sector)))
            .collect(),
        free: free_runs(room, &occupied),
        usable_bytes: room.len,
        steps,
    }
}

fn extent_of(facts: &PartitionFacts) -> Extent {
    Extent {
        start: facts.start_bytes,
        len: facts.size_bytes,
    }
}

/// Fails unless the record's extents are aligned, not empty, and within the space for volumes.
fn lies_well(record: &Record, room: Extent) -> Result<(), String> {
    for run in std::iter::once(record.extent).chain(record.growing_to) {
        let end = run.start.checked_add(run.len);
        let inside = run.start >= room.start && end.is_some_and(|end| end <= room.end());
        if run.len == 0
            || !run.start.is_multiple_of(EXTENT_BYTES)
            || !run.len.is_multiple_of(EXTENT_BYTES)
            || !inside
        {
            return Err(format!(
                "its record has it at byte {}, {} long, where no volume can be",
                run.start,
                exact_size(run.len)
            ));
        }
    }
    match record.growing_to {
        Some(to) if to.start != record.extent.start || to.len <= record.extent.len => {
            Err("its record has it growing to where it cannot".into())
        }
        _ => Ok(()),
    }
}

fn fit(table: &Table, record: &Record) -> Result<Fit, String> {
    let erase_guid = match record.state {
        RecordState::Erasing { erase_guid, .. } => Some(erase_guid),
        _ => None,
    };
    let mut entries = table
        .partitions()
        .filter(|(_, entry)| entry.guid() == record.uuid || Some(entry.guid()) == erase_guid);
    let first = entries.next();
    if entries.next().is_some() {
        return Err("the table has more than one entry for it".into());
    }
    let uuid = record.uuid;
    let Some((number, entry)) = first else {
        return match record.state {
            RecordState::Creating => Ok(Fit {
                number: None,
                extent: None,
                step: Some(Step::Undo { uuid, number: None }),
            }),
            RecordState::Erasing { done_bytes, .. } if done_bytes >= record.extent.len => Ok(Fit {
                number: None,
                extent: None,
                step: Some(Step::DropErased { uuid }),
            }),
            _ => Err("the table has no entry for it".into()),
        };
    };
    let extent = entry.extent(table.sector);
    let at = |step| {
        Ok(Fit {
            number: Some(number),
            extent: Some(extent),
            step,
        })
    };
    let live = entry.guid() == uuid && entry.type_guid() == VOLUME_TYPE;
    let erasing = Some(entry.guid()) == erase_guid && entry.type_guid() == ERASING_TYPE;
    let same = extent == record.extent;
    match (&record.state, record.growing_to) {
        (RecordState::Creating, None) if live && same => at(Some(Step::Undo {
            uuid,
            number: Some(number),
        })),
        (RecordState::Erasing { .. }, None) if erasing && same => at(None),
        (RecordState::Erasing { erase_guid, .. }, None) if live && same => {
            at(Some(Step::MarkErasing {
                uuid,
                number,
                erase_guid: *erase_guid,
            }))
        }
        (RecordState::New | RecordState::Fs { .. } | RecordState::Block, growing) if live => {
            match growing {
                None if same => at(None),
                Some(_) if same => at(Some(Step::CancelGrow { uuid })),
                Some(to) if to == extent => at(Some(Step::FinishGrow { uuid })),
                _ => Err(elsewhere(number, extent, record.extent)),
            }
        }
        _ if (live || erasing) && !same => Err(elsewhere(number, extent, record.extent)),
        _ => Err(format!(
            "the type or GUID of its table entry {number} does not fit its record"
        )),
    }
}

fn elsewhere(number: u32, table: Extent, record: Extent) -> String {
    // The administrator who repairs the table needs both places.
    let (in_table, in_record) = (exact_size(table.len), exact_size(record.len));
    format!(
        "table entry {number} has it at byte {}, {in_table} long; its record at byte {}, {in_record} long",
        table.start, record.start
    )
}

/// Returns a description of another record or foreign entry with bytes of this volume; None if
/// there is none.
fn overlaps(
    table: &Table,
    records: &[Record],
    foreign: &[(u32, &Entry)],
    me: usize,
) -> Option<String> {
    let whole = |record: &Record| record.growing_to.unwrap_or(record.extent);
    let mine = whole(records.get(me)?);
    let record = records
        .iter()
        .enumerate()
        .find(|(i, other)| *i != me && overlap(whole(other), mine))
        .map(|(_, other)| format!("volume {}", other.uuid));
    record.or_else(|| {
        let entry = foreign
            .iter()
            .find(|(_, entry)| overlap(entry.extent(table.sector), mine));
        entry.map(|(number, _)| format!("table entry {number}"))
    })
}

/// Returns the volume with the kernel's partition of it, and adds the steps that it needs.
fn place(record: &Record, fit: Fit, kernel: &[PartitionFacts], steps: &mut Vec<Step>) -> Placed {
    let mut placed = Placed {
        record: record.clone(),
        number: fit.number,
        device: None,
        dev: None,
        dm_uuid: None,
        pieces: Vec::new(),
        mapping: None,
        snapshots: Vec::new(),
        ambiguous: None,
    };
    let pending = fit.step.is_some();
    steps.extend(fit.step);
    let (Some(number), Some(extent)) = (fit.number, fit.extent) else {
        return placed;
    };
    let facts = kernel.iter().find(|facts| facts.number == number);
    // The kernel has no device of a volume that is being erased, or is live on another drive: it
    // must not be used.
    let without = matches!(record.state, RecordState::Erasing { .. }) || !record.place.has_device();
    let undone = matches!(record.state, RecordState::Creating);
    match facts {
        // The pending step removes the partition itself.
        Some(_) if pending && (without || undone) => {}
        None if without || undone => {}
        Some(_) if without => steps.push(Step::RemovePartition { number }),
        None => steps.push(Step::AddPartition { number, extent }),
        Some(facts) => {
            let in_place = extent_of(facts);
            if in_place != extent && in_place.start == extent.start && in_place.len < extent.len {
                steps.push(Step::ResizePartition { number, extent });
            } else if in_place != extent {
                steps.push(Step::RemovePartition { number });
                let (in_kernel, in_table) = (exact_size(in_place.len), exact_size(extent.len));
                placed.ambiguous = Some(format!(
                    "the kernel has {} at byte {}, {in_kernel} long; the table at byte {}, {in_table} long",
                    facts.kernel_name, in_place.start, extent.start
                ));
                return placed;
            }
            placed.device = Some(facts.kernel_name.clone());
            placed.dev = Some((facts.major, facts.minor));
        }
    }
    placed
}

/// True if an intent in the records explains that one copy of the table has `a` in a slot and the
/// other one `b`: one is the table before the change, the other after it.
pub fn explains(records: &[Record], a: &Entry, b: &Entry, sector: u64) -> bool {
    let is = |entry: &Entry, kind: Uuid, guid: Uuid, extent: Extent| {
        entry.type_guid() == kind && entry.guid() == guid && entry.extent(sector) == extent
    };
    // Nothing else in the entry may have changed: the bytes must be equal with the same identity
    // and place.
    let kin = |a: &Entry, b: &Entry| {
        a.with_identity(b.type_guid(), b.guid())
            .with_extent(b.extent(sector), sector)
            == *b
    };
    let either = |old: &dyn Fn(&Entry) -> bool, new: &dyn Fn(&Entry) -> bool| {
        (old(a) && new(b)) || (old(b) && new(a))
    };
    let unused = |entry: &Entry| *entry == Entry::UNUSED;
    records.iter().any(|record| {
        let live = |entry: &Entry| is(entry, VOLUME_TYPE, record.uuid, record.extent);
        match (&record.state, record.growing_to) {
            (RecordState::Creating, None) => either(&unused, &live),
            (
                RecordState::Erasing {
                    erase_guid,
                    done_bytes,
                },
                None,
            ) => {
                let erasing = |entry: &Entry| is(entry, ERASING_TYPE, *erase_guid, record.extent);
                (either(&live, &erasing) && kin(a, b))
                    || (*done_bytes >= record.extent.len && either(&erasing, &unused))
            }
            (_, Some(to)) => {
                let grown = |entry: &Entry| is(entry, VOLUME_TYPE, record.uuid, to);
                either(&live, &grown) && kin(a, b)
            }
            _ => false,
        }
    })
}
