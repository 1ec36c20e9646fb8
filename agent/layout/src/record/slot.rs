//! One slot to and from bytes.

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
/// Most bytes of a payload: what is kept of free space lies behind it.
const PAYLOAD_BYTES: u64 = SLOT_BYTES - HEADER_BYTES as u64 - zeroed::SLOT;
/// Bytes of its header.
const HEADER_BYTES: usize = 4096;
const MAGIC: &[u8; 8] = b"DRVBAYLB";
/// Readers of another major version change nothing.
const MAJOR: u16 = 1;

/// One slot, judged alone.
#[derive(Debug)]
pub(super) enum Slot {
    /// Nothing was ever written there.
    Zero,
    /// Valid.
    Good {
        content: Box<Content>,
        sequence: u64,
    },
    /// Written by a version of Drivebay that we must not overrule.
    Newer(String),
    /// Anything else.
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

/// Where it is kept what is known of free space.
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

/// Whether a label has such a number: 0 is of none, and after the largest there would be no next one.
fn is_sequence(sequence: u64) -> bool {
    (1..u64::MAX).contains(&sequence)
}

/// Header and padded payload. Errs for a sequence that would be refused when it is read.
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
    // Whole physical blocks, too: a drive replaces a bad one when all of it is written.
    let sector = usize::try_from(sector).unwrap_or(HEADER_BYTES);
    raw.resize(raw.len().next_multiple_of(sector.max(HEADER_BYTES)), 0);
    Ok(raw)
}

/// Writes, flushes, reads back from the medium and compares.
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

/// Whether a label was ever written to this slot, damaged or not.
pub(super) fn has_magic<D: Medium + ?Sized>(dev: &D, slot: u64) -> io::Result<bool> {
    let mut first = vec![0; usize::try_from(dev.sector()).unwrap_or(HEADER_BYTES)];
    dev.read_at(start_of(slot), &mut first)?;
    Ok(first.starts_with(MAGIC))
}

/// One slot as it lies on the drive.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Raw {
    header: Vec<u8>,
    /// As long as the header says, without padding. Empty where the header is not whole; of a header of zeros alone, the
    /// sector after it.
    payload: Vec<u8>,
}

/// Reads one slot.
pub(super) fn read<D: Medium + ?Sized>(dev: &D, slot: u64) -> io::Result<Raw> {
    let sector = usize::try_from(dev.sector()).unwrap_or(HEADER_BYTES);
    let mut header = vec![0; HEADER_BYTES];
    dev.read_at(start_of(slot), &mut header)?;
    let length = match judge_header(&header) {
        Ok(length) => length,
        // Nothing was begun here, unless a payload without its header says otherwise.
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

/// The payload's length, or what the slot is without a look at its payload.
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

/// Judges one slot.
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
        // The checksum is right: this is not damage, but something that we do not understand.
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
