//! The on-drive format of the label: the owner of the drive, and the records of its volumes.
//!
//! # Where
//! The first entry of the GPT is the label partition: type `LABEL_TYPE`, 4 MiB at byte 1 MiB of the
//! drive. It has two slots of 2 MiB, at byte 0 and at byte 2 MiB of the partition. A slot is a
//! header of 4096 bytes followed by the payload, which is padded with zeros to whole blocks of 4096
//! bytes (to whole sectors by 0.1.0). Bytes behind that are left from longer payloads and have no
//! meaning, except the last 4 KiB of the slot: the record of free space (`zeroed`).
//!
//! # Header
//! All integers are little-endian. The header is one sector on 4Kn drives and eight on others.
//!
//! | bytes      | what                                                                      |
//! |------------|---------------------------------------------------------------------------|
//! | 0..8       | magic: `DRVBAYLB` (44 52 56 42 41 59 4C 42)                               |
//! | 8..10      | format, major: 1. A reader that knows only lower ones changes nothing     |
//! | 10..12     | format, minor: 0. Higher ones only add fields to the payload              |
//! | 12..16     | header length: 4096                                                       |
//! | 16..24     | sequence: grows with every write; the valid slot with the higher one wins |
//! | 24..32     | payload length in bytes, without padding; at most 2 MiB − 8 KiB           |
//! | 32..36     | CRC-32 (IEEE 802.3, as in zip and GPT) of the payload                     |
//! | 36..40     | zeros                                                                     |
//! | 40..56     | drive UUID, in the byte order of RFC 9562 (not GPT's); equals the payload's and the GPT's disk GUID |
//! | 56..4092   | zeros                                                                     |
//! | 4092..4096 | CRC-32 of bytes 0..4092                                                   |
//!
//! # Payload
//! UTF-8 JSON, one object; `payload` documents its fields. Fields that a reader does not know are
//! kept when it writes the label again.
//!
//! # Writing
//! A new version is written to the slot that does not have the newest one, flushed, read back from
//! the medium and compared; then it is valid. Then the other slot gets the same version in the same
//! way, so that at rest both have the newest one and damage to one of them loses nothing: in a
//! label that fell back by one version an acknowledged volume would be an intent. A power failure
//! leaves at least one whole slot at every moment.
//!
//! # Reading
//! The newest valid slot wins. One damaged slot is noted, and rewritten by a repair. If slot 1 is
//! all zeros and slot 0 not valid, in a table without any other entry, a claim was interrupted.
//! Anything else is damage, and nothing is changed.

mod payload;
mod slot;
#[cfg(test)]
mod tests;

use std::io;

use uuid::Uuid;

use super::{
    device::{self, Device, Medium},
    gpt::LABEL_EXTENT,
};
use drivebay_model::units::size_beside;
pub use payload::{Content, Stored};
use slot::{SLOT_BYTES, Slot};

/// Result of reading both slots.
#[derive(Debug, Clone, PartialEq)]
#[allow(
    clippy::large_enum_variant,
    reason = "there is one per look, and it is taken apart at once"
)]
pub enum RecordRead {
    /// Slot 1 was never written, and slot 0 is not valid: the claim was not completed. Only
    /// conclusive if the table has no entry but the label's; else it is damage.
    Blank,
    Read(Read),
    /// The label is not valid; the text is the reason.
    Damaged(String),
}

/// A label that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Read {
    pub content: Content,
    pub sequence: u64,
    /// Slot that it was read from; the next version is written first to the other one.
    pub slot: u64,
    /// Defect of the other slot; None if it has the same version.
    pub other: Option<Other>,
}

/// Defect of the other slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Other {
    /// Valid, and one or more versions older: a write was interrupted after its first half.
    Older,
    /// Not valid; the text is the reason.
    Damaged(String),
}

/// Reason for not writing a label.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Bytes of a label that does not fit its slot.
    #[error("the label would need {}; a slot holds {}", size_beside(*.0, SLOT_BYTES), size_beside(SLOT_BYTES, *.0))]
    TooLarge(u64),
    /// The next sequence number is one that readers refuse.
    #[error(
        "the label's sequence number {0} is not one that can be read again; move the volumes off the drive, wipe it, and claim it anew"
    )]
    Sequence(u64),
    /// The label cannot be converted to JSON.
    #[error("the label cannot be encoded")]
    Encode(#[source] serde_json::Error),
    /// Reading or writing the drive failed.
    #[error("the label cannot be written")]
    Io(#[source] io::Error),
    /// Slot whose contents differed when they were read back.
    #[error("label slot {0} did not read back as written")]
    ReadBack(u64),
}

/// True if a label was ever written to its usual place, damaged or not. A drive with such traces
/// and without a table was claimed, and its volumes may still be there.
pub fn has_traces<D: Medium + ?Sized>(dev: &D) -> io::Result<bool> {
    if dev.size() < LABEL_EXTENT.end() {
        return Ok(false);
    }
    device::any((0..2).map(|slot| slot::has_magic(dev, slot)))
}

/// Returns the slots of the record of free space.
pub(super) fn of_free_space() -> super::zeroed::Slots {
    slot::of_free_space()
}

/// Reads both slots. A label for another disk GUID is damaged. Errs if a slot cannot be read and
/// the other one is not valid.
pub fn read<D: Medium + ?Sized>(dev: &D, disk_guid: Uuid) -> io::Result<RecordRead> {
    let slots = (slot::read(dev, 0), slot::read(dev, 1));
    // At rest both have the same bytes, which are decoded once.
    if let (Ok(first), Ok(second)) = &slots
        && first == second
        && let Slot::Good { content, sequence } = slot::judge(first)
    {
        return Ok(checked(
            Read {
                content: *content,
                sequence,
                slot: 0,
                other: None,
            },
            disk_guid,
        ));
    }
    let judge = |raw: io::Result<slot::Raw>| raw.map(|raw| slot::judge(&raw));
    let slots = (judge(slots.0), judge(slots.1));
    // A slot whose sectors cannot be read counts as damaged only if the other one is valid.
    let good = |slot: &io::Result<Slot>| matches!(slot, Ok(Slot::Good { .. }));
    let (first, second) = match slots {
        (Err(error), other) if !good(&other) => return Err(error),
        (other, Err(error)) if !good(&other) => return Err(error),
        (first, second) => (settle(first), settle(second)),
    };
    Ok(match (first, second) {
        (Slot::Newer(what), _) | (_, Slot::Newer(what)) => RecordRead::Damaged(what),
        // The first write begins with slot 0. A label that was acknowledged has both slots.
        (Slot::Zero | Slot::Bad(_), Slot::Zero) => RecordRead::Blank,
        (
            Slot::Good {
                content: first,
                sequence: a,
            },
            Slot::Good {
                content: second,
                sequence: b,
            },
        ) => {
            let older = (a != b).then_some(Other::Older);
            if first.label.drive_uuid != second.label.drive_uuid {
                RecordRead::Damaged("its two slots belong to different drives".into())
            } else if a == b && first != second {
                RecordRead::Damaged(format!("its two slots differ and both are version {a}"))
            } else if a >= b {
                checked(
                    Read {
                        content: *first,
                        sequence: a,
                        slot: 0,
                        other: older,
                    },
                    disk_guid,
                )
            } else {
                checked(
                    Read {
                        content: *second,
                        sequence: b,
                        slot: 1,
                        other: older,
                    },
                    disk_guid,
                )
            }
        }
        (Slot::Good { content, sequence }, bad) => {
            let other = Some(Other::Damaged(bad.why()));
            checked(
                Read {
                    content: *content,
                    sequence,
                    slot: 0,
                    other,
                },
                disk_guid,
            )
        }
        (bad, Slot::Good { content, sequence }) => {
            let other = Some(Other::Damaged(bad.why()));
            checked(
                Read {
                    content: *content,
                    sequence,
                    slot: 1,
                    other,
                },
                disk_guid,
            )
        }
        (first, second) => {
            RecordRead::Damaged(format!("slot 0: {}; slot 1: {}", first.why(), second.why()))
        }
    })
}

fn settle(slot: io::Result<Slot>) -> Slot {
    slot.unwrap_or_else(|error| Slot::Bad(format!("unreadable: {error}")))
}

fn checked(read: Read, disk_guid: Uuid) -> RecordRead {
    if read.content.label.drive_uuid == disk_guid {
        RecordRead::Read(read)
    } else {
        RecordRead::Damaged(format!(
            "it belongs to drive {}, and the table to {disk_guid}",
            read.content.label.drive_uuid
        ))
    }
}

/// Writes the next version of the label to both slots, and returns it. `previous` is the label that
/// was read; None for the first one.
pub fn write<D: Device + ?Sized>(
    dev: &D,
    previous: Option<&Read>,
    content: &Content,
) -> Result<Read, WriteError> {
    let (sequence, slot) = previous.map_or((1, 0), |read| {
        (read.sequence.saturating_add(1), 1 - read.slot)
    });
    let raw = slot::encode(content, sequence, dev.sector())?;
    slot::write(dev, slot, &raw)?;
    slot::write(dev, 1 - slot, &raw)?;
    Ok(Read {
        content: content.clone(),
        sequence,
        slot: 1 - slot,
        other: None,
    })
}

/// Makes the other slot equal to the one that was read.
pub fn repair<D: Device + ?Sized>(dev: &D, read: &Read) -> Result<(), WriteError> {
    slot::write(
        dev,
        1 - read.slot,
        &slot::encode(&read.content, read.sequence, dev.sector())?,
    )
}
