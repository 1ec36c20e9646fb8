//! Writes the label sector of Drivebay's PVs and the header of their metadata area, in LVM's
//! format: each can be restored from the other. LVM's own repairs (`pvck`) open the drive
//! exclusively, so they must wait until no volume of it is in use.
//!
//! Both are at the same place on every drive of Drivebay (`plan`), so that a drive without a label
//! is still recognised: by a valid metadata area with a valid text of Drivebay's VG on Drivebay's
//! PV, and nothing else where LVM keeps labels.

use std::io;

use super::{
    metadata::{self, Committed, Location, PvContents, PvHeader},
    plan, pv, tags,
};
use crate::device::{Device, Medium};
use drivebay_model::Extent;

/// LVM's sector, independent of the drive's sector size.
const SECTOR: usize = 512;
/// The sector in which `pvcreate` writes the label.
const LABEL: u64 = 1;
/// Bytes in which LVM searches for labels. `pvcreate` zeroes the rest of them.
const LABELS: u64 = 4 * SECTOR as u64;
/// Offset of the PV header in the label sector.
const PV_HEADER: usize = 32;
/// Version of the PV header's extension, and its flag that a VG uses the PV.
const EXTENSION: (u32, u32) = (2, 1);

/// The metadata area of a PV of Drivebay.
pub const AREA: Extent = Extent {
    start: 4096,
    len: plan::METADATA_END - 4096,
};

/// Returns the metadata of a Drivebay drive of which only the label sector is damaged or
/// unreadable; `why` describes the damage. None if anything else differs or cannot be read: it may
/// contradict.
pub(super) fn lost<D: Medium + ?Sized>(dev: &D, why: &str) -> Option<Committed> {
    if dev.size() < plan::FIRST_PE || !is_alone(dev) {
        return None;
    }
    let header = |uuid: String, device_bytes| PvHeader {
        uuid,
        device_bytes,
        metadata: vec![AREA],
        data_start: plan::FIRST_PE,
        bootloader: Some(plan::COPIES),
        used: true,
    };
    let text = metadata::text_in(dev, AREA)?;
    let (uuid, device_bytes) = metadata::only_pv(&text)?;
    pv::drive_uuid_of(&uuid)?;
    let PvContents::Vg(committed) = metadata::behind(dev, header(uuid, device_bytes)).ok()? else {
        return None;
    };
    let is_ours = !matches!(tags::vg(&committed.vg.tags), tags::Read::Stranger);
    let is_whole = committed.vg.strange.is_empty() && committed.vg.pv.pe_start == plan::FIRST_PE;
    (is_ours && is_whole).then(|| Committed {
        label_damage: Some(why.to_owned()),
        ..*committed
    })
}

/// True if the other sectors in which LVM searches for labels are zeros: filesystems, tables and
/// boot code would be there. Unreadable sectors are ignored.
fn is_alone<D: Medium + ?Sized>(dev: &D) -> bool {
    let len = dev.sector().max(SECTOR as u64);
    (0..LABELS.max(len) / len).all(|number| {
        let mut sector = vec![0; len as usize];
        if dev.read_at(number * len, &mut sector).is_err() {
            return true;
        }
        let before = number * len / SECTOR as u64;
        let sectors = (before..).zip(sector.chunks(SECTOR));
        sectors
            .filter(|(number, _)| *number != LABEL && number * (SECTOR as u64) < LABELS)
            .all(|(_, bytes)| bytes.iter().all(|byte| *byte == 0))
    })
}

/// Writes the label that belongs to a PV's metadata, durably.
pub fn write<D: Device + ?Sized>(dev: &D, header: &PvHeader) -> io::Result<()> {
    patch(dev, LABEL * SECTOR as u64, &sector(header))
}

/// Writes a text to the place that the metadata area's header names, durably. The caller must have
/// checked that it is the committed text by size and checksum.
pub fn write_text<D: Device + ?Sized>(
    dev: &D,
    area: Extent,
    location: Location,
    text: &[u8],
) -> io::Result<()> {
    let mut text = text.to_vec();
    text.resize(text.len().next_multiple_of(SECTOR), 0);
    let first = (area.len - location.offset).min(text.len() as u64) as usize;
    let (first, rest) = text.split_at(first);
    patch(dev, area.start + location.offset, first)?;
    if rest.is_empty() {
        return Ok(());
    }
    patch(dev, area.start + SECTOR as u64, rest)
}

/// The place of the text in the header of a metadata area without one.
pub const NO_TEXT: Location = Location {
    offset: 0,
    size: 0,
    checksum: 0,
};

/// Replaces the header of Drivebay's metadata area by zeros in these bytes of a drive, which were read from this offset on, if it has no
/// text: `pvcreate` writes it before the label, so that a power failure between the two leaves it alone. Other bytes stay as they are.
pub fn without_empty_area(offset: u64, bytes: &mut [u8]) {
    let at = AREA.start.checked_sub(offset);
    let at = at.and_then(|at| usize::try_from(at).ok());
    let header = at.and_then(|at| bytes.get_mut(at..)?.get_mut(..SECTOR));
    if let Some(header) = header.filter(|header| **header == area_header(AREA, NO_TEXT)) {
        header.fill(0);
    }
}

/// Writes the header of a metadata area, durably.
pub fn write_area<D: Device + ?Sized>(dev: &D, area: Extent, location: Location) -> io::Result<()> {
    patch(dev, area.start, &area_header(area, location))
}

/// Returns the place of this text in a metadata area; None if it is not there, or if a newer text
/// of its VG is: one was committed after it. `seqno_of` returns the seqno of a valid text of the
/// VG.
pub fn find<D: Medium + ?Sized>(
    dev: &D,
    area: Extent,
    text: &[u8],
    seqno_of: impl Fn(&[u8]) -> Option<u64>,
) -> io::Result<Option<Location>> {
    let mut ring = vec![0; (area.len - SECTOR as u64) as usize];
    dev.read_at(area.start + SECTOR as u64, &mut ring)?;
    let mut whole = text.to_vec();
    whole.push(0);
    let seqno = seqno_of(text);
    let begins = text.get(..text.len().min(16)).unwrap_or_default();
    let (at_start, mut last_match) = (ring.len(), None);
    // At the end of the area a text continues behind its header.
    ring.extend_from_within(..);
    for start in (0..at_start).step_by(SECTOR) {
        let here = &ring[start..start + at_start];
        if !here.starts_with(begins) {
            continue;
        }
        if here.starts_with(&whole) {
            last_match = Some(start);
            continue;
        }
        let end = memchr::memchr(0, here).unwrap_or(here.len());
        if seqno_of(&here[..end]) >= seqno {
            return Ok(None);
        }
    }
    Ok(last_match.map(|start| Location {
        offset: (start + SECTOR) as u64,
        size: whole.len() as u64,
        checksum: metadata::checksum(&whole),
    }))
}

/// Writes whole sectors of the drive, durably: bytes beside those given are kept, or become zeros
/// if they cannot be read.
fn patch<D: Device + ?Sized>(dev: &D, offset: u64, bytes: &[u8]) -> io::Result<()> {
    let sector = dev.sector();
    let (start, end) = (offset / sector * sector, offset + bytes.len() as u64);
    let mut whole = vec![0; (end.next_multiple_of(sector) - start) as usize];
    for (number, piece) in (0..).zip(whole.chunks_mut(sector as usize)) {
        if dev.read_at(start + number * sector, piece).is_err() {
            piece.fill(0);
        }
    }
    let skip = (offset - start) as usize;
    whole[skip..skip + bytes.len()].copy_from_slice(bytes);
    dev.write_at(start, &whole)?;
    dev.flush()
}

fn put(sector: &mut [u8], at: usize, bytes: &[u8]) {
    sector[at..at + bytes.len()].copy_from_slice(bytes);
}

fn sector(header: &PvHeader) -> [u8; SECTOR] {
    let mut sector = [0; SECTOR];
    put(&mut sector, 0, metadata::LABEL_MAGIC);
    put(&mut sector, 8, &LABEL.to_le_bytes());
    put(&mut sector, 20, &(PV_HEADER as u32).to_le_bytes());
    put(&mut sector, 24, metadata::LABEL_TYPE);
    let mut at = PV_HEADER;
    let mut add = |bytes: &[u8]| {
        put(&mut sector, at, bytes);
        at += bytes.len();
    };
    add(header.uuid.replace('-', "").as_bytes());
    add(&header.device_bytes.to_le_bytes());
    let data = Extent {
        start: header.data_start,
        len: 0,
    };
    let none = Extent { start: 0, len: 0 };
    let mut areas = |areas: &[Extent]| {
        for area in areas.iter().chain([&none]) {
            add(&area.start.to_le_bytes());
            add(&area.len.to_le_bytes());
        }
    };
    areas(&[data]);
    areas(&header.metadata);
    add(&EXTENSION.0.to_le_bytes());
    add(&EXTENSION.1.to_le_bytes());
    for area in header.bootloader.iter().chain([&none]) {
        add(&area.start.to_le_bytes());
        add(&area.len.to_le_bytes());
    }
    let checksum = metadata::checksum(&sector[20..]);
    put(&mut sector, 16, &checksum.to_le_bytes());
    sector
}

fn area_header(area: Extent, location: Location) -> [u8; SECTOR] {
    let mut header = [0; SECTOR];
    put(&mut header, 4, metadata::AREA_MAGIC);
    put(&mut header, 20, &1_u32.to_le_bytes());
    put(&mut header, 24, &area.start.to_le_bytes());
    put(&mut header, 32, &area.len.to_le_bytes());
    put(&mut header, 40, &location.offset.to_le_bytes());
    put(&mut header, 48, &location.size.to_le_bytes());
    put(&mut header, 56, &location.checksum.to_le_bytes());
    let checksum = metadata::checksum(&header[4..]);
    put(&mut header, 0, &checksum.to_le_bytes());
    header
}
