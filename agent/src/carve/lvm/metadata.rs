//! What LVM wrote on a physical volume (PV): label, header, metadata areas, and the committed text.
//!
//! # Where
//! All integers are little-endian, all offsets in bytes; LVM's sector is 512 bytes on every drive.
//!
//! | where                          | what                                                            |
//! |--------------------------------|-----------------------------------------------------------------|
//! | one of the first four sectors  | label: `LABELONE`, its sector, checksum of bytes 20.., offset of the PV header, `LVM2 001` |
//! | PV header                      | uuid, device size, data areas, metadata areas, then (version, flags, bootloader areas) |
//! | start of a metadata area       | checksum of bytes 4..512, magic, version 1, start, length, then locations: the first is the committed text |
//! | the rest of a metadata area    | a ring of texts, a new one behind the last at the next sector     |
//!
//! `vg` reads the text itself.

use std::io;

pub use super::vg::{Lv, Pv, Segment, Vg, parse};
use crate::{carve::device::Device, model::Extent};

/// What a drive carries, as far as LVM is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// No LVM label in any of the four sectors where LVM looks for one.
    NoPv,
    /// A PV that belongs to no VG, or whose VG keeps its metadata elsewhere.
    Orphan(PvHeader),
    /// A PV with the metadata of its VG.
    Vg(Box<Committed>),
    /// A PV whose header has committed a text that is not there: its checksum or its syntax is wrong. What a
    /// power cut between LVM's (unflushed) writes of text and header leaves.
    Torn(Torn),
    /// An LVM label, header or text that cannot be believed.
    Damaged {
        /// Why.
        why: String,
        /// The PV, when its own header is whole and what is behind it is not.
        header: Option<PvHeader>,
    },
}

/// What label and header of a PV say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PvHeader {
    /// LVM uuid with hyphens.
    pub uuid: String,
    /// Bytes LVM takes the device to have.
    pub device_bytes: u64,
    /// Metadata areas, bytes from the start of the drive.
    pub metadata: Vec<Extent>,
    /// First byte of the data area: at or before the first PE.
    pub data_start: u64,
    /// Space that LVM leaves alone, when there is any (`pvcreate --bootloaderareasize`).
    pub bootloader: Option<Extent>,
    /// Some VG has it, also when that VG keeps its metadata on other PVs.
    pub used: bool,
}

/// A committed text, and where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// The PV it was read from.
    pub header: PvHeader,
    /// What it says.
    pub vg: Vg,
    /// The text, byte for byte, without the zero that ends it.
    pub text: Vec<u8>,
    /// Where in its metadata area it lies.
    pub location: Location,
}

/// What a metadata area's header says of the committed text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// Bytes from the start of the metadata area; the text goes on behind the area's header when it reaches its end.
    pub offset: u64,
    /// Bytes, with the zero that ends it.
    pub size: u64,
    /// LVM's checksum of those bytes; see `checksum`.
    pub checksum: u32,
}

/// A committed text that is not whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Torn {
    /// The PV.
    pub header: PvHeader,
    /// What the header of the metadata area says of the text.
    pub location: Location,
    /// What is wrong with the text.
    pub why: String,
}

/// LVM's checksum: CRC-32 with its own initial value and no final complement.
pub fn checksum(bytes: &[u8]) -> u32 {
    // crc32fast complements on the way in and out; LVM does neither.
    let mut hasher = crc32fast::Hasher::new_with_initial(!CRC_START);
    hasher.update(bytes);
    !hasher.finalize()
}
const CRC_START: u32 = 0xf597_a6cf;

/// Reads what the drive carries. An error is the drive's.
pub fn read<D: Device + ?Sized>(dev: &D) -> io::Result<Found> {
    read_with(dev.size(), dev.sector(), &mut |offset, len| {
        let mut bytes = vec![0; len];
        dev.read_at(offset, &mut bytes)?;
        Ok(bytes)
    })
}

/// The same through any way to read `len` bytes at a byte offset, both multiples of the sector.
pub fn read_with<E>(
    size: u64,
    sector: u64,
    read: &mut dyn FnMut(u64, usize) -> Result<Vec<u8>, E>,
) -> Result<Found, E> {
    let mut disk = Disk { size, sector, read };
    let header = match pv_header(&mut disk)? {
        Ok(Some(header)) => header,
        Ok(None) => return Ok(Found::NoPv),
        Err(why) => return Ok(Found::Damaged { why, header: None }),
    };
    let mut troubles = Vec::new();
    for &area in &header.metadata {
        let location = match location(&mut disk, area)? {
            Ok(Some(location)) => location,
            Ok(None) => continue,
            Err(why) => {
                troubles.push(why);
                continue;
            }
        };
        let text = committed_text(&mut disk, area, location)?;
        if checksum(&text) != location.checksum {
            // Another area may have it whole, but then the drive is none that we made.
            let why = "the checksum of the metadata text is wrong".to_owned();
            return Ok(Found::Torn(Torn {
                header,
                location,
                why,
            }));
        }
        return Ok(match committed(&header, text, location, size) {
            Ok(found) => Found::Vg(Box::new(found)),
            Err(why) => Found::Damaged {
                why,
                header: Some(header),
            },
        });
    }
    Ok(if troubles.is_empty() {
        Found::Orphan(header)
    } else {
        Found::Damaged {
            why: troubles.join("; "),
            header: Some(header),
        }
    })
}

fn committed(
    header: &PvHeader,
    mut text: Vec<u8>,
    location: Location,
    size: u64,
) -> Result<Committed, String> {
    while text.last() == Some(&0) {
        text.pop();
    }
    let mut vg = parse(&text, &header.uuid)?;
    if header.metadata.len() != 1 {
        vg.strange
            .push(format!("it has {} metadata areas", header.metadata.len()));
    }
    let end = vg.pv.pe_start + vg.pv.pe_count * vg.extent_bytes;
    if end > size {
        vg.strange.push(format!(
            "its PV ends at byte {end}, and the drive at byte {size}"
        ));
    }
    Ok(Committed {
        header: header.clone(),
        vg,
        text,
        location,
    })
}

struct Disk<'a, E> {
    size: u64,
    sector: u64,
    read: &'a mut dyn FnMut(u64, usize) -> Result<Vec<u8>, E>,
}

impl<E> Disk<'_, E> {
    /// Any bytes, through whole sectors. The caller has checked that they lie on the drive; what a last
    /// sector that is not whole cuts off reads as nothing.
    fn bytes(&mut self, offset: u64, len: u64) -> Result<Vec<u8>, E> {
        let start = offset / self.sector * self.sector;
        let end = offset.saturating_add(len).next_multiple_of(self.sector);
        let mut bytes = (self.read)(start, (end - start) as usize)?;
        let skip = (offset - start) as usize;
        bytes.drain(..skip.min(bytes.len()));
        bytes.truncate(len as usize);
        Ok(bytes)
    }

    fn holds(&self, area: Extent) -> bool {
        area.start
            .checked_add(area.len)
            .is_some_and(|end| end <= self.size / self.sector * self.sector)
    }
}

/// LVM's sector, whatever the drive's: where it looks for labels, and the size of an area's header.
const SECTOR: u64 = 512;
/// LVM looks for a label in so many sectors.
const LABEL_SECTORS: u64 = 4;
const LABEL_MAGIC: &[u8] = b"LABELONE";
const LABEL_TYPE: &[u8] = b"LVM2 001";
const AREA_MAGIC: &[u8] = b" LVM2 x[5A%r0N*>";
/// `RAW_LOCN_IGNORED`: the area is not used.
const IGNORED: u32 = 1;
/// A text of more bytes is not read: 8 MiB is what our areas have, 16 KiB what most VGs need.
const MOST_TEXT: u64 = 32 * crate::model::MIB;
/// Header and first texts of an area, bytes: the first text begins behind the header.
const FIRST_TEXTS: u64 = 64 * 1024;
/// Areas that are followed. LVM makes two at most.
const MOST_AREAS: usize = 8;

/// What is in the label sector. The inner error: a label that cannot be believed.
fn pv_header<E>(disk: &mut Disk<'_, E>) -> Result<Result<Option<PvHeader>, String>, E> {
    let len = LABEL_SECTORS * SECTOR;
    if disk.size < len.max(disk.sector) {
        return Ok(Ok(None));
    }
    let head = disk.bytes(0, len)?;
    let labels: Vec<(u64, &[u8])> = (0..)
        .zip(head.chunks(SECTOR as usize))
        .filter(|(_, bytes)| bytes.starts_with(LABEL_MAGIC))
        .collect();
    Ok(match labels.as_slice() {
        [] => Ok(None),
        [(number, label)] => label_sector(disk, *number, label).map(Some),
        _ => Err("it has several LVM labels".into()),
    })
}

fn label_sector<E>(disk: &Disk<'_, E>, number: u64, label: &[u8]) -> Result<PvHeader, String> {
    if long(label, 8) != Some(number) {
        return Err("its LVM label is made for another sector".into());
    }
    if label.get(20..).map(checksum) != word(label, 16) {
        return Err("the checksum of its LVM label is wrong".into());
    }
    if label.get(24..32) != Some(LABEL_TYPE) {
        return Err("its LVM label is of a type that nobody here knows".into());
    }
    let short = || "its PV header is cut off".to_owned();
    let mut at = word(label, 20).ok_or_else(short)? as usize;
    let uuid = label.get(at..at.saturating_add(32)).ok_or_else(short)?;
    let uuid = with_hyphens(uuid).ok_or("its PV uuid is none")?;
    at += 32;
    let device_bytes = long(label, at).ok_or_else(short)?;
    at += 8;
    let data = areas(label, &mut at)?;
    let metadata = areas(label, &mut at)?;
    for area in &metadata {
        if !disk.holds(*area) || area.len <= SECTOR || area.start < LABEL_SECTORS * SECTOR {
            return Err(format!(
                "its metadata area ({} bytes at byte {}) is not on the drive",
                area.len, area.start
            ));
        }
    }
    // Version 0 is an LVM before 2.02.99, which wrote no extension.
    let version = word(label, at).unwrap_or(0);
    let flags = word(label, at + 4).unwrap_or(0);
    let bootloader = if version == 0 {
        Vec::new()
    } else {
        at += 8;
        areas(label, &mut at)?
    };
    if let Some(area) = bootloader.iter().find(|area| !disk.holds(**area)) {
        return Err(format!(
            "its bootloader area ({} bytes at byte {}) is not on the drive",
            area.len, area.start
        ));
    }
    Ok(PvHeader {
        uuid,
        device_bytes,
        metadata,
        data_start: data.first().map_or(0, |area| area.start),
        bootloader: bootloader.first().copied(),
        used: version >= 2 && flags & 1 != 0,
    })
}

/// A list of areas, which ends with one that is zeros.
fn areas(label: &[u8], at: &mut usize) -> Result<Vec<Extent>, String> {
    let mut areas = Vec::new();
    for _ in 0..=MOST_AREAS {
        let (Some(start), Some(len)) = (long(label, *at), long(label, *at + 8)) else {
            return Err("its PV header is cut off".into());
        };
        *at += 16;
        if start == 0 && len == 0 {
            return Ok(areas);
        }
        areas.push(Extent { start, len });
    }
    Err("its PV header has too many areas".into())
}

/// Where the committed text of an area lies; None when there is none. The inner error: damage.
fn location<E>(
    disk: &mut Disk<'_, E>,
    area: Extent,
) -> Result<Result<Option<Location>, String>, E> {
    let header = disk.bytes(area.start, FIRST_TEXTS.min(area.len))?;
    // Texts are never erased: without a header and without any text there never was a VG. What a
    // power cut can leave of `pvcreate`.
    if header.iter().all(|byte| *byte == 0) {
        return Ok(Ok(None));
    }
    Ok(area_header(
        header.get(..SECTOR as usize).unwrap_or_default(),
        area,
    ))
}

fn area_header(header: &[u8], area: Extent) -> Result<Option<Location>, String> {
    let short = || "the header of its metadata area is cut off".to_owned();
    if header.get(4..20) != Some(AREA_MAGIC) {
        return Err("its metadata area has no header".into());
    }
    if header.get(4..).map(checksum) != word(header, 0) {
        return Err("the checksum of its metadata area's header is wrong".into());
    }
    if word(header, 20) != Some(1) {
        return Err("its metadata area is of a version that nobody here knows".into());
    }
    if long(header, 24) != Some(area.start) || long(header, 32) != Some(area.len) {
        return Err("its metadata area's header is about another area".into());
    }
    let offset = long(header, 40).ok_or_else(short)?;
    let size = long(header, 48).ok_or_else(short)?;
    let checksum = word(header, 56).ok_or_else(short)?;
    let flags = word(header, 60).ok_or_else(short)?;
    if offset == 0 || flags & IGNORED != 0 {
        return Ok(None);
    }
    let room = area.len - SECTOR;
    if offset < SECTOR || offset >= area.len || size == 0 || size > room || size > MOST_TEXT {
        return Err(format!(
            "its metadata area's header names a text of {size} bytes at {offset}"
        ));
    }
    Ok(Some(Location {
        offset,
        size,
        checksum,
    }))
}

/// The text, put together when it goes on at the start of the area.
fn committed_text<E>(
    disk: &mut Disk<'_, E>,
    area: Extent,
    location: Location,
) -> Result<Vec<u8>, E> {
    let first = location.size.min(area.len - location.offset);
    let mut text = disk.bytes(area.start + location.offset, first)?;
    if first < location.size {
        text.extend(disk.bytes(area.start + SECTOR, location.size - first)?);
    }
    Ok(text)
}

/// 32 characters as LVM shows them.
fn with_hyphens(uuid: &[u8]) -> Option<String> {
    if uuid.len() != 32
        || !uuid
            .iter()
            .all(|c| c.is_ascii_alphanumeric() || b"!#".contains(c))
    {
        return None;
    }
    let mut text = String::with_capacity(38);
    for (at, &c) in uuid.iter().enumerate() {
        if [6, 10, 14, 18, 22, 26].contains(&at) {
            text.push('-');
        }
        text.push(char::from(c));
    }
    Some(text)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let part = bytes.get(at..at.checked_add(4)?)?;
    part.try_into().ok().map(u32::from_le_bytes)
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    let part = bytes.get(at..at.checked_add(8)?)?;
    part.try_into().ok().map(u64::from_le_bytes)
}
