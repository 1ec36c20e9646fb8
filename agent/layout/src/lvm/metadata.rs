//! Reads what LVM wrote on a physical volume (PV): label, header, metadata areas, and the committed
//! text.
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
//! `vg` parses the text.

use std::io;

use super::label;
pub use super::vg::{Lv, Pv, Segment, Vg, only_pv, parse};
use crate::device::Medium;
use drivebay_model::{Extent, units::human_size};

/// Result of reading a drive's LVM structures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PvContents {
    /// No LVM label in any of the four sectors where LVM looks for one.
    NoPv,
    /// A PV that belongs to no VG, or whose VG keeps its metadata elsewhere.
    Orphan(PvHeader),
    /// A PV with the metadata of its VG.
    Vg(Box<Committed>),
    /// A PV without a valid committed text: the text's checksum is wrong, as a power failure
    /// between LVM's (unflushed) writes of text and header leaves it, or text or header of its
    /// metadata area are damaged or unreadable.
    Torn(Torn),
    /// An LVM label, header or text that is not valid.
    Damaged {
        why: String,
        /// The PV's header, if it is valid and what it points to is not.
        header: Option<PvHeader>,
    },
}

/// Contents of a PV's label and header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PvHeader {
    /// LVM uuid with hyphens.
    pub uuid: String,
    /// Size of the device in LVM's label, bytes.
    pub device_bytes: u64,
    /// Metadata areas, bytes from the start of the drive.
    pub metadata: Vec<Extent>,
    /// First byte of the data area: at or before the first PE.
    pub data_start: u64,
    /// Space that LVM does not use (`pvcreate --bootloaderareasize`), if there is any.
    pub bootloader: Option<Extent>,
    /// True if a VG uses the PV, also if that VG keeps its metadata on other PVs.
    pub used: bool,
}

/// A committed text, and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// The header of the PV that it was read from.
    pub header: PvHeader,
    /// Contents of the text, from the perspective of this PV.
    pub vg: Vg,
    /// The text byte for byte, without the zero that ends it.
    pub text: Vec<u8>,
    /// Place of the text in the metadata area; None for a copy.
    pub location: Option<Location>,
    /// Damage of the label sector, if everything else of a Drivebay drive is valid: `header` has
    /// then been reconstructed.
    pub label_damage: Option<String>,
}

/// Place of the committed text, from the header of its metadata area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// Bytes from the start of the metadata area; at the end of the area a text continues behind
    /// its header.
    pub offset: u64,
    /// Bytes, including the zero that ends it.
    pub size: u64,
    /// LVM's checksum of those bytes; see `checksum`.
    pub checksum: u32,
}

/// A committed text that is not valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Torn {
    pub header: PvHeader,
    /// The text's place according to the header of the metadata area; None if that header is
    /// damaged.
    pub location: Option<Location>,
    /// A description of the damage.
    pub why: String,
}

/// Returns LVM's checksum: CRC-32 with its own initial value and no final complement.
pub fn checksum(bytes: &[u8]) -> u32 {
    // crc32fast complements on the way in and out; LVM does neither.
    let mut hasher = crc32fast::Hasher::new_with_initial(!CRC_START);
    hasher.update(bytes);
    !hasher.finalize()
}
const CRC_START: u32 = 0xf597_a6cf;

/// Reads the LVM structures of a drive. An unreadable sector is an error only if its contents
/// cannot be derived from others.
pub fn read<D: Medium + ?Sized>(dev: &D) -> io::Result<PvContents> {
    let (result, why) = match pv_header(&Disk(dev)) {
        Ok(Ok(Some(header))) => return behind(dev, header),
        Ok(Ok(None)) => (Ok(PvContents::NoPv), "it has no LVM label".to_owned()),
        Ok(Err(why)) => {
            let header = None;
            (
                Ok(PvContents::Damaged {
                    why: why.clone(),
                    header,
                }),
                why,
            )
        }
        Err(error) => {
            let why = format!("its LVM label does not read: {error}");
            (Err(error), why)
        }
    };
    match label::lost(dev, &why) {
        Some(committed) => Ok(PvContents::Vg(Box::new(committed))),
        None => result,
    }
}

/// Returns the committed text of an area; None unless its header and text are valid.
pub(super) fn text_in<D: Medium + ?Sized>(dev: &D, area: Extent) -> Option<Vec<u8>> {
    let disk = &Disk(dev);
    let location = location(disk, area).ok()?.ok()??;
    let text = committed_text(disk, area, location).ok()?;
    (checksum(&text) == location.checksum).then_some(text)
}

/// Reads the metadata areas of a PV.
pub(super) fn behind<D: Medium + ?Sized>(dev: &D, header: PvHeader) -> io::Result<PvContents> {
    let disk = &Disk(dev);
    let mut troubles = Vec::new();
    for &area in &header.metadata {
        let location = match location(disk, area)? {
            Ok(Some(location)) => location,
            Ok(None) => continue,
            Err(AreaTrouble::Unknown(why)) => {
                return Ok(PvContents::Damaged {
                    why,
                    header: Some(header),
                });
            }
            Err(AreaTrouble::Damaged(why)) => {
                troubles.push(why);
                continue;
            }
        };
        let text = match committed_text(disk, area, location) {
            Ok(text) if checksum(&text) == location.checksum => Ok(text),
            Ok(_) => Err("the checksum of the metadata text is wrong".to_owned()),
            Err(error) => Err(format!("the metadata text does not read: {error}")),
        };
        let text = match text {
            Ok(text) => text,
            // Another area may have a valid text, but then the drive is not one that Drivebay set
            // up.
            Err(why) => {
                return Ok(PvContents::Torn(Torn {
                    header,
                    location: Some(location),
                    why,
                }));
            }
        };
        return Ok(match committed(&header, text, location, dev.size()) {
            Ok(valid) => PvContents::Vg(Box::new(valid)),
            Err(why) => PvContents::Damaged {
                why,
                header: Some(header),
            },
        });
    }
    Ok(if troubles.is_empty() {
        PvContents::Orphan(header)
    } else {
        PvContents::Torn(Torn {
            header,
            location: None,
            why: troubles.join("; "),
        })
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
        location: Some(location),
        label_damage: None,
    })
}

/// Reason for not using the header of a metadata area.
enum AreaTrouble {
    /// The header is not valid, or cannot be read.
    Damaged(String),
    /// The header was written by a later version of LVM: it may be valid, and must not be repaired.
    Unknown(String),
}

struct Disk<'a, D: ?Sized>(&'a D);

impl<D: Medium + ?Sized> Disk<'_, D> {
    /// Reads any bytes by reading whole sectors. The caller must have checked that they are on the
    /// drive; the part of an incomplete last sector is missing in the result.
    fn bytes(&self, offset: u64, len: u64) -> io::Result<Vec<u8>> {
        let start = offset / self.0.sector() * self.0.sector();
        let end = offset.saturating_add(len).next_multiple_of(self.0.sector());
        let mut bytes = vec![0; (end - start) as usize];
        self.0.read_at(start, &mut bytes)?;
        let skip = (offset - start) as usize;
        bytes.drain(..skip.min(bytes.len()));
        bytes.truncate(len as usize);
        Ok(bytes)
    }

    fn holds(&self, area: Extent) -> bool {
        let whole = self.0.size() / self.0.sector() * self.0.sector();
        let end = area.start.checked_add(area.len);
        end.is_some_and(|end| end <= whole)
    }
}

/// LVM's sector, independent of the drive's sector size: the unit in which it searches for labels,
/// and the size of an area's header.
const SECTOR: u64 = 512;
/// Number of sectors in which LVM searches for a label.
const LABEL_SECTORS: u64 = 4;
/// Offset of the first text in its area, behind the header.
pub(super) const FIRST_TEXT: u64 = SECTOR;
pub(super) const LABEL_MAGIC: &[u8] = b"LABELONE";
pub(super) const LABEL_TYPE: &[u8] = b"LVM2 001";
pub(super) const AREA_MAGIC: &[u8] = b" LVM2 x[5A%r0N*>";
/// `RAW_LOCN_IGNORED`: the area is not used.
const IGNORED: u32 = 1;
/// Largest text that is read, in bytes: Drivebay's areas have 3 MiB, and most VGs need 16 KiB.
const MOST_TEXT: u64 = 32 * drivebay_model::MIB;
/// Bytes of an area's header and its first texts; the first text begins behind the header.
const FIRST_TEXTS: u64 = 64 * 1024;
/// Metadata areas that are read. LVM makes two at most.
const MOST_AREAS: usize = 8;

/// Reads the label sector; None if there is no label. The inner error: the label is not valid.
fn pv_header<D: Medium + ?Sized>(
    disk: &Disk<'_, D>,
) -> io::Result<Result<Option<PvHeader>, String>> {
    let len = LABEL_SECTORS * SECTOR;
    if disk.0.size() < len.max(disk.0.sector()) {
        return Ok(Ok(None));
    }
    let mut labels = Vec::new();
    let mut failed = None;
    match disk.bytes(0, len) {
        Ok(head) => labels.extend((0..).zip(head.chunks(SECTOR as usize).map(<[u8]>::to_vec))),
        // The sector with the label may be readable although its neighbours are not.
        Err(error) if disk.0.sector() >= len => return Err(error),
        Err(_) => {
            for number in 0..LABEL_SECTORS {
                match disk.bytes(number * SECTOR, SECTOR) {
                    Ok(sector) => labels.push((number, sector)),
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
        }
    }
    labels.retain(|(_, bytes)| bytes.starts_with(LABEL_MAGIC));
    Ok(match (labels.as_slice(), failed) {
        ([], Some(error)) => return Err(error),
        ([], None) => Ok(None),
        ([(number, label)], _) => label_sector(disk, *number, label).map(Some),
        _ => Err("it has several LVM labels".into()),
    })
}

fn label_sector<D: Medium + ?Sized>(
    disk: &Disk<'_, D>,
    number: u64,
    label: &[u8],
) -> Result<PvHeader, String> {
    if long(label, 8) != Some(number) {
        return Err("its LVM label is made for another sector".into());
    }
    if label.get(20..).map(checksum) != word(label, 16) {
        return Err("the checksum of its LVM label is wrong".into());
    }
    if label.get(24..32) != Some(LABEL_TYPE) {
        return Err("its LVM label has an unknown type".into());
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
                "its metadata area ({} at byte {}) is not on the drive",
                human_size(area.len),
                area.start
            ));
        }
    }
    // Version 0: written by an LVM before 2.02.99, without an extension.
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
            "its bootloader area ({} at byte {}) is not on the drive",
            human_size(area.len),
            area.start
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

/// Reads a list of areas, which ends with an area of zeros.
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

/// Returns the place of an area's committed text; None if it has none. The inner error: damage.
fn location<D: Medium + ?Sized>(
    disk: &Disk<'_, D>,
    area: Extent,
) -> io::Result<Result<Option<Location>, AreaTrouble>> {
    let header = match disk.bytes(area.start, SECTOR) {
        Ok(header) => header,
        Err(error) => {
            let why = format!("the header of its metadata area does not read: {error}");
            return Ok(Err(AreaTrouble::Damaged(why)));
        }
    };
    // Texts are never erased: without a header and any text there never was a VG. A power failure
    // during `pvcreate` can leave this.
    if header.iter().all(|byte| *byte == 0)
        && disk
            .bytes(area.start, FIRST_TEXTS.min(area.len))?
            .iter()
            .all(|byte| *byte == 0)
    {
        return Ok(Ok(None));
    }
    Ok(area_header(&header, area))
}

fn area_header(header: &[u8], area: Extent) -> Result<Option<Location>, AreaTrouble> {
    let damaged = |why: &str| AreaTrouble::Damaged(why.to_owned());
    let short = || damaged("the header of its metadata area is cut off");
    if header.get(4..20) != Some(AREA_MAGIC) {
        return Err(damaged("its metadata area has no header"));
    }
    if header.get(4..).map(checksum) != word(header, 0) {
        return Err(damaged(
            "the checksum of its metadata area's header is wrong",
        ));
    }
    if word(header, 20) != Some(1) {
        return Err(AreaTrouble::Unknown(
            "its metadata area has an unknown version".into(),
        ));
    }
    if long(header, 24) != Some(area.start) || long(header, 32) != Some(area.len) {
        return Err(damaged("its metadata area's header is about another area"));
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
        return Err(damaged(&format!(
            "its metadata area's header names a text of {} at byte {offset}",
            human_size(size)
        )));
    }
    Ok(Some(Location {
        offset,
        size,
        checksum,
    }))
}

/// Returns the text, joined if it continues at the start of the area.
fn committed_text<D: Medium + ?Sized>(
    disk: &Disk<'_, D>,
    area: Extent,
    location: Location,
) -> io::Result<Vec<u8>> {
    let first = location.size.min(area.len - location.offset);
    let mut text = disk.bytes(area.start + location.offset, first)?;
    if first < location.size {
        text.extend(disk.bytes(area.start + SECTOR, location.size - first)?);
    }
    Ok(text)
}

/// Inserts the hyphens of LVM's notation into 32 characters; None if they are no LVM uuid.
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
