//! What LVM wrote on a physical volume (PV): the committed text metadata of its VG, as values.

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
    /// Why it is not a plain visible linear LV on this PV, in words.
    pub strange: Option<String>,
}

/// A run of PEs that an LV has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// First PE on the PV.
    pub start: u64,
    /// PEs.
    pub count: u64,
}
