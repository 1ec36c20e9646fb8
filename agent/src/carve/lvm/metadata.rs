//! What LVM wrote on a physical volume (PV): the committed text metadata of its VG, as values.

use std::io;

use crate::carve::device::Device;
use crate::model::Extent;

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
    /// An LVM label that cannot be believed, and why.
    Damaged(String),
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
    let _ = (size, sector, read);
    Ok(Found::NoPv)
}

/// The VG that a text describes, as seen from one of its PVs. Also for a copy of a text that was kept elsewhere.
pub fn parse(text: &[u8], pv_uuid: &str) -> Result<Vg, String> {
    let _ = (text, pv_uuid);
    Err("not yet".into())
}

/// The VG of a PV, as its committed metadata says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vg {
    /// Name.
    pub name: String,
    /// LVM uuid with hyphens, e.g. `GnZDwX-7tEZ-…`.
    pub uuid: String,
    /// Grows by one with every committed change.
    pub seqno: u64,
    /// Tags.
    pub tags: Vec<String>,
    /// Bytes of a physical extent (PE).
    pub extent_bytes: u64,
    /// The PV that was read.
    pub pv: Pv,
    /// LVs, in the order of the text.
    pub lvs: Vec<Lv>,
    /// Why this VG is none that Drivebay could have made, or cannot be trusted (several PVs, a missing PV, a
    /// lock type, a status flag nobody here knows), in words. Empty for ours.
    pub strange: Vec<String>,
}

/// The PV within its VG.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pv {
    /// LVM uuid with hyphens.
    pub uuid: String,
    /// Bytes from the start of the drive to its first PE.
    pub pe_start: u64,
    /// PEs it has.
    pub pe_count: u64,
}

/// A logical volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lv {
    /// Name.
    pub name: String,
    /// LVM uuid with hyphens.
    pub uuid: String,
    /// Tags.
    pub tags: Vec<String>,
    /// Where its bytes lie, in order of the LV. Empty when `strange`.
    pub segments: Vec<Segment>,
    /// All PEs that it or something of it occupies on this PV, also when it is `strange`.
    pub occupies: Vec<Segment>,
    /// Why it is not a plain visible linear LV on this PV, in words.
    pub strange: Option<String>,
}

/// A run of PEs that an LV has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Segment {
    /// First PE on the PV.
    pub start: u64,
    /// PEs.
    pub count: u64,
}
