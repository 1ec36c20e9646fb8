//! Claims a drive: writes the protective MBR and a table with only the label partition, then the
//! label. Also completes or undoes a claim that was interrupted.

use uuid::Uuid;

use super::begun;
use crate::probe::Probed;
use crate::{
    claimable,
    device::{Device, Kernel},
    error::{LayoutError, damaged, io_error, refused},
    gpt::{self, LABEL_EXTENT, Table, Which},
    jobs::Claim,
    plan,
    record::{self, Content},
    space,
};
use drivebay_model::Signatures;
use drivebay_model::{
    Cause, ClaimPolicy, DriveId, DriveRef, Label, Zeroing, drive::PartitionFacts,
};
use drivebay_sys::blockdev::BlockDev;
use drivebay_worker::Context;

/// Progress of a claim.
#[derive(Debug, PartialEq)]
pub(super) enum Stage {
    /// No table, and no structure of Drivebay.
    NotBegun,
    /// The protective MBR, perhaps an entry array, and no header: only Drivebay's own bytes.
    BeforeTable(Table),
    /// A table with only the label partition, and no label; the copy of the table that is missing,
    /// if one is.
    BeforeLabel(Table, Option<Which>),
    /// The claim is complete.
    Labelled(Label),
}

/// Returns the label of a drive; None if it has none.
pub(crate) fn label<D: Device>(dev: &D, id: &DriveId) -> Result<Option<Label>, LayoutError> {
    match stage(dev, id)? {
        Stage::Labelled(label) => Ok(Some(label)),
        _ => Ok(None),
    }
}

/// Fails if the kernel has partitions of the drive, except the label partition, which hosts find
/// after an interrupted claim.
pub(crate) fn no_partitions<D: Kernel>(dev: &D, id: &DriveId) -> Result<(), LayoutError> {
    let partitions = dev
        .partitions()
        .map_err(io_error(id, "reading the kernel's partitions"))?;
    let is_label = |facts: &PartitionFacts| {
        (facts.start_bytes, facts.size_bytes) == (LABEL_EXTENT.start, LABEL_EXTENT.len)
    };
    claimable::no_partition(id, partitions.iter().find(|facts| !is_label(facts)))
}

/// Continues a claim that was interrupted: completes it (true), or undoes it (false).
pub(crate) fn resume(
    dev: &BlockDev,
    drive: &DriveRef,
    claim: &Claim,
    context: &mut Context,
) -> Result<bool, LayoutError> {
    let id = &drive.id;
    match begun(dev, id)? {
        Stage::Labelled(_) => Ok(true),
        Stage::NotBegun => Ok(false),
        Stage::BeforeTable(table) => {
            undo(dev, &table).map_err(io_error(id, "undoing an interrupted claim"))?;
            Ok(false)
        }
        Stage::BeforeLabel(table, missing) => {
            let probed = claimable::probe_begun(drive, context)?;
            only_a_table(id, &probed)?;
            if claim.policy == ClaimPolicy::Blank {
                claimable::is_blank(dev, id, plan::usable(&table))?;
            }
            context.step("finish a claim");
            finish(dev, id, claim, table, missing)?;
            Ok(true)
        }
    }
}

/// Writes the first table and the first label, durably.
pub(crate) fn begin<D: Device>(dev: &D, id: &DriveId, claim: &Claim) -> Result<(), LayoutError> {
    let table = Table::fresh(
        claim.label.drive_uuid,
        Uuid::new_v4(),
        dev.size(),
        dev.sector(),
    )
    .ok_or_else(|| refused(id, "TooSmall: it cannot hold a label and a volume".into()))?;
    if claim.policy == ClaimPolicy::SignatureFree {
        // With old data there, an interrupted claim could not be distinguished from a drive that
        // lost its table, or its label.
        let what = "clearing both ends of the drive";
        for run in begun::ends(dev.size()) {
            space::make_zeros(dev, id, run, Zeroing::Command, what)?;
        }
    }
    gpt::create(dev, &table).map_err(io_error(id, "writing the first partition table"))?;
    first_label(dev, id, claim.label.clone())
}

/// Completes a claim that has written a table. The table keeps its GUID, which becomes the drive's
/// uuid in the label.
pub(super) fn finish<D: Device>(
    dev: &D,
    id: &DriveId,
    claim: &Claim,
    table: Table,
    missing: Option<Which>,
) -> Result<(), LayoutError> {
    if let Some(which) = missing {
        gpt::write_copy(dev, &table, which)
            .map_err(io_error(id, "completing the first partition table"))?;
    }
    let label = Label {
        drive_uuid: table.disk_guid,
        ..claim.label.clone()
    };
    first_label(dev, id, label)
}

fn first_label<D: Device>(dev: &D, id: &DriveId, label: Label) -> Result<(), LayoutError> {
    // An interrupted claim may have left a part of a label.
    let what = "clearing the label partition";
    space::make_zeros(dev, id, LABEL_EXTENT, Zeroing::Command, what)?;
    match record::write(dev, None, &Content::new(label)) {
        Ok(_) => Ok(()),
        Err(error) => Err(LayoutError::Io {
            drive: id.to_string(),
            what: "writing the first label".into(),
            source: Cause::new(&error),
        }),
    }
}

/// Returns the progress of a claim of this layout; errs if the drive is or may be an LVM PV.
pub(super) fn begun<D: Device>(dev: &D, id: &DriveId) -> Result<Stage, LayoutError> {
    claimable::no_pv(dev, id)?;
    stage(dev, id)
}

/// Returns the progress of a claim, from the bytes alone. Errs if the drive is neither empty nor
/// Drivebay's.
pub(super) fn stage<D: Device>(dev: &D, id: &DriveId) -> Result<Stage, LayoutError> {
    let io = |what: &str| io_error(id, what);
    let (table, missing) = match gpt::read(dev).map_err(io("reading the partition table"))? {
        gpt::GptCopies::None => {
            if let error @ LayoutError::Damaged { .. } = begun::without_table(dev, id)? {
                return Err(error);
            }
            let begun =
                begun::before_table(dev).map_err(io_error(id, "reading the partition table"))?;
            return Ok(begun.map_or(Stage::NotBegun, Stage::BeforeTable));
        }
        gpt::GptCopies::Whole(table) => (table, None),
        gpt::GptCopies::One { table, damaged, .. } => (table, Some(damaged)),
        // A change of a claimed drive was interrupted: the session has the rules for that.
        gpt::GptCopies::Differ { backup, .. } => (backup, None),
        gpt::GptCopies::Damaged(why) => return Err(refused(id, format!("GptDamaged: {why}"))),
    };
    if !table.is_ours() {
        return Err(refused(
            id,
            "PartitionTable: it has a partition table that is not ours".into(),
        ));
    }
    match record::read(dev, table.disk_guid).map_err(io("reading the label"))? {
        record::RecordRead::Read(read) => Ok(Stage::Labelled(read.content.label)),
        record::RecordRead::Blank if table.partitions().count() == 1 => {
            Ok(Stage::BeforeLabel(table, missing))
        }
        record::RecordRead::Blank => {
            let reason = "the label is empty, and the partition table is not";
            Err(damaged(id, reason.into()))
        }
        record::RecordRead::Damaged(reason) => Err(damaged(id, reason)),
    }
}

/// Removes what a claim wrote before its first header.
pub(super) fn undo<D: Device>(dev: &D, table: &Table) -> std::io::Result<()> {
    dev.write_at(
        begun::array_start(table),
        &vec![0; gpt::ARRAY_BYTES as usize],
    )?;
    dev.flush()?;
    dev.write_at(0, &vec![0; usize::try_from(table.sector).unwrap_or(512)])?;
    dev.flush()
}

/// Fails if the drive is read-only, or the probe found anything besides a partition table.
fn only_a_table(id: &DriveId, probed: &Probed) -> Result<(), LayoutError> {
    let foreign = match &probed.signatures {
        Signatures::Empty => None,
        Signatures::Found(all) => all
            .iter()
            .find(|signature| signature.usage != "partition-table"),
        Signatures::Ambiguous(all) => all.first(),
    };
    match foreign {
        _ if probed.read_only => Err(refused(id, "ReadOnly: the kernel says read-only".into())),
        Some(signature) => Err(refused(
            id,
            format!("besides an unfinished label it holds {}", signature.kind),
        )),
        None if matches!(probed.signatures, Signatures::Ambiguous(_)) => Err(refused(
            id,
            "Ambivalent: its signatures exclude each other".into(),
        )),
        None => Ok(()),
    }
}
