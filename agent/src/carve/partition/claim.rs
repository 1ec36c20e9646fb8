//! Making a drive ours: the one place that writes to a drive that is not.
//!
//! Nothing is written before everything is known: the drive is held with O_EXCL and locked, the
//! probe runs again in this very process and finds it empty (and blank, if the class asks for
//! that), the kernel has no partitions of it, and the volume will fit. Then the protective MBR
//! and the table with nothing but the label partition are written, then the label.

use uuid::Uuid;

use super::{io_error, lock, open_error, session};
use crate::carve::{
    device::{self, Device},
    gpt::{self, LABEL_EXTENT, Table, Which},
    jobs::{CarveError, Claim},
    layout, plan,
    record::{self, Content, FreeSpace},
};
use crate::discovery::probe::{Blankness, GptState, Probe, Probed, Signatures};
use crate::model::{Cause, ClaimPolicy, DriveId, DriveRef, Extent, Label, Layout, MIB, VolumeSpec};
use crate::sys::blockdev::BlockDev;
use crate::worker::{Context, Job};

/// Bytes at both ends that must be zeros (design invariant 2).
const EDGE: u64 = 16 * MIB;

/// How far a claim got.
#[derive(Debug, PartialEq)]
pub(super) enum Stage {
    /// No table and nothing of ours.
    NotBegun,
    /// The protective MBR, perhaps an entry array, and no header: only our own bytes.
    BeforeTable(Table),
    /// A table with only the label partition, and no label; which copy is missing.
    BeforeLabel(Table, Option<Which>),
    /// Ours.
    Labelled(Label),
}

/// Whether the drive has a label already, and it is of the same cluster and node.
pub(super) fn is_labelled(dev: &BlockDev, id: &DriveId, claim: &Claim) -> Result<bool, CarveError> {
    match stage(dev, id)? {
        Stage::Labelled(label) => same_owner(id, &label, claim).map(|()| true),
        _ => Ok(false),
    }
}

/// Claims a drive, or finishes a claim that was interrupted. The answer still holds it, locked.
pub(super) fn claim(
    drive: &DriveRef,
    claim: &Claim,
    spec: &VolumeSpec,
    context: &mut Context,
) -> Result<BlockDev, CarveError> {
    let id = &drive.id;
    let mut dev = BlockDev::open_exclusive(drive).map_err(|error| open_error(drive, error))?;
    lock(&mut dev)?;
    let partitions = dev
        .partitions()
        .map_err(io_error(id, "reading the kernel's partitions"))?;
    // Hosts find the label partition of an interrupted claim, and that one only.
    if let Some(facts) = partitions
        .iter()
        .find(|facts| extent(facts) != LABEL_EXTENT)
    {
        return Err(refused(
            id,
            format!("HasPartitions: the kernel has {}", facts.kernel_name),
        ));
    }
    room(&dev, Layout::Partition, spec)?;
    context.step("probe before claiming");
    match stage(&dev, id)? {
        Stage::Labelled(_) => return Ok(dev),
        Stage::NotBegun => {}
        Stage::BeforeTable(table) => {
            undo(&dev, &table).map_err(io_error(id, "undoing an interrupted claim"))?;
        }
        Stage::BeforeLabel(table, missing) => {
            let probed = probe(drive, None, context)?;
            only_a_table(id, &probed)?;
            if claim.policy == ClaimPolicy::Blank {
                blank_but_for(&dev, id, &table)?;
            }
            context.step("finish a claim");
            finish(&dev, id, claim, table, missing)?;
            return Ok(dev);
        }
    }
    let probed = probe(drive, Some(claim.policy), context)?;
    empty(id, &probed, claim.policy)?;
    context.step("claim");
    begin(&dev, id, claim)?;
    Ok(dev)
}

/// Writes a first table and a first label.
pub(super) fn begin<D: Device>(dev: &D, id: &DriveId, claim: &Claim) -> Result<(), CarveError> {
    let table = Table::fresh(
        claim.label.drive_uuid,
        Uuid::new_v4(),
        dev.size(),
        dev.sector(),
    )
    .ok_or_else(|| refused(id, "TooSmall: it cannot hold a label and a volume".into()))?;
    gpt::create(dev, &table).map_err(io_error(id, "writing the first partition table"))?;
    first_label(dev, id, claim.label.clone(), claim.policy)
}

/// Completes a claim that got as far as a table. The table keeps its GUID, and gives it to the label.
pub(super) fn finish<D: Device>(
    dev: &D,
    id: &DriveId,
    claim: &Claim,
    table: Table,
    missing: Option<Which>,
) -> Result<(), CarveError> {
    if let Some(which) = missing {
        gpt::write_copy(dev, &table, which)
            .map_err(io_error(id, "completing the first partition table"))?;
    }
    let label = Label {
        drive_uuid: table.disk_guid,
        ..claim.label.clone()
    };
    first_label(dev, id, label, claim.policy)
}

fn first_label<D: Device>(
    dev: &D,
    id: &DriveId,
    label: Label,
    policy: ClaimPolicy,
) -> Result<(), CarveError> {
    let free_space = match policy {
        ClaimPolicy::Blank => FreeSpace::Zeros,
        ClaimPolicy::SignatureFree => FreeSpace::Unknown,
    };
    // Old bytes in the slots of a signature-free drive would be taken for a damaged label.
    dev.zero(LABEL_EXTENT)
        .and_then(|()| dev.flush())
        .map_err(io_error(id, "clearing the label partition"))?;
    match record::write(dev, None, &Content::new(label, free_space)) {
        Ok(_) => Ok(()),
        Err(error) => Err(CarveError::Io {
            drive: id.to_string(),
            what: "writing the first label".into(),
            source: Cause::new(&error),
        }),
    }
}

/// How far a claim got, from the bytes alone. Anything that is neither empty nor ours is refused.
pub(super) fn stage<D: Device>(dev: &D, id: &DriveId) -> Result<Stage, CarveError> {
    let io = |what: &str| io_error(id, what);
    let (table, missing) = match gpt::read(dev).map_err(io("reading the partition table"))? {
        gpt::Found::None => match session::without_table(dev, id)? {
            error @ CarveError::Damaged { .. } => return Err(error),
            _ => return before_table(dev).map_err(io_error(id, "reading the partition table")),
        },
        gpt::Found::Whole(table) => (table, None),
        gpt::Found::One { table, damaged, .. } => (table, Some(damaged)),
        // An interrupted change of a drive that is ours: the session knows more.
        gpt::Found::Differ { backup, .. } => (backup, None),
        gpt::Found::Damaged(why) => return Err(refused(id, format!("GptDamaged: {why}"))),
    };
    if !table.is_ours() {
        return Err(refused(
            id,
            "PartitionTable: it has a partition table that is not ours".into(),
        ));
    }
    match record::read(dev, table.disk_guid).map_err(io("reading the label"))? {
        record::Found::Read(read) => Ok(Stage::Labelled(read.content.label)),
        record::Found::Blank if table.partitions().count() == 1 => {
            Ok(Stage::BeforeLabel(table, missing))
        }
        record::Found::Blank => Err(CarveError::Damaged {
            drive: id.to_string(),
            reason: "the label is empty, and the partition table is not".into(),
        }),
        record::Found::Damaged(reason) => Err(CarveError::Damaged {
            drive: id.to_string(),
            reason,
        }),
    }
}

/// Tells a claim that stopped before its first header from an empty drive and from everything
/// else: our own protective MBR, at most the entry of a label partition, and zeros all around.
fn before_table<D: Device>(dev: &D) -> std::io::Result<Stage> {
    let nil = Uuid::nil();
    let Some(table) = Table::fresh(nil, nil, dev.size(), dev.sector()) else {
        return Ok(Stage::NotBegun);
    };
    let sector = dev.sector();
    let mut first = vec![0; usize::try_from(sector).unwrap_or(512)];
    dev.read_at(0, &mut first)?;
    if first != gpt::protective_mbr(&table) {
        return Ok(Stage::NotBegun);
    }
    let array = array_start(&table);
    let mut raw = vec![0; gpt::ARRAY_BYTES as usize];
    dev.read_at(array, &mut raw)?;
    let label = raw.starts_with(&crate::model::LABEL_TYPE.to_bytes_le());
    let rest = raw.get(gpt::ENTRY_BYTES..).unwrap_or_default();
    if raw.iter().any(|&byte| byte != 0) && !(label && rest.iter().all(|&byte| byte == 0)) {
        return Ok(Stage::NotBegun);
    }
    let end = array + gpt::ARRAY_BYTES;
    for run in [
        Extent {
            start: sector,
            len: EDGE.min(array) - sector,
        },
        Extent {
            start: array.saturating_sub(EDGE).max(sector),
            len: array - array.saturating_sub(EDGE).max(sector),
        },
        Extent {
            start: end,
            len: dev.size() - end,
        },
    ] {
        if device::first_nonzero(dev, run)?.is_some() {
            return Ok(Stage::NotBegun);
        }
    }
    Ok(Stage::BeforeTable(table))
}

/// Whether nothing is on the drive but what a claim writes before its first header.
pub(super) fn is_before_table<D: Device>(dev: &D) -> std::io::Result<bool> {
    Ok(matches!(before_table(dev)?, Stage::BeforeTable(_)))
}

/// Takes back what a claim wrote before its first header.
pub(super) fn undo<D: Device>(dev: &D, table: &Table) -> std::io::Result<()> {
    dev.write_at(array_start(table), &vec![0; gpt::ARRAY_BYTES as usize])?;
    dev.flush()?;
    dev.write_at(0, &vec![0; usize::try_from(table.sector).unwrap_or(512)])?;
    dev.flush()
}

fn array_start(table: &Table) -> u64 {
    table.last_lba * table.sector - gpt::ARRAY_BYTES
}

fn extent(facts: &crate::model::drive::PartitionFacts) -> Extent {
    Extent {
        start: facts.start_bytes,
        len: facts.size_bytes,
    }
}

/// Whether the volume that the drive is claimed for will fit, so carved.
pub(in crate::carve) fn room(
    dev: &BlockDev,
    layout: Layout,
    spec: &VolumeSpec,
) -> Result<(), CarveError> {
    let id = &dev.drive().id;
    let largest = layout::claimable_bytes(layout, dev.size(), u64::from(dev.sector()));
    if largest == 0 {
        let reason = "TooSmall: it cannot hold what Drivebay keeps of it and a volume";
        return Err(refused(id, reason.into()));
    }
    match plan::rounded(spec.size_bytes) {
        Some(needed) if needed <= largest => Ok(()),
        needed => Err(CarveError::NoSpace {
            drive: id.to_string(),
            needed: needed.unwrap_or(spec.size_bytes),
            largest,
        }),
    }
}

/// Whether a claim may go on with a drive that has this label; another owner's is refused.
pub(in crate::carve) fn same_owner(
    id: &DriveId,
    label: &Label,
    claim: &Claim,
) -> Result<(), CarveError> {
    if (&label.cluster, &label.node) == (&claim.label.cluster, &claim.label.node) {
        return Ok(());
    }
    Err(refused(
        id,
        format!(
            "it belongs to cluster {:?}, node {:?}",
            label.cluster, label.node
        ),
    ))
}

pub(in crate::carve) fn probe(
    drive: &DriveRef,
    policy: Option<ClaimPolicy>,
    context: &mut Context,
) -> Result<Probed, CarveError> {
    Probe {
        drive: drive.clone(),
        policy,
    }
    .run(context)
    .map_err(|error| CarveError::Io {
        drive: drive.id.to_string(),
        what: "probing before claiming".into(),
        source: Cause::new(&error),
    })
}

/// What a drive must be to be claimed. `busy` is not looked at: it is we who hold it.
pub(in crate::carve) fn empty(
    id: &DriveId,
    probed: &Probed,
    policy: ClaimPolicy,
) -> Result<(), CarveError> {
    if probed.read_only {
        return Err(refused(id, "ReadOnly: the kernel says read-only".into()));
    }
    if probed.signatures != Signatures::Empty {
        return Err(refused(
            id,
            format!("it is not empty: {:?}", probed.signatures),
        ));
    }
    if let Some(what) = &probed.traces {
        return Err(refused(id, format!("OursDamaged: it has {what}")));
    }
    if probed.gpt != GptState::None || probed.ours.is_some() {
        return Err(refused(id, format!("PartitionTable: {:?}", probed.gpt)));
    }
    match (policy, &probed.blankness) {
        (ClaimPolicy::Blank, Blankness::Blank) => Ok(()),
        (ClaimPolicy::Blank, Blankness::DataAt(at)) => Err(refused(
            id,
            format!(
                "NotBlank: there is data at byte {at}; `drive wipe` makes it blank if nobody needs it"
            ),
        )),
        (ClaimPolicy::Blank, Blankness::NotSampled) => Err(refused(
            id,
            "NotBlank: whether it is blank was not found out".into(),
        )),
        (ClaimPolicy::SignatureFree, _) => Ok(()),
    }
}

/// A claim is finished only on a drive where nothing but our table was found.
fn only_a_table(id: &DriveId, probed: &Probed) -> Result<(), CarveError> {
    let foreign = match &probed.signatures {
        Signatures::Empty => None,
        Signatures::Found(all) => all.iter().find(|found| found.usage != "partition-table"),
        Signatures::Ambiguous(all) => all.first(),
    };
    match foreign {
        _ if probed.read_only => Err(refused(id, "ReadOnly: the kernel says read-only".into())),
        Some(found) => Err(refused(
            id,
            format!("besides an unfinished label it holds {}", found.kind),
        )),
        None if matches!(probed.signatures, Signatures::Ambiguous(_)) => Err(refused(
            id,
            "Ambivalent: its signatures exclude each other".into(),
        )),
        None => Ok(()),
    }
}

/// Zeros around the table and the label partition.
fn blank_but_for(dev: &BlockDev, id: &DriveId, table: &Table) -> Result<(), CarveError> {
    let room = plan::usable(table);
    match device::sample_nonzero(dev, room, EDGE.min(room.len)).map_err(io_error(id, "sampling"))? {
        None => Ok(()),
        Some(at) => Err(refused(id, format!("NotBlank: there is data at byte {at}"))),
    }
}

pub(in crate::carve) fn refused(id: &DriveId, reason: String) -> CarveError {
    CarveError::NotClaimable {
        drive: id.to_string(),
        reason,
    }
}
