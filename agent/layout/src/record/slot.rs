//! Converts one slot to and from bytes.

use std::io;

use uuid::Uuid;

use super::{Content, WriteError};
use crate::{
    device::{Device, Medium},
    gpt::LABEL_EXTENT,
    zeroed,
};
use drivebay_model::MIB;

/// Bytes of one slot.
pub(super) const SLOT_BYTES: u64 = 2 * MIB;
/// Most bytes of a payload: the record of free space is behind it.
const PAYLOAD_BYTES: u64 = SLOT_BYTES - HEADER_BYTES as u64 - zeroed::SLOT;
/// Bytes of a slot's header.
const HEADER_BYTES: usize = 4096;
const MAGIC: &[u8; 8] = b"DRVBAYLB";
/// Readers of another major version must not change the label.
const MAJOR: u16 = 1;

/// Result of checking one slot alone.
#[derive(Debug)]
pub(super) enum Slot {
    /// The slot was never written.
    Zero,
    Good {
        content: Box<Content>,
        sequence: u64,
    },
    /// Written by a version of Drivebay whose label must not be overwritten.
    Newer(String),
    /// Not valid for any other reason.
    Bad(String),
}

impl Slot {
    pub(super) fn why(self) -> String {
        match self {
            Self::Zero => "empty".into(),
            Self::Good { .. } => "valid".into(),
            Self::Newer(why) | Self::Bad(why) => why,
        }
    }
}

/// Returns the slots of the record of free space.
pub(super) fn of_free_space() -> zeroed::Slots {
    [0, 1].map(|slot| start_of(slot) + SLOT_BYTES - zeroed::SLOT)
}

fn start_of(slot: u64) -> u64 {
    LABEL_EXTENT.start + slot * SLOT_BYTES
}

fn field<const N: usize>(raw: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(part) = raw.get(at..at + N) {
        out.copy_from_slice(part);
    }
    out
}

fn put(raw: &mut [u8], at: usize, what: &[u8]) {
    if let Some(part) = raw.get_mut(at..at + what.len()) {
        part.copy_from_slice(what);
    }
}

/// True if a label can have this sequence number: 0 is not used, and the largest one has no
/// successor.
fn is_sequence(sequence: u64) -> bool {
    (1..u64::MAX).contains(&sequence)
}

/// Returns the bytes of a slot: header and padded payload. Errs for a sequence number that a reader
/// would refuse.
pub(super) fn encode(content: &Content, sequence: u64, sector: u64) -> Result<Vec<u8>, WriteError> {
    if !is_sequence(sequence) {
        return Err(WriteError::Sequence(sequence));
    }
    let payload = content.encode().map_err(WriteError::Encode)?;
    let length = payload.len() as u64;
    if length > PAYLOAD_BYTES {
        return Err(WriteError::TooLarge(length + HEADER_BYTES as u64));
    }
    let mut raw = vec![0; HEADER_BYTES];
    put(&mut raw, 0, MAGIC);
    put(&mut raw, 8, &MAJOR.to_le_bytes());
    put(&mut raw, 10, &content.minor.to_le_bytes());
    put(&mut raw, 12, &(HEADER_BYTES as u32).to_le_bytes());
    put(&mut raw, 16, &sequence.to_le_bytes());
    put(&mut raw, 24, &length.to_le_bytes());
    put(&mut raw, 32, &crc32fast::hash(&payload).to_le_bytes());
    put(&mut raw, 40, content.label.drive_uuid.as_bytes());
    let crc = crc32fast::hash(raw.get(..HEADER_BYTES - 4).unwrap_or_default());
    put(&mut raw, HEADER_BYTES - 4, &crc.to_le_bytes());
    raw.extend(payload);
    // Whole physical blocks: a drive replaces a bad block when all of it is written.
    let sector = usize::try_from(sector).unwrap_or(HEADER_BYTES);
    raw.resize(raw.len().next_multiple_of(sector.max(HEADER_BYTES)), 0);
    Ok(raw)
}

/// Writes a slot durably, and verifies it by reading back from the medium.
pub(super) fn write<D: Device + ?Sized>(dev: &D, slot: u64, raw: &[u8]) -> Result<(), WriteError> {
    let mut back = vec![0; raw.len()];
    dev.write_at(start_of(slot), raw)
        .and_then(|()| dev.flush())
        .and_then(|()| dev.read_at(start_of(slot), &mut back))
        .map_err(WriteError::Io)?;
    if back == raw {
        Ok(())
    } else {
        Err(WriteError::ReadBack(slot))
    }
}

/// True if a label was ever written to this slot, damaged or not.
pub(super) fn has_magic<D: Medium + ?Sized>(dev: &D, slot: u64) -> io::Result<bool> {
    let mut first = vec![0; usize::try_from(dev.sector()).unwrap_or(HEADER_BYTES)];
    dev.read_at(start_of(slot), &mut first)?;
    Ok(first.starts_with(MAGIC))
}

/// The bytes of a slot as they are on the drive.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Raw {
    header: Vec<u8>,
    /// Has the length in the header, without padding. Empty if the header is not valid; if it is
    /// all zeros, the sector after it.
    payload: Vec<u8>,
}

/// Reads the bytes of a slot.
pub(super) fn read<D: Medium + ?Sized>(dev: &D, slot: u64) -> io::Result<Raw> {
    let sector = usize::try_from(dev.sector()).unwrap_or(HEADER_BYTES);
    let mut header = vec![0; HEADER_BYTES];
    dev.read_at(start_of(slot), &mut header)?;
    let length = match judge_header(&header) {
        Ok(length) => length,
        // The slot was never written, unless there is a payload without its header.
        Err(Slot::Zero) => sector,
        Err(_) => 0,
    };
    let mut payload = vec![0; length.next_multiple_of(sector)];
    if length > 0 {
        dev.read_at(start_of(slot) + HEADER_BYTES as u64, &mut payload)?;
    }
    payload.truncate(length);
    Ok(Raw { header, payload })
}

/// Returns the payload's length. Err: the result that follows from the header alone.
fn judge_header(header: &[u8]) -> Result<usize, Slot> {
    if header.iter().all(|&byte| byte == 0) {
        return Err(Slot::Zero);
    }
    if !header.starts_with(MAGIC) {
        return Err(Slot::Bad("no magic".into()));
    }
    let crc = crc32fast::hash(header.get(..HEADER_BYTES - 4).unwrap_or_default());
    if crc != u32::from_le_bytes(field(header, HEADER_BYTES - 4)) {
        return Err(Slot::Bad("header checksum".into()));
    }
    let major = u16::from_le_bytes(field(header, 8));
    if major != MAJOR {
        return Err(Slot::Newer(format!(
            "its format is {major}, and this version of Drivebay knows {MAJOR}; use the version that wrote it, or a later one"
        )));
    }
    let length = u64::from_le_bytes(field(header, 24));
    if u32::from_le_bytes(field(header, 12)) as usize != HEADER_BYTES
        || length > SLOT_BYTES - HEADER_BYTES as u64
    {
        return Err(Slot::Bad("lengths".into()));
    }
    Ok(usize::try_from(length).unwrap_or(0))
}

/// Checks the bytes of a slot.
pub(super) fn judge(raw: &Raw) -> Slot {
    let (header, payload) = (raw.header.as_slice(), raw.payload.as_slice());
    match judge_header(header) {
        Ok(_) => {}
        Err(Slot::Zero) if payload.iter().any(|&byte| byte != 0) => {
            return Slot::Bad("no header".into());
        }
        Err(slot) => return slot,
    }
    if crc32fast::hash(payload) != u32::from_le_bytes(field(header, 32)) {
        return Slot::Bad("payload checksum".into());
    }
    let mut content = match Content::decode(payload) {
        Ok(content) => content,
        // The checksum is right: this is not damage, but a format that this version does not know.
        Err(error) => {
            return Slot::Newer(format!(
                "its payload is not understood ({error}); use the version that wrote it"
            ));
        }
    };
    content.minor = u16::from_le_bytes(field(header, 10));
    if Uuid::from_bytes(field(header, 40)) != content.label.drive_uuid {
        return Slot::Bad("drive UUID".into());
    }
    let sequence = u64::from_le_bytes(field(header, 16));
    if !is_sequence(sequence) {
        return Slot::Bad(format!("sequence {sequence}"));
    }
    Slot::Good {
        content: Box::new(content),
        sequence,
    }
}
